"""The episode store: a LeRobotDataset v3.0 folder written one episode at a time, so that a kill loses at most those in flight.

Each episode is one data parquet, one MP4 a camera and one row file in ``meta/episodes``. Every file is
written under a temporary name, synced and renamed; the row file comes last and commits the episode. A writer
in a hurry syncs once for many episodes (:mod:`simgap.episodes.write.unsynced`). ``info.json`` is the last
file of :meth:`EpisodeWriter.finish`: a folder without it is unfinished and readers say so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.episodes.formats.layout import CHUNK_SIZE, IMAGE_PREFIX, data_path, episodes_path, video_path
from simgap.episodes.spec import SCHEMA, Codec, DatasetSpec, differences
from simgap.episodes.statistics.exact import image_histogram
from simgap.episodes.write.encoders import VideoEncoder, encode_png, require_encoder
from simgap.episodes.write.files import commit, commit_new, sweep, sync_filesystem
from simgap.episodes.write.finish import SIMGAP_JSON, finish_dataset, is_sound, require_unchanged
from simgap.episodes.write.tables import (
    CONTENT,
    STAMP,
    SUMMARY,
    TRIALS,
    Summary,
    content_of,
    episode_row,
    frame_table,
    numeric_columns,
    to_bytes,
)
from simgap.episodes.write.unsynced import Doubt, Group, doubt
from simgap.errors import DataError
from simgap.provenance import canonical_json, read_json
from simgap.types import Episode

__all__ = ["Codec", "DatasetSpec", "EpisodeWriter"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """An episode ready to be written, without its frames."""

    index: int
    episode: Episode
    """Without images."""
    columns: Mapping[str, NDArray[Any]]
    """Of :func:`~simgap.episodes.write.tables.numeric_columns`."""
    summary: Summary
    videos: Mapping[str, bytes]
    """Camera -> video file."""
    pngs: Mapping[str, Sequence[bytes]]
    """Camera -> PNG of each frame, where these are what is stored."""


class EpisodeWriter:
    """Writes episodes into a dataset folder; several processes may write different indices of one folder at the same time."""

    def __init__(self, root: Path, spec: DatasetSpec, *, sync_every: int = 1) -> None:
        """Open a new, half-written or finished dataset of the same spec, and put right what dead writers left.

        Args:
            root: dataset folder.
            spec: what all its episodes share.
            sync_every: episodes for one sync. With 1 an episode is on the disk when :meth:`write` returns.
                With more, a kill still loses the episode in flight alone; a power cut loses those since the
                last sync, and the next writer sees which.

        Raises:
            DataError: the folder holds something else, or a dataset of another spec or stamp; the message
                names the difference.
            MachineError: the codec cannot be encoded here.
        """
        spec.require_writable()
        require_encoder(spec.codec)
        self._root = Path(root)
        # as a reader will see it: plain floats and lists
        self._spec = DatasetSpec.from_json(json.loads(canonical_json(spec.to_json())))
        self._encoder = VideoEncoder(spec.codec, spec.encoding, spec.rate_hz) if spec.has_videos else None
        self._claim()
        self._group = Group(self._root / "meta", sync_every) if sync_every > 1 else None
        sweep(self._root)
        self._settle_doubt()

    @property
    def spec(self) -> DatasetSpec:
        """The spec all episodes share."""
        return self._spec

    @property
    def root(self) -> Path:
        """The dataset folder."""
        return self._root

    def done(self) -> set[int]:
        """Return the indices of complete episodes on disk: row, frames and every video are there."""
        rows = _indices(self._root / "meta" / "episodes", ".parquet")
        complete = rows & _indices(self._root / "data", ".parquet")
        if self._spec.has_videos:
            for camera in self._spec.cameras:
                complete &= _indices(self._root / "videos" / (IMAGE_PREFIX + camera), ".mp4")
        return complete

    def write(self, index: int, episode: Episode, *, encoded: Mapping[str, bytes] | None = None) -> None:
        """Write one episode completely or not at all.

        Args:
            index: position in the dataset, from 0; each index once, in any order, from any process.
            episode: arrays in the units of the spec, all spec cameras, ``time_s`` strictly increasing.
            encoded: camera -> the video file of exactly these frames, where another dataset of the same codec
                has it already: kept as it is, for encoding again would lose quality.

        Raises:
            DataError: the episode does not fit the spec, or the index is already there.
        """
        self.commit([self.prepare(index, episode, encoded=encoded)])

    def prepare(
        self, index: int, episode: Episode, *, encoded: Mapping[str, bytes] | None = None
    ) -> Prepared:
        """Do all work on the images of an episode, of which nothing is on the disk then; takes and raises what :meth:`write` does."""
        spec = self._spec
        _require_fit(index, episode, spec)
        self._require_new(index)
        columns = numeric_columns(episode, spec, index)
        given, videos, histograms = encoded or {}, {}, {}
        # each camera's frames once and for all, while they are in the processor's caches
        for camera in sorted(spec.cameras):
            if self._encoder:
                videos[camera] = given.get(camera) or self._encoder.encode(episode.images[camera])
            histograms[camera] = image_histogram(episode.images[camera])
        pngs = (
            {}
            if spec.has_videos
            else {camera: [encode_png(image) for image in episode.images[camera]] for camera in spec.cameras}
        )
        return Prepared(
            index,
            replace(episode, images={}),
            columns,
            Summary.of(episode, spec, videos, histograms),
            videos,
            pngs,
        )

    def commit(self, prepared: Sequence[Prepared]) -> None:
        """Write prepared episodes, each completely or not at all; several at once cost less than one by one.

        Raises:
            DataError: an index is already there.
        """
        for p in prepared:
            self._require_new(p.index)
        (self._root / "meta" / "info.json").unlink(missing_ok=True)
        for p, (data, row) in [(p, self._tables(p)) for p in prepared]:
            self._commit(p, data, row)

    def _tables(self, prepared: Prepared) -> tuple[bytes, bytes]:
        row = episode_row(prepared.columns, prepared.episode, self._spec, prepared.index, prepared.summary)
        about = {SUMMARY: prepared.summary.to_text()}
        if self._spec.stamp.kind == TRIALS:
            about |= {
                STAMP: self._spec.stamp.hash,
                CONTENT: content_of(prepared.columns, row, prepared.summary),
            }
        return to_bytes(frame_table(prepared.columns, prepared.pngs), metadata=about), to_bytes(
            row, with_schema=False
        )

    def _require_new(self, index: int) -> None:
        if (self._root / episodes_path(index)).exists():
            raise DataError(
                f"episode {index} is already in {self._root}; skip the indices of done() or write to a new"
                " folder"
            )

    def _commit(self, prepared: Prepared, frames: bytes, row: bytes) -> None:
        root, index, durable = self._root, prepared.index, self._group is None
        if self._group:
            self._group.begin()
        commit(root / data_path(index), frames, durable=durable)
        for camera, video in prepared.videos.items():
            commit(root / video_path(index, IMAGE_PREFIX + camera), video, durable=durable)
        commit(root / episodes_path(index), row, durable=durable)
        if self._group:
            self._group.end()

    def flush(self) -> None:
        """Wait until every episode written so far is on the disk."""
        if self._group:
            self._group.settle()

    def is_finished(self) -> bool:
        """Return whether :meth:`finish` has been called after the last episode; an old ``info.json`` may come back after a crash."""
        stored = read_json(self._root / SIMGAP_JSON)
        return (
            (self._root / "meta" / "info.json").is_file()
            and stored["fingerprint"] is not None
            and stored.get("episodes") == len(self.done())
        )

    def finish(self) -> str:
        """Number the rows, write tasks, exact statistics, our stamp and last ``info.json``; return the fingerprint.

        Doing it again changes nothing; a kill in the middle leaves all episodes and another call repairs the
        rest.

        Raises:
            DataError: no episode, a gap in the indices, episodes with different columns, or content that was
                changed since.
        """
        self.flush()
        self._settle_doubt()
        if self.is_finished():
            return require_unchanged(self._root, self._spec)
        return finish_dataset(self._root, self._spec, self.done())

    def _settle_doubt(self) -> None:
        """Sync what killed writers left unsynced; after a crash of the machine, first drop the rows of spoiled episodes."""
        meta = self._root / "meta"
        kind, marks = doubt(meta)
        if kind is Doubt.CRASHED:
            for index in self.done():
                if not is_sound(self._root, self._spec, index):
                    (self._root / episodes_path(index)).unlink()
        if marks:
            sync_filesystem(meta)
            for mark in marks:
                mark.unlink(missing_ok=True)

    def _claim(self) -> None:
        path = self._root / SIMGAP_JSON
        ours = self._spec.to_json()
        if not path.exists():
            # asked again: another worker may have claimed it meanwhile
            if _holds_something(self._root) and not path.exists():
                raise DataError(
                    f"{self._root} is not empty and no dataset of ours (no {SIMGAP_JSON}); choose an empty or"
                    " new folder"
                )
            text = json.dumps({"schema": SCHEMA, "spec": ours, "fingerprint": None}, indent=2, sort_keys=True)
            if commit_new(path, text.encode()):
                return
        stored = read_json(path)
        schema = stored.get("schema") if isinstance(stored, dict) else None
        if schema != SCHEMA:
            raise DataError(f"{path} has schema {schema!r}, expected {SCHEMA}; use the version that wrote it")
        found = sorted(differences(ours, stored["spec"]), key=len)
        if found:
            there, here = (spec["stamp"].get("env") for spec in (stored["spec"], ours))
            if there is not None and there != here:
                raise DataError(
                    f"{self._root} holds episodes of {there}, and this would add episodes of"
                    f" {here or 'another source'}; choose another folder (--out)"
                )
            more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
            raise DataError(
                f"{self._root} holds episodes of another spec: {'; '.join(found[:3])}{more}; use the same"
                " spec, or another folder (--out)"
            )


def release_claim(root: Path) -> None:
    """Give a folder free that a writer claimed and wrote nothing into; only for who is alone in it."""
    claim = root / SIMGAP_JSON
    if claim.is_file() and {path for path in root.rglob("*") if not path.is_dir()} == {claim}:
        claim.unlink()


def _holds_something(root: Path) -> bool:
    return root.exists() and any(p for p in root.iterdir() if p.name != "meta" or any(p.glob("[!.]*")))


def _indices(folder: Path, suffix: str) -> set[int]:
    found = set()
    for path in folder.glob(f"chunk-*/file-*{suffix}"):
        chunk, file = path.parent.name.removeprefix("chunk-"), path.stem.removeprefix("file-")
        if chunk.isdigit() and file.isdigit():
            found.add(int(chunk) * CHUNK_SIZE + int(file))
    return found


def _require_fit(index: int, episode: Episode, spec: DatasetSpec) -> None:
    where = f"episode {index} of {spec.name!r}"
    if index < 0 or not (episode.seed is None or -(2**63) <= episode.seed < 2**63):
        raise DataError(f"{where}: index must be 0 or more and the seed ({episode.seed}) fit 64 bits")
    if not (episode.task or spec.task_default):
        raise DataError(
            f"{where} has no task and the spec no task_default; say in words what the robot should do"
        )
    for what, values, vector in (
        ("action", episode.action, spec.action_spec),
        ("state", episode.state, spec.state_spec),
    ):
        if values.ndim != 2 or values.shape[1] != len(vector):
            raise DataError(
                f"{where}: {what} has shape {values.shape}, expected (T, {len(vector)}) for"
                f" {list(vector.names)}"
            )
    if set(episode.images) != set(spec.cameras):
        raise DataError(f"{where} has cameras {sorted(episode.images)}, the spec {sorted(spec.cameras)}")
    for camera, frames in episode.images.items():
        expected = (*spec.image_size, 3)
        if frames.dtype != np.uint8 or frames.shape[1:] != expected:
            raise DataError(
                f"{where}: camera {camera!r} gives {frames.dtype} {frames.shape}, expected uint8 (T,"
                f" *{expected})"
            )
    steps = np.diff(episode.time_s)
    if not np.isfinite(episode.time_s).all() or (steps <= 0).any():
        bad = int(np.argmax(~(steps > 0))) + 1 if len(steps) else 0
        raise DataError(
            f"{where}: time_s must be finite and increase; it does not at frame {bad}; record the true clock"
            " of each frame"
        )

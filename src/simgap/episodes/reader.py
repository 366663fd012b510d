"""Read datasets, ours and others', in every format known here, trusting nothing they say about themselves."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from simgap.bounds import MALFORMED
from simgap.episodes.fingerprint import content_fingerprint
from simgap.episodes.formats.facts import metadata_facts
from simgap.episodes.formats.hdf5 import open_hdf5
from simgap.episodes.formats.index import EpisodeEntry, Feature
from simgap.episodes.formats.keymap import ACTION_ROLE, STATE_ROLE, KeyMap, stored_keymap
from simgap.episodes.formats.layout import CACHE, INDEX_FEATURES, TIME
from simgap.episodes.formats.lerobot import open_lerobot
from simgap.episodes.formats.recognise import Format, recognise
from simgap.episodes.formats.source import Opened, Source
from simgap.episodes.formats.tub import open_tub
from simgap.episodes.formats.vectors import UNLIMITED, Vector
from simgap.episodes.identity import spec_of_others, vectors_of
from simgap.episodes.write.finish import column_values
from simgap.errors import DataError
from simgap.provenance import content_hash
from simgap.types import Episode, Outcome, OutcomeKind

__all__ = ["UNLIMITED", "Dataset", "open_dataset"]


class Identity(NamedTuple):
    """What a dataset is, by its bytes."""

    fingerprint: str
    """Of everything, what the key map says included."""
    frames: str
    """Of what decoding depends on: names and units may change without decoding again."""


class Dataset:
    """A dataset opened for reading; frames are read and decoded only when asked for."""

    def __init__(self, root: Path, opened: Opened, keymap: KeyMap | None) -> None:
        """Hold what :func:`open_dataset` found; use that function."""
        self.root = root
        self.entries = opened.entries
        self.notes = opened.notes
        """What the reader had to assume, one sentence each."""
        self.questions = opened.questions
        """Which of these must be settled before a copy makes them permanent."""
        self.keymap = keymap
        self._source = opened.source
        self._roles = opened.roles
        self._recorded = opened.recorded
        self._by_index = {e.index: e for e in opened.entries}
        self.vectors_of = vectors_of(root, opened, keymap)
        made = {v.key: v.feature() for v in self.vectors_of.values() if not v.is_stored}
        self.info = replace(opened.info, features={**opened.info.features, **made})
        self.spec = opened.spec or spec_of_others(
            root, self.info, self.vectors_of, opened.roles.cameras, keymap
        )
        """Ours as stored; for other datasets what format and key map say, with ``Unit.UNKNOWN`` where they say nothing."""

    @property
    def is_ours(self) -> bool:
        """True when our writer made it and its spec can be trusted."""
        return self._recorded is not None

    @property
    def n_episodes(self) -> int:
        """Number of episodes listed."""
        return len(self.entries)

    @property
    def n_frames(self) -> int:
        """Number of frames listed."""
        return sum(e.length for e in self.entries)

    @property
    def action_key(self) -> str:
        """The feature that holds actions."""
        return self.vectors_of[ACTION_ROLE].key

    @property
    def state_key(self) -> str:
        """The feature that holds encoder readings; of width 0 where nothing was measured."""
        return self.vectors_of[STATE_ROLE].key

    def dimension_names(self, key: str, width: int) -> tuple[str, ...] | None:
        """Return the names of the action's or the state's dimensions; None where nobody gave any, or not ``width`` of them."""
        vector = next(v for v in self.vectors_of.values() if v.key == key)
        if self.is_ours:  # what info.json says is what LeRobot reads; it can be compared with the spec
            declared = self.info.features[key].names
            return declared if len(declared) == width else None
        return vector.spec.names if vector.is_named and len(vector.spec) == width else None

    @property
    def camera_keys(self) -> dict[str, str]:
        """Camera name -> feature key."""
        return dict(self._roles.cameras)

    def camera_key(self, camera: str) -> str:
        """Return the feature of a camera.

        Raises:
            DataError: the dataset records such a camera, and ``info.json`` lists no frames of it.
        """
        key = self._roles.cameras.get(camera)
        if key is None:
            raise DataError(
                f"{self.root}/meta/info.json lists no pictures or videos of camera {camera!r}, which the"
                " dataset records; restore it"
            )
        return key

    @property
    def stored_features(self) -> dict[str, Feature]:
        """The features that lie on disk, without vectors made of several."""
        made = {v.key for v in self.vectors_of.values() if not v.is_stored}
        return {k: f for k, f in self.info.features.items() if k not in made}

    @property
    def source(self) -> Source:
        """What reads the files."""
        return self._source

    @property
    def cache_folder(self) -> Path:
        """Where decoded frames are kept: in the dataset folder, or beside a dataset that is one file."""
        return self.root.with_name(f"{self.root.name}.{CACHE}") if self.root.is_file() else self.root / CACHE

    @property
    def fingerprint(self) -> str:
        """Content hash, computed from the bytes on disk and, for foreign data, what the key map says of them.

        Raises:
            DataError: a dataset of ours whose files changed since it was finished.
        """
        return self.identify().fingerprint

    def identify(self) -> Identity:
        """Return the fingerprint and that of the frames alone, both of the bytes on disk; every file is read once.

        Raises:
            DataError: a dataset of ours whose files changed since it was finished.
        """
        files = self._source.content_files()
        if self._recorded is not None:
            actual = content_fingerprint(self.root, self.spec.to_json(), files)
            if actual != self._recorded:
                raise DataError(
                    f"{self.root} changed since it was finished (fingerprint {actual[:12]}, recorded"
                    f" {self._recorded[:12]}); restore it, or make it again elsewhere"
                )
            return Identity(actual, actual)
        content = content_fingerprint(self.root, {}, files)
        keymap = self.keymap.to_json() if self.keymap is not None else {}
        changes = {
            self._roles.cameras[name]: list(how)
            for name, how in (self.keymap.images.items() if self.keymap is not None else ())
        }
        return Identity(
            content_hash([content, dict(self.info.raw), keymap]), content_hash([content, changes])
        )

    def entry(self, index: int) -> EpisodeEntry:
        """Return the index row of an episode."""
        if index not in self._by_index:
            raise DataError(f"{self.root} has no episode {index}; it lists {len(self.entries)} episodes")
        return self._by_index[index]

    def columns(self, index: int) -> dict[str, NDArray[Any]]:
        """Return the numeric columns of an episode by feature name, ``(T,)`` or ``(T, k)``; no image is touched."""
        entry, table = self.entry(index), self.table(index)
        columns = {
            name: values
            for name in table.column_names
            if (values := _numeric(table[name], entry.data, name)) is not None
        }
        for vector in self.vectors_of.values():
            if not vector.is_stored:
                columns[vector.key] = _joined(vector, columns, table.num_rows, entry)
            if vector.key not in columns:
                has = f"it has {sorted(columns)}; repair the file or the key map"
                raise DataError(
                    f"{entry.data} has no numeric column {vector.key!r} in episode {entry.index}; {has}"
                )
        return columns

    def table(self, index: int) -> pa.Table:
        """Return the rows of an episode as stored, images left out."""
        return self._source.table(self.entry(index))

    def schema(self, index: int) -> pa.Schema:
        """Return the columns of the file an episode lies in, images among them."""
        return self._source.schema(self.entry(index))

    def decode(self, index: int, camera: str, out: NDArray[np.uint8], start: int = 0) -> None:
        """Decode ``len(out)`` frames of one camera from frame ``start`` of an episode on into ``out``, ``(n, H, W, 3)`` uint8.

        Raises:
            DataError: the frames are missing, truncated or of another size.
        """
        self._source.decode(self.entry(index), self.camera_key(camera), out, start)
        for change in self.keymap.images.get(camera, ()) if self.keymap is not None else ():
            out[:] = _IMAGE_CHANGES[change](out)

    def frame_shape(self, camera: str) -> tuple[int, int, int]:
        """Return ``(H, W, 3)`` of a camera as declared, channel-first declarations turned."""
        shape = self.info.features[self.camera_key(camera)].shape
        if len(shape) != 3:
            raise DataError(
                f"{self.root}: camera {camera!r} declares shape {list(shape)}, expected [height, width, 3]"
            )
        return (shape[1], shape[2], 3) if shape[0] == 3 and shape[2] != 3 else (shape[0], shape[1], 3)

    def time_key(self, columns: Mapping[str, NDArray[Any]]) -> str | None:
        """Return which of an episode's columns is its clock; None where nothing was recorded."""
        if self._roles.time is not None:
            return self._roles.time if self._roles.time in columns else None
        return next((key for key in (TIME, "timestamp") if key in columns), None)

    def clock(self, index: int, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        """Return the time of each frame, ``(T,)`` s: the true clock where one was recorded, else the position over the rate."""
        entry, key = self.entry(index), self.time_key(columns)
        values = np.arange(entry.length) / self.info.rate_hz if key is None else columns[key]
        return values.astype(np.float64).reshape(len(values))

    def episode(self, index: int, *, images: bool = True) -> Episode:
        """Return one episode, with decoded frames unless ``images`` is False.

        Raises:
            DataError: frames missing, lengths or widths that differ, NaN in action or state.
        """
        entry, columns = self.entry(index), self.columns(index)
        action, state = (np.atleast_2d(columns[k].T).T for k in (self.action_key, self.state_key))
        if len(action) != entry.length:
            raise DataError(
                f"{entry.data} holds {len(action)} frames of episode {index}, its index row says"
                f" {entry.length}; simgap data check {self.root} looks for the others in the other files"
            )
        for what, values, wanted in (
            ("actions", action, self.spec.action_spec),
            ("states", state, self.spec.state_spec),
        ):
            if values.ndim != 2 or values.shape[1] != len(wanted):
                shape = "x".join(map(str, values.shape[1:]))
                raise DataError(
                    f"{entry.data} holds {what} of {shape} numbers in episode {index}, the dataset says"
                    f" {len(wanted)}; restore the file"
                )
        frames: dict[str, NDArray[np.uint8]] = {}
        for camera in self.camera_keys if images else ():
            frames[camera] = np.empty((entry.length, *self.frame_shape(camera)), dtype=np.uint8)
            self.decode(index, camera, frames[camera])
        known = {self.action_key, self.state_key, TIME, self._roles.time, *INDEX_FEATURES}
        known |= {part for v in self.vectors_of.values() for part in v.parts}
        return Episode(
            images=frames,
            state=state.astype(np.float32),
            action=action.astype(np.float32),
            time_s=self.clock(index, columns),
            outcome=outcome_of(entry),
            task=entry.tasks[0] if entry.tasks else self.keymap.task if self.keymap is not None else "",
            seed=_seed(entry.extra.get("seed")),
            factors=_factors(entry.extra.get("factors"), entry.data),
            extras={k: v for k, v in columns.items() if k not in known},
        )


_OPENERS: Mapping[Format, Callable[[Path, KeyMap | None], Opened]] = {
    Format.LEROBOT: open_lerobot,
    Format.TUB: open_tub,
    Format.HDF5: open_hdf5,
}


def open_dataset(path: Path | str, keymap: KeyMap | None = None) -> Dataset:
    """Open a dataset for reading: a LeRobot folder, a donkeycar tub, an HDF5 file or a folder of them.

    Args:
        path: the folder or file.
        keymap: what keys, units and rate mean where the data do not say; put over the map that lies beside
            the data.

    Raises:
        DataError: no dataset, unknown version, Git LFS pointers, missing or unreadable files; one line that
            names the file.
        UsageError: the map does not fit the dataset.
    """
    root = Path(path)
    kind = recognise(root)
    beside = stored_keymap(root)
    merged = beside.merged(keymap) if beside is not None and keymap is not None else keymap or beside
    try:
        return Dataset(root, _OPENERS[kind](root, merged), merged)
    except DataError as error:
        if kind is Format.LEROBOT:
            error.facts = metadata_facts(root)
        raise


def outcome_of(entry: EpisodeEntry) -> Outcome:
    """Return how an episode ended, as far as anybody recorded it."""
    kind, detail = entry.extra.get("outcome"), str(entry.extra.get("outcome_detail") or "")
    if kind in tuple(OutcomeKind):
        return Outcome(OutcomeKind(kind), detail)
    if isinstance(entry.extra.get("success"), bool):
        return Outcome.success() if entry.extra["success"] else Outcome.failure("not recorded")
    return Outcome.not_recorded()


def outcome_word(entry: EpisodeEntry) -> str:
    """Return ``success``, ``failure``, ``void`` or ``not recorded``."""
    outcome = outcome_of(entry)
    return str(outcome.kind) if outcome.is_recorded else "not recorded"


_IMAGE_CHANGES: Mapping[str, Callable[[NDArray[np.uint8]], NDArray[np.uint8]]] = {
    "rgb": lambda frames: frames,
    "bgr": lambda frames: frames[..., ::-1].copy(),
    "rotate_180": lambda frames: frames[:, ::-1, ::-1].copy(),
    "flip_vertical": lambda frames: frames[:, ::-1].copy(),
}


def _joined(
    vector: Vector, columns: Mapping[str, NDArray[Any]], length: int, entry: EpisodeEntry
) -> NDArray[np.float32]:
    parts = []
    for key in vector.parts:
        if key not in columns:
            raise DataError(
                f"{entry.data} has no numeric column {key!r} in episode {entry.index}; it has"
                f" {sorted(columns)}; repair the file or the key map"
            )
        parts.append(np.asarray(columns[key], dtype=np.float32).reshape(length, -1))
    return np.concatenate(parts, axis=1) if parts else np.zeros((length, 0), dtype=np.float32)


def _numeric(column: pa.ChunkedArray, path: Path, name: str) -> NDArray[Any] | None:
    kind = column.type
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = kind.value_type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        return None
    try:
        return column_values(column)
    except DataError as error:
        raise DataError(f"{path}: column {name!r}: {error}") from error


def _factors(value: Any, path: Path) -> dict[str, float]:
    if not isinstance(value, str) or not value:
        return {}
    try:
        return {str(k): float(v) for k, v in json.loads(value).items()}
    except MALFORMED as error:
        raise DataError(
            f"{path.parent}: factors {value[:60]!r} cannot be read ({error}); expected a JSON object of"
            " numbers"
        ) from error


def _seed(stored: Any) -> int | None:
    """Return a recorded seed; none was recorded where the column is absent or empty."""
    return None if stored is None or stored != stored else int(stored)

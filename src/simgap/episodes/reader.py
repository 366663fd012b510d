"""Read LeRobot datasets, ours and others', v3.0 and v2.1, trusting nothing they say about themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from simgap.conventions import ActionSpec, Dimension, StateSpec, Unit, VectorSpec
from simgap.episodes.fingerprint import content_files, content_fingerprint
from simgap.episodes.finish import SIMGAP_JSON, column_values
from simgap.episodes.index import DatasetInfo, EpisodeEntry, Feature, read_entries, read_info, read_table
from simgap.episodes.layout import ACTION, IMAGE_PREFIX, STATE, TIME, is_lfs_pointer, require_content
from simgap.episodes.spec import SCHEMA, DatasetSpec
from simgap.episodes.video import decode_image, decode_span
from simgap.errors import DataError
from simgap.provenance import Stamp, read_json
from simgap.types import Episode, Outcome, OutcomeKind

ACTION_KEYS = (ACTION, "actions")
STATE_KEYS = (STATE, "state")
UNLIMITED = float(np.finfo(np.float32).max)
"""Limit of a dimension whose limits nobody stated; finite, so that it can be stored."""


class Dataset:
    """A dataset opened for reading; frames are read and decoded only when asked for."""

    def __init__(self, root: Path, info: DatasetInfo, entries: tuple[EpisodeEntry, ...], spec: DatasetSpec, recorded: str | None) -> None:
        """Hold what :func:`open_dataset` found; use that function."""
        self.root = root
        self.info = info
        self.entries = entries
        self.spec = spec
        """Ours as stored; for other datasets what ``info.json`` allows, with ``Unit.UNKNOWN``."""
        self._recorded = recorded
        self._last: tuple[Path, pa.Table] | None = None
        self._by_index = {e.index: e for e in entries}

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
        return _key(self.info, ACTION_KEYS, self.root)

    @property
    def state_key(self) -> str:
        """The feature that holds encoder readings."""
        return _key(self.info, STATE_KEYS, self.root)

    @property
    def camera_keys(self) -> dict[str, str]:
        """Camera name -> feature key."""
        return {f.key.removeprefix(IMAGE_PREFIX): f.key for f in self.info.features.values() if f.is_image}

    @property
    def fingerprint(self) -> str:
        """Content hash, computed from the bytes on disk.

        Raises:
            DataError: a dataset of ours whose files changed since it was finished.
        """
        actual = content_fingerprint(self.root, self.spec.to_json() if self.is_ours else dict(self.info.raw))
        if self._recorded is not None and actual != self._recorded:
            raise DataError(
                f"{self.root} changed since it was finished (fingerprint {actual[:12]}, recorded {self._recorded[:12]}); restore it or finish it again"
            )
        return actual

    def entry(self, index: int) -> EpisodeEntry:
        """Return the index row of an episode."""
        if index not in self._by_index:
            raise DataError(f"{self.root} has no episode {index}; it lists {len(self.entries)} episodes")
        return self._by_index[index]

    def columns(self, index: int) -> dict[str, NDArray[Any]]:
        """Return the numeric columns of an episode by feature name, ``(T,)`` or ``(T, k)``; no image is touched."""
        table = self.table(index)
        return {name: values for name in table.column_names if (values := _numeric(table[name], self.entry(index).data, name)) is not None}

    def table(self, index: int) -> pa.Table:
        """Return the rows of an episode as stored."""
        entry = self.entry(index)
        if self._last is None or self._last[0] != entry.data:
            self._last = (entry.data, read_table(entry.data))
        table = self._last[1]
        if "episode_index" not in table.column_names:
            return table
        numbers = table["episode_index"].to_numpy()
        inside = np.flatnonzero(numbers == index)
        if len(inside) and inside[-1] - inside[0] + 1 == len(inside):
            return table.slice(int(inside[0]), len(inside))
        return table.filter(pa.array(numbers == index))

    def decode(self, index: int, camera: str, out: NDArray[np.uint8]) -> None:
        """Decode all frames of one camera of an episode into ``out``, ``(T, H, W, 3)`` uint8.

        Raises:
            DataError: the video is missing, truncated or of another size.
        """
        key, entry = self.camera_keys[camera], self.entry(index)
        if self.info.features[key].dtype == "video":
            span = entry.videos.get(key)
            if span is None:
                raise DataError(f"{self.root}: the index row of episode {index} names no video for {key!r}; rebuild meta/episodes")
            require_content(span.path)
            decode_span(span.path, span.start_s, self.info.rate_hz, out)
            return
        for k, row in enumerate(self.table(index)[key].to_pylist()):
            out[k] = decode_image(row["bytes"] or b"", where=f"{entry.data} frame {k} of {key!r}")

    def frame_shape(self, camera: str) -> tuple[int, int, int]:
        """Return ``(H, W, 3)`` of a camera as declared, channel-first declarations turned."""
        shape = self.info.features[self.camera_keys[camera]].shape
        if len(shape) != 3:
            raise DataError(f"{self.root}: camera {camera!r} declares shape {list(shape)}, expected [height, width, 3]")
        return (shape[1], shape[2], 3) if shape[0] == 3 and shape[2] != 3 else (shape[0], shape[1], 3)

    def episode(self, index: int, *, images: bool = True) -> Episode:
        """Return one episode, with decoded frames unless ``images`` is False.

        Raises:
            DataError: frames missing, lengths that differ, NaN in action or state.
        """
        entry, columns = self.entry(index), self.columns(index)
        action, state = (np.atleast_2d(columns[k].T).T for k in (self.action_key, self.state_key))
        if len(action) != entry.length:
            raise DataError(f"{entry.data} holds {len(action)} frames of episode {index}, its index row says {entry.length}; repair meta or data")
        frames: dict[str, NDArray[np.uint8]] = {}
        for camera in self.camera_keys if images else ():
            frames[camera] = np.empty((entry.length, *self.frame_shape(camera)), dtype=np.uint8)
            self.decode(index, camera, frames[camera])
        clock = columns.get(TIME, columns.get("timestamp", np.arange(entry.length) / self.info.rate_hz))
        known = {self.action_key, self.state_key, TIME, "timestamp", "frame_index", "episode_index", "index", "task_index"}
        return Episode(
            images=frames,
            state=state.astype(np.float32),
            action=action.astype(np.float32),
            time_s=clock.astype(np.float64),
            outcome=_outcome(entry.extra),
            task=entry.tasks[0] if entry.tasks else "",
            seed=int(entry.extra.get("seed") or 0),
            factors=_factors(entry.extra.get("factors"), entry.data),
            extras={k: v for k, v in columns.items() if k not in known},
        )


def open_dataset(path: Path | str) -> Dataset:
    """Open a dataset folder for reading.

    Raises:
        DataError: no dataset, unknown version, Git LFS pointers, missing or unreadable files; one line that names the file.
    """
    root = Path(path)
    info = read_info(root)
    for file in content_files(root):
        if is_lfs_pointer(file):
            raise DataError(f"{file} is a Git LFS pointer, not the data itself; run 'git lfs pull' in the repository it came from")
    entries = read_entries(root, info)
    for data in {e.data for e in entries if e.length > 0}:
        require_content(data)
    stored = root / SIMGAP_JSON
    if not stored.is_file():
        return Dataset(root, info, entries, _foreign_spec(root, info), None)
    ours = read_json(stored)
    if not isinstance(ours, dict) or ours.get("schema") != SCHEMA or not isinstance(ours.get("fingerprint"), str):
        raise DataError(f"{stored} has an unknown schema or no fingerprint; expected schema {SCHEMA} of a finished dataset; finish it again")
    return Dataset(root, info, entries, DatasetSpec.from_json(ours["spec"]), ours["fingerprint"])


def vector_spec(feature: Feature, rate_hz: float) -> VectorSpec:
    """Return the convention of a foreign feature: its names, every unit unknown."""
    width = feature.shape[0] if feature.shape else 1
    names = feature.names if len(feature.names) == width else tuple(f"dim_{k}" for k in range(width))
    dimensions = tuple(Dimension(name=n, unit=Unit.UNKNOWN, low=-UNLIMITED, high=UNLIMITED, is_gripper="gripper" in n.lower()) for n in names)
    return VectorSpec(dimensions=dimensions, rate_hz=rate_hz)


def _foreign_spec(root: Path, info: DatasetInfo) -> DatasetSpec:
    action: ActionSpec = vector_spec(info.features[_key(info, ACTION_KEYS, root)], info.rate_hz)
    state: StateSpec = vector_spec(info.features[_key(info, STATE_KEYS, root)], info.rate_hz)
    cameras = [f for f in info.features.values() if f.is_image]
    shape = cameras[0].shape if cameras and len(cameras[0].shape) == 3 else (0, 0, 3)
    return DatasetSpec(
        name=root.name,
        action_spec=action,
        state_spec=state,
        cameras=tuple(f.key.removeprefix(IMAGE_PREFIX) for f in cameras),
        image_size=(shape[1], shape[2]) if shape[0] == 3 else (shape[0], shape[1]),
        rate_hz=info.rate_hz,
        stamp=Stamp(kind="dataset", fields={"engine": "unknown", "robot": info.robot_type}),
        codec="png" if any(f.dtype == "image" for f in cameras) else "h264",
        robot_type=info.robot_type,
    )


def _key(info: DatasetInfo, keys: tuple[str, ...], root: Path) -> str:
    for key in keys:
        if key in info.features:
            return key
    raise DataError(f"{root}/meta/info.json has none of the features {list(keys)}; it has {sorted(info.features)}")


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


def _outcome(extra: Mapping[str, Any]) -> Outcome:
    kind, detail = extra.get("outcome"), str(extra.get("outcome_detail") or "")
    if kind in tuple(OutcomeKind):
        return Outcome(OutcomeKind(kind), detail)
    if isinstance(extra.get("success"), bool):
        return Outcome.success() if extra["success"] else Outcome.failure("not recorded")
    return Outcome.void("outcome not recorded")


def _factors(value: Any, path: Path) -> dict[str, float]:
    if not isinstance(value, str) or not value:
        return {}
    try:
        return {str(k): float(v) for k, v in json.loads(value).items()}
    except (json.JSONDecodeError, AttributeError, TypeError, ValueError) as error:
        raise DataError(f"{path.parent}: factors {value[:60]!r} cannot be read ({error}); expected a JSON object of numbers") from error

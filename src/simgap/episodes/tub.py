"""Donkeycar tubs (version 2): a manifest, catalogs of JSON lines and one JPEG a frame.

A session is an episode, and where records were deleted in its middle it ends and another begins: a chunk of actions must not
jump over what was cut out. Time stamps are the recorded milliseconds. A tub measures nothing of the car: its state is empty
unless a key map names telemetry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from simgap.bounds import MALFORMED, RECORDS, TEXT_BYTES, parsing, read_bytes
from simgap.conventions import Dimension, Unit
from simgap.episodes.index import DatasetInfo, EpisodeEntry, Feature, read_json_lines
from simgap.episodes.keymap import KeyMap, resolve
from simgap.episodes.layout import TIME, TUB, inside, require_content
from simgap.episodes.source import Opened, Roles, Source, require_frame
from simgap.episodes.video import decode_image
from simgap.errors import DataError, UsageError

STAMP, SESSION = "_timestamp_ms", "_session_id"
STEERING_KEYS, THROTTLE_KEYS = ("user/angle", "user/steering"), ("user/throttle",)
DEFAULT_RATE_HZ = 20.0
"""Donkeycar's own default loop rate."""
_PLAUSIBLE_HZ = (2.0, 120.0)
_LATEST_MS = 1e14
"""A stamp of the year 5138."""
_NUMBERS = {"float": "float64", "int": "int64", "boolean": "bool", "vector": "", "list": "", "str": "", "nparray": "", "gray16_array": ""}


class _Record(NamedTuple):
    number: int
    session: str
    stamp_ms: float
    values: Mapping[str, Any]
    catalog: Path


class TubSource(Source):
    """Rows from the catalogs, frames from ``images/``."""

    def __init__(self, root: Path, episodes: Sequence[Sequence[_Record]], numeric: Mapping[str, str], catalogs: Sequence[Path]) -> None:
        """Hold the records, which are small; images stay on disk."""
        self._root = root
        self._episodes = episodes
        self._numeric = numeric
        self._catalogs = catalogs

    def schema(self, entry: EpisodeEntry) -> pa.Schema:
        """Return the columns of :meth:`table`."""
        return self.table(entry).schema

    def table(self, entry: EpisodeEntry) -> pa.Table:
        """Return every input of numbers of an episode, and the clock."""
        records = self._episodes[entry.index]
        columns: dict[str, Any] = {key: _column(records, key, kind) for key, kind in self._numeric.items()}
        stamps = np.array([r.stamp_ms for r in records], dtype=np.float64)
        columns[TIME] = pa.array((stamps - stamps[0]) / 1e3)
        frames = np.arange(len(records), dtype=np.int64)
        columns["frame_index"] = pa.array(frames)
        columns["episode_index"] = pa.array(np.full(len(records), entry.index, dtype=np.int64))
        return pa.table(columns)

    def decode(self, entry: EpisodeEntry, key: str, out: NDArray[np.uint8], start: int = 0) -> None:
        """Decode JPEGs; donkeycar compresses RGB as RGB, so the colours are those any viewer shows."""
        records = self._episodes[entry.index][start : start + len(out)]
        for k, record in enumerate(records):
            path = _image_path(self._root, record, key)
            require_content(path, limit_bytes=TEXT_BYTES)
            image = decode_image(read_bytes(path), where=str(path))
            require_frame(image, out[k], str(path))
            out[k] = image

    def content_files(self) -> list[Path]:
        """Return manifest, catalogs and the images of records that were not deleted."""
        cameras = [k for k, v in self._episodes[0][0].values.items() if _is_image_name(v)] if self._episodes else []
        images = [_image_path(self._root, r, key) for episode in self._episodes for r in episode for key in cameras]
        found = [self._root / "manifest.json", *self._catalogs, *(p for p in images if p.is_file())]
        return sorted(found, key=lambda p: p.relative_to(self._root).as_posix())


def open_tub(root: Path, keymap: KeyMap | None) -> Opened:
    """Open a tub folder.

    Raises:
        DataError: damaged manifest or catalogs, no record left, missing steering or throttle.
        UsageError: a key map that does not fit, or two keys that both could be the steering.
    """
    manifest = _manifest(root / "manifest.json")
    inside(root, "images")
    records, catalogs = _records(root, manifest)
    episodes = [list(run) for run in _runs(records)]
    if not episodes:
        raise DataError(f"{root} has no record that is not deleted; restore some, or give another tub")
    kinds = dict(zip(manifest["inputs"], manifest["types"], strict=True))
    numeric, cameras = _inputs(root, kinds, episodes[0][0])
    notes: list[str] = []
    rate_hz = keymap.rate_hz if keymap is not None and keymap.rate_hz is not None else _rate(episodes, notes)
    features = {key: Feature(key=key, dtype=kind, shape=(1,), names=()) for key, kind in {**numeric, TIME: "float64"}.items()}
    features |= {key: _camera(root, key, episodes[0][0]) for key in cameras}
    roles = resolve(root, features, _roles(root, numeric, cameras, episodes, keymap), keymap, needs_state=False)
    missing = sorted(set(kinds) - set(numeric) - set(cameras) - {k for k, v in episodes[0][0].values.items() if isinstance(v, str)})
    if missing:
        notes.append(f"the manifest declares {', '.join(missing)}, which the records do not hold")
    if not roles.state:
        notes.append("a tub records no measured state (no speed, no odometry): action against state cannot be tested")
    info = DatasetInfo(
        version=TUB,
        rate_hz=rate_hz,
        robot_type="donkeycar",
        total_episodes=len(episodes),
        total_frames=sum(map(len, episodes)),
        chunks_size=1000,
        data_path="",
        video_path="",
        features=features,
        raw={"format": TUB, "inputs": list(kinds), "types": list(kinds.values()), "rate_hz": rate_hz},
    )
    entries = tuple(_entry(k, run) for k, run in enumerate(episodes))
    source = TubSource(root, episodes, numeric, catalogs)
    known: dict[str, tuple[Dimension, ...]] = {key: (_dimension(key),) for key in numeric if key.endswith(("/angle", "/steering", "/throttle"))}
    return Opened(info=info, entries=entries, source=source, roles=roles, dimensions=known, notes=tuple(notes))


def _manifest(path: Path) -> dict[str, Any]:
    lines = [value for _, value in read_json_lines(path)]
    with parsing(path, "it is no manifest of a tub: expected five JSON lines: inputs, types, metadata, creation, catalogs; restore it"):
        inputs, types = [str(k) for k in lines[0]], [str(k) for k in lines[1]]
        state = lines[4]
        catalogs = [str(name) for name in state["paths"]]
        deleted = frozenset(int(k) for k in state["deleted_indexes"])
        if len(inputs) != len(types) or len(set(inputs)) != len(inputs):
            raise DataError(f"{path} declares {len(set(inputs))} different inputs and {len(types)} types; the tub is damaged, restore the file")
    return {"inputs": inputs, "types": types, "catalogs": catalogs, "deleted": deleted}


def _records(root: Path, manifest: Mapping[str, Any]) -> tuple[list[_Record], list[Path]]:
    records: list[_Record] = []
    catalogs = [inside(root, name) for name in manifest["catalogs"]]
    for catalog in catalogs:
        for number, row in read_json_lines(catalog, RECORDS):
            with parsing(f"{catalog} line {number}", f"expected a record of JSON with _index and {STAMP}; remove the line"):
                index = int(row["_index"])
                if index in manifest["deleted"]:
                    continue
                session = row.get(SESSION)
                records.append(_Record(index, "" if session is None else str(session), _stamp(row[STAMP]), row, catalog))
            if len(records) > RECORDS:
                raise DataError(f"{root} holds more than {RECORDS} records; split the tub")
    records.sort(key=lambda r: r.number)
    return records, catalogs


def _stamp(value: Any) -> float:
    stamp = float(value)
    if not 0.0 <= stamp < _LATEST_MS:
        raise ValueError(f"{STAMP} {value!r:.40} is no time in milliseconds")
    return stamp


def _runs(records: Sequence[_Record]) -> Iterator[list[_Record]]:
    """Yield runs of consecutive records of one session."""
    for _, run in groupby(enumerate(records), key=lambda pair: (pair[1].session, pair[1].number - pair[0])):
        yield [record for _, record in run]


def _inputs(root: Path, kinds: Mapping[str, str], first: _Record) -> tuple[dict[str, str], list[str]]:
    """Return the inputs of numbers with their dtype, and the cameras, as far as the records hold them."""
    numeric = {k: _NUMBERS[kind] for k, kind in kinds.items() if _NUMBERS.get(kind) and k in first.values}
    cameras = [k for k, kind in kinds.items() if kind == "image_array" and k in first.values]
    if not cameras:
        raise DataError(f"{root} has no camera; its inputs are {dict(kinds)}, expected one of type image_array")
    return numeric, cameras


def _rate(episodes: Sequence[Sequence[_Record]], notes: list[str]) -> float:
    """Return the loop rate by the stamps, or donkeycar's default where the stamps cannot be those of a drive."""
    steps = np.concatenate([np.diff([r.stamp_ms for r in run]) for run in episodes])
    median = float(np.median(steps)) if len(steps) else 0.0
    if median > 0 and _PLAUSIBLE_HZ[0] <= 1e3 / median <= _PLAUSIBLE_HZ[1]:
        return float(max(1, round(1e3 / median)))
    measured = f"{1e3 / median:.0f} Hz" if median > 0 else "no time at all"
    notes.append(
        f"records are {median:g} ms apart ({measured}): stamped when the tub was written, not when the car drove; "
        f"{DEFAULT_RATE_HZ:g} Hz is donkeycar's default and assumed, state the rate with --rate-hz"
    )
    return DEFAULT_RATE_HZ


def _roles(root: Path, numeric: Mapping[str, str], cameras: Sequence[str], episodes: Sequence[Sequence[_Record]], keymap: KeyMap | None) -> Roles:
    names = {_camera_name(key): key for key in cameras}
    if keymap is not None and any(role == "action" for _, role in keymap.keys):
        return Roles(action=(), state=(), cameras=names)
    mapped = {key for key, _ in keymap.keys} if keymap is not None else set()
    steering, throttle = ([k for k in keys if k in numeric and k not in mapped] for keys in (STEERING_KEYS, THROTTLE_KEYS))
    if not steering or not throttle:
        raise DataError(f"{root} has no user/angle and user/throttle; its numbers are {sorted(numeric)}; say which are the action: --map KEY=action, twice")
    if len(steering) > 1:
        spreads = {k: float(np.ptp([float(r.values[k]) for run in episodes for r in run])) for k in steering}
        words = ", ".join(f"{k} ({'constant' if s == 0 else f'varies over {s:.3g}'})" for k, s in spreads.items())
        best = max(spreads, key=lambda k: spreads[k])
        raise UsageError(f"{root} has two steering keys: {words}; choose: --map {best}=action --map {throttle[0]}=action")
    return Roles(action=(steering[0], throttle[0]), state=(), cameras=names)


def _camera_name(key: str) -> str:
    """``cam/image_array`` is the camera ``cam``, ``cam/image_array_a`` is ``cam_a``."""
    return key.replace("image_array", "").strip("/_").replace("/_", "_").replace("/", "_").replace(".", "_") or "cam"


def _camera(root: Path, key: str, record: _Record) -> Feature:
    path = _image_path(root, record, key)
    require_content(path, limit_bytes=TEXT_BYTES)
    height, width, _ = decode_image(read_bytes(path), where=str(path)).shape
    return Feature(key=key, dtype="image", shape=(height, width, 3), names=("height", "width", "channels"))


def _image_path(root: Path, record: _Record, key: str) -> Path:
    name = record.values.get(key)
    if not isinstance(name, str) or "/" in name or name in ("", ".", ".."):
        raise DataError(f"{record.catalog} record {record.number} names {name!r} as {key!r}; expected a file name in images/; delete the record")
    path = root / "images" / name
    return inside(root, f"images/{name}") if path.is_symlink() else path  # the folder itself was looked at when the tub was opened


def _is_image_name(value: object) -> bool:
    return isinstance(value, str) and value.endswith((".jpg", ".jpeg", ".png"))


def _entry(index: int, run: Sequence[_Record]) -> EpisodeEntry:
    first, last = run[0], run[-1]
    extra = {"session": first.session or "none", "first_record": first.number, "last_record": last.number}
    return EpisodeEntry(index=index, length=len(run), tasks=(), data=first.catalog, videos={}, extra=extra)


def _dimension(key: str) -> Dimension:
    """Donkeycar's channels run from -1 to 1: left negative, reverse negative."""
    source, _, channel = key.partition("/")
    name = "throttle.vel" if channel == "throttle" else "steering.pos"
    return Dimension(name=name if source == "user" else f"{source}.{name}", unit=Unit.NORMALISED, low=-1.0, high=1.0)


def _number(value: Any) -> float | int:
    if not isinstance(value, (int, float)):
        raise TypeError(f"{value!r:.40}")
    return value


def _column(records: Sequence[_Record], key: str, kind: str) -> pa.Array:
    try:
        return pa.array(np.array([_number(r.values[key]) for r in records]).astype(kind))
    except MALFORMED as error:
        bad = next((r for r in records if not isinstance(r.values.get(key), (int, float))), records[0])
        raise DataError(f"{bad.catalog} record {bad.number} has no number for {key!r} ({error!r}); delete the record") from error

"""Donkeycar tubs (version 2): a manifest, catalogs of JSON lines and one JPEG a frame.

A session is an episode, and where records were deleted in its middle, or the recording paused, it ends and
another begins: a chunk of actions must not jump over what was cut out. Time stamps are the recorded
milliseconds. A tub measures nothing of the car: its state is empty unless a key map names telemetry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from simgap.bounds import RECORDS, TEXT_BYTES, parsing, read_bytes
from simgap.conventions import Dimension, Unit
from simgap.episodes.formats.commands import say_once
from simgap.episodes.formats.index import DatasetInfo, EpisodeEntry, Feature, read_json_lines
from simgap.episodes.formats.keymap import KeyMap, resolve
from simgap.episodes.formats.layout import TIME, TUB, inside, require_content
from simgap.episodes.formats.source import Opened, Roles, Source, require_frame
from simgap.episodes.formats.tub_records import Inputs, Record, Run, column, in_milliseconds, inputs_of, runs
from simgap.episodes.formats.video import decode_image
from simgap.errors import DataError, UsageError

STAMP, SESSION = "_timestamp_ms", "_session_id"
STEERING_KEYS, THROTTLE_KEYS = ("user/angle", "user/steering"), ("user/throttle",)
DEFAULT_RATE_HZ = 20.0
"""Donkeycar's own default loop rate."""
_PLAUSIBLE_HZ = (2.0, 120.0)
_LATEST_MS = 1e14
"""A stamp of the year 5138."""
_LOOKS = 9
"""Pictures whose size is compared to find that of a camera: one damaged or odd picture decides nothing."""


class TubSource(Source):
    """Rows from the catalogs, frames from ``images/``."""

    def __init__(
        self, root: Path, episodes: Sequence[Sequence[Record]], inputs: Inputs, catalogs: Sequence[Path]
    ) -> None:
        """Hold the records, which are small; images stay on disk."""
        self._root = root
        self._episodes = episodes
        self._inputs = inputs
        self._catalogs = catalogs

    def schema(self, entry: EpisodeEntry) -> pa.Schema:
        """Return the columns of :meth:`table`."""
        return self.table(entry).schema

    def table(self, entry: EpisodeEntry) -> pa.Table:
        """Return every input of numbers of an episode, and the clock."""
        records = self._episodes[entry.index]
        columns: dict[str, Any] = {
            key: column(records, key, kind, width) for key, (kind, width) in self._inputs.numeric.items()
        }
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

    def has_pictures(self, key: str) -> bool:
        """Return whether frames are pictures one by one."""
        return True

    def content_files(self) -> list[Path]:
        """Return manifest, catalogs and the images of records that were not deleted."""
        images = [
            _image_path(self._root, r, key)
            for episode in self._episodes
            for r in episode
            for key in self._inputs.cameras
        ]
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
    stamp_notes: list[str] = []
    records = in_milliseconds(records, stamp_notes)
    episodes = list(runs(records))
    if not episodes:
        raise DataError(f"{root} has no record that is not deleted; restore some, or give another tub")
    kinds = dict(zip(manifest["inputs"], manifest["types"], strict=True))
    inputs = inputs_of(root, kinds, records, (*STEERING_KEYS, *THROTTLE_KEYS))
    numeric, cameras, notes = inputs
    notes += stamp_notes
    rate_hz = keymap.rate_hz if keymap is not None and keymap.rate_hz is not None else _rate(episodes, notes)
    declared = {**numeric, TIME: ("float64", 0)}
    features = {
        key: Feature(key=key, dtype=kind, shape=(width or 1,), names=())
        for key, (kind, width) in declared.items()
    }
    features |= {key: _camera(root, key, records) for key in cameras}
    roles = resolve(
        root, features, _roles(root, numeric, cameras, records, keymap), keymap, needs_state=False
    )
    if not roles.state:
        notes.append(
            "a tub records no measured state (no speed, no odometry): action against state cannot be tested"
        )
    info = DatasetInfo(
        version=TUB,
        rate_hz=rate_hz,
        robot_type="donkeycar",
        total_episodes=len(episodes),
        total_frames=len(records),
        chunks_size=1000,
        data_path="",
        video_path="",
        features=features,
        raw={"format": TUB, "inputs": list(kinds), "types": list(kinds.values()), "rate_hz": rate_hz},
    )
    entries = tuple(_entry(k, run) for k, run in enumerate(episodes))
    source = TubSource(root, [run.records for run in episodes], inputs, catalogs)
    known: dict[str, tuple[Dimension, ...]] = {
        key: (_dimension(key),)
        for key, (_, width) in numeric.items()
        if not width and key.endswith(("/angle", "/steering", "/throttle"))
    }
    return Opened(
        info=info, entries=entries, source=source, roles=roles, dimensions=known, notes=tuple(notes)
    )


def _manifest(path: Path) -> dict[str, Any]:
    lines = [value for _, value in read_json_lines(path)]
    with parsing(
        path,
        "it is no manifest of a tub: expected five JSON lines: inputs, types, metadata, creation, catalogs;"
        " restore it",
    ):
        inputs, types = [str(k) for k in lines[0]], [str(k) for k in lines[1]]
        state = lines[4]
        catalogs = [str(name) for name in state["paths"]]
        deleted = frozenset(int(k) for k in state["deleted_indexes"])
        current = state.get("current_index")
        if len(inputs) != len(types) or len(set(inputs)) != len(inputs):
            raise DataError(
                f"{path} declares {len(set(inputs))} different inputs and {len(types)} types; the tub is"
                " damaged, restore the file"
            )
    return {"inputs": inputs, "types": types, "catalogs": catalogs, "deleted": deleted, "current": current}


def _records(root: Path, manifest: Mapping[str, Any]) -> tuple[list[Record], list[Path]]:
    records: list[Record] = []
    catalogs = _filled(root, manifest)
    for catalog in catalogs:
        for number, row in read_json_lines(catalog, RECORDS):
            with parsing(
                f"{catalog} line {number}",
                f"expected a record of JSON with _index and {STAMP}; remove the line",
            ):
                index = int(row["_index"])
                if index in manifest["deleted"]:
                    continue
                session = row.get(SESSION)
                records.append(
                    Record(index, "" if session is None else str(session), _stamp(row[STAMP]), row, catalog)
                )
            if len(records) > RECORDS:
                raise DataError(f"{root} holds more than {RECORDS} records; split the tub")
    records.sort(key=lambda r: r.number)
    counted, last = manifest["current"], max([*manifest["deleted"], *(r.number for r in records)], default=-1)
    if len(catalogs) < len(manifest["catalogs"]) and isinstance(counted, int) and last + 1 < counted:
        require_content(inside(root, manifest["catalogs"][-1]))
    return records, catalogs


def _stamp(value: Any) -> float:
    stamp = float(value)
    if not 0.0 <= stamp < _LATEST_MS:
        raise ValueError(f"{STAMP} {value!r:.40} is no time in milliseconds")
    return stamp


def _filled(root: Path, manifest: Mapping[str, Any]) -> list[Path]:
    """Return the catalogs; donkeycar opens a new one before its first record, and the last may still be empty.

    Raises:
        DataError: the tub holds no record yet, or not all that its manifest counts.
    """
    catalogs = [inside(root, name) for name in manifest["catalogs"]]
    if manifest["current"] == 0 and all(c.is_file() and c.stat().st_size == 0 for c in catalogs):
        raise DataError(
            f"{root} is a tub that holds no record yet (its manifest counts 0); drive and record first, there"
            " is nothing to download again"
        )
    *earlier, last = catalogs or [root / "catalog_0.catalog"]
    return earlier if earlier and last.is_file() and last.stat().st_size == 0 else [*earlier, last]


def _rate(episodes: Sequence[Run], notes: list[str]) -> float:
    """Return the loop rate by the stamps, or donkeycar's default where the stamps cannot be those of a drive."""
    steps = np.concatenate([np.diff([r.stamp_ms for r in run.records]) for run in episodes])
    median = float(np.median(steps)) if len(steps) else 0.0
    if median > 0 and _PLAUSIBLE_HZ[0] <= 1e3 / median <= _PLAUSIBLE_HZ[1]:
        return float(max(1, round(1e3 / median)))
    measured = f"{1e3 / median:.0f} Hz" if median > 0 else "no time at all"
    notes.append(
        f"records are {median:g} ms apart ({measured}): stamped when the tub was written, not when the car"
        f" drove; {DEFAULT_RATE_HZ:g} Hz is donkeycar's default and assumed"
    )
    return DEFAULT_RATE_HZ


def _roles(
    root: Path,
    numeric: Mapping[str, tuple[str, int]],
    cameras: Sequence[str],
    records: Sequence[Record],
    keymap: KeyMap | None,
) -> Roles:
    names = {_camera_name(key): key for key in cameras}
    if keymap is not None and any(role == "action" for _, role in keymap.keys):
        return Roles(action=(), state=(), cameras=names)
    mapped = {key for key, _ in keymap.keys} if keymap is not None else set()
    steering, throttle = (
        [k for k in keys if k in numeric and k not in mapped] for keys in (STEERING_KEYS, THROTTLE_KEYS)
    )
    if not steering or not throttle:
        raise DataError(
            f"{root} has no user/angle and user/throttle; its numbers are {sorted(numeric)}; say which are"
            f" the action: {_example(root, numeric)}"
        )
    if len(steering) > 1:
        spreads = {k: float(np.ptp([float(r.values[k]) for r in records])) for k in steering}
        words = ", ".join(
            f"{k} ({'constant' if s == 0 else f'varies over {s:.3g}'})" for k, s in spreads.items()
        )
        best = max(spreads, key=lambda k: spreads[k])
        raise UsageError(
            f"{root} has two steering keys: {words}; choose:"
            f" {say_once(root, '--map', f'{best}=action', '--map', f'{throttle[0]}=action')}"
        )
    return Roles(action=(steering[0], throttle[0]), state=(), cameras=names)


def _example(root: Path, numeric: Mapping[str, object]) -> str:
    keys = sorted(numeric)[:2]
    return (
        say_once(root, *(w for key in keys for w in ("--map", f"{key}=action")))
        if len(keys) == 2
        else "--map KEY=action, twice"
    )


def _camera_name(key: str) -> str:
    """``cam/image_array`` is the camera ``cam``, ``cam/image_array_a`` is ``cam_a``."""
    return (
        key.replace("image_array", "").strip("/_").replace("/_", "_").replace("/", "_").replace(".", "_")
        or "cam"
    )


def _camera(root: Path, key: str, records: Sequence[Record]) -> Feature:
    """Return the declaration of a camera: the size that most of a few pictures have.

    Raises:
        DataError: none of them can be decoded.
    """
    sizes: Counter[tuple[int, int]] = Counter()
    trouble: DataError | None = None
    for k in dict.fromkeys(np.linspace(0, len(records) - 1, _LOOKS).astype(int).tolist()):
        path = _image_path(root, records[k], key)
        try:
            require_content(path, limit_bytes=TEXT_BYTES)
            height, width, _ = decode_image(read_bytes(path), where=str(path)).shape
        except DataError as error:
            trouble = trouble or error
            continue
        sizes[height, width] += 1
    if not sizes:
        raise trouble or DataError(f"{root} has no pictures of {key!r}; copy the images folder again")
    height, width = sizes.most_common(1)[0][0]
    return Feature(key=key, dtype="image", shape=(height, width, 3), names=("height", "width", "channels"))


def _image_path(root: Path, record: Record, key: str) -> Path:
    name = record.values.get(key)
    if not isinstance(name, str) or "/" in name or name in ("", ".", ".."):
        raise DataError(
            f"{record.catalog} record {record.number} names {name!r} as {key!r}; expected a file name in"
            " images/; delete the record"
        )
    path = root / "images" / name
    # the folder itself was looked at when the tub was opened
    return inside(root, f"images/{name}") if path.is_symlink() else path


def _entry(index: int, run: Run) -> EpisodeEntry:
    first, last = run.records[0], run.records[-1]
    extra: dict[str, Any] = {
        "session": first.session or "none",
        "first_record": first.number,
        "last_record": last.number,
    }
    if run.pause_before_s is not None:
        extra["pause_before_s"] = run.pause_before_s
    return EpisodeEntry(
        index=index, length=len(run.records), tasks=(), data=first.catalog, videos={}, extra=extra
    )


def _dimension(key: str) -> Dimension:
    """Donkeycar's channels run from -1 to 1: left negative, reverse negative."""
    source, _, channel = key.partition("/")
    name = "throttle.vel" if channel == "throttle" else "steering.pos"
    return Dimension(
        name=name if source == "user" else f"{source}.{name}", unit=Unit.NORMALISED, low=-1.0, high=1.0
    )

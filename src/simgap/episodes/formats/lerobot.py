"""LeRobot folders, ours and others': v3.0, v2.1 and v2.0, several episodes a file or one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from simgap.bounds import parsing
from simgap.episodes.fingerprint import content_files
from simgap.episodes.formats.index import DatasetInfo, EpisodeEntry, read_entries, read_info, read_table
from simgap.episodes.formats.keymap import KeyMap, resolve
from simgap.episodes.formats.layout import (
    ACTION,
    IMAGE_PREFIX,
    STATE,
    VERSION_30,
    is_lfs_pointer,
    require_content,
)
from simgap.episodes.formats.parquet import open_parquet, read_group, read_parquet
from simgap.episodes.formats.source import Opened, Roles, Source, require_frame
from simgap.episodes.formats.video import decode_image, decode_span
from simgap.episodes.spec import SCHEMA, DatasetSpec
from simgap.episodes.write.finish import SIMGAP_JSON
from simgap.errors import DataError, UsageError
from simgap.provenance import read_object

ACTION_KEYS = (ACTION, "actions")
STATE_KEYS = (STATE, "state")


class LeRobotSource(Source):
    """Parquet rows; frames in MP4 files or as images inside the Parquet files."""

    def __init__(self, root: Path, info: DatasetInfo) -> None:
        """Hold the folder; nothing is read yet."""
        self._root = root
        self._info = info
        self._images = [f.key for f in info.features.values() if f.dtype == "image"]
        self._last: tuple[Path, pa.Table, _Places] | None = None

    def schema(self, entry: EpisodeEntry) -> pa.Schema:
        """Return the columns of the file an episode lies in."""
        return open_parquet(entry.data).schema_arrow

    def table(self, entry: EpisodeEntry) -> pa.Table:
        """Return the rows of an episode; a file that holds several is read once for all that follow each other."""
        table, places = self._file(entry.data)
        rows = places.of(entry.index)
        return table.slice(int(rows[0]), len(rows)) if _are_consecutive(rows) else table.take(pa.array(rows))

    def decode(self, entry: EpisodeEntry, key: str, out: NDArray[np.uint8], start: int = 0) -> None:
        """Decode frames of a camera, from the key frame before them on, or only the row groups they lie in."""
        if self._info.features[key].dtype == "image":
            self._decode_images(entry, key, out, start)
            return
        span = entry.videos.get(key)
        if span is None:
            raise DataError(
                f"{self._root}: the index row of episode {entry.index} names no video for {key!r}; rebuild"
                " meta/episodes"
            )
        require_content(span.path)
        decode_span(span.path, span.start_s + start / self._info.rate_hz, self._info.rate_hz, out)

    def has_pictures(self, key: str) -> bool:
        """Return whether frames are pictures one by one."""
        return self._info.features[key].dtype == "image"

    def content_files(self) -> list[Path]:
        """Return data, videos, index and tasks."""
        return content_files(self._root)

    def _file(self, path: Path) -> tuple[pa.Table, _Places]:
        last = self._last  # one read of the attribute: another thread may replace it
        if last is None or last[0] != path:
            table = read_table(path, columns_without=self._images)
            last = (path, table, _Places(table))
            self._last = last
        return last[1], last[2]

    def _decode_images(self, entry: EpisodeEntry, key: str, out: NDArray[np.uint8], start: int) -> None:
        rows = self._file(entry.data)[1].of(entry.index)[start : start + len(out)]
        if len(rows) != len(out):
            raise DataError(
                f"{entry.data} holds {start + len(rows)} frames of episode {entry.index}, {start + len(out)}"
                " were asked for; repair meta or data"
            )
        file = open_parquet(entry.data)
        if key not in file.schema_arrow.names:
            raise DataError(
                f"{entry.data} has no readable image column {key!r}; it is damaged, copy it again"
            )
        first = 0
        for group in range(file.metadata.num_row_groups):
            n = file.metadata.row_group(group).num_rows
            wanted = np.flatnonzero((rows >= first) & (rows < first + n))
            if len(wanted):
                column = read_group(entry.data, file, group, key)
                for k in wanted:
                    where = f"{entry.data} frame {start + int(k)} of {key!r}"
                    image = decode_image(_bytes(column[int(rows[k]) - first].as_py(), where), where=where)
                    require_frame(image, out[k], where)
                    out[k] = image
            first += n


def open_lerobot(root: Path, keymap: KeyMap | None) -> Opened:
    """Open a LeRobot folder.

    Raises:
        DataError: no dataset, unknown version, Git LFS pointers, missing or unreadable files.
        UsageError: a key map that does not fit, or one for a dataset of ours.
    """
    info = read_info(root)
    source = LeRobotSource(root, info)
    for file in source.content_files():
        if is_lfs_pointer(file):
            raise DataError(
                f"{file} is a Git LFS pointer, not the data itself; run 'git lfs pull' in the repository it"
                " came from"
            )
    entries = read_entries(root, info)
    if info.version == VERSION_30:
        entries = _with_moved_rows(root, entries)
    for data in {e.data for e in entries if e.length > 0}:
        require_content(data)
    stored = root / SIMGAP_JSON
    if stored.is_file():
        if keymap is not None:
            raise UsageError(
                f"{root} states its own convention, and a key map cannot overrule it; convert the dataset, or"
                " leave the map away"
            )
        return _ours(info, entries, source, stored)
    if keymap is not None and keymap.rate_hz not in (None, info.rate_hz):
        raise UsageError(
            f"{root}/meta/info.json declares {info.rate_hz:g} fps, and frames are looked up by it; correct"
            " fps there, or leave the rate away"
        )
    roles = resolve(root, info.features, _guess(info), keymap)
    return Opened(info=info, entries=entries, source=source, roles=roles, dimensions={})


def _with_moved_rows(root: Path, entries: tuple[EpisodeEntry, ...]) -> tuple[EpisodeEntry, ...]:
    """Look for the rows of episodes whose file is not there in the files that are: an index can be wrong where nothing is lost."""
    absent = {e.index: e for e in entries if e.length > 0 and not e.data.exists()}
    if not absent or len(absent) == len(entries):
        return entries
    found: dict[int, Path] = {}
    for path in sorted({e.data for e in entries if e.data.is_file()}):
        numbers = (
            read_parquet(path, ["episode_index"])["episode_index"].to_numpy()
            if "episode_index" in open_parquet(path).schema_arrow.names
            else ()
        )
        known, counts = np.unique(numbers, return_counts=True)
        found |= {
            int(k): path
            for k, n in zip(known, counts, strict=True)
            if int(k) in absent and int(n) == absent[int(k)].length
        }
    return tuple(
        (
            replace(
                e,
                data=found[e.index],
                extra={**e.extra, "declared_data": e.data.relative_to(root).as_posix()},
            )
            if e.index in found
            else e
        )
        for e in entries
    )


def _ours(info: DatasetInfo, entries: tuple[EpisodeEntry, ...], source: Source, stored: Path) -> Opened:
    ours = read_object(stored)
    if ours.get("schema") != SCHEMA or not isinstance(ours.get("fingerprint"), str):
        raise DataError(
            f"{stored} has an unknown schema or no fingerprint; expected schema {SCHEMA} of a finished"
            " dataset; finish it again"
        )
    with parsing(stored, "expected the spec of a finished dataset; finish it again"):
        spec = DatasetSpec.from_json(ours["spec"])
    guess = _guess(info)
    if len(spec.state_spec):
        guess = resolve(stored.parent.parent, info.features, guess, None)
    elif not guess.action:
        raise DataError(
            f"{stored.parent}/info.json has none of the features {list(ACTION_KEYS)}; it has"
            f" {sorted(info.features)}"
        )
    return Opened(
        info=info,
        entries=entries,
        source=source,
        roles=guess,
        dimensions={},
        spec=spec,
        recorded=ours["fingerprint"],
    )


def _guess(info: DatasetInfo) -> Roles:
    """Return what LeRobot's names, and openpi's, say without a map."""
    cameras: dict[str, str] = {}
    for feature in info.features.values():
        if feature.is_image:
            name = feature.key.removeprefix(IMAGE_PREFIX).removeprefix("observation.")
            cameras[feature.key if name in cameras else name] = feature.key
    action, state = ([k for k in keys if k in info.features][:1] for keys in (ACTION_KEYS, STATE_KEYS))
    return Roles(action=tuple(action), state=tuple(state), cameras=cameras)


class _Places:
    """Which rows of a file belong to which episode; a file without the column is that of one episode."""

    def __init__(self, table: pa.Table) -> None:
        self._n = table.num_rows
        self._numbers = episode_numbers(table)
        self._order = None if self._numbers is None else np.argsort(self._numbers, kind="stable")
        self._sorted = None if self._numbers is None or self._order is None else self._numbers[self._order]

    def of(self, index: int) -> NDArray[np.int64]:
        """Return the rows of an episode, in the order of the file."""
        if self._order is None or self._sorted is None:
            return np.arange(self._n)
        first, last = np.searchsorted(self._sorted, [index, index + 1])
        return self._order[first:last]


def episode_numbers(table: pa.Table) -> NDArray[np.int64] | None:
    """Return which episode each row belongs to, -1 where it says none; None where a file has no such column.

    Raises:
        DataError: a column of something else than whole numbers.
    """
    if "episode_index" not in table.column_names:
        return None
    column = table["episode_index"]
    if not pa.types.is_integer(column.type):
        raise DataError(
            f"column episode_index holds {column.type}, expected whole numbers; write the data files again"
        )
    return np.asarray(column.cast(pa.int64(), safe=False).fill_null(-1).to_numpy(), dtype=np.int64)


def _are_consecutive(rows: NDArray[np.int64]) -> bool:
    return len(rows) > 0 and int(rows[-1] - rows[0]) + 1 == len(rows)


def _bytes(value: object, where: str) -> bytes:
    data = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(data, bytes):
        raise DataError(
            f"{where} holds no image bytes but {type(data).__name__}; LeRobot embeds them in the Parquet"
            " file, convert the dataset again"
        )
    return data

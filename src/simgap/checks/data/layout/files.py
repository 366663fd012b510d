"""Is the folder what ``info.json`` says: keys, counts, places, strays."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from simgap.bounds import EPISODES, MALFORMED, said
from simgap.checks.data.layout.beside import check_beside
from simgap.checks.data.layout.index import check_index
from simgap.checks.data.layout.spans import check_spans
from simgap.checks.data.pooled import Pooled
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.episodes.formats.commands import convert_command, say_once
from simgap.episodes.formats.index import read_json_lines
from simgap.episodes.formats.layout import ACTION, IMAGE_PREFIX, KEYMAP_JSON, STATE, VERSION_30
from simgap.episodes.formats.left_out import left_out
from simgap.episodes.formats.parquet import open_parquet, read_parquet
from simgap.episodes.reader import Dataset, outcome_word
from simgap.episodes.write.files import is_temporary
from simgap.errors import DataError
from simgap.wording import number_of

_OPENPI = frozenset({"actions", "state", "image", "images", "wrist_image"})
"""Keys of the conversion scripts of openpi, whose policies map them."""
_KNOWN_TOP = frozenset(
    {
        "data",
        "meta",
        "videos",
        "images",
        "cache",
        KEYMAP_JSON,
        "README.md",
        ".gitattributes",
        ".cache",
        ".git",
    }
)


def counts(dataset: Dataset, pooled: Pooled) -> dict[str, Any]:
    """Return what is declared beside what is there."""
    frames = sum(pooled.lengths.values())
    spans = [s for e in dataset.entries for s in e.videos.values()]
    result: dict[str, Any] = {
        "episodes_declared": dataset.info.total_episodes,
        "episodes_listed": dataset.n_episodes,
        "episodes_with_frames": len(pooled.episodes),
        "frames_declared": dataset.info.total_frames,
        "frames_found": frames,
        "videos_declared": len(spans),
        "video_files_declared": len({s.path for s in spans}),
        "video_files_found": len({s.path for s in spans if s.exists}),
    }
    if dataset.is_ours:
        result["outcomes"] = dict(sorted(Counter(outcome_word(e) for e in dataset.entries).items()))
    return result


def check_layout(dataset: Dataset, pooled: Pooled) -> tuple[dict[str, Any], list[DataFinding]]:
    """Return what was measured of the folder, and the findings about keys, counts, columns and places."""
    spans, span_findings = check_spans(pooled)
    beside, beside_findings = check_beside(dataset)
    found = [
        *_assumed(dataset),
        *_counts(dataset, pooled),
        *_left_out(dataset),
        *check_index(pooled),
        *_videos(dataset),
        *span_findings,
        *_integrity(pooled),
    ]
    if dataset.info.is_lerobot:
        found += [*_keys(dataset), *_tasks(dataset, pooled), *_strays(dataset)]
    return _measured(dataset, pooled) | {"videos": spans, "beside": beside}, [*found, *beside_findings]


def _measured(dataset: Dataset, pooled: Pooled) -> dict[str, Any]:
    """Return facts about the folder that are no finding by themselves."""
    lengths = sorted(n for n in pooled.lengths.values() if n > 0)
    splits = dataset.info.raw.get("splits")
    return {
        "columns": sorted(pooled.episodes[0]),
        "data_files": len({e.data for e in dataset.entries}),
        "chunks_size": dataset.info.chunks_size,
        "splits": splits if isinstance(splits, dict) else {},
        "length": {"min": lengths[0], "median": float(np.median(lengths)), "max": lengths[-1]},
        "index_is_contiguous": _counts_up(pooled),
    }


def _counts_up(pooled: Pooled) -> bool | None:
    """Return whether ``index`` numbers all rows 0, 1, 2 ...; None where there is no such column."""
    if any("index" not in e for e in pooled.episodes):
        return None
    index = np.concatenate([np.asarray(e["index"]).reshape(-1) for e in pooled.episodes])
    return bool(np.array_equal(index, np.arange(len(index))))


def _assumed(dataset: Dataset) -> list[DataFinding]:
    """Return what the reader had to assume, for the owner to confirm."""
    return [
        DataFinding(
            code="assumed_by_reader", severity=Severity.NOTE, sentence=note, remedy=_confirmed(dataset, note)
        )
        for note in dataset.notes
    ]


def _confirmed(dataset: Dataset, note: str) -> str:
    """Return what to do about one thing that the reader says of the data."""
    if "cannot be tested" in note:
        return (
            "nothing to do for training; where a policy needs a state, a conversion makes one by --state"
            " previous-action"
        )
    if "is assumed" in note or "and assumed" in note:
        rate = ("--rate-hz", f"{dataset.info.rate_hz:g}")
        return f"keep this rate, or put the true one in its place: {say_once(dataset.root, *rate)}"
    if any(words in note for words in ("not read", "left out", "do not hold")):
        return "nothing to do where no policy needs it; else repair the recording, or name its key by --map"
    return "state it: a key map beside the data (simgap-map.json) or the options of `simgap data`"


def _keys(dataset: Dataset) -> list[DataFinding]:
    wrong = {k: w for k, w in ((dataset.action_key, ACTION), (dataset.state_key, STATE)) if k != w}
    wrong |= {
        key: f"{IMAGE_PREFIX}{name}"
        for name, key in dataset.camera_keys.items()
        if not key.startswith(IMAGE_PREFIX)
    }
    if not wrong:
        return []
    pairs = [f"{k!r} instead of {w!r}" for k, w in wrong.items()]
    is_openpi = all(k in _OPENPI or k.endswith(("_image", "_rgb")) for k in wrong)
    whose = "openpi's, not LeRobot's" if is_openpi else "not LeRobot's"
    return [
        DataFinding(
            code="nonstandard_keys",
            severity=Severity.NOTE if is_openpi else Severity.WARNING,
            sentence=f"feature keys are {whose}: {listed(pairs)}; LeRobot policies will not find them",
            remedy=(
                "map them where the policy is configured, or write the data under LeRobot's names:"
                f" {convert_command(dataset)}"
            ),
            numbers={"renames": wrong},
        )
    ]


def _counts(dataset: Dataset, pooled: Pooled) -> list[DataFinding]:
    found = []
    frames = sum(pooled.lengths.values())
    for what, declared, actual in (
        ("episode", dataset.info.total_episodes, dataset.n_episodes),
        ("frame", dataset.info.total_frames, frames),
    ):
        if declared != actual:
            found.append(
                DataFinding(
                    code=f"{what}_count_mismatch",
                    severity=Severity.FAULT,
                    sentence=f"info.json declares {declared} {what}s, {actual} are there",
                    remedy=(
                        "look whether rows stand in another file than the index names (rows_elsewhere says"
                        " so); else restore the missing files, or correct info.json with the real count"
                    ),
                    numbers={"declared": declared, "found": actual},
                )
            )
    lengths = {e.index: (e.length, pooled.lengths[e.index]) for e in dataset.entries}
    wrong = {k: v for k, v in lengths.items() if v[0] != v[1]}
    if wrong:
        first, (declared, actual) = next(iter(wrong.items()))
        found.append(
            DataFinding(
                code="episode_length_mismatch",
                severity=Severity.FAULT,
                sentence=(
                    f"{number_of(len(wrong), 'episode has', 'episodes have')} another length than the"
                    f" index says: episode {first} lists"
                    f" {number_of(declared, 'frame')} and has {actual}"
                ),
                remedy="rebuild the episode index from the data files, or restore the data files",
                numbers={"episodes": {str(k): {"declared": a, "found": b} for k, (a, b) in wrong.items()}},
            )
        )
    return found


def _left_out(dataset: Dataset) -> list[DataFinding]:
    """Return what every reader would pass over: listed episodes without frames, rows of data that no listed episode claims."""
    lost = left_out(dataset)
    remedy = (
        "correct the index (meta/episodes) by the data files, or remove what is not meant to be there; no"
        " verb reads it as it is"
    )
    codes = (("episodes_without_frames", lost.episodes), ("rows_without_episode", lost.rows))
    present = [(code, {str(k): v for k, v in found.items()}) for code, found in codes if found]
    return [
        DataFinding(
            code=code,
            severity=Severity.FAULT,
            sentence=sentence,
            remedy=remedy,
            feature="meta/episodes",
            numbers=numbers,
        )
        for (code, numbers), sentence in zip(present, lost.sentences(), strict=True)
    ]


def _videos(dataset: Dataset) -> list[DataFinding]:
    found = []
    by_camera: dict[str, dict[str, int]] = {}
    for key in dataset.camera_keys.values():
        if dataset.info.features[key].dtype != "video":
            continue
        spans = [e.videos.get(key) for e in dataset.entries if e.length > 0]
        missing = sum(1 for s in spans if s is None or not s.exists)
        misplaced = sum(1 for s in spans if s is not None and s.exists and not s.is_standard)
        by_camera[key] = {"episodes": len(spans), "missing": missing, "misplaced": misplaced}
    missing_total, misplaced_total = (sum(c[k] for c in by_camera.values()) for k in ("missing", "misplaced"))
    if missing_total:
        parts = [
            f"{key} in {c['missing']} of {number_of(c['episodes'], 'episode')}"
            for key, c in by_camera.items()
            if c["missing"]
        ]
        found.append(
            DataFinding(
                code="missing_videos",
                severity=Severity.FAULT,
                sentence=f"videos are missing: {listed(parts)}",
                remedy=(
                    "download the videos (for git repositories 'git lfs pull'), or drop the episodes or"
                    " cameras from the index"
                ),
                feature="videos",
                numbers=by_camera,
            )
        )
    if misplaced_total:
        found.append(
            DataFinding(
                code="misplaced_videos",
                severity=Severity.FAULT,
                sentence=(
                    f"{misplaced_total} videos lie under video/, info.json's video_path says"
                    f" {dataset.info.video_path!r}: every lookup by LeRobot fails"
                ),
                remedy="rename the folder video/ to videos/, or correct video_path",
                feature="videos",
                numbers=by_camera,
            )
        )
    return found


def _tasks(dataset: Dataset, pooled: Pooled) -> list[DataFinding]:
    """Compare the tasks that frames name with the table that says what they are; LeRobot opens no dataset without it."""
    path = dataset.root / "meta" / ("tasks.parquet" if dataset.info.version == VERSION_30 else "tasks.jsonl")
    listed_tasks = _listed_tasks(path)
    used = {int(k) for e in pooled.episodes if "task_index" in e for k in np.unique(e["task_index"])}
    if isinstance(listed_tasks, str):
        problem = listed_tasks
    elif used - listed_tasks:
        problem = f"does not list the tasks {listed(sorted(map(str, used - listed_tasks)))} that frames name"
    else:
        return []
    return [
        DataFinding(
            code="missing_tasks",
            severity=Severity.FAULT,
            sentence=(
                f"meta/{path.name} {problem}: LeRobot cannot open the dataset, or cannot say what a frame's"
                " task is"
            ),
            remedy="download the file again, or write it: one row a task_index, with its text",
            feature="task_index",
            numbers={"used": sorted(used)},
        )
    ]


def _listed_tasks(path: Path) -> set[int] | str:
    """Return the task numbers of a table, or what is wrong with it."""
    if not path.is_file():
        return "is missing"
    try:
        if path.suffix == ".jsonl":
            return {int(row["task_index"]) for _, row in read_json_lines(path)}
        return {
            int(k) for k in read_parquet(path, ["task_index"], most_rows=EPISODES)["task_index"].to_pylist()
        }
    except (DataError, *MALFORMED) as error:
        return f"cannot be read ({said(error)})"


def _strays(dataset: Dataset) -> list[DataFinding]:
    root = dataset.root
    found = []
    listed_files = {e.data.resolve() for e in dataset.entries}
    for path in sorted((root / "data").rglob("*")):
        if path.is_file() and path.resolve() not in listed_files and not is_temporary(path.name):
            what = _describe(path)
            found.append(
                DataFinding(
                    code="stray_file",
                    severity=Severity.WARNING,
                    sentence=f"{path.relative_to(root)} belongs to no episode of the index: {what}",
                    remedy="remove it, or add its episode to the index",
                    feature=str(path.relative_to(root)),
                    numbers={"bytes": path.stat().st_size},
                )
            )
    known = _KNOWN_TOP | (
        {"video"} if any(not s.is_standard for e in dataset.entries for s in e.videos.values()) else set()
    )
    extra = sorted(p.name for p in root.iterdir() if p.name not in known)
    if extra:
        found.append(
            DataFinding(
                code="extra_files",
                severity=Severity.NOTE,
                sentence=f"beside the dataset lie {listed(extra)}, which LeRobot ignores",
                remedy="read them: calibration and recorder notes often say what info.json does not",
                numbers={"names": extra},
            )
        )
    return found


def _describe(path: Path) -> str:
    try:
        file = open_parquet(path)
    except DataError:
        return f"{path.stat().st_size} bytes, no Parquet file"
    names = file.schema_arrow.names
    return f"a Parquet file of {number_of(file.metadata.num_rows, 'row')} with columns {listed(names)}"


def _integrity(pooled: Pooled) -> list[DataFinding]:
    dataset, found = pooled.dataset, []
    rows, broken = 0, []
    has_index = True
    for number, columns in zip(pooled.indices, pooled.episodes, strict=True):
        length = pooled.lengths[number]
        if "frame_index" in columns and not np.array_equal(columns["frame_index"], np.arange(length)):
            broken.append(number)
        has_index &= "index" not in columns or np.array_equal(
            columns["index"], np.arange(rows, rows + length)
        )
        rows += length
    if broken or not has_index:
        what = (
            f"frame_index of episodes {listed([str(b) for b in broken])} does not count 0, 1, 2 ..."
            if broken
            else "index is not the global row number"
        )
        found.append(
            DataFinding(
                code="broken_index",
                severity=Severity.FAULT,
                sentence=f"{what}: LeRobot looks frames up by position and returns others than asked",
                remedy="rewrite frame_index and index from the order of the files",
                numbers={"episodes": broken},
            )
        )
    if dataset.is_ours:
        try:
            _ = dataset.fingerprint
        except DataError as error:
            remedy = "restore the files, or make the dataset again elsewhere"
            found.append(
                DataFinding(
                    code="changed_since_finished", severity=Severity.FAULT, sentence=str(error), remedy=remedy
                )
            )
    return found

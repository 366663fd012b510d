"""Which kind of folder is this: statistics, actuator logs, a policy, trial logs, paired rates; each has its own reader and one report.

Datasets of episodes are not recognised here; the data check reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

from simgap.artefacts.actuator_logs import check_actuator_logs, motion_folders
from simgap.artefacts.pairs import check_pair_tables, read_pairs
from simgap.artefacts.policy_configs import check_policy_folder, is_policy_folder
from simgap.artefacts.tables import TextTable, read_csv, read_json_table
from simgap.artefacts.trials.tables import check_trial_tables, is_trial_table
from simgap.checks.data.report import DataReport, by_severity
from simgap.checks.data.statistics.episodes import judge_episodes
from simgap.checks.data.statistics.rules import judge
from simgap.episodes.statistics.by_episode import (
    is_episode_statistics,
    over_episodes,
    read_episode_statistics,
)
from simgap.episodes.statistics.files import StatisticsBlock, dialect, read_statistics
from simgap.errors import DataError
from simgap.policies.bridges import KIND_NAMES
from simgap.provenance import read_json

_DEPTH = 3
_MOST_FILES = 2000
_POLICY_FILE_BYTES = 1 << 20
_TABLES = (".csv", ".tsv")
_JSON_TABLES = (".jsonl", ".json")
_SPREADSHEETS = (".xlsx", ".xls", ".ods", ".numbers")
_EPISODE_FILES = (".catalog", ".parquet", ".hdf5", ".h5", ".zarr")
"""Files of episodes: whatever lies beside them, the data check reads the folder."""
_STATISTICS_ASSUMES = (
    "a vector ends with the gripper where only its last dimension is left unscaled",
    "blocks of one file belong to the same robot's convention unless their ranges say otherwise",
    "what the statistics were computed from is not here, so they are compared with themselves only",
)


class FolderKind(StrEnum):
    """What a folder or file holds."""

    EPISODES = "episodes"
    """A dataset of episodes, for the data check."""
    STATISTICS = "statistics"
    ACTUATOR_LOGS = "actuator_logs"
    POLICY_FOLDER = "policy_folder"
    POLICY_FILE = "policy_file"
    """A policy elsewhere, described by a file of ours."""
    TRIAL_LOGS = "trial_logs"
    SIM_REAL_PAIRS = "sim_real_pairs"
    UNKNOWN = "unknown"


def recognise(path: Path) -> FolderKind:
    """Return what a folder or file holds, by its files and their headers.

    Raises:
        DataError: a file that decides cannot be read; names it.
    """
    if (
        not path.exists()
        or (path / "meta").is_dir()
        or path.suffix in _EPISODE_FILES
        or _holds(path, _EPISODE_FILES)
    ):
        return FolderKind.EPISODES
    if path.is_dir():
        if motion_folders(path):
            return FolderKind.ACTUATOR_LOGS
        if is_policy_folder(path):
            return FolderKind.POLICY_FOLDER
    if _is_policy_file(path):
        return FolderKind.POLICY_FILE
    tables = _tables(path)
    if any(is_trial_table(t) for t in tables):
        return FolderKind.TRIAL_LOGS
    if any(read_pairs(t) is not None for t in tables):
        return FolderKind.SIM_REAL_PAIRS
    if any(is_episode_statistics(file) for file in _files(path, ".jsonl")) or any(
        True for _ in _blocks(path)
    ):
        return FolderKind.STATISTICS
    return FolderKind.UNKNOWN if tables or _files(path, ".json") else FolderKind.EPISODES


def check_foreign(path: Path | str) -> DataReport | None:
    """Check what is no dataset of episodes; None where it is one, or nothing that is known here.

    Raises:
        DataError: a file cannot be read, or the folder holds tables and JSON of an unknown kind; one line
            that names it.
    """
    root = Path(path)
    kind = recognise(root)
    match kind:
        case FolderKind.ACTUATOR_LOGS:
            return check_actuator_logs(root)
        case FolderKind.POLICY_FOLDER:
            return check_policy_folder(root)
        case FolderKind.POLICY_FILE:
            # torch: two seconds that no dataset needs
            from simgap.artefacts.policy_files import check_policy_file

            return check_policy_file(root)
        case FolderKind.TRIAL_LOGS:
            return check_trial_tables(root, *_read_tables(root))
        case FolderKind.SIM_REAL_PAIRS:
            return check_pair_tables(root, *_read_tables(root))
        case FolderKind.STATISTICS:
            return check_statistics_files(root)
        case FolderKind.UNKNOWN:
            raise DataError(
                f"{root} holds no dataset of episodes and nothing else that is known: statistics (mean, std,"
                " q01 ...), actuator logs (control.csv, state_motor.csv), a policy folder (config.json),"
                " trial logs or paired rates (CSV with a success column)"
            )
    return None


def check_statistics_files(root: Path) -> DataReport:
    """Check one statistics file, or all of a folder.

    Raises:
        DataError: a file cannot be read; names it.
    """
    by_episode = {
        str(f): read_episode_statistics(f) for f in _files(root, ".jsonl") if is_episode_statistics(f)
    }
    blocks = (*_blocks(root), *(b for episodes in by_episode.values() for b in over_episodes(episodes)))
    measured, findings = judge(blocks)
    findings += [f for episodes in by_episode.values() for f in judge_episodes(episodes)]
    files = sorted({b.file for b in blocks})
    counted: dict[str, Any] = {
        "files": len(files),
        "blocks": len(blocks),
        "groups": len({b.group for b in blocks if b.group}),
    }
    return DataReport(
        path=str(root),
        layout={
            "what": "statistics",
            "dialect": dialect(blocks),
            "files": files,
            "cameras": {b.key: b.size for b in blocks if b.is_image},
        },
        counts=counted,
        measurements={"statistics": measured, "groups": _groups(blocks)},
        findings=by_severity(findings),
        assumes=_STATISTICS_ASSUMES,
    )


def describe_foreign(path: Path | str) -> dict[str, Any] | None:
    """Return what a folder that is no dataset holds, without judging it; None where it is one.

    Raises:
        DataError: as :func:`check_foreign`.
    """
    report = check_foreign(path)
    if report is None:
        return None
    document = report.to_json()
    return {
        "kind": "data_info",
        "schema": document["schema"],
        "path": document["path"],
        **document["layout"],
        "counts": document["counts"],
    }


def _groups(blocks: tuple[StatisticsBlock, ...]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for b in blocks:
        if b.group:
            found.setdefault(b.group, {"blocks": []})["blocks"].append(b.key)
            found[b.group] |= dict(b.counts or {})
    return found


def _is_policy_file(path: Path) -> bool:
    if path.suffix != ".json" or not path.is_file() or path.stat().st_size > _POLICY_FILE_BYTES:
        return False
    data = read_json(path, finite=False)
    return isinstance(data, dict) and data.get("kind") in KIND_NAMES


def _files(path: Path, *suffixes: str) -> list[Path]:
    """Return files of a kind in a folder, a few folders deep; the path itself where it is a file."""
    if path.is_file():
        return [path] if path.suffix in suffixes else []
    found = []
    for depth in range(_DEPTH):
        for file in sorted(path.glob("/".join(["*"] * (depth + 1)))):
            if file.suffix in suffixes and file.is_file():
                found.append(file)
            if len(found) > _MOST_FILES:
                raise DataError(
                    f"{path} holds more than {_MOST_FILES} files of {', '.join(suffixes)}; give one of its"
                    " folders"
                )
    return found


def _holds(path: Path, suffixes: tuple[str, ...]) -> bool:
    levels = ("/".join(["*"] * (depth + 1)) for depth in range(_DEPTH if path.is_dir() else 0))
    return any(file.suffix in suffixes for level in levels for file in path.glob(level))


def _tables(path: Path) -> list[TextTable]:
    """Return the tables of a folder that can be read; where none can, the first fault is the answer."""
    tables, unread = _read_tables(path)
    if unread and not tables:
        raise DataError(next(iter(unread.values())))
    return tables


def _read_tables(path: Path) -> tuple[list[TextTable], dict[str, str]]:
    """Return the tables of a folder, and those that cannot be read with the reason."""
    tables, unread = [], {}
    for file in _files(path, *_TABLES, *_JSON_TABLES, *_SPREADSHEETS):
        name = str(file.relative_to(path)) if file != path else file.name
        if file.suffix in _SPREADSHEETS:
            unread[name] = f"{file} is a spreadsheet, which is not read; save each sheet as CSV"
            continue
        try:
            table = read_csv(file) if file.suffix in _TABLES else read_json_table(file)
        except DataError as error:
            if file.suffix in _TABLES:
                unread[name] = str(error)
            continue  # JSON of another kind, which its own reader judges
        if table is not None and (file.suffix in _TABLES or is_trial_table(table)):
            tables.append(table)
    return tables, unread


def _blocks(path: Path) -> Iterator[StatisticsBlock]:
    for file in _files(path, ".json", ".safetensors"):
        yield from read_statistics(file)

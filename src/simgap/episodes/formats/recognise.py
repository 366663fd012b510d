"""What a path holds: a dataset of a known format, or something else that gets one line saying what it is and where it belongs."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import islice
from pathlib import Path

from simgap.bounds import open_regular
from simgap.episodes.formats.layout import is_lfs_pointer
from simgap.errors import DataError
from simgap.provenance import read_json

_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
HDF5_SUFFIXES = (".hdf5", ".h5")
_MOST_NAMES = 2000
_STATISTICS = {"mean", "std", "min", "max", "q01", "q99"}


class Format(StrEnum):
    """A format that can be read."""

    LEROBOT = "LeRobot"
    TUB = "donkeycar tub v2"
    HDF5 = "HDF5"


def recognise(root: Path) -> Format:
    """Return the format of a dataset.

    Raises:
        DataError: the path is no dataset; says what it is instead and what fits it.
    """
    if not root.exists():
        raise DataError(
            f"{root} does not exist; give the folder of a dataset, the one that holds meta/ and data/"
        )
    found = format_of(root)
    if found is None:
        raise DataError(f"{root} {_otherwise(root)}")
    return found


def format_of(root: Path) -> Format | None:
    """Return the format of a dataset, or None where a path holds none."""
    if not root.exists():
        return None
    if root.is_file():
        return Format.HDF5 if is_hdf5(root) else None
    if (root / "meta" / "info.json").exists() or (root / "meta" / "simgap.json").exists():
        return Format.LEROBOT
    if (root / "manifest.json").is_file() and any(root.glob("*.catalog")):
        return Format.TUB
    return Format.HDF5 if any(p.suffix in HDF5_SUFFIXES and p.is_file() for p in _inside(root)) else None


def is_hdf5(path: Path) -> bool:
    """Return whether a file begins as HDF5 files do, or is called like one (and may be a pointer, or damaged)."""
    if path.suffix in HDF5_SUFFIXES:
        return True
    with open_regular(path) as handle:
        return handle.read(len(_HDF5_MAGIC)) == _HDF5_MAGIC


def _otherwise(root: Path) -> str:
    """Return what something that is no dataset is, what was expected, and what to do with it."""
    expected = "a dataset is a LeRobot folder, a donkeycar tub or HDF5"
    if root.is_file():
        hint = (
            "give the folder that holds it"
            if root.suffix in (".parquet", ".mp4", ".jsonl", ".catalog")
            else expected
        )
        if is_lfs_pointer(root):
            return (
                "is a Git LFS pointer, not the data itself; run 'git lfs pull' in the repository it came from"
            )
        return f"is a file and no episodes; {hint}"
    names = {p.name for p in _inside(root)}
    inner = [child for child in _folders(root) if format_of(child) is not None]
    if inner:
        others = f" and {len(inner) - 1} more" if len(inner) > 1 else ""
        return f"is no dataset itself but holds one: give {inner[0]} ({format_of(inner[0])}){others}"
    if not names - {"meta", "data", "videos"} and names:
        return f"has {', '.join(sorted(names))} but no meta/info.json; {expected}: download it again, whole"
    return (
        _described(root, names)
        or f"holds no episodes ({', '.join(sorted(names)[:6]) or 'it is empty'}); {expected}"
    )


def _described(root: Path, names: set[str]) -> str | None:
    """Return one line about a folder that people mistake for a dataset, or None."""
    if {"config.json", "model.safetensors"} <= names or "train_config.json" in names:
        return (
            "is a trained policy, not episodes: its normaliser goes to `simgap data check`, its data is what"
            " train_config.json names"
        )
    if "card.json" in names:
        return "is a checkpoint of simgap, not episodes; give it to `simgap screen`, and a dataset here"
    if ".zgroup" in names or "zarr.json" in names or any(n.endswith(".zarr") for n in names):
        return (
            "is a Zarr store, which is not read here; convert it to LeRobot or to HDF5 with data/demo_k"
            " groups"
        )
    if "dataset_info.json" in names and any(".tfrecord" in n for n in names):
        return (
            "is an RLDS (TFDS) dataset, which is not read here; convert it to LeRobot with the tools of its"
            " project"
        )
    if "meta.json" in names and any(n.startswith("record_") for n in names):
        return "is a donkeycar tub of version 1; convert it with donkeycar's convert_to_tub_v2.py"
    if any(n.endswith((".bag", ".mcap", ".db3")) for n in names):
        return "is a ROS bag, which is not read here; record or convert it to LeRobot or HDF5 episodes first"
    logs = [
        folder
        for folder in [root, *_folders(root)]
        if (folder / "control.csv").is_file() and (folder / "state_motor.csv").is_file()
    ]
    if logs:
        return (
            f"holds {len(logs)} actuator logs (commands and measured joints, no images), not episodes;"
            " `simgap data check` reads such logs"
        )
    files = list(islice(_files(root), _MOST_NAMES))
    statistics = [f.name for f in files if f.suffix == ".json" and _holds_statistics(f)]
    if statistics:
        return (
            f"holds statistics of data ({_and_more(statistics)}), not the episodes; `simgap data check` reads"
            " such files"
        )
    tables = [f.name for f in files if f.suffix in (".csv", ".tsv")]
    if tables:
        return (
            f"holds tables of trials or results ({_and_more(tables)}), not episodes; `simgap data check`"
            " reads such tables"
        )
    return None


def _and_more(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _holds_statistics(path: Path) -> bool:
    """Return whether a JSON file has, near its top, an object of means and quantiles."""
    try:
        value = read_json(path, limit_bytes=16 << 20, finite=False)
    except DataError:
        return False
    level = [value]
    for _ in range(4):
        level = [v for v in level if isinstance(v, dict)]
        if any(len(_STATISTICS & set(v)) >= 2 for v in level):
            return True
        level = [inner for v in level for inner in islice(v.values(), 64)]
    return False


def _inside(root: Path) -> list[Path]:
    return sorted(islice(root.iterdir(), _MOST_NAMES))


def _folders(root: Path) -> list[Path]:
    return [p for p in _inside(root) if p.is_dir() and not p.name.startswith(".")]


def _files(root: Path) -> Iterator[Path]:
    """Yield files here and two folders down."""
    for depth in ("*", "*/*", "*/*/*"):
        yield from (p for p in sorted(root.glob(depth)) if p.is_file())

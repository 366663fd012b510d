"""``simgap data``: look at a dataset of any robot, check it, convert, merge, measure and split it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simgap.cli._data_options import add_change, add_reading, keymap_of, written
from simgap.cli._data_show import show_info, show_report
from simgap.cli._options import add_workers
from simgap.cli._output import emit

HELP = (
    "Look at a dataset, ours or others': LeRobot (v3.0, v2.1, v2.0), donkeycar tubs, HDF5 of ACT and"
    " robomimic. Check it, convert it to LeRobot v3.0, merge it with others, recompute its statistics, split"
    " it. Only what is named with --out, --write or --save-map is written."
)
_ACTIONS = {
    "check": "report everything wrong with a dataset; exit code 1 on a fault or warning",
    "info": "describe a dataset without judging it",
    "convert": (
        "write it as LeRobot v3.0; nothing changes but what is asked for. Killed, the same command makes what"
        " is missing"
    ),
    "merge": (
        "write several datasets as one; where their conventions differ the error holds the command that"
        " converts"
    ),
    "stats": (
        "recompute exact statistics and compare them with the stored ones; exit code 1 where they are wrong"
    ),
    "split": (
        "draw training and held-out episodes by task, whole sessions and duplicates on one side; printed, and"
        " kept where --out says"
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of the verb."""
    from simgap.cli import _data_compare

    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    add = {name: actions.add_parser(name, help=text, description=text) for name, text in _ACTIONS.items()}
    for name, action in add.items():
        if name == "merge":
            action.add_argument(
                "paths", type=Path, nargs="+", metavar="PATH", help="datasets, in the order of their episodes"
            )
            action.add_argument(
                "--task", default="", metavar="WORDS", help="instruction of episodes that carry none"
            )
            add_reading(action)
        else:
            action.add_argument(
                "path",
                type=Path,
                metavar="PATH",
                help="dataset folder, the one that holds meta/ and data/; a tub; or an HDF5 file or folder",
            )
            add_reading(action, is_stated=name != "convert")
    add["info"].add_argument(
        "--save-map",
        action="store_true",
        help="keep what --map, --rate-hz, --is and --image say beside the data, for every verb",
    )
    add_change(add["convert"])
    for name in ("convert", "merge"):
        add[name].add_argument(
            "--codec",
            choices=("h264", "av1", "png"),
            help="h264 or av1: small and lossy; png: exact (default: that of the source, or h264)",
        )
    stats, split = add["stats"], add["split"]
    stats.add_argument(
        "--write",
        action="store_true",
        help="put the exact statistics in the place of the stored ones, atomically",
    )
    stats.add_argument("--no-images", action="store_true", help="do not decode frames")
    split.add_argument(
        "--parts",
        default="train=0.8,val=0.2",
        metavar="NAME=SHARE,...",
        help="parts and their shares (default train=0.8,val=0.2)",
    )
    split.add_argument(
        "--datasets",
        action="store_true",
        help="write a dataset a part into the folder --out, not only the list",
    )
    split.add_argument(
        "--task",
        default="",
        metavar="WORDS",
        help="instruction of episodes that carry none (with --datasets)",
    )
    for name in ("convert", "merge", "split"):
        add_workers(add[name])
    _data_compare.add(actions)


def run(args: argparse.Namespace) -> int:
    """Run the verb; 1 when something wrong was found and stays."""
    from simgap.cli import _data_compare, _data_write

    writing = {
        "convert": _data_write.convert,
        "merge": _data_write.merge,
        "stats": _data_write.stats,
        "split": _data_write.split,
    }
    actions: dict[str, Callable[[argparse.Namespace], int]] = {
        "info": _info,
        "check": _check,
        "compare": _data_compare.run,
        **writing,
    }
    return actions[args.action](args)


def _info(args: argparse.Namespace) -> int:
    from simgap.artefacts.read import describe_foreign
    from simgap.checks.data.dataset import describe_data
    from simgap.cli._foreign import show_foreign_info
    from simgap.episodes.formats.keymap import keymap_path
    from simgap.episodes.formats.recognise import format_of
    from simgap.episodes.reader import open_dataset
    from simgap.errors import UsageError

    keymap = keymap_of(args)
    if (
        keymap is None
        and format_of(args.path) is None
        and (described := describe_foreign(args.path)) is not None
    ):
        return _finish(args, described, show_foreign_info, 0)
    dataset = open_dataset(args.path, keymap)
    document = {
        **describe_data(dataset),
        "notes": list(dataset.notes),
        "features": {k: [f.dtype, list(f.shape)] for k, f in dataset.info.features.items()},
    }
    if args.save_map:
        if dataset.keymap is None:
            raise UsageError(
                "there is no map to save; say what the data do not say with --map, --rate-hz, --is or --image"
            )
        written(keymap_path(args.path), dataset.keymap.to_json())
    return _finish(args, document, show_info, 0)


def _check(args: argparse.Namespace) -> int:
    from simgap.artefacts.read import check_foreign
    from simgap.checks.data.dataset import check_data
    from simgap.cli._data_write import shown
    from simgap.cli._foreign import show_foreign
    from simgap.episodes.formats.recognise import format_of
    from simgap.episodes.reader import open_dataset

    keymap = keymap_of(args)
    if keymap is None and format_of(args.path) is None:
        _require_not_ours(args.path)
    if keymap is None and format_of(args.path) is None and (other := check_foreign(args.path)) is not None:
        return _finish(args, other.to_json(), show_foreign, 0 if other.is_clean else 1)
    dataset = open_dataset(args.path, keymap)
    with shown(args, "pictures") as decoded:
        report = check_data(dataset, decoded)
    return _finish(args, report.to_json(), show_report, 0 if report.is_clean else 1)


def _require_not_ours(path: Path) -> None:
    """Say what a folder of ours is that holds no episodes, before its files are read as somebody else's.

    Raises:
        DataError: names the verb that reads it.
    """
    from simgap.errors import DataError

    if not path.is_dir() or (path / "config.json").is_file():
        return
    from simgap.loop.no_run import own_folder

    if said := own_folder(path):
        raise DataError(
            f"{path} {said}; `simgap data check` reads episodes, and logs and statistics of others"
        )


def _finish(
    args: argparse.Namespace, document: dict[str, Any], show: Callable[[Any, dict[str, Any]], None], code: int
) -> int:
    if args.out is not None:
        written(args.out, document)
    emit(args, document, lambda console: show(console, document))
    return code

"""``simgap data``: look at a dataset (``info``) and say what is wrong with it (``check``)."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.cli._output import emit, foreign

if TYPE_CHECKING:
    from rich.console import Console

HELP = "Look at a LeRobot dataset (v3.0 or v2.1), ours or others', and say what is wrong with it. Nothing in it is changed."
_ACTIONS = {
    "check": "report everything wrong with a dataset; exit code 1 on a fault or warning",
    "info": "describe a dataset without judging it",
}
_MARKS = {"fault": "red", "warning": "yellow", "note": "cyan"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of the verb."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in _ACTIONS.items():
        action = actions.add_parser(name, help=text, description=text)
        action.add_argument("path", type=Path, metavar="PATH", help="dataset folder, the one that holds meta/ and data/")


def run(args: argparse.Namespace) -> int:
    """Run the verb and return 0 (nothing wrong) or 1 (a fault or warning was found)."""
    from simgap.checks.data import check_data, describe_data
    from simgap.checks.foreign import check_foreign, describe_foreign
    from simgap.cli._foreign import show_foreign, show_foreign_info
    from simgap.provenance import write_atomic

    if args.action == "info" and (described := describe_foreign(args.path)) is not None:
        document, code, show = described, 0, show_foreign_info
    elif args.action == "info":
        document, code, show = describe_data(args.path), 0, _show_info
    elif (other := check_foreign(args.path)) is not None:
        document, code, show = other.to_json(), 0 if other.is_clean else 1, show_foreign
    else:
        report = check_data(args.path)
        document, code, show = report.to_json(), 0 if report.is_clean else 1, _show_report
    if args.out is not None:
        write_atomic(args.out, json.dumps(document, indent=2, allow_nan=False) + "\n")
    emit(args, document, lambda console: show(console, document))
    return code


def _show_info(console: Console, document: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(show_header=False, box=None)
    for key in ("path", "version", "is_ours", "robot_type", "rate_hz", "episodes", "frames", "length", "cameras", "tasks", "outcomes", "fingerprint"):
        table.add_row(key, foreign(str(document[key])))
    for key in ("action_spec", "state_spec"):
        table.add_row(key, foreign(", ".join(f"{d['name']} ({d['unit']})" for d in document[key]["dimensions"])))
    console.print(table)


def _show_report(console: Console, document: dict[str, Any]) -> None:
    from rich.table import Table

    layout, counts = document["layout"], document["counts"]
    console.print(
        f"{foreign(document['path'])}: LeRobot {layout['version']}, {foreign(layout['robot_type'])}, {counts['episodes_with_frames']} episodes, "
        f"{counts['frames_found']} frames at {layout['rate_hz']:g} fps declared"
    )
    joints = {n: j for n, j in document["measurements"]["joints"].items() if j["lag_frames"] is not None}
    if joints:
        table = Table("joint", "relation", "lag frames", "lag ms", "scale", "moving", "still", "R2", box=None)
        for name, j in joints.items():
            cells = (j["scale"], j["moving"]["scale"], j["still"]["scale"], j["r2"])
            table.add_row(foreign(name), j["relation"], str(j["lag_frames"]), f"{j['lag_ms']:.0f}", *("-" if c is None else f"{c:.3f}" for c in cells))
        console.print(table)
    for finding in document["findings"]:
        mark = _MARKS[finding["severity"]]
        console.print(f"[{mark}]{finding['severity']}[/{mark}] {finding['code']}: {foreign(finding['sentence'])}")
        console.print(f"        -> {foreign(finding['remedy'])}")
    if not document["findings"]:
        console.print("nothing wrong found")

"""``simgap data``: look at a dataset (``info``) and say what is wrong with it (``check``)."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

_MARKS = {"fault": "red", "warning": "yellow", "note": "cyan"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("action", choices=("check", "info"), help="check: report faults; info: describe without judging")
    parser.add_argument("path", type=Path, help="dataset folder (LeRobot v3.0 or v2.1)")


def run(args: argparse.Namespace) -> int:
    """Run the verb and return 0 (nothing wrong) or 1 (a fault or warning was found)."""
    from simgap.checks.data import check_data, describe_data
    from simgap.provenance import write_atomic

    if args.action == "info":
        document, code = describe_data(args.path), 0
    else:
        report = check_data(args.path)
        document, code = report.to_json(), 0 if report.is_clean else 1
    text = json.dumps(document, indent=2, allow_nan=False)
    out = getattr(args, "out", None)
    if out is not None:
        write_atomic(Path(out), text + "\n")
    if args.json:
        sys.stdout.write(text + "\n")
    elif args.action == "info":
        _show_info(document)
    else:
        _show_report(document)
    return code


def _show_info(document: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False, box=None)
    for key in ("path", "version", "is_ours", "robot_type", "rate_hz", "episodes", "frames", "length", "cameras", "tasks", "outcomes", "fingerprint"):
        table.add_row(key, str(document[key]))
    for key in ("action_spec", "state_spec"):
        table.add_row(key, ", ".join(f"{d['name']} [{d['unit']}]" for d in document[key]["dimensions"]))
    Console().print(table)


def _show_report(document: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    layout, counts = document["layout"], document["counts"]
    console.print(
        f"{escape(document['path'])}: LeRobot {layout['version']}, {escape(layout['robot_type'])}, {counts['episodes_with_frames']} episodes, "
        f"{counts['frames_found']} frames at {layout['rate_hz']:g} fps declared",
        highlight=False,
    )
    joints = {n: j for n, j in document["measurements"]["joints"].items() if j["lag_frames"] is not None}
    if joints:
        table = Table("joint", "relation", "lag frames", "lag ms", "scale", "moving", "still", "R2", box=None)
        for name, j in joints.items():
            cells = (j["scale"], j["moving"]["scale"], j["still"]["scale"], j["r2"])
            table.add_row(name, j["relation"], str(j["lag_frames"]), f"{j['lag_ms']:.0f}", *("-" if c is None else f"{c:.3f}" for c in cells))
        console.print(table)
    for finding in document["findings"]:
        mark = _MARKS[finding["severity"]]
        console.print(f"[{mark}]{finding['severity']}[/{mark}] {finding['code']}: {escape(finding['sentence'])}", highlight=False)
        console.print(f"        -> {escape(finding['remedy'])}", highlight=False)
    if not document["findings"]:
        console.print("nothing wrong found")

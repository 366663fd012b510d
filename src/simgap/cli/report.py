"""``simgap report``: write the page of a run again."""

from __future__ import annotations

import argparse
from pathlib import Path

from simgap.cli._output import emit

HELP = "write one self-contained HTML page of a run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument(
        "run_folder", type=Path, metavar="RUN", help="folder of a finished run of `simgap demo`"
    )


def run(args: argparse.Namespace) -> int:
    """Read a run back and write its report."""
    from simgap.loop.reporting import report_model
    from simgap.loop.store import load_run
    from simgap.report import write_report

    result = load_run(args.run_folder)
    model = report_model(result, f"simgap report {args.run_folder}")
    path = write_report(model, args.out or args.run_folder / "report.html")
    emit(
        args,
        {"report": str(path), "verdict": model.verdict},
        lambda console: console.print(f"{model.verdict}\nreport     {path}"),
    )
    return 0

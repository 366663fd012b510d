"""Measures what every interval covers and how often every test errs, and writes docs/studies/coverage.md.

Binomial counts are enumerated, the rest is simulated from a seed of its own. One core, a few minutes:

    python benchmarks/coverage.py --page docs/studies/coverage.md
"""

from __future__ import annotations

import argparse
import sys
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from coverage_drawn import ROWS as DRAWN
from coverage_fixed import ROWS as FIXED
from coverage_rows import Effort, Measured, Row

ROWS: tuple[Row, ...] = (*FIXED, *DRAWN)
TABLE = Effort(draws=2000)
SMALL = Effort(draws=60, is_small=True)


def measured(row: Row, effort: Effort) -> tuple[Measured, int]:
    """Return the worst truth of a row, from a seed that is the row's own."""
    return row.worst(effort, np.random.default_rng(zlib.crc32("/".join((*row.names, row.what)).encode())))


def line(row: Row, worst: Measured, truths: int) -> str:
    """Return the table's line of a row."""
    name = f"`{row.names[0]}`" + (
        f" (also {', '.join(f'`{n}`' for n in row.names[1:])})" if len(row.names) > 1 else ""
    )
    promise = f"covers {row.promise:g}" if row.is_interval else f"errs at most {row.promise:g}"
    found = f"{worst.share:.3f}" + (f" ± {worst.error:.3f}" if worst.draws else "")
    how = f"{worst.draws} simulated of each" if worst.draws else "enumerated"
    verdict = "kept" if row.documented is None else f"not kept; its docstring says {row.documented:g}"
    return (
        f"| {name} | {row.what} | {promise} | {found} | {worst.truth} | {truths} truths, {how} | {verdict} |"
    )


def page(rows: Sequence[tuple[Row, Measured, int]], seconds: float) -> str:
    """Return the page."""
    broken = [row for row, worst, _ in rows if not row.holds(worst)]
    return "\n".join(
        [
            "# What every interval covers, and how often every test errs",
            "",
            (
                "Each public interval and test of `simgap.statistics`, and those that other packages compute,"
                " under its *least favourable* truth of those tried:"
            ),
            (
                "rates from .01 to 1, from 5 trials on. An interval keeps its promise when it covers within a"
                " point of it there; where one does not, its"
            ),
            (
                "docstring says the figure. ± is the standard error of the simulation. An undefined interval"
                " claims nothing and counts as covering. Made by"
            ),
            "",
            "    python benchmarks/coverage.py --page docs/studies/coverage.md",
            "",
            (
                f"in {seconds / 60:.0f} minutes on one CPU core. The same rows run small with the tests and"
                " at this size with `make thorough`."
            ),
            "",
            "| function | what | promise | worst measured | under | of | |",
            "|---|---|---|---|---|---|---|",
            *(line(*found) for found in rows),
            "",
            (
                "Rows that neither keep their promise nor say so:"
                f" {', '.join(r.names[0] for r in broken) or 'none'}."
            ),
            "",
        ]
    )


def main() -> None:
    """Measure every row and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--page", type=Path, help="write the page here")
    parser.add_argument("--only", default="", help="rows whose first name contains this")
    parser.add_argument(
        "--draws",
        type=int,
        default=TABLE.draws,
        help="data sets simulated of each truth, for a cheap function",
    )
    options = parser.parse_args()
    began, found = time.process_time(), []
    for row in ROWS:
        if options.only in row.names[0]:
            started = time.process_time()
            worst, truths = measured(row, Effort(draws=options.draws))
            found.append((row, worst, truths))
            print(
                line(row, worst, truths),
                f"{time.process_time() - started:.1f} s",
                "" if row.holds(worst) else "BROKEN",
                flush=True,
            )
    if options.page:
        options.page.write_text(page(found, time.process_time() - began), encoding="utf-8")


if __name__ == "__main__":
    main()

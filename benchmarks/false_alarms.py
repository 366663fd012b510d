"""What the data check says of every healthy set that was ever tried, and of the public ones with known faults, as a page.

    python benchmarks/false_alarms.py

writes ``docs/studies/false-alarms.md`` again. The recordings are built by ``tests/healthy_hosts.py``; public
ones are read in place where they are there (``tests/public_sets.py``), and their rows say so where they are
not.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from simgap.cli import main as simgap
from simgap.provenance import write_atomic

HERE = Path(__file__).parent.parent
sys.path.insert(0, str(HERE / "tests"))

from healthy_hosts import HOSTS  # noqa: E402
from public_sets import KNOWN, Known  # noqa: E402

TOP = """# False alarms: every healthy set that was tried, and what the data check said

Made by `python benchmarks/false_alarms.py`; tests hold every row. A healthy set may draw notes, which never change the exit code: facts,
and questions that only the owner can answer. Anything above a note on one of these rows would be a false alarm.
"""
KNOWN_TOP = """
## Sets whose faults are known

Judged by what was found out about them without the check, by looking at the files. The third column is what the check says above a note.
"""


def main() -> None:
    """Check everything and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--page", type=Path, default=HERE / "docs" / "studies" / "false-alarms.md")
    options = parser.parse_args()
    healthy = [*_built(), *(_row(k, k.what) for k in KNOWN if k.is_healthy)]
    alarms = sum(" | nothing | " not in row for row in healthy)
    lines = [
        TOP,
        f"{len(healthy)} healthy sets, {alarms} with a finding above a note.",
        "",
        "| set | what it is | above a note | notes |",
        "|---|---|---|---|",
    ]
    lines += [
        *healthy,
        KNOWN_TOP,
        "| set | what is wrong with it | above a note | notes |",
        "|---|---|---|---|",
    ]
    lines += [_row(k, k.what) for k in KNOWN if not k.is_healthy]
    write_atomic(options.page, "\n".join(lines) + "\n")
    print(f"{options.page}: {len(healthy)} healthy sets, {alarms} alarms")


def _built() -> Iterator[str]:
    for name, build in HOSTS.items():
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            root = build(Path(folder) / "d")
            row = _line(
                name, "built" if "converted" not in name else "built, then `simgap data convert`", root
            )
        print(row, flush=True)
        yield row


def _row(known: Known, what: str) -> str:
    return (
        _line(known.path, what, known.root)
        if known.root.exists()
        else f"| {known.path} | {what} | not looked at: not here | |"
    )


def _line(name: str, what: str, root: Path) -> str:
    code, document = _check(root)
    if code == 3:
        return (
            f"| {name} | {what} | refused:"
            f" {document['error'].replace(str(root), root.name).replace('|', '/')} | |"
        )
    found = document["findings"]
    loud, quiet = (
        [f["code"] for f in found if (f["severity"] == "note") is is_note] for is_note in (False, True)
    )
    return f"| {name} | {what} | {_codes(loud) or 'nothing'} | {_codes(quiet)} |"


def _codes(codes: list[str]) -> str:
    return ", ".join(dict.fromkeys(codes))


def _check(root: Path) -> tuple[int, dict[str, Any]]:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = simgap(["data", "check", str(root), "--json", "--quiet"])
    return code, json.loads(out.getvalue())


if __name__ == "__main__":
    main()

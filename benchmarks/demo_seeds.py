"""Runs the demo over seeds and prints one row a seed: what was sealed, what was diagnosed, and both turns on the surrogate.

    python benchmarks/demo_seeds.py --seeds 0-9 --gap random --out runs/seeds
    python benchmarks/demo_seeds.py --seeds 0-4 --gap none --out runs/seeds

Datasets, policies and screens are shared between seeds; finished runs are found again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    """Run or find every seed and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="0-9", help="first-last, or one number")
    parser.add_argument("--gap", default="random")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("runs/seeds"))
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    rows = [run(seed, options) for seed in range(int(first), int(last or first) + 1)]
    sys.stdout.write(
        "| seed | sealed | diagnosed | sim screen | turn 1 | turn 2 | paired difference, 95 % interval |"
        " minutes |\n|---|---|---|---|---|---|---|---|\n"
    )
    for row in rows:
        sys.stdout.write("| " + " | ".join(row["cells"]) + " |\n")
    named = sum(r["agrees"] for r in rows)
    tried = [r for r in rows if r["better"] is not None]
    sys.stdout.write(
        f"\nnamed the sealed gap: {named} of {len(rows)}; turn 2 better: {sum(r['better'] for r in tried)} of"
        f" {len(tried)} that had one\n"
    )


def run(seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Run one seed in its own process, so that its time and memory are its own."""
    size = "quick" if options.quick else "full"
    folder = options.out / f"{size}-s{seed}-{options.gap}"
    command = [
        sys.executable,
        "-m",
        "simgap",
        "demo",
        "--json",
        "--seed",
        str(seed),
        "--gap",
        options.gap,
        "--out",
        str(folder),
        "--cache",
        str(options.out / "cache"),
    ]
    began = time.monotonic()
    done = subprocess.run(
        [*command, *(["--quick"] if options.quick else [])], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"seed {seed} ended with code {done.returncode}; its message is above")
    document = json.loads(done.stdout)
    paired, screen = document["paired_difference"], document["turns"][0]["screens"][0]
    interval = (
        "none"
        if paired is None
        else f"{100 * paired['point']:+.0f} ({100 * paired['low']:+.0f} to {100 * paired['high']:+.0f})"
    )
    cells = [
        str(seed),
        ", ".join(filter(None, (document["seal"]["gap"]["kind"], document["seal"]["gap"]["joint"]))),
        document["diagnosis"]["cause"],
        f"{screen['successes']}/{screen['n']}",
        _rate(document["turns"][0]),
        _rate(document["turns"][1] if len(document["turns"]) > 1 else None),
        interval,
        f"{(time.monotonic() - began) / 60:.1f}",
    ]
    return {
        "cells": cells,
        "agrees": bool(document["diagnosis_agrees"]),
        "better": document["is_better"],
    }


def _rate(turn: dict[str, Any] | None) -> str:
    found = None if turn is None else turn["surrogate_in_use"]
    return "not tried" if found is None else f"{found['successes']}/{found['n']}"


if __name__ == "__main__":
    main()

"""``simgap data compare``: which map (order, sign, unit, zero, reference) turns one recording's numbers into another's."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.cli._options import whole
from simgap.cli._output import emit, show_lines

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from simgap.conventions import VectorSpec
    from simgap.episodes.reader import Dataset

HELP = (
    "find the map between two recordings of the same motion: order, sign, unit, zero, gripper, rotation form;"
    " exit code 1 where they differ"
)
_DESCRIBE = (
    "Find the map that turns the numbers of WANTED into those of FOUND: recordings of the same episodes before"
    " and after a driver's update, commands and readings, labels and predictions. One map that fits every"
    " episode is another convention; where none fits, it is no convention. Example: simgap data compare before"
    " after; commands against readings of one recording: simgap data compare DATA DATA --found state"
    " --longest-lag 10"
)


def add(actions: Any) -> None:
    """Add the action and its options."""
    compare = actions.add_parser("compare", help=HELP, description=_DESCRIBE)
    compare.add_argument(
        "wanted_path", type=Path, metavar="WANTED", help="dataset in the convention expected"
    )
    compare.add_argument("found_path", type=Path, metavar="FOUND", help="the same episodes as they came out")
    for side in ("wanted", "found"):
        compare.add_argument(
            f"--{side}", choices=("action", "state"), default="action", help=f"which vector of {side.upper()}"
        )
    compare.add_argument(
        "--longest-lag",
        type=whole,
        default=0,
        metavar="N",
        help="frames that FOUND may be behind (default 0)",
    )
    compare.add_argument(
        "--rotation",
        metavar="A,B,C",
        help="three dimensions of WANTED that turn the hand in each step, in rad; those of FOUND are the"
        " rotation vectors that it turned by",
    )
    compare.add_argument(
        "--form", default="rotvec", metavar="FORM", help="what --rotation claims: rotvec, xyz, XYZ, zyx ..."
    )


def run(args: argparse.Namespace) -> int:
    """Compare, print, and return 1 where the conventions differ or nothing can be told."""
    from simgap.cli._data_options import written
    from simgap.episodes.reader import open_dataset
    from simgap.errors import UsageError
    from simgap.findings import Verdict

    wanted, found = open_dataset(args.wanted_path), open_dataset(args.found_path)
    spec, theirs = (
        getattr(data.spec, f"{which}_spec") for data, which in ((wanted, args.wanted), (found, args.found))
    )
    if len(spec) != len(theirs):
        raise UsageError(
            f"{args.wanted} of {args.wanted_path} has {len(spec)} dimensions, {args.found} of"
            f" {args.found_path} has {len(theirs)}; drop some with `simgap data convert --drop`"
        )
    pairs, left_out = _pairs(wanted, found, args)
    results = [_convention(pairs, spec, args.longest_lag)]
    if args.rotation is not None:
        results.append(_rotation(pairs, spec, args.rotation, args.form))
    document = {
        "kind": "data_compare",
        "schema": 1,
        "wanted": str(args.wanted_path),
        "found": str(args.found_path),
        "episodes": len(pairs),
        "episodes_left_out": left_out,
        "checks": [r.to_json() for r in results],
    }
    if args.out is not None:
        written(args.out, document)
    lines = [f"{r.verdict}: {r.sentence}" for r in results]
    if left_out:
        lines.append(f"left out, of other length or on one side only: episodes {left_out[:12]}")
    lines += _map_lines(results[0].numbers.get("map"))
    emit(args, document, lambda console: show_lines(console, *lines))
    return 0 if all(r.verdict is Verdict.OK for r in results) else 1


def _pairs(
    wanted: Dataset, found: Dataset, args: argparse.Namespace
) -> tuple[list[tuple[NDArray[np.float32], NDArray[np.float32]]], list[int]]:
    from simgap.errors import DataError

    ours, theirs = ({e.index: e.length for e in data.entries} for data in (wanted, found))
    shared = [k for k, length in ours.items() if theirs.get(k) == length]
    if not shared:
        raise DataError(
            f"{wanted.root} and {found.root} share no episode of the same length; give recordings of the same"
            " episodes, frame by frame"
        )
    pairs = [
        (
            getattr(wanted.episode(k, images=False), args.wanted),
            getattr(found.episode(k, images=False), args.found),
        )
        for k in shared
    ]
    return pairs, sorted((set(ours) | set(theirs)) - set(shared))


def _convention(pairs: list[Any], spec: VectorSpec, longest_lag: int) -> Any:
    from simgap.checks.replay.convention import check_convention

    wanted, found = [w for w, _ in pairs], [f for _, f in pairs]
    return check_convention(wanted, found, spec, longest_lag=longest_lag)


def _rotation(pairs: list[Any], spec: VectorSpec, names: str, form: str) -> Any:
    import numpy as np

    from simgap.errors import UsageError, did_you_mean
    from simgap.measures.rotation import check_rotation

    chosen = names.split(",")
    unknown = [n for n in chosen if n not in spec.names]
    if len(chosen) != 3 or unknown:
        raise UsageError(
            f"--rotation {names[:60]}: give three dimensions"
            + (f"; {did_you_mean(unknown[0], spec.names)}" if unknown else "")
        )
    columns = [spec.names.index(n) for n in chosen]
    sent, done = (np.concatenate([pair[k][:, columns] for pair in pairs]) for k in (0, 1))
    return check_rotation(sent, done, declared=form)


def _map_lines(found: Any) -> list[str]:
    if found is None:
        return []
    return [
        f"  {name} = {row['scale']:.4g} * {row['source']} {row['offset']:+.4g}" for name, row in found.items()
    ]

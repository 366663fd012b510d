"""``simgap numbers compare``: two policies, from independent trials, matched starts, several tasks, or with early stopping."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

Said = tuple[dict[str, Any], list[str], bool]


def unpaired(args: argparse.Namespace) -> Said:
    """Compare counts of independent trials."""
    from simgap.errors import UsageError
    from simgap.statistics import (
        average_difference,
        exact_independence,
        miettinen_nurminen,
        newcombe_difference,
        non_inferiority,
    )

    if len(args.counts) % 2:
        raise UsageError(f"{len(args.counts)} counts: give as many of the new policy as of the old one")
    half = len(args.counts) // 2
    new, old = args.counts[:half], args.counts[half:]
    if half > 1:
        if args.margin is not None:
            raise UsageError("--margin goes with one count of each policy")
        difference = average_difference(new, old, confidence=args.confidence)
        return {"average": asdict(difference)}, [_told(difference)], difference.is_defined
    (k1, n1), (k2, n2) = new[0], old[0]
    newcombe = newcombe_difference(k1, n1, k2, n2, args.confidence)
    score = miettinen_nurminen(k1, n1, k2, n2, args.confidence)
    test = exact_independence(k1, n1, k2, n2)
    document = {"newcombe": asdict(newcombe), "miettinen_nurminen": asdict(score), "test": asdict(test)}
    lines = [_told(newcombe), _told(score), _test(test)]
    if args.margin is not None:
        worse = non_inferiority(k1, n1, k2, n2, margin=args.margin)
        document["not_worse_by_margin"] = asdict(worse)
        lines.append(f"not worse by {args.margin:.0%}: {_test(worse)}")
    return document, lines, newcombe.is_defined


def paired(args: argparse.Namespace) -> Said:
    """Compare on matched starts."""
    from simgap.statistics import newcombe_paired, paired_difference, tango_interval

    both, new, old, neither = args.pairs
    found = paired_difference(both, new, old, neither, confidence=args.confidence)
    document: dict[str, Any] = {"difference": asdict(found.difference), "p_value": found.p_value}
    document["newcombe"] = asdict(newcombe_paired(both, new, old, neither, args.confidence))
    lines = [_told(found.difference)]
    if found.p_value is not None:
        lines.append(f"p = {found.p_value:.3g} (exact McNemar)")
    if args.margin is not None and sum(args.pairs):
        low, high = tango_interval(new, old, sum(args.pairs), args.confidence)
        document |= {"tango": [low, high], "is_not_worse_by_margin": low > -args.margin}
        says = "not worse" if low > -args.margin else "not shown to be no worse"
        lines.append(f"{says} by {args.margin:.0%}: Tango's interval is {low:+.3f} to {high:+.3f}")
    return document, lines, found.difference.is_defined


def capped(args: argparse.Namespace) -> Said:
    """Say where a comparison with early stopping stands; without outcomes, when it will stop."""
    from simgap.errors import UsageError
    from simgap.statistics import capped_design, compare_capped

    if (args.new is None) != (args.old is None):
        raise UsageError("give --new and --old, one outcome a pair each, or neither for the design")
    if args.margin is not None:
        raise UsageError("--margin goes with counts or --pairs")
    design = capped_design(args.at_most, args.confidence, paired=args.paired)
    if args.new is None:
        rows = _first_stops(design, args.at_most)
        lines = [
            f"{design.method}; earliest verdicts if one policy never fails and the other never succeeds:"
        ]
        lines.append(f"  after {rows} pairs" if rows else "  none within the cap")
        return {"method": design.method, "earliest_pairs": rows}, lines, rows is not None
    found = compare_capped(args.new, args.old, design)
    document = {
        "verdict": str(found.verdict),
        "pairs": found.n,
        "finished": found.finished,
        "difference": asdict(found.difference),
        "method": found.method,
    }
    more = "" if found.finished else f"; go on, {args.at_most - found.n} pairs are left"
    return document, [f"{found.verdict} after {found.n} pairs{more} ({found.method})"], found.finished


def _first_stops(design: Any, most: int) -> int | None:
    return next((n for n in range(1, most + 1) if str(design.verdict(n, 0, n)) != "undecided"), None)


def _told(difference: Any) -> str:
    if difference.point is None or difference.low is None or difference.high is None:
        return f"no difference can be given: {difference.reason}"
    return (
        f"new minus old {100 * difference.point:+.1f} points, {100 * difference.confidence:g} % interval"
        f" {100 * difference.low:+.1f} to {100 * difference.high:+.1f} ({difference.method})"
    )


def _test(test: Any) -> str:
    return (
        f"p undefined ({test.reason})" if test.p_value is None else f"p = {test.p_value:.3g} ({test.method})"
    )

"""What was looked at before: seeds that chose a policy may not judge it, and one good report among several is no better than their sum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simgap.errors import DataError
from simgap.provenance import read_json
from simgap.rollouts.engine import RolloutSpec
from simgap.rollouts.screen import BROKEN_BELOW, WORTHY_ABOVE, ScreenReport, read_screen
from simgap.seeds import Purpose
from simgap.statistics import Estimate, ScreenVerdict, beta_mixture, sequential_screen_verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Pooled:
    """All reports of one policy on fresh seeds together."""

    seeds: tuple[int, ...]
    """Roots of the report seeds, this one's last."""
    rate: Estimate
    """On all of them, with an interval that holds however many reports there will be."""
    verdict: ScreenVerdict
    """On all of them. However often another report is added, each wrong verdict has a chance of at most 2.5 % in all."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        rate = self.rate
        return {
            "seeds": list(self.seeds),
            "successes": rate.successes,
            "n": rate.n,
            "anytime": [rate.low, rate.high],
            "verdict": str(self.verdict),
            "sentence": str(rate),
        }


def chosen_here(root: Path, spec: RolloutSpec, policy: str) -> Path | None:
    """Return the race, if there is one beside these screens, in which these very select seeds chose this policy.

    Args:
        root: folder of screens and races.
        spec: what was rolled out.
        policy: hash of the policy's card.
    """
    if spec.purpose is not Purpose.SELECT:
        return None
    for file in sorted(root.glob("select-*/selection.json")):
        try:
            found = read_json(file)
            winners = [e["policy"] for e in found["entrants"] if e["name"] == found["winner"]]
            same = (found["env"], found["select"]["seed"], found["ranges"]) == (spec.env, spec.seed, spec.ranges.to_json())
        except (DataError, KeyError, TypeError, AttributeError):
            continue  # a race that cannot be read warns of nothing
        if same and policy in winners:
            return file.parent
    return None


def pooled_reports(root: Path, report: ScreenReport) -> Pooled | None:
    """Return a report together with earlier ones of the same policy, executor, conditions and engine on other fresh seeds; None without any.

    Who adds reports until one pleases has looked several times, so the verdict and the interval are those that hold at every look. The
    verdict for a fixed n, asked again of the pooled counts, was wrong in 3, 6 and 9 % of runs after 2, 5 and 10 looks, where 2.5 % are promised.

    Args:
        root: folder of screens.
        report: this one.
    """
    if report.stamp.fields.get("purpose") != str(Purpose.REPORT):
        return None
    own = int(report.stamp.fields["seed"])
    earlier = {seed: found for seed, found in _reports_like(root, report) if seed != own}
    if not earlier:
        return None
    counts = [r.counts for r in (*earlier.values(), report)]
    k, n = sum(c.successes for c in counts), sum(c.n for c in counts)
    verdict = sequential_screen_verdict(k, n, broken_below=BROKEN_BELOW, worthy_above=WORTHY_ABOVE)
    return Pooled(seeds=(*sorted(earlier), own), rate=beta_mixture(k, n), verdict=verdict)


def _reports_like(root: Path, report: ScreenReport) -> Iterator[tuple[int, ScreenReport]]:
    same = {k: report.stamp.fields.get(k) for k in ("env", "executor", "ranges", "purpose", "engine", "renderer", "policy")}
    for file in sorted(root.glob("*/screen.json")):
        try:
            stamp = read_json(file)["stamp"]
            if all(stamp.get(k) == v for k, v in same.items()):
                yield int(stamp["seed"]), read_screen(file.parent)
        except (DataError, KeyError, TypeError, ValueError, AttributeError):
            continue  # another version's, or damaged: it is told when it is asked for itself

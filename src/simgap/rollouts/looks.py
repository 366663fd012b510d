"""What was looked at before: seeds that chose a policy may not judge it, and one good report among several is no better than their sum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simgap.errors import DataError
from simgap.provenance import read_json, read_sealed
from simgap.rollouts.engine import RolloutSpec
from simgap.rollouts.screen import BROKEN_BELOW, WORTHY_ABOVE, ScreenReport, read_screen
from simgap.rollouts.spent import spent_seeds
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
            found = read_sealed(file)
            winners = [e["policy"] for e in found["entrants"] if e["name"] == found["winner"]]
            same = (found["env"], found["select"]["seed"], found["ranges"]) == (
                spec.env,
                spec.seed,
                spec.ranges.to_json(),
            )
        except (DataError, KeyError, TypeError, AttributeError):
            continue  # unread_looks names it
        if same and policy in winners:
            return file.parent
    return None


def pooled_reports(root: Path, report: ScreenReport) -> Pooled | None:
    """Return a report together with earlier ones of the same policy, executor, conditions and engine on other fresh seeds; None without any.

    Who adds reports until one pleases has looked several times, so the verdict and the interval are those
    that hold at every look. The verdict for a fixed n, asked again of the pooled counts, was wrong in 3, 6
    and 9 % of runs after 2, 5 and 10 looks, where 2.5 % are promised.

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


def unread_looks(root: Path, spec: RolloutSpec, policy: str) -> tuple[str, ...]:
    """Return a sentence for each earlier look that may be about this policy and cannot be read, so that a bad one does not vanish with its file.

    Of report seeds these are screens that are damaged, and seeds that were spent on this policy and executor
    without a screen that says how it ended; of select seeds races that are damaged. Where screen and record
    of the seeds were both deleted, nothing is left to see.

    Args:
        root: folder of screens and races.
        spec: what was rolled out.
        policy: hash of the policy's card.
    """
    if spec.purpose is Purpose.SELECT:
        return tuple(_unread_races(root))
    asked = {
        "env": spec.env,
        "executor": spec.executor,
        "ranges": spec.ranges.to_json(),
        "purpose": str(Purpose.REPORT),
        "policy": policy,
    }
    told: set[int] = {spec.seed}
    unread: list[str] = []
    for file in sorted(root.glob("*/screen.json")):
        stamp: Any = None
        try:
            stamp = read_json(file)["stamp"]
            if not _is_like(stamp, asked):
                continue
            read_screen(file.parent)
            told.add(int(stamp["seed"]))
        except (DataError, KeyError, TypeError, ValueError, AttributeError) as error:
            unread.append(
                f"{file.parent} may be an earlier report of this policy and cannot be read: {error}"
            )
            if isinstance(stamp, dict) and type(stamp.get("seed")) is int:
                told.add(stamp["seed"])
    for seed in spent_seeds(root, spec, policy):
        if seed not in told:
            unread.append(
                f"--seed {seed} was spent on a report of this policy, and no screen says how it ended; screen"
                f" with --seed {seed} again"
            )
    return tuple(unread)


def _unread_races(root: Path) -> Iterator[str]:
    for file in sorted(root.glob("select-*/selection.json")):
        try:
            found = read_sealed(file)
            if not {"env", "select", "ranges", "winner", "entrants"} <= set(found):
                raise DataError(f"{file} holds no race")
        except DataError as error:
            yield (
                f"{file.parent} may be a race that chose this policy on these seeds, and cannot be read:"
                f" {error}"
            )


def _is_like(stamp: Any, asked: dict[str, Any]) -> bool:
    return all(stamp.get(name) == value for name, value in asked.items())


def _reports_like(root: Path, report: ScreenReport) -> Iterator[tuple[int, ScreenReport]]:
    same = {
        k: report.stamp.fields.get(k)
        for k in ("env", "executor", "ranges", "purpose", "engine", "renderer", "policy")
    }
    for file in sorted(root.glob("*/screen.json")):
        try:
            stamp = read_json(file)["stamp"]
            if _is_like(stamp, same):
                yield int(stamp["seed"]), read_screen(file.parent)
        except (DataError, KeyError, TypeError, ValueError, AttributeError):
            continue  # unread_looks names it

"""From outcomes to counts: successes, failures by mode, voids by reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from simgap.statistics.proportions import Estimate, IntervalMethod, wilson
from simgap.types import Outcome, OutcomeKind


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally:
    """Counts of a set of trials or rollouts; voids stand beside the rate, never inside it."""

    successes: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    """Failure mode -> count, most frequent first."""
    voids: Mapping[str, int] = field(default_factory=dict)
    """Reason -> count, most frequent first."""
    unrecorded: int = 0
    """Of which nobody said how they ended: neither counted nor void."""

    @property
    def n(self) -> int:
        """Trials that count: successes and failures."""
        return self.successes + sum(self.failures.values())

    @property
    def void_count(self) -> int:
        """Trials that prove nothing."""
        return sum(self.voids.values())

    def estimate(self, method: IntervalMethod = wilson, confidence: float = 0.95) -> Estimate:
        """Return the success rate over the trials that count, with its interval."""
        return method(self.successes, self.n, confidence)


def tally(outcomes: Iterable[Outcome]) -> Tally:
    """Count outcomes by kind, mode and reason; equal counts are ordered by name. An empty input gives an empty tally."""
    by_kind: dict[OutcomeKind, Counter[str]] = {kind: Counter() for kind in OutcomeKind}
    unrecorded = 0
    for outcome in outcomes:
        if outcome.is_recorded:
            by_kind[outcome.kind][outcome.detail] += 1
        else:
            unrecorded += 1
    return Tally(
        successes=by_kind[OutcomeKind.SUCCESS].total(),
        failures=_ordered(by_kind[OutcomeKind.FAILURE]),
        voids=_ordered(by_kind[OutcomeKind.VOID]),
        unrecorded=unrecorded,
    )


def _ordered(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

"""A race on a budget: who is shown to be worse stops for good; who trails stops to save trials, and nothing is said about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from simgap.errors import UsageError
from simgap.statistics.counts import check_confidence, check_share, whole
from simgap.statistics.proportions import Estimate, wilson
from simgap.statistics.racing import Race, race
from simgap.statistics.sequential import anytime_difference, ordered_pairs
from simgap.statistics.tally import tally
from simgap.types import Outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetedRace:
    """A finished race."""

    standing: Race
    outcomes: Mapping[str, Mapping[int, Outcome]]
    """Policy -> seed -> outcome, in the order of the seeds."""
    set_aside: tuple[str, ...]
    """Policies that trailed when the budget asked for fewer, in the order in which they stopped. None of them is shown to be worse."""
    winner: str
    """Of those that ran to the end the one with the highest rate, the last named where rates are equal; see :func:`race_on_budget` on voids."""

    @property
    def trials(self) -> int:
        """Trials in all."""
        return sum(map(len, self.outcomes.values()))

    @property
    def selected(self) -> Estimate:
        """The winner's rate on the seeds that chose it; too high."""
        return tally(self.outcomes[self.winner].values()).estimate(wilson)

    @property
    def alike(self) -> tuple[str, ...]:
        """Policies beside the winner that are not shown to be worse than another, those set aside among them."""
        return tuple(n for n in self.standing.going_on if n != self.winner)


def rejects_schedule(policies: int, looks: Sequence[int], share: float = 0.5) -> tuple[int, ...]:
    """Return how many policies may run each look of a race, so that it costs at most a share of running all to the end.

    Successive rejects: when each has run s seeds at most ``c / s`` go on, c as large as the budget allows.
    Among policies of which one is best, that spreads a budget so that the chance of missing it is as small as
    in the best of ways up to a logarithm of their number.

    Everybody runs the first look, whatever it costs. An entry below 2 ends the race: one policy alone has
    nobody to be compared with.

    Source: Audibert, Bubeck and Munos, "Best Arm Identification in Multi-Armed Bandits", COLT 2010; here at
    the looks of a race.

    Args:
        policies: at the start.
        looks: seeds a policy runs in each look.
        share: of ``policies * sum(looks)`` trials; 1 sets nobody aside.

    Raises:
        UsageError: no look, or a share outside (0, 1].
    """
    policies, looks = whole(policies, "policies"), [whole(seeds, "seeds of a look") for seeds in looks]
    if not looks or min(looks) < 1 or policies < 1:
        raise UsageError(
            f"a race of {policies} policies in looks of {list(looks)} seeds: expected at least one of each"
        )
    if not 0.0 < check_share(share, "share") <= 1.0:
        raise UsageError(
            f"a budget of {share:g} times all rollouts: expected a share above 0 and up to 1, such as 0.5"
        )
    before = [sum(looks[:t]) for t in range(1, len(looks))]

    def allowed(c: int) -> tuple[int, ...]:
        return (policies, *(min(policies, c // seeds) for seeds in before))

    def cost(row: Sequence[int]) -> int:
        return sum(count * seeds for count, seeds in zip(row, looks, strict=True) if count > 1)

    # nothing changes in between
    steps = sorted({0, *(count * seeds for seeds in before for count in range(1, policies + 1))})
    affordable = [row for c in steps if cost(row := allowed(c)) <= share * policies * sum(looks)]
    return affordable[-1] if affordable else allowed(0)


def race_on_budget(
    names: Sequence[str],
    looks: Sequence[int],
    run: Callable[[int, Sequence[str]], Mapping[str, Mapping[int, Outcome]]],
    *,
    share: float = 0.5,
    confidence: float = 0.95,
) -> BudgetedRace:
    """Race policies on common seeds, look by look, until one is left or the budget is spent.

    After each look :func:`simgap.statistics.race` drops those that are shown not to be best, then
    :func:`rejects_schedule` sets aside those with the lowest rates if more are left than it allows. The first
    is a statement with a bounded error, which stopping others early does not touch: evidence that gets no
    further seeds stands still. The second is none: it saves trials.

    The winner of equals is the one named last: of checkpoints of one training the one trained longest. A
    policy of which less than half as many trials count as of another that runs ranks behind it whatever its
    rate: what is left of so many voids may be the easy ones.

    Args:
        names: the policies, in an order that decides between equals.
        looks: seeds a policy runs in each look.
        run: called with a look and the policies to run in it; returns policy -> seed -> outcome.
        share: budget, as a share of running all to the end.
        confidence: chance with which a best policy is not called beaten.
    """
    place = {name: i for i, name in enumerate(names)}
    outcomes: dict[str, dict[int, Outcome]] = {name: {} for name in names}
    running, set_aside = list(names), list[str]()
    standing = race(outcomes, confidence)

    def ranked(group: Sequence[str]) -> list[str]:
        counts = {n: tally(outcomes[n].values()) for n in group}
        most = max(c.n for c in counts.values())
        return sorted(
            group,
            key=lambda n: (2 * counts[n].n >= most, counts[n].successes / max(1, counts[n].n), place[n]),
            reverse=True,
        )

    for look, most in enumerate(rejects_schedule(len(names), looks, share)):
        if look and most < 2:
            break
        in_order = ranked(running)
        running, trailing = in_order[:most], in_order[most:]
        set_aside += reversed(trailing)
        for name, found in run(look, sorted(running, key=place.__getitem__)).items():
            outcomes[name] |= found
        standing = race(outcomes, confidence)
        running = [n for n in running if n in standing.going_on] or ranked(running)[:1]
        if len(running) == 1:
            break
    return BudgetedRace(
        standing=standing, outcomes=outcomes, set_aside=tuple(set_aside), winner=ranked(running)[0]
    )


def most_missed(
    outcomes: Mapping[str, Mapping[int, Outcome]], winner: str, confidence: float = 0.95
) -> float | None:
    """Return by how much, at most, the best of several policies is better than the one that was taken; None if a pair has no common seed.

    Upper ends of betting intervals for the difference on common seeds, each at its share of the error. Holds
    however the policy was taken and whenever one looks: for the best policy, each of the K - 1 others that
    might be taken has its own share.

    Args:
        outcomes: policy -> seed -> outcome, those that stopped early as well.
        winner: the policy that was taken.
        confidence: of the statement.
    """
    others = [name for name in outcomes if name != winner]
    check_confidence(confidence)
    level = 1 - 2 * (1 - confidence) / max(1, len(others))  # two-sided; only the upper end is used
    highest = 0.0
    for name in others:
        new, old, _ = ordered_pairs(new=outcomes[name], old=outcomes[winner])
        high = anytime_difference(new, old, level).high
        if high is None:
            return None
        highest = max(highest, high)
    return highest

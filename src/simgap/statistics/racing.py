"""Choosing among policies on common seeds: which to go on with, who beats whom, and what the choice itself adds to the winner's rate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simgap.errors import UsageError
from simgap.statistics.comparisons import Difference, newcombe_difference
from simgap.statistics.counts import Floats, check_confidence, check_counts, count_rows, outcome_rows, whole
from simgap.statistics.evalues import log_e_paired, log_mean
from simgap.statistics.multiplicity import holm, letters
from simgap.statistics.paired import pair_outcomes
from simgap.statistics.proportions import Estimate, wilson
from simgap.statistics.quantities import Quantity
from simgap.statistics.tally import tally
from simgap.types import Outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class Entrant:
    """One policy in a race."""

    name: str
    rate: Estimate
    """Over its own seeds, for the eye: the race is decided on common seeds, and the winner's rate here is too high."""
    voids: int
    log_e_not_best: float
    """ln of the evidence against "no other policy is better"."""
    stays: bool
    """True when it should go on."""
    beaten_by: str
    """The policy that says most against it, when it is out; empty otherwise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PairClaim:
    """One policy against another on their common seeds."""

    better: str
    worse: str
    wins: int
    """Common seeds on which only the better one succeeds."""
    losses: int
    pairs: int
    p_value: float
    """Anytime-valid, one-sided, of this pair alone."""
    adjusted: float
    """After Holm over all ordered pairs of the race."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Race:
    """Where a race stands."""

    entrants: tuple[Entrant, ...]
    """Those that go on first, then by rate."""
    claims: tuple[PairClaim, ...]
    """One for each pair of policies, in the direction of the evidence, strongest first."""
    letters: Mapping[str, str]
    """Policies that share a letter cannot be told apart, all pairs together at the race's confidence."""
    method: str
    confidence: float

    @property
    def going_on(self) -> tuple[str, ...]:
        """Policies to run on the next common seeds; one left means that the race is over."""
        return tuple(e.name for e in self.entrants if e.stays)

    @property
    def winner(self) -> str | None:
        """The only one left, or None."""
        return self.going_on[0] if len(self.going_on) == 1 else None


def race(outcomes: Mapping[str, Mapping[int, Outcome]], confidence: float = 0.95) -> Race:
    """Return which of several policies to go on with, given the outcomes so far on common seeds. Ask as often as you like.

    Successive elimination. For each policy the evidence against "no other is better than this one" is the
    *average*, over the others, of the one-sided paired e-values on common seeds
    (:func:`simgap.statistics.log_e_paired`): an average of e-processes is one, whatever their dependence, and
    it is out at ``1 / (1 - confidence)``. That is never later than Bonferroni over the others, whose largest
    e-value would have to reach K - 1 times as much. A policy that is out gets no more seeds; its e-values
    stand still, which keeps them valid.

    A policy that is best, alone or tied, is dropped at any time with a chance of at most ``1 - confidence``.
    Nothing is promised about how many of the others stay; run the survivors on, or take any of them: none is
    shown to be worse than another.

    Population: rollouts of all policies on the same seeds in the same order; given the past, a policy that is
    not better is not likelier to win a discordant seed. Seeds that only one of two policies has run, or that
    are void for one, do not count for that pair. With no seed, one seed, or all successes and all failures
    everybody stays. One policy alone is the winner and proves nothing.

    Source: successive elimination, Even-Dar, Mannor and Mansour, JMLR 7 (2006) 1079-1105; merging of
    e-values, Vovk and Wang, Annals of Statistics 49 (2021) 1736-1754.

    Args:
        outcomes: policy -> seed -> outcome, of the policies that are out as well.
        confidence: chance with which a best policy is kept.
    """
    check_confidence(confidence)
    names = list(outcomes)
    if not names:
        raise UsageError("a race without policies: expected at least one")
    wins, pairs = _wins(outcomes)
    log_e = log_e_paired(wins, wins.T)  # entry (i, j): evidence that i beats j
    against = _against(log_e)
    out = against >= -math.log(1 - confidence)
    if out.all():
        out[int(np.argmin(against))] = False  # somebody is best: the one least spoken against stays
    entrants = []
    for j, name in enumerate(names):
        counts = tally(outcomes[name].values())
        others = np.delete(np.arange(len(names)), j)
        strongest = names[int(others[np.argmax(log_e[others, j])])] if len(others) else ""
        entrants.append(
            Entrant(
                name=name,
                rate=counts.estimate(wilson, confidence),
                voids=counts.void_count,
                log_e_not_best=float(against[j]),
                stays=not out[j],
                beaten_by=strongest if out[j] else "",
            )
        )
    entrants.sort(key=lambda e: (not e.stays, -(e.rate.point if e.rate.point is not None else -1.0), e.name))
    claims = _claims(names, wins, pairs, log_e)
    shown = letters(
        [e.name for e in entrants], [(c.better, c.worse) for c in claims if c.adjusted <= 1 - confidence]
    )
    return Race(
        entrants=tuple(entrants),
        claims=claims,
        letters=shown,
        method="successive elimination by averaged paired e-values",
        confidence=confidence,
    )


def eliminations(successes: Floats, confidence: float = 0.95) -> Floats:
    """Return after how many seeds each policy of a simulated race would be out; inf: never. For planning and for tests of the error.

    Args:
        successes: ``(R, K, T)`` 0 or 1: races, policies, seeds; every policy runs on until it is out.
        confidence: as in :func:`race`.

    Returns:
        ``(R, K)``. Arms that are out stop collecting, as in a real race.
    """
    check_confidence(confidence)
    successes = outcome_rows(successes, "outcomes")
    if successes.ndim != 3:
        raise UsageError(f"outcomes of shape {successes.shape}: expected 0 and 1 as (races, policies, seeds)")
    races, arms, seeds = successes.shape
    gone = np.full((races, arms), math.inf)
    wins = np.zeros((races, arms, arms))
    for t in range(seeds):
        running = (gone == math.inf).astype(float)
        y = successes[:, :, t]
        wins += (y * running)[:, :, None] * ((1 - y) * running)[:, None, :]
        against = _against(log_e_paired(wins, np.swapaxes(wins, 1, 2)))
        out = (against >= -math.log(1 - confidence)) & (gone == math.inf)
        out &= ~(out.sum(axis=1, keepdims=True) == running.sum(axis=1, keepdims=True))
        gone[out] = t + 1
    return gone


def select_against_report(selected: Estimate, reported: Estimate, confidence: float = 0.95) -> Difference:
    """Return by how much the selected policy did better on the selection seeds than on fresh ones: the winner's curse, measured.

    Population: one policy on two disjoint sets of seeds, the first of which chose it. The interval (Newcombe)
    is for two independent samples; the first is not an unbiased one, and that bias is what the difference
    shows. Only the second may be reported.

    Undefined when a side has no trial.
    """
    return newcombe_difference(selected.successes, selected.n, reported.successes, reported.n, confidence)


def selection_optimism(
    successes: Sequence[int], n: int, *, rng: np.random.Generator, draws: int = 4000, confidence: float = 0.95
) -> Quantity:
    """Estimate by how much the best observed rate of several policies overstates the true rate of the policy it picks.

    Parametric bootstrap of the whole selection: rates are drawn from a Beta that is fitted to the observed
    ones (moments), counts are redrawn, the largest is picked, and its excess over its own rate is averaged.
    Fitting first shrinks the rates together; taking the observed rates for true ones would understate the
    excess, most of all when the policies are equal.

    Population: policies whose rates are alike enough to be draws from one Beta, each on n independent
    rollouts (on common seeds the excess is smaller). The interval is that of a single selection's excess, not
    of its mean; where all rates are near 1 it is too short (for 95 %: .80 with five policies at .95 of 60
    rollouts). Before the fact a reason to use fresh seeds; after the fact no substitute for them.

    Undefined with no policy or n = 0. 0 with a single policy. All 0/n or all n/n gives an excess near 0.

    Args:
        successes: of each policy, each of n.
        n: rollouts a policy.
        rng: generator of the draws.
        draws: bootstrap selections.
        confidence: of the interval.
    """
    k, n = count_rows(successes, "successes"), whole(n, "rollouts of each policy")
    check_confidence(confidence)
    whole(draws, "draws", least=1)
    method, name = f"parametric bootstrap of the selection, {draws} draws", "excess of the selected rate"
    if len(k) == 0 or n == 0:
        return Quantity(
            name=name,
            n=len(k),
            point=None,
            low=None,
            high=None,
            method=method,
            confidence=confidence,
            reason="no policy or no rollout",
        )
    for count in k:
        check_counts(count, n, confidence)
    if len(k) == 1:
        return Quantity(
            name=name,
            n=1,
            point=0.0,
            low=None,
            high=None,
            method=method,
            confidence=confidence,
            reason="one policy: nothing was selected",
        )
    rates = _fitted_rates(k, n, rng, draws)
    seen = rng.binomial(n, rates)
    best = np.argmax(seen + rng.random(seen.shape) * 0.5, axis=1)  # ties at random
    rows = np.arange(draws)
    excess = seen[rows, best] / n - rates[rows, best]
    tails = np.quantile(excess, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Quantity(
        name=name,
        n=len(k),
        point=float(excess.mean()),
        low=float(tails[0]),
        high=float(tails[1]),
        method=method,
        confidence=confidence,
    )


def _fitted_rates(k: Floats, n: int, rng: np.random.Generator, draws: int) -> Floats:
    """Return ``(draws, K)`` rates: each policy's Beta posterior under a Beta prior with the mean and spread of the observed rates."""
    mean = min(max(float(k.mean()) / n, 0.5 / (n + 1)), 1 - 0.5 / (n + 1))
    spread = max(float((k / n).var(ddof=1)) - mean * (1 - mean) / n, 1e-6)  # what sampling does not explain
    total = max(mean * (1 - mean) / spread - 1, 1e-3)
    rates: Floats = rng.beta(mean * total + k, (1 - mean) * total + n - k, size=(draws, len(k)))
    return rates


def _wins(outcomes: Mapping[str, Mapping[int, Outcome]]) -> tuple[Floats, Floats]:
    """Return on how many common seeds policy i alone succeeded against j, ``(K, K)``, and how many pairs count."""
    rows = list(outcomes.values())
    wins, pairs = np.zeros((2, len(rows), len(rows)))
    for i, first in enumerate(rows):
        for j in range(i + 1, len(rows)):
            counts = pair_outcomes(new=first, old=rows[j])
            wins[i, j], wins[j, i] = counts.n10, counts.n01
            pairs[i, j] = pairs[j, i] = counts.n
    return wins, pairs


def _against(log_e: Floats) -> Floats:
    """Return ln of the average over others i of the evidence that i beats j, ``(..., K)``; 0 for one policy alone."""
    arms = log_e.shape[-1]
    if arms == 1:
        return np.zeros(log_e.shape[:-1])
    columns = [log_mean(*(log_e[..., i, j] for i in range(arms) if i != j)) for j in range(arms)]
    return np.stack(columns, axis=-1)


def _claims(names: Sequence[str], wins: Floats, pairs: Floats, log_e: Floats) -> tuple[PairClaim, ...]:
    ordered = [(i, j) for i in range(len(names)) for j in range(len(names)) if i != j]
    p_values = [math.exp(-min(max(float(log_e[i, j]), 0.0), 700.0)) for i, j in ordered]
    claims = [
        PairClaim(
            better=names[i],
            worse=names[j],
            wins=int(wins[i, j]),
            losses=int(wins[j, i]),
            pairs=int(pairs[i, j]),
            p_value=p,
            adjusted=adjusted,
        )
        for (i, j), p, adjusted in zip(ordered, p_values, holm(p_values), strict=True)
        if (wins[i, j], j) > (wins[j, i], i)
    ]
    return tuple(sorted(claims, key=lambda c: c.p_value))

"""Agreement of a simulator with reality over measured rates: every number with its interval, and what noise alone would give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simgap.errors import UsageError
from simgap.statistics.comparisons import ExactTest
from simgap.statistics.correlation import Ties, leave_one_out, mmrv_rows, order_test, pearson_rows, spearman_rows
from simgap.statistics.counts import Floats, check_counts
from simgap.statistics.quantities import Quantity
from simgap.types import Outcome

_UNDEFINED_SHARE = 0.05
"""A statistic that is undefined in more than this share of the draws has no interval."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyPair:
    """One policy measured on both sides."""

    name: str
    real_successes: int
    real_n: int
    sim_successes: int
    sim_n: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """How far a simulator can be trusted to order *these* policies on *this* task; it does not travel to others."""

    policies: int
    pearson: Quantity
    spearman: Quantity
    mmrv: Quantity
    """In rates, real gap as weight, ties by the rule in its method."""
    mmrv_of_a_perfect_simulator: Quantity
    """Mean and interval by noise alone; a measured MMRV inside it is uninformative."""
    bias: Quantity
    """Mean of sim minus real over policies."""
    regret: Quantity
    """Real rate of the really best policy minus that of the policy the simulator would choose."""
    order: ExactTest
    """Permutation test of the order; at best ``1 / K!``."""
    pairs_agreeing: int
    """Pairs of policies ordered alike, ties on either side left out."""
    pairs_reversed: int
    pairs_tied: int
    leave_one_out: tuple[float, float] | None
    """Range of Pearson's r with one policy left out."""


def agreement_of_counts(
    policies: Sequence[PolicyPair], *, rng: np.random.Generator, ties: Ties = "simpler", draws: int = 4000, confidence: float = 0.95
) -> Agreement:
    """Return the agreement of simulated with real success rates, given counts.

    Intervals: rates are drawn from their Beta(k + 1, n - k + 1) posteriors, real and simulated apart, and each statistic is computed of the
    draws. That is the noise of the trials alone: the policies count as fixed. MMRV only grows with noise, so its interval can lie
    above its point; compare it with ``mmrv_of_a_perfect_simulator``, in which both sides are drawn with the real rates.

    Population: policies, each on independent trials; for trials that share start conditions use :func:`agreement_by_condition`.
    With no policy an error; with one or two policies correlations are undefined; a policy without a trial on a side is an error. 0/n or n/n
    everywhere on a side leaves correlations undefined.

    Args:
        policies: counts on both sides.
        rng: generator of the draws.
        ties: rule of :func:`simgap.statistics.mmrv`.
        draws: posterior draws.
        confidence: of the intervals.
    """
    rows = [(*check_counts(p.real_successes, p.real_n, confidence), *check_counts(p.sim_successes, p.sim_n, confidence)) for p in policies]
    counts = np.array(rows, dtype=float).reshape(-1, 4)
    if len(policies) == 0 or counts[:, [1, 3]].min() == 0:
        raise UsageError("a policy without a trial on one side, or no policy: leave it out and say so")
    kr, nr, ks, ns = counts.T
    shape = (draws, len(policies))
    real = rng.beta(kr + 1, nr - kr + 1, size=shape)
    sim = rng.beta(ks + 1, ns - ks + 1, size=shape)
    perfect = (rng.binomial(nr.astype(int), kr / nr, size=shape) / nr, rng.binomial(ns.astype(int), kr / nr, size=shape) / ns)
    return _agreement(kr / nr, ks / ns, real, sim, perfect, ties=ties, confidence=confidence, rng=rng, method=f"Beta posteriors, {draws} draws")


def agreement_by_condition(
    *,
    real: Mapping[str, Mapping[int, Outcome]],
    sim: Mapping[str, Mapping[int, Outcome]],
    rng: np.random.Generator,
    ties: Ties = "simpler",
    draws: int = 2000,
    confidence: float = 0.95,
) -> Agreement:
    """Return the agreement when all policies were tried on the same start conditions, by resampling the conditions.

    A hard condition is hard for every policy, so trials that share one are not independent, and drawing each policy's noise apart
    overstates the noise of differences. Here whole conditions are drawn with replacement, for all policies together, and for both
    sides together where they share condition numbers. The noise of a perfect simulator is drawn the same way, with the real
    outcomes in the place of the simulated ones on a second draw of conditions.

    Population: start conditions drawn from one distribution; policies count as fixed. Percentile intervals: with fewer than about 20
    conditions they are too short. Voids and missing conditions are left out of the rates. A draw in which a policy has no trial left is
    discarded; if that happens often the intervals are undefined.

    Args:
        real: policy -> condition -> outcome.
        sim: the same policies -> condition -> outcome.
        rng: generator of the draws.
        ties: rule of :func:`simgap.statistics.mmrv`.
        draws: bootstrap draws.
        confidence: of the intervals.
    """
    names = list(real)
    if not names or set(names) != set(sim):
        raise UsageError(f"policies {sorted(real)} real, {sorted(sim)} simulated: expected the same, at least one")
    conditions = sorted({c for side in (real, sim) for row in side.values() for c in row})
    r, s = _table(real, names, conditions), _table(sim, names, conditions)
    if np.isnan(_means(r[:, None, :])).any() or np.isnan(_means(s[:, None, :])).any():
        raise UsageError("a policy without a trial that counts on one side: leave it out and say so")
    picks = rng.integers(len(conditions), size=(2, draws, len(conditions)))
    drawn = [_means(r[:, picks[0]]), _means(s[:, picks[0]]), _means(r[:, picks[1]])]
    whole = np.isfinite(np.concatenate(drawn, axis=1)).all(axis=1)
    real_draws, sim_draws, again = (rows[whole] for rows in drawn)
    method = f"bootstrap of {len(conditions)} start conditions, {draws} draws"
    point_real, point_sim = _means(r[:, None, :])[0], _means(s[:, None, :])[0]
    if whole.mean() < 1 - _UNDEFINED_SHARE:
        real_draws, sim_draws, again = (rows[:0] for rows in (real_draws, sim_draws, again))
    return _agreement(point_real, point_sim, real_draws, sim_draws, (real_draws, again), ties=ties, confidence=confidence, rng=rng, method=method)


def _agreement(
    real: Floats, sim: Floats, real_draws: Floats, sim_draws: Floats, perfect: tuple[Floats, Floats], *, ties: Ties, confidence: float,
    rng: np.random.Generator, method: str,
) -> Agreement:  # fmt: skip
    count = len(real)
    enough = count >= 3

    def measured(name: str, statistic: Callable[[Floats, Floats], Floats], *, correlation: bool = False) -> Quantity:
        if correlation and not enough:
            return _quantity(name, np.array(np.nan), np.empty(0), count, method, confidence, f"{count} policies: two points always lie on a line")
        return _quantity(name, statistic(real, sim), statistic(real_draws, sim_draws), count, method, confidence, "all policies are alike on one side")

    def regret(r: Floats, s: Floats) -> Floats:
        chosen = s == s.max(axis=-1, keepdims=True)  # a tie in the simulator is a choice at random
        value: Floats = r.max(axis=-1) - (np.where(chosen, r, 0.0).sum(axis=-1) / chosen.sum(axis=-1))
        return value

    def violation(r: Floats, s: Floats) -> Floats:
        return mmrv_rows(r, s, ties)

    noise = violation(*perfect)
    floor = _quantity("MMRV of a perfect simulator", noise.mean() if len(noise) else np.array(np.nan), noise, count, method, confidence, "no draw")
    order = np.sign(real[:, None] - real[None, :]) * np.sign(sim[:, None] - sim[None, :])
    upper = np.triu_indices(count, 1)
    return Agreement(
        policies=count,
        pearson=measured("Pearson r", pearson_rows, correlation=True),
        spearman=measured("Spearman rho", spearman_rows, correlation=True),
        mmrv=measured(f"MMRV ({ties} ties)", violation),
        mmrv_of_a_perfect_simulator=floor,
        bias=measured("sim minus real", lambda r, s: (s - r).mean(axis=-1)),
        regret=measured("regret of the simulator's choice", regret),
        order=order_test(real=real, sim=sim, rng=rng),
        pairs_agreeing=int((order[upper] > 0).sum()),
        pairs_reversed=int((order[upper] < 0).sum()),
        pairs_tied=int((order[upper] == 0).sum()),
        leave_one_out=leave_one_out(real=real, sim=sim),
    )


def _quantity(name: str, point: Floats, draws: Floats, n: int, method: str, confidence: float, why: str) -> Quantity:
    if not np.isfinite(point):
        return Quantity(name=name, n=n, point=None, low=None, high=None, method=method, confidence=confidence, reason=why)
    defined = draws[np.isfinite(draws)]
    if len(defined) == 0 or len(defined) < (1 - _UNDEFINED_SHARE) * len(draws):
        reason = "undefined in too many of the draws: too few trials"
        return Quantity(name=name, n=n, point=float(point), low=None, high=None, method=method, confidence=confidence, reason=reason)
    low, high = np.quantile(defined, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Quantity(name=name, n=n, point=float(point), low=float(low), high=float(high), method=method, confidence=confidence)


def _table(outcomes: Mapping[str, Mapping[int, Outcome]], names: Sequence[str], conditions: Sequence[int]) -> Floats:
    """Return ``(K, C)`` 1 for success, 0 for failure, nan for void or missing."""
    table = np.full((len(names), len(conditions)), np.nan)
    for i, name in enumerate(names):
        for j, condition in enumerate(conditions):
            outcome = outcomes[name].get(condition)
            if outcome is not None and not outcome.is_void:
                table[i, j] = outcome.is_success
    return table


def _means(drawn: Floats) -> Floats:
    """Return the mean over conditions, ``(K, D, C)`` to ``(D, K)``, nan where nothing counts."""
    counted = np.isfinite(drawn)
    total = np.where(counted, drawn, 0.0).sum(axis=-1)
    number = counted.sum(axis=-1)
    means: Floats = np.divide(total, number, out=np.full(total.shape, np.nan), where=number > 0).T
    return means

"""Agreement of a simulator with reality over measured rates: every number with its interval, and what noise alone would give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simgap.errors import UsageError
from simgap.statistics.anytime import betting_interval
from simgap.statistics.comparisons import ExactTest
from simgap.statistics.compatible import Noise, Side, binomial_noise, compatible_ends, shared_noise
from simgap.statistics.correlation import Ties, leave_one_out, mmrv, mmrv_rows, order_test, pearson, spearman
from simgap.statistics.counts import Floats, check_confidence, check_counts, whole
from simgap.statistics.quantities import Quantity
from simgap.statistics.strata import average_difference, combined_ends
from simgap.types import Outcome

_FLOOR_DRAWS = 4000


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
    """Real rate of the really best policy minus that of the policy which these simulated trials choose."""
    order: ExactTest
    """Permutation test of the order; at best ``1 / K!``."""
    pairs_agreeing: int
    """Pairs of policies ordered alike, ties on either side left out."""
    pairs_reversed: int
    pairs_tied: int
    leave_one_out: tuple[float, float] | None
    """Range of Pearson's r with one policy left out."""


def agreement_of_counts(
    policies: Sequence[PolicyPair],
    *,
    rng: np.random.Generator,
    ties: Ties = "simpler",
    draws: int = 200,
    confidence: float = 0.95,
) -> Agreement:
    """Return the agreement of simulated with real success rates, given counts.

    The policies count as fixed; the noise is that of the trials. Bias: score interval. Pearson, Spearman and
    MMRV: the values of true rates that the measured ones do not contradict
    (:mod:`simgap.statistics.compatible`), each widened to hold its point. Regret: of the choice that these
    simulated trials make, from intervals of all policies against it at their share of the error.

    Each covers at least its level within the error of measuring it, for three to twelve policies of 6 to 75
    trials, from a perfect simulator to a reversed one, with rates up to .99 (``docs/studies/coverage.md``).
    That is conservative: with 20 trials of policies that are close, next to nothing is known about their
    order, and the intervals say so. MMRV only grows with noise, so compare it with
    ``mmrv_of_a_perfect_simulator``, in which both sides are drawn with the measured real rates.

    Population: policies, each on independent trials; for trials that share start conditions use
    :func:`agreement_by_condition`. With no policy an error; with one or two policies correlations are
    undefined; a policy without a trial on a side is an error. 0/n or n/n everywhere on a side leaves
    correlations undefined.

    Args:
        policies: counts on both sides.
        rng: generator of the draws.
        ties: rule of :func:`simgap.statistics.mmrv`.
        draws: measurements drawn of each set of true rates.
        confidence: of the intervals.
    """
    check_confidence(confidence)
    draws = whole(draws, "draws", least=1)
    rows = [
        (
            *check_counts(p.real_successes, p.real_n, confidence),
            *check_counts(p.sim_successes, p.sim_n, confidence),
        )
        for p in policies
    ]
    counts = np.array(rows, dtype=float).reshape(-1, 4)
    if len(policies) == 0 or counts[:, [1, 3]].min() == 0:
        raise UsageError("a policy without a trial on one side, or no policy: leave it out and say so")
    kr, nr, ks, ns = counts.T
    real, sim = Side(kr / nr, nr), Side(ks / ns, ns)
    bias = average_difference(
        [(k, n) for _, _, k, n in rows], [(k, n) for k, n, _, _ in rows], confidence=confidence
    )

    def behind(policy: int, level: float) -> tuple[float, float]:
        return combined_ends([(k, n) for k, n, _, _ in rows], _against_choice(sim.rates, policy), level)

    return _agreement(
        real, sim, noise=binomial_noise(nr, ns), bias=(bias.low, bias.high, bias.method), behind=behind, behind_method="score intervals at their share",
        ties=ties, draws=draws, confidence=confidence, rng=rng,
    )  # fmt: skip


def agreement_by_condition(
    *,
    real: Mapping[str, Mapping[int, Outcome]],
    sim: Mapping[str, Mapping[int, Outcome]],
    rng: np.random.Generator,
    ties: Ties = "simpler",
    draws: int = 200,
    confidence: float = 0.95,
) -> Agreement:
    """Return the agreement when all policies were tried on the same start conditions, by resampling the conditions.

    A hard condition is hard for every policy, so trials that share one are not independent, and drawing each
    policy's noise apart overstates the noise of differences. Here the outcomes' correlation over conditions,
    between policies and between the two sides where they share condition numbers, enters the noise. Bias and
    regret are means over conditions of bounded numbers: betting intervals at fixed n, which cover at least
    their level; where a policy lacks a condition on a side, what is missing counts as fixed. Otherwise as
    :func:`agreement_of_counts`; see ``docs/studies/coverage.md`` for what they cover with 12 and 40
    conditions.

    Population: start conditions drawn from one distribution; policies count as fixed. Voids and missing
    conditions are left out of the rates.

    Args:
        real: policy -> condition -> outcome.
        sim: the same policies -> condition -> outcome.
        rng: generator of the draws.
        ties: rule of :func:`simgap.statistics.mmrv`.
        draws: measurements drawn of each set of true rates.
        confidence: of the intervals.
    """
    check_confidence(confidence)
    draws = whole(draws, "draws", least=1)
    names = list(real)
    if not names or set(names) != set(sim):
        raise UsageError(
            f"policies {sorted(real)} real, {sorted(sim)} simulated: expected the same, at least one"
        )
    conditions = sorted({c for side in (real, sim) for row in side.values() for c in row})
    tables = [_table(side, names, conditions) for side in (real, sim)]
    sides = [Side(_means(table), np.isfinite(table).sum(axis=1).astype(float)) for table in tables]
    if min(side.n.min() for side in sides) == 0:
        raise UsageError("a policy without a trial that counts on one side: leave it out and say so")

    def behind(policy: int, level: float) -> tuple[float, float]:
        return _mean_over_conditions([(tables[0], _against_choice(sides[1].rates, policy))], level)

    even = np.full(len(names), 1.0 / len(names))
    low, high = _mean_over_conditions([(tables[1], even), (tables[0], -even)], confidence)
    return _agreement(
        sides[0], sides[1], noise=shared_noise(_correlation(np.concatenate(tables)), sides[0].n, sides[1].n),
        bias=(low, high, f"betting over {len(conditions)} start conditions"), behind=behind, behind_method=f"betting over {len(conditions)} start conditions",
        ties=ties, draws=draws, confidence=confidence, rng=rng,
    )  # fmt: skip


def _agreement(
    real: Side, sim: Side, *, noise: Noise, bias: tuple[float | None, float | None, str], behind: Callable[[int, float], tuple[float, float]],
    behind_method: str, ties: Ties, draws: int, confidence: float, rng: np.random.Generator,
) -> Agreement:  # fmt: skip
    count = len(real.rates)
    points = {
        "pearson": pearson(real=real.rates, sim=sim.rates),
        "spearman": spearman(real=real.rates, sim=sim.rates),
        "mmrv": mmrv(real=real.rates, sim=sim.rates, ties=ties),
    }
    ends = (
        compatible_ends(real, sim, noise=noise, ties=ties, draws=draws, confidence=confidence, rng=rng)
        if count > 1
        else {}
    )
    why = (
        f"{count} policies: two points always lie on a line"
        if count < 3
        else "all policies are alike on one side"
    )

    def quantity(name: str, key: str) -> Quantity:
        found, method = ends.get(key), f"true rates that the trials do not contradict, {draws} draws of each"
        if points[key] is None or found is None:
            reason = why if points[key] is None else "one policy has no order"
            return Quantity(
                name=name,
                n=count,
                point=points[key],
                low=None,
                high=None,
                method=method,
                confidence=confidence,
                reason=reason,
            )
        return Quantity(
            name=name,
            n=count,
            point=points[key],
            low=found[0],
            high=found[1],
            method=method,
            confidence=confidence,
        )

    order = np.sign(real.rates[:, None] - real.rates[None, :]) * np.sign(
        sim.rates[:, None] - sim.rates[None, :]
    )
    upper = np.triu_indices(count, 1)
    return Agreement(
        policies=count,
        pearson=quantity("Pearson r", "pearson"),
        spearman=quantity("Spearman rho", "spearman"),
        mmrv=quantity(f"MMRV ({ties} ties)", "mmrv"),
        mmrv_of_a_perfect_simulator=_floor(real, sim, noise, ties, draws, confidence, rng),
        bias=Quantity(
            name="sim minus real",
            n=count,
            point=float((sim.rates - real.rates).mean()),
            low=bias[0],
            high=bias[1],
            method=bias[2],
            confidence=confidence,
        ),
        regret=_regret(real, sim, behind, behind_method, confidence),
        order=order_test(real=real.rates, sim=sim.rates, rng=rng),
        pairs_agreeing=int((order[upper] > 0).sum()),
        pairs_reversed=int((order[upper] < 0).sum()),
        pairs_tied=int((order[upper] == 0).sum()),
        leave_one_out=leave_one_out(real=real.rates, sim=sim.rates),
    )


def _floor(
    real: Side, sim: Side, noise: Noise, ties: Ties, draws: int, confidence: float, rng: np.random.Generator
) -> Quantity:
    """Return what MMRV comes to when the simulator's true rates are the measured real ones."""
    measured = noise(real.rates[None, None, :], real.rates[None, None, :], max(draws, _FLOOR_DRAWS), rng)
    values = mmrv_rows(measured[0], measured[1], ties).ravel()
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    name, method = (
        "MMRV of a perfect simulator",
        f"trials of the measured real rates on both sides, {len(values)} draws",
    )
    return Quantity(
        name=name,
        n=len(real.rates),
        point=float(values.mean()),
        low=float(low),
        high=float(high),
        method=method,
        confidence=confidence,
    )


def _regret(
    real: Side, sim: Side, behind: Callable[[int, float], tuple[float, float]], method: str, confidence: float
) -> Quantity:
    """Return how far the simulator's choice is behind the really best policy; of a tie in the simulator one is chosen at random."""
    count, name = len(real.rates), "regret of the simulator's choice"
    chosen = sim.rates == sim.rates.max()
    point = float(real.rates.max() - real.rates[chosen].mean())
    others = [i for i in range(count) if not (chosen[i] and chosen.sum() == 1)]
    if not others:
        reason = "one policy: nothing was chosen"
        return Quantity(
            name=name,
            n=count,
            point=point,
            low=None,
            high=None,
            method=method,
            confidence=confidence,
            reason=reason,
        )
    ends = [behind(i, 1 - (1 - confidence) / len(others)) for i in others]
    low, high = max(0.0, *(low for low, _ in ends)), max(0.0, *(high for _, high in ends))
    return Quantity(
        name=name,
        n=count,
        point=point,
        low=min(low, point),
        high=max(high, point),
        method=method,
        confidence=confidence,
    )


def _against_choice(sim: Floats, policy: int) -> Floats:
    """Return the weights that take the simulator's choice, one of equals at random, from a policy."""
    chosen = np.where(sim == sim.max(), 1.0, 0.0)
    weights: Floats = (np.arange(len(sim)) == policy) - chosen / chosen.sum()
    return weights


def _mean_over_conditions(parts: Sequence[tuple[Floats, Floats]], confidence: float) -> tuple[float, float]:
    """Return the ends of a weighted sum of rates, from tables ``(K, C)`` and weights ``(K,)``, as a mean over conditions of bounded numbers.

    Parts that were run on the same conditions are one mean; otherwise each is a mean of its own at its share
    of the error.
    """
    seen = [np.isfinite(table).any(axis=0) for table, _ in parts]
    if len(parts) > 1 and not all(np.array_equal(seen[0], one) for one in seen):
        level = 1 - (1 - confidence) / len(parts)
        apart = [_mean_over_conditions([part], level) for part in parts]
        return sum(low for low, _ in apart), sum(high for _, high in apart)
    values, least, most = np.zeros(int(seen[0].sum())), 0.0, 0.0
    for (table, weights), rows in zip(parts, seen, strict=True):
        known = np.isfinite(table[:, rows])
        scaled = weights * known.shape[1] / known.sum(axis=1)
        values += (scaled[:, None] * np.where(known, table[:, rows], 0.0)).sum(axis=0)
        least, most = least + float(np.minimum(scaled, 0).sum()), most + float(np.maximum(scaled, 0).sum())
    if most - least < 1e-12:
        return 0.0, 0.0
    interval = betting_interval(np.clip(values, least, most), confidence, bounds=(least, most), fixed_n=True)
    ends = (least if interval.low is None else interval.low, most if interval.high is None else interval.high)
    weights = np.concatenate([w for _, w in parts])
    return max(ends[0], float(np.minimum(weights, 0).sum())), min(
        ends[1], float(np.maximum(weights, 0).sum())
    )


def _correlation(table: Floats) -> Floats:
    """Return the correlation of rows over conditions, 0 where a row does not vary; what is missing stands at its row's mean."""
    known = np.isfinite(table)
    centred = np.where(known, table - np.nanmean(table, axis=1, keepdims=True), 0.0)
    scale = np.sqrt((centred**2).sum(axis=1))
    unit = np.divide(centred, scale[:, None], out=np.zeros(table.shape), where=scale[:, None] > 0)
    matrix: Floats = unit @ unit.T
    np.fill_diagonal(matrix, 1.0)
    return matrix


def _table(
    outcomes: Mapping[str, Mapping[int, Outcome]], names: Sequence[str], conditions: Sequence[int]
) -> Floats:
    """Return ``(K, C)`` 1 for success, 0 for failure, nan for void or missing."""
    table = np.full((len(names), len(conditions)), np.nan)
    for i, name in enumerate(names):
        for j, condition in enumerate(conditions):
            outcome = outcomes[name].get(condition)
            if outcome is not None and outcome.counts:
                table[i, j] = outcome.is_success
    return table


def _means(table: Floats) -> Floats:
    """Return the mean over conditions, ``(K, C)`` to ``(K,)``, nan where nothing counts."""
    number = np.isfinite(table).sum(axis=-1)
    means: Floats = np.divide(
        np.nansum(table, axis=-1), number, out=np.full(number.shape, np.nan), where=number > 0
    )
    return means

"""Does a simulator order policies as reality does? Pearson, Spearman and MMRV of known rates, with their traps written down.

Arguments are keywords only (``real=``, ``sim=``): MMRV is not symmetric, and published values exist that are
its mirror image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations
from typing import Literal, TypeAlias

import numpy as np
from scipy.stats import rankdata

from simgap.errors import UsageError
from simgap.statistics.comparisons import ExactTest
from simgap.statistics.counts import Floats, number_rows, whole

Ties: TypeAlias = Literal["simpler", "less", "strict"]
"""``simpler``: "better" is ``>``, as in SIMPLER's released code; ``less``: "worse" is ``<``; ``strict``: only reversed orders count."""
Weight: TypeAlias = Literal["real", "sim"]
"""Which side's gap is counted: ``real`` by definition; ``sim`` is what the released code computes when its arguments are swapped."""

_ENUMERATED = 8
"""Up to this many policies all orders are tried (8! = 40,320)."""


def mmrv(
    *,
    real: Sequence[float] | Floats,
    sim: Sequence[float] | Floats,
    ties: Ties = "simpler",
    weight: Weight = "real",
) -> float | None:
    """Return the mean maximum rank violation: how much real performance a pair ordered wrongly by the simulator is apart.

    ``violation(i, j)`` is ``|real_i - real_j|`` if the two disagree on the order of i and j, else 0; MMRV is
    the mean over i of the largest over j. In the unit of ``real``, from 0 (no violation) to the range of
    ``real``.

    Two definitions are in print. SIMPLER's weighs a violation by the **real** gap (``weight="real"``). With
    the arguments of its code swapped it is the **simulated** gap (``weight="sim"``), and some published
    values only come out that way. Say which.

    Ties. ``simpler`` is the released code: "i is better than j" means ``>`` on either side, so a tie in the
    simulator that is none in reality counts for one of the two policies. ``less`` is the same with ``<``, as
    the equation is printed elsewhere: it counts for the other one. ``strict`` counts only reversed orders and
    never punishes a simulator that says nothing: one that ties all policies scores 0, a perfect score.
    Without ties both agree. Say which, and count the ties.

    Population: policies with known rates. Of measured rates it is biased upwards: a perfect simulator scores
    above 0 by noise alone, see :func:`simgap.statistics.agreement_of_counts`. None without a policy; 0 for a
    single one.

    Source: Li et al., "Evaluating Real-World Robot Manipulation Policies in Simulation" (SIMPLER,
    arXiv:2405.05941).

    Args:
        real: ``(K,)`` performance in reality.
        sim: ``(K,)`` performance of the same policies in simulation, in any unit: only its order is used.
        ties: the rule for equal values.
        weight: the side whose gap is counted.
    """
    r, s = _rows(real, sim)
    if weight not in ("real", "sim"):
        raise UsageError(f"unknown weight {weight!r}; known: real, sim")
    if r.shape[-1] == 0:
        return None
    return float(mmrv_rows(r, s, ties) if weight == "real" else mmrv_rows(s, r, ties))


def mmrv_rows(real: Floats, sim: Floats, ties: Ties = "simpler") -> Floats:
    """Return :func:`mmrv` of many draws at once, ``(..., K)`` to ``(...)``."""
    gap = real[..., :, None] - real[..., None, :]
    shown = sim[..., :, None] - sim[..., None, :]
    if ties == "strict":
        wrong = gap * shown < 0
    elif ties == "simpler":
        wrong = (gap > 0) != (shown > 0)
    elif ties == "less":
        wrong = (gap < 0) != (shown < 0)
    else:
        raise UsageError(f"unknown rule for ties {ties!r}; known: simpler, less, strict")
    value: Floats = np.where(wrong, np.abs(gap), 0.0).max(axis=-1).mean(axis=-1)
    return value


def pearson(*, real: Sequence[float] | Floats, sim: Sequence[float] | Floats) -> float | None:
    """Return Pearson's r between real and simulated rates over policies, or None where it says nothing.

    Population: policies. Over tasks or perturbations of *one* policy r says nothing about ranking policies;
    over checkpoints of one run it mostly says that more training is better. One policy apart from the rest
    can carry it: look at :func:`leave_one_out`.

    None with fewer than three policies (two points always lie on a line) and when a side is constant (0/n
    everywhere, n/n everywhere); published code returns 1 there.
    """
    r, s = _rows(real, sim)
    if len(r) < 3:
        return None
    value = float(pearson_rows(r, s))
    return None if math.isnan(value) else value


def pearson_rows(real: Floats, sim: Floats) -> Floats:
    """Return Pearson's r of many draws at once, ``(..., K)`` to ``(...)``; nan where a side is constant."""
    r, s = real - real.mean(axis=-1, keepdims=True), sim - sim.mean(axis=-1, keepdims=True)
    scale = np.sqrt((r**2).sum(axis=-1) * (s**2).sum(axis=-1))
    constant = (np.ptp(real, axis=-1) == 0) | (np.ptp(sim, axis=-1) == 0)
    value: Floats = np.clip(
        np.divide(
            (r * s).sum(axis=-1), scale, out=np.full(scale.shape, np.nan), where=~constant & (scale > 0)
        ),
        -1.0,
        1.0,
    )
    return value


def spearman(*, real: Sequence[float] | Floats, sim: Sequence[float] | Floats) -> float | None:
    """Return Spearman's rho: Pearson's r of the ranks, ties sharing their mean rank. None as :func:`pearson`."""
    r, s = _rows(real, sim)
    if len(r) < 3:
        return None
    value = float(spearman_rows(r, s))
    return None if math.isnan(value) else value


def spearman_rows(real: Floats, sim: Floats) -> Floats:
    """Return Spearman's rho of many draws at once, ``(..., K)`` to ``(...)``; nan where a side is constant."""
    return pearson_rows(rankdata(real, axis=-1), rankdata(sim, axis=-1))


def leave_one_out(
    *, real: Sequence[float] | Floats, sim: Sequence[float] | Floats
) -> tuple[float, float] | None:
    """Return the least and greatest Pearson r with one policy left out: a wide range means that one policy carries it.

    None with fewer than four policies, or where leaving one out makes a side constant.
    """
    r, s = _rows(real, sim)
    if len(r) < 4:
        return None
    values = [pearson(real=np.delete(r, i), sim=np.delete(s, i)) for i in range(len(r))]
    defined = [value for value in values if value is not None]
    return (min(defined), max(defined)) if len(defined) == len(values) else None


def order_test(
    *,
    real: Sequence[float] | Floats,
    sim: Sequence[float] | Floats,
    rng: np.random.Generator | None = None,
    draws: int = 20_000,
) -> ExactTest:
    """Return the one-sided permutation p that real and simulated rates are unrelated, by Spearman's rho.

    Population: policies, exchangeable under the null. Exact by enumeration up to 8 policies. The smallest
    possible p is ``1 / K!`` (K = 3: .17, K = 4: .042, K = 5: .0083), so three policies can never reach 5 %,
    whatever r they give.

    Undefined with fewer than two policies or a constant side.

    Args:
        real: ``(K,)``.
        sim: ``(K,)``.
        rng: needed above 8 policies, where orders are drawn.
        draws: orders drawn above 8 policies.
    """
    r, s = _rows(real, sim)
    count, method = len(r), "permutation of Spearman's rho"
    if count < 2 or np.ptp(r) == 0 or np.ptp(s) == 0:
        return ExactTest(
            p_value=None,
            method=method,
            reason="fewer than two policies, or all alike on one side",
            n=count,
            alternative="greater",
        )
    ranks_r, ranks_s = rankdata(r) - (count + 1) / 2, rankdata(s) - (count + 1) / 2
    seen = float(ranks_r @ ranks_s) - 1e-9
    if count <= _ENUMERATED:
        orders = np.array(list(permutations(range(count))))
        p_value = float(np.mean(ranks_s[orders] @ ranks_r >= seen))
        return ExactTest(p_value=p_value, method=f"{method}, all orders", n=count, alternative="greater")
    whole(draws, "draws", least=1)
    if rng is None:
        raise UsageError(f"{count} policies have too many orders to enumerate: pass rng= to draw some")
    hits = int(np.sum(rng.permuted(np.tile(ranks_s, (draws, 1)), axis=1) @ ranks_r >= seen))
    return ExactTest(
        p_value=(hits + 1) / (draws + 1), method=f"{method}, {draws} orders", n=count, alternative="greater"
    )


def _rows(real: Sequence[float] | Floats, sim: Sequence[float] | Floats) -> tuple[Floats, Floats]:
    r, s = number_rows(real, "real rates"), number_rows(sim, "simulated rates")
    if r.shape != s.shape or r.ndim != 1:
        raise UsageError(
            f"{r.shape} real against {s.shape} simulated values: expected one of each for every policy"
        )
    if not (np.all(np.isfinite(r)) and np.all(np.isfinite(s))):
        raise UsageError(
            "a value is not a finite number: leave out policies without a rate, on both sides, and say so"
        )
    return r, s

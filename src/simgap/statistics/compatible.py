"""Which agreements of a simulator with reality do measured rates not contradict? Intervals by trying truths, not by resampling the data.

A correlation of measured rates is lower than that of the true ones, and a rank violation higher: noise only
spoils an order. Resampling the data adds the noise a second time, so that near a perfect simulator such
intervals rarely hold the truth. Here truths are tried instead: for each of a range of true rates, from the
simulator's order being right to its being reversed, trials are drawn as often as they were run, and the truth
stays if the measured agreement lies in neither tail of what it gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from simgap.statistics.correlation import Ties, mmrv_rows, pearson_rows
from simgap.statistics.counts import Floats

_POSTERIORS = 3
"""Pairs of true rates that are drawn at random beside those made from the measured ones."""
_ANGLES, _FINE = 17, 24
"""Truths from the right to the reversed order, and as many more about the measured correlation."""
_EDGE = (0.002, 0.998)
_LEAST_SPREAD = 0.3
"""Least spread of true rates over policies, in standard errors of one rate."""
_ROUNDING = 1e-9


class Noise(Protocol):
    """Draws what would be measured, with the number of trials that were run."""

    def __call__(
        self, real: Floats, sim: Floats, draws: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Return measured rates of true ones, real ``(B, 1, K)`` and sim ``(B, T, K)``, each with a leading axis of draws."""
        ...


class Side(NamedTuple):
    """One side's measured rates and from how many trials each."""

    rates: Floats
    n: Floats


def binomial_noise(n_real: Floats, n_sim: Floats) -> Noise:
    """Return the noise of independent trials."""

    def noise(real: Floats, sim: Floats, draws: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        k_real = rng.binomial(n_real.astype(int), real, size=(draws, *real.shape))
        return k_real / n_real, rng.binomial(n_sim.astype(int), sim, size=(draws, *sim.shape)) / n_sim

    return noise


def shared_noise(correlation: Floats, n_real: Floats, n_sim: Floats) -> Noise:
    """Return the noise of trials on common start conditions: normal counts with this correlation, ``(2 K, 2 K)``, rounded to whole ones."""
    values, vectors = np.linalg.eigh(correlation)
    root = vectors * np.sqrt(np.maximum(values, 0.0))

    def noise(real: Floats, sim: Floats, draws: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        z = rng.standard_normal((draws, len(root))) @ root.T
        measured = []
        for rates, n, part in ((real, n_real, z[:, : len(n_real)]), (sim, n_sim, z[:, len(n_real) :])):
            counts = n * rates + np.sqrt(n * rates * (1 - rates)) * part[:, None, None, :]
            measured.append(np.clip(np.round(counts), 0, n) / n)
        return measured[0], measured[1]

    return noise


def compatible_ends(
    real: Side,
    sim: Side,
    *,
    noise: Noise,
    ties: Ties,
    draws: int,
    confidence: float,
    rng: np.random.Generator,
) -> Mapping[str, tuple[float, float] | None]:
    """Return the ends of Pearson's r, Spearman's rho and MMRV over the truths that the measured rates do not contradict.

    True rates of the simulator run, for each of several true rates in reality, from their linear image (r =
    1) over the measured pattern to its mirror image (r = -1). None where the statistic is undefined on the
    measured rates.

    Args:
        real: measured in reality.
        sim: measured in simulation, the same policies in the same order.
        noise: what measuring does to true rates.
        ties: rule of MMRV.
        draws: measurements drawn of each truth.
        confidence: two-sided level.
        rng: generator of the draws.
    """
    statistics: dict[str, Callable[[Floats, Floats], Floats]] = {
        "pearson": pearson_rows,
        "spearman": lambda r, s: pearson_rows(_ranks(r), _ranks(s)),
        "mmrv": lambda r, s: mmrv_rows(r, s, ties),
    }
    families = _families(real, sim, noise, rng)
    p = np.stack([family.real for family in families])[:, None, :]
    q = np.stack([family.image(family.angles) for family in families])
    measured_real, measured_sim = noise(p, q, draws, rng)
    tail = (1 - confidence) / 2
    ends: dict[str, tuple[float, float] | None] = {}
    for name, statistic in statistics.items():
        seen = float(statistic(real.rates, sim.rates))
        if not np.isfinite(seen):
            ends[name] = None
            continue
        drawn = statistic(measured_real, measured_sim)
        unknown = ~np.isfinite(drawn)
        above = (1 + ((drawn >= seen - _ROUNDING) | unknown).sum(axis=0)) / (draws + 1)
        below = (1 + ((drawn <= seen + _ROUNDING) | unknown).sum(axis=0)) / (draws + 1)
        values = [seen]
        for row, family in enumerate(families):
            angles = _kept_angles(family.angles, above[row], below[row], tail)
            true = statistic(
                np.broadcast_to(family.real, (len(angles), len(family.real))), family.image(angles)
            )
            values += true[np.isfinite(true)].tolist() + (
                np.cos(angles).tolist() if name == "pearson" else []
            )
        ends[name] = (min(values), max(values))
    return ends


def _kept_angles(angles: Floats, above: Floats, below: Floats, tail: float) -> Floats:
    """Return the angles that are not contradicted, and where between two of the grid that ends (chances fall by a factor, not by an amount).

    Where none is, but the measured value changes from one tail to the other, the place in between is.
    """
    chance = np.minimum(above, below)
    kept = chance >= tail
    changes = np.flatnonzero(kept[1:] != kept[:-1])
    inner, outer = (
        np.where(kept[changes], changes, changes + 1),
        np.where(kept[changes], changes + 1, changes),
    )
    share = np.log(chance[inner] / tail) / np.log(chance[inner] / chance[outer])
    ends = angles[inner] + share * (angles[outer] - angles[inner])
    lean = above - below
    crossings = np.flatnonzero((lean[1:] * lean[:-1] < 0) & ~kept.any())
    found: Floats = np.concatenate([angles[kept], ends, (angles[crossings] + angles[crossings + 1]) / 2])
    return found


class _Family(NamedTuple):
    """Truths that differ in one number: the angle between the simulator's pattern and reality's."""

    real: Floats
    """``(K,)`` true rates."""
    image: Callable[[Floats], Floats]
    """Angles ``(T,)`` to simulated rates ``(T, K)``."""
    angles: Floats


def _families(real: Side, sim: Side, noise: Noise, rng: np.random.Generator) -> list[_Family]:
    families = []
    for p, q, pattern in _bases(real, sim, rng):
        right, spread_p = _standard(p, rng), max(float(p.std()), _LEAST_SPREAD * _error(real))
        spread_q = max(float(q.std()), _LEAST_SPREAD * _error(sim))
        wrong = _standard(pattern, rng, avoiding=right)
        true = np.clip(p.mean() + spread_p * right, *_EDGE)
        image = partial(_image, mean=float(q.mean()), spread=spread_q, right=right, wrong=wrong)
        families.append(_Family(true, image, _angles(true, image, real, sim, noise, rng)))
    return families


def _image(angles: Floats, *, mean: float, spread: float, right: Floats, wrong: Floats) -> Floats:
    """Return simulated rates, ``(T,)`` to ``(T, K)``, that correlate with ``right`` by the cosine of an angle."""
    turned = np.cos(angles)[:, None] * right + np.sin(angles)[:, None] * wrong
    rates: Floats = np.clip(mean + spread * turned, *_EDGE)
    return rates


def _angles(
    true: Floats,
    image: Callable[[Floats], Floats],
    real: Side,
    sim: Side,
    noise: Noise,
    rng: np.random.Generator,
) -> Floats:
    """Return angles from the right to the reversed order, denser about those that give the measured correlation."""
    coarse = np.linspace(0.0, np.pi, _ANGLES)
    seen = float(pearson_rows(real.rates, sim.rates))
    measured_real, measured_sim = noise(true[None, None, :], image(coarse)[None], 50, rng)
    drawn = pearson_rows(measured_real, measured_sim)[:, 0]
    if not np.isfinite(seen) or not np.isfinite(drawn).any(axis=0).all():
        return np.linspace(0.0, np.pi, _ANGLES + _FINE)
    middle, spread = np.nanmedian(drawn, axis=0), np.nanstd(drawn, axis=0)
    nearest = int(np.argmin(np.abs(middle - seen)))
    step = coarse[1] - coarse[0]
    slope = np.abs(np.gradient(middle, step))
    reach = step + 3 * float(spread[nearest]) / max(float(slope[nearest]), 0.2)
    fine = np.linspace(max(coarse[nearest] - reach, 0.0), min(coarse[nearest] + reach, np.pi), _FINE)
    return np.sort(np.concatenate([coarse, fine]))


def _bases(real: Side, sim: Side, rng: np.random.Generator) -> list[tuple[Floats, Floats, Floats]]:
    """Return pairs of true rates that fix spread and level, and the pattern in which the simulator errs."""
    count = len(real.rates)
    (p, q), raw = (_shrunk(real), _shrunk(sim)), (_smooth(real), _smooth(sim))
    stretch = 1 + 2 * _error(real) / (max(float(p.std()), _error(real)) * np.sqrt(count))
    wide, narrow = (p.mean() + (p - p.mean()) * factor for factor in (stretch, 1 / stretch))
    bases = [
        (p, q, sim.rates),
        (raw[0], raw[1], rng.normal(size=count)),
        (wide, q, sim.rates),
        (narrow, q, rng.normal(size=count)),
    ]
    for _ in range(_POSTERIORS):
        drawn = [rng.beta(s.rates * s.n + 0.5, (1 - s.rates) * s.n + 0.5) for s in (real, sim)]
        bases.append((drawn[0], drawn[1], drawn[1]))
    return bases


def _smooth(side: Side) -> Floats:
    rates: Floats = (side.rates * side.n + 0.5) / (side.n + 1)
    return rates


def _error(side: Side) -> float:
    """Return the standard error of one rate, over policies."""
    rates = _smooth(side)
    return float(np.sqrt((rates * (1 - rates) / side.n).mean()))


def _shrunk(side: Side) -> Floats:
    """Return rates drawn together until their spread is what is left of the measured one without the noise."""
    centre, spread = side.rates.mean(), float(side.rates.var(ddof=1)) if len(side.rates) > 1 else 0.0
    share = np.sqrt(max(1 - _error(side) ** 2 / spread, 0.0)) if spread > 0 else 0.0
    rates: Floats = centre + share * (side.rates - centre)
    return rates


def _standard(pattern: Floats, rng: np.random.Generator, *, avoiding: Floats | None = None) -> Floats:
    """Return a pattern with mean 0 and spread 1, a random one where it has none."""
    for _ in range(8):
        centred = pattern - pattern.mean()
        if avoiding is not None:
            centred = centred - avoiding * float(centred @ avoiding) / len(avoiding)
        spread = float(np.sqrt((centred**2).mean()))
        if spread > 1e-9:
            scaled: Floats = centred / spread
            return scaled
        pattern = rng.normal(size=len(pattern))
    return np.zeros(len(pattern))


def _ranks(rates: Floats) -> Floats:
    """Return mean ranks along the last axis; faster than sorting for a few policies."""
    ranks: Floats = np.zeros(rates.shape)
    for j in range(rates.shape[-1]):
        other = rates[..., j : j + 1]
        ranks += (other < rates) + 0.5 * (other == rates)
    return ranks

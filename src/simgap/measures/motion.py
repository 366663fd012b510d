"""How smoothly something moved: measures of one trace, each with its reference behaviour.

None of them knows whether the task was done, and each is blind to something: SPARC to jitter above its
cut-off, jerk to where the jitter is, a freeze share to a detour. They are read together, beside the teacher's
(:mod:`simgap.measures.smoothness`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simgap.errors import UsageError

Array = NDArray[np.float64]
PAD_LEVEL, CUT_OFF_HZ, AMPLITUDE_SHARE = 4, 10.0, 0.05
"""Of SPARC, as published."""


def speed(position: Array, rate_hz: float) -> Array:
    """Return the speed between samples, ``(T - 1,)`` a second.

    Args:
        position: ``(T, D)`` in units that are comparable across dimensions.
        rate_hz: samples a second.
    """
    if position.ndim != 2 or not np.all(np.isfinite(position)) or rate_hz <= 0:
        raise UsageError(
            f"positions of shape {position.shape} at {rate_hz} Hz: expected finite rows, one a sample, and a"
            " rate above 0"
        )
    value: Array = np.linalg.norm(np.diff(position, axis=0), axis=1) * rate_hz
    return value


def freeze_share(speeds: Array, still: float) -> float | None:
    """Return the share of samples slower than ``still``; None without a sample."""
    return float((speeds < still).mean()) if len(speeds) else None


def longest_freeze_s(speeds: Array, still: float, rate_hz: float) -> float | None:
    """Return the longest stretch slower than ``still``, s; None without a sample."""
    if len(speeds) == 0:
        return None
    edges = np.diff(np.concatenate(([0], (speeds < still).astype(np.int64), [0])))
    lengths = np.flatnonzero(edges == -1) - np.flatnonzero(edges == 1)
    return float(lengths.max(initial=0)) / rate_hz


def sparc(speeds: Array, rate_hz: float) -> float | None:
    """Return the spectral arc length of a speed profile: about -1.4 for one minimum-jerk reach, lower the less smooth.

    Unchanged by amplitude, nearly unchanged by duration. Blind to jitter above 10 Hz and to white jitter at
    high sampling rates. None for fewer than four samples or no motion.

    Source: Balasubramanian, Melendez-Calderon, Roby-Brami and Burdet, J. NeuroEng. Rehabil. 12 (2015) 112.
    """
    if len(speeds) < 4 or speeds.max() <= 0:
        return None
    size = 2 ** (int(np.ceil(np.log2(len(speeds)))) + PAD_LEVEL)
    frequency = np.fft.rfftfreq(size, 1 / rate_hz)
    spectrum = np.abs(np.fft.rfft(speeds, size))
    spectrum = spectrum / spectrum.max()
    within = frequency <= CUT_OFF_HZ
    frequency, spectrum = frequency[within], spectrum[within]
    loud = np.flatnonzero(spectrum >= AMPLITUDE_SHARE)
    frequency, spectrum = frequency[loud[0] : loud[-1] + 1], spectrum[loud[0] : loud[-1] + 1]
    if len(frequency) < 2:
        return None
    along = np.diff(frequency) / (frequency[-1] - frequency[0])
    return -float(np.sqrt(along**2 + np.diff(spectrum) ** 2).sum())


def log_dimensionless_jerk(speeds: Array, rate_hz: float) -> float | None:
    """Return ``-ln(T^3 / v_peak^2 * integral of (d2v/dt2)^2)``: -5.32 for a minimum-jerk reach, lower the less smooth.

    Unchanged by amplitude and by playing the same samples faster or slower. None for fewer than four samples,
    no motion, or a constant speed, whose jerk is 0. For minimum jerk over T and distance D the integral is
    ``720 D^2 / T^5`` and the peak ``1.875 D / T``: ln 204.8.

    Source: Balasubramanian et al. 2015; Hogan and Sternad, J. Mot. Behav. 41 (2009) 529-534.
    """
    if len(speeds) < 4 or speeds.max() <= 0:
        return None
    jerk = np.diff(speeds, 2) * rate_hz**2
    total = float((jerk**2).sum()) / rate_hz
    # Below rounding of the speeds there is nothing but noise of the arithmetic.
    if total <= 1e-20 * float(speeds.max()) ** 2 * rate_hz**3 * len(speeds):
        return None
    return -float(np.log((len(speeds) / rate_hz) ** 3 / float(speeds.max()) ** 2 * total))


def path_ratio(position: Array) -> float | None:
    """Return the length of the way over the distance between its ends, at least 1; None where it ends where it began."""
    gap = float(np.linalg.norm(position[-1] - position[0])) if len(position) else 0.0
    length = float(np.linalg.norm(np.diff(position, axis=0), axis=1).sum())
    return length / gap if gap > 1e-9 * max(length, 1e-300) and length > 0 else None


def seams(age: Array) -> NDArray[np.bool_]:
    """Return at which steps an action rests on another observation than the one before, ``(T,)``; the first step is none."""
    source = np.arange(len(age)) - age
    return np.concatenate(([False], np.abs(np.diff(source)) > 1e-6))[: len(age)]


def seam_jump(action: Array, at: NDArray[np.bool_]) -> float | None:
    """Return how much larger the step between actions is where chunks meet than within them: ratio of the medians, 1 without a jump.

    None with fewer than three steps of either kind (a chunk every step, an ensemble, one long chunk), or
    where actions rest within chunks.

    Args:
        action: ``(T, A)`` what was sent, in comparable units.
        at: ``(T,)`` from :func:`seams`.
    """
    steps, here = np.linalg.norm(np.diff(action, axis=0), axis=1), at[1:]
    if here.sum() < 3 or (~here).sum() < 3:
        return None
    within = float(np.median(steps[~here]))
    return float(np.median(steps[here])) / within if within > 0 else None


def disagreement_by_age(chunks: Array, obs_steps: NDArray[np.int64], scale: Array) -> Array:
    """Return how far predictions of the same step drift from the newest one as they age, ``(H,)``; 0 at age 0, NaN where no pair exists.

    Args:
        chunks: ``(N, H, A)`` predictions.
        obs_steps: ``(N,)`` rising steps of the observations behind them.
        scale: ``(A,)`` what counts as one, for example the spread of the teacher's actions.
    """
    horizon = chunks.shape[1]
    by_step = {int(s): i for i, s in enumerate(obs_steps)}
    found: list[list[float]] = [[] for _ in range(horizon)]
    for i, s in enumerate(obs_steps.tolist()):
        for age in range(horizon):
            j = by_step.get(s + age)
            if j is not None:
                found[age].append(float(np.sqrt(np.mean(((chunks[i, age] - chunks[j, 0]) / scale) ** 2))))
    return np.array([np.mean(f) if f else np.nan for f in found])

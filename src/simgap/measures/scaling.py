"""Does scaling do what training assumed: inert keys, transforms that are no inverse, the wrong dataset's statistics, wrapped angles.

Everything here asks a transform for numbers; nothing trusts its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap import causes
from simgap.findings import CheckResult, Family, Verdict

Array = NDArray[Any]
Transform = Callable[[Array], Array]
"""Maps ``(N, D)`` values to ``(N, D)``."""

NEEDS: Mapping[str, tuple[str, ...]] = {
    "MEAN_STD": ("mean", "std"),
    "MIN_MAX": ("min", "max"),
    "QUANTILES": ("q01", "q99"),
    "QUANTILE10": ("q10", "q90"),
    "IDENTITY": (),
}
"""Scaling mode of a LeRobot policy -> statistics it reads."""

_AGREE = 1e-3
"""Largest difference, in normalised units, of two transforms that are the same."""
_SLOPE = 0.05
"""Largest share by which a slope of 1 may be off."""


def inert_features(
    features: Mapping[str, str | None], modes: Mapping[str, str], stored: Mapping[str, set[str]]
) -> dict[str, str]:
    """Return the features a scaler silently passes through, with what is missing.

    Args:
        features: feature -> type (``STATE``, ``ACTION``, ``VISUAL``).
        modes: type -> scaling mode.
        stored: feature -> names of stored statistics, keys exactly as in the file.
    """
    inert = {}
    for name, kind in features.items():
        needed = NEEDS.get(str(modes.get(str(kind), "IDENTITY")), ())
        missing = [n for n in needed if n not in stored.get(name, set())]
        if missing:
            inert[name] = (
                f"no {' and '.join(missing)} stored" if name in stored else "no statistics under this name"
            )
    return inert


def _result(verdict: Verdict, sentence: str, **fields: Any) -> CheckResult:
    cause = causes.DATA if verdict is Verdict.BROKEN else causes.NONE
    return CheckResult(
        family=Family.REPLAY, name="normalisation", verdict=verdict, sentence=sentence, cause=cause, **fields
    )


def check_inert(transform: Transform, names: Sequence[str], probe: Array) -> CheckResult:
    """Ask a scaler for values far from 0; what comes back unchanged was not scaled.

    Args:
        transform: the scaler.
        names: dimensions.
        probe: ``(N, D)`` values well outside [-1, 1] in every dimension that is meant to be scaled.
    """
    out = np.asarray(transform(probe), dtype=np.float64)
    same = [n for k, n in enumerate(names) if np.array_equal(out[:, k], probe[:, k])]
    numbers = {"unchanged": same}
    if same:
        return _result(
            Verdict.BROKEN,
            f"Normalisation is inert for {', '.join(same)}: values come back as they went in.",
            n=len(probe),
            numbers=numbers,
        )
    return _result(Verdict.OK, "Normalisation changes every dimension.", n=len(probe), numbers=numbers)


def check_same_scaling(train: Transform, run: Transform, names: Sequence[str], probe: Array) -> CheckResult:
    """Compare the scaling used in training with the one at run time, value by value; anything not finite is broken.

    Args:
        train: normalisation as the network was trained with.
        run: normalisation at run time.
        names: dimensions.
        probe: ``(N, D)`` values, constant dimensions at their constant.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        difference = np.abs(
            np.asarray(train(probe), dtype=np.float64) - np.asarray(run(probe), dtype=np.float64)
        ).max(axis=0)
    bad = {n: float(d) for n, d in zip(names, difference, strict=True) if not d <= _AGREE}
    broken = [n for n, d in bad.items() if not np.isfinite(d)]
    numbers = {"difference": {n: d if np.isfinite(d) else None for n, d in bad.items()}, "not_finite": broken}
    if bad:
        worst = ", ".join(f"{n} ({'NaN' if n in broken else f'{d:.3g}'})" for n, d in bad.items())
        text = f"Training and run time scale differently in {worst}."
        return _result(
            Verdict.BROKEN,
            text + (" Never send these to a robot." if broken else ""),
            numbers=numbers,
            n=len(probe),
        )
    return _result(
        Verdict.OK,
        f"Training and run time scale alike to {difference.max():.1g}.",
        numbers=numbers,
        n=len(probe),
    )


def check_round_trip(forward: Transform, back: Transform, names: Sequence[str], probe: Array) -> CheckResult:
    """Scale and scale back: what does not return has no inverse, as a chunk scaled by its own extremes has none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.abs(np.asarray(back(forward(probe)), dtype=np.float64) - probe).max(axis=0)
    size = np.maximum(1.0, np.abs(probe).max(axis=0))
    bad = {n: float(e) for n, e, s in zip(names, error, size, strict=True) if not e <= _AGREE * s}
    numbers = {"error": {n: e if np.isfinite(e) else None for n, e in bad.items()}}
    if bad:
        parts = ", ".join(f"{n} (off by {e:.3g})" for n, e in bad.items())
        return _result(
            Verdict.BROKEN,
            f"Scaling has no inverse in {parts}: what goes in does not come back.",
            value=float(np.max(error)),
            numbers=numbers,
        )
    return _result(
        Verdict.OK,
        f"Scaling and scaling back return every value to {error.max():.1g}.",
        value=float(error.max()),
        numbers=numbers,
    )


def fit_slopes(labels: Array, values: Array) -> Array:
    """Return the least-squares slope of each dimension of ``values`` on ``labels``, ``(D,)``; NaN where a label does not vary."""
    x, y = labels - labels.mean(axis=0), values - values.mean(axis=0)
    power = (x**2).sum(axis=0)
    return np.asarray(np.where(power > 0, (x * y).sum(axis=0) / np.where(power > 0, power, 1.0), np.nan))


def check_key(
    normalised: Array,
    labels: Array,
    ranges: Mapping[str, tuple[Array, Array]],
    used: str,
    names: Sequence[str],
) -> CheckResult:
    """Find the statistics a policy was trained with: un-normalised predictions must have slope 1 on the labels.

    Args:
        normalised: ``(N, D)`` predictions on training frames, in [-1, 1].
        labels: ``(N, D)`` recorded actions of those frames.
        ranges: key -> ``(low, high)`` of its statistics, ``(D,)`` each; equal ends leave a dimension as it
            is.
        used: the key in use.
        names: dimensions.
    """
    slopes, misfit = {}, {}
    for key, (low, high) in ranges.items():
        scaled = high > low
        values = np.where(scaled, (normalised + 1.0) / 2.0 * (high - low) + low, normalised)
        slopes[key] = fit_slopes(labels, values)
        spread = np.where(labels.std(axis=0) > 0, labels.std(axis=0), 1.0)
        misfit[key] = float(np.abs((values - labels) / spread).mean())
    best = min(misfit, key=misfit.__getitem__)
    slope = slopes[used]
    off = {n: float(s) for n, s in zip(names, slope, strict=True) if np.isfinite(s) and abs(s - 1.0) > _SLOPE}
    numbers = {
        "slopes": {k: dict(zip(names, v.tolist(), strict=True)) for k, v in slopes.items()},
        "misfit": misfit,
        "best": best,
    }
    if off and best != used:
        parts = ", ".join(f"{n} {s:.2f}" for n, s in off.items())
        text = (
            f"Actions are un-normalised with the statistics of {used!r}: slopes on the labels are {parts}"
            f" instead of 1; those of {best!r} fit."
        )
        return _result(Verdict.BROKEN, text, n=len(labels), numbers=numbers)
    if off:
        text = (
            f"No key fits the labels; the nearest is {best!r} with slopes {slopes[best].round(2).tolist()}."
        )
        return _result(Verdict.CANNOT_TELL, text, n=len(labels), numbers=numbers)
    return _result(
        Verdict.OK, f"The statistics of {used!r} give slope 1 on the labels.", n=len(labels), numbers=numbers
    )


def check_targets(
    mean: Array, std: Array, raw: Array, transformed: Array, names: Sequence[str]
) -> CheckResult:
    """Say whether statistics are those of the transformed targets (deltas) or of the raw column.

    Args:
        mean: stored mean, ``(D,)``.
        std: stored standard deviation, ``(D,)``.
        raw: ``(N, D)`` recorded actions.
        transformed: ``(N, D)`` the targets the network is trained on.
        names: dimensions.
    """

    def distance(values: Array) -> Array:
        spread = np.where(values.std(axis=0) > 0, values.std(axis=0), 1.0)
        return np.asarray(
            np.abs(mean - values.mean(axis=0)) / spread + np.abs(np.log(np.maximum(std, 1e-12) / spread))
        )

    own, other = distance(transformed), distance(raw)
    wrong = [n for n, a, b in zip(names, own, other, strict=True) if a > 0.5 >= b]
    unknown = [n for n, a, b in zip(names, own, other, strict=True) if a > 0.5 and b > 0.5]
    scale = np.where(std > 0, std, 1.0)
    normalised = (transformed - mean) / scale
    numbers = {
        "normalised_mean": normalised.mean(axis=0).tolist(),
        "normalised_std": normalised.std(axis=0).tolist(),
        "raw": wrong,
        "neither": unknown,
    }
    if wrong:
        k = names.index(wrong[0])
        text = (
            f"The statistics of {', '.join(wrong)} are those of the recorded column, but the network learns"
            " transformed targets: "
        )
        text += (
            f"they would be at {normalised[:, k].mean():.1f} with a spread of {normalised[:, k].std():.2g}"
            " instead of 0 and 1."
        )
        return _result(Verdict.BROKEN, text, n=len(raw), numbers=numbers)
    if unknown:
        text = f"The statistics of {', '.join(unknown)} fit neither the recorded column nor the targets."
        return _result(Verdict.CANNOT_TELL, text, n=len(raw), numbers=numbers)
    return _result(
        Verdict.OK, "The statistics are those of the targets the network learns.", n=len(raw), numbers=numbers
    )


def check_departures(
    normaliser_still: Mapping[str, float], names: Sequence[str], live: Array, slack: Array
) -> CheckResult:
    """Flag run-time values that leave what training knew as a constant.

    Args:
        normaliser_still: dimension -> the constant it had in training.
        names: dimensions of ``live``.
        live: ``(N, D)`` run-time values.
        slack: ``(D,)`` departure that noise explains.
    """
    left = {}
    for name, constant in normaliser_still.items():
        k = list(names).index(name)
        far = float(np.abs(live[:, k] - constant).max()) if len(live) else 0.0
        if far > slack[k]:
            left[name] = far
    numbers = {"departure": left, "constants": dict(normaliser_still)}
    if left:
        parts = ", ".join(f"{n} by {d:.3g}" for n, d in left.items())
        text = (
            f"Dimensions that never moved in training move now: {parts}; the policy cannot know what that"
            " means."
        )
        return _result(Verdict.BROKEN, text, n=len(live), numbers=numbers)
    return _result(
        Verdict.OK,
        f"{len(normaliser_still)} dimensions were constant in training and still are.",
        n=len(live),
        numbers=numbers,
    )


def circular_std(angle: Array, turn: float) -> float:
    """Return the standard deviation of angles on a circle, in their unit: ``sqrt(-2 ln R)`` of the mean resultant length R.

    Args:
        angle: ``(N,)``.
        turn: a whole turn in the unit of the angle.
    """
    phase = angle * (2.0 * np.pi / turn)
    length = float(np.hypot(np.cos(phase).mean(), np.sin(phase).mean()))
    return float(np.sqrt(max(0.0, -2.0 * np.log(max(length, 1e-300)))) * turn / (2.0 * np.pi))


def same_rules(sources: Mapping[str, set[str]], mode: str) -> dict[str, list[str]]:
    """Return, for each source of a mixture that lacks what a scaling mode reads, the statistics it lacks.

    A loader that fills the gap (q01 from min, q99 from max) scales this source by another rule than the rest.

    Args:
        sources: source -> names of its stored statistics.
        mode: key of :data:`NEEDS`.
    """
    return {
        name: missing
        for name, stored in sources.items()
        if (missing := [n for n in NEEDS[mode] if n not in stored])
    }

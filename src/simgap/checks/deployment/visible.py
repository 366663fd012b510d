"""Is the target in the picture, bright enough and where it was."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap import causes
from simgap.causes import Cause
from simgap.findings import CheckResult, Family, Verdict

Frames = NDArray[np.uint8]
"""``(N, H, W, 3)``."""


_SATURATED = 254


_BRIGHTER = 15.0
"""Shift of the median, of 255, that everyday light does not make."""


CONTRAST_TO_NOISE = 3.0
"""An object nearer to its background than this many times the noise cannot be seen reliably (Rose 1948 asks for 3 to 5)."""


def result(verdict: Verdict, sentence: str, cause: Cause = causes.PIXELS_OTHER, **fields: Any) -> CheckResult:
    """Return a result of the family that asks what is in the picture."""
    named = cause if verdict is Verdict.BROKEN else causes.NONE
    return CheckResult(
        family=Family.PIXELS,
        name="pictures before the first motion",
        verdict=verdict,
        sentence=sentence,
        cause=named,
        **fields,
    )


def check_visible(frames: Frames, region: NDArray[np.bool_], *, camera: str = "camera") -> CheckResult:
    """Check that an object stands out from what surrounds it, before any rollout.

    Args:
        frames: ``(N, H, W, 3)`` stills of one scene, at least two for the noise.
        region: ``(H, W)`` where the object is.
        camera: its name.
    """
    values = frames.astype(np.float64)
    ring = _ring(region)
    contrast = float(np.abs(values[:, region].mean(axis=(0, 1)) - values[:, ring].mean(axis=(0, 1))).max())
    between = float(np.diff(values[:, ring], axis=0).std() / np.sqrt(2)) if len(values) > 1 else 0.0
    noise = max(between, 0.5)  # half a grey level is the rounding of a byte
    saturated = float((frames[:, region] >= _SATURATED).all(axis=-1).mean())
    ratio = contrast / noise
    numbers = {
        "contrast": contrast,
        "noise": noise,
        "contrast_to_noise": ratio,
        "saturated_share": saturated,
        "pixels": int(region.sum()),
    }
    fields: dict[str, Any] = {
        "statistic": "contrast to noise",
        "value": ratio,
        "threshold": CONTRAST_TO_NOISE,
        "numbers": numbers,
        "n": len(frames),
    }
    if ratio < CONTRAST_TO_NOISE:
        why = f"; {saturated:.0%} of its pixels are saturated" if saturated > 0.05 else ""
        return result(
            Verdict.BROKEN,
            f"The object cannot be seen by the {camera}: contrast {contrast:.1f} at a noise of"
            f" {noise:.1f}{why}.",
            **fields,
        )
    return result(
        Verdict.OK, f"The object stands out in the {camera} picture ({ratio:.0f} times the noise).", **fields
    )


def _ring(region: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the surroundings of a region, a few pixels wide and apart from it by one."""
    width = max(2, round(0.5 * np.sqrt(region.sum())))
    return _grown(region, width + 1) & ~_grown(region, 1)


def _grown(region: NDArray[np.bool_], by: int) -> NDArray[np.bool_]:
    grown = region
    for _ in range(by):
        padded = np.pad(grown, 1)
        grown = (
            padded[1:-1, 1:-1] | padded[:-2, 1:-1] | padded[2:, 1:-1] | padded[1:-1, :-2] | padded[1:-1, 2:]
        )
    return grown


def check_light(live: Frames, training: Frames, *, camera: str = "camera") -> CheckResult:
    """Measure the brightness shift of a camera, apart from everything else that differs."""
    shift = float(np.median(live) - np.median(training))
    fields: dict[str, Any] = {
        "statistic": "shift of the median",
        "value": shift,
        "threshold": _BRIGHTER,
        "unit": "1/255",
        "n": len(live),
    }
    if abs(shift) > _BRIGHTER:
        text = (
            f"The {camera} picture is {abs(shift):.0f} of 255 {'brighter' if shift > 0 else 'darker'} than in"
            " training."
        )
        return result(Verdict.BROKEN, text, causes.LIGHT_COLOUR, **fields)
    return result(Verdict.OK, f"The {camera} picture is as bright as in training.", **fields)

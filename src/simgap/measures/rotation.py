"""Do both sides mean the same rotation by three numbers: a rotation vector, or Euler angles of some order.

For small turns and for turns about one axis all forms agree, so a mix-up survives a look at the numbers:
positions replay exactly, orientation drifts, and the more the larger the turns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from simgap import causes
from simgap.errors import DataError, UsageError, did_you_mean
from simgap.findings import CheckResult, Family, Verdict

FORMS = (
    "rotvec",
    *("".join(axes) for axes in ("xyz", "xzy", "yxz", "yzx", "zxy", "zyx")),
    *("XYZ", "XZY", "YXZ", "YZX", "ZXY", "ZYX"),
)
"""Rotation vector, Euler angles about fixed axes (small letters) and about turning axes (capitals); a value a letter, in that order."""
LIMIT_DEG = 0.05
"""Error of one step that rounding and control leave."""
_MIXED = 0.01
"""Share of a turn that lies off its main axis, above which it is not about one axis."""
NAME = "rotation form of the actions"


def turn(values: NDArray[np.floating[Any]], form: str) -> Rotation:
    """Return the rotations that three numbers mean under a form; Euler angles are given as x, y, z whatever the order they are applied in.

    Args:
        values: ``(N, 3)`` rad.
        form: one of :data:`FORMS`.
    """
    values = np.asarray(values, dtype=np.float64)
    if form == "rotvec":
        return Rotation.from_rotvec(values)
    return Rotation.from_euler(form, values[:, ["xyz".index(axis) for axis in form.lower()]])


def check_rotation(
    sent: NDArray[np.floating[Any]],
    achieved: NDArray[np.floating[Any]],
    *,
    declared: str = "rotvec",
    assumes: tuple[str, ...] = (),
) -> CheckResult:
    """Find the form under which the turns that were sent are the turns that happened.

    Args:
        sent: ``(N, 3)`` the three numbers of each step, rad.
        achieved: ``(N, 3)`` rotation vector that the robot or simulator really turned by in that step, rad.
        declared: the form that the data claim.
        assumes: assumptions of either side.

    Raises:
        DataError: shapes differ or are not ``(N, 3)``.
        UsageError: an unknown form.
    """
    if np.shape(sent) != np.shape(achieved) or np.ndim(sent) != 2 or np.shape(sent)[1] != 3 or len(sent) == 0:
        raise DataError(
            f"turns have shapes {np.shape(sent)} and {np.shape(achieved)}; expected (N, 3) on both sides,"
            " step by step"
        )
    if declared not in FORMS:
        raise UsageError(f"unknown rotation form {declared!r}; {did_you_mean(declared, FORMS)}")
    base: dict[str, Any] = {
        "family": Family.REPLAY,
        "name": NAME,
        "n": len(sent),
        "assumes": assumes,
        "unit": "deg a step",
    }
    done = Rotation.from_rotvec(np.asarray(achieved, dtype=np.float64))
    errors = {form: np.degrees((done.inv() * turn(sent, form)).magnitude()) for form in FORMS}
    mean = {form: float(e.mean()) for form, e in errors.items()}
    best = min(mean, key=lambda form: (round(mean[form], 6), form != declared))
    size = np.degrees(np.linalg.norm(sent, axis=1))
    mixed = np.sort(np.abs(sent), axis=1)[:, 1] > _MIXED * np.abs(sent).max(axis=1)
    own = errors[declared]
    numbers = {
        "error_deg": mean,
        "best": best,
        "declared": declared,
        "turn_deg": float(size.mean()),
        "error_about_one_axis_deg": float(own[~mixed].mean()) if (~mixed).any() else None,
        "error_about_several_axes_deg": float(own[mixed].mean()) if mixed.any() else None,
        "grows_with_turn": _correlation(size[mixed], own[mixed]),
        "broken": {},
    }
    base |= {
        "numbers": numbers,
        "statistic": f"orientation error as {declared}",
        "value": mean[declared],
        "threshold": LIMIT_DEG,
    }
    if not mixed.any():
        text = (
            "All turns are about one axis, where every rotation form says the same; replay some about several"
            " axes at once."
        )
        return CheckResult(**base, verdict=Verdict.CANNOT_TELL, sentence=text)
    if mean[declared] <= LIMIT_DEG:
        return CheckResult(
            **base,
            verdict=Verdict.OK,
            sentence=f"Turns happen as sent, read as {declared}: {mean[declared]:.3f} deg off a step.",
        )
    if mean[best] <= max(LIMIT_DEG, 0.2 * mean[declared]):
        text = (
            f"The three rotation numbers are {_named(declared)} on one side and {_named(best)} on the other:"
            f" {mean[declared]:.2f} deg off a step as declared, {mean[best]:.2f} as the other; turns about"
            " one axis do not show it."
        )
        return CheckResult(**base, verdict=Verdict.BROKEN, cause=causes.ACTION_CONVENTION, sentence=text)
    text = (
        f"Orientation is {mean[declared]:.2f} deg off a step, and no rotation form explains it (best {best},"
        f" {mean[best]:.2f}): tracking, frame or unit."
    )
    return CheckResult(**base, verdict=Verdict.CANNOT_TELL, sentence=text)


def _named(form: str) -> str:
    return (
        "a rotation vector"
        if form == "rotvec"
        else f"Euler angles {form} about {'fixed' if form.islower() else 'turning'} axes"
    )


def _correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float | None:
    return float(np.corrcoef(a, b)[0, 1]) if len(a) > 2 and np.ptp(a) > 1e-9 and np.ptp(b) > 1e-9 else None

"""Hidden gaps of a surrogate robot: what differs from the simulator, drawn from a seed and sealed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from simgap.conventions import SO101_JOINTS
from simgap.errors import UsageError, did_you_mean
from simgap.provenance import canonical_json, child_rng


class GapKind(StrEnum):
    """What may be wrong; the names a diagnosis is held against."""

    NONE = "none"
    ACTION_SIGN = "action_sign"
    ACTION_SCALE = "action_scale"
    CAMERA_SHIFT = "camera_shift"
    LIGHT_COLOUR = "light_colour"
    ACTION_LATENCY = "action_latency"
    NARROW_DATA = "narrow_data"


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """One hidden difference."""

    kind: GapKind
    factors: Mapping[str, float] = field(default_factory=dict)
    """Factors at other values than nominal."""
    joint: str = ""
    """Joint whose command is changed, for sign and scale."""
    multiplier: float = 1.0
    """What that joint's command is multiplied by on its way to the servo."""
    placements: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Placement ranges of this site where they are wider than the training set's."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "kind": str(self.kind),
            "factors": dict(self.factors),
            "joint": self.joint,
            "multiplier": self.multiplier,
            "placements": {k: list(v) for k, v in self.placements.items()},
        }

    def sentence(self) -> str:
        """Say in words what was hidden."""
        if self.kind is GapKind.NONE:
            return "nothing was hidden: the surrogate differs from the simulator by small everyday tolerances only"
        if self.joint:
            return f"commands of {self.joint} were multiplied by {self.multiplier:g} on their way to the servo"
        if self.placements:
            return "objects lie in a wider area than the training set covers: " + ", ".join(f"{k} {a:g}..{b:g}" for k, (a, b) in self.placements.items())
        return "hidden values: " + ", ".join(f"{k} = {v:.3g}" for k, v in self.factors.items())


def gap_from_json(data: Mapping[str, Any]) -> Gap:
    """Rebuild a gap from :meth:`Gap.to_json`."""
    return Gap(
        kind=GapKind(data["kind"]),
        factors={str(k): float(v) for k, v in data["factors"].items()},
        joint=str(data["joint"]),
        multiplier=float(data["multiplier"]),
        placements={str(k): (float(v[0]), float(v[1])) for k, v in data["placements"].items()},
    )


def parse_gap(text: str) -> GapKind | None:
    """Return the kind of a ``--gap`` argument; ``random`` gives None.

    Raises:
        UsageError: unknown kind.
    """
    if text == "random":
        return None
    try:
        return GapKind(text)
    except ValueError:
        raise UsageError(f"unknown gap {text!r}; {did_you_mean(text, ['random', *GapKind])}") from None


def draw_gap(seed: int, kind: GapKind | None = None) -> Gap:
    """Draw one gap.

    Args:
        seed: decides everything.
        kind: fixes the kind; by default one of the six real kinds with equal chance.
    """
    rng = child_rng(seed, "gap")
    kinds = [k for k in GapKind if k is not GapKind.NONE]
    drawn = kinds[int(rng.integers(len(kinds)))]
    return _DRAW[kind or drawn](rng)


def seal_of(gap: Gap, seed: int) -> str:
    """Return the commitment to a gap: a SHA-256 that says nothing until gap and nonce are shown."""
    return hashlib.sha256(f"{nonce_of(seed)}/{canonical_json(gap.to_json())}".encode()).hexdigest()


def nonce_of(seed: int) -> str:
    """Return the nonce of a seal; without it a short list of gaps could be tried against the hash."""
    return hashlib.sha256(f"seal-nonce/{seed}".encode()).hexdigest()[:32]


def _signed(rng: np.random.Generator, low: float, high: float) -> float:
    return float(rng.choice([-1.0, 1.0]) * rng.uniform(low, high))


def _sign(rng: np.random.Generator) -> Gap:
    # Not the wrist's roll: a cube is grasped almost as well the other way round, so nothing would be missed.
    return Gap(kind=GapKind.ACTION_SIGN, joint=SO101_JOINTS[int(rng.integers(4))], multiplier=-1.0)


def _scale(rng: np.random.Generator) -> Gap:
    scale = rng.uniform(0.55, 0.70) if rng.random() < 0.5 else rng.uniform(1.40, 1.60)
    return Gap(kind=GapKind.ACTION_SCALE, joint=SO101_JOINTS[int(rng.choice([1, 2, 3]))], multiplier=round(float(scale), 3))


def _camera(rng: np.random.Generator) -> Gap:
    if rng.random() < 0.6:
        factors = {f"front_camera_d{a}_m": _signed(rng, 0.02, 0.05) for a in "xyz"}
        factors |= {f"front_camera_{a}_deg": _signed(rng, 4.0, 8.0) for a in ("pitch", "yaw")} | {"front_camera_roll_deg": _signed(rng, 3.0, 8.0)}
    else:
        factors = {f"wrist_camera_d{a}_m": _signed(rng, 0.003, 0.010) for a in "xyz"}
        factors |= {f"wrist_camera_{a}_deg": _signed(rng, 5.0, 9.0) for a in ("pitch", "yaw")} | {"wrist_camera_roll_deg": _signed(rng, 3.0, 8.0)}
    return Gap(kind=GapKind.CAMERA_SHIFT, factors=factors)


def _light(rng: np.random.Generator) -> Gap:
    dark = rng.random() < 0.5
    return Gap(
        kind=GapKind.LIGHT_COLOUR,
        factors={
            "light_intensity": float(rng.uniform(0.35, 0.5) if dark else rng.uniform(1.4, 1.7)),
            "light_warmth": _signed(rng, 0.6, 1.0),
            "light_azimuth_deg": float(rng.uniform(-180.0, 180.0)),
            "table_grey": float(rng.uniform(0.28, 0.4) if rng.random() < 0.5 else rng.uniform(0.72, 0.85)),
            "target_hue_deg": _signed(rng, 8.0, 18.0),
        },
    )


def _latency(rng: np.random.Generator) -> Gap:
    return Gap(kind=GapKind.ACTION_LATENCY, factors={"action_latency_steps": float(rng.integers(6, 10))})


def _narrow(_: np.random.Generator) -> Gap:
    return Gap(kind=GapKind.NARROW_DATA, placements={"target_x_m": (0.13, 0.225), "target_y_m": (-0.12, 0.12)})


_DRAW: Mapping[GapKind, Callable[[np.random.Generator], Gap]] = {
    GapKind.NONE: lambda _: Gap(kind=GapKind.NONE),
    GapKind.ACTION_SIGN: _sign,
    GapKind.ACTION_SCALE: _scale,
    GapKind.CAMERA_SHIFT: _camera,
    GapKind.LIGHT_COLOUR: _light,
    GapKind.ACTION_LATENCY: _latency,
    GapKind.NARROW_DATA: _narrow,
}

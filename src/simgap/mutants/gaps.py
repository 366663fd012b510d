"""Hidden gaps of a surrogate robot: what differs from the simulator, drawn from a seed and sealed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from simgap import causes
from simgap.causes import Cause, Family
from simgap.conventions import SO101_JOINTS
from simgap.envs.base import TaskEnv
from simgap.errors import UsageError, did_you_mean
from simgap.mutants.base import Seam, Strength
from simgap.provenance import canonical_json, child_rng


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """One hidden difference."""

    kind: Cause
    """The cause that a diagnosis has to name; :data:`simgap.causes.NONE` where nothing is hidden."""
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
        if self.kind is causes.NONE:
            return (
                "nothing was hidden: the surrogate differs from the simulator by small everyday tolerances"
                " only"
            )
        if self.joint:
            return (
                f"commands of {self.joint} were multiplied by {self.multiplier:g} on their way to the servo"
            )
        if self.placements:
            return "objects lie in a wider area than the training set covers: " + ", ".join(
                f"{k} {a:g}..{b:g}" for k, (a, b) in self.placements.items()
            )
        return "hidden values: " + ", ".join(f"{k} = {v:.3g}" for k, v in self.factors.items())


def gap_from_json(data: Mapping[str, Any]) -> Gap:
    """Rebuild a gap from :meth:`Gap.to_json`."""
    return Gap(
        kind=GAPS[data["kind"]].cause,
        factors={str(k): float(v) for k, v in data["factors"].items()},
        joint=str(data["joint"]),
        multiplier=float(data["multiplier"]),
        placements={str(k): (float(v[0]), float(v[1])) for k, v in data["placements"].items()},
    )


def parse_gap(text: str) -> Cause | None:
    """Return the kind of a ``--gap`` argument; ``random`` gives None.

    Raises:
        UsageError: unknown kind.
    """
    if text == "random":
        return None
    try:
        return GAPS[text].cause
    except KeyError:
        raise UsageError(f"unknown gap {text!r}; {did_you_mean(text, ['random', *GAPS])}") from None


def possible_kinds(env: TaskEnv) -> tuple[Cause, ...]:
    """Return the kinds of gap that an env can have, ``none`` among them: those whose factors it has."""
    return tuple(row.cause for row in GAPS.values() if row.lacks(env) == "")


def require_possible(kind: Cause | None, env: TaskEnv) -> None:
    """Raise where an env cannot have a gap of this kind.

    Raises:
        UsageError: names what the env lacks, and the kinds it can have.
    """
    lacks = "" if kind is None else GAPS[kind.id].lacks(env)
    if kind is not None and lacks:
        raise UsageError(
            f"a surrogate of {env.name} cannot have gap {kind}: it has no {lacks};"
            f" {did_you_mean(str(kind), [str(k) for k in possible_kinds(env)])}"
        )


def draw_gap(seed: int, kind: Cause | None, env: TaskEnv) -> Gap:
    """Draw one gap.

    Args:
        seed: decides everything.
        kind: fixes the kind; None draws one of those that the env can have, with equal chance.
        env: what the surrogate stands for.

    Raises:
        UsageError: the env cannot have this kind.
    """
    require_possible(kind, env)
    rng = child_rng(seed, "gap")
    kinds: list[Cause] = [k for k in possible_kinds(env) if k is not causes.NONE] or [causes.NONE]
    drawn = kinds[int(rng.integers(len(kinds)))]
    return GAPS[(kind or drawn).id].draw(rng, env)


def seal_of(gap: Gap, seed: int) -> str:
    """Return the commitment to a gap: a SHA-256 that says nothing until gap and nonce are shown."""
    return seal_with(nonce_of(seed), gap)


def seal_with(nonce: str, gap: Gap) -> str:
    """Return the commitment to a gap under a nonce that has been shown."""
    return hashlib.sha256(f"{nonce}/{canonical_json(gap.to_json())}".encode()).hexdigest()


def nonce_of(seed: int) -> str:
    """Return the nonce of a seal; without it a short list of gaps could be tried against the hash."""
    return hashlib.sha256(f"seal-nonce/{seed}".encode()).hexdigest()[:32]


def _signed(rng: np.random.Generator, low: float, high: float) -> float:
    return float(rng.choice([-1.0, 1.0]) * rng.uniform(low, high))


def _is_arm(env: TaskEnv) -> bool:
    return set(SO101_JOINTS[:4]) <= {name.split(".")[0] for name in env.action_spec.names}


def _signed_dimensions(env: TaskEnv) -> list[str]:
    """Return the dimensions whose command can be turned round: zero lies between their limits."""
    return [d.name.split(".")[0] for d in env.action_spec.dimensions if d.low < 0.0 < d.high]


def _camera_prefixes(env: TaskEnv) -> list[str]:
    return [f"{c}_camera" for c in env.cameras if f"{c}_camera_dx_m" in env.factor_space.factors]


def _wider(env: TaskEnv) -> dict[str, tuple[float, float]]:
    """Return the placements of the env's own shifted preset that differ from the nominal ones."""
    nominal = env.presets["nominal"].ranges
    shifted = env.presets.get("shifted:placement")
    return (
        {}
        if shifted is None
        else {k: v for k, v in shifted.ranges.items() if k in env.placement_factors and v != nominal.get(k)}
    )


def _first(env: TaskEnv, *names: str, ending: str) -> str:
    """Return the first of these factors that the env has, else the first with this ending, else nothing."""
    known = env.factor_space.factors
    return next((n for n in (*names, *(k for k in known if k.endswith(ending))) if n in known), "")


def _inside(env: TaskEnv, factors: Mapping[str, float]) -> dict[str, float]:
    """Return those factors that the env has, within its bounds."""
    known = env.factor_space.factors
    return {k: float(np.clip(v, known[k].low, known[k].high)) for k, v in factors.items() if k in known}


def _sign(rng: np.random.Generator, env: TaskEnv) -> Gap:
    # Not the wrist's roll: a cube is grasped almost as well the other way round, so nothing would be missed.
    joints = list(SO101_JOINTS[:4]) if _is_arm(env) else _signed_dimensions(env)
    return Gap(kind=causes.ACTION_SIGN, joint=joints[int(rng.integers(len(joints)))], multiplier=-1.0)


def _scale(rng: np.random.Generator, env: TaskEnv) -> Gap:
    scale = rng.uniform(0.55, 0.70) if rng.random() < 0.5 else rng.uniform(1.40, 1.60)
    joints = list(SO101_JOINTS[1:4]) if _is_arm(env) else _signed_dimensions(env)
    return Gap(
        kind=causes.ACTION_SCALE,
        joint=joints[int(rng.choice(len(joints)))],
        multiplier=round(float(scale), 3),
    )


def _camera(rng: np.random.Generator, env: TaskEnv) -> Gap:
    prefixes = _camera_prefixes(env)
    if rng.random() < 0.6 or len(prefixes) == 1:
        camera, move_m, turn_deg = prefixes[0], (0.02, 0.05), (4.0, 8.0)
    else:
        camera, move_m, turn_deg = prefixes[1], (0.003, 0.010), (5.0, 9.0)
    factors = {f"{camera}_d{a}_m": _signed(rng, *move_m) for a in "xyz"}
    factors |= {f"{camera}_{a}_deg": _signed(rng, *turn_deg) for a in ("pitch", "yaw")}
    factors |= {f"{camera}_roll_deg": _signed(rng, 3.0, 8.0)}
    return Gap(kind=causes.CAMERA_SHIFT, factors=_inside(env, factors))


def _light(rng: np.random.Generator, env: TaskEnv) -> Gap:
    dark = rng.random() < 0.5
    ground, hue = (
        _first(env, "table_grey", "floor_grey", ending="_grey"),
        _first(env, "target_hue_deg", ending="_hue_deg"),
    )
    factors = {
        "light_intensity": float(rng.uniform(0.35, 0.5) if dark else rng.uniform(1.4, 1.7)),
        "light_warmth": _signed(rng, 0.6, 1.0),
        "light_azimuth_deg": float(rng.uniform(-180.0, 180.0)),
        ground: float(rng.uniform(0.28, 0.4) if rng.random() < 0.5 else rng.uniform(0.72, 0.85)),
        hue: _signed(rng, 8.0, 18.0),
    }
    return Gap(kind=causes.LIGHT_COLOUR, factors=_inside(env, factors))


def _latency(rng: np.random.Generator, env: TaskEnv) -> Gap:
    return Gap(
        kind=causes.ACTION_LATENCY,
        factors=_inside(env, {"action_latency_steps": float(rng.integers(6, 10))}),
    )


def _narrow(_: np.random.Generator, env: TaskEnv) -> Gap:
    return Gap(kind=causes.NARROW_DATA, placements=_wider(env))


def _no_signed(env: TaskEnv) -> str:
    return "" if _signed_dimensions(env) else "action with zero between its limits"


def _no_factor(name: str) -> Callable[[TaskEnv], str]:
    return lambda env: "" if name in env.factor_space.factors else f"factor {name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class GapKind:
    """A kind of gap: the cause that it is, how one is drawn, and what an env may lack for it."""

    cause: Cause
    draw: Callable[[np.random.Generator, TaskEnv], Gap]
    lacks: Callable[[TaskEnv], str]
    """What the env lacks; empty where it lacks nothing."""


GAPS: Mapping[str, GapKind] = {
    row.cause.id: row
    for row in (
        GapKind(cause=causes.NONE, draw=lambda _, env: Gap(kind=causes.NONE), lacks=lambda env: ""),
        GapKind(cause=causes.ACTION_SIGN, draw=_sign, lacks=_no_signed),
        GapKind(cause=causes.ACTION_SCALE, draw=_scale, lacks=_no_signed),
        GapKind(
            cause=causes.CAMERA_SHIFT,
            draw=_camera,
            lacks=lambda env: "" if _camera_prefixes(env) else "factors of a camera's pose",
        ),
        GapKind(cause=causes.LIGHT_COLOUR, draw=_light, lacks=_no_factor("light_intensity")),
        GapKind(cause=causes.ACTION_LATENCY, draw=_latency, lacks=_no_factor("action_latency_steps")),
        GapKind(
            cause=causes.NARROW_DATA,
            draw=_narrow,
            lacks=lambda env: "" if _wider(env) else "preset shifted:placement that moves placements",
        ),
    )
}
"""By the id of the cause, in the order in which a seed draws from them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GapMutant:
    """A kind of gap as a mutant of the robot: what a sealed surrogate hides."""

    id: str
    what: str
    kind: GapKind
    found_by: str
    breaks: str
    strength: Strength = Strength(full=1.0, unit="of the gap that a seed draws")
    seam: Seam = Seam.ROBOT

    @property
    def family(self) -> Family:
        """Family of the cause."""
        assert self.kind.cause.family is not None
        return self.kind.cause.family

    @property
    def expected(self) -> Cause:
        """The cause that is this gap."""
        return self.kind.cause

    def apply(self, target: TaskEnv, strength: float, rng: np.random.Generator) -> Gap:
        """Return the gap of a surrogate that stands for an env, drawn and then taken back towards nothing.

        Raises:
            UsageError: the env cannot have this kind.
        """
        require_possible(self.kind.cause, target)
        share, drawn = self.strength.of(strength), self.kind.draw(rng, target)
        known, usual = target.factor_space.factors, target.presets["nominal"].ranges
        return replace(
            drawn,
            factors={n: known[n].nominal + share * (v - known[n].nominal) for n, v in drawn.factors.items()},
            multiplier=1.0 + share * (drawn.multiplier - 1.0),
            placements={
                n: (a + share * (low - a), b + share * (high - b))
                for n, (low, high) in drawn.placements.items()
                for a, b in [usual.get(n, (known[n].nominal, known[n].nominal))]
            },
        )


_GAP_MUTANTS = (
    (causes.ACTION_SIGN, "a joint turns the other way round", "logged_actions", "commands mean on the robot what they mean in training"),
    (causes.ACTION_SCALE, "a joint moves more or less than it is told", "logged_actions", "commands mean on the robot what they mean in training"),
    (causes.CAMERA_SHIFT, "a camera has moved and turned", "cameras", "renderer"),
    (causes.LIGHT_COLOUR, "light and colours are others", "cameras", "renderer"),
    (causes.ACTION_LATENCY, "commands take effect late", "delay_and_stiffness", "clock"),
    (causes.NARROW_DATA, "objects lie where the training set did not reach", "training_area", "factor ranges"),
)  # fmt: skip
MUTANTS: tuple[GapMutant, ...] = tuple(
    GapMutant(id=f"gap_{cause.id}", what=what, kind=GAPS[cause.id], found_by=found_by, breaks=breaks)
    for cause, what, found_by, breaks in _GAP_MUTANTS
)

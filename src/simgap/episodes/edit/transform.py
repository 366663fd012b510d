"""A plan that turns one dataset into another: what its numbers are, what they should become, which frames and cameras stay.

A plan is plain data. It is stored with what it made, and the same plan made again makes the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.conventions import Conversion, Dimension, Reference, Unit, VectorSpec, reexpressed
from simgap.episodes.formats.keymap import ACTION_ROLE, STATE_ROLE
from simgap.episodes.formats.vectors import (
    UNLIMITED,
    changed_dimension,
    matches,
    renamed,
    require_matches,
    require_renames,
)
from simgap.errors import ConventionError, UsageError, did_you_mean
from simgap.types import Episode


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What to do to the vectors of a dataset, in this order."""

    rename: Mapping[str, str] = field(default_factory=dict)
    """``[action:|state:]NAME`` of a dimension -> its new name."""
    drop: tuple[str, ...] = ()
    """``[action:|state:]GLOB`` of dimensions to leave out."""
    states: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """``[action:|state:]GLOB`` -> what these dimensions are; no number changes."""
    becomes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """``[action:|state:]GLOB`` -> what these dimensions are turned into."""
    order: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """``action`` or ``state`` -> names in the order wanted."""
    rate_hz: float | None = None
    """Frames a second wanted; at most what there is."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, what is not asked for left out."""
        plain: dict[str, Any] = {
            "rename": dict(self.rename),
            "drop": list(self.drop),
            "states": {k: dict(v) for k, v in self.states.items()},
            "becomes": {k: dict(v) for k, v in self.becomes.items()},
            "order": {k: list(v) for k, v in self.order.items()},
            "rate_hz": self.rate_hz,
        }
        return {k: v for k, v in plain.items() if v}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class VectorChange:
    """How one vector is changed."""

    target: VectorSpec
    order: tuple[int, ...]
    """Source dimension of each target dimension."""
    converted: tuple[int, ...]
    """Target dimensions whose numbers change."""
    conversion: Conversion | None
    """Of those alone, in the order of ``converted``."""

    def apply(
        self, values: NDArray[np.float32], state: NDArray[np.float64] | None = None
    ) -> NDArray[np.float32]:
        """Return ``(T, A)`` values changed; ``state`` is that of the converted dimensions before each frame, ``(T, len(converted))``."""
        result = values[:, list(self.order)].astype(np.float64)
        if self.conversion is not None:
            picked = list(self.converted)
            given = result[:, picked]
            anchor = (
                state
                if state is None or Reference.DELTA not in (*self.conversion.given, *self.conversion.wanted)
                else state[0]
            )
            result[:, picked] = self.conversion.apply(given, anchor)
        return result.astype(np.float32)

    @property
    def is_nothing(self) -> bool:
        """True when the vector stays as it is."""
        return self.conversion is None and self.order == tuple(range(len(self.order)))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Change:
    """How both vectors of a dataset are changed."""

    action: VectorChange
    state: VectorChange
    anchors: tuple[int, ...]
    """Source state dimension of each converted action dimension, where actions change between positions and differences."""
    to_anchor: Conversion | None
    """State of those dimensions in the units of the stated action."""
    rate_hz: float
    """Of the frames that come out."""

    def apply(self, episode: Episode) -> Episode:
        """Return an episode with changed vectors, frames as they are."""
        anchor = None
        if self.to_anchor is not None:
            anchor = self.to_anchor.apply(episode.state[:, list(self.anchors)].astype(np.float64))
        return replace(
            episode, action=self.action.apply(episode.action, anchor), state=self.state.apply(episode.state)
        )


def make_change(plan: Plan, action: VectorSpec, state: VectorSpec) -> Change:
    """Return what a plan does to the vectors of a dataset.

    Raises:
        UsageError: patterns or names that mean nothing.
        ConventionError: a conversion that would guess or lose something; names both sides and what is
            missing.
    """
    require_matches([*plan.drop], action, state)
    require_renames(plan.rename, action.names, state.names)
    both = {ACTION_ROLE: action, STATE_ROLE: state}
    kept: dict[str, list[tuple[int, Dimension]]] = {}
    for role, spec in both.items():
        left = [
            (k, d)
            for k, d in enumerate(spec.dimensions)
            if not any(matches(p, role, d.name) for p in plan.drop)
        ]
        named = [(k, replace(d, name=renamed(plan.rename, role, d.name))) for k, d in left]
        doubled = sorted({d.name for _, d in named if sum(d.name == other.name for _, other in named) > 1})
        if doubled:
            raise UsageError(f"the {role} would have {doubled} twice; rename them apart")
        kept[role] = named
    later = [
        VectorSpec(dimensions=tuple(d for _, d in kept[role]), rate_hz=spec.rate_hz)
        for role, spec in both.items()
    ]
    require_matches([*plan.states, *plan.becomes], *later)
    for role in plan.order:
        if role not in both:
            raise UsageError(f"an order can be given to action and state, not to {role!r}")
    stated, changes = {}, {}
    for role in both:
        stated[role] = [_stated(plan, role, d) for _, d in kept[role]]
        changes[role] = _vector_change(plan, role, [k for k, _ in kept[role]], stated[role], action.rate_hz)
    anchors, to_anchor = _anchoring(
        changes[ACTION_ROLE],
        stated[ACTION_ROLE],
        stated[STATE_ROLE],
        [k for k, _ in kept[STATE_ROLE]],
        [k for k, _ in kept[ACTION_ROLE]],
    )
    if plan.rate_hz is not None and any(d.reference is Reference.DELTA for d in action.dimensions):
        raise ConventionError(
            "actions are steps from frame to frame, and with other frames they would be other steps; first"
            " --to 'action:*=absolute'"
        )
    return Change(
        action=changes[ACTION_ROLE],
        state=changes[STATE_ROLE],
        anchors=anchors,
        to_anchor=to_anchor,
        rate_hz=plan.rate_hz or action.rate_hz,
    )


def _stated(plan: Plan, role: str, dimension: Dimension) -> Dimension:
    for pattern, fields in plan.states.items():
        if matches(pattern, role, dimension.name):
            dimension = changed_dimension(dimension, fields)
    return dimension


def _wanted(plan: Plan, role: str, dimension: Dimension) -> Dimension:
    for pattern, fields in plan.becomes.items():
        if not matches(pattern, role, dimension.name):
            continue
        target = changed_dimension(dimension, fields)
        if role == STATE_ROLE and target.reference is not dimension.reference:
            raise UsageError(
                f"{dimension.name!r} of the state is {dimension.reference} and stays so; write"
                f" action:{pattern.rpartition(':')[2]}=..."
            )
        if target.reference is not dimension.reference:
            dimension = replace(target, low=fields.get("low", -UNLIMITED), high=fields.get("high", UNLIMITED))
        elif dimension.high >= UNLIMITED or dimension.low <= -UNLIMITED:
            dimension = target
        else:
            moved = {
                k: getattr(target, k)
                for k in ("unit", "opens_high", "calibrated", "sign", "zero", "frame", "is_gripper")
            }
            dimension = target if {"low", "high"} <= set(fields) else reexpressed(dimension, **moved)
    return dimension


def _vector_change(
    plan: Plan, role: str, sources: Sequence[int], stated: Sequence[Dimension], rate_hz: float
) -> VectorChange:
    names = [d.name for d in stated]
    order = plan.order.get(role, tuple(names))
    if sorted(order) != sorted(names):
        missing, unknown = sorted(set(names) - set(order)), sorted(set(order) - set(names))
        hint = f"; {did_you_mean(unknown[0], names)}" if unknown else ""
        raise UsageError(
            f"the order of the {role} lacks {missing} and has {unknown or 'nothing'} besides; name every"
            f" dimension once{hint}"
        )
    places = [names.index(n) for n in order]
    targets = [_wanted(plan, role, stated[k]) for k in places]
    converted = tuple(i for i, k in enumerate(places) if _numbers_change(stated[k], targets[i]))
    conversion = None
    if converted:
        given = VectorSpec(dimensions=tuple(stated[places[i]] for i in converted), rate_hz=rate_hz)
        conversion = Conversion.between(
            given, VectorSpec(dimensions=tuple(targets[i] for i in converted), rate_hz=rate_hz)
        )
        _require_one_step(conversion)
    target = VectorSpec(dimensions=tuple(targets), rate_hz=plan.rate_hz or rate_hz)
    return VectorChange(
        target=target, order=tuple(sources[k] for k in places), converted=converted, conversion=conversion
    )


def _numbers_change(a: Dimension, b: Dimension) -> bool:
    return replace(a, low=0.0, high=0.0) != replace(b, low=0.0, high=0.0)


def _require_one_step(conversion: Conversion) -> None:
    """Refuse what would take two anchors at once: a frame's own state, and the first of its episode."""
    pairs = {(a, b) for a, b in zip(conversion.given, conversion.wanted, strict=True) if a is not b}
    references = {r for pair in pairs for r in pair} - {Reference.ABSOLUTE}
    if len(references) > 1:
        raise ConventionError(
            "delta counts from frame to frame and chunk_delta from each frame's own state; convert to"
            " absolute first, then on, in two steps"
        )


def _anchoring(
    change: VectorChange,
    action: Sequence[Dimension],
    state: Sequence[Dimension],
    state_sources: Sequence[int],
    action_sources: Sequence[int],
) -> tuple[tuple[int, ...], Conversion | None]:
    """Return which state dimensions actions are measured against, and how they come into the units of the action."""
    if change.conversion is None or not change.conversion.needs_state:
        return (), None
    stated = [action[action_sources.index(change.order[i])] for i in change.converted]
    by_name = {d.name: k for k, d in enumerate(state)}
    lost = [d.name for d in stated if d.name not in by_name]
    if lost:
        raise ConventionError(
            f"{lost} of the action have no state of their name ({sorted(by_name)}) to be measured against;"
            " rename, or convert the others alone"
        )
    measured = [state[by_name[d.name]] for d in stated]
    unknown = [d.name for d in (*stated, *measured) if d.unit is Unit.UNKNOWN]
    if unknown:
        raise ConventionError(
            f"the unit of {unknown[0]!r} is not known, and a difference needs action and state in one; state"
            f" it with --is '{unknown[0]}=UNIT'"
        )
    as_positions = [replace(d, reference=Reference.ABSOLUTE) for d in stated]
    first, second = (VectorSpec(dimensions=tuple(d), rate_hz=1.0) for d in (measured, as_positions))
    return tuple(state_sources[by_name[d.name]] for d in stated), Conversion.between(first, second)

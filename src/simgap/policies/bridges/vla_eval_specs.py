"""What a vla-eval model server declares of its actions and observations, held against what a policy file says.

A declaration is a map from component to ``dims``, ``format`` and ``range`` (``src/vla_eval/specs.py`` in
allenai/vla-evaluation-harness, where the format words below are defined). A format that is not in the tables
here is no contradiction: it says nothing that a convention of ours could contradict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simgap.conventions import Dimension, Reference
from simgap.errors import ConventionError, did_you_mean
from simgap.policies.bridges.served import Served

REFERENCES: Mapping[str, Reference] = {"delta_xyz": Reference.DELTA, "absolute_xyz": Reference.ABSOLUTE}
OPENS_HIGH: Mapping[str, bool] = {
    "binary_close_positive": False,
    "binary_close_negative": True,
    "binary_close_01": False,
}
"""Gripper formats that say which end is open. ``continuous_01`` and ``raw`` do not."""
GRIPPERS = (*OPENS_HIGH, "continuous_01")
POSES = (*REFERENCES, "euler_xyz", "axis_angle", "quaternion_xyzw", "rot6d_interleaved", "joint_positions")
_MOST = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Component:
    """One part of a declared vector."""

    name: str
    dims: int
    """0 where it is no vector, or its length is not declared."""
    format: str


def components_of(declared: Any, what: str, *, server: str) -> tuple[Component, ...]:
    """Return the components of a declaration in the order declared, none where nothing is declared.

    Raises:
        ConventionError: a declaration that cannot be read.
    """
    if declared is None:
        return ()
    try:
        found = tuple(
            Component(name=str(k), dims=int(v["dims"]), format=str(v["format"])) for k, v in declared.items()
        )
        if any(not 0 <= c.dims <= _MOST for c in found):
            raise ValueError(f"dims beyond 0 to {_MOST}")
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        raise ConventionError(
            f"{server} declares {what} that cannot be read ({error!r:.100}); expected dims and format of"
            " every component"
        ) from error
    return found


def require_declared(
    greeting: Mapping[str, Any], served: Served, order: Sequence[str], *, server: str
) -> None:
    """Raise where the server's own declaration contradicts the policy file.

    Args:
        greeting: payload of the server's ``hello``.
        served: what the policy file says.
        order: how components make up an action; empty for the order declared.
        server: who declares, for messages.

    Raises:
        ConventionError: names the first difference, both sides and what to set.
    """
    _require_actions(
        components_of(greeting.get("action_spec"), "an action_spec", server=server),
        served,
        order,
        server=server,
    )
    _require_observations(
        components_of(greeting.get("observation_spec"), "an observation_spec", server=server),
        served,
        server=server,
    )
    wanted = greeting.get("observation_params")
    if isinstance(wanted, Mapping) and wanted.get("send_state") is True and served.messages.state is None:
        raise ConventionError(
            f"{server} asks for the state (send_state), and the policy file sends none; set state to its key,"
            " such as states"
        )


def _require_actions(
    components: Sequence[Component], served: Served, order: Sequence[str], *, server: str
) -> None:
    by_name = {c.name: c for c in components}
    for name in order:
        if name not in by_name:
            raise ConventionError(
                f"the policy file orders component {name!r}, and {server} declares none of that name;"
                f" {did_you_mean(name, by_name)}"
            )
    ordered = [by_name[n] for n in order] if order else list(components)
    dimensions = served.interface.their_action_spec.dimensions
    if not ordered or any(c.dims == 0 for c in ordered):
        return  # nothing declared, or a length left open: the width of every reply is checked anyway
    width = sum(c.dims for c in ordered)
    if width != len(dimensions):
        parts = ", ".join(f"{c.name} {c.dims}" for c in ordered)
        raise ConventionError(
            f"{server} declares actions of {width} numbers ({parts}), the file says {len(dimensions)}:"
            f" {[d.name for d in dimensions]}; correct action_spec"
        )
    at = 0
    for component in ordered:
        for dimension in dimensions[at : at + component.dims]:
            _require_dimension(component, dimension, server=server)
        at += component.dims


def _require_dimension(component: Component, ours: Dimension, *, server: str) -> None:
    said = (
        f"{server} declares {component.name!r} as {component.format}, the policy file says {ours.describe()}"
    )
    reference = REFERENCES.get(component.format)
    if reference is not None and ours.reference is not reference:
        raise ConventionError(f"{said}; set reference to {reference} in action_spec, or serve another policy")
    if component.format in (POSES if ours.is_gripper else GRIPPERS):
        raise ConventionError(f"{said}; correct is_gripper or the order of action_spec")
    opens_high = OPENS_HIGH.get(component.format)
    if opens_high is not None and ours.opens_high is not opens_high:
        raise ConventionError(f"{said}; set opens_high to {str(opens_high).lower()} in action_spec")


def _require_observations(components: Sequence[Component], served: Served, *, server: str) -> None:
    messages, width = served.messages, len(served.interface.their_state_spec)
    for component in components:
        said = f"{server} declares that it reads {component.name!r} ({component.format})"
        if component.format == "language" and messages.prompt is None:
            raise ConventionError(
                f"{said}, and the policy file sends no instruction; set prompt to its key, such as"
                " task_description"
            )
        if component.format == "rgb_hwc_uint8" and messages.layout != "HWC":
            raise ConventionError(
                f"{said}, and the policy file sends {messages.layout}; set image_layout to HWC"
            )
        if component.dims == 0:
            continue
        if messages.state is None:
            raise ConventionError(
                f"{said}, and the policy file sends no state; set state to its key, such as states"
            )
        if component.dims != width:
            raise ConventionError(
                f"{said} of {component.dims} numbers, and the policy file sends {width}; correct state_spec,"
                " or serve another policy"
            )

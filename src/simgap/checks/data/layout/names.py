"""Do action and state name the same joints alike: which belong together, in which order, and what would name them alike."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from simgap.checks.data.pooled import Pooled, joint_stem
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.episodes.formats.commands import answer_command

_NEAR = 0.8


def check_names(pooled: Pooled) -> list[DataFinding]:
    """Return the findings about the names of dimensions; none where nobody gave any."""
    if not pooled.state_names:
        return []
    if not pooled.matched_by_name:
        return _unnamed(pooled)
    return [*_by_stem(pooled), *_lonely(pooled), *_order(pooled)]


def _unnamed(pooled: Pooled) -> list[DataFinding]:
    """Say that names are missing; a format that has no place for them is no fault."""
    action, state = len(pooled.action_names), len(pooled.state_names)
    what = (
        "paired by position because names are missing"
        if pooled.joints
        else "not compared: names are missing and their numbers differ"
    )
    where = (
        "in info.json"
        if pooled.dataset.info.is_lerobot
        else 'in a file simgap-map.json beside the data: {"names": {"action": [...], "state": [...]}}'
    )
    return [
        DataFinding(
            code="not_matched_by_name",
            severity=Severity.NOTE,
            sentence=f"action and state were {what} ({action} and {state} dimensions)",
            remedy=f"name the dimensions of both {where}",
            numbers={"action": action, "state": state},
        )
    ]


def _by_stem(pooled: Pooled) -> list[DataFinding]:
    """Offer the renames of joints that were paired although their names say different ends."""
    pairs = [(pooled.action_names[j.action], pooled.state_names[j.state]) for j in pooled.joints]
    pairs = [(a, s) for a, s in pairs if a != s and _position(a) != _position(s)]
    if not pairs:
        return []
    renames = [w for a, s in pairs for w in _rename(a, s, joint_stem(a) if joint_stem(a) else a)]
    return [
        DataFinding(
            code="paired_by_joint",
            severity=Severity.NOTE,
            sentence=(
                "names of action and state differ in whose end they are, and were taken for one joint:"
                f" {listed([f'{a} and {s}' for a, s in pairs])}"
            ),
            remedy=(
                "if that is right, name them alike, here and in convert:"
                f" {answer_command(pooled.dataset, *renames)}"
            ),
            joints=tuple(a for a, _ in pairs),
            numbers={"pairs": dict(pairs)},
        )
    ]


def _position(name: str) -> str:
    return (
        name.lower()
        .removesuffix(".pos")
        .removesuffix("_pos")
        .removesuffix(".position")
        .removesuffix("_position")
    )


def _rename(action: str, state: str, name: str) -> list[str]:
    return [
        w
        for role, old in (("action", action), ("state", state))
        if old != name
        for w in ("--rename", f"{role}:{old}={name}")
    ]


def _lonely(pooled: Pooled) -> list[DataFinding]:
    """Name the dimensions that only one of the two vectors has, and the renames that would pair them where names are near."""
    matched_action, matched_state = {j.action for j in pooled.joints}, {j.state for j in pooled.joints}
    action = [n for k, n in enumerate(pooled.action_names) if k not in matched_action]
    state = [n for k, n in enumerate(pooled.state_names) if k not in matched_state]
    if not action and not state:
        return []
    pairs = near_pairs(action, state)
    if not pairs and not pooled.joints and len(action) == len(state):
        pairs = list(zip(action, state, strict=True))
    offer = [w for a, s in pairs for w in ("--rename", f"state:{s}={a}")]
    remedy = "compare action and state by name, never by position"
    if pairs:
        what = (
            "if these are the same joints" if pooled.joints else "if they are the same joints in this order"
        )
        remedy = (
            f"{remedy}; {what}, name them alike and check again: {answer_command(pooled.dataset, *offer)}"
        )
    shared = len(pooled.joints)
    return [
        DataFinding(
            code="unmatched_dimensions",
            severity=Severity.WARNING if pairs and pooled.joints else Severity.NOTE,
            sentence=(
                f"{shared} dimensions are in both action ({len(pooled.action_names)}) and state"
                f" ({len(pooled.state_names)}); only in action: {listed(action) or 'none'}; only in state:"
                f" {listed(state) or 'none'}"
            )
            + ("" if shared else ": how the state follows the action was not checked"),
            remedy=remedy,
            numbers={"action": action, "state": state, "near": dict(pairs)},
        )
    ]


def near_pairs(action: Sequence[str], state: Sequence[str]) -> list[tuple[str, str]]:
    """Return names that are nearly the same, such as one of them misspelt, each used once."""
    left, pairs = list(state), []
    for name in action:
        near = difflib.get_close_matches(name, left, n=1, cutoff=_NEAR)
        if near and _quantity(near[0]) == _quantity(name):
            left.remove(near[0])
            pairs.append((name, near[0]))
    return pairs


def _quantity(name: str) -> tuple[str, str]:
    """Return what tells two near names apart for good: the numbers in them, and the quantity behind the last dot."""
    return "".join(c for c in name if c.isdigit()), name.rpartition(".")[2] if "." in name else ""


def _order(pooled: Pooled) -> list[DataFinding]:
    """Find shared dimensions that follow each other in another order; that one vector has more of them is no other order."""
    shared = sorted(pooled.joints, key=lambda j: j.action)
    by_state = sorted(pooled.joints, key=lambda j: j.state)
    moved = [a.name for a, s in zip(shared, by_state, strict=True) if a is not s]
    if not moved:
        return []
    return [
        DataFinding(
            code="order_differs",
            severity=Severity.WARNING,
            sentence=f"action and state list the same dimensions in a different order: {listed(moved)}",
            remedy="match by name; code that pairs them by position swaps joints",
            joints=tuple(moved),
        )
    ]

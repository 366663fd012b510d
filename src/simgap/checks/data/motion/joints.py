"""What the tracking of the joints means: echoes, lag, saturation, load, and only then units, signs and offsets."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from typing import Any

from simgap.checks.data.motion.changes import check_changes
from simgap.checks.data.motion.differences import check_differences
from simgap.checks.data.motion.lags import check_lags
from simgap.checks.data.motion.leaps import check_leaps, cut_at, find_leaps
from simgap.checks.data.motion.limits import check_limits
from simgap.checks.data.motion.pairing import check_pairing, swapped_columns
from simgap.checks.data.motion.requested import check_requested
from simgap.checks.data.motion.scales import PLAUSIBLE, check_scales
from simgap.checks.data.motion.tracking import Relation, Tracking, is_idle, track
from simgap.checks.data.motion.velocities import check_velocities, velocity_joints
from simgap.checks.data.pooled import Pooled, is_gripper_name
from simgap.checks.data.report import DataFinding, Severity, listed

_NEAR_ONE = 0.03
_EXPLAINS = 0.5
"""Share of a scale's distance from 1 that has to go with the frames for them to be its cause."""


def check_motion(pooled: Pooled) -> tuple[dict[str, Any], list[DataFinding]]:
    """Return the tracking of every joint and what follows from it."""
    leaps = find_leaps(pooled)
    whole, pooled = pooled, cut_at(pooled, leaps.borders)
    speeds = velocity_joints(pooled)
    of_speeds = check_velocities(pooled, speeds)
    pooled = replace(
        pooled, joints=tuple(j for j in pooled.joints if j.action not in {v.action for v in speeds})
    )
    changes = check_changes(pooled)
    tracks = track(pooled)
    rate = pooled.dataset.info.rate_hz
    measured = {t.name: t.to_json(rate) for t in tracks}
    found = [
        *check_leaps(whole, leaps),
        *changes.findings,
        *_echo(tracks),
        *_stuck(tracks),
        *check_requested(whole),
        *check_limits(whole),
        *of_speeds,
    ]
    changed = {*changes.joints, *leaps.slips}  # a number over both sides of a change speaks of neither
    alive = [t for t in tracks if t.relation is Relation.TRACKED and t.name not in changed]
    differences, no_positions = check_differences(pooled, alive)
    found += differences
    alive = [t for t in alive if t.name not in no_positions]
    swapped = swapped_columns(pooled, alive)
    # what another joint's state does says nothing about this one
    own = [t for t in alive if t.name not in swapped]
    paired = check_pairing(pooled, own, swapped)
    # which explains that they follow nothing
    frozen = {n for f in paired if f.code == "state_freezes" for n in f.joints}
    found += [*paired, *_strangers(own, frozen), *check_lags(pooled, own)]
    found += [*_saturation(pooled, own), *_load(own), *check_scales(pooled, own)]
    return measured, found


def _echo(tracks: list[Tracking]) -> list[DataFinding]:
    live = [t for t in tracks if t.relation is not Relation.CONSTANT]
    following = [t.name for t in tracks if t.relation is Relation.ECHO_NEXT]
    same = [t.name for t in tracks if t.relation is Relation.ECHO_SAME]
    found = []
    if following and len(following) == len(live):
        found.append(
            DataFinding(
                code="action_is_next_state",
                severity=Severity.FAULT,
                sentence=(
                    f"action[t] equals state[t+1] exactly in all {len(following)} moving dimensions: the"
                    " action is a relabelled next state, not a command"
                ),
                remedy=(
                    "learn no lag, gain or load from it; a replay proves nothing about the plant; record real"
                    " commands where they exist"
                ),
                joints=tuple(following),
                numbers={"lag_frames": 1},
            )
        )
    elif following:
        found.append(
            DataFinding(
                code="state_echoes_action",
                severity=Severity.WARNING,
                sentence=(
                    f"state[t+1] equals action[t] exactly in {len(following)} dimensions"
                    f" ({listed(following)}) and not in the others: their state echoes the command and is no"
                    " measurement"
                ),
                remedy="read these joints from their encoders, or leave them out of the observation",
                joints=tuple(following),
                numbers={"lag_frames": 1},
            )
        )
    if same:
        found.append(
            DataFinding(
                code="state_equals_action",
                severity=Severity.FAULT,
                sentence=(
                    f"state[t] equals action[t] exactly in {len(same)} dimensions ({listed(same)}): one is a"
                    " copy of the other"
                ),
                remedy="record command and encoder separately",
                joints=tuple(same),
                numbers={"lag_frames": 0},
            )
        )
    return found


def _stuck(tracks: list[Tracking]) -> list[DataFinding]:
    stuck = [t for t in tracks if t.relation is Relation.STUCK]
    if not stuck:
        return []
    return [
        DataFinding(
            code="state_stuck",
            severity=Severity.FAULT,
            sentence=(
                f"the state of {listed([t.name for t in stuck])} never changes while its action moves:"
                " encoder dead, joint disconnected or wrong column"
            ),
            remedy="check the joint and the column order",
            joints=tuple(t.name for t in stuck),
            numbers={t.name: {"action_range": t.action_range} for t in stuck},
        )
    ]


def _strangers(alive: list[Tracking], explained: Container[str]) -> list[DataFinding]:
    """Find joints whose state has nothing to do with their action, but for those of which it is said why."""
    lost = [
        t
        for t in alive
        if t.name not in explained
        and (t.r2 or 0.0) < 0.3
        and (t.velocity_correlation or 0.0) < 0.4
        and t.lead_frames is None
        and not is_idle(t, alive)
    ]
    if not lost:
        return []
    return [
        DataFinding(
            code="state_unrelated",
            severity=Severity.WARNING,
            sentence=(
                f"the state of {listed([t.name for t in lost])} does not follow its action at any lag (R2"
                " below 0.3)"
            ),
            remedy="check the names and the column order; an action that is no position should be named so",
            joints=tuple(t.name for t in lost),
            numbers={t.name: {"r2": t.r2, "velocity_correlation": t.velocity_correlation} for t in lost},
        )
    ]


def _saturation(pooled: Pooled, alive: list[Tracking]) -> list[DataFinding]:
    found = []
    for t in alive:
        s = t.saturation
        if not s or is_idle(t, alive):
            continue
        scale = _explained(t, "comes from that and is no unit fault")
        # limits that are stated are reached by no accident
        is_declared = s["what"] == "action" and _is_limit(pooled, t.name, s["limit"])
        if s["what"] == "action":
            text = (
                f"the command of {t.name} saturates at exactly {s['limit']:g} in {100 * s['share']:.0f} % of"
                f" frames{scale}"
            )
        else:
            text = (
                f"the state of {t.name} stays near {s['limit']:.4g} in {100 * s['share']:.0f} % of frames,"
                f" while the command moves to {s['command']:.4g}{scale}"
            )
        found.append(
            DataFinding(
                code="saturation",
                severity=Severity.NOTE if is_declared else Severity.WARNING,
                sentence=text,
                remedy=(
                    "widen the calibrated range or keep commands inside it; leave these frames out when"
                    " fitting gains"
                ),
                joints=(t.name,),
                numbers={**s, "scale": t.whole.scale, "scale_without": t.unaffected.scale},
            )
        )
    return found


def _is_limit(pooled: Pooled, name: str, value: float) -> bool:
    """Return whether a value is a limit that the data state themselves, in whatever format they are."""
    d = next((d for d in pooled.dataset.spec.action_spec.dimensions if d.name == name), None)
    return (
        d is not None
        and d.high > d.low
        and min(abs(value - d.low), abs(value - d.high)) <= 1e-3 * (d.high - d.low)
    )


def _load(alive: list[Tracking]) -> list[DataFinding]:
    found = []
    for t in alive:
        if not t.load:
            continue
        held = f"{100 * t.load['share']:.0f} % of frames"
        what = "a load in the jaws" if is_gripper_name(t.name) else "something is in its way"
        found.append(
            DataFinding(
                code="load",
                severity=Severity.NOTE,
                sentence=(
                    f"{t.name} stands {t.load['gap']:.3g} off its command in {held}, and reaches it otherwise"
                    f" ({t.load['side']}): {what}{_explained(t, 'is that load and no unit fault')}"
                ),
                remedy="nothing to repair; leave these frames out when fitting gains",
                joints=(t.name,),
                numbers={**t.load, "scale": t.whole.scale, "scale_without": t.unaffected.scale},
            )
        )
    return found


def _explained(t: Tracking, claim: str) -> str:
    """Return what saturation or load means for the scale: all of it only where the other frames have a plausible scale."""
    whole, rest = t.whole.scale, t.unaffected.scale
    if whole is None or abs(whole - 1.0) < _NEAR_ONE:
        return ""
    if rest is None:
        return f"; its overall scale of {whole:.2f} cannot be judged"
    if not PLAUSIBLE[0] < rest < PLAUSIBLE[1]:
        return f"; that does not explain its scale of {whole:.2f}, which without these frames is {rest:.2f}"
    explained = 1.0 - abs(rest - 1.0) / abs(whole - 1.0)
    if explained >= _EXPLAINS:
        return f"; its overall scale of {whole:.2f} ({rest:.2f} without these frames) {claim}"
    part = "a part of" if explained >= 0.2 else "little of"
    return f"; these frames explain {part} its scale of {whole:.2f}: without them it is {rest:.2f}"

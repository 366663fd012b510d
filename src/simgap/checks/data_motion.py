"""What the tracking of the joints means: echoes, lag, saturation, load, and only then units, signs and offsets."""

from __future__ import annotations

from typing import Any

from simgap.checks.data_limits import check_limits
from simgap.checks.data_pairing import check_pairing, swapped_columns
from simgap.checks.data_pooled import Pooled
from simgap.checks.data_report import DataFinding, Severity, listed
from simgap.checks.data_requested import check_requested
from simgap.checks.data_tracking import Relation, Tracking, is_idle, track
from simgap.checks.units import unit_pair

_LONG_LAG_S = 0.4
_PLAUSIBLE = (0.67, 1.5)
"""Scales between these can be gain, sag or calibration; beyond them something else is wrong."""
_OFFSET = 0.05
"""Offset at rest, in ranges of the action, that sag and play stay under."""


def check_motion(pooled: Pooled) -> tuple[dict[str, Any], list[DataFinding]]:
    """Return the tracking of every joint and what follows from it."""
    tracks = track(pooled)
    rate = pooled.dataset.info.rate_hz
    measured = {t.name: t.to_json(rate) for t in tracks}
    found = [*_echo(tracks), *_stuck(tracks), *check_requested(pooled), *check_limits(pooled)]
    alive = [t for t in tracks if t.relation is Relation.TRACKED]
    delta = _delta(alive)
    found += delta
    if not delta:
        swapped = swapped_columns(pooled, alive)
        own = [t for t in alive if t.name not in swapped]  # what another joint's state does says nothing about this one
        found += [*check_pairing(pooled, own, swapped), *_strangers(own)]
        found += [*_lag(own, rate), *_saturation(pooled, own), *_load(own), *_conventions(own), *_offsets(own)]
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
                sentence=f"action[t] equals state[t+1] exactly in all {len(following)} moving dimensions: the action is a relabelled next state, not a command",
                remedy="learn no lag, gain or load from it; a replay proves nothing about the plant; record real commands where they exist",
                joints=tuple(following),
                numbers={"lag_frames": 1},
            )
        )
    elif following:
        found.append(
            DataFinding(
                code="state_echoes_action",
                severity=Severity.WARNING,
                sentence=f"state[t+1] equals action[t] exactly in {len(following)} dimensions ({listed(following)}) and not in the others: their state echoes "
                "the command and is no measurement",
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
                sentence=f"state[t] equals action[t] exactly in {len(same)} dimensions ({listed(same)}): one is a copy of the other",
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
            sentence=f"the state of {listed([t.name for t in stuck])} never changes while its action moves: encoder dead, joint disconnected or wrong column",
            remedy="check the joint and the column order",
            joints=tuple(t.name for t in stuck),
            numbers={t.name: {"action_range": t.action_range} for t in stuck},
        )
    ]


def _delta(alive: list[Tracking]) -> list[DataFinding]:
    scored = [t for t in alive if t.delta_correlation is not None and t.r2 is not None]
    deltas = [t for t in scored if (t.delta_correlation or 0.0) > 0.8 and (t.r2 or 0.0) < 0.5]
    if not deltas or len(deltas) < 0.5 * len(scored):
        return []
    return [
        DataFinding(
            code="actions_are_differences",
            severity=Severity.NOTE,
            sentence=f"actions of {listed([t.name for t in deltas])} follow the change of state, not the state: they are differences",
            remedy="state 'delta' in the action convention; never mix with absolute actions",
            joints=tuple(t.name for t in deltas),
            numbers={t.name: t.delta_correlation for t in deltas},
        )
    ]


def _strangers(alive: list[Tracking]) -> list[DataFinding]:
    """Find joints whose state has nothing to do with their action."""
    lost = [t for t in alive if (t.r2 or 0.0) < 0.3 and (t.velocity_correlation or 0.0) < 0.4 and t.lead_frames is None and not is_idle(t, alive)]
    if not lost:
        return []
    return [
        DataFinding(
            code="state_unrelated",
            severity=Severity.WARNING,
            sentence=f"the state of {listed([t.name for t in lost])} does not follow its action at any lag (R2 below 0.3)",
            remedy="check the names and the column order; an action that is no position should be named so",
            joints=tuple(t.name for t in lost),
            numbers={t.name: {"r2": t.r2, "velocity_correlation": t.velocity_correlation} for t in lost},
        )
    ]


def _lag(alive: list[Tracking], rate_hz: float) -> list[DataFinding]:
    seen = [t for t in alive if t.lag_is_resolved and t.lag_frames is not None and (t.r2 or 0) >= 0.7 and not is_idle(t, alive)]
    if not seen or max(t.lag_frames or 0 for t in seen) == 0:
        return []
    lags = {t.name: int(t.lag_frames or 0) for t in seen}
    low, high = min(lags.values()), max(lags.values())
    is_long = high / rate_hz > _LONG_LAG_S
    span = f"{low} to {high} frames" if low != high else f"{low} frames"
    each = listed([f"{n} {k}" for n, k in lags.items()], 8)
    return [
        DataFinding(
            code="long_lag" if is_long else "lag",
            severity=Severity.WARNING if is_long else Severity.NOTE,
            sentence=f"the state follows the action after {span} ({1e3 * low / rate_hz:.0f} to {1e3 * high / rate_hz:.0f} ms): {each}",
            remedy="give the simulator the same lag"
            + (
                f"; a chunk shorter than {high} steps never sees its own effect; look for buffering in the recorder or the driver before blaming a policy"
                if is_long
                else ", and check it again on the robot"
            ),
            joints=tuple(lags),
            numbers={t.name: {"frames": t.lag_frames, "ms": 1e3 * (t.lag_frames or 0) / rate_hz, "velocity_frames": t.velocity_lag_frames} for t in seen},
        )
    ]


def _saturation(pooled: Pooled, alive: list[Tracking]) -> list[DataFinding]:
    found = []
    for t in alive:
        s = t.saturation
        if not s or is_idle(t, alive):
            continue
        scale = _explained(t, "comes from that and is no unit fault")
        is_declared = pooled.dataset.is_ours and s["what"] == "action"  # our specs state limits, reaching them is no accident
        if s["what"] == "action":
            text = f"the command of {t.name} saturates at exactly {s['limit']:g} in {100 * s['share']:.0f} % of frames{scale}"
        else:
            text = (
                f"the state of {t.name} stops near {s['limit']:.1f} while the command goes on to {s['command']:.1f} ({100 * s['share']:.0f} % of frames){scale}"
            )
        found.append(
            DataFinding(
                code="saturation",
                severity=Severity.NOTE if is_declared else Severity.WARNING,
                sentence=text,
                remedy="widen the calibrated range or keep commands inside it; leave these frames out when fitting gains",
                joints=(t.name,),
                numbers={**s, "scale": t.whole.scale, "scale_without": t.unaffected.scale},
            )
        )
    return found


def _load(alive: list[Tracking]) -> list[DataFinding]:
    found = []
    for t in alive:
        if not t.load:
            continue
        held = f"{100 * t.load['share']:.0f} % of frames"
        found.append(
            DataFinding(
                code="load",
                severity=Severity.NOTE,
                sentence=f"{t.name} stands {t.load['gap']:.1f} off its command in {held}, and reaches it otherwise ({t.load['side']}): "
                f"a load in the jaws{_explained(t, 'is that load and no unit fault')}",
                remedy="nothing to repair; leave these frames out when fitting gains",
                joints=(t.name,),
                numbers={**t.load, "scale": t.whole.scale, "scale_without": t.unaffected.scale},
            )
        )
    return found


def _explained(t: Tracking, claim: str) -> str:
    """Return what saturation or load means for the scale: all of it only where the other frames have a plausible scale."""
    whole, rest = t.whole.scale, t.unaffected.scale
    if whole is None:
        return ""
    if rest is None:
        return f"; its overall scale of {whole:.2f} cannot be judged"
    if _PLAUSIBLE[0] < rest < _PLAUSIBLE[1]:
        return f"; its overall scale of {whole:.2f} ({rest:.2f} without these frames) {claim}"
    return f"; that does not explain its scale of {whole:.2f}, which without these frames is {rest:.2f}"


def _conventions(alive: list[Tracking]) -> list[DataFinding]:
    """Judge scales where the fit is tight; under saturation or load, signs and units of the other frames only."""
    found = []
    for t in alive:
        is_affected = bool(t.saturation or t.load)
        judged = t.unaffected if is_affected else t.whole
        if ((judged.r2 if is_affected else t.r2) or 0.0) < 0.9 or judged.scale is None or is_idle(t, alive):
            continue
        scale = judged.scale if is_affected or t.moving.scale is None else t.moving.scale
        factor = unit_pair(scale)
        numbers = {"scale": t.whole.scale, "scale_moving": t.moving.scale, "scale_still": t.still.scale, "r2": judged.r2}
        if scale < 0:
            text, code = f"the state of {t.name} moves against its action (scale {scale:.3f}): a sign is flipped", "sign_flip"
        elif factor is not None:
            text, code = f"the state of {t.name} is {scale:.4g} times its action, as {factor}", "unit_mismatch"
        elif not is_affected and not _PLAUSIBLE[0] < scale < _PLAUSIBLE[1]:
            text, code = (
                f"the state of {t.name} is {scale:.3g} times its action (R2 {judged.r2:.3f}): gain, unit or calibration differ",
                "scale_mismatch",
            )
        else:
            continue
        found.append(
            DataFinding(
                code=code,
                severity=Severity.WARNING if code == "scale_mismatch" else Severity.FAULT,
                sentence=text,
                remedy="convert action and state to one convention before training",
                joints=(t.name,),
                numbers=numbers,
            )
        )
    return found


def _offsets(alive: list[Tracking]) -> list[DataFinding]:
    bad = {}
    for t in alive:
        scale = t.whole.scale
        if t.bias_still is None or scale is None or not _PLAUSIBLE[0] < scale < _PLAUSIBLE[1] or t.load or is_idle(t, alive):
            continue
        if (t.r2 or 0.0) >= 0.7 and abs(t.bias_still) > _OFFSET * t.action_range:
            bad[t.name] = t
    if not bad:
        return []
    parts = [f"{n} {t.bias_still:+.3g} (median of {t.still_frames} still frames)" for n, t in bad.items()]
    return [
        DataFinding(
            code="static_offset",
            severity=Severity.WARNING,
            sentence=f"at rest the state stands off its command: {listed(parts)}",
            remedy="recalibrate the zero of these joints, of leader and follower alike, or add the sag to the simulator",
            joints=tuple(bad),
            numbers={
                n: {"bias_still": t.bias_still, "frames": t.still_frames, "action_range": t.action_range, "saturation": dict(t.saturation)}
                for n, t in bad.items()
            },
        )
    ]

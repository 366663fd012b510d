"""Plant convention faults in recordings whose findings are known, and count which are named by the right code.

    python benchmarks/planted_faults.py --arm-pick FOLDER [--seed N] [--host WORDS] [--fault WORDS]
    [--verbose]

FOLDER: `simgap generate arm-pick -n 20 --out FOLDER`. Each fault goes into one joint (or two) of each host,
in the action, in the state or in both, with several sizes; nothing else is touched. A plant counts as *named*
when the right code comes at warning level or above with the joint, as *other* when something else above a
note is new, as *silent* when nothing is.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from planted_hosts import Host, hosts

from simgap.checks.data.motion.joints import check_motion
from simgap.checks.data.pooled import Pooled
from simgap.checks.data.report import DataFinding, Severity
from simgap.checks.data.values.episodes import check_episodes
from simgap.checks.data.values.ranges import check_values
from simgap.measures.lag_sums import lag_sums

Array = NDArray[np.float64]
SO101_LATEST_S, OTHERS_LATEST_S = 0.183, 0.3
"""How late a healthy arm may be: measured and published SO-101 arms 167 ms, read off frames of 33 ms; of other kinds less is known."""
Change = Callable[[int, Array], Array]
"""Takes the place of an episode and one column of it, returns the column."""


@dataclass(frozen=True, kw_only=True)
class Plant:
    """One fault in one host."""

    fault: str
    codes: tuple[str, ...]
    """Any of these names it."""
    joints: tuple[str, ...]
    """What has to be named; empty where the fault is of all joints."""
    what: str
    pooled: Pooled
    why_not: str = ""
    """Why nobody could tell from the numbers; empty where one can."""


def joint_findings(pooled: Pooled) -> list[DataFinding]:
    """Return what the checks that read numbers only say."""
    return [*check_values(pooled)[1], *check_episodes(pooled)[1], *check_motion(pooled)[1]]


# --- planting --------------------------------------------------------------------------------------------------------


def changed(pooled: Pooled, side: str, joint: str, change: Change) -> Pooled:
    """Return a recording in which one column of the action, of the state or of both is another."""
    sides = ("action", "state") if side == "both" else (side,)
    for s in sides:
        key = pooled.dataset.action_key if s == "action" else pooled.dataset.state_key
        column = next(getattr(j, s) for j in pooled.joints if j.name == joint)
        episodes = []
        for k, columns in enumerate(pooled.episodes):
            table = np.array(columns[key], dtype=np.float64).reshape(len(columns[key]), -1)
            table[:, column] = change(k, table[:, column])
            episodes.append({**columns, key: table})
        pooled = replace(pooled, episodes=tuple(episodes))
    return pooled


def lagged(pooled: Pooled, frames: int) -> Pooled:
    """Return a recording whose state comes ``frames`` later; the first ones are left out on both sides."""
    episodes = []
    for columns in pooled.episodes:
        n = len(columns[pooled.dataset.action_key])
        cut = {k: v[frames:] for k, v in columns.items()}
        cut[pooled.dataset.state_key] = columns[pooled.dataset.state_key][: n - frames]
        episodes.append(cut)
    return replace(
        pooled,
        episodes=tuple(episodes),
        lengths={k: len(e[pooled.dataset.action_key]) for k, e in zip(pooled.indices, episodes, strict=True)},
    )


def swapped(pooled: Pooled, side: str, a: str, b: str) -> Pooled:
    """Return a recording with two columns exchanged on one side."""
    joints = {j.name: j for j in pooled.joints}
    key = pooled.dataset.action_key if side == "action" else pooled.dataset.state_key
    ends = [getattr(joints[n], side) for n in (a, b)]
    episodes = []
    for columns in pooled.episodes:
        table = np.array(columns[key], dtype=np.float64)
        table[:, ends] = table[:, ends[::-1]]
        episodes.append({**columns, key: table})
    return replace(pooled, episodes=tuple(episodes))


def as_deltas(pooled: Pooled, joints: Sequence[str], kind: str) -> Pooled:
    """Return a recording whose actions are steps (from action to action) or distances to the state, under their old names."""
    columns = {j.name: j for j in pooled.joints}
    episodes = []
    for e in pooled.episodes:
        action = np.array(e[pooled.dataset.action_key], dtype=np.float64)
        state = np.asarray(e[pooled.dataset.state_key], dtype=np.float64)
        for n in joints:
            j = columns[n]
            if kind == "step":
                action[:, j.action] = np.diff(action[:, j.action], prepend=state[0, j.state])
            else:
                action[:, j.action] -= state[:, j.state]
        episodes.append({**e, pooled.dataset.action_key: action})
    return replace(pooled, episodes=tuple(episodes))


def plants(host: Host, rng: np.random.Generator) -> Iterator[Plant]:
    """Yield every fault for this host, on drawn joints."""
    p = host.pooled
    arms = [str(n) for n in rng.permutation(host.arms)]
    told = {n: _is_told(p, n) for n in host.joints}
    for k, n in enumerate(arms[:4]):
        side = ("action", "state")[k % 2]
        why = "" if told[n] else "its state does not follow its command"
        middle = 0.0 if "ticks" not in host.name and host.degree < 10 else 4096.0
        yield Plant(
            fault="sign",
            codes=("sign_flip",),
            joints=(n,),
            what=f"{side} of {n}",
            why_not=why,
            pooled=changed(p, side, n, lambda _, v, m=middle: m - v),
        )
        for degrees in (17.0, -17.0) if k % 2 else (17.0, 30.0):
            step = degrees * host.degree
            yield Plant(
                fault="17 deg offset",
                codes=("static_offset",),
                joints=(n,),
                what=f"{degrees:+g} deg, {side} of {n}",
                pooled=changed(p, side, n, lambda _, v, s=step: v + s),
            )
        factor = np.pi / 180 if host.degree != np.pi / 180 else 180 / np.pi
        yield Plant(
            fault="radians",
            codes=("unit_mismatch",),
            joints=(n,),
            what=f"{side} of {n}",
            why_not=why,
            pooled=changed(p, side, n, lambda _, v, f=factor: v * f),
        )
    if len(arms) >= 2:
        for side in ("action", "state"):
            a, b = (str(n) for n in rng.choice(host.arms, 2, replace=False))
            why = "" if told[a] and told[b] else "one of them does not follow its command"
            yield Plant(
                fault="swap",
                codes=("columns_swapped",),
                joints=(a, b),
                what=f"{side} of {a}, {b}",
                why_not=why,
                pooled=swapped(p, side, a, b),
            )
    yield from _grippers(host, told)
    yield from _wholes(host)
    yield from _midway(host, arms)


def _grippers(host: Host, told: Mapping[str, bool]) -> Iterator[Plant]:
    for n in host.grippers:
        j = next(j for j in host.pooled.joints if j.name == n)
        top = max(float(np.max(a[:, j.action])) for a in host.pooled.actions)
        top = next(t for t in (1.0, 100.0, 255.0, 4096.0, 1e9) if top <= t)
        why = "" if told[n] else "its state does not follow its command"
        for side in ("action", "state"):
            flipped = changed(host.pooled, side, n, lambda _, v, t=top: t - v)
            yield Plant(
                fault="gripper polarity",
                codes=("gripper_polarity", "sign_flip"),
                joints=(n,),
                what=f"{side} of {n}",
                why_not=why,
                pooled=flipped,
            )


def _wholes(host: Host) -> Iterator[Plant]:
    p = host.pooled
    factor = np.pi / 180 if host.degree != np.pi / 180 else 180 / np.pi
    for side in ("action", "state"):
        whole = p
        for n in host.arms:
            whole = changed(whole, side, n, lambda _, v: v * factor)
        yield Plant(
            fault="radians, all joints",
            codes=("unit_mismatch",),
            joints=(),
            what=f"{side} of all arm joints",
            pooled=whole,
        )
    rate = p.dataset.info.rate_hz
    for frames in (2, 11):
        if min(p.lengths[k] for k in p.indices) < 4 * frames:
            continue
        why = _not_late(host, frames / rate)
        yield Plant(
            fault=f"{frames} frames of lag",
            codes=("lag", "long_lag"),
            joints=(),
            what=f"{1e3 * frames / rate:.0f} ms more",
            pooled=lagged(p, frames),
            why_not=why,
        )
    for kind in ("step", "distance"):
        yield Plant(
            fault="deltas under .pos",
            codes=("actions_are_differences",),
            joints=(),
            what=kind,
            pooled=as_deltas(p, host.arms, kind),
        )
    if len(host.arms) > 1:
        some = tuple(host.arms[:2])
        yield Plant(
            fault="deltas in two joints",
            codes=("actions_are_differences",),
            joints=some,
            what=", ".join(some),
            pooled=as_deltas(p, some, "step"),
        )


def _not_late(host: Host, more_s: float) -> str:
    """Say why a lag cannot be told from one that a healthy arm of this kind has, or that the host has itself."""
    p = host.pooled
    pairs = [
        [(a[:, j.action], s[:, j.state]) for a, s in zip(p.actions, p.states, strict=True)]
        for j in p.joints
        if j.name in host.arms
    ]
    own_s = (
        float(np.median([np.argmax(lag_sums(joint, 0, 60).pooled()) for joint in pairs]))
        / p.dataset.info.rate_hz
    )
    latest = SO101_LATEST_S if host.is_so101 else OTHERS_LATEST_S
    if own_s > latest:
        return "the host itself is as late"
    return (
        f"{1e3 * (own_s + more_s):.0f} ms in all, as a healthy arm may be" if own_s + more_s <= latest else ""
    )


def _midway(host: Host, arms: Sequence[str]) -> Iterator[Plant]:
    p = host.pooled
    n_episodes = len(p.indices)
    if n_episodes < 2:
        return
    half = n_episodes // 2
    for k, n in enumerate(arms[:4]):
        for side in ("action", "state", "both"):
            size = (10.0, -10.0, 6.0)[k % 3] * host.degree
            moved = changed(p, side, n, lambda e, v, s=size: v + (s if e >= half else 0.0))
            kind = "+10 deg from half on" + (", both sides" if side == "both" else "")
            j = next(j for j in p.joints if j.name == n)
            within = float(np.median([np.ptp(s[:, j.state]) for s in p.states]))
            why = (
                _not_told(host, n, abs(size), within, half)
                if side == "both"
                else "two episodes"
                if n_episodes < 3
                else ""
            )
            yield Plant(
                fault=kind,
                codes=("recalibrated_midway",),
                joints=(n,),
                what=f"{size / host.degree:+g} deg, {side} of {n}",
                pooled=moved,
                why_not=why,
            )


def _not_told(host: Host, name: str, size: float, within: float, half: int) -> str:
    """Say why a step on both sides cannot be told from what the task or the operator does."""
    if len(host.pooled.indices) < 3:
        return "two episodes"
    if within < size:
        return "moves less than the step: parked elsewhere"
    j = next(j for j in host.pooled.joints if j.name == name)
    middles = np.array([np.median(s[:, j.state]) for s in host.pooled.states])
    spread = max(
        float(np.std(part, ddof=1)) if len(part) > 1 else 0.0 for part in (middles[:half], middles[half:])
    )
    return (
        f"its pose varies by {spread / size:.1f} steps from episode to episode" if spread > 0.4 * size else ""
    )


def _is_told(pooled: Pooled, name: str) -> bool:
    """Return whether the state of a joint follows its command at some lag in the host itself."""
    j = next(j for j in pooled.joints if j.name == name)
    pairs = [(a[:, j.action], s[:, j.state]) for a, s in zip(pooled.actions, pooled.states, strict=True)]
    return float(lag_sums(pairs, 0, 60).pooled().max()) > 0.8


# --- counting --------------------------------------------------------------------------------------------------------


def verdict(plant: Plant, clean: set[tuple[str, str]]) -> tuple[str, str]:
    """Return ``named``, ``other`` or ``silent``, and what was said that is new."""
    findings = [f for f in joint_findings(plant.pooled) if f.severity is not Severity.NOTE]
    named = {j for f in findings if f.code in plant.codes for j in f.joints}
    is_named = set(plant.joints) <= named if plant.joints else bool(named)
    new = {(f.code, j) for f in findings for j in f.joints or ("",)} - clean
    words = "; ".join(sorted({f"{c} {j}".strip() for c, j in new}))
    return ("named" if is_named else "other" if new else "silent"), words


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of faults by host."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arm-pick", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--host", default="")
    parser.add_argument("--fault", default="")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args(arguments)
    table: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    alarms: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as work:
        for host in hosts(Path(work), options.arm_pick):
            if options.host not in host.name:
                continue
            findings = [f for f in joint_findings(host.pooled) if f.severity is not Severity.NOTE]
            alarms[host.name] = sorted({f.code for f in findings} - host.known)
            if options.verbose:
                print(f"== {host.name}: {alarms[host.name]}", flush=True)
            clean = {(f.code, j) for f in findings for j in f.joints or ("",)}
            for plant in plants(host, np.random.default_rng(options.seed)):
                if options.fault not in plant.fault:
                    continue
                what, words = verdict(plant, clean)
                kind = f"({what})" if plant.why_not else what
                table[host.name][plant.fault][kind] += 1
                if options.verbose and what != "named":
                    print(
                        f"   {kind:9s} {plant.fault}: {plant.what}: {words or '-'}"
                        f" {('[' + plant.why_not + ']') if plant.why_not else ''}",
                        flush=True,
                    )
    show(table, alarms)
    return 0


def show(table: Mapping[str, Mapping[str, Counter[str]]], alarms: Mapping[str, Sequence[str]]) -> None:
    """Print the table as Markdown: named / other / silent of those that can be told, and how many cannot."""
    faults = list(dict.fromkeys(f for row in table.values() for f in row))
    print("| host | clean | " + " | ".join(faults) + " |")
    print("|---|---|" + "---|" * len(faults))
    for host, row in table.items():
        print(
            f"| {host} | {', '.join(alarms[host]) or 'clean'} | "
            + " | ".join(_cell(row[f]) if f in row else "" for f in faults)
            + " |"
        )
    sums = {f: sum((row[f] for row in table.values() if f in row), Counter()) for f in faults}
    print("| all | | " + " | ".join(_cell(sums[f]) for f in faults) + " |")
    total = sum(sums.values(), Counter())
    n = sum(total[k] for k in ("named", "other", "silent"))
    print(
        f"\nnamed {total['named']} of {n} ({100 * total['named'] / max(1, n):.1f} %), other code"
        f" {total['other']}, silent {total['silent']}"
    )
    print(
        f"cannot be told: {sum(v for k, v in total.items() if k.startswith('('))}, of which named"
        f" {total['(named)']}, another code {total['(other)']}"
    )


def _cell(counts: Counter[str]) -> str:
    hidden = sum(v for k, v in counts.items() if k.startswith("("))
    told = f"{counts['named']}/{counts['other']}/{counts['silent']}" if counts.total() > hidden else ""
    return f"{told}{f' ({hidden})' if hidden else ''}".strip()


if __name__ == "__main__":
    sys.exit(main())

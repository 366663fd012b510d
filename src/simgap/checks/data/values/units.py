"""In what are the numbers: what the values allow where nobody said it, and the one question that settles it."""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.pooled import Pooled, is_gripper_name, is_velocity_name
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.conventions import SO101_JOINTS, Unit
from simgap.episodes.formats.commands import answer_command
from simgap.measures.units import is_cartesian

_PERCENT, _COUNTS, _NONE = "percent or +-100", "device counts", "a unit that its owner has to name"
_WORDS = {_PERCENT: "range_100"}
_LARGEST_M = 3.0
"""How far from its base a tool gets: what goes beyond is no length in metres."""
_WIDEST_M = 0.2
"""How wide jaws open."""
_QUATERNION = re.compile(
    r"[._/]?(?:(?<![a-z])q[wxyz]|(?<![a-z])(?:quat|quaternion)(?:[._]?[wxyz0-3])?)$", re.IGNORECASE
)
_OF_A_JOINT = re.compile(
    r"wrist|forearm|elbow|shoulder|waist|torso|neck|head|hip|knee|ankle|joint", re.IGNORECASE
)
_ROTATION = re.compile(r"(?:^|[._/])(?:r[xyz]|roll|pitch|yaw)(?:[._](?:pos|position))?$", re.IGNORECASE)


def check_units(pooled: Pooled, action: NDArray[np.float64], state: NDArray[np.float64]) -> list[DataFinding]:
    """Ask once for the units that nobody stated; all of it are notes, for a format without units is no fault of its data."""
    spec = pooled.dataset.spec.action_spec
    if all(d.unit is not Unit.UNKNOWN for d in spec.dimensions):
        return []
    columns = _columns(pooled, action, state)
    ticks = [n for n, v in columns.items() if _is_ticks(v) and not is_cartesian(n)]
    found = _ticks(pooled, ticks, len(columns)) if ticks else []
    arms = _so101_arms(pooled)
    undecided = {n: v for n, v in columns.items() if n in arms and n not in ticks and np.ptp(v) > 0}
    largest = max((float(np.abs(v).max()) for v in undecided.values()), default=0.0)
    if undecided and 6.4 < largest <= 100.5:
        return [*found, _undecided(pooled, undecided, largest)]
    groups = _unit_groups({n: v for n, v in columns.items() if n not in ticks})
    return [*found, _undeclared(pooled, groups, columns)] if groups else found


def _ticks(pooled: Pooled, ticks: list[str], width: int) -> list[DataFinding]:
    stated = (
        ["--is", "*=ticks"] if len(ticks) == width else [w for n in ticks for w in ("--is", f"{n}=ticks")]
    )
    return [
        DataFinding(
            code="servo_ticks",
            severity=Severity.NOTE,
            sentence=(
                f"{len(ticks)} dimensions hold whole numbers within 0..4095 ({listed(ticks)}): raw servo"
                " ticks, not an angle unit"
            ),
            remedy=(
                "convert with the calibration (radians = (ticks - 2048) pi / 2048 when centred); statistics"
                " in ticks are off by x652 for radians; to say so once:"
                f" {answer_command(pooled.dataset, *stated)}"
            ),
            joints=tuple(ticks),
            numbers={"ticks_per_rad": 2048 / np.pi, "ticks_per_deg": 4096 / 360},
        )
    ]


def _undecided(pooled: Pooled, undecided: dict[str, NDArray[np.float64]], largest: float) -> DataFinding:
    at_limit = [n for n, v in undecided.items() if (np.abs(v) == 100.0).sum() >= 5]
    hint = (
        f"; {listed(at_limit)} sits at exactly 100.0, which makes the +-100 mode likely" if at_limit else ""
    )
    grippers = [n for n in (*pooled.action_names, *pooled.state_names) if is_gripper_name(n)]
    others = {*pooled.action_names, *pooled.state_names} - {*undecided, *grippers}

    def say(unit: str) -> list[str]:
        words = [w for n in undecided for w in ("--is", f"{n}={unit}")] if others else ["--is", f"*={unit}"]
        return [
            *words,
            *(("--is", "*gripper*=percent") if not others and any("gripper" in n for n in grippers) else ()),
        ]

    likely, other = ("range_100", "deg") if at_limit else ("deg", "range_100")
    return DataFinding(
        code="unit_mode_undecidable",
        severity=Severity.NOTE,
        sentence=(
            f"arm joints could be degrees or LeRobot's +-100 range mode (values within +-{largest:.1f});"
            f" info.json does not say{hint}"
        ),
        remedy=(
            "look up use_degrees of the recording, or compare one pose with the calibration, and answer"
            f" once: {answer_command(pooled.dataset, *say(likely))} (or ={other}); do not mix with data of"
            " the other mode"
        ),
        joints=tuple(undecided),
        numbers={"largest": largest, "candidates": ["deg", "range_100"]},
    )


def _undeclared(
    pooled: Pooled, groups: dict[str, list[str]], columns: dict[str, NDArray[np.float64]]
) -> DataFinding:
    parts = [f"{name} could be {' or '.join(c)}" for name, c in groups.items()]
    stated = _stated(
        groups,
        columns,
        {f"{pooled.dataset.action_key}[": "action:*", f"{pooled.dataset.state_key}[": "state:*"},
    )
    example = f", for example {answer_command(pooled.dataset, *stated)}" if stated else ""
    return DataFinding(
        code="units_undeclared",
        severity=Severity.NOTE,
        sentence=(
            f"{'info.json' if pooled.dataset.info.is_lerobot else 'the file'} states no units; from the"
            f" values, {listed(parts, 6)}"
        ),
        remedy=f"write the units down beside the dataset before mixing it with other data{example}",
        numbers={"candidates": groups},
    )


def _stated(
    groups: dict[str, list[str]], columns: dict[str, NDArray[np.float64]], unnamed: dict[str, str]
) -> list[str]:
    """Return options that state a possible unit of every dimension: the commonest for all, then those of the dimensions it does not fit.

    Args:
        groups: candidates of each limb.
        columns: values by name.
        unnamed: beginnings of the names of dimensions that are only numbered, and what stands for all of
            them.
    """
    likely: dict[str, str] = {}
    for name in columns:
        kind, limb = _limb(name)
        options = [c for c in groups.get(limb, []) if c not in (_COUNTS, _NONE) and " of " not in c]
        if options:
            likely[name] = "rad" if not kind and "rad" in options else options[0]
    if not likely:
        return []
    units = list(likely.values())
    usual = max(dict.fromkeys(units), key=units.count)
    others = {
        next((glob for start, glob in unnamed.items() if n.startswith(start)), n): u
        for n, u in likely.items()
        if u != usual
    }
    return [w for n, u in [("*", usual), *others.items()] for w in ("--is", f"{n}={_WORDS.get(u, u)}")]


def _columns(
    pooled: Pooled, action: NDArray[np.float64], state: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    """Return all values of each dimension, action and state of one name together."""
    parts: dict[str, list[NDArray[np.float64]]] = defaultdict(list)
    for names, values in ((pooled.action_names, action), (pooled.state_names, state)):
        for k, name in enumerate(names):
            parts[name].append(values[:, k])
    return {n: np.concatenate(v) for n, v in parts.items()}


def _is_ticks(values: NDArray[np.float64]) -> bool:
    return bool(
        (values == np.round(values)).all()
        and values.min() >= 0
        and 360 < values.max() <= 4095
        and len(np.unique(values)) > 16
    )


def _so101_arms(pooled: Pooled) -> set[str]:
    arms = set()
    for name in (*pooled.action_names, *pooled.state_names):
        if any(j in name for j in SO101_JOINTS[:-1]) and not re.search(r"vel|torque|current|load", name):
            arms.add(name)
    return arms


def _unit_groups(columns: dict[str, NDArray[np.float64]]) -> dict[str, list[str]]:
    """Return the units each limb could have: joints that differ in a number share theirs, so one wide joint decides for all."""
    largest: dict[str, float] = defaultdict(float)
    whole: dict[str, bool] = defaultdict(lambda: True)
    kinds: dict[str, str] = {}
    for name, values in columns.items():
        if np.ptp(values) == 0:
            continue
        kind, limb = _limb(name)
        kinds[limb] = kinds.get(limb) or kind
        largest[limb] = max(largest[limb], float(np.abs(values).max()))
        whole[limb] &= bool((values == np.round(values)).all())
    return {
        limb: _candidates(kinds[limb], top, is_whole=whole[limb]) for limb, top in sorted(largest.items())
    }


def _limb(name: str) -> tuple[str, str]:
    """Return of what kind a number is by its name, empty where that says nothing, and the limb whose other numbers share its unit."""
    if is_velocity_name(name):
        return "speed", f"speeds of {limb_of(re.sub(r'[._](vel|velocity)$', '', name))}"
    if _QUATERNION.search(name):
        return "quaternion", f"quaternion of {_QUATERNION.sub('', name)}".removesuffix(" of ")
    if is_cartesian(name):
        return "place", (
            limb_of(name)
            if "[" in name
            else re.sub(r"[._/]?[tp]?[xyz]([._](pos|position))?$", "", name) or "x, y, z"
        )
    if _ROTATION.search(name) and not _OF_A_JOINT.search(name):
        return "rotation", f"rotation of {_ROTATION.sub('', name)}".removesuffix(" of ")
    return ("jaws" if is_gripper_name(name) else ""), limb_of(name)


def _candidates(kind: str, top: float, *, is_whole: bool) -> list[str]:
    """Return the units in which a limb's largest number is possible; counts are whole, and lengths are no counts."""
    if kind == "place":
        return ["m"] * (top <= _LARGEST_M) + ["mm"] * (top > 1.0) or [_NONE]
    if kind == "speed":
        return ["rad/s"] * (top <= 30.0) + ["m/s"] * (top <= _LARGEST_M) + ["deg/s"] * (top > 1.0)
    if kind == "quaternion" and top <= 1.01:
        return ["normalised"]
    if kind == "rotation":
        return ["rad"] * (top <= 6.6) + ["deg"] * (top > 1.0)
    options = (
        ["normalised"] * (top <= 1.0)
        + ["rad"] * (top <= 6.6)
        + [_PERCENT] * (1.0 < top <= 100.5)
        + ["deg"] * (1.0 < top <= 360)
    )
    if is_whole and top > 100.5:
        return [_COUNTS]
    if kind == "jaws":
        options += ["m"] * (top <= _WIDEST_M) + ["mm"] * (1.0 < top <= 1e3 * _WIDEST_M)
    return options or ["mm", "deg of several turns"]


def limb_of(name: str) -> str:
    """Return what joints of one limb share of their names: ``left.joint_1.pos`` is of ``left``, ``actions[3]`` of ``actions``."""
    if unnamed := re.fullmatch(r"(.+)\[\d+\]", name):
        return unnamed[1]
    plain = re.sub(r"[._](pos|position)$", "", name)
    limb = re.sub(r"[._/]?(?:joint|axis|motor|dim|j)?[._]?\d+$", "", plain)
    return limb or re.sub(r"[._]?\d+$", "", plain) or name

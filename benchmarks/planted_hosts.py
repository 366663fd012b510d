"""Recordings that convention faults are planted in: real ones where they lie beside the project, ours, and made-up arms of every kind."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.pooled import Pooled, pool
from simgap.conventions import SO101_JOINTS, Dimension, Unit, VectorSpec
from simgap.episodes.reader import open_dataset
from simgap.episodes.write.store import DatasetSpec, EpisodeWriter
from simgap.provenance import Stamp
from simgap.types import Episode, Outcome

Array = NDArray[np.float64]
SHARED = Path(__file__).parents[2] / "shared"
FREE = 1e6
"""A limit that nothing reaches: formats of other recorders state none."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """A recording whose own findings are known."""

    name: str
    pooled: Pooled
    degree: float
    """How much of the joints' unit is one degree."""
    arms: tuple[str, ...]
    """Joints that turn."""
    grippers: tuple[str, ...]
    is_so101: bool = True
    """Whether what is known of the lag of SO-101 arms holds of it."""
    known: frozenset[str] = frozenset()
    """Codes above a note that its source says are true of it."""

    @property
    def joints(self) -> tuple[str, ...]:
        """All joints that move."""
        return (*self.arms, *self.grippers)


@dataclass
class Arrays:
    """Numbers of a made-up recording."""

    names: tuple[str, ...]
    rate_hz: float
    actions: list[Array]
    states: list[Array]


def pooled_from(arrays: Arrays, folder: Path) -> Pooled:
    """Write a recording as another recorder would and read it."""
    dimensions = tuple(
        Dimension(name=n, unit=Unit.UNKNOWN, low=-FREE, high=FREE, is_gripper="gripper" in n)
        for n in arrays.names
    )
    vector = VectorSpec(dimensions=dimensions, rate_hz=arrays.rate_hz)
    stamp = Stamp(kind="dataset", fields={"engine": "none"})
    spec = DatasetSpec(
        name="host",
        action_spec=vector,
        state_spec=vector,
        cameras=(),
        image_size=(8, 8),
        rate_hz=arrays.rate_hz,
        stamp=stamp,
        task_default="pick",
        codec="png",
    )
    writer = EpisodeWriter(folder, spec)
    for k, (action, state) in enumerate(zip(arrays.actions, arrays.states, strict=True)):
        a, s = action.astype(np.float32), state.astype(np.float32)
        time_s = np.arange(len(a)) / arrays.rate_hz
        writer.write(
            k,
            Episode(
                images={}, state=s, action=a, time_s=time_s, outcome=Outcome.success(), task="pick", seed=k
            ),
        )
    writer.finish()
    (folder / "meta" / "simgap.json").unlink()
    return pool(open_dataset(folder))


# --- made-up arms ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A teleoperated arm: waypoints with pauses, a delay and a first-order servo, sag, play, an encoder, an object in the jaws."""

    episodes: int = 12
    rate_hz: float = 30.0
    seconds: float = 9.0
    sides: tuple[str, ...] = ("",)
    unit: str = "deg"
    lag_frames: float = 4.0
    sag: float = 1.5
    noise: float = 0.15
    step: float = 360.0 / 4096.0
    still_joint: int | None = None
    """A joint that hardly moves."""
    varied: float = 1.0
    """How much of the motion is drawn anew in each episode."""
    holds: bool = True
    """Whether the jaws close on something."""
    gripper_top: float = 100.0


_RANGES = ((-60, 60), (-80, 40), (-20, 80), (-30, 70), (-90, 60))


def made_up(arm: Arm, seed: int) -> Arrays:
    """Return a recording of an arm that does one task again and again."""
    rng = np.random.default_rng(seed)
    names = tuple(f"{side}{j}.pos" for side in arm.sides for j in SO101_JOINTS)
    plan = {n: _plan(rng, n) for n in names}
    actions, states = [], []
    for _ in range(arm.episodes):
        frames = max(40, round(arm.rate_hz * arm.seconds * rng.uniform(0.8, 1.3)))
        pairs = [
            _joint(
                arm,
                rng,
                n,
                plan[n],
                frames,
                is_still=arm.still_joint is not None and k % 6 == arm.still_joint,
            )
            for k, n in enumerate(names)
        ]
        actions.append(np.stack([a for a, _ in pairs], axis=1))
        states.append(np.stack([s for _, s in pairs], axis=1))
    return Arrays(names=names, rate_hz=arm.rate_hz, actions=actions, states=states)


def _plan(rng: np.random.Generator, name: str) -> Array:
    if "gripper" in name:
        return np.array([5.0, 70.0, 70.0, 8.0, 8.0, 60.0, 5.0])
    low, high = _RANGES[[j in name for j in SO101_JOINTS[:-1]].index(True)]
    middle = rng.uniform(low, high, 5)
    return np.concatenate([[low * 0.8], middle, [low * 0.8]])


def _joint(
    arm: Arm, rng: np.random.Generator, name: str, plan: Array, frames: int, *, is_still: bool
) -> tuple[Array, Array]:
    is_gripper = "gripper" in name
    points = plan + (0.0 if is_gripper else 1.0) * arm.varied * rng.normal(0, [0.8, 9, 9, 9, 9, 9, 0.8])
    if is_still:
        points = points[0] + 0.3 * rng.normal(size=len(points))
    margin = 80
    command = np.concatenate([np.full(margin, points[0]), _smooth(points, frames, rng)]) + rng.normal(0, 0.05)
    delay, pole = 0.5 * arm.lag_frames, np.exp(-1.0 / max(0.3, 0.5 * arm.lag_frames))
    grid = np.arange(frames + margin)
    late = np.interp(grid - delay, grid, command)
    state = np.empty_like(late)
    state[0] = late[0]
    floor = rng.uniform(18, 24) if is_gripper and arm.holds else -np.inf
    carries = (grid > margin + 0.4 * frames) & (grid < margin + 0.75 * frames)
    for t in range(1, len(late)):
        target = max(late[t], floor) if carries[t] else late[t]
        state[t] = pole * state[t - 1] + (1 - pole) * target
    if not is_gripper:
        state = state + (0.0 if is_still else arm.sag) * np.cos(np.radians(state)) * (
            0.3 + 0.7 * ("lift" in name or "elbow" in name)
        )
    command, state = command[margin:], state[margin:]
    state = np.round((state + rng.normal(0, arm.noise, frames)) / arm.step) * arm.step
    command = np.round(command / arm.step) * arm.step
    if is_gripper:
        scale = arm.gripper_top / 100.0
        return command * scale, state * scale
    factor = {"deg": 1.0, "rad": np.pi / 180, "ticks": 4096 / 360, "range_100": 100 / 110}[arm.unit]
    return (
        (command * factor, state * factor)
        if arm.unit != "ticks"
        else (np.round(command * factor) + 2048, np.round(state * factor) + 2048)
    )


def _smooth(points: Array, frames: int, rng: np.random.Generator) -> Array:
    """Return minimum-jerk moves between points with pauses between them."""
    shares = rng.uniform(0.7, 1.3, len(points) - 1)
    edges = np.concatenate([[0], np.cumsum(shares)]) / shares.sum() * (frames - 1)
    path = np.empty(frames)
    for k in range(len(points) - 1):
        low, high = int(edges[k]), int(edges[k + 1]) + 1
        t = np.clip((np.arange(low, high) - low) / max(1, 0.8 * (high - low)), 0, 1)
        path[low:high] = points[k] + (points[k + 1] - points[k]) * (10 * t**3 - 15 * t**4 + 6 * t**5)
    return path


ARMS: dict[str, Arm] = {
    "arm, 12 episodes, 30 Hz": Arm(),
    "arm, 3 episodes": Arm(episodes=3),
    "arm, 6 episodes, 10 Hz, rad": Arm(episodes=6, rate_hz=10, lag_frames=1.4, unit="rad", seconds=14),
    "arm, 1 episode of 40 s": Arm(episodes=1, seconds=40),
    "arm, 40 episodes, 50 Hz": Arm(episodes=40, rate_hz=50, lag_frames=5, seconds=6),
    "two arms, 8 episodes, still wrist": Arm(episodes=8, sides=("left_", "right_"), still_joint=4),
    "arm, -100..100, gripper 0..1": Arm(episodes=10, unit="range_100", gripper_top=1.0),
    "arm in ticks, 20 Hz, 5 episodes": Arm(episodes=5, unit="ticks", rate_hz=20, lag_frames=2),
    "arm, nothing held, one motion": Arm(episodes=15, holds=False, varied=0.15),
}


# --- real ones -------------------------------------------------------------------------------------------------------


def _sage(folder: Path) -> Arrays:
    """Return the actuator logs as episodes of one recording."""
    names, actions, states = ("Rotation", "Pitch", "Elbow", "Wrist_Pitch", "Wrist_Roll", "Jaw"), [], []
    for motion in sorted(p for p in folder.iterdir() if p.is_dir()):
        sides = [_csv_positions(motion / f) for f in ("control.csv", "state_motor.csv")]
        n = min(len(s) for s in sides)
        actions.append(sides[0][:n])
        states.append(sides[1][:n])
    return Arrays(names=names, rate_hz=50.0, actions=actions, states=states)


def _csv_positions(path: Path) -> Array:
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return np.array([[float(v) for v in row["positions"].strip("[]").split(",")] for row in rows])


def _part(pooled: Pooled, episodes: Sequence[int]) -> Pooled:
    """Return a few episodes of a recording."""
    return replace(
        pooled,
        episodes=tuple(pooled.episodes[k] for k in episodes),
        indices=tuple(pooled.indices[k] for k in episodes),
    )


def _host(
    name: str,
    pooled: Pooled,
    degree: float,
    known: Sequence[str] = (),
    is_arm: Callable[[str], bool] = lambda n: True,
) -> Host:
    grippers = tuple(j.name for j in pooled.joints if j.is_gripper)
    moving = [
        j.name
        for j in pooled.joints
        if min(
            np.ptp(np.concatenate(side)[:, k])
            for side, k in ((pooled.actions, j.action), (pooled.states, j.state))
        )
        > 0
    ]
    arms = tuple(n for n in moving if n not in grippers and is_arm(n))
    return Host(
        name=name,
        pooled=pooled,
        degree=degree,
        arms=arms,
        grippers=tuple(g for g in grippers if g in moving),
        known=frozenset(known),
        is_so101="hands" not in name,
    )


def hosts(work: Path, arm_pick: Path | None = None) -> Iterator[Host]:
    """Yield every host there is: the made-up arms, ours where it was generated, and the real ones where they lie beside the project."""
    for k, (name, arm) in enumerate(ARMS.items()):
        degree = {"deg": 1.0, "rad": np.pi / 180, "ticks": 4096 / 360, "range_100": 100 / 110}[arm.unit]
        yield _host(name, pooled_from(made_up(arm, 100 + k), work / f"arm_{k}"), degree)
    if arm_pick is not None:
        yield _host("arm-pick of ours, 20 episodes", pool(open_dataset(arm_pick)), 1.0)
    data, cases = SHARED / "data", SHARED / "cases"
    if (cases / "healthy_so101").is_dir():
        yield _host("healthy SO-101 case, 12 episodes", pool(open_dataset(cases / "healthy_so101")), 1.0)
    if not data.is_dir():
        return
    test = pool(open_dataset(data / "lerobot_so101_record_test_v30"))
    seen = ("saturation", "idle_start")
    yield _host("SO-101 record test, 4 episodes", test, 1.0, seen)
    yield _host("SO-101 record test, 1 episode", _part(test, [1]), 1.0, seen)
    cloth = pool(open_dataset(data / "lerobot_so101_bimanual_cloth_v21"))
    relabelled = ("action_is_next_state", "servo_ticks")
    yield _host("two SO-101 guided by hand, 25 episodes", cloth, 4096 / 360, relabelled)
    yield _host("two SO-101 guided by hand, 5 episodes", _part(cloth, range(5)), 4096 / 360, relabelled)
    hands = pool(open_dataset(data / "lerobot_dualarm_hands_open50_v30"))
    late = (
        "long_lag",
        "state_echoes_action",
        "static_offset",
        "saturation",
        "dead_dimensions",
        "state_unrelated",
        "scale_mismatch",
    )
    yield _host("two arms with hands, 50 episodes", hands, 1.0, late, lambda n: "hand" not in n)
    yield _host(
        "two arms with hands, 6 episodes", _part(hands, range(10, 16)), 1.0, late, lambda n: "hand" not in n
    )
    yield _host(
        "actuator logs, 8 motions",
        pooled_from(_sage(data / "sage_so101_actuator_logs"), work / "sage"),
        np.pi / 180,
    )

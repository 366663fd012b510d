"""Healthy recordings of many kinds, as other people's recorders write them: on none of them may a check speak above a note.

Each host is a function that writes one into an empty folder. ``benchmarks/false_alarms.py`` and
``test_false_alarms.py`` read this list.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from format_builders import CONTROLLER, jpeg, write_robomimic, write_tub
from simgap.episodes.edit.convert import Target, convert_dataset
from simgap.episodes.formats.keymap import KeyMap
from simgap.episodes.formats.layout import DATA_PATH_30, VIDEO_PATH_30
from simgap.episodes.reader import open_dataset
from simgap.episodes.write.encoders import Encoding, VideoEncoder

Array = NDArray[np.float64]
SO101 = tuple(
    f"{j}.pos" for j in ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
)
ENCODER = 360 / 4096


def motion(
    rng: np.random.Generator, length: int, low: Sequence[float], high: Sequence[float], rate_hz: float
) -> Array:
    """Return smooth moves between random poses with rests between them, ``(length, D)``."""
    result = np.empty((length, len(low)))
    place, pose = 0, rng.uniform(low, high)
    home = pose
    while place < length:
        target = rng.uniform(low, high) if place < 0.7 * length else home
        moving, resting = int(rng.uniform(0.6, 1.3) * rate_hz), int(rng.uniform(0.1, 0.5) * rate_hz)
        phase = np.linspace(0, 1, moving)[:, None]
        part = np.concatenate(
            [
                pose + (target - pose) * phase**3 * (10 - 15 * phase + 6 * phase**2),
                np.repeat(target[None], resting, axis=0),
            ]
        )
        result[place : place + len(part)] = part[: length - place]
        place, pose = place + len(part), target
    return result


def followed(command: Array, lag: int, rng: np.random.Generator, step: float = ENCODER) -> Array:
    """Return what encoders of a joint that follows ``lag`` frames later read."""
    late = np.concatenate([np.repeat(command[:1], lag, axis=0), command])[: len(command)]
    return np.round((late + rng.normal(0, 0.03 * step / ENCODER, late.shape)) / step) * step


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A LeRobot v3.0 recording of an arm; every field can be another."""

    seed: int = 5
    lengths: tuple[int, ...] = (240, 210, 260, 225, 250, 235)
    rate_hz: float = 30.0
    names: tuple[str, ...] = SO101
    state_names: tuple[str, ...] | None = None
    low: tuple[float, ...] = (-60.0, -80.0, 10.0, 20.0, -70.0, 3.0)
    high: tuple[float, ...] = (60.0, 10.0, 85.0, 80.0, 70.0, 60.0)
    lag: int = 4
    step: float = ENCODER
    task: str = "pick up the cube"
    cameras: tuple[str, ...] = ()
    size: int = 48
    change: Callable[[Array, Array, np.random.Generator], tuple[Array, Array]] = field(
        default=lambda a, s, rng: (a, s)
    )
    times: Callable[[int, int, np.random.Generator], Array] | None = None
    """Stamps of an episode from its number and length; positional by default."""
    keys: tuple[str, str] = ("action", "observation.state")

    def write(self, root: Path) -> Path:
        """Write it as LeRobot does: one data file, one video file per camera."""
        rng = np.random.default_rng(self.seed)
        made = []
        for length in self.lengths:
            command = motion(rng, length, self.low, self.high, self.rate_hz)
            made.append(self.change(command, followed(command, self.lag, rng, self.step), rng))
        starts = np.concatenate([[0], np.cumsum(self.lengths)])
        rows: list[dict[str, Any]] = []
        tables = []
        for k, (action, state) in enumerate(made):
            n = len(action)
            times = np.arange(n) / self.rate_hz if self.times is None else self.times(k, n, rng)
            columns = {name: _vectors(v) for name, v in zip(self.keys, (action, state), strict=True)}
            numbers = {
                "frame_index": np.arange(n),
                "episode_index": np.full(n, k),
                "index": starts[k] + np.arange(n),
                "task_index": np.zeros(n, int),
            }
            stamps = pa.array(times.astype(np.float32))
            tables.append(
                pa.table(
                    columns
                    | {"timestamp": stamps}
                    | {name: pa.array(v, pa.int64()) for name, v in numbers.items()}
                )
            )
            place = {
                "data/chunk_index": 0,
                "data/file_index": 0,
                "dataset_from_index": int(starts[k]),
                "dataset_to_index": int(starts[k + 1]),
            }
            rows.append({"episode_index": k, "tasks": [self.task], "length": n} | place)
        for camera in self.cameras:
            self._film(root, camera, made, rows)
        _save(pa.concat_tables(tables), root / DATA_PATH_30.format(chunk_index=0, file_index=0))
        _save(pa.Table.from_pylist(rows), root / "meta/episodes/chunk-000/file-000.parquet")
        _save(pa.table({"task_index": [0], "task": [self.task]}), root / "meta/tasks.parquet")
        (root / "meta/info.json").write_text(
            json.dumps(self._info(int(starts[-1]), made[0]), ensure_ascii=False), encoding="utf-8"
        )
        (root / "meta/stats.json").write_text(
            json.dumps({key: _statistics([m[i] for m in made]) for i, key in enumerate(self.keys)})
        )
        return root

    def _film(
        self, root: Path, camera: str, made: list[tuple[Array, Array]], rows: list[dict[str, Any]]
    ) -> None:
        rng = np.random.default_rng(9)
        key = f"observation.images.{camera}"
        path = root / VIDEO_PATH_30.format(video_key=key, chunk_index=0, file_index=0)
        path.parent.mkdir(parents=True, exist_ok=True)
        scene = rng.integers(40, 200, (self.size, self.size, 3))
        films = [self._scene(scene, state, camera, rng) for _, state in made]
        path.write_bytes(
            VideoEncoder("h264", Encoding(crf=12, keyframe_every=10), self.rate_hz).encode(
                np.concatenate(films)
            )
        )
        ends = np.concatenate([[0], np.cumsum(self.lengths)]) / self.rate_hz
        for k, row in enumerate(rows):
            row |= {f"videos/{key}/{n}": v for n, v in {"chunk_index": 0, "file_index": 0}.items()}
            row |= {
                f"videos/{key}/from_timestamp": float(ends[k]),
                f"videos/{key}/to_timestamp": float(ends[k + 1]),
            }

    def _scene(
        self, scene: NDArray[Any], state: Array, camera: str, rng: np.random.Generator
    ) -> NDArray[np.uint8]:
        """Return a still background with a bright square that moves with the first joints, and sensor noise."""
        frames = np.repeat(np.repeat(scene[::6, ::6], 6, axis=0), 6, axis=1)[: self.size, : self.size]
        frames = np.repeat(frames[None], len(state), axis=0).astype(np.float64)
        if camera == "wrist":
            frames = frames[..., ::-1] * 0.8
        span = np.ptp(state, axis=0) + 1e-9
        x, y = (((state[:, j] - state[:, j].min()) / span[j] * (self.size - 14)).astype(int) for j in (0, 1))
        for k in range(len(state)):
            frames[k, y[k] : y[k] + 12, x[k] : x[k] + 12] = (
                (240, 200, 60) if camera != "wrist" else (60, 90, 230)
            )
        return np.clip(frames + rng.normal(0, 4, frames.shape), 0, 255).astype(np.uint8)

    def _info(self, frames: int, first: tuple[Array, Array]) -> dict[str, Any]:
        scalars = {
            "timestamp": "float32",
            "frame_index": "int64",
            "episode_index": "int64",
            "index": "int64",
            "task_index": "int64",
        }
        features: dict[str, Any] = {n: {"dtype": d, "shape": [1], "names": None} for n, d in scalars.items()}
        for key, names, values in zip(
            self.keys, (self.names, self.state_names or self.names), first, strict=True
        ):
            features[key] = {"dtype": "float32", "shape": [values.shape[1]], "names": list(names)}
        for camera in self.cameras:
            features[f"observation.images.{camera}"] = {
                "dtype": "video",
                "shape": [self.size, self.size, 3],
                "names": ["height", "width", "channels"],
            }
        described = {
            "codebase_version": "v3.0",
            "fps": self.rate_hz,
            "total_episodes": len(self.lengths),
            "total_frames": frames,
            "chunks_size": 1000,
        }
        described |= {
            "robot_type": "so101_follower",
            "features": features,
            "data_path": DATA_PATH_30,
            "video_path": VIDEO_PATH_30,
        }
        return described | {"total_tasks": 1, "splits": {"train": f"0:{len(self.lengths)}"}}


def _vectors(values: Array) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(values.astype(np.float32).reshape(-1)), values.shape[1])


def _save(table: pa.Table, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def _statistics(values: list[Array]) -> dict[str, Any]:
    pooled = np.concatenate(values).astype(np.float32).astype(np.float64)
    found: dict[str, Any] = {
        "mean": pooled.mean(0),
        "std": pooled.std(0),
        "min": pooled.min(0),
        "max": pooled.max(0),
    }
    found |= {f"q{round(100 * q):02d}": np.quantile(pooled, q, axis=0) for q in (0.01, 0.1, 0.5, 0.9, 0.99)}
    return {k: v.tolist() for k, v in found.items()} | {"count": [len(pooled)]}


# --- oddities that are nobody's fault --------------------------------------------------------------------------------------


def _object_in_the_jaws(action: Array, state: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    state[:, 5] = np.maximum(state[:, 5], 18.0 + rng.normal(0, 0.05, len(state)))
    return action, state


def _sag(action: Array, state: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    state[:, 1] += 1.2
    state[:, 2] += 1.5
    return action, state


def _at_the_stop(action: Array, state: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    return np.minimum(action, [1e3, 1e3, 82.0, 1e3, 1e3, 1e3]), np.minimum(
        state, [1e3, 1e3, 82.0, 1e3, 1e3, 1e3]
    )


def _beyond_the_stop(action: Array, state: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    return action, np.minimum(state, [1e3, 1e3, 80.0, 1e3, 1e3, 1e3])


def _unused_wrist(action: Array, state: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    action[:, 4], state[:, 4] = 12.0, 12.0
    return action, state


def _steps(action: Array, state: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    return np.diff(action, axis=0, prepend=action[:1]), state


def _velocities(action: Array, state: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return velocities per second for all but the gripper; the state is where they lead, two frames later."""
    speed = np.gradient(action, 1 / 30, axis=0)
    return np.concatenate([speed[:, :-1], action[:, -1:]], axis=1), state


def _padded(action: Array, state: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    return np.pad(action, ((0, 0), (0, 26))), np.pad(state, ((0, 0), (0, 26)))


def _binary_gripper(action: Array, state: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    closed = action[:, 5] < 30
    action[:, 5] = np.where(closed, 0.0, 1.0)
    state[:, 5] = np.convolve(np.pad(action[:, 5], (8, 0), mode="edge"), np.ones(9) / 9, mode="valid")[
        : len(action)
    ]
    return action, state


def _with_velocities(action: Array, state: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    return action, np.concatenate([state, np.gradient(state, 1 / 30, axis=0)], axis=1)


def parked(action: Array, state: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Park the first arm: nobody commands it, and its encoders flicker by one step."""
    action[:, :6] = [-3.0, -98.0, 97.0, 70.0, 1.5, 1.2]
    state[:, :6] = np.round(
        (action[:, :6] + [0.3, 1.1, -0.4, 0.6, 0.0, 0.9]) / ENCODER
    ) * ENCODER + rng.choice([0.0, 0.0, ENCODER], (len(state), 6))
    return action, state


def _driving(action: Array, state: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Drive by keys beside the arm: the speed is full at once, in the very first frames too."""
    speed = np.repeat(rng.choice([-1.0, 0.0, 1.0], (len(action) // 25 + 1, 3)), 25, axis=0)[: len(action)] * [
        0.2,
        0.2,
        60.0,
    ]
    measured = np.concatenate([np.zeros((3, 3)), speed])[: len(speed)]
    measured = 0.95 * measured + (measured != 0) * rng.normal(0, [0.003, 0.003, 0.6], measured.shape)
    return np.concatenate([action[:, :6], speed], axis=1), np.concatenate([state[:, :6], measured], axis=1)


def _step_of_pose(action: Array, state: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Command differences of a pose and a jaw that is open or closed; measure pose and two fingers."""
    step = np.clip(6 * np.diff(action[:, :6], axis=0, append=action[-1:, :6]) / 60, -0.94, 0.94)
    jaw = np.where(action[:, 5:] > 30, 1.0, -1.0)
    pose = np.cumsum(0.02 * step, axis=0) + rng.normal(0, 1e-4, step.shape)
    return np.concatenate([step, jaw], axis=1), np.concatenate([pose, 0.02 * jaw, -0.02 * jaw], axis=1)


def _busy_clock(k: int, n: int, rng: np.random.Generator) -> Array:
    steps = np.maximum(1 / 30 + rng.normal(0, 0.003, n), 0.02)
    steps[rng.integers(0, n, 1)] += 0.15 if k == 2 else 0.0
    return np.cumsum(steps) - steps[0]


DELTAS = KeyMap(dimensions={"action:*": {"reference": "delta", "unit": "deg"}, "state:*": {"unit": "deg"}})
TWO_ARMS = tuple(f"{side}_{n}" for side in ("left", "right") for n in SO101)
FRANKA = (*(f"joint_{k}" for k in range(1, 8)), "gripper")
BASE = Arm()
ARMS: dict[str, Arm] = {
    "SO-101, degrees, positional stamps": BASE,
    "two cameras": replace(BASE, cameras=("front", "wrist")),
    "one camera": replace(BASE, cameras=("front",)),
    "60 fps": replace(BASE, rate_hz=60.0, lag=8, lengths=(480, 420, 500, 450)),
    "10 fps": replace(BASE, rate_hz=10.0, lag=1, lengths=(90, 100, 80, 95, 110)),
    "three episodes": replace(BASE, lengths=(300, 280, 310)),
    "one episode": replace(BASE, lengths=(400,)),
    "task in Chinese": replace(BASE, task="把红色方块放进盒子"),
    "task in French with accents": replace(BASE, task="déposer la pièce à côté de la boîte"),
    "an object in the jaws": replace(BASE, change=_object_in_the_jaws),
    "gravity sag of 1.5 degrees": replace(BASE, change=_sag),
    "a joint at its stop": replace(BASE, change=_at_the_stop),
    "a command a little beyond the joint's stop": replace(BASE, change=_beyond_the_stop),
    "a joint that the task does not use": replace(BASE, change=_unused_wrist),
    "openpi's padding to 32": replace(BASE, change=_padded, names=(*SO101, *(f"pad_{k}" for k in range(26)))),
    "openpi's keys": replace(BASE, keys=("actions", "state")),
    "a binary gripper": replace(BASE, change=_binary_gripper),
    "state with velocities": replace(
        BASE, change=_with_velocities, state_names=(*SO101, *(n.replace(".pos", ".vel") for n in SO101))
    ),
    "real clock of a busy loop": replace(BASE, times=_busy_clock),
    "lag of 5 frames": replace(BASE, lag=5),
    "episodes of 100 to 500 frames": replace(BASE, lengths=(100, 500, 180, 320, 260, 240)),
    "two arms": replace(BASE, names=TWO_ARMS, low=BASE.low * 2, high=BASE.high * 2),
    "radians, seven joints": replace(
        BASE,
        names=FRANKA,
        low=(-1.5, -1.2, -1.0, -2.5, -1.0, 1.0, -1.0, 0.0),
        high=(1.5, 1.2, 1.0, -0.8, 1.0, 2.8, 1.0, 0.08),
        step=1e-4,
        lag=2,
    ),
    "velocities by name": replace(
        BASE,
        names=(*(f"joint_{k}.vel" for k in range(1, 8)), "gripper.pos"),
        state_names=(*(f"joint_{k}.pos" for k in range(1, 8)), "gripper.pos"),
        low=(-1.5, -1.2, -1.0, -2.5, -1.0, 1.0, -1.0, 0.0),
        high=(1.5, 1.2, 1.0, -0.8, 1.0, 2.8, 1.0, 0.08),
        step=1e-4,
        lag=2,
        change=_velocities,
    ),
    "poses in millimetres": replace(
        BASE,
        names=("x", "y", "z", "roll", "pitch", "yaw", "gripper"),
        low=(150.0, -300.0, 20.0, -180.0, -40.0, -90.0, 0.0),
        high=(520.0, 300.0, 380.0, -120.0, 40.0, 90.0, 85.0),
        step=0.01,
        lag=3,
    ),
    "poses in whole millimetres": replace(
        BASE,
        names=("tcp.x", "tcp.y", "tcp.z", "tcp.rx", "tcp.ry", "tcp.rz", "gripper"),
        low=(150.0, 100.0, 420.0, -1.5, -1.0, -1.2, 0.0),
        high=(820.0, 700.0, 780.0, 1.5, 1.0, 1.2, 1.0),
        step=1e-4,
        lag=3,
        change=lambda a, s, rng: tuple(
            np.concatenate([np.round(v[:, :3]), v[:, 3:]], axis=1) for v in (a, s)
        ),  # type: ignore[arg-type, return-value]
    ),
    "leader and follower names": replace(
        BASE, names=tuple(f"leader_{n}" for n in SO101), state_names=tuple(f"follower_{n}" for n in SO101)
    ),
    "an arm that stays parked": replace(
        BASE, names=TWO_ARMS, low=BASE.low * 2, high=BASE.high * 2, change=parked
    ),
    "a mobile base that starts at once": replace(
        BASE, names=(*(f"arm_{n}" for n in SO101), "x.vel", "y.vel", "theta.vel"), change=_driving
    ),
    "one name for a whole vector": replace(
        BASE,
        keys=("actions", "state"),
        rate_hz=10.0,
        names=("actions",),
        state_names=("state",),
        change=_step_of_pose,
    ),
    "joint state, pose action": replace(
        BASE,
        names=("x", "y", "z", "roll", "pitch", "yaw"),
        state_names=SO101,
        change=lambda a, s, rng: (0.005 * (a - a.mean(0)) @ np.random.default_rng(1).normal(size=(6, 6)), s),
    ),
}


def _declared_velocities(root: Path) -> Path:
    """Write velocities under the names of the joints, as a robot's driver calls both; their owner says what they are."""
    names = tuple(n.replace(".vel", "").replace(".pos", "") for n in ARMS["velocities by name"].names)
    replace(ARMS["velocities by name"], names=names, state_names=names).write(root)
    said = KeyMap(
        dimensions={
            "action:joint_*": {"unit": "rad/s"},
            "state:joint_*": {"unit": "rad"},
            "*gripper": {"unit": "m"},
        }
    )
    (root / "simgap-map.json").write_text(json.dumps(said.to_json()))
    return root


def _declared_deltas(root: Path) -> Path:
    replace(BASE, change=_steps).write(root)
    (root / "simgap-map.json").write_text(json.dumps(DELTAS.to_json()))
    return root


# --- other formats ---------------------------------------------------------------------------------------------------------


def aloha(
    root: Path,
    *,
    compressed: bool = False,
    change: Callable[[Array, Array, np.random.Generator], tuple[Array, Array]] | None = None,
) -> Path:
    """Write two arms as ALOHA does, with something else in them where asked."""
    root.mkdir(parents=True)
    rng = np.random.default_rng(2)
    low, high = [-1.5, -1.2, 0.2, -1.0, -1.0, -1.0, 0.0] * 2, [1.5, 0.5, 1.5, 1.0, 1.0, 1.0, 1.0] * 2
    for k in range(4):
        command = motion(rng, 200 + 10 * k, low, high, 50.0)
        state = followed(command, 3, rng, 1.5e-3)
        command, state = change(command, state, rng) if change is not None else (command, state)
        with h5py.File(root / f"episode_{k}.hdf5", "w") as file:
            file.attrs["sim"] = False
            file["action"], file["observations/qpos"] = command.astype(np.float32), state.astype(np.float32)
            file["observations/qvel"] = np.gradient(state, 0.02, axis=0).astype(np.float32)
            film = BASE._scene(np.random.default_rng(9).integers(40, 200, (48, 48, 3)), state, "front", rng)
            file["observations/images/cam_high"] = _table([jpeg(f) for f in film]) if compressed else film
    said = {"rate_hz": 50} | ({"images": {"cam_high": "rgb"}} if compressed else {})
    (root / "simgap-map.json").write_text(json.dumps(said))
    return root


def _table(blobs: list[bytes]) -> NDArray[np.uint8]:
    table = np.zeros((len(blobs), max(map(len, blobs))), dtype=np.uint8)
    for k, blob in enumerate(blobs):
        table[k, : len(blob)] = np.frombuffer(blob, dtype=np.uint8)
    return table


def _robomimic(root: Path, **controller: Any) -> Path:
    root.mkdir(parents=True)
    write_robomimic(root / "demos.hdf5", (60, 55, 71), controller=CONTROLLER | controller, cameras=())
    return root / "demos.hdf5"


def drive(
    root: Path,
    sessions: Sequence[tuple[str | None, int]] = (("23-11-14_0", 150), ("23-11-14_1", 130)),
    *,
    pause: bool = False,
    **options: Any,
) -> Path:
    """Write a drive: smooth steering, pictures of a road that moves with it."""
    write_tub(root, sessions, **options)
    rng = np.random.default_rng(4)
    total = sum(n for _, n in sessions)
    angle = np.clip(np.cumsum(rng.normal(0, 0.08, total)) * 0.4, -1, 1)
    scene = rng.integers(60, 180, (24, 24, 3))
    film = replace(BASE, size=24)._scene(
        scene, np.stack([angle, np.cumsum(np.ones(total))], axis=1), "front", rng
    )
    for catalog in root.glob("*.catalog"):
        rows = [json.loads(line) for line in catalog.read_text().splitlines()]
        for row in rows:
            row["user/angle"], row["user/throttle"] = float(angle[row["_index"]]), 0.35
            row["_timestamp_ms"] += int(rng.normal(0, 1.5)) + (4000 * (row["_index"] // 40) if pause else 0)
            (root / "images" / row["cam/image_array"]).write_bytes(jpeg(film[row["_index"]]))
        catalog.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


def _forward(root: Path) -> Path:
    """Write a drive from standing to full throttle and back, never in reverse."""
    drive(root)
    for catalog in root.glob("*.catalog"):
        rows = [json.loads(line) for line in catalog.read_text().splitlines()]
        rows = [
            row | {"user/throttle": float(np.clip(0.5 - 0.8 * np.cos(row["_index"] / 25), 0, 1))}
            for row in rows
        ]
        catalog.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


def _composite(root: Path) -> Path:
    """Write demonstrations of a composite controller whose inputs reach their ends."""
    root.mkdir(parents=True)
    body = {
        "type": "BASIC",
        "body_parts": {"right": CONTROLLER | {"input_type": "delta", "gripper": {"type": "GRIP"}}},
    }
    write_robomimic(root / "demos.hdf5", (60, 55, 71), controller=body, cameras=())
    with h5py.File(root / "demos.hdf5", "r+") as file:
        for demo in file["data"].values():
            demo["actions"][...] = np.clip(2 * demo["actions"][...], -1, 1)
    return root / "demos.hdf5"


def _generated(env: str) -> Callable[[Path], Path]:
    def make(root: Path) -> Path:
        from simgap.cli import main

        assert (
            main(
                ["generate", env, "-n", "6", "--size", "32", "--out", str(root), "--workers", "0", "--quiet"]
            )
            == 0
        )
        return root

    return make


def older(root: Path, arm: Arm = BASE) -> Path:
    """Write an arm as LeRobot v2.1: a file per episode, statistics per episode."""
    newer = arm.write(root.with_name(root.name + "-v30"))
    dataset = open_dataset(newer)
    info = json.loads((newer / "meta" / "info.json").read_text())
    info |= {
        "codebase_version": "v2.1",
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "total_chunks": 1,
    }
    info["video_path"] = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
    (root / "meta").mkdir(parents=True)
    lines: dict[str, list[str]] = {"episodes": [], "episodes_stats": []}
    for entry in dataset.entries:
        table = dataset.table(entry.index)
        _save(table, root / f"data/chunk-000/episode_{entry.index:06d}.parquet")
        lines["episodes"].append(
            json.dumps({"episode_index": entry.index, "tasks": list(entry.tasks), "length": entry.length})
        )
        columns = dataset.columns(entry.index)
        stats = {
            key: _statistics([np.asarray(v, dtype=np.float64).reshape(len(v), -1)])
            for key, v in columns.items()
        }
        kept = {key: {n: v for n, v in s.items() if not n.startswith("q")} for key, s in stats.items()}
        lines["episodes_stats"].append(json.dumps({"episode_index": entry.index, "stats": kept}))
    for name, text in lines.items():
        (root / "meta" / f"{name}.jsonl").write_text("\n".join(text) + "\n")
    (root / "meta" / "tasks.jsonl").write_text(json.dumps({"task_index": 0, "task": BASE.task}) + "\n")
    (root / "meta" / "info.json").write_text(json.dumps(info))
    return root


Host = Callable[[Path], Path]
OTHERS: dict[str, Host] = {
    "deltas that their owner declares": _declared_deltas,
    "velocities that their owner declares": _declared_velocities,
    "LeRobot v2.1": older,
    "ALOHA HDF5, raw frames": aloha,
    "ALOHA HDF5, JPEG": lambda root: aloha(root, compressed=True),
    "robomimic, pose differences": _robomimic,
    "robomimic, absolute poses": lambda root: _robomimic(root, control_delta=False),
    "tub of two sessions": drive,
    "tub with pauses": lambda root: drive(root, pause=True),
    "tub without session numbers": lambda root: drive(root, ((None, 200),)),
    "tub with deleted records": lambda root: drive(root, deleted=(40, 41, 42)),
    "tub whose driver only goes forward": _forward,
    "a composite controller": _composite,
    "tub with an IMU": lambda root: drive(root, **{"imu/acl_x": [0.01 * k for k in range(280)]}),
    "our arm-pick": _generated("arm-pick"),
    "our car-goal": _generated("car-goal"),
}


def _converted(source: Host, **options: Any) -> Host:
    def make(root: Path) -> Path:
        dataset = open_dataset(source(root.with_name(root.name + "-source")))
        return convert_dataset(dataset, root, Target(task="do it", codec="h264", **options)).root

    return make


HOSTS: dict[str, Host] = {name: arm.write for name, arm in ARMS.items()} | OTHERS
HOSTS |= {
    f"{name}, converted": _converted(HOSTS[name])
    for name in (
        "SO-101, degrees, positional stamps",
        "two cameras",
        "real clock of a busy loop",
        "an object in the jaws",
        "LeRobot v2.1",
    )
}
HOSTS |= {
    f"{name}, converted": _converted(HOSTS[name])
    for name in ("ALOHA HDF5, raw frames", "robomimic, pose differences", "tub with pauses", "our arm-pick")
}
HOSTS |= {
    f"{name}, converted": _converted(HOSTS[name])
    for name in ("velocities that their owner declares", "poses in millimetres")
}
HOSTS["tub of two sessions, converted with a made-up state"] = _converted(
    HOSTS["tub of two sessions"], state_from_action=True
)

"""Small datasets in other people's formats, built by hand as their recorders write them."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

HEIGHT, WIDTH = 16, 24


def colours(seed: int, length: int) -> NDArray[np.uint8]:
    """Frames of one flat colour each, red far from blue, ``(T, H, W, 3)``: JPEG keeps them to a few grey levels."""
    rng = np.random.default_rng(seed)
    shade = np.stack(
        [rng.integers(150, 250, length), rng.integers(80, 140, length), rng.integers(0, 60, length)], axis=1
    )
    return np.broadcast_to(shade[:, None, None].astype(np.uint8), (length, HEIGHT, WIDTH, 3)).copy()


def jpeg(frame: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, format="JPEG", quality=95)
    return buffer.getvalue()


def write_tub(
    root: Path,
    sessions: Sequence[tuple[str | None, int]] = (("s0", 12), ("s1", 8)),
    *,
    deleted: Sequence[int] = (),
    step_ms: float = 50.0,
    inputs: Sequence[str] = ("user/angle", "user/throttle"),
    per_catalog: int = 9,
    **extra: Any,
) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """Write a tub as donkeycar's ``TubWriter`` does, and return its ``(N, inputs)`` numbers and ``(N, H, W, 3)`` frames."""
    (root / "images").mkdir(parents=True)
    total = sum(n for _, n in sessions)
    rng = np.random.default_rng(7)
    numbers, frames = rng.uniform(-1, 1, (total, len(inputs))), colours(3, total)
    rows, stamp = [], 1_700_000_000_000
    for session, length in sessions:
        stamp += 60_000
        for _ in range(length):
            k = len(rows)
            name = f"{k}_cam_image_array_.jpg"
            (root / "images" / name).write_bytes(jpeg(frames[k]))
            row: dict[str, Any] = {
                "_index": k,
                "_timestamp_ms": int(stamp),
                "cam/image_array": name,
                "user/mode": "user",
            }
            if session is not None:
                row["_session_id"] = session
            rows.append(
                row
                | dict(zip(inputs, numbers[k].tolist(), strict=True))
                | {key: value[k] for key, value in extra.items()}
            )
            stamp += step_ms
    names = []
    for k in range(0, total, per_catalog):
        names.append(f"catalog_{k // per_catalog}.catalog")
        (root / names[-1]).write_text(
            "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows[k : k + per_catalog])
        )
    keys = ["cam/image_array", *inputs, "user/mode", *extra]
    kinds = ["image_array", *("float" for _ in inputs), "str", *("float" for _ in extra)]
    state = {"paths": names, "current_index": total, "max_len": per_catalog, "deleted_indexes": list(deleted)}
    lines = [
        keys,
        kinds,
        {"inputs": keys},
        {"created_at": 1.0, "sessions": {"all_full_ids": [s for s, _ in sessions]}},
        state,
    ]
    (root / "manifest.json").write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    return numbers, frames


def write_act(
    path: Path,
    seed: int = 0,
    length: int = 9,
    *,
    compressed: bool = False,
    cameras: Sequence[str] = ("cam_high", "cam_low"),
    width: int = 14,
) -> dict[str, Any]:
    """Write one episode as ACT's recorder does, and return what is in it."""
    import h5py

    rng = np.random.default_rng(seed)
    action, qpos, qvel = rng.normal(size=(3, length, width)).astype(np.float32)
    frames = {camera: colours(seed + k, length) for k, camera in enumerate(cameras)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file.attrs["sim"] = False
        file["action"] = action
        file["observations/qpos"] = qpos
        file["observations/qvel"] = qvel
        lengths = []
        for camera, images in frames.items():
            if not compressed:
                file[f"observations/images/{camera}"] = images
                continue
            blobs = [jpeg(image) for image in images]
            longest = max(map(len, blobs)) + 3
            table = np.zeros((length, longest), dtype=np.uint8)
            for k, blob in enumerate(blobs):
                table[k, : len(blob)] = np.frombuffer(blob, dtype=np.uint8)
            file[f"observations/images/{camera}"] = table
            lengths.append([len(blob) for blob in blobs])
        if compressed:
            file.attrs["compress"] = True
            # in the recorder's order of cameras, which is not the file's
            file["compress_len"] = np.array(lengths[::-1])
    return {"action": action, "qpos": qpos, "qvel": qvel, "images": frames}


CONTROLLER = {"type": "OSC_POSE", "input_max": 1, "input_min": -1, "control_delta": True}


def write_robomimic(
    path: Path,
    lengths: Sequence[int] = (7, 5, 11),
    *,
    controller: dict[str, Any] | None = None,
    cameras: Sequence[str] = ("agentview",),
) -> list[dict[str, Any]]:
    """Write demonstrations as robomimic keeps them, numbered so that sorting by name would be wrong, and return what is in them."""
    import h5py

    demos = []
    environment = {
        "env_name": "Lift",
        "type": 1,
        "env_kwargs": {
            "control_freq": 20,
            "robots": ["Panda"],
            "controller_configs": controller or CONTROLLER,
        },
    }
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps(environment)
        data.attrs["total"] = sum(lengths)
        for k, length in enumerate(lengths):
            rng = np.random.default_rng(k)
            demo: dict[str, Any] = {
                "actions": rng.uniform(-1, 1, (length, 7)),
                "images": {c: colours(20 + k, length) for c in cameras},
            }
            demo |= {
                part: rng.normal(size=(length, n))
                for part, n in (("eef_pos", 3), ("eef_quat", 4), ("gripper_qpos", 2))
            }
            group = data.create_group(f"demo_{9 + k}")
            group.attrs["num_samples"] = length
            group["actions"] = demo["actions"]
            group["rewards"] = np.zeros(length)
            group["states"] = rng.normal(size=(length, 32))
            for part in ("eef_pos", "eef_quat", "gripper_qpos"):
                group[f"obs/robot0_{part}"] = demo[part]
                group[f"next_obs/robot0_{part}"] = demo[part]
            for camera in cameras:
                group[f"obs/{camera}_image"] = demo["images"][camera]
            demos.append(demo)
        file["mask/train"] = np.array([b"demo_9", b"demo_10"])
        file["mask/valid"] = np.array([b"demo_11"])
    return demos

"""Trial logs for tests: as a driver of hardware would leave them, and as others would like them to be taken."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from simgap.conventions import SO101_JOINTS, Dimension, Unit, VectorSpec
from simgap.episodes.fingerprint import content_fingerprint
from simgap.episodes.spec import DatasetSpec
from simgap.episodes.write.store import EpisodeWriter
from simgap.ledger import attest
from simgap.provenance import Stamp
from simgap.types import Episode, Outcome

REAL_STAMP: dict[str, Any] = {
    "evidence": "real",
    "robot": {"kind": "lerobot:so101_follower", "id": "bench arm 2"},
    "env": "pick on the bench",
    "clock": "robot",
    "policy": "ab" * 32,
    "executor": "receding(5)",
}
PERSON: dict[str, Any] = {
    "judged_by": "operator",
    "name": "Ada Example",
    "date": "2026-05-01",
    "conditions": "desk by the window, daylight, 20 marked places",
    "sentence": "I set up every trial and judged it before I looked at the log.",
}
SURROGATE_STAMP: dict[str, Any] = {
    "evidence": "surrogate",
    "robot": "surrogate",
    "engine": "mujoco",
    "seal": "cd" * 32,
    "policy": "ab" * 32,
}


def outcomes(successes: int, n: int, voids: int = 0) -> list[Outcome]:
    failures = [Outcome.failure("dropped")] * (n - successes)
    return [Outcome.success()] * successes + failures + [Outcome.void("camera unplugged")] * voids


def write_log(folder: Path, stamp: dict[str, Any], ends: list[Outcome], kind: str = "trials") -> Path:
    """Write a finished log of three-frame trials."""
    dimensions = tuple(
        Dimension(name=f"{j}.pos", unit=Unit.DEG, low=-180.0, high=180.0, is_gripper=j == "gripper")
        for j in SO101_JOINTS
    )
    vector = VectorSpec(dimensions=dimensions, rate_hz=20.0)
    spec = DatasetSpec(
        name="bench",
        action_spec=vector,
        state_spec=vector,
        cameras=(),
        image_size=(16, 16),
        rate_hz=20.0,
        stamp=Stamp(kind=kind, fields=stamp),
        task_default="pick",
        codec="png",
    )
    writer = EpisodeWriter(folder, spec)
    for index, outcome in enumerate(ends):
        motion = np.full((3, 6), index, dtype=np.float32)
        writer.write(
            index,
            Episode(
                images={},
                state=motion,
                action=motion,
                time_s=np.arange(3) / 20,
                outcome=outcome,
                task="pick",
                seed=index,
            ),
        )
    writer.finish()
    return folder


def real_log(folder: Path, successes: int = 9, n: int = 10, voids: int = 0) -> Path:
    """Write a log of trials on hardware that somebody stands for."""
    log = write_log(folder, REAL_STAMP, outcomes(successes, n, voids))
    attest(log, **PERSON)
    return log


def edit_json(path: Path, **changes: Any) -> None:
    """Change fields of a JSON object on disk."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def restamp(log: Path, stamp: dict[str, Any], kind: str = "trials") -> Path:
    """Give a log another stamp, with the fingerprint and the attestation that go with it: an edit of its JSON files."""
    path = log / "meta" / "simgap.json"
    stored = json.loads(path.read_text())
    spec = dataclasses.replace(DatasetSpec.from_json(stored["spec"]), stamp=Stamp(kind=kind, fields=stamp))
    edit_json(path, spec=spec.to_json(), fingerprint=content_fingerprint(log, spec.to_json()))
    attest(log, **PERSON)
    return log

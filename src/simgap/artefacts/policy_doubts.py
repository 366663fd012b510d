"""What is doubtful in the configuration of somebody's policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.episodes.statistics.files import StatisticsBlock
from simgap.measures.scaling import inert_features

CONFIG, TRAINING, WEIGHTS = "config.json", "train_config.json", "model.safetensors"


CONFIG, TRAINING, WEIGHTS = "config.json", "train_config.json", "model.safetensors"


CONFIG, TRAINING, WEIGHTS = "config.json", "train_config.json", "model.safetensors"


PIPELINES = ("policy_preprocessor.json", "policy_postprocessor.json")


NORMALISERS = ("normalizer_processor", "unnormalizer_processor")


def missing_parts(
    root: Path,
    config: Mapping[str, Any],
    steps: Sequence[Mapping[str, Any]],
    states: Mapping[str, tuple[dict[str, Any], Any]],
) -> list[DataFinding]:
    """Return a finding for each part of a policy that its folder lacks."""
    absent = {
        n: f["state"] for n, (f, _) in states.items() if f["state"] in ("missing", "outside the folder")
    }
    absent |= {s["name"]: "names no state file" for s in steps if s["is_normaliser"] and not s["state_file"]}
    if not config:
        absent[CONFIG] = "missing"
    if not steps:
        absent[" and ".join(PIPELINES)] = "missing"
    if not absent:
        return []
    return [
        DataFinding(
            code="policy_files_missing",
            severity=Severity.FAULT if steps else Severity.WARNING,
            sentence=(
                f"{root.name} lacks files it refers to: {listed([f'{n} ({w})' for n, w in absent.items()])}"
            ),
            remedy=(
                "download the folder again; a policy of an older LeRobot keeps its statistics inside the"
                " weights and must be migrated first"
            ),
            numbers={"files": absent},
        )
    ]


def inert_steps(
    steps: Sequence[Mapping[str, Any]], blocks: Mapping[str, Sequence[StatisticsBlock]]
) -> list[DataFinding]:
    """Return a finding for each normaliser that changes nothing."""
    found = []
    for step in steps:
        if not step["is_normaliser"] or not blocks.get(step["state_file"] or ""):
            continue
        inert = inert_features(
            step["features"], step["modes"] or {}, {b.key: set(b.values) for b in blocks[step["state_file"]]}
        )
        if inert:
            found.append(
                DataFinding(
                    code="normalisation_inert",
                    severity=Severity.FAULT,
                    sentence=(
                        f"{step['name']} is inert for {listed(list(inert))}: {step['state_file']} holds"
                        f" statistics for {listed([b.key for b in blocks[step['state_file']]])}"
                    ),
                    remedy=(
                        "rename the statistics to the policy's features; without them values pass unscaled"
                        " and no error is raised"
                    ),
                    feature=next(iter(inert)),
                    numbers={"inert": inert},
                )
            )
    return found


def applied_twice(steps: Sequence[Mapping[str, Any]]) -> list[DataFinding]:
    """Return a finding for each step that a pipeline applies twice."""
    found = []
    for pipeline in dict.fromkeys(s["pipeline"] for s in steps):
        for kind in NORMALISERS:
            same = [s for s in steps if s["pipeline"] == pipeline and s["name"] == kind]
            shared = set.intersection(*(set(s["features"]) for s in same)) if len(same) > 1 else set()
            if shared:
                found.append(
                    DataFinding(
                        code="normalised_twice",
                        severity=Severity.FAULT,
                        sentence=(
                            f"{pipeline} has {len(same)} steps named {kind} for {listed(sorted(shared))}: the"
                            f" values are scaled {len(same)} times"
                        ),
                        remedy="keep one",
                        feature=sorted(shared)[0],
                        numbers={"steps": [s["step"] for s in same]},
                    )
                )
    return found


def disagreements(blocks: Mapping[str, Sequence[StatisticsBlock]]) -> list[DataFinding]:
    """Compare the statistics of one feature between the files: scaling and scaling back must be inverse."""
    seen: dict[str, tuple[str, StatisticsBlock]] = {}
    off: dict[str, list[str]] = {}
    for name, found in blocks.items():
        for block in found:
            other_name, other = seen.setdefault(block.key, (name, block))
            if any(k in other.values and not _is_close(v, other.values[k]) for k, v in block.values.items()):
                off[block.key] = [other_name, name]
    if not off:
        return []
    return [
        DataFinding(
            code="scaling_differs",
            severity=Severity.FAULT,
            sentence=(
                f"{listed(next(iter(off.values())))} hold different statistics of {listed(list(off))}:"
                " scaling and scaling back are not inverse"
            ),
            remedy="use one set of statistics on both sides",
            feature=next(iter(off)),
            numbers={"files": off},
        )
    ]


def _is_close(a: NDArray[np.float64], b: NDArray[np.float64]) -> bool:
    return len(a) == len(b) and bool((np.abs(a - b) <= 1e-6 * (1.0 + np.abs(a).max())).all())

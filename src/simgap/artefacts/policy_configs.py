"""A LeRobot policy folder: what it expects, how it scales, and whether the statistics it needs are really there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simgap.artefacts.policy_doubts import (
    CONFIG,
    NORMALISERS,
    PIPELINES,
    TRAINING,
    WEIGHTS,
    applied_twice,
    disagreements,
    inert_steps,
    missing_parts,
)
from simgap.bounds import read_bytes
from simgap.checks.data.report import DataFinding, DataReport, Severity, by_severity, listed
from simgap.checks.data.statistics.rules import judge
from simgap.episodes.formats.layout import is_lfs_pointer
from simgap.episodes.statistics.files import StatisticsBlock, read_statistics
from simgap.errors import DataError
from simgap.measures.scaling import NEEDS
from simgap.provenance import hashable, read_json

_LIMIT = 16 << 20
ASSUMES = (
    "the processors run in the order they are listed",
    (
        "a step named normalizer_processor scales, one named unnormalizer_processor scales back, and no code"
        " of the policy scales again"
    ),
)


def is_policy_folder(root: Path) -> bool:
    """Return whether a folder looks like a LeRobot policy: processors, or a config with input features."""
    if any((root / name).is_file() for name in PIPELINES):
        return True
    config = root / CONFIG
    if not config.is_file() or config.stat().st_size > _LIMIT:
        return False
    document = read_json(config, limit_bytes=_LIMIT, finite=False)
    return isinstance(document, dict) and "input_features" in document and "output_features" in document


def check_policy_folder(root: Path) -> DataReport:
    """Check a policy folder without loading the policy.

    Raises:
        DataError: a JSON file is garbled; names it.
    """
    config, training = _json(root / CONFIG), _json(root / TRAINING)
    steps = [step for name in PIPELINES for step in _steps(root, name)]
    states = {s["state_file"]: _state_file(root, s["state_file"]) for s in steps if s["state_file"]}
    blocks = {name: found for name, (_, found) in states.items()}
    statistics, statistics_findings = judge(
        [b for found in {id(v): v for v in blocks.values()}.values() for b in found]
    )
    weights = _weights(root)
    findings = [
        *_pointers(states, weights),
        *missing_parts(root, config, steps, states),
        *inert_steps(steps, blocks),
        *applied_twice(steps),
        *disagreements(blocks),
        *_modes(config, training, steps),
        *statistics_findings,
        *_names(config, training),
        *_units(config),
    ]
    return DataReport(
        path=str(root),
        layout={"what": "policy_folder", **_expects(config), "cameras": _cameras(config)},
        counts={
            "files": sum(p.is_file() for p in root.iterdir()),
            "processors": len(steps),
            "normalisers": sum(s["is_normaliser"] for s in steps),
        },
        measurements={
            "training": _training(config, training),
            "processors": steps,
            "state_files": {name: facts for name, (facts, _) in states.items()},
            "weights": weights,
            "statistics": statistics,
        },
        findings=by_severity(findings),
        assumes=ASSUMES,
    )


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    document = read_json(path, limit_bytes=_LIMIT, finite=False)
    if not isinstance(document, dict):
        raise DataError(f"{path} holds a {type(document).__name__}, expected an object; restore the file")
    return dict(hashable(document))


def _object(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def _steps(root: Path, name: str) -> list[dict[str, Any]]:
    listed_steps = _json(root / name).get("steps")
    found = []
    for k, step in enumerate(listed_steps if isinstance(listed_steps, list) else []):
        if not isinstance(step, dict):
            raise DataError(
                f"{root / name} step {k} is a {type(step).__name__}, expected an object; restore the file"
            )
        config = _object(step, "config")
        registry = str(step.get("registry_name") or step.get("class") or "unknown")
        fact: dict[str, Any] = {
            "pipeline": name.removesuffix(".json"),
            "step": k,
            "name": registry,
            "is_normaliser": registry in NORMALISERS,
        }
        fact["state_file"] = str(step["state_file"]) if step.get("state_file") else None
        if fact["is_normaliser"]:
            types = {k: v.get("type") for k, v in _object(config, "features").items() if isinstance(v, dict)}
            fact |= {"eps": config.get("eps"), "features": types, "modes": _object(config, "norm_map")}
        found.append(fact)
    return found


def _state_file(root: Path, name: str) -> tuple[dict[str, Any], tuple[StatisticsBlock, ...]]:
    path = root / name
    if Path(name).is_absolute() or ".." in Path(name).parts:
        return {"state": "outside the folder"}, ()
    if not path.is_file():
        return {"state": "missing"}, ()
    size = path.stat().st_size
    if is_lfs_pointer(path):
        return {"state": "git_lfs_pointer", "bytes": size, **_pointer(path)}, ()
    blocks = read_statistics(path)
    return {"state": "read", "bytes": size, "features": {b.key: sorted(b.values) for b in blocks}}, blocks


def _pointer(path: Path) -> dict[str, Any]:
    lines = dict(
        line.split(" ", 1)
        for line in read_bytes(path, 1024).decode(errors="replace").splitlines()
        if " " in line
    )
    size = lines.get("size", "")
    return {
        "content": lines.get("oid"),
        "content_bytes": int(size) if size.isdecimal() and len(size) < 20 else None,
    }


def _weights(root: Path) -> dict[str, Any]:
    path = root / WEIGHTS
    if not path.is_file():
        return {"state": "missing"}
    pointer = is_lfs_pointer(path)
    return {
        "state": "git_lfs_pointer" if pointer else "present",
        "bytes": path.stat().st_size,
        **(_pointer(path) if pointer else {}),
    }


def _expects(config: Mapping[str, Any]) -> dict[str, Any]:
    features = {**_object(config, "input_features"), **_object(config, "output_features")}
    shapes = {str(k): v.get("shape") if isinstance(v, dict) else None for k, v in features.items()}
    names = (
        "type",
        "chunk_size",
        "n_action_steps",
        "n_obs_steps",
        "normalization_mapping",
        "temporal_ensemble_coeff",
        "vision_backbone",
    )
    return {"policy": config.get("type"), "features": shapes, **{n: config.get(n) for n in names[1:]}}


def _cameras(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        k: v.get("shape")
        for k, v in _object(config, "input_features").items()
        if isinstance(v, dict) and v.get("type") == "VISUAL"
    }


def _training(config: Mapping[str, Any], training: Mapping[str, Any]) -> dict[str, Any]:
    dataset = _object(training, "dataset")
    return {
        "dataset": dataset.get("repo_id"),
        "policy": config.get("repo_id"),
        "steps": training.get("steps"),
        "batch_size": training.get("batch_size"),
        "seed": training.get("seed"),
        "use_imagenet_stats": dataset.get("use_imagenet_stats"),
        "image_transforms": _object(dataset, "image_transforms").get("enable"),
        "license": config.get("license"),
    }


def _pointers(
    states: Mapping[str, tuple[dict[str, Any], Any]], weights: Mapping[str, Any]
) -> list[DataFinding]:
    pointers = {name: facts for name, (facts, _) in states.items() if facts["state"] == "git_lfs_pointer"}
    found = []
    if pointers:
        found.append(
            DataFinding(
                code="statistics_file_is_lfs_pointer",
                severity=Severity.FAULT,
                sentence=(
                    f"the statistics file is a Git LFS pointer, not the statistics: {listed(list(pointers))};"
                    " nothing is known of how this policy scales"
                ),
                remedy=(
                    "run 'git lfs pull' in its repository; a loader that skips the file runs the policy"
                    " unscaled"
                ),
                numbers={"files": pointers},
            )
        )
    if weights["state"] == "git_lfs_pointer":
        found.append(
            DataFinding(
                code="weights_are_lfs_pointer",
                severity=Severity.FAULT,
                sentence=f"{WEIGHTS} is a Git LFS pointer of {weights['bytes']} bytes, not the weights",
                remedy="run 'git lfs pull' in its repository",
                numbers=dict(weights),
            )
        )
    return found


def _modes(
    config: Mapping[str, Any], training: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]
) -> list[DataFinding]:
    """Compare the scaling modes that config, training and processors name."""
    named = {
        CONFIG: _object(config, "normalization_mapping"),
        TRAINING: _object(_object(training, "policy"), "normalization_mapping"),
    }
    named |= {f"{s['pipeline']} step {s['step']}": s["modes"] for s in steps if s["is_normaliser"]}
    named = {n: m for n, m in named.items() if m}
    different = {n: m for n, m in named.items() if m != next(iter(named.values()))}
    unknown = {str(m) for modes in named.values() for m in modes.values()} - set(NEEDS)
    found = []
    if different:
        found.append(
            DataFinding(
                code="scaling_modes_differ",
                severity=Severity.FAULT,
                sentence=f"scaling modes differ between {listed(list(named))}",
                remedy="use the modes the policy was trained with",
                numbers={"modes": named},
            )
        )
    if unknown:
        found.append(
            DataFinding(
                code="scaling_mode_unknown",
                severity=Severity.WARNING,
                sentence=f"scaling modes {sorted(unknown)} are not known here; known: {', '.join(NEEDS)}",
                remedy="look up what statistics they need",
                numbers={"modes": sorted(unknown)},
            )
        )
    return found


def _names(config: Mapping[str, Any], training: Mapping[str, Any]) -> list[DataFinding]:
    facts = _training(config, training)
    data, policy = facts["dataset"], facts["policy"]
    if not data or not policy or data == policy:
        return []
    return [
        DataFinding(
            code="names_differ",
            severity=Severity.NOTE,
            sentence=f"trained on {data}, published as {policy}: the name of one does not lead to the other",
            remedy="keep the dataset's name and revision beside the policy",
            numbers={"dataset": data, "policy": policy},
        )
    ]


def _units(config: Mapping[str, Any]) -> list[DataFinding]:
    if not config:
        return []
    return [
        DataFinding(
            code="units_not_recorded",
            severity=Severity.WARNING,
            sentence="nothing in the folder records units, joint names or which end of the gripper is open",
            remedy=(
                "take them from the training dataset and its recording command; compare a pose before the"
                " first motion"
            ),
        )
    ]

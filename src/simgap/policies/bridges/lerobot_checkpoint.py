"""A folder that lerobot saved, as far as it can be read without lerobot, and whether it fits what is asked of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simgap.conventions import VectorSpec
from simgap.errors import ConventionError, DataError, did_you_mean
from simgap.policies.bridges.lerobot_worker import SEPARABLE
from simgap.policies.bridges.policy_file import Interface
from simgap.policies.execution import ExecutorSpec, Mode
from simgap.provenance import content_hash, file_hash, read_json
from simgap.trust import require_allowed

OWN_CARD = "card.json"
"""What a checkpoint of ours holds, by which the two are told apart."""
CONFIG, WEIGHTS, TRAINING = "config.json", "model.safetensors", "train_config.json"
ACTION, STATE, IMAGES = "action", "observation.state", "observation.images."
_STATISTICS: Mapping[str, tuple[str, str]] = {
    "MEAN_STD": ("mean", "std"),
    "MIN_MAX": ("min", "max"),
    "QUANTILES": ("q01", "q99"),
    "QUANTILE10": ("q10", "q90"),
}
_SCALED = ("VISUAL", "STATE", "ACTION")


PLAIN_TYPES = frozenset({"act", "diffusion", "multi_task_dit", "pi0", "pi05", "smolvla", "tdmpc", "vqbet"})
"""Policy types whose own code loads weights and tokenizers and runs nothing that a config names. Not so pi0_fast and groot: both load
processors with ``trust_remote_code`` from where their config says."""
REMOTE_CODE_STEPS = frozenset({"action_tokenizer_processor"})
"""Processor steps whose ``trust_remote_code`` is true unless they say otherwise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """What ``config.json`` says of a policy."""

    path: Path
    type: str
    cameras: Mapping[str, tuple[int, int]]
    """Image feature -> height and width in pixels."""
    state: int | None
    """Numbers of the state; None for a policy that reads none."""
    action: int
    others: tuple[str, ...]
    """Inputs that no camera and no encoder gives."""
    config: Mapping[str, Any] = field(repr=False)

    @property
    def suggested(self) -> ExecutorSpec | None:
        """What the config says of execution, in our words; None where it says nothing."""
        decay, steps, chunk = (
            self.config.get("temporal_ensemble_coeff"),
            self.config.get("n_action_steps"),
            self.config.get("chunk_size"),
        )
        if isinstance(decay, int | float):
            return ExecutorSpec(mode=Mode.ENSEMBLE, decay=float(decay))
        if not isinstance(steps, int) or steps < 1:
            return None
        return (
            ExecutorSpec(mode=Mode.WHOLE_CHUNK)
            if steps == chunk
            else ExecutorSpec(mode=Mode.RECEDING, replan_steps=steps)
        )

    def hashes(self) -> dict[str, str]:
        """Return the hashes of weights, of the config, and of all processors with their statistics."""
        processors = {
            f.name: file_hash(f) for f in sorted(self.path.glob("policy_*processor*")) if f.is_file()
        }
        return {
            "weights": file_hash(self.path / WEIGHTS),
            "config": file_hash(self.path / CONFIG),
            "normaliser": content_hash(processors),
        }


def read_checkpoint(path: Path) -> Checkpoint:
    """Read the config of a folder that lerobot saved.

    Raises:
        DataError: no such folder, or a config that cannot be read.
    """
    if not (path / CONFIG).is_file() or not (path / WEIGHTS).is_file():
        if not path.exists():
            raise DataError(f"{path} does not exist; give the folder pretrained_model that lerobot saved")
        if (path / OWN_CARD).is_file():
            raise DataError(
                f"{path} is a checkpoint that `simgap train` wrote and needs no policy file: simgap screen"
                f" {path}"
            )
        inside = path / "pretrained_model"
        hint = (
            f"; it is in {inside}"
            if (inside / CONFIG).is_file()
            else "; download a checkpoint of the hub first (hf download REPO --local-dir FOLDER)"
        )
        raise DataError(f"{path} is no checkpoint of lerobot: it needs {CONFIG} and {WEIGHTS}{hint}")
    config = read_json(path / CONFIG)
    try:
        inputs = {
            str(k): (str(v["type"]), [int(n) for n in v["shape"]])
            for k, v in config["input_features"].items()
        }
        cameras = {name: (shape[1], shape[2]) for name, (kind, shape) in inputs.items() if kind == "VISUAL"}
        return Checkpoint(
            path=path,
            type=str(config["type"]),
            cameras=cameras,
            state=inputs[STATE][1][0] if STATE in inputs else None,
            action=int(config["output_features"][ACTION]["shape"][0]),
            others=tuple(sorted(set(inputs) - set(cameras) - {STATE})),
            config=config,
        )
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{path / CONFIG} lacks or garbles a field ({error!r}); it needs type, input_features and"
            " output_features, as lerobot saves them"
        ) from error


def require_runs_nothing_named(checkpoint: Checkpoint) -> None:
    """Raise where loading a checkpoint would run what its files name.

    lerobot's ``from_pretrained`` imports the module of a step's ``"class": "module.Class"`` and calls the
    class with the step's ``config``; a step with ``trust_remote_code``, and some policy types themselves, run
    code out of the folder or repository that a file names.

    Raises:
        UntrustedError: says what and which file.
        DataError: a file that cannot be read.
    """
    if checkpoint.type not in PLAIN_TYPES:
        instead = f"known to run nothing by themselves are {', '.join(sorted(PLAIN_TYPES))}"
        require_allowed(
            checkpoint.type,
            what="a policy type that may run code out of its config",
            by=checkpoint.path / CONFIG,
            instead=instead,
        )
    for file in sorted(checkpoint.path.glob("policy_*processor*.json")):
        data = read_json(file)
        steps = data.get("steps") if isinstance(data, dict) else None
        for step in steps if isinstance(steps, list) else ():
            registered = step.get("registry_name") if isinstance(step, dict) else None
            if not isinstance(registered, str):
                named = step.get("class") if isinstance(step, dict) else step
                require_allowed(
                    str(named),
                    what="a class to import and call",
                    by=file,
                    instead="save the processors again with registered steps only",
                )
                continue
            settings = step.get("config")
            trusts = (
                settings.get("trust_remote_code", registered in REMOTE_CODE_STEPS)
                if isinstance(settings, dict)
                else registered in REMOTE_CODE_STEPS
            )
            if trusts is not False:
                require_allowed(
                    registered,
                    what="a step with trust_remote_code",
                    by=file,
                    instead="set its trust_remote_code to false",
                )


def require_fits(
    checkpoint: Checkpoint, interface: Interface, images: Sequence[tuple[str, str]], *, resize: bool
) -> None:
    """Raise unless what the policy reads and says is what the policy file maps.

    Args:
        checkpoint: what is to be run.
        interface: conventions of both sides.
        images: our camera -> lerobot's feature.
        resize: frames may be brought to the size of the checkpoint.

    Raises:
        ConventionError: names both sides.
    """
    mapped = [feature for _, feature in images]
    for feature in mapped:
        if feature not in checkpoint.cameras:
            raise ConventionError(
                f"the policy file maps to {feature!r}, which the checkpoint does not see;"
                f" {did_you_mean(feature, checkpoint.cameras)}"
            )
    missing = [name for name in checkpoint.cameras if mapped.count(name) != 1]
    if missing:
        raise ConventionError(
            f"the checkpoint sees {sorted(checkpoint.cameras)}, the policy file maps {mapped}: {missing} not"
            " once; map one camera to each"
        )
    if checkpoint.others:
        raise ConventionError(
            f"the checkpoint also reads {list(checkpoint.others)}, which no camera or encoder gives; train it"
            " without"
        )
    for what, width, spec in (
        ("state", checkpoint.state, interface.their_state_spec),
        ("action", checkpoint.action, interface.their_action_spec),
    ):
        if width is not None and width != len(spec):
            raise ConventionError(
                f"the checkpoint's {what} has {width} numbers, {what}_spec has {len(spec)}:"
                f" {list(spec.names)}; correct {what}_spec"
            )
    size = interface.image_size
    for feature, shape in checkpoint.cameras.items():
        if shape != (size, size) and not resize:
            raise ConventionError(
                f"the checkpoint saw {feature!r} at {shape[1]}x{shape[0]} px, the policy file gives"
                f" {size}x{size}; set image_size to that, or resize to true for another policy than was"
                " trained"
            )


def require_scaled(checkpoint: Checkpoint, scalers: Sequence[Mapping[str, Any]]) -> None:
    """Raise where lerobot's normalisers would pass numbers on unscaled without a word: no statistics under the name of a feature.

    Args:
        checkpoint: what is to be run.
        scalers: the normalisers of its processors, as the worker describes them.

    Raises:
        DataError: names what the policy reads or says and what the normaliser has.
    """
    features = [
        *((name, "VISUAL", "in") for name in checkpoint.cameras),
        *([(STATE, "STATE", "in")] if checkpoint.state else []),
        (ACTION, "ACTION", "out"),
    ]
    for name, kind, side in features:
        here = [s for s in scalers if s["side"] == side]
        if not here and checkpoint.type in SEPARABLE:
            which = "policy_preprocessor.json" if side == "in" else "policy_postprocessor.json"
            raise DataError(
                f"{which} of {checkpoint.path} has no normaliser, and a policy of type {checkpoint.type!r}"
                " needs one; copy the processors it was saved with"
            )
        for scaler in here:
            mode = str(scaler["modes"].get(kind, "IDENTITY"))
            wanted = [f"{name}.{statistic}" for statistic in _STATISTICS.get(mode, ())]
            known = sorted(
                {text.rpartition(".")[0] for text in scaler["statistics"]} & set(scaler["features"])
            )
            if not wanted or (name in scaler["features"] and all(w in scaler["statistics"] for w in wanted)):
                continue
            verb = "reads" if side == "in" else "says"
            raise DataError(
                f"the policy {verb} {name!r} scaled by {mode}, and the normaliser of {checkpoint.path} has"
                f" statistics of {known or 'nothing'}: lerobot would leave it unscaled without a word; copy"
                " the processors the policy was saved with, or make them from the statistics of its training"
                " data"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingData:
    """What is known of the data a checkpoint learnt from."""

    repo: str | None
    rate_hz: float | None = None
    action: tuple[str, ...] | None = None
    state: tuple[str, ...] | None = None


def training_data(checkpoint: Checkpoint, dataset: Path | None) -> TrainingData:
    """Return what ``train_config.json`` and the dataset itself say, the dataset where it is named or still lies where it lay.

    Raises:
        DataError: the dataset that was named cannot be read.
    """
    file = checkpoint.path / TRAINING
    trained = read_json(file) if file.is_file() else {}
    stated = trained.get("dataset") if isinstance(trained, dict) else None
    stated = stated if isinstance(stated, dict) else {}
    repo, root = stated.get("repo_id"), stated.get("root")
    name = str(repo) if isinstance(repo, str) else None
    folder = dataset or (Path(root) if isinstance(root, str) else None)
    info_file = None if folder is None else folder / "meta" / "info.json"
    if info_file is None or (dataset is None and not info_file.is_file()):
        names = checkpoint.config.get("action_feature_names")
        return TrainingData(repo=name, action=tuple(map(str, names)) if isinstance(names, list) else None)
    info = read_json(info_file)
    try:
        features = info["features"]
        return TrainingData(
            repo=name,
            rate_hz=float(info["fps"]),
            action=_names(features.get(ACTION)),
            state=_names(features.get(STATE)),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{info_file} lacks or garbles a field ({error!r}); it needs fps and features; name another"
            " dataset, or none"
        ) from error


def require_same_names(data: TrainingData, interface: Interface, renamed: Mapping[str, str]) -> None:
    """Raise where the training data name other joints, another order or another rate than the policy file.

    Args:
        data: what is known; what is not known is not compared.
        interface: conventions of both sides.
        renamed: name in the data -> name in the convention.

    Raises:
        ConventionError: names both sides.
    """
    pairs: tuple[tuple[str, tuple[str, ...] | None, VectorSpec], ...] = (
        ("action", data.action, interface.their_action_spec),
        ("state", data.state, interface.their_state_spec),
    )
    for what, names, spec in pairs:
        found = None if names is None else tuple(renamed.get(n, n) for n in names)
        if found is not None and found != spec.names:
            how = "another order" if sorted(found) == sorted(spec.names) else "other names"
            raise ConventionError(
                f"{what}: the checkpoint learnt from {list(found)}, {what}_spec of the policy file has {how}:"
                f" {list(spec.names)}; write {what}_spec in the order of the data (names: {{theirs: ours}}"
                " renames)"
            )
        if data.rate_hz is not None and abs(data.rate_hz - spec.rate_hz) > 1e-6:
            raise ConventionError(
                f"the checkpoint learnt from data at {data.rate_hz:g} Hz, {what}_spec says {spec.rate_hz:g}"
                " Hz; run it at the rate of its data"
            )


def _names(feature: Any) -> tuple[str, ...] | None:
    """Return the names of a vector: a list, or as older datasets write it a list under some word."""
    names = feature.get("names") if isinstance(feature, dict) else None
    if isinstance(names, dict) and len(names) == 1:
        names = next(iter(names.values()))
    return tuple(map(str, names)) if isinstance(names, list) else None

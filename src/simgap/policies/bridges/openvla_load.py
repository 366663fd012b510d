"""Loading a vision-language model from a folder with transformers, and a LoRA adapter onto it with PEFT.

Nothing is downloaded, no pickle is opened, and no code that came with a checkpoint runs unless that was asked
for. The released OpenVLA checkpoints need exactly that: their ``config.json`` names classes in ``auto_map``,
and that code was written for transformers 4.40.1 and timm below 1
(``prismatic/extern/hf/modeling_prismatic.py`` in openvla/openvla). Where it does not run in this environment,
serve the checkpoint from its own with vla-eval's ``model_servers/openvla.py``, and use a policy file of kind
``vla-eval``.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from simgap.errors import DataError, MachineError, UsageError, did_you_mean
from simgap.provenance import content_hash, file_hash, read_json
from simgap.trust import FLAG, require_allowed

DTYPES = ("float32", "bfloat16", "float16")
AUTO_CLASSES = ("AutoModelForImageTextToText", "AutoModelForVision2Seq")
"""transformers' name of such models since 4.45, and before; version 5 has only the first."""
CONFIG, ADAPTER_CONFIG, ADAPTER = "config.json", "adapter_config.json", "adapter_model.safetensors"


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadSpec:
    """Where the weights are and how they are run."""

    model: Path
    """Folder of the model."""
    adapter: Path | None = None
    """Folder of a PEFT adapter for it."""
    trust_remote_code: bool = False
    dtype: str = "float32"
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UsageError(f"dtype {self.dtype!r} is unknown; {did_you_mean(self.dtype, DTYPES)}")

    @property
    def config(self) -> Mapping[str, Any]:
        """The model's ``config.json``.

        Raises:
            DataError: missing or no JSON object.
        """
        data = read_json(self.model / CONFIG)
        if not isinstance(data, dict):
            raise DataError(f"{self.model / CONFIG} is no JSON object; copy the model again")
        return data

    def require_safe(self) -> None:
        """Raise unless the folders hold what can be loaded without risk.

        Raises:
            UsageError: no folder, or code of the checkpoint that nobody asked to run.
            DataError: weights that are no safetensors.
        """
        for folder, what in ((self.model, "model"), (self.adapter, "adapter")):
            if folder is not None and not folder.is_dir():
                raise UsageError(
                    f"{what} {str(folder)!r} is no folder here, and nothing is downloaded; fetch it first and"
                    " give its folder"
                )
        if not any(self.model.glob("*.safetensors")):
            raise DataError(
                f"{self.model} holds no safetensors; weights in pickles (.bin, .pt) can run code and are not"
                " opened: convert them with save_pretrained"
            )
        if self.adapter is not None and not (self.adapter / ADAPTER).is_file():
            raise DataError(
                f"{self.adapter} has no {ADAPTER}; adapters in pickles can run code and are not opened: save"
                " it again with save_pretrained"
            )
        if "auto_map" in self.config and not self.trust_remote_code:
            raise UsageError(
                f"{self.model} brings its own code (auto_map in {CONFIG}); read that code, then set"
                f" trust_remote_code to true and give the command {FLAG}, or serve it elsewhere"
            )
        self._require_no_imports()

    def _require_no_imports(self) -> None:
        """Raise where a config names what would be imported or fetched: kernels (``attn_implementation``), or a module of PEFT (``megatron_core``).

        Raises:
            UntrustedError: names it.
            DataError: a config that cannot be read.
        """
        for named in _kernels(self.config):
            require_allowed(
                named,
                what="code to fetch (attn_implementation)",
                by=self.model / CONFIG,
                instead="remove it: eager is the default",
            )
        if self.adapter is None:
            return
        file = self.adapter / ADAPTER_CONFIG
        data = read_json(file) if file.is_file() else {}
        if isinstance(data, dict) and data.get("megatron_config"):
            named = str(data.get("megatron_core", "megatron.core"))
            require_allowed(
                named,
                what="a module to import (megatron_core)",
                by=file,
                instead="remove megatron_config, which no policy here needs",
            )

    def stamp(self) -> dict[str, Any]:
        """Return hashes of every file of weights, configuration and code, and how they are run."""
        return {
            "model": _folder_hash(self.model),
            "adapter": None if self.adapter is None else _folder_hash(self.adapter),
            "dtype": self.dtype,
            "device": self.device,
        }


def load(spec: LoadSpec) -> tuple[Any, Any]:
    """Return the model, with its adapter merged, and its processor.

    Raises:
        MachineError: transformers or PEFT, or something that the checkpoint's own code needs, is not
            installed.
        UsageError: see :meth:`LoadSpec.require_safe`.
        DataError: the folder cannot be loaded, or the adapter is not for this model.
    """
    spec.require_safe()
    transformers = _transformers()
    import torch

    transformers.utils.logging.disable_progress_bar()
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": spec.trust_remote_code}
    try:
        processor = transformers.AutoProcessor.from_pretrained(spec.model, **options)
        model, found = _model_class(transformers, spec).from_pretrained(
            spec.model,
            use_safetensors=True,
            dtype=getattr(torch, spec.dtype),
            output_loading_info=True,
            **options,
        )
    except ImportError as error:
        raise MachineError(
            f"{spec.model} needs what is not installed ({_line(error)}); install that, or serve the model"
            " from its own environment"
        ) from error
    except (
        OSError,
        ValueError,
        KeyError,
        RuntimeError,
        NotImplementedError,
        AttributeError,
        TypeError,
    ) as error:
        raise DataError(
            f"{spec.model} cannot be loaded by transformers {transformers.__version__} ({_line(error)});"
            " serve it from its own environment"
        ) from error
    _require_whole(spec.model, found)
    if spec.adapter is not None:
        model = _merged(model, spec.adapter)
    return model.to(spec.device).eval().requires_grad_(False), processor


def _require_whole(folder: Path, found: Mapping[str, Any]) -> None:
    """Raise where transformers has filled weights with random numbers, of which it only warns.

    Raises:
        DataError: names the first.
    """
    lacking = sorted(map(str, [*found.get("missing_keys", ()), *found.get("mismatched_keys", ())]))
    if lacking:
        raise DataError(
            f"{folder} lacks {len(lacking)} weights of its model, {lacking[0]!r:.80} first; transformers"
            " would make them up: copy the model again"
        )


def _merged(model: Any, adapter: Path) -> Any:
    """Return the model with an adapter's weights added for good.

    Raises:
        DataError: an adapter for another model: PEFT itself only warns of weights that find no place.
    """
    peft = _peft()
    from safetensors import safe_open

    try:
        adapted = peft.PeftModel.from_pretrained(model, adapter, is_trainable=False, local_files_only=True)
    except (ValueError, RuntimeError, OSError, KeyError, TypeError) as error:
        raise DataError(
            f"{adapter} is no adapter for this model ({_line(error)}); give the model it was trained on"
        ) from error
    with safe_open(adapter / ADAPTER, framework="pt") as stored:
        given = set(stored.keys())
    placed = set(peft.get_peft_model_state_dict(adapted))
    if given != placed:
        odd = sorted(given ^ placed)
        raise DataError(
            f"{adapter} and the model differ in {len(odd)} adapter weights, {odd[0]!r} first; give the model"
            " it was trained on"
        )
    return adapted.merge_and_unload(safe_merge=True)


def _model_class(transformers: ModuleType, spec: LoadSpec) -> Any:
    """Return the class that loads the model: the checkpoint's own where it has one and may, else transformers' automatic one."""
    own = spec.config.get("auto_map", {})
    for name in AUTO_CLASSES:
        if spec.trust_remote_code and name in own:
            dynamic = importlib.import_module("transformers.dynamic_module_utils")
            return dynamic.get_class_from_dynamic_module(own[name], spec.model, local_files_only=True)
    return next(getattr(transformers, name) for name in AUTO_CLASSES if hasattr(transformers, name))


def _kernels(config: Any) -> Iterator[str]:
    """Yield the repositories of code that a config of transformers names for its attention or experts."""
    if isinstance(config, Mapping):
        for name, value in config.items():
            if str(name).strip("_").removesuffix("_internal").endswith("_implementation"):
                yield from (
                    v
                    for v in (value.values() if isinstance(value, Mapping) else [value])
                    if isinstance(v, str) and "/" in v
                )
            else:
                yield from _kernels(value)
    elif isinstance(config, list):
        for value in config:
            yield from _kernels(value)


def _transformers() -> ModuleType:
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise _not_installed("transformers") from error


def _peft() -> ModuleType:
    try:
        return importlib.import_module("peft")
    except ImportError as error:
        raise _not_installed("peft") from error


def _not_installed(name: str) -> MachineError:
    return MachineError(
        f"a policy of kind 'openvla' is loaded with {name}, which is not installed; pip install 'simgap[vla]'"
    )


def _folder_hash(folder: Path) -> str:
    kept = sorted(
        p
        for p in folder.iterdir()
        if p.suffix in (".safetensors", ".json", ".py", ".model", ".txt") and p.is_file()
    )
    return content_hash({p.name: _file_hash(p, p.stat().st_size, p.stat().st_mtime_ns) for p in kept})


@lru_cache(maxsize=256)
def _file_hash(path: Path, size: int, changed_ns: int) -> str:
    """Return the hash of a file, read once for as long as size and time of change stay."""
    del size, changed_ns
    return file_hash(path)


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]:.200}" if lines else type(error).__name__

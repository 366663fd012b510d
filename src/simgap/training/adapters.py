"""What a fine-tune may change: parts left as they are, and low-rank adapters that are merged into the weights at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from simgap.errors import MachineError, UsageError, did_you_mean
from simgap.policies.cnn import ChunkNet, CnnSpec
from simgap.training.spec import TrainSpec

PARTS = ("encoders", "proprioception", "trunk", "head", "denoiser", "gripper_head")
"""Parts of a network, in the order of the data."""


def adapt(network: ChunkNet, spec: TrainSpec) -> None:
    """Freeze parts and put adapters into others, in place. New weights come from torch's global generator.

    With adapters everything else stands still, as usual for them.

    Raises:
        UsageError: an unknown part, or nothing left to train.
        MachineError: adapters are asked for and peft is not installed.
    """
    for name in (*spec.frozen, *spec.adapter_parts):
        if name not in PARTS:
            raise UsageError(f"a network has no part {name!r}; {did_you_mean(name, PARTS)}")
    if spec.adapter_rank:
        _inject(network, spec)
    for name in spec.frozen:
        part = getattr(network, name)
        if part is not None:
            part.requires_grad_(False)
    if not any(p.requires_grad for p in network.parameters()):
        raise UsageError(
            f"nothing is left to train with {', '.join(spec.frozen)} frozen; leave a part out of --freeze"
        )


def merged(
    architecture: CnnSpec, network: nn.Module, spec: TrainSpec, weights: Mapping[str, Tensor]
) -> Mapping[str, Tensor]:
    """Return weights as a network of the plain architecture has them, adapters added in.

    Args:
        architecture: the plain shape.
        network: an adapted network to work in; its own weights are overwritten.
        spec: as trained.
        weights: of the adapted network, by its names.
    """
    if not spec.adapter_rank:
        return weights
    from peft.tuners.tuners_utils import BaseTunerLayer

    network.load_state_dict(dict(weights))
    for module in network.modules():
        if isinstance(module, BaseTunerLayer):
            module.merge()
    found = {
        name.replace(".base_layer.", "."): value
        for name, value in network.state_dict().items()
        if ".lora_" not in name
    }
    return {name: found[name] for name in architecture.build().state_dict()}


def _inject(network: ChunkNet, spec: TrainSpec) -> None:
    try:
        import peft
    except ModuleNotFoundError as error:
        raise MachineError(
            "low-rank adapters need peft, which is not installed; pip install 'simgap[vla]', or leave out"
            " --adapter-rank"
        ) from error
    parts = [p for p in spec.adapter_parts if p not in spec.frozen]
    # The stem's weights are scaled by hand before its convolution, which would pass an adapter by without a
    # word.
    layers = [
        name
        for name, module in network.named_modules()
        if isinstance(module, nn.Linear | nn.Conv2d)
        and name.split(".")[0] in parts
        and not name.endswith(".stem")
    ]
    if not layers:
        raise UsageError(
            f"no layer of {list(parts)} can have an adapter in this network; choose other parts with"
            " --adapter-parts"
        )
    settings: dict[str, Any] = {
        "r": spec.adapter_rank,
        "lora_alpha": spec.adapter_rank,
        "target_modules": layers,
        "lora_dropout": 0.0,
    }
    peft.inject_adapter_in_model(peft.LoraConfig(**settings), network)

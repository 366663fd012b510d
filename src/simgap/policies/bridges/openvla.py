"""An OpenVLA-style policy: one frame and an instruction in, one action written as tokens out.

What it does with them is as in ``OpenVLAForActionPrediction.predict_action``
(``prismatic/extern/hf/modeling_prismatic.py``) and ``experiments/robot/openvla_utils.py`` of openvla/openvla:
the prompt with the task in lower case, the empty token 29871 before the answer, as many new tokens as the
data set has action dimensions, greedily; then tokens to intervals, intervals to -1..1, and the data set's
statistics. Two things are stricter. The reference takes the last tokens of whatever came, prompt included,
and reads any word as the nearest end of the scale; here too few tokens, or a word that is no action, is an
error. And it picks a data set's statistics if there is only one, here too; of several, one has to be named,
and its width, mask and ranges have to suit the convention stated.

Other forms of OpenVLA (OFT's chunks and continuous heads, FAST tokens) are other models; serve them, and use
kind ``vla-eval``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from simgap.conventions import ActionSpec, Unit
from simgap.errors import ConventionError, DataError, UsageError
from simgap.policies.base import Asked
from simgap.policies.bridges.openvla_load import LoadSpec, load
from simgap.policies.bridges.openvla_statistics import ActionStatistics, doubts, read_action_statistics
from simgap.policies.bridges.openvla_tokens import ActionTokens
from simgap.policies.bridges.policy_file import Interface, PolicyFile
from simgap.policies.bridges.remote import Translation, checked_observation
from simgap.trust import require_allowed

NAME = "the OpenVLA policy"
PROMPT = "In: What action should the robot take to {task}?\nOut:"
EMPTY_TOKEN = 29871
"""Llama 2's token before the answer, which the reference appends."""
CROPPED_AREA = 0.9
"""Of a frame, where training cropped at random (``crop_and_resize`` in ``openvla_utils.py``)."""
FIELDS = (
    *(
        "model",
        "adapter",
        "trust_remote_code",
        "dtype",
        "device",
        "statistics",
        "unnorm_key",
        "camera",
        "prompt",
        "prompt_text",
    ),
    *("vocabulary", "append_token", "center_crop", "binarise_gripper", "read_any_token", "accept_doubts"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenvlaSpec:
    """How an action is asked for and read; everything that is not weights."""

    statistics: ActionStatistics
    tokens: ActionTokens
    prompt: str = PROMPT
    """``{task}`` is where the instruction goes, in lower case."""
    prompt_text: str = ""
    """Instruction where the rollout brings none."""
    append_token: int | None = None
    """Token before the answer; None for none."""
    center_crop: bool = False
    """Keep the middle 90 % of the area: right for checkpoints trained with random crops, which ``image_aug`` in their name tells."""
    binarise_gripper: bool = False
    """Send a gripper of 0 to 1 to the nearer end, as LIBERO's evaluation does."""
    vocabulary_is_said: bool = False
    """Whether the owner named the vocabulary, which need not be the tokenizer's then."""
    read_any_token: bool = False
    """Read words that are no action as the nearest end of the scale, as the reference does."""

    def __post_init__(self) -> None:
        if "{task}" not in self.prompt:
            raise UsageError(
                f"prompt {self.prompt!r:.80} has no {{task}} for the instruction; write it like {PROMPT!r}"
            )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "statistics": self.statistics.hash,
            "unnorm_key": self.statistics.unnorm_key,
            "vocabulary": self.tokens.vocabulary,
            "bins": self.tokens.bins,
            "prompt": self.prompt,
            "prompt_text": self.prompt_text,
            "append_token": self.append_token,
            "center_crop": self.center_crop,
            "binarise_gripper": self.binarise_gripper,
            "read_any_token": self.read_any_token,
        }


class OpenvlaPolicy:
    """Implements :class:`simgap.policies.base.AskedPolicy`. Greedy, so the same frame and task give the same action; rows go one by one."""

    inpaints = False

    def __init__(
        self, *, interface: Interface, spec: OpenvlaSpec, model: Any, processor: Any, stamp: Mapping[str, Any]
    ) -> None:
        """Take a model that is loaded.

        Args:
            interface: conventions; one camera.
            spec: how actions are asked for and read.
            model: has ``generate`` as transformers' models have.
            processor: takes ``text`` and ``images``.
            stamp: what identifies all of it.

        Raises:
            ConventionError: the tokenizer has another vocabulary than the tokens are counted from.
        """
        self.action_spec, self.state_spec = interface.action_spec, interface.state_spec
        self.cameras, self.image_size, self.chunk = interface.cameras, interface.image_size, interface.chunk
        self.executor, self.envs = interface.executor, interface.envs
        self._interface, self._spec, self._model, self._processor, self._stamp = (
            interface,
            spec,
            model,
            processor,
            dict(stamp),
        )
        self._translation = Translation.of(interface, server=NAME)
        size = int(processor.tokenizer.vocab_size)
        if size != spec.tokens.vocabulary and not spec.vocabulary_is_said:
            raise ConventionError(
                f"action tokens are counted down from {spec.tokens.vocabulary}, and the tokenizer has {size}"
                f" words: every action would be off by {abs(size - spec.tokens.vocabulary)} of 255 steps; set"
                " vocabulary in the policy file to what training used"
            )

    def predict(
        self, images: Mapping[str, NDArray[np.uint8]], state: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return ``(B, 1, A)`` float32 in action-spec units; see :meth:`predict_asked`."""
        return self.predict_asked(images, state, [Asked()] * len(state))

    def predict_asked(
        self, images: Mapping[str, NDArray[np.uint8]], state: NDArray[np.float32], asked: Sequence[Asked]
    ) -> NDArray[np.float32]:
        """Return ``(B, 1, A)`` float32 in action-spec units.

        Raises:
            ConventionError: an observation that does not fit.
            UsageError: no instruction.
            DataError: too few tokens, or words that are no actions.
        """
        checked_observation(self._interface, images, state, asked, server=NAME)
        (camera,) = self.cameras
        rows = [self._one(images[camera][row], state[row], one) for row, one in enumerate(asked)]
        return np.stack(rows) if rows else np.zeros((0, 1, len(self.action_spec)), dtype=np.float32)

    def stamp_fields(self) -> Mapping[str, Any]:
        """Return hashes of weights, adapter and statistics, and how actions are read."""
        return self._stamp

    def _one(self, frame: NDArray[np.uint8], state: NDArray[np.float32], asked: Asked) -> NDArray[np.float32]:
        task = self._spec.prompt_text or asked.goal
        if not task:
            raise UsageError(
                "the policy acts on an instruction and this rollout has none; set prompt_text in the policy"
                " file"
            )
        ids = self._generated(
            self._spec.prompt.replace("{task}", task.lower()),
            shown(frame, center_crop=self._spec.center_crop),
        )
        odd = ids[~self._spec.tokens.are_actions(ids)]
        if len(odd) and not self._spec.read_any_token:
            raise DataError(
                f"{NAME} wrote token {int(odd[0])} ({self._processor.tokenizer.decode([int(odd[0])])!r}),"
                f" which is no action (those are {self._spec.tokens.vocabulary - self._spec.tokens.bins} to"
                f" {self._spec.tokens.vocabulary - 1}); is it fine-tuned, the prompt its own?"
            )
        actions = self._spec.statistics.unnormalise(self._spec.tokens.decode(ids))
        if self._spec.binarise_gripper:
            actions = binarised(actions, self._interface.their_action_spec)
        return self._translation.to_us(actions[None], state)

    def _generated(self, prompt: str, frame: Image.Image) -> NDArray[np.int64]:
        """Return the new tokens, exactly one for each dimension."""
        import torch

        inputs = self._processor(text=prompt, images=frame, return_tensors="pt").to(
            self._model.device, self._model.dtype
        )
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        appended = self._spec.append_token
        if appended is not None and int(ids[0, -1]) != appended:
            inputs["input_ids"] = ids = torch.cat([ids, torch.full_like(ids[:, :1], appended)], dim=1)
            inputs["attention_mask"] = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
        wanted = len(self._interface.their_action_spec)
        with torch.inference_mode():
            found = self._model.generate(**inputs, max_new_tokens=wanted, do_sample=False)
        new: NDArray[np.int64] = found[0, ids.shape[1] :].cpu().numpy().astype(np.int64)
        if len(new) != wanted:
            raise DataError(
                f"{NAME} wrote {len(new)} tokens where {wanted} make an action, and stopped; is it"
                " fine-tuned, the prompt its own?"
            )
        return new


def shown(frame: NDArray[np.uint8], *, center_crop: bool) -> Image.Image:
    """Return a frame as the processor gets it, ``(H, W, 3)`` uint8, its middle 90 % by area enlarged again where training cropped.

    The reference enlarges with TensorFlow's bilinear filter, this with Pillow's; how far the two are apart
    was not measured.
    """
    image = Image.fromarray(np.ascontiguousarray(frame))
    if not center_crop:
        return image
    width, height = image.size
    left, top = (0.5 * side * (1.0 - CROPPED_AREA**0.5) for side in (width, height))
    return image.resize(
        (width, height), Image.Resampling.BILINEAR, box=(left, top, width - left, height - top)
    )


def binarised(actions: NDArray[np.float64], spec: ActionSpec) -> NDArray[np.float64]:
    """Return actions, ``(..., A)``, with every gripper of 0 to 1 at the nearer end; one half goes to 1.

    Raises:
        ConventionError: no gripper counts from 0 to 1.
    """
    grippers = np.array([d.is_gripper and d.unit is Unit.FRACTION for d in spec.dimensions])
    if not grippers.any():
        raise ConventionError(
            "binarise_gripper needs a gripper that counts from 0 to 1 (unit fraction), and the policy's"
            f" actions are {list(spec.names)}"
        )
    return np.where(grippers, (actions >= 0.5).astype(np.float64), actions)


def read_interface(file: PolicyFile) -> Interface:
    """Return the conventions of a policy file of this kind.

    Raises:
        UsageError: a field is missing, unknown or of the wrong kind.
    """
    file.require_known(FIELDS)
    interface = file.interface((file.text("camera"),))
    if interface.chunk != 1:
        raise UsageError(
            f"{file.path}: chunk is {interface.chunk}, and OpenVLA writes one action at a time; set it to 1"
        )
    return interface


def read_load(file: PolicyFile) -> LoadSpec:
    """Return where the weights are and how they are run.

    Raises:
        UsageError: a field of the wrong kind.
    """
    model, runs_code = file.local_path("model"), file.flag("trust_remote_code", False)
    if runs_code:
        instead = "serve the model from its own environment (kind vla-eval)"
        require_allowed(
            "trust_remote_code", what=f"the code in {model} to run", by=file.path, instead=instead
        )
    return LoadSpec(
        model=model,
        adapter=file.local_path("adapter") if "adapter" in file.data else None,
        trust_remote_code=runs_code,
        dtype=file.text("dtype", "float32"),
        device=file.text("device", "cpu"),
    )


def read_spec(file: PolicyFile, interface: Interface, weights: LoadSpec) -> OpenvlaSpec:
    """Return how actions are asked for and read.

    Raises:
        UsageError: a field of the wrong kind, or a data set that is not in the statistics.
        DataError: statistics that cannot be used.
        ConventionError: statistics that do not suit the convention stated.
    """
    config = weights.config
    path = statistics_file(file, weights)
    statistics = read_action_statistics(path, unnorm_key_of(file))
    accepted = file.names("accept_doubts")
    for doubt in doubts(statistics, interface.their_action_spec):
        if doubt.code not in accepted:
            remedy = "correct unnorm_key or action_spec" if doubt.is_certain else "look at how it was trained"
            raise ConventionError(
                f'{path}: {doubt.sentence}; {remedy}, or add "{doubt.code}" to accept_doubts in the policy'
                " file"
            )
    is_said = "vocabulary" in file.data
    return OpenvlaSpec(
        statistics=statistics,
        tokens=ActionTokens(
            vocabulary=file.whole("vocabulary", low=256) if is_said else _vocabulary(config, weights.model)
        ),
        vocabulary_is_said=is_said,
        prompt=file.text("prompt", PROMPT),
        prompt_text=file.text("prompt_text", ""),
        append_token=_append_token(file, EMPTY_TOKEN if config.get("model_type") == "openvla" else None),
        center_crop=file.flag("center_crop", False),
        binarise_gripper=file.flag("binarise_gripper", False),
        read_any_token=file.flag("read_any_token", False),
    )


def open_openvla(file: PolicyFile) -> OpenvlaPolicy:
    """Return the policy of a policy file, its weights loaded; what can be wrong without them is said first.

    Raises:
        SimgapError: the file, the conventions, the statistics or the weights; one line that says which.
    """
    interface, weights = read_interface(file), read_load(file)
    weights.require_safe()
    spec = read_spec(file, interface, weights)
    model, processor = load(weights)
    return OpenvlaPolicy(
        interface=interface,
        spec=spec,
        model=model,
        processor=processor,
        stamp=_stamp(interface, spec, weights),
    )


def stamp_openvla(file: PolicyFile) -> dict[str, Any]:
    """Return the stamp of a policy file's policy without loading its weights; they are hashed.

    Raises:
        SimgapError: as :func:`open_openvla`, but for what only loading shows.
    """
    interface, weights = read_interface(file), read_load(file)
    weights.require_safe()
    return _stamp(interface, read_spec(file, interface, weights), weights)


def _stamp(interface: Interface, spec: OpenvlaSpec, weights: LoadSpec) -> dict[str, Any]:
    return {
        "bridge": "openvla",
        "weights": weights.stamp(),
        **spec.to_json(),
        "interface": interface.to_json(),
    }


def _append_token(file: PolicyFile, default: int | None) -> int | None:
    """Return the token before the answer: what the file says, null for none."""
    said = file.data.get("append_token", default)
    return None if said is None else file.whole("append_token", default)


def unnorm_key_of(file: PolicyFile) -> str | None:
    """Return the data set named in a policy file, if one is."""
    return file.text("unnorm_key") if "unnorm_key" in file.data else None


def statistics_file(file: PolicyFile, weights: LoadSpec) -> Path:
    """Return the statistics named, or those of the newest training: beside the adapter, beside the model, or inside its config."""
    if "statistics" in file.data:
        return file.local_path("statistics")
    folders = [f for f in (weights.adapter, weights.model) if f is not None]
    beside = [f / "dataset_statistics.json" for f in folders]
    return next((p for p in beside if p.is_file()), weights.model / "config.json")


def _vocabulary(config: Mapping[str, Any], model: Path) -> int:
    """Return the vocabulary as the reference counts it: rows of the embedding, less those that pad it."""
    text = config.get("text_config", config)
    size, padding = (
        text.get("vocab_size") if isinstance(text, Mapping) else None,
        config.get("pad_to_multiple_of", 0),
    )
    if not isinstance(size, int) or not isinstance(padding, int):
        raise DataError(
            f"{model}: config.json does not say how many words the language model has; set vocabulary in the"
            " policy file"
        )
    return size - padding

"""What policies behind a server share: an explicit map of what is sent, and a reply that is checked before it is believed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.conventions import Conversion, Reference, VectorSpec
from simgap.errors import ConventionError, DataError, PolicyFault, UsageError
from simgap.policies.base import Asked
from simgap.policies.bridges.policy_file import Interface, PolicyFile
from simgap.policies.bridges.wire import NUMBERS, put
from simgap.provenance import content_hash

FIELDS = ("images", "image_layout", "state", "prompt", "prompt_text", "actions", "weights")
"""Fields of a policy file that this module reads."""
Where = tuple[str, ...]
"""Keys from the outside in, to an entry of a message."""
_KEPT_CALLS = 100_000
_LAYOUTS = ("HWC", "CHW")


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageMap:
    """Which of our names goes where in the server's message, and which of its entries are the actions."""

    images: tuple[tuple[str, Where], ...]
    """Camera -> entry, in the order of the file."""
    layout: str
    """``HWC`` or ``CHW``: order of an image's axes, uint8 RGB."""
    state: Where | None
    """Entry of the encoders; None for a policy that reads none."""
    prompt: Where | None
    """Entry of the instruction; None for a policy that reads none."""
    prompt_text: str
    """Instruction where the rollout brings none."""
    actions: Where

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "images": {camera: list(where) for camera, where in self.images},
            "image_layout": self.layout,
            "state": None if self.state is None else list(self.state),
            "prompt": None if self.prompt is None else list(self.prompt),
            "prompt_text": self.prompt_text,
            "actions": list(self.actions),
        }

    @property
    def cameras(self) -> tuple[str, ...]:
        """Our names of the cameras that are sent."""
        return tuple(camera for camera, _ in self.images)

    def message(
        self, images: Mapping[str, NDArray[np.uint8]], state: NDArray[np.float64], goal: str | None
    ) -> dict[str, Any]:
        """Return one observation as the server wants it.

        Args:
            images: camera -> ``(H, W, 3)`` uint8.
            state: ``(S,)`` in the server's convention.
            goal: the task in words, if the rollout has one.

        Raises:
            UsageError: the server reads an instruction and nobody gave one.
        """
        sent: dict[str, Any] = {}
        for camera, where in self.images:
            frame = images[camera] if self.layout == "HWC" else images[camera].transpose(2, 0, 1)
            put(sent, where, np.ascontiguousarray(frame))
        if self.state is not None:
            put(sent, self.state, state.astype(np.float32))
        if self.prompt is not None:
            text = self.prompt_text or goal
            if not text:
                raise UsageError(
                    "the server reads an instruction and this rollout has none; set prompt_text in the policy"
                    " file"
                )
            put(sent, self.prompt, text)
        return sent


def read_map(file: PolicyFile) -> MessageMap:
    """Return the map of a policy file.

    Raises:
        UsageError: a field is missing, of the wrong kind, or two of ours would go to one entry.
    """
    layout = file.text("image_layout", "HWC")
    if layout not in _LAYOUTS:
        raise UsageError(
            f"{file.path}: image_layout is {layout!r}; expected HWC (height, width, channel) or CHW"
        )
    for name in ("state", "prompt"):
        if name not in file.data:
            raise UsageError(
                f"{file.path}: field {name!r} is missing; expected the server's key for it, or null for a"
                " policy that reads none"
            )
    found = MessageMap(
        images=tuple((camera, _where(file, "images", key)) for camera, key in file.mapping("images").items()),
        layout=layout,
        state=_optional(file, "state"),
        prompt=_optional(file, "prompt"),
        prompt_text=file.text("prompt_text", ""),
        actions=_where(file, "actions", file.data.get("actions", "actions")),
    )
    entries = [where for _, where in found.images] + [w for w in (found.state, found.prompt) if w is not None]
    for i, entry in enumerate(entries):
        if any(entry[: len(other)] == other or other[: len(entry)] == entry for other in entries[:i]):
            raise UsageError(
                f"{file.path}: two of ours go to the server's entry {'/'.join(entry)!r}; give each its own"
            )
    return found


def _optional(file: PolicyFile, name: str) -> Where | None:
    value = file.data[name]
    return None if value is None else _where(file, name, value)


def _where(file: PolicyFile, name: str, value: Any) -> Where:
    """Return a path of keys: a text is one key, whatever is in it; a list goes inwards."""
    keys = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else ()
    if not keys or not all(isinstance(k, str) and k for k in keys):
        raise UsageError(
            f'{file.path}: {name} has the key {value!r:.60}; expected text such as "observation/image", or a'
            " list that goes inwards"
        )
    return keys


@dataclass(frozen=True, kw_only=True, slots=True)
class Translation:
    """Between the convention of a rollout and the one the server speaks, both ways."""

    state: Conversion
    action: Conversion
    start: Conversion | None
    """From our state to the state that the server's differences count from; None where nothing is counted from it."""

    @classmethod
    def of(cls, interface: Interface, *, server: str) -> Translation:
        """Return the translation between two sides.

        Raises:
            ConventionError: something would be lost or guessed; or actions that count from the start of a
                chunk would reach an executor, which reads the entries of several chunks and knows no start.
        """
        ours, theirs = interface.action_spec, interface.their_action_spec
        relative = [d.name for d in ours.dimensions if d.reference is Reference.CHUNK_DELTA]
        if relative:
            raise ConventionError(
                f"{server} sends {relative} against the state at the start of the chunk, which an executor"
                " cannot know; name the env (its actions are absolute) beside action_spec in the policy"
                " file, and they are converted"
            )
        action = Conversion.between(theirs, ours)
        start = None
        if action.needs_state:
            absolute = VectorSpec(
                dimensions=tuple(replace(d, reference=Reference.ABSOLUTE) for d in theirs.dimensions),
                rate_hz=theirs.rate_hz,
            )
            start = Conversion.between(interface.state_spec, absolute)
        return cls(
            state=Conversion.between(interface.state_spec, interface.their_state_spec),
            action=action,
            start=start,
        )

    def to_them(self, state: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return our state, ``(S,)``, as the server reads it."""
        return self.state.apply(state)

    def to_us(self, actions: NDArray[np.float64], state: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the server's chunk, ``(H, A)``, as a rollout executes it, ``(H, A)``; ``state`` is ours, ``(S,)``, of the observation.

        Raises:
            PolicyFault: a number that is not finite as float32, which is what is sent.
        """
        begun = None if self.start is None else self.start.apply_to_state(state)
        converted = self.action.apply(actions, begun)
        with np.errstate(over="ignore"):
            sent = converted.astype(np.float32)
        if not np.isfinite(sent).all():
            step, dimension = np.argwhere(~np.isfinite(sent))[0]
            name, value = self.action.map.target[dimension], converted[step, dimension]
            raise PolicyFault(
                f"the policy sends {value} for {name!r} at step {step} of a chunk, which no float32 holds;"
                " such a policy must not drive anything",
                mode=_mode_of(value),
            )
        return sent


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """What one prediction cost."""

    round_trip_s: float
    server_s: float | None
    """What the server says of itself, where it does."""


@dataclass(kw_only=True, slots=True)
class CallLog:
    """The newest calls of a policy, measured here."""

    clock: Callable[[], float] = time.perf_counter
    calls: deque[Call] = field(default_factory=lambda: deque(maxlen=_KEPT_CALLS))

    def quantile_s(self, share: float) -> float | None:
        """Return a quantile of the round trips in seconds; None before the first call."""
        return float(np.quantile([c.round_trip_s for c in self.calls], share)) if self.calls else None


def checked_actions(
    reply: Any, where: Where, *, chunk: int, spec: VectorSpec, server: str
) -> NDArray[np.float64]:
    """Return the chunk in a reply, ``(H, A)`` float64.

    Args:
        reply: the whole message.
        where: which entry is the chunk.
        chunk: H; one action, ``(A,)``, is a chunk of 1.
        spec: convention of the server's actions, A.
        server: who sent it, for messages.

    Raises:
        DataError: no such entry, or no numbers.
        PolicyFault: a number that is not finite.
        ConventionError: another length or width than the policy file says.
    """
    found = reply
    for key in where:
        if not isinstance(found, Mapping) or key not in found:
            held = sorted(map(str, found)) if isinstance(found, Mapping) else f"a {type(found).__name__}"
            raise DataError(
                f"{server} sent no entry {'/'.join(where)!r} (it sent {held!s:.200}); correct actions in the"
                " policy file"
            )
        found = found[key]
    try:
        actions = np.asarray(found)
    except ValueError as error:
        raise DataError(
            f"{server} sent actions that are no array ({error}); expected {chunk} rows of {len(spec)} numbers"
        ) from error
    if actions.dtype.kind not in NUMBERS or actions.dtype.kind == "b":
        raise DataError(f"{server} sent actions of dtype {actions.dtype}; expected numbers")
    if chunk == 1 and actions.ndim == 1:
        actions = actions[None]
    if actions.shape != (chunk, len(spec)):
        raise ConventionError(
            f"{server} sent actions of shape {actions.shape}, the policy file says {(chunk, len(spec))}:"
            f" {chunk} steps of {list(spec.names)}; correct chunk or action_spec, or serve another policy"
        )
    values = actions.astype(np.float64)
    # false for NaN, and for what becomes infinite on its way to the motors
    sendable = np.abs(values) <= np.finfo(np.float32).max
    if not sendable.all():
        step, dimension = np.argwhere(~sendable)[0]
        raise PolicyFault(
            f"{server} sent {values[step, dimension]} for {spec.names[dimension]!r} at step {step} of a"
            " chunk; such a policy must not drive anything",
            mode=_mode_of(values[step, dimension]),
        )
    return values


def _mode_of(value: float) -> str:
    """Return the failure mode of a number that cannot be sent: a finite one is too large for the wire."""
    return "out_of_range" if np.isfinite(value) else "not_finite"


def checked_observation(
    interface: Interface,
    images: Mapping[str, NDArray[np.uint8]],
    state: NDArray[np.float32],
    asked: Sequence[Asked],
    *,
    server: str,
) -> None:
    """Raise unless observations are what the policy file says.

    Raises:
        ConventionError: a camera is missing, or a shape or dtype differs.
        UsageError: another number of requests than observations, or a prefix.
    """
    for camera in interface.cameras:
        if camera not in images:
            raise ConventionError(
                f"{server} is sent cameras {list(interface.cameras)}, the observation has {sorted(images)}:"
                f" {camera!r} is missing"
            )
        expected = (len(state), interface.image_size, interface.image_size, 3)
        if images[camera].shape != expected or images[camera].dtype != np.uint8:
            raise ConventionError(
                f"frames of {camera!r} are {images[camera].dtype} {images[camera].shape}, {server} is sent"
                f" uint8 {expected} RGB"
            )
    if state.ndim != 2 or state.shape[1] != len(interface.state_spec):
        raise ConventionError(
            f"state has shape {state.shape}, expected (B, {len(interface.state_spec)}):"
            f" {list(interface.state_spec.names)}"
        )
    if len(asked) != len(state):
        raise UsageError(f"{len(asked)} requests for {len(state)} observations; one each is needed")
    if any(a.prefix is not None for a in asked):
        raise UsageError(
            f"the executor wants chunks that go on from the one before, and {server} takes none; use"
            " receding(k, delay=d)"
        )


def map_hash(interface: Interface, messages: MessageMap) -> str:
    """Return the hash of everything a policy file says about meaning: map and conventions."""
    return content_hash({"map": messages.to_json(), "interface": interface.to_json()})

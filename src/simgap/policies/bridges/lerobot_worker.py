"""Runs one lerobot checkpoint and answers over a pipe. Started as a file by a Python that has lerobot, so it imports nothing of simgap.

A message is 4 bytes of magic, the length of a JSON header and of what follows it, the header, and the arrays
that it lists. The pipe is kept under other numbers than 0 and 1: what libraries print goes to the error log
and cannot break a message.
"""

from __future__ import annotations

import copy
import ctypes
import importlib
import importlib.metadata
import json
import os
import signal
import struct
import sys
import traceback
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

MAGIC = b"sgl1"
PREFIX = struct.Struct("<4sIQ")
HEADER_BYTES = 4 << 20
PAYLOAD_BYTES = 1 << 30
DTYPES = ("uint8", "float32")
EPISODES = 256
"""Episodes whose queues are kept at a time; a rollout group has far fewer."""

PURE_CHUNKS = frozenset({"act", "diffusion", "pi0", "pi05", "pi0_fast", "smolvla"})
"""Types whose ``predict_action_chunk`` rests on its argument alone (diffusion's on a window of observations)."""
SEPARABLE = PURE_CHUNKS | {"multi_task_dit", "tdmpc", "vqbet"}
"""Types that keep all they remember of an episode in attributes of the policy itself, where it can be put aside."""
WINDOWED = frozenset({"diffusion"})
"""Those of :data:`PURE_CHUNKS` whose argument has an axis of observations."""


class RefusedError(Exception):
    """What was asked for cannot be had; ``kind`` says what has to happen next, as the classes of errors do on the other side."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class FrameError(ValueError):
    """Bytes that are no message, or one beyond the bounds."""


def pack(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> list[bytes]:
    """Return a message as pieces to be written in order."""
    listed = [{"name": name, "dtype": str(a.dtype), "shape": list(a.shape)} for name, a in arrays.items()]
    text = json.dumps({**header, "arrays": listed}).encode()
    pieces = [np.ascontiguousarray(a).tobytes() for a in arrays.values()]
    payload = sum(map(len, pieces))
    if len(text) > HEADER_BYTES or payload > PAYLOAD_BYTES:
        raise FrameError(
            f"a message of {len(text)} + {payload} bytes, at most {HEADER_BYTES} + {PAYLOAD_BYTES} are sent;"
            " send fewer observations at once"
        )
    return [PREFIX.pack(MAGIC, len(text), payload), text, *pieces]


def lengths(prefix: bytes) -> tuple[int, int]:
    """Return the bytes of header and arrays that follow a prefix.

    Raises:
        FrameError: another prefix, or lengths beyond the bounds.
    """
    magic, header, payload = PREFIX.unpack(prefix)
    if magic != MAGIC or header > HEADER_BYTES or payload > PAYLOAD_BYTES:
        raise FrameError(f"expected a message, got bytes that begin with {prefix!r}")
    return header, payload


def unpack(text: bytes, payload: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the header and the arrays of a message.

    Raises:
        FrameError: a header that cannot be read, or arrays that are not what it lists.
    """
    try:
        header = json.loads(text)
        listed = [(str(a["name"]), str(a["dtype"]), _shape(a["shape"])) for a in header.pop("arrays")]
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        told = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise FrameError(f"the header of a message cannot be read ({told:.120})") from error
    arrays, start = {}, 0
    for name, dtype, shape in listed:
        if dtype not in DTYPES or any(not 0 <= n <= PAYLOAD_BYTES for n in shape):
            raise FrameError(
                f"array {name!r:.60} is {dtype:.20} {shape!s:.80}; expected one of {', '.join(DTYPES)}"
            )
        count = 1
        for n in shape:
            count *= n
        size = count * np.dtype(dtype).itemsize
        if start + size > len(payload):
            raise FrameError(
                f"array {name!r:.60} of shape {shape!s:.80} does not fit into the {len(payload)} bytes that"
                " came"
            )
        arrays[name] = np.frombuffer(payload, dtype=dtype, count=count, offset=start).reshape(shape)
        start += size
    if start != len(payload):
        raise FrameError(f"{len(payload) - start} bytes came that no array claims")
    return header, arrays


def _shape(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > 8 or not all(type(n) is int for n in value):
        raise TypeError(f"shape {value!r:.60}; expected up to 8 whole numbers")
    return tuple(value)


class Server:
    """A loaded checkpoint with its processors, and what it remembers of the episodes that are running."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        import torch

        self._torch = torch
        torch.set_num_threads(int(request["threads"]))
        self._device, path = str(request["device"]), str(request["checkpoint"])
        if self._device.startswith("cuda") and not torch.cuda.is_available():
            raise RefusedError(
                "machine", f"device {self._device!r} was asked for and this machine has none; use device cpu"
            )
        importlib.import_module("lerobot.utils.import_utils").register_third_party_plugins()
        factory = importlib.import_module("lerobot.policies.factory")
        overrides = [
            f"--device={self._device}",
            *(f"--{name}={value}" for name, value in request["overrides"].items()),
        ]
        config = importlib.import_module("lerobot.configs").PreTrainedConfig.from_pretrained(
            path, cli_overrides=overrides, local_files_only=True
        )
        self._config, self._type, self._theirs = config, str(config.type), request["execution"] == "theirs"
        if not self._theirs and self._type not in PURE_CHUNKS:
            raise RefusedError(
                "usage",
                f"policy type {self._type!r} is not known to make every chunk anew; leave it its own"
                " executor: execution theirs",
            )
        if config.use_peft:
            raise RefusedError(
                "data", "the checkpoint is an adapter, not a policy; merge it into its base and save that"
            )
        self._their_steps = int(getattr(config, "n_action_steps", 1))
        # it cuts its prediction to the entries it would run itself; the executor wants all
        if self._type == "diffusion" and not self._theirs:
            config.n_action_steps = config.horizon - config.n_obs_steps + 1
        self._policy = factory.get_policy_class(config.type).from_pretrained(path, config=config, strict=True)
        self._policy.eval()
        self._pre, self._post = factory.make_pre_post_processors(
            config, path, preprocessor_overrides={"device_processor": {"device": self._device}}
        )
        self._resize = request.get("resize")
        self._window = int(config.n_obs_steps)
        self._windowed = not self._theirs and self._type in WINDOWED
        self._episodes: OrderedDict[int, _Episode] = OrderedDict()
        self._names = self._state_names()

    def facts(self) -> dict[str, Any]:
        """Return what the other side has to know of the checkpoint."""
        config = self._config
        return {
            "type": self._type,
            "lerobot": importlib.metadata.version("lerobot"),
            "torch": str(self._torch.__version__),
            "inputs": _shapes(config.input_features or {}),
            "outputs": _shapes(config.output_features or {}),
            "entries": (
                1
                if self._theirs
                else int(config.n_action_steps if self._type == "diffusion" else config.chunk_size)
            ),
            "n_action_steps": self._their_steps,
            "n_obs_steps": self._window,
            "temporal_ensemble_coeff": getattr(config, "temporal_ensemble_coeff", None),
            "watches": self._windowed and self._window > 1,
            "takes_task": any("Tokenizer" in type(step).__name__ for step in self._pre.steps),
            "is_relative": any(_is_relative(step) for step in self._pre.steps),
            "scalers": [
                _scaler(side, step)
                for side, steps in (("in", self._pre.steps), ("out", self._post.steps))
                for step in steps
                if _scales(step)
            ],
        }

    def chunks(
        self, rows: Sequence[Mapping[str, Any]], arrays: Mapping[str, NDArray[Any]]
    ) -> NDArray[np.float32]:
        """Return ``(B, entries, A)`` chunks of lerobot's ``predict_action_chunk``, or ``(B, 1, A)`` actions of its ``select_action``."""
        # One forward pass a row, as on a robot: a shared one moves ACT's chunks by 4e-6 of their size and
        # pads instructions to the longest.
        with self._torch.inference_mode():
            found = [
                self._one(row, {k: v[i : i + 1] for k, v in arrays.items()}) for i, row in enumerate(rows)
            ]
        out: NDArray[np.float32] = np.concatenate(found).astype(np.float32, copy=False)
        return out

    def watch(self, rows: Sequence[Mapping[str, Any]], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Remember observations that nothing is asked about."""
        with self._torch.inference_mode():
            for i, row in enumerate(rows):
                self._remember(
                    row, self._pre(self._observation(row, {k: v[i : i + 1] for k, v in arrays.items()}))
                )

    def _one(self, row: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        # of the episode and step alone: neither who else is asked nor what was asked before matters
        self._torch.manual_seed(int(row["noise"]))
        batch = self._pre(self._observation(row, arrays))
        if self._theirs:
            with self._episode_of(row).at_work(self._policy):
                actions = self._policy.select_action(batch)[:, None]
        else:
            seen = self._remember(row, batch) if self._windowed else batch
            actions = self._policy.predict_action_chunk(seen)
        return self._post(actions).cpu().numpy()  # type: ignore[no-any-return]

    def _observation(self, row: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        torch = self._torch
        seen: dict[str, Any] = {"task": [row["goal"]]}
        for name, values in arrays.items():
            tensor = torch.from_numpy(np.array(values)).to(self._device)
            if tensor.dtype == torch.uint8:
                tensor = (tensor.type(torch.float32) / 255).permute(0, 3, 1, 2).contiguous()
                if self._resize is not None:
                    size = tuple(self._resize[name])
                    tensor = torch.nn.functional.interpolate(
                        tensor, size=size, mode="bilinear", antialias=True, align_corners=False
                    ).clamp(0, 1)
            seen[name] = tensor
        return seen

    def _remember(self, row: Mapping[str, Any], batch: Mapping[str, Any]) -> dict[str, Any]:
        """Add one observation to its episode and return the window of the newest, ``(1, n_obs_steps, ...)`` each."""
        now = {name: batch[name] for name in self._config.input_features if name in batch}
        if self._window == 1:
            return {name: seen[:, None] for name, seen in now.items()}
        episode = self._episode_of(row)
        # the first stands for those before it, as lerobot does
        episode.window.extend([now] * (self._window if not episode.window else 1))
        return {name: self._torch.stack([seen[name] for seen in episode.window], dim=1) for name in now}

    def _episode_of(self, row: Mapping[str, Any]) -> _Episode:
        """Return the episode of a row, fresh at step 0.

        Raises:
            RefusedError: a step was left out, or the episode's beginning was not seen.
        """
        key, step = int(row["episode"]), int(row["step"])
        if step == 0:
            self._episodes.pop(key, None)
            while len(self._episodes) >= (EPISODES if self._type in SEPARABLE else 1):
                self._episodes.popitem(last=False)
            self._pre.reset()
            self._post.reset()
            self._episodes[key] = _Episode.fresh(self._policy, self._names, self._window)
        if key not in self._episodes:
            one = f" (policy type {self._type!r} can run one episode at a time)"
            alone = "" if self._type in SEPARABLE else one
            raise RefusedError(
                "usage",
                f"step {step} of an episode whose step 0 the policy was not shown, or which made way for"
                f" others{alone}; start at step 0",
            )
        episode = self._episodes[key]
        if step != episode.step + 1:
            raise RefusedError(
                "usage",
                f"the policy remembers {self._window} observation(s) and its own queue, one a control step,"
                f" and was shown step {step} after step {episode.step} of an episode; show it every step: ask"
                " at each (latest, ensemble) or have it watch",
            )
        episode.step = step
        return episode

    def _state_names(self) -> tuple[str, ...]:
        """Return the attributes in which the policy keeps an episode: those that its reset makes anew, and ACT's ensembler, which resets itself."""
        before = dict(vars(self._policy))
        self._policy.reset()
        after = vars(self._policy)
        own = "temporal_ensembler"
        return tuple(sorted(n for n in after if n == own or after[n] is not before.get(n)))


class _Episode:
    """What a policy remembers of one episode, while others have their turn."""

    def __init__(self, state: dict[str, Any], window: int) -> None:
        self.step = -1
        self.window: deque[dict[str, Any]] = deque(maxlen=window)
        self._state = state
        self._policy: Any = None
        self._idle: dict[str, Any] = {}

    @classmethod
    def fresh(cls, policy: Any, names: Sequence[str], window: int) -> _Episode:
        policy.reset()
        return cls({name: copy.deepcopy(vars(policy)[name]) for name in names}, window)

    def at_work(self, policy: Any) -> _Episode:
        self._policy = policy
        return self

    def __enter__(self) -> None:
        # what resets itself must not be an episode's when another begins
        self._idle = {name: getattr(self._policy, name) for name in self._state}
        for name, value in self._state.items():
            setattr(self._policy, name, value)

    def __exit__(self, *_: object) -> None:
        self._state = {name: getattr(self._policy, name) for name in self._state}
        for name, value in self._idle.items():
            setattr(self._policy, name, value)


def _shapes(features: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {"type": f.type.value, "shape": list(f.shape)} for name, f in features.items()}


def _is_relative(step: Any) -> bool:
    return type(step).__name__ == "RelativeActionsProcessorStep" and bool(step.enabled)


def _scales(step: Any) -> bool:
    return type(step).__name__ in ("NormalizerProcessorStep", "UnnormalizerProcessorStep")


def _scaler(side: str, step: Any) -> dict[str, Any]:
    """Return what one normaliser would scale, how, and of what it has statistics."""
    return {
        "side": side,
        "features": {name: f.type.value for name, f in step.features.items()},
        "modes": {kind.value: mode.value for kind, mode in step.norm_map.items()},
        "statistics": sorted(step.state_dict()),
    }


def messages(source: BinaryIO) -> Iterator[tuple[dict[str, Any], dict[str, NDArray[Any]]]]:
    """Yield messages until the other side closes the pipe."""
    while len(prefix := source.read(PREFIX.size)) == PREFIX.size:
        header, payload = lengths(prefix)
        yield unpack(source.read(header), source.read(payload))


def private_pipe() -> tuple[BinaryIO, BinaryIO]:
    """Return the pipe under numbers of its own; input is empty from now on and output goes to the error log."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return source, sink


def die_with(parent: int) -> None:
    """Ask Linux to kill this process when the thread that started it ends; 0 leaves it to the closed pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends this process itself
    if parent and sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        if os.getppid() != parent:  # it died before it could be asked for
            os._exit(1)


def main() -> None:
    """Answer until the pipe is closed."""
    die_with(int(sys.argv[1]))
    source, sink = private_pipe()
    server: Server | None = None
    for request, arrays in messages(source):
        answer: dict[str, Any] = {}
        out: dict[str, NDArray[Any]] = {}
        try:
            if server is None:
                server = Server(request)
                answer = server.facts()
            elif request["do"] == "watch":
                server.watch(request["rows"], arrays)
            else:
                out = {"chunks": server.chunks(request["rows"], arrays)}
        except RefusedError as error:
            answer = {"refused": error.kind, "text": str(error)}
        except Exception as error:
            trace = traceback.format_exc()[-8000:]
            answer = {"raised": type(error).__name__, "text": str(error)[:4000], "trace": trace}
        sink.writelines(pack({**answer, "id": request["id"]}, out))
        sink.flush()


if __name__ == "__main__":
    main()

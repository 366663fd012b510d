"""The two ways episodes lie in HDF5 files: ACT's and robomimic's; their names, rates and what their attributes say."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simgap.bounds import MALFORMED
from simgap.conventions import Dimension, Reference, Unit
from simgap.episodes.formats.index import Feature
from simgap.episodes.formats.keymap import ACTION_ROLE, KeyMap
from simgap.episodes.formats.layout import ACT_HDF5, MAPPED_HDF5, ROBOMIMIC_HDF5
from simgap.episodes.formats.source import Roles
from simgap.episodes.formats.vectors import UNLIMITED

if TYPE_CHECKING:
    import h5py

_RATE_NAMES = ("rate_hz", "fps", "hz", "control_freq", "frequency")
_MOST_MASK_BYTES = 64 << 20
_LOW_DIM = ("eef_pos", "eef_quat", "gripper_qpos")
"""What robomimic's own low-dimensional policies see of each arm, in its order."""


class Layout(ABC):
    """One way of laying out episodes."""

    name: str
    action: str
    """Key of the actions, below the group of an episode."""
    parent: str
    """Group whose attributes hold for all episodes; empty for the top."""

    @abstractmethod
    def fits(self, file: h5py.File) -> bool:
        """Return whether a file is laid out so."""

    @abstractmethod
    def episodes(self, file: h5py.File) -> list[str]:
        """Return the groups of the episodes, in order."""

    @abstractmethod
    def masks(self, file: h5py.File) -> dict[str, str]:
        """Return episode group -> the names of the subsets its owner put it in."""

    @abstractmethod
    def skips(self, key: str) -> bool:
        """Return whether a key holds nothing for us."""

    @abstractmethod
    def is_camera(self, key: str, item: h5py.Dataset) -> bool:
        """Return whether a key is where this layout keeps images."""

    @abstractmethod
    def guess(self, features: Mapping[str, Feature]) -> Roles:
        """Return what the layout's own names say."""

    @abstractmethod
    def robot(self, attributes: Mapping[str, Any]) -> str:
        """Return the robot, as far as it is stated."""


class _OneAFile(Layout):
    """A file is an episode."""

    parent = ""

    def episodes(self, file: h5py.File) -> list[str]:
        return ["/"]

    def masks(self, file: h5py.File) -> dict[str, str]:
        return {}


class _Act(_OneAFile):
    name, action = ACT_HDF5, "action"

    def fits(self, file: h5py.File) -> bool:
        return "action" in file and "observations" in file

    def skips(self, key: str) -> bool:
        # lengths of JPEGs by camera, in the recorder's order of cameras, which the file does not keep
        return key == "compress_len"

    def is_camera(self, key: str, item: h5py.Dataset) -> bool:
        return "/images/" in f"/{key}" and "depth" not in key.lower()

    def guess(self, features: Mapping[str, Feature]) -> Roles:
        state = [
            k
            for k in ("observations/qpos", "observations/state", "observations/joint_states")
            if k in features
        ][:1]
        action = [self.action] if self.action in features else []
        return Roles(action=tuple(action), state=tuple(state), cameras=_cameras(features))

    def robot(self, attributes: Mapping[str, Any]) -> str:
        return "act simulation" if bool(attributes.get("sim", False)) else "act robot"


class _Robomimic(Layout):
    name, action, parent = ROBOMIMIC_HDF5, "actions", "data"

    def fits(self, file: h5py.File) -> bool:
        return bool(_demos(file))

    def episodes(self, file: h5py.File) -> list[str]:
        return [f"data/{k}" for k in sorted(_demos(file), key=lambda k: int(k[5:]))]

    def masks(self, file: h5py.File) -> dict[str, str]:
        found: dict[str, list[str]] = {}
        masks = file.get("mask")
        for mask in sorted(masks) if isinstance(masks, Mapping) else ():
            listed = masks[mask]
            if (
                getattr(listed, "ndim", 0) != 1
                or listed.is_virtual
                or listed.external
                or listed.nbytes > _MOST_MASK_BYTES
            ):
                continue
            for name in listed[()]:
                found.setdefault(f"data/{_text(name)}", []).append(mask)
        return {name: ",".join(masks) for name, masks in found.items()}

    def skips(self, key: str) -> bool:
        return key.startswith(("next_obs/", "datagen_info/"))

    def is_camera(self, key: str, item: h5py.Dataset) -> bool:
        return key.startswith("obs/") and "depth" not in key.lower() and item.dtype.kind in "uOSV"

    def guess(self, features: Mapping[str, Feature]) -> Roles:
        arms = sorted({m[1] for k in features if (m := re.fullmatch(r"obs/(robot\d+)_eef_pos", k))})
        state = [f"obs/{arm}_{part}" for arm in arms for part in _LOW_DIM if f"obs/{arm}_{part}" in features]
        state = state or [k for k in ("obs/joint_states", "obs/gripper_states") if k in features]
        action = [self.action] if self.action in features else []
        return Roles(action=tuple(action), state=tuple(state), cameras=_cameras(features))

    def robot(self, attributes: Mapping[str, Any]) -> str:
        robots = environment(attributes).get("env_kwargs", {}).get("robots", "unknown")
        return "+".join(map(str, robots)) if isinstance(robots, list) else str(robots)


class _Mapped(_OneAFile):
    """Any file of one episode whose owner says by a key map which keys are the action and the state."""

    name = MAPPED_HDF5

    def __init__(self, action: str) -> None:
        self.action = action

    def fits(self, file: h5py.File) -> bool:
        return self.action in file

    def skips(self, key: str) -> bool:
        return False

    def is_camera(self, key: str, item: h5py.Dataset) -> bool:
        return "depth" not in key.lower()

    def guess(self, features: Mapping[str, Feature]) -> Roles:
        return Roles(action=(), state=(), cameras=_cameras(features))

    def robot(self, attributes: Mapping[str, Any]) -> str:
        return "unknown"


ACT, ROBOMIMIC = _Act(), _Robomimic()


def layouts(keymap: KeyMap | None) -> tuple[Layout, ...]:
    """Return the layouts a file may have, the most particular first."""
    mapped = [key for key, role in keymap.keys if role == ACTION_ROLE] if keymap is not None else []
    return (ROBOMIMIC, ACT, *(_Mapped(key) for key in mapped[:1]))


def rate_of(attributes: Mapping[str, Any]) -> float | None:
    """Return the rate a file states, in Hz, or None."""
    found = [attributes[k] for k in _RATE_NAMES if k in attributes]
    found.append(environment(attributes).get("env_kwargs", {}).get("control_freq"))
    for value in found:
        if isinstance(value, (int, float, np.number)) and 0.0 < float(value) < 1e5:
            return float(value)
    return None


def robosuite_actions(attributes: Mapping[str, Any], width: int) -> tuple[Dimension, ...]:
    """Return the convention of a robosuite action where the stored controller settings state it, else nothing.

    A pose controller with inputs of -1 to 1 scales them to metres and radians a step; the gripper's -1 is
    open.
    """
    controller = environment(attributes).get("env_kwargs", {}).get("controller_configs")
    if not isinstance(controller, dict) or controller.get("type") not in ("OSC_POSE", "OSC_POSITION"):
        return ()
    is_unit = (
        _all(controller.get("input_min"), -1)
        and _all(controller.get("input_max"), 1)
        and isinstance(controller.get("control_delta"), bool)
    )
    axes = ("x", "y", "z", "roll", "pitch", "yaw")[: 6 if controller["type"] == "OSC_POSE" else 3]
    if not is_unit or width != len(axes) + 1:
        return ()
    reference = Reference.DELTA if controller["control_delta"] else Reference.ABSOLUTE
    moved = [
        Dimension(name=f"eef.{axis}", unit=Unit.NORMALISED, low=-1.0, high=1.0, reference=reference)
        for axis in axes
    ]
    return (
        *moved,
        Dimension(
            name="gripper", unit=Unit.NORMALISED, low=-1.0, high=1.0, is_gripper=True, opens_high=False
        ),
    )


class InputRange(NamedTuple):
    """What the controllers of a robosuite environment take, by the settings that are stored with the data."""

    kinds: tuple[str, ...]
    low: float
    high: float
    dimensions: int | None
    """How many leading dimensions the range is stated for; None where it holds for all."""
    lows: tuple[float, ...] = ()
    """Lower ends dimension by dimension, where they are stated so."""
    highs: tuple[float, ...] = ()


def input_range(attributes: Mapping[str, Any]) -> InputRange | None:
    """Return the input range that ``env_args`` states, in any of robosuite's layouts; None where it states none, or actions are absolute.

    One controller, a list with one per robot, or the parts of a composite one (``body_parts``, with ``arms``
    or without). An absolute pose is handed on as it is; of the others, what lies outside is clipped before it
    is scaled.
    """
    found = list(_controllers(environment(attributes).get("env_kwargs", {}).get("controller_configs"), 0))
    if not found or any(_is_absolute(c) for c in found):
        return None
    ends = [(_numbers(c["input_min"]), _numbers(c["input_max"])) for c in found]
    if any(len(low) == 0 or len(high) == 0 for low, high in ends):
        return None
    widths = {len(v) for pair in ends for v in pair} - {1}
    kinds = tuple(dict.fromkeys(str(c.get("type", "controller")) for c in found))
    low, high = (
        float(pick(np.concatenate(list(side))))
        for pick, side in zip((np.min, np.max), zip(*ends, strict=True), strict=True)
    )
    if not (np.isfinite([low, high]).all() and low < high):
        return None
    if len(found) != 1 or len(widths) != 1:
        return InputRange(kinds, low, high, None)
    width = widths.pop()
    lows, highs = (tuple(np.broadcast_to(side, width).tolist()) for side in ends[0])
    return InputRange(kinds, low, high, width, lows, highs)


def limited_actions(attributes: Mapping[str, Any], width: int) -> tuple[Dimension, ...]:
    """Return numbered actions with the limits that ``env_args`` states, for a copy in another format to keep; nothing where it states none."""
    taken = input_range(attributes)
    if taken is None:
        return ()
    lows, highs = (
        (taken.lows, taken.highs)
        if len(taken.lows) == width
        else ((taken.low,) * width, (taken.high,) * width)
    )
    # what is behind them, such as a gripper, is stated nowhere
    if taken.dimensions is not None and len(taken.lows) != width:
        lows = (*(taken.lows or (taken.low,) * taken.dimensions), *(-UNLIMITED,) * (width - taken.dimensions))
        highs = (
            *(taken.highs or (taken.high,) * taken.dimensions),
            *(UNLIMITED,) * (width - taken.dimensions),
        )
    if len(lows) != width:
        return ()
    return tuple(
        Dimension(name=f"actions_{k}", unit=Unit.UNKNOWN, low=low, high=high)
        for k, (low, high) in enumerate(zip(lows, highs, strict=True))
    )


def _controllers(value: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    """Yield the settings of each controller, however deep they are nested."""
    if depth > 6:
        return
    if isinstance(value, str):
        yield from _controllers(_json(value), depth + 1)
    elif isinstance(value, list):
        for item in value[:32]:
            yield from _controllers(item, depth + 1)
    elif isinstance(value, dict):
        if "input_min" in value and "input_max" in value:
            yield value
        else:
            for item in value.values():
                if isinstance(item, (dict, list)):
                    yield from _controllers(item, depth + 1)


def _is_absolute(controller: Mapping[str, Any]) -> bool:
    return controller.get("control_delta") is False or controller.get("input_type") == "absolute"


def _numbers(value: Any) -> NDArray[np.float64]:
    try:
        return np.asarray(value, dtype=np.float64).reshape(-1)
    except MALFORMED:
        return np.zeros(0)


def task_of(episode: Mapping[str, Any], parent: Mapping[str, Any]) -> str:
    """Return the instruction a file carries, or nothing."""
    for attributes in (episode, parent):
        for key in ("language_instruction", "task", "instruction", "lang"):
            if isinstance(attributes.get(key), (str, bytes)):
                return _text(attributes[key])
    problem = _json(parent.get("problem_info"))
    words = problem.get("language_instruction")
    return str(words) if isinstance(words, str) else str(environment(parent).get("env_name", ""))


def environment(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return robomimic's ``env_args``, empty where there are none or they cannot be read."""
    found = _json(attributes.get("env_args"))
    if not isinstance(found.get("env_kwargs", {}), dict):
        return {}
    return found


def _demos(file: h5py.File) -> list[str]:
    """Return the names of robomimic's demonstrations, none where the file has no such group."""
    data = file.get("data")
    return (
        [k for k in data if isinstance(k, str) and re.fullmatch(r"demo_\d{1,9}", k)]
        if isinstance(data, Mapping)
        else []
    )


def _cameras(features: Mapping[str, Feature]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, feature in features.items():
        if feature.is_image:
            name = re.sub(r"_(image|rgb)$", "", key.rpartition("/")[2]).replace(".", "_")
            found[key if name in found else name] = key
    return found


def _all(value: Any, wanted: float) -> bool:
    return value is not None and bool(np.all(np.asarray(value, dtype=object) == wanted))


def _json(value: Any) -> dict[str, Any]:
    if not isinstance(value, (str, bytes)) or len(value) > (4 << 20):
        return {}
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

"""What the keys of somebody else's dataset mean: an explicit map, from the command line or from a file beside the data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simgap.episodes.formats.index import Feature
from simgap.episodes.formats.layout import IMAGE_PREFIX, KEYMAP_JSON
from simgap.episodes.formats.source import Roles
from simgap.errors import DataError, UsageError, did_you_mean
from simgap.provenance import read_json

SCHEMA = 1
ACTION_ROLE, STATE_ROLE, TIME_ROLE, IGNORE, NONE = "action", "state", "time", "ignore", "none"
IMAGE_CHANGES = ("rgb", "bgr", "rotate_180", "flip_vertical")
"""How stored frames differ from upright RGB; ``rgb`` states that they do not."""
_FIELDS = frozenset({"schema", "keys", "rate_hz", "task", "names", "dimensions", "images", "rename"})


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyMap:
    """What its owner says of a dataset that does not say it itself."""

    keys: tuple[tuple[str, str], ...] = ()
    """``(key in the dataset, role)``: ``action``, ``state``, ``time``, ``ignore`` or the name of a camera. Several keys of
    one vector are joined in this order; the key ``none`` says that there is no state."""
    rate_hz: float | None = None
    """Frames a second, where the format does not say."""
    task: str = ""
    """Instruction of episodes that carry none."""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """``action`` or ``state`` -> names of the dimensions."""
    dimensions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """``[action:|state:]GLOB`` -> fields of the convention (unit, low, high, is_gripper ...), later ones win."""
    images: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Camera name -> :data:`IMAGE_CHANGES` to undo."""
    rename: Mapping[str, str] = field(default_factory=dict)
    """``[action:|state:]NAME`` of a dimension -> its new name; what ``dimensions`` states goes by the new one."""

    def __post_init__(self) -> None:
        if self.rate_hz is not None and not 0.0 < self.rate_hz < 1e5:
            raise UsageError(
                f"a rate of {self.rate_hz!r} Hz makes no sense; give frames a second, such as 30"
            )
        twice = sorted(
            {k for k, _ in self.keys if k != NONE and sum(k == other for other, _ in self.keys) > 1}
        )
        if twice:
            raise UsageError(f"the key map names {twice} twice; give each key one role")
        for camera, changes in self.images.items():
            for change in changes:
                if change not in IMAGE_CHANGES:
                    raise UsageError(
                        f"camera {camera!r}: frames cannot be {change!r};"
                        f" {did_you_mean(change, IMAGE_CHANGES)}"
                    )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; what is not stated is left out."""
        plain: dict[str, Any] = {
            "schema": SCHEMA,
            "keys": [list(pair) for pair in self.keys],
            "rate_hz": self.rate_hz,
            "task": self.task,
            "names": {k: list(v) for k, v in self.names.items()},
            "dimensions": {k: dict(v) for k, v in self.dimensions.items()},
            "images": {k: list(v) for k, v in self.images.items()},
            "rename": dict(self.rename),
        }
        return {k: v for k, v in plain.items() if v}

    def merged(self, other: KeyMap) -> KeyMap:
        """Return this map with everything another one states put over it."""
        mine = [
            pair
            for pair in self.keys
            if pair[0] not in {k for k, _ in other.keys}
            and not (pair[0] == NONE and _roles(other) & {STATE_ROLE})
        ]
        return KeyMap(
            keys=(*mine, *other.keys),
            rate_hz=self.rate_hz if other.rate_hz is None else other.rate_hz,
            task=other.task or self.task,
            names={**self.names, **other.names},
            dimensions={**self.dimensions, **other.dimensions},
            images={**self.images, **other.images},
            rename={**self.rename, **other.rename},
        )


def read_keymap(path: Path) -> KeyMap:
    """Read a key map from a JSON file.

    Raises:
        DataError: no JSON.
        UsageError: unknown fields, or values of the wrong kind; says which.
    """
    data = read_json(path, limit_bytes=1 << 20)
    if not isinstance(data, dict) or data.get("schema", SCHEMA) != SCHEMA:
        raise UsageError(
            f'{path} is no key map; expected a JSON object of schema {SCHEMA}, such as {{"keys": {{"image":'
            ' "front"}}'
        )
    unknown = sorted(set(data) - _FIELDS)
    if unknown:
        raise UsageError(f"{path} has the unknown field {unknown[0]!r}; {did_you_mean(unknown[0], _FIELDS)}")
    keys = data.get("keys") or ()
    try:
        pairs = keys.items() if isinstance(keys, dict) else [(key, role) for key, role in keys]
        return KeyMap(
            keys=tuple((str(key), str(role)) for key, role in pairs),
            rate_hz=None if data.get("rate_hz") is None else float(data["rate_hz"]),
            task=str(data.get("task") or ""),
            names={str(k): tuple(str(n) for n in v) for k, v in (data.get("names") or {}).items()},
            dimensions={str(k): dict(v) for k, v in (data.get("dimensions") or {}).items()},
            images={
                str(k): (v,) if isinstance(v, str) else tuple(str(c) for c in v)
                for k, v in (data.get("images") or {}).items()
            },
            rename={str(k): str(v) for k, v in (data.get("rename") or {}).items()},
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"{path} cannot be read as a key map ({error}); keys map a key to a role, names a role to a list"
        ) from error


def stored_keymap(root: Path) -> KeyMap | None:
    """Return the map beside a dataset: in its folder, or named after its file."""
    path = keymap_path(root)
    return read_keymap(path) if path.is_file() else None


def keymap_path(root: Path) -> Path:
    """Return where the map of a dataset lies."""
    return root.with_name(f"{root.name}.{KEYMAP_JSON}") if root.is_file() else root / KEYMAP_JSON


def parse_pairs(words: Sequence[str], *, what: str, example: str) -> list[tuple[str, str]]:
    """Return ``KEY=VALUE`` words as pairs.

    Raises:
        UsageError: a word without ``=``, or an empty side.
    """
    pairs = []
    for word in words:
        key, sign, value = word.partition("=")
        if not (sign and key and value):
            raise UsageError(f"{what} {word!r} is not KEY=VALUE; write it like {example}")
        pairs.append((key, value))
    return pairs


def resolve(
    root: Path,
    features: Mapping[str, Feature],
    guess: Roles,
    keymap: KeyMap | None,
    *,
    needs_state: bool = True,
) -> Roles:
    """Return what every feature is: what the format's own names say, overruled by the map.

    Args:
        root: the dataset, for messages.
        features: what it holds.
        guess: what the names mean in this format.
        keymap: what its owner says.
        needs_state: False for a format that measures none.

    Raises:
        DataError: no action or no state can be found, and nobody said which it is.
        UsageError: the map names keys that are not there, or leaves two meanings open.
    """
    chosen: dict[str, list[str]] = {ACTION_ROLE: [], STATE_ROLE: [], TIME_ROLE: []}
    cameras, mapped, stateless = dict(guess.cameras), set[str](), False
    for key, raw in keymap.keys if keymap is not None else ():
        role = _role(raw)
        if key == NONE and role == STATE_ROLE:
            stateless = True
            continue
        if key not in features:
            raise UsageError(f"{root} has no key {key!r} to map to {raw!r}; {did_you_mean(key, features)}")
        _place(root, features[key], role, chosen, cameras, mapped)
    if stateless and chosen[STATE_ROLE]:
        raise UsageError(
            f"the key map of {root} says both that there is no state and that {chosen[STATE_ROLE]} are it;"
            " keep one of the two"
        )
    if len(chosen[TIME_ROLE]) > 1:
        raise UsageError(
            f"the key map of {root} gives {chosen[TIME_ROLE]} as the clock; one key can be the time"
        )
    left = {
        role: tuple(k for k in keys if k not in mapped)
        for role, keys in ((ACTION_ROLE, guess.action), (STATE_ROLE, guess.state))
    }
    action = tuple(chosen[ACTION_ROLE]) or left[ACTION_ROLE]
    state = tuple(chosen[STATE_ROLE]) or (() if stateless else left[STATE_ROLE])
    if not action:
        raise DataError(_missing(root, ACTION_ROLE, features))
    if not state and needs_state and not stateless:
        raise DataError(
            _missing(root, STATE_ROLE, features)
            + f", or --map {NONE}={STATE_ROLE} where nothing was measured"
        )
    if keymap is not None:
        _require_known(root, keymap, cameras)
    return Roles(
        action=action,
        state=state,
        cameras=cameras,
        time=chosen[TIME_ROLE][0] if chosen[TIME_ROLE] else guess.time,
    )


def _place(
    root: Path,
    feature: Feature,
    role: str,
    chosen: dict[str, list[str]],
    cameras: dict[str, str],
    mapped: set[str],
) -> None:
    """Give one feature its role."""
    mapped.add(feature.key)
    for name in [n for n, key in cameras.items() if key == feature.key]:
        del cameras[name]
    if role == IGNORE:
        return
    if role in chosen:
        if not feature.is_numeric:
            raise UsageError(
                f"{root}: key {feature.key!r} is {feature.dtype} and cannot be the {role}; map a key of"
                " numbers"
            )
        chosen[role].append(feature.key)
        return
    if not feature.is_image:
        raise UsageError(
            f"{root}: {role!r} would be a camera, but key {feature.key!r} is {feature.dtype}; it can be"
            " action, state, time or ignore"
        )
    if role in cameras:
        raise UsageError(
            f"{root}: keys {cameras[role]!r} and {feature.key!r} would both be camera {role!r}; rename or"
            " ignore one of them with --map"
        )
    cameras[role] = feature.key


def _role(text: str) -> str:
    return {"observation.state": STATE_ROLE, "time_s": TIME_ROLE}.get(text, text.removeprefix(IMAGE_PREFIX))


def _roles(keymap: KeyMap) -> set[str]:
    return {_role(role) for _, role in keymap.keys}


def _require_known(root: Path, keymap: KeyMap, cameras: Iterable[str]) -> None:
    for camera in keymap.images:
        if camera not in set(cameras):
            raise UsageError(f"{root} has no camera {camera!r}; {did_you_mean(camera, cameras)}")
    for role in keymap.names:
        if role not in (ACTION_ROLE, STATE_ROLE):
            raise UsageError(f"names can be given to {ACTION_ROLE!r} and {STATE_ROLE!r}, not to {role!r}")


def _missing(root: Path, role: str, features: Mapping[str, Feature]) -> str:
    """Say that nothing is the action, or the state, which keys might be, and how to say so."""
    expected = {ACTION_ROLE: "['action', 'actions']", STATE_ROLE: "['observation.state', 'state']"}[role]
    numeric = sorted(k for k, f in features.items() if f.is_numeric)
    near = [k for k in numeric if role in k.lower()]
    hint = f"--map {near[0]}={role}" if near else f"--map KEY={role}"
    return (
        f"{root} has none of the features {expected}; its keys of numbers are {json.dumps(numeric[:40])}; say"
        f" which is the {role}: {hint}"
    )

"""The options of ``simgap data`` that say what a dataset is and what it should become, and how they are read."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.errors import UsageError

if TYPE_CHECKING:
    from simgap.episodes.edit.convert import Target
    from simgap.episodes.formats.keymap import KeyMap
    from simgap.episodes.reader import Dataset

WORDS = (
    "deg, rad, percent, m, mm, rad/s, normalised, ticks ..., absolute, delta, chunk_delta, gripper,"
    " opens_high, opens_low, LOW..HIGH, ends:LOW..HIGHticks"
)

_RENAME = "name of a dimension, as action:OLD=NEW or state:OLD=NEW where only one of the two is meant; repeat"


def add_reading(action: argparse.ArgumentParser, *, is_stated: bool = True) -> None:
    """Add what says how to read data that do not say it themselves; a file ``simgap-map.json`` beside them says the same."""
    group = action.add_argument_group("what the data do not say themselves")
    group.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="KEY=ROLE",
        help=(
            "role of a key: action, state, time, ignore or a camera's name (several keys of one vector are"
            " joined); none=state: nothing was measured; or a JSON file that says all of this"
        ),
    )
    group.add_argument(
        "--rate-hz", type=float, metavar="HZ", help="frames a second, where the format does not say"
    )
    group.add_argument(
        "--image",
        action="append",
        default=[],
        metavar="CAMERA=HOW",
        help="how frames are stored: rgb, bgr, rotate_180, flip_vertical; repeat",
    )
    if is_stated:
        group.add_argument("--rename", action="append", default=[], metavar="OLD=NEW", help=_RENAME)
        group.add_argument(
            "--is",
            dest="stated",
            action="append",
            default=[],
            metavar="DIM=WORDS",
            help=f"what dimensions are, by glob: {WORDS}",
        )


def add_change(action: argparse.ArgumentParser) -> None:
    """Add what a conversion changes."""
    group = action.add_argument_group("what to change; DIM is [action:|state:]GLOB")
    group.add_argument("--rename", action="append", default=[], metavar="OLD=NEW", help=_RENAME)
    group.add_argument("--drop", action="append", default=[], metavar="DIM", help="leave dimensions out")
    group.add_argument(
        "--is",
        dest="stated",
        action="append",
        default=[],
        metavar="DIM=WORDS",
        help=f"say what dimensions are, no number changes: {WORDS}",
    )
    group.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="LeRobot calibration of the arm: what -100 and 100, or 0 and 100, stand for",
    )
    group.add_argument(
        "--to", action="append", default=[], metavar="DIM=WORDS", help="convert dimensions, in the same words"
    )
    group.add_argument(
        "--order",
        action="append",
        default=[],
        metavar="[action:|state:]A,B,C",
        help="order of the dimensions",
    )
    group.add_argument(
        "--resample",
        type=float,
        metavar="HZ",
        help="fewer frames a second: at each tick the newest frame, never an invented one",
    )
    group.add_argument(
        "--clock",
        choices=("recorded", "positional"),
        default="recorded",
        help="positional: k / rate, where the recorded clock is known wrong",
    )
    group.add_argument(
        "--state",
        choices=("measured", "previous-action"),
        default="measured",
        help="previous-action: where nothing was measured, the command before, as LeRobot needs some state",
    )
    group.add_argument("--camera", action="append", default=[], metavar="OLD=NEW", help="rename a camera")
    group.add_argument(
        "--drop-camera", action="append", default=[], metavar="NAME", help="leave a camera out"
    )
    group.add_argument("--resize", type=_size, metavar="HxW", help="size of the frames")
    group.add_argument(
        "--episodes",
        metavar="WHICH",
        help="episodes to take, such as 0,4-9, or a part of a split: split.json:train",
    )
    group.add_argument("--task", default="", metavar="WORDS", help="instruction of episodes that carry none")


def keymap_of(args: argparse.Namespace, *, with_stated: bool = True) -> KeyMap | None:
    """Return what the options say about reading, or None where they say nothing.

    Raises:
        UsageError: words that mean nothing.
    """
    from simgap.episodes.formats.keymap import KeyMap, parse_pairs, read_keymap
    from simgap.episodes.formats.words import parse_convention

    found = KeyMap()
    for word in args.map:
        found = found.merged(
            read_keymap(Path(word))
            if "=" not in word
            else KeyMap(keys=tuple(parse_pairs([word], what="--map", example="image=front")))
        )
    images = {
        name: tuple(how.split(","))
        for name, how in parse_pairs(args.image, what="--image", example="cam_high=bgr")
    }
    stated = parse_pairs(args.stated, what="--is", example="'elbow*=deg'") if with_stated else []
    rename = (
        dict(parse_pairs(args.rename, what="--rename", example="leader_elbow=elbow")) if with_stated else {}
    )
    said: dict[str, dict[str, Any]] = {}
    for pattern, words in stated:
        said[pattern] = said.get(pattern, {}) | parse_convention(words)
    found = found.merged(KeyMap(rate_hz=args.rate_hz, images=images, dimensions=said, rename=rename))
    return found if found != KeyMap() else None


def target_of(args: argparse.Namespace, dataset: Dataset) -> Target:
    """Return what a conversion is asked to make.

    Raises:
        UsageError: words that mean nothing.
    """
    from simgap.episodes.edit.convert import Target
    from simgap.episodes.edit.transform import Plan
    from simgap.episodes.formats.keymap import parse_pairs
    from simgap.episodes.formats.words import parse_convention

    def conventions(words: Sequence[str], what: str) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for key, value in parse_pairs(words, what=what, example="'elbow*=deg'"):
            found[key] = found.get(key, {}) | parse_convention(value)
        return found

    plan = Plan(
        rename=dict(parse_pairs(args.rename, what="--rename", example="j1=elbow.pos")),
        drop=tuple(args.drop),
        states=_states(
            _calibrated(args.calibration, dataset) if args.calibration is not None else {},
            conventions(args.stated, "--is"),
        ),
        becomes=conventions(args.to, "--to"),
        order=_orders(args.order),
        rate_hz=args.resample,
    )
    return Target(
        plan=plan,
        codec=args.codec,
        cameras=dict(parse_pairs(args.camera, what="--camera", example="image=front")),
        drop_cameras=tuple(args.drop_camera),
        image_size=args.resize,
        episodes=None if args.episodes is None else episodes_of(args.episodes, dataset),
        task=args.task,
        state_from_action=args.state == "previous-action",
        positional_clock=args.clock == "positional",
    )


def _states(
    calibrated: dict[str, dict[str, Any]], stated: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Put what is said of dimensions over what their calibration says; a dimension named in both has both."""
    return {
        **calibrated,
        **{pattern: calibrated.get(pattern, {}) | fields for pattern, fields in stated.items()},
    }


def episodes_of(text: str, dataset: Dataset) -> tuple[int, ...]:
    """Read ``0,4-9``, or ``split.json:train``.

    Raises:
        UsageError: neither.
    """
    from simgap.episodes.edit.split import part_of

    name, sign, part = text.rpartition(":")
    if sign and name.endswith(".json"):
        return part_of(Path(name), part, dataset)
    chosen: list[int] = []
    for word in text.split(","):
        match = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7}))?", word.strip())
        if match is None:
            raise UsageError(
                f"--episodes {text!r} is no list of episodes; write it like 0,4-9, or split.json:train"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        chosen.extend(range(first, last + 1))
    return tuple(chosen)


def _orders(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for word in words:
        role, sign, names = word.partition(":")
        for each in (role,) if sign else ("action", "state"):
            found[each] = tuple(n.strip() for n in (names if sign else word).split(","))
    return found


def _calibrated(path: Path, dataset: Dataset) -> dict[str, dict[str, Any]]:
    """Return the calibrated range of every dimension that the arm's calibration file has a motor for."""
    from simgap.conventions import CalibratedRange
    from simgap.provenance import read_json

    motors = read_json(path)
    if not isinstance(motors, dict):
        raise UsageError(
            f"{path} is no LeRobot calibration; expected a JSON object of motors with range_min and range_max"
        )
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys([*dataset.spec.action_spec.names, *dataset.spec.state_spec.names]):
        entry = motors.get(name.removesuffix(".pos"))
        if isinstance(entry, dict):
            ends = CalibratedRange.from_lerobot(entry)
            found[name] = {
                "calibrated": {
                    "low": ends.low,
                    "high": ends.high,
                    "unit": str(ends.unit),
                    "ticks_per_turn": ends.ticks_per_turn,
                }
            }
    if not found:
        raise UsageError(
            f"{path} has motors {sorted(motors)}, none of which is a dimension of {dataset.root}; --rename"
            " them to the motors' names"
        )
    return found


def _size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,5})[xX](\d{1,5})", text)
    if match is None or not 0 < int(match[1]) <= 8192 or not 0 < int(match[2]) <= 8192:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write height x width, such as 96x96")
    return int(match[1]), int(match[2])


def shares_of(text: str) -> dict[str, float]:
    """Read ``train=0.8,val=0.2``.

    Raises:
        UsageError: no such list.
    """
    from simgap.episodes.formats.keymap import parse_pairs

    try:
        return {
            name: float(share)
            for name, share in parse_pairs(text.split(","), what="--parts", example="train=0.8,val=0.2")
        }
    except ValueError as error:
        raise UsageError(
            f"--parts {text!r} has a share that is no number; write it like train=0.8,val=0.2"
        ) from error


def written(path: Path, document: dict[str, Any], *, is_sealed: bool = False) -> None:
    """Write a document as JSON, whole or not at all; sealed with the hash of its content where it is read back."""
    from simgap.provenance import SEAL, content_hash, write_atomic

    sealed = {SEAL: content_hash(document)} if is_sealed else {}
    write_atomic(path, json.dumps(document | sealed, indent=2, allow_nan=False) + "\n")

"""Commands that a message can print: they hold what the data were opened with, and work as they stand."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.episodes.formats.keymap import KeyMap, stored_keymap
from simgap.errors import UsageError

if TYPE_CHECKING:
    from simgap.episodes.reader import Dataset

TASK = "describe the task here"
"""Stands for the instruction that only its owner knows; who passes it on as it stands is asked again."""
_FLAGS = {"is_gripper": ("gripper", "no_gripper"), "opens_high": ("opens_high", "opens_low")}


def command(*words: object) -> str:
    """Return words as one line of a shell."""
    return shlex.join([str(w) for w in words])


def convert_command(dataset: Dataset, *options: object, out: str = "converted") -> str:
    """Return the ``simgap data convert`` that works on this dataset as it was opened, with a task where it carries none."""
    task = [] if dataset.spec.task_default or all(e.tasks for e in dataset.entries) else ["--task", TASK]
    target = dataset.root.with_name(f"{dataset.root.stem}-{out}")
    return command(
        "simgap", "data", "convert", dataset.root, *keymap_words(dataset), *options, *task, "--out", target
    )


def again(dataset: Dataset, asked: Sequence[str], *options: object) -> str:
    """Return the command that was given, its own options kept, with further ones; ``data convert`` where no command was given."""
    if not asked:
        return convert_command(dataset, *options)
    return command("simgap", *asked, *options)


def require_own_words(task: str) -> None:
    """Refuse the words of an example as the instruction of a dataset.

    Raises:
        UsageError: says what to write.
    """
    if task.strip() == TASK:
        raise UsageError(
            f"--task {TASK!r} is what stands in the example; write in its place what the robot does in these"
            " episodes, such as 'put the cube into the box'"
        )


def say_once(root: Path, *options: object) -> str:
    """Return the command that keeps beside the data what their owner says of them, for every verb."""
    return command("simgap", "data", "info", root, *options, "--save-map")


def reading_command(action: str, dataset: Dataset, *options: object) -> str:
    """Return ``simgap data ACTION`` on this dataset as it was opened, with further options."""
    return command("simgap", "data", action, dataset.root, *keymap_words(dataset), *options)


def answer_command(dataset: Dataset, *options: object) -> str:
    """Return the command by which the owner's answer is kept: beside the data of others, in a copy of ours, which state their own."""
    return (
        convert_command(dataset, *options)
        if dataset.is_ours
        else reading_command("info", dataset, *options, "--save-map")
    )


def keymap_words(dataset: Dataset) -> list[str]:
    """Return the options that say what the owner said of the data when they were opened; none for what lies beside them."""
    return (
        []
        if dataset.keymap is None or dataset.keymap == stored_keymap(Path(dataset.root))
        else list(_words(dataset.keymap))
    )


def _words(keymap: KeyMap) -> Iterator[str]:
    for key, role in keymap.keys:
        yield from ("--map", f"{key}={role}")
    if keymap.rate_hz is not None:
        yield from ("--rate-hz", f"{keymap.rate_hz:g}")
    for camera, how in keymap.images.items():
        yield from ("--image", f"{camera}={','.join(how)}")
    for pattern, fields in keymap.dimensions.items():
        yield from ("--is", f"{pattern}={_convention(fields)}")
    for old, new in keymap.rename.items():
        yield from ("--rename", f"{old}={new}")


def _convention(fields: Mapping[str, Any]) -> str:
    said = [str(fields[k]) for k in ("unit", "reference") if k in fields]
    said += [words[0] if fields[k] else words[1] for k, words in _FLAGS.items() if k in fields]
    said += [f"{k}:{fields[k]}" for k in ("sign", "zero", "frame") if k in fields]
    if "low" in fields:
        said.append(f"{fields['low']:g}..{fields['high']:g}")
    if "calibrated" in fields:
        ends = fields["calibrated"]
        turn = f"/{ends['ticks_per_turn']:g}" if "ticks_per_turn" in ends else ""
        said.append(f"ends:{ends['low']:g}..{ends['high']:g}{ends['unit']}{turn}")
    return ",".join(said)

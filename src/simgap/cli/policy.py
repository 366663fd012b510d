"""``simgap policy``: ask a policy on recordings; the policy file of a checkpoint that lives elsewhere."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.cli import _policy_check
from simgap.cli._arguments import EnvName
from simgap.cli._options import count
from simgap.cli._output import emit, show_lines

if TYPE_CHECKING:
    from rich.console import Console

    from simgap.policies.bridges.describe import Description, Given

HELP = (
    "Ask a policy on recordings before anything moves; write the policy file of a LeRobot checkpoint folder."
)
_DESCRIBE = (
    "Say what a LeRobot checkpoint folder (config.json, model.safetensors, its processors) is, and with"
    " --write write the policy file by which screen, select and trial run it. What the folder cannot say"
    " (what its numbers mean, which camera is which) is named all at once, each with the flag that says it."
    " Exit code 1 where a file was made and something still keeps the policy from running."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the action and its options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _policy_check.add_arguments(actions)
    add = actions.add_parser(
        "describe",
        help="say what a LeRobot checkpoint folder is, and write its policy file",
        description=_DESCRIBE,
    )
    add.add_argument(
        "folder", type=Path, metavar="FOLDER", help="checkpoint folder that lerobot saved (pretrained_model)"
    )
    add.add_argument(
        "--write", type=Path, metavar="FILE", help="policy file to write (.json); --out says the same"
    )
    add.add_argument(
        "--env",
        type=EnvName,
        metavar="NAME",
        help="env whose conventions, cameras and rate the policy speaks",
    )
    add.add_argument(
        "--dataset",
        type=Path,
        metavar="FOLDER",
        help="the data it was trained on: names, units, limits and rate are taken from there",
    )
    add.add_argument(
        "--action-spec",
        type=Path,
        metavar="FILE",
        help="JSON with rate_hz and dimensions (name, unit, low, high): what its actions mean",
    )
    add.add_argument("--state-spec", type=Path, metavar="FILE", help="likewise of its state")
    add.add_argument(
        "--rate-hz",
        type=_rate,
        metavar="X",
        help="control rate, in place of that in --action-spec and --state-spec",
    )
    add.add_argument(
        "--camera",
        action="append",
        default=[],
        metavar="OURS=THEIRS",
        help="which camera of the env stands for which of the checkpoint; again",
    )
    add.add_argument(
        "--image-size",
        type=count,
        metavar="N",
        help="side of our frames in px (default: that of the checkpoint)",
    )
    add.add_argument(
        "--resize",
        action="store_true",
        help="stretch our square frames to what the checkpoint takes: it then sees other pictures",
    )
    add.add_argument(
        "--execution",
        choices=("ours", "theirs"),
        help="who makes actions of chunks (default: ours where the policy type allows it)",
    )
    add.add_argument(
        "--executor", metavar="TEXT", help="how, with execution ours (default: what the config asks for)"
    )
    add.add_argument("--prompt-text", metavar="WORDS", help="instruction in place of the rollout's")
    add.add_argument(
        "--python",
        type=Path,
        metavar="PATH",
        help="Python that has lerobot; the file, as written, may then start it",
    )


def run(args: argparse.Namespace) -> int:
    """Do what the action says: check, or describe and write what was asked for."""
    if args.action == "check":
        return _policy_check.run(args)
    from simgap.errors import UsageError
    from simgap.policies.bridges.describe import describe

    if args.write is not None and args.out is not None and args.write != args.out:
        raise UsageError(
            f"--write {args.write} and --out {args.out} both say where the policy file goes; give one of them"
        )
    args.write = args.write or args.out
    if args.write is not None and args.write.suffix != ".json":
        raise UsageError(f"--write {args.write}: a policy file ends in .json")
    found = describe(args.folder, _given(args))
    if args.write is not None:
        found.require_whole()
        _write(args.write, found, is_trusted=args.python is not None)
    document = _document(args, found)
    emit(args, document, lambda console: _print(console, document))
    return 1 if document["missing"] or document["notes"] else 0


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value <= 10_000.0:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a rate in Hz above 0")
    return value


def _given(args: argparse.Namespace) -> Given:
    from simgap.envs import make_env
    from simgap.episodes.reader import open_dataset
    from simgap.errors import UsageError
    from simgap.policies.bridges.describe import Given
    from simgap.policies.execution import parse_executor

    pairs = [text.partition("=") for text in args.camera]
    wrong = [
        text for text, (ours, _, theirs) in zip(args.camera, pairs, strict=True) if not ours or not theirs
    ]
    if wrong:
        raise UsageError(f"--camera {wrong[0]}: give OURS=THEIRS, such as --camera front=top")
    env = None if args.env is None else make_env(args.env, render=False)
    data = None if args.dataset is None else open_dataset(args.dataset).spec
    return Given(
        env=None if env is None else env.name,
        env_cameras=() if env is None else tuple(env.cameras),
        env_action=None if env is None else env.action_spec,
        env_state=None if env is None else env.state_spec,
        dataset=args.dataset,
        data_action=None if data is None else data.action_spec,
        data_state=None if data is None else data.state_spec,
        action_spec=args.action_spec,
        state_spec=args.state_spec,
        rate_hz=args.rate_hz,
        cameras={ours: theirs for ours, _, theirs in pairs},
        execution=args.execution,
        executor=None if args.executor is None else str(parse_executor(args.executor)),
        image_size=args.image_size,
        resize=args.resize,
        python=args.python,
        prompt_text=args.prompt_text,
    )


def _write(path: Path, found: Description, *, is_trusted: bool) -> None:
    """Write the file once our own reader takes it; one that names a Python is trusted to, because the command named it."""
    import json
    import os

    from simgap.errors import UsageError
    from simgap.policies.bridges.open import KINDS, interface_of
    from simgap.policies.bridges.policy_file import read_policy_file
    from simgap.provenance import write_atomic
    from simgap.trust import Trust, current, granted, store_file

    if path.is_dir():
        raise UsageError(f"--write {path} is a folder; name a file")
    draft = path.with_name(f".{path.stem}.{os.getpid()}.json")
    text = json.dumps(dict(found.fields), indent=2) + "\n"
    write_atomic(draft, text)
    try:
        # what this command named, and only read here
        with granted(Trust(makers=current().makers, any_code=True, is_complete=True)):
            interface_of(read_policy_file(draft, KINDS))
    finally:
        draft.unlink()
    write_atomic(path, text)
    if is_trusted:
        store_file(path)


def _document(args: argparse.Namespace, found: Description) -> dict[str, Any]:
    checkpoint = found.checkpoint
    shapes = {name: list(shape) for name, shape in checkpoint.cameras.items()}
    normalisation = checkpoint.config.get("normalization_mapping")
    env = found.fields.get("env")
    screen = shlex.join(["simgap", "screen", str(args.write)]) + ("" if env else " --env NAME")
    return {
        "folder": args.folder,
        "policy_type": checkpoint.type,
        "cameras_height_width": shapes,
        "state": checkpoint.state,
        "action": checkpoint.action,
        "normalisation": normalisation if isinstance(normalisation, dict) else {},
        "file": dict(found.fields),
        "missing": list(found.missing),
        "notes": list(found.notes),
        "assumed": list(found.assumed),
        "written": args.write,
        # not proposed while something named above keeps it from running
        "next": screen if args.write is not None and not found.notes else None,
    }


def _print(console: Console, document: dict[str, Any]) -> None:
    cameras = ", ".join(f"{name} {w}x{h}" for name, (h, w) in document["cameras_height_width"].items())
    scaled = ", ".join(f"{kind} {mode}" for kind, mode in document["normalisation"].items())
    file = document["file"]
    show_lines(
        console,
        f"{document['folder']}: a LeRobot policy of type {document['policy_type']}",
        f"  sees {cameras or 'no camera'}; state of {document['state'] or 0}, action of {document['action']}"
        " numbers",
        f"  chunk {file['chunk']}, execution {file['execution']}"
        + (f", executor {file['executor']}" if "executor" in file else ""),
        f"  normalisation {scaled or 'not stated'}",
        *(f"assumed: {text}" for text in document["assumed"]),
        *(f"missing: {text}" for text in document["missing"]),
        *(f"note: {text}" for text in document["notes"]),
    )
    if document["written"] is None:
        show_lines(
            console,
            "nothing was written; --write FILE writes the policy file"
            + (" once nothing is missing" if document["missing"] else ""),
        )
    else:
        show_lines(
            console,
            f"wrote {document['written']}",
            f"next: {document['next']}"
            if document["next"]
            else "next: put right what the notes name; then give this command again, which says how to screen it",
        )

"""Options of ``simgap train`` and the training spec they make."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.cli._options import Names, amount, count, names, whole

if TYPE_CHECKING:
    from simgap.training import TrainSpec
    from simgap.training.trackers import Tracker

FINE_TUNE_RATE = 3e-4
MOST_THREADS = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb; most are fields of ``TrainSpec``."""
    parser.add_argument("data", type=Path, nargs="+", metavar="DATA", help="dataset folders")
    parser.add_argument(
        "--share",
        type=amount,
        nargs="+",
        metavar="X",
        help="share of the samples from each DATA, any scale (default: by their frames)",
    )
    parser.add_argument(
        "--domain",
        nargs="+",
        metavar="KIND",
        help="where each DATA comes from: sim, surrogate, real (default: as its stamp says)",
    )
    parser.add_argument(
        "--domain-input",
        action="store_true",
        help="tell the policy whether a sample is simulated or real (default: no)",
    )
    parser.add_argument(
        "--goal-input",
        action="store_true",
        help="tell the policy which of the data's tasks an episode asks for (default: no)",
    )
    parser.add_argument(
        "--from",
        dest="parent",
        type=Path,
        metavar="CHECKPOINT",
        help="fine-tune this checkpoint; it keeps its shape and normaliser (default: train from nothing)",
    )
    parser.add_argument(
        "--cameras",
        type=names,
        nargs="+",
        action=Names,
        metavar="NAME",
        help="cameras to train on, apart or with commas between them (default: all)",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="train even where frames are below the pixel floor (see `simgap pixels`; default: refuse)",
    )
    defaults = spec_defaults()
    for title, options in _OPTIONS.items():
        group = parser.add_argument_group(title)
        for flag, kind, field, text in options:
            metavar = "TEXT" if kind is str else "N" if kind in (count, whole) else "X"
            shown = (text if _SAYS_DEFAULT in text else f"{text} ({_SAYS_DEFAULT}{{own}})").format(
                own=defaults[field]
            )
            group.add_argument(flag, dest=f"spec_{field}", type=kind, metavar=metavar, help=shown)
    _add_parts(parser)


def _add_parts(parser: argparse.ArgumentParser) -> None:
    """Add what is trained of the network, and what is kept and sent along the way."""
    parser.add_argument(
        "--gripper-head", action="store_true", help="give grippers a linear head of their own (default: no)"
    )
    parser.add_argument(
        "--freeze",
        nargs="+",
        metavar="PART",
        help=(
            "parts a fine-tune leaves alone: encoders, proprioception, trunk, head, denoiser, gripper_head"
            " (default: none)"
        ),
    )
    parser.add_argument(
        "--adapter-parts",
        nargs="+",
        metavar="PART",
        help=f"parts that get adapters (default: {spec_defaults()['adapter_parts']})",
    )
    parser.add_argument(
        "--keep",
        type=count,
        metavar="N",
        help=(
            "checkpoints along the way, evenly spaced, the last one among them: simgap select races them"
            " (default: the last alone)"
        ),
    )
    parser.add_argument(
        "--float32", action="store_true", help="compute in float32 instead of bfloat16 (default: no)"
    )
    parser.add_argument(
        "--track", metavar="SERVICE", help="also send the log to wandb or trackio (default: nowhere)"
    )
    parser.add_argument(
        "--project", default="simgap", metavar="NAME", help="project of the tracker (default: simgap)"
    )


_SAYS_DEFAULT = "default: "
_OPTIONS: dict[str, tuple[tuple[str, Callable[[str], Any], str, str], ...]] = {
    "the run": (
        ("--steps", count, "steps", "optimiser steps"),
        ("--batch", count, "batch", "observations a step"),
        (
            "--p-real",
            amount,
            "p_real",
            (
                "share of real (or surrogate) samples in every batch, exact; --share then divides each side"
                " (default: as the shares give it)"
            ),
        ),
        (
            "--learning-rate",
            amount,
            "learning_rate",
            f"peak (default: {{own}}, with --from {FINE_TUNE_RATE:g})",
        ),
        (
            "--threads",
            count,
            "threads",
            f"torch threads, which decide the last bits (default: usable cores, at most {MOST_THREADS})",
        ),
        ("--device", str, "device", "torch device"),
        ("--checkpoint-every", count, "checkpoint_every_steps", "steps between resume points"),
        ("--log-every", count, "log_every", "steps between lines of train.jsonl"),
        (
            "--adapter-rank",
            whole,
            "adapter_rank",
            "with --from, learn low-rank adapters of this rank and merge them at the end; 0 has none",
        ),
    ),
    "the policy (a fine-tune keeps its parent's shape)": (
        ("--chunk", count, "chunk", "future steps predicted"),
        ("--head", str, "head", "l1 (regression), mip (two-step regression) or flow (flow matching)"),
        ("--pool", str, "pool", "spatial_softmax, average or flatten"),
        (
            "--stem",
            count,
            "stem",
            "stride of the first layer: 1 or 2 for small things (default: by the frame size)",
        ),
        ("--width", count, "width", "channels of the first layer"),
        ("--hidden", count, "hidden", "units of the head"),
        ("--flow-steps", count, "flow_steps", "Euler steps of a flow head"),
        ("--flow-time", str, "flow_time", "times a flow is trained at: beta or uniform"),
        ("--flow-target", str, "flow_target", "what a flow's network says: action or velocity"),
        ("--gripper-weight", amount, "gripper_weight", "weight of grippers in the loss"),
        ("--executor", str, "executor", "executor recommended in the card"),
    ),
    "against overfitting and copying the state": (
        (
            "--shift-px",
            whole,
            "shift_px",
            "random shift of each frame, pixels (default: {own}, at most a sixteenth of the side)",
        ),
        (
            "--state-noise",
            amount,
            "proprioception_noise",
            "noise on the normalised state, standard deviation",
        ),
        ("--state-dropout", amount, "proprioception_dropout", "share of samples without state"),
        (
            "--held-out",
            amount,
            "validation_share",
            "share of episodes held out for a loss that is logged and selects nothing",
        ),
    ),
}
"""Group -> flag, type, field of :class:`~simgap.training.TrainSpec`, help; ``{own}`` in it, or else its end, is the field's default."""


def spec_defaults() -> dict[str, str]:
    """Return field -> default of ``TrainSpec`` as a user would type it, read from its source: importing it loads torch, and ``--help`` must not."""
    tree = ast.parse((Path(__file__).parents[1] / "training" / "spec.py").read_text(encoding="utf-8"))
    spec = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "TrainSpec")
    fields = [
        node for node in spec.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]
    return {
        node.target.id: _typed(node.value)
        for node in fields
        if isinstance(node.target, ast.Name) and node.value is not None
    }


def _typed(value: ast.expr) -> str:
    if isinstance(value, ast.Attribute):  # a member of a StrEnum, whose word is its name in small letters
        return value.attr.lower()
    plain = ast.literal_eval(value)
    return (
        " ".join(plain) or "none"
        if isinstance(plain, tuple)
        else "none"
        if plain is None
        else f"{plain:g}"
        if isinstance(plain, float)
        else str(plain)
    )


def asked_spec(args: argparse.Namespace) -> TrainSpec:
    """Return the training spec of the command line.

    Raises:
        UsageError: an unknown word, or numbers out of range.
    """
    import os

    from simgap.compute.machine import usable_cores
    from simgap.errors import UsageError, did_you_mean
    from simgap.policies.cnn import Pool
    from simgap.policies.heads import FlowTarget, FlowTime, Head
    from simgap.training import TrainSpec

    given = {
        name.removeprefix("spec_"): value
        for name, value in vars(args).items()
        if name.startswith("spec_") and value is not None
    }
    for field, words in {
        "head": Head,
        "pool": Pool,
        "flow_target": FlowTarget,
        "flow_time": FlowTime,
    }.items():
        if field in given:
            if given[field] not in tuple(words):
                raise UsageError(
                    f"--{field.replace('_', '-')} has no {given[field]!r};"
                    f" {did_you_mean(given[field], words)}"
                )
            given[field] = words(given[field])
    # processes of torchrun on this machine share its cores
    beside = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    given.setdefault("threads", max(1, min(usable_cores() // beside, MOST_THREADS)))
    if args.parent is not None:
        given.setdefault("learning_rate", FINE_TUNE_RATE)
    given |= {
        n: tuple(parts)
        for n, parts in (("frozen", args.freeze), ("adapter_parts", args.adapter_parts))
        if parts is not None
    }
    switches = {
        "domain_input": args.domain_input,
        "goal_input": args.goal_input,
        "gripper_head": args.gripper_head,
    }
    return TrainSpec(seed=args.seed, bf16=not args.float32, init_from=args.parent, **switches, **given)


@contextmanager
def tracker_of(
    args: argparse.Namespace, spec: TrainSpec, out: Path, *, needed: bool
) -> Iterator[Tracker | None]:
    """Open the tracker that was asked for, None without one.

    Raises:
        UsageError: an unknown service.
        MachineError: it is not installed.
    """
    if args.track is None or not needed:
        yield None
        return
    from simgap.errors import UsageError, did_you_mean
    from simgap.training.trackers import Tracker, TrackerName

    if args.track not in tuple(TrackerName):
        raise UsageError(f"--track has no {args.track!r}; {did_you_mean(args.track, TrackerName)}")
    tracker = Tracker(TrackerName(args.track), project=args.project, run=out.name, config=spec.to_json())
    try:
        yield tracker
    finally:
        tracker.close()

"""What a training prints."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.cli._output import duration, show_lines
from simgap.wording import number_of

if TYPE_CHECKING:
    from rich.console import Console

    from simgap.training import TrainSpec


LOSS = (
    "the loss says how well the labels are fitted, not how often the task succeeds: nothing is selected by it"
)


def training_document(
    out: Path, spec: TrainSpec, keep: Sequence[int], resumed: int, was_finished: bool, seconds: float
) -> dict[str, Any]:
    """Return the JSON document of a training."""
    from simgap.policies.checkpoint import read_card
    from simgap.training.trainer import kept_folder

    card = read_card(out)
    done = 0 if was_finished else spec.steps - resumed
    return {
        "path": out,
        "policy": card.hash,
        "weights": card.weights_hash,
        "normaliser": card.normaliser.hash,
        "parent": card.parent,
        "executor": str(card.executor),
        "steps": spec.steps,
        "resumed_from_step": resumed,
        "was_finished": was_finished,
        "last_loss": card.training["last_loss"],
        "held_out_loss": card.training["validation_loss_never_selects"],
        "open_loop_never_selects": card.training.get("open_loop_never_selects"),
        "head": str(card.architecture.head),
        "goals": list(card.goals),
        "mixture": card.training["mixture"],
        "real": card.training.get("real"),
        "apart": card.training.get("apart", {}),
        "seconds": seconds,
        "observations_per_s": done * spec.batch / seconds if done else None,
        "kept": [str(kept_folder(out, step)) for step in keep[:-1]],
        "next": shlex.join(["simgap", "select" if len(keep) > 1 else "screen", str(out)]),
    }


def print_training(console: Console, document: dict[str, Any], spec: TrainSpec) -> None:
    """Print how a training ended."""
    if document["was_finished"]:
        show_lines(console, f"{document['path']} was finished before; nothing was trained")
    else:
        show_lines(
            console,
            f"wrote {document['path']}: {spec.steps} steps of {spec.batch} observations,"
            f" {duration(document['seconds'])}",
        )
    for part in document["mixture"]:
        show_lines(
            console,
            f"  data {part['data'][:12]}: {number_of(part['episodes'], 'episode')},"
            f" {number_of(part['frames'], 'frame')},"
            f" {number_of(part['samples'], 'sample')} ({part['passes']:.1f} passes)",
        )
    if document["kept"]:
        show_lines(
            console,
            f"  {number_of(len(document['kept']), 'checkpoint along the way is', 'checkpoints along the way are')} kept in"
            f" {Path(document['kept'][0]).parent}",
        )
    real = document["real"]
    if real is not None and (real["asked"] is not None or 0.0 < real["natural"] < 1.0):
        show_lines(console, _real_words(real))
    for table, offsets in document["apart"].items():
        parts = ", ".join(f"{name} by {numbers['offset']:.3g}" for name, numbers in offsets.items())
        show_lines(console, f"  note: in DATA {table} these lie apart from DATA 0: {parts}")
    held_out = (
        "" if document["held_out_loss"] is None else f", on held-out episodes {document['held_out_loss']:.4f}"
    )
    show_lines(
        console,
        f"loss {document['last_loss']:.4f}{held_out}: {LOSS}",
        f"policy {document['policy'][:12]}, weights {document['weights'][:12]}, recommended executor"
        f" {document['executor']}",
        f"next: {document['next']}",
    )


def _real_words(real: Mapping[str, Any]) -> str:
    """Say the real share that was asked and drawn beside the one the data have by themselves."""
    asked = "not asked" if real["asked"] is None else f"asked {real['asked']:.4g}"
    least, most = (real["in_a_batch"][k] for k in ("min", "max"))
    drawn = (
        f"drawn {real['drawn']:.4f} ({real['samples_real']} of {number_of(real['samples'], 'sample')},"
        f" {least} to {most} a"
        " batch)"
    )
    return f"  real share: {asked}, {drawn}, by their frames it would be {real['natural']:.4f}"

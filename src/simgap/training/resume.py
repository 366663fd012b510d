"""The state a run resumes from: one file, whole or absent."""

from __future__ import annotations

import io
import json
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from simgap.errors import DataError, UsageError
from simgap.provenance import write_atomic

FILE = "resume.pt"
LOG = "train.jsonl"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ResumeState:
    """Everything besides the spec and the data that the next step depends on."""

    step: int
    """Steps done."""
    weights: dict[str, Tensor]
    averaged: dict[str, Tensor]
    optimiser: dict[str, Any]
    last_loss: float
    losses: list[float] = field(default_factory=list)
    """Of the steps since the last line of the log, whose mean the next one is."""


def write_resume(out: Path, request: str, state: ResumeState) -> None:
    """Write the state atomically.

    Args:
        out: run folder.
        request: hash of spec and data; a resume under another one is refused.
        state: what to keep.
    """
    buffer = io.BytesIO()
    payload = {"request": request, "step": state.step, "weights": state.weights, "averaged": state.averaged}
    torch.save(payload | {"optimiser": state.optimiser, "last_loss": state.last_loss, "losses": state.losses}, buffer)
    write_atomic(out / FILE, buffer.getvalue())


def read_resume(out: Path, request: str) -> ResumeState | None:
    """Return the state of an interrupted run, None when there is none.

    Raises:
        UsageError: the folder holds a run of another spec or other data.
        DataError: the file cannot be read.
    """
    file = out / FILE
    if not file.is_file():
        return None
    try:
        # weights_only: a resume file is data, it must not be able to run code.
        payload = torch.load(file, map_location="cpu", weights_only=True)
        made_for = payload.pop("request")
        state = ResumeState(**payload) if made_for == request else None
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, LookupError, TypeError, AttributeError) as error:
        # What torch says of it is advice to load it with code; none of that is passed on.
        raise DataError(f"{file} cannot be read ({type(error).__name__}), it is damaged or no resume point; delete it to start the run again") from error
    if state is None:
        raise UsageError(f"{out} holds an interrupted run of another spec or other data; give another folder, or delete it to start again")
    return state


def append_log(out: Path, row: dict[str, Any]) -> None:
    """Append one line to the log."""
    with (out / LOG).open("a") as stream:
        stream.write(json.dumps(row) + "\n")


def trim_log(out: Path, step: int) -> None:
    """Drop lines after a step: what a killed run logged beyond its last resume point will be done, and logged, again."""
    file = out / LOG
    if not file.is_file():
        return
    kept = []
    for line in file.read_text().splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue  # the line that was being written when the run was killed
        if row["step"] <= step:
            kept.append(line + "\n")
    write_atomic(file, "".join(kept))

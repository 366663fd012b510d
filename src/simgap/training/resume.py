"""The state a run resumes from: one file, whole or absent."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import pickletools
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from simgap.bounds import DAMAGED, LINES_BYTES, MALFORMED, read_text, require_regular, require_zip
from simgap.errors import DataError, UsageError
from simgap.provenance import SEAL, write_atomic
from simgap.training.request import what_differs

FILE = "resume.pt"
LOG = "train.jsonl"
_REMEDY = "delete it to start the run again"
_LARGEST = 8 << 30
_CALLS = ("STACK_GLOBAL", "INST", "OBJ", "NEWOBJ")
_TENSORS = re.compile(
    r"collections\.OrderedDict|torch\._utils\._rebuild_tensor_v2|torch\.\w+Storage|torch\.\w+"
)


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
    payload |= {"optimiser": state.optimiser, "last_loss": state.last_loss, "losses": state.losses}
    torch.save(payload | {SEAL: _seal_of(payload)}, buffer)
    write_atomic(out / FILE, buffer.getvalue())


def read_resume(out: Path, request: str, asked: Mapping[str, Any] | None = None) -> ResumeState | None:
    """Return the state of an interrupted run, None when there is none.

    Args:
        out: run folder.
        request: hash of spec and data.
        asked: what the hash is of, for a message that names what differs.

    Raises:
        UsageError: the folder holds a run of another spec or other data.
        DataError: the file cannot be read.
    """
    file = out / FILE
    if not file.is_file():
        return None
    try:
        payload = load_state(file)
        if payload.pop(SEAL, None) != _seal_of(payload):
            raise DataError(
                f"{file} was changed since it was written, its content does not match its hash; {_REMEDY}"
            )
        made_for = payload.pop("request")
        state = ResumeState(**payload) if made_for == request else None
    except (pickle.UnpicklingError, *DAMAGED) as error:
        # What torch says of it is advice to load it with code; none of that is passed on.
        raise DataError(
            f"{file} cannot be read ({type(error).__name__}), it is damaged or no resume point; delete it to"
            " start the run again"
        ) from error
    if state is None:
        raise UsageError(
            f"{out} holds an interrupted run of another request ({what_differs(out, asked or {}, made_for)});"
            " give another folder, or delete it to start again"
        )
    return state


def _seal_of(value: Any) -> str:
    """Return a hash of everything in a state, number by number."""
    digest = hashlib.sha256()

    def take(part: Any) -> None:
        if isinstance(part, Tensor):
            plain = part.detach().cpu().contiguous()
            digest.update(
                f"{plain.dtype} {tuple(plain.shape)};".encode()
                + plain.reshape(-1).view(torch.uint8).numpy().tobytes()
            )
        elif isinstance(part, dict):
            for key in sorted(part, key=repr):
                digest.update(f"{key!r}:".encode())
                take(part[key])
        elif isinstance(part, (list, tuple)):
            digest.update(f"{len(part)};".encode())
            for inner in part:
                take(inner)
        else:
            digest.update(f"{part!r};".encode())

    take(value)
    return digest.hexdigest()


def load_state(file: Path) -> dict[str, Any]:
    """Return what a resume file holds; nothing in it can run code, or unpack to more than the file says.

    Raises:
        DataError: no archive of ours, or one that names something else than tensors.
    """
    require_zip(file, _LARGEST, _REMEDY, is_stored=True)
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            if name.endswith(".pkl"):
                _require_tensors(archive.read(name), file)
    # weights_only: a resume file is data, it must not be able to run code.
    payload = torch.load(file, map_location="cpu", weights_only=True)
    if not isinstance(payload, dict):
        raise DataError(f"{file} cannot be read, it is damaged or no resume point; {_REMEDY}")
    return payload


def _require_tensors(pickled: bytes, file: Path) -> None:
    """Raise unless a pickle names nothing but tensors: torch would also make a byte array of any size that it asks for."""
    for operation, argument, _ in pickletools.genops(pickled):
        named = (
            str(argument).replace(" ", ".")
            if operation.name == "GLOBAL"
            else ""
            if operation.name not in ("STACK_GLOBAL", "INST", "OBJ", "NEWOBJ")
            else "?"
        )
        if named and not _TENSORS.fullmatch(named):
            raise DataError(
                f"{file} names {named[:60]!r}, and a resume point holds tensors and numbers alone; delete it"
                " to start the run again"
            )


def append_log(out: Path, row: dict[str, Any]) -> None:
    """Append one line to the log; one that is a link into somewhere else is replaced by a file of its own.

    Raises:
        DataError: it is something else than a file.
    """
    file = out / LOG
    if file.is_symlink():
        file.unlink()
    elif file.exists():
        require_regular(file, LINES_BYTES)
    with file.open("a") as stream:
        stream.write(json.dumps(row) + "\n")


def trim_log(out: Path, step: int) -> None:
    """Drop lines after a step: what a killed run logged beyond its last resume point will be done, and logged, again."""
    file = out / LOG
    if not file.is_file():
        return
    kept = []
    for line in read_text(file).splitlines():
        try:
            done = int(json.loads(line)["step"])
        except MALFORMED:
            continue  # the line that was being written when the run was killed
        if done <= step:
            kept.append(line + "\n")
    write_atomic(file, "".join(kept))

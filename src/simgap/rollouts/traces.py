"""Rollout records on disk: one group a file, written whole or not at all, read back with suspicion."""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simgap.bounds import DAMAGED, require_zip
from simgap.errors import DataError
from simgap.provenance import canonical_json, write_atomic
from simgap.rollouts.record import RolloutRecord, outcome_from_json

LARGEST_BYTES = 1 << 30
"""Of one file, on disk or unpacked: a group of 16 with films of two 480 px cameras takes a sixteenth of it."""
_SEAL = "seal"
_OPTIONAL = ("n_averaged", "disagreement", "contacts")


def write_records(
    path: Path, records: Sequence[RolloutRecord], *, films: bool = True, about: Any = None
) -> None:
    """Write records atomically.

    Args:
        path: an ``.npz`` file.
        records: in the order in which they are to be read.
        films: False leaves the frames out: a hundredth of the size.
        about: what these are records of, plain JSON values; whoever reads them can ask for it.
    """
    arrays: dict[str, Any] = {}
    for record in records:
        arrays |= {f"{record.seed}/{name}": getattr(record, name) for name in ("state", "action", "age")}
        arrays |= {
            f"{record.seed}/{name}": value
            for name in _OPTIONAL
            if (value := getattr(record, name)) is not None
        }
        if record.contacts is not None:
            arrays[f"{record.seed}/contact_names"] = np.array(record.contact_names)
        if films:
            arrays |= {f"{record.seed}/film/{camera}": frames for camera, frames in record.film.items()}
            arrays[f"{record.seed}/film_steps"] = np.array(record.film_steps, dtype=np.int64)
    index = canonical_json([r.to_json() for r in records]).encode()
    buffer = io.BytesIO()
    of = canonical_json(about).encode()
    arrays |= {"index": np.frombuffer(index, dtype=np.uint8), "about": np.frombuffer(of, dtype=np.uint8)}
    arrays[_SEAL] = np.frombuffer(_seal_of(arrays), dtype=np.uint8)
    np.savez_compressed(buffer, **arrays)
    write_atomic(path, buffer.getvalue())


def read_records(path: Path, *, about: Any = None) -> list[RolloutRecord]:
    """Read what :func:`write_records` wrote; every trace is checked against the hash in its row, and all of it against the hash of the whole.

    Args:
        path: the file.
        about: what they must be records of; None takes any.

    Raises:
        DataError: missing, damaged, changed, of something else, or far larger than any group of rollouts.
    """
    try:
        _require_readable(path)
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        is_as_written = arrays.pop(_SEAL).tobytes() == _seal_of(arrays)
        records = [_record(row, arrays) for row in json.loads(arrays["index"].tobytes())]
        of = json.loads(arrays["about"].tobytes())
    except DAMAGED as error:
        raise DataError(
            f"{path} cannot be read ({error!r}); delete it and run again, only these rollouts are repeated"
        ) from error
    if about is not None and of != json.loads(canonical_json(about)):
        raise DataError(
            f"{path} holds other rollouts than its place says ({_differing(of, about)}); delete it and run"
            " again, only these rollouts are repeated"
        )
    if not is_as_written:
        raise DataError(
            f"{path} was changed since it was written, its content does not match its hash; delete it and run"
            " again, only these rollouts are repeated"
        )
    changed = [r.seed for r in records if r.trace_hash != _told(arrays, r.seed)]
    if changed:
        raise DataError(
            f"{path}: the trace of seed {changed[0]} is not the one of its row; delete the file and run"
            " again, only these rollouts are repeated"
        )
    return records


def _seal_of(arrays: Mapping[str, Any]) -> bytes:
    """Return a hash of all arrays: also of those that no trace has in its own, such as ages, contacts, conditions and films."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        values = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {values.dtype.str} {values.shape};".encode() + values.tobytes())
    return digest.digest()


def require_arrays(path: Path) -> None:
    """Raise unless every array of an archive declares a size that its entry holds; numpy allocates what is declared.

    Raises:
        DataError: names the array.
    """
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            with archive.open(entry) as stream:
                version = np.lib.format.read_magic(stream)
                read = (
                    np.lib.format.read_array_header_1_0
                    if version == (1, 0)
                    else np.lib.format.read_array_header_2_0
                )
                shape, _, dtype = read(stream)
            if math.prod(shape) * dtype.itemsize > entry.file_size:
                raise DataError(
                    f"{path}: {entry.filename} declares {shape} {dtype}, which its {entry.file_size} bytes do"
                    " not hold; delete it and run again"
                )


def read_rows(path: Path) -> tuple[Any, list[Any]]:
    """Return what a file's records are records of, and their rows without the traces.

    Raises:
        DataError: missing or damaged.
    """
    try:
        _require_readable(path)
        with np.load(path, allow_pickle=False) as archive:
            return json.loads(archive["about"].tobytes()), json.loads(archive["index"].tobytes())
    except DAMAGED as error:
        raise DataError(f"{path} cannot be read ({error!r}); delete it and run again") from error


def _require_readable(path: Path) -> None:
    """Raise on what is missing, no archive, or unpacks to far more than rollouts take.

    Raises:
        DataError: names the file.
    """
    if not path.exists():
        raise DataError(f"{path} is missing; run the rollouts again")
    require_zip(path, LARGEST_BYTES, "delete it and run again, only these rollouts are repeated")
    require_arrays(path)


def _differing(ours: Any, theirs: Any) -> str:
    """Name the fields in which two descriptions differ."""
    if not (isinstance(ours, dict) and isinstance(theirs, dict)):
        return "they do not say of what"
    return ", ".join(sorted(k for k in ours.keys() | theirs.keys() if ours.get(k) != theirs.get(k)))


def _told(arrays: Mapping[str, Any], seed: int) -> str:
    return next(
        str(row["trace_hash"]) for row in json.loads(arrays["index"].tobytes()) if row["seed"] == seed
    )


def _record(row: Mapping[str, Any], arrays: Mapping[str, Any]) -> RolloutRecord:
    seed = int(row["seed"])
    begin = f"{seed}/film/"
    return RolloutRecord(
        seed=seed,
        outcome=outcome_from_json(row),
        factors={str(k): float(v) for k, v in row["factors"].items()},
        state=arrays[f"{seed}/state"],
        action=arrays[f"{seed}/action"],
        age=arrays[f"{seed}/age"],
        film={name.removeprefix(begin): frames for name, frames in arrays.items() if name.startswith(begin)},
        film_steps=tuple(int(i) for i in arrays.get(f"{seed}/film_steps", ())),
        n_averaged=arrays.get(f"{seed}/n_averaged"),
        disagreement=arrays.get(f"{seed}/disagreement"),
        contacts=arrays.get(f"{seed}/contacts"),
        contact_names=tuple(str(name) for name in arrays.get(f"{seed}/contact_names", ())),
        mode=str(row.get("mode", "")),
    )

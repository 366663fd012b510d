"""Stamps: where a thing comes from, hashed, and the set of assumptions that follows from it."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from simgap.bounds import JSON_BYTES, open_regular, parse_json, printable, read_text
from simgap.errors import DataError

SEAL = "content_hash"
"""Field of a kept result that holds the hash of all others."""


def canonical_json(value: Any) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, NaN refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"cannot hash a {type(value).__name__}")


def content_hash(value: Any) -> str:
    """Return the SHA-256 of a JSON-able value, 64 hex digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def hashable(value: Any) -> Any:
    """Return what somebody else wrote so that it can be hashed: numbers that are none as their names."""
    if isinstance(value, dict):
        return {k: hashable(v) for k, v in value.items()}
    if isinstance(value, list):
        return [hashable(v) for v in value]
    return repr(value) if isinstance(value, float) and not np.isfinite(value) else value


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with open_regular(path) as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def source_hash(*packages: str) -> str:
    """Return the hash of our own source under the named sub-packages, so that a cache never outlives the code that filled it."""
    root = Path(__file__).parent
    digest = hashlib.sha256()
    for package in sorted(packages):
        base = root / package
        files = sorted(base.rglob("*.py")) if base.is_dir() else [base.with_suffix(".py")]
        for file in files:
            digest.update(str(file.relative_to(root)).encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


def child_rng(seed: int, *purpose: str | int) -> np.random.Generator:
    """Return the generator of one named purpose under a root seed, so that adding a draw elsewhere shifts nothing here."""
    words = [seed & 0xFFFFFFFF, seed >> 32] if seed >= 0 else [0xFFFFFFFF, -seed]
    for part in purpose:
        words.append(int.from_bytes(hashlib.sha256(str(part).encode()).digest()[:4], "little"))
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Stamp:
    """What an artefact was made with. ``fields`` is flat: name -> plain value."""

    kind: str
    """``dataset``, ``checkpoint``, ``rollouts``, ``trials``, ``check`` ..."""
    fields: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"kind": self.kind, **dict(self.fields)}

    @property
    def hash(self) -> str:
        """Content hash of the stamp."""
        return content_hash(self.to_json())


def assumptions(stamp: Stamp) -> frozenset[str]:
    """Return the assumptions an artefact rests on, computed from its stamp and never typed in.

    Every field that names a way of making or measuring (engine, renderer, judge, horizon ...) is one
    assumption ``name=value``; identities (hashes, seeds, counts) are not. What was merged rests on everything
    its parts rest on.
    """
    shared = (
        "engine",
        "renderer",
        "env",
        "judge",
        "horizon_steps",
        "factors",
        "teacher",
        "normaliser",
        "executor",
        "clock",
        "placement",
    )
    merged = (Stamp(kind="dataset", fields=part) for part in stamp.fields.get("merged_from", ()))
    own = frozenset(f"{name}={stamp.fields[name]}" for name in shared if name in stamp.fields)
    return own.union(*map(assumptions, merged))


def library_version(name: str) -> str:
    """Return an installed library's version, or ``absent``."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write a whole file or nothing: temporary name in the same folder, fsync, rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(printable(data).encode() if isinstance(data, str) else data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        # a write that fails does not say of which file, a rename names ours
        if isinstance(error, OSError) and error.filename in (None, name):
            error.filename = str(path)
        raise


def write_sealed(path: Path, document: Mapping[str, Any]) -> None:
    """Write a JSON object together with the hash of its content, for :func:`read_sealed`."""
    write_atomic(path, sealed_json(document))


def sealed_json(document: Mapping[str, Any]) -> str:
    """Return the JSON text of an object together with the hash of its content."""
    return canonical_json({**document, SEAL: content_hash(dict(document))})


def read_sealed(path: Path, *, remedy: str = "delete it, it is made again") -> dict[str, Any]:
    """Read what :func:`write_sealed` wrote: a result kept to save work, which is believed only as it was written.

    This finds edits and damage; whoever writes a new hash as well is not found.

    Args:
        path: the file.
        remedy: what to do about a changed one.

    Raises:
        DataError: missing, no JSON object, or its content is not what its hash says.
    """
    document = read_json(path)
    if not isinstance(document, dict) or document.pop(SEAL, None) != content_hash(document):
        raise DataError(
            f"{path} was changed since it was written, its content does not match its hash; {remedy}"
        )
    return document


def read_json(
    path: Path, *, limit_bytes: int = JSON_BYTES, unique_keys: bool = False, finite: bool = True
) -> Any:
    """Read a bounded JSON file.

    Args:
        path: a regular file; a device or pipe might never end.
        limit_bytes: what it may hold at most.
        unique_keys: True refuses an object that says one key twice, of which a reader sees the last alone:
            for what people write.
        finite: False takes NaN and infinity too, as others write them.

    Raises:
        DataError: missing, too large or not JSON; the message names the file.
    """
    return parse_json(read_text(path, limit_bytes), path, unique_keys=unique_keys, finite=finite)


def read_object(path: Path, *, limit_bytes: int = JSON_BYTES, finite: bool = True) -> dict[str, Any]:
    """Read a bounded JSON file that holds an object.

    Raises:
        DataError: as :func:`read_json`, or something else than an object.
    """
    value = read_json(path, limit_bytes=limit_bytes, finite=finite)
    if not isinstance(value, dict):
        raise DataError(f"{path} holds a JSON {type(value).__name__}, expected an object; restore the file")
    return value

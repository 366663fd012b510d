"""A row of the ledger, its hash, and what keeps a stored row from being one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from simgap.provenance import canonical_json, content_hash
from simgap.types import EvidenceKind, Json

GENESIS = "0" * 64
"""Previous hash of the first row."""
COLUMNS = ("id", "time", "kind", "key", "payload", "evidence", "previous", "hash")


class RowKind(StrEnum):
    """What a row records."""

    EVIDENCE = "evidence"
    FINDING = "finding"
    COMMITMENT = "commitment"
    SEAL_OPENED = "seal_opened"
    CLAIM = "claim"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One row of the ledger."""

    id: int
    time: str
    """UTC, ISO 8601."""
    kind: RowKind
    payload: Json
    evidence: EvidenceKind | None
    key: str | None
    previous: str
    hash: str

    def to_json(self) -> Json:
        """Return plain JSON values; the hash can be computed from them again."""
        return {name: getattr(self, name) for name in COLUMNS}


def row_hash(
    number: int, time: str, kind: str, key: str | None, payload: str, evidence: str | None, previous: str
) -> str:
    """Return the hash of a row: SHA-256 of the JSON list of its other columns, in their order, the payload as its text."""
    return content_hash([number, time, kind, key, payload, evidence, previous])


def chain_fault(fields: Sequence[Any], position: int, previous: str) -> str:
    """Return why stored fields are not the row at this position after that hash; empty when they are."""
    if fields[0] != position:
        return f"row {position} is missing"
    if fields[6] != previous:
        return "it does not carry the hash of the row before"
    return "" if _is_intact(fields) else "its content does not match its hash"


def content_fault(fields: Sequence[Any]) -> str:
    """Return what a row holds that no version of simgap writes, though its hash fits; empty when there is nothing."""
    _, time, kind, key, payload, evidence, _, _ = fields
    if kind not in tuple(RowKind):
        return f"it is of the unknown kind {kind!r:.40}"
    if evidence is not None and evidence not in tuple(EvidenceKind):
        return f"its evidence is of the unknown type {evidence!r:.40}"
    if key is not None and not isinstance(key, str):
        return f"its key {key!r:.40} is not text"
    if not _is_utc(time):
        return f"its time {time!r:.40} is not a UTC time in ISO 8601"
    try:
        said = json.loads(payload)
        is_ours = isinstance(said, dict) and canonical_json(said) == payload
    except (
        ValueError,
        TypeError,
        RecursionError,
    ):  # not JSON, NaN, numbers of thousands of digits, thousands of brackets
        is_ours = False
    return "" if is_ours else "its payload is not a JSON object as simgap writes it"


def as_row(fields: Sequence[Any]) -> Row:
    """Return stored fields without :func:`content_fault` as a row."""
    return Row(
        id=int(fields[0]),
        time=str(fields[1]),
        kind=RowKind(fields[2]),
        key=fields[3],
        payload=json.loads(fields[4]),
        evidence=None if fields[5] is None else EvidenceKind(fields[5]),
        previous=str(fields[6]),
        hash=str(fields[7]),
    )


def _is_intact(fields: Sequence[Any]) -> bool:
    try:
        return bool(row_hash(*fields[:7]) == fields[7])
    except TypeError:  # bytes where text was
        return False


def _is_utc(text: Any) -> bool:
    try:
        offset = datetime.fromisoformat(text).utcoffset()
    except (ValueError, TypeError):
        return False
    return offset is not None and not offset

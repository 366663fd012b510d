"""A ledger row in a few words, whatever it holds."""

from __future__ import annotations

from simgap.ledger.claims import counts_of
from simgap.ledger.rows import Row, RowKind

_LONGEST = 200


def summary_of_row(row: Row) -> str:
    """Return a row in a few words; fields that it lacks are said to be unknown."""
    payload = row.payload
    if row.kind is RowKind.EVIDENCE:
        counts = counts_of(payload)
        said = "no counts" if counts is None else f"{counts[0]} of {counts[1]}"
        return f"{_text(payload.get('label'), 'no label')}: {said}"
    if row.kind is RowKind.COMMITMENT:
        return f"seal {_text(payload.get('seal_sha256'), 'unknown')[:16]}"
    if row.kind is RowKind.SEAL_OPENED:
        gap = payload.get("gap")
        return f"seal opened: {_text(gap.get('kind') if isinstance(gap, dict) else None, 'gap not recorded')}"
    if row.kind is RowKind.FINDING and "cause" in payload:
        return f"diagnosis: {_text(payload['cause'], 'cause unknown')}"
    return _text(payload.get("label") or payload.get("text"), str(row.kind))


def _text(value: object, otherwise: str) -> str:
    return value[:_LONGEST] if isinstance(value, str) and value else otherwise

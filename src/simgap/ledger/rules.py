"""What a row may say, given the rows before it; held when it is added and again whenever the ledger is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from simgap.errors import DataError, SealError, UsageError
from simgap.ledger.claims import require_bar, require_claimable
from simgap.ledger.real import require_real_row
from simgap.ledger.rows import Row, RowKind
from simgap.mutants.gaps import gap_from_json, seal_with
from simgap.types import EvidenceKind


@dataclass(slots=True)
class Past:
    """The rows so far, and what later rows are held against."""

    rows: dict[int, Row] = field(default_factory=dict)
    keys: dict[str, Row] = field(default_factory=dict)
    logs: dict[str, Row] = field(default_factory=dict)
    """Fingerprint of a trial log -> the first row that counts it."""
    opened: dict[int, int] = field(default_factory=dict)
    """Row of a commitment -> row that opened it."""

    def add(self, row: Row) -> None:
        """Take a lawful row in."""
        self.rows[row.id] = row
        if row.key is not None:
            self.keys[row.key] = row
        if row.evidence is not None and isinstance(log := row.payload.get("log"), str):
            self.logs.setdefault(log, row)
        if row.kind is RowKind.SEAL_OPENED:
            self.opened[row.payload["commitment_row"]] = row.id


def require_lawful(
    kind: RowKind, payload: Mapping[str, Any], evidence: EvidenceKind | None, past: Past
) -> None:
    """Refuse a row that says what it may not say.

    Args:
        kind: what it records.
        payload: its content.
        evidence: the type of its numbers.
        past: the rows before it.

    Raises:
        UsageError: an evidence row without a type, a type on another row, a claim that names no evidence.
        DataError: real evidence that no trial log stands behind, or one log as two kinds of evidence.
        SealError: a seal opened before its commitment and a later finding, twice, or on another gap than was
            committed.
    """
    if kind is RowKind.EVIDENCE and evidence is None:
        raise UsageError(
            "an evidence row says where its numbers come from; give evidence= one of"
            f" {', '.join(EvidenceKind)}"
        )
    if kind is not RowKind.EVIDENCE and evidence is not None:
        raise UsageError(
            f"a {kind} row is no evidence and has no evidence type; append the numbers as an evidence row"
        )
    if evidence is EvidenceKind.REAL:
        require_real_row(payload)
    if evidence is not None:
        _require_one_kind(payload, evidence, past)
    elif kind is RowKind.CLAIM:
        require_claim(payload, past.rows)
    elif kind is RowKind.SEAL_OPENED:
        _require_sealed(payload, past)


def require_claim(payload: Mapping[str, Any], before: Mapping[int, Row]) -> None:
    """Refuse a claim without a sentence, with a bar that is no rate, or that names rows which are no evidence.

    Raises:
        UsageError: names what is wrong.
    """
    text = payload.get("text")
    if not isinstance(text, str) or not text.strip():
        raise UsageError(
            f"a claim is a sentence, and this row has text = {text!r:.60}; say what was measured"
        )
    require_claimable(text)
    require_bar(payload.get("at_least"))
    for side in ("supporting", "against"):
        named = payload.get(side, [])
        if not isinstance(named, list):
            raise UsageError(f"a claim names the rows {side} it as a list of row numbers, not {named!r:.60}")
        for number in named:
            row = before.get(number) if type(number) is int else None
            if row is None or row.kind is not RowKind.EVIDENCE:
                raise UsageError(
                    f"a claim names row {number!r:.40}, which is not an evidence row of this ledger; append"
                    " the evidence first"
                )


def _require_one_kind(payload: Mapping[str, Any], evidence: EvidenceKind, past: Past) -> None:
    log = payload.get("log")
    row = past.logs.get(log) if isinstance(log, str) else None
    if row is not None and row.evidence is not evidence:
        raise DataError(
            f"log {log!s:.12} is evidence of kind {row.evidence} in row {row.id} and cannot be {evidence} as"
            " well"
        )


def _require_sealed(payload: Mapping[str, Any], past: Past) -> None:
    named: dict[str, Row] = {}
    for name, kind in (("commitment_row", RowKind.COMMITMENT), ("finding_row", RowKind.FINDING)):
        number = payload.get(name)
        row = past.rows.get(number) if type(number) is int else None
        if row is None or row.kind is not kind:
            raise SealError(
                f"a seal opens only after a {kind} row is in the ledger: {name} = {number!r:.40} names none;"
                " append it first"
            )
        named[name] = row
    commitment, finding = named["commitment_row"], named["finding_row"]
    if finding.id < commitment.id:
        raise SealError(
            f"the finding in row {finding.id} is older than the commitment in row {commitment.id}: it cannot"
            " be about what was sealed there"
        )
    if (first := past.opened.get(commitment.id)) is not None:
        raise SealError(
            f"the seal of row {commitment.id} was opened in row {first} already; a finding made since knows"
            " what it held"
        )
    _require_the_sealed_gap(payload, commitment)


def _require_the_sealed_gap(payload: Mapping[str, Any], commitment: Row) -> None:
    """Hold the gap that is shown against the commitment, where the row shows gap and nonce."""
    if "gap" not in payload or "nonce" not in payload:
        return
    try:
        shown = seal_with(str(payload["nonce"]), gap_from_json(payload["gap"]))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise SealError(
            f"the gap that is shown cannot be read ({error!r:.80}); show the one that was committed"
        ) from error
    if shown != commitment.payload.get("seal_sha256"):
        raise SealError(
            f"the gap that is shown is not the one committed in row {commitment.id}; show the one that was"
            " sealed"
        )

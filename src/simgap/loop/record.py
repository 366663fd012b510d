"""What a turn writes into the ledger, in which order. Keys make every row idempotent: a resumed turn writes it once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.diagnosis import Diagnosis
from simgap.episodes.reader import open_dataset
from simgap.errors import DataError
from simgap.ledger import Ledger, Row, RowKind
from simgap.provenance import canonical_json
from simgap.robots.gaps import Gap
from simgap.rollouts.screen import ScreenReport
from simgap.statistics import PairedDifference, tally
from simgap.targeting import DataPlan
from simgap.trials.batch import read_results
from simgap.types import EvidenceKind

if TYPE_CHECKING:
    from simgap.loop.results import Turn, TurnResult


def require_recorded(result: TurnResult, rows: Sequence[Row]) -> None:
    """Refuse a run whose files say other things than its ledger: diagnosis, sealed gap, screens and trial logs.

    Raises:
        DataError: names what differs.
    """
    recorded = {row.key: row.payload for row in rows}
    for what, key, said in (
        ("seal", "seal", {"seal_sha256": result.seal}),
        ("diagnosis", "diagnosis", None if result.diagnosis is None else _gist(result.diagnosis.to_json())),
        ("opened gap", "opened", None if result.gap is None else {"gap": result.gap.to_json()}),
        ("data plan", "plan", None if result.plan is None else result.plan.to_json()),
    ):
        if said is not None and not _is_said(said, recorded.get(key, {})):
            raise DataError(f"{result.folder}: its {what} is not the one in its ledger; restore run.json, or run the demo again into a new folder")
    logs = {row.payload.get("log") for row in rows if row.evidence is EvidenceKind.SURROGATE}
    screens = [row.payload for row in rows if row.evidence is EvidenceKind.SIM]
    turns = [turn for turn in (result.first, result.second) if turn is not None]
    for log in {log for turn in turns for log in (turn.in_use, turn.conditions) if log is not None} | ({result.replays} if result.replays else set()):
        if open_dataset(log).fingerprint not in logs:
            raise DataError(f"{log} is not the log that the ledger of {result.folder} counted; restore it, or run the demo again into a new folder")
    for report in {id(r): r for turn in turns for _, r in turn.screens}.values():
        said = {k: v for k, v in report.to_json().items() if k in ("successes", "n", "failures", "voids", "stamp")}
        if not any(_is_said(said, payload) for payload in screens):
            raise DataError(f"{report.path} is not the screen that the ledger of {result.folder} counted; restore it, or run the demo again")


def _gist(diagnosis: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a diagnosis says, without what a later version of the program may add to it."""
    checks = [{k: check[k] for k in ("family", "verdict", "sentence", "value")} for check in diagnosis["checks"]]
    return {k: diagnosis[k] for k in ("cause", "family", "sentence")} | {"checks": checks}


def _is_said(said: Any, recorded: Any) -> bool:
    """Return whether every value said is recorded; what is recorded beyond that does not matter."""
    if isinstance(said, Mapping):
        return isinstance(recorded, Mapping) and all(k in recorded and _is_said(v, recorded[k]) for k, v in said.items())
    if isinstance(said, (list, tuple)):
        return isinstance(recorded, list) and len(said) == len(recorded) and all(map(_is_said, said, recorded))
    return bool(canonical_json(said) == canonical_json(recorded))


class TurnLedger:
    """The ledger of one run, in the words of the loop."""

    def __init__(self, ledger: Ledger) -> None:
        """Write to ``ledger``."""
        self._ledger = ledger
        self._evidence: dict[str, Row] = {}

    def commit(self, seal: str) -> Row:
        """Record the commitment to the hidden gap, before anything is measured."""
        return self._ledger.append(RowKind.COMMITMENT, {"seal_sha256": seal}, key="seal")

    def screen(self, label: str, report: ScreenReport) -> Row:
        """Record a screen: evidence of kind sim."""
        payload: dict[str, Any] = {k: v for k, v in report.to_json().items() if k != "path"} | {"label": label}
        return self._keep(label, self._ledger.append(RowKind.EVIDENCE, payload, EvidenceKind.SIM, key=f"screen/{label}"))

    def trials(self, label: str, log: Path) -> Row:
        """Record a set of surrogate trials by its log's fingerprint."""
        dataset = open_dataset(log)
        counts = tally(r.outcome for r in read_results(dataset))
        payload = {
            "label": label,
            "successes": counts.successes,
            "n": counts.n,
            "failures": dict(counts.failures),
            "voids": dict(counts.voids),
            "log": dataset.fingerprint,
        }
        return self._keep(label, self._ledger.append(RowKind.EVIDENCE, payload, EvidenceKind.SURROGATE, key=f"trials/{label}"))

    def finding(self, diagnosis: Diagnosis) -> Row:
        """Record the diagnosis; the seal opens against this row's hash."""
        return self._ledger.append(RowKind.FINDING, diagnosis.to_json(), key="diagnosis")

    def plan(self, plan: DataPlan) -> Row:
        """Record what the next turn changes."""
        return self._ledger.append(RowKind.NOTE, {"label": "data plan", **plan.to_json()}, key="plan")

    def compared(self, paired: PairedDifference | None) -> None:
        """Record the paired comparison of the two turns, if there is one."""
        if paired is None:
            return
        counts, difference = paired.counts, paired.difference
        payload = {
            "label": "turn 2 minus turn 1 on the same initial conditions",
            "both": counts.n11,
            "only_turn_2": counts.n10,
            "only_turn_1": counts.n01,
            "neither": counts.n00,
            "dropped": counts.dropped,
            "difference": difference.point,
            "interval": [difference.low, difference.high],
            "method": difference.method,
            "p_value": paired.p_value,
        }
        self._ledger.append(RowKind.FINDING, payload, key="comparison")

    def opened(self, gap: Gap, nonce: str, commitment: Row, finding: Row) -> Row:
        """Record what the seal held, with the nonce: the ledger alone then shows that the gap is the one that was committed."""
        payload = {"commitment_row": commitment.id, "finding_row": finding.id, "gap": gap.to_json(), "nonce": nonce}
        return self._ledger.append(RowKind.SEAL_OPENED, payload, key="opened")

    def claims(self, first: Turn, second: Turn | None) -> None:
        """Record what may be said; grades follow from the evidence."""
        self._claim("The turn 1 policy works in its own simulator", "turn 1", "claim/sim")
        if first.in_use is not None:
            self._claim("The turn 1 policy works as objects lie in use", "turn 1, in use", "claim/turn1")
        if second is not None and second.in_use is not None:
            self._claim("The turn 2 policy works as objects lie in use", "turn 2, in use", "claim/turn2")

    def _claim(self, text: str, label: str, key: str) -> None:
        row = self._evidence.get(label)
        if row is None:
            return
        k, n = int(row.payload["successes"]), int(row.payload["n"])
        supports = n > 0 and 2 * k >= n
        said = f"{text}: {k} of {n}"
        self._ledger.append_claim(said, supporting=[row.id] if supports else [], against=[] if supports else [row.id], key=key)

    def _keep(self, label: str, row: Row) -> Row:
        self._evidence[label] = row
        return row

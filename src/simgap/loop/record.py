"""What a turn writes into the ledger, in which order. Keys make every row idempotent: a resumed turn writes it once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.diagnosis import Diagnosis
from simgap.envs.factors import FactorRanges
from simgap.episodes.reader import open_dataset
from simgap.ledger import Ledger, Row, RowKind
from simgap.loop.spec import TurnSpec
from simgap.mutants.gaps import Gap
from simgap.rollouts.screen import ScreenReport
from simgap.statistics import PairedDifference, tally
from simgap.targeting import DataPlan
from simgap.trials.batch import read_results
from simgap.types import EvidenceKind

if TYPE_CHECKING:
    from simgap.loop.results import Turn


class TurnLedger:
    """The ledger of one run, in the words of the loop."""

    def __init__(self, ledger: Ledger) -> None:
        """Write to ``ledger``."""
        self._ledger = ledger
        self._evidence: dict[str, Row] = {}

    def commit(self, seal: str, spec: TurnSpec, ranges: FactorRanges) -> Row:
        """Record the commitment to the hidden gap, and what is going to be run, before anything is measured."""
        payload = {"seal_sha256": seal, "spec": spec.to_json(), "ranges": ranges.to_json()}
        return self._ledger.append(RowKind.COMMITMENT, payload, key="seal")

    def screen(self, label: str, report: ScreenReport) -> Row:
        """Record a screen: evidence of kind sim."""
        payload: dict[str, Any] = {k: v for k, v in report.to_json().items() if k != "path"} | {
            "label": label
        }
        return self._keep(
            label, self._ledger.append(RowKind.EVIDENCE, payload, EvidenceKind.SIM, key=f"screen/{label}")
        )

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
        return self._keep(
            label,
            self._ledger.append(RowKind.EVIDENCE, payload, EvidenceKind.SURROGATE, key=f"trials/{label}"),
        )

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
        payload = {
            "commitment_row": commitment.id,
            "finding_row": finding.id,
            "gap": gap.to_json(),
            "nonce": nonce,
        }
        return self._ledger.append(RowKind.SEAL_OPENED, payload, key="opened")

    def claims(self, first: Turn, second: Turn | None) -> None:
        """Record what may be said; what the numbers support follows from them, and the grades from that."""
        self._claim("The turn 1 policy works in its own simulator", "turn 1", "claim/sim")
        if first.in_use is not None:
            self._claim("The turn 1 policy works as objects lie in use", "turn 1, in use", "claim/turn1")
        if second is not None and second.in_use is not None:
            self._claim("The turn 2 policy works as objects lie in use", "turn 2, in use", "claim/turn2")

    def _claim(self, text: str, label: str, key: str) -> None:
        row = self._evidence.get(label)
        if row is None:
            return
        said = f"{text}: {row.payload['successes']} of {row.payload['n']}"
        self._ledger.append_claim(said, supporting=[row.id], key=key)

    def _keep(self, label: str, row: Row) -> Row:
        self._evidence[label] = row
        return row

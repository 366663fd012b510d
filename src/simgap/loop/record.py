"""What a turn writes into the ledger, in which order. Keys make every row idempotent: a resumed turn writes it once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simgap.diagnosis import Diagnosis
from simgap.envs.factors import FactorRanges
from simgap.episodes.reader import open_dataset
from simgap.ledger import Ledger, Row, RowKind
from simgap.loop.results import Turn, compare
from simgap.loop.spec import TurnSpec
from simgap.mutants.gaps import Gap
from simgap.rollouts.screen import ScreenReport
from simgap.statistics import tally
from simgap.targeting import DataPlan
from simgap.trials.batch import read_results
from simgap.types import EvidenceKind

IN_USE, CONDITIONS, REPLAYS = "in use", "training conditions", "replays"
"""What the logs of a turn are, in the ledger's words."""


def screen_key(number: int, conditions: str) -> str:
    """Return the key of the row of a screen."""
    return f"turn/{number}/screen/{conditions}"


def trials_key(number: int, what: str) -> str:
    """Return the key of the row of a set of trials."""
    return f"turn/{number}/trials/{what}"


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

    def screen(self, number: int, conditions: str, report: ScreenReport) -> Row:
        """Record a screen of a turn: evidence of kind sim."""
        label = f"turn {number}" if number == 1 else f"turn {number}, {conditions}"
        said = {k: v for k, v in report.to_json().items() if k != "path"}
        payload: dict[str, Any] = said | {"label": label}
        return self._keep(screen_key(number, conditions), payload, EvidenceKind.SIM)

    def trials(self, number: int, what: str, log: Path) -> Row:
        """Record a set of surrogate trials of a turn by its log's fingerprint."""
        dataset = open_dataset(log)
        counts = tally(r.outcome for r in read_results(dataset))
        payload = {
            "label": f"turn {number}, {what}",
            "successes": counts.successes,
            "n": counts.n,
            "failures": dict(counts.failures),
            "voids": dict(counts.voids),
            "log": dataset.fingerprint,
        }
        return self._keep(trials_key(number, what), payload, EvidenceKind.SURROGATE)

    def finding(self, number: int, diagnosis: Diagnosis) -> Row:
        """Record the diagnosis of a turn; the seal opens against the hash of the newest such row."""
        return self._ledger.append(RowKind.FINDING, diagnosis.to_json(), key=f"turn/{number}/diagnosis")

    def plan(self, number: int, plan: DataPlan) -> Row:
        """Record what the turn after this one changes."""
        payload = {"label": "data plan", **plan.to_json()}
        return self._ledger.append(RowKind.NOTE, payload, key=f"turn/{number}/plan")

    def compared(self, old: Turn, new: Turn) -> None:
        """Record the paired comparison of two turns, if both were tried."""
        paired = compare(old, new)
        if paired is None:
            return
        counts, difference = paired.counts, paired.difference
        payload = {
            "label": f"turn {new.number} minus turn {old.number} on the same initial conditions",
            "both": counts.n11,
            f"only_turn_{new.number}": counts.n10,
            f"only_turn_{old.number}": counts.n01,
            "neither": counts.n00,
            "dropped": counts.dropped,
            "difference": difference.point,
            "interval": [difference.low, difference.high],
            "method": difference.method,
            "p_value": paired.p_value,
        }
        key = f"turn/{new.number}/comparison with turn {old.number}"
        self._ledger.append(RowKind.FINDING, payload, key=key)

    def opened(self, gap: Gap, nonce: str, commitment: Row, finding: Row) -> Row:
        """Record what the seal held, with the nonce: the ledger alone then shows that the gap is the one that was committed."""
        payload = {
            "commitment_row": commitment.id,
            "finding_row": finding.id,
            "gap": gap.to_json(),
            "nonce": nonce,
        }
        return self._ledger.append(RowKind.SEAL_OPENED, payload, key="opened")

    def claims(self, turns: Sequence[Turn]) -> None:
        """Record what may be said; what the numbers support follows from them, and the grades from that."""
        conditions = turns[0].screens[0][0]
        self._claim(
            "The turn 1 policy works in its own simulator", screen_key(1, conditions), "turn/1/claim/sim"
        )
        for turn in turns:
            if turn.in_use is not None:
                self._claim(
                    f"The turn {turn.number} policy works as objects lie in use",
                    trials_key(turn.number, IN_USE),
                    f"turn/{turn.number}/claim/{IN_USE}",
                )

    def _claim(self, text: str, evidence: str, key: str) -> None:
        row = self._evidence[evidence]
        said = f"{text}: {row.payload['successes']} of {row.payload['n']}"
        self._ledger.append_claim(said, supporting=[row.id], key=key)

    def _keep(self, key: str, payload: dict[str, Any], kind: EvidenceKind) -> Row:
        row = self._ledger.append(RowKind.EVIDENCE, payload, kind, key=key)
        self._evidence[key] = row
        return row

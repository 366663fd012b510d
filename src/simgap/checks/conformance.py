"""A kit for anybody's check: does it keep the contract that diagnosis, docs and audit rely on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simgap.causes import TABLE
from simgap.checks.base import Check, ask
from simgap.errors import SimgapError
from simgap.evidence import Evidence
from simgap.findings import CheckResult, Verdict
from simgap.provenance import canonical_json

_ID = re.compile(r"[a-z][a-z0-9_]{2,39}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """One clause of the contract, and what breaks it; empty where nothing does."""

    clause: str
    breach: str

    def to_json(self) -> dict[str, str | bool]:
        """Return plain JSON values."""
        return {"clause": self.clause, "breach": self.breach, "holds": not self.breach}


def conformance(check: Check, others: Sequence[Check], evidence: Evidence | None = None) -> tuple[Kept, ...]:
    """Hold a check against the contract.

    Args:
        check: the check.
        others: checks whose ids are taken.
        evidence: something for it to read; without, only what needs nothing to read is held against it.
    """
    return tuple(
        Kept(clause=clause, breach=breach)
        for clause, breach in [
            *_words(check, others),
            *_state(check),
            *_on_nothing(check),
            *([] if evidence is None else _on_evidence(check, evidence)),
        ]
    )


def _words(check: Check, others: Sequence[Check]) -> Iterator[tuple[str, str]]:
    is_name = _ID.fullmatch(check.id) is not None
    yield "its id is snake_case, 3 to 40 letters", "" if is_name else f"the id is {check.id!r}"
    taken = any(other.id == check.id for other in others)
    yield "its id is its own", f"another check is called {check.id!r}" if taken else ""
    asks = check.question.endswith("?") and "\n" not in check.question
    yield "its question is one line that ends with ?", "" if asks else f"the question is {check.question!r}"
    yield "it can name a cause", "" if check.can_name else "can_name is empty"
    for cause in check.can_name:
        lacks = [n for n in ("words", "remedy") if not getattr(cause, n)]
        other = TABLE.get(cause.id)
        breach = f"it has no {' and no '.join(lacks)}" if lacks else ""
        if other is not None and other is not cause:
            breach = "its id is that of another cause of the table"
        yield f"cause {cause.id} has words, a remedy and an id of its own", breach


def _state(check: Check) -> Iterator[tuple[str, str]]:
    made = getattr(type(check), "__dataclass_params__", None)
    breach = "" if made is not None and made.frozen else f"{type(check).__name__} is no frozen dataclass"
    yield "it is a frozen dataclass, so it has no state", breach


def _on_nothing(check: Check) -> Iterator[tuple[str, str]]:
    said = _asked(check, Evidence())
    clause = "without evidence it is not asked and raises nothing"
    if isinstance(said, str):
        yield clause, said
    elif check.needs:
        yield clause, "" if said.verdict is Verdict.NOT_RUN else f"it says {said.verdict} of nothing"
    else:
        yield clause, "it needs nothing, so it says the same of everybody"


def _on_evidence(check: Check, evidence: Evidence) -> Iterator[tuple[str, str]]:
    first, again = _asked(check, evidence), _asked(check, evidence)
    if isinstance(first, str) or isinstance(again, str):
        yield "it reads the evidence given", str(first if isinstance(first, str) else again)
        return
    missing = evidence.missing(check.needs)
    yield "it reads the evidence given", f"that evidence has no {missing[0]}" if missing else ""
    texts = [canonical_json(said.to_json()) for said in (first, again)]
    yield "asked twice it says the same", "" if texts[0] == texts[1] else "it said two things"
    yield "its sentence ends with a full stop", "" if first.sentence.endswith(".") else first.sentence[-40:]


def _asked(check: Check, evidence: Evidence) -> CheckResult | str:
    """Return what a check says, or in words what it raised."""
    try:
        return ask(check, evidence)
    except (
        SimgapError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        ArithmeticError,
        AssertionError,
    ) as error:
        return f"it raises {type(error).__name__}: {error}"[:200]

"""The words of trial logs: what a cell says of an outcome, which cells are failure codes and which are none, what a column is called for."""

from __future__ import annotations

import re
import unicodedata
from enum import StrEnum

from simgap.artefacts.tables import is_missing

_YES: tuple[str, ...] = (
    "1",
    "1.0",
    "true",
    "t",
    "yes",
    "y",
    "oui",
    "ja",
    "si",
    "sí",
    "success",
    "successful",
    "succeeded",
    "succes",
    "succès",
    "pass",
    "passed",
    "p",
    "ok",
)
_YES = (
    *_YES,
    "s",
    "done",
    "solved",
    "completed",
    "complete",
    "goal",
    "goal_reached",
    "reached_goal",
    "goal reached",
    "erfolg",
    "✓",
    "✔",
    "✅",
    "100%",
    "100 %",
)
_NO: tuple[str, ...] = (
    "0",
    "0.0",
    "false",
    "no",
    "n",
    "non",
    "nein",
    "failure",
    "fail",
    "failed",
    "f",
    "unsuccessful",
    "not solved",
    "lost",
    "echec",
    "échec",
    "✗",
    "✘",
    "❌",
)
_NO = (*_NO, "0%", "0 %", "timeout", "time_limit", "time limit", "timed out")
_PARTIAL = (
    "0.5",
    ".5",
    "1/2",
    "½",
    "half",
    "partial",
    "partial success",
    "partially",
    "semi",
    "50%",
    "50 %",
    "partiel",
)
_UNKNOWN = (
    "?",
    "??",
    "unknown",
    "unclear",
    "unsure",
    "undecided",
    "maybe",
    "tbd",
    "todo",
    "pending",
    "skipped",
    "skip",
    "not run",
    "x?",
)
VOID = re.compile(
    r"\b(infra\w*|void|voided|aborted|abort|invalid|excluded|discarded|scrapped|reset["
    r" _-]?(fail\w*|error))\b",
    re.IGNORECASE,
)
_NO_CODE: tuple[str, ...] = (
    "success",
    "successful",
    "succeeded",
    "ok",
    "none",
    "no",
    "no failure",
    "none.",
    "n/a",
    "na",
    "-",
    "--",
    "—",
    "–",
    "/",
    "0",
    "pass",
    "passed",
    "done",
)
_NO_CODE = (
    *_NO_CODE,
    "nil",
    "null",
    "aucun",
    "keine",
    "kein",
    "completed",
    "goal",
    "goal_reached",
    "s",
    "nan",
    "",
)
_TIME = (
    "timeout",
    "time_limit",
    "time limit",
    "timed out",
    "time-out",
    "max_steps",
    "max steps",
    "horizon",
    "truncated",
)


class Said(StrEnum):
    """What one row says of its trial."""

    SUCCESS = "success"
    FAILURE = "failure"
    PARTIAL = "partial"
    """Half a success: counts as a trial, never as a success, and is named."""
    VOID = "void"
    MISSING = "missing"


def key(name: str) -> str:
    """Return a column's name in its plain form: small letters without accents, words joined by ``_``, brackets left out."""
    plain = (
        unicodedata.normalize("NFKD", re.sub(r"[\[(].*?[\])]", " ", name)).encode("ascii", "ignore").decode()
    )
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", plain)
    return re.sub(r"[^a-z0-9]+", "_", plain.lower()).strip("_")


def outcome_of(cell: str) -> Said | None:
    """Return what a cell says of an outcome; None where it says nothing that is known."""
    word = cell.strip().lower().rstrip(".!")
    if is_missing(cell) or word in _UNKNOWN or not word:
        return Said.MISSING
    if word in _PARTIAL:
        return Said.PARTIAL
    if word in _YES:
        return Said.SUCCESS
    if word in _NO:
        return Said.FAILURE
    if VOID.search(word):
        return Said.VOID
    head = re.split(r"\s*[:;,(–—]|\s-\s", word, maxsplit=1)[0].strip()
    return outcome_of(head) if head != word and len(head) > 2 else None


def yes_no(cell: str) -> bool | None:
    """Return a cell as yes or no, None where it says neither."""
    return {Said.SUCCESS: True, Said.FAILURE: False}.get(outcome_of(cell) or Said.MISSING)


def is_no_code(cell: str) -> bool:
    """Return whether a cell of a column of failure codes names no failure: blank, a dash, ``none``, ``ok``, ``success``."""
    return is_missing(cell) or cell.strip().lower() in _NO_CODE


def ended_by_time(cell: str) -> bool:
    """Return whether a cell says that a time limit ended the trial."""
    return cell.strip().lower() in _TIME


def plain(label: str) -> str:
    """Return a label without what follows in brackets or after a dash: ``G (marginal)`` is ``G``."""
    return re.split(r"\s*[(—–]|\s-\s", label.strip(), maxsplit=1)[0].strip()

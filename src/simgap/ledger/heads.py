"""Heads: number and hash of the newest row, kept outside the ledger. They show what a chain alone cannot.

A chain proves that nothing inside it was changed. Whoever cuts its end, or writes the whole file again,
leaves a chain that fits; so does the ledger of another run. A head kept elsewhere no longer fits then. A run
keeps its head in ``run.json`` and in its page, a folder of trials in ``trials.json``, which shows an accident
or an edit of the ledger alone. Against somebody who edits all of them only a head helps that lies out of
their reach: printed, mailed, published; give it to ``simgap ledger verify --head``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from simgap.errors import DataError, UsageError
from simgap.ledger.rows import GENESIS
from simgap.provenance import canonical_json, read_json, write_atomic

LEDGER_FILE = "ledger.db"
HEAD_FIELD = "ledger_head"
"""Field of ``run.json`` and name of the page's meta entry that hold the head."""
RUN_FILE, PAGE = "run.json", "report.html"
TRIALS_FILE = "trials.json"
"""Keeps the head of a folder of trials, whose ledger grows with every set, and which sets are adding rows."""
_SHORTEST = 12
_TEXT = re.compile(r"(?:(\d{1,18}):)?([0-9a-f]{12,64})")
_META = re.compile(rb'<meta name="simgap-ledger-head" content="([0-9a-f:]{1,90})">')
_META_WITHIN = 4096
"""The entry stands at the top of the page: so many bytes are read."""


class Head(NamedTuple):
    """Row number, where it is known, and hash of a row, or the first digits of it."""

    number: int | None
    hash: str
    is_open: bool = False
    """Whether somebody was adding rows when it was kept: a kill then leaves rows after it."""

    def __str__(self) -> str:
        return self.hash if self.number is None else f"{self.number}:{self.hash}"


def parse_head(text: str) -> Head:
    """Read ``NUMBER:HASH`` or ``HASH``, of which twelve digits or more are enough.

    Raises:
        UsageError: it is something else.
    """
    found = _TEXT.fullmatch(text.strip().lower())
    if found is None:
        raise UsageError(
            f"{text!r:.100} is no head of a ledger; give NUMBER:HASH as the verbs print it, or at least"
            f" {_SHORTEST} digits of the hash"
        )
    return Head(None if found[1] is None else int(found[1]), found[2])


def kept_heads(folder: Path) -> dict[str, Head]:
    """Return the heads that a run folder keeps beside its ledger: file name -> head.

    Raises:
        DataError: ``run.json`` or the page holds no head of the form we write.
    """
    kept: dict[str, Head] = {}
    run = folder / RUN_FILE
    if run.is_file():
        said = read_json(run)
        text = said.get(HEAD_FIELD) if isinstance(said, dict) else None
        if text is None:
            raise DataError(
                f"{run} holds no {HEAD_FIELD}: it was edited, or an older version wrote it; run the demo"
                " again into a new folder"
            )
        kept[RUN_FILE] = _stored(run, text)
    page = folder / PAGE
    if page.is_file():
        with page.open("rb") as handle:
            found = _META.search(handle.read(_META_WITHIN))
        if found is not None:
            kept[PAGE] = _stored(page, found[1].decode())
    if (folder / TRIALS_FILE).is_file():
        kept[TRIALS_FILE] = _trials(folder)[0]
    return kept


def keep_head(folder: Path, head: str, *, who: str, is_adding: bool) -> None:
    """Keep the head of a folder of trials.

    Args:
        folder: that of the ledger.
        head: as it is printed.
        who: which set of trials asks.
        is_adding: True before it adds rows, False after the last; killed in between, it is still adding,
            until it is run again.

    Raises:
        DataError: what is kept there has another form than we write.
    """
    path = folder / TRIALS_FILE
    others = [name for name in _trials(folder)[1] if name != who] if path.is_file() else []
    write_atomic(
        path, canonical_json({HEAD_FIELD: head, "adding": [*others, who] if is_adding else others}) + "\n"
    )


def _trials(folder: Path) -> tuple[Head, list[str]]:
    path = folder / TRIALS_FILE
    said = read_json(path)
    adding = said.get("adding") if isinstance(said, dict) else None
    if not isinstance(adding, list) or not all(isinstance(name, str) for name in adding):
        raise DataError(f"{path} does not say which head the ledger has; restore it, or begin a new folder")
    return _stored(path, said.get(HEAD_FIELD))._replace(is_open=bool(adding)), adding


def head_fault(kept: Head, hashes: Sequence[str], kinds: Mapping[int, str], *, may_have_grown: bool) -> str:
    """Return why a ledger does not end where a head says; empty when it does.

    Args:
        kept: the head.
        hashes: hash of each row, in order.
        kinds: row -> what it is, to name those that were added.
        may_have_grown: True lets rows stand after it.
    """
    if kept.hash == GENESIS and not kept.number:
        at = 0
    else:
        places = [kept.number] if kept.number is not None else range(1, len(hashes) + 1)
        at = next((n for n in places if n <= len(hashes) and hashes[n - 1].startswith(kept.hash)), -1)
    if at < 0:
        row = "the row" if kept.number is None else f"row {kept.number}"
        return (
            f"{row} with hash {kept.hash[:12]} is not in the ledger, which has {len(hashes)} rows; its end"
            " was cut or replaced, or it is another ledger"
        )
    if at == len(hashes) or may_have_grown or kept.is_open:
        return ""
    added = [f"{n} ({kinds.get(n, 'row')})" for n in range(at + 1, len(hashes) + 1)]
    shown = ", ".join(added[:4]) + (f" and {len(added) - 4} more" if len(added) > 4 else "")
    return (
        f"{len(added)} row{'s stand' if len(added) > 1 else ' stands'} after the head {str(kept)[:20]}:"
        f" {shown}"
    )


def _stored(path: Path, text: object) -> Head:
    try:
        return parse_head(text if isinstance(text, str) else repr(text))
    except UsageError as error:
        raise DataError(f"{path}: {error}; restore it, or begin a new folder") from error

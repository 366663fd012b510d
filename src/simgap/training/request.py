"""What a training was asked for: its hash decides whether a run goes on, its fields say what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simgap.episodes.spec import differences
from simgap.episodes.table import FrameTable
from simgap.errors import DataError
from simgap.policies.checkpoint import read_card
from simgap.provenance import canonical_json, content_hash, read_json, write_atomic
from simgap.training.spec import TrainSpec
from simgap.types import EvidenceKind

FILE = "request.json"
_SHOWN = 4


def request_of(
    tables: Sequence[FrameTable],
    shares: Sequence[float] | None,
    spec: TrainSpec,
    kinds: Sequence[EvidenceKind] | None,
    processes: int,
) -> dict[str, Any]:
    """Return everything that decides what a training learns, as plain values."""
    parent = None if spec.init_from is None else read_card(spec.init_from).weights_hash
    # The parent counts by its weights, not its path; how often a run logs or saves does not change what it
    # learns.
    asked = {k: v for k, v in spec.to_json().items() if k not in ("log_every", "checkpoint_every_steps")} | {
        "init_from": parent
    }
    if spec.p_real is None and not spec.domain_input:  # where data come from decides nothing then
        asked, kinds = {k: v for k, v in asked.items() if k not in ("p_real", "domain_input")}, None
    parts: dict[str, Any] = {
        "spec": asked,
        "data": [t.fingerprint for t in tables],
        "shares": None if shares is None else [float(s) for s in shares],
    }
    if kinds is not None:
        parts["kinds"] = [str(k) for k in kinds]
    if processes > 1:  # sums over another number of processes differ in the last bit
        parts["processes"] = processes
    return parts


def keep_request(out: Path, request: Mapping[str, Any]) -> None:
    """Write what was asked beside the run, so that a later message can name what differs."""
    write_atomic(out / FILE, canonical_json(dict(request)) + "\n")


def what_differs(out: Path, request: Mapping[str, Any], made_for: object) -> str:
    """Return which fields of a request are not those of the run in a folder; without the file of that run, what could be.

    Args:
        out: folder of the run.
        request: what is asked now.
        made_for: hash of the request that the run says it was made for.
    """
    there: Any = None
    try:
        there = read_json(out / FILE)
        is_its = content_hash(there) == made_for
    except (DataError, TypeError, ValueError):
        is_its = False
    if not is_its or not request:
        return "another spec or other data"
    now = {"data": list(request["data"]), **request["spec"], **_rest(request)}
    then = {"data": list(there["data"]), **there["spec"], **_rest(there)}
    found = [text.replace(" on disk and ", " there and ") for text in differences(now, then)]
    return "; ".join(found[:_SHOWN]) + (f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")


def _rest(request: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in request.items() if k not in ("spec", "data")}

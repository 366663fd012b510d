"""Which report seeds are spent, and on what: a report counts only if nobody could choose by it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simgap.errors import DataError, UsageError
from simgap.provenance import content_hash, read_json, read_sealed, sealed_json
from simgap.rollouts.engine import RolloutSpec
from simgap.seeds import Purpose

FOLDER = "spent-seeds"


def claim(root: Path, spec: RolloutSpec, policy: str, stopping: str) -> Path | None:
    """Spend a block of report seeds on one policy, for good; spending it again on the same is nothing new.

    A block is env, factor ranges and the root of its seeds. Another policy, another executor or another
    number of rollouts on the same block is refused: whoever has seen the first number could choose by it, and
    the second would be a selection that looks like a report. The engine is no part of this: a second engine
    looks at the same policy.

    Args:
        root: folder of the screens; the record stands beside them.
        spec: what is about to be run.
        policy: hash of the policy's card.
        stopping: how the number of rollouts is decided.

    Returns:
        The record, None for seeds that are not for reports.

    Raises:
        UsageError: the block is spent on something else; names what, and the remedy.
        DataError: a record that cannot be read.
    """
    if spec.purpose is not Purpose.REPORT:
        return None
    block = _block(spec)
    use = {"policy": policy, "executor": spec.executor, "episodes": spec.episodes, "stopping": stopping}
    path = _path(root, spec)
    try:
        other = _reported_otherwise(root, block, use)
        if not other:
            _create(path, sealed_json(block | use))
            held = read_sealed(path, remedy="restore it")
            other = {k: held[k] for k in use if held[k] != use[k]}
    except (DataError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} cannot be read ({error!r}); what was reported on these seeds is not known: report with"
            " another --seed"
        ) from error
    if other:
        was = ", ".join(f"{k} {str(v)[:12] if k == 'policy' else v}" for k, v in other.items())
        now = ", ".join(f"{k} {str(use[k])[:12] if k == 'policy' else use[k]}" for k in other)
        raise UsageError(
            f"the report seeds of --seed {spec.seed} on {spec.env} are spent on {was}, and this is {now}: a"
            " second report there would let you choose by the first; report with another --seed (simgap"
            " select: --report-seed)"
        )
    return path


def require_not_spent(root: Path, spec: RolloutSpec, policies: Mapping[str, str]) -> None:
    """Raise where whichever of these policies is chosen, it could not be reported: the block is spent on another, or on another use of the only one it may be.

    Args:
        root: folder of the screens.
        spec: of the report that is to follow a choice; its executor is not looked at.
        policies: hashes of those that are chosen among, each with the executor it would be reported with.

    Raises:
        UsageError: names the remedy.
        DataError: a record that cannot be read.
    """
    path = _path(root, spec)
    if not path.is_file():
        return
    where = f"the report seeds of --seed {spec.seed} on {spec.env} are spent on"
    try:
        record = read_sealed(path, remedy="restore it")
        held, executor, episodes = record["policy"], record["executor"], record["episodes"]
    except (DataError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} cannot be read ({error!r}); what was reported on these seeds is not known: give another"
            " --report-seed"
        ) from error
    if held not in policies:
        raise UsageError(
            f"{where} policy {str(held)[:12]}, which is none of these: no winner could be reported there;"
            " give another --report-seed"
        )
    if (executor, episodes) != (policies[held], spec.episodes):
        raise UsageError(
            f"{where} policy {held[:12]} with executor {executor} and episodes {episodes}, and this would be"
            f" {policies[held]} and {spec.episodes}: no winner could be reported there; give another"
            " --report-seed"
        )


def spent_seeds(root: Path, spec: RolloutSpec, policy: str) -> tuple[int, ...]:
    """Return the report seeds that were spent on this policy with this executor, in this env and these ranges.

    Raises:
        DataError: a record that cannot be read.
    """
    found: list[int] = []
    for path in sorted((root / FOLDER).glob("*.json")):
        try:
            held = read_sealed(path, remedy="restore it")
            own = (held["env"], held["ranges"], held["policy"], held["executor"])
            seed = int(held["seed"])
        except (DataError, KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{path} cannot be read ({error!r}); what was reported on these seeds is not known:"
                " restore it"
            ) from error
        if own == (spec.env, spec.ranges.to_json(), policy, spec.executor):
            found.append(seed)
    return tuple(sorted(found))


def _block(spec: RolloutSpec) -> dict[str, Any]:
    return {"env": spec.env, "ranges": spec.ranges.to_json(), "seed": spec.seed}


def _reported_otherwise(root: Path, block: Mapping[str, Any], use: Mapping[str, Any]) -> dict[str, Any]:
    """Return how the use of a finished report on this block differs from this use: a record that was deleted frees no seeds while its screen is there."""
    for file in sorted(root.glob("*/screen.json")):
        try:
            stamp = read_json(file)["stamp"]
            is_here = stamp["purpose"] == str(Purpose.REPORT) and all(stamp[k] == v for k, v in block.items())
            other = {k: stamp[k] for k in use if stamp[k] != use[k]}
        except (DataError, KeyError, TypeError):
            continue  # unread_looks names it
        if is_here and other:
            return other
    return {}


def _path(root: Path, spec: RolloutSpec) -> Path:
    return root / FOLDER / f"{content_hash(_block(spec))[:16]}.json"


def _create(path: Path, text: str) -> None:
    """Write a file that nobody has written yet, whole or not at all; leave one that exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        if not path.exists():
            os.link(name, path)  # fails where another process was first; its record then decides
    except FileExistsError:
        pass
    finally:
        Path(name).unlink(missing_ok=True)

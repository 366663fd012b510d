"""``simgap policy check``: ask a policy on recordings before anything moves."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.cli._output import emit

if TYPE_CHECKING:
    from rich.console import Console

    from simgap.findings import CheckResult

DESCRIPTION = (
    "Ask a policy on recordings, before anything moves. On the data it was trained on, predictions have to"
    " follow the labels in convention and spread and have to depend on its cameras. With --live, a recording"
    " made where it is to run (the trials' own log, or a few episodes driven by hand): each camera has to be"
    " in its slot, lie as in training, be alive and as bright. Exit code 1 where something is broken. It says"
    " nothing of success: only closed loop does."
)


def add_arguments(actions: Any) -> None:
    """Add the action and its options."""
    add: argparse.ArgumentParser = actions.add_parser(
        "check",
        help="ask a policy on its training data, and on live recordings, before anything moves",
        description=DESCRIPTION,
    )
    add.add_argument("policy", type=Path, metavar="POLICY", help="checkpoint folder or policy file")
    add.add_argument(
        "--data", type=Path, required=True, metavar="DATASET", help="a dataset that it was trained on"
    )
    add.add_argument("--live", type=Path, metavar="DATASET", help="a recording made where it is to run")


def run(args: argparse.Namespace) -> int:
    """Open both sides, ask, and print what each check says."""
    from simgap.checks.deployment.on_recordings import check_on_live, check_on_training, look
    from simgap.episodes.reader import open_dataset
    from simgap.findings import Verdict
    from simgap.policies.bridges.open import open_policy
    from simgap.policies.checkpoint import require_matches
    from simgap.provenance import child_rng

    policy = open_policy(args.policy)
    looked = []
    for path in (args.data, args.live):
        if path is not None:
            data = open_dataset(path)
            spec = data.spec
            size = spec.image_size[0]
            require_matches(policy, spec.action_spec, spec.state_spec, spec.cameras, size, other=str(path))
            looked.append(look(policy, data))
    found = check_on_training(policy, looked[0], child_rng(args.seed, "policy check"))
    if len(looked) > 1:
        found += check_on_live(*looked)
    broken = [result for result in found if result.verdict is Verdict.BROKEN]
    document = {
        "policy": args.policy,
        "data": args.data,
        "live": args.live,
        "checks": [result.to_json() for result in found],
        "broken": len(broken),
    }
    emit(args, document, lambda console: _print(console, found))
    return 1 if broken else 0


def _print(console: Console, found: Sequence[CheckResult]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("family", "verdict", "what was found"):
        table.add_column(heading, overflow="fold")
    for result in found:
        table.add_row(str(result.family), str(result.verdict), result.sentence)
    console.print(table)
    for cause in dict.fromkeys(r.cause for r in found if r.cause.family is not None):
        console.print(f"remedy     {cause.remedy}")

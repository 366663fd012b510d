"""The verbs of the command line, in the order of the loop, and how one is loaded."""

from __future__ import annotations

import argparse
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol, cast

from simgap.errors import UsageError, did_you_mean

SUMMARIES = {
    "demo": "run two turns against a sealed surrogate and write the report",
    "envs": "list the envs with their cameras, actions, factors and failure modes",
    "generate": "let the teacher record verified episodes in sim",
    "data": "look at a dataset of any robot; check, convert, merge, measure and split it",
    "pixels": "find the smallest frame size at which the target can be seen well enough",
    "train": "train a chunk policy on a mixture of datasets",
    "policy": "ask a policy on recordings before anything moves; write the policy file of a LeRobot checkpoint",
    "screen": "judge a policy in sim: broken, worth hardware time, or undecided",
    "select": "race checkpoints in closed loop and score the winner on fresh seeds",
    "robots": "list the surrogates, and hold a robot of your own against the contract",
    "trial": "run and log a small evaluation on a surrogate",
    "diagnose": "say which thing is broken, or which trials would tell",
    "checks": "list what a diagnosis asks, and hold a check of your own against the contract",
    "mutants": "list the planted faults that checks have to see",
    "target": "plan the next data from the failures",
    "study": "run a study and write its page: what an executor costs, what selects a checkpoint",
    "audit": "run every check against every planted fault",
    "loop": "crank a turn, or resume one from disk",
    "numbers": "how many trials are needed, what they show, and what sim is worth beside real",
    "ledger": "verify, show and export a ledger of evidence",
    "report": "write one self-contained HTML page of a run",
}
"""Verb -> one line, kept here so that ``simgap --help`` loads no verb."""


class Verb(Protocol):
    """What a verb's module holds."""

    HELP: str
    """One line that opens ``simgap VERB --help``."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the verb's own options; the common ones are there already."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it and return the exit code."""


def known_verbs() -> dict[str, str]:
    """Return the verbs this installation has, with their line each."""
    return {name: line for name, line in SUMMARIES.items() if find_spec(f"simgap.cli.{name}") is not None}


def load_verb(name: str) -> Verb:
    """Import one verb.

    Raises:
        UsageError: there is no such verb; the message lists those there are.
    """
    verbs = known_verbs()
    if name not in verbs:
        raise UsageError(f"no verb {name!r}; {did_you_mean(name, verbs)}")
    return cast(Verb, import_module(f"simgap.cli.{name}"))

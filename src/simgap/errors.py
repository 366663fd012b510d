"""The error tree, sorted by what has to happen next.

Every message says what was wrong, what was expected and what to do; the command line prints it as one line.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any


class SimgapError(Exception):
    """Base of every error a user can cause or repair; the command line turns it into one line and an exit code."""

    exit_code = 3
    facts: Mapping[str, Any] = MappingProxyType({})
    """What is known all the same, for programs: part of the document of ``--json``."""


class UsageError(SimgapError):
    """The request itself is wrong (an unknown name, an impossible option): change the command."""

    exit_code = 2


class UntrustedError(UsageError):
    """A file names something to be run, and nobody at the command line has said that it may: allow it there, or leave it."""


class DataError(SimgapError):
    """A file or dataset cannot be used as it is: repair or replace the data."""


class PolicyFault(DataError):
    """A policy wants what cannot be sent: nothing is sent, and a trial is a failure of the policy, never a void."""

    def __init__(self, message: str, *, mode: str = "policy_fault") -> None:
        """Say what it wanted.

        Args:
            message: the reason.
            mode: failure mode of the trial, ``not_finite`` for numbers that are not finite.
        """
        super().__init__(message)
        self.mode = mode


class ConventionError(SimgapError):
    """Two conventions (units, joint order, sign, rate) meet that do not agree: convert explicitly."""


class MachineError(SimgapError):
    """The machine lacks something (a system library, memory, a display driver): install it."""


class BusyError(SimgapError):
    """Another process is at the same work: wait for it, or work elsewhere."""


class TrialFault(SimgapError):
    """A trial broke and proves nothing: log it as void with this reason and go on."""


class SealError(SimgapError):
    """A sealed gap was asked for too early, or does not match its commitment: stop the turn."""


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """Return a sentence that lists the choices and, when one is near, proposes it."""
    known = sorted(map(str, choices))  # members of an enum read as their words
    family, dash, rest = name.partition("-")
    kin = {choice.partition("-")[2]: choice for choice in known if dash and choice.startswith(f"{family}-")}
    # of arm-grab only what follows arm- is compared: it is another task of the arm and no car-goal
    near = [kin[r] for r in difflib.get_close_matches(rest, kin, n=1)] if kin else []
    near = near if kin else difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}known: {', '.join(known)}"

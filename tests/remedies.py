"""Commands out of messages, run as a user would paste them."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable
from typing import Any

import pytest

from simgap.cli import main
from simgap.episodes.formats.commands import TASK

_ENDS = (";", " (", ", ", ". ", "`", ")")


def printed_commands(text: str) -> list[list[str]]:
    """Return the words of every ``simgap ...`` in a message, without those of a bare verb in a sentence."""
    found = []
    for part in text.split("simgap ")[1:]:
        found.append(shlex.split(_cut(part)))
    return [words for words in found if len(words) > 2]


def _cut(text: str) -> str:
    """Return text up to what ends a command in a sentence, quotes kept whole."""
    quoted = False
    for k, character in enumerate(text):
        quoted ^= character == "'"
        if not quoted and any(text.startswith(end, k) for end in _ENDS):
            return text[:k]
    return text.rstrip(".")


def run_printed(text: str) -> list[int]:
    """Run every command of a message and return the exit codes."""
    return [run(words) for words in printed_commands(text)]


def run(words: list[str]) -> int:
    """Run one command in this process, in their owner's words where it asks for these; workers change its pace and nothing else."""
    words = ["drive round the track" if word == TASK else word for word in words]
    return main(
        [*words, *(("--workers", "0") if words[1] in ("convert", "merge", "split") else ()), "--quiet"]
    )


def thinned(cases: Iterable[Any], fast: Collection[Any]) -> list[Any]:
    """Return parameters of which only a few run in the fast suite, the others in the thorough one."""
    return [
        c if c in fast else pytest.param(*(c if isinstance(c, tuple) else (c,)), marks=pytest.mark.slow)
        for c in cases
    ]

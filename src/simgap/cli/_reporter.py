"""Shows a run of the loop on standard error: one progress line a stage, with rate and time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from simgap.cli._output import duration, harmless, progress

if TYPE_CHECKING:
    from simgap.loop.spec import Progress


class ConsoleReporter:
    """Reports stages as they run."""

    def __init__(self, quiet: bool) -> None:
        """Say nothing at all when ``quiet``."""
        self._quiet = quiet
        self._started = time.monotonic()

    @contextmanager
    def stage(self, label: str, unit: str) -> Iterator[Progress]:
        """Show one stage; the bar opens with the first report, when the total is known."""
        done, found, began = 0, False, time.monotonic()
        with ExitStack() as stack:
            advance = None

            def report(count: int, total: int, note: str) -> None:
                nonlocal done, advance, found
                found |= note == "found"
                if advance is None:
                    done = count  # what an earlier run left is no part of this run's rate
                    advance = stack.enter_context(
                        progress(total - count, f"{label}: {unit}", self._quiet or total == count)
                    )
                advance(count - done, note)
                done = count

            yield report
        took = "found finished" if found else duration(time.monotonic() - began)
        self.say(f"[{duration(time.monotonic() - self._started)}] {label}: {done} {unit}, {took}")

    def say(self, text: str) -> None:
        """Say one line."""
        if not self._quiet:
            print(harmless(text), file=sys.stderr, flush=True)

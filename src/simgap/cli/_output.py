"""What a verb prints: one document or a page for people on standard output, progress on standard error."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_HIDDEN = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""Characters that move a cursor, command a terminal, or show text in another order than it has."""
_UNSEEN = re.compile(f"[{_HIDDEN}]")
PLAIN_INTERVAL_S = 10.0
"""Between two progress lines when standard error is a file."""
_PIPE_WIDTH = 120


class Advance(Protocol):
    """Reports ``n`` more items done; ``note`` is shown beside the rate (a loss, a file name)."""

    def __call__(self, n: int = 1, note: str = "") -> None:
        """Count and, when it is time, show."""


def emit(args: Namespace, document: Mapping[str, Any], human: Callable[[Console], None]) -> None:
    """Print a verb's result, once and last: the document with ``--json``, else what ``human`` draws.

    Args:
        args: the parsed arguments; ``args.json`` decides.
        document: plain values, numpy scalars, arrays and paths; an undefined number is ``None``, NaN is
            refused.
        human: draws on the console it is given.
    """
    if args.json:
        from simgap.provenance import canonical_json  # imports numpy, which `simgap --help` must not

        print(json_text(json.loads(canonical_json(document)), indent=2))
    else:
        human(console())
    sys.stdout.flush()


def json_text(document: Any, indent: int | None = None) -> str:
    """Return a document as JSON that standard output can take; where that is no UTF-8, other letters become JSON's own escapes."""
    is_utf8 = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"
    text = json.dumps(document, indent=indent, ensure_ascii=not is_utf8)
    return _UNSEEN.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def harmless(text: str) -> str:
    """Return a text, whoever wrote parts of it, so that a terminal shows it and obeys nothing in it; line ends and tabs stay."""
    return _UNSEEN.sub("?", text)


def foreign(text: str) -> str:
    """Return what somebody else wrote on one line: a console of ours takes it as it is otherwise, without markup."""
    return re.sub(r"[\t\n\r]", "?", harmless(text))


def console() -> Console:
    """Return a console on standard output; in a pipe tables are 120 columns wide, or as COLUMNS says, and text is not wrapped.

    All texts go through here, and many hold names out of files: none is read as markup, and none commands the
    terminal.
    """
    from collections.abc import Iterable

    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.text import Text

    class Page(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would exit with code 1; the frame has its own way

        def print(self, *objects: Any, soft_wrap: bool | None = None, **style: Any) -> None:
            if soft_wrap is None and all(isinstance(o, (str, Text)) for o in objects):
                # a command that is broken into lines cannot be pasted
                soft_wrap = not self.is_terminal or any("simgap " in str(o) for o in objects)
            super().print(*objects, soft_wrap=soft_wrap, **style)

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(harmless(segment.text), segment.style)

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH
    return Page(width=width, highlight=False, markup=False, emoji=False)


def marked(word: str, colour: str, rest: str) -> Text:
    """Return a line that begins with a word in colour."""
    from rich.text import Text

    return Text.assemble((word, colour), rest)


def say(args: Namespace, text: str) -> None:
    """Print one line about what is going on to standard error, unless ``--quiet``."""
    if not args.quiet:
        print(harmless(text), file=sys.stderr, flush=True)


@contextmanager
def progress(total: int | None, label: str, quiet: bool = False) -> Iterator[Advance]:
    """Show progress with rate and time left on standard error: a bar on a terminal, a line now and then elsewhere.

    Args:
        total: how many items, or None if nobody knows.
        label: what is counted, for example ``episodes``.
        quiet: count in silence.
    """
    meter = Meter(total=total, label=label)
    if quiet:
        yield meter.add
    elif sys.stderr.isatty():
        with _bar(meter) as advance:
            yield advance
    else:
        with _lines(meter) as advance:
            yield advance


@dataclass(kw_only=True)
class Meter:
    """Counts, and puts count, rate and time left into words."""

    total: int | None
    label: str
    clock: Callable[[], float] = time.monotonic
    done: int = 0
    note: str = ""
    started_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.started_s = self.clock()

    def add(self, n: int = 1, note: str = "") -> None:
        """Count ``n`` more."""
        self.done += n
        self.note = note or self.note

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return self.clock() - self.started_s

    def speed(self) -> str:
        """Return rate, time left and note, as far as they are defined."""
        elapsed = self.elapsed_s
        parts = []
        if self.done and elapsed > 0:
            rate = self.done / elapsed
            parts.append(pace(rate))
            if self.total is not None and self.done < self.total:
                parts.append(f"{duration((self.total - self.done) / rate)} left")
        return ", ".join([*parts, self.note] if self.note else parts)

    def line(self) -> str:
        """Return the whole state as one plain line."""
        count = f"{self.done}" if self.total is None else f"{self.done}/{self.total}"
        share = f" ({self.done / self.total:.0%})" if self.total else ""
        speed = self.speed()
        return f"{self.label} {count}{share}" + (f", {speed}" if speed else "")


def pace(rate: float) -> str:
    """Return how many a second, or an hour where that is few, without powers of ten."""
    return (
        f"{rate:,.0f}/s" if rate >= 100.0 else f"{rate:.3g}/s" if rate >= 0.01 else f"{3600.0 * rate:.3g}/h"
    )


def duration(seconds: float) -> str:
    """Return a duration in the two units that matter, such as ``2 min 05 s``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


@contextmanager
def _lines(meter: Meter, interval_s: float = PLAIN_INTERVAL_S) -> Iterator[Advance]:
    last = meter.started_s

    def advance(n: int = 1, note: str = "") -> None:
        nonlocal last
        meter.add(n, note)
        # the last line is printed at the end, once
        if meter.done != meter.total and meter.clock() - last >= interval_s:
            last = meter.clock()
            print(harmless(meter.line()), file=sys.stderr, flush=True)

    try:
        yield advance
    finally:
        print(f"{harmless(meter.line())}, took {duration(meter.elapsed_s)}", file=sys.stderr, flush=True)


@contextmanager
def _bar(meter: Meter) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=False) as shown:
        task = shown.add_task(meter.label, total=meter.total, speed="")

        def advance(n: int = 1, note: str = "") -> None:
            meter.add(n, note)
            shown.update(task, completed=meter.done, speed=harmless(meter.speed()))

        yield advance
        shown.update(task, speed=f"took {duration(meter.elapsed_s)}")


def show_lines(console: Console, *lines: str) -> None:
    """Print lines as they are: no markup, no highlighting, no wrapping, so that a path or a command can be copied."""
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def following(advance: Advance, start: int = 0) -> Callable[[int, int], None]:
    """Return a callback for ``(done, total)`` that tells ``advance`` what is new since the last call."""
    before = start

    def landed(done: int, _: int) -> None:
        nonlocal before
        advance(done - before)
        before = done

    return landed


def counted(counts: Mapping[str, int]) -> str:
    """Return ``3 dropped, 1 timeout``, or ``none``."""
    return ", ".join(f"{n} {name}" for name, n in counts.items()) or "none"

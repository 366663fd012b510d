"""How screens and their differences are shown to people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from simgap.cli._output import counted, show_lines
from simgap.wording import number_of

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from simgap.rollouts.screen import ScreenReport


def print_screens(console: Console, document: dict[str, Any]) -> None:
    """Show the document of ``simgap screen``."""
    several = len({s["policy"] for s in document["screens"]}) > 1
    for shown in document["screens"]:
        who = f"{shown['checkpoint']} with {shown['executor']}" if several else shown["executor"]
        mark = " (recommended in the card)" if shown["is_recommended"] else ""
        show_lines(
            console,
            f"{shown['verdict'].upper()}: {document['env']} on {document['engine']}, {document['factors']},"
            f" {who}{mark}",
        )
        show_lines(
            console,
            f"  success {shown['sentences'][0]}",
            f"  {bars_in_words(shown)}",
            f"  failures: {counted(shown['failures'])}",
        )
        if shown["voids"]:
            show_lines(console, f"  voids: {counted(shown['voids'])}")
        if shown["stopped_early"]:
            show_lines(
                console,
                f"  decided after {shown['rollouts']} of at most {number_of(shown['cap'], 'rollout')};"
                " the interval holds"
                " at every look",
            )
        show_lines(
            console, *(f"  {m['name']}: {m['verdict']}. {m['sentence']}" for m in shown.get("motion", ()))
        )
        if shown["timing_sentence"]:
            show_lines(console, f"  {shown['timing_sentence']}")
        reused = "finished before and read back; " if shown["was_finished"] else ""
        show_lines(console, f"  {reused}outcomes, film strips and traces: {shown['path']}")
        if shown["videos"] is not None:
            show_lines(console, f"  failures on video, up to two of each kind: {shown['videos']}")
        _print_looks(console, shown)
    for found in document["differences"]:
        print_difference(console, found)
    if document["differences"]:
        what = "a policy" if several else "an executor"
        show_lines(
            console,
            f"These seeds now have selected {what}: report the chosen one on fresh seeds, with --purpose"
            " report.",
        )
    kind = document["evidence"]
    show_lines(
        console,
        document["what_n_cannot_show"],
        f"This is evidence of kind {kind}: it can reject a policy and says nothing about hardware.",
    )
    if document["is_clean"]:
        show_lines(console, f"next: {document['next']}")
    elif all(s["verdict"] == "broken" for s in document["screens"]):
        show_lines(
            console,
            "next: look at the failures; then more or other data, or longer training: this is not worth a"
            " robot's time",
        )
    elif all(s["verdict"] == "undecided" for s in document["screens"]):
        show_lines(
            console,
            "undecided: a larger -n narrows the interval, more training or data moves it; another --seed is"
            " another look, and looks are pooled",
            f"next: {document['next']}",
        )


def bars_in_words(shown: Mapping[str, Any]) -> str:
    """Say by which interval and which bars the verdict falls."""
    broken, worthy = (f"{100 * shown['bars'][name]:.0f} %" for name in ("broken_below", "worthy_above"))
    if "clopper_pearson" not in shown:
        return (
            "decided by a plan whose wrong verdicts are bounded, not by this interval; broken: a rate below"
            f" {broken}; worth hardware time: above {worthy}"
        )
    rule = f"broken: all of the interval below {broken}; worth hardware time: all of it above {worthy}"
    low, high = shown["clopper_pearson"]
    if low is None or high is None:
        return f"no trial counts; {rule}"
    return f"decided by the exact interval, {100 * low:.1f} to {100 * high:.1f} % (Clopper-Pearson); {rule}"


def _print_looks(console: Console, shown: Mapping[str, Any]) -> None:
    """Say what was looked at before, where that biases the rate above."""
    if race := shown["chosen_on_these_seeds"]:
        high = (
            "they say nothing new about it" if not shown["successes"] else "the rate above is biased upwards"
        )
        show_lines(
            console,
            f"  these seeds chose this policy in {race}: {high}; use its report there, or --purpose report",
        )
    if (pooled := shown["pooled"]) is not None:
        where = ", ".join(map(str, pooled["seeds"]))
        show_lines(
            console,
            f"  look {len(pooled['seeds'])} at fresh seeds (--seed {where}), all together"
            f" {pooled['sentence']}: {pooled['verdict']}",
        )
    show_lines(
        console, *(f"  note: {text}; what it said is in no number here" for text in shown["unread_looks"])
    )


def print_difference(console: Console, found: dict[str, Any]) -> None:
    """Show one arm against another on the same seeds."""
    pairs = found["pairs"]
    if found["difference"] is None:
        show_lines(console, f"{found['new']} against {found['old']}: no pair counts")
        return
    low, high = found["interval"]
    show_lines(
        console,
        f"{found['new']} against {found['old']} on the same seeds: {100 * found['difference']:+.1f} points"
        f" ({100 * found['confidence']:g} % interval {100 * low:+.1f} to {100 * high:+.1f},"
        f" {found['method']}; {found['test']} p = {found['p_value']:.2g}); only {found['new']} succeeds on"
        f" {number_of(pairs['only_new'], 'seed')}, only {found['old']} on {pairs['only_old']}",
    )


def videos_of(report: ScreenReport) -> Path | None:
    """Return the page of a screen's videos, None where nothing failed or nothing was filmed."""
    from simgap.rollouts.screen import VIDEOS
    from simgap.rollouts.videos import INDEX

    page = report.path / VIDEOS / INDEX
    return page if page.is_file() else None

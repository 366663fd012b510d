"""The sentences of a run's report."""

from __future__ import annotations

from simgap import causes
from simgap.diagnosis import Diagnosis
from simgap.envs import make_env
from simgap.episodes.reader import open_dataset
from simgap.loop.naming import broken_words, needs_data
from simgap.loop.results import Turn, TurnResult
from simgap.mutants.gaps import Gap
from simgap.provenance import assumptions
from simgap.report.model import BlindSpot
from simgap.statistics import tally
from simgap.wording import number_of


def broken_thing(result: TurnResult) -> str | None:
    """Return what is broken in a run, with its joint, camera or factor and its number; None when it cannot be told yet."""
    if result.diagnosis is None:
        return None
    env = make_env(result.spec.env, render=False)
    return broken_words(
        result.diagnosis, training=result.ranges, space=env.factor_space, rate_hz=env.action_spec.rate_hz
    )


def verdict_sentence(result: TurnResult) -> str:
    """Say in one sentence how the run came out, worse or better."""
    first, newest = result.turns[0], result.turns[-1]
    screen = first.screens[0][1]
    if result.diagnosis is None:
        return (
            f"The sim screen found the policy {screen.verdict} ({screen.rate}); it was not tried on the"
            " robot."
        )
    name = broken_thing(result) or "It cannot be told yet what is broken"
    # names of joints and factors stay as they are
    named = name if "_" in name.split(" ")[0] else name[0].upper() + name[1:]
    start = f"{named}. {screen.rate.successes} of {screen.rate.n} in sim, {_rate(first)} on the surrogate."
    later = "".join(
        f" Then, after turn {t.number}: {t.diagnosis.cause.words or 'it cannot be told yet'}."
        for t in result.turns[1:]
        if t.diagnosis is not None
    )
    if newest is first:
        if result.diagnosis.cause is causes.NONE:
            return f"{start} No second turn was needed."
        is_all = result.spec.turns == 1 and first.plan is not None and first.plan.kind != "nothing"
        return f"{start} {'No second turn was asked for.' if is_all else 'No data plan followed from it.'}"
    named_turn = f"Turn {newest.number}"
    if result.paired is None:
        which = "The second turn" if newest.number == 2 else named_turn
        return f"{start}{later} {which} did not pass its own screen and was not tried on the robot."
    difference = result.paired.difference
    if difference.point is None:
        return (
            f"{start}{later} {named_turn} was tried ({_rate(newest)}), but no pair of trials counts:"
            f" {difference.reason}."
        )
    low, high = difference.low or 0.0, difference.high or 0.0
    word = "better" if low > 0 else "worse" if high < 0 else "not shown to be better"
    interval = f"{100 * difference.confidence:g} % interval {100 * low:+.0f} to {100 * high:+.0f}"
    pairs = number_of(result.paired.counts.n, "pair")
    than = "" if newest.number == 2 else " than turn 1"
    return (
        f"{start}{later} {named_turn} is {word}{than}: {_rate(newest)} on the same conditions"
        f" ({100 * difference.point:+.0f} points on {pairs}, {interval})."
    )


def _rate(turn: Turn) -> str:
    counts = tally(r.outcome for r in turn.results)
    return f"{counts.successes} of {counts.n}"


def held_values(gap: Gap) -> list[tuple[str, str]]:
    """Return what a gap held, name and value."""
    if gap.kind is causes.NONE:
        return []
    if gap.joint:
        return [(f"multiplier on {gap.joint}", f"{gap.multiplier:g}")]
    ranges = [(f"{n} in use", f"{a:g} to {b:g}") for n, (a, b) in gap.placements.items()]
    return ranges + [(n, f"{v:.3g}") for n, v in gap.factors.items()]


def next_command(result: TurnResult, found: Diagnosis, number: int | None = None) -> str:
    """Return the command that goes on from a diagnosis of a run: more trials where it cannot tell, a data plan where data are the remedy, else none."""
    if found.cause in (causes.NONE, causes.UNKNOWN):
        return f"simgap trial {result.turn(number).checkpoint} -n {found.more_trials or 100}"
    which = "" if number is None else f" --turn {number}"
    return f"simgap target {result.folder}{which}" if needs_data(found) else ""


def blind_spots(result: TurnResult) -> list[BlindSpot]:
    """Return the assumptions of the policy for which no evidence of this run is independent.

    The set is computed from the stamps: an assumption of the training set is covered when some evidence does
    not share it.
    """
    trained = assumptions(open_dataset(result.turns[0].datasets[0]).spec.stamp)
    logs = [log for t in result.turns for log in (t.in_use, t.conditions, t.replays) if log is not None]
    evidence = [assumptions(open_dataset(log).spec.stamp) for log in logs]
    shared = sorted(a for a in trained if all(a in e for e in evidence)) if evidence else sorted(trained)
    return [BlindSpot(assumption=a, rests_on_it=_rests(a), how_to_test=_how(a)) for a in shared]


def _rests(assumption: str) -> str:
    name = assumption.split("=", 1)[0]
    return {
        "engine": "every contact and every motion",
        "renderer": "every picture the policy saw, and the pixel check",
        "judge": "every success and failure mode",
        "env": "the task itself",
        "horizon_steps": "what counts as a timeout",
        "clock": "every delay",
    }.get(name, "the training set")


def _how(assumption: str) -> str:
    name = assumption.split("=", 1)[0]
    return {
        "engine": "a second physics engine, or hardware",
        "renderer": "a second renderer, or real cameras",
        "judge": "an external judge, or an operator",
        "env": "hardware",
        "horizon_steps": "repeat with another horizon",
        "clock": "a robot with its own clock",
    }.get(name, "evidence made without it")

"""The broken thing by its name and number, and the correction itself: what a reader wants to know first."""

from __future__ import annotations

from simgap.causes import NewEpisodes, Setting, UndoMultipliers
from simgap.diagnosis import Diagnosis
from simgap.envs.factors import FactorRanges, FactorSpace


def broken_words(
    found: Diagnosis, *, training: FactorRanges, space: FactorSpace, rate_hz: float
) -> str | None:
    """Return what is broken with its joint, camera or factor and its number; None when it cannot be told yet.

    Args:
        found: the diagnosis.
        training: what the training set was sampled from.
        space: factors of the env.
        rate_hz: control rate.
    """
    setting = Setting(trained=training.ranges, factors=space.factors, rate_hz=rate_hz)
    return found.cause.say(found.parameters, setting) or None


def corrections(found: Diagnosis) -> list[tuple[str, str, str]]:
    """Return (what, as it is, as it has to be) of each command to correct; empty where no convention is at fault."""
    repair = found.cause.repair
    broken = found.parameters.get(repair.numbers, {}) if isinstance(repair, UndoMultipliers) else {}
    return [
        (f"what is sent to {name}", "command", f"command / {_plain(float(value))}")
        for name, value in broken.items()
    ]


def needs_data(found: Diagnosis) -> bool:
    """Return whether new episodes are the remedy: only then is there anything for `simgap target` to plan."""
    return isinstance(found.cause.repair, NewEpisodes)


def _plain(value: float) -> str:
    return f"{value:.3g}" if value >= 0 else f"({value:.3g})"

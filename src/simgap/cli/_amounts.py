"""How much data is little: said where data are made and where they are trained on."""

from __future__ import annotations

from simgap.wording import number_of

FEW = 100
"""Episodes below which a warning is given: a fifth of the fewest with which a study of ours reached 99 %."""


def few_episodes(count: int) -> str:
    """Return a warning where there are few episodes, else nothing."""
    if count >= FEW:
        return ""
    those = number_of(count, "episode is", "episodes are")
    return (
        f"{those} few: arm-pick took 500 to reach 99 % in sim, and 4,000 where every factor varies"
        " (docs/studies/headline.md); a policy of fewer mostly repeats what it was shown, and its loss does"
        " not say so"
    )

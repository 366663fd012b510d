"""Pure functions on counts: proportions, comparisons, planning. Every estimate carries n, interval and method, or a reason."""

from __future__ import annotations

from simgap.statistics.comparisons import Difference, ExactTest, exact_independence, newcombe_difference
from simgap.statistics.paired import PairCounts, PairedDifference, pair_outcomes, paired_difference, tango_interval
from simgap.statistics.planning import ScreenVerdict, perfect_run_for, screen_verdict, trials_needed, visible_difference, what_n_cannot_show
from simgap.statistics.proportions import Estimate, clopper_pearson, wilson
from simgap.statistics.tally import Tally, tally

__all__ = [
    "Difference",
    "Estimate",
    "ExactTest",
    "PairCounts",
    "PairedDifference",
    "ScreenVerdict",
    "Tally",
    "clopper_pearson",
    "exact_independence",
    "newcombe_difference",
    "pair_outcomes",
    "paired_difference",
    "perfect_run_for",
    "screen_verdict",
    "tally",
    "tango_interval",
    "trials_needed",
    "visible_difference",
    "what_n_cannot_show",
    "wilson",
]

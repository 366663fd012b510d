"""Pure functions on counts and scores. Every result carries n, interval, method and confidence, or a reason why there is none.

Which one to call is a table in ``docs/design/statistics.md``.
"""

from __future__ import annotations

from simgap.statistics.agreeing import mcnemar_interval
from simgap.statistics.agreement import Agreement, PolicyPair, agreement_by_condition, agreement_of_counts
from simgap.statistics.anytime import ConfidenceSequence, beta_mixture, betting_interval, betting_sequence
from simgap.statistics.capped import CappedComparison, CappedDesign, Course, capped_design, compare_capped, course_of
from simgap.statistics.clusters import DesignEffect, cluster_bootstrap, clustered_rate, design_effect
from simgap.statistics.comparisons import Difference, ExactTest, exact_independence, newcombe_difference
from simgap.statistics.correlation import leave_one_out, mmrv, order_test, pearson, spearman
from simgap.statistics.evalues import SequentialTest, log_e_above, log_e_below, log_e_blocks, log_e_paired, log_mean, sequential_test, threshold_test
from simgap.statistics.modes import DipTest, class_entropy, dip_statistic, dip_test
from simgap.statistics.multiplicity import benjamini_hochberg, bonferroni, holm, letters
from simgap.statistics.paired import PairCounts, PairedDifference, mcnemar, newcombe_paired, pair_outcomes, paired_difference, tango_interval
from simgap.statistics.planning import ScreenVerdict, perfect_run_for, screen_verdict, trials_needed, visible_difference, what_n_cannot_show
from simgap.statistics.power import (
    Limits,
    detectable_rise,
    detectable_rise_paired,
    failures_allowed,
    limits_of,
    power_of,
    power_of_paired,
    rule_of_three,
    trials_for_width,
    width_of,
)
from simgap.statistics.proportions import Estimate, clopper_pearson, clopper_pearson_bound, jeffreys, wilson
from simgap.statistics.quantities import Quantity
from simgap.statistics.racing import Entrant, PairClaim, Race, eliminations, race, select_against_report, selection_optimism
from simgap.statistics.rejects import BudgetedRace, most_missed, race_on_budget, rejects_schedule
from simgap.statistics.score import miettinen_nurminen, non_inferiority, score_statistic
from simgap.statistics.screening import (
    ScreenCourse,
    ScreenPlan,
    ScreenRun,
    capped_screen,
    run_screen,
    screen_course,
    sequential_screen_verdict,
    uncapped_screen,
)
from simgap.statistics.sequential import (
    ComparisonVerdict,
    SequentialComparison,
    anytime_difference,
    compare_paired,
    compare_scores,
    compare_unpaired,
    ordered_pairs,
)
from simgap.statistics.sim_plus_real import SimPlusReal, combine, prediction_powered, suresim, two_stage
from simgap.statistics.strata import average_difference, average_rate, average_rate_exact
from simgap.statistics.tally import Tally, tally

__all__ = [
    "Agreement",
    "BudgetedRace",
    "CappedComparison",
    "CappedDesign",
    "ComparisonVerdict",
    "ConfidenceSequence",
    "Course",
    "DesignEffect",
    "Difference",
    "DipTest",
    "Entrant",
    "Estimate",
    "ExactTest",
    "Limits",
    "PairClaim",
    "PairCounts",
    "PairedDifference",
    "PolicyPair",
    "Quantity",
    "Race",
    "ScreenCourse",
    "ScreenPlan",
    "ScreenRun",
    "ScreenVerdict",
    "SequentialComparison",
    "SequentialTest",
    "SimPlusReal",
    "Tally",
    "agreement_by_condition",
    "agreement_of_counts",
    "anytime_difference",
    "average_difference",
    "average_rate",
    "average_rate_exact",
    "benjamini_hochberg",
    "beta_mixture",
    "betting_interval",
    "betting_sequence",
    "bonferroni",
    "capped_design",
    "capped_screen",
    "class_entropy",
    "clopper_pearson",
    "clopper_pearson_bound",
    "cluster_bootstrap",
    "clustered_rate",
    "combine",
    "compare_capped",
    "compare_paired",
    "compare_scores",
    "compare_unpaired",
    "course_of",
    "design_effect",
    "detectable_rise",
    "detectable_rise_paired",
    "dip_statistic",
    "dip_test",
    "eliminations",
    "exact_independence",
    "failures_allowed",
    "holm",
    "jeffreys",
    "leave_one_out",
    "letters",
    "limits_of",
    "log_e_above",
    "log_e_below",
    "log_e_blocks",
    "log_e_paired",
    "log_mean",
    "mcnemar",
    "mcnemar_interval",
    "miettinen_nurminen",
    "mmrv",
    "most_missed",
    "newcombe_difference",
    "newcombe_paired",
    "non_inferiority",
    "order_test",
    "ordered_pairs",
    "pair_outcomes",
    "paired_difference",
    "pearson",
    "perfect_run_for",
    "power_of",
    "power_of_paired",
    "prediction_powered",
    "race",
    "race_on_budget",
    "rejects_schedule",
    "rule_of_three",
    "run_screen",
    "score_statistic",
    "screen_course",
    "screen_verdict",
    "select_against_report",
    "selection_optimism",
    "sequential_screen_verdict",
    "sequential_test",
    "spearman",
    "suresim",
    "tally",
    "tango_interval",
    "threshold_test",
    "trials_for_width",
    "trials_needed",
    "two_stage",
    "uncapped_screen",
    "visible_difference",
    "what_n_cannot_show",
    "width_of",
    "wilson",
]

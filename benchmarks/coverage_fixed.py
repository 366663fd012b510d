"""Rows of the coverage table that are enumerated: one rate, two rates, pairs, and plans that stop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from coverage_rows import (
    RATES,
    Effort,
    Measured,
    Row,
    ever,
    one_rate,
    pairs_interval,
    pairs_test,
    two_rate_test,
    two_rates,
)

from simgap.pixelfloor.probe import _median_interval
from simgap.statistics import (
    beta_mixture,
    capped_design,
    capped_screen,
    clopper_pearson,
    clopper_pearson_bound,
    course_of,
    exact_independence,
    jeffreys,
    log_e_above,
    log_e_below,
    mcnemar,
    mcnemar_interval,
    miettinen_nurminen,
    newcombe_difference,
    newcombe_paired,
    non_inferiority,
    rule_of_three,
    screen_course,
    screen_verdict,
    tango_interval,
    uncapped_screen,
    wilson,
)
from simgap.statistics.planning import ScreenVerdict

SIZES = (5, 10, 20, 60, 100)
ARMS = ((10, 10), (5, 5), (20, 20), (10, 40))
NEEDED = np.log(20)


def _mixture_at_every_look(effort: Effort, rng: np.random.Generator) -> Iterator[Measured]:
    for p in effort.some(RATES[:-1]):
        n_max = 20 if effort.is_small else 100
        ends = {
            n: np.array([(e.low, e.high) for e in (beta_mixture(k, n) for k in range(n + 1))])
            for n in range(1, n_max + 1)
        }
        missed = ever(lambda k, n, ends=ends, p=p: (ends[n][k, 0] > p) | (ends[n][k, 1] < p), p, n_max)
        yield Measured(truth=f"rate {p:g}, {n_max} looks", share=1 - missed)


def _verdict_at_the_bar(effort: Effort, rng: np.random.Generator) -> Iterator[Measured]:
    from scipy.stats import binom

    for n in effort.some(SIZES):
        said = [screen_verdict(k, n, broken_below=0.5, worthy_above=0.7) for k in range(n + 1)]
        for rate, wrong in ((0.5, ScreenVerdict.BROKEN), (0.7 - 1e-9, ScreenVerdict.WORTH_HARDWARE_TIME)):
            yield Measured(
                truth=f"at the bar of {wrong}, n = {n}",
                share=float(binom.pmf(np.arange(n + 1), n, rate) @ [v is wrong for v in said]),
            )


def _plans(make: Any) -> Any:
    def measure(effort: Effort, rng: np.random.Generator) -> Iterator[Measured]:
        for n_max in (20,) if effort.is_small else (20, 100, 400):
            for low, high in ((0.5, 0.7), (0.05, 0.95), (0.9, 0.99)):
                plan = make(n_max, broken_below=low, worthy_above=high)
                yield Measured(
                    truth=f"at the lower bar {low:g}, cap {n_max}",
                    share=screen_course(plan, low).chance_broken,
                )
                yield Measured(
                    truth=f"at the upper bar {high:g}, cap {n_max}",
                    share=screen_course(plan, high).chance_worthy,
                )

    return measure


def _threshold(effort: Effort, rng: np.random.Generator) -> Iterator[Measured]:
    n_max = 30 if effort.is_small else 300
    for t in (0.05, 0.5, 0.9, 0.99):
        yield Measured(
            truth=f"at {t:g} from above, {n_max} looks",
            share=ever(lambda k, n, t=t: log_e_below(k, n, t) >= NEEDED, t, n_max),
        )
        yield Measured(
            truth=f"at {t:g} from below, {n_max} looks",
            share=ever(lambda k, n, t=t: log_e_above(k, n, t) >= NEEDED, t, n_max),
        )


def _designs(effort: Effort, rng: np.random.Generator) -> Iterator[Measured]:
    for n_max in (10,) if effort.is_small else (10, 50):
        for p in RATES[:-1]:
            course = course_of(capped_design(n_max), p, p)
            yield Measured(
                truth=f"both {p:g}, at most {n_max} pairs",
                share=course.chance_new_better + course.chance_old_better,
            )
        for discordant in (0.02, 0.2, 1.0):
            course = course_of(capped_design(n_max, paired=True), 0.5, 0.5, discordant)
            yield Measured(
                truth=f"{discordant:g} discordant, at most {n_max} pairs",
                share=course.chance_new_better + course.chance_old_better,
            )


def _perfect_runs(effort: Effort, rng: np.random.Generator) -> Iterator[Measured]:
    for n in (1, 5, 20, 59):
        low = rule_of_three(n).low or 0.0
        yield Measured(truth=f"just below the bound, n = {n}", share=(low * (1 - 1e-9)) ** n)


def _medians(effort: Effort, rng: np.random.Generator) -> Iterator[Measured]:
    from scipy.stats import binom

    for n in (6, 7, 10, 20, 60, 300):
        found = _median_interval(np.arange(n, dtype=float))
        if found is not None:
            # order statistics: the median is missed when too few or too many values lie below it
            below, above = int(found[0]), int(found[1])
            yield Measured(
                truth=f"any law, n = {n}", share=float(binom.cdf(above, n, 0.5) - binom.cdf(below, n, 0.5))
            )


def _newcombe_paired(effort: Effort, rng: np.random.Generator) -> Iterator[Measured]:
    from math import lgamma

    n = 6 if effort.is_small else 15
    tables = [
        (a, b, c, n - a - b - c) for a in range(n + 1) for b in range(n + 1 - a) for c in range(n + 1 - a - b)
    ]
    ends = [(f.low, f.high) for f in (newcombe_paired(*t) for t in tables)]
    counts = np.array(tables)
    ways = np.array([lgamma(n + 1) - sum(lgamma(k + 1) for k in t) for t in tables])
    for truth in (
        (0.9, 0.05, 0.05, 0.0),
        (0.25, 0.25, 0.25, 0.25),
        (0.01, 0.01, 0.01, 0.97),
        (0.4, 0.3, 0.1, 0.2),
        (0.99, 0.01, 0.0, 0.0),
        (0.0, 0.9, 0.1, 0.0),
    ):
        with np.errstate(divide="ignore", invalid="ignore"):
            law = np.exp(ways + np.where(counts > 0, counts * np.log(np.array(truth)), 0.0).sum(axis=1))
        gap = truth[1] - truth[2]
        inside = np.array([low - 1e-9 <= gap <= high + 1e-9 for low, high in ends])
        yield Measured(truth=f"both, new, old, neither {truth}, {n} pairs", share=float(law @ inside))


def _exact(method: str) -> Any:
    return lambda a, n, b, m: exact_independence(a, n, b, m, method).p_value


ROWS = (
    Row(
        names=("wilson", "select_against_report"),
        what="one rate, to show",
        promise=0.95,
        is_interval=True,
        measure=one_rate(wilson, SIZES),
        documented=0.83,
    ),
    Row(
        names=("jeffreys",),
        what="one rate, to show",
        promise=0.95,
        is_interval=True,
        measure=one_rate(jeffreys, SIZES),
        documented=0.87,
    ),
    Row(
        names=("clopper_pearson",),
        what="one rate, to decide",
        promise=0.95,
        is_interval=True,
        measure=one_rate(clopper_pearson, SIZES),
    ),
    Row(
        names=("clopper_pearson_bound",),
        what="at least, at most",
        promise=0.95,
        is_interval=True,
        measure=one_rate(clopper_pearson_bound, SIZES),
    ),
    Row(
        names=("rule_of_three",),
        what="n of n below the bound",
        promise=0.05,
        is_interval=False,
        measure=_perfect_runs,
    ),
    Row(
        names=("beta_mixture",),
        what="one rate, all looks",
        promise=0.95,
        is_interval=True,
        measure=_mixture_at_every_look,
    ),
    Row(
        names=("screen_verdict", "simgap.rollouts.screen"),
        what="either wrong verdict, fixed n",
        promise=0.025,
        is_interval=False,
        measure=_verdict_at_the_bar,
    ),
    Row(
        names=("capped_screen", "run_screen"),
        what="either wrong verdict, cap",
        promise=0.025,
        is_interval=False,
        measure=_plans(capped_screen),
    ),
    Row(
        names=("uncapped_screen", "sequential_screen_verdict", "simgap.rollouts.looks"),
        what="either wrong verdict, all looks",
        promise=0.025,
        is_interval=False,
        measure=_plans(uncapped_screen),
    ),
    Row(
        names=("threshold_test", "log_e_below", "log_e_above", "log_e_paired", "sequential_test"),
        what="a rate against a threshold, all looks",
        promise=0.05,
        is_interval=False,
        measure=_threshold,
    ),
    Row(
        names=("newcombe_difference",),
        what="two rates",
        promise=0.95,
        is_interval=True,
        measure=two_rates(newcombe_difference, ARMS),
        documented=0.90,
    ),
    Row(
        names=("miettinen_nurminen",),
        what="two rates",
        promise=0.95,
        is_interval=True,
        measure=two_rates(miettinen_nurminen, ARMS),
        documented=0.90,
    ),
    Row(
        names=("non_inferiority",),
        what="not worse by .1",
        promise=0.05,
        is_interval=False,
        measure=two_rate_test(
            lambda a, n, b, m: non_inferiority(a, n, b, m, margin=0.1).p_value or 0.0, ARMS, 0.05, margin=0.1
        ),
        documented=0.065,
    ),
    Row(
        names=("exact_independence",),
        what="Fisher",
        promise=0.05,
        is_interval=False,
        measure=two_rate_test(_exact("fisher"), ARMS[:3], 0.05),
    ),
    Row(
        names=("exact_independence",),
        what="Boschloo",
        promise=0.05,
        is_interval=False,
        measure=two_rate_test(_exact("boschloo"), ARMS[:2], 0.05),
    ),
    Row(
        names=("exact_independence",),
        what="Barnard",
        promise=0.05,
        is_interval=False,
        measure=two_rate_test(_exact("barnard"), ARMS[:2], 0.05),
    ),
    Row(
        names=("paired_difference", "mcnemar_interval"),
        what="pairs, to decide",
        promise=0.95,
        is_interval=True,
        measure=pairs_interval(
            lambda b, c, n: mcnemar_interval(b, c, n, mcnemar(b, c).p_value or 1.0), (10, 20, 40)
        ),
    ),
    Row(
        names=("tango_interval",),
        what="pairs",
        promise=0.95,
        is_interval=True,
        measure=pairs_interval(tango_interval, (10, 20, 40)),
        documented=0.93,
    ),
    Row(
        names=("newcombe_paired",),
        what="pairs, to show",
        promise=0.95,
        is_interval=True,
        measure=_newcombe_paired,
    ),
    Row(
        names=("mcnemar", "paired_difference"),
        what="exact",
        promise=0.05,
        is_interval=False,
        measure=pairs_test(lambda b, c: mcnemar(b, c).p_value or 0.0, (10, 20, 40), 0.05),
    ),
    Row(
        names=("mcnemar",),
        what="mid-p",
        promise=0.05,
        is_interval=False,
        measure=pairs_test(lambda b, c: mcnemar(b, c, mid_p=True).p_value or 0.0, (10, 20, 40), 0.05),
    ),
    Row(
        names=("capped_design", "compare_capped"),
        what="any verdict on equal arms, cap",
        promise=0.05,
        is_interval=False,
        measure=_designs,
    ),
    Row(
        names=("simgap.pixelfloor.probe",),
        what="median error of the pixel probe",
        promise=0.95,
        is_interval=True,
        measure=_medians,
    ),
)

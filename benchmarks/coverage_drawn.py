"""Rows of the coverage table that are simulated: scores, sequences, clusters, races, agreement, modes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from coverage_rows import Effort, Measured, Row, drawn, ends_of, holds_inside

from simgap.statistics import (
    PolicyPair,
    agreement_by_condition,
    agreement_of_counts,
    anytime_difference,
    average_difference,
    average_rate,
    average_rate_exact,
    benjamini_hochberg,
    betting_interval,
    betting_sequence,
    bonferroni,
    class_entropy,
    cluster_bootstrap,
    clustered_rate,
    compare_paired,
    compare_scores,
    compare_unpaired,
    dip_test,
    eliminations,
    holm,
    log_e_blocks,
    log_mean,
    most_missed,
    order_test,
    prediction_powered,
    race_on_budget,
    selection_optimism,
    suresim,
    two_stage,
)
from simgap.statistics.agreement import Agreement
from simgap.statistics.correlation import mmrv_rows, pearson_rows, spearman_rows
from simgap.types import Outcome

Rng = np.random.Generator
Measure = Callable[[Effort, Rng], Iterator[Measured]]
GOOD, BAD = Outcome.success(), Outcome.failure("missed")
SCORES: tuple[tuple[str, float, Callable[[Rng, int], Any]], ...] = (
    ("0 or 1 at .5", 0.5, lambda rng, n: rng.binomial(1, 0.5, n)),
    ("0 or 1 at .99", 0.99, lambda rng, n: rng.binomial(1, 0.99, n)),
    ("0 or 1 at .05", 0.05, lambda rng, n: rng.binomial(1, 0.05, n)),
    ("Beta(.5, .5)", 0.5, lambda rng, n: rng.beta(0.5, 0.5, n)),
    ("Beta(9, 1)", 0.9, lambda rng, n: rng.beta(9, 1, n)),
)


def _scores(make: Callable[[Any], bool], *, cost: float, sizes: tuple[int, ...] = (5, 20, 60)) -> Measure:
    def measure(effort: Effort, rng: Rng) -> Iterator[Measured]:
        for n in effort.some(sizes):
            for name, mean, draw in effort.some(SCORES):
                yield drawn(
                    f"{name}, n = {n}",
                    effort.of(cost),
                    lambda n=n, mean=mean, draw=draw: make((draw(rng, n), mean)),
                )

    return measure


def _sequence_holds(case: Any) -> bool:
    sequence = betting_sequence(case[0], running=False)
    return bool(np.all((sequence.lows <= case[1] + 1e-9) & (sequence.highs >= case[1] - 1e-9)))


def _pairs(make: Callable[[Any, Any, float], bool], *, cost: float, shared: bool) -> Measure:
    """Two arms: equal at several rates, and for intervals .9 against .6; ``shared`` draws both from one uniform number."""

    def measure(effort: Effort, rng: Rng) -> Iterator[Measured]:
        for new, old in effort.some(((0.5, 0.5), (0.05, 0.05), (0.99, 0.99), (0.2, 0.2))):

            def once(new: float = new, old: float = old) -> bool:
                u = rng.random(60)
                return make(u < new, ((1 - u if shared else rng.random(60)) < old), new - old)

            yield drawn(f"{new:g} and {old:g}, 60 looks", effort.of(cost), once)

    return measure


def _blocks_reject(new: Any, old: Any, gap: float) -> bool:
    up = log_mean(*log_e_blocks(new, old)[:1])
    return bool(up.max() >= np.log(20))


def _tasks(
    make: Callable[[list[tuple[int, int]]], Any], *, sizes: tuple[tuple[int, ...], ...], cost: float
) -> Measure:
    def measure(effort: Effort, rng: Rng) -> Iterator[Measured]:
        for n in effort.some(sizes):
            for name, rates in (
                ("all .99", [0.99]),
                ("all .95", [0.95]),
                ("all .5", [0.5]),
                (".2 to 1", np.linspace(0.2, 1.0, len(n))),
            ):
                p = np.broadcast_to(rates, (len(n),))

                def once(p: Any = p, n: Any = n) -> bool:
                    return holds_inside(
                        ends_of(make(list(zip(rng.binomial(n, p).tolist(), n, strict=True)))), float(p.mean())
                    )

                yield drawn(f"{name}, {len(n)} tasks of {sorted(set(n))}", effort.of(cost), once)

    return measure


def _task_differences(effort: Effort, rng: Rng) -> Iterator[Measured]:
    for tasks, n in effort.some(((10, 10), (3, 5), (3, 40))):
        for new, old in effort.some(((0.99, 0.99), (0.95, 0.9), (0.5, 0.5), (1.0, 0.95))):

            def once(tasks: int = tasks, n: int = n, new: float = new, old: float = old) -> bool:
                k1, k2 = rng.binomial(n, new, tasks), rng.binomial(n, old, tasks)
                found = average_difference([(int(k), n) for k in k1], [(int(k), n) for k in k2])
                return holds_inside(ends_of(found), new - old)

            yield drawn(f"{new:g} and {old:g}, {tasks} tasks of {n}", effort.of(8), once)


def _clusters(effort: Effort, rng: Rng) -> Iterator[Measured]:
    for clusters, size in effort.some(((8, 10), (20, 5), (40, 10))):
        for rate, alike in ((0.5, 0.5), (0.9, 0.5), (0.99, 0.2), (0.5, 0.0)):

            def once(
                clusters: int = clusters, size: int = size, rate: float = rate, alike: float = alike
            ) -> bool:
                p = (
                    rng.beta(rate * (1 / alike - 1), (1 - rate) * (1 / alike - 1), clusters)
                    if alike
                    else np.full(clusters, rate)
                )
                return holds_inside(ends_of(clustered_rate(rng.binomial(size, p), [size] * clusters)), rate)

            yield drawn(
                f"rate {rate:g}, correlation {alike:g}, {clusters} clusters of {size}", effort.of(2), once
            )


def _bootstrap(effort: Effort, rng: Rng) -> Iterator[Measured]:
    for clusters in effort.some((5, 10, 20, 40)):

        def once(clusters: int = clusters) -> bool:
            found = cluster_bootstrap(
                lambda x: x.mean(axis=1), rng.exponential(size=clusters), name="mean", rng=rng, draws=300
            )
            return holds_inside(ends_of(found), 1.0)

        yield drawn(f"mean of an exponential, {clusters} clusters", effort.of(2), once)


def _many(adjust: Callable[[Any], list[float]], *, of_claims: bool = False) -> Measure:
    """Ten tests, none or half of which are true nulls, with correlated statistics."""
    from scipy.stats import norm

    def measure(effort: Effort, rng: Rng) -> Iterator[Measured]:
        for nulls, alike in effort.some(((10, 0.0), (10, 0.9), (5, 0.0), (1, 0.5))):
            wrong = []
            for _ in range(effort.of(1)):
                z = (
                    np.sqrt(alike) * rng.normal()
                    + np.sqrt(1 - alike) * rng.normal(size=10)
                    + np.where(np.arange(10) < nulls, 0.0, 3.0)
                )
                claimed = np.array(adjust(norm.sf(z))) <= 0.05
                wrong.append(
                    claimed[:nulls].sum() / max(claimed.sum(), 1)
                    if of_claims
                    else float(claimed[:nulls].any())
                )
            yield Measured(
                truth=f"{nulls} of 10 true, correlation {alike:g}",
                share=float(np.mean(wrong)),
                draws=len(wrong),
            )

    return measure


def _eliminations(effort: Effort, rng: Rng) -> Iterator[Measured]:
    for name, rates in effort.some(
        (("five at .5", [0.5] * 5), ("five at .95", [0.95] * 5), (".8, .8, .3", [0.8, 0.8, 0.3]))
    ):
        runs = max(60, effort.of(2))
        gone = eliminations(rng.random((runs, len(rates), 100)) < np.array(rates)[:, None])
        yield Measured(truth=f"{name}, 100 seeds", share=float(np.isfinite(gone[:, 0]).mean()), draws=runs)


def _raced(rng: Rng, rates: tuple[float, ...]) -> tuple[Any, float]:
    def run(look: int, names: Any) -> Mapping[str, Mapping[int, Outcome]]:
        return {
            name: {16 * look + s: GOOD if rng.random() < rates[int(name)] else BAD for s in range(16)}
            for name in names
        }

    found = race_on_budget([str(i) for i in range(len(rates))], [16] * 4, run)
    return found, max(rates) - rates[int(found.winner)]


def _missed(effort: Effort, rng: Rng) -> Iterator[Measured]:
    for rates in effort.some(((0.9, 0.8, 0.7, 0.6), (0.5, 0.5, 0.5), (0.99, 0.95))):

        def once(rates: tuple[float, ...] = rates) -> bool:
            found, regret = _raced(rng, rates)
            return (most_missed(found.outcomes, found.winner) or 0.0) >= regret

        yield drawn(f"rates {rates}, 4 looks of 16", effort.of(20), once)


def _optimism(effort: Effort, rng: Rng) -> Iterator[Measured]:
    for n, rates in effort.some(
        ((20, (0.5,) * 5), (20, (0.9, 0.8, 0.7, 0.6)), (60, (0.95,) * 5), (10, (0.99,) * 3))
    ):

        def once(n: int = n, rates: tuple[float, ...] = rates) -> bool:
            k = rng.binomial(n, rates)
            best = int(rng.choice(np.flatnonzero(k == k.max())))
            found = selection_optimism(k.tolist(), n, rng=rng, draws=400)
            return holds_inside(ends_of(found), k[best] / n - rates[best])

        yield drawn(f"rates {rates}, n = {n}", effort.of(2), once)


def _sim_plus_real(make: Callable[[Any, Any, Any, Rng], Any], *, cost: float) -> Measure:
    def measure(effort: Effort, rng: Rng) -> Iterator[Measured]:
        for n in effort.some((10, 50, 100)):
            for rate, alike in effort.some(((0.8, 0.8), (0.95, 0.5), (0.5, 0.0))):

                def once(n: int = n, rate: float = rate, alike: float = alike) -> bool:
                    u = rng.random(n + 200)
                    f = u < rate
                    y = (np.where(rng.random(n) < alike, u[:n], rng.random(n)) < rate).astype(float)
                    return holds_inside(ends_of(make(y, f[:n].astype(float), f[n:].astype(float), rng)), rate)

                yield drawn(
                    f"rate {rate:g}, correlation {alike:g}, {n} pairs, 200 extra", effort.of(cost), once
                )

    return measure


def _entropy(effort: Effort, rng: Rng) -> Iterator[Measured]:
    cases = (
        (0.5, 0.5),
        (0.9, 0.1),
        (1.0, 0.0),
        (0.99, 0.01),
        (1 / 3,) * 3,
        (0.8, 0.15, 0.05),
        (0.5, 0.5, 0.0),
        (0.25,) * 4,
    )
    for shares in effort.some(cases):
        for n in effort.some((5, 20, 60)):
            true = -sum(s * np.log(s) for s in shares if s) / np.log(len(shares))

            def once(shares: Any = shares, n: int = n, true: float = true) -> bool:
                return holds_inside(
                    ends_of(
                        class_entropy(rng.multinomial(n, shares).tolist(), len(shares), rng=rng, draws=300)
                    ),
                    true,
                )

            yield drawn(f"shares {tuple(round(s, 2) for s in shares)}, n = {n}", effort.of(8), once)


def _dip(effort: Effort, rng: Rng) -> Iterator[Measured]:
    for name, draw in effort.some(
        (("uniform", rng.random), ("normal", rng.standard_normal), ("exponential", rng.standard_exponential))
    ):
        for n in effort.some((10, 30)):
            yield drawn(
                f"{name}, n = {n}",
                effort.of(20),
                lambda draw=draw, n=n: (dip_test(draw(n), rng=rng, draws=99).test.p_value or 0.0) <= 0.05,
            )


def _orders(effort: Effort, rng: Rng) -> Iterator[Measured]:
    for count in effort.some((3, 5, 7)):
        yield drawn(
            f"{count} policies, unrelated",
            effort.of(5),
            lambda count=count: (
                (order_test(real=rng.random(count), sim=rng.random(count)).p_value or 1.0) <= 0.05
            ),
        )


SPREAD, HIGH = np.array([0.1, 0.3, 0.45, 0.6, 0.75, 0.9]), np.array([0.8, 0.85, 0.9, 0.95, 0.97, 0.99])
AGREEMENTS: tuple[tuple[str, Any, Any], ...] = (
    ("perfect, spread", SPREAD, SPREAD),
    ("perfect, .8 to .99", HIGH, HIGH),
    ("perfect, .5 to .6", np.linspace(0.5, 0.6, 6), np.linspace(0.5, 0.6, 6)),
    ("perfect, three policies", np.array([0.3, 0.6, 0.9]), np.array([0.3, 0.6, 0.9])),
    ("one pair swapped", SPREAD, SPREAD[[0, 1, 5, 3, 4, 2]]),
    ("unrelated", SPREAD, np.array([0.5, 0.9, 0.3, 0.7, 0.2, 0.6])),
    ("reversed", SPREAD, SPREAD[::-1]),
)


def _truths(real: Any, sim: Any) -> dict[str, float]:
    return {
        "pearson": float(pearson_rows(real, sim)),
        "spearman": float(spearman_rows(real, sim)),
        "mmrv": float(mmrv_rows(real, sim)),
        "bias": float((sim - real).mean()),
    }


def _regret(real: Any, seen_sim: Any) -> float:
    return float(real.max() - real[seen_sim == seen_sim.max()].mean())


def _counted(real: Any, sim: Any, n: int, rng: Rng) -> tuple[Agreement, float]:
    k_real, k_sim = rng.binomial(n, real).tolist(), rng.binomial(n, sim).tolist()
    pairs = [
        PolicyPair(name=str(i), real_successes=a, real_n=n, sim_successes=b, sim_n=n)
        for i, (a, b) in enumerate(zip(k_real, k_sim, strict=True))
    ]
    return agreement_of_counts(pairs, rng=rng), _regret(real, np.array(k_sim))


def _on_conditions(real: Any, sim: Any, n: int, rng: Rng) -> tuple[Agreement, float]:
    """Half of a condition's hardness is common to all policies and both sides."""
    sides, common = [], rng.random(n)
    for rates in (real, sim):
        u = np.where(rng.random((len(rates), n)) < 0.5, common, rng.random((len(rates), n)))
        sides.append(u < rates[:, None])
    tables = [
        {str(i): {c: GOOD if won else BAD for c, won in enumerate(row)} for i, row in enumerate(side)}
        for side in sides
    ]
    return agreement_by_condition(real=tables[0], sim=tables[1], rng=rng), _regret(
        real, sides[1].mean(axis=1)
    )


@lru_cache(maxsize=8)
def _agreements(
    make: Any, sizes: tuple[int, ...], draws: int, is_small: bool, seed: int
) -> tuple[tuple[str, dict[str, float], int], ...]:
    """Simulate once for all five quantities."""
    rng, found = np.random.default_rng(seed), []
    for name, real, sim in AGREEMENTS[:1] if is_small else AGREEMENTS:
        for n in sizes[:1] if is_small else sizes:
            true, kept = (
                _truths(real, sim),
                dict.fromkeys(("pearson", "spearman", "mmrv", "bias", "regret"), 0),
            )
            for _ in range(draws):
                agreement, regret = make(real, sim, n, rng)
                for key in kept:
                    kept[key] += holds_inside(
                        ends_of(getattr(agreement, key)), regret if key == "regret" else true[key]
                    )
            found.append((f"{name}, n = {n}", {key: k / draws for key, k in kept.items()}, draws))
    return tuple(found)


def _agreement(make: Any, sizes: tuple[int, ...], key: str) -> Measure:
    def measure(effort: Effort, rng: Rng) -> Iterator[Measured]:
        for truth, shares, draws in _agreements(
            make, sizes, 4 if effort.is_small else max(40, effort.draws // 20), effort.is_small, 11
        ):
            yield Measured(truth=truth, share=shares[key], draws=draws)

    return measure


def _interval(names: tuple[str, ...], what: str, measure: Measure, documented: float | None = None) -> Row:
    return Row(names=names, what=what, promise=0.95, is_interval=True, measure=measure, documented=documented)


def _test(names: tuple[str, ...], what: str, measure: Measure, documented: float | None = None) -> Row:
    return Row(
        names=names, what=what, promise=0.05, is_interval=False, measure=measure, documented=documented
    )


def _average(tasks: list[tuple[int, int]]) -> Any:
    return average_rate(tasks)


def _rejects(compare: Any) -> Callable[[Any, Any, float], bool]:
    return lambda new, old, gap: compare(new, old).stopped_at is not None


TASKS = ((10,) * 10, (5,) * 3, (20,) * 5)
MIXED = ((10, 40, 20, 15), (5, 60))
ROWS: tuple[Row, ...] = (
    _interval(
        ("betting_interval",),
        "mean score, all looks",
        _scores(lambda c: holds_inside(ends_of(betting_interval(c[0])), c[1]), cost=10),
    ),
    _interval(
        ("betting_interval",),
        "mean score, fixed n",
        _scores(lambda c: holds_inside(ends_of(betting_interval(c[0], fixed_n=True)), c[1]), cost=10),
    ),
    _interval(("betting_sequence",), "mean score, every look", _scores(_sequence_holds, cost=4)),
    _interval(
        ("anytime_difference",),
        "two arms",
        _pairs(lambda a, b, g: holds_inside(ends_of(anytime_difference(a, b)), g), cost=10, shared=True),
    ),
    _test(
        ("compare_paired",), "equal arms, 60 looks", _pairs(_rejects(compare_paired), cost=10, shared=True)
    ),
    _test(
        ("compare_unpaired",),
        "equal arms, 60 looks",
        _pairs(_rejects(compare_unpaired), cost=10, shared=False),
    ),
    _test(
        ("compare_scores",), "equal arms, 60 looks", _pairs(_rejects(compare_scores), cost=10, shared=True)
    ),
    _test(("log_e_blocks", "log_mean"), "equal arms, 60 looks", _pairs(_blocks_reject, cost=1, shared=False)),
    _interval(
        ("average_rate",),
        "average over tasks, to show",
        _tasks(_average, sizes=(*TASKS, *MIXED), cost=1),
        0.85,
    ),
    _interval(
        ("average_rate_exact",),
        "average over tasks, to decide",
        _tasks(average_rate_exact, sizes=(*TASKS, *MIXED), cost=2),
    ),
    _interval(("average_difference",), "average over tasks, two arms", _task_differences),
    _interval(("clustered_rate",), "trials in clusters", _clusters, 0.90),
    _interval(("cluster_bootstrap",), "any statistic of clusters", _bootstrap, 0.80),
    _test(("holm", "letters"), "any false claim", _many(holm)),
    _test(("bonferroni",), "any false claim", _many(bonferroni)),
    _test(("benjamini_hochberg",), "share of false claims", _many(benjamini_hochberg, of_claims=True)),
    _test(("eliminations", "race", "race_on_budget"), "a best policy is dropped", _eliminations),
    _interval(("most_missed",), "what the best is better than the winner", _missed),
    _interval(("selection_optimism",), "excess of one selection", _optimism, 0.80),
    _interval(
        ("suresim", "combine"),
        "a few real, many simulated",
        _sim_plus_real(lambda y, f, e, rng: suresim(y, f, e, rng=rng), cost=20),
    ),
    _interval(
        ("two_stage",),
        "a few real, many simulated",
        _sim_plus_real(lambda y, f, e, rng: two_stage(y, f, e), cost=20),
    ),
    _interval(
        ("prediction_powered",),
        "a few real, many simulated",
        _sim_plus_real(lambda y, f, e, rng: prediction_powered(y, f, e), cost=1),
        0.86,
    ),
    _interval(("class_entropy",), "use of modes", _entropy),
    _test(("dip_test",), "one mode", _dip),
    _test(("order_test",), "unrelated orders", _orders),
    *(
        _interval(("agreement_of_counts",), key, _agreement(_counted, (20, 75), key))
        for key in ("bias", "pearson", "spearman", "mmrv", "regret")
    ),
    *(
        _interval(("agreement_by_condition",), key, _agreement(_on_conditions, (40, 12), key))
        for key in ("bias", "pearson", "spearman", "mmrv", "regret")
    ),
)

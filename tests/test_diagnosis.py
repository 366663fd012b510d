"""The decision: the first broken check in the order of diagnosis, the policy last, and "cannot tell" when something cannot."""

from __future__ import annotations

import itertools
import json
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simgap import causes
from simgap.causes import Cause
from simgap.checks.evaluation.trial_sets import check_evaluation
from simgap.checks.policy.coverage import check_policy
from simgap.checks.replay.open_loop import check_replay
from simgap.diagnosis import Diagnosis, decide
from simgap.envs import make_env
from simgap.envs.factors import FactorRanges
from simgap.findings import CheckResult, Family, Verdict
from simgap.loop.words import next_command
from simgap.provenance import canonical_json
from simgap.statistics import wilson
from simgap.trials.batch import TrialResult
from simgap.types import Outcome

ORDER = ("evaluation", "data", "pixels", "deployment", "replay", "execution", "plant", "policy")
CAUSES = {
    Family.EVALUATION: causes.EVALUATION,
    Family.DATA: causes.DATA,
    Family.PIXELS: causes.CAMERA_SHIFT,
    Family.DEPLOYMENT: causes.ACTION_CONVENTION,
    Family.REPLAY: causes.ACTION_SIGN,
    Family.EXECUTION: causes.EXECUTION,
    Family.PLANT: causes.ACTION_LATENCY,
    Family.POLICY: causes.NARROW_DATA,
}


def check(
    family: Family, verdict: Verdict = Verdict.OK, *, cause: Cause | None = None, more: int | None = None
) -> CheckResult:
    blamed = (cause or CAUSES[family]) if verdict is Verdict.BROKEN else causes.NONE
    return CheckResult(
        family=family,
        name=f"{family} check",
        verdict=verdict,
        sentence=f"{family} is {verdict}.",
        cause=blamed,
        more_trials=more,
        numbers={"of": str(family)},
    )


def checks(**verdicts: Verdict) -> list[CheckResult]:
    return [check(f, verdicts.get(str(f), Verdict.OK)) for f in Family]


verdicts = st.lists(st.sampled_from(list(Verdict)), min_size=len(ORDER), max_size=len(ORDER))


def test_the_order_of_diagnosis_is_the_one_of_the_design() -> None:
    assert tuple(map(str, Family)) == ORDER


@pytest.mark.parametrize(("early", "late"), list(itertools.combinations(Family, 2)))
def test_of_two_broken_families_the_earlier_is_named_in_whatever_order_they_come(
    early: Family, late: Family
) -> None:
    broken = checks(**{str(early): Verdict.BROKEN, str(late): Verdict.BROKEN})
    is_beside = early is Family.EVALUATION and late is not Family.POLICY
    named = late if is_beside else early
    for order in (broken, broken[::-1]):
        found = decide(order)
        assert (found.family, found.cause) == (named, CAUSES[named])
        assert found.parameters == {"of": str(named)}
        assert found.remedy == CAUSES[named].remedy
        assert ("Beside it: evaluation is broken." in found.sentence) is is_beside
        assert [c.family for c in found.checks] == list(Family)


@given(verdicts, st.integers(0, 10**6))
def test_the_first_broken_check_decides_and_without_one_the_first_that_cannot_tell(
    given_verdicts: list[Verdict], seed: int
) -> None:
    results = [check(f, v, more=3) for f, v in zip(Family, given_verdicts, strict=True)]
    random.Random(seed).shuffle(results)
    found = decide(results)
    if Verdict.BROKEN in given_verdicts:
        broken = [f for f, v in zip(Family, given_verdicts, strict=True) if v is Verdict.BROKEN]
        if Family.EVALUATION in broken:  # it takes the policy's judgement away, and stands beside any other
            broken = [f for f in broken if f not in (Family.EVALUATION, Family.POLICY)] or broken
        first = broken[0]
        assert (found.cause, found.family, found.more_trials) == (CAUSES[first], first, None)
    elif Verdict.CANNOT_TELL in given_verdicts:
        first = list(Family)[given_verdicts.index(Verdict.CANNOT_TELL)]
        assert (found.cause, found.family, found.more_trials) == (causes.UNKNOWN, None, 3)
        assert found.sentence.startswith("Cannot tell yet.")
        assert f"{first} is cannot tell" in found.sentence
    else:
        assert (found.cause, found.family) == (causes.NONE, None)


def test_the_trials_asked_for_are_those_of_the_check_that_is_quoted() -> None:
    found = decide(
        [
            check(Family.REPLAY, Verdict.CANNOT_TELL, more=2),
            check(Family.POLICY, Verdict.CANNOT_TELL, more=80),
        ]
    )
    assert found.more_trials == 2
    assert "Run 2 more of that set." in found.sentence


@pytest.mark.parametrize("family", [f for f in Family if f is not Family.POLICY])
def test_a_weak_policy_is_not_blamed_while_an_earlier_check_cannot_tell(family: Family) -> None:
    weak = check(Family.POLICY, Verdict.BROKEN, cause=causes.POLICY)
    others = [check(f) for f in Family if f not in (family, Family.POLICY)]
    found = decide([*others, check(family, Verdict.CANNOT_TELL, more=4), weak])
    assert (found.cause, found.more_trials) == (causes.UNKNOWN, 4)
    assert decide([*others, check(family), weak]).cause is causes.POLICY
    narrow = check(Family.POLICY, Verdict.BROKEN, cause=causes.NARROW_DATA)
    assert decide([*others, check(family, Verdict.CANNOT_TELL), narrow]).cause is causes.NARROW_DATA, (
        "inside against outside needs no exclusion"
    )


def test_what_was_not_run_is_named_when_nothing_broken_was_found() -> None:
    found = decide(checks(pixels=Verdict.NOT_RUN, execution=Verdict.NOT_RUN))
    assert found.cause is causes.NONE
    assert "Not looked at: pixels, execution." in found.sentence
    assert "Not looked at" not in decide(checks()).sentence


@given(verdicts)
def test_a_diagnosis_survives_json(given_verdicts: list[Verdict]) -> None:
    found = decide(
        [
            check(f, v, more=None if v is Verdict.OK else 2)
            for f, v in zip(Family, given_verdicts, strict=True)
        ]
    )
    text = canonical_json(found.to_json())
    again = Diagnosis.from_json(json.loads(text))
    assert again == found
    assert canonical_json(again.to_json()) == text, (
        "or a resumed run would write other content under the same ledger key"
    )


@pytest.mark.parametrize("cause", list(causes.TABLE.values()))
def test_every_cause_has_a_remedy_and_every_known_one_a_name(cause: Cause) -> None:
    assert cause.remedy.endswith(".")
    assert bool(cause.words) == (cause is not causes.UNKNOWN)


@pytest.mark.parametrize("family", [f for f in Family if f is not Family.POLICY])
def test_where_something_else_is_broken_the_policy_is_not_called_weak(family: Family) -> None:
    weak = check(Family.POLICY, Verdict.BROKEN, cause=causes.POLICY)
    found = decide([weak, check(family, Verdict.BROKEN)])
    judged = next(c for c in found.checks if c.family is Family.POLICY)
    assert found.family is family
    assert (judged.verdict, judged.cause) == (Verdict.CANNOT_TELL, causes.NONE)
    assert str(family) in judged.sentence


def test_a_narrow_training_set_stays_a_finding_beside_another() -> None:
    narrow = check(Family.POLICY, Verdict.BROKEN, cause=causes.NARROW_DATA)
    found = decide([narrow, check(Family.PLANT, Verdict.BROKEN)])
    assert next(c for c in found.checks if c.family is Family.POLICY) == narrow


def test_the_next_command_is_more_trials_where_it_cannot_tell_and_the_data_plan_where_it_can() -> None:
    run: Any = SimpleNamespace(folder="runs/a", turn=lambda _: SimpleNamespace(checkpoint="policy", number=1))
    unsure = decide([check(Family.REPLAY, Verdict.CANNOT_TELL, more=16)])
    assert next_command(run, unsure) == f"simgap trial policy -n {unsure.more_trials}"
    assert next_command(run, decide([check(Family.PLANT, Verdict.BROKEN)])) == "simgap target runs/a"


def _tried(n: int, *, voids: int = 0, first: int = 0) -> list[TrialResult]:
    outcomes = [Outcome.void("gripper stuck")] * voids + [Outcome.failure("missed")] * (n - voids)
    return [
        TrialResult(index=k, seed=first + k, outcome=outcome, placements={}, steps=9)
        for k, outcome in enumerate(outcomes)
    ]


def _turned_joint() -> CheckResult:
    """Return what replays of a robot with a turned joint show."""
    spec = make_env("arm-pick", render=False).action_spec
    steps = np.random.default_rng(0).normal(size=(4, 60, len(spec))).cumsum(axis=1)
    logged = [(sent.astype(np.float32), np.roll(sent, 1, axis=0).astype(np.float32)) for sent in steps]
    turned = [
        (sent, (states * ([1.0, -1.0] + [1.0] * (len(spec) - 2))).astype(np.float32))
        for sent, states in logged
    ]
    return check_replay(turned, logged, spec, rng=np.random.default_rng(1))


@pytest.mark.parametrize(("n", "voids", "verdict"), [(8, 3, Verdict.BROKEN), (7, 0, Verdict.CANNOT_TELL)])
def test_a_void_or_a_trial_too_few_does_not_silence_what_the_replays_show(
    n: int, voids: int, verdict: Verdict
) -> None:
    sets = {"trials in use": _tried(16), "trials under training conditions": _tried(n, voids=voids, first=50)}
    evaluation = check_evaluation(sets, frozenset(), frozenset())
    policy = check_policy(
        sets["trials in use"],
        sets["trials under training conditions"],
        FactorRanges(name="all", ranges={}),
        wilson(30, 32),
    )
    assert (evaluation.verdict, policy.verdict) == (verdict, Verdict.BROKEN)
    found = decide([evaluation, _turned_joint(), policy])
    assert found.cause is causes.ACTION_SIGN
    assert found.sentence.endswith(f"Beside it: {evaluation.sentence}")
    assert found.parameters["broken"]
    judged = found.checks[-1]
    assert (judged.family, judged.verdict) == (Family.POLICY, Verdict.CANNOT_TELL)
    alone = decide([evaluation, policy])
    assert alone.cause is (causes.EVALUATION if voids else causes.UNKNOWN)


@pytest.mark.parametrize("verdict", [Verdict.BROKEN, Verdict.OK])
def test_nothing_is_said_of_a_policy_from_trials_that_are_not_fit_to_be_counted(verdict: Verdict) -> None:
    found = decide([check(Family.EVALUATION, Verdict.BROKEN), check(Family.POLICY, verdict)])
    assert found.family is Family.EVALUATION
    assert [c.verdict for c in found.checks] == [Verdict.BROKEN, Verdict.CANNOT_TELL]

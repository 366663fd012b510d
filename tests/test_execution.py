"""Executors: index, order, reset, staleness, refusals, provenance text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simgap.conventions import ActionSpec, Dimension, Reference, Unit
from simgap.errors import ConventionError, TrialFault, UsageError
from simgap.mutants.execution import EXECUTION_BUGS, ForgottenReset
from simgap.policies import Executor, ExecutorSpec, Mode, parse_executor
from simgap.policies.base import Prefix
from simgap.policies.execution import require_executable
from simgap.policies.executors import DelayedExecutor, EnsembleExecutor, SingleChunkExecutor, prefix_of
from simgap.policies.probe import AgeProbe, expected_age, probe_deltas, probe_executor

SPEC = ActionSpec(
    rate_hz=20.0,
    dimensions=(
        Dimension(name="a.pos", unit=Unit.DEG, low=-100.0, high=100.0),
        Dimension(name="g.pos", unit=Unit.PERCENT, low=0, high=100, is_gripper=True),
    ),
)
MODES = (
    "latest",
    "whole_chunk",
    "receding(1)",
    "receding(3)",
    "receding(8)",
    "ensemble(0.1)",
    "ensemble(-0.1)",
    "ensemble(0.0)",
    "receding(4, lead=2)",
    "receding(4, delay=2)",
)
REAL_TIME = (
    "real_time(4)",
    "real_time(4, delay=2)",
    "real_time(3, delay=3)",
    "receding(4, delay=4)",
    "receding(1, delay=1)",
)


def build(text: str, chunk: int) -> Executor:
    return parse_executor(text).build(AgeProbe.action_spec, chunk)


@pytest.mark.parametrize(
    "text", [*MODES, "latest(lead=3)", "whole_chunk(lead=2)", "ensemble(0.01, lead=1)", *REAL_TIME]
)
def test_every_mode_is_exact_on_the_age_probe(text: str) -> None:
    report = probe_executor(build(text, 8), parse_executor(text), 8)
    assert report.faults == ()
    assert report.mean_age == pytest.approx(report.expected_age, abs=1e-4)


@pytest.mark.parametrize(
    ("chunk", "ages"),
    [(8, (4.0, 3.6, 3.5, 3.4, 3.0)), (16, (9.5, 7.7, 7.5, 7.3, 5.5)), (100, (89.5, 57.7, 49.5, 41.3, 9.5))],
)
def test_mean_ages_of_ensembles_are_the_known_ones(chunk: int, ages: tuple[float, ...]) -> None:
    for decay, age in zip((0.1, 0.01, 0.0, -0.01, -0.1), ages, strict=True):
        text = f"ensemble({decay})"
        report = probe_executor(build(text, chunk), parse_executor(text), chunk)
        assert report.is_exact
        assert report.mean_age == pytest.approx(age, abs=0.1)
        assert expected_age(parse_executor(text), chunk) == pytest.approx(age, abs=0.1)


def kinds(executor: Executor, text: str, chunk: int = 8) -> set[str]:
    return {f.split(":")[0] for f in probe_executor(executor, parse_executor(text), chunk).faults}


TEXTS = {
    Mode.LATEST: ("latest",),
    Mode.WHOLE_CHUNK: ("whole_chunk",),
    Mode.RECEDING: ("receding(4)", "receding(3)"),
    Mode.ENSEMBLE: ("ensemble(0.1)", "ensemble(-0.01)"),
}
PLANTED = [
    (name, text)
    for name, bug in EXECUTION_BUGS.items()
    if bug.fault != "deltas"
    for mode in bug.modes
    for text in TEXTS[mode]
]


@pytest.mark.parametrize(("name", "text"), PLANTED)
@pytest.mark.parametrize("chunk", [8, 16])
def test_the_probe_names_each_planted_bug_by_its_kind(name: str, text: str, chunk: int) -> None:
    bug = EXECUTION_BUGS[name]
    found = kinds(bug.build(parse_executor(text), AgeProbe.action_spec, chunk), text, chunk)
    assert bug.fault in found
    assert not kinds(build(text, chunk), text, chunk)


DELTA = replace(SPEC, dimensions=(replace(SPEC.dimensions[0], reference=Reference.DELTA, is_gripper=False),))


@pytest.mark.parametrize("text", ["ensemble(0.1)", "ensemble(0.0)"])
def test_averaged_deltas_are_caught_and_other_executors_pass(text: str) -> None:
    bug = EXECUTION_BUGS["averaged_deltas"]
    (fault,) = probe_deltas(bug.build(parse_executor(text), DELTA, 8), 8)
    assert fault.startswith(f"{bug.fault}: step 1")
    for honest in ("latest", "receding(3)", "whole_chunk", "real_time(3, delay=2)"):
        assert probe_deltas(parse_executor(honest).build(DELTA, 8), 8) == ()


def test_a_reset_forgotten_for_the_second_episode_is_refused_by_our_own_executors() -> None:
    for text in ("whole_chunk", "ensemble(0.1)", "latest", "real_time(4, delay=2)"):
        executor = build(text, 8)
        assert "refused" in kinds(ForgottenReset(executor), text)


@pytest.mark.parametrize("chunk", [8, 16, 100])
@pytest.mark.parametrize("decay", [0.1, 0.01, -0.01, -0.1])
def test_reversed_weights_are_caught_even_on_short_chunks(chunk: int, decay: float) -> None:
    assert "staleness" in kinds(build(f"ensemble({-decay})", chunk), f"ensemble({decay})", chunk)


def test_an_executor_under_another_name_is_caught() -> None:
    assert "staleness" in kinds(build("latest", 8), "receding(4)")


def test_the_gripper_takes_the_newest_prediction_and_the_rest_the_mean() -> None:
    executor = parse_executor("ensemble(0.0)").build(SPEC, 4)
    executor.reset(0)
    executor.submit(np.tile(np.array([0.0, 10.0], np.float32), (4, 1)), 0)
    assert executor.act(0).disagreement is None
    executor.submit(np.tile(np.array([20.0, 90.0], np.float32), (4, 1)), 1)
    executed = executor.act(1)
    np.testing.assert_allclose(executed.action, [10.0, 90.0])
    assert executed.n_averaged == 2
    assert executed.disagreement == pytest.approx(10.0 / 200.0)


def test_averaging_delta_actions_is_refused() -> None:
    delta = replace(
        SPEC, dimensions=(replace(SPEC.dimensions[0], reference=Reference.DELTA), SPEC.dimensions[1])
    )
    with pytest.raises(ConventionError, match=r"a\.pos"):
        parse_executor("ensemble(0.1)").build(delta, 8)
    parse_executor("receding(4)").build(delta, 8)


def test_reading_beyond_the_end_of_a_chunk_is_an_error_not_a_clamp() -> None:
    for text in ("latest", "ensemble(0.1)"):
        executor = parse_executor(text).build(SPEC, 4)
        executor.reset(0)
        executor.submit(np.zeros((4, 2), np.float32), 0)
        executor.act(3)
        with pytest.raises(TrialFault, match="submit"):
            executor.act(4)


@pytest.mark.parametrize("text", ["latest", "ensemble(0.1)"])
def test_chunks_out_of_place_are_refused(text: str) -> None:
    executor = parse_executor(text).build(SPEC, 4)
    chunk = np.zeros((4, 2), np.float32)
    with pytest.raises(TrialFault, match="reset"):
        executor.submit(chunk, 0)
    with pytest.raises(TrialFault, match="reset"):
        executor.act(0)
    executor.reset(7)
    with pytest.raises(TrialFault, match="episode 6"):
        executor.submit(chunk, 0, episode=6)
    with pytest.raises(TrialFault, match="shape"):
        executor.submit(chunk[:3], 0)
    executor.submit(chunk, 2, episode=7)
    with pytest.raises(TrialFault, match="future"):
        executor.act(1)
    with pytest.raises(TrialFault, match="only grow"):
        executor.submit(chunk, 2)


def test_a_committed_executor_refuses_a_chunk_too_early() -> None:
    executor = parse_executor("receding(3)").build(SPEC, 8)
    executor.reset(0)
    executor.submit(np.zeros((8, 2), np.float32), 0)
    with pytest.raises(TrialFault, match="commits for 3"):
        executor.submit(np.zeros((8, 2), np.float32), 2)


def test_a_late_chunk_is_read_at_the_step_not_at_its_start() -> None:
    executor = build("receding(4)", 8)
    probe = AgeProbe(8)
    executor.reset(1)
    executor.submit(probe.predict({}, np.array([[0, 1]], np.float32))[0], 0)
    for step in range(6):
        executor.act(step)
    executor.submit(probe.predict({}, np.array([[4, 1]], np.float32))[0], 4)
    executed = executor.act(6)
    assert executed.action[1] == 6.0
    assert executed.age == 2.0


def test_the_returned_action_is_the_callers_to_keep() -> None:
    for text in ("latest", "ensemble(0.1)"):
        executor = build(text, 8)
        executor.reset(1)
        executor.submit(AgeProbe(8).predict({}, np.array([[0, 1]], np.float32))[0], 0)
        kept = executor.act(0).action
        executor.submit(AgeProbe(8).predict({}, np.array([[1, 1]], np.float32))[0], 1)
        executor.act(1)
        assert kept[1] == 0.0


@pytest.mark.parametrize("text", [*MODES, *REAL_TIME, "latest(lead=3)"])
def test_executor_text_makes_the_round_trip(text: str) -> None:
    spec = parse_executor(text)
    assert parse_executor(str(spec)) == spec
    assert str(spec) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "lates",
        "receding",
        "receding(0)",
        "receding(x)",
        "ensemble",
        "ensemble(nan)",
        "latest(3)",
        "receding(2, lead=-1)",
        "latest(",
        "real_time(2, delay=3)",
        "latest(delay=1)",
        "ensemble(0.1, delay=1)",
        "real_time",
        "real_time(3, lead=1)",
        "receding(3, lead=1, delay=1)",
        "receding(3, pause=1)",
        "latest(lead=1, lead=1)",
    ],
)
def test_executor_text_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_executor(text)


def test_a_chunk_too_short_for_its_executor_is_refused() -> None:
    with pytest.raises(UsageError, match="chunk has 8"):
        parse_executor("receding(7, lead=2)").build(SPEC, 8)
    with pytest.raises(UsageError, match="chunk has 8"):
        parse_executor("latest(lead=8)").build(SPEC, 8)


def test_specs_build_the_executor_they_name() -> None:
    assert isinstance(parse_executor("whole_chunk").build(SPEC, 8), SingleChunkExecutor)
    assert isinstance(parse_executor("real_time(3, delay=1)").build(SPEC, 8), DelayedExecutor)
    assert isinstance(
        ExecutorSpec(mode=parse_executor("ensemble(0.1)").mode, decay=0.1).build(SPEC, 8), EnsembleExecutor
    )


def test_a_delayed_chunk_is_used_when_it_arrives_and_the_one_before_until_then() -> None:
    executor, probe = build("real_time(4, delay=2)", 8), AgeProbe(8)
    executor.reset(1)
    sources = []
    for step in range(12):
        if executor.needs_chunk(step):
            executor.submit(probe.predict({}, np.array([[step, 1]], np.float32))[0], step)
        executed = executor.act(step)
        assert executed.action[1] == step
        sources.append(int(executed.source_step))
    assert sources == [0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 8, 8]


def test_the_prefix_is_the_rest_of_the_chunk_before_at_the_steps_of_the_new_one() -> None:
    executor, probe = build("real_time(3, delay=2)", 8), AgeProbe(8)
    executor.reset(1)
    assert prefix_of(executor, 0) is None
    executor.submit(probe.predict({}, np.array([[0, 1]], np.float32))[0], 0)
    for step in range(3):
        executor.act(step)
    prefix = prefix_of(executor, 3)
    assert isinstance(prefix, Prefix)
    assert (prefix.frozen, prefix.known) == (2, 5)
    np.testing.assert_array_equal(prefix.actions[:5, 1], [3, 4, 5, 6, 7])
    executor.submit(probe.predict({}, np.array([[3, 1]], np.float32))[0], 3)
    np.testing.assert_array_equal([executor.act(s).action[1] for s in (3, 4)], prefix.actions[:2, 1])
    for other in ("receding(3, delay=2)", "receding(3)", "ensemble(0.1)"):
        assert prefix_of(build(other, 8), 0) is None
    executor.reset(2)
    assert prefix_of(executor, 0) is None


def test_a_policy_that_cannot_go_on_from_a_prefix_is_refused_before_anything_runs() -> None:
    with pytest.raises(
        UsageError,
        match=r"real_time\(4, delay=2\) wants .* use receding\(4, delay=2\), or train with --head flow",
    ):
        require_executable(AgeProbe(8), parse_executor("real_time(4, delay=2)"))
    require_executable(AgeProbe(8), parse_executor("receding(4, delay=2)"))


def test_the_executor_is_hashed_with_the_policy() -> None:
    from test_policies_checkpoint import make_card

    card = make_card()
    texts = (
        "latest",
        "receding(3)",
        "receding(4)",
        "receding(4, delay=1)",
        "real_time(4, delay=1)",
        "ensemble(0.1)",
        "ensemble(-0.1)",
    )
    hashes = {card.tested_hash(parse_executor(t)) for t in texts}
    assert len(hashes) == len(texts)
    assert card.hash not in hashes
    assert card.tested_hash(parse_executor("latest")) == make_card().tested_hash(parse_executor("latest()"))

"""Executors: index, order, reset, staleness, refusals, provenance text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simgap.conventions import ActionSpec, Dimension, Reference, Unit
from simgap.errors import ConventionError, TrialFault, UsageError
from simgap.policies import ExecutedAction, Executor, ExecutorSpec, parse_executor
from simgap.policies.executors import EnsembleExecutor, SingleChunkExecutor
from simgap.policies.probe import AgeProbe, expected_age, probe_executor

SPEC = ActionSpec(
    rate_hz=20.0,
    dimensions=(Dimension(name="a.pos", unit=Unit.DEG, low=-100.0, high=100.0), Dimension(name="g.pos", unit=Unit.PERCENT, low=0, high=100, is_gripper=True)),
)
MODES = ("latest", "whole_chunk", "receding(1)", "receding(3)", "receding(8)", "ensemble(0.1)", "ensemble(-0.1)", "ensemble(0.0)", "receding(4, lead=2)")


def build(text: str, chunk: int) -> Executor:
    return parse_executor(text).build(AgeProbe.action_spec, chunk)


@pytest.mark.parametrize("text", [*MODES, "latest(lead=3)", "whole_chunk(lead=2)", "ensemble(0.01, lead=1)"])
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


class Wrapped:
    """Base of the planted bugs: hands everything through."""

    def __init__(self, inner: Executor) -> None:
        self.inner = inner

    def reset(self, episode: int) -> None:
        self.inner.reset(episode)

    def needs_chunk(self, step: int) -> bool:
        return self.inner.needs_chunk(step)

    def submit(self, chunk: np.ndarray, obs_step: int, *, episode: int | None = None) -> None:
        self.inner.submit(chunk, obs_step, episode=episode)

    def act(self, step: int) -> ExecutedAction:
        return self.inner.act(step)


class NoReset(Wrapped):
    """Counts its own steps and never forgets, as a queue that outlives the episode does."""

    def __init__(self, chunk: int) -> None:
        self.queue: list[np.ndarray] = []
        self.chunk = chunk

    def reset(self, episode: int) -> None:
        pass

    def needs_chunk(self, step: int) -> bool:
        return not self.queue

    def submit(self, chunk: np.ndarray, obs_step: int, *, episode: int | None = None) -> None:
        self.queue = list(chunk)

    def act(self, step: int) -> ExecutedAction:
        action = self.queue.pop(0)
        return ExecutedAction(action=action, source_step=float(action[0]), age=step - float(action[0]), n_averaged=1, disagreement=None)


class ForgottenReset(Wrapped):
    """Resets once, then never again."""

    def reset(self, episode: int) -> None:
        if episode == 1:
            self.inner.reset(episode)


class FirstEntryOnly(Wrapped):
    """Sends chunk[0] whatever the step."""

    def submit(self, chunk: np.ndarray, obs_step: int, *, episode: int | None = None) -> None:
        self.inner.submit(np.repeat(chunk[:1], len(chunk), axis=0), obs_step, episode=episode)


class StaleIndex(Wrapped):
    """Reads each chunk one entry early, as if it belonged to the step of its arrival."""

    def submit(self, chunk: np.ndarray, obs_step: int, *, episode: int | None = None) -> None:
        self.inner.submit(np.concatenate((chunk[:1], chunk[:-1])), obs_step, episode=episode)


class StaleObservation(Wrapped):
    """Plans from the observation before the current one, as a loop with a buffered camera does."""

    last: np.ndarray | None = None

    def submit(self, chunk: np.ndarray, obs_step: int, *, episode: int | None = None) -> None:
        self.inner.submit(chunk if self.last is None else self.last, obs_step, episode=episode)
        self.last = chunk


def kinds(executor: Executor, text: str, chunk: int = 8) -> set[str]:
    return {f.split(":")[0] for f in probe_executor(executor, parse_executor(text), chunk).faults}


def test_a_queue_that_is_not_reset_is_caught() -> None:
    assert "reset" in kinds(NoReset(8), "whole_chunk")


@pytest.mark.parametrize("text", ["whole_chunk", "ensemble(0.1)", "latest"])
def test_a_forgotten_reset_is_refused_by_our_own_executors(text: str) -> None:
    assert "refused" in kinds(ForgottenReset(build(text, 8)), text)


@pytest.mark.parametrize("chunk", [8, 16, 100])
@pytest.mark.parametrize("decay", [0.1, 0.01, -0.01, -0.1])
def test_reversed_weights_are_caught_even_on_short_chunks(chunk: int, decay: float) -> None:
    assert "staleness" in kinds(build(f"ensemble({-decay})", chunk), f"ensemble({decay})", chunk)


@pytest.mark.parametrize("text", ["whole_chunk", "receding(4)", "ensemble(0.1)"])
def test_sending_only_the_first_entry_is_caught(text: str) -> None:
    assert "index" in kinds(FirstEntryOnly(build(text, 8)), text)


@pytest.mark.parametrize("text", ["whole_chunk", "receding(4)", "ensemble(0.1)"])
def test_a_stale_index_is_caught(text: str) -> None:
    assert "index" in kinds(StaleIndex(build(text, 8)), text)


@pytest.mark.parametrize("text", MODES)
def test_a_stale_observation_is_caught(text: str) -> None:
    assert kinds(StaleObservation(build(text, 8)), text) & {"staleness", "reset", "index"}


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
    delta = replace(SPEC, dimensions=(replace(SPEC.dimensions[0], reference=Reference.DELTA), SPEC.dimensions[1]))
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


@pytest.mark.parametrize("text", [*MODES, "latest(lead=3)"])
def test_executor_text_makes_the_round_trip(text: str) -> None:
    spec = parse_executor(text)
    assert parse_executor(str(spec)) == spec
    assert str(spec) == text


@pytest.mark.parametrize(
    "text", ["", "lates", "receding", "receding(0)", "receding(x)", "ensemble", "ensemble(nan)", "latest(3)", "receding(2, lead=-1)", "latest("]
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
    assert isinstance(ExecutorSpec(mode=parse_executor("ensemble(0.1)").mode, decay=0.1).build(SPEC, 8), EnsembleExecutor)

"""Policies that lerobot saved, through the worker itself and a stand-in for lerobot: queues, windows, units, refusals, and every way a worker can fail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lerobot_fixtures import fake_python, fake_worker, program, save_checkpoint, write_file
from simgap.conventions import Unit, VectorSpec
from simgap.conventions.conversion import reexpressed
from simgap.envs import make_env
from simgap.errors import ConventionError, DataError, MachineError, SimgapError, UsageError
from simgap.policies.base import Asked, WatchingPolicy
from simgap.policies.bridges import lerobot_worker as wire
from simgap.policies.bridges.lerobot import LerobotPolicy
from simgap.policies.bridges.open import open_policy, read_any_card
from simgap.policies.execution import parse_executor, require_executable
from simgap.robots.base import AppliedAction, InitialCondition, RobotObservation
from simgap.rollouts.engine import run_group
from simgap.trials.run import run_trial
from simgap.trust import Trust, granted
from simgap.types import EvidenceKind, Outcome

WORKER = Path(wire.__file__)


@pytest.fixture(scope="module", autouse=True)
def _files_may_name_a_python() -> Iterator[None]:
    """Stand in for ``--allow-code``: the policy files of this module name an interpreter of ours. That they may not is in test_trust.py."""
    with granted(Trust(any_code=True)):
        yield


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_python(tmp_path_factory.mktemp("lerobot"))


@pytest.fixture(scope="module")
def opened(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., LerobotPolicy]]:
    """Open a policy, once for each description: a worker takes a second to start."""
    made: dict[str, LerobotPolicy] = {}

    def make(checkpoint: dict[str, Any], **fields: Any) -> LerobotPolicy:
        key = json.dumps([checkpoint, fields])
        if key not in made:
            folder = tmp_path_factory.mktemp("policy")
            policy = open_policy(
                write_file(folder, save_checkpoint(folder / "saved", **checkpoint), python, **fields)
            )
            assert isinstance(policy, LerobotPolicy)
            made[key] = policy
        return made[key]

    yield make
    for policy in made.values():
        policy.close()


THEIRS = {"execution": "theirs", "chunk": 1, "executor": None}
ACT = {"step": 0.125}
DIFFUSION = {"type": "diffusion", "n_obs_steps": 2, "noise": 1e-3, "n_action_steps": 6}
WINDOW = {"chunk": 7, "executor": "receding(5)"}


def ask(
    policy: LerobotPolicy, rows: Sequence[tuple[int, int]], states: NDArray[np.float32], watch: bool = False
) -> Any:
    """Ask, or only show, (episode, step) rows with these states and frames that are grey."""
    images = {
        c: np.full((len(rows), policy.image_size, policy.image_size, 3), 51, dtype=np.uint8)
        for c in policy.cameras
    }
    asked = [Asked(seed=seed, step=step) for seed, step in rows]
    return (policy.watch if watch else policy.predict_asked)(images, states, asked)


def state_of(seed: int, step: int) -> NDArray[np.float32]:
    return np.array([seed + step / 64, -seed - step / 32], dtype=np.float32)


def alone(policy: LerobotPolicy, seed: int, steps: int) -> list[NDArray[np.float32]]:
    return [ask(policy, [(seed, t)], state_of(seed, t)[None])[0] for t in range(steps)]


schedules = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True), min_size=4, max_size=9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("checkpoint", "fields"),
    [
        (ACT, THEIRS),
        ({"temporal_ensemble_coeff": 0.1, "n_action_steps": 1}, THEIRS),
        (DIFFUSION, THEIRS),
        (DIFFUSION, WINDOW),
    ],
    ids=["queue", "ensembler", "diffusion", "window"],
)
@settings(max_examples=10)
@given(schedule=schedules)
def test_episodes_that_run_side_by_side_do_what_each_does_alone(
    opened: Callable[..., LerobotPolicy],
    checkpoint: dict[str, Any],
    fields: dict[str, Any],
    schedule: list[list[int]],
) -> None:
    policy = opened(checkpoint, **fields)
    clock = dict.fromkeys(range(3), 0)
    found: dict[int, list[NDArray[np.float32]]] = {e: [] for e in clock}
    for batch in schedule:
        answers = ask(
            policy, [(e, clock[e]) for e in batch], np.stack([state_of(e, clock[e]) for e in batch])
        )
        for e, answer in zip(batch, answers, strict=True):
            found[e].append(answer)
            clock[e] += 1
    for e, steps in clock.items():
        np.testing.assert_array_equal(
            np.array(found[e]).reshape(-1), np.array(alone(policy, e, steps)).reshape(-1)
        )


def test_their_queue_sends_n_action_steps_of_a_chunk_and_begins_anew_with_an_episode(
    opened: Callable[..., LerobotPolicy],
) -> None:
    policy = opened(ACT, **THEIRS)
    first = alone(policy, 5, 3)
    # entry 1 of the chunk of step 0
    np.testing.assert_array_equal(first[1][0], state_of(5, 0) + np.float32(0.125))
    np.testing.assert_array_equal(first[2][0], state_of(5, 2))  # a new chunk after two
    # the same seed again, with one entry left in the queue
    np.testing.assert_array_equal(alone(policy, 5, 1)[0][0], state_of(5, 0))


@pytest.mark.slow
def test_overrides_reach_their_executor(opened: Callable[..., LerobotPolicy]) -> None:
    policy = opened(ACT, **THEIRS, overrides={"n_action_steps": 1})
    np.testing.assert_array_equal(alone(policy, 5, 2)[1][0], state_of(5, 1))
    assert policy.stamp_fields()["overrides"] == {"n_action_steps": 1}


def test_chunks_of_ours_are_the_first_entries_of_theirs(opened: Callable[..., LerobotPolicy]) -> None:
    policy = opened(ACT, chunk=3)
    chunks = ask(policy, [(1, 0), (1, 0)], np.stack([state_of(1, 0), state_of(2, 7)]))
    assert chunks.shape == (2, 3, 2)
    assert chunks.dtype == np.float32
    np.testing.assert_array_equal(
        chunks[1], state_of(2, 7) + np.float32(0.125) * np.arange(3, dtype=np.float32)[:, None]
    )


def test_a_window_holds_consecutive_steps_and_begins_with_copies_of_the_first(
    opened: Callable[..., LerobotPolicy],
) -> None:
    policy = opened(DIFFUSION, **WINDOW)
    # noise of 1e-3
    np.testing.assert_allclose(
        ask(policy, [(1, 0)], state_of(1, 0)[None])[0, 0], 1.5 * state_of(1, 0), atol=5e-3
    )
    ask(policy, [(1, 1)], state_of(1, 1)[None], watch=True)
    np.testing.assert_allclose(
        ask(policy, [(1, 2)], state_of(1, 2)[None])[0, 0], state_of(1, 2) + 0.5 * state_of(1, 1), atol=5e-3
    )


@pytest.mark.parametrize("fields", [WINDOW, THEIRS], ids=["window", "queue"])
def test_a_step_that_was_left_out_is_refused_and_the_policy_goes_on(
    opened: Callable[..., LerobotPolicy], fields: dict[str, Any]
) -> None:
    policy = opened(DIFFUSION, **fields)
    ask(policy, [(3, 0)], state_of(3, 0)[None])
    with pytest.raises(UsageError, match="step 5 after step 0"):
        ask(policy, [(3, 5)], state_of(3, 5)[None])
    with pytest.raises(UsageError, match="step 0 the policy was not shown"):
        ask(policy, [(4, 1)], state_of(4, 1)[None])
    with pytest.raises(UsageError, match="two observations of one episode"):
        ask(policy, [(3, 0), (3, 1)], np.zeros((2, 2), np.float32))
    with pytest.raises(UsageError, match="seed and step"):
        policy.predict({"onboard": np.zeros((1, 16, 16, 3), np.uint8)}, np.zeros((1, 2), np.float32))
    alone(policy, 3, 2)


def test_noise_is_of_the_seed_and_step_alone(opened: Callable[..., LerobotPolicy]) -> None:
    policy = opened(DIFFUSION, **WINDOW)
    same = np.zeros((2, 2), np.float32)
    together, swapped = ask(policy, [(1, 0), (2, 0)], same), ask(policy, [(2, 0), (1, 0)], same)
    np.testing.assert_array_equal(together, swapped[::-1])
    assert np.abs(together[0] - together[1]).max() > 1e-4


@pytest.mark.slow
def test_a_type_nobody_knows_runs_one_episode_at_a_time_and_makes_no_chunks_for_us(
    opened: Callable[..., LerobotPolicy], python: Path, tmp_path: Path
) -> None:
    policy = opened({"type": "odd"}, **THEIRS)
    ask(policy, [(1, 0)], state_of(1, 0)[None])
    assert ask(policy, [(1, 1)], state_of(1, 1)[None])[0, 0, 0] == 2
    assert ask(policy, [(2, 0)], state_of(2, 0)[None])[0, 0, 0] == 1
    with pytest.raises(UsageError, match="one episode at a time"):
        ask(policy, [(1, 2)], state_of(1, 2)[None])
    with pytest.raises(UsageError, match="execution theirs"):
        open_policy(write_file(tmp_path, save_checkpoint(tmp_path / "saved", type="odd"), python))


@pytest.mark.parametrize("text", ["whole_chunk", "ensemble(0.1)", "receding(1)"])
def test_no_executor_runs_on_top_of_theirs(opened: Callable[..., LerobotPolicy], text: str) -> None:
    theirs, ours = opened(ACT, **THEIRS), opened(ACT, chunk=3)
    assert isinstance(theirs, WatchingPolicy)
    require_executable(theirs, parse_executor("latest"))
    require_executable(ours, parse_executor(text))
    with pytest.raises(UsageError, match="execute twice"):
        require_executable(theirs, parse_executor(text))
    with pytest.raises(UsageError, match="asked at every step"):
        ask(theirs, [(1, 0)], state_of(1, 0)[None], watch=True)


def other_convention() -> VectorSpec:
    """Return the arm's joints in radians and fractions, in another order."""
    spec = make_env("arm-pick", image_size=16, render=False).action_spec
    turned = tuple(
        reexpressed(d, unit=Unit.RAD if d.unit is Unit.DEG else Unit.FRACTION) for d in spec.dimensions
    )
    return replace(spec, dimensions=turned[2:] + turned[:2])


@pytest.fixture(scope="module")
def foreign(opened: Callable[..., LerobotPolicy]) -> LerobotPolicy:
    """A policy of other units and sizes, which sees its cameras as one degree each when they are white."""
    spec, images = (
        other_convention().to_json(),
        {"wrist": "observation.images.top", "front": "observation.images.side"},
    )
    checkpoint = {"cameras": ("top", "side"), "width": 6, "look": float(np.pi / 180)}
    return opened(
        checkpoint,
        env="arm-pick",
        images=images,
        image_size=48,
        resize=True,
        action_spec=spec,
        state_spec=spec,
    )


@given(state=st.lists(st.floats(-90, 90, width=32), min_size=5, max_size=5), grip=st.floats(0, 100, width=32))
def test_a_policy_that_repeats_the_state_repeats_it_in_any_convention(
    foreign: LerobotPolicy, state: list[float], grip: float
) -> None:
    black, given_state = np.zeros((1, 48, 48, 3), np.uint8), np.array([[*state, grip]], dtype=np.float32)
    chunk = foreign.predict({"front": black, "wrist": black}, given_state)
    np.testing.assert_allclose(chunk[0], np.repeat(given_state, 4, axis=0), rtol=1e-5, atol=1e-4)


def test_each_camera_reaches_its_feature_at_its_size(foreign: LerobotPolicy) -> None:
    black = np.zeros((1, 48, 48, 3), np.uint8)
    names = other_convention().names  # side comes first by name, top second
    for camera, dimension in (("front", names[0]), ("wrist", names[1])):
        chunk = foreign.predict(
            {"front": black, "wrist": black, camera: ~black}, np.zeros((1, 6), np.float32)
        )
        assert {
            n: round(float(v), 3)
            for n, v in zip(foreign.action_spec.names, chunk[0, 0], strict=True)
            if abs(v) > 1e-3
        } == {dimension: 1.0}


@pytest.mark.slow
def test_the_instruction_is_the_rollouts_or_the_files_and_never_guessed(
    opened: Callable[..., LerobotPolicy],
) -> None:
    reads = {"steps": ("TokenizerProcessorStep",)}
    frames, state = {"onboard": np.zeros((1, 16, 16, 3), np.uint8)}, np.zeros((1, 2), np.float32)
    policy = opened(reads)
    assert policy.predict_asked(frames, state, [Asked(goal="drive")])[0, 0, 0] == 5
    with pytest.raises(UsageError, match="prompt_text"):
        policy.predict(frames, state)
    assert opened(reads, prompt_text="go").predict_asked(frames, state, [Asked(goal="drive")])[0, 0, 0] == 2


def test_rollouts_and_trials_show_every_step_where_the_executor_asks_every_fifth(
    opened: Callable[..., LerobotPolicy],
) -> None:
    policy = opened(DIFFUSION, **WINDOW)
    env = make_env("car-goal", image_size=16)
    conditions = [env.factor_space.sample(env.presets["nominal"], np.random.default_rng(s)) for s in (0, 1)]
    records = run_group(policy, [env, env.sibling()], [70, 71], conditions, "receding(5)")
    assert [int(r.age.max()) for r in records] == [4, 4]  # a step that was not shown would have been refused
    theirs = run_group(opened(DIFFUSION, **THEIRS), [env], [70], conditions[:1], "latest")
    assert theirs[0].age.max() == 0
    robot = Still(steps=12)
    outcome, _ = run_trial(
        robot,
        policy,
        parse_executor("receding(5)"),
        InitialCondition(seed=9, placements={}),
        task="drive",
        max_steps=20,
    )
    assert outcome.is_success
    assert len(robot.sent) == 12


class Still:
    """A car that stands and ends a trial well after some steps."""

    evidence, is_live, judge = EvidenceKind.SURROGATE, False, "simulator"
    cameras, image_size = ("onboard",), 16

    def __init__(self, steps: int) -> None:
        env = make_env("car-goal", image_size=16, render=False)
        self.action_spec, self.state_spec, self.steps = env.action_spec, env.state_spec, steps
        self.sent: list[NDArray[np.float32]] = []

    def reset(self, start: InitialCondition) -> InitialCondition:
        return start

    def observe(self) -> RobotObservation:
        t = len(self.sent) / 20
        return RobotObservation(
            images={"onboard": np.zeros((16, 16, 3), np.uint8)},
            state=np.zeros(2, np.float32),
            time_s=t,
            frame_age_s={"onboard": 0.0},
        )

    def act(self, action: NDArray[np.float32]) -> AppliedAction:
        self.sent.append(action)
        return AppliedAction(action=action, clipped=False, time_s=len(self.sent) / 20)

    def verdict(self) -> Outcome | None:
        return Outcome.success() if len(self.sent) == self.steps else None

    def stop(self) -> None:
        pass

    def stamp_fields(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass


def test_the_stamp_is_the_identity_and_changes_with_everything_that_decides(
    opened: Callable[..., LerobotPolicy], python: Path, tmp_path: Path
) -> None:
    saved = save_checkpoint(tmp_path / "saved")
    file = write_file(tmp_path, saved, python)
    seen = {read_any_card(file).hash}
    for change in (
        lambda: write_file(tmp_path, saved, python, **THEIRS),
        lambda: write_file(tmp_path, saved, python, chunk=3),
        lambda: write_file(tmp_path, saved, python, prompt_text="go"),
        lambda: (saved / "model.safetensors").write_bytes(b"others"),
        lambda: (saved / "policy_preprocessor_step_3_normalizer_processor.safetensors").write_bytes(
            b"statistics"
        ),
        lambda: save_checkpoint(saved, step=1.0),
    ):
        change()
        found = read_any_card(file).hash
        assert found not in seen
        seen.add(found)
    stamp = opened(ACT, chunk=3).stamp_fields()
    assert {k: stamp[k] for k in ("execution", "policy_type", "lerobot", "chunk")} == {
        "execution": "ours",
        "policy_type": "act",
        "lerobot": "0.6.1",
        "chunk": 3,
    }


INFO = {
    "fps": 20,
    "features": {
        "action": {"names": ["steering.pos", "throttle.vel"]},
        "observation.state": {"names": ["steering.pos", "throttle.vel"]},
    },
}


@pytest.mark.parametrize(
    ("checkpoint", "fields", "info", "error", "words"),
    [
        (
            {},
            {"images": {"onboard": "observation.images.front"}},
            None,
            ConventionError,
            "did you mean|known: observation.images.top",
        ),
        ({"cameras": ("top", "side")}, {}, None, ConventionError, "observation.images.side.*not once"),
        ({"size": 32}, {}, None, ConventionError, "32x32 px.*16x16.*resize"),
        ({"width": 3}, {}, None, ConventionError, "3 numbers, state_spec has 2"),
        ({}, {"executor": None}, None, UsageError, r"config asks for receding\(2\)"),
        (
            {"temporal_ensemble_coeff": 0.01, "n_action_steps": 1},
            {"executor": None},
            None,
            UsageError,
            r"config asks for ensemble\(0.01\)",
        ),
        ({}, {**THEIRS, "chunk": 4}, None, UsageError, "set chunk to 1"),
        ({}, {"execution": "both"}, None, UsageError, 'expected "ours"'),
        ({}, {"overrides": {"n_action_steps": 1}}, None, UsageError, "say the executor instead"),
        (
            {},
            {**THEIRS, "overrides": {"device": "x"}},
            None,
            UsageError,
            "n_action_steps or temporal_ensemble_coeff",
        ),
        ({}, {"imges": {}}, None, UsageError, "did you mean 'images'"),
        ({}, {}, {**INFO, "fps": 30}, ConventionError, "30 Hz.*20 Hz"),
        (
            {},
            {},
            {**INFO, "features": {"action": {"names": ["throttle.vel", "steering.pos"]}}},
            ConventionError,
            "another order",
        ),
        (
            {},
            {},
            {**INFO, "features": {"action": {"names": ["a", "throttle.vel"]}}},
            ConventionError,
            "other names",
        ),
        (
            {"action_feature_names": ["throttle.vel", "steering.pos"]},
            {},
            None,
            ConventionError,
            "another order",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_starts(
    tmp_path: Path,
    checkpoint: dict[str, Any],
    fields: dict[str, Any],
    info: Any,
    error: type[SimgapError],
    words: str,
) -> None:
    saved = save_checkpoint(tmp_path / "saved", **checkpoint)
    if info is not None:
        (tmp_path / "data" / "meta").mkdir(parents=True)
        (tmp_path / "data" / "meta" / "info.json").write_text(json.dumps(info))
        fields = {**fields, "dataset": str(tmp_path / "data")}
    with pytest.raises(error, match=words) as caught:
        open_policy(write_file(tmp_path, saved, tmp_path / "no python here", **fields))
    assert "\n" not in str(caught.value)


def test_names_of_the_data_are_renamed_outright(tmp_path: Path) -> None:
    (tmp_path / "data" / "meta").mkdir(parents=True)
    named = {"names": {"motors": ["s", "t"]}}
    (tmp_path / "data" / "meta" / "info.json").write_text(
        json.dumps({"fps": 20, "features": {"action": named, "observation.state": named}})
    )
    file = write_file(
        tmp_path,
        save_checkpoint(tmp_path / "saved"),
        tmp_path / "no python here",
        dataset="data",
        names={"s": "steering.pos", "t": "throttle.vel"},
    )
    # all that can be checked without one holds
    with pytest.raises(MachineError, match="no Python with lerobot"):
        open_policy(file)


@pytest.mark.parametrize(
    ("checkpoint", "fields", "facts", "error", "words"),
    [
        (
            {"without": ("observation.state",)},
            {},
            {},
            DataError,
            r"reads 'observation.state' scaled by MEAN_STD.*statistics of \['action'",
        ),
        ({"without": ("action",)}, {}, {}, DataError, "says 'action' scaled by MIN_MAX"),
        ({}, {}, {"scalers": []}, DataError, "policy_preprocessor.json .* has no normaliser"),
        ({}, {"chunk": 9}, {}, UsageError, "makes 4 entries"),
        ({}, THEIRS, {"is_relative": True}, UsageError, "use execution ours"),
        (
            {},
            {},
            {"fault": "package"},
            MachineError,
            r"'transformers' is required.*pip install 'lerobot\[smolvla\]==0.6.1'",
        ),
        ({}, {}, {"fault": "refuses"}, UsageError, "no such thing"),
        ({}, {}, {"fault": "file"}, DataError, "misses a file of the checkpoint"),
    ],
)
def test_what_a_checkpoint_cannot_do_is_said_in_a_line(
    tmp_path: Path,
    checkpoint: dict[str, Any],
    fields: dict[str, Any],
    facts: dict[str, Any],
    error: type[SimgapError],
    words: str,
) -> None:
    saved = save_checkpoint(tmp_path / "saved", **checkpoint)
    if "fault" in facts:
        saved = save_checkpoint(tmp_path / "saved", type="smolvla")
    with pytest.raises(error, match=words) as caught:
        open_policy(write_file(tmp_path, saved, fake_worker(tmp_path, saved, **facts), **fields))
    assert "\n" not in str(caught.value)


def test_numbers_that_are_not_finite_or_of_another_shape_drive_nothing(tmp_path: Path) -> None:
    saved = save_checkpoint(tmp_path / "saved")
    for width, value, error in ((2, np.nan, DataError), (3, 0.0, ConventionError)):
        policy = open_policy(
            write_file(tmp_path, saved, fake_worker(tmp_path, saved, width=width, value=str(value)))
        )
        with pytest.raises(error):
            ask(policy, [(1, 0)], state_of(1, 0)[None])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("checkpoint", "fields", "error", "words"),
    [
        ({"use_peft": True}, {}, DataError, "an adapter"),
        ({}, {"device": "cuda"}, MachineError, "this machine has none"),
    ],
)
def test_what_only_the_worker_can_see_is_refused_by_it(
    python: Path,
    tmp_path: Path,
    checkpoint: dict[str, Any],
    fields: dict[str, Any],
    error: type[SimgapError],
    words: str,
) -> None:
    with pytest.raises(error, match=words):
        open_policy(write_file(tmp_path, save_checkpoint(tmp_path / "saved", **checkpoint), python, **fields))


@pytest.mark.parametrize(
    ("fault", "fields", "error", "words"),
    [
        ("raises", {}, DataError, "RuntimeError: the weights are of another shape"),
        ("dies", {}, MachineError, "ended with code 7: Fatal: out of memory"),
        ("sleeps", {"reply_timeout_s": 0.2}, MachineError, "no answer within 0.2 s"),
        ("trickles", {"reply_timeout_s": 0.3}, MachineError, "no answer within 0.3 s"),
    ],
)
def test_a_worker_that_fails_in_the_middle_says_why_and_answers_no_more(
    tmp_path: Path, fault: str, fields: dict[str, Any], error: type[SimgapError], words: str
) -> None:
    saved = save_checkpoint(tmp_path / "saved")
    policy = open_policy(write_file(tmp_path, saved, fake_worker(tmp_path, saved, later=fault), **fields))
    assert isinstance(policy, LerobotPolicy)
    with pytest.raises(error, match=words) as caught:
        ask(policy, [(1, 0)], state_of(1, 0)[None])
    assert "\n" not in str(caught.value)
    with pytest.raises(MachineError, match="has ended"):
        ask(policy, [(1, 0)], state_of(1, 0)[None])


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        ("echo 'no message at all, not one'; cat > /dev/null", DataError, "does not speak this protocol"),
        (
            r"printf 'sgl1\377\377\377\377\377\377\377\377\377\377\377\377'; cat > /dev/null",
            DataError,
            "does not speak this protocol",
        ),
        ("echo 'Illegal instruction' >&2; exit 3", MachineError, "ended with code 3: Illegal instruction"),
        ("kill -9 $$", MachineError, "killed by SIGKILL"),
        ("exec sleep 60", MachineError, "no answer within 0.3 s"),
        ("exec yes", DataError, "does not speak this protocol"),
        ("exec cat /dev/zero", DataError, "does not speak this protocol"),
        pytest.param(
            "exec yes error >&2", MachineError, "closed its pipe and ran on", marks=pytest.mark.slow
        ),
        pytest.param(
            "exec >&-; exec sleep 60", MachineError, "closed its pipe and ran on", marks=pytest.mark.slow
        ),
        pytest.param("exec <&-; exec sleep 60", MachineError, "the lerobot worker", marks=pytest.mark.slow),
        ("sleep 60 & exit 0", MachineError, "the lerobot worker"),
        ("trap '' TERM INT; while :; do sleep 1; done", MachineError, "no answer within 0.3 s"),
        ("exec cat", DataError, "the lerobot worker"),
    ],
)
def test_a_program_that_is_no_worker_is_found_out(
    tmp_path: Path, line: str, error: type[SimgapError], words: str
) -> None:
    impostor = program(tmp_path / "python", f'[ "$2" = "-c" ] && echo 0.6.1 2.11.0 && exit 0; {line}')
    with pytest.raises(error, match=words):
        open_policy(write_file(tmp_path, save_checkpoint(tmp_path / "saved"), impostor, start_timeout_s=0.3))


def test_a_python_without_lerobot_is_told_how_to_get_one(tmp_path: Path) -> None:
    bare = fake_python(tmp_path, has_lerobot=False)
    with pytest.raises(MachineError, match=r"has no lerobot .*python3.12 -m venv"):
        open_policy(write_file(tmp_path, save_checkpoint(tmp_path / "saved"), bare))


def test_a_worker_dies_with_its_parent(tmp_path: Path) -> None:
    program = fake_worker(tmp_path, save_checkpoint(tmp_path / "saved"))
    code = (
        "from pathlib import Path; import time; from simgap.policies.bridges.lerobot_process import"
        f" LerobotWorker; w = LerobotWorker(Path({str(program)!r}), "
    )
    code += "{'threads': 1}); print(w._child.pid, flush=True); time.sleep(60)"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    assert str(WORKER).encode() in Path(f"/proc/{worker}/cmdline").read_bytes()
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    for _ in range(200):
        if not Path(f"/proc/{worker}").exists():
            break
        time.sleep(0.05)
    assert not Path(f"/proc/{worker}").exists()


arrays = st.dictionaries(
    st.text(max_size=5),
    st.tuples(st.sampled_from(["uint8", "float32"]), st.lists(st.integers(0, 3), max_size=4)).map(
        lambda d: np.arange(np.prod(d[1], dtype=int)).reshape(d[1]).astype(d[0])
    ),
    max_size=3,
)


@given(
    header=st.dictionaries(
        st.text(max_size=5).filter(lambda k: k != "arrays"), st.integers() | st.text(), max_size=3
    ),
    arrays=arrays,
)
def test_a_message_arrives_as_it_was_sent(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    prefix, text, *payload = wire.pack(header, arrays)
    assert wire.lengths(prefix) == (len(text), sum(map(len, payload)))
    found, came = wire.unpack(text, b"".join(payload))
    assert found == header
    assert list(came) == list(arrays)
    for name, array in arrays.items():
        assert came[name].dtype == array.dtype
        np.testing.assert_array_equal(came[name], array)


@given(
    text=st.binary(max_size=60)
    | st.from_regex(
        rb'\{"arrays": \[\{"name": "a", "dtype": "[a-z0-9]{1,7}", "shape": \[-?[0-9]{1,20}\]\}\]\}',
        fullmatch=True,
    ),
    payload=st.binary(max_size=9),
)
def test_bytes_that_are_no_message_are_refused_as_such(text: bytes, payload: bytes) -> None:
    try:
        _, came = wire.unpack(text, payload)
    except wire.FrameError:
        return
    assert sum(a.nbytes for a in came.values()) == len(payload)

"""The same code that teaches, trains and screens the arm does so for the car."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simgap.cli import main
from simgap.envs import make_env
from simgap.episodes.reader import open_dataset
from simgap.policies.execution import parse_executor
from simgap.policies.probe import expected_age
from simgap.provenance import child_rng
from simgap.rollouts.engine import run_group
from simgap.teachers import Abstain, make_teacher
from simgap.teachers.generation import roll_teacher

SMALL = ["--size", "48", "--workers", "0", "--quiet"]
TRAIN = [
    "--steps",
    "4",
    "--batch",
    "8",
    "--width",
    "8",
    "--hidden",
    "16",
    "--threads",
    "1",
    "--quiet",
    "--force",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "drives"
    assert main(["generate", "car-goal", "-n", "4", *SMALL, "--out", str(out)]) == 0
    return out


def test_generated_drives_hold_clean_labels_and_the_command_that_was_sent_as_state(data: Path) -> None:
    dataset = open_dataset(data)
    assert dataset.n_episodes == 4
    assert dataset.spec.action_spec.names == ("steering.pos", "throttle.vel")
    for episode in (dataset.episode(i) for i in range(4)):
        assert episode.outcome.is_success
        executed = episode.extras["executed_action"]
        assert np.array_equal(episode.state[1:], executed[:-1])
        assert 0.02 < np.abs(executed - episode.action).mean() < 0.2
        assert 40 < len(episode) < 150


def test_the_cars_own_noise_is_what_the_usual_noise_means() -> None:
    env = make_env("car-goal", render=False)
    values = env.factor_space.sample(env.presets["nominal"], child_rng(0, "factors"))

    def spread(noise_deg: float) -> np.ndarray:
        episode = roll_teacher(env, make_teacher(env), values, 3, noise_deg).episode
        assert episode is not None
        return np.std(episode.extras["executed_action"] - episode.action, axis=0)

    assert spread(0.0) == pytest.approx([0.0, 0.0])
    np.testing.assert_allclose(spread(1.5), env.dart_noise, rtol=0.4)


@pytest.mark.slow
def test_a_policy_is_trained_and_screened_by_the_verbs_that_know_no_env(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = tmp_path / "policy"
    assert main(["train", str(data), *TRAIN, "--out", str(checkpoint)]) == 0
    capsys.readouterr()
    assert (
        main(
            [
                "screen",
                str(checkpoint),
                "-n",
                "2",
                "--workers",
                "0",
                "--quiet",
                "--out",
                str(tmp_path / "screen"),
                "--json",
            ]
        )
        == 1
    )
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    text = json.dumps(document)
    assert "car-goal" in text
    assert set(make_env("car-goal", render=False).failure_modes) & set(text.replace('"', " ").split())


class _Teacher:
    """A policy with the teacher inside: what an executor does to good labels, without a network."""

    image_size, cameras, chunk = 48, ("onboard",), 4

    def __init__(self, env: Any) -> None:
        self._teacher = make_teacher(env)
        self.action_spec, self.state_spec = env.action_spec, env.state_spec

    def predict(self, images: Any, state: np.ndarray) -> np.ndarray:
        label = self._teacher.label()
        assert not isinstance(label, Abstain)
        return np.tile(label, (1, self.chunk, 1))

    def stamp_fields(self) -> dict[str, Any]:
        return {"weights": "teacher"}


@pytest.mark.parametrize("executor", ["latest", "receding(4)", "ensemble(0.1)"])
def test_rollouts_of_a_policy_that_holds_the_teachers_label_succeed_and_say_its_age(executor: str) -> None:
    env = make_env("car-goal", image_size=48, render=False)
    values = env.factor_space.sample(env.presets["nominal"], child_rng(1, "factors"))
    (record,) = run_group(_Teacher(env), [env], [1], [values], executor)
    assert record.outcome.is_success
    assert record.age[8:40].mean() == pytest.approx(expected_age(parse_executor(executor), 4), abs=0.05)
    assert record.film["onboard"].shape[1:] == (48, 48, 3)

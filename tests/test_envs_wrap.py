"""Foreign gymnasium envs behind our contract: what the map says is held against the env, and what is missing is refused by name."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray

from simgap.conventions import ActionSpec, Dimension, StateSpec, Unit
from simgap.envs import env_names, make_env
from simgap.envs.base import TaskEnv
from simgap.envs.factors import Factor, FactorRanges, FactorSpace, FactorValues
from simgap.envs.registry import add_env, remove_env
from simgap.envs.wrap import RENDERED, WrapMap, wrap
from simgap.errors import ConventionError, UsageError
from simgap.teachers import make_teacher
from simgap.teachers.generation import roll_teacher

ROOT = Path(__file__).parent.parent


class Slider(gymnasium.Env[Any, Any]):
    """A dot on a line that has to reach a mark; its picture shows both."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, width: int = 32, friction: float = 0.0) -> None:
        self.width, self.friction = width, friction
        self.action_space = spaces.Box(-0.2, 0.2, (1,), np.float64)
        image = spaces.Box(0, 255, (32, width, 3), np.uint8)
        self.observation_space = spaces.Dict(
            {"eyes": spaces.Dict({"top": image}), "proprio": spaces.Box(-2, 2, (2,), np.float64)}
        )
        self.render_mode = "rgb_array"
        self.place = self.mark = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.mark = 0.0, float(self.np_random.uniform(0.3, 0.9))
        return self._see(), {}

    def step(self, action: NDArray[np.float64]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.place += float(action[0]) * (1 - self.friction)
        done = abs(self.place - self.mark) < 0.05
        return self._see(), 0.0, done, False, {"won": np.array([done]), "off": self.place > 1.0}

    def render(self) -> Any:
        image = np.zeros((32, self.width, 3), np.uint8)
        image[:, int(np.clip(self.place, 0, 0.99) * self.width)] = 255
        image[:, int(self.mark * self.width), 0] = 200
        return image

    def _see(self) -> Any:
        return {"eyes": {"top": self.render()}, "proprio": np.array([self.place, 0.5])}


def dimension(name: str, low: float, high: float) -> Dimension:
    return Dimension(name=name, unit=Unit.METRE, low=low, high=high)


MAP = WrapMap(
    name="slider",
    task="reach the mark",
    cameras={"top": "eyes/top"},
    state="proprio",
    state_columns=(0,),
    state_spec=StateSpec(dimensions=(dimension("slide.pos", -2, 2),), rate_hz=10.0),
    action_spec=ActionSpec(dimensions=(dimension("slide.step", -0.2, 0.2),), rate_hz=10.0),
    success="won",
    horizon_steps=15,
)


def finish(env: TaskEnv, action: float, *, seed: int = 0) -> Any:
    env.reset(seed=seed)
    while True:
        *_, info = env.step(np.array([action], np.float32))
        if "outcome" in info:
            return info["outcome"]


def test_a_wrapped_env_keeps_our_contract() -> None:
    env = wrap(Slider, MAP, image_size=16)
    first, info = env.reset(seed=4)
    again, _ = env.sibling().reset(seed=4)
    other, _ = env.reset(seed=5)
    assert first["top"].shape == (16, 16, 3)
    assert first["top"].dtype == np.uint8
    assert first["state"].dtype == np.float32
    assert first["state"].shape == (1,)
    assert env.observation_space.contains(first)
    assert info["factors"] == {}
    np.testing.assert_array_equal(first["top"], again["top"])
    assert (first["top"] != other["top"]).any()
    assert finish(env, 0.06).is_success
    assert finish(env, -0.1).detail == "timeout"
    with pytest.raises(UsageError, match="reset"):
        env.step(np.zeros(1, np.float32))


def test_an_env_that_writes_into_one_buffer_does_not_change_what_was_observed() -> None:
    class Thrifty(Slider):
        buffer = np.zeros(2, np.float32)
        picture = np.zeros((32, 32, 3), np.uint8)

        def _see(self) -> Any:
            self.buffer[:] = self.place, 0.5
            self.picture[:] = self.render()
            return {"eyes": {"top": self.picture}, "proprio": self.buffer}

    for columns, length in ((None, 2), ((0,), 1)):
        dimensions = tuple(dimension(f"slide{i}.pos", -2, 2) for i in range(length))
        env = wrap(
            Thrifty,
            replace(MAP, state_columns=columns, state_spec=StateSpec(dimensions=dimensions, rate_hz=10.0)),
            image_size=32,
        )
        first, _ = env.reset(seed=4)
        before = {name: value.copy() for name, value in first.items()}
        env.step(np.array([0.2], np.float32))
        for name, value in first.items():
            np.testing.assert_array_equal(value, before[name])


def test_failures_are_named_by_the_map() -> None:
    def named(info: Any) -> str:
        return "overran" if info["off"] else "timeout"

    env = wrap(Slider, replace(MAP, failure=named, failure_modes=("overran", "timeout")))
    assert "overran" in {finish(env, 0.2, seed=seed).detail for seed in range(6)}
    assert finish(env, -0.2).detail == "timeout"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cameras": {"top": "eyes/front"}}, "no 'eyes/front'.*top"),
        ({"cameras": {}}, "without a camera"),
        ({"state": "joints"}, "no 'joints'.*proprio"),
        ({"success": "is_success"}, r"\['off', 'won'\]"),
        ({"presets": {"easy": FactorRanges({}, "easy")}}, "nominal"),
        (
            {"factor_space": FactorSpace([Factor(name="f", unit="1", nominal=0, low=0, high=1, reason="r")])},
            "apply_factors",
        ),
    ],
)
def test_what_is_missing_is_refused_by_name(change: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        wrap(Slider, replace(MAP, **change))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"state_columns": None}, "2 entries, 2 of them mapped, its map names 1"),
        ({"state_columns": (7,)}, r"columns \[7\]"),
        ({"action_spec": ActionSpec(dimensions=(dimension("a", -1.0, 1.0),), rate_hz=10.0)}, "units"),
        (
            {
                "action_spec": ActionSpec(
                    dimensions=(dimension("a", -0.1, 0.1), dimension("b", -0.1, 0.1)), rate_hz=10.0
                )
            },
            "takes 1 actions, its map names 2",
        ),
    ],
)
def test_a_vector_that_is_not_what_the_map_says_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ConventionError, match=says):
        wrap(Slider, replace(MAP, **change))


def test_frames_that_are_not_square_are_refused() -> None:
    with pytest.raises(UsageError, match="48 x 32"):
        wrap(lambda: Slider(width=48), MAP)


def test_an_env_without_a_spec_has_to_come_as_a_maker() -> None:
    with pytest.raises(UsageError, match="function that makes it"):
        wrap(Slider(), MAP)


def test_factors_reach_the_env_and_keep_their_bounds() -> None:
    def rub(inner: gymnasium.Env[Any, Any], values: FactorValues) -> None:
        assert isinstance(inner, Slider)
        inner.friction = values["friction"]

    space = FactorSpace([Factor(name="friction", unit="1", nominal=0.0, low=0.0, high=1.0, reason="a brake")])
    env = wrap(Slider, replace(MAP, factor_space=space, apply_factors=rub, cameras={"top": RENDERED}))
    env.reset(seed=0, options={"factors": {"friction": 0.5}})
    obs, *_ = env.step(np.array([0.2], np.float32))
    assert obs["state"][0] == pytest.approx(0.1)
    with pytest.raises(UsageError, match="bounds"):
        env.reset(options={"factors": {"friction": 2.0}})


def test_a_teacher_comes_with_the_map_or_not_at_all() -> None:
    with pytest.raises(UsageError, match="no teacher"):
        make_teacher(wrap(Slider, MAP))
    marker = SimpleNamespace(name="solver 1", label=lambda: None)
    assert make_teacher(wrap(Slider, replace(MAP, teacher=lambda env: marker))) is marker
    with pytest.raises(
        UsageError, match=r"is of type int; expected an object with name \(a text\) and label\(\)"
    ):
        make_teacher(wrap(Slider, replace(MAP, teacher=lambda env: 3)))


def test_an_added_env_is_found_by_name_until_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_slider.py").write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nfrom test_envs_wrap import MAP,"
        " Slider\nfrom simgap.envs.wrap import wrap\ndef make(image_size=96, ranges=None, render=True):\n   "
        " return wrap(Slider, MAP, image_size=image_size, ranges=ranges, render=render)\ndef number(**_):\n "
        "   return 3\n"
    )
    with pytest.raises(UsageError, match="unknown env"):
        make_env("slider")
    assert add_env("my_slider:make", tmp_path).name == "slider"
    assert "slider" in env_names()
    assert make_env("slider", image_size=16).reset(seed=0)[0]["top"].shape == (16, 16, 3)
    with pytest.raises(UsageError, match="engine"):
        make_env("slider", engine="drake")
    with pytest.raises(UsageError, match="not one of our envs"):
        add_env("my_slider:number", tmp_path)
    with pytest.raises(UsageError, match="no function"):
        add_env("my_slider:absent", tmp_path)
    with pytest.raises(UsageError, match="cannot be imported"):
        add_env("no_such_module_here:make", tmp_path)
    with pytest.raises(UsageError, match="module:function"):
        add_env("rm -rf:x", tmp_path)
    remove_env("slider")
    assert "slider" not in env_names()
    with pytest.raises(UsageError, match="no env called"):
        remove_env("slider")


def _example(name: str) -> TaskEnv:
    sys.path.insert(0, str(ROOT))
    try:
        from examples import wrapped_envs
    finally:
        sys.path.remove(str(ROOT))
    env: TaskEnv = getattr(wrapped_envs, name)(image_size=48)
    return env


def test_the_teacher_of_the_example_solves_what_it_records() -> None:
    env = _example("slide")
    teacher = make_teacher(env)
    for seed in range(5):
        rollout = roll_teacher(env, teacher, env.factor_space.nominal(), seed, 1.5)
        assert rollout.episode is not None
        assert rollout.episode.outcome.is_success
    env.close()


@pytest.mark.parametrize(
    ("name", "package", "state", "actions"),
    [("pusht", "gym_pusht", 2, 2), ("fetch", "gymnasium_robotics", 5, 4)],
)
def test_published_envs_run_behind_the_contract(name: str, package: str, state: int, actions: int) -> None:
    pytest.importorskip(package)
    env = _example(name)
    obs, _ = env.reset(seed=1)
    camera = env.cameras[0]
    assert obs[camera].shape == (48, 48, 3)
    assert obs[camera].std() > 5
    assert obs["state"].shape == (state,)
    assert len(env.action_spec) == actions
    middle = ((env.action_spec.low + env.action_spec.high) / 2).astype(np.float32)
    outcome = None
    for _ in range(env.horizon_steps):
        *_, info = env.step(middle)
        outcome = info.get("outcome", outcome)
    assert outcome is not None
    assert outcome.detail == "timeout"
    assert package in env.stamp_fields()["engine"]
    again, _ = env.sibling().reset(seed=1)
    np.testing.assert_array_equal(obs[camera], again[camera])
    env.close()

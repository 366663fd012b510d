"""Cameras and lights that change between two episodes, and pictures that stand still but for noise; scenes that only look so are left alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import ndimage

from healthy_hosts import Arm
from simgap.checks.data.dataset import check_data
from simgap.checks.data.pictures.camera_changes import check_camera_changes
from simgap.checks.data.report import DataFinding, Severity
from simgap.measures.glimpses import Glimpse
from simgap.measures.picture_registration import register
from simgap.measures.views import cells, smooth, still

Picture = NDArray[np.uint8]
Array = NDArray[np.float64]
VIEWS = 8


def room(rng: np.random.Generator, shape: tuple[int, int] = (48, 64)) -> NDArray[np.float64]:
    """Return a table before a wall with some things that stay, larger than the frame by a third."""
    h, w = (4 * n // 3 for n in shape)
    picture = np.empty((h, w, 3))
    picture[: h // 3], picture[h // 3 :] = (90, 100, 120), (150, 140, 130)
    for _ in range(14):
        y, x, a, b = rng.integers(0, h - 8), rng.integers(0, w - 8), *rng.integers(4, 16, 2)
        picture[y : y + a, x : x + b] = rng.uniform(30, 220, 3)
    return np.asarray(ndimage.gaussian_filter(picture, (0.7, 0.7, 0)))


def seen(
    scene: NDArray[np.float64], right: float = 0.0, down: float = 0.0, turn_deg: float = 0.0
) -> NDArray[np.float64]:
    """Return the middle of a room by a camera moved so that the picture goes right, down and clockwise, in pixels of the frame."""
    h, w = (3 * n // 4 for n in scene.shape[:2])
    y, x = np.mgrid[:h, :w].astype(np.float64)
    y, x = y - (h - 1) / 2 - down, x - (w - 1) / 2 - right
    angle = np.deg2rad(turn_deg)
    c, s = np.cos(angle), np.sin(angle)
    at = [-s * x + c * y + (scene.shape[0] - 1) / 2, c * x + s * y + (scene.shape[1] - 1) / 2]
    return np.stack([ndimage.map_coordinates(scene[..., k], at, order=1) for k in range(3)], axis=-1)


def recorded(
    views: list[NDArray[np.float64]], rng: np.random.Generator, camera: str = "front"
) -> list[Glimpse]:
    """Return what is seen of an episode per view: an object put down anywhere, an arm that passes, noise."""
    looks = []
    for episode, view in enumerate(views):
        h, w = view.shape[:2]
        y, x = rng.integers(h // 3, h - 12), rng.integers(0, w - 12)
        there = view.copy()
        there[y : y + 6, x : x + 6] = rng.uniform(0, 255, 3)
        frames = np.repeat(there[None], VIEWS, axis=0)
        for k, place in enumerate(rng.integers(0, w - 12, VIEWS)):
            frames[k, : h // 2, place : place + 10] = (40, 40, 45)
        shown = np.clip(frames + rng.normal(0, 3, frames.shape), 0, 255).astype(np.uint8)
        smoothed = [smooth(f) for f in shown]
        grid = np.stack([cells(f) for f in smoothed])
        looks.append(
            Glimpse(
                episode=episode,
                camera=camera,
                times_s=np.arange(float(VIEWS)),
                frames=shown[:, ::2, ::2],
                cells=grid,
                still=still(smoothed),
            )
        )
    return looks


def found(looks: list[Glimpse]) -> dict[str, DataFinding]:
    return {f.code: f for f in check_camera_changes(looks)[1]}


@pytest.mark.parametrize(
    ("right", "down", "turn_deg"),
    [(2.0, 0.0, 0.0), (-10.0, 5.0, 0.0), (0.0, 0.0, 3.0), (0.4, -0.3, -8.0), (0.0, 0.0, 0.0)],
)
def test_a_picture_is_laid_over_another_to_a_fraction_of_a_pixel_in_any_light(
    right: float, down: float, turn_deg: float
) -> None:
    scene = room(np.random.default_rng(4))
    grey = np.array([0.299, 0.587, 0.114])
    laid = register(seen(scene) @ grey, 0.7 * seen(scene, right, down, turn_deg) @ grey + 5.0)
    assert (laid.right, laid.down) == pytest.approx((right, down), abs=0.3)
    assert laid.turn_deg == pytest.approx(turn_deg, abs=0.2)
    assert laid.likeness > 0.95


@pytest.mark.parametrize(("first", "seed"), [(4, 0), (9, 1)])
def test_a_camera_that_is_moved_is_named_with_its_episode_and_how_far(first: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scene = room(rng)
    looks = recorded([seen(scene, 0.02 * 64 * (k >= first)) for k in range(14)], rng)
    finding = found(looks)["camera_moved"]
    assert finding.severity is Severity.WARNING
    assert finding.feature == "front"
    (change,) = finding.numbers["changes"]
    assert (change["last_before"], change["first_after"]) == (first - 1, first)
    assert change["right_percent"] == pytest.approx(2.0, abs=0.3)
    assert (
        f"front moves 2.{finding.sentence.split('2.')[1][0]} % of its width right from episode {first} on"
        in finding.sentence
    )
    assert "light_changes" not in found(looks)


def test_a_camera_that_is_turned_is_named_with_degrees() -> None:
    rng = np.random.default_rng(2)
    scene = room(rng)
    (change,) = found(recorded([seen(scene, turn_deg=3.0 * (k >= 7)) for k in range(14)], rng))[
        "camera_moved"
    ].numbers["changes"]
    assert change["first_after"] == 7
    assert change["turn_deg"] == pytest.approx(3.0, abs=0.3)


@pytest.mark.parametrize("gains", [(0.7, 0.7, 0.7), (1.1, 1.0, 0.8)])
def test_light_that_changes_is_named_with_what_became_of_each_colour(
    gains: tuple[float, float, float],
) -> None:
    rng = np.random.default_rng(3)
    view = seen(room(rng))
    findings = found(recorded([view * (gains if k >= 5 else (1.0, 1.0, 1.0)) for k in range(12)], rng))
    assert set(findings) == {"light_changes"}
    (change,) = findings["light_changes"].numbers["changes"]
    assert change["first_after"] == 5
    assert change["gains_rgb"] == pytest.approx(gains, abs=0.03)


def test_two_changes_are_both_named() -> None:
    rng = np.random.default_rng(5)
    scene = room(rng)
    views = [seen(scene, down=3.0 * (k >= 8)) * (0.8 if k >= 16 else 1.0) for k in range(24)]
    findings = found(recorded(views, rng))
    assert [c["first_after"] for c in findings["camera_moved"].numbers["changes"]] == [8]
    assert [c["first_after"] for c in findings["light_changes"].numbers["changes"]] == [16]


def test_of_six_episodes_a_clear_change_is_named_and_a_single_odd_one_is_not() -> None:
    rng = np.random.default_rng(6)
    scene = room(rng)
    assert "camera_moved" in found(recorded([seen(scene, 3.0 * (k >= 3)) for k in range(6)], rng))
    assert found(recorded([seen(scene, 3.0 * (k == 5)) for k in range(6)], rng)) == {}


def drawn(kind: str, k: int, rng: np.random.Generator, scene: NDArray[np.float64]) -> NDArray[np.float64]:
    pose, light = rng.uniform(-3, 3, 3), rng.uniform(0.7, 1.3, 3)
    views = {
        "fixed": lambda: seen(scene),
        "poses": lambda: seen(scene, *pose),
        "lights": lambda: seen(scene) * light,
        "both": lambda: seen(scene, *pose) * light,
        "other rooms": lambda: seen(room(rng)),
        "a drift of the daylight": lambda: seen(scene) * (1.0 - 0.02 * k),
    }
    return views[kind]()


KINDS = ("fixed", "poses", "lights", "both", "other rooms", "a drift of the daylight")


def alarms(kind: str, count: int, seed: int) -> set[str]:
    rng = np.random.default_rng(100 + seed)
    scene = room(rng)
    return set(found(recorded([drawn(kind, k, rng, scene) for k in range(count)], rng)))


@pytest.mark.parametrize("kind", KINDS)
def test_scenes_drawn_anew_for_each_episode_are_left_alone(kind: str) -> None:
    assert alarms(kind, 12, 0) == set()


@pytest.mark.slow
@pytest.mark.parametrize("count", [4, 6, 8, 14, 24])
@pytest.mark.parametrize("kind", KINDS)
def test_they_are_left_alone_whatever_is_drawn(kind: str, count: int) -> None:
    assert [seed for seed in range(20) if alarms(kind, count, seed)] == []


def test_a_change_is_found_in_a_dataset_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, calls = Arm._scene, []

    def darker_from_the_sixth_on(self: Arm, *args: object) -> Picture:
        calls.append(1)
        frames = plain(self, *args)  # type: ignore[arg-type]
        return (frames * 0.7).astype(np.uint8) if len(calls) > 5 else frames

    monkeypatch.setattr(Arm, "_scene", darker_from_the_sixth_on)
    report = check_data(Arm(lengths=(45,) * 10, cameras=("front",)).write(tmp_path / "d"))
    finding = next(f for f in report.findings if f.code == "light_changes")
    assert finding.numbers["changes"][0]["gains_rgb"] == pytest.approx([0.7] * 3, abs=0.02)
    assert "from episode 5 on" in finding.sentence
    assert report.measurements["videos"]["compared_over_episodes"]["front"]["episodes_compared"] == 10


def frozen(first: float, last: float, episodes: tuple[int, ...]) -> Callable[[Picture, int], Picture]:
    """Return what repeats one picture over a part of some episodes, each time with noise of its own."""

    def of(frames: Picture, episode: int) -> Picture:
        begin, end = round(first * len(frames)), round(last * len(frames))
        if episode not in episodes:
            return frames
        noise = np.random.default_rng(episode).normal(0, 3, frames[begin:end].shape)
        return np.concatenate(
            [frames[:begin], np.clip(frames[begin] + noise, 0, 255).astype(np.uint8), frames[end:]]
        )

    return of


@pytest.mark.parametrize(
    ("first", "last", "episodes"),
    [(0.0, 1.0, (2,)), (0.2, 0.9, (1, 3)), (0.0, 1.0, (0, 1, 2, 3))],
    ids=["an episode", "most of two", "all"],
)
def test_a_picture_that_stands_still_but_for_noise_is_named(
    first: float, last: float, episodes: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, calls, change = Arm._scene, [], frozen(first, last, episodes)

    def planted(self: Arm, *args: object) -> Picture:
        calls.append(1)
        return change(plain(self, *args), len(calls) - 1)  # type: ignore[arg-type]

    monkeypatch.setattr(Arm, "_scene", planted)
    report = check_data(Arm(lengths=(90,) * 4, cameras=("front",)).write(tmp_path / "d"))
    finding = next(f for f in report.findings if f.code == "nearly_frozen")
    assert finding.severity is Severity.WARNING
    assert finding.numbers["segments"].keys() == {f"front in episode {e}" for e in episodes}
    assert all(
        s["share"] >= 0.8 * (last - first) for parts in finding.numbers["segments"].values() for s in parts
    )
    assert "moves" in finding.sentence


def test_a_picture_in_which_nothing_moves_while_the_robot_rests_is_healthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resting(action: Array, state: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        action[30:75], state[30:75] = action[30], state[30]
        return action, state

    assert (
        "nearly_frozen"
        not in check_data(
            Arm(lengths=(90,) * 4, cameras=("front",), change=resting).write(tmp_path / "d")
        ).codes()
    )


def test_a_camera_that_looks_at_the_other_arm_is_healthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two joints are seen and move in the first half of an episode, the others in the second."""

    def in_turn(action: Array, state: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        middle = len(action) // 2
        for values in (action, state):
            values[middle:, :2] = values[middle, :2]
            values[:middle, 2:] = values[middle, 2:]
        return action, state

    assert (
        "nearly_frozen"
        not in check_data(
            Arm(lengths=(90,) * 4, cameras=("front",), change=in_turn).write(tmp_path / "d")
        ).codes()
    )

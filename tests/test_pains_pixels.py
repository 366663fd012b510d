"""Public reports of wrong pictures, and of policies blamed for them, rebuilt small: verdict, numbers, and a control that stays quiet.

Each test names its report: CP of cameras and pixels, PB of policy behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from simgap import causes
from simgap.causes import Cause
from simgap.checks.data.clock import repeats as data_repeats
from simgap.checks.data.dataset import DataReport, check_data
from simgap.checks.deployment.preflight import (
    check_alive,
    check_crop,
    check_orientation,
    check_reset,
    check_slots,
)
from simgap.checks.deployment.visible import check_light, check_visible
from simgap.checks.policy.behaviour import (
    Evidence,
    check_collapse,
    check_frames,
    closed_loop_gain,
    cross_test,
    image_sensitivity,
    read_evidence,
    spread_ratio,
)
from simgap.conventions import VectorSpec
from simgap.envs.arm.pick import ArmPickEnv
from simgap.findings import CheckResult, Verdict
from synthetic import ACTION_SPEC
from test_data_check_planted import Recording, clean, edit_json, write

Frame = NDArray[np.uint8]


def scene(seed: int, size: int = 48, *, warm: bool = False) -> Frame:
    """Return a picture with a coarse pattern that no turn or mirror leaves alone."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(30, 200, (6, 6, 3))
    frame = np.kron(coarse, np.ones((size // 6, size // 6, 1))).astype(np.int16)
    frame[: size // 3, : size // 5] = (235, 60, 40) if warm else (40, 60, 235)
    return np.clip(frame, 0, 255).astype(np.uint8)


def views(seed: int, count: int, *, warm: bool = False, noise: float = 3.0) -> Frame:
    """Return frames of one camera: the same scene, a hand that moves, noise."""
    rng = np.random.default_rng((seed, count))
    frames = np.repeat(scene(seed, warm=warm)[None], count, axis=0).astype(np.int16)
    for k in range(count):
        frames[k, 20:30, (3 * k) % 38 : (3 * k) % 38 + 8] = 120
    return np.clip(frames + rng.normal(0, noise, frames.shape), 0, 255).astype(np.uint8)


# --- CP-01: a camera in another's slot --------------------------------------------------------------------------------


def test_cp01_swapped_cameras_are_told_by_the_distance_matrix_and_alike_ones_cannot_be() -> None:
    training = {"front": views(1, 20), "wrist": views(2, 20, warm=True)}
    live = {"front": views(1, 3), "wrist": views(2, 3, warm=True)}
    right = check_slots(live, training)
    assert (right.verdict, right.numbers["assignment"]) == (Verdict.OK, [0, 1])
    wrong = check_slots({"front": live["wrist"], "wrist": live["front"]}, training)
    assert (wrong.verdict, wrong.cause, wrong.numbers["assignment"]) == (
        Verdict.BROKEN,
        causes.PIXELS_OTHER,
        [1, 0],
    )
    assert "front shows wrist" in wrong.sentence
    matrix = np.array(wrong.numbers["distance"])
    assert wrong.numbers["own_over_best"] == pytest.approx(np.trace(matrix) / (matrix[0, 1] + matrix[1, 0]))
    assert wrong.numbers["own_over_best"] > 5
    twins = {"front": views(1, 20), "wrist": views(1, 20)}
    assert check_slots({"front": views(1, 3), "wrist": views(1, 3)}, twins).verdict is Verdict.CANNOT_TELL


# --- CP-02, CP-03: turned and mirrored --------------------------------------------------------------------------------

TURNED: dict[str, Callable[[Frame], Frame]] = {
    "rot180": lambda f: f[:, ::-1, ::-1],
    "vflip": lambda f: f[:, ::-1],
    "hflip": lambda f: f[:, :, ::-1],
    "rot90": lambda f: np.swapaxes(f, 1, 2)[:, :, ::-1],
    "rot270": lambda f: np.swapaxes(f, 1, 2)[:, ::-1],
    "transpose": lambda f: np.swapaxes(f, 1, 2),
}


@pytest.mark.parametrize("turn", TURNED)
def test_cp02_the_turn_or_mirror_that_maps_live_to_training_frames_is_named(turn: str) -> None:
    result = check_orientation(np.ascontiguousarray(TURNED[turn](views(3, 4))), views(3, 20), camera="top")
    assert (result.verdict, result.numbers["best"]) == (Verdict.BROKEN, turn)
    assert result.numbers["is_mirror"] == (turn in ("hflip", "vflip", "transpose"))
    assert ("mirrored" if result.numbers["is_mirror"] else "turned") in result.sentence


def test_cp02_frames_as_in_training_pass_in_other_light_and_a_symmetric_scene_cannot_tell() -> None:
    darker = (0.6 * views(3, 4)).astype(np.uint8)
    assert check_orientation(darker, views(3, 20)).verdict is Verdict.OK
    even = np.full((4, 48, 48, 3), 90, np.uint8)
    even[:, 12:36, 12:36] = 180
    assert check_orientation(even, even).verdict is Verdict.CANNOT_TELL


# --- CP-04: over-specialised to the camera's pose ---------------------------------------------------------------------


class Pointer:
    """Reaches where it sees the target: the centroid of what is red, in pixels, read as a place."""

    cameras: tuple[str, ...] = ("front",)
    image_size = 48
    chunk = 1
    action_spec: VectorSpec = ACTION_SPEC
    state_spec: VectorSpec = ACTION_SPEC

    def predict(self, images: Mapping[str, Frame], state: NDArray[np.float32]) -> NDArray[np.float32]:
        frames = images["front"].astype(np.int16)
        red = (frames[..., 0] - frames[..., 2] > 60).astype(np.float64)
        at = np.array(
            [[np.average(np.arange(48), weights=r.sum(axis=k) + 1e-9) for k in (0, 1)] for r in red]
        )
        return np.concatenate([at, np.zeros((len(at), 1))], axis=1)[:, None].astype(np.float32)

    def stamp_fields(self) -> Mapping[str, Any]:
        return {}


def table_with_target(x: int, y: int, shift: int = 0) -> Frame:
    frame = np.full((1, 48, 48, 3), 90, np.uint8)
    frame[:, y : y + 6, x + shift : x + shift + 6] = (220, 30, 30)
    return frame


def reaches(shift: int, trials: int = 20) -> tuple[int, int]:
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(trials):
        x, y = rng.integers(2, 28, 2)
        at = Pointer().predict({"front": table_with_target(x, y, shift)}, np.zeros((1, 3), np.float32))[0, 0]
        hits += bool(np.hypot(at[0] - x - 2.5, at[1] - y - 2.5) < 6.0)
    return hits, trials


def test_cp04_high_as_trained_and_low_after_a_camera_shift_with_replay_intact_is_over_specialisation() -> (
    None
):
    near, far = reaches(0), reaches(12)
    assert near == (20, 20)
    assert far[0] <= 2
    result = read_evidence(
        Evidence(in_training=near, shifted=far, replay_passes=True, what_shifted="the camera")
    )
    assert (result.verdict, result.cause) == (Verdict.BROKEN, causes.NARROW_DATA)
    assert "camera moved" in result.sentence
    assert result.numbers["in_training_interval"][0] == pytest.approx(0.84, abs=0.005)
    assert (
        read_evidence(Evidence(in_training=near, shifted=(19, 20), replay_passes=True)).verdict is Verdict.OK
    )


# --- CP-05: the first picture is of the scene before ------------------------------------------------------------------


class LateRenderer:
    """An env whose picture after a reset is that of the last reset's scene; ``late`` False renders what is there."""

    def __init__(self, *, late: bool) -> None:
        self._late, self._shown, self._scene = late, scene(0), scene(0)

    def reset(self, seed: int) -> Frame:
        self._shown = self._scene if self._late else scene(seed)
        self._scene = scene(seed)
        return self._shown

    def hold(self) -> Frame:
        return self._scene


@pytest.mark.parametrize("late", [True, False])
def test_cp05_a_renderer_that_lags_one_reset_shows_at_time_zero_only(late: bool) -> None:
    env = LateRenderer(late=late)
    first, held, later = [], [], []
    for seed in range(1, 6):
        first.append(env.reset(seed))
        held.append(env.hold())
        later.append(env.hold())
    result = check_reset(first, held, later)
    assert result.verdict is (Verdict.BROKEN if late else Verdict.OK)
    assert (result.numbers["at_reset"] > 5.0) is late
    assert result.numbers["after"] == 0.0


def test_cp05_our_own_env_shows_the_scene_it_was_reset_to() -> None:
    env = ArmPickEnv(image_size=48)
    frames: list[list[Frame]] = [[], [], []]
    for seed in range(3):
        obs, _ = env.reset(seed=seed)
        hold = obs["state"].astype(np.float32)
        frames[0].append(obs["front"])
        for row in frames[1:]:
            obs, *_ = env.step(hold)
            row.append(obs["front"])
    env.close()
    assert check_reset(*frames).verdict is Verdict.OK


def moving_scene(seed: int, frames: int = 30) -> Frame:
    """Return an episode's pictures on a grid of 16 x 24: a still scene of its own and a bar that moves slowly."""
    rng = np.random.default_rng(seed)
    background = np.kron(rng.integers(40, 200, (4, 6, 3)), np.ones((4, 4, 1))).astype(np.uint8)
    shown: Frame = np.repeat(background[None], frames, axis=0)
    for k in range(frames):
        at = 20 - abs(k // 2 % 40 - 20)
        shown[k, 14:16, at : at + 4] = (250, 250, 20)
    return shown


def recorded(episodes: int, cameras: Mapping[str, Callable[[int], Frame]], frames: int = 30) -> Recording:
    recording = clean(episodes=episodes, length=frames)
    recording.cameras = {name: [view(k) for k in range(episodes)] for name, view in cameras.items()}
    recording.spec_changes = {"codec": "png"}
    return recording


def codes(report: DataReport) -> set[str]:
    return {f.code for f in report.findings}


def test_cp05_a_dataset_whose_first_frames_are_of_the_episode_before_is_faulty(tmp_path: Path) -> None:
    honest = recorded(6, {"front": moving_scene})
    assert "stale_first_frame" not in codes(check_data(write(tmp_path / "honest", honest)))
    stale = recorded(6, {"front": moving_scene})
    frames = stale.cameras["front"]
    for k in range(5, 0, -1):
        frames[k][0] = frames[k - 1][-1]
    finding = next(
        f for f in check_data(write(tmp_path / "stale", stale)).findings if f.code == "stale_first_frame"
    )
    assert finding.numbers["episodes"] == {"front": [1, 2, 3, 4, 5]}


# --- CP-07: pictures that the training decoder does not show ----------------------------------------------------------


def test_cp07_flat_black_and_exchanged_frames_are_told_from_a_dark_scene_with_texture() -> None:
    wood = np.clip(np.random.default_rng(0).normal((180, 120, 60), 25, (5, 32, 32, 3)), 0, 255).astype(
        np.uint8
    )
    colour = (180.0, 120.0, 60.0)
    assert check_alive(wood, colour=colour).verdict is Verdict.OK
    flat = check_alive(np.full((5, 32, 32, 3), 135, np.uint8))
    assert (flat.verdict, flat.value) == (Verdict.BROKEN, 0.0)
    assert "flat" in flat.sentence
    assert check_alive(np.zeros((5, 32, 32, 3), np.uint8)).verdict is Verdict.BROKEN
    swapped = check_alive(wood[..., ::-1], colour=colour)
    assert swapped.verdict is Verdict.BROKEN
    assert "Red and blue" in swapped.sentence
    assert swapped.numbers["off_exchanged"] < 2 < swapped.numbers["off"]
    dark = np.clip(np.random.default_rng(1).normal(12, 6, (5, 32, 32, 3)), 0, 38).astype(np.uint8)
    assert check_alive(dark).verdict is Verdict.OK


def coloured(seed: int) -> Frame:
    shown = moving_scene(seed).astype(np.int16)
    return np.asarray(np.clip(0.3 * shown + np.array((150, 80, 20)), 0, 255), dtype=np.uint8)


def test_cp07_videos_that_decode_to_one_colour_are_named_and_dark_texture_is_not(tmp_path: Path) -> None:
    grey = recorded(
        3, {"front": lambda k: np.full((30, 16, 24, 3), 128, np.uint8) if k == 1 else moving_scene(k)}
    )
    grey.spec_changes = {}
    finding = next(f for f in check_data(write(tmp_path / "grey", grey)).findings if f.code == "flat_video")
    assert list(finding.numbers["spread"]) == ["front in episode 1"]
    dim = recorded(3, {"front": lambda k: moving_scene(k) // 6})
    assert not codes(check_data(write(tmp_path / "dim", dim))) & {"flat_video", "black_video"}


def test_cp07_red_and_blue_exchanged_in_some_episodes_are_found_by_the_others(tmp_path: Path) -> None:
    alike = recorded(5, {"front": lambda k: coloured(0)})
    assert not codes(check_data(write(tmp_path / "alike", alike))) & {"channels_exchanged"}
    mixed = recorded(5, {"front": lambda k: coloured(0)[..., ::-1].copy() if k in (1, 3) else coloured(0)})
    found = [
        f for f in check_data(write(tmp_path / "mixed", mixed)).findings if f.code == "channels_exchanged"
    ]
    assert {"front": {"episodes": [1, 3], "of": 5}} in [dict(f.numbers) for f in found]


def test_cp07_red_and_blue_exchanged_everywhere_are_found_against_the_stored_statistics(
    tmp_path: Path,
) -> None:
    root = write(tmp_path / "d", recorded(4, {"front": lambda k: coloured(k)}))
    assert "channels_exchanged" not in codes(check_data(root))
    edit_json(root / "meta" / "stats.json", lambda s: s["observation.images.front"]["mean"].reverse())
    finding = next(f for f in check_data(root).findings if f.code == "channels_exchanged")
    stored, frames = (finding.numbers["front"][k] for k in ("stored_mean", "frames_mean"))
    assert stored == pytest.approx(frames[::-1], abs=0.02)


def test_cp07_grey_pictures_and_changing_light_are_no_exchange(tmp_path: Path) -> None:
    def grey(k: int) -> Frame:
        shown = moving_scene(0).mean(axis=-1, keepdims=True) * (0.7 + 0.1 * k)
        return np.asarray(np.clip(np.repeat(shown, 3, axis=-1), 0, 255), dtype=np.uint8)

    warmer = recorded(
        4,
        {
            "front": grey,
            "side": (
                lambda k: np.clip(
                    coloured(0) * np.array([1.0 - 0.05 * k, 1.0, 1.0 + 0.1 * k]), 0, 255
                ).astype(np.uint8)
            ),
        },
    )
    assert "channels_exchanged" not in codes(check_data(write(tmp_path / "d", warmer)))


# --- exchanged cameras, freezes and partial copies in a dataset -------------------------------------------------------


@pytest.mark.slow
def test_two_cameras_exchanged_in_some_episodes_are_found_and_twins_are_not(tmp_path: Path) -> None:
    def front(k: int) -> Frame:
        return moving_scene(1)

    def side(k: int) -> Frame:
        return coloured(2)

    assert "cameras_exchanged" not in codes(
        check_data(write(tmp_path / "right", recorded(5, {"front": front, "side": side})))
    )
    wrong = recorded(5, {"front": front, "side": side})
    for k in (2, 4):
        wrong.cameras["front"][k], wrong.cameras["side"][k] = (
            wrong.cameras["side"][k],
            wrong.cameras["front"][k],
        )
    finding = next(
        f for f in check_data(write(tmp_path / "wrong", wrong)).findings if f.code == "cameras_exchanged"
    )
    assert (finding.numbers["cameras"], finding.numbers["episodes"]) == (["front", "side"], [2, 4])
    twins = recorded(4, {"front": front, "side": front})
    assert "cameras_exchanged" not in codes(check_data(write(tmp_path / "twins", twins)))


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["png", "h264"])
def test_a_video_that_freezes_half_way_is_found_and_one_that_rests_with_the_robot_is_not(
    codec: str, tmp_path: Path
) -> None:
    def half(k: int) -> Frame:
        shown = np.concatenate([moving_scene(k, 60), moving_scene(k, 60)[::-1]])
        if k == 1:
            shown[60:] = shown[60]
        return shown

    frozen = recorded(3, {"front": half}, frames=120)
    frozen.spec_changes = {"codec": codec}
    report = check_data(write(tmp_path / "frozen", frozen))
    named = [f for f in report.findings if f.code in ("feed_freezes", "frozen_segment")]
    assert named
    assert all("episode 1" in f.sentence and "episode 0" not in f.sentence for f in named)
    resting = recorded(3, {"front": half}, frames=120)
    resting.spec_changes = {"codec": codec}
    for table in (*resting.actions, *resting.states):
        table[56:] = table[56]
    assert not codes(check_data(write(tmp_path / "resting", resting))) & {"feed_freezes", "frozen_segment"}


def test_a_freeze_in_an_episode_that_is_not_decoded_whole_is_found_to_the_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(k: int) -> Frame:
        shown = moving_scene(k, 400)
        if k == 2:
            shown[200:300] = shown[200]
        return shown

    monkeypatch.setattr(data_repeats, "MOST_PIXELS", 1)
    monkeypatch.setattr(data_repeats, "FEWEST_FRAMES", 10)
    recording = recorded(3, {"front": half}, frames=400)
    recording.spec_changes = {}
    finding = next(
        f for f in check_data(write(tmp_path / "d", recording)).findings if f.code == "frozen_segment"
    )
    assert list(finding.numbers["segments"]) == ["front in episode 2"]
    segment = finding.numbers["segments"]["front in episode 2"]
    assert (segment["from_s"], segment["to_s"]) == (
        pytest.approx(10.0, abs=0.06),
        pytest.approx(15.0, abs=0.06),
    )


def test_partly_copied_episodes_are_found_with_their_rows_and_pauses_are_no_copies(tmp_path: Path) -> None:
    recording = clean(episodes=4, length=120)
    for table in (*recording.actions, *recording.states):
        table[:40] = 7.0  # all begin at rest in the same pose
    assert "partly_duplicated_episodes" not in codes(check_data(write(tmp_path / "clean", recording)))
    for tables in (recording.actions, recording.states):
        tables[3][60:110] = tables[1][50:100]
    finding = next(
        f
        for f in check_data(write(tmp_path / "copied", recording)).findings
        if f.code == "partly_duplicated_episodes"
    )
    assert finding.numbers["copies"] == [
        {"first": 1, "second": 3, "start_first": 50, "start_second": 60, "rows": 50}
    ]


# --- CP-08, CP-09, CP-10: crop, light, visibility ----------------------------------------------------------------------


def test_cp08_a_missing_centre_crop_is_measured_and_an_equal_one_passes() -> None:
    rng = np.random.default_rng(0)
    wide = np.stack(
        [np.kron(rng.integers(30, 220, (12, 12, 3)), np.ones((20, 20, 1))).astype(np.uint8) for _ in range(3)]
    )
    margin = round(240 * (1 - np.sqrt(0.9)) / 2)
    cropped = wide[:, margin : 240 - margin, margin : 240 - margin]
    result = check_crop(wide, cropped)
    assert result.verdict is Verdict.BROKEN
    assert result.numbers["side"] == pytest.approx(0.949, abs=0.01)
    assert result.numbers["radial_error"] == pytest.approx(0.054, abs=0.012)
    assert check_crop(wide, wide).verdict is Verdict.OK


def test_cp09_a_brighter_plate_is_reported_as_a_number_of_its_own() -> None:
    plate = views(4, 5)
    result = check_light(np.clip(plate.astype(int) + 40, 0, 255).astype(np.uint8), plate)
    assert (result.verdict, result.cause) == (Verdict.BROKEN, causes.LIGHT_COLOUR)
    assert result.value == pytest.approx(40, abs=2)
    assert check_light(views(4, 3), plate).verdict is Verdict.OK


def cube_on_table(value: float) -> tuple[Frame, NDArray[np.bool_]]:
    rng = np.random.default_rng(0)
    region = np.zeros((40, 40), dtype=bool)
    region[15:25, 15:25] = True
    lit = np.where(region, value, 250.0)[None, ..., None] + rng.normal(0, 2, (6, 40, 40, 3))
    return np.clip(lit, 0, 255).astype(np.uint8), region


def test_cp10_an_over_exposed_object_is_found_before_any_rollout() -> None:
    bright = check_visible(*cube_on_table(255.0))
    assert bright.verdict is Verdict.BROKEN
    assert bright.value is not None
    assert bright.value < 3.0
    assert bright.numbers["saturated_share"] > 0.2
    dark = check_visible(*cube_on_table(120.0))
    assert dark.verdict is Verdict.OK
    assert dark.value is not None
    assert dark.value > 30


# --- PB-01: it does not look ------------------------------------------------------------------------------------------


class Recorder(Pointer):
    """Replays a stored trajectory by the step in its state and ignores the picture."""

    def predict(self, images: Mapping[str, Frame], state: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.stack([np.sin(state[:, 0] / 5.0), np.cos(state[:, 0] / 5.0), 0 * state[:, 0]], axis=1)[
            :, None
        ].astype(np.float32)


def test_pb01_a_policy_that_ignores_pictures_is_over_specialised_and_not_collapsed() -> None:
    rng = np.random.default_rng(0)
    images = {"front": np.concatenate([table_with_target(int(x), 20) for x in rng.integers(2, 40, 30)])}
    state = np.arange(30, dtype=np.float32)[:, None] * np.ones((1, 3), np.float32)
    blind, seeing = Recorder(), Pointer()
    labels = blind.predict(images, state)[:, 0]
    assert image_sensitivity(blind, images, state, labels, rng)["front"] == 0.0
    places = seeing.predict(images, state)[:, 0]
    assert image_sensitivity(seeing, images, state, places, rng)["front"] > 0.2
    assert (
        check_collapse(blind.predict(images, state)[:, 0, :2], labels[:, :2], ("x", "y")).verdict
        is Verdict.OK
    )
    result = read_evidence(
        Evidence(
            in_training=(20, 20),
            shifted=(2, 20),
            replay_passes=True,
            image_sensitivity=0.0,
            smallest_spread_ratio=1.0,
        )
    )
    assert (result.verdict, result.cause) == (Verdict.BROKEN, causes.NARROW_DATA)
    assert "does not look" in result.sentence


# --- PB-02: a long rest at the start ----------------------------------------------------------------------------------


def starts(rest: int) -> Recording:
    recording = clean(episodes=20, length=150)
    recording.spec_changes = {}
    for table in (*recording.actions, *recording.states):
        table[:rest] = table[rest]
    return recording


def test_pb02_a_rest_longer_than_the_chunk_is_flagged_and_a_short_one_is_not(tmp_path: Path) -> None:
    report = check_data(write(tmp_path / "long", starts(70)))
    finding = next(f for f in report.findings if f.code == "idle_start")
    assert finding.numbers["median"] == pytest.approx(70, abs=2)
    assert len(finding.numbers["frames"]) == 20
    assert "trim" in finding.remedy
    short = check_data(write(tmp_path / "short", starts(10)))
    assert "idle_start" not in codes(short)
    assert short.measurements["values"]["idle_start_frames"]["median"] == pytest.approx(10, abs=2)


# --- PB-03: exact on its data, unstable around it ---------------------------------------------------------------------


def test_pb03_exact_open_loop_and_a_growing_deviation_is_execution_and_not_a_lack_of_data() -> None:
    path = np.linspace(0.0, 1.0, 60)[:, None]

    def act(x: NDArray[np.float64], k: int) -> NDArray[np.float64]:
        return np.asarray(path[min(k + 1, 59)] - path[k] + 0.2 * (x - path[k]))

    open_loop = np.array([act(path[k], k) - (path[min(k + 1, 59)] - path[k]) for k in range(59)])
    assert np.square(open_loop).mean() == 0.0
    gain = closed_loop_gain(lambda x: 1.2 * x, np.array([0.3]))
    assert gain == pytest.approx(1.2, abs=1e-6)
    result = read_evidence(
        Evidence(in_training=(1, 20), shifted=(1, 20), replay_passes=True, open_loop_ratio=0.0, gain=gain)
    )
    assert (result.verdict, result.cause) == (Verdict.BROKEN, causes.EXECUTION)
    assert "1.20 a step" in result.sentence
    assert closed_loop_gain(lambda x: 0.8 * x, np.array([0.3])) < 1.0
    unknown = read_evidence(Evidence(in_training=(1, 20), shifted=(1, 20)))
    assert unknown.verdict is Verdict.CANNOT_TELL


# --- PB-04, PB-05: collapse -------------------------------------------------------------------------------------------


def test_pb04_one_collapsed_channel_is_named_with_its_balance() -> None:
    rng = np.random.default_rng(0)
    labels = np.column_stack([rng.normal(size=(500, 2)), np.arange(500) % 100 < 6])
    predictions = np.column_stack([labels[:, :2] + rng.normal(0, 0.05, (500, 2)), np.full(500, 0.06)])
    result = check_collapse(predictions, labels, ("x", "y", "gripper"))
    assert (result.verdict, result.cause) == (Verdict.BROKEN, causes.POLICY)
    assert "gripper collapsed (ratio 0.0" in result.sentence
    assert result.numbers["rare"] == {"gripper": pytest.approx(0.06)}
    assert spread_ratio(predictions, labels)[:2] == pytest.approx([1.0, 1.0], abs=0.02)
    predictions[:, 2] = labels[:, 2]
    assert check_collapse(predictions, labels, ("x", "y", "gripper")).verdict is Verdict.OK


def test_pb05_flat_on_training_frames_and_flat_on_live_ones_get_two_verdicts() -> None:
    labels = np.random.default_rng(0).normal(size=(200, 3))
    flat = np.zeros_like(labels)
    everywhere = check_frames(flat, flat, labels, labels)
    assert (everywhere.verdict, everywhere.cause) == (Verdict.BROKEN, causes.POLICY)
    live_only = check_frames(labels, flat, labels, labels)
    assert (live_only.verdict, live_only.cause) == (Verdict.BROKEN, causes.PIXELS_OTHER)
    assert check_frames(labels, labels, labels, labels).verdict is Verdict.OK


# --- PB-07: whose picture, whose state --------------------------------------------------------------------------------


def crossed(*, image: float, state: float) -> CheckResult:
    """Run a policy that reads brightness: real pictures are brighter by ``image``, real states off by ``state``."""
    outcomes = {}
    for s in ("real", "sim"):
        for i in ("real", "sim"):
            seen = 100.0 + (image if i == "real" else 0.0)
            fits = abs(seen - 100.0) < 20.0 and abs(state if s == "real" else 0.0) < 5.0
            outcomes[s, i] = (10 if fits else 0, 10)
    return cross_test(outcomes)


def test_pb07_failing_with_real_pictures_only_is_a_gap_of_pictures() -> None:
    result = crossed(image=60.0, state=0.0)
    assert (result.verdict, result.cause) == (Verdict.BROKEN, causes.PIXELS_OTHER)
    assert result.numbers["pooled"]["image"] == {"real": [0, 20], "sim": [20, 20]}
    assert crossed(image=0.0, state=0.0).verdict is Verdict.OK
    assert crossed(image=0.0, state=30.0).cause is causes.ACTION_CONVENTION
    assert crossed(image=60.0, state=30.0).verdict is not Verdict.OK


# --- reading the evidence in order ------------------------------------------------------------------------------------

ORDER: dict[str, tuple[dict[str, Any], Cause]] = {
    "a replay that fails comes first": (
        {"replay_passes": False, "smallest_spread_ratio": 0.0},
        causes.ACTION_CONVENTION,
    ),
    "a collapsed channel": ({"replay_passes": True, "smallest_spread_ratio": 0.02}, causes.POLICY),
    "good open loop": ({"replay_passes": True, "open_loop_ratio": 0.05}, causes.EXECUTION),
}


@pytest.mark.parametrize("case", ORDER)
def test_evidence_is_read_in_the_order_of_diagnosis(case: str) -> None:
    fields, cause = ORDER[case]
    assert read_evidence(Evidence(in_training=(1, 20), shifted=(0, 20), **fields)).cause is cause

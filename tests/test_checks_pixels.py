"""The pixel check on rendered stills: camera, light, something unmodelled, and what must not fire."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from arm_fixtures import condition
from simgap import causes
from simgap.checks.pixels import pose_and_light as module
from simgap.checks.pixels.pose_and_light import (
    LIGHT_FACTORS,
    LIMIT,
    CameraComparison,
    check_pixels,
    pose_factors,
)
from simgap.envs.arm.factors import PLACEMENT_FACTORS
from simgap.envs.arm.pick import ArmPickEnv
from simgap.findings import CheckResult, Verdict
from simgap.measures import fits as fit_pixels
from simgap.measures.fits import PixelFit, Still
from simgap.provenance import canonical_json

Frame = NDArray[np.uint8]
CAMERA = {
    "front_camera_dx_m": 0.03,
    "front_camera_dy_m": -0.03,
    "front_camera_pitch_deg": 5.0,
    "front_camera_yaw_deg": -6.0,
    "front_camera_roll_deg": 4.0,
}
LIGHT = {
    "light_intensity": 0.42,
    "light_warmth": 0.8,
    "light_azimuth_deg": -120.0,
    "table_grey": 0.34,
    "target_hue_deg": 12.0,
}


@pytest.fixture(scope="module")
def env() -> Iterator[ArmPickEnv]:
    made = ArmPickEnv(image_size=48)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _short_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        module,
        "fit_group",
        lambda *args, rng, generations=3: fit_pixels.fit_group(*args, rng=rng, generations=3),
    )


def stills(
    env: ArmPickEnv,
    *,
    cameras: Sequence[str] = ("front",),
    count: int = 1,
    paint: Callable[[Frame], None] | None = None,
    **values: float,
) -> dict[str, list[Still]]:
    """Return first frames of a robot with sensor noise, everything else as given."""
    found: dict[str, list[Still]] = {c: [] for c in cameras}
    for seed in range(count):
        factors = condition(seed, image_noise=2.0, encoder_noise_deg=0.1, **values)
        obs, _ = env.reset(seed=seed, options={"factors": factors})
        for camera in cameras:
            frame = obs[camera].copy()
            if paint is not None:
                paint(frame)
            found[camera].append(
                Still(frame=frame, state=obs["state"], placements={k: factors[k] for k in PLACEMENT_FACTORS})
            )
    return found


def explained(found: CheckResult) -> tuple[float, float]:
    shares = found.numbers["explained"]
    return shares["light and colour"], shares["camera pose"]


def test_the_same_pictures_with_sensor_noise_are_ok_on_both_cameras(env: ArmPickEnv) -> None:
    found = check_pixels(env, stills(env, cameras=("front", "wrist"), count=4), assumes=("renderer=x",))
    assert (found.verdict, found.cause, found.n, found.assumes) == (
        Verdict.OK,
        causes.NONE,
        4,
        ("renderer=x",),
    )
    assert found.value is not None
    assert found.value < LIMIT / 2


def test_everyday_tolerances_of_camera_and_light_are_ok(env: ArmPickEnv) -> None:
    for sign in (-1.0, 1.0):
        everyday = {f"front_camera_d{axis}_m": 0.0005 * sign for axis in "xyz"} | {
            "light_intensity": 1.0 + 0.03 * sign
        }
        assert (
            check_pixels(env, stills(env, cameras=("front", "wrist"), count=2, **everyday)).verdict
            is Verdict.OK
        )


def test_a_camera_that_moved_is_named_and_its_pose_is_fitted(env: ArmPickEnv) -> None:
    found = check_pixels(env, stills(env, cameras=("front", "wrist"), **CAMERA))
    assert (found.verdict, found.cause) == (Verdict.BROKEN, causes.CAMERA_SHIFT)
    light, pose = explained(found)
    assert pose > 0.8
    assert pose > light + 0.3
    assert "front camera has moved" in found.sentence
    assert "light" not in found.numbers["wrist"], "the wrist camera is where it was"
    assert set(found.numbers["fitted"]) == set(pose_factors(env, "front"))


@pytest.mark.slow
def test_another_light_is_named_with_one_light_for_both_cameras(env: ArmPickEnv) -> None:
    pictures = stills(env, cameras=("front", "wrist"), **LIGHT)
    found = check_pixels(env, pictures)
    assert (found.verdict, found.cause) == (Verdict.BROKEN, causes.LIGHT_COLOUR)
    light, pose = explained(found)
    assert light > 0.9
    assert light > pose + 0.3
    fitted = found.numbers["fitted"]
    assert set(fitted) == set(LIGHT_FACTORS)
    assert fitted in [found.numbers[c]["light"]["values"] for c in ("front", "wrist")]
    assert fitted["light_intensity"] == pytest.approx(0.42, abs=0.08)
    assert fitted["light_warmth"] == pytest.approx(0.8, abs=0.2)


def test_of_two_light_fits_the_one_that_suits_all_cameras_is_kept_and_no_mean_of_them(
    env: ArmPickEnv,
) -> None:
    pictures = stills(env, cameras=("front", "wrist"), **LIGHT)
    true = {n: LIGHT.get(n, env.factor_space.factors[n].nominal) for n in LIGHT_FACTORS}
    valley = true | {"light_azimuth_deg": 120.0, "target_hue_deg": -14.0}
    fits = [
        CameraComparison(camera=c, difference=50.0, light=PixelFit(values=v, residual=2.0, evaluations=1))
        for c, v in (("front", valley), ("wrist", true))
    ]
    assert module._light_of_all(env, fits, pictures) == true


def _painted(frame: Frame) -> None:
    frame[20:44, 4:24] = (20, 160, 40)


def _hand_before_the_lens(frame: Frame) -> None:
    frame[:, :30] = 0


def _mirrored(frame: Frame) -> None:
    frame[:] = frame[:, ::-1].copy()


@pytest.mark.parametrize("paint", [_painted, _hand_before_the_lens])
def test_a_foreign_object_in_view_is_neither_camera_nor_light(
    env: ArmPickEnv, paint: Callable[[Frame], None]
) -> None:
    found = check_pixels(env, stills(env, paint=paint))
    assert (found.verdict, found.cause) == (Verdict.BROKEN, causes.PIXELS_OTHER)
    assert max(explained(found)) < module.EXPLAINED
    assert found.numbers["fitted"] == {}


def _channels_exchanged(frame: Frame) -> None:
    frame[:] = frame[..., ::-1].copy()


def _upside_down(frame: Frame) -> None:
    frame[:] = frame[::-1].copy()


def _turned(frame: Frame) -> None:
    frame[:] = frame[::-1, ::-1].copy()


@pytest.mark.parametrize("camera", ["front", "wrist"])
@pytest.mark.parametrize(
    ("paint", "words"),
    [
        (_mirrored, "mirrored left to right"),
        (_channels_exchanged, "red and blue"),
        (_upside_down, "upside down"),
        (_turned, "turned by 180"),
    ],
)
def test_pixels_in_another_order_are_named_and_never_called_another_pose(
    env: ArmPickEnv, camera: str, paint: Callable[[Frame], None], words: str
) -> None:
    found = check_pixels(env, stills(env, cameras=(camera,), paint=paint))
    assert (found.verdict, found.cause) == (Verdict.BROKEN, causes.PIXELS_OTHER)
    assert f"{camera} picture is " in found.sentence
    assert words in found.sentence
    assert words in found.numbers[camera]["rearranged"]
    assert found.numbers["fitted"] == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("camera", "paint", "words", "factors"),
    [
        pytest.param(
            "front",
            _mirrored,
            "mirrored left to right",
            {"light_azimuth_deg": -120.0},
            marks=pytest.mark.slow,
        ),
        ("wrist", _channels_exchanged, "red and blue", {"light_warmth": -1.0}),
    ],
)
def test_pixels_in_another_order_under_another_light_are_named_and_no_wrong_light_is_fitted(
    env: ArmPickEnv, camera: str, paint: Callable[[Frame], None], words: str, factors: dict[str, float]
) -> None:
    found = check_pixels(env, stills(env, cameras=(camera,), paint=paint, **factors))
    assert (found.verdict, found.cause) == (Verdict.BROKEN, causes.PIXELS_OTHER)
    assert words in found.numbers[camera]["rearranged"]
    assert "under other light" in found.sentence
    assert found.numbers["fitted"] == {}


@pytest.mark.slow
def test_a_mirror_before_a_camera_that_turned_right_is_not_called_one_that_turned_left(
    env: ArmPickEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "fit_group", fit_pixels.fit_group)
    found = check_pixels(env, stills(env, paint=_mirrored, count=2, front_camera_yaw_deg=8.0))
    assert (found.verdict, found.cause) == (Verdict.BROKEN, causes.PIXELS_OTHER), found.sentence
    assert "mirrored left to right" in found.sentence
    assert "under another camera pose" in found.sentence
    assert found.numbers["front"]["pose"]["values"]["front_camera_yaw_deg"] == pytest.approx(8.0, abs=2.0)


@pytest.mark.slow
def test_a_moved_camera_under_another_light_is_in_no_mirror(env: ArmPickEnv) -> None:
    found = check_pixels(env, stills(env, **CAMERA, light_intensity=0.6, light_warmth=0.5))
    assert found.verdict is Verdict.BROKEN
    assert "rearranged" not in found.numbers["front"]


@pytest.mark.parametrize("pictures", [{}, {"front": []}, {"front": [], "wrist": []}])
def test_without_stills_the_check_is_not_run_and_says_so(
    env: ArmPickEnv, pictures: dict[str, list[Still]]
) -> None:
    found = check_pixels(env, pictures)
    assert (found.verdict, found.cause, found.value, found.n) == (Verdict.NOT_RUN, causes.NONE, None, None)


@pytest.mark.parametrize("difference", [0.0, 2.5, 6.0])
def test_nothing_is_explained_where_there_is_no_fit_or_nothing_above_the_floor(difference: float) -> None:
    compared = CameraComparison(camera="front", difference=difference)
    assert not compared.differs
    assert compared.explained(None) == 0.0
    assert 0.0 <= compared.explained(PixelFit(values={}, residual=0.0, evaluations=1)) <= 1.0


def test_the_search_gives_the_same_fit_twice_and_stays_inside_its_bounds(env: ArmPickEnv) -> None:
    pictures = stills(env, light_intensity=0.4)["front"]
    bounds = {"light_intensity": (0.25, 1.8), "table_grey": (0.15, 0.9)}
    search = functools.partial(fit_pixels.fit_group, env, "front", pictures, bounds, generations=2)
    one, two = (search(rng=np.random.default_rng(3)) for _ in range(2))
    assert canonical_json(dict(one.values)) == canonical_json(dict(two.values))
    assert all(bounds[n][0] <= v <= bounds[n][1] for n, v in one.values.items())
    assert one.values["light_intensity"] == pytest.approx(0.4, abs=0.05)

"""Generation: the same spec gives the same bytes, a kill loses nothing that was written, rejects are counted, strangers refused."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from arm_fixtures import SIZE, blind, condition
from simgap.cli import main
from simgap.compute.ray import RayRunner
from simgap.envs import make_env
from simgap.envs.arm.factors import ARM_PRESETS
from simgap.envs.rendering import PixelNoise
from simgap.episodes.formats.video import decode_span
from simgap.episodes.reader import open_dataset
from simgap.episodes.write.encoders import ENCODINGS, VideoEncoder
from simgap.errors import DataError, UsageError
from simgap.provenance import child_rng, file_hash
from simgap.seeds import Purpose, seed_of
from simgap.teachers import Abstain, generation, make_teacher
from simgap.teachers.arm_pick import ArmPickTeacher
from simgap.teachers.generation import GenerateSpec, Rollout, generate, roll_teacher

SPEC = GenerateSpec(env="arm-pick", episodes=4, ranges=ARM_PRESETS["nominal"], image_size=SIZE, seed=3)


def hashes(root: Path) -> dict[str, str]:
    return {str(p.relative_to(root)): file_hash(p) for p in sorted(root.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generate(SPEC, tmp_path_factory.mktemp("straight") / "data", workers=0).root


def test_workers_make_the_same_bytes_as_one_process(straight: Path, tmp_path: Path) -> None:
    report = generate(SPEC, tmp_path / "data", workers=2)
    assert hashes(report.root) == hashes(straight)
    assert open_dataset(straight).fingerprint == open_dataset(report.root).fingerprint


def test_another_seed_makes_other_episodes(straight: Path, tmp_path: Path) -> None:
    other = generate(replace(SPEC, seed=4, episodes=1), tmp_path / "data", workers=0)
    assert not np.array_equal(
        open_dataset(other.root).episode(0, images=False).state[:5],
        open_dataset(straight).episode(0, images=False).state[:5],
    )


def test_more_episodes_begin_with_the_same_ones() -> None:
    assert [seed_of(Purpose.TRAIN, 3, i) for i in range(5)] == [
        seed_of(Purpose.TRAIN, 3, i) for i in range(50)
    ][:5]


def test_a_run_killed_with_its_workers_at_work_resumes_to_the_same_bytes(
    straight: Path, tmp_path: Path
) -> None:
    script = tmp_path / "run.py"
    script.write_text(f"""
import os
import signal
from pathlib import Path
from simgap.envs.arm.factors import ARM_PRESETS
from simgap.teachers.generation import GenerateSpec, generate
if __name__ == "__main__":
    spec = GenerateSpec(env="arm-pick", episodes={SPEC.episodes}, ranges=ARM_PRESETS["nominal"], image_size={SIZE}, seed={SPEC.seed})
    die = lambda done, total: done and os.kill(os.getpid(), signal.SIGKILL)
    generate(spec, Path({str(tmp_path / "data")!r}), workers=2, progress=die)
""")
    assert subprocess.run([sys.executable, str(script)], check=False).returncode == -signal.SIGKILL
    assert not (tmp_path / "data/meta/info.json").exists()
    seen: list[tuple[int, int]] = []
    report = generate(
        SPEC, tmp_path / "data", workers=0, progress=lambda done, total: seen.append((done, total))
    )
    assert 1 <= seen[0][0] <= SPEC.episodes  # the workers may have been done with all before the end came
    assert seen[-1] == (SPEC.episodes, SPEC.episodes)
    assert report.attempts < SPEC.episodes
    assert hashes(report.root) == hashes(straight)


def test_a_finished_run_is_returned_without_another_attempt(straight: Path) -> None:
    before = hashes(straight)
    report = generate(SPEC, straight, workers=2)
    assert (report.attempts, report.episodes) == (0, SPEC.episodes)
    assert hashes(straight) == before


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 4},
        {"noise_deg": 0.5},
        {"ranges": ARM_PRESETS["shifted"]},
        {"image_size": 64},
        {"purpose": Purpose.TARGET},
    ],
)
def test_a_folder_of_another_spec_is_refused_with_the_difference(
    change: dict[str, object], straight: Path
) -> None:
    with pytest.raises(DataError, match=r"another spec: .* on disk and .* now"):
        generate(replace(SPEC, **change), straight, workers=0)  # type: ignore[arg-type]


def test_only_successes_are_kept_and_the_label_is_clean(straight: Path) -> None:
    data = open_dataset(straight)
    for index in range(SPEC.episodes):
        episode = data.episode(index, images=False)
        assert episode.outcome.is_success
        noise = episode.extras["executed_action"] - episode.action
        assert not noise[:, 5].any()
        assert 0.2 < np.abs(noise[:, :5]).mean() < 4.0
        assert episode.factors == pytest.approx(condition(episode.seed))


def test_failed_and_abstained_attempts_are_counted_by_reason_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    honest = roll_teacher

    def unlucky(env, teacher, values, seed, noise_deg):  # type: ignore[no-untyped-def]
        calls.append(seed)
        if len(calls) == 1:
            return Rollout(episode=None, abstained="too far")
        if len(calls) == 3:
            teacher = _NeverCloses(env)
        return honest(env, teacher, values, seed, noise_deg)

    class _NeverCloses(ArmPickTeacher):
        def label(self):  # type: ignore[no-untyped-def]
            label = super().label()
            return label if isinstance(label, Abstain) else np.append(label[:5], np.float32(60.0))

    monkeypatch.setattr(generation, "roll_teacher", unlucky)
    report = generate(replace(SPEC, episodes=2), tmp_path / "data", workers=0)
    assert (report.attempts, sum(report.rejected.values())) == (4, 2)
    assert any(reason.startswith("abstained") for reason in report.rejected)
    assert "missed_grasp" in report.rejected
    assert len(set(calls)) == 4


def test_a_finished_dataset_grows_to_the_bytes_of_a_longer_run(straight: Path, tmp_path: Path) -> None:
    short = generate(replace(SPEC, episodes=2), tmp_path / "data", workers=0)
    assert (short.episodes, short.attempts) == (2, 2)
    seen: list[tuple[int, int]] = []
    longer = generate(
        SPEC, tmp_path / "data", workers=0, progress=lambda done, total: seen.append((done, total))
    )
    assert seen == [(2, 4), (3, 4), (4, 4)]
    assert (longer.episodes, longer.attempts) == (4, 2)
    assert longer.frames_made == longer.frames - short.frames
    assert longer.fingerprint != short.fingerprint
    assert hashes(tmp_path / "data") == hashes(straight)
    again = generate(replace(SPEC, episodes=3), tmp_path / "data", workers=0)
    assert (again.episodes, again.attempts, again.fingerprint) == (4, 0, longer.fingerprint)
    assert open_dataset(tmp_path / "data").fingerprint == longer.fingerprint


def test_some_cameras_see_what_they_see_among_all(straight: Path, tmp_path: Path) -> None:
    png, both = replace(SPEC, episodes=1, codec="png"), ("wrist", "front")
    whole, part, named = (
        open_dataset(
            generate(replace(png, cameras=cameras), tmp_path / "-".join(("c", *cameras)), workers=0).root
        )
        for cameras in ((), ("wrist",), both)
    )
    assert part.spec.cameras == ("wrist",)
    assert whole.spec.cameras == named.spec.cameras == ("front", "wrist")
    np.testing.assert_array_equal(part.episode(0).images["wrist"], whole.episode(0).images["wrist"])
    np.testing.assert_array_equal(
        part.episode(0).action, open_dataset(straight).episode(0, images=False).action
    )
    with pytest.raises(UsageError, match=r"no camera 'wrists'; did you mean 'wrist'"):
        generate(replace(SPEC, cameras=("wrists",)), tmp_path / "d", workers=0)
    with pytest.raises(UsageError, match="named twice"):
        generate(replace(SPEC, cameras=("wrist", "wrist")), tmp_path / "d", workers=0)


@pytest.mark.parametrize("name", ["arm-pick", "car-goal"])
def test_frames_drawn_afterwards_are_those_of_stepping(name: str) -> None:
    env = make_env(name, image_size=SIZE)
    values = env.factor_space.sample(env.presets["wide"], child_rng(2, "factors")) | {"image_noise": 4.0}
    episode = roll_teacher(env, make_teacher(env), values, 2, 1.5).episode
    assert episode is not None
    assert episode.outcome.is_success
    obs, _ = env.reset(seed=2, options={"factors": values})
    for k, action in enumerate(episode.extras["executed_action"]):
        for camera in env.cameras:
            np.testing.assert_array_equal(episode.images[camera][k], obs[camera])
        np.testing.assert_array_equal(episode.state[k], obs["state"])
        obs, *_ = env.step(action)
    env.close()


def test_an_attempt_that_fails_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    env = make_env("arm-pick", image_size=SIZE)
    monkeypatch.setattr(type(env), "draw", lambda *_: pytest.fail("a failure was drawn"))
    teacher = ArmPickTeacher(env)
    monkeypatch.setattr(teacher, "label", lambda: np.array([0, -45, 45, 75, 0, 60], np.float32))
    rollout = roll_teacher(env, teacher, condition(0), 0, 0.0)
    assert rollout.episode is not None
    assert not rollout.episode.outcome.is_success
    assert not rollout.episode.images
    assert env.renders


def closeness(videos: list[NDArray[np.uint8]], files: list[bytes], folder: Path) -> float:
    """Return the PSNR of decoded videos, dB."""
    errors = []
    for k, (frames, data) in enumerate(zip(videos, files, strict=True)):
        path = folder / f"{k}.mp4"
        path.write_bytes(data)
        decoded = np.empty_like(frames)
        decode_span(path, 0.0, 20.0, decoded)
        errors.append(float(((decoded.astype(float) - frames) ** 2).mean()))
    return float(10 * np.log10(255**2 / np.mean(errors)))


def plain_x264(frames: NDArray[np.uint8]) -> bytes:
    """Encode as anybody would: ultrafast, CRF 16, the converter's defaults."""
    import av

    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream(
            "libx264", rate=20, options={"preset": "ultrafast", "crf": "16", "g": "10", "bf": "0"}
        )
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "yuv420p"
        for image in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode(None))
    return buffer.getvalue()


@pytest.mark.parametrize("noise", [0.0, 3.0, 6.0])
def test_stored_frames_are_at_least_as_close_as_plain_x264_at_crf_16(noise: float, tmp_path: Path) -> None:
    env = make_env("arm-pick", image_size=96)
    episode = roll_teacher(env, make_teacher(env), condition(1, "wide", image_noise=noise), 1, 1.5).episode
    env.close()
    assert episode is not None
    videos = list(episode.images.values())
    encoder = VideoEncoder("h264", ENCODINGS["h264"], 20.0)
    ours = closeness(videos, [encoder.encode(v) for v in videos], tmp_path)
    assert ours >= closeness(videos, [plain_x264(v) for v in videos], tmp_path)
    assert ours > 30.0


def test_sensor_noise_has_its_spread_no_bias_and_its_seed() -> None:
    frame = np.full((64, 64, 3), 120, dtype=np.uint8)
    for sigma in (0.6, 3.0, 20.0):
        frames = np.repeat(frame[None], 6, axis=0)
        noise = PixelNoise(sigma, child_rng(0, "noise"))
        for one in frames:
            noise.add(one)
        errors = frames.astype(float) - 120
        assert errors.std() == pytest.approx(np.hypot(sigma, 12**-0.5), rel=0.02)
        assert abs(errors.mean()) < 0.03 * sigma + 0.01
        assert all(np.abs(np.corrcoef(errors[0].ravel(), e.ravel())[0, 1]) < 0.05 for e in errors[1:])
        again = frame.copy()
        PixelNoise(sigma, child_rng(0, "noise")).add(again)
        np.testing.assert_array_equal(again, frames[0])
    for level in (0, 255):
        edge = np.full((32, 32, 3), level, dtype=np.uint8)
        PixelNoise(20.0, child_rng(1, "noise")).add(edge)
        assert np.abs(edge.astype(int) - level).max() < 128
        assert 0.3 < (edge == level).mean() < 0.7


def test_the_command_takes_cameras_and_codec_and_adds_to_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [
        "generate",
        "arm-pick",
        "--size",
        "32",
        "--cameras",
        "wrist",
        "--codec",
        "av1",
        "--workers",
        "0",
        "--json",
        "--out",
        str(tmp_path / "data"),
    ]
    documents = []
    for n in ("1", "2"):
        assert main([*command, "-n", n]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    assert [(d["episodes"], d["episodes_already_there"], d["attempts"]) for d in documents] == [
        (1, 0, 1),
        (2, 1, 1),
    ]
    dataset = open_dataset(tmp_path / "data")
    assert (dataset.spec.cameras, dataset.spec.codec, dataset.fingerprint) == (
        ("wrist",),
        "av1",
        documents[1]["fingerprint"],
    )
    assert dataset.episode(1).images["wrist"].std() > 5.0
    assert main([*command, "-n", "1", "--cameras", "wrist,,front"]) == 2
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main([*command, "-n", "3", "--ray", "local"]) != 0
    assert "pip install 'simgap[ray]'" in capsys.readouterr().err


@pytest.mark.slow
def test_ray_makes_the_same_bytes(straight: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    report = generate(SPEC, tmp_path / "data", workers=0, runner=RayRunner("local", workers=2))
    assert hashes(report.root) == hashes(straight)


def test_ranges_the_teacher_cannot_solve_are_refused_with_the_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generation, "roll_teacher", lambda *_: Rollout(episode=None, abstained="too far"))
    with pytest.raises(DataError, match=r"failed 20 conditions in a row .*abstained.*narrow the ranges"):
        generate(SPEC, tmp_path / "data", workers=0)


def test_no_episodes_and_unknown_envs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="at least one"):
        generate(replace(SPEC, episodes=0), tmp_path / "a", workers=0)
    with pytest.raises(UsageError, match="arm-pick"):
        generate(replace(SPEC, env="arm-pik"), tmp_path / "b", workers=0)


def test_without_noise_the_executed_action_is_the_label() -> None:
    env = blind()
    episode = roll_teacher(env, ArmPickTeacher(env), condition(0), 0, 0.0).episode
    assert episode is not None
    assert np.array_equal(episode.extras["executed_action"], episode.action)


def test_the_noise_of_an_episode_depends_on_its_seed_alone() -> None:
    env = blind()
    teacher = ArmPickTeacher(env)
    first = roll_teacher(env, teacher, condition(0), 7, 1.5).episode
    roll_teacher(env, teacher, condition(1), 8, 1.5)
    again = roll_teacher(env, teacher, condition(0), 7, 1.5).episode
    other = roll_teacher(env, teacher, condition(0), 9, 1.5).episode
    assert first is not None
    assert again is not None
    assert other is not None
    assert np.array_equal(first.extras["executed_action"], again.extras["executed_action"])
    assert not np.array_equal(first.extras["executed_action"][0], other.extras["executed_action"][0])


def test_the_stamp_holds_what_made_the_episodes(straight: Path) -> None:
    fields = open_dataset(straight).spec.stamp.fields
    assert fields["teacher"] == ArmPickTeacher.name
    assert {"engine", "renderer", "judge", "horizon_steps", "clock", "generate", "source"} <= set(fields)
    assert fields["factors"] == "nominal"

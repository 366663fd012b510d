"""Generation: the same spec gives the same bytes, a kill loses nothing that was written, rejects are counted, strangers refused."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from arm_fixtures import SIZE, blind, condition
from simgap import generation
from simgap.envs.arm.factors import ARM_PRESETS
from simgap.episodes.reader import open_dataset
from simgap.errors import DataError, UsageError
from simgap.generation import GenerateSpec, Rollout, generate, roll_teacher
from simgap.provenance import file_hash
from simgap.seeds import Purpose, seed_of
from simgap.teachers import Abstain
from simgap.teachers.arm_pick import ArmPickTeacher

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
    assert not np.array_equal(open_dataset(other.root).episode(0, images=False).state[:5], open_dataset(straight).episode(0, images=False).state[:5])


def test_more_episodes_begin_with_the_same_ones() -> None:
    assert [seed_of(Purpose.TRAIN, 3, i) for i in range(5)] == [seed_of(Purpose.TRAIN, 3, i) for i in range(50)][:5]


def test_a_run_killed_with_its_workers_at_work_resumes_to_the_same_bytes(straight: Path, tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(f"""
from pathlib import Path
from simgap.envs.arm.factors import ARM_PRESETS
from simgap.generation import GenerateSpec, generate
if __name__ == "__main__":
    spec = GenerateSpec(env="arm-pick", episodes={SPEC.episodes}, ranges=ARM_PRESETS["nominal"], image_size={SIZE}, seed={SPEC.seed})
    generate(spec, Path({str(tmp_path / "data")!r}), workers=2)
""")
    run = subprocess.Popen([sys.executable, str(script)])
    rows = tmp_path / "data/meta/episodes"
    deadline = time.monotonic() + 60
    while not list(rows.glob("chunk-*/file-*.parquet")) and time.monotonic() < deadline and run.poll() is None:
        time.sleep(0.005)
    run.send_signal(signal.SIGKILL)
    run.wait()
    assert not (tmp_path / "data/meta/info.json").exists()
    seen: list[tuple[int, int]] = []
    report = generate(SPEC, tmp_path / "data", workers=0, progress=lambda done, total: seen.append((done, total)))
    assert 1 <= seen[0][0] < SPEC.episodes
    assert seen[-1] == (SPEC.episodes, SPEC.episodes)
    assert report.attempts < SPEC.episodes
    assert hashes(report.root) == hashes(straight)


def test_a_finished_run_is_returned_without_another_attempt(straight: Path) -> None:
    before = hashes(straight)
    report = generate(SPEC, straight, workers=2)
    assert (report.attempts, report.episodes) == (0, SPEC.episodes)
    assert hashes(straight) == before


@pytest.mark.parametrize("change", [{"seed": 4}, {"noise_deg": 0.5}, {"ranges": ARM_PRESETS["shifted"]}, {"image_size": 64}, {"purpose": Purpose.TARGET}])
def test_a_folder_of_another_spec_is_refused_with_the_difference(change: dict[str, object], straight: Path) -> None:
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


def test_failed_and_abstained_attempts_are_counted_by_reason_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_ranges_the_teacher_cannot_solve_are_refused_with_the_reasons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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

"""Rollouts and the screen: the same seeds give the same bytes at any number of workers; seeds of two purposes never meet."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arm_fixtures import SIZE, tiny_checkpoint
from simgap.envs import make_env
from simgap.envs.arm.factors import ARM_PRESETS
from simgap.errors import ConventionError, DataError, UsageError
from simgap.policies.checkpoint import CARD
from simgap.provenance import read_json, write_atomic
from simgap.rollouts import engine
from simgap.rollouts import screen as screen_module
from simgap.rollouts.engine import RolloutSpec, run_rollouts
from simgap.rollouts.kept import Arm, run_arms
from simgap.rollouts.record import RolloutRecord, film_steps, outcome_from_json
from simgap.rollouts.screen import read_screen, screen
from simgap.rollouts.traces import read_records, write_records
from simgap.rollouts.videos import write_videos
from simgap.seeds import Purpose, seed_of
from simgap.statistics import ScreenVerdict
from simgap.types import Outcome


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> RolloutSpec:
    checkpoint = tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "policy")
    return RolloutSpec(
        env="arm-pick",
        checkpoint=checkpoint,
        executor="ensemble(0.1)",
        ranges=ARM_PRESETS["nominal"],
        episodes=3,
        seed=1,
    )


@pytest.fixture(scope="module")
def records(spec: RolloutSpec) -> list[RolloutRecord]:
    return run_rollouts(spec, workers=0)


def same_bytes(a: list[RolloutRecord], b: list[RolloutRecord]) -> bool:
    return [r.trace_hash for r in a] == [r.trace_hash for r in b] and all(
        np.array_equal(x.film[c], y.film[c]) and x.factors == y.factors
        for x, y in zip(a, b, strict=True)
        for c in x.film
    )


def test_the_same_seeds_give_the_same_bytes_with_no_one_and_two_workers(
    spec: RolloutSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "GROUP", 2)
    several = replace(spec, episodes=3)
    runs = [run_rollouts(several, workers=n) for n in (0, 1, 2)]
    assert same_bytes(runs[0], runs[1])
    assert same_bytes(runs[0], runs[2])
    assert [r.seed for r in runs[0]] == [seed_of(Purpose.SELECT, 1, i) for i in range(several.episodes)]


def test_the_same_bytes_test_catches_a_planted_dependence_on_the_order_of_work(
    spec: RolloutSpec, records: list[RolloutRecord]
) -> None:
    other = run_rollouts(replace(spec, seed=2), workers=0)
    assert not same_bytes(records, other)


def test_records_hold_conditions_motion_ages_and_a_film(
    spec: RolloutSpec, records: list[RolloutRecord]
) -> None:
    assert len(records) == spec.episodes
    for record in records:
        assert record.state.shape == record.action.shape == (record.steps, 6)
        assert record.age.shape == (record.steps,)
        assert set(record.film) == {"front", "wrist"}
        assert record.film["front"].shape == (len(record.film_steps), SIZE, SIZE, 3)
        assert record.film_steps[0] == 0
        assert record.film_steps[-1] == record.steps - 1
        assert not record.outcome.is_void
        assert outcome_from_json(record.to_json()) == record.outcome


def test_the_executor_is_part_of_the_policy_under_test(
    spec: RolloutSpec, records: list[RolloutRecord]
) -> None:
    newest = run_rollouts(replace(spec, executor="latest", episodes=2), workers=0)
    assert [r.trace_hash for r in newest] != [r.trace_hash for r in records[:2]]
    assert newest[0].factors == records[0].factors


def test_progress_ends_with_all_episodes(spec: RolloutSpec) -> None:
    seen: list[tuple[int, int]] = []
    run_rollouts(
        replace(spec, episodes=2), workers=0, progress=lambda done, total: seen.append((done, total))
    )
    assert seen == [(2, 2)]


def never_meet(seed: Callable[[Purpose, int, int], int], root: int, index: int) -> None:
    asked = {(p, r, i) for p in Purpose for r in (root, root + 1, index) for i in (index, index + 1, root)}
    seeds = {seed(*which) for which in asked}
    assert len(seeds) == len(asked)
    assert all(0 <= s < 2**62 for s in seeds)


@given(st.integers(0, 2**31), st.integers(0, 2**20))
def test_seeds_of_two_purposes_roots_or_indices_never_meet(root: int, index: int) -> None:
    never_meet(seed_of, root, index)


@pytest.mark.parametrize(
    "planted",
    [lambda p, root, i: seed_of(Purpose.TRAIN, root, i), lambda p, root, i: seed_of(p, 0, root + i)],
    ids=["purpose", "sum"],
)
def test_the_seed_test_catches_a_planted_seed_that_forgets_its_purpose_or_adds_root_and_index(
    planted: Callable[[Purpose, int, int], int],
) -> None:
    with pytest.raises(AssertionError):
        never_meet(planted, 3, 5)


def test_no_two_of_many_thousand_seeds_are_equal() -> None:
    seeds = {seed_of(p, root, i) for p in Purpose for root in range(4) for i in range(2000)}
    assert len(seeds) == len(Purpose) * 4 * 2000


def test_a_seed_means_the_same_conditions_in_ten_years() -> None:
    assert seed_of(Purpose.TRAIN, 0, 0) == 1788320217605367667
    assert seed_of(Purpose.REPORT, 7, 123) == 1269442091491712122


@given(st.integers(1, 300), st.integers(1, 12))
def test_a_film_shows_the_first_frame_the_last_and_none_twice(length: int, count: int) -> None:
    steps = film_steps(length, count)
    assert steps[0] == 0
    assert steps[-1] == (length - 1 if count > 1 else 0)
    assert len(set(steps)) == len(steps) <= min(count, length)


@pytest.fixture
def rolled(records: list[RolloutRecord], monkeypatch: pytest.MonkeyPatch) -> list[RolloutSpec]:
    """Let screens roll out nothing and take these records; return the list of what they asked for."""
    asked: list[RolloutSpec] = []

    def answer(spec: RolloutSpec, folder: Path, **_: object) -> list[RolloutRecord]:
        asked.append(spec)
        return records[: spec.episodes]

    monkeypatch.setattr(screen_module, "run_kept", answer)
    return asked


def test_a_screen_is_found_again_by_content(spec: RolloutSpec, tmp_path: Path) -> None:
    seen: list[int] = []
    first = screen(spec, tmp_path, workers=0)
    again = screen(spec, tmp_path, workers=0, progress=lambda done, _: seen.append(done))
    assert again.path == first.path
    assert again.outcomes == first.outcomes
    assert seen == [spec.episodes]
    assert first.counts.n == spec.episodes
    assert first.to_json()["evidence"] == "sim"
    assert first.verdict in (ScreenVerdict.BROKEN, ScreenVerdict.UNDECIDED)


@pytest.mark.parametrize(
    ("engine", "kind"),
    [
        ("mujoco 4.0.0", "sim"),
        ("wrapped gym_pusht/PushT-v0, gym_pusht 0.1.8", "sim"),
        ("drake 1.51", "second_engine"),
    ],
)
def test_only_another_engine_than_the_policys_own_is_a_second_one(
    engine: str, kind: str, spec: RolloutSpec, rolled: list[RolloutSpec], tmp_path: Path
) -> None:
    found = screen(replace(spec, episodes=2), tmp_path, workers=0)
    other = replace(found, stamp=replace(found.stamp, fields={**found.stamp.fields, "engine": engine}))
    assert str(other.evidence) == kind


def _all_successes(folder: Path) -> None:
    stored = read_json(folder / "screen.json")
    for row in stored["rollouts"]:
        row |= {"outcome": "success", "detail": ""}
    write_atomic(folder / "screen.json", json.dumps(stored))


def _another_policy(folder: Path) -> None:
    stored = read_json(folder / "screen.json")
    stored["stamp"]["policy"] = "0" * 64
    write_atomic(folder / "screen.json", json.dumps(stored))


def _one_left_out(folder: Path) -> None:
    stored = read_json(folder / "screen.json")
    stored["rollouts"].pop()
    write_atomic(folder / "screen.json", json.dumps(stored))


def _other_traces(folder: Path) -> None:
    records = read_records(folder / "traces.npz")
    records[0] = replace(records[0], age=records[0].age + 1)
    write_records(
        folder / "traces.npz", records, films=False, about=read_json(folder / "screen.json")["stamp"]
    )


def _no_traces(folder: Path) -> None:
    (folder / "traces.npz").unlink()


def _of_an_older_version(folder: Path) -> None:
    stored = read_json(folder / "screen.json")
    del stored["traces"]
    write_atomic(folder / "screen.json", json.dumps(stored))


@pytest.mark.parametrize(
    "edit", [_all_successes, _another_policy, _one_left_out, _other_traces, _no_traces, _of_an_older_version]
)
def test_a_summary_that_says_something_else_than_its_traces_is_not_believed(
    edit: Callable[[Path], None], spec: RolloutSpec, rolled: list[RolloutSpec], tmp_path: Path
) -> None:
    found = screen(spec, tmp_path, workers=0)
    assert read_screen(found.path).outcomes == found.outcomes
    edit(found.path)
    with pytest.raises(DataError, match="screen again"):
        read_screen(found.path)


def test_a_kept_group_of_another_policy_is_not_taken_for_ones_own(
    records: list[RolloutRecord], spec: RolloutSpec, tmp_path: Path
) -> None:
    ours, theirs = (
        Arm(spec=replace(spec, episodes=len(records)), policy=p, folder=tmp_path / p)
        for p in ("ours", "theirs")
    )
    seeds = ours.group(0)
    kept = [replace(r, seed=seed) for r, seed in zip(records, seeds, strict=False)]
    write_records(theirs.file(0), kept, about=theirs.about(0))
    assert [r.seed for r in run_arms([theirs], {0: [0]}, workers=0)[0][0]] == seeds
    ours.folder.mkdir()
    ours.file(0).write_bytes(theirs.file(0).read_bytes())
    with pytest.raises(DataError, match=r"other rollouts.*policy"):
        run_arms([ours], {0: [0]}, workers=0)


@pytest.mark.parametrize(
    "change",
    [
        {"executor": "latest"},
        {"seed": 9},
        {"purpose": Purpose.REPORT},
        {"ranges": ARM_PRESETS["shifted"]},
        {"episodes": 2},
    ],
)
def test_another_executor_seed_purpose_or_range_is_another_screen(
    change: dict[str, object], spec: RolloutSpec, rolled: list[RolloutSpec], tmp_path: Path
) -> None:
    small = replace(spec, episodes=1)
    assert (
        screen(small, tmp_path, workers=0).path != screen(replace(small, **change), tmp_path, workers=0).path
    )  # type: ignore[arg-type]


def test_a_screen_that_was_killed_before_its_end_is_run_again(
    spec: RolloutSpec, rolled: list[RolloutSpec], tmp_path: Path
) -> None:
    small = replace(spec, episodes=2)
    first = screen(small, tmp_path, workers=0)
    (first.path / "screen.json").unlink()
    assert screen(small, tmp_path, workers=0).outcomes == first.outcomes
    assert rolled == [small, small]


def test_a_film_of_each_kind_of_ending_is_kept(
    spec: RolloutSpec, rolled: list[RolloutSpec], tmp_path: Path
) -> None:
    report = screen(replace(spec, episodes=3), tmp_path, workers=0)
    films = np.load(report.path / "films.npz")
    kept = {name.split("/")[0] for name in films.files}
    assert {str(report.outcomes[int(seed)]) for seed in kept} == {str(o) for o in report.outcomes.values()}


def test_a_checkpoint_that_is_missing_or_of_another_convention_is_refused(
    spec: RolloutSpec, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=CARD):
        run_rollouts(replace(spec, checkpoint=tmp_path), workers=0)
    for file in spec.checkpoint.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    card = read_json(tmp_path / CARD)
    card["action_spec"]["dimensions"][0]["unit"] = "rad"
    write_atomic(tmp_path / CARD, json.dumps(card))
    with pytest.raises(ConventionError, match=r"shoulder_pan\.pos"):
        run_rollouts(replace(spec, checkpoint=tmp_path, episodes=1), workers=0)


def test_an_unknown_executor_is_refused(spec: RolloutSpec) -> None:
    with pytest.raises(UsageError):
        run_rollouts(replace(spec, executor="newst", episodes=1), workers=0)


def test_two_failures_of_a_group_are_filmed_whole_and_the_screen_makes_videos_of_them(
    spec: RolloutSpec, records: list[RolloutRecord], tmp_path: Path
) -> None:
    failed = [r for r in records if not r.outcome.is_success]
    assert len(failed) == 3, "an untrained policy fails"
    assert sum(r.is_filmed_whole for r in failed) == engine.WHOLE_FILMS
    whole = next(r for r in failed if r.is_filmed_whole)
    strip, steps = whole.strip()
    assert steps == film_steps(whole.steps)
    np.testing.assert_array_equal(strip["front"], whole.film["front"][list(steps)])
    videos = write_videos(tmp_path / "failures", records, 20.0)
    assert len(videos) == engine.WHOLE_FILMS
    with av.open(str(tmp_path / "failures" / videos[0].name)) as container:
        stream = container.streams.video[0]
        assert (stream.width, stream.height, float(stream.average_rate or 0)) == (2 * SIZE, SIZE, 20.0)
        assert sum(1 for _ in container.decode(stream)) in {r.steps for r in failed}


def test_videos_are_named_after_failures_of_any_length_and_alphabet(
    records: list[RolloutRecord], tmp_path: Path
) -> None:
    whole = next(r for r in records if r.is_filmed_whole and not r.outcome.is_success)
    modes = ["x" * 5000, "../../up", "\u5931\u6557", "a\0b\nc"]
    videos = write_videos(
        tmp_path / "here",
        [replace(whole, seed=i, outcome=Outcome.failure(mode)) for i, mode in enumerate(modes)],
        20.0,
    )
    assert len(set(videos)) == len(modes)
    assert {v.parent for v in videos} == {tmp_path / "here"}
    assert all(v.is_file() and len(v.name) < 128 and v.name.isascii() for v in videos)


def test_a_policy_is_shown_the_frames_that_stepping_would_have_shown(
    spec: RolloutSpec, records: list[RolloutRecord]
) -> None:
    env = make_env("arm-pick", image_size=SIZE)
    record = next(r for r in records if r.is_filmed_whole)
    obs, _ = env.reset(seed=record.seed, options={"factors": dict(record.factors)})
    for step, action in enumerate(record.action[:10]):
        for camera in env.cameras:
            np.testing.assert_array_equal(record.film[camera][step], obs[camera])
        obs, *_ = env.step(action)
    env.close()


@pytest.mark.slow
def test_a_ray_cluster_runs_the_groups_to_the_same_bytes(
    spec: RolloutSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="needs simgap[ray]")
    from simgap.compute.ray import RayRunner

    here = screen_module.screen(spec, tmp_path / "here", workers=0)
    there = screen_module.screen(spec, tmp_path / "there", workers=0, runner=RayRunner("local", workers=2))
    assert read_json(there.path / "screen.json") == read_json(here.path / "screen.json")

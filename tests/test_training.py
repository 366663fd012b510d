"""The trainer: learns, accounts for its mixture, masks ends, resumes to the bit, refuses what cannot be right."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from simgap.conventions import VectorSpec
from simgap.episodes.table import FrameTable
from simgap.errors import ConventionError, DataError, UsageError
from simgap.policies.checkpoint import KEPT, load_policy, read_card
from simgap.policies.normaliser import Normaliser, RangeMethod, fit_range
from simgap.training import TrainProgress, TrainSpec, train
from simgap.training.batches import Batch, BatchSource, quotas, shifted
from simgap.training.resume import LOG, append_log, read_resume
from simgap.training.run import TrainingRun
from simgap.training.trainer import kept_folder, steps_of
from synthetic import find_the_square

TINY = TrainSpec(
    steps=12,
    batch=16,
    chunk=4,
    width=8,
    hidden=32,
    threads=1,
    log_every=3,
    checkpoint_every_steps=5,
    warmup_steps=2,
    shift_px=2,
)


def table(seed: int = 0, **kwargs: int) -> FrameTable:
    return find_the_square(
        np.random.default_rng(seed),
        image_size=48,
        cameras=("front", "wrist"),
        **({"episodes": 6, "length": 10} | kwargs),
    )


def weights_of(path: Path) -> str:
    return read_card(path).weights_hash


def test_a_policy_learns_to_localise_what_only_the_image_shows(tmp_path: Path) -> None:
    data = find_the_square(np.random.default_rng(0), episodes=150, length=12, image_size=48)
    spec = TrainSpec(
        steps=150,
        batch=64,
        learning_rate=3e-3,
        chunk=10,
        width=16,
        hidden=64,
        shift_px=0,
        log_every=50,
        warmup_steps=10,
        threads=1,
    )
    reports: list[TrainProgress] = []
    policy = load_policy(train([data], None, spec, tmp_path, reports.append))
    fresh = find_the_square(np.random.default_rng(1), episodes=50, length=12, image_size=48)
    starts = fresh.episode_start[:-1]
    chunk = policy.predict({c: v[starts] for c, v in fresh.images.items()}, fresh.state[starts])
    truth = fresh.action[starts + 9]
    error = np.abs(chunk[:, 9, :2] - truth[:, :2]).mean()
    baseline = np.abs(data.action[:, :2].mean(axis=0) - truth[:, :2]).mean()
    assert error < 0.35 * baseline
    assert [r.step for r in reports] == [50, 100, 150]
    assert reports[-1].eta_s == 0.0
    assert reports[-1].loss < 0.6 * reports[0].loss


@pytest.mark.parametrize(("stop", "threads"), [(3, 1), (7, 1), (7, 2)])
def test_a_run_stopped_before_or_after_a_resume_point_ends_with_the_same_bits(
    tmp_path: Path, stop: int, threads: int
) -> None:
    spec = replace(TINY, threads=threads)

    class Stop(Exception):
        pass

    def interrupt(report: TrainProgress) -> None:
        if report.step >= stop:
            raise Stop

    whole = train([table()], None, spec, tmp_path / "whole")
    with pytest.raises(Stop):
        train([table()], None, spec, tmp_path / "cut", interrupt)
    assert not (tmp_path / "cut/card.json").exists()
    seen: list[int] = []
    cut = train([table()], None, spec, tmp_path / "cut", lambda r: seen.append(r.step))
    assert weights_of(cut) == weights_of(whole)
    assert seen == ([6, 9, 12] if stop > 5 else [3, 6, 9, 12])
    steps = [json.loads(line)["step"] for line in (cut / "train.jsonl").read_text().splitlines()]
    assert steps == [3, 6, 9, 12]
    assert not (cut / "resume.pt").exists()


def test_a_run_survives_kill_9_with_the_same_bits(tmp_path: Path) -> None:
    code = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from test_training import TINY, table
from simgap.training import train
train([table()], None, TINY, Path({str(tmp_path / "cut")!r}), lambda r: os.kill(os.getpid(), signal.SIGKILL) if r.step >= 9 else None)
"""
    killed = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (tmp_path / "cut/resume.pt").exists()
    assert weights_of(train([table()], None, TINY, tmp_path / "cut")) == weights_of(
        train([table()], None, TINY, tmp_path / "whole")
    )


def test_a_finished_run_is_returned_at_once_and_another_request_refused(tmp_path: Path) -> None:
    train([table()], None, TINY, tmp_path)
    before = (tmp_path / "card.json").stat().st_mtime_ns
    reports: list[TrainProgress] = []
    assert train([table()], None, replace(TINY, log_every=1), tmp_path, reports.append) == tmp_path
    assert not reports
    assert (tmp_path / "card.json").stat().st_mtime_ns == before
    with pytest.raises(UsageError, match="another folder"):
        train([table()], None, replace(TINY, seed=1), tmp_path)
    with pytest.raises(UsageError, match="another folder"):
        train([table(seed=1)], None, TINY, tmp_path)


def test_what_is_kept_along_the_way_changes_nothing_and_is_the_average_of_its_step(tmp_path: Path) -> None:
    plain = train([table()], None, TINY, tmp_path / "plain")
    kept = train([table()], None, TINY, tmp_path / "kept", keep=(4, 8, TINY.steps))
    assert weights_of(kept) == weights_of(plain)
    steps = sorted(int(p.name.removeprefix("step-")) for p in (kept / KEPT).iterdir())
    assert steps == [4, 8]
    assert len({weights_of(kept_folder(kept, step)) for step in steps} | {weights_of(kept)}) == 3
    assert read_card(kept_folder(kept, 4)).training["kept_at_step"] == 4
    assert train([table()], None, TINY, tmp_path / "kept", keep=(4,)) == kept
    with pytest.raises(UsageError, match="finished without keeping step 4; train into another folder"):
        train([table()], None, TINY, tmp_path / "plain", keep=(4,))


def test_what_is_kept_after_a_kill_at_any_step_is_to_the_byte_what_would_have_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # so that resume points lie between two lines of the log
    spec = replace(TINY, log_every=100, checkpoint_every_steps=100)
    whole = train([table()], None, spec, tmp_path / "whole", keep=(4, 8))
    advance = TrainingRun.advance

    def dying(run: TrainingRun, batch: Batch) -> float:
        if run.step == 6:
            raise KeyboardInterrupt
        return advance(run, batch)

    monkeypatch.setattr(TrainingRun, "advance", dying)
    with pytest.raises(KeyboardInterrupt):
        train([table()], None, spec, tmp_path / "cut", keep=(4, 8))
    monkeypatch.setattr(TrainingRun, "advance", advance)
    cut = train([table()], None, spec, tmp_path / "cut", keep=(4, 8))
    for there, here in (
        (whole, cut),
        *((kept_folder(whole, step), kept_folder(cut, step)) for step in (4, 8)),
    ):
        assert (there / "card.json").read_bytes() == (here / "card.json").read_bytes()


def test_a_step_that_went_by_before_it_was_to_be_kept_is_said_and_not_reported_as_kept(
    tmp_path: Path,
) -> None:
    class Stop(Exception):
        pass

    def interrupt(report: TrainProgress) -> None:
        if report.step >= 6:
            raise Stop

    with pytest.raises(Stop):
        train([table()], None, TINY, tmp_path, interrupt)
    with pytest.raises(UsageError, match="past step 4 without keeping it"):
        train([table()], None, TINY, tmp_path, keep=(4, 8))
    train([table()], None, TINY, tmp_path, keep=(8,))


def test_checkpoints_to_keep_are_at_most_one_a_step_and_a_number_that_no_memory_holds_is_refused() -> None:
    assert steps_of(12, 1) == (12,)
    assert steps_of(3, 3) == (1, 2, 3)
    for count in (13, 10**15):
        with pytest.raises(UsageError, match="at least one step each"):
            steps_of(12, count)


def test_training_leaves_threads_and_the_global_generator_alone(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    other = 1 if threads > 1 else 2
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    train([table()], None, replace(TINY, threads=other), tmp_path)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.rand(1), expected)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=5).filter(lambda s: sum(s) > 0.01), st.integers(1, 64)
)
def test_quotas_fill_every_batch_and_follow_the_shares_at_every_step(shares: list[float], batch: int) -> None:
    counts = quotas(shares, batch, 40)
    assert (counts >= 0).all()
    assert (counts.sum(axis=1) == batch).all()
    asked = np.array(shares) / sum(shares) * batch * np.arange(1, 41)[:, None]
    assert np.abs(counts.cumsum(axis=0) - asked).max() <= 2.0
    assert (counts[:, np.array(shares) == 0.0] == 0).all()


def test_the_card_accounts_for_the_mixture(tmp_path: Path) -> None:
    tables = [table(episodes=9), table(seed=1, episodes=1)]
    mixture = read_card(train(tables, [0.5, 0.5], TINY, tmp_path)).training["mixture"]
    assert [m["samples"] for m in mixture] == [96, 96]
    assert [m["share_asked"] for m in mixture] == [0.5, 0.5]
    assert [m["share_natural"] for m in mixture] == [0.9, 0.1]
    assert mixture[1]["passes"] == pytest.approx(9.6)


def source(data: FrameTable, chunk: int, spec: TrainSpec) -> BatchSource:
    normaliser = Normaliser(
        state=fit_range([data.state], data.state_spec),
        action=fit_range([data.action], data.action_spec),
        method=RangeMethod.MIN_MAX,
    )
    counts = quotas([1.0], spec.batch, 10)
    return BatchSource(
        [data],
        [np.arange(len(data))],
        cameras=("front", "wrist"),
        normaliser=normaliser,
        chunk=chunk,
        counts=counts,
    )


def test_one_pass_draws_every_frame_once() -> None:
    data = table(episodes=6, length=8)
    spec = replace(TINY, batch=16)
    batches = [source(data, 4, spec).draw(spec, step).state for step in range(3)]
    assert len(np.unique(np.concatenate(batches), axis=0)) == 48


def test_targets_are_masked_past_the_end_of_an_episode_and_never_cross_it() -> None:
    data = table(episodes=2, length=5)
    batch = source(data, 4, TINY).all_of(0, np.arange(10))
    np.testing.assert_array_equal(
        batch.mask, np.tile([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0]], (2, 1))
    )
    scaled = fit_range([data.action], data.action_spec).normalise(data.action)
    for row in range(10):
        for ahead in range(4):
            if batch.mask[row, ahead]:
                np.testing.assert_array_equal(batch.target[row, ahead], scaled[row + ahead])
            else:
                np.testing.assert_array_equal(batch.target[row, ahead], scaled[4 if row < 5 else 9])


def test_shift_equals_indexing_with_clamped_coordinates() -> None:
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (5, 20, 20, 3), dtype=np.uint8)
    rows, shifts = rng.integers(0, 5, 60), rng.integers(-4, 5, (60, 2))
    axis = np.arange(20)
    for got, row, (dy, dx) in zip(shifted(frames, rows, shifts), rows, shifts, strict=True):
        np.testing.assert_array_equal(got, frames[row][(axis + dy).clip(0, 19)][:, (axis + dx).clip(0, 19)])


def test_a_fine_tune_keeps_its_parents_normaliser_and_names_its_parent(tmp_path: Path) -> None:
    parent = train([table()], None, TINY, tmp_path / "parent")
    child = train(
        [table(seed=1)],
        None,
        replace(TINY, init_from=parent, learning_rate=1e-6, chunk=9),
        tmp_path / "child",
    )
    assert read_card(child).normaliser == read_card(parent).normaliser
    assert read_card(child).parent == weights_of(parent)
    assert read_card(child).architecture.chunk == 4
    a, b = load_policy(parent), load_policy(child)
    rows = slice(0, 5)
    batch = {c: v[rows] for c, v in table().images.items()}, table().state[rows]
    assert np.abs(a.predict(*batch) - b.predict(*batch)).max() < 0.5


def test_data_in_other_units_are_refused_in_a_fine_tune(tmp_path: Path) -> None:
    parent = train([table()], None, TINY, tmp_path / "parent")
    ticks = replace(table(), action=table().action * 11.4)
    with pytest.raises(DataError, match="other units"):
        train([ticks], None, replace(TINY, init_from=parent), tmp_path / "child")


def test_tables_that_disagree_are_refused(tmp_path: Path) -> None:
    slower = replace(table(), action_spec=VectorSpec(dimensions=table().action_spec.dimensions, rate_hz=10.0))
    with pytest.raises(ConventionError, match="rates differ"):
        train([table(), slower], None, TINY, tmp_path)
    one_camera = replace(table(), images={"front": table().images["front"]})
    with pytest.raises(ConventionError, match="same cameras"):
        train([table(), one_camera], None, TINY, tmp_path)
    for shares in ([1.0], [-1.0, 2.0], [0.0, 0.0]):
        with pytest.raises(UsageError, match="shares"):
            train([table(), table()], shares, TINY, tmp_path)
    with pytest.raises(UsageError, match="at least one table"):
        train([], None, TINY, tmp_path)


def test_a_loss_that_is_not_finite_is_an_error_that_names_the_step(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"loss is nan at step \d+"):
        train([table()], None, replace(TINY, learning_rate=1e30, clip=1e30, warmup_steps=0), tmp_path)
    assert not (tmp_path / "card.json").exists()


def test_validation_holds_out_whole_episodes_and_never_selects(tmp_path: Path) -> None:
    record = read_card(train([table()], None, replace(TINY, validation_share=0.34), tmp_path)).training
    assert record["validation_loss_never_selects"] > 0
    assert record["mixture"][0]["share_natural"] == 1.0


def test_rates_rise_then_fall_and_averages_forget_the_start() -> None:
    spec = TrainSpec(steps=1000, warmup_steps=50)
    rates = [spec.learning_rate_at(s) for s in range(1000)]
    assert int(np.argmax(rates)) in (49, 50)
    assert rates[0] == pytest.approx(spec.learning_rate / 50)
    assert rates[-1] == pytest.approx(spec.learning_rate * spec.final_rate_share, rel=0.01)
    assert spec.ema_at(0) == pytest.approx(0.1)
    assert spec.ema_at(999) == pytest.approx(0.99)
    for change in ({"steps": 0}, {"ema": 1.0}, {"learning_rate": 0.0}, {"executor": "lates"}):
        with pytest.raises(UsageError):
            replace(spec, **change)


@pytest.mark.parametrize("damage", ["cut", "noise", "list", "fields"])
def test_a_damaged_resume_point_is_one_line_without_advice_to_run_what_it_holds(
    damage: str, tmp_path: Path
) -> None:
    file = tmp_path / "resume.pt"
    if damage in ("cut", "noise"):
        file.write_bytes(b"PK\x03\x04" * 9 if damage == "cut" else bytes(range(7, 200)))
    else:
        torch.save([1] if damage == "list" else {"request": "a", "steps": 3}, file)
    with pytest.raises(
        DataError, match=r"resume.pt (cannot be read|was changed since it was written).*delete it"
    ) as caught:
        read_resume(tmp_path, "a")
    assert "weights_only" not in str(caught.value)


def test_a_log_that_leads_somewhere_else_is_replaced_and_not_added_to(tmp_path: Path) -> None:
    elsewhere = tmp_path / "profile"
    elsewhere.write_text("alias ll=ls")
    (tmp_path / LOG).symlink_to(elsewhere)
    append_log(tmp_path, {"step": 1})
    assert elsewhere.read_text() == "alias ll=ls"
    assert (tmp_path / LOG).read_text() == '{"step": 1}\n'
    (tmp_path / LOG).unlink()
    os.mkfifo(tmp_path / LOG)
    with pytest.raises(DataError, match="is a pipe"):
        append_log(tmp_path, {"step": 1})

"""Mixing simulated and real data: exact shares, their account, the domain a policy is told, and sources that must not be mixed.

Tests of public reports name them (CT-01 ...).
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgap.cli import main
from simgap.conventions import Dimension, Unit, VectorSpec
from simgap.episodes.table import FrameTable
from simgap.errors import ConventionError, UsageError
from simgap.policies.checkpoint import load_policy, read_card
from simgap.policies.normaliser import Normaliser, RangeMethod, fit_range
from simgap.provenance import Stamp
from simgap.training import TrainProgress, TrainSpec, train
from simgap.training.batches import BatchSource, diffuse, quotas
from simgap.training.mixture import (
    account,
    domain_columns,
    evidence_of,
    mixture_counts,
    real_counts,
    require_alike,
    source_offsets,
)
from simgap.training.plan import make_card, make_plan
from simgap.types import EvidenceKind
from test_data_check_planted import clean, write
from test_training import TINY, table

SIM, REAL, SURROGATE = EvidenceKind.SIM, EvidenceKind.REAL, EvidenceKind.SURROGATE
KINDS = st.sampled_from([SIM, REAL, SURROGATE, EvidenceKind.SECOND_ENGINE])


# --- exact counts -----------------------------------------------------------------------------------------------------


@given(st.floats(0.0, 1.0), st.integers(1, 257), st.integers(1, 400))
def test_after_any_number_of_batches_the_real_count_is_the_rounded_share(
    p_real: float, batch: int, steps: int
) -> None:
    counts = real_counts(p_real, batch, steps)
    assert ((counts >= 0) & (counts <= batch)).all()
    drawn = np.cumsum(counts)
    asked = p_real * batch * np.arange(1, steps + 1)
    assert np.abs(drawn - asked).max() <= 0.5 + 1e-6
    assert np.ptp(counts) <= 1


@given(st.integers(1, 64), st.integers(1, 60))
def test_a_share_that_divides_the_batch_gives_the_same_count_every_time(batch: int, steps: int) -> None:
    for k in range(batch + 1):
        assert (real_counts(k / batch, batch, steps) == k).all()


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 500), KINDS), min_size=2, max_size=5),
    st.floats(0.0, 1.0),
    st.integers(1, 64),
)
def test_every_batch_is_full_and_its_real_part_exact_whatever_the_sources(
    sources: list[tuple[int, EvidenceKind]], p_real: float, batch: int
) -> None:
    rows, kinds = [n for n, _ in sources], [k for _, k in sources]
    real = np.array([k in (REAL, SURROGATE) for k in kinds])
    if not real.any() or real.all():
        p_real = 1.0 if real.all() else 0.0
    counts = mixture_counts(rows, None, kinds, p_real, batch, 50)
    assert (counts.sum(axis=1) == batch).all()
    assert (counts[:, real].sum(axis=1) == real_counts(p_real, batch, 50)).all()
    drawn, natural = counts.sum(axis=0), np.array(rows, dtype=float)
    for side in (real, ~real):
        if drawn[side].sum():
            assert drawn[side] == pytest.approx(
                natural[side] / natural[side].sum() * drawn[side].sum(), abs=2.0
            )


@given(
    st.lists(st.floats(0.01, 1.0), min_size=1, max_size=4),
    st.lists(st.integers(0, 30), min_size=1, max_size=40),
)
def test_diffusion_fills_batches_of_any_sizes(shares: list[float], totals: list[int]) -> None:
    counts = diffuse(shares, np.array(totals, dtype=np.int64))
    assert (counts >= 0).all()
    assert counts.sum(axis=1).tolist() == totals
    asked = np.array(shares) / sum(shares) * np.cumsum(totals)[:, None]
    assert np.abs(counts.cumsum(axis=0) - asked).max() <= 2.0


def test_a_side_that_is_asked_for_and_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="needs real samples"):
        mixture_counts([10, 20], None, [SIM, SIM], 0.5, 8, 4)
    with pytest.raises(UsageError, match="needs sim samples"):
        mixture_counts([10, 20], None, [REAL, SURROGATE], 0.5, 8, 4)
    with pytest.raises(UsageError, match="needs real samples"):
        mixture_counts([10, 20], [1.0, 0.0], [SIM, REAL], 0.5, 8, 4)
    assert (mixture_counts([10, 20], None, [SIM, SIM], 0.0, 8, 4).sum(axis=1) == 8).all()


# --- CT-01: what was really mixed -------------------------------------------------------------------------------------


def bare(rows: int, name: str) -> FrameTable:
    """Return a table of that many rows whose pixels cost nothing."""
    first = table(episodes=1, length=4)
    values = np.linspace(-50.0, 50.0, rows, dtype=np.float32)[:, None].repeat(3, axis=1)
    return replace(
        first,
        images={c: np.broadcast_to(v[:1], (rows, *v.shape[1:])) for c, v in first.images.items()},
        state=values,
        action=values,
        episode_start=np.array([0, rows]),
        fingerprint=name * 64,
    )


def test_ct01_equal_weights_of_unequal_sources_are_accounted_by_samples_and_passes() -> None:
    tables = [bare(2500, "a"), bare(25000, "b")]
    spec = replace(TINY, steps=275, batch=100)
    mixture = make_card(tables, [1.0, 1.0], spec, make_plan(tables, [1.0, 1.0], spec), {}).training["mixture"]
    assert [m["samples"] for m in mixture] == [13750, 13750]
    assert [m["passes"] for m in mixture] == [5.5, 0.55]
    assert [m["share_drawn"] for m in mixture] == [0.5, 0.5]
    assert [m["share_natural"] for m in mixture] == pytest.approx([1 / 11, 10 / 11])


def test_ct01_a_real_share_is_a_share_of_samples_and_stands_beside_the_natural_one() -> None:
    tables = [bare(9000, "a"), bare(1000, "b")]
    spec = replace(TINY, steps=100, batch=64, p_real=0.1)
    real = make_card(tables, None, spec, make_plan(tables, None, spec, [SIM, REAL]), {}).training["real"]
    assert (real["asked"], real["natural"], real["samples_real"], real["samples"]) == (0.1, 0.1, 640, 6400)
    assert real["in_a_batch"] == {"min": 6, "max": 7}
    half = replace(spec, p_real=0.5)
    accounted = make_card(tables, None, half, make_plan(tables, None, half, [SIM, REAL]), {}).training["real"]
    assert (accounted["drawn"], accounted["natural"]) == (0.5, 0.1)
    assert accounted["passes"] == {"real": 3.2, "sim": pytest.approx(3200 / 9000)}


def test_without_a_real_share_nothing_is_re_weighted() -> None:
    tables = [bare(900, "a"), bare(100, "b")]
    counts = quotas([900, 100], TINY.batch, TINY.steps)
    for kinds in (None, [SIM, REAL]):
        assert (make_plan(tables, None, TINY, kinds).counts == counts).all()
    assert account(counts, [900, 100], [SIM, REAL], None)["asked"] is None
    with pytest.raises(UsageError, match="which of the data are simulated"):
        make_plan(tables, None, replace(TINY, p_real=0.5))
    with pytest.raises(UsageError, match="one each"):
        make_plan(tables, None, replace(TINY, p_real=0.5), [SIM])
    with pytest.raises(UsageError, match="p_real"):
        replace(TINY, p_real=1.5)


def test_where_data_come_from_is_read_off_their_stamp_or_unknown() -> None:
    assert evidence_of(Stamp(kind="dataset", fields={"engine": "mujoco"})) is SIM
    assert (
        evidence_of(Stamp(kind="trials", fields={"evidence": "surrogate", "engine": "mujoco"})) is SURROGATE
    )
    assert evidence_of(Stamp(kind="trials", fields={"evidence": "real"})) is REAL
    assert evidence_of(Stamp(kind="dataset", fields={"engine": "unknown"})) is None


# --- the run ----------------------------------------------------------------------------------------------------------


def test_a_mixed_run_stopped_and_resumed_draws_the_same_samples_and_ends_with_the_same_bits(
    tmp_path: Path,
) -> None:
    tables = [table(episodes=5), table(seed=1, episodes=2)]
    spec = replace(TINY, p_real=0.3, domain_input=True)

    class Stop(Exception):
        pass

    def interrupt(report: TrainProgress) -> None:
        if report.step >= 7:
            raise Stop

    whole = train(tables, None, spec, tmp_path / "whole", kinds=[SIM, REAL])
    with pytest.raises(Stop):
        train(tables, None, spec, tmp_path / "cut", interrupt, kinds=[SIM, REAL])
    cut = train(tables, None, spec, tmp_path / "cut", kinds=[SIM, REAL])
    assert read_card(cut).weights_hash == read_card(whole).weights_hash
    assert read_card(cut).training["real"]["samples_real"] == round(0.3 * 16 * 12)
    with pytest.raises(UsageError, match="another"):
        train(tables, None, spec, tmp_path / "cut", kinds=[REAL, SIM])


def test_a_policy_that_is_told_its_domain_acts_by_it_and_says_so(tmp_path: Path) -> None:
    # the same pictures and states; only the source decides the action
    sim = table(episodes=6, length=10)
    real = replace(sim, action=sim.action + np.array([25.0, 0.0, 0.0], np.float32), fingerprint="f" * 64)
    spec = replace(
        TINY,
        steps=250,
        learning_rate=3e-3,
        p_real=0.5,
        domain_input=True,
        shift_px=0,
        log_every=250,
        checkpoint_every_steps=500,
    )
    folder = train([sim, real], None, spec, tmp_path / "told", kinds=[SIM, REAL])
    card = read_card(folder)
    assert (card.domains, card.architecture.state_size) == (("sim", "real"), len(sim.state_spec) + 2)
    on_robot, in_sim = load_policy(folder), load_policy(folder, domain="sim")
    frames = {c: v[:20] for c, v in sim.images.items()}
    apart = (on_robot.predict(frames, sim.state[:20]) - in_sim.predict(frames, sim.state[:20]))[
        :, 0, 0
    ].mean()
    assert apart == pytest.approx(25.0, abs=6.0)
    assert (on_robot.stamp_fields()["domain"], in_sim.stamp_fields()["domain"]) == ("real", "sim")
    with pytest.raises(UsageError, match="domain"):
        load_policy(folder, domain="moon")
    with pytest.raises(UsageError, match="told the domain"):
        make_plan([sim, real], None, replace(TINY, init_from=folder), [SIM, REAL])
    child = make_plan([sim, real], None, replace(TINY, init_from=folder, domain_input=True), [SIM, REAL])
    assert child.architecture == card.architecture


def test_a_policy_that_is_not_told_has_neither_inputs_nor_words_about_it(tmp_path: Path) -> None:
    folder = train([table()], None, TINY, tmp_path / "plain", kinds=[SIM])
    card = read_card(folder)
    assert (card.domains, card.architecture.state_size) == ((), len(card.state_spec))
    assert "domains" not in json.loads((folder / "card.json").read_text())
    assert "domain" not in load_policy(folder, domain="sim").stamp_fields()


def test_noise_and_dropout_leave_the_domain_alone() -> None:
    data = table(episodes=2, length=10)
    normaliser = Normaliser(
        state=fit_range([data.state], data.state_spec),
        action=fit_range([data.action], data.action_spec),
        method=RangeMethod.MIN_MAX,
    )
    counts = np.array([[12, 4]] * 3)
    rows = [np.arange(len(data))] * 2
    source = BatchSource(
        [data, data],
        rows,
        cameras=("front", "wrist"),
        normaliser=normaliser,
        chunk=4,
        counts=counts,
        domains=domain_columns([SIM, SURROGATE]),
    )
    noisy = replace(TINY, proprioception_noise=0.5, proprioception_dropout=0.5)
    for step in range(3):
        told = source.draw(noisy, step).state[:, -2:]
        assert told.tolist() == [[1.0, 0.0]] * 12 + [[0.0, 1.0]] * 4
    assert source.all_of(1, np.arange(5)).state[:, -2:].tolist() == [[0.0, 1.0]] * 5


# --- CT-03: two zeros of one joint ------------------------------------------------------------------------------------


def arm(offset: float, unit: Unit = Unit.DEG, scale: float = 1.0) -> FrameTable:
    first = table(episodes=3, length=20)
    rng = np.random.default_rng(3)
    values = (rng.uniform(-30, 30, (60, 3)) * scale + np.array([offset, 0.0, 0.0])).astype(np.float32)
    limits = {Unit.DEG: 180.0, Unit.RAD: 4.0}[unit]
    spec = VectorSpec(
        rate_hz=20.0,
        dimensions=tuple(
            Dimension(name=n, unit=unit, low=-limits, high=limits) for n in ("joint_0", "joint_1", "joint_2")
        ),
    )
    return replace(first, state=values, action=values, action_spec=spec, state_spec=spec)


def test_ct03_sources_whose_zeros_are_ninety_degrees_apart_are_refused_and_mix_after_conversion() -> None:
    ours, theirs = arm(0.0), arm(90.0)
    offsets = source_offsets([ours, theirs])[1]
    assert set(offsets) == {"action joint_0", "state joint_0"}
    assert offsets["action joint_0"]["offset"] == pytest.approx(90.0, abs=0.01)
    with pytest.raises(ConventionError, match=r"joint_0.*90\.0 deg"):
        make_plan([ours, theirs], None, TINY)
    mixed = np.concatenate([ours.action, theirs.action])[:, 0]
    assert ours.action[:, 0].max() < mixed.mean() < theirs.action[:, 0].min(), (
        "the mean lies where nobody has ever been"
    )
    zero = np.array([90.0, 0.0, 0.0], np.float32)
    assert (
        source_offsets([ours, replace(theirs, state=theirs.state - zero, action=theirs.action - zero)]) == {}
    )
    radians = [arm(0.0, Unit.RAD, 0.01), arm(float(np.pi / 2), Unit.RAD, 0.01)]
    with pytest.raises(ConventionError, match="rad"):
        require_alike(radians)


def test_ct03_sources_that_only_reach_elsewhere_are_mixed_and_their_distance_is_reported() -> None:
    tables = [arm(0.0), arm(70.0)]
    plan = make_plan(tables, None, TINY)
    apart = make_card(tables, None, TINY, plan, {}).training["apart"]
    assert apart["1"]["action joint_0"]["offset"] == pytest.approx(70.0, abs=0.01)
    assert (
        make_card([arm(0.0)] * 2, None, TINY, make_plan([arm(0.0)] * 2, None, TINY), {}).training["apart"]
        == {}
    )


# --- the command line -------------------------------------------------------------------------------------------------


def test_the_command_asks_for_the_domain_where_data_do_not_say_it_and_prints_both_shares(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = clean(episodes=2, length=24)
    rng = np.random.default_rng(0)
    recording.cameras = {"front": [rng.integers(0, 255, (24, 32, 32, 3), dtype=np.uint8) for _ in range(2)]}
    recording.spec_changes = {"image_size": (32, 32), "codec": "png"}
    sim = write(tmp_path / "sim", recording)
    recording.spec_changes |= {"stamp": Stamp(kind="dataset", fields={"engine": "unknown"})}
    recording.actions = [a + 1.0 for a in recording.actions]
    real = write(tmp_path / "real", recording)
    command = [
        "train",
        str(sim),
        str(real),
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
        "--p-real",
        "0.25",
        "--force",
    ]
    assert main([*command, "--out", str(tmp_path / "out")]) == 2
    assert "--domain" in capsys.readouterr().err
    assert main([*command, "--domain", "sim", "robot", "--out", str(tmp_path / "out")]) == 2
    assert "known: " in capsys.readouterr().err
    assert main([*command, "--domain", "sim", "real", "--out", str(tmp_path / "out"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["real"]["asked"], document["real"]["drawn"], document["real"]["natural"]) == (
        0.25,
        0.25,
        0.5,
    )
    assert document["real"]["in_a_batch"] == {"min": 2, "max": 2}
    assert [m["evidence"] for m in document["mixture"]] == ["sim", "real"]
    assert main([*command, "--domain", "sim", "real", "--out", str(tmp_path / "out")]) == 0
    assert "by their frames it would be 0.5000" in capsys.readouterr().out


def test_the_training_spec_says_what_is_mixed() -> None:
    assert TrainSpec(p_real=0.5, domain_input=True).to_json()["p_real"] == 0.5
    assert TrainSpec().to_json()["p_real"] is None

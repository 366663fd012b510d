"""Training of heads, goals, adapters and several processes: learnt, resumed to the sample, merged, refused in one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from simgap.episodes.frames import concatenate
from simgap.episodes.table import FrameTable
from simgap.errors import DataError, MachineError, UsageError
from simgap.policies.base import Asked, Prefix
from simgap.policies.checkpoint import load_policy, read_card
from simgap.policies.cnn import Pool
from simgap.policies.heads import FlowTarget, FlowTime, Head
from simgap.training import TrainProgress, TrainSpec, train
from simgap.training.adapters import PARTS, adapt
from simgap.training.batches import BatchSource, quotas
from simgap.training.objectives import with_noise
from simgap.training.plan import make_plan
from simgap.training.plot import draw_loss
from simgap.training.run import TrainingRun
from simgap.training.trackers import Tracker, TrackerName
from synthetic import find_the_square

TINY = TrainSpec(
    steps=6,
    batch=8,
    chunk=4,
    width=8,
    hidden=32,
    threads=1,
    log_every=2,
    checkpoint_every_steps=3,
    warmup_steps=2,
    shift_px=0,
)


def table(seed: int = 0, **kwargs: int) -> FrameTable:
    return find_the_square(
        np.random.default_rng(seed), image_size=16, **({"episodes": 4, "length": 8} | kwargs)
    )


def two_goals(seed: int = 0) -> FrameTable:
    data = table(seed, episodes=6)
    return replace(
        data, goals=("blue", "red"), goal=np.eye(2, dtype=np.float32)[np.repeat(np.arange(6) % 2, 8)]
    )


def weights_of(path: Path) -> str:
    return read_card(path).weights_hash


def either_way(episodes: int = 40, length: int = 8) -> FrameTable:
    """Episodes that go left or right for good, where nothing that is seen says which."""
    rng = np.random.default_rng(0)
    base = table(episodes=episodes, length=length)
    side = np.repeat(rng.permutation(np.tile([-60.0, 60.0], episodes // 2)), length).astype(np.float32)
    still = np.zeros((episodes * length, 3), np.float32)
    action = np.stack([side, 0.5 * side, np.where(side > 0, 90.0, 10.0).astype(np.float32)], axis=1)
    return replace(
        base,
        images={"front": np.full((episodes * length, 8, 8, 3), 128, np.uint8)},
        state=still,
        action=action,
    )


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = replace(
        TINY,
        head=Head.FLOW,
        steps=250,
        batch=64,
        learning_rate=3e-3,
        checkpoint_every_steps=1000,
        log_every=50,
    )
    return train([either_way()], None, spec, tmp_path_factory.mktemp("flow"))


def seen(count: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    return {"front": np.full((count, 8, 8, 3), 128, np.uint8)}, np.zeros((count, 3), np.float32)


def test_a_flow_goes_either_way_and_never_between(flow: Path) -> None:
    chunks = load_policy(flow).predict_asked(*seen(200), [Asked(seed=i) for i in range(200)])
    ends = chunks[:, :, 0]
    assert 0.25 < (ends[:, 0] > 0).mean() < 0.75
    assert (np.abs(np.abs(ends) - 60.0) < 20.0).mean() > 0.9
    assert (np.sign(ends) == np.sign(ends[:, :1])).mean() > 0.97


def test_a_flow_that_goes_on_from_a_prefix_stays_on_its_way(flow: Path) -> None:
    policy = load_policy(flow)
    for side in (-60.0, 60.0):
        old = np.tile(np.array([side, 0.5 * side, 90.0 if side > 0 else 10.0], np.float32), (4, 1))
        asked = [Asked(seed=i, prefix=Prefix(actions=old, frozen=2, known=3)) for i in range(100)]
        led = policy.predict_asked(*seen(100), asked)
        assert (np.sign(led[:, 2:, 0]) == np.sign(side)).mean() > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("head", [Head.MIP, Head.FLOW])
def test_heads_learn_to_localise_what_only_the_image_shows(tmp_path: Path, head: Head) -> None:
    data = find_the_square(np.random.default_rng(0), episodes=150, length=12, image_size=24)
    spec = TrainSpec(
        steps=300,
        batch=64,
        learning_rate=3e-3,
        chunk=10,
        width=8,
        hidden=64,
        shift_px=0,
        log_every=50,
        warmup_steps=10,
        threads=1,
        head=head,
    )
    policy = load_policy(train([data], None, replace(spec, gripper_head=True), tmp_path))
    fresh = find_the_square(np.random.default_rng(1), episodes=50, length=12, image_size=24)
    starts = fresh.episode_start[:-1]
    chunk = policy.predict({c: v[starts] for c, v in fresh.images.items()}, fresh.state[starts])
    truth = fresh.action[starts + 9]
    assert (
        np.abs(chunk[:, 9, :2] - truth[:, :2]).mean()
        < 0.4 * np.abs(data.action[:, :2].mean(axis=0) - truth[:, :2]).mean()
    )


@pytest.mark.parametrize("head", [pytest.param(Head.MIP, marks=pytest.mark.slow), Head.FLOW])
def test_a_run_with_noise_survives_kill_9_with_the_same_bits(tmp_path: Path, head: Head) -> None:
    code = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from dataclasses import replace
from pathlib import Path
from simgap.policies.heads import Head
from test_training_heads import TINY, table
from simgap.training import train
spec = replace(TINY, head=Head({str(head)!r}))
train([table()], None, spec, Path({str(tmp_path / "cut")!r}), lambda r: os.kill(os.getpid(), signal.SIGKILL) if r.step >= 4 else None)
"""
    killed = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (tmp_path / "cut/resume.pt").exists()
    spec = replace(TINY, head=head)
    assert weights_of(train([table()], None, spec, tmp_path / "cut")) == weights_of(
        train([table()], None, spec, tmp_path / "whole")
    )


def test_noise_and_times_are_a_function_of_seed_and_step() -> None:
    spec = replace(TINY, head=Head.FLOW, gripper_head=True)
    plan = make_plan([table()], None, spec)
    source = BatchSource(
        [table()],
        plan.training_rows,
        cameras=("front",),
        normaliser=plan.normaliser,
        chunk=4,
        counts=quotas([1.0], 4000, 2),
    )
    plain = source.draw(replace(spec, batch=4000), 0)
    one, same, later, other = (
        with_noise(plain, plan.architecture, FlowTime.BETA, *at) for at in ((0, 3), (0, 3), (0, 4), (1, 3))
    )
    assert one.noise is not None
    assert one.time is not None
    assert one.noise.shape == (4000, 4, 2)
    np.testing.assert_array_equal(one.noise, same.noise)
    assert not np.array_equal(one.noise, later.noise)
    assert not np.array_equal(one.noise, other.noise)
    assert one.time.mean() == pytest.approx(0.4, abs=0.02)  # 1 - Beta(1.5, 1) has mean 0.4
    uniform = with_noise(plain, plan.architecture, FlowTime.UNIFORM, 0, 3).time
    assert uniform is not None
    assert uniform.mean() == pytest.approx(0.5, abs=0.02)
    assert with_noise(plain, replace(plan.architecture, head=Head.L1), FlowTime.BETA, 0, 3) is plain


@pytest.mark.parametrize("head", list(Head))
def test_nothing_past_the_end_of_an_episode_reaches_the_gradient(tmp_path: Path, head: Head) -> None:
    """Masked entries may hold anything: the gradient of the batch is the same to the bit."""
    spec = replace(TINY, head=head, bf16=False, gripper_head=True, flow_target=FlowTarget.VELOCITY)
    grads = []
    for junk in (0.0, 1e3):
        run = TrainingRun([table()], make_plan([table()], None, spec), spec)
        batch = run.draw()
        target = np.where(batch.mask[..., None] > 0, batch.target, junk).astype(np.float32)
        assert (batch.mask == 0).any()
        run._gradient(replace(batch, target=target))
        grads.append([p.grad.clone() for p in run.network.parameters() if p.grad is not None])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_a_heavier_gripper_is_fitted_better(tmp_path: Path) -> None:
    light, heavy = (
        TrainingRun([table()], make_plan([table()], None, s), s)
        for s in (replace(TINY, bf16=False), replace(TINY, bf16=False, gripper_weight=5.0))
    )
    batch = light.draw()
    light._gradient(batch)
    heavy._gradient(batch)
    a, b = (r.network.head.weight.grad.view(4, 3, -1) for r in (light, heavy))  # type: ignore[union-attr]
    torch.testing.assert_close(b[:, :2], a[:, :2])
    torch.testing.assert_close(b[:, 2], 5.0 * a[:, 2])


def test_specs_from_before_there_were_heads_ask_for_the_same(tmp_path: Path) -> None:
    stored = TrainSpec().to_json()
    assert not set(stored) & {
        "head",
        "stem",
        "gripper_head",
        "flow_steps",
        "goal_input",
        "frozen",
        "adapter_rank",
        "adapter_parts",
    }
    assert replace(TINY, head=Head.FLOW, frozen=("trunk",), init_from=tmp_path).to_json()["head"] == "flow"
    json.dumps(replace(TINY, head=Head.FLOW, frozen=("trunk",), init_from=tmp_path, adapter_rank=2).to_json())


def test_a_fine_tune_keeps_its_parents_head_and_pool(tmp_path: Path) -> None:
    parent = train([table()], None, replace(TINY, head=Head.MIP, pool=Pool.AVERAGE), tmp_path / "parent")
    child = train([table(1)], None, replace(TINY, init_from=parent), tmp_path / "child")
    assert read_card(child).architecture == read_card(parent).architecture
    assert read_card(child).architecture.head is Head.MIP


def test_a_policy_is_told_its_goals_and_the_card_names_them(tmp_path: Path) -> None:
    spec = replace(TINY, goal_input=True)
    trained = train([two_goals()], None, spec, tmp_path / "told")
    assert read_card(trained).goals == ("blue", "red")
    assert read_card(trained).architecture.state_size == 5
    only_red = replace(two_goals(1), goals=("red",), goal=np.ones((48, 1), np.float32))
    child = train([only_red], None, replace(spec, init_from=trained), tmp_path / "child")
    assert read_card(child).goals == ("blue", "red")
    united = make_plan([two_goals(), replace(only_red, goals=("green",))], None, spec)
    assert united.goals == ("blue", "green", "red")
    assert united.goal_columns is not None
    assert (united.goal_columns[1] == [0.0, 1.0, 0.0]).all()
    assert united.goal_columns[0].sum(axis=0).tolist() == [24.0, 0.0, 24.0]


def test_the_goal_of_a_sample_is_its_episodes_own_and_neither_noise_nor_dropout_touches_it() -> None:
    data = two_goals()
    spec = replace(TINY, goal_input=True, proprioception_noise=1.0, proprioception_dropout=0.9)
    plan = make_plan([data], None, spec)
    source = BatchSource(
        [data],
        plan.training_rows,
        cameras=("front",),
        normaliser=plan.normaliser,
        chunk=4,
        counts=plan.counts,
        goals=plan.goal_columns,
    )
    drawn = source.draw(spec, 0)
    assert drawn.state.shape == (8, 5)
    assert set(map(tuple, drawn.state[:, 3:].tolist())) == {(0.0, 1.0), (1.0, 0.0)}
    exact = source.all_of(0, np.arange(48))
    np.testing.assert_array_equal(exact.state[:, 3:], data.goal)


def test_goals_that_do_not_fit_are_refused_by_one_line(tmp_path: Path) -> None:
    spec = replace(TINY, goal_input=True)
    told, plain = (
        train([two_goals()], None, spec, tmp_path / "told"),
        train([table()], None, TINY, tmp_path / "plain"),
    )
    green = replace(two_goals(), goals=("blue", "green"))
    cases = {
        "do not name the task": ([table()], spec),
        "was told the goal": ([two_goals()], replace(TINY, init_from=told)),
        "was not told the goal": ([two_goals()], replace(spec, init_from=plain)),
        r"ask for \['green'\], the parent knows \['blue', 'red'\]": ([green], replace(spec, init_from=told)),
    }
    for message, (tables, asked) in cases.items():
        with pytest.raises(UsageError, match=message) as caught:
            train(tables, None, asked, tmp_path / "no")
        assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="goal column of shape"):
        replace(table(), goals=("a",), goal=np.zeros((3, 1), np.float32))


def test_tables_joined_into_one_keep_their_goals() -> None:
    both = concatenate([two_goals(), replace(two_goals(1), goals=("green", "red"))])
    assert both.goals == ("blue", "green", "red")
    assert both.goal is not None
    assert both.goal.sum(axis=0).tolist() == [24.0, 24.0, 48.0]
    assert concatenate([two_goals(), table()]).goal is None


def test_frozen_parts_stay_and_the_others_move(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    parent = train([table()], None, TINY, tmp_path / "parent")
    child = train(
        [table(1)],
        None,
        replace(TINY, init_from=parent, frozen=("encoders", "proprioception")),
        tmp_path / "child",
    )
    before, after = (load_file(p / "weights.safetensors") for p in (parent, child))
    for name, value in before.items():
        assert torch.equal(value, after[name]) == name.startswith(("encoders", "proprioception")), name


@pytest.mark.slow
@pytest.mark.parametrize("head", [Head.L1, Head.FLOW])
def test_adapters_are_merged_into_plain_weights_of_low_rank_difference(tmp_path: Path, head: Head) -> None:
    from safetensors.torch import load_file

    pytest.importorskip("peft")
    parent = train([table()], None, replace(TINY, head=head), tmp_path / "parent")
    spec = replace(TINY, init_from=parent, adapter_rank=2, learning_rate=1e-2, threads=2)
    child = train([table(1)], None, spec, tmp_path / "child")
    before, after = (load_file(p / "weights.safetensors") for p in (parent, child))
    assert set(before) == set(after)
    moved = {n for n in before if not torch.equal(before[n], after[n])}
    assert moved
    assert all(n.startswith(("trunk", "head", "denoiser")) and n.endswith("weight") for n in moved)
    for name in moved:
        assert torch.linalg.matrix_rank(after[name] - before[name], rtol=1e-3) <= 2
    assert load_policy(child).predict(
        {c: v[:2] for c, v in table().images.items()}, table().state[:2]
    ).shape == (2, 4, 3)


@pytest.mark.slow
def test_merged_adapters_predict_what_the_adapted_network_did(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    parent = train([table()], None, TINY, tmp_path / "parent")
    spec = replace(
        TINY,
        init_from=parent,
        adapter_rank=2,
        bf16=False,
        learning_rate=1e-2,
        adapter_parts=("encoders", "trunk", "head"),
    )
    run = TrainingRun([table(1)], make_plan([table(1)], None, spec), spec)
    for _ in range(3):
        run.advance(run.draw())
    plain = read_card(parent).architecture.build()
    plain.load_state_dict(dict(run.export()))
    adapted = run._like()
    adapted.load_state_dict(run.averaged)
    batch = run.draw()
    inputs = [torch.from_numpy(i) for i in batch.images], torch.from_numpy(batch.state)
    with torch.no_grad():
        torch.testing.assert_close(plain(*inputs), adapted(*inputs), atol=1e-5, rtol=1e-5)
    run.close()


@pytest.mark.slow
def test_a_run_with_adapters_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    parent = train([table()], None, replace(TINY, head=Head.FLOW), tmp_path / "parent")
    spec = replace(TINY, init_from=parent, adapter_rank=2, frozen=("gripper_head",))

    class Stop(Exception):
        pass

    def interrupt(report: TrainProgress) -> None:
        if report.step >= 4:
            raise Stop

    with pytest.raises(Stop):
        train([table(1)], None, spec, tmp_path / "cut", interrupt)
    assert (tmp_path / "cut/resume.pt").exists()
    assert weights_of(train([table(1)], None, spec, tmp_path / "cut")) == weights_of(
        train([table(1)], None, spec, tmp_path / "whole")
    )


def test_requests_that_leave_nothing_to_train_or_name_no_part_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = train([table()], None, TINY, tmp_path / "parent")
    network = read_card(parent).architecture.build()
    with pytest.raises(UsageError, match=r"no part 'encoder'; did you mean 'encoders'"):
        adapt(network, replace(TINY, init_from=parent, frozen=("encoder",)))
    with pytest.raises(UsageError, match="nothing is left to train"):
        adapt(network, replace(TINY, init_from=parent, frozen=PARTS))
    with pytest.raises(UsageError, match="keep weights of a parent"):
        replace(TINY, frozen=("trunk",))
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MachineError, match=r"need peft.*leave out --adapter-rank"):
        adapt(network, replace(TINY, init_from=parent, adapter_rank=1))


@pytest.mark.slow
def test_two_processes_share_every_batch_and_end_where_one_does(tmp_path: Path) -> None:
    script = tmp_path / "train_it.py"
    script.write_text(f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from dataclasses import replace
from pathlib import Path
from test_training_heads import TINY, table
from simgap.policies.heads import Head
from simgap.training import train
for name, spec in (("l1", TINY), ("flow", replace(TINY, head=Head.FLOW))):
    train([table()], None, replace(spec, bf16=False), Path({str(tmp_path)!r}) / name)
""")
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        str(script),
    ]
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for name, head in (("l1", Head.L1), ("flow", Head.FLOW)):
        alone = train([table()], None, replace(TINY, head=head, bf16=False), tmp_path / f"{name}-alone")
        card = read_card(tmp_path / name)
        assert card.training["processes"] == 2
        inputs = {c: v[:8] for c, v in table().images.items()}, table().state[:8]
        together, single = (load_policy(p).predict(*inputs) for p in (tmp_path / name, alone))
        np.testing.assert_allclose(together, single, atol=1e-2)
        steps = [
            json.loads(line)["step"] for line in (tmp_path / name / "train.jsonl").read_text().splitlines()
        ]
        assert steps == [2, 4, 6]


def test_open_loop_errors_are_logged_in_action_units_and_say_that_they_never_select(tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    out = train([table(episodes=10)], None, replace(TINY, validation_share=0.3, head=Head.FLOW), tmp_path)
    assert torch.equal(before, torch.random.get_rng_state())
    record = read_card(out).training["open_loop_never_selects"]
    assert record["frames"] == 24
    assert set(record["mean_absolute_error"]["chunk"]) == set(table().action_spec.names)
    assert all(0 < v < 200 for part in record["mean_absolute_error"].values() for v in part.values())
    last = json.loads((out / "train.jsonl").read_text().splitlines()[-1])
    assert last["open_loop_never_selects"] == record


def test_open_loop_errors_are_the_ones_of_the_saved_policy(tmp_path: Path) -> None:
    spec = replace(TINY, validation_share=0.25, bf16=False)
    data = table()
    out = train([data], None, spec, tmp_path)
    rows = make_plan([data], None, spec).held_out_rows[0]
    said = load_policy(out).predict({c: v[rows] for c, v in data.images.items()}, data.state[rows])
    expected = np.abs(said[:, 0] - data.action[rows]).mean(axis=0)
    found = read_card(out).training["open_loop_never_selects"]["mean_absolute_error"]["first_entry"]
    np.testing.assert_allclose([found[n] for n in data.action_spec.names], expected, rtol=1e-3)


def test_the_picture_of_the_loss_is_drawn_from_the_log(tmp_path: Path) -> None:
    out = train([table()], None, replace(TINY, validation_share=0.25), tmp_path / "run")
    picture = draw_loss(out)
    assert picture == out / "train.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert draw_loss(tmp_path) is None


@pytest.mark.parametrize("name", list(TrackerName))
def test_trackers_get_the_rows_and_a_missing_one_is_one_line(
    monkeypatch: pytest.MonkeyPatch, name: TrackerName
) -> None:
    monkeypatch.setitem(sys.modules, str(name), None)
    with pytest.raises(
        MachineError, match=f"{name} is not installed; pip install {name}, or leave out --track"
    ):
        Tracker(name, project="p", run="r", config={})
    calls: list[tuple[str, object]] = []
    fake = types.ModuleType(str(name))
    fake.init = lambda **k: calls.append(("init", k))  # type: ignore[attr-defined]
    fake.log = lambda values, step: calls.append(("log", (values, step)))  # type: ignore[attr-defined]
    fake.finish = lambda: calls.append(("finish", None))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, str(name), fake)
    tracker = Tracker(name, project="p", run="r", config={"steps": 3})
    tracker.log({"step": 2, "loss": 0.5, "learning_rate": 1e-3})
    tracker.close()
    assert calls == [
        ("init", {"project": "p", "name": "r", "config": {"steps": 3}}),
        ("log", ({"loss (never selects)": 0.5, "learning_rate": 1e-3}, 2)),
        ("finish", None),
    ]


def test_a_batch_too_small_to_share_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="batch of 1 cannot be shared by 2 threads x 1 processes"):
        train([table()], None, replace(TINY, batch=1, threads=2), tmp_path)


def test_progress_of_a_flow_is_reported_like_any_other(tmp_path: Path) -> None:
    reports: list[TrainProgress] = []
    train([table()], None, replace(TINY, head=Head.FLOW), tmp_path, reports.append)
    assert [r.step for r in reports] == [2, 4, 6]

"""Converting changes what was asked and nothing else, says what it would have to guess, and survives being killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from format_builders import write_act, write_robomimic, write_tub
from simgap.checks.data.dataset import check_data
from simgap.conventions import Dimension, Reference, Unit, VectorSpec
from simgap.episodes.edit.convert import Converter, Target, convert_dataset
from simgap.episodes.edit.transform import Plan, make_change
from simgap.episodes.formats.keymap import KeyMap
from simgap.episodes.formats.layout import video_path
from simgap.episodes.formats.words import convention_words, parse_convention
from simgap.episodes.reader import open_dataset
from simgap.episodes.write.store import EpisodeWriter
from simgap.errors import ConventionError, DataError, UsageError
from simgap.provenance import assumptions
from simgap.types import Episode, Outcome
from test_episodes_store import make_episode, make_spec, tree

STATED = {"*.pos": {"unit": "deg"}, "gripper.pos": {"unit": "percent", "low": 0.0, "high": 100.0}}


def write(
    root: Path,
    n: int = 3,
    cameras: tuple[str, ...] = ("front",),
    codec: str = "png",
    length: int = 6,
    **changes: Any,
) -> Path:
    writer = EpisodeWriter(root, make_spec(cameras, codec, **changes))
    for k in range(n):
        writer.write(k, make_episode(k, length + k, cameras))
    writer.finish()
    return root


def test_a_seed_that_nobody_recorded_stays_absent(tmp_path: Path) -> None:
    write_act(tmp_path / "act" / "episode_0.hdf5", compressed=True)
    colours = {"cam_high": ("rgb",), "cam_low": ("rgb",)}
    source = open_dataset(tmp_path / "act", KeyMap(rate_hz=50, images=colours))
    assert source.episode(0, images=False).seed is None
    convert_dataset(source, tmp_path / "copy", Target(task="pick"))
    assert open_dataset(tmp_path / "copy").episode(0, images=False).seed is None
    assert open_dataset(write(tmp_path / "ours")).episode(0, images=False).seed is not None


# --- nothing asked, nothing changed ----------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["png", "h264"])
def test_a_copy_is_equal_and_its_videos_are_not_compressed_again(codec: str, tmp_path: Path) -> None:
    source = open_dataset(write(tmp_path / "a", codec=codec))
    done = convert_dataset(source, tmp_path / "b", Target())
    copy = open_dataset(tmp_path / "b")
    assert (done.episodes, done.frames, copy.spec.codec) == (3, 21, codec)
    for k in range(3):
        _same(copy.episode(k), source.episode(k))
    if codec == "h264":
        key = "observation.images.front"
        assert (tmp_path / "a" / video_path(1, key)).read_bytes() == (
            tmp_path / "b" / video_path(1, key)
        ).read_bytes()
    assert copy.spec.stamp.fields["lineage"][0]["from"] == source.fingerprint
    assert assumptions(copy.spec.stamp) >= assumptions(source.spec.stamp), (
        "a copy rests on what its source rests on"
    )


def _same(a: Episode, b: Episode) -> None:
    for name in ("action", "state", "time_s"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert (a.task, a.seed, a.outcome, dict(a.factors)) == (b.task, b.seed, b.outcome, dict(b.factors))
    assert a.images.keys() == b.images.keys()
    for name, frames in a.images.items():
        np.testing.assert_array_equal(frames, b.images[name])
    for name, values in b.extras.items():
        np.testing.assert_array_equal(a.extras[name], values)


def test_other_formats_come_out_as_clean_lerobot(tmp_path: Path) -> None:
    numbers, frames = write_tub(tmp_path / "tub", deleted=[4], speed=[0.1 * k for k in range(20)])
    write_act(tmp_path / "act" / "episode_0.hdf5", compressed=True)
    write_robomimic(tmp_path / "demo.hdf5")
    tub = open_dataset(tmp_path / "tub", KeyMap(keys=(("cam/image_array", "front"),)))
    convert_dataset(tub, tmp_path / "out" / "tub", Target(task="drive", codec="png"))
    out = open_dataset(tmp_path / "out" / "tub")
    kept = [k for k in range(20) if k != 4]
    np.testing.assert_allclose(
        np.concatenate([out.episode(k).action for k in range(3)]), numbers[kept], rtol=1e-6
    )
    assert (
        np.abs(
            np.concatenate([out.episode(k).images["front"] for k in range(3)]).astype(int) - frames[kept]
        ).max()
        <= 3
    )
    assert out.episode(1).extras["speed"].tolist() == [0.1 * k for k in range(5, 12)]
    assert len(out.spec.state_spec) == 0
    assert not check_data(out).findings
    act = open_dataset(
        tmp_path / "act", KeyMap(rate_hz=50, images={"cam_high": ("rgb",), "cam_low": ("rgb",)})
    )
    convert_dataset(act, tmp_path / "out" / "act", Target(task="insert", codec="png"))
    demos = open_dataset(tmp_path / "demo.hdf5")
    convert_dataset(demos, tmp_path / "out" / "demo", Target(codec="png"))
    for source, name in ((act, "act"), (demos, "demo")):
        written = open_dataset(tmp_path / "out" / name)
        assert written.spec.stamp.fields["clock"] == "positional k/rate", (
            "an HDF5 file has no clock, and the copy says so"
        )
        for k in range(source.n_episodes):
            np.testing.assert_array_equal(written.episode(k).action, source.episode(k).action)
            np.testing.assert_array_equal(written.episode(k).state, source.episode(k).state)
            for camera, images in source.episode(k).images.items():
                np.testing.assert_array_equal(written.episode(k).images[camera], images)
    assert open_dataset(tmp_path / "out" / "demo").entry(0).tasks == ("Lift",)


def test_a_state_is_made_of_commands_only_on_request_and_never_over_a_measured_one(tmp_path: Path) -> None:
    write_tub(tmp_path / "t")
    convert_dataset(
        open_dataset(tmp_path / "t"),
        tmp_path / "b",
        Target(task="drive", codec="png", state_from_action=True),
    )
    out = open_dataset(tmp_path / "b")
    assert out.spec.state_spec.names == ("steering.pos", "throttle.vel")
    episode = out.episode(0)
    np.testing.assert_array_equal(episode.state[1:], episode.action[:-1])
    np.testing.assert_array_equal(episode.state[0], episode.action[0])
    assert out.spec.stamp.fields["lineage"][0]["change"]["state_from_action"]
    assert check_data(out).codes() & {"state_is_previous_action"}, "the check says what such a state is"
    with pytest.raises(UsageError, match="must not replace that"):
        Converter(open_dataset(write(tmp_path / "a")), Target(state_from_action=True))


def test_a_dataset_without_words_asks_for_them(tmp_path: Path) -> None:
    write_tub(tmp_path / "t")
    with pytest.raises(DataError, match="--task"):
        convert_dataset(open_dataset(tmp_path / "t"), tmp_path / "out", Target())


# --- conventions -----------------------------------------------------------------------------------------------------


def plan_of(**fields: Any) -> Plan:
    return Plan(**({"states": STATED} | fields))


def test_units_order_polarity_and_names_change_as_asked(tmp_path: Path) -> None:
    source = open_dataset(write(tmp_path / "a"))
    names = source.spec.action_spec.names
    order = tuple(reversed(names))
    plan = plan_of(
        becomes={"[!g]*.pos": {"unit": "rad"}, "action:gripper.pos": {"opens_high": False}},
        order={"action": order},
    )
    convert_dataset(source, tmp_path / "b", Target(plan=plan))
    out = open_dataset(tmp_path / "b")
    assert out.spec.action_spec.names == order
    assert out.spec.state_spec.names == names
    for k in range(3):
        before, after = source.episode(k), out.episode(k)
        np.testing.assert_allclose(after.state[:, :5], np.radians(before.state[:, :5]), rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(after.state[:, 5], before.state[:, 5])
        np.testing.assert_allclose(
            after.action[:, 1:], np.radians(before.action[:, 4::-1]), rtol=1e-5, atol=1e-7
        )
        np.testing.assert_allclose(after.action[:, 0], 100.0 - before.action[:, 5], rtol=1e-6)
    limits = out.spec.state_spec.dimensions[0]
    assert (limits.unit, limits.low) == (
        Unit.RAD,
        pytest.approx(-np.pi),
    ), "limits are converted with the numbers"


def test_actions_become_differences_and_come_back(tmp_path: Path) -> None:
    source = open_dataset(write(tmp_path / "a"))
    relative = plan_of(becomes={"action:[!g]*.pos": {"reference": "chunk_delta"}})
    convert_dataset(source, tmp_path / "b", Target(plan=relative))
    middle = open_dataset(tmp_path / "b")
    np.testing.assert_allclose(
        middle.episode(1).action[:, :5],
        (source.episode(1).action - source.episode(1).state)[:, :5],
        atol=1e-6,
    )
    np.testing.assert_array_equal(middle.episode(1).action[:, 5], source.episode(1).action[:, 5])
    convert_dataset(
        middle, tmp_path / "c", Target(plan=Plan(becomes={"action:[!g]*.pos": {"reference": "absolute"}}))
    )
    for k in range(3):
        np.testing.assert_allclose(
            open_dataset(tmp_path / "c").episode(k).action, source.episode(k).action, atol=1e-6
        )


def test_steps_sum_to_the_path_they_were_taken_from(tmp_path: Path) -> None:
    source = open_dataset(write(tmp_path / "a"))
    convert_dataset(
        source, tmp_path / "b", Target(plan=plan_of(becomes={"action:[!g]*.pos": {"reference": "delta"}}))
    )
    steps, whole = open_dataset(tmp_path / "b").episode(2), source.episode(2)
    np.testing.assert_allclose(
        steps.state[0, :5] + np.cumsum(steps.action[:, :5], axis=0), whole.action[:, :5], atol=1e-5
    )


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown unit": (
        {"states": {"*": {"unit": "unknown"}}, "becomes": {"*": {"unit": "rad"}}},
        "nobody said",
    ),
    "percent into an angle": ({"becomes": {"*": {"unit": "rad"}}}, "calibrated range"),
    "half an order": ({"order": {"action": ("gripper.pos",)}}, "name every dimension once"),
    "order of a stranger": ({"order": {"action": ("elbow",)}}, "has \\['elbow'\\] besides"),
    "delta of a state": ({"becomes": {"state:elbow_flex.pos": {"reference": "delta"}}}, "stays so"),
    "two anchors": (
        {
            "becomes": {
                "action:elbow_flex.pos": {"reference": "delta"},
                "action:wrist_roll.pos": {"reference": "chunk_delta"},
            }
        },
        "two steps",
    ),
    "no such dimension": (
        {"becomes": {"elbow.pos": {"unit": "rad"}}},
        "means no dimension; did you mean 'elbow_flex.pos'",
    ),
    "renamed twice": ({"rename": {"elbow_flex.pos": "gripper.pos"}}, "twice"),
    "renamed from nothing": ({"rename": {"elbow": "x"}}, "no dimension 'elbow'"),
    "nothing to drop": ({"drop": ("finger*",)}, "means no dimension"),
    "no state of that name": (
        {"drop": ("state:elbow*",), "becomes": {"action:elbow_flex.pos": {"reference": "chunk_delta"}}},
        "no state of their name",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_be_guessed_or_lost_is_refused(case: str) -> None:
    fields, words = REFUSED[case]
    spec = make_spec()
    with pytest.raises((UsageError, ConventionError), match=words):
        make_change(plan_of(**fields), spec.action_spec, spec.state_spec)


_UNITS = st.sampled_from(
    [
        {"unit": "rad"},
        {"unit": "deg"},
        {"zero": 12.5},
        {"sign": -1},
        {"unit": "rad", "zero": -0.5, "sign": -1},
    ]
)


@given(
    seed=st.integers(0, 2**32),
    units=st.lists(_UNITS, min_size=5, max_size=5),
    order=st.permutations(range(6)),
    turned=st.booleans(),
    reference=st.sampled_from(list(Reference)),
)
def test_a_conversion_and_its_way_back_lose_nothing(
    seed: int, units: list[dict[str, Any]], order: list[int], turned: bool, reference: Reference
) -> None:
    spec = make_spec()
    names = spec.action_spec.names
    becomes = {name: fields for name, fields in zip(names[:5], units, strict=True)}
    if turned:
        becomes["gripper.pos"] = {"opens_high": False}
    there = make_change(
        plan_of(becomes=becomes, order={"action": tuple(names[k] for k in order)}),
        spec.action_spec,
        spec.state_spec,
    )
    actions = {f"action:{n}": {"reference": str(reference)} for n in names[:5]}
    relative = make_change(Plan(becomes=actions), there.action.target, there.state.target)
    absolute = make_change(
        Plan(becomes={k: {"reference": "absolute"} for k in actions}),
        relative.action.target,
        relative.state.target,
    )
    plain = {
        n: d.to_json()
        for n, d in zip(
            names,
            make_change(plan_of(), spec.action_spec, spec.state_spec).action.target.dimensions,
            strict=True,
        )
    }
    fields = {
        n: {k: v for k, v in d.items() if k in ("unit",)} | {"zero": 0.0, "sign": 1, "opens_high": True}
        for n, d in plain.items()
    }
    back = make_change(
        Plan(
            becomes={
                n: {k: v for k, v in f.items() if k != "opens_high" or n == "gripper.pos"}
                for n, f in fields.items()
            },
            order={"action": names},
        ),
        absolute.action.target,
        absolute.state.target,
    )
    episode = replace(make_episode(seed, 8), images={})
    result = back.apply(absolute.apply(relative.apply(there.apply(episode))))
    np.testing.assert_allclose(result.action, episode.action, atol=2e-3)
    np.testing.assert_allclose(result.state, episode.state, atol=2e-3)


_DIMENSIONS = st.builds(
    Dimension,
    name=st.just("j"),
    unit=st.sampled_from(list(Unit)),
    low=st.integers(-200, 0).map(float),
    high=st.integers(1, 200).map(float),
    reference=st.sampled_from(list(Reference)),
    is_gripper=st.just(True),
    opens_high=st.booleans(),
    sign=st.sampled_from([1, -1]),
    zero=st.integers(-90, 90).map(float),
    frame=st.sampled_from(["base", "tool"]),
)


@given(_DIMENSIONS)
def test_words_of_a_convention_say_it_again(dimension: Dimension) -> None:
    words = convention_words(dimension, ("unit", "reference", "opens_high", "sign", "zero", "frame", "low"))
    start = Dimension(name="j", unit=Unit.UNKNOWN, low=-1.0, high=1.0)
    assert Dimension.from_json({**start.to_json(), **parse_convention(words)}) == dimension


def test_a_word_that_means_nothing_proposes_another() -> None:
    assert parse_convention("ends:0..4095ticks/4096,opens_low") == {
        "calibrated": {"low": 0.0, "high": 4095.0, "unit": "ticks", "ticks_per_turn": 4096.0},
        "is_gripper": True,
        "opens_high": False,
    }
    with pytest.raises(UsageError, match="did you mean 'percent'"):
        parse_convention("percnt")
    with pytest.raises(UsageError, match="sign:-1"):
        parse_convention("sign:up")


# --- frames, clocks, cameras -----------------------------------------------------------------------------------------


def test_fewer_frames_are_those_a_slower_loop_would_have_seen(tmp_path: Path) -> None:
    source = open_dataset(write(tmp_path / "a", n=1, length=30))
    convert_dataset(source, tmp_path / "b", Target(plan=Plan(rate_hz=5.0)))
    out, whole = open_dataset(tmp_path / "b").episode(0), source.episode(0)
    np.testing.assert_allclose(np.diff(out.time_s), 0.2)
    for k, tick in enumerate(out.time_s):
        newest = int(np.flatnonzero(whole.time_s <= tick + 1e-6)[-1])
        np.testing.assert_array_equal(out.action[k], whole.action[newest])
        np.testing.assert_array_equal(out.images["front"][k], whole.images["front"][newest])
    assert open_dataset(tmp_path / "b").info.rate_hz == 5.0
    with pytest.raises(ConventionError, match="would invent some"):
        Converter(source, Target(plan=Plan(rate_hz=25.0)))


def test_cameras_are_renamed_dropped_and_resized(tmp_path: Path) -> None:
    source = open_dataset(write(tmp_path / "a", cameras=("front", "side", "top")))
    convert_dataset(
        source, tmp_path / "b", Target(cameras={"front": "wrist"}, drop_cameras=("top",), image_size=(8, 12))
    )
    out = open_dataset(tmp_path / "b")
    assert set(out.spec.cameras) == {"wrist", "side"}
    wanted = source.episode(0).images["front"].reshape(-1, 8, 2, 12, 2, 3).mean((2, 4))
    assert np.abs(out.episode(0).images["wrist"] - wanted).max() <= 1
    for target, words in (
        (Target(cameras={"fornt": "x"}), "did you mean 'front'"),
        (Target(cameras={"front": "side"}), "name of its own"),
    ):
        with pytest.raises(UsageError, match=words):
            Converter(source, target)


def test_episodes_are_chosen_and_odd_columns_renamed_or_named(tmp_path: Path) -> None:
    write_robomimic(tmp_path / "demo.hdf5")
    source = open_dataset(tmp_path / "demo.hdf5", KeyMap(keys=(("obs/robot0_eef_pos", "state"),)))
    done = convert_dataset(source, tmp_path / "b", Target(codec="png", episodes=(2, 0)))
    out = open_dataset(tmp_path / "b")
    assert [e.length for e in out.entries] == [11, 7]
    assert "robot0_gripper_qpos" in out.episode(0, images=False).extras
    assert not done.notes
    with pytest.raises(UsageError, match=r"no episodes \[7\]"):
        Converter(source, Target(episodes=(7,)))


def test_a_wrong_clock_can_be_given_up_and_the_copy_says_so(tmp_path: Path) -> None:
    write_tub(tmp_path / "t", step_ms=3)
    convert_dataset(
        open_dataset(tmp_path / "t"), tmp_path / "b", Target(task="drive", codec="png", positional_clock=True)
    )
    out = open_dataset(tmp_path / "b")
    np.testing.assert_allclose(np.diff(out.episode(0).time_s), 0.05)
    assert out.spec.stamp.fields["clock"] == "positional k/rate"


# --- being killed ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_conversion_that_was_killed_goes_on_and_ends_alike(tmp_path: Path) -> None:
    source = write(tmp_path / "a", n=24, codec="h264")
    target = Target(image_size=(12, 16))
    convert_dataset(open_dataset(source), tmp_path / "whole", target)
    script = (
        "from pathlib import Path; from simgap.episodes.edit.convert import *; from simgap.episodes.reader"
        f" import open_dataset;convert_dataset(open_dataset({str(source)!r}),"
        f" Path({str(tmp_path / 'cut')!r}), Target(image_size=(12, 16)))"
    )
    process = subprocess.Popen([sys.executable, "-c", script])
    began = time.monotonic()
    while (
        len(list((tmp_path / "cut" / "meta").glob("episodes/*/*.parquet"))) < 3
        and time.monotonic() - began < 60
    ):
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with pytest.raises(DataError, match="unfinished"):
        open_dataset(tmp_path / "cut")
    done = convert_dataset(open_dataset(source), tmp_path / "cut", target)
    assert 3 <= done.found < 24, "what was there is not made again"
    whole, cut = tree(tmp_path / "whole"), tree(tmp_path / "cut")
    assert whole == cut
    with pytest.raises(DataError, match="another spec"):
        convert_dataset(open_dataset(source), tmp_path / "cut", Target(image_size=(8, 8)))


def test_processes_make_the_same_bytes_as_one(tmp_path: Path) -> None:
    source = open_dataset(write(tmp_path / "a", n=6))
    convert_dataset(source, tmp_path / "b", Target(codec="h264"))
    calls: list[tuple[int, int]] = []
    convert_dataset(
        source,
        tmp_path / "c",
        Target(codec="h264"),
        workers=2,
        progress=lambda done, total: calls.append((done, total)),
    )
    assert tree(tmp_path / "b") == tree(tmp_path / "c")
    assert calls == [(k, 6) for k in range(1, 7)]


def test_a_dataset_is_not_written_onto_itself(tmp_path: Path) -> None:
    source = open_dataset(write(tmp_path / "a"))
    before = tree(tmp_path / "a")
    with pytest.raises(UsageError, match="the dataset itself"):
        convert_dataset(source, tmp_path / "a", Target())
    assert tree(tmp_path / "a") == before


def test_outcomes_seeds_and_factors_survive(tmp_path: Path) -> None:
    writer = EpisodeWriter(tmp_path / "a", make_spec(codec="png"))
    outcomes = [Outcome.success(), Outcome.failure("dropped"), Outcome.void("unplugged")]
    for k, outcome in enumerate(outcomes):
        writer.write(k, make_episode(k, outcome=outcome))
    writer.finish()
    convert_dataset(open_dataset(tmp_path / "a"), tmp_path / "b", Target())
    out = open_dataset(tmp_path / "b")
    assert [out.episode(k, images=False).outcome for k in range(3)] == outcomes
    assert json.loads((tmp_path / "b" / "meta" / "simgap.json").read_text())["episodes"] == 3


def test_an_empty_change_touches_no_number() -> None:
    vector = VectorSpec(dimensions=(Dimension(name="a", unit=Unit.UNKNOWN, low=-1, high=1),), rate_hz=10.0)
    change = make_change(Plan(), vector, VectorSpec(dimensions=(), rate_hz=10.0))
    assert change.action.is_nothing
    assert change.state.target.names == ()

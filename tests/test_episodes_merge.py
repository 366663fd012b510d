"""Datasets become one only under one convention; every difference is told with both sides and a command that removes it. Splits leak nothing."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from format_builders import write_tub
from simgap.cli import main
from simgap.conventions import CalibratedRange, Dimension, Reference, Unit, VectorSpec
from simgap.episodes.edit.differences import require_agreement
from simgap.episodes.edit.merge import merge_datasets
from simgap.episodes.edit.restat import compare, dataset_statistics, stored_statistics, write_statistics
from simgap.episodes.edit.split import split_episodes
from simgap.episodes.formats.keymap import KeyMap
from simgap.episodes.formats.layout import data_path, video_path
from simgap.episodes.reader import open_dataset
from simgap.episodes.spec import DatasetSpec
from simgap.episodes.write.store import EpisodeWriter
from simgap.errors import ConventionError, UsageError
from simgap.provenance import Stamp, assumptions
from test_data_check_layouts import write_21
from test_episodes_store import RATE_HZ, make_episode, make_spec, tree

NAMES = make_spec().action_spec.names
ENDS = CalibratedRange(low=0.0, high=2048.0)


def vector(names: tuple[str, ...] = NAMES, rate_hz: float = RATE_HZ, **changes: dict[str, Any]) -> VectorSpec:
    """The arm's convention, with fields of single dimensions changed (``elbow_flex={"unit": ...}``)."""
    dimensions = []
    for name in names:
        grips = name == "gripper.pos"
        fields: dict[str, Any] = (
            {"unit": Unit.PERCENT, "low": 0.0, "high": 100.0, "is_gripper": True}
            if grips
            else {"unit": Unit.DEG, "low": -180.0, "high": 180.0}
        )
        dimensions.append(Dimension(**({"name": name} | fields | changes.get(name.removesuffix(".pos"), {}))))
    return VectorSpec(dimensions=tuple(dimensions), rate_hz=rate_hz)


def write(
    root: Path,
    first_seed: int = 0,
    n: int = 3,
    action: VectorSpec | None = None,
    state: VectorSpec | None = None,
    **fields: Any,
) -> Path:
    action = action or vector(rate_hz=fields.get("rate_hz", RATE_HZ))
    spec: DatasetSpec = make_spec(
        fields.pop("cameras", ("front",)),
        **({"codec": "png", "action_spec": action, "state_spec": state or action} | fields),
    )
    writer = EpisodeWriter(root, spec)
    for k in range(n):
        episode = make_episode(first_seed + k, 5 + k, spec.cameras)
        height, width = spec.image_size
        images = {c: np.resize(v, (len(v), height, width, 3)) for c, v in episode.images.items()}
        units = [
            np.array([np.pi / 180 if d.unit is Unit.RAD else 1.0 for d in s.dimensions], np.float32)
            for s in (spec.action_spec, spec.state_spec)
        ]
        writer.write(
            k,
            replace(episode, images=images, action=episode.action * units[0], state=episode.state * units[1]),
        )
    writer.finish()
    return root


# --- merging ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["png", "h264"])
def test_episodes_follow_each_other_and_nothing_of_them_changes(codec: str, tmp_path: Path) -> None:
    sources = [
        open_dataset(write(tmp_path / name, first_seed=10 * k, codec=codec)) for k, name in enumerate("abc")
    ]
    done = merge_datasets(sources, tmp_path / "out")
    merged = open_dataset(tmp_path / "out")
    assert (done.episodes, done.frames) == (9, 54)
    for k in range(9):
        source, index = sources[k // 3], k % 3
        for name in ("action", "state", "time_s"):
            np.testing.assert_array_equal(
                getattr(merged.episode(k), name), getattr(source.episode(index), name)
            )
        np.testing.assert_array_equal(
            merged.episode(k).images["front"], source.episode(index).images["front"]
        )
        assert merged.episode(k).task == source.episode(index).task
        assert merged.episode(k).seed == source.episode(index).seed
    if codec == "h264":
        key = "observation.images.front"
        assert (tmp_path / "out" / video_path(4, key)).read_bytes() == (
            tmp_path / "b" / video_path(1, key)
        ).read_bytes(), "no second compression"
    origins = merged.spec.stamp.fields["merged"]
    assert [o["fingerprint"] for o in origins] == [s.fingerprint for s in sources]


def test_a_merged_dataset_rests_on_all_its_parts_rest_on(tmp_path: Path) -> None:
    stamps = [
        Stamp(kind="dataset", fields={"engine": name, "judge": "lifted"}) for name in ("mujoco", "drake")
    ]
    sources = [open_dataset(write(tmp_path / str(k), first_seed=k, stamp=s)) for k, s in enumerate(stamps)]
    merge_datasets(sources, tmp_path / "out")
    assert assumptions(open_dataset(tmp_path / "out").spec.stamp) == {
        "engine=mujoco",
        "engine=drake",
        "judge=lifted",
    }


def test_merging_again_finds_it_done_and_changes_nothing(tmp_path: Path) -> None:
    sources = [open_dataset(write(tmp_path / name, first_seed=10 * k)) for k, name in enumerate("ab")]
    first = merge_datasets(sources, tmp_path / "out")
    before = tree(tmp_path / "out")
    again = merge_datasets(sources, tmp_path / "out", workers=1)
    assert (first.found, again.found) == (0, 6)
    assert tree(tmp_path / "out") == before


def test_the_same_data_twice_are_not_merged(tmp_path: Path) -> None:
    source = open_dataset(write(tmp_path / "a"))
    with pytest.raises(UsageError, match="the same data"):
        merge_datasets([source, open_dataset(tmp_path / "a")], tmp_path / "out")
    with pytest.raises(UsageError, match="two datasets or more"):
        merge_datasets([source], tmp_path / "out")


def test_columns_that_not_all_have_are_left_out_and_named(tmp_path: Path) -> None:
    a = open_dataset(write(tmp_path / "a"))
    writer = EpisodeWriter(tmp_path / "b", make_spec(codec="png", action_spec=vector(), state_spec=vector()))
    writer.write(
        0, make_episode(7, extras={"age_s": np.zeros(12, np.float32), "is_clipped": np.zeros(12, bool)})
    )
    writer.finish()
    done = merge_datasets([a, open_dataset(tmp_path / "b")], tmp_path / "out")
    assert done.notes == ("columns ['age_s', 'executed'] are left out: not every dataset has them",), (
        "age_s has another type there"
    )
    assert set(open_dataset(tmp_path / "out").episode(0).extras) == {"is_clipped"}


def test_wider_limits_hold_for_both(tmp_path: Path) -> None:
    sources = [
        open_dataset(write(tmp_path / "a")),
        open_dataset(write(tmp_path / "b", 5, action=vector(elbow_flex={"low": -200.0, "high": 90.0}))),
    ]
    merge_datasets(sources, tmp_path / "out")
    elbow = open_dataset(tmp_path / "out").spec.action_spec.dimensions[NAMES.index("elbow_flex.pos")]
    assert (elbow.low, elbow.high) == (-200.0, 180.0)


RAD = {"unit": Unit.RAD, "low": -3.2, "high": 3.2}
DIFFERENT: dict[str, tuple[Callable[[Path], Path], list[str]]] = {
    "unit": (
        lambda r: write(r, 5, action=vector(elbow_flex=RAD)),
        ["'elbow_flex.pos' is deg in", "and rad in"],
    ),
    "unit of all": (
        lambda r: write(r, 5, action=vector(**{n.removesuffix(".pos"): RAD for n in NAMES[:5]})),
        ["'wrist_flex.pos' and 1 more are deg in"],
    ),
    "unit of the state alone": (
        lambda r: write(r, 5, action=vector(), state=vector(elbow_flex=RAD)),
        ["state 'elbow_flex.pos' is deg"],
    ),
    "order": (lambda r: write(r, 5, action=vector(NAMES[::-1]), state=vector()), ["action order differs"]),
    "polarity": (
        lambda r: write(r, 5, action=vector(gripper={"opens_high": False})),
        ["'gripper.pos' is opens_high in", "and opens_low in"],
    ),
    "reference": (
        lambda r: write(r, 5, action=vector(elbow_flex={"reference": Reference.CHUNK_DELTA}), state=vector()),
        ["is absolute in", "and chunk_delta in"],
    ),
    "zero and sign": (
        lambda r: write(r, 5, action=vector(elbow_flex={"zero": 90.0, "sign": -1})),
        ["sign:1,zero:0 in", "sign:-1,zero:90 in"],
    ),
    "names": (
        lambda r: write(r, 5, action=vector(tuple(n.replace("elbow_flex", "elbow") for n in NAMES))),
        ["has elbow_flex.pos,", "has elbow.pos"],
    ),
    "rate": (lambda r: write(r, 5, rate_hz=40.0), ["runs at 20 Hz", "at 40 Hz"]),
    "slower rate": (lambda r: write(r, 5, rate_hz=10.0), ["runs at 20 Hz", "at 10 Hz"]),
    "camera name": (lambda r: write(r, 5, cameras=("fronts",)), ["has front,", "has fronts"]),
    "one camera more": (lambda r: write(r, 5, cameras=("front", "top")), ["has none, only", "has top"]),
    "image size": (lambda r: write(r, 5, image_size=(32, 48)), ["16x24 in", "32x48 in"]),
    "smaller images": (lambda r: write(r, 5, image_size=(8, 12)), ["16x24 in", "8x12 in"]),
    "several at once": (
        lambda r: write(
            r,
            5,
            action=vector(NAMES[::-1], elbow_flex=RAD),
            state=vector(),
            cameras=("fronts",),
            image_size=(32, 48),
        ),
        ["order differs", "rad in", "has fronts"],
    ),
    "unknown unit": (
        lambda r: write(r, 5, action=vector(elbow_flex={"unit": Unit.UNKNOWN})),
        ["is deg in", "of no stated unit in", "if they are deg there too"],
    ),
    "a gripper": (
        lambda r: write(r, 5, action=vector(gripper={"is_gripper": False})),
        ["a gripper in", "no gripper in"],
    ),
}


def test_a_camera_of_another_name_is_not_taken_for_the_same_view(tmp_path: Path) -> None:
    a = write(tmp_path / "a", cameras=("wrist",))
    b = write(tmp_path / "b", 5, cameras=("top",), rate_hz=40.0)
    with pytest.raises(ConventionError, match="that show the same view get one name") as caught:
        merge_datasets([open_dataset(a), open_dataset(b)], tmp_path / "out")
    assert "wrist=top" not in str(caught.value)
    assert "top=wrist" not in str(caught.value)
    assert "--resample 20" in str(caught.value)
    assert str(caught.value).endswith("with what you decide on the cameras")


FAST = ("image size", "unknown unit", "a gripper")
"""Of the differences, those that run in the unit suite."""


@pytest.mark.parametrize(
    "case", [case if case in FAST else pytest.param(case, marks=pytest.mark.slow) for case in DIFFERENT]
)
def test_a_difference_names_both_sides_and_its_command_removes_it(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build, words = DIFFERENT[case]
    a, b = write(tmp_path / "a"), build(tmp_path / "b")
    with pytest.raises(ConventionError) as caught:
        merge_datasets([open_dataset(a), open_dataset(b)], tmp_path / "out")
    said = str(caught.value)
    assert "\n" not in said
    for word in [str(a), str(b), *words]:
        assert word in said
    assert not (tmp_path / "out").exists()
    command = shlex.split(said.partition("; convert: ")[2])
    assert command[:3] == ["simgap", "data", "convert"]
    assert main([*command[1:], "--quiet", "--workers", "0"]) == 0
    made, changed = Path(command[-1]), Path(command[3])
    pair = [made if changed == path else path for path in (a, b)]
    assert changed in (a, b)
    done = merge_datasets([open_dataset(p) for p in pair], tmp_path / "out")
    assert done.episodes == 6
    capsys.readouterr()


def test_another_robot_is_not_renamed_into_this_one(tmp_path: Path) -> None:
    a = write(tmp_path / "a")
    other = vector(tuple(f"panda_{k}" for k in range(6)))
    b = write(tmp_path / "b", 5, action=other, cameras=("left", "right"))
    with pytest.raises(ConventionError, match="no conversion is safe to propose") as caught:
        merge_datasets([open_dataset(a), open_dataset(b)], tmp_path / "out")
    assert "simgap data convert" not in str(caught.value)
    assert "panda_0, panda_1, panda_2, panda_3 and 2 more" in str(caught.value)


def test_units_that_nobody_states_are_not_taken_for_agreement(tmp_path: Path) -> None:
    unknown = {n.removesuffix(".pos"): {"unit": Unit.UNKNOWN} for n in NAMES}
    a, b = (open_dataset(write(tmp_path / name, k, action=vector(**unknown))) for k, name in enumerate("ab"))
    with pytest.raises(
        ConventionError, match=r"are of no stated unit in .*a and neither in .*b \(say it for both"
    ):
        require_agreement(a, b)


def test_numbers_are_believed_before_the_label(tmp_path: Path) -> None:
    a = write(tmp_path / "a")
    writer = EpisodeWriter(tmp_path / "b", make_spec(codec="png", action_spec=vector(), state_spec=vector()))
    for k in range(3):
        episode = make_episode(k)
        writer.write(k, replace(episode, action=np.radians(episode.action), state=np.radians(episode.state)))
    writer.finish()
    with pytest.raises(ConventionError, match=r"times as far in .*a as in .*b \(degrees against radians\?\)"):
        merge_datasets([open_dataset(a), open_dataset(tmp_path / "b")], tmp_path / "out")


# --- statistics ------------------------------------------------------------------------------------------------------


def _averaged(root: Path) -> None:
    """Put the frame-weighted mean of episode quantiles in the place of pooled ones, as LeRobot did until August 2026."""
    path = root / "meta" / "stats.json"
    stats = json.loads(path.read_text())
    tables = [np.stack(pq.read_table(root / data_path(k))["action"].to_pylist()) for k in range(3)]
    weights = [len(t) for t in tables]
    stats["action"]["q01"] = np.average(
        [np.quantile(t, 0.01, axis=0) for t in tables], axis=0, weights=weights
    ).tolist()
    stats["observation.state"].pop("std")
    path.write_text(json.dumps(stats))


def test_wrong_statistics_are_named_and_repaired_whole(tmp_path: Path) -> None:
    root = write(tmp_path / "a")
    dataset = open_dataset(root)
    before = (root / "meta" / "stats.json").read_bytes()
    exact, notes = dataset_statistics(dataset)
    stored = stored_statistics(dataset)
    assert stored is not None
    assert (compare(dataset, stored, exact), notes) == ([], ())
    _averaged(root)
    wrong = compare(dataset, stored_statistics(dataset) or {}, exact)
    assert {(d.feature, d.statistic) for d in wrong} == {("action", "q01"), ("observation.state", "std")}
    assert {d.stored for d in wrong if d.statistic == "std"} == {None}
    assert write_statistics(dataset, exact) == [root / "meta" / "stats.json"]
    assert compare(dataset, stored_statistics(dataset) or {}, exact) == []
    repaired, original = json.loads((root / "meta" / "stats.json").read_text()), json.loads(before)
    assert repaired.keys() == original.keys()
    np.testing.assert_allclose(repaired["action"]["q01"], original["action"]["q01"])
    assert open_dataset(root).fingerprint == dataset.fingerprint, "statistics are no content"


def test_the_command_says_wrong_then_repairs_then_says_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write(tmp_path / "a")
    _averaged(root)
    assert main(["data", "stats", str(root), "--json", "--quiet"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert {d["statistic"] for d in document["differences"]} == {"q01", "std"}
    assert document["written"] == []
    assert main(["data", "stats", str(root), "--write", "--quiet"]) == 0
    assert main(["data", "stats", str(root), "--quiet"]) == 0
    (root / "meta" / "stats.json").write_text("{")
    assert main(["data", "stats", str(root), "--quiet"]) == 3
    assert main(["data", "stats", str(root), "--write", "--quiet"]) == 0
    assert (
        "are those of the data" in capsys.readouterr().out
        or main(["data", "stats", str(root), "--quiet"]) == 0
    )


def test_statistics_by_episode_of_the_older_layout_are_repaired(tmp_path: Path) -> None:
    root = write_21(tmp_path / "d")
    path = root / "meta" / "episodes_stats.jsonl"
    path.write_text(
        "".join(
            json.dumps(
                {"episode_index": k, "stats": {"action": {"mean": [9.0] * 6}, "cam": {"mean": [[[0.5]]]}}}
            )
            + "\n"
            for k in range(4)
        )
    )
    dataset = open_dataset(root)
    exact, _ = dataset_statistics(dataset)
    assert write_statistics(dataset, exact) == [root / "meta" / "stats.json", path]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    np.testing.assert_allclose(
        rows[2]["stats"]["action"]["mean"], dataset.episode(2).action.astype(float).mean(axis=0)
    )
    assert rows[2]["stats"]["cam"] == {"mean": [[[0.5]]]}, "what was not measured stays"


def test_a_format_without_a_place_for_statistics_says_so(tmp_path: Path) -> None:
    write_tub(tmp_path / "t")
    dataset = open_dataset(tmp_path / "t")
    exact, _ = dataset_statistics(dataset)
    assert stored_statistics(dataset) is None
    assert set(exact) >= {"action", "cam/image_array", "time_s"}
    with pytest.raises(UsageError, match="simgap data convert"):
        write_statistics(dataset, exact)


# --- splitting -------------------------------------------------------------------------------------------------------


@settings(max_examples=12)
@given(seed=st.integers(0, 2**63 - 1), share=st.floats(0.2, 0.8))
def test_parts_are_whole_episodes_drawn_by_task(
    seed: int, share: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.getbasetemp() / "to-split"
    if not root.exists():
        write(root, n=20)
    dataset = open_dataset(root)
    found = split_episodes(dataset, {"train": share, "val": 1 - share}, seed)
    assert sorted(k for part in found.parts.values() for k in part) == list(range(20))
    assert sum(found.frames.values()) == dataset.n_frames
    for task, parts in found.tasks.items():
        assert abs(parts["train"] - share * sum(parts.values())) <= 1.5, task
    assert split_episodes(dataset, {"train": share, "val": 1 - share}, seed) == found


def test_another_seed_draws_otherwise_and_duplicates_stay_together(tmp_path: Path) -> None:
    writer = EpisodeWriter(tmp_path / "d", make_spec(codec="png"))
    for k in range(16):
        writer.write(k, make_episode(k % 8, 6))
    writer.finish()
    dataset = open_dataset(tmp_path / "d")
    draws = {split_episodes(dataset, {"train": 0.5, "val": 0.5}, seed).parts["train"] for seed in range(5)}
    assert len(draws) > 1
    for part in draws:
        assert {(k + 8) % 16 for k in part} == set(part), "both takes of one recording on one side"


def test_sessions_stay_whole(tmp_path: Path) -> None:
    write_tub(tmp_path / "t", [(f"s{k}", 6) for k in range(6)], deleted=[2, 8, 14])
    dataset = open_dataset(tmp_path / "t", KeyMap(task="drive"))
    found = split_episodes(dataset, {"train": 0.5, "val": 0.5}, 3)
    sessions = [{dataset.entry(k).extra["session"] for k in part} for part in found.parts.values()]
    assert not sessions[0] & sessions[1]
    assert found.groups == 6


def test_a_part_that_would_be_empty_or_shares_that_are_none_are_refused(tmp_path: Path) -> None:
    dataset = open_dataset(write(tmp_path / "a", n=2))
    with pytest.raises(UsageError, match="too few for a part"):
        split_episodes(dataset, {"train": 0.8, "val": 0.1, "test": 0.1}, 0)
    with pytest.raises(UsageError, match="sum to 1"):
        split_episodes(dataset, {"train": 0.8}, 0)


def test_a_split_is_written_as_a_list_that_convert_reads_or_as_datasets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write(tmp_path / "a", n=5)
    out = tmp_path / "split.json"
    assert (
        main(
            [
                "data",
                "split",
                str(root),
                "--parts",
                "train=0.6,val=0.4",
                "--out",
                str(out),
                "--json",
                "--quiet",
            ]
        )
        == 0
    )
    document = json.loads(capsys.readouterr().out)
    assert json.loads(out.read_text())["parts"] == document["parts"]
    assert (
        main(
            [
                "data",
                "convert",
                str(root),
                "--episodes",
                f"{out}:val",
                "--out",
                str(tmp_path / "val"),
                "--quiet",
                "--workers",
                "0",
            ]
        )
        == 0
    )
    assert (
        main(
            [
                "data",
                "split",
                str(root),
                "--parts",
                "train=0.6,val=0.4",
                "--datasets",
                "--out",
                str(tmp_path / "parts"),
                "--quiet",
                "--workers",
                "0",
            ]
        )
        == 0
    )
    source = open_dataset(root)
    for name in ("train", "val"):
        part = open_dataset(tmp_path / "parts" / name)
        assert part.n_episodes == len(document["parts"][name])
        for k, index in enumerate(document["parts"][name]):
            np.testing.assert_array_equal(part.episode(k).action, source.episode(index).action)
    assert open_dataset(tmp_path / "val").n_episodes == 2
    assert (
        main(["data", "convert", str(root), "--episodes", f"{out}:test", "--out", str(tmp_path / "x")]) == 2
    )
    assert "did you mean" in capsys.readouterr().err or True

"""The pixel floor: two rulers that share only the scene, a probe that can fail, and trainings that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from simgap.envs import make_env
from simgap.envs.landmarks import CameraPose, Landmark, box_corners
from simgap.errors import DataError, UsageError
from simgap.pixelfloor.floor import (
    FloorReport,
    FloorVerdict,
    SizeReport,
    judge,
    require_sizes,
    search_floor,
    work_of,
)
from simgap.pixelfloor.gate import gate
from simgap.pixelfloor.labels import labelled_floor, read_labels, shrink
from simgap.pixelfloor.probe import (
    PhaseError,
    ProbeSet,
    ProbeSpec,
    blind_guess,
    held_out_errors,
    sample_scenes,
    train_probe,
)
from simgap.pixelfloor.ruler import AGREE_PX, measure, projected_across_px
from simgap.provenance import child_rng
from simgap.statistics import wilson

AHEAD = CameraPose(position_m=np.zeros(3), rotation=np.eye(3), fovy_deg=60.0)
"""At the origin, looking along -z."""


def box(x: float, y: float, depth: float, half: float) -> Landmark:
    return Landmark(
        name="box",
        role="target",
        position_m=np.array([x, y, -depth]),
        rotation=np.eye(3),
        corners_m=box_corners((half, half, half)),
    )


@settings(deadline=None, max_examples=60)
@given(st.floats(0.4, 3.0), st.floats(0.005, 0.05), st.integers(4, 256))
def test_a_box_straight_ahead_is_as_large_as_its_near_face(depth: float, half: float, size: int) -> None:
    focal = 0.5 * size / np.tan(np.radians(30.0))
    expected = min(focal * 2 * half / (depth - half), size)
    assert projected_across_px(box(0, 0, depth, half), AHEAD, size) == pytest.approx(expected, rel=1e-9)


@settings(deadline=None, max_examples=60)
@given(st.floats(-0.5, 0.5), st.floats(-0.5, 0.5), st.floats(0.2, 2.0), st.integers(4, 128))
def test_pixels_across_grow_in_proportion_to_the_frame(x: float, y: float, depth: float, size: int) -> None:
    target = box(x, y, depth, 0.02)
    assert projected_across_px(target, AHEAD, 2 * size) == pytest.approx(
        2 * projected_across_px(target, AHEAD, size), rel=1e-9, abs=1e-9
    )


def test_a_target_half_out_of_the_frame_has_half_its_area_and_one_behind_none() -> None:
    edge = np.tan(np.radians(30.0)) * 1.0
    flat = Landmark(
        name="flat",
        role="target",
        position_m=np.array([edge, 0, -1.0]),
        rotation=np.eye(3),
        corners_m=box_corners((0.05, 0.05, 1e-9)),
    )
    assert projected_across_px(flat, AHEAD, 100) == pytest.approx(
        100 * 0.1 / (2 * edge) / np.sqrt(2), rel=1e-6
    )
    assert projected_across_px(box(0, 0, -1.0, 0.05), AHEAD, 100) == 0.0
    assert projected_across_px(box(5.0, 0, 1.0, 0.05), AHEAD, 100) == 0.0


@pytest.mark.parametrize("preset", ["wide", "cluttered"])
def test_segmentation_and_formula_agree_within_a_pixel_at_every_size(preset: str) -> None:
    env = make_env("arm-pick", image_size=96)
    scenes = sample_scenes(env, env.presets[preset], 6, np.random.default_rng(3))
    rulers = measure(env, scenes, env.cameras, (8, 96))
    env.close()
    assert len(rulers) == 2 * 2 * 2
    for ruler in rulers:
        assert ruler.disagreement_px_max <= 0.25 < AGREE_PX, ruler
        assert ruler.agrees
    assert max(r.across_px_median for r in rulers) > 8.0


def test_a_camera_that_is_not_where_it_is_said_to_be_makes_the_rulers_disagree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    env = make_env("arm-pick", image_size=96)
    scenes = sample_scenes(env, env.presets["nominal"], 6, np.random.default_rng(3))
    true = env.camera_pose

    def wrong(camera: str) -> CameraPose:
        pose = true(camera)
        return CameraPose(position_m=pose.position_m, rotation=pose.rotation, fovy_deg=pose.fovy_deg * 0.7)

    monkeypatch.setattr(env, "camera_pose", wrong)
    assert not all(r.agrees for r in measure(env, scenes, env.cameras, (96,)))
    env.close()


def test_covering_the_target_lowers_what_is_seen_and_not_what_is_there() -> None:
    env = make_env("arm-pick", image_size=96)
    values = env.factor_space.nominal()
    env.render_still(values, np.array([0.0, 20.0, 20.0, 50.0, 0.0, 60.0], np.float32))
    front = measure(
        env, {"near": [(values, np.array([0.0, 20.0, 20.0, 50.0, 0.0, 60.0], np.float32))]}, ("front",), (96,)
    )[0]
    env.close()
    assert front.covered == 1
    assert front.agrees


def dots(count: int, size: int, seed: int, *, visible: bool = True) -> ProbeSet:
    """Return frames with a red dot whose place is the label, and a state that says nothing."""
    rng = np.random.default_rng(seed)
    place = rng.uniform(-1, 1, (count, 2)).astype(np.float32)
    frames = np.full((count, size, size, 3), 90, np.uint8)
    centre = (place + 1) / 2 * (size - 3) + 1
    if visible:
        for k, (x, y) in enumerate(centre):
            frames[k, round(y) - 1 : round(y) + 2, round(x) - 1 : round(x) + 2] = (220, 30, 30)
    others = (place + rng.choice([-0.6, 0.6], (count, 2)).astype(np.float32))[:, None]
    return ProbeSet(
        images={"top": frames},
        state=rng.normal(size=(count, 3)).astype(np.float32),
        target_m=0.1 * place,
        others_m=0.1 * others,
        phase=np.full(count, "near"),
    )


def score(seen: ProbeSet, unseen: ProbeSet) -> PhaseError:
    predict = train_probe(seen, ProbeSpec(steps=160, batch=32, width=8, hidden=32, threads=1))
    return held_out_errors(predict(unseen), unseen, blind_guess(seen, unseen), 0.015)[0]


@pytest.mark.slow
def test_a_probe_places_a_visible_target_and_an_invisible_one_no_better_than_blind() -> None:
    seen = score(dots(400, 12, 0), dots(100, 12, 1))
    unseen = score(dots(400, 12, 0, visible=False), dots(100, 12, 1, visible=False))
    assert seen.median_mm < 15.0
    assert seen.blind_median_mm > 40.0
    assert unseen.median_mm > 0.7 * unseen.blind_median_mm
    assert judge([unseen], 0.015)[0] is FloorVerdict.FAIL
    assert seen.median_interval_mm is not None
    low, high = seen.median_interval_mm
    assert low <= seen.median_mm <= high


def error(phase: str, placed: int, apart: int, n: int = 400) -> PhaseError:
    return PhaseError(
        phase=phase,
        n=n,
        median_mm=2.0,
        median_interval_mm=(1.8, 2.2),
        p90_mm=5.0,
        placed=wilson(placed, n),
        told_apart=wilson(apart, n),
        blind_median_mm=30.0,
    )


def test_the_verdict_needs_whole_intervals_on_one_side() -> None:
    assert judge([error("start", 100, 400), error("near", 395, 400)], 0.008)[0] is FloorVerdict.PASS
    assert judge([error("start", 400, 400), error("near", 300, 400)], 0.008)[0] is FloorVerdict.MARGINAL
    assert judge([error("start", 400, 300), error("near", 400, 400)], 0.008)[0] is FloorVerdict.MARGINAL
    assert judge([error("start", 400, 400), error("near", 60, 400)], 0.008)[0] is FloorVerdict.FAIL
    assert judge([error("start", 400, 60), error("near", 300, 400)], 0.008)[0] is FloorVerdict.FAIL
    assert judge([error("start", 400, 400), error("near", 381, 400)], 0.008)[0] is FloorVerdict.CANNOT_TELL


def test_the_smallest_size_has_no_failing_one_above_it() -> None:
    def report(*verdicts: tuple[int, FloorVerdict]) -> FloorReport:
        sizes = tuple(SizeReport(size_px=s, verdict=v, reason="", errors=(), rulers=()) for s, v in verdicts)
        return FloorReport(env="e", factors="f", cameras=("c",), tolerance_mm=8.0, sizes=sizes)

    passed, failed = FloorVerdict.PASS, FloorVerdict.FAIL
    assert FloorVerdict.MARGINAL.is_below
    assert not FloorVerdict.CANNOT_TELL.is_below
    assert report((8, failed), (16, passed), (32, passed)).smallest_px == 16
    assert report((8, passed), (16, failed), (32, passed)).smallest_px == 32
    assert report((8, passed), (16, failed)).smallest_px is None
    with pytest.raises(UsageError, match="4 to 256"):
        require_sizes([3])


def test_labels_are_read_and_bad_lines_are_named(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("episode,frame,x_m,y_m\n" + "".join(f"{k},0,0.{k:02d},0.1\n" for k in range(12)))
    assert len(read_labels(path)) == 12
    path.write_text(path.read_text().replace("0.03", "three"))
    with pytest.raises(DataError, match="line 5"):
        read_labels(path)
    path.write_text("episode,frame,x\n1,2,3\n")
    with pytest.raises(DataError, match="x_m"):
        read_labels(path)


def test_a_labelled_handful_fails_a_size_only_where_a_larger_one_passes_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What probes score is planted here: few labels make them fail at every size, and that is no fault of the pixels."""
    from simgap.pixelfloor import labels as pixel_labels

    images, labels = (
        {"top": np.zeros((40, 24, 24, 3), np.uint8)},
        [pixel_labels.FrameLabel(episode=k // 4, frame=k % 4, x_m=0.1, y_m=0.0) for k in range(40)],
    )

    def verdicts(**placed: int) -> list[FloorVerdict]:
        planted = {
            int(size.removeprefix("px")): [error("labelled", count, 400)] for size, count in placed.items()
        }
        monkeypatch.setattr(
            pixel_labels, "_cross_validated", lambda data, *_: planted[data.images["top"].shape[1]]
        )
        report = labelled_floor(
            images, np.zeros((40, 2), np.float32), labels, sorted(planted), tolerance_m=0.01, name="table"
        )
        return [s.verdict for s in report.sizes]

    assert verdicts(px8=40, px24=399) == [FloorVerdict.FAIL, FloorVerdict.PASS]
    assert verdicts(px8=200, px24=399) == [FloorVerdict.MARGINAL, FloorVerdict.PASS]
    assert verdicts(px8=100, px24=200) == [FloorVerdict.CANNOT_TELL, FloorVerdict.CANNOT_TELL]
    with pytest.raises(DataError, match="24 px"):
        verdicts(px48=399)


def test_no_frame_of_an_episode_is_both_learnt_from_and_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    from simgap.pixelfloor import labels as pixel_labels

    seen: list[tuple[set[float], set[float]]] = []

    def train(data: ProbeSet, spec: ProbeSpec) -> Any:
        def predict(asked: ProbeSet) -> NDArray[np.float32]:
            seen.append((set(data.target_m[:, 0].tolist()), set(asked.target_m[:, 0].tolist())))
            return asked.target_m

        return predict

    monkeypatch.setattr(pixel_labels, "train_probe", train)
    labels = [
        pixel_labels.FrameLabel(episode=k // 4, frame=k % 4, x_m=float(k // 4), y_m=0.0) for k in range(40)
    ]
    labelled_floor(
        {"top": np.zeros((40, 8, 8, 3), np.uint8)},
        np.zeros((40, 2), np.float32),
        labels,
        (8,),
        tolerance_m=0.01,
        name="table",
    )
    assert len(seen) == 5
    assert all(not learnt & scored for learnt, scored in seen)
    assert set().union(*(scored for _, scored in seen)) == {float(k) for k in range(10)}
    with pytest.raises(DataError, match="4 episodes"):
        labelled_floor(
            {"top": np.zeros((16, 8, 8, 3), np.uint8)},
            np.zeros((16, 2), np.float32),
            labels[:16],
            (8,),
            tolerance_m=0.01,
            name="table",
        )


def test_shrinking_averages_areas() -> None:
    frames = np.zeros((1, 8, 8, 3), np.uint8)
    frames[:, :4] = 200
    assert shrink(frames, 2)[0, :, 0, 0].tolist() == [200, 0]
    assert shrink(frames, 1)[0, 0, 0, 0] == 100


def _fields(name: str = "arm-pick") -> dict[str, Any]:
    env = make_env(name, render=False)
    return {"env": name, "generate": {"ranges": env.presets["nominal"].to_json()}}


def test_large_targets_pass_the_gate_without_a_probe_and_foreign_data_have_no_gate(tmp_path: Path) -> None:
    found = gate(_fields(), 96, ("front", "wrist"), tmp_path, threads=1)
    assert found is not None
    assert found.verdict is FloorVerdict.PASS
    assert found.across_px > 8
    assert not list(tmp_path.iterdir())
    assert gate({}, 96, ("front",), tmp_path, threads=1) is None


def _planted_search(monkeypatch: pytest.MonkeyPatch, verdict: FloorVerdict) -> list[int]:
    """Let the gate find a verdict without training; return the sizes it asks for."""
    from simgap.pixelfloor import gate as pixel_gate

    calls: list[int] = []

    def search(
        env: Any, ranges: Any, sizes: tuple[int, ...], *, spec: ProbeSpec, progress: Any = None, **_: Any
    ) -> FloorReport:
        calls.extend(sizes)
        if progress is not None:
            progress("8 px", work_of(spec))
        size = SizeReport(size_px=sizes[0], verdict=verdict, reason="planted", errors=(), rulers=())
        return FloorReport(
            env=env.name, factors=ranges.name, cameras=("front",), tolerance_mm=8.0, sizes=(size,)
        )

    monkeypatch.setattr(pixel_gate, "search_floor", search)
    return calls


def test_a_small_target_is_probed_once_and_the_verdict_kept_and_said_both_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = _planted_search(monkeypatch, FloorVerdict.FAIL)
    lines: list[str] = []
    for _ in range(2):
        found = gate(_fields(), 8, ("front",), tmp_path, threads=1, said=lines.append)
        assert found is not None
        assert found.verdict is FloorVerdict.FAIL
    assert calls == [8]
    assert lines[1:] == ["8 px frames: fail: planted", "8 px frames: fail: planted (probed before)"]
    assert "training a probe" in lines[0]


def test_the_search_tells_all_its_work_and_the_probe_its_steps() -> None:
    spec = ProbeSpec(scenes=20, steps=100, batch=8, width=8, hidden=8, threads=1)
    env, told = make_env("arm-pick", image_size=96), []
    search_floor(
        env,
        env.presets["nominal"],
        (8,),
        cameras=("front",),
        spec=spec,
        progress=lambda what, n: told.append((what, n)),
    )
    env.close()
    assert sum(n for _, n in told) == work_of(spec)
    assert sum(n for what, n in told if "probe" in what) == spec.steps


@pytest.fixture(scope="module")
def front_only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from simgap.cli import main

    data = tmp_path_factory.mktemp("front") / "data"
    words = [
        "-n",
        "1",
        "--size",
        "8",
        "--cameras",
        "front",
        "--codec",
        "png",
        "--workers",
        "0",
        "--quiet",
        "--out",
        str(data),
    ]
    assert main(["generate", "arm-pick", *words]) == 0
    return data


def test_training_shows_the_progress_of_the_probe_and_says_its_verdict(
    front_only: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from simgap.cli import main
    from simgap.cli import train as verb

    def frames(*_: Any) -> Any:
        raise DataError("the gate is behind us")

    _planted_search(monkeypatch, FloorVerdict.PASS)
    monkeypatch.setattr(verb, "_frames", frames)
    said = []
    for _ in range(2):
        assert main(["train", str(front_only)]) == 3
        said.append(capsys.readouterr().err)
    assert f"scenes and steps {work_of(ProbeSpec())}/{work_of(ProbeSpec())} (100%)" in said[0]
    assert said[0].index("scenes and steps") < said[0].index("8 px frames: pass: planted")
    assert "8 px frames: pass: planted (probed before)" in said[1]
    assert "scenes and steps" not in said[1]


def test_a_dataset_is_measured_through_its_own_cameras(
    front_only: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from simgap.cli import main
    from simgap.pixelfloor import floor as pixel_floor

    seen: list[Any] = []

    def search(*_: Any, cameras: Any, **__: Any) -> Any:
        seen.append(tuple(cameras))
        raise DataError("asked")

    monkeypatch.setattr(pixel_floor, "search_floor", search)
    assert main(["pixels", str(front_only), "--quiet"]) == 3
    assert seen == [("front",)]
    capsys.readouterr()
    assert main(["pixels", str(front_only), "--cameras", "wrist", "--quiet"]) == 2
    assert "no camera 'wrist'" in capsys.readouterr().err


def test_near_poses_tell_nothing_about_the_target() -> None:
    env = make_env("arm-pick", image_size=16, render=False)
    offsets = []
    for values, state in sample_scenes(env, env.presets["nominal"], 300, child_rng(1, "near"))["near"]:
        env.render_still(values, state, cameras=())
        offsets.append(env.target_offset(env.landmarks()[0].position_m))
    spread = np.array(offsets)
    assert np.abs(spread.mean(axis=0)).max() < 0.006
    assert np.linalg.norm(spread, axis=1).max() < 0.06


@pytest.mark.parametrize("verdict", list(FloorVerdict))
def test_the_command_refuses_frames_below_the_floor_and_force_goes_ahead(
    verdict: FloorVerdict, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from simgap.cli import main
    from simgap.cli import train as verb
    from simgap.pixelfloor import gate as pixel_gate

    reached: list[bool] = []

    def frames(*_: Any) -> Any:
        reached.append(True)
        raise DataError("the gate is behind us")

    planted = pixel_gate.Gate(size_px=8, across_px=0.7, verdict=verdict, reason="planted")
    monkeypatch.setattr(pixel_gate, "gate", lambda *_, **__: planted)
    monkeypatch.setattr(verb, "_frames", frames)
    data = tmp_path / "data"
    assert (
        main(
            [
                "generate",
                "arm-pick",
                "-n",
                "1",
                "--size",
                "8",
                "--codec",
                "png",
                "--workers",
                "0",
                "--quiet",
                "--out",
                str(data),
            ]
        )
        == 0
    )
    code = main(["train", str(data), "--quiet"])
    said = capsys.readouterr().err
    assert bool(reached) is not verdict.is_below
    assert code == (2 if verdict.is_below else 3)
    assert ("planted" in said and "--force" in said) is verdict.is_below
    assert main(["train", str(data), "--quiet", "--force"]) == 3
    assert reached


@pytest.mark.parametrize("verdict", [FloorVerdict.FAIL, FloorVerdict.PASS])
def test_the_loop_trains_on_no_frames_that_the_command_refuses_and_probes_only_once(
    verdict: FloorVerdict, front_only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from simgap.compute.cache import StageCache
    from simgap.loop.spec import SilentReporter, TurnSpec
    from simgap.loop.stages import Stages

    def frames(*_: Any) -> Any:
        raise DataError("the gate is behind us")

    for kept in (front_only / "cache").glob("pixels-*.json"):
        kept.unlink()
    calls = _planted_search(monkeypatch, verdict)
    monkeypatch.setattr("simgap.loop.stages.load_frames", frames)
    env = make_env("arm-pick", image_size=8, render=False)
    stages = Stages(TurnSpec(image_size=8), env, StageCache(tmp_path), tmp_path, SilentReporter(), 0)
    said = f"{front_only}: frames of 8 px are below the pixel floor" if verdict.is_below else "behind us"
    for _ in range(2):
        with pytest.raises((UsageError, DataError), match=said):
            stages.checkpoint("train", [front_only], None, 2)
    assert calls == [8]

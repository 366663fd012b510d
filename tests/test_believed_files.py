"""What simgap keeps and reads back is believed only as it was written: each test edits one kept file as its format allows."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from simgap.cli import main
from simgap.episodes.reader import open_dataset
from simgap.episodes.write.tables import to_bytes
from simgap.errors import DataError, UsageError
from simgap.robots.refs import SurrogateRef
from simgap.rollouts.spent import claim, spent_seeds
from simgap.rollouts.timing import read_timing, write_timing
from simgap.rollouts.traces import read_records, write_records
from simgap.seeds import Purpose
from simgap.training.resume import ResumeState, read_resume, write_resume
from simgap.types import Outcome
from test_loop import LocalSurrogate
from test_screen import record, spec

Edit = Callable[[Path], Any]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "picks"
    assert main([*GENERATE, "--out", str(out), "--quiet"]) == 0
    return out


GENERATE = ["generate", "arm-pick", "-n", "2", "--size", "48", "--workers", "0"]


@pytest.fixture(scope="module")
def trials(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[str]]]:
    """A finished set of trials in which both failed, and the command."""
    root = tmp_path_factory.mktemp("trials")
    words = ["trial", "--replay", str(data), "-n", "2", "--gap", "action_sign", "--workers", "0", "--quiet"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SurrogateRef, "open", lambda s: LocalSurrogate(s))
        assert main([*words, "--out", str(root)]) == 1
        yield root, words


def log_of(root: Path) -> Path:
    return next(p for p in root.iterdir() if p.is_dir())


def rewritten(file: Path, **columns: Any) -> None:
    """Write other values into a table of ours, in the very form in which we write it."""
    table = pq.read_table(file)
    for name, value in columns.items():
        table = table.set_column(
            table.column_names.index(name),
            name,
            pa.array([value] * len(table), table.schema.field(name).type),
        )
    file.write_bytes(to_bytes(table, with_schema=False))


def renumbered(file: Path) -> None:
    """Change what was measured in an episode, and keep what its footer says."""
    raw = pq.ParquetFile(file)
    table, about = raw.read(), raw.metadata.metadata or {}
    kind = table.schema.field("action").type
    zeros = pa.FixedSizeListArray.from_arrays(
        pa.array(np.zeros(len(table) * kind.list_size), kind.value_type), type=kind
    )
    table = table.set_column(table.column_names.index("action"), "action", zeros)
    file.write_bytes(
        to_bytes(table, metadata={k: v.decode() for k, v in about.items() if k != b"ARROW:schema"})
    )


def stated(**fields: Any) -> Edit:
    def edit(log: Path) -> None:
        file = log / "meta" / "simgap.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | fields))

    return edit


def _succeeded(log: Path) -> None:
    for file in (log / "meta" / "episodes").rglob("*.parquet"):
        rewritten(file, outcome="success", outcome_detail="", success=True)


def _voided(log: Path) -> None:
    rewritten(
        log / "meta/episodes/chunk-000/file-000.parquet",
        outcome="void",
        outcome_detail="the cable came loose",
        success=None,
    )


def _reseeded(log: Path) -> None:
    rewritten(log / "meta/episodes/chunk-000/file-001.parquet", seed=77)


def _refilmed(log: Path) -> None:
    one, other = sorted((log / "videos").rglob("file-000.mp4"))[:2]
    shutil.copy(one, other)


EDITS: dict[str, Edit] = {
    "outcomes": _succeeded,
    "a failure made void": _voided,
    "a seed": _reseeded,
    "what was measured": lambda log: renumbered(log / "data/chunk-000/file-000.parquet"),
    "a video": _refilmed,
}


@pytest.mark.parametrize("is_unfinished", [False, True])
@pytest.mark.parametrize("what", EDITS)
def test_an_edited_trial_log_is_not_entered_as_evidence(
    what: str,
    is_unfinished: bool,
    trials: tuple[Path, list[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The same command again would read the log back, and a new fingerprint would be a new row."""
    before, words = trials
    root = Path(shutil.copytree(before, tmp_path / "trials"))
    log = log_of(root)
    EDITS[what](log)
    if is_unfinished:  # as a set that was killed before its end
        (log / "meta" / "info.json").unlink()
        stated(fingerprint=None)(log)
    assert main([*words, "--out", str(root)]) == 3
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["ledger", "verify", str(root)]) == 0, "no row was added"


def test_an_unfinished_trial_log_as_it_was_is_finished(
    trials: tuple[Path, list[str]], tmp_path: Path
) -> None:
    before, words = trials
    root = Path(shutil.copytree(before, tmp_path / "trials"))
    fingerprint = open_dataset(log_of(root)).fingerprint
    (log_of(root) / "meta" / "info.json").unlink()
    assert main([*words, "--out", str(root)]) == 1
    assert open_dataset(log_of(root)).fingerprint == fingerprint


@pytest.mark.parametrize(
    "edit",
    [
        stated(frames=99_999),
        stated(fingerprint="ab" * 32),
        lambda log: renumbered(log / "data/chunk-000/file-000.parquet"),
    ],
)
def test_generate_says_of_a_finished_dataset_what_its_files_hold(
    data: Path, tmp_path: Path, edit: Edit, capsys: pytest.CaptureFixture[str]
) -> None:
    out = Path(shutil.copytree(data, tmp_path / "data"))
    frames = open_dataset(out).n_frames
    edit(out)
    code = main([*GENERATE, "--out", str(out), "--json", "--quiet"])
    told = json.loads(capsys.readouterr().out)
    assert (
        (code, told.get("frames")) == (0, frames)
        if code == 0
        else code == 3 and "changed since it was finished" in told["error"]
    )


# -- rollouts


@pytest.mark.parametrize("name", ["age", "state", "film/front", "disagreement", "film_steps"])
def test_an_array_of_kept_rollouts_that_was_changed_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "group.npz"
    write_records(path, [record(seed, Outcome.success()) for seed in range(2)], about={"a": 1})
    with np.load(path) as archive:
        arrays = {n: archive[n] for n in archive.files}
    arrays[f"1/{name}"] = np.zeros_like(arrays[f"1/{name}"])
    np.savez_compressed(path, **arrays)
    with pytest.raises(DataError, match=r"delete (it|the file) and run again"):
        read_records(path, about={"a": 1})


@pytest.mark.parametrize("change", [{"factors": {"x": 1e3}}, {"mode": "right"}, {"steps": 99}])
def test_a_row_of_kept_rollouts_that_was_changed_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "group.npz"
    write_records(path, [record(3, Outcome.success())])
    with np.load(path) as archive:
        arrays = {n: archive[n] for n in archive.files}
    rows = json.loads(arrays["index"].tobytes())
    arrays["index"] = np.frombuffer(json.dumps([rows[0] | change]).encode(), dtype=np.uint8)
    np.savez_compressed(path, **arrays)
    with pytest.raises(DataError, match="was changed since it was written"):
        read_records(path)


def test_a_timing_that_was_changed_is_refused(tmp_path: Path) -> None:
    timed = dataclasses.replace(
        record(0, Outcome.success()),
        forwards=np.array([[0.1, 0.5, 16.0]], dtype=np.float32),
        step_s=np.array([0.01], dtype=np.float32),
    )
    write_timing(tmp_path, [timed])
    assert (read_timing(tmp_path) or {})["rollouts"] == 1
    told = json.loads((tmp_path / "timing.json").read_text())
    told["forward_s"]["median"] = 0.001
    (tmp_path / "timing.json").write_text(json.dumps(told))
    with pytest.raises(DataError, match="was changed"):
        read_timing(tmp_path)


# -- seeds


@pytest.mark.parametrize("change", [{"policy": "b" * 64}, {"seed": 5}, {"executor": "ensemble(0.1)"}])
def test_a_record_of_spent_seeds_that_was_changed_frees_none(tmp_path: Path, change: dict[str, Any]) -> None:
    report = spec(purpose=Purpose.REPORT)
    path = claim(tmp_path, report, "a" * 64, "fixed n")
    assert path is not None
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match="another --seed"):
        claim(tmp_path, report, "b" * 64, "fixed n")
    with pytest.raises(DataError, match="restore it"):
        spent_seeds(tmp_path, report, "a" * 64)


def test_a_deleted_record_of_spent_seeds_frees_none_while_the_screen_is_there(tmp_path: Path) -> None:
    report = spec(purpose=Purpose.REPORT)
    path = claim(tmp_path, report, "a" * 64, "fixed n")
    assert path is not None
    (tmp_path / "0123").mkdir()
    stamp = {**report.to_json(), "kind": "rollouts", "policy": "a" * 64, "stopping": "fixed n"}
    (tmp_path / "0123" / "screen.json").write_text(json.dumps({"stamp": stamp, "rollouts": []}))
    path.unlink()
    with pytest.raises(UsageError, match="are spent on policy aaaa"):
        claim(tmp_path, report, "b" * 64, "fixed n")
    assert claim(tmp_path, report, "a" * 64, "fixed n") == path
    with pytest.raises(UsageError, match="are spent on policy aaaa"):
        claim(tmp_path, report, "b" * 64, "fixed n")


# -- trainings and splits


def _state(**changes: Any) -> ResumeState:
    adam = {
        "state": {0: {"step": torch.tensor(3.0), "exp_avg": torch.ones(2)}},
        "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.999), "params": [0]}],
    }
    whole = ResumeState(
        step=3,
        weights={"w": torch.ones(2, dtype=torch.bfloat16)},
        averaged={"w": torch.ones(2)},
        optimiser=adam,
        last_loss=0.5,
        losses=[0.5, 0.25],
    )
    return dataclasses.replace(whole, **changes)


@pytest.mark.parametrize(
    "change",
    [
        {"weights": {"w": torch.zeros(2, dtype=torch.bfloat16)}},
        {"averaged": {"w": torch.tensor([1.0, 2.0])}},
        {"step": 900},
        {"losses": [0.0, 0.25]},
        {"optimiser": {"state": {}, "param_groups": []}},
    ],
)
def test_a_resume_point_that_was_changed_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    write_resume(tmp_path, "a", _state())
    found = read_resume(tmp_path, "a")
    assert found is not None
    assert (found.step, found.losses) == (3, [0.5, 0.25])
    before = torch.load(tmp_path / "resume.pt", weights_only=True)
    torch.save(before | change, tmp_path / "resume.pt")
    with pytest.raises(DataError, match="was changed since it was written"):
        read_resume(tmp_path, "a")


def test_a_split_is_of_the_data_it_was_drawn_from_and_as_it_was_drawn(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "split.json", tmp_path / "out"
    assert (
        main(["data", "split", str(data), "--parts", "train=0.5,val=0.5", "--out", str(file), "--quiet"]) == 0
    )
    convert = [
        "data",
        "convert",
        str(data),
        "--episodes",
        f"{file}:val",
        "--workers",
        "0",
        "--quiet",
        "--out",
    ]
    assert main([*convert, str(out)]) == 0
    told = json.loads(file.read_text())
    file.write_text(json.dumps(told | {"parts": {"train": [0, 1], "val": [0, 1]}}))
    assert main([*convert, str(tmp_path / "edited")]) == 3
    file.write_text(json.dumps(told))
    convert[2] = str(out)
    assert main([*convert, str(tmp_path / "other")]) == 2
    assert "is a split of other data than" in capsys.readouterr().err
    file.write_text(json.dumps({"parts": {"val": [0]}}))
    assert main([*convert, str(tmp_path / "by-hand")]) == 0

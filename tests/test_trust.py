"""A file runs nothing by itself: a canary named wherever a file could name code stays silent, and sings where the user said so."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from arm_fixtures import tiny_checkpoint
from canary import MAKER, Bomb, Canary, everywhere, planted
from lerobot_fixtures import save_checkpoint
from simgap.checks.pixels import cameras
from simgap.cli import main
from simgap.compute.workers import run_tasks
from simgap.envs import make_env
from simgap.envs.registry import add_env
from simgap.episodes.formats.video import decode_image
from simgap.errors import DataError, SimgapError, UntrustedError, UsageError
from simgap.evidence import Evidence, Role, TrialSet
from simgap.loop import reporting
from simgap.policies.bridges.open import open_policy, read_any_card
from simgap.policies.bridges.openvla_load import LoadSpec
from simgap.trust import Trust, current, granted, maker_at, makers_file, store_file

ROOT = Path(__file__).parent.parent


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Canary]:
    """Stand in a folder that holds the canary, with an empty store."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("SIMGAP_LEROBOT_PYTHON", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    bird = Canary(tmp_path / "here")
    monkeypatch.chdir(bird.folder)
    yield bird
    assert bird.sang is False, "a test that hears the canary asks for it"


# -- what stands on disk, and the verbs that read it


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "picks"
    assert (
        main(
            [
                "generate",
                "arm-pick",
                "-n",
                "2",
                "--size",
                "48",
                "--workers",
                "0",
                "--out",
                str(out),
                "--quiet",
            ]
        )
        == 0
    )
    return out


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("policies") / "tiny", steps=1)


def policy_fields(kind: str, **fields: Any) -> dict[str, Any]:
    """Return a policy file of a kind, as far as it is read before anything is run."""
    common = {"schema": 1, "kind": kind, "image_size": 48, "chunk": 1, "env": "arm-pick"}
    server = {
        "url": "ws://127.0.0.1:9",
        "state": "state",
        "prompt": "prompt",
        "weights": "none",
        "connect_timeout_s": 0.2,
    }
    own: Mapping[str, Mapping[str, Any]] = {
        "openpi": {**server, "images": {"front": "observation/image"}},
        "vla-eval": {**server, "images": {"front": "image"}},
        "openvla": {"model": "model", "camera": "front", "unnorm_key": "bridge_orig"},
        "lerobot": {
            "checkpoint": "saved",
            "execution": "theirs",
            "images": {"front": "observation.images.top"},
            "start_timeout_s": 5,
        },
    }
    return {**common, **own[kind], **fields}


POLICY_VERBS = (
    ["screen"],
    ["trial"],
    ["select"],
    ["study", "execution"],
    ["data", "check"],
    ["data", "info"],
    ["report"],
    ["train"],
)
DATA_VERBS = (
    ["data", "check"],
    ["data", "info"],
    ["data", "stats"],
    ["data", "split"],
    ["pixels"],
    ["trial", "-n", "1", "--workers", "0", "--replay"],
    ["diagnose"],
    ["report"],
    ["target"],
    ["screen"],
)


def ask(*words: str | Path, code: Path | None = None) -> int:
    """Run a command; whatever it says, it must not be a defect."""
    return main([*map(str, words), "--quiet", *([] if code is None else ["--allow-code"])])


@pytest.mark.parametrize("verb", POLICY_VERBS, ids=" ".join)
@pytest.mark.parametrize("kind", ["openpi", "vla-eval", "openvla", "lerobot"])
def test_no_verb_runs_what_a_policy_file_names(
    kind: str, verb: list[str], canary: Canary, capfd: pytest.CaptureFixture[str]
) -> None:
    save_checkpoint(canary.folder / "saved")
    (canary.folder / "model").mkdir()
    (canary.folder / "model" / "config.json").write_text(
        json.dumps({"auto_map": {"AutoModelForVision2Seq": "simgap_canary.make"}})
    )
    (canary.folder / ".venv-compat" / "bin").mkdir(parents=True)
    (canary.folder / ".venv-compat" / "bin" / "python").symlink_to(canary.program)
    file = canary.folder / "policy.json"
    plain, second = policy_fields(kind), canary.folder / "second.json"
    variants = [
        plain,
        {**plain, "env": MAKER},
        (
            {**plain, "trust_remote_code": True}
            if kind == "openvla"
            else {**plain, "python": str(canary.program)}
        ),
        {**plain, "url": "file:///etc/passwd", "api_key_variable": "HOME"},
        *({**plain, name: MAKER} for name, value in plain.items() if isinstance(value, str)),
        {**everywhere(plain, MAKER), "kind": kind},
    ]
    for fields in variants:
        file.write_text(json.dumps(fields))
        second.write_text(json.dumps({**fields, "chunk": 2}))
        assert ask(*verb, file, *([second] if verb == ["select"] else [])) in (0, 1, 2, 3)
        assert "defect" not in capfd.readouterr().err
        assert not canary.sang, (verb, fields)


@pytest.mark.parametrize("kind", ["openpi", "vla-eval", "openvla", "lerobot"])
def test_an_env_named_by_a_policy_file_is_refused_with_the_command_that_allows_it_and_made_with_the_flag(
    kind: str, canary: Canary, capfd: pytest.CaptureFixture[str]
) -> None:
    save_checkpoint(canary.folder / "saved")
    file = canary.folder / "policy.json"
    file.write_text(json.dumps(policy_fields(kind, env=MAKER)))
    assert ask("screen", file) == 2
    said = capfd.readouterr().err
    assert not canary.sang
    assert all(words in said for words in (str(file), MAKER, f"simgap envs add {MAKER}", "--allow-code"))
    assert said.count("\n") == 1
    ask("screen", file, "--allow-code")
    assert canary.sang


def test_a_python_named_by_a_policy_file_is_started_only_with_the_flag_or_once_the_file_is_trusted(
    canary: Canary, capfd: pytest.CaptureFixture[str]
) -> None:
    save_checkpoint(canary.folder / "saved")
    file = canary.folder / "policy.json"
    state = [{"name": n, "unit": "deg", "low": -1, "high": 1} for n in ("a.pos", "b.pos")]
    spec = {"rate_hz": 10, "dimensions": state}
    fields = policy_fields(
        "lerobot", env=..., action_spec=spec, state_spec=spec, image_size=16, python=str(canary.program)
    )
    fields["images"] = {"front": "observation.images.top"}
    file.write_text(json.dumps({k: v for k, v in fields.items() if v is not ...}))
    assert ask("screen", file) == 2
    said = capfd.readouterr().err
    assert all(
        words in said for words in (str(file), str(canary.program), "SIMGAP_LEROBOT_PYTHON", "--allow-code")
    )
    assert not canary.sang
    ask("screen", file, "--allow-code")
    assert canary.sang
    store_file(file)
    ask("screen", file)
    assert canary.sang
    file.write_text(file.read_text() + " ")
    assert ask("screen", file) == 2
    assert not canary.sang


def test_a_python_that_lies_in_the_current_folder_is_not_started(canary: Canary) -> None:
    save_checkpoint(canary.folder / "saved")
    (canary.folder / ".venv-compat" / "bin").mkdir(parents=True)
    (canary.folder / ".venv-compat" / "bin" / "python").symlink_to(canary.program)
    file = canary.folder / "policy.json"
    spec = {
        "rate_hz": 10,
        "dimensions": [{"name": n, "unit": "deg", "low": -1, "high": 1} for n in ("a.pos", "b.pos")],
    }
    images = {"front": "observation.images.top"}
    fields = policy_fields("lerobot", images=images, action_spec=spec, state_spec=spec, image_size=16)
    file.write_text(json.dumps({k: v for k, v in fields.items() if k != "env"}))
    with pytest.raises(UntrustedError, match="export SIMGAP_LEROBOT_PYTHON="):
        read_any_card(file)
    assert not canary.sang
    with granted(Trust(any_code=True)), pytest.raises(SimgapError):
        read_any_card(file)
    assert canary.sang


@pytest.mark.parametrize(
    ("type_", "step", "says"),
    [
        (
            "act",
            {"class": "simgap_canary.make", "config": {}},
            r"policy_preprocessor.json names a class to import and call: 'simgap_canary.make'",
        ),
        (
            "act",
            {"registry_name": "action_tokenizer_processor", "config": {"action_tokenizer_name": "here"}},
            "a step with trust_remote_code",
        ),
        (
            "act",
            {"registry_name": "device_processor", "config": {"trust_remote_code": True}},
            "a step with trust_remote_code",
        ),
        ("act", "simgap_canary.make", "a class to import and call"),
        (
            "pi0_fast",
            {"registry_name": "device_processor", "config": {}},
            "config.json names a policy type that may run code out of its config: 'pi0_fast'",
        ),
    ],
)
def test_what_a_lerobot_folder_names_is_not_run(type_: str, step: Any, says: str, canary: Canary) -> None:
    saved = save_checkpoint(canary.folder / "saved", type=type_)
    (saved / "policy_preprocessor.json").write_text(json.dumps({"steps": [step]}))
    file = canary.folder / "policy.json"
    spec = {
        "rate_hz": 10,
        "dimensions": [{"name": n, "unit": "deg", "low": -1, "high": 1} for n in ("a.pos", "b.pos")],
    }
    fields = policy_fields(
        "lerobot",
        images={"front": "observation.images.top"},
        action_spec=spec,
        state_spec=spec,
        image_size=16,
    )
    file.write_text(json.dumps({k: v for k, v in fields.items() if k != "env"}))
    with pytest.raises(UntrustedError, match=says):
        open_policy(file)


def test_a_module_named_by_an_adapter_is_not_imported(tmp_path: Path) -> None:
    for folder, name in (("model", "model.safetensors"), ("adapter", "adapter_model.safetensors")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_bytes(b"")
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "adapter" / "adapter_config.json").write_text(
        json.dumps({"megatron_config": {"a": 1}, "megatron_core": "simgap_canary"})
    )
    with pytest.raises(UntrustedError, match="'simgap_canary'"):
        LoadSpec(model=tmp_path / "model", adapter=tmp_path / "adapter").require_safe()
    for kernels in (
        {"attn_implementation": "somebody/kernel"},
        {"text_config": {"_attn_implementation": {"": "somebody/kernel"}}},
    ):
        (tmp_path / "model" / "config.json").write_text(json.dumps(kernels))
        with pytest.raises(UntrustedError, match="code to fetch"):
            LoadSpec(model=tmp_path / "model").require_safe()


def test_a_secret_goes_only_to_this_machine_unless_it_was_made_for_simgap(
    tmp_path: Path, canary: Canary
) -> None:
    file = canary.folder / "policy.json"
    for url, variable, is_refused in (
        ("wss://elsewhere.invalid", "AWS_SECRET_ACCESS_KEY", True),
        ("wss://elsewhere.invalid", "SIMGAP_KEY", False),
        ("ws://127.0.0.1:9", "OPENPI_KEY", False),
    ):
        file.write_text(json.dumps(policy_fields("openpi", url=url, api_key_variable=variable)))
        with pytest.raises(SimgapError) as found:
            read_any_card(file)
        assert isinstance(found.value, UntrustedError) is is_refused
        assert not is_refused or variable in str(found.value)


@pytest.mark.parametrize("verb", DATA_VERBS, ids=" ".join)
def test_no_verb_runs_what_a_dataset_names(
    verb: list[str],
    dataset: Path,
    canary: Canary,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "simgap.pixelfloor.floor.search_floor",
        lambda *_, **__: (_ for _ in ()).throw(UsageError("far enough")),
    )
    files = [
        dataset / "meta" / "simgap.json",
        dataset / "meta" / "info.json",
        dataset / "meta" / "stats.json",
    ]
    changes: list[tuple[Path, Callable[[Any], Any]]] = [
        (files[0], lambda v: everywhere(v, MAKER, old="arm-pick"))
    ]
    changes += [(f, lambda v: everywhere(v, MAKER)) for f in files if f.exists()]
    for file, change in changes:
        with planted(file, change):
            ask(*verb, dataset)
            assert "defect" not in capfd.readouterr().err
        assert not canary.sang, (verb, file)


@pytest.mark.parametrize(
    "verb", [["trial", "-n", "1", "--workers", "0", "--replay"], ["pixels"]], ids=" ".join
)
def test_an_env_named_by_a_dataset_is_made_with_the_flag(
    verb: list[str], dataset: Path, canary: Canary, capfd: pytest.CaptureFixture[str]
) -> None:
    with planted(dataset / "meta" / "simgap.json", lambda v: everywhere(v, MAKER, old="arm-pick")):
        assert ask(*verb, dataset) == 2
        said = capfd.readouterr().err
        assert str(dataset) in said
        assert f"simgap envs add {MAKER}" in said
        assert not canary.sang
        ask(*verb, dataset, "--allow-code")
    assert canary.sang


def test_an_env_named_by_a_run_is_refused_behind_its_ledger_too(
    canary: Canary, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: Any = SimpleNamespace(cause="policy_weak")
    turn: Any = SimpleNamespace(number=1, diagnosis=found, plan=object(), in_use=None, executor="latest")
    result: Any = SimpleNamespace(
        spec=SimpleNamespace(env=MAKER), ranges=None, turns=(turn,), turn=lambda _: turn, diagnosis=found
    )
    monkeypatch.setattr("simgap.loop.store.load_run", lambda *_, **__: result)
    assert ask("target", canary.folder) == 2
    with pytest.raises(UntrustedError, match=r"run\.json"):
        reporting._plan(result)
    training: Any = SimpleNamespace(spec=SimpleNamespace(image_size=(48, 48), cameras=()))
    log = TrialSet(role=Role.IN_USE, outcomes=(), log=training)
    with pytest.raises(UntrustedError, match=MAKER):
        cameras.CHECK.run(Evidence(env=MAKER, training=training, trials=(log,)))
    assert not canary.sang
    ask("target", canary.folder, "--allow-code")
    assert canary.sang


@pytest.mark.slow
@pytest.mark.parametrize(
    "verb", [["screen", "-n", "1"], ["trial", "-n", "1"], ["select"], ["study", "execution"]], ids=" ".join
)
def test_no_verb_runs_what_the_card_of_a_checkpoint_names(
    verb: list[str], checkpoint: Path, canary: Canary
) -> None:
    for change in (
        lambda v: {**v, "training": {**v["training"], "envs": [MAKER]}},
        lambda v: everywhere(v, MAKER),
    ):
        with planted(checkpoint / "card.json", change):
            ask(*verb, checkpoint, "--workers", "0")
        assert not canary.sang


def test_code_named_on_the_command_line_runs(canary: Canary, capfd: pytest.CaptureFixture[str]) -> None:
    assert ask("envs", "show", MAKER) == 0
    assert "slider" in capfd.readouterr().out
    assert canary.sang
    assert ask("envs", "show", "slider") == 2, "it was allowed for that command only"


# -- files of objects


def test_nothing_is_unpickled(canary: Canary, dataset: Path, tmp_path: Path) -> None:
    from simgap.episodes.table import FrameTable  # noqa: F401  the module that readers of tables need
    from simgap.rollouts.traces import read_records
    from simgap.training.resume import FILE

    bomb = Bomb(canary.mark)
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    torch.save({"step": bomb}, unfinished / FILE)
    ask("train", dataset, "--steps", "1", "--out", unfinished, "--threads", "1")
    assert not canary.sang
    with io.BytesIO() as buffer:
        np.savez(buffer, outcomes=np.array([bomb], dtype=object), seeds=np.array([bomb], dtype=object))
        (tmp_path / "traces.npz").write_bytes(buffer.getvalue())
    with pytest.raises((SimgapError, ValueError)):
        read_records(tmp_path / "traces.npz")
    assert not canary.sang
    file = next((dataset / "data").rglob("*.parquet"))
    before, table = file.read_bytes(), pq.read_table(file)
    marks = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": pickle.dumps(bomb),
    }
    canary.mark.unlink(missing_ok=True)
    fields = [pa.field(f.name, f.type, metadata=marks) for f in table.schema]
    pq.write_table(pa.table(table.columns, schema=pa.schema(fields, metadata=table.schema.metadata)), file)
    try:
        ask("data", "check", dataset)
    finally:
        file.write_bytes(before)
    assert not canary.sang


def test_a_picture_is_not_taken_for_a_program() -> None:
    with io.BytesIO() as buffer:
        Image.new("RGB", (8, 8)).save(buffer, "EPS")
        text = buffer.getvalue()
    with pytest.raises(DataError, match="no image of a kind read here"):
        decode_image(text, where="a.jpg")
    with io.BytesIO() as buffer:
        picture = Image.new("RGB", (8, 8))
        picture.save(buffer, "MPO", save_all=True, append_images=[picture])
        assert decode_image(buffer.getvalue(), where="b.jpg").shape == (8, 8, 3)


def test_a_video_is_not_taken_for_a_playlist(dataset: Path, tmp_path: Path) -> None:
    from simgap.episodes.formats.video import iterate_frames

    real = next((dataset / "videos").rglob("*.mp4")).resolve()
    assert next(iter(iterate_frames(real, 0.0)))[1].shape == (48, 48, 3)
    concat = tmp_path / "a.mp4"
    concat.write_text(f"ffconcat version 1.0\nfile '{real}'\n")
    playlist = tmp_path / "b.mp4"
    playlist.write_text(f"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n{real}\n#EXT-X-ENDLIST\n")
    for file in (concat, playlist):
        with pytest.raises(DataError, match="cannot be opened as a video"):
            next(iter(iterate_frames(file, 0.0)))


# -- the store


def test_added_code_that_has_changed_is_refused_until_it_is_added_again(canary: Canary) -> None:
    add_env(MAKER, canary.folder)
    assert canary.sang
    assert make_env("slider", image_size=16).name == "slider"
    assert make_env(MAKER, image_size=16).name == "slider", "a file may name it by its maker, too"
    assert canary.sang
    file = canary.folder / "simgap_canary.py"
    file.write_text(file.read_text() + "# changed\n")
    with pytest.raises(UntrustedError, match=rf"{file} has changed .* `simgap envs add {MAKER}`"):
        make_env("slider")
    assert not canary.sang
    add_env(MAKER, canary.folder)
    make_env("slider")
    assert canary.sang


def test_an_entry_without_a_hash_and_a_module_in_another_place_make_nothing(
    canary: Canary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    makers_file().parent.mkdir(parents=True)
    makers_file().write_text(json.dumps({"slider": {"maker": MAKER, "folder": str(canary.folder)}}))
    with pytest.raises(UntrustedError, match="without a hash"):
        make_env("slider")
    entry = maker_at(MAKER, canary.folder)
    other = Canary(tmp_path / "elsewhere")
    monkeypatch.syspath_prepend(other.folder)
    with (
        granted(Trust(makers=(replace(entry, name="slider"),))),
        pytest.raises(UntrustedError, match="rename"),
    ):
        make_env("slider")
    assert not canary.sang
    assert not other.sang


def test_an_env_that_cannot_be_used_hides_no_other(canary: Canary, capfd: pytest.CaptureFixture[str]) -> None:
    assert ask("envs", "add", MAKER) == 0
    assert canary.sang
    (canary.folder / "simgap_canary.py").write_text("x = 1\n")
    capfd.readouterr()
    assert ask("envs", "list") == 0
    said = capfd.readouterr().out
    assert "slider: cannot be used" in said
    assert "arm-pick" in said


# -- the decision travels with the job


def _maker_of_slider(_: None) -> Callable[[int], str]:
    return lambda size: make_env("slider", image_size=size, render=False).name


@pytest.mark.slow
def test_a_worker_is_sent_the_decision_and_makes_none(
    canary: Canary, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = maker_at(MAKER, canary.folder)
    trust = Trust(makers=(replace(entry, name="slider"),))
    found: list[str] = []
    with granted(trust):
        run_tasks(_maker_of_slider, (None,), [16], workers=1, on_result=found.append)
        assert (
            Trust.from_json(json.loads(json.dumps(current().to_json()))) == current() or current().is_complete
        )
    assert found == ["slider"]
    assert canary.sang
    with pytest.raises(SimgapError, match="unknown env 'slider'"):
        run_tasks(_maker_of_slider, (None,), [16], workers=0, on_result=found.append)


@pytest.mark.slow
def test_what_lies_in_the_current_folder_is_not_imported_by_what_we_start(canary: Canary) -> None:
    for name in (
        "numpy",
        "mujoco",
        "pickle",
        "json",
        "argparse",
        "simgap_other",
        "ctypes",
        "multiprocessing",
        "threading",
    ):
        (canary.folder / f"{name}.py").write_text(
            f"open({str(canary.mark)!r}, 'w').write('{name}')\nraise SystemExit(9)\n"
        )
    code = (
        "from simgap.compute.machine import require_offscreen; require_offscreen()\nfrom"
        " simgap.robots.surrogate import SurrogateRobot; SurrogateRobot(env='arm-pick', image_size=48,"
        " seed=0, gap='none').close()\nfrom simgap.compute.workers import run_tasks\nimport functools,"
        " operator\nif __name__ == '__main__': run_tasks(functools.partial, (operator.neg,), [1], workers=1,"
        " on_result=print)\n"
    )
    (canary.folder.parent / "job.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-P", str(canary.folder.parent / "job.py")],
        cwd=canary.folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not canary.sang

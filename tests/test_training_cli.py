"""Options of ``simgap train``: every word reaches the spec, a wrong one is one line."""

from __future__ import annotations

import argparse
import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from simgap.cli._train_options import asked_spec, spec_defaults, tracker_of
from simgap.cli.train import add_arguments
from simgap.errors import MachineError, UsageError
from simgap.policies.cnn import Pool
from simgap.policies.heads import FlowTarget, FlowTime, Head
from simgap.training import TrainSpec


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return argparse.Namespace(seed=0, quiet=True, **vars(parser.parse_args(["data", *words])))


def test_without_options_the_spec_is_the_default_one() -> None:
    assert asked_spec(parsed("--threads", "2")) == TrainSpec()


def test_every_option_of_the_help_shows_its_default_and_it_is_the_one_of_the_spec() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    options = [action for action in parser._actions if action.option_strings]
    silent = [action.option_strings[0] for action in options if "default" not in (action.help or "")]
    assert silent == []
    shown = {
        action.dest.removeprefix("spec_"): action.help or ""
        for action in options
        if action.dest.startswith("spec_")
    }
    own = {field.name: getattr(TrainSpec(), field.name) for field in dataclasses.fields(TrainSpec)}
    elsewhere = {"p_real", "stem", "threads"}  # decided by the shares, the frames and the machine
    assert elsewhere < set(shown) <= set(own)
    for name in sorted(set(shown) - elsewhere):
        word = re.search(r"default: ([^,()]+(?:\(\d+\))?)", shown[name])
        assert word is not None, name
        value = word[1] if isinstance(own[name], str) else type(own[name])(word[1])
        assert value == own[name], name


def test_defaults_read_from_the_source_are_those_of_the_class() -> None:
    read = spec_defaults()
    for field in dataclasses.fields(TrainSpec):
        value = field.default
        text = (
            " ".join(value) or "none" if isinstance(value, tuple) else "none" if value is None else str(value)
        )
        assert read[field.name] == text or float(read[field.name]) == value


def test_the_help_of_train_loads_no_torch() -> None:
    code = (
        "import sys\nfrom simgap.cli import main\ntry:\n    main(['train', '--help'])\nexcept SystemExit:\n  "
        "  pass\nassert 'torch' not in sys.modules"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "--checkpoint-every" in ran.stdout


def test_every_word_reaches_the_spec(tmp_path: Path) -> None:
    words = (
        "--head flow --pool average --stem 2 --flow-steps 3 --flow-time uniform --flow-target velocity"
        " --gripper-head --gripper-weight 2 --goal-input"
    )
    spec = asked_spec(
        parsed(
            *words.split(),
            "--from",
            str(tmp_path),
            "--freeze",
            "encoders",
            "--adapter-rank",
            "4",
            "--adapter-parts",
            "trunk",
            "head",
        )
    )
    assert (spec.head, spec.pool, spec.stem, spec.flow_steps) == (Head.FLOW, Pool.AVERAGE, 2, 3)
    assert (spec.flow_time, spec.flow_target) == (FlowTime.UNIFORM, FlowTarget.VELOCITY)
    assert (spec.gripper_head, spec.gripper_weight, spec.goal_input) == (True, 2.0, True)
    assert (spec.frozen, spec.adapter_rank, spec.adapter_parts) == (("encoders",), 4, ("trunk", "head"))


@pytest.mark.parametrize(
    ("flag", "word", "meant"),
    [
        ("--head", "flows", "flow"),
        ("--pool", "averag", "average"),
        ("--flow-time", "betas", "beta"),
        ("--flow-target", "velocty", "velocity"),
    ],
)
def test_a_wrong_word_is_one_line_that_names_the_right_one(flag: str, word: str, meant: str) -> None:
    with pytest.raises(UsageError, match=rf"{flag} has no '{word}'; did you mean '{meant}'") as caught:
        asked_spec(parsed(flag, word))
    assert "\n" not in str(caught.value)


def test_processes_on_one_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "64")
    assert asked_spec(parsed()).threads == 1


def test_a_tracker_is_opened_by_name_by_the_first_process_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    spec = TrainSpec()
    with tracker_of(parsed(), spec, tmp_path, needed=True) as none:
        assert none is None
    with tracker_of(parsed("--track", "wandb"), spec, tmp_path, needed=False) as none:
        assert none is None
    with (
        pytest.raises(MachineError, match="wandb is not installed"),
        tracker_of(parsed("--track", "wandb"), spec, tmp_path, needed=True),
    ):
        pass
    with (
        pytest.raises(UsageError, match="did you mean 'wandb'"),
        tracker_of(parsed("--track", "wanbd"), spec, tmp_path, needed=True),
    ):
        pass

"""The headline's bar is said to hold only of what it is a bar of."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "headline.py"


@pytest.fixture
def headline(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script without its work: every rollout is a success."""
    spec = importlib.util.spec_from_file_location("headline", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "headline", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "generate", lambda *_, **__: SimpleNamespace(frames=10, episodes=1))
    monkeypatch.setattr(module, "load_frames", lambda *_, **__: None)
    monkeypatch.setattr(module, "learn", lambda clock, part, *_: clock.time(part, lambda: None))
    monkeypatch.setattr(module, "score", lambda options, *_: options.rollouts)
    return module


def test_minutes_that_were_lost_beside_a_finished_run_are_unknown_and_the_bar_does_not_hold(
    headline: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "arm-pick-nominal-s0-500x9000" / "training").mkdir(parents=True)
    monkeypatch.setattr(sys, "argv", ["headline.py", "--alone", "--out", str(tmp_path)])
    assert headline.main() == 1
    said = capsys.readouterr().out
    assert "unknown minutes" in said
    assert "does not hold" in said


@pytest.mark.parametrize(
    ("rollouts", "code", "said"),
    [(400, 0, ": holds"), (16, 1, "16 rollouts cannot say"), (0, 2, "counts start at 1")],
)
def test_a_bar_of_400_rollouts_does_not_hold_on_fewer_or_on_none(
    headline: ModuleType,
    rollouts: int,
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        sys, "argv", ["headline.py", "--alone", "--rollouts", str(rollouts), "--out", str(tmp_path)]
    )
    try:
        found = headline.main()
    except SystemExit as left:
        found = left.code
    assert found == code
    captured = capsys.readouterr()
    assert said in captured.out + captured.err

"""What somebody meets in the first hour: hints that lead on, warnings in time, and names that a script can import."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import simgap
from simgap.cli._amounts import FEW, few_episodes
from simgap.rollouts.record import RolloutRecord
from simgap.rollouts.videos import INDEX, write_videos
from simgap.types import Outcome


def test_few_episodes_are_warned_of_and_enough_are_not() -> None:
    assert few_episodes(FEW) == ""
    assert few_episodes(3).startswith("3 episodes are few")
    assert few_episodes(1).startswith("1 episode is few")


def test_every_public_name_is_there_and_importing_simgap_loads_nothing_heavy() -> None:
    for name in simgap.__all__:
        assert getattr(simgap, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'certify'"):
        _ = simgap.certify
    script = (
        "import sys, simgap; print([m for m in ('numpy', 'torch', 'mujoco', 'pyarrow') if m in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


def test_videos_of_failures_have_a_page_that_names_each_and_escapes_what_an_env_calls_it(
    tmp_path: Path,
) -> None:
    film = {"front": np.zeros((3, 32, 32, 3), np.uint8)}
    failed = RolloutRecord(
        seed=7,
        outcome=Outcome.failure("<b>dropped</b>"),
        factors={},
        state=np.zeros((3, 2), np.float32),
        action=np.zeros((3, 2), np.float32),
        age=np.zeros(3, np.float32),
        film=film,
        film_steps=(0, 1, 2),
    )
    written = write_videos(tmp_path, [failed, replace(failed, seed=8, outcome=Outcome.success())], 20.0)
    page = (tmp_path / INDEX).read_text()
    assert len(written) == 1
    assert f'src="{written[0].name}"' in page
    assert "&lt;b&gt;dropped&lt;/b&gt;: seed 7, 3 steps; front" in page
    assert "seed 8" not in page
    assert "http" not in page


def test_where_nothing_failed_there_is_no_page(tmp_path: Path) -> None:
    assert write_videos(tmp_path / "videos", [], 20.0) == []
    assert not (tmp_path / "videos").exists()

"""Stages by content: equal work has one folder, one process works in it, and seeds of two purposes never meet."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simgap.compute.cache import StageCache
from simgap.seeds import Purpose, seed_of

keys = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
)


@given(keys, keys)
def test_equal_keys_share_a_folder_and_different_keys_do_not(one: Any, other: Any) -> None:
    cache = StageCache(Path("cache"))
    assert (cache.folder("datasets", one) == cache.folder("datasets", other)) == (
        repr(_sorted(one)) == repr(_sorted(other))
    )
    assert cache.folder("datasets", one) != cache.folder("checkpoints", one)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _sorted(value[k]) for k in sorted(value)}
    return [_sorted(v) for v in value] if isinstance(value, list) else value


def test_the_order_of_a_key_s_fields_does_not_matter_and_their_values_do() -> None:
    cache = StageCache(Path("cache"))
    assert cache.folder("a", {"x": 1, "y": 2}) == cache.folder("a", {"y": 2, "x": 1})
    assert cache.folder("a", {"x": 1}) != cache.folder("a", {"x": 1.5})


def test_nothing_is_made_before_a_stage_runs(tmp_path: Path) -> None:
    folder = StageCache(tmp_path / "cache").folder("datasets", [1])
    assert not (tmp_path / "cache").exists()
    with StageCache(tmp_path / "cache").holding(folder):
        assert folder.parent.is_dir()
        assert not folder.exists(), "the stage makes its own folder"


def _work(root: str, name: str) -> None:
    cache = StageCache(Path(root))
    folder = cache.folder("stage", "same")
    with cache.holding(folder):
        log = Path(root) / "log"
        with log.open("a") as stream:
            stream.write(f"in {name}\n")
        time.sleep(0.1)
        with log.open("a") as stream:
            stream.write(f"out {name}\n")


def test_one_process_at_a_time_works_in_a_folder(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_work, args=(str(tmp_path), str(i))) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(20)
        assert worker.exitcode == 0
    lines = (tmp_path / "log").read_text().split("\n")[:-1]
    assert len(lines) == 8
    for entered, left in zip(lines[::2], lines[1::2], strict=True):
        assert entered.removeprefix("in ") == left.removeprefix("out ")


def test_a_stage_that_fails_lets_go_of_its_folder(tmp_path: Path) -> None:
    cache = StageCache(tmp_path)
    folder = cache.folder("stage", 1)
    with pytest.raises(RuntimeError), cache.holding(folder):
        raise RuntimeError("killed")
    with cache.holding(folder) as held:
        assert held == folder


def test_seeds_of_two_purposes_roots_or_indices_never_meet() -> None:
    seeds = [
        seed_of(purpose, root, index)
        for purpose in Purpose
        for root in range(4)
        for index in (*range(200), 100_000, 100_001)
    ]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**62 for seed in seeds)


def test_a_seed_is_the_same_on_every_machine_and_day() -> None:
    assert [seed_of(Purpose.TRAIN, 0, 0), seed_of(Purpose.TRIAL, 7, 3)] == [
        1788320217605367667,
        2399680061541896407,
    ]

"""Every reader against files that were changed by structure: one line and an exit code, whatever a file holds; nothing else is touched.

A hundred cases run in this process; the thorough suite runs a thousand in processes of their own, which may
not die, hang or grow.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fuzz_readers import READERS, make_case, run_apart, run_here, wrong

SEED, FEW, MANY = 7, 108, 1000
GROUPS = 20


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One valid input of each kind."""
    folders = {}
    for name, reader in READERS.items():
        folders[name] = tmp_path_factory.mktemp("built")
        reader.build(folders[name])
    return folders


def complaints(built: dict[str, Path], numbers: range, folder: Path, *, apart: bool) -> list[str]:
    """Return what went wrong, one line a case."""
    names, found = list(READERS), []
    for k in numbers:
        name, rng = names[k % len(names)], np.random.default_rng([SEED, k])
        (folder / str(k)).mkdir()
        case = make_case(name, built[name], folder / str(k), rng, heavy=apart)
        problem = wrong(case, (run_apart if apart else run_here)(case))
        found += [f"case {k}, {case.name}: simgap {' '.join(case.argv)}: {problem}"] if problem else []
    return found


@pytest.mark.parametrize("name", READERS)
def test_an_unchanged_input_is_read(name: str, built: dict[str, Path], tmp_path: Path) -> None:
    case = make_case(name, built[name], tmp_path, np.random.default_rng(0), heavy=False, change=False)
    words = READERS[name].commands[0](tmp_path / "in" / READERS[name].root, tmp_path / "out")
    told = run_here(replace(case, argv=[str(w) for w in words]))
    assert told.code in (0, 1), told.err


def test_a_hundred_changed_files_end_in_one_line_each(built: dict[str, Path], tmp_path: Path) -> None:
    assert complaints(built, range(FEW), tmp_path, apart=False) == []


@pytest.mark.slow
@pytest.mark.parametrize("group", range(GROUPS))
def test_a_thousand_changed_files_neither_kill_nor_hang_nor_grow(
    group: int, built: dict[str, Path], tmp_path: Path
) -> None:
    each = MANY // GROUPS
    assert (
        complaints(built, range(1000 + group * each, 1000 + (group + 1) * each), tmp_path, apart=True) == []
    )

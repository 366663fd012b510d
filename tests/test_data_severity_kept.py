"""A finding keeps its code and its severity when the data are converted: what is wrong with them is not how they are stored."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from healthy_hosts import BASE, aloha, drive, older
from remedies import thinned
from simgap.checks.data.dataset import DataReport, check_data
from simgap.episodes.edit.convert import Target, convert_dataset
from simgap.episodes.formats.keymap import KeyMap
from simgap.episodes.reader import open_dataset

Array = NDArray[np.float64]
Change = Callable[[Array, Array, np.random.Generator], tuple[Array, Array]]
STORED_OTHERWISE = {
    "positional_timestamps",
    "no_timestamps",
    "not_matched_by_name",
    "assumed_by_reader",
    "state_is_previous_action",
    "stray_file",
}
"""Of how a format keeps things, and of what it cannot keep; the copy keeps them."""


def _at(side: str, column: int, change: Callable[[Array], Array]) -> Change:
    def plant(action: Array, state: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        values = {"action": action, "state": state}[side]
        values[:, column] = change(values[:, column])
        return action, state

    return plant


def _late(frames: int) -> Change:
    return lambda a, s, rng: (a, np.concatenate([np.repeat(s[:1], frames, axis=0), s[:-frames]]))


FAULTS: dict[str, tuple[Change, str]] = {
    "a sign": (_at("action", 1, np.negative), "sign_flip"),
    "radians": (_at("action", 2, lambda v: v / 57.2958), "unit_mismatch"),
    "an offset": (_at("state", 1, lambda v: v + 0.4 * np.ptp(v)), "static_offset"),
    "swapped columns": (lambda a, s, rng: (a, s[:, [1, 0, *range(2, s.shape[1])]]), "columns_swapped"),
    "a long lag": (_late(18), "long_lag"),
    "a copy": (lambda a, s, rng: (s.copy(), s), "state_equals_action"),
    "differences": (lambda a, s, rng: (np.diff(a, axis=0, prepend=a[:1]), s), "actions_are_differences"),
    "a state ahead": (
        lambda a, s, rng: (np.concatenate([np.repeat(a[:1], 12, axis=0), a[:-12]]), s),
        "state_leads_action",
    ),
    "a frozen encoder": (
        _at("state", 1, lambda v: np.concatenate([v[:60], np.full(len(v) - 60, v[60])])),
        "state_freezes",
    ),
}
FORMATS: dict[str, Callable[[Path, Change], Path]] = {
    "LeRobot v2.1": lambda root, change: older(root, replace(BASE, change=change)),
    "ALOHA HDF5": lambda root, change: aloha(root, change=change),
}
CASES = [(kind, fault) for kind in FORMATS for fault in FAULTS]


def said(report: DataReport) -> dict[str, str]:
    return {f.code: str(f.severity) for f in report.findings if f.code not in STORED_OTHERWISE}


def before_and_after(root: Path, keymap: KeyMap | None = None) -> tuple[dict[str, str], dict[str, str]]:
    """Return what is said of a dataset and of its conversion to ours."""
    dataset = open_dataset(root, keymap) if keymap is not None else open_dataset(root)
    copy = convert_dataset(
        dataset,
        root.with_name("copy"),
        Target(task="do it", codec="png", state_from_action="tub" in root.name),
    )
    return said(check_data(dataset)), said(check_data(copy.root))


@pytest.mark.parametrize(
    ("kind", "fault"), thinned(CASES, {("LeRobot v2.1", "a sign"), ("ALOHA HDF5", "an offset")})
)
def test_a_fault_in_the_numbers_keeps_code_and_severity(kind: str, fault: str, tmp_path: Path) -> None:
    change, code = FAULTS[fault]
    before, after = before_and_after(FORMATS[kind](tmp_path / "d", change))
    assert before.get(code) in ("fault", "warning")
    assert after == before


@pytest.mark.slow
def test_a_healthy_tub_and_one_whose_camera_froze_say_the_same_when_converted(tmp_path: Path) -> None:
    for name, frozen in (("healthy-tub", False), ("frozen-tub", True)):
        (tmp_path / name).mkdir()
        root = drive(tmp_path / name / "tub")
        if frozen:
            first = next(root.glob("*.catalog")).read_text().splitlines()[0]
            picture = (root / "images" / json.loads(first)["cam/image_array"]).read_bytes()
            for path in (root / "images").iterdir():
                path.write_bytes(picture)
        before, after = before_and_after(root)
        assert after == before
        assert bool({v for v in before.values()} - {"note"}) == frozen

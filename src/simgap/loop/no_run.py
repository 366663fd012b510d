"""What a folder is that somebody takes for a run, and which verb reads it."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from simgap.episodes.formats.recognise import format_of
from simgap.episodes.write.finish import SIMGAP_JSON
from simgap.errors import DataError
from simgap.ledger.heads import RUN_FILE, TRIALS_FILE
from simgap.policies.bridges.describe import is_lerobot_folder
from simgap.policies.bridges.policy_file import is_policy_file
from simgap.policies.checkpoint import CARD
from simgap.provenance import read_json
from simgap.training.resume import FILE as RESUME_FILE
from simgap.wording import number_of

READERS = "diagnose, target and report read a run of `simgap demo`"
_MOST_FOLDERS = 1000
_OURS = (CARD, RESUME_FILE, RUN_FILE, TRIALS_FILE, "screen.json", "race.png", "ledger.db")
"""Files by which a folder of ours is known that holds no dataset."""


def not_a_run(folder: Path, run_file: str) -> str:
    """Return one line on a path without ``run_file``: what it is, which verb reads it, and what a run is."""
    said = _said(folder, run_file)
    if said is not None:
        return f"{folder} {said}; {READERS}"
    missing = "does not exist" if not folder.exists() else f"is no finished run (no {run_file})"
    return (
        f"{folder} {missing}; {READERS}: name a folder that it wrote, or make one with `simgap demo --out"
        " PATH`"
    )


def own_folder(folder: Path) -> str:
    """Return what a folder is that a verb of ours wrote and that holds no episodes; empty for all others."""
    if not folder.is_dir():
        return ""
    if any((folder / name).exists() for name in _OURS):
        return _said(folder, RUN_FILE) or (
            "is a run of `simgap demo`" if (folder / RUN_FILE).exists() else ""
        )
    inner = [p for p in islice(folder.iterdir(), _MOST_FOLDERS) if any((p / name).exists() for name in _OURS)]
    if not inner:
        return ""
    first = min(inner)
    return f"holds {number_of(len(inner), 'folder')} that simgap wrote; of them {first} {_said(first, RUN_FILE) or 'is a run'}"


def _said(folder: Path, run_file: str) -> str | None:
    """Return what a path is instead of a run; None where it is nothing that is known."""
    if not folder.is_dir():
        return (
            f"is a policy file: `simgap screen {folder}` judges it"
            if is_policy_file(folder) and folder.is_file()
            else None
        )
    names = {path.name for path in islice(folder.iterdir(), _MOST_FOLDERS)}
    if "spec.json" in names and "ledger.db" in names:
        return "is a run that has not finished: the same `simgap demo` command goes on with it"
    if TRIALS_FILE in names:
        return f"holds the trials of `simgap trial`: `simgap ledger show {folder}` lists what they say"
    if CARD in names:
        return (
            f"is a checkpoint: `simgap screen {folder}` judges it in sim, `simgap trial {folder}` on a"
            " surrogate"
        )
    if RESUME_FILE in names:
        return "is a training that has not finished: the same `simgap train` command goes on with it"
    if "screen.json" in names:
        return "is a screen: the same `simgap screen` command prints it again, without a rollout"
    if "selection.json" in names and "race.png" in names:
        return "is a race of checkpoints: the same `simgap select` command prints it again, without a rollout"
    if is_lerobot_folder(folder):
        return (
            f"is a LeRobot checkpoint: `simgap policy describe {folder}` writes the policy file that `simgap"
            " screen` judges"
        )
    for study in ("selection", "execution"):
        if f"{study}.json" in names:
            return f"is a study: the same `simgap study {study}` command prints it again, without a rollout"
    if format_of(folder) is not None:
        return _episodes(folder)
    inner = sorted(child for child in (folder / name for name in names) if (child / run_file).is_file())
    return (
        f"holds {'a run' if len(inner) == 1 else f'{len(inner)} runs'}, but is none: give {inner[0]}"
        if inner
        else None
    )


def _episodes(folder: Path) -> str:
    """Return what a dataset is: trials are one too, and say so in their stamp."""
    try:
        stored = read_json(folder / SIMGAP_JSON)
        kind = stored["spec"]["stamp"]["kind"]
    except (DataError, KeyError, TypeError):
        kind = "dataset"
    if kind == "trials":
        return (
            "is a set of trials: the same `simgap trial` command counts them again, `simgap data info"
            f" {folder}` describes the episodes"
        )
    return f"is a dataset: `simgap data info {folder}` describes it, `simgap train {folder}` trains on it"

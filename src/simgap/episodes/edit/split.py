"""Training and held-out episodes, drawn so that no frame of one side is near a frame of the other.

Whole episodes are drawn, never frames. Episodes that share their frames (the same recording twice) or their
session (one drive cut in pieces) go to one side together: a neighbour of 50 ms away is no independent test.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simgap.episodes.fingerprint import content_fingerprint
from simgap.episodes.reader import Dataset
from simgap.errors import UsageError, did_you_mean
from simgap.provenance import child_rng, read_json, read_sealed

SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """Which episodes are on which side."""

    parts: Mapping[str, tuple[int, ...]]
    """Name -> episode indices, increasing; all parts together are all episodes."""
    fingerprint: str
    """Of the dataset that was split."""
    content: str
    """Hash of its files alone, whatever is said of them: the list is of these episodes and of no others."""
    seed: int
    groups: int
    """Sets of episodes that had to stay together."""
    tasks: Mapping[str, Mapping[str, int]]
    """Task -> part -> episodes."""
    frames: Mapping[str, int]
    """Part -> frames."""
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "kind": "episode_split",
            "schema": SCHEMA,
            "dataset": self.fingerprint,
            "content": self.content,
            "seed": self.seed,
            "groups": self.groups,
            "frames": dict(self.frames),
            "tasks": {task: dict(parts) for task, parts in self.tasks.items()},
            "notes": list(self.notes),
            "parts": {name: list(episodes) for name, episodes in self.parts.items()},
        }


def split_episodes(dataset: Dataset, shares: Mapping[str, float], seed: int) -> Split:
    """Draw the parts of a dataset, every task in every part as nearly in proportion as whole episodes allow.

    Args:
        dataset: what to split.
        shares: part -> share of the episodes; they sum to 1.
        seed: root of the draw; the same seed on the same data draws the same parts.

    Raises:
        UsageError: shares that are none, or a part that would be empty.
    """
    if (
        not shares
        or any(not 0.0 < s <= 1.0 for s in shares.values())
        or abs(sum(shares.values()) - 1.0) > 1e-6
    ):
        raise UsageError(f"shares {dict(shares)} must be above 0 and sum to 1, such as train=0.8,val=0.2")
    groups, notes = _groups(dataset)
    strata: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    for group in groups:
        strata[_task(dataset, group[0])].append(group)
    parts: dict[str, list[int]] = {name: [] for name in shares}
    owed = dict.fromkeys(shares, 0.0)
    for task in sorted(strata):
        order = child_rng(seed, "split", task).permutation(len(strata[task]))
        for k in order:
            group = strata[task][int(k)]
            for name, share in shares.items():
                owed[name] += share * len(group)
            chosen = max(owed, key=lambda name: owed[name])
            owed[chosen] -= len(group)
            parts[chosen].extend(group)
    empty = [name for name, episodes in parts.items() if not episodes]
    if empty:
        raise UsageError(
            f"{dataset.root} has {len(groups)} independent groups of episodes, too few for a part"
            f" {empty[0]!r} of {shares[empty[0]]:g}; record more"
        )
    tasks: dict[str, dict[str, int]] = {task: dict.fromkeys(shares, 0) for task in sorted(strata)}
    for name, episodes in parts.items():
        for index in episodes:
            tasks[_task(dataset, index)][name] += 1
    return Split(
        parts={name: tuple(sorted(episodes)) for name, episodes in parts.items()},
        fingerprint=dataset.fingerprint,
        content=_content(dataset),
        seed=seed,
        groups=len(groups),
        tasks=tasks,
        frames={name: sum(dataset.entry(k).length for k in episodes) for name, episodes in parts.items()},
        notes=tuple(notes),
    )


def part_of(path: Path, part: str, dataset: Dataset) -> tuple[int, ...]:
    """Return the episodes of one part of a written split; one that simgap wrote is believed as it was written, and of its own dataset.

    Raises:
        UsageError: no split, no such part, or a split of other data.
        DataError: a list of ours that was changed.
    """
    document = read_json(path)
    parts = document.get("parts") if isinstance(document, dict) else None
    if not isinstance(parts, dict):
        raise UsageError(f"{path} is no split; make one with simgap data split")
    if "schema" in document:
        document = read_sealed(path)
        if document.get("content") != _content(dataset):
            raise UsageError(
                f"{path} is a split of other data than {dataset.root}, or these were changed since; make the"
                " split again with simgap data split"
            )
    if part not in parts:
        raise UsageError(f"{path} has no part {part!r}; {did_you_mean(part, parts)}")
    if not isinstance(parts[part], list) or any(type(k) is not int for k in parts[part]):
        raise UsageError(
            f"part {part!r} of {path} is no list of episode numbers; make the split again with simgap data"
            " split"
        )
    return tuple(parts[part])


def _content(dataset: Dataset) -> str:
    return content_fingerprint(dataset.root, {}, dataset.source.content_files())


def _groups(dataset: Dataset) -> tuple[list[tuple[int, ...]], list[str]]:
    """Return the sets of episodes that must stay together, in the order of their first episode."""
    leader: dict[int, int] = {}
    twins: dict[str, int] = {}
    sessions: dict[str, int] = {}
    notes: list[str] = []
    for entry in (e for e in dataset.entries if e.length > 0):
        chosen = entry.index
        columns = dataset.columns(entry.index)
        digest = hashlib.sha256(
            b"".join(
                np.ascontiguousarray(columns[k]).tobytes() for k in (dataset.action_key, dataset.state_key)
            )
        ).hexdigest()
        if digest in twins:
            notes.append(
                f"episode {entry.index} has the actions and states of episode {twins[digest]}; they stay on"
                " one side"
            )
            chosen = leader[twins[digest]]
        twins.setdefault(digest, entry.index)
        session = str(entry.extra.get("session") or "")
        if session and chosen == entry.index:
            chosen = sessions.setdefault(session, entry.index)
        leader[entry.index] = chosen
    members: dict[int, list[int]] = defaultdict(list)
    for index, first in leader.items():
        members[first].append(index)
    together = sum(len(m) > 1 for m in members.values())
    if sessions and together:
        notes.append(f"{together} sessions of several episodes stay whole")
    return [tuple(m) for m in members.values()], notes


def _task(dataset: Dataset, index: int) -> str:
    tasks: Sequence[str] = dataset.entry(index).tasks
    return tasks[0] if tasks else dataset.spec.task_default

"""What a dataset holds and no reader gives: episodes listed with no frames, and rows of data that no listed episode claims.

Whoever writes a dataset anew, splits it or trains on it takes episodes by the index; what the index does not
send anybody to would be lost without a word. It is counted here, told by every verb, and left where it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simgap.episodes.formats.lerobot import episode_numbers
from simgap.episodes.formats.parquet import read_parquet
from simgap.episodes.reader import Dataset
from simgap.wording import number_of

_MOST_NAMED = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """What stays behind, empty where nothing does."""

    episodes: Mapping[int, int] = field(default_factory=dict)
    """Listed episodes that have no frames by the index -> the length it lists."""
    rows: Mapping[int, int] = field(default_factory=dict)
    """Episode number in the data files -> rows of it that no listed episode claims; -1 for rows that name none."""

    def __bool__(self) -> bool:
        return bool(self.episodes or self.rows)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "episodes": {str(k): v for k, v in self.episodes.items()},
            "rows": {str(k): v for k, v in self.rows.items()},
        }

    def sentences(self) -> tuple[str, ...]:
        """Return what is left out in words, with counts; nothing where nothing is."""
        said = []
        if self.episodes:
            parts = [f"episode {k} with length {v}" for k, v in self.episodes.items()]
            said.append(
                f"{number_of(len(self.episodes), 'episode is', 'episodes are')} left out, which the"
                " index lists without frames:"
                f" {_some(parts)}"
            )
        if self.rows:
            parts = [
                "rows that name no episode" if k < 0 else f"{n} of episode {k}" for k, n in self.rows.items()
            ]
            said.append(
                f"{number_of(sum(self.rows.values()), 'row of the data files is', 'rows of the data files are')} left out, which no listed episode"
                f" claims: {_some(parts)}"
            )
        return tuple(said)


def left_out(dataset: Dataset) -> LeftOut:
    """Return what a reader of a dataset passes over.

    Raises:
        DataError: a data file that the index names cannot be read.
    """
    empty = {e.index: e.length for e in dataset.entries if e.length <= 0}
    claimed = np.array(sorted(e.index for e in dataset.entries if e.length > 0), dtype=np.int64)
    rows: dict[int, int] = {}
    for path in (
        sorted({e.data for e in dataset.entries}) if dataset.info.is_lerobot and not dataset.is_ours else ()
    ):
        if not path.is_file():
            continue  # of an episode without frames; the others were looked for when the dataset was opened
        numbers = episode_numbers(read_parquet(path, ["episode_index"]))
        if numbers is None:
            continue
        for number, n in zip(
            *np.unique(numbers[~np.isin(numbers, claimed)], return_counts=True), strict=True
        ):
            rows[int(number)] = rows.get(int(number), 0) + int(n)
    return LeftOut(episodes=empty, rows=rows)


def _some(parts: Sequence[str]) -> str:
    return ", ".join(parts[:_MOST_NAMED]) + (
        f" and {len(parts) - _MOST_NAMED} more" if len(parts) > _MOST_NAMED else ""
    )

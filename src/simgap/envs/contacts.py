"""What the robot touches: contacts of an engine by the names of the robot's parts and of the things around it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray


class ContactTable:
    """Turns pairs of geoms into one truth value for each part of the robot and each thing it may touch."""

    def __init__(self, parts: Mapping[str, Collection[int]], things: Mapping[str, Collection[int]]) -> None:
        """Take geom ids by name; a geom that is nobody's, such as the floor under a car, is passed over.

        Args:
            parts: of the robot.
            things: what it may touch.
        """
        self.names = tuple(f"{part} on {thing}" for part in parts for thing in things)
        """Columns of :meth:`read`."""
        self._columns: dict[tuple[int, int], int] = {}
        for column, (part, thing) in enumerate((p, t) for p in parts.values() for t in things.values()):
            for a in part:
                for b in thing:
                    self._columns[a, b] = self._columns[b, a] = column

    def read(self, pairs: Iterable[tuple[int, int]]) -> NDArray[np.bool_]:
        """Return which contacts there are among these pairs of geoms, ``(C,)``."""
        found = np.zeros(len(self.names), dtype=np.bool_)
        for pair in pairs:
            if (column := self._columns.get(pair)) is not None:
                found[column] = True
        return found

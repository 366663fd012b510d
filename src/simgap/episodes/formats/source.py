"""What a format has to answer: the rows of an episode, its frames, and which files are its content."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from simgap.conventions import Dimension
from simgap.episodes.formats.index import DatasetInfo, EpisodeEntry
from simgap.episodes.spec import DatasetSpec
from simgap.errors import DataError


class Source(ABC):
    """Reads one dataset of one format; several threads may ask at the same time."""

    @abstractmethod
    def schema(self, entry: EpisodeEntry) -> pa.Schema:
        """Return the columns of an episode as stored, images among them."""

    @abstractmethod
    def table(self, entry: EpisodeEntry) -> pa.Table:
        """Return the rows of an episode, images left out."""

    @abstractmethod
    def decode(self, entry: EpisodeEntry, key: str, out: NDArray[np.uint8], start: int = 0) -> None:
        """Decode ``len(out)`` frames of a camera feature from frame ``start`` of an episode on into ``(n, H, W, 3)`` uint8 RGB.

        Raises:
            DataError: missing, truncated or of another size.
        """

    @abstractmethod
    def has_pictures(self, key: str) -> bool:
        """Return whether each frame of a camera is a compressed picture of its own, which can be damaged by itself."""

    @abstractmethod
    def content_files(self) -> list[Path]:
        """Return the files whose bytes are the dataset, sorted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Roles:
    """Which features are what."""

    action: tuple[str, ...]
    """Features that make up the action vector, in order."""
    state: tuple[str, ...]
    """Features that make up the state vector; none where nothing was measured."""
    cameras: dict[str, str]
    """Camera name -> feature."""
    time: str | None = None
    """Feature that holds the true clock in seconds; the usual names by default."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    """What opening a folder of some format yields."""

    info: DatasetInfo
    entries: tuple[EpisodeEntry, ...]
    source: Source
    roles: Roles
    dimensions: dict[str, tuple[Dimension, ...]]
    """Feature -> what the format itself says of its dimensions; others have unknown units."""
    spec: DatasetSpec | None = None
    """The stored spec of a dataset of ours."""
    recorded: str | None = None
    """The fingerprint stored with it."""
    notes: tuple[str, ...] = ()
    """What the reader had to assume, one sentence each."""
    questions: tuple[str, ...] = ()
    """Those of the notes that nobody should build upon."""


def require_frame(image: NDArray[np.uint8], out: NDArray[np.uint8], where: str) -> None:
    """Raise unless a decoded image has the declared size.

    Raises:
        DataError: names the place and both sizes.
    """
    if image.shape != out.shape:
        refuse(
            f"{where} is an image of {image.shape[1]}x{image.shape[0]}, the dataset has"
            f" {out.shape[1]}x{out.shape[0]}; drop or resize it"
        )


def refuse(message: str) -> NoReturn:
    """Raise a one-line error about data.

    Raises:
        DataError: always.
    """
    raise DataError(message)

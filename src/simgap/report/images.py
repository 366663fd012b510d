"""Frames to data URIs, small enough that the whole report can be mailed."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from simgap.errors import DataError
from simgap.report.model import FilmStrip
from simgap.types import Frame, OutcomeKind

BUDGET_BYTES = 4_000_000
"""Most bytes of pictures in a report, as they stand in the file."""
_LEVELS = ((192, 82), (128, 75), (96, 60), (64, 50))
"""Largest side in pixels and JPEG quality, tried in turn until the budget holds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Film:
    """A film strip ready for the page."""

    strip: FilmStrip
    tone: str
    """``good``, ``bad`` or ``void``."""
    rows: Sequence[tuple[str, Sequence[str]]]
    """Camera name and its frames as data URIs."""


def encode_films(
    strips: Sequence[FilmStrip], budget_bytes: int = BUDGET_BYTES
) -> tuple[tuple[Film, ...], str]:
    """Encode strips at the best quality that keeps all of them under the budget.

    Returns:
        The films, and a sentence on what had to be left out (empty when nothing). Strips are dropped from the
        end.
    """
    films: tuple[Film, ...] = ()
    for side, quality in _LEVELS:
        films = tuple(_film(strip, side, quality) for strip in strips)
        if _size(films) <= budget_bytes:
            return films, ""
    kept = films
    while kept and _size(kept) > budget_bytes:
        kept = kept[:-1]
    return kept, f"{len(films) - len(kept)} of {len(films)} film strips were left out to keep the file small."


def data_uri(frame: Frame, side: int, quality: int) -> str:
    """Return a frame as a JPEG data URI, its longer side at most ``side`` pixels; it is never enlarged.

    Raises:
        DataError: the frame is not ``(H, W, 3)`` uint8.
    """
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or frame.size == 0:
        raise DataError(
            f"a film frame has shape {frame.shape} and type {frame.dtype}; expected (H, W, 3) uint8"
        )
    image = Image.fromarray(np.ascontiguousarray(frame))
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode()


def _film(strip: FilmStrip, side: int, quality: int) -> Film:
    tone = {OutcomeKind.SUCCESS: "good", OutcomeKind.FAILURE: "bad", OutcomeKind.VOID: "void"}[
        strip.outcome.kind
    ]
    rows = tuple(
        (name, tuple(data_uri(frame, side, quality) for frame in frames))
        for name, frames in strip.cameras.items()
    )
    return Film(strip=strip, tone=tone, rows=rows)


def _size(films: Sequence[Film]) -> int:
    return sum(len(uri) for film in films for _, uris in film.rows for uri in uris)

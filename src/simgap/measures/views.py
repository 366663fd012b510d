"""Averaged copies of frames: a view of some ninety rows for where a camera looks, and coarse cells for whether anything moves in it.

Where :func:`simgap.measures.glimpses.small` picks single pixels, so that the least motion stays, these
average: the noise of a sensor and of a codec goes, and a sub-pixel shift can be read.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Frames = NDArray[np.uint8]

_ROWS = 96
_CELL_ROWS = 16
_MOST = 16
"""Views of an episode that its still picture is made of."""
_RESTS = 8.0
"""Distance from the still picture, of 255, up to which a pixel shows something that rests, beside the noise of the whole picture."""
_MOSTLY = 0.8
"""Share of the views in which it has to."""
_LOUDEST = 4.0


class Still(NamedTuple):
    """What rests in a camera's view over an episode."""

    picture: NDArray[np.float32]
    """``(h, w, 3)`` of 255: the median over views of the episode, from which most of what moves is gone."""
    resting: NDArray[np.bool_]
    """``(h, w)``: pixels that hardly change over most views."""
    views: int


def smooth(image: Frames) -> Frames:
    """Return a frame averaged over square boxes, about 96 rows of it."""
    from PIL import Image

    factor = max(1, round(image.shape[0] / _ROWS))
    if factor == 1:
        return np.array(image)
    return np.asarray(Image.fromarray(np.ascontiguousarray(image)).reduce(factor))


def cells(view: Frames) -> NDArray[np.float32]:
    """Return the mean brightness of a view on a grid of about 16 rows of square cells, ``(r, c)`` of 255."""
    side = max(1, view.shape[0] // _CELL_ROWS)
    rows, columns = max(1, view.shape[0] // side), max(1, view.shape[1] // side)
    grey = view[: rows * side, : columns * side].astype(np.float32) @ np.array(
        [0.299, 0.587, 0.114], np.float32
    )
    if grey.shape[0] < side or grey.shape[1] < side:
        return grey
    return np.asarray(grey.reshape(rows, side, columns, side).mean(axis=(1, 3)))


def still(views: list[Frames]) -> Still:
    """Return the still picture of evenly spread views."""
    chosen = [views[k] for k in np.unique(np.linspace(0, len(views) - 1, min(_MOST, len(views))).astype(int))]
    stack = np.stack(chosen)
    picture = np.median(stack, axis=0).astype(np.float32)
    away = np.abs(stack - picture).max(axis=-1)
    noise = min(_LOUDEST, float(np.median(away)))
    return Still(
        picture=picture, resting=np.quantile(away, _MOSTLY, axis=0) <= _RESTS + 2.0 * noise, views=len(chosen)
    )

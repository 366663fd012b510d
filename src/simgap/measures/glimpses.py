"""Small copies of frames spread over an episode: what the checks of pictures look at, whatever the frames are stored in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simgap.episodes.formats.index import EpisodeEntry, VideoSpan
from simgap.episodes.formats.video import VideoShape, iterate_frames, video_shape
from simgap.episodes.reader import Dataset
from simgap.errors import DataError
from simgap.measures.views import Still, cells, smooth, still

STEP_S = 0.4
"""Time between two looks, at least."""
MOST_LOOKS = 64
_SIDE = 48
"""Rows of a small copy, about: single pixels are picked, not averaged, so that a small motion stays visible."""
_DENSE_S = 0.25
_SPARSE_S = 1.0
_WHOLE_FRAMES = 120
"""Episodes up to this long are looked at frame by frame."""
MOST_DECODED = 6000
"""Frames that may be decoded one by one where key frames lie more than a second apart, over a whole dataset."""

Frames = NDArray[np.uint8]


class Copies(NamedTuple):
    """Two small copies of a frame: picked pixels, and averaged ones."""

    small: Frames
    smooth: Frames


class Taken(NamedTuple):
    """What is kept of frames that were decoded."""

    times_s: NDArray[np.float64]
    frames: Frames
    cells: NDArray[np.float32]
    """``(n, r, c)`` mean brightness, of 255."""
    still: Still | None
    """What rests in them; None without frames."""


NOTHING = Taken(np.zeros(0), np.zeros((0, 1, 1, 3), np.uint8), np.zeros((0, 1, 1), np.float32), None)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Glimpse:
    """Frames of one camera in one episode, or why there are none."""

    episode: int
    camera: str
    times_s: NDArray[np.float64]
    """``(n,)`` from the start of the episode."""
    frames: Frames
    """``(n, h, w, 3)`` small copies; empty where nothing could be read."""
    cells: NDArray[np.float32] = field(default_factory=lambda: NOTHING.cells)
    """``(n, r, c)`` mean brightness of square cells, of 255."""
    still: Still | None = None
    """What rests in the view; None without frames."""
    shape: VideoShape | None = None
    error: str = ""
    outside: str = ""
    """What of the episode lies outside the file, in words."""

    @property
    def where(self) -> str:
        """For people."""
        return f"{self.camera} in episode {self.episode}"

    @property
    def mean(self) -> float:
        """Of all pixels, of 255; NaN without frames."""
        return float(self.frames.mean()) if len(self.frames) else float("nan")

    @property
    def spread(self) -> float:
        """Standard deviation of all pixels, of 255; NaN without frames."""
        return float(self.frames.std()) if len(self.frames) else float("nan")

    @property
    def motion(self) -> float:
        """Largest difference of any pixel from the first frame, of 255; NaN with fewer than two frames."""
        return (
            float(np.abs(self.frames.astype(np.int16) - self.frames[0]).max())
            if len(self.frames) > 1
            else float("nan")
        )

    @property
    def steps(self) -> NDArray[np.float64]:
        """Largest difference of any pixel from one look to the next, ``(n - 1,)`` of 255."""
        wide = self.frames.astype(np.int16)
        return np.asarray(np.abs(np.diff(wide, axis=0)).max(axis=(1, 2, 3), initial=0), dtype=np.float64)

    @property
    def thumbnail(self) -> NDArray[np.float64]:
        """Mean picture on an 8 x 8 grid, ``(8, 8, 3)`` of 255; what stays of a camera's view over an episode."""
        average = self.frames.mean(axis=0, dtype=np.float64)
        rows, columns = (np.linspace(0, n, 9).astype(int) for n in average.shape[:2])
        return np.array(
            [
                [average[a : max(b, a + 1), c : max(d, c + 1)].mean(axis=(0, 1)) for c, d in _ends(columns)]
                for a, b in _ends(rows)
            ]
        )


def _ends(edges: NDArray[np.int64]) -> list[tuple[int, int]]:
    return list(zip(np.minimum(edges[:-1], edges[-1] - 1).tolist(), edges[1:].tolist(), strict=True))


class Looker:
    """Takes glimpses of a dataset within one budget of decoded frames."""

    def __init__(self, dataset: Dataset) -> None:
        """Start with the whole budget."""
        self._dataset = dataset
        self._left = MOST_DECODED
        self.coarse = 0
        """Videos seen only in key frames more than a second apart."""

    def look(self, entry: EpisodeEntry, camera: str) -> Glimpse:
        """Return frames spread over one episode of one camera; what cannot be read becomes words."""
        key = self._dataset.camera_key(camera)
        span = entry.videos.get(key)
        shape = None

        def seen(taken: Taken = NOTHING, error: str = "", outside: str = "") -> Glimpse:
            times, frames, grid, rests = taken
            return Glimpse(
                episode=entry.index, camera=camera, times_s=times, frames=frames, cells=grid, still=rests,
                shape=shape, error=error, outside=outside,
            )  # fmt: skip

        try:
            # a map may turn pictures
            if span is None or (self._dataset.keymap is not None and self._dataset.keymap.images.get(camera)):
                return seen(self._stills(entry, camera))
            shape = video_shape(span.path)
            outside = beyond(span.start_s, span.start_s + entry.length / self._dataset.info.rate_hz, shape)
            if outside:
                return seen(outside=outside)
            return seen(self._video(entry, span))
        except DataError as error:
            return seen(error=str(error))

    def exact(self, entry: EpisodeEntry, camera: str, start: int, count: int) -> Frames:
        """Return consecutive frames as stored, ``(count, h, w, 3)`` small copies.

        Raises:
            DataError: they cannot be read.
        """
        return np.stack([small(f) for f in self._decoded(entry, camera, start, count)])

    def _decoded(self, entry: EpisodeEntry, camera: str, start: int, count: int) -> Frames:
        out = np.empty((count, *self._dataset.frame_shape(camera)), dtype=np.uint8)
        self._dataset.decode(entry.index, camera, out, start)
        return out

    def _stills(self, entry: EpisodeEntry, camera: str) -> Taken:
        step = max(1, round(STEP_S * self._dataset.info.rate_hz)) if entry.length > _WHOLE_FRAMES else 1
        chosen = np.arange(
            0, entry.length, max(step, -(-entry.length // MOST_LOOKS) if entry.length > _WHOLE_FRAMES else 1)
        )
        rate = self._dataset.info.rate_hz
        return _taken(
            ((k / rate, _copied(self._decoded(entry, camera, int(k), 1)[0])) for k in chosen), 0.0, 0.0
        )

    def _video(self, entry: EpisodeEntry, span: VideoSpan) -> Taken:
        rate = self._dataset.info.rate_hz
        stop = span.start_s + entry.length / rate
        step = max(STEP_S, (stop - span.start_s) / MOST_LOOKS)
        if entry.length <= min(_WHOLE_FRAMES, self._left):
            self._left -= entry.length
            return _taken(_copies(_between(span, stop, key_frames_only=False), 0.0), span.start_s, 0.0)
        keys: list[tuple[float, Copies]] = []
        for time_s, image in _between(span, stop, key_frames_only=True):
            keys.append((time_s, _copied(image)))
            if len(keys) == 4 and (keys[-1][0] - keys[0][0]) / 3 < _DENSE_S:
                return self._sought(span, stop, step)
        gaps = np.diff([t for t, _ in keys]) if len(keys) > 1 else np.array([stop - span.start_s])
        if float(np.median(gaps)) > _SPARSE_S:
            if entry.length <= self._left:
                self._left -= entry.length
                return _taken(_copies(_between(span, stop, key_frames_only=False), step), span.start_s, step)
            self.coarse += 1
        return _taken(iter(keys), span.start_s, step)

    def _sought(self, span: VideoSpan, stop: float, step: float) -> Taken:
        """Jump from look to look: with key frames everywhere, that is many times cheaper than decoding them all."""
        looks: list[tuple[float, Copies]] = []
        for wanted in np.arange(span.start_s, stop - 1e-6, step):
            for time_s, image in iterate_frames(span.path, float(wanted), key_frames_only=True):
                if time_s >= wanted - _DENSE_S and time_s >= span.start_s - 1e-3:
                    if time_s < stop and (not looks or time_s > looks[-1][0]):
                        looks.append((time_s, _copied(image)))
                    break
        return _taken(iter(looks), span.start_s, 0.0)


def _between(span: VideoSpan, stop: float, *, key_frames_only: bool) -> Iterator[tuple[float, Frames]]:
    seen = False
    for time_s, image in iterate_frames(span.path, span.start_s, key_frames_only=key_frames_only):
        if time_s < span.start_s - 1e-3 and not seen:
            continue
        if time_s >= stop - 1e-6:
            return
        seen = True
        yield time_s, image


def _copied(image: Frames) -> Copies:
    return Copies(small(image), smooth(image))


def _copies(frames: Iterator[tuple[float, Frames]], step: float) -> Iterator[tuple[float, Copies]]:
    """Copy the frames of a stream that lie a step apart; a decoded frame is a view into the decoder's memory."""
    last = -np.inf
    for time_s, image in frames:
        if time_s - last >= step - 1e-6:
            last = time_s
            yield time_s, _copied(image)


def _taken(copies: Iterator[tuple[float, Copies]], start_s: float, step: float) -> Taken:
    times: list[float] = []
    taken: list[Copies] = []
    for time_s, copy in copies:
        if not times or time_s - times[-1] >= step - 1e-6:
            times.append(time_s)
            taken.append(copy)
    if not taken:
        return NOTHING
    views = [c.smooth for c in taken]
    return Taken(
        np.array(times) - start_s,
        np.stack([c.small for c in taken]),
        np.stack([cells(v) for v in views]),
        still(views),
    )


def small(image: Frames) -> Frames:
    """Return every k-th pixel of a frame, about 48 rows of it, at least every fourth of a frame of some size."""
    stride = max(1, image.shape[0] // _SIDE)
    return np.ascontiguousarray(image[::stride, ::stride])


def beyond(start_s: float, stop_s: float, shape: VideoShape) -> str:
    """Say what part of a span a file does not hold; nothing where the container declares no length."""
    length_s = shape.frames / shape.rate_hz if shape.frames and shape.rate_hz else np.inf
    if not start_s >= 0.0:  # NaN too
        return f"starts at {start_s:g} s"
    return (
        f"needs {start_s:.2f} to {stop_s:.2f} s of a file of {length_s:.2f} s"
        if stop_s > length_s + 1.5 / (shape.rate_hz or 1.0)
        else ""
    )

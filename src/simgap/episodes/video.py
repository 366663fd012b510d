"""Frames to bytes and back: H.264 in MP4 through PyAV, or PNG, one thread each so that the bytes do not depend on the machine's load."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simgap.errors import DataError

if TYPE_CHECKING:
    from av import VideoFrame
    from av.container import InputContainer

_LARGEST_SIDE = 8192


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoding:
    """How videos are compressed."""

    crf: int = 16
    """Constant quality of x264; lower is better."""
    preset: str = "ultrafast"
    keyframe_every: int = 10
    """Frames between key frames: a random seek decodes at most this many."""


class VideoShape(NamedTuple):
    """What a video file says of itself."""

    height: int
    width: int
    codec: str
    rate_hz: float
    frames: int
    """Declared number of frames; 0 where the container does not say."""


def rate_fraction(rate_hz: float) -> Fraction:
    """Return a frame rate as a fraction that a container can hold."""
    return Fraction(rate_hz).limit_denominator(10_000)


def encode_h264(frames: NDArray[np.uint8], rate_hz: float, encoding: Encoding) -> bytes:
    """Return an MP4 of ``(T, H, W, 3)`` uint8 RGB frames; frame k is shown at exactly k / rate_hz seconds.

    Equal frames give equal bytes. Height and width must be even (4:2:0 chroma).
    """
    import av
    from av.video.reformatter import VideoReformatter

    _, height, width, _ = frames.shape
    rate = rate_fraction(rate_hz)
    buffer = io.BytesIO()
    options = {"preset": encoding.preset, "crf": str(encoding.crf), "g": str(encoding.keyframe_every), "bf": "0", "sc_threshold": "0"}
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=rate, options=options)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.thread_count = 1
        stream.codec_context.time_base = 1 / rate
        reformatter = VideoReformatter()  # kept over frames, one thread: a fresh one a frame is many times slower
        for k, image in enumerate(frames):
            rgb = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
            frame = reformatter.reformat(rgb, format="yuv420p", threads=1)
            frame.pts, frame.time_base = k, 1 / rate
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return buffer.getvalue()


def video_shape(path: Path) -> VideoShape:
    """Return size, codec and rate of a video file.

    Raises:
        DataError: the file cannot be opened as a video.
    """
    with _opened(path) as container:
        stream = container.streams.video[0]
        context = stream.codec_context
        return VideoShape(context.height, context.width, context.name, float(stream.average_rate or 0), stream.frames)


def iterate_frames(path: Path, start_s: float = 0.0, *, key_frames_only: bool = False) -> Iterator[tuple[float, NDArray[np.uint8]]]:
    """Yield ``(time in s, (H, W, 3) uint8 RGB)`` of a video in order of display, from the key frame at or before a time on.

    Args:
        path: video file.
        start_s: time to start near.
        key_frames_only: decode key frames alone, which is many times cheaper.

    Raises:
        DataError: the file is no video, is truncated, or its frames are absurdly large.
    """
    import av
    from av.video.reformatter import VideoReformatter

    with _opened(path) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        if key_frames_only:
            stream.codec_context.skip_frame = "NONKEY"
        reformatter = VideoReformatter()
        try:
            if start_s > 1.0 and stream.time_base:
                container.seek(int(start_s / stream.time_base), stream=stream)
            for frame in container.decode(stream):
                if max(frame.width, frame.height) > _LARGEST_SIDE:
                    raise DataError(f"{path} holds frames of {frame.width} x {frame.height}, more than {_LARGEST_SIDE} a side; this reader refuses them")
                yield float(frame.time or 0.0), _pixels(reformatter.reformat(frame, format="rgb24", threads=1))
        except av.FFmpegError as error:
            raise DataError(f"{path} cannot be decoded ({error}); the file is damaged or truncated, copy it again") from error


def _pixels(frame: VideoFrame) -> NDArray[np.uint8]:
    """Return a view of an RGB frame's pixels; lines may be padded in memory."""
    plane = frame.planes[0]
    lines: NDArray[np.uint8] = np.frombuffer(memoryview(plane), dtype=np.uint8).reshape(frame.height, plane.line_size)
    return lines[:, : 3 * frame.width].reshape(frame.height, frame.width, 3)


def decode_span(path: Path, start_s: float, rate_hz: float, out: NDArray[np.uint8]) -> None:
    """Decode ``len(out)`` consecutive frames that begin at a time into ``out``, ``(T, H, W, 3)`` uint8.

    Raises:
        DataError: fewer frames than wanted, or frames of another size.
    """
    filled, half = 0, 0.5 / rate_hz
    for time_s, image in iterate_frames(path, start_s):
        if time_s < start_s - half:
            continue
        if filled == len(out):
            break
        if image.shape != out.shape[1:]:
            raise DataError(f"{path} holds frames of {image.shape[:2]}, its dataset declares {out.shape[1:3]}; repair info.json or the video")
        out[filled] = image
        filled += 1
    if filled != len(out):
        raise DataError(f"{path} ends after {filled} of the {len(out)} frames from {start_s:.3f} s on; the video is truncated or its episode rows are wrong")


def encode_png(image: NDArray[np.uint8]) -> bytes:
    """Return a PNG of one ``(H, W, 3)`` uint8 frame."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG", compress_level=3)
    return buffer.getvalue()


def decode_image(data: bytes, *, where: str) -> NDArray[np.uint8]:
    """Return ``(H, W, 3)`` uint8 of an image file's bytes.

    Raises:
        DataError: the bytes are no image.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            if max(image.size) > _LARGEST_SIDE:
                raise DataError(f"{where} holds an image of {image.size}, more than {_LARGEST_SIDE} a side; this reader refuses it")
            return np.asarray(image.convert("RGB"))
    except (OSError, ValueError) as error:
        raise DataError(f"{where} holds bytes that are no image ({error}); copy the file again") from error


def _opened(path: Path) -> InputContainer:
    import av

    try:
        container = av.open(str(path), "r")
    except (av.FFmpegError, OSError) as error:
        raise DataError(f"{path} cannot be opened as a video ({error}); copy the file again") from error
    if not container.streams.video:
        container.close()
        raise DataError(f"{path} holds no video stream; copy the file again")
    return container

"""Videos and images back to frames, through PyAV and Pillow, one thread each."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simgap.bounds import DAMAGED, PIXELS, SIDE, open_regular, printable, require_regular, said
from simgap.episodes.write.encoders import (
    CODECS,
    ENCODINGS,
    Codec,
    Encoding,
    VideoEncoder,
    encode_png,
    rate_fraction,
)
from simgap.errors import DataError

if TYPE_CHECKING:
    from av import VideoFrame
    from av.container import InputContainer

__all__ = [
    "CODECS",
    "ENCODINGS",
    "Codec",
    "Encoding",
    "VideoEncoder",
    "VideoShape",
    "decode_image",
    "decode_span",
    "encode_png",
    "iterate_frames",
    "rate_fraction",
    "video_shape",
]

_PICTURES = ("JPEG", "PNG", "WEBP", "BMP")
"""What recorders write; others bring decoders that run programs (EPS) or allocate what they are told."""
_CONTAINERS = {
    "format_whitelist": "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts",
    "protocol_whitelist": "file",
}
"""Play lists, which name other files and addresses, are no videos of a robot."""
_MOST_FRAMES = 100_000_000
_LARGEST_FILE = 1 << 40


class VideoShape(NamedTuple):
    """What a video file says of itself."""

    height: int
    width: int
    codec: str
    rate_hz: float
    frames: int
    """Declared number of frames; 0 where the container does not say."""


def video_shape(path: Path) -> VideoShape:
    """Return size, codec and rate of a video file.

    Raises:
        DataError: the file cannot be opened as a video.
    """
    with _opened(path) as container:
        stream = container.streams.video[0]
        context = stream.codec_context
        rate = float(stream.average_rate or 0)
        return VideoShape(
            context.height,
            context.width,
            context.name,
            rate,
            stream.frames if 0 <= stream.frames <= _MOST_FRAMES else 0,
        )


def iterate_frames(
    path: Path, start_s: float = 0.0, *, key_frames_only: bool = False
) -> Iterator[tuple[float, NDArray[np.uint8]]]:
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
        declared = stream.codec_context.width, stream.codec_context.height
        if max(declared) > SIDE:
            raise DataError(
                f"{path} declares frames of {declared[0]} x {declared[1]}, more than {SIDE} a side; this"
                " reader refuses them"
            )
        if key_frames_only:
            stream.codec_context.skip_frame = "NONKEY"
        reformatter = VideoReformatter()
        try:
            if start_s > 1.0 and stream.time_base:
                container.seek(int(start_s / stream.time_base), stream=stream)
            for frame in container.decode(stream):
                if max(frame.width, frame.height) > SIDE:
                    raise DataError(
                        f"{path} holds frames of {frame.width} x {frame.height}, more than {SIDE} a side;"
                        " this reader refuses them"
                    )
                yield (
                    float(frame.time or 0.0),
                    _pixels(reformatter.reformat(frame, format="rgb24", threads=1)),
                )
        except (av.FFmpegError, *DAMAGED) as error:
            raise DataError(
                f"{path} cannot be decoded ({error}); the file is damaged or truncated, copy it again"
            ) from error


def _pixels(frame: VideoFrame) -> NDArray[np.uint8]:
    """Return a view of an RGB frame's pixels; lines may be padded in memory."""
    plane = frame.planes[0]
    lines: NDArray[np.uint8] = np.frombuffer(memoryview(plane), dtype=np.uint8).reshape(
        frame.height, plane.line_size
    )
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
            raise DataError(
                f"{path} holds frames of {image.shape[:2]}, its dataset declares {out.shape[1:3]}; repair"
                " info.json or the video"
            )
        out[filled] = image
        filled += 1
    if filled != len(out):
        raise DataError(
            f"{path} ends after {filled} of the {len(out)} frames from {start_s:.3f} s on; the video is"
            " truncated or its episode rows are wrong"
        )


_WIDE_MODES = ("I", "F")
_JPEG_SCAN, _JPEG_END = b"\xff\xda", b"\xff\xd9"
"""Markers of a scan and of the end; compressed data hold neither, for they stuff every 0xFF."""


def decode_image(data: bytes, *, where: str) -> NDArray[np.uint8]:
    """Return ``(H, W, 3)`` uint8 of an image file's bytes.

    Raises:
        DataError: the bytes are no image.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(data), formats=_PICTURES) as image:
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            if max(image.size) > SIDE or image.size[0] * image.size[1] > PIXELS:
                raise DataError(
                    f"{where} holds an image of {image.size}, more than {SIDE} a side; this reader refuses it"
                )
            if image.mode in _WIDE_MODES or image.mode.startswith("I;"):
                raise DataError(
                    f"{where} is a picture of mode {image.mode}, wide numbers such as depth and not colours;"
                    " give a colour picture"
                )
            if image.format == "JPEG" and data.rfind(_JPEG_END) < data.rfind(_JPEG_SCAN):
                raise DataError(
                    f"{where} is a JPEG without its end: it was cut, or filled up with zeros; copy the file"
                    " again"
                )
            return np.asarray(image.convert("RGB"))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(
            f"{where} holds an image of far too many pixels ({said(error)}); this reader refuses it"
        ) from error
    except UnidentifiedImageError as error:
        raise DataError(
            f"{where} holds bytes that are no image of a kind read here ({', '.join(_PICTURES)}); copy the"
            " file again, or convert it"
        ) from error
    except DAMAGED as error:
        raise DataError(
            f"{where} holds bytes that are no image ({said(error)}); copy the file again"
        ) from error


def _name_of(path: Path) -> str | BinaryIO:
    """Return what PyAV opens: the name, or the open file where the name is no UTF-8."""
    text = os.fspath(path)
    return text if printable(text) == text else open_regular(path)


def _opened(path: Path) -> InputContainer:
    import av

    require_regular(path, _LARGEST_FILE)
    try:
        container = av.open(_name_of(path), "r", options=_CONTAINERS)
    except (av.FFmpegError, *DAMAGED) as error:
        raise DataError(f"{path} cannot be opened as a video ({error}); copy the file again") from error
    if not container.streams.video:
        container.close()
        raise DataError(f"{path} holds no video stream; copy the file again")
    return container

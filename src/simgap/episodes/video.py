"""Frames to bytes and back: H.264 or AV1 in MP4 through PyAV, or PNG, one thread each so that the bytes do not depend on the machine's load."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from simgap.errors import DataError, MachineError

if TYPE_CHECKING:
    from av import VideoFrame
    from av.container import InputContainer
    from av.video.stream import VideoStream

_LARGEST_SIDE = 8192

Codec = Literal["h264", "av1", "png"]
CODECS: tuple[Codec, ...] = ("h264", "av1", "png")
"""``h264`` and ``av1``: a video a camera, small and lossy. ``png``: exact, inside the parquet."""
_ENCODERS: dict[str, str] = {"h264": "libx264", "av1": "libsvtav1"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoding:
    """How videos are compressed; for ``png`` nothing of it is used."""

    crf: int = 17
    """Constant quality of x264; lower is better. With chroma averaged over its four pixels it is closer to the frames than 16 is without."""
    preset: str = "ultrafast"
    keyframe_every: int = 10
    """Frames between key frames: a random seek decodes at most this many."""


ENCODINGS: dict[Codec, Encoding] = {"h264": Encoding(), "av1": Encoding(crf=12, preset="8"), "png": Encoding()}
"""What a dataset of a codec is compressed with unless it says otherwise. AV1 at the quality of our H.264 takes ten times as long to encode."""


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


class VideoEncoder:
    """Makes MP4 files of one codec, one after the other.

    Kept over episodes for its colour converter: a fresh one a frame is many times slower than the conversion.
    """

    def __init__(self, codec: Codec, encoding: Encoding, rate_hz: float) -> None:
        """Take the settings; nothing is opened yet.

        Args:
            codec: ``h264`` or ``av1``.
            encoding: quality, preset and key frames.
            rate_hz: frame k is shown at exactly k / rate_hz seconds.
        """
        from av.video.reformatter import VideoReformatter

        self._codec, self._encoding = _ENCODERS[codec], encoding
        self._rate = rate_fraction(rate_hz)
        self._reformatter = VideoReformatter()

    def encode(self, frames: NDArray[np.uint8]) -> bytes:
        """Return an MP4 of ``(T, H, W, 3)`` uint8 RGB frames; height and width must be even (4:2:0 chroma).

        Equal frames give equal bytes, whatever was encoded before and on any number of cores.
        """
        import av
        from av.video.reformatter import Interpolation

        _, height, width, _ = frames.shape
        buffer = io.BytesIO()
        with av.open(buffer, "w", format="mp4") as container:
            stream = cast("VideoStream", container.add_stream(self._codec, rate=self._rate, options=self._options()))
            stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
            stream.codec_context.thread_count = 1
            stream.codec_context.time_base = 1 / self._rate
            for k, image in enumerate(frames):
                rgb = av.VideoFrame.from_numpy_buffer(np.ascontiguousarray(image), format="rgb24")
                # AREA averages the four pixels under a chroma sample, which is what decoders undo.
                frame = self._reformatter.reformat(rgb, format="yuv420p", interpolation=Interpolation.AREA, threads=1)
                frame.pts, frame.time_base = k, 1 / self._rate
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
        return buffer.getvalue()

    def _options(self) -> dict[str, str]:
        encoding = self._encoding
        options = {"preset": encoding.preset, "crf": str(encoding.crf), "g": str(encoding.keyframe_every)}
        if self._codec == "libx264":
            return options | {"bf": "0", "sc_threshold": "0"}
        os.environ.setdefault("SVT_LOG", "1")  # it prints its settings to standard error for every video otherwise
        return options | {"svtav1-params": "lp=1:lookahead=0"}


def require_encoder(codec: Codec) -> None:
    """Raise unless the installed PyAV can encode a codec.

    Raises:
        MachineError: names the encoder that is missing.
    """
    import av

    if codec in _ENCODERS:
        try:
            av.codec.Codec(_ENCODERS[codec], "w")
        except av.codec.codec.UnknownCodecError as error:
            raise MachineError(f"this build of PyAV has no {_ENCODERS[codec]}, which codec {codec} needs; pip install av, or use codec h264 or png") from error


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

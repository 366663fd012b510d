"""Frames to files: H.264 or AV1 in MP4 through PyAV, or PNG, one thread each so that the bytes do not depend on the machine's load."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from simgap.errors import DataError, MachineError

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.codeccontext import VideoCodecContext
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

Codec = Literal["h264", "av1", "png"]
CODECS: tuple[Codec, ...] = ("h264", "av1", "png")
"""``h264`` and ``av1``: a video a camera, small and lossy. ``png``: exact, inside the parquet."""
_ENCODERS: dict[str, str] = {"h264": "libx264", "av1": "libsvtav1"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoding:
    """How videos are compressed; for ``png`` nothing of it is used. One of ``qp`` and ``crf`` holds, by default ``qp`` 15."""

    qp: int | None = None
    """Constant quantiser of x264; lower is better."""
    crf: int | None = None
    """Constant quality instead; what a frame gets then depends on those before it."""
    preset: str = "ultrafast"
    keyframe_every: int = 10
    """Frames between key frames: a random seek decodes at most this many."""

    def __post_init__(self) -> None:
        if self.qp is not None and self.crf is not None:
            raise DataError(
                f"an encoding has either qp or crf, not qp {self.qp} and crf {self.crf}; give one of them"
            )
        if self.qp is None and self.crf is None:
            object.__setattr__(self, "qp", 15)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        quality = {"crf": self.crf} if self.qp is None else {"qp": self.qp}
        return {**quality, "preset": self.preset, "keyframe_every": self.keyframe_every}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Encoding:
        """Rebuild from :meth:`to_json`."""
        return cls(**data)


ENCODINGS: dict[Codec, Encoding] = {
    "h264": Encoding(),
    "av1": Encoding(crf=12, preset="8"),
    "png": Encoding(),
}
"""What a dataset of a codec is compressed with unless it says otherwise. AV1 at the quality of our H.264 takes ten times as long to encode."""


def rate_fraction(rate_hz: float) -> Fraction:
    """Return a frame rate as a fraction that a container can hold."""
    return Fraction(rate_hz).limit_denominator(10_000)


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
            raise MachineError(
                f"this build of PyAV has no {_ENCODERS[codec]}, which codec {codec} needs; pip install av, or"
                " use codec h264 or png"
            ) from error


class VideoEncoder:
    """Makes MP4 files of one codec, one after the other; equal frames give equal bytes, whatever was encoded before."""

    def __init__(self, codec: Codec, encoding: Encoding, rate_hz: float) -> None:
        """Take the settings; nothing is opened yet.

        Args:
            codec: ``h264`` or ``av1``.
            encoding: quality, preset and key frames.
            rate_hz: frame k is shown at exactly k / rate_hz seconds.
        """
        self._settings = _Settings(_ENCODERS[codec], encoding, rate_fraction(rate_hz))
        self._converters: dict[tuple[int, int], _Converter] = {}
        self._kept: dict[tuple[int, int], _KeptOpen] = {}

    def encode(self, frames: NDArray[np.uint8]) -> bytes:
        """Return an MP4 of ``(T, H, W, 3)`` uint8 RGB frames; height and width must be even (4:2:0 chroma)."""
        size = frames.shape[1], frames.shape[2]
        if size not in self._converters:
            self._converters[size] = _Converter(*size)
            if self._settings.can_stay_open:
                self._kept[size] = _KeptOpen(self._settings, self._converters[size])
        kept = self._kept.get(size)
        if kept is not None and kept.is_immediate:
            return kept.encode(frames)
        return _encode_once(self._settings, self._converters[size], frames)


@dataclass(frozen=True, slots=True)
class _Settings:
    encoder: str
    encoding: Encoding
    rate: Fraction

    @property
    def can_stay_open(self) -> bool:
        """True for x264 at a constant quantiser, the one mode in which frames do not depend on those before the last key frame."""
        return self.encoder == "libx264" and self.encoding.qp is not None

    def options(self) -> dict[str, str]:
        encoding = self.encoding
        options = {"preset": encoding.preset, "g": str(encoding.keyframe_every)}
        options |= {"crf": str(encoding.crf)} if encoding.qp is None else {"qp": str(encoding.qp)}
        if self.encoder == "libx264":
            return options | {"bf": "0", "sc_threshold": "0", "forced-idr": "1", "x264-params": "force-cfr=1"}
        # it prints its settings to standard error for every video otherwise
        os.environ.setdefault("SVT_LOG", "1")
        return options | {"svtav1-params": "lp=1:lookahead=0"}

    def apply(self, context: VideoCodecContext, height: int, width: int) -> None:
        context.width, context.height, context.pix_fmt = width, height, "yuv420p"
        context.thread_count = 1
        context.time_base = 1 / self.rate


class _Converter:
    """RGB to the encoder's colours, kept: a fresh one for every frame is many times slower than the conversion."""

    def __init__(self, height: int, width: int) -> None:
        import av
        from av.video.reformatter import Interpolation, VideoReformatter

        self.size = height, width
        self._rgb = np.zeros((height, width, 3), dtype=np.uint8)
        self._source = av.VideoFrame.from_numpy_buffer(self._rgb, format="rgb24")
        self._reformatter, self._area = VideoReformatter(), Interpolation.AREA

    def convert(self, image: NDArray[np.uint8]) -> VideoFrame:
        np.copyto(self._rgb, image)
        # AREA averages the four pixels under a chroma sample, which is what decoders undo.
        return self._reformatter.reformat(self._source, format="yuv420p", interpolation=self._area, threads=1)


class _KeptOpen:
    """One x264 for many videos: opening it costs as much as encoding forty small frames.

    Every video begins with a forced IDR frame, after which nothing refers back. Two traces of what came
    before would be left: the encoder's banner before the very first frame, and the parity of ``idr_pic_id``,
    which alternates over IDR frames. Frames that belong to no video take both away.
    """

    def __init__(self, settings: _Settings, converter: _Converter) -> None:
        import av
        from av.video.frame import PictureType

        self._settings, self._converter, self._intra = settings, converter, PictureType.I
        self._time_base = 1 / settings.rate
        height, width = converter.size
        blank = np.zeros((1, height, width, 3), dtype=np.uint8)
        self._header = av.open(io.BytesIO(_encode_once(settings, converter, blank)))
        context = cast("VideoCodecContext", av.CodecContext.create(settings.encoder, "w"))
        settings.apply(context, height, width)
        context.framerate = settings.rate
        options = settings.options()
        # In MP4 a NAL unit begins with its length, not with a start code; the muxer turns one into the other
        # for streams of its own alone.
        context.options = options | {"x264-params": options["x264-params"] + ":annexb=0"}
        context.flags |= av.codec.context.Flags.global_header
        self._context, self._next, self._is_odd = context, 0, False
        self.is_immediate = len(self._push(blank[0], begins=True)) == 1
        """Whether each frame comes back at once; an encoder that holds frames back cannot be kept."""

    def encode(self, frames: NDArray[np.uint8]) -> bytes:
        import av

        if self._is_odd:
            self._push(frames[0], begins=True)
        first, buffer = self._next, io.BytesIO()
        with av.open(buffer, "w", format="mp4") as container:
            stream = container.add_stream_from_template(self._header.streams.video[0])
            for k, image in enumerate(frames):
                for packet in self._push(image, begins=k == 0):
                    packet.pts = packet.dts = k
                    packet.time_base, packet.stream = self._time_base, stream
                    container.mux_one(packet)
        assert self._next == first + len(frames)
        return buffer.getvalue()

    def _push(self, image: NDArray[np.uint8], *, begins: bool) -> list[Packet[Any]]:
        frame = self._converter.convert(image)
        frame.pts, frame.time_base = self._next, self._time_base
        if begins:
            frame.pict_type = self._intra
        self._next += 1
        packets = self._context.encode(frame)
        self._is_odd ^= any(packet.is_keyframe for packet in packets)
        return packets


def _encode_once(settings: _Settings, converter: _Converter, frames: NDArray[np.uint8]) -> bytes:
    import av

    buffer, time_base = io.BytesIO(), 1 / settings.rate
    with av.open(buffer, "w", format="mp4") as container:
        stream = cast(
            "VideoStream",
            container.add_stream(settings.encoder, rate=settings.rate, options=settings.options()),
        )
        settings.apply(stream.codec_context, *converter.size)
        for k, image in enumerate(frames):
            frame = converter.convert(image)
            frame.pts, frame.time_base = k, time_base
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return buffer.getvalue()


def encode_png(image: NDArray[np.uint8]) -> bytes:
    """Return a PNG of one ``(H, W, 3)`` uint8 frame."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG", compress_level=3)
    return buffer.getvalue()

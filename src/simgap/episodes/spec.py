"""What a dataset of ours is: conventions, cameras, rate and stamp, fixed before the first episode is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from simgap.conventions import ActionSpec, StateSpec, VectorSpec
from simgap.episodes.write.encoders import CODECS, ENCODINGS, Codec, Encoding
from simgap.errors import ConventionError, DataError
from simgap.provenance import Stamp

__all__ = ["CODECS", "SCHEMA", "Codec", "DatasetSpec", "differences"]

SCHEMA = 1
"""Version of ``meta/simgap.json``; readers refuse others."""
_CODEC_DEFAULT = Encoding(preset="")


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetSpec:
    """Everything that holds for all episodes of a dataset."""

    name: str
    action_spec: ActionSpec
    state_spec: StateSpec
    cameras: tuple[str, ...]
    image_size: tuple[int, int]
    """``(height, width)`` in pixels; even numbers for video codecs."""
    rate_hz: float
    stamp: Stamp
    """Where the episodes come from; resuming with another stamp is refused."""
    task_default: str = ""
    """Instruction of episodes that carry none."""
    codec: Codec = "h264"
    """``h264`` or ``av1`` (small, lossy), or ``png`` (exact, inside the parquet)."""
    robot_type: str = "simgap"
    encoding: Encoding = _CODEC_DEFAULT
    """Compression of videos; that of :data:`~simgap.episodes.write.encoders.ENCODINGS` unless given."""

    def __post_init__(self) -> None:
        if self.codec not in CODECS:
            raise DataError(
                f"dataset {self.name!r}: unknown codec {self.codec!r}; known: {', '.join(CODECS)}"
            )
        if self.encoding == _CODEC_DEFAULT:
            object.__setattr__(self, "encoding", ENCODINGS[self.codec])
        for what, spec in (("action", self.action_spec), ("state", self.state_spec)):
            if abs(spec.rate_hz - self.rate_hz) > 1e-6:
                raise ConventionError(
                    f"dataset {self.name!r} runs at {self.rate_hz} Hz, its {what} spec says {spec.rate_hz}"
                    " Hz; make them equal"
                )

    @property
    def has_videos(self) -> bool:
        """True when every camera has a video file an episode."""
        return self.codec != "png" and bool(self.cameras)

    def require_writable(self) -> None:
        """Raise unless our writer can write this; foreign datasets may have odd image sizes and dotted camera names.

        Raises:
            DataError: names the field.
        """
        if self.has_videos and any(side % 2 for side in self.image_size):
            raise DataError(
                f"dataset {self.name!r}: {self.codec} needs even image sides, not {self.image_size}; change"
                " the size or use codec png"
            )
        bad = [c for c in self.cameras if not c or "/" in c or "." in c]
        if bad or len(set(self.cameras)) != len(self.cameras):
            raise DataError(
                f"dataset {self.name!r}: camera names {list(self.cameras)} must be distinct, without '/'"
                " and '.'"
            )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "name": self.name,
            "action_spec": self.action_spec.to_json(),
            "state_spec": self.state_spec.to_json(),
            "cameras": list(self.cameras),
            "image_size": list(self.image_size),
            "rate_hz": self.rate_hz,
            "stamp": self.stamp.to_json(),
            "task_default": self.task_default,
            "codec": self.codec,
            "robot_type": self.robot_type,
            "encoding": self.encoding.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> DatasetSpec:
        """Rebuild a spec from :meth:`to_json`.

        Raises:
            DataError: a field is missing or of the wrong kind.
        """
        try:
            stamp = dict(data["stamp"])
            return cls(
                name=str(data["name"]),
                action_spec=VectorSpec.from_json(data["action_spec"]),
                state_spec=VectorSpec.from_json(data["state_spec"]),
                cameras=tuple(str(c) for c in data["cameras"]),
                image_size=(int(data["image_size"][0]), int(data["image_size"][1])),
                rate_hz=float(data["rate_hz"]),
                stamp=Stamp(kind=str(stamp.pop("kind")), fields=stamp),
                task_default=str(data["task_default"]),
                codec=data["codec"],
                robot_type=str(data["robot_type"]),
                encoding=Encoding.from_json(data["encoding"]),
            )
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise DataError(
                f"stored dataset spec cannot be read ({error!r}); it was written by another version of this"
                " program"
            ) from error


_LONGEST = 160
"""Characters of a difference that is still read."""


def differences(ours: Any, theirs: Any, where: str = "") -> Iterator[str]:
    """Yield one sentence for each place where two JSON values differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(ours.keys() | theirs.keys()):
            path = f"{where}.{key}" if where else key
            if key not in ours or key not in theirs:
                yield f"{path} is only in the {'stored' if key not in ours else 'new'} spec"
            else:
                yield from differences(ours[key], theirs[key], path)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(a, b, f"{where}[{k}]")
    elif ours != theirs:
        said = f"{where} is {theirs!r} on disk and {ours!r} now"
        yield said if len(said) <= _LONGEST else f"{where} differs"

"""Frozen values that flow down the layers: outcomes, observations, episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from simgap.errors import DataError

Frame: TypeAlias = NDArray[np.uint8]
"""``(H, W, 3)`` uint8 RGB."""
Vector: TypeAlias = NDArray[np.float32]
"""``(A,)`` or ``(S,)`` float32 in the units of its spec."""
Json: TypeAlias = dict[str, Any]


class OutcomeKind(StrEnum):
    """What became of an episode; there is no fourth value and none of them is a number."""

    SUCCESS = "success"
    FAILURE = "failure"
    VOID = "void"


_NOT_RECORDED = "outcome not recorded"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Success, failure with a mode, or void with a reason."""

    kind: OutcomeKind
    detail: str = ""
    """Failure mode, or the reason of a void; empty for a success."""
    reason: str = field(default="", compare=False)
    """What is known of a failure beyond its mode, in words."""

    def __post_init__(self) -> None:
        if (self.kind is OutcomeKind.SUCCESS) != (self.detail == ""):
            raise DataError(
                f"outcome {self.kind} with detail {self.detail!r}: failures need a mode, voids a reason,"
                " successes neither"
            )

    @classmethod
    def success(cls) -> Outcome:
        """Return a success."""
        return cls(OutcomeKind.SUCCESS)

    @classmethod
    def failure(cls, mode: str, reason: str = "") -> Outcome:
        """Return a failure of the named mode, with what is known beyond it."""
        return cls(OutcomeKind.FAILURE, mode, reason)

    @classmethod
    def void(cls, reason: str) -> Outcome:
        """Return a void: the trial proves nothing, for this reason."""
        return cls(OutcomeKind.VOID, reason)

    @classmethod
    def not_recorded(cls) -> Outcome:
        """Return what stands where nobody said how an episode ended: it counts neither way, and stays unrecorded in every copy."""
        return cls(OutcomeKind.VOID, _NOT_RECORDED)

    @property
    def is_recorded(self) -> bool:
        """False where nobody said how the episode ended."""
        return self != Outcome.not_recorded()

    @property
    def is_success(self) -> bool:
        """True for a success; what is none need not be a failure, ask :attr:`counts` first."""
        return self.kind is OutcomeKind.SUCCESS

    @property
    def is_void(self) -> bool:
        """True when the trial broke and proves nothing. An outcome that nobody recorded is none: the episode ran as it did."""
        return self.kind is OutcomeKind.VOID and self.is_recorded

    @property
    def counts(self) -> bool:
        """True for a success or a failure; a void, and what nobody recorded, count neither way."""
        return self.kind is not OutcomeKind.VOID

    def __str__(self) -> str:
        return f"{self.kind}({self.detail})" if self.detail else str(self.kind)


class EvidenceKind(StrEnum):
    """Where a number comes from. Only ``real`` can support a claim about hardware."""

    SIM = "sim"
    SECOND_ENGINE = "second_engine"
    SURROGATE = "surrogate"
    REAL = "real"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Observation:
    """What a student may see: cameras and encoders, never privileged state."""

    images: Mapping[str, Frame]
    state: Vector
    """Encoder readings in the units of the state spec, ``(S,)`` float32."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Episode:
    """One whole attempt: what was seen, what was sent, when, and how it ended."""

    images: Mapping[str, NDArray[np.uint8]]
    """Camera name -> ``(T, H, W, 3)`` uint8 RGB."""
    state: NDArray[np.float32]
    """``(T, S)`` encoder readings, state spec units."""
    action: NDArray[np.float32]
    """``(T, A)`` the command sent at each frame, action spec units."""
    time_s: NDArray[np.float64]
    """``(T,)`` true clock of each frame from the start of the episode; never a fabricated k/rate on hardware."""
    outcome: Outcome
    task: str
    """The instruction in words."""
    seed: int | None
    """Seed of the initial condition; None where nobody recorded one."""
    factors: Mapping[str, float] = field(default_factory=dict)
    """Factor values of this episode by name; on hardware only what was measured."""
    extras: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """Further per-frame columns by name, ``(T,)`` or ``(T, k)``: executed action, frame age, chunk age ..."""

    def __post_init__(self) -> None:
        length = len(self.action)
        lengths = {"state": len(self.state), "time_s": len(self.time_s)}
        lengths |= {f"images[{k}]": len(v) for k, v in self.images.items()}
        lengths |= {f"extras[{k}]": len(v) for k, v in self.extras.items()}
        wrong = {k: n for k, n in lengths.items() if n != length}
        if wrong or length == 0:
            raise DataError(
                f"episode seed {self.seed}: action has {length} frames, but"
                f" {wrong or 'an episode needs at least one'}"
            )
        for name, values in (("state", self.state), ("action", self.action)):
            if not np.isfinite(values).all():
                raise DataError(
                    f"episode seed {self.seed}: {name} holds NaN or infinity at frame"
                    f" {int(np.argwhere(~np.isfinite(values))[0][0])}"
                )

    def __len__(self) -> int:
        return len(self.action)

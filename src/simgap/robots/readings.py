"""What a robot process says, checked before it is believed: every frame, encoder, clock, command and verdict passes here.

A reading that is not what a robot can say breaks the trial; it is never repaired, clipped or left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.errors import DataError, TrialFault
from simgap.robots.base import AppliedAction, InitialCondition, Robot, RobotObservation
from simgap.types import Outcome, OutcomeKind

STALE_S = 0.25
"""A frame older than this is no observation."""
_DETAIL = 300
_MOST_PLACEMENTS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Contract:
    """What a robot of this task shows and takes."""

    cameras: tuple[str, ...]
    image_size: int
    """Side of a frame in px."""
    state: tuple[str, ...]
    """Names of the encoders."""
    action: tuple[str, ...]
    """Names of the commands."""
    stale_s: float = STALE_S
    """Age in seconds beyond which a frame is no observation."""

    @classmethod
    def of(cls, robot: Robot, *, stale_s: float = STALE_S) -> Contract:
        """Return what a robot says it shows and takes."""
        return cls(
            cameras=tuple(robot.cameras),
            image_size=robot.image_size,
            state=robot.state_spec.names,
            action=robot.action_spec.names,
            stale_s=stale_s,
        )

    def observation(self, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> RobotObservation:
        """Return one reading of every sensor.

        Raises:
            TrialFault: a frame is missing, stale or of another shape, an encoder is not finite, or there is
                no clock.
        """
        for name in (*self.cameras, "state"):
            if name not in arrays:
                raise TrialFault(f"the robot sent no {name!r}; it sent {_names(arrays)}")
        for name in arrays:
            if name not in (*self.cameras, "state"):
                raise TrialFault(
                    f"the robot sent {name!r:.40}, which no task of its env has; it has"
                    f" {_names(self.cameras)}"
                )
        images = {c: arrays[c] for c in self.cameras}
        return self.seen(images, arrays["state"], header.get("frame_age_s"), header.get("time_s"))

    def seen(self, images: Mapping[str, Any], state: Any, frame_age_s: Any, time_s: Any) -> RobotObservation:
        """Return the parts of a reading as one, each of them checked.

        Raises:
            TrialFault: a frame is missing, stale or of another shape, an encoder is not finite, or there is
                no clock.
        """
        frame = (self.image_size, self.image_size, 3)
        for camera in self.cameras:
            _require_array(f"frame of the {camera} camera", images.get(camera), "uint8", frame)
        _require_array("state", state, "float32", (len(self.state),))
        if not np.isfinite(state).all():
            name = self.state[int(np.flatnonzero(~np.isfinite(state))[0])]
            raise TrialFault(
                f"the robot says that {name} is at {state[~np.isfinite(state)][0]}; expected a finite number:"
                " check the encoder"
            )
        ages = _mapping("frame_age_s", frame_age_s)
        aged = {camera: self._age(camera, ages.get(camera)) for camera in self.cameras}
        return RobotObservation(
            images={c: images[c] for c in self.cameras},
            state=state,
            time_s=_seconds(time_s),
            frame_age_s=aged,
        )

    def applied(self, header: Mapping[str, Any]) -> AppliedAction:
        """Return what the robot did with a command.

        Raises:
            TrialFault: it does not say it for every command, in finite numbers.
        """
        return self.did(header.get("applied"), header.get("clipped"), header.get("time_s"))

    def did(self, said: Any, clipped: Any, time_s: Any) -> AppliedAction:
        """Return the parts of what a robot says it did as one, each of them checked.

        Raises:
            TrialFault: it does not say it for every command, in finite numbers.
        """
        if not isinstance(said, list) or len(said) != len(self.action):
            raise TrialFault(
                f"the robot says it applied {said!r:.60}; expected {len(self.action)} numbers:"
                f" {_names(self.action)}"
            )
        values = [
            _number(f"the applied command of {name}", v) for name, v in zip(self.action, said, strict=True)
        ]
        with np.errstate(over="ignore"):
            action = np.array(values, dtype=np.float32)
        if not np.isfinite(action).all():
            raise TrialFault(
                f"the robot says it applied {max(values, key=abs)!r:.40}, which no float32 holds"
            )
        if not isinstance(clipped, bool):
            raise TrialFault(f"the robot says {clipped!r:.40} for whether it clipped; expected true or false")
        return AppliedAction(action=action, clipped=clipped, time_s=_seconds(time_s))

    def _age(self, camera: str, said: Any) -> float:
        age = _number(f"the age of the {camera} camera's frame", said)
        if age < 0:
            raise TrialFault(
                f"the robot says that the frame of the {camera} camera is {age:g} s old; expected 0 or more:"
                " check its clock"
            )
        if age > self.stale_s:
            raise TrialFault(
                f"{camera} camera froze: its frame is {age:.2f} s old, {self.stale_s:g} s is allowed"
            )
        return age


def condition(header: Mapping[str, Any], asked: InitialCondition) -> InitialCondition:
    """Return a condition as the robot's operator measured it.

    Raises:
        TrialFault: a placement is no finite number, or one that was asked for is not there.
    """
    said = _mapping("placements", header.get("placements"))
    if len(said) > _MOST_PLACEMENTS:
        raise TrialFault(f"the robot measured {len(said)} placements, at most {_MOST_PLACEMENTS} expected")
    measured = {name: _number(f"placement {name:.40}", value) for name, value in said.items()}
    missing = sorted(set(asked.placements) - set(measured))
    if missing:
        raise TrialFault(f"the robot was asked to place {_names(missing)} and measured {_names(measured)}")
    return replace(asked, placements=measured)


def verdict(header: Mapping[str, Any]) -> Outcome | None:
    """Return the outcome of a trial, None while it goes on.

    Raises:
        TrialFault: no outcome that there is.
    """
    said = header.get("outcome", ...)
    if said is None:
        return None
    match said:
        case [str(kind), str(detail)] if kind in tuple(OutcomeKind) and len(detail) <= _DETAIL:
            try:
                return Outcome(OutcomeKind(kind), detail)
            except DataError as error:
                raise TrialFault(f"the robot's judge said {said!r:.80}: {error}") from error
    told = "nothing" if said is ... else f"{said!r:.80}"
    raise TrialFault(
        f"the robot's judge said {told}; expected null or one of {_names(OutcomeKind)} with its detail"
    )


def _require_array(what: str, array: Any, dtype: str, shape: tuple[int, ...]) -> None:
    if not isinstance(array, np.ndarray):
        raise TrialFault(f"the {what} is {array!r:.60}, expected an array of {dtype} {list(shape)}")
    if array.dtype != dtype or array.shape != shape:
        raise TrialFault(f"the {what} is {array.dtype} {list(array.shape)}, expected {dtype} {list(shape)}")


def _seconds(said: Any) -> float:
    time_s = _number("the robot's clock", said)
    if time_s < 0:
        raise TrialFault(f"the robot's clock says {time_s:g} s; expected 0 or more")
    return time_s


def _number(what: str, value: Any) -> float:
    try:
        is_number = isinstance(value, int | float | np.floating | np.integer)
        number = float(value) if is_number and not isinstance(value, bool) else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise TrialFault(f"{what} reads {value!r:.40}; expected a finite number")
    return number


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TrialFault(f"the robot says {value!r:.60} for {name}; expected names with numbers")
    return value


def _names(names: Any) -> str:
    return f"{', '.join(map(str, names)) or 'nothing':.200}"

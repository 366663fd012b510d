"""Faults of recordings, as people's recorders and converters make them: one each, on a list of episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap import causes
from simgap.causes import Cause, Family
from simgap.mutants.base import Seam, Strength
from simgap.types import Episode

Array = NDArray[Any]
Change = Callable[[list[Episode], float, int], list[Episode]]
"""Episodes, a value in the mutant's unit, and the joint or camera that was drawn."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordingMutant:
    """A fault of a recording, seen by the data check under one of some codes."""

    id: str
    what: str
    strength: Strength
    breaks: str
    codes: tuple[str, ...]
    """Codes of `simgap data check`, any of which names it."""
    change: Change
    of_cameras: bool = False
    """True where a camera is drawn and not a joint."""
    family: Family = Family.DATA
    seam: Seam = Seam.RECORDING
    expected: Cause = causes.DATA
    found_by: str = "training_set"

    def apply(self, target: Sequence[Episode], strength: float, rng: np.random.Generator) -> list[Episode]:
        """Return the episodes with the fault in them."""
        value = self.strength.of(strength)
        if strength == 0.0:
            return list(target)
        return self.change(list(target), value, _drawn(target, rng, of_cameras=self.of_cameras))


def _drawn(target: Sequence[Episode], rng: np.random.Generator, *, of_cameras: bool) -> int:
    """Return a camera, or one of the joints that move at least a third as much as the one that moves most."""
    if of_cameras:
        return int(rng.integers(len(target[0].images)))
    moved = np.ptp(np.concatenate([e.action for e in target]), axis=0)
    return int(rng.choice(np.flatnonzero(moved >= moved.max() / 3)))


def _column(side: str, change: Callable[[Array, float], Array]) -> Change:
    """Return a change of one joint's column on one side, in every episode."""

    def changed(episodes: list[Episode], value: float, joint: int) -> list[Episode]:
        out = []
        for episode in episodes:
            table = np.array(getattr(episode, side), dtype=np.float64)
            table[:, joint] = change(table[:, joint], value)
            columns: Any = {side: table.astype(np.float32)}
            out.append(replace(episode, **columns))
        return out

    return changed


def _from_half_on(change: Change) -> Change:
    """Return a change that begins with the second half of the episodes."""

    def changed(episodes: list[Episode], value: float, joint: int) -> list[Episode]:
        half = len(episodes) // 2
        return episodes[:half] + change(episodes[half:], value, joint)

    return changed


def _swapped(episodes: list[Episode], value: float, joint: int) -> list[Episode]:
    width = episodes[0].action.shape[1]
    order = np.arange(width)
    other = (joint + 1) % width
    order[[joint, other]] = order[[other, joint]]
    return [replace(e, action=np.ascontiguousarray(e.action[:, order])) for e in episodes]


def _later(episodes: list[Episode], frames: float, _: int) -> list[Episode]:
    by = max(1, round(frames))
    return [_cut(e, by, state=e.state[:-by]) for e in episodes]


def _cut(episode: Episode, by: int, **columns: Array) -> Episode:
    """Drop the first frames of everything but the columns given."""
    kept: dict[str, Any] = {
        "action": episode.action[by:],
        "state": episode.state[by:],
        "time_s": episode.time_s[by:] - episode.time_s[by],
        "images": {c: f[by:] for c, f in episode.images.items()},
        "extras": {n: v[by:] for n, v in episode.extras.items()},
    }
    return replace(episode, **(kept | columns))


def _differences(episodes: list[Episode], share: float, _: int) -> list[Episode]:
    def steps(e: Episode) -> Array:
        return np.diff(e.action, axis=0, prepend=e.state[:1, : e.action.shape[1]])

    return [
        replace(e, action=((1 - share) * e.action + share * steps(e)).astype(np.float32)) for e in episodes
    ]


def _clipped(episodes: list[Episode], share: float, joint: int) -> list[Episode]:
    everything = np.concatenate([e.action[:, joint] for e in episodes])
    top = float(np.quantile(everything, 1.0 - share))
    return _column("action", lambda v, _: np.minimum(v, top))(episodes, share, joint)


def _frozen(episodes: list[Episode], share: float, camera: int) -> list[Episode]:
    return _pictures(camera, lambda f: _held(f, round(share * len(f))))(episodes)


def _held(frames: Array, count: int) -> Array:
    out = frames.copy()
    out[len(frames) - count :] = frames[len(frames) - count - 1 if count < len(frames) else 0]
    return out


def _pictures(camera: int, change: Callable[[Array], Array]) -> Callable[[list[Episode]], list[Episode]]:
    def changed(episodes: list[Episode]) -> list[Episode]:
        out = []
        for e in episodes:
            name = sorted(e.images)[camera]
            out.append(replace(e, images={**e.images, name: change(e.images[name])}))
        return out

    return changed


def _dark(episodes: list[Episode], share: float, camera: int) -> list[Episode]:
    return _pictures(camera, lambda f: (f * (1.0 - share)).astype(np.uint8))(episodes)


def _slow_clock(episodes: list[Episode], share: float, _: int) -> list[Episode]:
    return [replace(e, time_s=e.time_s * (1.0 + share)) for e in episodes]


def _gap(episodes: list[Episode], pause_s: float, _: int) -> list[Episode]:
    def paused(t: Array) -> Array:
        late: Array = t + pause_s * (np.arange(len(t)) >= len(t) // 2)
        return late

    return [replace(e, time_s=paused(e.time_s)) for e in episodes]


def _twins(episodes: list[Episode], share: float, _: int) -> list[Episode]:
    """Replace the last episodes by copies of the first."""
    count = max(1, round(share * len(episodes)))
    return episodes[: len(episodes) - count] + [
        replace(episodes[0], seed=e.seed) for e in episodes[len(episodes) - count :]
    ]


def _stuck(side: str) -> Change:
    def held(v: Array, share: float) -> Array:
        is_held = np.arange(len(v)) >= round((1.0 - share) * len(v))
        return np.where(is_held, v[0], v)

    return _column(side, held)


def _unrelated(episodes: list[Episode], share: float, _: int) -> list[Episode]:
    """Give each episode the states of another, cut to its length: rows of two files that were paired wrongly."""
    out = []
    for k, e in enumerate(episodes):
        other = episodes[(k + 1) % len(episodes)].state
        n = min(len(e), len(other))
        mixed = (1.0 - share) * e.state[:n] + share * other[:n]
        out.append(_shorter(e, n, mixed.astype(np.float32)))
    return out


def _shorter(e: Episode, n: int, state: Array) -> Episode:
    return replace(
        e,
        state=state,
        action=e.action[:n],
        time_s=e.time_s[:n],
        images={c: f[:n] for c, f in e.images.items()},
        extras={k: v[:n] for k, v in e.extras.items()},
    )


_FOLLOWS = "the state of a joint is meant to follow the action of the same name"
_UNITS = "units are those that the convention states"
_CLOCK = "clock"
_RAD = float(np.pi / 180.0)


def _joint(
    id: str, what: str, full: float, unit: str, codes: Sequence[str], change: Change
) -> RecordingMutant:
    return RecordingMutant(
        id=id,
        what=what,
        strength=Strength(full=full, unit=unit),
        breaks=_UNITS if "unit" in codes[0] else _FOLLOWS,
        codes=tuple(codes),
        change=change,
    )


def _both(joint: Mapping[str, Any]) -> list[RecordingMutant]:
    """Return the mutant on the action's and on the state's side."""
    return [
        _joint(
            f"{joint['id']}_{side}",
            joint["what"].format(side=side),
            joint["full"],
            joint["unit"],
            joint["codes"],
            _column(side, joint["change"]),
        )
        for side in ("action", "state")
    ]


MUTANTS: tuple[RecordingMutant, ...] = (
    *_both({
        "id": "sign_of", "what": "one joint of the {side} counts the other way round", "full": 2.0,
        "unit": "times its value, taken off", "codes": ("sign_flip", "scale_mismatch"), "change": lambda v, x: v * (1.0 - x),
    }),
    *_both({
        "id": "gain_of", "what": "one joint of the {side} is scaled", "full": 0.6, "unit": "of its value, added",
        "codes": ("scale_mismatch", "unit_mismatch"), "change": lambda v, x: v * (1.0 + x),
    }),
    *_both({
        "id": "radians_in", "what": "one joint of the {side} is in radians where degrees are stated", "full": 1.0,
        "unit": "of the way to radians", "codes": ("unit_mismatch", "scale_mismatch"),
        "change": lambda v, x: v * (1.0 + x * (_RAD - 1.0)),
    }),
    *_both({
        "id": "zero_of", "what": "one joint of the {side} has another zero", "full": 17.0, "unit": "deg",
        "codes": ("static_offset",), "change": lambda v, x: v + x,
    }),
    _joint("zero_moves_midway", "one joint of the action has another zero from half of the episodes on", 12.0, "deg",
           ("recalibrated_midway", "static_offset"), _from_half_on(_column("action", lambda v, x: v + x))),
    _joint("sign_turns_midway", "one joint of the state turns its sign from half of the episodes on", 2.0,
           "times its value, taken off", ("pairing_changes", "scale_changes", "recalibrated_midway", "sign_flip"),
           _from_half_on(_column("state", lambda v, x: v * (1.0 - x)))),
    _joint("joints_swapped", "two joints of the action stand in each other's place", 1.0, "", ("columns_swapped",), _swapped),
    _joint("state_late", "states come later than they were measured", 11.0, "frames", ("long_lag", "lag"), _later),
    _joint("differences", "actions are steps under the names of positions", 1.0, "of the way to steps",
           ("actions_are_differences",), _differences),
    _joint("command_clipped", "one joint's command is cut off at a value", 0.2, "of its frames", ("saturation",), _clipped),
    _joint("state_stuck", "one joint's state stays where it was", 1.0, "of each episode", ("state_stuck", "state_freezes", "dead_dimensions"),
           _stuck("state")),
    _joint("states_of_another", "states are those of another episode", 1.0, "of the way to the other's", ("state_unrelated", "pairing_shifts"),
           _unrelated),
    RecordingMutant(
        id="clock_slow", what="the clock runs slower than the rate that is stated", strength=Strength(full=0.5, unit="of each step"),
        breaks=_CLOCK, codes=("rate_mismatch",), change=_slow_clock,
    ),
    RecordingMutant(
        id="clock_gap", what="frames are missing in the middle of each episode", strength=Strength(full=2.0, unit="s"),
        breaks=_CLOCK, codes=("clock_gaps", "recording_pauses"), change=_gap,
    ),
    RecordingMutant(
        id="twin_episodes", what="episodes are copies of the first", strength=Strength(full=0.5, unit="of the episodes"),
        breaks="each episode was recorded once", codes=("duplicate_episodes",), change=_twins,
    ),
    RecordingMutant(
        id="camera_frozen", what="a camera repeats a picture while the robot moves", strength=Strength(full=1.0, unit="of each episode"),
        breaks="a picture shows its own moment", codes=("frozen_video", "frozen_segment", "feed_freezes", "nearly_frozen", "images_repeat"),
        change=_frozen, of_cameras=True,
    ),
    RecordingMutant(
        id="camera_dark", what="a camera is dark", strength=Strength(full=1.0, unit="of its light, taken off"),
        breaks="a picture shows its own moment", codes=("black_video", "flat_video"), change=_dark, of_cameras=True,
    ),
)  # fmt: skip

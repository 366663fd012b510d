"""The numeric columns of a whole dataset, read once, and actions paired with states by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.bounds import DATASET_BYTES
from simgap.episodes.formats.layout import INDEX_FEATURES, TIME
from simgap.episodes.reader import Dataset
from simgap.errors import DataError
from simgap.wording import number_of

_SCALARS = (*INDEX_FEATURES, TIME)


def is_gripper_name(name: str) -> bool:
    """Return True for the usual names of jaws and fingers."""
    return re.search(r"gripper|jaw|finger", name.lower()) is not None


_VELOCITY = re.compile(r"(?:^|[._/])(?:q?vel|velocity|velocities|speed|dq)(?=[._/\d\[]|\b|$)", re.IGNORECASE)


def is_velocity_name(name: str) -> bool:
    """Return True for the usual names of speeds: ``x.vel``, ``joint_velocity_3``, ``base_speed``."""
    return _VELOCITY.search(name) is not None


def velocity_stem(name: str) -> str:
    """Return the joint that a velocity is of, as :func:`joint_stem` says it: ``elbow.vel`` is of ``elbow.pos``."""
    return joint_stem(_VELOCITY.sub("", name))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Joint:
    """One dimension that action and state share."""

    name: str
    action: int
    """Position in the action vector."""
    state: int
    """Position in the state vector."""

    @property
    def is_gripper(self) -> bool:
        """True for jaws and fingers, which hold things."""
        return is_gripper_name(self.name)

    @property
    def is_velocity(self) -> bool:
        """True for speeds, which may be another one from one frame to the next."""
        return is_velocity_name(self.name)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Pooled:
    """All numeric columns, episode by episode."""

    dataset: Dataset
    episodes: tuple[Mapping[str, NDArray[Any]], ...]
    """Columns of each episode that has frames, by feature, in the order of the index."""
    indices: tuple[int, ...]
    """Episode index of each entry of ``episodes``."""
    lengths: Mapping[int, int]
    """Frames found of every listed episode, also of the empty ones."""
    action_names: tuple[str, ...]
    state_names: tuple[str, ...]
    joints: tuple[Joint, ...]
    """Dimensions found in both vectors; matched by name, never by index where names exist."""
    matched_by_name: bool

    @property
    def actions(self) -> list[NDArray[np.float64]]:
        """Actions of each episode, ``(T, A)`` float64."""
        return [_matrix(e[self.dataset.action_key]) for e in self.episodes]

    @property
    def states(self) -> list[NDArray[np.float64]]:
        """States of each episode, ``(T, S)`` float64."""
        return [_matrix(e[self.dataset.state_key]) for e in self.episodes]

    def moving_part(self, place: int) -> NDArray[np.float64]:
        """Return what tells that the robot moves in the ``place``-th episode: its state, or its action where nothing is measured."""
        state = self.states[place]
        return state if state.shape[1] else self.actions[place]

    def pooled(self, feature: str) -> NDArray[np.float64]:
        """Return all rows of a feature, ``(N, D)`` float64."""
        return np.concatenate([_matrix(e[feature]) for e in self.episodes])

    def names(self, feature: str) -> tuple[str, ...]:
        """Return the dimension names of a feature."""
        if feature == self.dataset.action_key:
            return self.action_names
        if feature == self.dataset.state_key:
            return self.state_names
        declared = self.dataset.info.features.get(feature)
        width = _matrix(self.episodes[0][feature]).shape[1]
        if declared is not None and len(declared.names) == width:
            return declared.names
        return (feature,) if width == 1 else tuple(f"{feature}[{k}]" for k in range(width))


def pool(dataset: Dataset) -> Pooled:
    """Read the numeric columns of every episode.

    Raises:
        DataError: no frames, an action or state column missing, widths that change, NaN or infinity.
    """
    everything, size = {}, 0
    for entry in dataset.entries:
        if entry.length > 0:
            everything[entry.index] = dataset.columns(entry.index)
            size += sum(values.nbytes for values in everything[entry.index].values())
            if size > DATASET_BYTES:
                raise DataError(
                    f"{dataset.root} holds more than {DATASET_BYTES >> 20} MiB of numbers, more than a check"
                    " holds at once; split the dataset"
                )
    _require_alike(dataset, everything)
    for number, columns in everything.items():
        for key in (dataset.action_key, dataset.state_key):
            if key not in columns:
                raise DataError(
                    f"{dataset.entry(number).data} has no numeric column {key!r}; it has {sorted(columns)};"
                    " repair the file"
                )
    lengths = {
        e.index: len(everything[e.index][dataset.action_key]) if e.index in everything else 0
        for e in dataset.entries
    }
    indices = tuple(k for k, n in lengths.items() if n > 0)
    if not indices:
        raise DataError(f"{dataset.root} holds no frames; there is nothing to check; record episodes first")
    names = []
    for key in (dataset.action_key, dataset.state_key):
        widths = sorted({_matrix(everything[k][key]).shape[1] for k in indices})
        if len(widths) > 1:
            raise DataError(
                f"{dataset.root}: {key} has widths {widths} in different episodes; every episode needs the"
                " same dimensions"
            )
        labels = _names(dataset, key, widths[0])
        for number in indices:
            _require_finite(_matrix(everything[number][key]), f"{dataset.root}: {key}", labels, number)
        names.append(labels)
    joints, by_name = _matched(dataset, *names)
    return Pooled(
        dataset=dataset,
        episodes=tuple(everything[k] for k in indices),
        indices=indices,
        lengths=lengths,
        action_names=names[0],
        state_names=names[1],
        joints=joints,
        matched_by_name=by_name,
    )


def _require_alike(dataset: Dataset, everything: Mapping[int, Mapping[str, NDArray[Any]]]) -> None:
    """Raise unless every episode has the columns of the first, as wide, and one finite number a frame where frames are numbered and timed."""
    first = next(iter(everything.values()), {})
    widths = {
        key: values.shape[1:]
        for key, values in first.items()
        if key not in (dataset.action_key, dataset.state_key)
    }
    for number, columns in everything.items():
        where = f"{dataset.entry(number).data}: episode {number}"
        odd = sorted(set(columns) ^ set(first))
        if odd:
            raise DataError(
                f"{where} and the first episode differ in column {odd[0]!r}, which one of them lacks; every"
                " episode needs the same columns"
            )
        for key, width in widths.items():
            values = columns[key]
            if values.shape[1:] != width or (key in _SCALARS and values.shape[1:] not in ((), (1,))):
                expected = [len(values), *(width if key not in _SCALARS else ())]
                raise DataError(
                    f"{where} has {key!r} of shape {list(values.shape)}, expected {expected}; repair it"
                )
            if key in _SCALARS and not np.isfinite(values).all():
                raise DataError(
                    f"{where} has {key!r} that is no number in"
                    f" {number_of(int((~np.isfinite(values)).sum()), 'frame')};"
                    " expected finite ones; repair it"
                )


def _names(dataset: Dataset, key: str, width: int) -> tuple[str, ...]:
    return dataset.dimension_names(key, width) or tuple(f"{key}[{k}]" for k in range(width))


def _matched(
    dataset: Dataset, action: tuple[str, ...], state: tuple[str, ...]
) -> tuple[tuple[Joint, ...], bool]:
    named = all(
        dataset.dimension_names(key, len(names))
        for key, names in ((dataset.action_key, action), (dataset.state_key, state))
        if names
    )
    if named and len(set(action)) == len(action) and len(set(state)) == len(state):
        pairs = {a: s for a, s in enumerate(_places(action, state)) if s is not None}
        return tuple(Joint(name=action[a], action=a, state=s) for a, s in pairs.items()), True
    if len(action) == len(state):
        return tuple(Joint(name=f"dim_{k}", action=k, state=k) for k in range(len(action))), False
    return (), False


def _places(action: tuple[str, ...], state: tuple[str, ...]) -> list[int | None]:
    """Return the state dimension of each action: of the same name, else of the same joint by names that say whose end it is."""
    exact = {n: k for k, n in enumerate(state)}
    plain = {_plain(n): k for k, n in reversed(list(enumerate(state)))}
    places = [exact.get(n, plain.get(_plain(n))) for n in action]
    left = [k for k in range(len(state)) if k not in places]
    stems = [joint_stem(state[k]) for k in left]
    wanted = [joint_stem(n) for n, place in zip(action, places, strict=True) if place is None]
    by_stem = {
        stem: k
        for stem, k in zip(stems, left, strict=True)
        if stem and stems.count(stem) == 1 and wanted.count(stem) == 1
    }
    return [
        by_stem.get(joint_stem(n)) if place is None else place
        for n, place in zip(action, places, strict=True)
    ]


def _plain(name: str) -> str:
    """Drop the suffix that says position, so that ``elbow.pos`` and ``elbow`` meet and ``elbow.vel`` does not."""
    return re.sub(r"[._](pos|position)$", "", name.lower())


_ENDS = frozenset(
    {
        *("leader", "follower", "master", "slave", "puppet", "main"),
        *("action", "actions", "cmd", "command", "commanded", "target", "goal", "desired"),
        *("state", "states", "obs", "observation", "measured", "actual", "present"),
        *("pos", "position", "qpos"),
    }
)
"""Words that say at which end of the teleoperation, or of the controller, a number was taken, and not which joint it is of."""


def joint_stem(name: str) -> str:
    """Return a name without the words that say whose it is: ``leader_elbow.pos`` and ``follower_elbow.pos`` are one joint."""
    return "_".join(word for word in re.split(r"[._/\s-]+", name.lower()) if word and word not in _ENDS)


def _require_finite(values: NDArray[np.float64], what: str, names: tuple[str, ...], episode: int) -> None:
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        frame, dimension = (int(k) for k in bad[0])
        raise DataError(
            f"{what} is {values[frame, dimension]} at dimension {names[dimension]!r}, episode {episode},"
            f" frame {frame} ({len(bad)} such values in this episode); expected finite numbers; drop or"
            " re-record the episode"
        )


def _matrix(values: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(values, dtype=np.float64).reshape(len(values), -1)

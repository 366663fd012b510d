"""How two datasets differ in what has to agree before they are merged."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from simgap.conventions import Dimension, Unit, VectorSpec
from simgap.episodes.formats.commands import convert_command, say_once
from simgap.episodes.formats.keymap import ACTION_ROLE, STATE_ROLE
from simgap.episodes.formats.words import convention_words
from simgap.episodes.reader import Dataset
from simgap.errors import ConventionError

_CONVERTED = ("unit", "reference", "opens_high", "sign", "zero", "calibrated", "frame")


_FACTORS = {
    "degrees against radians": 180 / np.pi,
    "percent against a fraction": 100.0,
    "millimetres against metres": 1000.0,
}


_FAR = 20.0
"""Ratio of the typical spread of two datasets of one task and robot that no choice of motions explains."""


class Difference(NamedTuple):
    """One way in which two datasets do not agree."""

    what: str
    """A sentence that names both sides."""
    options: tuple[str, ...]
    """Options of ``simgap data convert`` for the side to change; none where only its owner can tell."""
    changes_first: bool = False
    """True where the first dataset is the one to convert."""
    assumed: str = ""
    """Unit that nobody stated and that the command takes for granted."""
    is_left_open: bool = False
    """True where the user decides, by options that the sentence names, and the rest can be converted all the same."""


def require_agreement(ours: Dataset, theirs: Dataset) -> None:
    """Raise unless two datasets may stand in one.

    Raises:
        ConventionError: one line with every difference, both sides named, and the exact command that converts
            one of them.
    """
    found = [*differences(ours, theirs)]
    if not found:
        found = [*_numbers(ours, theirs)]
    if not found:
        return
    said = "; ".join(d.what for d in found[:6]) + (f"; and {len(found) - 6} more" if len(found) > 6 else "")
    stuck = [d for d in found if not d.options and not d.is_left_open]
    is_open = any(d.is_left_open for d in found)
    for changed in (theirs, ours) if not stuck else ():
        options = [o for d in found if d.changes_first == (changed is ours) for o in d.options]
        if options:
            units = dict.fromkeys(d.assumed for d in found if d.assumed)
            if_so = f"; if they are {' and '.join(units)} there too" if units else ""
            raise ConventionError(
                f"{ours.root} and {theirs.root} do not agree: {said}{if_so}; convert:"
                f" {convert_command(changed, *options)}{', with what you decide on the cameras' * is_open}"
            )
    raise ConventionError(
        f"{ours.root} and {theirs.root} do not agree: {said}; no conversion is safe to propose, their owner"
        " has to say what belongs to what"
    )


def differences(ours: Dataset, theirs: Dataset) -> Iterator[Difference]:
    """Yield every difference of convention, rate, cameras and image size, in the order of diagnosis."""
    a, b = str(ours.root), str(theirs.root)
    sides = {
        ACTION_ROLE: (ours.spec.action_spec, theirs.spec.action_spec),
        STATE_ROLE: (ours.spec.state_spec, theirs.spec.state_spec),
    }
    unknown = [role for role, (mine, yours) in sides.items() if len(mine) and _are_unknown(mine, yours)]
    for role, (mine, yours) in sides.items():
        for difference in _vector_differences(role, mine, yours, a, b):
            is_asked = unknown[:1] == [role] and not difference.options  # once, for both vectors
            yield (
                _with_question(difference, "*" if len(unknown) == 2 else f"{role}:*", ours, theirs)
                if is_asked
                else difference
            )
    if abs(ours.info.rate_hz - theirs.info.rate_hz) > 1e-6:
        slow = min(ours.info.rate_hz, theirs.info.rate_hz)
        what = f"{a} runs at {ours.info.rate_hz:g} Hz and {b} at {theirs.info.rate_hz:g} Hz"
        yield Difference(what, ("--resample", f"{slow:g}"), changes_first=ours.info.rate_hz > slow)
    yield from _camera_differences(ours, theirs)


def _are_unknown(mine: VectorSpec, yours: VectorSpec) -> bool:
    return mine.names == yours.names and all(
        d.unit is Unit.UNKNOWN for d in (*mine.dimensions, *yours.dimensions)
    )


def _with_question(difference: Difference, pattern: str, ours: Dataset, theirs: Dataset) -> Difference:
    """Add the commands by which the owner of both says in what they are; degrees stand for what only they know."""
    stated = ("--is", f"{pattern}=deg")
    commands = [
        convert_command(d, *stated) if d.is_ours else say_once(d.root, *stated) for d in (ours, theirs)
    ]
    return difference._replace(
        what=f"{difference.what} (say it for both, here for degrees: {commands[0]}; {commands[1]})"
    )


def _vector_differences(
    role: str, mine: VectorSpec, yours: VectorSpec, a: str, b: str
) -> Iterator[Difference]:
    if mine.names != yours.names:
        yield _names_differ(role, mine.names, yours.names, a, b)
        if set(mine.names) != set(yours.names):
            return
    by_name = {d.name: d for d in yours.dimensions}
    groups: dict[_Contrast, list[str]] = {}
    for dimension in mine.dimensions:
        contrast = _contrast(dimension, by_name[dimension.name])
        if contrast is not None:
            groups.setdefault(contrast, []).append(dimension.name)
    for contrast, names in groups.items():
        who = (
            f"{role}"
            f" {', '.join(map(repr, names[:4]))}{f' and {len(names) - 4} more' if len(names) > 4 else ''}"
            f" {'is' if len(names) == 1 else 'are'}"
        )
        globs = [f"{role}:*"] if len(names) == len(mine.dimensions) else [f"{role}:{n}" for n in names]
        options = (
            tuple(w for glob in globs for w in (contrast.option, f"{glob}={contrast.words}"))
            if contrast.option
            else ()
        )
        yield Difference(
            f"{who} {contrast.mine} in {a} and {contrast.yours} in {b}",
            options,
            changes_first=contrast.changes_first,
            assumed=contrast.assumed,
        )


class _Contrast(NamedTuple):
    """How one dimension differs; dimensions that differ alike are told together."""

    mine: str
    yours: str
    option: str
    """``--is`` or ``--to``; empty where no command can be given."""
    words: str
    assumed: str = ""
    changes_first: bool = False


def _contrast(mine: Dimension, yours: Dimension) -> _Contrast | None:
    units = mine.unit, yours.unit
    if units == (Unit.UNKNOWN, Unit.UNKNOWN):
        return _Contrast("of no stated unit", "neither", "", "")
    if Unit.UNKNOWN in units:
        known = mine if yours.unit is Unit.UNKNOWN else yours
        sides = ["of no stated unit" if u is Unit.UNKNOWN else str(u) for u in units]
        return _Contrast(
            sides[0],
            sides[1],
            "--is",
            str(known.unit),
            str(known.unit),
            mine.unit is Unit.UNKNOWN,
        )
    if mine.is_gripper != yours.is_gripper:
        fields = ("is_gripper", "opens_high") if mine.is_gripper else ("is_gripper",)
        kinds = ["a gripper" if d.is_gripper else "no gripper" for d in (mine, yours)]
        return _Contrast(kinds[0], kinds[1], "--is", convention_words(mine, fields))
    differing = tuple(f for f in _CONVERTED if getattr(mine, f) != getattr(yours, f))
    if not differing:
        return None
    said = [convention_words(d, differing) for d in (mine, yours)]
    # what one side states, the other can be converted to; nothing can be converted to an absence
    wanted = said[0] or said[1]
    return _Contrast(
        said[0] or "plain", said[1] or "plain", "--to" if wanted else "", wanted, changes_first=not said[0]
    )


def _names_differ(role: str, mine: Sequence[str], yours: Sequence[str], a: str, b: str) -> Difference:
    if set(mine) == set(yours):
        what = f"{role} order differs: {a} has {', '.join(mine)} and {b} has {', '.join(yours)}"
        return Difference(what, ("--order", f"{role}:{','.join(mine)}"))
    only, theirs = [n for n in mine if n not in yours], [n for n in yours if n not in mine]
    what = f"{role} names differ: only {a} has {_some(only)}, only {b} has {_some(theirs)}"
    if not only or not theirs:
        return Difference(
            what,
            tuple(word for n in only or theirs for word in ("--drop", f"{role}:{n}")),
            changes_first=not theirs,
        )
    pairs = _paired(only, theirs) or []
    return Difference(what, tuple(word for old, new in pairs for word in ("--rename", f"{role}:{old}={new}")))


def _paired(
    wanted: Sequence[str], there: Sequence[str], *, by_elimination: bool = True
) -> list[tuple[str, str]] | None:
    """Pair names that are near each other, and the one that is left on each side; None where that leaves a choice.

    Of cameras none is paired because it is left: it may well look from somewhere else.
    """
    left, rest, pairs = list(wanted), [], []
    for old in there:
        near = difflib.get_close_matches(old, left, n=1)
        if near:
            left.remove(near[0])
            pairs.append((old, near[0]))
        else:
            rest.append(old)
    if len(left) != len(rest) or len(left) > (1 if by_elimination else 0):
        return None
    return pairs + list(zip(rest, left, strict=True))


def _some(names: Sequence[str]) -> str:
    return (", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")) or "none"


def _camera_differences(ours: Dataset, theirs: Dataset) -> Iterator[Difference]:
    a, b = str(ours.root), str(theirs.root)
    mine, yours = set(ours.spec.cameras), set(theirs.spec.cameras)
    only, others = sorted(mine - yours), sorted(yours - mine)
    pairs = _paired(only, others, by_elimination=False) or []
    renamed = {new: old for old, new in pairs}
    if only or others:
        what = f"cameras differ: only {a} has {_some(only)}, only {b} has {_some(others)}"
        if bool(only) != bool(others):
            spare = others or only
            yield Difference(
                what, tuple(w for name in spare for w in ("--drop-camera", name)), changes_first=not others
            )
        else:
            hint = (
                ""
                if pairs
                else " (two that show the same view get one name by --camera OLD=NEW of `data convert`, one"
                " that the other does not have is left out by --drop-camera NAME)"
            )
            yield Difference(
                what + hint,
                tuple(w for old, new in pairs for w in ("--camera", f"{old}={new}")),
                is_left_open=not pairs,
            )
    for camera in sorted(mine & (yours | set(renamed))):
        (h, w), (other_h, other_w) = (
            ours.frame_shape(camera)[:2],
            theirs.frame_shape(renamed.get(camera, camera))[:2],
        )
        if (h, w) != (other_h, other_w):
            first = h * w > other_h * other_w
            what = f"camera {camera!r} is {h}x{w} in {a} and {other_h}x{other_w} in {b}"
            yield Difference(what, ("--resize", f"{min(h, other_h)}x{min(w, other_w)}"), changes_first=first)
            return


def _numbers(ours: Dataset, theirs: Dataset) -> Iterator[Difference]:
    """Yield what the numbers say against conventions that agree on paper: spreads a known factor apart."""
    for role, key, other in (
        (ACTION_ROLE, ours.action_key, theirs.action_key),
        (STATE_ROLE, ours.state_key, theirs.state_key),
    ):
        spec = ours.spec.action_spec if role == ACTION_ROLE else ours.spec.state_spec
        spreads = [_spread(dataset, column) for dataset, column in ((ours, key), (theirs, other))]
        if not len(spec) or min(len(s) for s in spreads) != len(spec):
            continue
        moving = np.flatnonzero((spreads[0] > 0) & (spreads[1] > 0))
        if len(moving) < 2:
            continue
        typical = float(np.median(spreads[0][moving] / spreads[1][moving]))
        if 1 / _FAR < typical < _FAR:
            continue
        apart = {words: abs(abs(np.log(typical)) - np.log(factor)) for words, factor in _FACTORS.items()}
        words = min(apart, key=lambda w: apart[w])
        hint = f" ({words}?)" if apart[words] < np.log(2.0) else ""
        names = ", ".join(spec.names[k] for k in moving[:4])
        yield Difference(
            f"both state the {role} alike, but {names} spread {typical:.3g} times as far in {ours.root} as in"
            f" {theirs.root}{hint}",
            (),
        )


def _spread(dataset: Dataset, column: str) -> Any:
    """Return the width of the central 98 % of each dimension."""
    parts = [
        np.asarray(dataset.columns(e.index)[column], dtype=np.float64).reshape(e.length, -1)
        for e in dataset.entries
        if e.length > 0
    ]
    rows = np.concatenate(parts) if parts else np.zeros((0, 0))
    low, high = np.quantile(rows, (0.01, 0.99), axis=0) if rows.size else (np.zeros(0), np.zeros(0))
    return high - low

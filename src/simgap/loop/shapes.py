"""What the rows of a run must look like before a page or a plan is made of them: a ledger may come from anywhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from simgap.causes import TABLE, NoRepair
from simgap.diagnosis import Diagnosis
from simgap.envs.factors import FactorSpace
from simgap.errors import DataError
from simgap.loop.spec import TurnSpec
from simgap.targeting import DataPlan

Is = Callable[[Any], bool]


def spec_from(data: Any) -> TurnSpec:
    """Rebuild a spec from :meth:`~simgap.loop.spec.TurnSpec.to_json`.

    Raises:
        DataError: a field is missing, added or of another kind.
    """
    known = {field.name: field.default for field in fields(TurnSpec)}
    if not isinstance(data, Mapping) or set(data) != set(known):
        raise DataError(f"a run's spec has the fields {', '.join(sorted(known))}; this one is {data!r:.120}")
    for name, usual in known.items():
        value = data[name]
        if type(value) is not type(usual) or (isinstance(value, int) and value < 0):
            raise DataError(f"a run's spec has {name} = {value!r:.60}, expected something like {usual!r}")
    return TurnSpec(**data)


def diagnosis_from(data: Any) -> Diagnosis:
    """Rebuild a diagnosis from :meth:`~simgap.diagnosis.Diagnosis.to_json`.

    Raises:
        DataError: names the field that is missing or of another kind.
    """
    problem = next(_diagnosis_faults(data), "")
    if problem:
        raise DataError(f"the diagnosis in the ledger cannot be read: {problem}")
    try:
        return Diagnosis.from_json(data)
    except (KeyError, TypeError, ValueError) as error:  # a word that no enum has, or a field too many
        raise DataError(f"the diagnosis in the ledger cannot be read ({error!r:.120})") from error


def require_factors(space: FactorSpace, diagnosis: Diagnosis | None, plan: DataPlan | None) -> None:
    """Refuse numbers of factors that the env does not have.

    Raises:
        DataError: names them.
    """
    named: set[str] = (
        set() if plan is None else {*plan.changes, *(plan.ranges.ranges if plan.ranges is not None else ())}
    )
    if diagnosis is not None:
        named |= set(diagnosis.parameters.get("fitted", ()))
    unknown = sorted(named - set(space.factors))
    if unknown:
        raise DataError(f"the ledger names factors that the env does not have: {', '.join(unknown)[:120]}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300 and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _or_none(check: Is) -> Is:
    return lambda value: value is None or check(value)


def _are_numbers(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_is_number, value.values()))


def _are_placements(value: Any) -> bool:
    return isinstance(value, list) and all(map(_are_numbers, value))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


_DIAGNOSIS: Mapping[str, Is] = {
    "cause": _is_text,
    "sentence": _is_text,
    "remedy": _is_text,
    "next_command": _is_text,
    "more_trials": _or_none(_is_count),
    "parameters": lambda value: isinstance(value, Mapping),
    "checks": lambda value: isinstance(value, list) and all(isinstance(check, Mapping) for check in value),
}
_CHECK: Mapping[str, Is] = {
    **{name: _is_text for name in ("name", "sentence", "statistic", "unit", "family", "verdict", "cause")},
    "value": _or_none(_is_number),
    "threshold": _or_none(_is_number),
    "n": _or_none(_is_count),
    "more_trials": _or_none(_is_count),
    "assumes": _are_texts,
    "numbers": lambda value: isinstance(value, Mapping),
}
_PARAMETERS: Mapping[str, Is] = {
    "fitted": _are_numbers,
    "broken": _are_numbers,
    "stiffness_ratios": _are_numbers,
    "extra_delay_steps": _is_number,
    "in_use_placements": _are_placements,
}


def _diagnosis_faults(data: Any) -> Iterator[str]:
    yield from _faults(data, _DIAGNOSIS, "")
    for place, check in enumerate(data["checks"]):
        yield from _faults(check, _CHECK, f"check {place + 1}: ")
    parameters = data["parameters"]
    yield from _faults(
        parameters, {name: check for name, check in _PARAMETERS.items() if name in parameters}, "parameters: "
    )
    needed = _needed(data.get("cause"))
    if needed is not None and not parameters.get(needed):
        yield f"parameters: {needed} is missing"


def _faults(data: Any, shapes: Mapping[str, Is], where: str) -> Iterator[str]:
    if not isinstance(data, Mapping):
        yield f"{where}it is {data!r:.60}"
        return
    for name, is_right in shapes.items():
        if name not in data:
            yield f"{where}{name} is missing"
        elif not is_right(data[name]):
            yield f"{where}{name} is {data[name]!r:.60}"


def _needed(cause: Any) -> str | None:
    """Return the number that the repair of a cause reads."""
    repair = TABLE[cause].repair if cause in TABLE else NoRepair()
    return None if isinstance(repair, NoRepair) else repair.numbers

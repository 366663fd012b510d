"""The policy file: a small JSON file that stands for a policy which runs elsewhere, wherever a checkpoint folder is expected.

Its ``kind`` says who speaks (:data:`simgap.policies.bridges.open.KINDS`); every other field is said outright,
and a field that nobody reads is an error: a misspelt map would otherwise be a policy that looks at the wrong
camera.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simgap.conventions import ActionSpec, StateSpec, VectorSpec
from simgap.envs import make_env
from simgap.errors import ConventionError, DataError, UsageError, did_you_mean
from simgap.policies.execution import ExecutorSpec, Mode, parse_executor
from simgap.provenance import read_json

SCHEMA = 1
LIMIT_BYTES = 1 << 20
COMMON = ("schema", "kind", "env", "action_spec", "state_spec", "image_size", "chunk", "executor")
"""Fields of every kind."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyFile:
    """A policy file, and typed access to its fields."""

    path: Path
    kind: str
    data: Mapping[str, Any] = field(repr=False)

    @property
    def folder(self) -> Path:
        """Where relative paths in the file start."""
        return self.path.parent

    def require_known(self, own: Collection[str]) -> None:
        """Raise on a field that neither every kind nor this one has.

        Raises:
            UsageError: names the field and the nearest known one.
        """
        known = {*COMMON, *own}
        for name in self.data:
            if name not in known:
                raise UsageError(
                    f"{self.path}: unknown field {name!r:.80} for kind {self.kind!r};"
                    f" {did_you_mean(name, known)}"
                )

    def text(self, name: str, default: str | None = None) -> str:
        """Return a field of text; without a default it has to be there.

        Raises:
            UsageError: missing, empty or no text.
        """
        value = self.data.get(name, default)
        if not isinstance(value, str) or (not value and default is None):
            raise self._wrong(name, "text", value)
        return value

    def flag(self, name: str, default: bool) -> bool:
        """Return a field that is true or false.

        Raises:
            UsageError: neither.
        """
        value = self.data.get(name, default)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false", value)
        return value

    def whole(self, name: str, default: int | None = None, *, low: int = 0, high: int = 1 << 31) -> int:
        """Return a whole number within bounds; without a default it has to be there.

        Raises:
            UsageError: missing, no whole number, or out of bounds.
        """
        value = self.data.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self._wrong(name, f"a whole number from {low} to {high}", value)
        return value

    def seconds(self, name: str, default: float) -> float:
        """Return a duration above 0, at most an hour.

        Raises:
            UsageError: no such number.
        """
        value = self.data.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value <= 3600.0:
            raise self._wrong(name, "seconds above 0, at most 3600", value)
        return float(value)

    def mapping(self, name: str) -> Mapping[str, Any]:
        """Return a field that is an object with at least one entry.

        Raises:
            UsageError: missing, empty or no object.
        """
        value = self.data.get(name)
        if not isinstance(value, dict) or not value:
            raise self._wrong(
                name, 'an object with at least one entry, such as {"front": "observation/image"}', value
            )
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """Return a list of texts; none where the field is absent.

        Raises:
            UsageError: no list of texts.
        """
        value = self.data.get(name, [])
        if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
            raise self._wrong(name, "a list of names", value)
        return tuple(value)

    def local_path(self, name: str) -> Path:
        """Return a path, relative ones from the folder of the file.

        Raises:
            UsageError: missing or no text.
        """
        text = self.text(name)
        if "\0" in text:
            raise self._wrong(name, "a path", text)
        try:
            return self.folder / Path(text).expanduser()
        except RuntimeError as error:  # ~somebody who is not here
            raise UsageError(
                f"{self.path}: field {name!r} is {text!r:.80}, whose home folder is not known; write the"
                " path out"
            ) from error

    def interface(self, cameras: tuple[str, ...]) -> Interface:
        """Return the conventions of both sides.

        Args:
            cameras: our names of the cameras that the policy is shown.

        Raises:
            UsageError: a field is missing or of the wrong kind, or the env is unknown.
            ConventionError: a convention that cannot be read.
        """
        env = self.text("env", "")
        size, chunk = self.whole("image_size", low=8, high=4096), self.whole("chunk", low=1, high=10_000)
        made = make_env(env, image_size=size, render=False, by=self.path) if env else None
        if made is not None:
            absent = [c for c in cameras if c not in made.cameras]
            if absent:
                raise UsageError(
                    f"{self.path}: env {env} has no camera {absent[0]!r};"
                    f" {did_you_mean(absent[0], made.cameras)}"
                )
        their_action, their_state = (
            self._spec(name, None if made is None else getattr(made, name))
            for name in ("action_spec", "state_spec")
        )
        default = str(ExecutorSpec(mode=Mode.WHOLE_CHUNK if chunk > 1 else Mode.LATEST))
        return Interface(
            action_spec=their_action if made is None else made.action_spec,
            state_spec=their_state if made is None else made.state_spec,
            their_action_spec=their_action,
            their_state_spec=their_state,
            cameras=cameras,
            image_size=size,
            chunk=chunk,
            executor=parse_executor(self.text("executor", default)),
            envs=() if made is None else (made.name,),
        )

    def _spec(self, name: str, default: VectorSpec | None) -> VectorSpec:
        value = self.data.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, dict):
            raise self._wrong(
                name,
                "a convention (rate_hz and dimensions), or the field env with a name whose conventions the"
                " policy speaks",
                value,
            )
        try:
            found = VectorSpec.from_json(value)
        except ConventionError as error:
            raise ConventionError(f"{self.path}: {name}: {error}") from error
        if not (math.isfinite(found.rate_hz) and found.rate_hz > 0):
            raise ConventionError(
                f"{self.path}: {name} has a rate of {found.rate_hz} Hz; expected a finite number above 0"
            )
        if not len(found) or len(set(found.names)) < len(found):
            raise ConventionError(
                f"{self.path}: {name} has dimensions {list(found.names)!s:.200}; expected at least one, and"
                " each name once"
            )
        for d in found.dimensions:
            if not (math.isfinite(d.low) and math.isfinite(d.high) and d.low < d.high):
                raise ConventionError(
                    f"{self.path}: {name}: {d.name!r:.80} goes from {d.low} to {d.high}; expected finite"
                    " limits, the lower first"
                )
        return found

    def _wrong(self, name: str, expected: str, value: Any) -> UsageError:
        given = "is missing" if name not in self.data else f"is {value!r:.80}"
        return UsageError(f"{self.path}: field {name!r} {given}; expected {expected}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Interface:
    """What a policy that runs elsewhere sees and sends, in the terms of a rollout and in its own."""

    action_spec: ActionSpec
    """What a rollout gets: that of ``env`` where the file names one."""
    state_spec: StateSpec
    their_action_spec: ActionSpec
    """What the policy's numbers mean, in its order."""
    their_state_spec: StateSpec
    cameras: tuple[str, ...]
    image_size: int
    chunk: int
    executor: ExecutorSpec
    """Recommended: what the file says, else whole chunks."""
    envs: tuple[str, ...]
    """Envs the policy may act in; empty for any whose conventions fit."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "action_spec": self.action_spec.to_json(),
            "state_spec": self.state_spec.to_json(),
            "their_action_spec": self.their_action_spec.to_json(),
            "their_state_spec": self.their_state_spec.to_json(),
            "cameras": list(self.cameras),
            "image_size": self.image_size,
            "chunk": self.chunk,
            "executor": str(self.executor),
            "envs": list(self.envs),
        }


def is_policy_file(path: Path) -> bool:
    """Return whether a path stands for a policy elsewhere: a JSON file where a checkpoint would be a folder."""
    return path.suffix == ".json" and not path.is_dir()


def read_policy_file(path: Path, kinds: Collection[str]) -> PolicyFile:
    """Read a policy file.

    Raises:
        DataError: missing, too large or no JSON.
        UsageError: no policy file, another schema, or an unknown kind.
    """
    data = read_json(path, limit_bytes=LIMIT_BYTES, unique_keys=True)
    if not isinstance(data, dict) or "kind" not in data:
        raise DataError(
            f'{path} is no policy file; expected a JSON object such as {{"kind": "openpi", "url":'
            ' "ws://localhost:8000"}'
        )
    if data.get("schema", SCHEMA) != SCHEMA:
        raise UsageError(f"{path} has schema {data['schema']!r:.40}, this version reads {SCHEMA}")
    kind = str(data["kind"])
    if kind not in kinds:
        raise UsageError(f"{path}: unknown kind {kind!r:.40}; {did_you_mean(kind, kinds)}")
    return PolicyFile(path=path, kind=kind, data=data)

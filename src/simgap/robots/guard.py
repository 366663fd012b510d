"""What stands between a trial and any robot: readings are checked, commands are finite, and it stops when commands do.

A trial that is driven through a guard never sees a frame that is too old, never sends a number that is not
finite, and never leaves a robot moving: it stops when the trial ends, whichever way it ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from simgap.errors import MachineError, TrialFault
from simgap.robots.base import AppliedAction, InitialCondition, Robot, RobotObservation
from simgap.robots.readings import STALE_S, Contract
from simgap.types import Outcome

WATCHDOG_S = 0.5
"""A robot whose time goes on is stopped when no command came for so long."""
ALIKE = 1e-4
"""Share of a dimension's range within which what was applied is what was commanded."""


class Guard:
    """A robot that can be trusted for the length of one trial; left at its end, which stops it."""

    def __init__(self, robot: Robot, *, stale_s: float = STALE_S, watchdog_s: float = WATCHDOG_S) -> None:
        """Stand before a robot.

        Args:
            robot: anything that can be driven.
            stale_s: age beyond which a frame is no observation.
            watchdog_s: time without a command after which a live robot is stopped; two control periods where
                those are longer.
        """
        self._robot, self._contract = robot, Contract.of(robot, stale_s=stale_s)
        spec = robot.action_spec
        span = np.asarray(spec.high, float) - np.asarray(spec.low, float)
        self._alike = ALIKE * np.where(np.isfinite(span), span, 1.0)
        self._clock_s = 0.0
        limit_s = max(watchdog_s, 2.0 / spec.rate_hz)
        self._watchdog = Watchdog(robot.stop, limit_s) if robot.is_live else None

    def __enter__(self) -> Self:
        """Begin a trial."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the robot: after the last command as after an error or Ctrl-C.

        Raises:
            MachineError: it cannot be stopped, which ends the whole set.
        """
        try:
            self._robot.stop()
        except OSError as failed:
            raise MachineError(
                f"the robot cannot be stopped ({failed}): switch it off, then repair it"
            ) from failed
        finally:
            if self._watchdog is not None:
                self._watchdog.close()

    @property
    def judge(self) -> str:
        """Who says how a trial ended."""
        return self._robot.judge

    def reset(self, condition: InitialCondition) -> InitialCondition:
        """Bring the condition about and return it as measured.

        Raises:
            TrialFault: it could not be brought about.
        """
        self._clock_s = 0.0
        with _driver("setting it up"):
            measured = self._robot.reset(condition)
        return replace(measured, seed=condition.seed, id=condition.id)

    def observe(self) -> RobotObservation:
        """Read every sensor once.

        Raises:
            TrialFault: a reading is stale, missing or not what a robot can say.
        """
        self._require_commanded()
        with _driver("reading its sensors"):
            said = self._robot.observe()
        seen = self._contract.seen(said.images, said.state, said.frame_age_s, said.time_s)
        self._require_onward(seen.time_s)
        return seen

    def act(self, action: NDArray[np.float32]) -> AppliedAction:
        """Send one command; what was applied and differs from it counts as clipped, whatever the robot says.

        Raises:
            TrialFault: the command is not finite, which is not sent; or the robot says nothing sensible of it.
        """
        if not np.isfinite(action).all():
            raise TrialFault("the policy sent NaN or infinity; nothing was sent to the robot")
        self._require_commanded()
        if self._watchdog is not None:
            self._watchdog.feed()
        with _driver("sending a command"):
            said = self._robot.act(action)
        if self._watchdog is not None:
            self._watchdog.feed()
        self._require_commanded()
        applied = np.asarray(said.action, dtype=float).tolist()
        did = self._contract.did(applied, bool(said.clipped), said.time_s)
        self._require_onward(did.time_s)
        differs = bool((np.abs(did.action - action) > self._alike).any())
        return replace(did, clipped=did.clipped or differs)

    def verdict(self) -> Outcome | None:
        """Return the judge's outcome once the trial is over."""
        with _driver("asking its judge"):
            return self._robot.verdict()

    def stop(self) -> None:
        """Stand still now, and watch for commands no longer."""
        if self._watchdog is not None:
            self._watchdog.rest()
        self._robot.stop()

    def _require_commanded(self) -> None:
        if self._watchdog is not None and (barked := self._watchdog.barked):
            raise TrialFault(barked)

    def _require_onward(self, time_s: float) -> None:
        if time_s < self._clock_s:
            raise TrialFault(
                f"the robot's clock went back from {self._clock_s:g} s to {time_s:g} s within a trial"
            )
        self._clock_s = time_s


@contextmanager
def _driver(doing: str) -> Iterator[None]:
    """Take what a driver raises when a cable or a port fails for what it is: a trial that broke.

    Raises:
        TrialFault: names what was being done.
    """
    try:
        yield
    except OSError as error:
        raise TrialFault(f"{doing}, the robot's driver failed: {type(error).__name__}: {error}") from error


class Watchdog:
    """A thread that stops a robot once it has been fed and then starves."""

    def __init__(self, stop: Callable[[], Any], limit_s: float) -> None:
        """Watch nothing yet: the first command starts it."""
        self._stop, self._limit_s = stop, limit_s
        self._changed = threading.Condition()
        self._due: float | None = None
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self.barked = ""
        """What happened, once it stopped the robot."""

    def feed(self) -> None:
        """Say that a command is on its way, or has arrived."""
        with self._changed:
            self._due = time.monotonic() + self._limit_s
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._watch, name="robot watchdog", daemon=True)
                self._thread.start()
            self._changed.notify()

    def rest(self) -> None:
        """Expect no command until the next one."""
        with self._changed:
            self._due = None
            self._changed.notify()

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._is_closed, self._due = True, None
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(2 * self._limit_s)

    def _watch(self) -> None:
        while True:
            with self._changed:
                if self._is_closed:
                    return
                left = None if self._due is None else self._due - time.monotonic()
                if left is None or left > 0:
                    self._changed.wait(left)
                    continue
                self._due = None
                self.barked = f"no command came for {self._limit_s:g} s, so the watchdog stopped the robot"
            try:
                self._stop()
            except Exception as error:
                self.barked += f", which failed: {error}; switch it off"

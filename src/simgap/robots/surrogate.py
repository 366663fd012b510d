"""The driver's side of a surrogate robot: the robot interface over a pipe to the sealed process.

Nothing that the process says is believed unread (:mod:`simgap.robots.readings`), and no wait is without an
end. Once an answer is malformed, late, or that of another question, the process is ended: what comes after it
means nothing. The trial in which that happens is void; the next one starts a new process, which must show the
same seal.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.compute.child import Child, Ending, UnaskedError, one_line, parent_to_die_with
from simgap.compute.machine import child_environment
from simgap.envs import make_env
from simgap.errors import (
    ConventionError,
    DataError,
    MachineError,
    SealError,
    SimgapError,
    TrialFault,
    UsageError,
)
from simgap.mutants.gaps import Gap, gap_from_json, nonce_of, parse_gap, require_possible, seal_of
from simgap.robots import readings
from simgap.robots.base import SIMULATOR, AppliedAction, InitialCondition, RobotObservation
from simgap.robots.readings import STALE_S, Contract
from simgap.robots.wire import PREFIX, lengths, pack, unpack
from simgap.trust import current
from simgap.types import EvidenceKind, Outcome

__all__ = ["STALE_S", "SurrogateRobot"]

START_S = 120.0
"""For imports and a world."""
REPLY_S = 60.0
"""For one answer; a step takes milliseconds and a reset a second."""
_KINDS: Mapping[str, type[SimgapError]] = {
    k.__name__: k for k in (UsageError, DataError, ConventionError, MachineError)
}


class SurrogateRobot:
    """A robot that is a process with a hidden gap. Everything it says is evidence of kind ``surrogate``."""

    evidence = EvidenceKind.SURROGATE
    is_live = False
    """Its time goes on only while it is driven."""
    judge = SIMULATOR

    def __init__(
        self,
        *,
        env: str,
        image_size: int,
        seed: int,
        gap: str = "random",
        start_timeout_s: float = START_S,
        reply_timeout_s: float = REPLY_S,
    ) -> None:
        """Start the process.

        Args:
            env: task it stands in.
            image_size: frame side in px.
            seed: decides the gap.
            gap: ``random``, ``none`` or a kind in :data:`~simgap.mutants.gaps.GAPS`.
            start_timeout_s: for the process to start.
            reply_timeout_s: for one answer.

        Raises:
            UsageError: unknown env or gap, or a gap that this env cannot have.
            MachineError: the process does not start.
        """
        task = make_env(env, image_size=image_size, render=False)
        require_possible(parse_gap(gap), task)
        self.action_spec, self.state_spec, self.cameras = task.action_spec, task.state_spec, task.cameras
        self.image_size, self._stamp = image_size, task.stamp_fields()
        self._seed, self._start_s, self._reply_s = seed, start_timeout_s, reply_timeout_s
        self._contract = Contract(
            cameras=task.cameras,
            image_size=image_size,
            state=task.state_spec.names,
            action=task.action_spec.names,
        )
        asked = {
            "--env": env,
            "--image-size": str(image_size),
            "--seed": str(seed),
            "--gap": gap,
            "--trust": json.dumps(current().to_json()),
        }
        self._command = [
            sys.executable,
            "-m",
            "simgap.robots.surrogate_process",
            *(w for pair in asked.items() for w in pair),
        ]
        self._questions, self._clock_s, self._has_moved, self._fault = 0, 0.0, False, ""
        self._child = self._started()
        self.seal = self._greeting()
        """SHA-256 commitment to the hidden gap."""

    def reset(self, condition: InitialCondition) -> InitialCondition:
        """Go home and place the objects; see :class:`~simgap.robots.base.Robot`."""
        self._restart_after_fault()
        asked = {"verb": "reset", "seed": condition.draws, "placements": dict(condition.placements)}
        header, _ = self._ask(asked)
        self._clock_s = 0.0
        return readings.condition(header, condition)

    def observe(self) -> RobotObservation:
        """Read every sensor.

        Raises:
            TrialFault: a frame is stale, or a reading is not what a robot can say.
        """
        seen = self._contract.observation(*self._ask({"verb": "observe"}))
        self._require_onward(seen.time_s)
        return seen

    def act(self, action: NDArray[np.float32]) -> AppliedAction:
        """Send one command.

        Raises:
            TrialFault: the command is not finite, or the answer is not what a robot can say.
        """
        if not np.isfinite(action).all():
            raise TrialFault("the policy sent NaN or infinity; nothing was sent to the robot")
        header, _ = self._ask({"verb": "act"}, {"action": np.asarray(action, dtype=np.float32)})
        applied = self._contract.applied(header)
        self._require_onward(applied.time_s)
        self._has_moved = True
        return applied

    def verdict(self) -> Outcome | None:
        """Return the outcome once the trial is over.

        Raises:
            TrialFault: no outcome that there is.
        """
        return readings.verdict(self._ask({"verb": "verdict"})[0])

    def open_seal(self, diagnosis_hash: str) -> Gap:
        """Show the hidden gap, against the ledger hash of a diagnosis that is already written.

        The process checks that it is given a hash, not that a ledger holds it: the loop hands over the hash
        of the row it has just written, and the ledger refuses a ``seal_opened`` row without a finding before
        it.

        Raises:
            SealError: what is given is no hash, or what is shown does not match the commitment.
        """
        self._restart_after_fault()
        header, _ = self._ask({"verb": "open", "diagnosis": diagnosis_hash})
        if "refused" in header:
            raise SealError(one_line(str(header["refused"])))
        try:
            gap = gap_from_json(header["gap"])
            is_sealed = header["nonce"] == nonce_of(self._seed) and seal_of(gap, self._seed) == self.seal
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
            raise SealError(
                "what the surrogate shows as its gap cannot be read; it is not the one that was sealed"
            ) from error
        if not is_sealed:
            raise SealError(
                f"the gap shown does not match the commitment {self.seal[:12]}; the surrogate is not the one"
                " that was sealed"
            )
        return gap

    def stop(self) -> None:
        """Do nothing: it stands still between commands."""

    def stamp_fields(self) -> dict[str, Any]:
        """Return what the surrogate shares with the simulator, and its seal."""
        return {**self._stamp, "robot": "surrogate", "seal": self.seal}

    def close(self) -> None:
        """End the process."""
        if self._child.is_open:
            self._child.close_input()
            self._child.wait(5.0)
        self._child.close()

    def _started(self) -> Child:
        environment = {**os.environ, **child_environment()}
        try:
            return Child([*self._command, "--parent", str(parent_to_die_with())], env=environment)
        except OSError as error:
            raise MachineError(
                f"the surrogate process cannot be started ({error.strerror}); see whether {sys.executable}"
                " runs"
            ) from error

    def _greeting(self) -> str:
        """Return the seal that a new process begins with."""
        try:
            header, _ = self._received(time.monotonic() + self._start_s, self._start_s)
            self._raise_told(header)
        except TrialFault as error:
            self._child.close()
            raise MachineError(f"the surrogate process did not start: {error}") from error
        except BaseException:
            self._child.close()
            raise
        seal = header.get("seal")
        if not isinstance(seal, str) or len(seal) != 64:
            self._child.close()
            raise MachineError(
                f"the surrogate process began with {seal!r:.40}, not with its seal; is {sys.executable} the"
                " Python of this simgap?"
            )
        return seal

    def _restart_after_fault(self) -> None:
        """Start anew where a trial broke; a process that never moved is not tried again."""
        if self._fault and self._has_moved:
            self._restart()

    def _restart(self) -> None:
        self._child = self._started()
        if self._greeting() != self.seal:
            self._child.close()
            raise SealError(
                f"the surrogate came back with another seal than {self.seal[:12]}; it is not the one that was"
                " sealed"
            )
        self._has_moved, self._fault = False, ""

    def _ask(
        self, header: dict[str, Any], arrays: dict[str, NDArray[Any]] | None = None
    ) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        if self._fault or not self._child.is_open:
            raise MachineError(
                f"the surrogate process has ended ({self._fault or 'it was closed'}); open the robot again"
            )
        self._questions += 1
        number, deadline = self._questions, time.monotonic() + self._reply_s
        try:
            self._child.require_silence()
            self._child.write(pack({**header, "id": number}, arrays), deadline)
            answer, parts = self._received(deadline, self._reply_s)
            if answer.pop("id", None) != number:
                raise TrialFault(
                    f"the surrogate answered another question than {header['verb']!r}, which was asked"
                )
        except UnaskedError:
            raise self._lost(
                TrialFault(
                    "the surrogate spoke when nothing was asked; what it says cannot be told apart any more"
                )
            ) from None
        except (EOFError, BrokenPipeError, ConnectionError) as error:
            raise self._lost(MachineError(_death(self._child.ending()))) from error
        except TrialFault as fault:
            raise self._lost(fault) from fault.__cause__
        except BaseException:
            self._child.close()  # half a message is under way
            raise
        self._raise_told(answer)
        return answer, parts

    def _received(self, deadline: float, allowed_s: float) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the next message.

        Raises:
            TrialFault: none in time, or one that cannot be read.
            MachineError: the process died.
        """
        try:
            text, body = lengths(self._child.read(PREFIX.size, deadline))
            return unpack(self._child.read(text, deadline), self._child.read(body, deadline))
        except TimeoutError:
            raise TrialFault(f"the surrogate process gave no answer within {allowed_s:g} s") from None
        except EOFError as error:
            raise self._lost(MachineError(_death(self._child.ending()))) from error

    def _lost(self, fault: SimgapError) -> SimgapError:
        self._fault = str(fault)
        self._child.close()
        return fault

    def _require_onward(self, time_s: float) -> None:
        if time_s < self._clock_s:
            raise TrialFault(
                f"the robot's clock went back from {self._clock_s:g} s to {time_s:g} s within a trial"
            )
        self._clock_s = time_s

    @staticmethod
    def _raise_told(header: Mapping[str, Any]) -> None:
        """Raise what the process could not do, as the error it was there; a defect of a world breaks the trial."""
        if "error" not in header:
            return
        kind, text = header.get("kind"), one_line(str(header["error"]))
        known = _KINDS.get(kind) if isinstance(kind, str) else None
        raise known(text) if known is not None else TrialFault(f"the surrogate failed: {text}")


def _death(ending: Ending) -> str:
    """Say how the process ended, and what helps: the same again only where somebody else ended it."""
    if ending.is_from_outside:
        return f"the surrogate process died: it {ending}; run the same command again, it resumes"
    return (
        f"the surrogate process died: it {ending}; the same command would end the same way until that is"
        " mended"
    )

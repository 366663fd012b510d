"""The driver's side of a surrogate robot: the robot interface over a pipe to the sealed process."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from simgap.envs import make_env
from simgap.errors import MachineError, SealError, TrialFault
from simgap.machine import worker_environment
from simgap.robots.base import AppliedAction, InitialCondition, RobotObservation
from simgap.robots.gaps import Gap, gap_from_json, nonce_of, parse_gap, seal_of
from simgap.robots.wire import receive, send
from simgap.types import EvidenceKind, Outcome, OutcomeKind

STALE_S = 0.25
"""A frame older than this is no observation."""


class SurrogateRobot:
    """A robot that is a process with a hidden gap. Everything it says is evidence of kind ``surrogate``."""

    evidence = EvidenceKind.SURROGATE

    def __init__(self, *, env: str, image_size: int, seed: int, gap: str = "random") -> None:
        """Start the process.

        Args:
            env: task it stands in.
            image_size: frame side in px.
            seed: decides the gap.
            gap: ``random``, ``none`` or a kind of :class:`~simgap.robots.gaps.GapKind`.

        Raises:
            UsageError: unknown env or gap.
            MachineError: the process does not start.
        """
        parse_gap(gap)
        task = make_env(env, image_size=image_size, render=False)
        self.action_spec, self.state_spec, self.cameras = task.action_spec, task.state_spec, task.cameras
        self._stamp = task.stamp_fields()
        self._seed = seed
        self._process = subprocess.Popen(
            [sys.executable, "-m", "simgap.robots.surrogate_process", "--env", env, "--image-size", str(image_size), "--seed", str(seed), "--gap", gap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **worker_environment(1)},
            process_group=0,  # Ctrl-C reaches the driver only; the process ends with its pipe
        )
        self._to = cast("BinaryIO", self._process.stdin)
        self._from = cast("BinaryIO", self._process.stdout)
        try:
            header, _ = receive(self._from)
        except EOFError as error:
            raise MachineError(f"the surrogate process ended with code {self._process.wait()} before it answered; its message is above") from error
        self.seal = str(header["seal"])
        """SHA-256 commitment to the hidden gap."""

    def reset(self, condition: InitialCondition) -> InitialCondition:
        """Go home and place the objects; see :class:`~simgap.robots.base.Robot`."""
        header, _ = self._ask({"verb": "reset", "seed": condition.seed, "placements": dict(condition.placements)})
        return InitialCondition(seed=condition.seed, placements={str(k): float(v) for k, v in header["placements"].items()})

    def observe(self) -> RobotObservation:
        """Read every sensor.

        Raises:
            TrialFault: a frame is stale.
        """
        header, arrays = self._ask({"verb": "observe"})
        ages = {str(k): float(v) for k, v in header["frame_age_s"].items()}
        for camera, age in ages.items():
            if age > STALE_S:
                raise TrialFault(f"{camera} camera froze: its frame is {age:.2f} s old, {STALE_S} s is allowed")
        return RobotObservation(images={c: arrays[c] for c in self.cameras}, state=arrays["state"], time_s=float(header["time_s"]), frame_age_s=ages)

    def act(self, action: NDArray[np.float32]) -> AppliedAction:
        """Send one command.

        Raises:
            TrialFault: the command is not finite.
        """
        if not np.isfinite(action).all():
            raise TrialFault("the policy sent NaN or infinity; nothing was sent to the robot")
        header, _ = self._ask({"verb": "act"}, {"action": np.asarray(action, dtype=np.float32)})
        return AppliedAction(action=np.asarray(header["applied"], dtype=np.float32), clipped=bool(header["clipped"]), time_s=float(header["time_s"]))

    def verdict(self) -> Outcome | None:
        """Return the outcome once the trial is over."""
        header, _ = self._ask({"verb": "verdict"})
        return None if header["outcome"] is None else Outcome(OutcomeKind(header["outcome"][0]), str(header["outcome"][1]))

    def open_seal(self, diagnosis_hash: str) -> Gap:
        """Show the hidden gap, against the ledger hash of a diagnosis that is already written.

        The process checks that it is given a hash, not that a ledger holds it: the loop hands over the hash of the row it has just
        written, and the ledger refuses a ``seal_opened`` row without a finding before it.

        Raises:
            SealError: what is given is no hash, or what is shown does not match the commitment.
        """
        header, _ = self._ask({"verb": "open", "diagnosis": diagnosis_hash})
        if "error" in header:
            raise SealError(str(header["error"]))
        gap = gap_from_json(header["gap"])
        if header["nonce"] != nonce_of(self._seed) or seal_of(gap, self._seed) != self.seal:
            raise SealError(f"the gap shown does not match the commitment {self.seal[:12]}; the surrogate is not the one that was sealed")
        return gap

    def stamp_fields(self) -> dict[str, Any]:
        """Return what the surrogate shares with the simulator, and its seal."""
        return {**self._stamp, "robot": "surrogate", "seal": self.seal}

    def close(self) -> None:
        """End the process."""
        if self._process.poll() is None:
            self._to.close()
            try:
                self._process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._from.close()

    def _ask(self, header: dict[str, Any], arrays: dict[str, NDArray[Any]] | None = None) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        try:
            send(self._to, header, arrays)
            return receive(self._from)
        except (EOFError, BrokenPipeError) as error:
            raise MachineError(f"the surrogate process died (exit code {self._process.poll()}); run the same command again, it resumes") from error

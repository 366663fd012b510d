"""The sealed process behind a surrogate robot: ``python -m simgap.robots.surrogate_process``.

It draws its gap from a seed, answers only what a robot would, and shows the gap only to a caller that
presents a hash, as the loop does with that of the diagnosis it has written to the ledger. The seal keeps an
honest user from peeking; it is no defence against reading this code, or against a caller that makes a hash
up.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.compute.child import die_with
from simgap.envs import make_env
from simgap.envs.factors import FactorRanges, FactorValues
from simgap.errors import SimgapError
from simgap.mutants.gaps import draw_gap, nonce_of, parse_gap, seal_of
from simgap.provenance import child_rng
from simgap.robots.wire import receive, send
from simgap.trust import Trust, granted

OPERATOR_ERROR_M = 0.001
"""Standard deviation of where an operator puts an object, and of where it is measured to be."""
FRAME_LAG_S = 0.02
DROPOUT_CHANCE = 0.01
"""Chance that a camera freezes in a trial, as webcams do."""


class SurrogateWorld:
    """The hidden robot: the task's env with everyday tolerances and one gap."""

    def __init__(self, env: str, image_size: int, seed: int, gap: str) -> None:
        """Draw the gap and build the world."""
        self.env = make_env(env, image_size=image_size)
        self.gap = draw_gap(seed, parse_gap(gap), self.env)
        self.seed = seed
        self.multiplier = np.ones(len(self.env.action_spec), dtype=np.float64)
        if self.gap.joint:
            joints = [name.split(".")[0] for name in self.env.action_spec.names]
            self.multiplier[joints.index(self.gap.joint)] = self.gap.multiplier
        self._obs: dict[str, NDArray[Any]] = {}
        self._age = dict.fromkeys(self.env.cameras, FRAME_LAG_S)
        self._frozen_from: int | None = None
        self._steps = 0
        self.outcome: Any = None

    def reset(self, seed: int, placements: dict[str, float]) -> dict[str, float]:
        """Place the objects, where the operator was told or where this site has them, and return them as measured."""
        rng = child_rng(seed, "surrogate", self.seed)
        site = self.env.presets["nominal"]
        values = self.env.factor_space.sample(
            FactorRanges({**site.ranges, **self.gap.placements}), child_rng(seed, "site")
        )
        values |= placements
        values |= self._tolerances(rng)
        for name, hidden in self.gap.factors.items():
            factor = self.env.factor_space.factors[name]
            everyday = values[name] - factor.nominal if name not in ("action_latency_steps",) else 0.0
            values[name] = float(np.clip(hidden + everyday, factor.low, factor.high))
        measured = {name: values[name] for name in self.env.placement_factors if name in values}
        for name in self._placed_by_hand():
            factor = self.env.factor_space.factors[name]
            values[name] = float(
                np.clip(values[name] + rng.normal(0, OPERATOR_ERROR_M), factor.low, factor.high)
            )
        self._obs, _ = self.env.reset(seed=seed, options={"factors": values})
        self._frozen_from = int(rng.integers(5, 30)) if rng.random() < DROPOUT_CHANCE else None
        self._steps, self.outcome = 0, None
        self._age = dict.fromkeys(self.env.cameras, FRAME_LAG_S)
        return measured

    def observe(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return sensor readings with clock and frame ages."""
        rate = self.env.action_spec.rate_hz
        return {"time_s": self._steps / rate, "frame_age_s": self._age}, dict(self._obs)

    def act(self, command: NDArray[np.float32]) -> dict[str, Any]:
        """Pass the command through the hidden convention, clip it where the servo clips, and wait one period."""
        spec = self.env.action_spec
        to_servo = np.clip(command * self.multiplier, spec.low, spec.high)
        applied = np.where(to_servo == command * self.multiplier, command, to_servo / self.multiplier)
        before = self._obs
        if self.outcome is None:
            self._obs, _, _, _, info = self.env.step(to_servo.astype(np.float32))
            self._steps += 1
            self.outcome = info.get("outcome")
        if self._frozen_from is not None and self._steps >= self._frozen_from:
            first = self.env.cameras[0]
            self._obs = {**self._obs, first: before[first]}
            self._age = {**self._age, first: self._age[first] + 1.0 / spec.rate_hz}
        return {
            "applied": applied.astype(float).tolist(),
            "clipped": bool((np.abs(applied - command) > 1e-6).any()),
            "time_s": self._steps / spec.rate_hz,
        }

    def _placed_by_hand(self) -> list[str]:
        """Return the placements in metres that an operator sets up, and misses a little: the target's, or all where none is called so."""
        known = self.env.factor_space.factors
        target: list[str] = [n for n in ("target_x_m", "target_y_m") if n in known]
        return target or [n for n in self.env.placement_factors if n.endswith("_m")]

    def _tolerances(self, rng: np.random.Generator) -> FactorValues:
        """Draw what differs a little between any two set-ups, gap or not."""
        values: FactorValues = {
            "friction": rng.uniform(0.9, 1.1),
            "cube_mass_kg": rng.uniform(0.018, 0.022),
            "actuator_gain": rng.uniform(0.97, 1.03),
            "light_intensity": rng.uniform(0.97, 1.03),
            "image_noise": 2.0,
            "encoder_noise_deg": 0.1,
        }
        for axis in "xyz":
            values[f"{self.env.cameras[0]}_camera_d{axis}_m"] = rng.uniform(-0.0005, 0.0005)
        return {k: float(v) for k, v in values.items() if k in self.env.factor_space.factors}


def main() -> int:
    """Serve one surrogate on stdin and stdout until the driver goes away."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", required=True)
    parser.add_argument("--image-size", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--gap", required=True)
    parser.add_argument("--parent", type=int, default=0, help="process to die with")
    parser.add_argument(
        "--trust",
        type=json.loads,
        metavar="JSON",
        help="what may be run, as the driver decided it (default: nothing)",
    )
    args = parser.parse_args()
    die_with(args.parent)
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing a library prints may reach the wire
    try:
        with granted(Trust.from_json(args.trust) if args.trust else Trust(is_complete=True)):
            world = SurrogateWorld(args.env, args.image_size, args.seed, args.gap)
    except Exception as error:
        send(sink, _told(error))
        return 1
    send(sink, {"seal": seal_of(world.gap, args.seed)})
    while True:
        try:
            request, arrays = receive(source)
        except EOFError:
            return 0
        try:
            answer, parts = _answer(world, request, arrays)
        except Exception as error:
            answer, parts = _told(error), {}
        asked = {"id": request["id"]} if "id" in request else {}
        send(sink, {**answer, **asked}, parts)


def _answer(
    world: SurrogateWorld, request: dict[str, Any], arrays: dict[str, NDArray[Any]]
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    match request["verb"]:
        case "reset":
            return {"placements": world.reset(int(request["seed"]), request["placements"])}, {}
        case "observe":
            return world.observe()
        case "act":
            return world.act(arrays["action"]), {}
        case "verdict":
            outcome = world.outcome
            return {"outcome": None if outcome is None else [str(outcome.kind), outcome.detail]}, {}
        case "open":
            if re.fullmatch(r"[0-9a-f]{64}", str(request.get("diagnosis", ""))) is None:
                return {
                    "refused": (
                        "the seal opens only against the hash of a diagnosis in the ledger; diagnose first"
                    )
                }, {}
            return {"gap": world.gap.to_json(), "nonce": nonce_of(world.seed)}, {}
        case verb:
            return {"error": f"unknown request {verb!r}"}, {}


def _told(error: Exception) -> dict[str, Any]:
    """Return an error as the driver raises it again: ours in their own words, another with the name of its class."""
    kind = type(error).__name__
    return {"error": str(error) if isinstance(error, SimgapError) else f"{kind}: {error}", "kind": kind}


if __name__ == "__main__":
    sys.exit(main())

"""Measures of the arm's grip, on any engine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simgap.envs.arm import geometry as g
from simgap.envs.arm.world import ArmWorld
from simgap.envs.engines.conformance.base import Probe

ArmProbe = Probe[ArmWorld]


def probe_at(world: ArmWorld, angles_deg: NDArray[np.float64] | list[float]) -> None:
    """Put the arm at rest at joint angles, deg and gripper percent, commanded to stay."""
    world.set_encoders(np.asarray(angles_deg, dtype=np.float64))
    world.data.qvel[:] = 0.0
    world.engine.reset()


def _gripped(probe: ArmProbe) -> ArmWorld:
    """Return a world in which the jaws have closed on the target where it lies."""
    world = probe.start()
    x, y, z = (float(v) for v in world.cube_position(0))
    angles = g.inverse(g.ToolPose(x, y, max(z, 0.0125), 0.0), world.cube_half[0] + 0.002)
    probe_at(world, [*angles, g.HOME_GRIPPER])
    world.command(np.array([*angles, 0.0]) + world.offset_deg)
    world.engine.advance(1.0)
    return world


def grip_torque(probe: ArmProbe) -> float:
    """Return the torque of a closed gripper, in Nm."""
    return _gripped(probe).gripper_torque()


def grip_opening(probe: ArmProbe) -> float:
    """Return how far a gripper that holds something stays open, in percent."""
    return float(_gripped(probe).encoders()[5])


def grip_slip(probe: ArmProbe) -> float:
    """Return how fast a cube that is held up slides out of the jaws, mm/s."""
    world = _gripped(probe)
    command = world.encoders()
    command[5] = 0.0
    for _ in range(20):
        command[1] -= 1.5
        world.command(command)
        world.engine.advance(0.05)
    world.engine.advance(1.0)
    before = _in_hand(world)
    world.engine.advance(2.0)
    return 1e3 * float(np.linalg.norm(_in_hand(world) - before)) / 2.0


def _in_hand(world: ArmWorld) -> NDArray[np.float64]:
    axes = world.data.site_xmat[world.grasp_site].reshape(3, 3)
    return np.asarray(axes.T @ (world.cube_position(0) - world.data.site_xpos[world.grasp_site]))

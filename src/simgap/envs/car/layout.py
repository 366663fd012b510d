"""Where the cones stand: every set of factor values gives a valid scene, so no seed is thrown away."""

from __future__ import annotations

import math
from typing import NamedTuple

from simgap.envs.factors import FactorValues

FLOOR_X = (-0.6, 3.3)
FLOOR_Y = (-1.6, 1.6)
"""Free floor of the room, m, in the frame of the start mark: x is straight ahead, y left."""
STANDS_X = (-0.4, 3.1)
STANDS_Y = (-1.45, 1.45)
"""Where a cone may stand."""
MIN_GAP = 0.35
"""Smallest distance between cones, m: the stopping zones do not touch, and a car passes between."""
START_CLEARANCE = 0.5
"""Free floor round the start mark, m."""


class Spot(NamedTuple):
    """A point on the floor, m."""

    x: float
    y: float


def layout(values: FactorValues) -> list[Spot]:
    """Return where the target and the two distractors stand.

    A distractor that would leave the room, crowd another cone or stand in the way (nearer to the straight
    line from the car to the target than ``path_clearance_m``) is moved round the target in steps of 20 deg,
    and farther out after a full round.
    """
    start, target = (
        Spot(values["car_x_m"], values["car_y_m"]),
        Spot(values["target_x_m"], values["target_y_m"]),
    )
    spots = [target]
    for name in ("distractor1", "distractor2"):
        for attempt in range(18 * 8):
            bearing = math.radians(values[f"{name}_bearing_deg"] + 20.0 * attempt)
            distance = values[f"{name}_distance_m"] + 0.06 * (attempt // 18)
            spot = Spot(target.x + distance * math.cos(bearing), target.y + distance * math.sin(bearing))
            if _stands_free(spot, spots, start, values["path_clearance_m"]):
                break
        else:
            raise AssertionError(
                f"no free floor for {name} in {values}; the bounds of the placement factors leave some"
            )
        spots.append(spot)
    return spots


def distance_to_way(spot: Spot, start: Spot, end: Spot) -> float:
    """Return the distance of a point to the straight line between two others, m."""
    dx, dy = end.x - start.x, end.y - start.y
    along = ((spot.x - start.x) * dx + (spot.y - start.y) * dy) / (dx * dx + dy * dy)
    along = min(max(along, 0.0), 1.0)
    return math.hypot(spot.x - start.x - along * dx, spot.y - start.y - along * dy)


def _stands_free(spot: Spot, others: list[Spot], start: Spot, clearance: float) -> bool:
    return (
        STANDS_X[0] <= spot.x <= STANDS_X[1]
        and STANDS_Y[0] <= spot.y <= STANDS_Y[1]
        and math.dist(spot, start) >= START_CLEARANCE
        and all(math.dist(spot, other) >= MIN_GAP for other in others)
        and distance_to_way(spot, start, others[0]) >= clearance
    )

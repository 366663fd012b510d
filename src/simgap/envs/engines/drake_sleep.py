"""Sleep: a free body at rest on something fixed is held there, out of the solver, until something that moves comes near.

Three cubes on a table or three cones on a floor are most of the work of a step although nothing happens to
them. MuJoCo has the same device. What a body at rest would still do (creep by micrometres) is lost while it
sleeps; nothing else is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.envs._mujoco import mujoco
from simgap.envs.engines.drake_plant import Plant, colliding, is_loose, pydrake

CHECK_S = 0.05
"""Between two looks at who rests and who comes near."""
REST_MPS, REST_RAD_S = 5e-4, 0.02
"""Slower than this at three looks in a row is at rest: what falls is 0.5 m/s fast by the second, and what topples turns by the third."""
LOOKS = 3
NEAR_M = 0.03
"""What comes this near wakes, and from twice as far as it moved since the last look: at the next it has not arrived."""

Pair = tuple[int, int]


@dataclass(slots=True)
class _Night:
    """Who sleeps, and what has to be known of it; part of every snapshot."""

    asleep: frozenset[int] = frozenset()
    """Body ids."""
    rested: dict[int, int] = field(default_factory=dict)
    """Body id -> looks in a row at which it was at rest."""
    contacts: dict[int, tuple[Pair, ...]] = field(default_factory=dict)
    """Body id -> contacts with what is fixed or sleeps as well, as they were when it fell asleep."""
    filtered: Any = None
    """Drake's collision filter of those who sleep."""
    before: NDArray[np.float64] | None = None
    """Where geoms were at the last look, ``(ngeom, 3)`` m."""

    def copy(self) -> _Night:
        return replace(self, rested=dict(self.rested), contacts=dict(self.contacts))


class Sleep:
    """Puts the free bodies of one plant to sleep and wakes them."""

    def __init__(self, model: Any, plant: Plant) -> None:
        """Find out which bodies may sleep: the loose ones."""
        self._model, self._plant = model, plant
        solid = colliding(model).any(axis=1)
        self._geoms = {
            body: np.flatnonzero((model.geom_bodyid == body) & solid)
            for body in range(1, model.nbody)
            if is_loose(model, body)
        }
        self._dofs = np.array(
            [np.arange(6) + model.body_dofadr[body] for body in self._geoms], dtype=int
        ).reshape(-1, 6)
        self._moving = np.flatnonzero(solid & (model.body_weldid[model.geom_bodyid] != 0))
        self._fixed = [
            identity
            for geom, identity in plant.geometries.items()
            if model.body_weldid[model.geom_bodyid[geom]] == 0
        ]
        self._night = _Night()

    def reset(self) -> None:
        """Forget everything: the context is as new."""
        self._night = _Night()

    def snapshot(self) -> Any:
        """Return what has to be put back together with a context."""
        return self._night.copy()

    def restore(self, snapshot: Any) -> None:
        """Put it back."""
        self._night = snapshot.copy()

    def contacts(self) -> list[Pair]:
        """Return the contacts of those who sleep, which Drake no longer computes."""
        return [pair for pairs in self._night.contacts.values() for pair in pairs]

    def look(self, data: Any, root: Any, context: Any, contacts: Sequence[Pair]) -> None:
        """Wake who has to be awake before the next look, and put to sleep who rests.

        Args:
            data: the ``mujoco.MjData`` that Drake's state was just written to.
            root: the diagram's context.
            context: the plant's.
            contacts: what touches what now.
        """
        night, model = self._night, self._model
        reach = (
            np.zeros(model.ngeom)
            if night.before is None
            else np.sqrt(((data.geom_xpos - night.before) ** 2).sum(axis=1))
        )
        night.before = data.geom_xpos.copy()
        speeds = np.abs(data.qvel[self._dofs])  # of every loose body, (bodies, 6)
        rests = (speeds[:, :3].max(axis=1, initial=0.0) < REST_MPS) & (
            speeds[:, 3:].max(axis=1, initial=0.0) < REST_RAD_S
        )
        for body, is_slow in zip(self._geoms, rests.tolist(), strict=True):
            if body not in night.asleep:
                night.rested[body] = night.rested.get(body, 0) + 1 if is_slow else 0
        resting = [body for body in self._geoms if body in night.asleep or night.rested[body] >= LOOKS]
        asleep = frozenset(resting) - self._approached(resting, data, reach) if resting else frozenset()
        if asleep != night.asleep:
            self._turn(asleep, root, context, contacts)

    def _approached(self, resting: list[int], data: Any, reach: NDArray[np.float64]) -> set[int]:
        """Return which resting bodies have something near them that moves, or rests no longer."""
        model = self._model
        is_still = np.zeros(model.nbody, dtype=bool)
        is_still[resting] = True
        others = self._moving[~is_still[model.geom_bodyid[self._moving]]]
        mine = np.concatenate([self._geoms[body] for body in resting])
        gaps = _gaps(model, data, others, data.geom_xpos[mine]) - model.geom_rbound[mine][:, None]
        near = (gaps < NEAR_M + 2.0 * reach[others]).any(axis=1)
        return set(model.geom_bodyid[mine[near]].tolist())

    def _turn(self, asleep: frozenset[int], root: Any, context: Any, contacts: Sequence[Pair]) -> None:
        """Lock and unlock bodies, and leave out contacts of those who sleep with what is fixed and with each other."""
        night, plant, geometry = self._night, self._plant, pydrake("geometry")
        filters = plant.scene.collision_filter_manager(plant.scene.GetMyMutableContextFromRoot(root))
        if night.filtered is not None:
            filters.RemoveDeclaration(night.filtered)
            night.filtered = None
        for body in night.asleep - asleep:
            plant.bodies[body].Unlock(context)
            night.rested[body] = 0
        for body in asleep - night.asleep:
            plant.bodies[body].Lock(context)
        known = [*contacts, *self.contacts()]
        night.contacts = {body: self._contacts_of(body, asleep, known) for body in asleep}
        night.asleep = asleep
        if asleep:
            mine = [plant.geometries[int(geom)] for body in sorted(asleep) for geom in self._geoms[body]]
            pairs = geometry.CollisionFilterDeclaration().ExcludeBetween(
                geometry.GeometrySet(mine), geometry.GeometrySet([*self._fixed, *mine])
            )
            night.filtered = filters.ApplyTransient(pairs)

    def _contacts_of(self, body: int, asleep: frozenset[int], known: Sequence[Pair]) -> tuple[Pair, ...]:
        """Return the contacts of a body with what is fixed, and with those of a higher number who sleep too, each once."""
        found = set()
        for pair in known:
            ids = [int(self._model.geom_bodyid[geom]) for geom in pair]
            if body in ids:
                other = ids[1 - ids.index(body)]
                if self._model.body_weldid[other] == 0 or (other in asleep and other > body):
                    found.add(pair)
        return tuple(sorted(found))


def _gaps(
    model: Any, data: Any, geoms: NDArray[np.int64], points: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the distance of points from geoms, ``(points, geoms)`` m: exact for boxes, from the bounding sphere for others."""
    box = model.geom_type[geoms] == mujoco.mjtGeom.mjGEOM_BOX
    offset = points[:, None, :] - data.geom_xpos[geoms]
    local = np.einsum("gij,pgi->pgj", data.geom_xmat[geoms].reshape(-1, 3, 3), offset)
    outside = np.maximum(np.abs(local) - np.where(box[:, None], model.geom_size[geoms], 0.0), 0.0)
    return np.asarray(np.sqrt((outside**2).sum(axis=2)) - np.where(box, 0.0, model.geom_rbound[geoms]))

"""One OpenGL context a process, kept open, rendering small frames fast."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from simgap.compute.machine import load_compiler_before_gl
from simgap.envs._mujoco import mujoco
from simgap.errors import MachineError


class Look(NamedTuple):
    """Where geoms, cameras and lights of a model are at one moment: all that a scene of geoms takes from ``mujoco.MjData``."""

    geom_xpos: NDArray[np.float64]
    geom_xmat: NDArray[np.float64]
    cam_xpos: NDArray[np.float64]
    cam_xmat: NDArray[np.float64]
    light_xpos: NDArray[np.float64]
    light_xdir: NDArray[np.float64]

    @classmethod
    def of(cls, data: Any) -> Self:
        """Return a copy of what ``data`` holds now, 1 KB for 13 geoms."""
        return cls(
            data.geom_xpos.copy(),
            data.geom_xmat.copy(),
            data.cam_xpos.copy(),
            data.cam_xmat.copy(),
            data.light_xpos.copy(),
            data.light_xdir.copy(),
        )

    def put(self, data: Any) -> None:
        """Write it back into the data of the same model."""
        for name, values in zip(self._fields, self, strict=True):
            getattr(data, name)[:] = values


class FrameRenderer:
    """Renders named cameras of a MuJoCo model into caller-owned buffers.

    Any number of models of the same make can share one renderer: the scenes hold primitives only, so the
    context carries nothing of a model but its size settings. Shadows and multisampling are off: on a software
    rasteriser they cost a factor of ten and carry no task information here.
    """

    stamp = "mujoco opengl, no shadows, no multisampling"

    def __init__(self, model: Any, size: int) -> None:
        """Open the context.

        Args:
            model: a compiled ``mujoco.MjModel``.
            size: frame height and width in pixels.

        Raises:
            MachineError: no offscreen EGL driver; names the packages to install.
        """
        self.size = size
        load_compiler_before_gl()
        try:
            self._gl = mujoco.GLContext(size, size)
            self._gl.make_current()
            self._context = _context(model, size)
        except Exception as error:
            raise MachineError(
                f"cannot open an offscreen EGL context ({error}); on Debian or Ubuntu: apt-get install"
                " libegl1 libgl1-mesa-dri libgles2, or set MUJOCO_GL=osmesa"
            ) from error
        # Freed while another context is current, this one's numbers would name, and delete, the other's
        # buffers.
        self._free = weakref.finalize(self, _free, self._gl, self._context)
        # by then the driver may have closed the display; the process takes everything with it
        self._free.atexit = False
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self._rect = mujoco.MjrRect(0, 0, size, size)
        self._scene = mujoco.MjvScene(model, maxgeom=200)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = 0
        self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = 0
        self._option = mujoco.MjvOption()
        self._option.geomgroup[:] = 1
        self._option.geomgroup[3:] = 0
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._buffer = np.empty((size, size, 3), dtype=np.uint8)

    def render(self, model: Any, data: Any, camera_id: int, out: NDArray[np.uint8]) -> None:
        """Render one camera into ``out``, ``(size, size, 3)`` uint8 RGB, top row first."""
        self.make_current()
        self.render_here(model, data, camera_id, out)

    def make_current(self) -> None:
        """Turn to this renderer's context: another of this process may have been current; its frames, or stale ones, would come back."""
        self._gl.make_current()

    def render_here(self, model: Any, data: Any, camera_id: int, out: NDArray[np.uint8]) -> None:
        """Render as :meth:`render` does, in the context that :meth:`make_current` turned to; saves 30 us for each of many frames."""
        self._camera.fixedcamid = camera_id
        mujoco.mjv_updateScene(
            model, data, self._option, None, self._camera, mujoco.mjtCatBit.mjCAT_ALL, self._scene
        )
        mujoco.mjr_render(self._rect, self._scene, self._context)
        upwards = out[::-1]  # as OpenGL reads: a caller whose frames lie so saves a copy
        if upwards.flags.c_contiguous:
            mujoco.mjr_readPixels(upwards, None, self._rect, self._context)
        else:
            mujoco.mjr_readPixels(self._buffer, None, self._rect, self._context)
            np.copyto(out, self._buffer[::-1])

    def segment(
        self, model: Any, data: Any, camera_id: int, only: Sequence[int] | None = None
    ) -> NDArray[np.int32]:
        """Return the geom id that each pixel of a camera shows, ``(size, size)``; -1 where none is.

        Args:
            model: as given to the constructor, or another of its make.
            data: its state.
            camera_id: which camera.
            only: geoms to draw as if nothing else were there; all by default.
        """
        self._gl.make_current()
        self._camera.fixedcamid = camera_id
        option, groups = self._option, None
        if only is not None:
            option, groups = mujoco.MjvOption(), model.geom_group.copy()
            option.geomgroup[:] = 0
            option.geomgroup[5] = 1
            model.geom_group[list(only)] = 5
        mujoco.mjv_updateScene(
            model, data, option, None, self._camera, mujoco.mjtCatBit.mjCAT_ALL, self._scene
        )
        if groups is not None:
            model.geom_group[:] = groups
        flags = [int(mujoco.mjtRndFlag.mjRND_SEGMENT), int(mujoco.mjtRndFlag.mjRND_IDCOLOR)]
        self._scene.flags[flags] = 1
        mujoco.mjr_render(self._rect, self._scene, self._context)
        self._scene.flags[flags] = 0
        mujoco.mjr_readPixels(self._buffer, None, self._rect, self._context)
        code = self._buffer[::-1].astype(np.int32) @ np.array([1, 256, 65536], dtype=np.int32)
        shown = np.full(self._scene.maxgeom + 1, -1, dtype=np.int32)  # 0 is the background
        for geom in self._scene.geoms[: self._scene.ngeom]:
            if geom.segid >= 0 and geom.objtype == mujoco.mjtObj.mjOBJ_GEOM:
                shown[geom.segid + 1] = geom.objid
        return np.asarray(shown[code])

    def close(self) -> None:
        """Free the context."""
        self._free()


def _context(model: Any, size: int) -> Any:
    """Return a context whose offscreen buffer is exactly ``size``; a context reads that from the model it is made with."""
    whole = model.vis.global_
    before = whole.offwidth, whole.offheight
    whole.offwidth = whole.offheight = size
    try:
        return mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_50)
    finally:
        whole.offwidth, whole.offheight = before


def _free(gl: Any, context: Any) -> None:
    gl.make_current()
    context.free()
    gl.free()


class PixelNoise:
    """Sensor noise of a camera: independent normal errors of every value of a frame, rounded and clipped as a sensor does.

    Drawing them costs twice the rendering of a small frame. So they are drawn once for a few frames, and a
    frame gets a stretch of them from a random place: two frames hardly ever share a pattern in the same
    place.
    """

    def __init__(self, sigma: float, rng: np.random.Generator) -> None:
        """Take the standard deviation, in 1/255, and what decides about places; 0 draws nothing."""
        self._sigma, self._rng = sigma, rng

    def add(self, frame: NDArray[np.uint8]) -> None:
        """Add noise to a frame in place."""
        if self._sigma <= 0:
            return
        up, room, down = _errors(frame.size, self._sigma)
        start = int(self._rng.integers(len(up) - frame.size))
        here = slice(start, start + frame.size)
        rows = frame[::-1]  # as a renderer reads: of a frame that lies so, one stretch of memory
        # clip(frame + error) in bytes alone: four passes of a microsecond, where wider numbers take
        # twenty-five
        np.minimum(rows, room[here].reshape(frame.shape), out=rows)
        rows += up[here].reshape(frame.shape)
        np.maximum(rows, down[here].reshape(frame.shape), out=rows)
        rows -= down[here].reshape(frame.shape)


class _Errors(NamedTuple):
    """Rounded errors by sign, ``(n,)`` uint8."""

    up: NDArray[np.uint8]
    room: NDArray[np.uint8]
    """255 - up."""
    down: NDArray[np.uint8]


_STRETCHES = 2


@functools.lru_cache(maxsize=4)
def _normal(size: int) -> NDArray[np.float32]:
    return np.random.Generator(np.random.PCG64(size)).standard_normal(_STRETCHES * size, dtype=np.float32)


@functools.lru_cache(maxsize=4)
def _errors(size: int, sigma: float) -> _Errors:
    errors = _normal(size) * np.float32(sigma)
    np.rint(errors, out=errors)
    bounded = np.clip(errors, -127, 127, out=errors).astype(np.int8)
    up, down = np.maximum(bounded, 0).view(np.uint8), np.maximum(-bounded, 0).view(np.uint8)
    return _Errors(up, ~up, down)

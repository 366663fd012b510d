"""A second renderer: MuJoCo 4's Filament, physically based, drawn on Vulkan without a display.

Same geometry, other light: image-based ambient light, physically based surfaces, sRGB. A policy that fails on
these frames has learnt the first renderer, not the task. Shadows are off in both. Segmentation stays the
first renderer's: it is geometry, not looks.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.compute.child import ask_program, one_line
from simgap.compute.machine import load_compiler_before_gl
from simgap.envs._mujoco import mujoco
from simgap.envs.rendering import FrameRenderer
from simgap.errors import MachineError

HEADLIGHT = 3e4
"""Lux of a headlight of MuJoCo's brightness 1."""
EXPOSURE = 1.6
"""Of what Filament returns without its own exposure; nominal frames come out about four fifths as bright as the first renderer's."""
_LINEAR = np.minimum(EXPOSURE * np.arange(256) / 255.0, 1.0)
_DISPLAY = np.round(
    255.0 * np.where(_LINEAR <= 0.0031308, 12.92 * _LINEAR, 1.055 * _LINEAR ** (1 / 2.4) - 0.055)
).astype(np.uint8)
"""Linear light to sRGB, as a camera encodes it."""
_PROBE = """
import mujoco.studio.window
from mujoco import mjrf
mjrf.Context(mjrf.ContextConfig(graphics_api=mjrf.GraphicsApi.GRAPHICS_API_VULKAN, software_rendering=True))
print("drawn", flush=True)
"""


@functools.cache
def require_filament(timeout_s: float = 60.0) -> None:
    """Try Filament once a process, in a process of its own: where there is no Vulkan driver it ends the process instead of raising.

    Raises:
        MachineError: it does not draw here; says why and what to install, in one line.
    """
    try:
        done = ask_program([sys.executable, "-P", "-c", _PROBE], timeout_s=timeout_s)
    except TimeoutError as error:
        raise MachineError(
            f"renderer filament gives no answer within {timeout_s:g} s; leave --renderer out"
        ) from error
    except (OSError, OverflowError) as error:
        raise MachineError(
            f"renderer filament cannot be tried ({one_line(str(error))}); leave --renderer out"
        ) from error
    if done.code != 0 or "drawn" not in done.out:
        said = [one_line(line) for line in (done.errors + done.out).splitlines() if line.strip()]
        reason = next(
            (line for line in said if "Vulkan" in line and "nable" in line),
            said[-1] if said else f"exit code {done.code}",
        )
        raise MachineError(
            f"renderer filament cannot draw without a display here ({reason}); "
            "on Debian or Ubuntu: apt-get install libvulkan1 mesa-vulkan-drivers, and pip install 'mujoco>=4'"
        )


class FilamentRenderer:
    """Renders named cameras of a MuJoCo model; used as :class:`~simgap.envs.rendering.FrameRenderer` is.

    A scene keeps sizes of the model it was made from, so a model whose sizes changed gets a new one, 20 ms.
    """

    stamp = f"mujoco {mujoco.__version__} filament vulkan, no shadows"

    def __init__(self, model: Any, size: int) -> None:
        """Open a context.

        Args:
            model: a compiled ``mujoco.MjModel``.
            size: frame height and width in pixels.

        Raises:
            MachineError: no Vulkan driver that works without a display.
        """
        require_filament()
        load_compiler_before_gl()
        import_module("mujoco.studio.window")  # registers where Filament finds its materials
        mjrf = import_module("mujoco.mjrf")
        self.size, self._mjrf = size, mjrf
        with _silence():
            self._context = mjrf.Context(
                mjrf.ContextConfig(graphics_api=mjrf.GraphicsApi.GRAPHICS_API_VULKAN, software_rendering=True)
            )
        self._buffer = np.zeros((size, size, 3), dtype=np.uint8)
        self._target = self._context.create_render_target(
            mjrf.RenderTargetConfig(color_format=mjrf.PixelFormat.PIXEL_FORMAT_RGB8)
        )
        self._target.resize(size, size)
        self._read = mjrf.ReadRequest(target=self._target)
        self._read.set_buffer(self._buffer)
        self._option = mujoco.MjvOption()
        self._option.geomgroup[:] = 1
        self._option.geomgroup[3:] = 0
        self._made_for = b""
        self._parts: tuple[Any, Any, Any, Any] | None = None
        self._segmenter: FrameRenderer | None = None

    def make_current(self) -> None:
        """Do nothing: a context of Filament's has threads of its own."""

    def render(self, model: Any, data: Any, camera_id: int, out: NDArray[np.uint8]) -> None:
        """Render one camera into ``out``, ``(size, size, 3)`` uint8 RGB, top row first."""
        scene, _, lights, things = self._scene_of(model)
        lights.update(data)
        things.update(data)
        request = self._mjrf.RenderRequest()
        request.scene, request.target, request.camera = (
            scene,
            self._target,
            self._camera(model, data, camera_id),
        )
        request.viewport.left = request.viewport.bottom = 0
        request.viewport.width = request.viewport.height = self.size
        request.shadows = request.reflections = request.haze = request.skybox = False
        # its dithering changes from frame to frame: the same state would give other bytes
        request.post_processing = False
        request.headlight = True
        bright = np.asarray(model.vis.headlight.diffuse, dtype=np.float32)
        request.headlight_color, request.headlight_intensity = (
            bright / max(float(bright.max()), 1e-6),
            HEADLIGHT * float(bright.max()),
        )
        self._context.wait_for_frame(self._context.render([request], [self._read]))
        np.take(_DISPLAY, self._buffer, out=out)

    render_here = render

    def segment(
        self, model: Any, data: Any, camera_id: int, only: Sequence[int] | None = None
    ) -> NDArray[np.int32]:
        """Return the geom id that each pixel shows; see :meth:`~simgap.envs.rendering.FrameRenderer.segment`."""
        if self._segmenter is None:
            self._segmenter = FrameRenderer(model, self.size)
        return self._segmenter.segment(model, data, camera_id, only)

    def close(self) -> None:
        """Free scene and context."""
        self._parts = None
        self._made_for = b""
        if self._segmenter is not None:
            self._segmenter.close()
            self._segmenter = None

    def _scene_of(self, model: Any) -> tuple[Any, Any, Any, Any]:
        """Return scene, resources, lights and renderables of a model with these sizes."""
        key = model.geom_size.tobytes()
        if self._parts is None or key != self._made_for:
            mjrf = self._mjrf
            self._parts = None
            resources, scene = (
                mjrf.ModelResources(self._context, model),
                self._context.create_scene(mjrf.SceneParams()),
            )
            scene.configure_from_model(model)
            things = mjrf.ModelRenderables(scene, resources)
            things.set_options(self._option)
            self._parts, self._made_for = (scene, resources, mjrf.ModelLights(scene, resources), things), key
        return self._parts

    def _camera(self, model: Any, data: Any, camera_id: int) -> Any:
        axes = data.cam_xmat[camera_id].reshape(3, 3).astype(np.float32)
        extent = float(model.stat.extent)
        near, far = float(model.vis.map.znear) * extent, float(model.vis.map.zfar) * extent
        top = near * math.tan(math.radians(float(model.cam_fovy[camera_id])) / 2)
        return self._mjrf.Camera(
            pos=data.cam_xpos[camera_id].astype(np.float32),
            forward=-axes[:, 2],
            up=axes[:, 1],
            frustum_bottom=-top,
            frustum_top=top,
            frustum_near=near,
            frustum_far=far,
        )


@contextmanager
def _silence() -> Iterator[None]:
    """Keep what the native library writes while it opens to itself: on standard output it would break a document."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(number) for number in (1, 2)]
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        for number in (1, 2):
            os.dup2(nothing, number)
        yield
    finally:
        for number, before in zip((1, 2), kept, strict=True):
            os.dup2(before, number)
            os.close(before)
        os.close(nothing)

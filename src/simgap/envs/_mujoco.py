"""The one place that imports MuJoCo: its GL backend is chosen at import, so the choice has to come first."""

from __future__ import annotations

import os

os.environ.setdefault("MUJOCO_GL", "egl")
# the software rasteriser's own threads fight with worker processes
os.environ.setdefault("LP_NUM_THREADS", "0")

import mujoco

__all__ = ["mujoco"]

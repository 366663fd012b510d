"""What can be named as the broken thing: one table. Diagnosis, targeting, report and gaps read it; none of them branches on a name.

A further cause is one more :class:`Cause`, in the module of the check that names it: whatever is in a check's ``can_name`` is
known. Causes are compared by identity.
"""

from __future__ import annotations

from simgap.causes.base import Cause, Family, Numbers, Setting
from simgap.causes.repairs import Area, Around, MedianAround, NewEpisodes, NoRepair, Step, UndoMultipliers
from simgap.causes.table import (
    ACTION_CONVENTION,
    ACTION_LATENCY,
    ACTION_SCALE,
    ACTION_SIGN,
    CAMERA_SHIFT,
    DATA,
    EVALUATION,
    EXECUTION,
    JOINT_DEAD,
    LIGHT_COLOUR,
    NARROW_DATA,
    NONE,
    PIXELS_OTHER,
    PLANT_GAIN,
    POLICY,
    TABLE,
    UNKNOWN,
    cause_of,
)

__all__ = [
    "ACTION_CONVENTION",
    "ACTION_LATENCY",
    "ACTION_SCALE",
    "ACTION_SIGN",
    "CAMERA_SHIFT",
    "DATA",
    "EVALUATION",
    "EXECUTION",
    "JOINT_DEAD",
    "LIGHT_COLOUR",
    "NARROW_DATA",
    "NONE",
    "PIXELS_OTHER",
    "PLANT_GAIN",
    "POLICY",
    "TABLE",
    "UNKNOWN",
    "Area",
    "Around",
    "Cause",
    "Family",
    "MedianAround",
    "NewEpisodes",
    "NoRepair",
    "Numbers",
    "Setting",
    "Step",
    "UndoMultipliers",
    "cause_of",
]

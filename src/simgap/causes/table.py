"""The causes that our own checks can name."""

from __future__ import annotations

from simgap.causes import telling
from simgap.causes.base import Cause, Family
from simgap.causes.repairs import (
    LATE_NOISE_DEG,
    LIGHT_SPREAD,
    PLACEMENT_MARGIN,
    POSE_SPREAD,
    Area,
    Around,
    MedianAround,
    NewEpisodes,
    Step,
    UndoMultipliers,
)

NONE = Cause(
    id="none",
    family=None,
    words="nothing found broken",
    remedy="Nothing to repair. Run more trials if you need a narrower interval.",
)
UNKNOWN = Cause(
    id="cannot_tell", family=None, words="", remedy="Run the trials named below, then diagnose again."
)
EVALUATION = Cause(
    id="evaluation_invalid",
    family=Family.EVALUATION,
    words="the evaluation",
    remedy=("Repair the evaluation before reading any rate: repeat the void trials and use fresh seeds."),
)
DATA = Cause(
    id="data_faulty",
    family=Family.DATA,
    words="the training data",
    remedy="Repair the dataset and train again; every later number rests on it.",
)
CAMERA_SHIFT = Cause(
    id="camera_shift",
    family=Family.PIXELS,
    words="pixels: a camera has moved",
    remedy="Put the camera back, or train on with episodes rendered from the fitted pose and its surroundings.",
    repair=NewEpisodes(
        numbers="fitted",
        sampling=Around(spread=POSE_SPREAD),
        why="fitted to the robot's pictures, and its surroundings",
    ),
    tell=telling.cameras,
)
LIGHT_COLOUR = Cause(
    id="light_colour",
    family=Family.PIXELS,
    words="pixels: light or colours have changed",
    remedy=(
        "Restore the light, or train on with episodes under the fitted light and colours and their surroundings."
    ),
    repair=NewEpisodes(
        numbers="fitted",
        sampling=Around(spread=LIGHT_SPREAD),
        why="fitted to the robot's pictures, and its surroundings",
    ),
    tell=telling.light,
)
PIXELS_OTHER = Cause(
    id="pixels_other",
    family=Family.PIXELS,
    words="pixels: something unmodelled is in view",
    remedy="Look at the film strips: something in view is not in the simulator. Model it or remove it.",
)
ACTION_SIGN = Cause(
    id="action_sign",
    family=Family.REPLAY,
    words="convention: the sign of a joint's command",
    remedy="Turn the joint's sign in the robot's convention. No new data: the policy is not at fault.",
    repair=UndoMultipliers(numbers="broken"),
    tell=telling.joints,
)
ACTION_SCALE = Cause(
    id="action_scale",
    family=Family.REPLAY,
    words="convention: the scale of a joint's command",
    remedy=(
        "Correct the joint's unit or range in the robot's convention. No new data: the policy is not at fault."
    ),
    repair=UndoMultipliers(numbers="broken"),
    tell=telling.joints,
)
ACTION_CONVENTION = Cause(
    id="action_convention",
    family=Family.REPLAY,
    words="convention: order, zero or reference of the commands",
    remedy=(
        "Put the named map between policy and robot, or state the convention and convert. No new data: the"
        " policy is not at fault."
    ),
)
"""Order, zero, reference, polarity or rotation form: what no multiplier of one joint can undo."""
JOINT_DEAD = Cause(
    id="joint_dead",
    family=Family.REPLAY,
    words="replay: a joint does not follow its command",
    remedy=(
        "Check the joint's wiring, power and servo id, then replay again. No new data: the policy is not at"
        " fault."
    ),
)
EXECUTION = Cause(
    id="execution",
    family=Family.EXECUTION,
    words="execution of the chunks",
    remedy="Repair the executor: reset it at each episode and index chunks from the observation's step.",
)
ACTION_LATENCY = Cause(
    id="action_latency",
    family=Family.PLANT,
    words="plant: commands take effect late",
    remedy="Shorten the delay, or train on with episodes under the measured delay.",
    repair=NewEpisodes(
        numbers="extra_delay_steps",
        sampling=Step(factor="action_latency_steps"),
        why="measured in the replays, and one step each way",
        noise_deg=LATE_NOISE_DEG,
    ),
    tell=telling.delay,
)
PLANT_GAIN = Cause(
    id="plant_gain",
    family=Family.PLANT,
    words="plant: servo stiffness",
    remedy="Train on with episodes under the measured servo stiffness.",
    repair=NewEpisodes(
        numbers="stiffness_ratios",
        sampling=MedianAround(ending="_gain", spread=0.1),
        why="measured in the replays, and its surroundings",
    ),
    tell=telling.stiffness,
)
NARROW_DATA = Cause(
    id="narrow_data",
    family=Family.POLICY,
    words="policy: over-specialised, the training set is narrow",
    remedy=(
        "Train on with episodes from the whole area in use; a share of each batch stays with the first"
        " training set."
    ),
    repair=NewEpisodes(
        numbers="in_use_placements",
        sampling=Area(margin=PLACEMENT_MARGIN),
        why="where objects were seen in use, and a margin",
    ),
    tell=telling.outside,
)
POLICY = Cause(
    id="policy_weak",
    family=Family.POLICY,
    words="policy: weak on the robot, cause unknown",
    remedy="Look at the failure modes; train longer or on more episodes, and screen again.",
    is_by_exclusion=True,
)

TABLE = {
    cause.id: cause
    for cause in (
        NONE,
        EVALUATION,
        DATA,
        CAMERA_SHIFT,
        LIGHT_COLOUR,
        PIXELS_OTHER,
        ACTION_SIGN,
        ACTION_SCALE,
        ACTION_CONVENTION,
        JOINT_DEAD,
        EXECUTION,
        ACTION_LATENCY,
        PLANT_GAIN,
        NARROW_DATA,
        POLICY,
        UNKNOWN,
    )
}


def cause_of(id: str) -> Cause:
    """Return the cause of the table with this id.

    Raises:
        KeyError: there is none.
    """
    return TABLE[id]

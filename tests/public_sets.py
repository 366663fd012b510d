"""Public recordings and small cases, read in place: which are healthy, and which faults are known of the others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SHARED = Path(__file__).parent.parent.parent / "shared"


@dataclass(frozen=True)
class Known:
    """What is known of a set without asking the check."""

    path: str
    """Below ``../shared``."""
    what: str
    faults: tuple[str, ...] = ()
    """Codes of the faults that are really there; none for a healthy set."""
    refused: str = ""
    """Words of the refusal, where it cannot be opened."""
    options: tuple[str, ...] = ()

    @property
    def root(self) -> Path:
        """Return where it lies."""
        return SHARED / self.path

    @property
    def is_healthy(self) -> bool:
        """True where a finding above a note is a false alarm."""
        return not self.faults and not self.refused


KNOWN = (
    Known("cases/healthy_so101", "made up after a usual recorder: SO-101, LeRobot v3.0"),
    Known("cases/tub_with_pauses", "made up: donkeycar tub, 20 Hz with five pauses"),
    Known(
        "cases/robomimic_action_range/actions_in_range.hdf5",
        "made up: robomimic, UR5e, actions within the controller's input",
    ),
    Known("cases/stats_band_left_of_zero.json", "made up: statistics whose band does not contain zero"),
    Known(
        "data/sage_so101_actuator_logs",
        "real SO-101 replaying trajectories at 50 Hz: lag, sag and stiction, nothing wrong",
    ),
    Known("data/stats_cosmos_action_normalizers", "quantile-only normalisers of seven real data sets"),
    Known("cases/several_episodes_in_one", "made up: 20 episodes without borders", ("lost_borders",)),
    Known("cases/tub_damaged_pictures", "made up: two damaged pictures", ("damaged_pictures",)),
    Known("cases/tub_empty", "made up: a tub without a record", refused="holds no record yet"),
    Known(
        "cases/robomimic_action_range/actions_beyond_one.hdf5",
        "made up: actions of 7.5 where the controller takes 1",
        ("actions_beyond_controller",),
    ),
    Known("cases/stats_heavy_tail_no_minmax.json", "made up: a heavy tail behind quantiles", ("heavy_tail",)),
    Known(
        "data/donkeycar_tub_official_test/tub", "real tub, stamped when it was converted", ("rate_mismatch",)
    ),
    Known(
        "data/lerobot_dualarm_hands_open50_v30",
        "real: two arms with hands, 0.9 s of lag, a hand that echoes its command, wrong statistics, videos in"
        " the wrong folder",
        (
            "misplaced_videos",
            "missing_videos",
            "stored_quantiles_wrong",
            "stored_statistics_wrong",
            "state_echoes_action",
            "long_lag",
        ),
    ),
    Known(
        "data/lerobot_franka_lfs_pointers_v21",
        "real Franka, data absent and videos Git LFS pointers",
        refused="Git LFS pointer",
    ),
    Known(
        "data/lerobot_so101_bimanual_cloth_v21",
        "real: hand-guided arms, the action is the next state, 18.5 Hz declared as 20, a black camera",
        (
            "action_is_next_state",
            "rate_mismatch",
            "black_video",
            "missing_columns",
            "path_template",
            "stray_file",
            "placeholder_image_statistics",
        ),
    ),
    Known(
        "data/lerobot_so101_record_test_v30",
        "real SO-101, averaged quantiles and impossible image statistics, videos not copied",
        ("stored_quantiles_wrong", "impossible_std", "image_std_zero", "missing_videos"),
    ),
    Known(
        "data/policy_act_so101_robopour",
        "real policy folder, weights and statistics are pointers",
        ("statistics_file_is_lfs_pointer",),
    ),
    Known(
        "data/stats_openpi_humanoid",
        "real statistics polluted by missing targets",
        ("relative_targets_polluted",),
    ),
    Known(
        "data/stats_openvla_oxe_nora",
        "28 sets' statistics with zero-range dimensions and extreme outliers",
        ("constant_dimensions", "outliers"),
    ),
    Known(
        "data/pairs_sim_real_published",
        "published pairs of sim and real rates, some correlations do not reproduce",
        ("printed_correlation_differs",),
    ),
    Known(
        "data/trials_battery_picker_aggregate",
        "200 real trials kept as totals, with a total row",
        ("total_row",),
    ),
    Known(
        "data/trials_phail_rollout_metadata",
        "594 real rollouts, policy confounded with date",
        ("arm_confounded_with_date",),
    ),
    Known(
        "data/trials_so101_pipeline_vs_act",
        "113 real grasp trials, codes on successes",
        ("failure_code_on_success", "outcome_contradicted"),
    ),
    Known(
        "data/trials_so101_tube_insertion_v2",
        "41 real insertion trials, second scoring never ran",
        ("second_scoring_missing",),
    ),
)

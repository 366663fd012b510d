"""Whether the statistics an OpenVLA policy is un-normalised with can be those of its robot: key, width, mask, ranges, gripper."""

from __future__ import annotations

from pathlib import Path

from simgap import causes
from simgap.causes import Cause
from simgap.conventions import ActionSpec
from simgap.errors import DataError, UsageError
from simgap.findings import CheckResult, Family, Verdict
from simgap.policies.bridges.openvla_statistics import ActionStatistics, doubts, read_action_statistics

NAME = "statistics the policy's actions are un-normalised with"
CAUSES = {
    "width": causes.ACTION_CONVENTION,
    "constant": causes.JOINT_DEAD,
    "unscaled": causes.ACTION_SCALE,
    "beyond_limits": causes.ACTION_SCALE,
}
ASSUMES = (
    "the convention of the actions is stated rightly",
    "the policy was trained on the data set named, which no number can show",
)


def check_action_statistics(path: Path, unnorm_key: str | None, spec: ActionSpec) -> CheckResult:
    """Return what statistics, key and convention say of each other.

    Args:
        path: ``dataset_statistics.json``, or a ``config.json`` with ``norm_stats``.
        unnorm_key: the data set named by whoever runs the policy.
        spec: what its actions are said to mean.
    """
    try:
        return judge_action_statistics(read_action_statistics(path, unnorm_key), spec)
    except (UsageError, DataError) as error:
        cause = causes.ACTION_SCALE if isinstance(error, UsageError) else causes.DATA
        return _result(
            Verdict.BROKEN,
            str(error),
            cause=cause,
            codes=["key" if isinstance(error, UsageError) else "unreadable"],
            size=None,
        )


def judge_action_statistics(statistics: ActionStatistics, spec: ActionSpec) -> CheckResult:
    """Return the verdict on statistics that were read."""
    found = doubts(statistics, spec)
    certain = [d for d in found if d.is_certain]
    codes, size = [d.code for d in found], len(statistics.low)
    if certain:
        return _result(
            Verdict.BROKEN,
            "; ".join(d.sentence for d in certain[:3]),
            cause=CAUSES[certain[0].code],
            codes=codes,
            size=size,
        )
    if found:
        return _result(Verdict.CANNOT_TELL, "; ".join(d.sentence for d in found[:3]), codes=codes, size=size)
    scaled = int(statistics.mask.sum())
    sentence = (
        f"{statistics.unnorm_key!r} scales {scaled} of {size} dimensions to ranges within their limits; that"
        " it is the set trained on cannot be seen here"
    )
    return _result(Verdict.OK, sentence, codes=[], size=size)


def _result(
    verdict: Verdict, sentence: str, *, codes: list[str], size: int | None, cause: Cause = causes.NONE
) -> CheckResult:
    return CheckResult(
        family=Family.REPLAY,
        name=NAME,
        verdict=verdict,
        sentence=sentence,
        statistic="contradictions",
        value=float(len(codes)),
        threshold=0.0,
        n=size,
        cause=cause,
        numbers={"codes": codes},
        assumes=ASSUMES,
    )

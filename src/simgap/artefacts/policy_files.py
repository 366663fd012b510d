"""A policy file before anything is opened: the conventions it states, and the statistics an OpenVLA policy is un-normalised with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simgap.checks.data.report import DataFinding, DataReport, Severity, by_severity
from simgap.checks.data.statistics.rules import judge
from simgap.checks.deployment.action_statistics import ASSUMES as STATISTICS_ASSUMES
from simgap.checks.deployment.action_statistics import judge_action_statistics
from simgap.conventions import Unit
from simgap.episodes.statistics.files import read_statistics
from simgap.errors import SimgapError
from simgap.policies.bridges.open import KINDS, interface_of
from simgap.policies.bridges.openvla import read_load, statistics_file, unnorm_key_of
from simgap.policies.bridges.openvla_statistics import doubts, read_action_statistics
from simgap.policies.bridges.policy_file import Interface, PolicyFile, read_policy_file

ASSUMES: tuple[str, ...] = (
    "the conventions stated are those of training, which only its owner knows",
    "the server or folder named holds the policy that is meant",
)


def check_policy_file(path: Path) -> DataReport:
    """Check a policy file without reaching a server or loading weights.

    Raises:
        SimgapError: a field is missing, unknown or of the wrong kind; one line that names it.
    """
    file = read_policy_file(path, KINDS)
    interface = interface_of(file)
    findings, assumes = _conventions(interface), ASSUMES
    measurements: dict[str, Any] = {"interface": interface.to_json()}
    if file.kind == "openvla":
        told, measured = _openvla(file, interface)
        findings, assumes = [*findings, *told], (*assumes, *STATISTICS_ASSUMES)
        measurements |= measured
    return DataReport(
        path=str(path),
        layout={
            "what": "policy_file",
            "kind": file.kind,
            "cameras": list(interface.cameras),
            "image_size": interface.image_size,
            "chunk": interface.chunk,
        },
        counts={
            "action_dimensions": len(interface.their_action_spec),
            "state_dimensions": len(interface.their_state_spec),
        },
        measurements=measurements,
        findings=by_severity(findings),
        assumes=assumes,
    )


def _conventions(interface: Interface) -> list[DataFinding]:
    """Return what the stated conventions leave open."""
    unknown = [d.name for d in interface.their_action_spec.dimensions if d.unit is Unit.UNKNOWN]
    grippers = [d.name for d in interface.their_action_spec.dimensions if d.is_gripper]
    found = []
    if unknown:
        found.append(
            DataFinding(
                code="units_unknown",
                severity=Severity.WARNING,
                sentence=f"nobody said what {unknown} are measured in",
                remedy="look the units up where the policy was trained and state them in action_spec",
                joints=tuple(unknown),
            )
        )
    if not grippers:
        found.append(
            DataFinding(
                code="no_gripper",
                severity=Severity.NOTE,
                sentence=(
                    "no action dimension is said to be a gripper, so an executor may average all of them"
                ),
                remedy=(
                    "set is_gripper in action_spec where one is: half of open and half of closed is a grasp"
                    " that slips"
                ),
            )
        )
    return found


def _openvla(file: PolicyFile, interface: Interface) -> tuple[Sequence[DataFinding], Mapping[str, Any]]:
    """Return what the statistics named say of themselves and of the convention."""
    path, key = statistics_file(file, read_load(file)), unnorm_key_of(file)
    try:
        statistics = read_action_statistics(path, key)
    except SimgapError as error:
        fault = DataFinding(
            code="statistics_unusable",
            severity=Severity.FAULT,
            sentence=str(error),
            remedy="name the data set the policy was trained on",
        )
        return [fault], {}
    accepted = file.names("accept_doubts")
    found = [
        DataFinding(
            code=f"statistics_{doubt.code}",
            severity=(
                Severity.NOTE
                if doubt.code in accepted
                else Severity.FAULT
                if doubt.is_certain
                else Severity.WARNING
            ),
            sentence=doubt.sentence + (" (accepted in the file)" if doubt.code in accepted else ""),
            remedy=(
                "correct unnorm_key or action_spec"
                if doubt.is_certain
                else f'look at how it was trained; then add "{doubt.code}" to accept_doubts'
            ),
        )
        for doubt in doubts(statistics, interface.their_action_spec)
    ]
    measured, of_themselves = judge(
        [b for b in read_statistics(path) if b.group == statistics.unnorm_key and b.key == "action"]
    )
    return [*found, *of_themselves], {
        "statistics": measured,
        "verdict": judge_action_statistics(statistics, interface.their_action_spec).to_json(),
    }

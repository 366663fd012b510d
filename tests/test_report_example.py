"""A report of two turns as a loop would fill it in; run this file to write it: ``python tests/test_report_example.py report.html``."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from simgap.ledger import Claim
from simgap.report import (
    BlindSpot,
    CheckResult,
    CheckVerdict,
    DataPlan,
    Diagnosis,
    Fact,
    FactorChange,
    FailureModes,
    FilmStrip,
    LedgerEntry,
    Paired,
    Rate,
    ReportModel,
    Seal,
    Share,
    StampView,
    render_report,
    write_report,
)
from simgap.statistics import clopper_pearson, paired_difference, wilson
from simgap.types import EvidenceKind, Frame, Outcome

SIM, SURROGATE = EvidenceKind.SIM, EvidenceKind.SURROGATE
LATE = (
    "Joints follow commands 118 ms late; the policy was trained at 20 ms. The step response shows it on every"
    " joint and in every trial."
)
OK, BROKEN, CANNOT_TELL = CheckVerdict.OK, CheckVerdict.BROKEN, CheckVerdict.CANNOT_TELL


def frame(at: float, *, wrist: bool, held: bool, size: int = 96) -> Frame:
    """Draw a table, a cube and a two-link arm that reaches for it."""
    image = Image.new("RGB", (size * 4, size * 4), (206, 199, 186))
    draw, s = ImageDraw.Draw(image), size * 4
    draw.rectangle((0, 0, s, s * 0.34), fill=(120, 134, 150))
    lift = 0.25 * max(0.0, at - 0.6) / 0.4 if held else 0.0
    cube = np.array([0.62, 0.72 - lift]) * s
    half = s * (0.11 if wrist else 0.045)
    draw.rectangle((cube[0] - half, cube[1] - half, cube[0] + half, cube[1] + half), fill=(190, 58, 40))
    tip = (
        np.array(
            [0.3 + 0.32 * min(at / 0.6, 1.0) + (0 if held else 0.05), 0.4 + 0.28 * min(at / 0.6, 1.0) - lift]
        )
        * s
    )
    if wrist:
        gap = s * (0.2 - 0.08 * min(at / 0.6, 1.0))
        for side in (-1, 1):
            draw.rectangle(
                (s * 0.62 + side * gap - 16, s * 0.05, s * 0.62 + side * gap + 16, s * 0.6 + s * 0.1 * at),
                fill=(40, 42, 46),
            )
    else:
        draw.line(
            (s * 0.12, s * 0.62, s * 0.24, s * 0.24, *tip),
            fill=(232, 168, 40),
            width=int(s * 0.06),
            joint="curve",
        )
        draw.ellipse((tip[0] - 12, tip[1] - 12, tip[0] + 12, tip[1] + 12), fill=(40, 42, 46))
    return np.asarray(image.resize((size, size), Image.Resampling.LANCZOS), dtype=np.uint8)


def film(
    label: str, outcome: Outcome, source: EvidenceKind, seed: int, end: float, note: str = ""
) -> FilmStrip:
    """Six moments of both cameras."""
    ats = np.linspace(0.0, 1.0, 6)
    cameras = {
        name: [frame(float(a), wrist=name == "wrist", held=outcome.is_success) for a in ats]
        for name in ("front", "wrist")
    }
    return FilmStrip(
        label=label,
        outcome=outcome,
        source=source,
        times_s=[float(a) * end for a in ats],
        cameras=cameras,
        seed=seed,
        note=note,
    )


def checks() -> list[CheckResult]:
    """One check a family, in order."""
    rows: list[tuple[str, str, str, CheckVerdict, str, float, float, str, int, list[str] | None]] = [
        ("evaluation", "Judge agrees with a second rule", "Both rules call the same outcome.", OK, "share", 0, 0.02, "", 80, ["judge=held_5cm"]),
        ("data", "Recomputed statistics match", "All 6 action dimensions agree.", OK, "largest relative difference", 3.1e-7, 1e-4, "", 2000, []),
        ("pixels", "Frames look like the training frames", "Colour is in range.", OK, "share outside", 0.012, 0.05, "", 960, ["renderer=mujoco-egl"]),
        ("replay", "A recorded episode replays to its end", "Units and signs agree.", OK, "median end error", 2.4, 10, "mm", 12, ["engine=mujoco"]),
        ("execution", "Other executors", "24 trials cannot tell.", CANNOT_TELL, "difference", 6, 15, "points", 24, ["horizon_steps=120"]),
        ("plant", "Delay between command and motion", LATE, BROKEN, "median delay", 118, 45, "ms", 40, ["clock=monotonic"]),
        ("policy", "Success by region of the table", "40 trials cannot separate the regions.", CANNOT_TELL, "largest difference", 22, 35, "points", 40, None),
    ]  # fmt: skip
    names = (
        "family",
        "name",
        "sentence",
        "verdict",
        "statistic",
        "value",
        "threshold",
        "unit",
        "n",
        "shared_assumptions",
    )
    return [CheckResult(**dict(zip(names, row, strict=True))) for row in rows]  # type: ignore[arg-type]


def ledger() -> list[LedgerEntry]:
    """The rows of two turns."""
    rows = [
        ("commitment", None, "sealed gap of the stand-in: 9c4e1d07…"),
        ("evidence", SIM, "turn 1 screen: 396 of 400"),
        ("evidence", SURROGATE, "turn 1, in use: 22 of 39, 1 void"),
        ("evidence", SURROGATE, "turn 1, training conditions: 37 of 40"),
        ("finding", None, "broken: command delay (plant)"),
        ("seal_opened", None, "held: command delay 120 ms"),
        ("evidence", SIM, "turn 2 screen: 392 of 400"),
        ("evidence", SURROGATE, "turn 2, in use: 35 of 40"),
        ("claim", None, "turn 2 succeeds more often than turn 1 on the stand-in"),
    ]
    return [
        LedgerEntry(
            id=k + 1,
            time=f"2026-05-01 10:{5 * k:02d}:00 UTC",
            kind=kind,
            evidence=evidence,
            summary=summary,
            hash=f"{k + 1:x}7a3b0c92d4e5f61" * 4,
        )
        for k, (kind, evidence, summary) in enumerate(rows)
    ]


def example_model() -> ReportModel:
    """Two turns of the arm against a stand-in with a hidden command delay."""
    use, same = "in-use conditions: 40 unseen poses, lab light", "training conditions: nominal factors"
    failed = Outcome.failure
    return ReportModel(
        title="Arm pick, two turns against a sealed stand-in",
        env="arm_pick",
        date="2026-05-01 11:02 UTC",
        command="simgap loop arm_pick --turns 2 --trials 40 --surrogate sealed.json --seed 7",
        verdict=(
            "Simulation passed it, the stand-in did not: commands arrive about 118 ms late. "
            "After 600 targeted episodes the policy succeeds on 35 of 40 trials instead of 22 of 39."
        ),
        duration_s=3120,
        versions={"simgap": "0.1.0", "mujoco": "4.0.1", "torch": "2.9.0", "python": "3.11.7"},
        claims=[
            Claim(
                text="Turn 2 succeeds more often than turn 1 on the stand-in, same 39 initial conditions.",
                supporting=[(3, SURROGATE), (8, SURROGATE)],
            ),
            Claim(
                text=(
                    "The policy picks the cube in at least 97 % of simulated rollouts under nominal factors."
                ),
                supporting=[(2, SIM), (7, SIM)],
            ),
            Claim(
                text="The simulated rate carries over to trials in use.",
                supporting=[(2, SIM)],
                against=[(3, SURROGATE)],
            ),
        ],
        rates=[
            Rate(
                label="Simulation, screen",
                turn=1,
                source=SIM,
                estimate=clopper_pearson(396, 400),
                conditions="nominal factors, seeds 1000 to 1399",
                verdict="worth hardware time",
            ),
            Rate(
                label="Stand-in, in use",
                turn=1,
                source=SURROGATE,
                estimate=wilson(22, 39),
                conditions=use,
                voids={"camera frame older than 200 ms": 1},
            ),
            Rate(
                label="Stand-in, training conditions",
                turn=1,
                source=SURROGATE,
                estimate=wilson(37, 40),
                conditions=same,
            ),
            Rate(
                label="Simulation, screen",
                turn=2,
                source=SIM,
                estimate=clopper_pearson(392, 400),
                conditions="nominal factors, seeds 2000 to 2399",
                verdict="worth hardware time",
            ),
            Rate(label="Stand-in, in use", turn=2, source=SURROGATE, estimate=wilson(35, 40), conditions=use),
        ],
        paired=[
            Paired(
                old="turn 1",
                new="turn 2",
                source=SURROGATE,
                result=paired_difference(20, 14, 2, 3, dropped=1),
                conditions=use,
            )
        ],
        failures=[
            FailureModes(
                label="Stand-in, in use",
                turn=1,
                source=SURROGATE,
                successes=22,
                n=39,
                modes={"overshot the cube": 9, "dropped": 5, "missed grasp": 3},
            ),
            FailureModes(
                label="Stand-in, in use",
                turn=2,
                source=SURROGATE,
                successes=35,
                n=40,
                modes={"missed grasp": 3, "dropped": 2},
            ),
            FailureModes(
                label="Simulation, screen",
                turn=1,
                source=SIM,
                successes=396,
                n=400,
                modes={"missed grasp": 4},
            ),
        ],
        films=[
            film("Stand-in, turn 1", failed("overshot the cube"), SURROGATE, 17, 5.8),
            film("Stand-in, turn 1", failed("dropped"), SURROGATE, 23, 4.1),
            film(
                "Stand-in, turn 1",
                failed("missed grasp"),
                SURROGATE,
                5,
                6.0,
                "same initial condition as the success below",
            ),
            film("Stand-in, turn 2", Outcome.success(), SURROGATE, 5, 3.9),
        ],
        diagnosis=Diagnosis(
            broken="The plant: commands take effect about 118 ms late",
            family="plant",
            sentence=(
                "The policy acts on what it sees, the arm moves a tenth of a second later, and the gripper"
                " runs past the cube. Pixels, conventions and the judge were checked first and are in order."
            ),
            numbers=[
                Fact(
                    name="Delay on the stand-in",
                    value="118 ms",
                    note="(median of 40 trials, quartiles 112 to 125 ms)",
                ),
                Fact(name="Delay in the training data", value="20 ms"),
                Fact(name="Failures that overshoot", value="9 of 17"),
            ],
            checks=checks(),
            remedy="Collect episodes with a command delay of 80 to 160 ms and train on the mixture below.",
            next_command=(
                "simgap collect arm_pick --factor command_delay_s=0.08:0.16 --episodes 600\nsimgap train"
                " arm_pick --mixture plan.json"
            ),
        ),
        seal=Seal(
            commitment="9c4e1d07b6a85f23" * 4,
            diagnosed="Plant: command delay, 118 ms",
            held="Command delay, 120 ms",
            agrees=True,
            explanation="Same family and factor; 118 ms lies within 10 ms of the sealed value.",
            order=[row for row in ledger() if row.kind in ("commitment", "finding", "seal_opened")],
        ),
        plan=DataPlan(
            sentence=(
                "600 new episodes from the teacher under the delay that was found, mixed with the old ones so"
                " that nothing is forgotten."
            ),
            episodes=600,
            by_whom="the privileged teacher, all labels verified",
            factors=[
                FactorChange(
                    name="command_delay_s",
                    unit="s",
                    before=(0.02, 0.02),
                    after=(0.08, 0.16),
                    why="found on the stand-in",
                ),
                FactorChange(name="cube_x", unit="m", before=(0.18, 0.3), after=(0.18, 0.3), why="unchanged"),
                FactorChange(
                    name="servo_gain",
                    unit="",
                    before=None,
                    after=(0.9, 1.1),
                    why="moves together with the delay",
                ),
            ],
            mixture=[
                Share(name="nominal", episodes=2000, weight=0.6),
                Share(name="delayed", episodes=600, weight=0.4),
            ],
        ),
        blind_spots=[
            BlindSpot(
                assumption="judge=held_5cm",
                rests_on_it="every success rate in this report",
                how_to_test="have a person judge 20 recorded trials without seeing the outcome",
            ),
            BlindSpot(
                assumption="renderer=mujoco-egl",
                rests_on_it="pixels of training, screen and stand-in alike",
                how_to_test="replay 10 real camera frames",
            ),
            BlindSpot(assumption="horizon_steps=120"),
        ],
        stamps=[
            StampView(
                label="Checkpoint, turn 2",
                hash="5b1e" * 16,
                fields={
                    "engine": "mujoco 4.0.1",
                    "executor": "ensemble(m=0.1)",
                    "normaliser": "a91c…",
                    "episodes": 2600,
                },
            ),
            StampView(
                label="Stand-in trials, turn 2",
                hash="77fa" * 16,
                fields={"clock": "monotonic", "horizon_steps": 120, "judge": "held_above_5cm"},
            ),
        ],
        seeds={"screen": "2000 to 2399", "trials": "1 to 40", "training": "7"},
        ledger=ledger(),
        ledger_head=ledger()[-1].hash,
    )


def test_the_example_report_is_one_readable_file_below_its_limit() -> None:
    html = render_report(example_model())
    assert html.startswith("<!doctype html>")
    assert html.count("<img ") == 4 * 12
    assert len(html.encode()) < 2_000_000


if __name__ == "__main__":
    print(write_report(example_model(), Path(sys.argv[1])))

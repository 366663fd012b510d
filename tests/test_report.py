"""The report escapes what it is given, says the unknown as unknown, and names on top what kind of evidence it holds."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simgap
from simgap.errors import DataError, UsageError
from simgap.ledger import Claim
from simgap.report import (
    FAMILIES,
    BlindSpot,
    CheckResult,
    CheckVerdict,
    Correction,
    DataPlan,
    Diagnosis,
    Fact,
    FailureModes,
    FilmStrip,
    LedgerEntry,
    Paired,
    Rate,
    ReportModel,
    Seal,
    StampView,
    render_report,
    write_report,
)
from simgap.report.glance import glance
from simgap.report.images import encode_films
from simgap.report.words import (
    banner,
    number,
    p_text,
    paired_words,
    percent,
    points,
    seal_order,
    uneven_voids,
)
from simgap.statistics import paired_difference, wilson
from simgap.types import EvidenceKind, Outcome
from test_report_example import example_model, film

SIM, SURROGATE, REAL = EvidenceKind.SIM, EvidenceKind.SURROGATE, EvidenceKind.REAL
EVIL = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>"
VOID_TAGS = {"meta", "img", "br", "line", "circle", "rect", "path"}


class Balance(HTMLParser):
    """Collects tags, and what is wrong with their nesting."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID_TAGS:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def parse(html: str) -> Balance:
    parser = Balance()
    parser.feed(html)
    return parser


def empty_model() -> ReportModel:
    return ReportModel(
        title="Nothing yet", env="car_goal", date="2026-05-01", command="", verdict="Nothing was run."
    )


def evil_model() -> ReportModel:
    """Put markup into every text a user can choose."""
    return ReportModel(
        title=EVIL,
        env=EVIL,
        date=EVIL,
        command=EVIL,
        verdict=EVIL,
        versions={EVIL: EVIL},
        claims=[Claim(text=EVIL)],
        rates=[
            Rate(
                label=EVIL,
                turn=1,
                source=SIM,
                estimate=wilson(1, 2),
                conditions=EVIL,
                voids={EVIL: 1},
                verdict=EVIL,
            )
        ],
        paired=[
            Paired(old=EVIL, new=EVIL, source=SIM, result=paired_difference(1, 1, 1, 1), conditions=EVIL)
        ],
        failures=[FailureModes(label=EVIL, turn=1, source=SIM, successes=1, n=2, modes={EVIL: 1})],
        films=[
            FilmStrip(
                label=EVIL,
                outcome=Outcome.failure(EVIL),
                source=SIM,
                times_s=[0.0],
                cameras={EVIL: [np.zeros((8, 8, 3), np.uint8)]},
                seed=1,
                note=EVIL,
            )
        ],
        diagnosis=Diagnosis(
            broken=EVIL,
            family="data",
            sentence=EVIL,
            numbers=[Fact(name=EVIL, value=EVIL, note=EVIL)],
            checks=[
                CheckResult(
                    family="data",
                    name=EVIL,
                    verdict=CheckVerdict.OK,
                    sentence=EVIL,
                    statistic=EVIL,
                    value=1,
                    unit=EVIL,
                    shared_assumptions=[EVIL],
                )
            ],
            remedy=EVIL,
            next_command=EVIL,
        ),
        seal=Seal(
            commitment=EVIL,
            diagnosed=EVIL,
            held=EVIL,
            agrees=None,
            explanation=EVIL,
            held_values=[Fact(name=EVIL, value=EVIL)],
            order=[LedgerEntry(id=1, time=EVIL, kind=EVIL, evidence=None, summary=EVIL, hash=EVIL)],
        ),
        plan=DataPlan(sentence=EVIL, by_whom=EVIL, corrections=[Correction(what=EVIL, was=EVIL, now=EVIL)]),
        blind_spots=[BlindSpot(assumption=EVIL, rests_on_it=EVIL, how_to_test=EVIL)],
        stamps=[StampView(label=EVIL, hash=EVIL, fields={EVIL: EVIL})],
        seeds={EVIL: EVIL},
        ledger=[LedgerEntry(id=1, time=EVIL, kind=EVIL, evidence=SIM, summary=EVIL, hash=EVIL)],
        ledger_head=EVIL,
    )


@pytest.mark.parametrize("model", [example_model, empty_model, evil_model])
def test_every_report_is_well_formed_and_loads_nothing(model: Any) -> None:
    html = render_report(model())
    page = parse(html)
    assert page.wrong == []
    assert page.open == []
    assert not page.tags & {"script", "link", "iframe", "object", "embed", "base", "form"}
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert all(
        value.startswith("data:image/jpeg;base64,") for name, value in page.attributes if name == "src"
    )
    assert all(value.startswith("#") for name, value in page.attributes if name == "href")
    assert "url(" not in html
    assert "@import" not in html


def test_markup_in_names_is_shown_as_text_and_never_runs() -> None:
    html = render_report(evil_model())
    assert "<script" not in html
    assert "onerror=alert(1)>" not in html
    assert html.count("&lt;script&gt;") > 40


def test_the_forbidden_word_is_nowhere_in_our_source_or_report() -> None:
    word = "certi" + "fied"
    root = Path(simgap.__file__).parent
    ours = [
        *(root / "ledger").rglob("*.py"),
        *(root / "report").rglob("*"),
        *(root / "statistics").rglob("*.py"),
    ]
    guilty = [
        path.name
        for path in ours
        if path.is_file() and path.suffix != ".pyc" and word in path.read_text().lower()
    ]
    assert guilty == []
    assert word not in render_report(example_model()).lower()


@pytest.mark.parametrize(
    ("sources", "head", "words"),
    [
        ([], "No evidence", "no rollouts"),
        ([SIM], "Simulated evidence only", "nothing here is evidence about a real robot"),
        ([SIM, EvidenceKind.SECOND_ENGINE], "Simulated evidence only", "nothing here"),
        ([SIM, SURROGATE], "Surrogate evidence", "Nothing here is evidence about a real robot"),
        ([SIM, REAL], "Hardware evidence", "Numbers marked simulation only decided"),
    ],
)
def test_the_banner_follows_from_the_evidence_and_cannot_be_typed_in(
    sources: list[EvidenceKind], head: str, words: str
) -> None:
    result = banner(sources)
    assert result.head == head
    assert words in result.body


def test_real_trials_that_are_all_void_are_no_hardware_evidence() -> None:
    rates = [
        Rate(label="Arm", turn=1, source=REAL, estimate=wilson(0, 0), voids={"power": 4}),
        Rate(label="Sim", turn=1, source=SIM, estimate=wilson(1, 2)),
    ]
    assert "Simulated evidence only" in render_report(dataclasses.replace(empty_model(), rates=rates))


def test_the_banner_stands_before_the_title() -> None:
    html = render_report(example_model())
    assert 0 < html.index("Nothing here is evidence about a real robot") < html.index("<h1>")


def test_an_empty_report_says_what_is_missing_instead_of_leaving_it_out() -> None:
    html = render_report(empty_model())
    for words in (
        "No claim is made",
        "No rollouts and no trials were run",
        "Nothing was compared",
        "No diagnosis was made",
        "Nothing was sealed",
        "Nothing was changed",
        "Blind spots were not computed: unknown",
        "took unknown",
        "command unknown",
        "Seeds unknown",
        "Versions unknown",
    ):
        assert words in html


def test_a_rate_without_trials_has_a_reason_and_no_interval() -> None:
    model = dataclasses.replace(
        empty_model(),
        rates=[
            Rate(
                label="Stand-in", turn=1, source=SURROGATE, estimate=wilson(0, 0), voids={"arm lost power": 5}
            )
        ],
    )
    html = render_report(model)
    assert "0 of 0" in html
    assert "no interval: no trial counts (n = 0)" in html
    assert "5 voids: 5 arm lost power" in html
    assert 'class="mark"' not in html.split('class="turn"')[1]


def test_all_seven_families_are_shown_and_the_gravest_check_decides() -> None:
    checks = [
        CheckResult(family="plant", name=str(v), verdict=v, sentence="")
        for v in (CheckVerdict.OK, CheckVerdict.CANNOT_TELL, CheckVerdict.BROKEN)
    ]
    html = render_report(
        dataclasses.replace(
            empty_model(),
            diagnosis=Diagnosis(broken=None, family=None, sentence="Run 20 more trials.", checks=checks[:2]),
        )
    )
    assert [family for family in FAMILIES if f"<b>{family}</b>" in html] == list(FAMILIES)
    assert html.count("– not run") == 6
    assert '<li class="tone-cannot-tell"><b>plant</b>' in html
    assert "It cannot be told yet" in html
    html = render_report(
        dataclasses.replace(
            empty_model(), diagnosis=Diagnosis(broken="x", family="plant", sentence="", checks=checks)
        )
    )
    assert '<li class="tone-broken"><b>plant</b>' in html


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(UsageError, match="known: evaluation"):
        CheckResult(family="weather", name="x", verdict=CheckVerdict.OK, sentence="")


@pytest.mark.parametrize(
    ("counts", "tone", "words"),
    [
        ((20, 14, 2, 3), "better", "turn 2 is better than turn 1"),
        ((20, 2, 14, 3), "worse", "Keep turn 1"),
        ((20, 6, 4, 10), "unclear", "not proof that they are equal"),
        ((20, 0, 0, 0), "unclear", "differ on 0 of 20 pairs"),
        ((0, 0, 0, 0), "none", "Not one pair"),
        ((30, 6, 0, 4), "better", "+15 points"),
        ((0, 5, 0, 0), "unclear", "not shown to be better"),
        ((0, 6, 0, 0), "better", "+100 points"),
    ],
)
def test_the_comparison_is_said_in_plain_words_also_when_it_shows_nothing(
    counts: tuple[int, int, int, int], tone: str, words: str
) -> None:
    result = paired_words(
        Paired(old="turn 1", new="turn 2", source=SURROGATE, result=paired_difference(*counts))
    )
    assert result.tone == tone
    assert words in f"{result.head}. {result.body}"


def test_agreement_counts_only_when_the_diagnosis_came_before_the_opening() -> None:
    def entry(number: int, kind: str) -> LedgerEntry:
        return LedgerEntry(id=number, time="", kind=kind, evidence=None, summary="", hash="")

    def order(*kinds: str) -> tuple[str, bool]:
        rows = [entry(k + 1, kind) for k, kind in enumerate(kinds)]
        result = seal_order(Seal(commitment="x", diagnosed="a", held="a", agrees=True, order=rows))
        return result.text, result.warning

    assert order("commitment", "finding", "seal_opened") == (
        (
            "The hidden gap was committed (row 1), the diagnosis written down (row 2), and only then the seal"
            " opened (row 3)."
        ),
        False,
    )
    assert order("commitment", "seal_opened", "finding")[0].endswith("agreement proves nothing.")
    assert order("commitment", "finding")[0].endswith("still closed.")
    assert order()[1]


@pytest.mark.parametrize(
    ("agrees", "rows", "head"),
    [(True, 3, "Yes"), (False, 3, "No"), (True, 0, "Not proved"), (None, 3, "Not decided")],
)
def test_the_answer_on_top_says_yes_only_with_agreement_and_order(
    agrees: bool | None, rows: int, head: str
) -> None:
    model = example_model()
    assert model.seal is not None
    seal = dataclasses.replace(model.seal, agrees=agrees, order=model.seal.order[:rows])
    assert glance(dataclasses.replace(model, seal=seal))[2].head == head


def test_uneven_voids_are_pointed_out() -> None:
    rates = [
        Rate(label=f"r{k}", turn=k, source=SURROGATE, estimate=wilson(5, 10), voids={"cable": k * 3})
        for k in (0, 1)
    ]
    assert "r1, turn 1 (23\N{NO-BREAK SPACE}% void)" in uneven_voids(rates)
    assert uneven_voids(rates[:1]) == ""


@pytest.mark.parametrize(
    ("value", "n", "text"),
    [
        (37 / 40, 40, "93 %"),
        (0.0, 3, "0 %"),
        (1.0, 3, "100 %"),
        (0.999, 100, "99.9 %"),
        (0.004, 100, "0.4 %"),
        (0.9925, 400, "99.3 %"),
        (None, 0, "unknown"),
    ],
)
def test_a_rate_is_never_rounded_to_all_or_nothing(value: float | None, n: int, text: str) -> None:
    assert percent(value, n).replace("\N{NO-BREAK SPACE}", " ") == text


def test_numbers_read_well() -> None:
    assert [number(v) for v in (None, float("nan"), 0, 3.1e-7, 0.0123456, 118, 12345.6, -2.5)] == [
        "unknown", "unknown", "0", "3.1e−7", "0.0123", "118", "12,346", "−2.5",
    ]  # fmt: skip
    assert [points(v) for v in (None, 0.0, 0.308, -0.125, 0.004, -0.00001)] == [
        "unknown",
        "0",
        "+31",
        "−13",
        "+0.4",
        "−0.0",
    ]
    assert [p_text(v) for v in (None, 0.0004, 0.0042, 1.0)] == ["p unknown", "p < .001", "p = .004", "p = 1"]


def test_pictures_are_shrunk_and_then_dropped_to_stay_within_the_budget() -> None:
    rng = np.random.default_rng(0)
    noise = {"front": [rng.integers(0, 256, (480, 640, 3), dtype=np.uint8) for _ in range(6)]}
    strips = [
        FilmStrip(label=str(k), outcome=Outcome.success(), source=SIM, times_s=list(range(6)), cameras=noise)
        for k in range(4)
    ]
    full, nothing = encode_films(strips)
    assert len(full) == 4
    assert nothing == ""
    few, left_out = encode_films(strips, budget_bytes=12_000)
    assert 0 < len(few) < 4
    assert "film strips were left out" in left_out
    assert sum(len(uri) for f in few for _, uris in f.rows for uri in uris) <= 12_000


def test_broken_film_strips_are_refused() -> None:
    with pytest.raises(UsageError, match="one frame a time"):
        FilmStrip(
            label="x",
            outcome=Outcome.success(),
            source=SIM,
            times_s=[0.0, 1.0],
            cameras={"front": [np.zeros((4, 4, 3), np.uint8)]},
        )
    strip = FilmStrip(
        label="x",
        outcome=Outcome.success(),
        source=SIM,
        times_s=[0.0],
        cameras={"front": [np.zeros((4, 4, 3), np.float32)]},
    )  # type: ignore[list-item]
    with pytest.raises(DataError, match="uint8"):
        encode_films([strip])


def test_every_frame_has_its_time_and_its_mode_is_named() -> None:
    html = render_report(
        dataclasses.replace(
            empty_model(), films=[film("Stand-in", Outcome.failure("dropped"), SURROGATE, 3, 5.0)]
        )
    )
    assert "✕ dropped" in html
    assert (
        re.findall(r">(\d\.\d s)</div>", html) == ["0.0 s", "1.0 s", "2.0 s", "3.0 s", "4.0 s", "5.0 s"] * 2
    )


def test_the_report_is_the_same_bytes_twice_and_written_whole(tmp_path: Path) -> None:
    path = write_report(example_model(), tmp_path / "deep" / "report.html")
    assert path.read_text() == render_report(example_model())
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def test_a_report_that_would_be_too_large_is_refused() -> None:
    rows = [
        LedgerEntry(id=k, time="t", kind="note", evidence=None, summary="x" * 1000, hash="h")
        for k in range(6000)
    ]
    with pytest.raises(DataError, match="fewer ledger rows"):
        render_report(dataclasses.replace(empty_model(), ledger=rows))

"""The sentences and numbers of the report, computed from values so that no text can disagree with its numbers."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

from simgap.ledger import Claim
from simgap.report.model import CheckResult, JointTrace, Paired, Rate, Seal
from simgap.statistics import Difference, Estimate, visible_difference
from simgap.types import EvidenceKind

GLOSSARY = (
    "Turn: once round the loop of training, trials, diagnosis and repair. In use: objects lie where they lie"
    " when the robot works. Seal: the stand-in robot's hidden difference, committed by its hash before the"
    " first trial."
)
_PERCENT = "\N{NO-BREAK SPACE}%"
SOURCE_NAMES = {
    EvidenceKind.SIM: "simulation",
    EvidenceKind.SECOND_ENGINE: "second simulator",
    EvidenceKind.SURROGATE: "surrogate",
    EvidenceKind.REAL: "real robot",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Banner:
    """What kind of evidence a report holds."""

    tone: EvidenceKind | None
    head: str
    body: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedWords:
    """The comparison in plain words."""

    tone: str
    """``better``, ``worse``, ``unclear`` or ``none``."""
    head: str
    body: str


def claim_rests(claim: Claim) -> str:
    """Say which ledger rows a claim rests on, what they say, and which do not count."""
    sides = (
        ("rests on", claim.supporting),
        ("against it:", claim.against),
        ("decides neither way:", claim.undecided),
    )
    said = [
        f"{words} ledger row{'s' if len(rows) > 1 else ''} {', '.join(str(number) for number, _ in rows)}"
        for words, rows in sides
        if rows
    ]
    said += [f"row {number} does not count: {why}" for number, why in claim.uncounted]
    return f"claimed: at least {100 * claim.at_least:.4g}{_PERCENT} of trials; {'; '.join(said)}"


def banner(sources: Collection[EvidenceKind]) -> Banner:
    """Return the banner for the kinds of evidence a report holds; the strongest kind names it, the others are listed."""
    if EvidenceKind.REAL in sources:
        mixed = sorted(SOURCE_NAMES[s] for s in sources if s is not EvidenceKind.REAL)
        rest = (
            f" Numbers marked {' or '.join(filter(None, [', '.join(mixed[:-1]), *mixed[-1:]]))} only decided"
            " what was worth hardware time."
            if mixed
            else ""
        )
        return Banner(
            tone=EvidenceKind.REAL,
            head="Hardware evidence",
            body=f"Trials on a real robot. They hold for the robot, conditions and dates named here.{rest}",
        )
    if EvidenceKind.SURROGATE in sources:
        return Banner(
            tone=EvidenceKind.SURROGATE,
            head="Surrogate evidence",
            body=(
                "A sealed simulated robot stood in for hardware. Nothing here is evidence about a real robot."
            ),
        )
    if sources:
        return Banner(
            tone=EvidenceKind.SIM,
            head="Simulated evidence only",
            body=(
                "No robot and no stand-in was tried. It can say what is broken or worth hardware time;"
                " nothing here is evidence about a real robot."
            ),
        )
    return Banner(
        tone=None, head="No evidence", body="This report holds no rollouts and no trials that count."
    )


def percent(value: float | None, n: int = 100) -> str:
    """Return a rate as text, with one decimal from n = 200 on; only 0 and 1 themselves are ever printed as 0 % and 100 %."""
    if value is None:
        return "unknown"
    for digits in range(1 if n >= 200 else 0, 6):
        text = _fixed(100 * value, digits)
        if value in (0.0, 1.0) or float(text) not in (0.0, 100.0):
            return f"{text}{_PERCENT}"
    return f"{100 * value:g}{_PERCENT}"


def interval(estimate: Estimate) -> str:
    """Return an interval as text, or why there is none."""
    if estimate.low is None or estimate.high is None:
        return f"unknown: {estimate.reason}"
    return (
        f"{percent(estimate.low, estimate.n).removesuffix(_PERCENT)} to {percent(estimate.high, estimate.n)}"
    )


def level(confidence: float) -> str:
    """Return a confidence level as text."""
    return f"{100 * confidence:g}{_PERCENT}"


def _fixed(value: float, digits: int) -> str:
    """Round half up, as people do and as binary formatting does not (37 of 40 is 93 %, not 92 %)."""
    return str(Decimal(repr(round(value, 9))).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def points(value: float | None) -> str:
    """Return a difference of rates in percentage points, signed, with a true minus."""
    if value is None:
        return "unknown"
    rounded = int(_fixed(100 * value, 0))
    if rounded == 0 and abs(value) > 1e-12:
        return f"{100 * value:+.1f}".replace("-", "−")
    return "0" if rounded == 0 else f"{rounded:+d}".replace("-", "−")


def difference_interval(difference: Difference) -> str:
    """Return the interval of a difference in points, or why there is none."""
    if difference.low is None or difference.high is None:
        return f"unknown: {difference.reason}"
    return f"{points(difference.low)} to {points(difference.high)} points"


def number(value: float | None) -> str:
    """Return a number with three significant digits and no needless zeros; ``unknown`` for None or NaN."""
    if value is None or math.isnan(value):
        return "unknown"
    if value != 0 and (abs(value) >= 1e5 or abs(value) < 1e-3):
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa.removesuffix('.0')}e{int(exponent)}".replace("-", "−")
    if abs(value) >= 1000 or float(value).is_integer():
        return f"{value:,.0f}".replace("-", "−")
    return f"{value:.3g}".replace("-", "−")


def p_text(value: float | None) -> str:
    """Return a p-value as text."""
    if value is None:
        return "p unknown"
    return "p < .001" if value < 0.001 else f"p = {value:.3f}".replace("0.", ".", 1) if value < 1 else "p = 1"


def duration(seconds: float | None) -> str:
    """Return a duration as text."""
    if seconds is None:
        return "unknown"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"


def voids(reasons: Mapping[str, int]) -> str:
    """Return the voids of a set in words, with their reasons."""
    total = sum(reasons.values())
    if total == 0:
        return "no voids"
    listed = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
    return f"{total} void{'s' if total > 1 else ''}: {listed}"


def uneven_voids(rates: Collection[Rate]) -> str:
    """Return a warning when voids fell unevenly on sets of the same source, else nothing."""
    found = []
    for source in EvidenceKind:
        shares = [
            (r, sum(r.voids.values()) / max(1, r.estimate.n + sum(r.voids.values())))
            for r in rates
            if r.source is source
        ]
        if len(shares) > 1 and max(s for _, s in shares) - min(s for _, s in shares) > 0.05:
            worst = max(shares, key=lambda item: item[1])
            found.append(f"{worst[0].label}, turn {worst[0].turn} ({percent(worst[1])} void)")
    return (
        f"Voids are uneven between sets; the most in {', '.join(found)}. Read the comparison with that in"
        " mind."
        if found
        else ""
    )


def paired_words(paired: Paired) -> PairedWords:
    """Return what a paired comparison shows, including that it shows nothing."""
    result, old, new = paired.result, paired.old, paired.new
    difference, counts = result.difference, result.counts
    if difference.point is None or difference.low is None or difference.high is None:
        return PairedWords(
            tone="none",
            head=f"{new} and {old} cannot be compared",
            body=f"Not one pair of trials counts ({difference.reason}).",
        )
    size = (
        f"{points(difference.point)} points ({level(difference.confidence)} interval"
        f" {difference_interval(difference)}) on {counts.n} pairs"
    )
    if difference.low > 0:
        return PairedWords(tone="better", head=f"{new} is better than {old}", body=f"{size}.")
    if difference.high < 0:
        return PairedWords(tone="worse", head=f"{new} is worse than {old}", body=f"{size}. Keep {old}.")
    body = (
        f"{size}. The interval holds zero, so {new} may be better or worse; that is not proof that they are"
        " equal. "
    )
    body += (
        f"The two differ on {counts.discordant} of {counts.n} pairs."
        f" {_could_miss((counts.n11 + counts.n01) / counts.n, counts.n)}"
    )
    return PairedWords(tone="unclear", head=f"{new} is not shown to be better than {old}", body=body)


def _could_miss(rate: float, n: int) -> str:
    rise = visible_difference(rate, n)
    size = "any rise" if rise is None else f"a rise of less than {math.ceil(100 * rise)} points"
    return (
        f"As a guide, two independent arms of {n} trials usually miss {size} from {percent(rate, n)}; pairing"
        " helps somewhat."
    )


def measured(check: CheckResult) -> str:
    """Return a check's statistic against its threshold and its n, as text."""
    parts = []
    if check.value is not None or check.threshold is not None:
        unit = f" {check.unit}" if check.unit else ""
        limit = "no threshold" if check.threshold is None else f"threshold {number(check.threshold)}{unit}"
        parts.append(
            f"{check.statistic or 'statistic'}:"
            f" {number(check.value)}{unit if check.value is not None else ''} ({limit})"
        )
    elif check.statistic:
        parts.append(f"{check.statistic}: unknown")
    if check.n is not None:
        parts.append(f"n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{check.n:,}")
    return " · ".join(parts)


def shared(check: CheckResult) -> str:
    """Return what a check assumes together with the thing it checks, as text."""
    if check.shared_assumptions is None:
        return "Shared assumptions: unknown"
    return (
        f"Shares with what it checks: {', '.join(check.shared_assumptions)}"
        if check.shared_assumptions
        else "Shares no assumption with what it checks"
    )


def shared_by(checks: Sequence[CheckResult]) -> list[tuple[str, list[str]]]:
    """Return each text of :func:`shared` once, with the names of the checks that it holds for."""
    found: dict[str, list[str]] = {}
    for check in checks:
        found.setdefault(shared(check), []).append(check.name)
    return list(found.items())


def lowest(trace: JointTrace) -> float:
    """Return the lower end of a trace's axis."""
    return min(*trace.commanded, *trace.measured)


def highest(trace: JointTrace) -> float:
    """Return the upper end of a trace's axis."""
    return max(*trace.commanded, *trace.measured)


def span(values: tuple[float, float] | None, unit: str) -> str:
    """Return a factor's range as text."""
    if values is None:
        return "not varied"
    low, high = (number(value) for value in values)
    return f"fixed at {low} {unit}".rstrip() if low == high else f"{low} to {high} {unit}".rstrip()


@dataclass(frozen=True, kw_only=True, slots=True)
class SealOrder:
    """What the ledger says about the order of commitment, diagnosis and opening."""

    text: str
    warning: bool


def seal_order(seal: Seal) -> SealOrder:
    """Return in words whether the diagnosis was written before the seal was opened, as the ledger rows show it."""
    first = {row.kind: row.id for row in sorted(seal.order, key=lambda row: -row.id)}
    committed, found, opened = (first.get(kind) for kind in ("commitment", "finding", "seal_opened"))
    if committed is None or found is None:
        return SealOrder(
            text="The ledger rows of the commitment and the diagnosis are not shown: their order is unknown.",
            warning=True,
        )
    if opened is None:
        text = (
            f"The hidden gap was committed (row {committed}) and the diagnosis written down (row {found});"
            " the seal is still closed."
        )
        return SealOrder(text=text, warning=False)
    if opened < found or opened < committed:
        return SealOrder(
            text="The seal was opened before the diagnosis was written down: agreement proves nothing.",
            warning=True,
        )
    text = (
        f"The hidden gap was committed (row {committed}), the diagnosis written down (row {found}), and only"
        f" then the seal opened (row {opened})."
    )
    return SealOrder(text=text, warning=False)


def heights(trace: JointTrace) -> list[str]:
    """Return the numbers beside the plot of a joint, from top to bottom."""
    low, high = lowest(trace), highest(trace)
    return [f"{v:.3g} {trace.unit}" for v in (high, (low + high) / 2, low)]


def moments(trace: JointTrace) -> list[str]:
    """Return the numbers under the plot of a joint, from its first moment on."""
    whole = trace.times_s[-1] - trace.times_s[0]
    return [f"{t:.3g} s" for t in (0.0, whole / 2, whole)]

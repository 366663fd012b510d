"""Intervals as inline SVG. Positions are percentages, so a plot fits any width without a script and text stays its size."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from simgap.report.model import JointTrace
from simgap.statistics import Difference, Estimate
from simgap.types import EvidenceKind

TICKS = (0, 25, 50, 75, 100)
_HEIGHT = 26
_MIDDLE = _HEIGHT / 2
_TRACE_HEIGHT = 120


def interval_svg(estimate: Estimate, source: EvidenceKind) -> Markup:
    """Return one success rate on an axis from 0 to 100 %: a mark for the point, a bar for the interval.

    The mark's shape tells the source as well as its colour does: circle simulation, diamond surrogate, square
    real robot.
    """
    label = f"{estimate.successes} of {estimate.n}"
    if estimate.point is None or estimate.low is None or estimate.high is None:
        return _svg(_grid(), f"{label}, no interval")
    low, high, point = 100 * estimate.low, 100 * estimate.high, 100 * estimate.point
    return _svg(
        _grid() + _bar(low, high) + _mark(point, source),
        f"{label}, interval {low:.1f} to {high:.1f} percent",
        tone=source.value,
    )


def difference_svg(difference: Difference, reach: int, source: EvidenceKind) -> Markup:
    """Return a difference on an axis from -reach to +reach points with a line at zero."""

    def place(value: float) -> float:
        return 50 + 50 * max(-1.0, min(1.0, 100 * value / reach))

    ticks = "".join(
        f'<line class="{"zero" if x == 50 else "tick"}" x1="{x}%" x2="{x}%" y1="0" y2="{_HEIGHT}"/>'
        for x in TICKS
    )
    if difference.point is None or difference.low is None or difference.high is None:
        return _svg(ticks, "no interval")
    body = (
        ticks + _bar(place(difference.low), place(difference.high)) + _mark(place(difference.point), source)
    )
    return _svg(
        body,
        f"difference {100 * difference.point:.0f} points, interval {100 * difference.low:.0f} to"
        f" {100 * difference.high:.0f}",
        tone=source.value,
    )


def difference_reach(difference: Difference) -> int:
    """Return the half width of the difference axis in points: 20, 40 or 100, the smallest that holds the interval."""
    if difference.low is None or difference.high is None:
        return 100
    extreme = 100 * max(abs(difference.low), abs(difference.high))
    return next((reach for reach in (20, 40) if extreme <= reach), 100)


def share_svg(share: float, tone: str) -> Markup:
    """Return a thin bar that fills ``share`` of its width."""
    width = 100 * max(0.0, min(1.0, share))
    body = (
        f'<rect class="track" width="100%" height="8" rx="2"/><rect class="fill" width="{width:.2f}%"'
        ' height="8" rx="2"/>'
    )
    return Markup(
        f'<svg class="share tone-{Markup.escape(tone)}" width="100%" height="8"'
        f' aria-hidden="true">{body}</svg>'
    )


def trace_svg(trace: JointTrace) -> Markup:
    """Return what a joint was told (dashed) and what it did (line) over time; the axis holds both."""
    values = [*trace.commanded, *trace.measured]
    low, high = min(values), max(values)
    reach, first, last = (high - low) or 1.0, trace.times_s[0], trace.times_s[-1]

    def line(kind: str, series: Sequence[float]) -> str:
        places = (
            f"{100 * (t - first) / ((last - first) or 1.0):.2f},{_TRACE_HEIGHT * (high - v) / reach:.2f}"
            for t, v in zip(trace.times_s, series, strict=True)
        )
        return f'<polyline class="{kind}" points="{" ".join(places)}"/>'

    label = (
        f"{trace.name}: commanded and measured, {low:.3g} to {high:.3g} {trace.unit}, {last - first:.1f} s"
    )
    box = (
        f'viewBox="0 0 100 {_TRACE_HEIGHT}" preserveAspectRatio="none" width="100%" height="{_TRACE_HEIGHT}"'
    )
    body = line("commanded", trace.commanded) + line("measured", trace.measured)
    return Markup(f'<svg class="trace" {box} role="img" aria-label="{Markup.escape(label)}">{body}</svg>')


def _svg(body: str, label: str, tone: str = "none") -> Markup:
    return Markup(
        f'<svg class="ci tone-{tone}" width="100%" height="{_HEIGHT}" role="img"'
        f' aria-label="{Markup.escape(label)}">{body}</svg>'
    )


def _grid() -> str:
    return "".join(f'<line class="tick" x1="{x}%" x2="{x}%" y1="0" y2="{_HEIGHT}"/>' for x in TICKS)


def _bar(low: float, high: float) -> str:
    caps = "".join(
        f'<line class="cap" x1="{x:.2f}%" x2="{x:.2f}%" y1="{_MIDDLE - 5}" y2="{_MIDDLE + 5}"/>'
        for x in (low, high)
    )
    return f'<line class="bar" x1="{low:.2f}%" x2="{high:.2f}%" y1="{_MIDDLE}" y2="{_MIDDLE}"/>{caps}'


def _mark(at: float, source: EvidenceKind) -> str:
    """Return the mark inside a nested, overflowing SVG, so that shapes in pixels can stand at a percentage."""
    shape = {
        EvidenceKind.SIM: '<circle class="mark" r="5"/>',
        EvidenceKind.SECOND_ENGINE: '<path class="mark" d="M0,-6 L5.5,4.5 L-5.5,4.5 Z"/>',
        EvidenceKind.SURROGATE: '<path class="mark" d="M0,-6.5 L6.5,0 L0,6.5 L-6.5,0 Z"/>',
        EvidenceKind.REAL: '<rect class="mark" x="-5" y="-5" width="10" height="10"/>',
    }[source]
    return f'<svg x="{at:.2f}%" y="{_MIDDLE}" overflow="visible">{shape}</svg>'


def legend_svg(source: EvidenceKind) -> Markup:
    """Return the mark of a source on its own, for the legend."""
    body = _mark(50, source)
    return Markup(
        f'<svg class="key tone-{source.value}" width="20" height="{_HEIGHT}" aria-hidden="true">{body}</svg>'
    )

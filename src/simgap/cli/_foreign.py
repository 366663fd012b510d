"""How a check of something that is no dataset is shown: statistics, actuator logs, policies, trial logs, paired rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from simgap.cli._output import foreign, marked
from simgap.wording import number_of

if TYPE_CHECKING:
    from rich.console import Console

_MARKS = {"fault": "red", "warning": "yellow", "note": "cyan"}


def show_foreign(console: Console, document: dict[str, Any]) -> None:
    """Draw the report of something that is no dataset of episodes."""
    layout, counts = document["layout"], document["counts"]
    numbers = ", ".join(f"{v} {k}" for k, v in counts.items() if isinstance(v, int))
    console.print(f"{foreign(document['path'])}: {layout['what'].replace('_', ' ')}, {numbers}")
    show = _SHOW.get(layout["what"])
    if show is not None:
        show(console, document["measurements"])
    for finding in document["findings"]:
        mark = _MARKS[finding["severity"]]
        console.print(
            marked(finding["severity"], mark, f" {finding['code']}: {foreign(finding['sentence'])}")
        )
        console.print(f"        -> {foreign(finding['remedy'])}")
    if not document["findings"]:
        console.print("nothing wrong found")


def show_foreign_info(console: Console, document: dict[str, Any]) -> None:
    """Draw what something that is no dataset holds."""
    for key, value in document.items():
        if key not in ("kind", "schema"):
            console.print(f"{key}: {foreign(str(value))}")


def _actuators(console: Console, measured: Mapping[str, Any]) -> None:
    from rich.table import Table

    clock, units = measured["clock"], measured["units"]["position"]
    console.print(
        f"{clock['measured_hz']:.2f} Hz (time stamps in {clock['time_unit']}), positions in"
        f" {units['unit'] or 'an unknown unit'}"
    )
    table = Table("joint", "motions", "scale", "lag ms up to", "mean bias", "loaded", box=None)
    for name, joint in measured["joints"].items():
        spans = (_span(joint["scale"], 3), _span(joint["lag_ms_up_to"], 0))
        table.add_row(
            foreign(name),
            f"{joint['moving']} of {joint['motions']}",
            *spans,
            f"{joint['bias']['mean']:+.4f}",
            "yes" if joint["is_loaded"] else "no",
        )
    console.print(table)


def _span(span: Mapping[str, Any], decimals: int) -> str:
    return "-" if span["min"] is None else f"{span['min']:.{decimals}f} to {span['max']:.{decimals}f}"


def _trials(console: Console, measured: Mapping[str, Any]) -> None:
    rates = dict(measured["arms"])
    for name, table in measured["tables"].items():
        rates |= {f"{name}: {c}": r for c, r in table.get("conditions", {}).items()}
    for name, rate in rates.items():
        between = (
            "undefined"
            if rate["interval"] is None
            else f"{100 * rate['interval'][0]:.0f} to {100 * rate['interval'][1]:.0f} %"
        )
        aside = "".join(f", {rate[k]} {k}" for k in ("void", "missing", "partial") if rate[k])
        console.print(
            f"  {foreign(name)}: {rate['success']} of {rate['n']} ({rate['method']}: {between}){aside}"
        )
    for name, compared in measured["comparisons"].items():
        for c in (c for c in compared if c["difference"] is not None):
            low, high = (100 * v for v in c["interval"])
            all_of = f" over {c['comparisons']} comparisons together" if c["comparisons"] > 1 else ""
            console.print(
                f"  {foreign(name)}: {foreign(c['new'])} against {foreign(c['old'])} on the same starts:"
                f" {100 * c['difference']:+.1f} points (95 % interval {low:+.1f} to {high:+.1f}; exact"
                f" McNemar p = {c['p_adjusted']:.2g}{all_of}); {c['pairs']} pairs on {c['distinct_scenes']}"
                f" distinct scenes; only {foreign(c['new'])} succeeds on {c['only_new']}, only"
                f" {foreign(c['old'])} on {c['only_old']}"
            )


def _pairs(console: Console, measured: Mapping[str, Any]) -> None:
    for name, table in measured["tables"].items():
        for group, numbers in table["groups"].items():
            r, rho = numbers.get("pearson_r"), numbers.get("spearman_rho")
            parts = [f"{label} {value:.3f}" for label, value in (("r", r), ("rho", rho)) if value is not None]
            said = "".join(f", printed {v:.3f}" for v in numbers.get("printed_r", ()))
            inside = [
                f"{p} {v['pearson_r']:.3f} (n = {v['n']})"
                for p, v in numbers.get("within_policy", {}).items()
                if v["pearson_r"] is not None
            ]
            alone = f"; within each policy r {', '.join(inside)}" if inside else ""
            console.print(
                f"  {foreign(name)} {foreign(group)}: n = {numbers['n']},"
                f" {', '.join(parts) or 'no correlation defined'}{said}{foreign(alone)}"
            )
        if (means := table.get("policy_means")) is not None and means["pearson_r"] is not None:
            console.print(
                f"  {foreign(name)}, means of {number_of(means['n'], 'policy', 'policies')} over"
                f" {means['groups']} groups: r"
                f" {means['pearson_r']:.3f}"
            )


_SHOW: dict[str, Callable[[Console, Mapping[str, Any]], None]] = {
    "actuator_logs": _actuators,
    "trial_logs": _trials,
    "sim_real_pairs": _pairs,
}

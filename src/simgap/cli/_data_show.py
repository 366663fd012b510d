"""What the actions of ``simgap data`` show to people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simgap.cli._output import duration, foreign, marked
from simgap.wording import number_of

if TYPE_CHECKING:
    from rich.console import Console

_MARKS = {"fault": "red", "warning": "yellow", "note": "cyan"}


def show_info(console: Console, document: dict[str, Any]) -> None:
    """Show what a dataset says of itself."""
    from rich.table import Table

    table = Table(show_header=False, box=None)
    for key in (
        "path",
        "version",
        "is_ours",
        "robot_type",
        "rate_hz",
        "episodes",
        "frames",
        "length",
        "cameras",
        "tasks",
        "outcomes",
        "fingerprint",
    ):
        table.add_row(key.replace("_", " "), foreign(_plain(document[key])))
    for key in ("action_spec", "state_spec"):
        table.add_row(
            key.replace("_", " "),
            foreign(", ".join(f"{d['name']} ({d['unit']})" for d in document[key]["dimensions"]))
            or "nothing was measured",
        )
    for note in document.get("notes", ()):
        table.add_row("assumed", foreign(note))
    console.print(table)


def _plain(value: Any) -> str:
    """Return a value as words: no brackets and quotes of a program."""
    if isinstance(value, dict):
        return ", ".join(f"{k} {_plain(v)}" for k, v in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "unknown" if value is None else str(value)


def show_report(console: Console, document: dict[str, Any]) -> None:
    """Show what a check found."""
    from rich.table import Table

    layout, counts = document["layout"], document["counts"]
    form = (
        f"LeRobot {layout['version']}" if str(layout["version"]).startswith("v") else str(layout["version"])
    )
    console.print(
        f"{foreign(document['path'])}: {form}, {foreign(layout['robot_type'])},"
        f" {number_of(counts['episodes_with_frames'], 'episode')},"
        f" {number_of(counts['frames_found'], 'frame')} at"
        f" {layout['rate_hz']:g} fps declared"
    )
    joints = {n: j for n, j in document["measurements"]["joints"].items() if j["lag_frames"] is not None}
    if joints:
        table = Table("joint", "relation", "lag frames", "lag ms", "scale", "moving", "still", "R2", box=None)
        for name, j in joints.items():
            cells = (j["scale"], j["moving"]["scale"], j["still"]["scale"], j["r2"])
            table.add_row(
                foreign(name),
                j["relation"],
                str(j["lag_frames"]),
                f"{j['lag_ms']:.0f}",
                *("-" if c is None else f"{c:.3f}" for c in cells),
            )
        console.print(table)
    for finding in document["findings"]:
        mark = _MARKS[finding["severity"]]
        console.print(
            marked(finding["severity"], mark, f" {finding['code']}: {foreign(finding['sentence'])}")
        )
        console.print(f"        -> {foreign(finding['remedy'])}")
    if not document["findings"]:
        console.print("nothing wrong found")


def show_written(console: Console, document: dict[str, Any]) -> None:
    """Show what a conversion or a merge wrote."""
    found = f", {document['found']} of them found" if document["found"] else ""
    console.print(
        f"{foreign(document['out'])}: {number_of(document['episodes'], 'episode')}{found},"
        f" {number_of(document['frames'], 'frame')},"
        f" {duration(document['seconds'])}"
    )
    console.print(
        f"fingerprint {document['fingerprint'][:16]}, codec {document['codec']}, {document['videos']}"
    )
    for note in document["notes"]:
        console.print(marked("note", "cyan", f" {foreign(note)}"))
    console.print(f"next: simgap data check {foreign(document['out'])}")


def show_statistics(console: Console, document: dict[str, Any]) -> None:
    """Show which stored statistics the data do not confirm."""
    from rich.table import Table

    for note in document["notes"]:
        console.print(marked("note", "cyan", f" {foreign(note)}"))
    differences = document["differences"]
    if not document["stored"]:
        console.print(f"{foreign(document['path'])} stores no statistics")
    elif not differences:
        console.print(
            f"{foreign(document['path'])}: the stored statistics are those of the data"
            f" ({document['features']} features, {number_of(document['frames'], 'frame')})"
        )
    else:
        table = Table("feature", "dimension", "statistic", "stored", "data", box=None)
        for d in differences[:20]:
            stored = "nothing" if d["stored"] is None else f"{d['stored']:.6g}"
            table.add_row(
                foreign(d["feature"]), foreign(d["dimension"]), d["statistic"], stored, f"{d['exact']:.6g}"
            )
        console.print(table)
        console.print(
            f"{number_of(len(differences), 'stored value is', 'stored values are')} not those of the data"
            + (", the worst 20 shown" if len(differences) > 20 else "")
        )
    stale = document["stale_episodes"]
    if stale:
        console.print(
            f"{number_of(len(stale), 'line of episodes_stats.jsonl is', 'lines of episodes_stats.jsonl are')} missing or not that of the rows (episodes"
            f" {foreign(', '.join(map(str, stale[:8])))})"
        )
    for path in document["written"]:
        console.print(f"wrote {foreign(path)}")
    if (differences or stale) and not document["written"]:
        console.print("repair them with --write")


def show_split(console: Console, document: dict[str, Any]) -> None:
    """Show what is in which part."""
    from rich.table import Table

    table = Table(
        "part",
        "episodes",
        "frames",
        *[foreign(task) or "(no task)" for task in document["tasks"]],
        box=None,
    )
    for name, episodes in document["parts"].items():
        tasks = [str(parts[name]) for parts in document["tasks"].values()]
        table.add_row(foreign(name), str(len(episodes)), str(document["frames"][name]), *tasks)
    console.print(table)
    for note in document["notes"]:
        console.print(marked("note", "cyan", f" {foreign(note)}"))
    for path in document["written"]:
        console.print(f"wrote {foreign(path)}")
    if not document["written"]:
        console.print("nothing was written; keep it with --out split.json, or --out FOLDER --datasets")

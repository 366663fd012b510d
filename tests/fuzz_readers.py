"""A small valid input for every reader, the commands that read it, and how one case is run and judged."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import resource
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from format_builders import write_act, write_robomimic, write_tub
from fuzz_mutations import mutate, pick
from simgap.cli import main
from test_data_check_layouts import write_21
from test_data_check_planted import clean, write
from test_data_foreign import actuator_log, policy_folder, stored, table
from test_pains_data_format import arm, scene

Argv = Callable[[Path, Path], list[Any]]
CHECK: Argv = lambda root, out: ["data", "check", root]  # noqa: E731
INFO: Argv = lambda root, out: ["data", "info", root]  # noqa: E731
STATS: Argv = lambda root, out: ["data", "stats", root, "--out", out / "stats.json"]  # noqa: E731
CONVERT: Argv = lambda root, out: [  # noqa: E731
    "data",
    "convert",
    root,
    "--task",
    "x",
    "--out",
    out / "converted",
    "--workers",
    "0",
]
SPLIT: Argv = lambda root, out: ["data", "split", root, "--parts", "a=0.5,b=0.5"]  # noqa: E731
EPISODES = (CHECK, CHECK, INFO, STATS, CONVERT, SPLIT)
LONGEST_S = 30
MOST_BYTES = 2 << 30
PROGRAM_BYTES = 300 << 20
"""What the program takes before it reads anything; a child of a test also inherits what writing the bombs took."""


@dataclass(frozen=True, kw_only=True)
class Reader:
    """One kind of input."""

    build: Callable[[Path], Any]
    commands: Sequence[Argv] = EPISODES
    root: str = ""
    """What the commands are given, below the folder that was built in."""
    is_heavy: bool = False
    """True where a command takes seconds."""


def _video(root: Path) -> None:
    recording = arm(3, 40)
    colour = np.array([200, 90, 30], dtype=np.uint8)
    rec = arm(3, 40, cameras={"top": [scene(s, colour) for s in recording.states]})
    rec.write(root / "d")


def _keymap(root: Path) -> None:
    write_robomimic(root / "demo.hdf5")
    keys = {
        "keys": {"actions": "action", "obs/robot0_eef_pos": "state"},
        "rate_hz": 20,
        "names": {},
        "images": {"agentview": "rgb"},
    }
    (root / "demo.hdf5.simgap-map.json").write_text(
        json.dumps(keys | {"dimensions": {"action:*": {"unit": "normalised"}}})
    )


def _pictures(root: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from format_builders import colours, jpeg

    write_21(root / "d")
    info = json.loads((root / "d/meta/info.json").read_text())
    info["features"]["observation.images.top"] = {
        "dtype": "image",
        "shape": [16, 24, 3],
        "names": ["height", "width", "channels"],
    }
    (root / "d/meta/info.json").write_text(json.dumps(info))
    for file in sorted((root / "d/data").rglob("*.parquet")):
        rows = pq.read_table(file)
        frames = [{"bytes": jpeg(f), "path": f"{k}.jpg"} for k, f in enumerate(colours(1, rows.num_rows))]
        pq.write_table(rows.append_column("observation.images.top", pa.array(frames)), file)


def _trials(root: Path) -> None:
    rows = [
        [
            k,
            "a" if k % 2 else "b",
            int(k < 12),
            "" if k < 12 else "drop",
            f"2026-03-{k // 5 + 1:02d}",
            2.5 * k,
        ]
        for k in range(20)
    ]
    table(
        root / "d/trials.csv", ("trial", "policy", "success", "failure_mode", "utc_date", "duration_s"), rows
    )
    (root / "d/calibration.json").write_text(
        json.dumps({"pan": {"range_min": 700, "range_max": 3300, "homing_offset": 3, "drive_mode": 0}})
    )


def _rollouts(root: Path) -> None:
    rows = [
        [
            k,
            "a" if k < 9 else "b",
            f"2026-03-{k // 3 + 1:02d}",
            1774342697081461155 + k,
            161315531767930 + k,
            1e18 + k,
            0.1 * k,
        ]
        for k in range(18)
    ]
    table(
        root / "d/rollouts.csv",
        ("episode_id", "policy", "utc_date", "created_ns", "first_ns", "offset_ns", "q0"),
        rows,
    )


def _aggregate(root: Path) -> None:
    table(
        root / "d/counts.csv",
        ("condition", "trials", "successes"),
        [["a", 50, 45], ["b", 50, 40], ["total", 100, 85]],
    )


def _pairs(root: Path) -> None:
    rows = [
        ["push", p, r, s] for p, r, s in (("a", 0.1, 0.2), ("b", 0.4, 0.5), ("c", 0.5, 0.4), ("d", 0.9, 0.8))
    ]
    table(root / "d/pairs.csv", ("task", "policy", "real_success", "sim_success"), rows)


def _logs(root: Path) -> None:
    for name in ("one", "second"):
        actuator_log(root / "d" / name)


def _split(root: Path) -> None:
    write(root / "d", clean(episodes=4, length=20))
    (root / "split.json").write_text(
        json.dumps({"kind": "episode_split", "parts": {"train": [0, 2], "val": [1, 3]}})
    )


def _calibration(root: Path) -> None:
    write_21(root / "d")
    entry = {"range_min": 1024, "range_max": 3072, "homing_offset": 0, "drive_mode": 0, "id": 1}
    names = json.loads((root / "d/meta/info.json").read_text())["features"]["action"]["names"]["motors"]
    (root / "arm.json").write_text(json.dumps({n.removesuffix(".pos"): dict(entry) for n in names}))


READERS: dict[str, Reader] = {
    "v30": Reader(build=lambda r: arm(3, 40).write(r / "d"), root="d"),
    "v30 video": Reader(build=_video, root="d"),
    "v21": Reader(build=lambda r: write_21(r / "d"), root="d"),
    "v21 pictures": Reader(build=_pictures, root="d"),
    "ours": Reader(build=lambda r: write(r / "d", clean(episodes=3, length=30)), root="d"),
    "tub": Reader(build=lambda r: write_tub(r / "d"), root="d"),
    "act": Reader(
        build=lambda r: write_act(r / "episode_0.hdf5"),
        root="episode_0.hdf5",
        commands=[lambda r, o, c=c: [*c(r, o), "--rate-hz", "50"] for c in EPISODES],
    ),
    "robomimic": Reader(build=lambda r: write_robomimic(r / "demo.hdf5"), root="demo.hdf5"),
    "key map": Reader(build=_keymap, root="demo.hdf5"),
    "statistics": Reader(build=stored, commands=(CHECK, CHECK, INFO)),
    "policy folder": Reader(build=lambda r: policy_folder(r / "d"), root="d", commands=(CHECK, CHECK, INFO)),
    "actuator logs": Reader(build=_logs, root="d", commands=(CHECK, CHECK, INFO)),
    "trials": Reader(build=_trials, root="d", commands=(CHECK, CHECK, INFO)),
    "rollouts without outcomes": Reader(build=_rollouts, root="d", commands=(CHECK, INFO)),
    "counts": Reader(build=_aggregate, root="d", commands=(CHECK, INFO)),
    "pairs": Reader(build=_pairs, root="d", commands=(CHECK, INFO)),
    "split list": Reader(
        build=_split,
        root="d",
        commands=[lambda r, o: [*CONVERT(r, o), "--episodes", f"{r.parent}/split.json:val"]],
    ),
    "calibration": Reader(
        build=_calibration,
        root="d",
        commands=[
            lambda r, o: [
                *CONVERT(r, o),
                "--calibration",
                r.parent / "arm.json",
                "--is",
                "*=ticks",
                "--to",
                "*=deg",
            ]
        ],
    ),
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One mutated input and one command."""

    name: str
    argv: list[str]
    folder: Path
    out: Path
    before: dict[str, tuple[int, int, int]]


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a command did."""

    code: int
    err: str
    seconds: float
    """Of the processor: a machine that others use as well makes none of it slow."""
    peak_bytes: int = 0
    signal: int = 0


def make_case(
    name: str, built: Path, folder: Path, rng: Generator, *, heavy: bool, change: bool = True
) -> Case:
    """Copy a valid input, change one of its files, and choose a command."""
    reader = READERS[name]
    shutil.copytree(built, folder / "in", symlinks=True)
    files = sorted(p for p in (folder / "in").rglob("*") if p.is_file())
    by_kind: dict[str, list[Path]] = {}
    for file in files:
        by_kind.setdefault(file.suffix, []).append(file)
    file = pick(rng, by_kind[pick(rng, sorted(by_kind))])
    what = mutate(rng, file, heavy=heavy) if change else "no change"
    out = folder / "out"
    root = folder / "in" / reader.root if reader.root else folder / "in"
    argv = (
        [str(w) for w in pick(rng, reader.commands)(root, out)]
        + ["--quiet"]
        + (["--json"] if rng.random() < 0.5 else [])
    )
    return Case(
        name=f"{name}: {what} of {file.relative_to(folder / 'in')}",
        argv=argv,
        folder=folder,
        out=out,
        before=tree(folder / "in"),
    )


def tree(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return kind, size and time of everything below a folder."""
    found = {}
    for where, folders, names in os.walk(folder):
        for name in (*folders, *names):
            about = os.lstat(os.path.join(where, name))
            found[os.path.join(where, name)] = (
                about.st_mode,
                about.st_size if name in names else 0,
                about.st_mtime_ns if name in names else 0,
            )
    return found


def run_here(case: Case) -> Told:
    """Run a command in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    began = time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        code = main(case.argv)
    err.flush()
    return Told(code=code, err=err.buffer.getvalue().decode(), seconds=time.process_time() - began)


def run_apart(case: Case) -> Told:
    """Run a command in a child of this process, which may die, hang or grow."""
    log = case.folder / "stderr"
    sys.stdout.flush()
    inherited = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    child = os.fork()
    if child == 0:
        code = 99
        try:
            gc.collect()
            os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT, 0o600), 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            sys.stdout, sys.stderr = open(1, "w", encoding="utf-8"), open(2, "w", encoding="utf-8")  # noqa: SIM115
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 30, 4 << 30))
            resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_S + 5, LONGEST_S + 5))
            signal.alarm(5 * LONGEST_S)
            code = main(case.argv)
            sys.stderr.flush()
        finally:
            os._exit(code)
    _, status, used = os.wait4(child, 0)
    died = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -died
    err = log.read_bytes().decode(errors="replace") if log.exists() else ""
    return Told(
        code=code,
        err=err,
        seconds=used.ru_utime + used.ru_stime,
        peak_bytes=used.ru_maxrss * 1024 - inherited + PROGRAM_BYTES,
        signal=died,
    )


def wrong(case: Case, told: Told) -> str:
    """Return what a user would have to complain about, empty where nothing is."""
    lines = told.err.strip().splitlines()
    if told.signal:
        return f"died of signal {told.signal} after {told.seconds:.0f} s"
    if "a defect of simgap" in told.err or "Traceback" in told.err:
        return told.err.strip()[-600:]
    if told.code not in (0, 1, 2, 3):
        return f"exit code {told.code}: {told.err[-300:]}"
    if told.code in (2, 3) and (len(lines) != 1 or len(lines[0]) > 4000):
        return f"{len(lines)} lines on standard error, expected one: {told.err[:600]!r}"
    if told.code in (0, 1) and any("warning" in line.lower() and "simgap" not in line for line in lines):
        return f"somebody else's warning on standard error: {told.err[:300]!r}"
    if told.seconds > LONGEST_S:
        return f"took {told.seconds:.0f} s"
    if told.peak_bytes > MOST_BYTES:
        return f"took {told.peak_bytes >> 20} MiB"
    after = tree(case.folder / "in")
    touched = [p for p in after if after[p] != case.before.get(p)] + [
        p for p in case.before if p not in after
    ]
    return f"wrote outside of its folder: {touched[:3]}" if touched else ""

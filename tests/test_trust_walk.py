"""Every verb against every kind of file with a canary in it. The verbs come from the command line itself: a new one needs a walk."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from arm_fixtures import tiny_checkpoint
from canary import MAKER, Canary
from canary_files import CHANGES, files_of, plant
from fuzz_readers import READERS
from lerobot_fixtures import save_checkpoint
from simgap import trust
from simgap.cli import main
from simgap.cli._arguments import EnvName, VerbParser
from simgap.cli._verbs import known_verbs, load_verb
from simgap.ledger import Ledger
from simgap.robots.refs import SurrogateRef
from test_ledger_verb import write_ledger
from test_loop import SPEC, LocalSurrogate
from test_trust import policy_fields

WRITTEN = {"--out", "--write", "--page", "--cache", "--python"}
"""Paths that are written to; and the one program that is named on the command line, where it may."""
NAMES_A_FILE = {"--map", "--episodes"}
"""Options of text that may be the path of a file."""
X, OUT, OUT_JSON = object(), object(), object()
"""In a walk: the path of what is tried, and a path to write to."""

_SWEEP = [
    "arm-pick",
    "light_intensity",
    "--low",
    "0.5",
    "--high",
    "1",
    "--points",
    "2",
    "-n",
    "1",
    "--workers",
    "0",
]
_CONVERT = ["--task", "x", "--workers", "0", "--out", OUT]
_STUDY = ["-n", "1", "--workers", "0", "--out", OUT]
_TRAIN = ["--steps", "1", "--threads", "1", "--out", OUT]
_DESCRIBE = ["--rate-hz", "10", "--camera", "front=top", "--python", "/usr/bin/python3", "--write", OUT_JSON]
_SPECS = ["--action-spec", "SPEC", "--state-spec", "SPEC"]
WALKS: dict[str, list[Any]] = {
    "data check PATH": [X],
    "data check --map": ["HDF5", "--map", X],
    "data info PATH": [X],
    "data info --map": ["HDF5", "--map", X],
    "data stats PATH": [X, "--out", OUT],
    "data stats --map": ["HDF5", "--map", X, "--out", OUT],
    "data split PATH": [X, "--parts", "a=0.5,b=0.5"],
    "data split --map": ["HDF5", "--map", X, "--parts", "a=0.5,b=0.5"],
    "data compare PATH": [X, "DATA"],
    "data convert PATH": [X, *_CONVERT],
    "data convert --map": ["HDF5", "--map", X, *_CONVERT],
    "data convert --calibration": ["DATA", "--calibration", X, "--is", "*=ticks", "--to", "*=deg", *_CONVERT],
    "data convert --episodes": ["DATA", "--episodes", X, *_CONVERT],
    "data merge PATH": [X, "DATA", "--workers", "0", "--out", OUT],
    "data merge --map": ["HDF5", "HDF5", "--map", X, "--workers", "0", "--out", OUT],
    "pixels PATH": [X],
    "pixels --labels": ["DATA", "--labels", X, "--tolerance-mm", "10", "--size", "24", "--steps", "1"],
    "train PATH": [X, *_TRAIN],
    "train --from": ["DATA", "--from", X, *_TRAIN],
    "policy check PATH": [X, "--data", "DATA"],
    "policy check --data": ["CHECKPOINT", "--data", X],
    "policy check --live": ["CHECKPOINT", "--data", "DATA", "--live", X],
    "policy describe PATH": [X, *_SPECS, *_DESCRIBE],
    "policy describe --dataset": ["SAVED", "--dataset", X, *_DESCRIBE],
    "policy describe --action-spec": ["SAVED", "--action-spec", X, "--state-spec", "SPEC", *_DESCRIBE],
    "policy describe --state-spec": ["SAVED", "--action-spec", "SPEC", "--state-spec", X, *_DESCRIBE],
    "screen PATH": [X, "-n", "1", "--workers", "0", "--out", OUT],
    "select PATH": [X, "CHECKPOINT", "-n", "1", "--report-n", "1", "--workers", "0", "--out", OUT],
    "trial PATH": [X, "-n", "1", "--workers", "0", "--out", OUT],
    "trial --replay": ["--replay", X, "-n", "1", "--workers", "0", "--out", OUT],
    "diagnose PATH": [X],
    "numbers agree PATH": [X],
    "numbers combine PATH": [X],
    "checks check --run": ["simgap.checks.evaluation.counts_and_seeds:CountsAndSeeds", "--run", X],
    "target PATH": [X],
    "report PATH": [X, "--out", OUT],
    "study execution PATH": [X, "--executors", "latest", "--latencies", "0", "--bugs", "none", *_STUDY],
    "study selection PATH": [
        X,
        "--trainings",
        "1",
        "--checkpoints",
        "3",
        "--steps",
        "3",
        "--select-n",
        "1",
        "--threads",
        "1",
        *_STUDY,
    ],
    "envs sweep --checkpoint": [*_SWEEP, "--checkpoint", X],
    "ledger verify PATH": [X],
    "ledger show PATH": [X],
    "ledger export PATH": [X, "--out", OUT],
}
"""Every place of the command line where a file or folder is named to be read, and a command that comes to read it."""


def _leaves(
    parser: argparse.ArgumentParser, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not below:
        yield words, parser
    for action in below:
        for name, sub in action.choices.items():
            yield from _leaves(sub, (*words, name))


def places() -> dict[str, argparse.Action]:
    """Return every place where the command line takes a file or folder to read, from its own parsers."""
    found = {}
    for verb in known_verbs():
        parser = VerbParser(prog=f"simgap {verb}")
        load_verb(verb).add_arguments(parser)
        for words, leaf in _leaves(parser, (verb,)):
            for action in leaf._actions:
                option = max(action.option_strings, default="")
                is_path = (
                    action.type is Path
                    or option in NAMES_A_FILE
                    or (words == ("pixels",) and action.type is EnvName and not option)
                )
                if is_path and option not in WRITTEN:
                    found[" ".join([*words, option or "PATH"])] = action
    return found


def test_every_place_where_a_verb_reads_a_file_has_a_walk() -> None:
    assert sorted(places()) == sorted(WALKS)


def test_every_option_of_text_that_might_name_a_file_was_thought_of() -> None:
    """An option without a type takes any text: each is here because it was read, and opens nothing."""
    known = {
        "--gap", "--engine", "--factors", "--renderer", "--x", "--y", "--executor", "--executors", "--ray", "--map", "--image", "--rename", "--is", "--drop",
        "--to", "--order", "--camera", "--drop-camera", "--episodes", "--task", "--parts", "--size", "--cameras", "--domain", "--freeze", "--adapter-parts",
        "--track", "--project", "--prompt-text", "--bugs", "--head", "--check", "--mutant", "--rotation", "--form",
    }  # fmt: skip
    found = set()
    for verb in known_verbs():
        parser = VerbParser(prog=verb)
        load_verb(verb).add_arguments(parser)
        for _, leaf in _leaves(parser, (verb,)):
            found |= {
                max(a.option_strings)
                for a in leaf._actions
                if a.option_strings and a.type is None and a.nargs != 0 and a.choices is None
            }
    assert found - known == set()


# -- what is given to them


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of input: how it is made, and what a command is given of it."""

    build: Callable[[Path], Any]
    root: str = ""
    suffix: str = ""
    """Added to the path on the command line, as the part of a split."""


def _policy(kind: str) -> Kind:
    def build(folder: Path) -> None:
        save_checkpoint(folder / "saved")
        (folder / "model").mkdir()
        (folder / "model" / "config.json").write_text(
            json.dumps({"auto_map": {"AutoModelForVision2Seq": "simgap_canary.make"}})
        )
        (folder / "policy.json").write_text(json.dumps(policy_fields(kind)))

    return Kind(build=build, root="policy.json")


def _run(folder: Path) -> None:
    """A run that ended at its ledger: enough for what is read first; whole runs are walked in the tests of the loop."""
    ranges = {"name": "nominal", "ranges": {}}
    with Ledger(folder / "ledger.db") as ledger:
        ledger.append(
            "commitment", {"seal_sha256": "0" * 64, "spec": SPEC.to_json(), "ranges": ranges}, key="seal"
        )
        head = ledger.head_text
    run = {
        "schema": 2,
        "spec": SPEC.to_json(),
        "ranges": ranges,
        "turns": [],
    }
    (folder / "run.json").write_text(json.dumps({**run, "seal": "0" * 64, "gap": None, "ledger_head": head}))


def _screened(folder: Path) -> None:
    shutil.copytree(_HONEST["CHECKPOINT"], folder / "d")


KINDS: dict[str, Kind] = {
    **{name: Kind(build=reader.build, root=reader.root) for name, reader in READERS.items()},
    "key map file": Kind(build=READERS["key map"].build, root="demo.hdf5.simgap-map.json"),
    "calibration file": Kind(build=READERS["calibration"].build, root="arm.json"),
    "split file": Kind(build=READERS["split list"].build, root="split.json", suffix=":val"),
    "recorded in sim": Kind(build=lambda f: shutil.copytree(_HONEST["DATA"], f / "d"), root="d"),
    "checkpoint": Kind(build=_screened, root="d"),
    "lerobot checkpoint": Kind(build=lambda f: save_checkpoint(f / "saved"), root="saved"),
    **{f"policy file {kind}": _policy(kind) for kind in ("openpi", "vla-eval", "openvla", "lerobot")},
    "convention": Kind(
        build=lambda f: (f / "spec.json").write_text(
            json.dumps({"rate_hz": 10, "dimensions": [{"name": "a.pos", "unit": "deg"}]})
        ),
        root="spec.json",
    ),
    "labels": Kind(
        build=lambda f: (f / "labels.csv").write_text("episode,frame,x_m,y_m\n" + "0,1,0.1,0.2\n" * 12),
        root="labels.csv",
    ),
    "run": Kind(build=_run),
    "ledger": Kind(build=lambda f: write_ledger(f / "ledger.db")),
}
_HONEST: dict[str, Path] = {}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What a command needs beside the file with the canary."""
    folder = tmp_path_factory.mktemp("honest")
    assert (
        main(
            [
                "generate",
                "arm-pick",
                "-n",
                "2",
                "--size",
                "48",
                "--workers",
                "0",
                "--out",
                str(folder / "data"),
                "--quiet",
            ]
        )
        == 0
    )
    tiny_checkpoint(folder / "checkpoint", steps=1)
    card = json.loads((folder / "checkpoint" / "card.json").read_text())
    card["training"] = {**card["training"], "envs": ["arm-pick"]}
    (folder / "checkpoint" / "card.json").write_text(json.dumps(card))
    save_checkpoint(folder / "saved")
    READERS["robomimic"].build(folder)
    spec = {
        "rate_hz": 10,
        "dimensions": [{"name": n, "unit": "deg", "low": -1, "high": 1} for n in ("a.pos", "b.pos")],
    }
    (folder / "spec.json").write_text(json.dumps(spec))
    _HONEST.update(
        DATA=folder / "data",
        CHECKPOINT=folder / "checkpoint",
        SAVED=folder / "saved",
        SPEC=folder / "spec.json",
        HDF5=folder / "demo.hdf5",
    )
    return _HONEST


@pytest.fixture(scope="module")
def kinds(honest: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {}
    for name, kind in KINDS.items():
        made[name] = tmp_path_factory.mktemp("kind")
        kind.build(made[name])
    return made


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Canary]:
    """Stand in a folder that holds the canary, with an empty store, and with programs on the path that sing when they are started."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("SIMGAP_LEROBOT_PYTHON", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(SurrogateRef, "open", lambda spec: LocalSurrogate(spec))
    monkeypatch.setattr(
        "simgap.pixelfloor.floor.search_floor",
        lambda *_, **__: (_ for _ in ()).throw(trust.UsageError("far enough")),
    )
    bird = Canary(tmp_path / "here")
    (bird.folder / ".venv-compat" / "bin").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    for place in [
        bird.folder / ".venv-compat" / "bin" / "python",
        bird.folder / MAKER,
        *(tmp_path / "bin" / n for n in ("gs", "ffmpeg", "ffprobe", "python")),
    ]:
        place.symlink_to(bird.program)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.chdir(bird.folder)
    yield bird
    assert bird.sang is False, "a test that hears the canary asks for it"


class Spy:
    """Sees every file that is opened; with the door forced open it runs what the file names, as a careless reader would."""

    def __init__(self) -> None:
        self.opened: set[str] = set()
        self.is_careless = self.is_busy = False
        sys.addaudithook(self.heard)

    def heard(self, event: str, args: tuple[Any, ...]) -> None:
        if event != "open" or self.is_busy or not isinstance(args[0], (str, Path)):
            return
        name = str(args[0])
        self.opened.add(name)
        if self.is_careless and "/in/" in name:
            self.is_busy = True
            try:
                if Path(name).is_file() and MAKER.encode() in Path(name).read_bytes():
                    with trust.granted(trust.Trust()):
                        trust.load(trust.maker_at(MAKER, Path.cwd()))
            finally:
                self.is_busy = False


SPY, NUMBERS = Spy(), count()


def walk(
    place: str, kind: str, made: Path, folder: Path, canary: Canary, *words: str
) -> Iterator[tuple[str, bool, bool]]:
    """Plant the canary in every file of a kind in every way and run the command; yield what was changed, whether it was opened, and whether it sang."""
    entry = KINDS[kind]
    for file in files_of(made):
        for change in CHANGES:
            there = folder / f"{next(NUMBERS)}-{change.__name__}"
            shutil.copytree(made, there / "in", symlinks=True)
            target = there / "in" / file.relative_to(made)
            if plant(target, change):
                path = str(there / "in" / entry.root if entry.root else there / "in") + (
                    entry.suffix if place.endswith("--episodes") else ""
                )
                given = {X: path, OUT: str(there / "out"), OUT_JSON: str(there / "out.json")}
                argv = [given.get(w) or str(_HONEST.get(w, w)) for w in WALKS[place]]
                SPY.opened.clear()
                code = main([*place.rpartition(" ")[0].split(), *argv, "--quiet", *words])
                assert code in (0, 1, 2, 3), (place, kind, target.name, change.__name__)
                yield f"{kind}: {change.__name__} in {target.name}", str(target) in SPY.opened, canary.sang
            shutil.rmtree(there, ignore_errors=True)


DATA = tuple(READERS)
POLICIES = (
    "checkpoint",
    "policy file openpi",
    "policy file vla-eval",
    "policy file openvla",
    "policy file lerobot",
)
READ: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("data check PATH", "data info PATH"),
        (*DATA, "recorded in sim", "checkpoint", "lerobot checkpoint", *POLICIES),
    ),
    **dict.fromkeys(
        (f"{verb} PATH" for verb in ("data stats", "data split", "data convert", "data merge", "train")),
        (
            "v30",
            "v30 video",
            "v21",
            "v21 pictures",
            "ours",
            "tub",
            "act",
            "robomimic",
            "key map",
            "recorded in sim",
        ),
    ),
    **dict.fromkeys((place for place in WALKS if place.endswith("--map")), ("key map file",)),
    "data convert --calibration": ("calibration file",),
    "data convert --episodes": ("split file",),
    "pixels PATH": ("v30", "ours", "tub", "recorded in sim"),
    "pixels --labels": ("labels",),
    "train --from": ("checkpoint",),
    "policy describe PATH": ("lerobot checkpoint",),
    "policy describe --dataset": ("ours", "tub", "recorded in sim"),
    "policy describe --action-spec": ("convention",),
    "policy describe --state-spec": ("convention",),
    **dict.fromkeys(
        ("screen PATH", "select PATH", "trial PATH", "study execution PATH", "envs sweep --checkpoint"),
        POLICIES,
    ),
    "trial --replay": ("ours", "recorded in sim"),
    "study selection PATH": ("v30", "ours", "tub", "recorded in sim"),
    **dict.fromkeys(("diagnose PATH", "target PATH", "report PATH", "checks check --run"), ("run",)),
    **dict.fromkeys(
        ("numbers agree PATH", "numbers combine PATH"), ()
    ),  # tables of their own: columns of numbers
    "data compare PATH": ("v30", "ours", "tub", "recorded in sim"),
    "policy check PATH": POLICIES,
    "policy check --data": ("ours", "recorded in sim"),
    "policy check --live": ("ours", "recorded in sim"),
    **dict.fromkeys(("ledger verify PATH", "ledger show PATH", "ledger export PATH"), ("ledger", "run")),
}
"""Of which kinds each place opens a file, at least: a walk that stops before that proves nothing."""


@pytest.mark.slow
@pytest.mark.parametrize("place", WALKS)
def test_no_verb_runs_what_any_kind_of_file_names(
    place: str, kinds: dict[str, Path], tmp_path: Path, canary: Canary, capfd: pytest.CaptureFixture[str]
) -> None:
    opened: set[str] = set()
    for kind, made in kinds.items():
        for what, was_opened, sang in walk(place, kind, made, tmp_path, canary):
            assert not sang, what
            opened |= {kind} if was_opened else set()
    assert "a defect of simgap" not in capfd.readouterr().err
    assert set(READ[place]) <= opened


@pytest.mark.slow
@pytest.mark.parametrize("place", WALKS)
def test_the_walk_hears_a_reader_that_runs_what_a_file_names(
    place: str, kinds: dict[str, Path], tmp_path: Path, canary: Canary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The door forced open: every walk sings then, so a silent one is no walk that went nowhere."""
    monkeypatch.setattr(SPY, "is_careless", True)
    for kind in READ[place]:
        assert any(sang for _, _, sang in walk(place, kind, kinds[kind], tmp_path, canary)), kind


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("screen PATH", "policy file openpi"),
        ("pixels PATH", "recorded in sim"),
        ("envs sweep --checkpoint", "policy file vla-eval"),
    ],
)
def test_with_the_flag_the_same_walk_sings(
    place: str, kind: str, kinds: dict[str, Path], tmp_path: Path, canary: Canary
) -> None:
    assert any(sang for _, _, sang in walk(place, kind, kinds[kind], tmp_path, canary, "--allow-code"))


# -- folders that are written into, and read back first


GONE_ON_WITH: dict[str, list[Any]] = {
    "generate": ["arm-pick", "-n", "2", "--size", "48", "--workers", "0", "--out", X],
    "train": ["DATA", "--steps", "2", "--threads", "1", "--out", X],
    "trial": ["--replay", "DATA", "-n", "1", "--gap", "none", "--workers", "0", "--out", X],
    "screen": ["CHECKPOINT", "-n", "1", "--workers", "0", "--out", X],
}
"""Commands that go on in a folder which somebody else may have left; those of a run are walked in the tests of the loop."""


@pytest.mark.slow
@pytest.mark.parametrize("verb", GONE_ON_WITH)
def test_no_verb_runs_what_stands_in_the_folder_that_it_goes_on_in(
    verb: str, honest: dict[str, Path], tmp_path: Path, canary: Canary
) -> None:
    def command(out: Path) -> list[str]:
        return [
            *verb.split(),
            *(str(out) if w is X else str(honest.get(w, w)) for w in GONE_ON_WITH[verb]),
            "--quiet",
        ]

    made = tmp_path / "made"
    assert main(command(made)) in (0, 1)
    opened = 0
    for file in files_of(made):
        for change in CHANGES:
            out = Path(shutil.copytree(made, tmp_path / "in" / str(next(NUMBERS)), symlinks=True))
            if plant(out / file.relative_to(made), change):
                SPY.opened.clear()
                assert main(command(out)) in (0, 1, 2, 3), (file, change)
                assert not canary.sang, (file, change)
                opened += str(out / file.relative_to(made)) in SPY.opened
    assert opened

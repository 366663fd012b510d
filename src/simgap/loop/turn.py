"""Turns of the loop on a sealed surrogate: claim, trial, diagnosis before the seal, targeted data, trial again."""

from __future__ import annotations

from pathlib import Path

from simgap.compute.cache import StageCache
from simgap.compute.locks import alone_in
from simgap.envs import make_env
from simgap.envs.factors import FactorRanges
from simgap.errors import DataError, UsageError
from simgap.ledger import Ledger
from simgap.ledger.heads import LEDGER_FILE
from simgap.loop.crank import Crank
from simgap.loop.record import TurnLedger
from simgap.loop.recorded import read_recorded
from simgap.loop.results import Turn, TurnResult, overall
from simgap.loop.spec import Reporter, TurnSpec
from simgap.loop.stages import Stages
from simgap.loop.store import RUN_JSON, save_run
from simgap.mutants.gaps import Gap, nonce_of
from simgap.provenance import canonical_json, read_json, write_atomic


def run_turns(spec: TurnSpec, folder: Path, cache: Path, reporter: Reporter, *, workers: int) -> TurnResult:
    """Run turns, or what is missing of them; the same spec and folder go on after a kill.

    Args:
        spec: number of turns, sizes and seeds.
        folder: this run's folder: trials, ledger, diagnosis.
        cache: shared folder for datasets, checkpoints and screens.
        reporter: told what is going on.
        workers: worker processes.

    Raises:
        UsageError: no turn is asked for.
        DataError: the folder holds a run of another spec, or its ledger was changed.
    """
    if spec.turns < 1:
        raise UsageError(f"a run of {spec.turns} turns; give at least 1")
    with alone_in(folder):
        return _run_turns(spec, folder, cache, reporter, workers)


def _run_turns(spec: TurnSpec, folder: Path, cache: Path, reporter: Reporter, workers: int) -> TurnResult:
    env = make_env(spec.env, image_size=spec.image_size, render=False)
    ranges = env.presets["nominal"]
    _keep_spec(spec, folder)
    stages = Stages(spec, env, StageCache(cache), folder, reporter, workers)
    with Ledger(folder / LEDGER_FILE, create=not (folder / RUN_JSON).exists()) as ledger:
        ledger.require_kept(folder)
        book = TurnLedger(ledger)
        robot = stages.surrogate().open()
        try:
            commitment = book.commit(robot.seal, spec, ranges)
            turns = tuple(Crank(stages=stages, robot=robot, book=book, ranges=ranges).turns())
            gap = None
            diagnosed = [t for t in turns if t.diagnosis is not None]
            if diagnosed:
                newest = diagnosed[-1]
                assert newest.diagnosis is not None
                finding = book.finding(newest.number, newest.diagnosis)
                gap = robot.open_seal(finding.hash)
                book.opened(gap, nonce_of(spec.seed), commitment, finding)
                reporter.say(f"seal: {gap.sentence()}")
        finally:
            robot.close()
        if diagnosed:
            book.claims(turns)
        return _finished(ledger, spec, folder, ranges, turns, robot.seal, gap)


def _keep_spec(spec: TurnSpec, folder: Path) -> None:
    """Write the spec of a new run; refuse a folder that was begun with another."""
    path, text = folder / "spec.json", canonical_json(spec.to_json())
    if path.exists() and canonical_json(before := read_json(path)) != text:
        if isinstance(before, dict) and set(before) != set(spec.to_json()):
            raise DataError(
                f"{folder} was begun by another version of simgap; give another --out, or go on with the version"
                " that began it"
            )
        other = (
            {k: v for k, v in before.items() if spec.to_json().get(k) != v}
            if isinstance(before, dict)
            else before
        )
        raise DataError(
            f"{folder} holds a run of another spec (it has {other}); give another --out, or the same options"
            " to go on with it"
        )
    write_atomic(path, text)


def _finished(
    ledger: Ledger,
    spec: TurnSpec,
    folder: Path,
    ranges: FactorRanges,
    turns: tuple[Turn, ...],
    seal: str,
    gap: Gap | None,
) -> TurnResult:
    result = TurnResult(
        spec=spec,
        folder=folder,
        ranges=ranges,
        turns=turns,
        paired=overall(turns),
        seal=seal,
        gap=gap,
        duration_s=read_recorded(folder, ledger.rows()).duration_s,
        ledger_head=ledger.head_text,
    )
    save_run(result)
    return result


def exit_code(result: TurnResult) -> int:
    """Return 0 when the loop did what it is for, 1 when it did not.

    On a surrogate the truth is known, so the finding is about the loop: the diagnosis missed what was sealed,
    or the newest turn was tried and was not shown to be better than the first, or the policy did not pass its screen.
    """
    missed = not result.diagnosis_agrees
    return (
        1 if missed or result.is_better is False or (len(result.turns) > 1 and result.paired is None) else 0
    )

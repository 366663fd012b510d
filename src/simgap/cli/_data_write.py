"""The actions of ``simgap data`` that write: convert, merge, stats, split."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.cli._data_options import keymap_of, shares_of, target_of, written
from simgap.cli._data_show import show_split, show_statistics, show_written
from simgap.cli._options import workers_of
from simgap.cli._output import Advance, emit, progress, say

if TYPE_CHECKING:
    from rich.console import Console

    from simgap.episodes.edit.rewrite import Converted
    from simgap.episodes.formats.left_out import LeftOut
    from simgap.episodes.reader import Dataset


def convert(args: argparse.Namespace) -> int:
    """Write a dataset as LeRobot v3.0, changed as asked."""
    from simgap.episodes.edit.convert import convert_dataset
    from simgap.episodes.formats.left_out import left_out

    dataset = _opened(args)
    target = replace(target_of(args, dataset), asked=("data", *args.words))
    out = args.out or Path("runs/data") / f"{dataset.root.stem}-converted"
    for note in dataset.notes:
        say(args, f"note: {note}")
    lost = [left_out(dataset)] if target.episodes is None else []
    began = time.monotonic()
    with shown(args, "episodes") as report:
        result = convert_dataset(dataset, out, target, workers=workers_of(args), progress=report)
    document = {"kind": "data_convert", **_document(result, began)}
    document |= {
        "source": str(dataset.root),
        "source_version": dataset.info.version,
        "change": target.to_json(),
    }
    return _finished(args, document, lost, show_written)


def merge(args: argparse.Namespace) -> int:
    """Write several datasets as one."""
    from simgap.episodes.edit.merge import merge_datasets
    from simgap.episodes.formats.left_out import left_out
    from simgap.episodes.reader import open_dataset
    from simgap.episodes.write.finish import SIMGAP_JSON

    keymap = keymap_of(args)
    # ours state their own
    datasets = [open_dataset(path, None if (path / SIMGAP_JSON).is_file() else keymap) for path in args.paths]
    out = args.out or Path("runs/data") / "+".join(d.root.stem for d in datasets)[:100]
    began = time.monotonic()
    with shown(args, "episodes") as report:
        result = merge_datasets(
            datasets, out, codec=args.codec, task=args.task, workers=workers_of(args), progress=report
        )
    document = {"kind": "data_merge", **_document(result, began), "sources": [str(d.root) for d in datasets]}
    return _finished(args, document, [left_out(d) for d in datasets], show_written)


def stats(args: argparse.Namespace) -> int:
    """Compare stored statistics with exact ones, and put the exact in their place; 1 when some are wrong and stay so."""
    from simgap.episodes.edit.restat import (
        compare,
        dataset_statistics,
        stale_episodes,
        stored_statistics,
        write_statistics,
    )
    from simgap.errors import DataError

    dataset = _opened(args)
    with shown(args, "episodes measured") as report:
        exact, notes = dataset_statistics(
            dataset, images=not (args.no_images or dataset.is_ours), progress=report
        )
    broken = ""
    try:
        stored = stored_statistics(dataset)
    except DataError as error:
        if not args.write:
            raise
        stored, broken = None, str(error)
    try:
        stale = stale_episodes(dataset)
    except DataError as error:
        if not args.write:
            raise
        stale, broken = [e.index for e in dataset.entries], str(error)
    differences = compare(dataset, stored, exact) if stored is not None else []
    paths = (
        write_statistics(dataset, exact) if args.write and (differences or stale or stored is None) else []
    )
    document = {
        "kind": "data_stats",
        "schema": 1,
        "path": str(dataset.root),
        "stored": stored is not None,
        "features": len(exact),
        "frames": dataset.n_frames,
        "differences": [d.to_json() for d in differences],
        "stale_episodes": stale,
        "exact": exact,
        "written": [str(p) for p in paths],
        "notes": [*notes, *([broken] if broken else [])],
    }
    if args.out is not None:
        written(args.out, document)
    emit(args, document, lambda console: show_statistics(console, document))
    return 1 if (differences or stale) and not paths else 0


def split(args: argparse.Namespace) -> int:
    """Draw training and held-out episodes; print them, and write a list, or a dataset a part, where ``--out`` says."""
    from simgap.episodes.edit.convert import Target, convert_dataset
    from simgap.episodes.edit.split import split_episodes
    from simgap.episodes.formats.left_out import left_out
    from simgap.errors import UsageError

    if args.datasets and args.out is None:
        raise UsageError(
            "--datasets writes a dataset a part, and nobody said where; give a new folder with --out"
        )
    dataset = _opened(args)
    found = split_episodes(dataset, shares_of(args.parts), args.seed)
    document: dict[str, Any] = {**found.to_json(), "path": str(dataset.root)}
    paths = []
    if args.datasets:
        out = args.out
        for name, episodes in found.parts.items():
            with shown(args, f"{name}: episodes") as report:
                target = Target(episodes=episodes, task=args.task)
                paths.append(
                    convert_dataset(
                        dataset, out / name, target, workers=workers_of(args), progress=report
                    ).root
                )
        written(out / "split.json", document, is_sealed=True)
        paths.append(out / "split.json")
    elif args.out is not None:
        paths.append(args.out)
        written(paths[0], document, is_sealed=True)
    document["written"] = [str(p) for p in paths]
    return _finished(args, document, [left_out(dataset)], show_split)


def _finished(
    args: argparse.Namespace,
    document: dict[str, Any],
    lost: Sequence[LeftOut],
    show: Callable[[Console, dict[str, Any]], None],
) -> int:
    """Show what was done; 1 where something of the source was left out that nobody asked to leave out."""
    document["left_out"] = [part.to_json() for part in lost if part]
    document["notes"] = [*document["notes"], *(sentence for part in lost for sentence in part.sentences())]
    emit(args, document, lambda console: show(console, document))
    return 1 if document["left_out"] else 0


def _opened(args: argparse.Namespace) -> Dataset:
    from simgap.episodes.reader import open_dataset

    return open_dataset(args.path, keymap_of(args, with_stated=args.action != "convert"))


def _document(result: Converted, began: float) -> dict[str, Any]:
    from simgap.episodes.reader import open_dataset

    spec = open_dataset(result.root).spec
    how = (
        "videos copied as they are"
        if result.videos_copied
        else "frames encoded"
        if spec.has_videos
        else "frames kept exactly"
    )
    return {
        "schema": 1,
        "out": str(result.root),
        "fingerprint": result.fingerprint,
        "episodes": result.episodes,
        "frames": result.frames,
        "found": result.found,
        "seconds": round(time.monotonic() - began, 3),
        "codec": spec.codec,
        "videos": how if spec.cameras else "no cameras",
        "action_spec": spec.action_spec.to_json(),
        "state_spec": spec.state_spec.to_json(),
        "notes": list(result.notes),
    }


@contextmanager
def shown(args: argparse.Namespace, label: str) -> Iterator[Callable[[int, int], None]]:
    """Give a callback for ``(done, total)`` whose progress opens with the first call, when the total is known."""
    with ExitStack() as stack:
        advance: Advance | None = None
        before = 0

        def report(done: int, total: int) -> None:
            nonlocal advance, before
            if advance is None:
                before = done - 1  # what an earlier run left is no part of this run's rate
                advance = stack.enter_context(progress(total - before, label, args.quiet))
            advance(done - before)
            before = done

        yield report

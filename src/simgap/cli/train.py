"""``simgap train``: a mixture of datasets in, a checkpoint folder out."""

from __future__ import annotations

import argparse
import itertools
import pickle
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from simgap.cli._amounts import few_episodes
from simgap.cli._output import Advance, emit, progress, say
from simgap.cli._train_options import add_arguments, asked_spec, tracker_of
from simgap.cli._train_show import print_training, training_document
from simgap.wording import number_of

if TYPE_CHECKING:
    from simgap.episodes.reader import Dataset
    from simgap.episodes.table import FrameTable
    from simgap.training import TrainProgress, TrainSpec
    from simgap.training.trackers import Tracker
    from simgap.types import EvidenceKind

__all__ = ["HELP", "add_arguments", "run"]

HELP = (
    "Train a chunk policy on a mixture of datasets, or fine-tune one. The loss never selects anything:"
    " screening does. Killed at any moment, the same command goes on from its last resume point."
)


def run(args: argparse.Namespace) -> int:
    """Train, or go on with an interrupted run."""
    from simgap.errors import UsageError
    from simgap.policies.checkpoint import CARD, read_card
    from simgap.provenance import content_hash
    from simgap.training import train
    from simgap.training.plot import draw_loss
    from simgap.training.request import request_of
    from simgap.training.team import processes_here, rank_here
    from simgap.training.trainer import steps_of

    rank = rank_here()
    args.quiet = args.quiet or rank > 0  # of several processes one speaks
    spec = asked_spec(args)
    keep = steps_of(spec.steps, args.keep) if args.keep else ()
    if args.share is not None and len(args.share) != len(args.data):
        raise UsageError(
            f"{len(args.share)} shares for {number_of(len(args.data), 'dataset')}; --share takes one"
            " number for each DATA"
        )
    _require_device(spec.device)
    datasets = _opened(args.data, args.cameras, is_weighed=args.share is not None)
    kinds = _kinds(args, spec, datasets)
    # a wrong parent is said before frames are decoded
    chunk = spec.chunk if spec.init_from is None else read_card(spec.init_from).architecture.chunk
    spec = _fitting_shift(args, spec, datasets[0])
    _require_usable(spec, datasets[0], args.cameras, chunk)
    _require_pixels(args, spec, datasets)
    _tell_failures(args, datasets)
    if few := few_episodes(sum(d.n_episodes for d in datasets)):
        say(args, f"note: {few}")
    tables = [_frames(args, path) for path in args.data]
    out = args.out or Path("runs/policies") / _name(args, spec, tables)
    if (out / "meta").exists():
        raise UsageError(f"{out} is a dataset; a checkpoint needs a folder of its own: choose another --out")
    request = content_hash(request_of(tables, args.share, spec, kinds, processes_here()))
    was_finished, resumed = (out / CARD).is_file(), _resume_step(out, request)
    if resumed:
        say(args, f"{out} holds an interrupted run: going on from step {resumed} of {spec.steps}")
    began = time.monotonic()
    with (
        progress(spec.steps - resumed, "steps", args.quiet or was_finished) as advance,
        tracker_of(args, spec, out, needed=rank == 0) as tracker,
    ):
        train(tables, args.share, spec, out, progress=_Reporter(advance, tracker), kinds=kinds, keep=keep)
    if rank > 0:
        return 0
    draw_loss(out)
    document = training_document(out, spec, keep, resumed, was_finished, time.monotonic() - began)
    emit(args, document, lambda console: print_training(console, document, spec))
    return 0


def _fitting_shift(args: argparse.Namespace, spec: TrainSpec, dataset: Dataset) -> TrainSpec:
    """Return the spec with a random shift that small frames bear, unless the user chose one."""
    from dataclasses import replace

    if args.spec_shift_px is not None:
        return spec
    side = min(
        (side for camera in args.cameras or dataset.camera_keys for side in dataset.frame_shape(camera)[:2]),
        default=0,
    )
    return replace(spec, shift_px=min(spec.shift_px, side // 16))


def _require_pixels(args: argparse.Namespace, spec: TrainSpec, datasets: Sequence[Dataset]) -> None:
    """Refuse frames in which the target cannot be placed; `--force` trains all the same.

    Raises:
        UsageError: below the floor; says by how much and what would do.
    """
    if args.force:
        return
    for path, dataset in zip(args.data, datasets, strict=True):
        _gated(args, path, dataset, spec.threads)


def _gated(args: argparse.Namespace, path: Path, dataset: Dataset, threads: int) -> None:
    """Ask the gate; a probe that it trains shows its progress, and its verdict is one line."""
    from simgap.pixelfloor.gate import require_pixels

    with ExitStack() as stack:
        advance: Advance | None = None

        def probed(n: int, total: int, what: str) -> None:
            nonlocal advance
            if advance is None:  # a verdict known before needs no bar
                advance = stack.enter_context(progress(total, "pixel floor: scenes and steps", args.quiet))
            advance(n, what)

        def told(text: str) -> None:
            stack.close()  # the bar ends before the verdict
            say(args, f"{path}: {text}")

        require_pixels(
            dataset,
            cameras=args.cameras,
            threads=threads,
            otherwise=", or train all the same with --force",
            said=told,
            progress=probed,
        )


class _Reporter:
    """Turns the trainer's signs of life into progress."""

    def __init__(self, advance: Advance, tracker: Tracker | None) -> None:
        self._advance, self._tracker = advance, tracker

    def __call__(self, now: TrainProgress) -> None:
        self._advance(now.new, f"loss {now.loss:.4f}, {now.observations_per_s:.0f} observations/s")
        if self._tracker is not None:
            self._tracker.log(
                {
                    "step": now.step,
                    "loss": now.loss,
                    "learning_rate": now.learning_rate,
                    "observations_per_s": now.observations_per_s,
                }
            )


def _kinds(
    args: argparse.Namespace, spec: TrainSpec, datasets: Sequence[Dataset]
) -> list[EvidenceKind] | None:
    """Return where each dataset comes from, by its stamp or as the user says; None where nobody asks and not all say it.

    Raises:
        UsageError: an unknown kind, another number of them, or a dataset that does not say it where it
            matters.
    """
    from simgap.errors import UsageError, did_you_mean
    from simgap.training.mixture import evidence_of
    from simgap.types import EvidenceKind

    if args.domain is not None:
        if len(args.domain) != len(datasets):
            raise UsageError(
                f"{len(args.domain)} domains for {number_of(len(datasets), 'dataset')}; --domain takes"
                " one word for each"
                " DATA"
            )
        for word in args.domain:
            if word not in tuple(EvidenceKind):
                raise UsageError(f"unknown domain {word!r}; {did_you_mean(word, EvidenceKind)}")
        return [EvidenceKind(word) for word in args.domain]
    known = [evidence_of(d.spec.stamp) for d in datasets]
    silent = [str(path) for path, kind in zip(args.data, known, strict=True) if kind is None]
    if silent and (spec.p_real is not None or spec.domain_input):
        raise UsageError(
            f"{', '.join(silent)} does not say whether it is simulated or real; say it with --domain, one"
            " word for each DATA"
        )
    return None if silent else [kind for kind in known if kind is not None]


def _opened(paths: Sequence[Path], cameras: Sequence[str] | None, *, is_weighed: bool) -> list[Dataset]:
    """Open every dataset and compare conventions and frames, before anything is decoded.

    Raises:
        ConventionError: two differ; names both folders.
        UsageError: an unknown camera, or the same episodes twice and nobody said that they weigh double.
    """
    from simgap.conventions import require_same
    from simgap.episodes.formats.commands import convert_command
    from simgap.episodes.reader import open_dataset
    from simgap.errors import ConventionError, UsageError, did_you_mean

    datasets = [open_dataset(path) for path in paths]
    for (first_path, a), (path, b) in (
        () if is_weighed else itertools.combinations(zip(paths, datasets, strict=True), 2)
    ):
        if (a.n_episodes, a.n_frames) == (b.n_episodes, b.n_frames) and a.fingerprint == b.fingerprint:
            raise UsageError(
                f"{first_path} and {path} hold the same episodes ({a.fingerprint[:12]}); name them once, or"
                " say by --share that twice is meant"
            )
    for path, dataset in zip(paths, datasets, strict=True):
        for camera in cameras or ():
            if camera not in dataset.camera_keys:
                raise UsageError(
                    f"{path} has no camera {camera!r}; {did_you_mean(camera, dataset.camera_keys)}"
                )
        names = {"ours_name": str(paths[0]), "theirs_name": str(path)}
        require_same(datasets[0].spec.action_spec, dataset.spec.action_spec, what="actions", **names)
        require_same(datasets[0].spec.state_spec, dataset.spec.state_spec, what="states", **names)
        first, other = (
            {c: d.frame_shape(c) for c in cameras or sorted(d.camera_keys)} for d in (datasets[0], dataset)
        )
        if first != other:
            raise ConventionError(
                f"cameras differ: {paths[0]} has {_shapes(first)}, {path} has {_shapes(other)}; name common"
                " ones with --cameras, or resize"
            )
        sides = {side for shape in other.values() for side in shape[:2]}
        if len(sides) > 1:
            side = min(96, *sides)
            made = convert_command(dataset, "--resize", f"{side}x{side}", out=f"{side}px")
            raise ConventionError(
                f"{path} has {_shapes(other)}; a policy takes square frames of one size: {made} (stretches"
                " them)"
            )
    return datasets


def _require_usable(spec: TrainSpec, dataset: Dataset, cameras: Sequence[str] | None, chunk: int) -> None:
    """Refuse what would train and then not run: an executor that needs a longer chunk, shifts that leave nothing of a frame.

    Raises:
        UsageError: says which.
    """
    from simgap.errors import UsageError
    from simgap.policies.execution import parse_executor

    parse_executor(spec.executor).build(dataset.spec.action_spec, chunk)
    side = min(
        (side for camera in cameras or dataset.camera_keys for side in dataset.frame_shape(camera)[:2]),
        default=spec.shift_px + 1,
    )
    if spec.shift_px >= side:
        raise UsageError(
            f"--shift-px {spec.shift_px} shifts frames of {side} px out of sight; give a few pixels"
        )


def _shapes(shapes: dict[str, tuple[int, int, int]]) -> str:
    return ", ".join(f"{camera} {h}x{w} px" for camera, (h, w, _) in shapes.items()) or "none"


def _tell_failures(args: argparse.Namespace, datasets: Sequence[Dataset]) -> None:
    from simgap.episodes.formats.left_out import left_out

    for path, dataset in zip(args.data, datasets, strict=True):
        for sentence in left_out(dataset).sentences():
            say(args, f"note: {path}: {sentence}; `simgap data check {path}` says what to do")
        outcomes = [entry.extra.get("outcome") for entry in dataset.entries]
        failed = sum(o in ("failure", "void") for o in outcomes)
        if failed:
            say(
                args,
                f"note: {failed} of {len(outcomes)} episodes of {path} are failures or voids, and what was"
                " done in them is learnt too",
            )


def _frames(args: argparse.Namespace, path: Path) -> FrameTable:
    from simgap.episodes.frames import load_frames

    with ExitStack() as stack:
        advance: Advance | None = None

        def decoded(_: int, total: int) -> None:
            nonlocal advance
            if advance is None:  # a dataset decoded before is mapped, and there is nothing to show
                advance = stack.enter_context(progress(total, f"{path}: videos decoded", args.quiet))
            advance()

        return load_frames(
            path, cameras=args.cameras, progress=decoded, said=lambda text: say(args, f"note: {text}")
        )


def _name(args: argparse.Namespace, spec: TrainSpec, tables: Sequence[FrameTable]) -> str:
    """Return a folder name that the same request gets again and another one does not."""
    from simgap.provenance import content_hash

    asked = {k: v for k, v in spec.to_json().items() if k not in ("log_every", "checkpoint_every_steps")}
    request = content_hash([asked, [t.fingerprint for t in tables], args.share, args.cameras])
    return f"{'+'.join(path.resolve().name for path in args.data)[:60]}-{request[:8]}"


def _resume_step(out: Path, request: str) -> int:
    """Return the step of a resume point of this request, 0 where there is none that can be read; the trainer judges others."""
    from simgap.bounds import DAMAGED
    from simgap.errors import DataError
    from simgap.training.resume import FILE, load_state

    try:
        state = load_state(out / FILE)
        return int(state["step"]) if state.get("request") == request else 0
    except (DataError, pickle.UnpicklingError, *DAMAGED):
        return 0


def _require_device(name: str) -> None:
    import torch

    from simgap.errors import MachineError

    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:
        raise MachineError(
            f"torch cannot use device {name!r} ({str(error).splitlines()[0]}); use --device cpu"
        ) from error

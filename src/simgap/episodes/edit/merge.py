"""Several datasets as one, only where their conventions agree; where they do not, the message holds the command that makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from simgap.compute.workers import TaskRunner, run_tasks
from simgap.conventions import VectorSpec
from simgap.episodes.edit.convert import Converter, Target
from simgap.episodes.edit.differences import require_agreement
from simgap.episodes.edit.rewrite import Converted, EpisodeWork, fitting_workers, write_all
from simgap.episodes.formats.keymap import KeyMap
from simgap.episodes.formats.video import Codec
from simgap.episodes.reader import Dataset, open_dataset
from simgap.episodes.spec import DatasetSpec
from simgap.errors import UsageError
from simgap.provenance import Stamp


def merge_datasets(
    datasets: Sequence[Dataset],
    out: Path,
    *,
    codec: Codec | None = None,
    task: str = "",
    workers: int = 0,
    progress: Callable[[int, int], None] | None = None,
    runner: TaskRunner = run_tasks,
) -> Converted:
    """Write the episodes of several datasets one after the other into one; killed, the same call makes what is missing.

    Videos of ours in the same codec are copied, not compressed a second time. Columns that not all of them
    have are left out. ``task`` is the instruction of episodes that carry none.

    Raises:
        UsageError: fewer than two, or one of them twice.
        ConventionError: they do not agree; names both sides and the command that converts.
        DataError: damaged data, or an output folder that holds something else.
    """
    if len(datasets) < 2:
        raise UsageError("merging takes two datasets or more")
    fingerprints = _distinct(datasets)
    first = datasets[0]
    for other in datasets[1:]:
        require_agreement(first, other)
    converters = _converters(datasets, fingerprints, codec, task)
    spec, notes = _common(converters)
    jobs: list[tuple[int, ...]] = []
    for k, dataset in enumerate(datasets):
        jobs += [
            (len(jobs) + n, k, e.index) for n, e in enumerate(e for e in dataset.entries if e.length > 0)
        ]
    sources = [(c.dataset.root, c.dataset.keymap, c.target, c.fingerprint) for c in converters]
    done = write_all(
        out,
        spec,
        _Merging,
        (sources, spec, out),
        jobs,
        fitting_workers(datasets, workers),
        progress,
        runner,
        notes=notes,
    )
    return replace(
        done, videos_copied=all(c.keeps_videos and c.spec.encoding == spec.encoding for c in converters)
    )


def _converters(
    datasets: Sequence[Dataset], fingerprints: Sequence[str], codec: Codec | None, task: str
) -> list[Converter]:
    chosen: Codec = codec or (datasets[0].spec.codec if datasets[0].is_ours else "h264")
    return [
        Converter(d, Target(codec=chosen, task=task), f) for d, f in zip(datasets, fingerprints, strict=True)
    ]


def _common(converters: Sequence[Converter]) -> tuple[DatasetSpec, tuple[str, ...]]:
    """Return the spec of the whole, and a sentence on what is left out."""
    action, state = converters[0].spec.action_spec, converters[0].spec.state_spec
    for converter in converters[1:]:
        action, state = (
            _widened(action, converter.spec.action_spec),
            _widened(state, converter.spec.state_spec),
        )
    notes = [n for c in converters for n in c.dropped]
    shared = _shared_extras(converters)
    lost = sorted({name for c in converters for name in c.extras} - shared)
    if lost:
        notes.append(f"columns {lost} are left out: not every dataset has them")
    datasets = [c.dataset for c in converters]
    origins = [
        {"name": c.dataset.root.name, "fingerprint": c.fingerprint, "episodes": len(c.episodes)}
        for c in converters
    ]
    stamp = Stamp(
        kind="dataset", fields={"merged": origins, "merged_from": [d.spec.stamp.to_json() for d in datasets]}
    )
    name = "+".join(d.spec.name for d in datasets)[:120]
    return replace(converters[0].spec, name=name, action_spec=action, state_spec=state, stamp=stamp), tuple(
        notes
    )


class _Merging(EpisodeWork):
    def __init__(
        self, sources: Sequence[tuple[Path, KeyMap | None, Target, str]], spec: DatasetSpec, out: Path
    ) -> None:
        self._converters = [
            Converter(open_dataset(root, keymap), target, fingerprint)
            for root, keymap, target, fingerprint in sources
        ]
        self._shared = _shared_extras(self._converters)
        super().__init__(out, spec)

    def __call__(self, job: tuple[int, ...]) -> int:
        place, source, index = job
        converter = self._converters[source]
        episode, kept = converter.episode(index)
        is_alike = converter.spec.encoding == self.writer.spec.encoding
        shared = {k: v for k, v in episode.extras.items() if k in self._shared}
        self.writer.write(place, replace(episode, extras=shared), encoded=kept if is_alike else None)
        return place


def _shared_extras(converters: Sequence[Converter]) -> set[str]:
    """Return the further columns that every dataset has, and in one type."""
    sides = [{(name, extra.kind) for name, extra in c.extras.items()} for c in converters]
    return {name for name, _ in sides[0].intersection(*sides[1:])}


def _distinct(datasets: Sequence[Dataset]) -> list[str]:
    """Return the fingerprints, no two of them alike."""
    seen: dict[str, Path] = {}
    for dataset in datasets:
        fingerprint = dataset.fingerprint
        if fingerprint in seen:
            raise UsageError(
                f"{seen[fingerprint]} and {dataset.root} are the same data; merging them would count every"
                " episode twice"
            )
        seen[fingerprint] = dataset.root
    return list(seen)


def _widened(a: VectorSpec, b: VectorSpec) -> VectorSpec:
    """Return a convention with limits wide enough for both; all else must agree already."""
    wider = [
        replace(x, low=min(x.low, y.low), high=max(x.high, y.high))
        for x, y in zip(a.dimensions, b.dimensions, strict=True)
    ]
    return VectorSpec(dimensions=tuple(wider), rate_hz=a.rate_hz)

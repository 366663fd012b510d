"""Any dataset that can be read, written as LeRobot v3.0: every change stated, episode by episode, resumed where it was killed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from simgap.compute.workers import TaskRunner, run_tasks
from simgap.episodes.edit.missing_videos import require_videos
from simgap.episodes.edit.rewrite import Converted, EpisodeWork, fitting_workers, write_all
from simgap.episodes.edit.transform import Change, Plan, make_change
from simgap.episodes.formats.commands import TASK, again, convert_command, require_own_words
from simgap.episodes.formats.keymap import KeyMap
from simgap.episodes.formats.layout import ACTION, INDEX_FEATURES, STATE, TIME
from simgap.episodes.formats.video import ENCODINGS, Codec
from simgap.episodes.reader import Dataset, open_dataset
from simgap.episodes.spec import DatasetSpec
from simgap.errors import ConventionError, DataError, UsageError, did_you_mean
from simgap.provenance import Stamp
from simgap.types import Episode

_COLUMN_TYPES = {"f": "float32", "i": "int64", "u": "int64", "b": "bool"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """What comes out."""

    plan: Plan = field(default_factory=Plan)
    codec: Codec | None = None
    """The source's own by default, ``h264`` for formats that keep images otherwise."""
    cameras: Mapping[str, str] = field(default_factory=dict)
    """Camera -> its new name."""
    drop_cameras: tuple[str, ...] = ()
    image_size: tuple[int, int] | None = None
    """``(height, width)`` of every camera; resizing averages pixels."""
    episodes: tuple[int, ...] | None = None
    """Which to take, in this order; all by default."""
    task: str = ""
    """Instruction of episodes that carry none."""
    state_from_action: bool = False
    """Give a dataset without a measured state the command before as its state, as LeRobot's mobile robots report it."""
    positional_clock: bool = False
    """Replace the recorded clock by ``k / rate``, for clocks that are known to be wrong."""
    asked: tuple[str, ...] = ()
    """Words of the command that asks for this, for a message that repeats it with one option more; no part of the result."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, what is not asked for left out."""
        plain: dict[str, Any] = {
            **self.plan.to_json(),
            "codec": self.codec,
            "cameras": dict(self.cameras),
            "drop_cameras": list(self.drop_cameras),
            "image_size": None if self.image_size is None else list(self.image_size),
            "episodes": None if self.episodes is None else list(self.episodes),
            "state_from_action": self.state_from_action,
            "positional_clock": self.positional_clock,
        }
        return {k: v for k, v in plain.items() if v}


def source_formats(dataset: Dataset) -> frozenset[str]:
    """Return the formats a dataset has been in: its own, and those it was converted from."""
    lineage = dataset.spec.stamp.fields.get("lineage") if dataset.is_ours else None
    steps = lineage if isinstance(lineage, list) else []
    return frozenset(
        {dataset.info.version, *(str(step.get("format")) for step in steps if isinstance(step, dict))}
    )


def has_made_up_state(dataset: Dataset) -> bool:
    """Return whether the state is the command before, because a conversion was asked for that where nothing was measured."""
    lineage = dataset.spec.stamp.fields.get("lineage") if dataset.is_ours else None
    steps = (
        [step.get("change") for step in lineage if isinstance(step, dict)]
        if isinstance(lineage, list)
        else []
    )
    return any(isinstance(change, dict) and change.get("state_from_action") is True for change in steps)


class Converter:
    """Turns episodes of one dataset into those of another; holds nothing but what was decided beforehand."""

    def __init__(self, dataset: Dataset, target: Target, fingerprint: str | None = None) -> None:
        """Decide everything that can be decided before the first frame is read.

        Args:
            dataset: what to read.
            target: what should come out.
            fingerprint: of the dataset, where it was worked out already; it takes reading every byte.

        Raises:
            UsageError: names that mean nothing, or a question about the data that only its owner can settle.
            ConventionError: a conversion that would guess, or a rate that would invent frames.
            DataError: cameras of different sizes, or no task.
        """
        if dataset.questions:
            raise UsageError(f"{dataset.root}: {dataset.questions[0]}")
        require_own_words(target.task)
        self.dataset = dataset
        self.target = target
        self.fingerprint = dataset.fingerprint if fingerprint is None else fingerprint
        self.change: Change = make_change(target.plan, dataset.spec.action_spec, dataset.spec.state_spec)
        self.episodes = _episodes(dataset, target)
        self.cameras = _cameras(dataset, target)
        if target.plan.rate_hz is not None and target.plan.rate_hz > dataset.info.rate_hz * (1 + 1e-6):
            raise ConventionError(
                f"{dataset.root} has {dataset.info.rate_hz:g} frames a second; {target.plan.rate_hz:g} would"
                " invent some, convert the faster dataset instead"
            )
        if target.state_from_action and len(self.change.state.target):
            raise UsageError(
                f"{dataset.root} measures {list(self.change.state.target.names)}, and a made-up state must"
                " not replace that; leave --state away"
            )
        require_videos(dataset, self.episodes, self.cameras, target.asked)
        self.extras, self.dropped = _extras(dataset, self.episodes)
        self.spec = self._spec()

    def episode(self, index: int) -> tuple[Episode, dict[str, bytes]]:
        """Return an episode converted, and the video files that may be kept as they are."""
        source = self.dataset.episode(index, images=False)
        videos = self._kept_videos(index)
        images = {}
        for name, camera in self.cameras.items():
            frames = np.empty((len(source), *self.dataset.frame_shape(camera)), dtype=np.uint8)
            self.dataset.decode(index, camera, frames)
            images[name] = self._sized(frames)
        clock = (
            np.arange(len(source)) / self.dataset.info.rate_hz
            if self.target.positional_clock
            else source.time_s
        )
        clock = clock if self.dataset.is_ours else clock - clock[0]  # others may count from anywhere
        episode = replace(
            source,
            images=images,
            time_s=clock,
            task=source.task or self.target.task,
            extras={
                name: _storable(source.extras[kept.key])
                for name, kept in self.extras.items()
                if kept.key in source.extras
            },
        )
        episode = self.change.apply(episode)
        if self.target.state_from_action:
            episode = replace(episode, state=np.concatenate([episode.action[:1], episode.action[:-1]]))
        return (
            (episode, videos)
            if self.target.plan.rate_hz is None
            else (_resampled(episode, self.target.plan.rate_hz), {})
        )

    @property
    def keeps_videos(self) -> bool:
        """True when videos are copied and not compressed a second time."""
        ours, target = self.dataset, self.target
        return (
            ours.is_ours
            and ours.spec.has_videos
            and (self.spec.codec, self.spec.encoding, self.spec.image_size)
            == (ours.spec.codec, ours.spec.encoding, ours.spec.image_size)
            and target.plan.rate_hz is None
        )

    def _kept_videos(self, index: int) -> dict[str, bytes]:
        if not self.keeps_videos:
            return {}
        videos = self.dataset.entry(index).videos
        return {
            name: videos[self.dataset.camera_key(camera)].path.read_bytes()
            for name, camera in self.cameras.items()
        }

    def _sized(self, frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
        height, width = self.spec.image_size
        if frames.shape[1:3] == (height, width):
            return frames
        way = (
            Image.Resampling.BOX
            if height * width < frames.shape[1] * frames.shape[2]
            else Image.Resampling.BILINEAR
        )
        return np.stack([np.asarray(Image.fromarray(f).resize((width, height), way)) for f in frames])

    def _spec(self) -> DatasetSpec:
        dataset, target = self.dataset, self.target
        sizes = {name: dataset.frame_shape(camera)[:2] for name, camera in self.cameras.items()}
        size = target.image_size or next(iter(sizes.values()), (0, 0))
        if target.image_size is None and len(set(sizes.values())) > 1:
            words = ", ".join(f"{name} {h}x{w}" for name, (h, w) in sizes.items())
            height, width = (min(side) // 2 * 2 for side in zip(*sizes.values(), strict=True))
            made = again(dataset, target.asked, "--resize", f"{height}x{width}")
            raise DataError(
                f"{dataset.root}: cameras have different sizes ({words}) and one dataset has one; drop some"
                f" with --drop-camera, or resize: {made}"
            )
        codec: Codec = target.codec or (dataset.spec.codec if dataset.is_ours else "h264")
        encoding = (
            dataset.spec.encoding if dataset.is_ours and dataset.spec.codec == codec else ENCODINGS[codec]
        )
        spec = replace(
            dataset.spec,
            action_spec=self.change.action.target,
            state_spec=self.change.action.target if target.state_from_action else self.change.state.target,
            cameras=tuple(self.cameras),
            image_size=size,
            rate_hz=self.change.rate_hz,
            stamp=self._stamp(),
            task_default=target.task or dataset.spec.task_default,
            codec=codec,
            encoding=encoding,
        )
        if not spec.task_default and any(not dataset.entry(k).tasks for k in self.episodes):
            made = again(dataset, target.asked, "--task", TASK) if target.asked else convert_command(dataset)
            raise DataError(
                f"{dataset.root} does not say what the robot does, which every episode has to; say it with"
                f" --task in your own words: {made}"
            )
        spec.require_writable()
        return spec

    def _stamp(self) -> Stamp:
        fields = dict(self.dataset.spec.stamp.fields)
        clock = (
            "positional k/rate"
            if self.target.positional_clock or not self._has_clock()
            else fields.get("clock", "as recorded")
        )
        step = {
            "from": self.fingerprint,
            "format": self.dataset.info.version,
            "change": self.target.to_json(),
        }
        if self.dataset.keymap is not None:
            step["keymap"] = self.dataset.keymap.to_json()
        return Stamp(
            kind="dataset", fields={**fields, "clock": clock, "lineage": [*fields.get("lineage", []), step]}
        )

    def _has_clock(self) -> bool:
        if not self.episodes:
            return False
        columns = self.dataset.columns(self.episodes[0])
        return bool({TIME, "timestamp"} & set(columns)) or (
            self.dataset.keymap is not None and any(role == "time" for _, role in self.dataset.keymap.keys)
        )


def convert_dataset(
    dataset: Dataset,
    out: Path,
    target: Target,
    *,
    workers: int = 0,
    progress: Callable[[int, int], None] | None = None,
    runner: TaskRunner = run_tasks,
) -> Converted:
    """Write a dataset again, changed as asked; killed at any moment, the same call makes what is missing.

    Args:
        dataset: what to read.
        out: a new folder, or that of an interrupted run of the same conversion.
        target: what should come out.
        workers: processes; 0 works in this one.
        progress: called with ``(episodes done, episodes)``.
        runner: where the work runs.

    Raises:
        UsageError: names that mean nothing, or the output inside the source.
        ConventionError: what would be guessed or lost.
        DataError: damaged data, or an output folder that holds something else.
    """
    if out.resolve() == dataset.root.resolve():
        raise UsageError(f"{out} is the dataset itself; give another --out")
    converter = Converter(dataset, target)
    jobs = [(place, index) for place, index in enumerate(converter.episodes)]
    workers = fitting_workers([dataset], workers)
    made = (dataset.root, dataset.keymap, target, converter.fingerprint, out)
    done = write_all(
        out, converter.spec, _Conversion, made, jobs, workers, progress, runner, notes=converter.dropped
    )
    return replace(done, videos_copied=converter.keeps_videos)


class _Conversion(EpisodeWork):
    def __init__(
        self, root: Path, keymap: KeyMap | None, target: Target, fingerprint: str, out: Path
    ) -> None:
        self._converter = Converter(open_dataset(root, keymap), target, fingerprint)
        super().__init__(out, self._converter.spec)

    def __call__(self, job: tuple[int, ...]) -> int:
        place, index = job
        episode, kept = self._converter.episode(index)
        self.writer.write(place, episode, encoded=kept)
        return place


def _episodes(dataset: Dataset, target: Target) -> tuple[int, ...]:
    known = [e.index for e in dataset.entries if e.length > 0]
    if target.episodes is None:
        return tuple(known)
    missing = [k for k in target.episodes if k not in set(known)]
    if missing or len(set(target.episodes)) != len(target.episodes):
        raise UsageError(
            f"{dataset.root} has no episodes {missing[:5]} with frames (or some were named twice); it has"
            f" {len(known)}, {known[0]} to {known[-1]}"
        )
    return target.episodes


def _cameras(dataset: Dataset, target: Target) -> dict[str, str]:
    """Return new name -> camera of the source."""
    there = dataset.spec.cameras
    for name in (*target.cameras, *target.drop_cameras):
        if name not in there:
            raise UsageError(f"{dataset.root} has no camera {name!r}; {did_you_mean(name, there)}")
    chosen: dict[str, str] = {}
    for camera in there:
        if camera in target.drop_cameras:
            continue
        name = target.cameras.get(camera, camera)
        if name in chosen:
            raise UsageError(
                f"cameras {chosen[name]!r} and {camera!r} would both be {name!r}; give each a name of its own"
            )
        chosen[name] = camera
    return chosen


class Extra(NamedTuple):
    """A further column that can be kept."""

    key: str
    """Its name in the source."""
    kind: str
    """Stored type and width; the same in every dataset that is merged."""


def _extras(dataset: Dataset, episodes: Sequence[int]) -> tuple[dict[str, Extra], tuple[str, ...]]:
    """Return which further columns can be kept under which name, and a sentence on each that cannot."""
    if not episodes:
        return {}, ()
    reserved = {ACTION, STATE, TIME, *INDEX_FEATURES}
    kept: dict[str, Extra] = {}
    notes = []
    for key, values in dataset.episode(episodes[0], images=False).extras.items():
        # lerobot takes what begins with observation for an input
        name = key.removeprefix("observations/").removeprefix("obs/").replace("/", ".")
        if (
            name in reserved
            or name in kept
            or "image" in name
            or values.ndim > 2
            or values.dtype.kind not in _COLUMN_TYPES
        ):
            notes.append(
                f"column {key!r} is left out: its name or type ({values.dtype}, {values.ndim} dimensions)"
                " cannot be stored"
            )
        else:
            stored = _storable(values[:1])
            kept[name] = Extra(key, f"{stored.dtype.name}{list(stored.shape[1:])}")
    return kept, tuple(notes)


def _storable(values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype.name in ("float32", "float64", "int64", "bool"):
        return values
    return values.astype(_COLUMN_TYPES[values.dtype.kind])


def _resampled(episode: Episode, rate_hz: float) -> Episode:
    """Return what a loop at a lower rate would have seen: at each tick the newest frame, command and reading, and their age."""
    first, last = float(episode.time_s[0]), float(episode.time_s[-1])
    ticks = first + np.arange(int(np.floor((last - first) * rate_hz + 1e-6)) + 1) / rate_hz
    rows = np.searchsorted(episode.time_s, ticks + 1e-6, side="right") - 1
    return replace(
        episode,
        images={name: frames[rows] for name, frames in episode.images.items()},
        state=episode.state[rows],
        action=episode.action[rows],
        time_s=ticks,
        extras={name: values[rows] for name, values in episode.extras.items()}
        | {"sample_age_s": ticks - episode.time_s[rows]},
    )

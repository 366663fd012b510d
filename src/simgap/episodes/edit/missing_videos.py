"""Videos that are not there: said before anything is written, with the command that goes without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simgap.episodes.formats.commands import again
from simgap.episodes.reader import Dataset
from simgap.errors import DataError
from simgap.wording import number_of

_SHOWN = 3


def require_videos(
    dataset: Dataset, episodes: Sequence[int], cameras: Mapping[str, str], asked: Sequence[str]
) -> None:
    """Raise where the video of a camera that is to be converted is no file.

    Args:
        dataset: the source.
        episodes: those that are converted.
        cameras: new name -> camera of the source.
        asked: words of the command, to be repeated with what helps.

    Raises:
        DataError: which files, how many, and the command that leaves out the camera or the episodes.
    """
    lost: dict[str, list[int]] = {}
    paths: dict[str, None] = {}
    there: dict[str, bool] = {}
    for camera in cameras.values():
        key = dataset.camera_key(camera)
        for index in episodes:
            span = dataset.entry(index).videos.get(key)
            if span is None:
                continue
            name = str(span.path)
            if name not in there:
                there[name] = span.path.is_file()
            if not there[name]:
                lost.setdefault(camera, []).append(index)
                paths[name] = None
    if not lost:
        return
    gone = [camera for camera, without in lost.items() if len(without) == len(episodes)]
    without = {index for camera, lacking in lost.items() if camera not in gone for index in lacking}
    rest = [index for index in episodes if index not in without]
    options = [word for camera in gone for word in ("--drop-camera", camera)]
    options += ["--episodes", spans(rest)] if without and rest else []
    shown = ", ".join(list(paths)[:_SHOWN]) + (", ..." if len(paths) > _SHOWN else "")
    parts = [
        f"camera {camera} in {'all' if camera in gone else len(lacking)} of {number_of(len(episodes), 'episode')}"
        for camera, lacking in lost.items()
    ]
    others = (
        f", or go without {'them' if len(paths) > 1 else 'it'}: {again(dataset, asked, *options)}"
        if options
        else ""
    )
    raise DataError(
        f"{number_of(len(paths), 'video is', 'videos are')} missing ({shown}), which"
        f" {'is' if len(paths) == 1 else 'are'} {'; '.join(parts)}: download or copy"
        f" {'it' if len(paths) == 1 else 'them'} again{others}"
    )


def spans(indices: Sequence[int]) -> str:
    """Return indices as ``--episodes`` takes them: ``0-3,5``."""
    found: list[list[int]] = []
    for index in sorted(indices):
        if found and index == found[-1][1] + 1:
            found[-1][1] = index
        else:
            found.append([index, index])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in found)

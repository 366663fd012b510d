"""Do the statistics that LeRobot v2.1 keeps by episode belong to the episodes: lines, counts, values, images, and the whole they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from simgap.checks.data.pooled import Pooled
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.checks.data.statistics.bounds import contradictions, impossible_std
from simgap.checks.data.statistics.forms import is_tame, overflows
from simgap.episodes.formats.layout import INDEX_FEATURES
from simgap.episodes.statistics.by_episode import (
    EPISODE_STATISTICS,
    EpisodeStatistics,
    over_episodes,
    read_episode_statistics,
    worst_of,
)
from simgap.episodes.statistics.files import StatisticsBlock
from simgap.errors import DataError
from simgap.wording import number_of

_REMEDY = "write them again from the rows: simgap data stats {root} --write"


def check_episode_statistics(
    pooled: Pooled, whole: Mapping[str, StatisticsBlock]
) -> tuple[dict[str, Any], list[DataFinding]]:
    """Return facts and findings about ``meta/episodes_stats.jsonl``; nothing where there is no such file.

    Args:
        pooled: the dataset.
        whole: the blocks of ``meta/stats.json`` by feature, empty where there is none.
    """
    path = pooled.dataset.root / "meta" / EPISODE_STATISTICS
    if not path.is_file():
        return {}, []
    try:
        episodes = read_episode_statistics(path)
    except DataError as error:
        text = f"the statistics by episode cannot be read: {error}"
        return {}, [
            _finding(
                "episode_statistics_unreadable",
                Severity.FAULT,
                text,
                _REMEDY.format(root=pooled.dataset.root),
            )
        ]
    findings = [
        *_lines(pooled, episodes),
        *_values(pooled, episodes),
        *judge_episodes(episodes),
        *_whole(episodes, whole),
    ]
    return {
        "episodes_stats": {
            "lines": len(episodes),
            "features": sorted({k for e in episodes for k in e.blocks}),
        }
    }, findings


def judge_episodes(episodes: Sequence[EpisodeStatistics]) -> list[DataFinding]:
    """Return what statistics by episode say against themselves, without the data."""
    blocks = [b for e in episodes for k, b in e.blocks.items() if k not in INDEX_FEATURES]
    even = [b for b in blocks if b.is_even]
    with np.errstate(over="ignore", invalid="ignore"):
        found = contradictions(even)
    found += [
        *overflows(even),
        *impossible_std([b for b in even if is_tame(b) and not (b.is_image and _is_zero(b))]),
    ]
    images = [(e.index, b) for e in episodes for b in e.blocks.values() if b.is_image]
    zero = sorted({k for k, b in images if _is_zero(b)})
    if zero:
        total = len({k for k, _ in images})
        text = (
            f"the stored standard deviation of images is exactly 0 in {len(zero)} of"
            f" {number_of(total, 'episode')}:"
            " squares of uint8 overflow"
        )
        remedy = (
            "compute them in float64; a policy that scales images by mean and std is affected, one with"
            " ImageNet statistics is not"
        )
        found.append(_finding("image_std_zero", Severity.FAULT, text, remedy, episodes=zero))
    flat = sorted({k for e in episodes for k in e.flat_images})
    if flat:
        text = (
            f"image statistics of {listed(flat)} have no shape (channels, 1, 1), so they would run along the"
            " width of a picture"
        )
        found.append(
            _finding(
                "image_statistics_shape", Severity.WARNING, text, "store [[[r]], [[g]], [[b]]]", features=flat
            )
        )
    return found


def _is_zero(block: StatisticsBlock) -> bool:
    std = block.get("std")
    return std is not None and not std.any()


def _lines(pooled: Pooled, episodes: Sequence[EpisodeStatistics]) -> list[DataFinding]:
    lines = [e.index for e in episodes]
    listed_there = [k for k, n in pooled.lengths.items() if n > 0]
    missing, unknown = sorted(set(listed_there) - set(lines)), sorted(set(lines) - set(pooled.lengths))
    twice = sorted({k for k in lines if lines.count(k) > 1}) if len(set(lines)) < len(lines) else []
    parts = [
        f"{what} {listed([str(k) for k in which])}"
        for what, which in (
            ("no line for episodes", missing),
            ("lines for episodes that are not there:", unknown),
            ("several lines for", twice),
        )
        if which
    ]
    if not parts:
        return []
    text = f"meta/{EPISODE_STATISTICS} does not list the episodes: {'; '.join(parts)}"
    remedy = _REMEDY.format(root=pooled.dataset.root)
    return [
        _finding(
            "episode_statistics_lines",
            Severity.FAULT,
            text,
            remedy,
            missing=missing,
            unknown=unknown,
            twice=twice,
        )
    ]


def _values(pooled: Pooled, episodes: Sequence[EpisodeStatistics]) -> list[DataFinding]:
    """Compare counts and values with the rows of each episode, on the scale of the whole dataset."""
    rows = dict(zip(pooled.indices, pooled.episodes, strict=True))
    features = [k for k in pooled.episodes[0] if all(k in e for e in pooled.episodes)]
    spans = {k: np.ptp(pooled.pooled(k), axis=0) for k in features}
    counts: dict[int, dict[str, int]] = {}
    off: dict[str, dict[int, dict[str, Any]]] = {}
    for e in episodes:
        for key in features:
            block = e.blocks.get(key)
            if block is None or e.index not in rows:
                continue
            values = np.asarray(rows[e.index][key], dtype=np.float64).reshape(len(rows[e.index][key]), -1)
            if block.count is not None and block.count != len(values):
                counts[e.index] = {"stored": block.count, "rows": len(values)}
            worst = worst_of(block, values, spans[key])
            if worst is not None:
                statistic, k, stored, exact = worst
                off.setdefault(key, {})[e.index] = {
                    "statistic": statistic,
                    "dimension": pooled.names(key)[k],
                    "stored": stored,
                    "exact": exact,
                }
    remedy = _REMEDY.format(root=pooled.dataset.root)
    found = []
    if counts:
        k, c = next(iter(counts.items()))
        text = (
            f"meta/{EPISODE_STATISTICS} counts other rows in {number_of(len(counts), 'episode')}"
            f" (episode {k}:"
            f" {c['stored']} stored, {c['rows']} there)"
        )
        text += ": a mean over episodes weighs them wrongly"
        found.append(_finding("episode_statistics_counts", Severity.FAULT, text, remedy, episodes=counts))
    for key, entries in off.items():
        if key in INDEX_FEATURES:
            continue
        k, v = next(iter(entries.items()))
        text = (
            f"{key}: statistics of {len(entries)} of"
            f" {number_of(len(rows), 'episode is', 'episodes are')} not those of their rows"
            f" (episode {k}: {v['statistic']} of {v['dimension']} is "
        )
        text += f"stored as {v['stored']:.4g}, the rows give {v['exact']:.4g})"
        found.append(
            _finding("episode_statistics_wrong", Severity.FAULT, text, remedy, feature=key, episodes=entries)
        )
    return found


def _whole(episodes: Sequence[EpisodeStatistics], whole: Mapping[str, StatisticsBlock]) -> list[DataFinding]:
    """Compare what the episodes make together with ``meta/stats.json``."""
    off: dict[str, dict[str, dict[str, Any]]] = {}
    for block in over_episodes(episodes):
        stored = whole.get(block.key)
        if stored is None or stored.size != block.size or block.is_image or block.key in INDEX_FEATURES:
            continue
        span = (
            np.maximum(block.values["max"] - block.values["min"], 1e-9)
            if {"min", "max"} <= set(block.values)
            else np.ones(block.size)
        )
        for name in ("min", "max", "mean", "std"):
            ours, theirs = block.get(name), stored.get(name)
            if (
                ours is not None
                and theirs is not None
                and len(theirs) == len(ours)
                and (far := ~(np.abs(ours - theirs) <= 0.01 * span)).any()
            ):
                k = int(np.argmax(far))
                off.setdefault(block.key, {})[name] = {
                    "dimension": k,
                    "together": float(ours[k]),
                    "stats.json": float(theirs[k]),
                }
    if not off:
        return []
    key, entries = next(iter(off.items()))
    name, v = next(iter(entries.items()))
    text = (
        f"the episodes together do not make meta/stats.json: {name}[{v['dimension']}] of {key} is"
        f" {v['together']:.4g} by episode, "
    )
    text += f"{v['stats.json']:.4g} there"
    remedy = "one of the two is older than the rows; write both again"
    return [_finding("episode_statistics_against_stats", Severity.WARNING, text, remedy, features=off)]


def _finding(
    code: str, severity: Severity, sentence: str, remedy: str, feature: str | None = None, **numbers: Any
) -> DataFinding:
    return DataFinding(
        code=code, severity=severity, sentence=sentence, remedy=remedy, feature=feature, numbers=numbers
    )

"""Do the stored statistics belong to the data: every value recomputed exactly over pooled frames and compared by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.pooled import Pooled
from simgap.checks.data.report import DataFinding, Severity, flat_numbers, listed
from simgap.checks.data.statistics.episodes import check_episode_statistics
from simgap.checks.data.statistics.stored import check_stored
from simgap.episodes.formats.commands import reading_command
from simgap.episodes.formats.layout import INDEX_FEATURES, VERSION_20, VERSION_21, VERSION_30
from simgap.episodes.reader import Dataset
from simgap.episodes.statistics.exact import QUANTILES, exact_statistics
from simgap.episodes.statistics.files import blocks_in
from simgap.provenance import read_json
from simgap.wording import number_of

_THIN = 0.001
"""A dimension whose middle 98 % span less than this share of its own value is a constant with noise on it."""
_TOLERANCE = 0.01
"""Share of a dimension's range that a stored quantile, or of its standard deviation that another statistic, may be off."""


class Deviation(NamedTuple):
    """One stored value that the data do not confirm."""

    feature: str
    joint: str
    statistic: str
    stored: float
    exact: float
    relative: float
    """Difference over the range of the dimension."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**self._asdict(), "difference": self.stored - self.exact}


def check_statistics(pooled: Pooled) -> tuple[dict[str, Any], list[DataFinding]]:
    """Return exact statistics of action and state, and what is wrong with the stored ones."""
    dataset = pooled.dataset
    features = [
        k for k in pooled.episodes[0] if k not in INDEX_FEATURES and all(k in e for e in pooled.episodes)
    ]
    exact = {k: exact_statistics(pooled.pooled(k)) for k in features}
    measured: dict[str, Any] = {
        k: {"names": list(pooled.names(k)), **exact[k]}
        for k in features
        if k in (dataset.action_key, dataset.state_key)
    }
    thin = _nearly_constant(pooled, exact)
    path = dataset.root / "meta" / "stats.json"
    stored = read_json(path, finite=False) if path.is_file() else {}
    stored = stored if isinstance(stored, dict) else {}
    facts, by_episode = check_episode_statistics(
        pooled, {b.key: b for b in blocks_in(stored, path.name) if not b.group}
    )
    measured |= facts
    if not path.is_file():
        is_wanted = dataset.info.version in (VERSION_30, VERSION_20) or (
            dataset.info.version == VERSION_21 and not facts and not by_episode
        )
        return measured, [*thin, *by_episode, *([_absent(dataset.info.version)] if is_wanted else [])]
    deviations = [
        d
        for k in features
        if isinstance(stored.get(k), dict)
        for d in _deviations(k, pooled.names(k), stored[k], exact[k])
    ]
    found = [*_missing(dataset, stored), *thin]
    for feature in features:
        ours = [d for d in deviations if d.feature == feature]
        found += _quantiles(
            pooled, feature, [d for d in ours if d.statistic in QUANTILES], stored.get(feature, {})
        )
        found += _moments(pooled, feature, [d for d in ours if d.statistic not in QUANTILES])
    for feature in (
        k for k in features if k in measured and (cover := coverage(pooled.pooled(k), stored.get(k)))
    ):
        measured[feature]["outside_stored_quantiles"] = dict(
            zip(pooled.names(feature), cover["outside"], strict=True)
        )
    numbering = {
        k: exact_statistics(pooled.pooled(k)) for k in INDEX_FEATURES if all(k in e for e in pooled.episodes)
    }
    facts, stored_findings = check_stored(pooled, stored, numbering)
    return measured | facts, [*found, *_placeholders(dataset, stored), *stored_findings, *by_episode]


def coverage(values: NDArray[np.float64], stored: Any) -> dict[str, list[float]]:
    """Return the share of rows outside the stored [q01, q99], where 2 % is right, and the largest value after scaling by it.

    Args:
        values: ``(N, D)`` pooled rows.
        stored: the entry of the feature; anything without quantiles of D numbers gives an empty result.
    """
    low, high = (flat_numbers(stored.get(s)) if isinstance(stored, dict) else None for s in ("q01", "q99"))
    if low is None or high is None or len(low) != values.shape[1] or len(high) != values.shape[1]:
        return {}
    slack = 1e-5 * np.abs(values).max(axis=0) + 1e-9  # float32 rounding of a constant is not outside
    outside = ((values < low - slack) | (values > high + slack)).mean(axis=0)
    width = np.where(high > low, high - low, np.nan)
    largest = np.abs(2.0 * (values - low) / width - 1.0).max(axis=0)
    return {
        "outside": outside.tolist(),
        "largest_scaled": [float(v) if np.isfinite(v) else 0.0 for v in largest],
    }


def _nearly_constant(pooled: Pooled, exact: Mapping[str, Mapping[str, list[Any]]]) -> list[DataFinding]:
    """Note dimensions that hardly move beside their own value: scaling by their range blows noise up."""
    found: dict[str, dict[str, float]] = {}
    for key in (pooled.dataset.action_key, pooled.dataset.state_key):
        if key not in exact or "q01" not in exact[key]:
            continue
        low, high = (np.asarray(exact[key][s]) for s in ("q01", "q99"))
        width, size = high - low, np.maximum(np.abs(low), np.abs(high))
        thin = (width > 0) & (width < _THIN * size)
        names = pooled.names(key)
        found |= {key: {names[k]: float(2.0 / width[k]) for k in np.flatnonzero(thin)}} if thin.any() else {}
    if not found:
        return []
    parts = [f"{key} {listed(list(gains))}" for key, gains in found.items()]
    return [
        DataFinding(
            code="nearly_constant_dimensions",
            severity=Severity.NOTE,
            sentence=(
                f"dimensions move by less than {100 * _THIN:g} % of their own value: {listed(parts)}; scaled"
                " by their range, noise becomes the signal"
            ),
            remedy="scale them by their limits, or drop them",
            joints=tuple(n for gains in found.values() for n in gains),
            numbers=found,
        )
    ]


def _deviations(
    feature: str, names: tuple[str, ...], stored: Mapping[str, Any], exact: Mapping[str, list[Any]]
) -> list[Deviation]:
    spread = np.subtract(exact["max"], exact["min"])
    std = np.asarray(exact["std"])
    found = []
    for statistic, true in exact.items():
        values = flat_numbers(stored.get(statistic))
        if statistic == "count" or values is None:
            continue
        if len(values) != len(true):
            found.append(
                Deviation(
                    feature,
                    f"({number_of(len(values), 'value')} for {len(true)} dimensions)",
                    statistic,
                    float(len(values)),
                    float(len(true)),
                    np.inf,
                )
            )
            continue
        scale = spread if statistic in QUANTILES or statistic in ("min", "max") else std
        floor = 1e-5 * np.maximum(np.abs(exact["max"]), np.abs(exact["min"])) + 1e-9
        off = np.abs(values - np.asarray(true))
        for k in np.flatnonzero(~(off <= np.maximum(_TOLERANCE * scale, floor))):
            relative = off[k] / spread[k] if spread[k] > 0 else np.inf
            found.append(
                Deviation(feature, names[k], statistic, float(values[k]), float(true[k]), float(relative))
            )
    return sorted(found, key=lambda d: -d.relative)


def _quantiles(
    pooled: Pooled, feature: str, deviations: list[Deviation], stored: Mapping[str, Any]
) -> list[DataFinding]:
    if not deviations:
        return []
    cause = ""
    is_averaged = len(pooled.episodes) > 1 and _are_episode_means(pooled, feature, deviations)
    if is_averaged:
        cause = (
            "; the stored values are the frame-weighted mean of per-episode quantiles (LeRobot's aggregation"
            " until August 2026), not quantiles of the data"
        )
    parts = [
        f"{d.statistic} of {d.joint} is stored as {d.stored:.4g}, the data give {d.exact:.4g}"
        f" ({d.stored - d.exact:+.1f})"
        for d in deviations
    ]
    cover = coverage(pooled.pooled(feature), stored)
    if cover:
        cause += (
            f"; {100 * max(cover['outside']):.1f} % of frames lie outside [q01, q99] of the worst dimension,"
            " 2 % would be right"
        )
    return [
        DataFinding(
            code="stored_quantiles_wrong",
            severity=Severity.FAULT,
            sentence=f"{feature}: {listed(parts, 3)}{cause}",
            remedy=(
                "put the exact ones in their place before training anything that normalises by quantiles"
                f" (mean and std are not affected): {reading_command('stats', pooled.dataset, '--write')}"
            ),
            feature=feature,
            joints=tuple(dict.fromkeys(d.joint for d in deviations)),
            numbers={
                "deviations": [_plain(d) for d in deviations],
                "is_mean_of_episode_quantiles": is_averaged,
                "names": list(pooled.names(feature)),
                **cover,
            }
            | {"affected": ["QUANTILES", "QUANTILE10"], "not_affected": ["MEAN_STD", "MIN_MAX"]},
        )
    ]


def _moments(pooled: Pooled, feature: str, deviations: list[Deviation]) -> list[DataFinding]:
    if not deviations:
        return []
    parts = []
    for d in sorted(deviations, key=lambda d: -_factor(d)):
        times = f" (x{d.stored / d.exact:.2f})" if d.statistic == "std" and d.exact > 0 else ""
        parts.append(
            f"{d.statistic} of {d.joint} is stored as {d.stored:.4g}, the data give {d.exact:.4g}{times}"
        )
    return [
        DataFinding(
            code="stored_statistics_wrong",
            severity=Severity.FAULT,
            sentence=f"{feature}: {listed(parts, 3)}",
            remedy=(
                "a policy trained with these normalises wrongly; put the exact ones in their place:"
                f" {reading_command('stats', pooled.dataset, '--write')}"
            ),
            feature=feature,
            joints=tuple(dict.fromkeys(d.joint for d in deviations)),
            numbers={"deviations": [_plain(d) for d in deviations]},
        )
    ]


def _factor(d: Deviation) -> float:
    return abs(float(np.log(d.stored / d.exact))) if d.stored > 0 and d.exact > 0 else d.relative


def _are_episode_means(pooled: Pooled, feature: str, deviations: list[Deviation]) -> bool:
    """Return whether the wrong quantiles lie nearer to the weighted mean of episode quantiles than to the truth, nearly all of them."""
    names = pooled.names(feature)
    tables = [np.asarray(e[feature], dtype=np.float64).reshape(len(e[feature]), -1) for e in pooled.episodes]
    weights = np.array([len(t) for t in tables], dtype=np.float64)
    nearer = 0
    for d in deviations:
        if d.joint not in names:
            return False
        k = names.index(d.joint)
        mean = float(
            np.average([np.quantile(t[:, k], QUANTILES[d.statistic]) for t in tables], weights=weights)
        )
        nearer += abs(d.stored - mean) < 0.2 * abs(d.stored - d.exact)
    return nearer >= 0.9 * len(deviations)


def _placeholders(dataset: Dataset, stored: Mapping[str, Any]) -> list[DataFinding]:
    names = []
    for key in dataset.camera_keys.values():
        entry = stored.get(key)
        if isinstance(entry, dict):
            mean, std, low, high = (flat_numbers(entry.get(s)) for s in ("mean", "std", "min", "max"))
            halves = all(v is not None and (v == 0.5).all() for v in (mean, std))
            bare = (
                mean is not None
                and std is not None
                and ((std == 0).all() or ((mean == 0).all() and (std == 1).all()))
            )
            if bare or (
                halves and low is not None and high is not None and (low == 0).all() and (high == 1).all()
            ):
                names.append(key)
    if not names:
        return []
    return [
        DataFinding(
            code="placeholder_image_statistics",
            severity=Severity.WARNING,
            sentence=(
                f"image statistics of {listed(names)} are placeholders (such as mean 0.5, std 0.5), not"
                " measured"
            ),
            remedy=(
                "recompute them from the frames, or make sure the policy does not normalise images with them"
            ),
            feature=names[0],
            numbers={"features": names},
        )
    ]


def _missing(dataset: Dataset, stored: Mapping[str, Any]) -> list[DataFinding]:
    # nothing was measured
    wanted = [k for k in (dataset.action_key, dataset.state_key) if dataset.info.features[k].shape != (0,)]
    absent = [k for k in wanted if not isinstance(stored.get(k), dict)]
    if not absent:
        return []
    return [
        DataFinding(
            code="missing_statistics",
            severity=Severity.WARNING,
            sentence=f"meta/stats.json has no entry for {listed(absent)}",
            remedy="recompute meta/stats.json; LeRobot normalises with it",
            numbers={"features": absent},
        )
    ]


def _absent(version: str) -> DataFinding:
    name = "meta/episodes_stats.jsonl" if version == VERSION_21 else "meta/stats.json"
    return DataFinding(
        code="missing_statistics",
        severity=Severity.NOTE if version == VERSION_21 else Severity.WARNING,
        sentence=f"{name} is missing",
        remedy="recompute it from pooled frames; LeRobot normalises with it",
    )


def _plain(d: Deviation) -> dict[str, Any]:
    plain = d.to_json()
    return plain | {"relative": None if not np.isfinite(d.relative) else d.relative}

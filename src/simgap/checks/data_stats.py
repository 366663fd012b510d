"""Do the stored statistics belong to the data: every value recomputed exactly over pooled frames and compared by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data_pooled import Pooled
from simgap.checks.data_report import DataFinding, Severity, listed
from simgap.episodes.layout import INDEX_FEATURES, VERSION_20, VERSION_30
from simgap.episodes.reader import Dataset
from simgap.episodes.stats import QUANTILES, exact_statistics
from simgap.provenance import read_json

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
    features = [k for k in pooled.episodes[0] if k not in INDEX_FEATURES and all(k in e for e in pooled.episodes)]
    exact = {k: exact_statistics(pooled.pooled(k)) for k in features}
    measured = {k: {"names": list(pooled.names(k)), **exact[k]} for k in features if k in (dataset.action_key, dataset.state_key)}
    path = dataset.root / "meta" / "stats.json"
    if not path.is_file():
        return measured, [_absent()] if dataset.info.version in (VERSION_30, VERSION_20) else []
    stored = read_json(path)
    stored = stored if isinstance(stored, dict) else {}
    deviations = [d for k in features if isinstance(stored.get(k), dict) for d in _deviations(k, pooled.names(k), stored[k], exact[k])]
    found = _missing(dataset, stored)
    for feature in features:
        ours = [d for d in deviations if d.feature == feature]
        found += _quantiles(pooled, feature, [d for d in ours if d.statistic in QUANTILES])
        found += _moments(feature, [d for d in ours if d.statistic not in QUANTILES])
    return measured, [*found, *_placeholders(dataset, stored)]


def _deviations(feature: str, names: tuple[str, ...], stored: Mapping[str, Any], exact: Mapping[str, list[Any]]) -> list[Deviation]:
    spread = np.subtract(exact["max"], exact["min"])
    std = np.asarray(exact["std"])
    found = []
    for statistic, true in exact.items():
        values = _flat(stored.get(statistic))
        if statistic == "count" or values is None:
            continue
        if len(values) != len(true):
            found.append(Deviation(feature, f"({len(values)} values for {len(true)} dimensions)", statistic, float(len(values)), float(len(true)), np.inf))
            continue
        scale = spread if statistic in QUANTILES or statistic in ("min", "max") else std
        floor = 1e-5 * np.maximum(np.abs(exact["max"]), np.abs(exact["min"])) + 1e-9
        off = np.abs(values - np.asarray(true))
        for k in np.flatnonzero(~(off <= np.maximum(_TOLERANCE * scale, floor))):
            relative = off[k] / spread[k] if spread[k] > 0 else np.inf
            found.append(Deviation(feature, names[k], statistic, float(values[k]), float(true[k]), float(relative)))
    return sorted(found, key=lambda d: -d.relative)


def _quantiles(pooled: Pooled, feature: str, deviations: list[Deviation]) -> list[DataFinding]:
    if not deviations:
        return []
    cause = ""
    if len(pooled.episodes) > 1 and _are_episode_means(pooled, feature, deviations):
        cause = "; the stored values are the frame-weighted mean of per-episode quantiles (LeRobot's aggregation until August 2026), not quantiles of the data"
    parts = [f"{d.statistic} of {d.joint} is stored as {d.stored:.4g}, the data give {d.exact:.4g} ({d.stored - d.exact:+.1f})" for d in deviations]
    return [
        DataFinding(
            code="stored_quantiles_wrong",
            severity=Severity.FAULT,
            sentence=f"{feature}: {listed(parts, 3)}{cause}",
            remedy="recompute meta/stats.json from pooled frames before training anything that normalises by quantiles",
            feature=feature,
            joints=tuple(dict.fromkeys(d.joint for d in deviations)),
            numbers={"deviations": [_plain(d) for d in deviations], "is_mean_of_episode_quantiles": bool(cause)},
        )
    ]


def _moments(feature: str, deviations: list[Deviation]) -> list[DataFinding]:
    if not deviations:
        return []
    parts = []
    for d in sorted(deviations, key=lambda d: -_factor(d)):
        times = f" (x{d.stored / d.exact:.2f})" if d.statistic == "std" and d.exact > 0 else ""
        parts.append(f"{d.statistic} of {d.joint} is stored as {d.stored:.4g}, the data give {d.exact:.4g}{times}")
    return [
        DataFinding(
            code="stored_statistics_wrong",
            severity=Severity.FAULT,
            sentence=f"{feature}: {listed(parts, 3)}",
            remedy="recompute meta/stats.json from the data; a policy trained with these normalises wrongly",
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
        mean = float(np.average([np.quantile(t[:, k], QUANTILES[d.statistic]) for t in tables], weights=weights))
        nearer += abs(d.stored - mean) < 0.2 * abs(d.stored - d.exact)
    return nearer >= 0.9 * len(deviations)


def _placeholders(dataset: Dataset, stored: Mapping[str, Any]) -> list[DataFinding]:
    names = []
    for key in dataset.camera_keys.values():
        entry = stored.get(key)
        if isinstance(entry, dict):
            mean, std, low, high = (_flat(entry.get(s)) for s in ("mean", "std", "min", "max"))
            halves = all(v is not None and (v == 0.5).all() for v in (mean, std))
            bare = mean is not None and std is not None and ((std == 0).all() or ((mean == 0).all() and (std == 1).all()))
            if bare or (halves and low is not None and high is not None and (low == 0).all() and (high == 1).all()):
                names.append(key)
    if not names:
        return []
    return [
        DataFinding(
            code="placeholder_image_statistics",
            severity=Severity.WARNING,
            sentence=f"image statistics of {listed(names)} are placeholders (such as mean 0.5, std 0.5), not measured",
            remedy="recompute them from the frames, or make sure the policy does not normalise images with them",
            feature=names[0],
            numbers={"features": names},
        )
    ]


def _missing(dataset: Dataset, stored: Mapping[str, Any]) -> list[DataFinding]:
    absent = [k for k in (dataset.action_key, dataset.state_key) if not isinstance(stored.get(k), dict)]
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


def _absent() -> DataFinding:
    return DataFinding(
        code="missing_statistics",
        severity=Severity.WARNING,
        sentence="meta/stats.json is missing",
        remedy="recompute it from pooled frames; LeRobot normalises with it",
    )


def _flat(value: Any) -> NDArray[np.float64] | None:
    try:
        return None if value is None else np.asarray(value, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError, OverflowError):
        return None


def _plain(d: Deviation) -> dict[str, Any]:
    plain = d.to_json()
    return plain | {"relative": None if not np.isfinite(d.relative) else d.relative}

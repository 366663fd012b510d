"""Are the pictures the right ones: frozen for a while, exchanged between cameras, red for blue, of the scene before, or unlike their statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.checks.data.pooled import Pooled
from simgap.checks.data.report import DataFinding, Severity, flat_numbers, listed
from simgap.errors import DataError
from simgap.measures.glimpses import Glimpse, Looker
from simgap.provenance import read_json
from simgap.wording import number_of

_STILL = 10.0
"""A pixel moves by less than this, of 255, between frames of one picture; compression alone stays below."""
_FREEZE_S = 1.0
_MOVES = 0.05
"""A joint that covers this share of its range while the picture rests moves."""
_NEARER = 0.5
"""Exchanged pictures lie nearer to the others' place than to their own by this factor."""
_COLOUR = 4.0
"""Red and blue that differ by less, of 255, cannot be told apart when exchanged."""
_JUMP = 3.0
"""Mean difference of the first two frames, of 255, that a resting scene does not make."""
_MOST_STARTS = 40
_MOST_REFINED = 8


def check_pictures(
    pooled: Pooled, looker: Looker, looks: Sequence[Glimpse]
) -> tuple[dict[str, Any], list[DataFinding]]:
    """Return measurements of each camera, and findings about what the pictures show."""
    by_camera: dict[str, dict[int, Glimpse]] = {}
    for look in looks:
        by_camera.setdefault(look.camera, {})[look.episode] = look
    measured = {name: _colours(list(views.values())) for name, views in by_camera.items()}
    found = [*_freezes(pooled, looker, looks), *_exchanged(by_camera), *_turned_colours(by_camera)]
    found += [*_statistics(pooled, measured), *_stale_starts(pooled, looker, by_camera)]
    return measured, found


def _colours(views: Sequence[Glimpse]) -> dict[str, Any]:
    """Return mean and standard deviation of each channel over all looks, of 1, as ``stats.json`` has them."""
    pixels = np.concatenate([v.frames.reshape(-1, 3) for v in views]).astype(np.float64) / 255.0
    return {
        "episodes": len(views),
        "frames": sum(len(v.frames) for v in views),
        "mean": pixels.mean(axis=0).tolist(),
        "std": pixels.std(axis=0).tolist(),
    }


def _freezes(pooled: Pooled, looker: Looker, looks: Sequence[Glimpse]) -> list[DataFinding]:
    """Find stretches of more than a second in which a picture rests while the robot moves, in videos that otherwise move."""
    rate = pooled.dataset.info.rate_hz
    states = {number: pooled.moving_part(k) for k, number in enumerate(pooled.indices)}
    reach = np.concatenate([s for s in states.values() if len(s)]) if states else np.zeros((0, 1))
    spread = np.ptp(reach, axis=0) if len(reach) else np.zeros(1)
    found: dict[str, dict[str, float]] = {}
    for look in looks:
        steps, state = look.steps, states.get(look.episode)
        if state is None or len(steps) < 2 or not (steps >= _STILL).any():
            continue
        for first, last in _runs(steps < _STILL):
            begin, end = (round(float(look.times_s[k]) * rate) for k in (first, last))
            if (end - begin) / rate < _FREEZE_S - 0.5 or not _moves(state[begin : end + 1], spread):
                continue
            begin, end = (
                _refined(pooled, looker, look, begin, end) if len(found) < _MOST_REFINED else (begin, end)
            )
            if (end - begin) / rate >= _FREEZE_S and _moves(state[begin : end + 1], spread):
                found[look.where] = {
                    "from_s": begin / rate,
                    "to_s": end / rate,
                    "seconds": (end - begin) / rate,
                }
    if not found:
        return []
    parts = [f"{n} from {v['from_s']:.1f} to {v['to_s']:.1f} s" for n, v in found.items()]
    return [
        DataFinding(
            code="frozen_segment",
            severity=Severity.WARNING,
            sentence=(
                f"{len(found)} of {len(looks)} videos stand still for a while although the robot moves:"
                f" {listed(parts)}"
            ),
            remedy=(
                "cut these stretches out, or drop the episodes; frames without news teach the policy to"
                " ignore the camera"
            ),
            feature=next(iter(found)).split(" in ")[0],
            numbers={"segments": found},
        )
    ]


def _runs(still: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return first and last frame of each run of steps without change."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], still.astype(np.int8), [0]])))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _moves(state: NDArray[np.float64], spread: NDArray[np.float64]) -> bool:
    return len(state) > 1 and bool(
        (np.ptp(state, axis=0) > _MOVES * np.where(spread > 0, spread, np.inf)).any()
    )


def _refined(pooled: Pooled, looker: Looker, look: Glimpse, begin: int, end: int) -> tuple[int, int]:
    """Return first and last frame of a freeze to the frame, by decoding around it; as it was where that fails."""
    entry = pooled.dataset.entry(look.episode)
    margin = round(0.6 * pooled.dataset.info.rate_hz)
    low, high = max(0, begin - margin), min(entry.length, end + margin + 1)
    try:
        frames = looker.exact(entry, look.camera, low, high - low).astype(np.int16)
    except DataError:
        return begin, end
    still = np.abs(np.diff(frames, axis=0)).max(axis=(1, 2, 3), initial=0) < _STILL
    runs = [(a + low, b + low) for a, b in _runs(still)]
    return max(runs, key=lambda r: r[1] - r[0], default=(begin, end))


def _distance(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    return float(np.abs(a - b).mean())


def _odd_ones(keep: Mapping[int, float], turn: Mapping[int, float]) -> list[int]:
    """Return the smaller group of episodes among those that lie clearly nearer to the reference turned than kept."""
    turned = [e for e in keep if turn[e] < _NEARER * keep[e] and keep[e] > _COLOUR]
    return turned if 2 * len(turned) <= len(keep) else [e for e in keep if e not in turned]


def _reference(views: Mapping[int, NDArray[np.float64]]) -> int:
    """Return the episode whose picture lies nearest to all others."""
    return min(views, key=lambda e: sum(_distance(views[e], other) for other in views.values()))


def _exchanged(by_camera: Mapping[str, Mapping[int, Glimpse]]) -> list[DataFinding]:
    """Find episodes in which two cameras show what the other one shows in the rest."""
    thumbnails = {c: {e: g.thumbnail for e, g in views.items()} for c, views in by_camera.items()}
    found = []
    for a, b in combinations(sorted(thumbnails), 2):
        both = sorted(thumbnails[a].keys() & thumbnails[b].keys())
        if len(both) < 2:
            continue
        one, two = ({e: thumbnails[c][e] for e in both} for c in (a, b))
        home = _reference({e: np.concatenate([one[e], two[e]]) for e in both})
        keep = {e: _distance(one[e], one[home]) + _distance(two[e], two[home]) for e in both}
        turn = {e: _distance(one[e], two[home]) + _distance(two[e], one[home]) for e in both}
        odd = _odd_ones(keep, turn)
        if odd:
            text = (
                f"{a} and {b} show each other's pictures in {len(odd)} of {number_of(len(both), 'episode')}"
                f" ({listed([str(e) for e in odd], 8)})"
            )
            if 2 * len(odd) == len(both):
                text += "; which half is right cannot be told"
            found.append(
                DataFinding(
                    code="cameras_exchanged",
                    severity=Severity.FAULT,
                    sentence=text,
                    remedy=(
                        "exchange the two videos of these episodes; fix the ports by serial number before"
                        " recording again"
                    ),
                    feature=a,
                    numbers={
                        "cameras": [a, b],
                        "episodes": odd,
                        "kept": keep[odd[0]],
                        "exchanged": turn[odd[0]],
                    },
                )
            )
    return found


def _turned_colours(by_camera: Mapping[str, Mapping[int, Glimpse]]) -> list[DataFinding]:
    """Find episodes whose pictures are those of the others with red and blue exchanged."""
    found: dict[str, dict[str, Any]] = {}
    for camera, views in by_camera.items():
        if len(views) < 2:
            continue
        pictures = {e: g.thumbnail for e, g in views.items()}
        home = _reference(pictures)
        keep = {e: _distance(p, pictures[home]) for e, p in pictures.items()}
        turn = {e: _distance(p[..., ::-1], pictures[home]) for e, p in pictures.items()}
        if odd := _odd_ones(keep, turn):
            found[camera] = {"episodes": odd, "of": len(views)}
    if not found:
        return []
    parts = [
        f"{c} in {len(v['episodes'])} of {number_of(v['of'], 'episode')}"
        f" ({listed([str(e) for e in v['episodes']], 8)})"
        for c, v in found.items()
    ]
    return [
        DataFinding(
            code="channels_exchanged",
            severity=Severity.WARNING,  # things of another colour look the same to it: whoever recorded knows
            sentence=f"red and blue look exchanged between episodes: {listed(parts)}",
            remedy=(
                "look at a frame of each; where they are, turn the channels of these episodes (BGR to RGB)"
                " and use one decoder for all recordings"
            ),
            feature=next(iter(found)),
            numbers=found,
        )
    ]


def _statistics(pooled: Pooled, measured: Mapping[str, Mapping[str, Any]]) -> list[DataFinding]:
    """Compare stored image statistics with the frames: channels in another order, or a spread that is not the frames'."""
    path = pooled.dataset.root / "meta" / "stats.json"
    stored = read_json(path, finite=False) if path.is_file() else {}
    order, spread = {}, {}
    for camera, colours in measured.items():
        entry = stored.get(pooled.dataset.camera_key(camera)) if isinstance(stored, dict) else None
        mean, std = (flat_numbers(entry.get(s)) if isinstance(entry, dict) else None for s in ("mean", "std"))
        if mean is None or std is None or len(mean) != 3 or len(std) != 3 or _is_placeholder(mean, std):
            continue
        unit = 255.0 if mean.max() > 1.5 else 1.0
        true_mean, true_std = np.array(colours["mean"]), np.array(colours["std"])
        as_is, turned = np.abs(mean / unit - true_mean).max(), np.abs(mean / unit - true_mean[::-1]).max()
        if abs(true_mean[0] - true_mean[2]) > _COLOUR / 255.0 and turned < _NEARER * as_is:
            order[camera] = {"stored_mean": (mean / unit).tolist(), "frames_mean": true_mean.tolist()}
        ratio = std / unit / np.maximum(true_std, 1e-6)
        if (ratio < 0.5).any() or (ratio > 2.0).any():
            spread[camera] = {"stored_std": (std / unit).tolist(), "frames_std": true_std.tolist()}
    found = []
    if order:
        parts = [
            f"{c} stored {_rgb(v['stored_mean'])}, frames {_rgb(v['frames_mean'])}" for c, v in order.items()
        ]
        found.append(
            DataFinding(
                code="channels_exchanged",
                severity=Severity.FAULT,
                sentence=(
                    "the decoded frames have red and blue exchanged against meta/stats.json:"
                    f" {listed(parts)}; one of the two is BGR"
                ),
                remedy=(
                    "look at one frame: if skin is blue the videos are BGR, turn them; else recompute the"
                    " statistics"
                ),
                feature=next(iter(order)),
                numbers=order,
            )
        )
    if spread:
        parts = [
            f"{c} stored {_rgb(v['stored_std'])}, frames {_rgb(v['frames_std'])}" for c, v in spread.items()
        ]
        found.append(
            DataFinding(
                code="stored_image_std_wrong",
                severity=Severity.FAULT,
                sentence=f"stored standard deviations of images are not those of the frames: {listed(parts)}",
                remedy=(
                    "recompute them in float64 from pixels; images blow up or vanish after mean and std"
                    " scaling"
                ),
                feature=next(iter(spread)),
                numbers=spread,
            )
        )
    return found


def _is_placeholder(mean: NDArray[np.float64], std: NDArray[np.float64]) -> bool:
    return bool(
        (std == 0).all()
        or ((mean == 0.5).all() and (std == 0.5).all())
        or ((mean == 0).all() and (std == 1).all())
    )


def _rgb(values: Sequence[float]) -> str:
    return "/".join(f"{v:.3f}" for v in values)


def _stale_starts(
    pooled: Pooled, looker: Looker, by_camera: Mapping[str, Mapping[int, Glimpse]]
) -> list[DataFinding]:
    """Find first frames that show the end of the episode before: the renderer or the camera was one reset late."""
    found: dict[str, list[int]] = {}
    looked: dict[str, int] = {}
    for camera, views in by_camera.items():
        for before, now in list(zip(sorted(views), sorted(views)[1:], strict=False))[:_MOST_STARTS]:
            entry = pooled.dataset.entry(now)
            if now != before + 1 or entry.length < 3:
                continue
            try:
                start = looker.exact(entry, camera, 0, 3).astype(np.float64)
            except DataError:
                continue
            looked[camera] = looked.get(camera, 0) + 1
            jump, next_jump = (float(np.abs(start[k + 1] - start[k]).mean()) for k in (0, 1))
            past = float(np.abs(start[0] - views[before].frames[-1]).mean())
            if jump > _JUMP and jump > 4.0 * max(next_jump, 0.25) and past < _NEARER * jump:
                found.setdefault(camera, []).append(now)
    found = {c: episodes for c, episodes in found.items() if len(episodes) >= 0.5 * looked[c]}
    if not found:
        return []
    parts = [f"{c} in {len(e)} of {number_of(looked[c], 'episode')}" for c, e in found.items()]
    return [
        DataFinding(
            code="stale_first_frame",
            severity=Severity.FAULT,
            sentence=(
                f"the first picture of an episode shows the scene of the one before: {listed(parts)}; picture"
                " and state differ at frame 0 only"
            ),
            remedy="drop frame 0, or render again after the reset before the first observation",
            feature=next(iter(found)),
            numbers={"episodes": found},
        )
    ]

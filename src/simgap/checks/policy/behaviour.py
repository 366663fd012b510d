"""What a policy does with its inputs: does it look, does it vary, does it hold in closed loop; each a number, then one reading of them together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap import causes
from simgap.findings import CheckResult, Family, Verdict
from simgap.policies.base import Policy
from simgap.statistics import exact_independence, wilson

Array = NDArray[Any]
_SIGNIFICANT = 0.05
_LOW = 0.5
"""A success rate below this counts as low, above its complement as high, where an interval allows it."""
BLIND = 0.05
"""An image changes a prediction by less than this share of the labels' spread: the policy does not look."""
COLLAPSED = 0.1
"""Spread of predictions over spread of labels under which a channel is one value."""


def image_sensitivity(
    policy: Policy,
    images: Mapping[str, NDArray[np.uint8]],
    state: NDArray[np.float32],
    labels: Array,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Return how much each camera moves the predictions, as a share of the spread of the labels: frames against noise in their place.

    Args:
        policy: stateless.
        images: camera -> ``(B, H, W, 3)`` frames.
        state: ``(B, S)``.
        labels: ``(M, A)`` recorded actions.
        rng: draws the noise.
    """
    spread = np.where(labels.std(axis=0) > 0, labels.std(axis=0), 1.0)
    base = policy.predict(images, state)
    found = {}
    for camera, frames in images.items():
        noise = rng.integers(0, 256, frames.shape, dtype=np.uint8)
        moved = policy.predict({**images, camera: noise}, state)
        found[camera] = float((np.abs(moved - base) / spread).mean())
    return found


def spread_ratio(predictions: Array, labels: Array) -> Array:
    """Return the spread of predictions over that of labels, by channel, ``(A,)``; NaN where labels do not vary."""
    spread = labels.std(axis=0)
    return np.where(spread > 0, predictions.std(axis=0) / np.where(spread > 0, spread, 1.0), np.nan)


def check_collapse(predictions: Array, labels: Array, names: Sequence[str]) -> CheckResult:
    """Name the channels on which a policy says one value where the labels vary.

    Args:
        predictions: ``(N, A)`` first actions on training frames.
        labels: ``(N, A)`` recorded actions.
        names: channels.
    """
    ratio = spread_ratio(predictions, labels)
    numbers = {
        "spread_ratio": {n: None if np.isnan(r) else float(r) for n, r in zip(names, ratio, strict=True)}
    }
    collapsed = [n for n, r in zip(names, ratio, strict=True) if r < COLLAPSED]
    numbers["rare"] = {n: float(_minority(labels[:, list(names).index(n)])) for n in collapsed}
    fields: dict[str, Any] = {
        "family": Family.POLICY,
        "name": "open loop on training frames",
        "n": len(labels),
        "numbers": numbers,
    }
    if collapsed:
        by_name = dict(zip(names, ratio.tolist(), strict=True))
        parts = ", ".join(
            f"{n} collapsed (ratio {by_name[n]:.1f}, the rarer side is {numbers['rare'][n]:.0%} of labels)"
            for n in collapsed
        )
        rest = (
            "look at scaling and loss"
            if len(collapsed) == len(names)
            else "the other channels follow: look at range and balance of these"
        )
        text = f"{parts}; {rest}."
        return CheckResult(**fields, verdict=Verdict.BROKEN, cause=causes.POLICY, sentence=text)
    return CheckResult(
        **fields,
        verdict=Verdict.OK,
        sentence=f"Predictions spread as the labels do (smallest ratio {np.nanmin(ratio):.2f}).",
    )


def _minority(labels: Array) -> float:
    middle = (labels.min() + labels.max()) / 2.0
    above = float((labels > middle).mean())
    return min(above, 1.0 - above)


def check_frames(
    on_training: Array, on_live: Array, training_labels: Array, live_labels: Array
) -> CheckResult:
    """Tell a policy that is flat everywhere from one that is flat on live frames only: scaling or collapse, or another picture.

    Args:
        on_training: ``(N, A)`` predictions on training frames.
        on_live: ``(M, A)`` predictions on live frames of the same kind of motion.
        training_labels: ``(N, A)``.
        live_labels: ``(M, A)`` what was done live.
    """
    train, live = (
        float(np.nanmedian(spread_ratio(p, y)))
        for p, y in ((on_training, training_labels), (on_live, live_labels))
    )
    fields: dict[str, Any] = {
        "name": "training frames against live ones",
        "numbers": {"training": train, "live": live},
        "n": len(on_live),
    }
    if train < COLLAPSED:
        text = f"Predictions are flat on training frames too ({train:.2f}): scaling or collapse."
        return CheckResult(
            family=Family.POLICY, verdict=Verdict.BROKEN, cause=causes.POLICY, sentence=text, **fields
        )
    if live < COLLAPSED:
        text = (
            f"Predictions follow on training frames ({train:.2f}) and are flat on live ones ({live:.2f}): the"
            " pictures differ."
        )
        return CheckResult(
            family=Family.PIXELS, verdict=Verdict.BROKEN, cause=causes.PIXELS_OTHER, sentence=text, **fields
        )
    return CheckResult(
        family=Family.POLICY,
        verdict=Verdict.OK,
        sentence=f"Predictions follow on both ({train:.2f}, {live:.2f}).",
        **fields,
    )


def cross_test(outcomes: Mapping[tuple[str, str], tuple[int, int]]) -> CheckResult:
    """Read the two-by-two of state source and image source: what fails with real images only is a gap of pictures.

    Args:
        outcomes: ``(state source, image source)`` -> successes and trials, sources ``"real"`` and ``"sim"``.
    """
    pooled: dict[str, dict[str, list[int]]] = {}
    p: dict[str, float | None] = {}
    guilty = []
    for kind, place in (("image", 1), ("state", 0)):
        sums = {
            s: [sum(v[k] for key, v in outcomes.items() if key[place] == s) for k in (0, 1)]
            for s in ("real", "sim")
        }
        (good_real, n_real), (good_sim, n_sim) = sums["real"], sums["sim"]
        value = exact_independence(good_real, n_real, good_sim, n_sim).p_value if n_real and n_sim else None
        pooled[kind], p[kind] = sums, value
        if value is not None and value < _SIGNIFICANT and good_sim / n_sim - good_real / n_real > 0.15:
            guilty.append(kind)
    fields: dict[str, Any] = {
        "name": "real and simulated inputs exchanged",
        "numbers": {"pooled": pooled, "p": p},
        "n": sum(n for _, n in outcomes.values()),
    }
    if guilty == ["image"]:
        text = (
            "Only real pictures make it fail: an observation gap. The same states and actions work with"
            " simulated pictures, so the convention is not it."
        )
        return CheckResult(
            family=Family.PIXELS, verdict=Verdict.BROKEN, cause=causes.PIXELS_OTHER, sentence=text, **fields
        )
    if guilty == ["state"]:
        text = "Only real states make it fail, whatever the picture: dynamics or convention, not pixels."
        return CheckResult(
            family=Family.REPLAY,
            verdict=Verdict.BROKEN,
            cause=causes.ACTION_CONVENTION,
            sentence=text,
            **fields,
        )
    if guilty:
        text = "Real pictures and real states both make it fail; change one at a time."
        return CheckResult(family=Family.PIXELS, verdict=Verdict.CANNOT_TELL, sentence=text, **fields)
    return CheckResult(
        family=Family.PIXELS,
        verdict=Verdict.OK,
        sentence="It makes no difference whose pictures and states it gets.",
        **fields,
    )


def closed_loop_gain(
    step: Callable[[Array], Array], start: Array, steps: int = 40, nudge: float = 1e-3
) -> float:
    """Return by what factor a small deviation grows in one closed-loop step, the mean over ``steps``.

    Args:
        step: state to next state under the policy, ``(S,)`` to ``(S,)``.
        start: a recorded state.
        steps: closed-loop steps.
        nudge: size of the deviation.
    """
    a, b = np.asarray(start, dtype=np.float64), np.asarray(start, dtype=np.float64) + nudge
    for _ in range(steps):
        a, b = step(a), step(b)
    return float((np.linalg.norm(b - a) / (nudge * np.sqrt(len(start)))) ** (1.0 / steps))


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """What is known of one policy, as far as it is known."""

    in_training: tuple[int, int]
    """Successes and trials under training conditions."""
    shifted: tuple[int, int]
    """Under mildly shifted conditions."""
    replay_passes: bool | None = None
    open_loop_ratio: float | None = None
    """Error of predictions on training frames over the spread of labels."""
    image_sensitivity: float | None = None
    smallest_spread_ratio: float | None = None
    gain: float | None = None
    """Growth of a deviation in one closed-loop step."""
    what_shifted: str = "the conditions"


def read_evidence(evidence: Evidence) -> CheckResult:
    """Read training conditions, shifted conditions, replay and open loop together; the policy is blamed last."""
    (good, n), (good_far, n_far) = evidence.in_training, evidence.shifted
    near, far = wilson(good, n), wilson(good_far, n_far)
    numbers: dict[str, Any] = {
        "in_training": [good, n],
        "in_training_interval": [near.low, near.high],
        "shifted": [good_far, n_far],
        "replay_passes": evidence.replay_passes,
        "open_loop_ratio": evidence.open_loop_ratio,
        "image_sensitivity": evidence.image_sensitivity,
        "gain": evidence.gain,
    }
    fields: dict[str, Any] = {"name": "two sets, replay and open loop", "n": n + n_far, "numbers": numbers}
    if evidence.replay_passes is False:
        text = "Recorded actions do not do again what they did: a convention, before any policy."
        return CheckResult(
            family=Family.REPLAY,
            verdict=Verdict.BROKEN,
            cause=causes.ACTION_CONVENTION,
            sentence=text,
            **fields,
        )
    if evidence.smallest_spread_ratio is not None and evidence.smallest_spread_ratio < COLLAPSED:
        text = f"A channel has collapsed (spread ratio {evidence.smallest_spread_ratio:.2f})."
        return CheckResult(
            family=Family.POLICY, verdict=Verdict.BROKEN, cause=causes.POLICY, sentence=text, **fields
        )
    is_good = near.low is not None and near.low > _LOW
    is_poor = near.high is not None and near.high < _LOW
    if (
        is_poor
        and evidence.open_loop_ratio is not None
        and evidence.open_loop_ratio < 0.2
        and evidence.replay_passes
    ):
        why = (
            f"; a deviation grows by {evidence.gain:.2f} a step"
            if evidence.gain is not None and evidence.gain > 1.0
            else ""
        )
        text = (
            f"Open loop follows the labels and replay passes, yet {near} where it was trained: errors"
            f" compound in execution or observation{why}."
        )
        return CheckResult(
            family=Family.EXECUTION, verdict=Verdict.BROKEN, cause=causes.EXECUTION, sentence=text, **fields
        )
    p = exact_independence(good, n, good_far, n_far).p_value if n and n_far else None
    if is_good and p is not None and p < _SIGNIFICANT and good / n - good_far / n_far > 0.15:
        blind = evidence.image_sensitivity is not None and evidence.image_sensitivity < BLIND
        how = (
            f"it does not look (pictures move its actions by {evidence.image_sensitivity:.0%} of their"
            " spread)"
            if blind
            else f"{evidence.what_shifted} moved"
        )
        text = f"Over-specialised: {near} as trained, {far} shifted; {how}."
        return CheckResult(
            family=Family.POLICY, verdict=Verdict.BROKEN, cause=causes.NARROW_DATA, sentence=text, **fields
        )
    if is_good:
        return CheckResult(
            family=Family.POLICY, verdict=Verdict.OK, sentence=f"{near} as trained, {far} shifted.", **fields
        )
    text = f"{near} as trained, {far} shifted: replay and predictions on training frames would tell more."
    return CheckResult(family=Family.POLICY, verdict=Verdict.CANNOT_TELL, sentence=text, **fields)

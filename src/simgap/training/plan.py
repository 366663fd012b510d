"""What follows from a training request before the first step: shape, normaliser, split, mixture; and the card at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgap.conventions import require_same
from simgap.episodes.table import FrameTable
from simgap.errors import ConventionError, DataError, UsageError
from simgap.policies.checkpoint import Card, read_card
from simgap.policies.cnn import CnnSpec
from simgap.policies.execution import parse_executor
from simgap.policies.heads import Head
from simgap.policies.normaliser import Normaliser, fit_range
from simgap.provenance import child_rng, library_version
from simgap.training.batches import quotas
from simgap.training.mixture import (
    DOMAINS,
    account,
    domain_columns,
    mixture_counts,
    require_alike,
    source_offsets,
)
from simgap.training.spec import TrainSpec
from simgap.types import EvidenceKind

FAR_OUTSIDE = 4.0
"""A fine-tune refuses data this far outside its parent's normalised range [-1, 1]: not a wider task, but other units."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Plan:
    """Shape, normaliser, split and mixture of a run."""

    architecture: CnnSpec
    normaliser: Normaliser
    parent: Card | None
    training_rows: tuple[NDArray[np.int64], ...]
    """Per table, rows that are trained on."""
    held_out_rows: tuple[NDArray[np.int64], ...]
    """Per table, rows of held-out episodes."""
    counts: NDArray[np.int64]
    """Samples of each table in each batch, ``(steps, T)``."""
    kinds: tuple[EvidenceKind, ...] | None = None
    """Where each table comes from, where that is known."""
    domains: NDArray[np.float32] | None = None
    """``(T, 2)`` inputs of each table for a policy that is told its domain."""
    goals: tuple[str, ...] = ()
    """Tasks that the policy is told apart; empty for one that is not told."""
    goal_columns: tuple[NDArray[np.float32], ...] | None = None
    """Per table ``(N, G)`` which of :attr:`goals` each frame's episode asks for."""


def make_plan(
    tables: Sequence[FrameTable],
    shares: Sequence[float] | None,
    spec: TrainSpec,
    kinds: Sequence[EvidenceKind] | None = None,
) -> Plan:
    """Check a request and work out its plan.

    A fine-tune keeps its parent's normaliser and shape, because the network's numbers must keep their
    meaning. New data beyond the parent's range map outside [-1, 1] and are not clipped.

    Args:
        tables: the data.
        shares: as asked.
        spec: as asked.
        kinds: where each table comes from; needed for ``p_real`` and ``domain_input``.

    Raises:
        UsageError: no data, wrong shares, or a real share of data that nobody says to be real.
        ConventionError: tables, or tables and parent, disagree.
        DataError: data far outside the parent's range.
    """
    _require_usable(tables, shares)
    require_alike(tables)
    known = _known(tables, spec, kinds)
    parent = None if spec.init_from is None else read_card(spec.init_from)
    goals, columns = goal_inputs(tables, spec, parent)
    if parent is None:
        normaliser = Normaliser(
            state=fit_range([t.state for t in tables], tables[0].state_spec, spec.range_method),
            action=fit_range([t.action for t in tables], tables[0].action_spec, spec.range_method),
            method=spec.range_method,
        )
        architecture = _fresh_architecture(tables[0], spec, len(goals))
    else:
        _require_parent_fits(parent, tables)
        if bool(parent.domains) != spec.domain_input:
            raise UsageError(
                f"the parent was {'' if parent.domains else 'not '}told the domain of its samples; a"
                " fine-tune has to do the same (domain_input)"
            )
        normaliser, architecture = parent.normaliser, parent.architecture
    executor = parse_executor(spec.executor)
    if executor.asks_for_prefix and architecture.head is not Head.FLOW:
        raise UsageError(
            f"{executor} wants chunks that go on from the one before, which a head of kind"
            f" {architecture.head} cannot; use --head flow, or receding(k)"
        )
    split = [_split(t, i, spec) for i, t in enumerate(tables)]
    sizes = [len(rows) for rows, _ in split]
    if spec.p_real is not None and known is not None:
        counts = mixture_counts(sizes, shares, known, spec.p_real, spec.batch, spec.steps)
    else:
        counts = quotas(sizes if shares is None else shares, spec.batch, spec.steps)
    return Plan(
        architecture=architecture,
        normaliser=normaliser,
        parent=parent,
        training_rows=tuple(rows for rows, _ in split),
        held_out_rows=tuple(rows for _, rows in split),
        counts=counts,
        kinds=known,
        domains=domain_columns(known) if spec.domain_input and known is not None else None,
        goals=goals,
        goal_columns=columns,
    )


def goal_inputs(
    tables: Sequence[FrameTable], spec: TrainSpec, parent: Card | None
) -> tuple[tuple[str, ...], tuple[NDArray[np.float32], ...] | None]:
    """Return the goals of a policy and each table's column of them; a fine-tune keeps its parent's, in its parent's order.

    Raises:
        UsageError: a table names no goals, its parent was told otherwise, or its parent does not know one.
    """
    if parent is not None and bool(parent.goals) != spec.goal_input:
        raise UsageError(
            f"the parent was {'' if parent.goals else 'not '}told the goal of its samples; a fine-tune has to"
            " do the same (goal_input, --goal-input)"
        )
    if not spec.goal_input:
        return (), None
    silent = [t.fingerprint[:12] for t in tables if t.goal is None]
    if silent:
        raise UsageError(
            f"data {', '.join(silent)} do not name the task of every episode, and the policy is to be told"
            " it; name tasks, or leave out goal_input"
        )
    found = sorted({g for t in tables for g in t.goals})
    goals = tuple(found) if parent is None else parent.goals
    unknown = [g for g in found if g not in goals]
    if unknown:
        raise UsageError(
            f"the data ask for {unknown}, the parent knows {list(goals)}: no input is left for a new goal;"
            " leave those episodes out or train from scratch"
        )
    columns = []
    for t in tables:
        assert t.goal is not None  # refused above
        places = [goals.index(g) for g in t.goals]
        column = np.zeros((len(t), len(goals)), dtype=np.float32)
        column[:, places] = t.goal
        columns.append(column)
    return goals, tuple(columns)


def _known(
    tables: Sequence[FrameTable], spec: TrainSpec, kinds: Sequence[EvidenceKind] | None
) -> tuple[EvidenceKind, ...] | None:
    if kinds is None:
        if spec.p_real is not None or spec.domain_input:
            raise UsageError(
                "p_real and domain_input need to know which of the data are simulated and which real; say it"
                " for every table"
            )
        return None
    if len(kinds) != len(tables):
        raise UsageError(f"{len(kinds)} origins for {len(tables)} tables: one each is needed")
    return tuple(kinds)


def make_card(
    tables: Sequence[FrameTable],
    shares: Sequence[float] | None,
    spec: TrainSpec,
    plan: Plan,
    training: dict[str, Any],
) -> Card:
    """Return the card of the finished checkpoint, weights hash still open.

    Args:
        tables: the data.
        shares: as asked.
        spec: as asked.
        plan: of the run.
        training: further entries of the card's training record.
    """
    rows = np.array([len(r) for r in plan.training_rows], dtype=np.float64)
    drawn = plan.counts.sum(axis=0)
    mixture = [
        {
            "data": t.fingerprint,
            "episodes": t.n_episodes,
            "frames": len(t),
            "share_asked": None if shares is None else float(shares[i]) / float(sum(shares)),
            "share_natural": float(rows[i] / rows.sum()),
            "share_drawn": float(drawn[i] / drawn.sum()),
            "evidence": None if plan.kinds is None else str(plan.kinds[i]),
            "samples": int(drawn[i]),
            "passes": float(drawn[i] / rows[i]),
        }
        for i, t in enumerate(tables)
    ]
    real = (
        None
        if plan.kinds is None
        else account(plan.counts, [len(r) for r in plan.training_rows], plan.kinds, spec.p_real)
    )
    envs = sorted({t.env for t in tables} - {""})
    apart = {str(k): offsets for k, offsets in source_offsets(tables).items()}
    return Card(
        action_spec=tables[0].action_spec,
        state_spec=tables[0].state_spec,
        architecture=plan.architecture,
        normaliser=plan.normaliser,
        data=tuple(t.fingerprint for t in tables),
        executor=parse_executor(spec.executor),
        training={
            "spec": spec.to_json(),
            "mixture": mixture,
            "real": real,
            "apart": apart,
            "torch": library_version("torch"),
            **({"envs": envs} if envs else {}),
            **training,
        },
        domains=DOMAINS if plan.domains is not None else (),
        goals=plan.goals,
        parent=None if plan.parent is None else plan.parent.weights_hash,
    )


def _fresh_architecture(table: FrameTable, spec: TrainSpec, goals: int) -> CnnSpec:
    told = len(DOMAINS) if spec.domain_input else 0
    return CnnSpec(
        cameras=tuple(sorted(table.images)),
        image_size=next(iter(table.images.values())).shape[1],
        state_size=len(table.state_spec) + told + goals,
        action_size=len(table.action_spec),
        chunk=spec.chunk,
        width=spec.width,
        hidden=spec.hidden,
        pool=spec.pool,
        head=spec.head,
        stem=spec.stem,
        grippers=(
            tuple(int(i) for i in np.flatnonzero(table.action_spec.gripper_mask)) if spec.gripper_head else ()
        ),
        flow_steps=spec.flow_steps,
        flow_target=spec.flow_target,
    )


def _require_usable(tables: Sequence[FrameTable], shares: Sequence[float] | None) -> None:
    if not tables or any(len(t) == 0 for t in tables):
        raise UsageError(
            f"training needs at least one table with frames, got {[len(t) for t in tables]}; generate or"
            " record episodes first"
        )
    if shares is not None and (len(shares) != len(tables) or min(shares) < 0 or sum(shares) <= 0):
        raise UsageError(
            f"shares {list(shares)} for {len(tables)} tables: one share a table is needed, none negative, not"
            " all zero"
        )
    first = tables[0]
    for i, table in enumerate(tables):
        _require_finite(i, table)
        names = {"ours_name": "table 0", "theirs_name": f"table {i}"}
        require_same(first.action_spec, table.action_spec, what="actions", **names)
        require_same(first.state_spec, table.state_spec, what="states", **names)
        sizes = {c: v.shape[1:] for c, v in table.images.items()}
        if (
            not sizes
            or set(sizes) != set(first.images)
            or {s for v in (table, first) for s in (i.shape[1:] for i in v.images.values())}
            != {_square(sizes)}
        ):
            raise ConventionError(
                f"table {i} has frames {sizes}, table 0"
                f" { ({c: v.shape[1:] for c, v in first.images.items()}) }: same cameras, square and of one"
                " size"
            )


def _require_finite(index: int, table: FrameTable) -> None:
    for what, values, spec in (
        ("state", table.state, table.state_spec),
        ("action", table.action, table.action_spec),
    ):
        broken = ~np.isfinite(values)
        if broken.any():
            row, column = np.argwhere(broken)[0]
            episode = int(np.searchsorted(table.episode_start, row, side="right")) - 1
            raise DataError(
                f"table {index} ({table.fingerprint[:12]}) has NaN or infinity in"
                f" {int(broken.any(axis=1).sum())} of {len(table)} rows, first in {what}"
                f" {spec.names[column]!r} of episode {episode}; training needs finite numbers: repair or"
                " leave out those episodes (`simgap data check`)"
            )


def _square(sizes: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    side = next(iter(sizes.values()))[0]
    return side, side, 3


def _require_parent_fits(parent: Card, tables: Sequence[FrameTable]) -> None:
    table = tables[0]
    require_same(
        parent.action_spec,
        table.action_spec,
        what="actions",
        ours_name="parent checkpoint",
        theirs_name="data",
    )
    require_same(
        parent.state_spec, table.state_spec, what="states", ours_name="parent checkpoint", theirs_name="data"
    )
    size = next(iter(table.images.values())).shape[1]
    if set(parent.architecture.cameras) != set(table.images) or parent.architecture.image_size != size:
        a = parent.architecture
        raise ConventionError(
            f"parent checkpoint sees cameras {sorted(a.cameras)} at {a.image_size} px, data have"
            f" {sorted(table.images)} at {size} px; rename or resize, or train from scratch"
        )
    for t in tables:
        if moved := parent.normaliser.action.departures(t.action):
            name, far = max(moved.items(), key=lambda item: item[1])
            raise DataError(
                f"action {name!r} never moved in the parent's data and moves by {far:.3g} in data"
                f" {t.fingerprint[:12]}: the parent can only ever command its constant there; train from"
                " scratch"
            )
        for what, normaliser, values in (
            ("state", parent.normaliser.state, t.state),
            ("action", parent.normaliser.action, t.action),
        ):
            reach = np.abs(normaliser.normalise(values)).max(axis=0)
            if reach.max() > FAR_OUTSIDE:
                name = normaliser.names[int(reach.argmax())]
                raise DataError(
                    f"{what} {name!r} of data {t.fingerprint[:12]} reaches {reach.max():.1f} where the parent"
                    " was trained on [-1, 1]: likely other units or another calibration; convert the data,"
                    " or train from scratch"
                )


def _split(table: FrameTable, index: int, spec: TrainSpec) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    count = int(table.n_episodes * spec.validation_share)
    held_out = np.zeros(table.n_episodes, dtype=bool)
    held_out[child_rng(spec.seed, "validation", index).permutation(table.n_episodes)[:count]] = True
    per_row = np.repeat(held_out, np.diff(table.episode_start))
    rows = np.arange(len(table), dtype=np.int64)
    return rows[~per_row], rows[per_row]

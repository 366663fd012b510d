"""The policy that a verb is given: its card, the env it belongs to and the executors to run it with."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simgap.wording import number_of

if TYPE_CHECKING:
    from simgap.envs.base import TaskEnv
    from simgap.policies.bridges.open import AnyCard
    from simgap.policies.execution import ExecutorSpec


def add_executor(parser: argparse.ArgumentParser, again: str) -> None:
    """Add ``--executor``, once or several times."""
    parser.add_argument(
        "--executor",
        action="append",
        metavar="TEXT",
        help=(
            "latest, whole_chunk, 'receding(5)', 'ensemble(0.1)', each with an optional lead=N, or"
            f" 'real_time(5, delay=2)' (default: the card's); {again}"
        ),
    )


def card_of(checkpoint: Path) -> AnyCard:
    """Return the card of a checkpoint folder, or what a policy file says of its policy.

    Raises:
        DataError: no checkpoint, and then what the folder holds instead; or weights that are not the card's,
            which a screen found finished would otherwise not look at.
    """
    from simgap.errors import DataError
    from simgap.policies.bridges.describe import is_lerobot_folder, needs_a_policy_file
    from simgap.policies.bridges.open import read_any_card
    from simgap.policies.bridges.policy_file import is_policy_file
    from simgap.policies.checkpoint import CARD, WEIGHTS, read_card
    from simgap.provenance import file_hash
    from simgap.training.resume import FILE

    if is_policy_file(checkpoint):
        return read_any_card(checkpoint)
    if not (checkpoint / CARD).is_file():
        if (checkpoint / FILE).is_file():
            raise DataError(
                f"{checkpoint} holds an unfinished training run; give its `simgap train` command again, it"
                " goes on"
            )
        if (checkpoint / "meta" / "info.json").is_file():
            raise DataError(
                f"{checkpoint} is a dataset, not a checkpoint; train on it first: simgap train {checkpoint}"
            )
        if is_lerobot_folder(checkpoint):
            raise DataError(needs_a_policy_file(checkpoint))
        what = (
            "has no card.json"
            if checkpoint.is_dir()
            else "is not a folder"
            if checkpoint.exists()
            else "does not exist"
        )
        raise DataError(f"{checkpoint} {what}; give the folder that `simgap train` wrote")
    card, weights = read_card(checkpoint), checkpoint / WEIGHTS
    if not weights.is_file() or file_hash(weights) != card.weights_hash:
        raise DataError(
            f"{weights} is {'not the file of its card' if weights.is_file() else 'missing'}; restore the"
            " checkpoint or retrain"
        )
    return card


def env_of(card: AnyCard, name: str | None) -> TaskEnv:
    """Return the env named, or the one its data come from, or the only one whose conventions the policy has; it does not render.

    Raises:
        UsageError: no env fits, several do, or the name is unknown.
        ConventionError: the env named has other conventions.
    """
    from simgap.conventions import require_same
    from simgap.envs import ENVS, env_names, make_env
    from simgap.errors import UsageError

    learnt_in = [str(e) for e in card.training.get("envs", ())]
    if name is None and len(learnt_in) == 1 and learnt_in[0] in env_names():
        name = learnt_in[0]
    envs = {
        n: make_env(n, image_size=card.architecture.image_size, render=False)
        for n in ([name] if name else sorted(ENVS))
    }
    if name:
        _require_belongs(card, envs[name])
        require_same(
            card.action_spec,
            envs[name].action_spec,
            what="actions",
            ours_name="the policy",
            theirs_name=f"env {name}",
        )
        require_same(
            card.state_spec,
            envs[name].state_spec,
            what="states",
            ours_name="the policy",
            theirs_name=f"env {name}",
        )
        return envs[name]
    fits = [
        n for n, e in envs.items() if e.action_spec == card.action_spec and e.state_spec == card.state_spec
    ]
    if len(fits) != 1:
        if fits:
            raise UsageError(f"several envs fit this policy ({', '.join(fits)}); name one with --env")
        made_for = f" It was made for {', '.join(learnt_in)}." if learnt_in else ""
        raise UsageError(
            f"this policy belongs to none of simgap's own envs ({', '.join(envs)}).{made_for} Name its env"
            " with --env: one that you added (simgap envs add), or module:function"
        )
    return envs[fits[0]]


def _require_belongs(card: AnyCard, env: TaskEnv) -> None:
    """Raise where a policy and an env have other joints altogether: then they do not belong together, and no convention is at fault.

    Raises:
        ConventionError: says what the policy was made for.
    """
    from simgap.errors import ConventionError

    sides = ((card.action_spec, env.action_spec), (card.state_spec, env.state_spec))
    if all(set(ours.names) == set(theirs.names) for ours, theirs in sides):
        return
    learnt_in = [str(e) for e in card.training.get("envs", ())]
    made_for = (
        f"it was made for {', '.join(learnt_in)}"
        if learnt_in
        else f"it sends {number_of(len(card.action_spec), 'action')}, and none says for which env"
    )
    remedy = (
        f"use --env {learnt_in[0]}"
        if learnt_in and env.name not in learnt_in
        else "name the env it was trained for"
    )
    raise ConventionError(
        f"this policy and env {env.name} do not belong together: {made_for}, and {env.name} has other joints;"
        f" {remedy}"
    )


def require_fits(card: AnyCard, env: TaskEnv) -> None:
    """Raise before the first rollout what a worker would raise at the first of this policy, which may come after all those of another.

    Raises:
        UsageError: the policy learnt from other envs only.
        ConventionError: a camera that the env does not have.
    """
    from simgap.policies.checkpoint import require_cameras, require_env

    require_env(card.training.get("envs", ()), env.name)
    require_cameras(card.architecture.cameras, env.cameras, other=f"env {env.name}")


def executors_of(card: AnyCard, texts: Sequence[str] | None) -> list[ExecutorSpec]:
    """Return the executors named, or the card's, each once and each usable with the policy's chunk."""
    from simgap.policies.execution import parse_executor

    executors = list(dict.fromkeys([parse_executor(t) for t in texts or ()] or [card.executor]))
    for executor in executors:
        executor.build(card.action_spec, card.architecture.chunk)
    return executors

"""Which column of a foreign table is what: the outcome, further scorings of it, the arm, the start, the failure code, what ended a trial."""

from __future__ import annotations

import re
from dataclasses import dataclass

from simgap.artefacts.tables import TextTable, is_missing
from simgap.artefacts.trials.words import Said, key, outcome_of

SUCCESS = ("success", "succes", "is_success", "reussite", "outcome", "result")
_SUCCESS_WORDS = {
    "success",
    "succes",
    "succeeded",
    "successful",
    "reussite",
    "erfolg",
    "solved",
    "outcome",
    "result",
    "passed",
    "pass",
    "completed",
    "verdict",
}
_NO_SUCCESS = {
    "rate",
    "pct",
    "percent",
    "n",
    "num",
    "count",
    "total",
    "mean",
    "avg",
    "time",
    "steps",
    "duration",
    "score",
    "reward",
    "at",
    "reset",
    "k",
}
ENDS = (
    "termination_reason",
    "termination",
    "terminated_by",
    "end_reason",
    "end_state",
    "status",
    "final_status",
    "stop_reason",
    "episode_status",
)
STAGE = ("stage_live", "stage", "stade_atteint", "phase")
MODE = (
    "mechanism",
    "mode_echec",
    "failure_mode",
    "failure_code",
    "failure",
    "failure_reason",
    "failure_type",
    "fail_reason",
    "fail_mode",
    "error_type",
)
ARM = (
    "policy",
    "policy_model",
    "policy_name",
    "policy_id",
    "detecteur",
    "detector",
    "method",
    "model",
    "arm",
    "controller",
    "agent",
    "algorithm",
    "algo",
)
_ALSO_ARM = ("checkpoint", "ckpt", "executor", "execution", "variant", "system", "weights", "config")
STRATUM = ("objet", "object", "position", "condition", "task", "scene")
TRIAL = ("trial", "episode_id", "trial_id", "rollout_id", "run_id", "trial_no", "trial_number")
_SEED = ("seed", "env_seed", "scene_seed", "reset_seed", "init_seed")
_SCENE = (
    "scene_id",
    "scene",
    "layout",
    "layout_id",
    "init_state",
    "init_state_id",
    "initial_condition",
    "initial_condition_id",
    "start",
    "start_id",
)
_SCENES = (*_SCENE, "start_pose_id", "initial_state_id", "condition_id", "scenario", "scenario_id", "init_id")
_EPISODE = ("episode", "episode_index", "episode_idx", "rollout", "rep", "repeat")
_JUDGES = {
    "audit",
    "audited",
    "auditor",
    "video",
    "human",
    "judge",
    "rater",
    "operator",
    "self",
    "reported",
    "auto",
    "automatic",
    "vlm",
    "checked",
    "reviewer",
}
_JUDGES |= {
    "reviewed",
    "verified",
    "live",
    "annotator",
    "scorer",
    "observer",
    "robot",
    "sensor",
    "predicted",
    "manual",
    "blind",
    "external",
    "detector",
}
_PARTS = {
    "grasp",
    "pick",
    "lift",
    "place",
    "reach",
    "approach",
    "transport",
    "insert",
    "release",
    "open",
    "close",
    "subtask",
    "stage",
    "step",
    "phase",
    "push",
}
_PLAIN = {
    "is",
    "task",
    "final",
    "overall",
    "episode",
    "trial",
    "flag",
    "binary",
    "total",
    "0",
    "1",
    "yes",
    "no",
    "y",
    "or",
}
_INDEPENDENT = (
    "audit",
    "audited",
    "auditor",
    "external",
    "blind",
    "human",
    "video",
    "verified",
    "reviewed",
    "reviewer",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcomes:
    """The columns of a table that say how trials ended."""

    main: str | None = None
    """The outcome that is counted."""
    others: tuple[str, ...] = ()
    """Further scorings of the same trials: an audit, a second judge, the robot's own report."""
    parts: tuple[str, ...] = ()
    """Outcomes of parts of the task (grasp, lift ...), in order."""
    arms: tuple[tuple[str, str], ...] = ()
    """Arm and its column, where one row holds the outcomes of several arms on one scene."""


def repeated_columns(table: TextTable) -> tuple[str, ...]:
    """Return columns that hold repeated trials of their row, ``trial_1``, ``trial_2`` ..., none unless there are several and all hold outcomes."""
    numbered = [
        c
        for c in table.columns
        if re.fullmatch(
            r"((trial|run|rollout|episode|success|attempt|rep|repeat|ep|t|outcome|result)_?)?\d+", key(c)
        )
    ]
    return tuple(numbered) if len(numbered) > 1 and all(_all_outcomes(table, c) for c in numbered) else ()


def _all_outcomes(table: TextTable, column: str) -> bool:
    said = [outcome_of(c) for c in table.column(column)]
    return None not in said and any(s is not Said.MISSING for s in said)


def outcomes_of(table: TextTable) -> Outcomes:
    """Sort the outcome columns of a table into the one that counts, other scorings, parts of the task, and arms side by side."""
    found = {c: key(c).split("_") for c in table.columns if _is_outcome(table, c)}
    rest = {
        c: tuple(w for w in words if w not in _SUCCESS_WORDS and w not in _PLAIN)
        for c, words in found.items()
    }
    main = [c for c, left in rest.items() if not left]
    judged = [c for c, left in rest.items() if left and {w.rstrip("0123456789") for w in left} & _JUDGES]
    parts = [
        c
        for c, left in rest.items()
        if left and c not in judged and {w.rstrip("0123456789") for w in left} <= _PARTS
    ]
    arms = [("_".join(rest[c]), c) for c in rest if rest[c] and c not in judged and c not in parts]
    if main:
        best = next((c for name in SUCCESS for c in main if key(c) == name), main[0])
        audits = [
            c
            for c in table.columns
            if c not in found and set(key(c).split("_")) & set(_INDEPENDENT) and _all_outcomes(table, c)
        ]
        others = [c for c in (*main, *judged, *audits) if c != best]
        return Outcomes(main=best, others=tuple(others), parts=tuple([*parts, *(c for _, c in arms)]))
    if len(arms) > 1 and len({a for a, _ in arms}) == len(arms):
        return Outcomes(others=tuple(judged), parts=tuple(parts), arms=tuple(arms))
    if judged:
        best = next(
            (
                c
                for c in judged
                if set(found[c]) & set(_INDEPENDENT) and _answers(table, c) == len(table.rows)
            ),
            judged[0],
        )
        return Outcomes(
            main=best,
            others=tuple(c for c in judged if c != best),
            parts=tuple([*parts, *(c for _, c in arms)]),
        )
    if parts or arms:
        last = parts[-1] if parts else arms[0][1]
        return Outcomes(main=last, parts=tuple(c for c in parts if c != last))
    ends = next((c for c in table.columns if key(c) in ENDS and _says_success(table, c)), None)
    return Outcomes(main=ends, arms=() if ends is not None else _matrix(table))


def _matrix(table: TextTable) -> tuple[tuple[str, str], ...]:
    """Return arms and columns of a table of scenes against policies: every column but the keys and the notes holds outcomes alone."""
    asides = {"note", "notes", "comment", "comments", "date", "time", "timestamp", "operator", "remarks"}
    keys = {*_SEED, *_SCENES, *_EPISODE, *TRIAL, *STRATUM, "id", "no"}
    rest = [c for c in table.columns if key(c) not in keys and key(c) not in asides]
    if len(rest) < 2 or len(rest) == len(table.columns) or len(table.rows) < 3:
        return ()
    cells = [outcome_of(cell) for c in rest for cell in table.column(c)]
    named_parts = any(w.startswith(tuple(_PARTS)) for c in rest for w in key(c).split("_"))
    ends = (
        {Said.SUCCESS, Said.FAILURE} <= set(cells)
        and None not in cells
        and cells.count(Said.MISSING) < len(cells) // 2
    )
    return (
        tuple((key(c), c) for c in rest)
        if ends and not named_parts and len({key(c) for c in rest}) == len(rest)
        else ()
    )


def _is_outcome(table: TextTable, column: str) -> bool:
    words = set(key(column).split("_"))
    if not words & _SUCCESS_WORDS or words & _NO_SUCCESS:
        return False
    said = [c for c in table.column(column) if not is_missing(c)]
    known = sum(outcome_of(c) is not None for c in said)
    return not said or known >= 0.8 * len(said) or _says_success(table, column)


def _says_success(table: TextTable, column: str) -> bool:
    """Return whether a column of words names successes and, by other words, how the rest ended."""
    said = [c for c in table.column(column) if not is_missing(c)]
    words = [c for c in said if not c.strip().replace(".", "").isdigit()]
    return (
        len(words) == len(said) > 0
        and any(outcome_of(c) is Said.SUCCESS for c in words)
        and len(set(words)) <= max(12, len(words) // 3)
    )


def _answers(table: TextTable, column: str) -> int:
    return sum(outcome_of(c) in (Said.SUCCESS, Said.FAILURE, Said.PARTIAL) for c in table.column(column))


def find(table: TextTable, names: tuple[str, ...]) -> str | None:
    """Return the first column whose plain name is one of these, in the order of the names."""
    by_key = {key(c): c for c in reversed(table.columns)}
    return next((by_key[n] for n in names if n in by_key), None)


def arm_columns(table: TextTable) -> tuple[str, ...]:
    """Return the columns that tell arms apart: policy, checkpoint, executor ...; those that only repeat another are left out."""
    by_key = {key(c): c for c in reversed(table.columns)}
    present = [by_key[n] for n in (*ARM, *_ALSO_ARM) if n in by_key]
    chosen: list[str] = []
    for column in present:
        values = table.column(column)
        if len(set(values)) < 2:
            continue
        before = list(zip(*(table.column(c) for c in chosen), strict=True)) if chosen else [()] * len(values)
        if not chosen or len(set(zip(before, values, strict=True))) > len(set(before)):
            chosen.append(column)
    return tuple(chosen) or tuple(present[:1])


def start_columns(table: TextTable) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns that identify a start (seed, episode and scene), and those of the scene alone.

    A column that numbers all rows through is no start; an episode number belongs to the start where a seed is
    shared by several.
    """
    seed, scene = find(table, _SEED), find(table, _SCENES)
    episode = find(table, _EPISODE)
    if episode is not None and len(set(table.column(episode))) == len(table.rows):
        episode = None
    if seed is None and scene is None:
        return (), ()
    whole = tuple(c for c in (seed, episode if seed is not None else None, scene) if c is not None)
    return whole, (scene,) if scene is not None else tuple(c for c in (seed, episode) if c is not None)

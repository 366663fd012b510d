"""What a dataset of other people is called and what its vectors are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from simgap.episodes.formats.index import DatasetInfo
from simgap.episodes.formats.keymap import ACTION_ROLE, STATE_ROLE, KeyMap
from simgap.episodes.formats.source import Opened
from simgap.episodes.formats.vectors import Vector, make_vector, require_matches, require_renames
from simgap.episodes.spec import DatasetSpec
from simgap.provenance import Stamp


def vectors_of(root: Path, opened: Opened, keymap: KeyMap | None) -> dict[str, Vector]:
    """Return the vectors of a dataset, by role and name."""
    info, roles = opened.info, opened.roles

    def vectors(keymap: KeyMap | None) -> dict[str, Vector]:
        both = ((ACTION_ROLE, roles.action), (STATE_ROLE, roles.state))
        stems = {
            ACTION_ROLE: "dim",
            STATE_ROLE: "dim" if _are_as_wide(info, roles.action, roles.state) else "reading",
        }
        return {
            role: make_vector(
                role, parts, info.features, opened.dimensions, keymap, info.rate_hz, root, stems[role]
            )
            for role, parts in both
        }

    if keymap is not None and keymap.rename:
        before = vectors(replace(keymap, rename={}, dimensions={}))
        require_renames(keymap.rename, before[ACTION_ROLE].spec.names, before[STATE_ROLE].spec.names)
    made = vectors(keymap)
    if opened.spec is not None:
        specs = {ACTION_ROLE: opened.spec.action_spec, STATE_ROLE: opened.spec.state_spec}
        return {role: replace(vector, spec=specs[role]) for role, vector in made.items()}
    if keymap is not None:
        require_matches(list(keymap.dimensions), made[ACTION_ROLE].spec, made[STATE_ROLE].spec)
    return made


def _are_as_wide(info: DatasetInfo, action: Sequence[str], state: Sequence[str]) -> bool:
    """Return whether action and state have as many dimensions; of other widths, the k-th of one is not the k-th of the other."""
    widths = [
        sum(info.features[key].shape[0] if info.features[key].shape else 1 for key in keys)
        for keys in (action, state)
    ]
    return widths[0] == widths[1]


def spec_of_others(
    root: Path,
    info: DatasetInfo,
    vectors: Mapping[str, Vector],
    cameras: Mapping[str, str],
    keymap: KeyMap | None,
) -> DatasetSpec:
    """Return what is known of a dataset of other people as a spec."""
    features = [info.features[key] for key in cameras.values()]
    shape = features[0].shape if features and len(features[0].shape) == 3 else (0, 0, 3)
    return DatasetSpec(
        name=root.name,
        action_spec=vectors[ACTION_ROLE].spec,
        state_spec=vectors[STATE_ROLE].spec,
        cameras=tuple(cameras),
        image_size=(shape[1], shape[2]) if shape[0] == 3 else (shape[0], shape[1]),
        rate_hz=info.rate_hz,
        stamp=Stamp(kind="dataset", fields={"engine": "unknown", "robot": info.robot_type}),
        task_default=keymap.task if keymap is not None else "",
        codec="png" if any(f.dtype == "image" for f in features) else "h264",
        robot_type=info.robot_type,
    )

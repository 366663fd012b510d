"""Are the columns what ``info.json`` declares: names, types, shapes, and the order of action and state dimensions."""

from __future__ import annotations

from typing import Any

from simgap.checks.data.layout.names import check_names
from simgap.checks.data.pooled import Pooled
from simgap.checks.data.report import DataFinding, Severity, listed
from simgap.episodes.formats.layout import INDEX_FEATURES, VERSION_20, VERSION_21
from simgap.episodes.reader import Dataset

_DTYPES = {"float": "float32", "double": "float64", "bool": "bool"}


def check_columns(dataset: Dataset, pooled: Pooled) -> list[DataFinding]:
    """Return the findings about columns and their declarations."""
    # other formats have no columns that must be
    stored = [*_columns(dataset), *_declarations(dataset)] if dataset.info.is_lerobot else []
    return [*stored, *_vectors(dataset, pooled)]


def _columns(dataset: Dataset) -> list[DataFinding]:
    first = next(e for e in dataset.entries if e.length > 0)
    schema = dataset.schema(first.index)
    features = dataset.stored_features
    found = []
    undeclared = [n for n in schema.names if n not in features and n not in INDEX_FEATURES]
    if undeclared:
        found.append(
            DataFinding(
                code="undeclared_columns",
                severity=Severity.WARNING,
                sentence=f"the data files hold columns that info.json does not declare: {listed(undeclared)}",
                remedy="declare them in info.json, or drop them",
                numbers={"columns": undeclared},
            )
        )
    needed = [k for k, f in features.items() if f.dtype != "video"] + [
        k for k in INDEX_FEATURES if k not in features
    ]
    absent = [k for k in dict.fromkeys(needed) if k not in schema.names]
    if absent:
        found.append(
            DataFinding(
                code="missing_columns",
                severity=Severity.FAULT,
                sentence=(
                    f"columns that a LeRobot dataset needs are missing in the data files: {listed(absent)}"
                ),
                remedy=(
                    "write the columns (index and task_index follow from the order of episodes), or convert"
                    " again with LeRobot's own tools"
                ),
                numbers={"columns": absent},
            )
        )
    other = {
        n: (features[n].dtype, kind)
        for n in schema.names
        if n in features and (kind := _stored(schema.field(n).type)) and kind != features[n].dtype
    }
    if other:
        parts = [f"{n} declared {a}, stored {b}" for n, (a, b) in other.items()]
        found.append(
            DataFinding(
                code="dtype_mismatch",
                severity=Severity.WARNING,
                sentence=f"columns are stored with another type than declared: {listed(parts)}",
                remedy="correct info.json or cast the columns",
                numbers={n: {"declared": a, "stored": b} for n, (a, b) in other.items()},
            )
        )
    return found


def _stored(kind: Any) -> str | None:
    inner = kind
    for _ in range(2):
        inner = (
            inner.value_type if str(inner).startswith(("list", "fixed_size_list", "large_list")) else inner
        )
    name = str(inner)
    return _DTYPES.get(name, name if name.startswith(("int", "uint")) else None)


def _declarations(dataset: Dataset) -> list[DataFinding]:
    info = dataset.info
    found = []
    absent = [k for k in INDEX_FEATURES if k not in info.features]
    if absent:
        found.append(
            DataFinding(
                code="undeclared_index_features",
                severity=Severity.WARNING,
                sentence=f"info.json does not declare {listed(absent)}, which every LeRobot dataset has",
                remedy="add them to features (timestamp float32, the others int64, shape [1])",
                numbers={"features": absent},
            )
        )
    if info.version in (VERSION_21, VERSION_20) and "{chunk_index" in info.data_path + info.video_path:
        found.append(
            DataFinding(
                code="path_template",
                severity=Severity.WARNING,
                sentence=(
                    f"path templates use {{chunk_index}} ({info.data_path!r}); {info.version} fills"
                    " {episode_chunk}, so LeRobot fails with a KeyError"
                ),
                remedy="write {episode_chunk} in data_path and video_path",
                numbers={"data_path": info.data_path, "video_path": info.video_path},
            )
        )
    turned = [
        k
        for k, f in info.features.items()
        if f.is_image and len(f.shape) == 3 and f.shape[0] in (1, 3) and f.shape[2] > 4
    ]
    if turned:
        found.append(
            DataFinding(
                code="image_shape_order",
                severity=Severity.WARNING,
                sentence=(
                    f"image features are declared channel first ({turned[0]}:"
                    f" {list(info.features[turned[0]].shape)}); LeRobot writes [height, width, channels]"
                ),
                remedy="reorder shape and names in info.json to [height, width, channels]",
                numbers={k: list(info.features[k].shape) for k in turned},
            )
        )
    return found


def _vectors(dataset: Dataset, pooled: Pooled) -> list[DataFinding]:
    found = []
    for key in (dataset.action_key, dataset.state_key):
        feature = dataset.info.features[key]
        width = pooled.pooled(key).shape[1]
        declared = feature.shape[0] if feature.shape else 1
        named = len(feature.names) or declared
        if named == 1:  # one name for a whole vector names none of its dimensions
            named = declared
        if declared != width or named != width:
            found.append(
                DataFinding(
                    code="dimension_count_mismatch",
                    severity=Severity.FAULT,
                    sentence=(
                        f"{key} declares {declared} dimensions and {len(feature.names)} names, the data have"
                        f" {width}"
                    ),
                    remedy="correct shape and names in info.json; a wrong count shifts every joint",
                    feature=key,
                    numbers={"declared": declared, "names": len(feature.names), "found": width},
                )
            )
    return [*found, *check_names(pooled)]

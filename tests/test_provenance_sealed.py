"""A kept result is believed only as it was written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simgap.errors import DataError
from simgap.provenance import read_sealed, write_sealed


def test_a_kept_result_comes_back_as_it_was_written(tmp_path: Path) -> None:
    write_sealed(tmp_path / "kept.json", {"verdict": "passes", "share": 0.97})
    assert read_sealed(tmp_path / "kept.json") == {"verdict": "passes", "share": 0.97}


@pytest.mark.parametrize(
    "edit",
    [
        lambda d: d | {"verdict": "passes"},
        lambda d: {k: v for k, v in d.items() if k != "share"},
        lambda d: d | {"more": 1},
        lambda d: {k: v for k, v in d.items() if k != "content_hash"},
        lambda d: [d],
    ],
)
def test_an_edited_one_is_refused_with_a_remedy(edit: object, tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    write_sealed(file, {"verdict": "below", "share": 0.2})
    file.write_text(json.dumps(edit(json.loads(file.read_text()))))  # type: ignore[operator]
    with pytest.raises(DataError, match="delete it"):
        read_sealed(file)

"""The identity of a dataset: a hash of the bytes of its episodes, never of its name or place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simgap.episodes.write.files import is_temporary
from simgap.provenance import content_hash, file_hash

_CONTENT = ("data", "video", "videos", "images", "meta/episodes")
_META = ("meta/tasks.parquet", "meta/tasks.jsonl", "meta/episodes.jsonl")


def content_files(root: Path) -> list[Path]:
    """Return the files that hold the content of a dataset, sorted by relative path; temporary files are not content."""
    found = [
        p for name in _CONTENT for p in (root / name).rglob("*") if p.is_file() and not is_temporary(p.name)
    ]
    found += [root / name for name in _META if (root / name).is_file()]
    return sorted(found, key=lambda p: p.relative_to(root).as_posix())


def content_fingerprint(root: Path, spec: dict[str, Any], files: Sequence[Path] | None = None) -> str:
    """Return the SHA-256 over the hashes of all content files and the spec, 64 hex digits.

    Args:
        root: dataset folder, or the one file of a dataset.
        spec: what else tells two datasets apart.
        files: the content; :func:`content_files` by default.
    """
    home = root if root.is_dir() else root.parent
    hashes = {
        p.relative_to(home).as_posix() if root.is_dir() else "": file_hash(p)
        for p in (content_files(root) if files is None else files)
    }
    return content_hash({"files": hashes, "spec": spec})

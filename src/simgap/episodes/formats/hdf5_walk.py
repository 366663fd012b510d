"""The tree of an HDF5 file, bounded in depth and size, with nothing outside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgap.errors import DataError

if TYPE_CHECKING:
    import h5py


_DEEPEST = 4


_MOST_KEYS = 2000


def walk_tree(
    group: h5py.Group, path: Path, prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, h5py.Dataset]]:
    """Yield the datasets below a group; what would lead out of the file is refused."""
    import h5py

    # a name that is no text is no name of ours
    for count, name in enumerate(sorted(n for n in group if isinstance(n, str))):
        if count > _MOST_KEYS:
            raise DataError(
                f"{path}: {group.name} holds more than {_MOST_KEYS} keys, which is no episode; check what"
                " it is"
            )
        item = group.get(name)  # nothing where a soft link leads nowhere
        if isinstance(item, h5py.Group):
            if depth < _DEEPEST and item.id not in _above(group):
                yield from walk_tree(item, path, f"{prefix}{name}/", depth + 1)
        elif isinstance(item, h5py.Dataset):
            require_own(item, path, f"{prefix}{name}")
            yield f"{prefix}{name}", item


def _above(group: h5py.Group) -> list[Any]:
    """Return the groups in which a group lies, itself and the top among them."""
    parts = [p for p in str(group.name).split("/") if p]
    return [group.file["/" + "/".join(parts[:k])].id for k in range(len(parts) + 1)]


def require_own(item: h5py.Dataset, path: Path, key: str) -> None:
    """Raise where the values of an HDF5 dataset lie in other files."""
    if item.is_virtual or item.external:
        raise DataError(f"{path}: the values of {key} lie in other files; copy them into one file")

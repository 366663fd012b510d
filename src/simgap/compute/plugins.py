"""What a registry is filled from: the rooms of this package, and installed packages that offer more by an entry point.

Installing a package is trusting it, as it is for everything that Python imports. One that merely lies in the
folder a command is run from was not installed, and is left alone.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any


def in_room(room: str, attribute: str) -> Iterator[Any]:
    """Yield what the modules of one of our own sub-packages hold under a name, in the order of the modules.

    Args:
        room: such as ``checks.plant``.
        attribute: for example ``CHECK``; a module without it is passed over.
    """
    package = importlib.import_module(f"simgap.{room}")
    for info in pkgutil.iter_modules(package.__path__):
        if not info.ispkg:
            found = getattr(importlib.import_module(f"simgap.{room}.{info.name}"), attribute, None)
            if found is not None:
                yield found


def installed(group: str) -> Iterator[tuple[str, Any]]:
    """Yield (what names it, the object) of each entry point that an installed package offers in a group."""
    here = Path.cwd().resolve()
    for point in entry_points(group=group):
        lies_in = None if point.dist is None else Path(str(point.dist.locate_file(""))).resolve()
        if lies_in != here:
            yield f"{point.name} = {point.value}", point.load()

"""A module that leaves a mark when it is imported or called, and the places in files where somebody could name it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MAKER = "simgap_canary:make"
_TEXT = """
from pathlib import Path
MARK = Path({mark!r})
MARK.write_text("imported")
sys_path = {tests!r}
def make(image_size=96, ranges=None, render=True):
    import sys
    sys.path.append(sys_path)
    from test_envs_wrap import MAP, Slider
    from simgap.envs.wrap import wrap
    MARK.write_text("called")
    return wrap(Slider, MAP, image_size=image_size, ranges=ranges, render=render)
"""


class Canary:
    """A canary in a folder that Python looks into."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mark = folder, folder / "mark"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "simgap_canary.py").write_text(
            _TEXT.format(mark=str(self.mark), tests=str(Path(__file__).parent))
        )
        program = folder / "program"
        program.write_text(f"#!/bin/sh\necho started > {self.mark}\nexit 3\n")
        program.chmod(0o755)
        self.program = program

    @property
    def sang(self) -> bool:
        """Whether anything of it ran since it was last asked; forgets it."""
        did = self.mark.exists()
        self.mark.unlink(missing_ok=True)
        sys.modules.pop("simgap_canary", None)
        return did


class Bomb:
    """An object whose pickle writes the mark when it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.write_text, (self.mark, "unpickled")


@contextmanager
def planted(file: Path, change: Callable[[Any], Any]) -> Iterator[None]:
    """Change the JSON of a file for a while."""
    before = file.read_text()
    file.write_text(json.dumps(change(json.loads(before))))
    try:
        yield
    finally:
        file.write_text(before)


def everywhere(value: Any, name: str, *, old: str | None = None) -> Any:
    """Return JSON with a name in the place of every text, or of every text that is ``old``."""
    if isinstance(value, Mapping):
        return {k: everywhere(v, name, old=old) for k, v in value.items()}
    if isinstance(value, list):
        return [everywhere(v, name, old=old) for v in value]
    return name if isinstance(value, str) and old in (None, value) else value

"""Prints what simgap and its tests ask for by name, one requirement a line: `make setup` installs these, pinned by constraints.txt."""

import re
import tomllib
from pathlib import Path


def direct(project: dict[str, object]) -> list[str]:
    """The requirements of the package and of its `dev` extra, without simgap itself."""
    extras = project["optional-dependencies"]
    # the first one is simgap[...]
    named = re.findall(r"[\w-]+", re.search(r"\[(.+)\]", extras["dev"][0]).group(1))
    return sorted(
        {*project["dependencies"], *extras["dev"][1:], *(one for extra in named for one in extras[extra])}
    )


if __name__ == "__main__":
    print(
        "\n".join(
            direct(tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"])
        )
    )

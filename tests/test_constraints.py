"""constraints.txt: what `make setup` installs is pinned, and pip can tell a file that is not the one that was pinned."""

import re
from importlib.metadata import requires, version
from pathlib import Path

ROOT = Path(__file__).parent.parent
PINNED = dict(re.findall(r"^([\w.-]+)==([^ ;\\]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))


def test_every_pinned_version_has_a_hash() -> None:
    entries = re.split(r"\n(?=[\w.-]+==)", "\n" + (ROOT / "constraints.txt").read_text())[1:]
    assert len(entries) == len(PINNED) > 100
    assert [
        entry.split()[0] for entry in entries if not re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry)
    ] == []


def test_everything_that_simgap_or_its_tests_ask_for_is_pinned() -> None:
    asked = {
        re.match(r"[\w.-]+", one).group().lower().replace("_", "-") for one in requires("simgap") or ()
    } - {"simgap"}
    assert asked
    assert asked - PINNED.keys() == set()


def test_the_pinned_versions_are_the_ones_that_these_tests_run_with() -> None:
    assert {
        name: version(name).split("+")[0] for name in ("numpy", "scipy", "mujoco", "torch", "pyarrow")
    } == {name: PINNED[name] for name in ("numpy", "scipy", "mujoco", "torch", "pyarrow")}

"""The program: ``simgap`` and ``python -m simgap``. It listens for Ctrl-C before it imports anything that takes time."""

import os
import sys

if __name__ == "__main__" and sys.path and sys.path[0] == os.getcwd() and not os.path.isdir("simgap"):
    # python -m put the current folder there, which may be somebody's data: a numpy.py in it is not to be run
    del sys.path[0]

from simgap.compute import interrupts


def main() -> int:
    """Run one command and return its exit code."""
    interrupts.install(sys.argv[1:])
    from simgap.cli import main as run

    code = run()
    interrupts.leaving(code)
    return code


if __name__ == "__main__":
    sys.exit(main())

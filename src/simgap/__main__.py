"""The program: ``simgap`` and ``python -m simgap``. It listens for Ctrl-C before it imports anything that takes time."""

import sys

from simgap import interrupts


def main() -> int:
    """Run one command and return its exit code."""
    interrupts.install(sys.argv[1:])
    from simgap.cli import main as run

    code = run()
    interrupts.leaving(code)
    return code


if __name__ == "__main__":
    sys.exit(main())

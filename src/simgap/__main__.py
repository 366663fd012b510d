"""``python -m simgap``: the command line."""

import sys

from simgap.cli import main

sys.exit(main())

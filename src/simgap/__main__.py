"""``python -m simgap``: the command line."""

import os
import sys

if sys.path and sys.path[0] == os.getcwd() and not os.path.isdir("simgap"):
    del sys.path[0]  # python -m put the current folder there, which may be somebody's data: a numpy.py in it is not to be run

from simgap.cli import main

sys.exit(main())

"""A pytest plugin: no test begins after the time is up, and the first failure is written down."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

UNTIL = time.monotonic() + float(os.environ["SABOTAGE_SECONDS"])
FIRST = Path(os.environ["SABOTAGE_FIRST"])


def pytest_runtest_setup() -> None:
    """Stop the run before a test that would begin too late: what has not failed by then has not noticed."""
    if time.monotonic() > UNTIL:
        pytest.exit("time is up", returncode=0)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write down which tests failed."""
    if report.failed:
        with FIRST.open("a") as stream:
            stream.write(report.nodeid + "\n")

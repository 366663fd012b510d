"""Who runs the tasks of a verb: this machine or a cluster."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simgap.compute.workers import TaskRunner


def add_ray(parser: argparse.ArgumentParser) -> None:
    """Add ``--ray``."""
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="run on a Ray cluster that shares this filesystem; `local` starts one here (needs simgap[ray])",
    )


def runner_of(args: argparse.Namespace) -> TaskRunner:
    """Return who runs the tasks: workers of this machine, or the cluster that was asked for.

    Raises:
        MachineError: Ray is not installed.
    """
    from simgap.compute.workers import run_tasks

    return ray_of(args) or run_tasks


def ray_of(args: argparse.Namespace) -> TaskRunner | None:
    """Return the cluster that was asked for, or None.

    Raises:
        MachineError: Ray is not installed.
    """
    if args.ray is None:
        return None
    from simgap.compute.ray import RayRunner

    return RayRunner(args.ray, args.workers)

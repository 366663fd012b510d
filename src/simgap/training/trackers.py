"""Experiment trackers, imported only when asked for; the log on disk is kept whatever they do."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from simgap.errors import MachineError


class TrackerName(StrEnum):
    """Which service; both speak the same three calls."""

    WANDB = "wandb"
    TRACKIO = "trackio"


class Tracker:
    """Sends the log's rows to a service."""

    def __init__(self, name: TrackerName, *, project: str, run: str, config: Mapping[str, Any]) -> None:
        """Open a run.

        Args:
            name: service.
            project: where runs are collected.
            run: of this run; the checkpoint folder's name.
            config: the training spec.

        Raises:
            MachineError: the package is not installed.
        """
        try:
            self._service: Any = (
                importlib.import_module("wandb")
                if name is TrackerName.WANDB
                else importlib.import_module("trackio")
            )
        except ModuleNotFoundError as error:
            raise MachineError(
                f"{name} is not installed; pip install {name}, or leave out --track (train.jsonl is written"
                " all the same)"
            ) from error
        self._service.init(project=project, name=run, config=dict(config))

    def log(self, row: Mapping[str, Any]) -> None:
        """Send one row; a loss carries in its name that it selects nothing."""
        values = {("loss (never selects)" if k == "loss" else k): v for k, v in row.items() if k != "step"}
        self._service.log(values, step=int(row["step"]))

    def close(self) -> None:
        """End the run."""
        self._service.finish()

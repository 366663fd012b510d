"""Policies: observations to chunks, and executors that turn chunks into actions.

Importing this package does not import torch; networks and checkpoints live in :mod:`simgap.policies.cnn` and
:mod:`simgap.policies.checkpoint`.
"""

from simgap.policies.base import Policy
from simgap.policies.execution import ExecutedAction, Executor, ExecutorSpec, Mode, parse_executor

__all__ = ["ExecutedAction", "Executor", "ExecutorSpec", "Mode", "Policy", "parse_executor"]

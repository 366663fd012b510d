"""One readable trainer: a mixture of frame tables in, a checkpoint folder out; resumable to the bit."""

from simgap.training.spec import TrainProgress, TrainSpec
from simgap.training.trainer import train

__all__ = ["TrainProgress", "TrainSpec", "train"]

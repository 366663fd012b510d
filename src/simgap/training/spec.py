"""What a training run is asked to do, and what it says while it runs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from simgap.errors import UsageError
from simgap.policies.cnn import Pool
from simgap.policies.execution import parse_executor
from simgap.policies.heads import FlowTarget, FlowTime, Head
from simgap.policies.normaliser import RangeMethod

_LATER = frozenset(
    (
        "head",
        "stem",
        "gripper_head",
        "gripper_weight",
        "flow_steps",
        "flow_target",
        "flow_time",
        "goal_input",
        "frozen",
        "adapter_rank",
        "adapter_parts",
    )
)
"""Fields that the first requests did not have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainSpec:
    """Everything that decides the weights, together with the data. No wall-clock time: the same spec gives the same weights."""

    steps: int = 4000
    batch: int = 64
    """Observations a step. For a fixed number of observations, smaller batches learnt more: 64 beat 128, and 128 beat 256."""
    learning_rate: float = 1e-3
    """Peak; about 3e-4 suits a fine-tune."""
    warmup_steps: int = 50
    final_rate_share: float = 0.02
    """Learning rate at the end of the cosine, as a share of the peak."""
    weight_decay: float = 1e-4
    clip: float = 1.0
    """Largest norm of the gradient."""
    ema: float = 0.999
    """Decay of the averaged weights that are saved; shorter at the start and in short runs, see :meth:`ema_at`."""
    chunk: int = 10
    """Future steps predicted; like width, hidden and pool ignored in a fine-tune, which keeps its parent's shape."""
    width: int = 32
    hidden: int = 256
    pool: Pool = Pool.SPATIAL_SOFTMAX
    head: Head = Head.L1
    """Like every field of the shape ignored in a fine-tune."""
    stem: int | None = None
    """Stride of the first layer; None takes it from the frame size."""
    gripper_head: bool = False
    """Give grippers a linear head of their own beside whatever the other dimensions have."""
    gripper_weight: float = 1.0
    """Weight of gripper dimensions in the loss."""
    flow_steps: int = 5
    flow_target: FlowTarget = FlowTarget.ACTION
    flow_time: FlowTime = FlowTime.BETA
    range_method: RangeMethod = RangeMethod.MIN_MAX
    """How the normaliser is fitted; a fine-tune keeps its parent's normaliser."""
    shift_px: int = 3
    """Frames are shifted by up to this many pixels each way, each camera by its own amount."""
    proprioception_noise: float = 0.0
    """Standard deviation added to the normalised state."""
    proprioception_dropout: float = 0.0
    """Share of samples whose state is zeroed (the middle of its range), against copying the state instead of looking."""
    p_real: float | None = None
    """Share of real (or surrogate) samples in every batch; None mixes by the shares of the tables alone."""
    domain_input: bool = False
    """Tell the policy whether a sample is simulated or real by two further inputs; a fine-tune has to do as its parent did."""
    goal_input: bool = False
    """Tell the policy which task an episode asks for, by one input for each of the data's tasks; a fine-tune has to do as its parent did."""
    frozen: tuple[str, ...] = ()
    """Parts of the network that a fine-tune leaves as they are: names of submodules, such as ``encoders``."""
    adapter_rank: int = 0
    """Rank of low-rank adapters that a fine-tune learns instead of weights; merged into the weights at the end. 0 has none."""
    adapter_parts: tuple[str, ...] = ("trunk", "head", "denoiser", "gripper_head")
    """Parts of the network whose linear layers and convolutions get adapters."""
    validation_share: float = 0.0
    """Share of each table's episodes that is held out for a loss that is logged and never selects anything."""
    seed: int = 0
    threads: int = 2
    """Shards a batch is cut into on a CPU, one a core; part of the spec because sums over another number differ in the last bit."""
    device: str = "cpu"
    bf16: bool = True
    init_from: Path | None = None
    """Checkpoint folder to fine-tune."""
    executor: str = "receding(5)"
    """Recommended in the card."""
    log_every: int = 50
    checkpoint_every_steps: int = 200
    """Steps between resume points; a kill loses at most this many."""

    def __post_init__(self) -> None:
        positive = ("steps", "batch", "chunk", "threads", "log_every", "checkpoint_every_steps")
        wrong = {n: getattr(self, n) for n in positive if getattr(self, n) < 1}
        shares = ("ema", "proprioception_dropout", "validation_share", "final_rate_share")
        wrong |= {n: getattr(self, n) for n in shares if not 0.0 <= getattr(self, n) < 1.0}
        if self.p_real is not None and not 0.0 <= self.p_real <= 1.0:
            wrong |= {"p_real": self.p_real}
        if self.adapter_rank < 0 or not math.isfinite(self.gripper_weight) or self.gripper_weight <= 0:
            wrong |= {"adapter_rank": self.adapter_rank, "gripper_weight": self.gripper_weight}
        if (self.frozen or self.adapter_rank) and self.init_from is None:
            raise UsageError(
                "frozen parts and adapters keep weights of a parent, and there is none; name one (init_from,"
                " --from), or train everything"
            )
        if (
            wrong
            or self.learning_rate <= 0
            or self.shift_px < 0
            or self.proprioception_noise < 0
            or self.clip <= 0
        ):
            raise UsageError(
                f"training spec out of range ({wrong or self}): counts start at 1, shares lie in [0, 1),"
                " rates are positive"
            )
        parse_executor(self.executor)

    def learning_rate_at(self, step: int) -> float:
        """Return the rate of a step: linear warm-up, then a cosine to :attr:`final_rate_share`."""
        warmup = min(self.warmup_steps, self.steps // 5)
        if step < warmup:
            return self.learning_rate * (step + 1) / warmup
        done = (step - warmup) / max(1, self.steps - warmup)
        return self.learning_rate * (
            self.final_rate_share + (1.0 - self.final_rate_share) * 0.5 * (1.0 + math.cos(math.pi * done))
        )

    def ema_at(self, step: int) -> float:
        """Return the decay of a step: never a memory longer than a tenth of the run, nor than what has been seen."""
        return min(self.ema, (1.0 + step) / (10.0 + step), max(0.0, 1.0 - 10.0 / self.steps))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; what came later and is at its default is left out, so that old requests stay the same."""
        words = {
            n: str(getattr(self, n)) for n in ("pool", "range_method", "head", "flow_target", "flow_time")
        }
        lists = {n: list(getattr(self, n)) for n in ("frozen", "adapter_parts")}
        whole = (
            asdict(self)
            | words
            | lists
            | {"init_from": None if self.init_from is None else str(self.init_from)}
        )
        defaults = {f.name: f.default for f in fields(self) if f.name in _LATER}
        return {k: v for k, v in whole.items() if k not in defaults or getattr(self, k) != defaults[k]}


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainProgress:
    """One sign of life, every ``log_every`` steps."""

    step: int
    """Steps done."""
    new: int
    """Of these, since the sign of life before, or since this call began."""
    total: int
    loss: float
    """Mean training loss over the last interval, normalised units; of the head's own kind, so two heads' losses are no comparison."""
    learning_rate: float
    observations_per_s: float
    eta_s: float

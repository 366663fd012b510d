"""Train lerobot's own ACT policy a few steps on a dataset of ours, with its statistics and its processors; run in a lerobot environment.

Usage: train_lerobot.py DATASET ...
"""

import sys
import time

import torch
from lerobot.datasets.factory import resolve_delta_timestamps
from lerobot.datasets.lerobot_dataset import LeRobotDataset, LeRobotDatasetMetadata
from lerobot.policies.act.configuration_act import ACTConfig
from lerobot.policies.factory import make_policy, make_pre_post_processors

SMALL = {
    "chunk_size": 8,
    "n_action_steps": 8,
    "dim_model": 32,
    "n_heads": 4,
    "dim_feedforward": 64,
    "n_encoder_layers": 1,
    "n_decoder_layers": 1,
}


def train(root: str) -> None:
    """Train three steps on one batch: the loss falls, every part of the policy learns, the normalised numbers are sane."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    meta = LeRobotDatasetMetadata("local/compat", root=root)
    config = ACTConfig(
        **SMALL, use_vae=False, pretrained_backbone_weights=None, device="cpu", push_to_hub=False
    )
    dataset = LeRobotDataset(
        "local/compat",
        root=root,
        delta_timestamps=resolve_delta_timestamps(config, meta),
        video_backend="pyav",
    )
    policy = make_policy(config, ds_meta=meta)
    preprocess, _ = make_pre_post_processors(config, dataset_stats=meta.stats)
    optimiser = torch.optim.AdamW(policy.get_optim_params(), lr=1e-3)
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(0)
    )
    batch = preprocess(next(iter(loader)))
    actions = batch["action"][~batch["action_is_pad"]]
    assert bool(actions.isfinite().all()), "normalised actions are not finite: the statistics are wrong"
    assert float(actions.abs().max()) < 20, (
        f"normalised actions reach {float(actions.abs().max()):.3g}: the statistics belong to other numbers"
    )
    before = [p.detach().clone() for p in policy.parameters()]
    policy.train()
    started, losses = time.perf_counter(), []
    for _ in range(3):
        optimiser.zero_grad()
        loss, _ = policy.forward(batch)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    moved = sum(bool((a != b).any()) for a, b in zip(before, policy.parameters(), strict=True))
    assert all(torch.isfinite(torch.tensor(losses))), losses
    assert losses[-1] < losses[0], f"three steps on one batch did not lower the loss: {losses}"
    assert moved > 0.5 * len(before), f"only {moved} of {len(before)} parameters moved"
    inputs = ", ".join(sorted(config.input_features))
    fell = f"loss {losses[0]:.4f} -> {losses[-1]:.4f} in 3 steps, {time.perf_counter() - started:.1f} s"
    sys.stderr.write(f"ok: lerobot trains ACT on {root.rpartition('/')[2]} ({inputs}): {fell}\n")


if __name__ == "__main__":
    for dataset_root in sys.argv[1:]:
        train(dataset_root)

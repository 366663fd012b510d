"""Build tiny policies with lerobot itself, random weights and the statistics of a dataset of ours, and note what lerobot does with them.

Usage: build_policies.py WORK, where WORK/generated is a dataset and WORK/observations.npz are two episodes of
observations; run in a lerobot environment
"""

import sys
from pathlib import Path

import numpy as np
import torch
from lerobot.configs.default import DatasetConfig
from lerobot.configs.train import TrainPipelineConfig
from lerobot.datasets.lerobot_dataset import LeRobotDatasetMetadata
from lerobot.policies.act.configuration_act import ACTConfig
from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig
from lerobot.policies.factory import make_policy, make_pre_post_processors
from lerobot.policies.utils import populate_queues, prepare_observation_for_inference

COMMON = {"pretrained_backbone_weights": None, "device": "cpu", "push_to_hub": False}
SMALL_ACT = {
    "chunk_size": 8,
    "dim_model": 32,
    "n_heads": 4,
    "dim_feedforward": 64,
    "n_encoder_layers": 1,
    "n_decoder_layers": 1,
    "use_vae": False,
}
SMALL_DIFFUSION = {
    "horizon": 16,
    "n_action_steps": 8,
    "down_dims": (32, 64),
    "diffusion_step_embed_dim": 16,
    "spatial_softmax_num_keypoints": 8,
}
CONFIGS = {
    "act": ACTConfig(**COMMON, **SMALL_ACT, n_action_steps=4),
    "ensemble": ACTConfig(**COMMON, **SMALL_ACT, n_action_steps=1, temporal_ensemble_coeff=0.1),
    "diffusion": DiffusionConfig(
        **COMMON,
        **SMALL_DIFFUSION,
        use_separate_rgb_encoder_per_camera=False,
        noise_scheduler_type="DDIM",
        num_inference_steps=4,
    ),
}


def build(work: Path, name: str) -> None:
    """Save ``WORK/policies/NAME`` and, beside it, chunks and actions of both episodes, each run alone."""
    torch.manual_seed(0)
    meta = LeRobotDatasetMetadata("local/compat", root=work / "generated")
    config = CONFIGS[name]
    policy = make_policy(config, ds_meta=meta)
    with torch.no_grad():
        # an untrained policy hardly looks; this one does, so that a wrong image or queue shows
        for parameter in policy.parameters():
            parameter.mul_(1.5)
    policy.eval()
    pre, post = make_pre_post_processors(config, dataset_stats=meta.stats)
    out = work / "policies" / name
    policy.save_pretrained(out)
    pre.save_pretrained(out)
    post.save_pretrained(out)
    TrainPipelineConfig(
        dataset=DatasetConfig(repo_id="local/compat", root=str(work / "generated")), policy=config
    ).save_pretrained(out)
    seen = np.load(work / "observations.npz")
    episodes, steps = seen["state"].shape[:2]

    def observe(e: int, t: int) -> dict:
        raw = {f"observation.images.{c}": seen[c][e, t].copy() for c in ("front", "wrist")} | {
            "observation.state": seen["state"][e, t].copy()
        }
        torch.manual_seed(int(seen["noise"][e, t]))
        return pre(prepare_observation_for_inference(raw, torch.device("cpu"), "pick up the red cube"))

    with torch.inference_mode():
        actions = []
        for e in range(episodes):
            policy.reset()
            actions.append([post(policy.select_action(observe(e, t)))[0].numpy() for t in range(steps)])
        if name == "diffusion":
            config.n_action_steps = config.horizon - config.n_obs_steps + 1
        chunks = []
        for e in range(episodes):
            policy.reset()
            chunks.append([post(predict(policy, observe(e, t)))[0].numpy() for t in range(steps)])
    np.savez(work / "policies" / f"{name}.npz", actions=np.array(actions), chunks=np.array(chunks))
    differ = float(np.abs(np.array(actions)[0] - np.array(actions)[1]).max())
    assert differ > 0.01, f"{name} does the same in both episodes: a mixed-up queue would not show"
    sys.stderr.write(
        f"ok: lerobot saves a tiny {config.type} ({name}) and runs it alone: {episodes} episodes of {steps}"
        f" steps, apart by up to {differ:.2g}\n"
    )


def predict(policy: torch.nn.Module, batch: dict) -> torch.Tensor:
    """Return a chunk as lerobot's own loop would make it at this step: diffusion from its queue of observations."""
    if policy.name == "diffusion":
        batch = {k: v for k, v in batch.items() if k != "action"} | {
            "observation.images": torch.stack([batch[key] for key in policy.config.image_features], dim=-4)
        }
        policy._queues = populate_queues(policy._queues, batch, exclude_keys=["action"])
    return policy.predict_action_chunk(batch)


def break_one(work: Path) -> None:
    """Save the first policy again with processors that know nothing of the state, as one that was given the statistics of other data."""
    meta = LeRobotDatasetMetadata("local/compat", root=work / "generated")
    policy = make_policy(CONFIGS["act"], ds_meta=meta)
    out = work / "policies" / "unscaled"
    policy.save_pretrained(out)
    for processor in make_pre_post_processors(
        CONFIGS["act"], dataset_stats={k: v for k, v in meta.stats.items() if k != "observation.state"}
    ):
        processor.save_pretrained(out)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for which in CONFIGS:
        build(Path(sys.argv[1]), which)
    break_one(Path(sys.argv[1]))

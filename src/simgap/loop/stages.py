"""The stages of a turn: each finds its finished work by content, or does it and leaves it to be found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simgap.causes.repairs import NOISE_DEG
from simgap.compute.cache import StageCache
from simgap.envs.base import TaskEnv
from simgap.envs.factors import FactorRanges
from simgap.episodes.frames import load_frames
from simgap.episodes.reader import open_dataset
from simgap.errors import DataError
from simgap.loop.spec import Reporter, TurnSpec
from simgap.pixelfloor.gate import require_pixels
from simgap.policies.checkpoint import read_card
from simgap.provenance import child_rng, content_hash, source_hash
from simgap.robots.base import InitialCondition, Robot
from simgap.robots.refs import SurrogateRef
from simgap.rollouts.engine import RolloutSpec
from simgap.rollouts.screen import ScreenReport, screen
from simgap.seeds import Purpose, seed_of
from simgap.teachers.generation import GenerateSpec, generate
from simgap.training import TrainSpec, train
from simgap.trials.batch import TrialPlan, conditions_of, run_trials

GENERATION_SOURCE = ("envs", "teachers", "episodes")
TRAINING_SOURCE = ("policies", "training")


class Stages:
    """Runs stages for one spec. Datasets, checkpoints and screens are shared between runs; trials belong to one run."""

    def __init__(
        self,
        spec: TurnSpec,
        env: TaskEnv,
        cache: StageCache,
        run_folder: Path,
        reporter: Reporter,
        workers: int,
    ) -> None:
        """Keep what every stage needs."""
        self.spec, self.env, self.cache, self.run_folder = spec, env, cache, run_folder
        self.reporter, self.workers = reporter, workers

    def dataset(
        self,
        label: str,
        ranges: FactorRanges,
        episodes: int,
        purpose: Purpose,
        seed: int,
        noise_deg: float = NOISE_DEG,
    ) -> Path:
        """Generate a dataset, or find it."""
        spec = GenerateSpec(
            env=self.spec.env,
            episodes=episodes,
            ranges=ranges,
            image_size=self.spec.image_size,
            seed=seed,
            purpose=purpose,
            noise_deg=noise_deg,
        )
        folder = self.cache.folder("datasets", [spec.to_json(), source_hash(*GENERATION_SOURCE)])
        with self.cache.holding(folder), self.reporter.stage(label, "episodes") as progress:
            if not (folder / "meta" / "info.json").exists():
                generate(
                    spec, folder, workers=self.workers, progress=lambda done, total: progress(done, total, "")
                )
            else:
                progress(episodes, episodes, "found")
        return folder

    def checkpoint(
        self,
        label: str,
        datasets: Sequence[Path],
        shares: Sequence[float] | None,
        steps: int,
        parent: Path | None = None,
    ) -> Path:
        """Train a policy, or find it."""
        train_spec = TrainSpec(
            steps=steps,
            executor=self.spec.executor,
            init_from=parent,
            learning_rate=1e-3 if parent is None else 5e-4,
        )
        parent_hash = None if parent is None else read_card(parent).weights_hash
        identity = {k: v for k, v in train_spec.to_json().items() if k != "init_from"} | {
            "parent": parent_hash
        }
        fingerprints = [open_dataset(d).fingerprint for d in datasets]
        folder = self.cache.folder(
            "checkpoints", [identity, fingerprints, list(shares or ()), source_hash(*TRAINING_SOURCE)]
        )
        with self.cache.holding(folder), self.reporter.stage(label, "steps") as progress:
            if (folder / "card.json").exists():
                if (found := read_card(folder).data) != tuple(fingerprints):
                    raise DataError(
                        f"{folder} holds a checkpoint of other data ({', '.join(d[:12] for d in found)}) than"
                        " its place says; delete it"
                    )
                progress(steps, steps, "found")
                return folder
            for data in datasets:
                require_pixels(open_dataset(data), threads=train_spec.threads, said=self.reporter.say)
            tables = [load_frames(d) for d in datasets]
            progress(0, steps, "")  # the first sign of life comes after many steps, which count too
            train(
                tables,
                shares,
                train_spec,
                folder,
                lambda p: progress(
                    p.step, p.total, f"loss {p.loss:.4f}, {p.observations_per_s:.0f} frames/s"
                ),
            )
        return folder

    def screen(
        self, label: str, checkpoint: Path, ranges: FactorRanges, executor: str, episodes: int
    ) -> ScreenReport:
        """Screen a policy in the simulator, or find its screen."""
        spec = RolloutSpec(
            env=self.spec.env,
            checkpoint=checkpoint,
            executor=executor,
            ranges=ranges,
            episodes=episodes,
            purpose=Purpose.SELECT,
        )
        root = self.cache.root / "screens"
        lock = root / content_hash([spec.to_json(), read_card(checkpoint).hash])[:20]
        with self.cache.holding(lock), self.reporter.stage(label, "rollouts") as progress:
            return screen(
                spec, root, workers=self.workers, progress=lambda done, total: progress(done, total, "")
            )

    def surrogate(self) -> SurrogateRef:
        """Return the sealed robot of this run."""
        return SurrogateRef(
            env=self.spec.env, image_size=self.spec.image_size, seed=self.spec.seed, gap=self.spec.gap
        )

    def in_use_conditions(self) -> tuple[InitialCondition, ...]:
        """Return the conditions of trials in use: the site decides where objects lie, by seed."""
        return tuple(
            InitialCondition(seed=seed_of(Purpose.TRIAL, self.spec.seed, i))
            for i in range(self.spec.in_use_trials)
        )

    def training_conditions(self, ranges: FactorRanges) -> tuple[InitialCondition, ...]:
        """Return conditions an operator sets up as in the training set."""
        conditions = []
        for index in range(self.spec.condition_trials):
            seed = seed_of(Purpose.TRIAL, self.spec.seed, 100_000 + index)
            values = self.env.factor_space.sample(ranges, child_rng(seed, "factors"))
            conditions.append(
                InitialCondition(seed=seed, placements={k: values[k] for k in self.env.placement_factors})
            )
        return tuple(conditions)

    def replay_conditions(self, dataset: Path) -> tuple[InitialCondition, ...]:
        """Return the conditions under which the first training episodes were made."""
        return conditions_of(open_dataset(dataset), range(self.spec.replays), self.env.placement_factors)

    def trials(self, label: str, place: str, name: str, robot: Robot, **plan: Any) -> Path:
        """Run trials on the surrogate, or what is missing of them.

        Args:
            label: of the stage.
            place: of the log, relative to the run.
            name: of the plan, which its stamp carries.
            robot: the sealed one that this run holds open.
            plan: the rest of the plan.
        """
        folder = self.run_folder / place
        full = TrialPlan(name=name, robot=self.surrogate(), task=self.env.task, **plan)
        with self.reporter.stage(label, "trials") as progress:
            run_trials(
                full,
                folder,
                workers=self.workers,
                progress=lambda done, total: progress(done, total, ""),
                robot=robot,
            )
        return folder

"""The headline, whole: teacher episodes, one training, 400 rollouts on report seeds; and beside it what badly handled predictions make of the same weights.

Three rows come out. ``policy``: the recipe with its executor. ``newest only``: the same weights on the same
seeds, but only the first entry of each prediction is used (mode ``latest``). ``one camera, one step``: the
same episodes and steps, trained to predict a single action from the first camera. Minutes are generation,
decoding and training on this machine's cores, two by default; the bars are written below. Recipes were chosen
on select seeds; the report seeds of a ``--seed`` are looked at once.

    python benchmarks/headline.py --task arm-pick --factors nominal
    python benchmarks/headline.py --task arm-pick --factors wide --alone

Killed at any moment, the same command goes on; minutes of a part that was interrupted are then said to be
unknown.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from simgap.envs import make_env
from simgap.episodes.frames import load_frames
from simgap.provenance import canonical_json, write_atomic
from simgap.rollouts.engine import RolloutSpec, run_rollouts
from simgap.seeds import Purpose
from simgap.statistics.proportions import wilson
from simgap.statistics.tally import tally
from simgap.teachers.generation import GenerateSpec, generate
from simgap.training import TrainSpec, train

N = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """What is made and trained, and the bar it is held to."""

    episodes: int
    steps: int
    minutes: float
    """At most, for generation and training."""
    successes: int
    """At least, of 400."""
    image_size: int = 96
    executor: str = "receding(5)"
    training: dict[str, Any] = field(default_factory=dict)
    """Further fields of :class:`~simgap.training.TrainSpec`."""


RECIPES = {
    ("arm-pick", "nominal"): Recipe(episodes=500, steps=9_000, minutes=15, successes=399),
    ("arm-place", "nominal"): Recipe(episodes=1_000, steps=15_000, minutes=25, successes=397),
    ("car-goal", "nominal"): Recipe(episodes=1_000, steps=10_000, minutes=15, successes=397),
    ("arm-pick", "wide"): Recipe(episodes=4_000, steps=40_000, minutes=60, successes=397),
}


class Spent(NamedTuple):
    """What a part took."""

    wall: float
    """Minutes."""
    cpu: float
    """Minutes of all processes together."""


class Clock:
    """Minutes of each part, kept in a file; a part that is found half done has none, nor has any where the file is missing beside made things."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_lost = not path.exists() and any(path.parent.iterdir())
        kept: dict[str, list[float] | None] = json.loads(path.read_text()) if path.exists() else {}
        self.spent = {part: None if both is None else Spent(*both) for part, both in kept.items()}

    def time(self, part: str, work: Callable[[], Any]) -> Any:
        """Do a part and keep how long it took, unless it is known already."""
        if self._is_lost:  # what is found done would seem to have taken no time
            self.spent.setdefault(part, None)
        is_known = part in self.spent
        if not is_known:
            self._keep(part, None)  # until it is whole
        began, cpu = time.monotonic(), _cpu_s()
        made = work()
        if not is_known:
            self._keep(part, Spent((time.monotonic() - began) / 60, (_cpu_s() - cpu) / 60))
        return made

    def total(self, *parts: str) -> Spent | None:
        """Return the minutes of parts together, None where one is unknown."""
        known = [self.spent.get(part) for part in parts]
        return (
            None if None in known else Spent(*(sum(k[i] for k in known if k is not None) for i in range(2)))
        )

    def _keep(self, part: str, spent: Spent | None) -> None:
        self.spent[part] = spent
        write_atomic(self._path, canonical_json(self.spent))


def _cpu_s() -> float:
    """Return the CPU seconds of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def main() -> int:
    """Print the rows of one task; 0 if the bar holds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", choices=sorted({task for task, _ in RECIPES}), default="arm-pick")
    parser.add_argument("--factors", choices=sorted({factors for _, factors in RECIPES}), default="nominal")
    parser.add_argument("--seed", type=int, default=0, help="root of the training's and the report's seeds")
    parser.add_argument("--episodes", type=int, help="teacher episodes, instead of the recipe's")
    parser.add_argument("--steps", type=int, help="training steps, instead of the recipe's")
    parser.add_argument("--executor", help="instead of the recipe's")
    parser.add_argument("--rollouts", type=int, default=N)
    parser.add_argument(
        "--select",
        action="store_true",
        help="score on select seeds: to try a recipe without spending report seeds",
    )
    parser.add_argument("--alone", action="store_true", help="without the two rows beside it")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/headline"))
    options = parser.parse_args()
    recipe = RECIPES.get((options.task, options.factors))
    if recipe is None:
        parser.error(
            f"no recipe for {options.task} under {options.factors}; there are"
            f" {', '.join(' '.join(key) for key in RECIPES)}"
        )
    if min(options.rollouts, options.cores) < 1 or options.seed < 0:
        parser.error(
            f"--rollouts {options.rollouts}, --cores {options.cores}, --seed {options.seed}: counts start at"
            " 1, a seed at 0"
        )
    changed = {
        name: value
        for name in ("episodes", "steps", "executor")
        if (value := getattr(options, name)) is not None
    }
    return run(options, replace(recipe, **changed))


def run(options: argparse.Namespace, recipe: Recipe) -> int:
    """Make the data, train, roll out and print."""
    folder = (
        options.out / f"{options.task}-{options.factors}-s{options.seed}-{recipe.episodes}x{recipe.steps}"
    )
    folder.mkdir(parents=True, exist_ok=True)
    clock = Clock(folder / "minutes.json")
    env = make_env(options.task, image_size=recipe.image_size, render=False)
    cameras = env.cameras
    data = GenerateSpec(
        env=options.task,
        episodes=recipe.episodes,
        ranges=env.presets[options.factors],
        image_size=recipe.image_size,
        seed=options.seed,
    )
    report = clock.time("generation", lambda: generate(data, folder / "data", workers=options.cores))
    length = report.frames / report.episodes
    say(
        f"{options.task} {options.factors}: {report.episodes} episodes of {length:.1f} frames,"
        f" {recipe.image_size} px, {len(cameras)} cameras"
    )
    clock.time("decoding", lambda: load_frames(folder / "data"))
    spec = TrainSpec(
        steps=recipe.steps,
        seed=options.seed,
        threads=options.cores,
        executor=recipe.executor,
        **recipe.training,
    )
    learn(clock, "training", folder, spec, cameras)
    rows = [score(options, env, folder / "training", recipe.executor, "policy")]
    minutes = clock.total("generation", "decoding", "training")
    if not options.alone:
        rows.append(score(options, env, folder / "training", "latest", "newest only"))
        one = replace(spec, chunk=1, executor="latest")
        learn(clock, "training-one-step", folder, one, cameras[:1])
        rows.append(score(options, env, folder / "training-one-step", "latest", "one camera, one step"))
    holds = rows[0] >= recipe.successes and minutes is not None and minutes.wall <= recipe.minutes
    parts = ", ".join(
        f"{part} {'unknown' if spent is None else f'{spent.wall:.1f}'}" for part, spent in clock.spent.items()
    )
    said = (
        "unknown minutes (it was interrupted)"
        if minutes is None
        else f"{minutes.wall:.1f} minutes ({minutes.cpu:.1f} of processors)"
    )
    say(f"{recipe.episodes} episodes, {said} on {options.cores} cores: {parts}")
    bar = f"bar: >= {recipe.successes} of {N} in <= {recipe.minutes:g} minutes"
    if options.rollouts != N:
        say(f"{bar}: {options.rollouts} rollouts cannot say whether it holds")
        return 1
    say(
        f"{bar}:"
        f" {'holds' if holds else 'does not hold'}{' on select seeds, which the recipe may have been chosen on' if options.select else ''}"
    )
    return 0 if holds else 1


def learn(clock: Clock, part: str, folder: Path, spec: TrainSpec, cameras: tuple[str, ...]) -> None:
    """Train a policy into ``folder / part``, or find it there; what another request trained there is refused."""
    began, table = time.monotonic(), load_frames(folder / "data", cameras=cameras)

    def progress(now: Any) -> None:
        if now.step % (20 * spec.log_every) == 0:
            minutes = (time.monotonic() - began) / 60
            say(
                f"  {part}: {now.step} of {now.total} steps, loss {now.loss:.4f},"
                f" {now.observations_per_s:.0f} observations/s, {minutes:.1f} min"
            )

    clock.time(part, lambda: train([table], None, spec, folder / part, progress))


def score(options: argparse.Namespace, env: Any, checkpoint: Path, executor: str, name: str) -> int:
    """Roll a policy out and print its row."""
    purpose = Purpose.SELECT if options.select else Purpose.REPORT
    spec = RolloutSpec(
        env=options.task,
        checkpoint=checkpoint,
        executor=executor,
        ranges=env.presets[options.factors],
        episodes=options.rollouts,
        purpose=purpose,
        seed=options.seed,
    )
    began = time.monotonic()
    records = run_rollouts(spec, workers=options.cores)
    seconds = time.monotonic() - began
    found = tally(r.outcome for r in records).estimate(wilson)
    modes = Counter(str(r.outcome) for r in records if not r.outcome.is_success)
    failed = ", ".join(f"{count} {mode}" for mode, count in modes.most_common()) or "no failure"
    say(f"{name:22s} {executor:12s} {found} on {purpose} seeds; {failed}; {seconds:.0f} s")
    return found.successes


def say(text: str) -> None:
    """Print a line at once: the run is long."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())

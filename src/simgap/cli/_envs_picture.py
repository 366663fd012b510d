"""``simgap envs picture``: one image of what the cameras see under every preset."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from simgap.cli._output import emit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from simgap.envs.base import TaskEnv

HELP = "one image of what the cameras see under every preset"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the action's own options."""
    from simgap.cli._options import add_renderer, count

    parser.add_argument("-n", type=count, default=3, metavar="N", help="draws of each preset (default 3)")
    parser.add_argument("--size", type=count, default=128, metavar="PX", help="side of a frame (default 128)")
    add_renderer(parser)


def run(args: argparse.Namespace) -> int:
    """Draw and write the image."""
    from simgap.cli._output import show_lines
    from simgap.compute.machine import require_offscreen
    from simgap.envs import make_env
    from simgap.errors import UsageError
    from simgap.provenance import write_atomic

    out = args.out or Path("runs") / f"{args.env}.png"
    if out.suffix.lower() != ".png":
        raise UsageError(f"--out {out} is not a .png file; give one")
    make_env(args.env, render=False)  # an unknown name is said before the renderer is tried
    require_offscreen()
    env = make_env(args.env, image_size=args.size, renderer=args.renderer)
    png = _sheet(env, args.n, args.seed)
    env.close()
    write_atomic(out, png)
    columns = [f"{camera} {i + 1}" for i in range(args.n) for camera in env.cameras]
    document = {
        "path": out,
        "env": args.env,
        "rows": list(env.presets),
        "columns": columns,
        "seed": args.seed,
        "bytes": os.path.getsize(out),
    }
    emit(
        args,
        document,
        lambda console: show_lines(
            console, f"wrote {out}: {len(env.presets)} presets x {args.n} draws, {' and '.join(env.cameras)}"
        ),
    )
    return 0


def _sheet(env: TaskEnv, draws: int, seed: int) -> bytes:
    """Return a PNG: a row a preset, and in it the cameras of each draw side by side."""
    import io

    import numpy as np
    from PIL import Image, ImageDraw

    from simgap.provenance import child_rng

    gap, title, size = 4, 18, env.image_size
    width = draws * (len(env.cameras) * size + gap) + gap
    page = np.full((len(env.presets) * (size + title + gap) + gap, width, 3), 255, dtype=np.uint8)
    for row, ranges in enumerate(env.presets.values()):
        top = gap + row * (size + title + gap) + title
        for draw in range(draws):
            values = env.factor_space.sample(ranges, child_rng(seed, "picture", draw))
            frames: dict[str, NDArray[np.uint8]] = env.render_still(values)
            left = gap + draw * (len(env.cameras) * size + gap)
            page[top : top + size, left : left + len(env.cameras) * size] = np.concatenate(
                [frames[c] for c in env.cameras], axis=1
            )
    image = Image.fromarray(page)
    pen = ImageDraw.Draw(image)
    for row, name in enumerate(env.presets):
        pen.text(
            (gap, gap + row * (size + title + gap) + 2),
            f"{name}  ({' | '.join(env.cameras)})",
            fill=(20, 20, 20),
        )
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()

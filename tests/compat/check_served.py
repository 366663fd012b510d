"""Our clients against the owners' own code: vla-eval's server, and openpi's client library on the other end of the wire.

Neither package is a dependency of simgap, and their wheels are enough, without what they depend on::

    pip download --no-deps vla-eval==0.8.0 openpi-client==0.1.2 -d wheels
    for wheel in wheels/*.whl; do unzip -q -o "$wheel" -d wheels/open; done
    PYTHONPATH=wheels/open python tests/compat/check_served.py
"""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
import websockets.asyncio.server
from openpi_client import msgpack_numpy
from openpi_client.websocket_client_policy import WebsocketClientPolicy
from vla_eval import __version__ as harness_version
from vla_eval.model_servers.predict import PredictModelServer
from vla_eval.model_servers.serve import serve_async
from vla_eval.specs import IMAGE_RGB, LANGUAGE, RAW, DimSpec

from simgap.errors import ConventionError, TrialFault
from simgap.policies.base import Asked
from simgap.policies.bridges.open import open_policy
from simgap.policies.bridges.wire import Dialect, pack, unpack

SIZE, CHUNK = 32, 4
STATE = np.array([[0.0, -45.0, 45.0, 75.0, 0.0, 60.0]], dtype=np.float32)
IMAGES = {"front": np.arange(SIZE * SIZE * 3, dtype=np.uint8).reshape(1, SIZE, SIZE, 3)}


class Holding(PredictModelServer):
    """Answers with the state plus the number of the prediction since the episode began."""

    def predict(self, obs: Any, ctx: Any) -> Any:
        if obs["task_description"] == "fail":
            raise ValueError("asked to fail")
        assert obs["images"]["agentview"].shape == (SIZE, SIZE, 3)
        assert np.array_equal(obs["images"]["agentview"], IMAGES["front"][0])
        return {"actions": np.repeat(np.asarray(obs["states"])[None] + ctx.step, CHUNK, axis=0)}

    def get_action_spec(self) -> Any:
        return {
            "joints": DimSpec("joints", 5, "raw"),
            "gripper": DimSpec("gripper", 1, "binary_close_negative"),
        }

    def get_observation_spec(self) -> Any:
        return {"image": IMAGE_RGB, "language": LANGUAGE, "anything": RAW}


class Closing(Holding):
    """Declares a gripper that closes at the high end."""

    def get_action_spec(self) -> Any:
        return super().get_action_spec() | {"gripper": DimSpec("gripper", 1, "binary_close_positive")}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def vla_eval_at(server: PredictModelServer) -> str:
    port = free_port()
    threading.Thread(target=lambda: anyio.run(serve_async, server, "127.0.0.1", port), daemon=True).start()
    wait_for(port)
    return f"ws://127.0.0.1:{port}"


def openpi_at(infer: Any) -> str:
    """Serve as openpi's ``websocket_policy_server.py`` does, with the owners' packing."""
    port = free_port()

    async def handler(connection: Any) -> None:
        packer = msgpack_numpy.Packer()
        await connection.send(packer.pack({"reset_pose": np.zeros(6), "model": "fake"}))
        async for data in connection:
            await connection.send(
                packer.pack({**infer(msgpack_numpy.unpackb(data)), "server_timing": {"infer_ms": 1.0}})
            )

    async def run() -> None:
        async with websockets.asyncio.server.serve(
            handler, "127.0.0.1", port, compression=None, max_size=None
        ) as server:
            await server.serve_forever()

    threading.Thread(target=lambda: asyncio.run(run()), daemon=True).start()
    wait_for(port)
    return f"ws://127.0.0.1:{port}"


def wait_for(port: int) -> None:
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 0.1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit("the server did not start")


@contextmanager
def policy_file(kind: str, url: str, **changes: Any) -> Any:
    keys = {
        "openpi": ("observation/image", "observation/state", "prompt"),
        "vla-eval": (["images", "agentview"], "states", "task_description"),
    }[kind]
    fields = {
        "kind": kind,
        "url": url,
        "weights": "none",
        "env": "arm-pick",
        "image_size": SIZE,
        "chunk": CHUNK,
    }
    fields |= {"images": {"front": keys[0]}, "state": keys[1], "prompt": keys[2]}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.json"
        path.write_text(json.dumps(fields | changes))
        yield path


def asked(step: int, seed: int = 0, goal: str = "pick") -> list[Asked]:
    return [Asked(step=step, seed=seed, goal=goal)]


def check_vla_eval() -> None:
    with policy_file("vla-eval", vla_eval_at(Holding(chunk_size=None))) as path:
        policy = open_policy(path)
        assert policy.metadata["harness_version"] == harness_version
        for seed in (1, 2):
            chunk = policy.predict_asked(IMAGES, STATE, asked(0, seed))
            assert chunk.shape == (1, CHUNK, 6)
            np.testing.assert_allclose(chunk[0], STATE.repeat(CHUNK, axis=0))
        # the server's own count
        np.testing.assert_allclose(policy.predict_asked(IMAGES, STATE, asked(4, 1))[0, 0], STATE[0] + 1)
        # begun anew
        np.testing.assert_allclose(policy.predict_asked(IMAGES, STATE, asked(0, 1))[0, 0], STATE[0])
        with pytest.raises(TrialFault, match="ValueError: asked to fail"):
            policy.predict_asked(IMAGES, STATE, asked(1, 1, "fail"))
        policy.close()
    with policy_file("vla-eval", vla_eval_at(Holding(chunk_size=CHUNK)), chunk=1) as path:
        policy = open_policy(path)
        for step in range(6):  # the server hands out its chunk one by one, then predicts again
            np.testing.assert_allclose(
                policy.predict_asked(IMAGES, STATE, asked(step))[0, 0],
                STATE[0] + (0 if step < CHUNK else CHUNK),
            )
        policy.close()
    with (
        policy_file("vla-eval", vla_eval_at(Closing(chunk_size=None))) as path,
        pytest.raises(ConventionError, match="set opens_high to false"),
    ):
        open_policy(path)


def check_openpi() -> None:
    message = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": {"c": np.float64(1.5)},
        "d": "text",
        "e": np.zeros((2, 2), np.uint8),
    }
    theirs, ours = (
        msgpack_numpy.unpackb(pack(message, Dialect.OPENPI)),
        unpack(msgpack_numpy.packb(message), who="openpi"),
    )
    for found in (theirs, ours):
        np.testing.assert_array_equal(found["a"], message["a"])
        np.testing.assert_array_equal(found["e"], message["e"])
        assert (found["b"]["c"], found["d"]) == (1.5, "text")

    def infer(seen: Any) -> Any:
        assert np.array_equal(seen["observation/image"], IMAGES["front"][0])
        return {"actions": np.repeat(seen["observation/state"][None], CHUNK, axis=0)}

    url = openpi_at(infer)
    with policy_file("openpi", url) as path:
        policy = open_policy(path)
        chunk = policy.predict_asked(IMAGES, STATE, asked(0))[0]
        policy.close()
    host, port = url.removeprefix("ws://").split(":")
    owners = WebsocketClientPolicy(host, int(port)).infer(
        {"observation/image": IMAGES["front"][0], "observation/state": STATE[0], "prompt": "pick"}
    )
    np.testing.assert_array_equal(chunk, owners["actions"].astype(np.float32))


if __name__ == "__main__":
    check_openpi()
    print("openpi: the same chunk through our client and the owners'")
    check_vla_eval()
    print(
        f"vla-eval {harness_version}: chunks, single actions, episodes, errors and declarations as the"
        " protocol says"
    )

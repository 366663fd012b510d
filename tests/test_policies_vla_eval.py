"""A policy behind vla-eval's model server: greeting, one connection an episode, declared conventions, and every way of failing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arm_fixtures import SIZE, blind
from policy_servers import read, serving, text_array
from simgap.cli import main
from simgap.conventions import VectorSpec
from simgap.errors import ConventionError, DataError, MachineError, SimgapError, TrialFault, UsageError
from simgap.policies.base import Asked, WatchingPolicy
from simgap.policies.bridges.open import open_policy, read_any_card
from simgap.policies.bridges.vla_eval import VlaEvalPolicy
from simgap.policies.bridges.vla_eval_specs import components_of
from simgap.policies.execution import parse_executor, require_executable

CHUNK = 3
ENV = blind()
STATE = np.array([[0.0, -45.0, 45.0, 75.0, 0.0, 60.0]], dtype=np.float32)
IMAGES = {c: np.zeros((1, SIZE, SIZE, 3), dtype=np.uint8) for c in ENV.cameras}


class Server:
    """A model server: greets, keeps a step counter a connection that ``episode_start`` clears, and answers what it is told to."""

    def __init__(
        self, answer: Callable[[Any, int], Any] | None = None, greeting: dict[str, Any] | None = None
    ) -> None:
        self.greeting = {
            "harness_version": "0.8.0",
            "protocol_version": 1,
            "model_server": "Fake",
            "capabilities": {},
        } | (greeting or {})
        self.answer = answer or (
            lambda payload, step: np.repeat(payload["states"][None] + step, CHUNK, axis=0)
        )
        self.log: list[list[tuple[str, Any]]] = []
        """For every connection what came, in order."""

    def __call__(self, socket: Any) -> None:
        log: list[tuple[str, Any]] = []
        self.log.append(log)
        step = 0
        for data in socket:
            message = read(data)
            assert set(message) == {"type", "payload", "seq", "timestamp"}
            kind, payload, seq = message["type"], message["payload"], message["seq"]
            log.append((kind, payload))
            if kind == "hello":
                socket.send(self.packed("hello", self.greeting, seq))
            if kind == "episode_start":
                step = 0
            if kind == "observation":
                answer = self.answer(payload, step)
                step += 1
                if isinstance(answer, np.ndarray):
                    answer = self.packed("action", {"actions": text_array(answer.astype(np.float32))}, seq)
                socket.send(answer(seq) if callable(answer) else answer)

    @staticmethod
    def packed(kind: str, payload: Any, seq: int) -> bytes:
        packed: bytes = msgpack.packb({"type": kind, "payload": payload, "seq": seq, "timestamp": 1.5})
        return packed


def written(folder: Path, url: str, **changes: Any) -> Path:
    fields: dict[str, Any] = {
        "kind": "vla-eval",
        "url": url,
        "weights": "fake, step 0",
        "env": "arm-pick",
        "images": {"front": ["images", "agentview"], "wrist": ["images", "wrist"]},
        "state": "states",
        "prompt": "task_description",
        "image_size": SIZE,
        "chunk": CHUNK,
        "reply_timeout_s": 60.0,
    }
    path = folder / "policy.json"
    path.write_text(json.dumps({k: v for k, v in {**fields, **changes}.items() if v is not ...}))
    return path


def opened(folder: Path, url: str, **changes: Any) -> VlaEvalPolicy:
    policy = open_policy(written(folder, url, **changes))
    assert isinstance(policy, VlaEvalPolicy)
    return policy


def asked(seed: int = 0, step: int = 0) -> Asked:
    return Asked(seed=seed, step=step, goal="pick the cube")


def one(policy: VlaEvalPolicy, seed: int, step: int) -> Any:
    return policy.predict_asked(IMAGES, STATE, [asked(seed, step)])[0]


def kinds(log: list[tuple[str, Any]]) -> list[str]:
    return [kind for kind, _ in log]


# -- the protocol


def test_greeting_start_and_observations_come_in_the_protocols_order_and_form(tmp_path: Path) -> None:
    server = Server()
    with serving(server) as url:
        policy = opened(tmp_path, url)
        chunk = one(policy, 5, 0)
        one(policy, 5, 2)
        one(policy, 5, 0)
    np.testing.assert_allclose(chunk, STATE.repeat(CHUNK, axis=0))
    (log,) = server.log
    assert kinds(log) == [
        "hello",
        "episode_start",
        "observation",
        "observation",
        "episode_end",
        "episode_start",
        "observation",
    ]
    assert log[0][1]["protocol_version"] == 1
    assert log[1][1] == {"task": {"name": "pick the cube"}}
    sent = log[2][1]
    assert set(sent) == {"images", "states", "task_description"}
    assert sent["images"]["agentview"].shape == (SIZE, SIZE, 3)
    np.testing.assert_array_equal(sent["states"], STATE[0])


def test_episodes_that_run_at_once_have_a_connection_each_and_never_see_each_others_steps(
    tmp_path: Path,
) -> None:
    server = Server()
    with serving(server) as url:
        policy = opened(tmp_path, url)
        found = {
            (seed, step): float(one(policy, seed, step)[0, 0]) for step in range(3) for seed in (7, 8, 9)
        }
    assert found == {(seed, step): float(step) for step in range(3) for seed in (7, 8, 9)}
    assert [kinds(log) for log in server.log] == [["hello", "episode_start", *["observation"] * 3]] * 3


def test_a_new_episode_takes_the_connection_that_is_silent_longest_when_no_more_are_allowed(
    tmp_path: Path,
) -> None:
    server = Server()
    with serving(server) as url:
        policy = opened(tmp_path, url, sessions=2)
        for seed in (1, 2, 3):
            assert float(one(policy, seed, 0)[0, 0]) == 0.0
        assert float(one(policy, 2, 1)[0, 0]) == 1.0
        with pytest.raises(TrialFault, match=r"no connection for episode 1 at step 1.*raise sessions"):
            one(policy, 1, 1)
    assert len(server.log) == 2


def test_a_server_of_single_actions_is_its_own_executor_and_sees_every_step(tmp_path: Path) -> None:
    with serving(Server(lambda payload, step: payload["states"] + step)) as url:
        policy = opened(tmp_path, url, chunk=1)
        assert isinstance(policy, WatchingPolicy)
        require_executable(policy, parse_executor("latest"))
        with pytest.raises(UsageError, match="execute twice"):
            require_executable(policy, parse_executor("receding(1)"))
        assert one(policy, 0, 0).shape == (1, 6)
        policy.watch(IMAGES, STATE, [asked(0, 1)])
        assert float(one(policy, 0, 2)[0, 0]) == 2.0
        with pytest.raises(TrialFault, match="every one, in order"):
            one(policy, 0, 4)


def test_prediction_without_an_episode_begins_one_for_every_row(tmp_path: Path) -> None:
    server = Server()
    with serving(server) as url:
        policy = opened(tmp_path, url, prompt=None)
        chunks = policy.predict({c: f.repeat(2, axis=0) for c, f in IMAGES.items()}, STATE.repeat(2, axis=0))
    assert chunks.shape == (2, CHUNK, 6)
    np.testing.assert_array_equal(chunks[0], chunks[1])


# -- what is refused


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (np.zeros(6), ConventionError, ("(6,)", "(3, 6)")),
        (np.zeros((CHUNK, 7)), ConventionError, ("(3, 7)", "(3, 6)")),
        (np.full((CHUNK, 6), np.nan), DataError, ("nan", "shoulder_pan")),
        (
            lambda s: Server.packed("error", {"error": "observation_failed: KeyError: 'states'"}, s),
            TrialFault,
            ("KeyError: 'states'",),
        ),
        (
            lambda s: Server.packed("action", {"actions": [[0.0] * 6] * CHUNK}, s + 1),
            DataError,
            ("answered question", "another moment"),
        ),
        (lambda s: Server.packed("hello", {}, s), DataError, ("'hello' where 'action'",)),
        (lambda s: Server.packed("shutdown", {}, s), DataError, ("no message of the protocol",)),
        (lambda s: Server.packed("action", [1], s), DataError, ("no message of the protocol",)),
        (
            lambda s: Server.packed("action", {"actions": [[0.0] * 6] * CHUNK, "terminate_episode": True}, s),
            DataError,
            ("only the judge",),
        ),
        (
            lambda s: Server.packed(
                "action", {"actions": {"__ndarray__": True, "data": b"x", "dtype": "|O", "shape": [1]}}, s
            ),
            DataError,
            ("pickles",),
        ),
        (
            lambda s: Server.packed(
                "action", {"actions": {"__image__": True, "format": "png", "data": b""}}, s
            ),
            DataError,
            ("encoded image",),
        ),
        ("not a protocol of text", TrialFault, ("not a protocol of text",)),
        (b"\xc1", DataError, ("no msgpack",)),
    ],
)
def test_a_bad_answer_is_one_line_that_names_the_server_and_the_fault(
    tmp_path: Path, answer: Any, error: type[SimgapError], words: tuple[str, ...]
) -> None:
    with serving(Server(lambda *_: answer)) as url:
        policy = opened(tmp_path, url)
        with pytest.raises(error) as caught:
            one(policy, 0, 0)
        policy.close()
    assert "\n" not in str(caught.value)
    for word in (*words, url):
        assert word in str(caught.value), str(caught.value)


def test_after_an_error_the_connection_is_not_used_again_because_an_answer_may_still_come(
    tmp_path: Path,
) -> None:
    server = Server(lambda *_: lambda s: Server.packed("error", {"error": "episode_start_failed: x"}, s - 1))
    with serving(server) as url:
        policy = opened(tmp_path, url, reconnects=1)
        with pytest.raises(TrialFault, match="episode_start_failed"):
            one(policy, 0, 0)
        with pytest.raises(TrialFault, match="no connection for episode 0"):
            one(policy, 0, 1)
        server.answer = Server().answer
        assert one(policy, 0, 0).shape == (CHUNK, 6)  # a new episode, over the one reconnection allowed
    assert len(server.log) == 2


def test_a_server_that_is_another_one_after_reconnecting_is_refused(tmp_path: Path) -> None:
    server = Server()
    with serving(server) as url:
        policy = opened(tmp_path, url)
        one(policy, 0, 0)
        server.greeting["model_server"] = "Other"
        with pytest.raises(TrialFault, match="another policy"):
            one(policy, 1, 0)


@pytest.mark.parametrize("greeting", [{"protocol_version": 2}, {"protocol_version": "1"}])
def test_another_version_of_the_protocol_is_refused(tmp_path: Path, greeting: dict[str, Any]) -> None:
    with serving(Server(greeting=greeting)) as url, pytest.raises(ConventionError, match="this one is 1"):
        opened(tmp_path, url)


def test_nobody_there_is_said_with_the_command_that_starts_a_server(tmp_path: Path) -> None:
    with serving(Server()) as url:
        pass
    with pytest.raises(MachineError, match="vla-eval serve"):
        opened(tmp_path, url, connect_timeout_s=1.0)


# -- declared conventions


def declared(*components: tuple[str, int, str]) -> dict[str, Any]:
    return {
        "action_spec": {name: {"name": name, "dims": dims, "format": form} for name, dims, form in components}
    }


@pytest.mark.parametrize(
    ("greeting", "changes", "words"),
    [
        (
            declared(("position", 3, "delta_xyz"), ("gripper", 1, "raw")),
            {},
            "declares actions of 4 numbers .*the file says 6",
        ),
        (
            declared(("position", 3, "delta_xyz"), ("rest", 3, "raw")),
            {},
            "delta_xyz.*absolute.*set reference to delta",
        ),
        (
            declared(("joints", 5, "raw"), ("gripper", 1, "binary_close_positive")),
            {},
            "closed at the low end.*set opens_high to false",
        ),
        (
            declared(("gripper", 1, "binary_close_negative"), ("joints", 5, "raw")),
            {},
            "correct is_gripper or the order",
        ),
        (
            declared(("joints", 5, "raw"), ("rotation", 1, "axis_angle")),
            {},
            "correct is_gripper or the order",
        ),
        (declared(("joints", 6, "raw")), {"components": ["joint"]}, "did you mean 'joints'"),
        ({"action_spec": {"joints": {"dims": "six", "format": "raw"}}}, {}, "cannot be read"),
        ({"action_spec": [1]}, {}, "cannot be read"),
        (
            {"observation_spec": {"language": {"dims": 0, "format": "language"}}},
            {"prompt": None},
            "set prompt to its key",
        ),
        (
            {"observation_spec": {"state": {"dims": 8, "format": "eef_pos3_axisangle3_gripper2"}}},
            {},
            "of 8 numbers, and the policy file sends 6",
        ),
        (
            {"observation_spec": {"state": {"dims": 6, "format": "joint_positions"}}},
            {"state": None},
            "sends no state",
        ),
        ({"observation_params": {"send_state": True}}, {"state": None}, "send_state"),
        (
            {"observation_spec": {"image": {"dims": 0, "format": "rgb_hwc_uint8"}}},
            {"image_layout": "CHW"},
            "set image_layout to HWC",
        ),
    ],
)
def test_what_the_server_declares_is_held_against_the_policy_file_and_a_difference_stops_the_run(
    tmp_path: Path, greeting: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    with serving(Server(greeting=greeting)) as url, pytest.raises(ConventionError, match=words):
        opened(tmp_path, url, **changes)


def test_declarations_that_agree_or_leave_open_are_accepted(tmp_path: Path) -> None:
    agreeing = declared(("gripper", 1, "binary_close_negative"), ("joints", 5, "some_words_of_their_own"))
    reading = {
        "observation_spec": {
            "state": {"dims": 6, "format": "joint_positions"},
            "image": {"dims": 0, "format": "rgb_hwc_uint8"},
        }
    }
    for greeting, changes in (
        (agreeing | reading, {"components": ["joints", "gripper"]}),
        (declared(("everything", 0, "raw")), {}),
        ({}, {}),
    ):
        with serving(Server(greeting=greeting)) as url:
            assert one(opened(tmp_path, url, **changes), 0, 0).shape == (CHUNK, 6)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    )
)
def test_any_declaration_is_read_or_refused_in_one_line(value: Any) -> None:
    try:
        found = components_of(value, "an action_spec", server="a server")
    except ConventionError as error:
        told = str(error)
    else:
        told = " ".join(f"{c.dims}" for c in found)
    assert "\n" not in told


def test_a_gripper_that_closes_at_the_high_end_is_turned_for_an_env_whose_opens_there(tmp_path: Path) -> None:
    dimensions = [replace(d, opens_high=False) if d.is_gripper else d for d in ENV.action_spec.dimensions]
    spec = VectorSpec(dimensions=tuple(dimensions), rate_hz=ENV.action_spec.rate_hz).to_json()
    with serving(
        Server(
            lambda payload, _: np.repeat(payload["states"][None], CHUNK, axis=0),
            declared(("joints", 5, "raw"), ("gripper", 1, "binary_close_positive")),
        )
    ) as url:
        chunk = one(opened(tmp_path, url, action_spec=spec), 0, 0)
    np.testing.assert_allclose(chunk[0], [*STATE[0, :5], 100.0 - STATE[0, 5]], rtol=1e-6)


# -- the verbs


def test_a_screen_keeps_episodes_apart_and_ends_in_an_honest_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server()
    with serving(server) as url:
        policy = written(tmp_path, url)
        card = read_any_card(policy)
        code = main(
            ["screen", str(policy), "-n", "2", "--json", "--workers", "0", "--out", str(tmp_path / "screens")]
        )
    document = json.loads(capsys.readouterr().out)
    assert code == 1
    assert document["policy"] == card.hash
    assert (document["screens"][0]["successes"], document["screens"][0]["n"]) == (0, 2)
    episodes = [log for log in server.log if "observation" in kinds(log)]
    assert len(episodes) == 2
    assert all(kinds(log).count("episode_start") == 1 for log in episodes)

"""A policy behind openpi's websocket: what is sent, what is believed, and what is refused with one line."""

from __future__ import annotations

import json
import os
import pickle
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from arm_fixtures import SIZE, blind
from policy_servers import Openpi, bytes_array, serving
from simgap.cli import main
from simgap.conventions import Reference, VectorSpec
from simgap.errors import (
    ConventionError,
    DataError,
    MachineError,
    PolicyFault,
    SimgapError,
    TrialFault,
    UsageError,
)
from simgap.policies import Policy
from simgap.policies.base import Asked, AskedPolicy, Prefix, ask
from simgap.policies.bridges.open import KINDS, interface_of, open_policy, read_any_card
from simgap.policies.bridges.openpi import OpenpiPolicy
from simgap.policies.bridges.policy_file import read_policy_file
from simgap.policies.bridges.wire import Dialect, pack, plain, unpack
from simgap.policies.execution import parse_executor
from simgap.rollouts.select import candidates_of
from simgap.trials.run import run_trial
from test_trials import START, FakeRobot

CHUNK = 4
ENV = blind()
HOME = np.array([0.0, -45.0, 45.0, 75.0, 0.0, 60.0], dtype=np.float32)


def written(folder: Path, url: str, **changes: Any) -> Path:
    """Write a policy file for arm-pick."""
    fields: dict[str, Any] = {
        "schema": 1,
        "kind": "openpi",
        "url": url,
        "weights": "pi0 fake, step 0",
        "env": "arm-pick",
        "images": {"front": "observation/image", "wrist": "observation/wrist_image"},
        "state": "observation/state",
        "prompt": "prompt",
        "image_size": SIZE,
        "chunk": CHUNK,
        "reply_timeout_s": 60.0,
    }
    path = folder / "policy.json"
    path.write_text(json.dumps({k: v for k, v in {**fields, **changes}.items() if v is not ...}))
    return path


def opened(folder: Path, url: str, **changes: Any) -> OpenpiPolicy:
    policy = open_policy(written(folder, url, **changes))
    assert isinstance(policy, OpenpiPolicy)
    return policy


def observations(count: int = 1, size: int = SIZE) -> tuple[dict[str, Any], Any, list[Asked]]:
    rng = np.random.default_rng(0)
    images = {c: rng.integers(0, 255, (count, size, size, 3), dtype=np.uint8) for c in ENV.cameras}
    return (
        images,
        HOME[None].repeat(count, axis=0) + np.arange(count, dtype=np.float32)[:, None],
        [Asked(goal="pick the cube", seed=i) for i in range(count)],
    )


def hold(seen: Any) -> Any:
    """Answer with the state, held for the whole chunk."""
    return np.repeat(seen["observation/state"][None], CHUNK, axis=0)


def refused(folder: Path, answer: Any, error: type[SimgapError], *words: str, **changes: Any) -> None:
    """Assert that one answer of a server ends in one line of this class with these words, the server's url among them."""
    with serving(Openpi(lambda _: answer)) as url:
        policy = opened(folder, url, **changes)
        with pytest.raises(error) as caught:
            policy.predict_asked(*observations())
        policy.close()
    message = str(caught.value)
    assert "\n" not in message
    for word in (*words, url):
        assert word in message, message


# -- the wire


@given(
    hnp.arrays(
        hnp.integer_dtypes() | hnp.floating_dtypes(sizes=(32, 64)) | hnp.unsigned_integer_dtypes(),
        hnp.array_shapes(min_dims=0, max_dims=4, max_side=5),
    )
)
def test_arrays_come_back_from_the_wire_as_they_went_in_either_dialect(array: Any) -> None:
    for dialect in Dialect:
        found = unpack(pack({"a": [array, {"b": array}]}, dialect), who="test")["a"]
        for back in (found[0], found[1]["b"]):
            assert back.shape == array.shape
            assert back.dtype == array.dtype.newbyteorder("=")
            np.testing.assert_array_equal(back, array)


@given(st.binary(max_size=200))
def test_any_bytes_at_all_are_either_a_message_or_one_refusal(data: bytes) -> None:
    try:
        found = plain(unpack(data, who="noise"))
    except DataError as error:
        told = str(error)
    else:
        told = json.dumps(found)
    assert "\n" not in told


@given(st.data())
def test_a_described_array_that_its_bytes_do_not_hold_is_refused(data: st.DataObject) -> None:
    dtype = data.draw(
        st.sampled_from(["<f4", "<f8", "|u1", "|O", "|V8", "<c8", "f4,f4", "<U4", "M8[s]", "no dtype", 7])
    )
    shape = data.draw(st.lists(st.integers(-2, 2**40), max_size=9))
    body = data.draw(st.binary(max_size=16))
    try:
        found = unpack(
            msgpack.packb({b"__ndarray__": True, b"data": body, b"dtype": dtype, b"shape": shape}),
            who="noise",
        )
    except DataError:
        return
    assert found.nbytes == len(body)
    assert found.shape == tuple(shape)


def test_a_message_of_brackets_does_not_take_the_stack() -> None:
    with pytest.raises(DataError, match="no msgpack message"):
        unpack(b"\x91" * 100_000 + b"\xc0", who="noise")


# -- what is sent


def test_it_is_a_policy_that_takes_an_instruction_and_goes_on_from_no_prefix(tmp_path: Path) -> None:
    with serving(Openpi(hold)) as url:
        policy: Policy = opened(tmp_path, url)
        assert isinstance(policy, AskedPolicy)
        images, state, asked = observations()
        with pytest.raises(UsageError, match="takes none"):
            ask(
                policy,
                images,
                state,
                [
                    replace(
                        asked[0], prefix=Prefix(actions=np.zeros((CHUNK, 6), np.float32), frozen=0, known=0)
                    )
                ],
            )


def test_every_row_is_one_request_in_order_with_our_frames_state_and_instruction_under_their_keys(
    tmp_path: Path,
) -> None:
    server = Openpi(hold)
    with serving(server) as url:
        policy = opened(tmp_path, url)
        images, state, asked = observations(3)
        chunks = policy.predict_asked(images, state, asked)
    assert chunks.shape == (3, CHUNK, 6)
    assert chunks.dtype == np.float32
    np.testing.assert_allclose(chunks, state[:, None].repeat(CHUNK, axis=1), rtol=1e-6)
    assert len(server.seen) == 3
    for row, seen in enumerate(server.seen):
        assert set(seen) == {"observation/image", "observation/wrist_image", "observation/state", "prompt"}
        np.testing.assert_array_equal(seen["observation/image"], images["front"][row])
        np.testing.assert_array_equal(seen["observation/wrist_image"], images["wrist"][row])
        np.testing.assert_array_equal(seen["observation/state"], state[row])
        assert seen["prompt"] == "pick the cube"
    assert [c.server_s for c in policy.calls.calls] == [0.0125] * 3
    assert policy.calls.quantile_s(0.5) is not None


def test_keys_that_go_inwards_and_channels_first_reach_the_server_so(tmp_path: Path) -> None:
    server = Openpi(lambda seen: np.repeat(seen["state"][None], CHUNK, axis=0))
    with serving(server) as url:
        policy = opened(
            tmp_path,
            url,
            images={"front": ["images", "cam_high"], "wrist": ["images", "cam_left_wrist"]},
            state="state",
            image_layout="CHW",
        )
        images, state, asked = observations()
        policy.predict_asked(images, state, asked)
    assert server.seen[0]["images"]["cam_high"].shape == (3, SIZE, SIZE)
    np.testing.assert_array_equal(
        server.seen[0]["images"]["cam_left_wrist"], images["wrist"][0].transpose(2, 0, 1)
    )


def turned(reference: Reference) -> VectorSpec:
    """Return arm-pick's convention in another order and reference, the gripper absolute."""
    dimensions = [d if d.is_gripper else replace(d, reference=reference) for d in ENV.action_spec.dimensions]
    return VectorSpec(dimensions=tuple(reversed(dimensions)), rate_hz=ENV.action_spec.rate_hz)


@pytest.mark.parametrize("reference", [Reference.DELTA, Reference.CHUNK_DELTA])
def test_differences_in_another_order_are_converted_to_the_env_from_the_observed_state(
    tmp_path: Path, reference: Reference
) -> None:
    sent = np.arange(CHUNK * 6, dtype=np.float64).reshape(CHUNK, 6)
    with serving(Openpi(lambda _: sent)) as url:
        policy = opened(tmp_path, url, action_spec=turned(reference).to_json())
        images, state, asked = observations()
        chunk = policy.predict_asked(images, state, asked)[0]
    ours = sent[:, ::-1]
    moved = state[0] + (np.cumsum(ours, axis=0) if reference is Reference.DELTA else ours)
    moved[:, 5] = ours[:, 5]  # the gripper is absolute on both sides
    np.testing.assert_allclose(chunk, moved, rtol=1e-6)


def test_differences_from_the_chunks_start_without_an_env_to_convert_them_to_are_refused(
    tmp_path: Path,
) -> None:
    with serving(Openpi(hold)) as url, pytest.raises(ConventionError, match="name the env"):
        opened(
            tmp_path,
            url,
            env=...,
            action_spec=turned(Reference.CHUNK_DELTA).to_json(),
            state_spec=ENV.state_spec.to_json(),
        )


# -- what is refused


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (np.zeros((CHUNK, 7)), ConventionError, ("(4, 7)", "(4, 6)", "shoulder_pan", "action_spec")),
        (np.zeros((CHUNK + 1, 6)), ConventionError, ("(5, 6)", "(4, 6)", "chunk")),
        (np.zeros(6), ConventionError, ("(6,)", "(4, 6)")),
        (
            np.where(np.arange(24).reshape(CHUNK, 6) == 8, np.nan, 0.0),
            PolicyFault,
            ("nan", "elbow_flex", "step 1"),
        ),
        (np.full((CHUNK, 6), np.inf), DataError, ("inf",)),
        (np.full((CHUNK, 6), 1e300), PolicyFault, ("shoulder_pan", "step 0", "1e+300")),
        (np.zeros((CHUNK, 6), dtype=bool), DataError, ("dtype bool",)),
        ({"actions": "left a bit"}, DataError, ("dtype <U", "numbers")),
        ({"actions": [[1.0], [1.0, 2.0]]}, DataError, ("no array",)),
        ({"action": bytes_array(np.zeros((CHUNK, 6)))}, DataError, ("'actions'", "['action']")),
        (msgpack.packb([1, 2]), DataError, ("a list",)),
        (
            "Traceback (most recent call last):\n  File x\nValueError: no key 'observation/image'",
            TrialFault,
            ("ValueError: no key 'observation/image'",),
        ),
        ("", TrialFault, ("an empty error message",)),
        (b"\xc1\xc1\xc1", DataError, ("no msgpack message",)),
        (b"", DataError, ("no msgpack message",)),
        (
            {"actions": {b"__ndarray__": True, b"data": pickle.dumps([1]), b"dtype": "|O", b"shape": [1]}},
            DataError,
            ("pickles", "'|O'"),
        ),
        (
            {
                "actions": {
                    b"__ndarray__": True,
                    b"data": b"1234",
                    b"dtype": "<f4",
                    b"shape": [1 << 20, 1 << 10],
                }
            },
            DataError,
            ("4 bytes",),
        ),
        (lambda s: s.send(msgpack.packb(msgpack.ExtType(5, b"x"))), DataError, ("extension of type 5",)),
        (lambda s: s.close(1011, "broken"), TrialFault, ("lost", "1011")),
    ],
)
def test_a_bad_reply_is_one_line_that_names_the_server_the_fault_and_what_was_expected(
    tmp_path: Path, answer: Any, error: type[SimgapError], words: tuple[str, ...]
) -> None:
    refused(tmp_path, answer, error, *words)


def test_a_huge_reply_is_not_read(tmp_path: Path) -> None:
    refused(
        tmp_path,
        np.zeros((100, 1000)),
        DataError,
        "more than 4096 bytes",
        "largest_reply_bytes",
        largest_reply_bytes=4096,
    )


def test_a_late_reply_never_answers_the_next_question(tmp_path: Path) -> None:
    answers: list[Any] = [lambda _: None, np.zeros((CHUNK, 6))]
    with serving(Openpi(lambda _: answers.pop(0))) as url:
        policy = opened(tmp_path, url, reply_timeout_s=0.2)
        with pytest.raises(TrialFault, match=r"no reply within 0\.2 s"):
            policy.predict_asked(*observations())
        with pytest.raises(TrialFault, match="allow reconnects"):
            policy.predict_asked(*observations())


def test_a_server_that_takes_nothing_does_not_hold_the_client_for_ever(tmp_path: Path) -> None:
    done = threading.Event()

    def deaf(socket: Any) -> None:
        socket.send(msgpack.packb({}))
        socket.protocol_mutex.acquire()  # what arrives stays in the kernel
        done.wait(60)
        socket.protocol_mutex.release()

    with serving(deaf) as url:
        policy = opened(tmp_path, url, reply_timeout_s=0.3, image_size=2048)
        try:
            with pytest.raises(TrialFault, match="took nothing for"):
                policy.predict_asked(*observations(size=2048))
        finally:
            done.set()


def test_metadata_of_any_depth_is_hashed_or_refused(tmp_path: Path) -> None:
    deep: Any = {}
    for _ in range(400):
        deep = {"more": deep}
    with serving(Openpi(hold, metadata=deep)) as url, pytest.raises(DataError, match="nested more than"):
        read_any_card(written(tmp_path, url))


def test_a_field_that_is_said_twice_is_refused_for_only_one_would_be_read(tmp_path: Path) -> None:
    path = written(tmp_path, "ws://127.0.0.1:9")
    path.write_text(path.read_text().replace('"chunk": 4', '"chunk": 4, "chunk": 8'))
    with pytest.raises(DataError, match="says 'chunk' twice"):
        open_policy(path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rate_hz": float("nan")}, "NaN or infinity"),
        ({"rate_hz": 0}, "rate of 0.0 Hz"),
        ({"rate_hz": 10**400}, "does not fit 64 bits"),
        ({"dimensions": []}, "at least one"),
        ({"dimensions": [{"name": "a", "unit": "deg", "low": float("-inf"), "high": 1}]}, "NaN or infinity"),
        ({"dimensions": [{"name": "a", "unit": "deg", "low": 1, "high": -1}]}, "the lower first"),
        ({"dimensions": [{"name": "a", "unit": "deg", "low": -1, "high": 1}] * 2}, "each name once"),
        (
            {"dimensions": [{"name": "a", "unit": "deg", "low": -1, "high": 1, "is_gripper": "false"}]},
            "expected true or false",
        ),
        ({"dimensions": [{"name": None, "unit": "deg", "low": -1, "high": 1}]}, "expected text"),
    ],
)
def test_a_convention_of_numbers_that_mean_nothing_is_refused(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    spec = ENV.action_spec.to_json() | changes
    with pytest.raises((ConventionError, DataError), match=words):
        open_policy(written(tmp_path, "ws://127.0.0.1:9", action_spec=spec))


def test_a_policy_file_that_never_ends_or_is_no_file_is_one_line(tmp_path: Path) -> None:
    endless, pipe = tmp_path / "endless.json", tmp_path / "pipe.json"
    endless.symlink_to("/dev/zero")
    os.mkfifo(pipe)
    for path in (endless, pipe):
        with pytest.raises(DataError, match="expected a regular file"):
            open_policy(path)


def test_nobody_there_is_said_with_the_command_that_starts_a_server(tmp_path: Path) -> None:
    with serving(Openpi(hold)) as url:
        pass
    with pytest.raises(MachineError, match=r"no openpi server answers .*serve_policy\.py") as caught:
        opened(tmp_path, url, connect_timeout_s=1.0)
    assert "\n" not in str(caught.value)


def test_a_server_that_begins_with_something_else_is_not_taken_for_one(tmp_path: Path) -> None:
    with (
        serving(Openpi(hold, metadata=[1, 2])) as url,
        pytest.raises(DataError, match="not with a map of metadata"),
    ):
        opened(tmp_path, url)


def test_a_key_comes_from_the_environment_goes_to_the_server_and_is_kept_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, headers = Openpi(hold), []

    def recording(socket: Any) -> None:
        headers.append(socket.request.headers.get("Authorization"))
        server(socket)

    with serving(recording) as url:
        with pytest.raises(UsageError, match="OPENPI_KEY, which is not set"):
            opened(tmp_path, url, api_key_variable="OPENPI_KEY")
        monkeypatch.setenv("OPENPI_KEY", "sesame")
        policy = opened(tmp_path, url, api_key_variable="OPENPI_KEY")
        opened(tmp_path, url)
    assert headers == ["Api-Key sesame", None]
    assert "sesame" not in json.dumps(policy.stamp_fields())


@pytest.mark.parametrize("same", [True, False])
def test_a_lost_connection_is_made_anew_only_where_allowed_and_only_to_the_same_policy(
    tmp_path: Path, same: bool
) -> None:
    closing = [True]

    def answer(seen: Any) -> Any:
        chunk = {"actions": bytes_array(hold(seen))}
        if not closing:
            return chunk
        closing.clear()

        def send_and_close(socket: Any) -> None:
            socket.send(msgpack.packb(chunk))
            socket.close()

        return send_and_close

    server = Openpi(answer)
    with serving(server) as url:
        policy = opened(tmp_path, url, reconnects=1)
        policy.predict_asked(*observations())
        policy._channel._socket.recv_events_thread.join(60)  # the close has arrived
        server.metadata = {"model": "fake" if same else "another"}
        if same:
            policy.predict_asked(*observations())
        else:
            with pytest.raises(TrialFault, match="another policy"):
                policy.predict_asked(*observations())
    assert server.connections == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"weights": ...}, "'weights' is missing"),
        ({"state": ...}, "'state' is missing"),
        ({"prmpt": "x"}, "did you mean 'prompt'"),
        ({"images": {}}, "at least one entry"),
        ({"images": {"frnt": "a"}}, "did you mean 'front'"),
        ({"images": {"front": "a", "wrist": "a"}}, "two of ours"),
        ({"images": {"front": ["a"], "wrist": ["a", "b"]}}, "two of ours"),
        ({"images": {"front": 3}}, "the key 3"),
        ({"chunk": 0}, "whole number from 1"),
        ({"chunk": True}, "whole number from 1"),
        ({"url": "http://localhost"}, "ws://localhost:8000"),
        ({"url": "ws://me:secret@localhost"}, "user name and password"),
        ({"url": "ws://localhost:99999"}, "cannot be read .*ws://localhost:8000"),
        ({"url": "ws://localhost:port"}, "cannot be read"),
        ({"url": "ws://[::1"}, "cannot be read"),
        ({"url": f"ws://{'a' * 64}:80"}, "cannot be read"),
        ({"image_layout": "WHC"}, "expected HWC"),
        ({"reply_timeout_s": float("inf")}, "NaN or infinity"),
        ({"reply_timeout_s": 10**400}, "does not fit 64 bits"),
        ({"reply_timeout_s": float("nan")}, "NaN or infinity"),
        ({"kind": "openpie"}, "did you mean 'openpi'"),
        ({"env": ..., "state_spec": {}}, "'action_spec' is missing"),
        ({"schema": 2}, "schema 2"),
        ({"schema": "9" * 5000}, "^.{,400}$"),
        ({"kind": "x" * 5000}, "^.{,400}$"),
        ({"x" * 5000: 1}, "^.{,800}$"),
        ({"url": "x" * 5000}, "^.{,400}$"),
    ],
)
def test_a_policy_file_that_leaves_something_open_is_refused_before_anybody_is_called(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises((UsageError, DataError), match=words):
        open_policy(
            written(tmp_path, "ws://127.0.0.1:9" if "url" not in changes else changes.pop("url"), **changes)
        )


def test_observations_of_another_shape_never_leave(tmp_path: Path) -> None:
    server = Openpi(hold)
    images, state, asked = observations()
    with serving(server) as url:
        policy = opened(tmp_path, url)
        for bad in (
            ({"front": images["front"]}, state),
            ({c: f[:, :-1] for c, f in images.items()}, state),
            (images, state[:, :5]),
        ):
            with pytest.raises(ConventionError):
                policy.predict_asked(*bad, asked)
        with pytest.raises(UsageError, match="prompt_text"):
            policy.predict(images, state)
    assert not server.seen


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (np.full((CHUNK, 6), np.nan), "not_finite"),  # the policy's own fault: a void would flatter it
        ("ValueError: out of memory", "out of memory"),  # nobody's action: the trial proves nothing
    ],
)
def test_on_a_robot_a_number_that_is_not_finite_is_a_failure_and_a_lost_server_a_void(
    tmp_path: Path, answer: Any, outcome: str
) -> None:
    answers = [None, answer]
    with serving(Openpi(lambda seen: hold(seen) if (found := answers.pop(0)) is None else found)) as url:
        policy = opened(tmp_path, url)
        found, episode = run_trial(
            FakeRobot(), policy, parse_executor("whole_chunk"), START, task="pick the cube", max_steps=50
        )
    assert found.is_void is (outcome != "not_finite")
    assert outcome in found.detail
    assert episode is not None
    assert len(episode) == CHUNK


# -- identity


def test_other_weights_another_map_or_other_metadata_are_another_policy(tmp_path: Path) -> None:
    variants: list[dict[str, Any]] = [
        {},
        {"weights": "pi0 fake, step 1"},
        {"images": {"front": "observation/wrist_image", "wrist": "observation/image"}},
        {"executor": "receding(2)"},
        {"metadata": {"model": "other"}},
    ]
    server = Openpi(hold)
    hashes = []
    with serving(server) as url:
        for variant in variants:
            server.metadata = variant.pop("metadata", {"model": "fake"})
            hashes.append(read_any_card(written(tmp_path, url, **variant)).hash)
        server.metadata = {"model": "fake"}
        again = read_any_card(written(tmp_path, url)).hash
    assert len(set(hashes)) == len(variants)
    assert again == hashes[0]


def test_the_stamp_holds_url_metadata_and_map(tmp_path: Path) -> None:
    with serving(Openpi(hold)) as url:
        stamp = opened(tmp_path, url).stamp_fields()
    assert stamp["url"] == url
    assert stamp["noise"] == "drawn by the server"
    assert stamp["weights"] == "pi0 fake, step 0"
    assert {len(stamp[k]) for k in ("server", "map")} == {64}


@pytest.mark.slow
def test_a_screen_of_a_served_policy_ends_in_an_honest_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Openpi(hold)
    with serving(server) as url:
        policy = written(tmp_path, url, prompt_text="pick the cube", chunk=CHUNK)
        code = main(
            ["screen", str(policy), "-n", "2", "--json", "--workers", "1", "--out", str(tmp_path / "screens")]
        )
    document = json.loads(capsys.readouterr().out)
    assert code == 1
    (screen,) = document["screens"]
    assert (screen["successes"], screen["n"], screen["evidence"]) == (0, 2, "sim")
    assert screen["verdict"] == "undecided"  # two failures show nothing
    assert screen["executor"] == "whole_chunk"
    assert document["env"] == "arm-pick"
    assert len(server.seen) > 10


def test_policy_files_race_like_checkpoints_and_one_policy_is_not_raced_against_itself(
    tmp_path: Path,
) -> None:
    with serving(Openpi(hold)) as url:
        paths = []
        for step in ("1000", "2000"):
            (tmp_path / step).mkdir()
            paths.append(written(tmp_path / step, url, weights=f"pi0 fake, step {step}"))
        found = candidates_of(paths)
        assert [c.name for c in found] == ["1000/policy.json", "2000/policy.json"]
        assert {c.executor for c in found} == {"whole_chunk"}
        with pytest.raises(UsageError, match="the same policy"):
            candidates_of([paths[0], written(tmp_path, url, weights="pi0 fake, step 1000")])


def test_the_examples_of_the_design_note_are_policy_files(tmp_path: Path) -> None:
    note = (Path(__file__).parents[1] / "docs" / "design" / "31-remote-policies.md").read_text()
    blocks = re.findall(r"```json\n(.*?)```", note, flags=re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        (tmp_path / "policy.json").write_text(block)
        interface = interface_of(read_policy_file(tmp_path / "policy.json", KINDS))
        assert interface.action_spec == ENV.action_spec

"""``--ray`` at an address where no cluster is: one line, at once, before Ray itself would try for minutes."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from simgap.cli import main
from simgap.compute.ray import RayRunner, require_answer
from simgap.errors import MachineError, UsageError

pytest.importorskip("ray")


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def answering(server: socket.socket, data: bytes) -> str:
    def serve() -> None:
        connection, _ = server.accept()
        connection.recv(100)
        connection.sendall(data)
        time.sleep(3.0)

    threading.Thread(target=serve, daemon=True).start()
    return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_a_dead_address_is_one_line_at_once(scheme: str) -> None:
    began = time.monotonic()
    with pytest.raises(MachineError, match=r"no Ray cluster answers at .*refused.*ray start --head"):
        RayRunner(f"{scheme}127.0.0.1:1")
    assert time.monotonic() - began < 2.0


def test_a_verb_says_it_with_exit_code_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            [
                "generate",
                "arm-pick",
                "-n",
                "1",
                "--size",
                "48",
                "--out",
                str(tmp_path / "d"),
                "--ray",
                "127.0.0.1:1",
                "--quiet",
            ]
        )
        == 3
    )
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\x00"])
def test_something_else_that_listens_is_no_cluster(
    listener: socket.socket, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simgap.compute.ray._ANSWER_S", 0.3)
    with pytest.raises(MachineError, match="no Ray cluster answers"):
        require_answer(answering(listener, said))


def test_what_begins_as_grpc_does_is_left_to_ray(listener: socket.socket) -> None:
    require_answer(answering(listener, b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00\x40\x00"))


def test_auto_means_the_cluster_that_was_started_last_here_which_may_be_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    require_answer("auto")
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray/ray_current_cluster").write_text("127.0.0.1:1\n")
    with pytest.raises(MachineError, match="this machine's last cluster"):
        require_answer("auto")


@pytest.mark.parametrize(
    "address",
    ["x", "127.0.0.1", "127.0.0.1:99999", "ray://", "ray://[::1", "host:port", "http://localhost:80"],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises((UsageError, MachineError)) as caught:
        require_answer(address)
    assert "\n" not in str(caught.value)


def test_what_ray_writes_past_python_is_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    from simgap.compute.ray import _native_silence

    with _native_silence():
        os.write(2, b"gcs_client.cc:210: no answer\n")
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "after\n"

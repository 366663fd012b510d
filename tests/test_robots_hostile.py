"""A robot process that says anything at all, or nothing: every fault is one line of ours in bounded time, and nothing of it lives on."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arm_fixtures import HOME, SIZE
from lerobot_fixtures import program
from simgap.compute.child import Child, Ending, ask_program
from simgap.conventions import SO101_JOINTS
from simgap.errors import MachineError, SealError, SimgapError, TrialFault, UsageError
from simgap.robots import readings
from simgap.robots.base import InitialCondition
from simgap.robots.readings import Contract
from simgap.robots.surrogate import SurrogateRobot

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

PYTHON = sys.executable
TIMEOUT_S = 0.5
_ROBOT = """
import json, os, signal, struct, subprocess, sys, time

SIZE, SEAL = SIZE_PX, "ab" * 32
facts = json.loads(FACTS)

def message(header, body=b"", arrays=()):
    text = header if isinstance(header, bytes) else json.dumps({**header, "arrays": list(arrays)}).encode()
    return struct.pack("<II", len(text), len(body)) + text + body

def say(data):
    os.write(1, data)

def read(count):
    data = b""
    while len(data) < count:
        part = os.read(0, count - len(data))
        if not part:
            sys.exit(0)
        data += part
    return data

def asked():
    text, body = struct.unpack("<II", read(8))
    header = json.loads(read(text))
    read(body)
    return header

FRAME = b"\\x07" * (SIZE * SIZE * 3)
LISTED = [["front", "uint8", [SIZE, SIZE, 3]], ["wrist", "uint8", [SIZE, SIZE, 3]], ["state", "float32", [6]]]
GOOD = {"time_s": 0.5, "frame_age_s": {"front": 0.02, "wrist": 0.02}}
STATE = struct.pack("<6f", *range(6))

def seen(number, header=GOOD, listed=LISTED, body=FRAME + FRAME + STATE):
    return message({**header, "id": number}, body, listed)

def honest(request):
    number = request["id"]
    match request["verb"]:
        case "reset":
            return message({"placements": request["placements"], "id": number})
        case "observe":
            return seen(number)
        case "act":
            return message({"applied": [0.0] * 6, "clipped": False, "time_s": 0.55, "id": number})
        case "verdict":
            return message({"outcome": None, "id": number})

def hang():
    time.sleep(600)

if not facts["greets"]:
    number = 0
    exec(facts["does"])
    hang()
say(message({"seal": facts["seal"]}))
while True:
    request = asked()
    number = request["id"]
    if request["verb"] == facts["at"]:
        exec(facts["does"])
    else:
        say(honest(request))
"""


def fake(folder: Path, does: str, *, at: str = "observe", greets: bool = True, seal: str = "ab" * 32) -> str:
    """Return a Python that is a robot process which does this when it is asked that."""
    facts = json.dumps({"does": does, "at": at, "greets": greets, "seal": seal})
    (folder / "robot.py").write_text(_ROBOT.replace("SIZE_PX", str(SIZE)).replace("FACTS", repr(facts)))
    return str(program(folder / "python", f"exec {PYTHON} -S {folder / 'robot.py'}"))


@pytest.fixture
def robot_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    opened: list[SurrogateRobot] = []
    started: list[int] = []
    begin = Child.__init__

    def noted(child: Child, *args: Any, **kwargs: Any) -> None:
        begin(child, *args, **kwargs)
        started.append(child.pid)

    monkeypatch.setattr(Child, "__init__", noted)

    def made(does: str, **facts: Any) -> SurrogateRobot:
        monkeypatch.setattr(sys, "executable", fake(tmp_path, does, **facts))
        robot = SurrogateRobot(
            env="arm-pick", image_size=SIZE, seed=1, start_timeout_s=5.0, reply_timeout_s=TIMEOUT_S
        )
        opened.append(robot)
        return robot

    yield made
    monkeypatch.undo()
    for robot in opened:
        robot._child.close()
    assert started
    assert not [pid for pid in started if Path(f"/proc/{pid}").exists()], (
        "a robot process lives on, or was not reaped"
    )
    assert not _of_groups(started), "what a robot process started lives on"


def _of_groups(groups: list[int]) -> list[str]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) in groups and fields[0] not in "ZX":
            found.append(stat.parent.name)
    return found


def one_line_of(error: BaseException) -> str:
    text = str(error)
    assert "\n" not in text
    assert len(text) < 700, text
    assert type(error).__module__ == "simgap.errors"
    return text


GARBLED = {
    "garbage": "say(os.urandom(4096))",
    "a text of the wrong protocol": "say(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok')",
    "the largest lengths": "say(b'\\xff' * 8)",
    "a gigabyte of arrays declared": "say(struct.pack('<II', 2, 1 << 30))",
    "a header of 60 MB declared": "say(struct.pack('<II', 60 << 20, 0) + b' ' * 1000)",
    "half a prefix, then silence": "say(b'\\x10\\0\\0'); hang()",
    "half a message, then silence": "say(seen(number)[:-100]); hang()",
    "one byte a while": "[(say(bytes([b])), time.sleep(0.1)) for b in seen(number)]",
    "nothing": "hang()",
    "end in the middle": "say(seen(number)[:-100]); os._exit(0)",
    "end without a word": "os._exit(0)",
    "not UTF-8": "say(message(b'\\xff\\xfe{}'))",
    "not JSON": "say(message(b'hello'))",
    "an empty header": "say(message(b''))",
    "JSON that is no map": "say(message(b'[1, 2]'))",
    "deep JSON": "say(message(b'[' * 200000))",
    "a deep entry": "say(message(b'{\"arrays\": [], \"id\": ' + b'[' * 50000 + b']' * 50000 + b'}'))",
    "a number of 5,000 digits": "say(message(b'{\"arrays\": [], \"id\": ' + b'9' * 5000 + b'}'))",
    "NaN as JSON": 'say(message((\'{"arrays": [], "time_s": NaN, "id": %d}\' % number).encode()))',
    "no list of arrays": "say(message(b'{}'))",
    "an array of objects": "say(seen(number, listed=[['front', 'object', [1]]], body=b'x' * 8))",
    "a shape that is no number": "say(seen(number, listed=[['front', 'uint8', [1.5]]], body=b'x'))",
    "a negative shape": "say(seen(number, listed=[['front', 'uint8', [-1, -1]]], body=b'x'))",
    "a shape beyond all bytes": (
        "say(seen(number, listed=[['front', 'uint8', [1 << 40, 1 << 40, 0]]], body=b''))"
    ),
    "a shape of 400 digits": "say(seen(number, listed=[['front', 'uint8', [10 ** 400]]], body=b'x'))",
    "an array twice": "say(seen(number, listed=LISTED[:1] * 2, body=FRAME * 2))",
    "bytes that no array claims": "say(seen(number, body=FRAME * 3 + STATE))",
    "a thousand arrays": (
        "say(seen(number, listed=[['a%d' % i, 'uint8', [0]] for i in range(1000)], body=b''))"
    ),
    "the answer to the question before": "say(seen(number - 1))",
    "the answer to another question": "say(seen(number + 1))",
    "an id that is a text": "say(seen(str(number)))",
    "no id": "say(message(GOOD, FRAME + FRAME + STATE, LISTED))",
    "an answer twice": "say(seen(number) * 2)",
    "output without end": "[say(b'\\0' * 65536) for _ in iter(int, 1)]",
    "its output closed": "os.close(1); hang()",
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "crashed": "os.kill(os.getpid(), signal.SIGSEGV)",
    "stopped": "os.kill(os.getpid(), signal.SIGSTOP); hang()",
    "an error with a reason": "os.write(2, b'Traceback ...\\nValueError: no such servo\\n'); os._exit(3)",
    "a child of its own that holds the pipe": "subprocess.Popen(['sleep', '600']); os._exit(4)",
}
"""What is said when an observation was asked for; the process means nothing after any of it."""


QUICK = {
    "garbage",
    "the largest lengths",
    "half a message, then silence",
    "deep JSON",
    "no id",
    "an answer twice",
    "output without end",
    "crashed",
}


@pytest.mark.parametrize(
    "does", [pytest.param(d, id=n, marks=() if n in QUICK else pytest.mark.slow) for n, d in GARBLED.items()]
)
def test_whatever_a_robot_process_says_ends_in_one_line_of_ours_in_time(does: str, robot_that: Any) -> None:
    robot = robot_that(does)
    robot.reset(InitialCondition(seed=0))
    began = time.monotonic()
    with pytest.raises(SimgapError) as caught:
        _ = robot.observe(), robot.observe()  # two answers to one question show at the next
    one_line_of(caught.value)
    assert time.monotonic() - began < TIMEOUT_S + 6.0
    with pytest.raises(MachineError, match="has ended"):
        robot.observe()
    with pytest.raises(MachineError, match="has ended"):
        robot.reset(InitialCondition(seed=0))  # it never moved: to start it again would be for ever


READINGS = {
    "no frame": ("listed=LISTED[1:], body=FRAME + STATE", "front"),
    "no state": ("listed=LISTED[:2], body=FRAME + FRAME", "state"),
    "a camera that is not there": (
        "listed=[*LISTED, ['top', 'uint8', [1]]], body=FRAME + FRAME + STATE + b'x'",
        "'top'",
    ),
    "a small frame": (
        "listed=[['front', 'uint8', [2, 2, 3]], *LISTED[1:]], body=b'x' * 12 + FRAME + STATE",
        "[2, 2, 3]",
    ),
    "a flat frame": ("listed=[['front', 'uint8', [SIZE * SIZE * 3]], *LISTED[1:]]", "expected uint8"),
    "a state of five": (
        "listed=[*LISTED[:2], ['state', 'float32', [5]]], body=FRAME + FRAME + STATE[:20]",
        "[5]",
    ),
    "a state in doubles": ("listed=[*LISTED[:2], ['state', 'float64', [3]]]", "float64"),
    "a state of NaN": (
        "body=FRAME + FRAME + struct.pack('<6f', 0, float('nan'), 0, 0, 0, 0)",
        "shoulder_lift.pos",
    ),
    "an infinite state": ("body=FRAME + FRAME + struct.pack('<6f', 0, 0, 0, 0, 0, float('-inf'))", "-inf"),
    "no clock": ("header={'frame_age_s': GOOD['frame_age_s']}", "clock"),
    "a clock that is a text": ("header={**GOOD, 'time_s': 'now'}", "'now'"),
    "a clock of 400 digits": ("header={**GOOD, 'time_s': 10 ** 400}", "finite"),
    "a clock before the start": ("header={**GOOD, 'time_s': -1.0}", "-1 s"),
    "a clock that is true": ("header={**GOOD, 'time_s': True}", "True"),
    "no ages": ("header={'time_s': 0.5}", "frame_age_s"),
    "an age of another camera": ("header={**GOOD, 'frame_age_s': {'front': 0.02}}", "wrist"),
    "a negative age": ("header={**GOOD, 'frame_age_s': {'front': -0.5, 'wrist': 0.0}}", "-0.5 s old"),
    "a frozen camera": ("header={**GOOD, 'frame_age_s': {'front': 0.5, 'wrist': 0.0}}", "froze"),
    "an age that is a list": ("header={**GOOD, 'frame_age_s': {'front': [0.1], 'wrist': 0.0}}", "[0.1]"),
    "an error": (
        "header={'error': 'the servo bus\\n does not answer', 'kind': 'OSError'}",
        "servo bus does not answer",
    ),
}
"""Well-formed messages with an observation that no robot makes: the trial is void and the process goes on."""


CONTRACT = Contract(
    cameras=("front", "wrist"), image_size=SIZE, state=tuple(SO101_JOINTS), action=tuple(SO101_JOINTS)
)


def test_a_reading_that_no_robot_makes_is_a_fault_of_the_trial_and_the_next_goes_on(robot_that: Any) -> None:
    said = ", ".join(f"lambda: seen(number, {changed})" for changed, _ in READINGS.values())
    robot = robot_that(f"say([{said}][number // 2 - 1]())")
    for name, (_, word) in READINGS.items():
        robot.reset(InitialCondition(seed=0))
        with pytest.raises(TrialFault) as caught:
            robot.observe()
        assert word in one_line_of(caught.value), name


ANSWERS = [
    ("act", {"clipped": False, "time_s": 1.0}, "applied"),
    ("act", {"applied": [0.0] * 5, "clipped": False, "time_s": 1.0}, "6 numbers"),
    ("act", {"applied": ["x"] * 6, "clipped": False, "time_s": 1.0}, "'x'"),
    ("act", {"applied": [10**400] * 6, "clipped": False, "time_s": 1.0}, "finite"),
    ("act", {"applied": [1e300] * 6, "clipped": False, "time_s": 1.0}, "float32"),
    ("act", {"applied": [0.0] * 6, "clipped": "no", "time_s": 1.0}, "'no'"),
    ("reset", {}, "placements"),
    ("reset", {"placements": [1]}, "[1]"),
    ("reset", {"placements": {"target_x_m": None}}, "target_x_m"),
    ("reset", {"placements": {}}, "asked to place target_x_m"),
    ("verdict", {}, "nothing"),
    ("verdict", {"outcome": "success"}, "'success'"),
    ("verdict", {"outcome": ["perfect", ""]}, "'perfect'"),
    ("verdict", {"outcome": ["success", "by far"]}, "neither"),
    ("verdict", {"outcome": ["failure", "x" * 10000]}, "expected null"),
    ("verdict", {"outcome": [["failure"], "x"]}, "expected null"),
]


@pytest.mark.parametrize(("at", "said", "word"), ANSWERS)
def test_an_answer_that_no_robot_gives_is_a_fault_that_says_what_was_said(
    at: str, said: dict[str, Any], word: str
) -> None:
    asked = InitialCondition(seed=0, placements={"target_x_m": 0.2})
    read = {
        "act": CONTRACT.applied,
        "reset": lambda h: readings.condition(h, asked),
        "verdict": readings.verdict,
    }[at]
    with pytest.raises(TrialFault) as caught:
        read(said)
    assert word in one_line_of(caught.value)


def test_a_seal_that_shows_nonsense_does_not_open(robot_that: Any) -> None:
    nonsense = [
        {},
        {"gap": 3, "nonce": ""},
        {"gap": {}},
        {"gap": {"kind": "none", "factors": [1], "joint": "", "multiplier": 1, "placements": {}}},
    ]
    robot = robot_that(f"say(message({{**{nonsense}[number - 1], 'id': number}}))", at="open")
    for _ in nonsense:
        with pytest.raises(SealError) as caught:
            robot.open_seal("ab" * 32)
        one_line_of(caught.value)


def test_a_clock_that_goes_back_within_a_trial_is_a_fault(robot_that: Any) -> None:
    robot = robot_that("say(seen(number, header={**GOOD, 'time_s': 1.0 / number}))")
    robot.reset(InitialCondition(seed=0))
    robot.observe()
    with pytest.raises(TrialFault, match="went back from"):
        robot.observe()
    robot.reset(InitialCondition(seed=0))
    robot.observe()


GREETINGS = {
    "no seal": ("say(message({}))", MachineError, "seal"),
    "a seal that is a number": ("say(message({'seal': 7}))", MachineError, "7"),
    "garbage": ("say(b'x' * 100)", MachineError, "did not start"),
    "nothing": ("os.close(1)", MachineError, "closed its pipe"),
    "an import that fails": (
        "os.write(2, b'ModuleNotFoundError: No module named simgap\\n'); os._exit(1)",
        MachineError,
        "No module named simgap",
    ),
    "a refusal": ("say(message({'error': 'unknown env', 'kind': 'UsageError'}))", UsageError, "unknown env"),
    "a defect": ("say(message({'error': 'KeyError: x', 'kind': 'KeyError'}))", MachineError, "KeyError: x"),
}


@pytest.mark.parametrize(
    ("does", "error", "word"),
    [
        pytest.param(*g, id=n, marks=() if n in ("a refusal", "garbage") else pytest.mark.slow)
        for n, g in GREETINGS.items()
    ],
)
def test_a_process_that_does_not_start_says_why_in_one_line(
    does: str, error: type[SimgapError], word: str, robot_that: Any
) -> None:
    with pytest.raises(error) as caught:
        robot_that(does, greets=False)
    assert word in one_line_of(caught.value)


def test_a_death_by_itself_tells_its_reason_and_promises_nothing_and_a_kill_says_that_it_resumes(
    robot_that: Any,
) -> None:
    robot = robot_that(GARBLED["an error with a reason"])
    with pytest.raises(
        MachineError,
        match=r"ended with code 3: ValueError: no such servo; the same command would end the same way",
    ):
        robot.observe()
    robot = robot_that(GARBLED["killed"])
    with pytest.raises(MachineError, match=r"killed by SIGKILL.*run the same command again, it resumes"):
        robot.observe()


def test_after_a_trial_that_broke_the_link_the_next_one_starts_a_new_process_of_the_same_seal(
    robot_that: Any, tmp_path: Path
) -> None:
    robot = robot_that("say(b'\\xff' * 8)", at="verdict")
    for seed in range(3):
        robot.reset(InitialCondition(seed=seed))
        robot.observe()
        robot.act(HOME)
        with pytest.raises(TrialFault):
            robot.verdict()
    fake(tmp_path, "hang()", seal="cd" * 32)
    with pytest.raises(SealError, match="another seal"):
        robot.reset(InitialCondition(seed=4))


@pytest.mark.slow
def test_words_without_end_on_standard_error_fill_neither_pipe_nor_memory(robot_that: Any) -> None:
    robot = robot_that("[os.write(2, b'warning\\n' * 8192) for _ in range(400)]; say(seen(number))")
    robot._reply_s = 60.0
    robot.reset(InitialCondition(seed=0))
    assert robot.observe().time_s == 0.5
    assert len(robot._child._words.text()) <= 8192


@pytest.mark.slow
def test_close_ends_a_process_that_goes_on_and_what_it_started(robot_that: Any) -> None:
    robot = robot_that(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); subprocess.Popen(['sleep', '600']);"
        " say(seen(number)); hang()"
    )
    robot.observe()
    began = time.monotonic()
    robot.close()
    assert 4.0 < time.monotonic() - began < 9.0  # it had its five seconds to leave by itself
    robot.close()


# Any other program


def test_a_program_is_asked_in_bounded_time_and_memory(tmp_path: Path) -> None:
    def asked(line: str, **limits: Any) -> Any:
        return ask_program(["sh", "-c", line], **{"timeout_s": 0.5, **limits})

    assert asked("echo yes; echo no >&2; exit 3") == (3, "yes\n", "no\n")
    assert asked("kill -9 $$").code == -9
    with pytest.raises(TimeoutError):
        asked("sleep 60")
    with pytest.raises(TimeoutError):
        asked("exec 1>&-; sleep 60")
    with pytest.raises(OverflowError):
        asked("yes", timeout_s=20.0)
    with pytest.raises(FileNotFoundError):
        ask_program([str(tmp_path / "nothing")], timeout_s=1.0)
    began = time.monotonic()
    # who is left behind and holds the pipe is not waited for
    assert asked("sleep 60 & echo yes", timeout_s=20.0).out == "yes\n"
    assert time.monotonic() - began < 5.0


def test_an_ending_names_signals_and_control_characters_move_no_cursor() -> None:
    assert str(Ending(code=-64, words="")) == "was killed by SIGRTMAX"
    assert str(Ending(code=0, words="")) == "ended with code 0 and said nothing"
    child = Child(["sh", "-c", r"printf 'one\n\033[2Jtwo\r\n' >&2; exit 1"])
    assert str(child.ending()) == "ended with code 1: ?[2Jtwo"


@pytest.mark.slow
def test_a_robot_process_dies_with_its_driver_even_while_it_hangs(tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(
        "import sys, time\nfrom simgap.robots.surrogate import SurrogateRobot\nrobot ="
        f" SurrogateRobot(env='arm-pick', image_size={SIZE}, seed=1, gap='none')\nimport os,"
        " signal\nos.kill(robot._child.pid, signal.SIGSTOP)\nprint(robot._child.pid,"
        " flush=True)\ntime.sleep(60)\n"
    )
    driver = Child([sys.executable, str(script)], env=os.environ)
    end = time.monotonic() + 60.0
    pid = b""
    while not pid.endswith(b"\n"):
        pid += driver.read(1, end)
    driver.close()  # SIGKILL
    while Path(f"/proc/{int(pid)}/cmdline").exists() and Path(f"/proc/{int(pid)}/cmdline").read_bytes():
        assert time.monotonic() < end, "the stopped robot process outlived its driver"
        time.sleep(0.02)


@pytest.mark.slow
def test_the_real_process_tells_a_bad_condition_and_lives_on() -> None:
    robot = SurrogateRobot(env="arm-pick", image_size=SIZE, seed=1, gap="none")
    with pytest.raises(SimgapError, match="nowhere_m") as caught:
        robot.reset(InitialCondition(seed=0, placements={"nowhere_m": 0.1}))
    one_line_of(caught.value)
    robot.reset(InitialCondition(seed=0))
    assert np.isfinite(robot.observe().state).all()
    robot.close()

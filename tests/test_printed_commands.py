"""Every command that the source or the documents print names a verb there is, with options that the verb has."""

from __future__ import annotations

import argparse
import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simgap.cli import main
from simgap.cli._arguments import VerbParser
from simgap.cli._verbs import known_verbs, load_verb

ROOT = Path(__file__).parents[1]
COMMAND = re.compile(r"\bsimgap ([a-z]+)\b([^`\"\n;]*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
NOT_VERBS = {
    *(
        "is",
        "has",
        "says",
        "writes",
        "reads",
        "takes",
        "itself",
        "gets",
        "turns",
        "runs",
        "wrote",
        "keeps",
        "import",
        "knows",
        "shows",
        "and",
    ),
    *("of", "tries", "needs", "reports", "starts", "version", "never"),
}
"""Words that follow our name where a sentence speaks of it."""


def texts_of(source: str) -> Iterator[str]:
    """Yield every text of a Python file, a formatted one with its values as one word each, neighbours in a list joined."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "VALUE" for part in node.values
            )
        elif isinstance(node, ast.List | ast.Tuple):
            words = [
                e.value if isinstance(e, ast.Constant) and isinstance(e.value, str) else "VALUE"
                for e in node.elts
            ]
            if words[:1] == ["simgap"]:
                yield " ".join(words)


def commands_in(text: str) -> Iterator[tuple[str, set[str]]]:
    """Yield (verb, options) of each command in a text."""
    for verb, rest in COMMAND.findall(text):
        ours = re.split(r"\bsimgap\b|[)\]](?:\s|$)|, (?:or|and|then) |: ", rest)[0]
        yield verb, set(OPTION.findall(ours))


def options_of(verb: str) -> set[str]:
    parser = VerbParser(prog=f"simgap {verb}")
    load_verb(verb).add_arguments(parser)
    found = {"--json", "--out", "--seed", "--quiet", "--debug", "--help"}
    todo: list[argparse.ArgumentParser] = [parser]
    while todo:
        for action in todo.pop()._actions:
            found |= set(action.option_strings)
            if isinstance(action, argparse._SubParsersAction):
                todo += action.choices.values()
    return found


def printed() -> list[tuple[str, str, frozenset[str]]]:
    found = set()
    for file in sorted((ROOT / "src").rglob("*.py")):
        for text in texts_of(file.read_text()):
            found |= {
                (str(file.relative_to(ROOT)), verb, frozenset(options)) for verb, options in commands_in(text)
            }
    for file in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        found |= {
            (str(file.relative_to(ROOT)), verb, frozenset(options))
            for verb, options in commands_in(file.read_text())
        }
    return sorted((f, v, o) for f, v, o in found if v not in NOT_VERBS)


def test_every_printed_command_can_be_given() -> None:
    verbs, wrong = known_verbs(), []
    commands = printed()
    assert len(commands) > 100
    for file, verb, options in commands:
        if verb not in verbs:
            wrong.append(f"{file}: there is no verb {verb!r}")
        elif missing := options - options_of(verb):
            wrong.append(f"{file}: simgap {verb} has no {', '.join(sorted(missing))}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "verb", "options"),
    [
        ("run `simgap train --data X` instead", "train", {"--data"}),
        ("give another --report-seed (simgap select: --report-seed)", "select", set()),
        ("simgap screen POLICY --executor 'receding(5)'; then --purpose", "screen", {"--executor"}),
    ],
)
def test_a_command_is_found_with_its_options_and_no_others(text: str, verb: str, options: set[str]) -> None:
    assert list(commands_in(text)) == [(verb, options)]


@pytest.mark.slow
@pytest.mark.parametrize("env", ["arm-pick", "arm-place", "arm-pass", "car-goal"])
def test_each_next_step_works_in_the_situation_that_prints_it(
    env: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def run(command: str, *small: str) -> dict[str, Any]:
        words = shlex.split(command)
        assert words[0] == "simgap"
        code = main([*words[1:], *small, "--json", "--quiet"])
        said = json.loads(capsys.readouterr().out)
        assert code in (0, 1), said
        return dict(said)

    trained = run(run(f"simgap generate {env} -n 3 --size 32")["next"], "--steps", "12", "--force")
    assert trained["next"].startswith("simgap select ")
    selected = run(trained["next"], "-n", "16", "--report-n", "16")
    from simgap.cli.select import _next

    # as it came out, and as it would with a policy that works
    for document in (selected, selected | {"is_clean": True}):
        following = _next(document)
        if following.startswith("simgap "):
            assert run(following, "-n", "1", "--gap", "none")["n"] == 1

"""What ``--help`` shows: groups of commands, examples that work, no types of Python, completion for shells."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from coldparquet.cli.commands import app
from tests.support.command_line import Run

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
SHOWN = [name for name, command in COMMANDS.items() if not command.hidden]


def test_commands_come_in_groups(run: Run) -> None:
    text = run("--help").stdout
    places = [text.index(f"╭─ {group} ") for group in ("Read", "Look", "Prepare", "Move", "Try")]
    assert places == sorted(places)
    for name in SHOWN:
        assert f"│ {name} " in text[places[0] :]
    assert "pipeline" not in text
    assert run("pipeline", "--help").exit_code == 0


@pytest.mark.parametrize("name", SHOWN)
def test_each_command_has_examples_that_parse(run: Run, name: str) -> None:
    shown = run(name, "--help").stdout
    assert not any(noise in shown for noise in ("<bool>", "<int>", "<str>", "<list", "{"))
    assert "Examples:" in shown
    _, examples = COMMANDS[name].epilog.replace("\\\n", "").split("Examples:\n\n")
    assert examples
    for example in examples.splitlines():
        program, command, *words = shlex.split(example)
        assert (program, command) == ("coldparquet", name)
        COMMANDS[name].make_context(name, words)


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("ver", "verify\n"),
        ("explain --goal f", "fast\nfew-requests\nfew-bytes\n"),
        ("index --engine ", "local\nspark\n"),
        ("count --arch", "--archived\n"),
    ],
)
def test_completion_for_shells(run: Run, typed: str, shown: str) -> None:
    assert "--install-completion" in run("--help").stdout
    words = f"coldparquet {typed}"
    asked = {
        "_COLDPARQUET_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    completed = CliRunner().invoke(app, [], env=asked, prog_name="coldparquet")
    assert (completed.exit_code, completed.stdout) == (0, shown)

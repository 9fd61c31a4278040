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


def test_completion_for_shells(run: Run) -> None:
    assert "--install-completion" in run("--help").stdout
    typed = {"_COLDPARQUET_COMPLETE": "complete_bash", "COMP_WORDS": "coldparquet ver", "COMP_CWORD": "1"}
    completed = CliRunner().invoke(app, [], env=typed, prog_name="coldparquet")
    assert (completed.exit_code, completed.stdout) == (0, "verify\n")

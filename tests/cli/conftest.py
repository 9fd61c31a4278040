"""What the tests of the command line share: a way to run it, and tables that QuestDB wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from coldparquet.cli.commands import app
from tests.support.command_line import Run
from tests.support.questdb_tables import copy_parquet_partitions


@pytest.fixture
def run() -> Run:
    """Run one command in this process; its standard output and standard error are no terminals."""
    runner = CliRunner()

    def run_command(*arguments: str | int | Path) -> Any:
        return runner.invoke(app, [str(argument) for argument in arguments])

    return run_command


@pytest.fixture
def questdb_table(tmp_path: Path) -> Callable[[str], Path]:
    """Copy the Parquet partitions of a golden table to where they may be changed."""

    def copy(name: str) -> Path:
        return copy_parquet_partitions(name, tmp_path)

    return copy

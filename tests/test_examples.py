"""Every example and every block of the README runs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted(ROOT.glob("examples/[0-9]*.py"))
"""But for those of Spark, which tests/spark runs."""
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory that holds the tables ``trades`` and ``quotes``."""
    directory = tmp_path_factory.mktemp("examples")
    shutil.copytree(ROOT / "tests" / "golden" / "questdb" / "o3_in_place" / "table", directory / "quotes")
    run([sys.executable, str(ROOT / "examples" / "make_trades.py")], directory)
    return directory


def run(command: list[str], directory: Path) -> str:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    result = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert result.returncode == 0, f"{shlex.join(command)}\n{result.stdout}\n{result.stderr}"
    assert "Warning" not in result.stderr, result.stderr
    return result.stdout


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(example: Path, directory: Path) -> None:
    assert run([sys.executable, str(example)], directory).strip()


SPARKLESS_BLOCKS = [block for block in blocks("python") if "pyspark" not in block]
"""Those of Spark run in tests/spark, too."""


@pytest.mark.parametrize("block", SPARKLESS_BLOCKS, ids=lambda block: block.split("\n", 1)[0])
def test_python_block_of_the_readme_runs(block: str, directory: Path) -> None:
    assert run([sys.executable, "-c", block], directory).strip()


def test_the_readme_shows_what_explain_says(directory: Path) -> None:
    [line] = [line for line in shell_lines() if line.startswith("coldparquet explain") and "order_id" in line]
    [shown] = blocks("text")
    assert shown in run(shlex.split(line), directory)


def test_the_readme_has_exactly_two_commands_for_a_fresh_machine() -> None:
    fresh = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("python3 ")]
    assert len(fresh) == 2
    assert fresh[0].endswith("/coldparquet demo")
    assert fresh[1].endswith("/python -m tests")


def shell_lines() -> list[str]:
    """Return the commands of the README that no other test runs."""
    lines = [line for block in blocks("sh") for line in block.splitlines() if line and not line.startswith("#")]
    covered = (
        "python3 ",
        "coldparquet bench ",
        ". .venv/",
        "python examples/",
        "python -m pip install ",
        "cp -r tests/golden/",
        ".venv/bin/python -m tests.benchmarks.",
    )
    return [line for line in lines if not line.startswith(covered)]


@pytest.mark.parametrize("line", shell_lines())
def test_command_of_the_readme_runs(line: str, directory: Path) -> None:
    assert run(shlex.split(line, comments=True), directory).strip() or "--output" in line

"""Examples and scripts of services run as their texts say."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import coldparquet as cp
from coldparquet.cli.commands import app
from coldparquet.errors import ArchivedObjectError
from tests.support.live_servers import SCRIPTS, live_cold_store
from tests.support.pages import README, ROOT, blocks

# --- Every example runs, and every block of the README and of the documentation ---------------------------------------


EXAMPLES = sorted(ROOT.glob("examples/[0-9]*.py"))
"""But for those of Spark, which tests/spark runs."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory that holds the tables ``trades``, ``quotes`` and ``days``."""
    directory = tmp_path_factory.mktemp("examples")
    shutil.copytree(ROOT / "tests" / "golden" / "questdb" / "o3_in_place" / "table", directory / "quotes")
    run([sys.executable, str(ROOT / "examples" / "make_trades.py")], directory)
    run([sys.executable, str(ROOT / "examples" / "make_trades.py"), "days", "--plain"], directory)
    return directory


def run(command: list[str], directory: Path) -> str:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    result = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert result.returncode == 0, f"{shlex.join(command)}\n{result.stdout}\n{result.stderr}"
    assert "Warning" not in result.stderr, result.stderr
    return result.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(example: Path, directory: Path) -> None:
    assert run([sys.executable, str(example)], directory).strip()


SPARKLESS_BLOCKS = [block for block in blocks("python") if "pyspark" not in block]
"""Those of Spark run in tests/spark, too."""


@pytest.mark.parametrize("block", SPARKLESS_BLOCKS, ids=lambda block: block.split("\n", 1)[0])
def test_python_block_of_a_page_runs(
    block: str, directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(directory)
    exec(compile(block, "a page", "exec"), {"__name__": "__main__"})  # noqa: S102 - our own
    assert capsys.readouterr().out.strip()


def test_a_page_shows_what_explain_says(directory: Path) -> None:
    [line] = [line for line in shell_lines() if line.startswith("coldparquet explain") and "order_id" in line]
    [shown] = blocks("text", [ROOT / "docs" / "pages" / "concepts" / "reading-less.md"])
    assert shown in run(shlex.split(line), directory)


def test_the_readme_has_exactly_two_commands_for_a_fresh_machine() -> None:
    fresh = [line for block in blocks("sh", [README]) for line in block.splitlines() if line.startswith("python3 ")]
    assert len(fresh) == 2
    assert fresh[0].endswith("/coldparquet demo")
    assert fresh[1].endswith("/python -m tests")


def shell_lines() -> list[str]:
    """Return the commands of all pages that no other test runs, each once."""
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
    return list(dict.fromkeys(line for line in lines if not line.startswith(covered)))


@pytest.mark.parametrize("line", shell_lines())
def test_command_of_a_page_runs(line: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, because starting one takes longer than what it does; that of ``explain`` above is started."""
    monkeypatch.chdir(directory)
    command, *arguments = shlex.split(line, comments=True)
    done = CliRunner().invoke(app, arguments)
    assert (command, done.exit_code) == ("coldparquet", 0), done.output
    assert done.stdout.strip() or "--output" in line


def test_every_file_that_a_page_of_the_repository_links_to_is_there() -> None:
    for page in [README, *(ROOT / room / "README.md" for room in ("examples", "tests", "tests/benchmarks", "src"))]:
        links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)|(?:src|srcset)=\"([^\":]+)\"", page.read_text())
        missing = [link for pair in links for link in pair if link and not (page.parent / link).exists()]
        assert (page, missing) == (page, [])


@pytest.mark.slow
def test_the_documentation_builds_without_a_warning(tmp_path: Path) -> None:
    """Its links and anchors are checked, and what it says of the code is made from the code."""
    build = [
        "-m",
        "mkdocs",
        "build",
        "--quiet",
        "--strict",
        "-f",
        str(ROOT / "docs" / "mkdocs.yml"),
        "-d",
        str(tmp_path),
    ]
    run([sys.executable, *build], ROOT)
    reference, commands = ((tmp_path / "reference" / f"{name}.html").read_text() for name in ("python", "commands"))
    assert "memory_limit_bytes" in reference
    assert "--parquet-size" in commands
    assert not re.search(r":(attr|class|func|meth|mod):<code>", reference)


# --- What the scripts of localstack/ answer without starting anything -------------------------------------------------


STARTED = sorted(script for script in SCRIPTS.glob("*.sh") if script.name != "server.sh")


def answer(script: Path, argument: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([script, argument], capture_output=True, text=True, check=False, timeout=30)


@pytest.mark.parametrize("script", STARTED, ids=lambda script: script.name)
def test_every_script_tells_how_to_call_it(script: Path) -> None:
    helped, refused = answer(script, "-h"), answer(script, "--nonsense")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert f": {script.name}" in helped.stdout.splitlines()[0]
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == f"{script} knows no option '--nonsense'\n{helped.stdout}"


def test_a_script_with_nothing_to_install_starts_no_server() -> None:
    for argument in ("--install", "--is-installed"):
        done = answer(SCRIPTS / "cold_store.sh", argument)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
async def test_the_cold_store_begins_with_the_days_that_were_asked_for(tmp_path: Path) -> None:
    with live_cold_store(tmp_path, seed_days=2, seed_class="GLACIER") as server:
        async with cp.open_table(f"s3://{server.bucket}/trades", storage_options=server.storage_options) as table:
            assert len(table.partitions) == 2
            assert await table.scan().count() > 0, "from the sidecars, which are in no archive"
            with pytest.raises(ArchivedObjectError):
                await table.scan(limit=1).to_arrow()


def test_with_docker_the_same_services_listen_on_loopback_and_tell_when_they_are_healthy() -> None:
    services: dict[str, Any] = yaml.safe_load((SCRIPTS / "compose.yaml").read_text())["services"]
    assert {f"{name}.sh" for name in services} == {script.name for script in STARTED} - {
        "cold_store.sh",  # it is this package
        "delta_jars.sh",
        "spark_jars.sh",
        "versitygw.sh",  # MinIO is the real server of people with Docker
    }
    for name, service in services.items():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"]), name
        assert service["healthcheck"]["test"], name
        image, _, tag = service["image"].rpartition(":")
        assert image, name
        assert tag != "latest", name
    host_ports = [port.split(":")[1] for service in services.values() for port in service["ports"]]
    assert len(set(host_ports)) == len(host_ports)


@pytest.mark.parametrize("name", ["questdb", "toxiproxy"])
def test_with_docker_a_service_is_of_the_version_of_its_script(name: str) -> None:
    service = yaml.safe_load((SCRIPTS / "compose.yaml").read_text())["services"][name]
    assert re.search(
        rf"^version=v?{re.escape(service['image'].rpartition(':')[2])}$",
        (SCRIPTS / f"{name}.sh").read_text(),
        re.MULTILINE,
    )

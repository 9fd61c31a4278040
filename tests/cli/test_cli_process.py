"""The command as a process: signals, pipes, terminals, exit codes, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coldparquet.maintenance.index import index_table
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer

COMMAND = [sys.executable, "-m", "coldparquet"]


def coldparquet(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of 200,000 rows: more than a pipe holds."""
    directory = tmp_path / "bucket" / "trades" / "2024-03-01.1"
    directory.mkdir(parents=True)
    rows = pa.table({"n": range(200_000), "text": ["a text of some length"] * 200_000})
    pq.write_table(rows, directory / "data.parquet", row_group_size=20_000)
    return directory.parent


def test_version_and_help() -> None:
    assert coldparquet("--version").stdout == f"coldparquet {version('coldparquet')}\n"
    text = coldparquet("--help").stdout
    for command in ("inspect", "explain", "scan", "count", "index", "demo"):
        assert f"│ {command}" in text
    assert coldparquet().returncode == 2


def test_a_missing_package_is_named() -> None:
    script = "import sys; sys.modules['typer'] = None; from coldparquet.cli.app import main; main()"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "error: the command line needs the package typer: pip install 'coldparquet[cli]'\n"


def test_the_reader_of_the_output_may_stop(table: Path) -> None:
    with subprocess.Popen([*COMMAND, "scan", str(table)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b'"n","text"\n'
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    "arguments", [("inspect", "{table}"), ("index", "{table}"), ("--help",)], ids=lambda words: words[0]
)
def test_nothing_may_read_the_output(table: Path, arguments: tuple[str, ...]) -> None:
    unread, output = os.pipe()
    os.close(unread)
    command = [*COMMAND, *(word.format(table=table) for word in arguments)]
    result = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(output)
    assert (result.returncode, result.stderr) == (0, b"")


@pytest.fixture
def _children_heed_interrupts() -> Iterator[None]:
    """What a shell starts in the background ignores SIGINT, and so do its children; those of these tests do not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_children_heed_interrupts")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_scan_leaves_no_output(table: Path, tmp_path: Path, number: signal.Signals) -> None:
    output = tmp_path / "out"
    output.mkdir()
    with ColdStoreServer(table.parents[1], ColdStoreOptions(first_byte_s=0.02, bandwidth_bytes_per_s=20_000)) as server:
        store = ["--endpoint-url", server.endpoint_url, "--anon"]
        command = [*COMMAND, "scan", "s3://bucket/trades", *store, "-o", str(output / "rows.parquet")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            while process.poll() is None and not (list(output.iterdir()) and server.requests_under_way):
                time.sleep(0.02)  # until it writes, and waits for data
            assert process.poll() is None
            process.send_signal(number)
            printed, complaints = process.communicate(timeout=60)
    assert process.returncode == 130
    assert (printed, complaints) == ("", "")
    assert list(output.iterdir()) == []


@pytest.mark.usefixtures("_children_heed_interrupts")
def test_an_interrupted_index_says_how_far_it_came_and_continues(table: Path) -> None:
    first = table / "2024-03-01.1"
    for day in range(2, 42):
        copy = table / f"2024-03-{day:02}.1" if day < 32 else table / f"2024-04-{day - 31:02}.1"
        copy.mkdir()
        (copy / "data.parquet").hardlink_to(first / "data.parquet")
    with ColdStoreServer(table.parents[1], ColdStoreOptions(first_byte_s=0.2)) as server:
        index = ["index", "s3://bucket/trades", "--no-pages", "--endpoint-url", server.endpoint_url, "--anon"]
        with subprocess.Popen([*COMMAND, *index], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            while process.poll() is None and not list(table.glob("*/_pm")):
                time.sleep(0.02)
            time.sleep(0.1)  # until it knows of it, and works on the next ones
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            printed, complaints = process.communicate(timeout=60)
    assert (process.returncode, printed) == (130, "")
    told = re.fullmatch(r"interrupted: (\d+) of 41 partitions done; run it again to continue\n", complaints)
    assert told, complaints
    written = len(list(table.glob("*/_pm")))
    assert 0 < int(told[1]) <= written < 41
    again = asyncio.run(index_table(table, pages=False, pack=False))
    assert again.count("written") == 41 - written


def on_terminal(*arguments: str | Path) -> str:
    """Run a command whose standard output is a terminal of 80 characters, and return what it shows."""
    controller, terminal = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "TERM": "dumb"}
    with subprocess.Popen(
        [*COMMAND, *map(str, arguments)], stdout=terminal, stderr=terminal, stdin=terminal, env=environment
    ) as process:
        os.close(terminal)
        pieces = []
        while True:
            try:
                pieces.append(os.read(controller, 65_536))
            except OSError:  # Linux reports the end of a terminal as an error
                break
            if not pieces[-1]:
                break
        process.wait(60)
    os.close(controller)
    return b"".join(pieces).decode().replace("\r\n", "\n")


def test_a_terminal_gets_the_first_rows(table: Path) -> None:
    lines = on_terminal("scan", table).splitlines()
    assert lines[0].split() == ["n", "text"]
    assert len(lines) == 52
    assert lines[50].split()[0] == "49"
    assert lines[51] == "the first 50 of 200,000 rows; --output FILE writes all of them"
    limited = on_terminal("scan", table, "--limit", "7", "--columns", "n").splitlines()
    assert len(limited) == 9
    assert limited[-1] == "7 rows"
    last = on_terminal("scan", table, "--tail", "7", "--columns", "n").splitlines()
    assert [line.strip() for line in last[1:]] == [*map(str, range(199_993, 200_000)), "the last 7 rows"]


def test_a_terminal_gets_the_columns_that_fit(tmp_path: Path) -> None:
    path = tmp_path / "wide.parquet"
    pq.write_table(pa.table({f"column_{number:02}": ["x" * 100] for number in range(12)}), path)
    lines = on_terminal("scan", path).splitlines()
    assert max(map(len, lines[:2])) <= 80
    assert lines[0].split() == ["column_00"]
    assert lines[1].rstrip().endswith("…")
    assert lines[2] == "1 row"
    assert " ".join(lines[3:]).startswith("11 columns without room here: column_01, column_02")


def test_a_wide_sidecar_on_a_terminal(table: Path) -> None:
    assert "1 written" in on_terminal("index", table)
    shown = on_terminal("inspect", table / "2024-03-01.1")
    assert "200,000 in 10 row groups" in shown
    assert max(map(len, shown.splitlines()[2:])) <= 80

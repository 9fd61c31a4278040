"""What a table may do to a terminal: nothing. Every command, on a pseudo terminal, over a table of hostile names."""

from __future__ import annotations

import logging
import os
import pty
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coldparquet.cli.app import main
from coldparquet.progress import error_console

BLINK = "\x1b[5;45;97m"
EVIL = f"\x1b]0;title\x07{BLINK}\x9b5m\x85\x7f\b\r\u202e\u2066\u200f\u061c"
OURS = re.compile(r"\x1b\[(?:[0-9;]*m|\?25[hl]|[0-9]?[AK])|\r")
"""Colours, and what moves progress bars; the terminal itself adds the carriage returns."""
STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Run one command in this process, all of whose streams are a terminal, and return what is shown."""
    for name in ("NO_COLOR", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("signal.signal", lambda *_: None)
    logger = logging.getLogger("coldparquet")
    handlers = list(logger.handlers)

    def run(*arguments: str | Path) -> str:
        controller, terminal = pty.openpty()
        shown: list[bytes] = []
        reader = threading.Thread(target=_read_all, args=(controller, shown))
        reader.start()
        error_console.cache_clear()
        with (
            monkeypatch.context() as patch,
            open(terminal, "w", encoding="utf-8", closefd=False) as stdout,
            open(terminal, "w", encoding="utf-8", closefd=False) as stderr,
        ):
            patch.setattr(sys, "stdout", stdout)
            patch.setattr(sys, "stderr", stderr)
            patch.setattr(sys, "argv", ["coldparquet", *map(str, arguments)])
            try:
                main()
            except SystemExit:
                pass
            except BaseException:  # noqa: BLE001 - what the interpreter would do
                traceback.print_exc()
            stdout.flush()
        os.close(terminal)
        reader.join()
        os.close(controller)
        logger.handlers[:] = handlers
        return b"".join(shown).decode()

    yield run
    error_console.cache_clear()


def _read_all(controller: int, into: list[bytes]) -> None:
    while True:
        try:
            data = os.read(controller, 65_536)
        except OSError:  # Linux reports the end of a terminal as an error
            return
        if not data:
            return
        into.append(data)


def harmless(shown: str) -> bool:
    """Tell whether nothing steers the terminal but what the commands print of their own."""
    return BLINK not in shown and not STEERING.search(OURS.sub("", shown))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    directory = tmp_path / f"trades{EVIL}"
    rows = pa.table({f"c{EVIL}": [f"v{EVIL}", "x"], f"n{EVIL}": [1, 2]})
    for name in ("2024-03-01.1", "2024-03-01.2", f"2024{EVIL}", f"2024-03-02{EVIL}"):
        (directory / name).mkdir(parents=True)
        pq.write_table(rows, directory / name / "data.parquet")
    return directory


@pytest.mark.parametrize(
    "command",
    [
        ["inspect"],
        ["inspect", "--sidecars"],
        ["explain"],
        ["explain", "--json"],
        ["scan"],
        ["scan", "--json"],
        ["scan", "--profile"],
        ["scan", "--where", f"c{EVIL} = 1"],
        ["scan", "--columns", f'"missing{EVIL}"'],
        ["count"],
        ["index", "--dry-run"],
        ["index"],
        ["index", "--force"],
        ["verify"],
        ["verify", "--deep"],
        ["compact", "--dry-run"],
        ["pack"],
        ["migrate"],
        ["restore"],
        ["count", "--partition", f"2024{EVIL}"],
        ["count", "--storage-option", f"nonsense{EVIL}"],
        ["pipeline", "verify"],
        ["scan", f"--colu{EVIL}mns", "a"],
        [f"--versi{EVIL}on"],
        [f"nonsense{EVIL}"],
        ["pipeline", "verify", f"--de{EVIL}ep"],
        ["scan", "--limit", f"1{EVIL}"],
        ["scan", "--columns", "a\rb"],
    ],
    ids=lambda words: " ".join(words).partition("\x1b")[0],
)
def test_names_and_values_of_a_table(on_terminal: Callable[..., str], table: Path, command: list[str]) -> None:
    shown = on_terminal(*command, table)
    assert shown
    assert "Traceback" not in shown
    assert harmless(shown), repr(shown)


@pytest.mark.parametrize(
    "place", [f"none{EVIL}", f"trades{EVIL}/2024-03-01.2", f"trades{EVIL}/2024{EVIL}/data.parquet"]
)
@pytest.mark.parametrize("command", ["inspect", "explain", "scan", "index", "verify", "restore"])
def test_paths(on_terminal: Callable[..., str], table: Path, command: str, place: str) -> None:
    shown = on_terminal(command, table.parent / place)
    assert shown
    assert harmless(shown), repr(shown)


def test_copies(on_terminal: Callable[..., str], table: Path, tmp_path: Path) -> None:
    for arguments in (("publish", "--dry-run"), ("publish",)):
        shown = on_terminal(*arguments, table, tmp_path / f"copy{EVIL}")
        assert harmless(shown), repr(shown)


def test_log_messages_and_prints_of_libraries(on_terminal: Callable[..., str], table: Path) -> None:
    def count(*_: object, **__: object) -> None:
        logging.getLogger("coldparquet").warning("careful: %s", EVIL)
        logging.getLogger("another").warning("careful: %s", EVIL)
        sys.stdout.buffer.write(EVIL.encode()[:-1])
        sys.stdout.writelines([EVIL, "\n"])
        raise RuntimeError(EVIL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("coldparquet.cli.scan_command.count", count)
        patch.setattr(logging, "lastResort", logging._StderrHandler(logging.WARNING))  # type: ignore[attr-defined]
        shown = on_terminal("count", table)
    assert shown.count("careful: ␛") == 1
    assert harmless(shown), repr(shown)

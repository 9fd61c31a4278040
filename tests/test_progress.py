"""A bar that shows how much of a plan has been fetched: where a person waits, after a second, and nowhere else."""

from __future__ import annotations

import asyncio
import gc
import io
import subprocess
import sys
import threading

import pytest

import coldparquet as cp
from coldparquet import progress, table_scan
from coldparquet.errors import UnsupportedError
from coldparquet.progress import VisibleConsole
from coldparquet.storage.base import ObjectStore
from coldparquet_testing.stores import LatencyStore
from tests.support.small_tables import store_of_days


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a terminal shows, from the first moment on."""
    written = io.StringIO()
    console = VisibleConsole(file=written, force_terminal=True, width=80)
    monkeypatch.setattr(progress, "error_console", lambda: console)
    monkeypatch.setattr(progress, "_SHORTEST_S", 0)
    return written


@pytest.fixture
def slow() -> ObjectStore:
    return LatencyStore(asyncio.run(store_of_days()), first_byte_s=0.2)


async def test_a_bar_of_the_bytes_of_the_plan(shown: io.StringIO, slow: ObjectStore) -> None:
    async with cp.open_table("db/trades", store=slow) as table:
        scan = table.scan()
        rows = await scan.to_arrow(progress=True)
    assert rows.num_rows
    assert "reading" in shown.getvalue()
    assert f"/{int((await scan.plan()).bytes_fetched / 1e6)} MB" in shown.getvalue()


async def test_two_bars_at_once_disturb_no_scan(shown: io.StringIO, slow: ObjectStore) -> None:
    async with cp.open_table("db/trades", store=slow) as table:
        async with table.scan().batches(progress=True) as first, table.scan().batches(progress=True) as second:
            rows = [batch.num_rows async for batch in first] + [batch.num_rows async for batch in second]
        assert sum(rows) == 2 * (await table.scan().count())
    assert "reading" in shown.getvalue()


async def test_scripts_show_none_and_sessions_on_terminals_do(
    shown: io.StringIO, slow: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    async with cp.open_table("db/trades", store=slow) as table:
        await table.scan().to_arrow()
        assert shown.getvalue() == ""
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
        await table.scan().to_arrow(progress=False)
        assert shown.getvalue() == ""
        await table.scan().to_arrow()
        assert "reading" in shown.getvalue()


@pytest.mark.parametrize("is_interactive", [False, True])
@pytest.mark.parametrize("kind", ["none", "closed", "an object that only writes"])
async def test_scans_do_with_any_standard_error(
    kind: str, shown: io.StringIO, slow: ObjectStore, monkeypatch: pytest.MonkeyPatch, *, is_interactive: bool
) -> None:
    closed = io.StringIO()
    closed.close()
    if is_interactive:
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    monkeypatch.setattr(sys, "stderr", {"none": None, "closed": closed}.get(kind, object()))
    async with cp.open_table("db/trades", store=slow) as table:
        assert (await table.scan(limit=1).to_arrow()).num_rows
    assert shown.getvalue() == ""


def test_blocking_scans_show_it_too(shown: io.StringIO, slow: ObjectStore) -> None:
    with cp.sync.open_table("db/trades", store=slow) as table:
        rows = sum(batch.num_rows for batch in table.scan().batches(progress=True))
        assert table.scan().to_pandas(progress=True).shape[0] == rows
    assert "reading" in shown.getvalue()


class _GoneTerminal(io.StringIO):
    """A terminal that takes some writes and fails at all others."""

    def __init__(self, writes: int, error: Exception) -> None:
        super().__init__()
        self._left = writes
        self._error = error

    def write(self, text: str) -> int:
        self._left -= 1
        if self._left < 0:
            raise self._error
        return super().write(text)


@pytest.mark.parametrize(
    ("writes", "error"), [(0, ValueError("closed file")), (2, OSError(5, "gone")), (3, BrokenPipeError())]
)
async def test_a_terminal_that_is_gone_is_no_matter_of_the_scan(
    writes: int, error: Exception, slow: ObjectStore, shown: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = VisibleConsole(file=_GoneTerminal(writes, error), force_terminal=True, width=80)
    monkeypatch.setattr(progress, "error_console", lambda: gone)
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: problems.append(context))
    monkeypatch.setattr(threading, "excepthook", problems.append)
    async with cp.open_table("db/trades", store=slow) as table:
        assert (await table.scan().to_arrow(progress=True)).num_rows
    gc.collect()
    assert not problems
    assert shown.getvalue() == ""


LEAVES_BATCHES_OPEN = """
import asyncio, atexit, io
atexit.register(lambda: print(written.getvalue().count("\\x1b[?25l"), written.getvalue().count("\\x1b[?25h")))
import coldparquet as cp
from coldparquet import progress
from coldparquet_testing.stores import LatencyStore
from tests.support.small_tables import store_of_days

written = io.StringIO()
console = progress.VisibleConsole(file=written, force_terminal=True, width=80)
progress.error_console, progress._SHORTEST_S = lambda: console, 0
table = cp.sync.open_table("db/trades", store=LatencyStore(asyncio.run(store_of_days()), first_byte_s=0.2))
batches = table.scan().batches(progress=True)
next(batches)
"""


def test_a_program_ends_although_batches_are_left_and_shows_the_cursor_again() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LEAVES_BATCHES_OPEN], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout.split(), ended.stderr) == (0, ["1", "1"], "")


async def test_it_needs_rich(monkeypatch: pytest.MonkeyPatch, slow: ObjectStore) -> None:
    monkeypatch.setattr(table_scan, "find_spec", lambda name: None if name == "rich" else object())
    async with cp.open_table("db/trades", store=slow) as table:
        with pytest.raises(UnsupportedError, match="pip install rich"):
            await table.scan().to_arrow(progress=True)
        await table.scan().to_arrow()

"""Connections stay open between tables of one event loop, and are closed with the loop."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import coldparquet.sync as cps
from coldparquet.ranges import ByteRange
from coldparquet.storage import sessions
from coldparquet.storage.s3.store import S3Store
from coldparquet_testing.simulator import ColdStoreServer
from coldparquet_testing.store_contract import request_for


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ColdStoreServer]:
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "key").write_bytes(b"0123456789")
    with ColdStoreServer(tmp_path) as server:
        yield server
    sessions.close_kept_sessions()


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a word for each connection that is made."""
    made = list[str]()
    create = aiohttp.TCPConnector._create_connection

    async def noted(self: aiohttp.TCPConnector, *arguments: Any) -> Any:
        made.append("created")
        return await create(self, *arguments)

    monkeypatch.setattr(aiohttp.TCPConnector, "_create_connection", noted)
    return made


async def read(server: ColdStoreServer) -> bytes:
    store = S3Store(storage_options=server.storage_options)
    try:
        return (await store.get(request_for("bucket/key", ByteRange(0, 5)))).data
    finally:
        await store.aclose()


def test_the_next_table_of_blocking_calls_finds_a_connection(server: ColdStoreServer, connections: list[str]) -> None:
    for _ in range(3):
        assert cps.run(read(server)) == b"01234"
    assert connections == ["created"]
    sessions.close_kept_sessions()
    assert cps.run(read(server)) == b"01234"
    assert connections == ["created"] * 2


def test_a_connection_that_the_server_has_closed_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "key").write_bytes(b"0123456789")
    with ColdStoreServer(tmp_path) as first:
        assert cps.run(read(first)) == b"01234"
        port = int(first.endpoint_url.rpartition(":")[2])
    with ColdStoreServer(tmp_path, port=port) as second:
        assert cps.run(read(second)) == b"01234"
    sessions.close_kept_sessions()


def test_tables_of_one_loop_share_connections_and_the_loop_closes_them(
    server: ColdStoreServer, connections: list[str]
) -> None:
    async def read_twice() -> None:
        for _ in range(2):
            assert await read(server) == b"01234"

    for _ in range(3):
        asyncio.run(read_twice())
        gc.collect()
        assert sessions._kept_sessions == {}
    assert connections == ["created"] * 3


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the sockets of transports that such a loop does not close
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_closes_nothing_leaves_nothing_for_long(server: ColdStoreServer) -> None:
    for _ in range(3):
        loop = asyncio.new_event_loop()
        assert loop.run_until_complete(read(server)) == b"01234"
        loop.close()
        assert len(sessions._kept_sessions) == 1
    sessions.close_kept_sessions()
    assert sessions._kept_sessions == {}
    gc.collect()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_stores_that_open_at_once_after_such_a_loop_share_sessions(server: ColdStoreServer) -> None:
    async def read_thrice() -> list[bytes]:
        return await asyncio.gather(*(read(server) for _ in range(3)))

    loop = asyncio.new_event_loop()
    loop.run_until_complete(read(server))
    loop.close()
    assert asyncio.run(read_thrice()) == [b"01234"] * 3
    assert sessions._kept_sessions == {}
    gc.collect()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_makes_connections_of_its_own(server: ColdStoreServer) -> None:
    assert cps.run(read(server)) == b"01234"
    child = os.fork()
    if not child:
        is_right = not sessions._kept_sessions and cps.run(read(server)) == b"01234"
        os._exit(0 if is_right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert cps.run(read(server)) == b"01234"


@pytest.mark.parametrize(
    ("end", "warnings"),
    [
        ("cps.run(read())", "always::ResourceWarning"),
        ("asyncio.run(read())", "always::ResourceWarning"),
        ("asyncio.new_event_loop().run_until_complete(read())", ""),
    ],
)
def test_a_process_ends_without_a_word_about_them(server: ColdStoreServer, end: str, warnings: str) -> None:
    script = (
        "import asyncio; import coldparquet.sync as cps; from coldparquet.storage.s3.store import S3Store;"
        "from coldparquet_testing.store_contract import request_for; from coldparquet.ranges import ByteRange\n"
        "async def read():\n"
        f"    store = S3Store(storage_options={server.storage_options!r})\n"
        "    print((await store.get(request_for('bucket/key', ByteRange(0, 5)))).data)\n"
        "    await store.aclose()\n"
        f"{end}\n"
    )
    ended = subprocess.run(
        [sys.executable, *(["-W", warnings] if warnings else []), "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, "b'01234'", "")

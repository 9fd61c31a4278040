"""Stores that cannot be reached at all, or not with these credentials: an error soon, that says what to do and no secret."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import coldparquet as cp
from coldparquet.errors import AccessError, ColdParquetError, StorageError
from coldparquet_testing.simulator import ColdStoreServer, FaultRule
from tests.support.leaks import open_file_handles, settled_file_handles

SECRET = "planted-secret"  # noqa: S105
TWICE = cp.StoreOptions(max_attempts=2)
IMPATIENT = cp.StoreOptions(max_attempts=2, stall_timeout_s=0.3)


@pytest.fixture(autouse=True)
async def _nothing_is_left_behind() -> AsyncIterator[None]:
    before = len(open_file_handles())
    yield
    assert asyncio.all_tasks() == {asyncio.current_task()}
    # The first resolver thread of a process keeps a file handle or two.
    assert len(await settled_file_handles(before + 3)) <= before + 3


async def failure(endpoint_url: str, store_options: cp.StoreOptions = TWICE) -> ColdParquetError:
    """Open a table, which must fail, and return the error, which must not tell the secret."""
    keys = {"endpoint_url": endpoint_url, "key": "planted-key", "secret": SECRET, "token": f"{SECRET}-token"}
    with pytest.raises(cp.ColdParquetError) as caught:
        await cp.open_table("s3://bucket/trades", storage_options=keys, store_options=store_options)
    error: BaseException | None = caught.value
    while error is not None:  # nor may what it came from
        assert SECRET not in f"{error!r} {error} {getattr(error, 'details', None)}"
        error = error.__cause__ or error.__context__
    return caught.value


async def test_unknown_names(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(*_arguments: object, **_settings: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    error = await failure("http://store.invalid:9000")
    assert isinstance(error, StorageError)
    assert (error.kind, error.details["attempts"]) == ("ConnectionFailed", 2)


async def test_ports_at_which_no_server_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    error = await failure(f"http://127.0.0.1:{port}")
    assert isinstance(error, StorageError)
    assert (error.kind, error.details["attempts"]) == ("ConnectionFailed", 2)


async def test_servers_that_accept_and_say_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        error = await failure(f"http://127.0.0.1:{listening.getsockname()[1]}", IMPATIENT)
    assert isinstance(error, StorageError)
    assert (error.kind, error.details["attempts"]) == ("Timeout", 2)


async def test_servers_of_something_else() -> None:
    chats: set[asyncio.Task[None] | None] = set()

    async def chat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        chats.add(asyncio.current_task())
        await reader.readline()
        writer.write(b"220 mail.example ESMTP\r\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(chat, "127.0.0.1", 0)
    async with server:
        error = await failure(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    await asyncio.gather(*filter(None, chats), return_exceptions=True)  # the server does not wait for them
    assert isinstance(error, StorageError)


@pytest.mark.parametrize("kind", ["forbidden", "expired-token"])
async def test_refused_credentials_are_not_tried_again(tmp_path: Path, kind: str) -> None:
    (tmp_path / "bucket").mkdir()
    with ColdStoreServer(tmp_path) as server:
        server.set_faults(FaultRule(kind, operation="*"))  # type: ignore[arg-type]
        error = await failure(server.endpoint_url)
        paths = [(request.operation, request.path, request.query) for request in server.requests]
    assert isinstance(error, AccessError)
    assert error.kind == ("AccessDenied" if kind == "forbidden" else "ExpiredToken")
    assert len(paths) == len(set(paths))

"""Threads do what can be done while answers are on their way: buffers, and what only the first decoding of a process costs."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

import coldparquet as cp
import coldparquet.table
from coldparquet.catalog.snapshot import SnapshotReader
from coldparquet.decode.columns import decode_for_the_first_time
from coldparquet.decode.read import new_buffer
from coldparquet.errors import NotFoundError, UnsupportedError
from coldparquet.maintenance.index import index_table
from coldparquet.scan import arriving
from coldparquet.storage.local import LocalStore
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer
from tests.support.questdb_tables import PARTITIONS

# --- Buffers are made while the answers are on their way, by a thread; what goes wrong there is the reader's error ----


GOLDEN = next(partition for partition in PARTITIONS if partition.table == "row_groups")
WHERE = "id >= 500 and id < 700"
SLOW = ColdStoreOptions(first_byte_s=0.3)


@pytest.fixture
async def partition(tmp_path: Path) -> Path:
    """A genuine partition with its sidecar, in a directory that serves as a bucket."""
    directory = GOLDEN.copied_to(tmp_path / "bucket" / "db")
    await index_table(directory, pages=False, pack=False)
    return directory


@pytest.fixture
def makers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the threads that made buffers."""
    names: list[str] = []

    def noted(read: Any) -> Any:
        names.append(threading.current_thread().name)
        return new_buffer(read)

    monkeypatch.setattr(arriving, "new_buffer", noted)
    return names


async def test_a_thread_makes_them_while_a_store_is_slow(partition: Path, tmp_path: Path, makers: list[str]) -> None:
    with ColdStoreServer(tmp_path, SLOW) as server:
        async with cp.open_partition(
            f"s3://bucket/db/{partition.name}", storage_options=server.storage_options
        ) as table:
            scan = table.scan(["id", "half"], WHERE)
            rows = await scan.to_arrow()
            assert rows.column("id").to_pylist() == list(range(500, 700))
            assert len(makers) == len((await scan.plan()).row_groups)
            assert all(name.startswith("coldparquet-decode") for name in makers)
            makers.clear()
            assert (await scan.to_arrow()).equals(rows)
            assert makers
            assert set(makers) == {threading.current_thread().name}  # the bytes are held: no task waits for them


async def test_an_error_of_that_thread_reaches_the_reader(
    partition: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_read: Any) -> None:
        raise UnsupportedError("compressed with LZO", kind="UnsupportedCodec")

    monkeypatch.setattr(arriving, "new_buffer", refuse)
    with ColdStoreServer(tmp_path, SLOW) as server:
        async with cp.open_partition(
            f"s3://bucket/db/{partition.name}", storage_options=server.storage_options
        ) as table:
            with pytest.raises(UnsupportedError) as caught:
                await table.scan(["id", "half"], WHERE).to_arrow()
            assert caught.value.kind == "UnsupportedCodec"


# --- While the first request of a table is on its way, a thread does what only the first decoding of a process costs --


def test_it_decodes_and_filters_without_an_error() -> None:
    decode_for_the_first_time.__wrapped__()


async def test_a_thread_does_it_while_the_first_answer_is_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = GOLDEN.copied_to(tmp_path / "bucket" / "db")
    done_by: list[str] = []
    monkeypatch.setattr(
        coldparquet.table, "decode_for_the_first_time", lambda: done_by.append(threading.current_thread().name)
    )
    with ColdStoreServer(tmp_path, SLOW) as server:
        async with cp.open_partition(
            f"s3://bucket/db/{directory.name}", storage_options=server.storage_options
        ) as table:
            assert [name.startswith("coldparquet-decode") for name in done_by] == [True]
            assert await table.scan(["id"]).to_arrow()
            assert len(done_by) == 1


async def test_tables_that_cannot_be_opened_leave_their_threads_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bucket").mkdir()
    threads: list[threading.Thread] = []
    monkeypatch.setattr(
        coldparquet.table, "decode_for_the_first_time", lambda: threads.append(threading.current_thread())
    )
    with ColdStoreServer(tmp_path, SLOW) as server:
        for _ in range(6):
            with pytest.raises(NotFoundError):
                await cp.open_partition("s3://bucket/nothing", storage_options=server.storage_options)
        assert len(threads) == 6
        assert len(set(threads)) <= (os.cpu_count() or 1)


async def test_what_fails_at_once_leaves_no_call_to_closed_threads_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))

    async def fail(_: object) -> None:
        raise NotFoundError("nothing is here")

    async def close_slowly(_: object) -> None:
        await asyncio.sleep(0.02)

    monkeypatch.setattr(SnapshotReader, "read", fail)
    monkeypatch.setattr(LocalStore, "aclose", close_slowly)
    with pytest.raises(NotFoundError, match="nothing is here"):
        await cp.open_table("/absent")
    assert reported == []

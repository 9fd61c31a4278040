"""While the first request of a table is on its way, a thread does what only the first decoding of a process costs."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

import coldparquet as cp
import coldparquet.table
from coldparquet.catalog.snapshot import SnapshotReader
from coldparquet.decode.columns import decode_for_the_first_time
from coldparquet.errors import NotFoundError
from coldparquet.storage.local import LocalStore
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer
from tests.support.questdb_tables import PARTITIONS

GOLDEN = next(partition for partition in PARTITIONS if partition.table == "row_groups")
SLOW = ColdStoreOptions(first_byte_s=0.3)


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
        await asyncio.sleep(5 * coldparquet.table._SENDING_S)

    monkeypatch.setattr(SnapshotReader, "read", fail)
    monkeypatch.setattr(LocalStore, "aclose", close_slowly)
    with pytest.raises(NotFoundError, match="nothing is here"):
        await cp.open_table("/absent")
    assert reported == []

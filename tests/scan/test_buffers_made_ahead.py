"""Buffers are made while the answers are on their way, by a thread; what goes wrong there is the reader's error."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import coldparquet as cp
from coldparquet.decode.read import new_buffer
from coldparquet.errors import UnsupportedError
from coldparquet.maintenance.index import index_table
from coldparquet.scan import arriving
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer
from tests.support.questdb_tables import PARTITIONS

if TYPE_CHECKING:
    from pathlib import Path

GOLDEN = next(partition for partition in PARTITIONS if partition.table == "row_groups")
WHERE = "id >= 500 and id < 700"
SLOW = ColdStoreOptions(first_byte_s=0.3)


@pytest.fixture
async def partition(tmp_path: Path) -> Path:
    """A genuine partition with its sidecar, in a directory that serves as a bucket."""
    directory = GOLDEN.copied_to(tmp_path / "bucket" / "db")
    await index_table(directory)
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
            assert set(makers) == {threading.current_thread().name}  # the bytes are held: nobody waits for them


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

from __future__ import annotations

import pytest

from coldparquet.errors import NotFoundError
from coldparquet.ranges import ByteRange
from coldparquet.storage.memory import MemoryStore
from coldparquet_testing.store_contract import StoreContract, request_for


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()

    @pytest.fixture
    def root(self) -> str:
        return "bucket/db/trades"


async def test_first_contents_and_delete() -> None:
    store = MemoryStore({"table/_txn": b"abc"})
    assert (await store.get(request_for("table/_txn", ByteRange(0, 3)))).data == b"abc"
    assert [info.path for info in (await store.list("")).objects] == []
    await store.delete(["table/_txn", "table/absent"])
    with pytest.raises(NotFoundError):
        await store.get(request_for("table/_txn", ByteRange(0, 3)))


async def test_same_bytes_written_again_are_a_new_version() -> None:
    store = MemoryStore({"x": b"abc"})
    first = await store.get(request_for("x", ByteRange(0, 3)))
    await store.put("x", b"abc", overwrite=True)
    assert (await store.get(request_for("x", ByteRange(0, 3)))).etag != first.etag

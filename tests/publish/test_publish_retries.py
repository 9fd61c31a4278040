"""Publishing to a store that falters: what was turned away is sent again, what may have been written is not."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

import pytest

from coldparquet.errors import StorageError
from coldparquet.publish import publish_table
from coldparquet.storage import retry as retry_decision
from coldparquet.storage import transfer as upload
from coldparquet.storage.base import StoreWrapper
from coldparquet.storage.memory import MemoryStore
from tests.support.published_tables import TABLE, expected_published_rows, read_rows
from tests.support.questdb_tables import assert_same_rows
from tests.support.table_copies import copy_table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from coldparquet.storage.requests import FetchedRange, Listing, ObjectInfo, RangeRequest, Upload, UploadedPart

Result = TypeVar("Result")
PATH = "bucket/db/t"


@pytest.fixture(autouse=True)
def _small_parts_and_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "PART_BYTES", 16 * 1024)
    monkeypatch.setattr(retry_decision, "FIRST_WAIT_S", 0.001)


class FalteringStore(StoreWrapper):
    """Fails the first call of each kind for each object: it is turned away, or done and its answer lost."""

    def __init__(self, *, loses_answers: bool) -> None:
        super().__init__(MemoryStore())
        self._loses_answers = loses_answers
        self._seen: set[str] = set()
        self.conditional_writes: Counter[str] = Counter()

    async def get(self, request: RangeRequest) -> FetchedRange:
        return await self._falter(f"get {request.path}", lambda: self._store.get(request))

    async def info(self, path: str) -> ObjectInfo:
        return await self._falter(f"info {path}", lambda: self._store.info(path))

    async def list(self, path: str, *, first_page_only: bool = False) -> Listing:
        return await self._falter(f"list {path}", lambda: self._store.list(path, first_page_only=first_page_only))

    async def put(
        self, path: str, data: bytes, *, overwrite: bool, if_match: str | None = None, storage_class: str | None = None
    ) -> str | None:
        async def write() -> str | None:
            etag = await self._store.put(
                path, data, overwrite=overwrite, if_match=if_match, storage_class=storage_class
            )
            self.conditional_writes[path] += not overwrite or if_match is not None
            return etag

        return await self._falter(f"put {path}", write)

    async def start_upload(self, path: str, *, storage_class: str | None = None) -> Upload:
        return await self._falter(f"start {path}", lambda: self._store.start_upload(path, storage_class=storage_class))

    async def upload_part(self, upload: Upload, number: int, *, start: int, data: bytes) -> UploadedPart:
        return await self._falter(
            f"part {number} {upload.path}", lambda: self._store.upload_part(upload, number, start=start, data=data)
        )

    async def finish_upload(self, upload: Upload, parts: Sequence[UploadedPart], *, overwrite: bool) -> str | None:
        async def finish() -> str | None:
            etag = await self._store.finish_upload(upload, parts, overwrite=overwrite)
            self.conditional_writes[upload.path] += 1
            return etag

        return await self._falter(f"finish {upload.path}", finish)

    async def _falter(self, call_name: str, call: Callable[[], Awaitable[Result]]) -> Result:
        is_first = call_name not in self._seen
        self._seen.add(call_name)
        if is_first and not self._loses_answers:
            raise StorageError("slow down", kind="SlowDown", status=503)
        result = await call()
        if is_first:
            raise StorageError("the connection was reset", kind="ConnectionFailed")
        return result


async def test_everything_is_turned_away_once(tmp_path: Path) -> None:
    store = FalteringStore(loses_answers=False)
    report = await publish_table(copy_table(TABLE, tmp_path), PATH, store=store)
    assert report.is_committed
    assert max(store.conditional_writes.values()) == 1
    assert_same_rows(await read_rows(store, PATH), expected_published_rows(None))


async def test_every_answer_is_lost_once(tmp_path: Path) -> None:
    table = copy_table(TABLE, tmp_path)
    store = FalteringStore(loses_answers=True)
    for _ in range(40):
        store.conditional_writes.clear()
        try:
            await publish_table(table, PATH, store=store)
        except StorageError as error:
            assert "whether it was written before the failure is not known" in str(error)  # noqa: PT017 - it goes on
        else:
            break
        assert max(store.conditional_writes.values()) == 1, "written twice by one run"
    assert_same_rows(await read_rows(store, PATH), expected_published_rows(None))

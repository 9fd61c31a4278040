"""Listings of versions that take several pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coldparquet.storage.s3.store import S3Store
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

DAYS, ROOT = 1200, "bucket/db/trades"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ColdStoreServer]:
    for day in range(DAYS):
        folder = tmp_path / ROOT / f"day {day:04}"
        folder.mkdir(parents=True)
        for name in ("_pm", "data.parquet"):
            (folder / name).write_bytes(b"abc")
    (tmp_path / "bucket" / "elsewhere").write_bytes(b"abc")
    with ColdStoreServer(tmp_path, ColdStoreOptions()) as server:
        yield server


@pytest.fixture
async def store(server: ColdStoreServer) -> AsyncIterator[S3Store]:
    store = S3Store(storage_options=server.storage_options)
    yield store
    await store.aclose()


@pytest.mark.parametrize(("first", "last", "pages"), [(0, DAYS - 1, 3), (100, 200, 1), (100, 699, 2), (1199, 1199, 1)])
async def test_pages_are_fetched_up_to_the_last_path(
    server: ColdStoreServer, store: S3Store, first: int, last: int, pages: int
) -> None:
    start, stop = f"{ROOT}/day {first:04}/", f"{ROOT}/day {last:04}/\U0010ffff"
    listed = await store.list_between(ROOT, start=start, stop=stop)
    expected = [f"{ROOT}/day {day:04}/{name}" for day in range(first, last + 1) for name in ("_pm", "data.parquet")]
    assert [info.path for info in listed] == expected
    assert all(info.etag is not None and info.size_bytes == 3 for info in listed)
    assert len(server.requests) == pages

"""What goes wrong in a store during a scan, on a real S3 server: exactly the right rows, or the right error."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.errors import AccessError, ColdParquetError, NotFoundError, ObjectChangedError, StorageError
from coldparquet.maintenance.index import index_table
from coldparquet.records import replace
from coldparquet.storage.s3.store import S3Store
from coldparquet_testing.demo_data import write_trades
from tests.support.leaks import open_file_handles, settled_file_handles
from tests.support.live_servers import LiveS3, LiveToxiproxy
from tests.support.random_tables import assert_identical

pytestmark = pytest.mark.integration

TWICE = cp.StoreOptions(max_attempts=2)
GIVEN_UP_S = 60.0
"""Far more than two attempts take that each wait for half a second, far less than forever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedTable:
    """A table of two days in the bucket, and what belongs there."""

    server: LiveS3
    prefix: str
    days: tuple[bytes, ...]
    """The Parquet files."""
    data_paths: tuple[str, ...]
    """Where they lie."""

    @property
    def rows(self) -> pa.Table:
        """All of them, read by another reader."""
        return pa.concat_tables([pq.read_table(pa.BufferReader(day)) for day in self.days])

    def opened(self, *, store_options: cp.StoreOptions = TWICE, **options: Any) -> cp.opening.Opening:
        """Open it, with these options for reading."""
        return cp.open_table(
            f"s3://{self.server.bucket}/{self.prefix}",
            storage_options=self.server.storage_options,
            options=cp.ReadOptions(**options),
            store_options=store_options,
        )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the table, with sidecars."""
    table = tmp_path_factory.mktemp("faults") / "trades"
    write_trades(table, days=2, on_day=lambda: None)
    asyncio.run(index_table(table, pages=False, pack=False))
    return table


@pytest.fixture
def placed(files: Path, minio: LiveS3, request: pytest.FixtureRequest) -> PlacedTable:
    """A table for one test alone."""
    prefix = f"faults/{re.sub(r'[^a-z]+', '-', request.node.name)}"
    minio.upload(files, prefix)
    data = sorted(files.rglob("data.parquet"))
    return PlacedTable(
        server=minio,
        prefix=prefix,
        days=tuple(path.read_bytes() for path in data),
        data_paths=tuple(f"{minio.bucket}/{prefix}/{path.relative_to(files)}" for path in data),
    )


@pytest.fixture
async def store(minio: LiveS3) -> AsyncIterator[S3Store]:
    """The other side, which does to the table what it should not."""
    store = S3Store(storage_options=minio.storage_options)
    yield store
    await store.aclose()


@pytest.fixture(autouse=True)
async def _nothing_is_left_behind() -> AsyncIterator[None]:
    before = len(open_file_handles())
    yield
    assert asyncio.all_tasks() == {asyncio.current_task()}
    # The first resolver thread keeps some, and so do the connections that wait for the loop's next table.
    assert len(await settled_file_handles(before + 8)) <= before + 8


@pytest.mark.parametrize(
    ("change", "error_class"),
    [("replaced", ObjectChangedError), ("cut off", ObjectChangedError), ("removed", NotFoundError)],
)
async def test_data_that_changes_between_plan_and_reading(
    placed: PlacedTable, store: S3Store, change: str, error_class: type[ColdParquetError]
) -> None:
    async with placed.opened() as table:
        scan = table.scan()
        await scan.plan()
        if change == "removed":
            await store.delete([placed.data_paths[-1]])
        else:
            day = placed.days[-1]
            await store.put(placed.data_paths[-1], day[:-1] if change == "cut off" else day + b"!", overwrite=True)
        with pytest.raises(error_class):
            await scan.to_arrow()


async def test_data_that_changes_in_the_middle_of_a_scan_is_never_mixed(placed: PlacedTable, store: S3Store) -> None:
    ends = set()
    for batches_before in range(4):
        cp.clear_caches()
        await store.put(placed.data_paths[-1], placed.days[-1], overwrite=True)
        batches: list[pa.RecordBatch] = []
        one_by_one = placed.opened(max_concurrency=1, max_request_bytes=50_000, coalesce_gap_bytes=0)
        async with one_by_one as table:
            try:
                async with table.scan().batches() as stream:
                    async for batch in stream:
                        if len(batches) == batches_before:
                            await store.put(placed.data_paths[-1], placed.days[0], overwrite=True)
                        batches.append(batch)
            except ObjectChangedError:
                ends.add("changed")
            else:
                assert_identical(pa.Table.from_batches(batches), placed.rows)
    assert ends == {"changed"}, "at least once it was noticed"


@pytest.mark.parametrize("part", ["key", "secret", "token"])
async def test_credentials_that_the_server_refuses(placed: PlacedTable, part: str) -> None:
    wrong = {**placed.server.storage_options, part: "PLANTED"}
    url = f"s3://{placed.server.bucket}/{placed.prefix}"
    with pytest.raises(AccessError) as caught:
        await cp.open_table(url, storage_options=wrong, store_options=TWICE)
    assert "PLANTED" not in repr(caught.value.as_dict()) + str(caught.value)


async def test_a_name_that_is_not_known_for_a_while(placed: PlacedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    by_name = replace(placed.server, endpoint_url=placed.server.endpoint_url.replace("127.0.0.1", "localhost"))
    named = replace(placed, server=by_name)

    async def resolve(*_arguments: object, **_settings: object) -> object:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    with monkeypatch.context() as patched:
        patched.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
        with pytest.raises(StorageError, match="Temporary failure in name resolution") as caught:
            await named.opened()
    assert (caught.value.kind, caught.value.details["attempts"]) == ("ConnectionFailed", 2)
    async with named.opened() as table:
        assert_identical(await table.scan().to_arrow(), placed.rows)


@pytest.mark.slow
async def test_a_trickle_is_an_error_soon(toxiproxy: LiveToxiproxy, placed: PlacedTable) -> None:
    impatient = cp.StoreOptions(max_attempts=2, stall_timeout_s=0.5)
    async with replace(placed, server=toxiproxy.store).opened(store_options=impatient) as table:
        scan = table.scan()
        await scan.plan()
        # 2,000 bytes at a time, a third of a second apart: never silent for long enough, and far from done. The proxy sends what it
        # holds, some 32 KB, at this pace before it drops the toxic, so that less at a time takes it too long.
        with toxiproxy.toxic("slicer", average_size=2_000, size_variation=1, delay=300_000):
            async with asyncio.timeout(GIVEN_UP_S):
                with pytest.raises(StorageError) as caught:
                    await scan.to_arrow()
    assert caught.value.kind == "Timeout"

"""A real S3 server behind a bad network: rows come whole or not at all, soon, and nothing is left behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.errors import StorageError
from coldparquet.maintenance.index import index_table
from coldparquet_testing.demo_data import write_trades
from tests.support.leaks import open_file_handles, settled_file_handles
from tests.support.live_servers import LiveS3, LiveToxiproxy
from tests.support.random_tables import assert_identical

pytestmark = pytest.mark.integration

DAYS = 2
PREFIX = "network/trades"
PATIENT = cp.StoreOptions(stall_timeout_s=5.0)
IMPATIENT = cp.StoreOptions(stall_timeout_s=0.5, connect_timeout_s=1.0, max_attempts=2)
GIVEN_UP_S = 60.0
"""Far more than two attempts take that each wait for half a second, far less than forever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The table behind the network, and its rows."""

    proxy: LiveToxiproxy
    rows: pa.Table

    async def assert_rows_come(self, store_options: cp.StoreOptions = PATIENT) -> None:
        """Read everything."""
        assert_identical(await self.read(store_options), self.rows)

    async def read(self, store_options: cp.StoreOptions) -> pa.Table:
        """Read everything in requests of 100 KB, so that there are many."""
        store = self.proxy.store
        opening = cp.open_table(
            f"s3://{store.bucket}/{PREFIX}",
            storage_options=store.storage_options,
            options=cp.ReadOptions(max_request_bytes=100_000, coalesce_gap_bytes=0),
            store_options=store_options,
        )
        async with opening as opened:
            return await opened.scan().to_arrow()


@pytest.fixture(scope="module")
def written(minio: LiveS3, tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """Rows of a table that was copied to the server, not through the bad network."""
    table = tmp_path_factory.mktemp("network") / "trades"
    write_trades(table, days=DAYS, on_day=lambda: None)
    asyncio.run(index_table(table, pages=False, pack=False))
    minio.upload(table, PREFIX)
    return pa.concat_tables([pq.read_table(path) for path in sorted(table.rglob("data.parquet"))])


@pytest.fixture
async def network(toxiproxy: LiveToxiproxy, written: pa.Table) -> AsyncIterator[Network]:
    """The network, which must be as quiet after a test as it was before."""
    network = Network(proxy=toxiproxy, rows=written)
    await network.assert_rows_come()  # loads what is loaded late
    before = len(open_file_handles())
    yield network
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert len(await settled_file_handles(before)) <= before


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("latency", {"latency": 60, "jitter": 50}),
        ("slicer", {"average_size": 900, "size_variation": 500, "delay": 50}),
        ("bandwidth", {"rate": 2_000}),
        ("slow_close", {"delay": 100}),
    ],
)
async def test_a_slow_network_is_only_slow(network: Network, kind: str, attributes: dict[str, int]) -> None:
    with network.proxy.toxic(kind, **attributes):
        await network.assert_rows_come()


async def test_bodies_that_break_off_are_gone_on_with(network: Network) -> None:
    with network.proxy.toxic("limit_data", bytes=30_000):  # less than a request asks for
        await network.assert_rows_come()


async def test_some_connections_are_reset(network: Network) -> None:
    with network.proxy.toxic("reset_peer", toxicity=0.3, timeout=5):
        await network.assert_rows_come()


@pytest.mark.parametrize(
    ("kind", "attributes", "error_kinds"),
    [
        ("timeout", {"timeout": 0}, {"Timeout"}),
        ("reset_peer", {"timeout": 0}, {"ConnectionFailed", "ShortRead"}),
        ("limit_data", {"bytes": 100}, {"ConnectionFailed", "ShortRead"}),
    ],
)
async def test_a_network_that_stays_bad_is_an_error_soon(
    network: Network, kind: str, attributes: dict[str, int], error_kinds: set[str]
) -> None:
    started_s = time.monotonic()
    with network.proxy.toxic(kind, **attributes), pytest.raises(StorageError) as caught:
        await network.read(IMPATIENT)
    assert caught.value.kind in error_kinds
    assert caught.value.details["attempts"] == 2
    assert time.monotonic() - started_s < GIVEN_UP_S
    await network.assert_rows_come(IMPATIENT)


async def test_a_server_that_is_down_is_an_error_soon(network: Network) -> None:
    with network.proxy.down(), pytest.raises(StorageError, match="Connect") as caught:
        await network.read(IMPATIENT)
    assert (caught.value.kind, caught.value.details["attempts"]) == ("ConnectionFailed", 2)
    await network.assert_rows_come(IMPATIENT)

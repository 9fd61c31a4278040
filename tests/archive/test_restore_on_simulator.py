"""The whole life of a restore over S3's protocol, on the simulated store: asked for, ongoing, ready, expired."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import coldparquet as cp
from coldparquet.errors import ArchivedObjectError
from coldparquet.maintenance.index import index_table
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer
from tests.support.questdb_tables import copy_parquet_partitions

if TYPE_CHECKING:
    from pathlib import Path

HOUR_S = 3_600.0
URL = "s3://bucket/trades"


@pytest.fixture
async def root(tmp_path: Path) -> Path:
    copied = copy_parquet_partitions("interval_day", tmp_path / "table")
    await index_table(copied)
    (tmp_path / "root" / "bucket").mkdir(parents=True)
    copied.rename(tmp_path / "root" / "bucket" / "trades")
    return tmp_path / "root"


@pytest.mark.parametrize(
    ("storage_class", "hours", "stays"),
    [("GLACIER", 12, False), ("DEEP_ARCHIVE", 48, False), ("INTELLIGENT_TIERING/ARCHIVE_ACCESS", 12, True)],
)
async def test_the_life_of_a_restore(root: Path, storage_class: str, hours: float, stays: bool) -> None:
    options = ColdStoreOptions(storage_classes={"*/data.parquet": storage_class})
    with ColdStoreServer(root, options) as server:
        async with cp.open_table(URL, storage_options=server.storage_options) as table:
            scan = table.scan(["ts"])
            with pytest.raises(ArchivedObjectError) as refused:
                await scan.to_arrow()
            assert refused.value.details["storage_classes"] == [storage_class.replace("/", " ")]
            ticket = await scan.restore(cp.RestoreTerms(tier="Bulk", days=2))
            assert len(ticket.paths) == len(table.partitions)
            assert all(archived.is_being_restored for archived in await scan.archived())
            with pytest.raises(ArchivedObjectError, match="A restore of all of them is under way"):
                await scan.to_arrow()
            assert not [
                served for served in server.requests if served.method == "GET" and served.path.endswith("data.parquet")
            ]

            waiting = asyncio.create_task(ticket.wait(storage_options=server.storage_options, first_pause_s=0.01))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            server.advance_clock(hours * HOUR_S + 60)
            await waiting
            rows = await scan.to_arrow()
            assert rows.num_rows == await scan.count()

        server.advance_clock(4 * 24 * HOUR_S)
        async with cp.open_table(URL, storage_options=server.storage_options) as table:
            assert bool(await table.scan(["ts"]).archived()) is not stays
            if not stays:
                with pytest.raises(ArchivedObjectError) as expired:
                    await ticket.wait(storage_options=server.storage_options)
                assert expired.value.kind == "RestoreExpired"

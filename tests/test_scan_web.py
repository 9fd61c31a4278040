"""Reading from web servers and in uvloop's event loop, from a URL to rows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

import coldparquet as cp
from coldparquet.maintenance.index import index_table
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.questdb_tables import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

GOLDEN = next(partition for partition in PARTITIONS if partition.table == "row_groups")
WHERE = "id >= 500 and id < 700"


@pytest.fixture
async def partition(tmp_path: Path) -> Path:
    """One genuine partition with its sidecar."""
    directory = GOLDEN.copied_to(tmp_path / "bucket" / "db")
    await index_table(directory)
    return directory


@pytest.fixture
async def server(tmp_path: Path, partition: Path) -> AsyncIterator[TestServer]:
    async def signed(request: web.Request) -> web.StreamResponse:
        if request.query.get("sig") != "a+b/c=":
            return web.Response(status=403)
        return web.FileResponse(partition / request.match_info["name"])

    application = web.Application()
    application.router.add_static("/files", tmp_path / "bucket", show_index=True)
    application.router.add_get("/signed/{name}", signed)
    server = TestServer(application)
    await server.start_server()
    yield server
    await server.close()


async def ids_of(url: str, **options: Any) -> list[Any]:
    async with cp.open_partition(url, **options) as opened:
        rows = await opened.scan(["id", "half"], WHERE).to_arrow()
        return rows.column("id").to_pylist()


@pytest.mark.parametrize("url", ["/files/db/{name}", "/signed/data.parquet?sig=a%2Bb%2Fc%3D"])
async def test_web(server: TestServer, partition: Path, url: str) -> None:
    address = f"{str(server.make_url('/')).rstrip('/')}{url.format(name=partition.name)}"
    assert await ids_of(address) == list(range(500, 700))


def test_uvloop(tmp_path: Path) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def read() -> list[Any]:
        directory = GOLDEN.copied_to(tmp_path / "bucket" / "db")
        await index_table(directory)
        with ColdStoreServer(tmp_path) as store:
            url = f"s3://bucket/db/{directory.name}"
            return await ids_of(url, storage_options=store.storage_options)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(read()) == list(range(500, 700))


async def test_obstore(partition: Path, tmp_path: Path) -> None:
    pytest.importorskip("obstore")
    from obstore.store import LocalStore  # noqa: PLC0415 - behind the check

    from coldparquet.storage.obstore_store import ObstoreStore  # noqa: PLC0415

    store = ObstoreStore(LocalStore(tmp_path / "bucket"), "db")
    async with cp.open_table("", store=store) as table:
        assert [found.name for found in table.partitions] == [partition.name]
        assert await table.scan(where=WHERE).count() == 200

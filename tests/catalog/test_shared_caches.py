"""What tables and processes share: never what is of another store, or of another query string."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

import coldparquet as cp
from coldparquet.maintenance.index import index_table
from tests.support.small_tables import QuotingStore
from tests.support.table_copies import copy_table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

NAMES = ("2024-01-01.2", "2024-01-02.1")


@pytest.fixture
async def directories(tmp_path: Path) -> list[Path]:
    """Two partitions with other rows."""
    path = copy_table("o3_in_place", tmp_path)
    await index_table(path)
    return [path / name for name in NAMES]


@pytest.fixture
def options(tmp_path: Path) -> cp.StoreOptions:
    return cp.StoreOptions(cache_directory=str(tmp_path / "cache"), sidecar_trust_s=3_600)


@pytest.fixture
async def server(directories: list[Path]) -> AsyncIterator[TestServer]:
    """The query string chooses the partition."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.FileResponse(directories[int(request.query["tenant"])] / request.match_info["name"])

    application = web.Application()
    application.router.add_get("/partition/{name}", answer)
    server = TestServer(application)
    await server.start_server()
    yield server
    await server.close()


async def answers(url: str | Path, **arguments: Any) -> list[object]:
    """What the sidecar, and what the data says."""
    async with cp.open_partition(url, **arguments) as partition:
        return [await partition.scan().max("ts"), (await partition.scan(["ts", "price"]).to_arrow()).to_pylist()]


async def test_stores_of_the_caller_share_nothing(
    directories: list[Path], options: cp.StoreOptions, tmp_path: Path
) -> None:
    expected = [await answers(directory) for directory in directories]
    assert expected[0] != expected[1]
    for directory, said in zip(directories, expected, strict=True):
        objects = {f"partition/{path.name}": path.read_bytes() for path in directory.iterdir()}
        assert await answers("partition", store=QuotingStore(objects), store_options=options) == said
    assert not (tmp_path / "cache").exists()


async def test_another_query_string_is_another_object(
    server: TestServer, directories: list[Path], options: cp.StoreOptions, tmp_path: Path
) -> None:
    for tenant in (0, 1, 0):
        url = str(server.make_url(f"/partition?tenant={tenant}"))
        assert await answers(url, store_options=options) == await answers(directories[tenant])
    assert (tmp_path / "cache").exists()

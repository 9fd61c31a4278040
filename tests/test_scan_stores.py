"""Reading from S3, web servers and in uvloop: which requests arrive, and what happens when they fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

import coldparquet as cp
from coldparquet.maintenance.index import index_table
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer
from tests.support.questdb_tables import PARTITIONS
from tests.support.s3_servers import MOTO_KEYS, boto3_client, moto_server

# --- Reading from S3, as the server sees it: which requests arrive, and what happens when they fail -------------------


GOLDEN = next(partition for partition in PARTITIONS if partition.table == "row_groups")
WHERE = "id >= 500 and id < 700"


@pytest.fixture
async def partition(tmp_path: Path) -> Path:
    """One genuine partition with its sidecar, in a directory that serves as a bucket."""
    directory = GOLDEN.copied_to(tmp_path / "bucket" / "db")
    await index_table(directory, pages=False, pack=False)
    return directory


def url_of(partition: Path) -> str:
    return f"s3://bucket/db/{partition.name}"


async def test_the_server_sees_four_requests_for_a_cold_read_and_none_for_a_warm_one(
    partition: Path, tmp_path: Path
) -> None:
    with ColdStoreServer(tmp_path) as server:
        async with cp.open_partition(url_of(partition), storage_options=server.storage_options) as opened:
            scan = opened.scan(["id", "half"], WHERE)
            rows = await scan.to_arrow()
            assert rows.column("id").to_pylist() == list(range(500, 700))
            assert sorted((served.method, served.path.rpartition("/")[2]) for served in server.requests) == [
                ("GET", "_pages"),
                ("GET", "_pm"),
                ("GET", "data.parquet"),
                ("HEAD", "data.parquet"),
            ]
            server.reset()
            assert (await scan.to_arrow()).equals(rows)
            assert not server.requests


async def test_a_table_is_listed_once(partition: Path, tmp_path: Path) -> None:
    with ColdStoreServer(tmp_path) as server:
        async with cp.open_table("s3://bucket/db", storage_options=server.storage_options) as table:
            assert [found.name for found in table.partitions] == [partition.name]
            assert await table.scan(where=WHERE).count() == 200
        assert [served.operation for served in server.requests].count("ListObjectsV2") == 1


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        # The sidecar and the size are asked for at once, and chance says which fails first. The answer to a HEAD has no
        # body: nothing in it says that the store wants us to slow down, and nothing of it can be cut.
        (ColdStoreOptions(error_503_probability=1.0), {"SlowDown", "ServerError"}),
        (ColdStoreOptions(cut_body_probability=1.0), {"ShortRead"}),
    ],
    ids=["503", "cut body"],
)
async def test_faults_are_errors_that_name_the_object(
    partition: Path, tmp_path: Path, options: ColdStoreOptions, kinds: set[str]
) -> None:
    with ColdStoreServer(tmp_path, options) as server:
        with pytest.raises(cp.errors.StorageError, match=partition.name) as caught:
            await cp.open_partition(
                url_of(partition), storage_options=server.storage_options, store_options=cp.StoreOptions(max_attempts=2)
            )
        assert caught.value.kind in kinds
        assert caught.value.details["attempts"] >= 2


@pytest.mark.usefixtures("partition")
async def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with ColdStoreServer(tmp_path) as server:
        with pytest.raises(cp.errors.NotFoundError, match=r"bucket/db/2031-01-01/data\.parquet"):
            await cp.open_partition("s3://bucket/db/2031-01-01", storage_options=server.storage_options)
        with pytest.raises(cp.errors.NotFoundError, match="nowhere") as caught:
            await cp.open_partition("s3://nowhere/db/x", storage_options=server.storage_options)
        assert caught.value.kind == "NoSuchBucket"


async def test_index_then_scan_on_moto() -> None:
    with moto_server() as url, boto3_client(url) as client:
        await index_and_scan(client, {**MOTO_KEYS, "endpoint_url": url})


async def index_and_scan(client: Any, options: dict[str, str]) -> None:
    client.create_bucket(Bucket="cold")
    key = f"db/{GOLDEN.directory.name}"
    client.put_object(Bucket="cold", Key=f"{key}/data.parquet", Body=(GOLDEN.directory / "data.parquet").read_bytes())
    report = await index_table("s3://cold/db", storage_options=options, pages=False, pack=False)
    assert [entry.action for entry in report.partitions] == ["written"]
    async with cp.open_table("s3://cold/db", storage_options=options) as table:
        rows = await table.scan(["id"], WHERE).to_arrow()
        assert rows.column("id").to_pylist() == list(range(500, 700))
        plan = await table.scan().plan()
        assert plan.partitions[0].metadata_source == "sidecar"

    data = (GOLDEN.directory / "data.parquet").read_bytes()
    client.put_object(Bucket="cold", Key=f"{key}/data.parquet", Body=data, StorageClass="DEEP_ARCHIVE")
    async with cp.open_partition(f"s3://cold/{key}", storage_options=options) as partition:
        assert await partition.scan().count() == GOLDEN.row_count, "without a restore"
        with pytest.raises(cp.errors.ArchivedObjectError, match="DEEP_ARCHIVE"):
            await partition.scan(["id"]).to_arrow()


# --- Reading from web servers and in uvloop's event loop, from a URL to rows ------------------------------------------


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
        await index_table(directory, pages=False, pack=False)
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

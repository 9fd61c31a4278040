"""Reading from S3, as the server sees it: which requests arrive, and what happens when they fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3
import pytest
from moto.server import ThreadedMotoServer

import coldparquet as cp
from coldparquet.maintenance.index import index_table
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer
from tests.support.questdb_tables import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GOLDEN = next(partition for partition in PARTITIONS if partition.table == "row_groups")
WHERE = "id >= 500 and id < 700"


@pytest.fixture
async def bucket(tmp_path: Path) -> Path:
    """A directory that serves as a bucket, with one genuine partition and its sidecar."""
    directory = GOLDEN.copied_to(tmp_path / "bucket" / "db")
    await index_table(directory)
    return directory


def url_of(partition: Path) -> str:
    return f"s3://bucket/db/{partition.name}"


async def test_the_server_sees_four_requests_for_a_cold_read_and_none_for_a_warm_one(
    bucket: Path, tmp_path: Path
) -> None:
    with ColdStoreServer(tmp_path) as server:
        async with cp.open_partition(url_of(bucket), storage_options=server.storage_options) as partition:
            scan = partition.scan(["id", "half"], WHERE)
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


async def test_a_table_is_listed_once(bucket: Path, tmp_path: Path) -> None:
    with ColdStoreServer(tmp_path) as server:
        async with cp.open_table("s3://bucket/db", storage_options=server.storage_options) as table:
            assert [partition.name for partition in table.partitions] == [bucket.name]
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
    bucket: Path, tmp_path: Path, options: ColdStoreOptions, kinds: set[str]
) -> None:
    with ColdStoreServer(tmp_path, options) as server:
        with pytest.raises(cp.errors.StorageError, match=bucket.name) as caught:
            await cp.open_partition(
                url_of(bucket), storage_options=server.storage_options, store_options=cp.StoreOptions(max_attempts=2)
            )
        assert caught.value.kind in kinds
        assert caught.value.details["attempts"] >= 2


@pytest.mark.usefixtures("bucket")
async def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with ColdStoreServer(tmp_path) as server:
        with pytest.raises(cp.errors.NotFoundError, match=r"bucket/db/2031-01-01/data\.parquet"):
            await cp.open_partition("s3://bucket/db/2031-01-01", storage_options=server.storage_options)
        with pytest.raises(cp.errors.NotFoundError, match="nowhere") as caught:
            await cp.open_partition("s3://nowhere/db/x", storage_options=server.storage_options)
        assert caught.value.kind == "NoSuchBucket"


@pytest.fixture(scope="module")
def moto_url() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


async def test_index_then_scan_on_moto(moto_url: str) -> None:
    credentials = {"key": "key", "secret": "secret"}
    client = boto3.client(
        "s3",
        endpoint_url=moto_url,
        aws_access_key_id=credentials["key"],
        aws_secret_access_key=credentials["secret"],
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="cold")
    key = f"db/{GOLDEN.directory.name}"
    client.put_object(Bucket="cold", Key=f"{key}/data.parquet", Body=(GOLDEN.directory / "data.parquet").read_bytes())
    options = {**credentials, "endpoint_url": moto_url}

    report = await index_table("s3://cold/db", storage_options=options)
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

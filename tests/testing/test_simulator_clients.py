"""Other people's readers on the simulated cold store: every one gets the table that was written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
import s3fs
from pyarrow.fs import S3FileSystem

from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "simulated"  # noqa: S105
TABLE = pa.table({"ts": range(20_000), "price": [number / 7 for number in range(20_000)]})
HALVES = ("2024-03-01", "2024-03-02=a b+c")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ColdStoreServer]:
    root = tmp_path_factory.mktemp("store")
    for number, name in enumerate(HALVES):
        path = root / "bucket" / "trades" / name / "data.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(TABLE.slice(number * 10_000, 10_000), path, row_group_size=2_500)
    with ColdStoreServer(root, ColdStoreOptions(first_byte_s=0.002, secret_key=SECRET)) as server:
        yield server


def test_boto3(server: ColdStoreServer) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=server.endpoint_url,
        aws_access_key_id="key",
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
    )
    keys = [entry["Key"] for entry in client.list_objects_v2(Bucket="bucket")["Contents"]]
    assert keys == [f"trades/{name}/data.parquet" for name in HALVES]
    for key in keys:
        tail = client.get_object(Bucket="bucket", Key=key, Range="bytes=-4")
        assert tail["Body"].read() == b"PAR1"
        assert client.head_object(Bucket="bucket", Key=key)["ETag"] == tail["ETag"]
    assert [entry["Name"] for entry in client.list_buckets()["Buckets"]] == ["bucket"]
    assert client.get_bucket_location(Bucket="bucket")["LocationConstraint"] is None
    client.head_bucket(Bucket="bucket")
    with pytest.raises(client.exceptions.NoSuchKey):
        client.get_object(Bucket="bucket", Key="absent")
    client.close()


def test_pyarrow(server: ColdStoreServer) -> None:
    filesystem = S3FileSystem(
        access_key="key", secret_key=SECRET, endpoint_override=server.endpoint_url, region="us-east-1"
    )
    assert pads.dataset("bucket/trades", filesystem=filesystem).to_table().equals(TABLE)


def test_polars(server: ColdStoreServer) -> None:
    options = {
        "aws_access_key_id": "key",
        "aws_secret_access_key": SECRET,
        "aws_endpoint_url": server.endpoint_url,
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }
    frame = pl.read_parquet("s3://bucket/trades/**/*.parquet", storage_options=options, hive_partitioning=False)
    assert frame.to_arrow().equals(TABLE)


def test_s3fs(server: ColdStoreServer) -> None:
    filesystem = s3fs.S3FileSystem(**server.storage_options, skip_instance_cache=True)
    assert filesystem.find("bucket/trades") == [f"bucket/trades/{name}/data.parquet" for name in HALVES]
    parts = [pq.read_table(f"bucket/trades/{name}/data.parquet", filesystem=filesystem) for name in HALVES]
    assert pa.concat_tables(parts).equals(TABLE)

"""Facts about real S3 servers that the library relies on, and reads from other servers than MinIO."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import boto3
import pytest

import coldparquet as cp
from coldparquet.errors import (
    ArchivedObjectError,
    InvalidInputError,
    ObjectChangedError,
    StorageError,
    UnsupportedError,
)
from coldparquet.maintenance.index import index_table
from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.records import replace
from coldparquet.storage.checked import read_whole
from coldparquet.storage.checksums import WholeObjectCheck, check_whole
from coldparquet.storage.open import open_store
from coldparquet.storage.requests import RangeRequest
from coldparquet.storage.s3.store import S3Store
from coldparquet_testing.store_contract import CONTENT, StoreContract, request_for
from tests.support.live_servers import LiveS3
from tests.support.questdb_tables import copy_parquet_partitions
from tests.support.random_tables import assert_identical, random_table

# --- What a real S3 server says of objects: checksums in all kinds, versions, presigned URLs --------------------------


pytestmark = pytest.mark.integration

MIB = 1024 * 1024


@pytest.fixture
def client(minio: LiveS3) -> Iterator[Any]:
    client = boto3.client(
        "s3",
        endpoint_url=minio.endpoint_url,
        aws_access_key_id=minio.user,
        aws_secret_access_key=minio.password,
        region_name="us-east-1",
    )
    yield client
    client.close()


@pytest.fixture
async def minio_store(minio: LiveS3) -> AsyncIterator[S3Store]:
    minio_store = S3Store(storage_options=minio.storage_options)
    yield minio_store
    await minio_store.aclose()


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME"])
async def test_checksums(minio_store: S3Store, client: Any, minio: LiveS3, algorithm: str) -> None:
    client.put_object(Bucket=minio.bucket, Key=algorithm, Body=CONTENT, ChecksumAlgorithm=algorithm)
    path = f"{minio.bucket}/{algorithm}"
    stored = (await minio_store.info(path)).checksum
    assert stored is not None
    assert (stored.algorithm, stored.part_count) == (algorithm, None)
    await check_whole(CONTENT, stored, path=path)
    with pytest.raises(StorageError):
        await check_whole(CONTENT[::-1], replace(stored), path=path)
    ranged = await minio_store.get(request_for(path, SuffixRange(5000)))
    assert (ranged.data, ranged.checksum) == (CONTENT, None)
    whole = RangeRequest(
        path=path, byte_range=ByteRange(0, MIB), reason="all of it", may_be_short=True, wants_whole=True
    )
    answer = await minio_store.get(whole)
    assert (answer.data, answer.checksum) == (CONTENT, stored)


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [("CRC32", "COMPOSITE"), ("CRC32C", "COMPOSITE"), ("CRC32", "FULL_OBJECT"), ("CRC64NVME", "FULL_OBJECT")],
)
async def test_checksums_of_parts(minio_store: S3Store, client: Any, minio: LiveS3, algorithm: str, kind: str) -> None:
    key, data = f"parts-{algorithm}-{kind}", bytes(range(256)) * (6 * MIB // 256)
    place = {"Bucket": minio.bucket, "Key": key}
    upload = client.create_multipart_upload(**place, ChecksumAlgorithm=algorithm, ChecksumType=kind)["UploadId"]
    parts = []
    for number, part in enumerate((data[: 5 * MIB], data[5 * MIB :]), start=1):
        sent = client.upload_part(**place, UploadId=upload, PartNumber=number, Body=part, ChecksumAlgorithm=algorithm)
        name = f"Checksum{algorithm}"
        parts.append({"PartNumber": number, "ETag": sent["ETag"], name: sent[name]})
    client.complete_multipart_upload(**place, UploadId=upload, MultipartUpload={"Parts": parts}, ChecksumType=kind)
    path = f"{minio.bucket}/{key}"
    stored = (await minio_store.info(path)).checksum
    assert stored is not None
    assert (stored.algorithm, stored.part_count) == (algorithm, 2 if kind == "COMPOSITE" else None)
    check = WholeObjectCheck(stored, size_bytes=len(data))
    await check.update(data)
    assert check.is_match() is True
    assert (await minio_store.get(request_for(path, ByteRange(0, len(data))))).data == data


async def test_unchanged_objects_and_restores(minio_store: S3Store, client: Any, minio: LiveS3) -> None:
    etag = client.put_object(Bucket=minio.bucket, Key="u", Body=CONTENT)["ETag"]
    path = f"{minio.bucket}/u"
    request = RangeRequest(path=path, byte_range=ByteRange(0, 4), reason="again", if_none_match=etag)
    assert (await minio_store.get(request)).is_unchanged
    assert (await minio_store.info(path)).storage_class == "STANDARD"
    with pytest.raises((InvalidInputError, UnsupportedError)):
        await minio_store.restore(path, days=1, tier="Standard")


async def test_presigned_urls(client: Any, minio: LiveS3) -> None:
    etag = client.put_object(Bucket=minio.bucket, Key="a b/é=1", Body=CONTENT)["ETag"]
    url = client.generate_presigned_url("get_object", Params={"Bucket": minio.bucket, "Key": "a b/é=1"})
    minio_store, path = open_store(url)
    assert (await minio_store.get(request_for(path, ByteRange(2, 6), if_match=etag))).data == CONTENT[2:6]
    assert (await minio_store.get(request_for(path, SuffixRange(8)))).start == len(CONTENT) - 8
    found = await minio_store.info(path)
    assert (found.size_bytes, found.etag) == (len(CONTENT), etag)
    client.put_object(Bucket=minio.bucket, Key="a b/é=1", Body=CONTENT[::-1])
    with pytest.raises(ObjectChangedError):
        await minio_store.get(request_for(path, ByteRange(2, 6), if_match=etag))
    await minio_store.aclose()


async def test_versions(minio_store: S3Store, client: Any, minio: LiveS3) -> None:
    client.create_bucket(Bucket="versions")
    client.put_bucket_versioning(Bucket="versions", VersioningConfiguration={"Status": "Enabled"})
    first = client.put_object(Bucket="versions", Key="v", Body=b"first")["VersionId"]
    client.put_object(Bucket="versions", Key="v", Body=b"the second")
    pinned, path = open_store(f"s3://versions/v?versionId={first}", storage_options=minio.storage_options)
    assert (await pinned.get(request_for(path, ByteRange(0, 64), may_be_short=True))).data == b"first"
    assert (await pinned.info(path)).version_id == first
    await pinned.aclose()
    assert (await minio_store.get(request_for("versions/v", ByteRange(0, 3)))).data == b"the"


# --- Two more S3 servers, not written by us: the contract of every store, and rows that come back as they went --------


_places = itertools.count()


@pytest.fixture(scope="module", params=["versitygw", "localstack"])
def server(request: pytest.FixtureRequest) -> LiveS3:
    return cast("LiveS3", request.getfixturevalue(request.param))


@pytest.fixture
async def store(server: LiveS3) -> AsyncIterator[S3Store]:
    store = S3Store(storage_options=server.storage_options)
    yield store
    await store.aclose()


@pytest.fixture
def root(server: LiveS3) -> str:
    return f"{server.bucket}/db/trades{next(_places)}"


class TestS3StoreOnOtherServers(StoreContract):
    """The contract of every store; ``store`` and ``root`` are the module's fixtures."""


@pytest.mark.parametrize("seed", [0, 6])
async def test_random_tables_are_indexed_and_read(server: LiveS3, tmp_path: Path, seed: int) -> None:
    table = await random_table(seed)
    for partition in (await table.store.list("table")).directories:
        target = tmp_path / partition / "data.parquet"
        target.parent.mkdir(parents=True)
        target.write_bytes((await read_whole(table.store, f"{partition}/data.parquet")).data)
    server.upload(tmp_path / "table", f"random{seed}")
    url, keys = f"s3://{server.bucket}/random{seed}", server.storage_options
    await index_table(url, storage_options=keys, pages=False, pack=False)
    assert any(key.endswith("/_pm") for key in server.keys(f"random{seed}/"))
    async with cp.open_table(url, storage_options=keys) as opened:
        assert_identical(await opened.scan().to_arrow(), table.rows)


@pytest.mark.parametrize("storage_class", ["GLACIER", "DEEP_ARCHIVE"])
async def test_localstack_archives_and_restores(localstack: LiveS3, tmp_path: Path, storage_class: str) -> None:
    table = copy_parquet_partitions("interval_day", tmp_path / "table")
    await index_table(table, pages=False, pack=False)
    async with cp.open_table(table) as opened:
        expected = await opened.scan().to_arrow()
    url, keys = f"s3://{localstack.bucket}/{storage_class.lower()}", localstack.storage_options
    store = S3Store(storage_options=keys)
    for file in [path for path in table.rglob("*") if path.is_file()]:
        key = f"{url.removeprefix('s3://')}/{file.relative_to(table).as_posix()}"
        in_class = storage_class if file.name == "data.parquet" else None
        await store.put(key, file.read_bytes(), overwrite=False, storage_class=in_class)
    await store.aclose()
    async with cp.open_table(url, storage_options=keys) as opened:
        with pytest.raises(ArchivedObjectError) as refused:
            await opened.scan().to_arrow()
        assert refused.value.details["storage_classes"] == [storage_class]
        ticket = await opened.scan().restore(cp.RestoreTerms(tier="Bulk", days=1))
        await ticket.wait(storage_options=keys, first_pause_s=0.01)
        assert_identical(await opened.scan().to_arrow(), expected)

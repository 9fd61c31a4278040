"""What a real S3 server says of objects: checksums in all kinds, versions, presigned URLs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from coldparquet.errors import InvalidInputError, ObjectChangedError, StorageError, UnsupportedError
from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.storage.checksums import WholeObjectCheck, check_whole
from coldparquet.storage.open import open_store
from coldparquet.storage.requests import RangeRequest
from coldparquet.storage.s3.store import S3Store
from coldparquet_testing.store_contract import CONTENT, request_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.support.live_servers import LiveS3

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
async def store(minio: LiveS3) -> AsyncIterator[S3Store]:
    store = S3Store(storage_options=minio.storage_options)
    yield store
    await store.aclose()


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME"])
async def test_checksums(store: S3Store, client: Any, minio: LiveS3, algorithm: str) -> None:
    client.put_object(Bucket=minio.bucket, Key=algorithm, Body=CONTENT, ChecksumAlgorithm=algorithm)
    path = f"{minio.bucket}/{algorithm}"
    stored = (await store.info(path)).checksum
    assert stored is not None
    assert (stored.algorithm, stored.part_count) == (algorithm, None)
    await check_whole(CONTENT, stored, path=path)
    with pytest.raises(StorageError):
        await check_whole(CONTENT[::-1], replace(stored), path=path)
    ranged = await store.get(request_for(path, SuffixRange(5000)))
    assert (ranged.data, ranged.checksum) == (CONTENT, None)
    whole = RangeRequest(
        path=path, byte_range=ByteRange(0, MIB), reason="all of it", may_be_short=True, wants_whole=True
    )
    answer = await store.get(whole)
    assert (answer.data, answer.checksum) == (CONTENT, stored)


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [("CRC32", "COMPOSITE"), ("CRC32C", "COMPOSITE"), ("CRC32", "FULL_OBJECT"), ("CRC64NVME", "FULL_OBJECT")],
)
async def test_checksums_of_parts(store: S3Store, client: Any, minio: LiveS3, algorithm: str, kind: str) -> None:
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
    stored = (await store.info(path)).checksum
    assert stored is not None
    assert (stored.algorithm, stored.part_count) == (algorithm, 2 if kind == "COMPOSITE" else None)
    check = WholeObjectCheck(stored, size_bytes=len(data))
    await check.update(data)
    assert check.is_match() is True
    assert (await store.get(request_for(path, ByteRange(0, len(data))))).data == data


async def test_unchanged_objects_and_restores(store: S3Store, client: Any, minio: LiveS3) -> None:
    etag = client.put_object(Bucket=minio.bucket, Key="u", Body=CONTENT)["ETag"]
    path = f"{minio.bucket}/u"
    request = RangeRequest(path=path, byte_range=ByteRange(0, 4), reason="again", if_none_match=etag)
    assert (await store.get(request)).is_unchanged
    assert (await store.info(path)).storage_class == "STANDARD"
    with pytest.raises((InvalidInputError, UnsupportedError)):
        await store.restore(path, days=1, tier="Standard")


async def test_presigned_urls(client: Any, minio: LiveS3) -> None:
    etag = client.put_object(Bucket=minio.bucket, Key="a b/é=1", Body=CONTENT)["ETag"]
    url = client.generate_presigned_url("get_object", Params={"Bucket": minio.bucket, "Key": "a b/é=1"})
    store, path = open_store(url)
    assert (await store.get(request_for(path, ByteRange(2, 6), if_match=etag))).data == CONTENT[2:6]
    assert (await store.get(request_for(path, SuffixRange(8)))).start == len(CONTENT) - 8
    found = await store.info(path)
    assert (found.size_bytes, found.etag) == (len(CONTENT), etag)
    client.put_object(Bucket=minio.bucket, Key="a b/é=1", Body=CONTENT[::-1])
    with pytest.raises(ObjectChangedError):
        await store.get(request_for(path, ByteRange(2, 6), if_match=etag))
    await store.aclose()


async def test_versions(store: S3Store, client: Any, minio: LiveS3) -> None:
    client.create_bucket(Bucket="versions")
    client.put_bucket_versioning(Bucket="versions", VersioningConfiguration={"Status": "Enabled"})
    first = client.put_object(Bucket="versions", Key="v", Body=b"first")["VersionId"]
    client.put_object(Bucket="versions", Key="v", Body=b"the second")
    pinned, path = open_store(f"s3://versions/v?versionId={first}", storage_options=minio.storage_options)
    assert (await pinned.get(request_for(path, ByteRange(0, 64), may_be_short=True))).data == b"first"
    assert (await pinned.info(path)).version_id == first
    await pinned.aclose()
    assert (await store.get(request_for("versions/v", ByteRange(0, 3)))).data == b"the"

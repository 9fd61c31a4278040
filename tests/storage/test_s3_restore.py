"""Cold classes over S3: what HEAD tells, restores, versions and whole-object checksums."""

from __future__ import annotations

import base64
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

import coldparquet as cp
from coldparquet.errors import (
    ArchivedObjectError,
    ColdParquetError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from coldparquet.prices import RestoreTier
from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.open import open_store
from coldparquet.storage.requests import ObjectInfo, RangeRequest, RestoreState, StoredChecksum
from coldparquet.storage.s3.store import S3Store
from coldparquet.storage.s3.xml import info_from_headers
from coldparquet_testing.store_contract import CONTENT, request_for
from tests.support.questdb_tables import PARTITIONS
from tests.support.s3_servers import MOTO_KEYS, boto3_client, moto_server

RESTORED = 'ongoing-request="false", expiry-date="Fri, 21 Dec 2012 00:00:00 GMT"'


@pytest.fixture(scope="module")
def moto() -> Iterator[tuple[str, Any]]:
    with moto_server() as url, boto3_client(url) as client:
        client.create_bucket(Bucket="versioned")
        client.put_bucket_versioning(Bucket="versioned", VersioningConfiguration={"Status": "Enabled"})
        yield url, client


@pytest.fixture
async def store(moto: tuple[str, Any]) -> AsyncIterator[S3Store]:
    store = S3Store(storage_options={**MOTO_KEYS, "endpoint_url": moto[0]})
    yield store
    await store.aclose()


@pytest.mark.parametrize("storage_class", ["GLACIER", "DEEP_ARCHIVE"])
async def test_restore_of_an_archived_object(store: S3Store, moto: tuple[str, Any], storage_class: str) -> None:
    moto[1].put_object(Bucket="versioned", Key="cold", Body=CONTENT, StorageClass=storage_class)
    before = await store.info("versioned/cold")
    assert (before.storage_class, before.restore, before.size_bytes) == (storage_class, None, len(CONTENT))
    with pytest.raises(ArchivedObjectError):
        await store.get(request_for("versioned/cold", ByteRange(0, 4)))
    await store.restore("versioned/cold", days=2, tier="Bulk")
    after = await store.info("versioned/cold")
    assert after.restore is not None
    assert not after.restore.is_ongoing
    assert after.restore.expires_s is not None
    assert (await store.get(request_for("versioned/cold", ByteRange(0, 4)))).data == CONTENT[:4]
    await store.restore("versioned/cold", days=3, tier="Standard")  # stays longer


async def test_restore_of_an_ordinary_and_of_no_object(store: S3Store, moto: tuple[str, Any]) -> None:
    moto[1].put_object(Bucket="versioned", Key="warm", Body=CONTENT)
    assert (await store.info("versioned/warm")).storage_class == "STANDARD"
    with pytest.raises(InvalidInputError) as caught:
        await store.restore("versioned/warm", days=1, tier="Standard")
    assert (caught.value.kind, caught.value.path) == ("NotArchived", "versioned/warm")
    with pytest.raises(NotFoundError):
        await store.restore("versioned/absent", days=1, tier="Standard")


async def test_versions(store: S3Store, moto: tuple[str, Any]) -> None:
    first = moto[1].put_object(Bucket="versioned", Key="v", Body=b"first")["VersionId"]
    second = moto[1].put_object(Bucket="versioned", Key="v", Body=b"the second")["VersionId"]
    assert (await store.get(request_for("versioned/v", ByteRange(0, 5)))).data == b"the s"
    assert (await store.info("versioned/v")).version_id == second
    pinned, path = open_store(
        f"s3://versioned/v?versionId={first}", storage_options={**MOTO_KEYS, "endpoint_url": moto[0]}
    )
    assert (await pinned.get(request_for(path, ByteRange(0, 64), may_be_short=True))).data == b"first"
    assert (await pinned.info(path)).size_bytes == 5
    with pytest.raises(NotFoundError):  # a sidecar describes the newest version
        await pinned.get(request_for("versioned/_pm", ByteRange(0, 64), may_be_short=True))
    await pinned.aclose()


async def test_unchanged_object(store: S3Store, moto: tuple[str, Any]) -> None:
    etag = moto[1].put_object(Bucket="versioned", Key="u", Body=CONTENT)["ETag"]
    for asked, start in ((ByteRange(8, 16), 8), (SuffixRange(8), 0)):
        request = RangeRequest(path="versioned/u", byte_range=asked, reason="again", if_none_match=etag)
        fetched = await store.get(request)
        assert (fetched.is_unchanged, fetched.data, fetched.start, fetched.etag) == (True, b"", start, etag)
    moto[1].put_object(Bucket="versioned", Key="u", Body=CONTENT[::-1])
    fetched = await store.get(
        RangeRequest(path="versioned/u", byte_range=ByteRange(0, 4), reason="again", if_none_match=etag)
    )
    assert (fetched.is_unchanged, fetched.data) == (False, CONTENT[::-1][:4])


@dataclass
class Scripted:
    """Answers every request alike, and remembers them."""

    status: int = 200
    body: bytes = b""
    endpoint_url: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[web.Request, bytes]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        self.requests.append((request, await request.read()))
        return web.Response(status=self.status, body=self.body, headers=self.headers)


@pytest.fixture
async def scripted() -> AsyncIterator[tuple[Scripted, S3Store]]:
    script = Scripted()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", script.answer)
    server = TestServer(application)
    await server.start_server()
    script.endpoint_url = str(server.make_url(""))
    store = S3Store(storage_options={"anon": True, "endpoint_url": script.endpoint_url, "requester_pays": True})
    yield script, store
    await store.aclose()
    await server.close()


async def test_what_a_restore_request_says(scripted: tuple[Scripted, S3Store]) -> None:
    script, store = scripted
    script.status = 202
    await store.restore("versioned/moved for good", days=0, tier="Standard")
    options = {"anon": True, "endpoint_url": script.endpoint_url}
    pinned = S3Store(storage_options=options, versions={"versioned/pinned": "v1"})
    await pinned.restore("versioned/pinned", days=7, tier="Bulk")
    await pinned.aclose()
    (first, body_without_days), (second, body) = script.requests
    assert (first.method, first.raw_path) == ("POST", "/versioned/moved%20for%20good?restore=")
    assert first.headers["x-amz-request-payer"] == "requester"
    assert b"Days" not in body_without_days
    assert second.raw_path == "/versioned/pinned?restore=&versionId=v1"
    assert b"<Days>7</Days>" in body
    assert b"<GlacierJobParameters><Tier>Bulk</Tier></GlacierJobParameters>" in body


Refusal: TypeAlias = "tuple[int, str, RestoreTier, type[ColdParquetError] | None, str]"
REFUSALS: list[Refusal] = [
    (409, "RestoreAlreadyInProgress", "Standard", None, ""),
    (403, "InvalidObjectState", "Standard", InvalidInputError, "NotArchived"),
    (503, "GlacierExpeditedRetrievalNotAvailable", "Expedited", StorageError, "TierNotAvailable"),
    (400, "InvalidArgument", "Expedited", UnsupportedError, "TierNotOffered"),
    (400, "InvalidArgument", "Standard", StorageError, "RequestRefused"),
    (501, "NotImplemented", "Standard", UnsupportedError, "Unsupported"),
    (405, "MethodNotAllowed", "Standard", UnsupportedError, "Unsupported"),
    (503, "SlowDown", "Standard", StorageError, "SlowDown"),
]


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_refused_restores(scripted: tuple[Scripted, S3Store], refusal: Refusal) -> None:
    script, store = scripted
    status, code, tier, expected, kind = refusal
    script.status, script.body = status, f"<Error><Code>{code}</Code></Error>".encode()
    if expected is None:
        await store.restore("versioned/cold", days=1, tier=tier)
        return
    with pytest.raises(expected) as caught:
        await store.restore("versioned/cold", days=1, tier=tier)
    assert (caught.value.kind, caught.value.path) == (kind, "versioned/cold")
    assert len(script.requests) == 1


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, ObjectInfo(path="k", size_bytes=None, etag=None, storage_class="STANDARD")),
        (
            {"x-amz-storage-class": "GLACIER", "x-amz-restore": 'ongoing-request="true"', "Content-Length": "7"},
            ObjectInfo(
                path="k", size_bytes=7, etag=None, storage_class="GLACIER", restore=RestoreState(is_ongoing=True)
            ),
        ),
        (
            {"x-amz-restore": RESTORED, "x-amz-version-id": "v1"},
            ObjectInfo(
                path="k",
                size_bytes=None,
                etag=None,
                storage_class="STANDARD",
                restore=RestoreState(is_ongoing=False, expires_s=1356048000.0),
                version_id="v1",
            ),
        ),
        (
            {"x-amz-storage-class": "INTELLIGENT_TIERING", "x-amz-archive-status": "DEEP_ARCHIVE_ACCESS"},
            ObjectInfo(
                path="k",
                size_bytes=None,
                etag=None,
                storage_class="INTELLIGENT_TIERING",
                archive_status="DEEP_ARCHIVE_ACCESS",
            ),
        ),
        (
            {
                "x-amz-archive-status": "nonsense",
                "x-amz-restore": "nonsense",
                "Last-Modified": "yesterday",
                "Content-Length": "-1",
                "x-amz-checksum-crc32": "====",
                "x-amz-checksum-crc32c": "AAAA",
            },
            ObjectInfo(path="k", size_bytes=None, etag=None, storage_class="STANDARD"),
        ),
        (
            {"x-amz-checksum-crc64nvme": base64.b64encode(bytes(range(8))).decode(), "ETag": f'"{"0" * 32}-3"'},
            ObjectInfo(
                path="k",
                size_bytes=None,
                etag=f'"{"0" * 32}-3"',
                storage_class="STANDARD",
                checksum=StoredChecksum(value=0x0001020304050607, algorithm="CRC64NVME"),
            ),
        ),
        (
            {"x-amz-checksum-crc32c": base64.b64encode(b"\0\0\0\1").decode() + "-2"},
            ObjectInfo(
                path="k",
                size_bytes=None,
                etag=None,
                storage_class="STANDARD",
                checksum=StoredChecksum(value=1, algorithm="CRC32C", part_count=2),
            ),
        ),
    ],
)
def test_what_headers_tell(headers: dict[str, str], expected: ObjectInfo) -> None:
    assert info_from_headers("k", headers) == expected


@pytest.mark.parametrize("asked", [ByteRange(0, len(CONTENT)), ByteRange(0, 5000), SuffixRange(5000)])
async def test_a_whole_object_is_compared_with_its_checksum(
    scripted: tuple[Scripted, S3Store], asked: ByteRange | SuffixRange
) -> None:
    script, store = scripted
    script.status, script.body = 206, CONTENT
    script.headers["Content-Range"] = f"bytes 0-{len(CONTENT) - 1}/{len(CONTENT)}"
    for crc32, is_right in ((zlib.crc32(CONTENT), True), (1, False)):
        script.headers["x-amz-checksum-crc32"] = base64.b64encode(crc32.to_bytes(4, "big")).decode()
        request, checked = request_for("versioned/key", asked, may_be_short=True), CheckedStore(store)
        if is_right:
            assert (await checked.get(request)).data == CONTENT
            continue
        with pytest.raises(StorageError) as caught:
            await checked.get(request)
        assert (caught.value.kind, caught.value.path) == ("ChecksumMismatch", "versioned/key")
    assert script.requests[0][0].headers["x-amz-checksum-mode"] == "ENABLED"


async def test_a_part_of_an_object_has_no_checksum(scripted: tuple[Scripted, S3Store]) -> None:
    script, store = scripted
    wrong = {"x-amz-checksum-crc32": base64.b64encode(bytes(4)).decode()}  # of the whole object, as rclone sends it
    script.status, script.body = 206, CONTENT[:10]
    script.headers = {"Content-Range": f"bytes 0-9/{len(CONTENT)}", **wrong}
    checked = CheckedStore(store)
    assert (await checked.get(request_for("versioned/key", ByteRange(0, 10)))).data == CONTENT[:10]
    script.headers = {"Content-Range": f"bytes 10-19/{len(CONTENT)}", **wrong}
    await checked.get(request_for("versioned/key", ByteRange(10, 20)))
    assert "x-amz-checksum-mode" not in script.requests[1][0].headers


async def test_an_old_version_is_scanned(moto: tuple[str, Any]) -> None:
    golden = next(partition for partition in PARTITIONS if partition.table == "row_groups").directory
    key, data = f"db/{golden.name}/data.parquet", (golden / "data.parquet").read_bytes()
    first = moto[1].put_object(Bucket="versioned", Key=key, Body=data)["VersionId"]
    moto[1].put_object(Bucket="versioned", Key=key, Body=b"something else")
    url = f"s3://versioned/{key}?versionId={first}"
    async with cp.open_partition(url, storage_options={**MOTO_KEYS, "endpoint_url": moto[0]}) as partition:
        assert await partition.scan(where="id >= 500 and id < 700").count() == 200

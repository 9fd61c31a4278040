"""The stores of obstore behind our interface."""

from __future__ import annotations

from typing import Any

import pytest

from coldparquet.errors import (
    AccessError,
    ArchivedObjectError,
    ColdParquetError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.storage.requests import RangeRequest
from coldparquet_testing.store_contract import CONTENT, StoreContract, request_for
from tests.support.s3_servers import MOTO_KEYS, boto3_client, moto_server

pytest.importorskip("obstore")

from collections.abc import Iterator

import obstore
from obstore import exceptions as obstore_errors
from obstore import store as stores

from coldparquet.storage.obstore_store import ObstoreStore


class TestMemory(StoreContract):
    @pytest.fixture
    def store(self) -> ObstoreStore:
        return ObstoreStore(stores.MemoryStore())

    @pytest.fixture
    def root(self) -> str:
        return "bucket/trades"


@pytest.fixture(scope="module")
def endpoint_url() -> Iterator[str]:
    with moto_server() as url, boto3_client(url) as client:
        client.create_bucket(Bucket="obstore")
        client.put_object(Bucket="obstore", Key="cold", Body=CONTENT, StorageClass="GLACIER")
        client.put_object(Bucket="obstore", Key="trades/data", Body=CONTENT)
        client.put_object(Bucket="obstore", Key="trades/empty", Body=b"")
        yield url


@pytest.fixture
def s3(endpoint_url: str) -> Any:
    return stores.S3Store(
        "obstore",
        endpoint=endpoint_url,
        access_key_id=MOTO_KEYS["key"],
        secret_access_key=MOTO_KEYS["secret"],
        region="us-east-1",
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )


async def test_s3_behind_a_prefix(s3: Any) -> None:
    store = ObstoreStore(s3, "/trades/", label="ours")
    assert store.label == "ours"
    assert (await store.get(request_for("data", ByteRange(2, 6)))).data == CONTENT[2:6]
    assert (await store.get(request_for("/data", SuffixRange(4)))).start == len(CONTENT) - 4
    for byte_range in (ByteRange(0, 64), SuffixRange(64)):
        assert (await store.get(request_for("empty", byte_range, may_be_short=True))).data == b""
    past = await store.get(request_for("data", ByteRange(5000, 6000), may_be_short=True))
    assert (past.data, past.start, past.object_size_bytes) == (b"", 5000, len(CONTENT))
    assert [info.path for info in (await store.list("")).objects] == ["data", "empty"]
    with pytest.raises(NotFoundError) as caught:
        await store.get(request_for("absent", ByteRange(0, 4)))
    assert caught.value.path == "absent"


async def test_unchanged_and_archived_objects(s3: Any) -> None:
    store = ObstoreStore(s3)
    etag = (await store.info("trades/data")).etag
    request = RangeRequest(path="trades/data", byte_range=ByteRange(8, 16), reason="again", if_none_match=etag)
    fetched = await store.get(request)
    assert (fetched.is_unchanged, fetched.data, fetched.start, fetched.etag) == (True, b"", 8, etag)
    with pytest.raises(ArchivedObjectError):
        await store.get(request_for("cold", ByteRange(0, 4)))
    with pytest.raises(UnsupportedError):
        await store.restore("cold", days=1, tier="Standard")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (obstore_errors.PermissionDeniedError("no"), AccessError),
        (obstore_errors.UnauthenticatedError("no"), AccessError),
        (obstore_errors.NotSupportedError("no"), UnsupportedError),
        (obstore_errors.InvalidPathError("no"), InvalidInputError),
        (obstore_errors.GenericError("https://host/key?X-Amz-Signature=abc123 failed\nDebug: abc123"), StorageError),
        (RuntimeError("https://host/key?X-Amz-Signature=abc123"), StorageError),
    ],
)
async def test_errors(monkeypatch: pytest.MonkeyPatch, error: Exception, expected: type[ColdParquetError]) -> None:
    async def fail(*_arguments: Any, **_options: Any) -> Any:
        raise error

    monkeypatch.setattr(obstore, "head_async", fail)
    with pytest.raises(expected) as caught:
        await ObstoreStore(stores.MemoryStore()).info("key")
    assert caught.value.path == "key"
    assert caught.value.__context__ is None
    assert "abc123" not in str(caught.value.as_dict())


async def test_a_failure_stays_one_if_the_range_was_not_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObstoreStore(stores.MemoryStore())
    await store.put("data", CONTENT, overwrite=False)

    async def fail(*_arguments: Any, **_options: Any) -> Any:
        raise obstore_errors.GenericError("the network is down")

    monkeypatch.setattr(obstore, "get_async", fail)
    with pytest.raises(StorageError, match="network is down") as caught:
        await store.get(request_for("data", ByteRange(0, 10), may_be_short=True))
    assert caught.value.details["byte_range"] == ByteRange(0, 10)

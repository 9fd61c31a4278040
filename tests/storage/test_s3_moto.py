"""S3Store against moto: an S3 that others wrote."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from coldparquet.errors import ArchivedObjectError, NotFoundError
from coldparquet.ranges import ByteRange
from coldparquet.storage.s3.store import S3Store
from coldparquet_testing.store_contract import StoreContract, request_for
from tests.support.s3_servers import MOTO_KEYS, boto3_client, moto_server

_places = itertools.count()


@pytest.fixture(scope="module")
def moto() -> Iterator[tuple[str, Any]]:
    """A server, and boto3's client for it."""
    with moto_server() as url, boto3_client(url) as client:
        client.create_bucket(Bucket="bucket")
        yield url, client


@pytest.fixture
def client(moto: tuple[str, Any]) -> Any:
    return moto[1]


@pytest.fixture
async def store(moto: tuple[str, Any]) -> AsyncIterator[S3Store]:
    store = S3Store(storage_options={**MOTO_KEYS, "endpoint_url": moto[0]})
    yield store
    await store.aclose()


@pytest.fixture
def root() -> str:
    return f"bucket/db/trades{next(_places)}"


class TestS3StoreOnMoto(StoreContract):
    """The contract of every store; ``store`` and ``root`` are the module's fixtures."""

    knows_upload_times = False


async def test_missing_bucket_is_told_from_missing_object(store: S3Store, root: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        await store.get(request_for("nowhere/key", ByteRange(0, 4)))
    assert caught.value.kind == "NoSuchBucket"
    with pytest.raises(NotFoundError) as caught:
        await store.get(request_for(f"{root}/key", ByteRange(0, 4)))
    assert (caught.value.kind, caught.value.details["code"]) == ("NotFound", "NoSuchKey")
    with pytest.raises(NotFoundError, match="there is no such object or directory; check the path"):
        await store.list(f"{root}/nowhere")
    for call in (store.list("nowhere"), store.put("nowhere/key", b"", overwrite=True)):
        with pytest.raises(NotFoundError) as caught:
            await call
        assert caught.value.kind == "NoSuchBucket"


async def test_archived_object(store: S3Store, client: Any) -> None:
    client.put_object(Bucket="bucket", Key="old", Body=b"cold", StorageClass="GLACIER")
    with pytest.raises(ArchivedObjectError, match=r"GLACIER.*restore") as caught:
        await store.get(request_for("bucket/old", ByteRange(0, 4)))
    assert caught.value.details["storage_class"] == "GLACIER"
    assert caught.value.path == "bucket/old"


async def test_directory_marker_is_an_empty_directory(store: S3Store, client: Any) -> None:
    client.put_object(Bucket="bucket", Key="marked/", Body=b"")
    listing = await store.list("bucket/marked")
    assert (listing.directories, listing.objects) == ((), ())


async def test_large_object_makes_the_round_trip(store: S3Store, root: str) -> None:
    data = bytes(range(256)) * 8192
    await store.put(f"{root}/large", data, overwrite=False)
    fetched = await store.get(request_for(f"{root}/large", ByteRange(0, len(data))))
    assert fetched.data == data


async def test_closed_store_opens_again(store: S3Store, root: str) -> None:
    await store.put(f"{root}/x", b"abcd", overwrite=False)
    await store.aclose()
    assert (await store.get(request_for(f"{root}/x", ByteRange(1, 3)))).data == b"bc"

"""S3Store against the simulated cold store, which checks every signature over the path that really arrived."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from coldparquet.errors import AccessError, InvalidInputError, NotFoundError, ObjectChangedError, StorageError
from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.storage.s3.store import S3Store
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer
from coldparquet_testing.store_contract import StoreContract, request_for

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"  # noqa: S105 - AWS's own example
CONTENT = bytes(range(256)) * 1024

ODD_NAMES = (
    "plain",
    "a b",
    "a+b",
    "a%20b",
    "100%",
    "symbol=BTC",
    "é漢😀",
    "a:b@c,d;e!f*g'h(i)j$k&l",
    "2024-03-01T00:00:00.000000Z",
    "#?",
    "~.-_",
    "tail.",
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ColdStoreServer]:
    folder = tmp_path / "bucket" / "db"
    for name in ODD_NAMES:
        (folder / name).mkdir(parents=True)
        (folder / name / name).write_bytes(CONTENT)
    with ColdStoreServer(tmp_path, ColdStoreOptions(secret_key=SECRET)) as server:
        yield server


@pytest.fixture
async def store(server: ColdStoreServer) -> AsyncIterator[S3Store]:
    store = S3Store(storage_options=server.storage_options)
    yield store
    await store.aclose()


class TestS3StoreOnSimulator(StoreContract):
    """The contract of every store, with every signature checked."""

    @pytest.fixture
    def root(self) -> str:
        return "bucket/contract"


@pytest.mark.parametrize(("days", "pages"), [((0, 1199), 3), ((100, 200), 1), ((100, 699), 2), ((1199, 1199), 1)])
async def test_pages_between_two_paths_are_fetched_up_to_the_last_one(
    server: ColdStoreServer, store: S3Store, tmp_path: Path, days: tuple[int, int], pages: int
) -> None:
    root, (first, last) = "bucket/days", days
    paths = [f"{root}/day {day:04}/{name}" for day in range(1200) for name in ("_pm", "data.parquet")]
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"abc")
    start, stop = f"{root}/day {first:04}/", f"{root}/day {last:04}/\U0010ffff"
    listed = await store.list_between(root, start=start, stop=stop)
    assert [info.path for info in listed] == paths[2 * first : 2 * last + 2]
    assert all(info.etag is not None and info.size_bytes == 3 for info in listed)
    assert len(server.requests) == pages


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_any_key_is_encoded_and_signed_alike(server: ColdStoreServer, store: S3Store, name: str) -> None:
    path = f"bucket/db/{name}/{name}"
    assert (await store.get(request_for(path, ByteRange(5, 70_000)))).data == CONTENT[5:70_000]
    (info,) = (await store.list(f"bucket/db/{name}")).objects
    assert (info.path, info.size_bytes) == (path, len(CONTENT))
    assert [request.path for request in server.requests] == [path, "bucket"]


async def test_names_come_back_from_a_listing(store: S3Store) -> None:
    assert (await store.list("bucket/db")).directories == tuple(sorted(f"bucket/db/{name}" for name in ODD_NAMES))
    assert (await store.list("bucket/")).directories == ("bucket/db",)


async def test_one_call_is_one_request(server: ColdStoreServer, store: S3Store) -> None:
    fetched = await store.get(request_for("bucket/db/plain/plain", SuffixRange(8)))
    await store.get(request_for("bucket/db/plain/plain", ByteRange(0, 4), if_match=fetched.etag))
    await store.list("bucket/db")
    assert [(request.operation, request.range_header) for request in server.requests] == [
        ("GetObject", "bytes=-8"),
        ("GetObject", "bytes=0-3"),
        ("ListObjectsV2", None),
    ]


async def test_listing_goes_over_several_pages(server: ColdStoreServer, store: S3Store, tmp_path: Path) -> None:
    for number in range(2_001):
        (tmp_path / "bucket" / "many" / f"{number:04}").mkdir(parents=True)
        (tmp_path / "bucket" / "many" / f"{number:04}" / "_pm").touch()
    listing = await store.list("bucket/many")
    assert listing.directories == tuple(f"bucket/many/{number:04}" for number in range(2_001))
    assert listing.is_complete
    assert len(server.requests) == 3
    first = await store.list("bucket/many", first_page_only=True)
    assert (first.directories, first.is_complete) == (listing.directories[:1_000], False)
    assert len(server.requests) == 4


async def test_replaced_object(store: S3Store, tmp_path: Path) -> None:
    path = "bucket/db/plain/plain"
    fetched = await store.get(request_for(path, ByteRange(0, 4)))
    (tmp_path / path).write_bytes(CONTENT + b"more")
    with pytest.raises(ObjectChangedError):
        await store.get(request_for(path, ByteRange(0, 4), if_match=fetched.etag))
    (tmp_path / path).unlink()
    with pytest.raises(NotFoundError):
        await store.get(request_for(path, ByteRange(0, 4), if_match=fetched.etag))


async def test_wrong_secret_and_no_secret(server: ColdStoreServer) -> None:
    for options, kind in (
        ({"secret": "wrong"}, "SignatureDoesNotMatch"),
        ({"anon": True}, "AccessDenied"),
    ):
        store = S3Store(storage_options={**server.storage_options, **options})
        with pytest.raises(AccessError) as caught:
            await store.get(request_for("bucket/db/plain/plain", ByteRange(0, 4)))
        await store.aclose()
        assert caught.value.kind == kind


async def test_session_token_and_requester_pays_are_signed(server: ColdStoreServer) -> None:
    store = S3Store(storage_options={**server.storage_options, "token": "token/+=", "requester_pays": True})
    fetched = await store.get(request_for("bucket/db/plain/plain", ByteRange(0, 4)))
    await store.aclose()
    assert fetched.data == CONTENT[:4]


async def test_faults_of_the_store_become_errors(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "x").write_bytes(CONTENT)
    for options, kind in (
        (ColdStoreOptions(error_503_probability=1), "SlowDown"),
        (ColdStoreOptions(cut_body_probability=1), "ShortRead"),
    ):
        with ColdStoreServer(tmp_path, options) as server:
            store = S3Store(storage_options=server.storage_options)
            with pytest.raises(StorageError) as caught:
                await store.get(request_for("bucket/x", ByteRange(0, len(CONTENT))))
            await store.aclose()
        assert caught.value.kind == kind


async def test_requests_share_the_waiting_time(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "x").write_bytes(CONTENT)
    with ColdStoreServer(tmp_path, ColdStoreOptions(first_byte_s=0.2)) as server:
        store = S3Store(storage_options=server.storage_options)
        ranges = [ByteRange(start, start + 100) for start in range(0, 3_200, 100)]
        answers = await asyncio.gather(*(store.get(request_for("bucket/x", asked)) for asked in ranges))
        await store.aclose()
        first_end_s = min(request.finished_s for request in server.requests)
        together = sum(request.started_s < first_end_s for request in server.requests)
    assert b"".join(answer.data for answer in answers) == CONTENT[:3_200]
    assert together > 1


async def test_paths_that_cannot_be(store: S3Store) -> None:
    for path in ("bucket", "bucket/", "", "b@d/key", "a:b/key"):
        with pytest.raises(InvalidInputError):
            await store.get(request_for(path, ByteRange(0, 4)))


def test_store_belongs_to_one_event_loop(server: ColdStoreServer) -> None:
    store = S3Store(storage_options=server.storage_options)
    path = "bucket/db/plain/plain"

    async def fetch() -> bytes:
        return (await store.get(request_for(path, ByteRange(0, 4)))).data

    with asyncio.Runner() as first, asyncio.Runner() as second:
        assert first.run(fetch()) == CONTENT[:4]
        with pytest.raises(InvalidInputError, match="event loop"):
            second.run(fetch())
        first.run(store.aclose())

"""Tests that every object store must pass, those of this library and of its users.

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def store(self):
            store = MyStore()
            yield store
            await store.aclose()

        @pytest.fixture
        def root(self):
            return "bucket/some/empty/place"

Needs pytest and pytest-asyncio.
"""
# ruff: noqa: S101, D102 - these are tests: they assert, and their names say what they show

from __future__ import annotations

import asyncio
import time
import zlib
from typing import TYPE_CHECKING

import pytest

from coldparquet.errors import InvalidInputError, NotFoundError, ObjectChangedError, UnsupportedError
from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.storage.requests import RangeRequest, StoredChecksum

if TYPE_CHECKING:
    from coldparquet.storage.base import ObjectStore

CONTENT = bytes(range(256)) * 4


def request_for(
    path: str, byte_range: ByteRange | SuffixRange, *, if_match: str | None = None, may_be_short: bool = False
) -> RangeRequest:
    """Make a request as the tests need it."""
    return RangeRequest(
        path=path, byte_range=byte_range, reason="contract", if_match=if_match, may_be_short=may_be_short
    )


class StoreContract:
    """What a store promises, as tests. Subclasses give two fixtures: ``store`` and ``root``, an empty place in it."""

    knows_versions = True
    """False for stores that answer ``etag=None``; they must refuse ``if_match``."""
    replaces_atomically = True
    """False where a reader may see half of an object that is being replaced."""
    knows_upload_times = True
    """False where every upload seems to be old."""
    least_part_bytes = 5 * 1024 * 1024
    """Shortest part of an upload, other than the last: what S3 demands."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    async def path(self, store: ObjectStore, root: str) -> str:
        path = f"{root}/2024-03-01/data.parquet"
        await store.put(path, CONTENT, overwrite=False)
        return path

    @pytest.mark.parametrize(("start", "stop"), [(0, 1), (0, 1024), (100, 357), (1023, 1024)])
    async def test_range(self, store: ObjectStore, path: str, start: int, stop: int) -> None:
        fetched = await store.get(request_for(path, ByteRange(start, stop)))
        assert (fetched.start, fetched.data) == (start, CONTENT[start:stop])
        assert fetched.object_size_bytes in (None, len(CONTENT))
        assert (fetched.etag is not None) == self.knows_versions

    @pytest.mark.parametrize(("start", "stop"), [(1000, 1025), (0, 10**9), (1024, 1025), (5000, 6000)])
    async def test_range_is_clipped_at_the_end(self, store: ObjectStore, path: str, start: int, stop: int) -> None:
        fetched = await store.get(request_for(path, ByteRange(start, stop), may_be_short=True))
        assert (fetched.start, fetched.data) == (start, CONTENT[start:stop])

    @pytest.mark.parametrize("length_bytes", [1, 8, 1024, 4096])
    async def test_suffix_says_where_it_begins(self, store: ObjectStore, path: str, length_bytes: int) -> None:
        fetched = await store.get(request_for(path, SuffixRange(length_bytes)))
        assert fetched.data == CONTENT[-length_bytes:]
        assert fetched.start == len(CONTENT) - len(fetched.data)
        assert fetched.object_size_bytes == len(CONTENT)

    async def test_empty_object(self, store: ObjectStore, root: str) -> None:
        await store.put(f"{root}/empty", b"", overwrite=False)
        assert (await store.get(request_for(f"{root}/empty", ByteRange(0, 64), may_be_short=True))).data == b""
        assert (await store.get(request_for(f"{root}/empty", SuffixRange(64)))).data == b""

    async def test_unusual_names(self, store: ObjectStore, root: str) -> None:
        path = f"{root}/a b+c%20d/é=1,(x)/data.parquet"
        await store.put(path, CONTENT, overwrite=False)
        assert (await store.get(request_for(path, ByteRange(0, 4)))).data == CONTENT[:4]
        assert (await store.list(root)).directories == (f"{root}/a b+c%20d",)
        assert (await store.list(f"{root}/a b+c%20d/é=1,(x)")).objects[0].path == path

    @pytest.mark.parametrize("below", ["2024-03-01/_pm", "2024-03-02/_pm", "2024-03-01"])
    async def test_missing_object(self, store: ObjectStore, root: str, path: str, below: str) -> None:
        assert path == f"{root}/2024-03-01/data.parquet"
        for byte_range in (ByteRange(0, 4), SuffixRange(4)):
            with pytest.raises(NotFoundError) as caught:
                await store.get(request_for(f"{root}/{below}", byte_range))
            assert caught.value.path == f"{root}/{below}"

    async def test_if_match(self, store: ObjectStore, path: str) -> None:
        if not self.knows_versions:
            with pytest.raises(UnsupportedError):
                await store.get(request_for(path, ByteRange(0, 4), if_match="version"))
            return
        first = await store.get(request_for(path, ByteRange(0, 4)))
        again = await store.get(request_for(path, SuffixRange(4), if_match=first.etag))
        assert again.etag == first.etag
        await store.put(path, CONTENT[::-1], overwrite=True)
        with pytest.raises(ObjectChangedError) as caught:
            await store.get(request_for(path, ByteRange(0, 4), if_match=first.etag))
        assert caught.value.path == path
        assert (await store.get(request_for(path, ByteRange(0, 4)))).etag != first.etag

    @pytest.mark.parametrize("slash", ["", "/"])
    async def test_list_one_level(self, store: ObjectStore, root: str, path: str, slash: str) -> None:
        await store.put(f"{root}/_txn", b"transactions", overwrite=False)
        await store.put(f"{root}/2024-03-01/.hidden/deep", b"", overwrite=False)
        await store.put(f"{root}/2024-03-01x", b"", overwrite=False)
        table = await store.list(root + slash)
        assert table.directories == (f"{root}/2024-03-01",)
        assert [(info.path, info.size_bytes) for info in table.objects] == [
            (f"{root}/2024-03-01x", 0),
            (f"{root}/_txn", 12),
        ]
        partition = await store.list(f"{root}/2024-03-01{slash}")
        assert partition.directories == (f"{root}/2024-03-01/.hidden",)
        assert [(info.path, info.size_bytes) for info in partition.objects] == [(path, len(CONTENT))]

    async def test_list_tells_the_version_that_get_tells(self, store: ObjectStore, root: str, path: str) -> None:
        (info,) = (await store.list(f"{root}/2024-03-01")).objects
        fetched = await store.get(request_for(path, ByteRange(0, 1)))
        assert info.etag in (None, fetched.etag)

    async def test_list_between_two_paths(self, store: ObjectStore, root: str, path: str) -> None:
        for name in ("2024-03-00/_pm", "2024-03-02/_pm", "2024-03-02/deep/er", "2024-03-03/_pm", "_txn"):
            await store.put(f"{root}/{name}", b"abc", overwrite=False)
        if not store.has_version_listings:
            with pytest.raises(UnsupportedError):
                await store.list_between(root, start=f"{root}/2024-03-01/", stop=f"{root}/2024-03-03/")
            return
        listed = await store.list_between(root, start=f"{root}/2024-03-01/", stop=f"{root}/2024-03-03/")
        names = [path.removeprefix(f"{root}/"), "2024-03-02/_pm", "2024-03-02/deep/er"]
        assert [info.path.removeprefix(f"{root}/") for info in listed] == names
        for info in listed:
            fetched = await store.get(request_for(info.path, ByteRange(0, 1)))
            assert (info.etag, info.size_bytes) == (fetched.etag, fetched.object_size_bytes)
        assert await store.list_between(root, start=f"{root}/2030", stop=f"{root}/2031") == ()

    async def test_list_of_nothing(self, store: ObjectStore, root: str, path: str) -> None:
        with pytest.raises(NotFoundError):
            await store.list(f"{root}/absent")
        with pytest.raises(NotFoundError):
            await store.list(path)

    async def test_put_replaces_only_when_allowed(self, store: ObjectStore, root: str, path: str) -> None:
        with pytest.raises(InvalidInputError) as caught:
            await store.put(path, b"other", overwrite=False)
        assert (caught.value.kind, caught.value.path) == ("AlreadyExists", path)
        assert (await store.get(request_for(path, ByteRange(0, 2048), may_be_short=True))).data == CONTENT
        await store.put(path, b"other", overwrite=True)
        assert (await store.get(request_for(path, ByteRange(0, 2048), may_be_short=True))).data == b"other"
        assert [info.path for info in (await store.list(f"{root}/2024-03-01")).objects] == [path]

    async def test_readers_see_the_old_or_the_new_object(self, store: ObjectStore, path: str) -> None:
        if not self.replaces_atomically:
            pytest.skip("this store does not promise it")
        versions = [bytes([number]) * 200_000 for number in range(6)]
        await store.put(path, versions[0], overwrite=True)

        async def replace_it() -> None:
            for version in versions[1:]:
                await store.put(path, version, overwrite=True)

        writer = asyncio.create_task(replace_it())
        seen = []
        while not writer.done():
            fetched = await store.get(request_for(path, ByteRange(0, 200_000)))
            seen.append(fetched.data)
            await asyncio.sleep(0)
        await writer
        assert all(data in versions for data in seen)

    async def test_put_returns_the_version(self, store: ObjectStore, root: str) -> None:
        etag = await store.put(f"{root}/x", CONTENT, overwrite=False)
        assert etag == (await store.get(request_for(f"{root}/x", ByteRange(0, 4)))).etag
        assert (etag is not None) == self.knows_versions

    async def test_put_if_match(self, store: ObjectStore, root: str) -> None:
        path = f"{root}/_txn"
        first = await store.put(path, b"first", overwrite=False)
        if first is None:
            with pytest.raises(UnsupportedError):
                await store.put(path, b"second", overwrite=True, if_match="version")
            return
        second = await store.put(path, b"second", overwrite=True, if_match=first)
        for stale in (first, '"never-seen"'):
            with pytest.raises(ObjectChangedError) as caught:
                await store.put(path, b"third", overwrite=True, if_match=stale)
            assert caught.value.path == path
        with pytest.raises(ObjectChangedError):
            await store.put(f"{root}/absent", b"third", overwrite=True, if_match=first)
        found = await store.get(request_for(path, ByteRange(0, 64), may_be_short=True))
        assert (found.data, found.etag) == (b"second", second)
        assert [info.path for info in (await store.list(root)).objects] == [path]

    async def test_of_many_conditional_puts_one_wins(self, store: ObjectStore, root: str) -> None:
        if not self.knows_versions:
            pytest.skip("this store cannot compare versions")
        path = f"{root}/_txn"
        first = await store.put(path, b"first", overwrite=False)
        versions = [f"version {number}".encode() for number in range(8)]
        outcomes = await asyncio.gather(
            *(store.put(path, data, overwrite=True, if_match=first) for data in versions), return_exceptions=True
        )
        winners = [index for index, outcome in enumerate(outcomes) if not isinstance(outcome, ObjectChangedError)]
        found = await store.get(request_for(path, ByteRange(0, 64), may_be_short=True))
        assert len(winners) == 1
        assert (found.data, found.etag) == (versions[winners[0]], outcomes[winners[0]])

    async def test_info(self, store: ObjectStore, root: str, path: str) -> None:
        found = await store.info(path)
        assert (found.path, found.size_bytes) == (path, len(CONTENT))
        assert found.etag == (await store.get(request_for(path, ByteRange(0, 4)))).etag
        assert found.checksum in (None, StoredChecksum(value=zlib.crc32(CONTENT)))
        assert found.modified_s is None or abs(found.modified_s - time.time()) < 3600
        for absent in (f"{root}/absent", f"{root}/2024-03-01"):
            with pytest.raises(NotFoundError) as caught:
                await store.info(absent)
            assert caught.value.path == absent

    async def test_first_page_of_a_listing(self, store: ObjectStore, root: str, path: str) -> None:
        listing = await store.list(root, first_page_only=True)
        assert listing == await store.list(root)
        assert listing.is_complete
        assert path.startswith(f"{listing.directories[0]}/")

    async def test_upload_in_parts(self, store: ObjectStore, root: str) -> None:
        path, data = f"{root}/2024-03-01/data.parquet", bytes(range(251)) * (self.least_part_bytes // 250)
        middle = self.least_part_bytes
        upload = await store.start_upload(path)
        last = await store.upload_part(upload, 2, start=middle, data=data[middle:])
        first = await store.upload_part(upload, 1, start=0, data=data[:middle])
        with pytest.raises(NotFoundError):  # not visible yet
            await store.info(path)
        etag = await store.finish_upload(upload, [first, last], overwrite=False)
        fetched = await store.get(request_for(path, ByteRange(0, len(data))))
        assert fetched.data == data
        assert etag in (None, fetched.etag)
        expected = (StoredChecksum(value=zlib.crc32(data)), StoredChecksum.of_parts([first.crc32, last.crc32]))
        assert (await store.info(path)).checksum in (None, *expected)
        assert [info.path for info in (await store.list(f"{root}/2024-03-01")).objects] == [path]

    async def test_upload_in_parts_keeps_its_condition(self, store: ObjectStore, root: str, path: str) -> None:
        upload = await store.start_upload(path)
        part = await store.upload_part(upload, 1, start=0, data=b"other")
        with pytest.raises(InvalidInputError) as caught:
            await store.finish_upload(upload, [part], overwrite=False)
        assert (caught.value.kind, caught.value.path) == ("AlreadyExists", path)
        await store.abort_upload(upload)
        found = await store.get(request_for(path, ByteRange(0, 2048), may_be_short=True))
        assert found.data == CONTENT
        upload = await store.start_upload(path)
        part = await store.upload_part(upload, 1, start=0, data=b"other")
        await store.finish_upload(upload, [part], overwrite=True)
        assert (await store.get(request_for(path, ByteRange(0, 64), may_be_short=True))).data == b"other"
        assert [info.path for info in (await store.list(f"{root}/2024-03-01")).objects] == [path]

    async def test_aborted_and_killed_uploads_leave_nothing(self, store: ObjectStore, root: str, path: str) -> None:
        folder = path.rpartition("/")[0]
        upload = await store.start_upload(f"{folder}/aborted")
        await store.upload_part(upload, 1, start=0, data=CONTENT)
        for _ in range(2):
            await store.abort_upload(upload)
        killed = await store.start_upload(f"{folder}/killed")
        await store.upload_part(killed, 1, start=0, data=CONTENT)
        if self.knows_upload_times:
            assert await store.remove_unfinished(root, started_before_s=time.time() - 3600) == 0
        assert await store.remove_unfinished(f"{root}/elsewhere", started_before_s=time.time() + 3600) == 0
        assert await store.remove_unfinished(root, started_before_s=time.time() + 3600) in (0, 1)
        await store.abort_upload(killed)
        assert [info.path for info in (await store.list(folder)).objects] == [path]

    async def test_delete(self, store: ObjectStore, root: str, path: str) -> None:
        await store.put(f"{root}/kept", CONTENT, overwrite=False)
        await store.put(f"{root}/a b&<c>", CONTENT, overwrite=False)
        await store.delete([path, f"{root}/a b&<c>", f"{root}/absent"])
        await store.delete([])
        assert [info.path for info in (await store.list(root)).objects] == [f"{root}/kept"]
        with pytest.raises(NotFoundError):
            await store.info(path)

    async def test_many_requests_at_once(self, store: ObjectStore, path: str) -> None:
        ranges = [ByteRange(start, start + 16) for start in range(0, 1024, 16)]
        answers = await asyncio.gather(*(store.get(request_for(path, byte_range)) for byte_range in ranges))
        assert b"".join(answer.data for answer in answers) == CONTENT

    @pytest.mark.parametrize("turns", [0, 1, 3, 10])
    async def test_cancelled_put_leaves_all_or_nothing(self, store: ObjectStore, root: str, turns: int) -> None:
        await store.put(f"{root}/kept", b"kept", overwrite=False)
        data = bytes(1_000_000)
        writer = asyncio.create_task(store.put(f"{root}/cancelled", data, overwrite=False))
        for _ in range(turns):
            await asyncio.sleep(0)
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)
        objects = {info.path: info.size_bytes for info in (await store.list(root)).objects}
        assert objects in ({f"{root}/kept": 4}, {f"{root}/kept": 4, f"{root}/cancelled": len(data)})

    async def test_cancelled_get_leaves_the_store_usable(self, store: ObjectStore, path: str) -> None:
        reader = asyncio.create_task(store.get(request_for(path, ByteRange(0, 4))))
        await asyncio.sleep(0)
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
        assert (await store.get(request_for(path, ByteRange(0, 4)))).data == CONTENT[:4]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    async def test_closing_twice(self, store: ObjectStore, path: str) -> None:
        await store.get(request_for(path, ByteRange(0, 4)))
        await store.aclose()
        await store.aclose()

    async def test_label_is_for_people(self, store: ObjectStore) -> None:
        assert store.label
        assert "secret" not in store.label

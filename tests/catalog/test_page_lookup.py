"""Looking for pages: which requests it takes, and that nothing about an optional file is an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from coldparquet.catalog import pages as page_lookup
from coldparquet.catalog.pages import PAGES_FILE, look_up_pages_file, parse_pages_lookup, read_page_index
from coldparquet.catalog.table_files import PartitionLocation, partition_location
from coldparquet.errors import AccessError, NotFoundError, ObjectChangedError, StorageError
from coldparquet.format import page_index
from coldparquet.format.page_index import page_index_range
from coldparquet.format.pages_file import encode_pages_file
from coldparquet.ranges import ByteRange
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.log import TraceStore, metadata_requests
from coldparquet.storage.memory import MemoryStore
from tests.support.paged_files import PagedFile, assert_same_pages, paged_file, pages_by_chunk, written
from tests.support.questdb_tables import PARTITIONS

if TYPE_CHECKING:
    from coldparquet.storage.requests import FetchedRange, RangeRequest
    from tests.support.questdb_tables import GoldenPartition

FILE = paged_file()
PATH = "table/2024-03-01"
LOCATION = partition_location(f"{PATH}/data.parquet")


def pages_file(etag: str = "") -> bytes:
    pages = FILE.indexed().pages
    assert pages is not None
    return encode_pages_file(pages, FILE.places, parquet_size_bytes=len(FILE.data), etag=etag)


async def store_with(**objects: bytes) -> TraceStore:
    """A store with these objects in the partition's directory; ``data`` is its Parquet file."""
    memory = MemoryStore()
    for name, content in objects.items():
        await memory.put(f"{PATH}/{'data.parquet' if name == 'data' else name}", content, overwrite=False)
    return TraceStore(CheckedStore(memory))


def sent(store: TraceStore) -> list[tuple[str, Any, str]]:
    return [(record.path.rpartition("/")[2], record.byte_range, record.reason) for record in store.records]


async def test_one_request_brings_the_file() -> None:
    data = pages_file()
    store = await store_with(_pages=data)
    with metadata_requests() as spent:
        lookup = await look_up_pages_file(store, LOCATION)
    assert (lookup.path, lookup.data, lookup.problem) == (f"{PATH}/{PAGES_FILE}", data, None)
    assert sent(store) == [("_pages", ByteRange(0, 262_144), "page index")]
    assert [(request.reason, request.fetched_bytes) for request in spent] == [("page index", len(data))]
    found = await parse_pages_lookup(lookup, FILE.sidecar)
    assert_same_pages(found.pages, FILE.indexed().pages)
    assert found.notes == ()


async def test_absence_is_normal_and_costs_one_request() -> None:
    store = await store_with()
    with metadata_requests() as spent:
        lookup = await look_up_pages_file(store, LOCATION)
    assert (lookup.data, lookup.problem) == (None, None)
    assert [(request.reason, request.fetched_bytes) for request in spent] == [("no _pages", 0)]
    found = await parse_pages_lookup(lookup, FILE.sidecar)
    assert (found.pages, found.notes) == (None, ())


async def test_a_parquet_file_of_another_name_has_none_and_nothing_is_asked() -> None:
    store = await store_with()
    lookup = await look_up_pages_file(store, partition_location("table/trades.parquet"))
    assert lookup.data is None
    assert sent(store) == []


@pytest.mark.parametrize("first_bytes", [68, 100])
async def test_a_larger_file_takes_two_requests(monkeypatch: pytest.MonkeyPatch, first_bytes: int) -> None:
    monkeypatch.setattr(page_lookup, "_FIRST_REQUEST_BYTES", first_bytes)
    data = pages_file()
    store = await store_with(_pages=data)
    lookup = await look_up_pages_file(store, LOCATION)
    assert lookup.data == data
    assert [byte_range for _, byte_range, _ in sent(store)] == [
        ByteRange(0, first_bytes),
        ByteRange(first_bytes, len(data)),
    ]


@pytest.mark.parametrize("stated_bytes", [1 << 30, (1 << 64) - 1])
async def test_no_file_is_read_that_says_it_is_huge(stated_bytes: int) -> None:
    data = bytearray(pages_file())
    data[16:24] = stated_bytes.to_bytes(8, "little")
    store = await store_with(_pages=bytes(data))
    lookup = await look_up_pages_file(store, LOCATION)
    assert lookup.data is None
    assert len(sent(store)) == 1
    found = await parse_pages_lookup(lookup, FILE.sidecar)
    assert found.pages is None
    assert found.notes[0].startswith("_pages is not used: it says that it has ")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "0 bytes that do not begin as a _pages file does"),
        (b"<html>not found</html>" * 10, "220 bytes that do not begin as a _pages file does"),
        (pages_file()[:-1], "the file has"),
        (pages_file()[:-1] + b"!", "its CRC-32 is"),
    ],
)
async def test_a_damaged_file_is_a_note(content: bytes, reason: str) -> None:
    store = await store_with(_pages=content)
    found = await parse_pages_lookup(await look_up_pages_file(store, LOCATION), FILE.sidecar)
    assert found.pages is None
    [note] = found.notes
    assert note.startswith(f"_pages is not used: {reason}")


async def test_a_file_of_another_version_is_a_note() -> None:
    store = await store_with(_pages=pages_file('"one"'))
    lookup = await look_up_pages_file(store, LOCATION)
    assert (await parse_pages_lookup(lookup, FILE.sidecar, etag='"one"')).pages is not None
    for sidecar, etag in ((FILE.sidecar, '"two"'), (paged_file(row_group_size=1_000).sidecar, None)):
        found = await parse_pages_lookup(lookup, sidecar, etag=etag)
        assert found.pages is None
        assert found.notes[0].startswith("_pages is not used: it was made for ")


class FailingStore(MemoryStore):
    """Fails from its n-th request on."""

    def __init__(self, error: Exception, *, after: int) -> None:
        super().__init__()
        self._error = error
        self._left = after

    async def get(self, request: RangeRequest) -> FetchedRange:
        if self._left == 0:
            raise self._error
        self._left -= 1
        return await super().get(request)


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize(
    "error",
    [AccessError("403"), StorageError("the disk is broken"), ObjectChangedError("it was replaced")],
    ids=lambda error: error.kind,
)
async def test_a_store_that_does_not_give_it_is_as_good_as_one_without_it(
    monkeypatch: pytest.MonkeyPatch, error: Exception, after: int
) -> None:
    """S3 answers 403 for an object that does not exist where listing is not allowed."""
    monkeypatch.setattr(page_lookup, "_FIRST_REQUEST_BYTES", 100)
    store = FailingStore(error, after=after)
    await store.put(f"{PATH}/_pages", pages_file(), overwrite=False)
    lookup = await look_up_pages_file(store, LOCATION)
    assert lookup.data is None
    assert lookup.problem == f"it could not be fetched: {error}"
    assert (await parse_pages_lookup(lookup, FILE.sidecar)).notes == (f"_pages is not used: {lookup.problem}",)


async def test_the_page_index_of_the_file_takes_one_request() -> None:
    store = await store_with(data=FILE.data)
    with metadata_requests() as spent:
        found = await read_page_index(store, LOCATION, FILE.sidecar)
    assert_same_pages(found.pages, FILE.indexed().pages)
    assert (found.notes, found.etag) == ((), "1")
    behind_chunks = ByteRange(int(FILE.places.stops.max()), len(FILE.data))
    assert sent(store) == [("data.parquet", behind_chunks, "page index")]
    assert [(request.byte_range, request.fetched_bytes) for request in spent] == [
        (behind_chunks, behind_chunks.length_bytes)
    ]


async def test_of_the_page_index_only_what_is_asked_for_is_returned() -> None:
    store = await store_with(data=FILE.data)
    found = await read_page_index(store, LOCATION, FILE.sidecar, row_groups=np.array([1]), columns=[0, 3])
    assert_same_pages(found.pages, FILE.indexed(row_groups=[1], columns=[0, 3]).pages)


async def test_of_a_long_tail_just_the_end_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The indexes of the last chunks lie at the end: those before are not found, and that is all."""
    footer_bytes = len(FILE.data) - FILE.footer.offset
    monkeypatch.setattr(page_index, "LARGEST_INDEX_BYTES", footer_bytes + 100)
    store = await store_with(data=FILE.data)
    found = await read_page_index(store, LOCATION, FILE.sidecar)
    known = pages_by_chunk(found.pages)
    assert 0 < len(known) < FILE.places.chunk_count or found.pages is None
    assert "it does not lie right before the footer" in found.notes[0]
    monkeypatch.setattr(page_index, "LARGEST_INDEX_BYTES", footer_bytes - 1)
    found = await read_page_index(await store_with(data=FILE.data), LOCATION, FILE.sidecar)
    assert found.pages is None
    assert found.notes == (
        f"the page index is not used: the Parquet footer alone has more than {footer_bytes - 1:,} bytes",
    )


@pytest.mark.parametrize("name", [partition for partition in PARTITIONS if partition.table == "o3_in_place"], ids=str)
async def test_indexes_from_before_an_update_are_read_if_asked_for(name: GoldenPartition) -> None:
    """QuestDB appended row groups, which have no index, behind the one that it had written."""
    file = PagedFile.of((name.directory / "data.parquet").read_bytes())
    store = await store_with(data=file.data)
    just_the_end = await read_page_index(store, LOCATION, file.sidecar)
    assert just_the_end.pages is None
    assert len(sent(store)) == 1
    store.clear()
    found = await read_page_index(store, LOCATION, file.sidecar, also_earlier=True)
    assert_same_pages(found.pages, file.indexed_anywhere().pages)
    assert pages_by_chunk(found.pages)
    (_, end, _), (_, earlier, reason) = sent(store)
    assert (end, reason) == (page_index_range(file.sidecar), "page index")
    assert earlier.stop < end.start


async def test_a_file_without_an_index_says_so() -> None:
    plain = PagedFile.of(written())
    store = await store_with(data=plain.data)
    found = await read_page_index(store, LOCATION, plain.sidecar)
    assert found.pages is None
    assert found.notes == ("column 'ts' of row group 0 and 17 more column chunks have no page index",)


async def test_a_damaged_footer_is_a_note() -> None:
    data = bytearray(FILE.data)
    data[-30:-8] = b"\xff" * 22
    found = await read_page_index(await store_with(data=bytes(data)), LOCATION, FILE.sidecar)
    assert found.pages is None
    assert found.notes[0].startswith("the page index is not used: ")


async def test_trouble_with_the_parquet_file_itself_is_an_error() -> None:
    with pytest.raises(NotFoundError):
        await read_page_index(await store_with(), LOCATION, FILE.sidecar)
    with pytest.raises(ObjectChangedError):
        await read_page_index(await store_with(data=FILE.data[:-1]), LOCATION, FILE.sidecar)


def test_locations_are_known_from_the_path() -> None:
    assert isinstance(LOCATION, PartitionLocation)
    assert LOCATION.directory_path == PATH

"""How sidecars and page indexes are fetched and kept: from one cache, in parts, shared, at the lowest cost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

import coldparquet as cp
from coldparquet.catalog import pages as page_lookup
from coldparquet.catalog.caches import SidecarCache
from coldparquet.catalog.pages import PAGES_FILE, look_up_pages_file, parse_pages_lookup, read_page_index
from coldparquet.catalog.partition import SidecarLookup, look_up_sidecar
from coldparquet.catalog.table_files import PartitionLocation, partition_location
from coldparquet.errors import AccessError, NotFoundError, ObjectChangedError, StorageError
from coldparquet.format import page_index
from coldparquet.format.page_index import encode_pages_file, page_index_range
from coldparquet.format.partition_records import PartitionRecord
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.maintenance.index import index_table
from coldparquet.plan.model import MetadataRequest
from coldparquet.ranges import ByteRange
from coldparquet.records import replace
from coldparquet.storage.cache import Cache, MemoryCache
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.disk_cache import DiskCache
from coldparquet.storage.log import TraceStore, metadata_requests
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.open import open_store
from coldparquet.storage.requests import FetchedRange, RangeRequest
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.disk_caches import poison
from tests.support.paged_files import PagedFile, assert_same_pages, paged_file, pages_by_chunk, written
from tests.support.questdb_tables import PARTITIONS, GoldenPartition
from tests.support.small_tables import QuotingStore
from tests.support.table_copies import copy_table

# --- Kept sidecars: asked about, trusted, or fetched anew; never used where they say something else than the table ----


SIDECARS = Path(__file__).resolve().parents[1] / "golden" / "pm"
OLD, NEW = ((SIDECARS / name).read_bytes() for name in ("03_sample_a.pm", "15_five_groups.pm"))
DIRECTORY = "table/2024-03-01"
LOCATION = PartitionLocation(
    name="2024-03-01",
    directory_path=DIRECTORY,
    data_path=f"{DIRECTORY}/data.parquet",
    sidecar_path=f"{DIRECTORY}/_pm",
    directory=None,
)


class Setting:
    """A store with one sidecar, and readers that come one after the other."""

    def __init__(self, disk: DiskCache | None = None, *, trust_s: float = 0.0, has_memory: bool = True) -> None:
        self.objects: MemoryStore = QuotingStore({f"{DIRECTORY}/_pm": OLD})
        self.now_s = 1_000_000.0
        self.disk = disk
        memory = MemoryCache(1_000_000 if has_memory else 0)
        cache = Cache("sidecar", lambda: self.objects.label, memory=memory, disk=disk)
        self.cache = SidecarCache(cache, trust_s=trust_s, clock=lambda: self.now_s)
        self.spent: list[MetadataRequest] = []

    async def look_up(self, *, prefix_bytes: int = 65_536, location: PartitionLocation = LOCATION) -> SidecarLookup:
        """Look the sidecar up as a new reader does; what that cost is in ``spent``."""
        self.spent = []
        trace = TraceStore(self.objects)
        options = cp.ReadOptions(sidecar_prefix_bytes=prefix_bytes)
        with metadata_requests(self.spent):
            found = await look_up_sidecar(CheckedStore(trace), location, options, cache=self.cache)
        assert len(trace.records) == len(self.spent)
        if self.disk is not None:
            self.disk.flush()
        return found

    @property
    def costs(self) -> list[tuple[str, int]]:
        """Reason and received bytes of what the last reader sent."""
        return [(request.reason, request.fetched_bytes) for request in self.spent]


async def test_a_kept_sidecar_costs_a_question_and_no_bytes() -> None:
    setting = Setting()
    first = await setting.look_up()
    assert setting.costs == [("sidecar", len(OLD))]
    again = await setting.look_up()
    assert setting.costs == [("sidecar, unchanged", 0)]
    assert again.state == first.state == "present"
    assert bytes(again.file) == bytes(first.file)


async def test_a_large_sidecar_that_is_kept_costs_one_question() -> None:
    setting = Setting()
    await setting.look_up(prefix_bytes=64)
    assert len(setting.costs) == 2
    found = await setting.look_up(prefix_bytes=64)
    assert setting.costs == [("sidecar, unchanged", 0)]
    assert found.sidecar is not None


async def test_a_newer_sidecar_takes_the_place_of_the_kept_one() -> None:
    setting = Setting()
    await setting.look_up()
    await setting.objects.put(f"{DIRECTORY}/_pm", NEW, overwrite=True)
    for expected in ([("sidecar", len(NEW))], [("sidecar, unchanged", 0)]):
        found = await setting.look_up()
        assert setting.costs == expected
        assert bytes(found.file) == NEW[: len(found.file)]


async def test_a_trusted_sidecar_costs_nothing_until_its_time_is_over() -> None:
    setting = Setting(trust_s=60)
    await setting.look_up()
    setting.now_s += 59
    assert (await setting.look_up()).state == "present"
    assert setting.costs == []
    setting.now_s += 2
    await setting.look_up()
    assert setting.costs == [("sidecar, unchanged", 0)]
    setting.now_s += 59
    await setting.look_up()
    assert setting.costs == []
    setting.now_s -= 3_600  # a clock that was put back
    await setting.look_up()
    assert setting.costs == [("sidecar, unchanged", 0)]
    await setting.cache.distrust(f"{DIRECTORY}/_pm")
    await setting.look_up()
    assert setting.costs == [("sidecar, unchanged", 0)]


async def test_a_trusted_sidecar_of_another_state_of_the_table_is_asked_for() -> None:
    setting = Setting(trust_s=60)
    await setting.look_up()
    await setting.objects.put(f"{DIRECTORY}/_pm", NEW, overwrite=True)
    sidecar = parse_sidecar(NEW)
    record = PartitionRecord(
        timestamp=0, row_count=sidecar.total_rows, is_parquet=True, parquet_size=sidecar.parquet_size_bytes
    )
    location = replace(LOCATION, record=record)
    found = await setting.look_up(location=location)
    assert setting.costs == [("sidecar", len(NEW))]
    assert found.sidecar is not None
    assert found.sidecar.parquet_size_bytes == sidecar.parquet_size_bytes


async def test_the_next_process_finds_it_on_disk(tmp_path: Path) -> None:
    def setting() -> Setting:
        return Setting(DiskCache(str(tmp_path), limit_bytes=10_000_000), trust_s=60)

    first = setting()
    await first.look_up()
    second = setting()
    second.now_s += 30
    assert (await second.look_up()).state == "present"
    assert second.costs == []
    third = setting()
    third.now_s += 90
    await third.look_up()
    assert third.costs == [("sidecar, unchanged", 0)]
    fourth = setting()
    fourth.now_s += 120
    await fourth.look_up()
    assert fourth.costs == []


async def test_a_poisoned_sidecar_on_disk_is_fetched_anew(tmp_path: Path) -> None:
    def setting() -> Setting:
        return Setting(DiskCache(str(tmp_path), limit_bytes=10_000_000), trust_s=60, has_memory=False)

    await setting().look_up()
    poison(tmp_path)
    again = setting()
    assert bytes((await again.look_up()).file) == OLD
    assert again.costs == [("sidecar", len(OLD))]
    last = setting()
    await last.look_up()
    assert last.costs == []


async def test_damaged_absent_and_unversioned_sidecars_are_not_kept() -> None:
    setting = Setting()
    await setting.objects.put(f"{DIRECTORY}/_pm", OLD[:-50] + bytes(50), overwrite=True)
    for _ in range(2):
        assert (await setting.look_up()).state == "damaged"
        assert setting.costs == [("sidecar", len(OLD))]
    await setting.objects.delete([f"{DIRECTORY}/_pm"])
    assert (await setting.look_up()).state == "absent"
    setting.objects = MemoryStore({f"{DIRECTORY}/_pm": OLD})
    for _ in range(2):
        await setting.look_up()
        assert setting.costs == [("sidecar", len(OLD))]


# --- What tables and processes share: never what is of another store, or of another query string ----------------------


NAMES = ("2024-01-01.2", "2024-01-02.1")


@pytest.fixture
async def directories(tmp_path: Path) -> list[Path]:
    """Two partitions with other rows."""
    path = copy_table("o3_in_place", tmp_path)
    await index_table(path, pages=False, pack=False)
    return [path / name for name in NAMES]


@pytest.fixture
def options(tmp_path: Path) -> cp.StoreOptions:
    return cp.StoreOptions(cache_directory=str(tmp_path / "cache"), sidecar_trust_s=3_600)


@pytest.fixture
async def server(directories: list[Path]) -> AsyncIterator[TestServer]:
    """The query string chooses the partition."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.FileResponse(directories[int(request.query["tenant"])] / request.match_info["name"])

    application = web.Application()
    application.router.add_get("/partition/{name}", answer)
    server = TestServer(application)
    await server.start_server()
    yield server
    await server.close()


async def answers(url: str | Path, **arguments: Any) -> list[object]:
    """What the sidecar, and what the data says."""
    async with cp.open_partition(url, **arguments) as partition:
        return [await partition.scan().max("ts"), (await partition.scan(["ts", "price"]).to_arrow()).to_pylist()]


async def test_stores_of_the_caller_share_nothing(
    directories: list[Path], options: cp.StoreOptions, tmp_path: Path
) -> None:
    expected = [await answers(directory) for directory in directories]
    assert expected[0] != expected[1]
    for directory, said in zip(directories, expected, strict=True):
        objects = {f"partition/{path.name}": path.read_bytes() for path in directory.iterdir()}
        assert await answers("partition", store=QuotingStore(objects), store_options=options) == said
    assert not (tmp_path / "cache").exists()


async def test_another_query_string_is_another_object(
    server: TestServer, directories: list[Path], options: cp.StoreOptions, tmp_path: Path
) -> None:
    for tenant in (0, 1, 0):
        url = str(server.make_url(f"/partition?tenant={tenant}"))
        assert await answers(url, store_options=options) == await answers(directories[tenant])
    assert (tmp_path / "cache").exists()


# --- Sidecars that are longer than the first guess by far: what is asked for behind it, and that all of it is one
# version


ROWS, COLUMNS = 200, 100
GUESS_BYTES = cp.ReadOptions().sidecar_prefix_bytes
PATH = "bucket/db/2024-03-01"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one partition, of whose sidecar about 1.2 MB lie behind the first guess."""
    root = tmp_path_factory.mktemp("store")
    directory = root / PATH
    directory.mkdir(parents=True)
    times = pa.array(np.arange(ROWS) + 1_709_251_200_000_000, pa.timestamp("us", "UTC"))
    columns = {f"c{number}": pa.array(np.arange(ROWS) * number) for number in range(COLUMNS)}
    table = pa.table({"ts": times, **columns})
    pq.write_table(table, directory / "data.parquet", row_group_size=1, use_dictionary=False)
    asyncio.run(index_table(directory, pages=False, pack=False))
    return root


async def sidecar_ranges(root: Path, options: cp.ReadOptions) -> list[str | None]:
    """Ask a question; return which ranges of the sidecar the server was asked for."""
    with ColdStoreServer(root) as server:
        async with cp.open_partition(f"s3://{PATH}", storage_options=server.storage_options, options=options) as table:
            rows = await table.scan(["c7", "c90"], "c1 >= 50 and c1 < 60").to_arrow()
        assert rows.column("c90").to_pylist() == [90 * number for number in range(50, 60)]
        asked = [served.range_header for served in server.requests if served.path.endswith("/_pm")]
    return sorted(asked, key=lambda header: int((header or "").removeprefix("bytes=").partition("-")[0]))


async def test_the_rest_comes_in_parts_side_by_side(root: Path) -> None:
    size_bytes = (root / PATH / "_pm").stat().st_size
    middle = GUESS_BYTES + (size_bytes - GUESS_BYTES) // 2
    assert await sidecar_ranges(root, cp.ReadOptions()) == [
        f"bytes=0-{GUESS_BYTES - 1}",
        f"bytes={GUESS_BYTES}-{middle - 1}",
        f"bytes={middle}-{size_bytes - 1}",
    ]


@pytest.mark.parametrize("options", [cp.ReadOptions(goal="few-requests"), cp.ReadOptions(max_concurrency=1)])
async def test_the_rest_comes_in_one_request_where_that_is_wanted(root: Path, options: cp.ReadOptions) -> None:
    size_bytes = (root / PATH / "_pm").stat().st_size
    assert await sidecar_ranges(root, options) == [
        f"bytes=0-{GUESS_BYTES - 1}",
        f"bytes={GUESS_BYTES}-{size_bytes - 1}",
    ]


class ReplacedMeanwhile(QuotingStore):
    """Replaces the sidecar as soon as the first part of its rest has been answered."""

    async def get(self, request: RangeRequest) -> FetchedRange:
        answer = await super().get(request)
        if answer.start == GUESS_BYTES:
            await self.put(f"{PATH}/_pm", bytes(100), overwrite=True)
        return answer


async def test_parts_of_two_versions_are_never_put_together(root: Path) -> None:
    store = CheckedStore(ReplacedMeanwhile({f"{PATH}/_pm": (root / PATH / "_pm").read_bytes()}))
    with pytest.raises(ObjectChangedError) as caught:
        await look_up_sidecar(store, partition_location(PATH), cp.ReadOptions(), connections=64)
    assert caught.value.path == f"{PATH}/_pm"


async def test_a_damaged_size_costs_no_request_beyond_the_first(root: Path, tmp_path: Path) -> None:
    sidecar = bytearray((root / PATH / "_pm").read_bytes())
    sidecar[:8] = (1 << 30).to_bytes(8, "little")
    (tmp_path / PATH).mkdir(parents=True)
    (tmp_path / PATH / "_pm").write_bytes(sidecar)
    with ColdStoreServer(tmp_path) as server:
        store, _ = open_store(f"s3://{PATH}", storage_options=server.storage_options)
        found = await look_up_sidecar(CheckedStore(store), partition_location(PATH), cp.ReadOptions(), connections=64)
        await store.aclose()
        assert [served.range_header for served in server.requests] == [f"bytes=0-{GUESS_BYTES - 1}"]
    assert found.state == "damaged"
    assert f"the object ends at {len(sidecar)}" in str(found.problem)


# --- Looking for pages: which requests it takes, and that nothing about an optional file is an error ------------------


FILE = paged_file()
PAGED_PATH = "table/2024-03-01"
PAGED_LOCATION = partition_location(f"{PAGED_PATH}/data.parquet")


def pages_file(etag: str = "") -> bytes:
    pages = FILE.indexed().pages
    assert pages is not None
    return encode_pages_file(pages, FILE.places, parquet_size_bytes=len(FILE.data), etag=etag)


async def store_with(**objects: bytes) -> TraceStore:
    """A store with these objects in the partition's directory; ``data`` is its Parquet file."""
    memory = MemoryStore()
    for name, content in objects.items():
        await memory.put(f"{PAGED_PATH}/{'data.parquet' if name == 'data' else name}", content, overwrite=False)
    return TraceStore(CheckedStore(memory))


def sent(store: TraceStore) -> list[tuple[str, Any, str]]:
    return [(record.path.rpartition("/")[2], record.byte_range, record.reason) for record in store.records]


async def test_one_request_brings_the_file() -> None:
    data = pages_file()
    store = await store_with(_pages=data)
    with metadata_requests() as spent:
        lookup = await look_up_pages_file(store, PAGED_LOCATION)
    assert (lookup.path, lookup.data, lookup.problem) == (f"{PAGED_PATH}/{PAGES_FILE}", data, None)
    assert sent(store) == [("_pages", ByteRange(0, 262_144), "page index")]
    assert [(request.reason, request.fetched_bytes) for request in spent] == [("page index", len(data))]
    found = await parse_pages_lookup(lookup, FILE.sidecar)
    assert_same_pages(found.pages, FILE.indexed().pages)
    assert found.notes == ()


async def test_absence_is_normal_and_costs_one_request() -> None:
    store = await store_with()
    with metadata_requests() as spent:
        lookup = await look_up_pages_file(store, PAGED_LOCATION)
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
    lookup = await look_up_pages_file(store, PAGED_LOCATION)
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
    lookup = await look_up_pages_file(store, PAGED_LOCATION)
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
    found = await parse_pages_lookup(await look_up_pages_file(store, PAGED_LOCATION), FILE.sidecar)
    assert found.pages is None
    [note] = found.notes
    assert note.startswith(f"_pages is not used: {reason}")


async def test_a_file_of_another_version_is_a_note() -> None:
    store = await store_with(_pages=pages_file('"one"'))
    lookup = await look_up_pages_file(store, PAGED_LOCATION)
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
    await store.put(f"{PAGED_PATH}/_pages", pages_file(), overwrite=False)
    lookup = await look_up_pages_file(store, PAGED_LOCATION)
    assert lookup.data is None
    assert lookup.problem == f"it could not be fetched: {error}"
    assert (await parse_pages_lookup(lookup, FILE.sidecar)).notes == (f"_pages is not used: {lookup.problem}",)


async def test_the_page_index_of_the_file_takes_one_request() -> None:
    store = await store_with(data=FILE.data)
    with metadata_requests() as spent:
        found = await read_page_index(store, PAGED_LOCATION, FILE.sidecar)
    assert_same_pages(found.pages, FILE.indexed().pages)
    assert (found.notes, found.etag) == ((), "1")
    behind_chunks = ByteRange(int(FILE.places.stops.max()), len(FILE.data))
    assert sent(store) == [("data.parquet", behind_chunks, "page index")]
    assert [(request.byte_range, request.fetched_bytes) for request in spent] == [
        (behind_chunks, behind_chunks.length_bytes)
    ]


async def test_of_the_page_index_only_what_is_asked_for_is_returned() -> None:
    store = await store_with(data=FILE.data)
    found = await read_page_index(store, PAGED_LOCATION, FILE.sidecar, row_groups=np.array([1]), columns=[0, 3])
    assert_same_pages(found.pages, FILE.indexed(row_groups=[1], columns=[0, 3]).pages)


async def test_of_a_long_tail_just_the_end_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The indexes of the last chunks lie at the end: those before are not found, and that is all."""
    footer_bytes = len(FILE.data) - FILE.footer.offset
    monkeypatch.setattr(page_index, "LARGEST_INDEX_BYTES", footer_bytes + 100)
    store = await store_with(data=FILE.data)
    found = await read_page_index(store, PAGED_LOCATION, FILE.sidecar)
    known = pages_by_chunk(found.pages)
    assert 0 < len(known) < FILE.places.chunk_count or found.pages is None
    assert "it does not lie right before the footer" in found.notes[0]
    monkeypatch.setattr(page_index, "LARGEST_INDEX_BYTES", footer_bytes - 1)
    found = await read_page_index(await store_with(data=FILE.data), PAGED_LOCATION, FILE.sidecar)
    assert found.pages is None
    assert found.notes == (
        f"the page index is not used: the Parquet footer alone has more than {footer_bytes - 1:,} bytes",
    )


@pytest.mark.parametrize("name", [partition for partition in PARTITIONS if partition.table == "o3_in_place"], ids=str)
async def test_indexes_from_before_an_update_are_read_if_asked_for(name: GoldenPartition) -> None:
    """QuestDB appended row groups, which have no index, behind the one that it had written."""
    file = PagedFile.of((name.directory / "data.parquet").read_bytes())
    store = await store_with(data=file.data)
    just_the_end = await read_page_index(store, PAGED_LOCATION, file.sidecar)
    assert just_the_end.pages is None
    assert len(sent(store)) == 1
    store.clear()
    found = await read_page_index(store, PAGED_LOCATION, file.sidecar, also_earlier=True)
    assert_same_pages(found.pages, file.indexed_anywhere().pages)
    assert pages_by_chunk(found.pages)
    (_, end, _), (_, earlier, reason) = sent(store)
    assert (end, reason) == (page_index_range(file.sidecar), "page index")
    assert earlier.stop < end.start


async def test_a_file_without_an_index_says_so() -> None:
    plain = PagedFile.of(written())
    store = await store_with(data=plain.data)
    found = await read_page_index(store, PAGED_LOCATION, plain.sidecar)
    assert found.pages is None
    assert found.notes == ("column 'ts' of row group 0 and 17 more column chunks have no page index",)


async def test_a_damaged_footer_is_a_note() -> None:
    data = bytearray(FILE.data)
    data[-30:-8] = b"\xff" * 22
    found = await read_page_index(await store_with(data=bytes(data)), PAGED_LOCATION, FILE.sidecar)
    assert found.pages is None
    assert found.notes[0].startswith("the page index is not used: ")


async def test_trouble_with_the_parquet_file_itself_is_an_error() -> None:
    with pytest.raises(NotFoundError):
        await read_page_index(await store_with(), PAGED_LOCATION, FILE.sidecar)
    with pytest.raises(ObjectChangedError):
        await read_page_index(await store_with(data=FILE.data[:-1]), PAGED_LOCATION, FILE.sidecar)


def test_locations_are_known_from_the_path() -> None:
    assert isinstance(PAGED_LOCATION, PartitionLocation)
    assert PAGED_LOCATION.directory_path == PAGED_PATH

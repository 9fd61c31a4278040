"""Writing objects of any size: in parts, in bounded memory, all or nothing; and telling whether one is there already."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import InvalidInputError, NotFoundError, ObjectChangedError, StorageError
from coldparquet.ranges import ByteRange
from coldparquet.storage.base import ObjectStore, StoreWrapper
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.fsspec_store import FsspecStore
from coldparquet.storage.local import LocalStore
from coldparquet.storage.log import TraceStore
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import ObjectInfo, StoredChecksum, Upload, UploadedPart
from coldparquet.storage.s3.store import S3Store
from coldparquet.write import upload
from coldparquet.write.upload import (
    MemoryBudget,
    StoreSource,
    is_same_object,
    part_ranges,
    upload_object,
    upload_request_count,
)
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.s3_servers import MOTO_KEYS, boto3_client, moto_server

MIB = 1024 * 1024
DATA = bytes(range(251)) * 48_000  # 11.5 MiB
_places = itertools.count()


@pytest.fixture
def _parts_of_5_mib(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shortest parts that S3 takes."""
    monkeypatch.setattr(upload, "PART_BYTES", 5 * MIB)


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with moto_server() as url, boto3_client(url) as client:
        client.create_bucket(Bucket="bucket")
        yield url


@pytest.fixture(params=["memory", "local", "fsspec", "simulator", "moto"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[ObjectStore, str]]:
    """A store and an empty place in it."""
    match request.param:
        case "memory":
            yield MemoryStore(), "bucket/t"
        case "local":
            yield LocalStore(), str(tmp_path / "t")
        case "fsspec":
            yield (
                FsspecStore(fsspec.filesystem("memory", skip_instance_cache=True), label="memory"),
                f"/u{next(_places)}",
            )
        case "simulator":
            (tmp_path / "bucket").mkdir()
            with ColdStoreServer(tmp_path) as server:
                store = S3Store(storage_options=server.storage_options)
                yield store, "bucket/t"
                await store.aclose()
        case _:
            store = S3Store(storage_options={**MOTO_KEYS, "endpoint_url": request.getfixturevalue("moto")})
            yield store, f"bucket/t{next(_places)}"
            await store.aclose()


def source_of(data: bytes, *, size_bytes: int | None = None) -> StoreSource:
    store = CheckedStore(MemoryStore({"source": data}))
    return StoreSource(store, "source", size_bytes=len(data) if size_bytes is None else size_bytes)


@pytest.mark.usefixtures("_parts_of_5_mib")
@pytest.mark.parametrize("size_bytes", [0, 1, 5 * MIB, 5 * MIB + 1, len(DATA)])
async def test_any_size_makes_the_round_trip_and_is_recognised(place: tuple[ObjectStore, str], size_bytes: int) -> None:
    store, root = place
    path, source, memory = f"{root}/data.parquet", source_of(DATA, size_bytes=size_bytes), MemoryBudget(12 * MIB)
    sent: list[int] = []
    etag = await upload_object(store, path, source, overwrite=False, memory=memory, on_sent=sent.append)
    assert sum(sent) == size_bytes
    written = StoreSource(CheckedStore(store), path, size_bytes=size_bytes)
    assert await written.read(ByteRange(0, size_bytes)) == DATA[:size_bytes]
    found = await store.info(path)
    assert found.etag == etag
    assert await is_same_object(store, found, source, memory=memory)
    assert not await is_same_object(store, found, source_of(DATA, size_bytes=size_bytes + 1), memory=memory)
    if size_bytes:
        other = bytearray(DATA[:size_bytes])
        other[-1] ^= 1
        assert not await is_same_object(store, found, source_of(bytes(other)), memory=memory)
    with pytest.raises(InvalidInputError) as caught:
        await upload_object(store, path, source, overwrite=False, memory=memory)
    assert caught.value.kind == "AlreadyExists"
    assert [info.path for info in (await store.list(root)).objects] == [path]


@pytest.mark.parametrize("checksum", [None, StoredChecksum(value=1, part_count=77)])
async def test_without_a_useful_checksum_the_bytes_are_compared(
    monkeypatch: pytest.MonkeyPatch, checksum: StoredChecksum | None
) -> None:
    monkeypatch.setattr(upload, "PART_BYTES", 1000)
    data, memory = DATA[:3500], MemoryBudget(5000)
    for theirs, is_same in ((data, True), (data[:-1] + b"x", False), (b"x" + data[1:], False), (data + b"x", False)):
        for size_bytes in {None, len(theirs)}:
            store = TraceStore(MemoryStore({"x": theirs}))
            found = ObjectInfo(path="x", size_bytes=size_bytes, etag=None, checksum=checksum)
            assert await is_same_object(store, found, source_of(data), memory=memory) == is_same
            assert len(store.records) == (0 if size_bytes == len(data) + 1 else len(store.records))


@given(st.integers(0, 6 * 1024**4))
def test_parts_cover_the_object_and_stay_within_the_limits_of_s3(size_bytes: int) -> None:
    ranges = part_ranges(size_bytes)
    assert (ranges[0].start, ranges[-1].stop) == (0, size_bytes)
    assert all(first.stop == second.start for first, second in itertools.pairwise(ranges))
    assert len(ranges) <= 10_000
    assert all(part.length_bytes >= 16 * MIB for part in ranges[:-1])
    assert upload_request_count(size_bytes) == (1 if len(ranges) == 1 else len(ranges) + 2)


class Counting(StoreWrapper):
    """Counts the bytes of parts in flight, and answers out of order."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.in_flight_bytes = 0
        self.most_bytes = 0

    async def upload_part(self, upload: Upload, number: int, *, start: int, data: bytes) -> UploadedPart:
        self.in_flight_bytes += len(data)
        self.most_bytes = max(self.most_bytes, self.in_flight_bytes)
        await asyncio.sleep(0.001 * (number % 3))
        self.in_flight_bytes -= len(data)
        return await super().upload_part(upload, number, start=start, data=data)


async def test_memory_is_bounded_over_several_uploads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "PART_BYTES", 1000)
    store, memory = Counting(), MemoryBudget(3500)
    await asyncio.gather(
        *(upload_object(store, f"x{n}", source_of(DATA[:20_500]), overwrite=False, memory=memory) for n in range(5))
    )
    assert 3000 <= store.most_bytes <= 3500
    for number in range(5):
        assert (await StoreSource(store, f"x{number}", size_bytes=20_500).read(ByteRange(0, 20_500))) == DATA[:20_500]


class _Counted(bytes):
    """Bytes that tell how many of their kind there are."""

    alive_bytes = most_bytes = 0

    def __init__(self, *_: object) -> None:
        _Counted.alive_bytes += len(self)
        _Counted.most_bytes = max(_Counted.most_bytes, _Counted.alive_bytes)

    def __del__(self) -> None:
        _Counted.alive_bytes -= len(self)


class _CountedSource:
    size_bytes = 20_500

    async def read(self, byte_range: ByteRange) -> bytes:
        return _Counted(DATA[byte_range.start : byte_range.stop])


class _Copying(Counting):
    """Keeps copies of the parts."""

    async def upload_part(self, upload: Upload, number: int, *, start: int, data: bytes) -> UploadedPart:
        return await super().upload_part(upload, number, start=start, data=bytes(bytearray(data)))


async def test_parts_that_were_sent_take_no_memory_while_the_next_ones_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "PART_BYTES", 1000)
    memory, store = MemoryBudget(2500), _Copying()
    _Counted.most_bytes = 0
    await asyncio.gather(
        *(upload_object(store, f"x{n}", _CountedSource(), overwrite=False, memory=memory) for n in range(3))
    )
    assert 2000 <= _Counted.most_bytes <= 2500


class Failing(StoreWrapper):
    """Fails one step of an upload."""

    def __init__(self, store: ObjectStore, *, step: str) -> None:
        super().__init__(store)
        self._step = step
        self.aborted = 0

    async def start_upload(self, path: str, *, storage_class: str | None = None) -> Upload:
        self._fail("start")
        return await super().start_upload(path, storage_class=storage_class)

    async def upload_part(self, upload: Upload, number: int, *, start: int, data: bytes) -> UploadedPart:
        self._fail(f"part {number}")
        return await super().upload_part(upload, number, start=start, data=data)

    async def finish_upload(self, upload: Upload, parts: object, *, overwrite: bool) -> str | None:
        self._fail("finish")
        return await super().finish_upload(upload, parts, overwrite=overwrite)  # type: ignore[arg-type]

    async def abort_upload(self, upload: Upload) -> None:
        self.aborted += 1
        self._fail("abort")
        await super().abort_upload(upload)

    def _fail(self, step: str) -> None:
        if step == self._step or (step == "abort" and self._step == "all ends"):
            raise StorageError(f"{step} failed")
        if self._step == "all ends" and step == "finish":
            raise StorageError("finish failed")


@pytest.mark.usefixtures("_parts_of_5_mib")
@pytest.mark.parametrize("step", ["start", "part 1", "part 3", "finish"])
async def test_failed_uploads_leave_nothing(place: tuple[ObjectStore, str], step: str) -> None:
    store, root = place
    await store.put(f"{root}/kept", b"", overwrite=False)
    failing = Failing(store, step=step)
    with pytest.raises(StorageError, match=f"{step} failed"):
        await upload_object(failing, f"{root}/x", source_of(DATA), overwrite=False, memory=MemoryBudget(20 * MIB))
    assert failing.aborted == (step != "start")
    assert [info.path for info in (await store.list(root)).objects] == [f"{root}/kept"]
    assert await store.remove_unfinished(root, started_before_s=float("inf")) == 0


async def test_a_failed_abort_does_not_hide_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "PART_BYTES", 1000)
    with pytest.raises(StorageError, match="finish failed"):
        await upload_object(
            Failing(MemoryStore(), step="all ends"),
            "x",
            source_of(DATA[:5000]),
            overwrite=False,
            memory=MemoryBudget(9000),
        )


class _SlowAbort(Failing):
    """Takes a while to throw the parts away, and then fails or not."""

    def __init__(self, *, step: str) -> None:
        super().__init__(MemoryStore(), step=step)
        self.is_aborting = asyncio.Event()
        self.has_aborted = False

    async def abort_upload(self, upload: Upload) -> None:
        self.is_aborting.set()
        await asyncio.sleep(0.01)
        self.has_aborted = True
        await super().abort_upload(upload)


@pytest.mark.parametrize("step", ["finish", "all ends"])
async def test_an_upload_that_failed_and_is_cancelled_too_waits_for_its_parts_to_go(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(upload, "PART_BYTES", 1000)
    store, memory = _SlowAbort(step=step), MemoryBudget(9000)
    task = asyncio.create_task(upload_object(store, "x", source_of(DATA[:5000]), overwrite=False, memory=memory))
    await store.is_aborting.wait()
    task.cancel()  # as by another upload of the same run that failed
    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.has_aborted


@pytest.mark.usefixtures("_parts_of_5_mib")
@pytest.mark.parametrize("turns", [0, 1, 2, 5, 20, 80])
async def test_cancelled_uploads_leave_all_or_nothing(place: tuple[ObjectStore, str], turns: int) -> None:
    store, root = place
    await store.put(f"{root}/kept", b"", overwrite=False)
    source, memory = source_of(DATA), MemoryBudget(20 * MIB)
    task = asyncio.create_task(upload_object(store, f"{root}/x", source, overwrite=False, memory=memory))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    objects = {info.path: info.size_bytes for info in (await store.list(root)).objects}
    assert objects in ({f"{root}/kept": 0}, {f"{root}/kept": 0, f"{root}/x": len(DATA)})
    assert await store.remove_unfinished(root, started_before_s=float("inf")) == 0
    async with memory.holding(20 * MIB):  # all of it was given back
        pass


async def test_a_source_that_was_cut_off_or_replaced_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "data.parquet"
    file.write_bytes(DATA[:1000])
    source = StoreSource(CheckedStore(LocalStore()), str(file), size_bytes=900)
    assert await source.read(ByteRange(0, 100)) == DATA[:100]
    with file.open("ab") as grown:
        grown.write(b"more")
    assert await source.read(ByteRange(100, 900)) == DATA[100:900]
    with file.open("r+b") as cut:
        cut.truncate(899)
    with pytest.raises(ObjectChangedError):
        await source.read(ByteRange(0, 100))
    file.unlink()
    with pytest.raises(NotFoundError):
        await source.read(ByteRange(0, 100))


async def test_budget_serves_in_order_and_lets_large_wishes_through() -> None:
    budget, order = MemoryBudget(10), []
    inside = asyncio.Event()

    async def use(name: str, size_bytes: int) -> None:
        async with budget.holding(size_bytes):
            order.append(name)
            await inside.wait()

    tasks = [asyncio.create_task(use(name, size)) for name, size in (("a", 6), ("b", 6), ("c", 1), ("d", 99))]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert order == ["a"]
    tasks[1].cancel()
    await asyncio.gather(tasks[1], return_exceptions=True)
    await asyncio.sleep(0)
    assert order == ["a", "c"]
    inside.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == ["a", "c", "d"]

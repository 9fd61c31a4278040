"""Objects of any size are written in parts, all or nothing, in bounded memory."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from coldparquet.options import MIB
from coldparquet.ranges import ByteRange
from coldparquet.storage.checksums import MAX_PARTS, WholeObjectCheck
from coldparquet.storage.requests import RangeRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.requests import ObjectInfo, Upload, UploadedPart


PART_BYTES = 16 * MIB
"""Length of every part but the last, and the longest object that is written in one request. S3 names 8-16 MiB for
throughput, and takes no less than 5 MiB."""

_PARTS_IN_FLIGHT = 8
"""Of one object. One connection brings 55-90 MB/s; the memory budget usually ends before this does."""


class UploadSource(Protocol):
    """What an upload reads from."""

    @property
    def size_bytes(self) -> int:
        """How many bytes there are; all of them are uploaded."""
        ...

    async def read(self, byte_range: ByteRange) -> bytes:
        """Return exactly these bytes; the same ones every time."""
        ...


class StoreSource:
    """The first bytes of an object of a store, such as the committed ones of a local ``data.parquet``.

    Args:
        store: A :class:`~coldparquet.storage.checked.CheckedStore`, so that all bytes come from one version.
        path: The object. It may be longer, and may grow meanwhile.
        size_bytes: How many of its bytes to read.
    """

    def __init__(self, store: ObjectStore, path: str, *, size_bytes: int) -> None:
        self._store = store
        self._path = path
        self.size_bytes = size_bytes

    async def read(self, byte_range: ByteRange) -> bytes:
        """Fetch these bytes. 1 request, none for no bytes."""
        if byte_range.length_bytes == 0:
            return b""
        request = RangeRequest(
            path=self._path,
            byte_range=byte_range,
            reason="copy",
            may_grow=True,
            object_bytes=self.size_bytes,
        )
        return (await self._store.get(request)).data


class MemoryBudget:
    """So many bytes may be in use at once; who wants more waits, in order of arrival.

    Args:
        limit_bytes: What may be in use. A task that wants more than that gets it once no other uses any.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def holding(self, size_bytes: int) -> AsyncIterator[None]:
        """Hold so many bytes inside of the block."""
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, admitted))
        self._admit()
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled():  # admitted and cancelled in the same turn of the loop
                self._used_bytes -= size_bytes
            self._admit()
            raise
        try:
            yield
        finally:
            self._used_bytes -= size_bytes
            self._admit()

    def _admit(self) -> None:
        while self._waiting:
            size_bytes, admitted = self._waiting[0]
            if admitted.cancelled():
                self._waiting.popleft()
            elif self._used_bytes == 0 or self._used_bytes + size_bytes <= self._limit_bytes:
                self._waiting.popleft()
                self._used_bytes += size_bytes
                admitted.set_result(None)
            else:
                return


def part_ranges(size_bytes: int) -> tuple[ByteRange, ...]:
    """Return the parts in which an object of this size is written; one means that it is written at once.

    The answer depends on the size alone, so that the checksum which S3 makes of the parts can be computed again later.
    """
    least_bytes = -(-size_bytes // MAX_PARTS)
    part_bytes = PART_BYTES if least_bytes <= PART_BYTES else -(-least_bytes // MIB) * MIB
    starts = range(0, max(size_bytes, 1), part_bytes)
    return tuple(ByteRange(start, min(start + part_bytes, size_bytes)) for start in starts)


def upload_request_count(size_bytes: int) -> int:
    """Return how many requests :func:`upload_object` sends for an object of this size."""
    parts = len(part_ranges(size_bytes))
    return 1 if parts == 1 else parts + 2


async def upload_object(  # noqa: PLR0913 - what can be told is told by name
    store: ObjectStore,
    path: str,
    source: UploadSource,
    *,
    overwrite: bool,
    memory: MemoryBudget,
    storage_class: str | None = None,
    on_sent: Callable[[int], None] | None = None,
) -> str | None:
    """Write one object: others see all of it or nothing.

    Up to 16 MiB it is 1 request. A longer one is 1 request for each part and 2 more; when something fails or the call
    is cancelled, the parts are thrown away before it raises.
    """
    ranges = part_ranges(source.size_bytes)
    if len(ranges) == 1:
        async with memory.holding(source.size_bytes):
            data = await source.read(ranges[0])
            etag = await store.put(path, data, overwrite=overwrite, storage_class=storage_class)
        if on_sent is not None:
            on_sent(source.size_bytes)
        return etag
    upload = await _start(store, path, storage_class)
    try:
        parts = await _send_parts(store, upload, source, memory, on_sent)
        return await store.finish_upload(upload, parts, overwrite=overwrite)
    except BaseException:
        await _abort(store, upload)
        raise


async def is_same_object(store: ObjectStore, found: ObjectInfo, source: UploadSource, *, memory: MemoryBudget) -> bool:
    """Tell whether an object holds exactly the bytes of a source.

    No request where sizes differ or the store keeps a checksum; otherwise the object is read, as many requests as
    :func:`part_ranges` has parts.
    """
    if found.size_bytes is not None and found.size_bytes != source.size_bytes:
        return False
    ranges = part_ranges(source.size_bytes)
    if found.checksum is not None:
        check = WholeObjectCheck(found.checksum, size_bytes=source.size_bytes)
        verdict = await _verdict(check, source, ranges, memory) if check.can_tell else None
        if verdict is not None:
            return verdict
    for byte_range in ranges:
        async with memory.holding(2 * byte_range.length_bytes):
            request = RangeRequest(
                path=found.path,
                # One byte more, so that a longer object of unknown size is told apart.
                byte_range=ByteRange(byte_range.start, byte_range.stop + 1),
                reason="compare with what is to be written",
                if_match=found.etag,
                may_be_short=True,
            )
            if not await _is_same_part(store, request, source, byte_range, is_last=byte_range is ranges[-1]):
                return False
    return True


async def _is_same_part(
    store: ObjectStore, request: RangeRequest, source: UploadSource, byte_range: ByteRange, *, is_last: bool
) -> bool:
    theirs = (await store.get(request)).data
    if not is_last:
        theirs = theirs[: byte_range.length_bytes]
    return theirs == await source.read(byte_range)


async def _start(store: ObjectStore, path: str, storage_class: str | None) -> Upload:
    """Begin an upload. When cancelled, wait for its name, because only who knows it can abort it."""
    starting = asyncio.ensure_future(store.start_upload(path, storage_class=storage_class))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.wait([starting])
        if not starting.cancelled() and starting.exception() is None:
            await _abort(store, starting.result())
        raise


async def _send_parts(
    store: ObjectStore,
    upload: Upload,
    source: UploadSource,
    memory: MemoryBudget,
    on_sent: Callable[[int], None] | None,
) -> list[UploadedPart]:
    ranges = part_ranges(source.size_bytes)
    remaining = iter(enumerate(ranges, start=1))
    parts: list[UploadedPart] = []

    async def send(number: int, byte_range: ByteRange) -> None:
        # A function of its own: its bytes are gone when it returns, not when the next part has been admitted.
        data = await source.read(byte_range)
        parts.append(await store.upload_part(upload, number, start=byte_range.start, data=data))

    async def send_some() -> None:
        for number, byte_range in remaining:
            async with memory.holding(byte_range.length_bytes):
                await send(number, byte_range)
            if on_sent is not None:
                on_sent(byte_range.length_bytes)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(_PARTS_IN_FLIGHT, len(ranges))):
                group.create_task(send_some())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors.exceptions[0].__cause__
    return sorted(parts, key=lambda part: part.number)


async def _abort(store: ObjectStore, upload: Upload) -> None:
    """Throw the parts away; a failure is not worth hiding why.

    One cancellation does not end the wait, because it comes from every other upload that fails meanwhile, and behind it the
    store is closed. A second one does, but not the request.
    """
    aborting = asyncio.ensure_future(store.abort_upload(upload))
    aborting.add_done_callback(_ignore_failure)
    try:
        await asyncio.wait([aborting])
    except asyncio.CancelledError:
        await asyncio.wait([aborting])
        raise


def _ignore_failure(aborting: asyncio.Future[None]) -> None:
    if not aborting.cancelled():
        aborting.exception()  # `remove_unfinished` finds the parts later


async def _verdict(
    check: WholeObjectCheck, source: UploadSource, ranges: Sequence[ByteRange], memory: MemoryBudget
) -> bool | None:
    for byte_range in ranges:
        async with memory.holding(byte_range.length_bytes):
            await check.update(await source.read(byte_range))
    return check.is_match()

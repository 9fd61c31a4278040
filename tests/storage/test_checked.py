from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import NotFoundError, ObjectChangedError, StorageError
from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.records import replace
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import FetchedRange, RangeRequest
from coldparquet_testing.store_contract import CONTENT, request_for
from coldparquet_testing.stores import ChangedETag, Failure, FaultStore, ShortBody, missing_after, scripted

PATH = "bucket/data.parquet"


class Prepared(MemoryStore):
    """Gives the same answer to every GET and remembers the requests."""

    def __init__(self, answer: FetchedRange) -> None:
        super().__init__()
        self.answer = answer
        self.requests: list[RangeRequest] = []

    async def get(self, request: RangeRequest) -> FetchedRange:
        self.requests.append(request)
        return self.answer


def answer(data: bytes, *, start: int = 0, etag: str | None = "v1", size: int | None = None) -> FetchedRange:
    return FetchedRange(data=data, start=start, etag=etag, object_size_bytes=size)


@pytest.mark.parametrize(("start", "stop"), [(1000, 1025), (0, 10**9), (1024, 1025), (5000, 6000)])
async def test_short_answer_to_a_range_that_must_be_whole(start: int, stop: int) -> None:
    store = CheckedStore(MemoryStore({"x": CONTENT}))
    with pytest.raises(ObjectChangedError, match="1,024 bytes"):
        await store.get(request_for("x", ByteRange(start, stop)))


@pytest.mark.parametrize(
    ("byte_range", "given_answer", "may_be_short", "kind"),
    [
        (ByteRange(0, 8), answer(b"1234567", size=100), False, "ShortRead"),
        (ByteRange(0, 8), answer(b"1234567", size=None), False, "ShortRead"),
        (ByteRange(0, 8), answer(b"1234567", size=7), False, "ObjectChanged"),
        (ByteRange(0, 8), answer(b"", size=0), False, "ObjectChanged"),
        (ByteRange(0, 8), answer(b"1234567", size=100), True, "ShortRead"),
        (ByteRange(0, 8), answer(b"123456", size=7), True, "ShortRead"),
        (ByteRange(0, 8), answer(b"1234567", size=7), True, None),
        (ByteRange(0, 8), answer(b"1234567", size=None), True, None),
        (ByteRange(9, 20), answer(b"", start=9, size=7), True, None),
        (ByteRange(0, 8), answer(b"12345678", size=8), False, None),
        (ByteRange(0, 8), answer(b"123456789", size=100), False, "RangeIgnored"),
        (ByteRange(0, 8), answer(b"123456789", size=None), True, "RangeIgnored"),
        (ByteRange(0, 8), answer(b"12345678", size=7), True, "RangeIgnored"),
        (ByteRange(2, 4), answer(b"12", start=0, size=100), False, "RangeIgnored"),
        (SuffixRange(4), answer(b"1234", start=96, size=100), False, None),
        (SuffixRange(4), answer(b"123", start=96, size=100), False, "ShortRead"),
        (SuffixRange(4), answer(b"123", start=97, size=100), False, "RangeIgnored"),
        (SuffixRange(4), answer(b"12", start=0, size=2), False, None),
        (SuffixRange(4), answer(b"12345", start=95, size=None), False, "RangeIgnored"),
        (SuffixRange(4), answer(b"1234", start=96, size=None), False, None),
        (SuffixRange(4), answer(b"123", start=96, size=None), False, "ShortRead"),
        (SuffixRange(4), answer(b"123", start=0, size=None), True, None),
    ],
)
async def test_exact_length(
    byte_range: ByteRange | SuffixRange, given_answer: FetchedRange, *, may_be_short: bool, kind: str | None
) -> None:
    store = CheckedStore(Prepared(given_answer))
    request = request_for(PATH, byte_range, may_be_short=may_be_short)
    if kind is None:
        assert await store.get(request) == given_answer
        return
    with pytest.raises((StorageError, ObjectChangedError)) as caught:
        await store.get(request)
    assert (caught.value.kind, caught.value.path) == (kind, PATH)


@given(start=st.integers(0, 1100), length=st.integers(1, 1100), missing=st.integers(1, 1100), short=st.booleans())
def test_no_byte_is_ever_missing_unnoticed(start: int, length: int, missing: int, *, short: bool) -> None:
    store = CheckedStore(FaultStore(MemoryStore({PATH: CONTENT}), scripted({0: ShortBody(missing)})))
    expected = CONTENT[start : start + length]

    async def read() -> bytes | None:
        try:
            return (await store.get(request_for(PATH, ByteRange(start, start + length), may_be_short=short))).data
        except (StorageError, ObjectChangedError):
            return None

    assert asyncio.run(read()) == (expected if short and not expected else None)


async def test_object_size() -> None:
    store = CheckedStore(MemoryStore({PATH: CONTENT}))
    request = request_for(PATH, ByteRange(0, 4))
    assert (await store.get(replace(request, object_bytes=1024))).data == CONTENT[:4]
    with pytest.raises(ObjectChangedError, match="at least 1,025"):
        await store.get(replace(request, object_bytes=1025))


@pytest.mark.parametrize(
    ("described", "found", "is_stale"),
    [
        ('"one"', '"two"', True),
        ('"one"', '"one"', False),
        ('"one"', None, False),
        ('"one"', "10-20-30", False),  # of a file on a disk, to which the object was copied
        ("10-20-30", '"one"', False),
        (None, '"one"', False),
    ],
)
async def test_a_description_of_another_version_is_noticed(
    described: str | None, found: str | None, *, is_stale: bool
) -> None:
    inner = Prepared(answer(b"1234", etag=found))
    request = replace(request_for(PATH, ByteRange(0, 4)), expected_etag=described)
    if not is_stale:
        assert (await CheckedStore(inner).get(request)).data == b"1234"
        return
    with pytest.raises(ObjectChangedError, match='version "one" of it, and it is "two"') as caught:
        await CheckedStore(inner).get(request)
    assert caught.value.kind == "StalePages"
    assert [sent.if_match for sent in inner.requests] == [None]


async def test_first_version_is_pinned_and_sent_with_later_requests() -> None:
    inner = Prepared(answer(b"1234", size=4))
    store = CheckedStore(inner)
    for _ in range(2):
        await store.get(request_for(PATH, ByteRange(0, 4)))
    await store.get(request_for("other", ByteRange(0, 4)))
    await store.get(request_for(PATH, ByteRange(0, 4), if_match="v1"))
    store.versions.forget(PATH)
    store.versions.forget("never seen")
    await store.get(request_for(PATH, ByteRange(0, 4)))
    assert [request.if_match for request in inner.requests] == [None, "v1", None, "v1", None]


async def test_replaced_object_is_noticed() -> None:
    inner = MemoryStore({PATH: CONTENT})
    store = CheckedStore(inner)
    await store.get(request_for(PATH, ByteRange(0, 4)))
    await inner.put(PATH, CONTENT, overwrite=True)
    for _ in range(2):
        with pytest.raises(ObjectChangedError, match="plan the read again"):
            await store.get(request_for(PATH, ByteRange(4, 8)))
    store.versions.forget(PATH)
    assert (await store.get(request_for(PATH, ByteRange(4, 8)))).data == CONTENT[4:8]


@pytest.mark.parametrize("if_match", [None, "1"])
async def test_other_version_is_noticed_even_if_the_server_ignores_if_match(if_match: str | None) -> None:
    store = CheckedStore(FaultStore(MemoryStore({PATH: CONTENT}), scripted({1: ChangedETag("2")})))
    await store.get(request_for(PATH, ByteRange(0, 4)))
    with pytest.raises(ObjectChangedError) as caught:
        await store.get(request_for(PATH, ByteRange(4, 8), if_match=if_match))
    assert caught.value.details == {"expected_etag": "1", "found_etag": "2"}


async def test_first_requests_in_flight_together_must_see_one_version() -> None:
    faults = FaultStore(MemoryStore({PATH: CONTENT}), scripted({1: ChangedETag("2")}))
    store = CheckedStore(faults)
    outcomes = await asyncio.gather(
        *(store.get(request_for(PATH, ByteRange(start, start + 4))) for start in (0, 4, 8)), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [FetchedRange, ObjectChangedError, FetchedRange]


async def test_failed_answers_pin_nothing() -> None:
    faults = FaultStore(MemoryStore({PATH: CONTENT}), scripted({0: ShortBody(), 1: Failure(StorageError("reset"))}))
    store = CheckedStore(faults)
    for _ in range(2):
        with pytest.raises(StorageError):
            await store.get(request_for(PATH, ByteRange(0, 4)))
    assert (await store.get(request_for(PATH, ByteRange(0, 4)))).data == CONTENT[:4]


async def test_late_answer_does_not_bring_back_a_forgotten_version() -> None:
    inner = MemoryStore({PATH: CONTENT})
    answered, go_on = asyncio.Event(), asyncio.Event()

    class Slow(MemoryStore):
        async def get(self, request: RangeRequest) -> FetchedRange:
            fetched = await inner.get(request)
            answered.set()
            await go_on.wait()
            return fetched

    store = CheckedStore(Slow())
    late = asyncio.create_task(store.get(request_for(PATH, ByteRange(0, 4))))
    await answered.wait()
    await inner.put(PATH, CONTENT[::-1], overwrite=True)
    store.versions.forget(PATH)
    go_on.set()
    assert (await late).data == CONTENT[:4]
    assert (await store.get(request_for(PATH, ByteRange(0, 4)))).data == CONTENT[::-1][:4]


async def test_object_that_vanishes() -> None:
    store = CheckedStore(FaultStore(MemoryStore({PATH: CONTENT}), missing_after(2)))
    for _ in range(2):
        await store.get(request_for(PATH, ByteRange(0, 4)))
    with pytest.raises(NotFoundError) as caught:
        await store.get(request_for(PATH, ByteRange(0, 4)))
    assert caught.value.path == PATH

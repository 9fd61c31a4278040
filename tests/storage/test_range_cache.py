"""Ranges in memory: any part of what is held is answered, exactly, and never more is held than may be."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.storage.cache import PIECE_OVERHEAD_BYTES, RangeCache
from coldparquet.storage.requests import FetchedRange

PATH = "bucket/table/2024-03-01/data.parquet"
CONTENT = random.Random(6).randbytes(2_000)
ROOMY_BYTES = 1_000_000


def fetched(start: int, stop: int, *, etag: str = '"1"', content: bytes = CONTENT) -> FetchedRange:
    return FetchedRange(data=content[start:stop], start=start, etag=etag, object_size_bytes=len(content))


def holding(*bounds: tuple[int, int]) -> RangeCache:
    cache = RangeCache(ROOMY_BYTES)
    for start, stop in bounds:
        cache.keep(PATH, fetched(start, stop))
    return cache


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (ByteRange(100, 200), (100, 200)),
        (ByteRange(120, 130), (120, 130)),
        (ByteRange(150, 250), (150, 250)),
        (ByteRange(100, 300), (100, 300)),
        (ByteRange(99, 101), None),
        (ByteRange(250, 301), None),
        (ByteRange(0, 10), None),
        (ByteRange(300, 400), None),
        (ByteRange(1_950, 2_500), (1_950, 2_000)),
        (ByteRange(2_000, 2_100), (2_000, 2_000)),
        (SuffixRange(50), (1_950, 2_000)),
        (SuffixRange(101), None),
    ],
)
def test_any_part_of_what_is_held_is_answered_as_the_store_would(
    asked: ByteRange | SuffixRange, expected: tuple[int, int] | None
) -> None:
    found = holding((200, 300), (100, 200), (1_900, 2_000)).find(PATH, '"1"', asked)
    assert found == (None if expected is None else fetched(*expected))


def test_without_a_size_only_ranges_with_two_ends_are_answered() -> None:
    cache = RangeCache(ROOMY_BYTES)
    cache.keep(PATH, FetchedRange(data=CONTENT[:100], start=0, etag='"1"', object_size_bytes=None))
    found = cache.find(PATH, '"1"', ByteRange(10, 20))
    assert found == FetchedRange(data=CONTENT[10:20], start=10, etag='"1"', object_size_bytes=None)
    assert cache.find(PATH, '"1"', SuffixRange(10)) is None
    assert cache.find(PATH, '"1"', ByteRange(90, 110)) is None


def test_another_version_takes_the_place_of_the_one_that_was_held() -> None:
    cache = holding((0, 100))
    assert cache.newest_etag(PATH) == '"1"'
    assert cache.find(PATH, '"2"', ByteRange(0, 10)) is None
    cache.keep(PATH, fetched(50, 60, etag='"2"'))
    assert cache.newest_etag(PATH) == '"2"'
    assert cache.find(PATH, '"1"', ByteRange(0, 10)) is None
    assert cache.find(PATH, '"2"', ByteRange(50, 60)) is not None
    assert cache.held_bytes == 10 + PIECE_OVERHEAD_BYTES


def test_what_is_forgotten_is_gone_and_counts_no_more() -> None:
    cache = holding((0, 100), (200, 300))
    cache.forget(PATH)
    cache.forget(PATH)
    assert cache.held_bytes == 0
    assert cache.newest_etag(PATH) is None
    assert cache.find(PATH, '"1"', ByteRange(0, 10)) is None


def test_what_was_used_longest_ago_goes_first() -> None:
    cache = RangeCache(3 * (100 + PIECE_OVERHEAD_BYTES))
    for start in (0, 100, 200):
        cache.keep(PATH, fetched(start, start + 100))
    assert cache.find(PATH, '"1"', ByteRange(0, 50)) is not None
    cache.keep(PATH, fetched(300, 400))
    held = [start for start in (0, 100, 200, 300) if cache.find(PATH, '"1"', ByteRange(start, start + 100))]
    assert held == [0, 200, 300]


def test_an_answer_longer_than_the_limit_pushes_nothing_out() -> None:
    cache = RangeCache(1_000)
    cache.keep(PATH, fetched(0, 100))
    cache.keep("other", fetched(0, 1_900))
    assert cache.find(PATH, '"1"', ByteRange(0, 100)) is not None
    assert cache.newest_etag("other") is None


def test_a_limit_of_0_and_answers_without_a_version_hold_nothing() -> None:
    cache = RangeCache(0)
    cache.keep(PATH, fetched(0, 10))
    assert cache.held_bytes == 0
    cache = RangeCache(ROOMY_BYTES)
    cache.keep(PATH, FetchedRange(data=b"abc", start=0, etag=None, object_size_bytes=3))
    assert cache.held_bytes == 0


def test_bytes_that_are_held_already_are_neither_held_nor_counted_twice() -> None:
    cache = holding((0, 100), (50, 150), (20, 180), (0, 180))
    assert cache.held_bytes == 180 + 3 * PIECE_OVERHEAD_BYTES


BOUNDS = st.tuples(st.integers(0, 1_999), st.integers(1, 400)).map(lambda pair: (pair[0], min(2_000, sum(pair))))


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from(["a", "b"]), BOUNDS), max_size=40),
    st.integers(0, 3_000) | st.just(ROOMY_BYTES),
)
def test_whatever_is_kept_and_asked_answers_are_exact_and_within_the_limit(
    steps: list[tuple[bool, str, tuple[int, int]]], limit_bytes: int
) -> None:
    contents = {"a": CONTENT, "b": CONTENT[::-1]}
    cache = RangeCache(limit_bytes)
    for keeps, path, (start, stop) in steps:
        answer = fetched(start, stop, content=contents[path])
        if keeps:
            cache.keep(path, answer)
            if limit_bytes == ROOMY_BYTES:
                assert cache.find(path, '"1"', ByteRange(start, stop)) == answer
        else:
            assert cache.find(path, '"1"', ByteRange(start, stop)) in (None, answer)
        assert 0 <= cache.held_bytes <= limit_bytes

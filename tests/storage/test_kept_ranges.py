"""Ranges in memory and on disk: any part of what is kept is answered, exactly, and of one version; never too much is kept."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.records import replace
from coldparquet.storage.cache import PIECE_OVERHEAD_BYTES, CacheLevel, MemoryCache
from coldparquet.storage.disk_cache import DiskCache
from coldparquet.storage.requests import FetchedRange

KEY = ("range", "s3 (eu-west-1)", "bucket/table/2024-03-01/data.parquet")
CONTENT = random.Random(6).randbytes(2_000)
ROOMY_BYTES = 100_000_000


def fetched(start: int, stop: int, *, etag: str | None = '"1"', content: bytes = CONTENT) -> FetchedRange:
    return FetchedRange(data=content[start:stop], start=start, etag=etag, object_size_bytes=len(content))


@pytest.fixture(params=["memory", "disk", "disk, another process"])
def reopened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], CacheLevel]:
    """Return what is asked for the level of each step: always the same, or a new one on the same file."""
    if request.param == "disk, another process":
        others = list[DiskCache]()

        def another() -> DiskCache:
            for other in others:
                other.flush()
            others[:] = [DiskCache(str(tmp_path), limit_bytes=ROOMY_BYTES)]
            return others[0]

        return another
    level: CacheLevel = (
        DiskCache(str(tmp_path), limit_bytes=ROOMY_BYTES) if request.param == "disk" else MemoryCache(ROOMY_BYTES)
    )
    return lambda: level


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
def test_any_part_of_what_is_kept_is_answered_as_the_store_would(
    reopened: Callable[[], CacheLevel], asked: ByteRange | SuffixRange, expected: tuple[int, int] | None
) -> None:
    for bounds in ((150, 300), (100, 200), (100, 180), (1_900, 2_000)):
        reopened().keep(KEY, fetched(*bounds))
    assert reopened().find(KEY, asked, '"1"') == (None if expected is None else fetched(*expected))


def test_without_a_size_only_ranges_with_two_ends_are_answered(reopened: Callable[[], CacheLevel]) -> None:
    reopened().keep(KEY, FetchedRange(data=CONTENT[:100], start=0, etag='"1"', object_size_bytes=None))
    found = reopened().find(KEY, ByteRange(10, 20), '"1"')
    assert found == FetchedRange(data=CONTENT[10:20], start=10, etag='"1"', object_size_bytes=None)
    assert reopened().find(KEY, SuffixRange(10), '"1"') is None
    assert reopened().find(KEY, ByteRange(90, 110), '"1"') is None
    reopened().keep(KEY, fetched(1_000, 1_100))
    reopened().keep(KEY, FetchedRange(data=CONTENT[100:200], start=100, etag='"1"', object_size_bytes=None))
    assert reopened().find(KEY, ByteRange(50, 150), '"1"') == fetched(50, 150), "the size is remembered"


def test_versions_objects_kinds_and_stores_are_not_mixed(reopened: Callable[[], CacheLevel]) -> None:
    reopened().keep(KEY, replace(fetched(0, 2_000), confirmed_s=7.5))
    whole = reopened().find(KEY, None)
    assert whole == fetched(0, 2_000)
    assert whole is not None
    assert whole.confirmed_s == 7.5
    for place, word in enumerate(("sidecar", "s3 (us-east-1)", f"{KEY[2]}.old")):
        other = (*KEY[:place], word, *KEY[place + 1 :])
        assert reopened().find(other, ByteRange(0, 10)) is None
        assert reopened().find(other, ByteRange(0, 10), '"1"') is None
    assert reopened().find(KEY, ByteRange(0, 10), '"2"') is None
    reopened().keep(KEY, fetched(50, 60, etag='"2"'))
    assert reopened().find(KEY, None) is None
    assert reopened().find(KEY, ByteRange(0, 10), '"1"') is None
    assert reopened().find(KEY, ByteRange(0, 10), '"2"') is None
    newest = reopened().find(KEY, ByteRange(50, 60))
    assert newest == reopened().find(KEY, ByteRange(50, 60), '"2"') == fetched(50, 60, etag='"2"')
    assert newest is not None
    assert newest.confirmed_s == 0


@pytest.mark.parametrize("answer", [fetched(0, 10, etag=None), fetched(10, 10), fetched(2_000, 2_010)])
def test_answers_without_a_version_or_bytes_are_not_kept(
    reopened: Callable[[], CacheLevel], answer: FetchedRange
) -> None:
    reopened().keep(KEY, answer)
    assert reopened().find(KEY, ByteRange(0, 10)) is None
    assert reopened().find(KEY, None) is None


BOUNDS = st.tuples(st.integers(0, 1_999), st.integers(1, 400)).map(lambda pair: (pair[0], min(2_000, sum(pair))))
STEPS = st.lists(st.tuples(st.booleans(), st.sampled_from(["a", "b"]), BOUNDS), max_size=40)


@given(STEPS, st.integers(0, 3_000) | st.just(ROOMY_BYTES))
def test_whatever_is_kept_and_asked_answers_are_exact_and_within_the_limit(
    steps: list[tuple[bool, str, tuple[int, int]]], limit_bytes: int
) -> None:
    contents = {"a": CONTENT, "b": CONTENT[::-1]}
    cache = MemoryCache(limit_bytes)
    for keeps, path, (start, stop) in steps:
        answer = fetched(start, stop, content=contents[path])
        if keeps:
            cache.keep((path,), answer)
            if limit_bytes == ROOMY_BYTES:
                assert cache.find((path,), ByteRange(start, stop), '"1"') == answer
        else:
            assert cache.find((path,), ByteRange(start, stop), '"1"') in (None, answer)
        assert 0 <= cache.held_bytes <= limit_bytes


def held_in_memory(*bounds: tuple[int, int], limit_bytes: int = ROOMY_BYTES) -> MemoryCache:
    cache = MemoryCache(limit_bytes)
    for start, stop in bounds:
        cache.keep(KEY, fetched(start, stop))
    return cache


def test_the_memory_forgets_and_counts_no_byte_twice() -> None:
    cache = held_in_memory((0, 100), (50, 150), (20, 180), (0, 180))
    assert cache.held_bytes == 180 + 3 * PIECE_OVERHEAD_BYTES
    cache.keep(KEY, fetched(50, 60, etag='"2"'))
    assert cache.held_bytes == 10 + PIECE_OVERHEAD_BYTES
    for _ in range(2):
        cache.forget(KEY)
        assert (cache.held_bytes, cache.find(KEY, ByteRange(50, 60))) == (0, None)


def test_the_memory_drops_what_was_used_longest_ago() -> None:
    cache = held_in_memory((0, 100), (100, 200), (200, 300), limit_bytes=3 * (100 + PIECE_OVERHEAD_BYTES))
    assert cache.find(KEY, ByteRange(0, 50), '"1"') is not None
    cache.keep(KEY, fetched(300, 400))
    held = [start for start in (0, 100, 200, 300) if cache.find(KEY, ByteRange(start, start + 100), '"1"')]
    assert held == [0, 200, 300]
    cache.keep(("other",), fetched(0, 1_900))
    assert cache.find(("other",), ByteRange(0, 10)) is None, "longer than the limit: it would push everything out"
    assert cache.find(KEY, ByteRange(300, 400), '"1"') is not None
    assert held_in_memory((0, 10), limit_bytes=0).held_bytes == 0

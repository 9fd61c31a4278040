"""Ranges on disk: put together from whatever was kept, of exactly one version."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.storage.disk_cache import DiskCache, DiskRanges, covering, group_of
from coldparquet.storage.requests import FetchedRange

if TYPE_CHECKING:
    from pathlib import Path

STORE, PATH = "s3 (eu-west-1)", "bucket/table/2024-03-01/data.parquet"
CONTENT = random.Random(7).randbytes(2_000)


def fetched(start: int, stop: int, *, etag: str = '"1"', size_bytes: int | None = len(CONTENT)) -> FetchedRange:
    return FetchedRange(data=CONTENT[start:stop], start=start, etag=etag, object_size_bytes=size_bytes)


@pytest.fixture
def files(tmp_path: Path) -> DiskCache:
    return DiskCache(str(tmp_path), limit_bytes=1_000_000)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (ByteRange(100, 200), (100, 200)),
        (ByteRange(120, 130), (120, 130)),
        (ByteRange(100, 300), (100, 300)),
        (ByteRange(90, 110), None),
        (ByteRange(250, 310), None),
        (ByteRange(1_950, 2_500), (1_950, 2_000)),
        (SuffixRange(50), (1_950, 2_000)),
        (SuffixRange(101), None),
    ],
)
def test_another_process_finds_any_part_of_what_was_kept(
    files: DiskCache, asked: ByteRange | SuffixRange, expected: tuple[int, int] | None
) -> None:
    ranges = DiskRanges(files, store_name=lambda: STORE)
    for bounds in ((150, 300), (100, 200), (1_900, 2_000)):
        ranges.keep(PATH, fetched(*bounds))
    found = DiskRanges(files, store_name=lambda: STORE).find(PATH, '"1"', asked)
    assert found == (None if expected is None else fetched(*expected))


def test_versions_objects_and_stores_are_not_mixed(files: DiskCache) -> None:
    ranges = DiskRanges(files, store_name=lambda: STORE)
    ranges.keep(PATH, fetched(0, 100))
    assert ranges.newest_etag(PATH) == '"1"'
    ranges.keep(PATH, fetched(100, 200, etag='"2"'))
    assert DiskRanges(files, store_name=lambda: STORE).newest_etag(PATH) == '"2"'
    asked = ByteRange(0, 50)
    assert ranges.find(PATH, '"2"', asked) is None
    assert DiskRanges(files, store_name=lambda: "s3 (us-east-1)").find(PATH, '"1"', asked) is None
    assert ranges.find(f"{PATH}.old", '"1"', asked) is None
    assert ranges.newest_etag(f"{PATH}.old") is None
    older = ranges.find(PATH, '"1"', asked)
    assert older == fetched(0, 50, size_bytes=None)


def test_long_ranges_are_cut_into_entries_that_are_read_one_by_one(tmp_path: Path) -> None:
    files = DiskCache(str(tmp_path), limit_bytes=100_000_000)
    data = random.Random(8).randbytes(2_500_000)
    answer = FetchedRange(data=data, start=100, etag='"1"', object_size_bytes=len(data) + 100)
    DiskRanges(files, store_name=lambda: STORE).keep(PATH, answer)
    sizes = [path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()]
    assert max(sizes) < 1_100_000
    ranges = DiskRanges(files, store_name=lambda: STORE)
    assert ranges.find(PATH, '"1"', ByteRange(100, len(data) + 100)) == answer
    found = ranges.find(PATH, '"1"', ByteRange(1_048_000, 1_049_000))
    assert found is not None
    assert found.data == data[1_047_900:1_048_900]


def test_ranges_that_another_process_has_removed_are_missed(files: DiskCache, tmp_path: Path) -> None:
    ranges = DiskRanges(files, store_name=lambda: STORE)
    for bounds in ((0, 100), (100, 200)):
        ranges.keep(PATH, fetched(*bounds))
    assert ranges.find(PATH, '"1"', ByteRange(50, 150)) is not None
    for path in tmp_path.rglob("*-100-200"):
        path.unlink()
    for _ in range(2):
        assert ranges.find(PATH, '"1"', ByteRange(50, 150)) is None
    ranges.keep(PATH, fetched(100, 200))
    assert ranges.find(PATH, '"1"', ByteRange(50, 150)) == fetched(50, 150)


@pytest.mark.parametrize("etag", [None, "inode-1-2", 'W/"1"'])
def test_only_versions_of_object_stores_are_kept(files: DiskCache, tmp_path: Path, etag: str | None) -> None:
    answer = FetchedRange(data=b"abc", start=0, etag=etag, object_size_bytes=3)
    DiskRanges(files, store_name=lambda: STORE).keep(PATH, answer)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"[1, 2]", b'["W/x", 1]', b'["\\"1\\"", "x"]', b"\xff"])
def test_whatever_lies_in_place_of_the_newest_version_is_no_version(files: DiskCache, content: bytes) -> None:
    files.write(group_of(STORE, PATH), "newest", content)
    files.write(group_of(STORE, PATH), "something else", content)
    assert DiskRanges(files, store_name=lambda: STORE).newest_etag(PATH) is None
    assert DiskRanges(files, store_name=lambda: STORE).find(PATH, '"1"', ByteRange(0, 10)) is None


BOUNDS = st.tuples(st.integers(0, 30), st.integers(1, 12)).map(lambda pair: ByteRange(pair[0], sum(pair)))


@given(st.lists(BOUNDS, max_size=12), BOUNDS)
def test_the_chosen_ranges_cover_exactly_what_all_of_them_cover(kept: list[ByteRange], wanted: ByteRange) -> None:
    bounds_of_kept = sorted((bounds.start, bounds.stop) for bounds in kept)
    chosen = covering(bounds_of_kept, wanted)
    everything = {byte for start, stop in bounds_of_kept for byte in range(start, stop)}
    is_covered = everything >= set(range(wanted.start, wanted.stop))
    assert bool(chosen) == is_covered
    assert set(chosen) <= set(bounds_of_kept)
    reached = wanted.start
    for start, stop in chosen:
        assert start <= reached < stop
        reached = stop
    assert not chosen or reached >= wanted.stop

"""Our `_pages` file: what goes in comes out, and anything else than that is refused."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.format import page_index as pages_file
from coldparquet.format.page_index import ENVELOPE, encode_pages_file, parse_pages_file, stated_size_bytes
from coldparquet.format.pages import ChunkPlaces, PageBounds, PartitionPages, chunk_places
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_writer import BoundSpec, encode_sidecar
from coldparquet.records import replace
from tests.support.damage import sealed
from tests.support.paged_files import (
    PagedFile,
    assert_same_pages,
    paged_file,
    pages_by_chunk,
    rows_of_all_kinds,
    with_indexes,
)
from tests.support.questdb_tables import PARTITIONS

FILE = paged_file()
SMALL = paged_file(rows_of_all_kinds(40), row_group_size=40)


def encoded(file: PagedFile, etag: str = "") -> bytes:
    pages = file.indexed().pages
    assert pages is not None
    return encode_pages_file(pages, file.places, parquet_size_bytes=len(file.data), etag=etag)


def parsed(data: bytes, file: PagedFile, etag: str | None = None) -> PartitionPages:
    return parse_pages_file(data, parquet_size_bytes=len(file.data), etag=etag, places=file.places, path="p/_pages")


@pytest.mark.parametrize("etag", ["", '"5d41402abc4b2a76b9719d911017c592-3"'])
def test_what_was_written_is_read(etag: str) -> None:
    data = encoded(FILE, etag)
    assert stated_size_bytes(data) == stated_size_bytes(data[: ENVELOPE.header.size]) == len(data)
    for asked in (etag, None, ""):
        assert_same_pages(parsed(data, FILE, asked), FILE.indexed().pages)


def test_it_is_smaller_than_the_indexes() -> None:
    index_bytes = FILE.footer.offset - int(FILE.places.stops.max())
    assert len(encoded(FILE)) < index_bytes


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_pages_of_questdb_survive(partition: Any) -> None:
    file = PagedFile.of((partition.directory / "data.parquet").read_bytes())
    walked = file.walked().pages
    assert walked is not None
    data = encode_pages_file(walked, file.places, parquet_size_bytes=len(file.data))
    assert_same_pages(parsed(data, file), walked)


def test_chunks_without_pages_stay_unknown() -> None:
    file = with_indexes(
        FILE,
        lambda chunk, located, bounded: (b"", b"") if chunk % 4 == 1 else (located.encode(), bounded.encode()),
    )
    data = encoded(file)
    known = pages_by_chunk(parsed(data, file))
    assert known == pages_by_chunk(file.indexed().pages)
    assert {chunk for chunk in range(file.places.chunk_count) if chunk % 4 != 1} == known.keys()


@st.composite
def any_pages(draw: st.DrawFn, places: ChunkPlaces) -> PartitionPages:
    """Cut each chunk anywhere, or not at all, with bounds of any bytes."""
    pages: dict[str, list[int]] = {name: [] for name in ("first_rows", "starts", "stops", "null_counts")}
    page_counts, dictionary_stops = [], places.starts.copy()
    lower: list[bytes | None] = []
    upper: list[bytes | None] = []
    for chunk in range(places.chunk_count):
        row_group, column = divmod(chunk, places.column_count)
        rows, nulls = int(places.row_counts[row_group]), int(places.null_counts[chunk])
        count = draw(st.integers(0, 3))
        page_counts.append(count)
        if count == 0:
            continue
        inner = st.sets(st.integers(1, 20), min_size=count, max_size=count).map(sorted)
        starts = [int(places.starts[chunk]) + step for step in draw(inner)]
        first_rows = [0, *list(draw(inner))[: count - 1]]
        dictionary_stops[chunk] = starts[0]
        pages["starts"] += starts
        pages["stops"] += [*starts[1:], int(places.stops[chunk])]
        pages["first_rows"] += first_rows
        page_rows = np.diff([*first_rows, rows]).tolist()
        counts = [-1] * count
        if places.is_flat[column] and draw(st.booleans()):
            counts = []
            for held in page_rows:
                counts.append(min(held, nulls))
                nulls -= counts[-1]
        pages["null_counts"] += counts
        width = int(places.bound_bytes[column])
        bound = st.binary(min_size=max(width, 0), max_size=width if width >= 0 else 20)
        for side in (lower, upper):
            held = st.none() | bound if places.has_bounds[column] else st.none()
            side.extend(draw(st.lists(held, min_size=count, max_size=count)))
    arrays = {name: np.array(values, np.int64) for name, values in pages.items()}
    return PartitionPages(
        row_group_count=places.row_group_count,
        column_count=places.column_count,
        first_page=np.concatenate([[0], np.cumsum(page_counts)]).astype(np.int64),
        dictionary_starts=places.starts,
        dictionary_stops=dictionary_stops,
        lower=bounds_of(lower),
        upper=bounds_of(upper),
        first_row_group=0,
        **arrays,
    )


def bounds_of(bounds: list[bytes | None]) -> PageBounds:
    """Lay the bounds out back to front, with bytes between them that belong to none."""
    content, offsets = b"??", []
    for bound in reversed(bounds):
        offsets.append(len(content))
        content += (bound or b"") + b"?"
    return PageBounds(
        offsets=np.array(offsets[::-1], np.int64),
        lengths=np.array([-1 if bound is None else len(bound) for bound in bounds], np.int64),
        values=np.frombuffer(content, np.uint8),
    )


@given(st.data())
def test_any_pages_come_back(data: st.DataObject) -> None:
    pages = data.draw(any_pages(SMALL.places))
    if not pages_by_chunk(pages):
        return
    content = encode_pages_file(pages, SMALL.places, parquet_size_bytes=len(SMALL.data))
    assert_same_pages(parsed(content, SMALL), pages)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"parquet_size_bytes": 1}, "StalePages"),
        ({"row_group_count": 2}, "StalePages"),
        ({"column_count": 5}, "StalePages"),
        ({"fingerprint": 0}, "StalePages"),
        ({"body_bytes": 0}, "InvalidValue"),
        ({"body_bytes": (1 << 64) - 1}, "InvalidValue"),
        ({"body_bytes": 100_000}, "InvalidValue"),
        ({"page_count": 0}, "InvalidValue"),
        ({"page_count": (1 << 64) - 1}, "InvalidValue"),
        ({"etag_bytes": 7}, "InvalidValue"),
        ({"etag_bytes": (1 << 32) - 1}, "InvalidValue"),
    ],
    ids=str,
)
def test_numbers_that_do_not_go_together_are_refused(change: dict[str, int], kind: str) -> None:
    data = encoded(SMALL)
    assert_same_pages(parsed(sealed(ENVELOPE, data), SMALL), SMALL.indexed().pages)
    with pytest.raises(FormatError) as caught:
        parsed(sealed(ENVELOPE, data, **change), SMALL)
    assert caught.value.kind == kind
    assert "coldparquet index" in caught.value.message


def test_a_body_that_inflates_to_more_than_it_says_is_refused() -> None:
    data = encoded(SMALL)
    body = zlib.decompress(data[ENVELOPE.header.size :])
    for other in (body + bytes(50_000_000), body[:-1], b"", body.replace(b"name", b"nam")):
        compressed = zlib.compress(other)
        changed = data[: ENVELOPE.header.size] + compressed
        with pytest.raises(FormatError, match="coldparquet index"):
            parsed(sealed(ENVELOPE, changed, file_bytes=len(changed)), SMALL)


def test_a_body_of_zeros_is_refused_before_it_is_decompressed() -> None:
    """A few hundred kilobytes of them in the file would take gigabytes of memory."""
    body_bytes = pages_file.LARGEST_BODY_BYTES + 1
    data = encoded(SMALL)[: ENVELOPE.header.size] + bytes(body_bytes // 1000)
    with pytest.raises(FormatError, match=f"a body of {body_bytes:,} bytes"):
        parsed(sealed(ENVELOPE, data, file_bytes=len(data), body_bytes=body_bytes), SMALL)


@pytest.mark.parametrize("limit", ["LARGEST_BODY_BYTES", "LARGEST_PAGES_FILE_BYTES"])
def test_a_file_that_no_reader_takes_is_not_written(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages_file, limit, 50)
    with pytest.raises(UnsupportedError) as caught:
        encoded(SMALL)
    assert caught.value.kind == "TooLarge"


def with_numbers(change: dict[int, int]) -> bytes:
    """Change u32 numbers of the body."""
    data = encoded(SMALL)
    body = bytearray(zlib.decompress(data[ENVELOPE.header.size :]))
    for position, number in change.items():
        struct.pack_into("<I", body, 4 * position, number)
    changed = data[: ENVELOPE.header.size] + zlib.compress(bytes(body))
    return sealed(ENVELOPE, changed, file_bytes=len(changed))


def test_pages_that_cannot_be_are_refused() -> None:
    """Each number of the body is what the others leave it to be, or it is one that cannot be checked."""
    chunk_count = SMALL.places.chunk_count
    page_count = ENVELOPE.header.unpack(encoded(SMALL)).page_count
    assert page_count == chunk_count  # so small that each chunk has one page
    unchecked_lengths = range(2 * chunk_count + 3 * page_count, 2 * chunk_count + 5 * page_count)
    for position in range(2 * chunk_count + 5 * page_count):
        for number in (0, 3, (1 << 32) - 2):
            data = with_numbers({position: number})
            if data == encoded(SMALL):
                continue
            try:
                found = parsed(data, SMALL)
            except FormatError as error:
                assert error.kind == "InvalidValue"  # noqa: PT017 - some changes are none
            else:
                assert position in unchecked_lengths or pages_by_chunk(found) == pages_by_chunk(SMALL.indexed().pages)


def test_pages_of_another_version_of_the_file_are_refused() -> None:
    """The size alone may be the same by chance: the fingerprint of the chunks is not."""
    data = encoded(FILE, '"one"')
    with pytest.raises(FormatError) as caught:
        parsed(data, FILE, '"two"')
    assert caught.value.kind == "StalePages"
    rows = rows_of_all_kinds()
    changed = rows.set_column(1, "price", rows["price"].combine_chunks()[::-1])
    other = paged_file(changed)
    with pytest.raises(FormatError) as caught:
        parse_pages_file(data, parquet_size_bytes=len(FILE.data), etag=None, places=other.places, path=None)
    assert caught.value.kind == "StalePages"


def fingerprint_with(**changes: Any) -> int:
    """Change the statistics of one chunk, of names."""
    content = sidecar_content_from_footer(FILE.footer)
    first, *others = content.row_groups
    chunks = list(first.chunks)
    chunks[2] = replace(chunks[2], **changes)
    changed = replace(content, row_groups=(replace(first, chunks=tuple(chunks)), *others))
    return chunk_places(parse_sidecar(encode_sidecar(changed))).fingerprint


def test_every_statistic_counts() -> None:
    long = BoundSpec(b"a name 123", exact=True)
    fingerprints = {
        fingerprint_with(),
        fingerprint_with(null_count=1),
        fingerprint_with(distinct_count=37),
        fingerprint_with(min=long),
        fingerprint_with(min=replace(long, value=b"a name 124")),
        fingerprint_with(max=long),
        fingerprint_with(min=replace(long, exact=False)),
        fingerprint_with(min=None),
    }
    assert len(fingerprints) == 8


def test_bloom_filters_beside_the_bounds_do_not_count() -> None:
    """A sidecar that holds them, and one that only says where they are, are of the same file."""
    long = BoundSpec(b"a name 123", exact=True)
    assert fingerprint_with(max=long, bloom_bitset=bytes(64)) == fingerprint_with(max=long)


def test_what_does_not_fit_32_bits_is_left_out() -> None:
    pages = SMALL.indexed().pages
    assert pages is not None
    lengths = pages.lower.lengths.copy()
    lengths[0] = 1 << 32
    huge = replace(pages, lower=replace(pages.lower, lengths=lengths))
    content = encode_pages_file(huge, SMALL.places, parquet_size_bytes=len(SMALL.data))
    expected = pages_by_chunk(pages)
    del expected[0]
    assert pages_by_chunk(parsed(content, SMALL)) == expected


@pytest.mark.parametrize("data", [b"", b"COLD", b"PAR1" * 40, bytes(68)], ids=len)
def test_other_bytes_state_no_size(data: bytes) -> None:
    assert stated_size_bytes(data) is None
    with pytest.raises(FormatError):
        parsed(data, SMALL)

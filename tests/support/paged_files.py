"""Parquet files of many pages: made, walked, given false page indexes, and their pages as plain data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from coldparquet.format.page_headers import ChunkWalk, check_walked_pages
from coldparquet.format.page_index import page_index_range, parse_page_index, parse_pages_file
from coldparquet.format.pages import ChunkPlaces, PagesFound, PartitionPages, chunk_places
from coldparquet.format.parquet_footer import ParquetFooter, frame_footer
from coldparquet.format.parquet_thrift import ColumnIndex, FileMetaData, OffsetIndex
from coldparquet.format.sidecar import Sidecar, parse_sidecar
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.ranges import ByteRange
from tests.support.parquet_footers import footer_bytes, parquet_bytes, parsed_footer

ROWS = 6_000
GROUP_ROWS = 2_500
"""The last row group is smaller than the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedFile:
    """A Parquet file, and what its footer says."""

    data: bytes
    footer: ParquetFooter
    sidecar: Sidecar

    @classmethod
    def of(cls, data: bytes) -> PagedFile:
        footer = parsed_footer(data)
        sidecar = parse_sidecar(encode_sidecar(sidecar_content_from_footer(footer)))
        return cls(data=data, footer=footer, sidecar=sidecar)

    @property
    def places(self) -> ChunkPlaces:
        return chunk_places(self.sidecar)

    def indexed(self, **options: Any) -> PagesFound:
        """Parse the page index of the file."""
        place = page_index_range(self.sidecar)
        tail = self.data[place.start : place.stop]
        return parse_page_index(self.footer, tail, tail_start=place.start, places=self.places, **options)

    def indexed_anywhere(self) -> PagesFound:
        """Parse the page index wherever in the file it lies."""
        return parse_page_index(self.footer, self.data, tail_start=0, places=self.places)

    def walked(self) -> PagesFound:
        """Walk the page headers of all chunks."""
        places = self.places
        walks = {}
        for chunk in range(places.chunk_count):
            place = ByteRange(int(places.starts[chunk]), int(places.stops[chunk]))
            walks[chunk] = walk = ChunkWalk(place, is_flat=bool(places.is_flat[chunk % places.column_count]))
            while (wanted := walk.wanted) is not None:
                walk.receive(self.data[wanted.start : wanted.stop])
        return check_walked_pages(walks, places)


def rows_of_all_kinds(rows: int = ROWS) -> pa.Table:
    """Return columns that ascend, are random, have nulls, repeat, are lists."""
    random = np.random.default_rng(5)
    return pa.table(
        {
            "ts": pa.array(np.arange(rows) * 1_000, pa.timestamp("us")),
            "price": pa.array(random.normal(size=rows), mask=random.random(rows) < 0.2),
            "name": pa.array([f"name {index % 37}" for index in range(rows)]),
            "note": pa.array([None if index < rows // 2 else f"{index}" * 20 for index in range(rows)]),
            "flag": pa.array([index % 3 == 0 for index in range(rows)]),
            "values": pa.array([None if index % 5 == 0 else [index / 2] * (index % 4) for index in range(rows)]),
        }
    )


def written(table: pa.Table | None = None, **options: Any) -> bytes:
    """Write a file of small pages."""
    options = {"row_group_size": GROUP_ROWS, "data_page_size": 2_048, "write_batch_size": 100} | options
    return parquet_bytes(rows_of_all_kinds() if table is None else table, **options)


def paged_file(table: pa.Table | None = None, **options: Any) -> PagedFile:
    """Write a file of small pages with a page index."""
    return PagedFile.of(written(table, **{"write_page_index": True} | options))


def with_indexes(file: PagedFile, change: Callable[[int, OffsetIndex, ColumnIndex], tuple[bytes, bytes]]) -> PagedFile:
    """Replace the page index: ``change`` gets each chunk's number and indexes, and returns both as bytes, or nothing."""
    raw = footer_bytes(file.data)
    metadata = FileMetaData.decode(raw.content, path=None, offset=0)
    content = bytearray(file.data[: raw.offset])
    chunks = [chunk for row_group in metadata.row_groups for chunk in row_group.columns]
    for number, chunk in enumerate(chunks):
        offset_index = OffsetIndex.decode(file.data[chunk.offset_index_offset or 0 :], path=None, offset=0)
        column_index = ColumnIndex.decode(file.data[chunk.column_index_offset or 0 :], path=None, offset=0)
        located, bounded = change(number, offset_index, column_index)
        chunk.offset_index_offset, chunk.offset_index_length = len(content), len(located)
        content += located
        chunk.column_index_offset, chunk.column_index_length = len(content), len(bounded)
        content += bounded
    return PagedFile.of(bytes(content) + frame_footer(metadata.encode()))


@dataclass(frozen=True, slots=True)
class Page:
    """One page as plain data."""

    first_row: int
    start: int
    stop: int
    null_count: int
    lower: bytes | None
    upper: bytes | None


def pages_by_chunk(pages: PartitionPages | None) -> dict[int, list[Page]]:
    """Return the pages of each chunk that is known."""
    if pages is None:
        return {}
    found: dict[int, list[Page]] = {}
    for chunk in range(len(pages.first_page) - 1):
        for page in range(pages.first_page[chunk], pages.first_page[chunk + 1]):
            bounds = []
            for side in (pages.lower, pages.upper):
                start, length = int(side.offsets[page]), int(side.lengths[page])
                bounds.append(None if length < 0 else side.values[start : start + length].tobytes())
            found.setdefault(chunk, []).append(
                Page(
                    int(pages.first_rows[page]),
                    int(pages.starts[page]),
                    int(pages.stops[page]),
                    int(pages.null_counts[page]),
                    bounds[0],
                    bounds[1],
                )
            )
    return found


def assert_same_pages(found: PartitionPages | None, expected: PartitionPages | None) -> None:
    """Both describe the same pages, bounds and dictionaries."""
    assert pages_by_chunk(found) == pages_by_chunk(expected)
    if found is not None and expected is not None:
        assert found.dictionary_starts.tolist() == expected.dictionary_starts.tolist()
        assert found.dictionary_stops.tolist() == expected.dictionary_stops.tolist()


def pages_beside(partition: Path) -> PartitionPages:
    """Read the ``_pages`` of a local partition as a reader does, for the snapshot that its sidecar holds."""
    sidecar = parse_sidecar((partition / "_pm").read_bytes())
    return parse_pages_file(
        (partition / "_pages").read_bytes(),
        parquet_size_bytes=sidecar.parquet_size_bytes,
        etag=None,
        places=chunk_places(sidecar),
        path=None,
    )

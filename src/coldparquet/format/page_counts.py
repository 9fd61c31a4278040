"""How many data pages a Parquet file has, by its offset indexes: the lists of the pages of each column chunk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.errors import FormatError
from coldparquet.format.thrift_fields import parse_fields, parse_structure_list
from coldparquet.ranges import ByteRange

if TYPE_CHECKING:
    from coldparquet.format.parquet_footer import ParquetFooter

_PAGE_LOCATIONS = 1
"""Field number of OffsetIndex in parquet.thrift."""

_LARGEST_SPREAD = 2
"""Writers put the indexes beside each other; where they do not, too much would be read for a number."""


def offset_index_span(footer: ParquetFooter) -> ByteRange | None:
    """Return the bytes in which all offset indexes lie; None if a chunk has none, or they lie far apart."""
    places = _places(footer)
    if not places or any(start <= 0 or length <= 0 for start, length in places):
        return None
    first, stop = min(start for start, _ in places), max(start + length for start, length in places)
    if stop > footer.offset or stop - first > _LARGEST_SPREAD * sum(length for _, length in places):
        return None
    return ByteRange(first, stop)


def count_pages(footer: ParquetFooter, offset_indexes: bytes, span: ByteRange) -> int | None:
    """Count the data pages of a file; None if its offset indexes are damaged.

    Args:
        footer: Its footer.
        offset_indexes: The bytes of the span.
        span: As `offset_index_span` says.
    """
    starts = ((start - span.start, length) for start, length in _places(footer))
    try:
        return sum(_page_count(offset_indexes[start : start + length]) for start, length in starts)
    except FormatError:
        return None


def _places(footer: ParquetFooter) -> list[tuple[int, int]]:
    """Return where each offset index begins, and its length."""
    return [
        place
        for row_group in footer.row_groups
        for place in zip(row_group.offset_index_offsets, row_group.offset_index_lengths, strict=True)
    ]


def _page_count(offset_index: bytes) -> int:
    fields = {field.number: field.value for field in parse_fields(offset_index)}
    return len(parse_structure_list(fields[_PAGE_LOCATIONS])) if _PAGE_LOCATIONS in fields else 0

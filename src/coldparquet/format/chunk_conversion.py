"""The rule that turns one Parquet column chunk into one sidecar chunk.

It takes plain numbers and bytes, so that it does not matter who parsed the Parquet footer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.errors import FormatError
from coldparquet.format import sidecar_layout as layout
from coldparquet.format.sidecar_content import BoundSpec, ChunkSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

_LAST_CODEC = max(layout.Codec)


def convert_chunk(  # noqa: PLR0913 - the fields of one Parquet structure, each by name
    *,
    codec: int,
    encodings: Iterable[int],
    num_values: int,
    total_compressed: int,
    dictionary_page_offset: int | None,
    data_page_offset: int,
    null_count: int | None,
    distinct_count: int | None,
    min_value: bytes | None,
    max_value: bytes | None,
    is_min_exact: bool | None,
    is_max_exact: bool | None,
) -> ChunkSpec:
    """Convert the fields of a Parquet `ColumnMetaData` as QuestDB does when it makes a sidecar from a footer.

    Negative counts and offsets become 0, negative null and distinct counts unknown. A dictionary offset wins over the
    data page offset whenever the field is present. The deprecated `min` and `max` must not be passed: their order is
    undefined. A bound longer than 65,535 bytes, which the format cannot hold, is left out, and without it pruning
    merely keeps more row groups; QuestDB refuses such a file.

    Args:
        codec: Parquet compression codec.
        encodings: Parquet encodings of the chunk, in any order.
        num_values: Number of values, nulls included.
        total_compressed: Bytes of all pages in the file.
        dictionary_page_offset: Offset of the dictionary page, None when the field is absent.
        data_page_offset: Offset of the first data page.
        null_count: Number of nulls, None when unknown.
        distinct_count: Number of distinct values, None when unknown.
        min_value: Smallest value, None when unknown.
        max_value: Largest value, None when unknown.
        is_min_exact: Whether `min_value` occurs in the chunk; None, as old writers leave it, counts as true.
        is_max_exact: The same for `max_value`.

    Raises:
        FormatError: The codec is none of Parquet's (kind `Conversion`).
    """
    if not 0 <= codec <= _LAST_CODEC:
        raise FormatError(
            f"compression codec {codec} is none of Parquet's codecs 0 to {_LAST_CODEC:d}",
            kind="Conversion",
            field="codec",
        )
    encoding_mask = 0
    for encoding in encodings:
        # Unknown encodings, and those of levels, leave no bit.
        encoding_mask |= layout.ENCODING_BITS.get(encoding, 0)
    start = data_page_offset if dictionary_page_offset is None else dictionary_page_offset
    return ChunkSpec(
        codec=codec,
        encodings=encoding_mask,
        num_values=max(num_values, 0),
        byte_range_start=max(start, 0),
        total_compressed_bytes=max(total_compressed, 0),
        null_count=_known_count(null_count),
        distinct_count=_known_count(distinct_count),
        min=_bound(min_value, is_min_exact),
        max=_bound(max_value, is_max_exact),
    )


def _known_count(count: int | None) -> int | None:
    return None if count is None or count < 0 else count


def _bound(value: bytes | None, is_exact: bool | None) -> BoundSpec | None:
    if not value or len(value) > layout.MAX_OUT_OF_LINE_BYTES:
        return None
    return BoundSpec(value, exact=is_exact is not False)

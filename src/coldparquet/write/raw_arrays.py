"""Nested Arrow lists -> arrays as QuestDB stores them: the inverse of ``coldparquet.decode.raw_arrays``.

One byte string per row: the length of each dimension as i32, zeros up to a multiple of 8 bytes, then the elements as
float64 in row-major order, null elements as NaN; everything little-endian.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldparquet.decode.numpy_bridge import numbers_to_numpy
from coldparquet.errors import InvalidInputError

if TYPE_CHECKING:
    import numpy.typing as npt

_WORD_BYTES = 8
_LARGEST_BYTES = (1 << 31) - 1
"""What the offsets of one Arrow array can count."""


def encode_raw_arrays(lists: pa.ListArray[Any], *, dimensions: int, column: str) -> pa.BinaryArray:
    """Encode the arrays of one row group.

    Args:
        lists: Lists nested ``dimensions`` deep around float64, shape ``(rows,)``.
        dimensions: Number of dimensions, 1 to 32.
        column: Name of the column, for error messages.

    Returns:
        One byte string per row, null where the list is null. The dimensions behind one of length 0 are 0 too, because
        Arrow does not tell them.

    Raises:
        InvalidInputError: The lists of a row differ in length or one of them is null, so that they are no array
            (kind ``RaggedArray``), or the row group takes more than 2 GiB (kind ``TooLarge``).
    """
    is_null = _bits(lists.is_null())
    rows = np.flatnonzero(~is_null)
    nested: Any = lists.drop_null()
    shapes = np.zeros((len(rows), dimensions), dtype=np.int64)
    counts = np.ones(len(rows), dtype=np.int64)  # lists of each row at the depth that is looked at; at last elements
    for dimension in range(dimensions):
        if nested.null_count:
            row = np.repeat(rows, counts)[np.argmax(_bits(nested.is_null()))]
            raise _ragged(column, int(row), "one of its lists is null")
        lengths = numbers_to_numpy(pc.list_value_length(nested), np.int32).astype(np.int64)
        has_lists = counts > 0
        first = np.cumsum(counts) - counts
        shapes[has_lists, dimension] = lengths[first[has_lists]]
        differs = lengths != np.repeat(shapes[:, dimension], counts)
        if differs.any():
            raise _ragged(column, int(np.repeat(rows, counts)[np.argmax(differs)]), "its lists differ in length")
        counts = counts * shapes[:, dimension]
        nested = nested.flatten()
    elements = numbers_to_numpy(nested.fill_null(float("nan")), np.float64)
    return _byte_strings(shapes, counts, elements, is_null, column)


def _byte_strings(
    shapes: npt.NDArray[np.int64],
    element_counts: npt.NDArray[np.int64],
    elements: npt.NDArray[np.float64],
    is_null: npt.NDArray[np.bool_],
    column: str,
) -> pa.BinaryArray:
    dimensions = shapes.shape[1]
    header_words = (dimensions + 1) // 2
    word_lengths = header_words + element_counts
    header_positions = (np.cumsum(word_lengths) - word_lengths)[:, None] + np.arange(header_words)
    words = np.empty(int(word_lengths.sum()), dtype="<u8")
    if words.nbytes > _LARGEST_BYTES:
        raise InvalidInputError(
            f"the arrays of column {column!r} take {words.nbytes:,} bytes in one row group, more than Arrow can hold in"
            " one piece; write fewer rows per row group",
            kind="TooLarge",
            field=column,
        )
    headers = np.zeros((len(shapes), 2 * header_words), dtype="<i4")
    headers[:, :dimensions] = shapes
    is_element = np.ones(len(words), dtype=bool)
    is_element[header_positions] = False
    words[header_positions] = headers.view("<u8")
    words[is_element] = elements.view("<u8")
    offsets = np.zeros(len(is_null) + 1, dtype=np.int32)
    row_bytes = np.zeros(len(is_null), dtype=np.int64)
    row_bytes[~is_null] = word_lengths * _WORD_BYTES
    np.cumsum(row_bytes, out=offsets[1:])
    validity = pa.py_buffer(np.packbits(~is_null, bitorder="little").data) if is_null.any() else None
    buffers = [validity, pa.py_buffer(offsets.data), pa.py_buffer(words.data)]
    byte_strings: pa.BinaryArray = pa.Array.from_buffers(pa.binary(), len(is_null), buffers)  # type: ignore[assignment]
    return byte_strings


def _bits(flags: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    return np.asarray(flags.to_numpy(zero_copy_only=False), dtype=bool)


def _ragged(column: str, row: int, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"row {row} of its row group holds no array in column {column!r}: {why}",
        kind="RaggedArray",
        field=column,
        row=row,
    )

"""QuestDB's arrays as it stores them itself: one byte string per row -> nested Arrow lists.

Layout of a byte string: the length of each dimension as i32, zeros up to a multiple of 8 bytes, then the elements as
float64 in row-major order; everything little-endian. An element that is NaN is QuestDB's null element, and becomes a
null as it is in the other encoding of arrays, Parquet lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import numpy.typing as npt

    from coldparquet.decode.chunk_label import ChunkLabel

MAX_EMPTY_LISTS = 1 << 24
"""Lists that the arrays without elements of one chunk may hold together. A shape such as (2000000000, 0) takes 8 bytes
in the file but two billion empty lists in Arrow."""

_WORD_BYTES = 8
_SATURATED = 1 << 31
"""Products of dimensions stop growing here; no byte string of Arrow's holds as many elements."""


def decode_raw_arrays(payloads: pa.BinaryArray, *, dimensions: int, label: ChunkLabel) -> pa.ListArray[Any]:
    """Decode the byte strings of one chunk.

    Args:
        payloads: One byte string or null per row, shape ``(rows,)``.
        dimensions: Number of dimensions of the column's type, 1 to 32.
        label: The chunk, for error messages.

    Returns:
        Lists nested ``dimensions`` deep around float64, shape ``(rows,)``. A dimension of length 0 gives empty lists;
        dimensions behind it do not show in Arrow.

    Raises:
        FormatError: A byte string does not have the length that its dimensions ask for, or arrays without elements
            claim more than ``MAX_EMPTY_LISTS`` lists.
    """
    is_null = np.asarray(payloads.is_null().to_numpy(zero_copy_only=False), dtype=bool)
    rows = np.flatnonzero(~is_null)
    first_byte, lengths_bytes, data = _byte_strings(payloads.drop_null())
    header_words = (dimensions + 1) // 2
    _check(
        (lengths_bytes % _WORD_BYTES == 0) & (lengths_bytes >= header_words * _WORD_BYTES),
        rows,
        label,
        f"an array of {dimensions} dimensions begins with {header_words * _WORD_BYTES} bytes and goes on in words of 8",
    )
    word_lengths = lengths_bytes // _WORD_BYTES
    words = np.frombuffer(memoryview(data), dtype="<u8", count=int(word_lengths.sum()), offset=first_byte)
    header_positions = (np.cumsum(word_lengths) - word_lengths)[:, None] + np.arange(header_words)
    shapes = words[header_positions].view("<i4")[:, :dimensions].astype(np.int64)
    _check((shapes >= 0).all(axis=1), rows, label, "a dimension is negative")

    lists = [np.ones(len(rows), dtype=np.int64)]  # how many lists (at last: elements) each row has at each depth
    for dimension in range(dimensions):
        lists.append(np.minimum(lists[-1] * shapes[:, dimension], _SATURATED))
    _check(
        (header_words + lists[-1]) * _WORD_BYTES == lengths_bytes,
        rows,
        label,
        "the dimensions ask for another number of elements than there are",
    )
    empty_lists = sum(int(count[lists[-1] == 0].sum()) for count in lists[1:])
    if empty_lists > MAX_EMPTY_LISTS:
        raise label.damaged(f"arrays without elements claim {empty_lists} lists, more than {MAX_EMPTY_LISTS}")

    is_element = np.ones(len(words), dtype=bool)
    is_element[header_positions] = False
    elements = words[is_element].view("<f8")
    nested: pa.Array[Any] = pa.array(elements, type=pa.float64(), mask=np.isnan(elements))
    for dimension in range(dimensions - 1, 0, -1):
        list_lengths = np.repeat(shapes[:, dimension], lists[dimension])
        nested = pa.ListArray.from_arrays(_offsets(list_lengths), nested)
    row_lengths = np.zeros(len(payloads), dtype=np.int64)
    row_lengths[rows] = shapes[:, 0]
    return pa.ListArray.from_arrays(_offsets(row_lengths), nested, mask=pa.array(is_null))


def _byte_strings(present: pa.BinaryArray) -> tuple[int, npt.NDArray[np.int64], pa.Buffer]:
    """Take byte strings, none of them null, apart.

    Returns:
        Where the first one begins in the data, the length of each, and the data, in which they touch each other.
    """
    _, offsets_buffer, data = present.buffers()
    if len(present) == 0 or offsets_buffer is None:
        return 0, np.empty(0, dtype=np.int64), pa.py_buffer(b"")
    offsets = np.frombuffer(memoryview(offsets_buffer), dtype=np.int32, count=present.offset + len(present) + 1)[
        present.offset :
    ]
    return int(offsets[0]), np.diff(offsets).astype(np.int64), data or pa.py_buffer(b"")


def _offsets(list_lengths: npt.NDArray[np.int64]) -> pa.Int32Array:
    offsets = np.zeros(len(list_lengths) + 1, dtype=np.int32)
    np.cumsum(list_lengths, out=offsets[1:])
    return pa.array(offsets, type=pa.int32())


def _check(holds: npt.NDArray[np.bool_], rows: npt.NDArray[np.intp], label: ChunkLabel, message: str) -> None:
    if not holds.all():
        row = int(rows[np.argmin(holds)])
        raise label.damaged(f"row {row}: {message}", row=row, field="array")

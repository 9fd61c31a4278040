"""STRING, BINARY, VARCHAR and arrays, as native partitions store them -> Arrow arrays.

No value is looked at by itself: lengths and places of all values of a slice are compared at once, and their bytes are
copied out of the data file in one step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from coldparquet.decode.native_fixed import validity
from coldparquet.decode.parquet_reader import check_values
from coldparquet.decode.raw_arrays import decode_raw_arrays
from coldparquet.errors import UnsupportedError
from coldparquet.format.native_layout import INLINED_VALUE_OFFSET, MAX_INLINED_BYTES, EntryKind
from coldparquet.format.type_codes import TypeTag
from coldparquet.format.utf16 import UNIT_BYTES, utf16_to_utf8

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from coldparquet.decode.rows_label import RowsLabel
    from coldparquet.format.column_types import ColumnType
    from coldparquet.format.native_layout import Mask, Offsets, VariableLayout

    ByteArray = npt.NDArray[np.uint8]

LARGEST_CHUNK_BYTES = (1 << 31) - 1
"""Arrow's strings and byte strings have offsets of 32 bits: longer data becomes several arrays."""

_UTF8_BYTES_PER_UNIT = 3
"""At most, of UTF-16: a surrogate pair is two units and four bytes."""


def decode_variable(  # noqa: PLR0913 - two files and what they hold
    auxiliary: ByteArray,
    data: ByteArray,
    layout: VariableLayout,
    *,
    column_type: ColumnType,
    data_start: int,
    label: RowsLabel,
) -> list[pa.Array[Any]]:
    """Decode the values of one slice.

    Args:
        auxiliary: Their entries of the auxiliary file.
        data: Their bytes of the data file.
        layout: How both are laid out.
        column_type: Type of the column.
        data_start: Where ``data`` begins in the data file.
        label: The values, for error messages.

    Returns:
        The values in order, in as few arrays as Arrow's 32-bit offsets allow.

    Raises:
        FormatError: Lengths and offsets contradict each other, text is not UTF-8, or an array is damaged.
        UnsupportedError: One value is longer than Arrow's offsets can say.
    """
    if layout.entry_kind is EntryKind.OFFSET:
        values = _prefixed_values(auxiliary, data, layout, data_start, label)
    else:
        values = _described_values(auxiliary, data, layout, data_start, label)
    is_string = column_type.tag is TypeTag.STRING
    largest = values.lengths // UNIT_BYTES * _UTF8_BYTES_PER_UNIT if is_string else values.lengths
    return [
        _decode_chunk(values.rows(first, stop), column_type, replace(label, first_row=label.first_row + first))
        for first, stop in _chunks(largest, label)
    ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Values:
    """Where the bytes of values are: arrays of shape ``(rows,)``."""

    data: ByteArray
    """What the data file holds."""
    starts: Offsets
    """First byte of each value in ``data``; ascending where it has bytes there."""
    lengths: Offsets
    """Bytes of each value, wherever they are; 0 for null."""
    is_null: Mask
    is_inlined: Mask
    """Values that lie in their auxiliary entry."""
    entries: ByteArray
    """Auxiliary entries, shape ``(rows, entry_bytes)``."""

    def rows(self, first: int, stop: int) -> _Values:
        return replace(
            self,
            starts=self.starts[first:stop],
            lengths=self.lengths[first:stop],
            is_null=self.is_null[first:stop],
            is_inlined=self.is_inlined[first:stop],
            entries=self.entries[first:stop],
        )

    def joined(self) -> ByteArray:
        """Return the bytes of all values, one behind the other."""
        in_data = _gathered(self.data, self.starts[~self.is_inlined], self.lengths[~self.is_inlined])
        if not self.is_inlined.any():
            return in_data
        inlined = self.entries[self.is_inlined, INLINED_VALUE_OFFSET : INLINED_VALUE_OFFSET + MAX_INLINED_BYTES]
        joined = np.empty(int(self.lengths.sum()), dtype=np.uint8)
        is_inlined = np.repeat(self.is_inlined, self.lengths)
        joined[~is_inlined] = in_data
        joined[is_inlined] = inlined[np.arange(MAX_INLINED_BYTES) < self.lengths[self.is_inlined, None]]
        return joined


def _prefixed_values(
    auxiliary: ByteArray, data: ByteArray, layout: VariableLayout, data_start: int, label: RowsLabel
) -> _Values:
    """Find the values of STRING and BINARY: each has its length before it, and offsets say where."""
    offsets = layout.parse(auxiliary).offsets - data_start
    is_inside = (offsets >= 0) & (offsets <= len(data))
    room = np.diff(offsets) - layout.prefix_bytes
    # The difference of offsets inside cannot overflow.
    holds = is_inside[:-1] & is_inside[1:] & (room >= 0)
    label.check(holds, "has an offset that does not lie behind that of the row before it", field="offset")
    prefixes = data[offsets[:-1, None] + np.arange(layout.prefix_bytes)].view(f"<i{layout.prefix_bytes}")[:, 0]
    is_null = prefixes < 0
    units = np.where(is_null, 0, prefixes).astype(np.int64)
    label.check(units <= room // layout.unit_bytes, "is longer than its offsets leave room for", field="length")
    return _Values(
        data=data,
        starts=offsets[:-1] + layout.prefix_bytes,
        lengths=units * layout.unit_bytes,
        is_null=is_null,
        is_inlined=np.zeros_like(is_null),
        entries=auxiliary.reshape(-1, layout.entry_bytes)[:-1],
    )


def _described_values(
    auxiliary: ByteArray, data: ByteArray, layout: VariableLayout, data_start: int, label: RowsLabel
) -> _Values:
    """Find the values of VARCHAR and arrays: the entries say everything."""
    entries = layout.parse(auxiliary)
    longest = np.where(entries.is_inlined, MAX_INLINED_BYTES, len(data))
    label.check(
        (entries.lengths >= 0) & (entries.lengths <= longest), "is longer than there is room for", field="length"
    )
    has_bytes = ~entries.is_null & ~entries.is_inlined
    label.check(
        (entries.lengths > 0) | ~has_bytes, "has an entry of zeros, which was never written", field="auxiliary entry"
    )
    starts = np.where(has_bytes, entries.offsets - data_start, 0)
    # Behind the value before it that has bytes in the data file.
    stops = np.maximum.accumulate(np.where(has_bytes, starts + entries.lengths, 0))
    least = np.concatenate([np.zeros(min(1, len(stops)), dtype=np.int64), stops[:-1]])
    holds = ~has_bytes | ((starts >= least) & (starts + entries.lengths <= len(data)))
    label.check(holds, "has an offset that does not lie behind the value before it", field="offset")
    return _Values(
        data=data,
        starts=starts,
        lengths=entries.lengths,
        is_null=entries.is_null,
        is_inlined=entries.is_inlined,
        entries=auxiliary.reshape(-1, layout.entry_bytes),
    )


def _gathered(data: ByteArray, starts: Offsets, lengths: Offsets) -> ByteArray:
    """Copy ascending, disjoint runs of bytes out of ``data``, one behind the other."""
    filled = lengths > 0
    starts, stops = starts[filled], (starts + lengths)[filled]
    if not len(starts):
        return data[:0]
    if (starts[1:] == stops[:-1]).all():
        return data[starts[0] : stops[-1]]
    # Runs and the gaps between them take turns.
    turns = np.empty(2 * len(starts) - 1, dtype=np.int64)
    turns[0::2] = stops - starts
    turns[1::2] = starts[1:] - stops[:-1]
    is_wanted: Mask = np.repeat(np.arange(len(turns)) % 2 == 0, turns)
    return data[starts[0] : stops[-1]][is_wanted]


def _chunks(largest: Offsets, label: RowsLabel) -> Iterator[tuple[int, int]]:
    """Cut rows, given the most that each can take, so that Arrow's offsets can address the bytes of each chunk."""
    ends = np.cumsum(largest)
    first = 0
    while first < len(ends):
        before = int(ends[first - 1]) if first else 0
        stop = int(np.searchsorted(ends, before + LARGEST_CHUNK_BYTES, side="right"))
        if stop == first:
            raise UnsupportedError(
                f"{label}: row {label.first_row + first:,} may take {int(largest[first]):,} bytes, but a value in Arrow"
                f" has at most {LARGEST_CHUNK_BYTES:,}; leave the column out",
                kind="TooLarge",
                path=label.path,
                columns=label.columns,
                row=label.first_row + first,
            )
        yield first, stop
        first = stop


def _decode_chunk(values: _Values, column_type: ColumnType, label: RowsLabel) -> pa.Array[Any]:
    joined = values.joined()
    offsets = np.zeros(len(values.lengths) + 1, dtype=np.int64)
    np.cumsum(values.lengths, out=offsets[1:])
    match column_type.tag:
        case TypeTag.STRING:
            text = utf16_to_utf8(joined.view("<u2"), offsets // UNIT_BYTES)
            return _byte_strings(pa.string(), values.is_null, text.offsets, text.utf8)
        case TypeTag.VARCHAR:
            strings = _byte_strings(pa.string(), values.is_null, offsets, joined.tobytes())
            check_values(pa.chunked_array([strings]), label)
            return strings
        case TypeTag.ARRAY:
            payloads: Any = _byte_strings(pa.binary(), values.is_null, offsets, joined.tobytes())
            return decode_raw_arrays(payloads, dimensions=column_type.arrow.dimensions, label=label)
    return _byte_strings(pa.binary(), values.is_null, offsets, joined.tobytes())


def _byte_strings(type_: Any, is_null: Mask, offsets: npt.NDArray[Any], data: bytes) -> pa.Array[Any]:
    positions = pa.py_buffer(offsets.astype(np.int32).tobytes())
    return pa.Array.from_buffers(type_, len(is_null), [validity(is_null), positions, pa.py_buffer(data)])

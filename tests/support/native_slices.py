"""Decoding rows of one native column from whole files, without a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coldparquet.decode.arrow import TEXT_AS_STORED
from coldparquet.decode.native import decode_native_rows
from coldparquet.format.table_file_text import Utf8Strings
from coldparquet.format.types import canonical_type
from coldparquet.plan.native import NativeColumn, RowSlices, data_edges, native_reads

if TYPE_CHECKING:
    import pyarrow as pa

    from coldparquet.decode.arrow import TextAs

SYMBOLS = ("", "BTC", "ETH", "Grüße", "unused")


def native_column(type_code: int, *, top: int | None = 0) -> NativeColumn:
    return NativeColumn(index=7, name="x", type=canonical_type(type_code), name_txn=-1, top=top)


def decode(
    column: NativeColumn,
    files: dict[str, bytes],
    rows: range,
    *,
    text: TextAs = TEXT_AS_STORED,
    dictionary: Utf8Strings | None = None,
) -> pa.ChunkedArray[Any]:
    """Decode rows from whole files, as one slice."""
    slices = RowSlices.of(rows, rows_per_slice=max(len(rows), 1))
    edges = data_edges(column, slices, directory_path="p")
    ranges = {}
    if edges is not None:
        wanted = edges.wanted(gap_bytes=0)
        stored = files["x.i"]
        ranges[column.index] = edges.data_ranges([(found.start, stored[found.start : found.stop]) for found in wanted])
    [read] = native_reads(
        slices, [column], directory_path="p", partition_index=0, data_ranges=ranges, all_rows_match=True
    )
    buffer = b"".join(
        files[file.path.removeprefix("p/")][start:stop]
        for file, start, stop in zip(read.files, read.starts.tolist(), read.stops.tolist(), strict=True)
    )
    table = decode_native_rows(
        memoryview(buffer),
        read,
        [column],
        text=text,
        dictionaries={} if dictionary is None else {column.index: dictionary},
        path="p",
    )
    table.validate(full=True)
    return table.column("x")


def dictionary() -> Utf8Strings:
    encoded = [text.encode() for text in SYMBOLS]
    offsets = np.cumsum([0, *map(len, encoded)]).astype(np.int32)
    return Utf8Strings(utf8=b"".join(encoded), offsets=offsets)

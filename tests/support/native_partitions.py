"""Native partitions: written value by value independently of what reads them, decoded, and those of the genuine tables."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from coldparquet.catalog.symbol_dictionaries import SymbolDictionaries
from coldparquet.decode.arrow import TEXT_AS_STORED, TextAs
from coldparquet.decode.native import decode_native_rows
from coldparquet.decode.virtual_file import PlacedBuffer
from coldparquet.format.binary import Utf8Strings
from coldparquet.format.native import auxiliary_file_name, data_file_name, parse_column_versions
from coldparquet.format.partition_names import recorded_directory_name
from coldparquet.format.table_metadata import parse_table_metadata
from coldparquet.format.txn import parse_txn
from coldparquet.format.type_codes import TypeTag, is_decimal
from coldparquet.format.types import canonical_type
from coldparquet.options import Coalescing
from coldparquet.plan.columns import TableColumn
from coldparquet.plan.model import MetadataRequest, PlannedRequest
from coldparquet.plan.native import NativeColumn, NativeSymbol, RowSlices, data_edges, native_reads
from coldparquet.plan.requests import place, plan_requests
from coldparquet.scan.native import plan_native_rows
from coldparquet.storage.base import ObjectStore
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.log import metadata_requests
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import RangeRequest
from tests.support.questdb_tables import GOLDEN

# --- Column files of native partitions written value by value, as QuestDB does: slow, and independent of what reads
# them


_STRUCTS = {
    TypeTag.BOOLEAN: ("<?", False),
    TypeTag.BYTE: ("<b", 0),
    TypeTag.SHORT: ("<h", 0),
    TypeTag.CHAR: ("<H", 0),
    TypeTag.INT: ("<i", -(1 << 31)),
    TypeTag.LONG: ("<q", -(1 << 63)),
    TypeTag.DATE: ("<q", -(1 << 63)),
    TypeTag.TIMESTAMP: ("<q", -(1 << 63)),
    TypeTag.FLOAT: ("<f", math.nan),
    TypeTag.DOUBLE: ("<d", math.nan),
    TypeTag.SYMBOL: ("<i", -(1 << 31)),
    TypeTag.GEOBYTE: ("<b", -1),
    TypeTag.GEOSHORT: ("<h", -1),
    TypeTag.GEOINT: ("<i", -1),
    TypeTag.GEOLONG: ("<q", -1),
    TypeTag.IPV4: ("<I", 0),
}
"""Format of a value and what stands for null, for types whose values are numbers."""

_DECIMAL_BYTES = {
    TypeTag.DECIMAL8: 1,
    TypeTag.DECIMAL16: 2,
    TypeTag.DECIMAL32: 4,
    TypeTag.DECIMAL64: 8,
    TypeTag.DECIMAL128: 16,
    TypeTag.DECIMAL256: 32,
}
_EXACT = Context(prec=100)
_NULL_LONG = struct.pack("<q", -(1 << 63))


def encode_column(column: NativeColumn, values: Sequence[Any]) -> dict[str, bytes]:
    """Write the files of a column.

    Args:
        column: Its name and type.
        values: One per row behind the top: what Arrow's ``as_py`` gives; integers for CHAR, dates, timestamps and
            symbols (keys), lists for arrays, big-endian bytes for UUID.

    Returns:
        Content by file name.
    """
    tag = column.type.tag
    data_name = data_file_name(column.name, column.name_txn)
    auxiliary_name = auxiliary_file_name(column.name, column.name_txn)
    if tag in {TypeTag.STRING, TypeTag.BINARY}:
        auxiliary, data = _prefixed(tag, values)
        return {auxiliary_name: auxiliary, data_name: data}
    if tag is TypeTag.VARCHAR:
        auxiliary, data = _varchars(values)
        return {auxiliary_name: auxiliary, data_name: data}
    if tag is TypeTag.ARRAY:
        auxiliary, data = _arrays(values, column.type.arrow.dimensions)
        return {auxiliary_name: auxiliary, data_name: data}
    return {data_name: b"".join(_fixed(tag, column.type.arrow.scale, value) for value in values)}


def _fixed(tag: TypeTag, scale: int, value: Any) -> bytes:
    if tag in _STRUCTS:
        layout, null = _STRUCTS[tag]
        return struct.pack(layout, null if value is None else value)
    if is_decimal(tag):
        return _decimal(_DECIMAL_BYTES[tag], scale, value)
    if value is None:
        return _NULL_LONG * (4 if tag is TypeTag.LONG256 else 2)
    if tag is TypeTag.UUID:
        return bytes(reversed(value))
    return bytes(value)


def _decimal(width: int, scale: int, value: Decimal | None) -> bytes:
    if value is None:
        return b"\0" * (min(width, 8) - 1) + b"\x80" + b"\0" * (width - min(width, 8))
    unscaled = int(value.scaleb(scale, _EXACT))
    words = unscaled.to_bytes(width, "big", signed=True)
    # Words of 64 bits, the highest first, each little-endian.
    return b"".join(bytes(reversed(words[start : start + 8])) for start in range(0, width, 8))


def _prefixed(tag: TypeTag, values: Sequence[Any]) -> tuple[bytes, bytes]:
    offsets, data = [0], b""
    for value in values:
        if tag is TypeTag.BINARY:
            data += struct.pack("<q", -1) if value is None else struct.pack("<q", len(value)) + value
        else:
            units = b"" if value is None else value.encode("utf-16-le", "surrogatepass")
            data += struct.pack("<i", -1 if value is None else len(units) // 2) + units
        offsets.append(len(data))
    return struct.pack(f"<{len(offsets)}q", *offsets), data


def _varchars(values: Sequence[str | None]) -> tuple[bytes, bytes]:
    entries, data = [], b""
    for value in values:
        offset = struct.pack("<Q", len(data))[:6]
        if value is None:
            entries.append(struct.pack("<I6x", 4) + offset)
            continue
        text, is_ascii = value.encode(), value.isascii()
        if len(text) <= 9:
            entries.append(bytes([len(text) << 4 | is_ascii << 1 | 1]) + text.ljust(9, b"\0") + offset)
        else:
            entries.append(struct.pack("<I", len(text) << 4 | is_ascii << 1) + text[:6] + offset)
            data += text
    return b"".join(entries), data


def _arrays(values: Sequence[list[Any] | None], dimensions: int) -> tuple[bytes, bytes]:
    entries, data = [], b""
    for value in values:
        payload = b""
        if value is not None:
            shape, elements = [], [value]
            for _ in range(dimensions):
                shape.append(len(elements[0]) if elements else 0)
                elements = [inner for outer in elements for inner in outer]
            payload = struct.pack(f"<{dimensions}i", *shape)
            payload += b"\0" * (-len(payload) % 8)
            payload += b"".join(struct.pack("<d", math.nan if item is None else item) for item in elements)
        entries.append(struct.pack("<qii", len(data), len(payload), 0))
        data += payload
    return b"".join(entries), data


# --- Decoding rows of one native column from whole files, without a store ---------------------------------------------


SYMBOLS = ("", "BTC", "ETH", "Grüße", "unused")


def table_column(column: NativeColumn) -> TableColumn:
    """Return a column as its table describes it."""
    return TableColumn(index=column.index, name=column.name, id=column.index, type=column.type)


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
        slices,
        [column],
        directory_path="p",
        partition_index=0,
        data_ranges=ranges,
        symbols={} if dictionary is None else {column.index: dictionary},
        all_rows_match=True,
    )
    assert read.piece_files is not None
    buffer = b"".join(
        files[read.data.files[file].path.removeprefix("p/")][start:stop]
        for file, start, stop in zip(read.piece_files, read.piece_starts, read.piece_stops, strict=True)
    )
    table = decode_native_rows(memoryview(buffer), read, [table_column(column)], text=text)
    table.validate(full=True)
    return table.column("x")


def dictionary() -> Utf8Strings:
    encoded = [text.encode() for text in SYMBOLS]
    offsets = np.cumsum([0, *map(len, encoded)]).astype(np.int32)
    return Utf8Strings(utf8=b"".join(encoded), offsets=offsets)


# --- The native partitions of the genuine QuestDB tables, and a read of one, from plan to rows, without the rest ------
# Beside the tables of ``golden/questdb`` there is ``golden/native_tops``, whose columns of every type were added to
# partitions that already had rows.


@dataclass(frozen=True, slots=True, kw_only=True)
class NativePartition:
    """One native partition, and where its rows are in the answer of its table."""

    table: Path
    """Folder of the table and of what QuestDB answers about it."""
    name: str
    first_row: int
    row_count: int
    columns: tuple[NativeColumn, ...]
    timestamp: NativeColumn | None

    def __str__(self) -> str:
        return f"{self.table.name}/{self.name}"

    @property
    def table_path(self) -> Path:
        """Directory of the table."""
        return self.table / "table"

    def column(self, name: str) -> NativeColumn:
        """Return one column."""
        return next(column for column in self.columns if column.name == name)

    def expected(self) -> pa.Table:
        """Return the rows that QuestDB answers for the partition."""
        with pa.memory_map(str(self.table / "expected" / "rows.arrow")) as source:
            return pa.ipc.open_file(source).read_all().slice(self.first_row, self.row_count)

    def in_memory(self) -> MemoryStore:
        """Return a store with the partition and the table's symbols, under the paths that they have on the disk."""
        files = [*self.table_path.iterdir(), *(self.table_path / self.name).iterdir()]
        return MemoryStore({str(file): file.read_bytes() for file in files if file.is_file()})


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeReading:
    """The requests of planning and reading, and the rows that come of them."""

    metadata_requests: tuple[MetadataRequest, ...]
    """Those of planning."""
    requests: tuple[PlannedRequest, ...]
    slices: tuple[pa.Table, ...]


async def read_native(
    partition: NativePartition,
    store: ObjectStore,
    *,
    columns: Sequence[NativeColumn] | None = None,
    time_bounds: tuple[int | None, int | None] = (None, None),
    rows_per_read: int = 1_000_000,
    limit: int | None = None,
    text: TextAs = TEXT_AS_STORED,
    max_request_bytes: int = 1 << 20,
    row_count: int | None = None,
) -> NativeReading:
    """Plan, fetch and decode, as a scan does. What planning fetches is checked; the data is taken as it comes."""
    checked = CheckedStore(store)
    wanted = partition.columns if columns is None else columns
    directory_path = str(partition.table_path / partition.name)
    with metadata_requests() as planning:
        reads = await plan_native_rows(
            checked,
            directory_path=directory_path,
            partition_index=0,
            row_count=partition.row_count if row_count is None else row_count,
            columns=wanted,
            timestamp=partition.timestamp,
            time_bounds=time_bounds,
            rows_per_read=rows_per_read,
            all_rows_match=True,
            limit=limit,
            symbols=SymbolDictionaries(checked, str(partition.table_path)),
        )
    coalescing = Coalescing(gap_bytes=0, max_request_bytes=max_request_bytes, least_part_bytes=1)
    requests = plan_requests([reads], coalescing)
    placements = place(reads, requests)
    buffers = [PlacedBuffer(read.bytes_wanted) for read in reads]
    for number, request in enumerate(requests):
        answer = await store.get(
            RangeRequest(path=request.path, byte_range=request.byte_range, reason=request.reason, may_grow=True)
        )
        for copy in placements.of_request(number):
            fetched = memoryview(answer.data)[copy.source_offset :][: copy.length_bytes]
            buffers[copy.row_group_read].place(copy.destination_offset, fetched)
    slices = tuple(
        decode_native_rows(buffer.bytes(), read, [table_column(column) for column in wanted], text=text)
        for buffer, read in zip(buffers, reads, strict=True)
    )
    return NativeReading(metadata_requests=tuple(planning), requests=requests, slices=slices)


def _native_partitions(table: Path) -> list[NativePartition]:
    files = {name: (table / "table" / name).read_bytes() for name in ("_txn", "_meta", "_cv")}
    transaction = parse_txn(files["_txn"], path=None)
    metadata = parse_table_metadata(files["_meta"], path=None)
    versions = parse_column_versions(files["_cv"], path=None)
    records = transaction.partitions_of(metadata.interval)
    found, first_row = [], 0
    for record in map(records.record, range(len(records))):
        columns = []
        for index, column in enumerate(metadata.columns):
            version = versions.column(record.timestamp, column.writer_index)
            symbol = None
            if column.symbol_index is not None:
                count = transaction.symbol_counts[column.symbol_index]
                symbol = NativeSymbol(count=count, name_txn=versions.symbol_name_txn(column.writer_index))
            columns.append(
                NativeColumn(
                    index=index,
                    name=column.name,
                    type=canonical_type(column.type_code),
                    name_txn=version.name_txn,
                    top=version.top,
                    symbol=symbol,
                )
            )
        timestamp = next(
            (
                column
                for column, described in zip(columns, metadata.columns, strict=True)
                if described.writer_index == metadata.designated_timestamp
            ),
            None,
        )
        name = recorded_directory_name(
            record.timestamp, metadata.interval, name_txn=record.name_txn, is_nanosecond=metadata.is_nanosecond
        )
        if not record.is_parquet:
            found.append(
                NativePartition(
                    table=table,
                    name=name,
                    first_row=first_row,
                    row_count=record.row_count,
                    columns=tuple(columns),
                    timestamp=timestamp,
                )
            )
        first_row += record.row_count
    return found


_TABLES = [*sorted(path for path in GOLDEN.iterdir() if path.is_dir()), GOLDEN.parent / "native_tops"]

NATIVE_PARTITIONS = [partition for table in _TABLES for partition in _native_partitions(table)]
"""Every native partition of every golden table."""


def native_partition(table: str, number: int = -1) -> NativePartition:
    """Return a native partition of a table, the last one unless told otherwise."""
    return [partition for partition in NATIVE_PARTITIONS if partition.table.name == table][number]

"""The native partitions of the genuine QuestDB tables, and a read of one, from plan to rows, without the rest.

Beside the tables of ``golden/questdb`` there is ``golden/native_tops``, whose columns of every type were added to
partitions that already had rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from coldparquet.catalog.symbol_dictionaries import SymbolDictionaries
from coldparquet.decode.arrow import TEXT_AS_STORED
from coldparquet.decode.native import decode_native_rows
from coldparquet.decode.virtual_file import PlacedBuffer
from coldparquet.format.column_versions import parse_column_versions
from coldparquet.format.partition_names import recorded_directory_name
from coldparquet.format.table_metadata import parse_table_metadata
from coldparquet.format.txn import parse_txn
from coldparquet.format.types import canonical_type
from coldparquet.options import Coalescing
from coldparquet.plan.columns import TableColumn
from coldparquet.plan.native import NativeColumn, NativeSymbol
from coldparquet.plan.requests import place, plan_requests
from coldparquet.scan.native import plan_native_rows
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import RangeRequest
from tests.support.questdb_tables import GOLDEN

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from coldparquet.decode.arrow import TextAs
    from coldparquet.plan.model import PlannedRequest
    from coldparquet.scan.model import NativePlan
    from coldparquet.storage.base import ObjectStore


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
    """A plan, the requests that it leads to, and the rows that come of them."""

    plan: NativePlan
    requests: tuple[PlannedRequest, ...]
    slices: tuple[pa.Table, ...]


def table_column(column: NativeColumn) -> TableColumn:
    """Return a column as its table describes it."""
    return TableColumn(index=column.index, name=column.name, id=column.index, type=column.type)


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
    plan = await plan_native_rows(
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
    requests = plan_requests([plan.reads], Coalescing(gap_bytes=0, max_request_bytes=max_request_bytes))
    placements = place(plan.reads, requests)
    buffers = [PlacedBuffer(read.bytes_wanted) for read in plan.reads]
    for number, request in enumerate(requests):
        answer = await store.get(
            RangeRequest(path=request.path, byte_range=request.byte_range, reason=request.reason, may_grow=True)
        )
        for copy in placements.of_request(number):
            fetched = memoryview(answer.data)[copy.source_offset :][: copy.length_bytes]
            buffers[copy.row_group_read].place(copy.destination_offset, fetched)
    slices = tuple(
        decode_native_rows(buffer.bytes(), read, [table_column(column) for column in wanted], text=text)
        for buffer, read in zip(buffers, plan.reads, strict=True)
    )
    return NativeReading(plan=plan, requests=requests, slices=slices)


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

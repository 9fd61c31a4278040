"""Plans one partition's requests: where their bytes go, and how they become rows.

Parquet partitions and native ones differ only here; planning and streaming treat them alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from coldparquet.decode.arrow import TextAs
from coldparquet.decode.native import decode_native_rows
from coldparquet.decode.row_group import OutputColumn, decode_row_group
from coldparquet.decode.virtual_file import (
    PlacedBuffer,
    ReadFiles,
    RowGroupBuffer,
    RowGroupInPlace,
    new_row_group_buffer,
    row_group_in_place,
    stays_in_place,
)
from coldparquet.errors import InternalError, NotFoundError
from coldparquet.plan.choices import decoded_row_bytes
from coldparquet.plan.model import RowGroupRead
from coldparquet.plan.native import NativeRead
from coldparquet.plan.reads import narrow_read
from coldparquet.plan.requests import ReadsOfObject, place, place_native, plan_native_requests, plan_requests
from coldparquet.storage.requests import RangeRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from coldparquet.format.pages import PartitionPages
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.format.table_file_text import Utf8Strings
    from coldparquet.options import Coalescing, ReadOptions
    from coldparquet.plan.columns import TableColumn
    from coldparquet.plan.model import MetadataRequest, PlannedRead, PlannedRequest, RowSelection
    from coldparquet.plan.native import NativeColumn
    from coldparquet.plan.requests import Placements


ReadBuffer: TypeAlias = PlacedBuffer | RowGroupInPlace
"""The bytes of one read, in the form that decoding takes."""


class PlannedPartition(Protocol):
    """What streaming needs to know about one partition of a plan."""

    def requests(
        self, reads: Sequence[PlannedRead], coalescing: Coalescing, *, part_bytes: int | None, stage: int = 1
    ) -> tuple[PlannedRequest, ...]:
        """Plan the requests that fetch all bytes of this partition's reads, except deferred columns."""
        ...

    def place(self, reads: Sequence[PlannedRead], requests: Sequence[PlannedRequest]) -> Placements:
        """Compute where the bytes of each request of this partition go."""
        ...

    def range_request(self, request: PlannedRequest) -> RangeRequest:
        """Make the request for the store."""
        ...

    def missing(self, request: PlannedRequest) -> NotFoundError:
        """Make the error for a request whose file does not exist."""
        ...

    def stays_in_place(self, read: PlannedRead) -> bool:
        """Tell whether a read is decoded inside the answer, provided that a single answer holds all its bytes."""
        ...

    def buffer_in_place(self, read: PlannedRead, answer: bytes, answer_start: int) -> ReadBuffer:
        """Make the buffer of such a read around the answer, whose offset in the file is ``answer_start``."""
        ...

    def new_buffer(self, read: PlannedRead) -> PlacedBuffer:
        """Make the buffer of one read, complete except for the bytes of its requests."""
        ...

    def decode(
        self, read: PlannedRead, buffer: ReadBuffer, columns: Sequence[TableColumn], options: ReadOptions
    ) -> pa.Table:
        """Decode all rows of one read. Blocks."""
        ...

    def decoded_bytes(self, read: PlannedRead, columns: Sequence[TableColumn], options: ReadOptions) -> int:
        """Estimate the decoded size of these columns of one read."""
        ...

    def deferred_columns(self, read: PlannedRead, columns: Sequence[TableColumn]) -> tuple[TableColumn, ...]:
        """Return the columns that a read fetches only if the predicate leaves rows."""
        ...

    def narrow(self, read: PlannedRead, positions: RowSelection, coalescing: Coalescing) -> PlannedRead:
        """Plan the read of the deferred columns."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedParquet:
    """A partition in Parquet, planned from its sidecar."""

    sidecar: Sidecar
    data_path: str
    may_grow: bool
    """Whether a QuestDB may append to the file during the scan."""
    places: Mapping[int, int | None]
    """By index in the table: the index of each needed column in the sidecar, None if it is absent."""
    column_names: Mapping[int, str]
    """The names of the present columns, by index in the sidecar."""
    pages: PartitionPages | None = None
    """What planning has found out about the pages."""
    pages_etag: str | None = None
    """Version of the Parquet object that the pages describe; None if only the sidecar vouches for it."""
    known_symbols: Mapping[int, pa.Array[Any]] = field(default_factory=dict)
    """By index in the table: the symbols with which the dictionaries of these columns begin."""

    def requests(
        self, reads: Sequence[PlannedRead], coalescing: Coalescing, *, part_bytes: int | None, stage: int = 1
    ) -> tuple[PlannedRequest, ...]:
        """See :class:`PlannedPartition`."""
        return plan_requests(
            [self.reads_of_object(reads)],
            gap_bytes=coalescing.gap_bytes,
            max_request_bytes=coalescing.max_request_bytes,
            part_bytes=part_bytes,
            stage=stage,
        )

    def reads_of_object(self, reads: Sequence[PlannedRead]) -> ReadsOfObject:
        """Return reads of this partition in the form in which they are coalesced together."""
        return ReadsOfObject(
            path=self.data_path,
            column_names=self.column_names,
            reads=[_of_parquet(read) for read in reads],
        )

    def place(self, reads: Sequence[PlannedRead], requests: Sequence[PlannedRequest]) -> Placements:
        """See :class:`PlannedPartition`."""
        return place([_of_parquet(read) for read in reads], requests)

    def range_request(self, request: PlannedRequest) -> RangeRequest:
        """See :class:`PlannedPartition`."""
        return RangeRequest(
            path=request.path,
            byte_range=request.byte_range,
            reason=request.reason,
            role="data",
            expected_etag=self.pages_etag,
            object_bytes=self.sidecar.parquet_size_bytes,
            may_grow=self.may_grow,
        )

    def missing(self, request: PlannedRequest) -> NotFoundError:
        """See :class:`PlannedPartition`."""
        return data_file_missing(request.path)

    def stays_in_place(self, read: PlannedRead) -> bool:
        """See :class:`PlannedPartition`."""
        return stays_in_place(_of_parquet(read))

    def buffer_in_place(self, read: PlannedRead, answer: bytes, answer_start: int) -> RowGroupInPlace:
        """See :class:`PlannedPartition`."""
        return row_group_in_place(_of_parquet(read), self.sidecar, answer, answer_start, path=self.data_path)

    def new_buffer(self, read: PlannedRead) -> RowGroupBuffer:
        """See :class:`PlannedPartition`."""
        return new_row_group_buffer(_of_parquet(read), self.sidecar, path=self.data_path)

    def decode(
        self, read: PlannedRead, buffer: ReadBuffer, columns: Sequence[TableColumn], options: ReadOptions
    ) -> pa.Table:
        """See :class:`PlannedPartition`."""
        if not isinstance(buffer, ReadFiles):
            raise InternalError("a Parquet partition is decoded from a buffer of another kind")
        return decode_row_group(
            buffer,
            _of_parquet(read),
            self.sidecar,
            columns=[
                OutputColumn(
                    name=column.name,
                    type=column.readable_type,
                    place=self.places[column.index],
                    known=self.known_symbols.get(column.index),
                )
                for column in columns
            ],
            text=TextAs.of(options),
            path=self.data_path,
            check_page_checksums=options.check_page_checksums,
            most_bytes=options.memory_limit_bytes,
        )

    def decoded_bytes(self, read: PlannedRead, columns: Sequence[TableColumn], options: ReadOptions) -> int:
        """See :class:`PlannedPartition`."""
        row_group = _of_parquet(read)
        places = [place for column in columns if (place := self.places[column.index]) is not None]
        row_bytes = decoded_row_bytes(self.sidecar, places, np.array([row_group.row_group]), options).sum()
        held_rows = [row_group.row_group_rows if rows is None else rows.row_count for rows in row_group.column_rows]
        return int(row_bytes * max(held_rows, default=row_group.row_count))

    def deferred_columns(self, read: PlannedRead, columns: Sequence[TableColumn]) -> tuple[TableColumn, ...]:
        """See :class:`PlannedPartition`."""
        deferred = _of_parquet(read).deferred
        if deferred is None:
            return ()
        places = {*deferred.columns, *deferred.made_columns}
        return tuple(column for column in columns if self.places[column.index] in places)

    def narrow(self, read: PlannedRead, positions: RowSelection, coalescing: Coalescing) -> RowGroupRead:
        """See :class:`PlannedPartition`."""
        row_group = _of_parquet(read)
        surviving = positions if row_group.selection is None else row_group.selection.rows_at(positions)
        return narrow_read(row_group, surviving, pages=self.pages, least_saving_bytes=max(coalescing.gap_bytes, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedNative:
    """A partition in QuestDB's native format, planned from the table's own files."""

    directory_path: str
    columns: Mapping[int, NativeColumn]
    """By index in the table: the columns that the question needs."""
    dictionaries: Mapping[int, Utf8Strings]
    """By index in the table: the values of the symbol columns among them."""

    def requests(
        self, reads: Sequence[PlannedRead], coalescing: Coalescing, *, part_bytes: int | None, stage: int = 1
    ) -> tuple[PlannedRequest, ...]:
        """See :class:`PlannedPartition`."""
        return plan_native_requests(
            [_of_native(read) for read in reads],
            column_names={index: column.name for index, column in self.columns.items()},
            gap_bytes=coalescing.gap_bytes,
            max_request_bytes=coalescing.max_request_bytes,
            part_bytes=part_bytes,
            stage=stage,
        )

    def place(self, reads: Sequence[PlannedRead], requests: Sequence[PlannedRequest]) -> Placements:
        """See :class:`PlannedPartition`."""
        return place_native([_of_native(read) for read in reads], requests)

    def range_request(self, request: PlannedRequest) -> RangeRequest:
        """See :class:`PlannedPartition`."""
        return RangeRequest(
            path=request.path, byte_range=request.byte_range, reason=request.reason, role="data", may_grow=True
        )

    def missing(self, request: PlannedRequest) -> NotFoundError:
        """See :class:`PlannedPartition`."""
        return missing_column_file(request.path)

    def stays_in_place(self, read: PlannedRead) -> bool:  # noqa: ARG002 - true of none
        """See :class:`PlannedPartition`."""
        return False  # each column has a file of its own

    def buffer_in_place(self, read: PlannedRead, answer: bytes, answer_start: int) -> ReadBuffer:  # noqa: ARG002 - never asked for
        """See :class:`PlannedPartition`."""
        raise InternalError("no read of a native partition stays in place")

    def new_buffer(self, read: PlannedRead) -> PlacedBuffer:
        """See :class:`PlannedPartition`."""
        return PlacedBuffer(read.bytes_wanted)

    def decode(
        self, read: PlannedRead, buffer: ReadBuffer, columns: Sequence[TableColumn], options: ReadOptions
    ) -> pa.Table:
        """See :class:`PlannedPartition`."""
        if not isinstance(buffer, PlacedBuffer):
            raise InternalError("a native partition is decoded from a buffer of another kind")
        return decode_native_rows(
            buffer.bytes(),
            _of_native(read),
            [self.columns[column.index] for column in columns],
            text=TextAs.of(options),
            dictionaries=self.dictionaries,
            path=self.directory_path,
        )

    def decoded_bytes(
        self,
        read: PlannedRead,
        columns: Sequence[TableColumn],  # noqa: ARG002 - the files of all columns are fetched
        options: ReadOptions,  # noqa: ARG002 - symbols are not longer than their keys
    ) -> int:
        """See :class:`PlannedPartition`."""
        return read.bytes_wanted

    def deferred_columns(
        self,
        read: PlannedRead,  # noqa: ARG002 - true of any
        columns: Sequence[TableColumn],  # noqa: ARG002
    ) -> tuple[TableColumn, ...]:
        """See :class:`PlannedPartition`."""
        return ()

    def narrow(self, read: PlannedRead, positions: RowSelection, coalescing: Coalescing) -> PlannedRead:  # noqa: ARG002 - it has no such read
        """See :class:`PlannedPartition`."""
        raise InternalError("no column of a native partition is deferred")


def data_file_missing(path: str) -> NotFoundError:
    """Make the error for a partition whose metadata was read, but whose Parquet file does not exist."""
    return NotFoundError(
        "this Parquet file is not there, although metadata describes it: it was deleted or replaced, or was not copied with its"
        " sidecar. If a database has replaced it, refresh the table or open it again; else copy the file again, or remove the"
        " directory",
        kind="PartitionMissing",
        path=path,
    )


def _of_parquet(read: PlannedRead) -> RowGroupRead:
    if not isinstance(read, RowGroupRead):
        raise InternalError("a read of native files was planned for a Parquet partition")
    return read


def _of_native(read: PlannedRead) -> NativeRead:
    if not isinstance(read, NativeRead):
        raise InternalError("a row group was planned for a native partition")
    return read


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NativePlan:
    """What a read takes from one native partition, and what decodes it."""

    reads: tuple[NativeRead, ...]
    """The slices, in ascending order of rows; none if no row is in the time range."""
    dictionaries: Mapping[int, Utf8Strings]
    """Symbols of the SYMBOL columns that are read, by position of the column in the table."""
    metadata_requests: tuple[MetadataRequest, ...]
    """The requests spent on this. The plan that fetched a dictionary first is charged for it."""


MISSING_COLUMN_FILE = "MissingColumnFile"
"""Kind of the error about a native partition with a missing file."""


MISSING_FOR_QUESTDB = (
    "QuestDB cannot read the partition either. QuestDB 9.3.4 makes such partitions with CONVERT PARTITION TO NATIVE after a column"
    " was renamed: it writes the column's file under its old name. Give the file the name that is missing, or restore it"
)


def missing_column_file(path: str) -> NotFoundError:
    """Make the error for a column file that does not exist."""
    return NotFoundError(
        "a column file of a native partition is missing. If a QuestDB has replaced the partition since the table was opened,"
        f" refresh the table and plan again. If the file is missing then, too, {MISSING_FOR_QUESTDB}",
        kind=MISSING_COLUMN_FILE,
        path=path,
    )

"""Runs pyarrow's Parquet reader on virtual files; errors name the object, the column and the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from coldparquet.decode.stored_types import NO_EXTENSIONS
from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.format.parquet_footer import PARQUET_MAGIC
from coldparquet.options import KIB

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.format.native import Mask


class ChunkLabel(Struct, frozen=True, kw_only=True):
    """The chunk of one column in one row group, or of several columns decoded together."""

    path: str | None
    """The Parquet file."""
    row_group: int
    columns: tuple[str, ...]

    def __str__(self) -> str:
        noun = "column" if len(self.columns) == 1 else "columns"
        return f"row group {self.row_group}, {noun} {', '.join(map(repr, self.columns))}"

    def damaged(self, message: str, **details: Any) -> FormatError:
        """Return the error for damaged bytes of the chunk."""
        return FormatError(
            f"{self}: {message}", path=self.path, row_group=self.row_group, columns=self.columns, **details
        )


def together(labels: Sequence[ChunkLabel]) -> ChunkLabel:
    """Return the label of several chunks, at least one, of the same row group."""
    names = tuple(name for label in labels for name in label.columns)
    return ChunkLabel(path=labels[0].path, row_group=labels[0].row_group, columns=names)


_SHOWN_CHARACTERS = 60


def not_convertible(label: ChunkLabel, table_type: str, value: object, why: str) -> UnsupportedError:
    """Return the error for a value that does not convert to the table's type."""
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[:_SHOWN_CHARACTERS]}..."
    return UnsupportedError(
        f"{label}: the type of the column was changed to {table_type} since, and {shown} cannot be converted: {why};"
        " leave the column out, read the partition by itself, or rewrite it with QuestDB (ALTER TABLE ... CONVERT"
        " PARTITION TO NATIVE, then TO PARQUET)",
        kind="ChangedColumnType",
        path=label.path,
        row_group=label.row_group,
        columns=label.columns,
        table_type=table_type,
    )


_LEAST_BYTES_FOR_THREADS = 256 * KIB
"""Smaller columns decode within a millisecond or two; passing one to another thread and back takes a twentieth of
one."""


def read_columns(  # noqa: PLR0913 - one file, and what is to become of its columns
    file: pa.Buffer,
    labels: Mapping[str, ChunkLabel],
    *,
    end_beside: bytes | None = None,
    int96_unit: Literal["s", "ns"] = "ns",
    as_dictionary: Sequence[str] = (),
    check_page_checksums: bool,
    row_group_count: int = 1,
) -> list[pa.ChunkedArray[Any]]:
    """Decode columns of a virtual file, on the calling thread."""
    row_groups = list(range(row_group_count))
    try:
        parquet = pq.ParquetFile(
            pa.BufferReader(file),
            metadata=None if end_beside is None else pq.read_metadata(pa.BufferReader(PARQUET_MAGIC + end_beside)),
            coerce_int96_timestamp_unit=int96_unit,
            read_dictionary=list(as_dictionary),
            pre_buffer=False,  # all of it is in memory: another thread would only pass it on
            page_checksum_verification=check_page_checksums,
            **NO_EXTENSIONS,
        )
    except (pa.ArrowException, OSError) as error:
        raise _translated(error, together(list(labels.values()))) from error
    names = list(labels)
    try:
        # Arrow's threads share the columns: the end of a read waits for few row groups, not for one per processor.
        table = parquet.read_row_groups(
            row_groups, columns=names, use_threads=len(names) > 1 and file.size >= _LEAST_BYTES_FOR_THREADS
        )
        return [table.column(name) for name in names]
    except (pa.ArrowException, OSError):
        return [_read_column(parquet, row_groups, name, label) for name, label in labels.items()]


def _read_column(parquet: pq.ParquetFile, row_groups: list[int], name: str, label: ChunkLabel) -> pa.ChunkedArray[Any]:
    try:
        return parquet.read_row_groups(row_groups, columns=[name], use_threads=False).column(name)
    except (pa.ArrowException, OSError) as error:
        raise _translated(error, label) from error


def _translated(error: Exception, label: ChunkLabel) -> FormatError | UnsupportedError:
    reason = " ".join(str(error).split())  # messages about Thrift contain line breaks
    if isinstance(error, pa.ArrowNotImplementedError):
        return UnsupportedError(
            f"{label}: pyarrow cannot decode it: {reason}",
            path=label.path,
            row_group=label.row_group,
            columns=label.columns,
        )
    return label.damaged(
        f"the pages do not decode: {reason}; either they are damaged, or the file was rewritten after its sidecar ('coldparquet"
        f" index --force' writes that anew), or pyarrow {pa.__version__} does not read how the file was written: try another version"
    )


class RowsLabel(ChunkLabel, frozen=True, kw_only=True):
    """The values of one column in one slice of a native partition; only those after the top have bytes."""

    first_row: int
    """First row of the partition with bytes here."""

    def __str__(self) -> str:
        return f"rows from {self.first_row:,} on, column {', '.join(map(repr, self.columns))}"

    def check(self, holds: Mask, message: str, *, field: str) -> None:
        """Raise the error about the first row that violates a condition."""
        if not holds.all():
            raise self.damaged_row(int(holds.argmin()), message, field=field)

    def damaged_row(self, row: int, message: str, *, field: str) -> FormatError:
        """Return the error about one row, counted from ``first_row``."""
        return self.damaged(
            f"row {self.first_row + row:,} {message}; the partition is damaged: leave the column out, or restore the"
            " partition",
            field=field,
            row=self.first_row + row,
        )

"""Encodes rows in time order as row groups of a Parquet file; the caller writes the footer.

pyarrow encodes and compresses. It writes into a sink that passes the bytes on as they come, and keeps back the last of
them, the footer. A new file's footer needs corrections; a longer file's footer also needs the earlier row groups.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coldparquet.decode.arrow import numbers_to_numpy
from coldparquet.errors import ColdParquetError, InvalidInputError
from coldparquet.format.fetch import TAIL_BYTES
from coldparquet.format.footer_edit import with_decimal_precisions, with_null_counts
from coldparquet.format.parquet_footer import QUESTDB_KEY, QuestdbColumn, QuestdbMetadata, encode_questdb_json
from coldparquet.format.type_codes import TypeTag, decimal_precision_scale, is_decimal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from coldparquet.write.columns import StoredColumn
    from coldparquet.write.options import Encoding, WriteOptions


_FORWARD_BYTES = 4 * 1024 * 1024
"""The sink passes bytes on in pieces of about this size."""

_MADE_UP = bytes(1024 * 1024)

_PAGE_BYTES = 1024 * 1024
"""A page ends at this size if it does not have its number of rows yet."""

_DICTIONARY_BYTES = 1 << 30
"""Size limit of dictionaries. Beyond a limit Arrow stops using one, and QuestDB cannot read that as SYMBOL."""

_LEAST_REPEATS = 4
"""Strings get a dictionary if each value occurs this often on average: a reader of one page reads the whole
dictionary."""

_CODEC_NAMES = {"lz4_raw": "LZ4"}
_ENCODING_NAMES: dict[Encoding, str] = {
    "plain": "PLAIN",
    "delta": "DELTA_BINARY_PACKED",
    "delta_length": "DELTA_LENGTH_BYTE_ARRAY",
    "byte_stream_split": "BYTE_STREAM_SPLIT",
}
_TEXT = frozenset({TypeTag.STRING, TypeTag.VARCHAR})
_FLOATS = frozenset({TypeTag.FLOAT, TypeTag.DOUBLE})
_WIDE = frozenset({TypeTag.LONG128, TypeTag.LONG256, TypeTag.UUID})


@dataclass(frozen=True, slots=True)
class WrittenFooter:
    """The footer for the written row groups, not yet stored."""

    content: bytes
    """Thrift bytes."""
    offset: int
    """Its offset in the file: behind everything that was passed on."""


class RowGroupWriter:
    """Writes row groups one after the other.

    Args:
        pass_on: Receives the bytes, in order.
        start: Offset of the first byte in the file: 0 for a new file, magic bytes included, else the end of the file.
        columns: What is written.
        options: How to store them.
        sorted_by: Index of the column by which the rows are sorted, recorded in the file; None for no order.

    Raises:
        InvalidInputError: The options name an unknown column, or an encoding or a filter that the column's type cannot
            have.
    """

    def __init__(
        self,
        pass_on: Callable[[bytes], None],
        *,
        start: int,
        columns: Sequence[StoredColumn],
        options: WriteOptions,
        sorted_by: int | None,
    ) -> None:
        check_options(columns, options)
        self._sink = _Sink(pass_on, start)
        self._file = pa.PythonFile(self._sink, mode="w")
        self._start = start
        self._columns = columns
        self._options = options
        self._sorted_by = sorted_by
        self._writer: pq.ParquetWriter | None = None
        self._array_nulls: list[dict[int, int]] = []
        self.row_count = 0

    def write(self, rows: pa.Table) -> None:
        """Write one row group: a table from ``stored_table``, with at least one row."""
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._file, rows.schema, **self._settings(rows))
            self._advance_to_start()
        try:
            self._writer.write_table(rows, row_group_size=rows.num_rows)
        except ColdParquetError:  # raised by the sink
            raise
        except (pa.ArrowException, OSError) as error:
            raise InvalidInputError(
                f"these {rows.num_rows:,} rows cannot be one row group: {error}; write fewer rows per row group, or"
                " smaller values",
                kind="TooLarge",
            ) from error
        self.row_count += rows.num_rows
        self._array_nulls.append(
            {
                index: rows.column(index).null_count
                for index, column in enumerate(self._columns)
                if column.tag is TypeTag.ARRAY
            }
        )

    def finish(self, questdb_json: str) -> WrittenFooter:
        """Write bloom filters and page indexes, and return the footer that belongs behind them."""
        if self._writer is None:
            raise InvalidInputError("no row group was written")
        self._sink.keep_back()
        self._writer.add_key_value_metadata({QUESTDB_KEY: questdb_json})
        self._writer.close()
        written = self._sink.kept()
        footer_start = len(written) - TAIL_BYTES - int.from_bytes(written[-TAIL_BYTES:-4], "little")
        self._sink.pass_on(written[:footer_start])
        return WrittenFooter(self._completed(written[footer_start:-TAIL_BYTES]), self._sink.passed_on)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Discard what was not finished; nothing more is passed on."""
        self._sink.drop()
        if self._writer is not None and self._writer.is_open:
            with contextlib.suppress(pa.ArrowException, OSError):
                self._writer.close()

    def _advance_to_start(self) -> None:
        """Make pyarrow count the existing bytes of the file as written.

        pyarrow derives offsets from its own byte count, which starts at 0 with the magic bytes. Placeholder bytes
        behind those raise the count to the file's size; the sink drops them, so nothing is copied.
        """
        while (missing_bytes := self._start - self._file.tell()) > 0:
            self._file.write(memoryview(_MADE_UP)[:missing_bytes])

    def _completed(self, footer: bytes) -> bytes:
        precisions = {
            index: decimal_precision_scale(column.type_code)[0]
            for index, column in enumerate(self._columns)
            if is_decimal(column.tag)
        }
        if precisions:
            footer = with_decimal_precisions(footer, precisions)
        return with_null_counts(footer, self._array_nulls) if any(self._array_nulls) else footer

    def _settings(self, first_rows: pa.Table) -> dict[str, Any]:
        options = self._options
        encodings = {
            column.name: options.column_encodings.get(column.name)
            or _usual_encoding(column, first_rows, index, self._sorted_by)
            for index, column in enumerate(self._columns)
        }
        names = list(encodings)
        levels = {name: level for name in names if (level := options.level_of(name)) is not None}
        codecs = {name: options.codec_of(name) for name in names}
        return {
            "version": "2.6",
            "store_schema": False,
            "compression": {name: _CODEC_NAMES.get(codec, codec.upper()) for name, codec in codecs.items()},
            "compression_level": levels or None,
            "use_dictionary": [name for name, encoding in encodings.items() if encoding == "dictionary"],
            "column_encoding": {
                name: _ENCODING_NAMES[encoding] for name, encoding in encodings.items() if encoding != "dictionary"
            },
            # Arrays have no order, so the bytes that hold them need no bounds.
            "write_statistics": [column.name for column in self._columns if column.tag is not TypeTag.ARRAY],
            "write_page_index": options.page_index,
            "max_rows_per_page": options.page_rows,
            "data_page_size": _PAGE_BYTES,
            "write_batch_size": min(options.page_rows, 1024),
            "dictionary_pagesize_limit": _DICTIONARY_BYTES,
            "sorting_columns": None if self._sorted_by is None else [pq.SortingColumn(self._sorted_by)],
            # The number of values is only a limit: Arrow sizes filters by the actual number of distinct values.
            "bloom_filter_options": {
                name: {"ndv": max(options.row_group_rows, first_rows.num_rows), "fpp": options.bloom_fpp}
                for name in options.bloom_columns
            }
            or None,
        }


def questdb_json(columns: Sequence[StoredColumn], *, ascii_columns: Sequence[int] = ()) -> str:
    """Describe columns as QuestDB does in the footer of its files."""
    return encode_questdb_json(
        QuestdbMetadata(
            columns=tuple(
                QuestdbColumn(
                    type_code=column.type_code,
                    id=column.id,
                    local_key_is_global=column.symbols is not None,
                    is_ascii=True if index in ascii_columns else None,
                )
                for index, column in enumerate(columns)
            ),
            unused_bytes=0,
            squash_tracker=None,
            seq_txn=None,
        )
    )


def check_options(columns: Sequence[StoredColumn], options: WriteOptions) -> None:
    """Check that the options fit the columns."""
    by_name = {column.name: column for column in columns}
    for name in options.named_columns() - set(by_name):
        raise InvalidInputError(
            f"the options name a column {name!r}; there are {', '.join(by_name)}", kind="UnknownColumn", field=name
        )
    for name, encoding in options.column_encodings.items():
        allowed = _allowed_encodings(by_name[name].tag)
        if encoding not in allowed:
            raise InvalidInputError(
                f"column {name!r} of type {by_name[name].type_name} cannot be encoded as {encoding}; use one of"
                f" {', '.join(allowed)}",
                kind="InvalidEncoding",
                field=name,
            )
    for name in options.bloom_columns:
        if by_name[name].tag in {TypeTag.BOOLEAN, TypeTag.ARRAY}:
            raise InvalidInputError(
                f"column {name!r} of type {by_name[name].type_name} cannot have a bloom filter", field=name
            )


def _allowed_encodings(tag: TypeTag) -> tuple[Encoding, ...]:
    """Return the encodings of a type, those that QuestDB reads too first."""
    if tag is TypeTag.SYMBOL:
        return ("dictionary",)
    if tag in {TypeTag.BOOLEAN, TypeTag.ARRAY}:
        return ("plain",)
    if tag in _TEXT or tag is TypeTag.BINARY:
        return ("plain", "dictionary", "delta_length")
    if tag in _FLOATS or tag in _WIDE or is_decimal(tag):
        return ("plain", "dictionary", "byte_stream_split")
    return ("plain", "dictionary", "delta", "byte_stream_split")


def _usual_encoding(column: StoredColumn, first_rows: pa.Table, index: int, sorted_by: int | None) -> Encoding:
    if column.tag is TypeTag.SYMBOL:
        return "dictionary"
    if index == sorted_by:
        return "delta"
    if column.tag in _TEXT:
        distinct: int = pc.count_distinct(first_rows.column(index)).as_py()
        return "dictionary" if distinct * _LEAST_REPEATS <= first_rows.num_rows else "delta_length"
    return "delta_length" if column.tag is TypeTag.BINARY else "plain"


class _Sink(io.RawIOBase):
    """Receives what pyarrow writes; its first ``ignored_bytes`` are in the file already."""

    def __init__(self, pass_on: Callable[[bytes], None], ignored_bytes: int) -> None:
        super().__init__()
        self._receiver = pass_on
        self._ignored_bytes = ignored_bytes
        self._waiting = bytearray()
        self._kept: bytearray | None = None
        self.passed_on = ignored_bytes
        """Offset in the file of the next byte that is passed on."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        written_bytes: int = memoryview(data).nbytes
        if self._ignored_bytes:
            self._ignored_bytes -= written_bytes
        elif self._kept is not None:
            self._kept += data
        else:
            self._waiting += data
            if len(self._waiting) >= _FORWARD_BYTES:
                self._forward()
        return written_bytes

    def keep_back(self) -> None:
        """Pass on the waiting bytes, and keep back what is written from now on."""
        self._forward()
        self._kept = bytearray()

    def drop(self) -> None:
        """Discard the waiting bytes and what is written from now on."""
        self._waiting.clear()
        self._kept = bytearray()

    def kept(self) -> bytes:
        """Return what was kept back."""
        return bytes(self._kept or b"")

    def pass_on(self, data: bytes) -> None:
        """Pass on bytes that were kept back."""
        self._receiver(data)
        self.passed_on += len(data)

    def _forward(self) -> None:
        if self._waiting:
            data, self._waiting = bytes(self._waiting), bytearray()
            self.pass_on(data)


Rows: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch | pa.Table]
"""Rows to write. Any object with ``__arrow_c_stream__`` becomes a reader by ``pa.RecordBatchReader.from_stream``."""


def schema_and_batches(rows: Rows) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema of the rows and their batches; for an iterable this takes the first batch from it."""
    if isinstance(rows, pa.RecordBatch):
        return rows.schema, iter((rows,))
    if isinstance(rows, pa.Table):
        return rows.schema, iter(rows.to_batches())
    if isinstance(rows, pa.RecordBatchReader):
        return rows.schema, iter(rows)
    if hasattr(rows, "__arrow_c_stream__"):
        stream: Any = rows
        reader = pa.RecordBatchReader.from_stream(stream)
        return reader.schema, iter(reader)
    if not isinstance(rows, Iterable):
        raise InvalidInputError(
            f"{type(rows).__name__} cannot be written; give an Arrow table, a record batch reader or batches"
        )
    batches = _batches(rows)
    first = next(batches, None)
    if first is None:
        raise no_rows()
    return first.schema, _same_schema(first, batches)


def no_rows() -> InvalidInputError:
    """Return the error for data without rows."""
    return InvalidInputError("there are no rows to write; a partition holds at least one", kind="NoRows")


def split_rows(
    schema: pa.Schema, batches: Iterator[pa.RecordBatch], *, row_group_rows: int | None
) -> Iterator[pa.Table]:
    """Cut a stream into row groups; memory holds the rows of one row group and one batch."""
    waiting: list[pa.RecordBatch] = []
    waiting_rows = 0
    for batch in batches:
        rest = batch
        while row_group_rows is not None and waiting_rows + rest.num_rows >= row_group_rows:
            head = rest.slice(0, row_group_rows - waiting_rows)
            yield pa.Table.from_batches([*waiting, head], schema=schema)
            rest = rest.slice(head.num_rows)
            waiting, waiting_rows = [], 0
        if rest.num_rows:
            waiting.append(rest)
            waiting_rows += rest.num_rows
    if waiting:
        yield pa.Table.from_batches(waiting, schema=schema)


def sorted_batches(schema: pa.Schema, batches: Iterator[pa.RecordBatch], *, timestamp: str) -> Iterator[pa.RecordBatch]:
    """Collect all rows and sort them by a column, keeping the order of equal ones."""
    table = pa.Table.from_batches(list(batches), schema=schema)
    try:
        order = pc.sort_indices(table.column(timestamp))  # stable, as Arrow documents
    except pa.ArrowException as error:
        raise InvalidInputError(
            f"rows cannot be sorted by column {timestamp!r}: {error}; cast it to a timestamp",
            kind="DoesNotFit",
            field=timestamp,
        ) from error
    yield from table.take(order).to_batches()


class TimeOrder:
    """Checks that the designated timestamp never decreases, and keeps the first and the last one.

    Args:
        least: The last timestamp of the preceding rows; None where there are none.
    """

    def __init__(self, *, least: int | None = None) -> None:
        self._rows = 0
        self._least = least
        self.first: int | None = None
        self.last: int | None = None

    def check(self, timestamps: pa.ChunkedArray[Any]) -> None:
        """Check the timestamps of the next row group: one piece without nulls, in the unit of the column."""
        chunk: Any = timestamps.chunk(0)
        times: npt.NDArray[np.int64] = numbers_to_numpy(chunk, np.int64)
        ahead = self._least if self.last is None else self.last
        previous = np.concatenate(([times[0] if ahead is None else ahead], times[:-1]))
        backward = np.flatnonzero(times < previous)
        if len(backward):
            row = int(backward[0])
            raise self._not_sorted(row, f"its timestamp {times[row]} lies before {previous[row]}")
        self.first = int(times[0]) if self.first is None else self.first
        self.last = int(times[-1])
        self._rows += len(times)

    def check_end(self, following: tuple[int, int] | None) -> None:
        """Check that the last row is not later than the row group that follows."""
        if self.last is not None and following is not None and self.last > following[0]:
            raise self._not_sorted(-1, f"its timestamp {self.last} lies behind {following[0]} of the next row group")

    def _not_sorted(self, row: int, why: str) -> InvalidInputError:
        number = self._rows + row
        if number == 0:
            why += " of the last row before it in the partition; rows in between have to replace their row group"
        elif row >= 0:
            why += f" of row {number - 1}; sort the rows, or use the option sort"
        return InvalidInputError(f"row {number} is out of order: {why}", kind="NotSorted", row=number)


def _batches(rows: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    for item in rows:
        if isinstance(item, pa.RecordBatch):
            yield item
        elif isinstance(item, pa.Table):
            yield from item.to_batches() or [pa.RecordBatch.from_pylist([], schema=item.schema)]
        else:
            raise InvalidInputError(f"expected Arrow batches or tables, got {type(item).__name__}")


def _same_schema(first: pa.RecordBatch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    for number, batch in enumerate(batches, start=1):
        if not batch.schema.equals(first.schema):
            raise InvalidInputError(
                f"batch {number} has other columns than the first one: {batch.schema}", kind="SchemaMismatch"
            )
        yield batch

"""A table or a stream of batches -> row groups of a given size, in the order of the designated timestamp."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldparquet.decode.numpy_bridge import numbers_to_numpy
from coldparquet.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

Rows: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch | pa.Table]
"""What can be written. Anything with ``__arrow_c_stream__`` becomes a reader by ``pa.RecordBatchReader.from_stream``."""


def schema_and_batches(rows: Rows) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema of the rows and their batches; of an iterable the first one is taken from it already.

    Raises:
        InvalidInputError: These are no rows, or an iterable is empty and so has no schema.
    """
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
    """Cut a stream into row groups; in memory are the rows of one row group and one batch.

    Args:
        schema: Of the batches.
        batches: The stream; batches without rows are fine.
        row_group_rows: Rows of each row group but the last; None makes one row group of everything.
    """
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
    """Collect all rows and sort them by a column, keeping the order of equal ones.

    Raises:
        InvalidInputError: The column is of an Arrow type that cannot be sorted (kind ``DoesNotFit``).
    """
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
    """Checks that the designated timestamp never goes back, and keeps the first and the last one.

    Args:
        least: The last timestamp of the rows before; None where nothing comes before.
    """

    def __init__(self, *, least: int | None = None) -> None:
        self._rows = 0
        self._least = least
        self.first: int | None = None
        self.last: int | None = None

    def check(self, timestamps: pa.ChunkedArray[Any]) -> None:
        """Check the timestamps of the next row group: one piece without nulls, in the unit of the column.

        Raises:
            InvalidInputError: A row comes before the one ahead of it (kind ``NotSorted``); names it.
        """
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
        """Check that the last row does not come behind the row group that follows.

        Args:
            following: Its first and its last timestamp; None where they do not matter.

        Raises:
            InvalidInputError: It does (kind ``NotSorted``).
        """
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

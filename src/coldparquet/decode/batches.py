"""Tables of row groups -> record batches, and batches of many row groups -> one table.

Text whose rows repeat few long strings comes dictionary-encoded from decoding even where plain strings are wanted: a page
of a few KB can stand for GB of them. It becomes plain strings here, in batches that are no larger than the memory allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from coldparquet.decode.arrow_schema import DICTIONARY_TYPE
from coldparquet.decode.numpy_bridge import numbers_to_numpy
from coldparquet.decode.untyped_compute import compute
from coldparquet.options import MIB

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import numpy.typing as npt


def most_expanded_bytes(memory_limit_bytes: int) -> int:
    """Return how much text may take as plain strings at once: what may take more is kept dictionary-encoded before."""
    return max(memory_limit_bytes // 8, 4 * MIB)


def to_batches(table: pa.Table, *, batch_rows: int) -> list[pa.RecordBatch]:
    """Split a table without copying.

    Args:
        table: Usually one row group.
        batch_rows: Largest number of rows in one batch.

    Returns:
        The batches in order, none of them empty.
    """
    return [batch for batch in table.to_batches(max_chunksize=batch_rows) if batch.num_rows]


def columns_to_expand(schema: pa.Schema, plain: Collection[str]) -> list[int]:
    """Return the places of columns that came dictionary-encoded, but are to be plain strings: those named ``plain``."""
    return [place for place, field in enumerate(schema) if field.type == DICTIONARY_TYPE and field.name in plain]


def first_expanded(
    batch: pa.RecordBatch, places: Sequence[int], most_bytes: int
) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Take as many rows of a batch as fit, at least one, and make plain strings of their text.

    Args:
        batch: At least one row.
        places: Of the columns that are to be plain strings.
        most_bytes: Most that the strings may take.

    Returns:
        These rows, and those that are left; None where none is.
    """
    row_bytes = _expanded_row_bytes(batch, places)
    rows = max(int(row_bytes.cumsum().searchsorted(most_bytes, side="right")), 1)
    first: Any = batch.slice(0, rows)
    for place in places:
        field = first.schema.field(place)
        first = first.set_column(place, field.with_type(pa.string()), first.column(place).cast(pa.string()))
    return first, batch.slice(rows) if rows < batch.num_rows else None


def text_bytes(table: pa.Table, plain: Collection[str]) -> int:
    """Return how many bytes text that came dictionary-encoded, but is to be plain, takes as plain strings."""
    places = columns_to_expand(table.schema, plain)
    return sum(int(_expanded_row_bytes(batch, places).sum()) for batch in table.to_batches())


def _expanded_row_bytes(batch: pa.RecordBatch, places: Sequence[int]) -> npt.NDArray[np.int64]:
    row_bytes = np.zeros(batch.num_rows, dtype=np.int64)
    for place in places:
        array: Any = batch.column(place)
        lengths = numbers_to_numpy(compute.binary_length(array.dictionary), np.int32)
        indices = numbers_to_numpy(array.indices.fill_null(len(lengths)), np.int32)
        row_bytes += np.append(lengths, np.int32(0))[indices]
    return row_bytes


def expanded_table(table: pa.Table, plain: Collection[str], *, most_bytes: int = 1024 * MIB) -> pa.Table:
    """Make plain strings of all text that came dictionary-encoded, but is to be plain; a chunk of it takes 2 GiB at most."""
    places = columns_to_expand(table.schema, plain)
    if not places:
        return table
    batches: list[pa.RecordBatch] = []
    for batch in table.to_batches():
        left: pa.RecordBatch | None = batch
        while left is not None:
            first, left = first_expanded(left, places, most_bytes)
            batches.append(first)
    schema = table.schema
    for place in places:
        schema = schema.set(place, schema.field(place).with_type(pa.string()))
    return pa.Table.from_batches(batches, schema)


def copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Copy a batch out of the memory of a larger one; dictionaries, which other batches have as well, are not copied."""
    return pa.RecordBatch.from_arrays([_copied(column) for column in batch.columns], schema=batch.schema)


def concatenate(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Join the batches of many row groups; only dictionary indices are copied.

    Args:
        batches: In the order of the result; there may be none.
        schema: Schema of each of them.

    Returns:
        A table whose dictionary columns have one dictionary for all chunks.
    """
    return pa.Table.from_batches(batches, schema).unify_dictionaries()


def _copied(array: Any) -> Any:
    if pa.types.is_dictionary(array.type):
        return pa.DictionaryArray.from_arrays(pa.concat_arrays([array.indices]), array.dictionary, safe=False)
    return pa.concat_arrays([array])

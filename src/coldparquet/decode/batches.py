"""Tables of row groups -> record batches, and batches of many row groups -> one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable


def to_batches(table: pa.Table, *, batch_rows: int) -> list[pa.RecordBatch]:
    """Split a table without copying.

    Args:
        table: Usually one row group.
        batch_rows: Largest number of rows in one batch.

    Returns:
        The batches in order, none of them empty.
    """
    return [batch for batch in table.to_batches(max_chunksize=batch_rows) if batch.num_rows]


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

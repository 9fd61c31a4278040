"""Dropping the values of dictionaries that no row has, once rows were left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from coldparquet.decode.arrow_schema import DICTIONARY_TYPE
from coldparquet.decode.numpy_bridge import numbers_to_arrow, numbers_to_numpy

if TYPE_CHECKING:
    from collections.abc import Collection


def without_unused_values(array: pa.DictionaryArray[Any, Any]) -> pa.DictionaryArray[Any, Any]:
    """Drop the values that no row has; the others keep their order."""
    is_used = np.zeros(len(array.dictionary), dtype=bool)
    is_used[numbers_to_numpy(array.indices.drop_null(), np.int32)] = True
    if is_used.all():
        return array
    numbers = numbers_to_arrow(np.cumsum(is_used, dtype=np.int32) - np.int32(1), pa.int32())
    used = numbers_to_arrow(np.flatnonzero(is_used), pa.int64())
    return pa.DictionaryArray.from_arrays(numbers.take(array.indices), array.dictionary.take(used), safe=False)


def shorten_dictionaries(table: pa.Table, *, untouched: Collection[str]) -> pa.Table:
    """Drop unused values of dictionaries that are longer than the table, so that few rows do not keep a large one.

    Args:
        table: Rows that a predicate, or the choice of pages, has left.
        untouched: Names of columns whose dictionaries stay as they are.
    """
    for position, name in enumerate(table.schema.names):
        column: Any = table.column(position)
        if not pa.types.is_dictionary(column.type) or name in untouched:
            continue
        if any(len(chunk.dictionary) > len(column) for chunk in column.chunks):
            chunks: list[Any] = [without_unused_values(chunk) for chunk in column.chunks]
            shortened = pa.chunked_array(chunks, type=DICTIONARY_TYPE)
            table = table.set_column(position, table.schema.field(position), shortened)
    return table

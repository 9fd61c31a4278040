"""Many dictionaries -> one: row groups of a table bring dictionaries of their own, whose numbers mean nothing together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coldparquet.decode.untyped_compute import compute
from coldparquet.decode.used_values import without_unused_values

if TYPE_CHECKING:
    from collections.abc import Mapping


class SharedDictionaries:
    """One growing dictionary per column, for tables that follow each other in a stream.

    A number, once given, means the same string in every table. The dictionary of each table is that of the table before,
    with new strings behind it: writers of Arrow streams send just those, as deltas.

    Args:
        known: By column, the distinct strings to begin with. If these are all that occur, then every table has this very
            dictionary.
    """

    def __init__(self, known: Mapping[str, pa.Array[Any]]) -> None:
        self._dictionaries = dict(known)

    def share(self, table: pa.Table) -> pa.Table:
        """Give the columns the shared dictionaries, and these the strings that are new.

        Only rows of a dictionary that numbers its strings otherwise are written anew.

        Args:
            table: The next one of the stream. Its columns of the names that are known are dictionaries of distinct
                strings without null.
        """
        for position, name in enumerate(table.schema.names):
            if name in self._dictionaries:
                column: Any = table.column(position)
                table = table.set_column(position, table.schema.field(position), self._shared(name, column))
        return table

    def _shared(self, name: str, column: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
        parts: list[Any] = column.chunks
        indices = []
        for part in parts:
            dictionary = self._dictionaries[name]
            if _begins_with(dictionary, part.dictionary):
                indices.append(part.indices)
            elif _begins_with(part.dictionary, dictionary):
                self._dictionaries[name] = part.dictionary
                indices.append(part.indices)
            else:
                used = without_unused_values(part)
                self._dictionaries[name], numbers = numbered(used.dictionary, dictionary)
                indices.append(numbers.take(used.indices))
        shared = [pa.DictionaryArray.from_arrays(part, self._dictionaries[name], safe=False) for part in indices]
        return pa.chunked_array(shared, type=column.type)


def numbered(strings: pa.Array[Any], known: pa.Array[Any]) -> tuple[pa.Array[Any], pa.Array[Any]]:
    """Look strings up in a dictionary, and append what it lacks.

    Args:
        strings: Without null.
        known: Distinct strings without null.

    Returns:
        The dictionary, and the number of each string in it: int32, shape ``(strings,)``.
    """
    numbers = compute.index_in(strings, value_set=known)
    if numbers.null_count:
        known = pa.concat_arrays([known, strings.filter(numbers.is_null()).unique()])
        numbers = compute.index_in(strings, value_set=known)
    return known, numbers


def _begins_with(dictionary: pa.Array[Any], other: pa.Array[Any]) -> bool:
    return len(dictionary) >= len(other) and dictionary.slice(0, len(other)).equals(other)

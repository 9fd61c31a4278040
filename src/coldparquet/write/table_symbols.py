"""Fetches the symbols of a QuestDB table by their keys, for partitions that are written with these keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from coldparquet.catalog.symbol_dictionaries import SymbolDictionaries
from coldparquet.decode.arrow import strings_to_arrow
from coldparquet.errors import UnsupportedError

if TYPE_CHECKING:
    import pyarrow as pa

    from coldparquet.catalog.table_files import TableFiles
    from coldparquet.storage.base import ObjectStore


class TableSymbols:
    """Symbols of one state of a table; each dictionary is fetched on first use and then kept.

    Args:
        store: The table's store; it should pin versions.
        path: The table's directory.
        files: The state, with its column versions; None for a directory of partitions without a transaction file.
    """

    def __init__(self, store: ObjectStore, path: str, files: TableFiles | None) -> None:
        self._files = files
        self._dictionaries = SymbolDictionaries(store, path)
        self._loaded: dict[int, pa.StringArray] = {}

    async def of(self, column_id: int) -> pa.StringArray | None:
        """Return the symbols of a column; None if the table has no SYMBOL column of this id (any more).

        Requests: 2 the first time.
        """
        if self._files is None:
            return None
        if column_id not in self._loaded:
            strings = await self._dictionaries.of_column(column_id, self._files)
            if strings is None:
                return None
            [name] = (column.name for column in self._files.metadata.columns if column.writer_index == column_id)
            self._loaded[column_id] = _unique(strings_to_arrow(strings), name)
        return self._loaded[column_id]


def _unique(symbols: pa.StringArray, column: str) -> pa.StringArray:
    """Refuse symbols that are equal in UTF-8: QuestDB distinguishes half surrogates, which UTF-8 cannot represent."""
    if pc.count_distinct(symbols).as_py() < len(symbols):
        raise UnsupportedError(
            f"two symbols of column {column!r} are the same text, so that nobody can tell which key a row had",
            kind="AmbiguousSymbols",
            field=column,
        )
    return symbols

"""The symbols of a QuestDB table, in the order of their keys, for partitions that are to have these keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from coldparquet.catalog.symbol_dictionaries import SymbolDictionaries
from coldparquet.errors import InternalError, UnsupportedError
from coldparquet.format.canonical_types import canonical_type
from coldparquet.plan.native_read import NativeColumn, NativeSymbol

if TYPE_CHECKING:
    from coldparquet.catalog.table_files import TableFiles
    from coldparquet.storage.base import ObjectStore


class TableSymbols:
    """Symbols of one state of a table; each dictionary is fetched when it is first needed, and then kept.

    Args:
        store: Where the table lies; it should pin versions.
        path: The table's directory.
        files: The state, with its column versions; None for a directory of partitions that no transaction file holds together.
    """

    def __init__(self, store: ObjectStore, path: str, files: TableFiles | None) -> None:
        self._store = store
        self._path = path
        self._files = files
        self._dictionaries = SymbolDictionaries(store, path)
        self._loaded: dict[int, pa.StringArray] = {}

    async def of(self, column_id: int) -> pa.StringArray | None:
        """Return the symbols of a column; None if the table has no SYMBOL column of this id (any more).

        Requests: 2 the first time.

        Raises:
            NotFoundError: The symbol files are missing (kind ``MissingSymbolFile``).
            FormatError: They are damaged.
        """
        if self._files is None:
            return None
        column = next((column for column in self._files.metadata.columns if column.writer_index == column_id), None)
        if column is None or column.symbol_index is None:
            return None
        if column_id not in self._loaded:
            versions = self._files.column_versions
            if versions is None:
                raise InternalError("a compaction reads the column versions of the table")
            strings = await self._dictionaries.get(
                NativeColumn(
                    index=0,
                    name=column.name,
                    type=canonical_type(column.type_code),
                    name_txn=-1,
                    top=0,
                    symbol=NativeSymbol(
                        count=self._files.transaction.symbol_counts[column.symbol_index],
                        name_txn=versions.symbol_name_txn(column_id),
                    ),
                ),
                spent=[],
            )
            buffers = [None, pa.py_buffer(strings.offsets.data), pa.py_buffer(strings.utf8)]
            symbols: Any = pa.Array.from_buffers(pa.string(), len(strings), buffers)
            self._loaded[column_id] = _unique(symbols, column.name)
        return self._loaded[column_id]


def _unique(symbols: pa.StringArray, column: str) -> pa.StringArray:
    """Refuse symbols of which two read alike: QuestDB tells half surrogates apart, which UTF-8 cannot hold."""
    if pc.count_distinct(symbols).as_py() < len(symbols):
        raise UnsupportedError(
            f"two symbols of column {column!r} are the same text, so that nobody can tell which key a row had",
            kind="AmbiguousSymbols",
            field=column,
        )
    return symbols

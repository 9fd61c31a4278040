"""Fetches the symbols of a table, which native partitions refer to by number."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.errors import InternalError, NotFoundError
from coldparquet.format.binary import Utf8Strings
from coldparquet.format.native import (
    CHARS_EXTENSION,
    OFFSETS_EXTENSION,
    data_file_name,
    parse_symbol_offsets,
    parse_symbols,
    symbol_file_name,
    symbol_offsets_range,
)
from coldparquet.plan.native import NativeSymbol
from coldparquet.ranges import ByteRange
from coldparquet.storage.log import get_metadata
from coldparquet.storage.requests import RangeRequest

if TYPE_CHECKING:
    from coldparquet.catalog.table_files import TableFiles
    from coldparquet.plan.native import NativeColumn
    from coldparquet.storage.base import ObjectStore

SYMBOLS = "symbols"
"""Reason of the requests for the dictionaries of symbol columns."""


class SymbolDictionaries:
    """The symbols of one snapshot of a table. Each dictionary is fetched on first use and then kept.

    Args:
        store: The table's store.
        table_path: Its directory.
    """

    def __init__(self, store: ObjectStore, table_path: str) -> None:
        self._store = store
        self._table_path = table_path
        self._loading: dict[tuple[str, int, int], asyncio.Lock] = {}
        self._loaded: dict[tuple[str, int, int], Utf8Strings] = {}

    async def get(self, column: NativeColumn) -> Utf8Strings:
        """Return the symbols of a column, in the order of their keys. 2 requests, one after the other, or none."""
        if column.symbol is None:
            raise InternalError(f"nothing is known of the dictionary of column {column.name!r}")
        return await self._get(column.name, column.symbol)

    async def of_column(self, column_id: int, files: TableFiles) -> Utf8Strings | None:
        """Return the symbols of a column, in the order of their keys. 2 requests, one after the other, or none."""
        column = next((column for column in files.metadata.columns if column.writer_index == column_id), None)
        if column is None or column.symbol_index is None:
            return None
        if files.column_versions is None:
            raise InternalError("symbols are asked for of a snapshot without its column versions")
        symbol = NativeSymbol(
            count=files.transaction.symbol_counts[column.symbol_index],
            name_txn=files.column_versions.symbol_name_txn(column_id),
        )
        return await self._get(column.name, symbol)

    async def _get(self, name: str, symbol: NativeSymbol) -> Utf8Strings:
        key = (name, symbol.name_txn, symbol.count)
        async with self._loading.setdefault(key, asyncio.Lock()):
            if key not in self._loaded:
                self._loaded[key] = await self._load(*key)
            return self._loaded[key]

    async def _load(self, name: str, name_txn: int, count: int) -> Utf8Strings:
        if count == 0:
            return Utf8Strings(utf8=b"", offsets=np.zeros(1, dtype=np.int32))
        data_file_name(name, name_txn)  # refuses names that lead out of the table
        offsets_path = f"{self._table_path}/{symbol_file_name(name, OFFSETS_EXTENSION, name_txn)}"
        chars_path = f"{self._table_path}/{symbol_file_name(name, CHARS_EXTENSION, name_txn)}"
        stored = await self._fetch(offsets_path, symbol_offsets_range(count))
        offsets = parse_symbol_offsets(stored, count, path=offsets_path)
        chars = await self._fetch(chars_path, ByteRange(0, int(offsets[-1])))
        return await asyncio.to_thread(parse_symbols, chars, offsets, path=chars_path)

    async def _fetch(self, path: str, byte_range: ByteRange) -> bytes:
        try:
            return await fetch_committed(self._store, path, byte_range, SYMBOLS)
        except NotFoundError as error:
            raise NotFoundError(
                "the symbols of a column are missing from the table's directory, so that the keys in its partitions"
                " mean nothing; copy the file from the QuestDB server, or leave the column out",
                kind="MissingSymbolFile",
                path=path,
            ) from error


async def fetch_committed(
    store: ObjectStore, path: str, byte_range: ByteRange, reason: str, *, least_bytes: int | None = None
) -> bytes:
    """Fetch a range of a file that QuestDB may append to, and note the request. 1 request."""
    request = RangeRequest(path=path, byte_range=byte_range, reason=reason, may_grow=True, object_bytes=least_bytes)
    return (await get_metadata(store, request)).data

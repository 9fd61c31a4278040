"""Looks up the symbols of a table, so that all batches of a scan share its dictionaries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from coldparquet.concurrency import gather_or_cancel
from coldparquet.decode.arrow import strings_to_arrow
from coldparquet.decode.dictionaries import SharedDictionaries
from coldparquet.errors import NotFoundError
from coldparquet.format.type_codes import TypeTag
from coldparquet.storage.log import metadata_requests

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.catalog.snapshot import TableSnapshot
    from coldparquet.plan.columns import TableColumn
    from coldparquet.plan.model import MetadataRequest
    from coldparquet.scan.model import Question, RowQuestion


async def look_up_symbols(question: Question) -> tuple[dict[int, pa.Array[Any]], Sequence[MetadataRequest]]:
    """Look up the symbols of a result's SYMBOL columns, by index of the column in the table; and the requests spent on it.

    Requests: 2 per column in sequence, all columns in parallel. None for columns looked up before, for tables without
    symbol files, or for tables opened without ``symbols="global"``.
    """
    snapshot = question.snapshot
    if question.options.symbols != "global" or snapshot.files is None or snapshot.files.column_versions is None:
        return {}, ()
    columns = symbol_columns(question)
    with metadata_requests() as requests:
        found = await gather_or_cancel([_symbols(column, snapshot) for column in columns])
    strings = {column.index: symbols for column, symbols in zip(columns, found, strict=True) if symbols is not None}
    return strings, requests


def symbol_columns(question: RowQuestion) -> list[TableColumn]:
    """Return the SYMBOL columns of the result."""
    return [column for column in question.output_columns if column.readable_type.tag is TypeTag.SYMBOL]


def shared_dictionaries(question: RowQuestion) -> SharedDictionaries | None:
    """Return the dictionaries that all batches of a result share; None if each row group may have its own."""
    if question.options.symbols != "global":
        return None
    known = question.symbols
    none_known = pa.nulls(0, pa.string())
    return SharedDictionaries({column.name: known.get(column.index, none_known) for column in symbol_columns(question)})


async def _symbols(column: TableColumn, snapshot: TableSnapshot) -> pa.Array[Any] | None:
    """Return distinct symbols. None if files are missing, or if two symbols have the same UTF-8 form."""
    dictionaries, files = snapshot.symbol_dictionaries, snapshot.files
    if dictionaries is None or files is None:
        return None
    try:
        strings = await dictionaries.of_column(column.id, files)
    except NotFoundError:
        return None
    if strings is None:
        return None
    symbols = strings_to_arrow(strings)
    return symbols if pc.count_distinct(symbols).as_py() == len(symbols) else None

"""Tables as Polars' LazyFrames: columns, filters and limits are pushed down into the plan of the library.

    lf = coldparquet.polars.scan("s3://bucket/db/trades")
    lf.filter(pl.col("symbol") == "BTC").select("ts", "price").collect()

Filters say what need not be read, and Polars filters the rest again: its expressions do not tell all that they mean, such as
what ``is_in`` does with NULL; so it also asks for the columns of its filters. It asks for a number of rows as for the first
column, so that ``scan().count()`` of a table is cheaper. A resolver of Polars 2 would show our plan in ``explain()``, but
window functions and row indexes panic with any resolver in Polars 2.1; it names the table.
"""

from __future__ import annotations

import os
import threading
from inspect import signature
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
from polars.io.plugins import register_io_source

from coldparquet.concurrency import background
from coldparquet.dataset import EngineTable
from coldparquet.errors import UnsupportedError
from coldparquet.expressions.predicate import POLARS
from coldparquet.opening import open_table
from coldparquet.storage.urls import shown_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coldparquet.options import ReadOptions, StoreOptions
    from coldparquet.plan.predicate import Predicate
    from coldparquet.table import Table


def scan(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    options: ReadOptions | None = None,
    store_options: StoreOptions | None = None,
) -> pl.LazyFrame:
    """Return a table as a LazyFrame that opens it when Polars needs it, and can be sent to other processes.

    Requests: those of opening the table, when the frame is first asked for its columns; for every ``collect()`` those
    of a scan, few at first, because Polars may stop early. The frame stays with the state of the table that it opened.

    Args:
        url: See :func:`coldparquet.open_table`, as for the others.
        storage_options: How to reach the store.
        options: How to read.
        store_options: How to send requests.
    """
    arguments = {"storage_options": storage_options, "options": options, "store_options": store_options}
    return _Source(url, arguments).lazy()


def lazy_frame(table: Table) -> pl.LazyFrame:
    """Return an open table as a LazyFrame; see :meth:`coldparquet.sync.Table.lazy`."""
    return _Source(table.url, None, table).lazy()


class _Source:
    """The table behind a frame, opened once; pickles as what opens it."""

    def __init__(self, url: Any, arguments: dict[str, Any] | None, table: Table | None = None) -> None:
        self._url = url
        self._arguments = arguments
        self._opening = threading.Lock()
        self._table = None if table is None else _engine_table(table)

    def __reduce__(self) -> Any:
        if self._arguments is None:
            raise UnsupportedError(
                f"a LazyFrame of the open table {self._url} cannot be sent to another process; make it with"
                " coldparquet.polars.scan(url)",
                kind="NotPicklable",
            )
        return _Source, (self._url, self._arguments)

    def lazy(self) -> pl.LazyFrame:
        """Return the frame."""
        names = {"explain_name": "coldparquet", "explain_detail": shown_url(os.fspath(self._url))}
        known: Any = {name: text for name, text in names.items() if name in signature(register_io_source).parameters}
        return register_io_source(self.rows, schema=self.schema, is_pure=True, **known)

    def schema(self) -> pl.Schema:
        """Return columns and types. Opens the table."""
        frame: Any = pl.from_arrow(self._opened().schema.empty_table())
        schema: pl.Schema = frame.schema
        return schema

    def rows(
        self, with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        """Stream what Polars asks for: the first ``n_rows`` rows, and of these those that satisfy ``predicate``."""
        del batch_size
        table = self._opened()
        wanted = table.schema.names if with_columns is None else with_columns
        needed = list(dict.fromkeys([*wanted, *([] if predicate is None else predicate.meta.root_names())]))
        pushed = None if predicate is None or n_rows is not None else _pushed(table, predicate)
        for batch in table.batches(table.scan(needed, pushed, limit=n_rows)):
            frame: Any = pl.from_arrow(batch)
            yield (frame if predicate is None else frame.filter(predicate)).select(wanted)

    def _opened(self) -> EngineTable:
        with self._opening:
            if self._table is None:
                self._table = _engine_table(background.run(self._open()))
            return self._table

    async def _open(self) -> Table:
        return await open_table(self._url, **(self._arguments or {}))


def _engine_table(table: Table) -> EngineTable:
    return EngineTable(table, POLARS, wide_decimals_as_text=True)


class _Listener(ds.Dataset):
    """Has no rows, and hears the filter that Polars asks datasets for: the only public way to its pyarrow expression."""

    def __init__(self, schema: pa.Schema) -> None:
        self._columns = schema
        self.heard: Any = None

    @property
    def schema(self) -> pa.Schema:
        return self._columns

    def to_table(self, columns: Any = None, filter: Any = None, **_: Any) -> pa.Table:  # type: ignore[override]  # noqa: A002
        self.heard = filter
        empty = self._columns.empty_table()
        return empty if columns is None else empty.select(columns)

    def scanner(self, columns: Any = None, filter: Any = None, **_: Any) -> Any:  # type: ignore[override]  # noqa: A002
        return ds.Scanner.from_batches(self.to_table(columns, filter).to_reader())

    def to_batches(self, columns: Any = None, filter: Any = None, **_: Any) -> Any:  # type: ignore[override]  # noqa: A002
        return iter(self.to_table(columns, filter).to_batches())


def _pushed(table: EngineTable, predicate: pl.Expr) -> Predicate | None:
    """Return what holds for all rows that satisfy a filter, as far as Polars makes an expression of pyarrow of it."""
    fields: list[Any] = list(table.schema)
    # Polars converts comparisons of text, but few of categories. They mean the same.
    listener = _Listener(
        pa.schema(
            [each.with_type(each.type.value_type) if pa.types.is_dictionary(each.type) else each for each in fields]
        )
    )
    try:
        pl.scan_pyarrow_dataset(listener).filter(predicate).collect()
    except Exception:  # noqa: BLE001 - whatever Polars could not convert, it filters by itself
        return None
    return None if listener.heard is None else table.translate(listener.heard).predicate

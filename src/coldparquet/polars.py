"""Tables as Polars' LazyFrames: columns, filters and limits are pushed down into the plan of the library.

    lf = coldparquet.polars.scan("s3://bucket/db/trades")
    lf.filter(pl.col("symbol") == "BTC").select("ts", "price").collect()

Polars 2 asks a resolver for the rows, filter by filter, and filters by what is not taken. Polars 1 hands one expression
over and relies on it. Both show the plan in ``lf.explain()``.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
from polars.io.plugins import register_io_source

from coldparquet.concurrency import background
from coldparquet.dataset import EngineTable
from coldparquet.errors import UnsupportedError
from coldparquet.expressions.predicate import POLARS, Translation
from coldparquet.opening import open_table
from coldparquet.plan.predicate import And

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from coldparquet.options import ReadOptions, StoreOptions
    from coldparquet.plan.predicate import Predicate
    from coldparquet.table import Table
    from coldparquet.table_scan import Scan

_RESOLVER: Any = None
"""The module that Polars has from version 2 on."""
with suppress(ImportError):
    _RESOLVER = import_module("polars.lazyframe.resolver")


def scan(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    options: ReadOptions | None = None,
    store_options: StoreOptions | None = None,
) -> pl.LazyFrame:
    """Return a table as a LazyFrame that opens it when Polars needs it, and can be sent to other processes.

    Requests: those of opening the table, when the frame is first asked for its columns; for every ``collect()`` those
    of a scan, few at first where Polars may stop early. The frame stays with the state of the table that it opened.

    Args:
        url: See :func:`coldparquet.open_table`, as for the others.
        storage_options: How to reach the store.
        options: How to read.
        store_options: How to send requests.
    """
    arguments = {"storage_options": storage_options, "options": options, "store_options": store_options}
    return _lazy(_Source(url, arguments))


def lazy_frame(table: Table) -> pl.LazyFrame:
    """Return an open table as a LazyFrame; see :meth:`coldparquet.sync.Table.lazy`."""
    return _lazy(_Source(table.url, None, table))


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

    @property
    def table(self) -> EngineTable:
        with self._opening:
            if self._table is None:
                self._table = _engine_table(background.run(self._open()))
            return self._table

    async def _open(self) -> Table:
        return await open_table(self._url, **(self._arguments or {}))

    @property
    def schema(self) -> pl.Schema:
        frame = pl.from_arrow(self.table.schema.empty_table())
        assert isinstance(frame, pl.DataFrame)  # noqa: S101 - for type checkers: of a table it makes a frame
        return frame.schema


def _engine_table(table: Table) -> EngineTable:
    return EngineTable(table, POLARS, wide_decimals_as_text=True)


def _lazy(source: _Source) -> pl.LazyFrame:
    if _RESOLVER is None:
        return _frame_of_polars_1(source)
    return pl.LazyFrame.from_lazyframe_resolver(_Resolver(source))


def _frames(table: EngineTable, scan: Scan, residual: pl.Expr | None, names: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Stream a scan's rows, and filter by what it does not."""
    for batch in table.batches(scan):
        frame: Any = pl.from_arrow(batch)
        yield (frame if residual is None else frame.filter(residual)).select(names)


class _Resolver(object if _RESOLVER is None else _RESOLVER.LazyFrameResolver):  # type: ignore[misc]
    """Answers Polars 2, whose optimiser says what it wants of a table."""

    def __init__(self, source: _Source) -> None:
        self._source = source

    def schema(self) -> Any:
        return self._source.schema

    def cse_eq(self, other: object) -> bool:
        return isinstance(other, _Resolver) and other._source is self._source  # noqa: SLF001

    def resolve_lazyframe(
        self,
        *,
        projection: list[str] | None,
        limit: int | None,
        filters: list[Any],
        filter_drop_columns_idx: int | None,
        **_: Any,
    ) -> Any:
        table, schema = self._source.table, self._source.schema
        # A limit counts rows before the filters.
        found = [Translation(None, "limit") if limit is not None else _translated(table, each) for each in filters]
        applied = [number for number, translation in enumerate(found) if translation.is_exact]
        names = schema.names() if projection is None else projection
        # What only filters need is not read if they are applied here; Polars drops it unseen.
        are_applied = len(applied) == len(filters)
        unseen = names[filter_drop_columns_idx:] if filter_drop_columns_idx and are_applied else []
        wanted = [name for name in names if name not in unseen]
        frame = _planned_frame(table, wanted, _joined(found), limit, {name: schema[name] for name in wanted})
        if unseen:
            frame = frame.with_columns([pl.lit(None, schema[name]).alias(name) for name in unseen]).select(names)
        transaction = table.table.txn
        version = None if transaction is None else str(transaction)
        return frame, _RESOLVER.ResolvedLazyFrameProps(version_key=version, applied_filters=applied)


def _translated(table: EngineTable, asked: Any) -> Translation:
    try:
        expression = asked.pyarrow_expr
    except Exception:  # noqa: BLE001 - whatever Polars could not convert, it filters by itself
        expression = None
    return _heard(table, asked.expr) if expression is None else table.translate(expression)


def _joined(found: Sequence[Translation]) -> Predicate | None:
    parts = tuple(translation.predicate for translation in found if translation.predicate is not None)
    return And(parts) if len(parts) > 1 else parts[0] if parts else None


def _planned_frame(
    table: EngineTable, names: list[str], predicate: Predicate | None, limit: int | None, schema: Mapping[str, Any]
) -> pl.LazyFrame:
    """Return the frame of one question, which is planned now."""
    asked = table.scan(names, predicate, limit=limit)
    plan = background.run(asked.plan())
    pushed = f"; {asked.question.predicate_text}" if predicate is not None else ""

    def rows(
        with_columns: list[str] | None, residual: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        del batch_size
        wanted = names if with_columns is None else with_columns
        needed = list(dict.fromkeys([*wanted, *([] if residual is None else residual.meta.root_names())]))
        limits = [most for most in (limit, n_rows) if most is not None]
        is_asked = needed == names and limits in ([], [limit])
        scan = asked if is_asked else table.scan(needed, predicate, limit=min(limits, default=None))
        yield from _frames(table, scan, residual, wanted)

    return register_io_source(
        rows,
        schema=dict(schema),
        is_pure=True,
        explain_name="coldparquet",
        explain_detail=f"{plan.request_count} requests, {plan.bytes_fetched:,} bytes{pushed}",
    )


def _frame_of_polars_1(source: _Source) -> pl.LazyFrame:
    def rows(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        del batch_size
        table = source.table
        # A limit counts rows before the filter.
        found = Translation(None) if predicate is None or n_rows is not None else _heard(table, predicate)
        wanted = source.schema.names() if with_columns is None else with_columns
        needed = list(dict.fromkeys([*wanted, *([] if predicate is None else predicate.meta.root_names())]))
        scan = table.scan(needed, found.predicate, limit=n_rows)
        yield from _frames(table, scan, predicate, wanted)

    return register_io_source(rows, schema=lambda: source.schema, is_pure=True)


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


def _heard(table: EngineTable, predicate: pl.Expr) -> Translation:
    """Translate what Polars converts for datasets alone: all of Polars 1, and lists of categories, which are text here.

    Never exact: of an AND, Polars may have kept a part.
    """
    fields: list[Any] = list(table.schema)
    listener = _Listener(
        pa.schema(
            [each.with_type(each.type.value_type) if pa.types.is_dictionary(each.type) else each for each in fields]
        )
    )
    try:
        pl.scan_pyarrow_dataset(listener).filter(predicate).collect()
    except Exception as error:  # noqa: BLE001 - whatever Polars could not convert, it filters by itself
        return Translation(None, str(error))
    if listener.heard is None:
        return Translation(None, "no pyarrow expression")
    return Translation(table.translate(listener.heard).predicate, "what Polars may have kept")

"""A table as a ``pyarrow.dataset.Dataset``: the form in which DuckDB, DataFusion, ibis, Ray and pyarrow push down into Python.

They all ask a dataset for columns and a filter, as a pyarrow expression. What has a translation is answered by the
library, with its plan; pyarrow filters by the rest. Nothing of pyarrow's own datasets is used: every method is overridden,
which DuckDB's tests do too, as Arrow has no protocol for others' datasets (apache/arrow#37504). What takes a dataset as an
argument and reads it in C++, as ``Scanner.from_dataset`` does, finds a file that does not exist, whose name says what to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs

from coldparquet.concurrency import background
from coldparquet.decode.arrow import known_schema, schema_without_views
from coldparquet.decode.result_text import options_with_views, options_without_views
from coldparquet.errors import ColdParquetError, InvalidInputError, UnsupportedError
from coldparquet.expressions.predicate import ARROW, DUCKDB, POLARS, Translation, expression_for_arrow, translate
from coldparquet.expressions.tree import UnknownTreeError, columns_of, read_tree
from coldparquet.plan.columns import unknown_column
from coldparquet.records import replace
from coldparquet.scan.stream import blocking_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import TypeAlias

    from coldparquet.expressions.predicate import Dialect
    from coldparquet.plan.predicate import Predicate
    from coldparquet.table import Table
    from coldparquet.table_scan import Scan

    Columns: TypeAlias = Sequence[str] | Mapping[str, pc.Expression] | None


class EngineTable:
    """An open table as an engine sees it: blocking, and with types that the engine knows.

    Args:
        table: The table; it lives in the event loop of blocking calls.
        dialect: What the engine's expressions mean.
        wide_decimals_as_text: Whether decimals of more than 38 digits become text, and half floats single ones for DuckDB.
    """

    def __init__(self, table: Table, dialect: Dialect = ARROW, *, wide_decimals_as_text: bool = False) -> None:
        self.table = table
        options = table.scan([]).question.options
        self._options = options_with_views(options) if dialect is POLARS else options_without_views(options)
        self._dialect = dialect
        self._wide_decimals_as_text = wide_decimals_as_text

    @property
    def schema(self) -> pa.Schema:
        """Columns and types of the engine."""
        return self.seen(self.table.schema)

    def translate(self, expression: pc.Expression | None) -> Translation:
        """Translate a filter of the engine. Of decimals as text only IS NULL means the same."""
        return Translation(None) if expression is None else translate(expression, self.table.schema, self._dialect)

    def for_arrow(self, expression: pc.Expression) -> pc.Expression:
        """Return what pyarrow has to filter by, in place of the engine."""
        return expression_for_arrow(expression, self.schema, self._dialect)

    def scan(
        self,
        columns: Iterable[str],
        predicate: Predicate | None,
        *,
        limit: int | None = None,
        batch_rows: int | None = None,
    ) -> Scan:
        """Ask a question; see :meth:`coldparquet.table.Table.scan`."""
        options = self._options if batch_rows is None else replace(self._options, batch_rows=max(1, batch_rows))
        return self.table.scan(columns, predicate, limit=limit, options=options)

    def batches(self, scan: Scan, *, slow_start: bool = True) -> Iterator[pa.RecordBatch]:
        """Stream the rows, the first ones alone: engines may stop at any batch."""
        schema = self.seen(scan.schema)
        try:
            for batch in blocking_batches(scan.batches(slow_start=slow_start)):
                yield batch if batch.schema.equals(schema) else batch.cast(schema)
        except ColdParquetError as error:
            if self._dialect is not DUCKDB:
                raise
            raise error.with_traceback(None) from None  # Arrow hands DuckDB the traceback as text

    def seen(self, schema: pa.Schema) -> pa.Schema:
        """Return columns with the types of the engine."""
        if self._wide_decimals_as_text:
            schema = known_schema(schema, has_no_half=self._dialect is DUCKDB)
        # pyarrow filters what the filters of the other engines leave.
        return schema if self._dialect is POLARS else schema_without_views(schema)


def _refused(*_: Any, **__: Any) -> NoReturn:
    """Raise, in place of what would reach into C++."""
    raise UnsupportedError(
        "the dataset of a table only scans; read its rows first: dataset.to_table(columns, filter=...)"
    )


class TableScanner:
    """One question of an engine. Nothing is planned or fetched before its rows are asked for."""

    def __init__(
        self, table: EngineTable, columns: Columns, expression: pc.Expression | None, batch_rows: int | None
    ) -> None:
        if isinstance(columns, str) or not isinstance(columns, Sequence | Mapping | None):
            raise InvalidInputError(f"columns must be a list of names, or a dict of expressions, not {columns!r}")
        self._table = table
        self._columns = table.schema.names if columns is None else columns
        found = table.translate(expression)
        self.rest = None if found.is_exact or expression is None else table.for_arrow(expression)
        self.scan = table.scan(self._needed(), found.predicate, batch_rows=batch_rows)

    def __repr__(self) -> str:
        return f"<TableScanner of {self.scan!r}>"

    @property
    def dataset_schema(self) -> pa.Schema:
        """Columns of the table."""
        return self._table.schema

    @property
    def projected_schema(self) -> pa.Schema:
        """Columns of the result."""
        if isinstance(self._columns, Mapping):
            return self._finished(iter(())).projected_schema
        schema = self._table.schema
        return pa.schema([schema.field(name) for name in self._columns])

    def to_reader(self) -> pa.RecordBatchReader:
        """Stream the rows. Requests: those of a scan; few at first, because the consumer may stop."""
        return self._reader(slow_start=True)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Stream the rows; see :meth:`to_reader`."""
        return iter(self.to_reader())

    def to_table(self) -> pa.Table:
        """Read all rows. Requests: those of a scan."""
        return self._reader(slow_start=False).read_all()

    def head(self, num_rows: int) -> pa.Table:
        """Read the first rows. Requests: those of :meth:`to_reader` until there are enough."""
        batches: list[pa.RecordBatch] = []
        left = num_rows
        for batch in self.to_batches():
            batches.append(batch.slice(0, left))
            left -= batches[-1].num_rows
            if left <= 0:
                break
        return pa.Table.from_batches(batches, schema=self.projected_schema)

    def take(self, indices: Any, **_: Any) -> pa.Table:
        """Read all rows, and take some of them."""
        return self.to_table().take(indices)

    def count_rows(self) -> int:
        """Count the rows. Requests: metadata alone where that decides; see :meth:`coldparquet.table_scan.Scan.count`."""
        if self.rest is None:
            return background.run(self.scan.count())
        return sum(batch.num_rows for batch in self._reader(slow_start=False))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)  # type: ignore[no-untyped-call]

    def _needed(self) -> list[str]:
        """Return the columns to read: those of the result, and those of a filter that pyarrow applies."""
        schema = self._table.schema
        expressions = [] if self.rest is None else [self.rest]
        if isinstance(self._columns, Mapping):
            expressions += self._columns.values()
            chosen = []
        else:
            chosen = list(self._columns)
        try:
            more = {name for expression in expressions for name in columns_of(read_tree(expression))}
        except UnknownTreeError:
            more = set(schema.names)
        for name in more - set(schema.names):
            raise unknown_column(name, schema.names)
        return list(dict.fromkeys([*chosen, *(name for name in schema.names if name in more)]))

    def _reader(self, *, slow_start: bool) -> pa.RecordBatchReader:
        batches = self._table.batches(self.scan, slow_start=slow_start)
        if (
            self.rest is None
            and not isinstance(self._columns, Mapping)
            and list(self._columns) == self.scan.schema.names
        ):
            return pa.RecordBatchReader.from_batches(self._table.seen(self.scan.schema), batches)
        return self._finished(batches).to_reader()

    def _finished(self, batches: Iterator[pa.RecordBatch]) -> ds.Scanner:
        """Leave the rest to pyarrow."""
        reader = pa.RecordBatchReader.from_batches(self._table.seen(self.scan.schema), batches)
        columns: Any = self._columns
        return ds.Scanner.from_batches(reader, columns=columns, filter=self.rest)


class TableFragment:
    """What DataFusion asks for the parts of a dataset: the whole table is one, because its plan is one."""

    def __init__(self, dataset: TableDataset) -> None:
        self._dataset = dataset
        self.partition_expression = pc.scalar(True)

    @property
    def physical_schema(self) -> pa.Schema:
        """Columns of the table."""
        return self._dataset.schema

    def scanner(self, schema: pa.Schema | None = None, **options: Any) -> TableScanner:
        """Ask a question; see :meth:`TableDataset.scanner`."""
        del schema  # the table's own is the only one
        return self._dataset.scanner(**options)

    def to_batches(self, schema: pa.Schema | None = None, **options: Any) -> Iterator[pa.RecordBatch]:
        """Stream rows."""
        return self.scanner(schema, **options).to_batches()

    def to_table(self, schema: pa.Schema | None = None, **options: Any) -> pa.Table:
        """Read rows."""
        return self.scanner(schema, **options).to_table()

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """Read the first rows."""
        return self._dataset.head(num_rows, **options)

    def take(self, indices: Any, **options: Any) -> pa.Table:
        """Read all rows, and take some."""
        return self._dataset.take(indices, **options)

    def count_rows(self, **options: Any) -> int:
        """Count rows."""
        return self._dataset.count_rows(**options)


class TableDataset(ds.UnionDataset):
    """An open table for everything that reads datasets of pyarrow. Close the table after it.

    Made by :meth:`coldparquet.sync.Table.to_pyarrow_dataset`. Filters and columns are pushed down, and so are
    ``count_rows`` and ``head``. The options of scanners that steer pyarrow's own reading (threads, readahead, fragments)
    are accepted and have no effect; ``batch_size`` has one.
    """

    def __init__(self, table: EngineTable, where: pc.Expression | None = None) -> None:
        format_, disk = ds.ParquetFileFormat(), fs.LocalFileSystem()
        nowhere = format_.make_fragment(
            "a table of coldparquet: call its scanner() and hand that over", filesystem=disk
        )
        super().__init__(table.schema, [ds.FileSystemDataset([nowhere], table.schema, format_, disk)])  # type: ignore[call-arg]
        self._table = table
        self._where = where

    def __repr__(self) -> str:
        return f"<TableDataset of {self._table.table.url}>"

    def __reduce__(self) -> NoReturn:
        raise UnsupportedError(
            f"a dataset of the open table {self._table.table.url} cannot be sent to another process; open the table there, or"
            " send pieces of a scan",
            kind="NotPicklable",
        )

    @property
    def schema(self) -> pa.Schema:
        """Columns of the table."""
        return self._table.schema

    @property
    def partition_expression(self) -> pc.Expression:
        """True: nothing is promised of all rows."""
        return pc.scalar(True)

    def scanner(  # type: ignore[override]
        self,
        columns: Columns = None,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
        batch_size: int | None = None,
        **_: Any,
    ) -> TableScanner:
        """Ask a question. No request yet.

        Args:
            columns: Names, or expressions by the name of their result; None for all.
            filter: Keeps the rows for which it is true.
            batch_size: Most rows in a batch.

        Raises:
            InvalidInputError: A column is unknown, or ``columns`` is neither a list nor a dict.
            UnsupportedError: The filter cannot be evaluated as the engine means it.
        """
        if isinstance(filter, bool | pa.Scalar):  # DataFusion's way to say NULL
            filter = pc.scalar(filter)  # noqa: A001
        both = filter if self._where is None else self._where if filter is None else self._where & filter
        return TableScanner(self._table, columns, both, batch_size)

    def to_batches(self, *arguments: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        """Stream rows; arguments as of :meth:`scanner`."""
        return self.scanner(*arguments, **options).to_batches()

    def to_table(self, *arguments: Any, **options: Any) -> pa.Table:
        """Read rows; arguments as of :meth:`scanner`."""
        return self.scanner(*arguments, **options).to_table()

    def head(self, num_rows: int, *arguments: Any, **options: Any) -> pa.Table:
        """Read the first rows; further arguments as of :meth:`scanner`."""
        return self.scanner(*arguments, **options).head(num_rows)

    def take(self, indices: Any, *arguments: Any, **options: Any) -> pa.Table:
        """Read all rows, and take some; further arguments as of :meth:`scanner`."""
        return self.scanner(*arguments, **options).take(indices)

    def count_rows(self, filter: pc.Expression | None = None, **_: Any) -> int:  # type: ignore[override]  # noqa: A002
        """Count rows, from metadata where that decides."""
        return self.scanner([], filter).count_rows()

    def filter(self, expression: pc.Expression) -> TableDataset:
        """Return the dataset of the rows for which the expression is true."""
        return TableDataset(self._table, expression if self._where is None else self._where & expression)

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[TableFragment]:  # noqa: A002 - pyarrow's name
        """Return the whole as one fragment; the filter belongs to its scanner."""
        del filter
        return iter([TableFragment(self)])

    children: Any = property(_refused)
    sort_by: Any = _refused
    join: Any = _refused
    join_asof: Any = _refused
    replace_schema: Any = _refused

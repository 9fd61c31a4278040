"""Writes tables from Spark: ``df.write.format("coldparquet")``, and :func:`write`, which clusters the rows first.

Tasks write partition directories that readers ignore, each attempt under versions of its own. So a task that fails, or
loses against a speculative copy of itself, changes nothing. The driver then makes `_txn` name the directories of the
successful tasks, in one step, and removes the others; see :mod:`coldparquet.write.table`.

Spark's types map to QuestDB's:

| Spark | column | note |
|---|---|---|
| boolean, tinyint, smallint | BOOLEAN, BYTE, SHORT | QuestDB has no null for them: a null is an error |
| int, bigint, float, double | INT, LONG, FLOAT, DOUBLE | QuestDB treats the smallest int and bigint, and NaN, as null |
| timestamp, timestamp_ntz | TIMESTAMP | microseconds; timestamp_ntz counts as UTC |
| bigint as designated timestamp | TIMESTAMP | microseconds since 1970 |
| date | DATE | |
| string | VARCHAR; SYMBOL with the option ``symbols`` | UUID, IPv4 and CHAR columns take their text, too |
| binary | BINARY | |
| decimal(p,s) | DECIMAL(p,s) | |
| array<double>, array<array<double>> ... | DOUBLE[], DOUBLE[][] ... | a null element becomes NaN |

All others are refused: cast them.

The options of ``df.write.format("coldparquet")``: names, what they take, and what of the library they stand for.

| option | meaning |
|---|---|
| ``path`` (the argument of ``save``) | the table's directory |
| ``timestamp`` | the designated timestamp; needed for a new table |
| ``partition_by`` | ``HOUR``, ``DAY`` (default for a new table), ``WEEK``, ``MONTH`` or ``YEAR`` |
| ``symbols`` | names with commas between them: text columns of a new table that become SYMBOL |
| ``types`` | JSON object: QuestDB types of columns of a new table, where not the usual ones, as in ``{"id": "UUID"}`` |
| ``if_exists`` | ``append`` (default), ``error`` or ``ignore``; with ``mode("append")``, because Spark offers Python sources no other modes than that and ``overwrite`` |
| ``clustered`` | ``true``: all rows of a partition are in one task, so that nothing has to be joined; ``coldparquet.spark.write`` sees to that |
| ``codec``, ``codec_level``, ``row_group_rows``, ``page_rows``, ``pages``, ``bloom_columns`` | those of :class:`coldparquet.write.WriteOptions` |
| ``memory_limit`` | rows that wait to be sorted in each task: 256MiB |
| ``max_attempts``, ``credentials``, ``secret_options``, ``storage_options``, ``storage.KEY`` | as for reading |

Names are the same in letters of any case; an unknown one is refused, those of reading too.
"""

from __future__ import annotations

import json
import logging
import pickle
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql import functions as F  # noqa: N812 - the usual alias
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from coldparquet import __version__
from coldparquet.concurrency import background
from coldparquet.decode.arrow import QUESTDB_TYPE_KEY
from coldparquet.errors import InternalError, InvalidInputError, UnsupportedError
from coldparquet.format.partition_names import PartitionInterval
from coldparquet.options import StoreOptions, parse_byte_count
from coldparquet.spark.arrow_schema import arrow_schema_of
from coldparquet.spark.credentials import Credentials
from coldparquet.spark.errors import own_errors, told_to_spark
from coldparquet.spark.options import (
    CATALOG,
    OPTIONS_OF_EVERY_KIND,
    READER_OPTIONS,
    column_names,
    given_fields,
    one_of,
    table_urls,
    truth,
    whole_number,
)
from coldparquet.write.begin import MEMORY_LIMIT_BYTES, WriteMode, begin_write, check_mode, partitioning_of
from coldparquet.write.options import WriteOptions
from coldparquet.write.stage import StagedPart, stage_rows
from coldparquet.write.table import abort_write, commit_write

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from coldparquet.spark.options import Options
    from coldparquet.write.begin import TableWrite


_IF_EXISTS = tuple(mode for mode in get_args(WriteMode) if mode != "overwrite")
"""``overwrite`` is Spark's own mode."""


def _types(text: str) -> dict[str, str]:
    try:
        types = json.loads(text)
    except ValueError:
        types = None
    if not isinstance(types, dict) or not all(isinstance(type_name, str) for type_name in types.values()):
        raise ValueError('it must be a JSON object such as {"id": "UUID"}')
    return types


WRITER_OPTIONS: Options = {
    **OPTIONS_OF_EVERY_KIND,
    "timestamp": ("writer.timestamp", str),
    "partition_by": ("writer.partition_by", str),
    "symbols": ("writer.symbols", column_names),
    "types": ("writer.types", _types),
    "if_exists": ("writer.mode", one_of(*_IF_EXISTS)),
    "clustered": ("writer.is_clustered", truth),
    "memory_limit": ("writer.memory_limit_bytes", parse_byte_count),
    "codec": ("write.codec", str),
    "codec_level": ("write.codec_level", whole_number),
    "row_group_rows": ("write.row_group_rows", whole_number),
    "page_rows": ("write.page_rows", whole_number),
    "pages": ("write.pages", truth),
    "bloom_columns": ("write.bloom_columns", column_names),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterOptions:
    """What a person asked the writer for."""

    url: str
    write_options: WriteOptions
    store_options: StoreOptions
    credentials: Credentials
    mode: WriteMode = "append"
    timestamp: str | None = None
    partition_by: str | None = None
    symbols: tuple[str, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    is_clustered: bool = False
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES

    @classmethod
    def parse(cls, options: Mapping[str, str], *, overwrite: bool) -> WriterOptions:
        """Understand the options of a write."""
        also = READER_OPTIONS if CATALOG in map(str.lower, options) else frozenset[str]()
        given = given_fields(options, WRITER_OPTIONS, also=also)
        urls, own = table_urls(**given["tables"]), given["writer"]
        if len(urls) != 1:
            raise InvalidInputError(f"{len(urls)} tables are named; rows are written to one", kind="InvalidOption")
        if overwrite:
            own["mode"] = "overwrite"
        if own.get("memory_limit_bytes") == 0:  # means the default, too
            del own["memory_limit_bytes"]
        return cls(
            url=urls[0],
            write_options=WriteOptions(**given["write"]),
            store_options=StoreOptions(**given["store"]),
            credentials=Credentials.parse(options),
            **own,
        )

    def access(self) -> dict[str, Any]:
        """Return how to reach the store, resolved in this process, as the functions of the library take it."""
        return {"storage_options": self.credentials.storage_options(), "store_options": self.store_options}


_LOGGER = logging.getLogger("coldparquet")

_MICROS = {
    "timestamp": "unix_micros({name})",
    "timestamp_ntz": "timestampdiff(MICROSECOND, TIMESTAMP_NTZ'1970-01-01 00:00:00', {name})",
    "bigint": "{name}",
}
"""By Spark type: microseconds since 1970 in UTC, whatever the time zone of the session."""

_DAY = "(greatest({micros}, 0) div 86400000000)"
_PARTITION_OF = {
    PartitionInterval.HOUR: "greatest({micros}, 0) div 3600000000",
    PartitionInterval.DAY: _DAY,
    PartitionInterval.WEEK: f"({_DAY} + 3) div 7",
    PartitionInterval.MONTH: f"trunc(date_from_unix_date(cast({_DAY} as int)), 'MM')",
    PartitionInterval.YEAR: f"trunc(date_from_unix_date(cast({_DAY} as int)), 'YYYY')",
}
"""A value that all rows of a partition share, and no others; weeks begin on Monday, as 1970-01-05."""


@dataclass(frozen=True, slots=True)
class StagedParts(WriterCommitMessage):
    """The parts that a task has written."""

    parts: tuple[StagedPart, ...]


class ColdParquetWriter(DataSourceArrowWriter):
    """Writes the rows of a DataFrame to a table. Made on the driver; it begins the write.

    Args:
        options: As Spark passes them, see :mod:`coldparquet.spark.options`.
        schema: That of the DataFrame.
        overwrite: Whether the partitions of the rows are replaced.

    Raises:
        InvalidInputError: What :func:`coldparquet.write.begin` raises.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._options = WriterOptions.parse(options, overwrite=overwrite)
        self._write: TableWrite | None = background.run(
            begin_write(
                self._options.url,
                _typed(arrow_schema_of(schema), self._options.types),
                timestamp=self._options.timestamp,
                partition_by=self._options.partition_by,
                mode=self._options.mode,
                symbols=self._options.symbols,
                options=self._options.write_options,
                memory_limit_bytes=self._options.memory_limit_bytes,
                **self._options.access(),
            )
        )

    def __getstate__(self) -> dict[str, Any]:
        return {"release": __version__, "pickled": cloudpickle.dumps(self.__dict__)}  # type: ignore[no-untyped-call]

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Restore the driver's writer on an executor; another release refuses its objects."""
        with told_to_spark():
            check_release(state["release"])
        self.__dict__.update(pickle.loads(state["pickled"]))  # noqa: S301 - from this library's driver, through Spark

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedParts:  # type: ignore[override]
        """Write the rows of one task, on an executor."""
        if self._write is None:
            return StagedParts(())
        task = TaskContext.get()
        with told_to_spark():
            staged = background.run(
                stage_rows(
                    self._write,
                    iterator,
                    # Outside of Spark, in tests, attempts have no numbers.
                    attempt=secrets.randbelow(1 << 16) if task is None else task.taskAttemptId(),
                    clustered=self._options.is_clustered,
                    **self._options.access(),
                )
            )
        return StagedParts(staged)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the rows of all tasks visible to readers, on the driver."""
        if self._write is None:
            return
        with told_to_spark():
            parts = [part for message in messages for part in _parts_of(message)]
            written = background.run(commit_write(self._write, parts, **self._options.access()))
        if written.not_removed is not None:
            _LOGGER.warning(
                "%s: the rows are written, but something that nobody sees is left in the directory: %s",
                written.url,
                written.not_removed,
            )
        if written.catalogue is not None and written.catalogue.action == "failed":
            _LOGGER.warning(
                "%s: the rows are written, but not what describes them for readers: %s",
                written.url,
                written.catalogue.reason,
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - failed tasks have sent none
        """Remove what tasks have written, on the driver. Later writes of a running task never become visible."""
        if self._write is not None:
            with told_to_spark():
                background.run(abort_write(self._write, **self._options.access()))


def _parts_of(message: WriterCommitMessage | None) -> tuple[StagedPart, ...]:
    if not isinstance(message, StagedParts):
        raise InternalError(
            f"a task of the write tells {message!r} instead of what it has written; nothing is committed: write again",
            kind="ForeignMessage",
        )
    return message.parts


def write(  # noqa: PLR0913 - mostly keyword arguments
    df: DataFrame,
    url: str,
    *,
    timestamp: str | None = None,
    partition_by: str | None = None,
    mode: WriteMode = "error",
    symbols: Collection[str] = (),
    tasks: int | None = None,
    options: Mapping[str, str] | None = None,
) -> None:
    """Write a DataFrame to a table, with all rows of a partition in one task.

    Use it for rows that are not yet clustered by time. With ``df.write`` every task writes a part of each partition
    that it has rows of, and the driver joins them.

    Args:
        df: The rows, in any order.
        url: The table's directory.
        timestamp: The designated timestamp; None uses that of the table.
        partition_by: ``HOUR``, ``DAY``, ``WEEK``, ``MONTH`` or ``YEAR``; None uses that of the table, ``DAY`` for a new
            one.
        mode: What to do if the table exists: ``"error"``, ``"append"``, ``"overwrite"`` (only the partitions of these
            rows) or ``"ignore"``.
        symbols: Text columns of a new table that become SYMBOL.
        tasks: How many tasks write; None leaves it to Spark.
        options: More options of :mod:`coldparquet.spark.options`, credentials among them.

    Raises:
        ColdParquetError: From the driver and from the tasks: the options are wrong, a new table has no timestamp, a row
            has none, the store refuses.
        Exception: Any other error of Spark.
    """
    check_mode(mode)
    asked = {
        **(options or {}),
        **({"timestamp": timestamp} if timestamp else {}),
        **({"partition_by": partition_by} if partition_by else {}),
        **({"symbols": ",".join(symbols)} if symbols else {}),
        **({"if_exists": mode} if mode != "overwrite" else {}),
        "clustered": "true",
    }
    parsed = WriterOptions.parse({**asked, "path": url}, overwrite=mode == "overwrite")
    name, interval = background.run(
        partitioning_of(url, timestamp=timestamp, partition_by=partition_by, **parsed.access())
    )
    partition = F.expr(partition_expression(df.schema, name, interval))
    clustered = df.repartition(partition) if tasks is None else df.repartition(tasks, partition)
    spark_mode = "overwrite" if mode == "overwrite" else "append"
    with own_errors():
        clustered.write.format("coldparquet").options(**asked).mode(spark_mode).save(url)


def partition_expression(schema: StructType, timestamp: str, interval: PartitionInterval) -> str:
    """Return Spark SQL with one value for each partition."""
    if timestamp not in schema.names:
        raise InvalidInputError(
            f"there is no column {timestamp!r} to be the designated timestamp; there are {', '.join(schema.names)}",
            kind="UnknownColumn",
            field=timestamp,
        )
    type_name = schema[timestamp].dataType.simpleString()
    if type_name not in _MICROS:
        raise InvalidInputError(
            f"column {timestamp!r} is {type_name}; the designated timestamp is a timestamp, or a bigint that counts"
            " microseconds since 1970, so cast it",
            kind="NotATimestamp",
            field=timestamp,
        )
    quoted = timestamp.replace("`", "``")
    return _PARTITION_OF[interval].format(micros=_MICROS[type_name].format(name=f"`{quoted}`"))


def check_release(sent_by: str) -> None:
    """Check that the driver runs the same release of the library."""
    if sent_by != __version__:
        raise UnsupportedError(
            f"the driver writes with coldparquet {sent_by}, and this is coldparquet {__version__}; install the same"
            " release on the driver and on all executors",
            kind="OtherRelease",
            written_by=sent_by,
            read_by=__version__,
        )


def _typed(schema: pa.Schema, types: Mapping[str, str]) -> pa.Schema:
    """Attach the QuestDB types of columns, as the library takes them."""
    unknown: Sequence[str] = sorted(set(types) - set(schema.names))
    if unknown:
        raise InvalidInputError(
            f"the option types names a column {unknown[0]!r}; there are {', '.join(schema.names)}",
            kind="UnknownColumn",
            field=unknown[0],
        )
    fields = []
    for column in schema:
        metadata: Any = {QUESTDB_TYPE_KEY: types[column.name].encode()} if column.name in types else None
        fields.append(pa.field(column.name, column.type, metadata=metadata))
    return pa.schema(fields)

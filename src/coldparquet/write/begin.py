"""Begins a write to a table: checks that it is possible, and chooses its columns and partition versions."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, Unpack, get_args

from coldparquet.catalog.cold_storage import refuse_place_of_others
from coldparquet.catalog.discovery import PUBLISHING_FILE
from coldparquet.catalog.table_files import DATA_FILE, TRANSACTION_FILE, read_table_files
from coldparquet.errors import InvalidInputError, NotFoundError, ObjectChangedError
from coldparquet.format.partition_names import PartitionInterval, parse_partition_directory, recorded_directory_name
from coldparquet.format.table_metadata import encode_table_metadata, parse_table_metadata
from coldparquet.format.txn import encode_txn
from coldparquet.format.type_codes import TypeTag
from coldparquet.records import replace
from coldparquet.storage.urls import shown_url
from coldparquet.text import few_names
from coldparquet.write.columns import (
    check_same_columns,
    columns_of_schema,
    new_table_metadata,
    row_schema_of,
    timestamp_name,
)
from coldparquet.write.files import no_server_at, open_place
from coldparquet.write.options import WriteOptions
from coldparquet.write.parquet import check_options
from coldparquet.write.versions import (
    VersionRange,
    check_nothing_unfinished,
    claim_versions,
    claims,
    remove_dead_writes,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    import pyarrow as pa

    from coldparquet.catalog.table_files import TableFiles
    from coldparquet.format.table_metadata import TableMetadata
    from coldparquet.format.txn import TableTransaction
    from coldparquet.write.files import StoreAccess, TablePlace


WriteMode: TypeAlias = Literal["error", "append", "overwrite", "ignore"]

MEMORY_LIMIT_BYTES = 256 * 1024 * 1024
"""Rows held in memory for sorting; more are spooled to the local disk."""

_DEAD_AFTER_S = 24 * 3600
"""A write older than a day that has not made its table counts as dead for the next one, as compactions do."""

_INTERVALS = tuple(interval.name for interval in PartitionInterval if interval is not PartitionInterval.NONE)
_DEFAULT_INTERVAL = "DAY"
_LARGEST_TABLE_ID = (1 << 31) - 1
_LARGEST_FIRST_VERSION = 1 << 30
"""Of a table's metadata: QuestDB counts on from there, in 32 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShape:
    """The columns of a table's rows, and its partitioning."""

    schema: pa.Schema
    timestamp: str
    """Name of the designated timestamp."""
    interval: PartitionInterval
    is_nanosecond: bool
    """Whether the designated timestamp counts nanoseconds, not microseconds."""

    def directory_name(self, timestamp: int, version: int) -> str:
        """Return the name of a version of the partition that begins at a timestamp."""
        return recorded_directory_name(timestamp, self.interval, name_txn=version, is_nanosecond=self.is_nanosecond)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWrite:
    """A write that has begun: plain data, sent to each of its tasks. It holds no credentials."""

    url: str
    mode: Literal["append", "overwrite"]
    """Whether the rows of an existing partition stay, or are replaced by the new ones."""
    metadata: bytes
    """The table's `_meta`, or that of the new table."""
    state: str | None
    """Fingerprint of the `_txn` that the write started from; None for a new table."""
    versions: VersionRange
    """Versions of the partitions that it writes."""
    options: WriteOptions
    memory_limit_bytes: int

    @property
    def is_new_table(self) -> bool:
        """Whether the table did not exist when the write began."""
        return self.state is None

    def shape(self) -> TableShape:
        """Return columns and partitioning of the table."""
        return shape_of(parse_table_metadata(self.metadata, path=None))

    def check_state(self, transaction: TableTransaction, path: str) -> None:
        """Check that the table has not changed since the write began.

        Raises:
            ObjectChangedError: It has changed (kind ``CommitConflict``).
        """
        if fingerprint(transaction) != self.state:
            raise write_conflict(path)


async def begin_write(  # noqa: PLR0913 - mostly keyword arguments
    url: str | os.PathLike[str],
    schema: pa.Schema,
    *,
    timestamp: str | None = None,
    partition_by: str | None = None,
    mode: WriteMode = "error",
    symbols: Collection[str] = (),
    options: WriteOptions | None = None,
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    **access: Unpack[StoreAccess],
) -> TableWrite | None:
    """Begin a write whose tasks may run anywhere; :func:`~coldparquet.write.table.write_table` does all in one call.

    End the write with ``commit_write`` or ``abort_write``.

    Requests: 2 that read table files, 1 or 2 more, and the 3 of :func:`~coldparquet.write.versions.claim_versions`. If
    a first write of the table was killed, also those of :func:`~coldparquet.write.versions.remove_dead_writes`.

    ``schema`` has the columns of the rows; ``memory_limit_bytes`` counts in each task. Other arguments are those of
    ``write_table``, and so are errors, except those that depend on the rows.

    Returns:
        What tasks need; None where the table exists and the mode is ``"ignore"``.
    """
    url, options = os.fspath(url), options or WriteOptions()
    check_mode(mode)
    async with open_place(url, **access) as place:
        files = await read_table_files(place.store, place.path)
        has_left_overs = False
        if files is None:
            has_left_overs = await _check_is_free(place)
            metadata = _new_metadata(schema, timestamp, partition_by, symbols)
        else:
            if mode == "ignore":
                return None
            await _check_existing(files, place, mode, timestamp, partition_by, symbols)
            metadata = files.metadata
        shape = shape_of(metadata)
        check_same_columns(shape.schema, schema, path=shown_url(url))
        check_options(columns_of_schema(shape.schema, timestamp=shape.timestamp), options)
        encoded = encode_table_metadata(metadata)  # refuses invalid column names
        versions = await claim_versions(place.store, place.path, txn=None if files is None else files.transaction.txn)
        if has_left_overs:
            await remove_dead_writes(place.store, place.path, before_s=time.time() - _DEAD_AFTER_S)
    return TableWrite(
        url=url,
        mode="overwrite" if mode == "overwrite" else "append",
        metadata=encoded,
        state=None if files is None else fingerprint(files.transaction),
        versions=versions,
        options=_picklable(options),
        memory_limit_bytes=memory_limit_bytes,
    )


def check_mode(mode: str) -> None:
    """Refuse an unknown mode."""
    if mode not in get_args(WriteMode):
        raise InvalidInputError(f"mode is {mode!r}; use one of {', '.join(get_args(WriteMode))}", kind="InvalidOption")


async def partitioning_of(
    url: str | os.PathLike[str],
    *,
    timestamp: str | None = None,
    partition_by: str | None = None,
    **access: Unpack[StoreAccess],
) -> tuple[str, PartitionInterval]:
    """Return the column and interval by which to distribute rows to tasks before the write. 2 requests."""
    async with open_place(os.fspath(url), **access) as place:
        files = await read_table_files(place.store, place.path)
    if files is not None:
        shape = shape_of(files.metadata)
        return shape.timestamp, shape.interval
    return _new_partitioning(timestamp, partition_by)


def shape_of(metadata: TableMetadata) -> TableShape:
    """Return columns and partitioning of a table."""
    if metadata.interval is PartitionInterval.NONE:
        raise InvalidInputError(
            "the table is not partitioned by time, and only partitions can be in Parquet; make a table with PARTITION BY",
            kind="NotPartitioned",
        )
    return TableShape(
        schema=row_schema_of(metadata),
        timestamp=timestamp_name(metadata),
        interval=metadata.interval,
        is_nanosecond=metadata.is_nanosecond,
    )


def fingerprint(transaction: TableTransaction) -> str:
    """Return a fingerprint that differs between all states of a table."""
    return hashlib.sha256(encode_txn(transaction)).hexdigest()


def write_conflict(path: str) -> ObjectChangedError:
    """Make the error for a writer that lost to another one."""
    return ObjectChangedError(
        "somebody else has committed to this table since the write began; nothing of this write is visible. Write once more",
        kind="CommitConflict",
        path=f"{path}/{TRANSACTION_FILE}",
    )


async def _check_is_free(place: TablePlace) -> bool:
    """Check that the directory holds nothing but what other first writes have begun. 2 requests."""
    try:
        listing = await place.store.list(place.path)
    except NotFoundError:
        await refuse_place_of_others(place.store, place.path, (), ())
        return False
    left_over = claims(listing)
    names = {info.path.rpartition("/")[2] for info in listing.objects}
    directories = (parse_partition_directory(path.rpartition("/")[2]) for path in listing.directories)
    has_partitions = any(
        found is not None and not any(found.name_txn in claim for claim in left_over) for found in directories
    )
    if has_partitions or names & {DATA_FILE, PUBLISHING_FILE}:
        raise InvalidInputError(
            f"there are partitions already, but no {TRANSACTION_FILE} that says which belong to the table; write to an empty"
            " directory",
            kind="NotEmpty",
            path=place.path,
        )
    found = [directory.rpartition("/")[2] for directory in listing.directories]
    await refuse_place_of_others(place.store, place.path, found, names)
    return bool(left_over)


async def _check_existing(  # noqa: PLR0913, PLR0917 - those of begin_write
    files: TableFiles,
    place: TablePlace,
    mode: WriteMode,
    timestamp: str | None,
    partition_by: str | None,
    symbols: Collection[str],
) -> None:
    """Check that rows can be added to the existing table. 1 request."""
    if mode == "error":
        raise InvalidInputError(
            "the table exists already; use mode 'append' to add rows, 'overwrite' to replace the partitions that the rows"
            " belong to, or 'ignore'",
            kind="AlreadyExists",
            path=place.path,
        )
    metadata = files.metadata
    for name, asked, found in (
        ("timestamp", timestamp, timestamp_name(metadata)),
        ("partition_by", None if partition_by is None else partition_by.upper(), metadata.interval.name),
    ):
        if asked not in {None, found}:
            raise InvalidInputError(
                f"{name} is {asked!r}, but that of the table is {found!r}; leave it out",
                kind="OtherTable",
                path=place.path,
            )
    tags = {column.name: column.type_code & 0xFF for column in metadata.columns}
    if others := sorted(name for name in symbols if tags.get(name) != TypeTag.SYMBOL):
        raise InvalidInputError(
            f"symbols names {few_names(others)}, which is no SYMBOL of the table; leave it out",
            kind="OtherTable",
            path=place.path,
        )
    with no_server_at(place.store, place.path):
        await check_nothing_unfinished(place.store, place.path)


def _new_metadata(
    schema: pa.Schema, timestamp: str | None, partition_by: str | None, symbols: Collection[str]
) -> TableMetadata:
    name, interval = _new_partitioning(timestamp, partition_by)
    return new_table_metadata(
        schema,
        timestamp=name,
        interval=interval,
        symbols=symbols,
        table_id=1 + secrets.randbelow(_LARGEST_TABLE_ID),
        # Random, so that two writers that make the same table use different numbers.
        metadata_version=secrets.randbelow(_LARGEST_FIRST_VERSION),
    )


def _new_partitioning(timestamp: str | None, partition_by: str | None) -> tuple[str, PartitionInterval]:
    if timestamp is None:
        raise InvalidInputError(
            "a new table needs to know by which column it is ordered and partitioned; name it: timestamp='ts' in Python,"
            ' .option("timestamp", "ts") in Spark, --timestamp ts on the command line',
            kind="NoTimestamp",
        )
    name = (partition_by or _DEFAULT_INTERVAL).upper()
    if name not in _INTERVALS:
        raise InvalidInputError(
            f"partition_by is {partition_by!r}; use one of {', '.join(_INTERVALS)}", kind="InvalidOption"
        )
    return timestamp, PartitionInterval[name]


def _picklable(options: WriteOptions) -> WriteOptions:
    """Return the same options without read-only views of dictionaries, which cannot be pickled."""
    return replace(options, column_codecs=dict(options.column_codecs), column_encodings=dict(options.column_encodings))

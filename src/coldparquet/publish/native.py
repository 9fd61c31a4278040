"""Converts partitions in QuestDB's native format to Parquet for publishing, unless they are unchanged."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from coldparquet.catalog.snapshot import SnapshotReader
from coldparquet.catalog.table_files import DATA_FILE, SIDECAR_FILE, read_table_files
from coldparquet.concurrency import TableThreads, run_to_end, wait_in_thread
from coldparquet.errors import NotFoundError, ObjectChangedError, UnsupportedError
from coldparquet.format.native import ABSENT_TOP
from coldparquet.format.partition_names import UNVERSIONED
from coldparquet.options import ReadOptions
from coldparquet.plan.model import StoreSpeed
from coldparquet.publish.source import PartitionContent, is_parquet, record_of, source_changed
from coldparquet.records import replace
from coldparquet.scan.missing import MISSING_COLUMN_FILE, MISSING_FOR_QUESTDB
from coldparquet.scan.model import Question
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.local import LocalStore
from coldparquet.table_scan import Scan
from coldparquet.write.columns import row_schema_of, timestamp_name
from coldparquet.write.files import LocalFiles
from coldparquet.write.options import WriteOptions
from coldparquet.write.partition import encode_partition, rows_to_store
from coldparquet.write.rewrite import TableSymbols
from coldparquet.write.upload import StoreSource

if TYPE_CHECKING:
    import threading
    from collections.abc import AsyncIterator, Iterator, Mapping

    from coldparquet.catalog.partition import Partition
    from coldparquet.catalog.snapshot import TableSnapshot
    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.publish.source import SourceTable
    from coldparquet.scan.stream import BatchStream
    from coldparquet.write.partition import WrittenPartition


_LEAST_ROWS = 100
"""A smaller row group costs more in the footer than it saves in memory."""
_WITHOUT_IT = "--native leave (native='leave') publishes the table without this partition"


class NativeConverter:
    """Writes native partitions of one state of a table as Parquet, one after the other, into temporary files.

    Memory holds the rows that are read and not yet written, and those of one row group. Each stays within the limit if
    the rows are about equally long. The files of a partition stay on the local disk until it is uploaded.

    Args:
        source: The state.
        memory_limit_bytes: Limit for rows that are read.
    """

    def __init__(self, source: SourceTable, *, memory_limit_bytes: int) -> None:
        self._source = source
        self._options = ReadOptions(symbols="string", strings="string", memory_limit_bytes=memory_limit_bytes)
        self._symbols = TableSymbols(CheckedStore(source.store), source.path, source.files)
        self._threads = TableThreads(None)
        self._one_at_a_time = asyncio.Lock()

    @cached_property
    def _snapshot(self) -> TableSnapshot:
        source = self._source
        origin = SnapshotReader(store=source.store, path=source.path, options=self._options, use_catalogue=False)
        return origin.state_of(source.discovery, source.files)

    @cached_property
    def _partitions(self) -> dict[str, Partition]:
        """By their directories: there may be thousands of lookups."""
        return {partition.directory_path: partition for partition in self._snapshot.partitions}

    def close(self) -> None:
        """Stop the threads."""
        self._threads.close()

    async def native_bytes(self, location: PartitionLocation) -> int:
        """Return the size of the column files of a partition's rows. Requests: those of planning a scan."""
        async with self._told_as_publishing(location):
            return (await self._scan(location).plan()).bytes_fetched

    @asynccontextmanager
    async def converted(self, location: PartitionLocation) -> AsyncIterator[PartitionContent]:
        """Write a partition as Parquet, and remove the files at the end of the block.

        Requests at the source: those of a scan of all rows, and 2 for each SYMBOL column of the table the first time.
        """
        with tempfile.TemporaryDirectory(prefix="coldparquet-") as directory:
            async with self._one_at_a_time, self._told_as_publishing(location):
                written, native_bytes = await self._write(location, directory)
            first, last = written.first_timestamp, written.last_timestamp
            sidecar = await asyncio.to_thread(Path(directory, SIDECAR_FILE).read_bytes)
            data = StoreSource(
                CheckedStore(LocalStore()), f"{directory}/{DATA_FILE}", size_bytes=written.parquet_size_bytes
            )
            yield PartitionContent(
                data=data,
                sidecar=sidecar,
                pages=None,
                time_bounds=None if first is None or last is None else (first, last),
                native_bytes=native_bytes,
            )

    async def _write(self, location: PartitionLocation, directory: str) -> tuple[WrittenPartition, int]:
        metadata = self._source.metadata
        schema = row_schema_of(metadata)
        symbols = await self._known_symbols()
        async with self._scan(location).batches() as stream:
            loop = asyncio.get_running_loop()

            native_bytes = max(stream.plan.bytes_fetched, 1)
            fitting_rows = self._options.memory_limit_bytes * record_of(location).row_count // native_bytes
            options = WriteOptions()
            options = replace(options, row_group_rows=max(_LEAST_ROWS, min(options.row_group_rows, fitting_rows)))

            def encode(give_up: threading.Event) -> WrittenPartition:
                batches = _rows(stream, schema, loop, give_up)
                rows = rows_to_store(batches, timestamp=timestamp_name(metadata), symbols=symbols, options=options)
                return encode_partition(directory, rows, options=options, files=LocalFiles(), give_up=give_up)

            return await run_to_end(encode), native_bytes

    async def _known_symbols(self) -> dict[str, pa.StringArray]:
        """Return the symbols of each column by their keys; only QuestDB needs them to read the file."""
        known = {}
        for column in self._source.metadata.columns:
            if column.symbol_index is None:
                continue
            try:
                symbols = await self._symbols.of(column.writer_index)
            except UnsupportedError:  # two symbols are equal in UTF-8, so the text does not determine the key
                continue
            if symbols is not None:
                known[column.name] = symbols
        return known

    @asynccontextmanager
    async def _told_as_publishing(self, location: PartitionLocation) -> AsyncIterator[None]:
        """Add advice for publishers to read errors. For a missing file: the table files are read again."""
        try:
            yield
        except UnsupportedError as error:
            raise UnsupportedError(
                f"this native partition cannot be converted: {error.message}; {_WITHOUT_IT}",
                kind=error.kind,
                path=location.directory_path,
            ) from error
        except (NotFoundError, ObjectChangedError) as error:
            if error.kind == "MissingSymbolFile":
                raise
            if error.kind == MISSING_COLUMN_FILE and await self._is_still_named(location):
                raise NotFoundError(
                    "the table's _txn and _cv name this column file of a native partition, but it is not there, so that publishing"
                    f" again does not help: {MISSING_FOR_QUESTDB}; {_WITHOUT_IT}",
                    kind=MISSING_COLUMN_FILE,
                    path=error.path,
                ) from error
            raise source_changed(location.directory_path) from error

    async def _is_still_named(self, location: PartitionLocation) -> bool:
        """Tell whether the table's record of a partition is unchanged."""
        before = self._source.files
        now = await read_table_files(self._source.store, self._source.path, column_versions_for="anything")
        if now is None or not now.continues(before):
            return False
        versions = [(files.metadata.metadata_version, files.transaction.column_version) for files in (before, now)]
        records = map(now.records.record, range(len(now.records)))
        return versions[0] == versions[1] and record_of(location) in records

    def _scan(self, location: PartitionLocation) -> Scan:
        snapshot = self._snapshot
        question = Question(
            url=location.directory_path,
            options=self._options,
            speed=StoreSpeed(connections=self._options.max_concurrency),
            snapshot=replace(snapshot, partitions=(self._partitions[location.directory_path],)),
            output_columns=snapshot.columns,
            predicate_text=None,
            predicate=None,
            predicate_columns=(),
            limit=None,
        )
        return Scan(question=question, executor=self._threads, schema=row_schema_of(self._source.metadata))


def _rows(
    stream: BatchStream, schema: pa.Schema, loop: asyncio.AbstractEventLoop, give_up: threading.Event
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a stream from another thread than its event loop's, as columns of the table."""
    while (batch := wait_in_thread(stream.next_batch(), loop, give_up)) is not None:
        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


_UNCHANGED_COLUMN = (UNVERSIONED, 0)
"""Name txn and top of a column that no UPDATE has touched, in a partition that began with it."""

_NUMBERS = ("name_txn", "row_count", "squash_count", "seq_txn", "truncate_version")


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeState:
    """What a table's files record of a native partition. As long as the record is equal, the rows are."""

    name_txn: int
    row_count: int
    squash_count: int
    seq_txn: int
    truncate_version: int
    columns: Mapping[int, tuple[int, int]]
    """Name txn and top of the columns that have values in it, by writer index; an absent column has
    ``_UNCHANGED_COLUMN``."""

    def has_same_rows(self, now: NativeState) -> bool:
        """Tell whether a file that was made from this state has the rows of a later one.

        Columns that were dropped since do not matter: the file has them, but no reader uses them.
        """
        return replace(self, columns={}) == replace(now, columns={}) and all(
            self.columns.get(writer_index, _UNCHANGED_COLUMN) == version
            for writer_index, version in now.columns.items()
        )

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> NativeState:
        """Parse the result of :meth:`as_json`."""
        numbers = {name: int(document[name]) for name in _NUMBERS}
        columns = {int(index): (int(name_txn), int(top)) for index, (name_txn, top) in document["columns"].items()}
        return cls(**numbers, columns=columns)

    def as_json(self) -> dict[str, Any]:
        """Return a document for ``json.dumps``, without default values."""
        changed = {str(index): list(version) for index, version in self.columns.items() if version != _UNCHANGED_COLUMN}
        return {**{name: getattr(self, name) for name in _NUMBERS}, "columns": changed}


def native_states(source: SourceTable) -> dict[int, NativeState]:
    """Return the states of the native partitions of the source by their timestamps."""
    records = [record_of(location) for location in source.locations if not is_parquet(location)]
    columns: list[dict[int, tuple[int, int]]] = [{} for _ in records]
    timestamps = np.array([record.timestamp for record in records], np.int64)
    for column in source.metadata.columns:
        name_txns, tops = source.column_versions.columns(timestamps, column.writer_index)
        for record, known, name_txn, top in zip(records, columns, name_txns.tolist(), tops.tolist(), strict=True):
            if ABSENT_TOP < top < record.row_count:
                known[column.writer_index] = (name_txn, top)
    return {
        record.timestamp: NativeState(
            name_txn=record.name_txn,
            row_count=record.row_count,
            squash_count=record.squash_count,
            seq_txn=record.native_seq_txn,
            truncate_version=source.transaction.truncate_version,
            columns=known,
        )
        for record, known in zip(records, columns, strict=True)
    }

"""Rewrites the rows of a partition: from rows as they are stored to a new ``data.parquet`` and ``_pm``."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldparquet.catalog.caches import NO_CACHES
from coldparquet.catalog.catalogue import Catalogue
from coldparquet.catalog.objects import DataObjects, ListedObjects
from coldparquet.catalog.packed import CatalogueFile
from coldparquet.catalog.pages import PageFiles
from coldparquet.catalog.partition import Partition, PartitionMetadata, look_up_sidecar
from coldparquet.catalog.snapshot import TableSnapshot
from coldparquet.catalog.symbol_dictionaries import SymbolDictionaries
from coldparquet.concurrency import wait_in_thread
from coldparquet.decode.arrow import PLAIN_TEXT, arrow_field, strings_to_arrow
from coldparquet.errors import FormatError, InvalidInputError, UnsupportedError
from coldparquet.format.fetch import FooterFetch
from coldparquet.format.parquet_footer import (
    DERIVED_CODES,
    encode_questdb_json,
    parse_footer,
    parse_questdb_json,
)
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer, values_as_stored
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.format.type_codes import TypeTag, is_decimal
from coldparquet.plan.columns import table_columns
from coldparquet.plan.model import StoreSpeed
from coldparquet.records import replace
from coldparquet.scan.model import Question
from coldparquet.storage.requests import RangeRequest
from coldparquet.table_scan import Scan
from coldparquet.write.columns import column_of_file
from coldparquet.write.files import LocalFiles
from coldparquet.write.footer_edit import FooterBytes
from coldparquet.write.parquet import stored_table
from coldparquet.write.partition import KeptMetadata, StoredRows, encode_partition, place_partition
from coldparquet.write.rows import split_rows
from coldparquet.write.upload import MemoryBudget

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Executor

    import numpy.typing as npt

    from coldparquet.catalog.table_files import PartitionLocation, TableFiles
    from coldparquet.format.parquet_footer import ParquetFooter, QuestdbMetadata
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.format.sidecar_writer import SidecarContent
    from coldparquet.options import ReadOptions
    from coldparquet.scan.stream import BatchStream
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.checked import CheckedStore
    from coldparquet.write.columns import ColumnStorage
    from coldparquet.write.options import WriteOptions
    from coldparquet.write.partition import CarriedFile, WrittenPartition


async def rewrite_partition(  # noqa: PLR0913 - mostly keyword arguments
    path: str,
    source: RewriteSource,
    scan: Scan,
    *,
    store: ObjectStore,
    files: LocalFiles | None,
    options: WriteOptions,
    carried: Sequence[CarriedFile],
    memory_limit_bytes: int,
    on_rows: Callable[[int], None],
) -> WrittenPartition:
    """Write all rows of a scan as they are stored, of :func:`scan_as_stored`, into a new directory.

    Memory holds the rows in the stream, and those of one old and one new row group. Without ``files`` the directory is on
    an object store. ``on_rows`` is called in the event loop with the number of rows of each written row group.

    Requests: those of the scan, and of :func:`~coldparquet.write.partition.place_partition`.
    """
    loop = asyncio.get_running_loop()
    on_disk = files or LocalFiles()
    async with scan.batches() as stream:

        def row_groups(give_up: threading.Event) -> Iterator[pa.Table]:
            for group in split_rows(
                scan.schema, _batches(stream, loop, give_up), row_group_rows=options.row_group_rows
            ):
                yield _stored(group, source.columns)
                loop.call_soon_threadsafe(on_rows, group.num_rows)

        def encode(directory: str, give_up: threading.Event) -> WrittenPartition:
            rows = StoredRows(
                columns=source.columns,
                timestamp=source.kept.sidecar.designated_timestamp,
                row_groups=row_groups(give_up),
                kept=source.kept,
            )
            return encode_partition(directory, rows, options=options, files=on_disk, give_up=give_up)

        return await place_partition(
            path,
            encode,
            store=store if files is None else None,
            files=on_disk,
            check_is_free=partial(_check_is_free, path),
            carried=carried,
            memory=MemoryBudget(memory_limit_bytes),
        )


def _batches(
    stream: BatchStream, loop: asyncio.AbstractEventLoop, give_up: threading.Event
) -> Iterator[pa.RecordBatch]:
    while (rows := wait_in_thread(stream.next_row_group(), loop, give_up)) is not None:
        yield from rows.to_batches()


def _stored(rows: pa.Table, columns: Sequence[ColumnStorage]) -> pa.Table:
    """Convert rows for the Parquet writer; arrays are already encoded as byte strings."""
    is_raw = [
        column.tag is TypeTag.ARRAY and pa.types.is_binary(rows.schema.field(column.name).type) for column in columns
    ]
    converted = stored_table(rows, [column for column, raw in zip(columns, is_raw, strict=True) if not raw])
    arrays = [
        rows.column(column.name).combine_chunks() if raw else converted.column(column.name)
        for column, raw in zip(columns, is_raw, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema([column.arrow_field() for column in columns]))


def _check_is_free(path: str) -> None:
    if os.path.lexists(path):
        raise InvalidInputError(
            "there is something already: another compaction may be at work; run it again",
            kind="AlreadyExists",
            path=path,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFooter:
    """The footer of a Parquet partition at its committed size."""

    location: PartitionLocation
    stored: FooterBytes
    parsed: ParquetFooter
    questdb: QuestdbMetadata | None
    """QuestDB's metadata of the columns; None in files of other writers."""

    @property
    def unused_bytes(self) -> int:
        """Dead bytes in the file, as its writer recorded them."""
        return 0 if self.questdb is None else self.questdb.unused_bytes

    @property
    def row_counts(self) -> npt.NDArray[np.int64]:
        """Rows of each row group, shape ``(row_groups,)``."""
        counts = (row_group.row_count for row_group in self.parsed.row_groups)
        return np.fromiter(counts, np.int64, len(self.parsed.row_groups))


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteSource:
    """Everything but the rows that a partition's new files take from its old ones."""

    location: PartitionLocation
    kept: KeptMetadata
    columns: tuple[ColumnStorage, ...]
    """How all columns of the file are stored, including those that the table has since dropped."""
    bloom_columns: tuple[str, ...]
    """Columns that have bloom filters."""


async def read_footer(store: ObjectStore, location: PartitionLocation, options: ReadOptions) -> PartitionFooter:
    """Read the footer of a partition at its committed size. 1 request, 2 where the first guess is too short."""
    path = location.data_path
    fetch = FooterFetch(path=path, suffix_bytes=options.footer_suffix_bytes, size_bytes=location.committed_size_bytes)
    while (wanted := fetch.next_range) is not None:
        answer = await store.get(
            RangeRequest(
                path=path,
                byte_range=wanted,
                reason="Parquet footer",
                may_be_short=location.committed_size_bytes is None,
                may_grow=location.may_grow,
            )
        )
        fetch.receive(answer.data, start=answer.start, object_size_bytes=answer.object_size_bytes)
    stored = FooterBytes(content=fetch.footer, offset=fetch.footer_offset, path=path)
    footer = await asyncio.to_thread(_parsed, location, stored)
    record, found_rows = location.record, footer.parsed.row_count
    if record is not None and record.row_count != found_rows:
        raise FormatError(
            f"the footer counts {found_rows:,} rows, but the table's _txn {record.row_count:,}; run 'coldparquet verify'",
            kind="RowCountMismatch",
            path=path,
            field="row_count",
        )
    return footer


async def read_rewrite_source(
    store: ObjectStore, footer: PartitionFooter, options: ReadOptions, symbols: TableSymbols
) -> RewriteSource:
    """Collect what the new files of a partition take over. 1 or 2 requests for the sidecar, and those for symbols."""
    location, questdb = footer.location, footer.questdb
    inherited = await asyncio.to_thread(sidecar_content_from_footer, footer.parsed)
    lookup = await look_up_sidecar(store, location, options)
    if lookup.sidecar is not None:
        inherited = _with_tokens_of(lookup.sidecar, inherited)
    sidecar = await asyncio.to_thread(_sidecar, inherited, location)
    _check_order(sidecar)
    columns = []
    for index in range(sidecar.column_count):
        column = _stored_column(sidecar, footer, index)
        is_global = sidecar.column(index).local_key_is_global
        if column.tag is TypeTag.SYMBOL and is_global and column.id is not None:
            column = replace(column, symbols=await symbols.of(column.id))
        columns.append(column)
    if questdb is not None:
        questdb = replace(
            questdb,
            # Keys without a symbol file, those of a dropped column, no longer have a meaning.
            columns=tuple(
                replace(described, local_key_is_global=column.symbols is not None)
                for described, column in zip(questdb.columns, columns, strict=True)
            ),
            unused_bytes=0,
            squash_tracker=inherited.squash_tracker,
            seq_txn=inherited.seq_txn,
        )
    with_bloom = {
        index
        for row_group in footer.parsed.row_groups
        for index, chunk in enumerate(row_group.chunks)
        if chunk.bloom_filter_offset is not None
    }
    return RewriteSource(
        location=location,
        kept=KeptMetadata(
            footer=footer.stored,
            row_count=footer.parsed.row_count,
            questdb_json=None if questdb is None else encode_questdb_json(questdb),
            sidecar=inherited,
        ),
        columns=tuple(columns),
        bloom_columns=tuple(columns[index].name for index in sorted(with_bloom)),
    )


def scan_as_stored(source: RewriteSource, store: CheckedStore, options: ReadOptions, executor: Executor) -> Scan:
    """Make a scan of all rows of a partition, in order, with values as they are stored."""
    location = source.location
    sidecar = _sidecar(values_as_stored(source.kept.sidecar), location)
    columns = table_columns(sidecar)
    options = replace(options, symbols="string", strings="string")
    cached = NO_CACHES.above(store)
    snapshot = TableSnapshot(
        store=cached,
        partitions=(_KnownPartition(location, store, options, sidecar),),
        columns=columns,
        designated_timestamp=None,
        files=None,
        symbol_dictionaries=None,
        page_files=PageFiles(cached),
        data_objects=DataObjects(cached),
        listed_objects=ListedObjects(cached),
        catalogue=Catalogue(CatalogueFile(path=location.directory_path), cached),
        source=None,
        are_chosen=False,
        notes=(),
        requests=(),
    )
    question = Question(
        url=location.directory_path,
        options=options,
        speed=StoreSpeed(connections=options.max_concurrency),
        snapshot=snapshot,
        output_columns=columns,
        predicate_text=None,
        predicate=None,
        predicate_columns=(),
        limit=None,
    )
    fields = [arrow_field(column.name, column.readable_type, text=PLAIN_TEXT) for column in columns]
    return Scan(question=question, executor=executor, schema=pa.schema(fields))


class _KnownPartition(Partition):
    """A partition whose metadata is already known."""

    def __init__(self, location: PartitionLocation, store: ObjectStore, options: ReadOptions, sidecar: Sidecar) -> None:
        super().__init__(location, store, options)
        self._known = PartitionMetadata(sidecar=sidecar, source="footer", metadata_requests=())

    async def metadata(self, *, is_read_whole: bool | None = None) -> PartitionMetadata:  # noqa: ARG002 - it is read already
        """Return the known metadata, without a request."""
        return self._known


def _parsed(location: PartitionLocation, stored: FooterBytes) -> PartitionFooter:
    parsed = parse_footer(stored.content, path=stored.path, offset=stored.offset)
    questdb = None
    if parsed.questdb_json is not None:
        questdb = parse_questdb_json(parsed.questdb_json, column_count=len(parsed.leaves), path=stored.path)
    return PartitionFooter(location=location, stored=stored, parsed=parsed, questdb=questdb)


def _sidecar(content: SidecarContent, location: PartitionLocation) -> Sidecar:
    return parse_sidecar(encode_sidecar(content), path=location.data_path, verify_checksum=False)


def _with_tokens_of(sidecar: Sidecar, content: SidecarContent) -> SidecarContent:
    """Take over what QuestDB records only in a sidecar, without touching the Parquet file."""
    footer, header = sidecar.footer, sidecar.header
    if footer.covering_index:
        raise UnsupportedError(
            "the partition has covering indexes, which only QuestDB can make anew for other row groups",
            kind="CoveringIndex",
            path=sidecar.path,
        )
    others = [entry for entry in footer.scratchpad if entry.code not in DERIVED_CODES]
    return replace(
        content,
        squash_tracker=content.squash_tracker if header.squash_tracker is None else header.squash_tracker,
        seq_txn=content.seq_txn if footer.seq_txn is None else footer.seq_txn,
        scratchpad=[*content.scratchpad, *others],
    )


def _check_order(sidecar: Sidecar) -> None:
    timestamp = sidecar.designated_timestamp
    is_ascending = timestamp is None or not sidecar.column(timestamp).descending
    if not is_ascending or sidecar.sorting_columns not in {(), (timestamp,)}:
        raise UnsupportedError(
            "its row groups are sorted otherwise than by the ascending designated timestamp, which row groups that are"
            " joined may not be any more",
            kind="UnsupportedOrder",
            path=sidecar.path,
        )


def _stored_column(sidecar: Sidecar, footer: PartitionFooter, index: int) -> ColumnStorage:
    descriptor = sidecar.column(index)
    leaf = footer.parsed.leaves[index]
    is_questdb = footer.questdb is not None
    if index in sidecar.nested or sidecar.column_type(index).arrow.name == "parquet":
        raise _unsupported(sidecar, leaf.name, "nested columns, and types that QuestDB does not have, are only read")
    if leaf.physical_type is PhysicalType.INT96 or (leaf.max_rep_level and not is_questdb):
        raise _unsupported(sidecar, leaf.name, "INT96 timestamps, and lists in files of other writers, are only read")
    tag = sidecar.column_type(index).tag
    if is_decimal(tag) and leaf.physical_type is not PhysicalType.FIXED_LEN_BYTE_ARRAY:
        raise _unsupported(sidecar, leaf.name, f"decimals stored as {leaf.physical_type.name} are only read")
    column = column_of_file(sidecar, leaf, index)
    if tag is TypeTag.UUID:
        column = replace(column, storage=pa.uuid())  # QuestDB reads them by their annotation
    return column if descriptor.id < 0 else replace(column, id=descriptor.id)


def _unsupported(sidecar: Sidecar, column: str, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"column {column!r} cannot be written again as it is: {why}",
        kind="UnsupportedRewrite",
        path=sidecar.path,
        field=column,
    )


class TableSymbols:
    """Symbols of one state of a table, None without `_txn`; each dictionary is fetched on first use and then kept."""

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

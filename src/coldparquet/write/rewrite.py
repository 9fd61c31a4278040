"""Rewrites the rows of a partition: from rows as they are stored to a new ``data.parquet`` and ``_pm``."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from coldparquet.catalog.caches import NO_CACHES
from coldparquet.catalog.catalogue import Catalogue
from coldparquet.catalog.objects import DataObjects, ListedObjects
from coldparquet.catalog.packed import CatalogueFile
from coldparquet.catalog.pages import PageFiles
from coldparquet.catalog.partition import Partition, PartitionMetadata, look_up_sidecar
from coldparquet.catalog.snapshot import TableSnapshot
from coldparquet.catalog.table_files import DATA_FILE, SIDECAR_FILE
from coldparquet.concurrency import wait_in_thread
from coldparquet.decode.arrow import PLAIN_TEXT, TEXT_AS_STORED, arrow_field, arrow_type
from coldparquet.errors import FormatError, InternalError, UnsupportedError
from coldparquet.format.fetch import FooterFetch
from coldparquet.format.footer_edit import FooterBytes, rewritten_footer
from coldparquet.format.page_headers import count_pages, offset_index_span
from coldparquet.format.parquet_footer import (
    DERIVED_CODES,
    encode_questdb_json,
    frame_footer,
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
from coldparquet.scan.model import Question
from coldparquet.storage.requests import RangeRequest
from coldparquet.table_scan import Scan
from coldparquet.write.columns import StoredColumn, decimal_of_width
from coldparquet.write.files import NewFile
from coldparquet.write.parquet import RowGroupWriter, TimeOrder, split_rows
from coldparquet.write.partition import sidecar_content_of_file, write_pages_file
from coldparquet.write.values import stored_table

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Coroutine, Iterator
    from concurrent.futures import Executor

    import numpy.typing as npt

    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.format.parquet_footer import ParquetFooter, QuestdbMetadata
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.format.sidecar_writer import SidecarContent
    from coldparquet.options import ReadOptions
    from coldparquet.scan.stream import BatchStream
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.checked import CheckedStore
    from coldparquet.write.files import FileOperations
    from coldparquet.write.options import WriteOptions
    from coldparquet.write.table_symbols import TableSymbols


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenFiles:
    """The new files of one partition."""

    parquet_size_bytes: int
    sidecar_size_bytes: int
    pages_size_bytes: int | None
    """None unless a ``_pages`` was written."""
    row_group_count: int
    page_count: int | None
    """Data pages; None without a page index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRewriter:
    """Writes the files of one partition into a local directory. Blocks, while the event loop fetches and decodes.

    Memory holds the rows in the stream, and those of one old and one new row group.
    """

    source: RewriteSource
    stream: BatchStream
    """Its rows as they are stored; open."""
    schema: pa.Schema
    """Of the stream."""
    loop: asyncio.AbstractEventLoop
    """The event loop of the stream."""
    options: WriteOptions
    files: FileOperations
    on_rows: Callable[[int], None]
    """Called in the event loop with the number of rows of each written row group."""

    def write(self, directory: str, give_up: threading.Event) -> RewrittenFiles:
        """Write and flush the files."""
        data = NewFile(f"{directory}/{DATA_FILE}", self.files)
        footer = self._write_data(data, give_up)
        sidecar = NewFile(f"{directory}/{SIDECAR_FILE}", self.files)
        described = self._encode_sidecar(data.path, footer)
        sidecar.append(described)
        sidecar.flush()
        pages_bytes = write_pages_file(data.path, footer, described, self.files) if self.options.pages else None
        return RewrittenFiles(
            parquet_size_bytes=data.size_bytes,
            sidecar_size_bytes=sidecar.size_bytes,
            pages_size_bytes=pages_bytes,
            row_group_count=len(footer.row_groups),
            page_count=_count_pages(data.path, footer),
        )

    def copy(self, path: str, pieces: Iterator[Coroutine[Any, Any, bytes]], give_up: threading.Event) -> None:
        """Write and flush one more file from pieces in order."""
        file = NewFile(path, self.files)
        for piece in pieces:
            file.append(wait_in_thread(piece, self.loop, give_up))
        file.flush()

    def _write_data(self, data: NewFile, give_up: threading.Event) -> ParquetFooter:
        source, timestamp = self.source, self.source.timestamp
        order, row_count = TimeOrder(), 0
        with RowGroupWriter(
            data.append, start=0, columns=source.columns, options=self.options, sorted_by=timestamp
        ) as writer:
            batches = self._batches(give_up)
            for group in split_rows(self.schema, batches, row_group_rows=self.options.row_group_rows):
                if give_up.is_set():
                    raise asyncio.CancelledError
                stored = self._stored(group)
                if timestamp is not None:
                    order.check(stored.column(timestamp))
                writer.write(stored)
                row_count += group.num_rows
                self.loop.call_soon_threadsafe(self.on_rows, group.num_rows)
            written = writer.finish(source.questdb_json or "{}")
        before = source.footer
        if row_count != before.parsed.row_count:
            raise InternalError(f"{row_count} of {before.parsed.row_count} rows were written", path=data.path)
        content = rewritten_footer(
            FooterBytes(content=written.content, offset=written.offset, path=data.path),
            before.stored,
            questdb_json=source.questdb_json,
        )
        data.append(frame_footer(content))
        data.flush()
        return parse_footer(content, path=data.path, offset=written.offset)

    def _batches(self, give_up: threading.Event) -> Iterator[pa.RecordBatch]:
        while (rows := wait_in_thread(self.stream.next_row_group(), self.loop, give_up)) is not None:
            yield from rows.to_batches()

    def _stored(self, rows: pa.Table) -> pa.Table:
        """Convert rows for the Parquet writer; arrays are already encoded as byte strings."""
        columns = self.source.columns
        is_raw = [
            column.tag is TypeTag.ARRAY and pa.types.is_binary(rows.schema.field(column.name).type)
            for column in columns
        ]
        converted = stored_table(rows, [column for column, raw in zip(columns, is_raw, strict=True) if not raw])
        arrays = [
            rows.column(column.name).combine_chunks() if raw else converted.column(column.name)
            for column, raw in zip(columns, is_raw, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=pa.schema([column.arrow_field() for column in columns]))

    def _encode_sidecar(self, data_path: str, footer: ParquetFooter) -> bytes:
        content, inherited = sidecar_content_of_file(data_path, footer), self.source.inherited
        tokens = [entry for entry in inherited.scratchpad if entry.code not in DERIVED_CODES]
        return encode_sidecar(
            replace(
                content,
                squash_tracker=inherited.squash_tracker,
                seq_txn=inherited.seq_txn,
                scratchpad=[*content.scratchpad, *tokens],
            )
        )


def _count_pages(path: str, footer: ParquetFooter) -> int | None:
    span = offset_index_span(footer)
    if span is None:
        return None
    with Path(path).open("rb") as file:
        return count_pages(footer, os.pread(file.fileno(), span.length_bytes, span.start), span)


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

    footer: PartitionFooter
    inherited: SidecarContent
    """The old sidecar; the new one takes everything from it but the row groups."""
    columns: tuple[StoredColumn, ...]
    """How all columns of the file are stored, including those that the table has since dropped."""
    questdb_json: str | None
    """QuestDB's metadata of the columns for the new file."""
    bloom_columns: tuple[str, ...]
    """Columns that have bloom filters."""

    @property
    def timestamp(self) -> int | None:
        """Index of the designated timestamp, by which the rows are sorted."""
        return self.inherited.designated_timestamp


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
        footer=footer,
        inherited=inherited,
        columns=tuple(columns),
        questdb_json=None if questdb is None else encode_questdb_json(questdb),
        bloom_columns=tuple(columns[index].name for index in sorted(with_bloom)),
    )


def scan_as_stored(source: RewriteSource, store: CheckedStore, options: ReadOptions, executor: Executor) -> Scan:
    """Make a scan of all rows of a partition, in order, with values as they are stored."""
    location = source.footer.location
    sidecar = _sidecar(values_as_stored(source.inherited), location)
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
        page_files=PageFiles(store),
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
        limit=None,
    )
    fields = [arrow_field(column.name, column.readable_type, text=PLAIN_TEXT) for column in columns]
    return Scan(question=question, executor=executor, schema=pa.schema(fields))


class _KnownPartition(Partition):
    """A partition whose metadata is already known."""

    def __init__(self, location: PartitionLocation, store: ObjectStore, options: ReadOptions, sidecar: Sidecar) -> None:
        super().__init__(location, store, options)
        self._known = PartitionMetadata(sidecar=sidecar, source="footer", metadata_requests=())

    async def metadata(self) -> PartitionMetadata:
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


def _stored_column(sidecar: Sidecar, footer: PartitionFooter, index: int) -> StoredColumn:
    descriptor, column_type = sidecar.column(index), sidecar.column_type(index)
    leaf = footer.parsed.leaves[index]
    is_questdb = footer.questdb is not None
    if leaf.physical_type is PhysicalType.INT96 or (leaf.max_rep_level and not is_questdb):
        raise _unsupported(sidecar, leaf.name, "INT96 timestamps, and lists in files of other writers, are only read")
    storage: Any = arrow_type(column_type, text=TEXT_AS_STORED)
    if is_decimal(column_type.tag):
        if leaf.physical_type is not PhysicalType.FIXED_LEN_BYTE_ARRAY:
            raise _unsupported(sidecar, leaf.name, f"decimals stored as {leaf.physical_type.name} are only read")
        storage = decimal_of_width(leaf.fixed_byte_length, column_type.arrow.scale)
    elif column_type.tag is TypeTag.ARRAY:
        storage = pa.binary()
    elif column_type.tag is TypeTag.UUID:
        storage = pa.uuid()  # QuestDB reads them by their annotation
    return StoredColumn(
        name=leaf.name,
        type_code=descriptor.type_code,
        id=leaf.field_id if descriptor.id < 0 else descriptor.id,
        storage=storage,
        is_required=leaf.max_def_level == 0,
    )


def _unsupported(sidecar: Sidecar, column: str, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"column {column!r} cannot be written again as it is: {why}",
        kind="UnsupportedRewrite",
        path=sidecar.path,
        field=column,
    )

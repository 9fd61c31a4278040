"""Encodes rows as the files of a partition, ``data.parquet``, its sidecar and its ``_pages``, in a directory of its own.

:func:`encode_partition` is what every writer of whole partitions uses: of new rows, of tables, of compactions.

On a local disk the partition is written into a hidden directory beside its final one, flushed, and renamed last. So
readers that list the table see all of it or nothing. The next run removes what a crash leaves behind. On object stores
``data.parquet`` is uploaded first. From then on the partition is readable, a little slower until its sidecar is there.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldparquet.catalog.pages import PAGES_FILE
from coldparquet.catalog.table_files import DATA_FILE, SIDECAR_FILE
from coldparquet.concurrency import run_to_end, wait_in_thread
from coldparquet.errors import InternalError, InvalidInputError
from coldparquet.format.blooms import BloomTransfer
from coldparquet.format.page_headers import count_pages, offset_index_span
from coldparquet.format.page_index import encode_pages_file, page_index_range, parse_page_index
from coldparquet.format.pages import chunk_places
from coldparquet.format.parquet_footer import DERIVED_CODES, frame_footer, parse_footer
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.options import COALESCING_BY_GOAL, ReadOptions
from coldparquet.plan.coalesce import coalesce
from coldparquet.records import replace
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.local import LocalStore, translated_errors
from coldparquet.storage.open import opened_store
from coldparquet.write.columns import columns_of_schema, designated_index, with_symbols
from coldparquet.write.files import LocalFiles, NewFile, staged_directory
from coldparquet.write.footer_edit import rewritten_footer
from coldparquet.write.options import WriteOptions
from coldparquet.write.parquet import questdb_json, stored_table, write_row_groups
from coldparquet.write.rows import TimeOrder, in_time_order, schema_and_batches, sorted_batches, split_rows
from coldparquet.write.upload import (
    PART_BYTES,
    MemoryBudget,
    StoreSource,
    is_same_object,
    part_ranges,
    upload_object,
)

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from coldparquet.format.fetch import WantedRanges
    from coldparquet.format.parquet_footer import ParquetFooter
    from coldparquet.format.sidecar_writer import SidecarContent
    from coldparquet.options import StoreOptions
    from coldparquet.storage.base import ObjectStore
    from coldparquet.write.columns import ColumnStorage
    from coldparquet.write.footer_edit import FooterBytes
    from coldparquet.write.rows import Rows


def sidecar_content_of_file(path: str, footer: ParquetFooter, *, inline_bytes: int | None = None) -> SidecarContent:
    """Convert a footer to a sidecar, with the bloom filters of the file: inline, or by their offsets. Blocks."""
    transfer = BloomTransfer(
        footer, inline_bytes=ReadOptions().sidecar_prefix_bytes if inline_bytes is None else inline_bytes
    )
    while (wanted := transfer.wanted()) is not None:
        with translated_errors(path, None), Path(path).open("rb") as file:
            transfer.receive(_read(file.fileno(), wanted))
    return transfer.content()


def _read(file: int, wanted: WantedRanges) -> list[tuple[int, bytes]]:
    coalescing = COALESCING_BY_GOAL["fast"]
    coalesced = coalesce(
        wanted.starts,
        wanted.stops,
        gap_bytes=coalescing.gap_bytes,
        max_request_bytes=coalescing.max_request_bytes,
    )
    pairs = zip(coalesced.starts.tolist(), coalesced.stops.tolist(), strict=True)
    return [(start, os.pread(file, stop - start, start)) for start, stop in pairs]


def write_pages_file(path: str, footer: ParquetFooter, sidecar: bytes, files: LocalFiles) -> int | None:
    """Write a Parquet file's page index into a ``_pages`` file beside it, and flush that. Blocks."""
    described = parse_sidecar(sidecar, verify_checksum=False)
    places, tail = chunk_places(described), page_index_range(described)
    with translated_errors(path, None), Path(path).open("rb") as file:
        content = os.pread(file.fileno(), tail.length_bytes, tail.start)
    pages = parse_page_index(footer, content, tail_start=tail.start, places=places).pages
    if pages is None:
        return None
    beside = NewFile(f"{path.rpartition('/')[0]}/{PAGES_FILE}", files)
    beside.append(encode_pages_file(pages, places, parquet_size_bytes=described.parquet_size_bytes))
    beside.flush()
    return beside.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPartition:
    """A partition that was written, updated in place, or written anew, as a ``_txn`` records it."""

    directory: str
    """Its path in the store."""
    row_count: int
    row_group_count: int
    page_count: int | None = None
    """Data pages; None without a page index, and after an update in place."""
    parquet_size_bytes: int
    """Committed size of ``data.parquet``."""
    unused_bytes: int = 0
    """Dead bytes in ``data.parquet`` after updates in place; if there are many, compacting the partition pays off."""
    sidecar_size_bytes: int
    """Committed size of ``_pm``."""
    pages_size_bytes: int | None = None
    """None unless a ``_pages`` was written."""
    first_timestamp: int | None
    """Designated timestamp of the first row, in its own unit since 1970; None without one."""
    last_timestamp: int | None
    """The same of the last row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptMetadata:
    """What a partition that is written anew takes over from its old files, besides the rows."""

    footer: FooterBytes
    row_count: int
    questdb_json: str | None
    """QuestDB's description of the columns; None in files of other writers."""
    sidecar: SidecarContent
    """The old sidecar; the new one takes everything from it but the row groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRows:
    """The rows of a partition as they are stored."""

    columns: Sequence[ColumnStorage]
    timestamp: int | None
    """Index of the designated timestamp, by which the rows must be in ascending order; None for no order."""
    row_groups: Iterable[pa.Table]
    kept: KeptMetadata | None = None
    """None for new rows."""


def rows_to_store(
    rows: Rows,
    *,
    timestamp: str | None,
    symbols: Mapping[str, Sequence[str] | pa.Array[Any]],
    options: WriteOptions,
) -> StoredRows:
    """Decide how to store new rows; blocks until the first of them are there."""
    schema, batches = schema_and_batches(rows)
    columns = with_symbols(columns_of_schema(schema, timestamp=timestamp), symbols)
    if options.sort and timestamp is not None:
        batches = sorted_batches(schema, batches, timestamp=timestamp)
    groups = split_rows(schema, batches, row_group_rows=options.row_group_rows)
    return StoredRows(
        columns=columns,
        timestamp=designated_index(columns),
        row_groups=(stored_table(group, columns) for group in groups),
    )


def encode_partition(
    directory: str, rows: StoredRows, *, options: WriteOptions, files: LocalFiles, give_up: threading.Event
) -> WrittenPartition:
    """Write and flush the files of a partition in a local directory: ``data.parquet``, ``_pm``, ``_pages``. Blocks."""
    data, kept, order = NewFile(f"{directory}/{DATA_FILE}", files), rows.kept, TimeOrder()
    written = write_row_groups(
        data.append,
        in_time_order(rows.row_groups, order, rows.timestamp),
        columns=rows.columns,
        options=options,
        sorted_by=rows.timestamp,
        questdb_json=questdb_json(rows.columns) if kept is None else kept.questdb_json or "{}",
        give_up=give_up,
    )
    content = written.content
    if kept is not None:
        content = rewritten_footer(replace(written, path=data.path), kept.footer, questdb_json=kept.questdb_json)
    footer = parse_footer(content, path=data.path, offset=written.offset)
    if kept is not None and footer.row_count != kept.row_count:
        raise InternalError(f"{footer.row_count} of {kept.row_count} rows were written", path=data.path)
    data.append(frame_footer(content))
    data.flush()
    described = sidecar_content_of_file(data.path, footer)
    if kept is not None:
        described = _with_tokens(described, kept.sidecar)
    encoded = encode_sidecar(described)
    sidecar = NewFile(f"{directory}/{SIDECAR_FILE}", files)
    sidecar.append(encoded)
    sidecar.flush()
    return WrittenPartition(
        directory=directory,
        row_count=footer.row_count,
        row_group_count=len(footer.row_groups),
        page_count=_count_pages(data.path, footer),
        parquet_size_bytes=data.size_bytes,
        sidecar_size_bytes=sidecar.size_bytes,
        pages_size_bytes=write_pages_file(data.path, footer, encoded, files) if options.pages else None,
        first_timestamp=order.first,
        last_timestamp=order.last,
    )


def _with_tokens(content: SidecarContent, old: SidecarContent) -> SidecarContent:
    """Take over what QuestDB has noted in the old sidecar."""
    tokens = [entry for entry in old.scratchpad if entry.code not in DERIVED_CODES]
    return replace(
        content,
        squash_tracker=old.squash_tracker,
        seq_txn=old.seq_txn,
        scratchpad=[*content.scratchpad, *tokens],
    )


def _count_pages(path: str, footer: ParquetFooter) -> int | None:
    span = offset_index_span(footer)
    if span is None:
        return None
    with Path(path).open("rb") as file:
        return count_pages(footer, os.pread(file.fileno(), span.length_bytes, span.start), span)


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedFile:
    """A file of the old version of a partition that the new one gets unchanged."""

    name: str
    content: StoreSource


async def place_partition(  # noqa: PLR0913 - mostly keyword arguments
    path: str,
    encode: Callable[[str, threading.Event], WrittenPartition],
    *,
    store: ObjectStore | None,
    files: LocalFiles,
    check_is_free: Callable[[], None],
    carried: Sequence[CarriedFile] = (),
    memory: MemoryBudget,
    may_exist: bool = False,
) -> WrittenPartition:
    """Write a partition into a new directory, so that no reader sees a part of it; the module says how.

    ``encode`` writes the files into a local directory, ``check_is_free`` refuses one that exists. Without a ``store`` the
    local disk is meant. With ``may_exist`` objects but the sidecar may exist with the same bytes, of an interrupted run.

    Requests: those of :func:`~coldparquet.write.upload.upload_object` for each file, and 1 or more to read a carried
    one; none to write on the local disk.
    """
    if store is None:
        loop = asyncio.get_running_loop()
        written = await run_to_end(partial(_place_locally, path, encode, files, check_is_free, carried, loop))
    else:
        with tempfile.TemporaryDirectory(prefix="coldparquet-") as directory:
            written = await run_to_end(partial(encode, directory))
            for name, source in _made_files(directory, written):
                await _upload(store, f"{path}/{name}", source, memory, may_exist=may_exist and name != SIDECAR_FILE)
        for file in carried:
            await _upload(store, f"{path}/{file.name}", file.content, memory, may_exist=False)
    return replace(written, directory=path)


def _place_locally(  # noqa: PLR0913, PLR0917 - those of place_partition
    path: str,
    encode: Callable[[str, threading.Event], WrittenPartition],
    files: LocalFiles,
    check_is_free: Callable[[], None],
    carried: Sequence[CarriedFile],
    loop: asyncio.AbstractEventLoop,
    give_up: threading.Event,
) -> WrittenPartition:
    check_is_free()
    _make_directories(Path(path).parent, files)
    with staged_directory(path, files, check_is_free=check_is_free) as staging:
        written = encode(staging, give_up)
        for file in carried:
            copy = NewFile(f"{staging}/{file.name}", files)
            for piece in part_ranges(file.content.size_bytes):
                copy.append(wait_in_thread(file.content.read(piece), loop, give_up))
            copy.flush()
        if give_up.is_set():
            raise asyncio.CancelledError
    return written


def _make_directories(directory: Path, files: LocalFiles) -> None:
    missing = [folder for folder in (directory, *directory.parents) if not folder.exists()]
    for folder in reversed(missing):
        files.make_directory(str(folder))
        files.flush_directory(str(folder.parent))


def _made_files(directory: str, written: WrittenPartition) -> Iterator[tuple[str, StoreSource]]:
    """Yield name and content of a partition's files in a local directory, in the order of their upload."""
    local = CheckedStore(LocalStore())
    for name, size_bytes in (
        (DATA_FILE, written.parquet_size_bytes),
        (PAGES_FILE, written.pages_size_bytes),
        (SIDECAR_FILE, written.sidecar_size_bytes),
    ):
        if size_bytes is not None:
            yield name, StoreSource(local, f"{directory}/{name}", size_bytes=size_bytes)


async def _upload(store: ObjectStore, path: str, source: StoreSource, memory: MemoryBudget, *, may_exist: bool) -> None:
    try:
        await upload_object(store, path, source, overwrite=False, memory=memory)
    except InvalidInputError as error:
        if error.kind != "AlreadyExists" or not may_exist:
            raise
        if not await is_same_object(store, await store.info(path), source, memory=memory):
            raise


_UPLOAD_BYTES = 4 * PART_BYTES
"""Parts held in memory during an upload."""

_REQUESTS_AT_ONCE = 16
"""More than the parts that fit into memory; everything else is sent one by one."""


async def write_partition(  # noqa: PLR0913 - mostly keyword arguments
    directory: str | os.PathLike[str],
    rows: Rows,
    *,
    timestamp: str | None,
    symbols: Mapping[str, Sequence[str] | pa.Array[Any]] | None = None,
    options: WriteOptions | None = None,
    storage_options: Mapping[str, Any] | None = None,
    store_options: StoreOptions | None = None,
    store: ObjectStore | None = None,
    files: LocalFiles | None = None,
) -> WrittenPartition:
    """Write a new partition: ``data.parquet``, the sidecar ``_pm`` and, if the options say so, our ``_pages``.

    Columns get the QuestDB type in their field metadata ``questdb.type``, as ``SHOW COLUMNS`` prints it. Otherwise the
    Arrow type decides: int8 is a BYTE, string a VARCHAR, a dictionary of strings a SYMBOL, ``timestamp('us')`` a
    TIMESTAMP, nested lists of float64 are arrays. The field metadata ``PARQUET:field_id`` is the writer index of the
    column in its table, by default the position. Values are not changed: QuestDB itself treats the smallest INT and
    LONG, and NaN, as null.

    Requests on an object store: 1 per object up to 16 MiB, else 2 and 1 per part. An interrupted run can be repeated
    there with the same rows: it finds the existing ``data.parquet`` and compares it.

    Args:
        directory: The partition directory, such as ``trades/2024-03-01.12``: any fsspec URL, or a local path. It does not
            exist yet, or is empty; a partition is replaced by writing its next version.
        rows: A table, a reader, or batches. A stream is read in a worker thread, one row group at a time.
        timestamp: The designated timestamp, by which the rows are in ascending order; None for a table without one.
        symbols: By SYMBOL column, all symbols of the QuestDB table in the order of their keys, from the table's symbol
            files. QuestDB needs them to read the partition; readers of the file alone do not.
        options: How to store them.
        storage_options: Credentials, endpoint and so on, as fsspec and s3fs take them.
        store_options: Retries and timeouts; see :class:`~coldparquet.options.StoreOptions`.
        store: A store of your own; ``directory`` is then a path in it. It stays open.
        files: How to write to the local disk; for tests.

    Raises:
        InvalidInputError: The partition exists (kind ``AlreadyExists``), another writer holds its lock
            (``PartitionLocked``), a row is out of order (``NotSorted``), a column has no QuestDB type (``UnknownType``)
            or a value does not fit (``DoesNotFit``, ``NullValue``, ``RaggedArray``), or there are no rows (``NoRows``).
            No files remain.
        AccessError: Writing is not permitted.
        StorageError: The disk or the store failed.
    """
    options, files = options or WriteOptions(), files or LocalFiles()

    def encode(local_directory: str, give_up: threading.Event) -> WrittenPartition:
        stored = rows_to_store(rows, timestamp=timestamp, symbols=symbols or {}, options=options)
        return encode_partition(local_directory, stored, options=options, files=files, give_up=give_up)

    async with opened_store(
        os.fspath(directory),
        storage_options=storage_options,
        store_options=store_options,
        store=store,
        max_concurrency=_REQUESTS_AT_ONCE,
    ) as opened:
        return await place_partition(
            opened.path,
            encode,
            store=None if isinstance(opened.bare, LocalStore) else opened.stack.store,
            files=files,
            check_is_free=partial(_check_is_free, Path(opened.path)),
            memory=MemoryBudget(_UPLOAD_BYTES),
            may_exist=True,
        )


def _check_is_free(target: Path) -> None:
    with translated_errors(str(target), None):
        is_empty = target.is_dir() and not target.is_symlink() and not any(target.iterdir())
        is_free = is_empty or not os.path.lexists(target)
    if not is_free:
        raise InvalidInputError(
            "there is something already; a partition is replaced by writing its next version beside it, such as"
            " 2024-03-01.13 after 2024-03-01.12",
            kind="AlreadyExists",
            path=str(target),
        )

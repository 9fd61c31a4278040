"""Writes new partitions from Arrow: ``data.parquet``, its sidecar with bloom filters, and its ``_pages``.

On a local disk the partition is written into a hidden directory beside its final one, flushed, and renamed last. So
readers that list the table see all of it or nothing. The next run removes what a crash leaves behind. On object stores
``data.parquet`` is uploaded first. From then on the partition is readable, a little slower until its sidecar is there.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldparquet.catalog.pages import PAGES_FILE
from coldparquet.catalog.table_files import DATA_FILE, SIDECAR_FILE
from coldparquet.concurrency import run_to_end
from coldparquet.errors import InvalidInputError
from coldparquet.format.blooms import BloomTransfer
from coldparquet.format.page_index import page_index_range, parse_page_index
from coldparquet.format.pages import chunk_places
from coldparquet.format.pages_file import encode_pages_file
from coldparquet.format.parquet_footer import frame_footer, parse_footer
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.options import COALESCING_BY_GOAL, ReadOptions
from coldparquet.plan.coalesce import coalesce
from coldparquet.storage.local import LocalStore, translated_errors
from coldparquet.storage.open import opened_store
from coldparquet.storage.transfer import PART_BYTES, MemoryBudget, StoreSource, is_same_object, upload_object
from coldparquet.write.columns import columns_of_schema, designated_index, with_symbols
from coldparquet.write.files import FileOperations, LocalFiles, NewFile, made_files, staged_directory
from coldparquet.write.options import WriteOptions
from coldparquet.write.parquet import (
    RowGroupWriter,
    TimeOrder,
    no_rows,
    questdb_json,
    schema_and_batches,
    sorted_batches,
    split_rows,
)
from coldparquet.write.values import stored_table

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from coldparquet.format.fetch import WantedRanges
    from coldparquet.format.parquet_footer import ParquetFooter
    from coldparquet.format.sidecar_writer import SidecarContent
    from coldparquet.options import StoreOptions
    from coldparquet.storage.base import ObjectStore
    from coldparquet.write.parquet import Rows


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


def write_pages_file(path: str, footer: ParquetFooter, sidecar: bytes, files: FileOperations) -> int | None:
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


_UPLOAD_BYTES = 4 * PART_BYTES
"""Parts held in memory during an upload."""

_REQUESTS_AT_ONCE = 16
"""More than the parts that fit into memory; everything else is sent one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPartition:
    """A written partition, as a ``_txn`` records it."""

    directory: str
    """Its path in the store."""
    row_count: int
    row_group_count: int
    parquet_size_bytes: int
    sidecar_size_bytes: int
    pages_size_bytes: int | None
    """None unless a ``_pages`` was written."""
    first_timestamp: int | None
    """Designated timestamp of the first row, in its own unit since 1970; None without one."""
    last_timestamp: int | None
    """The same of the last row."""


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
    files: FileOperations | None = None,
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
    encoder = PartitionEncoder(
        rows=rows,
        timestamp=timestamp,
        symbols=symbols or {},
        options=options or WriteOptions(),
        files=files or LocalFiles(),
    )
    async with opened_store(
        os.fspath(directory),
        storage_options=storage_options,
        store_options=store_options,
        store=store,
        max_concurrency=_REQUESTS_AT_ONCE,
    ) as opened:
        if isinstance(opened.bare, LocalStore):
            return await run_to_end(partial(_write_local, opened.path, encoder))
        return await _write_object(opened.stack.store, opened.path, encoder)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEncoder:
    """Writes the files of a partition into a local directory. Blocks."""

    rows: Rows
    timestamp: str | None
    symbols: Mapping[str, Sequence[str] | pa.Array[Any]]
    options: WriteOptions
    files: FileOperations

    def write(self, directory: str, give_up: threading.Event) -> WrittenPartition:
        """Write and flush the files."""
        schema, batches = schema_and_batches(self.rows)
        columns = with_symbols(columns_of_schema(schema, timestamp=self.timestamp), self.symbols)
        designated = designated_index(columns)
        if self.options.sort and self.timestamp is not None:
            batches = sorted_batches(schema, batches, timestamp=self.timestamp)
        order = TimeOrder()
        data = NewFile(f"{directory}/{DATA_FILE}", self.files)
        with RowGroupWriter(
            data.append, start=0, columns=columns, options=self.options, sorted_by=designated
        ) as writer:
            for group in split_rows(schema, batches, row_group_rows=self.options.row_group_rows):
                if give_up.is_set():
                    raise asyncio.CancelledError
                stored = stored_table(group, columns)
                if designated is not None:
                    order.check(stored.column(designated))
                writer.write(stored)
            if not writer.row_count:
                raise no_rows()
            written = writer.finish(questdb_json(columns))
        data.append(frame_footer(written.content))
        data.flush()
        footer = parse_footer(written.content, path=data.path, offset=written.offset)
        sidecar = NewFile(f"{directory}/{SIDECAR_FILE}", self.files)
        described = encode_sidecar(sidecar_content_of_file(data.path, footer))
        sidecar.append(described)
        sidecar.flush()
        pages_bytes = write_pages_file(data.path, footer, described, self.files) if self.options.pages else None
        return WrittenPartition(
            directory=directory,
            row_count=footer.row_count,
            row_group_count=len(footer.row_groups),
            parquet_size_bytes=data.size_bytes,
            sidecar_size_bytes=sidecar.size_bytes,
            pages_size_bytes=pages_bytes,
            first_timestamp=order.first,
            last_timestamp=order.last,
        )


def _write_local(path: str, encoder: PartitionEncoder, give_up: threading.Event) -> WrittenPartition:
    target = Path(path)
    check_is_free = partial(_check_is_free, target)
    check_is_free()
    _make_directories(target.parent, encoder.files)
    with staged_directory(path, encoder.files, check_is_free=check_is_free) as staging:
        written = encoder.write(staging, give_up)
    return replace(written, directory=path)


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


def _make_directories(directory: Path, files: FileOperations) -> None:
    missing = [folder for folder in (directory, *directory.parents) if not folder.exists()]
    for folder in reversed(missing):
        files.make_directory(str(folder))
        files.flush_directory(str(folder.parent))


async def _write_object(store: ObjectStore, path: str, encoder: PartitionEncoder) -> WrittenPartition:
    with tempfile.TemporaryDirectory(prefix="coldparquet-") as directory:
        written = await run_to_end(partial(encoder.write, directory))
        for name, source in made_files(directory, written):
            await _upload(store, f"{path}/{name}", source, may_exist=name != SIDECAR_FILE)
    return replace(written, directory=path)


async def _upload(store: ObjectStore, path: str, source: StoreSource, *, may_exist: bool) -> None:
    """Write an object that is new, or that an interrupted run has written with the same bytes."""
    memory = MemoryBudget(_UPLOAD_BYTES)
    try:
        await upload_object(store, path, source, overwrite=False, memory=memory)
    except InvalidInputError as error:
        if error.kind != "AlreadyExists" or not may_exist:
            raise
        if not await is_same_object(store, await store.info(path), source, memory=memory):
            raise

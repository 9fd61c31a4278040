"""Updates a local partition in place. It never overwrites committed bytes, so readers continue undisturbed.

The writes have QuestDB's order: new row groups and a new footer behind the end of ``data.parquet``, flush. Then new
blocks and a new footer behind the committed end of ``_pm``, flush. Then the committed size at the start of ``_pm``,
flush. From that moment readers without a ``_txn`` see the update. Where the table has a ``_txn``, its writer commits
afterwards with the new size of ``data.parquet``, which those readers use.

Readers ignore what a crash leaves behind the committed end of either file. The next update appends behind it in
``data.parquet``, where it counts as dead bytes, and overwrites it in ``_pm``.

A reader without a sidecar uses the footer at the file's end. During an update there is none, and after an interrupted
one there is none until the next succeeds. So an update first writes a sidecar where there is none.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldparquet.catalog.table_files import DATA_FILE, SIDECAR_FILE
from coldparquet.concurrency import run_to_end
from coldparquet.decode.arrow import DICTIONARY_TYPE, TEXT_AS_STORED, arrow_type
from coldparquet.errors import FormatError, InternalError, InvalidInputError, NotFoundError, UnsupportedError
from coldparquet.format.fetch import FooterFetch
from coldparquet.format.footer_edit import FooterBytes, KeptRowGroup, NewRowGroup, splice_footers, with_schema_of
from coldparquet.format.parquet_footer import parse_footer
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.sidecar_update import footer_content_difference, plan_sidecar_update
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.format.type_codes import TypeTag, is_decimal
from coldparquet.storage.local import LocalStore, translated_errors
from coldparquet.storage.open import open_store
from coldparquet.storage.urls import shown_url
from coldparquet.write.columns import StoredColumn, decimal_of_width, with_symbols
from coldparquet.write.files import FileOperations, LocalFiles, exclusive_lock
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
from coldparquet.write.partition import sidecar_content_of_file
from coldparquet.write.values import stored_table

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from coldparquet.format.footer_edit import SplicedFooter
    from coldparquet.format.parquet_footer import ParquetFooter
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.ranges import ByteRange, SuffixRange
    from coldparquet.write.parquet import Rows


_FOOTER_GUESS_BYTES = 64 * 1024
_NEW_SIDECAR = "._pm.coldparquet"
"""Name of a sidecar while it is written; a rename makes it the sidecar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingPartition:
    """The state of a partition before an update."""

    directory: str
    data_path: str
    sidecar_path: str
    data_bytes: int
    """Length of the Parquet file, dead bytes of an interrupted update included: new bytes are written here."""
    sidecar_file: bytes
    sidecar: Sidecar
    """The committed snapshot."""
    footer: FooterBytes
    """The footer that this snapshot describes."""
    columns: tuple[StoredColumn, ...]

    @property
    def timestamp(self) -> int | None:
        """Index of the designated timestamp."""
        return self.sidecar.designated_timestamp

    @property
    def ascii_columns(self) -> tuple[int, ...]:
        """Indexes of the columns that the sidecar marks as all ASCII."""
        return tuple(index for index, column in enumerate(self.sidecar.columns) if column.is_ascii)

    def time_bounds(self) -> list[tuple[int, int] | None]:
        """Return the first and the last designated timestamp of each row group.

        None for row groups without rows, and for all where there is no designated timestamp.
        """
        has_rows = self.sidecar.row_counts > 0
        if self.timestamp is None:
            return [None] * len(has_rows)
        chunks = self.sidecar.chunks(self.timestamp)
        if not (chunks.min.inlined & chunks.max.inlined)[has_rows].all():
            raise UnsupportedError(
                "some row groups have no bounds of the designated timestamp, so the order of the rows cannot be kept;"
                " write a new partition directory",
                kind="UnknownOrder",
                path=self.sidecar_path,
            )
        firsts, lasts = chunks.min.raw.view(np.int64).tolist(), chunks.max.raw.view(np.int64).tolist()
        triples = zip(has_rows.tolist(), firsts, lasts, strict=True)
        return [(first, last) if is_there else None for is_there, first, last in triples]


def read_partition(
    directory: str,
    *,
    committed_parquet_bytes: int | None,
    symbols: Mapping[str, Sequence[str] | pa.Array[Any]],
    files: FileOperations,
) -> ExistingPartition:
    """Read the state before an update; first write the sidecar if there is none.

    Without a sidecar only the file's end locates the committed footer, and during an update there is none at the end.
    """
    data_path, sidecar_path = f"{directory}/{DATA_FILE}", f"{directory}/{SIDECAR_FILE}"
    with translated_errors(data_path, None):
        data_bytes = Path(data_path).stat().st_size
    try:
        with translated_errors(sidecar_path, None):
            sidecar_file = Path(sidecar_path).read_bytes()
    except NotFoundError:
        derived = _read_footer(data_path, committed_parquet_bytes)
        sidecar_file = encode_sidecar(sidecar_content_of_file(data_path, _parsed(derived)))
        _write_sidecar(directory, sidecar_file, files)
    sidecar = parse_sidecar(sidecar_file, parquet_size_bytes=committed_parquet_bytes, path=sidecar_path)
    if data_bytes < sidecar.parquet_size_bytes:
        raise FormatError(
            f"the file has {data_bytes:,} bytes, its sidecar describes {sidecar.parquet_size_bytes:,}; restore it",
            kind="Truncated",
            path=data_path,
            offset=data_bytes,
        )
    footer = _read_footer(data_path, sidecar.parquet_size_bytes)
    _check_order(sidecar)
    columns = with_symbols(_stored_columns(sidecar, _parsed(footer)), symbols)
    _check_symbols(sidecar, columns)
    return ExistingPartition(
        directory=directory,
        data_path=data_path,
        sidecar_path=sidecar_path,
        data_bytes=data_bytes,
        sidecar_file=sidecar_file,
        sidecar=sidecar,
        footer=footer,
        columns=columns,
    )


def _read_footer(path: str, size_bytes: int | None) -> FooterBytes:
    fetch = FooterFetch(path=path, suffix_bytes=_FOOTER_GUESS_BYTES, size_bytes=size_bytes)
    with translated_errors(path, None), Path(path).open("rb") as file:
        while (wanted := fetch.next_range) is not None:
            start = _start_of(wanted, os.fstat(file.fileno()).st_size)
            file.seek(start)
            fetch.receive(file.read(wanted.length_bytes), start=start)
    return FooterBytes(content=fetch.footer, offset=fetch.footer_offset, path=path)


def _start_of(wanted: ByteRange | SuffixRange, file_bytes: int) -> int:
    return getattr(wanted, "start", max(0, file_bytes - wanted.length_bytes))


def _parsed(footer: FooterBytes) -> ParquetFooter:
    return parse_footer(footer.content, path=footer.path, offset=footer.offset)


def _write_sidecar(directory: str, content: bytes, files: FileOperations) -> None:
    path = f"{directory}/{_NEW_SIDECAR}"
    if os.path.lexists(path):
        files.unlink(path)  # left by an interrupted update
    files.create(path)
    files.write_at(path, 0, content)
    files.flush(path)
    files.rename(path, f"{directory}/{SIDECAR_FILE}")
    files.flush_directory(directory)


def _check_order(sidecar: Sidecar) -> None:
    timestamp = sidecar.designated_timestamp
    if sidecar.sorting_columns not in {(), (timestamp,)} or any(
        sidecar.column(index).descending for index in sidecar.sorting_columns
    ):
        raise UnsupportedError(
            "its rows are sorted otherwise than by the ascending designated timestamp, and an update would not keep that"
            " order; write a new partition directory",
            kind="UnsupportedOrder",
            path=sidecar.path,
        )


def _stored_columns(sidecar: Sidecar, footer: ParquetFooter) -> tuple[StoredColumn, ...]:
    columns = []
    for index, leaf in enumerate(footer.leaves):
        descriptor, type_ = sidecar.column(index), sidecar.column_type(index)
        if leaf.max_rep_level or leaf.physical_type is PhysicalType.INT96:
            raise _unsupported(sidecar, leaf.name, "it is stored as a nested list or as INT96")
        storage: Any = arrow_type(type_, text=TEXT_AS_STORED)
        if is_decimal(type_.tag):
            if leaf.physical_type is not PhysicalType.FIXED_LEN_BYTE_ARRAY:
                raise _unsupported(sidecar, leaf.name, "its decimals are stored in another form than ours")
            storage = decimal_of_width(leaf.fixed_byte_length, type_.arrow.scale)
        elif type_.tag is TypeTag.ARRAY:
            storage = pa.binary()
        columns.append(
            StoredColumn(
                name=leaf.name,
                type_code=descriptor.type_code,
                id=leaf.field_id,
                storage=DICTIONARY_TYPE if type_.tag is TypeTag.SYMBOL else storage,
                is_required=leaf.max_def_level == 0,
            )
        )
    return tuple(columns)


def _check_symbols(sidecar: Sidecar, columns: Sequence[StoredColumn]) -> None:
    for index, column in enumerate(columns):
        if sidecar.column(index).local_key_is_global and column.symbols is None:
            raise _unsupported(
                sidecar, column.name, "its dictionaries have the keys of the table's symbols, so pass them as symbols"
            )


def _unsupported(sidecar: Sidecar, column: str, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"column {column!r} cannot be updated in place: {why}; or write a new partition directory",
        kind="UnsupportedUpdate",
        path=sidecar.path,
        field=column,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatedPartition:
    """The partition after an update, as a ``_txn`` records it."""

    directory: str
    row_count: int
    row_group_count: int
    parquet_size_bytes: int
    """Committed size of ``data.parquet``."""
    sidecar_size_bytes: int
    """Committed size of ``_pm``."""
    unused_bytes: int
    """Dead bytes in ``data.parquet``; if there are many, rewriting the partition pays off."""


async def append_rows(  # noqa: PLR0913 - mostly keyword arguments
    directory: str | os.PathLike[str],
    rows: Rows,
    *,
    symbols: Mapping[str, Sequence[str] | pa.Array[Any]] | None = None,
    options: WriteOptions | None = None,
    committed_parquet_bytes: int | None = None,
    files: FileOperations | None = None,
) -> UpdatedPartition:
    """Append rows to a local partition, in place; see the module docstring for what readers see.

    Args:
        directory: The partition directory, a local path.
        rows: A table, a reader, or batches; none of them before the partition's last timestamp. Columns are
            matched by name. A stream is read in a worker thread, one row group at a time.
        symbols: By SYMBOL column, all symbols of the QuestDB table in the order of their keys; needed where the
            partition's dictionaries have those keys, as in every file that QuestDB wrote.
        options: How to store them. Options for the whole file have no effect.
        committed_parquet_bytes: Size of ``data.parquet`` that the table's ``_txn`` states. None takes the newest snapshot
            of the sidecar, which is the committed one where there is no ``_txn``.
        files: How to write to the disk; for tests.

    Raises:
        InvalidInputError: Rows are out of order (kind ``NotSorted``), do not fit their columns, or there are none; or
            another writer holds the lock (``PartitionLocked``). The partition is unchanged.
        NotFoundError: There is no such partition.
        FormatError: Its sidecar or its footer is damaged.
        AccessError: One of its files is a symbolic link that leads out of it, or must not be written.
        StorageError: One of them is a pipe or a device, or the disk failed.
        UnsupportedError: It is on an object store, where nothing can be appended, or has columns that do not allow
            adding rows in place. Write a new partition directory instead.
    """
    update = _Update(
        symbols=symbols or {},
        options=options or WriteOptions(),
        files=files or LocalFiles(),
        committed_parquet_bytes=committed_parquet_bytes,
    )
    return await _run(directory, partial(update.append, rows))


async def replace_row_groups(  # noqa: PLR0913 - mostly keyword arguments
    directory: str | os.PathLike[str],
    rows_by_row_group: Mapping[int, Rows],
    *,
    symbols: Mapping[str, Sequence[str] | pa.Array[Any]] | None = None,
    options: WriteOptions | None = None,
    committed_parquet_bytes: int | None = None,
    files: FileOperations | None = None,
) -> UpdatedPartition:
    """Replace whole row groups of a local partition; see the module docstring for what readers see.

    Args:
        directory: The partition directory, a local path.
        rows_by_row_group: By index of the row group, all of its new rows, at least one; they must fit into the time
            order between the neighbouring row groups.
        symbols: As for ``append_rows``.
        options: How to store them; each row group stays one, however many rows it gets.
        committed_parquet_bytes: As for ``append_rows``.
        files: How to write to the disk; for tests.

    Raises:
        InvalidInputError: There is no such row group, or as for ``append_rows``.
        NotFoundError: As for ``append_rows``.
        FormatError: As for ``append_rows``.
        AccessError: As for ``append_rows``.
        StorageError: As for ``append_rows``.
        UnsupportedError: As for ``append_rows``.
    """
    update = _Update(
        symbols=symbols or {},
        options=options or WriteOptions(),
        files=files or LocalFiles(),
        committed_parquet_bytes=committed_parquet_bytes,
    )
    return await _run(directory, partial(update.replace, rows_by_row_group))


async def _run(
    directory: str | os.PathLike[str], work: Callable[[str, threading.Event], UpdatedPartition]
) -> UpdatedPartition:
    url = os.fspath(directory)
    store, path = open_store(url)
    try:
        if not isinstance(store, LocalStore):
            raise UnsupportedError(
                "objects cannot be changed in place; write a new version of the partition, such as 2024-03-01.13 after"
                " 2024-03-01.12, and let the table's _txn name it",
                kind="NotLocal",
                path=shown_url(url),
            )
        for name in (DATA_FILE, SIDECAR_FILE):
            with contextlib.suppress(NotFoundError):
                await store.info(f"{path}/{name}")  # refuses links that lead elsewhere, pipes and devices
    finally:
        await store.aclose()
    return await run_to_end(partial(work, path))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Update:
    """One update; blocks, and stops between two row groups on request."""

    symbols: Mapping[str, Sequence[str] | pa.Array[Any]]
    options: WriteOptions
    files: FileOperations
    committed_parquet_bytes: int | None

    def append(self, rows: Rows, directory: str, give_up: threading.Event) -> UpdatedPartition:
        with exclusive_lock(directory):
            partition = self._read(directory)
            order = TimeOrder(least=_last_timestamp(partition.time_bounds()))
            groups = _stored_groups(rows, partition, self.options, self.options.row_group_rows)
            return self._write(partition, _checked(groups, order, partition), (), give_up)

    def replace(
        self, rows_by_row_group: Mapping[int, Rows], directory: str, give_up: threading.Event
    ) -> UpdatedPartition:
        with exclusive_lock(directory):
            partition = self._read(directory)
            replaced = sorted(rows_by_row_group)
            count = partition.sidecar.row_group_count
            if not replaced or not 0 <= replaced[0] <= replaced[-1] < count:
                raise InvalidInputError(
                    f"row groups {replaced} are to be replaced; there are 0 to {count - 1}",
                    kind="UnknownRowGroup",
                    path=directory,
                )
            groups = _replacements(rows_by_row_group, partition, self.options)
            return self._write(partition, groups, replaced, give_up)

    def _read(self, directory: str) -> ExistingPartition:
        return read_partition(
            directory,
            committed_parquet_bytes=self.committed_parquet_bytes,
            symbols=self.symbols,
            files=self.files,
        )

    def _write(
        self,
        partition: ExistingPartition,
        groups: Iterable[pa.Table],
        replaced: Sequence[int],
        give_up: threading.Event,
    ) -> UpdatedPartition:
        files = self.files
        try:
            spliced = self._write_data(partition, groups, replaced, give_up)
            footer = parse_footer(spliced.content, path=partition.data_path, offset=spliced.offset)
            # Filters stay where the sidecar has them: one header flag covers the whole file.
            inline_bytes = 0 if partition.sidecar.blooms_external else None
            change = footer_content_difference(
                partition.sidecar,
                footer,
                content=sidecar_content_of_file(partition.data_path, footer, inline_bytes=inline_bytes),
            )
            update = plan_sidecar_update(partition.sidecar_file, partition.sidecar, change)
            files.flush(partition.data_path)
            files.write_at(partition.sidecar_path, update.append_at, update.appended_bytes)
            files.flush(partition.sidecar_path)
        except (Exception, asyncio.CancelledError):
            # No reader knows these bytes. Without them the file ends with its old footer again.
            files.truncate(partition.data_path, partition.data_bytes)
            raise
        files.write_at(partition.sidecar_path, 0, update.committed_size_patch)
        files.flush(partition.sidecar_path)
        return UpdatedPartition(
            directory=partition.directory,
            row_count=footer.row_count,
            row_group_count=len(footer.row_groups),
            parquet_size_bytes=spliced.parquet_size_bytes,
            sidecar_size_bytes=update.committed_size_bytes,
            unused_bytes=spliced.unused_bytes,
        )

    def _write_data(
        self,
        partition: ExistingPartition,
        groups: Iterable[pa.Table],
        replaced: Sequence[int],
        give_up: threading.Event,
    ) -> SplicedFooter:
        position = partition.data_bytes

        def pass_on(data: bytes) -> None:
            nonlocal position
            self.files.write_at(partition.data_path, position, data)
            position += len(data)

        entries: list[KeptRowGroup | NewRowGroup] = [
            KeptRowGroup(index) for index in range(partition.sidecar.row_group_count)
        ]
        with RowGroupWriter(
            pass_on,
            start=partition.data_bytes,
            columns=partition.columns,
            options=self.options,
            sorted_by=partition.timestamp,
        ) as writer:
            for number, group in enumerate(groups):
                if give_up.is_set():
                    raise asyncio.CancelledError
                writer.write(group)
                place = replaced[number] if replaced else len(entries)
                entries[place : place + 1] = [NewRowGroup(number)]
            if not writer.row_count:
                raise no_rows()
            written = writer.finish(questdb_json(partition.columns, ascii_columns=partition.ascii_columns))
        content = with_schema_of(written.content, partition.footer.content)
        fragment = FooterBytes(content=content, offset=written.offset, path=partition.data_path)
        spliced = splice_footers(partition.footer, fragment, entries)
        if position != spliced.offset:
            raise InternalError(f"{position} bytes were written, the footer expects {spliced.offset}")
        pass_on(spliced.tail)
        return spliced


def _stored_groups(
    rows: Rows, partition: ExistingPartition, options: WriteOptions, row_group_rows: int | None
) -> Iterator[pa.Table]:
    """Return row groups as they are stored; with ``row_group_rows`` None all rows form one."""
    schema, batches = schema_and_batches(rows)
    names = [column.name for column in partition.columns]
    if sorted(schema.names) != sorted(names):
        raise InvalidInputError(
            f"the rows have the columns {', '.join(schema.names)}, the partition has {', '.join(names)}; they must be the"
            " same",
            kind="SchemaMismatch",
            path=partition.data_path,
        )
    if options.sort and partition.timestamp is not None:
        batches = sorted_batches(schema, batches, timestamp=names[partition.timestamp])
    for group in split_rows(schema, batches, row_group_rows=row_group_rows):
        stored = stored_table(group, partition.columns)
        for index in partition.ascii_columns:
            _check_ascii(stored.column(index), partition, index)
        yield stored


def _replacements(
    rows_by_row_group: Mapping[int, Rows], partition: ExistingPartition, options: WriteOptions
) -> Iterator[pa.Table]:
    """Return the new row groups by ascending index, checked to fit between their neighbours."""
    bounds = partition.time_bounds()
    for index in sorted(rows_by_row_group):
        groups = list(_stored_groups(rows_by_row_group[index], partition, options, None))
        if not groups:
            raise no_rows()
        order = TimeOrder(least=_last_timestamp(bounds[:index]))
        yield from _checked(groups, order, partition)
        if order.first is not None and order.last is not None:
            bounds[index] = order.first, order.last
        following = next((place for place in range(index + 1, len(bounds)) if bounds[place] is not None), None)
        # If that neighbour is replaced too, it is checked against this one instead.
        if following is not None and following not in rows_by_row_group:
            order.check_end(bounds[following])


def _last_timestamp(bounds: Sequence[tuple[int, int] | None]) -> int | None:
    return next((times[1] for times in reversed(bounds) if times is not None), None)


def _checked(groups: Iterable[pa.Table], order: TimeOrder, partition: ExistingPartition) -> Iterator[pa.Table]:
    for group in groups:
        if partition.timestamp is not None:
            order.check(group.column(partition.timestamp))
        yield group


def _check_ascii(values: pa.ChunkedArray[Any], partition: ExistingPartition, index: int) -> None:
    is_ascii: Any = pc.all(pc.string_is_ascii(values.cast("string")))  # type: ignore[call-overload]
    if is_ascii.as_py() is False:
        raise UnsupportedError(
            f"column {partition.columns[index].name!r} is marked as all ASCII for good, and the new rows are not; write a"
            " new partition directory",
            kind="UnsupportedUpdate",
            path=partition.data_path,
            field=partition.columns[index].name,
        )

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
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldparquet.catalog.table_files import DATA_FILE, SIDECAR_FILE
from coldparquet.concurrency import run_to_end
from coldparquet.errors import FormatError, InternalError, InvalidInputError, NotFoundError, UnsupportedError
from coldparquet.format.fetch import FooterFetch
from coldparquet.format.parquet_footer import parse_footer
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.format.type_codes import is_decimal
from coldparquet.records import replace
from coldparquet.storage.local import LocalStore, translated_errors
from coldparquet.storage.open import open_store
from coldparquet.storage.urls import shown_url
from coldparquet.write.columns import ColumnStorage, column_of_file, with_symbols
from coldparquet.write.files import LocalFiles, exclusive_lock
from coldparquet.write.footer_edit import FooterBytes, KeptRowGroup, NewRowGroup, splice_footers, with_schema_of
from coldparquet.write.options import WriteOptions
from coldparquet.write.parquet import questdb_json, stored_table, write_row_groups
from coldparquet.write.partition import WrittenPartition, sidecar_content_of_file
from coldparquet.write.rows import TimeOrder, in_time_order, no_rows, schema_and_batches, sorted_batches, split_rows
from coldparquet.write.sidecar_update import footer_content_difference, plan_sidecar_update

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from coldparquet.format.parquet_footer import ParquetFooter
    from coldparquet.format.parquet_schema import SchemaLeaf
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.ranges import ByteRange, SuffixRange
    from coldparquet.write.footer_edit import SplicedFooter
    from coldparquet.write.rows import Rows


_FOOTER_GUESS_BYTES = 64 * 1024
_NEW_SIDECAR = "._pm.coldparquet"
"""Name of a sidecar while it is written; a rename makes it the sidecar."""


_Bounds: TypeAlias = list[tuple[int, int] | None]
"""First and last designated timestamp of each row group, in their order."""


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
    columns: tuple[ColumnStorage, ...]

    @property
    def timestamp(self) -> int | None:
        """Index of the designated timestamp."""
        return self.sidecar.designated_timestamp

    @property
    def ascii_columns(self) -> tuple[int, ...]:
        """Indexes of the columns that the sidecar marks as all ASCII."""
        return tuple(index for index, column in enumerate(self.sidecar.columns) if column.is_ascii)

    def time_bounds(self) -> _Bounds:
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
    files: LocalFiles,
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
    leaves = enumerate(_parsed(footer).leaves)
    columns = with_symbols([_stored_column(sidecar, leaf, index) for index, leaf in leaves], symbols)
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


def _write_sidecar(directory: str, content: bytes, files: LocalFiles) -> None:
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


def _stored_column(sidecar: Sidecar, leaf: SchemaLeaf, index: int) -> ColumnStorage:
    if leaf.max_rep_level or leaf.physical_type is PhysicalType.INT96:
        raise _unsupported(sidecar, leaf.name, "it is stored as a nested list or as INT96")
    if is_decimal(sidecar.column_type(index).tag) and leaf.physical_type is not PhysicalType.FIXED_LEN_BYTE_ARRAY:
        raise _unsupported(sidecar, leaf.name, "its decimals are stored in another form than ours")
    return column_of_file(sidecar, leaf, index)


def _check_symbols(sidecar: Sidecar, columns: Sequence[ColumnStorage]) -> None:
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


async def append_rows(  # noqa: PLR0913 - mostly keyword arguments
    directory: str | os.PathLike[str],
    rows: Rows,
    *,
    symbols: Mapping[str, Sequence[str] | pa.Array[Any]] | None = None,
    options: WriteOptions | None = None,
    committed_parquet_bytes: int | None = None,
    files: LocalFiles | None = None,
) -> WrittenPartition:
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
    update = _Update(symbols or {}, options or WriteOptions(), files or LocalFiles(), committed_parquet_bytes)
    return await update.run(directory, partial(update.append, rows))


async def replace_row_groups(  # noqa: PLR0913 - mostly keyword arguments
    directory: str | os.PathLike[str],
    rows_by_row_group: Mapping[int, Rows],
    *,
    symbols: Mapping[str, Sequence[str] | pa.Array[Any]] | None = None,
    options: WriteOptions | None = None,
    committed_parquet_bytes: int | None = None,
    files: LocalFiles | None = None,
) -> WrittenPartition:
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
        ColdParquetError: As for ``append_rows``, or there is no such row group (kind ``UnknownRowGroup``).
    """
    update = _Update(symbols or {}, options or WriteOptions(), files or LocalFiles(), committed_parquet_bytes)
    return await update.run(directory, partial(update.replace, rows_by_row_group))


@dataclass(frozen=True, slots=True)
class _Update:
    """One update in place. It blocks, and stops between two row groups on request."""

    symbols: Mapping[str, Sequence[str] | pa.Array[Any]]
    options: WriteOptions
    files: LocalFiles
    committed_parquet_bytes: int | None

    async def run(
        self, directory: str | os.PathLike[str], work: Callable[[ExistingPartition, threading.Event], WrittenPartition]
    ) -> WrittenPartition:
        """Lock the partition, read its state, and do the work in a thread."""
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

        def locked(give_up: threading.Event) -> WrittenPartition:
            with exclusive_lock(path):
                partition = read_partition(
                    path,
                    committed_parquet_bytes=self.committed_parquet_bytes,
                    symbols=self.symbols,
                    files=self.files,
                )
                return work(partition, give_up)

        return await run_to_end(locked)

    def append(self, rows: Rows, partition: ExistingPartition, give_up: threading.Event) -> WrittenPartition:
        bounds = partition.time_bounds()
        order = TimeOrder(least=_last_timestamp(bounds))
        stored = _stored_groups(rows, partition, self.options, self.options.row_group_rows)
        groups = in_time_order(stored, order, partition.timestamp)
        written = self._write(partition, groups, (), give_up)
        return _with_times(written, [*bounds, order.bounds])

    def replace(
        self, rows_by_row_group: Mapping[int, Rows], partition: ExistingPartition, give_up: threading.Event
    ) -> WrittenPartition:
        replaced, count = sorted(rows_by_row_group), partition.sidecar.row_group_count
        if not replaced or not 0 <= replaced[0] <= replaced[-1] < count:
            raise InvalidInputError(
                f"row groups {replaced} are to be replaced; there are 0 to {count - 1}",
                kind="UnknownRowGroup",
                path=partition.directory,
            )
        bounds = partition.time_bounds()
        groups = _replacements(rows_by_row_group, partition, self.options, bounds)
        return _with_times(self._write(partition, groups, replaced, give_up), bounds)

    def _write(
        self,
        partition: ExistingPartition,
        groups: Iterable[pa.Table],
        replaced: Sequence[int],
        give_up: threading.Event,
    ) -> WrittenPartition:
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
        return WrittenPartition(
            directory=partition.directory,
            row_count=footer.row_count,
            row_group_count=len(footer.row_groups),
            parquet_size_bytes=spliced.parquet_size_bytes,
            unused_bytes=spliced.unused_bytes,
            sidecar_size_bytes=update.committed_size_bytes,
            first_timestamp=None,
            last_timestamp=None,
        )

    def _write_data(
        self,
        partition: ExistingPartition,
        groups: Iterable[pa.Table],
        replaced: Sequence[int],
        give_up: threading.Event,
    ) -> SplicedFooter:
        position = partition.data_bytes
        entries: list[KeptRowGroup | NewRowGroup] = [
            KeptRowGroup(index) for index in range(partition.sidecar.row_group_count)
        ]

        def pass_on(data: bytes) -> None:
            nonlocal position
            self.files.write_at(partition.data_path, position, data)
            position += len(data)

        def placed() -> Iterator[pa.Table]:
            for number, group in enumerate(groups):
                place = replaced[number] if replaced else len(entries)
                entries[place : place + 1] = [NewRowGroup(number)]
                yield group

        written = write_row_groups(
            pass_on,
            placed(),
            columns=partition.columns,
            options=self.options,
            sorted_by=partition.timestamp,
            questdb_json=questdb_json(partition.columns, ascii_columns=partition.ascii_columns),
            give_up=give_up,
            start=partition.data_bytes,
        )
        content = with_schema_of(written.content, partition.footer.content)
        fragment = FooterBytes(content=content, offset=written.offset, path=partition.data_path)
        spliced = splice_footers(partition.footer, fragment, entries)
        if position != spliced.offset:
            raise InternalError(f"{position} bytes were written, the footer expects {spliced.offset}")
        pass_on(spliced.tail)
        return spliced


def _with_times(written: WrittenPartition, bounds: _Bounds) -> WrittenPartition:
    known = [times for times in bounds if times is not None]
    return replace(written, first_timestamp=known[0][0], last_timestamp=known[-1][1]) if known else written


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
    rows_by_row_group: Mapping[int, Rows], partition: ExistingPartition, options: WriteOptions, bounds: _Bounds
) -> Iterator[pa.Table]:
    """Return the new row groups by ascending index, checked to fit between their neighbours; ``bounds`` become theirs."""
    for index in sorted(rows_by_row_group):
        groups = list(_stored_groups(rows_by_row_group[index], partition, options, None))
        if not groups:
            raise no_rows()
        order = TimeOrder(least=_last_timestamp(bounds[:index]))
        yield from in_time_order(groups, order, partition.timestamp)
        bounds[index] = order.bounds or bounds[index]
        following = next((place for place in range(index + 1, len(bounds)) if bounds[place] is not None), None)
        # If that neighbour is replaced too, it is checked against this one instead.
        if following is not None and following not in rows_by_row_group:
            order.check_end(bounds[following])


def _last_timestamp(bounds: _Bounds) -> int | None:
    return next((times[1] for times in reversed(bounds) if times is not None), None)


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

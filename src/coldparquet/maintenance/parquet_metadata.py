"""The object ``_metadata`` of a table: the footers of all its files in one, from which every reader of Arrow plans.

``pyarrow.dataset.parquet_dataset("bucket/trades/_metadata")`` reads it instead of a footer per file, and trusts it: Arrow compares
it with nothing. It says the places of column chunks, so it fits one state of the table, and is renewed or removed with it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from coldparquet.catalog.findings import Finding
from coldparquet.catalog.partition import Partition
from coldparquet.catalog.table_files import PARQUET_METADATA_FILE
from coldparquet.concurrency import map_or_cancel
from coldparquet.errors import (
    ColdParquetError,
    FormatError,
    InternalError,
    InvalidInputError,
    NotFoundError,
    ObjectChangedError,
    UnsupportedError,
)
from coldparquet.format.parquet_footer import (
    PARQUET_MAGIC,
    frame_footer,
    leaves_out_dictionary_headers,
    misorders_decimals,
)
from coldparquet.format.parquet_thrift import FileMetaData, KeyValue
from coldparquet.format.sidecar_layout import PARQUET_TAIL_BYTES
from coldparquet.format.thrift import edited, parse_fields, parse_structure_list, raw_elements
from coldparquet.storage.checked import CheckedStore, read_whole
from coldparquet.text import few_names, plural

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.options import ReadOptions
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.requests import FetchedRange

WRITE_AGAIN = "'coldparquet pack --parquet-metadata' writes it anew; or remove it"

_OURS = "coldparquet"
"""Key by which ours are known: those of other writers are never renewed."""
_REASON = "footers of all files"

ParquetMetadataAction = Literal["written", "would write", "unchanged", "removed", "would remove"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenParquetMetadata:
    """What became of the ``_metadata`` of a table."""

    action: ParquetMetadataAction
    """``removed``, ``would remove``: it is of an older state of the table, and cannot be renewed."""
    size_bytes: int | None = None
    file_count: int = 0
    reason: str | None = None
    """Why it was removed."""


class ParquetMetadata:
    """A ``_metadata`` that lies there.

    Raises:
        FormatError: It is none, or damaged.
    """

    def __init__(self, fetched: FetchedRange, path: str) -> None:
        self.fetched = fetched
        try:
            self._metadata = pq.read_metadata(pa.BufferReader(fetched.data))
        except (pa.ArrowException, OSError) as error:
            raise FormatError(f"it is no footer of Parquet: {error}", kind="DamagedMetadata", path=path) from error
        self._row_groups: dict[str, list[int]] = {}
        for number in range(self._metadata.num_row_groups):
            row_group = self._metadata.row_group(number)
            name = row_group.column(0).file_path if row_group.num_columns else None
            self._row_groups.setdefault(name or "", []).append(number)

    @property
    def is_ours(self) -> bool:
        """Whether this library wrote it."""
        return _OURS.encode() in (self._metadata.metadata or {})

    @property
    def file_names(self) -> Collection[str]:
        """The files that it describes, by their paths in the table; none without row groups."""
        return self._row_groups.keys()

    def row_count(self, name: str) -> int:
        """Return how many rows it gives to a file."""
        return sum(self._metadata.row_group(number).num_rows for number in self._row_groups.get(name, ()))

    def describes(self, name: str, footer: bytes) -> bool:
        """Tell whether it says of a file what the footer says: of one by another writer, whether it counts as many rows."""
        theirs = _read(name, footer)
        numbers = self._row_groups.get(name, [])
        if not self.is_ours:
            return self.row_count(name) == theirs.num_rows
        return (
            len(numbers) == theirs.num_row_groups
            and self._metadata.schema.equals(theirs.schema)
            and all(
                self._metadata.row_group(number).equals(theirs.row_group(place)) for place, number in enumerate(numbers)
            )
        )

    def kept(self, names: Collection[str]) -> dict[str, _Described]:
        """Return what it says of these files, where it describes them."""
        content = self.fetched.data[len(PARQUET_MAGIC) : -PARQUET_TAIL_BYTES]
        all_row_groups = raw_elements(content, FileMetaData, "row_groups")
        shared = _Shared(self._metadata, content)
        return {
            name: _Described(name, shared, [all_row_groups[number] for number in numbers], self.row_count(name))
            for name, numbers in self._row_groups.items()
            if name in names
        }

    def findings(self, locations: Sequence[PartitionLocation], table_path: str) -> tuple[Finding, ...]:
        """Say what does not fit the table as a whole."""
        files = {file_name(location, table_path) for location in locations}
        gone = sorted(set(self.file_names) - files)
        native = [location.name for location in locations if location.is_native]
        wrong = [f"it describes {few_names(gone)}, no part of the table"] if gone else []
        wrong += [f"it lacks {few_names(native)}, in QuestDB's native format"] if native else []
        return tuple(_finding(message) for message in wrong)


def _finding(message: str) -> Finding:
    return Finding(
        severity="error",
        kind="ParquetMetadataDiffers",
        message=f"{PARQUET_METADATA_FILE} does not fit the table, and readers of Arrow trust it: {message}",
        remedy=WRITE_AGAIN,
    )


async def read_parquet_metadata(store: ObjectStore, table_path: str) -> ParquetMetadata | Finding | None:
    """Read the ``_metadata`` of a table; a finding where that is damaged. 1 request, more for one above 16 MiB."""
    path = f"{table_path}/{PARQUET_METADATA_FILE}"
    try:
        fetched = await read_whole(store, path, reason=_REASON)
        return await asyncio.to_thread(ParquetMetadata, fetched, path)
    except NotFoundError:
        return None
    except FormatError as error:
        return _finding(error.message)


def compare_with_metadata(
    metadata: ParquetMetadata, location: PartitionLocation, table_path: str, footer: bytes
) -> tuple[Finding, ...]:
    """Compare what a ``_metadata`` says of one file with its footer."""
    if metadata.describes(file_name(location, table_path), footer):
        return ()
    return (_finding("it says something else than the footer, so they may miss rows, or read wrong ones"),)


def file_name(location: PartitionLocation, table_path: str) -> str:
    """Return the path of a file in the table, by which a ``_metadata`` names it."""
    return location.data_path.removeprefix(f"{table_path.rstrip('/')}/")


class ParquetMetadataWriter:
    """Writes the ``_metadata`` of a table, or renews it.

    Args:
        store: Where the table lies; it should pin versions.
        table_path: Its directory.
        options: How to read.
        make: Write one where there is none, or one by another writer; failures are raised, and leave what is there. Without, ours
            is renewed, or removed where it cannot be.
        dry_run: Write nothing.
    """

    def __init__(
        self, store: CheckedStore, table_path: str, options: ReadOptions, *, make: bool, dry_run: bool
    ) -> None:
        self._store = store
        self._table_path = table_path
        self._path = f"{table_path}/{PARQUET_METADATA_FILE}"
        self._options = options
        self._make = make
        self._dry_run = dry_run
        self._existing: ParquetMetadata | Finding | None = None
        self._is_looked_up = False

    async def is_due(self) -> bool:
        """Tell whether there is one to renew, or one to make. 1 request the first time, see :func:`read_parquet_metadata`."""
        if not self._is_looked_up:
            self._existing, self._is_looked_up = await read_parquet_metadata(self._store, self._table_path), True
        return self._make or (isinstance(self._existing, ParquetMetadata) and self._existing.is_ours)

    async def write(
        self, locations: Sequence[PartitionLocation], *, changed: Collection[str] | None
    ) -> WrittenParquetMetadata | None:
        """Write it, if that is due; None if not.

        Requests: those of :meth:`is_due`; 1 or 2 for the footer of each partition, but for those that the old one describes and
        that are not among the ``changed``; 1 to write, none if nothing is new.

        Raises:
            UnsupportedError: Partitions are native, or have other columns than others.
            ObjectChangedError: Somebody else wrote it at the same time.
        """
        if not await self.is_due():
            return None
        existing = self._existing if isinstance(self._existing, ParquetMetadata) else None
        try:
            described = await self._describe(locations, existing, changed)
            data = await asyncio.to_thread(_encode, described, self._table_path)
            is_new = existing is None or existing.fetched.data != data
            if is_new and not self._dry_run:
                await self._put(data)
        except InternalError:
            raise
        except ColdParquetError as error:
            if self._make:
                raise
            if self._dry_run:
                return WrittenParquetMetadata(action="would remove", reason=error.message)
            await self._store.delete([self._path])
            return WrittenParquetMetadata(action="removed", reason=error.message)
        action: ParquetMetadataAction = "unchanged" if not is_new else "would write" if self._dry_run else "written"
        return WrittenParquetMetadata(action=action, size_bytes=len(data), file_count=len(described))

    async def remove(self) -> str | None:
        """Remove what is there after a failure; return what to do where that fails, too. 1 or 2 requests."""
        try:
            if await self.is_due() and not self._make:
                await self._store.delete([self._path])
        except ColdParquetError as error:
            return f"{self._path} may be of an older state ({error.message}): 'coldparquet pack --parquet-metadata' renews it"
        return None

    async def _describe(
        self, locations: Sequence[PartitionLocation], existing: ParquetMetadata | None, changed: Collection[str] | None
    ) -> list[_Described]:
        native = [location.name for location in locations if location.is_native]
        if native or not locations:
            raise UnsupportedError(
                f"in QuestDB's native format are {few_names(native)}, whose rows readers of {PARQUET_METADATA_FILE} would miss;"
                " 'coldparquet publish' makes a copy in Parquet"
                if native
                else f"a {PARQUET_METADATA_FILE} describes files, and the table has none",
                kind="NoParquet",
                path=self._table_path,
            )
        kept: dict[str, _Described] = {}
        if existing is not None and existing.is_ours and changed is not None:
            trusted = {
                file_name(location, self._table_path): location
                for location in locations
                if location.name not in changed
            }
            kept = await asyncio.to_thread(existing.kept, trusted)
            kept = {name: one for name, one in kept.items() if _has_rows(trusted[name], one.row_count)}

        async def describe(location: PartitionLocation) -> _Described:
            name = file_name(location, self._table_path)
            if name in kept:
                return kept[name]
            footer = await Partition(location, self._store, self._options).read_footer_bytes()
            return await asyncio.to_thread(_described, name, footer)

        return await map_or_cancel(describe, locations, at_once=self._options.max_concurrency)

    async def _put(self, data: bytes) -> None:
        etag = self._existing.fetched.etag if isinstance(self._existing, ParquetMetadata) else None
        try:
            await self._store.put(self._path, data, overwrite=self._existing is not None, if_match=etag)
        except (ObjectChangedError, InvalidInputError) as error:
            if isinstance(error, InvalidInputError) and error.kind != "AlreadyExists":
                raise
            raise ObjectChangedError(
                f"somebody else wrote {PARQUET_METADATA_FILE} at the same time; pack the table again",
                kind="MetadataConflict",
                path=self._path,
            ) from error


def _has_rows(location: PartitionLocation, row_count: int) -> bool:
    return location.record is None or location.record.row_count == row_count


class _Shared:
    """What a footer says of all its row groups."""

    def __init__(self, metadata: pq.FileMetaData, content: bytes) -> None:
        self.schema = metadata.schema
        self.created_by: str = metadata.created_by
        self.content = content
        self._fields = {field.number: field.value for field in parse_fields(content)}

    @property
    def key_values(self) -> list[bytes]:
        """Further metadata, as bytes."""
        found = self._fields.get(FileMetaData.number("key_value_metadata"))
        return [] if found is None else parse_structure_list(found)

    @property
    def column_orders(self) -> bytes | None:
        """The order of bounds, as bytes."""
        return self._fields.get(FileMetaData.number("column_orders"))


@dataclass(frozen=True, slots=True)
class _Described:
    """One file, as a ``_metadata`` describes it."""

    name: str
    shared: _Shared
    row_groups: list[bytes]
    row_count: int


def _read(name: str, footer: bytes) -> pq.FileMetaData:
    """Let Arrow read a footer, and name its file."""
    metadata = pq.read_metadata(pa.BufferReader(PARQUET_MAGIC + frame_footer(footer)))
    metadata.set_file_path(name)
    return metadata


def _described(name: str, footer: bytes) -> _Described:
    metadata: Any = _read(name, footer)
    sink = pa.BufferOutputStream()
    metadata.write_metadata_file(sink)
    content = sink.getvalue().to_pybytes()[len(PARQUET_MAGIC) : -PARQUET_TAIL_BYTES]
    row_groups = raw_elements(content, FileMetaData, "row_groups")
    return _Described(name, _Shared(metadata, content), row_groups, metadata.num_rows)


def _encode(files: Sequence[_Described], table_path: str) -> bytes:
    """Make one footer of those of all files; what these do not all say of themselves is left out."""
    distinct = list({id(one.shared): one for one in files}.values())
    first = distinct[0].shared
    for other in distinct[1:]:
        if not other.shared.schema.equals(first.schema):
            raise UnsupportedError(
                f"a {PARQUET_METADATA_FILE} describes files of the same columns, but {distinct[0].name} and {other.name} differ in"
                f" {_difference(first, other.shared)}; 'coldparquet convert --to-format parquet' makes a copy in which they are the same",
                kind="DifferentColumns",
                path=table_path,
            )
    writers = {one.shared.created_by for one in distinct}
    doubtful = [name for name in writers if misorders_decimals(name) or leaves_out_dictionary_headers(name)]
    if doubtful and len(writers) > 1:
        raise UnsupportedError(
            f"some of the files are by {doubtful[0]}, whose footers readers understand in another way than those of the others;"
            " write these files anew",
            kind="DifferentWriters",
            path=table_path,
        )
    counts = Counter(entry for one in distinct for entry in set(one.shared.key_values))
    key_values = [entry for entry in first.key_values if counts[entry] == len(distinct)]
    mark = KeyValue(key=_OURS, value=PARQUET_METADATA_FILE).encode()
    changes: dict[str, Any] = (
        {} if _are_equal(one.shared.column_orders for one in distinct) else {"column_orders": None}
    )
    content = edited(
        first.content,
        FileMetaData,
        num_rows=sum(one.row_count for one in files),
        row_groups=[row_group for one in files for row_group in one.row_groups],
        key_value_metadata=[*(entry for entry in key_values if entry != mark), mark],
        **changes,
    )
    return PARQUET_MAGIC + frame_footer(content)


def _are_equal(values: Iterable[bytes | None]) -> bool:
    return len(set(values)) == 1


def _difference(one: _Shared, other: _Shared) -> str:
    """Name the columns that are not the same in two footers."""
    columns: list[Mapping[str, str]] = [
        {column.path: str(column) for column in (shared.schema.column(number) for number in range(len(shared.schema)))}
        for shared in (one, other)
    ]
    names = [name for name in {**columns[0], **columns[1]} if columns[0].get(name) != columns[1].get(name)]
    return f"{plural(len(names), 'column')} ({few_names(names)})" if names else "the order of columns, or in their ids"

"""Reads and checks the destination of a published table, and writes the objects beside its partitions."""

from __future__ import annotations

import asyncio
import json
import os
import re
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from coldparquet.catalog.cold_storage import refuse_place_of_others
from coldparquet.catalog.discovery import PUBLISHING_FILE
from coldparquet.catalog.table_files import (
    COLUMN_VERSIONS_FILE,
    METADATA_FILE,
    TRANSACTION_FILE,
    column_versions_copy_name,
    metadata_copy_name,
)
from coldparquet.errors import FormatError, InvalidInputError, NotFoundError, ObjectChangedError
from coldparquet.format.native import (
    CHARS_EXTENSION,
    OFFSETS_EXTENSION,
    encode_column_versions,
    parse_column_versions,
    symbol_file_name,
    symbol_offsets_range,
)
from coldparquet.format.partition_names import is_partition_name
from coldparquet.format.table_metadata import encode_table_metadata, parse_table_metadata
from coldparquet.format.txn import parse_txn
from coldparquet.publish.native import NativeState
from coldparquet.ranges import ByteRange
from coldparquet.storage.checked import CheckedStore, read_whole
from coldparquet.storage.local import LocalStore
from coldparquet.storage.requests import RangeRequest
from coldparquet.text import few_names
from coldparquet.write.upload import PART_BYTES, StoreSource, upload_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coldparquet.format.table_metadata import TableMetadata
    from coldparquet.format.txn import TableTransaction
    from coldparquet.publish.source import SourceTable
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.requests import ObjectInfo
    from coldparquet.write.upload import MemoryBudget, UploadSource


_DATABASE_FILE = "_todo_"
"""Exists in every table directory of QuestDB, and in no published table: it is not copied."""


def check_destination(source: SourceTable, published: PublishedTable) -> None:
    """Refuse to publish a table onto itself, or over a table that a database writes to.

    The published `_txn` names no native partitions. It would lose the rows of the source's own native partitions if it
    replaced the source's `_txn`. No request; the paths of local files are resolved.
    """
    is_local = published.store.label == LocalStore.label
    if source.store.label == published.store.label:
        places = [os.path.realpath(path) if is_local else path for path in (source.path, published.path)]
        inner, outer = sorted((f"{place.rstrip('/')}/" for place in places), key=len, reverse=True)
        if inner.startswith(outer):
            raise InvalidInputError(
                f"the table would be published to where it lies itself ({source.path}); publish to another place",
                kind="SamePlace",
                path=published.path,
            )
    # A copy in a bucket has this file too, but no database can write to it.
    if is_local and _DATABASE_FILE in published.objects:
        raise InvalidInputError(
            f"this is a table directory of a QuestDB (it has a file {_DATABASE_FILE}), and the rows of its native partitions"
            " would be lost; publish to another place. If no database uses this copy, remove the file",
            kind="DatabaseDirectory",
            path=published.path,
        )
    _check_contents(published)


def _check_contents(published: PublishedTable) -> None:
    """Refuse a destination with partitions that no publisher has written."""
    version = published.version
    if version is not None:
        if not version.transaction.partitions.is_parquet.all():
            raise InvalidInputError(
                "the table there has native partitions, so nobody has published it, and their rows would be lost; publish"
                " to another place",
                kind="NotPublished",
                path=published.path,
            )
        return
    foreign = sorted(name for name in published.directories if is_partition_name(name))
    if foreign and PUBLISHING_FILE not in published.objects:
        raise InvalidInputError(
            f"partitions lie there that belong to no published table ({few_names(foreign)}), and readers would no longer"
            " see them; publish to another place, or move them away",
            kind="NotPublished",
            path=published.path,
        )


async def put_once(store: ObjectStore, path: str, data: bytes) -> None:
    """Write a small immutable object; an equal one may exist already. 1 or 2 requests."""
    try:
        await store.put(path, data, overwrite=False)
    except InvalidInputError as error:
        if error.kind != "AlreadyExists":
            raise
        if (await read_whole(store, path)).data != data:
            raise InvalidInputError(
                "the object exists with other contents, although its name stands for one version of the table: it"
                " belongs to another table, or this one was restored from a backup; publish to an empty place",
                kind="AlreadyExists",
                path=path,
            ) from None


def publisher_conflict(path: str) -> ObjectChangedError:
    """Make the error for the later of two concurrent publishers."""
    return ObjectChangedError(
        "another publisher is writing to this table; readers see nothing of this run. Wait until it is done and publish"
        " again: what has been copied so far is not copied twice",
        kind="PublisherConflict",
        path=path,
    )


_MANIFEST_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of one published version, and its origin: the object ``_published.v...``."""

    directories: frozenset[str]
    """Names of its partitions' directories."""
    metadata_version: int
    column_version: int
    source_name_txns: Mapping[str, int]
    """By directory: the version that the partition had in the source, where that is not the published one."""
    native_states: Mapping[str, NativeState] = field(default_factory=dict)
    """By directory: the native partition that it was converted from, where it was."""
    previous: str | None
    """Name of the manifest of the version that it replaced, even if that does not exist; None for the first version."""

    def encode(self) -> bytes:
        """Return the object; equal manifests have equal bytes."""
        document: dict[str, Any] = {
            "format": _MANIFEST_FORMAT,
            "directories": sorted(self.directories),
            "metadata_version": self.metadata_version,
            "column_version": self.column_version,
            "source_name_txns": dict(sorted(self.source_name_txns.items())),
            "previous": self.previous,
        }
        if self.native_states:
            states = sorted(self.native_states.items())
            document["native_states"] = {name: state.as_json() for name, state in states}
        return json.dumps(document, indent=0).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedVersion:
    """The version that readers see."""

    transaction: TableTransaction
    data: bytes
    """The `_txn`."""
    etag: str | None
    """None where the store has no versions."""
    metadata: TableMetadata
    manifest: Manifest | None
    """None where the table was not published by this library."""

    @property
    def manifest_name(self) -> str:
        """Name of its manifest, even if that does not exist."""
        return manifest_name(self.transaction.txn, self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTable:
    """The content of the destination."""

    store: ObjectStore
    path: str
    """Without a trailing slash."""
    directories: frozenset[str]
    """Names of all directories, of all versions."""
    objects: Mapping[str, ObjectInfo]
    """By name: the objects beside the partitions."""
    version: PublishedVersion | None
    """None where nothing is published yet, or an earlier run did not commit."""


def manifest_name(txn: int, transaction_data: bytes) -> str:
    """Return the name of the manifest for a `_txn`: it changes whenever those bytes do."""
    return f"_published.v{txn}-{zlib.crc32(transaction_data):08x}"


def parse_manifest(data: bytes, *, path: str) -> Manifest:
    """Parse a manifest."""
    try:
        document: dict[str, Any] = json.loads(data)
        manifest = Manifest(
            directories=frozenset(map(str, document["directories"])),
            metadata_version=int(document["metadata_version"]),
            column_version=int(document["column_version"]),
            source_name_txns={str(name): int(txn) for name, txn in document["source_name_txns"].items()},
            native_states={
                str(name): NativeState.from_json(state) for name, state in document.get("native_states", {}).items()
            },
            previous=None if document["previous"] is None else str(document["previous"]),
        )
        is_known = document["format"] == _MANIFEST_FORMAT
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        is_known = False
    if not is_known:
        raise FormatError(
            "this is no list of published partitions that this version understands; remove it, and partitions that were"
            " updated in place are published once more",
            path=path,
            field="_published",
        )
    return manifest


async def read_published(store: ObjectStore, path: str) -> PublishedTable:
    """Read the content of the destination. 1 request per 1,000 entries to list it, then up to 3 for small objects.

    Before the first publication 1 HEAD, see :func:`~coldparquet.catalog.layouts.refuse_place_of_others`.
    """
    try:
        listing = await store.list(path)
    except NotFoundError:
        await refuse_place_of_others(store, path, (), ())
        return PublishedTable(store=store, path=path, directories=frozenset(), objects={}, version=None)
    objects = {info.path.rpartition("/")[2]: info for info in listing.objects}
    directories = frozenset(directory.rpartition("/")[2] for directory in listing.directories)
    if TRANSACTION_FILE not in objects:
        await refuse_place_of_others(store, path, directories, objects)
    return PublishedTable(
        store=store,
        path=path,
        directories=directories,
        objects=objects,
        version=await _read_version(store, path, objects) if TRANSACTION_FILE in objects else None,
    )


async def _read_version(store: ObjectStore, path: str, objects: Mapping[str, ObjectInfo]) -> PublishedVersion:
    found = await read_whole(store, f"{path}/{TRANSACTION_FILE}")
    transaction = await asyncio.to_thread(parse_txn, found.data, path=f"{path}/{TRANSACTION_FILE}")
    copy = metadata_copy_name(transaction.metadata_version)
    metadata_path = f"{path}/{copy if copy in objects else METADATA_FILE}"
    metadata = parse_table_metadata((await read_whole(store, metadata_path)).data, path=metadata_path)
    manifest_path = f"{path}/{manifest_name(transaction.txn, found.data)}"
    manifest = None
    if manifest_path.rpartition("/")[2] in objects:
        manifest = parse_manifest((await read_whole(store, manifest_path)).data, path=manifest_path)
    return PublishedVersion(
        transaction=transaction, data=found.data, etag=found.etag, metadata=metadata, manifest=manifest
    )


def copy_version(name: str) -> tuple[str, int] | None:
    """Return file and version of the name of an immutable copy; None for other names."""
    match = re.fullmatch(r"(_meta|_cv)\.v(\d{1,19})", name, re.ASCII)
    return None if match is None else (match[1], int(match[2]))


_NAME_FILE = "_name"
_OFFSET_BYTES = 8
_INDEX_EXTENSIONS = ("k", "v")
"""Files of the index from strings to keys, which only a running database needs."""


@dataclass(frozen=True, slots=True)
class BytesSource:
    """Bytes in memory to upload."""

    data: bytes

    @property
    def size_bytes(self) -> int:
        """Number of bytes."""
        return len(self.data)

    async def read(self, byte_range: ByteRange) -> bytes:
        """Return these bytes."""
        return self.data[byte_range.start : byte_range.stop]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableObject:
    """One object to write."""

    name: str
    content: UploadSource
    is_immutable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableObjects:
    """The objects to write beside the partitions, in this order, before `_txn`."""

    objects: tuple[TableObject, ...]
    notes: tuple[str, ...]


async def plan_table_objects(
    source: SourceTable, published: PublishedTable, *, manifest: Manifest, transaction_data: bytes
) -> TableObjects:
    """Find the objects beside the partitions that are missing or older than the source's.

    Requests at the destination: 1 for `_name`, and 1 for `_cv` where the previous publisher left no immutable copy.
    """
    objects = await _copies_of_published(published)
    metadata = encode_table_metadata(source.metadata)
    column_versions = encode_column_versions(source.column_versions)
    transaction = source.transaction
    copies = {
        metadata_copy_name(transaction.metadata_version): metadata,
        column_versions_copy_name(transaction.column_version): column_versions,
    }
    objects += [
        TableObject(name=name, content=BytesSource(data), is_immutable=True)
        for name, data in copies.items()
        if _listed_size(published, name) != len(data)
    ]
    if published.version is None or manifest is not published.version.manifest:
        # Replaced where an uncommitted run has left one, which may name another previous version.
        name = manifest_name(transaction.txn, transaction_data)
        objects.append(TableObject(name=name, content=BytesSource(manifest.encode()), is_immutable=False))
    symbols, notes = await _symbol_objects(source, published)
    objects += symbols
    objects += await _name_object(source, published)
    before = None if published.version is None else published.version.transaction
    for name, data, is_current in (
        (METADATA_FILE, metadata, before is not None and before.metadata_version == transaction.metadata_version),
        (
            COLUMN_VERSIONS_FILE,
            column_versions,
            before is not None and before.column_version == transaction.column_version,
        ),
    ):
        if not is_current or _listed_size(published, name) != len(data):
            objects.append(TableObject(name=name, content=BytesSource(data), is_immutable=False))
    return TableObjects(objects=tuple(objects), notes=tuple(notes))


async def write_table_object(published: PublishedTable, wanted: TableObject, *, memory: MemoryBudget) -> None:
    """Write one object; if it replaces one, that must be unchanged since this run began.

    Objects above 16 MiB, which only symbol files can be, are replaced without a condition.
    """
    store, path = published.store, f"{published.path}/{wanted.name}"
    size_bytes = wanted.content.size_bytes
    if size_bytes > PART_BYTES and not wanted.is_immutable:
        await upload_object(store, path, wanted.content, overwrite=True, memory=memory)
        return
    async with memory.holding(size_bytes):
        data = await wanted.content.read(ByteRange(0, size_bytes))
        if wanted.is_immutable:
            await put_once(store, path, data)
        else:
            found = published.objects.get(wanted.name)
            await _replace(store, path, data, is_there=found is not None, etag=None if found is None else found.etag)


async def announce(published: PublishedTable) -> None:
    """Mark a destination without a published version as incomplete for readers. 1 request."""
    await published.store.put(f"{published.path}/{PUBLISHING_FILE}", b"", overwrite=True)


async def commit(published: PublishedTable, transaction_data: bytes) -> None:
    """Replace `_txn`, which makes the new version visible to readers.

    1 request; 2 where the store has no versions. There, a publisher that commits between the two goes unnoticed.
    """
    store, path, version = published.store, f"{published.path}/{TRANSACTION_FILE}", published.version
    if version is not None and version.etag is None and (await read_whole(store, path)).data != version.data:
        raise publisher_conflict(path)
    etag = None if version is None else version.etag
    await _replace(store, path, transaction_data, is_there=version is not None, etag=etag)


async def _replace(store: ObjectStore, path: str, data: bytes, *, is_there: bool, etag: str | None) -> None:
    try:
        await store.put(path, data, overwrite=is_there, if_match=etag)
    except ObjectChangedError as error:
        raise publisher_conflict(path) from error
    except InvalidInputError as error:
        if error.kind != "AlreadyExists":
            raise
        raise publisher_conflict(path) from error


async def _copies_of_published(published: PublishedTable) -> list[TableObject]:
    """Return the immutable copies that readers of the published version need once `_meta` and `_cv` are replaced."""
    if published.version is None:
        return []
    transaction = published.version.transaction
    missing = []
    name = metadata_copy_name(transaction.metadata_version)
    if name not in published.objects and published.version.metadata.metadata_version == transaction.metadata_version:
        data = encode_table_metadata(published.version.metadata)
        missing.append(TableObject(name=name, content=BytesSource(data), is_immutable=True))
    name = column_versions_copy_name(transaction.column_version)
    if name not in published.objects and COLUMN_VERSIONS_FILE in published.objects:
        path = f"{published.path}/{COLUMN_VERSIONS_FILE}"
        versions = parse_column_versions((await read_whole(published.store, path)).data, path=path)
        if versions.version == transaction.column_version:
            data = encode_column_versions(versions)
            missing.append(TableObject(name=name, content=BytesSource(data), is_immutable=True))
    return missing


async def _symbol_objects(source: SourceTable, published: PublishedTable) -> tuple[list[TableObject], list[str]]:
    """Return the symbol files that have grown. They are only appended to, so that an equal size means equal contents."""
    objects: list[TableObject] = []
    missing: list[str] = []
    for column in source.metadata.columns:
        if column.symbol_index is None:
            continue
        name_txn = source.column_versions.symbol_name_txn(column.writer_index)
        count = source.transaction.symbol_counts[column.symbol_index]
        names = {
            extension: symbol_file_name(column.name, extension, name_txn)
            for extension in (OFFSETS_EXTENSION, CHARS_EXTENSION, *_INDEX_EXTENSIONS)
        }
        offsets_bytes = symbol_offsets_range(count).stop
        try:
            sizes = {
                OFFSETS_EXTENSION: offsets_bytes,
                CHARS_EXTENSION: await _characters_bytes(
                    source.store, f"{source.path}/{names[OFFSETS_EXTENSION]}", offsets_bytes
                ),
            }
            if all(_listed_size(published, names[extension]) == size for extension, size in sizes.items()):
                continue
            # The index goes first: if both other files are complete, the index was written too.
            index_sizes = {
                extension: (await source.store.info(f"{source.path}/{names[extension]}")).size_bytes or 0
                for extension in _INDEX_EXTENSIONS
            }
        except NotFoundError:
            missing.append(column.name)
            continue
        objects += [
            TableObject(
                name=names[extension],
                content=StoreSource(CheckedStore(source.store), f"{source.path}/{names[extension]}", size_bytes=size),
                is_immutable=False,
            )
            for extension, size in {**index_sizes, **sizes}.items()
        ]
    if not missing:
        return objects, []
    note = f"the symbol files of {', '.join(missing)} are not there: the published table can be read, but not restored"
    return objects, [note]


async def _characters_bytes(store: ObjectStore, path: str, offsets_bytes: int) -> int:
    """Return how many bytes of `COLUMN.c` belong to the transaction: the last offset in `COLUMN.o`."""
    last = ByteRange(offsets_bytes - _OFFSET_BYTES, offsets_bytes)
    request = RangeRequest(path=path, byte_range=last, reason="symbols", may_grow=True)
    data = (await CheckedStore(store).get(request)).data
    return max(int.from_bytes(data, "little", signed=True), 0)


async def _name_object(source: SourceTable, published: PublishedTable) -> list[TableObject]:
    try:
        name = (await read_whole(source.store, f"{source.path}/{_NAME_FILE}")).data
    except NotFoundError:  # QuestDB needs it, readers do not
        return []
    if (
        _NAME_FILE in published.objects
        and (await read_whole(published.store, f"{published.path}/{_NAME_FILE}")).data == name
    ):
        return []
    return [TableObject(name=_NAME_FILE, content=BytesSource(name), is_immutable=False)]


def _listed_size(published: PublishedTable, name: str) -> int | None:
    found = published.objects.get(name)
    return None if found is None else found.size_bytes

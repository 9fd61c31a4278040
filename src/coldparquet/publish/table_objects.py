"""The objects beside the partitions: immutable copies by version, then what is replaced, each on a condition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldparquet.catalog.discovery import PUBLISHING_FILE
from coldparquet.catalog.table_files import (
    COLUMN_VERSIONS_FILE,
    METADATA_FILE,
    TRANSACTION_FILE,
    column_versions_copy_name,
    metadata_copy_name,
)
from coldparquet.errors import InvalidInputError, NotFoundError, ObjectChangedError
from coldparquet.format.column_versions import encode_column_versions, parse_column_versions
from coldparquet.format.symbol_files import (
    CHARS_EXTENSION,
    OFFSETS_EXTENSION,
    symbol_file_name,
    symbol_offsets_range,
)
from coldparquet.format.table_metadata_writer import encode_table_metadata
from coldparquet.publish.objects import publisher_conflict, put_once
from coldparquet.publish.published import manifest_name
from coldparquet.ranges import ByteRange
from coldparquet.storage.requests import RangeRequest
from coldparquet.storage.upload import PART_BYTES, StoreSource, upload_object
from coldparquet.storage.whole_object import read_whole
from coldparquet.storage.wrappers.checked import CheckedStore

if TYPE_CHECKING:
    from coldparquet.publish.published import Manifest, PublishedTable
    from coldparquet.publish.source import SourceTable
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.upload import MemoryBudget, UploadSource

_NAME_FILE = "_name"
_OFFSET_BYTES = 8
_INDEX_EXTENSIONS = ("k", "v")
"""Files of the index from strings to keys, which only a running database needs."""


@dataclass(frozen=True, slots=True)
class BytesSource:
    """Bytes in memory, to be uploaded."""

    data: bytes

    @property
    def size_bytes(self) -> int:
        """How many there are."""
        return len(self.data)

    async def read(self, byte_range: ByteRange) -> bytes:
        """Return these bytes."""
        return self.data[byte_range.start : byte_range.stop]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableObject:
    """One object to be written."""

    name: str
    content: UploadSource
    is_immutable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableObjects:
    """What has to be written beside the partitions, in this order, before `_txn`."""

    objects: tuple[TableObject, ...]
    notes: tuple[str, ...]


async def plan_table_objects(
    source: SourceTable, published: PublishedTable, *, manifest: Manifest, transaction_data: bytes
) -> TableObjects:
    """Find out which objects beside the partitions are missing or older than the source's.

    Requests at the destination: 1 for `_name`, and 1 for `_cv` where whoever published before left no immutable copy.

    Raises:
        FormatError: A table file is damaged.
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
        # Replaced where a run has left one that never committed: it may tell of another version before it.
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
    """Write one object; one that is replaced must be the one that was there when this run began.

    Objects above 16 MiB, which only symbol files can be, are replaced without a condition.

    Raises:
        ObjectChangedError: Another publisher has written it meanwhile (kind ``PublisherConflict``).
        InvalidInputError: An immutable object of this name has other contents (kind ``AlreadyExists``).
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
    """Tell readers of a place where nothing is published yet that its partitions are not all there. 1 request."""
    await published.store.put(f"{published.path}/{PUBLISHING_FILE}", b"", overwrite=True)


async def commit(published: PublishedTable, transaction_data: bytes) -> None:
    """Replace `_txn`: the moment in which readers see the new version.

    1 request; 2 where the store tells no versions, and there a publisher that comes in between them is not noticed.

    Raises:
        ObjectChangedError: Another publisher has committed meanwhile (kind ``PublisherConflict``).
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
            # The index goes first: whoever finds both of the others complete knows that it was written too.
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

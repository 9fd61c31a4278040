"""Writes partitions to the destination, data first, the sidecar last, and removes obsolete versions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from coldparquet.catalog.discovery import is_manifest_name
from coldparquet.catalog.pages import PAGES_FILE
from coldparquet.catalog.table_files import (
    DATA_FILE,
    SIDECAR_FILE,
    TRANSACTION_FILE,
    column_versions_copy_name,
    metadata_copy_name,
)
from coldparquet.errors import FormatError, InvalidInputError, NotFoundError, ObjectChangedError, UnsupportedError
from coldparquet.format.partition_names import parse_partition_directory
from coldparquet.format.partition_records import NOT_STATED
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.publish.destination import (
    copy_version,
    parse_manifest,
    publisher_conflict,
    read_published,
)
from coldparquet.publish.source import read_content, record_of, source_changed
from coldparquet.records import replace
from coldparquet.storage.checked import read_whole
from coldparquet.write.upload import is_same_object, upload_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldparquet.format.partition_records import PartitionRecord
    from coldparquet.publish.changes import DirectoryVersion, NewPartition
    from coldparquet.publish.destination import Manifest, PublishedTable, PublishedVersion
    from coldparquet.publish.native import NativeConverter
    from coldparquet.publish.source import PartitionContent, SourceTable
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.requests import ObjectInfo
    from coldparquet.write.upload import MemoryBudget


async def purge_versions(store: ObjectStore, path: str, *, before_s: float, is_dry_run: bool) -> tuple[str, ...]:
    """Remove versions of partitions and copies of table files that no reader can have used since a time.

    A reader that opened the table before a commit may still use the version that the commit replaced. So the objects of
    a version are removed only if its successor was committed before ``before_s``, and if none of them was written
    since. A concurrent publisher has not yet named the directories that it has just written, so ``before_s`` must be
    before its start.

    Requests: 1 listing per 1,000 names and up to 3 for table files; 1 for the manifest of each version that is kept; 1
    for each directory that none of them names; 1 per 1,000 objects that are removed, and those of
    :meth:`~coldparquet.storage.base.ObjectStore.remove_unfinished`.
    """
    published = await read_published(store, path)
    version = published.version
    if version is None:
        return ()
    if any(info.modified_s is None for info in published.objects.values()):
        raise UnsupportedError(
            f"{store.label} does not tell when objects were written, so nobody knows what is old; remove old versions by"
            " hand",
            kind="NoTimes",
            path=path,
        )
    needed = await _needed_manifests(store, published, version, before_s)
    if needed is None:
        return ()
    directories = frozenset[str]().union(*(manifest.directories for manifest in needed.values()))
    kept_names = {
        *needed,
        *(metadata_copy_name(manifest.metadata_version) for manifest in needed.values()),
        *(column_versions_copy_name(manifest.column_version) for manifest in needed.values()),
    }
    old_objects = [
        info
        for name, info in published.objects.items()
        if (is_manifest_name(name) or copy_version(name)) and name not in kept_names and _is_old(info, before_s)
    ]
    interval = version.metadata.interval
    purged = []
    for name in sorted(published.directories - directories):
        if parse_partition_directory(name, interval=interval) is None:
            continue  # not an object of this library
        try:
            inside = (await store.list(f"{path}/{name}")).objects
        except NotFoundError:
            continue
        # Another publisher may be about to write into an empty one, as a local disk keeps it.
        if inside and all(_is_old(info, before_s) for info in inside):
            purged.append(name)
            old_objects += inside
    purged += [info.path.rpartition("/")[2] for info in old_objects if info.path.rpartition("/")[0] == path]
    if not is_dry_run:
        await store.delete([info.path for info in old_objects])
        await store.remove_unfinished(path, started_before_s=before_s)
    return tuple(purged)


async def _needed_manifests(
    store: ObjectStore, published: PublishedTable, version: PublishedVersion, before_s: float
) -> dict[str, Manifest] | None:
    """Return the manifests of the current version and of those replaced since; None if one is unknown."""
    needed: dict[str, Manifest] = {}
    name = version.manifest_name
    # Only the last version has a known time of replacement. An older one was replaced before its second successor's
    # manifest was written: that run began after the first successor's commit.
    replaced_s = _modified_s(published, TRANSACTION_FILE)
    while name in published.objects and name not in needed:  # a version that was written anew may name itself
        manifest_path = f"{published.path}/{name}"
        manifest = parse_manifest((await read_whole(store, manifest_path)).data, path=manifest_path)
        needed[name] = manifest
        if manifest.previous is None or replaced_s < before_s:
            return needed
        replaced_s = _modified_s(published, name)
        name = manifest.previous
    return None


def _modified_s(published: PublishedTable, name: str) -> float:
    return published.objects[name].modified_s or 0.0


def _is_old(info: ObjectInfo, before_s: float) -> bool:
    return info.modified_s is not None and info.modified_s < before_s


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferredPartition:
    """A partition that is complete at the destination."""

    new: NewPartition
    name: str
    """Directory at the destination."""
    record: PartitionRecord
    """Its record in the published `_txn`."""
    action: Literal["published", "would publish", "converted", "would convert", "found"]
    sidecar_bytes: int
    time_bounds: tuple[int, int] | None
    native_bytes: int | None = None
    """Size of its rows in column files, where it is converted from these."""


class PartitionWriter:
    """Writes partitions of one run.

    Args:
        source: The state of the table that is published.
        published: The existing content of the destination.
        converter: Converts native partitions.
        memory: Budget for bytes that are read and not yet sent.
        is_dry_run: Only read, and write nothing.
        on_sent: Called with the number of bytes of data that arrived.
        on_converted: Called with the size of a converted native partition.
    """

    def __init__(  # noqa: PLR0913 - mostly keyword arguments
        self,
        *,
        source: SourceTable,
        published: PublishedTable,
        converter: NativeConverter,
        memory: MemoryBudget,
        is_dry_run: bool,
        on_sent: Callable[[int], None],
        on_converted: Callable[[int], None],
    ) -> None:
        self._source = source
        self._store = published.store
        self._published = published
        self._converter = converter
        self._memory = memory
        self._is_dry_run = is_dry_run
        self._on_sent = on_sent
        self._on_converted = on_converted

    async def write(self, new: NewPartition) -> TransferredPartition:
        """Write one partition, or find that a killed run has already written it.

        Requests at the destination: those of :func:`upload_object`, 1 for the sidecar and 1 for ``_pages`` if there is one;
        1 to 3 more where a directory of this name exists.
        """
        if new.native_state is None:
            return await self._write_content(new, await read_content(self._source.store, new.location))
        if self._is_dry_run:
            return await self._would_convert(new)
        async with self._converter.converted(new.location) as content:
            self._on_converted(content.data.size_bytes)
            return await self._write_content(new, content)

    async def _would_convert(self, new: NewPartition) -> TransferredPartition:
        """Report a conversion by the size of the column files: that of the Parquet file is not known before."""
        directories = self._published.directories
        free = [candidate for candidate in new.candidates if candidate.name not in directories]
        candidate = (free or new.candidates)[0]
        native_bytes = await self._converter.native_bytes(new.location)
        return TransferredPartition(
            new=new,
            name=candidate.name,
            record=_published_record(new, candidate, parquet_size=max(native_bytes, 1)),
            action="would convert",
            sidecar_bytes=0,
            time_bounds=None,
            native_bytes=native_bytes,
        )

    async def _write_content(self, new: NewPartition, content: PartitionContent) -> TransferredPartition:
        """Write it under the first unused name."""
        for candidate in new.candidates:
            action = await self._write_as(candidate, new, content)
            if action is None:
                continue
            is_converted = new.native_state is not None and action == "published"
            return TransferredPartition(
                new=new,
                name=candidate.name,
                record=_published_record(new, candidate, parquet_size=content.data.size_bytes),
                action="converted" if is_converted else action,
                sidecar_bytes=len(content.sidecar),
                time_bounds=content.time_bounds,
                native_bytes=content.native_bytes,
            )
        names = " and ".join(candidate.name for candidate in new.candidates)
        raise InvalidInputError(
            f"{names} exist there with other contents, left from another state of the table; remove them and publish"
            " again",
            kind="AlreadyExists",
            path=f"{self._published.path}/{new.candidates[-1].name}",
        )

    async def _write_as(
        self, candidate: DirectoryVersion, new: NewPartition, content: PartitionContent
    ) -> Literal["published", "would publish", "found"] | None:
        """Write the partition under this name; None if something else has it."""
        data_path = f"{self._published.path}/{candidate.name}/{DATA_FILE}"
        found = await self._info(data_path) if candidate.name in self._published.directories else None
        if self._is_dry_run:
            # The real run compares bytes; here a different size is evidence enough.
            return None if found is not None and found.size_bytes != content.data.size_bytes else "would publish"
        if found is None:
            is_new = await self._upload(data_path, new, content)
        else:
            is_new = False
            if not await self._is_same(found, new, content):
                return None
            self._on_sent(content.data.size_bytes)
        if content.pages is not None:
            await self._put_pages(f"{self._published.path}/{candidate.name}/{PAGES_FILE}", content.pages)
        is_new = await self._put_sidecar(f"{self._published.path}/{candidate.name}/{SIDECAR_FILE}", content) or is_new
        return "published" if is_new else "found"

    async def _info(self, path: str) -> ObjectInfo | None:
        try:
            return await self._store.info(path)
        except NotFoundError:
            return None

    async def _upload(self, path: str, new: NewPartition, content: PartitionContent) -> bool:
        """Upload the data; False if another publisher wrote the same in the meantime."""
        try:
            await upload_object(
                self._store,
                path,
                content.data,
                overwrite=False,
                memory=self._memory,
                storage_class=new.storage_class,
                on_sent=self._on_sent,
            )
        except InvalidInputError as error:
            if error.kind != "AlreadyExists":
                raise
            # S3 also refuses during another conditional write, when there may be no object yet.
            found = await self._info(path)
            if found is None or not await self._is_same(found, new, content):
                raise publisher_conflict(path) from error
            return False
        except (NotFoundError, ObjectChangedError) as error:
            if error.path == new.location.data_path:
                raise source_changed(new.location.directory_path) from error
            raise
        return True

    async def _is_same(self, found: ObjectInfo, new: NewPartition, content: PartitionContent) -> bool:
        try:
            return await is_same_object(self._store, found, content.data, memory=self._memory)
        except (NotFoundError, ObjectChangedError) as error:
            if error.path == new.location.data_path:
                raise source_changed(new.location.directory_path) from error
            raise publisher_conflict(found.path) from error

    async def _put_pages(self, path: str, pages: bytes) -> None:
        """Write the pages, unless some exist: readers check to which file they belong, and do not need them."""
        try:
            await self._store.put(path, pages, overwrite=False)
        except InvalidInputError as error:
            if error.kind != "AlreadyExists":
                raise

    async def _put_sidecar(self, path: str, content: PartitionContent) -> bool:
        """Write the sidecar; False if there is one that describes the same file, such as one made from the footer."""
        try:
            await self._store.put(path, content.sidecar, overwrite=False)
        except InvalidInputError as error:
            if error.kind != "AlreadyExists":
                raise
        else:
            return True
        theirs = (await read_whole(self._store, path)).data
        try:
            described = await asyncio.to_thread(parse_sidecar, theirs, path=path)
        except (FormatError, UnsupportedError) as error:
            raise _other_sidecar(path) from error
        if described.parquet_size_bytes != content.data.size_bytes:
            raise _other_sidecar(path)
        return False


def _published_record(new: NewPartition, candidate: DirectoryVersion, *, parquet_size: int) -> PartitionRecord:
    """Return the record of a partition for the published `_txn`."""
    return replace(
        record_of(new.location),
        name_txn=candidate.name_txn,
        is_parquet=True,
        parquet_size=parquet_size,
        native_seq_txn=NOT_STATED,
        is_parquet_generated=False,
        is_read_only=False,
        has_remote_copy=False,
    )


def _other_sidecar(path: str) -> InvalidInputError:
    return InvalidInputError(
        "there is a sidecar already that does not describe the Parquet file beside it; remove it and publish again",
        kind="AlreadyExists",
        path=path,
    )

"""Removing what no published version needs any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.catalog.table_files import TRANSACTION_FILE, column_versions_copy_name, metadata_copy_name
from coldparquet.errors import NotFoundError, UnsupportedError
from coldparquet.format.partition_names import parse_partition_directory
from coldparquet.publish.published import (
    copy_version,
    is_manifest_name,
    parse_manifest,
    read_published,
)
from coldparquet.storage.whole_object import read_whole

if TYPE_CHECKING:
    from coldparquet.publish.published import Manifest, PublishedTable, PublishedVersion
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.objects import ObjectInfo


async def purge_versions(store: ObjectStore, path: str, *, before_s: float, is_dry_run: bool) -> tuple[str, ...]:
    """Remove versions of partitions and copies of table files that nobody can have been reading since a time.

    A version that was replaced by a commit may still be read by who opened the table before. So what a version names is
    removed only if its successor was committed before ``before_s``, and if nothing of it was written since. A publisher
    that runs at the same time has not said yet which of the directories it has just written it will name: ``before_s``
    must lie before its start.

    Requests: 1 listing per 1,000 names and up to 3 for table files; 1 for the manifest of each version that is kept; 1
    for each directory that none of them names; 1 per 1,000 objects that are removed, and those of
    :meth:`~coldparquet.storage.base.ObjectStore.remove_unfinished`.

    Args:
        store: The destination.
        path: The published table, without a trailing slash.
        before_s: Seconds since 1970.
        is_dry_run: Remove nothing, and only say what would be.

    Returns:
        Names of directories and objects that were removed.

    Raises:
        UnsupportedError: The store does not tell when objects were written (kind ``NoTimes``).
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
            continue  # nothing of ours
        try:
            inside = (await store.list(f"{path}/{name}")).objects
        except NotFoundError:
            continue
        # An empty one, as a local disk keeps it, may be where another publisher is about to write.
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
    """Return the manifests of the current version and of those that were replaced since; None if one is not known."""
    needed: dict[str, Manifest] = {}
    name = version.manifest_name
    # When a version was replaced is known of the last one. For an older one it was before its second successor's
    # manifest was written: that run began with the first successor committed.
    replaced_s = _modified_s(published, TRANSACTION_FILE)
    while name in published.objects and name not in needed:  # one that was written anew may name itself
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

"""The table as it is published already, from one listing and its `_txn`."""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from coldparquet.catalog.table_files import METADATA_FILE, TRANSACTION_FILE, metadata_copy_name
from coldparquet.errors import FormatError, NotFoundError
from coldparquet.format.table_metadata import parse_table_metadata
from coldparquet.format.txn import parse_txn
from coldparquet.publish.native_state import NativeState
from coldparquet.storage.whole_object import read_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coldparquet.format.table_metadata import TableMetadata
    from coldparquet.format.txn import TableTransaction
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.objects import ObjectInfo

_MANIFEST_NAME = re.compile(r"_published\.v\d{1,19}-[0-9a-f]{8}", re.ASCII)
_MANIFEST_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What belongs to one published version, and where it came from: the object ``_published.v...``."""

    directories: frozenset[str]
    """Names of its partitions' directories."""
    metadata_version: int
    column_version: int
    source_name_txns: Mapping[str, int]
    """By directory: the version that the partition had in the source, where that is not the published one."""
    native_states: Mapping[str, NativeState] = field(default_factory=dict)
    """By directory: the native partition that it was converted from, where it was."""
    previous: str | None
    """Name of the manifest of the version that it replaced, whether there is one or not; None for the first version."""

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
    """None where the store tells no versions."""
    metadata: TableMetadata
    manifest: Manifest | None
    """None where the table was not published by this library."""

    @property
    def manifest_name(self) -> str:
        """Name of its manifest, whether there is one or not."""
        return manifest_name(self.transaction.txn, self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTable:
    """What lies at the destination."""

    store: ObjectStore
    path: str
    """Without a trailing slash."""
    directories: frozenset[str]
    """Names of all directories, of whatever version."""
    objects: Mapping[str, ObjectInfo]
    """By name: those beside the partitions."""
    version: PublishedVersion | None
    """None where nothing was published yet, or an earlier run did not get so far."""


def manifest_name(txn: int, transaction_data: bytes) -> str:
    """Return the name of the manifest that belongs to a `_txn`: it changes whenever those bytes do."""
    return f"_published.v{txn}-{zlib.crc32(transaction_data):08x}"


def is_manifest_name(name: str) -> bool:
    """Tell whether a name is one of :func:`manifest_name`."""
    return _MANIFEST_NAME.fullmatch(name) is not None


def parse_manifest(data: bytes, *, path: str) -> Manifest:
    """Parse a manifest.

    Raises:
        FormatError: It is none.
    """
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
    """Read what lies at the destination. 1 request per 1,000 entries to list it, then up to 3 at small objects.

    Raises:
        FormatError: A table file or a manifest is damaged.
        AccessError: The store refused.
        StorageError: The store failed.
    """
    try:
        listing = await store.list(path)
    except NotFoundError:
        return PublishedTable(store=store, path=path, directories=frozenset(), objects={}, version=None)
    objects = {info.path.rpartition("/")[2]: info for info in listing.objects}
    return PublishedTable(
        store=store,
        path=path,
        directories=frozenset(directory.rpartition("/")[2] for directory in listing.directories),
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

"""Reading the sidecar of one partition for the catalogue, with all by which a reader can tell that it is still the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldparquet.catalog.page_lookup import PAGES_FILE
from coldparquet.catalog.partition_location import DATA_FILE, SIDECAR_FILE
from coldparquet.catalog.sidecar_lookup import look_up_sidecar
from coldparquet.errors import AccessError, NotFoundError
from coldparquet.format.catalogue_layout import LARGEST_SIDECAR_BYTES
from coldparquet.format.catalogue_writer import PackedSidecar
from coldparquet.storage.objects import is_lasting_etag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coldparquet.catalog.partition_location import PartitionLocation
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.options import ReadOptions
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.objects import ObjectInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A partition that is not packed."""

    reason: str


class PartitionPacker:
    """Reads one partition after the other.

    Args:
        store: Where they lie; it should pin versions.
        options: How to read.
    """

    def __init__(self, store: ObjectStore, options: ReadOptions) -> None:
        self._store = store
        self._options = options

    async def read(self, location: PartitionLocation) -> PackedSidecar | LeftOut:
        """Read one partition. 1 listing, and 1 or 2 requests for its sidecar; none for a native one.

        Raises:
            StorageError: The store failed.
        """
        if location.is_native:
            return LeftOut(reason="in QuestDB's native format")
        # In this order: if the sidecar is replaced in between, the entry says an older version of it, and does not count.
        listed = await self._list(location)
        lookup = await look_up_sidecar(self._store, location, self._options)
        sidecar = lookup.sidecar
        if sidecar is None:
            problem = lookup.problem.message if lookup.problem else "it has no sidecar; 'coldparquet index' writes one"
            return LeftOut(reason=problem)
        if len(lookup.file) > LARGEST_SIDECAR_BYTES:
            return LeftOut(reason=f"its sidecar of {len(lookup.file):,} bytes is worth a request of its own")
        unusable = None if location.committed_size_bytes is not None else _why_unusable(listed, sidecar)
        if unusable is not None:
            return LeftOut(reason=unusable)
        return PackedSidecar(
            name=location.name,
            parquet_size_bytes=sidecar.parquet_size_bytes,
            row_count=sidecar.total_rows,
            sidecar=lookup.file,
            data_etag=_lasting_etag(listed, DATA_FILE),
            sidecar_etag=_lasting_etag(listed, SIDECAR_FILE),
            has_pages=not listed or PAGES_FILE in listed,
        )

    async def _list(self, location: PartitionLocation) -> Mapping[str, ObjectInfo]:
        """List the objects of a partition by their names; none where the store does not list them."""
        try:
            listing = await self._store.list(location.directory_path)
        except (AccessError, NotFoundError):
            return {}
        return {info.path.rpartition("/")[2]: info for info in listing.objects}


def _lasting_etag(listed: Mapping[str, ObjectInfo], name: str) -> str | None:
    etag = listed[name].etag if name in listed else None
    return etag if is_lasting_etag(etag) else None


def _why_unusable(listed: Mapping[str, ObjectInfo], sidecar: Sidecar) -> str | None:
    """Say why nobody could tell later, without a transaction, that a sidecar is still the right one; None if they could."""
    if _lasting_etag(listed, DATA_FILE) is None or _lasting_etag(listed, SIDECAR_FILE) is None:
        return "without a _txn readers check entries by the versions of objects, which this store does not list"
    size_bytes = listed[DATA_FILE].size_bytes
    if size_bytes != sidecar.parquet_size_bytes:
        return f"its sidecar describes {sidecar.parquet_size_bytes:,} bytes, but {DATA_FILE} has {size_bytes:,}"
    return None

"""What the absence of a partition's Parquet file means, in words for the person who meets it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from coldparquet.catalog.partition_location import DATA_FILE, SIDECAR_FILE
from coldparquet.errors import NotFoundError, UnsupportedError
from coldparquet.plan.wording import few_names
from coldparquet.storage.objects import Listing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.catalog.partition_location import PartitionLocation
    from coldparquet.storage.base import ObjectStore

NATIVE_PARTITION, NO_DATA_FILE = "NativePartition", "NoDataFile"
"""Kinds of the errors about a listed partition that is not in Parquet, and about one that holds nothing of the kind."""

NOT_IN_PARQUET = frozenset({NATIVE_PARTITION, NO_DATA_FILE})
"""Kinds of the errors about listed directories without a Parquet file."""

_NATIVE_COLUMN_SUFFIX = ".d"
"""Of the one file that every column has in QuestDB's own format."""


async def raise_what_is_missing(store: ObjectStore, location: PartitionLocation, error: NotFoundError) -> NoReturn:
    """Raise what the absence of the Parquet file means, by what is there in its place. 1 listing."""
    directory_path = location.directory_path
    try:
        listing = await store.list(directory_path, first_page_only=True)
    except NotFoundError:
        listing = Listing(directories=(), objects=())
    if any(info.path.endswith(_NATIVE_COLUMN_SUFFIX) for info in listing.objects):
        raise UnsupportedError(
            f"there is neither {SIDECAR_FILE} nor {DATA_FILE}: the partition is in QuestDB's native format, which"
            " can only be read with the table's _txn and _meta; copy them, or restrict the time range",
            kind=NATIVE_PARTITION,
            path=directory_path,
        ) from error
    names = [info.path.rpartition("/")[2] for info in listing.objects]
    misnamed = tuple(name for name in names if name.endswith(".parquet"))
    found = f"; it holds {few_names(misnamed)}: {advice_for_misnamed(misnamed)}" if misnamed else ""
    raise NotFoundError(
        f"there is no {DATA_FILE} in this directory, and a partition is one file of that name{found}; or the partition was"
        " removed or replaced since the table was opened (refresh it), or the copy of the table is not complete",
        kind=NO_DATA_FILE,
        path=location.data_path,
        misnamed=misnamed,
    ) from error


def advice_for_misnamed(names: Sequence[str]) -> str:
    """Say what to do about Parquet files of these names that lie in a directory in place of ``data.parquet``."""
    rename = "rename it, or " if len(names) == 1 else ""
    return f"{rename}convert the lake with 'coldparquet pipeline convert'"

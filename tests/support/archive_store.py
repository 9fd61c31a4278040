"""A store with archived objects that can be restored, and a table of archived days in it."""

from __future__ import annotations

import numpy as np

import coldparquet as cp
from coldparquet.archive.objects import needs_restore
from coldparquet.errors import ArchivedObjectError, InvalidInputError
from coldparquet.maintenance.index import index_table
from coldparquet.prices import RestoreTier
from coldparquet.records import replace
from coldparquet.storage.requests import FetchedRange, ObjectInfo, RangeRequest, RestoreState
from tests.support.small_tables import QuotingStore, parquet_of_day

# --- A store in memory with S3's storage classes: archived objects refuse GETs until a restore is over ----------------


class ArchiveStore(QuotingStore):
    """Objects in classes.

    Args:
        looks_until_restored: After so many looks at an object that is being restored it can be read.
    """

    has_storage_classes = True

    def __init__(self, *, looks_until_restored: int = 1) -> None:
        super().__init__()
        self.classes: dict[str, str] = {}
        """Storage class of each object that does not lie in STANDARD; ``INTELLIGENT_TIERING ARCHIVE_ACCESS`` for archive tiers."""
        self.restores: list[tuple[str, int, RestoreTier]] = []
        """Restores that were asked for: path, days, tier."""
        self._looks_until_restored = looks_until_restored
        self._looks_left: dict[str, int] = {}

    def archive(self, *paths: str, storage_class: str = "GLACIER") -> None:
        """Move objects to a class."""
        for path in paths:
            self.classes[path] = storage_class
            self._looks_left.pop(path, None)

    async def get(self, request: RangeRequest) -> FetchedRange:
        if needs_restore(await self._described(request.path)):
            raise ArchivedObjectError("the object is archived", path=request.path)
        return await super().get(request)

    async def info(self, path: str) -> ObjectInfo:
        described = await self._described(path)
        if path in self._looks_left:
            self._looks_left[path] = max(0, self._looks_left[path] - 1)
        return described

    async def restore(self, path: str, *, days: int, tier: RestoreTier) -> None:
        if not needs_restore(await self._described(path)):
            raise InvalidInputError("not archived", kind="NotArchived", path=path)
        self.restores.append((path, days, tier))
        self._looks_left.setdefault(path, self._looks_until_restored)

    async def _described(self, path: str) -> ObjectInfo:
        storage_class, _, status = self.classes.get(path, "STANDARD").partition(" ")
        restore = None
        if path in self._looks_left:
            is_ongoing = self._looks_left[path] > 0
            restore = RestoreState(is_ongoing=is_ongoing, expires_s=None if is_ongoing else 4e9)
        return replace(
            await super().info(path), storage_class=storage_class, archive_status=status or None, restore=restore
        )


# --- A table of four days in a store that plays archives --------------------------------------------------------------


ROWS = 2_400
DAYS = ["2024-03-01.1", "2024-03-02.1", "2024-03-03.1", "2024-03-04.1"]


def make_day(day: int) -> bytes:
    """Write the Parquet file of one of the days, in four row groups."""
    return parquet_of_day(day, 4, ROWS, price=np.random.default_rng(day).normal(size=ROWS), day=np.full(ROWS, day))


def data_path(day: str) -> str:
    """Return where the data of a day lies."""
    return f"trades/{day}/data.parquet"


async def make_store(*archived: str, storage_class: str = "GLACIER", looks_until_restored: int = 1) -> ArchiveStore:
    """Make the table, with some of its days in an archive."""
    store = ArchiveStore(looks_until_restored=looks_until_restored)
    await fill(store)
    store.archive(*map(data_path, archived), storage_class=storage_class)
    return store


async def fill(store: ArchiveStore) -> None:
    """Make the table; none of it is archived."""
    for number, day in enumerate(DAYS):
        await store.put(data_path(day), make_day(number), overwrite=False)
    await index_table("trades", store=store, pages=False, pack=False)


def opened(store: ArchiveStore, **options: object) -> cp.opening.Opening:
    """Open the table with these options for reading."""
    return cp.open_table("trades", store=store, options=cp.ReadOptions(**options))  # type: ignore[arg-type]

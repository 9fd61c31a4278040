"""Claims of versions: no two writes get the same, and what is removed is one's own."""

from __future__ import annotations

import asyncio
from itertools import combinations

import pytest

from coldparquet.errors import StorageError
from coldparquet.storage.base import StoreWrapper
from coldparquet.storage.memory import MemoryStore
from coldparquet.write.versions import VersionRange, claim_versions, claims, release_versions

PATH = "bucket/trades"


async def directories(store: MemoryStore) -> list[str]:
    return [path.rpartition("/")[2] for path in (await store.list(PATH)).directories]


class SlowListings(StoreWrapper):
    """Lets others in between every listing and what follows."""

    async def list(self, path: str, *, first_page_only: bool = False):  # type: ignore[no-untyped-def]  # noqa: ANN201
        found = await super().list(path, first_page_only=first_page_only)
        await asyncio.sleep(0)
        return found


async def test_writes_at_the_same_time_get_ranges_of_their_own() -> None:
    store = MemoryStore()
    found = await asyncio.gather(*(claim_versions(SlowListings(store), PATH, txn=None) for _ in range(4)))
    for one, other in combinations(found, 2):
        assert one.stop <= other.first or other.stop <= one.first
    assert set(claims(await store.list(PATH))) == {VersionRange(claimed.first) for claimed in found}


@pytest.mark.parametrize(("txn", "first"), [(None, 0), (0, 65_537), (41, 65_578)])
async def test_the_first_version_leaves_room_for_others(txn: int | None, first: int) -> None:
    assert (await claim_versions(MemoryStore(), PATH, txn=txn)).first == first


async def test_versions_that_are_there_are_not_used_again() -> None:
    store = MemoryStore()
    await store.put(f"{PATH}/2024-01-01.99/data.parquet", b"", overwrite=False)
    assert (await claim_versions(store, PATH, txn=None)).first == 100


async def test_only_what_belongs_to_the_range_is_removed() -> None:
    store = MemoryStore()
    claimed = await claim_versions(store, PATH, txn=7)
    inside = [f"2024-01-0{day}.{claimed.first + day}" for day in (1, 2, 3)]
    for name in (*inside, "2024-01-01.7", "2024-01-01", f"2024-01-01.{claimed.stop}", "notes.70000"):
        await store.put(f"{PATH}/{name}/data.parquet", b"", overwrite=False)
    await release_versions(store, PATH, claimed, keep=frozenset({inside[1]}))
    assert await directories(store) == sorted(
        [inside[1], "2024-01-01.7", "2024-01-01", f"2024-01-01.{claimed.stop}", "notes.70000"]
    )
    assert claims(await store.list(PATH)) == ()


async def test_a_range_that_was_released_is_not_released_for_its_next_owner() -> None:
    store = MemoryStore()
    first = await claim_versions(store, PATH, txn=None)
    await release_versions(store, PATH, first)
    second = await claim_versions(store, PATH, txn=None)
    assert second.first == first.first
    await store.put(f"{PATH}/2024-01-01.{second.first}/data.parquet", b"", overwrite=False)
    await release_versions(store, PATH, first)
    assert await directories(store) == [f"2024-01-01.{second.first}"]
    assert len(claims(await store.list(PATH))) == 1


class AlwaysTaken(StoreWrapper):
    """Has somebody else claim whatever is claimed, a moment before."""

    async def put(self, path: str, data: bytes, **options: object) -> str | None:
        await self._store.put(path, b"theirs", overwrite=True)
        return await self._store.put(path, data, **options)  # type: ignore[arg-type]


async def test_who_never_gets_a_turn_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldparquet.write.versions._LONGEST_PAUSE_S", 0.0)
    with pytest.raises(StorageError, match="others keep") as busy:
        await claim_versions(AlwaysTaken(MemoryStore()), PATH, txn=None)
    assert busy.value.kind == "TableBusy"

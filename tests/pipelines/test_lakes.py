"""What a lake is: which tables a URL means."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldparquet.errors import AccessError, InvalidInputError, NotFoundError
from coldparquet.pipelines.lakes import find_tables, search_tables
from coldparquet.pipelines.model import Lake
from coldparquet.storage.local import LocalStore
from coldparquet.storage.log import TraceStore
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import Listing

OBJECTS = {
    "bucket/db/quotes/_txn": b"",
    "bucket/db/quotes/2024-01-01/data.parquet": b"",
    "bucket/db/trades_eu/2024-01-01.3/data.parquet": b"",
    "bucket/db/trades_us/2024-01-01/data.parquet": b"",
    "bucket/db/deeper/still/trades/2024-W09/data.parquet": b"",
    "bucket/db/notes/readme.txt": b"",
    "bucket/single/data.parquet": b"",
}


@pytest.mark.parametrize(
    ("url", "directory", "pattern"),
    [
        ("s3://bucket/db/trades", "s3://bucket/db/trades", ()),
        ("s3://bucket/db/trades/", "s3://bucket/db/trades", ()),
        ("s3://bucket/db/trades_*", "s3://bucket/db", ("trades_*",)),
        ("s3://bucket/*/tra?es_[eu]s", "s3://bucket", ("*", "tra?es_[eu]s")),
        ("/srv/db/*", "/srv/db", ("*",)),
        ("/*", "/", ("*",)),
        ("*/db", ".", ("*", "db")),
    ],
)
def test_a_url_is_a_directory_and_a_pattern(url: str, directory: str, pattern: tuple[str, ...]) -> None:
    lake = Lake.parse(url)
    assert lake == Lake(url=directory, pattern=pattern)
    assert lake.full_url.removeprefix("./") == url.rstrip("/")


@pytest.mark.parametrize(
    "url", ["", "s3://*/db", "https://user:secret@example.com/db", "https://example.com/db?X-Amz-Signature=1"]
)
def test_a_url_that_cannot_be_a_lake(url: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Lake.parse(url)
    assert "secret" not in str(caught.value)
    assert "Signature" not in str(caught.value)


@pytest.mark.parametrize(
    ("root", "pattern", "tables"),
    [
        ("bucket/db", (), ["deeper/still/trades", "quotes", "trades_eu", "trades_us"]),
        ("bucket/db", ("trades_*",), ["trades_eu", "trades_us"]),
        ("bucket", ("db", "d*"), ["db/deeper/still/trades"]),
        ("bucket/db/quotes", (), [""]),
        ("bucket/single", (), [""]),
        ("bucket", (), ["db/deeper/still/trades", "db/quotes", "db/trades_eu", "db/trades_us", "single"]),
    ],
)
async def test_which_tables_lie_there(root: str, pattern: tuple[str, ...], tables: list[str]) -> None:
    assert await find_tables(MemoryStore(OBJECTS), root, pattern) == tables


async def test_every_directory_is_listed_once() -> None:
    store = TraceStore(MemoryStore(OBJECTS))
    await find_tables(store, "bucket/db", ())
    listed = sorted(record.path for record in store.records)
    inside = ("", "/deeper", "/deeper/still", "/deeper/still/trades", "/notes", "/quotes", "/trades_eu", "/trades_us")
    assert listed == [f"bucket/db{path}" for path in inside]


@pytest.mark.parametrize(
    ("root", "pattern"),
    [
        ("bucket/db/notes", ()),
        ("bucket/db", ("absent*",)),
        ("bucket/db/quotes", ("2024-*",)),
        ("bucket/db", ("quotes", "*")),
    ],
)
async def test_no_tables(root: str, pattern: tuple[str, ...]) -> None:
    with pytest.raises(NotFoundError) as caught:
        await find_tables(MemoryStore(OBJECTS), root, pattern)
    assert caught.value.kind == "NoTables"


class GuardedStore(MemoryStore):
    """A store that does not let everybody list everything."""

    def __init__(self, *closed: str) -> None:
        super().__init__(OBJECTS)
        self._closed = closed

    async def list(self, path: str, *, first_page_only: bool = False) -> Listing:
        if path in self._closed:
            raise AccessError("not for you", path=path)
        return await super().list(path, first_page_only=first_page_only)


@pytest.mark.parametrize("pattern", [(), ("*",)])
async def test_directories_that_cannot_be_listed_are_told_beside_the_others(pattern: tuple[str, ...]) -> None:
    store = GuardedStore("bucket/db/deeper/still", "bucket/db/trades_eu")
    found = await search_tables(store, "bucket/db", pattern)
    assert found.tables == ("quotes", "trades_us")
    assert {path: error.kind for path, error in found.failures.items()} == {
        "deeper/still": "AccessDenied",
        "trades_eu": "AccessDenied",
    }
    with pytest.raises(AccessError) as caught:
        await find_tables(store, "bucket/db", pattern)
    assert caught.value.path == "bucket/db/deeper/still"


@pytest.mark.parametrize("closed", ["bucket/db/deeper", "bucket/db/deeper/still"])
async def test_without_any_table_it_is_an_error_what_cannot_be_listed(closed: str) -> None:
    with pytest.raises(AccessError, match="not for you"):
        await search_tables(GuardedStore(closed), "bucket/db/deeper", ())


async def test_directories_that_lead_round_in_circles(tmp_path: Path) -> None:
    (tmp_path / "lake" / "table" / "2024-01-01").mkdir(parents=True)
    (tmp_path / "lake" / "round").symlink_to(tmp_path / "lake")
    tables = await find_tables(LocalStore(), str(tmp_path / "lake"), ())
    assert tables[-1] == "table"
    assert len(tables) < 20


async def test_links_that_lead_back(tmp_path: Path) -> None:
    (tmp_path / "lake" / "trades" / "2024-01-01").mkdir(parents=True)
    for name in ("again", "once_more"):
        (tmp_path / "lake" / name).symlink_to(".")
    (tmp_path / "lake" / "renamed").symlink_to("trades")
    store = TraceStore(LocalStore())
    assert await find_tables(store, str(tmp_path / "lake"), ()) == ["renamed", "trades"]
    assert len(store.records) == 3

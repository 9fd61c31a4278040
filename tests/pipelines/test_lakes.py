"""What a lake is: which tables a URL means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coldparquet.errors import InvalidInputError, NotFoundError
from coldparquet.pipelines.lakes import Lake, find_tables
from coldparquet.storage.local import LocalStore
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.trace import TraceStore

if TYPE_CHECKING:
    from pathlib import Path

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
    assert Lake.parse(url) == Lake(url=directory, pattern=pattern)


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

"""Tables stay open between the scans of a process: each is known once, and none is lost that could not be read again."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from coldparquet.errors import NotFoundError
from coldparquet.spark import planning
from coldparquet.spark.source import DefaultSource
from coldparquet.table import Table
from tests.support.written_tables import trades

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = 1_000


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The URLs of tables in the order in which they are closed."""
    urls: list[str] = []
    close = Table.aclose

    async def noted(table: Table) -> None:
        urls.append(table.url)
        await close(table)

    monkeypatch.setattr(Table, "aclose", noted)
    return urls


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[list[Path]]:
    """Two tables of one partition; this process knows of no others."""
    planning.close_tables()
    roots = [tmp_path / "first", tmp_path / "second"]
    for root in roots:
        (root / "2024-03-01").mkdir(parents=True)
        pq.write_table(trades(0, ROWS), root / "2024-03-01" / "data.parquet")
    yield roots
    planning.close_tables()


def rows_of(*tables: Path) -> int:
    source = DefaultSource({"path": ",".join(map(str, tables)), "columns": "price"})
    reader = source.reader(source.schema())
    batches: list[Any] = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return sum(batch.num_rows for batch in batches)


def test_a_table_that_cannot_be_refreshed_is_closed(tables: list[Path], closed: list[str]) -> None:
    first, second = tables
    assert rows_of(first, second) == 2 * ROWS
    assert closed == []
    shutil.move(second, second.with_name("gone"))
    with pytest.raises(NotFoundError, match="second"):
        rows_of(first, second)
    assert str(second) in closed
    shutil.move(second.with_name("gone"), second)
    assert rows_of(first, second) == 2 * ROWS
    closed_before = list(closed)
    planning.close_tables()
    assert sorted(closed[len(closed_before) :]) == sorted(map(str, tables)), "each is open once"

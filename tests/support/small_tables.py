"""Small tables in memory: days of trades, days of ten columns, many equal days, other layouts; and a store that tells versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coldparquet.format.blooms import BloomTransfer
from coldparquet.format.partition_records import PartitionRecords
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.format.txn import encode_txn, parse_txn, replace_partitions
from coldparquet.maintenance.index import index_table
from coldparquet.records import replace
from coldparquet.storage.log import RequestRecord
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import FetchedRange, Listing, ObjectInfo, RangeRequest
from tests.support.parquet_footers import parquet_bytes, parsed_footer
from tests.support.questdb_tables import GOLDEN

# --- A store in memory that tells versions as an object store does: in quotes -----------------------------------------


class QuotingStore(MemoryStore):
    """Quotes the ETags of whole objects and of answers, and knows If-None-Match."""

    async def get(self, request: RangeRequest) -> FetchedRange:
        if request.if_match is not None:
            request = replace(request, if_match=request.if_match.strip('"'))
        answer = await super().get(request)
        etag = f'"{answer.etag}"'
        if request.if_none_match == etag:
            return replace(answer, data=b"", etag=etag, is_unchanged=True)
        return replace(answer, etag=etag)

    async def info(self, path: str) -> ObjectInfo:
        found = await super().info(path)
        return replace(found, etag=f'"{found.etag}"')

    async def list(self, path: str, *, first_page_only: bool = False) -> Listing:
        listing = await super().list(path, first_page_only=first_page_only)
        return replace(listing, objects=tuple(map(_quoted, listing.objects)))

    async def list_between(self, path: str, *, start: str, stop: str) -> tuple[ObjectInfo, ...]:
        return tuple(map(_quoted, await super().list_between(path, start=start, stop=stop)))

    async def put(
        self, path: str, data: bytes, *, overwrite: bool, if_match: str | None = None, storage_class: str | None = None
    ) -> str:
        bare = None if if_match is None else if_match.strip('"')
        etag = await super().put(path, data, overwrite=overwrite, if_match=bare, storage_class=storage_class)
        return f'"{etag}"'


def _quoted(info: ObjectInfo) -> ObjectInfo:
    return replace(info, etag=f'"{info.etag}"')


# --- Small tables of trades, and what tests of answers about them look at ---------------------------------------------


DAY_US = 86_400_000_000
FIRST_DAY_US = 19_783 * DAY_US  # 2024-03-01


def trades_of(day: int, rows: int, *, symbols: tuple[str | None, ...] = ("BTC", "ETH")) -> pa.Table:
    """Rows at equal distances over a day; price counts all rows of all days, symbols take turns, note is null."""
    numbers = day * rows + np.arange(rows)
    ts = FIRST_DAY_US + day * DAY_US + np.arange(rows) * (DAY_US // rows)
    return pa.table(
        {
            "ts": pa.array(ts, pa.timestamp("us", "UTC")),
            "symbol": pa.array([symbols[number % len(symbols)] for number in numbers.tolist()], pa.string()),
            "price": numbers.astype(np.float64),
            "size": pa.array([None if number % 10 == 9 else int(number) for number in numbers.tolist()], pa.int32()),
            "note": pa.nulls(rows, pa.string()),
        }
    )


def parquet_of(table: pa.Table, *, row_groups: int, **options: Any) -> bytes:
    """Write a table whose first column is its designated timestamp: never null, and sorted."""
    field = table.schema.field(0).with_nullable(nullable=False)
    table = table.set_column(0, field, table.column(0))
    size = -(-table.num_rows // row_groups)
    return parquet_bytes(table, row_group_size=size, sorting_columns=[pq.SortingColumn(0)], **options)


def day_of_trades(day: int, *, rows: int, row_groups: int) -> bytes:
    """One partition of trades."""
    return parquet_of(trades_of(day, rows), row_groups=row_groups)


async def store_of(days: Mapping[int, bytes]) -> MemoryStore:
    """Make a table ``trades`` of partitions by day, with sidecars."""
    store = MemoryStore()
    for day, data in days.items():
        name = np.datetime64(FIRST_DAY_US + day * DAY_US, "us").astype("datetime64[D]")
        await store.put(f"trades/{name}.7/data.parquet", data, overwrite=False)
    await index_table("trades", store=store, pages=False, pack=False)
    return store


def data_reasons(log: Iterable[RequestRecord]) -> list[str]:
    """Return the reasons of the requests for rows, in the order in which they were sent."""
    return [record.reason for record in log if record.operation == "get" and record.role == "data"]


def plain_column(rows: pa.Table, name: str) -> Any:
    """Return a column with its values in place of dictionary indices."""
    column = rows.column(name)
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def parquet_of_day(day: int, row_groups: int, row_count: int, /, **columns: Any) -> bytes:
    """Rows at equal distances over a day. A timestamp that is sorted and never null is the designated one."""
    ts = FIRST_DAY_US + day * DAY_US + np.arange(row_count) * (DAY_US // row_count)
    rows = pa.table({"ts": pa.array(ts, pa.timestamp("us", "UTC"))} | columns)
    rows = rows.set_column(0, rows.schema.field("ts").with_nullable(nullable=False), rows.column("ts"))
    return parquet_bytes(rows, row_group_size=row_count // row_groups, sorting_columns=[pq.SortingColumn(0)])


# --- A small table of three days whose pieces tests take apart: ten columns, pages, values known by heart -------------


DAYS, ROWS_OF_DAY, ROW_GROUPS_OF_DAY = 3, 4_000, 8


@cache
def day_of_rows(day: int) -> pa.Table:
    """Return the rows of one day, in order of time; ``key`` is spread over all row groups."""
    draw = np.random.default_rng(day)
    numbers = np.arange(ROWS_OF_DAY)
    ts = FIRST_DAY_US + day * DAY_US + numbers * (DAY_US // ROWS_OF_DAY)
    schema = pa.schema([pa.field("ts", pa.timestamp("us", "UTC"), nullable=False)])
    return pa.table(
        {
            "ts": pa.array(ts, schema.field("ts").type),
            "key": draw.permutation(ROWS_OF_DAY) + day * ROWS_OF_DAY,
            "symbol": pa.array(np.array(["BTC", "ETH", "SOL"])[draw.integers(0, 3, ROWS_OF_DAY)]).dictionary_encode(),
            "price": draw.normal(size=ROWS_OF_DAY),
            "payload": pa.array([f"payload of row {number} of day {day}" for number in numbers.tolist()]),
            "nothing": pa.nulls(ROWS_OF_DAY, pa.string()),
            "always": np.full(ROWS_OF_DAY, 7 + day),
            "word": pa.array([f"the same long word of day {day}"] * ROWS_OF_DAY),
            "list": pa.array([[float(number)] * (number % 4) for number in numbers.tolist()]),
            "small": draw.integers(0, 5, ROWS_OF_DAY).astype(np.int16),
        }
    ).set_column(0, schema.field("ts"), pa.array(ts, schema.field("ts").type))


@cache
def day_file(day: int) -> bytes:
    """Return the Parquet file of one day, with a page index."""
    return parquet_bytes(
        day_of_rows(day),
        row_group_size=ROWS_OF_DAY // ROW_GROUPS_OF_DAY,
        write_batch_size=50,
        data_page_size=1,
        write_page_index=True,
        use_dictionary=["symbol"],
        sorting_columns=[pq.SortingColumn(0)],
    )


def data_path(day: int) -> str:
    """Return where the file of a day lies."""
    return f"db/trades/2024-03-0{day + 1}/data.parquet"


async def store_of_days(*, is_indexed: bool = True) -> QuotingStore:
    """Return a store with the table ``db/trades``."""
    store = QuotingStore({data_path(day): day_file(day) for day in range(DAYS)})
    if is_indexed:
        await index_table("db/trades", store=store, pages=False, pack=False)
    return store


# --- Tables of many small partitions, which are copies of one that QuestDB wrote, in a store that tells versions ------


TABLE = "bucket/trades"
_SOURCE = GOLDEN / "interval_day" / "table"
FIRST_DAY = datetime(2024, 2, 27, tzinfo=UTC)


class StoreWithClasses(QuotingStore):
    """A store whose objects are looked at before they are read."""

    has_storage_classes = True


@cache
def _files() -> tuple[bytes, bytes]:
    """The Parquet file of the first partition, and its sidecar."""
    data = (_SOURCE / "2024-02-27.4" / "data.parquet").read_bytes()
    transfer = BloomTransfer(parsed_footer(data), inline_bytes=65_536)
    while transfer.wanted() is not None:
        transfer.receive([(0, data)])
    return data, encode_sidecar(transfer.content())


def name_of(day: int) -> str:
    """Name the directory of a day."""
    return f"{FIRST_DAY + timedelta(days=day):%Y-%m-%d}.4"


@cache
def _objects(days: int) -> dict[str, bytes]:
    data, sidecar = _files()
    objects = {}
    for day in range(days):
        objects[f"{TABLE}/{name_of(day)}/data.parquet"] = data
        objects[f"{TABLE}/{name_of(day)}/_pm"] = sidecar
    return objects


def partitions_alone(days: int) -> dict[str, bytes]:
    """Objects of a table without table files: the directories' names decide."""
    return dict(_objects(days))


def table_of_days(days: int) -> dict[str, bytes]:
    """Objects of a table with a transaction. All days hold the same 48 rows."""
    transaction = parse_txn((_SOURCE / "_txn").read_bytes(), path=None)
    first = transaction.partitions.record(0)
    records = [replace(first, timestamp=first.timestamp + day * DAY_US) for day in range(days)]
    following = replace_partitions(
        transaction,
        PartitionRecords.of(records),
        min_timestamp=first.timestamp,
        max_timestamp=records[-1].timestamp + DAY_US - 1,
    )
    return {
        **_objects(days),
        f"{TABLE}/_txn": encode_txn(following),
        f"{TABLE}/_meta": (_SOURCE / "_meta").read_bytes(),
    }


def objects_of(directory: Path) -> dict[str, bytes]:
    """Objects of a table that lies on the disk."""
    return {
        f"{TABLE}/{path.relative_to(directory)}": path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


# --- Directories of files that are no part of a table of ours, on a disk and in memory --------------------------------


DAY = "2023-01-01/data.parquet"
LOGS = {
    "delta": "_delta_log/00000000000000000000.json",
    "iceberg": "metadata/v1.metadata.json",
    "hudi": ".hoodie/hoodie.properties",
}


def _parquet(rows: int = 10) -> bytes:
    return parquet_bytes(pa.table({"x": list(range(rows))}))


def _content(name: str) -> bytes:
    return _parquet() if name.endswith(".parquet") else b"{}"


def write(root: Path, names: Iterable[str]) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(_content(name))
    return root


def objects(names: Iterable[str]) -> dict[str, bytes]:
    return {f"t/{name}": _content(name) for name in names}


def memory(names: Iterable[str]) -> MemoryStore:
    return MemoryStore(objects(names))

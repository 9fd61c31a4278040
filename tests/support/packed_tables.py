"""Tables of many small partitions, which are copies of one that QuestDB wrote, in a store that tells versions."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

from coldparquet.format.blooms import BloomTransfer
from coldparquet.format.partition_records import PartitionRecords
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.format.txn import encode_txn, parse_txn, replace_partitions
from tests.support.parquet_fragments import parsed_footer
from tests.support.questdb_tables import GOLDEN
from tests.support.quoting_store import QuotingStore

if TYPE_CHECKING:
    from pathlib import Path

TABLE = "bucket/trades"
_SOURCE = GOLDEN / "interval_day" / "table"
_DAY_US = 86_400_000_000
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
    records = [replace(first, timestamp=first.timestamp + day * _DAY_US) for day in range(days)]
    following = replace_partitions(
        transaction,
        PartitionRecords.of(records),
        min_timestamp=first.timestamp,
        max_timestamp=records[-1].timestamp + _DAY_US - 1,
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

"""Holds how much of a table a follower has delivered, by rows and versions of partitions; also as small JSON.

A follower keeps such a :class:`~coldparquet.follow.state.TableState` between two reads of a table, and over restarts. A
state also describes the table itself: all rows of every partition. Only Parquet partitions count; a native one appears
once the database has converted it.

A checkpoint keeps the state as a JSON object and nothing else. So the object holds all that later states are compared
with: for every partition with delivered rows its begin, the version (directory, Parquet size, rows), the number of
delivered rows, and the first row after a rewrite. None of it can be found later: each transaction replaces the previous
one, and a grown partition must tell how many of its rows are old. The numbers of all partitions are stored by column,
as differences if ascending, byte plane by byte plane, and compressed. That takes about 8 bytes per partition, mostly
its rows and size: 40 kB of text for ten years of days. What can be derived (names, sums) is written for people only.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coldparquet.catalog.objects import ListedObjects
from coldparquet.catalog.partition import read_packed
from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import FormatError, InvalidInputError, NotFoundError, UnsupportedError
from coldparquet.format.binary import WORD_BYTES, from_byte_planes, to_byte_planes
from coldparquet.format.partition_names import PartitionInterval, partition_floor_ns, recorded_directory_name
from coldparquet.records import replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from coldparquet.catalog.partition import Partition
    from coldparquet.catalog.snapshot import TableSnapshot
    from coldparquet.catalog.table_files import TableFiles
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.requests import ObjectInfo


_MICROSECOND_NS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """One version of a partition, or of one piece of a split partition, and how much of it was delivered."""

    timestamp: int
    """Begin of the partition or of the piece, in the unit of the table; it names the partition."""
    name_txn: int
    """Version in the name of the directory, or -1 without one."""
    parquet_size_bytes: int
    """Size of `data.parquet` in this version; -1 if the transaction does not state it."""
    row_count: int
    """Number of rows of this version."""
    object_version: int = 0
    """Digest of the ETag, if no transaction names the version; else 0."""
    delivered_rows: int = 0
    """Number of delivered rows: the first ones of this version."""
    epoch: int = 0
    """How often the partition was rewritten after some of its rows were delivered, and that was accepted."""
    epoch_first_row: int = 0
    """First row delivered after the last rewrite: 0 to read the partition again, or its row count to skip it."""

    @property
    def version(self) -> tuple[int, int, int, int]:
        """What distinguishes two versions of a partition."""
        return self.name_txn, self.parquet_size_bytes, self.row_count, self.object_version

    @property
    def rows_left(self) -> int:
        """Number of undelivered rows."""
        return self.row_count - self.delivered_rows

    def all_delivered(self) -> PartitionState:
        """Return the state with all rows of this version delivered."""
        return self if not self.rows_left else replace(self, delivered_rows=self.row_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """Partitions of one table, and how much of each was delivered."""

    table_id: int
    """QuestDB's number of the table; -1 without a `_txn`."""
    txn: int
    """Transaction that lists the partitions; 0 without a `_txn`."""
    interval: PartitionInterval | None
    """How the table is partitioned; None if unknown."""
    is_nanosecond: bool
    """Whether times are in nanoseconds, not microseconds."""
    generation: int = 0
    """How often delivery started again because another table was at this place."""
    partitions: tuple[PartitionState, ...]
    """In time order, without repeated times."""
    native_timestamps: frozenset[int] = frozenset()
    """Begins of the partitions in QuestDB's native format, of which nothing is delivered."""

    @property
    def delivered_rows(self) -> int:
        """Number of delivered rows of the existing partitions."""
        return sum(partition.delivered_rows for partition in self.partitions)

    def partition_of(self, timestamp: int) -> int:
        """Return the begin of a piece's partition: pieces of one partition share it."""
        if self.interval is None:
            return timestamp
        unit_ns = 1 if self.is_nanosecond else _MICROSECOND_NS
        return partition_floor_ns(timestamp * unit_ns, self.interval) // unit_ns

    def name_of(self, partition: PartitionState) -> str:
        """Return the directory name of a partition; only its begin if the partitioning is unknown."""
        if self.interval is None:
            return str(partition.timestamp)
        return recorded_directory_name(
            partition.timestamp, self.interval, name_txn=partition.name_txn, is_nanosecond=self.is_nanosecond
        )

    def with_nothing_delivered(self) -> TableState:
        """Return the state before anything was delivered."""
        return replace(self, partitions=())

    def with_all_delivered(self) -> TableState:
        """Return the state after everything was delivered."""
        return replace(self, partitions=tuple(partition.all_delivered() for partition in self.partitions))


def recorded_state(files: TableFiles) -> TableState:
    """Describe a table as its transaction does, with nothing delivered. No request."""
    records, metadata, transaction = files.records, files.metadata, files.transaction
    partitions = tuple(
        PartitionState(
            timestamp=timestamp, name_txn=name_txn, parquet_size_bytes=parquet_size_bytes, row_count=row_count
        )
        for timestamp, name_txn, parquet_size_bytes, row_count, is_parquet in zip(
            records.timestamps.tolist(),
            records.name_txns.tolist(),
            records.parquet_sizes.tolist(),
            records.row_counts.tolist(),
            records.is_parquet.tolist(),
            strict=True,
        )
        if is_parquet
    )
    return TableState(
        table_id=metadata.table_id,
        txn=transaction.txn,
        interval=metadata.interval,
        is_nanosecond=metadata.is_nanosecond,
        partitions=partitions,
        native_timestamps=frozenset(records.timestamps[~records.is_parquet].tolist()),
    )


NO_TABLE_ID = -1
_DIGEST_BYTES = 7
"""The digest is then not negative in 64 bits."""


class ListedPartitions:
    """Lists the partitions of a table without `_txn`, and remembers the row count of each version.

    A listing does not tell which writes belong together. So it may show only one of two partitions that were written
    together; the next listing shows the other.
    """

    def __init__(self) -> None:
        self._row_counts: dict[tuple[int, int, int, int], int] = {}

    async def state(self, snapshot: TableSnapshot) -> TableState:
        """Describe the table as it is listed, with nothing delivered.

        Requests: if listings tell versions, 1 for 250 partitions; else a HEAD of each Parquet file. Also the metadata
        of the partitions whose version is new.
        """
        partitions = [partition for partition in snapshot.partitions if partition.location.directory is not None]
        if len(partitions) < len(snapshot.partitions) or any(not found.location.is_listed for found in partitions):
            raise InvalidInputError(
                "this is one partition, or one Parquet file, to which nothing is added; give the directory of the table",
                kind="NotATable",
                path=snapshot.partitions[0].directory_path,
            )
        found = await _data_objects(snapshot.store, partitions)
        await read_packed(partitions)
        states = await gather_or_cancel(
            [
                self._state_of(partition, found[partition.data_path])
                for partition in partitions
                if partition.data_path in found
            ]
        )
        return TableState(
            table_id=NO_TABLE_ID,
            txn=0,
            interval=_interval(partitions),
            is_nanosecond=True,
            partitions=tuple(sorted(states, key=lambda state: state.timestamp)),
        )

    async def _state_of(self, partition: Partition, info: ObjectInfo) -> PartitionState:
        directory = partition.location.directory
        begin = 0 if directory is None else directory.timestamp_ns
        size_bytes = -1 if info.size_bytes is None else info.size_bytes
        version = (begin, partition.name_txn, size_bytes, _digest(info.etag))
        if version not in self._row_counts:
            self._row_counts[version] = (await partition.metadata()).sidecar.total_rows
        return PartitionState(
            timestamp=begin,
            name_txn=partition.name_txn,
            parquet_size_bytes=size_bytes,
            row_count=self._row_counts[version],
            object_version=version[-1],
        )


async def _data_objects(store: ObjectStore, partitions: list[Partition]) -> Mapping[str, ObjectInfo]:
    """Return what the store tells about the Parquet files, by path; without missing files."""
    paths = {partition.data_path for partition in partitions}
    if store.has_version_listings:
        listed = await ListedObjects(store).below([partition.directory_path for partition in partitions])
        return {path: listed[path] for path in paths if path in listed}
    looked_at = await gather_or_cancel([_info(store, path) for path in sorted(paths)])
    return {info.path: info for info in looked_at if info is not None}


async def _info(store: ObjectStore, path: str) -> ObjectInfo | None:
    try:
        return await store.info(path)
    except NotFoundError:
        return None


def _interval(partitions: list[Partition]) -> PartitionInterval | None:
    """Return how the table is partitioned, by the names of its directories; None if they do not tell."""
    found = {partition.location.directory.interval for partition in partitions if partition.location.directory}
    return found.pop() if len(found) == 1 else None


def _digest(etag: str | None) -> int:
    if etag is None:
        return 0
    return int.from_bytes(hashlib.blake2b(etag.encode(), digest_size=_DIGEST_BYTES).digest(), "little")


_FORMAT = 1
_COLUMNS = (
    "timestamp",
    "name_txn",
    "parquet_size_bytes",
    "row_count",
    "object_version",
    "rows_left",
    "epoch",
    "epoch_first_row",
)
_ASCENDING = ("timestamp",)
_MOST_PARTITIONS = 4_000_000
"""More than a `_txn` may hold. A damaged checkpoint may claim any number, and decoding would allocate for it."""


def encode_state(state: TableState) -> dict[str, Any]:
    """Return a state as a JSON object; equal states have equal objects, with one version of zlib."""
    columns = np.array(
        [[getattr(partition, name) for partition in state.partitions] for name in _COLUMNS], dtype=np.int64
    ).reshape(len(_COLUMNS), len(state.partitions))
    for name in _ASCENDING:
        row = columns[_COLUMNS.index(name)]
        row[1:] = np.diff(row)
    return {
        "format": _FORMAT,
        "txn": state.txn,
        "table_id": state.table_id,
        "generation": state.generation,
        "interval": None if state.interval is None else state.interval.name,
        "is_nanosecond": state.is_nanosecond,
        "partitions": len(state.partitions),
        "rows": state.delivered_rows,
        "state": base64.b64encode(zlib.compress(to_byte_planes(columns), level=9)).decode("ascii"),
    }


def decode_state(document: Mapping[str, Any]) -> TableState:
    """Decode a state from its JSON object."""
    found = document.get("format") if isinstance(document, dict) else None
    if found != _FORMAT:
        raise UnsupportedError(
            f"this checkpoint is of format {found!r}, and this version of coldparquet knows format {_FORMAT}; go on with"
            " the version that wrote it, or begin with a new checkpoint",
            kind="UnknownStateFormat",
        )
    try:
        interval = document["interval"]
        return TableState(
            table_id=int(document["table_id"]),
            txn=int(document["txn"]),
            interval=None if interval is None else PartitionInterval[interval],
            is_nanosecond=bool(document["is_nanosecond"]),
            generation=int(document["generation"]),
            partitions=_partitions(_expand(document["state"], int(document["partitions"]))),
        )
    except (KeyError, TypeError, ValueError, OverflowError, zlib.error, binascii.Error) as error:
        raise FormatError(
            f"this checkpoint does not say what was handed over ({type(error).__name__}: {error}); it is damaged: begin with"
            " a new checkpoint",
            field="state",
        ) from error


def _expand(text: str, partition_count: int) -> npt.NDArray[np.int64]:
    if not 0 <= partition_count <= _MOST_PARTITIONS:
        raise ValueError(f"{partition_count} partitions")
    expected_bytes = partition_count * len(_COLUMNS) * WORD_BYTES
    data = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), expected_bytes + 1)
    if len(data) != expected_bytes:
        raise ValueError(f"{len(data)} bytes or more for {partition_count} partitions, expected {expected_bytes}")
    columns = from_byte_planes(data, (len(_COLUMNS), partition_count))
    for name in _ASCENDING:
        row = columns[_COLUMNS.index(name)]
        np.cumsum(row, out=row)
    return columns


def _partitions(columns: npt.NDArray[np.int64]) -> tuple[PartitionState, ...]:
    by_name = dict(zip(_COLUMNS, columns, strict=True))
    rows_left, row_counts = by_name.pop("rows_left"), by_name["row_count"]
    delivered = row_counts - rows_left
    is_possible = (
        (rows_left >= 0)
        & (delivered >= 0)
        & (row_counts > 0)
        & (by_name["epoch"] >= 0)
        & (by_name["epoch_first_row"] >= 0)
        & (by_name["epoch_first_row"] <= row_counts)
    )
    timestamps = by_name["timestamp"]
    if not is_possible.all() or not (timestamps[1:] > timestamps[:-1]).all():
        raise ValueError("impossible numbers of rows or bytes, or times out of order")
    by_name["delivered_rows"] = delivered
    names = tuple(by_name)
    return tuple(
        PartitionState(**dict(zip(names, values, strict=True)))
        for values in zip(*(column.tolist() for column in by_name.values()), strict=True)
    )

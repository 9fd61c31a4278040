"""A :class:`~coldparquet.catalog.table_state.TableState` as a small JSON object, which a checkpoint keeps.

Nothing but this object is kept anywhere, so it holds all that a later look at the table is compared with: of every
partition of which something was handed over its begin, the version (directory, Parquet size, rows), how many rows were
handed over, and from where after a rewrite. None of it can be found out later: a transaction replaces the one before, and a
partition that has grown must tell how many of its rows are old. The numbers of all partitions are put down column by
column, as differences where they ascend, byte plane by byte plane, and compressed: about 8 bytes for a partition, mostly
its rows and its size, so 40 kB of text for ten years of days. What can be derived (names, sums) is written for people only.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from coldparquet.catalog.table_state import PartitionState, TableState
from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.format.byte_planes import WORD_BYTES, from_byte_planes, to_byte_planes
from coldparquet.format.partition_intervals import PartitionInterval

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

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
"""More than a `_txn` may hold. A damaged checkpoint may claim any number, and would be expanded to that."""


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
    """Take a state out of its JSON object.

    Raises:
        UnsupportedError: A later version of this library wrote it (kind ``UnknownStateFormat``).
        FormatError: It is damaged.
    """
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

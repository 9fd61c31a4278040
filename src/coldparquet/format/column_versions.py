"""Reads and writes `_cv`: which version of each column file belongs to which partition, and where its values begin.

    header      40 bytes: version, then offset and size of area A and of area B; even versions live in A
    area        32 bytes per record, sorted by partition and column: partition timestamp, writer index, name txn, top

Two timestamps are not partitions. The least 64-bit integer marks the *default* of a column: its name txn, and as top
the partition in which it was added. The integer after it marks the name txn of its symbol files, where that differs.
All integers are little-endian.

Where a Parquet file holds a column, the file decides and not `_cv`: QuestDB 9.3.4 still records a column as absent from
a partition that was rewritten with it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from coldparquet.errors import FormatError, InvalidInputError
from coldparquet.format.partition_names import UNVERSIONED
from coldparquet.format.table_file_text import invalid, truncated
from coldparquet.format.types import distinct_values

HEADER = struct.Struct("<qqqqq")
"""Version; offset and size of area A, then of area B."""
AREA_A_OFFSET = 8
AREA_B_OFFSET = 24
RECORD_DTYPE = np.dtype([("timestamp", "<i8"), ("writer_index", "<i8"), ("name_txn", "<i8"), ("top", "<i8")])

DEFAULT_TIMESTAMP = -(1 << 63)
"""Timestamp of the record that holds for all partitions without one of their own."""
SYMBOL_FILES_TIMESTAMP = DEFAULT_TIMESTAMP + 1
"""Timestamp of the record that names the version of a column's symbol files."""
ABSENT_TOP = -1
"""What `ColumnVersions.columns` says for a column that a partition does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnVersion:
    """The files of one column in one partition."""

    name_txn: int
    """Version in the names of the files, or -1 without one."""
    top: int | None
    """Rows of the partition from before the column existed, all of them null; None where it is absent altogether."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnVersions:
    """All records of a `_cv` file."""

    version: int
    """Equals `TableTransaction.column_version` of the transaction that it belongs to."""
    records: npt.NDArray[np.void]
    """`RECORD_DTYPE`, shape (records,), sorted by timestamp and then by writer index, no pair twice."""
    _by_writer_index: dict[int, npt.NDArray[np.void]] = field(init=False, repr=False)
    """The same by column: there may be hundreds of thousands, with a lookup for every column of every partition."""

    def __post_init__(self) -> None:
        by_column = self.records[np.argsort(self.records["writer_index"], kind="stable")]
        writer_indexes = distinct_values(by_column["writer_index"])
        firsts = np.searchsorted(by_column["writer_index"], writer_indexes)
        of_columns = np.split(by_column, firsts[1:]) if len(firsts) else []
        grouped = dict(zip(writer_indexes.tolist(), of_columns, strict=True))
        object.__setattr__(self, "_by_writer_index", grouped)

    def column(self, partition_timestamp: int, writer_index: int) -> ColumnVersion:
        """Return the version of one column in one partition, given by the timestamp of its `_txn` record."""
        name_txns, tops = self.columns(np.array([partition_timestamp], np.int64), writer_index)
        top = int(tops[0])
        return ColumnVersion(name_txn=int(name_txns[0]), top=None if top == ABSENT_TOP else top)

    def columns(
        self, partition_timestamps: npt.NDArray[np.int64], writer_index: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return name txns and tops of one column in many partitions."""
        records = self._of_column(writer_index)
        default_name_txn, added_in = UNVERSIONED, DEFAULT_TIMESTAMP
        if len(records) and records["timestamp"][0] == DEFAULT_TIMESTAMP:
            default_name_txn, added_in = int(records["name_txn"][0]), int(records["top"][0])
        name_txns = np.full(len(partition_timestamps), default_name_txn, np.int64)
        tops = np.where(partition_timestamps >= added_in, np.int64(0), np.int64(ABSENT_TOP))
        if len(records):
            places = np.searchsorted(records["timestamp"], partition_timestamps)
            own = records[np.minimum(places, len(records) - 1)]
            has_own = own["timestamp"] == partition_timestamps
            name_txns = np.where(has_own, own["name_txn"], name_txns)
            tops = np.where(has_own, np.maximum(own["top"], ABSENT_TOP), tops)
        return name_txns, tops

    def symbol_name_txn(self, writer_index: int) -> int:
        """Return the version in the names of a column's symbol files, or -1 without one."""
        records = self._of_column(writer_index)
        special = records[records["timestamp"] <= SYMBOL_FILES_TIMESTAMP]
        # Sorted by time: the record of the symbol files, where there is one, follows the default.
        return int(special["name_txn"][-1]) if len(special) else UNVERSIONED

    def _of_column(self, writer_index: int) -> npt.NDArray[np.void]:
        """Return the records of one column, sorted by timestamp."""
        return self._by_writer_index.get(writer_index, self.records[:0])


def parse_column_versions(data: bytes | memoryview, *, path: str | None) -> ColumnVersions:
    """Parse the live area of a `_cv` file. A fresh file holds nothing but zeros: version 0 without records."""
    view = memoryview(data).cast("B")
    if len(view) < HEADER.size:
        raise truncated("header", HEADER.size, len(view), offset=0, path=path)
    version, *areas = HEADER.unpack_from(view)
    if version < 0:
        raise invalid(f"version {version} is negative", offset=0, field="version", path=path)
    described_at = AREA_B_OFFSET if version & 1 else AREA_A_OFFSET
    start, length_bytes = areas[2:] if version & 1 else areas[:2]
    if length_bytes < 0 or length_bytes % RECORD_DTYPE.itemsize:
        message = f"{length_bytes} bytes of records; expected a multiple of {RECORD_DTYPE.itemsize}"
        raise invalid(message, offset=described_at + 8, field="area_bytes", path=path)
    if length_bytes == 0:
        return ColumnVersions(version=version, records=np.empty(0, RECORD_DTYPE))
    if start < HEADER.size:
        message = f"the area begins at {start}, inside the header of {HEADER.size} bytes"
        raise invalid(message, offset=described_at, field="area_offset", path=path)
    if start + length_bytes > len(view):
        raise truncated("area", start + length_bytes, len(view), offset=described_at, path=path)
    records = np.frombuffer(view, RECORD_DTYPE, length_bytes // RECORD_DTYPE.itemsize, start)
    _check_order(records, start, path)
    return ColumnVersions(version=version, records=records)


def _check_order(records: npt.NDArray[np.void], start: int, path: str | None) -> None:
    earlier, later = records[:-1], records[1:]
    in_order = (earlier["timestamp"] < later["timestamp"]) | (
        (earlier["timestamp"] == later["timestamp"]) & (earlier["writer_index"] < later["writer_index"])
    )
    if not in_order.all():
        index = int(in_order.argmin()) + 1
        message = f"record {index} does not follow the one before it by timestamp and column"
        raise invalid(message, offset=start + index * RECORD_DTYPE.itemsize, field="records", path=path)


def encode_column_versions(versions: ColumnVersions) -> bytes:
    """Write a fresh `_cv` file with one area."""
    area = versions.records.astype(RECORD_DTYPE).tobytes()
    described = (HEADER.size, len(area)) if area else (0, 0)
    areas = (0, 0, *described) if versions.version & 1 else (*described, 0, 0)
    encoded = HEADER.pack(versions.version, *areas) + area
    try:
        parse_column_versions(encoded, path=None)
    except FormatError as error:
        raise InvalidInputError(f"this would not be a valid _cv file: {error.message}") from error
    return encoded

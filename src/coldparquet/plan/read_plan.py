"""What a read will do, as plain data: which bytes of which objects, why, and where each byte goes.

A plan is made before any data byte is fetched. It pickles, so that Spark can send pieces of it to executors, and it
holds no credentials. Requests and placements of one partition follow from its row group reads alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from coldparquet.options import Coalescing, ReadOptions
    from coldparquet.plan.native_read import NativeRead
    from coldparquet.plan.row_selection import RowSelection
    from coldparquet.plan.store_speed import StoreSpeed
    from coldparquet.ranges import ByteRange, SuffixRange

_OfPartition = TypeVar("_OfPartition", "PlannedRead", "PlannedRequest")

BUFFER_HEADER_BYTES = 4
"""A row group's buffer begins with the magic ``PAR1``; its first chunk follows at this offset."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowGroupRead:
    """What one row group, or a run of its rows, contributes: the bytes that are fetched and what needs no fetch."""

    partition_index: int
    """Position of the partition in :attr:`ReadPlan.partitions`."""
    row_group: int
    """Index of the row group in the partition's sidecar, from 0."""
    row_group_rows: int
    """Rows of the whole row group."""
    selection: RowSelection | None
    """The rows that are read; None for all rows of the row group."""
    columns: tuple[int, ...]
    """Indexes, in the partition's sidecar, of the columns of which bytes are fetched."""
    column_rows: tuple[RowSelection | None, ...]
    """Per fetched column: the rows that its fetched pages hold, among them those selected; None for the whole chunk."""
    piece_columns: npt.NDArray[np.int64]
    """Position in ``columns`` that each piece belongs to, ascending, shape ``(pieces,)``. A whole chunk is one piece;
    of a chunk that is fetched in part, the dictionary page and each run of pages that touch in the file are one."""
    piece_starts: npt.NDArray[np.int64]
    """First byte of each piece in the Parquet file; ascending within a column."""
    piece_stops: npt.NDArray[np.int64]
    """One past the last byte of each piece."""
    made_columns: tuple[int, ...]
    """Indexes of the columns that are made without fetching: null in every row, or one value in every row."""
    all_rows_match: bool
    """True if the metadata proves that every row satisfies the predicate, so that no filter has to run."""
    deferred: RowGroupRead | None = None
    """Columns of the result that are fetched only once the predicate's columns have shown which rows are left (late
    materialisation). It selects the same rows, and has nothing deferred itself."""
    row_groups_left_out: int = 0
    """How many row groups before it are in the Parquet file, but not in the sidecar, because that is cut down to a piece of
    the plan."""

    @property
    def row_group_in_file(self) -> int:
        """Number of the row group in its Parquet file, from 0."""
        return self.row_group + self.row_groups_left_out

    @property
    def row_count(self) -> int:
        """Number of rows that are read, before the predicate is applied to each row."""
        return self.row_group_rows if self.selection is None else self.selection.row_count

    @property
    def bytes_wanted(self) -> int:
        """Total length of the fetched pieces, with those deferred."""
        deferred_bytes = 0 if self.deferred is None else self.deferred.bytes_wanted
        return int((self.piece_stops - self.piece_starts).sum()) + deferred_bytes

    @property
    def buffer_offsets(self) -> npt.NDArray[np.int64]:
        """Place of each piece in the row group's buffer, shape ``(pieces,)``.

        The buffer holds the pieces of each column together, in file order, and the columns in the order in which they
        begin in the file, one packed after the other, behind the 4-byte magic. Deferred columns have a buffer of their own.
        """
        lengths = self.piece_stops - self.piece_starts
        if (self.piece_starts[1:] > self.piece_starts[:-1]).all():  # whole chunks in file order, as nearly always
            packed_starts: npt.NDArray[np.int64] = np.cumsum(lengths) - lengths
            return BUFFER_HEADER_BYTES + packed_starts
        column_begins = np.full(len(self.columns), np.iinfo(np.int64).max)
        np.minimum.at(column_begins, self.piece_columns, self.piece_starts)
        column_bytes = np.bincount(self.piece_columns, weights=lengths, minlength=len(self.columns)).astype(np.int64)
        # Among columns that begin at the same byte the empty ones come first: they share the place of the next one.
        rank = np.empty(len(self.columns), dtype=np.int64)
        rank[np.lexsort((column_bytes, column_begins))] = np.arange(len(self.columns))
        in_buffer_order = np.lexsort((lengths, self.piece_starts, rank[self.piece_columns]))
        packed_stops = np.cumsum(lengths[in_buffer_order])
        offsets = np.empty_like(lengths)
        offsets[in_buffer_order] = BUFFER_HEADER_BYTES + packed_stops - lengths[in_buffer_order]
        return offsets


PlannedRead: TypeAlias = "RowGroupRead | NativeRead"
"""What is fetched and decoded together: a row group, or a run of rows of native files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroupsDropped:
    """How many row groups of one partition were pruned for one reason."""

    reason: str
    """The part of the predicate that no row can satisfy, as text: ``price > 100``."""
    row_groups: int


MetadataSource: TypeAlias = Literal["sidecar", "catalogue", "footer", "native"]
"""What a plan of a partition was made from."""

TechniqueName: TypeAlias = Literal["bloom filter", "page index", "late reading"]
"""``late reading`` is late materialisation: the predicate's columns first, the others where rows are left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Technique:
    """One way of reading less, and what became of it in one partition."""

    name: TechniqueName
    is_used: bool
    unit: Literal["row groups", "rows"]
    """What is counted."""
    affected: int = 0
    """How many of those considered a bloom filter or a page index left out, or for how many late reading is used."""
    considered: int = 0
    """0 where it is not used."""
    reason: str = ""
    """Why it is used or not used, in words that other partitions may share; empty where the counts say it."""
    details: str = ""
    """The numbers of this partition behind the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedPartition:
    """A partition of which nothing is read, not even its sidecar."""

    name: str
    reason: str
    """Why no row of it can match: ``ts >= '2024-03-01'``, ``limit reached``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedPartition:
    """A partition that may hold matching rows and was left out because its data object is archived, as the options say."""

    name: str
    storage_class: str
    """Where its data object lies: ``GLACIER``, ``INTELLIGENT_TIERING ARCHIVE_ACCESS``."""
    size_bytes: int
    """Of the data object; 0 where the store does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRead:
    """One partition that survived: where its data lies and what pruning left of it."""

    name: str
    """Directory name as a person knows it: ``2024-03-01.12``."""
    data_path: str
    """Path of its ``data.parquet`` in the store, or of the directory of a native partition."""
    parquet_size_bytes: int | None
    """Size of the Parquet file in the snapshot that was planned; the object must have at least as many bytes. None if
    native."""
    metadata_source: MetadataSource
    """Where the plan comes from: the ``_pm`` sidecar, the same out of the table's catalogue, in its absence the Parquet
    footer, or QuestDB's native files."""
    row_groups_total: int
    """0 if native: its files know no row groups."""
    row_groups_read: int
    rows_total: int
    rows_read: int
    """Rows in the row groups that are read, before the predicate is applied to each row."""
    dropped: tuple[RowGroupsDropped, ...] = ()
    """Pruned row groups by reason. A row group that several reasons prune may be counted under each."""
    made_columns: tuple[str, ...] = ()
    """Columns that are made without fetching: absent here, or one value or NULL in every row of all that is read."""
    techniques: tuple[Technique, ...] = ()
    """What else was considered in order to read less. None is listed where there was nothing to consider."""
    notes: tuple[str, ...] = ()
    """Anything else that a person should know, one sentence each."""
    storage_class: str | None = None
    """S3's name of the class its data object lies in; None where nobody has asked, or the store has no classes."""
    is_archived: bool = False
    """Whether the data object was seen to need a restore before it can be read."""
    is_being_restored: bool = False
    """Whether such a restore was seen to be under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """One GET that will be sent, and what it is for."""

    partition_index: int
    """Position of the partition in :attr:`ReadPlan.partitions`."""
    path: str
    byte_range: ByteRange
    reason: str
    """``row groups 3-5: ts, price``."""
    stage: int = 1
    """Requests of one stage may all be in flight together; a later stage waits for the one before."""


MetadataOperation: TypeAlias = Literal["get", "list", "info"]
"""``info`` asks what is known of an object: a HEAD."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequest:
    """A request that was already spent to make the plan: sidecars, footers, listings of a table."""

    path: str
    byte_range: ByteRange | SuffixRange | None
    """None for a listing, for a look at what is known of an object, and for a file that does not exist."""
    reason: str
    fetched_bytes: int
    operation: MetadataOperation = "get"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchNumbers:
    """What one partition costs."""

    request_count: int
    bytes_wanted: int
    bytes_fetched: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ReadPlan:
    """Everything that a read will do. Nothing outside it is requested from the data objects."""

    table: str
    """What is read, for people: the URL without credentials."""
    columns: tuple[str, ...]
    """Columns of the result, in its order."""
    predicate: str | None
    """The predicate as text; None reads every row."""
    limit: int | None
    """At most so many rows of result; None for all."""
    partitions_pruned: tuple[PrunedPartition, ...]
    partitions: tuple[PartitionRead, ...]
    """Partitions that were looked at, in table order. One whose row groups were all pruned is still listed."""
    row_groups: tuple[PlannedRead, ...]
    """In partition order and, within a partition, in ascending order of row groups, or of rows if native."""
    requests: tuple[PlannedRequest, ...]
    """In partition order and, within a partition, in file order."""
    metadata_requests: tuple[MetadataRequest, ...]
    """What making the plan has cost so far."""
    options: ReadOptions
    speed: StoreSpeed
    """Of the store, as far as it was known."""
    coalescings: tuple[Coalescing, ...] = ()
    """How ranges became requests, one for each partition."""
    snapshot: str | None = None
    """How the partitions were found, and so which state of the table is read: by a transaction, or by a directory
    listing. None where partitions were named."""
    notes: tuple[str, ...] = ()
    """What a person should know about the table as a whole, one sentence each."""
    partitions_skipped: tuple[SkippedPartition, ...] = ()
    """Partitions that are left out although they may hold matching rows; none unless the options ask for that."""

    def __str__(self) -> str:
        return self.explain()

    def __repr__(self) -> str:
        return f"<ReadPlan of {self.table}: {self.request_count} requests, {self.bytes_fetched:,} bytes>"

    @property
    def request_count(self) -> int:
        """Number of GETs for data."""
        return len(self.requests)

    @property
    def bytes_wanted(self) -> int:
        """Bytes of the column chunks that the result needs."""
        return bytes_wanted_by(self.row_groups)

    @property
    def bytes_fetched(self) -> int:
        """Bytes that the requests bring: those wanted and the gaps between them that were cheaper to read."""
        return sum(request.byte_range.length_bytes for request in self.requests)

    @property
    def round_trips(self) -> int:
        """Stages of requests that wait for each other; 0 when nothing has to be fetched."""
        return len({request.stage for request in self.requests})

    @property
    def widest_gap_bytes(self) -> int:
        """Widest gap between two ranges that a request may read over."""
        return max((coalescing.gap_bytes for coalescing in self.coalescings), default=0)

    @property
    def longest_request_bytes(self) -> int:
        """Length up to which requests may grow."""
        return max((coalescing.max_request_bytes for coalescing in self.coalescings), default=0)

    @property
    def rows_at_least(self) -> int:
        """Rows that are certain to be in the result: those of row groups where every row matches."""
        return self._limited(sum(read.row_count for read in self.row_groups if read.all_rows_match))

    @property
    def rows_at_most(self) -> int:
        """Upper bound of the result's rows: those of all row groups that are read."""
        return self._limited(sum(read.row_count for read in self.row_groups))

    def row_groups_of(self, partition_index: int) -> tuple[PlannedRead, ...]:
        """Return the row group reads of one partition, in ascending order of row groups."""
        return _of_partition(self.row_groups, partition_index)

    def requests_of(self, partition_index: int) -> tuple[PlannedRequest, ...]:
        """Return the requests of one partition, in file order."""
        return _of_partition(self.requests, partition_index)

    def numbers_of(self, partition_index: int) -> FetchNumbers:
        """Return the requests and bytes of one partition."""
        requests = self.requests_of(partition_index)
        return FetchNumbers(
            request_count=len(requests),
            bytes_wanted=bytes_wanted_by(self.row_groups_of(partition_index)),
            bytes_fetched=sum(request.byte_range.length_bytes for request in requests),
        )

    def explain(self) -> str:
        """Describe the plan for a person, with its price."""
        from coldparquet.plan.explain import explain_text  # noqa: PLC0415 - the printer reads plans: a plan names it when asked

        return explain_text(self)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain data that ``json.dumps`` takes."""
        from coldparquet.plan.explain_json import explain_dict  # noqa: PLC0415 - as in explain

        return explain_dict(self)

    def _limited(self, rows: int) -> int:
        return rows if self.limit is None else min(rows, self.limit)


def bytes_wanted_by(reads: Sequence[PlannedRead]) -> int:
    """Return the total length of the fetched pieces of reads, with those deferred."""
    parts = [(read.piece_starts, read.piece_stops) for read in reads if isinstance(read, RowGroupRead)]
    deferred = [read.deferred for read in reads if isinstance(read, RowGroupRead) and read.deferred is not None]
    parts += [(read.piece_starts, read.piece_stops) for read in deferred]
    wanted_bytes = sum(read.bytes_wanted for read in reads if not isinstance(read, RowGroupRead))
    if parts:
        starts, stops = zip(*parts, strict=True)
        wanted_bytes += int((np.concatenate(stops) - np.concatenate(starts)).sum())
    return wanted_bytes


def _of_partition(items: tuple[_OfPartition, ...], partition_index: int) -> tuple[_OfPartition, ...]:
    """Cut one partition out of items that are sorted by partition."""
    key = attrgetter("partition_index")
    return items[bisect_left(items, partition_index, key=key) : bisect_right(items, partition_index, key=key)]

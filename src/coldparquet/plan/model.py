"""Defines the read plan as plain data: which bytes of which objects, why, and where each byte goes.

A plan is made before any data byte is fetched. It holds no credentials. Its reads are self-contained: each knows its
object, its bytes there and how they become rows, so that any of them can be fetched and decoded elsewhere, without the
metadata that they were planned from.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from msgspec import Struct, field

from coldparquet.format.parquet_schema import LeafSpec
from coldparquet.format.types import parse_part, parse_stored, resolve_type
from coldparquet.lazy_names import ShownInNotebooks

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy.typing as npt

    from coldparquet.format.binary import Utf8Strings
    from coldparquet.format.pages import PartitionPages
    from coldparquet.format.sidecar_layout import PhysicalType, Repetition
    from coldparquet.format.types import ColumnType
    from coldparquet.options import Coalescing, ReadOptions
    from coldparquet.plan.selection import RowSelection
    from coldparquet.ranges import ByteRange, SuffixRange


_OfPartition = TypeVar("_OfPartition", "Read", "PlannedRequest")

BUFFER_HEADER_BYTES = 4
"""A row group's buffer begins with the magic ``PAR1``; its first chunk follows at this offset."""


CHUNK = np.dtype([("codec", np.uint8), ("encodings", np.uint8), ("value_count", np.int64), ("decoded_bytes", np.int64)])
"""What decoding needs of a column chunk of Parquet besides its bytes: compression codec and encodings as sidecars number
them, the number of values, nulls included, and an estimate of the memory that all of them take once decoded."""

MAX_ROW_GROUP_ROWS = 2**31 - 1
"""Writers' row groups hold a few million rows. Damaged metadata may claim any number, and columns made without fetching
would then be that long."""


MOST_DECODED_BYTES = 1 << 62
"""Lengths from damaged metadata may be any numbers."""

FileRole: TypeAlias = Literal["fixed", "auxiliary", "data"]
"""``fixed``: the values themselves, all of one width. ``auxiliary``: the places of variable-size values; ``data``:
those values."""


class StoredFile(NamedTuple):
    """One of the files of a partition whose columns have files of their own."""

    column: int
    """Number of its column in the partition."""
    role: FileRole
    path: str


class StoredColumn(Struct, frozen=True, kw_only=True):
    """One column as a partition stores it; partitions that describe their columns alike share it."""

    name: str
    """Its name there."""
    type: ColumnType
    """Its type there, perhaps an earlier one than in the table."""
    leaf: LeafSpec | None = None
    """How pyarrow reads it from Parquet; None in native files."""
    type_code: int = 0
    """What its type in Parquet follows from, beside the leaf."""
    annotation: str | None = None
    """Likewise, if the file is not QuestDB's."""
    part_of: int | None = None
    """Number of the first leaf of a nested column, of which this is another one: they are decoded together."""
    top: int | None = 0
    """Rows of the partition from before the column existed: native files have no bytes for them. None: all rows."""

    @classmethod
    def in_parquet(  # noqa: PLR0913 - the fields of a sidecar's column descriptor
        cls,
        number: int,
        *,
        name: str,
        type_code: int,
        physical_type: PhysicalType,
        fixed_byte_length: int,
        repetition: Repetition,
        max_rep_level: int,
        max_def_level: int,
        annotation: str | None,
    ) -> StoredColumn:
        """Describe a column of a Parquet file.

        Raises:
            UnsupportedError: Its type is not readable.
        """
        column_type = resolve_type(type_code, physical_type, fixed_byte_length, max_rep_level, annotation)
        part, stored = parse_part(annotation), parse_stored(annotation)
        leaf = LeafSpec(
            # pyarrow chooses columns by name, and takes dots for paths into structs.
            name=f"{number}:{name.replace('.', '_')}",
            physical_type=physical_type,
            fixed_byte_length=fixed_byte_length,
            repetition=repetition,
            max_rep_level=max_rep_level,
            max_def_level=max_def_level,
            logical=column_type.parquet_logical,
            stored=None if stored is None else stored[0],
            number=0 if part is None else part[1],
        )
        return cls(
            name=name,
            type=column_type,
            leaf=leaf,
            type_code=type_code,
            annotation=annotation,
            part_of=None if part is None else part[0],
        )


class StoredData(Struct, frozen=True, kw_only=True, eq=False):
    """The data of one partition: what all of its reads share."""

    decoder: Literal["parquet", "native"]
    """What makes rows of its bytes."""
    path: str
    """The data object, or the directory of a native partition."""
    columns: Mapping[int, StoredColumn]
    """The needed columns that it has, by their numbers in the partition."""
    places: Mapping[int, int | None]
    """By index in the table: the number of each needed column in the partition, None if it is absent."""
    size_bytes: int | None = None
    """Size of the planned data object, which has at least as many bytes; None for native files."""
    etag: str | None = None
    """Version that every answer must have, because the pages describe it; None if only the metadata vouches for it."""
    may_grow: bool = False
    """Whether a QuestDB may append to it during the scan."""
    created_by: str | None = None
    """The writer that the Parquet file names, empty if it names none; None if unknown."""
    is_writer_known: bool = True
    """Whether its pages are certainly marked as compressed where they are."""
    files: tuple[StoredFile, ...] = ()
    """The files of a native partition."""
    symbols: Mapping[int, Utf8Strings] = field(default_factory=dict)
    """Values of the symbol columns of a native partition, by number."""
    pages: PartitionPages | None = None
    """What planning has found out about the pages."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"  # a read would take pages of text

    def leaves_of(self, places: Collection[int]) -> set[int]:
        """Return the numbers of the columns that hold some columns of the table, all leaves of nested ones among them."""
        wanted = frozenset(places)
        return {*wanted, *(number for number, column in self.columns.items() if column.part_of in wanted)}


class Read(Struct, frozen=True, kw_only=True, eq=False):
    """Some rows of one row group: all that is needed to fetch and decode them.

    A slice of the rows of a native partition is the same: its number takes the place of the row group's.
    """

    partition_index: int
    """Position of the partition in :attr:`ReadPlan.partitions`."""
    data: StoredData
    """What the reads of the partition share."""
    row_group: int
    """Number of the row group in its Parquet file, or of the slice, from 0."""
    row_group_rows: int
    """Rows of the whole row group."""
    first_row: int = 0
    """First row of the slice in a native partition."""
    selection: RowSelection | None = None
    """The rows to read; None for all rows of the row group."""
    columns: tuple[int, ...]
    """Numbers, in the partition, of the columns with bytes to fetch."""
    column_rows: tuple[RowSelection | None, ...]
    """Per fetched column: all rows in its fetched pages, which include those selected; None for the whole chunk."""
    chunks: npt.NDArray[Any]
    """Per fetched column of Parquet: its chunk, as :data:`CHUNK`; empty for native files."""
    piece_columns: npt.NDArray[np.int64]
    """Position in ``columns`` of each piece's column, ascending, shape ``(pieces,)``. A whole chunk is one piece. If a
    chunk is fetched in part, its dictionary page and each run of adjacent pages in the file are one piece."""
    piece_starts: npt.NDArray[np.int64]
    """First byte of each piece in its file; ascending within a column of Parquet."""
    piece_stops: npt.NDArray[np.int64]
    """One past the last byte of each piece."""
    piece_files: npt.NDArray[np.int64] | None = None
    """Position of the file of each piece in :attr:`StoredData.files`; None if all are in the data object."""
    made_columns: tuple[int, ...] = ()
    """Numbers of the columns made without fetching."""
    made_values: tuple[bytes | None, ...] = ()
    """The value of each in every row, in Parquet's plain encoding; None for null."""
    all_rows_match: bool
    """True if the metadata proves that every row satisfies the predicate, so that no filter is needed."""
    deferred: Read | None = None
    """Columns of the result that are fetched only once the predicate's columns show which rows remain (late
    materialisation). This read selects the same rows, and defers nothing itself."""
    joined: tuple[Read, ...] = ()
    """The reads of small neighbouring row groups that this one takes the place of: see ``join_small_reads``. Its columns and
    pieces are theirs, one read after the other."""

    @property
    def by_row_group(self) -> tuple[Read, ...]:
        """The reads of single row groups that this one consists of: itself, or those that it joins."""
        return self.joined or (self,)

    @property
    def columns_per_row_group(self) -> int:
        """Number of columns with bytes to fetch in each of :attr:`by_row_group`."""
        return len(self.columns) // max(len(self.joined), 1)

    @property
    def row_count(self) -> int:
        """Number of rows to read, before the predicate is applied to each row."""
        return self.row_group_rows if self.selection is None else self.selection.row_count

    @property
    def bytes_wanted(self) -> int:
        """Total length of the pieces to fetch, including deferred ones."""
        deferred_bytes = 0 if self.deferred is None else self.deferred.bytes_wanted
        return int((self.piece_stops - self.piece_starts).sum()) + deferred_bytes

    @property
    def buffer_offsets(self) -> npt.NDArray[np.int64]:
        """Place of each piece in the read's buffer, shape ``(pieces,)``.

        The buffer of Parquet begins with the 4-byte magic. The columns follow without gaps, in the order in which they
        begin in the file; each holds its pieces in file order. Deferred columns have a buffer of their own. The pieces
        of native files are packed in their order.
        """
        lengths = self.piece_stops - self.piece_starts
        packed_starts: npt.NDArray[np.int64] = np.cumsum(lengths) - lengths
        if self.piece_files is not None:
            return packed_starts
        if (self.piece_starts[1:] > self.piece_starts[:-1]).all():  # whole chunks in file order, the usual case
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


class RowGroupsDropped(Struct, frozen=True, kw_only=True):
    """Number of row groups of one partition that were pruned for one reason."""

    reason: str
    """The part of the predicate that no row can satisfy, as text: ``price > 100``."""
    row_groups: int


MetadataSource: TypeAlias = Literal["sidecar", "catalogue", "footer", "native"]
"""The source of a partition's plan."""

TechniqueName: TypeAlias = Literal["bloom filter", "page index", "late reading"]
"""``late reading`` is late materialisation: the predicate's columns first, the others only for the remaining rows."""


class Technique(Struct, frozen=True, kw_only=True):
    """One way of reading less, and its effect in one partition."""

    name: TechniqueName
    is_used: bool
    unit: Literal["row groups", "rows"]
    """The counted things."""
    affected: int = 0
    """How many of those considered a bloom filter or a page index excluded, or for how many late reading is used."""
    considered: int = 0
    """0 if it is not used."""
    reason: str = ""
    """Why it is used or not, in words that other partitions may share; empty if the counts say it."""
    details: str = ""
    """The numbers of this partition behind the reason."""


class PrunedPartition(Struct, frozen=True, kw_only=True):
    """A partition that is not read at all, not even its sidecar."""

    name: str
    reason: str
    """Why none of its rows can match: ``ts >= '2024-03-01'``, ``limit reached``."""


class SkippedPartition(Struct, frozen=True, kw_only=True):
    """A partition that may hold matching rows, but is skipped by the options because its data object is archived."""

    name: str
    storage_class: str
    """Storage class of its data object: ``GLACIER``, ``INTELLIGENT_TIERING ARCHIVE_ACCESS``."""
    size_bytes: int
    """Size of the data object; 0 if the store does not tell."""


class PartitionRead(Struct, frozen=True, kw_only=True):
    """One partition that survived: the place of its data, and what pruning left of it."""

    name: str
    """Directory name as people know it: ``2024-03-01.12``."""
    data_path: str
    """Path of its ``data.parquet`` in the store, or of the directory of a native partition."""
    parquet_size_bytes: int | None
    """Size of the Parquet file in the planned snapshot; the object must have at least as many bytes. None if native."""
    metadata_source: MetadataSource
    """Source of the plan: the ``_pm`` sidecar, its copy in the table's catalogue, without both the Parquet footer, or
    QuestDB's native files."""
    row_groups_total: int
    """0 if native: its files have no row groups."""
    row_groups_read: int
    rows_total: int
    rows_read: int
    """Rows in the row groups to read, before the predicate is applied to each row."""
    dropped: tuple[RowGroupsDropped, ...] = ()
    """Pruned row groups by reason. A row group that several reasons prune may count under each."""
    made_columns: tuple[str, ...] = ()
    """Columns made without fetching: absent here, or one value or NULL in every row to be read."""
    techniques: tuple[Technique, ...] = ()
    """Other techniques that were considered to read less; only those that had something to consider."""
    notes: tuple[str, ...] = ()
    """Other remarks for people, one sentence each."""
    storage_class: str | None = None
    """S3's name of the data object's storage class; None if unknown, or the store has no classes."""
    is_archived: bool = False
    """Whether a HEAD showed that the data object needs a restore."""
    is_being_restored: bool = False
    """Whether a HEAD showed that such a restore is in progress."""


class PlannedRequest(Struct, frozen=True, kw_only=True):
    """One GET to be sent, and its purpose."""

    partition_index: int
    """Position of the partition in :attr:`ReadPlan.partitions`."""
    path: str
    byte_range: ByteRange
    reason: str
    """``row groups 3-5: ts, price``."""
    stage: int = 1
    """All requests of one stage may be in flight together; a later stage waits for the previous one."""


MetadataOperation: TypeAlias = Literal["get", "list", "info"]
"""``info`` asks for an object's attributes: a HEAD."""


class MetadataRequest(Struct, frozen=True, kw_only=True):
    """A request already sent to make the plan: sidecars, footers, listings of a table."""

    path: str
    byte_range: ByteRange | SuffixRange | None
    """None for a listing, for a HEAD, and for a file that does not exist."""
    reason: str
    fetched_bytes: int
    operation: MetadataOperation = "get"


class FetchNumbers(Struct, frozen=True, kw_only=True):
    """The requests and bytes of one partition."""

    request_count: int
    bytes_wanted: int
    bytes_fetched: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ReadPlan(ShownInNotebooks):
    """Everything that a read will do. Only what it lists is requested from the data objects."""

    table: str
    """The table in words for people: the URL without credentials."""
    columns: tuple[str, ...]
    """Columns of the result, in order."""
    predicate: str | None
    """The predicate as text; None reads every row."""
    limit: int | None
    """Most rows of the result; None for all."""
    partitions_pruned: tuple[PrunedPartition, ...]
    partitions: tuple[PartitionRead, ...]
    """Partitions with fetched metadata, in table order. One whose row groups were all pruned is listed as well."""
    row_groups: tuple[Read, ...]
    """In partition order and, within a partition, in ascending order of row groups, or of rows if native."""
    requests: tuple[PlannedRequest, ...]
    """In partition order and, within a partition, in file order."""
    metadata_requests: tuple[MetadataRequest, ...]
    """The requests sent so far to make the plan."""
    options: ReadOptions
    speed: StoreSpeed
    """Of the store, as far as known."""
    coalescings: tuple[Coalescing, ...] = ()
    """How ranges became requests, for each partition."""
    late_coalescings: tuple[Coalescing, ...] = ()
    """The same for deferred columns, which are requested once the predicate is evaluated."""
    late_part_bytes: int = 0
    """Approximate length of the requests for deferred columns."""
    snapshot: str | None = None
    """How the partitions were found, and so which state of the table is read: by a transaction, or by a directory
    listing. None if the caller named the partitions."""
    notes: tuple[str, ...] = ()
    """Remarks for people about the table as a whole, one sentence each."""
    partitions_skipped: tuple[SkippedPartition, ...] = ()
    """Partitions that are skipped although they may hold matching rows; none unless the options allow it."""

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
        """Bytes that the requests fetch: those wanted, and the gaps between them that were cheaper to read."""
        return sum(request.byte_range.length_bytes for request in self.requests)

    @property
    def round_trips(self) -> int:
        """Number of sequential stages of requests; 0 if nothing has to be fetched."""
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
        """Rows that are certainly in the result: those of row groups in which every row matches."""
        return self._limited(sum(read.row_count for read in self.row_groups if read.all_rows_match))

    @property
    def rows_at_most(self) -> int:
        """Upper bound of the result's rows: those of all row groups to read."""
        return self._limited(sum(read.row_count for read in self.row_groups))

    def row_groups_of(self, partition_index: int) -> tuple[Read, ...]:
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

    def explain(self, *, width: int | None = None) -> str:
        """Describe the plan for a person, with its price; ``width`` folds its tables to so many columns."""
        from coldparquet.plan.explain import explain_text  # noqa: PLC0415 - the printer reads plans: a plan names it when asked

        return explain_text(self, width)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain data that ``json.dumps`` takes."""
        from coldparquet.plan.explain import explain_dict  # noqa: PLC0415 - as in explain

        return explain_dict(self)

    def _limited(self, rows: int) -> int:
        return rows if self.limit is None else min(rows, self.limit)


def bytes_wanted_by(reads: Sequence[Read]) -> int:
    """Return the total length of the reads' pieces to fetch, including deferred ones."""
    parts = [*reads, *[read.deferred for read in reads if read.deferred is not None]]
    if not parts:
        return 0
    stops = np.concatenate([part.piece_stops for part in parts])
    return int((stops - np.concatenate([part.piece_starts for part in parts])).sum())


def _of_partition(items: tuple[_OfPartition, ...], partition_index: int) -> tuple[_OfPartition, ...]:
    """Return the items of one partition from items sorted by partition."""
    key = attrgetter("partition_index")
    return items[bisect_left(items, partition_index, key=key) : bisect_right(items, partition_index, key=key)]


FIRST_BYTE_S = 0.030
"""Time to the first byte of a small GET from S3 Standard: 27-30 ms in the published medians
(AnyBlob, VLDB 2023; Bodner et al., arXiv 2501.07771)."""

CONNECTION_BYTES_PER_S = 55 * 1024 * 1024
"""Throughput of one connection to S3: median 55-60 MiB/s (AnyBlob, VLDB 2023)."""

DECODED_BYTES_PER_S = 1e9
"""Compressed bytes that a few processors decode per second: with more, a scan waits for decoding, not for the
network."""

_BYTES_PER_CONNECTION = 512 * 1024
"""Reads are split into requests of at least about this length, so that small ones do not use all connections."""


class StoreSpeed(Struct, frozen=True, kw_only=True):
    """How fast a store answers, and which figures were measured; the others are the published ones for S3."""

    connections: int
    """Requests in flight at once."""
    first_byte_s: float = FIRST_BYTE_S
    """Time from a request to the first byte of its answer."""
    connection_bytes_per_s: float = CONNECTION_BYTES_PER_S
    """Throughput of one connection."""
    is_first_byte_measured: bool = False
    is_throughput_measured: bool = False
    is_remote: bool = False
    """Whether requests use a network; then figures not yet measured are probably like the published ones."""
    are_connections_new: bool = False
    """Whether every request must open its own connection, as in processes that an engine starts for its tasks."""

    @property
    def bytes_per_first_byte(self) -> float:
        """Bytes that one connection could deliver in the time to the first byte of an answer."""
        return self.first_byte_s * self.connection_bytes_per_s

    def seconds(self, length_bytes: float) -> float:
        """Estimate the time to fetch and decode this many bytes in one round trip; both run in parallel."""
        if length_bytes <= 0:
            return 0.0
        used = min(max(length_bytes / _BYTES_PER_CONNECTION, 1), self.connections)
        bytes_per_s = min(used * self.connection_bytes_per_s, DECODED_BYTES_PER_S)
        return self.first_byte_s + length_bytes / bytes_per_s

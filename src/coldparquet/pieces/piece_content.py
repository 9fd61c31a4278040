"""What a piece of work says, as plain data: everything that reading some row groups takes, but for credentials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.catalog.table_files import TableMoment
    from coldparquet.format.partition_pages import PartitionPages
    from coldparquet.format.partition_records import PartitionRecord
    from coldparquet.format.utf16 import Utf8Strings
    from coldparquet.options import Coalescing, ReadOptions
    from coldparquet.plan.bind import BoundPredicate
    from coldparquet.plan.native_read import NativeColumn, NativeRead
    from coldparquet.plan.projection import TableColumn
    from coldparquet.plan.read_plan import MetadataSource, RowGroupRead


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestShape:
    """How the ranges of one partition become requests: as the plan chose it for the whole scan."""

    coalescing: Coalescing
    part_bytes: int
    """About how long requests should be at the end."""
    late_coalescing: Coalescing
    """The same for deferred columns, which are requested by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ParquetShare:
    """What a piece reads of one partition in Parquet."""

    name: str
    """Directory name as a person knows it."""
    data_path: str
    metadata_source: MetadataSource
    etag: str | None
    """Version that every answer must be of; None where the store tells none."""
    pages_etag: str | None
    """Version of the object that its pages were learned of; None where nothing has to be compared any more."""
    may_grow: bool
    """Whether a QuestDB may append to the file meanwhile."""
    sidecar: bytes
    """A sidecar of the row groups and columns of this share alone, which are numbered as there from here on."""
    places: tuple[int | None, ...]
    """Of each column of the piece: where it is in the sidecar, None where the partition was written without it."""
    pages: PartitionPages | None
    """Where the pages of the chunks lie, without what bounds them; None where nobody will ask."""
    shape: RequestShape
    reads: tuple[RowGroupRead, ...]
    """With ``partition_index`` as in the piece."""

    @property
    def paths(self) -> tuple[str, ...]:
        """What is read."""
        return (self.data_path,)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NativeShare:
    """What a piece reads of one partition in QuestDB's native format."""

    name: str
    """Directory name as a person knows it."""
    data_path: str
    """The directory."""
    record: PartitionRecord
    """What the table's `_txn` said of it when the scan was planned."""
    columns: tuple[NativeColumn, ...]
    """The columns of the piece, as the partition stores them."""
    dictionaries: Mapping[int, int]
    """By index of a symbol column in the table: the position of its symbols in :attr:`PieceContent.dictionaries`."""
    shape: RequestShape
    reads: tuple[NativeRead, ...]
    """With ``partition_index`` as in the piece."""

    @property
    def paths(self) -> tuple[str, ...]:
        """What is read, and the directory of it, beside which the table's own files lie."""
        return (self.data_path, *dict.fromkeys(file.path for read in self.reads for file in read.files))


PieceShare: TypeAlias = ParquetShare | NativeShare


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PieceContent:
    """What one piece says."""

    table: str
    """URL of the table, without credentials."""
    options: ReadOptions
    """How to read; nothing in them belongs to the driver alone."""
    columns: tuple[TableColumn, ...]
    """Columns of the result and of the predicate, each once; those of the result come first."""
    output_column_count: int
    predicate: BoundPredicate | None
    predicate_text: str | None
    """For people."""
    late_part_bytes: int
    """About how long the requests of a second stage should be."""
    symbols: Mapping[int, Sequence[str]]
    """By index of a column in the table: with which symbols its dictionaries begin; only with ``symbols="global"``."""
    dictionaries: tuple[Utf8Strings, ...]
    """Symbols that native partitions refer to by number."""
    moment: TableMoment | None
    """State of the table that the native partitions are of; None without any."""
    shares: tuple[PieceShare, ...]
    """In table order."""

    @property
    def output_columns(self) -> tuple[TableColumn, ...]:
        """Columns of the result, in its order."""
        return self.columns[: self.output_column_count]


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceNumbers:
    """What is known of a piece without looking at its reads."""

    row_group_count: int
    """Row groups, or runs of them, that are read one by one."""
    rows_at_most: int
    """Rows that it can have at most: the predicate may leave fewer."""
    fetched_bytes: int
    """Bytes that its requests fetch at most."""
    request_count: int
    """Number of its GETs at most: fewer where no row is left whose deferred columns would be fetched."""

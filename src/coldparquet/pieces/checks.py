"""Checks the content of a piece against itself before any fetch or large allocation: its bytes may come from anywhere.

Nothing here knows how a piece is encoded. Reads are checked against the metadata of their partition. The requests of
that metadata are in turn pinned to an object at least as large as it says.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, Self, cast, get_args

import numpy as np

from coldparquet.decode.arrow import PLAIN_TEXT, arrow_type
from coldparquet.decode.filter import check_comparable
from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.format.native import FixedLayout
from coldparquet.format.pages import ClaimedPages, check_pages
from coldparquet.format.table_file_text import Utf8Strings
from coldparquet.format.types import TypeTag
from coldparquet.pieces.frame import damaged_piece
from coldparquet.plan.bind import BoundComparison, BoundIn, fields_of
from coldparquet.plan.model import MetadataSource, RowGroupRead
from coldparquet.plan.native import NativeRead
from coldparquet.plan.predicate import leaves
from coldparquet.plan.type_changes import can_convert
from coldparquet.storage.urls import paths_outside

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    import numpy.typing as npt

    from coldparquet.format.pages import ChunkPlaces, PartitionPages
    from coldparquet.format.types import ColumnType
    from coldparquet.pieces.frame import NativeShare, ParquetShare, PieceContent
    from coldparquet.plan.bind import BoundPredicate
    from coldparquet.plan.columns import TableColumn
    from coldparquet.plan.literals import DomainValue
    from coldparquet.plan.model import RowSelection
    from coldparquet.plan.native import NativeColumn


_SOURCES = frozenset(get_args(MetadataSource))
_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "str": (str,),
    "bytes": (bytes,),
    "None": (NoneType,),
}


@contextmanager
def refuses_nonsense() -> Iterator[None]:
    """Turn any error without a request into the error for a damaged piece."""
    try:
        yield
    except (FormatError, UnsupportedError):
        raise
    except Exception as error:  # only the piece can be the reason
        raise damaged_piece(f"it says what makes no sense ({error!r})") from error


def check_types(value: object) -> None:
    """Check the plain fields of dataclasses, recursively; numbers that were not JSON already have their type."""
    if isinstance(value, tuple):
        for item in value[:1] if value and isinstance(value[0], RowGroupRead | NativeRead) else value:
            check_types(item)
    if not is_dataclass(value):
        return
    plain, others = _fields_of(cast("Hashable", type(value)))
    for name, types in plain:
        found = getattr(value, name)
        if not isinstance(found, types) or (type(found) is bool and bool not in types):
            raise damaged_piece(f"{type(value).__name__}.{name} is {found!r:.60}")
    for name in others:
        check_types(getattr(value, name))


@cache
def _fields_of(of_class: Any) -> tuple[list[tuple[str, tuple[type, ...]]], list[str]]:
    """Return the fields of plain types, and the names of the others."""
    plain, others = [], []
    for field in fields(of_class):
        names = str(field.type).split(" | ")
        if all(name in _TYPES for name in names):
            plain.append((field.name, tuple(type_ for name in names for type_ in _TYPES[name])))
        else:
            others.append(field.name)
    return plain, others


def check_type(stored: ColumnType, wanted: ColumnType) -> None:
    """Check that a stored column can be read as its wanted type; see :func:`refuses_nonsense`."""
    arrow_type(stored, text=PLAIN_TEXT)
    _require(can_convert(stored, wanted), f"it makes {wanted.name} of {stored.name}")


def check_native_column(stored: NativeColumn, wanted: TableColumn) -> None:
    """Check that a native partition has a column of the piece."""
    _require((stored.index, stored.name) == (wanted.index, wanted.name), "it names a column in two ways")
    check_type(stored.type, wanted.readable_type)


def checked_strings(utf8: bytes, offsets: npt.NDArray[np.int64]) -> Utf8Strings:
    """Return strings whose offsets fit their bytes; see :func:`check_types` for errors."""
    _require(
        len(offsets) > 0 and offsets[0] == 0 and offsets[-1] == len(utf8) <= np.iinfo(np.int32).max,
        "its symbols do not fill their bytes",
    )
    _require((np.diff(offsets) >= 0).all(), "its symbols are out of order")
    utf8.decode()
    return Utf8Strings(utf8=utf8, offsets=offsets.astype(np.int32))


def check_predicate(predicate: BoundPredicate, columns: Sequence[TableColumn]) -> None:
    """Check that a predicate's literals compare with the columns; for errors see :func:`refuses_nonsense`."""
    types = {column.index: arrow_type(column.readable_type, text=PLAIN_TEXT) for column in columns}
    values: dict[int, list[DomainValue]] = {}
    for leaf in leaves(predicate):
        if isinstance(leaf, BoundComparison | BoundIn):
            found = leaf.values if isinstance(leaf, BoundIn) else (leaf.value,)
            values.setdefault(leaf.field.index, []).extend(found)
    for index, of_column in values.items():
        check_comparable(of_column, types[index])


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededColumns:
    """The places, in a partition, of the columns that each of its reads must fetch or make."""

    of_result: frozenset[int]
    of_predicate: frozenset[int]
    """Needed before any others, unless all rows of a read match."""

    @classmethod
    def of(cls, content: PieceContent, places: Sequence[int | None]) -> Self:
        """Use the columns of a piece, at the given places."""
        is_right = 0 <= content.output_column_count <= len(content.columns) == len(places)
        _require(is_right, "it has not as many columns as it says")
        known = dict(zip((column.index for column in content.columns), places, strict=True))
        _require(len(known) == len(places), "it has a column twice")
        asked = () if content.predicate is None else fields_of(content.predicate)
        of_predicate = [*places[content.output_column_count :], *(known[field.index] for field in asked)]
        return cls(
            of_result=frozenset(place for place in places[: content.output_column_count] if place is not None),
            of_predicate=frozenset(place for place in of_predicate if place is not None),
        )

    def check(self, first: set[int], deferred: set[int], *, all_rows_match: bool) -> None:
        """Check that a read has them, at once or in two stages."""
        _require(
            self.of_result <= first | deferred and (all_rows_match or self.of_predicate <= first),
            "a read leaves out columns",
        )


def check_reads(share: ParquetShare, places: ChunkPlaces, *, number: int, needed: NeededColumns) -> None:
    """Check the reads of a partition: existing rows of row groups, and bytes inside their chunks, each once."""
    _require(share.metadata_source in _SOURCES, f"its metadata are from {share.metadata_source!r:.60}")
    row_groups = np.array([read.row_group for read in share.reads], np.int64)
    _require(
        ((row_groups >= 0) & (row_groups < places.row_group_count)).all() and (np.diff(row_groups) >= 0).all(),
        "it reads row groups that its metadata does not have",
    )
    row_counts = np.array([read.row_group_rows for read in share.reads], np.int64)
    _require((row_counts == places.row_counts[row_groups]).all(), "its row groups have other numbers of rows")
    for read in share.reads:
        parts = [read] if read.deferred is None else [read, read.deferred]
        columns = [[*part.columns, *part.made_columns] for part in parts]
        brought = [column for of_part in columns for column in of_part]
        _require(
            len(set(brought)) == len(brought) and all(0 <= column < places.column_count for column in brought),
            "a read has columns twice, or that its metadata does not have",
        )
        later = set(columns[1]) if len(parts) > 1 else set[int]()
        needed.check(set(columns[0]), later, all_rows_match=read.all_rows_match)
        for part in parts:
            _require(
                (part.partition_index, part.row_group, part.row_group_rows, part.row_groups_left_out)
                == (number, read.row_group, read.row_group_rows, read.row_groups_left_out)
                and part.row_groups_left_out >= 0,
                "a read belongs to another one",
            )
            _check_rows(part)
            _check_pieces(part, places)
        _require(
            read.deferred is None
            or (
                read.deferred.deferred is None and read.deferred.selection == read.selection and not read.all_rows_match
            ),
            "it defers what cannot wait",
        )


def _check_rows(read: RowGroupRead) -> None:
    for rows in (read.selection, *read.column_rows):
        if rows is not None:
            _check_selection(rows, read.row_group_rows)
    for rows in read.column_rows:
        if rows is not None:
            _require(read.selection is not None, "a read of all rows fetches some of them")
            rows.positions_of(read.selection or rows)


def _check_selection(rows: RowSelection, row_count: int) -> None:
    edges = np.stack([rows.starts, rows.stops], axis=1).ravel()
    is_right = len(edges) and edges[0] >= 0 and edges[-1] <= row_count and (np.diff(edges) > 0).all()
    _require(bool(is_right), f"it reads rows that a row group of {row_count:,} rows does not have")


def _check_pieces(read: RowGroupRead, places: ChunkPlaces) -> None:
    of_column, starts, stops = read.piece_columns, read.piece_starts, read.piece_stops
    is_known = (of_column >= 0) & (of_column < len(read.columns))
    _require(is_known.all() and (np.diff(of_column) >= 0).all(), "it fetches bytes of no column")
    chunks = read.row_group * places.column_count + np.array(read.columns, np.int64)[of_column]
    is_inside = (starts >= places.starts[chunks]) & (stops <= places.stops[chunks]) & (starts <= stops)
    _require(is_inside.all(), "it fetches bytes outside of a column chunk")
    _require(
        ((starts[1:] >= stops[:-1]) | (of_column[1:] != of_column[:-1])).all(), "it fetches bytes of a chunk twice"
    )


def check_native_reads(share: NativeShare, *, number: int, needed: NeededColumns) -> None:
    """Check the reads of a native partition: existing rows, and matching lengths; see :func:`check_reads`."""
    columns = {column.index: column for column in share.columns}
    for read in share.reads:
        last_row = read.first_row + read.row_count
        _require(
            read.partition_index == number and 0 <= read.first_row < last_row <= share.record.row_count,
            "it reads rows that a native partition does not have",
        )
        there = {*read.columns, *read.made_columns}
        _require(there <= set(columns), "a read has columns that the partition does not have")
        needed.check(there, set(), all_rows_match=read.all_rows_match)
        for file, length in zip(read.files, (read.stops - read.starts).tolist(), strict=True):
            layout = columns[file.column].layout
            is_symbol = length > 0 and columns[file.column].type.tag is TypeTag.SYMBOL
            _require(not is_symbol or file.column in share.dictionaries, "it has no symbols")
            width = layout.width_bytes if isinstance(layout, FixedLayout) else layout.entry_bytes
            _require(
                length >= 0 and (file.role == "data" or length <= (read.row_count + 1) * width),
                "it reads more of a column file than its rows take",
            )
        _require((read.starts >= 0).all(), "it reads before a column file begins")


def checked_pages(pages: PartitionPages | None, places: ChunkPlaces) -> PartitionPages | None:
    """Return pages inside their chunks that divide their rows; pages of other chunks are dropped."""
    if pages is None:
        return None
    counts = np.diff(pages.first_page)
    _require(
        len(counts) == places.chunk_count
        and (counts >= 0).all()
        and len(pages.first_rows) == len(pages.starts) == len(pages.stops) == pages.first_page[-1],
        "its pages are not those of its chunks",
    )
    claimed = ClaimedPages(
        chunks=np.repeat(np.arange(len(counts)), counts),
        starts=pages.starts,
        lengths=pages.stops - pages.starts,
        first_rows=pages.first_rows,
        null_counts=pages.null_counts,
        lower=pages.lower,
        upper=pages.upper,
    )
    return check_pages(claimed, places, source="piece").pages


def check_paths(paths: Sequence[str], table: str) -> None:
    """Check that paths of a store are those of a table or of its content."""
    for path in paths_outside(paths, table):
        raise damaged_piece(f"it reads {path!r:.200}, which is not in the table {table}")


def _require(is_right: object, problem: str) -> None:
    if not is_right:
        raise damaged_piece(problem)

"""Checks the content of a piece against itself before any fetch or large allocation: its bytes may come from anywhere.

Nothing here knows how a piece is encoded. Reads are checked against what those of their partition share. Their requests
are in turn pinned to an object at least as large as that says.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import cache
from itertools import groupby
from operator import attrgetter
from types import NoneType
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np
from msgspec import Struct

from coldparquet.decode.arrow import PLAIN_TEXT, arrow_type
from coldparquet.decode.filter import check_comparable
from coldparquet.decode.virtual_file import leaf_of
from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.format.binary import Utf8Strings
from coldparquet.format.native import FixedLayout, native_layout
from coldparquet.format.sidecar_layout import PARQUET_MAGIC_BYTES, PARQUET_TAIL_BYTES
from coldparquet.format.types import TypeTag
from coldparquet.pieces.frame import damaged_piece
from coldparquet.plan.bind import BoundComparison, BoundIn, BoundLike, fields_of
from coldparquet.plan.model import MAX_ROW_GROUP_ROWS, MOST_DECODED_BYTES, FileRole, MetadataSource, Read
from coldparquet.plan.predicate import leaves
from coldparquet.plan.type_changes import can_convert
from coldparquet.records import field_types
from coldparquet.storage.urls import paths_outside

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    import numpy.typing as npt

    from coldparquet.format.pages import PartitionPages
    from coldparquet.format.partition_records import PartitionRecord
    from coldparquet.format.types import ColumnType
    from coldparquet.pieces.frame import PieceContent, PieceShare
    from coldparquet.plan.bind import BoundPredicate
    from coldparquet.plan.columns import TableColumn
    from coldparquet.plan.literals import DomainValue
    from coldparquet.plan.selection import RowSelection


_SOURCES, _ROLES = frozenset(get_args(MetadataSource)), frozenset(get_args(FileRole))
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
    """Check the plain fields of records, recursively; numbers that were not JSON already have their type."""
    if isinstance(value, tuple):
        for item in value[:1] if value and isinstance(value[0], Read) else value:
            check_types(item)
    if not (isinstance(value, Struct) or is_dataclass(value)):
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
    for field, written in field_types(of_class).items():
        names = written.split(" | ")
        if all(name in _TYPES for name in names):
            plain.append((field, tuple(type_ for name in names for type_ in _TYPES[name])))
        else:
            others.append(field)
    return plain, others


def check_type(stored: ColumnType, wanted: ColumnType) -> None:
    """Check that a stored column can be read as its wanted type; see :func:`refuses_nonsense`."""
    arrow_type(stored, text=PLAIN_TEXT)
    _require(can_convert(stored, wanted), f"it makes {wanted.name} of {stored.name}")


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
        elif isinstance(leaf, BoundLike):
            values.setdefault(leaf.field.index, []).append(b"")
    for index, of_column in values.items():
        check_comparable(of_column, types[index])


def check_content(content: PieceContent) -> None:
    """Check the partitions and reads of a piece; for errors see :func:`refuses_nonsense`."""
    _require(0 <= content.output_column_count <= len(content.columns), "it has not as many columns as it says")
    indexes = [column.index for column in content.columns]
    names = {column.name for column in content.columns}
    _require(len(set(indexes)) == len(names) == len(indexes), "it has a column twice")
    if content.predicate is not None:
        check_predicate(content.predicate, content.columns)
    for share in content.shares:
        _check_share(share, content.columns)
    owners = np.array([read.partition_index for read in content.reads], dtype=np.int64)
    row_groups = np.array([read.row_group for read in content.reads], dtype=np.int64)
    later = (np.diff(owners) > 0) | ((np.diff(owners) == 0) & (np.diff(row_groups) >= 0))
    _require(later.all() and (row_groups >= 0).all(), "its reads are out of order")
    for index, reads in groupby(content.reads, key=attrgetter("partition_index")):
        _check_reads(content, content.shares[index], list(reads))


def _check_share(share: PieceShare, columns: Sequence[TableColumn]) -> None:
    data = share.data
    _require(share.metadata_source in _SOURCES, f"its metadata are from {share.metadata_source!r:.60}")
    is_native = data.decoder == "native"
    _require(
        is_native == (share.metadata_source == "native") == (data.size_bytes is None),
        "it decodes what its metadata does not describe",
    )
    _require({None, *data.columns} >= set(data.places.values()), "it has columns that its partition does not have")
    for number, stored in data.columns.items():
        _require(
            type(number) is int and number >= 0 and (stored.leaf is None) is is_native and (stored.top or 0) >= 0,
            "it stores a column in two ways",
        )
    for column in columns:
        place = data.places.get(column.index)
        if place is not None:
            check_type(data.columns[place].type, column.readable_type)
    for file in data.files:
        _require(
            file.column in data.columns and file.role in _ROLES and isinstance(file.path, str),
            "it has a file of no column",
        )


def _check_reads(content: PieceContent, share: PieceShare, reads: Sequence[Read]) -> None:
    data = share.data
    of_result = {data.places[column.index] for column in content.output_columns} - {None}
    asked = () if content.predicate is None else [field.index for field in fields_of(content.predicate)]
    indexes = {*asked, *(column.index for column in content.columns[content.output_column_count :])}
    for read in reads:
        parts = [read] if read.deferred is None else [read, read.deferred]
        columns = [[*part.columns, *part.made_columns] for part in parts]
        brought = [column for of_part in columns for column in of_part]
        _require(
            len(set(brought)) == len(brought) and set(brought) <= set(data.columns),
            "a read has columns twice, or that its partition does not have",
        )
        of_predicate = set() if read.all_rows_match else {data.places[index] for index in indexes} - {None}
        _require(of_result <= set(brought) and of_predicate <= set(columns[0]), "a read leaves out columns")
        _require(0 < read.row_group_rows <= MAX_ROW_GROUP_ROWS, "a read has no rows, or too many")
        for part in parts:
            _require(
                (part.partition_index, part.row_group, part.row_group_rows)
                == (read.partition_index, read.row_group, read.row_group_rows),
                "a read belongs to another one",
            )
            _check_rows(part)
            _check_pieces(part)
            if share.record is not None:
                _check_native(part, share.record)
        _require(
            read.deferred is None
            or (
                read.deferred.deferred is None
                and not read.deferred.made_columns
                and read.deferred.selection == read.selection
                and not read.all_rows_match
            ),
            "it defers what cannot wait",
        )
    if data.pages is not None:
        _check_pages(data.pages, [read.deferred for read in reads if read.deferred is not None], data.size_bytes or 0)


def _check_rows(read: Read) -> None:
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


def _check_pieces(read: Read) -> None:
    of_column, starts, stops, data = read.piece_columns, read.piece_starts, read.piece_stops, read.data
    is_known = (of_column >= 0) & (of_column < len(read.columns))
    _require(is_known.all() and (np.diff(of_column) >= 0).all(), "it fetches bytes of no column")
    _require(((starts >= 0) & (starts <= stops)).all(), "it fetches no bytes")
    if read.piece_files is not None:
        return
    is_inside = (starts >= PARQUET_MAGIC_BYTES) & (stops <= (data.size_bytes or 0) - PARQUET_TAIL_BYTES)
    _require(is_inside.all(), "it fetches bytes outside of the data of a file")
    _require(
        ((starts[1:] >= stops[:-1]) | (of_column[1:] != of_column[:-1])).all(), "it fetches bytes of a chunk twice"
    )
    value_counts, decoded_bytes = read.chunks["value_count"], read.chunks["decoded_bytes"]
    is_flat = np.array([leaf_of(data.columns[column]).max_rep_level == 0 for column in read.columns], dtype=np.bool_)
    _require(
        (value_counts >= 0).all() and ((value_counts == read.row_group_rows) | ~is_flat).all(),
        "a chunk has another number of values than rows",
    )
    _require(((decoded_bytes >= 0) & (decoded_bytes <= MOST_DECODED_BYTES)).all(), "a chunk has no size")


def _check_native(read: Read, record: PartitionRecord) -> None:
    """Check a slice: existing rows, and files of matching lengths."""
    data, row_count = read.data, read.row_count
    _require(
        0 <= read.first_row < read.first_row + row_count <= record.row_count,
        "it reads rows that a native partition does not have",
    )
    _require(read.selection is None and read.deferred is None and read.piece_files is not None, "it cuts a slice")
    files = [data.files[number] for number in ([] if read.piece_files is None else read.piece_files.tolist())]
    lengths = (read.piece_stops - read.piece_starts).tolist()
    roles: dict[int, list[FileRole]] = {}
    for file, position, length in zip(files, read.piece_columns.tolist(), lengths, strict=True):
        _require(file.column == read.columns[position], "it fetches bytes of another column")
        layout = native_layout(data.columns[file.column].type.tag)
        width = layout.width_bytes if isinstance(layout, FixedLayout) else layout.entry_bytes
        _require(
            file.role == "data" or length <= (row_count + 1) * width,
            "it reads more of a column file than its rows take",
        )
        roles.setdefault(file.column, []).append(file.role)
    for column in read.columns:
        column_type = data.columns[column].type
        is_fixed = isinstance(native_layout(column_type.tag), FixedLayout)
        _require(roles.get(column) == (["fixed"] if is_fixed else ["auxiliary", "data"]), "it has no such file")
        _require(column_type.tag is not TypeTag.SYMBOL or column in data.symbols, "it has no symbols")


def _check_pages(pages: PartitionPages, reads: Sequence[Read], size_bytes: int) -> None:
    """Check that the pages of deferred columns divide their rows, and lie in their file in order."""
    counts, chunk_count = np.diff(pages.first_page), pages.row_group_count * pages.column_count
    _require(
        min(pages.row_group_count, pages.column_count, pages.first_row_group) >= 0
        and len(counts) == chunk_count == len(pages.dictionary_starts) == len(pages.dictionary_stops)
        and (counts >= 0).all()
        and len(pages.first_rows) == len(pages.starts) == len(pages.stops) == pages.first_page[-1],
        "its pages are not those of its chunks",
    )
    row_counts = np.zeros(pages.row_group_count, np.int64)
    for read in reads:
        row_group = read.row_group - pages.first_row_group
        is_there = 0 <= row_group < pages.row_group_count and max(read.columns, default=0) < pages.column_count
        _require(is_there, "it has no pages for a read")
        row_counts[row_group] = read.row_group_rows
    chunks = np.repeat(np.arange(chunk_count), counts)
    follows = chunks[1:] == chunks[:-1]
    is_right = (
        (pages.first_rows[pages.first_page[:-1][counts > 0]] == 0).all()
        and (pages.first_rows < row_counts[chunks // max(pages.column_count, 1)]).all()
        and (np.diff(pages.first_rows)[follows] > 0).all()
        and (pages.starts[1:] >= pages.stops[:-1])[follows].all()
        and (pages.starts >= PARQUET_MAGIC_BYTES).all()
        and (pages.starts <= pages.stops).all()
        and (pages.stops <= size_bytes - PARQUET_TAIL_BYTES).all()
    )
    _require(is_right, "its pages do not divide their rows and bytes")
    filled = counts > 0
    first_starts = pages.starts[pages.first_page[:-1][filled]]
    starts, stops = pages.dictionary_starts[filled], pages.dictionary_stops[filled]
    _require(
        ((starts >= PARQUET_MAGIC_BYTES) & (starts <= stops) & (stops <= first_starts)).all(),
        "its dictionary pages are not before the others",
    )


def check_paths(paths: Sequence[str], table: str) -> None:
    """Check that paths of a store are those of a table or of its content."""
    for path in paths_outside(paths, table):
        raise damaged_piece(f"it reads {path!r:.200}, which is not in the table {table}")


def _require(is_right: object, problem: str) -> None:
    if not is_right:
        raise damaged_piece(problem)

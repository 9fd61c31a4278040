"""Partitions as metadata alone: a sidecar and pages, made from rows that a test keeps to compare with."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

from coldparquet.format.pages import PageBounds, PartitionPages
from coldparquet.format.parquet_footer import writer_entry
from coldparquet.format.sidecar import Sidecar, parse_sidecar
from coldparquet.format.sidecar_layout import (
    ENCODING_PLAIN,
    ENCODING_RLE_DICTIONARY,
    PhysicalType,
    Repetition,
    column_flags,
)
from coldparquet.format.sidecar_writer import (
    BoundSpec,
    ChunkSpec,
    ColumnSpec,
    RowGroupSpec,
    SidecarContent,
    encode_sidecar,
)
from coldparquet.format.types import resolve_type
from coldparquet.plan.bind import BoundField, BoundPredicate, bind
from coldparquet.plan.model import CHUNK, Read, StoredData
from coldparquet.plan.predicate import Comparison, In, IsNull, Literal, Operator, Predicate
from coldparquet.plan.selection import RowSelection
from tests.support.predicate_trees import COMPARE, trees, truth

Pair = tuple[bytes | None, bytes | None]


def same(low: bytes, high: bytes) -> Pair:
    return low, high


def as_value(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One type of column: how its rows are drawn, and how a writer states their bounds."""

    type_code: int
    physical_type: PhysicalType
    rows: st.SearchStrategy[Any]
    literals: st.SearchStrategy[Any]
    encode: Callable[[Any], bytes]
    width: int = 0
    is_required: bool = False
    null_reads_as: Any = None
    """What a row counted as NULL holds; the bounds leave it out."""
    loosen: Callable[[bytes, bytes], Pair] = same
    """How a writer may widen bounds."""
    order: Callable[[Any], Any] = as_value
    """By what the writer orders values, rightly or not."""
    value: Callable[[Any], Any] = as_value
    """What rows and literals are compared by."""
    encodings: int = ENCODING_PLAIN
    has_order: bool = True

    @property
    def column_spec(self) -> dict[str, Any]:
        repetition = Repetition.REQUIRED if self.is_required else Repetition.OPTIONAL
        return {
            "type_code": self.type_code,
            "physical_type": self.physical_type,
            "flags": column_flags(repetition=repetition),
            "fixed_byte_length": self.width,
            "max_def_level": 0 if self.is_required else 1,
        }


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """One chunk: its rows, where its pages begin, and what is stated about both."""

    values: Sequence[Any]
    page_starts: Sequence[int] | None
    """None where nothing is known of its pages."""
    bounds: Pair = (None, None)
    null_count: int | None = None
    page_bounds: Sequence[Pair] = ()
    page_null_counts: Sequence[int] = ()
    page_bytes: Sequence[int] = ()
    """Length of each page; 10 bytes a row where it is not said."""
    dictionary_bytes: int = 0

    @property
    def pages(self) -> list[Sequence[Any]]:
        starts = [0] if self.page_starts is None else list(self.page_starts)
        return [self.values[start:stop] for start, stop in zip(starts, [*starts[1:], len(self.values)], strict=True)]


@dataclass(frozen=True, kw_only=True)
class Partition:
    """Columns ``c0``, ``c1``, ... of row groups: ``chunks[row_group][column]``."""

    kinds: Sequence[Kind]
    chunks: Sequence[Sequence[Chunk]]
    sidecar: Sidecar = field(init=False)
    pages: PartitionPages = field(init=False)

    def __post_init__(self) -> None:
        sidecar, pages = _write(self.kinds, self.chunks)
        object.__setattr__(self, "sidecar", sidecar)
        object.__setattr__(self, "pages", pages)

    @property
    def places(self) -> dict[int, int | None]:
        return {index: index for index in range(len(self.kinds))}

    def bound_field(self, index: int) -> BoundField:
        kind = self.kinds[index]
        return BoundField(f"c{index}", index, resolve_type(kind.type_code, kind.physical_type, kind.width, 0))

    def bind(self, predicate: Predicate) -> BoundPredicate:
        return bind(predicate, {f"c{index}": self.bound_field(index) for index in range(len(self.kinds))})

    def matching(self, predicate: Predicate, row_group: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Evaluate a predicate row by row, in SQL's three-valued logic."""
        chunks = self.chunks[row_group]
        outcomes = [
            _evaluate(
                predicate, {f"c{index}": (kind, chunks[index].values[row]) for index, kind in enumerate(self.kinds)}
            )
            for row in range(len(chunks[0].values))
        ]
        return np.array([outcome is True for outcome in outcomes], dtype=bool)


def stated_bounds(kind: Kind, values: Sequence[Any]) -> Pair:
    """Return the bounds that a writer of this kind states."""
    bounded = sorted((value for value in values if value is not None and value == value), key=kind.order)  # noqa: PLR0124
    return (kind.encode(bounded[0]), kind.encode(bounded[-1])) if bounded else (None, None)


def chunk_of(kind: Kind, values: Sequence[Any], page_starts: Sequence[int] | None, **more: Any) -> Chunk:
    """Make a chunk of which everything is stated, exactly."""
    chunk = Chunk(values=values, page_starts=page_starts, **more)
    return Chunk(
        values=values,
        page_starts=page_starts,
        bounds=stated_bounds(kind, values),
        null_count=list(values).count(None),
        page_bounds=[stated_bounds(kind, page) for page in chunk.pages],
        page_null_counts=[list(page).count(None) for page in chunk.pages],
        **more,
    )


def _evaluate(predicate: Predicate, row: dict[str, tuple[Kind, Any]]) -> bool | None:
    def of_leaf(leaf: Predicate) -> bool | None:
        assert isinstance(leaf, Comparison | IsNull)
        value, kind = _read(row[leaf.column]), row[leaf.column][0]
        if isinstance(leaf, IsNull):
            return value is None
        if value is None or leaf.value is None:
            return None
        return bool(COMPARE[leaf.operator](kind.value(value), kind.value(leaf.value)))

    return truth(predicate, of_leaf)


def _read(cell: tuple[Kind, Any]) -> Any:
    kind, value = cell
    return kind.null_reads_as if value is None else value


def _write(kinds: Sequence[Kind], row_groups: Sequence[Sequence[Chunk]]) -> tuple[Sidecar, PartitionPages]:
    position, specs = 4, []
    first_page, first_rows, starts, stops, dictionaries, null_counts = [0], [], [], [], [], []
    sides: tuple[list[bytes | None], list[bytes | None]] = ([], [])
    for chunks in row_groups:
        written = []
        for kind, chunk in zip(kinds, chunks, strict=True):
            begin = position
            position += chunk.dictionary_bytes
            known = chunk.page_starts is not None
            dictionaries.append((begin, position if known else begin))
            lengths = chunk.page_bytes or [10 * len(page) for page in chunk.pages]
            for number, length in enumerate(lengths):
                if known:
                    first_rows.append(chunk.page_starts[number] if chunk.page_starts else 0)
                    starts.append(position)
                    stops.append(position + length)
                    null_counts.append(chunk.page_null_counts[number] if chunk.page_null_counts else -1)
                    for side, bound in zip(
                        sides, chunk.page_bounds[number] if chunk.page_bounds else (None, None), strict=True
                    ):
                        side.append(bound)
                position += length
            first_page.append(len(first_rows))
            low, high = (None if bound is None else BoundSpec(bound) for bound in chunk.bounds)
            written.append(ChunkSpec(codec=0, encodings=kind.encodings, num_values=len(chunk.values), byte_range_start=begin,
                                     total_compressed_bytes=position - begin, null_count=chunk.null_count, min=low, max=high))  # fmt: skip
        specs.append(RowGroupSpec(row_count=len(chunks[0].values), chunks=written))
    columns = [ColumnSpec(name=f"c{index}", **kind.column_spec) for index, kind in enumerate(kinds)]
    content = SidecarContent(
        columns=columns,
        row_groups=specs,
        parquet_footer_offset=position,
        parquet_footer_length=9,
        scratchpad=[writer_entry(None)],
    )
    pages = PartitionPages(
        row_group_count=len(row_groups),
        column_count=len(kinds),
        first_page=np.array(first_page, dtype=np.int64),
        first_rows=np.array(first_rows, dtype=np.int64),
        starts=np.array(starts, dtype=np.int64),
        stops=np.array(stops, dtype=np.int64),
        dictionary_starts=np.array([start for start, _ in dictionaries], dtype=np.int64),
        dictionary_stops=np.array([stop for _, stop in dictionaries], dtype=np.int64),
        null_counts=np.array(null_counts, dtype=np.int64),
        lower=_page_bounds(sides[0]),
        upper=_page_bounds(sides[1]),
    )
    return parse_sidecar(encode_sidecar(content)), pages


def _page_bounds(bounds: list[bytes | None]) -> PageBounds:
    lengths = [-1 if bound is None else len(bound) for bound in bounds]
    stops = np.cumsum([max(length, 0) for length in lengths], dtype=np.int64)
    return PageBounds(
        offsets=stops - np.maximum(np.array(lengths, dtype=np.int64), 0),
        lengths=np.array(lengths, dtype=np.int64),
        values=np.frombuffer(b"".join(bound or b"" for bound in bounds), dtype=np.uint8),
    )


# --- Kinds with all that is known to be wrong about their statistics ----------------------------------------------------


def packed(layout: str) -> Callable[[Any], bytes]:
    return lambda value: struct.pack(layout, value)


def near(*edges: int) -> st.SearchStrategy[int]:
    """Few numbers, so that bounds, rows and literals meet often."""
    return st.one_of(st.integers(-3, 3), *(st.integers(edge - 1, edge + 1) for edge in edges))


def truncated(low: bytes, high: bytes) -> Pair:
    """Cut bounds to 8 bytes; the upper one goes up by one, or is left out where that is impossible."""
    if len(high) <= 8:
        return low[:8], high
    number = int.from_bytes(high[:8], "big") + 1
    return low[:8], None if number == 1 << 64 else number.to_bytes(8, "big")


def like_questdb(low: bytes, high: bytes) -> Pair:
    """QuestDB's rule for BINARY: at most 9 bytes, all ones where no larger prefix exists."""
    prefix, cut = truncated(low, high)
    return prefix, b"\xff" * 9 if cut is None else cut


BYTES, FIXED = PhysicalType.BYTE_ARRAY, PhysicalType.FIXED_LEN_BYTE_ARRAY
TEXT = st.text(alphabet="ab\0é", max_size=2).flatmap(lambda tail: st.sampled_from([tail, "prefix-of-8" + tail]))
BINARY = st.sampled_from([b"a", b"prefix-1", b"prefix-12", b"prefix-13", b"\xff" * 8, b"\xff" * 9, b"\xff" * 12])
SIXTEEN = st.sampled_from([bytes(16), bytes(15) + b"\1", b"\1" + bytes(15), b"\xff" * 16])
DOUBLES = st.sampled_from([0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 2.0**53])
ADDRESSES = st.one_of(st.integers(0, 3), st.integers(2**31 - 2, 2**31 + 2), st.integers(2**32 - 3, 2**32 - 1))


def as_signed(value: int) -> int:
    return value - 2**32 if value >= 2**31 else value


LONG = Kind(type_code=6, physical_type=PhysicalType.INT64, rows=near(-(2**63) + 1, 2**63 - 2),
            literals=st.one_of(near(2**63), st.just(0.5)), encode=packed("<q"))  # fmt: skip
TIMESTAMP = Kind(type_code=8 | 1 << 17, physical_type=PhysicalType.INT64, rows=near(), literals=near(), encode=packed("<q"),
                 is_required=True)  # fmt: skip

KINDS = {
    "long": LONG,
    "int with rows of before the column": Kind(type_code=5, physical_type=PhysicalType.INT32, rows=near(), literals=near(9),
                                               encode=packed("<i"), is_required=True, null_reads_as=9),
    "byte": Kind(type_code=2, physical_type=PhysicalType.INT32, rows=near(100), literals=near(100), encode=packed("<i"),
                 is_required=True, null_reads_as=0),
    "double": Kind(type_code=10, physical_type=PhysicalType.DOUBLE, rows=DOUBLES, encode=packed("<d"),
                   literals=st.sampled_from([0.0, -0.0, 1.0, -1.5, np.inf, 2**53 + 1])),
    "varchar": Kind(type_code=26, physical_type=BYTES, rows=TEXT, literals=TEXT, encode=as_value, loosen=truncated),
    "binary": Kind(type_code=18, physical_type=BYTES, rows=BINARY, literals=BINARY, encode=bytes, loosen=like_questdb),
    "uuid": Kind(type_code=19, physical_type=FIXED, rows=SIXTEEN, literals=SIXTEEN, encode=bytes, width=16),
    "decimal": Kind(type_code=30 | 5 << 8 | 2 << 18, physical_type=FIXED, rows=near(-99_998, 99_998), width=5,
                    literals=near(99_998).map(lambda number: Decimal(number) / 100),
                    encode=lambda value: value.to_bytes(5, "big", signed=True),
                    value=lambda value: value if isinstance(value, Decimal) else Fraction(value, 100)),
    "ipv4 in a dictionary": Kind(type_code=25, physical_type=PhysicalType.INT32, rows=ADDRESSES, literals=ADDRESSES,
                                 encode=packed("<I"), order=as_signed, encodings=ENCODING_PLAIN | ENCODING_RLE_DICTIONARY),
}  # fmt: skip


@st.composite
def partitions(draw: st.DrawFn, kinds: Sequence[Kind]) -> Partition:
    """Draw rows, page borders that differ between columns, and what a writer says of them: all, something or nothing."""
    row_counts = draw(st.lists(st.integers(1, 8), min_size=1, max_size=3))
    return Partition(
        kinds=kinds, chunks=[[draw(_chunks(kind, row_count)) for kind in kinds] for row_count in row_counts]
    )


@st.composite
def _chunks(draw: st.DrawFn, kind: Kind, row_count: int) -> Chunk:
    has_nulls = not kind.is_required or kind.null_reads_as is not None
    row = st.one_of(st.none(), kind.rows, kind.rows) if has_nulls else kind.rows
    values = draw(st.lists(row, min_size=row_count, max_size=row_count))
    page_starts = None
    if draw(st.integers(0, 3)):
        page_starts = sorted({0, *draw(st.lists(st.integers(0, row_count - 1), max_size=4))})
    chunk = chunk_of(kind, values, page_starts, dictionary_bytes=draw(st.sampled_from([0, 7])))
    counts_pages = draw(st.integers(0, 3)) > 0
    return Chunk(
        values=values,
        page_starts=page_starts,
        bounds=draw(_as_stated(kind, chunk.bounds)),
        # QuestDB counts the nulls of REQUIRED columns always; only that tells that the bounds leave rows out.
        null_count=chunk.null_count if kind.is_required else draw(st.sampled_from([chunk.null_count, None])),
        page_bounds=[draw(_as_stated(kind, bounds)) for bounds in chunk.page_bounds],
        page_null_counts=chunk.page_null_counts if counts_pages else (),
        dictionary_bytes=chunk.dictionary_bytes,
    )


@st.composite
def _as_stated(draw: st.DrawFn, kind: Kind, bounds: Pair) -> Pair:
    low, high = bounds
    if low is not None and high is not None and draw(st.booleans()):
        low, high = kind.loosen(low, high)
    return low if draw(st.integers(0, 5)) else None, high if draw(st.integers(0, 5)) else None


def predicates(kinds: Sequence[Kind]) -> st.SearchStrategy[Predicate]:
    """Draw trees of every kind of condition on the columns."""
    leaves: list[st.SearchStrategy[Predicate]] = [st.builds(Literal, st.sampled_from([True, False, None]))]
    for index, kind in enumerate(kinds):
        name, literals = st.just(f"c{index}"), st.one_of(kind.literals, kind.literals, st.none())
        leaves += [
            st.builds(Comparison, name, st.sampled_from(Operator), kind.literals),
            st.builds(Comparison, name, st.sampled_from(Operator), literals),
            st.builds(In, name, st.lists(literals, max_size=3).map(tuple)),
            st.builds(IsNull, name),
        ]
    return trees(st.one_of(leaves), max_leaves=5)


# --- Reads of partitions that are metadata alone, and how to look at them ---------------------------------------------


def whole_read(partition: Partition, row_group: int, columns: Sequence[int], made: tuple[int, ...] = ()) -> Read:
    chunks = [partition.sidecar.chunks(column) for column in columns]
    starts = np.array([chunk.byte_range_start[row_group] for chunk in chunks], dtype=np.int64)
    lengths = np.array([chunk.total_compressed_bytes[row_group] for chunk in chunks], dtype=np.int64)
    return Read(
        partition_index=0,
        data=StoredData(decoder="parquet", path="t", columns={}, places={}, pages=partition.pages),
        row_group=row_group,
        row_group_rows=int(partition.sidecar.row_counts[row_group]),
        columns=tuple(columns),
        column_rows=(None,) * len(columns),
        chunks=np.zeros(len(columns), CHUNK),
        piece_columns=np.arange(len(columns)),
        piece_starts=starts,
        piece_stops=starts + lengths,
        made_columns=made,
        made_values=(None,) * len(made),
        all_rows_match=False,
    )


def pieces(read: Read) -> list[tuple[int, int, int]]:
    """Sidecar index of the column, start and stop of each piece."""
    columns = [read.columns[position] for position in read.piece_columns.tolist()]
    return list(zip(columns, read.piece_starts.tolist(), read.piece_stops.tolist(), strict=True))


def rows(selection: RowSelection | None) -> list[tuple[int, int]] | None:
    return None if selection is None else list(zip(selection.starts.tolist(), selection.stops.tolist(), strict=True))


def selected(*ranges: tuple[int, int]) -> RowSelection:
    starts, stops = np.array(ranges, dtype=np.int64).T
    return RowSelection.of_ranges(starts, stops)


def four_pages(*, dictionary_bytes: int = 0, rows_known: int = 3) -> Partition:
    """Three columns of 40 rows in pages of 10 rows, 100 bytes each; the last ones may be of unknown pages."""
    starts = [0, 10, 20, 30]
    chunks = [
        Chunk(values=range(40), page_starts=starts if column < rows_known else None, page_bytes=[100] * (4 if column < rows_known else 1),
              dictionary_bytes=dictionary_bytes)
        for column in range(3)
    ]  # fmt: skip
    return Partition(kinds=[LONG] * 3, chunks=[chunks])

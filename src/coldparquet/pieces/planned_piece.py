"""From what a piece says to a plan that can be carried out, far from the table. No request is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from coldparquet.decode.arrow_schema import TextAs, arrow_field
from coldparquet.decode.numpy_bridge import text_to_arrow
from coldparquet.format.chunk_places import chunk_places
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.pieces.piece_checks import (
    NeededColumns,
    check_native_column,
    check_native_reads,
    check_predicate,
    check_reads,
    check_type,
    checked_pages,
    refuses_nonsense,
)
from coldparquet.pieces.piece_content import NativeShare
from coldparquet.plan.read_plan import PartitionRead, ReadPlan
from coldparquet.plan.store_speed import StoreSpeed
from coldparquet.scanning.planned_partition import PlannedNative, PlannedParquet
from coldparquet.scanning.question import KnownSymbols
from coldparquet.scanning.request_planner import RequestStages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coldparquet.options import Coalescing, ReadOptions
    from coldparquet.pieces.piece_content import ParquetShare, PieceContent, PieceShare
    from coldparquet.plan.bind import BoundPredicate
    from coldparquet.plan.projection import TableColumn
    from coldparquet.scanning.planned_partition import PlannedPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceQuestion:
    """What the rows of a piece are to be like; see :class:`coldparquet.scanning.streamed_plan.StreamedQuestion`."""

    options: ReadOptions
    output_columns: tuple[TableColumn, ...]
    needed_columns: tuple[TableColumn, ...]
    predicate: BoundPredicate | None
    symbols: KnownSymbols
    late_coalescings: Mapping[str, Coalescing]
    """By data path: how the ranges of deferred columns become requests."""
    limit: None = None
    """A piece has none: it does not know how many rows the others have."""

    def coalescing_of(self, data_path: str) -> Coalescing:
        """Return how the ranges of deferred columns of one object become requests."""
        return self.late_coalescings[data_path]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPiece:
    """What streaming needs of a piece; see :class:`coldparquet.scanning.streamed_plan.StreamedPlan`."""

    question: PieceQuestion
    plan: ReadPlan
    partitions: tuple[PlannedPartition, ...]
    late_part_bytes: int

    @classmethod
    def of(cls, content: PieceContent) -> Self:
        """Plan the requests of a piece.

        Raises:
            FormatError: One of its sidecars is damaged, or does not go with what is to be read.
        """
        with refuses_nonsense():
            return cls._of(content)

    @classmethod
    def _of(cls, content: PieceContent) -> Self:
        schema_of(content)
        if content.predicate is not None:
            check_predicate(content.predicate, content.columns)
        symbols = {index: text_to_arrow(strings) for index, strings in content.symbols.items()}
        partitions = [
            _native_partition(share, content, number)
            if isinstance(share, NativeShare)
            else _parquet_partition(share, content, number, symbols)
            for number, share in enumerate(content.shares)
        ]
        stages = RequestStages(late_part_bytes=content.late_part_bytes)
        for share, partition in zip(content.shares, partitions, strict=True):
            stages.add(
                partition,
                share.reads,
                coalescing=share.shape.coalescing,
                part_bytes=share.shape.part_bytes,
                late_coalescing=share.shape.late_coalescing,
            )
        return cls(
            question=PieceQuestion(
                options=content.options,
                output_columns=content.output_columns,
                needed_columns=content.columns,
                predicate=content.predicate,
                symbols=KnownSymbols(strings=symbols, requests=()),
                late_coalescings={share.data_path: share.shape.late_coalescing for share in content.shares},
            ),
            plan=ReadPlan(
                table=content.table,
                columns=tuple(column.name for column in content.output_columns),
                predicate=content.predicate_text,
                limit=None,
                partitions_pruned=(),
                partitions=tuple(
                    _described(share, partition) for share, partition in zip(content.shares, partitions, strict=True)
                ),
                row_groups=tuple(read for share in content.shares for read in share.reads),
                requests=stages.requests(),
                metadata_requests=(),
                options=content.options,
                speed=StoreSpeed(connections=content.options.max_concurrency),
                coalescings=tuple(share.shape.coalescing for share in content.shares),
            ),
            partitions=tuple(partitions),
            late_part_bytes=content.late_part_bytes,
        )


def schema_of(content: PieceContent) -> pa.Schema:
    """Return columns and Arrow types of the rows of a piece."""
    text = TextAs.of(content.options)
    with refuses_nonsense():
        return pa.schema(
            [arrow_field(column.name, column.readable_type, text=text) for column in content.output_columns]
        )


def _parquet_partition(
    share: ParquetShare, content: PieceContent, number: int, symbols: Mapping[int, pa.Array[Any]]
) -> PlannedParquet:
    sidecar = parse_sidecar(share.sidecar, path=share.data_path)
    chunks = chunk_places(sidecar)
    check_reads(share, chunks, number=number, needed=NeededColumns.of(content, share.places))
    for column, place in zip(content.columns, share.places, strict=True):
        if place is not None:
            check_type(sidecar.column_type(place), column.readable_type)
    return PlannedParquet(
        sidecar=sidecar,
        data_path=share.data_path,
        may_grow=share.may_grow,
        places={column.index: place for column, place in zip(content.columns, share.places, strict=True)},
        column_names={place: sidecar.column(place).name for place in share.places if place is not None},
        pages=checked_pages(share.pages, chunks),
        pages_etag=share.pages_etag,
        known_symbols=symbols,
    )


def _native_partition(share: NativeShare, content: PieceContent, number: int) -> PlannedNative:
    places = [column.index for column in content.columns]
    check_native_reads(share, number=number, needed=NeededColumns.of(content, places))
    for column, stored in zip(content.columns, share.columns, strict=True):
        check_native_column(stored, column)
    return PlannedNative(
        directory_path=share.data_path,
        columns={column.index: column for column in share.columns},
        dictionaries={index: content.dictionaries[position] for index, position in share.dictionaries.items()},
    )


def _described(share: PieceShare, partition: PlannedPartition) -> PartitionRead:
    """Describe a share for people, as if the partition had no other row groups."""
    sidecar = partition.sidecar if isinstance(partition, PlannedParquet) else None
    rows = sum(read.row_count for read in share.reads)
    return PartitionRead(
        name=share.name,
        data_path=share.data_path,
        parquet_size_bytes=None if sidecar is None else sidecar.parquet_size_bytes,
        metadata_source="native" if isinstance(share, NativeShare) else share.metadata_source,
        row_groups_total=0 if sidecar is None else sidecar.row_group_count,
        row_groups_read=0 if sidecar is None else sidecar.row_group_count,
        rows_total=rows if sidecar is None else sidecar.total_rows,
        rows_read=rows,
    )

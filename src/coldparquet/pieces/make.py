"""Cuts an admitted plan into pieces of about equal cost, in table order, encoded one by one. Sends at most HEADs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from itertools import groupby, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.errors import InternalError
from coldparquet.format.types import distinct_values
from coldparquet.options import KIB, MIB
from coldparquet.pieces.encode import SidecarReducer
from coldparquet.pieces.frame import NativeShare, ParquetShare, PieceContent, PieceNumbers, RequestShape
from coldparquet.pieces.plain import reduced_pages
from coldparquet.pieces.read import ScanPiece
from coldparquet.plan.model import RowGroupRead
from coldparquet.plan.native import NativeRead
from coldparquet.scan.planned import PlannedNative, PlannedParquet
from coldparquet.scan.requests import RequestStages, part_bytes_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Executor

    import numpy.typing as npt

    from coldparquet.format.table_file_text import Utf8Strings
    from coldparquet.pieces.frame import PieceShare
    from coldparquet.plan.bounds import BoolArray, IntArray
    from coldparquet.plan.columns import TableColumn
    from coldparquet.plan.model import PartitionRead, PlannedRead, PlannedRequest
    from coldparquet.scan.requests import PlannedScan


TARGET_BYTES = 64 * MIB
"""Cost of a piece if the caller sets neither number nor size: so long that its start hardly matters."""

READ_COST_BYTES = 64 * KIB
"""Cost of a row group beside its bytes: starting it, decoding its few pages, delivering its rows."""

_SLACK = 0.2
"""A cut may move by this part of a piece to a border of partitions: requests of two partitions never merge anyway."""


def piece_count(total_cost: float, read_count: int, *, most_pieces: int | None, target_bytes: int | None) -> int:
    """Choose how many pieces the reads are cut into."""
    if target_bytes is None and most_pieces is not None:
        wanted = most_pieces
    else:
        wanted = round(total_cost / (target_bytes or TARGET_BYTES))
    most = read_count if most_pieces is None else min(most_pieces, read_count)
    return min(max(wanted, 1), most)


def cut_evenly(costs: npt.NDArray[np.float64], begins_partition: BoolArray, count: int) -> IntArray:
    """Cut reads into contiguous pieces of about the same cost."""
    stops = np.cumsum(costs)
    share = stops[-1] / count
    ideal = share * np.arange(1, count)
    edges = np.concatenate([np.zeros(1), stops])
    cuts = _nearest(edges, ideal)
    between = np.flatnonzero(np.append(begins_partition, True))
    preferred = between[_nearest(edges[between], ideal)]
    is_near = np.abs(edges[preferred] - ideal) <= np.maximum(_SLACK * share, np.abs(edges[cuts] - ideal))
    chosen = np.where(is_near, preferred, cuts)
    starts: IntArray = np.unique(np.concatenate([np.zeros(1, np.int64), chosen, np.array([len(costs)])]))
    return starts


def _nearest(edges: npt.NDArray[np.float64], places: npt.NDArray[np.float64]) -> IntArray:
    """Return the index of the edge nearest to each place; edges ascend."""
    after = np.searchsorted(edges, places).clip(1, len(edges) - 1)
    is_before = places - edges[after - 1] <= edges[after] - places
    nearest: IntArray = np.where(is_before, after - 1, after)
    return nearest


def parquet_share(  # noqa: PLR0913 - a partition, and the place of some of its reads in a piece
    partition: PlannedParquet,
    described: PartitionRead,
    reads: Sequence[RowGroupRead],
    *,
    columns: Sequence[TableColumn],
    partition_index: int,
    etag: str | None,
    shape: RequestShape,
    reducer: SidecarReducer,
) -> ParquetShare:
    """Make the share of a piece in a partition, for some of its reads."""
    places = [partition.places[column.index] for column in columns]
    renumbering = _Renumbering(reads, places)
    deferred = {column for read in reads if read.deferred is not None for column in read.deferred.columns}
    pages = None
    if deferred and partition.pages is not None:
        pages = reduced_pages(
            partition.pages, row_groups=renumbering.row_groups, columns=renumbering.columns, wanted=deferred
        )
    return ParquetShare(
        name=described.name,
        data_path=partition.data_path,
        metadata_source=described.metadata_source,
        etag=etag,
        pages_etag=partition.pages_etag,
        may_grow=partition.may_grow,
        sidecar=reducer.reduce(
            partition.sidecar,
            columns=renumbering.columns,
            row_groups=renumbering.row_groups,
            keeps_bounds=renumbering.made_chunks(reads),
        ),
        places=tuple(renumbering.place(place) for place in places),
        pages=pages,
        shape=shape,
        reads=tuple(renumbering.read(read, partition_index) for read in reads),
    )


class _Renumbering:
    """The row groups and columns of a share, and their numbers in its reduced sidecar.

    Args:
        reads: The reads.
        places: The indexes of the piece's columns in the whole sidecar, None if absent.
    """

    def __init__(self, reads: Sequence[RowGroupRead], places: Sequence[int | None]) -> None:
        self.row_groups = distinct_values(np.fromiter((read.row_group for read in reads), np.int64, len(reads)))
        """Their numbers in the whole sidecar, ascending."""
        self.columns = tuple(sorted({place for place in places if place is not None}))
        """Their indexes there, ascending."""
        self._new_columns = {column: number for number, column in enumerate(self.columns)}
        self._new_row_groups = {row_group: number for number, row_group in enumerate(self.row_groups.tolist())}

    def place(self, place: int | None) -> int | None:
        """Return the new index of a column."""
        return None if place is None else self._new_columns[place]

    def read(self, read: RowGroupRead, partition_index: int) -> RowGroupRead:
        """Return a read with the new numbers."""
        row_group = self._new_row_groups[read.row_group]
        return replace(
            read,
            partition_index=partition_index,
            row_group=row_group,
            row_groups_left_out=read.row_group_in_file - row_group,
            columns=tuple([self._new_columns[column] for column in read.columns]),
            made_columns=tuple([self._new_columns[column] for column in read.made_columns]),
            deferred=None if read.deferred is None else self.read(read.deferred, partition_index),
        )

    def made_chunks(self, reads: Sequence[RowGroupRead]) -> BoolArray:
        """Tell which chunks are made from their statistics, by their new numbers."""
        is_made = np.zeros((len(self.row_groups), len(self.columns)), dtype=np.bool_)
        for read in reads:
            for column in read.made_columns:
                is_made[self._new_row_groups[read.row_group], self._new_columns[column]] = True
        return is_made


async def make_pieces(
    planned: PlannedScan, executor: Executor, *, most_pieces: int | None, target_bytes: int | None
) -> tuple[ScanPiece, ...]:
    """Cut a plan into pieces.

    Requests: 1 HEAD for each partition that is cut and whose data has no known version, all in parallel: all readers of
    its pieces must use the same version. With storage classes all versions are already known.
    """
    if not planned.plan.row_groups:
        return ()
    loop, snapshot = asyncio.get_running_loop(), planned.question.snapshot
    cut = partial(_cut, planned, most_pieces=most_pieces, target_bytes=target_bytes)
    edges = await loop.run_in_executor(executor, cut)
    paths = [path for path in _cut_objects(planned, edges) if snapshot.versions.lasting_etag(path) is None]
    await snapshot.data_objects.head(paths)
    return await loop.run_in_executor(executor, _make, planned, edges)


def _cut(planned: PlannedScan, *, most_pieces: int | None, target_bytes: int | None) -> list[int]:
    """Return the begin of each piece, and finally the number of reads."""
    reads, costs = planned.plan.row_groups, _costs(planned)
    owners = np.fromiter((read.partition_index for read in reads), np.int64, len(reads))
    begins_partition = np.append(True, owners[1:] != owners[:-1])
    count = piece_count(float(costs.sum()), len(reads), most_pieces=most_pieces, target_bytes=target_bytes)
    edges: list[int] = cut_evenly(costs, begins_partition, count).tolist()
    return edges


def _cut_objects(planned: PlannedScan, edges: Sequence[int]) -> Iterator[str]:
    """Yield the Parquet files of partitions that several pieces read."""
    reads = planned.plan.row_groups
    for start in edges[1:-1]:
        before, after = reads[start - 1].partition_index, reads[start].partition_index
        partition = planned.partitions[after]
        if before == after and isinstance(partition, PlannedParquet):
            yield partition.data_path


def _make(planned: PlannedScan, edges: Sequence[int]) -> tuple[ScanPiece, ...]:
    maker, reads = _PieceMaker(planned), planned.plan.row_groups
    return tuple(maker.piece(reads[start:stop]) for start, stop in pairwise(edges))


class _PieceMaker:
    """Makes the pieces of one plan.

    Args:
        planned: The plan.
    """

    def __init__(self, planned: PlannedScan) -> None:
        self._planned = planned
        question, plan = planned.question, planned.plan
        self._columns = question.needed_columns
        self._wanted_bytes = plan.bytes_wanted
        self._late_part_bytes = part_bytes_of(question, self._wanted_bytes)
        self._symbols = {
            index: [str(symbol) for symbol in strings.to_pylist()]
            for index, strings in question.symbols.strings.items()
        }
        self._reducer = SidecarReducer()
        self._locations = {partition.directory_path: partition.location for partition in question.snapshot.partitions}

    def piece(self, reads: Sequence[PlannedRead]) -> ScanPiece:
        """Make the piece of some consecutive reads."""
        question = self._planned.question
        shares: list[PieceShare] = []
        requests: list[PlannedRequest] = []
        dictionaries: list[Utf8Strings] = []
        for index, group in _by_partition(reads):
            share = self._share(index, group, len(shares), dictionaries)
            shares.append(share)
            requests += self._requests(index, group, share.shape)
        files = question.snapshot.files
        has_native = any(isinstance(share, NativeShare) for share in shares)
        content = PieceContent(
            table=question.url,
            options=question.options,
            columns=self._columns,
            output_column_count=len(question.output_columns),
            predicate=question.predicate,
            predicate_text=question.predicate_text,
            late_part_bytes=self._late_part_bytes,
            symbols=self._symbols,
            dictionaries=tuple(dictionaries),
            moment=files.moment if files is not None and has_native else None,
            shares=tuple(shares),
        )
        numbers = PieceNumbers(
            row_group_count=len(reads),
            rows_at_most=sum(read.row_count for read in reads),
            fetched_bytes=sum(request.byte_range.length_bytes for request in requests),
            request_count=len(requests),
        )
        return ScanPiece.of(content, numbers)

    def _share(
        self, index: int, reads: Sequence[PlannedRead], partition_index: int, dictionaries: list[Utf8Strings]
    ) -> PieceShare:
        """Make the share for some reads of a partition; symbols not yet known are added to the piece."""
        partition, described = self._planned.partitions[index], self._planned.plan.partitions[index]
        if isinstance(partition, PlannedParquet):
            return parquet_share(
                partition,
                described,
                [read for read in reads if isinstance(read, RowGroupRead)],
                columns=self._columns,
                partition_index=partition_index,
                etag=self._etag(partition),
                shape=self._shape(index),
                reducer=self._reducer,
            )
        record = self._locations[described.data_path].record
        if not isinstance(partition, PlannedNative) or record is None:
            raise InternalError(f"a piece cannot hold a partition of kind {type(partition).__name__}")
        return NativeShare(
            name=described.name,
            data_path=partition.directory_path,
            record=record,
            columns=tuple(partition.columns[column.index] for column in self._columns),
            dictionaries={
                column: _position(strings, dictionaries) for column, strings in partition.dictionaries.items()
            },
            shape=self._shape(index),
            reads=tuple(
                replace(read, partition_index=partition_index) for read in reads if isinstance(read, NativeRead)
            ),
        )

    def _etag(self, partition: PlannedParquet) -> str | None:
        """Return the known version of a data object, if later readers can compare it."""
        snapshot, path = self._planned.question.snapshot, partition.data_path
        info = snapshot.versions.info(path)
        # The version of a growing file on a disk changes, although its committed part does not.
        seen = None if info is None or partition.may_grow else info.etag
        return snapshot.versions.lasting_etag(path) or seen

    def _shape(self, index: int) -> RequestShape:
        question, plan = self._planned.question, self._planned.plan
        coalescing = plan.coalescings[index]
        return RequestShape(
            coalescing=coalescing,
            part_bytes=coalescing.part_bytes(self._wanted_bytes, question.options.max_concurrency),
            late_coalescing=question.coalescing_of(plan.partitions[index].data_path),
        )

    def _requests(self, index: int, reads: Sequence[PlannedRead], shape: RequestShape) -> Sequence[PlannedRequest]:
        """Return the requests for some reads of a partition: those of the plan, unless it is cut there."""
        plan = self._planned.plan
        if len(reads) == len(plan.row_groups_of(index)):
            return plan.requests_of(index)
        stages = RequestStages(late_part_bytes=self._late_part_bytes)
        stages.add(
            self._planned.partitions[index],
            reads,
            coalescing=shape.coalescing,
            part_bytes=shape.part_bytes,
            late_coalescing=shape.late_coalescing,
        )
        return stages.requests()


def _costs(planned: PlannedScan) -> npt.NDArray[np.float64]:
    """Estimate the cost of each read: fetched and decoded bytes, and a constant for every row group."""
    reads = planned.plan.row_groups
    wanted_bytes = np.fromiter((read.bytes_wanted for read in reads), np.float64, len(reads))
    row_counts = np.fromiter((read.row_count for read in reads), np.float64, len(reads))
    # The decoded size of a row is nearly the same in all reads, so the largest read decides.
    largest = reads[int(np.argmax(wanted_bytes))]
    question, partition = planned.question, planned.partitions[largest.partition_index]
    decoded_bytes = partition.decoded_bytes(largest, question.needed_columns, question.options)
    return wanted_bytes + decoded_bytes / max(largest.row_count, 1) * row_counts + READ_COST_BYTES


def _position(strings: Utf8Strings, dictionaries: list[Utf8Strings]) -> int:
    """Return the position of symbols among the known ones; add them if they are new: partitions share theirs."""
    for position, known in enumerate(dictionaries):
        if known is strings:
            return position
    dictionaries.append(strings)
    return len(dictionaries) - 1


def _by_partition(reads: Sequence[PlannedRead]) -> Iterator[tuple[int, list[PlannedRead]]]:
    for index, group in groupby(reads, key=attrgetter("partition_index")):
        yield index, list(group)

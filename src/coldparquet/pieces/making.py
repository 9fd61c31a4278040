"""From an admitted plan to its pieces. No request is sent; what a piece says is encoded at once, so that little is held."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from itertools import groupby, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.errors import InternalError
from coldparquet.pieces.cutting import READ_COST_BYTES, cut_evenly, piece_count
from coldparquet.pieces.piece_content import NativeShare, PieceContent, PieceNumbers, RequestShape
from coldparquet.pieces.reduced_sidecar import SidecarReducer
from coldparquet.pieces.scan_piece import ScanPiece
from coldparquet.pieces.shares import parquet_share
from coldparquet.plan.native_read import NativeRead
from coldparquet.plan.read_plan import RowGroupRead
from coldparquet.scanning.planned_partition import PlannedNative, PlannedParquet
from coldparquet.scanning.request_planner import RequestStages, part_bytes_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Executor

    import numpy.typing as npt

    from coldparquet.format.utf16 import Utf8Strings
    from coldparquet.pieces.piece_content import PieceShare
    from coldparquet.plan.read_plan import PlannedRead, PlannedRequest
    from coldparquet.scanning.scan_planner import PlannedScan


async def make_pieces(
    planned: PlannedScan, executor: Executor, *, most_pieces: int | None, target_bytes: int | None
) -> tuple[ScanPiece, ...]:
    """Cut a plan into pieces.

    Requests: 1 look at each partition that is cut and of whose data no version was seen yet, all at once: whoever reads one
    of its pieces must see the version that the others see. With storage classes everything was looked at before.

    Args:
        planned: The plan, admitted; its question has no limit.
        executor: Does the work.
        most_pieces: Never more than these; None for any number.
        target_bytes: About how much each should cost, as fetched and decoded bytes; None leaves it to ``most_pieces``.

    Returns:
        The pieces in table order; none where nothing is read.

    Raises:
        StorageError: A look at an object failed.
    """
    if not planned.plan.row_groups:
        return ()
    loop, snapshot = asyncio.get_running_loop(), planned.question.snapshot
    cut = partial(_cut, planned, most_pieces=most_pieces, target_bytes=target_bytes)
    edges = await loop.run_in_executor(executor, cut)
    paths = [path for path in _cut_objects(planned, edges) if snapshot.store.lasting_etag(path) is None]
    await snapshot.data_objects.look_at(paths, [])
    return await loop.run_in_executor(executor, _make, planned, edges)


def _cut(planned: PlannedScan, *, most_pieces: int | None, target_bytes: int | None) -> list[int]:
    """Return where each piece begins, and at last the number of reads."""
    reads, costs = planned.plan.row_groups, _costs(planned)
    owners = np.fromiter((read.partition_index for read in reads), np.int64, len(reads))
    begins_partition = np.append(True, owners[1:] != owners[:-1])
    count = piece_count(float(costs.sum()), len(reads), most_pieces=most_pieces, target_bytes=target_bytes)
    edges: list[int] = cut_evenly(costs, begins_partition, count).tolist()
    return edges


def _cut_objects(planned: PlannedScan, edges: Sequence[int]) -> Iterator[str]:
    """Yield the Parquet files of partitions of which several pieces read."""
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
        """Make the piece of some neighbouring reads."""
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
        """Take along what some reads of a partition need; symbols that no other share needs are added to those known."""
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
        """Return the version that was seen of a data object, if whoever reads it later can compare it."""
        snapshot, path = self._planned.question.snapshot, partition.data_path
        info = snapshot.data_objects.info(path)
        # The version of a file on a disk that grows changes although what was committed does not.
        seen = None if info is None or partition.may_grow else info.etag
        return snapshot.store.lasting_etag(path) or seen

    def _shape(self, index: int) -> RequestShape:
        question, plan = self._planned.question, self._planned.plan
        coalescing = plan.coalescings[index]
        return RequestShape(
            coalescing=coalescing,
            part_bytes=coalescing.part_bytes(self._wanted_bytes, question.options.max_concurrency),
            late_coalescing=question.coalescing_of(plan.partitions[index].data_path),
        )

    def _requests(self, index: int, reads: Sequence[PlannedRead], shape: RequestShape) -> Sequence[PlannedRequest]:
        """Return the requests that bring some reads of a partition: those of the plan, unless it is cut there."""
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
    """Estimate what each read costs: fetched and decoded bytes, and something for every row group."""
    reads = planned.plan.row_groups
    wanted_bytes = np.fromiter((read.bytes_wanted for read in reads), np.float64, len(reads))
    row_counts = np.fromiter((read.row_count for read in reads), np.float64, len(reads))
    # What a row takes when it is decoded is nearly the same in all reads: the largest one tells.
    largest = reads[int(np.argmax(wanted_bytes))]
    question, partition = planned.question, planned.partitions[largest.partition_index]
    decoded_bytes = partition.decoded_bytes(largest, question.needed_columns, question.options)
    return wanted_bytes + decoded_bytes / max(largest.row_count, 1) * row_counts + READ_COST_BYTES


def _position(strings: Utf8Strings, dictionaries: list[Utf8Strings]) -> int:
    """Return where symbols are among those known, and add them if they are not: partitions share theirs."""
    for position, known in enumerate(dictionaries):
        if known is strings:
            return position
    dictionaries.append(strings)
    return len(dictionaries) - 1


def _by_partition(reads: Sequence[PlannedRead]) -> Iterator[tuple[int, list[PlannedRead]]]:
    for index, group in groupby(reads, key=attrgetter("partition_index")):
        yield index, list(group)

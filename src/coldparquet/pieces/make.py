"""Cuts an admitted plan into pieces of about equal cost, in table order, encoded one by one. Sends at most HEADs."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import groupby, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.decode.read import decoded_bytes
from coldparquet.options import KIB, MIB
from coldparquet.pieces.frame import PieceContent, PieceNumbers, PieceShare, RequestShape
from coldparquet.pieces.plain import pages_of_reads
from coldparquet.pieces.read import ScanPiece
from coldparquet.records import replace
from coldparquet.scan.requests import requests_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Executor

    import numpy.typing as npt

    from coldparquet.plan.bounds import BoolArray, IntArray
    from coldparquet.plan.model import PlannedRequest, Read, StoredData
    from coldparquet.scan.model import PlannedScan


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
        before, after = reads[start - 1].data, reads[start].data
        if before is after and after.decoder == "parquet":
            yield after.path


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
        question = planned.question
        self._columns = question.needed_columns
        self._wanted_bytes = planned.plan.bytes_wanted
        self._symbols = {
            index: [str(symbol) for symbol in strings.to_pylist()] for index, strings in question.symbols.items()
        }
        self._locations = {partition.directory_path: partition.location for partition in question.snapshot.partitions}

    def piece(self, reads: Sequence[Read]) -> ScanPiece:
        """Make the piece of some consecutive reads."""
        question, plan = self._planned.question, self._planned.plan
        shares: list[PieceShare] = []
        renumbered: list[Read] = []
        requests: list[PlannedRequest] = []
        for index, group in groupby(reads, key=attrgetter("partition_index")):
            of_partition = list(group)
            share = self._share(index, of_partition)
            requests += self._requests(index, of_partition, share.shape)
            renumbered += [_in_piece(read, len(shares), share.data) for read in of_partition]
            shares.append(share)
        files = question.snapshot.files
        has_native = any(share.record is not None for share in shares)
        content = PieceContent(
            table=question.url,
            options=question.options,
            columns=self._columns,
            output_column_count=len(question.output_columns),
            predicate=question.predicate,
            predicate_text=question.predicate_text,
            late_part_bytes=plan.late_part_bytes,
            symbols=self._symbols,
            moment=files.moment if files is not None and has_native else None,
            shares=tuple(shares),
            reads=tuple(renumbered),
        )
        numbers = PieceNumbers(
            row_group_count=len(reads),
            rows_at_most=sum(read.row_count for read in reads),
            fetched_bytes=sum(request.byte_range.length_bytes for request in requests),
            request_count=len(requests),
        )
        return ScanPiece.of(content, numbers)

    def _share(self, index: int, reads: Sequence[Read]) -> PieceShare:
        """Describe what some reads of a partition share."""
        described, data = self._planned.plan.partitions[index], reads[0].data
        is_native = data.decoder == "native"
        pages = None if data.pages is None else pages_of_reads(data.pages, reads)
        return PieceShare(
            name=described.name,
            metadata_source=described.metadata_source,
            etag=None if is_native else self._etag(data),
            shape=self._shape(index),
            record=self._locations[data.path].record if is_native else None,
            data=replace(data, pages=pages),
        )

    def _etag(self, data: StoredData) -> str | None:
        """Return the known version of a data object, if later readers can compare it."""
        snapshot = self._planned.question.snapshot
        info = snapshot.versions.info(data.path)
        # The version of a growing file on a disk changes, although its committed part does not.
        seen = None if info is None or data.may_grow else info.etag
        return snapshot.versions.lasting_etag(data.path) or seen

    def _shape(self, index: int) -> RequestShape:
        question, plan = self._planned.question, self._planned.plan
        coalescing = plan.coalescings[index]
        return RequestShape(
            coalescing=coalescing,
            part_bytes=coalescing.part_bytes(self._wanted_bytes, question.options.max_concurrency),
            late_coalescing=plan.late_coalescings[index],
        )

    def _requests(self, index: int, reads: Sequence[Read], shape: RequestShape) -> Sequence[PlannedRequest]:
        """Return the requests for some reads of a partition: those of the plan, unless it is cut there."""
        plan = self._planned.plan
        if len(reads) == len(plan.row_groups_of(index)):
            return plan.requests_of(index)
        return requests_of(
            reads,
            plan.coalescings,
            {index: shape.part_bytes},
            plan.late_coalescings,
            plan.late_part_bytes,
        )


def _in_piece(read: Read, share: int, data: StoredData) -> Read:
    deferred = None if read.deferred is None else _in_piece(read.deferred, share, data)
    return replace(read, partition_index=share, data=data, deferred=deferred)


def _costs(planned: PlannedScan) -> npt.NDArray[np.float64]:
    """Estimate the cost of each read: fetched and decoded bytes, and a constant for every row group."""
    reads = planned.plan.row_groups
    wanted_bytes = np.fromiter((read.bytes_wanted for read in reads), np.float64, len(reads))
    row_counts = np.fromiter((read.row_count for read in reads), np.float64, len(reads))
    # The decoded size of a row is nearly the same in all reads, so the largest read decides.
    largest = reads[int(np.argmax(wanted_bytes))]
    size_bytes = decoded_bytes(largest) + (0 if largest.deferred is None else decoded_bytes(largest.deferred))
    return wanted_bytes + size_bytes / max(largest.row_count, 1) * row_counts + READ_COST_BYTES

"""What a piece takes along of one partition: some of its row groups, numbered anew, and the sidecar that describes them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.format.distinct_values import distinct_values
from coldparquet.pieces.piece_content import ParquetShare
from coldparquet.pieces.plain_reads import reduced_pages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.pieces.piece_content import RequestShape
    from coldparquet.pieces.reduced_sidecar import SidecarReducer
    from coldparquet.plan.bounds import BoolArray
    from coldparquet.plan.projection import TableColumn
    from coldparquet.plan.read_plan import PartitionRead, RowGroupRead
    from coldparquet.scanning.planned_partition import PlannedParquet


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
    """Take along some reads of a partition.

    Args:
        partition: The partition.
        described: What the plan says of it.
        reads: Neighbouring reads of it, at least one.
        columns: Columns of the piece.
        partition_index: Position of the share in the piece.
        etag: Version of the data object that the plan has seen; None if it has seen none that lasts.
        shape: How the ranges become requests.
        reducer: Cuts down the sidecars of the table.
    """
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
        reads: What is read.
        places: Where the columns of the piece are in the whole sidecar, None where they are not.
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

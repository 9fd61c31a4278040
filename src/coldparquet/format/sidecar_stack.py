"""Sidecars of many partitions stacked into one table of row groups, so that all of them are planned at once."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from coldparquet.format import sidecar_layout as layout
from coldparquet.format.row_group_table import RowGroupTable
from coldparquet.format.sidecar_chunks import BlockTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from coldparquet.format.column_schema import ColumnSchema
    from coldparquet.format.sidecar import Sidecar

_LONGEST_STACK_BYTES = 16 * 1024 * 1024
"""Stacking copies: this bounds the memory, and costs nothing beside what so many row groups take to plan."""


class SidecarStack(RowGroupTable):
    """The row groups of sidecars that describe their columns alike, one behind the other.

    Args:
        sidecars: At least one; all have the same `schema`.

    Attributes:
        sidecars: The same.
        borders: Index of the first row group of each, and at the end the number of all, shape (sidecars + 1,).
    """

    def __init__(self, sidecars: Sequence[Sidecar]) -> None:
        first = sidecars[0]
        super().__init__(first.file, first.header, path=first.path if len(sidecars) == 1 else None)
        self.sidecars = tuple(sidecars)
        counts = [sidecar.row_group_count for sidecar in sidecars]
        self.borders: npt.NDArray[np.int64] = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        self._borders: list[int] = self.borders.tolist()
        self._blocks = first.blocks if len(sidecars) == 1 else _joined_blocks(sidecars, counts, path=self.path)
        stops = [sidecar.footer.parquet_footer_offset for sidecar in sidecars]
        self._data_stops = np.repeat(np.array(stops, np.uint64), counts)

    @property
    def schema(self) -> ColumnSchema:
        """See :class:`RowGroupTable`."""
        return self.sidecars[0].schema

    @property
    def blocks(self) -> BlockTable:
        """See :class:`RowGroupTable`."""
        return self._blocks

    @property
    def data_stops(self) -> npt.NDArray[np.uint64]:
        """See :class:`RowGroupTable`."""
        return self._data_stops

    @property
    def foreign_annotations(self) -> Mapping[int, str]:
        """See :class:`RowGroupTable`."""
        return self.sidecars[0].foreign_annotations

    @cached_property
    def is_writer_known(self) -> bool:
        """See :class:`RowGroupTable`: of all of the sidecars."""
        return all(sidecar.is_writer_known for sidecar in self.sidecars)

    @cached_property
    def bloom_columns(self) -> tuple[int, ...]:
        """See :class:`RowGroupTable`: of any of the sidecars."""
        return tuple(sorted({column for sidecar in self.sidecars for column in sidecar.bloom_columns}))

    def stored_blooms(self, column_index: int) -> npt.NDArray[Any]:
        """See :class:`RowGroupTable`."""
        with_blooms = [sidecar for sidecar in self.sidecars if column_index in sidecar.bloom_columns]
        stored = np.concatenate([sidecar.stored_blooms(column_index) for sidecar in with_blooms])
        if len(with_blooms) == len(self.sidecars):
            return stored
        has_blooms = [column_index in sidecar.bloom_columns for sidecar in self.sidecars]
        result = np.zeros(self.row_group_count, stored.dtype)
        result[np.repeat(has_blooms, np.diff(self.borders))] = stored
        return result

    @cached_property
    def total_rows(self) -> list[int]:
        """Rows of each sidecar."""
        # Halves, because the sum of 64-bit counts can exceed 64 bits.
        halves = [
            np.diff(np.concatenate([[0], np.cumsum(half)])[self.borders]).tolist()
            for half in (self.row_counts & 0xFFFF_FFFF, self.row_counts >> 32)
        ]
        return [low + (high << 32) for low, high in zip(*halves, strict=True)]

    def row_groups_of(self, position: int) -> slice:
        """Return which row groups are those of one sidecar."""
        return slice(self._borders[position], self._borders[position + 1])


def stack_alike(sidecars: Sequence[Sidecar]) -> list[list[int]]:
    """Group sidecars that can be stacked, and that are short enough to be copied for it.

    Args:
        sidecars: In any order.

    Returns:
        The positions of the sidecars of each stack, ascending.
    """
    stacks: list[list[int]] = []
    open_stacks: dict[ColumnSchema, tuple[list[int], int]] = {}
    for position, sidecar in enumerate(sidecars):
        stack, length_bytes = open_stacks.get(sidecar.schema, ([], 0))
        if not stack or length_bytes + sidecar.size_bytes > _LONGEST_STACK_BYTES:
            stack, length_bytes = [], 0
            stacks.append(stack)
        stack.append(position)
        open_stacks[sidecar.schema] = (stack, length_bytes + sidecar.size_bytes)
    return stacks


def _joined_blocks(sidecars: Sequence[Sidecar], counts: Sequence[int], *, path: str | None) -> BlockTable:
    sizes = np.array([len(sidecar.file) for sidecar in sidecars], np.int64)
    gaps = -sizes % layout.WORD_BYTES
    padding = [bytes(gap) for gap in range(layout.WORD_BYTES)]
    pieces = [
        piece for sidecar, gap in zip(sidecars, gaps.tolist(), strict=True) for piece in (sidecar.file, padding[gap])
    ]
    file = memoryview(b"".join(pieces))
    begins = np.cumsum(sizes + gaps) - (sizes + gaps)
    first_words = np.concatenate([sidecar.footer.block_entries for sidecar in sidecars]).astype(np.int64)
    return BlockTable(
        file=file,
        words=np.frombuffer(file, "<u8"),
        first_words=first_words + np.repeat(begins // layout.WORD_BYTES, counts),
        snapshot_starts=np.repeat(begins, counts),
        snapshot_stops=np.repeat(begins + sizes, counts),
        stride_words=None,
        column_count=sidecars[0].column_count,
        path=path,
    )

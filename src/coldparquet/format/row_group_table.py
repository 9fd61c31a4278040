"""What planning needs to know of row groups: their columns, and where their chunks and statistics are stored.

One sidecar is such a table. So is a stack of several (:mod:`coldparquet.format.sidecar_stack`), so that thousands of
partitions are planned by the same few array operations as one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any

from coldparquet.errors import FormatError, InvalidInputError
from coldparquet.format.column_types import ColumnType, resolve_type
from coldparquet.format.sidecar_chunks import BlockTable, ChunkColumn
from coldparquet.format.sidecar_header import ColumnDescriptor, SidecarHeader, parse_column, parse_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import numpy.typing as npt

    from coldparquet.format.column_schema import ColumnSchema


class RowGroupTable(ABC):
    """Row groups of the same columns. Descriptors, names and chunk fields are read when they are first asked for.

    Args:
        file: A sidecar that describes the columns.
        header: Its header.
        path: The sidecar, for error messages; None where there are several.

    Attributes:
        header: What holds for all of them.
        path: As above.
    """

    def __init__(self, file: memoryview, header: SidecarHeader, *, path: str | None) -> None:
        self._description = file
        self._chunks: dict[int, ChunkColumn] = {}
        self.header = header
        self.path = path

    @property
    @abstractmethod
    def schema(self) -> ColumnSchema:
        """What it shares with all tables that describe their columns alike."""

    @property
    @abstractmethod
    def blocks(self) -> BlockTable:
        """Where the row groups' blocks lie, for raw looks at them; `row_counts` and `chunks` are what plans need."""

    @property
    @abstractmethod
    def data_stops(self) -> npt.NDArray[np.uint64]:
        """Where the data of the Parquet file of each row group ends and its footer begins, as stored, shape (row groups,)."""

    @property
    @abstractmethod
    def foreign_annotations(self) -> Mapping[int, str]:
        """What we noted about columns whose Arrow type does not follow from their type code; empty for QuestDB's files."""

    @property
    @abstractmethod
    def is_writer_known(self) -> bool:
        """Whether the writer is noted, or QuestDB: if not, the files may have what ``file_writer`` says of old writers."""

    @property
    @abstractmethod
    def bloom_columns(self) -> tuple[int, ...]:
        """Indexes of the columns that may have bloom filters, ascending."""

    @abstractmethod
    def stored_blooms(self, column_index: int) -> npt.NDArray[Any]:
        """Return the bloom entries of one of the `bloom_columns` as stored, shape (row groups,); 0 where there is no filter.

        `BLOOM_REFERENCE_DTYPE` when `blooms_external`, otherwise `BLOOM_OFFSET_DTYPE`.
        """

    @property
    def blooms_external(self) -> bool:
        """Whether bloom filters lie in the Parquet file and not in the sidecar."""
        return self.header.blooms_external

    @property
    def row_group_count(self) -> int:
        """Number of row groups."""
        return len(self.blocks.first_words)

    @property
    def column_count(self) -> int:
        """Number of leaf columns."""
        return self.header.column_count

    @cached_property
    def row_counts(self) -> npt.NDArray[np.int64]:
        """Rows of each row group, shape (row groups,).

        Raises:
            FormatError: A count exceeds 2**63 - 1.
        """
        return self.blocks.gather_count(0, "num_rows")

    @cached_property
    def columns(self) -> tuple[ColumnDescriptor, ...]:
        """All column descriptors; see `column` for what may be wrong with them."""
        return tuple(self.column(index) for index in range(self.column_count))

    def column(self, index: int) -> ColumnDescriptor:
        """Return one column descriptor.

        Raises:
            FormatError: Its name is not UTF-8, or its repetition or physical type are none of Parquet's.
            InvalidInputError: There is no such column.
        """
        descriptors = self.schema.descriptors
        column = descriptors.get(index)
        if column is None:
            self._check_column(index)
            column = descriptors[index] = parse_column(self._description, index, path=self.path)
        return column

    def column_type(self, index: int) -> ColumnType:
        """Return the type with which a column is stored.

        Raises:
            UnsupportedError: This version does not read the type.
            FormatError: The descriptor is wrong, see `column`.
            InvalidInputError: There is no such column.
        """
        column, types = self.column(index), self.schema.types
        column_type = types.get(index)
        if column_type is None:
            column_type = types[index] = resolve_type(
                column.type_code,
                column.physical_type,
                column.fixed_byte_length,
                column.max_rep_level,
                self.foreign_annotations.get(index),
            )
        return column_type

    def column_index(self, name: str) -> int | None:
        """Return the index of the column with exactly this name, the first one if several have it, else None.

        Raises:
            FormatError: The name of any column is not UTF-8.
        """
        return self._index_by_name.get(name)

    @cached_property
    def _index_by_name(self) -> dict[str, int]:
        by_name: dict[str, int] = {}
        for index in range(self.column_count):
            by_name.setdefault(parse_name(self._description, index, path=self.path), index)
        return by_name

    @cached_property
    def designated_timestamp(self) -> int | None:
        """Index of the column that orders the table's rows in time, or None.

        Raises:
            FormatError: It is not a column.
        """
        index = self.header.designated_timestamp
        if index is not None:
            self._check_stored_index(index, "designated_timestamp")
        return index

    @cached_property
    def sorting_columns(self) -> tuple[int, ...]:
        """Indexes of the columns by which the rows are sorted; each descriptor tells whether it is `descending`.

        Raises:
            FormatError: One of them is not a column.
        """
        indexes = self.header.sorting_columns
        if indexes:
            self._check_stored_index(max(indexes), "sorting_columns")
        return indexes

    def chunks(self, column_index: int) -> ChunkColumn:
        """Return the chunks of one column over all row groups.

        Raises:
            InvalidInputError: There is no such column.
        """
        chunks = self._chunks.get(column_index)
        if chunks is None:
            self._check_column(column_index)
            chunks = self._chunks[column_index] = ChunkColumn(self.blocks, column_index)
        return chunks

    def _check_column(self, index: int) -> None:
        if not 0 <= index < self.column_count:
            raise InvalidInputError(
                f"no column {index} among {self.column_count}", kind="UnknownColumn", path=self.path
            )

    def _check_stored_index(self, index: int, field: str) -> None:
        if index >= self.column_count:
            raise FormatError(
                f"{field} names column {index}, but there are {self.column_count}",
                kind="InvalidValue",
                path=self.path,
                offset=16,
                field=field,
            )

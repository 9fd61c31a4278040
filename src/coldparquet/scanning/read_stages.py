"""What threads do for one row group: decode its columns at once, or those of the predicate first and the others later.

Everything here blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from coldparquet.decode.arrow_schema import TextAs, arrow_field
from coldparquet.decode.filter import filter_rows
from coldparquet.decode.surviving_rows import surviving_rows
from coldparquet.decode.used_values import shorten_dictionaries
from coldparquet.errors import InternalError
from coldparquet.plan.budgets import has_budget
from coldparquet.plan.read_plan import RowGroupRead
from coldparquet.plan.read_ranges import shortened_to
from coldparquet.scanning.known_symbols import symbol_columns

if TYPE_CHECKING:
    from coldparquet.options import Coalescing
    from coldparquet.plan.projection import TableColumn
    from coldparquet.plan.read_plan import PlannedRead, PlannedRequest
    from coldparquet.scanning.gathering import Gathering
    from coldparquet.scanning.planned_partition import PlannedPartition
    from coldparquet.scanning.streamed_plan import StreamedQuestion


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """What decoding has brought."""

    rows: pa.Table
    """Rows that satisfy the predicate."""
    decoded_bytes: int
    """Size of what was decoded, before the predicate was applied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstStage(Decoded):
    """What the predicate's columns have shown."""

    narrowed: PlannedRead | None
    """What is to be fetched now: the deferred columns of the rows that are left. None if there are none."""
    requests: tuple[PlannedRequest, ...]
    """They bring it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStages:
    """How one read becomes rows of the result."""

    read: PlannedRead
    partition: PlannedPartition
    question: StreamedQuestion
    data_path: str
    """The data object of the partition."""
    first_columns: tuple[TableColumn, ...]
    """What is decoded first: everything, or the predicate's columns and what is decoded with them."""
    deferred_columns: tuple[TableColumn, ...]
    """Columns of the result that are decoded only for the rows that are left; none where all is decoded at once."""

    @classmethod
    def of(
        cls, read: PlannedRead, partition: PlannedPartition, question: StreamedQuestion, *, data_path: str
    ) -> ReadStages:
        """Split the columns that a read has to bring into those of the two stages."""
        needed, deferred = question.output_columns, partition.deferred_columns(read, question.output_columns)
        if not read.all_rows_match:
            needed = question.needed_columns
        return cls(
            read=read,
            partition=partition,
            question=question,
            data_path=data_path,
            first_columns=tuple(column for column in needed if column not in deferred),
            deferred_columns=deferred,
        )

    def decode(self, gathering: Gathering) -> Decoded:
        """Decode all columns and keep the rows that satisfy the predicate."""
        question = self.question
        # The buffer is handed on and not held here: its memory goes before the predicate is applied.
        rows = self.partition.decode(self.read, gathering.take_buffer(), self.first_columns, question.options)
        decoded_bytes = rows.get_total_buffer_size()
        if question.predicate is not None and not self.read.all_rows_match:
            rows = filter_rows(question.predicate, rows)
        rows = self._shortened(rows.select([column.name for column in question.output_columns]))
        return Decoded(rows=rows, decoded_bytes=decoded_bytes)

    def decode_first(self, gathering: Gathering, part_bytes: int) -> FirstStage:
        """Decode the columns of the first stage, apply the predicate, and plan the second stage for what it leaves.

        Args:
            gathering: The bytes.
            part_bytes: About how long requests should be.
        """
        question = self.question
        if question.predicate is None:
            raise InternalError("columns were deferred without a predicate that they could wait for")
        decoded = self.partition.decode(self.read, gathering.take_buffer(), self.first_columns, question.options)
        rows, positions = surviving_rows(question.predicate, decoded)
        if rows.num_rows == 0:
            return FirstStage(
                rows=self._no_rows(), decoded_bytes=decoded.get_total_buffer_size(), narrowed=None, requests=()
            )
        deferred = {column.name for column in self.deferred_columns}
        coalescing = question.coalescing_of(self.data_path)
        narrowed = self.partition.narrow(self.read, positions, coalescing)
        if narrowed.row_count != rows.num_rows:
            raise InternalError(f"{rows.num_rows} rows are left, but {narrowed.row_count} were planned to be read")
        requests = self._second_requests(narrowed, coalescing, part_bytes)
        matching = f"{rows.num_rows:,} matching row{'' if rows.num_rows == 1 else 's'}"
        return FirstStage(
            rows=self._shortened(
                rows.select([column.name for column in question.output_columns if column.name not in deferred])
            ),
            decoded_bytes=decoded.get_total_buffer_size(),
            narrowed=narrowed,
            requests=tuple(replace(request, reason=f"{request.reason} ({matching})") for request in requests),
        )

    def _second_requests(
        self, narrowed: PlannedRead, coalescing: Coalescing, part_bytes: int
    ) -> tuple[PlannedRequest, ...]:
        """Plan what brings the rest: never more requests than the plan has announced where these are limited."""
        requests = self.partition.requests([narrowed], coalescing, part_bytes=part_bytes, stage=2)
        deferred = self.read.deferred if isinstance(self.read, RowGroupRead) else None
        if deferred is None or not has_budget(self.question.options):
            return requests
        announced = self.partition.requests([deferred], coalescing, part_bytes=part_bytes, stage=2)
        return requests if len(requests) <= len(announced) else shortened_to(announced, narrowed)

    def decode_second(self, gathering: Gathering, first: FirstStage) -> Decoded:
        """Decode the deferred columns of the rows that are left, and join them with the columns of the first stage."""
        if first.narrowed is None:
            raise InternalError("a second stage was begun although no row is left")
        rows = self.partition.decode(
            first.narrowed, gathering.take_buffer(), self.deferred_columns, self.question.options
        )
        decoded_bytes, rows = rows.get_total_buffer_size(), self._shortened(rows)
        columns = {
            table.field(index).name: (table.field(index), table.column(index))
            for table in (first.rows, rows)
            for index in range(table.num_columns)
        }
        ordered = [columns[column.name] for column in self.question.output_columns]
        joined = pa.Table.from_arrays(
            [values for _, values in ordered], schema=pa.schema([described for described, _ in ordered])
        )
        return Decoded(rows=joined, decoded_bytes=decoded_bytes)

    def _shortened(self, rows: pa.Table) -> pa.Table:
        """Drop what few rows need not keep of large dictionaries, unless all row groups are to share these."""
        is_shared = self.question.options.symbols == "global"
        untouched = {column.name for column in symbol_columns(self.question)} if is_shared else set()
        return shorten_dictionaries(rows, untouched=untouched)

    def _no_rows(self) -> pa.Table:
        text = TextAs.of(self.question.options)
        columns = self.question.output_columns
        return pa.schema(
            [arrow_field(column.name, column.readable_type, text=text) for column in columns]
        ).empty_table()

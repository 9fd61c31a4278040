"""A question about a table: plan it, explain it, count it, stream its rows."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from coldparquet.decode.batches import concatenate
from coldparquet.scanning.batch_stream import BatchStream
from coldparquet.scanning.scan_planner import only_undecided, plan_question

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from coldparquet.plan.read_plan import ReadPlan
    from coldparquet.scanning.question import Question
    from coldparquet.scanning.scan_planner import PlannedScan


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Scan:
    """An immutable question. Planning costs metadata requests at most; only reading fetches data.

    Made by :meth:`coldparquet.table.Table.scan`; running it twice asks the question twice.
    """

    question: Question
    executor: Executor
    schema: pa.Schema
    """Columns and Arrow types of the result."""

    def __repr__(self) -> str:
        columns = ", ".join(self.schema.names) or "no columns"
        where = "" if self.question.predicate_text is None else f" where {self.question.predicate_text}"
        return f"<Scan of {self.question.url}: {columns}{where}>"

    async def plan(self) -> ReadPlan:
        """Decide which bytes to read. No data byte is fetched.

        Requests: the metadata of the partitions that the predicate's time range leaves, 1 or 2 each, or up to 3 without a
        sidecar, all at once; with a limit and no predicate of the first ones alone, doubling until they have enough rows.
        None for partitions whose metadata is already known. Of native partitions see
        :func:`coldparquet.scanning.native_partition.plan_native_rows`.

        Raises:
            NotFoundError: A partition, or a file of it, is not there (any more).
            ObjectChangedError: A running database has changed a native partition meanwhile.
            FormatError: A sidecar, a footer or a native file is damaged, or of another state than the table.
            UnsupportedError: A partition holds a column with a type that does not become the table's, or is marked in a
                way that this version does not know.
        """
        return (await plan_question(self.question, self.executor)).plan

    def batches(self) -> BatchStream:
        """Stream the rows as record batches, in table order: ``async with scan.batches() as batches``.

        Requests: those of the plan, fetched ahead of the consumer within ``options.memory_limit_bytes``.
        """
        return BatchStream(
            lambda: plan_question(self.question, self.executor),
            store=self.question.snapshot.store,
            executor=self.executor,
        )

    async def to_arrow(self) -> pa.Table:
        """Read all rows into one table. Requests: those of the plan."""
        async with self.batches() as stream:
            batches = [batch async for batch in stream]
        return await asyncio.get_running_loop().run_in_executor(self.executor, concatenate, batches, self.schema)

    async def to_pandas(self) -> pd.DataFrame:
        """Read all rows into a pandas data frame. Requests: those of the plan."""
        table = await self.to_arrow()
        return await asyncio.to_thread(table.to_pandas)

    async def to_polars(self) -> pl.DataFrame:
        """Read all rows into a Polars data frame. Requests: those of the plan."""
        import polars as pl  # noqa: PLC0415 - Polars is the caller's choice, not a dependency

        return pl.DataFrame(await self.to_arrow())

    async def count(self) -> int:
        """Count the rows.

        Requests: metadata alone where it decides; else only the predicate's columns of the undecided row groups.
        """
        limit = self.question.limit
        planned = await plan_question(replace(self.question, output_columns=(), limit=None), self.executor)
        rows = sum(read.row_count for read in planned.plan.row_groups if read.all_rows_match)
        if limit is None or rows < limit:
            rows += await self._count_undecided(only_undecided(planned))
        return rows if limit is None else min(rows, limit)

    async def _count_undecided(self, planned: PlannedScan) -> int:
        async def already_planned() -> PlannedScan:
            return planned

        rows = 0
        async with BatchStream(already_planned, store=self.question.snapshot.store, executor=self.executor) as stream:
            while (matching := await stream.next_row_group()) is not None:
                rows += matching.num_rows
        return rows

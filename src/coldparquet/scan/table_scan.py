"""A question about a table: plan it, explain it, stream its rows, cut it into pieces, restore what it needs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from coldparquet.decode.batches import concatenate
from coldparquet.errors import ArchivedObjectError, InvalidInputError
from coldparquet.pieces.making import make_pieces
from coldparquet.pieces.scan_piece import ScanPieces
from coldparquet.plan.budgets import Budget, has_budget
from coldparquet.plan.cost import prices_of
from coldparquet.restoring.restore_requests import cost_of_restores
from coldparquet.scan.row_questions import RowQuestions, row_limit
from coldparquet.scanning.admission import admit
from coldparquet.scanning.archived_partitions import archived_objects, restore_objects
from coldparquet.scanning.batch_stream import BatchStream
from coldparquet.scanning.request_planner import for_new_connections
from coldparquet.scanning.scan_planner import PlannedOnce
from coldparquet.scanning.scan_statistics import request_dollars, scan_statistics

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd
    import polars as pl

    from coldparquet.options import RestoreTerms
    from coldparquet.plan.read_plan import ReadPlan
    from coldparquet.restoring.archived_objects import ArchivedObject
    from coldparquet.restoring.restore_ticket import RestoreTicket
    from coldparquet.restoring.restore_wait import RestoreProgress
    from coldparquet.scanning.scan_planner import PlannedScan
    from coldparquet.scanning.scan_statistics import ScanStatistics
    from coldparquet.storage.wrappers.trace import RequestRecord


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Scan(RowQuestions):
    """An immutable question. Planning costs metadata requests at most; only reading fetches data.

    Made by :meth:`coldparquet.table.Table.scan`. It is planned once; reading it twice fetches the data twice.
    """

    _planned: PlannedOnce = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_planned", PlannedOnce(self.question, self.executor))

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
        with self.ledger.counting():
            return (await self._planned.get()).plan

    @property
    def stats(self) -> ScanStatistics:
        """What this scan has cost so far: requests, bytes, dollars, time, and how far that is from the physical limit.

        Only the requests that this scan sent count, whatever else goes on with the table. No request.
        """
        question = self.question
        return scan_statistics(
            self.ledger,
            speed=question.speed,
            prices=prices_of(question.options),
            has_storage_classes=question.snapshot.store.has_storage_classes,
        )

    @property
    def request_log(self) -> tuple[RequestRecord, ...]:
        """The newest requests that this scan sent, at most 16,384, with reason and timing."""
        return self.ledger.records

    def request_dollars(self, record: RequestRecord) -> float | None:
        """Return what one request of a log costs, at the prices of the options. No request.

        Args:
            record: Of :attr:`request_log`, or of the table's.

        Returns:
            US dollars: 0 where the store asks no money, or not for this answer; None where the price of the object's storage
            class is not known.
        """
        question = self.question
        if not question.snapshot.store.has_storage_classes:
            return 0.0
        return request_dollars(record, prices_of(question.options))

    def batches(self) -> BatchStream:
        """Stream the rows as record batches, in table order: ``async with scan.batches() as batches``.

        Requests: those of the plan, fetched ahead of the consumer within ``options.memory_limit_bytes``.
        """
        return BatchStream(
            self._admitted,
            store=self.question.snapshot.store,
            executor=self.executor,
            activity=self._activity("batches"),
        )

    async def pieces(
        self, most_pieces: int | None = None, *, target_bytes: int | None = None, only_row_counts: bool = False
    ) -> ScanPieces:
        """Cut the scan into pieces that other processes read, on other machines if need be; see :mod:`coldparquet.pieces`.

        Whatever stands against the scan is raised here: a budget that it exceeds, archived data, a partition that is gone.

        Requests: those of :meth:`plan`, and of :meth:`batches` before its first request for data. On stores without storage
        classes, 1 look at each partition of which several pieces read.

        Args:
            most_pieces: Never more than these; None for as many as ``target_bytes`` makes.
            target_bytes: About how much each should cost, as fetched and decoded bytes together; None for even shares of
                ``most_pieces`` or, without these, for 64 MiB.
            only_row_counts: Whether batches without columns are wanted, which only count the rows.

        Raises:
            InvalidInputError: The scan has a limit, which pieces that are read side by side cannot keep (kind
                ``LimitNotAllowed``), or a number is none.
        """
        if self.question.limit is not None:
            raise InvalidInputError(
                "pieces are read side by side, and none knows how many rows the others have; make pieces of a scan without"
                " limit, and limit the rows where they come together",
                kind="LimitNotAllowed",
            )
        for name, value in (("most_pieces", most_pieces), ("target_bytes", target_bytes)):
            if value is not None and row_limit(value, name) == 0:
                raise InvalidInputError(f"{name} is 0; it must be at least 1, or None")
        if only_row_counts and self.question.output_columns:
            question = replace(self.question, output_columns=())
            counting = replace(self, question=question, schema=pa.schema([]))
            return await counting.pieces(most_pieces, target_bytes=target_bytes)
        with self.ledger.counting():
            planned = await admit(for_new_connections(await self._planned.get()))
            pieces = await make_pieces(planned, self.executor, most_pieces=most_pieces, target_bytes=target_bytes)
        return ScanPieces(pieces=pieces, schema=self.schema, plan=planned.plan)

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

    async def head(self, n: int) -> pa.Table:
        """Read the first rows, in table order. Requests: those of a scan with this limit."""
        limit = row_limit(n, "n")
        question = self.question
        return await replace(
            self, question=replace(question, limit=limit if question.limit is None else min(limit, question.limit))
        ).to_arrow()

    async def archived(self) -> tuple[ArchivedObject, ...]:
        """Find out which data objects have to be restored before the rows can be read; none on stores without archives.

        Requests: those of :meth:`plan`, and 1 for each object of which it does not know yet. Restores nothing.
        """
        return (await self._find_archived())[0]

    async def restore(
        self, terms: RestoreTerms | None = None, *, on_progress: Callable[[RestoreProgress], None] | None = None
    ) -> RestoreTicket:
        """Ask for the restore of everything that has to be restored before the rows can be read. Costs money.

        Asking again costs nothing for what is under way. Where partitions without a sidecar are archived, of which nobody can
        plan what is needed, these come first: restore again once they can be read, for the rest.

        Requests: those of :meth:`archived`, and 1 for each object that is not being restored already.

        Args:
            terms: Tier, days, and whether to wait until it is over; None takes those of the options.
            on_progress: While waiting, called after every look at the objects.

        Returns:
            What was asked for. It can be kept in a file, and waited on in another process.

        Raises:
            UnsupportedError: Objects in DEEP_ARCHIVE cannot be restored in tier ``Expedited`` (kind ``NoSuchTier``).
            BudgetExceededError: The restore and the reading that it is for cost more than the options allow; nothing was
                asked for.
            ArchivedObjectError: Waiting has taken too long (kind ``RestoreNotFinished``).
            AccessError: Restoring is not permitted.
            StorageError: The store failed.
        """
        archived, plan = await self._find_archived()
        question, chosen = self.question, terms or self.question.options.restore
        if archived and has_budget(question.options):
            cost = cost_of_restores(archived, chosen, prices_of(question.options))
            if plan is None:
                Budget().admit_restores(cost, question.options, table=question.url)
            else:
                Budget().admit(plan, restores=cost)
        with self.ledger.counting():
            return await restore_objects(question, archived, chosen, on_progress=on_progress)

    async def _find_archived(self) -> tuple[tuple[ArchivedObject, ...], ReadPlan | None]:
        """Find out what is archived, and plan what it is needed for; None where planning needs it already."""
        # Whatever the options say about archived partitions: none is left out, none restored.
        options = replace(self.question.options, archived="refuse", check_storage_classes=True)
        once = PlannedOnce(replace(self.question, options=options), self.executor)
        try:
            with self.ledger.counting():
                planned = await once.get()
                return await archived_objects(planned), planned.plan
        except ArchivedObjectError as error:  # there is no sidecar, so that even the plan needs the archived objects
            objects = error.details.get("objects")
            if objects is None:
                raise
            return tuple(objects), None

    async def _admitted(self) -> PlannedScan:
        return await admit(await self._planned.get())

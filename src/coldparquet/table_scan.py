"""Answers a question about a table: plans, explains, streams or counts rows, cuts it into pieces, restores data."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from datetime import UTC
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, SupportsIndex, TypeVar, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from coldparquet.archive.restore import cost_of_restores
from coldparquet.concurrency import gather_or_cancel
from coldparquet.decode.arrow import arrow_schema, concatenate, known_schema
from coldparquet.decode.result_text import options_with_views, options_without_views
from coldparquet.errors import ArchivedObjectError, InvalidInputError, UnsupportedError
from coldparquet.lazy_names import ShownInNotebooks
from coldparquet.plan.budget import Budget, has_budget
from coldparquet.plan.columns import select_columns
from coldparquet.plan.cost import prices_of
from coldparquet.records import replace
from coldparquet.scan.admission import admit, archived_objects, restore_objects
from coldparquet.scan.ahead import ReadsAhead
from coldparquet.scan.answers import count_nulls, count_rows, find_extremes, has_rows
from coldparquet.scan.model import told_of_older_columns
from coldparquet.scan.newest import find_time, read_last_rows, read_latest_rows, read_top_rows
from coldparquet.scan.planner import PlannedOnce
from coldparquet.scan.requests import for_new_connections
from coldparquet.scan.stats import ScanActivity, request_dollars, scan_statistics
from coldparquet.scan.stream import BatchStream
from coldparquet.storage.log import Ledger

if TYPE_CHECKING:
    import os
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Executor
    from pathlib import Path

    import pandas as pd
    import polars as pl

    from coldparquet.archive.objects import ArchivedObject
    from coldparquet.archive.restore import RestoreProgress, RestoreTicket
    from coldparquet.options import ReadOptions, RestoreTerms
    from coldparquet.pieces.read import ScanPieces
    from coldparquet.plan.columns import TableColumn
    from coldparquet.plan.model import ReadPlan
    from coldparquet.scan.answers import Extreme
    from coldparquet.scan.model import Question, RowPlan
    from coldparquet.scan.stats import ScanStatistics
    from coldparquet.storage.log import RequestRecord
    from coldparquet.telemetry import Attributes


_NO_KEYS = frozenset({"list", "parquet", "float32", "float64"})
"""Arrow types that cannot be keys: NaN and the two zeros do not equal values that look the same."""

_VALUE_OF_NAT = -(1 << 63)
_STEPS_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def row_limit(count: object, name: str) -> int:
    """Accept any integer, also numpy's, as a number of rows.

    Raises:
        InvalidInputError: It is not a whole number, or negative.
    """
    # True counts as 1 in Python, but limit=True is surely a mistake.
    if isinstance(count, bool) or not isinstance(count, SupportsIndex) or count.__index__() < 0:
        raise InvalidInputError(f"{name} is {count!r}; it must be a whole number, 0 or more")
    return count.__index__()


def python_value(scalar: Any, column: str) -> Any:
    """Return an Arrow scalar as a Python object.

    Raises:
        UnsupportedError: Python has no such object (kind ``NoPythonValue``).
    """
    try:
        return _python_object(scalar)
    except (ValueError, OverflowError, ZoneInfoNotFoundError) as error:
        raise UnsupportedError(
            f"Python has no object for {scalar!r} of column {column!r}; min_max({column!r}) returns it as Arrow has it",
            kind="NoPythonValue",
            column=column,
        ) from error


def _python_object(scalar: Any) -> Any:
    type_ = scalar.type
    if pa.types.is_timestamp(type_) and scalar.value == _VALUE_OF_NAT:
        raise OverflowError("pandas takes the least number for NaT, which is no time")
    if pa.types.is_time(type_) and scalar.is_valid and not 0 <= scalar.value < _STEPS_PER_DAY[type_.unit]:
        raise OverflowError("Arrow makes another time of what lies outside of a day")
    if not pa.types.is_timestamp(type_) or type_.tz is None or type_.unit == "ns":
        return scalar.as_py()
    # pyarrow imports pandas for times with a zone, even if it does not use it. That takes longer than most questions.
    zone = UTC if type_.tz == "UTC" else ZoneInfo(type_.tz)  # not every machine has a time zone database
    without_zone = pa.repeat(scalar, 1).view(pa.timestamp(type_.unit))[0].as_py()
    return None if without_zone is None else without_zone.replace(tzinfo=UTC).astimezone(zone)


def _is_watched() -> bool:
    """Tell whether a person waits who can be shown something."""
    if not hasattr(sys, "ps1") or find_spec("rich") is None:
        return False
    if "ipykernel" in sys.modules and find_spec("ipywidgets") is not None:  # rich draws with it
        return True
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # None, a program's own object, or closed
        return False


def _require(package: str) -> None:
    """Raise an error where a package is missing, before anything is fetched."""
    if find_spec(package) is None:
        raise UnsupportedError(
            f"to_{package}() needs the package {package}: pip install {package}; to_arrow() needs nothing more",
            kind="MissingPackage",
        )


async def _find_times(
    question: Question, executor: Executor, timestamp: TableColumn, wanted: tuple[Extreme, ...]
) -> list[Any]:
    """Find extremes of the designated timestamp, from both ends of the table."""
    return await gather_or_cancel(
        [find_time(question, executor, timestamp, ascending=extreme == "min") for extreme in wanted]
    )


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Scan(ShownInNotebooks):
    """An immutable question. Planning costs at most metadata requests; only reading fetches data.

    Made by :meth:`coldparquet.table.Table.scan`. It is planned once; reading it twice fetches the data twice.
    """

    question: Question
    executor: Executor
    schema: pa.Schema
    """Columns and Arrow types of the result."""
    ledger: Ledger = field(default_factory=Ledger, compare=False)
    """The costs of this scan; :attr:`stats` returns them."""
    _planned: PlannedOnce = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_planned", PlannedOnce(self.question, self.executor))

    def __repr__(self) -> str:
        columns = ", ".join(self.schema.names) or "no columns"
        where = "" if self.question.predicate_text is None else f" where {self.question.predicate_text}"
        return f"<Scan of {self.question.url}: {columns}{where}>"

    async def plan(self) -> ReadPlan:
        """Decide which bytes to read. No data byte is fetched.

        Requests: the metadata of the partitions that the predicate's time range leaves, 1 or 2 each, or up to 3 without
        a sidecar, all in parallel. With a limit and no predicate, only those of the first partitions, doubling until
        they have enough rows. None for partitions whose metadata is already known. For native partitions see
        :func:`coldparquet.scan.native.plan_native_rows`.

        Raises:
            NotFoundError: A partition, or a file of it, does not exist (any more).
            ObjectChangedError: A running database has changed a native partition meanwhile.
            FormatError: A sidecar, a footer or a native file is damaged, or of another state than the table.
            UnsupportedError: A partition has a column whose type does not convert to the table's, or is marked in a way
                that this version does not know.
        """
        with self.ledger.counting():
            return (await self._planned.get(is_read_here=False)).plan

    @property
    def stats(self) -> ScanStatistics:
        """What this scan has cost so far: requests, bytes, dollars, time, and how far that is from the physical limit.

        Only the requests of this scan count, not others to the same table. No request.
        """
        question = self.question
        return scan_statistics(self.ledger, speed=question.speed, prices=prices_of(question.options))

    @property
    def request_log(self) -> tuple[RequestRecord, ...]:
        """The newest requests that this scan sent, at most 16,384, with reason and timing."""
        return self.ledger.records

    def request_dollars(self, record: RequestRecord) -> float | None:
        """Return what one request of a log costs, at the prices of the options. No request.

        Args:
            record: From :attr:`request_log`, or from the table's.

        Returns:
            US dollars: 0 if the store, or this answer, is free; None if the object's storage class has no known price.
        """
        question = self.question
        if not question.snapshot.store.has_storage_classes:
            return 0.0
        return request_dollars(record, prices_of(question.options))

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write what this scan has done so far to a file: an HTML page, or a drawing of its requests. No request.

        The page needs nothing else and holds no secret. It shows the question, times, bytes and price, the requests over
        time, and the plan.

        Args:
            path: A local file that ends in ``.html`` or ``.svg``; one that exists is replaced.

        Returns:
            The path of the file.

        Raises:
            InvalidInputError: The name ends otherwise.
        """
        return cast("Path", import_module("coldparquet.report").write_report(self, path, plan=self._planned.made))

    def batches(self, *, slow_start: bool = False, progress: bool = False) -> BatchStream:
        """Stream the rows as record batches, in table order: ``async with scan.batches() as batches``.

        Requests: those of the plan, prefetched within ``options.memory_limit_bytes``.

        Args:
            slow_start: For consumers that may stop at any row: fetch the first row group alone, and with each that is
                consumed four times as many as before. Reading everything takes up to three more round trips.
            progress: Whether a bar on standard error, or in the notebook, shows how much of the plan has been fetched,
                after a second.

        Raises:
            UnsupportedError: ``progress`` is true, and rich is not installed (kind ``MissingPackage``).
        """
        return self._stream(self.question.options, slow_start=slow_start, progress=progress)

    def _stream(self, options: ReadOptions, *, slow_start: bool, progress: bool) -> BatchStream:
        """Stream the rows. The options may differ from those of the question in the form of text."""
        if progress and find_spec("rich") is None:
            raise UnsupportedError("progress=True needs the package rich: pip install rich", kind="MissingPackage")
        ahead = None if slow_start else ReadsAhead()
        return BatchStream(
            partial(self._admitted, ahead, options),
            ahead=ahead,
            store=self.question.snapshot.store,
            executor=self.executor,
            activity=self._activity("batches"),
            slow_start=slow_start,
            hint=self.question.hint,
            progress=progress,
        )

    async def pieces(
        self, most_pieces: int | None = None, *, target_bytes: int | None = None, exceeds_limit: bool = False
    ) -> ScanPieces:
        """Cut the scan into pieces for other processes, also on other machines; see :mod:`coldparquet.pieces`.

        Every obstacle to the scan is raised here: a budget that it exceeds, archived data, a partition that is gone.

        Requests: those of :meth:`plan`, and of :meth:`batches` before its first request for data. On stores without
        storage classes, 1 HEAD for each partition that several pieces read.

        Args:
            most_pieces: Largest number of pieces; None for as many as ``target_bytes`` gives.
            target_bytes: Approximate cost of each, as fetched plus decoded bytes; None for even shares of
                ``most_pieces`` or, without these, for 64 MiB.
            exceeds_limit: The caller cuts the rows of a scan with a limit, of which the pieces have as many or more.

        Raises:
            InvalidInputError: The scan has a limit, which parallel pieces cannot keep (kind ``LimitNotAllowed``), or a
                number is invalid.
        """
        if self.question.limit is not None and not exceeds_limit:
            raise InvalidInputError(
                "pieces are read side by side, and none knows how many rows the others have; make pieces of a scan without"
                " limit, and limit the rows where they come together, or say exceeds_limit=True",
                kind="LimitNotAllowed",
            )
        for name, value in (("most_pieces", most_pieces), ("target_bytes", target_bytes)):
            if value is not None and row_limit(value, name) == 0:
                raise InvalidInputError(f"{name} is 0; it must be at least 1, or None")
        from coldparquet.pieces.make import make_pieces  # noqa: PLC0415 - few scans are cut into pieces
        from coldparquet.pieces.read import ScanPieces  # noqa: PLC0415

        with self.ledger.counting():
            planned = await admit(for_new_connections(await self._planned.get(is_read_here=False)))
            pieces = await make_pieces(planned, self.executor, most_pieces=most_pieces, target_bytes=target_bytes)
        return ScanPieces(pieces=pieces, schema=self.schema, plan=planned.plan)

    async def to_arrow(self, *, progress: bool | None = None) -> pa.Table:
        """Read all rows into one table. Requests: those of the plan.

        Args:
            progress: Whether to show how much has been fetched, see :meth:`batches`; None for yes where a person waits, in
                a notebook or an interactive session on a terminal, and rich is installed.
        """
        return await self._rows(self.question.options, self.schema, progress=progress)

    async def to_pandas(self, /, *, progress: bool | None = None, **keywords: Any) -> pd.DataFrame:
        """Read all rows into a pandas data frame. Requests: those of the plan.

        Args:
            progress: As in :meth:`to_arrow`.
            keywords: Those of ``pyarrow.Table.to_pandas``, such as ``types_mapper=pandas.ArrowDtype``.

        Raises:
            UnsupportedError: pandas is not installed (kind ``MissingPackage``).
        """
        _require("pandas")
        table = await self.to_arrow(progress=progress)
        return await asyncio.to_thread(table.to_pandas, **keywords)

    async def to_polars(self, *, progress: bool | None = None) -> pl.DataFrame:
        """Read all rows into a Polars data frame; decimals of more than 38 digits become text. Requests: those of the plan.

        Args:
            progress: As in :meth:`to_arrow`.

        Raises:
            UnsupportedError: Polars is not installed (kind ``MissingPackage``).
        """
        _require("polars")
        import polars as pl  # noqa: PLC0415 - Polars is the caller's choice, not a dependency

        options = options_with_views(self.question.options)
        rows = await self._rows(options, arrow_schema(self.question.output_columns, options), progress=progress)
        return pl.DataFrame(rows.cast(known_schema(rows.schema)))

    async def _rows(self, options: ReadOptions, schema: pa.Schema, *, progress: bool | None) -> pa.Table:
        """Read all rows. The options may differ from those of the question in the form of text."""
        is_shown = _is_watched() if progress is None else progress
        async with self._stream(options, slow_start=False, progress=is_shown) as stream:
            batches = [batch async for batch in stream]
        return await asyncio.get_running_loop().run_in_executor(self.executor, concatenate, batches, schema)

    async def head(self, n: int) -> pa.Table:
        """Read the first rows, in table order. Requests: those of a scan with this limit."""
        limit = row_limit(n, "n")
        question = self.question
        return await replace(
            self, question=replace(question, limit=limit if question.limit is None else min(limit, question.limit))
        ).to_arrow()

    async def count(self) -> int:
        """Count the rows.

        Requests: only metadata if it decides; else also the predicate's columns of the undecided row groups. With a
        limit, counting stops once that many rows are certain.
        """
        row_count = await self._answer("count", count_rows)
        if self.question.hint is not None:
            self.question.hint.tell(row_count)
        return row_count

    async def any(self) -> bool:
        """Tell whether there is any row.

        Requests: only metadata if it proves one row; without a predicate that of the first partition. Else the
        predicate's columns of 1, 2, 4 ... undecided row groups, until a row matches.
        """
        return await self._answer("any", has_rows)

    async def null_count(self, column: str) -> int:
        """Count the rows in which a column is NULL.

        Requests: only metadata if it decides; else the column, and the predicate's, of the undecided row groups. With a
        limit, all rows.

        Args:
            column: Any column of the table.

        Raises:
            InvalidInputError: The column is unknown.
        """
        return await self._answer("null_count", count_nulls, self._column(column))

    async def min_max(self, column: str) -> pa.StructScalar:
        """Find the minimum and the maximum of a column, as ``pyarrow.compute.min_max`` does for the rows.

        NULL does not count, and NaN only if there is no other value. Text compares by its UTF-8 bytes.

        Requests: only metadata where that is exact, over any number of partitions. Else the column, and the predicate's
        columns, of row groups that metadata leaves undecided and whose bounds may beat the known values, the most
        promising ones first. In detail:

        * Metadata answers a row group if every row matches and its statistics are values of the column:
          ``coldparquet.plan.answers`` says when. It never answers for BOOLEAN, BINARY and wide decimals, for columns
          whose type was changed, for text of files that QuestDB did not write, nor for native partitions.
        * The designated timestamp is searched from both ends of the table, see :meth:`first_timestamp`.
        * With a limit, all rows are read.

        Args:
            column: Any column of the table.

        Returns: A struct of ``min`` and ``max``, both of the column's type, text as plain strings; both null without a
            value.

        Raises:
            InvalidInputError: The column is unknown.
            UnsupportedError: Its values have no order: arrays, LONG128 and LONG256 (kind ``UnsupportedComparison``).
        """
        found = await self._extremes(column, ("min", "max"))
        arrays = [pa.repeat(value, 1) for value in found]
        pair: pa.StructScalar = pa.StructArray.from_arrays(arrays, names=["min", "max"])[0]
        return pair

    async def min(self, column: str) -> Any:
        """Find the smallest value of a column as a Python object, None if there is none.

        Requests, arguments and errors: those of :meth:`min_max`, which returns every value unchanged. Times become
        ``datetime``, those in nanoseconds ``pandas.Timestamp``.

        Raises:
            UnsupportedError: Python has no such object (kind ``NoPythonValue``): years after 9999, the least nanosecond
                of 64 bits, nanoseconds without pandas, or times of day outside of a day.
        """
        [least] = await self._extremes(column, ("min",))
        return python_value(least, column)

    async def max(self, column: str) -> Any:
        """Find the largest value of a column as a Python object, None if there is none. See :meth:`min`."""
        [greatest] = await self._extremes(column, ("max",))
        return python_value(greatest, column)

    async def first_timestamp(self) -> Any:
        """Find the smallest designated timestamp, as ``datetime`` or ``pandas.Timestamp``; None without any row.

        Requests: the metadata of the oldest partition with matching rows, found in steps of 1, 2, 4 ... partitions. No
        data if metadata decides which rows match; for a native partition one value. Else the timestamp, and the
        predicate's columns, of 1, 2, 4 ... row groups that may hold it.

        Raises:
            InvalidInputError: The table has no designated timestamp (kind ``NoDesignatedTimestamp``).
        """
        return await self.min(self._timestamp("first_timestamp").name)

    async def last_timestamp(self) -> Any:
        """Find the largest designated timestamp; see :meth:`first_timestamp`."""
        return await self.max(self._timestamp("last_timestamp").name)

    async def tail(self, n: int) -> pa.Table:
        """Read the last rows, in table order.

        Requests: the metadata of the newest partition, and of twice as many each time as long as rows are missing.
        Data: if metadata decides which rows match, one round trip for the pages of the last rows, or for their row
        groups if a page index does not pay. Else 1, 2, 4 ... row groups from the end.

        Args:
            n: Most rows of the result.

        Raises:
            InvalidInputError: ``n`` is negative, or the scan has a limit (kind ``LimitNotAllowed``).
        """
        count = row_limit(n, "n")
        self._refuse_limit("tail")
        if count == 0:
            return self.schema.empty_table()
        return await self._answer("tail", read_last_rows, count, self.schema)

    async def top_k(self, n: int, *, ascending: bool = False) -> pa.Table:
        """Read the newest rows by the designated timestamp, newest first, or the oldest ones, oldest first.

        Among equal timestamps, table order decides: of the newest rows, later ones win and come first.

        Requests: as :meth:`tail`, with row groups in the order of their timestamps.

        Args:
            n: Most rows of the result.
            ascending: Whether the oldest rows are wanted.

        Raises:
            InvalidInputError: ``n`` is negative, the scan has a limit (kind ``LimitNotAllowed``), or the table has no
                designated timestamp (kind ``NoDesignatedTimestamp``).
        """
        count = row_limit(n, "n")
        self._refuse_limit("top_k")
        timestamp = self._timestamp("top_k")
        if count == 0:
            return self.schema.empty_table()
        return await self._answer("top_k", read_top_rows, count, self.schema, timestamp=timestamp, ascending=ascending)

    async def latest_by(self, *columns: str) -> pa.Table:
        """Read the newest row of each key, as QuestDB's ``LATEST ON timestamp PARTITION BY columns`` does.

        Only rows that satisfy the predicate count; NULL is a key. Among a key's rows with the same timestamp, the last
        one in table order wins. The result is in timestamp order; rows of equal timestamps are in table order.

        Requests: the metadata of the newest partition, then of twice as many and so on. Data: keys, timestamp and
        predicate columns of 1, 2, 4 ... row groups, newest first, except those that cannot hold another key. Then, if
        the result has other columns, one round trip for all columns of the row groups that hold a row of it. For one
        key column, three things can prove that there is no other key: its bounds (``plan/answers.py``), the number
        of the table's symbols, or a predicate that names the keys. With several columns the keys of all row groups are
        read.

        Args:
            columns: The key: at least one column of the table.

        Raises:
            InvalidInputError: No column is named, one is unknown, the scan has a limit (kind ``LimitNotAllowed``), or
                the table has no designated timestamp (kind ``NoDesignatedTimestamp``).
            UnsupportedError: A column is of floating-point numbers or arrays (kind ``UnsupportedKey``).
        """
        self._refuse_limit("latest_by")
        timestamp = self._timestamp("latest_by")
        keys = tuple(dict.fromkeys(self._column(name) for name in columns))
        if not keys:
            raise InvalidInputError("latest_by needs at least one column: latest_by('symbol')")
        for key in keys:
            if key.readable_type.arrow.name in _NO_KEYS:
                raise UnsupportedError(
                    f"column {key.name!r} is {key.readable_type.name}, which latest_by does not take as a key",
                    kind="UnsupportedKey",
                    column=key.name,
                    type=key.readable_type.name,
                )
        return await self._answer("latest_by", read_latest_rows, self.schema, keys=keys, timestamp=timestamp)

    async def archived(self) -> tuple[ArchivedObject, ...]:
        """Find the data objects that need a restore before the rows can be read; none on stores without archives.

        Requests: those of :meth:`plan`, and 1 for each object that is not known yet. Restores nothing.
        """
        return (await self._find_archived())[0]

    async def restore(
        self, terms: RestoreTerms | None = None, *, on_progress: Callable[[RestoreProgress], None] | None = None
    ) -> RestoreTicket:
        """Request the restore of everything that needs one before the rows can be read. Costs money.

        Asking again is free for restores in progress. Archived partitions without a sidecar come first, for nothing can
        be planned without them: call restore again for the rest once they are readable.

        Requests: those of :meth:`archived`, and 1 for each object that is not being restored already.

        Args:
            terms: Tier, days, and whether to wait until completion; None uses those of the options.
            on_progress: While waiting, called after every round of HEADs.

        Returns:
            The requested restores. The ticket can be kept in a file, and another process can wait for it.

        Raises:
            UnsupportedError: Objects in DEEP_ARCHIVE cannot be restored in tier ``Expedited`` (kind ``NoSuchTier``).
            BudgetExceededError: The restore and the read after it cost more than the options allow; no restore was
                requested.
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
        """Find the archived objects, and plan the read that needs them; None if planning itself needs them."""
        # Regardless of the options about archived partitions: none is skipped, none restored.
        options = replace(self.question.options, archived="refuse", check_storage_classes=True)
        once = PlannedOnce(replace(self.question, options=options), self.executor)
        try:
            with self.ledger.counting():
                planned = await once.get()
                return await archived_objects(planned), planned.plan
        except ArchivedObjectError as error:  # without a sidecar, even the plan needs the archived objects
            objects = error.details.get("objects")
            if objects is None:
                raise
            return tuple(objects), None

    async def _admitted(self, ahead: ReadsAhead | None, options: ReadOptions) -> RowPlan:
        planned = await admit(await self._planned.get(ahead=ahead))
        return replace(planned, question=replace(planned.question, options=options))

    async def _extremes(self, name: str, wanted: tuple[Extreme, ...]) -> list[Any]:
        """Find the wanted extremes, each as an Arrow scalar."""
        column = self._column(name)
        snapshot = self.question.snapshot
        # A column that the user named may be NULL, and its files may be in any order.
        is_in_order = column.index == snapshot.designated_timestamp and self.question.options.timestamp is None
        if self.question.limit is not None or not is_in_order:
            return await self._answer("min_max", find_extremes, column, wanted)
        return await self._answer("min_max", _find_times, column, wanted)

    async def _answer(
        self,
        method: str,
        find: Callable[Concatenate[Question, Executor, Arguments], Awaitable[Result]],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Result:
        """Answer with a budget of its own, which all waves of the answer share."""
        with self._activity(method).whole():
            question = replace(self.question, budget=Budget(), options=options_without_views(self.question.options))
            return await find(question, self.executor, *arguments, **options)

    def _activity(self, method: str) -> ScanActivity:
        question = self.question
        attributes: Attributes = {
            "coldparquet.table": question.url,
            "coldparquet.method": method,
            "coldparquet.columns": len(question.output_columns),
            "coldparquet.has_predicate": question.predicate is not None,
        }
        return ScanActivity(self.ledger, attributes)

    def _column(self, name: str) -> TableColumn:
        with told_of_older_columns(self.question.snapshot):
            [column] = select_columns(self.question.snapshot.columns, [name])
        return column

    def _timestamp(self, method: str) -> TableColumn:
        snapshot = self.question.snapshot
        if snapshot.designated_timestamp is None:
            raise InvalidInputError(
                f"{method} goes by the designated timestamp, and this table has none; name one with ReadOptions(timestamp='...'),"
                " or sort the rows that scan() returns",
                kind="NoDesignatedTimestamp",
                path=self.question.url,
            )
        return snapshot.columns[snapshot.designated_timestamp]

    def _refuse_limit(self, method: str) -> None:
        if self.question.limit is not None:
            raise InvalidInputError(
                f"{method} takes rows from the end of the table, but a scan with a limit has only its first ones; ask"
                f" {method} of a scan without limit",
                kind="LimitNotAllowed",
            )

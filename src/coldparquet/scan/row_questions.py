"""Single questions about the rows of a scan: how many, the extremes, the newest ones; from metadata where that decides."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC
from typing import TYPE_CHECKING, Any, SupportsIndex
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import InvalidInputError, UnsupportedError
from coldparquet.plan.budgets import Budget
from coldparquet.plan.projection import select_columns
from coldparquet.scanning.latest_rows import read_latest_rows
from coldparquet.scanning.metadata_answers import count_nulls, count_rows, find_extremes, has_rows
from coldparquet.scanning.newest_rows import find_time, read_last_rows, read_top_rows
from coldparquet.scanning.question import told_of_older_columns
from coldparquet.scanning.scan_activity import ScanActivity
from coldparquet.storage.wrappers.ledger import Ledger

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from coldparquet.plan.projection import TableColumn
    from coldparquet.scanning.metadata_answers import Extreme
    from coldparquet.scanning.question import Question
    from coldparquet.telemetry import Attributes

_NO_KEYS = frozenset({"list", "float32", "float64"})
"""Arrow types that are no keys: NaN and the two zeros are not equal to what they look like."""

_VALUE_OF_NAT = -(1 << 63)
_STEPS_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RowQuestions:
    """What :class:`coldparquet.scan.Scan` answers without streaming its rows. None of it needs the plan of the whole scan."""

    question: Question
    executor: Executor
    schema: pa.Schema
    """Columns and Arrow types of the result."""
    ledger: Ledger = field(default_factory=Ledger, compare=False)
    """Sums up what this scan costs; :attr:`coldparquet.scan.Scan.stats` tells it."""

    async def count(self) -> int:
        """Count the rows.

        Requests: metadata alone where it decides; else only the predicate's columns of the undecided row groups; with a limit
        of no more of them than it takes to know that there are so many rows.
        """
        with self._activity("count").whole():
            return await count_rows(self._asked(), self.executor)

    async def any(self) -> bool:
        """Tell whether there is any row.

        Requests: metadata alone where it is certain of one row; without a predicate that of the first partition. Else the
        predicate's columns of 1, 2, 4 ... undecided row groups, until a row matches.
        """
        with self._activity("any").whole():
            return await has_rows(self._asked(), self.executor)

    async def null_count(self, column: str) -> int:
        """Count the rows in which a column is NULL.

        Requests: metadata alone where it decides; else the column, and the predicate's, of the undecided row groups. With
        a limit, all of the rows.

        Args:
            column: Any column of the table.

        Raises:
            InvalidInputError: The column is unknown.
        """
        chosen = self._column(column)
        with self._activity("null_count").whole():
            return await count_nulls(self._asked(), self.executor, chosen)

    async def min_max(self, column: str) -> pa.StructScalar:
        """Find the smallest and the largest value of a column: what ``pyarrow.compute.min_max`` says of the rows.

        NULL does not count, and NaN only where there is nothing else. Text compares by its UTF-8 bytes.

        Requests: metadata alone where that is exact, over any number of partitions. Else the column, and the predicate's
        columns, of the row groups that metadata leaves undecided and whose bounds may beat the values known, the most
        promising ones first. In detail:

        * Metadata answers a row group of which every row matches, and whose statistics are values of the column:
          ``coldparquet.plan.exact_bounds`` says when. It never answers for BOOLEAN, BINARY and wide decimals, for columns
          whose type was changed, for text of files that QuestDB did not write, nor for native partitions.
        * The designated timestamp is looked for from both ends of the table, see :meth:`first_timestamp`.
        * With a limit, all of the rows are read.

        Args:
            column: Any column of the table.

        Returns:
            A struct of ``min`` and ``max``, both of the column's type, text as plain strings; both null without a value.

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

        Requests, arguments and errors: those of :meth:`min_max`, which gives every value as it is. Times become
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

        Requests: the metadata of the oldest partition with matching rows, going through 1, 2, 4 ... of them. No data where
        metadata decides which rows match; of a native partition one value. Else the timestamp, and the predicate's
        columns, of 1, 2, 4 ... row groups that may hold it.

        Raises:
            InvalidInputError: The table has no designated timestamp (kind ``NoDesignatedTimestamp``).
        """
        return await self.min(self._timestamp("first_timestamp").name)

    async def last_timestamp(self) -> Any:
        """Find the largest designated timestamp; see :meth:`first_timestamp`."""
        return await self.max(self._timestamp("last_timestamp").name)

    async def tail(self, n: int) -> pa.Table:
        """Read the last rows, in table order.

        Requests: the metadata of the newest partition, and of twice as many each time as long as rows are missing. Data:
        where metadata decides which rows match, the pages of the last rows, or their row groups where no page index pays, in
        one round trip; else of 1, 2, 4 ... row groups from the end on.

        Args:
            n: At most so many rows.

        Raises:
            InvalidInputError: ``n`` is negative, or the scan has a limit (kind ``LimitNotAllowed``).
        """
        count = row_limit(n, "n")
        self._refuse_limit("tail")
        if count == 0:
            return self.schema.empty_table()
        with self._activity("tail").whole():
            return await read_last_rows(self._asked(), self.executor, count, self.schema)

    async def top_k(self, n: int, *, ascending: bool = False) -> pa.Table:
        """Read the newest rows by the designated timestamp, newest first, or the oldest ones, oldest first.

        Where timestamps are equal, table order decides: of the newest rows, later ones are taken and come first.

        Requests: as :meth:`tail`, with row groups in the order of their timestamps.

        Args:
            n: At most so many rows.
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
        with self._activity("top_k").whole():
            return await read_top_rows(
                self._asked(), self.executor, count, self.schema, timestamp=timestamp, ascending=ascending
            )

    async def latest_by(self, *columns: str) -> pa.Table:
        """Read the newest row of each key, as QuestDB's ``LATEST ON timestamp PARTITION BY columns`` does.

        Of the rows that satisfy the predicate; NULL is a key. Of a key's rows with the same timestamp the last one in table
        order is taken. The result is in the order of the timestamps and, for equal ones, of the table.

        Requests: the metadata of the newest partition, then of twice as many and so on. Data: keys, timestamp and predicate
        columns of 1, 2, 4 ... row groups from the newest on, but for those that cannot hold another key; then, if the result
        has other columns, all columns of the row groups that hold a row of it, in one round trip. One key column is proved
        to hold no other key by its bounds (``plan/key_proofs.py``), by the number of the table's symbols, or by a
        predicate that names the keys; with several columns the keys of all row groups are read.

        Args:
            columns: The key: at least one column of the table.

        Raises:
            InvalidInputError: No column is named, one is unknown, the scan has a limit (kind ``LimitNotAllowed``), or the
                table has no designated timestamp (kind ``NoDesignatedTimestamp``).
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
        with self._activity("latest_by").whole():
            return await read_latest_rows(self._asked(), self.executor, self.schema, keys=keys, timestamp=timestamp)

    async def _extremes(self, name: str, wanted: tuple[Extreme, ...]) -> list[Any]:
        """Find what is wanted, each as an Arrow scalar."""
        question, column = self._asked(), self._column(name)
        with self._activity("min_max").whole():
            if question.limit is not None or column.index != question.snapshot.designated_timestamp:
                return await find_extremes(question, self.executor, column, wanted)
            return await gather_or_cancel(
                [find_time(question, self.executor, column, ascending=extreme == "min") for extreme in wanted]
            )

    def _asked(self) -> Question:
        """Return the question with a budget of its own, which all waves of reading that answer it share."""
        return replace(self.question, budget=Budget())

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
                f"{method} goes by the designated timestamp, and this table has none; sort the rows that scan() returns",
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


def row_limit(count: object, name: str) -> int:
    """Take any integer, numpy's too, as a number of rows.

    Raises:
        InvalidInputError: It is not a whole number, or negative.
    """
    # True counts as 1 in Python, but whoever writes limit=True means something else.
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
    # pyarrow imports pandas for times with a zone, which takes longer than most questions, even where it then has no use
    # for it.
    zone = UTC if type_.tz == "UTC" else ZoneInfo(type_.tz)  # not every machine has a database of zones
    without_zone = pa.repeat(scalar, 1).view(pa.timestamp(type_.unit))[0].as_py()
    return None if without_zone is None else without_zone.replace(tzinfo=UTC).astimezone(zone)

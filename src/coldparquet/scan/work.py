"""Turns one row group of a stream from requests into rows, in one stage or in two.

In two stages (late materialisation) the predicate's columns are fetched and decoded first. The others are fetched for
the rows that remain, or not at all. Both stages run in parallel with those of other row groups. Decoding blocks.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from msgspec import Struct, field

from coldparquet.decode.arrow import arrow_schema
from coldparquet.decode.dictionaries import shorten_dictionaries
from coldparquet.decode.filter import filter_rows, surviving_rows
from coldparquet.decode.read import decode_read, decoded_bytes
from coldparquet.decode.result_text import ResultText, expanded_if_small, most_expanded_bytes, text_to_views
from coldparquet.errors import InternalError, NotFoundError
from coldparquet.plan.budget import has_budget
from coldparquet.plan.reads import narrow_read
from coldparquet.plan.requests import plan_requests, shortened_to
from coldparquet.records import replace
from coldparquet.scan.arriving import PartitionFetches
from coldparquet.scan.known_symbols import symbol_columns
from coldparquet.scan.memory import Lease
from coldparquet.scan.missing import data_missing
from coldparquet.scan.requests import data_request

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from concurrent.futures import Executor, Future

    from coldparquet.options import Coalescing
    from coldparquet.plan.columns import TableColumn
    from coldparquet.plan.model import PlannedRequest, Read, ReadPlan
    from coldparquet.scan.ahead import ReadsAhead
    from coldparquet.scan.arriving import ArrivingRead, Fetch
    from coldparquet.scan.memory import DecodedSizes, Quota
    from coldparquet.scan.model import RowQuestion
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.log import Ledger
    from coldparquet.storage.requests import FetchedRange


class Decoded(Struct, frozen=True, kw_only=True):
    """The result of decoding."""

    rows: pa.Table
    """Rows that satisfy the predicate."""
    decoded_bytes: int
    """Decoded size before the predicate was applied."""


class FirstStage(Decoded, frozen=True, kw_only=True):
    """The result of decoding the predicate's columns."""

    narrowed: Read | None
    """What to fetch now: the deferred columns of the remaining rows. None if no row remains."""
    requests: tuple[PlannedRequest, ...]
    """The requests for it."""


class ReadStages(Struct, frozen=True, kw_only=True):
    """How one read becomes rows of the result."""

    read: Read
    question: RowQuestion
    late_coalescing: Coalescing
    """How the ranges of deferred columns become requests."""
    first_columns: tuple[TableColumn, ...]
    """What is decoded first: all columns, or the predicate's columns and what is decoded with them."""
    deferred_columns: tuple[TableColumn, ...]
    """Columns of the result decoded only for the remaining rows; none if all are decoded at once."""
    text: ResultText

    @classmethod
    def of(cls, read: Read, question: RowQuestion, late_coalescing: Coalescing, text: ResultText) -> ReadStages:
        """Divide the columns of a read between the two stages."""
        later = () if read.deferred is None else read.deferred.columns
        deferred = tuple(column for column in question.output_columns if read.data.places[column.index] in later)
        needed = question.output_columns if read.all_rows_match else question.needed_columns
        return cls(
            read=read,
            question=question,
            late_coalescing=late_coalescing,
            first_columns=tuple(column for column in needed if column not in deferred),
            deferred_columns=deferred,
            text=text,
        )

    def decode(self, arriving: ArrivingRead) -> Decoded:
        """Decode all columns and keep the rows that satisfy the predicate."""
        question = self.question
        # The buffer is passed on and not held here: its memory is freed before the predicate is applied.
        rows = self._decoded(self.read, arriving, self.first_columns)
        decoded_bytes = rows.get_total_buffer_size()
        if question.predicate is not None and not self.read.all_rows_match:
            rows = filter_rows(question.predicate, rows)
        rows = self._delivered(rows.select([column.name for column in question.output_columns]))
        return Decoded(rows=rows, decoded_bytes=max(decoded_bytes, rows.get_total_buffer_size()))

    def decode_first(self, arriving: ArrivingRead, part_bytes: int) -> FirstStage:
        """Decode the first stage's columns, apply the predicate, and plan the second stage for the remaining rows."""
        question = self.question
        if question.predicate is None:
            raise InternalError("columns were deferred without a predicate that they could wait for")
        decoded = self._decoded(self.read, arriving, self.first_columns)
        rows, positions = surviving_rows(question.predicate, decoded)
        if rows.num_rows == 0:
            return FirstStage(
                rows=self._no_rows(), decoded_bytes=decoded.get_total_buffer_size(), narrowed=None, requests=()
            )
        deferred = {column.name for column in self.deferred_columns}
        surviving = positions if self.read.selection is None else self.read.selection.rows_at(positions)
        narrowed = narrow_read(self.read, surviving, least_saving_bytes=max(self.late_coalescing.gap_bytes, 1))
        if narrowed.row_count != rows.num_rows:
            raise InternalError(f"{rows.num_rows} rows are left, but {narrowed.row_count} were planned to be read")
        requests = self._second_requests(narrowed, part_bytes)
        matching = f"{rows.num_rows:,} matching row{'' if rows.num_rows == 1 else 's'}"
        return FirstStage(
            rows=self._delivered(
                rows.select([column.name for column in question.output_columns if column.name not in deferred])
            ),
            decoded_bytes=decoded.get_total_buffer_size(),
            narrowed=narrowed,
            requests=tuple(replace(request, reason=f"{request.reason} ({matching})") for request in requests),
        )

    def _decoded(self, read: Read, arriving: ArrivingRead, columns: Sequence[TableColumn]) -> pa.Table:
        question = self.question
        return decode_read(read, arriving.take_buffer(), columns, question.options, symbols=question.symbols)

    def _second_requests(self, narrowed: Read, part_bytes: int) -> tuple[PlannedRequest, ...]:
        """Plan the requests of the second stage: if they are limited, never more than the plan has announced."""
        requests = plan_requests([[narrowed]], self.late_coalescing, part_bytes=part_bytes, stage=2)
        if self.read.deferred is None or not has_budget(self.question.options):
            return requests
        announced = plan_requests([[self.read.deferred]], self.late_coalescing, part_bytes=part_bytes, stage=2)
        return requests if len(requests) <= len(announced) else shortened_to(announced, narrowed)

    def decode_second(self, arriving: ArrivingRead, first: FirstStage) -> Decoded:
        """Decode the deferred columns of the remaining rows, and join them with the columns of the first stage."""
        if first.narrowed is None:
            raise InternalError("a second stage was begun although no row is left")
        rows = self._decoded(first.narrowed, arriving, self.deferred_columns)
        decoded_bytes, rows = rows.get_total_buffer_size(), self._delivered(rows)
        columns = {
            table.field(index).name: (table.field(index), table.column(index))
            for table in (first.rows, rows)
            for index in range(table.num_columns)
        }
        ordered = [columns[column.name] for column in self.question.output_columns]
        joined = pa.Table.from_arrays(
            [values for _, values in ordered], schema=pa.schema([described for described, _ in ordered])
        )
        return Decoded(rows=joined, decoded_bytes=max(decoded_bytes, rows.get_total_buffer_size()))

    def _delivered(self, rows: pa.Table) -> pa.Table:
        """Give text the form of the result: plain strings if they are not too large, views, or dictionaries of used values.

        Until here text stays dictionary-encoded: filters and checks see each string once, not in every row.
        Dictionaries that all row groups share are left whole.
        """
        options = self.question.options
        rows = expanded_if_small(rows, self.text.plain, most_expanded_bytes(options.memory_limit_bytes))
        is_shared = options.symbols == "global"
        untouched = {column.name for column in symbol_columns(self.question)} if is_shared else set()
        return text_to_views(shorten_dictionaries(rows, untouched=untouched), self.text.views)

    def _no_rows(self) -> pa.Table:
        return arrow_schema(self.question.output_columns, self.question.options).empty_table()


_RELEASE_EVERY_SHARE = 1 / 4
"""If memory is short, freed memory is returned to the system each time this part of the memory limit has been decoded.
That takes 2 ms, and the next allocation waits for clean pages."""

_OWN_BYTES = 4 * 1024
"""Overhead of a row group, however few rows it has: its tasks, and Arrow's objects for the decoded columns."""

Result = TypeVar("Result")
DecodedRows = TypeVar("DecodedRows", bound="Decoded")


class KeptShare:
    """Limits how much of a scan the caches keep: all of it or, if its end is unknown, its first part.

    A scan larger than the caches would evict everything else, and itself be evicted before it is repeated.

    Args:
        limit_bytes: Most bytes to keep.
        planned_bytes: What the scan will fetch; None if a limit stops it at an unknown place.
    """

    def __init__(self, limit_bytes: int, *, planned_bytes: int | None) -> None:
        self._left_bytes = limit_bytes if planned_bytes is None or planned_bytes <= limit_bytes else 0

    def takes(self, length_bytes: int) -> bool:
        """Tell whether an answer of this length may be kept, and count it."""
        self._left_bytes -= length_bytes
        return self._left_bytes >= 0


class StreamMeans(Struct, frozen=True, kw_only=True, eq=False):
    """What the row groups of one stream share."""

    question: RowQuestion
    store: ObjectStore
    executor: Executor
    fetched: Quota
    """Memory of bytes in flight and fetched. It has a quota of its own: neither the bytes of later row groups nor rows
    that are not consumed can then block the other."""
    decoded: Quota
    """Memory of rows that are being decoded or not yet consumed."""
    decoders: Quota
    """Threads that decode."""
    sizes: DecodedSizes
    ledger: Ledger | None
    """Of the scan that reads the rows."""
    plan: ReadPlan
    """The plan in execution."""
    keeping: KeptShare
    """Which answers the caches may keep."""
    text: ResultText
    """The form of text in the result, even if decoding has left it dictionary-encoded."""
    ahead: ReadsAhead | None
    """Requests that were sent before the plan was confirmed."""
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    """Closing the stream cancels them and waits for them."""
    decoding: set[Future[Any]] = field(default_factory=set)
    """Work in threads. It cannot be interrupted, so closing the stream waits for it."""

    @property
    def is_short(self) -> bool:
        """Whether any claim waits for memory."""
        return self.fetched.is_short or self.decoded.is_short

    @property
    def release_every_bytes(self) -> int:
        """How much is decoded before freed memory is returned again."""
        return round(self.question.options.memory_limit_bytes * _RELEASE_EVERY_SHARE)

    def start(self, coroutine: Coroutine[object, object, Result]) -> asyncio.Task[Result]:
        """Run a coroutine as a task of the stream."""
        task = asyncio.create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def in_thread(self, function: Callable[..., Result], *arguments: object) -> Result:
        """Run a function in a thread of the table."""
        future = self.executor.submit(_timed, function, *arguments)
        self.decoding.add(future)
        future.add_done_callback(self.decoding.discard)
        result, took_s = await asyncio.wrap_future(future)
        if self.ledger is not None:
            self.ledger.totals.decode_s += took_s
        return result


class RowGroupWork:
    """One row group, from its start until its rows are consumed.

    Args:
        read: Its read in the plan.
        rank: Its position in consumption order.
        means: What it shares with others.
        fetches: The requests of the partition.
        position: Its position among the reads of the partition.
    """

    def __init__(
        self,
        read: Read,
        rank: int,
        means: StreamMeans,
        fetches: PartitionFetches,
        position: int,
    ) -> None:
        self.read = read
        self.rank = rank
        self.rows: asyncio.Future[pa.Table] = asyncio.get_running_loop().create_future()
        """The rows that satisfy the predicate, with the columns of the result."""
        self.fetched = Lease(means.fetched, rank=rank)
        """Its lease of memory for bytes."""
        self.decoded = Lease(means.decoded, rank=rank)
        """Its lease of memory for rows."""
        self._fetches = fetches
        self._position = position
        self._arriving: ArrivingRead | None = None
        """Its bytes; None until it has started."""
        self.has_begun = False
        self.is_dropped = False
        self._stages = ReadStages.of(
            read, means.question, means.plan.late_coalescings[read.partition_index], means.text
        )
        self._means = means
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def certain_rows(self) -> int:
        """Number of rows that it certainly contributes."""
        if self.rows.done():
            return 0 if self.rows.cancelled() or self.rows.exception() else self.rows.result().num_rows
        return self.read.row_count if self.read.all_rows_match else 0

    async def begin(self) -> None:
        """Send the requests as soon as there is memory for their answers. Return when all are in flight."""
        self.has_begun = True
        try:
            await self.fetched.take(_OWN_BYTES)
            if self.is_dropped:
                return
            self._arriving, fetches = self._fetches.join(self._position, self.fetched)
            self._start(self._carry_out(self._arriving))
            await self._send(fetches)
        except Exception as error:  # noqa: BLE001 - the consumer of the rows gets it
            self._fail(error)

    def drop(self) -> None:
        """Cancel everything in flight and release all memory: the rows are no longer wanted."""
        self.is_dropped = True
        for task in self._tasks:
            task.cancel()
        self._fetches.leave_out(self._position)
        self._give_memory_back()
        if not self.rows.cancel() and not self.rows.cancelled():
            self.rows.exception()  # marks the error as retrieved

    async def _carry_out(self, arriving: ArrivingRead) -> None:
        try:
            rows = await self._read_rows(arriving)
        except Exception as error:  # noqa: BLE001 - the consumer of the rows gets it
            self._fail(error)
            return
        self.rows.set_result(rows)

    async def _read_rows(self, arriving: ArrivingRead) -> pa.Table:
        stages = self._stages
        await arriving.complete()
        if not stages.deferred_columns:
            return (await self._decode(self.read, stages.decode, arriving)).rows
        first = await self._decode(self.read, stages.decode_first, arriving, self._means.plan.late_part_bytes)
        if first.narrowed is None:
            return first.rows
        fetches = PartitionFetches(first.requests, [first.narrowed], self._means.fetched)
        arriving, requests = fetches.join(0, self.fetched)
        try:
            await self._send(requests)
            await arriving.complete()
            second = await self._decode(first.narrowed, stages.decode_second, arriving, first)
        finally:
            arriving.drop()
        return second.rows

    async def _send(self, fetches: Sequence[Fetch]) -> None:
        """Send requests one after the other, as memory for their answers allows."""
        for fetch in fetches:
            await self.fetched.take(fetch.length_bytes)
            self._start(self._fetch(fetch))

    async def _fetch(self, fetch: Fetch) -> None:
        """Fetch one range and copy its parts to their places."""
        try:
            answer = await self._get(fetch.request)
            if self._means.ledger is not None:
                self._means.ledger.totals.asked_bytes += fetch.length_bytes
                self._means.ledger.totals.wanted_bytes += fetch.wanted_bytes
            self.fetched.hold(-fetch.length_bytes)
            fetch.distribute(answer.data)
        except Exception as error:  # noqa: BLE001 - the consumer of the rows gets it
            fetch.fail(error)

    async def _get(self, request: PlannedRequest) -> FetchedRange:
        data, means = self.read.data, self._means
        may_be_kept = means.keeping.takes(request.byte_range.length_bytes)
        sent = None if means.ahead is None else means.ahead.take(request)
        try:
            if sent is not None:
                return await sent
            return await means.store.get(data_request(data, request, rank=self.rank, may_be_kept=may_be_kept))
        except NotFoundError as error:
            raise data_missing(data, request.path) from error

    async def _decode(
        self,
        read: Read,
        function: Callable[..., DecodedRows],
        arriving: ArrivingRead,
        *arguments: object,
    ) -> DecodedRows:
        """Decode columns in a thread, as soon as memory allows; then hold memory for the result, not the bytes."""
        means = self._means
        estimated_bytes = decoded_bytes(read)
        await self._take_decoder(estimated_bytes)
        try:
            decoded = await means.in_thread(function, arriving, *arguments)
            arriving.drop()
            if means.is_short and means.sizes.have_grown(means.release_every_bytes):
                await means.in_thread(_release_unused)
        finally:
            means.decoders.hold(-1)
        means.sizes.learn(estimated_bytes=estimated_bytes, decoded_bytes=decoded.decoded_bytes)
        self.fetched.keep(0)
        self.decoded.keep(decoded.rows.get_total_buffer_size() + _OWN_BYTES)
        return decoded

    async def _take_decoder(self, estimated_bytes: int) -> None:
        """Wait for a thread, and for the memory that decoding takes by the latest estimate."""
        sizes, decoders = self._means.sizes, self._means.decoders
        held_bytes = 0
        while True:
            missing_bytes = sizes.working_bytes(estimated_bytes) - held_bytes
            if missing_bytes > 0:
                # Memory before the thread: a row group that waits for memory must not block a thread that earlier ranks
                # need.
                await self.decoded.take(missing_bytes)
                held_bytes += missing_bytes
            await decoders.take(1, rank=self.rank)
            if sizes.working_bytes(estimated_bytes) <= held_bytes:
                return
            decoders.hold(-1)

    def _start(self, coroutine: Coroutine[object, object, None]) -> None:
        self._tasks.append(self._means.start(coroutine))

    def _fail(self, error: Exception) -> None:
        self._give_memory_back()
        if not self.rows.done():
            self.rows.set_exception(error)
            self.rows.exception()  # marks the error as retrieved

    def _give_memory_back(self) -> None:
        if self._arriving is not None:
            self._arriving.drop()
        self.fetched.release()
        self.decoded.release()


def _timed(function: Callable[..., Result], *arguments: object) -> tuple[Result, float]:
    """Return what a function returns, and the seconds that it took."""
    started_s = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - started_s


def _release_unused() -> None:
    """Make Arrow and the C library return freed memory, which they would otherwise keep."""
    pa.default_memory_pool().release_unused()
    pa.system_memory_pool().release_unused()

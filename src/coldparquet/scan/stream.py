"""Streams the rows of a plan as record batches: prefetched, decoded in threads, delivered in order.

Row groups start in consumption order, each when there is memory for its bytes. They are decoded when there is memory
for the rows. Bytes in flight, fetched bytes and decoded rows not yet consumed stay within the memory limit, so a slow
consumer stops the fetching. Only what the consumer itself waits for proceeds regardless of the limit. The limit can
therefore be exceeded by what one row group needs, and never blocks.
"""

from __future__ import annotations

import asyncio
import atexit
import os
from collections import deque
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, Self
from weakref import WeakSet

from coldparquet.concurrency import background
from coldparquet.decode.arrow import to_batches
from coldparquet.decode.expansion import check_expanded_size
from coldparquet.decode.result_text import (
    ResultText,
    columns_to_expand,
    copied,
    expanded_table,
    first_expanded,
    most_expanded_bytes,
    text_bytes,
)
from coldparquet.errors import FormatError, InvalidInputError
from coldparquet.options import MIB
from coldparquet.plan.reads import join_small_reads
from coldparquet.scan.arriving import PartitionFetches
from coldparquet.scan.known_symbols import shared_dictionaries
from coldparquet.scan.memory import DecodedSizes, Quota
from coldparquet.scan.model import Question
from coldparquet.scan.work import KeptShare, RowGroupWork, StreamMeans
from coldparquet.storage.log import current_ledger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Generator, Iterator
    from concurrent.futures import Executor
    from types import TracebackType

    import pyarrow as pa

    from coldparquet.decode.dictionaries import SharedDictionaries
    from coldparquet.plan.model import ReadPlan
    from coldparquet.scan.ahead import ReadsAhead
    from coldparquet.scan.memory import Lease
    from coldparquet.scan.model import HintIfEmpty, RowPlan
    from coldparquet.scan.stats import ScanActivity
    from coldparquet.storage.cache import CachedStore


_UNCOUNTED_BYTES = 160 * MIB
"""Memory that cannot be counted: freed memory that the allocators of several threads have not yet returned, an answer
while it is copied, the working memory of decompression. 90 to 150 MB were measured, whatever the limit."""

_LEAST_SHARE = 3 / 8
"""Least part of the memory limit that is granted when the limit is small."""

_BEGUN_AT_ONCE = 64
"""Row groups that start before other tasks of the event loop run; each takes 0.1 ms."""

_SLOW_START_FACTOR = 4
"""Three more round trips reach 64 row groups; who stops early has fetched at most four times what was needed."""

_LARGEST_SHARE_COPIED = 1 / 8
"""The last batch of a row group is copied if it is at most this part of its rows: copying more costs more than it
frees."""


class BatchStream:
    """Record batches within a memory limit. Use it with ``async with``, which owns all of its tasks.

    Leaving the block early cancels what is in flight and leaves nothing behind. Made by
    :meth:`coldparquet.table_scan.Scan.batches`.

    Args:
        planning: Makes the plan when the stream is opened. The plan is executed as it is, whatever it costs.
        store: The store of the table.
        executor: Threads that decode.
        activity: What the stream is charged to while it is open; None if it is part of a larger activity.
        ahead: The requests that ``planning`` sends before it is done, which the stream takes or cancels; None if it sends none.
        slow_start: Whether to fetch the first row group alone, and with each that is consumed four times as many as
            before: the consumer may stop early.
        by_row_group: Whether each row group is decoded by itself: by default, small neighbouring ones are joined.
        hint: Is told at the end if there were no rows.
        progress: Whether to show how much has been fetched.
    """

    def __init__(  # noqa: PLR0913 - made by Scan.batches and by what answers from parts of a plan
        self,
        planning: Callable[[], Awaitable[RowPlan]],
        *,
        store: CachedStore,
        executor: Executor,
        activity: ScanActivity | None = None,
        ahead: ReadsAhead | None = None,
        slow_start: bool = False,
        by_row_group: bool = False,
        hint: HintIfEmpty | None = None,
        progress: bool = False,
    ) -> None:
        self._planning = planning
        self._hint = hint
        self._row_count = 0
        self._ahead = ahead
        self._slow_start = slow_start
        self._by_row_group = by_row_group
        self._shows_progress = progress
        self._activity = activity
        self._store = store
        self._executor = executor
        self._waiting: deque[RowGroupWork] = deque()
        """Row groups that have started and are not consumed, in consumption order, and the next one."""
        self._problem: Exception | None = None
        """Why there is no next one although some are left."""
        self._in_hand: Lease | None = None
        """Memory of the consumer's rows: it counts as held until the consumer has those of the next row group."""
        self._batches: deque[pa.RecordBatch] = deque()
        """What is left of the current row group."""
        self._rows_in_hand = 0
        """Rows of the current row group, including those already delivered."""
        self._encoded: list[int] = []
        """Its columns that are to become plain strings, batch by batch."""
        self._finished_row_groups = 0
        self._consumed_row_groups = 0
        self._progress = asyncio.Event()
        self._is_open = False
        self._is_damaged = False
        """Whether rows did not decode: then closing doubts the metadata, whatever the consumer does with the error."""
        self._consuming = asyncio.Lock()

    async def __aenter__(self) -> Self:
        if self._activity is None:
            await self._open()
            return self
        self._activity.begin()
        try:
            with self._activity.current():  # all tasks of the stream start inside, and inherit it
                await self._open()
        except BaseException as error:
            if self._ahead is not None:
                await self._ahead.cancel()
            self._activity.end(error=error)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close(error)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        batch = await self.next_batch()
        if batch is None:
            raise StopAsyncIteration
        return batch

    @property
    def plan(self) -> ReadPlan:
        """The plan in execution."""
        return self._planned.plan

    @property
    def most_held_bytes(self) -> int:
        """Upper bound of the memory that bytes in flight, fetched bytes and rows not yet consumed have taken so far."""
        of_ahead = 0 if self._ahead is None else self._ahead.length_bytes
        return self._means.fetched.most_held + self._means.decoded.most_held + of_ahead

    async def next_batch(self) -> pa.RecordBatch | None:
        """Return the next batch, None after the last one. Several consumers share the batches; each batch goes to one.

        Cancelling a call, for example by a timeout, loses nothing: the next call waits for the same rows.

        Raises:
            InvalidInputError: The stream is not open (``kind="StreamNotOpen"``), or its table was closed
                (``kind="TableClosed"``).
            ObjectChangedError: The Parquet file was replaced after planning.
            FormatError: A page does not decode.
            StorageError: A request failed.
        """
        async with self._consuming:
            while not self._batches:
                rows = await self._next_rows()
                if rows is None:
                    return None
                self._batches.extend(to_batches(rows, batch_rows=self._planned.question.options.batch_rows))
                self._rows_in_hand = rows.num_rows
                self._encoded = columns_to_expand(rows.schema, self._means.text.plain)
            if self._encoded:
                most_bytes = most_expanded_bytes(self._planned.question.options.memory_limit_bytes)
                batch, left = await self._means.in_thread(first_expanded, self._batches[0], self._encoded, most_bytes)
                self._check_open()
                self._batches.popleft()
                if left is not None:
                    self._batches.appendleft(left)
                return batch
            batch = self._batches.popleft()
            return batch if self._batches else self._last(batch)

    async def next_row_group(self) -> pa.Table | None:
        """Return the rows of the next row group, or joined row groups, possibly none; None after the last one.

        Raises what :meth:`next_batch` raises. Also BudgetExceededError if text is small while dictionary-encoded, but
        far larger than the memory limit as plain strings.
        """
        async with self._consuming:
            rows = await self._next_rows()
            if rows is None or not columns_to_expand(rows.schema, self._means.text.plain):
                return rows
            most_bytes = self._planned.question.options.memory_limit_bytes
            return await self._means.in_thread(_expanded_within, rows, self._means.text.plain, most_bytes)

    async def aclose(self) -> None:
        """Cancel everything in flight, wait until it has ended, and release all memory."""
        await self._close(None)

    async def _open(self) -> None:
        self._planned = await self._planning()
        question, plan = self._planned.question, self._planned.plan
        options = question.options
        self._rows_left = question.limit
        # With a limit and rows that may not match, the number of needed row groups is unknown. Few are prefetched at
        # first and twice as many each time.
        self._reads_all_ahead = question.limit is None or all(read.all_rows_match for read in plan.row_groups)
        limit_bytes = options.memory_limit_bytes
        granted_bytes = max(limit_bytes - _UNCOUNTED_BYTES, int(limit_bytes * _LEAST_SHARE))
        self._means = StreamMeans(
            question=question,
            store=self._store,
            executor=self._executor,
            fetched=Quota(granted_bytes // 2),
            decoded=Quota(granted_bytes - granted_bytes // 2),
            decoders=Quota(options.decode_threads or os.cpu_count() or 1),
            sizes=DecodedSizes(),
            ledger=current_ledger(),
            keeping=KeptShare(
                self._store.largest_scan_bytes,
                planned_bytes=plan.bytes_fetched if self._reads_all_ahead and not self._slow_start else None,
            ),
            plan=plan,
            text=ResultText.of(question.output_columns, options),
            ahead=self._ahead,
        )
        self._dictionaries = shared_dictionaries(question)
        self._sharing: asyncio.Task[pa.Table] | None = None
        """Gives the dictionaries of the next row group the numbers that all share, one row group after the other."""
        works = self._works()
        self._means.start(self._begin_all(self._make_next(works), works))
        if self._shows_progress and (ledger := self._means.ledger) is not None:
            from coldparquet.progress import show_fetched  # noqa: PLC0415 - few programs show it, and rich is an extra

            self._means.start(show_fetched(lambda: ledger.totals.fetched_bytes, planned_bytes=plan.bytes_fetched))
        self._is_open = True

    async def _close(self, error: BaseException | None) -> None:
        if not self._is_open:
            return
        self._is_open = False
        question = self._planned.question
        try:
            await self._drop_all()
            if self._is_damaged and isinstance(question, Question):
                await question.snapshot.doubt_metadata({read.data_path for read in self.plan.partitions})
        finally:
            if self._activity is not None:
                self._activity.end(error=error)

    async def _drop_all(self) -> None:
        tasks, decoding = self._means.tasks, self._means.decoding
        for work in self._waiting:
            work.drop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._ahead is not None:
            await self._ahead.cancel()
        # A running thread cannot be interrupted, so its decoding is awaited. Work that no thread has begun is
        # cancelled.
        await asyncio.gather(*map(asyncio.wrap_future, tuple(decoding)), return_exceptions=True)
        self._waiting.clear()
        self._batches.clear()
        self._in_hand = None

    async def _next_rows(self) -> pa.Table | None:
        self._check_open()
        if self._rows_left == 0:
            return None
        if not self._waiting:
            if self._problem is not None:
                raise self._problem
            if self._hint is not None:
                self._hint.tell(self._row_count)
            return None
        work = self._waiting[0]
        self._consumed_row_groups = work.rank
        self._progress.set()
        self._means.fetched.hurry(work.rank)
        self._means.decoded.hurry(work.rank)
        await asyncio.wait([work.rows])  # a cancelled caller must not take the rows from the next one
        self._check_open()  # another task may have closed the stream, which is no reason to cancel this one
        self._is_damaged |= isinstance(work.rows.exception(), FormatError)
        rows = work.rows.result()
        if self._dictionaries is not None:
            rows = await self._with_shared_dictionaries(self._dictionaries, rows)
        self._waiting.popleft()  # the caller holds them now, and frees them when it is done
        if self._in_hand is not None:
            self._in_hand.release()
        self._in_hand = work.decoded
        if self._rows_left is not None:
            # Only if necessary: slicing a table without columns invents rows.
            if rows.num_rows > self._rows_left:
                rows = rows.slice(0, self._rows_left)
            self._rows_left -= rows.num_rows
        self._row_count += rows.num_rows
        if self._means.ledger is not None:
            self._means.ledger.totals.row_count += rows.num_rows
        return rows

    async def _with_shared_dictionaries(self, dictionaries: SharedDictionaries, rows: pa.Table) -> pa.Table:
        if self._sharing is None:
            self._sharing = self._means.start(self._means.in_thread(dictionaries.share, rows))
        await asyncio.wait([self._sharing])  # a cancelled caller leaves it to the next one
        self._check_open()
        shared, self._sharing = self._sharing.result(), None
        return shared

    def _check_open(self) -> None:
        if not self._is_open:
            raise InvalidInputError(
                "the stream is not open: read it inside of 'async with scan.batches() as batches'", kind="StreamNotOpen"
            )

    def _last(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Copy the last batch of a row group if it is short: as a slice it would keep all other rows in memory."""
        is_short = batch.num_rows <= self._rows_in_hand * _LARGEST_SHARE_COPIED
        if is_short and batch.num_columns and self._in_hand is not None:
            batch = copied(batch)
            self._in_hand.keep(batch.get_total_buffer_size())
        return batch

    def _works(self) -> Iterator[RowGroupWork]:
        """Make the work of one row group after the other, each shortly before it starts."""
        question, plan = self._planned.question, self._planned.plan
        ranks = count()
        for index in range(len(plan.partitions)):
            if reads := plan.row_groups_of(index):
                # The size of the second stage is known when the first ends; the plan holds an upper bound of it.
                requests = [request for request in plan.requests_of(index) if request.stage == 1]
                if question.limit is None and not self._slow_start and not self._by_row_group:
                    reads = join_small_reads(reads, memory_limit_bytes=question.options.memory_limit_bytes)
                fetches = PartitionFetches(requests, reads, self._means.fetched)
                for position, read in enumerate(reads):
                    yield RowGroupWork(read, next(ranks), self._means, fetches, position)

    def _make_next(self, works: Iterator[RowGroupWork]) -> RowGroupWork | None:
        """Queue one more row group. There is always one queued, so that the consumer knows whether any is left."""
        try:
            work = next(works, None)
        except Exception as error:  # noqa: BLE001 - the consumer gets it, after the rows of earlier row groups
            self._problem = error
            return None
        if work is not None:
            work.rows.add_done_callback(self._note_finished)
            self._waiting.append(work)
        return work

    async def _begin_all(self, work: RowGroupWork | None, works: Iterator[RowGroupWork]) -> None:
        """Start one row group after the other, as memory allows."""
        while work is not None:
            while not self._may_begin(work.rank):
                self._progress.clear()
                await self._progress.wait()
            if work.is_dropped:
                return
            following = self._make_next(works)
            await work.begin()
            if following is not None and following.rank % _BEGUN_AT_ONCE == 0:
                await asyncio.sleep(0)  # if memory and answers are available, nothing else lets other tasks run
            work = following

    def _may_begin(self, rank: int) -> bool:
        if self._slow_start and rank >= _SLOW_START_FACTOR**self._consumed_row_groups:
            return False
        return self._reads_all_ahead or rank <= 2 * self._finished_row_groups

    def _note_finished(self, rows: asyncio.Future[pa.Table]) -> None:
        if not rows.cancelled():
            self._finished_row_groups += 1
            self._progress.set()
            self._drop_what_the_limit_leaves_out()

    def _drop_what_the_limit_leaves_out(self) -> None:
        """Cancel the row groups behind those that certainly have as many rows as the limit."""
        rows_left = self._rows_left
        if rows_left is None:
            return
        for position, work in enumerate(self._waiting):
            if not work.has_begun:
                return
            rows_left -= work.certain_rows
            if rows_left <= 0:
                left_out = [self._waiting.pop() for _ in range(len(self._waiting) - position - 1)]
                for dropped in reversed(left_out):  # bytes kept for all of them are freed with the first
                    dropped.drop()
                return


def _expanded_within(rows: pa.Table, plain: Collection[str], most_bytes: int) -> pa.Table:
    """Decode dictionary-encoded text of a row group to plain strings, unless they far exceed the limit."""
    check_expanded_size(rows.get_total_buffer_size(), text_bytes(rows, plain), most_bytes)
    return expanded_table(rows, plain)


class AsyncBatches(Protocol):
    """An asynchronous source of batches that is opened and closed."""

    async def __aenter__(self) -> Any:
        """Open it."""
        ...

    async def next_batch(self) -> pa.RecordBatch | None:
        """Return the next batch, None after the last one."""
        ...

    async def aclose(self) -> None:
        """Close it, and cancel what is in flight."""
        ...


_open_batches: WeakSet[Generator[pa.RecordBatch, None, None]] = WeakSet()


def blocking_batches(stream: AsyncBatches) -> Generator[pa.RecordBatch, None, None]:
    """Open a stream with the first batch. Python closes an unreferenced generator, and with it the stream."""
    batches = _batches_of(stream)
    _open_batches.add(batches)
    return batches


@atexit.register
def _close_batches() -> None:
    """Close what a program leaves open. Later, when Python drops its variables, no loop runs that could: it would wait forever."""
    for batches in tuple(_open_batches):
        with suppress(ValueError):  # another thread waits for a batch
            batches.close()


def _batches_of(stream: AsyncBatches) -> Generator[pa.RecordBatch, None, None]:
    background.run(stream.__aenter__())
    try:
        while (batch := background.run(stream.next_batch())) is not None:
            yield batch
    finally:
        background.finish(stream.aclose())

"""Running a job over lakes: plan, work, finish, report; the items in one event loop, or in several processes.

The engine of one machine: processes for work that computes, an event loop in each for work that waits.

Each process is a child with a pipe for items and one for results, both lines of JSON. An item is sent only when a place for
it is free, so that memory holds no more than the items themselves. A child that dies takes no other with it: what it had
under way is done once more, each piece alone in a process, and what kills that one as well is reported as failed.

One worker process of :class:`~coldparquet.pipelines.run.LocalEngine`: items come in as lines, results go out.

The first line says how to work; it holds the settings of the stores, which therefore stand in no list of processes. Each
further line is an item. The process ends when its standard input does, so that it never outlives who started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import ColdParquetError, InvalidInputError, StorageError
from coldparquet.options import StoreOptions, checked_store_options
from coldparquet.pipelines.model import (
    FEW_AT_ONCE,
    Access,
    Lake,
    LakeStores,
    PipelineReport,
    Spent,
    WorkItem,
    WorkResult,
    failure,
    job_as_dict,
    job_from_dict,
    reason_of,
)
from coldparquet.records import replace
from coldparquet.storage.log import Ledger
from coldparquet.storage.urls import shown_url
from coldparquet.text import visible_stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from coldparquet.pipelines.model import Engine, Job, WorkPlan


LONGEST_LINE_BYTES = 64 * 1024 * 1024
"""Of an item or a result as JSON: those of ``verify`` list all findings of a partition."""

READY_LINE = "ready"
"""What a worker process says first."""


SMALL_ITEMS_PER_WORKER = 64
"""Of work that waits for requests: a process takes most of a second to start, as long as so many small items take."""


def items_per_worker(job: Job) -> int:
    """Return how many items are worth a process, or a task of a cluster, of their own."""
    return SMALL_ITEMS_PER_WORKER if job.items_at_once > FEW_AT_ONCE else job.items_at_once


async def run_item(job: Job, item: WorkItem, stores: LakeStores) -> WorkResult:
    """Run one item; whatever it raises is its result, bugs included, so that one item never stops the others."""
    ledger = Ledger()
    try:
        with ledger.counting():
            result = await job.run(item, stores)
    except Exception as error:  # noqa: BLE001 - the report is where a failure belongs, with its kind
        result = failure(item, error)
    return replace(result, elapsed_s=ledger.elapsed_s, spent=Spent.of(ledger))


async def run_items(
    job: Job, items: Iterable[WorkItem], stores: LakeStores, on_result: Callable[[WorkResult], None]
) -> None:
    """Run items, as many at once as the job says; an item is taken only when there is room for it."""
    waiting = iter(items)

    async def work() -> None:
        for item in waiting:
            on_result(await run_item(job, item, stores))

    async with asyncio.TaskGroup() as group:
        for _ in range(job.items_at_once):
            group.create_task(work())


_PATIENCE_S = 60.0
"""How long a process that is told to end may take to cancel what it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEngine:
    """Runs items on this machine.

    Raises:
        InvalidInputError: There are to be less than 1 processes.
    """

    name: ClassVar[str] = "local"

    processes: int | None = None
    """Most worker processes; None means one per processor. For few small items this process does everything."""

    def __post_init__(self) -> None:
        if self.processes is not None and self.processes < 1:
            raise InvalidInputError(f"LocalEngine.processes is {self.processes}; it must be at least 1")

    async def execute(
        self, job: Job, items: Sequence[WorkItem], stores: LakeStores, on_result: Callable[[WorkResult], None]
    ) -> None:
        """Run all items, the costly ones first, so that no process is left with one of them in the end."""
        by_cost = sorted(items, key=_cost, reverse=True)
        worthwhile = -(-len(items) // items_per_worker(job))
        count = min(self.processes or os.cpu_count() or 1, worthwhile)
        if count == 1 and job.items_at_once > 1:
            await run_items(job, by_cost, stores, on_result)
        else:
            await _Run(job, by_cost, stores, on_result).execute(count)


def _cost(item: WorkItem) -> int:
    return item.cost_bytes


@dataclass(slots=True)
class _Run:
    """One run with child processes."""

    job: Job
    items: Sequence[WorkItem]
    stores: LakeStores
    on_result: Callable[[WorkResult], None]
    fresh: deque[int] = field(default_factory=deque)
    """Numbers of items that no child has begun."""
    suspects: deque[int] = field(default_factory=deque)
    """Numbers of items that were under way when a process died."""

    async def execute(self, process_count: int) -> None:
        self.fresh = deque(range(len(self.items)))
        await gather_or_cancel([self._keep_working() for _ in range(process_count)])

    async def _keep_working(self) -> None:
        """Feed one process after the other until nothing is left."""
        while self.fresh:
            async with _started_child(self.job, self.stores) as child:
                under_way = await self._feed(child)
            self.suspects += under_way
        while self.suspects:
            await self._retry(self.suspects.popleft())

    async def _feed(self, child: _Child) -> set[int]:
        """Give a child items until there are no more; return those that it had under way when it died."""
        under_way: set[int] = set()
        while True:
            while self.fresh and len(under_way) < self.job.items_at_once:
                number = self.fresh.popleft()
                under_way.add(number)
                await child.send(number, self.items[number])
            if not under_way:
                return under_way
            answer = await child.receive()
            if answer is None:
                return under_way
            number, result = answer
            under_way.discard(number)
            self.on_result(result)

    async def _retry(self, number: int) -> None:
        """Run an item alone in a process of its own."""
        item = self.items[number]
        async with _started_child(self.job, self.stores) as child:
            await child.send(number, item)
            answer = await child.receive()
            if answer is not None:
                self.on_result(answer[1])
                return
            fate = await child.fate()
        died = StorageError(
            f"the process that worked on it died twice ({fate}); if it was killed for its memory, give it less to do at"
            " once (fewer processes)",
            kind="WorkerDied",
        )
        self.on_result(failure(item, died))


@dataclass(slots=True)
class _Child:
    """A worker process."""

    process: asyncio.subprocess.Process

    async def send(self, number: int, item: WorkItem) -> None:
        """Hand over an item."""
        await self._write(f"{number} {item.to_json()}")

    async def receive(self) -> tuple[int, WorkResult] | None:
        """Wait for the next result; None once the process has died."""
        line = await self._read()
        if line is None:
            return None
        number, _, result = line.partition(" ")
        return int(number), WorkResult.from_json(result)

    async def prepare(self, terms: dict[str, Any]) -> None:
        """Say how to work, and wait until it is ready."""
        await self._write(json.dumps(terms))
        if await self._read() != READY_LINE:
            raise StorageError(
                "a worker process ended before it could work; its own message is on standard error",
                kind="WorkerNotStarted",
            )

    async def fate(self) -> str:
        """Say how the process ended."""
        code = await self.process.wait()
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    async def end(self) -> None:
        """Let the process end: it cancels what is under way, and removes its temporary files."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            await asyncio.wait_for(self.process.wait(), _PATIENCE_S)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()

    async def _write(self, line: str) -> None:
        if self.process.stdin is None:
            return
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the next read notices that it died
            self.process.stdin.write(f"{line}\n".encode())
            await self.process.stdin.drain()

    async def _read(self) -> str | None:
        if self.process.stdout is None:
            return None
        line = await self.process.stdout.readline()
        return line.decode().rstrip("\n") if line.endswith(b"\n") else None


@contextlib.asynccontextmanager
async def _started_child(job: Job, stores: LakeStores) -> AsyncIterator[_Child]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "coldparquet.pipelines.run",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LONGEST_LINE_BYTES,
        start_new_session=True,  # Ctrl-C is for this process, which ends its children in good order
    )
    child = _Child(process)
    try:
        await child.prepare({"job": job_as_dict(job), "access": stores.access.as_dict()})
        yield child
    finally:
        await child.end()


async def work(incoming: asyncio.StreamReader, outgoing: BinaryIO) -> None:
    """Do what the lines say until they end; who sends them decides how many items are under way at once.

    What is under way when they end is cancelled: its results are not wanted any more.
    """
    terms = json.loads(await incoming.readline())
    job = job_from_dict(terms["job"])
    access = Access.from_dict(terms["access"])
    _say(outgoing, READY_LINE)
    async with LakeStores(access) as stores, asyncio.TaskGroup() as group:
        under_way: set[asyncio.Task[None]] = set()
        while line := await incoming.readline():
            number, _, item = line.decode().partition(" ")
            task = group.create_task(_answer(job, number, WorkItem.from_json(item), stores, outgoing))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        for task in under_way:
            task.cancel()


async def _answer(job: Job, number: str, item: WorkItem, stores: LakeStores, outgoing: BinaryIO) -> None:
    result = await run_item(job, item, stores)
    _say(outgoing, f"{number} {result.to_json()}")


def _say(outgoing: BinaryIO, line: str) -> None:
    outgoing.write(f"{line}\n".encode())
    outgoing.flush()


async def _main() -> None:
    # Whatever a library prints must not get between the results.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as outgoing:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        incoming = asyncio.StreamReader(limit=LONGEST_LINE_BYTES)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(incoming), sys.stdin)
        await work(incoming, outgoing)


if __name__ == "__main__":
    sys.stderr = visible_stream(sys.stderr)  # the terminal of the command that started this process
    asyncio.run(_main())


async def run_pipeline(  # noqa: PLR0913 - what can be told is told by name
    job: Job,
    lakes: str | Sequence[str],
    *,
    engine: Engine | None = None,
    storage_options: Mapping[str, Any] | None = None,
    destination_options: Mapping[str, Any] | None = None,
    store_options: StoreOptions | None = None,
    on_progress: Callable[[WorkResult, int], None] | None = None,
) -> PipelineReport:
    """Run a job over all tables of one or more lakes.

    One bad lake, table or partition does not stop the run: what went wrong is in the report. What is left to do is found in the
    tables themselves, so that running it again does only that, also after a run was killed.

    Requests: those of finding the tables (:func:`~coldparquet.pipelines.lakes.search_tables`), of planning, of each item and of
    finishing: see the job.

    Args:
        job: What to do, such as ``IndexJob()``.
        lakes: URLs of tables, of directories of tables, or patterns of such: any fsspec URL, or a local path. See
            :meth:`~coldparquet.pipelines.model.Lake.parse`.
        engine: What runs the pieces of work; None is :class:`~coldparquet.pipelines.run.LocalEngine`, which uses all
            processors of this machine. On Spark: ``coldparquet.spark.SparkEngine(spark=spark)``.
        storage_options: Credentials, endpoint and so on of the lakes, as fsspec and s3fs take them. Workers get them from
            this process; leave credentials to the environment, a profile or a role where you can.
        destination_options: The same for the place that ``publish`` and ``convert`` write to.
        store_options: How patient to be with the stores, here and in workers.
        on_progress: Called with each result and the number of all pieces of work.

    Returns:
        What became of everything.

    Raises:
        InvalidInputError: A lake's URL cannot be meant, or there is none.
        NotFoundError: No lake has a table.
        AccessError: No lake can be listed.
        StorageError: The engine broke down.
    """
    started_s, ledger = time.monotonic(), Ledger()
    urls = [lakes] if isinstance(lakes, str) else list(lakes)
    if not urls:
        raise InvalidInputError("no lake was named; give the URL of a table, or of a directory of tables")
    parsed = [Lake.parse(url) for url in urls]
    engine = engine or LocalEngine()
    access = Access(
        storage_options=dict(storage_options or {}),
        destination_options=dict(destination_options or {}),
        store_options=checked_store_options(store_options),
    )
    async with LakeStores(access) as stores:
        with ledger.current():
            plan = await job.plan(parsed, stores)
        progress = _Progress(len(plan.items), on_progress)
        if plan.items:
            await engine.execute(job, plan.items, stores, progress.note)
        with ledger.current():
            finished = await _finish(job, progress.results, plan, stores)
    results = sorted((*plan.settled, *progress.results, *finished), key=_place)
    return PipelineReport(
        job=job.name,
        engine=engine.name,
        lakes=tuple(map(shown_url, urls)),
        is_dry_run=job.dry_run,
        results=tuple(results),
        notes=plan.notes,
        elapsed_s=time.monotonic() - started_s,
        spent=sum((result.spent for result in results), Spent.of(ledger)),
    )


async def _finish(
    job: Job, results: Sequence[WorkResult], plan: WorkPlan, stores: LakeStores
) -> tuple[WorkResult, ...]:
    """Finish; a failure is one more result, because what was done is done."""
    try:
        return await job.finish(results, plan, stores)
    except ColdParquetError as error:
        failed = WorkResult(
            table=plan.items[0].lake if plan.items else "",
            outcome="failed",
            action="failed to finish",
            reason=reason_of(error),
            kind=error.kind,
        )
        return (failed,)


@dataclass(slots=True)
class _Progress:
    """Collects results."""

    total: int
    on_progress: Callable[[WorkResult, int], None] | None
    results: list[WorkResult] = field(default_factory=list)

    def note(self, result: WorkResult) -> None:
        self.results.append(result)
        if self.on_progress is not None:
            self.on_progress(result, self.total)


def _place(result: WorkResult) -> tuple[str, str]:
    return result.table, result.partition

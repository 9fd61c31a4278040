"""The engine of one machine: processes for work that computes, an event loop in each for work that waits.

Each process is a child with a pipe for items and one for results, both lines of JSON. An item is sent only when a place for
it is free, so that memory holds no more than the items themselves. A child that dies takes nobody with it: what it had
under way is done once more, each piece alone in a process, and what kills that one as well is reported as failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import InvalidInputError, StorageError
from coldparquet.pipelines.item_runner import LONGEST_LINE_BYTES, READY_LINE, items_per_worker, run_items
from coldparquet.pipelines.jobs import job_as_dict
from coldparquet.pipelines.work import WorkResult, failure

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from coldparquet.pipelines.access import LakeStores
    from coldparquet.pipelines.job import Job
    from coldparquet.pipelines.work import WorkItem

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
    """Numbers of items that nobody has begun."""
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
        """Say how to work, and wait until it is ready.

        Raises:
            StorageError: It has ended at once (kind ``WorkerNotStarted``).
        """
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
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # whoever reads next notices that it died
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
        "coldparquet.pipelines.local_worker",
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

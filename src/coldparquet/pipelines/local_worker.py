"""One worker process of :class:`~coldparquet.pipelines.local_engine.LocalEngine`: items come in as lines, results go out.

The first line says how to work; it holds the settings of the stores, which therefore stand in no list of processes. Each
further line is an item. The process ends when its standard input does, so that it never outlives who started it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING, BinaryIO

from coldparquet.pipelines.access import Access, LakeStores
from coldparquet.pipelines.item_runner import LONGEST_LINE_BYTES, READY_LINE, run_item
from coldparquet.pipelines.jobs import job_from_dict
from coldparquet.pipelines.work import WorkItem
from coldparquet.visible_text import visible_stream

if TYPE_CHECKING:
    from coldparquet.pipelines.job import Job


async def work(incoming: asyncio.StreamReader, outgoing: BinaryIO) -> None:
    """Do what the lines say until they end; who sends them decides how many items are under way at once.

    What is under way when they end is cancelled: nobody wants to know any more.
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

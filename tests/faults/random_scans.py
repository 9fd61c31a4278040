"""Random scans of random tables over a store that goes wrong: exactly the right rows, or the right error, and nothing left.

    python -m tests.faults.random_scans --scans 10000

Each case belongs to a number and to the tables of a seed; a failure names both. To see one again:

    python -m tests.faults.random_scans --seed 4711 --first 17 --scans 1
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

import coldparquet as cp
from coldparquet.catalog import catalogue, objects
from coldparquet.records import replace
from tests.faults.fault_cases import TAIL_ROWS, FaultCase, random_case, verdict
from tests.faults.faulty_tables import Lane, make_tables, open_lane
from tests.support.leaks import TaskWatch, open_file_handles, settled_file_handles

# ruff: noqa: T201 - a command prints


TABLES, LANES = 12, 6
DEADLINE_S = 60.0
"""A scan that takes longer will never end: no case has more than a dozen stalls."""
GONE_S = 60.0
"""Time in which a closed table has closed its connections."""
SHOWN_REQUESTS = 12
SPARE_HANDLES = 3
"""File handles that may come and go: a poll of a selector, a file of a library that is loaded late."""


@dataclass(slots=True)
class Tally:
    """What came of the scans."""

    outcomes: Counter[str] = field(default_factory=Counter)
    """How often they ended how: ``rows``, ``cancelled``, or the class of the error."""
    faults: Counter[str] = field(default_factory=Counter)
    """Requests that met each fault."""
    failures: list[str] = field(default_factory=list)
    """What went wrong, for people."""

    @property
    def scans(self) -> int:
        """How many ended."""
        return sum(self.outcomes.values())


async def run_scans(numbers: range, *, seed: int, directory: Path) -> Tally:
    """Run cases, some at a time.

    Args:
        numbers: Which cases.
        seed: Of tables and cases.
        directory: An empty one.
    """
    (directory / "tables").mkdir()
    tables = await make_tables(directory / "tables", first_seed=seed, count=TABLES)
    tally, watch = Tally(), TaskWatch()
    waiting = iter(numbers)
    with ExitStack() as stack:
        for module in (catalogue, objects):  # so that catalogues of small tables count as well
            stack.enter_context(patch.object(module, "LEAST_SAVED_REQUESTS", 1))
        lanes = [
            stack.enter_context(open_lane(directory / "tables", directory / f"lane{number}"))
            for number in range(min(LANES, len(numbers)))
        ]
        async with asyncio.timeout(DEADLINE_S):  # loads what is loaded late
            await _ask(_without_faults(random_case(seed, tables)), lanes[0])
        handles = open_file_handles()

        async def work(lane: Lane) -> None:
            for number in waiting:
                await _run_case(
                    f"--seed {seed} --first {number}", random_case(seed + number, tables), lane, watch, tally
                )

        await asyncio.gather(*(work(lane) for lane in lanes))
    # The servers are closed by now, and with them the idle connections that this process keeps for the next scan.
    left = await settled_file_handles(len(handles) + SPARE_HANDLES)
    if len(left) > len(handles) + SPARE_HANDLES:
        tally.failures.append(f"{len(left) - len(handles)} file handles left: {Counter(left) - Counter(handles)}")
    return tally


async def _run_case(name: str, case: FaultCase, lane: Lane, watch: TaskWatch, tally: Tally) -> None:
    lane.server.reset()
    lane.server.set_faults(*case.rules)
    with watch.owned() as owner, lane.replacing(case.table, case.replacement, at_request=case.at_request):
        outcome = await _outcome(case, lane)
    leftovers = await watch.leftovers(owner)
    leftovers += await _requests_left(lane)
    served = lane.server.requests
    lane.server.set_faults()
    tally.faults.update(request.fault for request in served if request.fault is not None)
    problem = None if outcome is None else verdict(case, outcome, served)
    if leftovers:
        problem = f"{problem or ''} left behind: {leftovers}"
    ended = "cancelled" if outcome is None else type(outcome).__name__ if isinstance(outcome, Exception) else "rows"
    tally.outcomes[ended] += 1
    if problem is not None:
        log = "\n".join(
            f"    {request.operation} {request.path} {request.range_header} {request.status} {request.fault}"
            for request in served[-SHOWN_REQUESTS:]
        )
        tally.failures.append(f"{name}: {problem}\n  {case}\n  the newest requests:\n{log}")


async def _requests_left(lane: Lane) -> list[str]:
    """Wait until the server has noticed that its clients are gone, which it does within milliseconds."""
    deadline_s = time.monotonic() + GONE_S
    while lane.server.requests_under_way and time.monotonic() < deadline_s:  # noqa: ASYNC110 - of another thread
        await asyncio.sleep(0.01)
    count = lane.server.requests_under_way
    return [f"{count} requests whose connections are still open"] if count else []


async def _outcome(case: FaultCase, lane: Lane) -> pa.Table | int | Exception | None:
    """Return rows, their number or the error of a scan; None if it was cancelled."""
    scan = asyncio.create_task(_ask(case, lane))
    done, _ = await asyncio.wait([scan], timeout=case.cancelled_after_s or DEADLINE_S)
    if not done:
        scan.cancel()
        await asyncio.wait([scan])
        if case.cancelled_after_s is None:
            return TimeoutError(f"no end within {DEADLINE_S} s")
    if scan.cancelled():
        return None
    error = scan.exception()
    if error is None:
        return scan.result()
    return error if isinstance(error, Exception) else RuntimeError(repr(error))


async def _ask(case: FaultCase, lane: Lane) -> pa.Table | int:
    opening = cp.open_table(
        f"s3://bucket/{case.table.name}",
        storage_options=lane.server.storage_options,
        options=case.options,
        store_options=replace(case.store_options, cache_directory=str(lane.caches))
        if case.is_cached_on_disk
        else case.store_options,
    )
    async with opening as opened:
        scan = opened.scan(case.columns, case.where, limit=case.limit)
        if case.act == "count":
            return await scan.count()
        if case.act == "tail":
            return await scan.tail(TAIL_ROWS)
        if case.act == "first batch":
            async with scan.batches() as batches:
                async for _ in batches:
                    break
        return await scan.to_arrow()


def _without_faults(case: FaultCase) -> FaultCase:
    return replace(case, rules=(), replacement=None, cancelled_after_s=None)


def main() -> None:
    """Run scans; print what came of them, and each failure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scans", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9, help="of the tables and cases")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    numbers = range(given.first, given.first + given.scans)
    with tempfile.TemporaryDirectory() as directory:
        tally = asyncio.run(run_scans(numbers, seed=given.seed, directory=Path(directory)))
    for failure in tally.failures:
        print(failure)
    print(f"{tally.scans} scans ended: {dict(tally.outcomes.most_common())}")
    print(f"requests that met a fault: {dict(tally.faults.most_common())}")
    print(f"{len(tally.failures)} went wrong")
    sys.exit(bool(tally.failures))


if __name__ == "__main__":
    main()

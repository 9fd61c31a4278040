"""What the benchmarks share: data on a simulated cold store, readers in processes of their own, and tables of results.

The store waits 30 ms before the first byte and sends 90 MB/s per connection, unless a benchmark says otherwise. Each
reader runs in fresh processes, one after the other and in turn; imports and client are made before the clock starts.
"First" is the first call of such a process, "warm" the median of the calls after it, with what the reader keeps.
Requests, bytes and round trips are what the server saw, metadata and listings included.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from coldparquet.storage.trace import round_trips
from coldparquet.testing.simulator_options import ColdStoreOptions, ServedRequest
from coldparquet.testing.simulator_process import ColdStoreProcess

REPOSITORY = Path(__file__).parents[2]
BUCKET = "bench"
COLD_STORE = ColdStoreOptions(first_byte_s=0.030, bandwidth_bytes_per_s=90e6)
OURS = "coldparquet"

_LOG_SETTLES_S = 0.05
"""A client can have the last byte a moment before the server has noted the request."""
_CHILD_TIMEOUT_S = 600

Call: TypeAlias = Callable[[], Awaitable[Any]]
"""Asks the question and returns the answer, as JSON can hold it: the same from every reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """How one reader asks the question."""

    first: Call
    """The first call of a process, with nothing known."""
    warm: Call
    """A later call, with whatever the reader keeps."""
    close: Call | None = None
    """Releases what has to be released."""

    @classmethod
    def that_keeps_nothing(cls, call: Call) -> Reader:
        """Make a reader whose calls are all alike."""
        return cls(first=call, warm=call)


MakeReader: TypeAlias = Callable[[str], Reader]
"""Makes a reader, with its imports and its client, for the endpoint of the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """Questions about the same data to several readers."""

    module: str
    """Where the readers' processes find it: ``tests.benchmarks.page_slice``, which calls :func:`main` with it."""
    questions: Mapping[str, Mapping[str, MakeReader]]
    """What is asked, in words, and who is asked; peers that are not installed are left out."""
    make_data: Callable[[Path], Coroutine[Any, Any, None]]
    """Writes the objects into the directory of the bucket, the same ones in every run."""
    warm_calls: int = 3
    store: ColdStoreOptions = COLD_STORE

    def only(self, *names: str) -> Benchmark:
        """Return the same questions to the readers of these names alone, as far as they are asked."""
        questions = {
            question: {name: make for name, make in readers.items() if name in names}
            for question, readers in self.questions.items()
        }
        return replace(self, questions=questions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What one call cost at the server."""

    log: tuple[ServedRequest, ...]

    @property
    def requests(self) -> int:
        """Number of requests."""
        return len(self.log)

    @property
    def data_requests(self) -> int:
        """Number of requests for Parquet files."""
        return sum(request.path.endswith(".parquet") for request in self.log)

    @property
    def megabytes(self) -> float:
        """Bytes of all answers, in millions."""
        return sum(request.bytes_sent for request in self.log) / 1e6

    @property
    def round_trips(self) -> int:
        """Length of the longest chain of requests that waited for each other."""
        return round_trips((request.started_s, request.finished_s) for request in self.log)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one reader took: medians of its times, and the requests of the last process."""

    answer: Any
    first_s: float
    warm_s: float
    warm_processor_s: float
    peak_memory_mb: float
    """Largest resident memory of the whole process, with interpreter and libraries."""
    first: Spent
    warm: Spent


Results: TypeAlias = Mapping[str, Result]
"""By reader."""


def run(benchmark: Benchmark, *, rounds: int) -> dict[str, Results]:
    """Measure every reader in ``rounds`` processes, in turn, and check that all give the same answer.

    Returns:
        Results by question.
    """
    with tempfile.TemporaryDirectory() as root:
        bucket = Path(root) / BUCKET
        bucket.mkdir()
        asyncio.run(benchmark.make_data(bucket))
        with ColdStoreProcess(Path(root), benchmark.store) as server:
            return {
                question: _ask(benchmark, question, server.endpoint_url, rounds) for question in benchmark.questions
            }


def _ask(benchmark: Benchmark, question: str, endpoint_url: str, rounds: int) -> Results:
    measured: dict[str, list[dict[str, Any]]] = {name: [] for name in benchmark.questions[question]}
    for _ in range(rounds):
        for name, of_reader in measured.items():
            of_reader.append(_measure_in_child(benchmark.module, question, name, endpoint_url))
    answers = {name: of_reader[0]["answer"] for name, of_reader in measured.items()}
    assert len(set(map(str, answers.values()))) == 1, f"{question}: the readers disagree: {answers}"
    return {name: _result(of_reader) for name, of_reader in measured.items()}


def _measure_in_child(module: str, question: str, name: str, endpoint_url: str) -> dict[str, Any]:
    command = [sys.executable, "-m", module, "--question", question, "--reader", name, "--endpoint-url", endpoint_url]
    child = subprocess.run(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True, timeout=_CHILD_TIMEOUT_S
    )
    measured: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return measured


def _result(of_reader: list[dict[str, Any]]) -> Result:
    def median(key: str) -> float:
        return float(statistics.median(measured[key] for measured in of_reader))

    last = of_reader[-1]
    return Result(
        answer=last["answer"],
        first_s=median("first_s"),
        warm_s=median("warm_s"),
        warm_processor_s=median("warm_processor_s"),
        peak_memory_mb=median("peak_memory_mb"),
        first=Spent(log=tuple(ServedRequest(**request) for request in last["first_log"])),
        warm=Spent(log=tuple(ServedRequest(**request) for request in last["warm_log"])),
    )


# --- In the reader's process ------------------------------------------------------------------------------------------


async def _measure(reader: Reader, endpoint_url: str, warm_calls: int) -> dict[str, Any]:
    _take_log(endpoint_url)
    start_s = time.perf_counter()
    answer = await reader.first()
    first_s = time.perf_counter() - start_s
    first_log = _take_log(endpoint_url)
    warm_log, warm_s, processor_s = first_log, [], []
    for _ in range(warm_calls):
        start_s, processor_start_s = time.perf_counter(), time.process_time()
        assert await reader.warm() == answer
        warm_s.append(time.perf_counter() - start_s)
        processor_s.append(time.process_time() - processor_start_s)
        warm_log = _take_log(endpoint_url)
    if reader.close is not None:
        await reader.close()
    return {
        "answer": answer,
        "first_s": first_s,
        "warm_s": statistics.median(warm_s),
        "warm_processor_s": statistics.median(processor_s),
        "peak_memory_mb": peak_memory_mb(),
        "first_log": first_log,
        "warm_log": warm_log,
    }


def peak_memory_mb() -> float:
    """Return the largest resident memory of this process so far."""
    # Not getrusage: its peak is inherited from the parent, which made the data.
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def _take_log(endpoint_url: str) -> list[dict[str, Any]]:
    """Fetch and clear the server's log of requests."""
    time.sleep(_LOG_SETTLES_S)
    with urllib.request.urlopen(f"{endpoint_url}/__reset", timeout=10) as answer:
        served: list[dict[str, Any]] = json.load(answer)
    return served


# --- On the command line ----------------------------------------------------------------------------------------------


def best_peer(results: Results, cost: Callable[[Result], float]) -> tuple[str, float]:
    """Return the cheapest of the other readers, and its cost."""
    costs = {name: cost(result) for name, result in results.items() if not name.startswith(OURS)}
    name = min(costs, key=costs.__getitem__)
    return name, costs[name]


def report(results: Mapping[str, Results]) -> str:
    """Lay the results out as Markdown tables, one per question, with our ratios to the best peer below each."""
    return "\n\n".join(f"{question}\n\n{table(of_question)}" for question, of_question in results.items())


def table(results: Results) -> str:
    """Lay out the results of one question."""
    lines = [
        "| reader | first call | requests | MB | round trips | warm call | requests | MB | CPU, warm | peak RSS |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {result.first_s * 1000:.0f} ms | {result.first.requests} | {result.first.megabytes:.2f}"
        f" | {result.first.round_trips} | {result.warm_s * 1000:.0f} ms | {result.warm.requests}"
        f" | {result.warm.megabytes:.2f} | {result.warm_processor_s * 1000:.0f} ms | {result.peak_memory_mb:.0f} MB |"
        for name, result in results.items()
    ]
    if any(not name.startswith(OURS) for name in results):
        lines += ["", *(_ratios(name, results) for name in results if name.startswith(OURS))]
    return "\n".join(lines)


def _ratios(ours: str, results: Results) -> str:
    costs: dict[str, Callable[[Result], float]] = {
        "first call": lambda result: result.first_s,
        "requests": lambda result: result.first.requests,
        "bytes": lambda result: result.first.megabytes,
        "round trips": lambda result: result.first.round_trips,
        "warm call": lambda result: result.warm_s,
        "peak RSS": lambda result: result.peak_memory_mb,
    }
    parts = []
    for what, cost in costs.items():
        peer, least = best_peer(results, cost)
        parts.append(f"{what} {cost(results[ours]) / least:.2f}x ({peer})")
    return f"{ours}, of the best peer: {', '.join(parts)}"


def main(description: str | None, benchmark: Benchmark) -> None:
    """Run a benchmark from the command line, or one reader of it in a process of its own."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="fresh processes per reader (default 3)")
    parser.add_argument("--question", help=argparse.SUPPRESS)
    parser.add_argument("--reader", help=argparse.SUPPRESS)
    parser.add_argument("--endpoint-url", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.reader:
        reader = benchmark.questions[arguments.question][arguments.reader](arguments.endpoint_url)
        print(json.dumps(asyncio.run(_measure(reader, arguments.endpoint_url, benchmark.warm_calls))))
    else:
        print(report(run(benchmark, rounds=arguments.rounds)))

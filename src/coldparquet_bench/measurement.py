"""Measures readers: data on a simulated cold store, every reader in processes of its own, in turn, on the same store.

The store waits 30 ms before the first byte and sends 90 MB/s per connection, unless a benchmark says otherwise. Imports and
client are made, what the imports left to the garbage collector is collected, and the data is read once, before the clock
starts. "First" is the first call of a process, "warm" the median of the calls after it, with what the reader keeps. Requests,
bytes and round trips are what the server saw, metadata and listings included.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from coldparquet.errors import InternalError, UnsupportedError
from coldparquet.prices import PriceTable
from coldparquet.records import replace
from coldparquet.storage.log import round_trips
from coldparquet_bench.physical_limit import longest_chain_s
from coldparquet_bench.stolen_time import StolenTime
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreProcess, ServedRequest

BUCKET = "bench"
COLD_STORE = ColdStoreOptions(first_byte_s=0.030, bandwidth_bytes_per_s=90e6)
OURS = "coldparquet"
BEFORE = ", before"
"""Follows the name of a reader of ours that another version of this library is."""

_BLOCK_BYTES = 1024 * 1024
"""Read at once, so that large files do not fill the memory."""
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

MakeData: TypeAlias = Callable[[Path], Coroutine[Any, Any, None]]
"""Writes the objects of a benchmark into the directory of the bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """Questions about the same data to several readers."""

    module: str
    """Where the readers' processes find it: ``coldparquet_bench.needle``, which calls :func:`main` with it."""
    data: str
    """Name of what :attr:`make_data` makes, its size included: benchmarks about the same data share it."""
    questions: Mapping[str, Mapping[str, MakeReader]]
    """What is asked, in words, and who is asked; peers that are not installed are left out."""
    make_data: MakeData
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
    store: ColdStoreOptions

    @property
    def requests(self) -> int:
        """Number of requests."""
        return len(self.log)

    @property
    def data_requests(self) -> int:
        """Number of GETs of Parquet files."""
        return sum(request.operation == "GetObject" and request.path.endswith(".parquet") for request in self.log)

    @property
    def megabytes(self) -> float:
        """Bytes of all answers, in millions."""
        return sum(request.bytes_sent for request in self.log) / 1e6

    @property
    def round_trips(self) -> int:
        """Length of the longest chain of requests that waited for each other."""
        return round_trips((request.started_s, request.finished_s) for request in self.log)

    @property
    def limit_s(self) -> float:
        """How long the call would have taken if nothing but the store's latency and bandwidth had cost time."""
        return longest_chain_s(
            self.log,
            first_byte_s=self.store.first_byte_s,
            bandwidth_bytes_per_s=self.store.bandwidth_bytes_per_s or float("inf"),
        )

    @property
    def dollars(self) -> float:
        """What the call would have cost in S3, within a region."""
        lists = sum(request.operation.startswith("List") for request in self.log)
        fetched_bytes = sum(request.bytes_sent for request in self.log if request.operation == "GetObject")
        # The benchmarks' stores hold all objects in one class.
        storage_class = next(iter(self.store.storage_classes.values()), None)
        return PriceTable.default().read_dollars(
            storage_class=storage_class,
            get_count=self.requests - lists,
            list_count=lists,
            retrieved_bytes=fetched_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one reader took: medians of its times, and the requests of the last process."""

    answer: Any
    first_s: float
    warm_s: float
    warm_times_s: tuple[float, ...]
    """Of every warm call of every process."""
    first_processor_s: float | None
    """Processor time of the reader's process; None where several readers share a process, or spread over several."""
    warm_processor_s: float | None
    """As above."""
    peak_memory_mb: float | None
    """Largest resident memory of the whole process, with interpreter and libraries; None as above."""
    stolen_fraction: float | None
    """Largest part of the processors' time that the host gave to other machines during one of its processes; None where the
    system does not say it."""
    first: Spent
    warm: Spent


Results: TypeAlias = Mapping[str, Result]
"""By reader."""


def run(
    benchmark: Benchmark,
    *,
    rounds: int,
    directory: Path,
    before: Path | None = None,
    on_reader: Callable[[str], None] | None = None,
) -> dict[str, Results]:
    """Measure every reader in ``rounds`` processes, in turn, and check that all give the same answer.

    ``before`` is a checkout of another version of this library. It reads what this one has made, as one more reader for each
    of ours.

    Raises:
        UnsupportedError: That version does not know a question, or a reader.
    """
    root = asyncio.run(made_data(directory, benchmark.data, benchmark.make_data))
    _compile_all(Path(__file__).parents[1])
    if before is not None:
        _compile_all(before / "src")
    with ColdStoreProcess(root, benchmark.store) as server:
        return {
            question: _ask(benchmark, question, server.endpoint_url, rounds=rounds, before=before, on_reader=on_reader)
            for question in benchmark.questions
        }


@cache
def _compile_all(source: Path) -> None:
    """Leave bytecode as installing a package does: otherwise, a reader's first process would compile what it imports."""
    for package in ("coldparquet", "coldparquet_bench", "coldparquet_testing"):
        compileall.compile_dir(source / package, quiet=2)


async def made_data(directory: Path, data: str, make_data: MakeData) -> Path:
    """Make data, unless it is there from an earlier run, and read it once; what was interrupted is made anew."""
    root = directory / data
    if not root.is_dir():
        unfinished = directory / f"{data}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        (unfinished / BUCKET).mkdir(parents=True)
        await make_data(unfinished / BUCKET)
        unfinished.rename(root)
    _read_all(root)
    return root


def _read_all(root: Path) -> None:
    """Read every file, so that the store answers from memory: who comes first is not to wait for this machine's disk."""
    for path in root.rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.read(_BLOCK_BYTES):
                    pass


def _ask(
    benchmark: Benchmark,
    question: str,
    endpoint_url: str,
    *,
    rounds: int,
    before: Path | None,
    on_reader: Callable[[str], None] | None,
) -> Results:
    measured: dict[str, list[dict[str, Any]]] = {}
    for name in benchmark.questions[question]:
        measured[name] = []
        if before is not None and name.startswith(OURS):
            measured[name + BEFORE] = []
    for _ in range(rounds):
        for name, of_reader in measured.items():
            if on_reader is not None:
                on_reader(name)
            checkout = before if name.endswith(BEFORE) else None
            of_reader.append(
                _measure_in_child(
                    benchmark.module, question, name.removesuffix(BEFORE), endpoint_url, checkout=checkout
                )
            )
    answers = {name: of_reader[0]["answer"] for name, of_reader in measured.items()}
    if len(set(map(str, answers.values()))) != 1:
        raise InternalError(f"{question}: the readers disagree: {answers}")
    return {name: result_of(of_reader, benchmark.store) for name, of_reader in measured.items()}


def _measure_in_child(
    module: str, question: str, name: str, endpoint_url: str, *, checkout: Path | None
) -> dict[str, Any]:
    environment, flags = dict(os.environ), []
    if checkout is not None:
        others = filter(None, [environment.get("PYTHONPATH")])
        environment["PYTHONPATH"] = os.pathsep.join([str(checkout.resolve() / "src"), *others])
        flags = ["-P"]  # else the code in the current directory would come first
    command = [sys.executable, *flags, "-m", module, "--question", question, "--reader", name]
    stolen = StolenTime()
    try:
        child = subprocess.run(  # noqa: S603 - our own interpreter, and names of our own
            [*command, "--endpoint-url", endpoint_url],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=_CHILD_TIMEOUT_S,
        )
    except subprocess.CalledProcessError as error:
        if checkout is None:
            raise
        raise UnsupportedError(
            f"the version in {checkout} did not answer {question!r} as {name!r}, its message is above; choose questions that it"
            " knows with --question",
            kind="UnknownQuestion",
        ) from error
    return {**json.loads(child.stdout.splitlines()[-1]), "stolen_fraction": stolen.fraction}


def result_of(of_reader: list[dict[str, Any]], store: ColdStoreOptions) -> Result:
    """Sum up what several processes measured of one reader, whose JSON it is."""

    def median(key: str) -> float:
        return float(statistics.median(measured[key] for measured in of_reader))

    def median_or_none(key: str) -> float | None:
        return median(key) if key in of_reader[0] else None

    last = of_reader[-1]
    stolen = [fraction for measured in of_reader if (fraction := measured.get("stolen_fraction")) is not None]
    return Result(
        answer=last["answer"],
        first_s=median("first_s"),
        warm_s=median("warm_s"),
        warm_times_s=tuple(time_s for measured in of_reader for time_s in measured["warm_times_s"]),
        first_processor_s=median_or_none("first_processor_s"),
        warm_processor_s=median_or_none("warm_processor_s"),
        peak_memory_mb=median_or_none("peak_memory_mb"),
        stolen_fraction=max(stolen, default=None),
        first=Spent(log=tuple(ServedRequest(**request) for request in last["first_log"]), store=store),
        warm=Spent(log=tuple(ServedRequest(**request) for request in last["warm_log"]), store=store),
    )


# --- In the reader's process ------------------------------------------------------------------------------------------


async def _measure(reader: Reader, endpoint_url: str, warm_calls: int) -> dict[str, Any]:
    take_log(endpoint_url)
    # The 50,000 objects of a process's imports make a full collection due, which takes 50 ms in whichever call comes then.
    gc.collect()
    start_s, processor_start_s = time.perf_counter(), time.process_time()
    answer = await reader.first()
    first_s, first_processor_s = time.perf_counter() - start_s, time.process_time() - processor_start_s
    first_log = take_log(endpoint_url)
    warm_log, warm_s, processor_s = first_log, [], []
    for _ in range(warm_calls):
        start_s, processor_start_s = time.perf_counter(), time.process_time()
        if await reader.warm() != answer:
            raise InternalError("the reader gives another answer than before")
        warm_s.append(time.perf_counter() - start_s)
        processor_s.append(time.process_time() - processor_start_s)
        warm_log = take_log(endpoint_url)
    if reader.close is not None:
        await reader.close()
    return {
        "answer": answer,
        "first_s": first_s,
        "first_processor_s": first_processor_s,
        "warm_s": statistics.median(warm_s),
        "warm_times_s": warm_s,
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


def take_log(endpoint_url: str) -> list[dict[str, Any]]:
    """Fetch and clear the server's log of requests."""
    time.sleep(_LOG_SETTLES_S)
    with urllib.request.urlopen(f"{endpoint_url}/__reset", timeout=10) as answer:  # noqa: S310 - the simulated store
        served: list[dict[str, Any]] = json.load(answer)
    return served


def main(benchmark: Benchmark) -> None:
    """Be the process of one reader: measure it, and print what was measured as one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--question", required=True)
    parser.add_argument("--reader", required=True)
    parser.add_argument("--endpoint-url", required=True)
    arguments = parser.parse_args()
    reader = benchmark.questions[arguments.question][arguments.reader](arguments.endpoint_url)
    measured = asyncio.run(_measure(reader, arguments.endpoint_url, benchmark.warm_calls))
    print(json.dumps(measured))  # noqa: T201 - read by the process that measures

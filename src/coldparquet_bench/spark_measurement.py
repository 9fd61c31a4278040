"""Measures ways to ask Spark: all of them in one warm session, in turn, on the same simulated store.

"First" is the first call of a way in its session, with all that Java still has to compile; "warm" is the median of the
calls after it, in which nothing is kept but what a session keeps by itself: every call opens its table again. Starting Java and
the session is not part of any call. Requests and bytes are what the server saw.
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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from coldparquet.errors import InternalError
from coldparquet.records import replace
from coldparquet_bench.measurement import BUCKET, COLD_STORE, MakeData, Results, made_data, result_of, take_log
from coldparquet_bench.spark_session import require_spark, start_session
from coldparquet_testing.simulator import ColdStoreProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from coldparquet_testing.simulator import ColdStoreOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkPlace:
    """Where a call is made."""

    session: SparkSession
    bucket: Path
    """The files of the simulated bucket, on this machine."""


SparkCall: TypeAlias = Callable[[SparkPlace], Any]
"""Asks the question from the beginning, and returns the answer as JSON can hold it: the same from every way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkQuestion:
    """A question, and the ways to ask it."""

    ways: Mapping[str, SparkCall]
    """By name; ours begin with ``coldparquet``."""
    warm_calls: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkBenchmark:
    """Questions about the same data, asked of one session."""

    module: str
    """Where the session's process finds it: a module that calls :func:`main` with it."""
    data: str
    """Name of what :attr:`make_data` makes, its size included."""
    questions: Mapping[str, SparkQuestion]
    make_data: MakeData
    is_small: bool = False
    """Passed on to the process of the session, which makes this benchmark again."""
    store: ColdStoreOptions = COLD_STORE
    is_optional: bool = False
    """Whether it is left out, with a word about it, where Spark cannot be run."""


def run_in_sessions(
    benchmark: SparkBenchmark, *, rounds: int, directory: Path, on_way: Callable[[str], None] | None = None
) -> dict[str, Results]:
    """Ask all questions in ``rounds`` sessions, and check that all ways give the same answers."""
    require_spark()
    root = asyncio.run(made_data(directory, benchmark.data, benchmark.make_data))
    measured: dict[str, dict[str, list[dict[str, Any]]]] = {
        question: {name: [] for name in asked.ways} for question, asked in benchmark.questions.items()
    }
    with ColdStoreProcess(root, benchmark.store) as server:
        for _ in range(rounds):
            for line in _session_process(benchmark, server.endpoint_url, root / BUCKET):
                of_call: dict[str, Any] = json.loads(line)
                question, name = of_call["question"], of_call["way"]
                measured[question][name].append(of_call)
                if on_way is not None:
                    on_way(f"{question}: {name}")
    for question, of_question in measured.items():
        answers = {name: of_way[0]["answer"] for name, of_way in of_question.items()}
        if len(set(map(str, answers.values()))) != 1:
            raise InternalError(f"{question}: the ways disagree: {answers}")
    return {
        question: {name: result_of(of_way, benchmark.store) for name, of_way in of_question.items()}
        for question, of_question in measured.items()
    }


def _session_process(benchmark: SparkBenchmark, endpoint_url: str, bucket: Path) -> Iterator[str]:
    """Run one session, and yield the line of every way as soon as it was measured."""
    command = [sys.executable, "-m", benchmark.module, "--endpoint-url", endpoint_url, "--bucket", str(bucket)]
    if benchmark.is_small:
        command.append("--small")
    command += [f"--question={question}={asked.warm_calls}" for question, asked in benchmark.questions.items()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:  # noqa: S603 - our own interpreter and names
        assert child.stdout is not None  # noqa: S101 - it is a pipe
        yield from (line for line in child.stdout if line.startswith("{"))
    if child.returncode:
        raise InternalError(f"the process of the Spark session ended with {child.returncode}; it printed why")


# --- In the session's process -----------------------------------------------------------------------------------------


def main(make_benchmark: Callable[[bool], SparkBenchmark]) -> None:
    """Be the process of one session: measure every way, and print a line of JSON for each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--endpoint-url", required=True)
    parser.add_argument("--bucket", type=Path, required=True)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--question", action="append", metavar="QUESTION=CALLS", required=True)
    arguments = parser.parse_args()
    benchmark = make_benchmark(arguments.small)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        session = start_session(arguments.endpoint_url, Path(directory))
        place = SparkPlace(session=session, bucket=arguments.bucket)
        for question, _, warm_calls in (asked.rpartition("=") for asked in arguments.question):
            asked = replace(benchmark.questions[question], warm_calls=int(warm_calls))
            for measured in _measure(asked, place, arguments.endpoint_url):
                print(json.dumps({"question": question, **measured}), flush=True)  # noqa: T201 - read by the process that measures
        session.stop()


def _measure(asked: SparkQuestion, place: SparkPlace, endpoint_url: str) -> list[dict[str, Any]]:
    measured = {name: [_timed(call, place, endpoint_url)] for name, call in asked.ways.items()}
    for _ in range(asked.warm_calls):
        for name, call in asked.ways.items():
            measured[name].append(_timed(call, place, endpoint_url))
    return [_summary(name, calls) for name, calls in measured.items()]


def _timed(call: SparkCall, place: SparkPlace, endpoint_url: str) -> dict[str, Any]:
    take_log(endpoint_url)
    start_s = time.perf_counter()
    answer = call(place)
    took_s = time.perf_counter() - start_s
    return {"answer": answer, "took_s": took_s, "log": take_log(endpoint_url)}


def _summary(name: str, calls: list[dict[str, Any]]) -> dict[str, Any]:
    first, *warm = calls
    if any(call["answer"] != first["answer"] for call in warm):
        raise InternalError(f"{name} gives another answer than before")
    times_s = [call["took_s"] for call in warm]
    return {
        "way": name,
        "answer": first["answer"],
        "first_s": first["took_s"],
        "warm_s": statistics.median(times_s),
        "warm_times_s": times_s,
        "first_log": first["log"],
        "warm_log": warm[-1]["log"],
    }

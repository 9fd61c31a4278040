"""Results as Markdown tables and as data."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from statistics import quantiles
from typing import TYPE_CHECKING, Any

from coldparquet_bench.goals import W9
from coldparquet_bench.measurement import BEFORE, OURS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from coldparquet_bench.measurement import Result, Results
    from coldparquet_bench.small_files import IndexRun

_PACKAGES = ("coldparquet", "polars", "pyarrow", "duckdb", "datafusion", "pyspark", "s3fs", "aiohttp")
_LEAST_CALLS_FOR_PERCENTILES = 20
_NOTEWORTHY_STOLEN_FRACTION = 0.05

_COSTS: dict[str, Callable[[Result], float]] = {
    "first call": lambda result: result.first_s,
    "requests": lambda result: result.first.requests,
    "bytes": lambda result: result.first.megabytes,
    "round trips": lambda result: result.first.round_trips,
    "warm call": lambda result: result.warm_s,
    "peak RSS": lambda result: result.peak_memory_mb or 0.0,
}


def report(results: Mapping[str, Results]) -> str:
    """Lay the results out as Markdown, a table per question, with our ratios to the best peer below each."""
    return "\n\n".join(f"### {question}\n\n{table(of_question)}" for question, of_question in results.items())


def table(results: Results) -> str:
    """Lay out the results of one question. "Floor" is what latency and bandwidth alone cost the requests of a reader."""
    lines = [
        "| reader | first call | floor | CPU | requests | MB | trips | warm call | CPU | requests | MB | peak RSS |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {_ms(result.first_s)} | {_ms(result.first.limit_s)} | {_ms(result.first_processor_s)}"
        f" | {result.first.requests} | {result.first.megabytes:.2f} | {result.first.round_trips}"
        f" | {_ms(result.warm_s)} | {_ms(result.warm_processor_s)} | {result.warm.requests}"
        f" | {result.warm.megabytes:.2f} | {_mb(result.peak_memory_mb)} |"
        for name, result in results.items()
    ]
    if any(map(_is_ours, results)) and any(not name.startswith(OURS) for name in results):
        lines += ["", *(_ratios(name, results) for name in results if _is_ours(name))]
    if befores := [name for name in results if name.endswith(BEFORE)]:
        lines += ["", *(_ratios_to_before(name.removesuffix(BEFORE), results) for name in befores)]
    stolen = max((result.stolen_fraction or 0.0 for result in results.values()), default=0.0)
    if stolen >= _NOTEWORTHY_STOLEN_FRACTION:
        lines += ["", f"**The host gave {stolen:.0%} of the processors to other machines meanwhile: measure again.**"]
    return "\n".join(lines)


def percentiles(results: Mapping[str, Results]) -> str:
    """Lay out how long the warm calls took, of the readers that made enough of them."""
    lines = ["| question | reader | p50 | p90 | p99 | p99 / p50 |", "|---|---|---|---|---|---|"]
    for question, of_question in results.items():
        for name, result in of_question.items():
            if len(result.warm_times_s) >= _LEAST_CALLS_FOR_PERCENTILES:
                p50, p90, p99 = (_percentile(result, percent) for percent in (50, 90, 99))
                lines.append(f"| {question} | {name} | {_ms(p50)} | {_ms(p90)} | {_ms(p99)} | {p99 / p50:.1f}x |")
    return "\n".join(lines)


def prices(results: Mapping[str, Results]) -> str:
    """Lay out what a million first calls of W9 would cost, by storage class; transfer within the region is free."""
    lines = [f"| reader | {' | '.join(W9)} |", "|---|" + "---|" * len(W9)]
    asked = [results[question] for question in W9.values() if question in results]
    lines += [
        f"| {name} | {' | '.join(f'${of_class[name].first.dollars * 1e6:,.2f}' for of_class in asked)} |"
        for name in (asked[0] if asked else ())
    ]
    return "\n".join(lines)


def as_data(results: Mapping[str, Results], index_runs: Sequence[IndexRun] = ()) -> dict[str, Any]:
    """Return the results, and what they were measured with, as data that ``json.dumps`` takes."""
    return {
        "machine": {"processors": _processors(), "python": platform.python_version(), "system": platform.system()},
        "versions": {name: _version(name) for name in _PACKAGES},
        "results": {
            question: {name: _result(result) for name, result in of_question.items()}
            for question, of_question in results.items()
        },
        "index": [asdict(run) for run in index_runs],
    }


def best_peer(results: Results, cost: Callable[[Result], float]) -> tuple[str, float]:
    """Return the cheapest of the other readers, and its cost."""
    costs = {name: cost(result) for name, result in results.items() if not name.startswith(OURS)}
    name = min(costs, key=costs.__getitem__)
    return name, costs[name]


def _ratios(ours: str, results: Results) -> str:
    parts = []
    for what, cost in _COSTS.items():
        peer, least = best_peer(results, cost)
        if not least and not cost(results[ours]):
            continue  # no reader needed any, or none was measured
        parts.append(f"{what} {cost(results[ours]) / least:.2f}x ({peer})" if least else f"{what} of 0 ({peer})")
    own = results[ours].first
    if own.limit_s:
        parts.append(f"first call {results[ours].first_s / own.limit_s:.2f}x of its own floor")
    return f"{ours}, of the best peer: {', '.join(parts)}"


def _ratios_to_before(name: str, results: Results) -> str:
    now, before = results[name], results[name + BEFORE]
    costs: dict[str, Callable[[Result], float | None]] = {
        **_COSTS,
        "CPU of the first call": lambda result: result.first_processor_s,
        "CPU of the warm call": lambda result: result.warm_processor_s,
    }
    parts = [
        f"{what} {(cost(now) or 0.0) / least:.2f}x" for what, cost in costs.items() if (least := cost(before) or 0.0)
    ]
    return f"{name}, compared with before: {', '.join(parts)}"


def _is_ours(name: str) -> bool:
    return name.startswith(OURS) and not name.endswith(BEFORE)


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:,.0f} ms"


def _mb(megabytes: float | None) -> str:
    return "" if megabytes is None else f"{megabytes:.0f} MB"


def _percentile(result: Result, percent: int) -> float:
    return quantiles(result.warm_times_s, n=100, method="inclusive")[percent - 1]


def _result(result: Result) -> dict[str, Any]:
    return {
        "first_s": result.first_s,
        "warm_s": result.warm_s,
        "warm_times_s": list(result.warm_times_s),
        "first_processor_s": result.first_processor_s,
        "warm_processor_s": result.warm_processor_s,
        "peak_memory_mb": result.peak_memory_mb,
        "stolen_fraction": result.stolen_fraction,
        **{
            name: {
                "requests": spent.requests,
                "data_requests": spent.data_requests,
                "bytes": round(spent.megabytes * 1e6),
                "round_trips": spent.round_trips,
                "limit_s": spent.limit_s,
                "dollars": spent.dollars,
            }
            for name, spent in (("first", result.first), ("warm", result.warm))
        },
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

"""The benchmarks of reading less run, on less data, and what they promise of requests and bytes holds; times are printed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.benchmarks import late_materialisation, metadata_answers, needle, page_slice
from tests.benchmarks.harness import BUCKET, OURS, report, run
from tests.benchmarks.trades import day_name

MOST_BLOOM_BYTES = 2 * 5 * 8_192 + 1_000
"""Of the filters of two columns in five row groups, headers included."""


@pytest.mark.slow
@pytest.mark.benchmark
def test_a_slice_of_a_day_takes_a_few_pages() -> None:
    results = run(page_slice.benchmark(rows=1_000_000).only(OURS, "Polars"), rounds=1)
    print(report(results))
    for of_layout in results.values():
        ours, polars = of_layout[OURS].first, of_layout["Polars"].first
        assert ours.megabytes <= polars.megabytes / 5
        assert ours.round_trips <= polars.round_trips


@pytest.mark.slow
@pytest.mark.benchmark
def test_a_needle_takes_data_of_its_own_partition_alone() -> None:
    days, row_groups = 5, 5
    bench = needle.benchmark(days=days, rows=row_groups * needle.ROW_GROUP_ROWS).only(OURS, "Polars")
    results = run(bench, rounds=1)
    print(report(results))
    for of_column in results.values():
        ours = of_column[OURS].first
        assert of_column[OURS].answer == 1
        assert ours.megabytes <= of_column["Polars"].first.megabytes / 5
        taken_bytes: Counter[str] = Counter()
        for request in ours.log:
            taken_bytes[request.path] += request.bytes_sent
        home = f"{BUCKET}/{needle.TABLE}/{day_name(needle.NEEDLE_DAY % days)}/data.parquet"
        others = {path: taken for path, taken in taken_bytes.items() if path.endswith(".parquet") and path != home}
        assert max(others.values()) <= MOST_BLOOM_BYTES, "more than the bloom filters"


@pytest.mark.slow
@pytest.mark.benchmark
def test_metadata_answers_without_data() -> None:
    results = run(metadata_answers.benchmark(days=12, rows=4_000).only(OURS, "Polars"), rounds=1)
    print(report(results))
    for question in (metadata_answers.COUNT, metadata_answers.LARGEST):
        assert results[question][OURS].first.data_requests == 0
        assert results[question][OURS].warm.requests == 0
    newest = results[metadata_answers.TAIL][OURS].first
    assert {request.path for request in newest.log if request.path.endswith(".parquet")} == {
        f"{metadata_answers.TABLE}/2024-03-12/data.parquet"
    }


@pytest.mark.slow
@pytest.mark.benchmark
def test_late_materialisation_fetches_less_where_little_is_left() -> None:
    bench = late_materialisation.benchmark(rows=300_000).only(OURS, f"{OURS} never", f"{OURS} always")
    rarely, *_, mostly = bench.questions
    results = run(replace(bench, questions={name: bench.questions[name] for name in (rarely, mostly)}), rounds=1)
    print(report(results))
    rare, common = results[rarely], results[mostly]
    assert rare[f"{OURS} always"].first.megabytes < rare[f"{OURS} never"].first.megabytes / 2
    assert common[OURS].first.megabytes <= common[f"{OURS} never"].first.megabytes * 1.01

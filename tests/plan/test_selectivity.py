"""Estimates of how many rows survive: near the truth where values are spread evenly, and never at odds with pruning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldparquet.format.sidecar_layout import ENCODING_RLE_DICTIONARY
from coldparquet.plan.bounds import IntArray
from coldparquet.plan.predicate import Literal, Predicate, col
from coldparquet.plan.prune import prune
from coldparquet.plan.selectivity import FloatArray, clustered_fields, count_values, estimate_selectivity
from coldparquet.plan.statistics import SidecarStatistics
from coldparquet.records import replace
from tests.support.paged_columns import KINDS, LONG, Chunk, Kind, Partition, chunk_of, packed, partitions, predicates

i64 = packed("<q")


def borders_of(partition: Partition) -> IntArray:
    return np.array([0, partition.sidecar.row_group_count])


def estimate(partition: Partition, predicate: Predicate, fields: set[int] | None = None) -> FloatArray:
    everywhere = np.ones(partition.sidecar.row_group_count, np.bool_)
    return estimate_selectivity(
        partition.bind(predicate),
        SidecarStatistics(partition.sidecar, partition.places),
        count_values(partition.sidecar, partition.places),
        partition.sidecar.row_counts,
        borders=borders_of(partition),
        fields=None if fields is None else dict.fromkeys(fields, everywhere),
    )


def thousand(low: int, high: int, *, nulls: int = 0, size_bytes: int = 8_000) -> Chunk:
    """Stand for 1,000 values, of which nothing but the bounds is known."""
    return Chunk(
        values=range(1_000), page_starts=None, bounds=(i64(low), i64(high)), null_count=nulls, page_bytes=[size_bytes]
    )


def one_group(*chunks: Chunk, kind: Kind = LONG) -> Partition:
    return Partition(kinds=[kind] * len(chunks), chunks=[list(chunks)])


@pytest.mark.parametrize(
    ("predicate", "fraction"),
    [
        (col("c0") < 250, 0.25),
        (col("c0") >= 900, 0.1),
        (col("c0").between(100, 299), 0.2),
        (~col("c0").between(100, 299), 0.8),
        ((col("c0") > 100) & (col("c0") > 300) & (col("c0") < 900) & (col("c1") < 500), 0.3),
        ((col("c0") > 500) & (col("c0") < 400), 0.001),
        (col("c0") == 17, 0.001),
        (col("c0") != 17, 0.999),
        (col("c0").is_in([17, 18, 19, 2_000]), 0.003),
        (col("c0") == 2_000, 0),
        (col("c0") < 2_000, 1),
        ((col("c0") < 500) & (col("c1") < 500), 0.25),
        ((col("c0") < 500) | (col("c1") < 500), 0.75),
        (~((col("c0") < 500) | (col("c1") < 500)), 0.25),
        (col("c1").is_null(), 0),
        (Literal(value=True), 1),
        (Literal(None), 0),
    ],
)
def test_values_spread_evenly_between_bounds(predicate: Predicate, fraction: float) -> None:
    partition = one_group(thousand(0, 999), thousand(0, 999))
    assert estimate(partition, predicate)[0] == pytest.approx(fraction, rel=0.02)


def test_nulls_satisfy_no_comparison() -> None:
    partition = one_group(thousand(0, 999, nulls=400))
    assert estimate(partition, col("c0").is_null())[0] == pytest.approx(0.4)
    assert estimate(partition, col("c0") < 500)[0] == pytest.approx(0.3, rel=0.01)
    assert estimate(partition, ~(col("c0") < 500))[0] == pytest.approx(0.3, rel=0.01)
    assert estimate(partition, col("c0") != 3.5)[0] == pytest.approx(0.6)
    assert estimate(partition, col("c0") == 3.5)[0] == 0


def text(size_bytes: int, *, encodings: int = ENCODING_RLE_DICTIONARY, rows: int = 80_000) -> Partition:
    chunk = Chunk(values=range(rows), page_starts=None, bounds=(b"A", b"Z"), null_count=0, page_bytes=[size_bytes])
    return one_group(chunk, kind=replace(KINDS["varchar"], encodings=encodings))


def test_the_size_of_a_chunk_bounds_how_many_values_it_tells_apart() -> None:
    # 4 bits a row choose among 16 values, 16 bytes a row among more than any row group has.
    assert estimate(text(40_000), col("c0") == "B")[0] == pytest.approx(1 / 16)
    assert estimate(text(40_000), col("c0").is_in(["B", "C", "D"]))[0] == pytest.approx(3 / 16)
    assert estimate(text(16 * 80_000), col("c0") == "B")[0] == 1 / 80_000
    # Runs of equal values take next to nothing: nothing can be said, so that everything may match.
    assert estimate(text(100), col("c0") == "B")[0] == pytest.approx(1, abs=0.01)


def test_text_lies_between_bounds_by_its_first_bytes() -> None:
    assert estimate(text(80_000), col("c0") < "M")[0] == pytest.approx(12 / 25, abs=0.02)


def test_without_bounds_half_of_the_rows_are_in_a_range() -> None:
    partition = one_group(Chunk(values=range(1_000), page_starts=None, page_bytes=[8_000]))
    assert estimate(partition, col("c0") < 5)[0] == 0.5
    assert estimate(partition, col("c0").between(5, 6))[0] == 0.5
    text_only = one_group(Chunk(values=range(9), page_starts=None, page_bytes=[80]), kind=KINDS["ipv4 in a dictionary"])
    assert estimate(text_only, col("c0").between(5, 6))[0] == 0.5
    assert estimate(partition, col("c0") == 5)[0] == 0.001


def test_conditions_that_do_not_count_may_hold_everywhere() -> None:
    partition = one_group(thousand(0, 999), thousand(0, 999))
    both = (col("c0") < 100) & (col("c1") < 100)
    assert estimate(partition, both, {0})[0] == pytest.approx(0.1, rel=0.02)
    assert estimate(partition, both, set())[0] == 1
    assert estimate(partition, (col("c0") < 100) | (col("c1") < 100), {0})[0] == 1
    assert estimate(partition, (col("c0") < 100) & ~(col("c1") < 100), {0})[0] == pytest.approx(0.1, rel=0.02)


@settings(max_examples=20)
@given(data=st.data())
def test_estimates_agree_with_pruning(data: st.DataObject) -> None:
    kinds = [LONG, KINDS[data.draw(st.sampled_from(sorted(KINDS)))]]
    partition = data.draw(partitions(kinds))
    predicate = data.draw(predicates(kinds))
    fractions = estimate(partition, predicate)
    bound, source = partition.bind(predicate), SidecarStatistics(partition.sidecar, partition.places)
    verdict, _ = prune(bound, source, len(fractions))
    assert ((fractions > 0) == verdict.survives).all()
    assert (fractions[verdict.survives & verdict.all_rows_match] == 1).all()
    assert (fractions <= 1).all()
    of_everything = estimate(partition, predicate, set())
    assert (of_everything >= 0).all()


def clustered(partition: Partition, predicate: Predicate, places: dict[int, Any]) -> set[int]:
    statistics, borders = SidecarStatistics(partition.sidecar), borders_of(partition)
    found = clustered_fields(partition.bind(predicate), statistics, partition.sidecar, places, borders=borders)
    assert all(where.all() or not where.any() for where in found.values())
    return {field for field, where in found.items() if where.any()}


def ordered(bounds: Sequence[tuple[int, int]], kind: Kind = LONG) -> set[int]:
    partition = Partition(
        kinds=[kind],
        chunks=[[Chunk(values=range(5), page_starts=None, bounds=(i64(low), i64(high)))] for low, high in bounds],
    )
    return clustered(partition, col("c0") > 1, dict(partition.places))


@pytest.mark.parametrize(
    ("bounds", "is_clustered"),
    [
        ([(0, 9), (9, 20), (20, 30)], True),
        ([(20, 30), (9, 20), (0, 9)], True),
        ([(0, 30), (1, 30), (0, 29)], False),
        ([(5, 5), (5, 5)], False),
        ([(0, 9)], False),
        ([*((number, number + 1) for number in range(20)), (0, 20)], True),
    ],
)
def test_columns_whose_row_groups_follow_one_another(bounds: list[tuple[int, int]], is_clustered: bool) -> None:
    assert ordered(bounds) == ({0} if is_clustered else set())


def test_columns_without_order_or_bounds_are_not_clustered() -> None:
    partition = Partition(
        kinds=[KINDS["varchar"], LONG],
        chunks=[[chunk_of(KINDS["varchar"], ["a"], None), Chunk(values=[1], page_starts=None)]] * 2,
    )
    predicate = (col("c0") > "a") & (col("c1") > 1)
    assert clustered(partition, predicate, {0: 0, 1: 1}) == set()
    assert clustered(partition, predicate, {0: None, 1: None}) == set()


def test_counts_of_the_writer_come_first() -> None:
    partition = text(40_000)
    counts = count_values(partition.sidecar, {7: 0, 8: None})
    assert list(counts) == [7]
    assert counts[7].distinct_values.tolist() == [16]
    assert counts[7].null_fraction.tolist() == [0]
    assert np.isfinite(count_values(text(80_000 * 500).sidecar, {0: 0})[0].distinct_values).all()

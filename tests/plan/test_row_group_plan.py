"""Which row groups of a partition are read, which of their chunks are fetched, and what statistics have to do with it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from coldparquet.options import ReadOptions
from coldparquet.plan.bind import BoundField, bind, fields_of
from coldparquet.plan.predicate import Predicate, col
from coldparquet.plan.row_groups import PrunedRowGroups, prune_row_groups
from tests.decode.conftest import SparseFile
from tests.support.parquet_footers import parquet_bytes


@pytest.fixture(scope="module")
def file() -> SparseFile:
    """Three row groups of ten rows: ``n`` counts on, ``k`` is one number in each, ``e`` is null, ``x`` varies."""
    numbers = range(30)
    table = pa.table(
        {
            "n": numbers,
            "k": [number // 10 for number in numbers],
            "e": pa.nulls(30, pa.int64()),
            "x": [number % 7 for number in numbers],
        }
    )
    return SparseFile(parquet_bytes(table, row_group_size=10))


def planned(file: SparseFile, names: list[str], predicate: Predicate, **options: Any) -> PrunedRowGroups:
    fields = {name: BoundField(name, place, file.sidecar.column_type(place)) for place, name in enumerate(file.names)}
    bound = bind(predicate, fields)
    return prune_row_groups(
        file.sidecar,
        output_columns=[file.names.index(name) for name in names],
        predicate=bound,
        predicate_columns={field.index: field.index for field in fields_of(bound)},
        options=ReadOptions(**options),
    )


def listed(file: SparseFile, plan: PrunedRowGroups) -> list[tuple[int, str, str, bool]]:
    return [
        (
            read.row_group,
            " ".join(file.names[column] for column in read.columns),
            " ".join(file.names[column] for column in read.made_columns),
            read.all_rows_match,
        )
        for read in plan.reads_of(slice(0, 3), file.data(), partition_index=0)
    ]


def test_columns_of_the_predicate_alone_are_left_out_where_every_row_matches(file: SparseFile) -> None:
    plan = planned(file, ["x", "e"], col("n") >= 15)
    assert listed(file, plan) == [(1, "n x", "e", False), (2, "x", "e", True)]
    assert plan.report is not None
    assert plan.report.dropped == (("n >= 15", 1),)


def test_constants_of_the_predicate_are_made_as_well(file: SparseFile) -> None:
    plan = planned(file, ["n"], (col("k") > 0) & (col("x") == 3))
    assert listed(file, plan) == [(1, "n x", "k", False), (2, "n x", "k", False)]
    plan = planned(file, ["n"], (col("k") > 0) & (col("x") == 3), make_constant_columns=False)
    assert listed(file, plan) == [(1, "n k x", "", False), (2, "n k x", "", False)]


def test_without_statistics_only_nulls_are_known(file: SparseFile) -> None:
    plan = planned(file, ["k", "e"], col("n") >= 15, statistics=False)
    assert listed(file, plan) == [(row_group, "n k", "e", False) for row_group in range(3)]
    assert plan.report is None

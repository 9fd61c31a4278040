"""Statistics that QuestDB itself wrote must never rule out a value that the row group holds."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from coldparquet.format.types import resolve_type
from coldparquet.plan.bind import BoundComparison, BoundField, BoundIn, BoundIsNull, BoundPredicate
from coldparquet.plan.predicate import Not, Operator
from coldparquet.plan.prune import prune
from coldparquet.plan.statistics import SidecarStatistics
from tests.support.golden_values import FILES, GOLDEN, domain_values, sidecar_of, some_of

VALUES_TRIED = 10


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.parent.relative_to(GOLDEN)))
def test_values_of_genuine_files_survive(path: Path) -> None:
    sidecar = sidecar_of(path)
    file = pq.ParquetFile(path)
    statistics = SidecarStatistics(sidecar)
    assert sidecar.row_group_count == file.num_row_groups
    for index, column in enumerate(sidecar.columns):
        column_type = resolve_type(
            column.type_code, column.physical_type, column.fixed_byte_length, column.max_rep_level
        )
        field = BoundField(column.name, index, column_type)
        if index == sidecar.designated_timestamp:
            bounds = statistics.bounds(field)
            assert bounds is not None
            assert bounds.lower is not None
            assert bounds.lower.known.all()
        for row_group in range(sidecar.row_group_count):
            rows = file.read_row_group(row_group, columns=[column.name])[0]
            must_survive: list[BoundPredicate] = []
            if rows.null_count < len(rows):
                must_survive.append(Not(BoundIsNull(field)))
            if rows.null_count:
                must_survive.append(BoundIsNull(field))
            if column_type.arrow.name != "list":
                values = some_of(domain_values(rows, field), VALUES_TRIED)
                must_survive += [BoundComparison(field, Operator.EQUAL, value) for value in values]
                must_survive += [BoundIn(field, tuple(values))] if len(values) > 1 else []
            for predicate in must_survive:
                verdict, _ = prune(predicate, statistics, sidecar.row_group_count)
                assert verdict.survives[row_group], f"row group {row_group}: {predicate}"

"""Page indexes that QuestDB itself wrote must never rule out a row, and do leave out pages where it wrote several."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from coldparquet.format.page_index import parse_page_index
from coldparquet.format.pages import PartitionPages, chunk_places
from coldparquet.format.sidecar import Sidecar
from coldparquet.plan.bind import BoundComparison, BoundField, BoundIsNull, BoundPredicate
from coldparquet.plan.pages import PagesSelected, prune_pages
from coldparquet.plan.predicate import And, Not, Operator
from coldparquet.plan.statistics import SidecarStatistics
from tests.support.golden_values import FILES, GOLDEN, domain_values, parquet_footer_of, sidecar_of, some_of

VALUES_TRIED = 3

INDEXED = [path for path in FILES if path.relative_to(GOLDEN).parts[0] in ("encodings", "pages", "types_all")]
"""Many pages a chunk, all types (pages of arrays are marked as pages of nulls), addresses in dictionaries."""


def pages_of(path: Path, sidecar: Sidecar) -> PartitionPages | None:
    footer = parquet_footer_of(path)
    return parse_page_index(footer, path.read_bytes(), tail_start=0, places=chunk_places(sidecar)).pages


def select(predicate: BoundPredicate, sidecar: Sidecar, pages: PartitionPages, row_group: int) -> PagesSelected:
    return prune_pages(
        predicate,
        sidecar=sidecar,
        places={index: index for index in range(sidecar.column_count)},
        pages=pages,
        row_groups=np.array([row_group]),
        by_row_group=SidecarStatistics(sidecar),
    )


def kept_rows(predicate: BoundPredicate, sidecar: Sidecar, pages: PartitionPages, row_group: int) -> set[int]:
    selection = select(predicate, sidecar, pages, row_group).selections[0]
    return set(np.flatnonzero(selection.holds(np.arange(int(sidecar.row_counts[row_group])))).tolist())


@pytest.mark.parametrize("path", INDEXED, ids=lambda path: str(path.parent.relative_to(GOLDEN)))
def test_rows_of_genuine_files_survive(path: Path) -> None:
    sidecar = sidecar_of(path)
    pages = pages_of(path, sidecar)
    assert pages is not None
    file = pq.ParquetFile(path)
    for index, column in enumerate(sidecar.columns):
        field = BoundField(column.name, index, sidecar.column_type(index))
        for row_group in range(sidecar.row_group_count):
            rows = file.read_row_group(row_group, columns=[column.name])[0]
            nulls = set(np.flatnonzero(rows.is_null().to_numpy()).tolist())
            present = set(range(len(rows))) - nulls
            assert nulls <= kept_rows(BoundIsNull(field), sidecar, pages, row_group)
            assert present <= kept_rows(Not(BoundIsNull(field)), sidecar, pages, row_group)
            if field.type.arrow.name == "list":
                continue
            values = domain_values(rows, field)
            for value in some_of(values, VALUES_TRIED):
                equal = {row for row, other in enumerate(values) if other == value}
                kept = kept_rows(BoundComparison(field, Operator.EQUAL, value), sidecar, pages, row_group)
                assert equal <= kept, f"row group {row_group}: {column.name} = {value}"


def test_a_slice_of_time_is_a_few_pages() -> None:
    path = next(path for path in FILES if path.is_relative_to(GOLDEN / "pages"))
    sidecar = sidecar_of(path)
    pages = pages_of(path, sidecar)
    timestamp = sidecar.designated_timestamp
    assert pages is not None
    assert timestamp is not None
    field = BoundField("ts", timestamp, sidecar.column_type(timestamp))
    times = domain_values(pq.ParquetFile(path).read_row_group(0, columns=[sidecar.column(timestamp).name])[0], field)
    first, last = times[700], times[900]
    between = And(
        (
            BoundComparison(field, Operator.GREATER_OR_EQUAL, first),
            BoundComparison(field, Operator.LESS_OR_EQUAL, last),
        )
    )
    selected = select(between, sidecar, pages, 0)
    (selection,) = selected.selections
    assert set(range(700, 901)) <= kept_rows(between, sidecar, pages, 0)
    assert selection.row_count < 700
    assert selected.report.pages_left < selected.report.pages / 3

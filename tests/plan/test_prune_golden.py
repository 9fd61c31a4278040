"""Statistics that QuestDB itself wrote must never rule out a value that the row group holds."""

from __future__ import annotations

import struct
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coldparquet.format.column_types import resolve_type
from coldparquet.format.footer_to_sidecar import sidecar_content_from_footer
from coldparquet.format.parquet_footer import parse_footer
from coldparquet.format.sidecar import Sidecar, parse_sidecar
from coldparquet.format.sidecar_writer import encode_sidecar
from coldparquet.plan.bind import BoundComparison, BoundField, BoundIn, BoundIsNull, BoundNot, BoundPredicate
from coldparquet.plan.predicate import Operator
from coldparquet.plan.prune import prune
from coldparquet.plan.statistics import SidecarStatistics

GOLDEN = Path(__file__).parents[1] / "golden" / "questdb"
FILES = sorted(GOLDEN.rglob("data.parquet"))
VALUES_TRIED = 25


def sidecar_of(path: Path) -> Sidecar:
    data = path.read_bytes()
    (length,) = struct.unpack("<I", data[-8:-4])
    start = len(data) - 8 - length
    footer = parse_footer(data[start:-8], path=str(path), offset=start)
    return parse_sidecar(encode_sidecar(sidecar_content_from_footer(footer)))


def domain_values(column: Any, field: BoundField) -> list[Any]:
    """Return the distinct values of a column as predicates see them."""
    arrow = field.type.arrow
    storage = column.combine_chunks()
    storage = storage.storage if isinstance(storage, pa.ExtensionArray) else storage
    storage = storage.cast(storage.type.value_type) if pa.types.is_dictionary(storage.type) else storage
    if arrow.name in ("timestamp", "date32"):
        storage = storage.cast(pa.int64() if arrow.name == "timestamp" else pa.int32())
    values: list[Any] = storage.drop_null().unique().to_pylist()
    if arrow.name.startswith("decimal"):
        return [int(Fraction(value) * 10**arrow.scale) for value in values]
    if arrow.name.startswith("uint"):
        return [value % (1 << int(arrow.name[4:])) for value in values]
    return [value.encode() if isinstance(value, str) else value for value in values if value == value]  # noqa: PLR0124


def some_of(values: list[Any]) -> list[Any]:
    ordered = sorted(values)
    picks = np.unique(np.linspace(0, len(ordered) - 1, VALUES_TRIED).astype(int)) if ordered else np.array([], int)
    return [ordered[pick] for pick in picks.tolist()]


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
                must_survive.append(BoundNot(BoundIsNull(field)))
            if rows.null_count:
                must_survive.append(BoundIsNull(field))
            if column_type.arrow.name != "list":
                values = some_of(domain_values(rows, field))
                must_survive += [BoundComparison(field, Operator.EQUAL, value) for value in values]
                must_survive += [BoundIn(field, tuple(values))] if len(values) > 1 else []
            for predicate in must_survive:
                verdict, _ = prune(predicate, statistics, sidecar.row_group_count)
                assert verdict.survives[row_group], f"row group {row_group}: {predicate}"

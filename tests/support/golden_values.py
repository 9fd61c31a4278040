"""Values of the genuine QuestDB files as predicates see them, and the sidecars that follow from their footers."""

from __future__ import annotations

import struct
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from coldparquet.format.parquet_footer import ParquetFooter, parse_footer
from coldparquet.format.sidecar import Sidecar, parse_sidecar
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_writer import encode_sidecar

if TYPE_CHECKING:
    from coldparquet.plan.bind import BoundField

GOLDEN = Path(__file__).parents[1] / "golden" / "questdb"
FILES = sorted(GOLDEN.rglob("data.parquet"))


def parquet_footer_of(path: Path) -> ParquetFooter:
    data = path.read_bytes()
    (length,) = struct.unpack("<I", data[-8:-4])
    start = len(data) - 8 - length
    return parse_footer(data[start:-8], path=str(path), offset=start)


def sidecar_of(path: Path) -> Sidecar:
    return parse_sidecar(encode_sidecar(sidecar_content_from_footer(parquet_footer_of(path))))


def domain_values(column: Any, field: BoundField) -> list[Any]:
    """Return the values of a column, row by row, as literals of predicates are compared with them."""
    arrow = field.type.arrow
    storage = column.combine_chunks()
    storage = storage.storage if isinstance(storage, pa.ExtensionArray) else storage
    storage = storage.cast(storage.type.value_type) if pa.types.is_dictionary(storage.type) else storage
    if arrow.name in ("timestamp", "date32"):
        storage = storage.cast(pa.int64() if arrow.name == "timestamp" else pa.int32())
    values: list[Any] = storage.to_pylist()
    if arrow.name.startswith("decimal"):
        return [None if value is None else int(Fraction(value) * 10**arrow.scale) for value in values]
    if arrow.name.startswith("uint"):
        return [None if value is None else value % (1 << int(arrow.name[4:])) for value in values]
    return [value.encode() if isinstance(value, str) else value for value in values]


def some_of(values: list[Any], count: int) -> list[Any]:
    """Pick distinct values, evenly spread from the least to the greatest; neither NULL nor NaN."""
    distinct = sorted({value for value in values if value is not None and value == value})  # noqa: PLR0124
    picks = {round(pick) for pick in np.linspace(0, len(distinct) - 1, count)} if distinct else set()
    return [distinct[pick] for pick in sorted(picks)]

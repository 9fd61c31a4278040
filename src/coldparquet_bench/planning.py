"""How long opening and planning take: 3,650 days with a catalogue, and 100,000 row groups. No row is read.

The sidecars are made up, and the Parquet files that they describe are as long as they say, but empty: planning does not look
into them. ``first`` opens the table and plans the first question, ``warm`` plans it anew with all metadata at hand.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from coldparquet.format.sidecar_layout import PARQUET_TAIL_BYTES, PhysicalType, Repetition, column_flags
from coldparquet.format.sidecar_writer import (
    BoundSpec,
    ChunkSpec,
    ColumnSpec,
    RowGroupSpec,
    SidecarContent,
    encode_sidecar,
)
from coldparquet.format.type_codes import TypeTag
from coldparquet.records import replace
from coldparquet_bench.measurement import BUCKET, OURS, Benchmark, main
from coldparquet_bench.packing import pack_through_store
from coldparquet_bench.readers import our_reader

if TYPE_CHECKING:
    from pathlib import Path

    import coldparquet as cp
    from coldparquet_bench.measurement import Reader

DAYS, FILES, ROW_GROUPS_PER_FILE = 3_650, 100, 1_000
TABLE = "planned"
_FIRST_DAY = datetime(2014, 3, 1, tzinfo=UTC)
_DAY_US = 86_400_000_000
_COLUMNS, _ROWS = 10, 10_000
_FOOTER_BYTES = 1_000
_ZSTD, _PLAIN = 6, 3

_WHERE = {
    "every row": None,
    "a condition on values": "c1 > 500",
    "one week": "ts >= '2014-03-11' AND ts < '2014-03-18'",
}


def many_partitions(*, days: int = DAYS) -> Benchmark:
    """Make the benchmark of many days of one row group; a smoke test asks for fewer of them."""
    return _benchmark("many partitions", days=days, row_groups=1)


def many_row_groups(*, days: int = FILES) -> Benchmark:
    """Make the benchmark of fewer days of 1,000 row groups; a smoke test asks for even fewer."""
    return _benchmark("many row groups", days=days, row_groups=ROW_GROUPS_PER_FILE)


def _benchmark(name: str, *, days: int, row_groups: int) -> Benchmark:
    return Benchmark(
        module="coldparquet_bench.planning",
        data=f"sidecars-of-{days}-days-of-{row_groups}-row-groups",
        make_data=partial(_make_table, days=days, row_groups=row_groups),
        questions={f"planning {name}: {what}": {OURS: partial(_planner, where)} for what, where in _WHERE.items()},
    )


def made_up_content(day: int, row_groups: int) -> SidecarContent:
    """Make what the sidecar of one day says: a timestamp, and nine columns of whole numbers and doubles with bounds."""
    random = np.random.default_rng(day)
    first_us = int(_FIRST_DAY.timestamp()) * 1_000_000 + day * _DAY_US
    made, offset = [], 4
    for number in range(row_groups):
        begin_us = first_us + number * (_DAY_US // row_groups)
        chunks = []
        for column in range(_COLUMNS):
            size_bytes = int(random.integers(20_000, 60_000))
            low, high = int(random.integers(0, 1_000)), int(random.integers(1_000, 10**9))
            if column == 0:
                low, high = begin_us, begin_us + _DAY_US // row_groups - 1
            chunks.append(
                ChunkSpec(
                    codec=_ZSTD,
                    encodings=_PLAIN,
                    num_values=_ROWS,
                    byte_range_start=offset,
                    total_compressed_bytes=size_bytes,
                    null_count=0,
                    min=_bound(column, low),
                    max=_bound(column, high),
                )
            )
            offset += size_bytes
        made.append(RowGroupSpec(row_count=_ROWS, chunks=chunks))
    return SidecarContent(
        columns=[_column(column) for column in range(_COLUMNS)],
        row_groups=made,
        parquet_footer_offset=offset,
        parquet_footer_length=_FOOTER_BYTES,
        designated_timestamp=0,
        sorting_columns=(0,),
    )


def parquet_size_bytes(content: SidecarContent) -> int:
    """Return the size of the Parquet file that a sidecar describes."""
    return content.parquet_footer_offset + content.parquet_footer_length + PARQUET_TAIL_BYTES


def partition_name(day: int) -> str:
    """Return the directory name of a day, counted from 2014-03-01."""
    return f"{_FIRST_DAY + timedelta(days=day):%Y-%m-%d}"


def _is_whole_number(column: int) -> bool:
    return column % 2 == 0


def _column(column: int) -> ColumnSpec:
    type_tag = TypeTag.TIMESTAMP if column == 0 else TypeTag.LONG if _is_whole_number(column) else TypeTag.DOUBLE
    return ColumnSpec(
        name="ts" if column == 0 else f"c{column}",
        type_code=int(type_tag),
        physical_type=PhysicalType.INT64 if _is_whole_number(column) else PhysicalType.DOUBLE,
        id=column,
        flags=column_flags(repetition=Repetition.REQUIRED if column == 0 else Repetition.OPTIONAL),
        max_def_level=0 if column == 0 else 1,
    )


def _bound(column: int, value: int) -> BoundSpec:
    return BoundSpec(
        value.to_bytes(8, "little", signed=True) if _is_whole_number(column) else np.float64(value).tobytes()
    )


async def _make_table(bucket: Path, *, days: int, row_groups: int) -> None:
    for day in range(days):
        directory = bucket / TABLE / partition_name(day)
        directory.mkdir(parents=True)
        content = made_up_content(day, row_groups)
        (directory / "_pm").write_bytes(encode_sidecar(content))
        with (directory / "data.parquet").open("wb") as data:
            data.truncate(parquet_size_bytes(content))  # takes no room on the disk
    await pack_through_store(bucket, TABLE)


def _planner(where: str | None, endpoint_url: str) -> Reader:
    async def plan(table: cp.Table) -> Any:
        found = await table.scan(where=where).plan()
        return [len(found.partitions), len(found.row_groups), found.request_count]

    return our_reader(f"{BUCKET}/{TABLE}", endpoint_url, plan)


if __name__ == "__main__":
    questions = {**many_partitions().questions, **many_row_groups().questions}
    main(replace(many_partitions(), questions=questions))

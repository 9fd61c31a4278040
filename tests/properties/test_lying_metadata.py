"""Metadata that lies about the shape of a file: it is left aside with a note, or the read is refused; never wrong rows.

Bounds that lie cannot be noticed without decoding, and neither can counts of NULLs that add up.
"""

from __future__ import annotations

import functools
import random
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.errors import FormatError
from coldparquet.maintenance.index import index_table
from coldparquet.storage.memory import MemoryStore
from tests.support.random_tables import assert_identical
from tests.support.tampered_parquet import ChunkIndexes, with_changed_chunks, with_changed_indexes

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldparquet.format.parquet_thrift import ColumnChunk

ROWS, ROW_GROUP_ROWS, PAGE_ROWS = 900, 300, 25
DATA, SIDECAR, PAGES = "t/data.parquet", "t/_pm", "t/_pages"
BY_PAGES = cp.ReadOptions(page_index="always")
QUESTIONS: tuple[Any, ...] = (
    cp.col("ascending") == 417,
    cp.col("ascending").between(120, 190),
    cp.col("text") == "t0512",
    cp.col("nullable") < 40,
    cp.col("list").is_null() & (cp.col("ascending") > 700),
    (cp.col("ascending") < 9) | (cp.col("text") > "t0890"),
)


@functools.cache
def rows() -> pa.Table:
    numbers = np.arange(ROWS)
    return pa.table(
        {
            "ascending": pa.array(numbers, pa.int64()),
            "text": pa.array([f"t{number:04}" for number in numbers]),
            "nullable": pa.array([None if number % 7 == 0 else number // 3 for number in numbers.tolist()], pa.int32()),
            "list": pa.array([None if number % 5 == 0 else [1.0] * (number % 4) for number in numbers.tolist()]),
            "needle": pa.array(np.random.default_rng(1).integers(0, 1 << 62, ROWS)),
        }
    )


@functools.cache
def honest_file() -> bytes:
    output = pa.BufferOutputStream()
    pq.write_table(
        rows(),
        output,
        row_group_size=ROW_GROUP_ROWS,
        max_rows_per_page=PAGE_ROWS,
        write_batch_size=PAGE_ROWS,
        use_dictionary=["nullable"],
        compression="zstd",
        write_page_index=True,
        bloom_filter_options={"needle": {"ndv": ROW_GROUP_ROWS, "fpp": 0.01}},
    )
    content: bytes = output.getvalue().to_pybytes()
    return content


async def store_of(file: bytes, *, pages: bool = False) -> MemoryStore:
    store = MemoryStore({DATA: file})
    await index_table("t", store=store, pages=pages)
    return store


def matching(where: Any) -> pa.Table:
    """Return the rows as pyarrow finds them, which knows of no page index here."""
    names = {"ascending": "ascending", "text": "text", "nullable": "nullable"}
    return rows().filter(_expression(where, names))


def _expression(where: Any, names: Any) -> Any:
    raise NotImplementedError

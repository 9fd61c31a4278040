"""Whatever the limits, gaps and techniques: the same rows, and the memory limit holds but for one row group."""

from __future__ import annotations

import asyncio
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

import coldparquet as cp
from coldparquet.maintenance.index import index_table
from coldparquet.storage.memory import MemoryStore

ROWS, ROW_GROUP_ROWS, PAGE_ROWS = 3_000, 1_000, 100
DECODED_ROW_GROUP_BYTES = ROW_GROUP_ROWS * 60


def partition() -> tuple[pa.Table, MemoryStore]:
    random = np.random.default_rng(11)
    table = pa.table(
        {
            "x": pa.array(random.permutation(ROWS)),
            "text": pa.array(np.array([f"text {number}" for number in range(50)])[random.integers(0, 50, ROWS)]),
            "maybe": pa.array(random.normal(size=ROWS), mask=random.random(ROWS) < 0.5),
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        row_group_size=ROW_GROUP_ROWS,
        write_batch_size=PAGE_ROWS,
        data_page_size=1,
        write_page_index=True,
    )
    store = MemoryStore({"t/data.parquet": sink.getvalue().to_pybytes()})
    asyncio.run(index_table("t", store=store))
    return table, store


TABLE, STORE = partition()


@settings(max_examples=25)
@given(
    memory_limit_bytes=st.sampled_from([1, 5_000, 50_000, 1_000_000]),
    gap_bytes=st.sampled_from([0, 500, 1 << 20]),
    max_request_bytes=st.sampled_from([2_000, 1 << 20]),
    batch_rows=st.sampled_from([70, 1 << 20]),
    late=st.sampled_from(["always", "never"]),
    pages=st.sampled_from(["always", "never"]),
    strings=st.sampled_from(["dictionary", "string"]),
    below=st.sampled_from([None, 0, 3, 400, 2_900]),
    limit=st.sampled_from([None, 1, 250, 2_000]),
    pauses=st.lists(st.booleans(), max_size=5),
)
def test_streams_bring_the_same_rows(  # noqa: PLR0917 - every knob of a stream
    memory_limit_bytes: int,
    gap_bytes: int,
    max_request_bytes: int,
    batch_rows: int,
    late: cp.options.When,
    pages: cp.options.When,
    strings: Literal["dictionary", "string"],
    below: int | None,
    limit: int | None,
    pauses: list[bool],
) -> None:
    options = cp.ReadOptions(
        memory_limit_bytes=memory_limit_bytes,
        coalesce_gap_bytes=gap_bytes,
        max_request_bytes=max_request_bytes,
        batch_rows=batch_rows,
        late_materialisation=late,
        page_index=pages,
        strings=strings,
    )

    async def read() -> tuple[pa.Table, int]:
        found = []
        async with (
            cp.open_partition("t", store=STORE, options=options) as opened,
            opened.scan(where=None if below is None else f"x < {below}", limit=limit).batches() as batches,
        ):
            for number in range(ROWS + 1):
                if number < len(pauses) and pauses[number]:
                    await asyncio.sleep(0.002)
                batch = await batches.next_batch()
                if batch is None:
                    break
                assert 0 < batch.num_rows <= batch_rows
                found.append(batch)
            return pa.Table.from_batches(found, opened.scan().schema), batches.most_held_bytes

    found, held_bytes = asyncio.run(asyncio.wait_for(read(), timeout=120))
    expected = TABLE if below is None else TABLE.filter(pc.field("x") < below)
    assert found.cast(TABLE.schema).equals(expected if limit is None else expected[:limit])
    assert held_bytes <= memory_limit_bytes + 6 * DECODED_ROW_GROUP_BYTES

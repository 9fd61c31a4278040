"""Pages of few KB that stand for much more memory than a scan may take: read in small batches, or refused with the way out."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.errors import BudgetExceededError
from coldparquet.options import MIB

if TYPE_CHECKING:
    from pathlib import Path

TEXT_BYTES, ROWS = 4_000, 400_000
"""1.6 GB of text."""

SCAN = """
import asyncio, sys
import coldparquet as cp

def memory_kib(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name))

async def main(url, *columns):
    async with cp.open_partition(url) as partition:
        async with partition.scan(["n"]).batches() as batches:
            async for batch in batches:
                pass
        before = memory_kib("VmRSS")
        rows = text = 0
        async with partition.scan(list(columns)).batches() as batches:
            async for batch in batches:
                rows += batch.num_rows
                text += sum(batch.column(0).slice(at, 1)[0].as_py() is not None for at in (0, batch.num_rows - 1))
                assert str(batch.schema.field(0).type) == "string"
        print(rows, (memory_kib("VmHWM") - before) // 1024)

asyncio.run(main(*sys.argv[1:]))
"""


def write(directory: Path, text: pa.Array[Any], **terms: Any) -> Path:
    directory.mkdir()
    table = pa.table({"n": pa.array(range(len(text))), "text": text})
    pq.write_table(table, directory / "data.parquet", row_group_size=len(text), **terms)
    return directory


@pytest.mark.slow
def test_a_dictionary_of_long_text_is_never_expanded_for_more_rows_than_fit(tmp_path: Path) -> None:
    entries = ["a" * TEXT_BYTES, "b" * TEXT_BYTES]
    indices = pa.array([place < ROWS // 2 for place in range(ROWS)]).cast(pa.int32())
    text: Any = pa.DictionaryArray.from_arrays(indices, pa.array(entries))
    partition = write(tmp_path / "p", text, compression="zstd", write_statistics=False)
    metadata = pq.read_metadata(partition / "data.parquet").row_group(0).column(1)
    assert metadata.total_compressed_size < 77_000
    done = subprocess.run(
        [sys.executable, "-c", SCAN, str(partition), "text"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rows, grown_mib = map(int, done.stdout.split())
    assert rows == ROWS
    assert grown_mib < 256


async def test_text_that_is_expanded_in_batches_is_the_same_text(tmp_path: Path) -> None:
    values = [None if place % 7 == 0 else f"{place % 5}" * 500 for place in range(50_000)]
    partition = write(tmp_path / "p", pa.array(values))
    options = cp.ReadOptions(memory_limit_bytes=16 * MIB, batch_rows=30_000)
    async with cp.open_partition(str(partition), options=options) as opened:
        async with opened.scan(["text", "n"], where="n >= 10 AND text != '" + "3" * 500 + "'").batches() as batches:
            found = [batch async for batch in batches]
        assert all(batch.schema.field("text").type == pa.string() for batch in found)
        assert max(batch.get_total_buffer_size() for batch in found if batch.num_rows) < 40 * MIB
        assert len(found) > 4
        expected = [
            (text, n) for n, text in enumerate(values) if n >= 10 and text is not None and not text.startswith("3")
        ]
        rows = [row for batch in found for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
        assert rows == expected
        newest = await opened.scan(["text"]).tail(3)
        assert newest.column("text").to_pylist() == values[-3:]
        assert newest.schema.field("text").type == pa.string()
        last = await opened.scan(["text"]).to_arrow()
        assert last.column("text").to_pylist() == values


async def test_a_page_that_decompresses_to_more_than_the_limit_is_refused(tmp_path: Path) -> None:
    text: Any = pa.array(["x" * 1_000_000] * 80)
    partition = write(tmp_path / "p", text, compression="zstd", use_dictionary=False)
    assert (partition / "data.parquet").stat().st_size < 77_000
    options = cp.ReadOptions(memory_limit_bytes=64 * MIB)
    async with cp.open_partition(str(partition), options=options) as opened:
        with pytest.raises(
            BudgetExceededError, match=r"column 'text': pages of .* decompress to 80,.*memory_limit"
        ) as raised:
            await opened.scan(["text"]).to_arrow()
        assert raised.value.kind == "MemoryLimit"
        assert (await opened.scan(["n"]).to_arrow()).num_rows == 80
    async with cp.open_partition(str(partition)) as opened:
        assert (await opened.scan(["text"]).to_arrow()).column("text").to_pylist() == text.to_pylist()


@pytest.mark.parametrize(
    ("page_version", "codec", "has_nulls"),
    [("1.0", "none", False), ("1.0", "zstd", True), ("2.0", "snappy", True), ("2.0", "none", False)],
)
async def test_text_that_repeats_most_of_the_row_before_it_is_refused(
    tmp_path: Path, page_version: Any, codec: Any, has_nulls: bool
) -> None:
    long = ["x" * 100_000 + str(place % 2) for place in range(1_500)]
    text: Any = pa.array([None if has_nulls and place % 3 == 0 else value for place, value in enumerate(long)])
    partition = write(
        tmp_path / "p",
        text,
        compression=codec,
        use_dictionary=False,
        column_encoding={"text": "DELTA_BYTE_ARRAY", "n": "PLAIN"},
        data_page_version=page_version,
    )
    assert (partition / "data.parquet").stat().st_size < 220_000
    options = cp.ReadOptions(memory_limit_bytes=64 * MIB)
    async with cp.open_partition(str(partition), options=options) as opened:
        with pytest.raises(
            BudgetExceededError, match=r"column 'text': the values of pages of .* take 1\d\d,.*memory_l"
        ):
            await opened.scan(["text"]).to_arrow()
    async with cp.open_partition(str(partition)) as opened:
        assert (await opened.scan(["text"]).to_arrow()).column("text").to_pylist() == text.to_pylist()


async def test_a_dictionary_of_long_binary_values_is_refused(tmp_path: Path) -> None:
    values: Any = pa.array([b"x" * 100_000 + bytes([place % 2]) for place in range(1_500)])
    partition = write(tmp_path / "p", values, compression="zstd", write_statistics=False)
    assert (partition / "data.parquet").stat().st_size < 220_000
    options = cp.ReadOptions(memory_limit_bytes=64 * MIB)
    async with cp.open_partition(str(partition), options=options) as opened:
        with pytest.raises(BudgetExceededError, match=r"column 'text': the values of pages of .* take 150,.*memory_l"):
            await opened.scan(["text"]).to_arrow()
        assert (await opened.scan(["n"]).to_arrow()).num_rows == len(values)
    async with cp.open_partition(str(partition)) as opened:
        assert (await opened.scan(["text"]).to_arrow()).column("text").to_pylist() == values.to_pylist()


async def test_tail_refuses_a_row_group_whose_text_takes_far_more_than_the_limit(tmp_path: Path) -> None:
    partition = write(tmp_path / "p", pa.array(["a" * 3_000, "b" * 3_000] * 30_000), write_statistics=False)
    options = cp.ReadOptions(memory_limit_bytes=64 * MIB)
    async with cp.open_partition(str(partition), options=options) as opened:
        with pytest.raises(BudgetExceededError, match=r"the text of a row group takes 180,000,000 bytes.*memory_limit"):
            await opened.scan(["text"], where="text != 'c'").tail(3)
        assert (await opened.scan(["text"]).tail(3)).num_rows == 3
    async with cp.open_partition(str(partition)) as opened:
        assert (await opened.scan(["text"], where="text != 'c'").tail(3)).num_rows == 3

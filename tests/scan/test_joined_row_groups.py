"""Small neighbouring row groups are decoded together: the same rows in the same order, and damage is named where it lies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import coldparquet as cp
from coldparquet.errors import FormatError

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 4_000


def rows(count: int = ROWS) -> pa.Table:
    """Make columns of every kind that decodes in a way of its own."""
    numbers = list(range(count))
    return pa.table(
        {
            "n": numbers,
            "few": pa.array([f"word {n // 1_000 * 10 + n % 7}" for n in numbers]),
            "empty": pa.array(["" if n % 3 else f"word {n % 11}" for n in numbers]),
            "many": pa.array([f"text {n}" for n in numbers]),
            "gaps": pa.array([None if n % 5 == 0 else f"word {n % 13}" for n in numbers]),
            "nothing": pa.array([None] * count, pa.string()),
            "list": pa.array([list(range(n % 4)) for n in numbers]),
            "struct": pa.array([{"a": n, "b": f"word {n % 3}"} for n in numbers]),
            "one": pa.array([1.5] * count),
        }
    )


def written(directory: Path, **how: Any) -> Path:
    """Write the rows in row groups of a hundred."""
    path = directory / "data.parquet"
    pq.write_table(rows(), path, row_group_size=100, **how)
    return path


def count_decodings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note how many row groups pyarrow decodes in each file that it is given."""
    counts: list[int] = []
    read = pq.ParquetFile.read_row_groups

    def noted(file: Any, row_groups: list[int], **how: Any) -> pa.Table:
        counts.append(len(row_groups))
        return read(file, row_groups, **how)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", noted)
    return counts


async def test_row_groups_of_every_kind_of_column_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, table, counts = written(tmp_path), rows(), count_decodings(monkeypatch)
    async with cp.open_partition(str(path)) as partition:
        found = await partition.scan().to_arrow()
        assert found.cast(table.schema).equals(table)
        assert max(counts) > 10
        counts.clear()
        two = await partition.scan(["few", "n"], [("few", "=", "word 13")]).to_arrow()
        assert two["n"].to_pylist() == [n for n in range(ROWS) if n // 1_000 == 1 and n % 7 == 3]
        assert sum(counts) >= 10, "of the row groups whose statistics allow the word"


async def test_the_first_rows_are_read_without_their_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, counts = written(tmp_path), count_decodings(monkeypatch)
    async with cp.open_partition(str(path)) as partition:
        assert (await partition.scan(["n"]).head(3))["n"].to_pylist() == [0, 1, 2]
        async with partition.scan(["n"]).batches(slow_start=True) as batches:
            first = await batches.next_batch()
    assert first is not None
    assert first["n"].to_pylist() == list(range(100))
    assert set(counts) == {1}


async def test_row_groups_that_together_exceed_the_limit_are_not_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, counts = written(tmp_path), count_decodings(monkeypatch)
    options = cp.ReadOptions(memory_limit_bytes=1 << 20)
    async with cp.open_partition(str(path), options=options) as partition:
        assert (await partition.scan(["n"]).to_arrow())["n"].to_pylist() == list(range(ROWS))
    assert 1 < max(counts) <= (1 << 20) // 64 // (100 * 8), "a 64th of the limit"


async def test_the_damaged_row_group_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, compression="zstd", write_statistics=False)
    chunk: Any = pq.read_metadata(path).row_group(17).column(3)
    content = bytearray(path.read_bytes())
    end = chunk.data_page_offset + chunk.total_compressed_size - (chunk.data_page_offset - chunk.dictionary_page_offset)
    content[end - 40 : end] = b"\xff" * 40
    path.write_bytes(content)
    async with cp.open_partition(str(path)) as partition:
        with pytest.raises(FormatError, match="row group 17, column 'many'") as failure:
            await partition.scan(["n", "many"]).to_arrow()
        assert failure.value.details["row_group"] == 17
        assert (await partition.scan(["n", "few"]).to_arrow()).num_rows == ROWS


@given(
    words=st.lists(
        st.lists(st.sampled_from(["", "a", "b", "long word", None]), min_size=1, max_size=9), min_size=2, max_size=12
    ),
    as_dictionary=st.booleans(),
    data=st.data(),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_text_in_any_row_groups(
    tmp_path: Path, words: list[list[str | None]], *, as_dictionary: bool, data: st.DataObject
) -> None:
    path = tmp_path / "data.parquet"
    fields: list[Any] = [pa.field("text", pa.string()), pa.field("n", pa.int64())]
    schema = pa.schema(fields)
    with pq.ParquetWriter(
        path, schema, use_dictionary=as_dictionary, dictionary_pagesize_limit=data.draw(st.sampled_from([1, 1_000]))
    ) as writer:
        for number, of_row_group in enumerate(words):
            writer.write_table(pa.table({"text": of_row_group, "n": [number] * len(of_row_group)}, schema=schema))
    wanted = pq.read_table(path)
    async with cp.open_partition(str(path)) as partition:
        found = await partition.scan().to_arrow()
        assert found.cast(schema).equals(wanted)
        some = await partition.scan(["n"], [("text", "=", "a")]).to_arrow()
    assert some["n"].to_pylist() == [
        n for n, text in zip(wanted["n"].to_pylist(), wanted["text"].to_pylist(), strict=True) if text == "a"
    ]

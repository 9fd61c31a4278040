"""Tables split into batches and batches joined to tables, without copying what need not be copied."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.decode.arrow import concatenate, copied, expanded_table, to_batches


@given(st.integers(0, 50), st.integers(1, 60))
def test_batches_are_full_but_for_the_last(rows: int, batch_rows: int) -> None:
    table = pa.table({"n": pa.array(range(rows), pa.int64())})
    batches = to_batches(table, batch_rows=batch_rows)
    assert [row for batch in batches for row in batch["n"].to_pylist()] == list(range(rows))
    assert all(0 < batch.num_rows <= batch_rows for batch in batches)
    assert all(batch.num_rows == batch_rows for batch in batches[:-1])


def test_batches_share_the_memory_of_their_table() -> None:
    table: Any = pa.table({"n": pa.array(range(100), pa.int64())})
    address = table["n"].chunk(0).buffers()[1].address
    batches: list[Any] = to_batches(table, batch_rows=30)
    assert [batch["n"].buffers()[1].address for batch in batches] == [address] * 4


def symbols(values: list[str | None]) -> Any:
    return pa.array(values, pa.string()).dictionary_encode()


def test_a_copied_batch_keeps_nothing_but_its_rows_and_the_dictionary() -> None:
    table: Any = pa.table({"sym": symbols(["a", "b", None] * 100), "n": range(300)})
    batch: Any = to_batches(table, batch_rows=10)[-1]
    result: Any = copied(batch)
    assert result.equals(batch)
    assert result.schema == batch.schema
    assert result.get_total_buffer_size() < batch.get_total_buffer_size() / 5
    assert result["sym"].dictionary.buffers()[2].address == batch["sym"].dictionary.buffers()[2].address


def test_joined_batches_have_one_dictionary() -> None:
    values: list[list[str | None]] = [["a", "b"], ["b", None, "c"], ["c", "a"]]
    batches = [pa.record_batch({"sym": symbols(part), "n": list(range(len(part)))}) for part in values]
    table: Any = concatenate(batches, batches[0].schema)
    assert table["sym"].to_pylist() == [value for part in values for value in part]
    assert {tuple(chunk.dictionary.to_pylist()) for chunk in table["sym"].chunks} == {("a", "b", "c")}
    assert table.schema == batches[0].schema


@pytest.mark.filterwarnings("default")
def test_joined_batches_become_a_pandas_category() -> None:
    pandas = pytest.importorskip("pandas")
    batches = [pa.record_batch({"sym": symbols(["a", "b"])}), pa.record_batch({"sym": symbols(["c"])})]
    frame = concatenate(batches, batches[0].schema).to_pandas()
    assert isinstance(frame["sym"].dtype, pandas.CategoricalDtype)
    assert frame["sym"].tolist() == ["a", "b", "c"]


def test_no_batches_give_an_empty_table_of_the_schema() -> None:
    schema = pa.schema({"sym": pa.dictionary(pa.int32(), pa.string()), "n": pa.int64()})
    table = concatenate([], schema)
    assert table.num_rows == 0
    assert table.schema == schema


def test_text_is_expanded_in_chunks_that_fit() -> None:
    values = ["a" * 30, None, "b", "c" * 100, "", "b"] * 4
    encoded: Any = pa.array(values).dictionary_encode()
    table = pa.table({"n": range(24), "text": encoded, "kept": encoded})
    found = expanded_table(table, {"text", "n"}, most_bytes=64)
    assert found.schema.types == [pa.int64(), pa.string(), encoded.type]
    assert found.to_pydict() == table.to_pydict()
    assert found.column("text").num_chunks > 4
    assert expanded_table(table.slice(0, 0), {"text"}).schema.field("text").type == pa.string()
    assert expanded_table(found, {"text"}) is found

"""Text has the same values in each form, however its dictionary is laid out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.decode.arrow import VIEW_TYPE
from coldparquet.decode.result_text import expanded_table, text_to_views


@given(
    words=st.lists(
        st.sampled_from(["", "a", "of 12 bytes.", "of more than 12 bytes"]) | st.text(max_size=20), max_size=8
    ),
    picks=st.lists(st.integers(0, 100) | st.none(), max_size=40),
    skipped=st.integers(0, 3),
    first=st.integers(0, 5),
    cut=st.integers(0, 5),
    is_encoded=st.booleans(),
)
def test_views_are_the_strings(  # noqa: PLR0917 - how an array can lie in memory
    words: list[str], picks: list[int | None], skipped: int, first: int, cut: int, is_encoded: bool
) -> None:
    dictionary = pa.array(["x"] * skipped + words, pa.string()).slice(skipped)
    # Arrow leaves the index of a null open.
    numbers = pa.array([1 << 30 if pick is None or not words else pick % len(words) for pick in picks], pa.int32())
    validity = pa.array([bool(words) and pick is not None for pick in picks], pa.bool_()).buffers()[1]
    indices: Any = pa.Array.from_buffers(pa.int32(), len(picks), [validity, numbers.buffers()[1]])
    encoded: Any = pa.DictionaryArray.from_arrays(indices, dictionary, safe=False)
    expected = [words[pick % len(words)] if words and pick is not None else None for pick in picks]
    plain = pa.array(expected, pa.string())
    column = pa.chunked_array(
        [(encoded if is_encoded else plain).slice(first), (encoded if is_encoded else plain).slice(0, cut)]
    )
    found = text_to_views(pa.table({"text": column, "n": pa.array(range(len(column)), pa.int64())}), {"text"})
    found.validate(full=True)
    assert found.schema.types == [VIEW_TYPE, pa.int64()]
    assert found["text"].to_pylist() == expected[first:] + expected[:cut]


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

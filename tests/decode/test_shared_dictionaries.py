"""Tables that come one after the other end up with one dictionary, in which no number ever changes its meaning."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.decode.arrow import DICTIONARY_TYPE
from coldparquet.decode.dictionaries import SharedDictionaries, without_unused_values

NONE_KNOWN = pa.array([], pa.string())


def encoded(indices: list[int | None], dictionary: list[str]) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(dictionary, pa.string()))


def table_of(*parts: Any) -> pa.Table:
    return pa.table({"n": pa.nulls(sum(map(len, parts))), "sym": pa.chunked_array(parts, type=DICTIONARY_TYPE)})


def dictionaries_of(table: pa.Table) -> list[list[str]]:
    parts: list[Any] = table.column("sym").chunks
    return [part.dictionary.to_pylist() for part in parts]


@st.composite
def arrays(draw: st.DrawFn) -> Any:
    dictionary = draw(st.lists(st.sampled_from(["", "a", "b", "c", "d", "e"]), unique=True, max_size=6))
    index = st.none() if not dictionary else st.none() | st.integers(0, len(dictionary) - 1)
    return encoded(draw(st.lists(index, max_size=10)), dictionary)


@given(
    st.lists(st.lists(arrays(), min_size=1, max_size=3), max_size=6),
    st.lists(st.sampled_from(["", "a", "c", "x"]), unique=True),
)
def test_values_stay_and_each_dictionary_begins_with_the_one_before(parts: list[list[Any]], known: list[str]) -> None:
    shared = SharedDictionaries({"sym": pa.array(known, pa.string())})
    before = known
    for of_table in parts:
        table = table_of(*of_table)
        result = shared.share(table)
        result.validate(full=True)
        assert result.to_pylist() == table.to_pylist()
        assert result.schema == table.schema
        [dictionary] = {tuple(dictionary) for dictionary in dictionaries_of(result)}
        assert list(dictionary[: len(before)]) == before
        assert len(set(dictionary)) == len(dictionary)
        before = list(dictionary)


def test_a_table_that_has_the_dictionary_is_not_copied() -> None:
    shared = SharedDictionaries({"sym": NONE_KNOWN})
    for table in (table_of(encoded([0, 1], ["a", "b"])), table_of(encoded([0, None, 2], ["a", "b", "c"]))):
        indices: Any = table.column("sym").chunk(0)
        result: Any = shared.share(table).column("sym").chunk(0)
        assert result.indices.buffers()[1].address == indices.indices.buffers()[1].address
    [dictionary] = dictionaries_of(shared.share(table_of(encoded([0], ["a"]))))
    assert dictionary == ["a", "b", "c"]


def test_known_strings_are_the_dictionary_of_every_table() -> None:
    known: Any = pa.array(["a", "b", "c"])
    shared = SharedDictionaries({"sym": known})
    for dictionary in (["c"], ["b", "c"], ["a"]):
        result: Any = shared.share(table_of(encoded([0], dictionary))).column("sym").chunk(0)
        assert result.dictionary.buffers()[2].address == known.buffers()[2].address
        assert result.to_pylist() == [dictionary[0]]


def test_values_that_no_row_has_are_not_taken_over() -> None:
    shared = SharedDictionaries({"sym": pa.array(["a"])})
    assert dictionaries_of(shared.share(table_of(encoded([1], ["x", "b"])))) == [["a", "b"]]


def test_columns_of_other_names_are_left_alone() -> None:
    table = table_of(encoded([0], ["b"]))
    assert SharedDictionaries({"other": NONE_KNOWN}).share(table) is table


@pytest.mark.parametrize(
    ("array", "dictionary"),
    [
        (encoded([2, None, 0], ["a", "b", "c"]), ["a", "c"]),
        (encoded([None], ["a"]), []),
        (encoded([], []), []),
        (encoded([9, 1, 1, 0], ["a", "b", *list("0123456789")]).slice(1), ["a", "b"]),
    ],
    ids=["some", "nulls", "nothing", "slice"],
)
def test_values_that_no_row_has_are_dropped(array: Any, dictionary: list[str]) -> None:
    result: Any = without_unused_values(array)
    result.validate(full=True)
    assert result.to_pylist() == array.to_pylist()
    assert result.dictionary.to_pylist() == dictionary

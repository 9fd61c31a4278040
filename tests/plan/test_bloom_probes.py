"""What bloom filters are asked, which bytes that takes, and that no row is ever lost by their answers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldparquet.decode.filter import matching_rows
from coldparquet.errors import InternalError
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.sidecar_writer import SidecarContent, encode_sidecar
from coldparquet.format.types import canonical_type, resolve_type
from coldparquet.plan.bind import BoundComparison, BoundField, BoundIn, BoundIsNull, BoundPredicate
from coldparquet.plan.blooms import BloomProbes, find_lookups
from coldparquet.plan.predicate import Operator
from coldparquet.plan.statistics import SidecarStatistics
from coldparquet.ranges import ByteRange
from coldparquet.records import replace
from tests.support.blooms import (
    SIDECARS,
    ask,
    bitset_of,
    bound,
    domain_values,
    encoded_header,
    fields_of,
    file_with_blooms,
    numbers_file,
    sidecar_in_memory,
    sidecar_to_keep,
    with_references,
)
from tests.support.parquet_footers import parquet_bytes, parsed_footer
from tests.support.predicate_trees import trees
from tests.support.questdb_tables import PARTITIONS

(GENUINE,) = [partition for partition in PARTITIONS if partition.table == "bloom"]


@pytest.mark.parametrize("kind", SIDECARS)
def test_values_of_a_genuine_file_are_found_where_they_are(kind: str) -> None:
    file = (GENUINE.directory / "data.parquet").read_bytes()
    sidecar, rows = SIDECARS[kind](file), GENUINE.expected()
    random, denied = Random(3), 0
    for name, in_table in fields_of(sidecar).items():
        for row_group in range(sidecar.row_group_count):
            values = domain_values(rows.column(name).slice(150 * row_group, 150), in_table.type)
            for value in random.sample(values, 4):
                asked = ask(BoundComparison(in_table, Operator.EQUAL, value), sidecar, file)
                assert asked.survives[row_group], (name, value)
                denied += asked.survives.count(False)
            some = tuple(sorted(set(random.sample(values, 20))))
            if len(some) > 1:
                assert ask(BoundIn(in_table, some), sidecar, file).survives[row_group], name
    assert denied > 100


@pytest.mark.parametrize("kind", SIDECARS)
def test_a_needle_is_looked_up_in_one_block_per_row_group(kind: str) -> None:
    file, values = numbers_file()
    sidecar = SIDECARS[kind](file)
    fields = fields_of(sidecar)
    assert sidecar.bloom_columns == (0,)
    present = ask(bound(f"id = {values[5000]}", fields), sidecar, file)
    assert present.survives == [False, True, False, False]
    absent = ask(bound(f"id = {2**61 + 1}", fields), sidecar, file)
    assert absent.survives == [False] * 4
    # A footer of Arrow states the length of header and bitset, so the block is fetched together with its header.
    assert [len(ranges) for ranges in absent.rounds] == {"inlined": [], "external": [4], "derived": [8]}[kind]
    assert absent.bytes_wanted <= {"inlined": 0, "external": 4 * 32, "derived": 4 * (32 + 20)}[kind]


def test_a_filter_of_unknown_length_takes_two_rounds_if_it_is_large_and_one_if_it_is_small() -> None:
    for rows, round_count in ((4000, 2), (30, 1)):
        file, values = numbers_file(rows=rows)
        sidecar = with_references(file, lambda place: ByteRange(place.start, place.start))
        fields = fields_of(sidecar)
        asked = ask(bound(f"id = {values[2 * rows + 7]}", fields), sidecar, file)
        assert asked.survives == [False, False, True, False]
        assert len(asked.rounds) == round_count
        assert asked.bytes_wanted <= 4 * (512 + 32)


def test_small_filters_are_fetched_whole() -> None:
    file, _ = numbers_file(rows=30)
    sidecar = sidecar_to_keep(file, inline_bytes=0)
    place = sidecar.bloom_location(0, 0)
    assert place is not None
    asked = ask(bound("id in (1, 2, 3, 4)", fields_of(sidecar)), sidecar, file)
    assert (place.start, place.stop) in asked.rounds[0]
    assert len(asked.rounds[0]) == 4


@pytest.mark.parametrize(
    ("where", "asked"),
    [
        ("id = 5", True),
        ("id = 5 or other = 6", True),
        ("id = 5 and price > 3", True),
        ("id = 5 or (other = 6 and price > 3)", True),
        ("id = 5 or price > 3", False),
        ("id = 5 or (other = 6 or price > 3)", False),
        ("(id = 5 or price > 3) and other = 6", True),
        ("id != 5", False),
        ("not id = 5", False),
        ("id > 5", False),
        ("id is null", False),
        ("id = -5", False),
        ("id = 5 and price > 100", False),
        ("flag", False),
    ],
)
def test_filters_are_asked_only_where_their_answer_counts(where: str, asked: bool) -> None:
    rows = 100
    others = [0, 2**62, *range(100, 98 + rows)]
    table = pa.table(
        {"id": others, "other": others, "price": [float(row % 10) for row in range(rows)], "flag": [True, False] * 50}
    )
    blooms = {"id": {"ndv": rows, "fpp": 0.001}, "other": {"ndv": rows, "fpp": 0.001}}
    file = parquet_bytes(table, store_schema=False, bloom_filter_options=blooms)
    for kind, sidecar_of in SIDECARS.items():
        sidecar = sidecar_of(file)
        found = ask(bound(where, fields_of(sidecar)), sidecar, file)
        assert found.probes.is_empty is not asked
        assert found.probes.row_groups.tolist() == [asked]
        assert bool(found.rounds) is (asked and kind != "inlined")
        if where == "(id = 5 or price > 3) and other = 6" and kind == "external":
            assert len(found.rounds[0]) == 1  # beside price > 3 the filter of id says nothing


def test_of_a_list_only_values_within_the_bounds_are_looked_up() -> None:
    values = list(range(0, 8000, 2))
    file = file_with_blooms(pa.table({"id": values}), row_group_rows=1000)
    sidecar = sidecar_to_keep(file, inline_bytes=0)
    # Each row group has 10 candidates; 40 at a time would raise false alarms.
    odd = ", ".join(str(value) for value in range(51, 8000, 200))
    asked = ask(bound(f"id in ({odd})", fields_of(sidecar)), sidecar, file)
    assert asked.survives == [False] * 4
    assert len(asked.rounds[0]) <= 40
    assert asked.bytes_wanted <= 40 * 32
    # Too many for a filter to deny them all: nothing is asked.
    many = ", ".join(map(str, range(1, 8000, 2)))
    assert ask(bound(f"id in ({many})", fields_of(sidecar)), sidecar, file).probes.is_empty


def test_values_that_a_column_cannot_hold_are_absent() -> None:
    table = pa.table({"ratio": pa.array([0.5, 0.25, 0.0, 1.0], pa.float32())})
    file = file_with_blooms(table, row_group_rows=2)
    sidecar = sidecar_to_keep(file, inline_bytes=1 << 20)
    fields = fields_of(sidecar)
    assert ask(bound("ratio = 0.3", fields), sidecar, file).survives == [False, False]
    assert ask(bound("ratio = -0.0", fields), sidecar, file).survives == [False, True]


def test_dates_counted_in_days_are_looked_up_in_days() -> None:
    file = file_with_blooms(
        pa.table({"day": pa.array([0, 9000, 30000, 3, 8999, 29999], pa.date32())}), row_group_rows=3
    )
    sidecar = sidecar_to_keep(file, inline_bytes=1 << 20)
    milliseconds = {"day": BoundField("day", 0, canonical_type(7))}
    assert str(milliseconds["day"].type.arrow) == "timestamp[ms, UTC]"
    day_ms = 86_400_000
    for literal, survives in (
        (9000 * day_ms, [True, False]), (8999 * day_ms, [False, True]), (9000 * day_ms + 1, [False, False]),
    ):  # fmt: skip
        predicate = BoundComparison(milliseconds["day"], Operator.EQUAL, literal)
        assert ask(predicate, sidecar, file).survives == survives


def test_columns_of_a_changed_type_are_asked_only_if_the_values_stay_what_they_are() -> None:
    file = file_with_blooms(pa.table({"x": ["a", "zz"] * 2}), row_group_rows=2)
    texts = sidecar_to_keep(file, inline_bytes=1 << 20)
    symbol = {"x": BoundField("x", 0, canonical_type(12))}
    assert ask(bound("x = 'b'", symbol), texts, file).survives == [False, False]
    file = file_with_blooms(pa.table({"x": [1, 2000] * 2}), row_group_rows=2)
    numbers = sidecar_to_keep(file, inline_bytes=1 << 20)
    double = {"x": BoundField("x", 0, canonical_type(10))}
    assert ask(bound("x = 3", double), numbers, file).probes.is_empty
    # A column that is not in the file, or not known.
    other = {"x": BoundField("x", 7, resolve_type(6, PhysicalType.INT64, 0, 0))}
    assert ask(bound("x = 3", other), numbers, file).probes.is_empty


def _content(file: bytes, **chunk_changes: Any) -> SidecarContent:
    """What an external sidecar of a file says, with changes to every chunk of its first column."""
    content = sidecar_content_from_footer(parsed_footer(file))
    kept = sidecar_to_keep(file, inline_bytes=0)
    row_groups = []
    for row_group, spec in enumerate(content.row_groups):
        changed = replace(spec.chunks[0], bloom_reference=kept.bloom_location(row_group, 0), **chunk_changes)
        row_groups.append(replace(spec, chunks=[changed, *spec.chunks[1:]]))
    return replace(content, row_groups=row_groups, blooms_external=True)


@pytest.mark.parametrize(("null_count", "survives"), [(1, True), (None, True), (0, False)])
def test_zeros_that_count_as_null_are_not_in_the_filter(null_count: int | None, survives: bool) -> None:
    small = resolve_type(
        3, sidecar_to_keep(numbers_file(rows=5)[0], inline_bytes=0).column(0).physical_type.INT32, 0, 0
    )
    file = file_with_blooms(pa.table({"x": pa.array([1, 2, 500], pa.int16())}), row_group_rows=3)
    content = _content(file, null_count=null_count, min=None, max=None)
    column = replace(content.columns[0], type_code=3)
    sidecar = parse_sidecar(encode_sidecar(replace(content, columns=[column], scratchpad=[])))
    in_table = BoundField("x", 0, small)
    assert sidecar.column_type(0).never_null
    for value, expected in ((0, survives), (3, False), (2, True)):
        asked = ask(BoundComparison(in_table, Operator.EQUAL, value), sidecar, file)
        assert asked.survives == [expected], value


def test_rows_from_before_a_required_column_are_not_in_the_filter() -> None:
    file = file_with_blooms(pa.table({"x": [1, 2, 500]}), row_group_rows=3)
    for null_count, survives in ((1, True), (0, False)):
        content = _content(file, null_count=null_count, min=None, max=None)
        column = replace(content.columns[0], max_def_level=0, flags=0)
        sidecar = parse_sidecar(encode_sidecar(replace(content, columns=[column])))
        asked = ask(bound("x = 3", fields_of(sidecar)), sidecar, file)
        assert asked.survives == [survives]


def test_answers_are_not_given_before_everything_is_there() -> None:
    file, _ = numbers_file(row_groups=1)
    sidecar = sidecar_to_keep(file, inline_bytes=0)
    predicate = bound("id = 5", fields_of(sidecar))
    probes = BloomProbes(
        sidecar,
        find_lookups(predicate, SidecarStatistics(sidecar), table=sidecar, columns={0: 0}, row_groups=np.array([True])),
    )
    with pytest.raises(InternalError, match="before"):
        probes.answers()


NUMBERS = st.one_of(st.integers(0, 60), st.none())


def predicates(fields: dict[str, BoundField]) -> st.SearchStrategy[BoundPredicate]:
    value = st.integers(-3, 63)
    leaf = st.one_of(
        st.builds(BoundComparison, st.sampled_from([*fields.values()]), st.sampled_from(Operator), value),
        st.builds(
            BoundIn,
            st.sampled_from([*fields.values()]),
            st.sets(value, min_size=2, max_size=6).map(lambda found: tuple(sorted(found))),
        ),
        st.builds(BoundIsNull, st.sampled_from([*fields.values()])),
    )
    return trees(leaf)


@settings(max_examples=25)
@given(st.data(), st.sampled_from(sorted(SIDECARS)))
def test_no_row_is_ever_lost(data: st.DataObject, kind: str) -> None:
    rows = data.draw(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=24))
    table = pa.table({"a": pa.array([a for a, _ in rows], pa.int64()), "b": pa.array([b for _, b in rows], pa.int32())})
    file = file_with_blooms(table, row_group_rows=6)
    sidecar = SIDECARS[kind](file)
    for _ in range(5):
        predicate = data.draw(predicates(fields_of(sidecar)))
        asked = ask(predicate, sidecar, file)
        for row_group, survives in enumerate(asked.survives):
            matches = matching_rows(predicate, table.slice(6 * row_group, 6)).true_count
            assert survives or not matches, (row_group, str(predicate))


def test_filters_made_by_the_letter_answer_like_those_of_arrow() -> None:
    file, values = numbers_file(row_groups=1, rows=64)
    sidecar = sidecar_to_keep(file, inline_bytes=1 << 20)
    bitset = sidecar.bloom_bitset(0, 0)
    assert bitset is not None
    assert bytes(bitset) == bitset_of(values, sidecar.column_type(0), len(bitset) // 32)


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (lambda place: ByteRange(place.start, place.start + 16), "shorter than a block"),
        (lambda place: ByteRange(place.start, place.stop + (1 << 40)), "outside of the file's data"),
        (lambda place: ByteRange(1 << 50, (1 << 50) + place.length_bytes), "outside of the file's data"),
        (lambda _: ByteRange(2, 34), "outside of the file's data"),
        (lambda place: ByteRange(place.start, place.stop - 32), "a header that does not fit"),
        (lambda place: ByteRange(place.start, place.stop + 32), "a header that does not fit"),
        (lambda place: ByteRange(place.start + 3, place.stop + 3), "a header that does not fit"),
        (lambda place: ByteRange(place.start, place.stop + 1), "a header that does not fit"),
        (lambda place: ByteRange(place.start - 40, place.start - 40), "of an unknown kind"),
    ],
)
def test_filters_that_cannot_be_right_are_not_asked(change: Callable[[ByteRange], ByteRange], note: str) -> None:
    file, values = numbers_file(row_groups=2, rows=40)
    sidecar = with_references(file, change)
    fields = fields_of(sidecar)
    for value in (values[5], 12345):
        asked = ask(bound(f"id = {value}", fields), sidecar, file)
        assert asked.survives == [True, True]
        texts = asked.probes.answers().notes
        assert note in texts[-1]
        assert all(text.startswith("bloom filters of column 'id' ") for text in texts)
        assert " and ".join(texts).count("row group") == len(texts)


def test_a_header_that_claims_more_than_the_file_has() -> None:
    file, _ = numbers_file(row_groups=1, rows=40)
    place = sidecar_in_memory(file).bloom_location(0, 0)
    assert place is not None
    header = encoded_header(1 << 20)
    damaged = file[: place.start] + header + file[place.start + len(header) :]
    sidecar = with_references(file, lambda found: ByteRange(found.start, found.start))
    asked = ask(bound("id = 12345", fields_of(sidecar)), sidecar, damaged)
    assert asked.survives == [True]
    assert "behind the file's data" in asked.probes.answers().notes[0]


@pytest.mark.parametrize(("length_bytes", "note"), [(40, "no multiple of 32"), (1 << 20, "behind the sidecar")])
def test_an_inlined_filter_of_impossible_length(length_bytes: int, note: str) -> None:
    file, _ = numbers_file(row_groups=2, rows=40)
    sound = sidecar_to_keep(file, inline_bytes=1 << 20)
    offset, _ = sound.bloom_entry(0, 0)
    changed = bytearray(sound.file)
    changed[offset : offset + 4] = length_bytes.to_bytes(4, "little")
    sidecar = parse_sidecar(changed, verify_checksum=False)
    asked = ask(bound("id = 12345", fields_of(sidecar)), sidecar, file)
    assert asked.survives == [True, False]
    assert note in asked.probes.answers().notes[0]

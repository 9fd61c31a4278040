"""Footers of files that are updated in place: QuestDB's own byte for byte, and pyarrow's row groups behind old ones."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coldparquet.errors import FormatError, InternalError, InvalidInputError
from coldparquet.format import parquet_thrift
from coldparquet.format.page_headers import parse_pages
from coldparquet.format.parquet_footer import frame_footer
from coldparquet.format.parquet_thrift import OffsetIndex
from coldparquet.format.thrift import (
    FieldType,
    RawField,
    encode_fields,
    encode_integer,
    encode_structure_list,
    parse_fields,
    parse_structure_list,
)
from coldparquet.write.footer_edit import (
    FooterBytes,
    KeptRowGroup,
    NewRowGroup,
    splice_footers,
    with_decimal_precisions,
    with_null_counts,
    with_schema_of,
)
from tests.support.parquet_footers import (
    appended_to,
    footer_bytes,
    parquet_bytes,
    parsed_footer,
    snapshots_of_updates,
    written_at,
)

UPDATES = [
    pytest.param(before, after, id=f"{partition} update {number}")
    for partition, files in snapshots_of_updates().items()
    for number, (before, after) in enumerate(pairwise(files))
]
NUM_ROWS, ROW_GROUPS, KEY_VALUES, COLUMN_ORDERS = 3, 4, 5, 7


def replaced_values(structure: bytes, values: dict[int, bytes]) -> bytes:
    fields = parse_fields(structure)
    return encode_fields(RawField(f.number, f.type, values.get(f.number, f.value)) for f in fields)


def raw_row_groups(content: bytes) -> list[bytes]:
    return next(parse_structure_list(field.value) for field in parse_fields(content) if field.number == ROW_GROUPS)


def first_starts(file: bytes) -> list[int]:
    return [row_group.chunks[0].data_page_offset for row_group in parsed_footer(file).row_groups]


def test_genuine_updates_are_here() -> None:
    assert len(UPDATES) == 4


@pytest.mark.parametrize(("before", "after"), UPDATES)
def test_footers_of_genuine_updates_byte_for_byte(before: bytes, after: bytes) -> None:
    """The new row groups of QuestDB's footer alone stand for a fragment; splicing them in makes its footer again."""
    old, new = footer_bytes(before), footer_bytes(after)
    old_starts, starts = first_starts(before), first_starts(after)
    added = [index for index, start in enumerate(starts) if start not in old_starts]
    assert added
    fragment = FooterBytes(
        content=replaced_values(
            new.content,
            {
                NUM_ROWS: encode_integer(sum(parsed_footer(after).row_groups[index].row_count for index in added)),
                ROW_GROUPS: encode_structure_list([raw_row_groups(new.content)[index] for index in added]),
            },
        ),
        offset=new.offset,
    )
    order: Order = [
        NewRowGroup(added.index(index)) if index in added else KeptRowGroup(old_starts.index(start))
        for index, start in enumerate(starts)
    ]
    spliced = splice_footers(old, fragment, order)
    assert spliced.content == new.content
    assert spliced.tail == after[new.offset :]
    assert spliced.parquet_size_bytes == len(after)
    assert spliced.unused_bytes == json.loads(parsed_footer(after).questdb_json or "")["unused_bytes"]


def rows(first: int, count: int) -> pa.Table:
    start = datetime(2024, 3, 1, tzinfo=UTC)
    numbers = range(first, first + count)
    columns = {
        "ts": pa.array([start + timedelta(seconds=n) for n in numbers], pa.timestamp("us", "UTC")),
        "sym": pa.array([f"S{n % 3}" for n in numbers]).dictionary_encode(),
        "price": pa.array([None if n % 7 == 0 else n / 4 for n in numbers], pa.float64()),
        "curve": pa.array([[float(n)] * (n % 4) for n in numbers], pa.list_(pa.float64())),
    }
    schema = pa.schema(
        [
            pa.field(name, array.type, nullable=name != "ts", metadata={"PARQUET:field_id": str(index)})
            for index, (name, array) in enumerate(columns.items())
        ]
    )
    return pa.table(columns, schema=schema)


def questdb_json(symbol: dict[str, Any] | None = None, **document: Any) -> str:
    columns = [{"column_type": code, "column_top": 0} for code in (131080, 12, 10, 2587)]
    columns[1].update({"format": 1} if symbol is None else symbol)
    return json.dumps({"version": 1, "schema": columns, **document}, separators=(",", ":"))


def file_of(first: int, count: int, json_text: str | None = None) -> bytes:
    metadata = {"other": "kept", "questdb": json_text or questdb_json()}
    return written_at(0, rows(first, count), metadata=metadata, write_page_index=True, data_page_size=64)


FIRST = file_of(0, 100)
Order = list[KeptRowGroup | NewRowGroup]
BOTH_KEPT: Order = [KeptRowGroup(0), KeptRowGroup(1)]
BOTH_NEW: Order = [NewRowGroup(0), NewRowGroup(1)]


def fragment_options(json_text: str | None = None) -> dict[str, Any]:
    metadata = {"questdb": json_text or questdb_json(), "fragment": "not taken over"}
    return {"metadata": metadata, "write_page_index": True, "data_page_size": 64, "compression": "zstd"}


ORDERS: dict[str, tuple[Order, list[tuple[int, int]]]] = {
    "append": ([*BOTH_KEPT, *BOTH_NEW], [(0, 50), (50, 50), (100, 30), (130, 30)]),
    "replace the first": ([NewRowGroup(0), KeptRowGroup(1), NewRowGroup(1)], [(100, 30), (50, 50), (130, 30)]),
    "insert": ([KeptRowGroup(0), *BOTH_NEW, KeptRowGroup(1)], [(0, 50), (100, 30), (130, 30), (50, 50)]),
    "replace all": (BOTH_NEW, [(100, 30), (130, 30)]),
    "turn around": ([*reversed(BOTH_NEW), *reversed(BOTH_KEPT)], [(130, 30), (100, 30), (50, 50), (0, 50)]),
}


@pytest.mark.parametrize("what", ORDERS)
def test_pyarrow_reads_old_and_new_row_groups(what: str) -> None:
    order, slices = ORDERS[what]
    file, spliced = appended_to(FIRST, rows(100, 60), order, **fragment_options())
    assert file.startswith(FIRST)
    assert len(file) == spliced.parquet_size_bytes
    expected = pa.concat_tables([rows(0, 160).slice(first, count) for first, count in slices])
    read = pq.read_table(io.BytesIO(file))
    assert read.equals(expected.cast(read.schema))
    assert pq.read_table(io.BytesIO(file[: len(FIRST)])).num_rows == 100
    metadata = pq.read_metadata(io.BytesIO(file))
    assert metadata.num_rows == expected.num_rows
    assert metadata.created_by == pq.read_metadata(io.BytesIO(FIRST)).created_by
    assert (metadata.metadata or {}).keys() == {b"other", b"questdb"}


def test_page_indexes_still_point_at_pages() -> None:
    file, _ = appended_to(FIRST, rows(100, 60), [*BOTH_KEPT, *BOTH_NEW], **fragment_options())
    chunk_pages = []
    for row_group in raw_row_groups(footer_bytes(file).content):
        for chunk in parse_structure_list(parse_fields(row_group)[0].value):
            place = parquet_thrift.ColumnChunk.decode(chunk, path=None, offset=0)
            index = OffsetIndex.decode(file[place.offset_index_offset or 0 :], path=None, offset=0)
            for location in index.page_locations:
                pages = parse_pages(file[location.offset : location.offset + location.compressed_page_size])
                assert pages is not None
                assert [page.header.type for page in pages] == [0]
            chunk_pages.append(len(index.page_locations))
    assert len(chunk_pages) == 16
    assert max(chunk_pages) > 1


def test_unused_bytes_count_dead_row_groups_their_indexes_and_the_old_footer() -> None:
    start = json.loads(questdb_json(unused_bytes=1000))
    old = file_of(0, 100, json.dumps(start))
    metadata = pq.read_metadata(io.BytesIO(old))
    old_footer_bytes = len(old) - footer_bytes(old).offset
    _, appended = appended_to(old, rows(100, 60), [*BOTH_KEPT, *BOTH_NEW], **fragment_options())
    assert appended.unused_bytes == 1000 + old_footer_bytes
    _, replaced = appended_to(old, rows(100, 60), BOTH_NEW, **fragment_options())
    # All that is left of the old file is its leading magic.
    chunk_bytes = sum(metadata.row_group(i).column(c).total_compressed_size for i in (0, 1) for c in range(4))
    assert replaced.unused_bytes == 1000 + len(old) - 4
    assert replaced.unused_bytes > 1000 + chunk_bytes + old_footer_bytes
    # A crash left bytes behind the old file.
    behind = old + bytes(77)
    fragment = written_at(len(behind), rows(100, 60), **fragment_options())
    behind_dead = splice_footers(footer_bytes(old), footer_bytes(behind + fragment), [*BOTH_KEPT, *BOTH_NEW])
    assert behind_dead.unused_bytes == appended.unused_bytes + 77


SYMBOL_CASES: dict[str, tuple[dict[str, Any], dict[str, Any], Order, dict[str, Any]]] = {
    "both keep keys": ({"format": 1}, {"format": 1}, BOTH_KEPT, {"format": 1}),
    "new ones do not": ({"format": 1}, {}, BOTH_KEPT, {}),
    "old ones do not": ({}, {"format": 1}, BOTH_KEPT, {}),
    "old ones are gone": ({}, {"format": 1}, [], {"format": 1}),
    "both are ASCII": ({"ascii": True}, {"ascii": True}, BOTH_KEPT, {"ascii": True}),
    "new ones are not ASCII": ({"ascii": True}, {"ascii": False}, BOTH_KEPT, {"ascii": False}),
    "new ones are unknown": ({"ascii": True}, {}, BOTH_KEPT, {"ascii": False}),
    "old ones are not ASCII": ({"ascii": False}, {"ascii": True}, BOTH_KEPT, {"ascii": False}),
    "ASCII and old ones are gone": ({"ascii": False}, {"ascii": True}, [], {"ascii": True}),
    "ASCII was never told": ({}, {"ascii": True}, BOTH_KEPT, {}),
    "id and top stay": ({"id": 9, "column_top": 3}, {"id": 4}, BOTH_KEPT, {"id": 9, "column_top": 3}),
}


@pytest.mark.parametrize("what", SYMBOL_CASES)
def test_json_promises_only_what_holds_for_every_row_group(what: str) -> None:
    old, new, kept, expected = SYMBOL_CASES[what]
    file, spliced = appended_to(
        file_of(0, 100, questdb_json(old)), rows(100, 60), [*kept, *BOTH_NEW], **fragment_options(questdb_json(new))
    )
    says = json.loads(parsed_footer(file).questdb_json or "")
    assert says["schema"][1] == {"column_type": 12, "column_top": 0} | expected
    assert says["unused_bytes"] == spliced.unused_bytes


def test_transaction_of_the_json_is_given_or_the_fragments_or_stays() -> None:
    old, order = file_of(0, 100, questdb_json(seq_txn=5, squash_tracker=2)), [*BOTH_KEPT, *BOTH_NEW]
    cases: list[tuple[dict[str, Any], int | None, int | None]] = [
        ({}, None, 5),
        ({"seq_txn": 6}, None, 6),
        ({"seq_txn": 6}, 7, 7),
        ({}, -1, None),
    ]
    for stated, given, expected in cases:
        fragment = written_at(len(old), rows(100, 60), **fragment_options(questdb_json(**stated)))
        placed = footer_bytes(old + fragment)
        spliced = splice_footers(footer_bytes(old), placed, order, seq_txn=given)
        says = json.loads(parsed_footer(spliced.tail).questdb_json or "")
        assert (says.get("seq_txn"), says["squash_tracker"]) == (expected, 2)


def test_files_without_json_get_none() -> None:
    old = written_at(0, rows(0, 100))
    file, spliced = appended_to(old, rows(100, 60), [*BOTH_KEPT, *BOTH_NEW], **fragment_options())
    assert parsed_footer(file).questdb_json is None
    assert pq.read_table(io.BytesIO(file)).num_rows == 160
    assert spliced.unused_bytes == len(old) - footer_bytes(old).offset


UNKNOWN = RawField(1000, FieldType.STRUCT, encode_fields([RawField(3, FieldType.BINARY, b"\x05later")]))


def with_unknown_fields(file: bytes) -> bytes:
    """Add a field of a later version to the footer, to every row group and to every column chunk."""
    raw = footer_bytes(file)
    row_groups = []
    for row_group in raw_row_groups(raw.content):
        columns = [
            encode_fields([*parse_fields(chunk), UNKNOWN])
            for chunk in parse_structure_list(parse_fields(row_group)[0].value)
        ]
        known = parse_fields(replaced_values(row_group, {1: encode_structure_list(columns)}))
        row_groups.append(encode_fields([*known, UNKNOWN]))
    known = parse_fields(replaced_values(raw.content, {ROW_GROUPS: encode_structure_list(row_groups)}))
    return file[: raw.offset] + frame_footer(encode_fields([*known, UNKNOWN]))


def test_unknown_fields_survive() -> None:
    old = with_unknown_fields(FIRST)
    placed = with_unknown_fields(old + written_at(len(old), rows(100, 60), **fragment_options()))
    spliced = splice_footers(footer_bytes(old), footer_bytes(placed), [KeptRowGroup(1), NewRowGroup(0), NewRowGroup(1)])
    _, kept = raw_row_groups(footer_bytes(old).content)
    assert raw_row_groups(spliced.content) == [kept, *raw_row_groups(footer_bytes(placed).content)]
    assert parse_fields(spliced.content)[-1] == UNKNOWN
    file = placed[: spliced.offset] + spliced.tail
    assert pq.read_table(io.BytesIO(file)).column("ts").to_pylist() == rows(50, 110).column("ts").to_pylist()


def test_order_of_bounds_is_declared_only_if_both_files_do() -> None:
    order = [*BOTH_KEPT, *BOTH_NEW]
    fragment = FIRST + written_at(len(FIRST), rows(100, 60), **fragment_options())
    new = footer_bytes(fragment)
    assert all(parsed_footer(splice_footers(footer_bytes(FIRST), new, order).tail).has_type_order)
    fields = [field for field in parse_fields(new.content) if field.number != COLUMN_ORDERS]
    undeclared = FooterBytes(content=encode_fields(fields), offset=new.offset)
    assert not any(parsed_footer(splice_footers(footer_bytes(FIRST), undeclared, order).tail).has_type_order)


@pytest.mark.parametrize(
    "order",
    [
        [*BOTH_KEPT, NewRowGroup(0)],
        [*BOTH_KEPT, *BOTH_NEW, NewRowGroup(1)],
        [*BOTH_KEPT, *BOTH_NEW, NewRowGroup(2)],
        [KeptRowGroup(0), KeptRowGroup(0), *BOTH_NEW],
        [KeptRowGroup(2), *BOTH_NEW],
        [KeptRowGroup(-1), *BOTH_NEW],
    ],
    ids=["new one left out", "new one twice", "no such new one", "old one twice", "no such old one", "negative"],
)
def test_row_groups_that_do_not_exist_or_repeat_are_refused(order: Order) -> None:
    with pytest.raises(InvalidInputError) as caught:
        appended_to(FIRST, rows(100, 60), order, **fragment_options())
    assert (caught.value.kind, caught.value.details["field"]) == ("InvalidValue", "row_groups")


def test_fragment_written_from_offset_zero_is_refused() -> None:
    """Its offsets would lead into the old row groups."""
    placed = FIRST + written_at(0, rows(100, 60), **fragment_options())
    with pytest.raises(InvalidInputError) as caught:
        splice_footers(footer_bytes(FIRST), footer_bytes(placed), [*BOTH_KEPT, *BOTH_NEW])
    assert (caught.value.kind, caught.value.details["field"]) == ("InvalidValue", "offset")


def cast(column: str, arrow_type: pa.DataType, **changes: Any) -> pa.Table:
    table = rows(100, 60)
    index = table.column_names.index(column)
    field = table.schema.field(index)
    field = pa.field(
        changes.get("name", field.name),
        arrow_type,
        nullable=changes.get("nullable", field.nullable),
        metadata=changes.get("metadata", field.metadata),
    )
    return table.set_column(index, field, table.column(column).cast(arrow_type))


OTHER_COLUMNS = {
    "column missing": (rows(100, 60).drop_columns(["sym"]), "columns"),
    "other name": (cast("price", pa.float64(), name="cost"), "name"),
    "other physical type": (cast("price", pa.float32()), "physical_type"),
    "other unit": (cast("ts", pa.timestamp("ms", "UTC"), nullable=False), "logical"),
    "nullable timestamp": (cast("ts", pa.timestamp("us", "UTC"), nullable=True), "repetition"),
    "other field id": (cast("price", pa.float64(), metadata={"PARQUET:field_id": "77"}), "field_id"),
    "elements that are never null": (
        cast("curve", pa.list_(pa.field("element", pa.float64(), nullable=False))),
        "level",
    ),
}


@pytest.mark.parametrize("what", OTHER_COLUMNS)
def test_other_columns_are_refused(what: str) -> None:
    table, named = OTHER_COLUMNS[what]
    with pytest.raises(InvalidInputError) as caught:
        appended_to(FIRST, table, [*BOTH_KEPT, *BOTH_NEW], write_page_index=True)
    assert caught.value.kind == "SchemaMismatch"
    assert named in caught.value.message


def test_field_ids_may_be_missing() -> None:
    table = cast("price", pa.float64(), metadata={})
    file, _ = appended_to(FIRST, table, [*BOTH_KEPT, *BOTH_NEW], **fragment_options())
    assert [leaf.field_id for leaf in parsed_footer(file).leaves] == [0, 1, 2, 3]


def test_damaged_footers_are_refused_with_their_path() -> None:
    old = footer_bytes(FIRST)
    placed = footer_bytes(FIRST + written_at(len(FIRST), rows(100, 60), **fragment_options()))
    for length in range(0, len(old.content), 7):
        cut = FooterBytes(content=old.content[:length], offset=old.offset, path="t/data.parquet")
        with pytest.raises(FormatError) as caught:
            splice_footers(cut, placed, [*BOTH_KEPT, *BOTH_NEW])
        assert caught.value.path == "t/data.parquet"


# --- Corrections of a footer change what they say and nothing else ---


def written_file(rows: pa.Table, **options: Any) -> bytes:
    return parquet_bytes(rows, row_group_size=2, store_schema=False, write_page_index=True, **options)


def footer_of(file: bytes) -> bytes:
    return file[-8 - int.from_bytes(file[-8:-4], "little") : -8]


def with_footer(file: bytes, footer: bytes) -> pq.ParquetFile:
    return pq.ParquetFile(io.BytesIO(file[: -8 - len(footer_of(file))] + frame_footer(footer)))


ROWS = pa.table({"a": pa.array([1, None, 3], pa.int32()), "d": pa.array([Decimal(1)] * 3, pa.decimal128(9, 2))})


def test_decimals_get_their_digits() -> None:
    file = written_file(ROWS)
    changed = with_footer(file, with_decimal_precisions(footer_of(file), {1: 5}))
    assert changed.schema_arrow.field("d").type == pa.decimal128(5, 2)
    assert changed.read().equals(ROWS.cast(pa.schema([ROWS.schema.field("a"), pa.field("d", pa.decimal128(5, 2))])))
    assert with_decimal_precisions(footer_of(file), {}) == footer_of(file)


def test_null_counts_where_there_were_no_statistics() -> None:
    file = written_file(ROWS, write_statistics=["d"])
    changed = with_footer(file, with_null_counts(footer_of(file), [{0: 1}, {0: 0}])).metadata
    for group, nulls in ((0, 1), (1, 0)):
        column: Any = changed.row_group(group).column(0)
        assert column.statistics.null_count == nulls
        assert not column.statistics.has_min_max
        others: Any = changed.row_group(group).column(1).statistics
        assert others.min == Decimal(1)
        assert column.has_offset_index
    assert changed.num_rows == 3


def test_schema_of_another_file() -> None:
    file = written_file(ROWS)
    other = written_file(ROWS.rename_columns(["x", "y"]))
    changed = with_schema_of(footer_of(file), footer_of(other))
    assert with_footer(file, changed).schema_arrow.names == ["x", "y"]
    assert with_schema_of(changed, footer_of(file)) == footer_of(file)


def test_schema_of_a_file_that_is_stored_otherwise() -> None:
    other = written_file(ROWS.set_column(0, "a", pa.array([1, 2, 3], pa.int64())))
    with pytest.raises(InternalError, match="not stored as the schema"):
        with_schema_of(footer_of(written_file(ROWS)), footer_of(other))


def test_what_is_no_footer() -> None:
    with pytest.raises(FormatError, match="field 2"):
        with_decimal_precisions(b"\0", {1: 5})

"""The columns of a table, and where each of them is in a partition that was written when the table was another."""

from __future__ import annotations

import json

import pytest

from coldparquet.errors import UnsupportedError
from coldparquet.format.partition_names import PartitionInterval
from coldparquet.format.sidecar import Sidecar, parse_sidecar
from coldparquet.format.sidecar_layout import Repetition, column_flags
from coldparquet.format.sidecar_writer import ColumnSpec, SidecarContent, encode_sidecar
from coldparquet.format.table_metadata import MetadataSlot, TableMetadata, parse_table_metadata
from coldparquet.format.type_codes import TypeTag, parse_type_name
from coldparquet.format.types import canonical_type
from coldparquet.plan.columns import (
    ColumnMatcher,
    TableColumn,
    columns_left_out,
    match_columns,
    table_columns,
    table_columns_of_metadata,
    unified_columns,
)
from coldparquet.records import replace
from tests.support.questdb_tables import GOLDEN

TIMESTAMP, INT, LONG, DOUBLE, VARCHAR, SYMBOL = 131_080, TypeTag.INT, TypeTag.LONG, TypeTag.DOUBLE, 26, 12


def metadata_of(*slots: MetadataSlot) -> TableMetadata:
    return TableMetadata(
        interval=PartitionInterval.DAY,
        designated_timestamp=0,
        table_id=1,
        metadata_version=1,
        wal_enabled=True,
        slots=(MetadataSlot(name="ts", type_code=TIMESTAMP), *slots),
    )


def partition_of(*columns: tuple[str, int, int]) -> Sidecar:
    """Return a sidecar of columns, each with name, id and type code."""
    specs = []
    for name, column_id, type_code in columns:
        storage = canonical_type(type_code)
        specs.append(
            ColumnSpec(
                name=name,
                id=column_id,
                type_code=type_code,
                physical_type=storage.physical_type,
                fixed_byte_length=storage.fixed_byte_length,
                flags=column_flags(repetition=Repetition.OPTIONAL),
                max_def_level=1,
            )
        )
    content = SidecarContent(columns=specs, row_groups=[], parquet_footer_offset=4, parquet_footer_length=1)
    return parse_sidecar(encode_sidecar(content), path="t/2024-03-01/_pm")


def places(metadata: TableMetadata, partition: Sidecar) -> dict[str, int | None]:
    columns = table_columns_of_metadata(metadata)
    found = match_columns(columns, partition)
    return {column.name: found[column.index] for column in columns}


@pytest.mark.parametrize("table", sorted(path.parent.parent.name for path in GOLDEN.glob("*/expected/columns.json")))
def test_columns_of_metadata_are_those_that_questdb_shows(table: str) -> None:
    metadata = parse_table_metadata((GOLDEN / table / "table" / "_meta").read_bytes(), path=None)
    columns = table_columns_of_metadata(metadata)
    shown = json.loads((GOLDEN / table / "expected" / "columns.json").read_text())
    assert [(column.name, column.readable_type.name) for column in columns] == [
        (row["column"], row["type"]) for row in shown
    ]
    assert [column.index for column in columns] == list(range(len(shown)))
    assert [column.id for column in columns] == [column.writer_index for column in metadata.columns]


def test_a_type_that_is_not_read_is_a_problem_only_of_its_column() -> None:
    _, odd = table_columns_of_metadata(metadata_of(MetadataSlot(name="odd", type_code=244)))
    assert odd.type is None
    with pytest.raises(UnsupportedError, match="column 'odd' cannot be read: column type code 244"):
        _ = odd.readable_type


def test_columns_are_found_by_id_whatever_their_name_and_place() -> None:
    metadata = metadata_of(MetadataSlot(name="price", type_code=DOUBLE), MetadataSlot(name="qty", type_code=LONG))
    partition = partition_of(("qty", 2, LONG), ("time", 0, TIMESTAMP), ("was price", 1, DOUBLE))
    assert places(metadata, partition) == {"ts": 1, "price": 2, "qty": 0}


def test_a_dropped_column_does_not_come_back_under_its_name() -> None:
    metadata = metadata_of(
        MetadataSlot(name="price", type_code=DOUBLE, is_dropped=True), MetadataSlot(name="price", type_code=DOUBLE)
    )
    before, after = partition_of(("ts", 0, TIMESTAMP), ("price", 1, DOUBLE)), partition_of(("price", 2, DOUBLE))
    assert places(metadata, before) == {"ts": 0, "price": None}
    assert places(metadata, after) == {"ts": None, "price": 0}


def test_a_column_whose_type_was_changed_is_found_under_its_former_id() -> None:
    metadata = metadata_of(
        MetadataSlot(name="qty", type_code=INT, is_dropped=True),
        MetadataSlot(name="other", type_code=LONG),
        MetadataSlot(name="qty", type_code=LONG, replaced_index=1),
    )
    columns = table_columns_of_metadata(metadata)
    assert [(column.name, column.id, column.superseded_ids) for column in columns] == [
        ("ts", 0, ()), ("qty", 3, (1,)), ("other", 2, ())
    ]  # fmt: skip
    assert places(metadata, partition_of(("qty", 1, INT), ("other", 2, LONG))) == {"ts": None, "qty": 0, "other": 1}
    assert places(metadata, partition_of(("qty", 3, LONG), ("qty", 1, INT)))["qty"] == 0


def test_a_partition_that_is_two_type_changes_behind_is_refused() -> None:
    """What becomes of a DOUBLE that was INT in between is not what becomes of it at once."""
    metadata = metadata_of(
        MetadataSlot(name="x", type_code=DOUBLE, is_dropped=True),
        MetadataSlot(name="x", type_code=INT, is_dropped=True, replaced_index=1),
        MetadataSlot(name="x", type_code=VARCHAR, replaced_index=1),
    )
    assert table_columns_of_metadata(metadata)[1].superseded_ids == (2, 1)
    assert places(metadata, partition_of(("x", 2, INT)))["x"] == 0
    with pytest.raises(UnsupportedError, match="not converted more than once"):
        places(metadata, partition_of(("x", 1, DOUBLE)))


@pytest.mark.parametrize(
    ("stored", "wanted"), [("UUID", "LONG"), ("LONG256", "VARCHAR"), ("INT", "CHAR"), ("CHAR", "INT")]
)
def test_a_type_that_does_not_become_the_other_is_refused(stored: str, wanted: str) -> None:
    metadata = metadata_of(
        MetadataSlot(name="x", type_code=parse_type_name(stored), is_dropped=True),
        MetadataSlot(name="x", type_code=parse_type_name(wanted), replaced_index=1),
    )
    partition = partition_of(("ts", 0, TIMESTAMP), ("x", 1, parse_type_name(stored)))
    with pytest.raises(
        UnsupportedError, match=f"column 'x' is {stored} here, but {wanted} in the table.*CONVERT"
    ) as caught:
        places(metadata, partition)
    assert caught.value.kind == "ChangedColumnType"
    assert caught.value.path == "t/2024-03-01/_pm"
    assert caught.value.details["stored_type"] == stored
    timestamp = table_columns_of_metadata(metadata)[:1]
    assert match_columns(timestamp, partition) == {0: 0}, "columns that are not asked for do not matter"


def test_foreign_files_are_matched_by_name_and_never_converted() -> None:
    metadata = metadata_of(MetadataSlot(name="n", type_code=LONG), MetadataSlot(name="s", type_code=SYMBOL))
    assert places(metadata, partition_of(("s", -1, VARCHAR), ("n", -1, LONG))) == {"ts": None, "n": 1, "s": 0}
    with pytest.raises(UnsupportedError, match="column 'n' is INT here, but LONG in the table"):
        places(metadata, partition_of(("n", -1, INT)))


def test_ids_that_repeat_tell_nothing() -> None:
    metadata = metadata_of(MetadataSlot(name="n", type_code=LONG))
    assert places(metadata, partition_of(("other", 1, LONG), ("n", 1, LONG))) == {"ts": None, "n": 1}


def test_a_column_without_id_among_others_with_one_is_matched_by_name() -> None:
    metadata = metadata_of(MetadataSlot(name="n", type_code=LONG), MetadataSlot(name="m", type_code=LONG))
    assert places(metadata, partition_of(("n", -1, LONG), ("m", 7, LONG))) == {"ts": None, "n": 0, "m": None}


def test_tables_without_metadata_are_as_their_newest_partition() -> None:
    foreign = unified_columns(partition_of(("a", -1, LONG)))
    assert match_columns(foreign, partition_of(("b", 0, LONG), ("a", 1, LONG))) == {0: 1}
    newest = unified_columns(partition_of(("ts", 0, TIMESTAMP), ("a", 1, LONG), ("b", 2, LONG)))
    for columns, expected in (
        ((("ts", 0, TIMESTAMP), ("b", 1, LONG)), {0: 0, 1: None, 2: 1}),
        ((("b", 0, LONG), ("a", 1, LONG), ("ts", 2, TIMESTAMP)), {0: 2, 1: 1, 2: 0}),
        ((("x", 0, LONG), ("ts", 1, TIMESTAMP), ("a", 2, LONG), ("b", 3, LONG)), {0: 1, 1: 2, 2: 3}),
        ((("b", 9, LONG), ("ts", 9, TIMESTAMP)), {0: 1, 1: None, 2: 0}),
        ((("b", -1, LONG), ("ts", 0, TIMESTAMP)), {0: 1, 1: None, 2: 0}),
    ):
        assert match_columns(newest, partition_of(*columns)) == expected, columns


@pytest.mark.parametrize(
    ("older", "message"),
    [
        ((("ts", 0, TIMESTAMP), ("was a", 1, LONG)), "is not here, but 'was a' with the same id: it was renamed, or"),
        ((("ts", 0, TIMESTAMP), ("a", 3, LONG)), "has id 3 here: it was dropped and added again, its type was changed"),
        ((("ts", 0, TIMESTAMP), ("a", 3, LONG), ("was a", 1, LONG)), "has id 3 here: it was dropped and added again"),
    ],
)
def test_without_metadata_names_and_ids_that_contradict_each_other_are_refused(
    older: tuple[tuple[str, int, int], ...], message: str
) -> None:
    newest, partition = partition_of(("ts", 0, TIMESTAMP), ("a", 1, LONG)), partition_of(*older)
    timestamp, column = unified_columns(newest)
    with pytest.raises(UnsupportedError, match=f"'a', with id 1 in the newest partition, {message}") as caught:
        match_columns([column], partition)
    assert (caught.value.kind, caught.value.path) == ("AmbiguousColumn", "t/2024-03-01/_pm")
    assert "columns_from='all'" in str(caught.value)
    assert match_columns([timestamp], partition) == {0: 0}, "columns that are not asked for do not matter"
    by_name = unified_columns(newest, [partition], by_name=True)
    assert match_columns(by_name, partition)[1] == partition.column_index("a")
    assert {column.name for column in by_name} == {"ts", "a", *(name for name, *_ in older)}


def test_the_columns_of_several_partitions() -> None:
    newest = partition_of(("a", 4, LONG), ("b", -1, INT))
    older = partition_of(("was a", 4, LONG), ("b", -1, LONG), ("dropped", 7, INT), ("a", 9, LONG), ("c", -1, DOUBLE))
    columns = unified_columns(newest, [older, older])
    assert [(column.name, column.id, column.readable_type.name) for column in columns] == [
        ("a", 4, "LONG"), ("b", -1, "LONG"), ("c", -1, "DOUBLE")
    ]  # fmt: skip
    assert [column.index for column in columns] == [0, 1, 2]
    assert match_columns(columns[1:], older) == {1: 1, 2: 4}
    assert columns_left_out(columns, older) == ("was a", "dropped", "a")
    by_name = unified_columns(newest, [older], by_name=True)
    assert [column.name for column in by_name] == ["a", "b", "was a", "dropped", "c"]
    assert match_columns(by_name, older) == {0: 3, 1: 1, 2: 0, 3: 2, 4: 4}
    assert match_columns(by_name, newest) == {0: 0, 1: 1, 2: None, 3: None, 4: None}
    assert columns_left_out(by_name, older) == ()


def test_a_problem_of_the_partition_s_type_is_told() -> None:
    column = TableColumn(index=0, name="x", id=3, type=canonical_type(LONG))
    broken = partition_of(("x", 3, LONG))
    broken = parse_sidecar(encode_sidecar(with_unknown_type(broken)), path="p")
    with pytest.raises(UnsupportedError, match=r"its Parquet type has no QuestDB counterpart.* here, but LONG"):
        match_columns([column], broken)


def with_unknown_type(sidecar: Sidecar) -> SidecarContent:
    column = sidecar.column(0)
    spec = ColumnSpec(
        name=column.name, id=column.id, type_code=LONG, physical_type=column.physical_type, flags=column.flags
    )
    return SidecarContent(
        columns=[replace(spec, type_code=-1)], row_groups=[], parquet_footer_offset=4, parquet_footer_length=1
    )


def test_partitions_with_the_same_columns_share_what_is_known_of_them() -> None:
    columns = table_columns(partition_of(("a", 0, LONG), ("b", 1, DOUBLE)))
    matcher = ColumnMatcher(columns)
    first, second = (partition_of(("a", 0, LONG), ("b", 1, DOUBLE)) for _ in range(2))
    assert first.schema is second.schema
    assert matcher.places(first) is matcher.places(second)
    moved = partition_of(("b", 1, DOUBLE), ("a", 0, LONG))
    assert moved.schema is not first.schema
    assert matcher.places(moved) == {0: 1, 1: 0}
    assert moved.column(0).name == "b"

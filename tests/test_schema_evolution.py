"""Columns that were renamed, dropped, added or changed after every partition had become Parquet, end to end.

QuestDB 9.3.4 cannot read, or not even make, such tables; so their `_meta` is written here, over its genuine files.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import coldparquet as cp
from coldparquet.errors import FormatError, InvalidInputError, UnsupportedError
from coldparquet.format.table_metadata import MetadataSlot
from coldparquet.format.type_codes import parse_type_name
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.verify import verify_table
from tests.support.questdb_tables import assert_same_rows, expected_rows
from tests.support.table_copies import alter, change_type, copy_table, position, slots_of

if TYPE_CHECKING:
    from pathlib import Path

TABLE = "interval_month"
"""Five partitions in Parquet, none native."""


@pytest.fixture(params=["footers", "sidecars"])
async def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    copied = copy_table(TABLE, tmp_path)
    if request.param == "sidecars":
        await index_table(copied)
    return copied


async def read(table: Path, *, where: str | None = None) -> pa.Table:
    async with cp.open_table(table) as opened:
        return await opened.scan(where=where).to_arrow()


async def test_a_renamed_column_is_found_by_its_id(table: Path) -> None:
    slots = slots_of(table)
    index = position(slots, "price")
    slots[index] = replace(slots[index], name="cost")
    alter(table, slots)
    names = ["cost" if name == "price" else name for name in expected_rows(TABLE).schema.names]
    assert_same_rows(await read(table), expected_rows(TABLE).rename_columns(names))


async def test_a_column_that_was_dropped_does_not_come_back_with_a_new_one_of_its_name(table: Path) -> None:
    slots = slots_of(table)
    index = position(slots, "price")
    slots[index] = replace(slots[index], is_dropped=True)
    alter(table, slots)
    assert_same_rows(await read(table), expected_rows(TABLE).drop_columns(["price"]))
    async with cp.open_table(table) as opened:
        with pytest.raises(InvalidInputError, match="there is no column 'price'"):
            opened.scan(["price"])
    alter(table, [*slots, MetadataSlot(name="price", type_code=parse_type_name("DOUBLE"))])
    rows = await read(table)
    assert rows.schema.names[-1] == "price"
    assert rows.column("price").null_count == rows.num_rows == 200


async def test_added_columns_are_null_or_zero(table: Path) -> None:
    added = {"remark": "VARCHAR", "flag": "BOOLEAN", "small": "SHORT", "many": "DOUBLE[]"}
    slots = [MetadataSlot(name=name, type_code=parse_type_name(type_name)) for name, type_name in added.items()]
    alter(table, [*slots_of(table), *slots])
    rows = await read(table)
    assert_same_rows(rows.drop_columns(list(added)), expected_rows(TABLE))
    values = {name: set(map(str, rows.column(name).to_pylist())) for name in added}
    assert values == {"remark": {"None"}, "flag": {"False"}, "small": {"0"}, "many": {"None"}}
    assert (await read(table, where="remark is null and small = 0")).num_rows == 200


async def test_changed_types_are_converted_where_rows_are_read_and_where_they_are_filtered(table: Path) -> None:
    before = expected_rows(TABLE)
    change_type(table, "price", "FLOAT")
    change_type(table, "id", "VARCHAR")
    rows = await read(table)
    assert rows.schema.names == before.schema.names
    assert rows.column("price").cast(pa.float32()).equals(before.column("price").cast(pa.float32()))
    assert rows.column("id").to_pylist() == [str(number) for number in before.column("id").to_pylist()]
    wanted = before.column("id").to_pylist()[7]
    assert (await read(table, where=f"id = '{wanted}'")).column("id").to_pylist() == [str(wanted)]


async def test_what_was_changed_twice_or_has_no_conversion_is_refused_and_can_be_left_out(table: Path) -> None:
    change_type(table, "id", "VARCHAR", "INT")
    change_type(table, "price", "UUID")
    async with cp.open_table(table) as opened:
        for name, message in (("id", "not converted more than once"), ("price", "such values are not converted;")):
            with pytest.raises(UnsupportedError, match=message) as caught:
                await opened.scan([name]).to_arrow()
            assert caught.value.kind == "ChangedColumnType"
        others = [name for name in opened.schema.names if name not in {"id", "price"}]
        assert_same_rows(await opened.scan(others).to_arrow(), expected_rows(TABLE).select(others))


async def test_a_type_that_no_statement_gave_the_column_is_an_error(table: Path) -> None:
    """A bit of `_meta`, which has no checksum, makes a LONG a BYTE."""
    slots = slots_of(table)
    index = position(slots, "id")
    assert slots[index].type_code == parse_type_name("LONG")
    before = expected_rows(TABLE)
    for bit in range(8):
        alter(
            table,
            [*slots[:index], replace(slots[index], type_code=slots[index].type_code ^ 1 << bit), *slots[index + 1 :]],
        )
        async with cp.open_table(table) as opened:
            with pytest.raises((FormatError, UnsupportedError), match="id") as caught:
                await opened.scan(["id"]).to_arrow()
            assert caught.value.kind in {"SchemaMismatch", "UnsupportedColumn"}
            with pytest.raises((FormatError, UnsupportedError)):
                await opened.scan(["price"], "id = 1").count()
            others = [name for name in before.schema.names if name != "id"]
            assert_same_rows(await opened.scan(others).to_arrow(), before.select(others))
    alter(table, [*slots[:index], replace(slots[index], type_code=parse_type_name("BYTE")), *slots[index + 1 :]])
    with pytest.raises(
        FormatError, match=r"'id' is LONG here, but BYTE in the table's _meta, which knows of no change"
    ):
        await read(table)
    [finding] = (await verify_table(table)).findings
    assert (finding.severity, finding.kind, finding.column) == ("error", "SchemaMismatch", "id")

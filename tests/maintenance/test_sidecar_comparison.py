"""Two sidecars of one Parquet file: every field that differs is named, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldparquet.catalog.findings import Finding
from coldparquet.format.parquet_footer import writer_entry
from coldparquet.format.sidecar import Sidecar, parse_sidecar
from coldparquet.format.sidecar_header import ScratchpadEntry
from coldparquet.format.sidecar_layout import Codec, PhysicalType, Repetition, column_flags
from coldparquet.format.sidecar_writer import (
    BoundSpec,
    ChunkSpec,
    ColumnSpec,
    RowGroupSpec,
    SidecarContent,
    encode_sidecar,
)
from coldparquet.format.type_codes import DESIGNATED_BIT, TypeTag
from coldparquet.format.types import FOREIGN_ANNOTATIONS_CODE, ForeignAnnotation, encode_foreign_annotations
from coldparquet.maintenance.sidecar_comparison import compare_sidecars
from coldparquet.records import replace
from tests.support.sidecar_strategies import contents

REMEDY = "write it anew"
TIME, PRICE, NAME = range(3)


def chunk(place: int) -> ChunkSpec:
    return ChunkSpec(
        codec=Codec.ZSTD,
        encodings=1,
        num_values=10,
        byte_range_start=100 * place,
        total_compressed_bytes=90,
        null_count=0,
        distinct_count=7,
        min=BoundSpec((place).to_bytes(8, "little")),
        max=BoundSpec(b"a text of more than 8 bytes, number %d" % place),
    )


COLUMNS = (
    ColumnSpec(name="time", type_code=TypeTag.TIMESTAMP | DESIGNATED_BIT, physical_type=PhysicalType.INT64, id=0),
    ColumnSpec(name="price", type_code=TypeTag.LONG, physical_type=PhysicalType.INT64, id=1),
    ColumnSpec(name="name", type_code=TypeTag.VARCHAR, physical_type=PhysicalType.BYTE_ARRAY, id=2),
)
CONTENT = SidecarContent(
    columns=COLUMNS,
    row_groups=[
        RowGroupSpec(row_count=10, chunks=[chunk(1 + 3 * group + column) for column in range(3)]) for group in range(4)
    ],
    parquet_footer_offset=2000,
    parquet_footer_length=300,
    designated_timestamp=TIME,
    sorting_columns=[TIME],
)


def parsed(content: SidecarContent) -> Sidecar:
    return parse_sidecar(encode_sidecar(content))


def with_chunks(column: int, row_groups: set[int], **changes: Any) -> SidecarContent:
    """The content with other fields in these chunks."""
    groups = []
    for index, group in enumerate(CONTENT.row_groups):
        chunks = list(group.chunks)
        if index in row_groups:
            chunks[column] = replace(chunks[column], **changes)
        groups.append(replace(group, chunks=chunks))
    return replace(CONTENT, row_groups=groups)


def with_column(column: int, **changes: Any) -> SidecarContent:
    columns = list(COLUMNS)
    columns[column] = replace(columns[column], **changes)
    return replace(CONTENT, columns=columns)


def compared(found: SidecarContent, derived: SidecarContent = CONTENT) -> tuple[Finding, ...]:
    return compare_sidecars(parsed(found), parsed(derived), remedy=REMEDY)


@settings(max_examples=40)
@given(contents())
def test_a_sidecar_agrees_with_itself(content: SidecarContent) -> None:
    # Which notes random scratchpads hold does not matter here.
    sidecar = parsed(replace(content, scratchpad=[]))
    assert compare_sidecars(sidecar, sidecar, remedy=REMEDY) == ()


CHUNK_CHANGES = {
    "codec": (Codec.SNAPPY, "1", "6"),
    "encodings": (2, "2", "1"),
    "num_values": (11, "11", "10"),
    "byte_range_start": (2**63, "9,223,372,036,854,775,808", "500"),
    "total_compressed": (91, "91", "90"),
    "null_count": (1, "1", "0"),
    "distinct_count": (8, "8", "7"),
    "min": (BoundSpec(b"\x09"), "0x09", "0x0500000000000000"),
    "max": (BoundSpec(b"a text of more than 8 bytes, number 6"), "0x612074657874206f66206d6f72652074...", "0x6120"),
}


@pytest.mark.parametrize("field", CHUNK_CHANGES)
def test_every_field_of_a_chunk(field: str) -> None:
    value, shown, true = CHUNK_CHANGES[field]
    name = {"total_compressed": "total_compressed_bytes"}.get(field, field)
    (finding,) = compared(with_chunks(PRICE, {1}, **{name: value}))
    assert (finding.severity, finding.kind, finding.field) == ("error", "SidecarDiffers", field)
    assert (finding.column, finding.row_groups, finding.remedy) == ("price", (1,), REMEDY)
    assert finding.message.startswith(
        f"{field} of column 'price' differs in row group 1: {shown} in the sidecar, {true}"
    )


COLUMN_CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "name": ({"name": "cost"}, "'cost' in the sidecar, 'price' in the footer"),
    "id": ({"id": 7}, "7 in the sidecar, 1 in the footer"),
    "type_code": ({"type_code": TypeTag.DOUBLE}, "10 in the sidecar, 6 in the footer"),
    "physical_type": ({"physical_type": PhysicalType.DOUBLE}, "DOUBLE in the sidecar, INT64 in the footer"),
    "fixed_byte_length": ({"fixed_byte_length": 16}, "16 in the sidecar, 0 in the footer"),
    "max_rep_level": ({"max_rep_level": 1}, "1 in the sidecar, 0 in the footer"),
    "max_def_level": ({"max_def_level": 1}, "1 in the sidecar, 0 in the footer"),
    "repetition": (
        {"flags": column_flags(repetition=Repetition.OPTIONAL)},
        "OPTIONAL in the sidecar, REQUIRED in the footer",
    ),
    "descending": ({"flags": column_flags(repetition=Repetition.REQUIRED, descending=True)}, "True in the sidecar"),
    "is_ascii": ({"flags": column_flags(repetition=Repetition.REQUIRED, is_ascii=True)}, "True in the sidecar"),
    "local_key_is_global": (
        {"flags": column_flags(repetition=Repetition.REQUIRED, local_key_is_global=True)},
        "True in the sidecar",
    ),
}


@pytest.mark.parametrize("field", COLUMN_CHANGES)
def test_every_field_of_a_column(field: str) -> None:
    changes, message = COLUMN_CHANGES[field]
    (finding,) = compared(with_column(PRICE, **changes))
    assert (finding.severity, finding.kind, finding.field) == ("error", "SidecarDiffers", field)
    assert finding.column == "price"
    assert message in finding.message


def test_a_bound_that_claims_to_be_exact() -> None:
    widened = with_chunks(PRICE, {2}, max=replace(chunk(8).max or BoundSpec(b""), exact=False))
    (finding,) = compared(CONTENT, widened)
    assert finding.message == "max_exact of column 'price' differs in row group 2: 1 in the sidecar, 0 in the footer"


def test_row_counts() -> None:
    groups = [replace(CONTENT.row_groups[0], row_count=9), *CONTENT.row_groups[1:3]]
    (finding,) = compared(replace(CONTENT, row_groups=[*groups, replace(CONTENT.row_groups[3], row_count=8)]))
    assert (finding.field, finding.column, finding.row_groups) == ("num_rows", None, (0, 3))
    assert finding.message == ("num_rows differs in row groups 0, 3: 9 in the sidecar, 10 in the footer (row group 0)")


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"parquet_footer_offset": 1999}, "parquet_footer_offset", "1,999 in the sidecar, 2,000 in the footer"),
        ({"parquet_footer_length": 301}, "parquet_footer_length", "301 in the sidecar, 300 in the footer"),
        ({"row_groups": CONTENT.row_groups[:3]}, "row_group_count", "3 in the sidecar, 4 in the footer"),
        ({"designated_timestamp": None}, "designated_timestamp", "None in the sidecar, 0 in the footer"),
        ({"sorting_columns": [1, 0]}, "sorting_columns", "[1, 0] in the sidecar, [0] in the footer"),
    ],
)
def test_what_is_not_about_chunks(changes: dict[str, Any], field: str, message: str) -> None:
    (finding,) = compared(replace(CONTENT, **changes))
    assert (finding.kind, finding.field) == ("SidecarDiffers", field)
    assert finding.message == f"{field} differs: {message}"


def test_other_columns_are_one_finding_and_not_compared_with_each_other() -> None:
    other = replace(
        CONTENT,
        columns=COLUMNS[:2],
        row_groups=[replace(group, chunks=group.chunks[:2]) for group in CONTENT.row_groups],
    )
    (finding,) = compared(other)
    assert finding.message == "column_count differs: 2 in the sidecar, 3 in the footer"


@pytest.mark.parametrize("field", ["null_count", "distinct_count", "min", "max"])
def test_what_only_one_side_knows(field: str) -> None:
    without = with_chunks(PRICE, {0, 1, 3}, **{field: None})
    (left_out,) = compared(without)
    assert (left_out.severity, left_out.kind, left_out.row_groups) == ("warning", "StatisticsLeftOut", (0, 1, 3))
    (not_vouched,) = compared(CONTENT, without)
    assert (not_vouched.severity, not_vouched.kind) == ("warning", "StatisticsNotVouchedFor")
    assert f"{field} of column 'price' is in the sidecar in row groups 0-1, 3, but the footer" in not_vouched.message


def test_bounds_of_the_designated_timestamp_may_come_from_the_pages() -> None:
    without = with_chunks(TIME, {0, 2}, min=None, max=None)
    assert compared(CONTENT, without) == ()
    assert {finding.kind for finding in compared(without)} == {"StatisticsLeftOut"}


def test_types_that_only_the_footer_tells() -> None:
    noted = encode_foreign_annotations({PRICE: ForeignAnnotation.UINT_64})
    derived = replace(CONTENT, scratchpad=[ScratchpadEntry(FOREIGN_ANNOTATIONS_CODE, noted)])
    (finding,) = compared(CONTENT, derived)
    assert (finding.severity, finding.kind, finding.column) == ("warning", "ForeignTypeNotNoted", "price")


def test_the_writer_that_only_the_footer_names() -> None:
    derived = replace(CONTENT, scratchpad=[writer_entry("Arrow")])
    (missing,) = compared(CONTENT, derived)
    assert (missing.severity, missing.kind, missing.field) == ("warning", "WriterNotNoted", "created_by")
    (differing,) = compared(replace(CONTENT, scratchpad=[writer_entry("Spark")]), derived)
    assert (differing.severity, differing.kind, differing.field) == ("error", "SidecarDiffers", "created_by")
    assert compared(derived, CONTENT) == ()


def test_a_difference_of_many_columns_is_not_told_a_thousand_times() -> None:
    wide = SidecarContent(
        columns=[replace(COLUMNS[PRICE], name=f"c{index}", id=index) for index in range(1000)],
        row_groups=[RowGroupSpec(row_count=10, chunks=[chunk(1)] * 1000)],
        parquet_footer_offset=2000,
        parquet_footer_length=300,
    )
    moved = replace(wide, row_groups=[RowGroupSpec(row_count=10, chunks=[replace(chunk(1), codec=1)] * 1000)])
    findings = compared(moved, wide)
    assert [finding.column for finding in findings] == ["c0", "c1", "c2", "c3", "c4", None]
    assert findings[-1].message == "codec: the same in 995 more columns, 'c5' to 'c999'"


@given(st.data())
def test_one_changed_chunk_is_found_wherever_it_is(data: st.DataObject) -> None:
    column, row_group = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 3))
    field = data.draw(st.sampled_from(["num_values", "byte_range_start", "total_compressed_bytes", "null_count"]))
    before = getattr(CONTENT.row_groups[row_group].chunks[column], field)
    value = data.draw(st.integers(0, 2**64 - 1).filter(lambda number: number != before))
    (finding,) = compared(with_chunks(column, {row_group}, **{field: value}))
    assert (finding.column, finding.row_groups) == (COLUMNS[column].name, (row_group,))

"""Sidecars that follow Parquet files through updates in place, footer by footer."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise
from typing import Any

import pytest

from coldparquet.errors import InvalidInputError
from coldparquet.format import sidecar_layout
from coldparquet.format.sidecar import Sidecar, parse_sidecar
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_header import ScratchpadEntry
from coldparquet.format.sidecar_update import (
    SidecarChange,
    content_difference,
    footer_content_difference,
    plan_sidecar_update,
)
from coldparquet.format.sidecar_writer import ChunkSpec, ColumnSpec, RowGroupSpec, SidecarContent, encode_sidecar
from tests.support.parquet_footers import parsed_footer, snapshots_of_updates
from tests.support.sidecar_strategies import assert_says

SNAPSHOTS = snapshots_of_updates()


def content_of(file: bytes) -> SidecarContent:
    """What a sidecar must say of a Parquet file, its dead bytes included."""
    footer = parsed_footer(file)
    unused_bytes = json.loads(footer.questdb_json or "").get("unused_bytes", 0)
    return dataclasses.replace(sidecar_content_from_footer(footer), unused_bytes=unused_bytes)


@pytest.mark.parametrize("partition", SNAPSHOTS)
def test_sidecar_follows_a_partition_through_its_updates(partition: str) -> None:
    files = SNAPSHOTS[partition]
    assert len(files) == 3
    sidecar_file = encode_sidecar(content_of(files[0]))
    for before, after in pairwise(files):
        sidecar = parse_sidecar(sidecar_file, parquet_size_bytes=len(before))
        change = footer_content_difference(sidecar, parsed_footer(after))
        # One late row replaces one row group; what was not touched is not written again.
        assert 0 < len(change.replaced) + len(change.appended) < sidecar.row_group_count
        sidecar_file = plan_sidecar_update(sidecar_file, sidecar, change).applied_to(sidecar_file)
        assert parse_sidecar(sidecar_file).size_bytes == len(sidecar_file)
    for file in files:
        assert_says(parse_sidecar(sidecar_file, parquet_size_bytes=len(file)), content_of(file))
    assert len(parse_sidecar(sidecar_file).chain()) == 3


@pytest.mark.parametrize("partition", SNAPSHOTS)
def test_sidecar_catches_up_with_several_updates_at_once(partition: str) -> None:
    first, *_, last = SNAPSHOTS[partition]
    created = encode_sidecar(content_of(first))
    sidecar = parse_sidecar(created)
    update = plan_sidecar_update(created, sidecar, footer_content_difference(sidecar, parsed_footer(last)))
    assert_says(parse_sidecar(update.applied_to(created)), content_of(last))


def test_same_footer_changes_no_row_group() -> None:
    file = SNAPSHOTS["2024-01-01"][-1]
    sidecar = parse_sidecar(encode_sidecar(content_of(file)))
    change = footer_content_difference(sidecar, parsed_footer(file))
    assert (change.replaced, list(change.appended)) == ({}, [])


def chunk(start: int) -> ChunkSpec:
    return ChunkSpec(codec=0, encodings=1, num_values=1, byte_range_start=start, total_compressed_bytes=8)


def group(*starts: int, rows: int = 1) -> RowGroupSpec:
    return RowGroupSpec(row_count=rows, chunks=[chunk(start) for start in starts])


FLAGS = sidecar_layout.COLUMN_IS_ASCII | sidecar_layout.COLUMN_LOCAL_KEY_IS_GLOBAL
COLUMNS = [
    ColumnSpec(name="a", type_code=6, physical_type=sidecar_layout.PhysicalType.INT64, id=0),
    ColumnSpec(name="b", type_code=12, physical_type=sidecar_layout.PhysicalType.BYTE_ARRAY, id=1, flags=FLAGS),
]
CONTENT = SidecarContent(
    columns=COLUMNS,
    row_groups=[group(4, 12), group(20, 28), group(36, 44)],
    parquet_footer_offset=100,
    parquet_footer_length=50,
    designated_timestamp=0,
    sorting_columns=[0],
    squash_tracker=1,
    seq_txn=3,
    scratchpad=[ScratchpadEntry(1, b"token")],
)


def sidecar_of(content: SidecarContent) -> Sidecar:
    return parse_sidecar(encode_sidecar(content))


def difference(**changes: Any) -> SidecarChange:
    return content_difference(sidecar_of(CONTENT), dataclasses.replace(CONTENT, **changes))


def test_row_groups_that_moved_or_grew_are_replaced_and_more_are_appended() -> None:
    groups = [group(4, 12), group(200, 208), group(36, 44, rows=2), group(300, 308)]
    change = difference(row_groups=groups, unused_bytes=9, parquet_footer_offset=400)
    assert change.replaced == {1: groups[1], 2: groups[2]}
    assert list(change.appended) == groups[3:]
    assert (change.parquet_footer_offset, change.unused_bytes) == (400, 9)


def test_insertion_rewrites_what_follows() -> None:
    change = difference(row_groups=[group(4, 12), group(200, 208), group(20, 28), group(36, 44)])
    assert sorted(change.replaced) == [1, 2]
    assert len(change.appended) == 1


def test_tokens_are_inherited_unless_the_content_has_its_own() -> None:
    inherited = difference(scratchpad=(), seq_txn=None, squash_tracker=None)
    assert (inherited.scratchpad, inherited.seq_txn) == (None, None)
    assert difference(seq_txn=9).seq_txn == 9


def test_a_file_without_columns_compares_its_rows() -> None:
    empty = SidecarContent(columns=(), row_groups=[group()], parquet_footer_offset=4, parquet_footer_length=50)
    grown = dataclasses.replace(empty, row_groups=[group(), group()])
    change = content_difference(sidecar_of(empty), grown)
    assert (change.replaced, list(change.appended)) == ({}, [group()])


def with_column(**changes: Any) -> dict[str, Any]:
    return {"columns": [COLUMNS[0], dataclasses.replace(COLUMNS[1], **changes)]}


def test_a_promise_that_the_sidecar_never_made_may_come_and_go() -> None:
    quiet = dataclasses.replace(CONTENT, **with_column(flags=0))
    assert content_difference(sidecar_of(quiet), CONTENT).replaced == {}


MISMATCHES: dict[str, tuple[dict[str, Any], str]] = {
    "column added": ({"columns": [*COLUMNS, COLUMNS[0]]}, "columns"),
    "column dropped": ({"columns": COLUMNS[:1]}, "columns"),
    "column renamed": (with_column(name="c"), "columns"),
    "type changed": (with_column(type_code=26), "columns"),
    "id changed": (with_column(id=7), "columns"),
    "made optional": (with_column(max_def_level=1), "columns"),
    "order turned": (with_column(flags=FLAGS | sidecar_layout.COLUMN_DESCENDING), "columns"),
    "no longer ASCII": (with_column(flags=sidecar_layout.COLUMN_LOCAL_KEY_IS_GLOBAL), "is_ascii"),
    "keys of its own": (with_column(flags=sidecar_layout.COLUMN_IS_ASCII), "local_key_is_global"),
    "no timestamp": ({"designated_timestamp": None}, "sorting_columns"),
    "other order": ({"sorting_columns": [0, 1]}, "sorting_columns"),
    "row group vanished": ({"row_groups": [group(4, 12), group(20, 28)]}, "row_groups"),
}


@pytest.mark.parametrize("what", MISMATCHES)
def test_what_an_update_cannot_say_is_refused(what: str) -> None:
    changes, field = MISMATCHES[what]
    with pytest.raises(InvalidInputError) as caught:
        difference(**changes)
    assert (caught.value.kind, caught.value.details["field"]) == ("SchemaMismatch", field)

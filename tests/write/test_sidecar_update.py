"""Updates of sidecars: the golden ones byte for byte, random histories against a model, and what is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import FormatError, InvalidInputError
from coldparquet.format import sidecar_layout
from coldparquet.format.sidecar import Sidecar, parse_sidecar
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_header import CoveringIndexEntry, ScratchpadEntry
from coldparquet.format.sidecar_writer import (
    BoundSpec,
    ChunkSpec,
    ColumnSpec,
    RowGroupSpec,
    SidecarContent,
    encode_sidecar,
)
from coldparquet.format.sidecar_writer import encode_sidecar as encode
from coldparquet.ranges import ByteRange
from coldparquet.records import replace
from coldparquet.write.sidecar_update import (
    SidecarChange,
    SidecarUpdate,
    content_difference,
    footer_content_difference,
    plan_sidecar_update,
)
from tests.support.parquet_footers import parsed_footer, snapshots_of_updates
from tests.support.sidecar_specs import change_from_spec, content_from_spec
from tests.support.sidecar_strategies import assert_says, changes, contents

GOLDEN = Path(__file__).parents[1] / "golden" / "pm"
UPDATED = [
    path.stem
    for path in sorted(GOLDEN.glob("*.pm"))
    if json.loads(path.with_suffix(".json").read_text())["spec"].get("updates")
    and not json.loads(path.with_suffix(".json").read_text())["edits"]
]
REJECTS = [
    reject for reject in json.loads((GOLDEN / "writer_rejects.json").read_text()) if reject["spec"].get("updates")
]


def test_golden_updates_are_known() -> None:
    assert UPDATED == ["04_sample_b", "20_chain_3", "21_dead_footer", "22_token_only"]


@pytest.mark.parametrize("name", UPDATED)
def test_each_golden_snapshot_from_the_one_before(name: str) -> None:
    data, case = (GOLDEN / f"{name}.pm").read_bytes(), json.loads((GOLDEN / f"{name}.json").read_text())
    sizes = case["snapshot_sizes"]
    for number, spec in enumerate(case["spec"]["updates"]):
        before, after = sizes[number], sizes[number + 1]
        file = sidecar_layout.COMMITTED_SIZE.pack(before) + data[8:before]
        anchor = sizes[spec.get("parse_snapshot", number)]
        update = plan_sidecar_update(file, parse_sidecar(file, sidecar_size_bytes=anchor), change_from_spec(spec))
        assert update.append_at == before
        assert update.appended_bytes == data[before:after]
        assert update.committed_size_bytes == after
        assert update.committed_size_patch == after.to_bytes(8, "little")
        assert update.applied_to(file) == sidecar_layout.COMMITTED_SIZE.pack(after) + data[8:after]


@pytest.mark.parametrize("name", UPDATED)
def test_golden_files_from_nothing(name: str) -> None:
    data, case = (GOLDEN / f"{name}.pm").read_bytes(), json.loads((GOLDEN / f"{name}.json").read_text())
    file = encode(content_from_spec(case["spec"]["create"]))
    snapshots = [parse_sidecar(file)]
    for spec in case["spec"]["updates"]:
        anchor = snapshots[spec.get("parse_snapshot", -1)]
        file = plan_sidecar_update(file, anchor, change_from_spec(spec)).applied_to(file)
        snapshots.append(parse_sidecar(file))
    assert file == data


@pytest.mark.parametrize("reject", REJECTS, ids=lambda reject: reject["about"])
def test_updates_that_the_reference_refuses(reject: dict[str, Any]) -> None:
    file = encode(content_from_spec(reject["spec"]["create"]))
    with pytest.raises(InvalidInputError) as caught:
        plan_sidecar_update(file, parse_sidecar(file), change_from_spec(reject["spec"]["updates"][0]))
    assert caught.value.kind == reject["error"]


def listed(row_group: RowGroupSpec, bloom_columns: tuple[int, ...]) -> RowGroupSpec:
    """The row group as a reader sees it: filters of columns outside the list are out of reach."""
    chunks = [
        chunk if column in bloom_columns else replace(chunk, bloom_bitset=None, bloom_reference=None)
        for column, chunk in enumerate(row_group.chunks)
    ]
    return replace(row_group, chunks=chunks)


def changed(content: SidecarContent, change: SidecarChange, bloom_columns: tuple[int, ...]) -> SidecarContent:
    """What the next snapshot says, by the plain meaning of a change."""
    row_groups = [change.replaced.get(index, row_group) for index, row_group in enumerate(content.row_groups)]
    given_fields = ("parquet_footer_offset", "parquet_footer_length", "unused_bytes", "seq_txn", "scratchpad")
    given_values = {name: getattr(change, name) for name in given_fields}
    says: dict[str, Any] = {name: value for name, value in given_values.items() if value is not None}
    if change.seq_txn == sidecar_layout.UNSET:
        says["seq_txn"] = None
    return replace(
        content,
        row_groups=[listed(row_group, bloom_columns) for row_group in (*row_groups, *change.appended)],
        covering_index=change.covering_index,
        **says,
    )


@dataclass
class History:
    """A sidecar with what each of its committed snapshots must say."""

    file: bytes
    snapshots: dict[int, SidecarContent]
    """By committed size, oldest first."""

    @property
    def newest(self) -> tuple[int, SidecarContent]:
        return list(self.snapshots.items())[-1]

    @property
    def parquet_size_bytes(self) -> int:
        content = self.newest[1]
        return content.parquet_footer_offset + content.parquet_footer_length + 8

    def anchor(self) -> Sidecar:
        """The snapshot that a transaction file would name by the size of its Parquet file."""
        return parse_sidecar(self.file, parquet_size_bytes=self.parquet_size_bytes)

    def apply(self, change: SidecarChange, *, is_committed: bool) -> None:
        anchor, content = self.anchor(), self.newest[1]
        update = plan_sidecar_update(self.file, anchor, change)
        self.file = update.applied_to(self.file)
        if is_committed:
            self.snapshots[update.committed_size_bytes] = changed(content, change, anchor.bloom_columns)


@pytest.mark.slow
@given(data=st.data(), first=contents())
def test_any_history_equals_its_model(data: st.DataObject, first: SidecarContent) -> None:
    """Creates, appends, replacements, token-only appends, crashes before the commit and torn writes, in any order."""
    first = replace(first, parquet_footer_offset=100, parquet_footer_length=10)
    file = encode(first)
    history = History(file, {len(file): first})
    for step in range(1, data.draw(st.integers(1, 6)) + 1):
        content = history.newest[1]
        kind = data.draw(st.sampled_from(["commit", "token only", "crash before commit", "torn write"]))
        if kind == "torn write":
            # Bytes behind the committed size: the update died before it was published.
            history.file += data.draw(st.binary(max_size=40))
            continue
        if kind == "token only":
            tokens = data.draw(changes(content, 0))
            change = replace(tokens, appended=())
        else:
            change = replace(
                data.draw(changes(content, len(content.row_groups))),
                parquet_footer_offset=100 + 1000 * step,
                parquet_footer_length=data.draw(st.integers(0, 900)),
            )
        history.apply(change, is_committed=kind != "crash before commit")

    sizes = list(history.snapshots)
    chain = [footer.size_bytes for footer in parse_sidecar(history.file).chain()]
    assert [size for size in reversed(chain) if size in history.snapshots] == sizes
    assert len(chain) <= len(sizes) + 1  # at most the newest may be dead
    newest_of_parquet_size: dict[int, int] = {}
    for size, content in history.snapshots.items():
        sidecar = parse_sidecar(history.file, sidecar_size_bytes=size)
        assert_says(sidecar, content)
        newest_of_parquet_size[sidecar.parquet_size_bytes] = size
    for parquet_size, size in newest_of_parquet_size.items():
        assert parse_sidecar(history.file, parquet_size_bytes=parquet_size).size_bytes == size


COLUMN = ColumnSpec(name="a", type_code=6, physical_type=sidecar_layout.PhysicalType.INT64)
CHUNK = ChunkSpec(codec=0, encodings=1, num_values=1, byte_range_start=4, total_compressed_bytes=8)
GROUP = RowGroupSpec(row_count=1, chunks=[CHUNK, CHUNK])
CREATED = SidecarContent(
    columns=[COLUMN, COLUMN],
    row_groups=[GROUP, GROUP],
    parquet_footer_offset=100,
    parquet_footer_length=50,
    unused_bytes=7,
    seq_txn=3,
    scratchpad=[ScratchpadEntry(1, b"token")],
    covering_index=[CoveringIndexEntry(column_id=0, index_txn=1, index_metadata_bytes=64)],
)


def update_of(file: bytes, **change: Any) -> SidecarUpdate:
    return plan_sidecar_update(file, parse_sidecar(file), SidecarChange(**change))


def test_an_empty_change_repeats_everything_but_covering_indexes() -> None:
    file = encode(CREATED)
    updated = parse_sidecar(update_of(file).applied_to(file))
    assert_says(updated, replace(CREATED, covering_index=()))
    assert updated.footer.previous_size_bytes == len(file)


def test_tokens_are_inherited_replaced_and_removed() -> None:
    file = encode(CREATED)
    kept = parse_sidecar(update_of(file, seq_txn=4).applied_to(file)).footer
    assert (kept.seq_txn, kept.scratchpad, kept.unused_bytes) == (4, (ScratchpadEntry(1, b"token"),), 7)
    removed = parse_sidecar(update_of(file, seq_txn=sidecar_layout.UNSET, scratchpad=[]).applied_to(file)).footer
    assert (removed.seq_txn, removed.scratchpad, removed.feature_flags) == (None, (), 0)


def test_token_only_update_appends_nothing_but_a_footer() -> None:
    file = encode(replace(CREATED, covering_index=()))
    old = parse_sidecar(file)
    update = update_of(file, seq_txn=4)
    assert len(update.appended_bytes) == old.footer.length_bytes + sidecar_layout.TRAILER.size
    updated = parse_sidecar(update.applied_to(file), parquet_size_bytes=old.parquet_size_bytes)
    assert updated.footer.seq_txn == 4
    assert updated.footer.block_offsets.tolist() == old.footer.block_offsets.tolist()


@pytest.mark.parametrize("external", [False, True])
def test_filters_of_kept_row_groups_stay_and_unlisted_ones_are_out_of_reach(external: bool) -> None:
    def filtered(column: int, pattern: int) -> RowGroupSpec:
        chunks = [CHUNK, CHUNK]
        chunks[column] = replace(
            CHUNK,
            bloom_reference=ByteRange(pattern, pattern + 32) if external else None,
            bloom_bitset=None if external else bytes([pattern]) * 32,
        )
        return RowGroupSpec(row_count=1, chunks=chunks)

    file = encode(replace(CREATED, row_groups=[filtered(1, 1), filtered(1, 2)], blooms_external=external))
    file = update_of(file, replaced={0: filtered(1, 3)}, appended=[filtered(0, 4), filtered(1, 5)]).applied_to(file)
    sidecar = parse_sidecar(file)
    assert sidecar.bloom_columns == (1,)
    found = [sidecar.bloom_location(row_group, 1) for row_group in range(4)]
    if external:
        assert [place.start if place else None for place in found] == [3, 2, None, 5]
    else:
        bitsets = [sidecar.bloom_bitset(row_group, 1) for row_group in range(4)]
        assert [bitset[0] if bitset else None for bitset in bitsets] == [3, 2, None, 5]
        # The bytes of the filter without an entry are there all the same.
        assert bytes([4]) * 32 in file


def test_dead_bytes_stay_and_are_covered() -> None:
    created = encode(CREATED)
    anchor = parse_sidecar(created)
    dead = plan_sidecar_update(created, anchor, SidecarChange(appended=[GROUP], parquet_footer_offset=500))
    crashed = dead.applied_to(created)
    update = plan_sidecar_update(crashed, anchor, SidecarChange(appended=[GROUP], parquet_footer_offset=600))
    file = update.applied_to(crashed)
    assert update.append_at == len(crashed)
    assert file[8 : len(crashed)] == crashed[8:]
    assert [footer.size_bytes for footer in parse_sidecar(file).chain()] == [len(file), len(created)]
    flipped = bytearray(file)
    flipped[len(crashed) - 20] ^= 1
    with pytest.raises(FormatError) as caught:
        parse_sidecar(flipped)
    assert caught.value.kind == "ChecksumMismatch"
    assert parse_sidecar(flipped, parquet_size_bytes=158).size_bytes == len(created)


def test_damage_is_passed_on_and_not_blessed() -> None:
    file = bytearray(encode(CREATED))
    file[len(file) // 2] ^= 1
    damaged = parse_sidecar(file, verify_checksum=False)
    updated = plan_sidecar_update(file, damaged, SidecarChange(seq_txn=9)).applied_to(file)
    with pytest.raises(FormatError) as caught:
        parse_sidecar(updated)
    assert caught.value.kind == "ChecksumMismatch"


@pytest.mark.parametrize("length", range(8))
def test_blocks_are_aligned_wherever_the_append_begins(length: int) -> None:
    scratchpad = [ScratchpadEntry(1, bytes(length))]
    file = encode(replace(CREATED, scratchpad=scratchpad))
    updated = parse_sidecar(update_of(file, appended=[GROUP, GROUP]).applied_to(file))
    assert updated.row_group_count == 4
    assert not updated.footer.block_offsets[2:].min() < len(file)


REFUSED: dict[str, dict[str, Any]] = {
    "replace behind the end": {"replaced": {2: GROUP}},
    "replace before the start": {"replaced": {-1: GROUP}},
    "too few chunks": {"appended": [RowGroupSpec(row_count=1, chunks=[CHUNK])]},
    "too many chunks": {"replaced": {0: RowGroupSpec(row_count=1, chunks=[CHUNK] * 3)}},
    "bound of 65,536 bytes": {
        "appended": [RowGroupSpec(row_count=1, chunks=[CHUNK, replace(CHUNK, max=BoundSpec(bytes(65_536)))])]
    },
    "scratchpad above 1 MiB": {"scratchpad": [ScratchpadEntry(1, bytes(1 << 20))]},
    "negative unused bytes": {"unused_bytes": -1},
    "footer length of 33 bits": {"parquet_footer_length": 1 << 32},
    "seq_txn of 65 bits": {"seq_txn": 1 << 63},
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_the_format_cannot_hold_is_refused(what: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        update_of(encode(CREATED), **REFUSED[what])
    assert caught.value.kind == "InvalidValue"


@pytest.mark.parametrize(
    ("cut", "committed", "kind"),
    [(0, -1, "InvalidValue"), (0, 1, "Truncated"), (1, 0, "Truncated"), (1_000_000, 0, "InvalidValue")],
    ids=["committed before the snapshot", "committed beyond the file", "file cut", "nothing left"],
)
def test_append_base_outside_of_the_file_is_refused(cut: int, committed: int, kind: str) -> None:
    file = encode(CREATED)
    sidecar = parse_sidecar(file)
    now = (sidecar_layout.COMMITTED_SIZE.pack(len(file) + committed) + file[8:])[: max(len(file) - cut, 0)]
    with pytest.raises(FormatError) as caught:
        plan_sidecar_update(now, sidecar, SidecarChange())
    assert caught.value.kind == kind


def test_snapshot_of_another_file_is_refused() -> None:
    file = encode(CREATED)
    other = encode(replace(CREATED, seq_txn=99))
    with pytest.raises(FormatError) as caught:
        plan_sidecar_update(other, parse_sidecar(file), SidecarChange())
    assert caught.value.kind == "InvalidValue"


# --- Sidecars that follow Parquet files through updates in place, footer by footer ---


SNAPSHOTS = snapshots_of_updates()


def content_of(file: bytes) -> SidecarContent:
    """What a sidecar must say of a Parquet file, its dead bytes included."""
    footer = parsed_footer(file)
    unused_bytes = json.loads(footer.questdb_json or "").get("unused_bytes", 0)
    return replace(sidecar_content_from_footer(footer), unused_bytes=unused_bytes)


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
    return content_difference(sidecar_of(CONTENT), replace(CONTENT, **changes))


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
    grown = replace(empty, row_groups=[group(), group()])
    change = content_difference(sidecar_of(empty), grown)
    assert (change.replaced, list(change.appended)) == ({}, [group()])


def with_column(**changes: Any) -> dict[str, Any]:
    return {"columns": [COLUMNS[0], replace(COLUMNS[1], **changes)]}


def test_a_promise_that_the_sidecar_never_made_may_come_and_go() -> None:
    quiet = replace(CONTENT, **with_column(flags=0))
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

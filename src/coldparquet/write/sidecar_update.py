"""Computes the next snapshot of an existing sidecar, as bytes to append.

An update appends the blocks of new row groups, then a footer that refers to old and new blocks. Finally it replaces the
committed size in the first 8 bytes. Until then no reader sees the update; afterwards older snapshots still exist,
because nothing else was changed. The caller writes; this module computes what to write where, and in which order.

Two sizes matter. The snapshot that the table's transaction file names is the parse anchor: the update starts from its
content, and the new footer's previous size is its size. The committed size in the header is the append base. If a crash
separated a sidecar's update from the table's commit, it is larger, and the footer between the two remains as dead
bytes. They are never overwritten, since a reader may have them mapped, and every later checksum covers them.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coldparquet.errors import FormatError, InvalidInputError
from coldparquet.format import sidecar_layout as layout
from coldparquet.format.parquet_footer import parse_questdb_json
from coldparquet.format.sidecar_from_footer import sidecar_content_from_footer
from coldparquet.format.sidecar_writer import ColumnSpec, FooterSpec, encode_bloom_row, encode_footer, encode_row_group
from coldparquet.records import replace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.format.parquet_footer import ParquetFooter
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.format.sidecar_header import CoveringIndexEntry, ScratchpadEntry
    from coldparquet.format.sidecar_writer import RowGroupSpec, SidecarContent

_CLAIMS = layout.COLUMN_IS_ASCII | layout.COLUMN_LOCAL_KEY_IS_GLOBAL
"""Column flags that promise something about all values: a sidecar may omit one, but not set it wrongly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarChange:
    """The differences between a new snapshot and the one before; None means no change.

    The header is valid for all snapshots, so columns, sort order and the columns with bloom filters cannot change.
    Bloom filters of other columns leave their bytes in the block, without a reference.
    """

    replaced: Mapping[int, RowGroupSpec] = field(default_factory=dict)
    """New content of existing row groups, by index."""
    appended: Sequence[RowGroupSpec] = ()
    """Row groups behind the existing ones. A snapshot never has fewer row groups than the one before."""
    parquet_footer_offset: int | None = None
    parquet_footer_length: int | None = None
    unused_bytes: int | None = None
    seq_txn: int | None = None
    """`sidecar_layout.UNSET` removes it."""
    scratchpad: Sequence[ScratchpadEntry] | None = None
    """An empty one removes it."""
    covering_index: Sequence[CoveringIndexEntry] = ()
    """Not inherited: new row groups make such indexes stale, so callers that keep them must state them again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarUpdate:
    """The writes that give a sidecar a new snapshot.

    First `appended_bytes` at `append_at`, made durable; then `committed_size_patch` at offset 0, made durable. A crash
    in between leaves the old snapshot, and bytes behind it that readers ignore.
    """

    append_at: int
    """Offset of the bytes; existing bytes there are left from an append that was never committed."""
    appended_bytes: bytes

    @property
    def committed_size_bytes(self) -> int:
        """Size of the new snapshot."""
        return self.append_at + len(self.appended_bytes)

    @property
    def committed_size_patch(self) -> bytes:
        """The new first 8 bytes of the file."""
        return layout.COMMITTED_SIZE.pack(self.committed_size_bytes)

    def applied_to(self, file: bytes | bytearray | memoryview) -> bytes:
        """Return the whole file after the update, for stores that cannot write into a file."""
        unchanged = memoryview(file).cast("B")[layout.COMMITTED_SIZE.size : self.append_at]
        return b"".join((self.committed_size_patch, unchanged, self.appended_bytes))


def plan_sidecar_update(file: bytes | bytearray | memoryview, sidecar: Sidecar, change: SidecarChange) -> SidecarUpdate:
    """Compute the bytes of a sidecar's next snapshot. Without any change it is a footer that repeats the last one.

    The checksum continues from the stored one, so damage in older bytes remains detectable. Unknown optional footer
    sections are not carried on.
    """
    old, header = sidecar.footer, sidecar.header
    file = memoryview(file).cast("B")
    append_at = _append_base(file, sidecar)
    for index in change.replaced:
        if not 0 <= index < old.row_group_count:
            raise InvalidInputError(
                f"row group {index} cannot be replaced: the snapshot has {old.row_group_count}; append it instead",
                kind="InvalidValue",
                path=sidecar.path,
                field="replaced",
                row_group=index,
            )
    bloom_columns = sidecar.bloom_columns
    block_offsets = old.block_offsets.tolist()
    bloom_rows = _bloom_rows(sidecar)
    appended = bytearray()
    new_row_groups = [*sorted(change.replaced.items()), *enumerate(change.appended, start=old.row_group_count)]
    for index, row_group in new_row_groups:
        encoded = encode_row_group(
            row_group,
            column_count=header.column_count,
            blooms_external=header.blooms_external if bloom_columns else None,
        )
        appended += bytes(-(append_at + len(appended)) % layout.BLOCK_ALIGNMENT)
        block_offset = append_at + len(appended)
        bloom_row = encode_bloom_row(
            encoded, block_offset, bloom_columns=bloom_columns, blooms_external=header.blooms_external
        )
        # Replaced row groups take the place of their old entries, appended ones get new entries at the end.
        block_offsets[index : index + 1] = [block_offset]
        bloom_rows[index : index + 1] = [bloom_row]
        appended += encoded.block
    # The stored checksum covers the file up to where it is stored itself.
    dead = file[old.checksum_offset : append_at]
    checksum_so_far = zlib.crc32(appended, zlib.crc32(dead, old.checksum))
    appended += encode_footer(
        _footer_spec(sidecar, change),
        block_offsets=block_offsets,
        bloom_matrix=b"".join(bloom_rows),
        checksum_so_far=checksum_so_far,
    )
    return SidecarUpdate(append_at=append_at, appended_bytes=bytes(appended))


def _append_base(file: memoryview, sidecar: Sidecar) -> int:
    """Return the committed size in the file's header, after checking that the snapshot belongs to the file."""
    if len(file) < layout.COMMITTED_SIZE.size:
        committed = 0
    else:
        (committed,) = layout.COMMITTED_SIZE.unpack_from(file)
    if committed < sidecar.size_bytes:
        raise FormatError(
            f"the committed size {committed} lies before the snapshot of {sidecar.size_bytes} bytes to start from; "
            "read the sidecar again",
            kind="InvalidValue",
            path=sidecar.path,
            offset=0,
            field="parquet_meta_file_size",
        )
    if committed > len(file):
        raise FormatError(
            f"the committed size {committed} lies beyond the file of {len(file)} bytes; write the sidecar anew from "
            "the Parquet footer",
            kind="Truncated",
            path=sidecar.path,
            offset=0,
            field="parquet_meta_file_size",
        )
    old = sidecar.footer
    if file[old.offset : old.size_bytes] != sidecar.file[old.offset : old.size_bytes]:
        raise FormatError(
            f"the snapshot of {old.size_bytes} bytes to start from is not in the file: it was replaced meanwhile; read "
            "the sidecar again",
            kind="InvalidValue",
            path=sidecar.path,
            offset=old.offset,
            field="footer",
        )
    return int(committed)


def _bloom_rows(sidecar: Sidecar) -> list[bytes]:
    """Return the bloom matrix entries of each row group as stored; empty ones without bloom filters."""
    footer, header = sidecar.footer, sidecar.header
    entry = layout.BLOOM_REFERENCE_DTYPE if header.blooms_external else layout.BLOOM_OFFSET_DTYPE
    row_bytes = entry.itemsize * len(header.bloom_entries)
    start = footer.bloom_section_stop - row_bytes * footer.row_group_count
    starts = (start + row_bytes * index for index in range(footer.row_group_count))
    return [bytes(sidecar.file[row_start : row_start + row_bytes]) for row_start in starts]


def _footer_spec(sidecar: Sidecar, change: SidecarChange) -> FooterSpec:
    old = sidecar.footer
    return FooterSpec(
        parquet_footer_offset=_changed(change.parquet_footer_offset, old.parquet_footer_offset),
        parquet_footer_length=_changed(change.parquet_footer_length, old.parquet_footer_length),
        unused_bytes=_changed(change.unused_bytes, old.unused_bytes),
        previous_size_bytes=sidecar.size_bytes,
        seq_txn=old.seq_txn if change.seq_txn is None else change.seq_txn,
        scratchpad=old.scratchpad if change.scratchpad is None else change.scratchpad,
        covering_index=change.covering_index,
    )


def _changed(new: int | None, old: int) -> int:
    return old if new is None else new


def footer_content_difference(
    sidecar: Sidecar, footer: ParquetFooter, *, content: SidecarContent | None = None
) -> SidecarChange:
    """Find the changes that make a snapshot describe a Parquet file that was updated in place."""
    if content is None or not sidecar.bloom_columns or content.blooms_external != sidecar.blooms_external:
        content = sidecar_content_from_footer(footer)
    if footer.questdb_json is not None:
        questdb = parse_questdb_json(footer.questdb_json, column_count=len(footer.leaves), path=footer.path)
        content = replace(content, unused_bytes=questdb.unused_bytes)
    return content_difference(sidecar, content)


def content_difference(sidecar: Sidecar, content: SidecarContent) -> SidecarChange:
    """Find the changes that turn a snapshot into a given content.

    A row group is unchanged if it has as many rows as before and its first column still begins at the same byte: an
    update writes row groups to new places. The scratchpad is inherited, since it may hold entries of other programs,
    and so is SEQ_TXN where the content has none. The squash tracker does not change.
    """
    _check_header(sidecar, content)
    old_count = sidecar.row_group_count
    if len(content.row_groups) < old_count:
        raise _mismatch(f"{old_count} row groups became {len(content.row_groups)}", "row_groups", sidecar)
    old_rows = sidecar.row_counts.tolist()
    old_starts = sidecar.chunks(0).byte_range_start.tolist() if sidecar.column_count else [0] * old_count
    replaced = {
        index: row_group
        for index, (row_group, rows, start) in enumerate(zip(content.row_groups, old_rows, old_starts, strict=False))
        if row_group.row_count != rows or (row_group.chunks and row_group.chunks[0].byte_range_start != start)
    }
    return SidecarChange(
        replaced=replaced,
        appended=content.row_groups[old_count:],
        parquet_footer_offset=content.parquet_footer_offset,
        parquet_footer_length=content.parquet_footer_length,
        unused_bytes=content.unused_bytes,
        seq_txn=content.seq_txn,
        covering_index=content.covering_index,
    )


def _check_header(sidecar: Sidecar, content: SidecarContent) -> None:
    if len(content.columns) != sidecar.column_count:
        message = f"{sidecar.column_count} columns became {len(content.columns)}"
        raise _mismatch(message, "columns", sidecar)
    for old, new in zip(sidecar.columns, content.columns, strict=True):
        for name in ColumnSpec.__struct_fields__:
            was, becomes = getattr(old, name), getattr(new, name)
            if name == "flags":
                was, becomes = was & ~_CLAIMS, becomes & ~_CLAIMS
            if was != becomes:
                message = f"{name} of column {old.name!r} was {was!r} and is {becomes!r}"
                raise _mismatch(message, "columns", sidecar)
        broken = old.flags & ~new.flags
        if broken & layout.COLUMN_IS_ASCII:
            raise _mismatch(f"column {old.name!r} is no longer all ASCII", "is_ascii", sidecar)
        if broken & layout.COLUMN_LOCAL_KEY_IS_GLOBAL:
            message = f"the dictionaries of column {old.name!r} no longer have the keys of the symbol table"
            raise _mismatch(message, "local_key_is_global", sidecar)
    order = (sidecar.designated_timestamp, sidecar.sorting_columns)
    if order != (content.designated_timestamp, tuple(content.sorting_columns)):
        raise _mismatch("the designated timestamp or the sort order changed", "sorting_columns", sidecar)


def _mismatch(message: str, field_name: str, sidecar: Sidecar) -> InvalidInputError:
    return InvalidInputError(
        f"an update cannot say this, since it cannot change the sidecar's header: {message}; write a new partition "
        "directory with its own sidecar",
        kind="SchemaMismatch",
        path=sidecar.path,
        field=field_name,
    )

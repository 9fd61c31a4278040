"""A sidecar cut down to what a piece decodes: some row groups, some columns, and hardly any statistics.

The result is a sidecar like any other, so that whoever decodes a piece needs nothing but what decodes a table. What planning
alone looks at is left out: bloom filters, and minima and maxima but for those of chunks that are made from them.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.format import sidecar_layout as layout
from coldparquet.format.file_writer import writer_entry
from coldparquet.format.foreign_annotations import FOREIGN_ANNOTATIONS_CODE, encode_foreign_annotations
from coldparquet.format.sidecar_content import ColumnSpec, FooterSpec, SidecarContent
from coldparquet.format.sidecar_footer import ScratchpadEntry
from coldparquet.format.sidecar_writer import encode_footer, encode_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from coldparquet.format.sidecar import Sidecar
    from coldparquet.format.sidecar_header import ColumnDescriptor
    from coldparquet.plan.bounds import BoolArray, IntArray

_BOUND_FLAGS = layout.STAT_PRESENT | layout.STAT_INLINED | layout.STAT_EXACT
_BOTH_BOUND_FLAGS = _BOUND_FLAGS | _BOUND_FLAGS << layout.STAT_MAX_SHIFT
_STAT_SIZES_BYTE = layout.STAT_FLAGS_BYTE + 1
_WITHOUT_BOUNDS = np.uint64(
    0xFFFF_FFFF_FFFF_FFFF ^ (_BOTH_BOUND_FLAGS << 8 * layout.STAT_FLAGS_BYTE | 0xFF << 8 * _STAT_SIZES_BYTE)
)
"""What of a packed word is no bound: codec, encodings, and which counts are known."""

_BOUND_WORDS = (layout.CHUNK_MIN_WORD, layout.CHUNK_MAX_WORD)


class SidecarReducer:
    """Cuts down the sidecars of a table, most of which have the same header: one is made for all of these."""

    def __init__(self) -> None:
        self._headers: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
        """By the bytes of the whole header and the columns that are kept: the new header, padded for a block."""

    def reduce(
        self, sidecar: Sidecar, *, columns: tuple[int, ...], row_groups: IntArray, keeps_bounds: BoolArray
    ) -> bytes:
        """Write a sidecar of some row groups and columns of another one, for the same Parquet file.

        Args:
            sidecar: The other one.
            columns: Indexes of the columns, ascending; they are numbered anew, from 0.
            row_groups: Numbers of the row groups, ascending; they are numbered anew as well.
            keeps_bounds: Whether minimum and maximum of a chunk are kept, shape ``(row groups, columns)``.
        """
        file = bytearray(self._header(sidecar, columns))
        words = _block_words(sidecar, columns, row_groups, keeps_bounds)
        out_of_line = _move_long_bounds(sidecar, columns, row_groups, keeps_bounds, words)
        block_offsets = []
        for number, block in enumerate(words):
            block_offsets.append(len(file))
            file += block.tobytes()
            file += out_of_line.get(number, b"")
        file += encode_footer(
            FooterSpec(
                parquet_footer_offset=sidecar.footer.parquet_footer_offset,
                parquet_footer_length=sidecar.footer.parquet_footer_length,
                scratchpad=_notes(sidecar, columns),
            ),
            block_offsets=block_offsets,
            bloom_matrix=b"",
            checksum_so_far=zlib.crc32(memoryview(file)[layout.CHECKSUM_START :]),
        )
        layout.COMMITTED_SIZE.pack_into(file, 0, len(file))
        return bytes(file)

    def _header(self, sidecar: Sidecar, columns: tuple[int, ...]) -> bytes:
        whole = bytes(sidecar.file[layout.CHECKSUM_START : sidecar.header.stop])
        found = self._headers.get((whole, columns))
        if found is None:
            content = SidecarContent(
                columns=[_specification(sidecar.column(column)) for column in columns],
                row_groups=(),  # their blocks are copied
                parquet_footer_offset=sidecar.footer.parquet_footer_offset,
                parquet_footer_length=sidecar.footer.parquet_footer_length,
            )
            header = encode_header(content, bloom_columns=())
            found = header + bytes(-len(header) % layout.BLOCK_ALIGNMENT)
            self._headers[whole, columns] = found
        return found


def _specification(column: ColumnDescriptor) -> ColumnSpec:
    return ColumnSpec(
        name=column.name,
        type_code=column.type_code,
        physical_type=column.physical_type,
        id=column.id,
        flags=column.flags,
        fixed_byte_length=column.fixed_byte_length,
        max_rep_level=column.max_rep_level,
        max_def_level=column.max_def_level,
    )


def _notes(sidecar: Sidecar, columns: Sequence[int]) -> list[ScratchpadEntry]:
    known = sidecar.foreign_annotations
    kept = {number: known[column] for number, column in enumerate(columns) if column in known}
    # The designated timestamp, by which files of QuestDB are known, may not be among the columns.
    notes = [writer_entry(sidecar.created_by)] if sidecar.is_writer_known else []
    if kept:
        notes.append(ScratchpadEntry(FOREIGN_ANNOTATIONS_CODE, encode_foreign_annotations(kept)))
    return notes


def _block_words(
    sidecar: Sidecar, columns: Sequence[int], row_groups: IntArray, keeps_bounds: BoolArray
) -> npt.NDArray[np.uint64]:
    """Copy row counts and chunks, shape ``(row groups, words of a block)``."""
    blocks = sidecar.blocks
    first_words = blocks.first_words[row_groups]
    chunk_words = 1 + layout.CHUNK_WORDS * np.array(columns, dtype=np.int64)
    places = first_words[:, None, None] + chunk_words[:, None] + np.arange(layout.CHUNK_WORDS)
    chunks = blocks.words[places]
    chunks[~keeps_bounds, layout.CHUNK_PACKED_WORD] &= _WITHOUT_BOUNDS
    for word in _BOUND_WORDS:
        chunks[~keeps_bounds, word] = 0
    row_counts = blocks.words[first_words][:, None]
    return np.concatenate([row_counts, chunks.reshape(len(row_groups), -1)], axis=1).astype("<u8", copy=False)


def _move_long_bounds(
    sidecar: Sidecar,
    columns: Sequence[int],
    row_groups: IntArray,
    keeps_bounds: BoolArray,
    words: npt.NDArray[np.uint64],
) -> dict[int, bytes]:
    """Give the bounds that are kept and lie behind their block a place behind the new one, and note it in its words.

    Returns:
        By the new number of the row group: what follows its block, padded so that another block may follow.
    """
    behind: dict[int, bytearray] = {}
    for number, column in zip(*(places.tolist() for places in np.nonzero(keeps_bounds)), strict=True):
        chunks, row_group = sidecar.chunks(columns[column]), int(row_groups[number])
        for bounds, word in zip((chunks.min, chunks.max), _BOUND_WORDS, strict=True):
            if not bounds.present[row_group] or bounds.inlined[row_group]:
                continue
            value = bounds.bytes_at(row_group) or b""
            of_block = behind.setdefault(number, bytearray())
            reference = len(of_block) << layout.OUT_OF_LINE_LENGTH_BITS | len(value)
            words[number, 1 + layout.CHUNK_WORDS * column + word] = reference
            of_block += value
    return {number: bytes(found) + bytes(-len(found) % layout.BLOCK_ALIGNMENT) for number, found in behind.items()}

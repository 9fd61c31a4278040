"""What pages decompress to, by what their headers say: few bytes may stand for very many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.decode.virtual_file import CODECS
from coldparquet.errors import BudgetExceededError
from coldparquet.format.page_headers import parse_pages
from coldparquet.options import MIB

if TYPE_CHECKING:
    from coldparquet.decode.chunk_label import ChunkLabel

_LARGEST_USUAL_RATIO = 256
"""Pages of tables decompress to 2 to 100 times their bytes."""

_LARGEST_RATIO = 1 << 15
"""No codec makes more of a byte: zstd, whose smallest block of 4 bytes stands for 128 KiB."""

_WIDEST_NUMBER_BYTES = 32
"""A decimal of 256 bits."""

_NEVER_REFUSED_BYTES = 64 * MIB
"""So much is always decompressed, whatever the memory limit."""


def may_decompress_to(length_bytes: int, most_bytes: int) -> bool:
    """Tell whether so many bytes of pages could be so many once they are decompressed, in any codec."""
    return length_bytes * _LARGEST_RATIO > most_bytes


def is_boundless(codec: int) -> bool:
    """Tell whether a codec may make more of a byte than usual pages do: snappy makes 21 at most, LZ4 255."""
    return CODECS[codec] in {"gzip", "brotli", "zstd"}


def check_decompressed_size(pages: bytes, most_bytes: int, label: ChunkLabel, *, row_count: int) -> None:
    """Refuse a chunk that would decompress to more than the memory limit and to far more than any usual one.

    Args:
        pages: Pages with their headers.
        most_bytes: The memory limit.
        label: The chunk.
        row_count: Rows in the pages: as long as numbers of so many rows are never refused.

    Raises:
        BudgetExceededError: It would.
    """
    size_bytes = sum(max(page.header.uncompressed_page_size or 0, 0) for page in parse_pages(pages) or [])
    usual_bytes = max(_LARGEST_USUAL_RATIO * len(pages), _WIDEST_NUMBER_BYTES * row_count)
    if size_bytes > max(most_bytes, _NEVER_REFUSED_BYTES, usual_bytes):
        raise BudgetExceededError(
            f"{label}: pages of {len(pages):,} bytes say that they decompress to {size_bytes:,}, more than memory_limit_bytes"
            f" ({most_bytes:,}); if that is right, read with ReadOptions(memory_limit_bytes={size_bytes}), or leave the column"
            " out with columns=[...]",
            kind="MemoryLimit",
            path=label.path,
            row_group=label.row_group,
            columns=label.columns,
            decompressed_bytes=size_bytes,
        )

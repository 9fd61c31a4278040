"""What pages decompress to, by what their headers say: few bytes may stand for very many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.errors import BudgetExceededError
from coldparquet.format.page_headers import parse_pages
from coldparquet.options import MIB

if TYPE_CHECKING:
    from coldparquet.decode.chunk_label import ChunkLabel

_LARGEST_USUAL_RATIO = 256
"""Pages of tables decompress to 2 to 100 times their bytes."""

_LARGEST_RATIO = 1 << 15
"""No codec makes more of a byte: zstd, whose smallest block of 4 bytes stands for 128 KiB."""

_NEVER_REFUSED_BYTES = 64 * MIB
"""So much is always decompressed, whatever the memory limit."""


def may_decompress_to(length_bytes: int, most_bytes: int) -> bool:
    """Tell whether so many bytes of pages could be so many once they are decompressed, in any codec."""
    return length_bytes * _LARGEST_RATIO > most_bytes


def check_decompressed_size(pages: bytes, codec: int, most_bytes: int, label: ChunkLabel) -> None:
    """Refuse a chunk that would decompress to more than the memory limit and to far more than any usual one.

    Args:
        pages: Pages with their headers.
        codec: Parquet compression codec of the chunk.
        most_bytes: The memory limit.
        label: The chunk.

    Raises:
        BudgetExceededError: It would.
    """
    found = parse_pages(pages) if codec else None
    size_bytes = sum(page.header.uncompressed_page_size or 0 for page in found or [])
    if size_bytes > max(most_bytes, _NEVER_REFUSED_BYTES, _LARGEST_USUAL_RATIO * len(pages)):
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

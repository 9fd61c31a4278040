"""The sidecar of a local Parquet file that was just written, with its bloom filters."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from coldparquet.format.footer_blooms import BloomTransfer
from coldparquet.options import COALESCING_BY_GOAL, ReadOptions
from coldparquet.plan.coalesce import coalesce
from coldparquet.storage.local.errors import translated_errors

if TYPE_CHECKING:
    from coldparquet.format.fetched_ranges import WantedRanges
    from coldparquet.format.parquet_footer import ParquetFooter
    from coldparquet.format.sidecar_content import SidecarContent


def sidecar_content_of_file(path: str, footer: ParquetFooter, *, inline_bytes: int | None = None) -> SidecarContent:
    """Say in a sidecar what a footer says, with the bloom filters of the file: in it, or by their places. Blocks.

    Args:
        path: The Parquet file.
        footer: Its footer.
        inline_bytes: The filters go into the sidecar if it then has at most this length; None takes the length that
            readers fetch at first.

    Raises:
        FormatError: The footer cannot be described, see ``sidecar_content_from_footer``.
        UnsupportedError: The same.
        StorageError: The file cannot be read.
    """
    transfer = BloomTransfer(
        footer, inline_bytes=ReadOptions().sidecar_prefix_bytes if inline_bytes is None else inline_bytes
    )
    while (wanted := transfer.wanted()) is not None:
        with translated_errors(path, None), Path(path).open("rb") as file:
            transfer.receive(_read(file.fileno(), wanted))
    return transfer.content()


def _read(file: int, wanted: WantedRanges) -> list[tuple[int, bytes]]:
    coalescing = COALESCING_BY_GOAL["fast"]
    coalesced = coalesce(
        wanted.starts,
        wanted.stops,
        gap_bytes=coalescing.gap_bytes,
        max_request_bytes=coalescing.max_request_bytes,
    )
    pairs = zip(coalesced.starts.tolist(), coalesced.stops.tolist(), strict=True)
    return [(start, os.pread(file, stop - start, start)) for start, stop in pairs]

"""All snapshots of a sidecar, each checked by its own checksum."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from coldparquet.errors import FormatError
from coldparquet.format import sidecar_layout as layout
from coldparquet.format.sidecar import checksum_mismatch
from coldparquet.format.sidecar_footer import check_footer_place, check_required_flags

if TYPE_CHECKING:
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.format.sidecar_footer import SidecarFooter


def verify_chain(sidecar: Sidecar) -> tuple[SidecarFooter, ...]:
    """Check this snapshot and every older one as a reader that is pinned to it would: header, flags, checksum, place.

    Returns:
        Their footers, newest first.

    Raises:
        FormatError: The first problem: a broken chain, or a snapshot that its reader would refuse.
    """
    footers = sidecar.chain()
    # Every checksum covers the file from byte 8 on, so the older ones are prefixes: one pass serves them all.
    computed: list[int] = []
    checksum, covered = 0, layout.CHECKSUM_START
    for footer in reversed(footers):
        checksum = zlib.crc32(sidecar.file[covered : footer.checksum_offset], checksum)
        covered = footer.checksum_offset
        computed.append(checksum)
    for footer, footer_checksum in zip(footers, reversed(computed), strict=True):
        if sidecar.header.stop > footer.size_bytes:
            raise FormatError(
                f"the header ends at {sidecar.header.stop}, behind the older snapshot of {footer.size_bytes} bytes",
                kind="Truncated",
                path=sidecar.path,
                offset=footer.offset,
                field="prev_parquet_meta_file_size",
            )
        check_required_flags(footer, path=sidecar.path)
        if footer_checksum != footer.checksum:
            raise checksum_mismatch(footer, footer_checksum, path=sidecar.path)
        check_footer_place(footer, sidecar.header, path=sidecar.path)
    return footers

"""The chain of footers that updates leave behind in a sidecar.

The footer at the committed size is the newest; `previous_size_bytes` leads to the size at which the one before it was
committed, and so on back to the first. Sizes strictly decrease, so no walk repeats.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from coldparquet.errors import FormatError
from coldparquet.format import sidecar_layout as layout
from coldparquet.format.sidecar_footer import (
    SidecarFooter,
    check_required_flags,
    checksum_mismatch,
    parse_sidecar_footer,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coldparquet.format.sidecar import Sidecar
    from coldparquet.format.sidecar_header import SidecarHeader

_LARGEST_U64 = (1 << 64) - 1


def walk_chain(
    file: memoryview, size_bytes: int, header: SidecarHeader, *, path: str | None
) -> Iterator[SidecarFooter]:
    """Yield the footer at `size_bytes`, then every older one, each parsed but neither flag- nor checksum-checked.

    Raises:
        FormatError: A footer is malformed, a previous size does not decrease, or footers overlap.
    """
    footer_bytes = 0
    for _ in range(layout.MAX_CHAIN_STEPS):
        footer = parse_sidecar_footer(file, size_bytes, header, path=path)
        # Footers of one file lie one behind the other. Together they never exceed it, unless they were crafted to
        # overlap and to make a walk take the square of the file's size.
        footer_bytes += footer.length_bytes + layout.TRAILER.size
        if footer_bytes > len(file):
            raise _broken_chain("the footers of the chain overlap", footer, path)
        yield footer
        if footer.previous_size_bytes == 0:
            return
        if footer.previous_size_bytes >= size_bytes:
            message = f"the previous size {footer.previous_size_bytes} is not below this snapshot's {size_bytes}"
            raise _broken_chain(message, footer, path)
        size_bytes = footer.previous_size_bytes
    raise _broken_chain(f"the chain has more than {layout.MAX_CHAIN_STEPS} footers", footer, path)


def find_footer(
    file: memoryview, size_bytes: int, header: SidecarHeader, *, parquet_size_bytes: int, path: str | None
) -> SidecarFooter:
    """Return the newest footer, from `size_bytes` back, that describes a Parquet file of this size.

    Raises:
        FormatError: There is none (kind `InvalidValue`), or the walk met a malformed footer.
    """
    seen = 0
    for footer in walk_chain(file, size_bytes, header, path=path):
        seen += 1
        if footer.parquet_size_bytes > _LARGEST_U64:
            raise _broken_chain("the Parquet size exceeds 64 bits", footer, path)
        if footer.parquet_size_bytes == parquet_size_bytes:
            return footer
    raise FormatError(
        f"none of the {seen} snapshots in the sidecar describes a Parquet file of {parquet_size_bytes} bytes; "
        "the sidecar may be older than the table's transaction file: list the partition again",
        kind="InvalidValue",
        path=path,
        offset=footer.offset,
        field="parquet_size_bytes",
    )


def check_footer_place(footer: SidecarFooter, header: SidecarHeader, *, path: str | None) -> None:
    """Refuse what a damaged trailer makes of a file: no checksum covers it, and it alone tells where a footer begins.

    A wrong one makes a footer of other numbers, whose checksum field is nevertheless the right one. Mostly its sections
    do not end at the checksum. Where an unknown optional feature may explain that, or where it has no row group and the
    error would make rows disappear, the footer must at least lie where writers put one.

    Raises:
        FormatError: Kind `InvalidValue`; without row groups also what a walk along the chain meets.
    """
    is_exact = footer.sections_stop == footer.checksum_offset
    if is_exact and footer.row_group_count:
        return
    # Bit 2 without its required half counts as unknown: parse_sidecar_footer left its section alone.
    known = layout.KNOWN_FOOTER_FLAGS if footer.covering_index_offset else layout.KNOWN_FOOTER_FLAGS_WITHOUT_COVERING
    unknown = footer.feature_flags & ~known | header.feature_flags & ~layout.KNOWN_HEADER_FLAGS
    if not (is_exact or unknown) or not _is_placed_well(footer, header, path):
        raise FormatError(
            f"the footer at {footer.offset} with {footer.row_group_count} row groups cannot be the one that ends at "
            f"{footer.size_bytes}: the trailer of the sidecar is damaged",
            path=path,
            offset=footer.size_bytes - layout.TRAILER.size,
            field="footer_length",
        )


def _is_placed_well(footer: SidecarFooter, header: SidecarHeader, path: str | None) -> bool:
    """Tell whether a footer lies behind all that it refers to, or without row groups right behind the header."""
    if footer.row_group_count == 0:
        # Updates never drop row groups, so a file without any was made without, and its first footer tells.
        *_, first = walk_chain(footer.file, footer.size_bytes, header, path=path)
        return first.offset == header.stop or bool(header.feature_flags & ~layout.KNOWN_HEADER_FLAGS)
    blocks = footer.block_offsets
    blocks_stop = int(blocks.max()) + layout.block_bytes(header.column_count)
    return int(blocks.min()) >= header.stop and max(blocks_stop, footer.previous_size_bytes) <= footer.offset


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


def _broken_chain(message: str, footer: SidecarFooter, path: str | None) -> FormatError:
    return FormatError(message, path=path, offset=footer.offset + 24, field="prev_parquet_meta_file_size")

"""`_meta` files made by hand."""

from __future__ import annotations

import struct

Slot = tuple[str, int, dict[str, int]]
"""Name, stored type, and whatever else is not 0: flags, index, symbols, word, replaced, x (reserved)."""


def make_meta(
    slots: list[Slot],
    *,
    designated: int = 0,
    interval: int = 0,
    version: int = 426,
    metadata_version: int = 9,
    minor_word: int | None = None,
    ttl: int = 0,
) -> bytes:
    """Write a `_meta` file by the offsets of the format, independently of our writer."""
    if minor_word is None:
        folded = 13 * ((metadata_version & 0xFFFFFFFF) ^ (metadata_version >> 32)) + 37 * len(slots)
        minor_word = 1 << 16 | ((folded ^ (folded >> 16)) & 0xFFFF)
    header = struct.pack(
        "<6i2q?ii", len(slots), interval, designated, version, 4, 500, 600, metadata_version, 1, minor_word, ttl
    )
    entries = b"".join(
        struct.pack(
            "<iqiiiii", code, *(extra.get(name, 0) for name in ("flags", "index", "symbols", "word", "replaced", "x"))
        )
        for _, code, extra in slots
    )
    names = b"".join(struct.pack("<i", len(name)) + name.encode("utf-16-le") for name, _, _ in slots)
    return header.ljust(128, b"\0") + entries + names


def make_symbol_files(symbols: list[str]) -> tuple[bytes, bytes]:
    """Return the offsets part of `COLUMN.o`, and `COLUMN.c`; lone surrogates are allowed."""
    chars, offsets = b"", [0]
    for symbol in symbols:
        encoded = symbol.encode("utf-16-le", "surrogatepass")
        chars += struct.pack("<i", len(encoded) // 2) + encoded
        offsets.append(len(chars))
    return struct.pack(f"<{len(offsets)}q", *offsets), chars


def make_cv(records: list[tuple[int, int, int, int]], *, version: int = 3, start: int = 40) -> bytes:
    area = b"".join(struct.pack("<4q", *record) for record in records)
    areas = (0, 0, start, len(area)) if version % 2 else (start, len(area), 0, 0)
    return struct.pack("<5q", version, *areas).ljust(start, b"\xee") + area

"""Table files (`_txn`, `_meta`) made by hand, by the offsets of their formats."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from coldparquet.format.txn import TableTransaction
from coldparquet.records import field_names

# --- `_txn` files made by hand, and transactions that compare ---------------------------------------------------------


I64_MIN, I64_MAX = -(1 << 63), (1 << 63) - 1


def lag_checksum(*values: int) -> int:
    """Fold as Java's `31 * h + x` on longs does, starting from the first value."""
    folded = values[0]
    for value in values[1:]:
        folded = (31 * folded + value) % (1 << 64)
    return (folded ^ folded >> 32) & 0xFFFFFFFF


def make_txn(
    *,
    version: int = 4,
    rows: tuple[int, int] = (7, 0),
    bounds: tuple[int, int] = (10, 20),
    structure: tuple[int, int] = (3, 0),
    lag: tuple[int, int, int, int] = (0, 0, I64_MAX, I64_MIN),
    symbols: Sequence[tuple[int, int]] = (),
    partitions: Sequence[tuple[int, int, int, int]] = ((0, 7, -1, -1),),
    start: int = 64,
    stale: bytes = bytes(12),
) -> bytes:
    """Write a `_txn` file by the offsets of the format, independently of our writer."""
    sizes = (start, 8 * len(symbols), 32 * len(partitions))
    areas = struct.pack("<8xiii12x" if version % 2 else "<iii20x", *sizes)
    if version % 2:
        areas = struct.pack("<24xiii20x", *sizes)
    header = (struct.pack("<q", version) + areas).ljust(64, b"\0")
    seq_txn, lag_txns, lag_rows, *lag_bounds = 6, *lag
    checksum = lag_checksum(*lag_bounds, version, seq_txn, lag_rows, lag_txns)
    record = (
        struct.pack("<qqqqq", version, *rows, *bounds)
        + struct.pack("<iiqqqqq", *structure, 11, 12, 13, 14, seq_txn)
        + struct.pack("<Iiiqq", checksum, lag_txns, lag_rows, *lag_bounds)
        + stale
        + struct.pack("<i", len(symbols))
        + b"".join(struct.pack("<ii", *counts) for counts in symbols)
        + struct.pack("<i", 32 * len(partitions))
        + b"".join(
            struct.pack("<qQqQ", begin, flags & (1 << 64) - 1, name_txn, size & (1 << 64) - 1)
            for begin, flags, name_txn, size in partitions
        )
    )
    return header.ljust(start, b"\xee") + record


def patched(data: bytes, offset: int, layout: str, value: int) -> bytes:
    return data[:offset] + struct.pack(layout, value) + data[offset + struct.calcsize(layout) :]


def as_values(transaction: TableTransaction) -> dict[str, Any]:
    """Return a transaction as values that compare."""
    values = {name: getattr(transaction, name) for name in field_names(type(transaction))}
    return values | {"partitions": [transaction.partitions.record(i) for i in range(len(transaction.partitions))]}


# --- `_meta` files made by hand ---------------------------------------------------------------------------------------


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

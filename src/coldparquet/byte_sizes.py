"""Numbers of bytes as people write them: in flags of the command line and in options of Spark."""

from __future__ import annotations

import re

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
"""Written with or without a B behind them, in letters of any case."""

_SIZE = re.compile(r"(?P<number>\d{1,15}(\.\d{1,6})?) ?(?P<unit>[A-Za-z]{0,3})", re.ASCII)


def parse_byte_count(text: str) -> int:
    """Parse a number of bytes, such as ``1000000``, ``250MB`` or ``1.5GiB``.

    Raises:
        ValueError: It does not read so. The message says what it must be, and is about no name.
    """
    match = _SIZE.fullmatch(text.strip())
    unit = None if match is None else _UNITS.get(match["unit"].upper().removesuffix("B"))
    if match is None or unit is None:
        raise ValueError("it must be a number of bytes, such as 1000000, 250MB or 1.5GiB")
    return int(float(match["number"]) * unit)

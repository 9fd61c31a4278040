"""`_name`: the name of a table, which need not be that of its directory since RENAME changes only this file.

The file is the number of UTF-16 units as i32, the units, and one zero byte.
"""

from __future__ import annotations

from coldparquet.errors import FormatError, InvalidInputError
from coldparquet.format.utf16 import encode_name, parse_name

LONGEST_NAME_UNITS = 255
"""File systems allow no longer names; QuestDB itself stops at 127."""


def parse_table_name(data: bytes | memoryview, *, path: str | None) -> str:
    """Parse a `_name` file; bytes behind the name are not looked at.

    Raises:
        FormatError: `Truncated`, or `InvalidValue` for names that no table can have, such as `../x`.
    """
    name, _ = parse_name(memoryview(data).cast("B"), 0, longest_units=LONGEST_NAME_UNITS, field="table name", path=path)
    return name


def encode_table_name(name: str) -> bytes:
    """Write a `_name` file.

    Raises:
        InvalidInputError: No table can have this name.
    """
    try:
        encoded = encode_name(name) + b"\0"
        parse_table_name(encoded, path=None)
    except (FormatError, UnicodeEncodeError) as error:
        raise InvalidInputError(f"{name!r} cannot be the name of a table: {error}") from error
    return encoded

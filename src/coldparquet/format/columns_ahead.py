"""Parsing the columns of a wide sidecar while most of it is still on its way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.format import sidecar_layout as layout
from coldparquet.format.column_schema import shared_schema
from coldparquet.format.sidecar_header import parse_column, parse_header

if TYPE_CHECKING:
    from collections.abc import Iterator

_COLUMNS_PER_STEP = 32
"""They take a quarter of a millisecond."""


def parse_columns_ahead(beginning: memoryview) -> Iterator[None]:
    """Parse the columns that the beginning of a sidecar describes, a few with each step.

    Nothing is believed before the checksum of the whole was verified: what is found is kept under the very bytes that it was
    found in, so that of a damaged sidecar nobody ever asks for it. What is wrong is left to whoever parses all of it.

    Args:
        beginning: The file from its first byte on; where it does not hold all descriptors and names, nothing is parsed.
    """
    try:
        header = parse_header(beginning, path=None)
        # Those of QuestDB have no annotations; where others have, their columns are parsed again.
        schema = shared_schema(bytes(beginning[layout.CHECKSUM_START : header.names_stop]), b"")
        for index in range(header.column_count):
            if index % _COLUMNS_PER_STEP == 0:
                yield
            if index not in schema.descriptors:
                schema.descriptors[index] = parse_column(beginning, index, path=None)
    except (FormatError, UnsupportedError):
        return

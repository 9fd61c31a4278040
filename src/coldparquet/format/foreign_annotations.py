"""What a sidecar of ours remembers about columns of files that QuestDB did not write.

QuestDB's sidecar has no place for Parquet annotations, and its type codes know neither unsigned integers nor times of
day. Sidecars that we make for such files hold one SCRATCHPAD entry, which QuestDB carries along unread: a JSON object
from column index to annotation name. Without it, values above 2**31 would read as negative numbers.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING

from coldparquet.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Mapping

FOREIGN_ANNOTATIONS_CODE = 0x43505441
"""Code of the SCRATCHPAD entry: ``CPTA`` read as a big-endian number."""


class ForeignAnnotation(StrEnum):
    """Facts about a foreign column that its QuestDB type code cannot express."""

    UINT_8 = "UINT_8"
    UINT_16 = "UINT_16"
    UINT_32 = "UINT_32"
    UINT_64 = "UINT_64"
    TIMESTAMP_MILLIS_LOCAL = "TIMESTAMP_MILLIS_LOCAL"
    TIMESTAMP_MICROS_LOCAL = "TIMESTAMP_MICROS_LOCAL"
    TIMESTAMP_NANOS_LOCAL = "TIMESTAMP_NANOS_LOCAL"
    TIME_MILLIS = "TIME_MILLIS"
    TIME_MICROS = "TIME_MICROS"
    TIME_NANOS = "TIME_NANOS"
    NULLABLE = "NULLABLE"
    """A BOOLEAN, BYTE or SHORT that has nulls, which QuestDB's own columns of these types never have."""


def parse_foreign_annotations(content: bytes, *, path: str | None = None) -> dict[int, str]:
    """Parse the content of the SCRATCHPAD entry with the code ``FOREIGN_ANNOTATIONS_CODE``.

    Args:
        content: The entry's bytes, without its code and length.
        path: The sidecar, for error messages.

    Returns:
        Column index to annotation name. Names that this version does not know are kept; resolving the type of
        such a column fails, the others stay readable.

    Raises:
        FormatError: The content is not a JSON object from column indexes to names.
    """
    try:
        parsed = json.loads(content)
        annotations = {int(index): name for index, name in parsed.items()}
    except (ValueError, AttributeError, RecursionError) as error:
        raise FormatError(
            f"the scratchpad entry of foreign annotations is not a JSON object of column indexes: {error}",
            path=path,
            field="foreign_annotations",
        ) from error
    for index, name in annotations.items():
        if index < 0 or not isinstance(name, str):
            raise FormatError(
                f"foreign annotation {name!r} of column {index}: expected a name and an index of at least 0",
                path=path,
                field="foreign_annotations",
            )
    return annotations


def encode_foreign_annotations(annotations: Mapping[int, str]) -> bytes:
    """Encode annotations as the content of a SCRATCHPAD entry; the inverse of ``parse_foreign_annotations``."""
    by_index = {str(index): str(annotations[index]) for index in sorted(annotations)}
    return json.dumps(by_index, separators=(",", ":")).encode()

"""Who wrote a Parquet file, for what is known to be wrong with some writers, as Arrow's readers know it.

- Arrow before 3.0 (ARROW-10353) compressed data pages of version 2 and marked them as not compressed. pyarrow decodes them
  right where the footer in front of it names the writer, so the name goes into every footer that we make up.
- parquet-mr before 1.2.9 (PARQUET-816) left the header of the dictionary page out of the length of a chunk.
- Arrow before 4.0 (PARQUET-1655) compared all bytes of decimals as signed numbers, so that its bounds of them mean nothing.

QuestDB's sidecar has no place for the name. Those that we make for the files of others hold it in a SCRATCHPAD entry, which
QuestDB carries along unread; empty where the footer names nobody. A sidecar without it is QuestDB's, or of a version of this
library that did not know better.
"""

from __future__ import annotations

import re

from coldparquet.format.foreign_annotations import FOREIGN_ANNOTATIONS_CODE
from coldparquet.format.sidecar_footer import ScratchpadEntry

WRITER_CODE = 0x43505752
"""Code of the SCRATCHPAD entry: ``CPWR`` read as a big-endian number. Its content is the footer's ``created_by`` in UTF-8."""

DERIVED_CODES = frozenset({WRITER_CODE, FOREIGN_ANNOTATIONS_CODE})
"""SCRATCHPAD entries that come from the footer of the file, so that a sidecar of a rewritten file has its own."""

DICTIONARY_HEADER_BYTES = 100
"""More than the header of a dictionary page without statistics has, and as much as Arrow looks for it."""

_LONGEST_NAME_BYTES = 1_000
"""Names are half as long as this line; a SCRATCHPAD holds 1 MiB at most."""

_VERSION = re.compile(r"\sversion\b\s*(?P<version>\d{1,9}(?:\.\d{1,9}){0,2})?", re.IGNORECASE)


def writer_entry(created_by: str | None) -> ScratchpadEntry:
    """Return the SCRATCHPAD entry that notes who wrote a file."""
    name = (created_by or "").encode("utf-8", "replace")[:_LONGEST_NAME_BYTES]
    return ScratchpadEntry(WRITER_CODE, name)


def leaves_out_dictionary_headers(created_by: str | None) -> bool:
    """Tell whether chunks may be longer than the footer says, by up to ``DICTIONARY_HEADER_BYTES``."""
    return _is_before(created_by, "parquet-mr", (1, 2, 9))


def misorders_decimals(created_by: str | None) -> bool:
    """Tell whether the bounds of decimals that are stored as bytes may be in no order."""
    return _is_before(created_by, "parquet-cpp", (2,)) or _is_before(created_by, "parquet-cpp-arrow", (4,))


def _is_before(created_by: str | None, application: str, version: tuple[int, ...]) -> bool:
    """Tell whether a writer is an older version of an application; a version that is not told is the oldest."""
    # No longer part than is noted: who makes a name of a megabyte is no old version of these.
    name = (created_by or "")[:_LONGEST_NAME_BYTES]
    found = _VERSION.search(name)
    if name[: found.start() if found else None].strip().lower() != application:
        return False
    stated = found["version"] if found else None
    return tuple(map(int, (stated or "0").split("."))) < version

"""What lies in the file of the cache on disk: versions of objects, and ranges of them, each with a digest.

All functions work in a transaction of the caller.
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import TYPE_CHECKING, NamedTuple

from coldparquet.options import MIB
from coldparquet.ranges import ByteRange
from coldparquet.storage.cache import missing_of, part_of

if TYPE_CHECKING:
    import sqlite3

    from coldparquet.ranges import SuffixRange
    from coldparquet.storage.cache import Piece
    from coldparquet.storage.requests import FetchedRange


SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    id INTEGER PRIMARY KEY,
    key BLOB NOT NULL,      -- digest of the store's name and the object's path: names of objects are not told
    kind TEXT NOT NULL,     -- "version": ETag, size and confirmation of the object; "range": bytes of that version
    start INTEGER NOT NULL, -- bounds of the bytes in the object; 0 for versions
    stop INTEGER NOT NULL,
    used_s INTEGER NOT NULL,
    digest BLOB NOT NULL,   -- of all the above but the last use, of the version, and of the content
    content BLOB NOT NULL,
    UNIQUE (key, kind, start, stop)
);
CREATE INDEX IF NOT EXISTS by_use ON entries (kind, used_s, id);
"""

PAGE_BYTES = 16 * 1024

_PART_BYTES = MIB
"""Entries are read and checked as a whole, so long ranges are cut: a reader of a part need not read all of it."""

_LEAVE_FREE_SHARE = 8
"""Making room frees an eighth of the limit, so that it is rare."""

_WRITE = "INSERT OR REPLACE INTO entries (key, kind, start, stop, used_s, digest, content) VALUES (?, ?, ?, ?, ?, ?, ?)"
_VERSION = "SELECT CAST(digest AS BLOB), CAST(content AS BLOB) FROM entries WHERE key = ? AND kind = 'version'"
_NEAR = (
    "SELECT id, start, CAST(used_s AS INTEGER), CAST(digest AS BLOB), CAST(content AS BLOB) FROM entries"
    " WHERE key = ? AND kind = 'range' AND start > ? AND start < ? AND stop > ? ORDER BY start"
)
"""With casts, the types are right even if the file was damaged."""
_REMOVE_OLDEST = (
    "DELETE FROM entries WHERE id IN (SELECT id FROM entries WHERE kind = 'range' ORDER BY used_s, id LIMIT 8)"
)
_REMOVE_EMPTY = (
    "DELETE FROM entries WHERE kind = 'version' AND key NOT IN (SELECT key FROM entries WHERE kind = 'range')"
)


class Version(NamedTuple):
    """The version of an object that is kept."""

    etag: str
    object_size_bytes: int | None
    confirmed_s: float


class _Entry(NamedTuple):
    """A kept piece; its digest is checked outside of the transaction."""

    id: int
    used_s: int
    digest: bytes
    piece: Piece


def _read_version(cursor: sqlite3.Cursor, key: bytes) -> Version | None:
    stated, content = cursor.execute(_VERSION, (key,)).fetchone() or (b"", b"")
    return Version(*json.loads(content)) if stated == digest_of_entry(key, "", 0, content) else None


def read_object(
    cursor: sqlite3.Cursor,
    key: bytes,
    asked: ByteRange | SuffixRange | None,
    etag: str | None,
    size_bytes: int | None,
) -> tuple[Version, list[_Entry]] | None:
    """Read the version of an object, if it is the wanted one, and the entries that hold parts of a range."""
    version = _read_version(cursor, key)
    if version is None or etag not in (None, version.etag):
        return None
    wanted = part_of(asked, version.object_size_bytes or size_bytes)
    return version, [] if wanted is None else _read_near(cursor, key, wanted)


def _read_near(cursor: sqlite3.Cursor, key: bytes, wanted: ByteRange) -> list[_Entry]:
    # No entry is longer than a part, so those that reach into the range begin near it.
    rows = cursor.execute(_NEAR, (key, wanted.start - _PART_BYTES, wanted.stop, wanted.start))
    return [_Entry(entry, used_s, digest, (start, content)) for entry, start, used_s, digest, content in rows]


def write_version(cursor: sqlite3.Cursor, key: bytes, version: Version) -> None:
    """Write the version of an object, unless it is there already; ranges of another one are removed."""
    before = _read_version(cursor, key)
    if before is None or before.etag != version.etag:
        cursor.execute("DELETE FROM entries WHERE key = ?", (key,))
    elif version.object_size_bytes is None:
        version = version._replace(object_size_bytes=before.object_size_bytes)
    if version != before:
        content = json.dumps(version).encode()
        cursor.execute(_WRITE, (key, "version", 0, 0, 0, digest_of_entry(key, "", 0, content), content))


def write_missing(cursor: sqlite3.Cursor, key: bytes, etag: str, fetched: FetchedRange) -> None:
    """Write the parts of an answer that are not kept yet."""
    whole, now_s = ByteRange(fetched.start, fetched.start + len(fetched.data)), int(time.time())
    kept = [entry.piece for entry in _read_near(cursor, key, whole)]
    for missing in missing_of(whole, kept):
        for start in range(missing.start, missing.stop, _PART_BYTES):
            stop = min(start + _PART_BYTES, missing.stop)
            content = fetched.data[start - fetched.start : stop - fetched.start]
            cursor.execute(
                _WRITE, (key, "range", start, stop, now_s, digest_of_entry(key, etag, start, content), content)
            )


def make_room(cursor: sqlite3.Cursor, size_bytes: int, *, limit_bytes: int) -> None:
    """Remove what was used longest ago, if there is too little room for more."""
    if _used_bytes(cursor) + size_bytes <= limit_bytes:
        return
    most_bytes = limit_bytes - max(size_bytes, limit_bytes // _LEAVE_FREE_SHARE)
    while _used_bytes(cursor) > most_bytes:
        if not cursor.execute(_REMOVE_OLDEST).rowcount:
            break
    cursor.execute(_REMOVE_EMPTY)


def _used_bytes(cursor: sqlite3.Cursor) -> int:
    """Return how much of the file is in use; the rest is taken before it grows."""
    [page_count], [free_count] = (
        cursor.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count")
    )
    return int(page_count - free_count) * PAGE_BYTES


def digest_of_entry(key: bytes, etag: str, start: int, content: bytes) -> bytes:
    """Return the digest of an entry: of its place, its version and its content."""
    digest = hashlib.blake2b(key + f"{etag}\n{start}\n".encode(), digest_size=32)
    digest.update(content)
    return digest.digest()

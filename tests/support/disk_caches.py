"""Damage to the cache on disk."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def poison(directory: Path) -> None:
    """Change the last byte of all that is kept, in a file that stays sound for SQLite."""
    [path] = directory.rglob("cache.sqlite")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        changed = connection.execute(
            "UPDATE entries SET content = CAST(substr(content, 1, length(content) - 1) || x'21' AS BLOB)"
            " WHERE kind = 'range'"
        )
        assert changed.rowcount

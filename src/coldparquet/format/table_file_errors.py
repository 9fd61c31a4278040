"""How the parsers of a table's own files (`_txn`, `_meta`, `_cv`, `_name`, symbol files) say what is wrong."""

from __future__ import annotations

from coldparquet.errors import FormatError


def truncated(what: str, needed_bytes: int, available_bytes: int, *, offset: int, path: str | None) -> FormatError:
    """Return the error for a part of a file that ends before it is complete."""
    return FormatError(
        f"{what} would end at byte {needed_bytes}, but there are {available_bytes} bytes; fetch the whole file again",
        kind="Truncated",
        path=path,
        offset=offset,
        field=what,
        needed_bytes=needed_bytes,
        available_bytes=available_bytes,
    )


def invalid(message: str, *, offset: int, field: str, path: str | None) -> FormatError:
    """Return the error for a value that cannot be, in a file or, without a path, in what was to become one."""
    remedy = "" if path is None else "; the file is damaged: copy it from the database again"
    return FormatError(f"{message}{remedy}", kind="InvalidValue", path=path, offset=offset, field=field)

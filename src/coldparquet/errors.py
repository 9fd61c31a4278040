"""Everything that coldparquet raises, ordered by what the caller can do about it.

    ColdParquetError
    ├── InvalidInputError    (ValueError)         fix the call
    ├── NotFoundError        (FileNotFoundError)  wrong bucket, table, partition or file
    ├── AccessError          (PermissionError)    fix the credentials
    ├── StorageError         (OSError)            the store failed; often worth another try
    ├── ObjectChangedError   (OSError)            the object was replaced during the read; plan again
    ├── ArchivedObjectError  (OSError)            restore the object first
    ├── FormatError          (ValueError)         the bytes are wrong
    ├── UnsupportedError     (NotImplementedError) valid, but not something that we read
    ├── BudgetExceededError  (ValueError)         the plan costs more than the caller allowed
    └── InternalError        (RuntimeError)       a bug of ours; please report it

Each carries a stable ``kind`` that programs may compare, the ``path`` it is about and, in ``details``, the facts of
its message as data. All of them pickle, because Spark and multiprocessing send exceptions between processes.
"""

from __future__ import annotations

from typing import Any

from coldparquet.text import visible, visible_lines


class ColdParquetError(Exception):
    """Base of every error that this library raises on purpose.

    Args:
        message: What is wrong, what was expected and what to do next, for a person.
        kind: Stable CamelCase name of the precise cause; each class has a default.
        path: The object or file that the error is about, without credentials or query string.
        **details: Facts of the message as data: ``offset``, ``field``, ``expected`` and so on.
    """

    default_kind = "Error"

    def __init__(self, message: str, *, kind: str | None = None, path: str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind or self.default_kind
        self.path = path
        self.details = details

    def __str__(self) -> str:
        # What a server, a file or its path say may hold control characters, and errors end in logs and on terminals.
        message = visible_lines(self.message)
        return f"{visible(self.path)}: {message}" if self.path else message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.kind, self.path, self.details)

    def as_dict(self) -> dict[str, Any]:
        """Return the error as data that ``json.dumps`` takes, as the command line prints it with ``--json``."""
        details = {name: _plain(value) for name, value in self.details.items()}
        return {"kind": self.kind, "message": self.message, "path": self.path, **details}


def _plain(value: object) -> object:
    """Spell what JSON has no word for, such as byte ranges."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if hasattr(value, "as_dict"):
        return value.as_dict()
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _rebuild(
    error_class: type[ColdParquetError], message: str, kind: str, path: str | None, details: dict[str, Any]
) -> ColdParquetError:
    return error_class(message, kind=kind, path=path, **details)


class InvalidInputError(ColdParquetError, ValueError):
    """The call itself is wrong: an unknown column, a predicate that does not parse, a bad option."""

    default_kind = "InvalidInput"


class NotFoundError(ColdParquetError, FileNotFoundError):
    """The bucket, table, partition or file does not exist."""

    default_kind = "NotFound"


class AccessError(ColdParquetError, PermissionError):
    """The store refused the credentials, or there are none."""

    default_kind = "AccessDenied"


class StorageError(ColdParquetError, OSError):
    """The store failed or answered something else than was asked; trying again may help."""

    default_kind = "StorageFailed"


class ObjectChangedError(ColdParquetError, OSError):
    """The object was replaced between two requests of one read; nothing of it was returned."""

    default_kind = "ObjectChanged"


class ArchivedObjectError(ColdParquetError, OSError):
    """The object lies in an archive class and must be restored before it can be read."""

    default_kind = "ObjectArchived"


class FormatError(ColdParquetError, ValueError):
    """The bytes break their format; ``details`` hold the byte ``offset`` and the ``field``.

    For sidecars ``kind`` is the reference implementation's: ``Truncated``, ``InvalidValue``, ``Alignment``,
    ``ChecksumMismatch``, ``SchemaMismatch`` or ``Conversion``.
    """

    default_kind = "InvalidValue"


class UnsupportedError(ColdParquetError, NotImplementedError):
    """Valid, but a feature, codec or type that this version does not read."""

    default_kind = "Unsupported"


class BudgetExceededError(ColdParquetError, ValueError):
    """The plan needs more requests, bytes or dollars than the caller allowed; no data was fetched."""

    default_kind = "BudgetExceeded"


class InternalError(ColdParquetError, RuntimeError):
    """An invariant of coldparquet itself does not hold: please report it with the message."""

    default_kind = "Internal"

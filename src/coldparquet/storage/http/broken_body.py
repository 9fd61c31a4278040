"""The error for a body that broke off, with what arrived of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coldparquet.errors import StorageError

if TYPE_CHECKING:
    from coldparquet.storage.requests import FetchedRange


class BrokenBodyError(StorageError):
    """The answer to a GET broke off in the middle of its body.

    Args:
        message: As for every error.
        kind: ``ShortRead``, ``Timeout`` or ``ConnectionFailed``.
        path: The object.
        received: The bytes that arrived, from the beginning of the range; None where nobody needs them any more. They
            are not pickled.
        **details: Facts of the message as data.
    """

    default_kind = "ShortRead"

    def __init__(
        self,
        message: str,
        *,
        kind: str | None = None,
        path: str | None = None,
        received: FetchedRange | None = None,
        **details: Any,
    ) -> None:
        super().__init__(message, kind=kind, path=path, **details)
        self.received = received

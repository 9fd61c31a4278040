"""Advice of the library, which names what Python calls, in the flags of the command that runs."""

from __future__ import annotations

from contextvars import ContextVar

_FLAGS_FOR_PYTHON = {
    " or Scan.restore(); ReadOptions(archived='skip') leaves": "; --archived skip leaves",
    "give ReadOptions.prices a table that has one (PriceTable.read), or leave max_usd out": (
        "give --prices a table that has one, or leave --max-usd out"
    ),
    "in a cheaper tier (RestoreTerms.tier)": "in a cheaper tier (--tier)",
    "give key and secret or a profile in storage_options": "give key and secret or a profile with --storage-option",
    "pass anon=True": "use --anon",
}
"""Advice of the library to people who write Python, and what it is for those at the command line."""
_READ_FLAGS_FOR_PYTHON = {
    "ReadOptions(sidecars=False)": "--no-sidecars",
    "ReadOptions(unread='skip')": "--unread skip",
    "ReadOptions(columns_from='all')": "--columns-from all",
    "ReadOptions(format='delta')": "--format delta",
    "ReadOptions(format='iceberg')": "--format iceberg",
    "ReadOptions(timestamp='...')": "--timestamp COLUMN",
}
"""The same, for flags that only ``scan``, ``count`` and ``explain`` have."""
has_read_flags: ContextVar[bool] = ContextVar("has_read_flags", default=False)
"""Whether the command that runs has them."""


def in_flags(message: str) -> str:
    """Say advice to people who write Python in the flags of the command that runs, or of ``scan`` where it lacks them."""
    for python, flags in _FLAGS_FOR_PYTHON.items():
        message = message.replace(python, flags)
    for python, flag in _READ_FLAGS_FOR_PYTHON.items():
        message = message.replace(python, flag if has_read_flags.get() else f"'coldparquet scan {flag}'")
    return message

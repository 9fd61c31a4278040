"""Which tests share real servers, that one process should start once for all of them."""

from __future__ import annotations

DIRECTORIES = ("tests/spark/", "tests/integration/")


def directory_with_servers(nodeid: str) -> str | None:
    """Return the directory all of whose tests share servers, this one among them; None for a test without."""
    return next((directory for directory in DIRECTORIES if nodeid.startswith(directory)), None)

"""Spares Spark's workers most of their garbage collections."""

from __future__ import annotations

import gc
from functools import cache


@cache
def spare_garbage_collection(after: str) -> None:  # noqa: ARG001 - what has been done for the first time
    """Exclude the modules imported so far from garbage collection, once for each kind of work in a process.

    Spark's workers collect after every task and every plan, which takes 10 to 50 ms where some hundred modules are loaded. A
    query that follows its load waits for the collection of the process that plans.
    """
    gc.freeze()

"""Errors of the library on their way through Spark, and back to the classes that programs catch.

Spark hands an error of a Python data source over as text: a traceback, of which the last line is ours. The stable ``kind`` stands
in brackets behind the sentence, as Spark does with its own::

    coldparquet.errors.NotFoundError: s3://bucket/db/trades: there is no such table [NotFound]
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from coldparquet import errors
from coldparquet.errors import ColdParquetError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator

_SENTENCE = re.compile(
    r"coldparquet\.errors\.(?P<name>\w+Error): (?P<text>.+?) \[(?P<kind>\w+)\]\s*$", re.MULTILINE | re.DOTALL
)
_MISSING_MODULE = re.compile(
    r"No module named '(?P<name>coldparquet|pyspark_coldparquet|pyarrow|numpy|sqlglot|fsspec|xxhash|thrift)\b"
)


@contextmanager
def told_to_spark() -> Iterator[None]:
    """Let errors of the library leave a worker as one sentence with their kind, and without what led to them."""
    try:
        yield
    except ColdParquetError as error:
        raise type(error)(f"{error} [{error.kind}]", kind=error.kind) from None


def error_of(exception: BaseException) -> ColdParquetError | None:
    """Find the error of the library in what Spark raised.

    Missing packages on the executors and a missing Java come as such errors too, each with what to do about it.

    Args:
        exception: What an action on a DataFrame, or ``load``, raised.

    Returns:
        An error of the class that was raised in the worker, with its message and ``kind``; its ``path`` and ``details`` do not
        come along. None if the exception has nothing to do with the library.
    """
    if isinstance(exception, ColdParquetError):
        return exception
    text = str(exception)
    found = list(_SENTENCE.finditer(text))
    if found:
        error_class = getattr(errors, found[-1]["name"], ColdParquetError)
        error: ColdParquetError = error_class(found[-1]["text"], kind=found[-1]["kind"])
        return error
    return _installation_error(text)


def _installation_error(text: str) -> UnsupportedError | None:
    missing = _MISSING_MODULE.search(text)
    if missing:
        return UnsupportedError(
            f"the Python of Spark's workers has no package {missing['name']}: install coldparquet[spark] on every machine, or send"
            " a packed environment along, and let PYSPARK_PYTHON name its interpreter on the driver and the executors",
            kind="MissingPackage",
        )
    if "DATA_SOURCE_NOT_FOUND" in text and "coldparquet" in text:
        return UnsupportedError(
            "Spark does not know the data source coldparquet: the Python that Spark starts on the driver, PYSPARK_PYTHON or"
            " python3, has no package pyspark_coldparquet; install coldparquet[spark] there before the session starts",
            kind="MissingPackage",
        )
    if "JAVA_GATEWAY_EXITED" in text:
        return UnsupportedError(
            "Spark did not start: it needs Java 17 or later; install it and let JAVA_HOME name its directory",
            kind="NoJava",
        )
    return None

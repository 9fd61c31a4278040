"""Translates errors of the library for Spark, and back to the classes that programs catch.

Spark reports an error of a Python data source as text: a traceback, whose last line is the library's. As Spark does
with its own errors, the stable ``kind`` stands in brackets behind the sentence::

    coldparquet.errors.NotFoundError: s3://bucket/db/trades: there is no such table [NotFound]
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from coldparquet import errors
from coldparquet.errors import ColdParquetError, InvalidInputError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator


_SENTENCE = re.compile(
    r"coldparquet\.errors\.(?P<name>\w+Error): (?P<text>.+?) \[(?P<kind>\w+)\]\s*$", re.MULTILINE | re.DOTALL
)
_REFUSED_MODE = re.compile(
    r'\[UNSUPPORTED_DATA_SOURCE_SAVE_MODE\] The data source "coldparquet" .*? in the "(?P<mode>\w+)" mode'
)

_INSTALLATION = (
    (
        re.compile(
            r"No module named '(?P<name>coldparquet|pyspark_coldparquet|pyarrow|numpy|sqlglot|fsspec|xxhash|thrift)\b"
        ),
        "MissingPackage",
        (
            "the Python of Spark's workers has no package {name}: install coldparquet[spark] on every machine, or send"
            " a packed environment along, and let PYSPARK_PYTHON name its interpreter on the driver and the executors"
        ),
    ),
    (
        re.compile(r"\[PACKAGE_NOT_INSTALLED\] (?P<name>\S+ >= \S+)"),
        "MissingPackage",
        (
            "PySpark misses a package that it needs for this, {name}, in the Python that it runs on the driver or on the"
            " workers: install coldparquet[spark] there, coldparquet[spark-connect] for a client of Spark Connect"
        ),
    ),
    (
        re.compile(r"\[PYTHON_VERSION_MISMATCH\][^:]*: (?P<worker>[\d.]+) [^:]*: (?P<driver>[\d.]+)"),
        "OtherPython",
        (
            "Spark's workers run Python {worker}, the driver Python {driver}: let PYSPARK_PYTHON name an"
            " interpreter of the same version, with coldparquet[spark] installed, on the driver and the executors"
        ),
    ),
    (
        re.compile(r"^(?=.*DATA_SOURCE_NOT_(?:FOUND|EXIST)).*coldparquet", re.DOTALL),
        "MissingPackage",
        (
            "Spark does not know the data source coldparquet: the Python that Spark starts on the driver, PYSPARK_PYTHON or"
            " python3, has no package pyspark_coldparquet; install coldparquet[spark] there before the session starts"
        ),
    ),
    (
        re.compile("JAVA_GATEWAY_EXITED"),
        "NoJava",
        "Spark did not start: it needs Java 17 or later; install it and let JAVA_HOME name its directory",
    ),
)
"""What Spark says of a wrong installation, and the kind and text of the error that says how to mend it."""

_AS_OPTIONS = {
    "error.details['ticket'].wait()": ".option('restore_wait', 'true')",
    "Scan.restore()": ".option('archived', 'restore')",
    "ReadOptions(archived='skip')": ".option('archived', 'skip')",
    "ReadOptions(columns_from='all')": ".option('columns_from', 'all')",
    "ReadOptions(format='delta')": ".option('table_format', 'delta')",
    "ReadOptions(format='iceberg')": ".option('table_format', 'iceberg')",
    "ReadOptions(timestamp='...')": ".option('timestamp', '...')",
    "ReadOptions(unread='skip')": ".option('unread', 'skip')",
    "ReadOptions(sidecars=False)": ".option('sidecars', 'false')",
}
"""Advice in messages of the library, and its equivalent in Spark, where no details of an error arrive."""


class _UnswallowedError(ColdParquetError):
    """An UnsupportedError but no NotImplementedError: PySpark turns that of ``partitions`` into a scan without rows.

    A traceback shows it under the name UnsupportedError, so :func:`error_of` restores that class.
    """


_UnswallowedError.__module__, _UnswallowedError.__qualname__ = (
    UnsupportedError.__module__,
    UnsupportedError.__qualname__,
)


@contextmanager
def told_to_spark() -> Iterator[None]:
    """Reduce errors that leave a worker to one sentence with their kind, and without their cause.

    No NotImplementedError leaves it, neither the library's nor that of a dependency, such as Arrow.
    """
    try:
        yield
    except ColdParquetError as error:
        error_class = _UnswallowedError if isinstance(error, NotImplementedError) else type(error)
        raise error_class(_sentence(str(error), error.kind), kind=error.kind) from None
    except NotImplementedError as error:
        kind = UnsupportedError.default_kind
        raise _UnswallowedError(_sentence(f"{type(error).__name__}: {error}", kind), kind=kind) from error


def _sentence(text: str, kind: str) -> str:
    for in_python, in_spark in _AS_OPTIONS.items():
        text = text.replace(in_python, in_spark)
    # PySpark sends UTF-8, and loses the whole error if a name cannot be encoded.
    return f"{text.encode('utf-8', 'backslashreplace').decode()} [{kind}]"


@contextmanager
def own_errors() -> Iterator[None]:
    """Convert errors of Spark actions to the library's classes, without Java's stack.

    ::

        with coldparquet.spark.own_errors():
            trades.groupBy("symbol").count().show()

    Raises:
        ColdParquetError: The error that :func:`error_of` finds in an exception, in its place. Others pass unchanged.
    """
    try:
        yield
    except Exception as error:  # classic Spark raises what Java and py4j raise, Connect what gRPC does
        found = error_of(error)
        if found is None or found is error:
            raise
        raise found from None


def error_of(exception: BaseException) -> ColdParquetError | None:
    """Find the library's error in an exception of Spark.

    Installation errors also become errors of the library, with advice: missing packages on the executors, another
    Python there, a missing Java. So do modes of ``save`` that Spark does not offer to Python sources.

    Args:
        exception: Raised by an action on a DataFrame, or by ``load``.

    Returns:
        An error of the worker's class, with its message and ``kind``, but without its ``path`` and ``details``; None if
        the exception does not come from the library.
    """
    if isinstance(exception, ColdParquetError):
        return exception
    text = str(exception)
    found = list(_SENTENCE.finditer(text))
    if found:
        error_class = getattr(errors, found[-1]["name"], ColdParquetError)
        error: ColdParquetError = error_class(found[-1]["text"], kind=found[-1]["kind"])
        return error
    return _refused_mode(text) or _installation_error(text)


def _refused_mode(text: str) -> InvalidInputError | None:
    refused = _REFUSED_MODE.search(text)
    if refused is None:
        return None
    mode = "ignore" if refused["mode"] == "Ignore" else "error"
    return InvalidInputError(
        f"Spark offers Python data sources the modes append and overwrite alone: write with .option('if_exists', '{mode}')"
        f".mode('append').save(url), or with coldparquet.spark.write(df, url, mode='{mode}')",
        kind="UnsupportedMode",
    )


def _installation_error(text: str) -> UnsupportedError | None:
    for pattern, kind, message in _INSTALLATION:
        found = pattern.search(text)
        if found:
            return UnsupportedError(message.format_map(found.groupdict()), kind=kind)
    return None

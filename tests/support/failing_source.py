"""The data source with an error inside of one of its callbacks, for tests of what becomes of it in Spark."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import patch

from coldparquet import errors
from coldparquet.concurrency import BackgroundLoop
from coldparquet.errors import ColdParquetError
from coldparquet.spark.reader import FilteringReader, TableReader
from coldparquet.spark.source import DefaultSource
from coldparquet.spark.stream import ColdParquetStreamReader
from coldparquet.spark.task_settings import TaskSettings
from coldparquet.spark.writer import ColdParquetWriter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


ERRORS: dict[str, Callable[[str], Exception]] = {
    **{
        name: error_class
        for name, error_class in vars(errors).items()
        if isinstance(error_class, type) and issubclass(error_class, ColdParquetError)
    },
    "NotImplementedError": NotImplementedError,
}
"""All of the library's, by name; and one of a package below."""

NAME = "coldparquet_failing"
FAIL_AT, ERROR = "fail_at", "fail_with"


class FailingSource(DefaultSource):
    """The data source, with two options more: the callback that fails, and the error."""

    def __init__(self, options: Mapping[str, str]) -> None:
        own = dict(options)
        self._failure = own.pop(FAIL_AT), own.pop(ERROR)
        super().__init__(own)

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        with self._failing_in("schema"):
            return super().schema()

    def reader(self, schema: StructType) -> Any:
        with self._failing_in("reader"):
            return self._with_failure(super().reader(schema))

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802 - Spark's name
        with self._failing_in("streamReader"):
            return self._with_failure(super().streamReader(schema))

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        with self._failing_in("writer"):
            return self._with_failure(super().writer(schema, overwrite))

    def _failing_in(self, callback: str) -> AbstractContextManager[None]:
        return _raising(self._failure[1]) if self._failure[0] == callback else nullcontext()

    def _with_failure(self, made: Any) -> Any:
        for failing_class in (FailingTableReader, FailingFilteringReader, FailingStreamReader, FailingWriter):
            if type(made) is failing_class.__mro__[2]:
                failing: Any = failing_class.__new__(failing_class)
                failing.__dict__.update(vars(made), failure=self._failure)
                return failing
        return made


class _Failing:
    """What Spark gets, which carries along which of its methods fails."""

    failure: tuple[str, str]

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or name == "failure" or self.failure[0] != name:
            return found

        @functools.wraps(found)
        def fail(*arguments: Any) -> Any:
            with _raising(self.failure[1]):
                result = found(*arguments)
                return iter(list(result)) if isinstance(result, Iterator) else result

        return fail

    def __getstate__(self) -> dict[str, Any]:
        return {"failure": self.failure, "state": cast("Any", super()).__getstate__()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.failure = state["failure"]
        if isinstance(self, ColdParquetWriter):
            ColdParquetWriter.__setstate__(self, state["state"])
        else:
            self.__dict__.update(state["state"])


class FailingTableReader(_Failing, TableReader):
    """Reads what it has planned."""


class FailingFilteringReader(_Failing, FilteringReader):
    """Takes filters."""


class FailingStreamReader(_Failing, ColdParquetStreamReader):
    """Follows a table."""


class FailingWriter(_Failing, ColdParquetWriter):  # type: ignore[misc]
    """Writes one."""


@contextmanager
def _raising(name: str) -> Iterator[None]:
    """Let all work of the source fail: what it waits for, and the settings of tasks, which both sides of Spark need."""

    def fail(*arguments: Any, **_: Any) -> None:
        for argument in arguments:
            if hasattr(argument, "close"):
                argument.close()  # a coroutine
        raise ERRORS[name](message_of(name))

    with (
        patch.object(BackgroundLoop, "run", fail),
        patch.object(TaskSettings, "of", fail),
        patch.object(TaskSettings, "from_dict", fail),
    ):
        yield


def message_of(name: str) -> str:
    """Return what the error says."""
    return f"this is the {name} of a test, about a path with \udcff in it"

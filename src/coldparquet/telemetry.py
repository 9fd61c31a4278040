"""Makes OpenTelemetry spans: one for each scan, its planning, and each request.

Programs that want spans have already imported ``opentelemetry.trace``. Without that import this module does nothing, so
all other programs only pay for a dictionary lookup. No attribute holds a secret: neither credentials, which no path and
no URL of this library contains, nor the values of a predicate.
"""

from __future__ import annotations

import functools
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

from coldparquet import __version__

Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping

    from opentelemetry.trace import Span, Tracer

    _Coroutines: TypeAlias = Callable[Parameters, Coroutine[Any, Any, Result]]


Attributes: TypeAlias = "Mapping[str, str | int | float | bool]"
"""The content of a span, by names that begin with ``coldparquet.`` or follow OpenTelemetry's conventions."""

_NANOSECONDS_PER_S = 1_000_000_000


def is_wanted() -> bool:
    """Tell whether the program uses OpenTelemetry."""
    return "opentelemetry.trace" in sys.modules


class OpenSpan:
    """A span that begins now and ends on request. Does nothing if no spans are wanted.

    Args:
        name: The activity, such as ``coldparquet.scan``.
        attributes: What is known at its begin.
    """

    def __init__(self, name: str, attributes: Attributes | None = None) -> None:
        self._span: Span | None = _tracer().start_span(name, attributes=dict(attributes or {})) if is_wanted() else None

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make it the parent of spans that begin inside, and in tasks started inside."""
        if self._span is None:
            yield
            return
        from opentelemetry.trace import use_span  # noqa: PLC0415 - an extra

        with use_span(self._span, record_exception=False, set_status_on_exception=False):
            yield

    def end(self, attributes: Attributes | None = None, *, error: BaseException | None = None) -> None:
        """End it; a second call does nothing."""
        span, self._span = self._span, None
        if span is None:
            return
        span.set_attributes(dict(attributes or {}))
        if isinstance(error, Exception):
            _set_failed(span, type(error).__name__)
        span.end()


@contextmanager
def span(name: str, attributes: Attributes | None = None) -> Iterator[None]:
    """Make a span of the block."""
    opened = OpenSpan(name, attributes)
    try:
        with opened.current():
            yield
    except BaseException as error:
        opened.end(error=error)
        raise
    opened.end()


def spanned(name: str) -> Callable[[_Coroutines[Parameters, Result]], _Coroutines[Parameters, Result]]:
    """Make a span of every call of a coroutine function."""

    def decorate(function: _Coroutines[Parameters, Result]) -> _Coroutines[Parameters, Result]:
        @functools.wraps(function)
        async def call(*arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
            with span(name):
                return await function(*arguments, **options)

        return call

    return decorate


def emit_request(name: str, *, took_s: float, attributes: Attributes, problem: str | None) -> None:
    """Make the span of a request that has just ended. Call it only if :func:`is_wanted`."""
    from opentelemetry.trace import SpanKind  # noqa: PLC0415 - an extra

    ended_ns = time.time_ns()
    started_ns = ended_ns - int(took_s * _NANOSECONDS_PER_S)
    request = _tracer().start_span(name, kind=SpanKind.CLIENT, start_time=started_ns, attributes=dict(attributes))
    if problem is not None:
        _set_failed(request, problem)
    request.end(ended_ns)


def _set_failed(failed: Span, problem: str) -> None:
    from opentelemetry.trace import StatusCode  # noqa: PLC0415 - an extra

    failed.set_attribute("error.type", problem)
    failed.set_status(StatusCode.ERROR)


@functools.cache
def _tracer() -> Tracer:
    from opentelemetry.trace import get_tracer  # noqa: PLC0415 - an extra

    return get_tracer("coldparquet", __version__)

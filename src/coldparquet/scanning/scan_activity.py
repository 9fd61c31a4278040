"""One thing that a scan does, from its beginning to its end: charged to the scan's ledger, and shown as a span."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from coldparquet.telemetry import OpenSpan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coldparquet.storage.wrappers.ledger import Ledger
    from coldparquet.telemetry import Attributes


class ScanActivity:
    """Counts the time of one thing that a scan does, and gathers what it costs.

    A stream of batches begins and ends in different calls, perhaps of different tasks; so these are calls here, too.

    Args:
        ledger: The scan's.
        attributes: What the span says.
    """

    def __init__(self, ledger: Ledger, attributes: Attributes) -> None:
        self._ledger = ledger
        self._attributes = attributes
        self._span: OpenSpan | None = None

    def begin(self) -> None:
        """The time counts from now on."""
        self._ledger.begin()
        self._span = OpenSpan("coldparquet.scan", self._attributes)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Charge what is done inside, and in tasks that are started inside, to the scan."""
        if self._span is None:
            yield
            return
        with self._ledger.current(), self._span.current():
            yield

    def end(self, *, error: BaseException | None = None) -> None:
        """The time does not count any more; a second time does nothing."""
        span, self._span = self._span, None
        if span is None:
            return
        self._ledger.end()
        totals = self._ledger.totals
        span.end({"coldparquet.rows": totals.row_count, "coldparquet.requests": totals.request_count}, error=error)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Begin, do what is done inside, and end."""
        self.begin()
        try:
            with self.current():
                yield
        except BaseException as error:
            self.end(error=error)
            raise
        self.end()

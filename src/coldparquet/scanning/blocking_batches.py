"""A stream of batches for callers without an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from coldparquet.concurrency import background

if TYPE_CHECKING:
    from collections.abc import Generator

    import pyarrow as pa


class AsyncBatches(Protocol):
    """What opens, hands out batches one by one, and closes."""

    async def __aenter__(self) -> Any:
        """Open it."""
        ...

    async def next_batch(self) -> pa.RecordBatch | None:
        """Return the next batch, None after the last one."""
        ...

    async def aclose(self) -> None:
        """Close it, and cancel what is in flight."""
        ...


def blocking_batches(stream: AsyncBatches) -> Generator[pa.RecordBatch, None, None]:
    """Open a stream with the first batch; Python closes a generator that nobody holds any more, and so the stream."""
    background.run(stream.__aenter__())
    try:
        while (batch := background.run(stream.next_batch())) is not None:
            yield batch
    finally:
        background.run(stream.aclose())

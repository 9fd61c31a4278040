"""How fast a store answers: as measured, or as published."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_BYTE_S = 0.030
"""Time to the first byte of a small GET from S3 Standard: 27-30 ms in the published medians
(AnyBlob, VLDB 2023; Bodner et al., arXiv 2501.07771)."""

CONNECTION_BYTES_PER_S = 55 * 1024 * 1024
"""Throughput of one connection to S3: median 55-60 MiB/s (AnyBlob, VLDB 2023)."""

DECODED_BYTES_PER_S = 1e9
"""Compressed bytes that a few processors decode per second: more than that, the network is not what a scan waits for."""

_BYTES_PER_CONNECTION = 512 * 1024
"""Reads are split into requests of about this length at least, so that small ones do not use all connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSpeed:
    """How fast a store answers, and which of the figures were measured; the others are those published for S3."""

    connections: int
    """Requests in flight at once."""
    first_byte_s: float = FIRST_BYTE_S
    """Time from a request to the first byte of its answer."""
    connection_bytes_per_s: float = CONNECTION_BYTES_PER_S
    """Throughput of one connection."""
    is_first_byte_measured: bool = False
    is_throughput_measured: bool = False
    is_remote: bool = False
    """Whether requests go over a network, so that what was not measured yet is probably like the published figures."""
    are_connections_new: bool = False
    """Whether every request has to open its connection, as in processes that an engine starts for its tasks."""

    @property
    def bytes_per_first_byte(self) -> float:
        """What one connection could bring in the time that passes before the first byte of an answer."""
        return self.first_byte_s * self.connection_bytes_per_s

    def seconds(self, length_bytes: float) -> float:
        """Estimate how long it takes to fetch and decode so many bytes in one round trip; the two go on side by side."""
        if length_bytes <= 0:
            return 0.0
        used = min(max(length_bytes / _BYTES_PER_CONNECTION, 1), self.connections)
        bytes_per_s = min(used * self.connection_bytes_per_s, DECODED_BYTES_PER_S)
        return self.first_byte_s + length_bytes / bytes_per_s

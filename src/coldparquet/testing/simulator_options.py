"""What the simulated cold store should do to its clients, and what it remembers of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from coldparquet.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdStoreOptions:
    """Latency, bandwidth and faults of a simulated cold store; the defaults are a fast store without faults."""

    first_byte_s: float = 0.0
    """Time from the arrival of a request to the first byte of its answer, for every request, HEAD and LIST too.
    S3 Standard answers small GETs in 20-40 ms."""

    bandwidth_bytes_per_s: float | None = None
    """Rate at which one connection sends a body; None means as fast as possible. One S3 connection brings 55-90 MB/s."""

    slow_tail_probability: float = 0.0
    """Share of the requests whose time to first byte is ``slow_tail_factor`` times longer."""

    slow_tail_factor: float = 10.0
    """How much longer a request of the slow tail waits for its first byte."""

    error_503_probability: float = 0.0
    """Share of the requests that are answered with 503 SlowDown."""

    cut_body_probability: float = 0.0
    """Share of the GETs of objects whose connection is cut after half of the body."""

    seed: int = 0
    """Start of the random numbers behind the probabilities: the n-th request meets the same fate in every run."""

    secret_key: str | None = field(default=None, repr=False)
    """When given, requests without a valid SigV4 signature by this secret are refused; None accepts everybody."""

    def __post_init__(self) -> None:
        for name in ("slow_tail_probability", "error_503_probability", "cut_body_probability"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidInputError(f"ColdStoreOptions.{name} is {getattr(self, name)}; it must lie in [0, 1]")
        if self.first_byte_s < 0:
            raise InvalidInputError(f"ColdStoreOptions.first_byte_s is {self.first_byte_s}; it must not be negative")
        if self.slow_tail_factor < 1:
            raise InvalidInputError(f"ColdStoreOptions.slow_tail_factor is {self.slow_tail_factor}; it must be >= 1")
        if self.bandwidth_bytes_per_s is not None and self.bandwidth_bytes_per_s <= 0:
            raise InvalidInputError(
                f"ColdStoreOptions.bandwidth_bytes_per_s is {self.bandwidth_bytes_per_s}; it must be positive or None"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRequest:
    """One request as the server saw it. Times are ``time.monotonic()``, which all processes of a machine share."""

    operation: str
    """S3's name of the request: GetObject, HeadObject, PutObject, UploadPart, ListObjectsV2 and so on, or
    Unsupported."""
    method: str
    """HTTP method."""
    path: str
    """``bucket/key``, percent-decoded."""
    query: str
    """Query string as it arrived, without its ``?``."""
    range_header: str | None
    """The Range header as it arrived, such as ``bytes=0-99``."""
    status: int
    """HTTP status of the answer."""
    started_s: float
    """When the request's head had arrived."""
    finished_s: float
    """When the last byte of the answer was handed to the system, or the client had gone."""
    bytes_sent: int
    """Bytes of the body that were sent."""

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain data."""
        return asdict(self)

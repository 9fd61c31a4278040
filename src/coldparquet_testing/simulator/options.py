"""Defines the behaviour of the simulated cold store, and its request log."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, get_args

from coldparquet.errors import InvalidInputError
from coldparquet_testing.simulator.checksums import Algorithm
from coldparquet_testing.simulator.classes import parse_object_class
from coldparquet_testing.simulator.faults import FaultRule

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdStoreOptions:
    """Latency, bandwidth, classes and faults of a simulated cold store; the defaults are a fast store without faults."""

    first_byte_s: float = 0.0
    """Time from the arrival of a request to the first byte of its answer, for every request, HEAD and LIST too.
    S3 Standard answers small GETs in 20-40 ms."""

    bandwidth_bytes_per_s: float | None = None
    """Rate at which one connection sends a body; None means as fast as possible. One S3 connection transfers 55-90
    MB/s."""

    slow_tail_probability: float = 0.0
    """Share of the requests whose time to first byte is ``slow_tail_factor`` times longer."""

    slow_tail_factor: float = 10.0
    """Factor on the time to first byte of requests in the slow tail."""

    error_503_probability: float = 0.0
    """Share of the requests that are answered with 503 SlowDown."""

    cut_body_probability: float = 0.0
    """Share of the GETs of objects whose connection is cut after half of the body."""

    faults: tuple[FaultRule, ...] = ()
    """Further faults; the first rule that strikes counts."""

    requests_per_second: float | None = None
    """Limit of requests per second, after a second's worth at once. Requests beyond it are answered with 503 SlowDown
    and a Retry-After of one second. None sets no limit."""

    stale_listing_s: float = 0.0
    """How long the first answer to a listing is repeated, despite later writes."""

    storage_classes: Mapping[str, str] = field(default_factory=dict)
    """Storage class by pattern of ``bucket/key`` (``*`` matches ``/`` too) for files that were not written through the
    store: ``{"bucket/trades/2023*": "GLACIER"}``. The first matching pattern counts. Objects that Intelligent-Tiering
    has archived are ``INTELLIGENT_TIERING/ARCHIVE_ACCESS`` or ``.../DEEP_ARCHIVE_ACCESS``."""

    clock_speed: float = 1.0
    """Seconds of the store's clock, by which restores become ready and expire, per real second."""

    checksum_of_files: Algorithm | None = None
    """Checksum algorithm for files that were not written through the store; None reports no checksum. It costs one read
    of the whole file, once per version."""

    keep_versions: bool = False
    """Whether objects have versions; replaced or deleted objects then remain readable by their version."""

    requester_pays: bool = False
    """Whether requests without the header for requester pays are refused."""

    seed: int = 0
    """Seed of the random numbers behind the probabilities: the n-th request meets the same fault in every run."""

    secret_key: str | None = field(default=None, repr=False)
    """When given, requests without a valid SigV4 signature by this secret are refused; None accepts all."""

    def __post_init__(self) -> None:
        for name in ("slow_tail_probability", "error_503_probability", "cut_body_probability"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidInputError(f"ColdStoreOptions.{name} is {getattr(self, name)}; it must lie in [0, 1]")
        for name in ("first_byte_s", "stale_listing_s", "clock_speed"):
            if getattr(self, name) < 0:
                raise InvalidInputError(f"ColdStoreOptions.{name} is {getattr(self, name)}; it must not be negative")
        if self.slow_tail_factor < 1:
            raise InvalidInputError(f"ColdStoreOptions.slow_tail_factor is {self.slow_tail_factor}; it must be >= 1")
        for name in ("bandwidth_bytes_per_s", "requests_per_second"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise InvalidInputError(f"ColdStoreOptions.{name} is {value}; it must be positive or None")
        if self.checksum_of_files not in (None, *get_args(Algorithm)):
            raise InvalidInputError(f"ColdStoreOptions.checksum_of_files is {self.checksum_of_files!r}")
        for storage_class in self.storage_classes.values():
            parse_object_class(storage_class)

    @property
    def all_faults(self) -> tuple[FaultRule, ...]:
        """The rules of ``faults``, then those for the two probabilities."""
        by_probability = (
            FaultRule("slow-down", operation="*", probability=self.error_503_probability),
            FaultRule("cut-body", probability=self.cut_body_probability),
        )
        return (*self.faults, *(rule for rule in by_probability if rule.probability))


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
    """HTTP status of the answer; 0 where the connection broke before any."""
    started_s: float
    """When the request's head had arrived."""
    finished_s: float
    """When the last byte of the answer was handed to the system, or the client had disconnected."""
    bytes_sent: int
    """Bytes of the body that were sent."""
    storage_class: str = "STANDARD"
    """Storage class of the requested object."""
    fault: str | None = None
    """The injected fault."""
    restore_tier: str | None = None
    """Tier of an accepted restore."""
    restored_bytes: int = 0
    """Size of the object of an accepted restore."""

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain data."""
        return asdict(self)

"""Fetching the catalogue of a table, the object ``_catalogue``: its index, and all of a small one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldparquet.errors import (
    AccessError,
    ColdParquetError,
    FormatError,
    InternalError,
    NotFoundError,
    UnsupportedError,
)
from coldparquet.format.catalogue_file import index_range, parse_catalogue_index
from coldparquet.plan.read_plan import MetadataRequest
from coldparquet.ranges import ByteRange
from coldparquet.storage.objects import is_lasting_etag
from coldparquet.storage.requests import RangeRequest

if TYPE_CHECKING:
    from coldparquet.format.catalogue_file import CatalogueIndex
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.requests import FetchedRange

CATALOGUE_FILE = "_catalogue"

CATALOGUE_REASON = "catalogue"

_FIRST_REQUEST_BYTES = 512 * 1024
"""Holds a year of days of 10 columns in 4 row groups, and comes while `_txn` and the listing are waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueFile:
    """What was found under the name ``_catalogue``."""

    path: str
    index: CatalogueIndex | None = None
    """None where there is no catalogue, or none that can be used."""
    beginning: bytes = b""
    """What was fetched of it."""
    etag: str | None = None
    problem: str | None = None
    """Why it is not used, though it may be there."""


async def fetch_catalogue(
    store: ObjectStore, table_path: str, *, previous: CatalogueFile | None = None, spent: list[MetadataRequest]
) -> CatalogueFile:
    """Fetch the beginning of a table's catalogue: its index, and all of a small one.

    1 request, 2 where the index alone is longer than 512 KiB; none where an earlier look found nothing. Nothing is raised
    for an object that nobody has to have.

    Args:
        store: Where the table lies; it should not pin versions, because the catalogue is replaced.
        table_path: Its directory, without a trailing slash.
        previous: What was found before. It is used again where the object is still the same.
        spent: Gets the requests.
    """
    path = f"{table_path}/{CATALOGUE_FILE}"
    kept = previous if previous is not None and previous.index is not None else None
    if previous is not None and kept is None and previous.problem is None:
        return previous
    first = ByteRange(0, _FIRST_REQUEST_BYTES)
    try:
        request = RangeRequest(
            path=path,
            byte_range=first,
            reason=CATALOGUE_REASON,
            may_be_short=True,
            if_none_match=kept.etag if kept is not None and is_lasting_etag(kept.etag) else None,
        )
        answer = await send_for_catalogue(store, request, spent)
        if kept is not None and answer.is_unchanged:
            return kept
        return await _read_index(store, path, answer, spent)
    except (NotFoundError, AccessError):
        # Where listing is not allowed, S3 refuses what is absent. Other refusals show in requests for what must be there.
        spent.append(MetadataRequest(path=path, byte_range=first, reason=f"no {CATALOGUE_REASON}", fetched_bytes=0))
        return CatalogueFile(path=path)
    except (FormatError, UnsupportedError) as error:
        return CatalogueFile(path=path, problem=error.message)
    except InternalError:
        raise
    except ColdParquetError as error:
        return CatalogueFile(path=path, problem=f"it could not be fetched: {error.message}")


async def _read_index(
    store: ObjectStore, path: str, answer: FetchedRange, spent: list[MetadataRequest]
) -> CatalogueFile:
    beginning, wanted = answer.data, index_range(answer.data, path=path)
    if wanted.stop > len(beginning) == _FIRST_REQUEST_BYTES:
        rest = ByteRange(len(beginning), wanted.stop)
        request = RangeRequest(
            path=path, byte_range=rest, reason=CATALOGUE_REASON, if_match=answer.etag, may_be_short=True
        )
        beginning += (await send_for_catalogue(store, request, spent)).data
    index = await asyncio.to_thread(parse_catalogue_index, beginning, path=path)
    return CatalogueFile(path=path, index=index, beginning=beginning, etag=answer.etag)


async def send_for_catalogue(store: ObjectStore, request: RangeRequest, spent: list[MetadataRequest]) -> FetchedRange:
    """Fetch a range of a catalogue, and note what it cost."""
    answer = await store.get(request)
    is_unchanged = answer.is_unchanged or answer.is_from_cache
    spent.append(
        MetadataRequest(
            path=request.path,
            byte_range=request.byte_range,
            reason=f"{CATALOGUE_REASON}, unchanged" if is_unchanged else request.reason,
            fetched_bytes=0 if is_unchanged else len(answer.data),
        )
    )
    return answer

"""Looking for the pages of one partition: in our ``_pages`` beside the sidecar, or in the Parquet file's own page index.

Both are optional, and so is their use: whatever is wrong with them becomes a note, and the chunks are read as a whole.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from coldparquet.errors import ColdParquetError, FormatError, InternalError, NotFoundError, UnsupportedError
from coldparquet.format.chunk_places import chunk_places
from coldparquet.format.footer_fetch import FooterFetch
from coldparquet.format.page_index import page_index_range, parse_page_index
from coldparquet.format.pages_file import LARGEST_PAGES_FILE_BYTES, parse_pages_file, stated_size_bytes
from coldparquet.format.parquet_footer import parse_footer
from coldparquet.format.partition_pages import PagesFound
from coldparquet.plan.read_plan import MetadataRequest
from coldparquet.ranges import ByteRange
from coldparquet.storage.base import RangeRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coldparquet.catalog.partition import PartitionLocation
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.storage.base import FetchedRange, ObjectStore

PAGES_FILE = "_pages"

_FIRST_REQUEST_BYTES = 256 * 1024
"""Holds about 15,000 pages, and takes hardly longer than a request of any other size."""

_PARSE_IN_THREAD_BYTES = 64 * 1024
"""Parsing more than this holds up the event loop for longer than handing the work to a thread costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PagesFileLookup:
    """What was found under the name ``_pages`` beside one Parquet file; nothing is checked yet."""

    path: str
    data: bytes | None
    """None where it is absent or could not be fetched."""
    problem: str | None = None
    """Why it could not be fetched, though it may be there."""


async def look_up_pages_file(
    store: ObjectStore, location: PartitionLocation, *, spent: list[MetadataRequest] | None = None
) -> PagesFileLookup:
    """Fetch the ``_pages`` of a partition. 1 request where it fits 256 KiB or is absent, else 2.

    None for a Parquet file that is not named ``data.parquet``. Nothing is raised for a file that nobody has to have: a
    store that refuses it, as S3 does for absent objects where listing is not allowed, or fails, is as good as one
    without it.

    Args:
        store: Where the partition lies; it should pin versions, so that both requests see the same file.
        location: The partition.
        spent: Gets the requests.
    """
    path = f"{location.directory_path}/{PAGES_FILE}"
    if location.sidecar_path is None:
        return PagesFileLookup(path=path, data=None)
    spent = [] if spent is None else spent
    first = ByteRange(0, _FIRST_REQUEST_BYTES)
    try:
        data = (await _get(store, path, first, spent, may_be_short=True)).data
        size_bytes = stated_size_bytes(data) or len(data)
        if size_bytes > LARGEST_PAGES_FILE_BYTES:
            problem = f"it says that it has {size_bytes:,} bytes, more than any such file needs"
            return PagesFileLookup(path=path, data=None, problem=problem)
        if size_bytes > len(data) == first.stop:
            rest = ByteRange(first.stop, size_bytes)
            data += (await _get(store, path, rest, spent, may_be_short=True)).data
    except NotFoundError:
        spent.append(MetadataRequest(path=path, byte_range=first, reason=f"no {PAGES_FILE}", fetched_bytes=0))
        return PagesFileLookup(path=path, data=None)
    except InternalError:
        raise
    except ColdParquetError as error:
        spent.append(MetadataRequest(path=path, byte_range=first, reason=f"no {PAGES_FILE}", fetched_bytes=0))
        return PagesFileLookup(path=path, data=None, problem=f"it could not be fetched: {error.message}")
    return PagesFileLookup(path=path, data=data)


async def parse_pages_lookup(lookup: PagesFileLookup, sidecar: Sidecar, *, etag: str | None = None) -> PagesFound:
    """Parse what a lookup brought, in a thread where it is large.

    Args:
        lookup: The file as it was fetched.
        sidecar: The snapshot that counts.
        etag: Version of the Parquet object, where it is known.

    Returns:
        The pages; none, and a note, where the file is damaged or of another version of the Parquet file; none without
        a note where there is no such file.
    """
    if lookup.data is None:
        notes = () if lookup.problem is None else (f"{PAGES_FILE} is not used: {lookup.problem}",)
        return PagesFound(pages=None, notes=notes)
    parse = partial(_parse_pages_file, lookup.data, sidecar, etag, lookup.path)
    return await asyncio.to_thread(parse) if len(lookup.data) > _PARSE_IN_THREAD_BYTES else parse()


async def read_page_index(  # noqa: PLR0913 - what can be told is told by name
    store: ObjectStore,
    location: PartitionLocation,
    sidecar: Sidecar,
    *,
    row_groups: Iterable[int] | None = None,
    columns: Iterable[int] | None = None,
    spent: list[MetadataRequest] | None = None,
) -> PagesFound:
    """Read the page index that the Parquet file itself may have. 1 request: the end of the file behind the last chunk.

    Where that is longer than 8 MiB only its last part is fetched, and indexes before it are not used.

    Args:
        store: Where the partition lies; it should pin versions.
        location: The partition.
        sidecar: The snapshot that counts.
        row_groups: Row groups whose pages are asked for; None for all.
        columns: Columns whose pages are asked for, by their indexes in the sidecar; None for all.
        spent: Gets the request.

    Returns:
        The pages of the chunks that have a sound index; notes for the others.

    Raises:
        ColdParquetError: The store could not answer for the Parquet file, which is needed in any case.
    """
    size_bytes = sidecar.parquet_size_bytes
    wanted = page_index_range(sidecar)
    answer = await _get(
        store,
        location.data_path,
        wanted,
        [] if spent is None else spent,
        least_object_bytes=size_bytes,
        may_grow=location.record is not None,
    )
    parse = partial(
        _parse_tail,
        answer.data,
        sidecar,
        path=location.data_path,
        tail_start=wanted.start,
        row_groups=row_groups,
        columns=columns,
    )
    found = await asyncio.to_thread(parse) if len(answer.data) > _PARSE_IN_THREAD_BYTES else parse()
    return replace(found, etag=answer.etag)


def _parse_pages_file(data: bytes, sidecar: Sidecar, etag: str | None, path: str) -> PagesFound:
    try:
        pages = parse_pages_file(
            data,
            parquet_size_bytes=sidecar.parquet_size_bytes,
            etag=etag,
            places=chunk_places(sidecar),
            path=path,
        )
    except (FormatError, UnsupportedError) as error:
        return PagesFound(pages=None, notes=(f"{PAGES_FILE} is not used: {error.message}",))
    return PagesFound(pages=pages)


def _parse_tail(  # noqa: PLR0913 - what can be told is told by name
    tail: bytes,
    sidecar: Sidecar,
    *,
    path: str,
    tail_start: int,
    row_groups: Iterable[int] | None,
    columns: Iterable[int] | None,
) -> PagesFound:
    size_bytes = sidecar.parquet_size_bytes
    try:
        fetch = FooterFetch(path=path, suffix_bytes=len(tail), size_bytes=size_bytes)
        fetch.receive(tail, start=tail_start)
        if fetch.next_range is not None:
            note = f"the page index is not used: the Parquet footer alone has more than {len(tail):,} bytes"
            return PagesFound(pages=None, notes=(note,))
        footer = parse_footer(fetch.footer, path=path, offset=fetch.footer_offset)
    except (FormatError, UnsupportedError) as error:
        return PagesFound(pages=None, notes=(f"the page index is not used: {error.message}",))
    return parse_page_index(
        footer, tail, tail_start=tail_start, places=chunk_places(sidecar), row_groups=row_groups, columns=columns
    )


async def _get(  # noqa: PLR0913 - what can be told is told by name
    store: ObjectStore,
    path: str,
    byte_range: ByteRange,
    spent: list[MetadataRequest],
    *,
    may_be_short: bool = False,
    least_object_bytes: int | None = None,
    may_grow: bool = False,
) -> FetchedRange:
    answer = await store.get(
        RangeRequest(
            path=path,
            byte_range=byte_range,
            reason="page index",
            may_be_short=may_be_short,
            least_object_bytes=least_object_bytes,
            may_grow=may_grow,
        )
    )
    spent.append(MetadataRequest(path=path, byte_range=byte_range, reason="page index", fetched_bytes=len(answer.data)))
    return answer

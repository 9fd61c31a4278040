"""A store in memory that tells versions as an object store does: in quotes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from coldparquet.storage.memory import MemoryStore

if TYPE_CHECKING:
    from coldparquet.storage.requests import FetchedRange, Listing, ObjectInfo, RangeRequest


class QuotingStore(MemoryStore):
    """Quotes the ETags of whole objects and of answers, and knows If-None-Match."""

    async def get(self, request: RangeRequest) -> FetchedRange:
        if request.if_match is not None:
            request = replace(request, if_match=request.if_match.strip('"'))
        answer = await super().get(request)
        etag = f'"{answer.etag}"'
        if request.if_none_match == etag:
            return replace(answer, data=b"", etag=etag, is_unchanged=True)
        return replace(answer, etag=etag)

    async def info(self, path: str) -> ObjectInfo:
        found = await super().info(path)
        return replace(found, etag=f'"{found.etag}"')

    async def list(self, path: str, *, first_page_only: bool = False) -> Listing:
        listing = await super().list(path, first_page_only=first_page_only)
        return replace(listing, objects=tuple(map(_quoted, listing.objects)))

    async def list_between(self, path: str, *, start: str, stop: str) -> tuple[ObjectInfo, ...]:
        return tuple(map(_quoted, await super().list_between(path, start=start, stop=stop)))

    async def put(
        self, path: str, data: bytes, *, overwrite: bool, if_match: str | None = None, storage_class: str | None = None
    ) -> str:
        bare = None if if_match is None else if_match.strip('"')
        etag = await super().put(path, data, overwrite=overwrite, if_match=bare, storage_class=storage_class)
        return f'"{etag}"'


def _quoted(info: ObjectInfo) -> ObjectInfo:
    return replace(info, etag=f'"{info.etag}"')

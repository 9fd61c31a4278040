"""A store in memory that tells versions as an object store does: in quotes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from coldparquet.storage.memory import MemoryStore

if TYPE_CHECKING:
    from coldparquet.storage.base import FetchedRange, ObjectInfo, RangeRequest


class QuotingStore(MemoryStore):
    """Quotes the ETags of whole objects and of answers."""

    async def get(self, request: RangeRequest) -> FetchedRange:
        if request.if_match is not None:
            request = replace(request, if_match=request.if_match.strip('"'))
        answer = await super().get(request)
        return replace(answer, etag=f'"{answer.etag}"')

    async def info(self, path: str) -> ObjectInfo:
        found = await super().info(path)
        return replace(found, etag=f'"{found.etag}"')

"""Asking the copies of bloom filters that the table's catalogue holds, for all partitions of a question at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from coldparquet.catalog.packed_blooms import AskedPartition
from coldparquet.scanning.parquet_draft import ParquetDraft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.plan.read_plan import MetadataRequest
    from coldparquet.scanning.partition_drafts import Draft
    from coldparquet.scanning.question import Question


class BloomCopies:
    """What the catalogue has of the filters that the drafts of a question want to ask.

    Args:
        question: What is asked.
        drafts: Of all partitions.
    """

    def __init__(self, question: Question, drafts: Sequence[Draft]) -> None:
        self._catalogue = question.snapshot.catalogue
        self._drafts = [draft for draft in drafts if isinstance(draft, ParquetDraft)]
        self._turn = asyncio.Lock()
        self._is_done = False
        self.notes: tuple[str, ...] = ()
        """Why the catalogue could not be asked."""

    async def hand_out(self, spent: list[MetadataRequest]) -> None:
        """Give the probes of all drafts their blocks, the first time; what the catalogue lacks is left to them.

        Requests: those of :meth:`coldparquet.catalog.packed_blooms.PackedBlooms.blocks_of`.

        Args:
            spent: Gets the requests.
        """
        if not self._catalogue.blooms.are_there:
            return
        async with self._turn:
            if self._is_done:
                return
            probes, asked = {}, []
            for draft in self._drafts:
                wanted = None if draft.probes is None else draft.probes.wanted_blocks()
                if draft.probes is not None and wanted is not None and self._is_packed(draft):
                    probes[draft.partition.name] = draft.probes
                    asked.append(AskedPartition(name=draft.partition.name, wanted=wanted))
            found, problem = await self._catalogue.blooms.blocks_of(asked, spent)
            for name, blocks in found.items():
                probes[name].receive_blocks(blocks)
            self.notes = () if problem is None else (problem,)
            self._is_done = True

    def _is_packed(self, draft: ParquetDraft) -> bool:
        return draft.metadata.source == "catalogue" or self._catalogue.has_version_of(draft.partition.location)

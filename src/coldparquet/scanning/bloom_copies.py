"""Asking the copies of bloom filters that the table's catalogue holds, for all partitions of a question at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from coldparquet.catalog.packed_blooms import AskedPartition
from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.plan.bloom_lookups import looks_up_values
from coldparquet.plan.projection import ColumnMatcher
from coldparquet.scanning.first_look import FirstLooks
from coldparquet.scanning.parquet_draft import ParquetDraft

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.catalog.packed_blooms import Stripe
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.plan.read_plan import MetadataRequest
    from coldparquet.scanning.partition_drafts import Draft
    from coldparquet.scanning.question import Question


class BloomCopies:
    """What the catalogue has of the filters that the drafts of a question want to ask.

    Args:
        question: What is asked.
        drafts: Of all partitions.
        stripes: Those that were fetched ahead.
    """

    def __init__(self, question: Question, drafts: Sequence[Draft], stripes: Mapping[Stripe, memoryview]) -> None:
        self._catalogue = question.snapshot.catalogue
        self._drafts = [draft for draft in drafts if isinstance(draft, ParquetDraft)]
        self._stripes = stripes
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
            found, problem = await self._catalogue.blooms.blocks_of(asked, self._stripes, spent)
            for name, blocks in found.items():
                probes[name].receive_blocks(blocks)
            self.notes = () if problem is None else (problem,)
            self._is_done = True

    def _is_packed(self, draft: ParquetDraft) -> bool:
        return draft.metadata.source == "catalogue" or self._catalogue.has_version_of(draft.partition.location)


def asked_ahead(question: Question, sidecars: Mapping[str, Sidecar]) -> tuple[FirstLooks | None, list[AskedPartition]]:
    """Say what a question will ask of the filters of partitions, before it is known which entries of the catalogue count.

    Filters come from the catalogue as the sidecars did, so that they need not wait for the listing that tells it. Those of
    entries that do not count are not asked later: :class:`BloomCopies` has the drafts of those that do.

    Args:
        question: What is asked.
        sidecars: By the names of their partitions, in table order.

    Returns:
        A look at the sidecars, for when all of them count, if it was worth one; and what will be asked.
    """
    predicate, matcher = question.predicate, ColumnMatcher(question.needed_columns)
    try:
        if predicate is None or not any(
            looks_up_values(predicate, sidecar, matcher.places(sidecar)) for sidecar in sidecars.values()
        ):
            return None, []
        looks = FirstLooks(question, matcher, list(sidecars.values()))
        asked: list[AskedPartition] = []
        for index, name in enumerate(sidecars):
            look, position = looks.at(index)
            probes = look.bloom_probes(position)
            wanted = None if probes is None else probes.wanted_blocks()
            if wanted is not None:
                asked.append(AskedPartition(name=name, wanted=wanted))
    except (FormatError, UnsupportedError):
        return None, []  # perhaps of an entry that does not count: whoever plans with it will say so
    return looks, asked

"""Late materialisation: which row groups fetch the predicate's columns first, and the others where rows are left."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from coldparquet.plan.budget import has_budget
from coldparquet.plan.choices import late_materialisation_pays
from coldparquet.plan.model import Technique, bytes_wanted_by
from coldparquet.plan.reads import defer_columns
from coldparquet.records import replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.plan.bounds import BoolArray
    from coldparquet.plan.choices import LateChoice
    from coldparquet.plan.columns import TableColumn
    from coldparquet.scan.model import PartitionPlan, Question


class _Candidate(Struct, frozen=True, kw_only=True):
    """A read, some columns of which could wait for the predicate."""

    plan: int
    """Position of its partition among the plans."""
    read: int
    """Its position among the reads of the partition."""
    first_bytes: int
    """Length of the predicate columns' pieces."""
    deferred_bytes: int
    """Length of all other pieces."""


def read_late(question: Question, plans: Sequence[PartitionPlan]) -> list[PartitionPlan]:
    """Choose the reads of the whole scan for which late materialisation pays, and defer their columns."""
    candidates = _candidates(question, plans)
    if not candidates:
        return list(plans)
    choice = _choose(question, plans, candidates)
    considered: dict[int, set[int]] = {}
    late: dict[int, set[int]] = {}
    for candidate, is_late in zip(candidates, choice.late.tolist(), strict=True):
        considered.setdefault(candidate.plan, set()).add(candidate.read)
        if is_late:
            late.setdefault(candidate.plan, set()).add(candidate.read)
    return [
        _with_late_reads(question, plan, late.get(index, set()), considered[index], choice)
        if index in considered
        else plan
        for index, plan in enumerate(plans)
    ]


def _candidates(question: Question, plans: Sequence[PartitionPlan]) -> list[_Candidate]:
    predicate_columns = question.predicate_columns
    output_only = set(question.output_columns) - set(predicate_columns)
    if question.options.late_materialisation == "never" or not predicate_columns or not output_only:
        return []
    found = []
    for index, plan in enumerate(plans):
        if plan.estimate is None:
            continue
        first = _first_columns(predicate_columns, plan)
        for position, read in enumerate(plan.row_groups):
            if not read.all_rows_match:
                lengths = read.piece_stops - read.piece_starts
                first_bytes = int(lengths[_are_first(read.columns, first)[read.piece_columns]].sum())
                deferred_bytes = int(lengths.sum()) - first_bytes
                if deferred_bytes > 0:
                    found.append(
                        _Candidate(plan=index, read=position, first_bytes=first_bytes, deferred_bytes=deferred_bytes)
                    )
    return found


def _first_columns(predicate_columns: Sequence[TableColumn], plan: PartitionPlan) -> frozenset[int]:
    """Return the indexes of the predicate's columns in a partition's sidecar."""
    places = [place for column in predicate_columns if (place := plan.known.places.get(column.index)) is not None]
    return frozenset(plan.row_groups[0].data.leaves_of(places) if plan.row_groups else ())


@lru_cache(maxsize=256)
def _are_first(columns: tuple[int, ...], first: frozenset[int]) -> BoolArray:
    """Tell which columns of a read belong to the predicate; nearly all reads of a scan have the same columns."""
    return np.isin(np.array(columns, dtype=np.int64), list(first))


def _choose(question: Question, plans: Sequence[PartitionPlan], candidates: Sequence[_Candidate]) -> LateChoice:
    matching_rows, page_rows, row_counts = [], [], []
    for candidate in candidates:
        plan = plans[candidate.plan]
        if plan.estimate is not None:
            matching_rows.append(plan.estimate.matching_rows[candidate.read])
            page_rows.append(plan.estimate.page_rows[candidate.read])
            row_counts.append(plan.row_groups[candidate.read].row_count)
    rows = np.array(row_counts, dtype=np.int64)
    # Who asks expects something. A budget counts second requests of all row groups, so that all must be worth theirs.
    least = 1.0 if has_budget(question.options) else rows / max(int(rows.sum()), 1)
    all_bytes = bytes_wanted_by([read for plan in plans for read in plan.row_groups])
    gaps = [question.coalescing_of(plan.read.data_path).gap_bytes for plan in plans]
    request_bytes = np.array([max(gaps[candidate.plan], 1) for candidate in candidates], dtype=np.int64)
    return late_materialisation_pays(
        first_bytes=np.array([candidate.first_bytes for candidate in candidates], dtype=np.int64),
        deferred_bytes=np.array([candidate.deferred_bytes for candidate in candidates], dtype=np.int64),
        matching_rows=np.maximum(matching_rows, least),
        row_counts=rows,
        page_rows=np.array(page_rows, dtype=np.int64),
        other_bytes=all_bytes - sum(candidate.first_bytes + candidate.deferred_bytes for candidate in candidates),
        when=question.options.late_materialisation,
        goal=question.options.goal,
        request_bytes=request_bytes,
        speed=question.speed,
    )


def _with_late_reads(
    question: Question, plan: PartitionPlan, late: set[int], considered: set[int], choice: LateChoice
) -> PartitionPlan:
    reads = plan.row_groups
    if late:
        first = _first_columns(question.predicate_columns, plan)
        reads = tuple(defer_columns(read, first) if position in late else read for position, read in enumerate(reads))
    return replace(
        plan,
        row_groups=reads,
        read=replace(plan.read, techniques=(*plan.read.techniques, _late_technique(plan, late, considered, choice))),
    )


def _late_technique(plan: PartitionPlan, late: set[int], considered: set[int], choice: LateChoice) -> Technique:
    """Count the row groups; each may be several reads."""
    if not late:
        reason = choice.why_not if choice.late.any() else choice.reason
        return Technique(name="late reading", is_used=False, unit="row groups", reason=reason)
    return Technique(
        name="late reading",
        is_used=True,
        unit="row groups",
        affected=len({plan.row_groups[position].row_group for position in late}),
        considered=len({plan.row_groups[position].row_group for position in considered}),
        reason=choice.reason,
    )

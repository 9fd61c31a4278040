"""Which command restores what one question needs, and no more than that."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from coldparquet.plan.instant import Instant
from coldparquet.plan.predicate import quote_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.restoring.archived_objects import ArchivedObject
    from coldparquet.scanning.question import Question

_NOT_AS_THEY_STAND = frozenset('"$`\\!')
"""What a shell does not leave alone between double quotes."""


def restore_command(question: Question, archived: Sequence[ArchivedObject]) -> str:
    """Write the command that restores partitions: by the condition of the question, else by their time.

    A question without a condition, or one for some of the rows only, may need few of the partitions that the condition
    leaves. No request.

    Args:
        question: What was asked.
        archived: What has to be restored for it.
    """
    if question.snapshot.are_chosen:  # a condition would be asked of the whole table
        return _one_by_one(question.url, [each.partition for each in archived])
    conditions = [] if question.predicate_text is None else [question.predicate_text]
    if not conditions or question.limit is not None or question.last_rows is not None:
        times = _time_conditions(question, {each.partition for each in archived})
        conditions = [f"({condition})" for condition in conditions] if times else conditions
        conditions += times
    command = f"coldparquet restore {question.url}"
    return f"{command} --where {_shell_word(' and '.join(conditions))}" if conditions else f"{command} --all"


def _one_by_one(url: str, names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"coldparquet restore {url}/{names[0]} --all"
    return f"for name in {' '.join(names)}; do coldparquet restore {url}/$name --all; done"


def _time_conditions(question: Question, names: set[str]) -> list[str]:
    """Say between which times partitions lie; no bound where no other partition is beyond, or where no time is known."""
    snapshot = question.snapshot
    if snapshot.designated_timestamp is None:
        return []
    column = quote_name(snapshot.columns[snapshot.designated_timestamp].name)
    places = [place for place, partition in enumerate(snapshot.partitions) if partition.location.name in names]
    if not places:
        return []
    first = snapshot.partitions[places[0]].location.directory if places[0] else None
    is_last = places[-1] + 1 == len(snapshot.partitions)
    # Where a partition ends is not always known, but where the next one begins is.
    behind = None if is_last else snapshot.partitions[places[-1] + 1].location.directory
    conditions = [] if first is None else [f"{column} >= '{_time(first.start_ns)}'"]
    return conditions + ([] if behind is None else [f"{column} < '{_time(behind.start_ns)}'"])


def _time(nanoseconds: int) -> str:
    return str(Instant(nanoseconds)).removesuffix("T00:00:00Z")


def _shell_word(text: str) -> str:
    return shlex.quote(text) if _NOT_AS_THEY_STAND & set(text) else f'"{text}"'

"""What the row filter says of every row: true, false or unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.decode.filter import matching_rows
from coldparquet.plan.predicate import Not

if TYPE_CHECKING:
    import pyarrow as pa

    from coldparquet.plan.bind import BoundPredicate


def filter_outcomes(bound: BoundPredicate, table: pa.Table) -> list[bool | None]:
    """Return the outcome of a predicate for each row; unknown (None) is what neither it nor its negation keeps."""
    is_true, is_false = (matching_rows(one, table).to_pylist() for one in (bound, Not(bound)))
    assert not any(true and false for true, false in zip(is_true, is_false, strict=True))
    return [True if true else False if false else None for true, false in zip(is_true, is_false, strict=True)]

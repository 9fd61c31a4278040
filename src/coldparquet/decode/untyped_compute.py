"""Arrow's compute functions without the stubs, which know too few of the types that these take and return."""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

compute: Any = pc
"""``pyarrow.compute``."""

Values: TypeAlias = Any
"""An Arrow array of one type or another."""


def only_where(values: Values, holds: Values) -> Values:
    """Return the values for which ``holds`` is true, and null instead of the others.

    Args:
        values: Shape ``(n,)``.
        holds: Booleans, shape ``(n,)``.
    """
    return compute.if_else(holds, values, pa.nulls(1, values.type)[0])

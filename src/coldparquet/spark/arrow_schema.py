"""Converts Spark schemas to Arrow. Every planning worker needs it, so it imports little."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


_IN_UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
"""PySpark 4.1 assumes UTC, and rejects an explicit time zone."""


def arrow_schema_of(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark requires of batches of this schema."""
    return to_arrow_schema(schema, **_IN_UTC)

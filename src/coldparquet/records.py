"""Copies records with other values: those of the core are ``msgspec`` structs, those that users make are dataclasses."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec import Struct, structs

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Record = TypeVar("Record", bound="Struct | DataclassInstance")


def replace(record: Record, /, **changes: Any) -> Record:
    """Copy a record with other values in some fields, as ``copy.replace`` of Python 3.13 does."""
    if isinstance(record, Struct):
        return cast("Record", structs.replace(record, **changes))
    return dataclasses.replace(record, **changes)

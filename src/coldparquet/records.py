"""What both kinds of records share: those of the core are ``msgspec`` structs, those that users make are dataclasses."""

from __future__ import annotations

import dataclasses
from inspect import get_annotations
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


def field_names(record_class: type[Record]) -> tuple[str, ...]:
    """Return the names of a record's fields, in their order."""
    if issubclass(record_class, Struct):
        return record_class.__struct_fields__
    return tuple(one.name for one in dataclasses.fields(record_class))


def field_defaults(record_class: type[Record]) -> dict[str, Any]:
    """Return the defaults of a record's fields, without those that are made anew."""
    if issubclass(record_class, Struct):
        defaults = record_class.__struct_defaults__
        return dict(zip(record_class.__struct_fields__[-len(defaults) :], defaults, strict=True)) if defaults else {}
    return {one.name: one.default for one in dataclasses.fields(record_class) if one.default is not dataclasses.MISSING}


def field_types(record_class: type[Record]) -> dict[str, str]:
    """Return the types of a record's fields as they are written; they need not be defined at run time."""
    written = {name: text for one in reversed(record_class.__mro__) for name, text in get_annotations(one).items()}
    return {name: str(written[name]) for name in field_names(record_class)}

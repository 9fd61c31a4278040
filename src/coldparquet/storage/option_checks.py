"""Checks of ``storage_options`` that all stores share. Values are never repeated: they may be secrets."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from coldparquet.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": False}


def refuse_unknown(
    given: Mapping[str, Any],
    *,
    known: AbstractSet[str],
    ignored: AbstractSet[str] = frozenset(),
    what: str = "storage option",
) -> None:
    """Do nothing if every option is known.

    Args:
        given: The options, by name.
        known: Names that mean something.
        ignored: Names that mean something to fsspec alone, and do no harm.
        what: What an option is called in the message.

    Raises:
        InvalidInputError: ``kind="UnknownOption"``: one is not; the message says which one may have been meant.
    """
    for name in given:
        if name not in known and name not in ignored:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known ones are {', '.join(sorted(known))}"
            raise InvalidInputError(f"unknown {what} {name!r}; {hint}", kind="UnknownOption", option=name)


def boolean_option(given: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """Return an option that is true or false, also in the words of environment variables, as fsspec reads them.

    Raises:
        InvalidInputError: ``kind="BadOption"``: it is something else.
    """
    value = given.get(name)
    if value is None:
        return default
    known = _BOOLEANS.get(str(value).lower())
    if known is None:
        raise InvalidInputError(f"the storage option {name} must be true or false", kind="BadOption", option=name)
    return known


def mapping_option(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an option that is a dictionary itself; an empty one where it is not given.

    Raises:
        InvalidInputError: ``kind="BadOption"``: it is something else.
    """
    value = given.get(name) or {}
    if not isinstance(value, Mapping):
        raise InvalidInputError(
            f"the storage option {name} is a {type(value).__name__}; it must be a dictionary",
            kind="BadOption",
            option=name,
        )
    return value


def text_option(given: Mapping[str, Any], *names: str) -> str | None:
    """Return an option that is text, by the first of its names that is given; None where it is empty or not given.

    Raises:
        InvalidInputError: ``kind="BadOption"``: it is something else, or holds characters that no header may have.
    """
    for name in names:
        value = given.get(name)
        if isinstance(value, str) and value.isprintable():
            if value:
                return value
        elif value is not None:
            found = "holds a line break or the like" if isinstance(value, str) else f"is a {type(value).__name__}"
            raise InvalidInputError(
                f"the storage option {name} {found}; it must be text without control characters",
                kind="BadOption",
                option=name,
            )
    return None

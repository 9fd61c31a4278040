"""Reading options of Spark, which are all text, whatever they are about."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING, Any

from coldparquet.errors import InvalidInputError, UnsupportedError
from coldparquet.spark.credentials import STORAGE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_OF_CATALOG_TABLES = frozenset({"location", "owner"})
"""Properties that Spark's catalog gives to the tables that it makes: none of our options is called so."""


class OptionReading:
    """The options that are given, each turned into the value that it stands for.

    Args:
        options: As Spark hands them over, with names in letters of any case.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.given = {name.lower(): value for name, value in options.items()}
        """The texts, by names in lower case."""

    def refuse_unknown(self, known: frozenset[str]) -> None:
        """Make sure that all names are known, and that it is not Spark's catalog who asks.

        Args:
            known: Names in lower case; ``storage.KEY`` is known anyway.

        Raises:
            InvalidInputError: One is not (kind ``InvalidOption``).
            UnsupportedError: They are those of a table in Spark's catalog (kind ``CatalogTable``).
        """
        if not _OF_CATALOG_TABLES.isdisjoint(self.given):
            raise UnsupportedError(
                "Spark's catalog keeps no coldparquet tables, only temporary views: CREATE TEMPORARY VIEW trades USING coldparquet"
                " OPTIONS (path 's3://bucket/db/trades'); to write, coldparquet.spark.write(df, url)",
                kind="CatalogTable",
            )
        for name in self.given:
            if name in known or name.startswith(STORAGE_PREFIX):
                continue
            near = difflib.get_close_matches(name, known, n=1)
            advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))} and storage.KEY"
            raise InvalidInputError(f"there is no option {name!r}; {advice}", kind="InvalidOption", option=name)

    def one(self, name: str, convert: Callable[[str], Any]) -> Any:
        """Return the value of one option, None where it is not given.

        Args:
            name: In letters of any case.
            convert: Takes the text; its ``ValueError`` says what it must be.

        Raises:
            InvalidInputError: The text cannot be converted (kind ``InvalidOption``).
        """
        text = self.given.get(name.lower())
        if text is None:
            return None
        try:
            return convert(text)
        except InvalidInputError:
            raise
        except ValueError as error:
            raise InvalidInputError(
                f"the option {name} is {text!r}; {error}", kind="InvalidOption", option=name
            ) from None

    def keywords(self, **wanted: tuple[str, Callable[[str], Any]]) -> dict[str, Any]:
        """Return the values of those options that are given, by the names that the library has for them.

        Args:
            **wanted: For each name of the library, that of the option and what converts it.
        """
        values = {keyword: self.one(name, convert) for keyword, (name, convert) in wanted.items()}
        return {keyword: value for keyword, value in values.items() if value is not None}


def column_names(text: str) -> tuple[str, ...]:
    """Read names with commas between them, or a JSON list of them."""
    if text.lstrip().startswith("["):
        return list_of_texts(text)
    return tuple(name for part in text.split(",") if (name := part.strip()))


def list_of_texts(text: str) -> tuple[str, ...]:
    """Read a JSON list of texts; ``ValueError`` says what it must be."""
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError('it must be a JSON list of texts such as ["ts", "price"]')
    return tuple(values)


def whole_number(text: str) -> int:
    """Read a whole number; ``ValueError`` says what it must be."""
    try:
        return int(text)
    except ValueError:
        raise ValueError("it must be a whole number") from None


def positive_count(text: str) -> int:
    """Read a whole number that is at least 1; ``ValueError`` says what it must be."""
    count = whole_number(text)
    if count < 1:
        raise ValueError("it must be at least 1")
    return count


def number(text: str) -> float:
    """Read a number; ``ValueError`` says what it must be."""
    try:
        return float(text)
    except ValueError:
        raise ValueError("it must be a number") from None


def truth(text: str) -> bool:
    """Read ``true`` or ``false``; ``ValueError`` says what it must be."""
    if text.lower() not in ("true", "false"):
        raise ValueError("it must be true or false")
    return text.lower() == "true"


def one_of(*words: str) -> Callable[[str], str]:
    """Make what reads one of some words, which are in lower case; ``ValueError`` says which ones there are."""

    def read(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(f"it must be one of {', '.join(map(repr, words))}")
        return text.lower()

    return read

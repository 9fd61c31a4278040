"""Resolves the options of a store, such as credentials and endpoint, without ever showing them.

| given as | where it is resolved | who can read it |
|---|---|---|
| nothing | on the driver and on each executor: environment, instance role, profile | no other process |
| ``credentials`` = ``env:NAME`` | on the driver and on each executor, from a JSON object in that environment variable | every process that may read the environment. Spark redacts ``spark.executorEnv.NAME`` where the name contains SECRET, TOKEN or PASSWORD, but not in its INFO log, which prints all settings when its listeners are slow: the machines' own environment is safer |
| ``credentials`` = ``file:/path`` | the same, from a JSON file, such as a mounted secret | every process that may read the file |
| ``storage_options`` = JSON, ``storage.KEY`` = value | travels from the driver to the executors with the reader | as the next line. But Spark shows the ``OPTIONS`` of SQL, and detects secrets by words in their name or value: an apparent secret without such a word, as ``storage.account_key``, is refused |
| ``secret_options`` = JSON | the same | hidden in plans, the user interface and event logs of classic Spark: the word is in its name. A Spark Connect server shows the options of a request in both: use ``credentials`` there |

Never put credentials into the Spark configuration: the event log lists all of it, and redacts by the name of the key
alone. Nor into SQL: servers log its text unchanged, and a narrowed ``spark.redaction.regex`` exposes the options.
"""

from __future__ import annotations

import json
import os
import platform
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from coldparquet.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

STORAGE_PREFIX = "storage."
"""Prefix of options that are single settings of the store."""

_JSON_OPTIONS = ("storage_options", "secret_options")

_HIDDEN_BY_SPARK = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
"""The default of ``spark.redaction.regex`` in Spark 4.1; it redacts an option whose name or value contains a match."""

_LOOKS_SECRET = re.compile(
    r"auth$|authorization|connection_?string|cookie|cred|header|(?<=.)key$|passphrase|passwd|pwd|sas|signature$",
    re.IGNORECASE,
)
"""Names of secret settings in fsspec's file systems. A bare ``key`` is the public half of a pair."""

_WORDS = {"true": True, "false": False, "null": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Settings of the store; ``repr`` shows none of them."""

    explicit: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Explicit settings, as fsspec and s3fs take them."""
    reference: str | None = None
    """``env:NAME`` or ``file:/path``: where each process finds the other settings."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Collect them from the options of a data source, whose names are in letters of any case."""
        names = {option_key(name): name for name in _JSON_OPTIONS}
        options = {names.get(option_key(name), name.lower()): text for name, text in options.items()}
        given = {name: _json_object(options[name], f"the option {name}") for name in _JSON_OPTIONS if name in options}
        for name, value in options.items():
            if name.startswith(STORAGE_PREFIX):
                given[name] = {name.removeprefix(STORAGE_PREFIX): _plain_value(value)}
        for name, settings in given.items():
            _refuse_what_spark_shows(name, options[name], settings)
        explicit = {key: value for settings in given.values() for key, value in settings.items()}
        reference = options.get("credentials")
        if reference is not None and not reference.startswith(("env:", "file:")):
            raise InvalidInputError(
                "the option credentials names where they are: env:NAME, an environment variable, or file:/path, each holding a"
                ' JSON object such as {"key": ..., "secret": ...}',
                kind="InvalidOption",
            )
        return cls(explicit=explicit, reference=reference)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Restore credentials from the result of :meth:`as_dict`."""
        return cls(explicit=state["explicit"], reference=state["reference"])

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for executors. It holds the explicit settings, and nothing that was resolved."""
        return {"explicit": dict(self.explicit), "reference": self.reference}

    def storage_options(self) -> dict[str, Any]:
        """Resolve the reference in this process and return all settings; explicit ones take precedence."""
        return {**_resolved(self.reference), **self.explicit}


def option_key(name: str) -> str:
    """Return what an option is known by: ``maxBytes`` and ``max_bytes`` are one. Settings of stores keep their names."""
    lower = name.lower()
    return lower if lower.startswith(STORAGE_PREFIX) else lower.replace("_", "")


def _refuse_what_spark_shows(option: str, text: str, settings: Mapping[str, Any]) -> None:
    """Refuse a secret that SQL would expose in the event log: a data source cannot tell how its options were given."""
    if _HIDDEN_BY_SPARK.search(option) or _HIDDEN_BY_SPARK.search(text):
        return
    for name in _names(settings):
        if _LOOKS_SECRET.search(name):
            raise InvalidInputError(
                f"the option {option} holds {name!r}, of which Spark does not know that it is a secret: a view or table with such"
                " OPTIONS stands in plans and event logs with its value. Let the option credentials name where it is"
                " (env:NAME or file:/path), or give a JSON object as option secret_options, which Spark hides",
                kind="InvalidOption",
                option=option,
            )


def _names(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, value in settings.items():
        yield name
        if isinstance(value, dict):
            yield from _names(value)


def _resolved(reference: str | None) -> dict[str, Any]:
    if reference is None:
        return {}
    kind, _, place = reference.partition(":")
    process = f"on {platform.node()}, process {os.getpid()}"
    if kind == "env":
        text = os.environ.get(place)
        if text is None:
            raise InvalidInputError(
                f"the option credentials is {reference!r}, but there is no such environment variable {process}; set it on the"
                f" driver, and on the executors with spark.executorEnv.{place}",
                kind="NoCredentials",
            )
    else:
        try:
            text = Path(place.removeprefix("//")).read_text(encoding="utf-8")
        except OSError as error:
            raise InvalidInputError(
                f"the option credentials is {reference!r}, but the file cannot be read {process}: {error.strerror}",
                kind="NoCredentials",
            ) from None
    return _json_object(text, f"what the option credentials names, {reference!r},", kind="NoCredentials")


def _json_object(text: str, what: str, *, kind: str = "InvalidOption") -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        # The message omits the text and json's own message: both may contain a secret.
        raise InvalidInputError(f'{what} is no JSON object such as {{"endpoint_url": "http://host:9000"}}', kind=kind)
    return value


def _plain_value(text: str) -> Any:
    """Parse words and JSON objects or lists; all else, digits too, is text, as account keys are."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if text.startswith(("{", "[")):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text

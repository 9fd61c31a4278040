"""From the command line's flags to ``storage_options``."""

from __future__ import annotations

import json
import re
from typing import Any

import typer

from coldparquet.options import StoreOptions

_WORDS = {"true": True, "false": False, "null": None}
_JSON_VALUE = re.compile(r'-?\d+|[\[{"].*', re.DOTALL)
"""Integers, and whatever begins like a JSON list, object or string; all else is a string as it stands."""


def parse_storage_options(settings: list[str] | None, *, endpoint_url: str | None, anonymous: bool) -> dict[str, Any]:
    """Collect the options of the store.

    Args:
        settings: ``KEY=VALUE`` each. ``true``, ``false``, ``null``, integers and JSON become what they say.
        endpoint_url: Address of a store that speaks S3.
        anonymous: Send unsigned requests.

    Raises:
        typer.BadParameter: A setting has no ``=``, or its value begins like JSON but is none.
    """
    options: dict[str, Any] = {}
    for setting in settings or ():
        key, separator, value = setting.partition("=")
        if not key or not separator:
            # The setting itself is not repeated: it may be a secret.
            raise typer.BadParameter("expected KEY=VALUE", param_hint="--storage-option")
        options[key] = _parse_value(key, value)
    if endpoint_url is not None:
        options["endpoint_url"] = endpoint_url
    if anonymous:
        options["anon"] = True
    return options


def store_options_of(*, cache_directory: str | None) -> StoreOptions:
    """Say what to remember of the store.

    Args:
        cache_directory: Where sidecars and fetched ranges are kept between runs; None for nowhere.

    Raises:
        typer.BadParameter: It is empty, or a URL.
    """
    if cache_directory is None:
        return StoreOptions()
    if not cache_directory or "://" in cache_directory:
        raise typer.BadParameter("expected a local directory", param_hint="--cache-dir")
    return StoreOptions(cache_directory=cache_directory)


def _parse_value(key: str, text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if not _JSON_VALUE.fullmatch(text):
        return text
    try:
        return json.loads(text)
    except ValueError:
        raise typer.BadParameter(
            f"the value of {key} looks like JSON but is none", param_hint="--storage-option"
        ) from None

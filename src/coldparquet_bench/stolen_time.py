"""How much of the processors a host gives to other machines while ours measures: then its times are not worth quoting."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

_FILE = Path("/proc/stat")
_STOLEN, _KINDS_OF_TIME = 7, 8
"""Where "steal" stands among the times of the first line, and how many of them are no parts of others; see proc(5)."""


class StolenTime:
    """Measures from the moment in which it is made."""

    def __init__(self) -> None:
        self._before = _read()

    @property
    def fraction(self) -> float | None:
        """Part of all processors' time since then that others took, from 0 to 1; None where the system does not say it."""
        now = _read()
        if now is None or self._before is None or now.all_ticks == self._before.all_ticks:
            return None
        return (now.stolen_ticks - self._before.stolen_ticks) / (now.all_ticks - self._before.all_ticks)


class _Ticks(NamedTuple):
    stolen_ticks: int
    all_ticks: int


def _read() -> _Ticks | None:
    try:
        fields = _FILE.read_text(encoding="ascii").partition("\n")[0].split()
    except OSError:  # no Linux
        return None
    if fields[:1] != ["cpu"] or len(fields) <= _KINDS_OF_TIME:
        return None
    ticks = [int(field) for field in fields[1 : _KINDS_OF_TIME + 1]]
    return _Ticks(stolen_ticks=ticks[_STOLEN], all_ticks=sum(ticks))

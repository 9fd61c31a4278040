"""Which type a column may have had before ``ALTER COLUMN TYPE``, so that its old values can be converted.

The pairs are those that QuestDB 9.3.4 accepts:

| from | to |
|---|---|
| BOOLEAN | BYTE, SHORT, INT, LONG; FLOAT, DOUBLE; DATE, TIMESTAMP, TIMESTAMP_NS; text |
| BYTE, SHORT, INT, LONG | BOOLEAN; each other; FLOAT, DOUBLE; DATE, TIMESTAMP, TIMESTAMP_NS; text; DECIMAL |
| FLOAT, DOUBLE | BOOLEAN; BYTE, SHORT, INT, LONG; each other; DATE, TIMESTAMP, TIMESTAMP_NS; text |
| DATE, TIMESTAMP, TIMESTAMP_NS | BOOLEAN; BYTE, SHORT, INT, LONG; FLOAT, DOUBLE; each other; text |
| text: STRING, SYMBOL, VARCHAR | each other; all of the above but DECIMAL; CHAR, IPv4, UUID |
| CHAR, IPv4, UUID | text |
| DECIMAL | DECIMAL of other precision or scale |

What becomes of a value is the matter of ``coldparquet.decode.conversion``. Later versions add DECIMAL to and from text
and DECIMAL to other numbers; how those round is not established, so they are not here.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from coldparquet.format.type_codes import TypeTag, is_decimal
from coldparquet.plan.type_widening import widens

if TYPE_CHECKING:
    from coldparquet.format.column_types import ColumnType


class Family(Enum):
    """Types whose values convert in the same way."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "float"
    INSTANT = "instant"
    TEXT = "text"
    CHAR = "char"
    IPV4 = "ipv4"
    UUID = "uuid"
    DECIMAL = "decimal"


_FAMILIES: dict[tuple[TypeTag, str], Family] = {
    (TypeTag.BOOLEAN, "bool"): Family.BOOLEAN,
    (TypeTag.BYTE, "int8"): Family.INTEGER,
    (TypeTag.SHORT, "int16"): Family.INTEGER,
    (TypeTag.INT, "int32"): Family.INTEGER,
    (TypeTag.LONG, "int64"): Family.INTEGER,
    (TypeTag.FLOAT, "float32"): Family.FLOAT,
    (TypeTag.DOUBLE, "float64"): Family.FLOAT,
    (TypeTag.DATE, "date32"): Family.INSTANT,
    (TypeTag.DATE, "timestamp[ms, UTC]"): Family.INSTANT,
    (TypeTag.TIMESTAMP, "timestamp[us, UTC]"): Family.INSTANT,
    (TypeTag.TIMESTAMP, "timestamp[ns, UTC]"): Family.INSTANT,
    (TypeTag.STRING, "string"): Family.TEXT,
    (TypeTag.VARCHAR, "string"): Family.TEXT,
    (TypeTag.SYMBOL, "dictionary<int32, string>"): Family.TEXT,
    (TypeTag.CHAR, "uint16"): Family.CHAR,
    (TypeTag.IPV4, "uint32"): Family.IPV4,
    (TypeTag.UUID, "fixed_size_binary[16]"): Family.UUID,
}
"""By tag and Arrow type: an annotation can give a tag of a foreign file another meaning, which has no conversions."""

_NUMBERS = frozenset({Family.BOOLEAN, Family.INTEGER, Family.FLOAT, Family.INSTANT})
_TARGETS: dict[Family, frozenset[Family]] = {
    Family.BOOLEAN: _NUMBERS - {Family.BOOLEAN} | {Family.TEXT},
    Family.INTEGER: _NUMBERS | {Family.TEXT, Family.DECIMAL},
    Family.FLOAT: _NUMBERS | {Family.TEXT},
    Family.INSTANT: _NUMBERS | {Family.TEXT},
    Family.TEXT: _NUMBERS | {Family.TEXT, Family.CHAR, Family.IPV4, Family.UUID},
    Family.CHAR: frozenset({Family.TEXT}),
    Family.IPV4: frozenset({Family.TEXT}),
    Family.UUID: frozenset({Family.TEXT}),
    Family.DECIMAL: frozenset({Family.DECIMAL}),
}


def family_of(column_type: ColumnType) -> Family | None:
    """Return the family of a type, None for types that have no conversions."""
    if is_decimal(column_type.tag):
        return Family.DECIMAL
    return _FAMILIES.get((column_type.tag, str(column_type.arrow)))


def holds_same_values(stored: ColumnType, wanted: ColumnType) -> bool:
    """Tell whether every stored value is one of the wanted type as it is, whatever Parquet stores it as.

    So it is for the three text types, for decimals and arrays in another storage, and for dates counted in days.
    """
    if stored == wanted:
        return True
    families = family_of(stored), family_of(wanted)
    if families == (Family.TEXT, Family.TEXT):
        return True
    is_same_date = stored.arrow.name == "date32" and families == (Family.INSTANT, Family.INSTANT)
    return (
        stored.name == wanted.name
        and (stored.arrow == wanted.arrow or is_same_date)
        and stored.comparison is wanted.comparison
        and stored.never_null == wanted.never_null
    )


def can_convert(stored: ColumnType, wanted: ColumnType) -> bool:
    """Tell whether values of one type become values of another: as by ``ALTER COLUMN TYPE``, or as Arrow unifies them."""
    if holds_same_values(stored, wanted):
        return True
    if wanted.is_unified:
        return widens(stored, wanted)
    if wanted.arrow.name == "date32":
        return False  # only foreign files count days, and no statement of QuestDB makes a column one of them
    source, target = family_of(stored), family_of(wanted)
    return source is not None and target in _TARGETS[source]

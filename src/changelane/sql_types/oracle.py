# SPDX-License-Identifier: Apache-2.0
"""Type texts of Oracle, parsed into logical types.

https://docs.oracle.com/en/database/oracle/oracle-database/19/sqlrf/Data-Types.html
"""

import re
from functools import lru_cache
from typing import Final

from changelane.types import (
    UNKNOWN,
    Boolean,
    Bytes,
    Decimal,
    Float,
    GeometryType,
    InstantType,
    Interval,
    Json,
    LogicalType,
    String,
    Text,
    Timestamp,
    Xml,
)

_STRINGS: Final = (
    "varchar2 nvarchar2 varchar nvarchar char nchar character clob nclob long rowid urowid"
)

_SIMPLE: Final[dict[str, LogicalType]] = {
    **dict.fromkeys(_STRINGS.split(), String()),
    **dict.fromkeys(("character varying", "char varying", "national character"), String()),
    **dict.fromkeys(("national char", "national character varying", "nchar varying"), String()),
    **dict.fromkeys(("raw", "blob", "long raw"), Bytes()),
    **dict.fromkeys(("binary_float",), Float(32)),
    **dict.fromkeys(("binary_double",), Float(64)),
    # Oracle's DATE has a time of day, to the second
    "date": Timestamp(0),
    "json": Json(),
    "xmltype": Xml(),
    "boolean": Boolean(),
    "bool": Boolean(),
    "sdo_geometry": GeometryType(),
    # table 2-8 of that page: ANSI integers are NUMBER(38,0)
    **dict.fromkeys(("integer", "int", "smallint"), Decimal(38, 0)),
    # numbers with a binary precision, which Oracle stores as NUMBER
    **dict.fromkeys(("float", "real", "double precision"), Decimal()),
}

_NAME: Final = re.compile(r'\s*((?:"[^"]*"|[\w$#]+)(?:\s*\.\s*(?:"[^"]*"|[\w$#]+))*)\s*')
_WORD: Final = re.compile(r"\s*([a-z]+)\s*", re.IGNORECASE)
_ARGUMENTS: Final = re.compile(
    r"\s*+\(\s*+(\d{1,9}|\*)\s*+(?:,\s*+(-?\d{1,9})\s*+)?(?:byte|char)?\s*+\)\s*+", re.IGNORECASE
)
_ZONE: Final = re.compile(r"\s*with\s+(?:local\s+)?time\s+zone\s*", re.IGNORECASE)
_SECOND_WORDS: Final = frozenset({"varying", "precision", "character", "char", "raw"})
_DEFAULT_FRACTION: Final = 6
_LONGEST: Final = 1000


@lru_cache(maxsize=4096)
def parse(text: str) -> LogicalType:
    """Parse a type text; a type that is not built in becomes ``Text`` with its name.

    >>> parse("NUMBER"), parse("NUMBER(5,-2)")
    (Decimal(precision=None, scale=None), Decimal(precision=5, scale=-2))
    >>> parse("TIMESTAMP(3) WITH LOCAL TIME ZONE")
    InstantType(precision=3)
    """
    match = _NAME.match(text) if len(text) <= _LONGEST else None
    if match is None:
        return UNKNOWN
    name, tail = match.group(1), text[match.end() :]
    if "." in name or name.startswith('"'):
        last = name.rpartition(".")[2].strip().strip('"').lower()
        # MDSYS.SDO_GEOMETRY, SYS.XMLTYPE
        return _SIMPLE.get(last) or Text(name.replace('"', ""))
    word = _WORD.match(tail)
    while word is not None and word.group(1).lower() in _SECOND_WORDS:
        name = f"{name} {word.group(1)}"
        tail = tail[word.end() :]
        word = _WORD.match(tail)
    return _named(name.lower(), tail)


def _named(name: str, tail: str) -> LogicalType:
    arguments = _ARGUMENTS.match(tail)
    first = arguments.group(1) if arguments else None
    second = int(arguments.group(2)) if arguments and arguments.group(2) else 0
    tail = tail[arguments.end() :] if arguments else tail
    match name:
        case "number" | "numeric" | "decimal" | "dec":
            if first is None:
                # NUMBER has any scale; its ANSI synonyms have scale 0
                return Decimal() if name == "number" else Decimal(38, 0)
            # "*" is the greatest precision
            return Decimal(38 if first == "*" else int(first), second)
        case "timestamp":
            digits = _DEFAULT_FRACTION if first is None else int(first)
            return InstantType(digits) if _ZONE.match(tail) else Timestamp(digits)
        case "interval":
            return Interval()
        case _:
            return _SIMPLE.get(name) or Text(name)

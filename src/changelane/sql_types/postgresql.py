# SPDX-License-Identifier: Apache-2.0
"""Type texts of PostgreSQL, as in statements and ``format_type``, parsed into logical types.

Names and synonyms: https://www.postgresql.org/docs/current/datatype.html, table 8.1.
"""

import re
from functools import lru_cache
from typing import Final

from changelane.types import (
    UNKNOWN,
    Array,
    Bits,
    Boolean,
    Bytes,
    Date,
    Decimal,
    Float,
    GeometryType,
    InstantType,
    Integer,
    Interval,
    Json,
    LogicalType,
    String,
    Text,
    Time,
    Timestamp,
    TimeTz,
    Uuid,
    Xml,
)

_SIMPLE: Final[dict[str, LogicalType]] = {
    **dict.fromkeys(("smallint", "int2", "smallserial", "serial2"), Integer(16)),
    **dict.fromkeys(("integer", "int", "int4", "serial", "serial4"), Integer(32)),
    **dict.fromkeys(("bigint", "int8", "bigserial", "serial8"), Integer(64)),
    **dict.fromkeys(("real", "float4"), Float(32)),
    **dict.fromkeys(("double precision", "float8"), Float(64)),
    **dict.fromkeys(("boolean", "bool"), Boolean()),
    **dict.fromkeys(("text", "character varying", "varchar", "bpchar", "name"), String()),
    **dict.fromkeys(("character", "char", "national character", "nchar"), String()),
    **dict.fromkeys(("national character varying", "citext"), String()),
    "bytea": Bytes(),
    "date": Date(),
    "json": Json(),
    "jsonb": Json(),
    "uuid": Uuid(),
    "xml": Xml(),
    "oid": Integer(32, unsigned=True),
    "point": GeometryType("point"),
    "geometry": GeometryType(),
    "geography": GeometryType("geography"),
    "interval": Interval(),
}

_PART: Final = r'(?:"(?:[^"]|"")*"|[\w$]+)'
_NAME: Final = re.compile(rf"\s*({_PART}(?:\s*\.\s*{_PART})*)\s*")
_WORD: Final = re.compile(r"\s*([a-z]+)\s*", re.IGNORECASE)
_ARGUMENTS: Final = re.compile(r"\s*\(\s*(\d{1,9})\s*(?:,\s*(-?\d{1,9})\s*)?\)\s*")
_ZONE: Final = re.compile(r"\s*(with|without)\s+time\s+zone\s*", re.IGNORECASE)
_DIMENSION: Final = r"\s*+\[\s*+\d*+\s*+\]"
_DIMENSIONS: Final = re.compile(
    rf"(?<![\s\]])(?:{_DIMENSION})++\s*+$|(?<!\s)\s++array(?:{_DIMENSION})?+\s*+$", re.IGNORECASE
)
_SPAN: Final = re.compile(
    r"\s*(?:year|month|day|hour|minute|second)\b.*", re.IGNORECASE | re.DOTALL
)
_LONGEST: Final = 1000
_SECOND_WORDS: Final = frozenset({"varying", "precision", "character", "char"})
_MOST_BITS: Final = 83_886_080  # the largest length that PostgreSQL accepts


@lru_cache(maxsize=4096)
def parse(text: str) -> LogicalType:
    """Parse a type text; a type that is not built in becomes ``Text`` with its name.

    The number of dimensions is not part of PostgreSQL's types: an array of arrays is an array.

    >>> parse("numeric(10,2)")
    Decimal(precision=10, scale=2)
    >>> parse("timestamp (3) with time zone[]")
    Array(element=InstantType(precision=3))
    """
    if len(text) > _LONGEST:
        return UNKNOWN
    element = _DIMENSIONS.sub("", text)
    if element != text:
        inner = parse(element)
        return inner if isinstance(inner, Array) else Array(inner)
    match = _NAME.match(text)
    if match is None:
        return UNKNOWN
    name, tail = match.group(1), text[match.end() :]
    if "." in name or name.startswith('"'):
        schema, _, last = name.rpartition(".")
        own = last.strip().strip('"') if schema in {"", "pg_catalog"} else ""
        return _named(own, tail) or Text(name.replace('"', ""))
    word = _WORD.match(tail)
    while word is not None and word.group(1).lower() in _SECOND_WORDS:
        name = f"{name} {word.group(1)}"
        tail = tail[word.end() :]
        word = _WORD.match(tail)
    return _named(name.lower(), tail) or Text(name.lower())


def _named(name: str, tail: str) -> LogicalType | None:
    arguments = _ARGUMENTS.match(tail)
    first = int(arguments.group(1)) if arguments else None
    second = int(arguments.group(2)) if arguments and arguments.group(2) else 0
    if arguments:
        tail = tail[arguments.end() :]
    zone = _ZONE.match(tail)
    with_zone = zone is not None and zone.group(1).lower() == "with"
    if name not in {"interval", "time", "timestamp"} and tail.strip():
        return None
    match name:
        case "numeric" | "decimal":
            # numeric without arguments is unconstrained
            return Decimal() if first is None else Decimal(first, second)
        case "float":
            return Float(32) if first is not None and first <= 24 else Float(64)
        case "bit":
            return Bits(min(first or 1, _MOST_BITS))
        case "bit varying" | "varbit":
            return Bits()
        case "time" | "timetz":
            return TimeTz(first) if with_zone or name == "timetz" else Time(first)
        case "timestamp" | "timestamptz":
            wide = with_zone or name == "timestamptz"
            return InstantType(first) if wide else Timestamp(first)
        case "interval" if tail.strip() and not _SPAN.fullmatch(tail):
            return None
        case _:
            return _SIMPLE.get(name)

# SPDX-License-Identifier: Apache-2.0
"""Type texts of MySQL and MariaDB, parsed into a logical type and a JDBC code.

Texts have two spellings: that of ``DESC`` (``bigint(20) unsigned``), and that of statements and of
Canal's DDL parser (``DECIMAL(8, 0)``, ``TINYINT(2) unsigned zerofill``). MySQL 8 and DTS omit
lengths.
"""

import re
from functools import lru_cache
from typing import Final

import msgspec

from changelane.errors import EncodeError
from changelane.types import (
    Bits,
    Bytes,
    Date,
    Decimal,
    Enum,
    Float,
    GeometryType,
    InstantType,
    Integer,
    Json,
    LogicalType,
    Set,
    String,
    Time,
    Timestamp,
    Year,
)

_MAX_FRACTION_DIGITS: Final = 6
_MAX_DECIMAL_PRECISION: Final = 65
# https://dev.mysql.com/doc/refman/8.0/en/string-type-syntax.html; the memory for the bit masks of
# a SET grows with the square of its members
_MOST_MEMBERS: Final = {"enum": 65_535, "set": 64}


class MySqlType(msgspec.Struct, frozen=True):
    """The parsed type text of a column.

    Attributes:
        kind: The logical type.
        code: The ``java.sql.Types`` code that Canal gives it in ``sqlType``.
        high_code: The code of an unsigned value whose highest bit is set.
        null_code: The code of a NULL.
        width: The length of ``BINARY(n)``; the binary log omits trailing zero bytes of its values.
        is_known: MySQL has a type of this name.
    """

    kind: LogicalType
    code: int
    high_code: int | None = None
    null_code: int | None = None
    width: int | None = None
    is_known: bool = True


# name -> (bits, code, code of an unsigned value with the highest bit set)
_INTEGERS: Final[dict[str, tuple[int, int, int | None]]] = {
    "tinyint": (8, -6, 5),
    "smallint": (16, 5, 4),
    "mediumint": (32, 4, None),
    "int": (32, 4, -5),
    "bigint": (64, -5, 3),
}

_SYNONYMS: Final[dict[str, str]] = {
    "bool": "tinyint",
    "boolean": "tinyint",
    "int1": "tinyint",
    "int2": "smallint",
    "int3": "mediumint",
    "middleint": "mediumint",
    "integer": "int",
    "int4": "int",
    "int8": "bigint",
    "dec": "decimal",
    "numeric": "decimal",
    "fixed": "decimal",
    "float4": "float",
    "float8": "double",
    "double precision": "double",
    "real": "double",
    "character": "char",
    "nchar": "char",
    "national char": "char",
    "national character": "char",
    "char varying": "varchar",
    "character varying": "varchar",
    "nvarchar": "varchar",
    "nchar varchar": "varchar",
    "national varchar": "varchar",
    "long": "mediumtext",
    "long varchar": "mediumtext",
    "long varbinary": "mediumblob",
    "char byte": "binary",
    "geomcollection": "geometrycollection",
}

_SIMPLE: Final[dict[str, MySqlType]] = {
    "char": MySqlType(String(), 1),
    "varchar": MySqlType(String(), 12),
    "vector": MySqlType(String(), 12),
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), MySqlType(String(), 2005)),
    **dict.fromkeys(
        ("tinyblob", "blob", "mediumblob", "longblob", "varbinary"), MySqlType(Bytes(), 2004)
    ),
    "json": MySqlType(Json(), 12, null_code=1111),
    "date": MySqlType(Date(), 91),
    "year": MySqlType(Year(), 12),
    "point": MySqlType(GeometryType("point"), 2004),
    **dict.fromkeys(
        (
            "geometry",
            "linestring",
            "polygon",
            "multipoint",
            "multilinestring",
            "multipolygon",
            "geometrycollection",
        ),
        MySqlType(GeometryType(), 2004),
    ),
}

_UNKNOWN: Final = MySqlType(String(), 12, is_known=False)

_NAME: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9_]*(?:\s+[A-Za-z]+)*)\s*")
_MODIFIERS: Final = re.compile(
    r" (?:unsigned|signed|zerofill|binary|ascii|unicode|character set|charset|collate|not|null"
    r"|default|auto_increment|comment)\b.*",
    re.DOTALL,
)
_ARGUMENTS: Final = re.compile(r"\(\s*(\d{1,9})\s*(?:,\s*(-?\d{1,9})\s*)?\)")
_MEMBERS: Final = re.compile(r"\(\s*+((?:'(?:[^']|'')*+'\s*+,\s*+)*+'(?:[^']|'')*+')?\s*+\)")
_MEMBER: Final = re.compile(r"'((?:[^']|'')*+)'")


def parse(text: str) -> MySqlType:
    """Parse a type text; a type that MySQL does not have is text.

    >>> parse("TINYINT(2) unsigned zerofill").kind
    Integer(bits=8, unsigned=True)
    >>> parse("enum('a','it''s')").kind
    Enum(members=('a', "it's"))
    """
    return _parse_cached(text) if len(text) <= _MAX_CACHED_LENGTH else _parse(text)


def _parse(text: str) -> MySqlType:
    match = _NAME.match(text)
    if match is None:
        return _UNKNOWN
    words = " ".join(match.group(1).lower().split())
    name = _MODIFIERS.sub("", words)
    name = _SYNONYMS.get(name, name)
    tail = text[match.end() :]
    if name in {"enum", "set"}:
        return _labelled(name, tail)
    arguments = _ARGUMENTS.match(tail)
    first = int(arguments.group(1)) if arguments else None
    second = int(arguments.group(2)) if arguments and arguments.group(2) else None
    if name in _INTEGERS:
        modifiers = f"{words} {tail.lower()}"
        # "If you specify ZEROFILL for a numeric column, MySQL automatically adds the UNSIGNED
        # attribute" https://dev.mysql.com/doc/refman/8.0/en/numeric-type-syntax.html
        return _integer(name, unsigned="unsigned" in modifiers or "zerofill" in modifiers)
    return _SIMPLE.get(name) or _parametrised(name, first, second)


_MAX_CACHED_LENGTH: Final = 10_000
"""Maximum length of a cached type text: an ENUM can have 65,535 members."""
_parse_cached = lru_cache(maxsize=4096)(_parse)


def _integer(name: str, *, unsigned: bool) -> MySqlType:
    bits, code, high_code = _INTEGERS[name]
    return MySqlType(Integer(bits, unsigned), code, high_code if unsigned else None)


def _labelled(name: str, tail: str) -> MySqlType:
    match = _MEMBERS.match(tail)
    members: tuple[str, ...] | None = None
    if match is not None:
        members = tuple(m.replace("''", "'") for m in _MEMBER.findall(match.group(1) or ""))
        if len(members) > _MOST_MEMBERS[name]:
            return _UNKNOWN
    if name == "enum":
        return MySqlType(Enum(members), 4)
    return MySqlType(Set(members), -7, null_code=2004)


def _parametrised(name: str, first: int | None, second: int | None) -> MySqlType:
    match name:
        case "serial":
            return _integer("bigint", unsigned=True)
        case "decimal":
            # a text without arguments was shortened, so the scale of the column is unknown
            return MySqlType(Decimal() if first is None else Decimal(first, second or 0), 3)
        case "float":
            # FLOAT(p) with p above 24 is a DOUBLE; FLOAT(m,d) is not
            wide = first is not None and second is None and first > 24
            return MySqlType(Float(64), 8) if wide else MySqlType(Float(32), 7)
        case "double":
            return MySqlType(Float(64), 8)
        case "bit":
            return MySqlType(Bits(first), -7)
        case "binary":
            return MySqlType(Bytes(), 2004, width=first)
        case "time":
            return MySqlType(Time(first), 92)
        case "datetime":
            return MySqlType(Timestamp(first), 93)
        case "timestamp":
            return MySqlType(InstantType(first), 93)
        case _:
            return _UNKNOWN


_NAMES: Final[dict[type[LogicalType], str]] = {
    # the widest type of each family: the logical type has no length
    String: "longtext",
    Bytes: "longblob",
    Date: "date",
    Year: "year",
    Json: "json",
}

TYPES: Final[frozenset[type[LogicalType]]] = frozenset(
    {*_NAMES, Integer, Decimal, Float, Bits, Time, Timestamp, InstantType, Enum, Set, GeometryType}
)
"""The logical types that MySQL has."""


def text_of(kind: LogicalType, source_type: str | None = None) -> str:
    """Return MySQL's type text: the source's own text if MySQL reads it as the same type.

    >>> text_of(Decimal(10, 2), "numeric(10,2)")
    'numeric(10,2)'
    >>> text_of(Timestamp(6), "timestamp without time zone")
    'datetime(6)'

    Raises:
        EncodeError: MySQL has no such type.
    """
    if source_type is not None and not source_type.endswith("[]"):
        parsed = parse(source_type)
        if parsed.is_known and parsed.kind == kind:
            return source_type
    return _written(kind)


def _written(kind: LogicalType) -> str:
    match kind:
        case Integer():
            name = {8: "tinyint", 16: "smallint", 32: "int", 64: "bigint"}[kind.bits]
            return f"{name} unsigned" if kind.unsigned else name
        case Decimal(scale=None):
            return "decimal"
        case Decimal():
            return f"decimal({kind.precision or _MAX_DECIMAL_PRECISION},{kind.scale})"
        case Float():
            return "float" if kind.bits == 32 else "double"
        case Bits():
            return "bit" if kind.length is None else f"bit({kind.length})"
        case Time():
            return "time" + _fraction(kind.precision)
        case Timestamp():
            return "datetime" + _fraction(kind.precision)
        case InstantType():
            return "timestamp" + _fraction(kind.precision)
        case Enum() | Set():
            name = "enum" if isinstance(kind, Enum) else "set"
            if kind.members is None:
                return name
            if len(kind.members) > _MOST_MEMBERS[name]:
                raise EncodeError(f"MySQL has no {name} of {len(kind.members)} members")
            return f"{name}({','.join(map(_quoted, kind.members))})"
        case GeometryType():
            return "point" if kind.kind == "point" else "geometry"
        case _:
            pass
    try:
        return _NAMES[type(kind)]
    except KeyError:
        raise EncodeError(f"MySQL has no type {type(kind).__name__}") from None


def _fraction(precision: int | None) -> str:
    return "" if precision is None else f"({min(precision, _MAX_FRACTION_DIGITS)})"


def _quoted(label: str) -> str:
    return "'" + label.replace("'", "''") + "'"

# SPDX-License-Identifier: Apache-2.0
"""``dataTypeNumber``: a table of numbers for each kind of source, used in both directions.

The numbers of MySQL are the codes of its protocol, those of Oracle its internal datatype codes,
those of PostgreSQL the OIDs of ``pg_type``. Producers built on ``dts-deliver-sdk`` write
``java.sql.Types``. The numbers of other sources are not published, and pass through.

The name of a number is the source type of its column (``varchar``). Where two numbers have one
name, the source type of the alternate one states its number (``timestamp#17``), as do unknown ones
(``#20001``).
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

import msgspec

from changelane import types as t
from changelane.schema import Column


class TypeNumber(msgspec.Struct, frozen=True):
    """One entry of a table.

    Attributes:
        type: The type of a column with this number.
        name: The type's name in its database.
        bytes_name: Its name where the same number has values of bytes.
        width: The bytes of an integer.
        synonyms: Other names in the database's catalogue.
        writes: Column types that get this number if their source type has none. Another type gets
            the first number of its own type.
        is_alternate: Another number has the same name.
    """

    type: t.LogicalType
    name: str
    bytes_name: str = ""
    width: int = 0
    synonyms: tuple[str, ...] = ()
    writes: tuple[t.LogicalType, ...] = ()
    is_alternate: bool = False


class Family(msgspec.Struct, frozen=True, dict=True):
    """The numbers of one kind of source.

    Attributes:
        numbers: The table.
        unknown: The number of a type that is not in the table.
    """

    name: str
    numbers: Mapping[int, TypeNumber]
    unknown: int = 1111


_SHAPES: Final = (
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geometrycollection",
)
_ALL_INTEGERS: Final = tuple(t.Integer(bits) for bits in (8, 16, 32, 64))

# No number states UNSIGNED, so the type of an integer has both ranges. A value of a BIGINT beyond
# its type has a type of its own.
_MYSQL_NUMBERS: Final = {
    0: TypeNumber(t.Decimal(), "decimal", is_alternate=True),
    1: TypeNumber(
        t.Integer(16), "tinyint", width=1, synonyms=("bool", "boolean"), writes=(t.Integer(8),)
    ),
    2: TypeNumber(t.Integer(32), "smallint", width=2, writes=(t.Integer(16),)),
    3: TypeNumber(t.Integer(64), "int", width=4, synonyms=("integer",), writes=(t.Integer(32),)),
    4: TypeNumber(t.Float(32), "float"),
    5: TypeNumber(t.Float(64), "double", synonyms=("real", "double precision")),
    6: TypeNumber(t.String(), "null"),
    7: TypeNumber(t.InstantType(), "timestamp"),
    8: TypeNumber(t.Integer(64), "bigint", width=8, writes=(t.Integer(64),)),
    9: TypeNumber(t.Integer(32), "mediumint", width=3),
    10: TypeNumber(t.Date(), "date"),
    11: TypeNumber(t.Time(), "time"),
    12: TypeNumber(t.Timestamp(), "datetime"),
    13: TypeNumber(t.Year(), "year"),
    14: TypeNumber(t.Date(), "date", is_alternate=True),
    15: TypeNumber(t.String(), "varchar", "varbinary", is_alternate=True),
    16: TypeNumber(t.Bits(), "bit"),
    17: TypeNumber(t.InstantType(), "timestamp", is_alternate=True),
    18: TypeNumber(t.Timestamp(), "datetime", is_alternate=True),
    19: TypeNumber(t.Time(), "time", is_alternate=True),
    245: TypeNumber(t.Json(), "json"),
    246: TypeNumber(t.Decimal(), "decimal", synonyms=("numeric", "dec", "fixed")),
    247: TypeNumber(t.Enum(), "enum"),
    248: TypeNumber(t.Set(), "set"),
    249: TypeNumber(t.String(), "tinytext", "tinyblob"),
    250: TypeNumber(t.String(), "mediumtext", "mediumblob"),
    251: TypeNumber(t.String(), "longtext", "longblob"),
    252: TypeNumber(t.String(), "text", "blob", writes=(t.Bytes(),)),
    253: TypeNumber(t.String(), "varchar", "varbinary", writes=(t.String(),)),
    254: TypeNumber(t.String(), "char", "binary"),
    255: TypeNumber(t.GeometryType(), "geometry", synonyms=_SHAPES),
}

# The codes of java.sql.Types, and four that dts-deliver-sdk adds.
_JDBC_NUMBERS: Final = {
    -16: TypeNumber(t.String(), "longnvarchar"),
    -15: TypeNumber(t.String(), "nchar"),
    -9: TypeNumber(t.String(), "nvarchar"),
    -8: TypeNumber(t.Text("rowid"), "rowid"),
    -7: TypeNumber(t.Boolean(), "bit"),
    -6: TypeNumber(t.Integer(16), "tinyint", width=1, writes=(t.Integer(8),)),
    -5: TypeNumber(t.Integer(64), "bigint", width=8, writes=(t.Integer(64),)),
    -4: TypeNumber(t.Bytes(), "longvarbinary"),
    -3: TypeNumber(t.Bytes(), "varbinary", writes=(t.Bytes(),)),
    -2: TypeNumber(t.Bytes(), "binary"),
    -1: TypeNumber(t.String(), "longvarchar"),
    1: TypeNumber(t.String(), "char"),
    2: TypeNumber(t.Decimal(), "numeric"),
    3: TypeNumber(t.Decimal(), "decimal"),
    4: TypeNumber(t.Integer(64), "integer", width=4, writes=(t.Integer(32),)),
    5: TypeNumber(t.Integer(32), "smallint", width=2, writes=(t.Integer(16),)),
    6: TypeNumber(t.Float(64), "float"),
    7: TypeNumber(t.Float(32), "real"),
    8: TypeNumber(t.Float(64), "double"),
    12: TypeNumber(t.String(), "varchar", writes=(t.String(),)),
    16: TypeNumber(t.Boolean(), "boolean", writes=(t.Boolean(),)),
    91: TypeNumber(t.Date(), "date"),
    92: TypeNumber(t.Time(), "time"),
    93: TypeNumber(t.Timestamp(), "timestamp"),
    2004: TypeNumber(t.Bytes(), "blob"),
    2005: TypeNumber(t.String(), "clob"),
    2009: TypeNumber(t.Xml(), "sqlxml"),
    2011: TypeNumber(t.String(), "nclob"),
    2013: TypeNumber(t.TimeTz(), "time with time zone"),
    2014: TypeNumber(t.InstantType(), "timestamp with time zone"),
    4096: TypeNumber(t.Json(), "json"),
    4097: TypeNumber(t.GeometryType(), "geometry"),
    4098: TypeNumber(t.Timestamp(), "datetime"),
    4099: TypeNumber(t.Year(), "year"),
}

_ORACLE_NUMBERS: Final = {
    1: TypeNumber(t.String(), "varchar2", synonyms=("nvarchar2",), writes=(t.String(),)),
    2: TypeNumber(
        t.Decimal(), "number", synonyms=("float", "numeric", "decimal"), writes=_ALL_INTEGERS
    ),
    8: TypeNumber(t.String(), "long"),
    12: TypeNumber(t.Timestamp(), "date"),
    23: TypeNumber(t.Bytes(), "raw"),
    24: TypeNumber(t.Bytes(), "long raw"),
    58: TypeNumber(t.Xml(), "xmltype"),
    69: TypeNumber(t.Text("rowid"), "rowid"),
    96: TypeNumber(t.String(), "char", synonyms=("nchar",)),
    100: TypeNumber(t.Float(32), "binary_float"),
    101: TypeNumber(t.Float(64), "binary_double"),
    112: TypeNumber(t.String(), "clob", synonyms=("nclob",)),
    113: TypeNumber(t.Bytes(), "blob", writes=(t.Bytes(),)),
    114: TypeNumber(t.Text("bfile"), "bfile"),
    180: TypeNumber(t.Timestamp(), "timestamp", writes=(t.Timestamp(),)),
    181: TypeNumber(t.InstantType(), "timestamp with time zone", writes=(t.InstantType(),)),
    182: TypeNumber(t.Interval(), "interval year to month"),
    183: TypeNumber(t.Interval("us"), "interval day to second"),
    208: TypeNumber(t.Text("urowid"), "urowid"),
    231: TypeNumber(t.InstantType(), "timestamp with local time zone"),
}

_POSTGRESQL_TEXTS: Final = {
    600: "point",
    601: "lseg",
    602: "path",
    603: "box",
    604: "polygon",
    628: "line",
    650: "cidr",
    718: "circle",
    790: "money",
    829: "macaddr",
    869: "inet",
    1186: "interval",
    2970: "txid_snapshot",
    3220: "pg_lsn",
    3614: "tsvector",
    3615: "tsquery",
}
_POSTGRESQL_NUMBERS: Final = {
    16: TypeNumber(t.Boolean(), "bool", synonyms=("boolean",)),
    17: TypeNumber(t.Bytes(), "bytea"),
    18: TypeNumber(t.String(), "char"),
    20: TypeNumber(t.Integer(64), "int8", width=8, synonyms=("bigint",)),
    21: TypeNumber(t.Integer(16), "int2", width=2, synonyms=("smallint",), writes=(t.Integer(8),)),
    23: TypeNumber(t.Integer(32), "int4", width=4, synonyms=("integer", "int")),
    25: TypeNumber(t.String(), "text", writes=(t.String(),)),
    114: TypeNumber(t.Json(), "json"),
    142: TypeNumber(t.Xml(), "xml"),
    700: TypeNumber(t.Float(32), "float4", synonyms=("real",)),
    701: TypeNumber(t.Float(64), "float8", synonyms=("double precision",)),
    1042: TypeNumber(t.String(), "bpchar", synonyms=("character",)),
    1043: TypeNumber(t.String(), "varchar", synonyms=("character varying",)),
    1082: TypeNumber(t.Date(), "date"),
    1083: TypeNumber(t.Time(), "time", synonyms=("time without time zone",)),
    1114: TypeNumber(t.Timestamp(), "timestamp", synonyms=("timestamp without time zone",)),
    1184: TypeNumber(t.InstantType(), "timestamptz", synonyms=("timestamp with time zone",)),
    1266: TypeNumber(t.TimeTz(), "timetz", synonyms=("time with time zone",)),
    1560: TypeNumber(t.Bits(), "bit"),
    1562: TypeNumber(t.Bits(), "varbit", synonyms=("bit varying",)),
    1700: TypeNumber(t.Decimal(), "numeric", synonyms=("decimal",)),
    2950: TypeNumber(t.Uuid(), "uuid"),
    3082: TypeNumber(t.Json(), "jsonb", is_alternate=True),  # as documented
    3802: TypeNumber(t.Json(), "jsonb", writes=(t.Json(),)),  # as it is
    **{number: TypeNumber(t.Text(name), name) for number, name in _POSTGRESQL_TEXTS.items()},
}

JDBC: Final = Family("jdbc", _JDBC_NUMBERS)
MYSQL: Final = Family(
    "mysql",
    # "negative or > 255": the codes of a producer built on dts-deliver-sdk
    _MYSQL_NUMBERS
    | {
        number: msgspec.structs.replace(entry, is_alternate=True, writes=())
        for number, entry in _JDBC_NUMBERS.items()
        if not 0 <= number <= 255
    },
)
ORACLE: Final = Family("oracle", _ORACLE_NUMBERS, unknown=29)
POSTGRESQL: Final = Family("postgresql", _POSTGRESQL_NUMBERS, unknown=705)
OTHER: Final = Family("other", {})
"""Sources whose numbers are not published."""

FAMILIES: Final[dict[str, Family]] = {
    "MySQL": MYSQL,
    "DRDS": MYSQL,
    "Oracle": ORACLE,
    "PostgreSQL": POSTGRESQL,
    "PPAS": POSTGRESQL,
    "OTHER": JDBC,
}
"""Source type -> its numbers; other sources have :data:`OTHER`."""

_MODIFIERS: Final = re.compile(
    r"(?<!\s)\s++(?:unsigned|zerofill|character set \S+|collate \S+)(?=\s|$)"
)
_CHARACTER_SET: Final = re.compile(r"\bcharacter set (\S+)")
_STATED: Final = re.compile(r"#(-?[0-9]{1,9})$")


def source_type(family: Family, number: int, *, is_bytes: bool = False) -> str:
    """Return the name of a number, for which :func:`number_of` returns the number again."""
    entry = family.numbers.get(number)
    if entry is None:
        return f"#{number}"
    name = (is_bytes and entry.bytes_name) or entry.name
    return f"{name}#{number}" if entry.is_alternate else name


def column_of(name: str, number: int | None, family: Family) -> Column:
    """Return the column of a number; text where the number is missing or unknown."""
    if number is None:
        return Column(name, t.String())
    entry = family.numbers.get(number)
    return Column(name, t.String() if entry is None else entry.type, source_type(family, number))


def stated_charset(column: Column) -> str | None:
    """Return the character set that a column's source type names."""
    match = _CHARACTER_SET.search((column.source_type or "").lower())
    return None if match is None else match[1]


def _without_arguments(text: str) -> str:
    """Return a type text without its parentheses; an unclosed one stays."""
    parts: list[str] = []
    at = 0
    # no regular expression: it would search for the end from each parenthesis that has none
    while (start := text.find("(", at)) >= 0 and (end := text.find(")", start)) >= 0:
        parts.append(text[at:start])
        at = end + 1
    return "".join(parts) + text[at:]


def number_of(family: Family, column: Column) -> int:
    """Return the number of a column: of its source type if that has one, else of its type.

    A source whose numbers are not published gets those of ``java.sql.Types``.
    """
    family = JDBC if family is OTHER else family
    text = _MODIFIERS.sub("", _without_arguments(column.source_type or "").lower()).strip()
    stated = _STATED.search(text)
    if stated is not None and -(1 << 31) <= int(stated[1]) < 1 << 31:
        return int(stated[1])
    names, synonyms, kinds = _indexes(family.name)
    number = synonyms[text] if text in synonyms else names.get(text)
    if number is not None and _fits(family.numbers[number], column.type):
        return number
    if isinstance(column.type, t.Text):
        return names.get(column.type.name, family.unknown)
    return kinds.get(_kind_of(column.type, widens=family is POSTGRESQL), family.unknown)


def _fits(number: TypeNumber, kind: t.LogicalType) -> bool:
    """Return whether a column with the name of a number may have the number."""
    match kind, number.type:
        case t.Bytes(), _ if number.bytes_name:
            return True
        case t.Interval(), t.Text():
            return True
        case t.Integer(bits), t.Integer(most_bits):
            return bool(number.width * 8 >= bits or most_bits >= bits)
        case _:
            return type(number.type) is type(kind)


Kind = tuple[type[t.LogicalType], int]
"""A type's class, and its bits where they matter."""


def _kind_of(kind: t.LogicalType, *, widens: bool = False) -> Kind:
    match kind:
        case t.Integer() if widens and kind.unsigned:
            return t.Integer, min(2 * kind.bits, 64)
        case t.Integer() | t.Float():
            return type(kind), kind.bits
        case t.Interval():
            return type(kind), 0 if kind.unit else 1
        case _:
            return type(kind), 0


@cache
def _indexes(name: str) -> tuple[dict[str, int], dict[str, int], dict[Kind, int]]:
    """Return the numbers of a family by name, by synonym and by kind of type."""
    family = {member.name: member for member in (MYSQL, ORACLE, POSTGRESQL, JDBC)}[name]
    names: dict[str, int] = {}
    synonyms: dict[str, int] = {}
    kinds: dict[Kind, int] = {}
    for number, entry in family.numbers.items():
        kinds |= dict.fromkeys(map(_kind_of, entry.writes), number)
    for number, entry in sorted(family.numbers.items(), key=lambda item: item[1].is_alternate):
        kinds.setdefault(_kind_of(entry.type), number)
        if not entry.is_alternate:
            names.setdefault(entry.name, number)
            names.setdefault(entry.bytes_name or entry.name, number)
            synonyms |= dict.fromkeys(entry.synonyms, number)
    return names, synonyms, kinds

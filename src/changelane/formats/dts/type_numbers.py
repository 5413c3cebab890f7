# SPDX-License-Identifier: Apache-2.0
"""``dataTypeNumber``: what the numbers mean in each kind of source, and which one a column gets.

MySQL's are the codes of its protocol, Oracle's its internal datatype codes, PostgreSQL's the OIDs
of ``pg_type``; producers built on ``dts-deliver-sdk`` write ``java.sql.Types``. Those of other
sources are not published: they are passed through.

The name of a number is the source type of its column (``varchar``). Where more than one number has
a name, the others say which one they are (``timestamp#17``), as do unknown ones (``#20001``).
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

import msgspec

from changelane.schema import Column
from changelane.types import (
    Bits,
    Boolean,
    Bytes,
    Date,
    Decimal,
    Enum,
    Float,
    GeometryType,
    InstantType,
    Integer,
    Interval,
    Json,
    LogicalType,
    Set,
    String,
    Text,
    Time,
    Timestamp,
    TimeTz,
    Uuid,
    Xml,
    Year,
)

_STRING: Final = String()
_BYTES: Final = Bytes()


class Number(msgspec.Struct, frozen=True):
    """What one number says.

    Attributes:
        kind: The column's type, as far as the number tells; a NULL has it.
        name: The type's name in its database.
        bytes_name: The name where the same number stands for bytes.
        width: The bytes of an integer.
    """

    kind: LogicalType
    name: str
    bytes_name: str = ""
    width: int = 0


class Family(msgspec.Struct, frozen=True, dict=True):
    """The numbers of one kind of source.

    Attributes:
        numbers: What each number says.
        alternates: Numbers whose name belongs to another one.
        unknown: What is written for a type without a number.
        synonyms: Other names of types, as the databases' own catalogues spell them.
    """

    name: str
    numbers: Mapping[int, Number]
    alternates: frozenset[int] = frozenset()
    unknown: int = 1111
    synonyms: Mapping[str, str] = {}


# Whether a column is UNSIGNED is not told: the type holds both ranges. Only a value of a BIGINT
# can be beyond its type, and then it says so itself.
_MYSQL_NUMBERS: Final = {
    0: Number(Decimal(), "decimal"),
    1: Number(Integer(16), "tinyint", width=1),
    2: Number(Integer(32), "smallint", width=2),
    3: Number(Integer(64), "int", width=4),
    4: Number(Float(32), "float"),
    5: Number(Float(64), "double"),
    6: Number(_STRING, "null"),
    7: Number(InstantType(), "timestamp"),
    8: Number(Integer(64), "bigint", width=8),
    9: Number(Integer(32), "mediumint", width=3),
    10: Number(Date(), "date"),
    11: Number(Time(), "time"),
    12: Number(Timestamp(), "datetime"),
    13: Number(Year(), "year"),
    14: Number(Date(), "date"),
    15: Number(_STRING, "varchar", "varbinary"),
    16: Number(Bits(), "bit"),
    17: Number(InstantType(), "timestamp"),
    18: Number(Timestamp(), "datetime"),
    19: Number(Time(), "time"),
    245: Number(Json(), "json"),
    246: Number(Decimal(), "decimal"),
    247: Number(Enum(), "enum"),
    248: Number(Set(), "set"),
    249: Number(_STRING, "tinytext", "tinyblob"),
    250: Number(_STRING, "mediumtext", "mediumblob"),
    251: Number(_STRING, "longtext", "longblob"),
    252: Number(_STRING, "text", "blob"),
    253: Number(_STRING, "varchar", "varbinary"),
    254: Number(_STRING, "char", "binary"),
    255: Number(GeometryType(), "geometry"),
}

# The codes of java.sql.Types, and four that dts-deliver-sdk adds.
_JDBC_NUMBERS: Final = {
    -16: Number(_STRING, "longnvarchar"),
    -15: Number(_STRING, "nchar"),
    -9: Number(_STRING, "nvarchar"),
    -8: Number(Text("rowid"), "rowid"),
    -7: Number(Boolean(), "bit"),
    -6: Number(Integer(16), "tinyint", width=1),
    -5: Number(Integer(64), "bigint", width=8),
    -4: Number(_BYTES, "longvarbinary"),
    -3: Number(_BYTES, "varbinary"),
    -2: Number(_BYTES, "binary"),
    -1: Number(_STRING, "longvarchar"),
    1: Number(_STRING, "char"),
    2: Number(Decimal(), "numeric"),
    3: Number(Decimal(), "decimal"),
    4: Number(Integer(64), "integer", width=4),
    5: Number(Integer(32), "smallint", width=2),
    6: Number(Float(64), "float"),
    7: Number(Float(32), "real"),
    8: Number(Float(64), "double"),
    12: Number(_STRING, "varchar"),
    16: Number(Boolean(), "boolean"),
    91: Number(Date(), "date"),
    92: Number(Time(), "time"),
    93: Number(Timestamp(), "timestamp"),
    2004: Number(_BYTES, "blob"),
    2005: Number(_STRING, "clob"),
    2009: Number(Xml(), "sqlxml"),
    2011: Number(_STRING, "nclob"),
    2013: Number(TimeTz(), "time with time zone"),
    2014: Number(InstantType(), "timestamp with time zone"),
    4096: Number(Json(), "json"),
    4097: Number(GeometryType(), "geometry"),
    4098: Number(Timestamp(), "datetime"),
    4099: Number(Year(), "year"),
}

_ORACLE_NUMBERS: Final = {
    1: Number(_STRING, "varchar2"),
    2: Number(Decimal(), "number"),
    8: Number(_STRING, "long"),
    12: Number(Timestamp(), "date"),
    23: Number(_BYTES, "raw"),
    24: Number(_BYTES, "long raw"),
    58: Number(Xml(), "xmltype"),
    69: Number(Text("rowid"), "rowid"),
    96: Number(_STRING, "char"),
    100: Number(Float(32), "binary_float"),
    101: Number(Float(64), "binary_double"),
    112: Number(_STRING, "clob"),
    113: Number(_BYTES, "blob"),
    114: Number(Text("bfile"), "bfile"),
    180: Number(Timestamp(), "timestamp"),
    181: Number(InstantType(), "timestamp with time zone"),
    182: Number(Interval(), "interval year to month"),
    183: Number(Interval("us"), "interval day to second"),
    208: Number(Text("urowid"), "urowid"),
    231: Number(InstantType(), "timestamp with local time zone"),
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
    16: Number(Boolean(), "bool"),
    17: Number(_BYTES, "bytea"),
    18: Number(_STRING, "char"),
    20: Number(Integer(64), "int8", width=8),
    21: Number(Integer(16), "int2", width=2),
    23: Number(Integer(32), "int4", width=4),
    25: Number(_STRING, "text"),
    114: Number(Json(), "json"),
    142: Number(Xml(), "xml"),
    700: Number(Float(32), "float4"),
    701: Number(Float(64), "float8"),
    1042: Number(_STRING, "bpchar"),
    1043: Number(_STRING, "varchar"),
    1082: Number(Date(), "date"),
    1083: Number(Time(), "time"),
    1114: Number(Timestamp(), "timestamp"),
    1184: Number(InstantType(), "timestamptz"),
    1266: Number(TimeTz(), "timetz"),
    1560: Number(Bits(), "bit"),
    1562: Number(Bits(), "varbit"),
    1700: Number(Decimal(), "numeric"),
    2950: Number(Uuid(), "uuid"),
    3082: Number(Json(), "jsonb"),  # as documented
    3802: Number(Json(), "jsonb"),  # as it is
    **{number: Number(Text(name), name) for number, name in _POSTGRESQL_TEXTS.items()},
}

JDBC: Final = Family("jdbc", _JDBC_NUMBERS)
MYSQL: Final = Family(
    "mysql",
    # "negative or > 255": the codes of a producer built on dts-deliver-sdk
    _MYSQL_NUMBERS | {n: of for n, of in _JDBC_NUMBERS.items() if not 0 <= n <= 255},
    alternates=frozenset({0, 14, 15, 17, 18, 19, *(n for n in _JDBC_NUMBERS if not 0 <= n <= 255)}),
    synonyms={
        "integer": "int",
        "bool": "tinyint",
        "boolean": "tinyint",
        "numeric": "decimal",
        "dec": "decimal",
        "fixed": "decimal",
        "real": "double",
        "double precision": "double",
        **dict.fromkeys(
            (
                "point",
                "linestring",
                "polygon",
                "multipoint",
                "multilinestring",
                "multipolygon",
                "geometrycollection",
            ),
            "geometry",
        ),
    },
)
ORACLE: Final = Family(
    "oracle",
    _ORACLE_NUMBERS,
    unknown=29,
    synonyms={
        "nvarchar2": "varchar2",
        "nchar": "char",
        "nclob": "clob",
        "float": "number",
        "numeric": "number",
        "decimal": "number",
    },
)
POSTGRESQL: Final = Family(
    "postgresql",
    _POSTGRESQL_NUMBERS,
    alternates=frozenset({3082}),
    unknown=705,
    synonyms={
        "boolean": "bool",
        "bigint": "int8",
        "smallint": "int2",
        "integer": "int4",
        "int": "int4",
        "real": "float4",
        "double precision": "float8",
        "decimal": "numeric",
        "character": "bpchar",
        "character varying": "varchar",
        "timestamp without time zone": "timestamp",
        "timestamp with time zone": "timestamptz",
        "time without time zone": "time",
        "time with time zone": "timetz",
        "bit varying": "varbit",
    },
)
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
"""Source type -> its numbers; all others are :data:`OTHER`."""

_MODIFIERS: Final = re.compile(
    r"(?<!\s)\s++(?:unsigned|zerofill|character set \S+|collate \S+)(?=\s|$)"
)
_CHARACTER_SET: Final = re.compile(r"\bcharacter set (\S+)")
_STATED: Final = re.compile(r"#(-?[0-9]{1,9})$")


def source_type(family: Family, number: int, *, is_bytes: bool = False) -> str:
    """Return the name of a number, from which :func:`number_of` finds it again."""
    family_type = family.numbers.get(number)
    if family_type is None:
        return f"#{number}"
    name = (is_bytes and family_type.bytes_name) or family_type.name
    return f"{name}#{number}" if number in family.alternates else name


def stated_charset(column: Column) -> str | None:
    """Return the character set that a column's source type names."""
    match = _CHARACTER_SET.search((column.source_type or "").lower())
    return None if match is None else match[1]


def _without_arguments(text: str) -> str:
    """Return a type text without what stands in parentheses; one that is not closed stays."""
    parts: list[str] = []
    at = 0
    # no regular expression: it would look for the end from each parenthesis that has none
    while (start := text.find("(", at)) >= 0 and (end := text.find(")", start)) >= 0:
        parts.append(text[at:start])
        at = end + 1
    return "".join(parts) + text[at:]


def number_of(family: Family, column: Column) -> int:
    """Return the number for a column: of its source type where that is one of the family's.

    A source whose numbers are not published gets those of ``java.sql.Types``.
    """
    family = JDBC if family is OTHER else family
    text = _MODIFIERS.sub("", _without_arguments(column.source_type or "").lower()).strip()
    stated = _STATED.search(text)
    if stated is not None and -(1 << 31) <= int(stated[1]) < 1 << 31:
        return int(stated[1])
    names, kinds = _indexes(family.name)
    number = names.get(family.synonyms.get(text, text))
    if number is not None and _fits(family.numbers[number], column.type):
        return number
    if isinstance(column.type, Text):
        number = names.get(column.type.name)
        return family.unknown if number is None else number
    return kinds.get(_kind_of(column.type, widens=family is POSTGRESQL), family.unknown)


def _fits(number: Number, kind: LogicalType) -> bool:
    """Say whether a column that has a number's name also has its type."""
    if isinstance(kind, Bytes) and number.bytes_name:
        return True
    if isinstance(kind, Interval) and isinstance(number.kind, Text):
        return True
    if isinstance(kind, Integer) and isinstance(number.kind, Integer):
        return bool(number.width * 8 >= kind.bits or number.kind.bits >= kind.bits)
    return type(number.kind) is type(kind)


Kind = tuple[type[LogicalType], int]
"""A type's class, with its bits where they matter."""


def _kind_of(kind: LogicalType, *, widens: bool = False) -> Kind:
    match kind:
        case Integer() if widens and kind.unsigned:
            return Integer, min(2 * kind.bits, 64)
        case Integer() | Float():
            return type(kind), kind.bits
        case Interval():
            return type(kind), 0 if kind.unit else 1
        case _:
            return type(kind), 0


_PREFERRED: Final[dict[str, dict[Kind, int]]] = {
    "mysql": {
        (Bytes, 0): 252,
        (Integer, 8): 1,
        (Integer, 16): 2,
        (Integer, 32): 3,
        (Integer, 64): 8,
        (String, 0): 253,
    },
    "postgresql": {(Integer, 8): 21, (String, 0): 25, (Json, 0): 3802},
    "oracle": {
        (Integer, 8): 2,
        (Integer, 16): 2,
        (Integer, 32): 2,
        (Integer, 64): 2,
        (String, 0): 1,
        (Bytes, 0): 113,
        (Timestamp, 0): 180,
        (InstantType, 0): 181,
    },
    "jdbc": {
        (Boolean, 0): 16,
        (Integer, 8): -6,
        (Integer, 16): 5,
        (Integer, 32): 4,
        (Integer, 64): -5,
        (String, 0): 12,
        (Bytes, 0): -3,
    },
}


@cache
def _indexes(name: str) -> tuple[dict[str, int], dict[Kind, int]]:
    family = {member.name: member for member in (MYSQL, ORACLE, POSTGRESQL, JDBC)}[name]
    names: dict[str, int] = {}
    kinds: dict[Kind, int] = dict(_PREFERRED[name])
    for number, of in sorted(family.numbers.items(), key=lambda it: it[0] in family.alternates):
        if number not in family.alternates:
            names.setdefault(of.name, number)
            if of.bytes_name:
                names.setdefault(of.bytes_name, number)
        kinds.setdefault(_kind_of(of.kind), number)
    return names, kinds

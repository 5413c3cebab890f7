# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL's built-in types by their object identifiers, and their modifiers.

Source: ``pg_type.dat`` of PostgreSQL 15; the numbers are fixed. ``format_type`` gives the texts.
"""

import re
from typing import Final

_BASE_TYPES: Final = (
    ("boolean", 16, 1000),
    ("bytea", 17, 1001),
    ('"char"', 18, 1002),
    ("name", 19, 1003),
    ("bigint", 20, 1016),
    ("smallint", 21, 1005),
    ("integer", 23, 1007),
    ("text", 25, 1009),
    ("oid", 26, 1028),
    ("tid", 27, 1010),
    ("xid", 28, 1011),
    ("json", 114, 199),
    ("xml", 142, 143),
    ("point", 600, 1017),
    ("lseg", 601, 1018),
    ("path", 602, 1019),
    ("box", 603, 1020),
    ("polygon", 604, 1027),
    ("line", 628, 629),
    ("cidr", 650, 651),
    ("real", 700, 1021),
    ("double precision", 701, 1022),
    ("circle", 718, 719),
    ("macaddr8", 774, 775),
    ("money", 790, 791),
    ("macaddr", 829, 1040),
    ("inet", 869, 1041),
    ("character", 1042, 1014),
    ("character varying", 1043, 1015),
    ("date", 1082, 1182),
    ("time without time zone", 1083, 1183),
    ("timestamp without time zone", 1114, 1115),
    ("timestamp with time zone", 1184, 1185),
    ("interval", 1186, 1187),
    ("time with time zone", 1266, 1270),
    ("bit", 1560, 1561),
    ("bit varying", 1562, 1563),
    ("numeric", 1700, 1231),
    ("uuid", 2950, 2951),
    ("pg_lsn", 3220, 3221),
    ("tsvector", 3614, 3643),
    ("tsquery", 3615, 3645),
    ("jsonb", 3802, 3807),
    ("int4range", 3904, 3905),
    ("numrange", 3906, 3907),
    ("tsrange", 3908, 3909),
    ("tstzrange", 3910, 3911),
    ("daterange", 3912, 3913),
    ("int8range", 3926, 3927),
    ("jsonpath", 4072, 4073),
    ("int4multirange", 4451, 6150),
    ("nummultirange", 4532, 6151),
    ("tsmultirange", 4533, 6152),
    ("tstzmultirange", 4534, 6153),
    ("datemultirange", 4535, 6155),
    ("int8multirange", 4536, 6157),
    ("xid8", 5069, 271),
)
"""Name, number of the type, number of its array type."""

_NAMES: Final = {oid: (name, "") for name, oid, _ in _BASE_TYPES} | {
    array_oid: (name, "[]") for name, _, array_oid in _BASE_TYPES
}
_NUMBERS: Final = {name + dimension: oid for oid, (name, dimension) in _NAMES.items()}
_SYNONYMS: Final = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "int": "integer",
    "float4": "real",
    "float8": "double precision",
    "decimal": "numeric",
    "char": "character",
    "varchar": "character varying",
    "varbit": "bit varying",
    "time": "time without time zone",
    "timetz": "time with time zone",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
}
_TYPE: Final = re.compile(
    r"([a-z0-9_\" ]+?) ?(?:\(([0-9]{1,8})(?:, ?(-?[0-9]{1,4}))?\))?"
    r"( with(?:out)? time zone)?((?:\[\])?)"
)
_HEADER: Final = 4
"""Modifiers of variable length include four bytes of a header."""
NO_MODIFIER: Final = -1
_LENGTHS: Final = frozenset({"character", "character varying"})
_BITS: Final = frozenset({"bit", "bit varying"})
_TIMES: Final = ("time ", "timestamp ")
_MOST: Final = 1 << 31


def type_text_of(oid: int, modifier: int) -> str | None:
    """Return the text of a built-in type as ``format_type`` writes it; ``None`` = not built in.

    >>> type_text_of(1700, ((10 << 16) | 2) + 4)
    'numeric(10,2)'
    """
    found = _NAMES.get(oid)
    if found is None:
        return None
    name, dimension = found
    if modifier < 0:
        return ("bpchar" if name == "character" else name) + dimension
    if name in _LENGTHS:
        name = f"{name}({modifier - _HEADER})"
    elif name in _BITS:
        name = f"{name}({modifier})"
    elif name == "numeric":
        packed = modifier - _HEADER
        scale = ((packed & 0x7FF) ^ 1024) - 1024
        name = f"numeric({packed >> 16 & 0xFFFF},{scale})"
    elif name.startswith(_TIMES):
        first, _, zone = name.partition(" ")
        name = f"{first}({modifier}) {zone}"
    return name + dimension


def number_of(type_text: str) -> tuple[int, int] | None:
    """Return the number and the modifier of a built-in type; ``None`` = not built in.

    >>> number_of("timestamp(3) without time zone")
    (1114, 3)
    """
    match = _TYPE.fullmatch(type_text)
    if match is None:
        return None
    name, first, second, zone, dimension = match.groups()
    name = _SYNONYMS.get(name, name) if zone is None else name + zone
    name = "character" if name == "bpchar" else name
    oid = _NUMBERS.get(name + dimension)
    if oid is None:
        return None
    if first is None:
        return oid, NO_MODIFIER
    number = int(first)
    if name in _LENGTHS:
        modifier = number + _HEADER
    elif name in _BITS or name.startswith(_TIMES):
        modifier = number
    elif name == "numeric":
        modifier = (number << 16 | int(second or 0) & 0x7FF) + _HEADER
    else:
        modifier = NO_MODIFIER
    return (oid, modifier) if modifier < _MOST else None

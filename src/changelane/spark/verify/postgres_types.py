# SPDX-License-Identifier: Apache-2.0
"""The types of PostgreSQL, and their canonical texts as SQL of PostgreSQL and of Spark. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

from changelane.spark.rows.decimal_texts import MAX_PRECISION
from changelane.spark.verify.canonical_text import (
    DECIMAL,
    INTEGERS,
    CanonicalText,
    KeyText,
    RangeTexts,
    days_text,
    decimal_key_text,
    field_of,
    microseconds_text,
    scale_of,
)

_ARRAY: Final = "array<"
_UUID: Final = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"


class PostgresType(msgspec.Struct, frozen=True):
    """A type of PostgreSQL, below its domains.

    Attributes:
        name: The name in ``pg_type``, such as ``int4``.
        modifier: ``atttypmod``; -1 = none.
        is_enum: An enumeration.
        element: The type of the elements of an array.
        has_trim_scale: The server has the function ``trim_scale`` (PostgreSQL 13).
        is_nullable: The column may contain NULL.
    """

    name: str
    modifier: int = -1
    is_enum: bool = False
    element: "PostgresType | None" = None
    has_trim_scale: bool = True
    is_nullable: bool = False

    @property
    def shown(self) -> str:
        """The type for people."""
        return self.name if self.element is None else f"{self.element.name}[]"

    @property
    def scale(self) -> int | None:
        """The scale of a ``numeric``; ``None`` = without a declaration.

        The modifier has the scale in 11 bits with a sign (``numeric.c``, ``numeric_typmod_scale``).
        """
        if self.modifier < 4:
            return None
        return (((self.modifier - 4) & 0x7FF) ^ 1024) - 1024

    @property
    def key_cast(self) -> str | None:
        """The SQL of a value whose rows an index finds."""
        return _KEY_CASTS.get(self.name)

    @property
    def log_type(self) -> str | None:
        """Spark's type of a column with the values of the log."""
        if self.element is not None:
            element_type = self.element.log_type
            return None if element_type is None else f"{_ARRAY}{element_type}>"
        match self.name:
            case "numeric":
                precision, scale = (self.modifier - 4) >> 16 & 0xFFFF, self.scale
                is_decimal = scale is not None and 0 <= scale <= precision <= MAX_PRECISION
                return f"{DECIMAL}{precision},{scale})" if is_decimal else "string"
            case "bit" if self.modifier == 1:
                return "boolean"
            case "bit" | "time":
                return "string"
        return "string" if self.is_enum else _LOG_TYPES.get(self.name)

    def text(self, lake: str) -> CanonicalText | None:
        """Return the canonical text of a column."""
        if self.element is not None:
            return _array_text(self.element, lake)
        match self.name:
            case _ if self.is_enum:
                return _VERBATIM if lake == "string" else None
            case "numeric":
                return _numeric_text(self, lake)
            case "bit" if self.modifier == 1:
                is_boolean = lake == "boolean"
                return CanonicalText("({}::text = '1')::text", _CAST.lake) if is_boolean else None
            case "bit":
                return CanonicalText("{}::text", "{}") if lake == "string" else None
            case "time":
                return _time_text(self.modifier, lake)
        types, text = _TEXTS.get(self.name, (frozenset(), _VERBATIM))
        return text if lake in types else None

    def key_text(self, lake: str) -> KeyText | None:
        """Return the function for the values of a key."""
        if self.element is not None or self.text(lake) is None:
            return None
        if self.name == "numeric" and lake.startswith(DECIMAL):
            return decimal_key_text(lake)
        return str if self.is_enum else _KEY_TEXTS.get(self.name)

    def range_texts(self, lake: str) -> RangeTexts | None:
        """Return what orders a key column; texts by their bytes, as the collation ``C`` does."""
        if self.is_nullable:  # a row with NULL is neither below nor above another one
            return None
        if self.name == "numeric" and lake.startswith(DECIMAL) and self.scale is not None:
            return RangeTexts("{}", lake)
        return _RANGES.get(self.name)


_CAST: Final = CanonicalText("{}::text", "CAST({} AS STRING)")
# the text of the type's output function, as the log has it: a cast of char(n) would trim blanks,
# and a cast of inet would add the length of the mask
_VERBATIM: Final = CanonicalText("concat({})", "{}")
_BITS: Final = "('x' || encode({send}({{}}), 'hex'))::bit({size})::{kind}"
_FLOAT: Final = "CASE WHEN {{}} = 'NaN' THEN '{nan}' ELSE ({bits})::text END"
_DAYS: Final = _BITS.format(send="date_send", size=32, kind="int")


def _microseconds(send: str, lake: str) -> CanonicalText:
    """Return microseconds since 1970; PostgreSQL counts from 2000. As decimals, none overflows."""
    bits = _BITS.format(send=send, size=64, kind="bigint")
    return CanonicalText(f"({bits} + 946684800000000::numeric)::text", lake)


def _float(send: str, size: int, kind: str, nan: int, java: str) -> CanonicalText:
    """Return the bits of IEEE 754: they separate -0.0 from 0.0; all NaN are one value."""
    bits = _BITS.format(send=send, size=size, kind=kind)
    return CanonicalText(_FLOAT.format(nan=nan, bits=bits), f"java_method({java}, {{}})")


_TEXTS: Final[Mapping[str, tuple[frozenset[str], CanonicalText]]] = {
    **dict.fromkeys(("int2", "int4", "int8", "oid"), (INTEGERS, _CAST)),
    "bool": (frozenset({"boolean"}), _CAST),
    "float4": (
        frozenset({"float"}),
        _float("float4send", 32, "int", 0x7FC00000, "'java.lang.Float', 'floatToIntBits'"),
    ),
    "float8": (
        frozenset({"double"}),
        _float("float8send", 64, "bigint", 0x7FF8 << 48, "'java.lang.Double', 'doubleToLongBits'"),
    ),
    **dict.fromkeys(
        (
            *("text", "varchar", "bpchar", "name", "citext", "json", "jsonb", "xml", "uuid"),
            *("inet", "cidr", "macaddr"),
        ),
        (frozenset({"string"}), _VERBATIM),
    ),
    "bytea": (
        frozenset({"binary"}),
        CanonicalText("encode({}, 'hex')", "lower(hex({}))"),
    ),
    "date": (
        frozenset({"date"}),
        CanonicalText(f"({_DAYS} + 10957::bigint)::text", "CAST(unix_date({}) AS STRING)"),
    ),
    "timestamp": (
        frozenset({"timestamp_ntz"}),
        # the session is in UTC
        _microseconds("timestamp_send", "CAST(unix_micros(CAST({} AS TIMESTAMP)) AS STRING)"),
    ),
    "timestamptz": (
        frozenset({"timestamp"}),
        _microseconds("timestamptz_send", "CAST(unix_micros({}) AS STRING)"),
    ),
}
"""Type of PostgreSQL -> the types of Spark that it is compared with, and the text."""

_LOG_TYPES: Final[Mapping[str, str]] = {
    **{name: kind for name, (types, _) in _TEXTS.items() for kind in types},
    "int2": "smallint",
    "int4": "int",
    "int8": "bigint",
    "oid": "bigint",
}


def _numeric_text(numeric: PostgresType, lake: str) -> CanonicalText | None:
    scale = numeric.scale
    if lake.startswith(DECIMAL) and scale is not None:
        lake_scale = scale_of(lake)
        if 0 <= scale <= lake_scale:
            return CanonicalText(f"round({{}}, {lake_scale})::text", _CAST.lake)
    elif lake == "string" and scale is not None and scale >= 0:
        return CanonicalText(_scientific("{}::text", f"0E-{scale}" if scale > 6 else ""), "{}")
    elif lake == "string" and scale is None and numeric.has_trim_scale:
        return CanonicalText(_scientific("trim_scale({})::text"), "{}")
    return None


def _scientific(plain: str, zero: str = "") -> str:
    """Return a number as Python writes decimals: below 10^-6 in the form ``1.5E-7``.

    Args:
        plain: The SQL of the number without exponent.
        zero: The text of zero, if it differs.
    """
    digits = f"substring({plain} FROM '[1-9][0-9]*$')"
    exponent = f"(length(substring({plain} FROM '[.](0*)')) + 1)::text"
    of_zero = f"WHEN {{}} = 0 THEN '{zero}' " if zero else ""
    return (
        f"CASE {of_zero}WHEN {{}} <> 0 AND abs({{}}) < 0.000001 THEN "
        f"left({plain}, CASE WHEN {{}} < 0 THEN 1 ELSE 0 END) || left({digits}, 1) || "
        f"CASE WHEN length({digits}) > 1 THEN '.' || substr({digits}, 2) ELSE '' END || "
        f"'E-' || {exponent} ELSE {plain} END"
    )


def _time_text(precision: int, lake: str) -> CanonicalText | None:
    """Return the text of a ``time``, which Debezium sends in milliseconds or microseconds."""
    if lake != "string":
        return None
    length = 12 if 0 <= precision <= 3 else 15
    return CanonicalText(f"left(to_char({{}}, 'HH24:MI:SS.US'), {length})", "{}")


def _array_text(element: PostgresType, lake: str) -> CanonicalText | None:
    """Return the text of an array: the number of elements and of dimensions, then the elements."""
    if not lake.startswith(_ARRAY):
        return None
    inner = element.text(lake.removeprefix(_ARRAY).removesuffix(">"))
    if inner is None:
        return None
    source_field = field_of("u.e", inner.source, "text")
    lake_field = field_of("e", inner.lake, "STRING")
    return CanonicalText(
        f"cardinality({{}}) || '/' || coalesce(array_ndims({{}}), 1) || '/' || coalesce(("
        f"SELECT string_agg({source_field}, '' ORDER BY u.n) "
        "FROM unnest({}) WITH ORDINALITY AS u (e, n)), '')",
        f"CAST(size({{}}) AS STRING) || '/1/' || concat_ws('', transform({{}}, e -> {lake_field}))",
    )


# -- keys

_KEY_TEXTS: Final[Mapping[str, KeyText]] = {
    **dict.fromkeys(("int2", "int4", "int8", "oid"), str),
    **dict.fromkeys(("text", "varchar", "bpchar", "uuid"), str),
    "bool": lambda value: "true" if value else "false",
    "bytea": lambda value: str(value.hex()),
    "date": days_text,
    **dict.fromkeys(("timestamp", "timestamptz"), microseconds_text),
}
_KEY_CASTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("int2", "int4", "int8"), "{}::bigint"),
    **dict.fromkeys(("text", "varchar"), "{}"),
    "numeric": "{}::numeric",
    # a key of the lake may be no UUID
    "uuid": f"CASE WHEN {{}} ~ '{_UUID}' THEN {{}}::uuid END",
}
# a literal without a type takes that of its column, so that the index of the key applies
_RANGES: Final[Mapping[str, RangeTexts]] = {
    **dict.fromkeys(("int2", "int4", "int8"), RangeTexts("{}", "bigint")),
    "uuid": RangeTexts("{}", "string"),
    **dict.fromkeys(("text", "varchar"), RangeTexts('{} COLLATE "C"', "string")),
}

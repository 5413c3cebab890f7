# SPDX-License-Identifier: Apache-2.0
"""The canonical text of a value, as SQL of PostgreSQL and of Spark. Pure.

Equal values have equal texts, and different values different ones. A pair of types without such a
text is not compared: the report names the column.
"""

import datetime as dt
import decimal
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from changelane.types import Value

_DECIMAL: Final = "decimal("
_ARRAY: Final = "array<"
_INTEGERS: Final = frozenset({"tinyint", "smallint", "int", "bigint"})
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
TRIM_SCALE_VERSION: Final = 130000
"""The first version of PostgreSQL with ``trim_scale``."""


class SourceType(msgspec.Struct, frozen=True):
    """A type of PostgreSQL, below its domains.

    Attributes:
        name: The name in ``pg_type``, such as ``int4``.
        modifier: ``atttypmod``; -1 = none.
        is_enum: An enumeration.
        element: The type of the elements of an array.
    """

    name: str
    modifier: int = -1
    is_enum: bool = False
    element: "SourceType | None" = None

    @property
    def scale(self) -> int | None:
        """The scale of a ``numeric``; ``None`` = without a declaration.

        The modifier has the scale in 11 bits with a sign (``numeric.c``, ``numeric_typmod_scale``).
        """
        if self.modifier < 4:
            return None
        return (((self.modifier - 4) & 0x7FF) ^ 1024) - 1024


class CanonicalText(NamedTuple):
    """The canonical text of a column, as SQL with ``{}`` in place of the column.

    Attributes:
        source: The SQL of PostgreSQL.
        lake: The SQL of Spark.
    """

    source: str
    lake: str


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
    **dict.fromkeys(("int2", "int4", "int8", "oid"), (_INTEGERS, _CAST)),
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


def canonical_text(
    source: SourceType, lake: str, *, version: int = TRIM_SCALE_VERSION
) -> CanonicalText | None:
    """Return the canonical text of a column; ``None`` = the types cannot be compared exactly.

    Args:
        source: The type of the column at the source.
        lake: Spark's type of the column of the lake, such as ``array<int>``.
        version: The version of the server, as a number of six digits.
    """
    if source.element is not None:
        return _array_text(source.element, lake, version)
    match source.name:
        case _ if source.is_enum:
            return _VERBATIM if lake == "string" else None
        case "numeric":
            return _numeric_text(source.scale, lake, version)
        case "bit" if source.modifier == 1:
            is_boolean = lake == "boolean"
            return CanonicalText("({}::text = '1')::text", _CAST.lake) if is_boolean else None
        case "bit":
            return CanonicalText("{}::text", "{}") if lake == "string" else None
        case "time":
            return _time_text(source.modifier, lake)
    types, text = _TEXTS.get(source.name, (frozenset(), _VERBATIM))
    return text if lake in types else None


def _numeric_text(scale: int | None, lake: str, version: int) -> CanonicalText | None:
    if lake.startswith(_DECIMAL) and scale is not None:
        lake_scale = int(lake.rstrip(")").rpartition(",")[2])
        if 0 <= scale <= lake_scale:
            return CanonicalText(f"round({{}}, {lake_scale})::text", _CAST.lake)
    elif lake == "string" and scale is not None and scale >= 0:
        return CanonicalText(_scientific("{}::text", f"0E-{scale}" if scale > 6 else ""), "{}")
    elif lake == "string" and scale is None and version >= TRIM_SCALE_VERSION:
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


def _array_text(element: SourceType, lake: str, version: int) -> CanonicalText | None:
    """Return the text of an array: the number of elements and of dimensions, then the elements."""
    if not lake.startswith(_ARRAY):
        return None
    inner = canonical_text(element, lake.removeprefix(_ARRAY).removesuffix(">"), version=version)
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


def field_of(value_sql: str, text: str, string: str) -> str:
    """Return the SQL of a field: its text with its length in characters, or ``-`` for NULL.

    No two lists of values have the same fields one after the other.

    Args:
        value_sql: The SQL of the value.
        text: Its canonical text, with ``{}`` in place of the value.
        string: The name of the type of texts.
    """
    text_sql = text.replace("{}", value_sql)
    length = f"CAST(char_length({text_sql}) AS {string})"
    return f"CASE WHEN {value_sql} IS NULL THEN '-' ELSE {length} || ':' || {text_sql} END"


# -- keys

_KEY_VALUES: Final[Mapping[str, Callable[[Any], str]]] = {
    **dict.fromkeys(("int2", "int4", "int8", "oid"), str),
    **dict.fromkeys(("text", "varchar", "bpchar", "uuid"), str),
    "bool": lambda value: "true" if value else "false",
    "bytea": lambda value: value.hex(),
    "date": lambda value: str((value - _EPOCH.date()).days),
    **dict.fromkeys(
        ("timestamp", "timestamptz"),
        lambda value: str(
            ((value if value.tzinfo else value.replace(tzinfo=dt.UTC)) - _EPOCH)
            // dt.timedelta(microseconds=1)
        ),
    ),
}


def is_key_type(source: SourceType, lake: str) -> bool:
    """Whether equal keys have equal texts, and :func:`key_field` knows the type."""
    if source.element is not None or canonical_text(source, lake) is None:
        return False
    is_decimal = source.name == "numeric" and lake.startswith(_DECIMAL)
    return source.name in _KEY_VALUES or source.is_enum or is_decimal


def key_field(value: Value, source: SourceType, lake: str) -> str:
    """Return the field of a value of a key, as SQL writes it on both sides.

    Args:
        value: The value.
        source: The type of the column, which :func:`is_key_type` accepts.
        lake: Spark's type of the column.
    """
    if isinstance(value, decimal.Decimal):
        text = f"{value:.{int(lake.rstrip(')').rpartition(',')[2])}f}"
    else:
        text = str(value) if source.is_enum else _KEY_VALUES[source.name](value)
    return f"{len(text)}:{text}"


def values_of(fields: str) -> list[str | None]:
    """Return the texts of fields that follow each other.

    >>> values_of("1:7-0:")
    ['7', None, '']
    """
    values: list[str | None] = []
    while fields:
        if fields.startswith("-"):
            values.append(None)
            fields = fields[1:]
            continue
        length, _, after = fields.partition(":")
        values.append(after[: int(length)])
        fields = after[int(length) :]
    return values


# -- ranges of keys

_RANGE_TYPES: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(("int2", "int4", "int8"), ("{}", "bigint")),
    "uuid": ("{}", "string"),
    **dict.fromkeys(("text", "varchar"), ('{} COLLATE "C"', "string")),
}


def range_texts(source: SourceType, lake: str) -> tuple[str, str] | None:
    """Return what orders a key column, with ``{}`` in place of it; ``None`` = no equal order.

    The first text is SQL of PostgreSQL, the second the type in which Spark compares it: it
    orders texts by their bytes, as the collation ``C`` does in UTF-8.
    """
    if source.name == "numeric" and lake.startswith(_DECIMAL) and source.scale is not None:
        return "{}", lake
    return _RANGE_TYPES.get(source.name)

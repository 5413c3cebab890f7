# SPDX-License-Identifier: Apache-2.0
"""The types of MySQL and MariaDB, and their canonical texts as SQL of both sides. Pure.

The SQL gives the same texts whatever the column's character set, collation and ``ZEROFILL`` are. A
date that has no day (``0000-00-00``) has its own text, which no value of the lake has.
"""

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
    microseconds_text,
    scale_of,
)

_TEXT: Final = "CONVERT({} USING utf8mb4)"
_DECIMAL_DIGITS: Final = 65
_SIGNED: Final = "CAST(CAST({} AS SIGNED) AS CHAR)"
_UNSIGNED: Final = "CAST(CAST({} AS UNSIGNED) AS CHAR)"
_INTEGER_TYPES: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_TEXT_TYPES: Final = frozenset(
    {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"}
)
_BINARY_TYPES: Final = frozenset(
    {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
)
_TIME_LENGTH: Final = 6


class MysqlType(msgspec.Struct, frozen=True):
    """A type of MySQL or MariaDB, as ``information_schema.columns`` has it.

    Attributes:
        name: The name without parameters, such as ``varchar``.
        is_unsigned: A number has no sign.
        precision: The digits of a number, or the bits of a ``bit``.
        scale: The digits of a ``decimal`` after the point.
        charset, collation: Those of a text; empty for other types.
        is_nullable: The column may contain NULL.
    """

    name: str
    is_unsigned: bool = False
    precision: int = 0
    scale: int = 0
    charset: str = ""
    collation: str = ""
    is_nullable: bool = False

    @property
    def shown(self) -> str:
        """The type for people."""
        return self.name

    @property
    def key_cast(self) -> str | None:
        """The SQL of a value whose rows an index finds."""
        if self.name in _INTEGER_TYPES:
            # a key of the lake may exceed the type
            return f"CAST({{}} AS DECIMAL({_DECIMAL_DIGITS}, 0))"
        if self.name == "decimal":
            return f"CAST({{}} AS DECIMAL({_DECIMAL_DIGITS}, {self.scale}))"
        if self.charset:
            # without both, another text than those of the character set would be an error
            return f"CONVERT({{}} USING {self.charset}) COLLATE {self.collation}"
        return _KEY_CASTS.get(self.name)

    @property
    def log_type(self) -> str | None:
        """Spark's type of a column with the values of the log; that of ``float`` depends."""
        match self.name:
            case "decimal":
                is_decimal = self.precision <= MAX_PRECISION
                return f"{DECIMAL}{self.precision},{self.scale})" if is_decimal else "string"
            case "double":
                return "double"
            case "bit":
                return "boolean" if self.precision == 1 else "string"
        if (types := _INTEGER_LOG_TYPES.get(self.name)) is not None:
            return types[self.is_unsigned]
        return _TEXTS.get(self.name, (None, None))[0]

    def text(self, lake: str) -> CanonicalText | None:
        """Return the canonical text of a column."""
        if self.name in _INTEGER_TYPES:
            # Debezium sends `bigint unsigned` as a decimal
            is_integer = lake in INTEGERS or (lake.startswith(DECIMAL) and scale_of(lake) == 0)
            source = _UNSIGNED if self.is_unsigned else _SIGNED
            return CanonicalText(source, "CAST({} AS STRING)") if is_integer else None
        match self.name:
            case "decimal":
                return _decimal_text(self.scale, lake)
            case "float" | "double":
                return _float_text(self.name, lake)
            case "bit":
                return _bit_text(self.precision, lake)
        types, text = _TEXTS.get(self.name, ("", None))
        return text if lake == types else None

    def key_text(self, lake: str) -> KeyText | None:
        """Return the function for the values of a key."""
        if self.text(lake) is None:
            return None
        if lake.startswith(DECIMAL):
            return decimal_key_text(lake)
        return str if self.name in _INTEGER_TYPES else _KEY_TEXTS.get(self.name)

    def range_texts(self, lake: str) -> RangeTexts | None:
        """Return what orders a key column; texts by their bytes, because collations pad them."""
        if self.is_nullable:  # a row with NULL is neither below nor above another one
            return None
        if self.name in {"char", "varchar"}:
            return RangeTexts(f"CAST({_TEXT} AS BINARY)", "string", "CAST({} AS BINARY)")
        bound = f"CAST({{}} AS DECIMAL({_DECIMAL_DIGITS}, {self.scale}))"
        if lake.startswith(DECIMAL):
            return RangeTexts("{}", lake, bound)
        return RangeTexts("{}", "bigint", bound) if self.name in _INTEGER_TYPES else None


def _decimal_text(scale: int, lake: str) -> CanonicalText | None:
    if lake.startswith(DECIMAL):
        lake_scale = scale_of(lake)
        if scale > lake_scale:
            return None
        text = f"CAST(CAST({{}} AS DECIMAL({_DECIMAL_DIGITS}, {lake_scale})) AS CHAR)"
        return CanonicalText(text, "CAST({} AS STRING)")
    if lake != "string":
        return None
    plain = f"CAST(CAST({{}} AS DECIMAL({_DECIMAL_DIGITS}, {scale})) AS CHAR)"
    return CanonicalText(_scientific(plain, scale) if scale > 6 else plain, "{}")


def _scientific(plain: str, scale: int) -> str:
    """Return a number as Python writes decimals: below 10^-6 in the form ``1.5E-7``.

    Args:
        plain: The SQL of the number without exponent.
        scale: The digits after its point.
    """
    digits = f"TRIM(LEADING '0' FROM RIGHT({plain}, {scale}))"
    return (
        f"CASE WHEN {{}} = 0 THEN '0E-{scale}' WHEN ABS({{}}) < 0.000001 THEN "
        f"CONCAT(IF({{}} < 0, '-', ''), LEFT({digits}, 1), IF(CHAR_LENGTH({digits}) > 1, '.', ''), "
        f"SUBSTRING({digits}, 2), 'E-', {scale} + 1 - CHAR_LENGTH({digits})) ELSE {plain} END"
    )


class _Ieee754(msgspec.Struct, frozen=True):
    """A binary format of IEEE 754.

    Attributes:
        java: The function of Java that returns the bits, with its class.
        mantissa_bits: The bits of the mantissa without the leading one.
        bias: The number that is added to the exponent.
        sign: The weight of the sign's bit.
    """

    java: str
    mantissa_bits: int
    bias: int
    sign: int

    def bits(self) -> str:
        """Return the SQL of the bits of a number, as an integer with a sign.

        The servers have no function for them, and the text of a ``float`` is rounded. But all
        operations with powers of two are exact: the exponent is the rounded logarithm, corrected
        by comparisons, and the mantissa is the number divided by its power of two. Only an angle
        shows the sign of -0.0.
        """
        one = 1 << self.mantissa_bits
        guess = f"LEAST(FLOOR(LOG2(ABS({{}}))), {self.bias})"
        exponent = (
            f"({guess} + (ABS({{}}) - POW(2, {guess}) >= POW(2, {guess}))"
            f" - (POW(2, {guess}) > ABS({{}})))"
        )
        normal = (
            f"CAST({exponent} + {self.bias - 1} AS SIGNED) * {one} + "
            f"CAST(ABS({{}}) / POW(2, {exponent}) * {one}e0 AS SIGNED)"
        )
        # the smallest numbers have no leading one; a power of 2^1074 is too great for a double
        scale = self.bias + self.mantissa_bits - 1
        tiny = f"CAST(ABS({{}}) * POW(2, {scale // 2}) * POW(2, {scale - scale // 2}) AS SIGNED)"
        return (
            f"CAST(IF(ATAN2({{}}, -1e0) < 0, CAST('-{self.sign}' AS DECIMAL(20, 0)), 0)"
            f" + CASE WHEN {{}} = 0 THEN 0 WHEN ABS({{}}) < POW(2, {1 - self.bias}) THEN {tiny} "
            f"ELSE {normal} END AS CHAR)"
        )


_FLOATS: Final = {
    "float": _Ieee754("'java.lang.Float', 'floatToIntBits'", 23, 127, 1 << 31),
    "double": _Ieee754("'java.lang.Double', 'doubleToLongBits'", 52, 1023, 1 << 63),
}


def _float_text(name: str, lake: str) -> CanonicalText | None:
    """Return the bits of a number: they separate -0.0 from 0.0."""
    if lake not in _FLOATS or (name, lake) == ("double", "float"):
        return None
    ieee = _FLOATS[lake]
    return CanonicalText(ieee.bits(), f"CAST(java_method({ieee.java}, {{}}) AS STRING)")


def _bit_text(size: int, lake: str) -> CanonicalText | None:
    if size == 1 and lake == "boolean":
        return CanonicalText("IF({} + 0 = 1, 'true', 'false')", "CAST({} AS STRING)")
    return CanonicalText(f"LPAD(BIN({{}} + 0), {size}, '0')", "{}") if lake == "string" else None


def _microseconds(lake: str) -> CanonicalText:
    """Return microseconds since 1970; the session is in UTC."""
    source = (
        "IF(MONTH({}) > 0 AND DAYOFMONTH({}) > 0, "
        "CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', {}) AS CHAR), CAST({} AS CHAR))"
    )
    return CanonicalText(source, lake)


# a date without a month or a day is no date of the lake
_DAYS: Final = (
    "IF(MONTH({}) > 0 AND DAYOFMONTH({}) > 0, "
    "CAST(DATEDIFF({}, '1970-01-01') AS CHAR), CAST({} AS CHAR))"
)

_TEXTS: Final[Mapping[str, tuple[str, CanonicalText | None]]] = {
    **dict.fromkeys(_TEXT_TYPES, ("string", CanonicalText(_TEXT, "{}"))),
    "uuid": ("string", CanonicalText("CAST({} AS CHAR)", "{}")),
    **dict.fromkeys(_BINARY_TYPES, ("binary", CanonicalText("LOWER(HEX({}))", "lower(hex({}))"))),
    "date": ("date", CanonicalText(_DAYS, "CAST(unix_date({}) AS STRING)")),
    "time": ("string", CanonicalText(f"CAST(CAST({{}} AS TIME({_TIME_LENGTH})) AS CHAR)", "{}")),
    "datetime": (
        "timestamp_ntz",
        _microseconds("CAST(unix_micros(CAST({} AS TIMESTAMP)) AS STRING)"),
    ),
    "timestamp": ("timestamp", _microseconds("CAST(unix_micros({}) AS STRING)")),
    "year": ("int", CanonicalText(_UNSIGNED, "CAST({} AS STRING)")),
}
"""Type -> the type of Spark that it is compared with, and the text."""

_INTEGER_LOG_TYPES: Final[Mapping[str, tuple[str, str]]] = {
    "tinyint": ("smallint", "smallint"),
    "smallint": ("smallint", "int"),
    "mediumint": ("int", "int"),
    "int": ("int", "bigint"),
    "bigint": ("bigint", "decimal(20,0)"),
}
"""Type -> Spark's types of the values in the log: with a sign, and ``UNSIGNED``."""

_KEY_TEXTS: Final[Mapping[str, KeyText]] = {
    **dict.fromkeys((*_TEXT_TYPES, "uuid", "year"), str),
    **dict.fromkeys(_BINARY_TYPES, lambda value: str(value.hex())),
    "date": days_text,
    **dict.fromkeys(("datetime", "timestamp"), microseconds_text),
}
_KEY_CASTS: Final[Mapping[str, str]] = {
    "uuid": "{}",
    **dict.fromkeys(_BINARY_TYPES, "UNHEX({})"),
}

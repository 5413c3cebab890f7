# SPDX-License-Identifier: Apache-2.0
"""``sequence_by``: the values of columns as orders, whose bytes compare as the values do.

Whole numbers, dates and times have the domain of :class:`changelane.position.SequencePosition`.
Other values have the domain :data:`COLUMNS_DOMAIN`:

- a decimal with more than 18 digits: its sign and 38 digits, complemented if it is negative;
- text: UTF-8, with NUL as ``00 01``, and ``00 00`` at the end;
- a struct: its fields, each with a fixed length or an end.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as t

from changelane.errors import ConfigError
from changelane.position import ORDER_VERSION, SequencePosition

COLUMNS_DOMAIN: Final = 8
"""The domain of orders that are not a single number."""

_LONG_DIGITS: Final = 18
_EPOCH_DAY: Final = 719_163
"""The ordinal of 1970-01-01, as Python counts days."""


class SequenceOrder(NamedTuple):
    """The values of an expression as orders.

    Attributes:
        kind: The kind of the values, such as ``integer``; orders of two kinds do not compare.
        order: The order without its phase; NULL where a part of the value is NULL.
    """

    kind: str
    order: Column


def sequence_order(value: Column, kind: t.DataType, *, epoch: int = 0) -> SequenceOrder:
    """Return the orders of an expression.

    Args:
        value: The expression.
        kind: Its type.
        epoch: The epoch of the orders (docs/merge-rule.md, Orders).

    Raises:
        ConfigError: Values of this type have no order.
    """
    name, encode = _encoding_of(kind)
    single = _integer_encoding(kind) is not None
    domain = SequencePosition.code if single else COLUMNS_DOMAIN
    head = bytearray([ORDER_VERSION, domain, *epoch.to_bytes(4, "big"), 1])
    row = [F.lit(bytearray(4))] if single else []
    return SequenceOrder(name, F.concat(F.lit(head), encode(value), *row))


Encode = Callable[[Column], Column]


def _encoding_of(kind: t.DataType) -> tuple[str, Encode]:
    number = _integer_encoding(kind)
    if number is not None:
        name, count = number
        return name, lambda value: _int128(count(value))
    match kind:
        case t.DecimalType():
            return f"decimal of scale {kind.scale}", _digits
        case t.StringType() if not is_collated(kind):
            return "string", _text
        case t.StructType() if kind.fields:
            parts = [(field.name, *_field_encoding(field.dataType)) for field in kind.fields]
            name = f"struct of {', '.join(part for _, part, _ in parts)}"
            return name, lambda value: F.concat(*(encode(value[f]) for f, _, encode in parts))
    msg = (
        f"sequence_by has the type {kind.simpleString()}, which cannot order rows: give whole "
        "numbers, decimals, dates, timestamps, text, or a struct of these; cast other types"
    )
    raise ConfigError(msg)


def is_collated(kind: t.StringType) -> bool:
    """Return whether a text compares by a collation, and not by its bytes."""
    return " collate " in kind.simpleString()


def _field_encoding(kind: t.DataType) -> tuple[str, Encode]:
    """Return the encoding of a struct's field, where long decimals have a name of their own."""
    name, encode = _encoding_of(kind)
    is_long = isinstance(kind, t.DecimalType) and _integer_encoding(kind) is None
    return (f"long {name}" if is_long else name), encode


def _integer_encoding(kind: t.DataType) -> tuple[str, Encode] | None:
    """Return the encoding of a type as a 64-bit integer; ``None`` = it needs more bits."""
    match kind:
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
            return "integer", lambda value: value.cast("bigint")
        case t.DecimalType() if kind.precision <= _LONG_DIGITS:
            # the unscaled value
            name = f"decimal of scale {kind.scale}" if kind.scale else "integer"
            return name, lambda value: F.replace(value.cast("string"), F.lit("."), F.lit("")).cast(
                "bigint"
            )
        case t.DateType():
            return "date", lambda value: (F.unix_date(value) + _EPOCH_DAY).cast("bigint")
        case t.TimestampType():
            return "timestamp", F.unix_micros
        case t.TimestampNTZType():
            # the session's zone is UTC
            return "timestamp_ntz", lambda value: F.unix_micros(value.cast("timestamp"))
    return None


def _int128(value: Column) -> Column:
    """Return 64 signed bits as 128 biased ones, the form of ``SequencePosition.key``."""
    low = F.lpad(F.hex(value), 16, "0")
    high = F.when(value >= 0, F.lit("8" + "0" * 15)).when(value < 0, F.lit("7" + "F" * 15))
    return F.unhex(F.concat(high, low))


def _digits(value: Column) -> Column:
    sign = F.when(value >= 0, F.lit("1")).when(value < 0, F.lit("0"))
    digits = F.lpad(F.regexp_replace(value.cast("string"), "[-.]", ""), 38, "0")
    nines = F.translate(digits, "0123456789", "9876543210")
    return F.concat(sign, F.when(value >= 0, digits).otherwise(nines)).cast("binary")


def _text(value: Column) -> Column:
    escaped = F.replace(value, F.lit("\0"), F.lit("\0\x01"))
    return F.concat(escaped, F.lit("\0\0")).cast("binary")

# SPDX-License-Identifier: Apache-2.0
"""Logical column types, their text form, and the Python values of each type.

A value is a plain Python value if Python can represent it, else the producer's own text
("infinity", "0000-00-00", year 294276, "838:59:59"). Values are never clipped or replaced by NULL.

============================  =====================================================================
type                          value
============================  =====================================================================
``boolean``                   ``bool``
``int8`` .. ``int64``         ``int``
``uint8`` .. ``uint64``       ``int``
``decimal(p,s)``, ``decimal`` ``decimal.Decimal`` (NaN and infinity included)
``float32``, ``float64``      ``float``
``string``, ``json``, ``uuid``,  ``str``
``xml``, ``enum(..)``,
``set(..)``, ``text(name)``
``bytes``                     ``bytes``
``bits(n)``                   ``str`` of 0 and 1, most significant bit first
``date``                      ``datetime.date``, else text
``time(p)``, ``timetz(p)``    text ``[-]HH:MM:SS[.f]`` (``timetz``: with its offset)
``timestamp(p)``              naive ``datetime.datetime``, else text
``instant(p)``                :class:`Instant` (aware), else text
``year``                      ``int``
``interval(us)``              ``datetime.timedelta``
``interval(ns)``              ``int`` nanoseconds
``interval``                  ISO-8601 text
``geometry(kind)``            :class:`Geometry`
``array<T>``                  ``list``
``map<K,V>``                  ``list`` of ``(key, value)`` pairs
``record<a T,...>``           ``dict``
``unknown``                   the JSON value; numbers with a fraction are ``Decimal``
============================  =====================================================================
"""

import re
from typing import Final

import msgspec

from changelane.errors import ConfigError
from changelane.types.scalars import (
    UNAVAILABLE,
    Geometry,
    Instant,
    Unavailable,
    Value,
    parse_instant,
)


class NestedTypeError(ConfigError):
    """A column type with more than :data:`MOST_NESTED_TYPES` levels of nesting."""


class LogicalType(msgspec.Struct, frozen=True):
    """A column type. ``str(type)`` is its text form, which :func:`parse_type` parses."""


class Boolean(LogicalType, frozen=True):
    def __str__(self) -> str:
        return "boolean"


class Integer(LogicalType, frozen=True):
    """A whole number of *bits* (8, 16, 32, 64)."""

    bits: int = 64
    unsigned: bool = False

    def __str__(self) -> str:
        return f"{'u' if self.unsigned else ''}int{self.bits}"

    def range(self) -> tuple[int, int]:
        """Return the least and the greatest value."""
        if self.unsigned:
            return 0, (1 << self.bits) - 1
        return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1


class Decimal(LogicalType, frozen=True):
    """An exact number; if *scale* is ``None``, the scale can differ by value."""

    precision: int | None = None
    scale: int | None = None

    def __str__(self) -> str:
        if self.scale is None:
            return "decimal"
        return f"decimal({'*' if self.precision is None else self.precision},{self.scale})"


class Float(LogicalType, frozen=True):
    bits: int = 64

    def __str__(self) -> str:
        return f"float{self.bits}"


class String(LogicalType, frozen=True):
    def __str__(self) -> str:
        return "string"


class Bytes(LogicalType, frozen=True):
    def __str__(self) -> str:
        return "bytes"


class Bits(LogicalType, frozen=True):
    length: int | None = None

    def __str__(self) -> str:
        return "bits" if self.length is None else f"bits({self.length})"


class Date(LogicalType, frozen=True):
    def __str__(self) -> str:
        return "date"


class Time(LogicalType, frozen=True):
    """A time of day or, in MySQL, a signed span up to 838:59:59; *precision* = fraction digits."""

    precision: int | None = None

    def __str__(self) -> str:
        return "time" if self.precision is None else f"time({self.precision})"


class TimeTz(LogicalType, frozen=True):
    """A time of day with an offset."""

    precision: int | None = None

    def __str__(self) -> str:
        return "timetz" if self.precision is None else f"timetz({self.precision})"


class Timestamp(LogicalType, frozen=True):
    """A local date and time without a zone (MySQL DATETIME, PostgreSQL timestamp)."""

    precision: int | None = None

    def __str__(self) -> str:
        return "timestamp" if self.precision is None else f"timestamp({self.precision})"


class InstantType(LogicalType, frozen=True):
    """A point in time (MySQL TIMESTAMP, PostgreSQL timestamptz)."""

    precision: int | None = None

    def __str__(self) -> str:
        return "instant" if self.precision is None else f"instant({self.precision})"


class Year(LogicalType, frozen=True):
    def __str__(self) -> str:
        return "year"


class Interval(LogicalType, frozen=True):
    """A span; *unit* is ``us`` or ``ns`` for a count, empty for ISO-8601 text."""

    unit: str = ""

    def __str__(self) -> str:
        return f"interval({self.unit})" if self.unit else "interval"


class Enum(LogicalType, frozen=True):
    """One of *members*; ``None`` when the producer does not list them."""

    members: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return "enum" + _members(self.members)


class Set(LogicalType, frozen=True):
    """Comma-joined text of any of *members*."""

    members: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return "set" + _members(self.members)


class Json(LogicalType, frozen=True):
    def __str__(self) -> str:
        return "json"


class Uuid(LogicalType, frozen=True):
    def __str__(self) -> str:
        return "uuid"


class Xml(LogicalType, frozen=True):
    def __str__(self) -> str:
        return "xml"


class Text(LogicalType, frozen=True):
    """Text of a database type without a logical type of its own, such as ``ltree``."""

    name: str

    def __str__(self) -> str:
        return f"text({_quote(self.name)})"


class GeometryType(LogicalType, frozen=True):
    """A spatial value; *kind* is ``point``, ``geometry`` or ``geography``."""

    kind: str = "geometry"

    def __str__(self) -> str:
        return f"geometry({self.kind})"


class Array(LogicalType, frozen=True):
    element: LogicalType

    def __str__(self) -> str:
        return f"array<{self.element}>"


class Map(LogicalType, frozen=True):
    key: LogicalType
    value: LogicalType

    def __str__(self) -> str:
        return f"map<{self.key},{self.value}>"


class Record(LogicalType, frozen=True):
    """Named fields; *name* is the producer's name of the structure, if it has one."""

    fields: tuple[tuple[str, LogicalType], ...]
    name: str = ""

    def __str__(self) -> str:
        fields = ",".join(f"{_quote(name)} {kind}" for name, kind in self.fields)
        return f"record{_quote(self.name) if self.name else ''}<{fields}>"


class Unknown(LogicalType, frozen=True):
    """The type of a column that the message does not describe; its values are JSON values."""

    def __str__(self) -> str:
        return "unknown"


UNKNOWN: Final = Unknown()


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _members(members: tuple[str, ...] | None) -> str:
    return "" if members is None else f"({','.join(map(_quote, members))})"


_PLAIN: Final[dict[str, LogicalType]] = {
    "boolean": Boolean(),
    "string": String(),
    "bytes": Bytes(),
    "date": Date(),
    "year": Year(),
    "json": Json(),
    "uuid": Uuid(),
    "xml": Xml(),
    "unknown": UNKNOWN,
    "decimal": Decimal(),
    "bits": Bits(),
    "time": Time(),
    "timetz": TimeTz(),
    "timestamp": Timestamp(),
    "instant": InstantType(),
    "interval": Interval(),
    "enum": Enum(),
    "set": Set(),
    "float32": Float(32),
    "float64": Float(64),
    **{
        f"{'u' if unsigned else ''}int{bits}": Integer(bits, unsigned)
        for bits in (8, 16, 32, 64)
        for unsigned in (False, True)
    },
}

_TOKEN: Final = re.compile(r"\s*(?:([a-z_][a-z0-9_]*)|(-?\d+)|('(?:[^']|'')*')|([(),<>*]))")
MOST_NESTED_TYPES: Final = 64
"""The maximum number of arrays, maps and records around a type."""


class _Reader:
    """Reads the text form of a type, one token at a time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = []
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            if match is None:
                raise self.error()
            self.tokens.append(match.group().strip())
            at = match.end()
        self.tokens.append("")
        self.at = 0

    def error(self) -> ConfigError:
        return ConfigError(f"not a column type: {self.text[:80]!r}")

    def peek(self) -> str:
        return self.tokens[self.at]

    def next(self) -> str:
        token = self.tokens[self.at]
        self.at = min(self.at + 1, len(self.tokens) - 1)  # the last token is the end
        return token

    def expect(self, token: str) -> None:
        if self.next() != token:
            raise self.error()

    def integer(self) -> int:
        try:
            return int(self.next())
        except ValueError:
            raise self.error() from None

    def quoted(self) -> str:
        token = self.next()
        if not token.startswith("'"):
            raise self.error()
        return token[1:-1].replace("''", "'")

    def parse(self, depth: int = 0) -> LogicalType:
        if depth > MOST_NESTED_TYPES:
            raise NestedTypeError(
                f"a column type is nested more than {MOST_NESTED_TYPES} levels deep"
            )
        name = self.next()
        if name == "array":
            self.expect("<")
            element = self.parse(depth + 1)
            self.expect(">")
            return Array(element)
        if name == "map":
            self.expect("<")
            key = self.parse(depth + 1)
            self.expect(",")
            value = self.parse(depth + 1)
            self.expect(">")
            return Map(key, value)
        if name == "record":
            return self._record(depth)
        if self.peek() == "(":
            self.next()
            kind = self._with_arguments(name)
            self.expect(")")
            return kind
        try:
            return _PLAIN[name]
        except KeyError:
            raise self.error() from None

    def _record(self, depth: int) -> LogicalType:
        name = self.quoted() if self.peek().startswith("'") else ""
        self.expect("<")
        fields: list[tuple[str, LogicalType]] = []
        while self.peek() != ">":
            if fields:
                self.expect(",")
            field = self.quoted()
            fields.append((field, self.parse(depth + 1)))
        self.expect(">")
        return Record(tuple(fields), name)

    def _with_arguments(self, name: str) -> LogicalType:
        match name:
            case "decimal":
                if self.peek() == "*":
                    self.next()
                    precision = None
                else:
                    precision = self.integer()
                scale = 0
                if self.peek() == ",":
                    self.next()
                    scale = self.integer()
                return Decimal(precision, scale)
            case "bits":
                return Bits(self.integer())
            case "time":
                return Time(self.integer())
            case "timetz":
                return TimeTz(self.integer())
            case "timestamp":
                return Timestamp(self.integer())
            case "instant":
                return InstantType(self.integer())
            case "interval":
                return Interval(self.next())
            case "geometry":
                return GeometryType(self.next())
            case "text":
                return Text(self.quoted())
            case "enum" | "set":
                members: list[str] = []
                while self.peek() != ")":
                    if members:
                        self.expect(",")
                    members.append(self.quoted())
                return (Enum if name == "enum" else Set)(tuple(members))
            case _:
                raise self.error()


def parse_type(text: str) -> LogicalType:
    """Parse the text form of a type.

    >>> parse_type("array<decimal(10,2)>")
    Array(element=Decimal(precision=10, scale=2))

    Raises:
        ConfigError: The text is not a type.
        NestedTypeError: The type has more than :data:`MOST_NESTED_TYPES` levels of nesting.
    """
    reader = _Reader(text)
    kind = reader.parse()
    if reader.peek():
        raise reader.error()
    return kind


__all__ = [
    "MOST_NESTED_TYPES",
    "UNAVAILABLE",
    "UNKNOWN",
    "Array",
    "Bits",
    "Boolean",
    "Bytes",
    "Date",
    "Decimal",
    "Enum",
    "Float",
    "Geometry",
    "GeometryType",
    "Instant",
    "InstantType",
    "Integer",
    "Interval",
    "Json",
    "LogicalType",
    "Map",
    "NestedTypeError",
    "Record",
    "Set",
    "String",
    "Text",
    "Time",
    "TimeTz",
    "Timestamp",
    "Unavailable",
    "Unknown",
    "Uuid",
    "Value",
    "Xml",
    "Year",
    "parse_instant",
    "parse_type",
]

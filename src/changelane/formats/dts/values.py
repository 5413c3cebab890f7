# SPDX-License-Identifier: Apache-2.0
"""The functions that read and write one value, and the column for which they are compiled."""

import struct
from collections.abc import Callable
from typing import Any, Final

import msgspec

from changelane.formats.contract.format import Report
from changelane.formats.dts.type_numbers import Family, source_type
from changelane.schema import Column
from changelane.types import Bytes, LogicalType, Value

ABSENT: Final = object()
"""The value of ``NONE``: the column is not in the image."""

READ_ERRORS: Final = (ArithmeticError, ValueError, LookupError, struct.error)
"""The exceptions of a reader for a value that is not of its branch, or is cut off."""
WRITE_ERRORS: Final = (*READ_ERRORS, TypeError, AttributeError)
"""The exceptions of a writer for a value that is not of its column's type."""

Read = Callable[[bytes, int], tuple[Any, int]]
"""From the data and the place after the branch to the value and its end."""
Write = Callable[[Any, Report], bytes]
"""From a value that is not NULL to its branch and content."""


class TypedValue(msgspec.Struct, frozen=True):
    """A value of another type than that of its column's number."""

    value: Value
    column: Column


class ColumnForm(msgspec.Struct, frozen=True):
    """A column for which readers and writers are compiled.

    Attributes:
        column: The column; for a reader, that of the number.
        number: The ``dataTypeNumber``; ``None`` where the record has no fields.
        family: The numbers of its kind of source.
        in_microseconds: The unit of ``millis`` in a ``DateTime``; else nanoseconds.
    """

    column: Column
    number: int | None
    family: Family
    in_microseconds: bool

    @property
    def type(self) -> LogicalType:
        """The column's type."""
        return self.column.type

    @property
    def type_name(self) -> str:
        """The name of the column's type, without its arguments."""
        return str(self.column.type).partition("(")[0]

    def typed(self, value: Value, kind: LogicalType, charset: str | None = None) -> TypedValue:
        """Return a value with a type, and a character set, of its own."""
        text = None
        if self.number is not None:
            text = source_type(self.family, self.number, is_bytes=isinstance(kind, Bytes))
            if charset is not None:
                text = f"{text} character set {charset}"
        return TypedValue(value, Column(self.column.name, kind, text))

    def fitting(self, value: Value, kind: LogicalType) -> Any:
        """Return a value of *kind*, with its type where the column has another."""
        return value if type(kind) is type(self.column.type) else self.typed(value, kind)


def expect(value: Value, kind: type) -> None:
    """Check the class of a value.

    Raises:
        TypeError: The value is of another class.
    """
    if value.__class__ is not kind:
        raise TypeError

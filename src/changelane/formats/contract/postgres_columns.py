# SPDX-License-Identifier: Apache-2.0
"""Columns of any source, written with the types of PostgreSQL."""

import decimal
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from changelane.formats.contract.losses import Loss
from changelane.formats.contract.postgres_text import logical_type, type_text
from changelane.schema import Column
from changelane.types import (
    Array,
    Bits,
    Decimal,
    Float,
    Integer,
    Interval,
    LogicalType,
    String,
    Text,
    Value,
)
from changelane.types.values import value_text

_FOREIGN: Final = re.compile(
    r"(?:int|float|decimal|dec|char)\b.*|(?:bigint|smallint|integer|int[248])\s*\(.*",
    re.IGNORECASE | re.DOTALL,
)
"""Type texts of other databases that PostgreSQL reads and never writes (``format_type``)."""
_VARCHAR: Final = re.compile(r"varchar\s*\((\d{1,8})\)", re.IGNORECASE)

Convert = Callable[[Any], Any]
WriterOf = Callable[[LogicalType], Convert | None]
"""Returns the function from values of a type to a format's own values."""
ReaderOf = Callable[[LogicalType], Convert | None]
"""Returns the function back; ``None`` = the same value."""

_EXACT_ARGUMENTS = (Integer, Array, Bits, Text)
"""Types that differ if their parameters differ."""


class WrittenColumn(NamedTuple):
    """How a column is written.

    Attributes:
        name: Its name.
        type_text: Its type in PostgreSQL.
        kind: The logical type of that type.
        write: The function from a value to the format's value.
        read: The function back; ``None`` = the same value.
        loss: The loss of the type, if any.
        value_loss: The loss of a value that the type does not have.
    """

    name: str
    type_text: str
    kind: LogicalType
    write: Convert
    read: Convert | None
    loss: Loss | None
    value_loss: Loss

    def written(self, value: Value, report: Callable[[Loss], None]) -> Any:
        """Return the format's value of a value that is not NULL; ``None`` if there is none."""
        try:
            written = self.write(value)
            if self.read is None or isinstance(self.kind, Float) or _is_special(value):
                return written
            reread = self.read(written)
        except Exception:  # noqa: BLE001 - an event may have any value
            report(self.value_loss)
            return None
        if reread.__class__ is not value.__class__ and isinstance(self.kind, Integer):
            report(self.value_loss)
        elif reread == value:
            return written
        elif isinstance(self.kind, Interval):
            report(("value:interval", "PostgreSQL writes it in another notation"))
            return written
        else:
            report(self.value_loss)
        return None


def _is_special(value: Value) -> bool:
    return isinstance(value, decimal.Decimal) and value.is_nan()


def written_column(column: Column, writer_of: WriterOf, reader_of: ReaderOf) -> WrittenColumn:
    """Return how a column is written: with its source type, if PostgreSQL has it."""
    kind, source_type = column.type, column.source_type
    if source_type is not None and (varchar := _VARCHAR.fullmatch(source_type)):
        source_type = f"character varying({varchar[1]})"
    text = type_text(kind)
    if source_type is not None and text is not None and not _FOREIGN.fullmatch(source_type):
        source_kind = logical_type(source_type)
        is_same = type(source_kind) is type(kind)
        if is_same and (source_kind == kind or not isinstance(kind, _EXACT_ARGUMENTS)):
            text = source_type
    name = str(kind).partition("(")[0].partition("<")[0]
    value_loss = (f"value:{name}", "PostgreSQL's type does not have it; written as null")
    if isinstance(kind, Integer) and text is None:
        written = Decimal(20, 0)
        write_number = writer_of(written)
        if write_number is not None:
            return WrittenColumn(
                column.name,
                "numeric(20,0)",
                written,
                lambda value: write_number(decimal.Decimal(value)),
                None,
                (f"type:{name}", "written as numeric(20,0)"),
                value_loss,
            )
    write = None if text is None else writer_of(kind)
    if text is None or write is None:
        write_text = writer_of(String()) or str
        return WrittenColumn(
            column.name,
            "text",
            String(),
            lambda value: write_text(value_text(kind, value)),
            None,
            None if kind == String() else (f"type:{name}", "written as text"),
            value_loss,
        )
    read = reader_of(logical_type(text))
    return WrittenColumn(column.name, text, logical_type(text), write, read, None, value_loss)

# SPDX-License-Identifier: Apache-2.0
"""The columns of wal2json's messages: JSON values and typed values.

Numbers are JSON numbers, or text with ``numeric-data-types-as-string``; booleans are JSON;
``bytea`` is hexadecimal without its prefix; all other values are PostgreSQL's text. A value of a
domain is text, also if the message has its base type (``include-domain-data-type``). Without types
(``include-types`` off), a value is a JSON value.
"""

import decimal
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from changelane.errors import DecodeError
from changelane.formats.contract.postgres_text import (
    DateOrder,
    logical_type,
    reader,
    writer,
    wrong,
)
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableSchema
from changelane.types import (
    UNKNOWN,
    Array,
    Boolean,
    Bytes,
    Decimal,
    Float,
    Integer,
    LogicalType,
    Text,
    Unknown,
    Value,
)
from changelane.types.values import plain

Read = Callable[[Any], Value]
_NUMBERS: Final = (Integer, Decimal, Float)
_HEX: Final = r"\x"


class ColumnPlan:
    """The schema of a list of columns, and the readers of their values.

    Attributes:
        schema: The columns; ``None`` if a type is unknown.
        names: Their names in order.
        readers: The functions from their JSON to their values.
    """

    __slots__ = ("_integers", "_others", "_texts", "names", "readers", "schema")

    def __init__(
        self,
        columns: tuple[str, ...],
        types: tuple[str | None, ...],
        optionals: tuple[bool | None, ...],
        date_order: DateOrder,
    ) -> None:
        """Compile the readers.

        Raises:
            ValueError: Two columns have one name.
        """
        kinds = [_type_of(text) for text in types]
        self.names = columns
        schema = TableSchema(
            tuple(
                Column(name, kind, text, nullable)
                for name, kind, text, nullable in zip(columns, kinds, types, optionals, strict=True)
            )
        )
        self.schema = None if None in types else schema
        self.readers = tuple(
            column_reader(kind, date_order, is_nullable=nullable is not False)
            for kind, nullable in zip(kinds, optionals, strict=True)
        )
        # most columns are texts or integers, whose values need a check only
        self._texts: list[str] = []
        self._integers: list[tuple[str, int, int]] = []
        self._others: list[tuple[str, Read]] = []
        for name, kind, read in zip(columns, kinds, self.readers, strict=True):
            if isinstance(kind, Integer):
                self._integers.append((name, *kind.range()))
            elif not isinstance(kind, Boolean | Unknown) and reader(kind) is None:
                self._texts.append(name)
            else:
                self._others.append((name, read))

    def image(self, values: Sequence[Any], path: str) -> dict[str, Value]:
        """Return the image of JSON values in the order of the columns.

        Raises:
            DecodeError: A value is not of its type; the error has the path of the column.
        """
        image = dict(zip(self.names, values, strict=True))
        for name in self._texts:
            value = image[name]
            if value.__class__ is not str and value is not None:
                return self._slow_image(values, path)
        for name, low, high in self._integers:
            value = image[name]
            if value.__class__ is int:
                if low <= value <= high:
                    continue
            elif value is None:
                continue
            return self._slow_image(values, path)
        try:
            for name, read in self._others:
                image[name] = read(image[name])
        except DecodeError:
            return self._slow_image(values, path)
        return image

    def _slow_image(self, values: Sequence[Any], path: str) -> dict[str, Value]:
        """Return the same image, or raise the error with its path."""
        image: dict[str, Value] = {}
        for index, (name, read, value) in enumerate(
            zip(self.names, self.readers, values, strict=True)
        ):
            try:
                image[name] = read(value)
            except DecodeError as error:
                where = f"{path}[{index}].value"
                raise DecodeError(error.reason, code=error.code, path=where) from None
        return image


def _type_of(text: str | None) -> LogicalType:
    """Return the logical type of a type text.

    With ``include-typmod`` off, version 1 has the internal names, of which those of arrays begin
    with ``_``.
    """
    if text is None:
        return UNKNOWN
    if text.startswith("_") and not isinstance(element := logical_type(text[1:]), Text | Unknown):
        return Array(element)
    return logical_type(text)


@lru_cache(maxsize=4096)
def column_reader(
    kind: LogicalType, date_order: DateOrder = "ymd", *, is_nullable: bool = True
) -> Read:
    """Return the function from JSON, also null, to a value; it raises ``DecodeError``."""
    if isinstance(kind, _NUMBERS):
        return _number_reader(kind, is_nullable=is_nullable)
    if isinstance(kind, Boolean):
        return _read_boolean
    if isinstance(kind, Unknown):
        return _read_scalar
    read = reader(kind, date_order)
    is_bytes = isinstance(kind, Bytes)

    def read_text(value: Any) -> Value:
        if value.__class__ is str:
            if is_bytes and not value.startswith(_HEX):
                value = _HEX + value
            return value if read is None else read(value)
        if value is None:
            return None
        raise wrong(kind)

    return read_text


def _read_boolean(value: Any) -> Value:
    if value is True or value is False or value is None:
        return value
    if value in ("t", "f"):  # of a domain
        return value == "t"
    raise wrong(Boolean())


def _read_scalar(value: Any) -> Value:
    if isinstance(value, list | dict):
        raise DecodeError("not the value of a column", code=ReasonCode.WRONG_TYPE)
    return value


def _number_reader(kind: LogicalType, *, is_nullable: bool) -> Read:
    read = reader(kind)
    assert read is not None  # noqa: S101 - every number has one
    low, high = kind.range() if isinstance(kind, Integer) else (0, 0)
    is_integer = isinstance(kind, Integer)
    number: Callable[[Any], Value] = decimal.Decimal if isinstance(kind, Decimal) else float

    def read_number(value: Any) -> Value:
        if value.__class__ is int:
            if not is_integer:
                return number(value)
            if low <= value <= high:
                return value
            raise DecodeError(f"out of the range of {kind}", code=ReasonCode.VALUE_OUT_OF_RANGE)
        if value is None:
            if is_nullable or is_integer:
                return None
            raise DecodeError(
                "null in a column that is not null: NaN or infinity; let wal2json write "
                "numeric-data-types-as-string",
                code=ReasonCode.VALUE_OUT_OF_RANGE,
            )
        if value.__class__ is decimal.Decimal and not is_integer:
            if isinstance(kind, Float) and math.isinf(float(value)):
                raise DecodeError(f"out of the range of {kind}", code=ReasonCode.VALUE_OUT_OF_RANGE)
            return number(value)
        if value.__class__ is str:
            return read(value)
        raise wrong(kind)

    return read_number


def column_writer(kind: LogicalType) -> Callable[[Any], Any] | None:
    """Return the function from a value to JSON; ``None`` = PostgreSQL has no such type.

    Any exception of the function means that the type does not have the value.
    """
    match kind:
        case Boolean() | Integer():
            return lambda value: value
        case Decimal():
            return lambda value: decimal.Decimal(plain(value))
        case Float():
            return float
        case Bytes():
            return bytes.hex
        case _:
            return writer(kind)

# SPDX-License-Identifier: Apache-2.0
"""The images of a table's records, read by a plan that is compiled once per ``fields``."""

import datetime as dt
import decimal
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import Image, Key, KeyOrigin
from changelane.formats.contract.avro_binary import read_count, read_text
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.dts.avro import truncated
from changelane.formats.dts.branches import readers
from changelane.formats.dts.object_names import key_columns
from changelane.formats.dts.type_numbers import FAMILIES, OTHER, column_of
from changelane.formats.dts.values import ABSENT, READ_ERRORS, ColumnForm, TypedValue
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableSchema
from changelane.types import (
    Boolean,
    Bytes,
    Date,
    Decimal,
    Float,
    Geometry,
    GeometryType,
    Instant,
    InstantType,
    Integer,
    Interval,
    LogicalType,
    Timestamp,
    Year,
)

_MAX_ENTRIES: Final = 1024
_NO_VALUES: Final = frozenset({type(ABSENT), TypedValue})


class TablePlan:
    """How the images of one table's records are read.

    Attributes:
        raw: The bytes of ``fields``, with which the body of each such record starts.
        schema: The columns of the numbers.
    """

    def __init__(
        self,
        raw: bytes,
        fields: tuple[tuple[str, int | None], ...],
        source_type: str,
        *,
        in_microseconds: bool,
    ) -> None:
        self.raw = raw
        family = FAMILIES.get(source_type, OTHER)
        forms = [
            ColumnForm(column_of(name, number, family), number, family, in_microseconds)
            for name, number in fields
        ]
        self.names = tuple(name for name, _ in fields)
        if len(set(self.names)) != len(self.names):
            raise DecodeError("a column is named twice", path="$.fields")
        self._columns = [(form.column.name, readers(form)) for form in forms]
        self.schema = TableSchema(tuple(form.column for form in forms))
        self._variants: BoundedCache[tuple[Column, ...], TableSchema] = BoundedCache(_MAX_ENTRIES)
        self._keys: BoundedCache[str, Key | None] = BoundedCache(_MAX_ENTRIES)

    def read(
        self, data: bytes, at: int, columns_by_name: dict[str, Column], field: str
    ) -> tuple[dict[str, Any], int]:
        """Return the image at *at* and its end.

        Columns whose values have another type than their number are written to *columns_by_name*.
        """
        image: dict[str, Any] = {}
        columns = self._columns
        count, at = read_count(data, at)
        index = 0
        try:
            if count and count == len(columns):
                for name, readers in columns:
                    value, at = readers[data[at]](data, at + 1)
                    image[name] = value
                index = count
            else:
                while count:
                    if index + count > len(columns):
                        raise _wrong_length(field)
                    for name, readers in columns[index : index + count]:
                        value, at = readers[data[at]](data, at + 1)
                        image[name] = value
                    index += count
                    count, at = read_count(data, at)
                at -= 1
        except READ_ERRORS:
            raise self._wrong(field, len(image), len(data) <= at) from None
        if index != len(columns) or data[at]:
            raise _wrong_length(field)
        for name, value in image.items():
            if value.__class__ is TypedValue:
                columns_by_name[name] = _typed(value, columns_by_name.get(name))
                image[name] = value.value
        if ABSENT in image.values():
            image = {name: value for name, value in image.items() if value is not ABSENT}
        return image, at + 1

    def plain_values(self, data: bytes, at: int) -> tuple[list[Any], int]:
        """Return the values of the image at *at* and its end.

        Raises:
            ValueError: The image lacks a column, has several blocks, or a value is of another type
                than its column.
            Exception: A value is not of its branch, or the data end in it.
        """
        count, at = read_count(data, at)
        if count != len(self._columns):
            raise ValueError
        values: list[Any] = []
        for _, branch_readers in self._columns:
            value, at = branch_readers[data[at]](data, at + 1)
            values.append(value)
        if data[at] or not _NO_VALUES.isdisjoint(map(type, values)):
            raise ValueError
        return values, at + 1

    def _wrong(self, field: str, index: int, is_end: bool) -> DecodeError:  # noqa: FBT001
        if is_end or index >= len(self._columns):
            return truncated()
        kind = str(self.schema.columns[index].type).partition("(")[0]
        path = f"$.{field}[{index}]"
        return DecodeError(f"not a value of {kind}", code=ReasonCode.WRONG_TYPE, path=path)

    def covering(
        self, columns_by_name: dict[str, Column], before: Image | None, after: Image | None
    ) -> tuple[TableSchema, Image | None, Image | None]:
        """Return the schema with the types of the values, and the images in these types.

        Raises:
            DecodeError: The values of a column have no common type.
        """
        columns: list[Column] = []
        for numbered_column in self.schema.columns:
            column = columns_by_name.get(numbered_column.name, numbered_column)
            if column is not numbered_column:
                # the other image may have a third type
                column = _common(column, before, after)
                before = _as(column, before, "beforeImages")
                after = _as(column, after, "afterImages")
            columns.append(column)
        shared_columns = tuple(columns)
        schema = self._variants.get(shared_columns)
        if schema is None:
            schema = self._variants.add(shared_columns, TableSchema(shared_columns))
        return schema, before, after

    def key(self, text: str) -> Key | None:
        """Return the primary key of a ``pk_uk_info``."""
        if text not in self._keys:
            columns = key_columns(text, self.names)
            return self._keys.add(text, Key(columns, KeyOrigin.PAYLOAD) if columns else None)
        return self._keys[text]


def _wrong_length(field: str) -> DecodeError:
    return DecodeError(
        "not as many values as fields", code=ReasonCode.WRONG_LENGTH, path=f"$.{field}"
    )


_UNSIGNED: Final = Integer(64, unsigned=True)
_DECIMAL: Final = Decimal()
_CLASSES: Final[dict[type[LogicalType], tuple[type, ...]]] = {
    Integer: (int,),
    Decimal: (decimal.Decimal,),
    Float: (float,),
    Boolean: (bool,),
    Year: (int,),
    Bytes: (bytes,),
    GeometryType: (Geometry,),
    Date: (dt.date, str),
    Timestamp: (dt.datetime, str),
    InstantType: (Instant, str),
    Interval: (dt.timedelta, int, str),
}
"""Class of a type -> the classes of its values, without subclasses; other types have text."""


def _typed(value: TypedValue, column: Column | None) -> Column:
    """Return the wider of the columns of two values."""
    if column is not None and isinstance(column.type, Decimal):
        return column
    if column is not None and column.type == _UNSIGNED and isinstance(value.column.type, Integer):
        return column
    return value.column


def _common(column: Column, before: Image | None, after: Image | None) -> Column:
    """Return a column for the negative numbers of both images, too."""
    if column.type == _UNSIGNED:
        numbers = [image.get(column.name) for image in (before, after) if image is not None]
        if any(isinstance(number, int) and number < 0 for number in numbers):
            return msgspec.structs.replace(column, type=_DECIMAL)
    return column


def _as(column: Column, image: Image | None, field: str) -> Image | None:
    value = None if image is None else image.get(column.name)
    if image is None or value is None:
        return image
    if isinstance(column.type, Decimal) and isinstance(value, int):
        return {**image, column.name: decimal.Decimal(value)}
    if type(value) not in _CLASSES.get(type(column.type), (str,)):
        raise DecodeError("a column of two types", code=ReasonCode.WRONG_TYPE, path=f"$.{field}")
    return image


def read_image(
    plan: TablePlan | None, data: bytes, at: int, columns_by_name: dict[str, Column], field: str
) -> tuple[Image | str | None, int]:
    """Return the content of one of the two image fields, and its end."""
    branch = data[at]
    if branch == 0:
        return None, at + 1
    if branch == 2:
        return read_text(data, at + 1)
    if branch != 4:
        raise ValueError
    if plan is None:
        raise DecodeError(
            "values without their fields", code=ReasonCode.MISSING_FIELD, path="$.fields"
        )
    return plan.read(data, at + 1, columns_by_name, field)

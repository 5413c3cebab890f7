# SPDX-License-Identifier: Apache-2.0
"""The conversion of rows into Canal's texts, compiled once for each schema."""

import datetime as dt
import decimal
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from changelane.errors import EncodeError
from changelane.event import Image
from changelane.formats.canal.dialects import Dialect
from changelane.formats.canal.values import NOT_A_VALUE, ForeignValue, Write, write_integer, writer
from changelane.formats.canal.wire import JsonRow
from changelane.formats.contract import json
from changelane.formats.contract.format import Report
from changelane.schema import TableSchema
from changelane.sql_types.mysql import MySqlType, parse, text_of
from changelane.types import Bits, Decimal, Enum, Float, Integer, Set, String, Value
from changelane.types.values import plain_float, value_text

NULL: Final = msgspec.Raw(b"null")
_ABSENT: Final = object()


class WriteOptions(msgspec.Struct, frozen=True):
    """The options of a writer: the dialect, the zone of TIMESTAMP, whether ``gtid`` is written."""

    dialect: Dialect
    zone: dt.tzinfo
    gtid: bool = True


class TablePlan:
    """The conversion of images of one schema into rows of text, compiled once.

    Attributes:
        texts: The map ``mysqlType``; empty without a schema.
        mysql_types: The same as JSON; null without a schema.
        unsized: BIT columns without a length.
        omits_members: There are ENUM or SET columns, and their members are not written.
        columns: The columns with their writers.
        by_value: The columns whose code in ``sqlType`` depends on the value.
        usual_sql_types: The map ``sqlType`` as JSON, if no code depends on a value.
    """

    def __init__(self, schema: TableSchema | None, options: WriteOptions) -> None:
        self.columns: tuple[tuple[str, Write | None], ...] = ()
        self.texts: Mapping[str, str] = {}
        self._codes: dict[str, int] = {}
        self.unsized: list[str] = []
        self.omits_members = False
        self._numbers: frozenset[str] = frozenset()
        self._json_values = options.dialect.json_values
        self.usual_sql_types = self.mysql_types = NULL
        self.by_value: tuple[tuple[str, MySqlType, int], ...] = ()
        if schema is None:
            return
        texts = {column.name: text_of(column.type, column.source_type) for column in schema.columns}
        types = {name: parse(text) for name, text in texts.items()}
        if options.dialect.bare_types:
            texts = {name: bare(text) for name, text in texts.items()}
        self.columns = tuple(
            (name, _writer(mysql_type, options)) for name, mysql_type in types.items()
        )
        dialect = options.dialect
        if dialect.promotes:
            types = {name: promoted(mysql_type) for name, mysql_type in types.items()}
        self._codes = {
            name: dialect.codes.get(bare(texts[name]), mysql_type.code)
            for name, mysql_type in types.items()
        }
        self.by_value = tuple(
            # the least value with the highest bit set
            (name, mysql_type, 1 << (getattr(mysql_type.kind, "bits", 1) - 1))
            for name, mysql_type in types.items()
            if mysql_type.high_code is not None or mysql_type.null_code is not None
        )
        self.unsized = [name for name in types if parse(texts[name]).kind == Bits()]
        kinds = {name: mysql_type.kind for name, mysql_type in types.items()}
        if options.dialect.bare_types:
            self.omits_members = any(isinstance(kind, Enum | Set) for kind in kinds.values())
        if options.dialect.json_values:
            self._numbers = frozenset(
                name for name, kind in kinds.items() if isinstance(kind, Integer | Decimal | Float)
            )
        self.texts = texts
        self.mysql_types = msgspec.Raw(json.dumps(texts))
        self.usual_sql_types = msgspec.Raw(json.dumps(self._codes))

    def row(self, image: Image, report: Report) -> JsonRow:
        """Return an image as texts, with its columns in the order of the table.

        Args:
            image: The image.
            report: Called for each value that MySQL does not have.

        Raises:
            EncodeError: A value is not of its column's type.
        """
        row: JsonRow = {}
        name, absent, write_plain_integer = "", _ABSENT, write_integer
        try:
            for name, write in self.columns:
                value = image.get(name, absent)
                if value is None:
                    row[name] = None
                elif write is write_plain_integer and value.__class__ is int:
                    row[name] = f"{value}"  # its result, without the call
                elif value is absent:
                    continue
                elif write is not None:
                    row[name] = write(value)
                elif isinstance(value, str):
                    row[name] = value
                else:
                    raise TypeError
        except ForeignValue:
            row = self._row_with_losses(image, report)
        except NOT_A_VALUE:
            raise EncodeError(f"column {name!r} has a value that is not of its type") from None
        if len(row) != len(image):
            for name, value in image.items():
                if name not in row:
                    row[name] = self._untyped(value)
        return row

    def _untyped(self, value: Value) -> Any:
        if value is None or type(value) is str:
            return value
        if self._json_values and isinstance(value, bool | int | list | dict):
            return value
        text = value_text(String(), value)
        if self._json_values and isinstance(value, float | decimal.Decimal):
            return number(text)
        return text

    def as_json(self, row: JsonRow) -> JsonRow:
        """Return a row of texts with the numeric columns as JSON numbers."""
        return {
            name: number(text) if name in self._numbers and isinstance(text, str) else text
            for name, text in row.items()
        }

    def _row_with_losses(self, image: Image, report: Report) -> JsonRow:
        """Return the texts of an image with values that MySQL does not have."""
        row: JsonRow = {}
        for name, write in self.columns:
            value = image.get(name)
            try:
                if write is not None and value is not None:
                    row[name] = write(value)
                elif isinstance(value, str) or (value is None and name in image):
                    row[name] = value
                elif name in image:
                    raise TypeError
            except ForeignValue as foreign_value:
                report(foreign_value.loss)
                row[name] = foreign_value.text
            except NOT_A_VALUE:
                msg = f"column {name!r} has a value that is not of its type"
                raise EncodeError(msg) from None
        return row

    def check(self, image: Image, report: Report) -> None:
        """Report bits with leading zeros, which a number without the column's length loses."""
        for name in self.unsized:
            value = image.get(name)
            if isinstance(value, str) and value.startswith("0") and value != "0":
                report(("value:bits", "leading zeros of bits without a length"))

    def sql_types(self, image: Image) -> msgspec.Raw:
        """Return the map ``sqlType`` of a row as JSON."""
        codes = self.codes(image)
        return self.usual_sql_types if codes is self._codes else msgspec.Raw(json.dumps(codes))

    def codes(self, image: Image) -> Mapping[str, int]:
        """Return the map ``sqlType`` of a row: the codes depend on its values."""
        if not self.by_value:
            return self._codes
        codes: dict[str, int] = {}
        for name, mysql_type, high in self.by_value:
            value = image.get(name)
            if value is None:
                if mysql_type.null_code is not None and name in image:
                    codes[name] = mysql_type.null_code
            elif mysql_type.high_code is not None and isinstance(value, int) and value >= high:
                codes[name] = mysql_type.high_code
        return self._codes | codes if codes else self._codes


def _writer(mysql_type: MySqlType, options: WriteOptions) -> Write | None:
    """Return the function from the values of a column to text; ``None`` if they are the text."""
    dialect = options.dialect
    if dialect.plain_floats and isinstance(mysql_type.kind, Float):
        return plain_float
    return writer(mysql_type, labels=dialect.labels, zone=options.zone)


def promoted(mysql_type: MySqlType) -> MySqlType:
    """Return a type with the code of the wider type to which its unsigned numbers convert.

    >>> promoted(parse("int unsigned")).code, promoted(parse("bigint unsigned")).code
    (-5, 3)
    """
    if mysql_type.high_code is None:
        return mysql_type
    return msgspec.structs.replace(mysql_type, code=mysql_type.high_code, high_code=None)


def bare(text: str) -> str:
    """Return a type without lengths, digits and members.

    >>> bare("ENUM('a','b')"), bare("bigint(20) unsigned")
    ('enum', 'bigint unsigned')
    """
    start, end = text.find("("), text.rfind(")")
    if 0 <= start < end:
        text = text[:start].rstrip() + text[end + 1 :]
    return text.lower()


def number(text: str) -> msgspec.Raw | str:
    """Return a number's text as a JSON number; NaN and infinity stay text."""
    return text if text.lstrip("-")[:1] in {"N", "I", "s"} else msgspec.Raw(text.encode())

# SPDX-License-Identifier: Apache-2.0
"""The table of the branches of a value, from which both directions derive.

The number of a column gives its type, and each value has a branch of its own. A value of another
type than its column has its type beside it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from changelane import types as t
from changelane.formats.dts import numeric_branches as numbers
from changelane.formats.dts import temporal_branches as times
from changelane.formats.dts import text_branches as texts
from changelane.formats.dts.avro import UNION, branch_of
from changelane.formats.dts.values import ABSENT, ColumnForm, Read, Write

NULL: Final = branch_of("null")
NONE: Final = branch_of("EmptyObject") + b"\x02"
"""``EmptyObject`` NONE: the value is not known."""


def _null_reader(_form: ColumnForm) -> Read:
    return lambda _data, at: (None, at)


def _empty_reader(_form: ColumnForm) -> Read:
    symbols = {0: None, 2: ABSENT}
    return lambda data, at: (symbols[data[at]], at + 1)


class Branch(msgspec.Struct, frozen=True):
    """A branch of the union of values.

    Attributes:
        reader: Returns the reader of the branch in a column.
        writers: Class of a column's type, with the family of the source where only that one writes
            it so -> returns the writer of a column.
    """

    reader: Callable[[ColumnForm], Read]
    writers: Mapping[
        type[t.LogicalType] | tuple[type[t.LogicalType], str], Callable[[ColumnForm], Write]
    ] = {}


BRANCHES: Final[Mapping[str, Branch]] = {
    "null": Branch(_null_reader),
    "Integer": Branch(
        numbers.integer_reader,
        {t.Integer: numbers.integer_writer, (t.Bits, "mysql"): numbers.bits_writer},
    ),
    "Character": Branch(
        texts.character_reader,
        {
            t.String: texts.character_writer,
            (t.Xml, "oracle"): texts.character_writer,
            (t.Bytes, "mysql"): texts.mysql_bytes_writer,
        },
    ),
    "Decimal": Branch(
        numbers.decimal_reader,
        {t.Decimal: numbers.decimal_writer, (t.Integer, "oracle"): numbers.oracle_integer_writer},
    ),
    "Float": Branch(numbers.float_reader, {t.Float: numbers.float_writer}),
    "Timestamp": Branch(times.timestamp_reader, {t.InstantType: times.timestamp_writer}),
    "DateTime": Branch(
        times.date_time_reader,
        dict.fromkeys((t.Date, t.Time, t.Timestamp, t.Year, t.Interval), times.date_time_writer),
    ),
    "TimestampWithTimeZone": Branch(
        times.zoned_reader,
        {
            t.TimeTz: times.zoned_writer,
            (t.InstantType, "postgresql"): times.zoned_writer,
            (t.InstantType, "oracle"): times.zoned_writer,
        },
    ),
    "BinaryGeometry": Branch(texts.binary_geometry_reader, {t.GeometryType: texts.geometry_writer}),
    "TextGeometry": Branch(texts.text_geometry_reader),
    "BinaryObject": Branch(texts.binary_object_reader, {t.Bytes: texts.bytes_writer}),
    "TextObject": Branch(
        texts.text_object_reader,
        {
            **dict.fromkeys((t.Bits, t.Enum, t.Set, t.Json, t.Xml, t.Uuid), texts.label_writer),
            t.Boolean: texts.boolean_writer,
            t.Text: texts.text_writer,
            (t.Interval, "postgresql"): texts.interval_text_writer,
        },
    ),
    "EmptyObject": Branch(_empty_reader),
}
"""Name of a branch in the Avro schema -> its readers and writers."""

_READERS: Final = tuple(BRANCHES[name].reader for name in UNION)
_WRITERS: Final = {
    kind: make for branch in BRANCHES.values() for kind, make in branch.writers.items()
}

TYPES: Final = frozenset(kind for kind in _WRITERS if isinstance(kind, type))
"""The logical types that have a branch."""


def _reject(_data: bytes, _at: int) -> tuple[Any, int]:
    raise ValueError


def readers(form: ColumnForm) -> tuple[Read, ...]:
    """Return the reader for each byte before a value, which is twice the number of its branch."""
    return tuple(read for make in _READERS for read in (make(form), _reject))


def writer(form: ColumnForm) -> Write:
    """Return the writer of the values of a column."""
    kind = type(form.type)
    return (_WRITERS.get((kind, form.family.name)) or _WRITERS[kind])(form)

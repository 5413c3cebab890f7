# SPDX-License-Identifier: Apache-2.0
"""The branches of text, bytes and geometries, in both directions.

``Character``, ``BinaryObject``, ``TextObject``, ``BinaryGeometry`` and ``TextGeometry``.
"""

import datetime as dt
import decimal
import re
from typing import Any, Final

from changelane import types as t
from changelane.formats.contract.avro_binary import (
    bytes_of,
    long_of,
    read_bytes,
    read_text,
    text_of,
)
from changelane.formats.contract.format import Report
from changelane.formats.dts import charsets
from changelane.formats.dts.avro import branch_of
from changelane.formats.dts.type_numbers import MYSQL, POSTGRESQL, stated_charset
from changelane.formats.dts.values import ColumnForm, Read, Write, expect
from changelane.types.values import value_text

_CHARACTER: Final = branch_of("Character")
_BINARY_OBJECT: Final = branch_of("BinaryObject")
_TEXT_OBJECT: Final = branch_of("TextObject")
_BINARY_GEOMETRY: Final = branch_of("BinaryGeometry")
_TEXT_GEOMETRY: Final = branch_of("TextGeometry")

_TEXTS: Final = (t.String, t.Text, t.Json, t.Xml, t.Enum, t.Set, t.Uuid)

# -- Character -------------------------------------------------------------------------------------


def character_reader(form: ColumnForm) -> Read:
    """Return the reader of ``Character`` in a column."""
    kind = form.type
    is_text = isinstance(kind, _TEXTS)
    plain = {charsets.DEFAULT.encode()}
    if form.family is not MYSQL:
        plain |= {name.encode() for name in charsets.UTF8}

    def read(data: bytes, at: int) -> tuple[Any, int]:
        charset, at = read_bytes(data, at)
        content, at = read_bytes(data, at)
        if is_text and charset in plain:
            return content.decode(), at
        return other(charset.decode(), content), at

    def other(charset: str, content: bytes) -> Any:
        decode = charsets.decoder(charset)
        if decode is None:  # an empty or unknown character set: the value is the bytes
            return form.fitting(content, t.Bytes())
        text = decode(content)
        charset_name = None if charset.encode() in plain else charset
        return form.typed(text, kind if is_text else t.String(), charset_name)

    return read


def character_writer(form: ColumnForm) -> Write:
    """Return the writer of text in the column's character set, or in the default one."""
    charset = stated_charset(form.column) or charsets.DEFAULT
    default = _CHARACTER + text_of(charsets.DEFAULT)
    stated = _CHARACTER + text_of(charset)
    is_utf8 = charset.lower() in charsets.UTF8

    def write(value: str, _report: Report) -> bytes:
        data = value.encode() if is_utf8 else charsets.encode(value, charset)
        if data is None:
            return default + bytes_of(value.encode())
        return stated + long_of(len(data)) + data

    return write


# -- BinaryObject ----------------------------------------------------------------------------------


def binary_object_reader(form: ColumnForm) -> Read:
    """Return the reader of ``BinaryObject`` in a column."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        label, at = read_text(data, at)
        content, at = read_bytes(data, at)
        match label.upper():
            case "BIT" | "BITS" | "VARBIT":
                return form.fitting("".join(f"{byte:08b}" for byte in content), t.Bits()), at
            case "JSON" | "JSONB":
                return form.fitting(content.decode(), t.Json()), at
            case _:
                return form.fitting(content, t.Bytes()), at

    return read


def _bytes_writer(head: bytes) -> Write:
    def write(value: bytes, _report: Report) -> bytes:
        expect(value, bytes)
        return head + bytes_of(value)

    return write


def bytes_writer(_form: ColumnForm) -> Write:
    """Return the writer of a column of bytes."""
    return _bytes_writer(_BINARY_OBJECT + text_of("BLOB"))


def mysql_bytes_writer(form: ColumnForm) -> Write:
    """Return the writer of a column of bytes of MySQL, whose VARBINARY has a number of text."""
    if form.number in {15, 253, 254}:
        return _bytes_writer(_CHARACTER + text_of(charsets.BINARY))
    return bytes_writer(form)


# -- TextObject ------------------------------------------------------------------------------------

_LABELS: Final[dict[str, t.LogicalType]] = {
    "ENUM": t.Enum(),
    "SET": t.Set(),
    "JSON": t.Json(),
    "JSONB": t.Json(),
    "TEXT": t.String(),
    "STRING": t.String(),
    "XML": t.Xml(),
    "UUID": t.Uuid(),
    "BOOL": t.Boolean(),
    "BOOLEAN": t.Boolean(),
    "BIT": t.Bits(),
    "VARBIT": t.Bits(),
    "INTERVAL": t.Text("interval"),
}
"""The ``type`` of a ``TextObject`` -> its logical type, which is written with its first label."""
_LABEL_OF: Final = {type(kind): label for label, kind in reversed(_LABELS.items())}
_BOOLEANS: Final = {"t": True, "true": True, "1": True, "f": False, "false": False, "0": False}
_BITS: Final = re.compile("[01]*")
_ISO_INTERVAL: Final = re.compile(r"P(?=[-+.\dT])(?:[-+]?[\d.]+[YMWD])*(?:T(?:[-+]?[\d.]+[HMS])+)?")


def text_object_reader(form: ColumnForm) -> Read:
    """Return the reader of ``TextObject`` in a column."""
    kind = form.type
    has_text_number = form.number in form.family.numbers and isinstance(kind, _TEXTS)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        label, at = read_text(data, at)
        text, at = read_text(data, at)
        text_type = _LABELS.get(label.upper()) or t.Text(label.lower())
        if text_type == t.Text("interval") and _ISO_INTERVAL.fullmatch(text):
            text_type = t.Interval()
        if type(text_type) is type(kind) or (
            has_text_number and isinstance(text_type, t.String | t.Text)
        ):
            return _labelled(text, kind), at
        return form.typed(_labelled(text, text_type), text_type), at

    return read


def _labelled(text: str, kind: t.LogicalType) -> t.Value:
    if isinstance(kind, t.Boolean):
        return _BOOLEANS[text.lower()]
    if isinstance(kind, t.Bits) and not _BITS.fullmatch(text):
        raise ValueError
    return text


def _text_writer(head: bytes) -> Write:
    return lambda value, _report: head + text_of(value)


def _head_of(label: str) -> bytes:
    return _TEXT_OBJECT + text_of(label)


def label_writer(form: ColumnForm) -> Write:
    """Return the writer of text under the label of its type."""
    return _text_writer(_head_of(_LABEL_OF[type(form.type)]))


def boolean_writer(_form: ColumnForm) -> Write:
    """Return the writer of a column of booleans."""
    head = _head_of("BOOL")

    def write(value: bool, _report: Report) -> bytes:  # noqa: FBT001
        expect(value, bool)
        return head + text_of("t" if value else "f")

    return write


_SHAPES: Final = frozenset({"point", "lseg", "path", "box", "polygon", "line", "circle"})


def text_writer(form: ColumnForm) -> Write:
    """Return the writer of a database type without a logical type, under its name."""
    name = form.type.name if isinstance(form.type, t.Text) else ""
    is_shape = form.family is POSTGRESQL and form.number in form.family.numbers and name in _SHAPES
    branch = _TEXT_GEOMETRY if name == "wkt" or is_shape else _TEXT_OBJECT
    return _text_writer(branch + text_of(name.upper()))


def written_interval(text: str) -> bytes:
    """Return the ``TextObject`` of an interval."""
    return _head_of("INTERVAL") + text_of(text)


def interval_text_writer(form: ColumnForm) -> Write:
    """Return the writer of an interval as text."""
    if form.type == t.Interval():
        return _text_writer(_head_of("INTERVAL"))

    def write(value: t.Value, report: Report) -> bytes:
        report(("type:interval", "PostgreSQL's intervals are text"))
        if isinstance(value, dt.timedelta):
            micros = decimal.Decimal(value // dt.timedelta(microseconds=1))
            return written_interval(f"PT{micros.scaleb(-6):f}S")
        return written_interval(value_text(t.String(), value))

    return write


# -- geometries ------------------------------------------------------------------------------------

_POINT_BYTES: Final = 21
_GEOMETRY_TYPES: Final = 17


def binary_geometry_reader(form: ColumnForm) -> Read:
    """Return the reader of ``BinaryGeometry`` in a column."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        _, at = read_bytes(data, at)
        content, at = read_bytes(data, at)
        return form.fitting(_geometry(content), t.GeometryType()), at

    return read


def _is_wkb(data: bytes) -> bool:
    """Return whether bytes start like well-known binary: a byte order and a type of geometry."""
    if len(data) < 5 or data[0] > 1:
        return False
    kind = int.from_bytes(data[1:5], "little" if data[0] else "big")
    # PostGIS flags in the highest bits, dimensions in the thousands
    return 0 < (kind & 0x1FFFFFFF) % 1000 <= _GEOMETRY_TYPES and (kind & 0x1FFFFFFF) < 4000


def _geometry(data: bytes) -> t.Geometry:
    """Return a geometry, without MySQL's spatial reference before it.

    Reference 0 and the byte order after it look like the head of a big-endian point, which has 21
    bytes.
    """
    is_plain = _is_wkb(data) and not (data[:5] == b"\0\0\0\0\1" and len(data) != _POINT_BYTES)
    if not is_plain and _is_wkb(data[4:]):
        return t.Geometry(data[4:], int.from_bytes(data[:4], "little") or None)
    return t.Geometry(data or None)


def geometry_writer(_form: ColumnForm) -> Write:
    """Return the writer of a column of geometries."""
    head = _BINARY_GEOMETRY + text_of("WKB")

    def write(value: t.Geometry, report: Report) -> bytes:
        if value.srid is not None:
            report(("value:geometry", "its spatial reference is not written"))
        if value.wkb == b"":
            report(("value:geometry", "a geometry of no bytes is read as one without bytes"))
        return head + bytes_of(value.wkb or b"")

    return write


def text_geometry_reader(form: ColumnForm) -> Read:
    """Return the reader of ``TextGeometry`` in a column."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        label, at = read_text(data, at)
        text, at = read_text(data, at)
        return form.fitting(text, t.Text(label.lower())), at

    return read

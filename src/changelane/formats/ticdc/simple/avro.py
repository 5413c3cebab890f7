# SPDX-License-Identifier: Apache-2.0
"""The Avro form of TiCDC's simple protocol: one fixed schema, without a registry.

TiCDC makes its codec of the list of all types, so a datum starts with the number of ``Message`` in
that list. A datum of the record ``Message`` alone is read, too. Source: ``message.json``,
``marshaller.go`` and ``avro.go`` in ``pkg/sink/codec/simple`` of
https://github.com/pingcap/tiflow and https://github.com/pingcap/ticdc.

An empty field is 0 or empty text, where Avro has no null. Numbers of 64 bits without a sign are
written as their two's complement.
"""

import binascii
import decimal
import struct
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.formats.contract import avro_readers
from changelane.formats.contract.avro_binary import (
    bytes_of,
    long_of,
    read_bytes,
    read_long,
    read_text,
    text_of,
)
from changelane.formats.contract.avro_readers import (
    Read,
    array_reader,
    enum_reader,
    map_reader,
    optional_reader,
    read_boolean,
    record_reader,
    union_reader,
)
from changelane.formats.ticdc.simple.wire import JsonRow, SimpleMessage
from changelane.reason_codes import ReasonCode
from changelane.types import Bytes, Enum, Float, Integer, LogicalType, Set, Year

_MESSAGE: Final = long_of(11)
"""The number of ``Message`` among the types of the schema."""
AVRO_STARTS: Final = frozenset({_MESSAGE, *map(long_of, range(4))})
"""The first byte of each datum."""
_KINDS: Final = ("WATERMARK", "BOOTSTRAP", "DDL", "DML")
_DDL_TYPES: Final = tuple("CREATE ALTER ERASE RENAME TRUNCATE CINDEX DINDEX QUERY".split())
_DML_TYPES: Final = ("INSERT", "UPDATE", "DELETE")
_UNSIGNED: Final = 1 << 64


# -- reading ---------------------------------------------------------------------------------------


def _nullable(read: Read) -> Read:
    return optional_reader(1, read)


def _record(**members: Read) -> Read:
    """Return the reader of a record, without the fields that are null."""
    read_record = record_reader(tuple(members.items()))

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        record, at = read_record(data, at)
        return {name: value for name, value in record.items() if value is not None}, at

    return read


def _read_null(_data: bytes, at: int) -> tuple[None, int]:
    return None, at


def _read_unsigned(data: bytes, at: int) -> tuple[int, int]:
    number, at = read_long(data, at)
    return number % _UNSIGNED, at


def _number_reader(read: Read) -> Read:
    """Return the reader of floats as exact numbers, which JSON has."""

    def read_number(data: bytes, at: int) -> tuple[Any, int]:
        value, at = read(data, at)
        return value if isinstance(value, str) else decimal.Decimal(repr(value)), at

    return read_number


_ROW: Final = _nullable(
    map_reader(
        union_reader(
            (
                _read_null,
                read_long,
                _number_reader(avro_readers.read_float),
                _number_reader(avro_readers.read_double),
                read_text,
                read_bytes,
                _record(location=read_text, value=read_text),
                _read_unsigned,  # a record of one field
            )
        )
    )
)
_TABLE: Final = _record(
    schema=read_text,
    table=read_text,
    tableID=read_long,
    version=_read_unsigned,
    columns=array_reader(
        _record(
            name=read_text,
            dataType=_record(
                mysqlType=read_text,
                charset=read_text,
                collate=read_text,
                length=read_long,
                decimal=_nullable(read_long),
                elements=_nullable(array_reader(read_text)),
                unsigned=_nullable(read_boolean),
                zerofill=_nullable(read_boolean),
            ),
            nullable=read_boolean,
            default=_nullable(read_text),
        )
    ),
    indexes=array_reader(
        _record(
            name=read_text,
            unique=read_boolean,
            primary=read_boolean,
            nullable=read_boolean,
            columns=array_reader(read_text),
        )
    ),
)
_WATERMARK: Final = _record(version=read_long, commitTs=_read_unsigned, buildTs=read_long)
_BOOTSTRAP: Final = _record(version=read_long, buildTs=read_long, tableSchema=_TABLE)
_DDL: Final = _record(
    version=read_long,
    type=enum_reader(_DDL_TYPES),
    sql=read_text,
    commitTs=_read_unsigned,
    buildTs=read_long,
    tableSchema=_nullable(_TABLE),
    preTableSchema=_nullable(_TABLE),
)
_DML: Final = _record(
    version=read_long,
    database=read_text,
    table=read_text,
    tableID=read_long,
    type=enum_reader(_DML_TYPES),
    commitTs=_read_unsigned,
    buildTs=read_long,
    schemaVersion=_read_unsigned,
    claimCheckLocation=_nullable(read_text),
    handleKeyOnly=_nullable(read_boolean),
    checksum=_nullable(
        _record(
            version=read_long,
            corrupted=read_boolean,
            current=read_long,
            previous=read_long,
        )
    ),
    data=_ROW,
    old=_ROW,
)
_read_message: Final = _record(
    kind=enum_reader(_KINDS), payload=union_reader((_WATERMARK, _BOOTSTRAP, _DDL, _DML))
)


def read_avro(data: bytes) -> SimpleMessage:
    """Return the message of an Avro datum.

    Raises:
        DecodeError: It is not a datum of the schema.
    """
    try:
        message, end = _read_message(data, len(_MESSAGE) if data.startswith(_MESSAGE) else 0)
    except UnicodeDecodeError:
        raise DecodeError("a text is not UTF-8", code=ReasonCode.INVALID_UTF8) from None
    except avro_readers.NOT_A_DATUM:
        raise _not_a_datum() from None
    if end < len(data):
        raise DecodeError("bytes follow the Avro datum", code=ReasonCode.TRAILING_BYTES)
    if end > len(data):
        raise _not_a_datum()
    payload = message["payload"]
    fields = {name: value for name, value in payload.items() if value or name in _KEPT}
    return msgspec.convert({"type": message["kind"]} | fields, SimpleMessage)


_KEPT: Final = frozenset({"version", "data", "old"})
"""Fields that are not empty with 0, or without columns."""


def _not_a_datum() -> DecodeError:
    reason = "neither JSON nor an Avro datum of the simple protocol"
    return DecodeError(reason, code=ReasonCode.MALFORMED_AVRO)


# -- writing ---------------------------------------------------------------------------------------

_NULL: Final = long_of(0)
_SOME: Final = long_of(1)
_BRANCHES: Final = tuple(map(long_of, range(8)))
_LONG, _FLOAT, _DOUBLE, _TEXT, _BYTES, _TIMESTAMP, _UNSIGNED_LONG = _BRANCHES[1:]


def write_avro(message: Mapping[str, Any], types: Mapping[str, LogicalType]) -> bytes:
    """Return the Avro datum of a message without a ``tableSchema``.

    Args:
        message: The message as in JSON.
        types: The types of columns; values of others are texts.
    """
    version, build = long_of(message["version"]), long_of(message.get("buildTs") or 0)
    commit = _signed(message.get("commitTs") or 0)
    kind = message["type"]
    if kind == "WATERMARK":
        return _datum(kind, version + commit + build)
    if kind in _DDL_TYPES:
        head = version + long_of(_DDL_TYPES.index(kind)) + text_of(message.get("sql") or "")
        return _datum("DDL", head + commit + build + _NULL + _NULL)
    parts = [
        version,
        text_of(message.get("database") or ""),
        text_of(message.get("table") or ""),
        long_of(message.get("tableID") or 0),
        long_of(_DML_TYPES.index(kind)),
        commit,
        build,
        _signed(message.get("schemaVersion") or 0),
        _NULL,
        _SOME + b"\x01" if message.get("handleKeyOnly") else _NULL,
        _NULL,
        *(_row(message.get(name), types) for name in ("data", "old")),
    ]
    return _datum("DML", b"".join(parts))


def _datum(kind: str, payload: bytes) -> bytes:
    number = long_of(_KINDS.index(kind))
    return _MESSAGE + number + number + payload


def _signed(number: int) -> bytes:
    return long_of(number - _UNSIGNED if number >= _UNSIGNED >> 1 else number)


def _row(row: JsonRow | None, types: Mapping[str, LogicalType]) -> bytes:
    if row is None:
        return _NULL
    items = [text_of(name) + _value(types.get(name), value) for name, value in row.items()]
    block = long_of(len(items)) + b"".join(items) if items else b""
    return _SOME + block + b"\x00"


def _value(kind: LogicalType | None, value: Any) -> bytes:
    """Return a value, which is a text or the object of a TIMESTAMP, in the form of its type."""
    if value is None:
        return _NULL
    if isinstance(value, dict):
        return _TIMESTAMP + text_of(value["location"]) + text_of(value["value"])
    match kind:
        case Integer(64, True):
            return _UNSIGNED_LONG + _signed(int(value))
        case Integer() | Year() | Enum() | Set():
            return _LONG + _signed(int(value))
        case Float(bits):
            form, branch = ("<f", _FLOAT) if bits == 32 else ("<d", _DOUBLE)
            return branch + struct.pack(form, float(value))
        case Bytes():
            return _BYTES + bytes_of(binascii.a2b_base64(value))
        case _:
            return _TEXT + text_of(value)

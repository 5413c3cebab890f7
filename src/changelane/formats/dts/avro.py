# SPDX-License-Identifier: Apache-2.0
"""The record of DTS in Avro: its schema as data, and the primitives of its binary form.

The schema has two versions: version 2 ends in ``bornTimestamp``. Arrays and maps are written as one
block with a positive count. Blocks with a negative count and a size are read, too.
"""

from typing import Any, Final

from changelane.errors import DecodeError
from changelane.reason_codes import ReasonCode

NAMESPACE: Final = "com.alibaba.dts.formats.avro"

SOURCE_TYPES: Final = (
    "MySQL",
    "Oracle",
    "SQLServer",
    "PostgreSQL",
    "MongoDB",
    "Redis",
    "DB2",
    "PPAS",
    "DRDS",
    "HBASE",
    "HDFS",
    "FILE",
    "OTHER",
)
OPERATIONS: Final = (
    "INSERT",
    "UPDATE",
    "DELETE",
    "DDL",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "ABORT",
    "HEARTBEAT",
    "CHECKPOINT",
    "COMMAND",
    "FILL",
    "FINISH",
    "CONTROL",
    "RDB",
    "NOOP",
    "INIT",
)

_DATE_TIME_PARTS: Final = ("year", "month", "day", "hour", "minute", "second", "millis")


def _record(name: str, /, **fields: Any) -> dict[str, Any]:
    listed = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": listed}


_DATE_TIME: Final = _record("DateTime", **{part: ["null", "int"] for part in _DATE_TIME_PARTS})
_UNION: Final[list[Any]] = [
    "null",
    _record("Integer", precision="int", value="string"),
    _record("Character", charset="string", value="bytes"),
    _record("Decimal", value="string", precision="int", scale="int"),
    _record("Float", value="double", precision="int", scale="int"),
    _record("Timestamp", timestamp="long", millis="int"),
    _DATE_TIME,
    _record("TimestampWithTimeZone", value="DateTime", timezone="string"),
    _record("BinaryGeometry", type="string", value="bytes"),
    _record("TextGeometry", type="string", value="string"),
    _record("BinaryObject", type="string", value="bytes"),
    _record("TextObject", type="string", value="string"),
    {"type": "enum", "name": "EmptyObject", "symbols": ["NULL", "NONE"]},
]
"""The types of a value. The number of a branch is its place in the list."""
UNION: Final = tuple(kind if isinstance(kind, str) else kind["name"] for kind in _UNION)
"""The names of these types."""


def _schema(*, is_born: bool) -> dict[str, Any]:
    """Return the schema of the record, with each named type written out at its first use."""
    source_type = {"type": "enum", "name": "SourceType", "symbols": list(SOURCE_TYPES)}
    field = _record("Field", name="string", dataTypeNumber="int")
    record = _record(
        "Record",
        version="int",
        id="long",
        sourceTimestamp="long",
        sourcePosition="string",
        safeSourcePosition="string",
        sourceTxid="string",
        source=_record("Source", sourceType=source_type, version="string"),
        operation={"type": "enum", "name": "Operation", "symbols": list(OPERATIONS)},
        objectName=["null", "string"],
        processTimestamps=["null", {"type": "array", "items": "long"}],
        tags={"type": "map", "values": "string"},
        fields=["null", "string", {"type": "array", "items": field}],
        beforeImages=["null", "string", {"type": "array", "items": _UNION}],
        afterImages=["null", "string", {"type": "array", "items": list(UNION)}],
        **({"bornTimestamp": "long"} if is_born else {}),
    )
    return record | {"namespace": NAMESPACE}


SCHEMA_V1: Final = _schema(is_born=False)
"""The Avro schema of records without ``bornTimestamp``."""
SCHEMA_V2: Final = _schema(is_born=True)
"""The Avro schema that is written."""

NOT_A_DATUM: Final = (IndexError, ValueError)
"""The exceptions for data that end too early, a wrong length and bytes that are not UTF-8."""

_MOST_VARINT_BYTES: Final = 10


def truncated() -> DecodeError:
    """Return the error for data that end too early or are not a record."""
    return DecodeError("not a DTS record in Avro", code=ReasonCode.MALFORMED_AVRO)


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """Return the zig-zag number at *at* and its end.

    Raises:
        IndexError: The data end inside the number.
        ValueError: The number has more than 64 bits.
    """
    byte = data[at]
    at += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), at
    number, shift = byte & 127, 7
    last = at + _MOST_VARINT_BYTES - 1
    while byte > 127:
        if at == last:
            raise ValueError
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        shift += 7
    if number >> 64:
        raise ValueError
    return (number >> 1) ^ -(number & 1), at


def read_size(data: bytes, at: int) -> tuple[int, int]:
    """Return a length and its end.

    Raises:
        IndexError: The data have fewer bytes.
        ValueError: The length is negative.
    """
    size, at = read_long(data, at)
    if size < 0:
        raise ValueError
    if at + size > len(data):
        raise IndexError
    return size, at


def read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    """Return the bytes at *at* and their end."""
    size = data[at]
    if size & 0x81:  # more than one byte long, or negative
        size, at = read_size(data, at)
    else:
        size >>= 1
        at += 1
    end = at + size
    return data[at:end], end


def read_text(data: bytes, at: int) -> tuple[str, int]:
    """Return the UTF-8 text at *at* and its end. A short text of cut data is found at the end."""
    size = data[at]
    if size & 0x81:
        size, at = read_size(data, at)
    else:
        size >>= 1
        at += 1
    end = at + size
    return data[at:end].decode(), end


def read_count(data: bytes, at: int) -> tuple[int, int]:
    """Return the number of items in the next block of an array or map (0 ends it), and its start.

    Raises:
        IndexError: There are fewer bytes than items; each item has at least one.
    """
    count, at = read_long(data, at)
    if count < 0:
        count = -count
        _, at = read_long(data, at)  # the size of the block, for readers that skip it
    if count > len(data) - at:
        raise IndexError
    return count, at


def _varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


_SHORT: Final = tuple(map(_varint, range(4096)))


def long_of(number: int) -> bytes:
    """Return the zig-zag form of a number of at most 64 bits."""
    return _SHORT[number] if 0 <= number < 4096 else _varint(number)


def bytes_of(value: bytes) -> bytes:
    """Return bytes after their length."""
    return long_of(len(value)) + value


def text_of(value: str) -> bytes:
    """Return text after its length in bytes.

    Raises:
        UnicodeEncodeError: The text has a lone surrogate.
    """
    data = value.encode()
    return long_of(len(data)) + data


def branch_of(name: str) -> bytes:
    """Return the number of a branch of the union of values."""
    return long_of(UNION.index(name))

# SPDX-License-Identifier: Apache-2.0
"""Records of DTS, written by fastavro with the schema of the format."""

import io
from typing import Any

import fastavro

from changelane import Message, get_codec
from changelane.formats.dts.avro import NAMESPACE, SCHEMA_V1, SCHEMA_V2

V1 = fastavro.parse_schema(SCHEMA_V1)
V2 = fastavro.parse_schema(SCHEMA_V2)

PLAIN: dict[str, Any] = {
    "version": 0,
    "id": 7,
    "sourceTimestamp": 1_600_000_001,
    "sourcePosition": "200@1",
    "safeSourcePosition": "120@1",
    "sourceTxid": "0",
    "source": {"sourceType": "MySQL", "version": "8.0.28"},
    "operation": "INSERT",
    "objectName": "shop.orders",
    "processTimestamps": None,
    "tags": {},
    "fields": [{"name": "c", "dataTypeNumber": 3}],
    "beforeImages": None,
    "afterImages": [None],
    "bornTimestamp": 1_600_000_001,
}


def branch(name: str, symbol: str | None = None, /, **fields: Any) -> tuple[str, Any]:
    """Return a value of a union under the name of its branch."""
    return f"{NAMESPACE}.{name}", fields if symbol is None else symbol


def integer(value: object, precision: int = 4) -> tuple[str, Any]:
    return branch("Integer", precision=precision, value=str(value))


def character(value: bytes, charset: str = "utf8mb4") -> tuple[str, Any]:
    return branch("Character", charset=charset, value=value)


def date_time(*parts: int | None) -> tuple[str, Any]:
    names = ("year", "month", "day", "hour", "minute", "second", "millis")
    return branch("DateTime", **dict(zip(names, parts, strict=True)))


def text(label: str, value: str) -> tuple[str, Any]:
    return branch("TextObject", type=label, value=value)


def record(*, schema: Any = V2, source: str = "MySQL", **changes: Any) -> bytes:
    """Return the bytes of :data:`PLAIN` with changes."""
    fields = PLAIN | {"source": {"sourceType": source, "version": "8.0.28"}} | changes
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, fields)
    return out.getvalue()


def row(number: int, value: Any, **changes: Any) -> bytes:
    """Return the bytes of an insert of one column."""
    fields = [{"name": "c", "dataTypeNumber": number}]
    return record(fields=fields, afterImages=[value], **changes)


def decode(data: bytes, **options: Any) -> Any:
    """Return the only event of a record."""
    (event,) = get_codec("dts-avro", **options).decode(Message(data))
    return event


def read_by_fastavro(data: bytes) -> dict[str, Any]:
    """Return a record as fastavro reads it, to its last byte."""
    stream = io.BytesIO(data)
    record = fastavro.schemaless_reader(stream, V2, return_named_type=True)
    assert stream.read() == b""
    assert isinstance(record, dict)
    return record

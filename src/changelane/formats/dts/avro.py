# SPDX-License-Identifier: Apache-2.0
"""The record of DTS in Avro: its schema as data.

The schema has two versions: version 2 ends in ``bornTimestamp``.
"""

from typing import Any, Final

from changelane.errors import DecodeError
from changelane.formats.contract.avro_binary import long_of
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


def truncated() -> DecodeError:
    """Return the error for data that end too early or are not a record."""
    return DecodeError("not a DTS record in Avro", code=ReasonCode.MALFORMED_AVRO)


def branch_of(name: str) -> bytes:
    """Return the number of a branch of the union of values."""
    return long_of(UNION.index(name))

# SPDX-License-Identifier: Apache-2.0
"""Avro files of Google Datastream: events with the types of the file.

The schema follows "Events and streams" and "Unified types"; values are of the documents' examples.
"""

import datetime as dt
import io
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from data_file_rows import changes, opened, types

from changelane.errors import DecodeError
from changelane.pipeline.row_options import RowOptions
from changelane.position import MySqlPosition

TIME = dt.datetime(2024, 1, 2, 3, 4, 5, 678_000, dt.UTC)
DATASTREAM = RowOptions(layout="datastream")
PATH = "test_people/2024/01/02/03/04/a.avro"


def optional(kind: Any) -> Any:
    return ["null", kind]


def record(record_name: str, /, **fields: Any) -> dict[str, Any]:
    parts = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": record_name, "fields": parts}


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
DATETIME = {
    "type": "record",
    "name": "datetime",
    "fields": [
        {"name": "date", "type": "int", "logicalType": "date"},
        {"name": "time", "type": "long", "logicalType": "time-micros"},
    ],
}
PAYLOAD = record(
    "payload",
    id=optional("long"),
    price=optional({"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}),
    name=optional({"type": "string", "logicalType": "varchar", "length": 20}),
    number=optional({"type": "string", "logicalType": "number"}),
    at=optional(DATETIME),
    zoned=optional(record("timestampTz", timestamp=MICROS, offset="long")),
    span=optional(record("interval", months="int", hours="int", micros="long")),
    took=optional({"type": "long", "logicalType": "time-interval-micros"}),
    doc=optional({"type": "string", "logicalType": "Json"}),
)
METADATA = record(
    "source_metadata",
    table="string",
    database=optional("string"),
    primary_keys=optional({"type": "array", "items": "string"}),
    log_file=optional("string"),
    log_position=optional("long"),
    change_type=optional("string"),
    is_deleted=optional("boolean"),
)
EVENT = record(
    "event",
    stream_name="string",
    read_method="string",
    object="string",
    uuid="string",
    read_timestamp=MILLIS,
    source_timestamp=MILLIS,
    sort_keys={"type": "array", "items": ["string", "long"]},
    source_metadata=METADATA,
    payload=PAYLOAD,
)
ROW = {
    "id": 1,
    "price": Decimal("1.50"),
    "name": "Ann",
    "number": "12345678901234567890123.5",
    "at": {"date": 19_723, "time": 3_600_000_000},
    "zoned": {"timestamp": TIME, "offset": 7_200_000},
    "span": {"months": 14, "hours": 3, "micros": -1_500_000},
    "took": 5,
    "doc": '{"a": 1}',
}


def event(change_type: str | None, position: int | None, row: dict[str, Any]) -> dict[str, Any]:
    is_backfill = change_type is None
    metadata = {
        "table": "people",
        "database": "test",
        "primary_keys": ["id"],
        "log_file": None if is_backfill else "mysql-bin.000025",
        "log_position": position,
        "change_type": change_type or "INSERT",
        "is_deleted": change_type == "DELETE",
    }
    return {
        "stream_name": "projects/1/streams/s",
        "read_method": "mysql-backfill-fulldump" if is_backfill else "mysql-cdc-binlog",
        "object": "test_people",
        "uuid": "u-1",
        "read_timestamp": TIME,
        "source_timestamp": TIME,
        "sort_keys": [1_704_164_645_678, "mysql-bin.000025", 5],
        "source_metadata": metadata,
        "payload": row,
    }


def written(*events: dict[str, Any], schema: Any = EVENT) -> bytes:
    stream = io.BytesIO()
    fastavro.writer(stream, schema, events)
    return stream.getvalue()


def test_an_event_has_the_types_of_the_file_and_the_position_of_the_source() -> None:
    data = written(event(None, None, ROW), event("UPDATE", 4, ROW))
    backfill, update = changes(data, PATH, DATASTREAM)
    assert (backfill.op.value, backfill.position, update.op.value) == ("r", None, "u")
    assert backfill.source.snapshot == "mysql-backfill-fulldump"
    assert update.position == MySqlPosition("mysql-bin.000025", 4)
    assert str(update.table) == "test.people"
    assert update.key is not None
    assert update.key.columns == ("id",)
    assert update.source_time_ns == 1_704_164_645_678_000_000
    assert types(update) == {
        "id": "int64",
        "price": "decimal(10,2)",
        "name": "string",
        "number": "decimal",
        "at": "timestamp(6)",
        "zoned": "instant(6)",
        "span": "interval",
        "took": "interval(us)",
        "doc": "json",
    }
    assert update.after == {
        "id": 1,
        "price": Decimal("1.50"),
        "name": "Ann",
        "number": Decimal("12345678901234567890123.5"),
        "at": dt.datetime(2024, 1, 1, 1),
        "zoned": TIME,
        "span": "P14MT3H-1.500000S",
        "took": dt.timedelta(microseconds=5),
        "doc": '{"a": 1}',
    }
    assert update.details["uuid"] == "u-1"


def test_a_deleted_row_without_other_values_is_its_key() -> None:
    (change,) = changes(written(event("DELETE", 5, {"id": 1})), PATH, DATASTREAM)
    assert (change.op.value, change.before, change.after) == ("d", {"id": 1}, None)


def test_an_event_that_its_format_rejects_is_an_error_with_its_bytes() -> None:
    first, second = opened(
        written(event("ODD", 5, ROW), event("INSERT", 6, {"id": None})), PATH, DATASTREAM
    ).messages()
    assert first.error is not None
    assert first.error.code == "unknown_operation"
    assert b'"change_type":"ODD"' in (first.message.value or b"")
    assert second.error is not None
    assert second.error.code == "missing_field"


def with_column(kind: Any, value: Any) -> bytes:
    payload = record("payload", id="long", v=kind)
    fields = [*EVENT["fields"][:-1], {"name": "payload", "type": optional(payload)}]
    return written(event("INSERT", 6, {"id": 1, "v": value}), schema={**EVENT, "fields": fields})


@pytest.mark.parametrize(
    ("parts", "value"),
    [
        ({"months": "int", "hours": "int", "micros": optional("long")}, (1, 1, None)),
        ({"months": optional("int"), "hours": "int", "micros": "long"}, (None, 1, 1)),
        ({"timestamp": optional(MICROS), "offset": "long"}, (None, 1)),
    ],
)
def test_a_value_without_one_of_its_parts_is_an_error(parts: Any, value: Any) -> None:
    data = with_column(record("v", **parts), dict(zip(parts, value, strict=True)))
    (message,) = opened(data, PATH, DATASTREAM).messages()
    assert message.error is not None
    assert (message.error.code, message.error.path) == ("wrong_type", "$.payload.v")


@pytest.mark.parametrize(
    "value",
    [{"months": 1, "hours": 1, "micros": "x"}, {"date": 19_723, "time": 5}],
)
def test_a_record_with_other_types_is_none_of_datastream(value: dict[str, Any]) -> None:
    kinds = {name: "string" if part == "x" else "int" for name, part in value.items()}
    (change,) = changes(with_column(record("v", **kinds), value), PATH, DATASTREAM)
    assert change.after == {"id": 1, "v": value}


def test_other_files_are_no_files_of_datastream() -> None:
    with pytest.raises(DecodeError, match="no events of Datastream"):
        list(opened(written(schema=PAYLOAD), PATH, DATASTREAM).messages())
    with pytest.raises(DecodeError, match="Avro files"):
        opened(b"a,b\n", "a.csv", DATASTREAM)

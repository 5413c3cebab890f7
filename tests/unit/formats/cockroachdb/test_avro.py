# SPDX-License-Identifier: Apache-2.0
"""Changefeeds in Avro: the types of columns, keys, deletes and resolved times."""

import datetime as dt
import decimal
import io
import json
import random

import fastavro
import pytest

from changelane import DecodeError, EncodeError, Message, get_codec
from changelane.event import Key, KeyOrigin, Op, Watermark
from changelane.schema import TableId
from changelane.testing.fuzz import check_input, mutated
from changelane.types import Bits, Decimal, Instant, InstantType, Json, Uuid

HLC = "1701102311425045162.0000000001"


def field(name, kind, sql):
    nullable = ["null", *kind] if isinstance(kind, list) else ["null", kind]
    return {"name": name, "type": nullable, "default": None, "__crdb__": f"`{name}` {sql}"}


def logical(kind, name, **more):
    return {"type": kind, "logicalType": name} | more


# as in avro.go of CockroachDB
FIELDS = [
    field("id", "long", "INT8 NOT NULL"),
    field("total", [logical("bytes", "decimal", precision=9, scale=2), "string"], "DECIMAL(9,2)"),
    field("day", logical("int", "date"), "DATE"),
    field("at", logical("long", "timestamp-micros"), "TIMESTAMP"),
    field("seen", logical("long", "timestamp-micros"), "TIMESTAMPTZ"),
    field("clock", logical("long", "time-micros"), "TIME"),
    field("doc", "string", "JSONB"),
    field("ref", "string", "UUID"),
    field("raw", "bytes", "BYTES"),
    field("flags", {"type": "array", "items": "long"}, "VARBIT"),
    field("words", {"type": "array", "items": ["null", "string"]}, "STRING[]"),
]
ROW = {"type": "record", "name": "orders", "fields": FIELDS}
KEY = {"type": "record", "name": "orders", "fields": FIELDS[:1]}
META = [
    {"name": name, "type": ["null", "string"], "default": None} for name in ("updated", "resolved")
]
ENVELOPE = {
    "type": "record",
    "name": "orders_envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW | {"name": "orders_before"}], "default": None},
        {"name": "after", "type": ["null", ROW], "default": None},
        *META,
    ],
}
AT = dt.datetime(2024, 2, 29, 12, 30, 0, 5)
VALUES = {
    "id": 7,
    "total": decimal.Decimal("-1.50"),
    "day": dt.date(2024, 2, 29),
    "at": AT.replace(tzinfo=dt.UTC),
    "seen": AT.replace(tzinfo=dt.UTC),
    "clock": dt.time(1, 2, 3),
    "doc": '{"a": 1}',
    "ref": "b84dbfe2-fe4c-4953-a225-990ea3700f29",
    "raw": b"\x00\xff",
    "flags": [2, -1, 1 << 62],
    "words": ["a", None],
}
READ = VALUES | {
    "at": AT,
    "clock": "01:02:03.000000",
    "seen": Instant.of(AT.replace(tzinfo=dt.UTC), 6),
    "flags": "1" * 64 + "01",
}


@pytest.fixture
def read(tmp_path):
    (tmp_path / "ids").mkdir()
    schemas = (KEY, ENVELOPE, META_ENVELOPE)
    for schema_id, schema in enumerate(schemas, 1):
        (tmp_path / "ids" / f"{schema_id}.avsc").write_text(json.dumps(schema))
    options = {"serde": "avro-registry", "registry": str(tmp_path)}
    schemas_option = {"orders": {"id": "string key", "at": "string"}}  # only its key is used
    codec = get_codec("cockroachdb-json", schemas=schemas_option, **options)

    def framed(schema_id, value):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schemas[schema_id]), value)
        return b"\0" + (schema_id + 1).to_bytes(4, "big") + out.getvalue()

    def decode(value, key=None, schema_id=1):
        data = None if key is None else framed(0, key)
        (event,) = codec.decode(Message(framed(schema_id, value), data, topic="orders"))
        return event

    decode.codec, decode.framed = codec, framed
    return decode


META_ENVELOPE = {"type": "record", "name": "resolved_envelope", "fields": META[1:]}


def test_a_row_has_the_types_of_its_schema(read):
    event = read({"after": VALUES, "updated": HLC}, {"id": 7})
    assert (event.op, event.table) == (Op.CREATE, TableId(name="orders"))
    assert event.key == Key(("id",), KeyOrigin.CONFIG)
    assert event.after == READ
    kinds = {name: column.type for name, column in event.schema.by_name.items()}
    assert kinds["total"] == Decimal(9, 2)
    assert (kinds["seen"], kinds["flags"], kinds["doc"]) == (InstantType(6), Bits(), Json())
    assert kinds["ref"] == Uuid()
    for text in ("NaN", "Infinity", "-Infinity"):
        event = read({"before": VALUES, "after": VALUES | {"total": text}}, {"id": 7})
        assert event.op is Op.UPDATE
        assert str(event.after["total"]) == text
    nulls = dict.fromkeys(VALUES) | {"id": 7}
    assert read({"after": nulls}).after == nulls


def test_a_delete_has_the_old_row_or_the_key(read):
    event = read({"before": VALUES, "after": None}, {"id": 7})
    assert (event.op, event.before) == (Op.DELETE, READ)
    event = read({"before": None, "after": None}, {"id": 7})
    assert (event.op, event.before) == (Op.DELETE, {"id": 7})


def test_a_resolved_time_is_a_watermark(read):
    event = read({"resolved": HLC}, schema_id=2)
    assert (type(event), event.type) == (Watermark, "resolved")


def test_wrong_bits_are_refused_and_avro_is_read_only(read):
    for flags in ([65, 1], [1], [], [-1, 1]):
        with pytest.raises(DecodeError) as caught:
            read({"after": VALUES | {"flags": flags}})
        assert (caught.value.code, caught.value.path) == ("wrong_type", "$.payload.after.flags")
    with pytest.raises(EncodeError, match="needs the types"):
        read.codec.encode(read({"after": VALUES}), on_loss="ignore")


def test_mutated_messages_are_refused_or_read_completely(read):
    draw = random.Random(1)
    value, key = read.framed(1, {"before": VALUES, "after": VALUES}), read.framed(0, {"id": 7})
    for _ in range(300):
        check_input(read.codec, mutated(value, draw), key)
        check_input(read.codec, value, mutated(key, draw))

# SPDX-License-Identifier: Apache-2.0
"""Changefeeds in Avro: the types of columns, keys, deletes and resolved times."""

import datetime as dt
import decimal
import io
import json
import random

import fastavro
import msgspec
import pytest
from hypothesis import given, settings
from registry_server import RegistryServer

from changelane import ConfigError, DecodeError, EncodeError, Message, get_codec
from changelane.event import DataChange, Key, KeyOrigin, Op, Watermark
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.compare import differences
from changelane.testing.event_strategies import events
from changelane.testing.fuzz import check_input, mutated
from changelane.types import (
    Bits,
    Decimal,
    Instant,
    InstantType,
    Integer,
    Json,
    String,
    Uuid,
)

HLC = "1701102311425045162.0000000001"


def field(name, kind, sql):
    nullable = ["null", *kind] if isinstance(kind, list) else ["null", kind]
    return {"name": name, "type": nullable, "default": None, "__crdb__": f"{name} {sql}"}


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
    schemas = (KEY, ENVELOPE, META_ENVELOPE, BARE, ESCAPED, ENRICHED)
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


BARE = {
    "type": "record",
    "name": "orders_envelope",
    "fields": [*META[:1], {"name": "record", "type": ["null", ROW], "default": None}],
}
ENRICHED = {
    "type": "record",
    "name": "orders_envelope",
    "fields": [
        {"name": "after", "type": ["null", ROW], "default": None},
        {
            "name": "source",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "source",
                    "fields": [
                        {"name": name, "type": ["null", "string"], "default": None}
                        for name in ("database_name", "schema_name", "table_name", "ts_hlc")
                    ]
                    + [
                        {
                            "name": "primary_keys",
                            "type": ["null", {"type": "array", "items": ["null", "string"]}],
                            "default": None,
                        }
                    ],
                },
            ],
            "default": None,
        },
        {"name": "ts_ns", "type": ["null", "long"], "default": None},
        {"name": "op", "type": ["null", "string"], "default": None},
    ],
}
# the names in avro_test.go of CockroachDB
ESCAPED = {
    "type": "record",
    "name": "_u2603__envelope",
    "fields": [
        {
            "name": "after",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "_u2603_",
                    "fields": [
                        field("_u0001f366_", "long", "INT8 NOT NULL")
                        | {"__crdb__": "\U0001f366 INT8"}
                    ],
                },
            ],
        }
    ],
}
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


def test_a_row_of_the_envelope_bare_is_a_record(read):
    event = read({"updated": HLC, "record": VALUES}, {"id": 7}, schema_id=3)
    assert (event.op, event.before, event.after) == (Op.UPDATE, None, READ)
    assert event.position is not None
    deleted = dict.fromkeys(VALUES) | {"id": 7}
    with pytest.raises(DecodeError) as caught:
        read({"record": deleted}, {"id": 7}, schema_id=3)
    assert caught.value.code == "missing_image"


def test_an_enriched_row_has_its_operation_its_table_and_its_key(read):
    source = {"database_name": "d", "schema_name": "public", "table_name": "orders"}
    source |= {"ts_hlc": HLC, "primary_keys": ["id"]}
    value = {"after": VALUES, "source": source, "ts_ns": 5, "op": "u"}
    event = read(value, {"id": 7}, schema_id=5)
    assert (event.op, event.table) == (Op.UPDATE, TableId("d", "public", "orders"))
    assert (event.after, event.process_time_ns) == (READ, 5)
    assert event.source_time_ns == int(HLC.partition(".")[0])


def test_escaped_names_are_those_of_the_table(read):
    (event,) = read.codec.decode(
        Message(read.framed(4, {"after": {"_u0001f366_": 1}}), topic="_u2603_")
    )
    assert (event.table.name, event.after) == ("\u2603", {"\U0001f366": 1})
    assert event.schema.columns[0].type == Integer(64)
    with pytest.raises(ConfigError, match="avro_names"):
        get_codec("cockroachdb-json", serde="avro-registry", registry=".", avro_names="unicode")


def test_wrong_bits_are_refused(read):
    for flags in ([65, 1], [1], [], [-1, 1]):
        with pytest.raises(DecodeError) as caught:
            read({"after": VALUES | {"flags": flags}})
        assert (caught.value.code, caught.value.path) == ("wrong_type", "$.payload.after.flags")


def test_mutated_messages_are_refused_or_read_completely(read):
    draw = random.Random(1)
    value, key = read.framed(1, {"before": VALUES, "after": VALUES}), read.framed(0, {"id": 7})
    for _ in range(300):
        check_input(read.codec, mutated(value, draw), key)
        check_input(read.codec, value, mutated(key, draw))


# -- writing -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server():
    with RegistryServer() as running:
        yield running


def writer_of(server, **options):
    registry = {"serde": "avro-registry", "registry": server.address}
    return get_codec("cockroachdb-json", **registry, **options)


def schema_of(server, data):
    return json.loads(server.schemas[int.from_bytes(data[1:5], "big")]["schema"])


def avro_value(server, data):
    schema = fastavro.parse_schema(schema_of(server, data))
    return fastavro.schemaless_reader(io.BytesIO(data[5:]), schema, schema)


def test_a_written_row_has_the_schema_and_the_subjects_of_cockroachdb(server, read):
    event = read({"before": VALUES, "after": VALUES | {"total": "NaN"}, "updated": HLC}, {"id": 7})
    names = [name for name in VALUES if name != "words"]  # arrays have no column type here
    columns = tuple(column for column in event.schema.columns if column.name in names)
    event = msgspec.structs.replace(
        event,
        before={name: event.before[name] for name in names},
        after={name: event.after[name] for name in names},
        schema=TableSchema(columns),
    )
    codec = writer_of(server)
    (message,) = codec.encode(event).messages
    assert message.topic == "orders"
    assert set(server.subjects) >= {"orders-key", "orders-value"}
    want = {name: value for name, value in VALUES.items() if name in names}
    assert avro_value(server, message.key) == {"id": 7}
    assert avro_value(server, message.value) == {
        "before": want,
        "after": want | {"total": "NaN"},
        "updated": HLC,
    }
    assert schema_of(server, message.key) == {
        "type": "record",
        "name": "orders",
        "fields": [
            {
                "name": "id",
                "type": ["null", "long"],
                "default": None,
                "__crdb__": "id INT8 NULL",
            }
        ],
    }
    schema = schema_of(server, message.value)
    assert schema["name"] == "orders_envelope"
    (_, before), (_, after), updated = (part["type"] for part in schema["fields"])
    assert (before["name"], after["name"], updated) == (
        "orders_before",
        "orders",
        ["null", "string"],
    )
    assert [part["type"] for part in after["fields"]] == [
        part["type"] for part in FIELDS if part["name"] in names
    ]
    (got,) = codec.decode(message)
    assert not differences(got, event, codec.carries)


@pytest.mark.parametrize("old", [None, {"id": 1}, {"id": 1, "a b": "x"}])
def test_a_delete_comes_back(server, old):
    schema = TableSchema((Column("id", Integer(64)), Column("a b", String())))
    row = old or {"id": 1, "a b": None}
    op = Op.CREATE if old is None else Op.DELETE
    images = {"after": row} if op is Op.CREATE else {"before": row}
    event = DataChange(op, TableId("d", "public", "t 1"), Key(("id",)), **images, schema=schema)
    encoded = writer_of(server).encode(event, on_loss="ignore")
    (message,) = encoded.messages
    assert message.topic == "d.public.t_u0020_1"
    assert schema_of(server, message.value)["name"] == "d_u002e_public_u002e_t_u0020_1_envelope"
    (got,) = writer_of(server).decode(message)
    assert (got.op, got.table, got.before, got.after) == (
        op,
        event.table,
        event.before,
        event.after,
    )
    assert {field for field, _ in encoded.losses} == ({"schema"} if row == {"id": 1} else set())


def test_decimals_are_exact_or_refused(server):
    codec = writer_of(server)

    def encode(kind, value):
        schema = TableSchema((Column("id", Integer(64)), Column("n", kind)))
        row = {"id": 1, "n": value}
        event = DataChange(Op.CREATE, TableId(name="n"), Key(("id",)), None, row, schema)
        encoded = codec.encode(event, on_loss="ignore")
        (got,) = codec.decode(*encoded.messages)
        return got.after["n"], {field for field, _ in encoded.losses}

    assert encode(Decimal(5, 2), decimal.Decimal("123.4")) == (decimal.Decimal("123.40"), set())
    for lost in ("1234.5", "0.001"):
        assert encode(Decimal(5, 2), decimal.Decimal(lost)) == (None, {"value:decimal"})
    assert encode(Integer(64, unsigned=True), 2**64 - 1) == (2**64 - 1, {"type:uint64"})
    with pytest.raises(EncodeError, match="without a precision"):
        encode(Decimal(), decimal.Decimal(1))


def test_every_event_that_avro_can_express_comes_back(server):
    codec = writer_of(server)

    @settings(max_examples=25, deadline=None, derandomize=True)
    @given(events(codec.carries))
    def check(event):
        try:
            encoded = codec.encode(event, on_loss="raise")
        except EncodeError:  # a loss, or a decimal without a precision
            return
        (got,) = [got for message in encoded.messages for got in codec.decode(message)]
        assert not differences(got, event, codec.carries)

    check()

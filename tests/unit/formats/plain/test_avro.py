# SPDX-License-Identifier: Apache-2.0
"""Plain rows in Avro with a schema registry, and rows with a schema block of Connect."""

import datetime as dt
import decimal
import io
import json
import random
import uuid

import fastavro
import pytest
from hypothesis import given, settings
from registry_server import RegistryServer

from changelane import DecodeError, Message, get_codec
from changelane.errors import EncodeError
from changelane.event import Completeness, DataChange, Key, Op
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.compare import differences
from changelane.testing.event_strategies import events
from changelane.testing.fuzz import check_input, mutated
from changelane.types import Date, Decimal, InstantType, Integer, String, Time, Timestamp, Uuid

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
# the schema of Flink's format `avro-confluent`, with a nullable column
FLINK = {
    "type": "record",
    "name": "record",
    "namespace": "org.apache.flink.avro.generated",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "total", "type": ["null", DECIMAL], "default": None},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "micros", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "clock", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "ref", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
    ],
}  # fmt: skip
KEY = {**FLINK, "fields": [{"name": "id", "type": "long"}]}
REF = uuid.UUID("b84dbfe2-fe4c-4953-a225-990ea3700f29")
AT = dt.datetime(2024, 2, 29, 12, 30, 0, 123000)
ROW = {
    "id": 7,
    "total": decimal.Decimal("-1.50"),
    "day": dt.date(2024, 2, 29),
    "at": AT.replace(tzinfo=dt.UTC),
    "micros": AT,
    "clock": dt.time(1, 2, 3, 4),
    "ref": REF,
    "tags": ["a", None],
}
VALUES = ROW | {"at": AT, "clock": "01:02:03.000004", "ref": str(REF)}


def framed(schema_id, schema, value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return b"\0" + schema_id.to_bytes(4, "big") + out.getvalue()


@pytest.fixture(scope="module")
def server():
    with RegistryServer() as running:
        assert [running.add(json.dumps(schema)) for schema in (FLINK, KEY)] == [1, 2]
        yield running


def codec_of(server, **options):
    return get_codec("plain-json", serde="avro-registry", registry=server.address, **options)


def test_a_row_has_the_types_of_its_schema(server):
    message = Message(framed(1, FLINK, ROW), framed(2, KEY, ROW), topic="orders")
    (event,) = codec_of(server).decode(message)
    assert (event.op, event.table, event.key) == (Op.UPDATE, TableId(name="orders"), Key(("id",)))
    assert event.after == VALUES
    kinds = {name: column.type for name, column in event.schema.by_name.items()}
    assert kinds["total"] == Decimal(9, 2)
    assert (kinds["day"], kinds["at"], kinds["micros"]) == (Date(), Timestamp(3), Timestamp(6))
    assert (kinds["id"], kinds["clock"], kinds["ref"]) == (Integer(64), Time(6), Uuid())
    (event,) = codec_of(server).decode(
        Message(framed(1, FLINK, ROW | {"total": None}), b'{"id":7}')
    )
    assert event.after == VALUES | {"total": None}


def test_null_deletes_the_key(server):
    for value in (None, b""):
        (event,) = codec_of(server).decode(Message(value, framed(2, KEY, ROW), topic="t"))
        assert (event.op, event.before, event.key) == (Op.DELETE, {"id": 7}, Key(("id",)))
        assert event.schema.columns == (Column("id", Integer(64), nullable=False),)
        assert event.before_holds is Completeness.CHANGED  # the table may have other columns


def test_a_key_that_the_row_lacks_is_added_and_another_one_refused(server):
    other = {**KEY, "fields": [{"name": "no", "type": "int"}]}
    schema_id = server.add(json.dumps(other))
    message = Message(framed(1, FLINK, ROW), framed(schema_id, other, {"no": 3}))
    (event,) = codec_of(server).decode(message)
    assert event.after == {"no": 3} | VALUES
    assert event.schema.columns[0] == Column("no", Integer(32), nullable=False)
    assert event.schema.names == event.after.keys()
    for key in (framed(2, KEY, {"id": 8}), b'{"id":8}', b'{"id":"x"}'):
        with pytest.raises(DecodeError) as caught:
            codec_of(server).decode(Message(framed(1, FLINK, ROW), key))
        assert caught.value.code in {"wrong_image", "wrong_type"}


def test_connects_json_with_a_schema_is_the_same_row():
    block = {"type": "struct", "fields": [{"type": "int32", "optional": False, "field": "id"}]}
    value = json.dumps({"schema": block, "payload": {"id": 7}}).encode()
    codec = get_codec("plain-json", schemas={"t": {"id": "int64 key"}})
    for key in (value, b'{"id":7}', None):
        (event,) = codec.decode(Message(value, key, topic="t"))
        assert (event.after, event.key.columns) == ({"id": 7}, ("id",))
        assert event.schema.by_name["id"].type == Integer(32)
    with pytest.raises(DecodeError) as caught:
        codec.decode(Message(value.replace(b"7", b'"x"'), value, topic="t"))
    assert (caught.value.code, caught.value.path) == ("wrong_type", "$.payload.id")


def test_a_written_row_is_read_by_other_readers_of_avro(server):
    schema = TableSchema(
        (
            Column("id", Integer(64), nullable=False),
            Column("total", Decimal(9, 2)),
            Column("day", Date()),
            Column("micros", Timestamp(6)),
            Column("clock", Time(6)),
            Column("ref", Uuid()),
            Column("seen", InstantType(6)),
            Column("note", String()),
        )
    )
    row = {name: VALUES.get(name) for name in schema.names}
    event = DataChange(Op.UPDATE, TableId(name="sales"), Key(("id",)), None, row, schema)
    (message,) = codec_of(server).encode(event).messages
    assert message.topic == "sales"
    for data, want in (
        (message.key, {"id": 7}),
        (message.value, {n: v for n, v in ROW.items() if n in row} | {"seen": None, "note": None}),
    ):
        text = server.schemas[int.from_bytes(data[1:5], "big")]["schema"]
        reader = fastavro.parse_schema(json.loads(text))
        read = fastavro.schemaless_reader(io.BytesIO(data[5:]), reader, reader)
        if "micros" in read:  # the logical type is the one that Flink and Connect know
            read["micros"] = read["micros"].replace(tzinfo=None)
        assert read == want
    (got,) = codec_of(server).decode(message)
    assert not differences(got, event, codec_of(server).carries)
    delete = DataChange(Op.DELETE, event.table, event.key, {"id": 7}, None, schema)
    (message,) = codec_of(server).encode(delete).messages
    assert message.value is None
    assert codec_of(server).decode(message)[0].before == {"id": 7}


def test_every_event_that_avro_can_express_comes_back(server):
    codec = codec_of(server)

    @settings(max_examples=25, deadline=None, derandomize=True)
    @given(events(codec.carries))
    def check(event):
        try:
            encoded = codec.encode(event, on_loss="raise")
        except EncodeError:  # a loss, or a name that Avro does not allow
            return
        (got,) = [got for message in encoded.messages for got in codec.decode(message)]
        assert not differences(got, event, codec.carries)

    check()


def test_mutated_messages_are_refused_or_read_completely(server):
    draw = random.Random(1)
    value, key = framed(1, FLINK, ROW), framed(2, KEY, ROW)
    for _ in range(200):
        check_input(codec_of(server), value[:5] + mutated(value[5:], draw), key)
        check_input(codec_of(server), value, key[:5] + mutated(key[5:], draw))

# SPDX-License-Identifier: Apache-2.0
"""TiCDC's Avro protocol: rows of a schema registry, checksums, before images, and writing."""

import decimal
import io
import json
import random
import struct
import zlib

import fastavro
import msgspec
import pytest
from registry_server import RegistryServer

from changelane import DecodeError, EncodeError, Message, get_codec
from changelane.event import Completeness, DataChange, Key, Op
from changelane.position import SequencePosition
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.compare import differences
from changelane.testing.fuzz import check_input, mutated
from changelane.types import UNKNOWN, Bits, Decimal, Enum, Integer, Set

TS = 429918007904436226
TIME_NS = 1640007049196 * 10**6


def kind(avro, tidb, **parameters):
    return {"type": avro, "connect.parameters": {"tidb_type": tidb} | parameters}


def optional(name, avro):
    return {"name": name, "type": ["null", avro], "default": None}


DECIMAL = kind("bytes", "DECIMAL") | {"logicalType": "decimal", "precision": 10, "scale": 2}
COLUMNS = [
    {"name": "id", "type": kind("int", "INT")},
    optional("n", kind("long", "BIGINT UNSIGNED")),
    optional("price", DECIMAL),
    optional("f", kind("float", "FLOAT")),
    optional("size", kind("string", "ENUM", allowed="small,it's")),
    optional("tags", kind("string", "SET", allowed="a,b,c")),
    optional("flags", kind("bytes", "BIT", length="4")),
    optional("at", kind("string", "TIMESTAMP")),
    optional("raw", kind("bytes", "BLOB")),
]
EXTENSION = [
    {"name": "_tidb_op", "type": "string", "default": ""},
    {"name": "_tidb_commit_ts", "type": "long", "default": 0},
    {"name": "_tidb_commit_physical_time", "type": "long", "default": 0},
    {"name": "_tidb_row_level_checksum", "type": "string", "default": ""},
    {"name": "_tidb_corrupted", "type": "boolean", "default": False},
    {"name": "_tidb_checksum_version", "type": "int", "default": 0},
]


def record(fields, name="orders"):
    return {"type": "record", "name": name, "namespace": "default.shop", "fields": fields}


ROW = {
    "id": -1,
    "n": -1,
    "price": decimal.Decimal("1.50"),
    "f": 0.1,
    "size": "it's",
    "tags": "a,c",
    "flags": b"\x05",
    "at": "2024-07-01 12:00:00.250",
    "raw": b"\x89PNG",
}
VALUES = ROW | {
    "n": 2**64 - 1,
    "f": pytest.approx(0.1),
    "flags": "0101",
}
AT = "2024-07-01T04:00:00.250000+00:00"


def sized(content):
    return struct.pack("<I", len(content)) + content


# the bytes of TiDB's row checksum, by "TiCDC Avro Protocol", Verify checksum
CHECKSUM = zlib.crc32(
    b"".join(
        [
            struct.pack("<q", -1),
            struct.pack("<Q", 2**64 - 1),
            sized(b"1.50"),
            struct.pack("<d", struct.unpack("<f", struct.pack("<f", 0.1))[0]),
            struct.pack("<QQQ", 2, 5, 5),
            sized(b"2024-07-01 04:00:00.250"),
            sized(b"\x89PNG"),
        ]
    )
)


@pytest.fixture(scope="module")
def server():
    with RegistryServer() as running:
        yield running


def framed(server, schema, value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return b"\0" + server.add(json.dumps(schema)).to_bytes(4, "big") + out.getvalue()


def extended(op="c", checksum="", corrupted=False):
    return {
        "_tidb_op": op,
        "_tidb_commit_ts": TS,
        "_tidb_commit_physical_time": TIME_NS // 10**6,
        "_tidb_row_level_checksum": checksum,
        "_tidb_corrupted": corrupted,
        "_tidb_checksum_version": 1,
    }


def codec_of(server, **options):
    options = {"time_zone": "+08:00"} | options
    return get_codec("ticdc-avro", serde="avro-registry", registry=server.address, **options)


def decoded(server, value=None, fields=(*COLUMNS, *EXTENSION), **options):
    key = framed(server, record(COLUMNS[:1]), ROW)
    data = None if value is None else framed(server, record(list(fields)), value)
    (event,) = codec_of(server, **options).decode(Message(data, key))
    return event


def test_a_row_of_a_registry_has_its_types_and_values(server):
    event = decoded(server, ROW | extended("u", str(CHECKSUM)))
    assert (event.op, event.table, event.key) == (
        Op.UPDATE,
        TableId("shop", None, "orders"),
        Key(("id",)),
    )
    after = dict(event.after)
    assert after.pop("at").isoformat() == AT
    assert after == {name: value for name, value in VALUES.items() if name != "at"}
    kinds = {name: column.type for name, column in event.schema.by_name.items()}
    assert (kinds["price"], kinds["flags"]) == (Decimal(10, 2), Bits(4))
    assert (kinds["size"], kinds["tags"]) == (Enum(("small", "it's")), Set(("a", "b", "c")))
    assert (event.position, event.source_time_ns) == (None, TIME_NS)
    assert event.details == {"_tidb_commit_ts": TS}
    assert decoded(server, ROW | extended(), order="commit_ts").position == SequencePosition(TS)


def test_a_row_without_the_extension_is_an_insert_or_an_update(server):
    event = decoded(server, dict.fromkeys(ROW) | {"id": 1}, COLUMNS)
    assert (event.op, event.source_time_ns) == (Op.UPDATE, None)
    assert event.after == dict.fromkeys(ROW) | {"id": 1}


def test_null_deletes_the_key(server):
    event = decoded(server)
    assert (event.op, event.table.name, event.before) == (Op.DELETE, "orders", {"id": -1})
    assert event.before_holds is Completeness.CHANGED
    with pytest.raises(DecodeError) as caught:
        codec_of(server).decode(Message(None))
    assert caught.value.code == "no_key"


@pytest.mark.parametrize("checksum", [CHECKSUM + 1, -1, "x", CHECKSUM])
def test_a_row_with_another_checksum_is_refused(server, checksum):
    row = ROW | extended("c", str(checksum), corrupted=checksum == CHECKSUM)
    with pytest.raises(DecodeError) as caught:
        decoded(server, row)
    path = "$.payload._tidb_row_level_checksum"
    assert (caught.value.code, caught.value.path) == ("checksum", path)
    assert decoded(server, row, verify_checksums=False).op is Op.CREATE


def test_a_message_may_have_the_row_before_the_change(server):
    before = record(COLUMNS, "orders_before")
    fields = (*COLUMNS, *EXTENSION, optional("_ticdc_before", before))
    old = dict.fromkeys(ROW) | {"id": -1}
    event = decoded(server, ROW | extended("u") | {"_ticdc_before": old}, fields)
    assert (event.op, event.before) == (Op.UPDATE, old)
    event = decoded(server, ROW | extended("d") | {"_ticdc_before": old}, fields)
    assert (event.op, event.before, event.after) == (Op.DELETE, old, None)
    event = decoded(server, {"id": -1} | extended("d"), (COLUMNS[0], *EXTENSION))
    assert (event.before, event.before_holds) == ({"id": -1}, Completeness.CHANGED)


FIELD = {"type": "int32", "optional": False, "parameters": {"tidb_type": "INT"}, "field": "id"}


def wrapped(payload, *fields, **block):
    schema = {"type": "struct", "fields": [FIELD, *fields], "name": "default.shop.t"} | block
    return Message(json.dumps({"schema": schema, "payload": payload}).encode())


@pytest.mark.parametrize(
    ("wire", "code", "path"),
    [
        (Message(b'{"id":1}'), "wrong_schema", "$"),
        (wrapped({"id": 1}, {"type": "int32", "field": "x"}), "wrong_schema", "$.schema"),
        (wrapped({"id": 1}, FIELD), "wrong_schema", "$.schema"),
        (wrapped({"id": 1}, fields=[]), "wrong_schema", "$.schema"),
        (wrapped(1, type="int32"), "wrong_schema", "$.schema"),
        (
            wrapped({}, FIELD | {"field": "x", "parameters": {"tidb_type": "X"}}),
            "unknown_type",
            "$.schema",
        ),
        (wrapped({}), "missing_field", "$.payload"),
        (wrapped({"id": "x"}), "wrong_type", "$.payload.id"),
        (wrapped({"id": 2**31}), "value_out_of_range", "$.payload.id"),
        (wrapped([]), "wrong_type", "$.payload"),
        (wrapped({"id": 1, "_tidb_op": "x"}), "unknown_operation", "$.payload._tidb_op"),
        (wrapped({"id": 1, "_tidb_commit_ts": -1}), "wrong_type", "$.payload._tidb_commit_ts"),
    ],
)
def test_a_wrong_message_is_refused_with_its_path(wire, code, path):
    with pytest.raises(DecodeError) as caught:
        get_codec("ticdc-avro").decode(wire)
    assert (caught.value.code, caught.value.path) == (code, path)


# -- writing -------------------------------------------------------------------------------------


def test_a_written_row_is_read_by_other_readers_of_avro(server):
    event = decoded(server, ROW | extended("u"))
    (message,) = codec_of(server).encode(event).messages
    assert message.topic == "shop_orders"
    text = server.schemas[int.from_bytes(message.value[1:5], "big")]["schema"]
    schema = json.loads(text)
    assert (schema["namespace"], schema["name"]) == ("default.shop", "orders")
    reader = fastavro.parse_schema(schema)
    read = fastavro.schemaless_reader(io.BytesIO(message.value[5:]), reader, reader)
    time = {"_tidb_op": "u", "_tidb_commit_ts": TS, "_tidb_commit_physical_time": TIME_NS // 10**6}
    assert read == ROW | time | {"f": pytest.approx(0.1)}
    for change in (event, decoded(server)):
        (message,) = codec_of(server).encode(change).messages
        (got,) = codec_of(server).decode(message)
        assert not differences(got, change, codec_of(server).carries)


def losses(event, **options):
    encoded = get_codec("ticdc-avro", **options).encode(event, on_loss="ignore")
    return {field for field, _ in encoded.losses}


def test_what_the_protocol_lacks_is_a_loss():
    schema = TableSchema((Column("id", Integer(32)), Column("note", UNKNOWN)))
    row = {"id": 1, "note": "x"}
    event = DataChange(Op.UPDATE, TableId("a.b", None, "t"), Key(("id",)), None, row, schema)
    assert losses(event) >= {"table.database"}
    event = msgspec.structs.replace(event, table=TableId("shop", None, "t"))
    delete = msgspec.structs.replace(event, op=Op.DELETE, before=row, after=None)
    assert losses(delete) >= {"before"}
    delete = msgspec.structs.replace(delete, before={"id": 1}, source_time_ns=TIME_NS)
    assert losses(delete) >= {"schema", "source_time"}
    placed = msgspec.structs.replace(event, position=SequencePosition(TS))
    assert "position" in losses(placed)
    assert losses(placed, order="commit_ts") == losses(event) | {"source_time"}
    for wrong in (
        msgspec.structs.replace(event, key=None),
        msgspec.structs.replace(event, after={"note": "x"}),
        msgspec.structs.replace(event, after=row | {"_tidb_op": "c"}, schema=None),
    ):
        with pytest.raises(EncodeError):
            get_codec("ticdc-avro").encode(wrong)


def test_mutated_messages_are_refused_or_read_completely(server):
    draw = random.Random(1)
    codec = codec_of(server, verify_checksums=False)
    value = framed(server, record([*COLUMNS, *EXTENSION]), ROW | extended())
    key = framed(server, record(COLUMNS[:1]), ROW)
    for _ in range(200):
        check_input(codec, value[:5] + mutated(value[5:], draw), key)
        check_input(codec, value, key[:5] + mutated(key[5:], draw))

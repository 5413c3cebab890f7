# SPDX-License-Identifier: Apache-2.0
"""The Avro form of TiCDC's simple protocol, compared with fastavro and the producer's schema."""

import io
import json
import random

import fastavro
import pytest
from hypothesis import given, settings

from changelane import DecodeError, Message, get_codec
from changelane.event import DataChange, Key, Op, SchemaChange, Truncate, Watermark
from changelane.position import SequencePosition
from changelane.schema import TableId
from changelane.testing.compare import differences
from changelane.testing.event_strategies import events
from changelane.testing.fuzz import check_input, mutated

TS = 447984099186180098
NAMESPACE = "com.pingcap.simple.avro."


def column(name, kind, nullable=True, **parameters):
    empty = {"length": 0, "decimal": None, "elements": None, "unsigned": None, "zerofill": None}
    data_type = {"mysqlType": kind, "charset": "binary", "collate": "binary"}
    return {
        "name": name,
        "dataType": data_type | empty | parameters,
        "nullable": nullable,
        "default": None,
    }


TABLE = {
    "database": "shop",
    "table": "t",
    "tableID": 148,
    "version": 7,
    "columns": [
        column("id", "int", nullable=False, length=11),
        column("n", "bigint", unsigned=True),
        column("price", "decimal", length=10, decimal=2),
        column("f", "float"),
        column("d", "double"),
        column("size", "enum", elements=["small", "it's"]),
        column("tags", "set", elements=["a", "b", "c"]),
        column("flags", "bit", length=4),
        column("at", "timestamp"),
        column("raw", "varbinary", length=8),
        column("note", "varchar", length=255),
    ],
    "indexes": [
        {"name": "p", "unique": True, "primary": True, "nullable": False, "columns": ["id"]}
    ],
}
OPTION = {
    "schema": "shop",
    **{name: TABLE[name] for name in ("table", "version", "indexes")},
    "columns": [
        part | {"dataType": {k: v for k, v in part["dataType"].items() if v is not None}}
        for part in TABLE["columns"]
    ],
}
# the forms of message.go in pkg/sink/codec/simple of pingcap/ticdc
ROW = {
    "id": -1,
    "n": (NAMESPACE + "UnsignedBigint", {"value": -1}),
    "price": "1.50",
    "f": ("float", 0.1),
    "d": ("double", 0.1),
    "size": 2,
    "tags": 5,
    "flags": "5",
    "at": (
        NAMESPACE + "Timestamp",
        {"location": "Asia/Shanghai", "value": "2024-07-01 12:00:00"},
    ),
    "raw": b"\x89PNG",
    "note": None,
}
JSON_ROW = {
    "id": "-1",
    "n": "18446744073709551615",
    "price": "1.50",
    "f": "0.1",
    "d": "0.1",
    "size": "2",
    "tags": "5",
    "flags": "5",
    "at": {"location": "Asia/Shanghai", "value": "2024-07-01 12:00:00"},
    "raw": "iVBORw==",
    "note": None,
}
HEAD = {"version": 1, "buildTs": 1708923719184}
DML = HEAD | {
    "database": "shop",
    "table": "t",
    "tableID": 148,
    "commitTs": TS,
    "schemaVersion": 7,
    "handleKeyOnly": None,
    "claimCheckLocation": None,
    "checksum": None,
}


@pytest.fixture(scope="module")
def avro(corpus):
    path = corpus / "ticdc-simple/pingcap_tiflow/pkg__sink__codec__simple__message.json"
    schema = fastavro.parse_schema(json.loads(path.read_text()))

    def data(kind, record, payload):
        out = io.BytesIO()
        message = {"type": kind, "payload": (NAMESPACE + record, payload)}
        fastavro.schemaless_writer(out, schema, (NAMESPACE + "Message", message))
        return out.getvalue()

    data.read = lambda value: fastavro.schemaless_reader(io.BytesIO(value), schema, schema)
    return data


def codec(**options):
    return get_codec("ticdc-simple-json", **options)


def decode(value, **options):
    value = value if isinstance(value, bytes) else json.dumps(value).encode()
    (event,) = codec(**options).decode(Message(value))
    return event


@pytest.mark.parametrize(
    ("kind", "images"), [("INSERT", ["data"]), ("UPDATE", ["data", "old"]), ("DELETE", ["old"])]
)
def test_a_row_in_avro_is_that_in_json(avro, kind, images):
    rows = {"data": None, "old": None} | dict.fromkeys(images, ROW)
    value = avro("DML", "DML", DML | {"type": kind} | rows)
    message = {name: part for name, part in DML.items() if part is not None} | {"type": kind}
    want = message | dict.fromkeys(images, JSON_ROW)
    assert decode(value, table_schemas=[OPTION]) == decode(want, table_schemas=[OPTION])
    alone = value[1:]  # the record without its number in the list of types
    assert decode(alone, table_schemas=[OPTION]) == decode(want, table_schemas=[OPTION])
    assert codec().detects(Message(value))
    event = decode(value)
    image = event.before or event.after
    assert image["raw"] == "iVBORw=="
    assert (image["id"], image["n"], image["note"]) == (-1, 2**64 - 1, None)
    assert str(image["f"]) == "0.1"


def test_a_bit_may_be_bytes(avro):
    row = ROW | {"flags": b"\x05"}
    value = avro("DML", "DML", DML | {"type": "INSERT", "data": row, "old": None})
    assert decode(value, table_schemas=[OPTION]).after["flags"] == "0101"


def test_other_messages_in_avro(avro):
    bootstrap = avro("BOOTSTRAP", "Bootstrap", HEAD | {"tableSchema": TABLE})
    event = decode(bootstrap)
    assert isinstance(event, SchemaChange)
    assert (event.key.columns, event.position) == (("id",), SequencePosition(7))
    ddl = HEAD | {"type": "ALTER", "sql": "ALTER TABLE t ADD c int", "commitTs": TS}
    event = decode(avro("DDL", "DDL", ddl | {"tableSchema": TABLE, "preTableSchema": None}))
    assert (event.action, event.table) == ("alter", TableId("shop", None, "t"))
    assert len(event.schema.columns) == len(TABLE["columns"])
    event = decode(avro("WATERMARK", "Watermark", HEAD | {"commitTs": TS}))
    assert (type(event), event.position) == (Watermark, SequencePosition(TS))
    stream = codec().open_stream()
    stream(Message(bootstrap))
    value = avro("DML", "DML", DML | {"type": "INSERT", "data": ROW, "old": None})
    (event,) = stream(Message(value))
    assert event.after["size"] == "it's"


def test_written_messages_are_data_of_the_schema(avro):
    options = {"table_schemas": [OPTION], "encoding_format": "avro"}
    want = DML | {"type": "UPDATE", "data": ROW, "old": ROW}
    event = decode(avro("DML", "DML", want), **options)
    (message,) = codec(**options).encode(event, on_loss="ignore").messages
    read = avro.read(message.value)
    at = {"location": "UTC", "value": "2024-07-01 04:00:00"}
    row = {name: part[1] if isinstance(part, tuple) else part for name, part in ROW.items()}
    row |= {"at": at, "f": pytest.approx(0.1)}
    assert read == {"type": "DML", "payload": want | {"data": row, "old": row}}
    assert decode(message.value, **options) == event
    statement = Truncate(TableId("shop", None, "t"), "TRUNCATE TABLE shop.t")
    for other, record in (
        (statement, {"type": "TRUNCATE", "sql": statement.ddl}),
        (Watermark("resolved", SequencePosition(TS), event.source, event.source_time_ns), {}),
    ):
        encoded = codec(**options).encode(other, on_loss="ignore")
        assert not encoded.losses
        (message,) = encoded.messages
        assert avro.read(message.value)["payload"].items() >= record.items()
        assert type(decode(message.value)) is type(other)


def test_a_watermark_has_known_bytes():
    # Message is type 11 of the schema, WATERMARK kind 0 and record 0 of its union
    value = bytes.fromhex("16 00 00 02 04 00".replace(" ", ""))
    assert decode(value).position == SequencePosition(2)
    for wrong, code in (
        (value[:-1], "malformed_avro"),
        (value + b"\0", "trailing_bytes"),
        (b"\x12" + value[1:], "malformed_json"),
    ):
        with pytest.raises(DecodeError) as caught:
            decode(wrong)
        assert caught.value.code == code


def test_what_avro_cannot_tell_from_nothing_is_a_loss():
    event = DataChange(
        Op.CREATE,
        TableId("shop", None, "t"),
        Key(("id",)),
        after={"id": "1"},
        position=SequencePosition(0),
        details={"tableID": 0},
    )
    encoded = codec(encoding_format="avro").encode(event, on_loss="ignore")
    losses = {field for field, _ in encoded.losses}
    assert losses >= {"position", "details.tableID"}
    unnamed = SchemaChange(TableId("shop", None, "t"), "alter", "ALTER TABLE t ADD c int")
    encoded = codec(encoding_format="avro").encode(unnamed, on_loss="ignore")
    assert "table.database" in {field for field, _ in encoded.losses}


def test_every_event_that_avro_can_express_comes_back():
    avro_codec = codec(encoding_format="avro")

    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(events(avro_codec.carries))
    def check(event):
        encoded = avro_codec.encode(event, on_loss="ignore")
        if encoded.losses:
            return
        (got,) = [got for message in encoded.messages for got in avro_codec.decode(message)]
        assert not differences(got, event, avro_codec.carries)

    check()


def test_mutated_messages_are_refused_or_read_completely():
    draw = random.Random(1)
    row = DataChange(Op.CREATE, TableId("shop", None, "t"), after={"id": "1", "note": "x"})
    (message,) = codec(encoding_format="avro").encode(row, on_loss="ignore").messages
    for _ in range(200):
        check_input(codec(), mutated(message.value, draw), None)

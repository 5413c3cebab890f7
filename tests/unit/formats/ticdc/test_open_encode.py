# SPDX-License-Identifier: Apache-2.0
"""Events to messages of TiCDC's open protocol: frames, flags, forms of values, losses."""

import datetime as dt

import msgspec
import pytest
from hypothesis import given, settings

from changelane import EncodeError, get_codec
from changelane.event import DataChange, Key, Op, SchemaChange, Source, Truncate, Watermark
from changelane.formats.contract.tidb_time_stamps import time_ns
from changelane.formats.ticdc.open.columns import _read_quoted, quoted
from changelane.position import SequencePosition
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.compare import differences
from changelane.testing.event_strategies import events
from changelane.types import Bits, Bytes, InstantType, Integer, String, Timestamp

TS = 415508878783938562
SOURCE = Source(product="tidb", connector="ticdc")
TABLE = TableId("test", None, "t1")
SCHEMA = TableSchema(
    (Column("id", Integer(32), "int"), Column("val", String(), "varchar(16)")),
)
EVENT = DataChange(
    Op.UPDATE,
    TABLE,
    Key(("id",)),
    {"id": 1, "val": None},
    {"id": 1, "val": "aa"},
    SCHEMA,
    SequencePosition(TS),
    source=SOURCE,
    source_time_ns=time_ns(TS),
)


def change(**fields):
    return msgspec.structs.replace(EVENT, **fields)


def encode(event, **options):
    encoded = get_codec("ticdc-open-json", **options).encode(event, on_loss="ignore")
    return encoded.messages, dict(encoded.losses)


def lost(event, **options):
    return sorted(encode(event, **options)[1])


def test_a_message_is_a_batch_of_one_event():
    encoded = get_codec("ticdc-open-json").encode(EVENT, on_loss="raise")
    (message,) = encoded.messages
    key = b'{"ts":415508878783938562,"scm":"test","tbl":"t1","t":1}'
    value = (
        b'{"u":{"id":{"t":3,"h":true,"f":3,"v":1},"val":{"t":15,"f":64,"v":"aa"}},'
        b'"p":{"id":{"t":3,"h":true,"f":3,"v":1},"val":{"t":15,"f":64,"v":null}}}'
    )
    assert message.key == (1).to_bytes(8, "big") + len(key).to_bytes(8, "big") + key
    assert message.value == len(value).to_bytes(8, "big") + value


@settings(deadline=None, max_examples=30, derandomize=True)
@given(events(get_codec("ticdc-open-json").carries))
def test_events_of_the_source_come_back_without_losses(event):
    codec = get_codec("ticdc-open-json", output_old_value=True)
    if hasattr(event, "source_time_ns"):
        # the protocol has no other time than that of the position
        event = msgspec.structs.replace(
            event, source_time_ns=time_ns(getattr(event.position, "value", None))
        )
    encoded = codec.encode(event, on_loss="ignore")
    read = [again for message in encoded.messages for again in codec.decode(message)]
    if not encoded.losses:
        assert [differences(again, event, codec.carries) for again in read] == [()]
    elif isinstance(event, DataChange):
        names = {field for field, _ in encoded.losses}
        assert names <= {
            *("operation:u", "absent", "before", "schema", "schema.key", "key", "value:bits"),
        } | {f"details.{name}" for name in event.details}


def test_an_insert_is_written_as_a_row_without_its_old_row():
    insert = change(op=Op.CREATE, before=None)
    assert lost(insert) == ["operation:upsert"]
    assert lost(insert, output_old_value=True) == []
    assert lost(change(op=Op.CREATE, before=None, key=None)) == ["operation:c"]
    assert lost(change(before=None), output_old_value=True) == ["operation:u"]
    assert lost(change(before=None)) == []


def test_a_row_that_is_not_whole_is_a_loss():
    assert lost(change(after={"id": 1})) == ["absent"]
    assert lost(change(op=Op.DELETE, before={"id": 1}, after=None)) == ["schema"]
    assert lost(change(before={"id": 1})) == ["before"]


def test_key_columns_have_the_order_of_the_row():
    assert lost(change(key=Key(("val", "id")))) == ["schema.key"]
    assert lost(change(key=Key(("no",)))) == ["key", "schema.key"]


def test_a_time_that_is_not_that_of_the_position_is_a_loss():
    assert lost(change(source_time_ns=0)) == ["source_time"]
    assert lost(change(position=SequencePosition(TS, 1))) == ["position", "source_time"]
    assert lost(change(position=None, source_time_ns=None)) == []


@pytest.mark.parametrize(
    ("kind", "source_type", "value", "code", "written"),
    [
        (Integer(64, unsigned=True), None, 7, (8, 64 | 128 | 1), 7),
        (Integer(32), "mediumint", 7, (9, 65), 7),
        (String(), "text", "aa", (252, 64), "YWE="),
        (String(), None, "aa", (251, 64), "YWE="),
        (String(), "uuid", "aa", (251, 64), "YWE="),
        (Bytes(), "varbinary(8)", b"\x89\n", (15, 65), "\\x89\\n"),
        (Bytes(), None, b"\x89\n", (251, 65), "iQo="),
        (Bits(8), "bit(8)", "10000001", (16, 65), 129),
        (Timestamp(3), "datetime(3)", dt.datetime(2024, 1, 2), (12, 65), "2024-01-02 00:00:00.000"),
        (
            InstantType(),
            None,
            dt.datetime(2024, 1, 2, tzinfo=dt.UTC),
            (7, 65),
            "2024-01-02 08:00:00",
        ),
    ],
)
def test_values_have_the_forms_of_their_codes(kind, source_type, value, code, written):
    schema = TableSchema((SCHEMA.columns[0], Column("c", kind, source_type)))
    event = change(before=None, after={"id": 1, "c": value}, schema=schema)
    (message,), _ = encode(event, time_zone="Asia/Shanghai")
    column = msgspec.json.decode(message.value[8:])["u"]["c"]
    assert (column["t"], column["f"]) == code
    assert column["v"] == written


def test_bytes_are_quoted_as_in_go():
    every_byte = bytes(range(256))
    for value in (every_byte, "é\u00a0\U000e0001\ufffd\u2028".encode(), b"\xed\xa0\x80", b""):
        assert _read_quoted(quoted(value)) == value
    assert quoted(b'"\\\x07\x7f\x00') == '\\"\\\\\\a\\x7f\\x00'
    assert quoted("\u00a0\U000e0001é".encode()) == "\\u00a0\\U000e0001é"


def test_leading_zeros_of_bits_are_a_loss():
    schema = TableSchema((SCHEMA.columns[0], Column("c", Bits(4))))
    assert lost(change(before=None, after={"id": 1, "c": "0101"}, schema=schema)) == ["value:bits"]


def test_a_value_of_another_type_is_no_message():
    with pytest.raises(EncodeError, match="column 'id' has a value that is not of its type"):
        encode(change(after={"id": "x", "val": None}))


def test_statements_have_the_number_of_their_action():
    alter = SchemaChange(TABLE, "alter", "ALTER TABLE t1 ADD c int", position=EVENT.position)
    alter = msgspec.structs.replace(alter, source=SOURCE, source_time_ns=EVENT.source_time_ns)
    for event, value in [
        (alter, {"q": "ALTER TABLE t1 ADD c int"}),
        (msgspec.structs.replace(alter, details={"t": 5}), {"q": alter.ddl, "t": 5}),
        (msgspec.structs.replace(alter, action="drop", ddl=None), {"q": "", "t": 4}),
    ]:
        (message,), losses = encode(event)
        assert msgspec.json.decode(message.value[8:]) == value
        assert not losses
    assert lost(msgspec.structs.replace(alter, action="create")) == ["action"]
    assert lost(msgspec.structs.replace(alter, details={"t": "5"})) == ["details.t"]
    (message,), _ = encode(Truncate(TABLE))
    assert msgspec.json.decode(message.value[8:]) == {"q": "TRUNCATE TABLE `test`.`t1`", "t": 11}


def test_only_a_resolved_time_is_a_message():
    time = EVENT.source_time_ns
    (message,), losses = encode(Watermark("resolved", EVENT.position, SOURCE, time))
    assert message.value == bytes(8)
    assert message.key.endswith(b'{"ts":415508878783938562,"t":3}')
    assert not losses
    assert encode(Watermark("heartbeat", EVENT.position, SOURCE))[0] == ()
    assert encode(Watermark("resolved", None, SOURCE))[0] == ()

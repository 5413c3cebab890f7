# SPDX-License-Identifier: Apache-2.0
"""Events to messages of AWS DMS: fields, keys, NULL, before images, losses."""

import decimal
import json

import msgspec
import pytest

from changelane import EncodeError, Message, UnsupportedError, get_codec
from changelane.event import Completeness, DataChange, Key, Op, Source, Transaction
from changelane.position import SequencePosition
from changelane.schema import Column, TableId, TableSchema
from changelane.types import Bytes, Float, Integer, String

SECOND = 1_000_000_000
EVENT = DataChange(
    Op.UPDATE,
    TableId(schema="s", name="t"),
    before={"id": 1, "name": "a"},
    after={"id": 1, "name": "b"},
    source=Source(connector="dms"),
    before_holds=Completeness.FULL,
    after_holds=Completeness.FULL,
)


def encode(event=EVENT, *, on_loss="raise", **options):
    codec = get_codec("aws-dms-json", **options)
    encoded = codec.encode(event, on_loss=on_loss)
    (message,) = encoded.messages
    return json.loads(message.value), message.key, dict(encoded.losses)


def change(**fields):
    return msgspec.structs.replace(EVENT, **fields)


def test_a_message_has_the_fields_of_the_producer_in_its_order():
    event = change(
        position=SequencePosition((2_500_000 << 64) + 7, 3),
        transaction=Transaction("7", 3),
        source_time_ns=2 * SECOND + SECOND // 2,
        process_time_ns=3 * SECOND,
        details={"stream-position": "x", "prev-transaction-id": 6, "own": [1]},
    )
    (message,) = get_codec("aws-dms-json").encode(event, on_loss="raise").messages
    assert message.value == (
        b'{"data":{"id":1,"name":"b"},"before-image":{"id":1,"name":"a"},'
        b'"metadata":{"timestamp":"1970-01-01T00:00:03.000000Z","record-type":"data",'
        b'"operation":"update","partition-key-type":"schema-table","schema-name":"s",'
        b'"table-name":"t","transaction-id":7,"transaction-record-id":3,'
        b'"prev-transaction-id":6,"commit-timestamp":"1970-01-01T00:00:02.500000Z",'
        b'"stream-position":"x","own":[1]}}'
    )
    assert get_codec("aws-dms-json").decode(message)[0].position == event.position


@pytest.mark.parametrize(
    ("op", "operation"), [(Op.READ, "load"), (Op.CREATE, "insert"), (Op.DELETE, "delete")]
)
def test_other_operations_have_one_image(op, operation):
    row = {"id": 1}
    images = {"before": row, "after": None} if op is Op.DELETE else {"before": None, "after": row}
    message, _, _ = encode(change(op=op, **images))
    assert message["metadata"]["operation"] == operation
    assert message["data"] == row
    assert "before-image" not in message


def test_null_is_omitted_unless_the_option_says_otherwise():
    event = change(after={"id": 1, "name": None})
    message, _, losses = encode(event, on_loss="ignore")
    assert message["data"] == {"id": 1}
    assert losses == {"null": "a NULL column is omitted; set the option nulls to written"}
    with pytest.raises(UnsupportedError, match="set the option nulls to written"):
        encode(event)
    message, _, losses = encode(event, nulls="written")
    assert (message["data"], losses) == ({"id": 1, "name": None}, {})


def test_the_message_key_is_the_table_or_the_primary_key():
    assert encode()[1] == b"s.t"
    assert encode(change(table=TableId(name="t")))[1] == b"t"
    keys = {"keys": {"t": ["id", "name"]}}
    assert encode(partition_key="primary-key", **keys)[1] == b"1.b"
    included = encode(partition_key="primary-key", partition_include_schema_table=True, **keys)
    assert included[1] == b"s.t.1.b"
    assert included[0]["metadata"]["partition-key-type"] == "primary-key"
    assert encode(partition_key="primary-key")[1] is None
    own = {"partition-key-type": "primary-key", "partition-key-value": "s.t.9"}
    assert encode(change(details=own))[1] == b"s.t.9"


def test_the_key_columns_are_those_of_the_options():
    event = change(key=Key(("id",)))
    assert set(encode(event, on_loss="ignore")[2]) == {"key"}
    assert encode(event, keys={"t": ["id"]})[2] == {}
    assert set(encode(event, on_loss="ignore", keys={"t": ["name"]})[2]) == {"key"}
    with pytest.raises(EncodeError, match="lacks a key column"):
        encode(keys={"t": ["nr"]})


def test_before_images_have_the_place_of_the_option():
    message, _, _ = encode(before="prefix:BI_")
    assert message["data"] == {"id": 1, "name": "b", "BI_id": 1, "BI_name": "a"}
    message, _, _ = encode(before="suffix:_old", before_field="x")
    assert message["data"] == {"id": 1, "name": "b", "id_old": 1, "name_old": "a"}
    assert encode(before_field="old")[0]["old"] == EVENT.before
    message, _, losses = encode(before="none", on_loss="ignore")
    assert message["data"] == EVENT.after
    assert set(losses) == {"before"}


def test_columns_that_readers_would_take_for_a_before_image_are_a_loss():
    insert = change(op=Op.CREATE, before=None, after={"id": 1, "BI_id": 2})
    assert set(encode(insert, on_loss="ignore")[2]) == {"column"}
    assert encode(insert, before="object")[2] == {}
    clash = change(after={"id": 1, "name": "b", "BI_id": 3})
    assert set(encode(clash, on_loss="ignore", before="prefix:BI_")[2]) == {"column"}


@pytest.mark.parametrize("holds", [Completeness.CHANGED, Completeness.KEY])
def test_a_partial_image_would_be_read_with_null(holds):
    event = change(after_holds=holds)
    assert set(encode(event, on_loss="ignore")[2]) == {"absent"}
    assert encode(event, absent="unchanged")[2] == {}


@pytest.mark.parametrize(
    "position", [SequencePosition(5), SequencePosition((2_500_000 << 64) + 8, 3)]
)
def test_a_position_of_another_producer_is_a_loss(position):
    event = change(position=position, transaction=Transaction("7", 3), source_time_ns=2_500_000_000)
    assert set(encode(event, on_loss="ignore")[2]) == {"position"}


def test_no_position_is_invented():
    event = change(transaction=Transaction("7", 3), source_time_ns=SECOND)
    message, _, losses = encode(event, on_loss="ignore")
    assert "transaction-record-id" not in message["metadata"]
    assert set(losses) == {"transaction.order"}


def test_an_id_of_a_transaction_that_is_no_number_stays_text():
    event = change(transaction=Transaction("571:9", 3), source_time_ns=SECOND)
    message, _, losses = encode(event)
    assert (message["metadata"]["transaction-id"], losses) == ("571:9", {})
    assert encode(change(transaction=Transaction("007")))[0]["metadata"]["transaction-id"] == "007"


def test_values_have_their_json_forms():
    schema = TableSchema(
        (
            Column("id", Integer(64, unsigned=True)),
            Column("raw", Bytes()),
            Column("f", Float(64)),
            Column("s", String()),
        )
    )
    row = {"id": 2**64 - 1, "raw": b"\x00\xff", "f": 0.1, "s": ""}
    event = change(op=Op.CREATE, before=None, after=row, schema=schema)
    message, _, _ = encode(event, on_loss="ignore")
    assert message["data"] == {"id": 2**64 - 1, "raw": "00FF", "f": 0.1, "s": ""}
    assert encode(event, on_loss="ignore", binary="base64")[0]["data"]["raw"] == "AP8="


def test_a_decimal_without_a_fraction_is_read_as_an_integer():
    event = change(after={"id": decimal.Decimal("1E+3"), "name": "b"})
    message, _, losses = encode(event, on_loss="ignore")
    assert message["data"]["id"] == 1000
    assert set(losses) == {"value:decimal"}


def test_further_fields_of_a_message_come_back():
    event = change(details={"envelope": {"trace": {"x": 1}}, "transaction-record-id": 0})
    message, _, losses = encode(event)
    assert (message["trace"], losses) == ({"x": 1}, {})
    codec = get_codec("aws-dms-json")
    (again,) = codec.decode(Message(json.dumps(message).encode()))
    assert again.details == {**event.details, "partition-key-type": "schema-table"}
    for envelope in (7, {"data": {}}):
        losses = encode(change(details={"envelope": envelope}), on_loss="ignore")[2]
        assert set(losses) == {"details.envelope"}
    losses = encode(change(details={"operation": "x"}), on_loss="ignore")[2]
    assert set(losses) == {"details.operation"}

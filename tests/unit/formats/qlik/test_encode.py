# SPDX-License-Identifier: Apache-2.0
"""Events to messages of Qlik Replicate: fields, tables, positions, losses."""

import json

import msgspec
import pytest

from changelane import EncodeError, Message, get_codec
from changelane.event import Completeness, DataChange, Key, Op, Source, Transaction
from changelane.position import SequencePosition
from changelane.schema import TableId

SEQUENCE = 20230911032325000000000000000000005
EVENT = DataChange(
    Op.UPDATE,
    TableId(schema="HR", name="T"),
    before={"ID": "1", "NAME": "a"},
    after={"ID": "1", "NAME": None},
    source=Source(connector="qlik"),
    before_holds=Completeness.FULL,
    after_holds=Completeness.FULL,
)


def encode(event=EVENT, *, on_loss="raise", **options):
    encoded = get_codec("qlik-json", **options).encode(event, on_loss=on_loss)
    (message,) = encoded.messages
    return json.loads(message.value), message.topic, dict(encoded.losses)


def change(**fields):
    return msgspec.structs.replace(EVENT, **fields)


def test_a_message_has_the_fields_of_the_producer_in_its_order():
    event = change(
        position=SequencePosition(SEQUENCE),
        transaction=Transaction("0006", 1, last=True),
        source_time_ns=1694402605_250_000_000,
        details={"streamPosition": "x", "envelope": {"messageSchemaId": "87A6"}},
    )
    (message,) = get_codec("qlik-json").encode(event, on_loss="raise").messages
    assert message.topic == "HR.T"
    assert message.value == (
        b'{"magic":"atMSG","type":"DT","headers":null,"messageSchemaId":"87A6",'
        b'"messageSchema":null,"message":{"data":{"ID":"1","NAME":null},'
        b'"beforeData":{"ID":"1","NAME":"a"},"headers":{"operation":"UPDATE",'
        b'"changeSequence":"20230911032325000000000000000000005",'
        b'"timestamp":"2023-09-11T03:23:25.250","streamPosition":"x","transactionId":"0006",'
        b'"transactionEventCounter":1,"transactionLastEvent":true}}}'
    )
    assert get_codec("qlik-json").decode(message) == (event,)


def test_the_envelope_is_an_option():
    message, _, losses = encode(envelope=False)
    assert list(message) == ["data", "beforeData", "headers"]
    event = change(details={"envelope": {"messageSchemaId": "87A6"}})
    losses = encode(event, envelope=False, on_loss="ignore")[2]
    assert set(losses) == {"details.envelope"}


def test_a_deleted_row_is_data():
    message, _, _ = encode(change(op=Op.DELETE, after=None))
    assert message["message"]["data"] == EVENT.before
    assert message["message"]["beforeData"] is None


@pytest.mark.parametrize("position", [SequencePosition(5), SequencePosition(SEQUENCE, 1)])
def test_a_position_of_another_producer_is_a_loss(position):
    message, _, losses = encode(change(position=position), on_loss="ignore")
    assert "changeSequence" not in message["message"]["headers"]
    assert set(losses) == {"position"}


def test_a_shorter_change_sequence_of_its_own_comes_back():
    own = change(position=SequencePosition(100), details={"changeSequence": "0100"})
    assert encode(own)[0]["message"]["headers"]["changeSequence"] == "0100"
    other = change(position=SequencePosition(101), details={"changeSequence": "0100"})
    assert set(encode(other, on_loss="ignore")[2]) == {"position"}


def test_masks_are_not_written():
    event = change(details={"changeMask": "01", "columnMask": "03"})
    message, _, losses = encode(event, on_loss="ignore")
    assert "columnMask" not in message["message"]["headers"]
    assert set(losses) == {"details.changeMask", "details.columnMask"}


@pytest.mark.parametrize(
    "table", [TableId(schema="HR", name="a.b"), TableId(name="caf\u00e9"), TableId(schema="HR")]
)
def test_a_table_that_readers_cannot_derive_is_a_loss(table):
    assert set(encode(change(table=table), on_loss="ignore")[2]) == {"table.name"}


def test_a_column_may_have_the_name_of_the_table():
    options = {"table_from": "column:tbl"}
    message, topic, losses = encode(**options)
    assert (topic, losses) == (None, {})
    assert message["message"]["data"]["tbl"] == "HR.T"
    assert message["message"]["beforeData"]["tbl"] == "HR.T"
    clash = change(after={"ID": "1", "tbl": "x"})
    assert set(encode(clash, on_loss="ignore", **options)[2]) == {"column"}
    with pytest.raises(EncodeError, match="no table"):
        encode(change(table=TableId()), **options)


def test_keys_are_those_of_the_option():
    event = change(key=Key(("ID",)))
    assert set(encode(event, on_loss="ignore")[2]) == {"key"}
    schemas = {"T": {"ID": "int32 key"}}
    assert encode(event, schemas=schemas)[2] == {}
    with pytest.raises(EncodeError, match="lacks a key column"):
        encode(change(after={"NAME": "a"}), schemas=schemas)


def test_the_word_of_a_snapshot_follows_from_the_operation():
    read = change(op=Op.READ, before=None)
    assert set(encode(read, on_loss="ignore")[2]) == {"source.snapshot"}
    source = Source(connector="qlik", snapshot="REFRESH")
    assert encode(msgspec.structs.replace(read, source=source))[2] == {}


def test_a_partial_image_would_be_read_with_null():
    losses = encode(change(after_holds=Completeness.CHANGED), on_loss="ignore")[2]
    assert set(losses) == {"absent"}


def test_further_fields_of_a_message_come_back_or_are_a_loss():
    details = {
        "message": {"more": 1},
        "envelope": {"headers": {"h": "x"}, "extra": 2},
        "own": [1],
    }
    message, _, losses = encode(change(details=details))
    assert losses == {}
    value = Message(json.dumps(message).encode(), topic="HR.T")
    (again,) = get_codec("qlik-json").decode(value)
    assert again.details == details
    for wrong in (
        {"message": {"data": 1}},
        {"message": 5},
        {"envelope": {"magic": "x"}},
        {"envelope": {"headers": {"h": 1}}},
        {"operation": "x"},
        {"streamPosition": 5},
    ):
        (name,) = wrong
        assert set(encode(change(details=wrong), on_loss="ignore")[2]) == {f"details.{name}"}


def test_a_row_without_columns_is_refused():
    with pytest.raises(EncodeError, match="without columns"):
        encode(change(after={}), on_loss="ignore")

"""Flink's changelog: the four kinds of rows, and the pairs of an update."""

import json
from decimal import Decimal

import pytest

from changelane import Message, get_codec
from changelane.conversion.join_update_halves import JoinHalves, Orphans
from changelane.conversion.stateful import run
from changelane.errors import ConfigError, DecodeError
from changelane.event import Completeness, DataChange, HalfUpdate, Key, KeyOrigin, Op
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId

CODEC = get_codec("changelog-json")
KEYED = get_codec("changelog-json", schemas={"t": {"id": "int32 key", "at": "timestamp(3)"}})


def message(op, key=None, **row):
    return Message(json.dumps({"data": row, "op": op}).encode(), key, topic="t")


def joined(codec, *messages):
    events = [event for each in messages for event in codec.decode(each)]
    return list(run(JoinHalves(orphans=Orphans.HALF), events))


def test_the_messages_of_flink_cdc_add_up_to_their_table(corpus):
    path = corpus / "flink-changelog" / "apache_flink-cdc__changelog-json-data.txt"
    messages = [Message(line, topic="products") for line in path.read_bytes().splitlines()]
    events = joined(CODEC, *messages)
    assert [event.op.value for event in events] == list("cccccccccuuccuud")
    rows = {}
    for event in events:
        if event.before is not None:
            assert rows.pop(event.before["id"]) == event.before
        if event.after is not None:
            rows[event.after["id"]] = event.after
    assert sorted(rows) == [*range(101, 111)]
    assert rows[107]["weight"] == Decimal("5.099999904632568")
    assert rows[110]["description"] == "new water resistent white wind breaker"
    written = [each.value for e in events for each in CODEC.encode(e).messages]
    assert written == [each.value for each in messages]


def test_a_pair_is_one_update_and_other_rows_stay_alone():
    update, insert = joined(
        KEYED,
        message("-U", id=1, at=None),
        message("+U", id=1, at="2024-01-01 00:00:00.5"),
        message("+I", id=2),
    )
    assert (update.op, update.before["id"], update.key) == (
        Op.UPDATE,
        1,
        Key(("id",), KeyOrigin.CONFIG),
    )
    assert update.after["at"].isoformat() == "2024-01-01T00:00:00.500000"
    assert insert.after == {"id": 2, "at": None}


@pytest.mark.parametrize(
    "second",
    [message("+U", id=2), message("+I", id=1), message("-D", id=1), message("-U", id=1)],
)
def test_an_old_row_without_its_new_row_is_reported(second):
    first, other = joined(KEYED, message("-U", id=1), second)
    assert isinstance(first, HalfUpdate)
    assert isinstance(other, DataChange) or second.value.endswith(b'"-U"}')


def test_a_new_row_alone_is_an_upsert():
    (event,) = joined(CODEC, message("+U", id=1))
    assert (event.op, event.before) == (Op.UPDATE, None)


def test_the_message_key_names_the_key_columns():
    (event,) = CODEC.decode(message("+I", b'{"id":1}', id=1, n=2))
    assert event.key == Key(("id",))
    for key in (b'{"id":2}', b'{"other":1}', b"1", b"\xff", b"{}"):
        assert CODEC.decode(message("+I", key, id=1))[0].key is None


@pytest.mark.parametrize(
    ("value", "code", "path"),
    [
        (b'{"data":{"id":1},"op":"U"}', ReasonCode.UNKNOWN_OPERATION, "$.op"),
        (b'{"data":null,"op":"+I"}', ReasonCode.WRONG_TYPE, "$.data"),
        (b'{"data":{"id":1}}', ReasonCode.WRONG_TYPE, "$"),
        (b'{"data":{"id":1},"op":"+I","ts":1}', ReasonCode.WRONG_TYPE, "$"),
        (b'{"data":{"id":"x"},"op":"+I"}', ReasonCode.WRONG_TYPE, "$.data.id"),
    ],
)
def test_another_message_is_rejected(value, code, path):
    with pytest.raises(DecodeError) as error:
        KEYED.decode(Message(value, topic="t"))
    assert (error.value.code, error.value.path) == (code, path)


def test_the_option_names_the_table():
    codec = get_codec("changelog-json", table="shop.orders")
    (event,) = codec.decode(message("+I", id=1))
    assert event.table == TableId("shop", None, "orders")
    assert codec.encode(event).messages == (Message(b'{"data":{"id":1},"op":"+I"}'),)
    other = CODEC.decode(message("+I", id=1))[0]
    assert dict(codec.encode(other, on_loss="warn").losses).keys() == {
        "table.database",
        "table.name",
    }
    with pytest.raises(ConfigError, match="at most three parts"):
        get_codec("changelog-json", table="a.b.c.d")


def test_a_change_of_the_declared_key_is_a_loss():
    event = DataChange(
        Op.UPDATE,
        TableId(name="t"),
        before={"id": 1, "at": None},
        after={"id": 2, "at": None},
        before_holds=Completeness.FULL,
        after_holds=Completeness.FULL,
    )
    losses = dict(KEYED.encode(event, on_loss="ignore").losses)
    assert losses["key_change"] == "read as a delete and an update"
    assert "key_change" not in dict(CODEC.encode(event, on_loss="ignore").losses)

"""Plain rows: the value is the row, the message key its key, null a delete."""

import datetime as dt
from decimal import Decimal

import pytest

from changelane import Message, get_codec
from changelane.errors import DecodeError, EncodeError
from changelane.event import DataChange, Key, KeyOrigin, Op
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId

CODEC = get_codec("plain-json")
COLUMNS = {"id": "int64 key", "d": "date", "n": "string"}
TYPED = get_codec("plain-json", table="shop.t", schemas={"shop.t": COLUMNS})


def read(value, key=b'{"id":1}', codec=CODEC):
    (event,) = codec.decode(Message(value, key, topic="t"))
    return event


def test_a_row_is_an_upsert_and_null_a_delete():
    event = read(b'{"id":1,"price":1.50}')
    assert (event.op, event.key, event.table) == (Op.UPDATE, Key(("id",)), TableId(name="t"))
    assert (event.before, event.after) == (None, {"id": 1, "price": Decimal("1.50")})
    delete = read(None)
    assert (delete.op, delete.before, delete.after) == (Op.DELETE, {"id": 1}, None)
    for each in (event, delete):
        assert read(CODEC.encode(each).messages[0].value) == each


def test_key_columns_that_the_value_omits_are_added():
    assert read(b'{"n":"x"}').after == {"id": 1, "n": "x"}


def test_an_empty_value_is_a_delete():
    assert read(b"") == read(b"null") == read(None)


def test_a_key_may_have_its_schema_beside_it():
    wrapped = b'{"schema":{"type":"struct"},"payload":{"id":1}}'
    assert read(b'{"a":"x"}', key=wrapped) == read(b'{"a":"x"}')
    assert read(None, key=wrapped) == read(None)
    with pytest.raises(DecodeError) as caught:
        read(None, key=b'{"schema":{"type":"int64"},"payload":1}')
    assert caught.value.code is ReasonCode.NO_KEY


def test_declared_types_hold_for_rows_and_keys():
    event = read(b'{"d":"2024-02-29"}', codec=TYPED)
    assert event.after == {"id": 1, "d": dt.date(2024, 2, 29), "n": None}
    assert event.table == TableId("shop", None, "t")
    assert read(b'{"id":7}', key=None, codec=TYPED).key == Key(("id",), KeyOrigin.CONFIG)
    assert read(None, b'{"id":"7"}', codec=TYPED).before == {"id": 7}


@pytest.mark.parametrize(
    ("value", "key", "code", "path"),
    [
        (b'{"id":1}', None, ReasonCode.NO_KEY, "$"),
        (b'{"id":1}', b"1", ReasonCode.NO_KEY, "$"),
        (None, None, ReasonCode.NO_KEY, "$"),
        (None, b"{}", ReasonCode.NO_KEY, "$"),
        (b'{"id":2}', b'{"id":1}', ReasonCode.WRONG_IMAGE, "$.id"),
        (b"1", b'{"id":1}', ReasonCode.WRONG_TYPE, "$"),
        (b'{"schema":{},"payload":{}}', b'{"id":1}', ReasonCode.UNKNOWN_KIND, "$"),
    ],
)
def test_a_message_without_its_key_or_row_is_rejected(value, key, code, path):
    with pytest.raises(DecodeError) as error:
        read(value, key)
    assert (error.value.code, error.value.path) == (code, path)


def test_a_wrong_value_has_the_path_of_its_column():
    with pytest.raises(DecodeError) as error:
        read(b'{"id":1,"d":"x"}', codec=TYPED)
    assert error.value.path == "$.d"


def test_a_change_without_key_is_not_written():
    for key, row in ((None, {"id": 1}), (Key(("id",)), {"n": 1}), (Key(()), {"id": 1})):
        with pytest.raises(EncodeError):
            CODEC.encode(DataChange(Op.UPDATE, TableId(name="t"), key, after=row), on_loss="warn")


def test_a_change_of_the_key_deletes_the_old_one():
    event = DataChange(
        Op.UPDATE, TableId(name="t"), Key(("id",)), before={"id": 1, "n": 1}, after={"id": 2}
    )
    messages = CODEC.encode(event, on_loss="warn").messages
    assert [(m.key, m.value) for m in messages] == [
        (b'{"id":1}', None),
        (b'{"id":2}', b'{"id":2,"n":1}'),
    ]


def test_only_rows_with_their_key_are_recognised():
    assert CODEC.detects(Message(b'{"id":1,"n":2}', b'{"id":1}'))
    for value, key in (
        (b'{"id":1}', None),
        (b'{"id":1}', b'{"id":2}'),
        (b'{"id":1,"__op":"c"}', b'{"id":1}'),
        (b'{"before":null,"after":{"id":1}}', b'{"id":1}'),
    ):
        assert not CODEC.detects(Message(value, key))

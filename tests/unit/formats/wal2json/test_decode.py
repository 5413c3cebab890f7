# SPDX-License-Identifier: Apache-2.0
"""Messages of wal2json to events: images, keys, positions, streams, refusals."""

import decimal
import json
import os
from pathlib import Path

import pytest

from changelane import DecodeError, Message, get_codec
from changelane.event import (
    Completeness,
    Key,
    KeyOrigin,
    LogicalMessage,
    Op,
    Tombstone,
    Transaction,
    Truncate,
    lists_sent_columns_only,
)
from changelane.position import SequencePosition
from changelane.schema import TableId
from changelane.types import UNAVAILABLE, Array, Bits, InstantType, Integer, Text

TABLE = TableId(schema="public", name="t")
TYPES = {"id": "integer", "note": "text", "big": "text", "n": "numeric", "f": "real", "d": "date"}


def columns(**values):
    return [{"name": name, "type": TYPES[name], "value": value} for name, value in values.items()]


def action(kind, **fields):
    return {"action": kind, "schema": "public", "table": "t"} | fields


def decode(message, **options):
    return get_codec("wal2json", **options).decode(Message(json.dumps(message).encode()))


def event_of(message, **options):
    (event,) = decode(message, **options)
    return event


def refused(message, **options):
    with pytest.raises(DecodeError) as caught:
        decode(message, **options)
    return caught.value.code, caught.value.path


def streamed(*messages, **options):
    decode_next = get_codec("wal2json", **options).open_stream()
    values = [m if isinstance(m, bytes) else json.dumps(m).encode() for m in messages]
    return [event for value in values for event in decode_next(Message(value))]


# -- images and keys -----------------------------------------------------------------------------


def test_an_update_lists_the_columns_that_it_sends():
    event = event_of(action("U", columns=columns(id=1, note="b"), identity=columns(id=1)))
    assert (event.op, event.before, event.after) == (Op.UPDATE, None, {"id": 1, "note": "b"})
    assert event.after_holds is Completeness.CHANGED
    assert lists_sent_columns_only(event)
    assert event.key == Key(("id",), KeyOrigin.PAYLOAD)


def test_an_insert_lists_all_columns():
    event = event_of(action("I", columns=columns(id=1, note=None)))
    assert not lists_sent_columns_only(event)
    assert event.key is None


def test_a_changed_key_is_the_before_image():
    event = event_of(action("U", columns=columns(id=2, note="b"), identity=columns(id=1)))
    assert event.before == {"id": 1}


def test_a_whole_old_row_is_no_key_and_names_the_omitted_columns():
    old = columns(id=1, note="a", big="B")
    event = event_of(action("U", columns=columns(id=1, note="b"), identity=old))
    assert event.key is None
    assert event.before == {"id": 1, "note": "a", "big": "B"}
    assert event.after == {"id": 1, "note": "b", "big": UNAVAILABLE}
    assert event_of(action("U", columns=columns(id=1), identity=columns(id=1))).before == {"id": 1}


def test_the_key_is_pk_then_configured_then_the_identity():
    row = {"columns": columns(id=1, note="b"), "identity": columns(note="a")}
    pk = [{"name": "id", "type": "integer"}]
    keys = {"keys": {"public.t": ["note", "id"]}}
    assert event_of(action("U", **row, pk=pk), **keys).key.columns == ("id",)
    assert event_of(action("U", **row), **keys).key == Key(("note", "id"), KeyOrigin.CONFIG)
    assert event_of(action("U", **row)).key.columns == ("note",)
    assert event_of(action("U", **row, pk=[])).key is None


def test_a_delete_has_the_columns_of_its_identity():
    event = event_of(action("D", identity=columns(id=1)))
    assert (event.op, event.before, event.after) == (Op.DELETE, {"id": 1}, None)
    assert event.key.columns == ("id",)


def test_a_null_in_a_number_that_is_not_null_is_rejected():
    for name in ("n", "f"):
        column = columns(**{name: None})[0]
        assert event_of(action("I", columns=[column | {"optional": True}])).after == {name: None}
        refusal = refused(action("I", columns=[column | {"optional": False}]))
        assert refusal == ("value_out_of_range", "$.columns[0].value")
    event = event_of(action("I", columns=columns(f="Infinity", n="1.50")))
    assert str(event.after["n"]) == "1.50"


def test_dates_of_another_style_need_their_order():
    message = action("I", columns=columns(d="02-04-2013"))
    assert refused(message) == ("wrong_type", "$.columns[0].value")
    assert event_of(message, date_order="dmy").after["d"].isoformat() == "2013-04-02"


def test_a_domain_has_the_text_of_its_values_beside_the_base_type():
    values = [
        {"name": "b", "type": "boolean", "value": "t"},
        {"name": "c", "type": "boolean", "value": "f"},
        {"name": "raw", "type": "bytea", "value": "\\x00ff"},
        {"name": "i", "type": "integer", "value": "5"},
    ]
    after = event_of(action("I", columns=values)).after
    assert after == {"b": True, "c": False, "raw": b"\x00\xff", "i": 5}
    wrong = [{"name": "b", "type": "boolean", "value": "yes"}]
    assert refused(action("I", columns=wrong)) == ("wrong_type", "$.columns[0].value")


def test_a_bit_without_a_length_has_any_length():
    kind = event_of(action("I", columns=[{"name": "b", "type": "bit", "value": "10101"}])).schema
    assert kind.columns[0].type == Bits()


def test_internal_names_of_types_are_read():
    types = {"_int4": "{1,NULL}", "timestamptz": "infinity", "_mood": "{a}"}
    message = action("I", columns=[{"name": t, "type": t, "value": v} for t, v in types.items()])
    event = event_of(message)
    assert event.after == types | {"_int4": [1, None]}
    kinds = [column.type for column in event.schema.columns]
    assert kinds == [Array(Integer(32)), InstantType(), Text("_mood")]


def test_without_types_the_values_are_those_of_json():
    row = [
        {"name": "id", "value": 1},
        {"name": "n", "value": 1.25},
        {"name": "b", "value": True},
        {"name": "note", "value": None},
    ]
    values = {"id": 1, "n": decimal.Decimal("1.25"), "b": True, "note": None}
    event = event_of(action("I", columns=row))
    assert (event.schema, event.after, event.after_holds) == (None, values, Completeness.FULL)
    assert type(event.after["n"]) is decimal.Decimal
    identity = [{"name": "id", "value": 2}]
    event = event_of(action("U", columns=row[:2], identity=identity))
    assert (event.before, event.after_holds) == ({"id": 2}, Completeness.CHANGED)
    event = event_of(action("U", columns=row[:2], identity=[*identity, *row[3:]]))
    assert (event.schema, event.after["note"]) == (None, UNAVAILABLE)
    assert event_of(action("D", identity=identity)).before == {"id": 2}
    wrong = action("I", columns=[{"name": "id", "value": [1]}])
    assert refused(wrong) == ("wrong_type", "$.columns[0].value")
    assert refused(action("I", columns=row[:1] * 2)) == ("wrong_schema", "$.columns")


def test_version_1_without_types_is_read():
    table = {"schema": "public", "table": "t"}
    row = {"columnnames": ["id", "n"], "columnoptionals": [], "columnvalues": [1, "a"]}
    old = {"keynames": ["id"], "keyvalues": [1]}
    insert, delete = decode(
        {
            "change": [
                table | row | {"kind": "insert"},
                table | {"kind": "delete", "oldkeys": old, "pk": {"pknames": ["id"]}},
            ]
        }
    )
    assert (insert.schema, insert.after) == (None, {"id": 1, "n": "a"})
    assert (delete.before, delete.key.columns) == ({"id": 1}, ("id",))


# -- other messages ------------------------------------------------------------------------------


def test_other_actions_are_events():
    assert event_of(action("T", xid=7)) == Truncate(
        TABLE, transaction=Transaction("7"), source=event_of(action("T")).source
    )
    message = {"action": "M", "transactional": False, "prefix": "p", "content": "\u00e9", "xid": 7}
    event = event_of(message)
    assert isinstance(event, LogicalMessage)
    assert (event.content, event.transaction) == ("\u00e9".encode(), None)
    assert event_of(message | {"transactional": True}).transaction == Transaction("7")
    assert event_of({"action": "B", "xid": 7}).status == "begin"
    assert event_of({"action": "C"}).transaction == Transaction("")
    assert get_codec("wal2json").decode(Message(None)) == (Tombstone(TableId()),)


@pytest.mark.parametrize(
    ("message", "refusal"),
    [
        (action("X"), ("unknown_operation", "$.action")),
        ({"action": "I", "columns": columns(id=1)}, ("missing_field", "$.table")),
        (action("I"), ("missing_image", "$")),
        (action("I", columns=[]), ("missing_image", "$")),
        (action("D"), ("missing_image", "$")),
        (
            action("I", columns=columns(id=1), identity=columns(id=1)),
            ("unexpected_image", "$.identity"),
        ),
        (
            action("D", columns=columns(id=1), identity=columns(id=1)),
            ("unexpected_image", "$.columns"),
        ),
        (action("I", columns=columns(id=1) * 2), ("wrong_schema", "$.columns")),
        (action("I", columns=columns(id=2**31)), ("value_out_of_range", "$.columns[0].value")),
        (action("I", columns=columns(id=1.5)), ("wrong_type", "$.columns[0].value")),
        (action("I", columns=columns(id=1, note=5)), ("wrong_type", "$.columns[1].value")),
        (action("T", lsn="x"), ("wrong_type", "$.lsn")),
        (action("T", timestamp="yesterday"), ("wrong_type", "$.timestamp")),
        ({"action": "M", "prefix": "p"}, ("missing_field", "$.content")),
        ({}, ("missing_field", "$.action")),
        ({"change": [{"kind": "x"}]}, ("unknown_operation", "$.change[0].kind")),
        (
            {"change": [{"kind": "insert", "table": "t", "columnnames": ["a"], "columntypes": []}]},
            ("wrong_length", "$.change[0]"),
        ),
    ],
)
def test_what_cannot_be_read_is_rejected(message, refusal):
    assert refused(message) == refusal


# -- version 1 -----------------------------------------------------------------------------------

INSERT = {
    "kind": "insert",
    "schema": "public",
    "table": "t",
    "columnnames": ["id", "note"],
    "columntypes": ["integer", "text"],
    "columnvalues": [1, "a"],
}
DELETE = {"kind": "delete", "schema": "public", "table": "t"} | {
    "oldkeys": {"keynames": ["id"], "keytypes": ["integer"], "keyvalues": [1]}
}


def test_the_changes_of_version_1_are_numbered():
    message = {
        "xid": 7,
        "nextlsn": "0/10",
        "timestamp": "2018-03-27 11:58:28-03",
        "change": [INSERT, DELETE],
    }
    first, second = decode(message)
    assert (first.position, first.transaction) == (SequencePosition(16), Transaction("7"))
    assert (second.position, second.before) == (SequencePosition(16, 1), {"id": 1})
    assert first.source_time_ns == second.source_time_ns == 1522162708_000_000_000
    assert decode({"change": []}) == ()


def test_chunks_are_read_alone_and_in_a_stream():
    begin, end = b'{"xid":7,"nextlsn":"0/10","change":[', b"]}"
    first, second = json.dumps(INSERT).encode(), b"," + json.dumps(DELETE).encode()
    codec = get_codec("wal2json")
    alone = [
        event for value in (begin, first, second, end) for event in codec.decode(Message(value))
    ]
    assert [event.op for event in alone] == [Op.CREATE, Op.DELETE]
    assert {event.position for event in alone} == {None}
    places = [(e.position, e.transaction) for e in streamed(begin, first, second, end, first)]
    transaction = Transaction("7")
    assert places[:2] == [
        (SequencePosition(16), transaction),
        (SequencePosition(16, 1), transaction),
    ]
    assert places[2] == (None, None)


# -- streams -------------------------------------------------------------------------------------


def test_a_stream_orders_rows_by_the_commit_of_their_transaction():
    rows = [action("I", columns=columns(id=n), lsn=f"0/{n}") for n in (1, 2)]
    events = streamed(
        {"action": "B", "lsn": "0/9", "xid": 7}, *rows, {"action": "C", "lsn": "0/9"}, rows[0]
    )
    assert [event.position for event in events[1:3]] == [
        SequencePosition(9),
        SequencePosition(9, 1),
    ]
    assert events[1].transaction == Transaction("7")
    assert events[4].position == SequencePosition(1)
    assert event_of(rows[1]).position == SequencePosition(2)


def test_a_row_of_another_transaction_does_not_have_its_commit():
    row = action("I", columns=columns(id=1), lsn="0/20", xid=8)
    _, event = streamed({"action": "B", "lsn": "0/9", "xid": 7}, row)
    assert (event.position, event.transaction) == (SequencePosition(32), Transaction("8"))


def test_rows_of_one_lsn_without_a_begin_are_numbered():
    rows = [
        action("I", columns=columns(id=n), lsn=lsn)
        for n, lsn in ((1, "0/1"), (2, "0/1"), (3, "0/2"))
    ]
    events = streamed(*rows)
    assert [event.position for event in events] == [
        SequencePosition(1),
        SequencePosition(1, 1),
        SequencePosition(2),
    ]
    assert get_codec("wal2json").carries.shared_positions == {"sequence"}


def test_a_stream_knows_omitted_columns_from_an_insert():
    insert = action("I", columns=columns(id=1, note="a", big="B"))
    update = action("U", columns=columns(id=1, note="b"), identity=columns(id=1))
    _, event = streamed(insert, update)
    assert event.after == {"id": 1, "note": "b", "big": UNAVAILABLE}
    assert not lists_sent_columns_only(event)
    _, event = streamed(insert, action("U", columns=columns(id=1, n=5), identity=columns(id=1)))
    assert lists_sent_columns_only(event)  # the table has a new column


CORPUS = Path(os.environ.get("CHANGELANE_CORPUS", "")) / "wal2json" / "eulerto_wal2json"


def documents(path):
    """The messages in the expected output of a regression test, also over several lines."""
    text = ""
    for line in path.read_text("utf-8", "replace").splitlines():
        body = line.rstrip().removesuffix("+").strip()
        if text or body.lstrip(",").startswith("{") or body.startswith("]"):
            text += body + "\n"
            if not line.rstrip().endswith("+"):
                yield text.strip()
                text = ""


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the plugin's regression tests are not here")
def test_the_output_of_the_regression_tests_is_read():
    codec = get_codec("wal2json", date_order="mdy")
    count = 0
    for path in sorted(CORPUS.glob("*.out")):
        for text in documents(path):
            codec.decode(Message(text.encode()))
            count += 1
    assert count > 700

# SPDX-License-Identifier: Apache-2.0
"""Messages of pgoutput to events: relations, images, streamed and prepared transactions."""

import struct

import pytest

from changelane import DecodeError, Message, get_codec
from changelane.event import DataChange, Key, KeyOrigin, Op, Tombstone, Transaction, Watermark
from changelane.formats.contract.postgres_type_numbers import number_of, type_text_of
from changelane.formats.pgoutput import wire
from changelane.position import SequencePosition
from changelane.schema import TableId
from changelane.types import UNAVAILABLE, Text

INT, TEXT, MOOD = 23, 25, 16385


def relation(
    oid=1, name="t", identity="d", columns=(("id", INT, True), ("note", TEXT, False)), xid=b""
):
    made = tuple(wire.RelationColumn(is_key, column, kind, -1) for column, kind, is_key in columns)
    data = wire.relation_bytes(wire.RelationMessage(oid, "public", name, identity, made))
    return data[:1] + xid + data[1:]


def cells(*values):
    return [value if isinstance(value, int | None) else value.encode() for value in values]


def row(kind, *values):
    return wire.row_bytes(kind, cells(*values))


def insert(*values, oid=1, xid=b""):
    return b"I" + xid + struct.pack(">I", oid) + row(wire.NEW, *values)


def update(old, new, oid=1):
    return b"U" + struct.pack(">I", oid) + old + row(wire.NEW, *new)


def delete(kind, *values):
    return b"D" + struct.pack(">I", 1) + row(kind, *values)


def begin(lsn=16, time=0, xid=7):
    return b"B" + struct.pack(">QqI", lsn, time, xid)


def commit(lsn=16):
    return b"C" + struct.pack(">BQQq", 0, lsn, lsn + 8, 0)


def start(xid, *, is_first=True):
    return b"S" + struct.pack(">IB", xid, is_first)


STOP = b"E"


def stream_commit(xid, lsn=32):
    return b"c" + struct.pack(">IBQQq", xid, 0, lsn, lsn + 8, 0)


def abort(xid, sub_xid, parallel=b""):
    return b"A" + struct.pack(">II", xid, sub_xid) + parallel


def sub(xid):
    return struct.pack(">I", xid)


def decode(value, **options):
    return get_codec("pgoutput", **options).decode(Message(value))


def refused(value, **options):
    with pytest.raises(DecodeError) as caught:
        decode(value, **options)
    return caught.value.code


def streamed(*values, **options):
    decode_next = get_codec("pgoutput", **options).open_stream()
    return [event for value in values for event in decode_next(Message(value))]


def rows(events):
    return [(e.after or e.before)["id"] for e in events if isinstance(e, DataChange)]


# -- relations -----------------------------------------------------------------------------------


def test_a_row_needs_its_relation():
    assert refused(insert("1", "a")) == "unknown_relation"
    with pytest.raises(DecodeError, match="relation 2"):
        streamed(relation(), insert("1", "a", oid=2))
    (event,) = decode(relation() + insert("1", "a"))
    assert event.after == {"id": 1, "note": "a"}
    assert event.table == TableId(schema="public", name="t")
    assert event.key == Key(("id",), KeyOrigin.PAYLOAD)


def test_a_stream_follows_changed_relations():
    wider = relation(columns=(("id", INT, True), ("note", TEXT, False), ("n", INT, False)))
    events = streamed(relation(), insert("1", "a"), wider, insert("2", "b", "3"))
    assert [event.after for event in events] == [
        {"id": 1, "note": "a"},
        {"id": 2, "note": "b", "n": 3},
    ]


def test_messages_alone_share_no_relation():
    codec = get_codec("pgoutput")
    codec.decode(Message(relation() + insert("1", "a")))
    with pytest.raises(DecodeError, match="not known"):
        codec.decode(Message(insert("1", "a")))
    first, second = codec.open_stream(), codec.open_stream()
    first(Message(relation()))
    with pytest.raises(DecodeError, match="not known"):
        second(Message(insert("1", "a")))


def test_each_partition_is_a_stream():
    decode_next = get_codec("pgoutput").open_stream()
    decode_next(Message(relation(), topic="t", partition=0, offset=0))
    with pytest.raises(DecodeError, match="not known"):
        decode_next(Message(insert("1", "a"), topic="t", partition=1, offset=0))
    assert decode_next(Message(insert("1", "a"), topic="t", partition=0, offset=1))


def test_a_malformed_relation_makes_all_unknown():
    decode_next = get_codec("pgoutput").open_stream()
    decode_next(Message(relation()))
    with pytest.raises(DecodeError):
        decode_next(Message(relation()[:-3]))
    with pytest.raises(DecodeError, match="not known"):
        decode_next(Message(insert("1", "a")))


def test_a_row_of_another_length_is_rejected():
    assert refused(relation() + insert("1")) == "wrong_length"
    assert refused(relation() + insert("1", "a", "b")) == "wrong_length"


def test_types_that_are_not_built_in_have_names():
    kind = b"Y" + struct.pack(">I", MOOD) + b"app\0mood\0"
    columns = (("id", INT, True), ("m", MOOD, False))
    (event,) = decode(kind + relation(columns=columns) + insert("1", "sad"))
    assert event.schema.by_name["m"].type == Text("app.mood")
    kind = b"Y" + struct.pack(">I", MOOD) + b"public\0integer\0"
    (event,) = decode(kind + relation(columns=columns) + insert("1", "sad"))
    assert event.schema.by_name["m"].type == Text("integer")
    (event,) = decode(relation(columns=columns) + insert("1", "sad"))
    assert event.schema.by_name["m"].type == Text("oid:16385")


def test_full_identity_marks_all_columns_and_is_no_key():
    full = relation(identity="f", columns=(("id", INT, True), ("note", TEXT, True)))
    old = row(wire.OLD, "1", "a")
    (event,) = decode(full + update(old, ("1", "b")))
    assert event.key is None
    assert event.before == {"id": 1, "note": "a"}
    (event,) = decode(full + update(old, ("1", "b")), keys={"t": ["id"]})
    assert event.key == Key(("id",), KeyOrigin.CONFIG)


# -- images --------------------------------------------------------------------------------------


def test_other_columns_of_an_old_key_mean_nothing():
    (event,) = decode(relation() + update(row(wire.KEY, "1", None), ("2", wire.UNCHANGED)))
    assert event.before == {"id": 1}
    assert event.after == {"id": 2, "note": UNAVAILABLE}
    (event,) = decode(relation() + delete(wire.KEY, "1", None))
    assert (event.op, event.before, event.after) == (Op.DELETE, {"id": 1}, None)


def test_an_unchanged_value_of_a_whole_old_row_is_unavailable():
    (event,) = decode(relation() + update(row(wire.OLD, "1", wire.UNCHANGED), ("1", "b")))
    assert event.before == {"id": 1, "note": UNAVAILABLE}


def test_an_update_without_old_row_did_not_change_its_key():
    (event,) = decode(relation() + update(b"", ("1", None)))
    assert (event.before, event.after) == (None, {"id": 1, "note": None})


# -- transactions --------------------------------------------------------------------------------


def test_rows_have_the_commit_and_their_number():
    value = begin() + relation() + insert("1", "a") + insert("2", "b") + commit()
    first, *changes, last = decode(value)
    assert (first.status, last.status) == ("begin", "commit")
    assert [e.position for e in changes] == [SequencePosition(16), SequencePosition(16, 1)]
    assert {e.transaction for e in (first, *changes, last)} == {Transaction("7")}
    assert changes[0].source_time_ns == 946_684_800_000_000_000


def test_a_part_of_a_transaction_needs_the_number_of_its_event():
    part = begin() + relation() + insert("1", "a")
    (event,) = decode(part)
    assert (event.position, event.transaction) == (None, Transaction("7"))
    for decode_next in (get_codec("pgoutput").decode, get_codec("pgoutput").open_stream()):
        for number in (5, 6):
            message = Message(part, struct.pack(">QI", 16, number))
            (event,) = decode_next(message)
            assert event.position == SequencePosition(16, number)
    first, event = streamed(part)
    assert (first.status, event.position) == ("begin", SequencePosition(16))
    (event,) = decode(begin())
    assert event.status == "begin"


def test_rows_after_a_malformed_begin_have_no_place():
    decode_next = get_codec("pgoutput").open_stream()
    for value in (relation(), begin()):
        decode_next(Message(value))
    with pytest.raises(DecodeError):
        decode_next(Message(begin(lsn=32)[:-1]))
    (event,) = decode_next(Message(insert("1", "a")))
    assert (event.position, event.transaction) == (None, None)


def test_a_row_that_cannot_be_read_counts():
    decode_next = get_codec("pgoutput").open_stream()
    for value in (begin(), relation()):
        decode_next(Message(value))
    with pytest.raises(DecodeError):
        decode_next(Message(insert("x", "a")))
    (event,) = decode_next(Message(insert("2", "b")))
    assert event.position == SequencePosition(16, 1)


def test_streamed_rows_wait_for_their_commit():
    value = start(7) + relation(xid=sub(7)) + insert("1", "a", xid=sub(7)) + STOP
    other = begin(lsn=24, xid=9) + relation() + insert("9", "z") + commit(24)
    events = streamed(
        value, other, start(7, is_first=False), insert("2", "b", xid=sub(7)), STOP, stream_commit(7)
    )
    assert rows(events) == [9, 1, 2]
    assert [e.position for e in events if isinstance(e, DataChange)] == [
        SequencePosition(24),
        SequencePosition(32),
        SequencePosition(32, 1),
    ]
    assert refused(value) == "incomplete_message"


@pytest.mark.parametrize("parallel", [b"", struct.pack(">Qq", 48, 5)])
def test_an_abort_drops_its_part(parallel):
    segment = (
        start(7)
        + relation(xid=sub(7))
        + insert("1", "a", xid=sub(7))
        + insert("2", "b", xid=sub(8))
        + STOP
    )
    assert rows(decode(segment + abort(7, 8, parallel) + stream_commit(7))) == [1]
    assert decode(segment + abort(7, 7, parallel)) == ()
    assert rows(streamed(segment, abort(7, 8, parallel), stream_commit(7))) == [1]


def test_relations_of_an_aborted_transaction_are_forgotten():
    narrow = relation(columns=(("id", INT, True),), xid=sub(7))
    events = streamed(
        relation(),
        start(7) + narrow + insert("1", xid=sub(7)) + STOP,
        abort(7, 7),
        insert("2", "b"),
    )
    assert [event.after for event in events] == [{"id": 2, "note": "b"}]
    events = streamed(
        relation(),
        start(7) + narrow + insert("1", xid=sub(7)) + STOP,
        stream_commit(7),
        insert("2"),
    )
    assert rows(events) == [1, 2]


def test_too_many_streamed_rows_are_rejected_at_the_commit():
    segment = start(7) + relation(xid=sub(7)) + insert("1", "a", xid=sub(7)) * 3 + STOP
    assert refused(segment + stream_commit(7), max_streamed_rows=2) == "expansion"
    decode_next = get_codec("pgoutput", max_streamed_rows=3).open_stream()
    for _ in range(3):  # dropped rows do not count
        decode_next(Message(segment + abort(7, 7)))
    assert len(rows(decode_next(Message(segment + stream_commit(7))))) == 3


def test_a_stream_that_begins_inside_a_transaction_is_rejected():
    assert refused(start(7, is_first=False)) == "incomplete_message"
    assert refused(stream_commit(7)) == "incomplete_message"


def prepare(kind, flags=b"", gid=b"g\0"):
    return kind + flags + struct.pack(">QQqI", 40, 48, 0, 7) + gid


def test_prepared_rows_wait_for_the_second_phase():
    value = prepare(b"b") + relation() + insert("1", "a") + prepare(b"P", b"\0")
    assert refused(value) == "incomplete_message"
    events = decode(value + prepare(b"K", b"\0"))
    assert [getattr(event, "status", "row") for event in events] == ["begin", "row", "commit"]
    assert events[1].position == SequencePosition(40)
    rollback = b"r\0" + struct.pack(">QQqqI", 40, 48, 0, 0, 7) + b"g\0"
    assert decode(value + rollback) == ()
    segment = start(7) + relation(xid=sub(7)) + insert("1", "a", xid=sub(7)) + STOP
    assert rows(decode(segment + prepare(b"p", b"\0") + prepare(b"K", b"\0"))) == [1]


# -- other messages ------------------------------------------------------------------------------


def test_origins_are_details_and_frames_are_skipped():
    origin = b"O" + struct.pack(">Q", 1) + b"other\0"
    frame = b"w" + struct.pack(">QQq", 1, 2, 3)
    (event,) = decode(begin() + origin + relation() + frame + insert("1", "a"))
    assert event.details == {"origin": "other"}
    (event,) = decode(b"k" + struct.pack(">QqB", 1, 0, 1))
    assert isinstance(event, Watermark)
    assert get_codec("pgoutput").decode(Message(None)) == (Tombstone(TableId()),)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (b"", "incomplete_message"),
        (b"X", "unknown_kind"),
        (begin()[:-1], "incomplete_message"),
        (relation() + insert("1", "a")[:-1], "incomplete_message"),
        (relation() + insert("1", "a") + b"\0", "unknown_kind"),
        (relation() + b"I" + sub(1) + row(wire.OLD, "1", "a"), "unknown_kind"),
        (relation() + b"I" + sub(1) + b"N\0\2x", "unknown_kind"),
        (relation() + b"I" + sub(1) + b"N\0\2b\0\0\0\1\1n", "wrong_type"),
        (relation() + insert("1", "a").replace(b"a", b"\xff"), "invalid_utf8"),
        (relation() + insert("x", "a"), "wrong_type"),
        (relation(columns=(("id", INT, True), ("id", INT, True))), "wrong_schema"),
        (relation(identity="x"), "unknown_kind"),
        (relation(columns=()) + delete(wire.KEY), "unexpected_image"),
        (b"T" + struct.pack(">IB", 1 << 31, 0), "incomplete_message"),
    ],
)
def test_what_cannot_be_read_is_rejected(value, code):
    assert refused(value) == code


def test_types_have_their_numbers():
    assert type_text_of(1231, ((5 << 16) | 1) + 4) == "numeric(5,1)[]"
    assert type_text_of(1042, -1) == "bpchar"
    assert type_text_of(MOOD, -1) is None
    assert number_of("numeric(3,-2)") == (1700, 198658)
    assert number_of("timestamptz") == (1184, -1)
    assert number_of("varchar(3)[]") == (1015, 7)
    assert number_of("mood") is None

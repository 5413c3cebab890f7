# SPDX-License-Identifier: Apache-2.0
"""SharePlex messages to events: operations, images, positions, times, and what is refused."""

import json
import pickle

import pytest

from changelane import DecodeError, Message, get_codec
from changelane.conversion.join_update_halves import JoinHalves
from changelane.conversion.stateful import run
from changelane.errors import ConfigError
from changelane.event import (
    Completeness,
    DataChange,
    HalfUpdate,
    Key,
    KeyOrigin,
    Op,
    SchemaChange,
    Source,
    Tombstone,
    Transaction,
    Truncate,
)
from changelane.position import ScnPosition, encode_order
from changelane.schema import TableId

SHAREPLEX = get_codec("shareplex-json")
SECOND = 1_000_000_000


def decode(message, **options):
    value = message if isinstance(message, bytes) else json.dumps(message).encode()
    (event,) = get_codec("shareplex-json", **options).decode(Message(value))
    return event


def meta(op="ins", **changes):
    return {"op": op, "table": "CL_BIZ1.MIO_LOG", **changes}


def refused(message, **options):
    with pytest.raises(DecodeError) as caught:
        decode(message, **options)
    return caught.value.code, caught.value.path


# -- what the documents' messages say ------------------------------------------------------------


def test_insert_of_the_document_is_read_whole():
    event = decode(
        {
            "meta": {
                "time": "2017-06-16T14:24:34",
                "userid": 84,
                "op": "ins",
                "scn": "14589063118712",
                "rowid": "AAATGpAAIAAItcIAAA",
                "trans": "7.0.411499",
                "seq": 1,
                "size": 11,
                "table": "CL_BIZ1.MIO_LOG",
                "idx": "1/11",
                "posttime": "2017-06-16T14:33:52",
            },
            "data": {"MIO_LOG_ID": "32539737"},
        }
    )
    assert event == DataChange(
        Op.CREATE,
        TableId(schema="CL_BIZ1", name="MIO_LOG"),
        after={"MIO_LOG_ID": "32539737"},
        position=ScnPosition(14589063118712, tx_seq=1),
        transaction=Transaction("7.0.411499", 1, None, 11, last=False),
        source=Source(product="oracle", connector="shareplex"),
        source_time_ns=1497623074 * SECOND,
        process_time_ns=1497623632 * SECOND,
        after_holds=Completeness.FULL,
        details={"userid": 84, "rowid": "AAATGpAAIAAItcIAAA"},
    )


def test_update_holds_changed_values_over_the_old_ones():
    event = decode(
        {
            "meta": meta("upd"),
            "data": {"CNTR_NO": "1171201606"},
            "key": {"MIO_LOG_ID": "32537893", "POL_CODE": None, "CNTR_NO": "1171201606syui26"},
        }
    )
    assert event.op is Op.UPDATE
    assert event.before == {
        "MIO_LOG_ID": "32537893",
        "POL_CODE": None,
        "CNTR_NO": "1171201606syui26",
    }
    assert event.after == {"MIO_LOG_ID": "32537893", "POL_CODE": None, "CNTR_NO": "1171201606"}


def test_column_that_an_update_leaves_out_is_absent_and_null_is_null():
    event = decode({"meta": meta("upd"), "data": {"b": None}, "key": {"a": "1"}})
    assert event.after == {"a": "1", "b": None}
    assert "c" not in event.after
    assert SHAREPLEX.carries.absent_means == "unchanged"


def test_key_change_is_one_update_with_both_keys():
    event = decode({"meta": meta("upd"), "data": {"a": "2"}, "key": {"a": "1"}})
    assert (event.before, event.after) == ({"a": "1"}, {"a": "2"})


def test_update_without_key_has_no_row_before():
    event = decode({"meta": meta("upd"), "data": {"a": "2"}})
    assert (event.before, event.after) == (None, {"a": "2"})
    assert event.after_holds is Completeness.UNKNOWN


def test_delete_of_the_document_names_no_table():
    event = decode({"meta": {"userid": 84, "op": "del"}, "data": {"ID": "1", "CG_NO": None}})
    assert event.op is Op.DELETE
    assert event.before == {"ID": "1", "CG_NO": None}
    assert event.after is None
    assert event.table == TableId()


def test_native_messages_of_the_corpus_are_read(corpus):
    path = corpus / "shareplex" / "quest_kb4376090_native.jsonl"
    insert, update, delete = (
        decode(line, dialect="native") for line in path.read_bytes().splitlines()
    )
    assert insert.table == TableId(schema="PHUNT1013U1", name="ROCK_BAND")
    assert insert.after == {
        "BAND_NAME": "Rush",
        "YEAR_START": 1974,
        "SORTED": "2024-05-24T15:58:48.000000000",
    }
    assert insert.after_holds is Completeness.FULL
    assert update.before == {"BAND_NAME": "Rush"}
    assert update.after == {"BAND_NAME": "Rush", "YEAR_END": 2015}
    assert update.key == Key(("BAND_NAME",), KeyOrigin.PAYLOAD)
    assert (update.before_holds, update.after_holds) == (Completeness.KEY, Completeness.CHANGED)
    assert delete.before["YEAR_END"] == 2015


def test_messages_of_dts_in_the_corpus_are_read(corpus):
    lines = (corpus / "shareplex" / "dts_seed.jsonl").read_bytes().splitlines()
    assert [decode(line, dialect="dts").op for line in lines] == [Op.CREATE, Op.UPDATE, Op.DELETE]


def test_the_delete_as_it_is_printed_is_no_json(corpus):
    text = (corpus / "shareplex" / "dts_seed_delete_as_printed_INVALID_JSON.txt").read_bytes()
    assert refused(text)[0] == "malformed_json"


# -- operations ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spellings", "op"),
    [
        (("ins", "INSERT", "Insert", "i"), Op.CREATE),
        (("upd", "UPDATE", "u"), Op.UPDATE),
        (("del", "DELETE", "d"), Op.DELETE),
    ],
)
def test_row_operations_have_codes_and_names(spellings, op):
    for spelling in spellings:
        assert decode({"meta": meta(spelling), "data": {"a": "1"}}).op is op


@pytest.mark.parametrize("spelling", ["TRUNCATE", "truncate", "trunc", "trc"])
def test_truncate_is_a_truncate(spelling):
    event = decode({"meta": meta(spelling, scn="5", trans="1.2.3", seq=1, size=1)})
    assert event == Truncate(
        TableId(schema="CL_BIZ1", name="MIO_LOG"),
        position=ScnPosition(5, tx_seq=1),
        transaction=Transaction("1.2.3", 1, None, 1, last=True),
        source=Source(product="oracle", connector="shareplex"),
    )


@pytest.mark.parametrize("spelling", ["DROP COLUMN", "drop_column"])
def test_drop_column_is_a_schema_change_that_keeps_what_was_said(spelling):
    event = decode(
        {"meta": meta(spelling, trans="1.2.3", seq=2, size=4), "data": {"column": "NOTE"}}
    )
    assert isinstance(event, SchemaChange)
    assert event.action == "alter"
    assert event.ddl is None
    assert event.details == {
        "op": spelling,
        "trans": "1.2.3",
        "seq": 2,
        "size": 4,
        "data": {"column": "NOTE"},
    }


@pytest.mark.parametrize(
    ("sql", "action"),
    [
        ("ALTER TABLE t ADD (c NUMBER)", "alter"),
        ("create unique index i on t (c)", "create_index"),
        ("CREATE GLOBAL TEMPORARY TABLE t (c NUMBER)", "create"),
        ("DROP TABLE t", "drop"),
        ("DROP INDEX i", "drop_index"),
        ("ALTER INDEX i REBUILD", "other"),
        ("/* nightly */ DROP TABLE t", "drop"),
        ("ALTER TABLE t RENAME TO u", "rename"),
        ("GRANT SELECT ON t TO u", "other"),
    ],
)
def test_statement_of_a_ddl_message_tells_its_action(sql, action):
    event = decode({"meta": meta("ddl"), "data": {"sql": sql, "x": 1}})
    assert (event.action, event.ddl) == (action, sql)
    assert event.details == {"data": {"x": 1}}


@pytest.mark.parametrize(
    ("spelling", "op"),
    [
        *((text, Op.DELETE) for text in ("UPDATE BEFORE", "update_before", "upd_before", "ub")),
        *((text, Op.CREATE) for text in ("UPDATE AFTER", "UPDATE_AFTER", "upd after", "aft")),
    ],
)
def test_update_before_and_after_are_halves(spelling, op):
    event = decode({"meta": meta(spelling), "data": {"a": "1"}})
    assert isinstance(event, HalfUpdate)
    assert event.change.op is op
    assert event.other_key is None
    image = event.change.before if op is Op.DELETE else event.change.after
    assert image == {"a": "1"}


def test_half_after_lays_its_columns_over_the_old_ones():
    half = decode({"meta": meta("UPDATE AFTER"), "data": {"b": "2"}, "key": {"a": "1", "b": "1"}})
    assert half.change.after == {"a": "1", "b": "2"}
    assert half.change.after_holds is Completeness.UNKNOWN


@pytest.mark.parametrize(
    ("place", "pair"),
    [
        ({"trans": "7.0.1", "rowid": "AAA", "seq": 3}, "7.0.1 rowid AAA"),
        ({"trans": "7.0.1", "seq": 3, "size": 4}, "7.0.1 seq 3"),
        ({"trans": "7.0.1", "idx": "3/4"}, "7.0.1 seq 3"),
        ({"scn": "99", "rowid": "AAA"}, "99 rowid AAA"),
        ({"rowid": "AAA"}, None),
        ({"trans": "7.0.1"}, None),
    ],
)
def test_halves_are_paired_by_what_both_share(place, pair):
    for op in ("UPDATE BEFORE", "UPDATE AFTER"):
        assert decode({"meta": meta(op, **place), "data": {"a": "1"}}).pair == pair


@pytest.mark.parametrize("op", ["merge", "", "ins upd", "x" * 100_000])
def test_unknown_operation_is_refused(op):
    for columns in ({"data": {"a": "1"}}, {"key": {"a": "1"}}):
        assert refused({"meta": meta(op), **columns}) == ("unknown_operation", "$.meta.op")


def test_unknown_operation_without_columns_is_kept():
    place = {"scn": "5", "trans": "1.2.3", "seq": 2, "size": 4, "userid": 84, "new": [1]}
    message = {"meta": meta("commit", **place), "data": {}}
    event = decode(message)
    assert (event.type, event.text) == ("commit", None)
    assert event.table == TableId(schema="CL_BIZ1", name="MIO_LOG")
    assert event.position == ScnPosition(5, tx_seq=2)
    assert event.details == {name: place[name] for name in place if name != "scn"}
    assert refused(message, strict=True) == ("unknown_operation", "$.meta.op")
    assert refused({"meta": {"op": ""}}) == ("unknown_operation", "$.meta.op")


def test_statement_that_truncates_is_a_truncate():
    for op in ("ddl", "truncate"):
        event = decode({"meta": meta(op), "data": {"sql": "TRUNCATE TABLE t", "x": "1"}})
        assert isinstance(event, Truncate)
        assert (event.ddl, event.details) == ("TRUNCATE TABLE t", {"data": {"x": "1"}})


# -- the place in the stream ---------------------------------------------------------------------


def test_idx_stands_in_for_seq_and_size():
    event = decode({"meta": meta(trans="7.0.1", idx="3/11", scn="5"), "data": {}})
    assert event.transaction == Transaction("7.0.1", 3, None, 11, last=False)
    assert event.position == ScnPosition(5, tx_seq=3)


def test_the_last_operation_of_a_transaction_is_known():
    event = decode({"meta": meta(trans="7.0.1", seq=11, size=11), "data": {}})
    assert event.transaction.last is True


def test_without_size_nobody_knows_which_operation_is_the_last():
    event = decode({"meta": meta(trans="7.0.1", seq=11), "data": {}})
    assert event.transaction == Transaction("7.0.1", 11)


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"idx": "1-11"}, "$.meta.idx"),
        ({"idx": "0/11"}, "$.meta.idx"),
        ({"idx": "1/11", "seq": 2}, "$.meta.idx"),
        ({"idx": "1/11", "size": 12}, "$.meta.idx"),
        ({"idx": "12/11"}, "$.meta.seq"),
        ({"seq": 0}, "$.meta.seq"),
        ({"seq": 1 << 63}, "$.meta.seq"),
        ({"size": True}, "$.meta.size"),
        ({"scn": "14589063118712x"}, "$.meta.scn"),
        ({"scn": "\u0661"}, "$.meta.scn"),
        ({"scn": -1}, "$.meta.scn"),
        ({"scn": str(1 << 128)}, "$.meta.scn"),
        ({"scn": 1.5}, "$.meta.scn"),
        ({"time": "yesterday"}, "$.meta.time"),
        ({"time": "2017-02-30T00:00:00"}, "$.meta.time"),
        ({"posttime": "2017-06-16"}, "$.meta.posttime"),
        ({"table": 1}, "$.meta.table"),
        ({"userid": []}, "$.meta.userid"),
    ],
)
def test_contradictions_and_wrong_types_are_refused_with_their_place(wrong, path):
    message = {"meta": meta(trans="7.0.1", **wrong), "data": {"a": "1"}}
    assert refused(message)[1] == path


def test_scn_orders_transactions_and_seq_orders_inside_them():
    def order(scn, seq):
        event = decode({"meta": meta(scn=scn, trans="1.1.1", seq=seq), "data": {}})
        return encode_order(event.position)

    # beyond 2**53, and of different lengths as text
    orders = [order("9", 9), order("14589063118712", 2), order("14589063118712", 10)]
    orders += [order(str(2**53), 1), order(str(2**53 + 1), 1), order(2**64, 1)]
    assert orders == sorted(orders)
    assert len(set(orders)) == len(orders)


def test_what_the_model_has_no_place_for_is_kept():
    extra = {"host": "db1", "queue": "q", "source": "o.ORCL", "anything": [1, None]}
    event = decode({"meta": meta(userid=84, rowid="AAA", size=3, **extra), "data": {}})
    assert event.details == {**extra, "userid": 84, "rowid": "AAA", "size": 3}


# -- times ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value_ns"),
    [
        ("2017-06-16T14:24:34", 1497623074 * SECOND),
        ("2017-06-16T14:24:34Z", 1497623074 * SECOND),
        ("2017-06-16T14:24:34+0000", 1497623074 * SECOND),
        ("2017-06-16T22:24:34+08:00", 1497623074 * SECOND),
        ("2017-06-16T14:24:34.000000001", 1497623074 * SECOND + 1),
        ("2017-06-16T14:24:34.5", 1497623074 * SECOND + 500_000_000),
        ("1969-12-31T23:59:59.999999999", -1),
    ],
)
def test_times_are_utc_and_exact(text, value_ns):
    event = decode({"meta": meta(time=text, posttime=text), "data": {}})
    assert event.source_time_ns == event.process_time_ns == value_ns


def test_times_without_a_mark_are_of_the_zone_that_the_user_states():
    message = {"meta": meta(time="2017-06-16T22:24:34", posttime="2017-06-16T14:24:34Z")}
    message["data"] = {}
    for zone in ("Asia/Shanghai", "+08:00"):
        event = decode(message, time_zone=zone)
        assert event.source_time_ns == event.process_time_ns == 1497623074 * SECOND


def test_unknown_zone_is_refused():
    with pytest.raises(ConfigError, match="unknown time zone 'Mars/Olympus'"):
        get_codec("shareplex-json", time_zone="Mars/Olympus")


# -- dialects and shapes -------------------------------------------------------------------------


def test_dts_takes_text_and_null_only():
    message = {"meta": meta(), "data": {"a": 1}}
    assert refused(message, dialect="dts") == ("wrong_type", "$.data[...]")
    assert decode(message).after == {"a": 1}


def test_numbers_are_exact():
    text = b'{"meta":{"op":"ins"},"data":{"a":123456789012345678901234567890,"b":0.10,"c":1e-30}}'
    values = {name: str(value) for name, value in decode(text).after.items()}
    assert values == {"a": "123456789012345678901234567890", "b": "0.10", "c": "1E-30"}


@pytest.mark.parametrize(
    ("key_image", "holds"),
    [
        ("full", (Completeness.FULL, Completeness.FULL)),
        ("key", (Completeness.KEY, Completeness.CHANGED)),
        ("auto", (Completeness.UNKNOWN, Completeness.UNKNOWN)),
    ],
)
def test_user_states_what_key_holds(key_image, holds):
    message = {"meta": meta("upd"), "data": {"b": "2"}, "key": {"a": "1", "b": "1"}}
    event = decode(message, key_image=key_image)
    assert (event.before_holds, event.after_holds) == holds
    assert (event.key is not None) == (key_image == "key")


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("A.B", TableId(schema="A", name="B")),
        ("B", TableId(name="B")),
        ("A.B.C", TableId(schema="A", name="B.C")),
        ("", TableId()),
    ],
)
def test_owner_ends_at_the_first_dot(text, table):
    assert decode({"meta": {"op": "ins", "table": text}, "data": {}}).table == table


@pytest.mark.parametrize(
    ("message", "where"),
    [
        ({"meta": meta()}, ("missing_field", "$.data")),
        ({"meta": meta(), "data": None}, ("missing_field", "$.data")),
        ({"meta": meta("upd"), "key": {"a": "1"}}, ("missing_field", "$.data")),
        ({"meta": meta("UPDATE BEFORE")}, ("missing_field", "$.data")),
        ({"meta": meta(), "data": {}, "key": {"a": "1"}}, ("unexpected_field", "$.key")),
        ({"meta": meta("del"), "data": {}, "key": {"a": "1"}}, ("unexpected_field", "$.key")),
        ({"data": {"a": "1"}}, ("wrong_type", "$")),
        ({"meta": {"table": "A.B"}, "data": {}}, ("wrong_type", "$.meta")),
        ({"meta": meta(), "data": ["a"]}, ("wrong_type", "$.data")),
    ],
)
def test_message_without_its_parts_is_refused(message, where):
    assert refused(message) == where


def test_errors_never_show_values():
    with pytest.raises(DecodeError) as caught:
        decode({"meta": meta(scn="SECRET"), "data": {"a": "SECRET"}})
    assert "SECRET" not in str(caught.value)


def test_message_without_a_value_is_a_tombstone_of_no_table():
    assert SHAREPLEX.decode(Message(None)) == (Tombstone(TableId()),)


def test_messages_of_other_formats_are_not_recognised():
    for value in (
        b'{"meta":{"op":"merge"},"data":{}}',
        b'{"metadata":{"op":"ins"},"data":{}}',
        b'{"before":null,"after":{"a":1},"op":"c"}',
    ):
        assert not SHAREPLEX.detects(Message(value))
    assert SHAREPLEX.detects(Message(b'{"meta":{"op":"ins","x":1},"data":{},"y":2}'))


def test_a_reader_pickles_and_reads_the_same():
    message = Message(b'{"meta":{"op":"upd"},"data":{"a":1},"key":{"a":2}}')
    codec = get_codec("shareplex-json", dialect="native", time_zone="Asia/Shanghai")
    assert pickle.loads(pickle.dumps(codec)).decode(message) == codec.decode(message)


@pytest.mark.parametrize(
    "places",
    [
        ({"rowid": "AAA", "seq": 3}, {"rowid": "AAA", "seq": 4}),
        ({"rowid": "AAA", "seq": 3}, {"rowid": "AAA", "seq": 3}),
        ({"seq": 3}, {"seq": 3}),
    ],
    ids=["numbered apart", "one number", "no rowid"],
)
def test_halves_of_one_update_are_joined(places):
    halves = [
        decode({"meta": meta(op, trans="7.0.1", scn="9", **place), "data": data})
        for op, place, data in (
            ("UPDATE BEFORE", places[0], {"a": "1", "b": "x"}),
            ("UPDATE AFTER", places[1], {"a": "1", "b": "y"}),
        )
    ]
    (update,) = run(JoinHalves(), halves)
    assert update.op is Op.UPDATE
    assert (update.before, update.after) == ({"a": "1", "b": "x"}, {"a": "1", "b": "y"})


def test_halves_that_share_nothing_stay_a_delete_and_an_insert():
    halves = [
        decode({"meta": meta(op, trans="7.0.1", seq=seq), "data": {"a": "1"}})
        for op, seq in (("UPDATE BEFORE", 3), ("UPDATE AFTER", 4))
    ]
    assert [event.op for event in run(JoinHalves(), halves)] == [Op.DELETE, Op.CREATE]


def half(op, value, **place):
    return decode({"meta": meta(f"UPDATE {op}", **place), "data": {"a": value}})


@pytest.mark.parametrize("place", [{}, {"trans": "7.0.1"}, {"scn": "9"}, {"rowid": "AAA"}])
def test_halves_that_tell_no_pair_are_one_update_when_they_are_neighbours(place):
    alone, before, after = (
        half("BEFORE", "0"),
        half("BEFORE", "1", **place),
        half("AFTER", "2", **place),
    )
    join = JoinHalves(orphans="half")
    assert join.push(alone) == ()
    assert join.push(before) == (alone,)
    join = JoinHalves(orphans="half", state=pickle.loads(pickle.dumps(join.state)))
    (update,) = join.push(after)
    assert (update.op, update.before, update.after) == (Op.UPDATE, {"a": "1"}, {"a": "2"})
    assert join.push(after) == (after,)
    assert (join.push(before), join.flush()) == ((), (before,))


def test_halves_that_tell_no_pair_are_orphans_when_anything_is_between_them():
    before, after = half("BEFORE", "1"), half("AFTER", "2")
    row = decode({"meta": meta(), "data": {"a": "3"}})
    other = half("AFTER", "2", table="O.OTHER")
    for between in (row, other, half("AFTER", "2", trans="7.0.1"), half("AFTER", "2", scn="9")):
        events = [before, between, after]
        assert list(run(JoinHalves(orphans="half"), events)) == events
        changes = [event.change if isinstance(event, HalfUpdate) else event for event in events]
        assert list(run(JoinHalves(orphans="change"), events)) == changes

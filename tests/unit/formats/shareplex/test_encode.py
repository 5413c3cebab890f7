# SPDX-License-Identifier: Apache-2.0
"""Events to SharePlex messages: both dialects, what is lost, and that it is read back."""

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changelane import EncodeError, Message, get_codec
from changelane.event import DataChange, Key, Op, SchemaChange, Transaction, Truncate
from changelane.position import MySqlPosition, ScnPosition
from changelane.schema import Column, TableId, TableSchema
from changelane.testing import SUITE_CHECKS, golden
from changelane.testing.conformance import EFFORT, check_honesty, check_round_trip, check_stability
from changelane.types import (
    Bytes,
    Date,
    Float,
    Integer,
    String,
    Timestamp,
)
from changelane.types import Decimal as DecimalType

GOLDEN = Path(__file__).resolve().parents[3] / "golden"
CASES = sorted(path.parent for path in (GOLDEN / "shareplex-json").glob("*/*/value"))
SHAREPLEX = get_codec("shareplex-json")
NATIVE = get_codec("shareplex-json", dialect="native")
WITH_DDL = get_codec("shareplex-json", ddl=True)
TABLE = TableId(schema="S", name="T")


def change(op=Op.CREATE, table=TABLE, **fields):
    return DataChange(op, table, **fields)


def written(event, codec=SHAREPLEX):
    """The message, and the losses that are not those of every typed event."""
    encoded = codec.encode(event, on_loss="ignore")
    (message,) = encoded.messages
    assert message.key is None
    losses = [
        field for field, _ in encoded.losses if field != "schema" and not field.startswith("type:")
    ]
    return json.loads(message.value), losses


def read(codec, message):
    return codec.decode(Message(json.dumps(message).encode()))[0]


# -- as the documents have it --------------------------------------------------------------------


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
@pytest.mark.parametrize("dialect", ["auto", "dts"])
def test_what_the_document_shows_is_written_again(path, dialect):
    shown = json.loads((path / "value").read_bytes())
    codec = get_codec("shareplex-json", dialect=dialect)
    (event,) = codec.decode(golden.read_case(path).messages[0])
    value = codec.encode(event).messages[0].value
    assert json.loads(value) == shown
    assert list(json.loads(value)["meta"]) == list(shown["meta"])
    assert b" " not in value


def test_native_messages_of_the_corpus_are_written_again(corpus):
    path = corpus / "shareplex" / "quest_kb4376090_native.jsonl"
    for line in path.read_bytes().splitlines():
        (event,) = NATIVE.decode(Message(line))
        assert json.loads(NATIVE.encode(event).messages[0].value) == json.loads(line)


def test_update_names_what_changed_and_the_whole_row_before():
    event = change(Op.UPDATE, before={"a": "1", "b": "x", "c": None}, after={"a": "1", "b": "y"})
    message, _ = written(event)
    assert message["data"] == {"b": "y"}
    assert message["key"] == {"a": "1", "b": "x", "c": None}


def test_native_update_names_the_key_only():
    images = {"before": {"a": "1", "b": "x"}, "after": {"a": "1", "b": "y"}}
    message, losses = written(change(Op.UPDATE, key=Key(("a",)), **images), NATIVE)
    assert (message["data"], message["key"]) == ({"b": "y"}, {"a": "1"})
    assert losses == ["before"]
    message, losses = written(change(Op.UPDATE, **images), NATIVE)
    assert message["key"] == {"a": "1", "b": "x"}
    assert losses == ["key"]


def test_key_change_has_the_old_key_in_key_and_the_new_in_data():
    event = change(Op.UPDATE, key=Key(("a",)), before={"a": "1"}, after={"a": "2"})
    for codec in (SHAREPLEX, NATIVE):
        message, _ = written(event, codec)
        assert (message["data"], message["key"]) == ({"a": "2"}, {"a": "1"})


def test_update_without_before_has_no_key_in_dts_and_the_rows_own_in_native():
    event = change(Op.UPDATE, key=Key(("a",)), after={"a": "1", "b": "y"})
    message, _ = written(event)
    assert "key" not in message
    assert read(SHAREPLEX, message).before is None
    message, losses = written(event, NATIVE)
    assert message["key"] == {"a": "1"}
    assert losses == ["before"]


def test_native_update_whose_row_before_lacks_the_key_is_refused():
    event = change(Op.UPDATE, key=Key(("a",)), before={"b": "x"}, after={"a": "1", "b": "y"})
    with pytest.raises(EncodeError, match="the before image does not have the key columns"):
        NATIVE.encode(event, on_loss="ignore")


def test_values_that_look_alike_are_changes():
    before = {"a": 1, "b": Decimal("1.0"), "c": "1", "d": None, "e": [1]}
    after = {"a": True, "b": Decimal("1.00"), "c": 1, "d": "", "e": [True]}
    message, _ = written(change(Op.UPDATE, before=before, after=after), NATIVE)
    assert message["data"].keys() == after.keys()


def test_column_that_only_the_row_before_holds_is_told_to_be_read_as_unchanged():
    event = change(Op.UPDATE, before={"a": "1", "b": "x"}, after={"a": "2"})
    message, losses = written(event)
    assert losses == ["after"]
    assert read(SHAREPLEX, message).after == {"a": "2", "b": "x"}


def test_native_leaves_null_out_of_inserts_and_deletes_but_not_of_updates():
    for op, field in ((Op.CREATE, "after"), (Op.DELETE, "before")):
        message, losses = written(change(op, **{field: {"a": 1, "b": None}}), NATIVE)
        assert message["data"] == {"a": 1}
        assert losses == ["null"]
        message, losses = written(change(op, **{field: {"a": "1", "b": None}}))
        assert message["data"] == {"a": "1", "b": None}
        assert not losses
    update = change(Op.UPDATE, before={"a": 1, "b": 2}, after={"a": 1, "b": None})
    assert written(update, NATIVE)[0]["data"] == {"b": None}


def test_event_without_its_row_is_refused():
    for event in (change(), change(Op.DELETE), change(Op.UPDATE, before={"a": "1"})):
        with pytest.raises(EncodeError, match=r"has no (before|after) image"):
            SHAREPLEX.encode(event)


# -- values --------------------------------------------------------------------------------------

TYPED = {
    "n": (Integer(64), 2**63 - 1, "9223372036854775807", 2**63 - 1),
    "whole": (DecimalType(38, 0), Decimal(5), "5", 5),
    "price": (DecimalType(10, 2), Decimal("5.00"), "5.00", Decimal("5.00")),
    "float": (Float(64), 1e-7, "1e-7", Decimal("1E-7")),
    "text": (String(), "ann", "ann", "ann"),
    "raw": (Bytes(), b"\x00\xff", "00FF", "00FF"),
    "day": (Date(), dt.date(2024, 5, 24), "2024-05-24", "2024-05-24T00:00:00.000000000"),
    "moment": (
        Timestamp(6),
        dt.datetime(2024, 5, 24, 15, 58, 48, 5),
        "2024-05-24T15:58:48.000005",
        "2024-05-24T15:58:48.000005000",
    ),
    "never": (Date(), "infinity", "infinity", "infinity"),
}


def typed_row():
    schema = TableSchema(tuple(Column(name, parts[0]) for name, parts in TYPED.items()))
    return change(schema=schema, after={name: parts[1] for name, parts in TYPED.items()})


def test_dts_writes_every_value_as_text():
    message, _ = written(typed_row())
    row = {name: parts[2] for name, parts in TYPED.items() if name != "never"}
    # a format without types cannot tell an infinite date from text
    assert message["data"] == {**row, "never": "infinity"}


def test_native_writes_numbers_as_numbers_and_dates_with_nine_digits():
    (message,) = NATIVE.encode(typed_row(), on_loss="ignore").messages
    (event,) = NATIVE.decode(message)
    assert {name: (type(value), value) for name, value in event.after.items()} == {
        name: (type(parts[3]), parts[3]) for name, parts in TYPED.items()
    }


def test_forms_of_values_are_told_as_losses():
    told = dict(NATIVE.encode(typed_row(), on_loss="ignore").losses)
    assert told["type:bytes"] == "no such type; the value is written as hexadecimal text"
    assert (
        told["type:decimal"] == "no such type; the value is written as a number where JSON has it"
    )
    assert told["type:date"].endswith("written as text with nine fraction digits")


def test_bytes_can_be_base64():
    codec = get_codec("shareplex-json", binary="base64")
    assert written(typed_row(), codec)[0]["data"]["raw"] == "AP8="


def test_whole_decimal_without_a_type_is_read_as_an_integer_and_told():
    _, losses = written(change(after={"a": Decimal(5)}), NATIVE)
    assert losses == ["value:decimal"]
    _, losses = written(change(after={"a": Decimal("5.0"), "b": Decimal("1E+3")}), NATIVE)
    assert not losses


@pytest.mark.parametrize("text", ["NaN", "Infinity"])
def test_number_that_json_lacks_is_text(text):
    schema = TableSchema((Column("n", DecimalType()), Column("f", Float(64))))
    event = change(schema=schema, after={"n": Decimal(text), "f": float(text)})
    assert written(event, NATIVE)[0]["data"] == {"n": text, "f": text}


# -- meta ----------------------------------------------------------------------------------------


def test_times_are_seconds_in_dts_and_nanoseconds_in_native():
    event = change(after={"a": "1"}, source_time_ns=1497623074_000000001, process_time_ns=-1)
    message, losses = written(event)
    assert message["meta"]["time"] == "2017-06-16T14:24:34"
    assert message["meta"]["posttime"] == "1969-12-31T23:59:59"
    assert losses == ["source_time", "process_time"]
    message, losses = written(event, NATIVE)
    assert message["meta"]["time"] == "2017-06-16T14:24:34.000000001"
    assert message["meta"]["posttime"] == "1969-12-31T23:59:59.999999999"
    assert not losses


def test_times_can_have_their_mark_or_another_zone():
    event = change(after={"a": "1"}, source_time_ns=1497623074_000000000)
    for options, text in (
        ({"zulu": True}, "2017-06-16T14:24:34Z"),
        ({"zulu": True, "time_zone": "+08:00"}, "2017-06-16T14:24:34Z"),
        ({"time_zone": "+08:00"}, "2017-06-16T22:24:34"),
    ):
        codec = get_codec("shareplex-json", **options)
        message, _ = written(event, codec)
        assert message["meta"]["time"] == text
        assert read(codec, message).source_time_ns == event.source_time_ns


def test_hour_that_a_zone_repeats_is_read_back():
    codec = get_codec("shareplex-json", time_zone="Europe/Berlin")
    texts = set()
    for hour in range(23, 28):  # of 2024-10-26, UTC; the clocks go back at 25
        event = change(after={"a": "1"}, source_time_ns=(1729900800 + 3600 * hour) * 10**9)
        message, _ = written(event, codec)
        assert read(codec, message).source_time_ns == event.source_time_ns
        texts.add(message["meta"]["time"])
    assert "2024-10-27T02:00:00" in texts
    assert "2024-10-27T02:00:00+01:00" in texts


@pytest.mark.parametrize("value_ns", [-(10**20), 10**21])
def test_time_that_no_calendar_has_is_a_loss(value_ns):
    message, losses = written(change(after={"a": "1"}, source_time_ns=value_ns))
    assert "time" not in message["meta"]
    assert losses == ["source_time"]


def test_position_and_transaction_share_seq():
    event = change(
        after={"a": "1"},
        position=ScnPosition(99, tx_seq=3),
        transaction=Transaction("7.0.1", 3, None, 11, last=False),
    )
    message, losses = written(event)
    assert not losses
    assert message["meta"] == {
        "op": "ins",
        "scn": "99",
        "trans": "7.0.1",
        "seq": 3,
        "size": 11,
        "table": "S.T",
        "idx": "3/11",
    }


@pytest.mark.parametrize(
    ("fields", "loss"),
    [
        ({"position": ScnPosition(98, 99)}, "position.scn"),
        ({"position": ScnPosition(99, rs_id="1.2.3", ssn=1)}, "position.rs_id"),
        ({"position": MySqlPosition("b.000001", 4)}, "position"),
        (
            {"position": ScnPosition(99), "transaction": Transaction("1", 2)},
            "position.tx_seq",
        ),
        (
            {"position": ScnPosition(99, tx_seq=2), "transaction": Transaction("1")},
            "transaction.order",
        ),
        ({"transaction": Transaction("1", 2, last=True)}, "transaction.last"),
        ({"transaction": Transaction("1", 2, 1)}, "transaction.table_order"),
        ({"details": {"op": "ins"}}, "details.op"),
        ({"details": {"seq": "x"}}, "details.seq"),
        ({"key": Key(("a",))}, "key"),
        ({"table": TableId("D", "S", "T")}, "table.database"),
        ({"table": TableId(schema="S.X", name="T")}, "table.name"),
        ({"table": TableId(name="S.T")}, "table.name"),
        ({"table": TableId(schema="S")}, "table.name"),
    ],
)
def test_what_meta_has_no_place_for_is_a_loss(fields, loss):
    assert written(change(**{"after": {"a": "1"}, **fields}))[1] == [loss]


def test_native_names_the_key_columns_of_updates_only():
    assert written(change(after={"a": "1"}, key=Key(("a",))), NATIVE)[1] == ["key"]


@pytest.mark.parametrize("scn", [2**63 - 1, 2**63, 2**64, 2**128 - 1])
def test_an_scn_of_any_size_that_is_read_is_written(scn):
    (event,) = SHAREPLEX.decode(
        Message(
            json.dumps(
                {"meta": {"op": "ins", "scn": str(scn), "table": "S.T"}, "data": {}}
            ).encode()
        )
    )
    assert written(event)[0]["meta"]["scn"] == str(scn)


def test_commit_scn_is_the_scn_of_the_message():
    assert written(change(after={}, position=ScnPosition(98, 99)))[0]["meta"]["scn"] == "99"


def test_details_of_shareplex_come_back_in_the_order_of_the_document():
    meta = {"userid": 84, "op": "ins", "rowid": "AAA", "table": "S.T", "host": "h", "x": [1]}
    message = {"meta": meta, "data": {}}
    again, losses = written(read(SHAREPLEX, message))
    assert again == message
    assert list(again["meta"]) == list(meta)
    assert not losses


# -- truncates and schema changes ----------------------------------------------------------------


def test_truncates_and_schema_changes_are_refused_unless_asked_for():
    for event in (Truncate(TABLE), SchemaChange(TABLE, "alter", "ALTER TABLE T ADD (c NUMBER)")):
        encoded = SHAREPLEX.encode(event, on_loss="ignore")
        assert not encoded.messages
        assert encoded.losses[0][0].startswith("event:")


def test_truncate_comes_back_with_its_statement():
    codec = get_codec("shareplex-json", ddl=True)
    table = TableId(schema="S", name="T")
    event = Truncate(table, "TRUNCATE TABLE s.t", source=codec.carries.stamp)
    encoded = codec.encode(event)
    assert codec.decode(encoded.messages[0]) == (event,)


def test_truncate_comes_back():
    event = Truncate(
        TABLE,
        position=ScnPosition(5, tx_seq=1),
        transaction=Transaction("1.2.3", 1, None, 1, last=True),
        source=SHAREPLEX.carries.stamp,
        details={"userid": 84},
    )
    (message,) = WITH_DDL.encode(event).messages
    assert json.loads(message.value)["meta"]["op"] == "truncate"
    assert WITH_DDL.decode(message) == (event,)


@pytest.mark.parametrize("codec", [WITH_DDL, get_codec("shareplex-json", ddl=True, zulu=True)])
def test_statement_comes_back(codec):
    event = SchemaChange(
        TABLE,
        "alter",
        "ALTER TABLE T ADD (c NUMBER)",
        source=SHAREPLEX.carries.stamp,
        details={"trans": "1.2.3", "seq": 1, "size": 1},
    )
    message = codec.encode(event).messages[0]
    assert json.loads(message.value)["data"] == {"sql": event.ddl}
    assert codec.decode(message) == (event,)


def test_drop_column_comes_back_as_it_was():
    message = {"meta": {"op": "DROP COLUMN", "table": "S.T"}, "data": {"column": "C"}}
    assert written(read(WITH_DDL, message), WITH_DDL) == (message, [])


@pytest.mark.parametrize(
    ("event", "loss"),
    [
        (SchemaChange(TABLE, "create", None), "action"),
        (SchemaChange(TABLE, "alter", "GRANT x"), "action"),
        (SchemaChange(TABLE, "other", None, key=Key(("a",))), "schema.key"),
        (SchemaChange(TABLE, "other", None, details={"op": "ins"}), "details.op"),
        (SchemaChange(TABLE, "other", None, details={"data": {"sql": "x"}}), "details.data"),
    ],
)
def test_what_a_ddl_message_does_not_tell_is_a_loss(event, loss):
    assert written(event, WITH_DDL)[1] == [loss]


# -- in general ----------------------------------------------------------------------------------

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
DTS_VALUES = st.one_of(st.none(), NAMES)
NATIVE_VALUES = st.one_of(
    DTS_VALUES,
    st.integers(-(10**40), 10**40),
    st.decimals(allow_nan=False, allow_infinity=False, places=2),
)


@st.composite
def documents(draw, values):
    """Messages of all that the documents name."""
    op = draw(st.sampled_from(["ins", "upd", "del"]))
    size = draw(st.integers(1, 99))
    seq = draw(st.integers(1, size))
    meta = {
        "time": "2017-06-16T14:24:34",
        "userid": draw(st.integers(0, 99)),
        "op": op,
        "scn": str(draw(st.integers(0, 2**128 - 1))),
        "rowid": "AAATGpAAIAAItcIAAA",
        "trans": draw(NAMES),
        "seq": seq,
        "size": size,
        "table": "S.T",
        "idx": f"{seq}/{size}",
        "posttime": "2017-06-16T14:33:52",
    }
    for name in draw(
        st.sets(st.sampled_from(sorted(meta.keys() - {"op", "seq", "size", "trans"})))
    ):
        del meta[name]
    message = {"meta": meta, "data": draw(st.dictionaries(NAMES, values, max_size=4))}
    if op == "upd" and draw(st.booleans()):
        message["key"] = draw(st.dictionaries(NAMES, values, max_size=4))
    return message


@settings(max_examples=20 * EFFORT)
@given(documents(DTS_VALUES))
def test_any_message_of_dts_is_read_and_written_without_a_loss(message):
    """What comes back is the same event; columns that did not change are left out of `data`."""
    (event,) = SHAREPLEX.decode(Message(json.dumps(message).encode()))
    (again,) = SHAREPLEX.encode(event).messages
    assert SHAREPLEX.decode(again) == (event,)


@settings(max_examples=20 * EFFORT)
@given(documents(DTS_VALUES), st.sampled_from(["auto", "dts", "native"]))
def test_keys_that_nobody_knows_change_nothing_else(message, dialect):
    codec = get_codec("shareplex-json", dialect=dialect)
    event = read(codec, message)
    more = message | {"beside": [1], "meta": message["meta"] | {"unknown": {"a": None}}}
    details = {**event.details, "unknown": {"a": None}}
    assert read(codec, more) == msgspec.structs.replace(event, details=details)


@settings(max_examples=20 * EFFORT)
@given(documents(NATIVE_VALUES))
def test_any_native_message_keeps_its_values(message):
    (event,) = NATIVE.decode(Message(msgspec.json.encode(message, enc_hook=str)))
    (again,) = NATIVE.encode(event, on_loss="ignore").messages
    (back,) = NATIVE.decode(again)
    assert (back.position, back.transaction) == (event.position, event.transaction)
    assert (back.before, back.after) == (
        (event.before, event.after)
        if event.op is Op.UPDATE
        else (without_nulls(event.before), without_nulls(event.after))
    )


def without_nulls(image):
    return image and {name: value for name, value in image.items() if value is not None}


@pytest.mark.parametrize(
    "options",
    [{"dialect": "native"}, {"dialect": "dts", "key_image": "key"}, {"ddl": True}],
    ids=str,
)
@pytest.mark.parametrize("check", [check_round_trip, check_honesty, check_stability])
def test_every_option_keeps_what_it_promises(check, options):
    check(get_codec("shareplex-json", **options), examples=12)


@pytest.mark.parametrize("check", SUITE_CHECKS, ids=lambda check: check.__name__)
def test_native_dialect_is_pure(check):
    suite = [
        event
        for name in golden.native_names(GOLDEN)
        for event in golden.native_events(GOLDEN, name)
    ]
    check(NATIVE, suite)


def test_a_column_that_only_the_rows_have_is_a_loss_of_both():
    images = {"before": {"a": "1", "b": "x", "c": "z"}, "after": {"a": "1", "b": "y", "c": "z"}}
    message, losses = written(change(Op.UPDATE, key=Key(("a",)), **images), NATIVE)
    assert (message["data"], message["key"]) == ({"b": "y"}, {"a": "1"})
    assert losses == ["before", "after"]

# SPDX-License-Identifier: Apache-2.0
"""Messages for GoldenGate's readers: what they would read differently is a loss."""

import decimal
import json

import pytest

from changelane import get_codec
from changelane.errors import EncodeError
from changelane.event import (
    Completeness,
    Control,
    DataChange,
    Key,
    KeyOrigin,
    Op,
    Source,
    Transaction,
    Truncate,
)
from changelane.position import ScnPosition, SequencePosition
from changelane.schema import TableId

CODEC = get_codec("ogg-json")
TABLE = TableId("PDB", "HR", "T")
GOLDENGATE = Source(None, "goldengate")
NOON_NS = 1_700_000_000_123_456_000


def change(op=Op.CREATE, before=None, after=None, **fields):
    fields = {"key": Key(("ID",), KeyOrigin.PAYLOAD), "source": GOLDENGATE} | fields
    return DataChange(op, fields.pop("table", TABLE), before=before, after=after, **fields)


def written(event, **options):
    encoded = get_codec("ogg-json", **options).encode(event, on_loss="ignore")
    (message,) = encoded.messages
    return json.loads(message.value), {field for field, _ in encoded.losses}


def test_the_fields_have_goldengates_order():
    event = change(
        Op.UPDATE,
        {"ID": 1, "A": "y"},
        {"ID": 1, "A": "x"},
        position=SequencePosition(4300),
        details={
            "site": 7,
            "tokens": {"R": "AAB"},
            "current_ts": "2016-10-05T10:15:51.310002",
            "op_ts": "2015-11-05 18:45:39.000000",
        },
    )
    encoded = CODEC.encode(event)
    assert encoded.losses == ()
    assert encoded.messages[0].value.decode() == (
        '{"table":"PDB.HR.T","op_type":"U","op_ts":"2015-11-05 18:45:39.000000",'
        '"current_ts":"2016-10-05T10:15:51.310002","pos":"00000000000000004300",'
        '"primary_keys":["ID"],"tokens":{"R":"AAB"},'
        '"before":{"ID":1,"A":"y"},"after":{"ID":1,"A":"x"},"site":7}'
    )
    assert CODEC.decode(encoded.messages[0]) == (event,)


@pytest.mark.parametrize(
    ("op", "images", "op_type"),
    [
        (Op.CREATE, {"after": {"ID": 1}}, "I"),
        (Op.UPDATE, {"after": {"ID": 1}}, "U"),
        (Op.DELETE, {"before": {"ID": 1}}, "D"),
    ],
)
def test_an_operation_has_its_images_and_its_name(op, images, op_type):
    value, losses = written(change(op, **images))
    assert (value["op_type"], losses) == (op_type, set())
    assert {name: value[name] for name in ("before", "after") if name in value} == images
    options = {"insert_op_key": "1", "update_op_key": "2", "delete_op_key": "3"}
    value, _ = written(change(op, **images), **options)
    assert value["op_type"] == options[f"{op.name.lower().replace('create', 'insert')}_op_key"]


def test_a_snapshot_read_is_an_insert():
    value, losses = written(change(Op.READ, after={"ID": 1}))
    assert (value["op_type"], losses) == ("I", {"operation:r"})


def test_a_truncate_has_no_images_and_no_statement():
    event = Truncate(TABLE, "TRUNCATE TABLE T", SequencePosition(1), source=GOLDENGATE)
    value, losses = written(event)
    assert value == {"table": "PDB.HR.T", "op_type": "T", "pos": "00000000000000000001"}
    assert losses == {"ddl"}
    assert written(event, truncate_op_key="TRUNC")[0]["op_type"] == "TRUNC"


def test_a_delete_without_columns_has_no_message():
    with pytest.raises(EncodeError, match="no columns"):
        CODEC.encode(change(Op.DELETE, {}), on_loss="ignore")


def test_an_empty_before_image_of_an_update_is_a_loss():
    value, losses = written(change(Op.UPDATE, {}, {"ID": 1}))
    assert ("before" in value, losses) == (False, {"before"})


def test_columns_that_look_like_marks_are_a_loss():
    value, losses = written(change(after={"ID": 1, "ID_isMissing": True}, key=None))
    assert (value["after"], losses) == ({"ID": 1, "ID_isMissing": True}, {"column"})
    assert written(change(after={"ID": 1, "A": 2, "ID_isMissing": True}))[1] == set()


# -- the message key -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "key"),
    [
        ({"ID": 1, "B": "x"}, b"1_x"),
        ({"ID": decimal.Decimal("1.50"), "B": None}, b"1.50_"),
        ({"ID": True, "B": "\u00e9"}, "true_\u00e9".encode()),
    ],
)
def test_the_message_key_is_that_of_primary_keys(row, key):
    event = change(after=row, key=Key(("ID", "B")))
    assert CODEC.encode(event, on_loss="ignore").messages[0].key == key
    without = get_codec("ogg-json", message_key="none")
    assert without.encode(event, on_loss="ignore").messages[0].key is None


def test_the_message_key_of_an_update_has_the_new_values():
    event = change(Op.UPDATE, {"ID": 1, "B": 5}, {"ID": 2}, key=Key(("ID", "B")))
    assert CODEC.encode(event, on_loss="ignore").messages[0].key == b"2_5"
    delete = change(Op.DELETE, {"ID": 1, "B": 5}, key=Key(("ID", "B")))
    assert CODEC.encode(delete, on_loss="ignore").messages[0].key == b"1_5"


def test_a_row_without_a_key_has_no_message_key():
    assert CODEC.encode(change(after={"ID": 1}, key=None)).messages[0].key is None


# -- metadata ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "pos", "losses"),
    [
        (SequencePosition(2928), "00000000000000002928", set()),
        (SequencePosition(10**25), "1" + "0" * 25, set()),
        (SequencePosition(1391 - 10**10), "00000000-10000001391", set()),
        (SequencePosition(-(10**30)), None, {"position"}),
        (SequencePosition(5, 2), "00000000000000000005", {"position.row"}),
        (ScnPosition(5), None, {"position"}),
    ],
)
def test_pos_has_twenty_digits(position, pos, losses):
    value, reported = written(change(after={"ID": 1}, position=position))
    assert (value.get("pos"), reported) == (pos, losses)


def test_times_are_written_in_the_stated_zone():
    event = change(after={"ID": 1}, source_time_ns=NOON_NS, process_time_ns=NOON_NS)
    value, losses = written(event, time_zone="+08:00", current_time_zone="UTC")
    assert value["op_ts"] == "2023-11-15 06:13:20.123456"
    assert value["current_ts"] == "2023-11-14T22:13:20.123456"
    assert losses == set()


def test_times_of_an_unknown_zone_are_a_loss():
    event = change(after={"ID": 1}, source_time_ns=NOON_NS, process_time_ns=NOON_NS)
    value, losses = written(event)
    assert not {"op_ts", "current_ts"} & value.keys()
    assert losses == {"source_time", "process_time"}


def test_the_second_pass_of_a_repeated_hour_is_read_as_it_was():
    codec = get_codec("ogg-json", time_zone="America/New_York")
    for time_ns in (1_699_162_200 * 10**9, 1_699_165_800 * 10**9):  # 01:30, twice
        event = change(after={"ID": 1}, source_time_ns=time_ns)
        (message,) = codec.encode(event).messages
        assert codec.decode(message)[0].source_time_ns == time_ns


def test_a_time_beyond_the_year_9999_is_a_loss():
    event = change(after={"ID": 1}, source_time_ns=253_402_300_800 * 10**9)
    assert written(event, time_zone="UTC")[1] == {"source_time"}


@pytest.mark.parametrize(
    ("table", "name", "losses"),
    [
        (TableId(None, None, "T"), "T", set()),
        (TableId(None, "HR", "T"), "HR.T", set()),
        (TableId("PDB", "HR", "T"), "PDB.HR.T", set()),
        (TableId("A.B", "HR", "T"), "A.B.HR.T", set()),
        (TableId("PDB", None, "T"), "PDB.T", {"table.database"}),
        (TableId("PDB", "HR", "T.U"), "PDB.HR.T.U", {"table.name"}),
        (TableId(None, "H.R", "T"), "H.R.T", {"table.name"}),
    ],
)
def test_a_table_that_readers_would_name_differently_is_a_loss(table, name, losses):
    value, reported = written(change(after={"ID": 1}, table=table))
    assert (value["table"], reported) == (name, losses)


def test_a_row_needs_a_table():
    with pytest.raises(EncodeError, match="no table"):
        CODEC.encode(change(after={"ID": 1}, table=TableId("d", "s", None)), on_loss="ignore")


@pytest.mark.parametrize(
    ("details", "losses"),
    [
        ({"pos": "x"}, {"details.pos"}),
        ({"tokens": "x"}, {"details.tokens"}),
        ({"op_ts": 5}, {"details.op_ts"}),
        ({"table": "x"}, {"details.table"}),
        ({"before": {"ID": 1}}, {"details.before"}),
        ({"$schema": "x"}, {"details.$schema"}),
        ({"before.ID": 1}, {"details.before.ID"}),
        ({"primary_keys": ["A"]}, {"details.primary_keys"}),
    ],
)
def test_a_detail_that_another_field_would_be_is_a_loss(details, losses):
    event = change(after={"ID": 1}, position=SequencePosition(1), details=details)
    value, reported = written(event)
    assert reported == losses
    assert value["pos"] == "00000000000000000001"
    assert value["table"] == "PDB.HR.T"


def test_a_row_in_a_transaction_is_written_alone():
    event = change(after={"ID": 1}, transaction=Transaction("7", 3, last=True))
    assert written(event)[1] == {"transaction.id", "transaction.order", "transaction.last"}


def test_an_image_of_known_completeness_is_read_as_unknown():
    event = change(Op.UPDATE, {"ID": 1}, {"ID": 1, "A": 1}, before_holds=Completeness.KEY)
    (message,) = CODEC.encode(event).messages
    assert CODEC.decode(message) == (event,)


@pytest.mark.parametrize(
    "text",
    ['{"a":1}', "no JSON", '{"$schema":"x","properties":{},"title":"HR.U"}', None],
)
def test_a_control_event_that_is_no_schema_is_a_loss(text):
    encoded = CODEC.encode(Control("$schema", text, TableId(None, "HR", "T")), on_loss="ignore")
    assert encoded.messages == ()
    assert {field for field, _ in encoded.losses} == {"event:control"}

# SPDX-License-Identifier: Apache-2.0
"""GoldenGate's messages are read as Oracle's documentation describes them."""

import decimal
import json
from itertools import permutations

import pytest

from changelane import Message, get_codec
from changelane.errors import ConfigError, DecodeError
from changelane.event import (
    Completeness,
    Control,
    Key,
    KeyOrigin,
    Op,
    Source,
    Tombstone,
    Truncate,
)
from changelane.position import ScnPosition, SequencePosition
from changelane.schema import TableId

CODEC = get_codec("ogg-json")
HEAD = {"table": "HR.T", "op_ts": "2015-11-05 18:45:39.123456", "pos": "00000000000000004300"}
AFTER = {"after": {"ID": 1}}
BEFORE = {"before": {"ID": 1}}
BOTH = BEFORE | AFTER


def value_of(message):
    return message if isinstance(message, bytes) else json.dumps(message).encode()


def read(message, **options):
    (event,) = get_codec("ogg-json", **options).decode(Message(value_of(message)))
    return event


def row(op_type, **fields):
    return {**HEAD, "op_type": op_type, **fields}


def refused(message, **options):
    with pytest.raises(DecodeError) as caught:
        read(message, **options)
    return caught.value.code, caught.value.path


# -- operations and images -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op_type", "images", "op"),
    [
        ("I", AFTER, Op.CREATE),
        ("I", AFTER | {"before": None}, Op.CREATE),
        ("I", AFTER | {"before": {}}, Op.CREATE),
        ("U", AFTER, Op.UPDATE),
        ("U", AFTER | {"before": {}}, Op.UPDATE),
        ("U", BOTH, Op.UPDATE),
        ("D", BEFORE, Op.DELETE),
        ("D", BEFORE | {"after": None}, Op.DELETE),
        ("D", BEFORE | {"after": {}}, Op.DELETE),
    ],
)
def test_an_operation_has_its_images(op_type, images, op):
    event = read(row(op_type, **images))
    assert event.op is op
    assert event.before == (images.get("before") or None)
    assert event.after == (images.get("after") or None)


def test_the_names_of_operations_are_options():
    options = {"insert_op_key": "INSERT", "truncate_op_key": "CLEAR", "pk_update_op_key": "PU"}
    assert read(row("INSERT", **AFTER), **options).op is Op.CREATE
    assert read(row("PU", **BOTH), **options).op is Op.UPDATE
    assert isinstance(read(row("CLEAR"), **options), Truncate)
    assert refused(row("I", **AFTER), **options) == ("unknown_operation", "$.op_type")


@pytest.mark.parametrize(
    "options",
    [{"insert_op_key": "U"}, {"truncate_op_key": "D"}, {"pk_update_op_key": "D"}],
)
def test_operations_of_one_name_are_refused_as_options(options):
    with pytest.raises(ConfigError, match="have one value"):
        get_codec("ogg-json", **options)


def test_the_name_of_a_key_change_may_be_that_of_updates():
    assert read(row("U", **BOTH), pk_update_op_key="U").op is Op.UPDATE


@pytest.mark.parametrize(
    ("message", "code", "path"),
    [
        (row("X", **AFTER), "unknown_operation", "$.op_type"),
        (row("i", **AFTER), "unknown_operation", "$.op_type"),
        ({**HEAD, **AFTER}, "missing_field", "$.op_type"),
        ({"op_type": "I", **AFTER}, "missing_field", "$.table"),
        ({"op_type": "I", "table": "", **AFTER}, "missing_field", "$.table"),
        (row("I", **BOTH), "unexpected_image", "$.before"),
        (row("D", **BOTH), "unexpected_image", "$.after"),
        (row("T", **AFTER), "unexpected_image", "$.after"),
        (row("T", **BEFORE), "unexpected_image", "$.before"),
        (row("I", after=None), "missing_image", "$.after"),
        (row("U", **BEFORE), "missing_image", "$.after"),
        (row("D", before={}), "no_key", "$.before"),
        (row("D", before=None), "no_key", "$.before"),
        (row("I", after=[1]), "wrong_type", "$.after"),
        (row("I", after={"ID": 1}, primary_keys="ID"), "wrong_type", "$.primary_keys"),
        (b"[1]", "wrong_type", "$[0]"),
        (b"", "incomplete_message", "$"),
        (b'{"table":"T"', "incomplete_message", "$"),
        (b'{"table":"T"}}', "malformed_json", "$"),
        (b'{"table":"T"}{"table"', "malformed_json", "$"),
    ],
)
def test_a_message_that_is_no_operation_is_refused(message, code, path):
    assert refused(message) == (code, path)


def test_a_truncate_empties_its_table():
    event = read(row("T", before=None, after=None))
    assert isinstance(event, Truncate)
    assert event.table == TableId(None, "HR", "T")
    assert event.position == SequencePosition(4300)


def test_a_message_without_a_value_is_a_tombstone():
    assert CODEC.decode(Message(None, b"1")) == (Tombstone(TableId()),)


def test_a_change_of_the_key_is_one_update_with_the_old_key():
    message = row("U", before={"ID": 1}, after={"ID": 2}, primary_keys=["ID"])
    event = read(message)
    assert (event.before, event.after) == ({"ID": 1}, {"ID": 2})
    assert event.key == Key(("ID",), KeyOrigin.PAYLOAD)


@pytest.mark.parametrize("columns", [None, []])
def test_a_row_without_key_columns_has_no_key(columns):
    assert read(row("I", **AFTER, primary_keys=columns)).key is None


# -- which columns an image has ------------------------------------------------------------------


def test_an_update_may_be_compressed_unless_the_trail_is_stated_to_have_all_columns():
    message = row("U", before={"ID": 1, "A": 1}, after={"ID": 1, "A": 2})
    event, whole = read(message), read(message, row_image="full")
    assert (event.before_holds, event.after_holds) == (Completeness.UNKNOWN,) * 2
    assert (whole.before_holds, whole.after_holds) == (Completeness.FULL,) * 2


def test_an_image_of_the_key_columns_is_known_to_have_no_others():
    event = read(row("D", **BEFORE, primary_keys=["ID"]))
    assert event.before_holds is Completeness.KEY
    assert read(row("I", **AFTER, primary_keys=["ID"])).after_holds is Completeness.FULL


def test_marks_state_which_columns_are_missing():
    marks = {"ID_isMissing": False, "A_isMissing": True, "B_isMissing": False}
    event = read(row("U", after={"ID": 1, "A": None, "B": None, **marks}))
    assert event.after == {"ID": 1, "B": None}
    assert event.after_holds is Completeness.UNKNOWN


def test_an_image_whose_marks_are_all_false_has_all_columns():
    image = {"ID": 1, "ID_isMissing": False}
    event = read(row("U", before=image, after=image))
    assert (event.before, event.after) == ({"ID": 1}, {"ID": 1})
    assert (event.before_holds, event.after_holds) == (Completeness.FULL,) * 2


@pytest.mark.parametrize(
    "image",
    [
        {"ID": 1, "ID_isMissing": False, "A": 1},
        {"ID": 1, "ID_isMissing": "false"},
        {"ID": 1, "A_isMissing": True},
        {"A_isMissing": True},
    ],
)
def test_a_column_with_the_name_of_a_mark_stays_a_column(image):
    assert read(row("U", after=image)).after == image


def test_values_are_exact():
    text = b'{"table":"T","op_type":"I","after":{"A":1.10,"B":123456789012345678901234567890}}'
    assert read(text).after == {"A": decimal.Decimal("1.10"), "B": 123456789012345678901234567890}


# -- the row model -------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["auto", "row"])
@pytest.mark.parametrize("op_type", ["I", "U", "D"])
def test_the_row_model_has_the_columns_beside_the_metadata(model, op_type):
    message = row(op_type, primary_keys=["ID"], tokens={"R": "x"}, ID=1, NAME="a")
    event = read(message, model=model)
    image = event.before if op_type == "D" else event.after
    assert image == {"ID": 1, "NAME": "a"}
    assert (event.after if op_type == "D" else event.before) is None
    assert "NAME" not in event.details


def test_the_row_model_has_columns_of_any_name_that_is_no_metadata():
    message = row("U", before="b", after=1)
    assert read(message, model="row").after == {"before": "b", "after": 1}


@pytest.mark.parametrize("name", ["table", "op_type", "op_ts", "current_ts", "pos", "tokens"])
def test_a_column_with_the_name_of_a_metadata_field_is_refused(name):
    value = '{"table":"T","op_type":"I","op_ts":"x","current_ts":"x","pos":"1","tokens":{},"ID":1,'
    message = f'{value}"{name}":null}}'.encode()
    assert refused(message) == ("unexpected_field", f"$.{name}")


def test_flattened_images_are_not_taken_for_columns():
    message = row("U", **{"before.ID": 1, "after.ID": 1})
    assert refused(message) == ("unexpected_field", "$")
    assert refused(message, model="operation") == ("missing_image", "$.after")
    assert read(message, model="row").after == {"before.ID": 1, "after.ID": 1}


def test_the_name_of_a_field_within_a_value_is_no_repeated_field():
    message = row("I", ID=1, DOC={"pos": {"pos": 2}, "table": 3})
    assert read(message).after == {"ID": 1, "DOC": {"pos": {"pos": 2}, "table": 3}}


def test_a_message_of_the_row_model_is_no_operation():
    assert refused(row("I", ID=1), model="operation") == ("missing_image", "$.after")
    assert refused(row("D", ID=1), model="operation") == ("no_key", "$.before")
    assert refused(row("I")) == ("missing_image", "$.after")


# -- position, time and table --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pos", "value"),
    [
        ("00000000000000002928", 2928),
        ("00000000010000002928", 10_000_002_928),
        ("00000000000000000002928", 2928),
        ("00000001230000000456", 1_230_000_000_456),
        ("1", 1),
        ("00000000-10000001391", -10_000_000_000 + 1391),
    ],
)
def test_pos_is_a_number(pos, value):
    assert read(row("I", **AFTER) | {"pos": pos}).position == SequencePosition(value)


@pytest.mark.parametrize(
    "pos", ["", "-1", "12x", " 1", "+1", "0000-10000001391", "\u0661", "9" * 39]
)
def test_a_pos_that_is_no_number_is_refused(pos):
    assert refused(row("I", **AFTER) | {"pos": pos}) == ("wrong_type", "$.pos")


def test_a_row_without_pos_has_no_position():
    assert read({"table": "T", "op_type": "I", **AFTER}).position is None


def test_changes_may_be_ordered_by_the_scn_in_the_tokens():
    event = read(row("I", **AFTER, tokens={"L": "1206", "R": "AAA"}), order="scn")
    assert event.position == ScnPosition(1206)
    assert event.details["pos"] == HEAD["pos"]


@pytest.mark.parametrize(
    ("tokens", "code"),
    [(None, "missing_field"), ({"R": "A"}, "missing_field"), ({"L": "x"}, "wrong_type")],
)
def test_a_row_without_the_scn_is_refused_if_it_is_the_order(tokens, code):
    assert refused(row("I", **AFTER, tokens=tokens), order="scn") == (code, "$.tokens.L")


def test_changes_may_be_ordered_by_their_offset():
    event = read(row("I", **AFTER), order="offset")
    assert event.position is None
    assert event.details["pos"] == HEAD["pos"]


def test_a_time_of_an_unknown_zone_is_a_detail():
    event = read(row("I", **AFTER, current_ts="2016-10-05T10:15:51.310002"))
    assert (event.source_time_ns, event.process_time_ns) == (None, None)
    assert event.details == {
        "op_ts": "2015-11-05 18:45:39.123456",
        "current_ts": "2016-10-05T10:15:51.310002",
    }


@pytest.mark.parametrize(
    ("zone", "seconds"),
    [("UTC", 1_446_749_139), ("+08:00", 1_446_720_339), ("America/New_York", 1_446_767_139)],
)
@pytest.mark.parametrize("separator", [" ", "T"])
def test_a_stated_zone_makes_a_time_of_the_text(zone, seconds, separator):
    text = HEAD["op_ts"].replace(" ", separator)
    message = row("I", **AFTER, current_ts=text) | {"op_ts": text}
    event = read(message, time_zone=zone, current_time_zone=zone)
    assert event.source_time_ns == event.process_time_ns == seconds * 10**9 + 123_456_000
    assert not event.details


@pytest.mark.parametrize("text", ["2015-11-05 18:45:39.5Z", "2015-11-06T02:45:39.5+08:00"])
def test_a_time_with_its_offset_needs_no_zone(text):
    assert read(row("I", **AFTER) | {"op_ts": text}).source_time_ns == 1_446_749_139_500_000_000


@pytest.mark.parametrize("text", ["yesterday", "2015-13-05 18:45:39", "2015-11-05"])
def test_a_text_that_is_no_time_is_refused_if_a_zone_is_stated(text):
    message = row("I", **AFTER) | {"op_ts": text}
    assert refused(message, time_zone="UTC") == ("wrong_type", "$.op_ts")


def test_an_unknown_zone_is_refused():
    with pytest.raises(ConfigError, match="Mars"):
        get_codec("ogg-json", time_zone="Mars/Base")


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("T", TableId(None, None, "T")),
        ("HR.T", TableId(None, "HR", "T")),
        ("PDB1.HR.T", TableId("PDB1", "HR", "T")),
        ("A.B.HR.T", TableId("A.B", "HR", "T")),
    ],
)
def test_the_name_of_a_table_is_divided_from_the_right(name, table):
    assert read({"table": name, "op_type": "I", **AFTER}).table == table


def test_the_product_is_what_the_options_state():
    assert read(row("I", **AFTER)).source == Source(None, "goldengate")
    assert read(row("I", **AFTER), product="oracle").source == Source("oracle", "goldengate")


def test_tokens_and_other_fields_are_details():
    event = read(row("I", **AFTER, tokens={"R": "AAB"}, priamry_keys=["ID"], site=None))
    assert {**event.details, "op_ts": None} == {
        "op_ts": None,
        "tokens": {"R": "AAB"},
        "priamry_keys": ["ID"],
        "site": None,
    }
    assert event.key is None


# -- several messages in one value ---------------------------------------------------------------


TWO = [row("I", after={"ID": 1}), row("D", before={"ID": 2})]


@pytest.mark.parametrize(
    "value",
    [
        value_of(TWO),
        b"".join(map(value_of, TWO)),
        b"\n".join(map(value_of, TWO)) + b"\n",
    ],
    ids=["array", "concatenated", "lines"],
)
def test_a_value_may_have_the_operations_of_a_transaction(value):
    events = CODEC.decode(Message(value))
    assert [event.op for event in events] == [Op.CREATE, Op.DELETE]
    assert [event.after or event.before for event in events] == [{"ID": 1}, {"ID": 2}]
    assert CODEC.decode(Message(b"[]")) == ()


def test_an_error_names_the_operation_in_the_value():
    broken = [TWO[0], row("X", **AFTER)]
    for value in (value_of(broken), b"".join(map(value_of, broken))):
        assert refused(value) == ("unknown_operation", "$[1].op_type")


# -- schemas -------------------------------------------------------------------------------------


def test_a_message_about_a_schema_is_a_control_event():
    schema = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "title": "HR.T",
        "type": "object",
        "properties": {"table": {"type": "string"}, "op_type": {"type": "string"}},
    }
    event = read(schema)
    assert isinstance(event, Control)
    assert (event.type, event.table) == ("$schema", TableId(None, "HR", "T"))
    assert json.loads(event.text) == schema
    assert CODEC.encode(event).messages == (Message(event.text.encode()),)


def test_the_first_wrong_field_is_the_error_of_a_message():
    for names in permutations(["table", "after"]):
        assert refused({"op_type": "I", **dict.fromkeys(names, 1)})[1] == f"$.{names[0]}"

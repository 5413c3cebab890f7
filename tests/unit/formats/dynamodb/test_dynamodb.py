# SPDX-License-Identifier: Apache-2.0
"""Records of DynamoDB: values, images, keys, positions, times, refusals, and what is written."""

import decimal
import json

import pytest

from changelane import DecodeError, EncodeError, Message, get_codec
from changelane.event import Completeness, DataChange, Key, KeyOrigin, Op, Tombstone
from changelane.formats.dynamodb.decode import position_of
from changelane.position import SequencePosition
from changelane.schema import Column, TableId, TableSchema
from changelane.types import Bytes, Json, String

ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/shop.orders/stream/2024-01-01T00:00:00.000"
TTL = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}


def record(name="INSERT", new=None, old=None, keys=None, **stream):
    item = {"id": {"S": "a"}} | (new or {}) if name != "REMOVE" else None
    images = {"NewImage": item, "OldImage": old}
    stream = {"Keys": keys or {"id": {"S": "a"}}} | stream
    stream |= {image: value for image, value in images.items() if value is not None}
    return {"eventID": "e1", "eventName": name, "tableName": "orders", "dynamodb": stream}


def decode_all(message, **options):
    return get_codec("dynamodb-json", **options).decode(Message(json.dumps(message).encode()))


def decode(message, **options):
    (event,) = decode_all(message, **options)
    return event


def value(attribute, **options):
    return decode(record(new={"v": attribute}), **options).after["v"]


def refused(message, **options):
    with pytest.raises(DecodeError) as caught:
        decode_all(message, **options)
    return caught.value.code, caught.value.path


# -- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ({"S": ""}, ""),
        ({"N": "-0.5"}, decimal.Decimal("-0.5")),
        ({"N": "9" * 38}, int("9" * 38)),
        ({"N": "1E+125"}, decimal.Decimal("1E+125")),
        ({"N": 7}, 7),
        ({"B": ""}, b""),
        ({"NULL": True}, None),
        ({"M": {"a": {"L": [{"B": "AAE="}, {"SS": ["b", "a"]}]}}}, {"a": ["AAE=", ["a", "b"]]}),
        ({"NS": ["10", 9, "-1.5"]}, [decimal.Decimal("-1.5"), 9, 10]),
    ],
)
def test_an_attribute_has_its_value(attribute, expected):
    result = value(attribute)
    assert (result, type(result)) == (expected, type(expected))


@pytest.mark.parametrize(
    "attribute",
    [
        {},
        {"S": "a", "N": "1"},
        {"S": 1},
        {"X": 1},
        {"N": "1_0"},
        {"N": "NaN"},
        {"N": "٣"},
        {"N": "9" * 39},
        {"N": "1E126"},
        {"B": "a"},
        {"BOOL": 1},
        {"NULL": False},
        {"L": {}},
        {"M": {"a": 1}},
        {"NS": ["x"]},
    ],
)
def test_a_wrong_attribute_is_refused_with_its_path(attribute):
    assert refused(record(new={"v": attribute}))[1] == "$.dynamodb.NewImage.v"


@pytest.mark.parametrize("depth", [201, 400, 900, 20_000])
def test_a_value_beyond_the_limit_of_levels_is_refused(depth):
    text = json.dumps(record(new={"v": {"NULL": True}}))
    nested = '{"L": [' * depth + '{"NULL": true}' + "]}" * depth
    with pytest.raises(DecodeError) as caught:
        get_codec("dynamodb-json").decode(Message(text.replace('{"NULL": true}', nested).encode()))
    assert caught.value.code == "too_deep"


def test_nested_values_keep_their_types_if_the_option_says_so():
    assert value({"M": {"a": {"N": "1"}}}, nested="typed") == {"M": {"a": {"N": "1"}}}


def test_declared_attributes_have_their_types():
    schemas = {
        "orders": {"id": "string key", "n": "string", "s": "json", "m": "json", "b": "bytes"}
    }
    new = {
        "n": {"N": "5"},
        "s": {"S": "[1]"},
        "m": {"M": {"x": {"BOOL": True}}},
        "b": {"B": "AA=="},
    }
    event = decode(record(new=new), schemas=schemas)
    assert event.after == {"id": "a", "n": "5", "s": "[1]", "m": '{"x":true}', "b": b"\x00"}
    assert decode(record(), schemas=schemas).after["n"] is None


# -- records -------------------------------------------------------------------------------------


def test_a_delete_without_old_image_has_its_key():
    event = decode(record("REMOVE"))
    assert (event.op, event.before, event.before_holds) == (
        Op.DELETE,
        {"id": "a"},
        Completeness.KEY,
    )


def test_a_new_item_without_image_is_refused():
    message = record("MODIFY")
    del message["dynamodb"]["NewImage"]
    assert refused(message) == ("missing_image", "$.dynamodb.NewImage")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (record("INSERT", old={"id": {"S": "a"}}), "unexpected_image"),
        (record("UPSERT"), "unknown_operation"),
        (record(keys={"other": {"S": "a"}}), "missing_field"),
        (record(SequenceNumber="-1"), "wrong_type"),
        (record(ApproximateCreationDateTime=True), "wrong_type"),
        (record(ApproximateCreationDateTime=10**18), "value_out_of_range"),
        ({"Records": [record(), {"eventName": "INSERT"}]}, "wrong_type"),
    ],
)
def test_a_contradictory_record_is_refused(message, code):
    assert refused(message)[0] == code


def test_a_batch_has_an_event_for_each_record_and_names_the_wrong_one():
    batch = {"Records": [record(), record("REMOVE")]}
    assert [event.op for event in decode_all(batch)] == [Op.CREATE, Op.DELETE]
    batch["Records"][1]["dynamodb"]["Keys"] = {"id": {"X": "a"}}
    assert refused(batch)[1] == "$.Records[1].dynamodb.Keys.id"
    assert refused(batch["Records"])[1] == "$[1].dynamodb.Keys.id"


def test_a_batch_may_be_an_array():
    batch = [record(), record("REMOVE")]
    assert [event.op for event in decode_all(batch)] == [Op.CREATE, Op.DELETE]
    assert get_codec("dynamodb-json").detects(Message(json.dumps(batch).encode()))


@pytest.mark.parametrize("name", ["INSERT", "MODIFY", "REMOVE"])
def test_an_empty_object_is_no_image(name):
    message = record(name, old={})
    if name == "REMOVE":
        message["dynamodb"]["NewImage"] = {}
    assert decode(message) == decode(record(name))


def test_the_table_of_a_stream_is_in_its_arn():
    message = record()
    del message["tableName"]
    assert decode(message).table == TableId()
    assert decode(message | {"eventSourceARN": ARN}).table == TableId(name="shop.orders")


def test_the_options_order_the_key():
    message = record(
        keys={"a": {"S": "1"}, "z": {"S": "2"}}, new={"a": {"S": "1"}, "z": {"S": "2"}}
    )
    assert decode(message).key == Key(("a", "z"), KeyOrigin.PAYLOAD)
    assert decode(message, keys={"orders": ["z", "a"]}).key.columns == ("z", "a")
    assert refused(message, keys={"orders": ["z"]}) == ("missing_field", "$.dynamodb.Keys")


def test_deletes_of_expired_items_may_be_dropped():
    message = record("REMOVE") | {"userIdentity": TTL}
    assert decode(message).details["userIdentity"] == TTL
    assert decode_all(message, ttl_deletes="drop") == ()
    of_the_api = {"Type": TTL["type"], "PrincipalId": TTL["principalId"]}
    assert decode_all(message | {"userIdentity": of_the_api}, ttl_deletes="drop") == ()
    assert decode_all(record("REMOVE"), ttl_deletes="drop") != ()


@pytest.mark.parametrize(
    ("time", "precision", "expected"),
    [
        (1479499740, None, 1479499740 * 10**9),
        (1479499740123, None, 1479499740123 * 10**6),
        (1479499740123456, None, 1479499740123456 * 10**3),
        (5, "MILLISECOND", 5 * 10**6),
        (5, "MICROSECOND", 5 * 10**3),
        ("2016-11-18T20:09:00Z", None, 1479499740 * 10**9),
    ],
)
def test_a_time_has_the_unit_of_its_precision_or_of_its_digits(time, precision, expected):
    fields = {} if precision is None else {"ApproximateCreationDateTimePrecision": precision}
    event = decode(record(ApproximateCreationDateTime=time, **fields))
    assert event.source_time_ns == expected


def test_sequence_numbers_of_all_lengths_have_their_order():
    numbers = [0, 999, 1000, 10**21 - 1, 10**21, 10**38, 10**40 - 1]
    keys = [position_of(number).key() for number in numbers]
    assert keys == sorted(set(keys))
    assert decode(record(SequenceNumber="222")).position == SequencePosition(0, 222)


def test_records_of_kinesis_have_the_order_of_their_time():
    first = decode(record(ApproximateCreationDateTime=1719347890250)).position
    later = decode(record(ApproximateCreationDateTime=1719347890250001)).position
    assert first.key() < later.key()
    event = decode(record(ApproximateCreationDateTime=1719347890250), order="offset")
    assert event.position is None
    assert decode(record()).position is None


def test_a_message_without_value_is_a_tombstone():
    assert get_codec("dynamodb-json").decode(Message(None)) == (Tombstone(TableId()),)


# -- writing -------------------------------------------------------------------------------------


def rewritten(message, **options):
    codec = get_codec("dynamodb-json", **options)
    (event,) = codec.decode(Message(json.dumps(message).encode()))
    (written,) = codec.encode(event, on_loss="ignore").messages
    return json.loads(written.value)


def test_a_record_comes_back_with_bytes_sets_and_further_fields():
    new = {
        "b": {"B": "AAE="},
        "ss": {"SS": ["a", "b"]},
        "ns": {"NS": ["1", "2.50"]},
        "l": {"L": []},
    }
    message = record("MODIFY", new=new, old={"id": {"S": "a"}}, SizeBytes=5, Other=1) | {"more": 2}
    written = rewritten(message)
    assert written["dynamodb"] == message["dynamodb"]
    assert (written["eventID"], written["more"]) == ("e1", 2)


def test_a_sequence_number_comes_back_and_none_is_invented():
    number = "300000000000000499659"
    written = rewritten(record(SequenceNumber=number, ApproximateCreationDateTime=1479499740))
    assert written["dynamodb"]["SequenceNumber"] == number
    of_kinesis = record(ApproximateCreationDateTime=1479499740123)
    assert "SequenceNumber" not in rewritten(of_kinesis)["dynamodb"]


def test_typed_values_come_back():
    new = {"m": {"M": {"a": {"BS": ["AAE="]}}}, "s": {"SS": ["a"]}}
    message = record(new=new)
    assert rewritten(message, nested="typed")["dynamodb"] == message["dynamodb"]


def event_with(kind, row_value, key=("id",)):
    schema = TableSchema((Column("id", String()), Column("v", kind)))
    row = {"id": "a", "v": row_value}
    return DataChange(Op.CREATE, TableId(name="t"), Key(key) if key else None, None, row, schema)


@pytest.mark.parametrize(
    ("kind", "row_value", "attribute"),
    [
        (Bytes(), b"\x01", {"B": "AQ=="}),
        (Json(), '{"a":[1.50,null]}', {"M": {"a": {"L": [{"N": "1.50"}, {"NULL": True}]}}}),
        (Json(), '"{}"', {"S": '"{}"'}),
        (String(), '{"a":1}', {"S": '{"a":1}'}),
    ],
)
def test_a_value_has_the_attribute_of_its_type(kind, row_value, attribute):
    (message,) = get_codec("dynamodb-json").encode(event_with(kind, row_value)).messages
    assert json.loads(message.value)["dynamodb"]["NewImage"]["v"] == attribute


def test_a_change_without_key_is_a_loss_and_one_with_a_null_key_is_refused():
    encoded = get_codec("dynamodb-json").encode(
        event_with(String(), "", key=None), on_loss="ignore"
    )
    assert ("key", "a record of DynamoDB has a key") in encoded.losses
    with pytest.raises(EncodeError, match="key column"):
        get_codec("dynamodb-json").encode(event_with(String(), None, key=("v",)))


@pytest.mark.parametrize("text", ['"{}"', "{}", "null", "1.50", "true", '"null"'])
def test_declared_json_comes_back(text):
    codec = get_codec("dynamodb-json", schemas={"t": {"id": "string key", "v": "json"}})
    (message,) = codec.encode(event_with(Json(), text)).messages
    assert codec.decode(message)[0].after["v"] == text


def test_an_item_without_attributes_is_refused():
    event = DataChange(Op.CREATE, TableId(name="t"), after={})
    with pytest.raises(EncodeError, match="without columns"):
        get_codec("dynamodb-json").encode(event, on_loss="ignore")

# SPDX-License-Identifier: Apache-2.0
"""Messages of CockroachDB's changefeeds to events: envelopes, keys, positions, types, refusals."""

import decimal
import json

import pytest

from changelane import ConfigError, DecodeError, Message, get_codec
from changelane.event import (
    Completeness,
    DataChange,
    Key,
    KeyOrigin,
    Op,
    Source,
    Tombstone,
    Watermark,
)
from changelane.position import SequencePosition
from changelane.schema import TableId
from changelane.types import UNKNOWN, Bytes, Date, Decimal, Integer, Json, String

TIME = 1701102311425045162
TEXT = f"{TIME}.0000000003"
POSITION = SequencePosition(TIME * 10**10 + 3)
SOURCE = Source(product="cockroachdb", connector="cockroachdb")
SCHEMAS = {"schemas": {"t": {"city": "string key", "id": "int64 key", "note": "string"}}}
ORIGIN = {
    "origin": "cockroachdb",
    "database_name": "movr",
    "schema_name": "public",
    "table_name": "users",
    "primary_keys": ["id"],
}


def decode_all(value, key=None, topic="t", **options):
    data = value if isinstance(value, bytes | None) else json.dumps(value).encode()
    key = None if key is None else json.dumps(key).encode()
    return get_codec("cockroachdb-json", **options).decode(Message(data, key, topic=topic))


def decode(value, key=None, topic="t", **options):
    (event,) = decode_all(value, key, topic, **options)
    return event


def refused(value, key=None, **options):
    with pytest.raises(DecodeError) as caught:
        decode(value, key, **options)
    return caught.value.code, caught.value.path


# -- wrapped -----------------------------------------------------------------------------------


def test_a_row_without_diff_is_an_insert_or_an_update():
    event = decode({"after": {"id": 1, "d": 1.50}, "key": [1], "updated": TEXT})
    assert event == DataChange(
        Op.UPDATE,
        TableId(name="t"),
        after={"id": 1, "d": decimal.Decimal("1.5")},
        position=POSITION,
        source=SOURCE,
        source_time_ns=TIME,
        after_holds=Completeness.FULL,
    )


def test_with_diff_an_insert_has_no_old_row():
    assert decode({"after": {"id": 1}, "before": None}).op is Op.CREATE
    event = decode({"after": {"id": 1}, "before": {"id": 1, "a": None}})
    assert (event.op, event.before) == (Op.UPDATE, {"id": 1, "a": None})
    assert event.before_holds is Completeness.FULL


def test_a_delete_has_the_old_row_or_its_key():
    event = decode({"after": None, "before": {"id": 1}})
    assert (event.op, event.before, event.after) == (Op.DELETE, {"id": 1}, None)
    key = Key(("city", "id"), KeyOrigin.CONFIG)
    for value, message_key in [
        ({"after": None, "key": ["rome", 1]}, None),
        ({"after": None}, ["rome", 1]),
        ({"after": None, "before": None}, ["rome", 1]),
    ]:
        event = decode(value, message_key, **SCHEMAS)
        assert (event.key, event.before) == (key, {"city": "rome", "id": 1})


def test_declared_tables_have_types_and_a_key():
    schemas = {
        "movr.public.t": {"id": "int64 key", "b": "bytes", "j": "json", "p": "decimal(10,2)"}
    }
    row = {"id": 1, "b": "\\x00ff", "j": {"a": 1.10}, "p": 1.5}
    value = b'{"after":{"id":1,"b":"\\\\x00ff","j":{"a":1.10},"p":1.50},"before":null}'
    event = decode(value, topic="movr.public.t", schemas=schemas)
    assert event.after == row | {"b": b"\x00\xff", "j": '{"a":1.10}', "p": decimal.Decimal("1.50")}
    assert event.key == Key(("id",), KeyOrigin.CONFIG)
    assert event.table == TableId("movr", "public", "t")
    null = {"__crdb_json_null__": True}
    event = decode({"after": row | {"j": null}}, topic="movr.public.t", schemas=schemas)
    assert event.after["j"] == "null"
    event = decode({"after": row | {"j": None}}, topic="movr.public.t", schemas=schemas)
    assert event.after["j"] is None


def test_in_an_initial_scan_the_time_of_the_row_is_not_the_position():
    event = decode({"after": {"id": 1}, "updated": TEXT, "mvcc_timestamp": "5.0000000000"})
    assert (event.position, event.source_time_ns) == (POSITION, 5)
    assert event.details == {"mvcc_timestamp": "5.0000000000"}
    event = decode({"after": {"id": 1}, "mvcc_timestamp": TEXT})
    assert (event.position, event.source_time_ns, event.details) == (POSITION, TIME, {})
    assert decode({"after": {"id": 1}}).position is None


@pytest.mark.parametrize("names", [("Key", "Value", "Topic"), ("key", "value", "topic")])
def test_a_publication_has_the_key_and_the_topic_beside_the_value(names):
    def body(value):
        return dict(zip(names, (["x", 1], value, "t"), strict=True))

    event = decode(body({"after": {"id": 1, "city": "x"}, "updated": TEXT}), topic="projects/p")
    assert (event.table, event.position) == (TableId(name="t"), POSITION)
    delete = decode(body({"after": None}), topic=None, **SCHEMAS)
    assert (delete.op, delete.before) == (Op.DELETE, {"city": "x", "id": 1})
    bare = decode(body({"__crdb__": {"updated": TEXT}, "id": 1, "a": 2}))
    assert (bare.after, bare.table.name) == ({"id": 1, "a": 2}, "t")
    assert refused(body({"id": 1})) == ("missing_field", "$.Value.after")
    assert refused(body(None)) == ("missing_field", "$.after")
    assert refused(body({"after": {}}) | {"more": 1}) == ("missing_field", "$.after")


def test_a_publication_of_a_bare_row_is_read():
    body = {"Key": [1], "Value": {"id": 1, "name": "x"}, "Topic": "t"}
    assert decode(body, envelope="bare").after == {"id": 1, "name": "x"}
    row = {"Key": [1], "Value": 5, "Topic": "t"}
    assert decode(row, envelope="bare").after == row
    row = {"key": [1], "value": {"id": 1}, "topic": "t"}
    assert decode(row, envelope="bare").after == row
    body["Value"] = {"after": {"id": 1}}
    assert get_codec("cockroachdb-json").detects(Message(json.dumps(body).encode()))


def test_a_time_in_the_future_has_a_mark():
    event = decode({"after": {"id": 1}, "updated": f"{TEXT}?"})
    assert (event.position, event.source_time_ns) == (POSITION, TIME)
    assert decode({"resolved": f"{TEXT}?"}).position == POSITION
    refusal = ("wrong_type", "$.updated")
    assert refused({"after": {"id": 1}, "updated": f"{TEXT}??"}) == refusal


def test_the_table_is_the_topic_or_named_in_the_value():
    assert decode({"after": {}, "topic": "u"}).table == TableId(name="u")
    assert decode({"after": {}}, topic="a.b").table == TableId(name="a.b")
    assert decode({"after": {}}, topic=None).table == TableId()


# -- enriched ----------------------------------------------------------------------------------


def test_an_enriched_message_has_operation_table_and_key():
    source = ORIGIN | {"ts_hlc": TEXT, "ts_ns": TIME, "job_id": "7"}
    value = {"after": {"id": 1}, "before": {"id": 1}, "op": "u", "source": source, "ts_ns": 9}
    event = decode(value)
    assert event.op is Op.UPDATE
    assert event.table == TableId("movr", "public", "users")
    assert event.key == Key(("id",), KeyOrigin.PAYLOAD)
    assert (event.position, event.source_time_ns) == (POSITION, TIME)
    assert event.process_time_ns == 9
    assert event.details == {"source": {"origin": "cockroachdb", "job_id": "7"}}


def test_the_time_of_processing_is_never_a_position():
    event = decode({"after": {"id": 1}, "op": "c", "ts_ns": TIME})
    assert (event.op, event.position, event.source_time_ns) == (Op.CREATE, None, None)


def test_a_deleted_row_of_an_enriched_message_is_its_key():
    value = {"after": None, "op": "d", "ts_ns": 9}
    for message_key, fields in [
        ({"id": 1}, {}),
        ({"payload": {"id": 1}, "schema": {}}, {}),
        (None, {"key": {"id": 1}}),
        ([1], {"source": ORIGIN}),
    ]:
        event = decode(value | fields, message_key)
        assert (event.before, event.key.columns) == ({"id": 1}, ("id",))


def block(*fields):
    row = {"field": "after", "type": "struct", "fields": list(fields)}
    return {"type": "struct", "name": "cockroachdb.envelope", "fields": [row]}


def test_the_schema_of_an_enriched_message_gives_types():
    fields = [
        {"field": "id", "type": "int64", "optional": False},
        {
            "field": "p",
            "type": "float64",
            "name": "decimal",
            "parameters": {"precision": "10", "scale": "2"},
        },
        {"field": "n", "type": "float64", "name": "decimal", "parameters": {"precision": "0"}},
        {"field": "d", "type": "string", "name": "date"},
        {"field": "t", "type": "string", "name": "timestamp"},
        {"field": "b", "type": "bytes"},
        {"field": "j", "type": "json"},
        {"field": "a", "type": "array", "items": {"type": "int64"}},
    ]
    row = b'{"id":1,"p":1.50,"n":1e30,"d":"2024-01-02","t":"2024-01-02T00:00:00Z","b":"\\\\x00",'
    row += b'"j":[1],"a":[1]}'
    schema = json.dumps(block(*fields)).encode()
    event = decode(b'{"payload":{"after":' + row + b',"op":"c"},"schema":' + schema + b"}")
    types = [column.type for column in event.schema.columns]
    string, unknown = String(), UNKNOWN
    assert types[:5] == [Integer(64), Decimal(10, 2), Decimal(), Date(), string]
    assert types[5:] == [Bytes(), Json(), unknown]
    assert event.after["p"] == decimal.Decimal("1.50")
    assert (event.after["b"], event.after["j"], event.after["a"]) == (b"\x00", "[1]", [1])
    assert event.after["t"] == "2024-01-02T00:00:00Z"
    assert event.schema.columns[0].nullable is False


# -- bare, row, resolved, batches --------------------------------------------------------------


def test_a_bare_row_has_its_metadata_beside_its_columns():
    metadata = {"key": [1], "topic": "u", "updated": TEXT}
    row = {"id": 1, "after": 2, "payload": [], "length": "x"}
    for envelope in ("auto", "bare"):
        event = decode({"__crdb__": metadata} | row, envelope=envelope)
        assert event.after == row
    assert (event.op, event.table, event.position) == (Op.UPDATE, TableId(name="u"), POSITION)
    event = decode({"__crdb__": {"key": ["rome", 1]}}, **SCHEMAS)
    assert (event.op, event.before) == (Op.DELETE, {"city": "rome", "id": 1})


def test_a_bare_row_that_may_be_a_delete_is_refused():
    row = {"__crdb__": {"key": ["rome", 1]}, "city": "rome", "id": 1}
    assert refused(row | {"note": None}) == ("missing_image", "$")
    assert refused(row | {"note": None} | {"__crdb__": {}}, ["rome", 1])[0] == "missing_image"
    assert decode(row | {"note": "x"}).op is Op.UPDATE
    assert decode(row).op is Op.UPDATE


def test_rows_without_an_envelope_are_read_if_the_option_says_so():
    assert decode({"id": 1}, envelope="bare").after == {"id": 1}
    event = decode(None, ["rome", 1], envelope="bare", **SCHEMAS)
    assert (event.op, event.before) == (Op.DELETE, {"city": "rome", "id": 1})
    assert decode(None, ["rome", 1], **SCHEMAS) == Tombstone(TableId())
    assert decode(None, envelope="bare") == Tombstone(TableId())


def test_a_resolved_time_is_a_watermark():
    resolved = Watermark("resolved", POSITION, SOURCE, TIME)
    assert decode({"resolved": TEXT}) == resolved
    assert decode({"__crdb__": {"resolved": TEXT}}) == resolved
    assert decode({"__crdb__": {"resolved": TEXT}}, envelope="bare") == resolved


def test_a_webhook_sends_batches():
    rows = [{"after": {"id": 1}, "topic": "a"}, {"after": None, "key": {"id": 2}, "op": "d"}]
    events = decode_all({"payload": rows, "length": 2})
    assert [event.op for event in events] == [Op.UPDATE, Op.DELETE]
    assert events[0].table == TableId(name="a")
    (event,) = decode_all({"payload": [{"__crdb__": {"key": [1]}, "id": 1}], "length": 1})
    assert event.after == {"id": 1}
    assert decode_all({"payload": [], "length": 0}) == ()


@pytest.mark.parametrize(
    ("value", "code", "path"),
    [
        ({"id": 1}, "missing_field", "$.after"),
        ({"after": None}, "missing_image", "$.key"),
        ({"after": None, "key": [1]}, "missing_image", "$.key"),
        ({"after": {}, "updated": "1.5"}, "wrong_type", "$.updated"),
        ({"after": {}, "updated": 1}, "wrong_type", "$.updated"),
        ({"resolved": "x"}, "wrong_type", "$.resolved"),
        ({"after": {}, "op": "t"}, "unknown_operation", "$.op"),
        ({"after": {}, "op": "d"}, "unexpected_image", "$.after"),
        ({"after": None, "op": "c"}, "missing_image", "$.after"),
        ({"after": {}, "op": "c", "source": {"ts_hlc": 1}}, "wrong_type", "$.source.ts_hlc"),
        ({"after": {}, "source": {"table_name": 1}}, "wrong_type", "$.source"),
        ({"after": {}, "source": {"primary_keys": "id"}}, "wrong_type", "$.source.primary_keys"),
        ({"after": {}, "op": "c", "ts_ns": -1}, "value_out_of_range", "$.ts_ns"),
        (
            {"payload": {"op": "x"}, "schema": {"type": "struct"}},
            "unknown_operation",
            "$.payload.op",
        ),
        ({"payload": [{"after": 1}], "length": 1}, "wrong_type", "$.payload[0].after"),
        ({"payload": [{"id": 1}], "length": 1}, "missing_field", "$.payload[0].after"),
        ({"__crdb__": {"updated": 1}}, "wrong_type", "$.__crdb__.updated"),
    ],
)
def test_other_messages_are_refused(value, code, path):
    assert refused(value) == (code, path)


def test_values_and_keys_that_do_not_fit_are_refused():
    assert refused({"after": {"id": "x"}}, **SCHEMAS) == ("wrong_type", "$.after.id")
    assert refused({"after": None, "key": [1]}, **SCHEMAS) == ("wrong_length", "$.key")
    schema = block({"field": "id", "type": "quaternion"})
    value = {"payload": {"after": {"id": 1}, "op": "c"}, "schema": schema}
    assert refused(value) == ("unknown_type", "$.schema.fields")
    same = {"field": "id", "type": "int64"}
    value["schema"] = block(same, same)
    assert refused(value) == ("wrong_schema", "$.schema.fields")
    value["schema"] = 1
    assert refused(value) == ("wrong_type", "$.schema")
    with pytest.raises(ConfigError, match=r"schemas: t\.id"):
        get_codec("cockroachdb-json", schemas={"t": {"id": "quaternion"}})


def test_detection_needs_marks_of_a_changefeed():
    codec = get_codec("cockroachdb-json")
    for value in [
        {"after": {}, "before": None},
        {"__crdb__": {}, "id": 1},
        {"resolved": TEXT},
        {"payload": [{"after": {}, "key": [1]}], "length": 1},
        {"payload": {"after": {}, "op": "c", "ts_ns": 1}, "schema": {}},
        {"after": {}, "op": "c", "source": {"origin": "cockroachdb"}},
    ]:
        assert codec.detects(Message(json.dumps(value).encode()))
    for value in [
        {"after": {}, "op_type": "I"},
        {"after": {}, "op": "c", "source": {"connector": "mysql"}},
        {"after": {}, "op": "c"},
        {"after": {}, "op": "c", "ts_ms": 1, "ts_ns": 1},
        {"resolved": "soon"},
        {"payload": [], "length": 0},
    ]:
        assert not codec.detects(Message(json.dumps(value).encode()))

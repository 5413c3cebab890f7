# SPDX-License-Identifier: Apache-2.0
"""Debezium messages to events: dispatch, wrapping, keys, placeholders, and what is not one."""

import base64
import datetime as dt
import json
import pickle
import time
from decimal import Decimal

import pytest
from debezium_source_blocks import MYSQL, PG, PLACEHOLDER
from hypothesis import given
from hypothesis import strategies as st

from changelane import DecodeError, Message, get_codec
from changelane.errors import ConfigError
from changelane.event import (
    Completeness,
    Control,
    DataChange,
    HalfUpdate,
    Key,
    KeyOrigin,
    Op,
    SchemaChange,
    Source,
    Tombstone,
    TransactionMarker,
    Truncate,
    Watermark,
)
from changelane.formats.debezium_envelope import source_block
from changelane.formats.debezium_envelope.rows import connect_schema
from changelane.formats.debezium_envelope.rows.wire import MySqlSource, PostgresSource
from changelane.position import LsnPosition, MySqlPosition, PostgresPosition, ScnPosition
from changelane.schema import TableId
from changelane.types import UNAVAILABLE, Integer

DEBEZIUM = get_codec("debezium-json")


def envelope(op="c", before=None, after=None, source=PG, **more):
    return {"before": before, "after": after, "source": source, "op": op} | more


def message(value, key=None, **more):
    def data(part):
        if part is None or isinstance(part, bytes):
            return part
        return json.dumps(part, separators=(",", ":")).encode()

    return Message(data(value), data(key), **more)


def decode(value, key=None, options=None, **more):
    codec = get_codec("debezium-json", **options) if options else DEBEZIUM
    (event,) = codec.decode(message(value, key, **more))
    return event


def field(kind, column, **more):
    return {"type": kind, "optional": True} | more | {"field": column}


def block(fields):
    value = {"type": "struct", "fields": fields, "optional": True, "name": "dbz.public.t.Value"}
    parts = [value | {"field": "before"}, value | {"field": "after"}]
    name = "dbz.public.t.Envelope"
    return {"type": "struct", "fields": parts, "optional": False, "name": name, "version": 2}


def wrapped(fields, payload):
    return {"schema": block(fields), "payload": payload}


# -- which kind ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "want"),
    [("c", Op.CREATE), ("r", Op.READ), ("u", Op.UPDATE), ("C", Op.CREATE), ("U", Op.UPDATE)],
)
def test_operations_in_either_case(op, want):
    event = decode(envelope(op, after={"id": 1}))
    assert event.op is want
    assert event.after == {"id": 1}
    assert event.after_holds is Completeness.FULL


def test_unknown_operation_is_a_control_event():
    event = decode(envelope("x", after={"id": 1}))
    assert isinstance(event, Control)
    assert event.type == "op:x"
    assert json.loads(event.text)["after"] == {"id": 1}


def test_snapshot_rows_of_old_connectors_are_reads_and_written_as_they_were():
    event = decode(envelope("c", after={"id": 1}, source=MYSQL | {"snapshot": "true"}))
    assert event.op is Op.READ
    assert event.source.snapshot == "true"
    (out,) = DEBEZIUM.encode(event).messages
    assert json.loads(out.value)["op"] == "c"


SNAPSHOTS = [
    (True, "true"),
    (False, None),
    (None, None),
    ("false", None),
    ("incremental", "incremental"),
]


@pytest.mark.parametrize(("word", "want"), SNAPSHOTS)
def test_snapshot_may_be_boolean_text_or_null(word, want):
    assert decode(envelope(after={"id": 1}, source=PG | {"snapshot": word})).source.snapshot == want


@pytest.mark.parametrize(
    "value", [None, b"", b"null", b" null ", b'{"schema":null,"payload":null}']
)
def test_tombstones_in_all_forms(value):
    event = decode(value, {"id": 3}, topic="dbz.public.t")
    assert isinstance(event, Tombstone)
    assert event.key == {"id": 3}
    (out,) = DEBEZIUM.encode(event).messages
    assert out.value == value
    assert json.loads(out.key) == {"id": 3}


def test_truncate_with_and_without_images():
    for value in (envelope("t"), {"op": "t", "source": PG, "ts_ms": 3}):
        event = decode(value)
        assert isinstance(event, Truncate)
        assert event.table == TableId("shop", "public", "t")


def test_heartbeat():
    event = decode({"ts_ms": 7}, {"serverName": "dbz"})
    assert event == Watermark(
        source=Source(connector="debezium", server="dbz"), process_time_ns=7_000_000
    )


def test_transactions_may_have_numbers_as_text():
    collections = [{"data_collection": "s.a", "event_count": 2}]
    value = {"status": "END", "id": "571:1", "event_count": "2", "data_collections": collections}
    event = decode(value | {"ts_ms": 1})
    assert isinstance(event, TransactionMarker)
    assert (event.status, event.transaction.id, event.transaction.size) == ("commit", "571:1", 2)
    row = decode(envelope(after={"id": 1}, transaction={
        "id": "571:2", "total_order": "1", "data_collection_order": "1"}))  # fmt: skip
    assert row.transaction.order == 1


def test_notifications_and_schema_history_are_control_events():
    note = {"id": "a", "type": "b", "aggregate_type": "Initial Snapshot", "timestamp": 1}
    assert isinstance(decode(note), Control)
    assert isinstance(decode({"position": {}, "tableChanges": [], "ddl": ""}), Control)


@pytest.mark.parametrize("value", [{"id": 1, "name": "Ann"}, {}, [], 1, "text", {"schema": 1}])
def test_what_is_no_message_of_debezium_is_refused(value):
    with pytest.raises(DecodeError):
        decode(value)


def test_unknown_fields_are_kept_and_written_again():
    value = envelope(after={"id": 1}, source=PG | {"shard": "s1"}, sourceSchema="x", ts_ms=1)
    event = decode(value)
    assert event.details["source"] == {"txId": 5, "shard": "s1"}
    assert event.details["envelope"] == {"sourceSchema": "x"}
    (out,) = DEBEZIUM.encode(event).messages
    assert json.loads(out.value)["source"] == PG | {"shard": "s1"}
    assert json.loads(out.value)["sourceSchema"] == "x"


def test_dialects_without_a_source_block():
    event = decode({"before": None, "after": {"id": 1}, "op": "c"})
    assert event.table == TableId()
    event = decode({"after": {"id": 1}, "op": "c", "source": {"db": "d", "table": "t"}})
    assert event.table == TableId("d", None, "t")


# -- wrapping ------------------------------------------------------------------------------------

FIELDS = [field("int32", "id", optional=False), field("string", "note")]


def test_wrapping_in_any_order_with_extra_keys():
    payload = envelope(after={"id": 1, "note": "x"})
    plain = decode(wrapped(FIELDS, payload))
    assert decode({"payload": payload, "schema": block(FIELDS)}) == plain
    assert decode({"x": 1, "schema": block(FIELDS), "payload": payload}) == plain
    assert plain.schema.by_name["note"].nullable is True


@pytest.mark.parametrize("schema", [None, {}])
def test_an_empty_schema_is_no_schema(schema):
    event = decode({"schema": schema, "payload": envelope(after={"id": 1})})
    assert event.schema is None
    assert event.after == {"id": 1}


def test_columns_called_schema_and_payload_are_columns():
    row = {"schema": None, "payload": {"op": "c"}}
    event = decode(wrapped([field("string", "schema"), field("string", "payload")],
                           envelope(after={"schema": "a", "payload": "b"})))  # fmt: skip
    assert event.after == {"schema": "a", "payload": "b"}
    assert decode(envelope(after=row)).after == row


TICDC = {
    "version": "2.4.0.Final", "connector": "TiCDC", "name": "c", "ts_ms": 1, "snapshot": "false",
    "db": "shop", "table": "t", "server_id": 0, "gtid": None, "file": "", "pos": 0, "row": 0,
    "thread": 0, "query": None, "commit_ts": 445996018427133953, "cluster_id": "c",
}  # fmt: skip


def test_messages_of_ticdc_without_schema_have_a_payload():
    # TiCDC with `debezium-disable-schema` (pkg/sink/codec/debezium/codec.go)
    payload = envelope(after={"id": 1, "note": "x"}, source=TICDC)
    value = message({"payload": payload}, {"payload": {"id": 1}})
    assert DEBEZIUM.decode(value) == DEBEZIUM.decode(message(payload, {"id": 1}))
    assert DEBEZIUM.detects(value)
    assert decode(None, {"payload": {"id": 1}}).key == {"id": 1}
    with pytest.raises(DecodeError) as caught:
        decode({"payload": {**payload, "op": 1}})
    assert caught.value.path == "$.payload.op"


@pytest.mark.parametrize("value", [{"payload": 1}, {"payload": {"id": 1}}, {"payload": None}])
def test_a_payload_without_an_envelope_is_no_message(value):
    with pytest.raises(DecodeError):
        decode(value)
    assert not DEBEZIUM.detects(message(value))


@pytest.mark.parametrize("wrap", [lambda payload: payload, lambda payload: {"payload": payload}])
def test_a_watermark_of_ticdc_is_a_resolved_watermark(wrap):
    # https://docs.pingcap.com/tidb/stable/ticdc-debezium/, WATERMARK event
    source = {**TICDC, "db": "", "table": ""}
    event = decode(wrap({"source": source, "op": "m", "ts_ms": 5, "transaction": None}))
    assert isinstance(event, Watermark)
    assert (event.type, event.process_time_ns) == ("resolved", 5_000_000)
    assert event.details["source"]["commit_ts"] == TICDC["commit_ts"]


def test_the_database_of_vitess_is_the_keyspace():
    source = {
        "version": "3.0.0.Final", "connector": "vitess", "name": "v", "ts_ms": 1, "snapshot":
        "false", "db": "", "keyspace": "commerce", "table": "t", "shard": "0", "vgtid": "[]",
    }  # fmt: skip
    event = decode(envelope(after={"id": 1}, source=source))
    assert event.table == TableId("commerce", None, "t")
    (written,) = DEBEZIUM.encode(event).messages
    assert json.loads(written.value)["source"].items() >= source.items()
    assert decode(envelope(after={"id": 1}, source=source | {"keyspace": None})).table.name == "t"


@pytest.mark.parametrize(
    ("connector", "kind"),
    [("sqlserver", Integer(16)), ("mysql", Integer(8)), ("mariadb", Integer(8))],
)
def test_a_tinyint_of_sql_server_has_no_sign(connector, kind):
    parameters = {
        "__debezium.source.column.type": "TINYINT",
        "__debezium.source.column.length": "3",
    }
    schema = block([field("int16", "a", parameters=parameters)])
    name = f"io.debezium.connector.{connector}.Source"
    schema["fields"].append({"type": "struct", "fields": [], "name": name, "field": "source"})
    source = MYSQL | {"connector": connector}
    event = decode({"schema": schema, "payload": envelope(after={"a": 100}, source=source)})
    assert event.schema.by_name["a"].type == kind
    encoded = DEBEZIUM.encode(event)
    assert not [loss for loss in encoded.losses if loss[0].startswith("type:")]
    (written,) = encoded.messages
    assert DEBEZIUM.decode(written)[0].schema == event.schema


def test_schema_plans_of_many_tables_do_not_mix():
    found = []
    for _ in range(3):
        for number in range(5):
            fields = [field("int32", f"c{number}")]
            event = decode(wrapped(fields, envelope(after={f"c{number}": number})))
            found.append(event.after == {f"c{number}": number})
    assert all(found)


@given(
    st.lists(
        st.sampled_from(
            [b"", b" ", b"\n", b',"x":1', b',"payload":{}', b',"schema":null', b"}", b'"', b"\x00"]
        ),
        max_size=3,
    ),
    st.sampled_from([b'"id":1', b'"id":"1"', b'"id":null', b'"id":1,"id":2', b'"other":1', b""]),
)
def test_the_short_way_is_the_long_way(tails, column):
    """Whatever follows or fills the payload: a codec that knows the prefix reads the same."""
    warm, cold = get_codec("debezium-json"), get_codec("debezium-json")
    head = b'{"schema":' + json.dumps(block(FIELDS), separators=(",", ":")).encode()
    good = head + b',"payload":{"op":"c","source":' + json.dumps(PG).encode()
    warm.decode(Message(good + b',"after":{"id":1}}}'))
    value = good + b',"after":{' + column + b"}}" + b"".join(tails) + b"}"

    def outcome(codec):
        try:
            return codec.decode(Message(value))
        except DecodeError as error:
            return error.code, error.path, error.reason

    assert outcome(warm) == outcome(cold)


def test_the_codec_pickles_with_its_caches():
    codec = get_codec("debezium-json", before_image="full")
    value = message(wrapped(FIELDS, envelope(after={"id": 1, "note": "x"})))
    assert pickle.loads(pickle.dumps(codec)).decode(value) == codec.decode(value)


# -- keys ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [b"****", b'"text"', b"17", b"\xff\xfe", b"[1]", b"{}"])
def test_a_key_that_cannot_be_read_fails_nothing_and_comes_back(key):
    event = decode(envelope(after={"id": 1}), key)
    assert event.after == {"id": 1}
    assert event.key is None
    assert DEBEZIUM.encode(event).messages[0].key == key


def test_delete_without_before_uses_key():
    """REPLICA IDENTITY NOTHING with message.key.columns: only the message's key tells the row."""
    value, key = envelope(op="d"), {"id": 7}
    change = decode(value, key)
    assert (change.before, change.before_holds) == ({"id": 7}, Completeness.KEY)
    assert change.key == Key(("id",))
    written = get_codec("debezium-json").encode(change)
    assert json.loads(written.messages[0].value)["before"] is None
    assert json.loads(written.messages[0].key) == key


def test_delete_without_before_reads_its_key_by_the_types_of_the_row():
    day = field("int32", "d", name="io.debezium.time.Date", version=1)
    change = decode(wrapped([day, field("string", "note")], envelope(op="d")), {"d": 19000})
    assert change.before == {"d": dt.date(2022, 1, 8)}


def test_a_routers_addition_is_no_key_column():
    key = {"id": 1, "__dbz__physicalTableIdentifier": "dbz.s.t1"}
    event = decode(envelope(after={"id": 1}), key)
    assert event.key == Key(("id",))
    assert json.loads(DEBEZIUM.encode(event).messages[0].key) == key


def test_a_key_may_be_printed_over_many_lines():
    schema = {"type": "struct", "fields": [{"type": "int32", "field": "id"}], "optional": False}
    key = json.dumps({"schema": schema, "payload": {"id": 1}}, indent=2).encode()
    assert decode(envelope(after={"id": 1}), key).key == Key(("id",))
    assert decode(envelope(after={"payload": 1}), {"payload": 1}).key == Key(("payload",))


def test_key_and_value_may_be_wrapped_differently():
    key = {"schema": {"type": "struct", "fields": [FIELDS[0]], "optional": False,
                      "name": "dbz.public.t.Key"}, "payload": {"id": 1}}  # fmt: skip
    for value in (envelope(after={"id": 1}), wrapped(FIELDS, envelope(after={"id": 1}))):
        event = decode(value, key)
        assert event.key == Key(("id",))
        assert json.loads(DEBEZIUM.encode(event).messages[0].key) == key
    event = decode(wrapped(FIELDS, envelope(after={"id": 1})), {"id": 1})
    assert json.loads(DEBEZIUM.encode(event).messages[0].key) == {"id": 1}


def test_many_rows_of_one_table_keep_their_own_keys():
    """The key of a row is guessed from the last one's form, and the guess is checked."""
    codec = get_codec("debezium-json")
    for key, row in [({"id": 1}, {"id": 1}), ({"id": 2}, {"id": 2}), ({"id": 2}, {"id": 3}),
                     ({"id": 4, "b": 1}, {"id": 4, "b": 1}), ({"id": True}, {"id": 1}),
                     ({"id": 9}, {"id": 9})]:  # fmt: skip
        (event,) = codec.decode(message(envelope(after=row), key))
        fresh = decode(envelope(after=row), key, {"placeholder": PLACEHOLDER})
        assert event == fresh
        (out,) = codec.encode(event).messages
        assert json.loads(out.key) == key


# -- key changes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("header", [
    b'{"id":2}',
    b'{"schema":{"type":"struct","fields":[{"type":"int32","field":"id"}]},"payload":{"id":2}}',
])  # fmt: skip
def test_halves_of_a_key_change(header):
    headers = (("__debezium.newkey", header), ("__debezium.context.taskId", b"0"))
    value = wrapped(FIELDS, envelope("d", before={"id": 1, "note": None}))
    event = decode(value, {"id": 1}, headers=headers)
    assert isinstance(event, HalfUpdate)
    assert event.other_key == {"id": 2}
    assert DEBEZIUM.encode(event).messages[0].headers == (headers[0],)


def test_a_header_that_is_no_json_stays_a_header():
    headers = (("__debezium.oldkey", b"{d=2024-01-01}"),)
    event = decode(envelope(after={"id": 1}), headers=headers)
    assert isinstance(event, DataChange)
    assert DEBEZIUM.encode(event).messages[0].headers == headers


# -- images --------------------------------------------------------------------------------------


def test_fillers_without_schema_are_kept_beside_the_image():
    before = {"id": 3, "name": "", "at": "1970-01-01T00:00:00.000000Z"}
    event = decode(envelope("d", before=before), {"id": 3})
    assert event.before == {"id": 3, "name": UNAVAILABLE, "at": UNAVAILABLE}
    assert event.before_holds is Completeness.KEY
    (out,) = DEBEZIUM.encode(event).messages
    assert json.loads(out.value)["before"] == before


@pytest.mark.parametrize("source", [MYSQL, MYSQL | {"connector": "mariadb"}])
def test_before_images_of_binary_logs_are_full(source):
    event = decode(envelope("d", before={"id": 3, "name": ""}, source=source), {"id": 3})
    assert event.before == {"id": 3, "name": ""}
    assert event.before_holds is Completeness.FULL


def test_before_image_key_believes_no_image():
    options = {"before_image": "key"}
    value = envelope("u", before={"id": 3, "a": 1}, after={"id": 3, "a": 2}, source=MYSQL)
    assert decode(value, {"id": 3}, options).before == {"id": 3, "a": UNAVAILABLE}


B64 = base64.b64encode(PLACEHOLDER.encode()).decode()
FORMS = [
    ("string", PLACEHOLDER, {}),
    ("string", B64, {}),
    ("string", PLACEHOLDER.encode().hex(), {}),
    ("string", PLACEHOLDER, {"name": "io.debezium.data.Json", "version": 1}),
    ("string", f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}', {"name": "io.debezium.data.Json"}),
    ("bytes", B64, {}),
    ("array", [PLACEHOLDER], {"items": {"type": "string", "optional": True}}),
    ("array", [B64], {"items": {"type": "bytes", "optional": True}}),
    ("array", list(PLACEHOLDER.encode()), {"items": {"type": "int32", "optional": True}}),
    ("array", ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
     {"items": {"type": "string", "optional": True, "name": "io.debezium.data.Uuid"}}),
    ("map", {PLACEHOLDER: PLACEHOLDER},
     {"keys": {"type": "string"}, "values": {"type": "string", "optional": True}}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "more"), FORMS)
def test_placeholders_in_every_form(kind, value, more):
    fields = [FIELDS[0], field(kind, "big", **more)]
    for op in "cur":
        payload = envelope(op, after={"id": 1, "big": value})
        for told in (payload, wrapped(fields, payload)):
            event = decode(told)
            assert event.after == {"id": 1, "big": UNAVAILABLE}
            (out,) = DEBEZIUM.encode(event).messages
            written = json.loads(out.value)
            written = written.get("payload", written)
            assert written["after"] == {"id": 1, "big": value}


def test_a_form_of_another_type_is_data():
    fields = [FIELDS[0], field("bytes", "big")]
    encoded = base64.b64encode(B64.encode()).decode()
    event = decode(wrapped(fields, envelope(after={"id": 1, "big": encoded})))
    assert event.after["big"] == B64.encode()


def test_the_placeholder_can_be_set_and_switched_off():
    row = {"id": 1, "big": "-"}
    assert decode(envelope(after=row), None, {"placeholder": "-"}).after["big"] is UNAVAILABLE
    assert decode(envelope(after=row), None, {"placeholder": "hex:2d"}).after["big"] is UNAVAILABLE
    row = {"id": 1, "big": PLACEHOLDER}
    for off in (None, "null", ""):
        assert decode(envelope(after=row), None, {"placeholder": off}).after == row
    with pytest.raises(ConfigError):
        get_codec("debezium-json", placeholder="hex:zz")


def test_nothing_is_guessed_without_a_schema():
    row = {"n": 1701347696123456, "s": "MDk=", "f": 1.10, "big": 2**70}
    event = decode(
        b'{"op":"c","after":{"n":1701347696123456,"s":"MDk=","f":1.10,"big":%d}}' % 2**70
    )
    assert event.schema is None
    assert event.after == row | {"f": Decimal("1.10")}
    assert str(event.after["f"]) == "1.10"


def test_declared_types_for_messages_without_schema():
    options = {"schemas": {"public.t": {"id": "int64 key", "total": "decimal(12,2)", "day": "date",
                                        "at": "timestamp(6)", "note": "string"}}}  # fmt: skip
    row = {"id": 1, "total": "MDk=", "day": 19782, "at": 1709251199999999, "note": "x"}
    event = decode(envelope(after=row), None, options)
    assert event.after["total"] == Decimal("123.45")
    assert event.after["day"].isoformat() == "2024-02-29"
    assert event.key == Key(("id",), KeyOrigin.CONFIG)
    assert str(event.schema.by_name["total"].type) == "decimal(12,2)"
    codec = get_codec("debezium-json", schemas_enable=False)
    encoded = codec.encode(event, on_loss="warn")
    assert json.loads(encoded.messages[0].value)["after"] == row
    assert [field for field, _ in encoded.losses] == ["schema"]
    with pytest.raises(ConfigError):
        get_codec("debezium-json", schemas={"t": {"id": "int65"}})
    with pytest.raises(DecodeError):
        decode(envelope(after=row | {"day": "x"}), None, options)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("number", ["1e9999999999", "-1e9999999", "1e21", "1.5"])
def test_a_number_that_no_integer_has_is_rejected_at_once(number):
    options = {"schemas": {"public.t": {"id": "int64 key", "n": "int64"}}}
    text = json.dumps(envelope(after={"id": 1, "n": 42})).replace("42", number)
    with pytest.raises(DecodeError):
        decode(text.encode(), None, options)


@pytest.mark.parametrize(("number", "value"), [("1e3", 1000), ("0e99999999", 0), ("1.00", 1)])
def test_an_integer_may_be_written_as_any_number(number, value):
    options = {"schemas": {"public.t": {"id": "int64 key", "n": "int64"}}}
    text = json.dumps(envelope(after={"id": 1, "n": 42})).replace("42", number)
    assert decode(text.encode(), None, options).after == {"id": 1, "n": value}


@pytest.mark.parametrize("name", ["more", 'a "quoted" name', "ключ", "c0"])
def test_a_column_that_is_not_declared_is_kept_without_a_type(name):
    codec = get_codec("debezium-json", schemas={"t": {"id": "int64 key", "n": "decimal(5,2)"}})
    rows = [{"id": 1, "n": "AfQ="}, {"id": 2, "n": None, name: "kept"}, {"id": 3, name: [1, None]}]
    for row in [*rows, *rows]:
        (event,) = codec.decode(message(envelope(after=row)))
        assert event.after["id"] == row["id"]
        assert event.after.keys() == row.keys()
        assert event.after.get(name) == row.get(name)
        types = {column.name: str(column.type) for column in event.schema.columns}
        assert types["n"] == "decimal(5,2)"
        if name in row:
            assert types[name] == "unknown"


@pytest.mark.parametrize("form", ["base64", "numeric", "string"])
def test_declared_decimals_in_all_forms(form):
    options = {"schemas": {"t": {"n": "decimal(12,2)"}}, "decimal_format": form}
    told = {"base64": '"MDk="', "numeric": "123.45", "string": '"123.45"'}[form]
    value = json.dumps(envelope(after={"n": "?"})).replace('"?"', told).encode()
    assert decode(value, None, options).after == {"n": Decimal("123.45")}


def test_numeric_decimals_with_schema():
    name = "org.apache.kafka.connect.data.Decimal"
    fields = [field("bytes", "n", name=name, version=1, parameters={"scale": "2"})]
    value = json.dumps(wrapped(fields, envelope(after={"n": 123.4}))).encode()
    assert str(decode(value).after["n"]) == "123.40"


# -- source blocks -------------------------------------------------------------------------------

numbers = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
words = st.one_of(st.none(), st.text(max_size=5))
sequences = st.one_of(
    st.none(),
    st.sampled_from(["", "[]", '["1"]', '["01","2"]', '[null, "2"]', '["x","2"]', '["1","2"] ']),
    st.tuples(numbers, numbers).map(
        lambda pair: json.dumps(
            [None if n is None else str(n) for n in pair], separators=(",", ":")
        )
    ),
)


@given(st.fixed_dictionaries({
    "txId": numbers, "lsn": numbers, "xmin": numbers, "origin": words, "origin_lsn": numbers,
    "sequence": sequences}))  # fmt: skip
def test_postgres_blocks_read_the_same_both_ways_and_come_back(told):
    short = source_block.read_postgres(PostgresSource(**told))
    assert short == source_block.read(told)
    event = decode(envelope(after={"id": 1}, source=PG | told))
    (out,) = DEBEZIUM.encode(event).messages
    assert json.loads(out.value)["source"] == PG | told


@given(st.fixed_dictionaries({
    "server_id": numbers, "gtid": words, "file": words, "pos": numbers, "row": numbers,
    "thread": numbers, "query": words, "sequence": words}))  # fmt: skip
def test_binlog_blocks_read_the_same_both_ways_and_come_back(told):
    assert source_block.read_binlog(MySqlSource(**told)) == source_block.read(told)
    event = decode(envelope(after={"id": 1}, source=MYSQL | told))
    (out,) = DEBEZIUM.encode(event).messages
    assert json.loads(out.value)["source"] == MYSQL | told


def test_an_lsn_that_was_printed_signed_is_unsigned():
    event = decode(envelope(after={"id": 1}, source=PG | {"lsn": -1, "sequence": '[null,"-1"]'}))
    assert event.position == PostgresPosition(2**64 - 1)


@pytest.mark.parametrize(
    ("scn", "position"),
    [(7, ScnPosition(7, 9)), (-1, None), (True, None), (1.5, None), ("07", None)],
)
def test_an_scn_is_a_number_before_debezium_1_5(scn, position):
    source = {"version": "1.4.0.Final", "connector": "oracle", "name": "o", "ts_ms": 1,
              "db": "d", "schema": "s", "table": "t", "scn": scn, "commit_scn": 9}  # fmt: skip
    event = decode(envelope(after={"id": 1}, source=source))
    assert event.position == position
    (written,) = DEBEZIUM.encode(event).messages
    assert decode(json.loads(written.value)).position == position


def test_positions_of_the_other_products():
    plain = {"version": "3.0", "name": "dbz", "ts_ms": 1, "snapshot": "false", "db": "d",
             "schema": "s", "table": "t"}  # fmt: skip
    oracle = plain | {"connector": "oracle", "txId": "a", "scn": "9007199254740993",
                      "commit_scn": "9007199254740995", "rs_id": " 0x1.2.3 ", "ssn": 0}  # fmt: skip
    event = decode(envelope(after={"id": 1}, source=oracle))
    assert event.position == ScnPosition(9007199254740993, 9007199254740995, " 0x1.2.3 ")
    assert event.details["source"] == {"txId": "a", "ssn": 0, "ts_ms": 1}
    server = plain | {"connector": "sqlserver", "change_lsn": "00000025:00000728:0003",
                      "commit_lsn": "00000025:00000728:0005", "event_serial_no": "2"}  # fmt: skip
    event = decode(envelope(after={"id": 1}, source=server))
    assert event.position == LsnPosition("00000025:00000728:0005", "00000025:00000728:0003", 2)
    event = decode(envelope(after={"id": 1}, source=MYSQL))
    assert event.position == MySqlPosition("binlog.000002", 4)
    for told in (oracle, server | {"event_serial_no": 2}):
        (out,) = DEBEZIUM.encode(decode(envelope(after={"id": 1}, source=told))).messages
        assert json.loads(out.value)["source"].items() >= told.items()


def test_rows_of_an_incremental_snapshot_have_no_position():
    event = decode(envelope("r", after={"id": 1}, source=PG | {
        "lsn": None, "txId": None, "snapshot": "incremental"}))  # fmt: skip
    assert event.position is None
    assert event.source.snapshot == "incremental"


@pytest.mark.parametrize("times", [
    {"ts_ms": 5}, {"ts_ms": 5, "ts_us": 5001}, {"ts_ms": 5, "ts_us": 5001, "ts_ns": 7}, {},
])  # fmt: skip
def test_times_that_do_not_agree_come_back(times):
    told = {name: times.get(name) for name in ("ts_ms", "ts_us", "ts_ns")}
    event = decode(envelope(after={"id": 1}, source=PG | told, **told))
    (out,) = DEBEZIUM.encode(event).messages
    written = json.loads(out.value)
    assert {name: written[name] for name in told} == told
    assert {name: written["source"][name] for name in told} == told


# -- bad input -----------------------------------------------------------------------------------

BAD = [
    b"{", b'{"op":"c"', b"\xff", b'{"op":"c","after":{"a":"\xff"}}', b"[" * 100_000,
    b'{"op":"c","after":' + b"[" * 100_000, b'{"op":"c","after":{"a":NaN}}', b'{"op":"c"}',
    b'{"op":1,"after":{}}', b'{"op":"c","after":[]}', b'{"op":"c","after":{},"source":[]}',
    b'{"op":"c","after":{},"source":{"table":1}}', b'{"op":"c","after":{},"ts_ms":"x"}',
    b'{"op":"c","after":{"a":1},"transaction":{"id":"a","total_order":{}}}',
    b'{"op":"c","after":"{}"}', b'{"op":"m","message":{"content":"%"}}', b'{"status":1,"id":"a"}',
    b'{"op":"c","after":{"a":"\\ud800"}}', b'{"ddl":"x","tableChanges":{}}',
    b'{"ddl":"x","tableChanges":[1]}', b'{"schema":{"type":"struct"},"payload":1}',
    b'{"schema":{"type":1},"payload":{}}', b'"{\\"op\\":\\"c\\"}"',
]  # fmt: skip


@pytest.mark.parametrize("value", BAD, ids=range(len(BAD)))
def test_bad_input_is_a_decode_error_with_a_path(value):
    with pytest.raises(DecodeError) as caught:
        DEBEZIUM.decode(Message(value))
    assert caught.value.path.startswith("$")


@pytest.mark.parametrize("value", ["secret", 1.5, True, [1], {"a": 1}, 2**31, "1e999999999"])
def test_a_value_of_another_type_names_its_column_and_is_not_quoted(value):
    for _ in range(2):  # the long way, then the short one
        with pytest.raises(DecodeError) as caught:
            decode(wrapped(FIELDS, envelope(after={"id": value, "note": None})))
        assert caught.value.path == "$.payload.after.id"
        assert caught.value.code == "wrong_type"
        assert "secret" not in str(caught.value)


DECIMAL = field("bytes", "n", name="org.apache.kafka.connect.data.Decimal", version=1,
                parameters={"scale": "2"})  # fmt: skip


@pytest.mark.parametrize(
    "told", ["1e999999999", "-1e-999999999", '"%"', "true", "[]", '"' + "A" * 10_000_000 + '"']
)
def test_a_hostile_decimal_costs_nothing(told):
    value = json.dumps(wrapped([DECIMAL], envelope(after={"n": "?"}))).replace('"?"', told).encode()
    start = time.process_time()  # what others do on this machine costs nothing here
    with pytest.raises(DecodeError) as caught:
        decode(value)
    assert time.process_time() - start < 1
    assert caught.value.path == "$.payload.after.n"


def test_a_long_value_passes():
    note = "x" * 10_000_000
    assert decode(wrapped(FIELDS, envelope(after={"id": 1, "note": note}))).after["note"] == note


def test_a_duplicate_key_is_read_as_the_last_one():
    assert decode(b'{"op":"c","after":{"a":1,"a":2}}').after == {"a": 2}


def test_names_that_are_no_ascii_are_found():
    """msgspec compares names that it decoded itself only after they were encoded once."""
    for name in ("ключ", "naïve", "日本", "\U0001f600"):
        fields = [field("int64", name)]
        key = {"schema": {"type": "struct", "fields": fields, "optional": False,
                          "name": "dbz.public.t.Key"}, "payload": {name: 1}}  # fmt: skip
        event = decode(wrapped(fields, envelope(after={name: 1})), key)
        assert event.after == {name: 1}
        assert event.key == Key((name,))


@pytest.mark.parametrize(
    ("statement", "kind", "action"),
    [
        ("DROP TABLE a", SchemaChange, "drop"),
        ("CREATE DATABASE x", SchemaChange, "create_database"),
        ("SET character_set_server=utf8", SchemaChange, "other"),
        ("TRUNCATE TABLE a", Truncate, None),
    ],
)
def test_a_statement_without_described_tables_tells_what_it_does(statement, kind, action):
    value = {
        "source": {"connector": "mysql", "name": "dbz", "db": "shop", "table": "a"},
        "databaseName": "shop",
        "ddl": statement,
        "tableChanges": [],
    }
    (event,) = get_codec("debezium-json").decode(Message(json.dumps(value).encode()))
    assert isinstance(event, kind)
    assert (event.ddl, event.table.name) == (statement, "a")
    assert getattr(event, "action", None) == action


def test_a_key_with_nothing_but_what_a_routing_transform_adds_names_no_column():
    key = b'{"__dbz__physicalTableIdentifier":"s.t"}'
    value = b'{"before":null,"after":{"id":1},"source":{"connector":"postgresql"},"op":"c"}'
    (event,) = get_codec("debezium-json").decode(Message(value, key))
    assert event.key is None
    (again,) = get_codec("debezium-json").encode(event, on_loss="warn").messages
    assert again.key == key


def test_a_tombstone_has_no_column_that_a_routing_transform_adds():
    names = ("id", "__dbz__physicalTableIdentifier")
    kinds = ("int32", "string")
    fields = [
        {"type": kind, "optional": False, "field": name}
        for kind, name in zip(kinds, names, strict=True)
    ]
    block = {"type": "struct", "fields": fields, "optional": False, "name": "srv.s.t.Key"}
    key = json.dumps({"schema": block, "payload": dict(zip(names, (1, "s.t"), strict=True))})
    codec = get_codec("debezium-json")
    (event,) = codec.decode(Message(None, key.encode(), topic="srv.s.t"))
    assert event.key == {"id": 1}
    assert event.schema.names == {"id"}
    (again,) = codec.encode(event).messages
    assert again.key == key.encode()


KEYED = {
    "type": "struct",
    "fields": [
        {
            "type": "struct",
            "fields": [
                {"type": "int32", "optional": False, "field": "id"},
                {"type": "string", "optional": False, "field": "name"},
            ],
            "optional": True,
            "name": "srv.s.t.Value",
            "field": "before",
        }
    ],
    "optional": False,
    "name": "srv.s.t.Envelope",
}


@pytest.mark.parametrize("key", ["Ann", [1], 1 << 40, {"a": 1}, True])
def test_a_key_that_is_not_of_its_columns_type_is_not_the_key_of_a_deleted_row(key):
    source = {"connector": "postgresql", "name": "srv", "schema": "s", "table": "t"}
    payload = {"before": {"id": 5, "name": ""}, "after": None, "source": source, "op": "d"}
    value = json.dumps({"schema": KEYED, "payload": payload}).encode()
    message = Message(value, json.dumps({"id": key}).encode(), topic="srv.s.t")
    codec = get_codec("debezium-json")
    (event,) = codec.decode(message)
    assert event.before == {"id": 5, "name": UNAVAILABLE}
    assert codec.decode(message) == (event,)
    (one,) = codec.decode(Message(value, b'{"id":7}'))
    assert one.before["id"] == 7


def test_plans_of_ever_other_large_schemas_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(connect_schema, "_MAX_BYTES", 1000)
    blocks = connect_schema.Blocks(len)
    for number in range(100):
        assert blocks.plan(b"%0300d" % number) == 300
        assert len(blocks._plans) <= 3

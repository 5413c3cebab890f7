# SPDX-License-Identifier: Apache-2.0
"""Flattened rows of Debezium: every mode of deletes, added fields and headers, and what is lost."""

import datetime as dt
import json

import msgspec
import pytest

from changelane import DecodeError, Message, UnsupportedError, get_codec
from changelane.conversion.join_update_halves import JoinHalves
from changelane.conversion.stateful import run
from changelane.errors import ConfigError
from changelane.event import (
    Completeness,
    DataChange,
    HalfUpdate,
    Key,
    Op,
    Source,
    Tombstone,
    Transaction,
    TransactionMarker,
    Truncate,
    Watermark,
)
from changelane.formats import debezium_flat
from changelane.formats.debezium_flat import added_fields
from changelane.position import LsnPosition, MySqlPosition, PostgresPosition, ScnPosition
from changelane.schema import Column, TableId, TableSchema
from changelane.types import UNAVAILABLE, Integer, String

ROW = {"id": 4, "name": "Dan"}
KEY = b'{"id":4}'
SCHEMA = TableSchema(
    (Column("id", Integer(64), nullable=False), Column("name", String(), nullable=True))
)


def flat(**options):
    return get_codec("debezium-flat-json", **options)


def decode(fields=None, *, codec=None, key=KEY, headers=(), topic="srv.public.t", value=...):
    data = json.dumps(ROW | (fields or {})).encode() if value is ... else value
    (event,) = (codec or flat()).decode(Message(data, key, headers, topic))
    return event


def change(op=Op.CREATE, **fields):
    image = {"before": ROW} if op is Op.DELETE else {"after": ROW}
    told = {"key": Key(("id",)), "schema": SCHEMA, **image} | fields
    return DataChange(op, told.pop("table", TableId("shop", "public", "t")), **told)


def written(event, codec=None, on_loss="raise"):
    return (codec or flat()).encode(event, on_loss=on_loss).messages


def payload_of(message):
    document = json.loads(message.value)
    return document.get("payload", document)


def losses(event, codec):
    return dict(codec.encode(event, on_loss="ignore").losses)


# -- deletes -------------------------------------------------------------------------------------


def test_what_a_routing_transform_adds_to_a_key_is_no_column_of_a_deleted_row():
    key = b'{"id":4,"__dbz__physicalTableIdentifier":"srv.public.t"}'
    event = decode(value=None, key=key)
    assert (event.before, event.key.columns) == ({"id": 4}, ("id",))
    (again,) = written(event, flat(delete_tombstone_handling_mode="tombstone"), on_loss="warn")
    assert (again.value, again.key) == (None, key)
    only = decode(value=None, key=b'{"__dbz__physicalTableIdentifier":"srv.public.t"}')
    assert isinstance(only, Tombstone)
    assert only.key is None


MODES = ["auto", "drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("word", ["true", True])
def test_a_row_with_deleted_is_a_delete_in_every_mode(mode, word):
    codec = flat(delete_tombstone_handling_mode=mode)
    event = decode({"__deleted": word}, codec=codec)
    assert (event.op, event.after) == (Op.DELETE, None)
    assert event.before == {"id": 4, "name": UNAVAILABLE}


@pytest.mark.parametrize("word", ["false", False, None])
def test_false_is_text_too(word):
    assert decode({"__deleted": word}).op is Op.UPDATE


@pytest.mark.parametrize("word", ["yes", "", 1, [], {}])
def test_another_word_than_true_or_false_is_an_error(word):
    with pytest.raises(DecodeError) as error:
        decode({"__deleted": word})
    assert error.value.path == "$.__deleted"


@pytest.mark.parametrize("mode", sorted(set(MODES) - {"rewrite-with-tombstone"}))
@pytest.mark.parametrize("value", [None, b"", b"null", b'{"schema":null,"payload":null}'])
def test_a_message_without_value_deletes_its_key(mode, value):
    """In ``tombstone`` and ``delete-to-tombstone`` it is the only sign of a delete (B-12, B-22)."""
    codec = flat(delete_tombstone_handling_mode=mode, topic="server.schema.table")
    event = decode(codec=codec, value=value)
    assert (event.op, event.before, event.after) == (Op.DELETE, {"id": 4}, None)
    assert (event.table, event.key) == (TableId(None, "public", "t"), Key(("id",)))
    assert event.before_holds is Completeness.KEY


def test_a_tombstone_after_a_rewritten_delete_is_its_echo():
    codec = flat(delete_tombstone_handling_mode="rewrite-with-tombstone")
    event = decode(codec=codec, value=None)
    assert isinstance(event, Tombstone)
    assert event.key == {"id": 4}


@pytest.mark.parametrize("key", [None, b"****"])
def test_a_message_without_value_and_readable_key_deletes_nothing(key):
    assert isinstance(decode(value=None, key=key), Tombstone)


@pytest.mark.parametrize("mode", ["auto", "rewrite"])
def test_a_delete_is_rewritten_as_a_row(mode):
    codec = flat(delete_tombstone_handling_mode=mode)
    (one,) = written(change(Op.DELETE, before={"id": 4}), codec, "warn")
    assert payload_of(one)["__deleted"] == "true"
    assert payload_of(one)["id"] == 4
    (again,) = codec.decode(one)
    assert (again.op, again.before) == (Op.DELETE, {"id": 4})


def test_a_tombstone_follows_a_rewritten_delete_where_the_mode_keeps_it():
    codec = flat(delete_tombstone_handling_mode="rewrite-with-tombstone")
    one, two = written(change(Op.DELETE), codec, "warn")
    assert payload_of(one)["__deleted"] == "true"
    assert (two.value, two.key, two.topic) == (None, one.key, one.topic)


@pytest.mark.parametrize("mode", ["tombstone", "delete-to-tombstone"])
def test_a_delete_becomes_a_tombstone_where_the_mode_says_so(mode):
    codec = flat(delete_tombstone_handling_mode=mode, topic="server.database.schema.table")
    event = change(Op.DELETE, source=Source(None, "debezium", "srv", None, None))
    found = losses(event, codec)
    assert found == {
        "table.database": "no added field has it",
        "table.schema": "no added field has it",
        "source.server": "no added field has it",
        "before": "a tombstone has the key only",
        "schema": "a tombstone has the columns of the key only",
    }
    (one,) = written(event, codec, "warn")
    assert one.value is None
    assert json.loads(one.key)["payload"] == {"id": 4}
    (again,) = codec.decode(one)
    assert (again.op, again.before) == (Op.DELETE, {"id": 4})
    assert payload_of(written(change(), codec, "ignore")[0]).keys().isdisjoint({"__deleted"})


@pytest.mark.parametrize("mode", ["tombstone", "delete-to-tombstone"])
def test_a_delete_without_key_cannot_become_a_tombstone(mode):
    codec = flat(delete_tombstone_handling_mode=mode)
    event = change(Op.DELETE, key=None)
    assert "operation:d" in losses(event, codec)
    assert written(event, codec, "ignore") == ()


def test_a_delete_is_a_reported_loss_where_the_mode_drops_it():
    codec = flat(delete_tombstone_handling_mode="drop")
    with pytest.raises(UnsupportedError, match="operation:d"):
        codec.encode(change(Op.DELETE))
    assert written(change(Op.DELETE), codec, "ignore") == ()
    assert "__deleted" not in payload_of(written(change(), codec)[0])


def test_a_deleted_row_is_believed_where_the_user_says_so_and_where_its_database_tells_all():
    fields = {"__deleted": "true"}
    assert decode(fields).before["name"] is UNAVAILABLE
    assert decode(fields, codec=flat(before_image="full")).before == ROW
    for connector, name in (("mysql", "Dan"), ("postgresql", UNAVAILABLE)):
        event = decode(fields | {"__connector": connector})
        assert event.before == {"id": 4, "name": name}
    event = decode(fields | {"__connector": "mysql"}, codec=flat(before_image="key"))
    assert event.before["name"] is UNAVAILABLE


@pytest.mark.parametrize("key", [b'{"id":"Ann"}', b'{"id":[1]}', b'{"id":1.5}'])
def test_a_key_that_is_not_of_its_columns_type_is_not_the_key_of_a_deleted_row(key):
    (one,) = written(change(Op.DELETE), on_loss="warn")
    (event,) = flat().decode(Message(one.value, key, topic=one.topic))
    assert event.before == {"id": 4, "name": UNAVAILABLE}
    (event,) = flat().decode(Message(one.value, b'{"id":7}', topic=one.topic))
    assert event.before == {"id": 7, "name": UNAVAILABLE}


def test_a_deleted_row_of_a_table_without_key_is_believed():
    assert decode({"__deleted": "true"}, key=None).before == ROW


def test_values_of_a_deleted_row_beside_its_key_are_a_reported_loss():
    with pytest.raises(UnsupportedError, match="key of a deleted row"):
        flat().encode(change(Op.DELETE))
    assert not losses(change(Op.DELETE, source=Source("mysql", "debezium")), flat())
    assert not losses(change(Op.DELETE), flat(before_image="full"))
    assert not losses(change(Op.DELETE, before={"id": 4, "name": UNAVAILABLE}), flat())


# -- operations ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "op"), [("c", Op.CREATE), ("u", Op.UPDATE), ("r", Op.READ), ("d", Op.DELETE)]
)
def test_an_added_op_tells_the_operation(word, op):
    event = decode({"__op": word})
    assert event.op is op
    (one,) = written(event)
    assert payload_of(one)["__op"] == word


def test_without_op_a_row_is_an_upsert():
    event = decode()
    assert (event.op, event.before, event.after) == (Op.UPDATE, None, ROW)


@pytest.mark.parametrize("word", ["t", "x", "", "C"])
def test_another_op_is_an_error(word):
    with pytest.raises(DecodeError) as error:
        decode({"__op": word})
    assert (error.value.code, error.value.path) == ("unknown_operation", "$.__op")


def test_a_create_with_snapshot_is_a_read():
    event = decode({"__op": "c", "__snapshot": "true"})
    assert event.op is Op.READ
    assert payload_of(written(event)[0])["__op"] == "c"


@pytest.mark.parametrize("op", [Op.CREATE, Op.READ])
def test_an_operation_that_no_field_tells_is_a_reported_loss(op):
    codec = flat(add_fields="db,schema,table")
    found = losses(change(op), codec)
    assert found == {f"operation:{op}": "no added field has it; read as an upsert"}
    assert not losses(change(Op.UPDATE), codec)


def test_before_images_of_updates_and_truncates_are_reported_losses():
    with pytest.raises(UnsupportedError, match="before"):
        flat().encode(change(Op.UPDATE, before=ROW))
    with pytest.raises(UnsupportedError, match="truncate"):
        flat().encode(Truncate(TableId(None, None, "t")))


# -- added fields --------------------------------------------------------------------------------


def test_added_fields_tell_where_and_when():
    fields = {
        "__op": "u",
        "__db": "shop",
        "__schema": "public",
        "__table": "Quoted Table",
        "__connector": "postgresql",
        "__name": "srv",
        "__version": "3.6.1.Final",
        "__lsn": 33204552,
        "__sequence": '["5","33204552"]',
        "__txId": 804,
        "__source_ts_ms": 1795248398581,
        "__ts_ms": 1795248399061,
        "__ts_ns": 1795248399061123456,
        "__transaction_id": "804:5",
        "__transaction_total_order": 1,
        "__transaction_data_collection_order": 2,
    }
    event = decode(fields)
    assert event.after == ROW
    assert event.table == TableId("shop", "public", "Quoted Table")
    assert event.source == Source("postgresql", "debezium", "srv", "3.6.1.Final")
    assert event.position == PostgresPosition(33204552, 5)
    assert event.transaction == Transaction("804:5", 1, 2)
    assert event.source_time_ns == 1795248398581 * 10**6
    assert event.process_time_ns == 1795248399061123456
    assert event.details["source"] == {"txId": 804}
    again = payload_of(written(event)[0])
    assert {name: again[name] for name in fields} == fields


@pytest.mark.parametrize(
    ("fields", "position"),
    [
        ({"__lsn": 7}, PostgresPosition(7)),
        ({"__source_lsn": 7}, PostgresPosition(7)),
        ({"__file": "b.1", "__pos": 4, "__row": 0}, MySqlPosition("b.1", 4)),
        ({"__scn": "12", "__commit_scn": "13"}, ScnPosition(12, 13)),
        ({"__commit_lsn": "1:2:3", "__change_lsn": "1:2:4"}, LsnPosition("1:2:3", "1:2:4")),
    ],
)
def test_positions_are_those_of_the_source_block(fields, position):
    event = decode(fields)
    assert event.position == position
    assert flat().decode(written(event)[0])[0].position == position


def test_the_source_block_may_be_named_or_not():
    one = decode({"__source_table": "t1", "__source_db": "d", "__source_ts_us": 5})
    assert (one.table.name, one.table.database, one.source_time_ns) == ("t1", "d", 5000)


def test_times_that_disagree_are_kept_apart():
    event = decode({"__ts_ms": 3, "__ts_us": 4000})
    assert event.process_time_ns == 4_000_000
    again = payload_of(written(event)[0])
    assert (again["__ts_ms"], again["__ts_us"]) == (3, 4000)


def test_the_prefix_may_be_another_one():
    codec = flat(add_fields_prefix="_cdc_")
    event = decode({"_cdc_op": "c", "_cdc_table": "x", "__op": "d"}, codec=codec)
    assert (event.op, event.table.name) == (Op.CREATE, "x")
    assert event.after == ROW | {"__op": "d"}


def test_without_prefix_only_listed_fields_are_no_columns():
    codec = flat(add_fields_prefix="", add_fields="op,table")
    event = decode({"op": "c", "table": "x", "lsn": 5}, codec=codec)
    assert (event.op, event.table.name) == (Op.CREATE, "x")
    assert event.after == ROW | {"lsn": 5}
    assert decode({"op": "c"}, codec=flat(add_fields_prefix="")).after == ROW | {"op": "c"}


def test_a_field_may_have_another_name():
    codec = flat(add_fields="op:operation,source.ts_ms:at")
    event = decode({"__operation": "c", "__at": 5}, codec=codec)
    assert (event.op, event.source_time_ns, event.after) == (Op.CREATE, 5_000_000, ROW)
    again = payload_of(written(event, codec, "warn")[0])
    assert (again["__operation"], again["__at"]) == ("c", 5)


def test_listed_fields_are_written_in_their_order_and_null_where_nothing_is_known():
    codec = flat(add_fields="lsn,op,table", schemas_enable=False)
    (one,) = written(change(), codec, "warn")
    assert list(json.loads(one.value).items()) == [
        *ROW.items(),
        ("__deleted", "false"),
        ("__lsn", None),
        ("__op", "c"),
        ("__table", "t"),
    ]


def test_added_fields_are_optional_in_the_schema_block_as_debezium_has_them():
    codec = flat(add_fields="op,table,source.ts_ms,ts_ms,lsn,file")
    (one,) = written(change(), codec, "warn")
    fields = json.loads(one.value)["schema"]["fields"]
    assert fields[2:] == [
        {"type": kind, "optional": True, "field": name}
        for kind, name in [
            ("string", "__deleted"),
            ("string", "__op"),
            ("string", "__table"),
            ("int64", "__source_ts_ms"),
            ("int64", "__ts_ms"),
            ("int64", "__lsn"),
            ("string", "__file"),
        ]
    ]


def test_what_listed_fields_do_not_tell_is_a_reported_loss():
    event = change(
        Op.UPDATE,
        source=Source("mysql", "debezium", "srv", "1"),
        position=MySqlPosition("b.1", 4),
        transaction=Transaction("5", 1),
        source_time_ns=1_000_001,
        process_time_ns=1,
    )
    assert set(losses(event, flat(add_fields="op"))) == {
        "position", "source.product", "source.version", "source_time", "process_time",
        "transaction.order", "transaction", "table.database", "table.schema", "source.server",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["before.id", "x.y", ".op", "op,,."])
def test_a_field_that_no_envelope_has_is_a_wrong_option(text):
    with pytest.raises(ConfigError, match="add_fields"):
        flat(add_fields=text)


def test_a_column_with_the_name_of_an_added_field_is_a_reported_loss():
    event = change(schema=None, after=ROW | {"__op": "mine"}, after_holds=Completeness.FULL)
    with pytest.raises(UnsupportedError, match="column"):
        flat().encode(event)
    (again,) = flat().decode(written(event, on_loss="ignore")[0])
    assert (again.op, again.after) == (Op.CREATE, ROW)


def test_columns_that_only_look_like_added_fields_stay():
    assert decode({"__note": 1}).after == ROW | {"__note": 1}


def test_a_field_of_another_type_is_an_error_that_names_it():
    for fields in ({"__lsn": "s3cr3t"}, {"__table": 5}, {"__source_ts_ms": []}, {"__op": {}}):
        with pytest.raises(DecodeError) as error:
            decode(fields)
        assert error.value.path == f"$.{next(iter(fields))}"
        assert "s3cr3t" not in str(error.value)


# -- headers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [b"c", b'"c"', b'{"schema":{"type":"string"},"payload":"c"}'])
def test_headers_tell_what_no_field_tells(form):
    event = decode(headers=(("__op", form), ("__lsn", b"7"), ("other", b"x")))
    assert (event.op, event.position) == (Op.CREATE, PostgresPosition(7))
    assert decode({"__op": "u"}, headers=(("__op", form),)).op is Op.UPDATE


def test_listed_headers_are_written():
    codec = flat(
        add_fields="db,schema,table", add_headers="op,source.ts_ms", add_headers_prefix="_"
    )
    event = change(source_time_ns=5_000_000)
    (one,) = written(event, codec)
    assert one.headers == (("_op", b"c"), ("_source_ts_ms", b"5"))
    (again,) = codec.decode(one)
    assert (again.op, again.source_time_ns) == (Op.CREATE, 5_000_000)


def test_headers_of_a_key_change_make_halves_that_join_into_one_update():
    fields = {"__source_ts_ms": 5, "__table": "t"}
    gone = decode(fields | {"__deleted": "true"}, headers=(("__debezium.newkey", b'{"id":5}'),))
    come = decode(
        fields | {"__op": "c", "id": 5},
        key=b'{"id":5}',
        headers=(("__debezium.oldkey", b'{"id":4}'),),
    )
    assert isinstance(gone, HalfUpdate)
    assert isinstance(come, HalfUpdate)
    (joined,) = run(JoinHalves(), [gone, come])
    assert (joined.op, joined.before["id"], joined.after["id"]) == (Op.UPDATE, 4, 5)
    (again,) = written(come)
    assert again.headers == (("__debezium.oldkey", b'{"id":4}'),)


# -- tables --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "topic", "table", "server"),
    [
        ({}, "srv.public.t", TableId(None, None, "t"), None),
        ({}, None, TableId(), None),
        ({"topic": "server.schema.table"}, "a.b.public.t", TableId(None, "public", "t"), "a.b"),
        ({"topic": "server.database.table"}, "srv.shop.t", TableId("shop", None, "t"), "srv"),
        ({"topic": "database.schema.table"}, "d.s.t", TableId("d", "s", "t"), None),
        ({"topic": "server.schema.table"}, "t", TableId(None, None, "t"), None),
        ({"table": "orders"}, "srv.public.t", TableId(None, None, "orders"), None),
        ({"table": "shop.public.orders"}, "x", TableId("shop", "public", "orders"), None),
        ({"table": "public.orders"}, "x", TableId(None, "public", "orders"), None),
    ],
)
def test_the_table_comes_from_the_option_or_the_topic(options, topic, table, server):
    event = decode(codec=flat(**options), topic=topic)
    assert (event.table, event.source.server) == (table, server)


def test_an_added_table_is_believed_before_option_and_topic():
    event = decode({"__table": "real"}, codec=flat(table="public.orders"))
    assert event.table == TableId(None, "public", "real")


@pytest.mark.parametrize(
    "options",
    [
        {"topic": "table.schema"},
        {"topic": "x.table"},
        {"topic": "schema.schema.table"},
        {"table": "a.b.c.d"},
        {"table": "a..b"},
    ],
)
def test_a_wrong_name_of_a_table_is_a_wrong_option(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        flat(**options)


def test_topic_and_schema_name_are_kept():
    event = decode({"__op": "c"})
    (one,) = written(event)
    assert one.topic == "srv.public.t"


# -- the rest ------------------------------------------------------------------------------------


def test_an_unavailable_value_is_the_placeholder():
    event = decode({"name": "__debezium_unavailable_value"})
    assert event.after == {"id": 4, "name": UNAVAILABLE}
    assert payload_of(written(event)[0])["name"] == "__debezium_unavailable_value"


def test_a_column_that_a_row_lacks_is_not_in_its_schema_and_a_reported_loss_of_it():
    event = change(Op.UPDATE, after={"id": 4})
    assert losses(event, flat()) == {
        "absent": "readers take the columns of the update for a whole row",
        "schema": "columns that a row lacks are not written",
    }
    (one,) = written(event, on_loss="warn")
    names = [field["field"] for field in json.loads(one.value)["schema"]["fields"]]
    assert "name" not in names
    assert flat().decode(one)[0].after == {"id": 4}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b'{"ts_ms":5}', Watermark),
        (
            b'{"status":"BEGIN","id":"1","event_count":null,"data_collections":null,"ts_ms":5}',
            TransactionMarker,
        ),
        (b'{"ts_ms":5,"note":1}', DataChange),
        (b'{"ts_ms":5,"__deleted":"false"}', DataChange),
        (b'{"op":"m","id":1}', DataChange),
    ],
)
def test_messages_that_are_no_rows_are_told_by_their_fields(value, kind):
    assert isinstance(decode(value=value, key=None), kind)


def test_a_row_with_the_fields_of_such_a_message_is_a_reported_loss():
    codec = flat(add_fields_prefix="", delete_tombstone_handling_mode="drop")
    event = change(
        Op.UPDATE, key=None, schema=None, after={"ts_ms": 5}, after_holds=Completeness.FULL
    )
    assert "event:data" in losses(event, codec)


def test_rows_with_and_without_schema_block_are_recognised_by_what_is_added():
    codec = flat()
    for event in (change(), msgspec.structs.replace(change(), schema=None)):
        (one,) = written(event)
        assert codec.detects(one)
        assert codec.decode(one)[0].after == ROW
    assert not codec.detects(Message(json.dumps(ROW).encode()))
    assert not codec.detects(Message(b'{"before":null,"after":{"id":1},"source":{},"op":"c"}'))


def test_the_short_way_reads_what_the_long_way_reads():
    codec = flat()
    (one,) = written(change(source_time_ns=int(dt.datetime(2024, 1, 1).timestamp()) * 10**9))
    first = codec.decode(one)
    assert codec.decode(one) == first
    assert codec.decode(Message(b" " + one.value, one.key, topic=one.topic)) == first


def test_rows_of_ever_other_columns_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(added_fields, "_MAX_TABLES", 10)
    reader = added_fields.MetadataReader(debezium_flat.Options())
    told = {"__table": "t"}
    for _ in range(40):
        reader.read_plain(added_fields.Shape(told, added_fields.possible_fields("__")), told, "t")
    assert len(reader._table_origins) <= 11


@pytest.mark.parametrize("value", [None, "x", 5, -1, True, 1.5, [], {}])
@pytest.mark.parametrize(
    "name", ["__op", "__table", "__db", "__snapshot", "__connector", "__source_ts_ms", "__ts_ms"]
)
def test_plain_added_fields_are_read_the_short_way_as_the_long_way_does(name, value):
    """The short way may decline, and then the long way reads it or refuses it."""
    told = {"__op": "c", "__table": "t1", "__source_ts_ms": 5, "__ts_ms": 6} | {name: value}
    known, topic = added_fields.possible_fields("__"), "srv.public.t"
    reader = added_fields.MetadataReader(debezium_flat.Options(topic="server.schema.table"))
    short = reader.read_plain(added_fields.Shape(told, known), told, topic)
    details = {}
    fields = [(known[field], content) for field, content in told.items()]
    if short is None:
        assert not isinstance(value, str) or name in {"__source_ts_ms", "__ts_ms"}
    else:
        assert short == reader.read(fields, topic, details)
        assert not details


def test_what_debezium_wrote_flattens_as_the_transformation_does():
    text = (
        '{"before":null,"after":{"id":1},"source":{"version":"3.6.1.Final","connector":"postgresql",'
        '"name":"dbz","ts_ms":5,"ts_us":5000,"ts_ns":5000000,"db":"shop","schema":"public",'
        '"table":"c","lsn":7},"op":"c","ts_ms":6,"ts_us":6000,"ts_ns":6000000}'
    )
    (event,) = get_codec("debezium-json").decode(Message(text.encode(), b'{"id":1}'))
    codec = flat(add_fields="op,table,source.ts_ms,ts_ms", topic="server.schema.table")
    (one,) = written(event, codec, "warn")
    assert one.value == (
        b'{"id":1,"__deleted":"false","__op":"c","__table":"c","__source_ts_ms":5,"__ts_ms":6}'
    )
    assert (one.key, one.topic) == (b'{"id":1}', "dbz.public.c")
    assert set(losses(event, codec)) == {
        "position", "source.product", "source.version", "table.database"
    }  # fmt: skip

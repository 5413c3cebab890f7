# SPDX-License-Identifier: Apache-2.0
"""Lindorm's messages, beyond what its documented samples and the conformance kit show."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelane import Message, get_codec
from changelane.apply import Upsert, operations_of
from changelane.errors import DecodeError, UnsupportedError
from changelane.event import DataChange, Key, KeyOrigin, Op
from changelane.formats.lindorm.rows import family_of
from changelane.position import OffsetPosition, TimePosition, encode_order
from changelane.schema import Column, TableId, TableSchema
from changelane.testing import golden
from changelane.types import UNAVAILABLE, Bytes, Decimal, Integer, String

SAMPLES = Path(__file__).parents[2] / "golden" / "lindorm-json" / "documentation-2024"
SOURCE = {
    "version": "v1.0",
    "db": "ld-xxxx",
    "namespace": "default",
    "table": "customers",
    "ts_ms": 1465491411807,
}
TABLE = TableId("ld-xxxx", "default", "customers")
CUSTOMERS = TableSchema(
    (
        Column("id", String(), nullable=False),
        Column("first_name", String(), nullable=True),
        Column("last_name", String(), nullable=True),
    )
)
ANNE = {"id": "1004", "first_name": "Anne", "last_name": "Kretchmar"}


def sample(name):
    (message,) = golden.read_case(SAMPLES / name).messages
    return message


def parts(data):
    return msgspec.json.decode(data)


def told(op, before=None, after=None, schema=(), **source):
    payload = {"op": op, "ts_ms": 1, "before": before, "after": after, "source": SOURCE | source}
    return msgspec.json.encode({"schema": dict(schema), "payload": payload})


def read(value, *, key=None, offset=None, **options):
    message = Message(value, key, offset=offset)
    (event,) = get_codec("lindorm-json", **options).decode(message)
    return event


def change(op, before=None, after=None, **fields):
    fields = {"schema": CUSTOMERS} | fields
    return DataChange(Op(op), TABLE, before=before, after=after, **fields)


def written(event, on_loss="raise", **options):
    done = get_codec("lindorm-json", **options).encode(event, on_loss=on_loss)
    (message,) = done.messages
    return parts(message.value), done.losses


# -- the envelope --------------------------------------------------------------------------------


def test_the_documented_definition_comes_back_with_its_schema():
    message = sample("definition")
    value, losses = written(read(message.value))
    assert value == parts(message.value)
    assert not losses


@pytest.mark.parametrize(
    "name", ["insert", "update", "row_deletion", "column_deletion", "hbase_put"]
)
def test_a_documented_sample_comes_back_with_its_empty_schema(name):
    message = sample(name)
    value, _ = written(read(message.value), on_loss="warn", schema="empty")
    assert value == parts(message.value)


def test_schema_and_payload_may_stand_in_any_order():
    value = parts(sample("definition").value)
    one = msgspec.json.encode({name: value[name] for name in ("payload", "schema")})
    two = msgspec.json.encode({name: value[name] for name in ("schema", "payload")})
    assert read(one) == read(two)


def test_a_payload_without_wrapping_is_read():
    value = parts(sample("insert").value)
    assert read(msgspec.json.encode(value["payload"])) == read(sample("insert").value)


def test_the_times_are_that_of_the_change_and_that_of_the_message():
    event = read(sample("hbase_put").value)
    assert event.source_time_ns == 1725258833727 * 10**6
    assert event.process_time_ns == 1725258859839 * 10**6


def test_instance_namespace_and_table_name_the_table():
    assert read(sample("insert").value).table == TABLE


def test_the_version_comes_back_and_has_a_default_for_each_kind_of_table():
    value, _ = written(read(told("c", after=ANNE, version="v9")))
    assert value["payload"]["source"]["version"] == "v9"
    assert written(change("c", after=ANNE))[0]["payload"]["source"]["version"] == "v1.0"
    value, _ = written(change("c", after=ANNE), version="v2.0")
    assert value["payload"]["source"]["version"] == "v2.0"


def test_a_full_export_is_read_and_written_as_an_insert_which_is_a_loss():
    event = read(told("r", after=ANNE))
    assert event.op is Op.READ
    with pytest.raises(UnsupportedError, match="operation:r"):
        written(event)
    value, losses = written(event, on_loss="warn")
    assert value["payload"]["op"] == "c"
    assert ("operation:r", "written as an insert") in losses


@pytest.mark.parametrize("op", ["x", "t", "", "U"])
def test_an_unknown_operation_is_an_error(op):
    with pytest.raises(DecodeError, match="unknown operation"):
        read(told(op, after=ANNE))


def test_records_of_the_older_lindorm_streams_are_refused():
    old = {"op": "Put", "table": "t", "ts": 1, "keyOnly": False, "data": []}
    with pytest.raises(DecodeError) as error:
        read(msgspec.json.encode(old))
    assert error.value.code == "unknown_kind"


def test_fields_that_nobody_documents_are_kept_and_written_again():
    value = parts(told("c", after=ANNE, region="eu"))
    value["payload"]["seq"] = 7
    event = read(msgspec.json.encode(value))
    again, _ = written(event, schema="empty")
    assert again == value


# -- deleted columns -----------------------------------------------------------------------------


def test_a_column_that_only_the_before_image_has_was_deleted_and_is_null():
    event = read(sample("column_deletion").value)
    assert event.after == {"id": "1004", "first_name": "Anne Marie", "last_name": None}


@pytest.mark.parametrize(("op", "before"), [("c", None), ("r", None)])
def test_a_missing_column_is_no_deletion_in_other_operations(op, before):
    schema = parts(sample("definition").value)["schema"]
    event = read(told(op, before, {"id": 1}, schema))
    assert event.after == {"id": 1}


def test_a_column_that_no_image_has_is_left_alone():
    schema = parts(sample("definition").value)["schema"]
    event = read(told("u", {"id": 1}, {"id": 1}, schema))
    assert event.after == {"id": 1}


def test_without_before_image_the_schema_tells_what_was_deleted_unless_the_user_says_no():
    schema = parts(sample("definition").value)["schema"]
    value = told("u", None, {"id": 1}, schema)
    assert read(value).after == {"id": 1, "name": None}
    assert read(value, absent_after="unchanged").after == {"id": 1}


@pytest.mark.parametrize("after", [{"id": 1}, {"ROW": "dXNlcjE="}])
@pytest.mark.parametrize(("absent_after", "is_full"), [("null", True), ("unchanged", False)])
def test_a_missing_column_is_null_or_unchanged_without_a_schema_too(after, absent_after, is_full):
    event = read(told("u", None, after), absent_after=absent_after)
    (upsert,) = operations_of(event, keys=tuple(after), fallback=OffsetPosition("t", 0, 1))
    assert isinstance(upsert, Upsert)
    assert upsert.is_full_row is is_full


@pytest.mark.parametrize("op", ["c", "d"])
def test_images_of_other_operations_come_back_as_they_came(op):
    before, after = {"id": "1", "a": "x", "b": "y"}, {"id": "1", "a": None}
    value, losses = written(read(told(op, before, after)))
    assert (value["payload"]["before"], value["payload"]["after"]) == (before, after)
    assert not losses


def test_a_value_that_became_null_is_written_as_a_deleted_column():
    value, losses = written(change("u", ANNE, ANNE | {"last_name": None}))
    assert value["payload"]["after"] == {"id": "1004", "first_name": "Anne"}
    assert not losses
    assert read(msgspec.json.encode(value)).after == ANNE | {"last_name": None}


def test_any_other_null_is_written_as_null_with_the_type_of_its_column():
    value, _ = written(change("c", after=ANNE | {"last_name": None}))
    assert value["payload"]["after"]["last_name"] is None
    after = next(field for field in value["schema"]["fields"] if field["field"] == "after")
    assert after["fields"][2] == {"type": "string", "optional": True, "field": "last_name"}


def test_a_missing_column_that_would_be_read_as_deleted_is_a_loss():
    event = change("u", ANNE, {"id": "1004", "first_name": "Anne"})
    with pytest.raises(UnsupportedError, match="absent"):
        written(event)
    kept, losses = written(
        msgspec.structs.replace(event, before=None, schema=TableSchema(CUSTOMERS.columns[:2]))
    )
    assert kept["payload"]["after"] == {"id": "1004", "first_name": "Anne"}
    assert not losses


def test_a_value_that_was_not_sent_is_never_written_as_deleted():
    event = change("u", ANNE, ANNE | {"last_name": UNAVAILABLE})
    with pytest.raises(UnsupportedError, match="unavailable"):
        written(event)
    for after in (event.after, {"id": "1004", "first_name": "Anne"}):
        changed = msgspec.structs.replace(event, after=after)
        (message,) = get_codec("lindorm-json").encode(changed, on_loss="warn").messages
        assert "last_name" not in read(message.value).after


# -- schemas from payloads -----------------------------------------------------------------------


def test_a_row_without_types_gets_the_schema_of_its_payload():
    row = {"id": 1004, "big": 1 << 40, "note": "x", "is_new": True, "gone": None}
    value, losses = written(change("c", after=row, schema=None))
    after = next(field for field in value["schema"]["fields"] if field["field"] == "after")
    assert [(f["field"], f["type"], f["optional"]) for f in after["fields"]] == [
        ("id", "int32", False),
        ("big", "int64", False),
        ("note", "string", False),
        ("is_new", "boolean", False),
        ("gone", "string", True),
    ]
    assert not losses


@pytest.mark.parametrize("value", [1 << 70, [1], {"a": 1}])
def test_values_without_a_literal_type_get_an_empty_schema(value):
    written_value, losses = written(change("c", after={"id": 1, "v": value}, schema=None))
    assert written_value["schema"] == {}
    assert not losses


def test_a_schema_has_no_semantic_names_and_no_parameters():
    schema = TableSchema(
        (Column("id", Integer(64), "bigint"), Column("price", Decimal(10, 2), "decimal(10,2)"))
    )
    event = change("c", after={"id": 1, "price": None}, schema=schema)
    value, losses = written(event, on_loss="warn")
    after = next(field for field in value["schema"]["fields"] if field["field"] == "after")
    assert {name for field in after["fields"] for name in field} == {"type", "optional", "field"}
    assert ("schema.source_type", "not written") in losses
    assert any(field == "type:decimal" for field, _ in losses)


def test_an_unsigned_number_beyond_int64_is_text_which_is_a_loss():
    schema = TableSchema((Column("id", Integer(64, unsigned=True)),))
    value, losses = written(change("c", after={"id": 2**64 - 1}, schema=schema), on_loss="warn")
    assert value["payload"]["after"] == {"id": "18446744073709551615"}
    assert ("type:uint64", "written as text") in losses


def test_no_schema_field_is_written_on_request():
    value, losses = written(change("c", after=ANNE), on_loss="warn", schema="none")
    assert value["op"] == "c"
    assert ("schema", "column types are not written") in losses


# -- HBase tables --------------------------------------------------------------------------------


def test_an_hbase_row_is_bytes_under_its_field_names():
    event = read(sample("hbase_put").value)
    assert event.after == {"ROW": b"user1", "f_name": b"lucky"}
    assert event.key == Key(("ROW",), KeyOrigin.PAYLOAD)
    assert [column.type for column in event.schema.columns] == [Bytes(), Bytes()]


def test_a_row_with_text_that_is_not_base64_is_of_an_sql_table():
    assert read(told("c", after={"ROW": "user one", "a": "b"})).after["ROW"] == "user one"
    assert read(told("c", after={"ROW": "dXNlcjE=", "a": 1})).after["ROW"] == "dXNlcjE="
    assert read(told("c", after={"ROW": "dXNlcjE="}), tables="sql").after["ROW"] == "dXNlcjE="


def test_what_is_not_base64_in_an_hbase_table_is_refused_without_its_value():
    with pytest.raises(DecodeError, match="Base64") as error:
        read(told("c", after={"ROW": "user one!"}), tables="hbase")
    assert "user one" not in str(error.value)


def test_families_are_split_from_qualifiers_when_the_user_wants_it():
    row = {"ROW": "dXNlcjE=", "f_name": "bHVja3k=", "a_b_c": "eA=="}
    assert list(read(told("c", after=row), split_families=True).after) == [
        "ROW",
        "f:name",
        "a:b_c",
    ]
    families = {"default.customers": ["a", "a_b", "f"]}
    event = read(told("c", after=row), split_families=True, families=families)
    assert list(event.after) == ["ROW", "f:name", "a_b:c"]
    value, losses = written(event, split_families=True, families=families)
    assert value["payload"]["after"] == row
    assert not losses


@given(
    st.lists(st.text("ab_", min_size=1, max_size=3), max_size=3),
    st.text("abc_", min_size=1, max_size=6),
)
def test_a_family_is_the_longest_that_is_known_else_what_the_first_underscore_ends(families, name):
    family = family_of(name, families)
    known = [one for one in families if name.startswith(one + "_")]
    if known:
        assert family in known
        assert len(family) == max(map(len, known))
    else:
        assert family == (name[: name.index("_")] if "_" in name else None)


def test_two_fields_that_would_be_one_column_are_refused():
    row = {"ROW": "dXNlcjE=", "a_x": "bHVja3k=", "a:x": ""}
    with pytest.raises(DecodeError, match="the same column name"):
        read(told("c", after=row), split_families=True)
    assert len(read(told("c", after=row)).after) == 3


@pytest.mark.parametrize("key", [b'{"id":5}', b'{"ROW":"not Base64!"}', b"user1", b'"dXNlcjE="'])
@pytest.mark.parametrize("tables", ["auto", "hbase"])
def test_a_key_that_cannot_be_read_does_not_spoil_an_hbase_row(key, tables):
    value = told("c", after={"ROW": "dXNlcjE=", "f_name": "bHVja3k="})
    event = read(value, key=key, tables=tables)
    assert event.after == {"ROW": b"user1", "f_name": b"lucky"}
    assert event.key.columns == ("ROW",)
    (again,) = get_codec("lindorm-json").encode(event, on_loss="warn").messages
    assert again.key == key


def test_a_deleted_hbase_row_that_only_its_key_tells_has_the_column_of_its_key():
    event = read(told("d"), key=b'{"ROW":"dXNlcjE="}')
    assert event.before == {"ROW": b"user1"}
    assert event.schema == TableSchema((Column("ROW", Bytes(), nullable=False),))
    assert event.key.columns == ("ROW",)


def test_a_table_of_bytes_with_a_column_row_is_written_as_an_hbase_table():
    schema = TableSchema((Column("ROW", Bytes(), nullable=False), Column("f_n", Bytes())))
    event = change("c", after={"ROW": b"user1", "f_n": b"\xff"}, schema=schema)
    value, losses = written(event, on_loss="warn")
    assert value["payload"]["after"] == {"ROW": "dXNlcjE=", "f_n": "/w=="}
    assert value["payload"]["source"]["version"] == "v2.0"
    assert all(field == "schema.nullable" for field, _ in losses)


def test_an_sql_row_that_looks_like_one_of_hbase_is_a_loss():
    schema = TableSchema((Column("ROW", String(), nullable=False),))
    event = change("c", after={"ROW": "dXNlcjE="}, schema=schema)
    with pytest.raises(UnsupportedError, match="HBase"):
        written(event)
    assert not written(event, tables="sql")[1]


def test_a_deleted_cell_of_an_hbase_row_is_null():
    row = {"ROW": "dXNlcjE=", "f_name": "bHVja3k="}
    event = read(told("u", row, {"ROW": "dXNlcjE="}))
    assert event.after == {"ROW": b"user1", "f_name": None}
    value, _ = written(event)
    assert value["payload"]["after"] == {"ROW": "dXNlcjE="}


# -- keys and order ------------------------------------------------------------------------------


def test_the_message_key_names_the_key_else_the_user_does():
    assert read(told("c", after=ANNE), key=b'{"id":"1004"}').key == Key(("id",))
    assert read(told("c", after=ANNE)).key is None
    event = read(told("c", after=ANNE), keys={"customers": ["id"]})
    assert event.key == Key(("id",), KeyOrigin.CONFIG)


def test_the_key_is_written_as_an_object():
    event = change("c", after=ANNE, key=Key(("id",)))
    (message,) = get_codec("lindorm-json").encode(event).messages
    assert message.key == b'{"id":"1004"}'


def test_changes_are_ordered_by_source_time_with_ties_by_offset():
    codec = get_codec("lindorm-json")

    def order(time_ms, offset):
        (event,) = codec.decode(Message(told("c", after=ANNE, ts_ms=time_ms), offset=offset))
        return encode_order(event.position)

    # a message that comes late with an older time is older
    assert order(1000, 5) > order(999, 6)
    assert order(1000, 5) < order(1000, 6)


def test_the_order_may_be_that_of_the_partition_instead():
    assert read(told("c", after=ANNE), offset=5).position == TimePosition(1465491411807, 5)
    assert read(told("c", after=ANNE), offset=5, order="offset").position is None
    assert read(told("c", after=ANNE, ts_ms=None), offset=5).position is None


def test_an_order_by_time_is_no_loss_on_the_way_back():
    event = read(told("c", after=ANNE), offset=5)
    assert not written(event)[1]
    other = msgspec.structs.replace(event, position=TimePosition(1, 5))
    with pytest.raises(UnsupportedError, match="position"):
        written(other)


# -- detection -----------------------------------------------------------------------------------


def test_a_message_with_a_namespace_and_without_connector_is_lindorms():
    codec = get_codec("lindorm-json")
    assert codec.detects(sample("insert"))
    assert not codec.detects(Message(told("c", after=ANNE, connector="mysql")))

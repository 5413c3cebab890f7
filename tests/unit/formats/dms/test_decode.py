# SPDX-License-Identifier: Apache-2.0
"""Messages of AWS DMS to events: operations, images, positions, control records, refusals."""

import datetime as dt
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
    SchemaChange,
    Source,
    Tombstone,
    Transaction,
    Truncate,
)
from changelane.position import SequencePosition, encode_order
from changelane.schema import TableId
from changelane.types import Decimal, Integer, String, Timestamp, Unknown, parse_instant

SECOND = 1_000_000_000
ROW = {"id": 1, "name": "a"}
TYPED = {"schemas": {"t": {"id": "int32 key", "name": "string", "note": "string lob"}}}


def decode(message, **options):
    value = message if isinstance(message, bytes) else json.dumps(message).encode()
    (event,) = get_codec("aws-dms-json", **options).decode(Message(value))
    return event


def record(operation="insert", data=ROW, before=None, **metadata):
    fields = {"record-type": "data", "operation": operation, "schema-name": "s", "table-name": "t"}
    message = {"data": data, "metadata": fields | metadata}
    return message if before is None else message | {"before-image": before}


def control(operation, **control_fields):
    metadata = {"record-type": "control", "operation": operation}
    metadata |= {"schema-name": "s", "table-name": "t"}
    return {"control": control_fields, "metadata": metadata}


def refused(message, **options):
    with pytest.raises(DecodeError) as caught:
        decode(message, **options)
    return caught.value.code, caught.value.path


# -- operations and images ---------------------------------------------------------------------


def test_the_row_of_a_delete_may_be_the_before_image_only():
    event = decode(record("delete", data=None, before=ROW), keys={"t": ["id"]})
    assert (event.op, event.before, event.after) == (Op.DELETE, ROW, None)


@pytest.mark.parametrize(
    ("operation", "op"), [("load", Op.READ), ("insert", Op.CREATE), ("update", Op.UPDATE)]
)
def test_load_insert_and_update_have_the_whole_row(operation, op):
    event = decode(record(operation))
    assert isinstance(event, DataChange)
    assert (event.op, event.before, event.after) == (op, None, ROW)
    assert event.after_holds is Completeness.FULL
    assert event.table == TableId(schema="s", name="t")
    assert (event.source, event.key, event.schema) == (Source(connector="dms"), None, None)


def test_a_delete_has_its_row_before():
    event = decode(record("delete"))
    assert (event.op, event.before, event.after) == (Op.DELETE, ROW, None)
    assert event.before_holds is Completeness.UNKNOWN


@pytest.mark.parametrize("operation", ["create", "read", "INSERT", "truncate-table", ""])
def test_an_unknown_operation_on_a_row_is_an_error(operation):
    assert refused(record(operation)) == ("unknown_operation", "$.metadata.operation")


def test_the_owner_may_be_a_database():
    assert decode(record(), owner="database").table == TableId("s", None, "t")


def test_a_message_without_value_is_a_tombstone():
    assert get_codec("aws-dms-json").decode(Message(None)) == (Tombstone(TableId()),)


def test_a_missing_column_of_an_update_is_null_or_unchanged():
    assert decode(record("update")).after_holds is Completeness.FULL
    unchanged = decode(record("update"), absent="unchanged")
    assert unchanged.after_holds is Completeness.UNKNOWN
    assert decode(record("insert"), absent="unchanged").after_holds is Completeness.FULL


# -- before images -----------------------------------------------------------------------------


def test_the_before_image_is_an_object_beside_the_row():
    event = decode(record("update", before={"name": "z"}))
    assert (event.before, event.after) == ({"name": "z"}, ROW)
    assert event.before_holds is Completeness.UNKNOWN


def test_an_empty_before_image_is_none():
    assert decode(record("update", before={})).before is None


def test_the_before_image_has_the_name_that_the_task_gives_it():
    message = record("update") | {"old": {"id": 2}}
    assert decode(message, before_field="old").before == {"id": 2}
    assert refused(message) == ("unexpected_field", "$.old")


def test_other_fields_of_a_message_become_details():
    message = record("update", extra=7) | {"trace": {"x": 1}}
    assert decode(message).details == {"envelope": {"trace": {"x": 1}}, "extra": 7}


TWINS = {"id": 2, "name": "b", "BI_id": 1, "BI_name": "a"}


def test_columns_with_the_prefix_are_the_before_image_if_every_column_has_one():
    event = decode(record("update", TWINS))
    assert (event.before, event.after) == ({"id": 1, "name": "a"}, {"id": 2, "name": "b"})
    mixed = {"BI_id": 1, "id": 2}
    assert decode(record("update", mixed)).before == {"id": 1}


@pytest.mark.parametrize(
    "data", [{"id": 2, "name": "b", "BI_id": 1}, {"id": 2, "BI_id": 1, "BI_x": 1}, {"BI_": 1}]
)
def test_columns_with_the_prefix_are_columns_if_one_has_no_pair(data):
    event = decode(record("update", data))
    assert (event.before, event.after) == (None, data)


def test_a_prefix_or_a_suffix_may_be_named():
    partial = {"id": 2, "name": "b", "BI_id": 1}
    event = decode(record("update", partial), before="prefix:BI_")
    assert (event.before, event.after) == ({"id": 1}, {"id": 2, "name": "b"})
    event = decode(record("update", {"id": 2, "id_old": 1}), before="suffix:_old")
    assert (event.before, event.after) == ({"id": 1}, {"id": 2})
    assert decode(record("update", TWINS), before="none").after == TWINS
    assert decode(record("update", TWINS), before="object").after == TWINS
    assert decode(record("update", TWINS, before={"id": 0})).after == TWINS


@pytest.mark.parametrize("place", ["none", "prefix:BI_"])
def test_a_before_image_in_another_place_is_an_error(place):
    message = record("update", before={"id": 2})
    assert refused(message, before=place) == ("unexpected_field", "$.before-image")


def test_an_insert_has_no_before_image():
    assert refused(record("insert", before={"id": 2})) == ("unexpected_image", "$.before-image")
    assert refused(record("load", TWINS)) == ("unexpected_image", "$.data")
    nulls = {"id": 2, "BI_id": None}
    assert decode(record("insert", nulls)).after == {"id": 2}


def test_a_delete_takes_real_values_from_its_before_image():
    data = {"id": 1, "name": None}
    assert decode(record("delete", data, before={"name": "a"})).before == ROW
    twins = {"id": None, "name": "a", "BI_id": 1, "BI_name": None}
    assert decode(record("delete", twins)).before == ROW


@pytest.mark.parametrize("place", ["prefix:", "prefix", "BI_", "both", ""])
def test_a_wrong_place_of_before_images_is_refused(place):
    with pytest.raises(ConfigError, match="none of auto, object, none"):
        get_codec("aws-dms-json", before=place)


@pytest.mark.parametrize("field", ["", "data", "metadata", "control"])
def test_a_before_image_needs_a_key_of_its_own(field):
    with pytest.raises(ConfigError, match="before_field"):
        get_codec("aws-dms-json", before_field=field)


# -- keys and declared columns -----------------------------------------------------------------


def test_keys_come_from_options():
    event = decode(record(), keys={"s.t": ["id"]})
    assert event.key == Key(("id",), KeyOrigin.CONFIG)
    assert decode(record(), keys={"other": ["id"]}).key is None
    assert refused(record(data={"name": "a"}), keys={"t": ["id"]}) == ("missing_field", "$.data")


def test_a_delete_with_null_besides_its_key_is_its_key():
    data = {"id": 1, "name": None, "note": None}
    event = decode(record("delete", data), keys={"t": ["id"]})
    assert (event.before, event.before_holds) == ({"id": 1}, Completeness.KEY)
    assert decode(record("delete", data)).before == data
    event = decode(record("delete", {"id": 1}), keys={"t": ["id"]})
    assert (event.before, event.before_holds) == ({"id": 1}, Completeness.KEY)
    event = decode(record("delete", ROW | {"note": None}), keys={"t": ["id"]})
    assert event.before_holds is Completeness.UNKNOWN


def test_declared_columns_have_their_types_and_omitted_ones_are_null():
    event = decode(record("insert", {"id": 1}), **TYPED)
    assert event.after == {"id": 1, "name": None, "note": None}
    assert [column.type for column in event.schema.columns] == [Integer(32), String(), String()]
    assert event.key == Key(("id",), KeyOrigin.CONFIG)


def test_an_update_without_a_lob_leaves_it_unchanged():
    assert decode(record("update", {"id": 1}), **TYPED).after == {"id": 1, "name": None}
    unchanged = decode(record("update", {"id": 1}), absent="unchanged", **TYPED)
    assert unchanged.after == {"id": 1}
    assert decode(record("delete", {"id": 1}), **TYPED).before == {"id": 1}


def test_columns_that_are_not_declared_have_unknown_types():
    event = decode(record("update", {"id": 1, "x": 1.5}, before={"id": 1, "y": None}), **TYPED)
    assert [column.type for column in event.schema.columns[3:]] == [Unknown(), Unknown()]
    assert [column.name for column in event.schema.columns[3:]] == ["x", "y"]


def test_values_are_read_as_the_declared_types():
    columns = {
        "id": "int64 key",
        "price": "decimal(10,2)",
        "blob": "bytes",
        "local": "timestamp(6)",
        "at": "instant(6)",
        "day": "date",
    }
    data = {
        "id": 7,
        "price": "1.50",
        "blob": "0x00FF",
        "local": "2024-02-29T23:59:58.5Z",
        "at": "2024-02-29T23:59:58Z",
        "day": "2024-02-29",
    }
    event = decode(record("insert", data), schemas={"t": columns})
    assert event.after == {
        "id": 7,
        "price": decimal.Decimal("1.50"),
        "blob": b"\x00\xff",
        "local": dt.datetime(2024, 2, 29, 23, 59, 58, 500_000),
        "at": parse_instant("2024-02-29T23:59:58Z"),
        "day": dt.date(2024, 2, 29),
    }
    based = decode(
        record("insert", {"id": 7, "blob": "AP8="}), schemas={"t": columns}, binary="base64"
    )
    assert based.after["blob"] == b"\x00\xff"


def test_a_value_of_another_type_is_an_error_with_its_column():
    assert refused(record(data={"id": "x"}), **TYPED) == ("wrong_type", "$.data.id")
    old = record("update", before={"id": 2**31})
    assert refused(old, **TYPED) == ("value_out_of_range", "$.before-image.id")


# -- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.2345E18", 1234500000000000000),
        ("-9.2E+3", -9200),
        ("12345678901234567890123", 12345678901234567890123),
        ("1.25", decimal.Decimal("1.25")),
        ("1.5", decimal.Decimal("1.5")),
        ("1.0", decimal.Decimal("1.0")),
        ("1.25E1", decimal.Decimal("12.5")),
        ("1E400", decimal.Decimal("1E400")),
    ],
)
def test_numbers_are_exact(text, value):
    message = json.dumps(record(data={"v": "X"})).replace('"X"', text).encode()
    (got,) = decode(message).after.values()
    assert (got, type(got)) == (value, type(value))


def test_an_integer_in_exponent_form_fits_a_declared_integer():
    message = json.dumps(record(data={"id": "X"})).replace('"X"', "1.2345E8").encode()
    assert decode(message, **TYPED).after["id"] == 123450000
    message = message.replace(b"1.2345E8", b"1.5E0")
    assert refused(message, **TYPED) == ("wrong_type", "$.data.id")


# -- transactions and positions ------------------------------------------------------------------

PLACE = {
    "transaction-id": 1141,
    "transaction-record-id": 2,
    "commit-timestamp": "1970-01-01T00:00:01.000002Z",
}


def test_the_position_is_the_commit_and_the_ids_of_the_transaction():
    event = decode(record(**PLACE))
    assert event.position == SequencePosition((1_000_002 << 64) + 1141, 2)
    assert event.transaction == Transaction("1141", 2)
    assert event.source_time_ns == SECOND + 2_000


@pytest.mark.parametrize("name", PLACE)
def test_without_one_of_the_parts_there_is_no_position(name):
    place = {key: value for key, value in PLACE.items() if key != name}
    assert decode(record(**place)).position is None


def test_changes_have_the_order_of_their_commits_transactions_and_numbers():
    later = [
        PLACE | {"transaction-record-id": 3},
        PLACE | {"transaction-id": 1142, "transaction-record-id": 1},
        PLACE | {"commit-timestamp": "1970-01-01T00:00:01.000003Z", "transaction-id": 1},
    ]
    orders = [encode_order(decode(record(**place)).position) for place in (PLACE, *later)]
    assert orders == sorted(orders)


def test_the_option_order_selects_positions():
    assert decode(record(**PLACE), order="offset").position is None
    assert decode(record("load"), order="transaction").source.snapshot == "load"
    assert decode(record("load")).source.snapshot is None
    code, path = refused(record(), order="transaction")
    assert (code, path) == ("missing_field", "$.metadata.transaction-record-id")


def test_other_metadata_become_details():
    metadata = {
        "partition-key-type": "primary-key",
        "partition-key-value": "s.t.1",
        "prev-transaction-id": 1140,
        "prev-transaction-record-id": 1,
        "stream-position": "00/1",
    }
    event = decode(record(timestamp="1970-01-01T00:00:02.5Z", **metadata))
    assert event.details == metadata
    assert event.process_time_ns == 2 * SECOND + SECOND // 2


@pytest.mark.parametrize("field", ["timestamp", "commit-timestamp"])
@pytest.mark.parametrize(
    "text", ["", "yesterday", "2024-13-01T00:00:00Z", "2024-01-01T00:00:0\u0660Z"]
)
def test_a_text_that_is_no_time_is_an_error(field, text):
    assert refused(record(**{field: text})) == ("wrong_type", f"$.metadata.{field}")


# -- control records -----------------------------------------------------------------------------

DEFINITION = {
    "columns": {
        "id": {"type": "INT8", "nullable": False},
        "name": {"type": "WSTRING", "length": 40, "nullable": True},
        "price": {"type": "NUMERIC", "precision": 10, "scale": 2, "nullable": True},
        "at": {"type": "DATETIME", "nullable": True},
        "note": {"type": "nclob-max", "nullable": True},
    },
    "primary-key": ["id"],
    "collation-name": "utf8",
}


def test_a_control_record_lists_columns_and_key():
    event = decode(control("create-table", **{"table-def": DEFINITION}))
    assert isinstance(event, SchemaChange)
    assert (event.action, event.ddl) == ("create", None)
    assert event.key == Key(("id",), KeyOrigin.PAYLOAD)
    kinds = [column.type for column in event.schema.columns]
    assert kinds == [Integer(64), String(), Decimal(10, 2), Timestamp(), String()]
    texts = [column.source_type for column in event.schema.columns]
    assert texts == ["INT8", "WSTRING(40)", "NUMERIC(10,2)", "DATETIME", "nclob-max"]
    assert [column.nullable for column in event.schema.columns[:2]] == [False, True]
    assert event.details == {"operation": "create-table"}


@pytest.mark.parametrize(
    ("operation", "action"),
    [
        ("drop-table", "drop"),
        ("rename-table", "rename"),
        ("change-columns", "alter"),
        ("add-column", "alter"),
        ("drop-column", "alter"),
        ("rename-column", "alter"),
        ("column-type-change", "alter"),
    ],
)
def test_control_records_are_schema_changes(operation, action):
    event = decode(control(operation, old="x"))
    assert event.action == action
    assert event.details == {"operation": operation, "control": {"old": "x"}}


def test_the_control_record_of_a_truncate_is_a_truncate():
    assert isinstance(decode(control("truncate-table")), Truncate)


def test_a_control_record_may_have_no_body():
    message = control("create-table")
    del message["control"]
    message["metadata"]["schema-name"] = ""
    event = decode(message)
    assert (event.table, event.schema, event.key) == (TableId(name="t"), None, None)


def test_wrong_control_records_are_errors():
    assert refused(control("restart")) == ("unknown_operation", "$.metadata.operation")
    definition = {"columns": {"c": {"type": "INT3"}}}
    path = "$.control.table-def.columns.c.type"
    assert refused(control("add-column", **{"table-def": definition})) == ("unknown_type", path)
    definition = {"columns": {"c": {"type": 3}}}
    code, path = refused(control("add-column", **{"table-def": definition}))
    assert (code, path) == ("wrong_type", "$.control.table-def.columns[...].type")
    message = control("drop-table") | {"data": {"id": 1}}
    assert refused(message) == ("unexpected_field", "$.data")


# -- what is no message --------------------------------------------------------------------------


def test_wrong_messages_are_errors():
    assert refused(record(data=None)) == ("missing_field", "$.data")
    assert refused(record("delete", data=None)) == ("missing_field", "$.data")
    assert refused(record("update", data=None, before=ROW)) == ("missing_field", "$.data")
    assert refused(record() | {"control": {}}) == ("unexpected_field", "$.control")
    message = record()
    message["metadata"]["record-type"] = "heartbeat"
    assert refused(message) == ("unknown_kind", "$.metadata.record-type")
    assert refused(b'{"data":{}}')[0] == "wrong_type"
    assert refused(b"{")[0] == "incomplete_message"
    assert refused(record(data=[1])) == ("wrong_type", "$.data")

# SPDX-License-Identifier: Apache-2.0
"""Maxwell's messages are read as its documentation and its source describe them."""

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
    SchemaChange,
    Tombstone,
    Transaction,
)
from changelane.formats.contract.capabilities import AbsentMeans
from changelane.position import MySqlPosition
from changelane.schema import TableId
from changelane.types import Bytes, Enum, InstantType, Integer, Set

CODEC = get_codec("maxwell-json")
HEAD = {"database": "test", "table": "t", "ts": 1477053217}


def read(message, *, key=None, codec=CODEC):
    value = message if isinstance(message, bytes) else json.dumps(message).encode()
    key_bytes = key if key is None or isinstance(key, bytes) else json.dumps(key).encode()
    (event,) = codec.decode(Message(value, key_bytes))
    return event


def row(kind, **fields):
    return {**HEAD, "type": kind, **fields}


def refused(message, codec=CODEC):
    with pytest.raises(DecodeError) as caught:
        read(message, codec=codec)
    return caught.value.code, caught.value.path


# -- rows --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "op"),
    [("insert", Op.CREATE), ("bootstrap-insert", Op.READ), ("delete", Op.DELETE)],
)
def test_an_operation_has_its_row(kind, op):
    event = read(row(kind, data={"id": 1, "a": None}))
    image = event.before if op is Op.DELETE else event.after
    assert (event.op, image) == (op, {"id": 1, "a": None})
    assert (event.after if op is Op.DELETE else event.before) is None
    assert event.table == TableId("test", None, "t")


def test_the_before_image_of_an_update_is_the_row_with_the_old_values():
    event = read(row("update", data={"id": 1, "a": "x", "b": None}, old={"a": None}))
    assert event.before == {"id": 1, "a": None, "b": None}
    assert event.after == {"id": 1, "a": "x", "b": None}
    assert event.before_holds is Completeness.FULL


def test_an_update_without_old_changed_nothing_that_is_shown():
    event = read(row("update", data={"id": 1, "a": "x"}))
    assert event.before == event.after == {"id": 1, "a": "x"}


def test_a_column_that_only_old_has_is_null_now():
    # Maxwell puts a column into `old` only if the new image has it, so a NULL was omitted
    event = read(row("update", data={"id": 1}, old={"a": "x"}))
    assert event.after == {"id": 1, "a": None}
    assert event.before == {"id": 1, "a": "x"}


def test_a_missing_column_is_unchanged_unless_rows_are_stated_to_be_whole():
    message = row("update", data={"id": 1, "a": "x"}, old={"a": "y"})
    assert read(message).after_holds is Completeness.UNKNOWN
    whole = get_codec("maxwell-json", row_image="full")
    assert read(message, codec=whole).after_holds is Completeness.FULL
    assert (CODEC.carries.absent_means, whole.carries.absent_means) == (
        AbsentMeans.UNCHANGED,
        AbsentMeans.NULL,
    )


@pytest.mark.parametrize("option", [{"nulls": "dropped"}, {"row_image": "minimal"}])
def test_an_old_value_that_cannot_be_known_is_not_invented(option):
    # with dropped nulls, `b` was NULL or 5; with minimal images, its old value is not logged
    message = row("update", data={"id": 1, "a": "x", "b": 5}, old={"a": "y"})
    message["primary_key_columns"] = ["id"]
    event = read(message, codec=get_codec("maxwell-json", **option))
    assert event.before == {"id": 1, "a": "y"}
    assert event.before_holds is Completeness.CHANGED
    expected = Completeness.FULL if option == {"nulls": "dropped"} else Completeness.UNKNOWN
    assert event.after_holds is expected


def test_minimal_rows_without_nulls_are_refused_as_options():
    with pytest.raises(ConfigError, match="output_nulls"):
        get_codec("maxwell-json", nulls="dropped", row_image="minimal")


def test_an_insert_with_old_values_is_refused():
    assert refused(row("insert", data={"id": 1}, old={"id": 2})) == ("unexpected_field", "$.old")
    assert refused(row("delete", data={"id": 1}, old={"id": 2})) == ("unexpected_field", "$.old")


def test_a_change_of_the_key_is_one_update():
    event = read(row("update", data={"id": 7}, old={"id": 1}, primary_key_columns=["id"]))
    assert (event.before, event.after) == ({"id": 1}, {"id": 7})


# -- metadata ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ts", "seconds"),
    [(1477053217, 1477053217), (99_999_999_999, 99_999_999_999), (100_000_000_000, 100_000_000)],
)
def test_times_from_ten_to_the_eleventh_on_are_milliseconds(ts, seconds):
    event = read({**row("insert", data={"id": 1}), "ts": ts})
    assert event.source_time_ns == seconds * 10**9


def test_the_transaction_is_xid_xoffset_and_commit():
    data = {"id": 1}
    assert read(row("insert", data=data)).transaction is None
    event = read(row("insert", data=data, xid=7125, xoffset=0))
    assert event.transaction == Transaction("7125", 1, last=False)
    event = read(row("insert", data=data, xid=7125, commit=True))
    assert event.transaction == Transaction("7125", last=True)
    event = read(row("insert", data=data, commit=True))
    assert (event.transaction, event.details) == (None, {"commit": True})


def test_the_position_is_file_and_offset_with_the_gtid():
    event = read(row("insert", data={"id": 1}, position="a:b.000006:800911", gtid="3e11-1"))
    assert event.position == MySqlPosition("a:b.000006", 800911, gtid="3e11-1")
    event = read(row("insert", data={"id": 1}, gtid="3e11-1"))
    assert (event.position, event.details) == (None, {"gtid": "3e11-1"})
    event = read(row("insert", data={"id": 1}, position="m.1:4", gtid=None))
    assert event.position == MySqlPosition("m.1", 4)


@pytest.mark.parametrize("text", ["", "800911", "m.1:", ":5", "m.1:-5", "m.1:٣", "m.1:" + "9" * 21])
def test_a_text_that_is_no_position_is_refused(text):
    assert refused(row("insert", data={"id": 1}, position=text)) == ("wrong_type", "$.position")


def test_with_the_order_of_offsets_the_position_is_a_detail():
    codec = get_codec("maxwell-json", order="offset")
    event = read(row("insert", data={"id": 1}, position="m.1:4"), codec=codec)
    assert (event.position, event.details) == (None, {"position": "m.1:4"})


@pytest.mark.parametrize(
    ("number", "time_ns"),
    [
        ("1532452456.123456", 1532452456_123456000),
        ("1532452456.5", 1532452456_500000000),
        ("1532452456", 1532452456_000000000),
        ("1532452456.1234560", 1532452456_123456000),
    ],
)
def test_push_ts_is_a_decimal_of_seconds(number, time_ns):
    value = json.dumps(row("insert", data={"id": 1}, push_ts=0)).replace(": 0", f": {number}")
    assert read(value.encode()).process_time_ns == time_ns


@pytest.mark.parametrize("number", ["1e400", "1e-99999999", "true", '"5"', "5.0000000001", "[]"])
def test_another_push_ts_is_refused(number):
    value = json.dumps(row("insert", data={"id": 1}, push_ts=0)).replace(": 0", f": {number}")
    assert refused(value.encode())[1] == "$.push_ts"


def test_other_fields_are_details():
    own = {"server_id": 23042, "thread_id": 108, "schema_id": 3, "comment": "a", "query": "INSERT"}
    event = read(row("insert", data={"id": 1}, primary_key=[1], shard="eu", nothing=None, **own))
    assert event.details == {**own, "primary_key": [1], "shard": "eu", "nothing": None}


def test_names_in_camel_case_are_those_of_the_metadata():
    message = row("insert", data={"userId": 1, "user_name": "x"}, serverId=5, pushTs=2)
    event = read({**message, "primaryKeyColumns": ["user_id"], "primaryKey": [1]})
    assert event.key == Key(("userId",), KeyOrigin.PAYLOAD)
    assert event.after == {"userId": 1, "user_name": "x"}
    assert event.details == {"server_id": 5, "primary_key": [1]}
    assert event.process_time_ns == 2 * 10**9


# -- keys --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [
        {"database": "test", "table": "t", "pk.id": 4, "pk.part2": "hello"},
        ["test", "t", [{"id": 4}, {"part2": "hello"}]],
    ],
)
def test_the_message_key_names_the_key_columns_in_lower_case(key):
    event = read(row("insert", data={"note": "x", "ID": 4, "Part2": "hello"}), key=key)
    assert event.key == Key(("ID", "Part2"), KeyOrigin.MESSAGE)


def test_a_message_key_of_one_column_names_it_in_every_message():
    codec = get_codec("maxwell-json")
    for number in (1, 2):
        key = {"database": "test", "table": "t", "pk.id": number}
        event = read(row("insert", data={"Id": number}), key=key, codec=codec)
        assert event.key == Key(("Id",))
    key = {"database": "test", "table": "t", "pk.id": 3, "pk.b": 4}
    event = read(row("insert", data={"Id": 3, "b": 4}), key=key, codec=codec)
    assert event.key == Key(("Id", "b"))
    assert read(row("insert", data={"other": 3}), key=key, codec=codec).key is None


def test_primary_key_columns_come_before_the_message_key():
    key = {"database": "test", "table": "t", "pk.id": 4}
    event = read(row("insert", data={"id": 4, "b": 1}, primary_key_columns=["b"]), key=key)
    assert event.key == Key(("b",), KeyOrigin.PAYLOAD)
    assert read(row("insert", data={"id": 4}, primary_key_columns=[]), key=key).key is None


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"\xff",
        b"[",
        b"7",
        b"[]",
        b'["test","t",[1,null]]',
        b'{"database":"test","table":"t","_uuid":"0f2e"}',
        b'{"database":"test","table":"other","pk.id":1}',
        b'{"database":"test","table":"t","pk.missing":1}',
    ],
)
def test_a_message_key_of_another_form_is_no_key_and_no_error(key):
    assert read(row("insert", data={"id": 1}), key=key).key is None


def test_a_name_that_two_columns_have_in_lower_case_is_no_key():
    key = {"database": "test", "table": "t", "pk.id": 1}
    assert read(row("insert", data={"id": 1, "ID": 2}), key=key).key is None


# -- values, from src/test/resources/sql/json of Maxwell ---------------------------------------


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("18446744073709551615", 2**64 - 1),  # bigint unsigned
        ("123456789012345678901234567890.12", "123456789012345678901234567890.12"),  # decimal
        ("4.2341", "4.2341"),
        ("1.0E10", "1.0E10"),  # a double, as Java prints it
        ('"AAECAw=="', "AAECAw=="),  # blob, binary, varbinary
        ('["foo","baz"]', ["foo", "baz"]),  # set
        ("[]", []),
        ('"12:23:33.123456"', "12:23:33.123456"),  # time(6)
        ('"0000-00-00 00:00:00.000"', "0000-00-00 00:00:00.000"),  # datetime(3)
        ('"POINT (3 2)"', "POINT (3 2)"),  # geometry
        ("2012", 2012),  # year
        ('{"foo":"bar","baz":[1,2]}', {"foo": "bar", "baz": [1, 2]}),  # json
    ],
)
def test_a_value_has_its_json_type_and_all_digits(written, value):
    message = json.dumps(row("insert", data={"v": "@"})).replace('"@"', written)
    result = read(message.encode()).after["v"]
    if isinstance(result, decimal.Decimal):
        result = str(result).replace("E+", "E")
    assert (type(result), result) == (type(value), value)


# -- other messages ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bootstrap-start", "bootstrap-complete"])
def test_the_marks_of_a_bootstrap_are_control_events(kind):
    event = read(row(kind, data={}, comment="nightly"))
    assert isinstance(event, Control)
    assert (event.type, event.table) == (kind, TableId("test", None, "t"))
    assert (event.details, event.source_time_ns) == ({"comment": "nightly"}, HEAD["ts"] * 10**9)


@pytest.mark.parametrize("more", [{}, {"type": "insert"}])
def test_a_dead_letter_is_a_control_event_and_no_row(more):
    message = {"database": "d", "table": "t", **more, "reason": "too big", "data": {"id": 111}}
    event = read(message)
    assert isinstance(event, Control)
    assert (event.type, event.text) == ("dead_letter", "too big")
    assert event.details == {**more, "data": {"id": 111}}


def test_a_row_with_an_attribute_called_reason_is_a_row():
    event = read(row("insert", data={"id": 1}, reason="import"))
    assert (event.op, event.details) == (Op.CREATE, {"reason": "import"})


@pytest.mark.parametrize(
    "message",
    [
        row("insert", encrypted={"iv": "lqiX", "bytes": "1soc"}),
        {"encrypted": {"iv": "XXs6", "bytes": "iZss"}},
    ],
)
def test_an_encrypted_message_is_refused_as_such(message):
    assert refused(message) == ("encrypted", "$.encrypted")
    assert CODEC.detects(Message(json.dumps(message).encode()))


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (row("upsert", data={}), ("unknown_operation", "$.type")),
        (row("INSERT", data={}), ("unknown_operation", "$.type")),
        (row("table-rename", sql="x"), ("unknown_operation", "$.type")),
        ({**HEAD, "data": {}}, ("missing_field", "$.type")),
        (row("insert"), ("missing_field", "$.data")),
        ({"type": "insert", "table": "t", "data": {}}, ("missing_field", "$.database")),
        ({"type": "insert", "database": "d", "data": {}}, ("missing_field", "$.table")),
        (row("insert", data=[1]), ("wrong_type", "$.data")),
        (row("insert", data={}, xid=1, xoffset=-1), ("value_out_of_range", "$.xoffset")),
        ({**row("insert", data={}), "ts": 10**17}, ("value_out_of_range", "$.ts")),
        ({**row("insert", data={}), "ts": "5", "x": 1}, ("wrong_type", "$.ts")),
    ],
)
def test_what_maxwell_does_not_write_is_refused(message, error):
    assert refused(message) == error


def test_a_message_without_value_is_a_tombstone_of_no_table():
    assert CODEC.decode(Message(None, b"{}")) == (Tombstone(TableId()),)


# -- statements --------------------------------------------------------------------------------

COLUMNS = [
    {"type": "int", "name": "id", "signed": False, "nullable": False},
    {"type": "timestamp", "name": "c", "column-length": 6},
    {"type": "datetime", "name": "d", "column-length": 0},
    {"type": "varchar", "name": "b", "charset": "binary"},
    {"type": "enum", "name": "e", "enum-values": ["a", "it's"]},
    {"type": "set", "name": "s", "enum-values": ["x", "y"]},
]
DEFINITION = {"database": "d", "charset": "utf8mb4", "table": "t", "columns": COLUMNS}


def statement(kind, sql, **fields):
    head = {"type": kind, "database": "d", "table": "t", "ts": 1477053126000, "sql": sql}
    return {name: value for name, value in (head | fields).items() if value is not None}


def test_the_definition_of_a_table_has_its_columns_and_its_key():
    definition = DEFINITION | {"primary-key": ["id"]}
    event = read(statement("table-create", "CREATE TABLE t (...)", **{"def": definition}))
    assert isinstance(event, SchemaChange)
    assert event.key == Key(("id",), KeyOrigin.PAYLOAD)
    assert [(c.name, c.type, c.source_type, c.nullable) for c in event.schema.columns] == [
        ("id", Integer(32, unsigned=True), "int unsigned", False),
        ("c", InstantType(6), "timestamp(6)", None),
        ("d", event.schema.by_name["d"].type, "datetime", None),
        ("b", Bytes(), "varchar", None),
        ("e", Enum(("a", "it's")), "enum('a','it''s')", None),
        ("s", Set(("x", "y")), "set('x','y')", None),
    ]
    assert event.source_time_ns == 1477053126 * 10**9


@pytest.mark.parametrize(
    ("kind", "sql", "action"),
    [
        ("table-create", "create table t (id int)", "create"),
        ("table-alter", "alter table t add c int", "alter"),
        ("table-alter", "rename table t to u", "rename"),
        ("table-drop", "drop table t", "drop"),
        ("database-create", "create database d", "create_database"),
        ("database-alter", "alter database d charset latin1", "other"),
        ("database-drop", "drop database d", "drop_database"),
        ("table-drop", None, "drop"),
    ],
)
def test_the_action_is_that_of_the_statement_or_of_the_type(kind, sql, action):
    table = "t" if kind.startswith("table") else None
    event = read(statement(kind, sql, table=table))
    assert (event.action, event.ddl, event.table) == (action, sql, TableId("d", None, table))


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (statement("table-alter", "truncate table t"), ("unexpected_field", "$.sql")),
        (statement("table-alter", "x", table=None), ("missing_field", "$.table")),
        (statement("database-drop", "x", database=None), ("missing_field", "$.database")),
        (
            statement("table-create", "x", **{"def": {"columns": [{"type": "blob"}]}}),
            ("wrong_type", "$.def.columns[0]"),
        ),
        (
            statement("table-create", "x", **{"def": {"columns": [{"type": "cube", "name": "a"}]}}),
            ("unknown_type", "$.def.columns[0].type"),
        ),
        (
            statement("table-create", "x", **{"def": {"columns": [COLUMNS[0], COLUMNS[0]]}}),
            ("wrong_schema", "$.def.columns"),
        ),
        (
            statement(
                "table-create",
                "x",
                **{"def": {"columns": [{"type": "time", "name": "a", "column-length": 7}]}},
            ),
            ("value_out_of_range", "$.def.columns[0].column-length"),
        ),
        (
            statement(
                "table-create",
                "x",
                **{
                    "def": {
                        "columns": [{"type": "enum", "name": "a", "enum-values": ["x"] * 65536}]
                    }
                },
            ),
            ("wrong_schema", "$.def.columns[0].enum-values"),
        ),
    ],
)
def test_a_statement_that_maxwell_does_not_write_is_refused(message, error):
    assert refused(message) == error


@pytest.mark.parametrize("kind", ["insert", "table-create"])
def test_the_first_wrong_field_is_the_error_of_a_message(kind):
    for names in permutations(["database", "data" if kind == "insert" else "sql"]):
        assert refused({"type": kind, **dict.fromkeys(names, 1)})[1] == f"$.{names[0]}"

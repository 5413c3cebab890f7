# SPDX-License-Identifier: Apache-2.0
"""Events to Canal messages: bytes, losses, and what comes back."""

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changelane import EncodeError, Message, UnsupportedError, get_codec
from changelane.event import (
    Completeness,
    Control,
    DataChange,
    Key,
    KeyOrigin,
    Op,
    SchemaChange,
    Source,
    Truncate,
    Watermark,
)
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.conformance import EFFORT
from changelane.types import UNAVAILABLE, parse_type
from changelane.types.scalars import Geometry, Instant

ROOT = Path(__file__).resolve().parents[4]
GOLDEN = ROOT / "tests" / "golden" / "canal-json"
CANAL = get_codec("canal-json")
TABLE = TableId("shop", None, "products")
SOURCE = Source(product="mysql", connector="canal")
KEY = Key(("id",), KeyOrigin.PAYLOAD)


def schema(**types):
    return TableSchema(tuple(Column(name, parse_type(kind)) for name, kind in types.items()))


def change(op=Op.CREATE, types=None, **parts):
    defaults = {"key": KEY, "source": SOURCE, "schema": schema(**types) if types else None}
    return DataChange(op, TABLE, **(defaults | parts))


def value(event, *, on_loss="raise", **options):
    codec = get_codec("canal-json", **options) if options else CANAL
    (message,) = codec.encode(event, on_loss=on_loss).messages
    assert message.key is None
    assert message.headers == ()
    return message.value


def losses(event, **options):
    codec = get_codec("canal-json", **options)
    return [field for field, _ in codec.encode(event, on_loss="ignore").losses]


def back(event, **options):
    codec = get_codec("canal-json", **options)
    return codec.decode(Message(value(event, **options)))


# -- bytes -------------------------------------------------------------------------------------


def test_message_has_fourteen_keys_in_order_and_no_blanks():
    event = change(
        types={"id": "int64", "name": "string"},
        after={"id": 1, "name": "Zoë 😀"},
        source_time_ns=1589373546000 * 10**6,
        process_time_ns=1589373546301 * 10**6,
        details={"id": 7, "gtid": "u:1"},
    )
    assert value(event).decode() == (
        '{"data":[{"id":"1","name":"Zoë 😀"}],"database":"shop","es":1589373546000,'
        '"gtid":"u:1","id":7,"isDdl":false,"mysqlType":{"id":"bigint","name":"longtext"},"old":null,"pkNames":["id"],'
        '"sql":"","sqlType":{"id":-5,"name":2005},"table":"products","ts":1589373546301,'
        '"type":"INSERT"}'
    )


def test_dts_leaves_out_what_does_not_apply():
    event = change(types={"id": "int64"}, after={"id": 1}, key=None)
    assert value(event, dialect="dts").decode() == (
        '{"data":[{"id":"1"}],"database":"shop","es":null,"id":0,"isDdl":false,'
        '"mysqlType":{"id":"bigint"},"sql":"","sqlType":{"id":-5},"table":"products","ts":null,'
        '"type":"INSERT"}'
    )


def one_row(message, index):
    """What Canal would have written had each row its own message."""
    single = dict(message)
    single["data"] = [message["data"][index]]
    if message["old"]:
        # Canal repeats columns that an earlier row changed
        changed = message["old"][index].items()
        single["old"] = [{k: v for k, v in changed if single["data"][0].get(k) != v}]
    return json.dumps(single, ensure_ascii=False, separators=(",", ":"))


def captured():
    lines = (ROOT / "demo" / "input" / "shop-mysql.canal.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line)["value"] for line in lines]


@pytest.mark.parametrize("text", captured())
def test_what_canal_wrote_is_written_again_byte_for_byte(text):
    events = CANAL.decode(Message(text.encode()))
    message = json.loads(text)
    written = [value(event).decode() for event in events]
    assert written == [one_row(message, index) for index in range(len(message["data"]))]


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        ("delete_since_2022_03_20", "dts"),
        ("ddl", "dts"),
        ("delete_before_2022_03_20", "dts_legacy"),
        ("ddl", "dts_legacy"),
    ],
)
def test_what_dts_wrote_is_written_again_byte_for_byte(name, dialect):
    text = (GOLDEN / "dts" / name / "value").read_bytes()
    (event,) = CANAL.decode(Message(text))
    assert value(event, dialect=dialect) == text


# -- rows --------------------------------------------------------------------------------------


def row_of(event, **options):
    return json.loads(value(event, **options))


def test_old_holds_changed_columns_only():
    types = {"id": "int64", "a": "string", "b": "decimal(4,2)", "c": "string"}
    before = {"id": 1, "a": None, "b": Decimal("1.50"), "c": "x"}
    after = {"id": 2, "a": "", "b": Decimal("1.50"), "c": None}
    message = row_of(change(Op.UPDATE, types, before=before, after=after))
    assert message["old"] == [{"id": "1", "a": None, "c": "x"}]
    assert message["data"] == [{"id": "2", "a": "", "b": "1.50", "c": None}]


def test_update_without_before_has_no_old():
    message = row_of(change(Op.UPDATE, {"id": "int64"}, after={"id": 1}))
    assert message["old"] is None


def test_before_that_lacks_columns_is_a_loss():
    event = change(
        Op.UPDATE,
        before={"id": "1"},
        after={"id": "1", "a": "x"},
        before_holds=Completeness.FULL,
    )
    assert losses(event) == ["before"]


def test_columns_stand_in_the_order_of_the_table():
    event = change(types={"id": "int64", "a": "string"}, after={"a": "x", "id": 1})
    assert list(row_of(event)["data"][0]) == ["id", "a"]


def test_absent_column_stays_absent():
    types = {"id": "int64", "a": "string"}
    event = change(Op.UPDATE, types, after={"id": 1})
    assert row_of(event)["data"] == [{"id": "1"}]
    assert back(event)[0].after == {"id": 1}


def test_unavailable_column_becomes_absent_with_a_loss():
    event = change(Op.UPDATE, {"id": "int64", "a": "string"}, after={"id": 1, "a": UNAVAILABLE})
    assert losses(event) == ["unavailable"]
    with pytest.raises(UnsupportedError, match="unavailable"):
        value(event)


def test_snapshot_read_can_have_a_type_of_canal():
    event = change(Op.READ, {"id": "int64"}, after={"id": 1})
    assert row_of(event)["type"] == "INIT"
    codec = get_codec("canal-json", dialect="canal", snapshot_type="INSERT")
    with pytest.raises(UnsupportedError, match="operation:r"):
        codec.encode(event)
    (message,) = codec.encode(event, on_loss="warn").messages
    assert json.loads(message.value)["type"] == "INSERT"


def test_delete_writes_the_row_where_the_dialect_has_it():
    event = change(Op.DELETE, {"id": "int64"}, before={"id": 1})
    assert row_of(event)["data"] == [{"id": "1"}]
    legacy = row_of(event, dialect="dts_legacy")
    assert legacy["old"] == [{"id": "1"}]
    assert "data" not in legacy


def test_legacy_dts_update_is_swapped_and_read_back():
    types = {"id": "int64", "a": "string"}
    event = change(Op.UPDATE, types, before={"id": 1, "a": "x"}, after={"id": 1, "a": "y"})
    message = row_of(event, dialect="dts_legacy")
    assert message["data"] == [{"id": "1", "a": "x"}]
    assert message["old"] == [{"id": "1", "a": "y"}]
    (found,) = back(event, dialect="dts_legacy")
    assert (found.before, found.after) == (event.before, event.after)


def test_without_a_schema_there_are_no_types():
    message = row_of(change(after={"id": "1"}))
    assert message["mysqlType"] is None
    assert message["sqlType"] is None


def test_sql_type_follows_the_value():
    types = {
        "a": "uint8",
        "b": "uint16",
        "c": "uint32",
        "d": "uint64",
        "j": "json",
        "s": "set('x')",
        "m": "uint32",
    }
    low = {"a": 127, "b": 32767, "c": 2**31 - 1, "d": 2**63 - 1, "j": "{}", "s": "x", "m": 1}
    high = {"a": 128, "b": 32768, "c": 2**31, "d": 2**63, "j": None, "s": None, "m": None}
    assert row_of(change(types=types, after=low))["sqlType"] == {
        "a": -6, "b": 5, "c": 4, "d": -5, "j": 12, "s": -7, "m": 4,
    }  # fmt: skip
    assert row_of(change(types=types, after=high))["sqlType"] == {
        "a": 5, "b": 4, "c": -5, "d": 3, "j": 1111, "s": 2004, "m": 4,
    }  # fmt: skip


def test_other_producers_codes_are_kept():
    event = change(types={"id": "int64"}, after={"id": 1}, details={"sqlType": {"id": 8}})
    assert row_of(event)["sqlType"] == {"id": 8}


def test_leading_zeros_of_bits_without_a_length_are_a_loss():
    assert losses(change(types={"b": "bits"}, after={"b": "01"})) == ["value:bits"]
    assert losses(change(types={"b": "bits"}, after={"b": "10"})) == []
    assert losses(change(types={"b": "bits(2)"}, after={"b": "01"})) == []


def test_gtid_can_be_left_out():
    event = change(after={"id": "1"}, details={"gtid": "u:1"})
    assert losses(event, gtid=False) == ["details.gtid"]
    assert b"gtid" not in value(event, gtid=False, on_loss="ignore")


def test_other_formats_details_are_a_loss():
    event = change(after={"id": "1"}, details={"txId": 5})
    assert losses(event) == ["details.txId"]


def test_time_near_1970_is_a_loss_unless_the_dialect_settles_the_unit():
    event = change(after={"id": "1"}, source_time_ns=5_000_000)
    assert losses(event) == ["source_time"]
    (found,) = back(event, dialect="canal")
    assert found.source_time_ns == 5_000_000


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("int64", "1"),
        ("int64", True),
        ("string", 1),
        ("decimal(3,1)", object()),
        ("enum('a')", "b"),
        ("set('a')", "a,b"),
        ("bytes", "x"),
        ("timestamp(3)", 5),
        ("geometry(point)", "x"),
        ("bits(3)", "012"),
    ],
)
def test_value_that_is_not_of_its_type_is_refused_without_showing_it(kind, wrong):
    with pytest.raises(EncodeError, match=r"^column 'c' has a value that is not of its type$"):
        value(change(types={"c": kind}, after={"c": wrong}))


def test_event_without_its_row_is_refused():
    for event in (change(Op.DELETE), change(Op.UPDATE, before={"id": "1"}), change()):
        with pytest.raises(EncodeError, match=r"has no (before|after) image"):
            value(event)


# -- everything else ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "statement", "kind"),
    [
        ("create", "CREATE TABLE x (a int)", "CREATE"),
        ("alter", "ALTER TABLE x ADD a int", "ALTER"),
        ("drop", "DROP TABLE x", "ERASE"),
        ("rename", "RENAME TABLE x TO y", "RENAME"),
        ("create_index", "CREATE INDEX i ON x (a)", "CINDEX"),
        ("drop_index", "DROP INDEX i ON x", "DINDEX"),
        ("create_database", "CREATE DATABASE x", "QUERY"),
        ("other", "GRANT a TO b", "QUERY"),
        ("drop", None, "ERASE"),
    ],
)
def test_schema_change_comes_back(action, statement, kind):
    event = SchemaChange(TABLE, action, statement, source=SOURCE, details={"id": 3})
    assert (row_of(event)["isDdl"], row_of(event)["type"]) == (True, kind)
    assert back(event) == (event,)


def test_an_action_that_the_statement_gainsays_is_a_loss():
    assert losses(SchemaChange(TABLE, "drop", "ALTER TABLE x ADD a int")) == ["action"]
    assert losses(SchemaChange(TABLE, "create_database")) == ["action"]


def test_schema_change_of_dts_is_told_by_its_statement():
    event = SchemaChange(TABLE, "alter", "ALTER TABLE x ADD y int", source=SOURCE)
    assert row_of(event, dialect="dts")["type"] == "DDL"
    assert back(event, dialect="dts") == (event,)
    assert losses(SchemaChange(TABLE, "alter"), dialect="dts") == ["action"]


def test_columns_of_a_schema_change_are_a_loss():
    event = SchemaChange(TABLE, "create", "create", schema(id="int64"), KEY)
    assert losses(event) == ["schema", "schema.key"]


def test_truncate_comes_back():
    for event in (
        Truncate(TABLE, "truncate t", source=SOURCE),
        Truncate(TABLE, source=SOURCE),
    ):
        assert back(event) == (event,)
    (found,) = back(Truncate(TableId("a`b", None, "t")), dialect="dts")
    assert isinstance(found, Truncate)
    assert found.ddl == "TRUNCATE TABLE `a``b`.`t`"


@pytest.mark.parametrize(
    "event",
    [
        Control("QUERY", "insert into t", TABLE, source=SOURCE),
        Control("DELETE", "delete from t", TABLE, source=SOURCE),
        Control("INSERT", None, TABLE, source=SOURCE),
        Control("XACOMMIT", "XA COMMIT 'x'", source=SOURCE),
    ],
)
def test_control_comes_back(event):
    assert back(event) == (event,)


def test_control_of_another_producer_is_a_loss():
    assert losses(Control("TIDB_WATERMARK")) == ["event:control"]
    assert losses(Watermark()) == ["event:watermark"]


# -- what MySQL does not have ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "again"),
    [
        ("date", "infinity", "infinity"),
        ("date", "-0043-03-15", "-0043-03-15"),
        ("timestamp(6)", "-infinity", "-infinity"),
        ("timestamp(6)", "2024-01-01T00:00:00.123456789", "2024-01-01T00:00:00.123456789"),
        ("instant(3)", "infinity", "infinity"),
        ("instant(3)", "2024-01-01T00:00:00.123456789Z", "2024-01-01T00:00:00.123456789Z"),
        ("time(6)", "839:00:00", "839:00:00"),
        ("set('a','b')", "a,a", "a"),
        ("set('a','b')", "b,a", "a,b"),
        ("float64", float("inf"), None),
    ],
)
def test_a_value_that_mysql_does_not_have_is_told(kind, value, again):
    change = DataChange(
        Op.CREATE,
        TableId("shop", None, "t"),
        after={"v": value},
        schema=TableSchema((Column("v", parse_type(kind)),)),
    )
    encoded = get_codec("canal-json").encode(change, on_loss="ignore")
    assert [field.partition(":")[0] for field, _ in encoded.losses] == ["value"]
    (found,) = get_codec("canal-json").decode(encoded.messages[0])
    assert found.after == {"v": again}


@pytest.mark.parametrize("text", ["9999:00:00", "noon", ""])
def test_a_time_that_no_reader_takes_is_refused(text):
    schema = TableSchema((Column("v", parse_type("time(6)")),))
    change = DataChange(Op.CREATE, TableId("shop", None, "t"), after={"v": text}, schema=schema)
    with pytest.raises(EncodeError, match="not of its type"):
        get_codec("canal-json").encode(change, on_loss="ignore")


# -- what is carried comes back ----------------------------------------------------------------

VALUES = {
    "int8": st.integers(-128, 127),
    "uint64": st.integers(0, 2**64 - 1),
    "decimal(38,10)": st.decimals(allow_nan=False, allow_infinity=False, places=10),
    "decimal": st.decimals(allow_nan=False, allow_infinity=False),
    "float32": st.floats(allow_nan=False, allow_infinity=False, width=32),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "string": st.text(st.characters(exclude_categories=("Cs",))),
    "bytes": st.binary(),
    "bits(5)": st.text("01", min_size=5, max_size=5),
    "date": st.dates() | st.just("0000-00-00"),
    "time(6)": st.sampled_from(["-838:59:59.000001", "00:00:00", "24:00:00.5"]),
    "timestamp(6)": st.datetimes() | st.just("0000-00-00 00:00:00"),
    "timestamp": st.datetimes(),
    "instant(3)": st.datetimes(timezones=st.just(dt.UTC)),
    "year": st.integers(0, 9999),
    "enum('a','it''s','2')": st.sampled_from(["a", "it's", "2", ""]),
    "enum": st.text(st.characters(exclude_categories=("Cs",))),
    "set('a','b')": st.sampled_from(["", "a", "b", "a,b"]),
    "json": st.sampled_from(["{}", '"x"', "null"]),
    "geometry(point)": st.builds(
        Geometry, st.binary(min_size=1), st.none() | st.integers(1, 2**32 - 1)
    ),
}
IMAGE = st.fixed_dictionaries({}, optional={k: st.none() | v for k, v in VALUES.items()})
SCHEMA = TableSchema(tuple(Column(kind, parse_type(kind)) for kind in VALUES))
TIME_NS = st.none() | st.integers(10**10, 4 * 10**12).map(lambda ms: ms * 10**6)


@settings(max_examples=30 * EFFORT)
@given(IMAGE, st.sampled_from(["auto", "canal", "dts", "dts_legacy"]), st.data())
def test_any_carried_event_comes_back(image, dialect, data):
    before = data.draw(
        st.none() | st.fixed_dictionaries({k: st.none() | v for k, v in VALUES.items()})
    )
    op = data.draw(st.sampled_from(Op))
    event = DataChange(
        op,
        TABLE,
        data.draw(st.sampled_from([None, Key(("int8", "uint64"), KeyOrigin.PAYLOAD)])),
        image if op is Op.DELETE else before if op is Op.UPDATE else None,
        None if op is Op.DELETE else image,
        SCHEMA,
        source=SOURCE,
        source_time_ns=data.draw(TIME_NS),
        process_time_ns=data.draw(TIME_NS),
    )
    if dialect == "dts_legacy" and op is Op.UPDATE and image.keys() != SCHEMA.names:
        return  # `old` stands for the whole row after there
    codec = get_codec("canal-json", dialect=dialect)
    (message,) = codec.encode(event).messages
    (found,) = codec.decode(message)
    kinds = [(column.name, column.type) for column in found.schema.columns]
    assert kinds == [(column.name, column.type) for column in SCHEMA.columns]
    for field in ("op", "table", "key", "before", "after", "source", "details"):
        assert getattr(found, field) == getattr(event, field), field
    assert found.source_time_ns == event.source_time_ns
    assert found.process_time_ns == event.process_time_ns
    assert codec.encode(found).messages == (message,)


def test_digits_of_an_instant_come_back():
    event = change(
        types={"t": "instant"},
        after={"t": Instant.of(dt.datetime(2024, 1, 1, tzinfo=dt.UTC), 3)},
    )
    assert back(event)[0].after["t"].digits == 3

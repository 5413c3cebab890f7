# SPDX-License-Identifier: Apache-2.0
"""What real connectors wrote means the SQL that made it, and can be written again."""

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import pytest

from changelane import Message, get_codec
from changelane.conversion.join_update_halves import JoinHalves
from changelane.conversion.stateful import run
from changelane.event import (
    DataChange,
    HalfUpdate,
    LogicalMessage,
    Op,
    SchemaChange,
    Tombstone,
    TransactionMarker,
    Truncate,
    Watermark,
    key_of,
)
from changelane.position import MySqlPosition, PostgresPosition
from changelane.schema import TableId
from changelane.types import UNAVAILABLE, Enum, Geometry, Set, Text
from changelane.types import Decimal as DecimalType

CAPTURED = Path(__file__).resolve().parents[3] / "golden" / "debezium-json" / "captured"
FILES = sorted(path.name for path in CAPTURED.glob("*.jsonl"))
DEBEZIUM = get_codec("debezium-json")
NATIVE = get_codec("native-json")


def messages(name):
    for line in (CAPTURED / name).read_text("utf-8").splitlines():
        record = json.loads(line)
        yield Message(
            None if record["value"] is None else record["value"].encode(),
            None if record["key"] is None else record["key"].encode(),
            tuple((name, value.encode()) for name, value in record["headers"]),
            record["topic"],
            record["partition"],
            record["offset"],
            record["timestamp"],
        )


def events(name):
    return [event for message in messages(name) for event in DEBEZIUM.decode(message)]


def changes(name, table):
    found = [event.change if isinstance(event, HalfUpdate) else event for event in events(name)]
    return [e for e in found if isinstance(e, DataChange) and e.table.name == table]


def rows(name, table, op, image="after"):
    found = [getattr(change, image) for change in changes(name, table) if change.op is op]
    return {next(iter(row.values())): row for row in found}


def parsed(data):
    return json.loads(data) if data else data


def corrected(data):
    """What is written for a captured value: year 0, which Debezium's stream has as 1900, is 0.

    Without a schema, the number is not known to be a year.
    """
    is_typed = data and data.startswith(b'{"schema"')
    return parsed(data.replace(b'"y":1900', b'"y":0') if is_typed else data)


# -- there and back ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_every_line_comes_back_through_native_json(name):
    """The exceptions, all of them: headers of the connector's own context, and year 0."""
    for message in messages(name):
        lines = [
            native for event in DEBEZIUM.decode(message) for native in NATIVE.encode(event).messages
        ]
        out = [
            written
            for line in lines
            for event in NATIVE.decode(line)
            for written in DEBEZIUM.encode(event).messages
        ]
        assert len(out) == 1
        assert parsed(out[0].value) == corrected(message.value), message.where
        assert parsed(out[0].key) == parsed(message.key), message.where
        assert out[0].topic in {message.topic, None}
        kept = [pair for pair in message.headers if not pair[0].startswith("__debezium.context.")]
        assert list(out[0].headers) == kept


@pytest.mark.parametrize("name", FILES)
def test_field_order_comes_back(name):
    for message in messages(name):
        out = [
            written
            for event in DEBEZIUM.decode(message)
            for written in DEBEZIUM.encode(event).messages
        ]
        for one, two in ((out[0].value, message.value), (out[0].key, message.key)):
            assert json.dumps(parsed(one)) == json.dumps(corrected(two))


@pytest.mark.parametrize("name", FILES)
def test_joined_key_changes_are_written_as_three_messages_again(name):
    found = list(messages(name))
    joined = list(run(JoinHalves(), iter(events(name))))
    assert not any(isinstance(event, HalfUpdate) for event in joined)
    out = [written for event in joined for written in DEBEZIUM.encode(event).messages]

    def seen(message):
        headers = [pair for pair in message.headers if ".context." not in pair[0]]
        return message.topic, json.dumps(parsed(message.key)), headers, message.value is None

    assert sorted(map(repr, map(seen, out))) == sorted(map(repr, map(seen, found)))


@pytest.mark.parametrize("product", ["postgres", "mariadb"])
def test_schema_block_and_declared_types_tell_the_same(product):
    """What the schema tells is what ``schemas`` declares for the run without schema blocks."""
    name = f"debezium-{product}-schema.jsonl"
    typed = {
        change.table.name: change.schema
        for change in (event for event in events(name) if isinstance(event, DataChange))
        if change.op is Op.READ
    }
    declared = {
        table: {column.name: str(column.type) for column in schema.columns}
        for table, schema in typed.items()
        if table != "customers"  # its columns change while it is captured
    }
    codec = get_codec("debezium-json", schemas=declared)
    plain = [
        event
        for message in messages(f"debezium-{product}-noschema.jsonl")
        for event in codec.decode(message)
        if isinstance(event, DataChange) and event.op is Op.READ
    ]
    for change in plain:
        if change.table.name in declared:
            same = [c.after for c in changes(name, change.table.name) if c.op is Op.READ]
            # NaN is NaN here, and digits count
            assert repr(change.after) in map(repr, same)


# -- what the SQL says: PostgreSQL ---------------------------------------------------------------

PG = "debezium-postgres-schema.jsonl"
MY = "debezium-mariadb-schema.jsonl"


def utc(*parts):
    return dt.datetime(*parts, tzinfo=dt.UTC)


TYPES_PG = {
    "id": 1,
    "i2": -32768,
    "i4": 2147483647,
    "i8": 9223372036854775807,
    "f4": 1.5,
    "f8": 0.1,
    "num": Decimal("1234567890123456.7891"),
    "num_big": Decimal("-1234567890123456789012345678.0123456789"),
    "num_any": Decimal("3.14159265358979323846264338327950288"),
    "b": True,
    "d": dt.date(2024, 2, 29),
    "t": "23:59:59.999999",
    "t3": "12:34:56.789",
    "ttz": "06:30:00Z",  # 12:00:00+05:30: Debezium moves it to UTC
    "ts3": dt.datetime(2024, 2, 29, 23, 59, 59, 999000),
    "ts6": dt.datetime(2024, 2, 29, 23, 59, 59, 999999),
    "tstz": utc(2024, 3, 31, 0, 30, 0, 123456),
    "txt": 'text with "quotes", \\ and newline\n second line',
    "vc": "varchar \U0001f600 ünï",
    "ch": "char      ",
    "bin": bytes.fromhex("deadbeef00ff"),
    "j": '{"a": 1, "b": [1, 2.50, null], "a": 2}',
    "jb": '{"e": "\U0001f600", "k": "v", "n": 1.10}',
    "u": "123e4567-e89b-12d3-a456-426614174000",
    "e": "happy",
    "ai": [1, None, 3],
    "at": ["x", "y,z", 'q"uote', None],
    "an": [Decimal("1.10"), Decimal("-2.25")],
    "atz": [utc(2024, 1, 1)],
    "au": ["123e4567-e89b-12d3-a456-426614174000"],
    "ab": [True, False, None],
    "bit1": True,
    "bit8": "10101010",
    "vb": "00000101",  # 101: Debezium does not tell the length of a varbit
    "iv": dt.timedelta(microseconds=37091106789000),  # 1 year 2 mons ..: a month is 30.4375 days
    "ip": "192.168.1.1/24",
    "ci": "10.0.0.0/8",
    "mac": "08:00:2b:01:02:03",
    "pt": Geometry(bytes.fromhex("0101000000000000000000f83f00000000000004c0")),
    "r4": "[1,10)",
    "tr": '["2024-01-01 00:00:00+00",)',
    "x": "<a>x</a>",
    "hs": '{"k1":"v1","k2":null}',
    "cit": "CiText",
    "lt": "a.b.c",
    "dom": 7,
    "gen": 4294967294,
    "dflt": "d€f",
}


def test_postgres_types_are_what_was_inserted():
    assert rows(PG, "types_all", Op.READ)[1] == TYPES_PG
    copied = {n: v for n, v in TYPES_PG.items() if n != "gen"} | {"id": 11}
    assert rows(PG, "types_all", Op.CREATE)[11] == copied  # generated columns: snapshot only


def test_postgres_nulls_are_null():
    row = rows(PG, "types_all", Op.READ)[2]
    assert row == dict.fromkeys(TYPES_PG) | {"id": 2, "dflt": "d€f"}


def test_postgres_third_row_has_the_other_extremes():
    row = rows(PG, "types_all", Op.READ)[3]
    assert row["i8"] == -9223372036854775808
    assert row["f4"] == float("-inf")
    assert row["f8"] != row["f8"]
    assert row["num"] == Decimal("-0.0001")
    assert row["num_any"] == Decimal(-(10**20))
    assert row["d"] == dt.date(1969, 12, 31)
    assert row["ts3"] == dt.datetime(1969, 12, 31, 23, 59, 59, 999000)
    assert row["ts6"] == dt.datetime(1900, 1, 1, 0, 0, 0, 1)
    assert row["tstz"] == utc(1, 1, 1)
    assert row["ai"] == []
    assert row["at"] == []
    assert row["jb"] == "[]"


def test_postgres_columns_keep_their_types():
    schema = changes(PG, "types_all")[0].schema
    kinds = {column.name: column.type for column in schema.columns}
    assert kinds["num"] == DecimalType(20, 4)
    assert kinds["num_any"] == DecimalType()
    assert kinds["e"] == Enum(("sad", "ok", "happy"))
    assert kinds["lt"] == Text("ltree")
    assert schema.by_name["id"].nullable is False
    assert schema.by_name["dflt"].default == "d€f"


def test_postgres_update_of_types():
    (update,) = [change for change in changes(PG, "types_all") if change.op is Op.UPDATE]
    assert update.before is None  # REPLICA IDENTITY DEFAULT
    assert update.after["num"] == Decimal("-1.0000")
    assert update.after["jb"] == "null"
    assert update.after["ai"] is None
    assert update.after["b"] is None


EDGE_PG = {  # id -> (date, timestamp(3), timestamp(6), timestamptz, time(6), double precision)
    2: (None, "infinity", "infinity", "infinity", "24:00:00.000000", float("inf")),
    3: (None, "-infinity", "-infinity", "-infinity", "00:00:00.000001", float("-inf")),
    4: (
        dt.date(9999, 12, 31),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999000),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
        utc(9999, 12, 31, 23, 59, 59, 999999),
        None,
        0.0,
    ),
    5: (
        None,
        dt.datetime(1582, 10, 10),
        dt.datetime(1582, 10, 4),
        utc(1582, 10, 15),
        None,
        5e-324,
    ),
    # The microseconds of a timestamp(6) in 294276 do not fit 64 bits: Debezium writes the greatest
    6: (
        "+5874897-12-31",
        "+294276-12-31T23:59:59",
        "+294247-01-10T04:00:54.775807",
        "+294276-12-31T23:59:59.000000Z",
        None,
        None,
    ),
}
BC_PG = ("-0043-03-15", "-0043-03-15T12:00:00.500", "-0043-03-15T12:00:00.123456")


def test_postgres_edges_of_the_calendar():
    snapshot = rows(PG, "edge_dates", Op.READ)
    stream = rows(PG, "edge_dates", Op.CREATE)
    for key, want in EDGE_PG.items():
        for got in (snapshot[key], stream[key + 10]):
            values = list(got.values())[1:]
            for name, value, expected in zip(list(got)[1:], values, want, strict=True):
                if name != "d" or expected is not None:
                    assert value == expected, (key, name)


def test_postgres_dates_of_the_stream_are_right_and_those_of_the_snapshot_are_debeziums():
    stream = rows(PG, "edge_dates", Op.CREATE)
    assert stream[11]["d"] == "-0043-03-15"
    assert stream[12]["d"] == "infinity"
    assert stream[13]["d"] == "-infinity"
    assert stream[15]["d"] == dt.date(1582, 10, 10)
    snapshot = rows(PG, "edge_dates", Op.READ)
    assert snapshot[5]["d"] == dt.date(1582, 10, 20)  # read with the Julian calendar
    assert snapshot[1]["d"] == dt.date(44, 3, 15)  # the era is lost
    assert snapshot[2]["d"] == "-1701532-04-05"  # infinity, cut to 32 bits
    assert snapshot[3]["d"] == "-1711471-07-22"


def test_postgres_timestamps_before_christ():
    for row in (rows(PG, "edge_dates", Op.READ)[1], rows(PG, "edge_dates", Op.CREATE)[11]):
        assert row["tstz"] == "-0043-03-15T12:00:00.000000Z"
        assert row["ts3"] == BC_PG[1]
        assert row["ts6"] == BC_PG[2]
        assert row["f8"] == 1e308


CUSTOMERS = {
    1: ("Ann", "ann@example.org", Decimal("10.5000"), True, utc(2024, 1, 1)),
    2: ("Bob \U0001f600", "bob@example.org", None, False, utc(2024, 1, 1, 0, 0, 0, 500000)),
    # NULLs of columns with a default: JsonConverter writes the default (vip, updated_at)
    3: ("Cyd", "cyd@example.org", Decimal("0.0000"), False, utc(1970, 1, 1)),
}


def test_postgres_customers():
    for key, row in rows(PG, "customers", Op.READ).items():
        assert tuple(row.values())[1:] == CUSTOMERS[key]
    created = rows(PG, "customers", Op.CREATE)
    assert created[4]["balance"] == Decimal("99999999999999.9999")
    assert created[200]["name"] == "Bob \U0001f600"  # UPDATE customers SET id=200 WHERE id=2
    assert created[5]["phone"] == "n/a"
    assert "vip" not in created[5]  # ALTER TABLE customers DROP COLUMN vip
    updates = [change.after for change in changes(PG, "customers") if change.op is Op.UPDATE]
    assert updates[0]["name"] == "Ann 日本"
    assert updates[0]["balance"] == Decimal("11.5001")
    assert updates[-1]["balance"] == Decimal("7.000000")  # ALTER COLUMN balance TYPE numeric(30,6)


def test_postgres_delete_believes_its_key_only():
    deletes = [change for change in changes(PG, "customers") if change.op is Op.DELETE]
    for change in deletes:
        assert {n for n, v in change.before.items() if v is not UNAVAILABLE} == {"id"}
        assert key_of(change, change.before) in ({"id": 3}, {"id": 2})


def test_update_whose_key_stays_has_a_before_image_under_replica_identity_full():
    (update,) = [change for change in changes(PG, "cust_full") if change.op is Op.UPDATE]
    assert update.before == {"id": 1, "name": "Full Ann", "balance": Decimal("1.2500")}
    assert update.after["balance"] == Decimal("2.5000")
    gone = {c.before["id"]: c.before for c in changes(PG, "cust_full") if c.op is Op.DELETE}
    # what is no filler is real; what may be one stays unknown
    assert gone[2] == {"id": 2, "name": "Full Bob", "balance": UNAVAILABLE}
    assert gone[1] == {"id": 1, "name": "Full Ann", "balance": Decimal("2.5000")}


def test_before_image_full_believes_everything():
    codec = get_codec("debezium-json", before_image="full")
    found = [event for message in messages(PG) for event in codec.decode(message)]
    deletes = [e for e in found if isinstance(e, DataChange) and e.op is Op.DELETE]
    (gone,) = [e for e in deletes if e.table.name == "cust_full"]
    assert gone.before == {"id": 2, "name": "Full Bob", "balance": None}
    assert len(codec.encode(gone).messages) == 1


def test_table_without_key_has_full_images():
    (update, delete) = [c for c in changes(PG, "no_pk_full") if c.op in {Op.UPDATE, Op.DELETE}]
    assert update.before == {"a": 1, "b": "one"}
    assert delete.before == {"a": 2, "b": "two"}
    assert update.key is None


@pytest.mark.parametrize("name", [PG, "debezium-postgres-noschema.jsonl"])
def test_unchanged_toast_is_unavailable_in_every_form(name):
    big, half = ("big", "bigb", "bigj", "biga"), None
    first, second = [c.after for c in changes(name, "toast_t") if c.op is Op.UPDATE]
    assert first["n"] == 2
    assert [first[column] for column in big] == [UNAVAILABLE] * 4
    assert second["big"] == "y" * 2500
    assert [second[column] for column in big[1:]] == [UNAVAILABLE] * 3
    (half,) = [e for e in events(name) if isinstance(e, HalfUpdate)
               and e.change.table.name == "toast_t" and e.change.op is Op.CREATE]  # fmt: skip
    assert half.other_key == {"id": 1}
    assert [half.change.after[column] for column in big] == [UNAVAILABLE] * 4


def test_toast_of_the_snapshot_is_there():
    (row,) = rows(PG, "toast_t", Op.READ).values()
    assert row["big"] == "x" * 3000
    assert row["bigb"] == bytes.fromhex("ab" * 3000)
    assert row["biga"] == ["a" * 2500, "b"]


def test_order_items_of_both_databases():
    for name in (PG, MY):
        read = [c.after for c in changes(name, "order_items") if c.op is Op.READ]
        assert [list(row.values()) for row in read] == [
            [1, 1, "A-1", 2, Decimal("9.9900")],
            [1, 2, "B-2", 1, Decimal("100.0000")],
        ]
        assert changes(name, "order_items")[0].key.columns == ("order_id", "line_no")


def test_names_that_a_topic_cannot_have():
    change = changes(PG, "Quoted Table")[0]
    assert change.table == TableId("shop", "public", "Quoted Table")
    assert change.after == {"Id": 1, "Name With Space": "v", "naïve": "ñ"}


def test_rolled_back_rows_are_not_told():
    for name in (PG, MY):
        assert 99 not in {c.after["id"] for c in changes(name, "customers") if c.after}


def test_logical_messages_of_postgres():
    found = [event for event in events(PG) if isinstance(event, LogicalMessage)]
    assert [(event.prefix, event.content) for event in found] == [
        ("app", b"hello message"),
        ("nontx", b"outside tx"),
    ]
    assert found[0].transaction is not None
    assert found[1].transaction is None


def test_truncates_name_their_tables():
    names = sorted(e.table.name for e in events(PG) if isinstance(e, Truncate))
    assert names == ["customers", "no_pk", "no_pk_full", "order_items"]


def test_positions_order_the_stream():
    found = [c for c in changes(PG, "order_items") if c.source.snapshot is None]
    assert found[2].position == PostgresPosition(33205984, 33205696)
    first = changes(MY, "customers")[3]
    assert isinstance(first.position, MySqlPosition)
    assert first.position.file == "binlog.000001"
    assert first.position.gtid.startswith("1-4711-")


def test_times_are_nanoseconds():
    change = changes(PG, "customers")[0]
    assert change.source_time_ns % 1_000_000 == 678_000
    assert change.process_time_ns % 1000 != 0


def test_heartbeats_and_transactions():
    found = events(PG)
    assert sum(isinstance(event, Watermark) for event in found) == 3
    markers = [event for event in found if isinstance(event, TransactionMarker)]
    assert {marker.status for marker in markers} == {"begin", "commit"}
    commit = next(m for m in markers if m.status == "commit" and m.transaction.size == 1)
    assert commit.details["data_collections"][0]["event_count"] == 1


def test_tombstones_carry_the_key_and_where_it_went():
    found = [event for event in events(PG) if isinstance(event, Tombstone)]
    moved = [event for event in found if event.moved_to is not None]
    assert {(tuple(e.key.values()), tuple(e.moved_to.values())) for e in moved} == {
        ((2,), (200,)),
        ((2, 2), (2, 9)),
        ((1,), (11,)),
        ((1,), (2,)),
    }
    assert any(event.key is None for event in found)  # a table without key


# -- what the SQL says: MariaDB ------------------------------------------------------------------

TYPES_MY = {
    "id": 1,
    "ti1": 1,
    "bo": 1,
    "ti": -128,
    "tiu": 255,
    "si": -32768,
    "mi": -8388608,
    "miu": 16777215,
    "i": 2147483647,
    "iu": 4294967295,
    "bi": 9223372036854775807,
    "biu": -1,  # 18446744073709551615: bigint.unsigned.handling.mode=long wraps
    "f": 1.5,
    "dbl": 0.1,
    "dec1": Decimal("1234567890123456.7891"),
    "dec2": Decimal("12345678901234567890123456789012345.123456789012345678901234567890"),
    "dec0": Decimal(-9999999999),
    "bit1": True,
    "bit8": "10101010",
    "bit64": "1" * 64,
    "d": dt.date(2024, 2, 29),
    "t": "23:59:59.000000",
    "t6": "-838:59:58.999999",
    "dt": dt.datetime(2024, 2, 29, 23, 59, 59),
    "dt3": dt.datetime(2024, 2, 29, 23, 59, 59, 999000),
    "dt6": dt.datetime(2024, 2, 29, 23, 59, 59, 999999),
    "ts": utc(2024, 2, 29, 23, 59, 59),
    "ts3": utc(2024, 2, 29, 23, 59, 59, 999000),
    "ts6": utc(2024, 2, 29, 23, 59, 59, 999999),
    "y": 2155,
    "ch": "char",
    "vc": "varchar \U0001f600 ünï",
    "txt": 'text "q" \\ \n line',
    "ltxt": "long",
    "lat": "latin é",
    "bin": bytes(range(8)),
    "vbin": bytes.fromhex("deadbeef00"),
    "bl": bytes.fromhex("00ff10"),
    "js": '{"a": 1, "b": [1, 2.50, null], "e":"\U0001f600"}',
    "e": "b€",
    "s": "x,z",
    "u": "123e4567-e89b-12d3-a456-426614174000",
    "pt": Geometry(bytes.fromhex("0101000000000000000000f83f00000000000004c0")),
    "gen": 2147483647,  # i*2 does not fit its INT column
    "dflt": "d€f",
    "iz": 42,
}  # ip6: Debezium leaves INET6 columns out


def test_mariadb_types_are_what_was_inserted():
    assert rows(MY, "types_all", Op.READ)[1] == TYPES_MY
    # the stream corrupts a UUID that ends in a zero byte
    streamed = TYPES_MY | {"id": 11, "u": "00123e45-67e8-9b12-d3a4-564266141740"}
    assert rows(MY, "types_all", Op.CREATE)[11] == streamed


def test_mariadb_nulls_and_defaults():
    assert rows(MY, "types_all", Op.READ)[2] == dict.fromkeys(TYPES_MY) | {"id": 2, "dflt": "d€f"}


def test_mariadb_third_row_has_the_other_extremes():
    row = rows(MY, "types_all", Op.READ)[3]
    assert row["bi"] == -9223372036854775808
    assert row["dbl"] == -1e300
    assert row["dec1"] == Decimal("-0.0001")
    assert row["dec2"] == Decimal(0)
    assert row["bit64"] == "0" * 64
    assert row["d"] == dt.date(1969, 12, 31)
    assert row["t"] == "-00:00:01.000000"
    assert row["t6"] == "00:00:00.000001"
    assert row["dt"] == dt.datetime(1000, 1, 1)
    assert row["dt6"] == dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
    assert row["ts3"] == utc(2038, 1, 19, 3, 14, 7, 999000)
    assert row["bin"] == bytes(8)
    assert row["e"] == "a"
    assert row["s"] == ""


def test_mariadb_enum_members_have_commas():
    kinds = {c.name: c.type for c in changes(MY, "types_all")[0].schema.columns}
    assert kinds["e"] == Enum(("a", "b€", "c,d"))
    assert kinds["s"] == Set(("x", "y", "z"))


def test_mariadb_edges_of_the_calendar():
    for op, more in ((Op.READ, 0), (Op.CREATE, 10)):
        found = rows(MY, "edge_dates", op)
        zero, partial, ordinary = (found[key + more] for key in (1, 2, 3))
        # zero dates: NULL where that may be, else the epoch (Debezium); its TIME is exact
        assert (zero["d"], zero["dt6"]) == (None, None)
        assert zero["d_nn"] == dt.date(1970, 1, 1)
        assert zero["t6"] == "838:59:59.999999"
        assert (partial["d"], partial["dt6"], partial["ts"]) == (None, None, None)
        assert partial["y"] == 1970
        assert ordinary == {
            "id": 3 + more,
            "d": dt.date(9999, 12, 31),
            "dt6": dt.datetime(1000, 1, 1, 0, 0, 0, 1),
            "ts": utc(2038, 1, 19, 3, 14, 7, 999999),
            "t6": "-00:00:00.000001",
            "y": 2000,
            "d_nn": dt.date(1582, 10, 10),
        }
    # snapshot and stream disagree in Debezium: the zero timestamp, and the year 0000, which is 1900
    assert rows(MY, "edge_dates", Op.READ)[1]["ts"] is None
    assert rows(MY, "edge_dates", Op.CREATE)[11]["ts"] == utc(1970, 1, 1)
    assert rows(MY, "edge_dates", Op.READ)[1]["y"] == 2000
    assert rows(MY, "edge_dates", Op.CREATE)[11]["y"] == 0


def test_mariadb_before_images_are_full():
    found = [c for c in changes(MY, "customers") if c.op is Op.UPDATE]
    ann = next(c for c in found if c.after["id"] == 1)
    assert ann.before["name"] == "Ann"
    assert ann.before["balance"] == Decimal("10.5000")
    assert ann.after["balance"] == Decimal("11.5001")
    gone = next(c for c in changes(MY, "customers") if c.op is Op.DELETE and c.before["id"] == 3)
    assert gone.before["name"] == "Cyd"
    assert gone.before["updated_at"] is None


def test_mariadb_replace_and_upsert():
    found = changes(MY, "later")
    assert [(c.op, c.after) for c in found] == [
        (Op.CREATE, {"k": "a", "v": 1}),
        (Op.UPDATE, {"k": "a", "v": 2}),
        (Op.UPDATE, {"k": "a", "v": 12}),
    ]


def test_mariadb_schema_changes():
    found = [event for event in events(MY) if isinstance(event, SchemaChange)]
    alters = [event for event in found if event.action == "alter"]
    assert [event.table.name for event in alters] == ["customers"] * 3
    (rename,) = [event for event in found if event.action == "rename"]
    assert rename.table.name == "later2"
    added = alters[0]
    assert added.ddl.startswith("ALTER TABLE customers ADD COLUMN phone")
    assert [column.name for column in added.schema.columns][:3] == ["id", "name", "phone"]
    assert added.schema.by_name["phone"].source_type == "VARCHAR(20)"
    assert added.key.columns == ("id",)
    last = alters[2].schema.by_name["balance"]
    assert last.type == DecimalType(30, 6)
    assert {event.action for event in found} == {
        "create", "alter", "drop", "rename", "create_database", "drop_database", "other",
    }  # fmt: skip

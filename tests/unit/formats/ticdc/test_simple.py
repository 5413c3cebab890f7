# SPDX-License-Identifier: Apache-2.0
"""TiCDC's simple protocol: images, declared tables, checksums, other messages, writing."""

import datetime as dt
import decimal
import json
import struct
import zlib

import msgspec
import pytest

from changelane import ConfigError, DecodeError, EncodeError, Message, get_codec
from changelane.event import (
    Completeness,
    DataChange,
    Key,
    KeyOrigin,
    Op,
    SchemaChange,
    Source,
    Tombstone,
    Truncate,
    Watermark,
)
from changelane.position import SequencePosition
from changelane.schema import TableId
from changelane.testing import malformed
from changelane.testing.conformance import decode_or_refuse
from changelane.types import Decimal, Enum, Instant, InstantType

TS = 447984099186180098
SOURCE = Source(product="tidb", connector="ticdc")


def column(name, kind, nullable=True, **parameters):
    return {
        "name": name,
        "dataType": {"mysqlType": kind, "charset": "binary", "collate": "binary"} | parameters,
        "nullable": nullable,
        "default": None,
    }


COLUMNS = [
    column("id", "int", nullable=False, length=11),
    column("n", "bigint", unsigned=True),
    column("price", "decimal", length=10, decimal=2),
    column("f", "float"),
    column("size", "enum", elements=["small", "it's"]),
    column("tags", "set", elements=["a", "b", "c"]),
    column("flags", "bit", length=4),
    column("at", "timestamp", decimal=3),
    column("on", "datetime"),
    column("raw", "varbinary", length=8),
    column("note", "varchar", length=255),
]
INDEXES = [
    {"name": "u", "unique": True, "primary": False, "nullable": False, "columns": ["n"]},
    {"name": "primary", "unique": True, "primary": True, "nullable": False, "columns": ["id"]},
]
TABLE = {
    "schema": "shop",
    "table": "t",
    "tableID": 148,
    "version": 7,
    "columns": COLUMNS,
    "indexes": INDEXES,
}
ROW = {
    "id": "-1",
    "n": "18446744073709551615",
    "price": "1.50",
    "f": "0.1",
    "size": "2",
    "tags": "5",
    "flags": "5",
    "at": {"location": "Asia/Shanghai", "value": "2024-07-01 12:00:00.250"},
    "on": "0000-00-00 00:00:00",
    "raw": "iVBORw==",
    "note": None,
}
VALUES = {
    "id": -1,
    "n": 2**64 - 1,
    "price": decimal.Decimal("1.50"),
    "f": 0.1,
    "size": "it's",
    "tags": "a,c",
    "flags": "0101",
    "at": Instant(2024, 7, 1, 4, 0, 0, 250000, tzinfo=dt.UTC),
    "on": "0000-00-00 00:00:00",
    "raw": b"\x89PNG",
    "note": None,
}


def row(kind="INSERT", **fields):
    message = {"version": 1, "database": "shop", "table": "t", "tableID": 148, "type": kind}
    return message | {"commitTs": TS, "buildTs": 1708923719184, "schemaVersion": 7} | fields


def decode(message, **options):
    value = message if isinstance(message, bytes) else json.dumps(message).encode()
    (event,) = get_codec("ticdc-simple-json", **options).decode(Message(value))
    return event


def typed(message, **options):
    return decode(message, table_schemas=[TABLE], **options)


def refused(message, **options):
    with pytest.raises(DecodeError) as caught:
        decode(message, **options)
    return caught.value.code, caught.value.path


# -- rows --------------------------------------------------------------------------------------


def test_an_update_has_both_rows_and_the_position_of_its_commit():
    event = decode(row("UPDATE", data={"id": "1", "a": "x"}, old={"id": "1", "a": None}))
    assert event == DataChange(
        Op.UPDATE,
        TableId("shop", None, "t"),
        None,
        {"id": "1", "a": None},
        {"id": "1", "a": "x"},
        None,
        SequencePosition(TS),
        source=SOURCE,
        source_time_ns=(TS >> 18) * 1_000_000,
        process_time_ns=1708923719184 * 1_000_000,
        before_holds=Completeness.FULL,
        after_holds=Completeness.FULL,
        details={"tableID": 148, "schemaVersion": 7},
    )


def test_an_insert_has_the_new_row_and_a_delete_the_old_one():
    insert = decode(row(data={"id": "1"}))
    assert (insert.op, insert.before, insert.after) == (Op.CREATE, None, {"id": "1"})
    delete = decode(row("DELETE", old={"id": "1"}))
    assert (delete.op, delete.before, delete.after) == (Op.DELETE, {"id": "1"}, None)
    delete = decode(row("DELETE", old={"id": "1"}, handleKeyOnly=True))
    assert delete.before_holds is Completeness.KEY


def test_rows_of_undeclared_tables_have_the_values_of_the_message():
    data = {"t": "x", "n": None, "i": 2**64 - 1, "d": 1.5, "at": ROW["at"]}
    event = decode(row(data=data))
    assert event.after == data | {"d": decimal.Decimal("1.5"), "at": "2024-07-01T04:00:00.250Z"}


def test_rows_of_declared_tables_have_types_and_the_primary_key():
    event = typed(row(data=ROW))
    assert event.after == VALUES
    assert event.after["at"].digits == 3
    assert event.key == Key(("id",), KeyOrigin.CONFIG)
    types = {column.name: column.type for column in event.schema.columns}
    assert types["price"] == Decimal(10, 2)
    assert types["size"] == Enum(("small", "it's"))
    assert types["at"] == InstantType(3)
    assert [column.nullable for column in event.schema.columns][:2] == [False, True]


def test_numbers_are_values_too():
    numbers = {"id": -1, "n": 2**64 - 1, "f": 0.1, "size": 2, "tags": 5, "flags": 5}
    assert typed(row(data=ROW | numbers)).after == VALUES


def test_virtual_columns_that_are_not_in_a_row_are_not_in_its_schema():
    event = typed(row(data={"id": "1", "n": "2"}))
    assert [column.name for column in event.schema.columns] == ["id", "n"]


def test_a_unique_key_without_null_is_the_key_of_a_table_without_a_primary_key():
    table = TABLE | {"indexes": INDEXES[:1]}
    assert decode(row(data=ROW), table_schemas=[table]).key.columns == ("n",)
    nullable = TABLE | {"indexes": [INDEXES[0] | {"nullable": True}]}
    assert decode(row(data=ROW), table_schemas=[nullable]).key is None


@pytest.mark.parametrize(
    ("message", "code", "path"),
    [
        (row(), "missing_field", "$.data"),
        (row("DELETE"), "missing_field", "$.old"),
        (row(data={}, old={}), "unexpected_image", "$.old"),
        (row("DELETE", data={}, old={}), "unexpected_image", "$.data"),
        (row("WATERMARK", data={"id": "1"}), "unexpected_image", "$.data"),
        (row("UPSERT"), "unknown_operation", "$.type"),
        (row(data={}, version=2), "unknown_version", "$.version"),
        (row(data={}, commitTs=2**64), "wrong_type", "$.commitTs"),
        (row(data={}, buildTs=10**15), "value_out_of_range", "$.buildTs"),
        (row(data={"id": "1"}, handleKeyOnly=True), "incomplete_row", "$.handleKeyOnly"),
        (row(data={}, claimCheckLocation="s3://x"), "incomplete_row", "$.claimCheckLocation"),
        (row(data={"a": {"location": "No/Where", "value": ""}}), "wrong_type", "$.data.a"),
        (row(data={"a": {"b": "c"}}), "wrong_type", "$.data.a"),
        (row("BOOTSTRAP"), "missing_field", "$.tableSchema"),
        ({"version": 1, "type": "WATERMARK"}, "missing_field", "$.commitTs"),
    ],
)
def test_other_messages_are_refused(message, code, path):
    assert refused(message) == (code, path)


@pytest.mark.parametrize(
    ("message", "code", "path"),
    [
        (row(data=ROW, schemaVersion=8), "unknown_schema", "$.schemaVersion"),
        (row(data=ROW | {"x": "1"}), "unknown_column", "$.data"),
        (row(data=ROW | {"id": "x"}), "wrong_type", "$.data.id"),
        (row(data=ROW | {"size": "3"}), "value_out_of_range", "$.data.size"),
        (row(data=ROW | {"tags": "8"}), "value_out_of_range", "$.data.tags"),
        (row(data=ROW | {"flags": "16"}), "value_out_of_range", "$.data.flags"),
        (row(data=ROW | {"raw": "%"}), "wrong_type", "$.data.raw"),
    ],
)
def test_rows_that_do_not_fit_their_declared_table_are_refused(message, code, path):
    assert refused(message, table_schemas=[TABLE]) == (code, path)


# -- streams -----------------------------------------------------------------------------------

BOOTSTRAP = {"version": 1, "type": "BOOTSTRAP", "commitTs": 0, "tableSchema": TABLE}


def streamed(*messages, **options):
    decode_next = get_codec("ticdc-simple-json", **options).open_stream()
    return [e for m in messages for e in decode_next(Message(m and json.dumps(m).encode()))]


def test_messages_of_a_stream_describe_the_tables_of_later_rows():
    early, _, late, _, again = streamed(
        row(data={"id": "1"}), BOOTSTRAP, row(data=ROW), BOOTSTRAP, row("DELETE", old=ROW)
    )
    assert (early.after, early.schema, early.key) == ({"id": "1"}, None, None)
    assert (late.after, late.key) == (VALUES, Key(("id",), KeyOrigin.PAYLOAD))
    assert again.schema is late.schema
    assert streamed(None) == [Tombstone(TableId())]


@pytest.mark.parametrize("kind", ["CREATE", "ALTER", "TRUNCATE", "CINDEX"])
def test_statements_of_a_stream_describe_the_new_version(kind):
    table = TABLE | {"version": 8, "columns": [*COLUMNS, column("more", "int")]}
    statement = {"version": 1, "type": kind, "commitTs": TS, "tableSchema": table}
    data = ROW | {"more": "5"}
    *_, old, new = streamed(BOOTSTRAP, statement, row(data=ROW), row(data=data, schemaVersion=8))
    assert (old.after, new.after) == (VALUES, VALUES | {"more": 5})


def test_a_row_of_a_version_that_the_stream_does_not_describe_is_rejected():
    with pytest.raises(DecodeError) as caught:
        streamed(BOOTSTRAP, row(data=ROW, schemaVersion=8))
    assert (caught.value.code, caught.value.path) == ("unknown_schema", "$.schemaVersion")
    options = {"table_schemas": [TABLE | {"version": 8}]}
    _, first, second = streamed(BOOTSTRAP, row(data=ROW), row(data=ROW, schemaVersion=8), **options)
    assert first.after == second.after == VALUES
    with pytest.raises(DecodeError):
        streamed(row(data=ROW), **options)


# -- checksums ---------------------------------------------------------------------------------


def sized(content):
    return struct.pack("<I", len(content)) + content


CHECKSUM = zlib.crc32(
    b"".join(
        [
            struct.pack("<q", -1),
            struct.pack("<Q", 2**64 - 1),
            sized(b"1.50"),
            struct.pack("<d", struct.unpack("<f", struct.pack("<f", 0.1))[0]),
            struct.pack("<QQQ", 2, 5, 5),
            sized(b"2024-07-01 04:00:00.250"),
            sized(b"0000-00-00 00:00:00"),
            sized(b"\x89PNG"),
        ]
    )
)


def test_the_checksum_covers_the_columns_in_their_order():
    checksum = {"version": 1, "corrupted": False, "current": CHECKSUM, "previous": 0}
    event = typed(row(data=dict(reversed(ROW.items())), checksum=checksum))
    assert event.details["checksum"] == checksum
    both = checksum | {"previous": CHECKSUM}
    assert typed(row("UPDATE", data=ROW, old=ROW, checksum=both)).op is Op.UPDATE


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"current": 1}, "$.checksum.current"),
        ({"current": CHECKSUM, "previous": 1}, "$.checksum.previous"),
        ({"corrupted": True, "current": CHECKSUM}, "$.checksum.corrupted"),
    ],
)
def test_a_row_with_another_checksum_is_refused(fields, path):
    checksum = {"version": 1, "corrupted": False, "current": 0, "previous": 0} | fields
    message = row("UPDATE", data=ROW, old=ROW, checksum=checksum)
    assert refused(message, table_schemas=[TABLE]) == ("checksum", path)
    assert typed(message, verify_checksums=False).after == VALUES
    assert decode(message).details["checksum"] == checksum


# -- other messages ----------------------------------------------------------------------------


def test_a_bootstrap_describes_a_table_at_its_version():
    message = {"version": 1, "type": "BOOTSTRAP", "commitTs": 0, "tableSchema": TABLE}
    event = decode(message)
    assert isinstance(event, SchemaChange)
    assert (event.action, event.ddl) == ("alter", None)
    assert event.position == SequencePosition(7)
    assert event.key == Key(("id",), KeyOrigin.PAYLOAD)
    assert event.schema == typed(row(data=ROW)).schema
    assert event.details == {"type": "BOOTSTRAP", "tableID": 148, "schemaVersion": 7}


@pytest.mark.parametrize(
    ("kind", "sql", "action", "has_schema"),
    [
        ("CREATE", "CREATE TABLE t (id int primary key)", "create", True),
        ("RENAME", "RENAME TABLE t TO u", "rename", True),
        ("ALTER", None, "alter", True),
        ("ERASE", "DROP TABLE t", "drop", False),
        ("CINDEX", None, "create_index", True),
        ("DINDEX", None, "drop_index", True),
        ("QUERY", "CREATE VIEW v AS SELECT 1", "other", True),
    ],
)
def test_a_statement_has_the_action_of_its_text_or_its_type(kind, sql, action, has_schema):
    new = TABLE | {"table": "u" if kind == "RENAME" else "t"}
    fields = {"version": 1, "type": kind, "commitTs": TS, "sql": sql, "tableSchema": new}
    event = decode(fields | {"preTableSchema": TABLE})
    assert (event.action, event.table) == (action, TableId("shop", None, "t"))
    assert (event.schema is not None) is has_schema


def test_statements_without_a_schema_take_the_table_of_their_text():
    event = decode({"version": 1, "type": "QUERY", "sql": "DROP TABLE a.b", "commitTs": TS})
    assert event.table == TableId("a", None, "b")
    event = decode({"version": 1, "type": "TRUNCATE", "commitTs": TS, "tableSchema": TABLE})
    assert isinstance(event, Truncate)


def test_an_unknown_type_of_a_column_is_refused():
    table = TABLE | {"columns": [column("id", "quaternion")]}
    message = {"version": 1, "type": "BOOTSTRAP", "tableSchema": table}
    path = "$.tableSchema.columns[0].dataType.mysqlType"
    assert refused(message) == ("unknown_type", path)
    with pytest.raises(ConfigError, match=r"table_schemas\[0\]: an unknown column type"):
        get_codec("ticdc-simple-json", table_schemas=[table])
    with pytest.raises(ConfigError, match=r"table_schemas\[0\]"):
        get_codec("ticdc-simple-json", table_schemas=[{"columns": 1}])


def test_a_message_without_a_value_is_a_tombstone():
    assert get_codec("ticdc-simple-json").decode(Message(None)) == (Tombstone(TableId()),)


# -- writing -----------------------------------------------------------------------------------


def encode(event, **options):
    encoded = get_codec("ticdc-simple-json", **options).encode(event, on_loss="ignore")
    return encoded.messages, dict(encoded.losses)


def test_a_row_has_the_fields_of_the_producer_in_its_order():
    value = json.dumps(row("UPDATE", data={"id": "1"}, old={"id": "2"}), separators=(",", ":"))
    event = decode(value.encode())
    (message,), losses = encode(event)
    assert message.value == value.encode()
    assert not losses


def test_a_row_of_a_declared_table_comes_back():
    event = typed(row("UPDATE", data=ROW, old=ROW | {"size": None}))
    (message,), losses = encode(event, table_schemas=[TABLE])
    assert {name.partition(":")[0].partition(".")[0] for name in losses} == {"type", "schema"}
    written = json.loads(message.value)["data"]
    assert written == ROW | {"at": {"location": "UTC", "value": "2024-07-01 04:00:00.250"}}
    assert typed(message.value) == event


def test_a_value_that_is_not_of_its_declared_type_is_no_message():
    event = decode(row(data={"id": "x"}))
    with pytest.raises(EncodeError, match="column 'id' has a value that is not of its declared"):
        encode(event, table_schemas=[TABLE])
    with pytest.raises(EncodeError, match="no column 'other'"):
        encode(decode(row(data={"other": "x"})), table_schemas=[TABLE])


def test_what_a_message_does_not_have_is_a_loss():
    event = decode(row(data={"id": "1"}))
    change = msgspec.structs.replace
    assert encode(change(event, key=Key(("id",))))[1].keys() == {"key"}
    update = change(event, op=Op.UPDATE, after_holds=Completeness.CHANGED)
    assert "absent" in encode(update)[1]
    details = {"checksum": {}, "other": 1}
    lost = encode(change(event, details=details))[1].keys()
    assert lost == {"details.checksum", "details.other"}


def test_statements_and_resolved_times_are_written():
    (message,), losses = encode(
        Watermark("resolved", SequencePosition(TS), SOURCE, (TS >> 18) * 1_000_000)
    )
    assert message.value == b'{"version":1,"type":"WATERMARK","commitTs":447984099186180098}'
    assert not losses
    assert encode(Watermark("heartbeat"))[0] == ()
    (message,), _ = encode(Truncate(TableId("shop", None, "t")))
    assert json.loads(message.value)["type"] == "TRUNCATE"
    assert isinstance(decode(message.value), Truncate)


def test_malformed_messages_give_errors_without_values():
    codec = get_codec("ticdc-simple-json", table_schemas=[TABLE])
    secret = json.dumps(row(data={"id": "1", "note": "s3cr3t-text", "at": ROW["at"]})).encode()
    bootstrap = json.dumps({"version": 1, "type": "BOOTSTRAP", "tableSchema": TABLE}).encode()
    for data in malformed.flipped_types(secret):
        decode_or_refuse(codec, Message(data))
    for data in malformed.huge_numbers(secret):
        decode_or_refuse(codec, Message(data))
    for index, data in enumerate(malformed.flipped_types(bootstrap)):
        if index % 7 == 0:
            decode_or_refuse(codec, Message(data))

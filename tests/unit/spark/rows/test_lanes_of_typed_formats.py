# SPDX-License-Identifier: Apache-2.0
"""Lanes of formats with types in each message give the rows and the errors of the event path."""

import json
from contextlib import suppress
from functools import cache
from typing import Any

import msgspec
import pytest
from lane_checks import GOLDEN, check_generated, check_mutated, check_stored, count, goldens
from lane_messages import read
from mutated_messages import mutations_of

from changelane import get_codec
from changelane.conversion.lanes import conversion_lanes
from changelane.errors import EncodeError
from changelane.formats.debezium_envelope.cloud_events import is_structured
from changelane.formats.ticdc.open.wire import VERSION, framed
from changelane.message import Message

pytestmark = pytest.mark.usefixtures("early_lanes")


def declared(database: str, table: str, version: int | None, **types: str) -> dict[str, Any]:
    """Return a table of TiCDC's simple protocol; the first column is its key."""
    columns = [{"name": name, "dataType": {"mysqlType": kind}} for name, kind in types.items()]
    key = {"name": "primary", "columns": [*types][:1], "unique": True, "primary": True}
    table_definition = {"schema": database, "table": table, "columns": columns, "indexes": [key]}
    return table_definition | {"version": version}


USERS = declared(
    "simple", "user", 447984074911121426, id="int", name="varchar", age="int", score="float"
)
ORDERS = declared("shop", "orders", None, id="bigint", note="text", qty="int")
FORMATS: dict[str, tuple[dict[str, Any], ...]] = {
    "wal2json": ({}, {"keys": {"orders": ["id"], "all_types": ["id"]}}, {"date_order": "mdy"}),
    "ticdc-simple-json": (
        {},
        {"table_schemas": [USERS, ORDERS]},
        {"table_schemas": [USERS, ORDERS], "verify_checksums": False},
    ),
    "cockroachdb-json": (
        {},
        {"schemas": {"orders": {"id": "int64 key", "note": "string", "qty": "int32"}}},
    ),
    "spanner-json": ({},),
    "dynamodb-json": (
        {},
        {"schemas": {"orders": {"id": "int64 key", "note": "string", "qty": "int32"}}},
        {"nested": "typed", "order": "offset", "keys": {"orders": ["id"]}},
        {"ttl_deletes": "drop"},
    ),
    "ticdc-open-json": ({}, {"output_old_value": True}, {"time_zone": "Europe/Berlin"}),
    "ticdc-avro": ({}, {"order": "commit_ts"}, {"verify_checksums": False}),
}
LEAST_PLAIN = {
    "wal2json": 0.3,
    "ticdc-open-json": 0.3,
    "ticdc-simple-json": 0.4,
    "cockroachdb-json": 0.4,
    "spanner-json": 0.3,
    "dynamodb-json": 0.1,
    "ticdc-avro": 0.6,
}
"""The least share of plain messages of the stored ones."""


@pytest.mark.parametrize("format", FORMATS)
def test_stored_messages(format: str) -> None:
    check_stored(format, FORMATS[format], least=LEAST_PLAIN[format])


@pytest.mark.parametrize("format", FORMATS)
def test_mutated_messages(format: str) -> None:
    mutate = mutations_of(format)
    check_mutated(format, FORMATS[format], mutate)


@pytest.mark.parametrize("format", FORMATS)
def test_generated_events(format: str) -> None:
    check_generated(format)


def encoded(value: Any, key: Any = None) -> Message:
    texts = [None if part is None else json.dumps(part).encode() for part in (value, key)]
    return Message(texts[0], texts[1], (), "t")


# -- wal2json --------------------------------------------------------------------------------------


def column(name: str, type: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type, "value": value} | more


ID, NAME, PRICE = (
    column("id", "integer", 1),
    column("name", "text", "a"),
    column("price", "numeric(8,2)", 1.25),
)
OLD_NAME = column("name", "text", "b")


def wal(action: str, columns: Any, identity: Any = None, **more: Any) -> Message:
    value = {"action": action, "xid": 733, "timestamp": "2026-11-26 13:39:12.399065+00"}
    value |= {"lsn": "0/152E168", "schema": "public", "table": "orders"}
    images = {"columns": columns, "identity": identity}
    value |= {name: image for name, image in images.items() if image is not None}
    return encoded(value | more)


def test_plain_messages_of_wal2json() -> None:
    for one in (
        wal("I", [ID, NAME, PRICE]),
        wal("I", [ID, NAME], pk=[{"name": "id", "type": "integer"}], xid=None, lsn=None),
        wal("I", [ID, column("name", "text", None)], timestamp=None, origin=1),
        wal("I", [ID | {"optional": False}, PRICE | {"optional": True}]),
        wal("I", [ID | {"value": "1"}, PRICE | {"value": "1.50"}]),
        wal("I", [ID, column("name", "integer[]", "{1,NULL}"), column("ok", "boolean", True)]),
        wal("U", [ID, NAME]),
        wal("U", [ID, NAME], [ID]),
        wal("U", [ID, NAME], [ID], pk=[{"name": "id", "type": "integer"}]),
        wal("U", [ID, NAME], [ID, OLD_NAME]),
        wal("U", [ID, NAME], [ID, OLD_NAME], pk=[{"name": "id", "type": "integer"}]),
        wal("D", None, [ID]),
        wal("D", None, [ID, NAME, PRICE]),
    ):
        assert count("wal2json", [one] * 3) == 2
        assert count("wal2json", [one] * 3, {"keys": {"public.orders": ["id"]}}) == 2
        assert count("wal2json", [one] * 3, images=False) == 2


@pytest.mark.parametrize(
    ("plain", "other"),
    [
        (wal("I", [ID, NAME]), wal("I", [NAME, ID])),
        (wal("I", [ID, NAME]), wal("I", [ID])),
        (wal("I", [ID, NAME]), wal("I", [ID, NAME | {"type": "varchar"}])),
        (wal("I", [ID, NAME]), wal("I", [ID | {"optional": False}, NAME])),
        (wal("I", [ID, NAME]), wal("I", [ID | {"value": "1"}, NAME])),
        (wal("I", [ID, NAME]), wal("I", [ID | {"value": 1.0}, NAME])),
        (wal("I", [ID, NAME]), wal("I", [ID | {"value": 1 << 31}, NAME])),
        (wal("I", [ID, NAME]), wal("I", [ID | {"value": True}, NAME])),
        (wal("I", [ID, NAME]), wal("I", [ID, NAME], [ID])),
        (wal("I", [ID, NAME]), wal("I", [ID, NAME], pk=[{"name": "name"}])),
        (wal("I", [ID, NAME]), wal("I", [ID, NAME], lsn="0-1")),
        (wal("I", [ID, NAME]), wal("I", [ID, NAME], timestamp="yesterday")),
        (wal("I", [ID, NAME]), wal("I", [ID, NAME], table="")),
        (wal("I", [ID, NAME]), wal("D", None, [ID])),
        (wal("I", [ID, NAME]), wal("T", None)),
        (
            wal("I", [ID, PRICE | {"optional": False}]),
            wal("I", [ID, PRICE | {"optional": False, "value": None}]),
        ),
        (wal("U", [ID, NAME], [ID]), wal("U", [ID, NAME], [ID | {"value": 2}])),
        (wal("U", [ID, NAME], [ID]), wal("U", [ID, NAME], [ID | {"value": True}])),
        (wal("U", [ID, NAME], [ID]), wal("U", [ID, NAME], [ID, OLD_NAME])),
        (wal("U", [ID, NAME], [ID]), wal("U", [ID, NAME], [ID], pk=[])),
        (wal("U", [ID, NAME], [ID, NAME]), wal("U", [ID], [ID, NAME])),
        (wal("U", [ID, NAME], [ID, NAME]), wal("U", [ID, NAME], [NAME, ID])),
        (wal("D", None, [ID]), wal("D", [ID], [ID])),
        (wal("D", None, [ID]), wal("D", None, [ID, NAME])),
    ],
)
def test_other_messages_of_wal2json(plain: Message, other: Message) -> None:
    assert count("wal2json", [plain, plain, other]) == 1


@pytest.mark.parametrize(
    "one",
    [
        wal("I", [{"name": "id", "value": 1}]),  # without types
        wal("U", [NAME], [ID]),
        wal("U", [ID, NAME, PRICE], [ID], pk=[{"name": "name"}]),
        # equal texts of the key may be unequal values
        wal("U", [column("x", "real", "NaN"), NAME], [column("x", "real", "NaN")]),
    ],
)
def test_messages_of_wal2json_without_a_lane(one: Message) -> None:
    assert count("wal2json", [one] * 3) == 0


def test_the_messages_of_a_stream_are_not_converted_in_lanes() -> None:
    assert (
        conversion_lanes(get_codec("wal2json"), get_codec("canal-json"), reads_streams=True) is None
    )


# -- ticdc-open-json -------------------------------------------------------------------------------

Cells = dict[str, dict[str, Any]]
HANDLE = {"id": {"t": 3, "h": True, "f": 11, "v": 1}}
ROW: Cells = HANDLE | {
    "val": {"t": 15, "f": 64, "v": "aa"},
    "note": {"t": 252, "f": 64, "v": "YWE="},
    "price": {"t": 246, "f": 64, "v": "1.50"},
    "big": {"t": 8, "f": 192, "v": 1 << 63},
}


def cell(name: str, **more: Any) -> Cells:
    """Return the row with another cell."""
    return ROW | {name: ROW[name] | more}


def batch(*events: tuple[dict[str, Any], dict[str, Any]]) -> Message:
    """Return a message of events, each with further parts of its key, and its value."""
    own = {"ts": 415508878783938562, "scm": "test", "tbl": "t1", "t": 1}
    keys = [framed(json.dumps(own | more).encode()) for more, _ in events]
    values = [framed(json.dumps(value).encode()) for _, value in events]
    return Message(b"".join(values), VERSION + b"".join(keys), (), "t")


def ticdc(value: dict[str, Any], **more: Any) -> Message:
    return batch((more, value))


def test_plain_messages_of_ticdc_open() -> None:
    for one in (
        ticdc({"u": ROW}),
        ticdc({"u": ROW}, rid=5, ptn=7, ts=None),
        ticdc({"u": ROW, "p": cell("val", v=None)}),
        ticdc({"u": ROW, "p": dict(reversed(ROW.items()))}),
        ticdc({"u": ROW, "p": {"val": {"t": 15, "f": 64, "v": "b"}}}),
        ticdc({"u": ROW, "p": {}}),
        ticdc({"d": ROW}),
        ticdc({"d": HANDLE}, ohk=None),
        batch(({}, {"u": ROW}), ({"ts": 5}, {"u": ROW, "p": ROW}), ({}, {"d": ROW})),
    ):
        for options in FORMATS["ticdc-open-json"]:
            assert count("ticdc-open-json", [one] * 3, options) == 2
            assert count("ticdc-open-json", [one] * 3, options, images=False) == 2


@pytest.mark.parametrize(
    "other",
    [
        ticdc({"u": dict(reversed(ROW.items()))}),
        ticdc({"u": ROW | {"x": {"t": 3, "v": 1}}}),
        ticdc({"u": HANDLE}),
        ticdc({"u": cell("val", t=253)}),
        ticdc({"u": cell("val", f=65)}),
        ticdc({"u": cell("val", f=None)}),
        ticdc({"u": cell("val", h=True)}),
        ticdc({"u": cell("id", h=False)}),
        ticdc({"u": cell("id", v=1.0)}),
        ticdc({"u": cell("id", v="1")}),
        ticdc({"u": cell("id", v=1 << 31)}),
        ticdc({"u": cell("big", v=1 << 64)}),
        ticdc({"u": cell("note", v="a")}),
        ticdc({"u": cell("price", v="a")}),
        ticdc({"u": ROW, "p": cell("id", v=2)}),
        ticdc({"u": ROW, "p": cell("id", h=False)}),
        ticdc({"u": ROW, "p": {"val": {"t": 15, "f": 64, "v": None}}}),
        ticdc({"u": ROW, "p": {"val": {"t": 253, "f": 64, "v": "b"}}}),
        ticdc({"u": ROW, "p": {"old": {"t": 15, "f": 64, "v": "b"}}}),
        ticdc({"u": ROW, "d": ROW}),
        ticdc({"d": ROW, "p": ROW}),
        ticdc({"u": ROW}, tbl="t2"),
        ticdc({"u": ROW}, scm=None),
        ticdc({"u": ROW}, ts=-1),
        ticdc({"u": ROW}, ohk=True),
        ticdc({"u": ROW}, ccl="s3://x"),
        ticdc({"q": "ALTER TABLE t1 ADD x INT", "t": 5}, t=2),
        batch(({}, {"u": ROW}), ({"tbl": "t2"}, {"u": ROW})),
        batch(({}, {"u": ROW}), ({}, {"u": HANDLE})),
        Message(ticdc({"u": ROW}).value, None, (), "t"),
        Message(ticdc({"u": ROW}).value, b"\0" * 8, (), "t"),
        Message(b"", ticdc({"u": ROW}).key, (), "t"),
    ],
)
def test_other_messages_of_ticdc_open(other: Message) -> None:
    plain = ticdc({"u": ROW})
    assert count("ticdc-open-json", [plain, plain, other]) == 1
    count("ticdc-open-json", [plain, plain, other, plain, other], {"output_old_value": True})


# -- ticdc-simple-json -----------------------------------------------------------------------------

USER = {"age": "25", "id": "1", "name": "John Doe", "score": "95"}
ORDER = {"id": "1", "note": "a", "qty": None}
AT = {"location": "Asia/Shanghai", "value": "2024-06-02 10:15:00"}


def simple(type: str, data: Any, old: Any = None, **more: Any) -> Message:
    value = {"version": 1, "database": "simple", "table": "user", "tableID": 148, "type": type}
    value |= {"commitTs": 447984084414103554, "buildTs": 1708923662983, "data": data, "old": old}
    return encoded(value | {"schemaVersion": 447984074911121426} | more)


def test_plain_messages_of_ticdc_simple() -> None:
    shop = {"database": "shop", "table": "orders", "schemaVersion": None}
    checksum = {"version": 1, "corrupted": False, "current": 5, "previous": 6}
    for one in (
        simple("INSERT", USER),
        simple("INSERT", USER, commitTs=None, buildTs=None, handleKeyOnly=False, tableID=None),
        simple("UPDATE", USER, USER | {"name": None}),
        simple("UPDATE", USER),
        simple("DELETE", None, USER),
        simple("INSERT", ORDER, **shop),
        simple("UPDATE", ORDER, ORDER | {"qty": "3"}, **shop),
        simple("DELETE", None, {"id": "1"}, **shop),
    ):
        for options in FORMATS["ticdc-simple-json"]:
            assert count("ticdc-simple-json", [one] * 3, options) == 2
            assert count("ticdc-simple-json", [one] * 3, options, images=False) == 2
    at = simple("UPDATE", USER | {"name": AT}, USER | {"name": 1})
    assert count("ticdc-simple-json", [at] * 3) == 2
    compared = simple("INSERT", USER, checksum=checksum)
    counts = [count("ticdc-simple-json", [compared] * 3, o) for o in FORMATS["ticdc-simple-json"]]
    assert counts == [2, 0, 2]


@pytest.mark.parametrize(
    "other",
    [
        simple("INSERT", dict(reversed(USER.items()))),
        simple("INSERT", USER | {"x": "1"}),
        simple("INSERT", {"id": "1"}),
        simple("INSERT", USER, USER),
        simple("UPDATE", USER, {"id": "1"}),
        simple("UPDATE", USER, dict(reversed(USER.items()))),
        simple("DELETE", USER, USER),
        simple("DELETE", None, None),
        simple("DELETE", None, USER, handleKeyOnly=True),
        simple("INSERT", USER | {"name": {"location": "No/Where", "value": ""}}),
        simple("INSERT", USER, claimCheckLocation="s3://x"),
        simple("INSERT", USER, table="users"),
        simple("INSERT", USER, version=2),
        simple("INSERT", USER, commitTs=-1),
        simple("INSERT", USER, buildTs=10**15),
        simple("INSERT", USER, schemaVersion="1"),
        simple("INSERT", USER, tableSchema=5),
        simple("BOOTSTRAP", None, tableSchema=USERS),
        simple("WATERMARK", None),
    ],
)
def test_other_messages_of_ticdc_simple(other: Message) -> None:
    plain = simple("INSERT", USER)
    assert count("ticdc-simple-json", [plain, plain, other]) == 1
    for options in FORMATS["ticdc-simple-json"]:
        count("ticdc-simple-json", [plain, plain, other, plain, other], options)


@pytest.mark.parametrize(
    "other",
    [
        simple("INSERT", USER | {"id": "x"}),
        simple("INSERT", USER | {"id": 1}),
        simple("INSERT", USER | {"age": "2147483648"}),
        simple("INSERT", USER, schemaVersion=5),
        simple("UPDATE", USER, USER | {"age": "x"}),
        simple("UPDATE", USER, USER | {"id": "2"}),
    ],
)
def test_other_messages_of_declared_tables_of_ticdc_simple(other: Message) -> None:
    plain = simple("INSERT", USER)
    for options in FORMATS["ticdc-simple-json"][1:]:
        assert count("ticdc-simple-json", [plain, plain, other], options, images=False) == 1


# -- cockroachdb-json ------------------------------------------------------------------------------

ITEM = {"id": 1, "name": "a", "price": 12.25, "tags": {"a": [1]}}
TYPES = {"id": "int64 key", "name": "string", "price": "decimal(8,2)", "tags": "json"}
UPDATED = {"updated": "1701102311425045162.0000000001"}
FEED_SOURCE = {
    "database_name": "test", "schema_name": "public", "table_name": "items", "primary_keys": ["id"],
    "origin": "cockroachdb", "job_id": "7", "ts_hlc": "1745525261013511000.0000000000",
    "ts_ns": 1745525261013511000,
}  # fmt: skip
FIELDS = [
    {"field": "id", "optional": False, "type": "int64"},
    {"field": "name", "optional": True, "type": "string"},
    {"field": "price", "type": "string", "name": "decimal", "optional": True}
    | {"parameters": {"precision": "8", "scale": "2"}},
    {"field": "tags", "optional": True, "type": "json"},
]
FEED_SCHEMA = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": FIELDS}]}


def feed(after: Any, key: Any = (1,), **more: Any) -> Message:
    return encoded({"after": after} | more, key)


def enriched(op: str, after: Any, key: Any = (1,), **more: Any) -> Message:
    return feed(after, key, **{"op": op, "ts_ns": 5, "source": FEED_SOURCE} | more)


def wrapped(envelope: Message, schema: Any, **more: Any) -> Message:
    value = {"payload": json.loads(envelope.value or b""), "schema": schema}
    return encoded(value | more, {"id": 1})


def in_payload(envelope: Message) -> Message:
    return encoded({"payload": json.loads(envelope.value or b"")}, {"id": 1})


def test_plain_messages_of_cockroachdb() -> None:
    untyped, declared_items = {}, {"schemas": {"items": TYPES, "t": TYPES}}
    for one in (
        feed(ITEM, key=[1]),
        feed(ITEM, key=None, **UPDATED),
        feed(ITEM, key={"id": 1}),
        feed(ITEM, before=None, topic="items", mvcc_timestamp=UPDATED["updated"]),
        feed(ITEM, before=ITEM | {"name": None}, key=[1]),
        feed(None, before=ITEM, key=[1], **UPDATED),
        enriched("c", ITEM),
        enriched("u", ITEM, before=ITEM),
        enriched("d", None, before=ITEM),
        enriched("c", ITEM, source=None, key={"id": 1}),
    ):
        for options in (untyped, declared_items):
            assert count("cockroachdb-json", [one] * 3, options) == 2
            assert count("cockroachdb-json", [one] * 3, options, images=False) == 2
    one = wrapped(enriched("c", ITEM), FEED_SCHEMA)
    assert count("cockroachdb-json", [one] * 3) == 2
    assert count("cockroachdb-json", [one] * 3, declared_items) == 2


@pytest.mark.parametrize(
    ("plain", "other"),
    [
        *(
            (feed(ITEM, key=[1]), other)
            for other in (
                feed(dict(reversed(ITEM.items())), key=[1]),
                feed({"id": 1}, key=[1]),
                feed(ITEM, before=None, resolved=UPDATED["updated"]),
                feed(ITEM, more=1),
                feed(ITEM, key=[1], topic="other"),
                feed(ITEM, key={"id": 1}),
                feed(ITEM, updated="yesterday"),
                feed(ITEM, before={"id": 1}),
                feed(None, key=[1]),
                feed(None, key={"id": 1}),
                encoded({"resolved": UPDATED["updated"]}),
                encoded({"__crdb__": {}} | ITEM),
                encoded({"payload": [{"after": ITEM}], "length": 1}),
                encoded({"Key": [1], "Value": {"after": ITEM}, "Topic": "t"}),
            )
        ),
        *(
            (enriched("c", ITEM), other)
            for other in (
                enriched("x", ITEM),
                enriched("d", ITEM),
                enriched("u", None),
                enriched("c", ITEM, ts_ns=-1),
                enriched("c", ITEM, source=FEED_SOURCE | {"primary_keys": ["name"]}),
                enriched("c", ITEM, source=FEED_SOURCE | {"table_name": "other"}),
                enriched("c", ITEM, source=FEED_SOURCE | {"txId": 5}),
                enriched("c", ITEM, source=FEED_SOURCE | {"ts_hlc": 5}),
                enriched("c", ITEM, source=FEED_SOURCE | {"more": [[1]]}),
                enriched("c", ITEM, source={}),
                wrapped(enriched("c", ITEM), FEED_SCHEMA),
            )
        ),
        (enriched("c", ITEM, {"id": 1}, source=None), enriched("c", ITEM, source=None)),
        (in_payload(enriched("c", ITEM)), wrapped(enriched("c", ITEM), None)),
        (in_payload(enriched("c", ITEM)), wrapped(enriched("c", ITEM), FEED_SCHEMA)),
        (wrapped(enriched("c", ITEM), FEED_SCHEMA), wrapped(enriched("c", ITEM), None)),
        (wrapped(enriched("c", ITEM), FEED_SCHEMA), in_payload(enriched("c", ITEM))),
        (
            wrapped(enriched("c", ITEM), FEED_SCHEMA),
            wrapped(enriched("c", ITEM), FEED_SCHEMA, resolved=UPDATED["updated"]),
        ),
        (
            wrapped(enriched("c", ITEM), FEED_SCHEMA),
            wrapped(enriched("c", ITEM), FEED_SCHEMA | {"name": "other"}),
        ),
        (
            wrapped(enriched("c", ITEM), FEED_SCHEMA),
            wrapped(enriched("c", ITEM | {"price": "x"}), FEED_SCHEMA),
        ),
    ],
)
def test_other_messages_of_cockroachdb(plain: Message, other: Message) -> None:
    assert count("cockroachdb-json", [plain, plain, other], images=False) == 1
    options = {"schemas": {"items": TYPES, "t": TYPES}}
    count("cockroachdb-json", [plain, plain, other, plain, other], options)


def test_the_topic_of_cockroachdb_names_the_table() -> None:
    one = feed(ITEM, key=[1])
    other = Message(one.value, one.key, (), "other")
    assert count("cockroachdb-json", [one, one, other, other, one, other]) == 4


def test_publications_of_cockroachdb_name_their_table() -> None:
    plain, value = feed(ITEM), {"Key": [1], "Value": {"after": ITEM}, "Topic": "other"}
    for published in (encoded(value), encoded(value | {"after": ITEM})):
        assert count("cockroachdb-json", [published, plain, plain, published, plain]) == 2


def test_messages_of_cockroachdb_without_a_lane() -> None:
    declared_items = {"schemas": {"t": TYPES}}
    key_change = feed(ITEM, before=ITEM | {"id": 2}, key=[1])
    assert count("cockroachdb-json", [key_change] * 3, declared_items) == 0
    assert count("cockroachdb-json", [encoded(ITEM, [1])] * 3, {"envelope": "bare"}) == 0


# -- spanner-json ----------------------------------------------------------------------------------


def spanner_columns(**types: str) -> list[dict[str, Any]]:
    """Return the columns of a record; the first one is its key."""
    return [
        {"name": name, "type": {"code": code}, "is_primary_key": place == 1}
        | {"ordinal_position": place}
        for place, (name, code) in enumerate(types.items(), 1)
    ]


SINGER = spanner_columns(id="INT64", name="STRING", price="NUMERIC", tags="JSON")
KEYS, NEW = {"id": "1"}, {"tags": None, "name": "a", "price": "1.250000000"}
OLD = NEW | {"name": "b"}


def spanner(mod_type: str, *mods: dict[str, Any], capture: str = "NEW_ROW", **more: Any) -> Message:
    value = {
        "commit_timestamp": "2022-09-27T12:30:00.123456Z", "record_sequence": "00000000",
        "server_transaction_id": "OTAxMjI0MTg", "is_last_record_in_transaction_in_partition": True,
        "table_name": "Singers", "value_capture_type": capture, "column_types": SINGER,
        "mods": mods, "mod_type": mod_type, "number_of_records_in_transaction": 2,
        "number_of_partitions_in_transaction": 2, "transaction_tag": "", "is_system_transaction":
        False,
    }  # fmt: skip
    return encoded(value | more)


def mod(keys: Any = KEYS, new: Any = NEW, old: Any = None) -> dict[str, Any]:
    return {"keys": keys, "new_values": new, "old_values": {} if old is None else old}


DIFF, WHOLE_DIFF = "OLD_AND_NEW_VALUES", "NEW_ROW_AND_OLD_VALUES"


def test_plain_records_of_spanner() -> None:
    for one in (
        spanner("INSERT", mod()),
        spanner("INSERT", mod(), mod({"id": "2"}), commit_timestamp=None),
        spanner("INSERT", {"keys": KEYS, "new_values": NEW}, record_sequence=None),
        spanner("UPDATE", mod()),
        spanner("UPDATE", mod(), capture="NEW_VALUES", server_transaction_id=None),
        spanner("UPDATE", mod(old=OLD), capture=DIFF),
        spanner("UPDATE", mod(old=OLD), capture=WHOLE_DIFF),
        spanner("UPDATE", mod(old={"name": None}), mod(old={"price": "1"}), capture=WHOLE_DIFF),
        spanner("DELETE", mod(new={})),
        spanner("DELETE", mod(new=None), capture="NEW_VALUES"),
        spanner("DELETE", mod(new={}, old=OLD), capture=DIFF),
        spanner("INSERT", mod(new={}), column_types=SINGER[:1]),
    ):
        assert count("spanner-json", [one] * 3) == 2
        assert count("spanner-json", [one] * 3, images=False) == 2
        assert count("spanner-json", [one] * 3, keys={"Singers": ("id",)}) == 2
        count("spanner-json", [one] * 3, keys={"Singers": ("name",)})


@pytest.mark.parametrize(
    ("plain", "other"),
    [
        *(
            (spanner("INSERT", mod()), other)
            for other in (
                spanner("INSERT", mod(new=NEW | {"x": "1"})),
                spanner("INSERT", mod(new={"name": "a"})),
                spanner("INSERT", mod(new=NEW | KEYS)),
                spanner("INSERT", mod(new=NEW | {"id": "2"})),
                spanner("INSERT", mod(old=OLD)),
                spanner("INSERT", mod({"id": "x"})),
                spanner("INSERT", mod({"id": str(1 << 63)})),
                spanner("INSERT", mod({})),
                spanner("INSERT", mod(), mod({})),
                spanner("INSERT", mod(new=NEW | {"price": "x"})),
                spanner("INSERT"),
                spanner("INSERT", mod(), column_types=list(reversed(SINGER))),
                spanner("INSERT", mod(), column_types=5),
                spanner("INSERT", mod(), commit_timestamp="yesterday"),
                spanner("INSERT", mod(), record_sequence="x"),
                spanner("INSERT", mod(), table_name="other"),
                spanner("INSERT", mod(), more=1),
                spanner("INSERT", mod(), capture="ALL"),
                spanner("UPSERT", mod()),
                encoded(
                    {"data_change_record": [json.loads(spanner("INSERT", mod()).value or b"")]}
                ),
                encoded({"heartbeat_record": {"timestamp": "2022-09-27T12:30:00Z"}}),
            )
        ),
        (
            spanner("UPDATE", mod(old=OLD), capture=DIFF),
            spanner("UPDATE", mod(old={"name": "b"}), capture=DIFF),
        ),
        (spanner("DELETE", mod(new={})), spanner("DELETE", mod())),
        (spanner("DELETE", mod(new={})), spanner("DELETE", mod(new={}, old=OLD))),
        (
            spanner("DELETE", mod(new={}, old=OLD), capture=DIFF),
            spanner("DELETE", mod(new={}), capture=DIFF),
        ),
    ],
)
def test_other_records_of_spanner(plain: Message, other: Message) -> None:
    assert count("spanner-json", [plain, plain, other]) == 1
    count("spanner-json", [plain, plain, other, plain, other], images=False)


# -- dynamodb-json ---------------------------------------------------------------------------------

BOOK = {"id": {"N": "1"}, "title": {"S": "a"}, "price": {"N": "1.25"}, "tags": {"SS": ["b", "a"]}}
BOOK |= {
    "more": {"M": {"a": {"L": [{"N": "1"}]}}},
    "is_new": {"BOOL": True},
    "none": {"NULL": True},
}
BOOK_TYPES = {
    "id": "int64 key", "title": "string", "price": "decimal(8,2)", "tags": "json", "more": "json",
    "is_new": "boolean", "none": "string",
}  # fmt: skip
BOOKS = {"schemas": {"books": BOOK_TYPES}}
ARN = "arn:aws:dynamodb:us-west-2:1:table/books/stream/2015-06-27T00:48:05.899"


def book(event: str, new: Any, old: Any = None, keys: Any = ("id",), **more: Any) -> Message:
    stream = {
        "ApproximateCreationDateTime": 1719347890250, "Keys": {name: BOOK[name] for name in keys},
        "SequenceNumber": "300000000000000499659", "SizeBytes": 26, "NewImage": new,
        "OldImage": old,
    }  # fmt: skip
    value = {
        "eventName": event, "dynamodb": stream | more.pop("stream", {}), "awsRegion": "us-east-1",
        "eventID": "1", "eventVersion": "1.1", "eventSource": "aws:dynamodb", "tableName": "books",
    }  # fmt: skip
    return encoded(value | more)


def test_plain_records_of_dynamodb() -> None:
    sparse = {"id": {"N": "1"}}
    for one in (
        book("INSERT", BOOK),
        book("INSERT", BOOK, tableName=None, eventSourceARN=ARN, userIdentity=None),
        book("INSERT", BOOK, stream={"SequenceNumber": None}),
        book("MODIFY", BOOK),
        book("MODIFY", BOOK, BOOK | {"title": {"NULL": True}}),
        book("MODIFY", BOOK, BOOK | {"price": {"N": "2.50"}}, recordFormat="application/json"),
        book("MODIFY", BOOK, sparse),
        book("REMOVE", None, BOOK),
        book("REMOVE", {}, BOOK),
        book("INSERT", BOOK, stream={"ApproximateCreationDateTime": None}),
    ):
        for options in ({}, {"nested": "typed"}, {"order": "offset"}, BOOKS):
            assert count("dynamodb-json", [one] * 3, options) == 2
            assert count("dynamodb-json", [one] * 3, options, images=False) == 2
    removed, added = book("REMOVE", None), book("MODIFY", sparse, BOOK)
    assert count("dynamodb-json", [book("MODIFY", BOOK, dict(reversed(BOOK.items())))] * 3) == 0
    assert count("dynamodb-json", [removed] * 3) == 2
    assert count("dynamodb-json", [removed] * 3, BOOKS) == 0
    assert count("dynamodb-json", [added] * 3) == 0
    assert count("dynamodb-json", [added] * 3, BOOKS) == 2


@pytest.mark.parametrize(
    "other",
    [
        book("INSERT", dict(reversed(BOOK.items())) | {"x": {"S": "a"}}),
        book("INSERT", BOOK, BOOK),
        book("INSERT", None),
        book("REMOVE", BOOK, BOOK),
        book("INSERT", BOOK | {"id": {"NULL": True}}),
        book("MODIFY", BOOK, BOOK | {"id": {"N": "2"}}),
        book("INSERT", BOOK | {"price": {"N": "x"}}),
        book("INSERT", BOOK | {"price": {"N": "1", "S": "1"}}),
        book("INSERT", BOOK | {"title": {"X": "x"}}),
        book("INSERT", BOOK | {"title": {}}),
        book("INSERT", BOOK | {"title": {"S": None}}),
        book("INSERT", BOOK | {"title": {"S": "a", "N": None}}),
        book("INSERT", BOOK | {"title": {"S": "a", "BOOL": True}}),
        book("INSERT", BOOK | {"none": {"NULL": None, "BOOL": True}}),
        book("INSERT", BOOK | {"id": {"N": "\u0661"}}),
        book("INSERT", BOOK | {"price": {"N": 1.25}}),
        book("INSERT", BOOK | {"price": {"NS": ["1"]}}),
        book("INSERT", BOOK | {"none": {"NULL": True, "BOOL": True}}),
        book("INSERT", BOOK | {"none": {"NULL": None}}),
        book("INSERT", BOOK | {"more": {"M": json.loads('{"L":[' * 205 + "{}" + "]}" * 205)}}),
        book("INSERT", BOOK, keys=("title",)),
        book("INSERT", BOOK, keys=("id", "title")),
        book("INSERT", BOOK, stream={"Keys": None}),
        book("INSERT", BOOK, stream={"more": 1}),
        book("INSERT", BOOK, stream={"ApproximateCreationDateTime": "yesterday"}),
        book("INSERT", BOOK, stream={"ApproximateCreationDateTime": 10**20}),
        book("INSERT", BOOK, stream={"SequenceNumber": "x"}),
        book("INSERT", BOOK, tableName="other"),
        book("INSERT", BOOK, userIdentity={"type": "Service"}),
        book("INSERT", BOOK, more=1),
        book("PUT", BOOK),
        encoded({"Records": [json.loads(book("INSERT", BOOK).value or b"")]}),
    ],
)
def test_other_records_of_dynamodb(other: Message) -> None:
    plain = book("INSERT", BOOK)
    assert count("dynamodb-json", [plain, plain, other]) == 1
    assert count("dynamodb-json", [plain, plain, other], BOOKS) == 1
    count("dynamodb-json", [plain, plain, other, plain, other], {"keys": {"books": ["id"]}})


@pytest.mark.parametrize(
    "other",
    [
        book("INSERT", BOOK | {"id": {"N": str(1 << 63)}}),
        book("INSERT", BOOK | {"title": {"B": "AA=="}}),
        book("INSERT", BOOK | {"is_new": {"S": "x"}}),
    ],
)
def test_other_records_of_declared_tables_of_dynamodb(other: Message) -> None:
    plain = book("INSERT", BOOK)
    count("dynamodb-json", [plain, plain, other, plain, other])
    count("dynamodb-json", [plain, plain, other, plain, other], BOOKS, images=False)


# -- CloudEvents of debezium-json ------------------------------------------------------------------


@cache
def cloud_events(mode: str = "structured") -> list[Message]:
    """Return the stored messages of PostgreSQL and MariaDB in CloudEvents."""
    messages: list[Message] = []
    for name in ("debezium-postgres-noschema", "debezium-mariadb-schema"):
        for one in read(GOLDEN / "debezium-json" / "captured" / f"{name}.jsonl"):
            codec = get_codec("debezium-json", cloud_events=mode)
            for event in codec.decode(one):
                with suppress(EncodeError):
                    messages += codec.encode(event, on_loss="ignore").messages
    return [msgspec.structs.replace(one, topic="t") for one in messages[::2] if one.value]


def test_cloud_events() -> None:
    stored = [one for one in goldens("debezium-json") if is_structured(one.value or b"")]
    assert stored
    for one in stored:
        assert count("debezium-json", [one] * 3) in {0, 2}
    events, binary = cloud_events(), cloud_events("binary")
    assert count("debezium-json", events * 2) > 0.3 * 2 * len(events)
    assert count("debezium-json", binary * 2) == 0
    # all three forms in one topic
    mixed = [*events[::4], *binary[::4], *goldens("debezium-json")[::4]]
    count("debezium-json", mixed * 2, {"before_image": "full"}, images=False)


def test_mutated_cloud_events() -> None:
    check_mutated("debezium-json", ({}, {"before_image": "key"}), messages=cloud_events())


def test_other_cloud_events() -> None:
    plain = next(one for one in cloud_events() if count("debezium-json", [one] * 3))
    value = plain.value or b""
    hybrid = value[:-1] + b',"op":"c","source":{"connector":"postgresql"},"after":{"id":1}}'
    reordered = b'{"specversion":"1.0",' + hybrid[1:]
    for other in (hybrid, reordered, value.replace(b'"1.0"', b"1"), value[:-1]):
        message = Message(other, plain.key, (), "t")
        count("debezium-json", [plain, plain, message, plain, message, message])
    with_header = msgspec.structs.replace(plain, headers=(("ce_specversion", b"1.0"),))
    assert count("debezium-json", [plain, plain, with_header]) == 1

# SPDX-License-Identifier: Apache-2.0
"""Lanes of the other formats give the rows and the errors of the event path."""

import json
from typing import Any

import pytest
from dts_records import V1, branch, character, integer, record
from lane_checks import check_generated, check_mutated, check_stored, count
from mutated_messages import mutations_of

from changelane.message import Message

pytestmark = pytest.mark.usefixtures("early_lanes")

FORMATS: dict[str, tuple[dict[str, Any], ...]] = {
    "cdl-debezium-json": (
        {},
        {"before_image": "full"},
        {"before_image": "key"},
        {"placeholder": "null"},
    ),
    "cdl-json": ({}, {"before_image": "full"}, {"before_image": "key", "owner": "database"}),
    "arcion-json": (
        {},
        {"source_ts_offset_ms": 3_600_000},
        {"row_identifier_key": {"orders": ["id"]}},
    ),
    "debezium-flat-json": (
        {},
        {"before_image": "full"},
        {"before_image": "key", "placeholder": "null"},
        {"table": "public.t", "add_headers": "op", "delete_tombstone_handling_mode": "rewrite"},
    ),
    "dts-avro": ({}, {"strict": True}, {"binlog_prefix": "binlog"}),
    "shareplex-json": (
        {},
        {"dialect": "dts", "time_zone": "+08:00"},
        {"dialect": "native", "strict": True},
        {"key_image": "full"},
        {"key_image": "key"},
    ),
}


@pytest.mark.parametrize("format", FORMATS)
def test_stored_messages(format: str) -> None:
    check_stored(format, FORMATS[format])


@pytest.mark.parametrize("format", FORMATS)
def test_mutated_messages(format: str) -> None:
    check_mutated(format, FORMATS[format], mutations_of(format))


@pytest.mark.parametrize("format", FORMATS)
def test_generated_events(format: str) -> None:
    check_generated(format)


# -- cdl-debezium-json and arcion-json -------------------------------------------------------------

ROW, OTHER = {"id": 1, "name": "a"}, {"id": 1, "name": "b"}
CDL_SOURCE = {
    "version": "1.4.0.Final", "connector": "postgresql", "name": "cdl", "ts_ms": 5, "snapshot":
    "false", "db": "cdl", "schema": "public", "table": "t", "txId": 7, "lsn": 9,
}  # fmt: skip
ARCION_SOURCE = {
    "version": "5.7.41", "connector": "MYSQL", "name": "KAFKA_Connector", "ts_ms": 5, "db": "tpch",
    "schema": None, "table": "t", "snapshot": "false", "server_id": "1", "gtid": None, "file":
    "mysql-log.000013", "pos": 4, "row": 1, "thread": 3, "query": None,
}  # fmt: skip


def encoded(value: Any, key: Any = None) -> Message:
    texts = [None if part is None else json.dumps(part).encode() for part in (value, key)]
    return Message(texts[0], texts[1], (), "t")


def cdl(op: str, before: Any, after: Any, **more: Any) -> Message:
    value = {"before": before, "after": after, "source": CDL_SOURCE, "op": op, "ts_ms": 6}
    value |= {"message_version": "2.0", "message_type": "0", "LOB_COLUMNS": None}
    return encoded(value | {"unique": {"id": 1}} | more, {"any": "key"})


def arcion(op: str, before: Any, after: Any, **more: Any) -> Message:
    value = {"before": before, "after": after, "source": ARCION_SOURCE, "op": op, "ts_ms": 6}
    return Message(json.dumps(value | more, separators=(",", ":")).encode(), b'{"id":1}', (), "t")


def test_plain_messages_of_cdl_debezium() -> None:
    deleted = ROW | {"name": None}
    for one in (cdl("c", None, ROW), cdl("u", OTHER, ROW), cdl("d", deleted, None)):
        assert count("cdl-debezium-json", [one] * 3) == 2
    snapshot = CDL_SOURCE | {"snapshot": "true"}
    assert count("cdl-debezium-json", [cdl("c", None, ROW, source=snapshot)] * 3) == 2


@pytest.mark.parametrize(
    "other",
    [
        cdl("c", None, ROW, unique={"name": "a"}),
        cdl("c", None, ROW, unique={"id": 1, "name": "a"}),
        cdl("c", None, ROW, unique=None),
        cdl("c", None, ROW, LOB_COLUMNS="name"),
        cdl("c", None, ROW, message_version="1.0"),
        cdl("c", None, ROW, more=1),
        cdl("u", {"id": 2, "name": "a"}, ROW),
        cdl("d", None, ROW),
        cdl("d", None, None),
        cdl("c", None, ROW | {"name": "__debezium_unavailable_value"}),
        cdl("c", None, ROW, source=CDL_SOURCE | {"table": "cdc_heartbeat", "schema": "cdc_cdl"}),
    ],
)
def test_other_messages_of_cdl_debezium(other: Message) -> None:
    plain = cdl("c", None, ROW)
    assert count("cdl-debezium-json", [plain, plain, other, plain, other]) == 2


def test_plain_messages_of_arcion() -> None:
    for one in (arcion("c", {}, ROW), arcion("u", OTHER, ROW), arcion("d", ROW, {})):
        assert count("arcion-json", [one] * 3) == 2
    other = arcion("c", {}, {"before": {}, "after": {}})
    assert count("arcion-json", [other] * 3) == 0
    plain, moved = arcion("u", OTHER, ROW), arcion("u", OTHER | {"id": 2}, ROW)
    assert count("arcion-json", [plain, plain, moved, plain, arcion("c", {}, {}), plain]) == 3


def cdl_json(operation: str, before: Any, data: Any, **more: Any) -> Message:
    properties = [{"name": "lsn", "value": 9}, {"name": "txId", "value": 7}]
    value = {
        "DATA_STORE": "POSTGRESQL", "SEG_OWNER": "public", "TABLE_NAME": "t", "TIMESTAMP": 5,
        "OPERATION": operation, "LOB_COLUMNS": None, "transaction": {"properties": properties},
        "unique": {"id": 1}, "data": data, "before": before, "message_version": "1.0",
        "message_type": "0", "HEARTBEAT_IDENTIFIER": "279fb050",
    }  # fmt: skip
    return encoded(value | more, {"any": "key"})


def test_plain_messages_of_cdl() -> None:
    for one in (
        cdl_json("INSERT", None, ROW),
        cdl_json("UPDATE", OTHER, ROW),
        cdl_json("DELETE", ROW | {"name": None}, None),
        cdl_json("INSERT", None, ROW, unique=None, transaction=None, message_version=None),
    ):
        assert count("cdl-json", [one] * 3) == 2


@pytest.mark.parametrize(
    "other",
    [
        cdl_json("INSERT", None, ROW, unique={"name": "a", "id": 1}),
        cdl_json("INSERT", None, ROW, unique=None),
        cdl_json("INSERT", None, ROW, LOB_COLUMNS="name"),
        cdl_json("INSERT", None, ROW, message_version="2.0"),
        cdl_json("INSERT", None, ROW, transaction={"properties": None, "id": 1}),
        cdl_json("INSERT", OTHER, ROW),
        cdl_json("UPDATE", {"id": 2, "name": "a"}, ROW),
        cdl_json("DELETE", None, ROW),
        cdl_json("TRUNCATE", None, None),
    ],
)
def test_other_messages_of_cdl(other: Message) -> None:
    plain = cdl_json("INSERT", None, ROW)
    assert count("cdl-json", [plain, plain, other, plain, other]) == 2


def test_a_message_of_cdl_without_its_product() -> None:
    plain = cdl_json("INSERT", None, ROW, DATA_STORE=None)
    value = (plain.value or b"").replace(b'"DATA_STORE": null, ', b"")
    assert count("cdl-json", [plain, plain, Message(value, plain.key, (), "t"), plain]) == 2


# -- debezium-flat-json ----------------------------------------------------------------------------


def flat(op: str = "c", headers: Any = (("__op", b"c"),), **more: Any) -> Message:
    value = ROW | {"__deleted": "false", "__op": op, "__table": "t", "__source_ts_ms": 5}
    value |= {"__lsn": 22, "__sequence": '["11","22"]', "__txId": 4, "__transaction_id": "9"} | more
    return Message(json.dumps(value, separators=(",", ":")).encode(), b'{"id":1}', headers, "t")


def test_plain_rows() -> None:
    for one in (
        *map(flat, "cur"),
        flat("d", __deleted="true"),
        flat("c", __deleted="true"),
        flat(__deleted=False, __source_ts_us=7, __ts_ms=8),
        flat(name=None, __schema="public", __transaction_total_order=3),
    ):
        assert count("debezium-flat-json", [one] * 3) == 2
        assert count("debezium-flat-json", [one] * 3, {"before_image": "key"}) == 2


@pytest.mark.parametrize(
    "other",
    [
        flat("x"),
        flat(__lsn=None),
        flat(__lsn="22"),
        flat(__deleted=None),
        flat(__source_ts_ms="5"),
        flat(__xmin=3),
        flat(more=3),
        flat(id=2),
        flat(name="__debezium_unavailable_value"),
        flat(headers=(("__lsn", b"23"),)),
        flat(headers=(("__debezium.newkey", b'{"id":9}'),)),
    ],
)
def test_other_rows(other: Message) -> None:
    plain = flat()
    assert count("debezium-flat-json", [plain, plain, other, plain, other]) == 2


def test_rows_whose_table_depends_on_the_topic_have_no_lane() -> None:
    one = flat(__table=None)
    assert count("debezium-flat-json", [one] * 3) == 0
    assert count("debezium-flat-json", [flat()] * 3, {"topic": "server.table"}) == 0
    named = flat(__name="dbz")
    assert count("debezium-flat-json", [named] * 3, {"topic": "server.table"}) == 2


# -- dts-avro --------------------------------------------------------------------------------------


def dts(operation: str, before: Any, after: Any, **more: Any) -> Message:
    fields = [{"name": "id", "dataTypeNumber": 3}, {"name": "name", "dataTypeNumber": 253}]
    tags = {"pk_uk_info": '{"PRIMARY":["id"]}'}
    images = {"beforeImages": before, "afterImages": after}
    value = record(operation=operation, fields=fields, **{"tags": tags} | images | more)
    return Message(value, None, (), "t")


VALUES, NEW = [integer(1), character(b"a")], [integer(1), None]


def test_plain_records() -> None:
    for one in (
        dts("INSERT", None, VALUES),
        dts("INIT", None, VALUES),
        dts("INSERT", None, VALUES, schema=V1, sourcePosition="0@0"),
        dts("UPDATE", VALUES, NEW, sourceTxid="5"),
        dts("UPDATE", None, NEW),
        dts("DELETE", VALUES, None),
    ):
        assert count("dts-avro", [one] * 3) == 2
        assert count("dts-avro", [one] * 3, images=False) == 2


@pytest.mark.parametrize(
    "other",
    [
        dts("INSERT", None, [integer(1), integer(2)]),
        dts("INSERT", None, [integer(1), branch("EmptyObject", "NONE")]),
        dts("INSERT", VALUES, VALUES),
        dts("INSERT", None, [integer(1)]),
        dts("UPDATE", [integer(2), None], VALUES),
        dts("DELETE", VALUES, VALUES),
        dts("DELETE", None, None),
        dts("BEGIN", None, None),
        dts("INSERT", None, VALUES, sourceTimestamp=1 << 60),
        dts("INSERT", None, VALUES, tags={"pk_uk_info": '{"PRIMARY":["name"]}'}),
        Message((dts("INSERT", None, VALUES).value or b"") + b"\0", topic="t"),
        Message((dts("INSERT", None, VALUES).value or b"")[:-6], topic="t"),
    ],
)
def test_other_records(other: Message) -> None:
    plain = dts("INSERT", None, VALUES)
    assert count("dts-avro", [plain, plain, other, plain]) == 2

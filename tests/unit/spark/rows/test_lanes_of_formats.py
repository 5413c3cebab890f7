# SPDX-License-Identifier: Apache-2.0
"""Lanes of the other formats give the rows and the errors of the event path."""

import json
from pathlib import Path
from typing import Any

import pytest
from dts_records import V1, branch, character, integer, record
from hypothesis import given, settings
from hypothesis import strategies as st
from lane_messages import ARGUMENTS, lane_rows, numbered, read
from mutated_messages import mutations

from changelane import get_codec
from changelane.errors import EncodeError
from changelane.message import Message
from changelane.testing.conformance import EFFORT
from changelane.testing.event_strategies import data_changes

pytestmark = pytest.mark.usefixtures("early_lanes")

GOLDEN = Path(__file__).parents[3] / "golden"


def goldens(format: str) -> list[Message]:
    """Return the stored messages of a format with values."""
    folder = GOLDEN / format
    messages = [one for path in sorted(folder.glob("*/*.jsonl")) for one in read(path)]
    for path in sorted(folder.glob("*/*/value")):
        key = path.with_name("key")
        messages.append(Message(path.read_bytes(), key.read_bytes() if key.exists() else None))
    return [Message(one.value, one.key, one.headers, "t") for one in messages if one.value]


ORDERS = {"id": "int64 key", "note": "string", "qty": "decimal(10,2)"}

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
    "aws-dms-json": (
        {},
        {"order": "transaction", "owner": "database"},
        {"order": "offset", "absent": "unchanged", "before": "object"},
        {"before": "prefix:BI_", "keys": {"orders": ["id"]}},
        {"schemas": {"orders": ORDERS}},
        {"schemas": {"orders": ORDERS | {"note": "string lob"}}, "absent": "unchanged"},
    ),
    "changelog-json": ({}, {"table": "a.b"}, {"schemas": {"orders": ORDERS}, "table": "orders"}),
    "datastream-json": (
        {},
        {"keys": {"orders": ["id"]}},
        {"schemas": {"orders": ORDERS}, "binary": "hex"},
    ),
    "maxwell-json": (
        {},
        {"row_image": "full", "order": "offset"},
        {"row_image": "minimal"},
        {"nulls": "dropped"},
    ),
    "ogg-json": (
        {},
        {"row_image": "full", "time_zone": "UTC", "current_time_zone": "+08:00"},
        {"order": "offset", "model": "operation", "product": "oracle"},
        {"order": "scn", "pk_update_op_key": "PU"},
    ),
    "plain-json": ({}, {"table": "a.b"}, {"schemas": {"orders": ORDERS}, "table": "orders"}),
    "qlik-json": (
        {},
        {"table_from": "none", "tables": {"7": "S.T"}},
        {"schemas": {"orders": ORDERS}, "tables": {"1": "orders"}},
    ),
    "shareplex-json": (
        {},
        {"dialect": "dts", "time_zone": "+08:00"},
        {"dialect": "native", "strict": True},
        {"key_image": "full"},
        {"key_image": "key"},
    ),
}
MESSAGES = {name: goldens(name) for name in FORMATS}
DECLARED: dict[str, list[Message]] = {}
"""Messages of the table that the option ``schemas`` declares."""


def count(format: str, messages: list[Message], options: Any = None, **arguments: Any) -> int:
    return lane_rows(numbered(messages), options, format, **arguments)[0]


@pytest.mark.parametrize("format", FORMATS)
def test_stored_messages(format: str) -> None:
    for options in FORMATS[format]:
        messages = [copy for one in MESSAGES[format] for copy in (one, one, one)]
        plain, with_row = lane_rows(numbered(messages), options, format)
        if "schemas" in options or options.get("order") == "scn":
            continue  # the tables have other columns, or the messages no SCN
        # two of three: the first message of a table and schema opens the lane
        assert plain > 0.4 * with_row


@st.composite
def changed_bytes(draw: st.DrawFn, data: bytes) -> bytes:
    """Return bytes with one byte changed, removed or added, or cut off."""
    place = draw(st.integers(0, len(data) - 1))
    new = bytes([draw(st.integers(0, 255))])
    head, tail, longer = data[:place], data[place + 1 :], data[place:]
    forms = (head + new + tail, head + tail, head + new + longer, head, data + new)
    return draw(st.sampled_from(forms))


@pytest.mark.parametrize("format", FORMATS)
def test_mutated_messages(format: str) -> None:
    plain: list[int] = []
    mutate = changed_bytes if format == "dts-avro" else mutations
    messages = MESSAGES[format] + DECLARED.get(format, [])
    plain_messages = [one for one in messages if count(format, [one] * 3)]

    @settings(max_examples=30 * EFFORT)
    @given(
        st.data(),
        st.lists(
            st.sampled_from(plain_messages) | st.sampled_from(messages), min_size=1, max_size=3
        ),
        st.sampled_from(ARGUMENTS),
        st.sampled_from(FORMATS[format]),
    )
    def check(data: st.DataObject, chosen: list[Message], arguments: Any, options: Any) -> None:
        if "schemas" in options:
            chosen = data.draw(st.lists(st.sampled_from(DECLARED[format]), min_size=1, max_size=3))
        mutated: list[Message] = []
        for one in chosen * data.draw(st.integers(1, 2)):
            key = one.key
            if key and data.draw(st.integers(0, 3)) == 0:
                key = data.draw(st.sampled_from((None, b"", b"null", key + b" ", b'{"x":1}')))
            mutated.append(Message(data.draw(mutate(one.value or b"")), key, one.headers, "t"))
        sent = [*chosen, *mutated, *chosen, *mutated, *chosen]
        plain.append(count(format, sent, options, **arguments))

    check()
    assert sum(number > 0 for number in plain) > 0.2 * len(plain)


@pytest.mark.parametrize("format", FORMATS)
def test_generated_events(format: str) -> None:
    plain: list[int] = []
    codec = get_codec(format)

    @settings(max_examples=15 * EFFORT)
    @given(data_changes(codec.carries), data_changes(codec.carries))
    def check(change: Any, other: Any) -> None:
        messages: list[Message] = []
        for event in (change, other):
            try:
                messages += codec.encode(event, on_loss="ignore").messages
            except EncodeError:
                continue
        plain.append(count(format, messages * 3))

    check()
    assert sum(number > 0 for number in plain) > 0.2 * len(plain)


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
    """Return a message of JSON."""
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


# -- formats without column types ------------------------------------------------------------------


def order(number: Any = 1, note: Any = "a", qty: Any = "1.50") -> dict[str, Any]:
    return {"id": number, "note": note, "qty": qty}


TYPED = {"schemas": {"orders": ORDERS}}


def dms(operation: str, data: Any, before: Any = None, **more: Any) -> Message:
    metadata = {"record-type": "data", "operation": operation, "schema-name": "public"}
    metadata |= {"table-name": "orders", "transaction-id": 7, "transaction-record-id": 1}
    metadata |= {"timestamp": "2024-10-27T12:39:03.210671Z"}
    metadata |= {"commit-timestamp": "2024-10-27T12:39:03.210671Z"} | more
    value = {"data": data, "metadata": metadata}
    return encoded(value if before is None else value | {"before-image": before})


DECLARED["aws-dms-json"] = [
    dms("insert", order()),
    dms("load", order(qty=None)),
    dms("update", {"id": 1, "note": "b"}, order()),
    dms("delete", order(qty=2)),
]


@pytest.mark.parametrize("options", [{}, TYPED, {"order": "transaction"}, {"order": "offset"}])
def test_plain_records_of_dms(options: dict[str, Any]) -> None:
    for one in (
        dms("insert", order()),
        dms("load", order(note=None)),
        dms("update", order(), order(note="b")),
        dms("delete", order()),
    ):
        assert count("aws-dms-json", [one] * 3, options) == 2
        assert count("aws-dms-json", [one] * 3, options, images=False) == 2


@pytest.mark.parametrize("options", [{}, TYPED])
@pytest.mark.parametrize(
    "other",
    [
        dms("insert", order() | {"more": 1}),
        dms("insert", order(), order()),
        dms("insert", order(), **{"record-type": "control"}),
        dms("insert", order(), more=1),
        dms("insert", order(), **{"table-name": "other"}),
        dms("insert", order(), timestamp="soon"),
        dms("update", order(), {"id": 1}),
        dms("delete", {"id": 1}),
        dms("delete", None, order()),
        dms("insert", {name: {"BI_id": 2} for name in order()} | {"BI_id": 2}),
    ],
)
def test_other_records_of_dms(other: Message, options: dict[str, Any]) -> None:
    plain = dms("insert", order())
    keyed = options | {"keys": {"orders": ["id"]}}
    assert count("aws-dms-json", [plain, plain, other], options) == 1
    assert count("aws-dms-json", [plain, plain, other, plain, plain], keyed) == 3


def test_null_columns_that_dms_omits() -> None:
    plain, fewer = dms("insert", order()), dms("update", {"id": 1})
    assert count("aws-dms-json", [plain, plain, fewer], TYPED) == 2
    assert count("aws-dms-json", [plain, plain, fewer], TYPED | {"absent": "unchanged"}) == 1
    assert count("aws-dms-json", [plain, fewer, plain, fewer, plain]) == 3
    deleted = dms("delete", {"id": 1, "note": None, "qty": None})
    assert count("aws-dms-json", [plain, plain, deleted], TYPED) == 1


def ogg(op: str, before: Any = None, after: Any = None, **more: Any) -> Message:
    value = {"table": "S.T", "op_type": op, "op_ts": "2015-11-05 18:45:39.000000"}
    value |= {"pos": "00000000000000004300", "primary_keys": ["id"], "tokens": {"L": "12"}}
    return encoded(value | {"before": before, "after": after} | more)


def test_plain_operations_of_goldengate() -> None:
    for one in (
        ogg("I", None, order()),
        ogg("I", {}, order(), tokens=None),
        ogg("U", order(note="b"), order()),
        ogg("U", {"id": 1, "note": "b"}, {"id": 1, "note": "c"}),
        ogg("D", order(), {}),
        ogg("D", {"id": 1}),
    ):
        for options in ({}, {"row_image": "full", "time_zone": "+08:00"}, {"order": "offset"}):
            assert count("ogg-json", [one] * 3, options) == 2
            assert count("ogg-json", [one] * 3, options, images=False) == 2


@pytest.mark.parametrize(
    "other",
    [
        ogg("T", None, order()),
        ogg("I", order(), order()),
        ogg("D", order(), order()),
        ogg("I", None, {"note": "a", "id": 1, "qty": 2}),
        ogg("I", None, order(), primary_keys=["note"]),
        ogg("I", None, order(), primary_keys=None),
        ogg("I", None, order(), table="S.OTHER"),
        ogg("I", None, order("_isMissing")),
        ogg("I", None, order(), tokens={"L": []}),
        ogg("I", None, order(), pos="far"),
        ogg("I", None, order(), more=1),
        ogg("U", {"id": 1}, order()),
        ogg("U", order(number=2), order()),
    ],
)
def test_other_operations_of_goldengate(other: Message) -> None:
    for plain in (ogg("I", None, order()), ogg("U", order(), order())):
        assert count("ogg-json", [plain, plain, other]) == 1
        assert count("ogg-json", [plain, plain, other, plain, plain, other]) >= 3


def test_updates_of_goldengate_may_lack_columns() -> None:
    inserted, updated = ogg("I", None, order()), ogg("U", order(), order())
    assert count("ogg-json", [inserted, updated] * 3) == 4
    assert count("ogg-json", [inserted, updated] * 3, {"row_image": "full"}) == 5


def qlik(operation: str, data: Any, before: Any = None, **more: Any) -> Message:
    headers = {"operation": operation, "changeSequence": "20230911032325000000000000000000005"}
    headers |= {"timestamp": "2023-09-11T03:23:25.000", "transactionId": "08"}
    headers |= {"columnMask": "07", "transactionEventCounter": 1, "transactionLastEvent": True}
    value = {"magic": "atMSG", "type": "DT", "headers": None, "messageSchemaId": None}
    value |= {"messageSchema": None, "message": {"data": data, "beforeData": before}}
    value["message"]["headers"] = headers | more.pop("headers", {})
    one = encoded(value | more)
    return Message(one.value, one.key, (), "orders")


def bare(message: Message) -> Message:
    value = json.loads(message.value or b"")["message"]
    return Message(json.dumps(value).encode(), topic=message.topic)


DECLARED["qlik-json"] = [
    qlik("INSERT", order()),
    qlik("UPDATE", order(qty=None), order()),
    qlik("REFRESH", order(), headers={"changeSequence": None, "columnMask": None}),
    bare(qlik("DELETE", order(qty=2))),
    qlik("INSERT", order(), messageSchemaId="1"),
]


@pytest.mark.parametrize("options", [{}, TYPED, {"table_from": "none"}])
def test_plain_messages_of_qlik(options: dict[str, Any]) -> None:
    for one in (
        qlik("INSERT", order()),
        qlik("UPDATE", order(note="b"), order()),
        qlik("UPDATE", order(), headers={"columnMask": ""}),
        qlik("DELETE", order()),
        qlik("DELETE", None, order()),
        qlik("REFRESH", order(), headers={"columnMask": None, "transactionId": None}),
        qlik("INSERT", order(), messageSchemaId="7"),
    ):
        for form in (one, bare(one)):
            assert count("qlik-json", [form] * 3, options) == 2
            assert count("qlik-json", [form] * 3, options, images=False) == 2


@pytest.mark.parametrize("options", [{}, TYPED])
@pytest.mark.parametrize(
    "other",
    [
        qlik("INSERT", {"id": 1, "note": "a"}),
        qlik("INSERT", order() | {"more": 1}),
        qlik("INSERT", order(), order()),
        qlik("INSERT", order(), type="MD"),
        qlik("INSERT", order(), more=1),
        qlik("INSERT", order(), messageSchemaId="7"),
        qlik("INSERT", order(), headers={"columnMask": "03"}),
        qlik("INSERT", order(), headers={"changeSequence": "far"}),
        qlik("INSERT", order(), headers={"timestamp": "soon"}),
        qlik("INSERT", order(), headers={"more": 1}),
        qlik("REFRESH", order()),
        bare(qlik("INSERT", order())),
    ],
)
def test_other_messages_of_qlik(other: Message, options: dict[str, Any]) -> None:
    plain = qlik("INSERT", order())
    assert count("qlik-json", [plain, plain, other], options) == 1
    assert count("qlik-json", [plain, plain, other, plain, plain, other], options) >= 3


def test_values_and_columns_that_a_mask_hides() -> None:
    half, plain = qlik("UPDATE", order(), headers={"columnMask": "03"}), qlik("INSERT", order())
    assert count("qlik-json", [half] * 3) == 2
    assert count("qlik-json", [half] * 3, TYPED) == 0
    no_key = qlik("INSERT", order(None))
    assert count("qlik-json", [plain, plain, no_key], TYPED) == 1
    assert count("qlik-json", [plain] * 3, {"table_from": "column:note"}) == 0


def test_a_topic_that_names_the_table_has_its_own_lane() -> None:
    one = qlik("INSERT", order())
    other = Message(one.value, one.key, (), "items")
    assert count("qlik-json", [one, one, other, one, other, other]) == 4
    assert count("qlik-json", [one, one, other], {"tables": {"7": "x"}}) == 1


def datastream(payload: Any, change_type: str = "INSERT", **more: Any) -> Message:
    metadata = {"schema": "HR", "table": "orders", "database": "XE", "row_id": "AAA"}
    metadata |= {"scn": 1706664, "is_deleted": False, "change_type": change_type, "ssn": 0}
    metadata |= {"rs_id": "", "tx_id": None, "primary_keys": ["id"]} | more.pop("metadata", {})
    value = {"uuid": "00c3", "read_timestamp": "2021-12-25 05:42:04.408"}
    value |= {"source_timestamp": "2021-12-25T05:42:04.408", "object": "HR_ORDERS"}
    value |= {"read_method": "oracle-cdc-logminer", "stream_name": "s", "schema_key": "e"}
    value |= {"sort_keys": [1640410924408, 1706664, "", 0], "source_metadata": metadata}
    return encoded(value | {"payload": payload} | more)


DECLARED["datastream-json"] = [
    datastream(order()),
    datastream({"id": 2, "note": None}, "UPDATE"),
    datastream(order(), read_method="oracle-backfill"),
    datastream(order(qty=2), "DELETE", metadata={"is_deleted": True}),
]


@pytest.mark.parametrize("options", [{}, TYPED])
def test_plain_events_of_datastream(options: dict[str, Any]) -> None:
    for one in (
        datastream(order()),
        datastream(order(qty=None), "UPDATE-INSERT", metadata={"tx_id": "1:2"}),
        datastream(order(), "UPDATE", read_method="cdc", sort_keys=[5]),
        datastream(order(), read_method="oracle-backfill"),
        datastream(order(), "DELETE"),
        datastream(order(), metadata={"is_deleted": True}),
        datastream(order(), metadata={"primary_keys": None}),
    ):
        assert count("datastream-json", [one] * 3, options) == 2


@pytest.mark.parametrize("options", [{}, TYPED])
@pytest.mark.parametrize(
    "other",
    [
        datastream(order() | {"more": 1}),
        datastream(order(number=None)),
        datastream({"id": 1}, "DELETE"),
        datastream(order(), "MERGE"),
        datastream(order(), more=1),
        datastream(order(), sort_keys=[[1]]),
        datastream(order(), source_timestamp="soon"),
        datastream(order(), stream_name="t"),
        datastream(order(), read_method="oracle-backfill"),
        datastream(order(), metadata={"primary_keys": ["note"]}),
        datastream(order(), metadata={"schema": "other"}),
        datastream(order(), metadata={"scn": "far"}),
        datastream(order(), metadata={"more": 1}),
    ],
)
def test_other_events_of_datastream(other: Message, options: dict[str, Any]) -> None:
    plain = datastream(order())
    assert count("datastream-json", [plain, plain, other], options) == 1
    assert count("datastream-json", [plain, plain, other, plain, plain, other], options) >= 3


def test_null_columns_that_datastream_omits() -> None:
    plain, fewer = datastream(order()), datastream({"id": 1})
    assert count("datastream-json", [plain, plain, fewer], TYPED) == 2
    assert count("datastream-json", [plain, fewer, plain, fewer]) == 2


def plain(row: Any, key: Any = None) -> Message:
    one = encoded(row, {"id": row.get("id")} if key is None else key)
    return Message(one.value, one.key, (), "orders")


def changelog(op: str, row: Any, key: Any = None, **more: Any) -> Message:
    one = encoded({"data": row, "op": op} | more, key)
    return Message(one.value, one.key, (), "orders")


DECLARED["plain-json"] = [plain(order()), plain({"id": 2}), plain(order(qty=2), {"id": 1})]
DECLARED["changelog-json"] = [
    changelog("+I", order(), {"id": 1}),
    changelog("+U", order(qty=None)),
    changelog("-D", order()),
]


@pytest.mark.parametrize("options", [{}, TYPED, {"table": "a.b"}])
def test_plain_rows_with_keys(options: dict[str, Any]) -> None:
    for one in (
        plain(order()),
        plain(order("7", None)),
        plain(order(), {"note": "a", "id": 1}),
        plain(order(), {"schema": None, "payload": {"id": 1}}),
    ):
        assert count("plain-json", [one] * 3, options) == 2
    for one in (
        *(changelog(op, order(), {"id": 1}) for op in ("+I", "+U", "-D")),
        changelog("+I", order(qty=None)),
        changelog("+I", order(), "no key"),
    ):
        assert count("changelog-json", [one] * 3, options) == 2


def test_a_row_that_omits_its_key() -> None:
    one = plain({"note": "a", "qty": 1}, {"id": 1})
    assert count("plain-json", [one] * 3) == 2
    assert count("plain-json", [one] * 3, TYPED) == 0
    null = plain(order(None), {"id": None})
    assert count("plain-json", [null] * 3) == 2
    assert count("plain-json", [null] * 3, TYPED) == 0


@pytest.mark.parametrize("options", [{}, TYPED])
def test_other_rows_with_keys(options: dict[str, Any]) -> None:
    for other in (
        plain(order() | {"more": 1}),
        plain(order(), {"id": 2}),
        plain(order(), {"note": "a"}),
        plain(order(), "no key"),
        plain({"schema": 1, "payload": 2}, {"schema": 1}),
        plain({}, {"more": 1}),
        Message(b"", b'{"id":1}', (), "orders"),
        Message(plain(order()).value, b'{"id":1}', (), "items"),
    ):
        sent = [plain(order())] * 2
        assert count("plain-json", [*sent, other], options) == 1
        assert count("plain-json", [*sent, other, *sent, other], options) >= 1
    for other in (
        changelog("-U", order(), {"id": 1}),
        changelog("+X", order(), {"id": 1}),
        changelog("+I", order(), {"id": 2}),
        changelog("+I", order(), {"note": "a"}),
        changelog("+I", order()),
        changelog("+I", order(), {"id": 1}, more=1),
        changelog("-D", {"id": 1}, {"id": 1}),
    ):
        sent = [changelog("+I", order(), {"id": 1})] * 2
        assert count("changelog-json", [*sent, other], options) == 1
        assert count("changelog-json", [*sent, other, *sent, other], options) >= 1


def test_declared_columns_with_the_names_of_a_schema_block() -> None:
    options = {"schemas": {"orders": {"schema": "string key", "payload": "string", "n": "int32"}}}
    whole = plain({"schema": "a", "payload": "b", "n": 1}, {"schema": "a"})
    wrapped = plain({"schema": "a", "payload": "b"}, {"schema": "a"})
    assert count("plain-json", [whole, whole, wrapped], options) == 0

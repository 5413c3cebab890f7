# SPDX-License-Identifier: Apache-2.0
"""Lanes of formats without column types give the rows and the errors of the event path."""

import json
from pathlib import Path
from typing import Any

import pytest
from lane_checks import check_generated, check_mutated, check_stored, count

from changelane import get_codec
from changelane.message import Message

pytestmark = pytest.mark.usefixtures("early_lanes")

ORDERS = {"id": "int64 key", "note": "string", "qty": "decimal(10,2)"}
TYPED = {"schemas": {"orders": ORDERS}}

FORMATS: dict[str, tuple[dict[str, Any], ...]] = {
    "aws-dms-json": (
        {},
        {"order": "transaction", "owner": "database"},
        {"order": "offset", "absent": "unchanged", "before": "object"},
        {"before": "prefix:BI_", "keys": {"orders": ["id"]}},
        {"schemas": {"orders": ORDERS}},
        {"schemas": {"orders": ORDERS | {"note": "string lob"}}},
        {"schemas": {"orders": ORDERS}, "absent": "unchanged", "keys": {"orders": ["id"]}},
    ),
    "changelog-json": ({}, {"table": "a.b"}, {"schemas": {"orders": ORDERS}, "table": "orders"}),
    "datastream-json": (
        {},
        {"keys": {"orders": ["id"]}},
        {"schemas": {"orders": ORDERS}, "binary": "hex"},
    ),
    "lindorm-json": (
        {},
        {"tables": "sql", "order": "offset"},
        {"tables": "hbase"},
        {"split_families": True, "keys": {"customers": ["id"]}},
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
}
DECLARED: dict[str, list[Message]] = {}
"""Messages of the table that the option ``schemas`` declares."""


@pytest.mark.parametrize("format", FORMATS)
def test_stored_messages(format: str) -> None:
    for options in FORMATS[format]:
        # the stored tables have other columns than the declared one, few messages have an SCN, and
        # rows of HBase are not plain
        is_other = "schemas" in options or "scn" in options.values() or "hbase" in options.values()
        check_stored(format, [options], least=-1 if is_other else 0.4)


@pytest.mark.parametrize("format", FORMATS)
def test_mutated_messages(format: str) -> None:
    untyped = [options for options in FORMATS[format] if "schemas" not in options]
    check_mutated(format, untyped)
    if typed := [options for options in FORMATS[format] if "schemas" in options]:
        check_mutated(format, typed, messages=DECLARED[format])


@pytest.mark.parametrize("format", FORMATS)
def test_generated_events(format: str) -> None:
    check_generated(format)


def encoded(value: Any, key: Any = None, topic: str = "t") -> Message:
    """Return a message of JSON."""
    texts = [None if part is None else json.dumps(part).encode() for part in (value, key)]
    return Message(texts[0], texts[1], (), topic)


def order(number: Any = 1, note: Any = "a", qty: Any = "1.50") -> dict[str, Any]:
    return {"id": number, "note": note, "qty": qty}


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


@pytest.mark.parametrize("qty", [-0.25, 1e-7])
def test_plain_fractions_of_dms(qty: float) -> None:
    times = {"timestamp": None, "transaction-record-id": None}
    assert count("aws-dms-json", [dms("insert", order(qty=qty), **times)] * 3) == 2


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
        dms("insert", order(qty=1e22)),
        dms("update", order(), {"more": 1}),
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
    lob = {"schemas": {"orders": ORDERS | {"note": "string lob"}}}
    assert count("aws-dms-json", [plain, plain, fewer], lob) == 1
    assert count("aws-dms-json", [plain, plain, dms("insert", {"id": 1})], lob) == 2
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
        ogg("U", {"note": "a"}, order()),
        ogg("U", {"id": 1, "more": 1}, order()),
        ogg("U", {"note": "b", "id": 1, "qty": 2}, order()),
        ogg("U", order(number=2), order()),
        ogg("D", {"id": 1}),
    ],
)
def test_other_operations_of_goldengate(other: Message) -> None:
    for plain in (ogg("I", None, order()), ogg("U", order(), order())):
        assert count("ogg-json", [plain, plain, other]) == 1
        assert count("ogg-json", [plain, plain, other, plain, plain, other]) >= 3


def test_updates_of_goldengate_may_lack_columns() -> None:
    partial = ogg("U", {"id": 1}, order())
    assert count("ogg-json", [partial] * 3) == 2
    assert count("ogg-json", [partial] * 3, {"row_image": "full"}) == 0
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


@pytest.mark.parametrize("options", [{}, TYPED])
def test_rows_with_a_schema_block_are_not_plain(options: dict[str, Any]) -> None:
    fields = [{"field": "id", "type": "int64"}, {"field": "note", "type": "string"}]
    block = {"type": "struct", "fields": fields}
    typed = plain({"schema": block, "payload": {"id": 1, "note": "a"}}, {"id": 1})
    typed_key = plain(order(), {"schema": block | {"fields": fields[:1]}, "payload": {"id": 1}})
    assert count("plain-json", [typed] * 3, options) == 0
    assert count("plain-json", [plain(order())] * 2 + [typed] * 2, options) == 1
    assert count("plain-json", [typed_key] * 3, options) == 2


@pytest.mark.parametrize("format", ["plain-json", "cockroachdb-json"])
def test_rows_in_avro_have_no_lanes(format: str, tmp_path: Path) -> None:
    codec = get_codec(format, serde="avro-registry", registry=tmp_path.as_uri())
    assert codec.lanes is None


def test_declared_columns_with_the_names_of_a_schema_block() -> None:
    options = {"schemas": {"orders": {"schema": "string key", "payload": "string", "n": "int32"}}}
    whole = plain({"schema": "a", "payload": "b", "n": 1}, {"schema": "a"})
    wrapped = plain({"schema": "a", "payload": "b"}, {"schema": "a"})
    assert count("plain-json", [whole, whole, wrapped], options) == 0


def shareplex(op: str, data: Any, key: Any = None, **more: Any) -> Message:
    meta = {"op": op, "scn": "145", "seq": 1, "size": 2, "trans": "7.0.4", "table": "S.T"}
    meta |= {"time": "2017-06-16T14:24:34", "posttime": "2017-06-16T14:33:52"} | more
    return encoded({"meta": meta, "data": data} | ({} if key is None else {"key": key}))


@pytest.mark.parametrize("options", [{}, {"key_image": "full"}, {"time_zone": "+08:00"}])
def test_plain_operations_of_shareplex(options: dict[str, Any]) -> None:
    for one in (
        shareplex("ins", order()),
        shareplex("i", order(), {}),
        shareplex("upd", {"note": "b"}, order()),
        shareplex("upd", order()),
        shareplex("del", order(), scn=None, trans="1:2"),
        shareplex("ins", order(), idx="1/2", userid=7, rowid="AAA"),
        shareplex("ins", order(), trans=None, scn=None, idx=None),
    ):
        assert count("shareplex-json", [one] * 3, options) == 2
        assert count("shareplex-json", [one] * 3, options, images=False) == 2


@pytest.mark.parametrize(
    "other",
    [
        shareplex("INS", order()),
        shareplex("update before", order()),
        shareplex("ins", order(), order()),
        shareplex("ins", {"note": "a", "id": 1, "qty": 2}),
        shareplex("ins", order(), table="S.OTHER"),
        shareplex("ins", order(), table=None),
        shareplex("ins", order(), scn="far"),
        shareplex("ins", order(), time="soon"),
        shareplex("ins", order(), idx="2/2"),
        shareplex("ins", order(), seq=3),
        shareplex("ins", order(), posttime="soon"),
        shareplex("ins", None),
        shareplex("ins", order(), more=1),
        shareplex("upd", order(note="b"), {"more": 1}),
        shareplex("del", {"id": 1}),
    ],
)
def test_other_operations_of_shareplex(other: Message) -> None:
    for usual in (shareplex("ins", order()), shareplex("upd", order(), order())):
        assert count("shareplex-json", [usual, usual, other]) == 1
        assert count("shareplex-json", [usual, usual, other, usual, usual, other]) >= 3


def test_updates_of_shareplex_with_other_completeness() -> None:
    whole, unknown = shareplex("upd", order(), order()), shareplex("upd", order())
    inserted = shareplex("ins", order())
    assert count("shareplex-json", [inserted, inserted, whole], {"key_image": "full"}) == 2
    assert count("shareplex-json", [inserted, inserted, unknown], {"key_image": "full"}) == 1
    for options in ({"key_image": "key"}, {"dialect": "native"}, {}):
        for key, other in (
            ({"id": 1}, shareplex("upd", {"qty": 2}, {"id": 1, "note": 1})),
            ({"id": 1, "qty": 1}, shareplex("upd", {"qty": 2, "note": 1}, {"id": 1})),
        ):
            partial = shareplex("upd", {"note": [[1]], "qty": 1}, key)
            assert count("shareplex-json", [partial] * 3, options) == 2
            assert count("shareplex-json", [partial, partial, other], options) == 2 - bool(options)
            assert count("shareplex-json", [partial] * 3, options, images=False) == 2
    number = shareplex("ins", order(qty=1))
    assert count("shareplex-json", [number] * 3, {"dialect": "native"}) == 2


MAXWELL_KEY = {"database": "shop", "table": "orders", "pk.id": 1}


def maxwell(kind: str, data: Any, old: Any = None, key: Any = MAXWELL_KEY, **more: Any) -> Message:
    value = {"database": "shop", "table": "orders", "type": kind, "ts": 1477053234, "xid": 23396}
    value |= {"commit": True, "position": "master.000006:800911", "server_id": 23042, "data": data}
    return encoded(value | ({} if old is None else {"old": old}) | more, key)


@pytest.mark.parametrize("options", [{}, {"row_image": "full"}, {"order": "offset"}])
def test_plain_rows_of_maxwell(options: dict[str, Any]) -> None:
    for one in (
        maxwell("insert", order()),
        maxwell("update", order(), {"note": "b"}),
        maxwell("update", order(), {}),
        maxwell("delete", order(), xid=None, xoffset=3),
        maxwell("bootstrap-insert", order(), position=None, gtid="a:1-2"),
        maxwell("insert", order(), key=["shop", "orders", [{"id": 1}]]),
        maxwell("insert", order(), key=None),
        maxwell("insert", order(), primary_key_columns=["id"], primary_key=[1, "a"], push_ts=1.5),
        maxwell("insert", order(), xoffset=3, push_ts=1477053234.734),
        maxwell("update", order(), {"note": "b"}, push_ts=1477053234.734001),
        maxwell("insert", order(), xid=None, commit=None, push_ts=1477053234),
    ):
        assert count("maxwell-json", [one] * 3, options) == 2
        assert count("maxwell-json", [one] * 3, options, images=False) == 2


@pytest.mark.parametrize(
    "other",
    [
        maxwell("table-create", order()),
        maxwell("bootstrap-start", {}),
        maxwell("insert", order(), {"note": "b"}),
        maxwell("insert", {"note": "a", "id": 1, "qty": 2}),
        maxwell("insert", order(), table="items"),
        maxwell("insert", order(), database=None),
        maxwell("insert", order(), key=MAXWELL_KEY | {"pk.note": "a"}),
        maxwell("insert", order(), key="other"),
        maxwell("insert", order(), primary_key_columns=["note"]),
        maxwell("insert", order(), primary_key=[[1]]),
        maxwell("insert", order(), position="far"),
        maxwell("insert", order(), ts=10**18),
        maxwell("insert", order(), ts=-(10**12)),
        maxwell("insert", order(), ts=-1),
        maxwell("insert", order(), ts=10**12),
        maxwell("insert", order(), push_ts="soon"),
        maxwell("insert", order(), push_ts="1477053234.734"),
        maxwell("insert", order(), push_ts=True),
        maxwell("insert", order(), push_ts=1e300),
        maxwell("insert", order(), push_ts=1e-20),
        maxwell("insert", order(), xoffset=-1),
        maxwell("insert", order(), encrypted={}),
        maxwell("insert", order(), reason="too large"),
        maxwell("insert", order(), more=1),
        maxwell("update", order(), {"more": 1}),
        maxwell("update", order(), {"id": 2}),
    ],
)
def test_other_rows_of_maxwell(other: Message) -> None:
    for usual in (maxwell("insert", order()), maxwell("update", order(), {"note": "b"})):
        assert count("maxwell-json", [usual, usual, other]) == 1
        assert count("maxwell-json", [usual, usual, other, usual, usual, other]) >= 1


CUSTOMER = {"id": "1004", "name": "Anne"}


def lindorm(op: str, before: Any, after: Any, key: Any = None, **more: Any) -> Message:
    source = {"version": "v1.0", "db": "ld-x", "namespace": "default", "table": "customers"}
    payload = {"op": op, "ts_ms": 1465491411815, "before": before, "after": after}
    payload["source"] = source | {"ts_ms": 1465491411807} | more.pop("source", {})
    value = {"schema": more.pop("schema", {}), "payload": payload | more}
    texts = [json.dumps(part, separators=(",", ":")).encode() for part in (value, key)]
    return Message(texts[0], None if key is None else texts[1], (), "t")


def test_plain_rows_of_lindorm() -> None:
    keys = {"keys": {"customers": ["id"]}}
    for one in (
        lindorm("c", None, CUSTOMER),
        lindorm("c", None, CUSTOMER, {"id": "1004"}),
        lindorm("u", CUSTOMER | {"name": "Jo"}, CUSTOMER),
        lindorm("d", CUSTOMER, None),
        lindorm("r", None, CUSTOMER),
        lindorm("c", None, CUSTOMER, source={"ts_ms": None}),
    ):
        for options in ({}, {"order": "offset"}, keys, {"tables": "sql"}):
            assert count("lindorm-json", [one] * 3, options) == 2
            assert count("lindorm-json", [one] * 3, options, images=False) == 2


@pytest.mark.parametrize(
    "other",
    [
        lindorm("u", CUSTOMER, {"id": "1004"}),
        lindorm("u", CUSTOMER | {"id": "1"}, CUSTOMER, {"id": "1004"}),
        lindorm("d", None, None, {"id": "1004"}),
        lindorm("x", None, CUSTOMER),
        lindorm("c", None, CUSTOMER, more=1),
        lindorm("c", None, CUSTOMER, source={"table": "other"}),
        lindorm("c", None, CUSTOMER, source={"more": 1}),
        lindorm("c", None, CUSTOMER, source={"ts_ms": "5"}),
        lindorm("c", None, {"ROW": "AQ==", "f_a": "AQ=="}),
    ],
)
def test_other_rows_of_lindorm(other: Message) -> None:
    usual = lindorm("c", None, CUSTOMER)
    keyed = {"keys": {"customers": ["id"]}}
    assert count("lindorm-json", [usual, usual, other]) == 1
    assert count("lindorm-json", [usual, usual, other, usual, usual], keyed) >= 1


def test_rows_that_may_be_of_an_hbase_table() -> None:
    cells = lindorm("c", None, {"ROW": "AQ==", "f_a": "AQ=="})
    for kind in ("auto", "hbase"):
        assert count("lindorm-json", [cells] * 3, {"tables": kind}) == 0
    assert count("lindorm-json", [cells] * 3, {"tables": "sql"}) == 2


@pytest.mark.parametrize("options", [{"row_image": "minimal"}, {"nulls": "dropped"}])
def test_before_images_that_lack_columns(options: dict[str, Any]) -> None:
    for old in ({"note": "b"}, {}, order()):
        one = maxwell("update", order(), old)
        assert count("maxwell-json", [one] * 3, options) == 2
        assert count("maxwell-json", [one] * 3, options, images=False) == 2
    deep = maxwell("update", order(), {"note": json.loads("[" * 250 + "]" * 250)})
    moved = maxwell("update", order(), {"id": 2})
    for other in (deep, moved):
        sent = [maxwell("update", order(), {"note": "b"})] * 2
        for images in (True, False):
            assert count("maxwell-json", [*sent, other], options, images=images) == 1
    before = dms("update", order(), {"id": 1})
    assert count("aws-dms-json", [before] * 3) == 2
    assert count("aws-dms-json", [before] * 3, TYPED) == 0

# SPDX-License-Identifier: Apache-2.0
"""The roles of the engine's records, and what their offsets tell."""

import base64
import json

import pytest

from changelane.capture.connectors import ConnectorOptions
from changelane.capture.engine_records import (
    EngineRecord,
    RecordRole,
    RecordRoles,
    closed_offset,
)
from changelane.capture.manifest import CapturedRecord, EngineOffset
from changelane.errors import ChangelaneError

OPTIONS = ConnectorOptions(product="postgres", name="shop", host="h", database="d", user="u")
ROLES = RecordRoles(OPTIONS)


def logical_message(prefix: str, content: bytes) -> str:
    message = {"prefix": prefix, "content": base64.b64encode(content).decode()}
    return json.dumps({"schema": {}, "payload": {"op": "m", "message": message}})


@pytest.mark.parametrize(
    ("topic", "value", "role"),
    [
        ("shop.public.t", '{"payload":{"op":"c"}}', RecordRole.ROW),
        ("shop.public.t", None, RecordRole.ROW),
        ("__debezium-heartbeat.shop", '{"payload":{"ts_ms":1}}', RecordRole.HEARTBEAT),
        ("shop.transaction", '{"payload":{"status":"BEGIN","id":"7"}}', RecordRole.BEGIN),
        ("shop.transaction", '{"payload":{"status":"END","id":"7"}}', RecordRole.END),
        ("shop.transaction", '{"payload":{"op":"c"}}', RecordRole.ROW),
        ("shop.transaction", None, RecordRole.ROW),
        ("shop.message", logical_message("changelane", b"heartbeat"), RecordRole.HEARTBEAT),
        ("shop.message", logical_message("changelane", b"another"), RecordRole.MARKER),
        ("shop.message", logical_message("app", b"heartbeat"), RecordRole.ROW),
        ("shop.message", '{"payload":{"op":"c"}}', RecordRole.ROW),
    ],
)
def test_topic_and_content_tell_the_role(topic: str, value: str | None, role: RecordRole) -> None:
    assert ROLES.role_of(topic, value) is role


def test_statements_and_truncates_of_mysql_are_statements() -> None:
    options = ConnectorOptions(product="mysql", name="shop", host="h", database="d", user="u")
    roles = RecordRoles(options)

    def message(**payload: object) -> str:
        return json.dumps({"schema": {}, "payload": payload}, separators=(",", ":"))

    value = message(op="t")
    assert roles.role_of("shop.d.t", value) is RecordRole.STATEMENT
    assert roles.role_of("shop", '{"payload":{"ddl":"DROP TABLE t"}}') is RecordRole.STATEMENT
    assert ROLES.role_of("shop.d.t", value) is RecordRole.ROW
    assert roles.role_of("shop.d.t", message(op="c", after={"text": value})) is RecordRole.ROW
    assert roles.role_of("shop.d.t", message(op="c", after={"op": "t"})) is RecordRole.ROW


def test_unknown_transaction_marker_is_an_error() -> None:
    with pytest.raises(ChangelaneError, match="marker of an unknown status"):
        ROLES.role_of("shop.transaction", '{"payload":{"status":"ROLLBACK"}}')


def test_message_that_is_no_base64_is_a_marker() -> None:
    value = '{"payload":{"op":"m","message":{"prefix":"changelane","content":"?"}}}'
    assert ROLES.role_of("shop.message", value) is RecordRole.MARKER


@pytest.mark.parametrize(
    ("offset", "is_in_transaction", "is_in_snapshot"),
    [
        ({"lsn": 1}, False, False),
        ({"lsn": 1, "transaction_id": "7"}, True, False),
        ({"lsn": 1, "snapshot": "INITIAL", "snapshot_completed": False}, False, True),
        ({"lsn": 1, "snapshot": "INITIAL", "snapshot_completed": True}, False, False),
        ({"pos": 1, "snapshot": True}, False, True),
        ({"pos": 1, "snapshot": False}, False, False),
        ({"pos": 1, "snapshot": "INCREMENTAL"}, False, False),
        ({"pos": 1, "snapshot": "BLOCKING", "snapshot_completed": False}, False, True),
    ],
)
def test_offset_tells_what_is_open(
    offset: EngineOffset, is_in_transaction: bool, is_in_snapshot: bool
) -> None:
    record = EngineRecord(RecordRole.ROW, offset, CapturedRecord("t", "{}", "{}"))
    assert record.is_in_transaction is is_in_transaction
    assert record.is_in_snapshot is is_in_snapshot
    assert record.is_closed is not (is_in_transaction or is_in_snapshot)


def test_statement_is_closed_outside_of_snapshots() -> None:
    def is_closed(offset: EngineOffset) -> bool:
        return EngineRecord(RecordRole.STATEMENT, offset, CapturedRecord("t", None, "")).is_closed

    assert is_closed({"pos": 1, "transaction_id": "7"})
    assert not is_closed({"pos": 1, "snapshot": True})


def test_closed_offset_has_no_transaction() -> None:
    offset: EngineOffset = {
        "lsn": 1,
        "transaction_id": "7",
        "transaction_data_collection_order_t": 2,
    }
    assert closed_offset(offset) == {"lsn": 1}

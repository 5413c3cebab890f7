# SPDX-License-Identifier: Apache-2.0
"""What the stream of a Debezium connector lacks is said with the setting that cures it.

The streams are captured ones, and captured ones from which one thing was taken.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from changelane import Message
from changelane.pipeline.config_checks import Finding
from changelane.pipeline.connector_settings import findings

CAPTURED = Path(__file__).resolve().parents[2] / "golden" / "debezium-json" / "captured"
Edit = Callable[[dict[str, Any]], None]


def captured(name: str, edit: Edit | None = None) -> list[Message]:
    """The messages of a capture; *edit* changes the value of each row."""
    messages = []
    for line in (CAPTURED / f"debezium-{name}.jsonl").read_text("utf-8").splitlines():
        record = json.loads(line)
        value = record["value"]
        if edit is not None and value is not None and '"source":' in value:
            parsed = json.loads(value)
            edit(parsed)
            value = json.dumps(parsed)
        messages.append(
            Message(
                None if value is None else value.encode(),
                None if record["key"] is None else record["key"].encode(),
                (),
                record["topic"],
                record["partition"],
                record["offset"],
            )
        )
    return messages


def found(messages: list[Message], **more: Any) -> dict[str, Finding]:
    """The warnings by the setting that they name, and what is said at the end as ``end``."""
    topics = {message.topic or "" for message in messages}
    more = {"topics": topics, "read_topics": topics} | more
    *warnings, end = findings("debezium-json", messages, **more)
    assert {one.state for one in warnings} <= {"warning"}
    assert end.state == "ok"
    assert all(one.fix.endswith("(docs/debezium.md)") for one in warnings)
    return {one.fix.removesuffix(" (docs/debezium.md)"): one for one in warnings} | {"end": end}


def rows_of(value: dict[str, Any]) -> list[dict[str, Any]]:
    """The schemas of both images."""
    blocks = value["schema"]["fields"]
    return [block for block in blocks if block.get("field") in {"before", "after"}]


def test_a_stream_that_lacks_nothing_but_one_setting_names_this_one() -> None:
    told = found(captured("mariadb-schema"))
    (setting, _) = told
    assert setting == "set bigint.unsigned.handling.mode=precise"
    assert told[setting].about == "Debezium dbz_my"
    # the types of the database come from the topic of schema changes
    assert told[setting].text.endswith("as negative numbers: inventory.types_all.biu")
    assert "skipped.operations=none" in told["end"].text
    assert "decimal" not in told["end"].text


def test_a_truncate_shows_that_none_is_skipped() -> None:
    assert "skipped.operations" not in found(captured("postgres-schema"))["end"].text


def test_messages_without_types_are_counted() -> None:
    told = found(captured("postgres-noschema"))
    warning = told["set value.converter.schemas.enable=true and key.converter.schemas.enable=true"]
    assert warning.text == "71 of 71 rows have no column types: columns become text"


def test_tables_with_updates_without_a_before_image_are_named() -> None:
    told = found(captured("postgres-schema"))
    warning = told["ALTER TABLE ... REPLICA IDENTITY FULL for tables without a primary key"]
    assert "shop.public.customers" in warning.text
    assert "cust_full" not in warning.text
    assert "no_pk_full" not in warning.text
    large = told["ALTER TABLE ... REPLICA IDENTITY FULL if keys change or no snapshot was read"]
    assert "shop.public.toast_t.big, " in large.text
    assert found(captured("mariadb-schema")).keys().isdisjoint(told.keys() - {"end"})


def test_changes_without_a_transaction_are_counted_where_they_come_from_the_log() -> None:
    def without(value: dict[str, Any]) -> None:
        payload = value["payload"]
        if "transaction" in payload:
            payload["transaction"] = None

    warning = found(captured("postgres-schema", without))["set provide.transaction.metadata=true"]
    assert warning.text.endswith("changes have no position in their transaction")
    snapshot = [
        message
        for message in captured("postgres-schema", without)
        if b'"snapshot": "true"' in (message.value or b"")
    ]
    told = found(snapshot, topics={"__debezium-heartbeat.dbz_pg"})
    assert "set provide.transaction.metadata=true" not in told
    assert "all rows are from a snapshot" in told["end"].text


def test_decimals_that_come_as_doubles_are_named_where_the_database_type_is_known() -> None:
    def as_doubles(value: dict[str, Any]) -> None:
        if "op" not in value["payload"]:
            return
        names = set()
        for row in rows_of(value):
            for field in row["fields"]:
                if field.get("name") == "org.apache.kafka.connect.data.Decimal":
                    names.add(field["field"])
                    field["type"] = "double"
                    del field["name"], field["parameters"]
        for image in ("before", "after"):
            row = value["payload"].get(image) or {}
            row |= dict.fromkeys(names & row.keys(), 1.5)

    def with_source_types(value: dict[str, Any]) -> None:
        as_doubles(value)
        if "op" in value["payload"]:
            for row in rows_of(value):
                for field in row["fields"]:
                    if field["type"] == "double":
                        field["parameters"] = {"__debezium.source.column.type": "NUMERIC"}

    setting = "set decimal.handling.mode=precise"
    told = found(captured("mariadb-schema", as_doubles))
    assert "inventory.customers.balance" in told[setting].text
    assert setting not in found(captured("postgres-schema", as_doubles))
    told = found(captured("postgres-schema", with_source_types))
    assert "shop.public.customers.balance" in told[setting].text


def test_times_that_end_at_milliseconds_are_found_by_their_type() -> None:
    def as_connect(value: dict[str, Any]) -> None:
        if "op" in value["payload"]:
            for row in rows_of(value):
                for field in row["fields"]:
                    if field.get("name") == "io.debezium.time.Timestamp":
                        field["name"] = "org.apache.kafka.connect.data.Timestamp"

    setting = "remove time.precision.mode=connect from the connector"
    assert setting in found(captured("mariadb-schema", as_connect))
    assert setting not in found(captured("mariadb-schema"))


@pytest.mark.parametrize(
    ("name", "server", "settings"),
    [
        (
            "mariadb-schema",
            "dbz_my",
            {
                "set heartbeat.interval.ms=10000",
                "set include.schema.changes=true, and add dbz_my to source.topics",
            },
        ),
        ("postgres-schema", "dbz_pg", {"set heartbeat.interval.ms=10000"}),
    ],
)
def test_topics_beside_the_rows_are_looked_for(name: str, server: str, settings: set[str]) -> None:
    rows = [message for message in captured(name) if message.topic.count(".") == 2]
    names = {"set heartbeat", "set include", f"add {server}"}

    def of_topics(topics: set[str] | None, read: tuple[str, ...] = ()) -> set[str]:
        told = found(rows, topics=topics, read_topics=read)
        return {fix for fix in told if fix.startswith(tuple(names))}

    assert of_topics(set()) == settings
    there = {server, f"__debezium-heartbeat.{server}"}
    assert of_topics(there, (server,)) == set()
    if name == "mariadb-schema":
        assert of_topics(there) == {f"add {server} to source.topics"}
    # files have no topics beside them
    assert of_topics(None) == set()
    assert "heartbeat.interval.ms" in found(rows, topics=None)["end"].text


def test_other_formats_and_unreadable_messages_give_no_finding() -> None:
    rows = captured("mariadb-schema")
    assert not list(findings("canal-json", rows))
    assert not list(findings("debezium-json", [Message(b"{"), Message(None)]))


def test_flattened_rows_are_judged_by_their_types_alone() -> None:
    row = b'{"id":1,"name":"Ann","__op":"u","__table":"customers"}'
    told = list(findings("debezium-flat-json", [Message(row, b'{"id":1}')], topics=set()))
    assert [one.state for one in told] == ["warning", "ok"]
    assert told[0].fix.startswith("set value.converter.schemas.enable=true")

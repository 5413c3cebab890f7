# SPDX-License-Identifier: Apache-2.0
"""The rows of a first load, and those of a later snapshot, as each producer writes them."""

import json
from typing import Any

import pytest

from changelane import Message, get_codec, profiles
from changelane.conversion.destinations import Address, EventEncoder
from changelane.conversion.partition import Delivery, empty_counts
from changelane.event import DataChange, Op, is_first_snapshot
from changelane.position import encode_order

SHARED: dict[str, Any] = {"version": "3.3.0.Final", "name": "dbz", "ts_ms": 1700000000000}
MARIADB = SHARED | {"connector": "mariadb", "db": "shop", "table": "orders"}
MARIADB |= {"server_id": 1, "file": "binlog.000003", "pos": 4711, "row": 0}
POSTGRES = SHARED | {"connector": "postgresql", "db": "shop", "schema": "public"}
POSTGRES |= {"table": "orders", "txId": 7, "lsn": 4711, "sequence": '[null,"4711"]'}
OPTIONS = {
    "cdl": {"topic": "t"},
    "datahub": {"project": "p", "topic": "t"},
    "dts": {"topic": "t", "policy": "partition_0"},
    "lindorm": {"topic": "t"},
}


def delivered(
    name: str, profile_name: str, source: dict[str, Any], op: str, offset: int, **more: Any
) -> list[Message]:
    """Return the messages of a change of Debezium, by a producer's profile."""
    envelope = {"before": None, "after": {"id": 1, "v": "a"}, "op": op, "ts_ms": 1700000000001}
    envelope |= {"source": source | more}
    value, key = (json.dumps(part).encode() for part in (envelope, {"id": 1}))
    profile = profiles.load(profile_name, OPTIONS.get(profile_name, {}))
    codec = profile.codec(name)
    encoder = EventEncoder(codec, "warn", Address(""), lambda _: 1, profile)
    delivery = Delivery(get_codec("debezium-json"), encoder, counts=empty_counts())
    outcomes = delivery.push(Message(value, key, (), "dbz.shop.orders", 0, offset))
    messages = [outcome for outcome in outcomes if isinstance(outcome, Message)]
    assert messages == outcomes != []
    return messages


def payload_of(message: Message) -> dict[str, Any]:
    value = json.loads(message.value or b"")
    return value.get("payload", value)


@pytest.mark.parametrize(
    ("name", "profile", "source", "expected"),
    [
        # 000: "op: INSERT, UPDATE, DELETE, TRUNCATE, ...", in the samples `ins`
        ("shareplex-json", "dts", MARIADB, {"meta.op": "ins"}),
        ("canal-json", "dts", MARIADB, {"type": "INIT", "old": None}),
        # 001: "OPERATION: INSERT, UPDATE, DELETE"; "c: insert", "snapshot: true or false"
        ("cdl-json", "cdl", POSTGRES, {"OPERATION": "INSERT", "before": None}),
        ("cdl-debezium-json", "cdl", POSTGRES, {"op": "c", "source.snapshot": "true"}),
        # 002: "r indicates that full data is exported. This value is not available."
        ("lindorm-json", "lindorm", MARIADB, {"op": "c", "before": None}),
        # 003: "sequenceId: used for data ordering when merging full and incremental data"
        ("datahub-blob", "datahub", MARIADB, {"op": "INSERT", "sequenceId": "-1"}),
        # 004: "Change events in snapshot mode"
        (
            "arcion-json",
            "arcion",
            MARIADB,
            {
                "op": "r",
                "before": {},
                "ts_ms": None,
                "source.snapshot": "true",
                "source.name": "KAFKA_snapshot_connector",
                **dict.fromkeys(f"source.{name}" for name in "ts_ms gtid file pos row".split()),
            },
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value.endswith("json") else "",
)
def test_a_row_of_a_first_load_is_as_in_the_producers_document(
    name: str, profile: str, source: dict[str, Any], expected: dict[str, Any]
) -> None:
    (message,) = delivered(name, profile, source, "r", 5, snapshot="first")
    payload = payload_of(message)
    for path, value in expected.items():
        content = payload
        for part in path.split(".")[:-1]:
            content = content[part]
        assert content.get(path.rpartition(".")[2]) == value, path


@pytest.mark.parametrize(
    ("name", "source"),
    [("datahub-blob", MARIADB), ("arcion-json", MARIADB), ("cdl-debezium-json", POSTGRES)],
)
def test_a_row_of_a_later_snapshot_is_an_insert_of_the_stream(
    name: str, source: dict[str, Any]
) -> None:
    (message,) = delivered(name, name.partition("-")[0], source, "r", 5, snapshot="incremental")
    (event,) = get_codec(name).decode(message)
    assert isinstance(event, DataChange)
    assert (event.op, is_first_snapshot(event.source)) == (Op.CREATE, False)
    assert event.position is not None


def test_each_change_of_the_profile_datahub_has_a_sequence_after_the_first_load() -> None:
    orders = []
    for offset, (op, snapshot) in enumerate([("r", "last"), ("u", "false"), ("r", "incremental")]):
        for message in delivered("datahub-blob", "datahub", MARIADB, op, offset, snapshot=snapshot):
            (event,) = get_codec("datahub-blob").decode(message)
            assert isinstance(event, DataChange)
            assert event.position is not None
            is_first = is_first_snapshot(event.source)
            orders.append(encode_order(event.position, snapshot=is_first))
    assert len(orders) == 3
    assert sorted(orders) == orders
    assert len({order[:2] for order in orders}) == 1, "positions of one kind"

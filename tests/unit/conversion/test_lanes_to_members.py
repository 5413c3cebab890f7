# SPDX-License-Identifier: Apache-2.0
"""Conversion lanes into the smaller members of Debezium's family write what events write."""

import datetime as dt
import decimal
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from conversion_checks import delivered, mixed_messages, plain_count, plain_share
from debezium_source_blocks import MYSQL, PG
from hypothesis import given, settings
from hypothesis import strategies as st
from lane_checks import goldens
from mutated_messages import mutations_of, with_source

from changelane import get_codec
from changelane.codec import OnLoss
from changelane.errors import EncodeError
from changelane.event import DataChange, Key, Op, Source, Transaction
from changelane.formats.contract.losses import DEFAULT, LossPolicy
from changelane.message import Message
from changelane.position import MySqlPosition, PostgresPosition, ScnPosition
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.conformance import EFFORT
from changelane.testing.event_strategies import data_changes
from changelane.types import (
    UNAVAILABLE,
    Boolean,
    Bytes,
    Date,
    Decimal,
    Float,
    InstantType,
    Integer,
    String,
    Time,
    Timestamp,
    parse_instant,
)

pytestmark = pytest.mark.usefixtures("early_lanes")

TARGETS: dict[str, tuple[dict[str, Any], ...]] = {
    "cdl-json": (
        {},
        {"before_image": "key", "timestamps": "text", "owner": "database"},
        {"before_image": "full", "timestamps": "connect", "lob_nulls": "null"},
        {"placeholder": "a"},
    ),
    "lindorm-json": (
        {},
        {"tables": "sql", "keys": {"t": ["note"]}, "version": "v9"},
        {"schema": "empty", "order": "offset", "tables": "hbase"},
        {"schema": "none", "tables": "sql"},
    ),
    "arcion-json": (
        {},
        {"before_image": "key", "tombstones": "true", "row_identifier_key": {"t": ["note"]}},
        {"tombstones": "false", "source_ts_offset_ms": 3600},
        {"after_image": "updated"},
    ),
}
SOURCES: dict[str, tuple[dict[str, Any], ...]] = {
    "canal-json": ({},),
    "changelog-json": ({}, {"schemas": {"t": {"id": "int64 key", "note": "string"}}}),
    "cockroachdb-json": ({},),
    "debezium-json": ({}, {"before_image": "full"}, {"before_image": "key"}),
    "dts-avro": ({}, {"binlog_prefix": "binlog"}),
    "dynamodb-json": ({}, {"nested": "typed"}),
    "maxwell-json": ({}, {"order": "offset"}),
    "native-json": ({},),
    "ogg-json": ({}, {"row_image": "full"}),
    "plain-json": ({},),
    "shareplex-json": ({},),
    "spanner-json": ({},),
    "ticdc-avro": ({}, {"order": "commit_ts"}),
    "ticdc-open-json": ({"output_old_value": True},),
}
POLICIES: tuple[OnLoss | LossPolicy, ...] = (DEFAULT, OnLoss.RAISE, OnLoss.WARN)
WITH_LANES = pytest.mark.parametrize("writer", TARGETS)


def sent_by(source: str) -> list[Message]:
    messages = [one for one in goldens(source) if one.value]
    if source != "debezium-json":
        return messages
    return [with_source(one, (PG, MYSQL)[index % 2]) for index, one in enumerate(messages)]


@WITH_LANES
@pytest.mark.parametrize("source", SOURCES)
def test_stored_messages(source: str, writer: str) -> None:
    messages = sent_by(source)[::3]
    for options in SOURCES[source]:
        for target in TARGETS[writer]:
            arguments: dict[str, Any] = {"source": source, "writer": writer, "policy": OnLoss.WARN}
            plain_count(messages * 3, options, target, **arguments)
    assert plain_share(messages[::3], SOURCES[source][0], **arguments) > 0.25


@WITH_LANES
@pytest.mark.parametrize("source", SOURCES)
def test_mutated_and_generated_messages(source: str, writer: str) -> None:
    stored, codec = sent_by(source), get_codec(source)
    mutate = mutations_of(source)

    @settings(max_examples=6 * EFFORT)
    @given(
        st.data(),
        st.lists(st.sampled_from(stored), min_size=1, max_size=2),
        data_changes(codec.carries),
        st.sampled_from(SOURCES[source]),
        st.tuples(st.sampled_from(TARGETS[writer]), st.sampled_from(POLICIES)),
    )
    def check(data: Any, chosen: list[Message], change: Any, options: Any, target: Any) -> None:
        target_options, policy = target
        sent = mixed_messages(data.draw, mutate, codec, chosen, change)
        arguments: dict[str, Any] = {"source": source, "writer": writer, "policy": policy}
        plain_count(sent, options, target_options, **arguments)

    check()


@WITH_LANES
@pytest.mark.parametrize("source", ["canal-json", "debezium-json", "maxwell-json", "native-json"])
def test_messages_of_a_partition(source: str, writer: str) -> None:
    sent = [
        Message(one.value, one.key, one.headers, "in", 3, offset)
        for offset, one in enumerate(copy for one in sent_by(source)[::2] for copy in [one] * 4)
    ]
    for options in ({}, {"event_id": True, "by_source": True}):
        expected, _ = delivered(sent, source, "warn", has_lanes=False, writer=writer, **options)
        found, count = delivered(sent, source, "warn", has_lanes=True, writer=writer, **options)
        assert found == expected
        assert count > 10


# -- chosen rows -----------------------------------------------------------------------------------

ID = Column("id", Integer(64), nullable=False)
COLUMNS = (
    *(ID, Column("price", Decimal(10, 2)), Column("big", Integer(64, unsigned=True))),
    *(Column("day", Date()), Column("ms", Timestamp(3)), Column("us", Timestamp(6))),
    *(Column("at", InstantType(6)), Column("time", Time(6)), Column("raw", Bytes())),
    *(Column("f", Float(64)), Column("is", Boolean()), Column("op", String())),
    *(Column("a b,c", String()), Column("é.$", Integer(32)), Column("ROW_x", String())),
)
ROW: dict[str, Any] = {
    "id": 1, "price": decimal.Decimal("12.50"), "big": 2**64 - 1, "day": dt.date(2024, 2, 29),
    "ms": dt.datetime(2024, 1, 1, 1, 2, 3, 4000), "us": dt.datetime(2024, 1, 1, 1, 2, 3, 4),
    "at": parse_instant("2024-01-01T01:02:03.000004Z"), "time": "01:02:03.000004",
    "raw": b"\x00\xff", "f": 0.5, "is": True, "op": "c", "a b,c": "x", "é.$": 7, "ROW_x": "AA==",
}  # fmt: skip
NULLS = dict.fromkeys(ROW) | {"id": 1}
OTHER = ROW | {"price": None, "op": "é\u0001", "f": float("nan"), "ROW_x": "a"}
LOBS = ROW | {"a b,c": UNAVAILABLE, "op": UNAVAILABLE}
CHANGES: dict[str, tuple[Op, Any, Any]] = {
    "insert": (Op.CREATE, None, ROW),
    "insert of NULLs": (Op.CREATE, None, NULLS),
    "insert with an unavailable value": (Op.CREATE, None, LOBS),
    "read": (Op.READ, None, OTHER),
    "update": (Op.UPDATE, OTHER, ROW),
    "update to NULLs": (Op.UPDATE, ROW, NULLS),
    "update without before image": (Op.UPDATE, None, OTHER),
    "update with an unavailable value": (Op.UPDATE, ROW, LOBS),
    "update of the key": (Op.UPDATE, ROW, ROW | {"id": 2}),
    "update with the key before": (Op.UPDATE, {"id": 1}, ROW),
    "update of some columns": (Op.UPDATE, None, {"id": 1, "price": None}),
    "delete": (Op.DELETE, ROW, None),
    "delete of NULLs": (Op.DELETE, NULLS, None),
    "delete with the key": (Op.DELETE, {"id": 1}, None),
    "delete with unavailable values": (
        Op.DELETE,
        dict.fromkeys(ROW, UNAVAILABLE) | {"id": 1},
        None,
    ),
}
PRODUCTS = {
    "mysql": MySqlPosition("binlog.000002", 4, 0, None),
    "postgresql": PostgresPosition(2**63 + 5, 11),
    "oracle": ScnPosition(7),
}
BLOCKS = {"mysql": MYSQL, "postgresql": PG}
TIME = 1_700_000_000_123_456_789


def change(name: str, product: str = "postgresql", **fields: Any) -> DataChange:
    op, before, after = CHANGES[name]
    source = Source(product, snapshot="true" if op is Op.READ else None)
    event = DataChange(op, TableId("shop", "public", "t"), Key(("id",)), before, after)
    parts = {
        "schema": TableSchema(COLUMNS), "position": PRODUCTS[product], "source": source,
        "transaction": Transaction("5:22", 1), "source_time_ns": TIME, "process_time_ns": TIME,
    }  # fmt: skip
    return msgspec.structs.replace(event, **parts | fields)


def written(source: str, *events: DataChange, **options: Any) -> list[Message]:
    codec = get_codec(source, **options)
    messages: list[Message] = []
    for event in events:
        with suppress(EncodeError):
            messages += codec.encode(event, on_loss="ignore").messages
    return [Message(one.value, one.key, (), "t") for one in messages if one.value]


@WITH_LANES
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("native-json", {}),
        ("debezium-json", {}),
        ("debezium-json", {"schemas_enable": False}),
        ("canal-json", {}),
        ("maxwell-json", {}),
    ],
    ids=str,
)
def test_chosen_rows(source: str, options: dict[str, Any], product: str, writer: str) -> None:
    sent = [written(source, change(name, product), **options) for name in CHANGES]
    sent.append(written(source, change("insert", product, source_time_ns=None, position=None)))
    sent.append(written(source, change("update", product, key=None, transaction=None)))
    if source == "debezium-json" and product in BLOCKS:
        # a message without the number of its transaction or server has details
        sent = [[with_source(one, BLOCKS[product]) for one in messages] for messages in sent]
    total = 0
    for target in TARGETS[writer]:
        for policy in (OnLoss.WARN, DEFAULT):
            arguments: dict[str, Any] = {"source": source, "writer": writer, "policy": policy}
            for messages in sent:
                plain_count(messages * 4, None, target, **arguments)
            total += plain_count([one for m in sent for one in m * 4], None, target, **arguments)
    assert total > 0 or (source, product) == ("debezium-json", "oracle")


@WITH_LANES
@pytest.mark.parametrize(
    ("name", "is_plain"),
    [
        ("insert", True),
        ("insert of NULLs", True),
        ("read", True),
        ("update", True),
        ("update without before image", True),
        ("delete", True),
        ("insert with an unavailable value", False),
        ("update with an unavailable value", False),
        ("update of the key", False),
        ("delete with unavailable values", False),
    ],
)
def test_plain_changes(name: str, is_plain: bool, writer: str) -> None:
    messages = written("native-json", change(name)) * 4
    arguments: dict[str, Any] = {"source": "native-json", "writer": writer}
    assert plain_count(messages, policy=OnLoss.WARN, **arguments) == (2 if is_plain else 0)


@WITH_LANES
def test_a_key_of_unknown_nullability(writer: str) -> None:
    schema = TableSchema((Column("id", Integer(64)), Column("note", String())))
    rows = [{"id": number, "note": "a"} for number in (None, 1, 2, None, 3, 4)]
    events = [change("insert", after=row, schema=schema) for row in rows]
    sent = written("native-json", *events)
    arguments: dict[str, Any] = {"source": "native-json", "writer": writer}
    for _ in range(3):
        sent = [*sent[1:], sent[0]]
        plain_count(sent * 2, policy=OnLoss.WARN, **arguments)


@WITH_LANES
def test_values_that_readers_take_as_the_placeholder(writer: str) -> None:
    notes = ("a", "b", "c", "d", "__debezium_unavailable_value", "e")
    rows = [{"id": 1, "note": note} for note in notes]
    schema = TableSchema((ID, Column("note", String())))
    sent = written("native-json", *(change("insert", after=row, schema=schema) for row in rows))
    arguments: dict[str, Any] = {"source": "native-json", "writer": writer}
    # a message that is not plain opens the lane again
    count = plain_count(sent, policy=OnLoss.WARN, **arguments)
    assert count == (2 if writer == "cdl-json" else 4)


@WITH_LANES
def test_rows_without_types(writer: str) -> None:
    values = (1, 2**31, 2**63, -5, "a", None, True, 1.5, [1, "a"], {"a": [None]}, "")
    sent = [
        Message(msgspec.json.encode(line), None, (), "t")
        for value in values
        for other in (value, 7)
        for line in (
            {"data": {"id": 1, "note": value, "x": other}, "op": "+I"},
            {"data": {"x": other, "note": value, "id": 1}, "op": "-D"},
        )
        for _ in range(3)
    ]
    arguments: dict[str, Any] = {"source": "changelog-json", "writer": writer}
    for target in TARGETS[writer]:
        count = plain_count(sent, None, target, policy=OnLoss.WARN, **arguments)
        # whether a column changed depends on its value
        assert (count > len(values)) is ("after_image" not in target)

# SPDX-License-Identifier: Apache-2.0
"""Conversion lanes into Debezium's family write the messages, losses and errors of events."""

from typing import Any

import msgspec
import pytest
from conversion_checks import delivered, mixed_messages, plain_count, plain_share
from hypothesis import given, settings
from hypothesis import strategies as st
from lane_checks import GOLDEN, goldens
from lane_messages import read
from mutated_messages import mutations_of

from changelane import get_codec
from changelane.codec import OnLoss
from changelane.conversion.message_files import LineFormat
from changelane.event import DataChange, Key, Op
from changelane.message import Message
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.conformance import EFFORT
from changelane.testing.event_strategies import data_changes
from changelane.types import Integer

pytestmark = pytest.mark.usefixtures("early_lanes")

TARGETS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("debezium-json", {}),
    ("debezium-json", {"schemas_enable": False, "time_precision_mode": "connect"}),
    ("debezium-json", {"tombstones": "false", "decimal_format": "numeric"}),
    ("debezium-json", {"placeholder": "a", "tombstones": "true", "before_image": "key"}),
    ("debezium-flat-json", {}),
    ("debezium-flat-json", {"schemas_enable": False, "add_fields": "op,table,lsn"}),
    ("cdl-debezium-json", {}),
)
SOURCES: dict[str, tuple[dict[str, Any], ...]] = {
    "aws-dms-json": ({},),
    "canal-json": ({},),
    "changelog-json": ({}, {"schemas": {"t": {"id": "int64 key", "note": "string"}}}),
    "cockroachdb-json": ({},),
    "datastream-json": ({},),
    "dts-avro": ({}, {"binlog_prefix": "binlog"}),
    "dynamodb-json": ({}, {"nested": "typed"}),
    "lindorm-json": ({}, {"order": "offset"}),
    "maxwell-json": ({}, {"order": "offset"}),
    "ogg-json": ({}, {"row_image": "full"}),
    "plain-json": ({},),
    "qlik-json": ({},),
    "shareplex-json": ({},),
    "spanner-json": ({},),
    "ticdc-avro": ({}, {"order": "commit_ts"}),
    "ticdc-open-json": ({"output_old_value": True},),
}
STREAMS = ("mongodb-change-stream-json", "ticdc-simple-json", "wal2json")
"""Formats whose messages are converted in lanes where they are no stream."""


def sent_by(source: str) -> list[Message]:
    return [one for one in goldens(source) if one.value]


@pytest.mark.parametrize("source", SOURCES)
def test_stored_messages(source: str) -> None:
    messages = sent_by(source)[::3]
    options = SOURCES[source][0]
    for writer, target in TARGETS[::4]:
        plain_count(messages * 2, options, target, source=source, writer=writer, policy=OnLoss.WARN)
    arguments: dict[str, Any] = {"source": source, "writer": "debezium-json"}
    # in lines of values, keys and tombstones are left out
    arguments |= {"policy": OnLoss.WARN, "form": LineFormat.VALUE}
    assert plain_share(messages[::3], options, **arguments) > 0.25


@pytest.mark.parametrize("source", SOURCES)
def test_mutated_and_generated_messages(source: str) -> None:
    stored, codec = sent_by(source), get_codec(source)
    mutate = mutations_of(source)

    @settings(max_examples=8 * EFFORT)
    @given(
        st.data(),
        st.lists(st.sampled_from(stored), min_size=1, max_size=2),
        data_changes(codec.carries),
        st.sampled_from(SOURCES[source]),
        st.sampled_from(TARGETS),
    )
    def check(data: Any, chosen: list[Message], change: Any, options: Any, target: Any) -> None:
        sent = mixed_messages(data.draw, mutate, codec, chosen, change)
        writer, writer_options = target
        arguments: dict[str, Any] = {"source": source, "writer": writer, "policy": OnLoss.WARN}
        plain_count(sent, options, writer_options, **arguments)

    check()


@pytest.mark.parametrize("writer", ["canal-json", "debezium-json", "debezium-flat-json"])
@pytest.mark.parametrize("source", ["canal-json", "lindorm-json", *STREAMS])
def test_messages_of_a_partition(source: str, writer: str) -> None:
    sent = [
        Message(one.value, one.key, one.headers, "in", 3, offset)
        for offset, one in enumerate(copy for one in sent_by(source)[::2] for copy in [one] * 4)
    ]
    for options in ({}, {"event_id": True, "by_source": True}):
        expected, _ = delivered(sent, source, "warn", has_lanes=False, writer=writer, **options)
        found, count = delivered(sent, source, "warn", has_lanes=True, writer=writer, **options)
        assert found == expected
        assert (count > 10) is not (source == writer)


def row(op: str, image: Any, **fields: Any) -> Message:
    value = {"data": image, "op": op} | fields
    return Message(msgspec.json.encode(value), None, (), "t")


def test_a_delete_and_its_tombstone() -> None:
    options = {"schemas": {"t": {"id": "int64 key", "note": "string"}}}
    deletes = [row("-D", {"id": number, "note": "a"}) for number in range(4)]
    arguments: dict[str, Any] = {"source": "changelog-json", "writer": "debezium-json"}
    for target in ({}, {"tombstones": "false"}):
        for form in (LineFormat.RECORD, LineFormat.VALUE):
            assert plain_count(deletes, options, target, form=form, **arguments) == 2


def test_values_that_readers_take_as_the_placeholder() -> None:
    arguments: dict[str, Any] = {"source": "changelog-json", "writer": "debezium-json"}
    rows = [row("+I", {"id": 1, "note": note}) for note in ("a", "b", "c", "d", "none")]
    assert plain_count(rows, None, {"placeholder": "none"}, policy=OnLoss.WARN, **arguments) == 2


def test_details_that_the_target_keeps() -> None:
    codec = get_codec("debezium-json")
    # a conversion within the family takes the event path, which writes the details again
    assert codec.carries.details
    sent = [one for one in goldens("debezium-json") if one.value][:20]
    assert plain_count(sent * 3, writer="debezium-json", policy=OnLoss.WARN) == 0


def test_columns_have_the_order_of_their_schema() -> None:
    options = {"schemas": {"t": {"id": "int64 key", "note": "string"}}}
    arguments: dict[str, Any] = {"source": "changelog-json", "writer": "debezium-json"}
    rows = [row("+I", {"note": "a", "id": 1}), *[row("+I", {"id": 1, "note": "a"})] * 3]
    assert plain_count([*rows, rows[0]], options, **arguments) == 3


def test_null_in_a_key_of_unknown_nullability() -> None:
    # the message that opens a lane has another schema than those after it
    codec, schema = get_codec("native-json"), TableSchema((Column("id", Integer(64)),))
    events = [
        DataChange(Op.CREATE, TableId(name="t"), Key(("id",)), None, {"id": number}, schema)
        for number in (None, 1, 2, 3, 4)
    ]
    lines = [Message(codec.encode(one).messages[0].value, None, (), "t") for one in events]
    arguments: dict[str, Any] = {"source": "native-json", "writer": "debezium-json"}
    assert plain_count(lines, policy=OnLoss.WARN, **arguments) == 2


@pytest.mark.parametrize("name", ["postgres-schema", "postgres-noschema"])
def test_deletes_with_unavailable_values(name: str) -> None:
    path = GOLDEN / "debezium-json" / "captured" / f"debezium-{name}.jsonl"
    arguments: dict[str, Any] = {"writer": "cdl-debezium-json", "policy": OnLoss.WARN}
    # the encoder lists their columns
    assert sum(plain_count([one] * 4, **arguments) for one in read(path)) > 90

# SPDX-License-Identifier: Apache-2.0
"""Schemas that list only the columns of their message: the others did not change."""

import itertools

import msgspec
import pytest

from changelane import Message, UnsupportedError, get_codec
from changelane.event import Completeness, DataChange, Key, Op, is_complete
from changelane.position import SequencePosition
from changelane.schema import Column, TableId, TableSchema
from changelane.spark.rows.builder import row_builder
from changelane.testing.reference.upsert import MemoryTables
from changelane.types import Integer, String

TABLE = TableId(name="t")
COLUMNS = (Column("id", Integer()), Column("note", String()), Column("big", String()))


def insert(at):
    row = {"id": 1, "note": "a", "big": "B"}
    schema = TableSchema(COLUMNS)
    return DataChange(
        Op.CREATE, TABLE, Key(("id",)), None, row, schema, position=SequencePosition(at)
    )


def update(at, note="b"):
    return DataChange(
        Op.UPDATE,
        TABLE,
        Key(("id",)),
        None,
        {"id": 1, "note": note},
        TableSchema(COLUMNS[:2]),
        position=SequencePosition(at),
        after_holds=Completeness.CHANGED,
    )


def test_a_table_keeps_the_columns_that_an_update_omits():
    for events in itertools.permutations([insert(1), update(2), update(3, "c")]):
        tables = MemoryTables()
        for event in events:
            tables.apply([event])
        assert tables.rows(TABLE) == [{"id": 1, "note": "c", "big": "B"}]


def test_rows_of_spark_are_no_full_rows():
    native = get_codec("native-json")
    builder = row_builder("native-json", {})
    rows = [
        row
        for event in (
            update(1),
            msgspec.structs.replace(update(2), after_holds=Completeness.UNKNOWN),
        )
        for message in native.encode(event).messages
        for row in builder.rows(Message(message.value, topic="t", partition=0, offset=0))
        if row[0] == "data"
    ]
    assert [row[10] for row in rows] == [False, True]
    assert rows[0][3] != rows[1][3]  # the schemas have different ids


def test_an_image_of_the_sent_columns_is_not_complete():
    event = update(1)
    assert not is_complete(event.after, event.schema, event.after_holds)
    assert is_complete(event.after, event.schema, Completeness.UNKNOWN)


@pytest.mark.parametrize("name", ["native-json", "wal2json"])
def test_formats_that_carry_it_do_not_lose_it(name):
    codec = get_codec(name)
    for _ in range(2):  # the second one is reduced by the cache
        event = msgspec.structs.replace(update(1), position=None)
        encoded = codec.encode(event, on_loss="raise")
        (event,) = codec.decode(encoded.messages[0])
        assert event.after_holds is Completeness.CHANGED


def test_other_formats_report_a_loss_of_data():
    codec = get_codec("debezium-json")
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="absent"):
            codec.encode(update(1))
    codec.encode(msgspec.structs.replace(update(1), after_holds=Completeness.UNKNOWN))
    losses = codec.encode(update(1), on_loss="ignore").losses
    assert any(field == "absent" for field, _ in losses)


def test_lanes_of_native_lines_leave_such_updates_out():
    native = get_codec("native-json")
    plain = msgspec.structs.replace(update(1), after_holds=Completeness.UNKNOWN)
    message = native.encode(plain).messages[0]
    lane = native.lanes.open(message, native.decode(message)[0])
    read = lane.reader(dict)
    assert read(message.value, None) is not None
    partial = native.encode(update(1)).messages[0]
    assert read(partial.value, None) is None

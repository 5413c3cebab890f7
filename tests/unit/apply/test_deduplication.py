# SPDX-License-Identifier: Apache-2.0
"""What an event is known by that its producer sends again, in each kind of positions."""

from collections import Counter
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelane import get_codec
from changelane.apply.deduplication import ONLY_CHANGE, ordinal_of
from changelane.codec import Codec
from changelane.conversion.partition import EVENT_ID
from changelane.event import DataChange, Op, Source, Transaction
from changelane.message import Message
from changelane.position import (
    BY_MESSAGE,
    EventIdPosition,
    LsnPosition,
    MySqlPosition,
    OffsetPosition,
    Position,
    PositionScope,
    PostgresPosition,
    ScnPosition,
    SequencePosition,
    TimePosition,
)
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.reference.upsert import MemoryTables
from changelane.types import String

T = TableId("shop", None, "facts")
SCHEMA = TableSchema((Column("a", String()),))
NUMBERED = Transaction("7", 3, 2)


@pytest.mark.parametrize(
    ("position", "names"),
    [
        (MySqlPosition("binlog.000001", 4, 1), PositionScope.ROW),
        (PostgresPosition(5, 4), PositionScope.GROUP),
        (ScnPosition(5), PositionScope.GROUP),
        (ScnPosition(5, 6), PositionScope.GROUP),
        (ScnPosition(5, 6, " 0x0001.0002.0003 ", 0), PositionScope.ROW),
        (ScnPosition(5, tx_seq=1), PositionScope.ROW),
        (LsnPosition("1:2:3"), PositionScope.GROUP),
        (LsnPosition("1:2:3", "1:2:2"), PositionScope.GROUP),
        (LsnPosition("1:2:3", "1:2:2", 1), PositionScope.ROW),
        (SequencePosition(5), PositionScope.ROW),
        (EventIdPosition("t", 0, 5), PositionScope.EVENT),
        (OffsetPosition("t", 0, 5), PositionScope.MESSAGE),
        (TimePosition(5, 5), PositionScope.MESSAGE),
    ],
)
def test_a_position_is_the_name_of_a_row_of_a_group_or_of_a_message(
    position: Position, names: PositionScope
) -> None:
    assert position.scope is names
    assert (position.code in BY_MESSAGE) == (names is PositionScope.MESSAGE)
    is_event, is_row = (
        names is PositionScope.EVENT,
        names in {PositionScope.EVENT, PositionScope.ROW},
    )
    assert ordinal_of(position, None, is_snapshot=False) == (ONLY_CHANGE if is_row else None)
    assert ordinal_of(position, NUMBERED, is_snapshot=False) == (ONLY_CHANGE if is_row else 3)
    # all rows of a snapshot have its position
    of_group = ONLY_CHANGE if is_event else None
    assert ordinal_of(position, None, is_snapshot=True) == of_group
    shared = {str(position.__struct_config__.tag)}
    assert ordinal_of(position, None, is_snapshot=False, shared=shared) == of_group


@pytest.mark.parametrize(
    ("transaction", "ordinal"),
    [
        (Transaction("7"), None),
        (Transaction("7", table_order=2), 2),
        (Transaction("7", 1), 1),
        # counts start at 1: what is below would be taken for the name of one row
        (Transaction("7", 0), None),
        (Transaction("7", -4), None),
    ],
)
def test_the_number_in_the_transaction_distinguishes_rows_of_a_group(
    transaction: Transaction, ordinal: int | None
) -> None:
    assert ordinal_of(PostgresPosition(5), transaction, is_snapshot=False) == ordinal


def built(codec: Codec, message: Message, *, event_ids: bool = False) -> list[int | None]:
    builder = pytest.importorskip("changelane.spark.rows.builder", exc_type=ImportError)
    rows = pytest.importorskip("changelane.spark.rows.schema", exc_type=ImportError)
    told = builder.RowBuilder(codec, event_ids=event_ids).rows(message)
    return [row[rows.FIELD_INDEX["ordinal"]] for row in told if row[0] in {"data", "truncate"}]


DEBEZIUM = '{"before":null,"after":{"a":"x"},"op":"%s","source":{%s},"transaction":%s}'
MYSQL = '"connector":"mysql","db":"shop","table":"facts","file":"b.000001","pos":4,"row":0'
POSTGRES = '"connector":"postgresql","db":"shop","schema":"s","table":"facts","lsn":4'
BLOCK = '{"id":"7","total_order":5,"data_collection_order":2}'
TIDB = (
    '{"id":0,"database":"shop","table":"facts","pkNames":[],"isDdl":false,"type":"INSERT",'
    '"es":1,"ts":1,"sql":"","sqlType":{"a":12},"mysqlType":{"a":"text"},"data":[{"a":"x"}],'
    '"old":null,"_tidb":{"commitTs":429918007904436226}}'
)


@pytest.mark.parametrize(
    ("codec", "text", "ordinal"),
    [
        ("debezium-json", DEBEZIUM % ("c", MYSQL, "null"), ONLY_CHANGE),
        ("debezium-json", DEBEZIUM % ("c", MYSQL, BLOCK), ONLY_CHANGE),
        ("debezium-json", DEBEZIUM % ("r", MYSQL + ',"snapshot":"true"', "null"), None),
        ("debezium-json", DEBEZIUM % ("r", MYSQL + ',"snapshot":"incremental"', "null"), None),
        ("debezium-json", DEBEZIUM % ("c", POSTGRES, "null"), None),
        ("debezium-json", DEBEZIUM % ("c", POSTGRES, BLOCK), 5),
        ("debezium-json", DEBEZIUM % ("t", POSTGRES, "null"), ONLY_CHANGE),
        ("canal-json", TIDB, None),
    ],
)
def test_formats_define_the_identity_of_an_event(
    codec: str, text: str, ordinal: int | None
) -> None:
    told = get_codec(codec, **({"dialect": "ticdc"} if codec == "canal-json" else {}))
    assert built(told, Message(text.encode(), None, (), "t", 0, 9)) == [ordinal]


def test_an_id_of_changelanes_own_is_that_of_one_event_a_row_of_a_snapshot_too() -> None:
    text = DEBEZIUM % ("r", '"connector":"x","db":"shop","table":"facts","snapshot":"true"', "null")
    message = Message(text.encode(), None, ((EVENT_ID, b"t-0-5-0-0"),), "copy", 0, 9)
    assert built(get_codec("debezium-json"), message) == [None]
    assert built(get_codec("debezium-json"), message, event_ids=True) == [ONLY_CHANGE]


# -- in memory

Sent = tuple[DataChange, Position | None]
FIXED: dict[str, Any] = {"key": None, "schema": SCHEMA, "source": Source(product="postgresql")}


def log(values: list[tuple[int, str]], *, is_numbered: bool) -> list[DataChange]:
    """Return the rows of a log, some of which share a record of it."""
    lsn, events = 0, []
    for number, (step, value) in enumerate(values, 1):
        lsn += step
        transaction = Transaction("7", number) if is_numbered else None
        position = PostgresPosition(lsn)
        row = {"a": value}
        events.append(
            DataChange(Op.CREATE, T, after=row, position=position, transaction=transaction, **FIXED)
        )
    return events


logs = st.lists(st.tuples(st.integers(0, 1), st.sampled_from("xy")), min_size=1, max_size=8)


@given(logs, st.lists(st.integers(0, 7), max_size=4), st.booleans())
def test_a_producer_that_goes_back_adds_no_row_twice_and_loses_none(
    values: list[tuple[int, str]], starts: list[int], is_numbered: bool
) -> None:
    events = log(values, is_numbered=is_numbered)
    offsets, tables = count(), MemoryTables()
    batches = [events, *(events[start:] for start in starts)]
    sent = [[(one, OffsetPosition("t", 0, next(offsets))) for one in batch] for batch in batches]
    for batch in [*sent, *sent]:  # changelane reads all of it again
        told, places = zip(*batch, strict=True) if batch else ((), ())
        tables.apply(told, positions=places)
    rows = Counter(str(row["a"]) for row in tables.rows(T))
    told_once = Counter(value for _, value in values)
    if is_numbered:
        assert rows == told_once
    else:
        assert rows == Counter(str(one.after["a"]) for batch in sent for one, _ in batch)


def test_equal_rows_of_one_copy_are_two_rows_without_distinct_positions() -> None:
    tables = MemoryTables()
    tables.apply(log([(1, "x"), (0, "x"), (0, "y")], is_numbered=False))
    assert [row["a"] for row in tables.rows(T)] == ["x", "x", "y"]

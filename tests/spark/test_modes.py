# SPDX-License-Identifier: Apache-2.0
"""The mode of a table: what it keeps, that it stays, and that batches are repaired in each."""

from pathlib import Path
from typing import Any, Final

import lake_tables
import msgspec
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from spark_settings import lakes

from changelane.event import (
    ChangeEvent,
    DataChange,
    Key,
    Op,
    SchemaChange,
    Source,
    Transaction,
    Truncate,
)
from changelane.position import MySqlPosition, OffsetPosition, PostgresPosition
from changelane.schema import Column, TableId, TableSchema
from changelane.spark.apply.applier import APPLIED_BEFORE, Applier
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.modes import Modes, TableMode
from changelane.spark.maintenance.trace import trace
from changelane.spark.runtime.sql import COLUMNS
from changelane.types import UNAVAILABLE, Integer, String

ON_DELTA: Final = pytest.mark.parametrize("lake", lakes("delta"), indirect=True)
ON_ICEBERG: Final = pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)

SCHEMA: Final = TableSchema((Column("id", Integer()), Column("a", String()), Column("b", String())))
LOG: Final = TableId("shop", None, "log")
PAST: Final = TableId("shop", None, "past")
BARE: Final = TableId("shop", None, "bare")
KEPT: Final = TableId("shop", None, "kept")
MODES: Final = Modes(
    TableMode("append"),
    {"past": TableMode("history"), "kept": TableMode("history", track=("a",))},
)


def change(op: str, at: int, table: TableId = LOG, **image: Any) -> DataChange:
    before, after = (image, None) if op == "d" else (None, image)
    key = None if table == BARE else Key(("id",))
    time_ns = at * 1_000_000_000
    place = PostgresPosition(at), Transaction("t", at)
    return DataChange(Op(op), table, key, before, after, SCHEMA, *place, source_time_ns=time_ns)


def logged(spark: SparkSession, lake: str, table: TableId = LOG) -> list[tuple[Any, ...]]:
    found = lake_tables.table_of(spark, lake, table)
    unknown = F.array_sort(F.map_keys("_changelane_columns"))
    rows = found.orderBy("_changelane_order", "id").select(
        "_changelane_op", "id", "a", "b", unknown, F.unix_seconds("_changelane_time")
    )
    return [tuple(row) for row in rows.collect()]


FIRST: Final = [
    change("c", 10, id=1, a="a", b="b"),
    change("u", 11, id=1, a="x", b=UNAVAILABLE),
    change("c", 10, BARE, id=1, a="a", b="b"),
    change("u", 11, BARE, id=1, a="c", b="b"),
    change("c", 10, PAST, id=1, a="a", b="b"),
    change("c", 10, KEPT, id=1, a="a", b="b"),
]
SECOND: Final = [
    change("u", 11, id=1, a="x", b=UNAVAILABLE),  # again
    change("d", 12, id=1),
    change("d", 12, id=1),  # twice
    Truncate(LOG, position=PostgresPosition(13), source_time_ns=13_000_000_000),
    change("c", 9, id=9, a=None, b="late"),
    change("d", 12, PAST, id=1),
    change("u", 11, PAST, id=1, a="x", b=UNAVAILABLE),
    change("u", 12, KEPT, id=1, a="x", b="new"),
    change("u", 11, KEPT, id=1, a="x", b="old"),
]


class DiedError(Exception):
    """The process is gone."""


def dies_at(place: str, patch: pytest.MonkeyPatch) -> None:
    def die(*_: Any) -> Any:
        raise DiedError

    real = Applier._apply

    def late(self: Any, *args: Any, **more: Any) -> None:
        real(self, *args, **more)
        raise DiedError

    match place:
        case "before the ends":
            patch.setattr("changelane.spark.state.history_tombstones.HistoryTombstones.record", die)
        case "before what is shown":
            patch.setattr("changelane.spark.apply.tracked_columns.shown", die)
        case "before the checkpoint":
            patch.setattr(Applier, "_apply", late)


@ON_DELTA
def test_logs_hold_every_event_once_and_histories_every_version_through_crashes(
    spark: SparkSession, lake: str
) -> None:
    lake_tables.apply(spark, lake, FIRST, modes=MODES)
    for place in ("before the ends", "before what is shown", "before the checkpoint"):
        with pytest.MonkeyPatch.context() as patch:
            dies_at(place, patch)
            with pytest.raises(DiedError):
                lake_tables.apply(spark, lake, SECOND, batch=1, modes=MODES)
    again = lake_tables.apply(spark, lake, SECOND, batch=1, modes=MODES)
    assert {table.note for table in again.tables} == {APPLIED_BEFORE}
    # from another checkpoint: nothing is there twice
    report = lake_tables.apply(spark, lake, [*FIRST, *SECOND], query="two", modes=MODES)
    assert report.quarantined == {}
    assert logged(spark, lake) == [
        ("c", 9, None, "late", None, 9),
        ("c", 1, "a", "b", None, 10),
        ("u", 1, "x", None, ["b"], 11),
        ("d", 1, None, None, ["a", "b"], 12),
        ("t", None, None, None, None, 13),
    ]
    assert logged(spark, lake, BARE) == [("c", 1, "a", "b", None, 10), ("u", 1, "c", "b", None, 11)]
    kept = lake_tables.table_of(spark, lake, KEPT).orderBy("_changelane_order")
    assert [tuple(row) for row in kept.select("a", "b", "_is_current").collect()] == [
        ("a", "b", False),
        ("x", "new", True),
    ]
    past = lake_tables.table_of(spark, lake, PAST).orderBy("_changelane_order")
    seconds = (F.unix_seconds("_valid_from"), F.unix_seconds("_valid_to"))
    assert [
        tuple(row) for row in past.select("id", "a", "b", *seconds, "_is_current").collect()
    ] == [
        (1, "a", "b", 10, 11, False),
        (1, "x", "b", 11, 12, False),
    ]


@ON_DELTA
def test_a_table_keeps_its_mode(spark: SparkSession, lake: str) -> None:
    lake_tables.apply(spark, lake, [change("c", 1, id=1, a="a", b="b")])
    report = lake_tables.apply(
        spark, lake, [change("c", 2, id=2, a="a", b="b")], batch=1, modes=MODES
    )
    assert report.quarantined == {"mode_conflict": 1}
    (table,) = report.tables
    assert "created in the mode upsert" in table.note
    assert "move the table away" in table.note
    renamed = TableSchema((*SCHEMA.columns, Column("_Valid_from", String())))
    taken = msgspec.structs.replace(change("c", 2, PAST, id=2), schema=renamed)
    keyless = msgspec.structs.replace(change("c", 3, PAST, id=3, a="a", b="b"), key=None)
    for batch, (event, code) in enumerate([(taken, "schema_mismatch"), (keyless, "no_key")], 2):
        report = lake_tables.apply(
            spark, lake, [event], batch=batch, modes=MODES, tables_without_key="append"
        )
        assert report.quarantined == {code: 1}


@ON_DELTA
def test_logs_without_positions_are_exactly_once_by_their_batch(
    spark: SparkSession, lake: str
) -> None:
    """Offsets of a topic tell nothing of an event that was told in another topic."""
    told = [
        msgspec.structs.replace(
            change("c", 1, id=part, a="a", b="b"), position=OffsetPosition("t", part, 5)
        )
        for part in (0, 1)
    ]
    for query in ("one", "one", "two"):
        lake_tables.apply(spark, lake, told, query=query, modes=MODES)
    assert sorted(row[1] for row in logged(spark, lake)) == [0, 0, 1, 1]


@ON_ICEBERG
def test_an_event_that_comes_again_beside_a_statement_is_not_appended_again(
    spark: SparkSession, lake: str
) -> None:
    def told(at: int, what: str | dict[str, int]) -> ChangeEvent:
        position, source = MySqlPosition("binlog.000001", at), Source(product="mysql")
        if isinstance(what, str):
            return SchemaChange(LOG, "alter", what, position=position, source=source)
        schema = TableSchema(tuple(Column(name, Integer(32)) for name in what))
        place = position, Transaction("t", at)
        return DataChange(Op.CREATE, LOG, Key(("id",)), None, what, schema, *place, source)

    first = [told(1, {"id": 1, "a": 1}), told(2, {"id": 2, "a": 2})]
    for ddl in ("ADD COLUMN b INT", "ADD COLUMN b INT DEFAULT (1 + 1)"):
        place = str(Path(lake, str(len(ddl)), Path(lake).name))
        second = [told(5, f"ALTER TABLE log {ddl}"), told(6, {"id": 3, "a": 3, "b": 3})]
        lake_tables.apply(spark, place, first, batch=0, modes=MODES)
        lake_tables.apply(spark, place, second, batch=1, modes=MODES)
        lake_tables.apply(spark, place, [*first, *second], query="two", batch=0, modes=MODES)
        lake_tables.apply(spark, place, first, query="two", batch=1, modes=MODES)
        rows = lake_tables.table_of(spark, place, LOG).select("id", "b", COLUMNS).collect()
        assert sorted(map(tuple, rows)) == [(1, None, None), (2, None, None), (3, 3, None)]


@ON_ICEBERG
def test_an_event_that_is_set_aside_does_not_make_others_come_twice(
    spark: SparkSession, lake: str
) -> None:
    both = [change("c", at, id=at, a="a", b="b") for at in (1, 2)]
    odd = change("c", 3, id=3, a="a", b="b")
    odd = msgspec.structs.replace(odd, position=OffsetPosition("t", 0, 5))
    lake_tables.apply(spark, lake, both, modes=MODES)
    report = lake_tables.apply(spark, lake, [*both, odd], query="two", modes=MODES)
    assert report.quarantined == {"unordered": 1}
    assert [row[1] for row in logged(spark, lake)] == [1, 2]


@ON_ICEBERG
def test_rows_that_swap_their_keys_are_set_aside(spark: SparkSession, lake: str) -> None:
    """Nothing but the before image tells which of two rows left a key, and it is not asked."""

    def moved(at: int, old: int, new: int, a: str) -> DataChange:
        before, after = ({"id": key, "a": a, "b": "b"} for key in (old, new))
        return DataChange(
            Op.UPDATE,
            PAST,
            Key(("id",)),
            before,
            after,
            SCHEMA,
            PostgresPosition(at, last_commit_lsn=20),
            Transaction("x"),
        )

    first = [change("c", 10, PAST, id=1, a="A", b="b"), change("c", 11, PAST, id=2, a="B", b="b")]
    lake_tables.apply(spark, lake, first, modes=MODES)
    # the transaction comes in two batches, and the second once more
    for batch, (event, aside) in enumerate(
        [(moved(21, 1, 2, "A"), {}), (moved(22, 2, 1, "B"), {"ambiguous_key_move": 1})], 1
    ):
        report = lake_tables.apply(spark, lake, [event], batch=batch, modes=MODES)
        assert report.quarantined == aside
    report = lake_tables.apply(spark, lake, [moved(22, 2, 1, "B")], batch=9, modes=MODES)
    assert report.quarantined == {"ambiguous_key_move": 1}
    past = lake_tables.table_of(spark, lake, PAST).orderBy("_changelane_order", "id")
    assert [tuple(row) for row in past.select("id", "a", "_is_current").collect()] == [
        (1, "A", False),
        (2, "B", False),
        (2, "A", True),
    ]
    (shown,) = [
        column.value
        for column in trace(open_lake(spark, lake, Path(lake).name), "past", {"id": 2}).columns
        if column.column == "a"
    ]
    assert shown == "A"
    lake_tables.apply(spark, lake, [change("c", 30, id=1, a="a", b="b")], batch=10, modes=MODES)
    tables = open_lake(spark, lake, Path(lake).name)
    found = trace(tables, "log", {"id": 1})
    assert [(one.effect, one.commits) for one in found.events] == [("insert", ["batch 10 of test"])]

"""Exactly once: a batch may die between any two of its steps, and is applied again.

A whole run that is killed is in ``test_killed_run.py``.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import lake_tables
import msgspec
import pytest
from pyspark.sql import SparkSession
from spark_settings import lakes

from changelane.errors import ApplyError
from changelane.event import ChangeEvent, DataChange, Key, Op, Truncate
from changelane.position import PostgresPosition
from changelane.schema import Column, TableId, TableSchema
from changelane.spark.apply.applier import APPLIED_BEFORE, Applier
from changelane.spark.apply.table_writer import TableWriter
from changelane.spark.evolution.evolution_state import Evolution
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.delta import Delta
from changelane.spark.lake.hudi import Hudi
from changelane.spark.lake.iceberg import Iceberg
from changelane.spark.lake.interface import name_of
from changelane.spark.rows.schema import table_id_text
from changelane.spark.state import quarantine, tombstones
from changelane.spark.state.tombstones import TombstoneTable
from changelane.types import UNAVAILABLE, Integer, String

SCHEMA: Final = TableSchema((Column("id", Integer()), Column("a", String()), Column("b", String())))
WIDER: Final = TableSchema((*SCHEMA.columns, Column("c", String())))
ONE: Final = TableId("shop", None, "one")
TWO: Final = TableId("shop", None, "two")
LOG: Final = TableId("shop", None, "log")


def change(table: TableId, op: str, at: int, after: Any, before: Any = None) -> DataChange:
    key = None if table == LOG else Key(("id",))
    return DataChange(Op(op), table, key, before, after, SCHEMA, PostgresPosition(at))


def insert(table: TableId, at: int, id: int, b: str = "b") -> DataChange:
    return change(table, "c", at, {"id": id, "a": f"a{at}", "b": b})


def both(*make: Callable[[TableId], ChangeEvent]) -> list[ChangeEvent]:
    return [one(table) for table in (ONE, TWO) for one in make]


BATCHES: Final[list[list[ChangeEvent]]] = [
    [
        *both(lambda t: insert(t, 1, 1, "toast"), lambda t: insert(t, 2, 2)),
        insert(LOG, 3, 1),
        insert(LOG, 4, 1),
    ],
    [
        # a delete, a move that lacks a column, a partial update: each raises another register
        *both(
            lambda t: change(t, "d", 10, None, {"id": 2}),
            lambda t: change(t, "u", 11, {"id": 7, "a": "m", "b": UNAVAILABLE}, {"id": 1}),
            lambda t: change(t, "u", 12, {"id": 3, "a": "part", "b": UNAVAILABLE}),
        ),
        # two schemas of a table without key in one batch
        insert(LOG, 13, 1),
        msgspec.structs.replace(
            insert(LOG, 14, 1), schema=WIDER, after={"id": 1} | dict.fromkeys("abc", "x")
        ),
    ],
    [
        *both(
            lambda t: Truncate(t, position=PostgresPosition(20)),
            lambda t: insert(t, 19, 4),
            lambda t: insert(t, 21, 5),
            lambda t: insert(t, 9, 2),
        ),
        insert(LOG, 22, 1),
    ],
]


class DiedError(Exception):
    """The process is gone."""


def die(*_: Any, **__: Any) -> Any:
    raise DiedError


def dies_at(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Return what makes an apply die at a step."""

    def at(patch: pytest.MonkeyPatch) -> None:
        match name:
            case "before the side table":
                patch.setattr(TombstoneTable, "record", die)
            case "after the side table":
                patch.setattr(TableWriter, "write", die)
            case "between two tables":
                table = TableWriter.write

                def only_one(self: Any, batch: Any, one: Any, **more: Any) -> Any:
                    if '"two"' in one.table_batch.table_id:
                        raise DiedError
                    return table(self, batch, one, **more)

                patch.setattr(TableWriter, "write", only_one)
            case "after a truncate, before its rows":
                for kind in (Delta, Iceberg, Hudi):
                    patch.setattr(kind, "commit_session", die)
            case "before the checkpoint":
                apply = Applier._apply

                def late(self: Any, *args: Any, **more: Any) -> None:
                    apply(self, *args, **more)
                    raise DiedError

                patch.setattr(Applier, "_apply", late)

    return at


EARLY: Final = [
    "after the side table",
    "before the side table",
    "after a truncate, before its rows",
]
LATE: Final = ["before the checkpoint", "between two tables", "between two tables"]


@pytest.mark.parametrize(
    ("lake", "places"),
    [
        *(
            pytest.param(lake, EARLY, id=f"{lake}-early", marks=pytest.mark.long)
            for lake in lakes("iceberg")
        ),
        *(pytest.param(lake, LATE, id=f"{lake}-late") for lake in lakes("delta")),
    ],
    indirect=["lake"],
)
def test_a_batch_that_died_is_repaired_by_running_it_again(
    spark: SparkSession, lake: str, places: list[str]
) -> None:
    for number, (batch, place) in enumerate(zip(BATCHES, places, strict=True)):
        with pytest.MonkeyPatch.context() as patch:
            dies_at(place)(patch)
            with pytest.raises(DiedError):
                lake_tables.apply(spark, lake, batch, batch=number, tables_without_key="append")
        report = lake_tables.apply(spark, lake, batch, batch=number, tables_without_key="append")
        notes = {table.table: table.note for table in report.tables}
        if place == "before the checkpoint":
            assert set(notes.values()) == {APPLIED_BEFORE}
            assert report.skipped == 3
        elif place == "between two tables":
            assert notes["shop.one"] == APPLIED_BEFORE
            assert notes["shop.two"] == ""
        tables = lake_tables.oracle(BATCHES[: number + 1])
        for table in (ONE, TWO):
            found = lake_tables.read(spark, lake, table, ("id",))
            assert found == lake_tables.remembered(tables, table), (number, place, table)
        log = lake_tables.table_of(spark, lake, LOG)
        assert log.count() == len(tables.rows(LOG))
        if number:
            assert [row["b"] for row in log.where("c = 'x'").collect()] == ["x"]


def test_what_a_batch_set_aside_before_it_died_is_in_one_place(
    spark: SparkSession, lake: str
) -> None:
    """Nothing but a key tells that a row came twice: what was mended meanwhile is replayed."""
    wider = msgspec.structs.replace(
        insert(LOG, 13, 2), schema=WIDER, after={"id": 2} | dict.fromkeys("abc", "x")
    )
    told = [insert(LOG, 12, 1), wider, insert(ONE, 14, 1)]
    lake_tables.apply(spark, lake, BATCHES[0], batch=0, tables_without_key="append")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableWriter, "write", die)
        strict = Evolution(schema_changes="strict")
        with pytest.raises(DiedError):
            lake_tables.apply(
                spark, lake, told, batch=1, tables_without_key="append", evolution=strict
            )
    for _ in range(2):
        lake_tables.apply(spark, lake, told, batch=1, tables_without_key="append")
    aside = open_lake(spark, lake, Path(lake).name).read(quarantine.NAME).collect()
    assert [msgspec.json.decode(row["event"])["after"] for row in aside] == [
        '{"id":2,"a":"x","b":"x","c":"x"}'
    ]
    rows = lake_tables.table_of(spark, lake, LOG).select("id").collect()
    assert sorted(row["id"] for row in rows) == [1, 1, 1]
    assert lake_tables.table_of(spark, lake, ONE).count() == 2
    # another batch is none of its business
    lake_tables.apply(spark, lake, [wider], batch=2, tables_without_key="append")
    assert lake_tables.table_of(spark, lake, LOG).where("c = 'x'").count() == 1


def test_a_batch_of_another_query_is_not_skipped(spark: SparkSession, lake: str) -> None:
    """A new checkpoint is a new query, never a silent skip; the rule makes it harmless."""
    first, second = BATCHES[0], [insert(ONE, 30, 9)]
    lake_tables.apply(spark, lake, first, batch=0, query="one", tables_without_key="append")
    report = lake_tables.apply(
        spark, lake, second, batch=0, query="two", tables_without_key="append"
    )
    assert report.skipped == 0
    assert b"[9]" in lake_tables.read(spark, lake, ONE, ("id",)).rows


@pytest.mark.skipif("delta" not in lake_tables.LAKES, reason="PySpark 3.5 has Hudi alone")
def test_a_table_whose_creation_was_killed_is_made(spark: SparkSession, tmp_path: Path) -> None:
    lake = tmp_path / "delta"
    places = [name_of(table_id_text(table)) for table in (ONE, TWO)]
    for place in (tombstones.NAME, places[0]):
        log = lake / place / "_delta_log"
        (log / "_staged_commits").mkdir(parents=True)
        commit = ".00000000000000000000.json.e15a0a64-88d7-4a08-bc7d-d4aef6f18a04.tmp"
        (log / commit).touch()
        (log / f".{commit}.crc").write_bytes(b"crc")
    told = [insert(ONE, 1, 1), insert(ONE, 2, 2), change(ONE, "d", 3, None, {"id": 1})]
    lake_tables.apply(spark, str(lake), told)
    (row,) = lake_tables.table_of(spark, str(lake), ONE).collect()
    assert row["id"] == 2
    # what is somebody else's stays
    other = lake / places[1] / "part.parquet"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"theirs")
    with pytest.raises(ApplyError, match="contains files and is no Delta table: move it away"):
        lake_tables.apply(spark, str(lake), [insert(TWO, 4, 1)], batch=1)
    assert other.read_bytes() == b"theirs"

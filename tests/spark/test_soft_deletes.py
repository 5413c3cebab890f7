# SPDX-License-Identifier: Apache-2.0
"""With ``deletes: soft`` tables equal the tables in memory, rows that are gone included.

Rows live and die over several batches, move, swap keys and come back; some are never told whole.
"""

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

import lake_tables
import msgspec
import pytest
import test_equality as equality
from pyspark.sql import SparkSession
from spark_settings import lakes

from changelane.apply import key_bytes, unpack_orders
from changelane.event import ChangeEvent, DataChange, Key, Op, Truncate
from changelane.position import PostgresPosition
from changelane.schema import Column, TableId, TableSchema
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.modes import Modes, TableMode
from changelane.spark.maintenance import purge
from changelane.spark.maintenance.status import status
from changelane.spark.maintenance.trace import trace
from changelane.spark.runtime.sql import COLUMNS, DELETED, ORDER
from changelane.spark.state.tombstones import TombstoneTable
from changelane.testing.histories import Profile, history
from changelane.testing.reference.upsert import MemoryTables
from changelane.types import UNAVAILABLE, Integer, String

SOFT: Final = Modes(TableMode(keeps_deleted=True))
BATCHES: Final = 3
HISTORIES: Final = 6
CROWDS: Final = {
    # whole rows only: the row form
    "whole": [(Profile(moves="none", partial=False, silent=False), equality.in_any_order)],
    "mixed": [
        *equality.CROWDS["any_order"],
        *equality.CROWDS["in_order"],
        (Profile(moves="lacking", size=24, keys=4), equality.in_order),
    ],
}
PLAIN: Final = TableId("soft", None, "plain")
SCHEMA: Final = TableSchema((Column("id", Integer()), Column("a", String()), Column("b", String())))

Batches = list[list[ChangeEvent]]


def crowd(name: str) -> Batches:
    chance = Random(f"{equality.SEED} soft {name}")
    table = TableId("soft", None, name)
    batches: Batches = [[] for _ in range(BATCHES)]
    for number, (profile, deliver) in enumerate(CROWDS[name] * HISTORIES):
        alone = msgspec.structs.replace(profile, truncates=False)
        told = deliver(chance, history(chance, alone))
        parts = equality.regrouped(chance, told, BATCHES)
        for batch, part in zip(batches, parts, strict=True):
            batch.extend(equality.rekeyed(chance, e, table, shift=number * 100) for e in part)
    return batches


def truncating(name: str, profile: Profile) -> Batches:
    """One history with truncates, in a table of its own."""
    chance = Random(f"{equality.SEED} soft {name}")
    table = TableId("soft", None, name)
    told = history(chance, profile)
    while not told.rows or sum(isinstance(event, Truncate) for event in told.events) < 2:
        told = history(chance, profile)
    events = [equality.rekeyed(chance, event, table) for event in told.events]
    arrival = equality.shuffled(chance, events)
    return list(equality.regrouped(chance, arrival, BATCHES))


def change(op: str, at: int, **image: Any) -> DataChange:
    before, after = (image, None) if op == "d" else (None, image)
    return DataChange(Op(op), PLAIN, Key(("id",)), before, after, SCHEMA, PostgresPosition(at))


STORY: Final[Batches] = [
    [change("c", 1, id=1, a="a1", b="b1"), change("c", 2, id=2, a="a2", b="b2")],
    [change("d", 3, id=1), change("d", 4, id=9), change("d", 6, id=2), change("c", 5, id=2, a="x")],
    [change("c", 7, id=1, a="back", b="b7"), change("c", 8, id=3, a="a3"), change("d", 9, id=3)],
]
"""Deleted, never seen, deleted over a newer row of the same batch; back again; born and gone."""


@pytest.fixture(scope="module")
def stories() -> dict[str, Batches]:
    told = {name: crowd(name) for name in CROWDS}
    told["truncates"] = truncating("truncates", Profile(moves="whole", size=40, keys=9))
    whole = Profile(moves="none", partial=False, silent=False, size=40, keys=9)
    return {**told, "whole_truncates": truncating("whole_truncates", whole), "plain": STORY}


@pytest.fixture(scope="module", params=lakes("iceberg"))
def lake(
    spark: SparkSession,
    stories: dict[str, Batches],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> str:
    """All stories, landed as one stream; the last batch comes twice, as after a crash."""
    lake = str(tmp_path_factory.mktemp("soft") / request.param)
    for number in range(BATCHES):
        batch = [event for story in stories.values() for event in story[number]]
        lake_tables.apply(spark, lake, batch, batch=number, modes=SOFT)
    lake_tables.apply(spark, lake, batch, batch=0, query="again", modes=SOFT)
    return lake


def stored(spark: SparkSession, lake: str, table: TableId) -> Mapping[bytes, Any]:
    found = lake_tables.table_of(spark, lake, table)
    columns = [name for name in found.columns if name not in {ORDER, COLUMNS, DELETED}]
    rows = {}
    for one in found.collect():
        row = {name: lake_tables.python(one[name]) for name in (*columns, DELETED)}
        exceptions = {name: bytes(order) for name, order in (one[COLUMNS] or {}).items()}
        key = key_bytes({"id": row["id"]})
        assert key not in rows
        rows[key] = row, unpack_orders(bytes(one[ORDER]), exceptions, columns)
    return rows


def expected(tables: MemoryTables, table: TableId) -> Mapping[bytes, Any]:
    return {
        key: (
            dict(one.row),
            unpack_orders(one.order, one.columns, [name for name in one.row if name != DELETED]),
        )
        for key, one in tables.stored(table).items()
    }


def oracle(batches: Batches, **options: Any) -> MemoryTables:
    return lake_tables.oracle([*batches, batches[-1]], **options)


@pytest.mark.parametrize("name", [*CROWDS, "truncates", "whole_truncates", "plain"])
def test_tables_with_soft_deletes_equal_memory(
    spark: SparkSession, lake: str, stories: dict[str, Batches], name: str
) -> None:
    table = TableId("soft", None, name)
    soft = oracle(stories[name], deletes="soft")
    assert stored(spark, lake, table) == expected(soft, table)
    there = {key: row for key, row in soft.keyed(table).items() if not row[DELETED]}
    hard = oracle(stories[name]).keyed(table)
    assert {key: {**row, DELETED: False} for key, row in hard.items()} == there
    assert 0 < len(there) < len(soft.keyed(table))


@pytest.mark.parametrize("kind", lakes("iceberg"))
def test_an_update_that_lacks_columns_does_not_continue_a_deleted_row(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """The update is newer than all changes before: only the tombstone tells of the delete."""
    lake = str(tmp_path / kind)
    batches: Batches = [
        [change("c", n, id=n, a=f"a{n}", b=f"b{n}") for n in range(1, 4)],
        [change("d", n + 3, id=n) for n in range(2, 4)],
        [change("u", n + 6, id=n, a="x", b=UNAVAILABLE) for n in range(1, 3)],
    ]
    for number, batch in enumerate(batches):
        lake_tables.apply(spark, lake, batch, batch=number, modes=SOFT)
    tables = lake_tables.oracle(batches, deletes="soft")
    assert stored(spark, lake, PLAIN) == expected(tables, PLAIN)


def test_rows_that_are_gone_are_told_and_never_lose_their_deletes(
    spark: SparkSession, lake: str
) -> None:
    rows = {row["id"]: row.asDict() for row in lake_tables.table_of(spark, lake, PLAIN).collect()}
    told = {n: (row["a"], row["b"], row[DELETED]) for n, row in rows.items()}
    assert told == {
        1: ("back", "b7", False),
        2: ("x", None, True),
        3: ("a3", None, True),
    }
    place = open_lake(spark, lake, lake.rpartition("/")[2])
    known = trace(place, "soft.plain", {"id": 2})
    assert {one.column: one.value for one in known.columns} == {"id": "2", "a": "x", "b": None}
    assert known.is_gone
    side = TombstoneTable(spark, place)
    orders, purged = purge.plan_purge(place, side, before_us=2**62)
    assert not orders
    assert purge.NOTE_SOFT_DELETES in {one.note for one in purged}
    counts = {one.table: (one.rows, one.incomplete) for one in status(place)}
    assert counts["soft.plain"] == (1, 0)

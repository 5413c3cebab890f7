"""Columns that reach a table after partial events which never told them, and have no schema.

Producers without schemas name in an update what changed, and the key. Such an event says nothing
of the other columns, also of those that the table gets later.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import lake_tables
import msgspec
import pytest
from pyspark.sql import SparkSession
from spark_settings import lakes
from test_schema_changes import FILE, T, rows_of, told

from changelane.event import ChangeEvent, DataChange, Key, Op, Source, Truncate
from changelane.position import MySqlPosition, encode_order
from changelane.schema import Column, TableSchema
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.interface import name_of
from changelane.spark.lake.modes import Modes, TableMode
from changelane.spark.maintenance.purge import purge
from changelane.spark.maintenance.status import status
from changelane.spark.maintenance.trace import trace
from changelane.spark.rows import latest_per_key
from changelane.spark.rows.parsing_schemas import ParsingSchema, parsing_schemas
from changelane.spark.rows.schema import table_id_text
from changelane.spark.rows.target import Target
from changelane.spark.runtime.sql import COLUMNS, ORDER
from changelane.spark.state.tombstones import TombstoneTable
from changelane.types import UNAVAILABLE, Integer

MYSQL: Final = Source(product="mysql")


def event(op: str, at: int, **row: Any) -> DataChange:
    """An event that names some columns, and no types."""
    images = (row, None) if op == "d" else (None, row)
    position = MySqlPosition(FILE, at)
    return DataChange(Op(op), T, Key(("id",)), *images, None, position, None, MYSQL)


def truncate(at: int) -> Truncate:
    return Truncate(T, position=MySqlPosition(FILE, at))


BATCHES: Final[Sequence[Sequence[ChangeEvent]]] = [
    [
        event("c", 5, id="1", a="1"),
        event("c", 5, id="2", a="1"),
        event("c", 5, id="3", a="1"),
        event("d", 8, id="3"),
        event("u", 12, id="5", a="1"),
        event("c", 5, id="6", a="1"),
    ],
    # newer than what comes next, and without `b`
    [event("u", 20, id=key, a="2") for key in "1234"] + [event("d", 9, id="7")],
    [
        event("u", 15, id="1", b="z"),  # above the insert
        event("u", 4, id="2", b="older than the insert, which left b NULL"),
        event("u", 7, id="3", b="older than the delete"),
        event("c", 5, id="4", a="1", b="z"),  # the row itself comes late
        event("c", 30, id="8", a="8", b="8"),
    ],
    [truncate(11)],
    # an older whole row does not make the columns older than a newer one
    [event("c", 25, id="6", a="6"), event("u", 26, id="6", a="7"), event("d", 40, id="8")],
    [event("c", 6, id="6", a="1"), event("c", 21, id="4", a="4", c="4")],
    [event("u", 24, id="6", c="older than the whole row"), event("u", 24, id="5", c="c")],
]


@pytest.mark.parametrize("kind", lakes("iceberg"))
def test_a_partial_event_says_nothing_of_columns_that_come_later(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    lake = str(tmp_path / kind)
    for number, batch in enumerate(BATCHES):
        lake_tables.apply(spark, lake, batch, batch=number)
        expected = lake_tables.remembered(lake_tables.oracle(BATCHES[: number + 1]), T)
        assert lake_tables.read(spark, lake, T, ("id",)) == expected, number
    assert expected.rows[b'["1"]'] == {"id": "1", "a": "2", "b": "z", "c": None}
    assert expected.unknown[b'["5"]'] == {"b"}


@pytest.mark.parametrize("kind", lakes("iceberg"))
def test_nor_does_it_where_rows_that_are_gone_are_kept(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    lake = str(tmp_path / kind)
    soft = Modes(TableMode(keeps_deleted=True))
    batches = [
        *BATCHES,
        [event("d", 50, id=key) for key in "1256"],
        [event("u", 49, id="5", b="b")],
    ]
    for number, batch in enumerate(batches):
        lake_tables.apply(spark, lake, batch, batch=number, modes=soft)
    expected = lake_tables.oracle(batches, deletes="soft").keyed(T)
    assert lake_tables.read(spark, lake, T, ("id",)).rows == expected
    assert expected[b'["5"]'] == {
        "id": "5",
        "a": "1",
        "b": "b",
        "c": "c",
        "_changelane_deleted": True,
    }


def test_what_was_never_told_counts_as_unknown(spark: SparkSession, tmp_path: Path) -> None:
    lake = str(tmp_path / "iceberg")
    batches = [
        [event("c", 5, id="1", a="1"), event("d", 10, id="1")],
        [event("u", 20, id="1", a="2")],
        [event("c", 30, id="2", a="1", b="y")],
    ]
    for number, batch in enumerate(batches):
        lake_tables.apply(spark, lake, batch, batch=number)
    tables = open_lake(spark, lake, "iceberg")
    assert [(one.rows, one.incomplete) for one in status(tables)] == [(2, 1)]
    known = {one.column: one.known for one in trace(tables, "t", {"id": "1"}).columns}
    assert known == {"id": True, "a": True, "b": False}
    # the delete below stays, or an older event would tell what it took
    horizon = encode_order(MySqlPosition(FILE, 12), phase=0)
    purge(tables, TombstoneTable(spark, tables), {table_id_text(T): horizon})
    lake_tables.apply(spark, lake, [event("u", 8, id="1", b="gone")], batch=3)
    assert rows_of(spark, lake) == [
        {"id": "1", "a": "2", "b": None},
        {"id": "2", "a": "1", "b": "y"},
    ]


def test_a_default_fills_rows_whose_newest_event_named_other_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    added = told(10, "ALTER TABLE t ADD b VARCHAR(10) DEFAULT 'x'")
    first = [event("c", 5, id="1", a="1", c="1"), event("u", 6, id="3", a="3")]
    then = [added, event("u", 20, id="1", a="2"), event("u", 20, id="4", a="4")]
    last = [event("c", 30, id="2", a="1", c="1", b="y")]
    for name, batches in {"one": [[*first, *then, *last]], "many": [first, then, last]}.items():
        lake = str(tmp_path / name / "iceberg")
        for number, batch in enumerate(batches):
            lake_tables.apply(spark, lake, batch, batch=number)
        found = lake_tables.read(spark, lake, T, ("id",))
        values = [row["b"] for _, row in sorted(found.rows.items())]
        assert values == ["x", "y", None, None], name
        # nothing tells whether these rows were there before the column
        assert found.unknown == {b'["3"]': {"b", "c"}, b'["4"]': {"b", "c"}}, name


@pytest.mark.parametrize("name", ["b", "k", "V"])
def test_a_default_that_nothing_tells_is_unknown_below_a_newer_partial_event(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    lake = str(tmp_path / "iceberg")
    row = {"id": 1, "a": 2, name: UNAVAILABLE, "c": 2}
    schema = TableSchema(tuple(Column(column, Integer(32)) for column in row))
    position = MySqlPosition(FILE, 20)
    update = DataChange(Op.UPDATE, T, Key(("id",)), None, row, schema, position, None, MYSQL)
    for number, one in enumerate(
        (
            told(5, {"id": 1, "a": 1, "c": 1}),
            update,
            told(10, f"ALTER TABLE t ADD {name} INT DEFAULT (1+1)"),
            told(30, {"id": 2, "a": 1, "c": 1, name: 1}),
        )
    ):
        lake_tables.apply(spark, lake, [one], batch=number)
    found = lake_tables.read(spark, lake, T, ("id",))
    assert found.rows[b"[1]"] == {"id": 1, "a": 2, name: None, "c": 2}
    assert found.unknown == {b"[1]": {name}}


def test_a_purge_keeps_what_a_column_that_comes_later_needs(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The row lacks nothing when the purge comes, and lacks the next column of its table."""
    lake = str(tmp_path / "iceberg")
    first = [
        event("c", 3, id="1", a="1"),
        event("d", 5, id="1"),
        event("u", 7, id="1", a="2"),
        event("c", 8, id="9", a="1"),
    ]
    lake_tables.apply(spark, lake, first)
    tables = open_lake(spark, lake, "iceberg")
    horizon = encode_order(MySqlPosition(FILE, 6), phase=0)
    purge(tables, TombstoneTable(spark, tables), {table_id_text(T): horizon})
    oracle = lake_tables.oracle([first])
    oracle.purge(T, horizon)
    late = [[event("c", 30, id="2", a="1", b="y")], [event("u", 4, id="1", b="of the first life")]]
    for number, batch in enumerate(late, 1):
        lake_tables.apply(spark, lake, batch, batch=number)
        oracle.apply(batch)
    found = lake_tables.read(spark, lake, T, ("id",))
    assert found == lake_tables.remembered(oracle, T)
    assert found.rows[b'["1"]'] == {"id": "1", "a": "2", "b": None}
    assert found.unknown == {b'["1"]': {"b"}}


def test_versions_do_not_know_the_default_of_a_column_that_a_statement_added(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake, history = str(tmp_path / "iceberg"), Modes(TableMode("history"))
    statement = told(2, "ALTER TABLE t ADD COLUMN x INT NOT NULL DEFAULT 5")
    insert, update = told(1, {"id": 1, "a": 1}), told(4, {"id": 1, "a": 3, "x": 7})
    partial = told(3, {"id": 1, "a": 2, "x": UNAVAILABLE})
    assert isinstance(partial, DataChange)
    partial = msgspec.structs.replace(partial, op=Op.UPDATE)
    for number, batch in enumerate([[insert], [statement, partial], [update]]):
        lake_tables.apply(spark, lake, batch, batch=number, modes=history)
    tables = open_lake(spark, lake, "iceberg")
    versions = tables.read(name_of(table_id_text(T))).orderBy(ORDER).select("x", COLUMNS).collect()
    assert [one["x"] for one in versions] == [None, None, 7]
    assert versions[1][COLUMNS]["x"] == b""
    (found,) = status(tables)
    assert found.incomplete == 2


@pytest.mark.parametrize("kind", lakes("iceberg"))
def test_rows_of_many_schemas_are_those_in_memory(
    spark: SparkSession, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each set of columns is a schema; those that agree are parsed by one."""
    choice = random.Random(3)
    counts: list[tuple[int, int]] = []

    def counted(target: Target) -> list[ParsingSchema]:
        schemas = parsing_schemas(target)
        counts.append((len(target.schemas), len(schemas)))
        return schemas

    monkeypatch.setattr(latest_per_key, "parsing_schemas", counted)

    def row() -> dict[str, Any]:
        names = [f"c{number}" for number in range(9) if choice.random() < 0.5]
        return {"id": str(choice.randrange(12)), **{name: choice.choice("ab") for name in names}}

    batches = [
        [event(choice.choice("ucuud"), at, **row()) for at in range(start, start + 60)]
        for start in (10, 100, 200)
    ]
    lake = str(tmp_path / kind)
    for number, batch in enumerate(batches):
        lake_tables.apply(spark, lake, batch, batch=number)
        expected = lake_tables.remembered(lake_tables.oracle(batches[: number + 1]), T)
        assert lake_tables.read(spark, lake, T, ("id",)) == expected, number
    assert max(schemas for schemas, _ in counts) > 20
    assert {parsers for _, parsers in counts} == {1}

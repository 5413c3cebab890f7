"""Columns that came without a statement: tables do not say that older rows have NULL there."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import lake_tables
import msgspec
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from spark_settings import lakes

from changelane.apply.added_columns import Addition, Cause
from changelane.event import ChangeEvent, DataChange, Key, Op, Source, Truncate
from changelane.position import PostgresPosition, encode_order
from changelane.schema import Column, TableId, TableSchema
from changelane.spark import decode
from changelane.spark.apply.applier import Applier
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.interface import Marker
from changelane.spark.lake.modes import Modes, TableMode
from changelane.spark.maintenance.purge import purge
from changelane.spark.maintenance.status import status
from changelane.spark.maintenance.trace import trace
from changelane.spark.rows.added_columns import column_exceptions, version_exceptions
from changelane.spark.rows.schema import RowColumn, RowSchema, table_id_text
from changelane.spark.rows.target import Target, unknown_columns, with_defaults
from changelane.spark.state.tombstones import TombstoneTable
from changelane.testing.reference.history import HistoryTables
from changelane.transforms.route import Route
from changelane.types import UNAVAILABLE, Integer, String

PG: Final = Source(product="postgresql")
COLUMNS: Final = {
    "id": Column("id", Integer(32), nullable=False),
    "a": Column("a", String(), nullable=True),
    "old": Column("old", String(), nullable=True),
    "new": Column("new", String(), nullable=True),
    "must": Column("must", Integer(32), nullable=False),
    "Must": Column("Must", Integer(32), nullable=False),
    "five": Column("five", Integer(32), nullable=True, default=5),
    "made": Column("made", String(), nullable=True, default=""),
    "plain": Column("plain", String(), nullable=True),
    **{f"must{n}": Column(f"must{n}", Integer(32), nullable=False) for n in range(8)},
    **{f"five{n}": Column(f"five{n}", Integer(32), nullable=True, default=5) for n in range(8)},
}
RENAMED: Final = TableId("shop", "public", "renamed")
LOOSE: Final = TableId("shop", "public", "loose")
ADDED: Final = TableId("shop", "public", "added")


def event(
    table: TableId, op: str, at: int, before: dict[str, Any] | None = None, **row: Any
) -> DataChange:
    """A change by PostgreSQL's connector, whose schema has the columns of *row*."""
    schema = TableSchema(tuple(COLUMNS[name] for name in row))
    images = (row, None) if op == "d" else (before, row)
    position = PostgresPosition(at, at)
    return DataChange(Op(op), table, Key(("id",)), *images, schema, position, None, PG)


def renamed(op: str, at: int, before: dict[str, Any] | None = None, **row: Any) -> DataChange:
    return event(RENAMED, op, at, before, **row)


def loose(op: str, at: int, **row: Any) -> DataChange:
    """A row of a table without a key, which is known by its place in the log."""
    return msgspec.structs.replace(event(LOOSE, op, at, **row), key=None)


def added(op: str, at: int, before: dict[str, Any] | None = None, **row: Any) -> DataChange:
    return event(ADDED, op, at, before, **row)


BATCHES: Final[Sequence[Sequence[ChangeEvent]]] = [
    [
        *(renamed("c", 10 + key, id=key, a="x", old="v") for key in range(1, 9)),
        *(added("c", 10 + key, id=key, a="x") for key in range(1, 6)),
        *(loose("c", 10 + key, id=key, a="x") for key in range(1, 3)),
    ],
    # old -> new, and four columns; no event says so
    [
        renamed("c", 50, id=20, a="x", new="v"),
        added("c", 50, id=20, a="x", must=1, five=6, made="z", plain="p"),
        loose("c", 50, id=20, a="x", must=1),
    ],
    [
        renamed("u", 60, id=1, a="y", new="v"),
        renamed("u", 61, id=2, a="y", new=UNAVAILABLE),
        renamed("u", 62, {"id": 3}, id=30, a="y", new=UNAVAILABLE),
        renamed("d", 63, id=4),
        # late, from before the rename; and one whose schema knew it
        renamed("c", 30, id=21, a="late", old="v"),
        renamed("u", 31, id=5, a="late", old="v"),
        renamed("r", 5, id=22, a="x", new="v"),
        added("u", 61, id=2, a="y", must=UNAVAILABLE, five=UNAVAILABLE, made="m", plain="p"),
        added("c", 30, id=21, a="late"),
        loose("c", 30, id=21, a="late"),
        loose("r", 5, id=22, a="x", must=1),
        added("u", 62, {"id": 3}, id=30, a="y", must=UNAVAILABLE, five=7, made="m", plain="p"),
    ],
    [
        renamed("u", 70, id=2, a="z", new="known"),
        renamed("u", 71, {"id": 30}, id=31, a="z", new=UNAVAILABLE),
        # a snapshot sorts below the stream, and tells all the same what rows lack
        renamed("r", 17, id=8, a="older", new="from the snapshot"),
        added("r", 6, id=23, a="older", must=9, five=5, made="q", plain="p"),
        added("c", 32, id=23, a="late"),
        added("d", 70, id=4),
        added("c", 71, id=4, a="again", must=2, five=5, made="m", plain=None),
    ],
    [Truncate(RENAMED, position=PostgresPosition(16, 16))],
]


@pytest.mark.parametrize("kind", lakes("iceberg"))
def test_older_rows_do_not_know_a_column_that_came_without_a_statement(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    lake = str(tmp_path / kind)
    reports = []
    for number, batch in enumerate(BATCHES):
        reports.append(
            lake_tables.apply(spark, lake, batch, batch=number, tables_without_key="append")
        )
        oracle = lake_tables.oracle(BATCHES[: number + 1])
        for table in (RENAMED, ADDED):
            expected = lake_tables.remembered(oracle, table)
            assert lake_tables.read(spark, lake, table, ("id",)) == expected, (number, table)
    # by hand, what the tables in memory must say, too
    unknown = oracle.incomplete(RENAMED)
    assert unknown == {key: {"new"} for key in (b"[21]", b"[31]", b"[5]", b"[6]", b"[7]")}
    unknown = oracle.incomplete(ADDED)
    both, one = {"must", "made"}, {"must"}
    assert unknown == {
        b"[1]": both, b"[2]": one, b"[21]": both, b"[30]": one, b"[5]": both,
    }  # fmt: skip
    assert oracle.keyed(RENAMED)[b"[8]"]["new"] == "from the snapshot"
    assert oracle.keyed(ADDED)[b"[23]"] == {
        "id": 23, "a": "late", "must": 9, "five": 5, "made": "q", "plain": None,
    }  # fmt: skip
    fives = {key: row["five"] for key, row in oracle.keyed(ADDED).items()}
    assert fives == {
        b"[1]": 5, b"[2]": 5, b"[20]": 6, b"[21]": 5, b"[23]": 5, b"[30]": 7, b"[4]": 5, b"[5]": 5,
    }  # fmt: skip

    notes = [{one.table: one.warning for one in report.tables if one.warning} for report in reports]
    assert [set(one) for one in notes] == [
        set(),
        {*map(str, (RENAMED, ADDED, LOOSE))},
        set(),
        set(),
        set(),
    ]
    assert "'old' disappeared at the same position" in notes[1][str(RENAMED)]
    assert "execute-snapshot" in notes[1][str(RENAMED)]
    named = [name for name in COLUMNS if repr(name) in notes[1][str(ADDED)]]
    assert named == ["must", "made"]

    tables = open_lake(spark, lake, kind)
    found = {one.table: one for one in status(tables)}
    assert found[str(RENAMED)].incomplete == 5
    assert found[str(ADDED)].incomplete == 5
    assert "'new' (5 rows; new at LSN 0/32" in found[str(RENAMED)].note
    state = {one.column: one for one in trace(tables, "renamed", {"id": 7}).columns}
    assert (state["new"].known, state["a"].known) == (False, True)
    assert "'old' disappeared" in state["new"].reason

    # a purge must not forget what an unknown column needs, and a full image makes it known
    last = [renamed("u", 90, id=key, a="x", new="v") for key in (5, 6, 7, 21, 31)]
    horizon = encode_order(PostgresPosition(65, 65), phase=0)
    purge(tables, TombstoneTable(spark, tables), {table_id_text(RENAMED): horizon})
    lake_tables.apply(spark, lake, last, batch=9)
    found = {one.table: (one.incomplete, one.note) for one in status(tables)}
    assert found[str(RENAMED)] == (0, "")
    # two older rows and a late one; that which names the column knows it
    assert found[str(LOOSE)][0] == 3


@pytest.mark.parametrize("kind", lakes("delta"))
def test_nor_do_they_if_it_comes_in_two_spellings(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """The table spells a column as the newest event does."""
    lake = str(tmp_path / kind)
    batches = [
        [added("c", 10 + key, id=key, a="x") for key in range(1, 4)],
        [added("c", 50, id=20, a="x", must=1), added("c", 51, id=21, a="x", Must=2)],
        [
            # a snapshot sorts below the stream
            added("r", 6, id=1, a="x", must=9),
            added("u", 60, id=2, a="y", must=7),
        ],
    ]
    lake_tables.land(spark, lake, batches)
    rows = lake_tables.table_of(spark, lake, ADDED).select("id", "Must").collect()
    assert {row["id"]: row["Must"] for row in rows} == {1: 9, 2: 7, 3: None, 20: 1, 21: 2}
    tables = open_lake(spark, lake, kind)
    (one,) = status(tables)
    assert (one.incomplete, one.note.partition(" (")[0]) == (1, "unknown in older rows: 'Must'")
    states = {state.column: state.known for state in trace(tables, "added", {"id": 3}).columns}
    assert states == {"id": True, "a": True, "Must": False}


@pytest.mark.parametrize("kind", lakes("iceberg"))
def test_nor_do_older_versions_of_rows(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    lake = str(tmp_path / kind)
    modes = Modes(
        tables={"added": TableMode("history"), "renamed": TableMode("history", track=("a", "new"))}
    )
    for number, batch in enumerate(BATCHES):
        lake_tables.apply(
            spark, lake, batch, batch=number, modes=modes, tables_without_key="append"
        )
    tables = open_lake(spark, lake, kind)

    def known(table: str, key: int) -> dict[str, bool]:
        return {one.column: one.known for one in trace(tables, table, {"id": key}).columns}

    oracle = HistoryTables(track={"renamed": ("a", "new")})
    for batch in BATCHES:
        oracle.apply(one for one in batch if one.table != LOOSE)
    for table, keys in ((ADDED, (1, 2, 20, 21, 30)), (RENAMED, (1, 5, 7, 20, 31))):
        versions = oracle.versions(table)
        for key in keys:
            last = versions[b"[%d]" % key][-1]
            expected = {column: column not in last.unknown for column in last.row}
            assert known(str(table.name), key) == expected, (table, key)
    assert oracle.versions(ADDED)[b"[1]"][-1].unknown == {"must", "five", "made"}
    assert oracle.versions(ADDED)[b"[2]"][-1].unknown == {"must", "five"}
    assert oracle.versions(RENAMED)[b"[7]"][-1].unknown == {"new"}
    # a table of events keeps each as it came
    lake = str(tmp_path / "events" / kind)
    for number, batch in enumerate(BATCHES[:2]):
        lake_tables.apply(spark, lake, batch, batch=number, modes=Modes(TableMode("append")))
    assert {one.incomplete for one in status(open_lake(spark, lake, kind))} == {0}


def test_expressions_grow_with_the_number_of_added_columns(spark: SparkSession) -> None:
    """They doubled or trebled with each column, so that twenty never ended."""
    del spark  # an expression needs a session

    def sizes(count: int) -> list[int]:
        names = [f"c{number}" for number in range(count)]
        unknown = [
            Addition(name, bytes([number]) * 20, Cause.UNDECLARED)
            for number, name in enumerate(names)
        ]
        known = [msgspec.structs.replace(one, value=('{"v":5}', "INT")) for one in unknown]
        schema = RowSchema((RowColumn("id", "int32", "INT"),))
        columns = dict.fromkeys(("id", *names), "INT")
        target = Target(columns, ("id",), {"a": schema}, additions=unknown)
        with_values = target._replace(additions=known)
        row = F.struct(*(F.lit(0).alias(name) for name in columns))
        expressions = [
            column_exceptions(unknown),
            version_exceptions(unknown, list(columns)),
            unknown_columns(F.col("o"), F.col("s"), target),
            with_defaults(row, F.col("o"), F.col("s"), with_values),
        ]
        return [len(str(expression)) for expression in expressions]

    for few, many in zip(sizes(2), sizes(8), strict=True):
        assert many < 5 * few


@pytest.mark.long
def test_the_plan_of_a_batch_grows_with_the_number_of_added_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    many = [name for name in COLUMNS if name[-1].isdigit()]
    later, sent = dict.fromkeys(many, 1), dict.fromkeys(many, UNAVAILABLE)
    batches = [
        [
            *(added("c", 10 + key, id=key, a="x") for key in range(1, 5)),
            loose("c", 10, id=1, a="x"),
        ],
        [added("c", 50, id=20, a="x", **later), loose("c", 50, id=20, a="x", **later)],
        [
            added("c", 30, id=21, a="late"),
            added("u", 61, id=2, a="y", **sent),
            added("u", 62, {"id": 3}, id=30, a="y", **sent),
            loose("c", 30, id=21, a="late"),
            loose("r", 5, id=22, a="x", **later),
        ],
        [added("u", 70, id=20, a="z", **later), added("d", 71, id=2)],
    ]
    lake, history = str(tmp_path / "delta"), str(tmp_path / "history/delta")
    for number, batch in enumerate(batches):
        lake_tables.apply(spark, lake, batch, batch=number, tables_without_key="append")
        oracle = lake_tables.oracle(batches[: number + 1])
        found = lake_tables.read(spark, lake, ADDED, ("id",))
        assert found == lake_tables.remembered(oracle, ADDED), number
        keyed = [one for one in batch if one.table == ADDED]
        lake_tables.apply(spark, history, keyed, batch=number, modes=Modes(TableMode("history")))
    unknown = [name for name in many if name.startswith("must")]
    assert oracle.incomplete(ADDED) == {
        key: {*unknown} for key in (b"[1]", b"[21]", b"[30]", b"[4]")
    }
    tables = {one.table: one for one in status(open_lake(spark, lake, "delta"))}
    assert (tables[str(ADDED)].incomplete, tables[str(LOOSE)].incomplete) == (4, 2)
    versions = HistoryTables()
    versions.apply(one for batch in batches for one in batch if one.table == ADDED)
    last = versions.versions(ADDED)[b"[30]"][-1]
    columns = trace(open_lake(spark, history, "delta"), "added", {"id": 30}).columns
    assert {one.column: one.known for one in columns} == {
        column: column not in last.unknown for column in last.row
    }


def test_tables_that_a_route_merges_add_a_column_one_by_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = str(tmp_path / "iceberg")
    route = Route(pattern=r"shop\.public\.s\d", table="merged", shards="key")

    def row(shard: int, at: int, **values: int) -> ChangeEvent:
        return event(TableId("shop", "public", f"s{shard}"), "c", at, id=at, **values)

    batches = [
        [row(1, 10), row(2, 11)],
        # the second one gets the column after its row, perhaps with another default
        [row(1, 20, five=6), row(2, 21), row(2, 30, five=7)],
    ]
    for number, batch in enumerate(batches):
        events = decode(lake_tables.messages(spark, batch), "native-json", transforms=[route])
        Applier(spark, lake, table_format="iceberg").apply(events, Marker("test", "test", number))
    merged = lake_tables.read(spark, lake, TableId("shop", "public", "merged"), ("id",))
    fives = {row["id"]: row["five"] for row in merged.rows.values()}
    assert fives == {10: None, 11: None, 20: 6, 21: None, 30: 7}
    assert merged.unknown == {key: {"five"} for key in (b"[10]", b"[11]", b"[21]")}

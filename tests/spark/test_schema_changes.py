"""Tables of a lake follow the statements of their source, as the tables in memory do."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import lake_tables
import msgspec
import pytest
from pyspark.sql import SparkSession
from spark_settings import lakes

from changelane.apply import key_bytes
from changelane.conversion.message_files import read_record
from changelane.errors import ConfigError
from changelane.event import ChangeEvent, DataChange, Key, Op, SchemaChange, Source, Truncate
from changelane.message import Message
from changelane.position import MySqlPosition
from changelane.schema import Column, TableId, TableSchema
from changelane.spark import decode
from changelane.spark.apply.applier import Applier
from changelane.spark.evolution.evolution_state import Evolution
from changelane.spark.evolution.suggest import SchemaPlanner
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.interface import Marker, name_of
from changelane.spark.lake.layout import Layout, Layouts
from changelane.spark.lake.modes import Modes
from changelane.spark.maintenance.purge import purge
from changelane.spark.maintenance.status import status
from changelane.spark.maintenance.trace import trace
from changelane.spark.rows.decode import MESSAGE
from changelane.spark.rows.schema import table_id_text
from changelane.spark.runtime.sql import COLUMNS, ORDER
from changelane.spark.state.tombstones import TombstoneTable
from changelane.testing.histories import rewound
from changelane.testing.reference.schema_changes import FollowingTables, stand_in
from changelane.testing.schema_histories import Database, Story
from changelane.types import UNAVAILABLE, Integer, String

SEEDS: Final = (5, 295)
"""Stories with all there is: swaps, shadows, tables renamed, dropped and made again."""
BATCHES: Final = 3


class Held(NamedTuple):
    """A table as a lake holds it, or as memory does, by key; names in lower case."""

    rows: Mapping[Any, Mapping[str, Any]]
    unknown: Mapping[Any, frozenset[str]]

    def unknown_of(self, columns: frozenset[str]) -> Mapping[Any, frozenset[str]]:
        found = {key: names & columns for key, names in self.unknown.items()}
        return {key: names for key, names in found.items() if names}


def held(spark: SparkSession, lake: str, table_id: str, kind: str) -> Held:
    tables = open_lake(spark, lake, kind)
    rows, unknown = {}, {}
    if not tables.exists(name_of(table_id)):
        return Held(rows, unknown)  # all of its events were of a dropped table
    table = tables.read(name_of(table_id))
    for one in table.collect():
        told = one.asDict()
        base = told.pop(ORDER)
        exceptions = told.pop(COLUMNS) or {}
        row = {name.lower(): value for name, value in told.items()}
        assert row["id"] not in rows
        rows[row["id"]] = row
        orders = {name: exceptions.get(name, base) for name in told}
        if lacking := frozenset(n.lower() for n, order in orders.items() if not order):
            unknown[row["id"]] = lacking
    return Held(rows, unknown)


def expected(tables: FollowingTables, place: Any) -> Held:
    memory = tables.memory()
    name = stand_in(place)
    rows = {row["id"]: row for row in memory.rows(name)}
    lacking = memory.incomplete(name)
    unknown = {key: lacking.get(key_bytes({"id": key})) for key in rows}
    return Held(rows, {key: names for key, names in unknown.items() if names})


def regrouped(chance: Random, batches: Sequence[Sequence[ChangeEvent]]) -> list[list[ChangeEvent]]:
    cuts = sorted(chance.randrange(len(batches) + 1) for _ in range(BATCHES - 1))
    return [
        [event for batch in batches[first:last] for event in batch]
        for first, last in itertools.pairwise((0, *cuts, len(batches)))
    ]


class Stream(NamedTuple):
    lake: str
    kind: str
    stories: list[Story]
    tables: list[FollowingTables]
    reports: list[Any]


class CrashError(Exception):
    pass


def crash_after(patch: pytest.MonkeyPatch, kind: type, left: int) -> None:
    """Let the tables of a lake crash after so many changes of their shape."""
    done = [0]

    def crashing(method: Any) -> Any:
        def inner(*arguments: Any) -> Any:
            found = method(*arguments)
            done[0] += 1
            if done[0] >= left:
                raise CrashError
            return found

        return inner

    for name in (
        "set_properties",
        "rename_column",
        "add_columns",
        "drop_columns",
        "update",
        "delete",
    ):
        patch.setattr(kind, name, crashing(getattr(kind, name)))


@pytest.fixture(scope="module", params=lakes("iceberg"))
def stream(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Stream:
    lake = str(tmp_path_factory.mktemp("evolving") / request.param)
    stories, tables = [], []
    batches: list[list[ChangeEvent]] = [[] for _ in range(BATCHES)]
    for seed in SEEDS:
        chance = Random(seed)
        story = Database(chance, name=f"s{seed}").play(30)
        stories.append(story)
        told = regrouped(chance, rewound(chance, story.events))
        memory = FollowingTables()
        for batch, part in zip(batches, told, strict=True):
            batch.extend(part)
            memory.apply(part)
        tables.append(memory)
    crashes = Random(SEEDS[0])
    for number, batch in enumerate(batches):
        with pytest.MonkeyPatch.context() as patch:
            crash_after(patch, type(open_lake(spark, lake, request.param)), crashes.randrange(2, 9))
            with suppress(CrashError):
                lake_tables.apply(spark, lake, batch, batch=number)
    # every batch again, as after a restart; those that were not finished do something
    reports = lake_tables.land(spark, lake, batches)
    return Stream(lake, request.param, stories, tables, reports)


def test_nothing_is_set_aside(stream: Stream) -> None:
    assert [report.quarantined for report in stream.reports] == [{}] * BATCHES


def test_lake_tables_follow_as_tables_in_memory_do(spark: SparkSession, stream: Stream) -> None:
    seen: Counter[str] = Counter()
    for story, tables in zip(stream.stories, stream.tables, strict=True):
        for place in tables.places():
            table_id = table_id_text(*place)
            found = held(spark, stream.lake, table_id, stream.kind)
            wanted = expected(tables, place)
            assert found.rows.keys() == wanted.rows.keys(), (place, story.events)
            for key, row in wanted.rows.items():
                lacking = row.keys() - found.rows[key].keys()
                # a column comes with the first event that has it: until then only defaults differ
                assert {row[name] for name in lacking} <= {None, 0, 5, 7}, (place, key)
                there = {n: value for n, value in row.items() if n not in lacking}
                assert {n: found.rows[key][n] for n in there} == there, (place, key)
            columns = frozenset(name for row in found.rows.values() for name in row)
            assert found.unknown == wanted.unknown_of(columns), place
            seen += Counter(
                tables=1, rows=len(wanted.rows), unknown=len(found.unknown), again=bool(place[1])
            )
    assert seen["tables"] > len(SEEDS), "some stories have two tables"
    assert seen["rows"] > 10
    assert seen["unknown"]
    assert seen["again"], "a name of a renamed table is used again"


CAPTURED: Final = Path(__file__).parents[1] / "golden/debezium-json/captured"


def captured(name: str) -> list[Message]:
    """Return what Debezium wrote of a database."""
    lines = (CAPTURED / f"debezium-{name}-schema.jsonl").read_bytes().splitlines()
    return [read_record(line) for line in lines]


def land(spark: SparkSession, lake: str, told: Sequence[Message], batch: int) -> Counter[str]:
    """Apply messages as a run of its own does; return what was quarantined."""
    rows = [(m.value, m.key, list(m.headers), m.topic, m.partition, m.offset) for m in told]
    kinds = ", ".join(f"{name} {kind}" for name, kind in MESSAGE.items())
    events = decode(spark.createDataFrame(rows, kinds), "debezium-json")
    applier = Applier(spark, lake, table_format=Path(lake).name)
    return Counter(applier.apply(events, Marker("test", "test", batch)).quarantined)


def test_the_statements_of_a_captured_database_are_followed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """MariaDB through Debezium: its own topic of statements beside those of the tables."""
    lake = str(tmp_path / "delta")
    told = captured("mariadb")
    # twice: the second time everything comes again, in another batch
    for batch, part in enumerate((told[:91], told[91:], told)):
        assert not set(land(spark, lake, part, batch)) - {"no_key"}
    open_tables = open_lake(spark, lake)
    customers = open_tables.read("tables/inventory.customers")
    assert dict(customers.dtypes)["balance"] == "decimal(30,6)"
    # those that were there when the column came have its default; who was renamed kept its mail
    found = {row["id"]: (row["phone"], row["mail"], row["vip"]) for row in customers.collect()}
    assert found == {
        1: ("+1 555", "ann@example.org", 1),
        4: ("n/a", "dan@example.org", 1),
        5: ("n/a", "eve@example.org", None),
        200: ("n/a", "bob@example.org", 1),
    }
    later = open_tables.read("tables/inventory.later").select("k", "v").collect()
    assert sorted(map(tuple, later)) == [("a", 12), ("b", 1)]
    states = {one.table: one for one in status(open_tables)}
    assert "later2" in states["inventory.later"].note
    assert "dropped" in states["inventory.later"].note


def test_a_captured_stream_is_what_the_database_held_wherever_its_batches_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    """PostgreSQL through Debezium, which tells no statements and leaves out unchanged TOAST."""
    lake = str(tmp_path / "delta")  # Iceberg keeps the scale of a decimal
    names = ("customers", "order_items", "cust_full", "toast_t")
    topics = {"dbz_pg.message", *(f"dbz_pg.public.{name}" for name in names)}
    told = list(enumerate(captured("postgres")))

    def part(first: int, last: int | None = None) -> list[Message]:
        return [one for _, one in told[first:last] if one.topic in topics]

    def found(name: str, *columns: str) -> list[tuple[Any, ...]]:
        place = name_of(table_id_text(TableId("shop", "public", name)))
        rows = open_lake(spark, lake).read(place).select(*columns).collect()
        return sorted(map(tuple, rows), key=lambda row: row[:2])

    # behind the update of a row that changed its key, and before its delete
    assert not land(spark, lake, part(0, 83), 0)
    (moved,) = found("toast_t", "id", "n", "big", "bigb", "bigj", "biga")
    assert moved[:3] == (2, 2, "y" * 2500)
    assert bytes(moved[3]) == b"\xab" * len(moved[3])
    assert moved[4].startswith('{"k": "jjj')
    assert moved[5] == ["a" * len(moved[5][0]), "b"]
    # between the two messages of no table, and behind them
    for batch, (first, last) in enumerate(((83, 121), (121, 123), (123, 147)), 1):
        assert not land(spark, lake, part(first, last), batch)
    # a row of an incremental snapshot tells no position
    assert land(spark, lake, part(147, 190), 4) == {"unordered": 1}

    def check() -> None:
        assert found("toast_t", "id") == []
        assert found("cust_full", "id") == [(11,)]
        assert found("order_items", "order_id", "line_no", "qty") == [
            (1, 1, 3),
            (2, 1, 1),
            (2, 9, 1),
            (3, 1, 1),
        ]
        # nobody told that `vip` went: rows from before keep it, and 5 never had it;
        # those from before `phone` have the default that the schema declares
        assert found("customers", "id", "name", "phone", "vip") == [
            (1, "Ann 日本", "+1 555", True),
            (4, "Dan", "n/a", True),
            (5, "Eve", "n/a", None),
            (200, "Bob 😀", "n/a", True),
        ]
        balances = dict(found("customers", "id", "balance"))
        assert balances[5] == 7
        assert balances[1] == Decimal("11.5001")

    check()
    assert land(spark, lake, part(0, 190), 5) == {"unordered": 1}
    check()
    # rows of the transaction that empties a table stay, and what came before does not come back
    assert not land(spark, lake, part(190), 6)
    assert land(spark, lake, part(0), 7) == {"unordered": 1}
    assert found("order_items", "order_id") == []
    assert found("customers", "id", "name") == [(1000, "same tx as truncate")]


T: Final = TableId("shop", None, "t")
FILE: Final = "binlog.000001"
STRICT: Final = Evolution("strict")


def told(place: int, what: str | dict[str, Any], table: TableId = T) -> ChangeEvent:
    """A statement, or an inserted row."""
    position = MySqlPosition(FILE, place)
    source = Source(product="mysql")
    if isinstance(what, str):
        return SchemaChange(table, "alter", what, position=position, source=source)
    schema = TableSchema(tuple(Column(name, Integer(32)) for name in what))
    key = Key(("id", "a") if "rekeyed" in what else ("id",))
    return DataChange(
        Op.CREATE, table, key, after=what, schema=schema, position=position, source=source
    )


def rows_of(spark: SparkSession, lake: str, table: TableId = T) -> list[dict[str, Any]]:
    found = open_lake(spark, lake, "iceberg").read(name_of(table_id_text(table))).collect()
    rows = [{n: v for n, v in one.asDict().items() if not n.startswith("_")} for one in found]
    return sorted(rows, key=lambda row: row["id"])


RENAMED: Final = [
    told(1, {"id": 1, "a": 1}),
    told(2, "ALTER TABLE t RENAME COLUMN a TO b"),
    told(3, {"id": 2, "b": 2}),
    told(4, {"id": 3, "b": 3, "c": 3}),
]


def test_a_table_that_is_renamed_and_nothing_else_is_shown_with_its_new_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = str(tmp_path / "iceberg")
    new = TableId("shop", None, "u")
    lake_tables.apply(spark, lake, [told(1, {"id": 1, "a": 1})])
    renamed = [told(2, "RENAME TABLE t TO u"), told(3, {"id": 2, "a": 2}, new)]
    lake_tables.apply(spark, lake, renamed, batch=1)
    open_tables = open_lake(spark, lake, "iceberg")
    (one,) = status(open_tables)
    assert (one.table, one.rows, one.note) == ("shop.t", 2, "the source calls it shop.u now")
    assert len(trace(open_tables, "u", {"id": 2}).columns) == 2
    # events of the new name count for the table
    wrong = DataChange(Op.CREATE, new, None, None, {"id": 3}, None, MySqlPosition("b.000001", 4))
    assert lake_tables.apply(spark, lake, [wrong], batch=2).quarantined
    assert [one.quarantined for one in status(open_tables)] == [1]
    lake_tables.apply(spark, lake, [told(5, "RENAME TABLE u TO t", new)], batch=3)
    assert [one.note for one in status(open_tables)] == [""]


def test_a_table_that_must_stay_as_it_is_takes_what_is_older(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = str(tmp_path / "iceberg")
    lake_tables.apply(spark, lake, RENAMED[:1])
    reports = [
        lake_tables.apply(spark, lake, batch, batch=number, evolution=STRICT)
        for number, batch in enumerate(([*RENAMED[1:], told(0, {"id": 9, "a": 9})],) * 2, 1)
    ]
    assert [report.quarantined for report in reports] == [{"schema_change": 2}] * 2
    assert rows_of(spark, lake) == [{"id": 1, "a": 1}, {"id": 9, "a": 9}]
    open_tables = open_lake(spark, lake, "iceberg")
    (one,) = status(open_tables)
    assert one.halted.startswith("schema_change")
    plans = SchemaPlanner(spark, open_tables, STRICT, Modes(), pipeline="test")
    (plan,) = plans.plans("t")
    # all that the events behind it need, at once
    assert [text.split("` ", 1)[1] for text in plan.statements] == [
        "RENAME COLUMN `a` TO `b`",
        "ADD COLUMNS (`c` INT)",
    ]
    # the table of another pipeline has other options, and its run does not stop
    others = SchemaPlanner(spark, open_tables, STRICT, Modes(), pipeline="other")
    open_tables.set_properties(open_tables.tables()[0], {"run.test": "1"})
    assert (others.plans(), others.apply()) == ([], [])
    with pytest.raises(ConfigError, match="is a table of another pipeline"):
        others.plans("t")
    assert [one.statements for one in plans.apply()] == [plan.statements]
    report = lake_tables.apply(spark, lake, RENAMED[2:], batch=3, evolution=STRICT)
    assert report.quarantined == {}
    assert [row["c"] for row in rows_of(spark, lake)] == [None, None, 3, None]
    lake_tables.apply(spark, lake, RENAMED[2:], batch=4, evolution=STRICT)
    assert rows_of(spark, lake)[2] == {"id": 3, "b": 3, "c": 3}
    assert not plans.plans()


def test_rows_from_before_a_column_have_its_default_whenever_the_column_comes(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = str(tmp_path / "iceberg")
    added = [told(1, {"id": 1, "a": 1}), told(2, "ALTER TABLE t ADD b int NOT NULL DEFAULT 5")]
    lake_tables.apply(spark, lake, added)
    assert rows_of(spark, lake) == [{"id": 1, "a": 1}]
    lake_tables.apply(spark, lake, [told(3, {"id": 2, "a": 2, "b": 7})], batch=1)
    assert rows_of(spark, lake) == [{"id": 1, "a": 1, "b": 5}, {"id": 2, "a": 2, "b": 7}]


def test_a_column_that_is_added_if_it_does_not_exist_has_its_default_only_where_it_did_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = str(tmp_path / "iceberg")
    other = TableId("shop", None, "u")
    added = "ADD COLUMN IF NOT EXISTS b int NOT NULL DEFAULT 5"
    batches = [
        [told(1, {"id": 1, "a": 1}), told(2, {"id": 1, "b": None}, other)],
        [
            told(10, f"ALTER TABLE t {added}"),
            told(11, f"ALTER TABLE u {added}", other),
            told(12, {"id": 2, "a": 2, "b": 7}),
            told(13, {"id": 2, "b": 7}, other),
        ],
        [told(3, {"id": 3, "a": 3}), told(4, {"id": 3, "b": None}, other)],
    ]
    for number, batch in enumerate(batches):
        assert not lake_tables.apply(spark, lake, batch, batch=number).quarantined
    assert [row["b"] for row in rows_of(spark, lake)] == [5, 7, 5]
    assert [row["b"] for row in rows_of(spark, lake, other)] == [None, 7, None]


def test_a_table_that_must_stay_as_it_is_tells_all_that_it_lacks_at_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = str(tmp_path / "iceberg")
    lake_tables.apply(spark, lake, RENAMED[:1])
    kinds = {"id": 32, "a": 64, "b": 32, "c": 64}
    wide = TableSchema(tuple(Column(name, Integer(bits)) for name, bits in kinds.items()))
    first = told(5, {"id": 2, "a": 2, "c": 2})
    second = msgspec.structs.replace(
        told(6, {"id": 3, "a": 1 << 40, "b": 1, "c": 1 << 40}), schema=wide
    )
    batch = [first, second]
    report = lake_tables.apply(spark, lake, batch, batch=1, evolution=STRICT)
    assert report.quarantined == {"schema_change": 2}
    plans = SchemaPlanner(
        spark, open_lake(spark, lake, "iceberg"), STRICT, Modes(), pipeline="test"
    )
    (plan,) = plans.plans()
    assert [text.split("` ", 1)[1] for text in plan.statements] == [
        "ADD COLUMNS (`b` INT, `c` BIGINT)",
        "ALTER COLUMN `a` TYPE BIGINT",
    ]
    kept = lake_tables.table_of(spark, lake, "_changelane/quarantine").collect()
    assert {row["reason"].count("column '") for row in kept} == {3}
    plans.apply()
    assert lake_tables.apply(spark, lake, batch, batch=2, evolution=STRICT).quarantined == {}
    assert rows_of(spark, lake)[2] == {"id": 3, "a": 1 << 40, "b": 1, "c": 1 << 40}


def test_a_table_whose_source_is_ignored_takes_what_it_has_columns_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = str(tmp_path / "iceberg")
    lake_tables.apply(spark, lake, RENAMED[:1])
    report = lake_tables.apply(spark, lake, RENAMED[1:], batch=1, evolution=Evolution("ignore"))
    assert not report.quarantined
    assert rows_of(spark, lake) == [{"id": 1, "a": 1}, {"id": 2, "a": 2}, {"id": 3, "a": 3}]


def test_a_table_that_cannot_follow_stops_and_the_others_go_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = str(tmp_path / "iceberg")
    other = TableId("shop", None, "u")
    late = TableId("shop", None, "late")
    first = [
        told(1, {"id": 1, "a": 1}),
        told(2, {"id": 2, "a": 2}, other),
        told(3, {"id": 3, "a": 3}, late),
        told(9, {"id": 4, "b": 4}, late),
    ]
    lake_tables.apply(spark, lake, first)
    batch = [
        told(5, "ALTER TABLE late RENAME COLUMN a TO b"),
        told(10, {"id": 5, "b": 5}, late),
        told(11, "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, a)"),
        told(12, {"id": 1, "a": 2, "rekeyed": 1}),
        told(13, {"id": 3, "a": 3}, other),
        told(14, "ALTER TABLE u FROBNICATE"),
        told(15, {"id": 3, "a": 3}, TableId("shop", None, "_u_gho")),
    ]
    report = lake_tables.apply(spark, lake, batch, batch=1)
    assert report.quarantined == {"late_statement": 1, "key_changed": 1, "unread_ddl": 1}
    assert report.shadows == 1
    assert rows_of(spark, lake) == [{"id": 1, "a": 1}]
    assert rows_of(spark, lake, other) == [{"id": 2, "a": 2}, {"id": 3, "a": 3}]
    states = {one.table: one.halted for one in status(open_lake(spark, lake, "iceberg"))}
    assert states["shop.t"].startswith("key_changed: the source changed the table's key from (id)")
    assert states["shop.late"].startswith("late_statement")
    assert not states["shop.u"]


def test_late_statements_about_a_table_that_was_made_again_leave_its_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = str(tmp_path / "iceberg")
    old = [told(5, {"id": 1, "a": 1, "c": 1}), told(6, {"id": 4, "a": 4, "c": 4})]
    lake_tables.apply(spark, lake, old)
    # nobody told that the table went and came again: its rows look alike
    again = [told(20, {"id": 2, "a": 2}), told(21, {"id": 4, "a": 5})]
    lake_tables.apply(spark, lake, again, batch=1)
    late = [told(8, "ALTER TABLE t RENAME COLUMN a TO b"), told(10, "DROP TABLE t")]
    lake_tables.apply(spark, lake, late, batch=2)
    (state,) = status(open_lake(spark, lake, "iceberg"))
    assert not state.note
    report = lake_tables.apply(spark, lake, [told(30, {"id": 3, "a": 3})], batch=3)
    assert not report.quarantined
    assert rows_of(spark, lake) == [
        {"id": nr, "a": a, "c": None} for nr, a in ((2, 2), (3, 3), (4, 5))
    ]


def test_a_late_drop_takes_the_rows_before_it_though_all_that_came_behind_it_were_deleted(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = str(tmp_path / "iceberg")
    again = told(20, {"id": 2, "a": 2})
    batches: list[list[ChangeEvent]] = [
        [told(5, {"id": 1, "a": 1})],
        [again, gone(again, 21)],
        [told(10, "DROP TABLE t")],
        [told(7, {"id": 9, "a": 9})],
    ]
    for number, batch in enumerate(batches):
        assert not lake_tables.apply(spark, lake, batch, batch=number).quarantined
    assert rows_of(spark, lake) == []


def gone(event: ChangeEvent, place: int) -> ChangeEvent:
    assert isinstance(event, DataChange)
    position = MySqlPosition(FILE, place)
    return msgspec.structs.replace(
        event, op=Op.DELETE, before=event.after, after=None, position=position
    )


OLD_AND_NEW: Final = [[told(5, {"id": 1, "a": 1, "b": 2})], [told(20, {"id": 2, "a": 10, "b": 20})]]


@pytest.mark.parametrize(
    "statements",
    [
        ["RENAME COLUMN a TO b, RENAME COLUMN b TO a"],
        ["DROP COLUMN a", "ADD COLUMN a INT"],
    ],
)
def test_a_late_statement_never_moves_what_was_told_behind_it(
    spark: SparkSession, tmp_path: Path, statements: Sequence[str]
) -> None:
    lake = str(tmp_path / "iceberg")
    late = [told(10 + n, f"ALTER TABLE t {one}") for n, one in enumerate(statements)]
    lake_tables.land(spark, lake, OLD_AND_NEW)
    lake_tables.apply(spark, lake, late, batch=2)
    report = lake_tables.apply(spark, lake, [told(30, {"id": 3, "a": 1, "b": 2})], batch=3)
    assert report.quarantined == {"late_statement": 1}
    rows = {row["id"]: row["a"] for row in rows_of(spark, lake)}
    assert rows == {1: 1, 2: 10}


def test_a_late_rename_of_a_table_is_set_aside(spark: SparkSession, tmp_path: Path) -> None:
    lake = str(tmp_path / "iceberg")
    other = TableId("shop", None, "u")
    lake_tables.land(
        spark, lake, [[told(5, {"id": 5, "a": 1})], [told(20, {"id": 20, "a": 1}, other)]]
    )
    for _ in range(2):
        report = lake_tables.apply(spark, lake, [told(10, "RENAME TABLE t TO u")], batch=2)
        assert report.quarantined == {"late_statement": 1}
    lake_tables.apply(spark, lake, [told(30, {"id": 30, "a": 1}, other)], batch=3)
    assert [row["id"] for row in rows_of(spark, lake, other)] == [20, 30]


def test_a_column_of_the_table_that_went_gives_way_to_a_renamed_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = str(tmp_path / "iceberg")
    again = "CREATE TABLE t (id int PRIMARY KEY, c int)"
    batches = [
        [told(5, {"id": 1, "a": 1, "c": 2})],
        [told(10, "DROP TABLE t"), told(11, again), told(12, {"id": 2, "c": 2})],
        [told(13, "ALTER TABLE t RENAME COLUMN c TO a"), told(14, {"id": 3, "a": 3})],
    ]
    assert [one.quarantined for one in lake_tables.land(spark, lake, batches)] == [{}] * 3
    assert rows_of(spark, lake) == [{"id": 2, "a": 2}, {"id": 3, "a": 3}]


@pytest.mark.parametrize(
    ("kind", "change", "quarantined"),
    [
        ("delta", ("RENAME COLUMN a TO b", {"id": 2, "b": ""}), "lost_partition"),
        ("iceberg", ("DROP COLUMN a", {"id": 2}), "schema_change"),
        ("iceberg", ("CHANGE a b text, ADD a text", {"id": 2, "a": "x"}), "schema_mismatch"),
    ],
)
def test_a_column_of_the_partitions_changes_as_far_as_the_format_allows(
    spark: SparkSession,
    tmp_path: Path,
    kind: str,
    change: tuple[str, dict[str, Any]],
    quarantined: str,
) -> None:
    actions, row = change
    lake = str(tmp_path / kind)
    options = {
        "layouts": Layouts(Layout(("a",))),
        "evolution": Evolution(dropped_columns="drop"),
        "is_compared": False,
    }
    first, last = (
        msgspec.structs.replace(
            told(place, values),
            schema=TableSchema(
                tuple(Column(name, Integer(32) if name == "id" else String()) for name in values)
            ),
        )
        for place, values in ((1, {"id": 1, "a": "x"}), (20, row))
    )
    altered = told(10, f"ALTER TABLE t {actions}")
    lake_tables.apply(spark, lake, [first], **options)
    report = lake_tables.apply(spark, lake, [altered, last], batch=1, **options)
    assert report.quarantined == {quarantined: 1}
    assert open_lake(spark, lake, kind).read(name_of(table_id_text(T))).count() == 1


def test_events_of_a_table_that_went_are_no_errors_though_its_key_and_types_were_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = str(tmp_path / "iceberg")
    wide = TableSchema((Column("id", Integer(32)), Column("a", String())))
    first = msgspec.structs.replace(told(5, {"id": 1, "a": "x"}), schema=wide)
    rekeyed = told(6, {"id": 2, "a": 2, "rekeyed": 1})
    again = "CREATE TABLE t (id int PRIMARY KEY, a int)"
    batches = [
        [first, rekeyed, told(10, "DROP TABLE t"), told(11, again), told(12, {"id": 3, "a": 3})],
        [first, rekeyed],
    ]
    assert [one.quarantined for one in lake_tables.land(spark, lake, batches)] == [{}] * 2
    assert rows_of(spark, lake) == [{"id": 3, "a": 3}]


def test_a_run_that_died_while_it_cleared_a_table_clears_all_of_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = str(tmp_path / "iceberg")
    partly = told(20, {"id": 1, "a": 0, "c": 0})
    assert isinstance(partly, DataChange)
    row = {"id": 1, "a": 2, "c": UNAVAILABLE}
    partly = msgspec.structs.replace(partly, op=Op.UPDATE, after=row)
    lake_tables.land(spark, lake, [[told(5, {"id": 1, "a": 1, "c": 1})], [partly]])
    batch = [told(10, "DROP TABLE t"), told(30, {"id": 3, "a": 3, "c": 3})]
    kind = type(open_lake(spark, lake, "iceberg"))
    set_properties = kind.set_properties

    def die(self: Any, table: str, properties: Mapping[str, str]) -> None:
        set_properties(self, table, properties)
        if "cleared" in properties:
            raise CrashError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "set_properties", die)
        with pytest.raises(CrashError):
            lake_tables.apply(spark, lake, batch, batch=2)
    lake_tables.apply(spark, lake, batch, batch=2)
    assert {row["id"]: row["c"] for row in rows_of(spark, lake)} == {1: None, 3: 3}


def test_a_late_drop_takes_the_rows_before_it_though_what_came_behind_it_was_purged(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = str(tmp_path / "iceberg")
    again = told(20, {"id": 2, "a": 2})
    lake_tables.land(spark, lake, [[told(5, {"id": 1, "a": 1})], [again, gone(again, 21)]])
    tables = open_lake(spark, lake, "iceberg")
    side = TombstoneTable(spark, tables)
    (row,) = side.table().where("key IS NOT NULL").collect()
    purge(tables, side, {row["table_id"]: bytes(row["deleted"])})
    for number, event in enumerate([told(10, "DROP TABLE t"), told(7, {"id": 1, "a": 9})], 2):
        lake_tables.apply(spark, lake, [event], batch=number)
    assert rows_of(spark, lake) == []


def test_a_truncate_takes_the_rows_of_a_table_without_key_whose_columns_are_not_all_known(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = str(tmp_path / "iceberg")

    def row(place: int, **values: int) -> ChangeEvent:
        event = told(place, {"id": place, **values})
        assert isinstance(event, DataChange)
        return msgspec.structs.replace(event, key=None)

    batches = [
        [row(1, a=1)],
        [told(10, "ALTER TABLE t ADD b INT DEFAULT (1+1)"), row(11, a=1, b=5)],
        [Truncate(T, position=MySqlPosition(FILE, 20)), row(21, a=1, b=5)],
    ]
    for number, batch in enumerate(batches):
        lake_tables.apply(spark, lake, batch, batch=number, tables_without_key="append")
    assert [one["id"] for one in rows_of(spark, lake)] == [21]

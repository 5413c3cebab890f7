"""Small batches: their keys limit what a merge reads, and they cost few jobs."""

import datetime as dt
import decimal
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import lake_tables
import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession
from spark_settings import lakes, lakes_with

from changelane.apply import key_bytes
from changelane.event import ChangeEvent, DataChange, Key, Op, SchemaChange, Source, Transaction
from changelane.position import SequencePosition
from changelane.schema import Column, TableId, TableSchema
from changelane.spark.apply import applier, history
from changelane.spark.apply.classify import key_changes
from changelane.spark.evolution import table_plan
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.commit_totals import CommitTotals
from changelane.spark.lake.iceberg import Iceberg
from changelane.spark.lake.interface import Commit, Lake
from changelane.spark.lake.key_filter import KeyFilter, filtered_rows, key_filter
from changelane.spark.lake.lookup import existing_rows
from changelane.spark.lake.merge import Merge
from changelane.spark.lake.modes import HISTORY, Modes, TableMode
from changelane.spark.rows import column_registers
from changelane.spark.rows.target import Target
from changelane.spark.runtime.sql import COLUMNS, ORDER
from changelane.spark.state.tombstones import TombstoneTable
from changelane.types import UNAVAILABLE, Integer, String

D = decimal.Decimal
TABLE: Final = TableId("shop", None, "orders")
SCHEMA: Final = TableSchema((Column("id", Integer(64)), Column("v", Integer(32))))
WITH_TEXT: Final = TableSchema((*SCHEMA.columns, Column("s", String())))
MAX_JOBS: Final = {"iceberg": 6, "delta": 12}
"""Of a batch with updates and deletes in one table: statistics, tombstones, merge, commits.

They are 5 and 7, and a few more where Delta reads its log again. Without the settings of small
batches, and with Spark's defaults, they are 16 and 27.
"""


@pytest.fixture
def merges(
    spark: SparkSession, lake: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], list[Merge]]:
    """Return the merges into user tables since the last call."""
    seen: list[Merge] = []
    kind = type(open_lake(spark, lake, Path(lake).name))
    merge = kind.merge

    def spied(self: Lake, session: SparkSession, name: str, source: Any, form: Merge) -> None:
        if name.startswith("tables/"):
            seen.append(form)
        merge(self, session, name, source, form)

    monkeypatch.setattr(kind, "merge", spied)

    def take() -> list[Merge]:
        taken = [*seen]
        seen.clear()
        return taken

    return take


def row(sequence: int, op: str = "u", schema: TableSchema = SCHEMA, **image: Any) -> DataChange:
    images = (image, None) if op == "d" else (None, image)
    return DataChange(
        Op(op), TABLE, Key(("id",)), *images, schema=schema, position=SequencePosition(sequence)
    )


def changes(first: int, count: int, value: int) -> list[DataChange]:
    return [row(first + n, id=n, v=value) for n in range(count)]


def values(spark: SparkSession, lake: str) -> dict[int, int]:
    table = open_lake(spark, lake, Path(lake).name).read("tables/shop.orders")
    rows = [(found["id"], found["v"]) for found in table.select("id", "v").collect()]
    assert len(rows) == len(dict(rows))
    return dict(rows)


def counted_rows(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, *, argument: int
) -> list[int]:
    """Return a list that gets the number of rows of an argument, at each call of a function."""
    counts: list[int] = []
    function = getattr(module, name)

    def counted(*arguments: Any) -> DataFrame:
        counts.append(arguments[argument].count())
        result: DataFrame = function(*arguments)
        return result

    monkeypatch.setattr(module, name, counted)
    return counts


def test_the_keys_of_a_small_batch_limit_its_merge(
    spark: SparkSession, lake: str, merges: Callable[[], list[Merge]]
) -> None:
    lake_tables.apply(spark, lake, changes(1, 5, 0), batch=0, is_small=False)
    assert [merge.target_filter for merge in merges()] == [""]
    lake_tables.apply(spark, lake, changes(11, 2, 1), batch=1, is_small=True)
    assert [merge.target_filter for merge in merges()] == ["t.`id` IN (0L, 1L)"]
    assert values(spark, lake) == {0: 1, 1: 1, 2: 0, 3: 0, 4: 0}
    lake_tables.apply(spark, lake, changes(21, 250, 2), batch=2, is_small=True)
    (merge,) = merges()
    assert merge.target_filter.startswith("(t.`id` >= 0L AND t.`id` <= 256L AND t.`id` IN (0L, ")
    assert values(spark, lake) == dict.fromkeys(range(250), 2)


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_a_key_outside_of_the_filter_is_merged_without_it(
    spark: SparkSession,
    lake: str,
    merges: Callable[[], list[Merge]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The filter would hide the row of the key, and the merge would add the row again."""
    lake_tables.apply(spark, lake, changes(1, 5, 0), batch=0)
    monkeypatch.setattr(table_plan, "key_filter", lambda _keys, *args: key_filter(["[0]"], *args))
    merges()
    lake_tables.apply(spark, lake, changes(11, 3, 1), batch=1, is_small=True)
    assert [merge.target_filter for merge in merges()] == ["t.`id` IN (0L)", ""]
    assert values(spark, lake) == {0: 1, 1: 1, 2: 1, 3: 0, 4: 0}


@pytest.mark.parametrize(("lake", "is_outside"), lakes_with(False, True), indirect=["lake"])
def test_updates_that_lack_columns_read_only_the_rows_of_their_keys(
    spark: SparkSession,
    lake: str,
    merges: Callable[[], list[Merge]],
    monkeypatch: pytest.MonkeyPatch,
    is_outside: bool,
) -> None:
    """A key outside of the filter would lose the columns that its event lacks."""
    full_rows = [row(1 + n, schema=WITH_TEXT, id=n, v=0, s=f"s{n}") for n in range(6)]
    lake_tables.apply(spark, lake, full_rows, batch=0)
    if is_outside:
        monkeypatch.setattr(
            table_plan, "key_filter", lambda _keys, *args: key_filter(["[0]"], *args)
        )
    read = counted_rows(monkeypatch, column_registers, "with_stored_rows", argument=1)
    merges()
    events = [
        row(at, schema=WITH_TEXT, id=key, v=value, s=UNAVAILABLE)
        for at, key, value in ((11, 0, 7), (12, 3, 8), (13, 9, 9))
    ]
    events.append(row(14, "d", id=5, v=0))
    lake_tables.apply(spark, lake, events, batch=1, is_small=True)
    filtered = "t.`id` IN (0L)" if is_outside else "t.`id` IN (0L, 3L, 5L, 9L)"
    assert [merge.target_filter for merge in merges()] == [filtered] + [""] * is_outside
    assert read == ([1, 6] if is_outside else [3])
    table = open_lake(spark, lake, Path(lake).name).read("tables/shop.orders")
    stored = {found["id"]: (found["v"], found["s"]) for found in table.collect()}
    assert stored == {
        **{n: (0, f"s{n}") for n in (1, 2, 4)},
        0: (7, "s0"),
        3: (8, "s3"),
        9: (9, None),
    }


MOVED: Final = msgspec.structs.replace(
    row(23, schema=WITH_TEXT, id=8, v=2, s="moved"),
    before={"id": 2, "v": 1, "s": "s2"},
    transaction=Transaction("a key change that the rule itself decides"),
)
ADDED: Final = SchemaChange(
    TABLE,
    "alter",
    "ALTER TABLE orders ADD COLUMN w INT DEFAULT (rand())",
    position=SequencePosition(40),
    source=Source(product="mysql"),
)


@pytest.mark.parametrize(("lake", "is_small"), lakes_with(True, False), indirect=["lake"])
@pytest.mark.parametrize(
    ("later", "is_replaced"),
    [
        pytest.param([], True, id="newer"),
        pytest.param([MOVED], True, id="moved"),
        # older than an event of an earlier batch
        pytest.param([row(11, schema=WITH_TEXT, id=3, v=4, s="older")], False, id="older"),
        pytest.param([row(30, schema=WITH_TEXT, id=3, v=4, s=UNAVAILABLE)], False, id="partial"),
        # the value of the column is unknown in events that are older than the statement
        pytest.param([ADDED], False, id="added"),
    ],
)
def test_newer_full_rows_replace_rows_whose_columns_have_orders(
    spark: SparkSession,
    lake: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    later: list[ChangeEvent],
    is_small: bool,
    is_replaced: bool,
) -> None:
    """Their merge reads no stored row."""
    batches: list[list[ChangeEvent]] = [
        [row(1 + n, schema=WITH_TEXT, id=n, v=0, s=f"s{n}") for n in range(5)],
        [row(10 + n, schema=WITH_TEXT, id=n, v=1, s=UNAVAILABLE) for n in range(3)],
        [
            row(20, schema=WITH_TEXT, id=0, v=2, s="new"),
            row(21, "d", schema=WITH_TEXT, id=1, v=1, s=None),
            row(22, schema=WITH_TEXT, id=7, v=2, s="new"),
            *later,
        ],
    ]
    lake_tables.land(spark, lake, batches[:2], is_small=is_small)
    read = counted_rows(monkeypatch, column_registers, "with_stored_rows", argument=1)
    lake_tables.land(spark, lake, batches[2:], first=2, is_small=is_small)
    assert (not read) == is_replaced
    batches.append([row(50, schema=WITH_TEXT, id=0, v=UNAVAILABLE, s="newest")])
    lake_tables.land(spark, lake, batches[3:], first=3, is_small=is_small)
    expected = lake_tables.remembered(lake_tables.oracle(batches), TABLE)
    assert lake_tables.read(spark, lake, TABLE, ("id",)) == expected


@pytest.mark.parametrize(("lake", "is_small"), lakes_with(True, False), indirect=["lake"])
def test_a_conflict_in_the_first_batch_of_a_table_takes_the_greater_values(
    spark: SparkSession, lake: str, is_small: bool
) -> None:
    """A table without rows is not merged with on Iceberg; its source has the check all the same."""
    batch: list[ChangeEvent] = [
        row(1, schema=WITH_TEXT, id=1, v=1, s="b"),
        row(1, schema=WITH_TEXT, id=1, v=2, s="a"),
        row(2, schema=WITH_TEXT, id=2, v=3, s="c"),
        row(3, "d", schema=WITH_TEXT, id=2, v=3, s="c"),
    ]
    lake_tables.apply(spark, lake, batch, is_small=is_small)
    expected = lake_tables.remembered(lake_tables.oracle([batch]), TABLE)
    assert lake_tables.read(spark, lake, TABLE, ("id",)) == expected
    assert [(found["v"], found["s"]) for found in expected.rows.values()] == [(2, "b")]


def test_rows_that_change_their_keys_limit_what_is_read_too(
    spark: SparkSession,
    lake: str,
    merges: Callable[[], list[Merge]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rule itself decides such keys, those of earlier batches included."""
    full_rows = [row(1 + n, schema=WITH_TEXT, id=n, v=0, s=f"s{n}") for n in range(50)]
    lake_tables.apply(spark, lake, full_rows, batch=0, is_small=False)
    read = counted_rows(monkeypatch, key_changes, "existing_rows", argument=0)
    merges()
    away = row(100, schema=WITH_TEXT, id=60, v=1, s=UNAVAILABLE)
    other = row(101, schema=WITH_TEXT, id=7, v=1, s=UNAVAILABLE)
    moved = msgspec.structs.replace(away, before={"id": 3})
    lake_tables.apply(spark, lake, [moved, other], batch=1, is_small=True)
    assert [merge.target_filter for merge in merges()] == ["t.`id` IN (3L, 7L, 60L)"]
    assert read == [1]
    read.clear()
    # an older event of a key belongs to the row at its new key, which the batch does not have
    late = row(90, schema=WITH_TEXT, id=3, v=9, s="late")
    eighth = row(102, schema=WITH_TEXT, id=8, v=2, s=UNAVAILABLE)
    lake_tables.apply(spark, lake, [late, eighth], batch=2, is_small=True)
    assert [merge.target_filter for merge in merges()] == ["t.`id` IN (3L, 8L, 60L)"]
    assert read == [1]
    read.clear()
    # a large batch reads only the rows of its few moved keys, and merges with all
    back = msgspec.structs.replace(
        row(110, schema=WITH_TEXT, id=3, v=5, s=UNAVAILABLE), before={"id": 60}
    )
    lake_tables.apply(spark, lake, [back], batch=3, is_small=False)
    assert [merge.target_filter for merge in merges()] == [""]
    assert read == [1]
    table = open_lake(spark, lake, Path(lake).name).read("tables/shop.orders")
    stored = {found["id"]: (found["v"], found["s"]) for found in table.collect()}
    assert stored == {
        **{n: (0, f"s{n}") for n in range(50)},
        3: (5, "late"),
        7: (1, "s7"),
        8: (2, "s8"),
    }


@pytest.mark.parametrize(
    ("kind", "stored", "looked_up"),
    [
        ("bigint", [1, -(2**63), 2**63 - 1, 0, None], [(-(2**63),), (2**63 - 1,), (0,), (None,)]),
        ("tinyint", [-128, 127, 5], [(-128,), (127,)]),
        (
            "decimal(10,2)",
            [D("1.50"), D("-0.10"), D(100)],
            [(D("1.5"),), (D("1E+2"),), (D("-.1"),)],
        ),
        ("decimal(20,0)", [D(2**64 - 1), D(7)], [(2**64 - 1,)]),
        (
            "date",
            [dt.date(1, 1, 1), dt.date(1582, 10, 10), dt.date(9999, 12, 31)],
            [(dt.date(1, 1, 1),), (dt.date(1582, 10, 10),)],
        ),
        (
            "string",
            ["a'b\\\"", "%_", "x ", "x", "\u00e9", "e\u0301", "", "${x}", "a\nb", "7"],
            [("a'b\\\"",), ("%_",), ("x ",), ("e\u0301",), ("",), ("${x}",)],
        ),
        ("string", ["a\nb", "7", "x"], [("a\nb",), (7,)]),
        ("string", [str(n) for n in range(600)], [(str(n),) for n in range(0, 600, 2)]),
        ("double", [1.5, -0.0, math.nan], [(1.5,), (0.0,), (math.nan,)]),
        ("boolean", [True, False], [(True,)]),
        ("binary", [b"a", b"\x00"], [(b"\x00",)]),
    ],
)
def test_a_filter_has_all_rows_that_a_lookup_of_its_keys_finds(
    spark: SparkSession, kind: str, stored: list[Any], looked_up: list[tuple[Any, ...]]
) -> None:
    """A lookup does not check its rows against the filter, as a merge does."""
    target = Target({"k": kind, "n": "int"}, ("k",), {})
    texts = [key_bytes({"k": key}).decode() for (key,) in looked_up]
    rows = [(key, number) for number, key in enumerate(stored)]
    table = spark.createDataFrame(rows, f"k {kind}, n int").selectExpr(
        "*", f"X'01' AS `{ORDER}`", f"CAST(NULL AS MAP<STRING, BINARY>) AS `{COLUMNS}`"
    )
    keys = spark.createDataFrame([(text,) for text in texts], "key string")
    batch_keys = key_filter(texts, target.columns, target.keys)

    def found(batch_keys: KeyFilter | None) -> list[int]:
        matches = existing_rows(filtered_rows(table, batch_keys), keys, target)
        return sorted(match["row"]["n"] for match in matches.collect())

    assert found(batch_keys) == found(None)
    assert len(found(None)) == len(looked_up)


@pytest.mark.parametrize(
    ("lake", "variant"),
    lakes_with((False, None), (True, None), (True, ("v",)), (False, ("v",))),
    indirect=["lake"],
)
def test_the_keys_of_a_small_batch_limit_the_versions_that_are_read(
    spark: SparkSession,
    lake: str,
    merges: Callable[[], list[Merge]],
    monkeypatch: pytest.MonkeyPatch,
    variant: tuple[bool, tuple[str, ...] | None],
) -> None:
    """A version whose key is outside of the filter would not end."""
    is_outside, track = variant
    modes = Modes(TableMode(HISTORY, track))
    full_rows = [row(1 + n, schema=WITH_TEXT, id=n, v=0, s=f"s{n}") for n in range(6)]
    lake_tables.apply(spark, lake, full_rows, batch=0, is_small=False, modes=modes)
    if is_outside:
        monkeypatch.setattr(
            table_plan, "key_filter", lambda _keys, *args: key_filter(["[0]"], *args)
        )
    read = counted_rows(monkeypatch, history, "of_keys", argument=0)
    merges()
    # a delete has no row in the source of the merge: its key is checked where versions are read
    deleted = [row(11, "d", id=5, v=0)]
    lake_tables.apply(spark, lake, deleted, batch=1, is_small=True, modes=modes)
    filtered = "t.`id` IN (0L)" if is_outside else "t.`id` IN (5L)"
    assert [merge.target_filter for merge in merges()] == [filtered] + [""] * is_outside
    counts = [1, 6] if is_outside else [1]
    # the full history, and then both tables
    assert read == (counts if track is None else [*counts, *(n for n in counts for _ in range(2))])
    table = open_lake(spark, lake, Path(lake).name).read("tables/shop.orders")
    current = {found["id"] for found in table.where("_is_current").collect()}
    assert (current, table.count()) == ({0, 1, 2, 3, 4}, 6)
    lake_tables.apply(
        spark,
        lake,
        [row(12, schema=WITH_TEXT, id=4, v=1, s=UNAVAILABLE), row(13, schema=WITH_TEXT, id=7, v=2)],
        batch=2,
        is_small=True,
        modes=modes,
    )
    table = open_lake(spark, lake, Path(lake).name).read("tables/shop.orders")
    found_rows = [(found["id"], found["v"], found["s"]) for found in table.collect()]
    assert sorted(found_rows, key=str) == [
        *((n, 0, f"s{n}") for n in range(5)),
        (4, 1, "s4"),
        (5, 0, "s5"),
        (7, 2, None),
    ]


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_a_batch_with_older_changes_compares_them_with_the_table(
    spark: SparkSession, lake: str, merges: Callable[[], list[Merge]]
) -> None:
    """Only a batch that is newer than all before skips the clause for equal positions."""
    lake_tables.apply(spark, lake, changes(1, 2, 5), batch=0)
    merges()
    lake_tables.apply(spark, lake, changes(3, 2, 6), batch=1, is_small=True)
    assert [len(merge.matched) for merge in merges()] == [2]
    older = [row(4, id=1, v=7), row(2, id=0, v=0)]
    lake_tables.apply(spark, lake, older, batch=2, is_small=True)
    assert [len(merge.matched) for merge in merges()] == [3]
    assert values(spark, lake) == {0: 6, 1: 7}


@pytest.mark.parametrize("is_small", [True, False])
@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_a_batch_with_older_changes_reads_the_tombstones(
    spark: SparkSession, lake: str, monkeypatch: pytest.MonkeyPatch, *, is_small: bool
) -> None:
    """The first batch skips them, and one newer than all before, as the table's commits show."""
    reads: list[str] = []
    for name in ("rows_of_table", "of_table", "for_keys"):
        read = getattr(TombstoneTable, name)

        def counted(*args: Any, read: Any = read, **options: Any) -> DataFrame:
            reads.append(read.__name__)
            result: DataFrame = read(*args, **options)
            return result

        monkeypatch.setattr(TombstoneTable, name, counted)

    def reads_of(batch: int, *events: DataChange) -> bool:
        reads.clear()
        lake_tables.apply(spark, lake, events, batch=batch, is_small=is_small, is_compared=False)
        return bool(reads)

    deletes = [row(10 + n, "d", id=n, v=0) for n in range(3)]
    assert not reads_of(0, *changes(1, 4, 0), *deletes)
    assert not reads_of(1, row(20, id=0, v=1), row(21, id=3, v=1))
    assert values(spark, lake) == {0: 1, 3: 1}
    assert reads_of(2, row(5, id=1, v=2), row(30, id=3, v=2))
    assert values(spark, lake) == {0: 1, 3: 2}
    # other programs have expired the commits: the totals in the properties may be old ones
    kind = type(open_lake(spark, lake, Path(lake).name))
    old_totals = Commit(0, CommitTotals(high="00").properties)
    monkeypatch.setattr(kind, "last_commit", lambda *_: old_totals)
    # or an older changelane wrote the newest commit
    for batch, commits in enumerate(((), (Commit(0, {}),)), start=3):
        monkeypatch.setattr(kind, "marked_commits", lambda *_, commits=commits: iter(commits))
        assert reads_of(batch, row(6, id=2, v=3))
        assert values(spark, lake) == {0: 1, 3: 2}


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_a_deleted_row_stays_deleted_after_other_programs_expired_the_commits(
    spark: SparkSession, lake: str
) -> None:
    """The first late batch reads the tombstones; the second one is newer than the first only."""
    lake_tables.apply(spark, lake, changes(1, 3, 0), batch=0)
    lake_tables.apply(spark, lake, [row(50, "d", id=1, v=0), row(51, id=2, v=1)], batch=1)
    tables = open_lake(spark, lake, Path(lake).name)
    assert isinstance(tables, Iceberg)
    for procedure, arguments in (
        ("rewrite_data_files", "options => map('rewrite-all', 'true')"),
        ("expire_snapshots", "older_than => TIMESTAMP '2999-01-01 00:00:00', retain_last => 1"),
    ):
        tables._call(procedure, "tables/shop.orders", arguments)
    assert not list(tables.marked_commits("tables/shop.orders"))
    lake_tables.apply(spark, lake, [row(4, id=2, v=2)], batch=2)
    lake_tables.apply(spark, lake, [row(30, id=1, v=2)], batch=3)
    assert values(spark, lake) == {0: 0, 2: 1}


def jobs_of_group(spark: SparkSession, group: str) -> list[str]:
    """Return the call sites of the group's jobs; other tests may have jobs at the same time."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(group)
    return [context.statusStore().job(job).name() for job in sorted(jobs)]


def test_a_small_batch_has_few_jobs(
    spark: SparkSession, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table_format = Path(lake).name
    if table_format not in MAX_JOBS:
        pytest.skip("the format has jobs of its own")
    lake_tables.apply(spark, lake, changes(1, 50, 0), batch=0)
    deletes = [row(200 + n, "d", id=n, v=1) for n in range(5)]
    group, context = f"a small batch into {lake}", spark.sparkContext
    set_group = partial(context.setJobGroup, group, group)
    monkeypatch.setattr(
        applier, "ThreadPoolExecutor", partial(ThreadPoolExecutor, initializer=set_group)
    )
    set_group()
    try:
        lake_tables.apply(spark, lake, changes(100, 10, 1) + deletes, batch=1, is_small=True)
    finally:
        context._jsc.clearJobGroup()
    jobs = jobs_of_group(spark, group)
    assert 3 < len(jobs) <= MAX_JOBS[table_format], jobs
    assert len(values(spark, lake)) == 45

"""Two runs of one pipeline: the newer one goes on, the older one stops before it writes."""

import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import lake_tables
import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark_settings import lakes, lakes_with

from changelane.event import DataChange, Key, Op
from changelane.position import SequencePosition
from changelane.schema import Column, TableId, TableSchema
from changelane.spark import decode
from changelane.spark.apply.applier import Applier
from changelane.spark.apply.dispatch import MergeSchedule, TableDispatcher
from changelane.spark.apply.planning import BatchPlanner
from changelane.spark.evolution.evolution_state import Evolution
from changelane.spark.evolution.suggest import SchemaPlanner
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.interface import Marker, is_commit_conflict
from changelane.spark.lake.modes import APPEND, Modes, TableMode
from changelane.spark.state.fencing import FencedError
from changelane.types import UNAVAILABLE, Integer

UPSERTS: Final = TableMode()
APPENDS: Final = TableMode(APPEND)
TABLE: Final = TableId("shop", None, "orders")
SCHEMA: Final = TableSchema((Column("id", Integer()), Column("v", Integer())))


def insert(id: int, v: int) -> Any:
    image = {"id": id, "v": v}
    return DataChange(
        Op.CREATE, TABLE, Key(("id",)), after=image, schema=SCHEMA, position=SequencePosition(v)
    )


def run(
    spark: SparkSession, lake: str, pipeline: str = "shop", mode: TableMode = UPSERTS
) -> Applier:
    applier = Applier(spark, lake, table_format=Path(lake).name, modes=Modes(mode))
    applier.acquire_fencing_token(pipeline)
    return applier


def write(spark: SparkSession, applier: Applier, event: Any, batch: int) -> None:
    told = decode(lake_tables.messages(spark, [event]), "native-json")
    applier.apply(told, Marker("shop", "query", batch))


def rows(spark: SparkSession, lake: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(one)[:2] for one in lake_tables.table_of(spark, lake, TABLE).collect())


def test_an_older_run_stops_when_a_newer_one_began(spark: SparkSession, lake: str) -> None:
    older = run(spark, lake)
    write(spark, older, insert(1, 1), 0)
    newer = run(spark, lake)
    with pytest.raises(FencedError, match=r"run 2 of this (pipeline|folder) writes these tables"):
        write(spark, older, insert(1, 2), 1)
    write(spark, newer, insert(2, 3), 1)
    with pytest.raises(FencedError):
        write(spark, older, insert(1, 4), 2)
    assert rows(spark, lake) == [(1, 1), (2, 3)]


def test_schema_apply_stops_an_active_run(spark: SparkSession, lake: str) -> None:
    active = run(spark, lake)
    write(spark, active, insert(1, 1), 0)
    tables = open_lake(spark, lake, Path(lake).name)
    SchemaPlanner(spark, tables, Evolution(), Modes(), pipeline="shop").apply()
    with pytest.raises(FencedError):
        write(spark, active, insert(2, 2), 1)
    assert rows(spark, lake) == [(1, 1)]


def test_a_table_fences_off_a_run_that_passed_the_first_check(
    spark: SparkSession, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer run begins after the older one looked at the side table."""
    older = run(spark, lake)
    write(spark, older, insert(1, 1), 0)
    plan = BatchPlanner.plan

    def late(self: BatchPlanner, *told: Any) -> Any:
        monkeypatch.setattr(BatchPlanner, "plan", plan)
        write(spark, run(spark, lake), insert(2, 2), 1)
        return plan(self, *told)

    monkeypatch.setattr(BatchPlanner, "plan", late)
    with pytest.raises(FencedError):
        write(spark, older, insert(1, 3), 1)
    assert rows(spark, lake) == [(1, 1), (2, 2)]


class Held:
    """The next merge or append into a table of a run waits for us, past every check.

    Attributes:
        merges: How often tables were merged into.
    """

    def __init__(self, applier: Applier, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.merges = 0
        begun, released = folder / "begun", folder / "released"
        self._begun, self._released = begun, released
        merge, append = applier._lake.merge, applier._lake.append

        def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            begun.touch()
            until = time.monotonic() + 120
            while not released.exists() and time.monotonic() < until:
                time.sleep(0.05)  # it runs in a worker of Spark, to which a file alone can speak
            yield from batches

        def held(session: SparkSession, table: str, source: DataFrame, form: Any) -> None:
            if table.startswith("tables/"):
                self.merges += 1
                source = source.coalesce(1).mapInArrow(wait, source.schema)
            merge(session, table, source, form)

        def held_append(session: SparkSession, table: str, rows: DataFrame) -> None:
            if table.startswith("tables/"):
                rows = rows.coalesce(1).mapInArrow(wait, rows.schema)
            append(session, table, rows)

        monkeypatch.setattr(applier._lake, "merge", held)
        monkeypatch.setattr(applier._lake, "append", held_append)

    def meanwhile(
        self, write: Callable[[], object], other: Callable[[], object]
    ) -> BaseException | None:
        """Return how a write ended beside whose merge another one came first."""
        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(write)
            while not self._begun.exists():
                assert not late.done(), late.exception()
                time.sleep(0.05)  # a file of that worker is all that tells
            other()
            self._released.touch()
            return late.exception()


one_writer = pytest.mark.skipif(
    "delta" not in lake_tables.LAKES, reason="on Hudi a table has one writer at a time"
)


@one_writer
@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize(("lake", "pipeline"), lakes_with("shop", "other"), indirect=["lake"])
def test_two_writers_of_one_new_row_at_the_same_time_leave_it_once(
    spark: SparkSession,
    lake: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    pipeline: str,
    is_new: bool,
) -> None:
    """The commit of the first one is under way, past every check, when the second one writes.

    A new table has no row to merge with, so that Iceberg appends to it.
    """
    first = run(spark, lake)
    older_rows = [] if is_new else [(1, 1)]
    if not is_new:
        write(spark, first, insert(1, 1), 0)
    error = Held(first, tmp_path, monkeypatch).meanwhile(
        lambda: write(spark, first, insert(7, 2), 1),
        lambda: write(spark, run(spark, lake, pipeline), insert(7, 3), 1),
    )
    assert rows(spark, lake) == [*older_rows, (7, 3)]
    # it met the other's commit; what it does again changes nothing
    assert error is not None
    assert is_commit_conflict(error)
    monkeypatch.undo()
    if pipeline == "shop":
        with pytest.raises(FencedError):
            write(spark, first, insert(7, 2), 1)
    else:
        write(spark, first, insert(7, 2), 1)
    assert rows(spark, lake) == [*older_rows, (7, 3)]


@one_writer
def test_a_batch_that_two_runs_append_at_the_same_time_is_in_the_table_once(
    spark: SparkSession, lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older run hangs before its commit, and goes on when the newer one has done the batch."""
    older = run(spark, lake, mode=APPENDS)
    write(spark, older, insert(1, 1), 0)
    Held(older, tmp_path, monkeypatch).meanwhile(
        lambda: write(spark, older, insert(7, 2), 1),
        lambda: write(spark, run(spark, lake, mode=APPENDS), insert(7, 2), 1),
    )
    assert [values[:2] for values in rows(spark, lake)] == [(1, 1), (7, 2)]
    monkeypatch.undo()
    with pytest.raises(FencedError):
        write(spark, older, insert(8, 3), 2)


@one_writer
def test_other_pipelines_append_to_a_table_at_the_same_time(
    spark: SparkSession, lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = run(spark, lake, mode=APPENDS)
    write(spark, ours, insert(1, 1), 0)
    kind = Path(lake).name
    dispatcher = TableDispatcher(open_lake(spark, lake, kind), ours, "shop", MergeSchedule())
    events = lake_tables.messages(spark, [insert(7, 2)])
    theirs = open_lake(spark, lake, kind)
    error = Held(ours, tmp_path, monkeypatch).meanwhile(
        lambda: dispatcher.apply(decode(events, "native-json"), Marker("shop", "query", 1)),
        lambda: theirs.append(
            theirs.commit_session(Marker("other", "query", 0), {}),
            "tables/shop.orders",
            theirs.read("tables/shop.orders").withColumn("id", F.lit(9).cast("int")),
        ),
    )
    assert error is None
    assert [values[:2] for values in rows(spark, lake)] == [(1, 1), (7, 2), (9, 1)]


@one_writer
def test_a_merge_that_met_a_compaction_is_done_again(
    spark: SparkSession, lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody compacts a table by hand, and the files that the merge rewrites are gone."""
    ours = run(spark, lake)
    for batch in (0, 1):
        write(spark, ours, insert(batch, batch), batch)
    kind = Path(lake).name
    dispatcher = TableDispatcher(open_lake(spark, lake, kind), ours, "shop", MergeSchedule())
    theirs, told = open_lake(spark, lake, kind), lake_tables.messages(spark, [insert(1, 9)])
    held = Held(ours, tmp_path, monkeypatch)
    error = held.meanwhile(
        lambda: dispatcher.apply(decode(told, "native-json"), Marker("shop", "query", 2)),
        lambda: theirs.compact("tables/shop.orders", 1 << 30),
    )
    assert error is None
    assert held.merges == 2
    assert dispatcher.paused == {}
    assert rows(spark, lake) == [(0, 0), (1, 9)]


def test_pipelines_of_other_names_fence_each_other_only_where_a_table_has_one_writer(
    spark: SparkSession, lake: str
) -> None:
    one = run(spark, lake, "one")
    write(spark, one, insert(1, 1), 0)
    other = run(spark, lake, "o'ther `one`")
    if open_lake(spark, lake, Path(lake).name).has_one_writer:
        with pytest.raises(FencedError, match="of this folder"):
            write(spark, one, insert(2, 2), 1)
        write(spark, other, insert(2, 2), 1)
    else:
        write(spark, one, insert(2, 2), 1)
    assert rows(spark, lake) == [(1, 1), (2, 2)]


@pytest.mark.skipif("delta" not in lake_tables.LAKES, reason="PySpark 3.5 has Hudi alone")
def test_a_run_stops_when_its_tables_were_deleted(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "delta"
    applier = run(spark, str(folder))
    shutil.rmtree(folder)
    with pytest.raises(AnalysisException):
        applier.check_fencing_token()


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_a_merge_that_begins_after_the_batches_of_a_newer_run_does_nothing(
    spark: SparkSession, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tombstones that it has read lack the delete of the next batch."""
    older, event = run(spark, lake), insert(2, 2)
    write(spark, older, insert(1, 1), 0)
    delete = replace(event, op=Op.DELETE, before=event.after, after=None)
    merge = older._lake.merge

    def late(session: SparkSession, table: str, source: DataFrame, form: Any) -> None:
        if table.startswith("tables/"):
            newer = run(spark, lake)
            write(spark, newer, event, 1)
            write(spark, newer, replace(delete, position=SequencePosition(3)), 2)
        merge(session, table, source, form)

    monkeypatch.setattr(older._lake, "merge", late)
    write(spark, older, event, 1)
    assert rows(spark, lake) == [(1, 1)]


@pytest.mark.parametrize("lake", lakes("delta"), indirect=True)
def test_an_older_run_does_not_replace_the_state_of_a_transaction(
    spark: SparkSession, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer run begins after the older one has decided about the batch."""
    older = run(spark, lake)
    write(spark, older, insert(1, 1), 0)
    record = Applier._record_rejected

    def late(self: Applier, *rest: Any) -> None:
        run(spark, lake)
        record(self, *rest)

    monkeypatch.setattr(Applier, "_record_rejected", late)
    moved = replace(insert(2, 2), op=Op.UPDATE, before={"id": 1})
    with pytest.raises(FencedError):
        write(spark, older, replace(moved, after={"id": 2, "v": UNAVAILABLE}), 1)
    assert lake_tables.table_of(spark, lake, "_changelane/side").count() == 0

"""Tables that are kept for years: maintained between batches, resumed without a checkpoint."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import lake_tables
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from spark_settings import lakes
from test_crash import BATCHES, LOG, ONE, TWO, DiedError, insert
from test_modes import MODES, change, logged

from changelane.cli import main
from changelane.errors import ConfigError
from changelane.event import ChangeEvent
from changelane.pipeline.config import load
from changelane.pipeline.kafka_offsets import OffsetRange
from changelane.spark.apply.table_writer import TableWriter
from changelane.spark.lake import lake as open_lake
from changelane.spark.maintenance.status import NO_TABLE, status
from changelane.spark.run.query import RunError
from changelane.spark.run.tables import RunReport, run
from changelane.spark.sources.files import FilesInput
from changelane.spark.state import quarantine, tombstones
from changelane.spark.state.offset_log import BatchOffsets, OffsetLog

MORE: Final[list[list[ChangeEvent]]] = [
    [insert(ONE, 30, 8), insert(TWO, 30, 8), insert(LOG, 30, 1)],
    [insert(ONE, 40, 9), insert(LOG, 40, 1)],
]
ALL: Final = [*BATCHES, *MORE]


def add(folder: Path, number: int) -> None:
    """Add a file with the events of a batch, and one broken line."""
    lines = [m.value for event in ALL[number] for m in lake_tables.CODEC.encode(event).messages]
    file = folder / "in" / f"{number}.jsonl"
    file.write_bytes(b"\n".join([*lines, b"{broken"]) + b"\n")
    os.utime(file, (number, number))  # Spark reads the oldest first


def check(spark: SparkSession, lake: str, batches: Sequence[Sequence[ChangeEvent]]) -> None:
    tables = lake_tables.oracle(batches)
    for table in (ONE, TWO):
        assert lake_tables.read(spark, lake, table, ("id",)) == lake_tables.remembered(
            tables, table
        )
    assert lake_tables.table_of(spark, lake, LOG).count() == len(tables.rows(LOG))
    aside = lake_tables.table_of(spark, lake, quarantine.NAME).collect()
    assert [row["code"] for row in aside] == ["malformed_json"] * len(batches)


@pytest.fixture
def pipeline(tmp_path: Path, lake: str) -> Path:
    """A pipeline of one file a batch, which maintains its tables after each."""
    (tmp_path / "in").mkdir()
    maintenance = {
        "every_commits": 2,
        "small_files": 2,
        "snapshot_retention": "0 seconds",
        "cluster_by": {"one": ["a"]},
    }
    options = {"tables_without_key": "append", "maintenance": maintenance}
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "name: kept\n"
        "source: {type: files, path: in, format: native-json, max_files_per_batch: 1}\n"
        f"sink: {{type: {Path(lake).name}, path: {lake}}}\n"
        f"options: {json.dumps(options)}\n"
    )
    return file


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_a_run_goes_on_without_its_checkpoint_from_tables_whose_history_has_expired(
    spark: SparkSession, pipeline: Path, lake: str
) -> None:
    folder, told = pipeline.parent, load(pipeline)
    for number in range(3):
        add(folder, number)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableWriter, "write", dying_at_the_end(TableWriter.write))
        with pytest.raises(RunError):
            run(spark, told)
    shutil.rmtree(told.checkpoint)

    with pytest.raises(ConfigError, match="--recover-checkpoint"):
        run(spark, told)
    add(folder, 3)
    report = run(spark, told, is_checkpoint_recovery=True)
    # the batch that died is applied where it was not, the others are not applied again
    assert [batch.events for batch in report.batches if batch.events] == [
        len(BATCHES[2]),
        len(MORE[0]),
    ]
    assert report.batches[0].skipped == 1
    check(spark, lake, ALL[:4])

    # the new checkpoint remembers what it was spared
    add(folder, 4)
    assert [batch.events for batch in run(spark, told).batches] == [len(MORE[1])]
    check(spark, lake, ALL)
    maintained(spark, lake, pipeline, report)


@pytest.mark.parametrize("lake", lakes("delta"), indirect=True)
def test_a_batch_that_came_to_its_end_is_not_read_again(
    spark: SparkSession, pipeline: Path
) -> None:
    told = load(pipeline)
    add(pipeline.parent, 0)

    def die(_report: Any) -> None:
        raise OSError("the run dies after its commits, before the checkpoint's")

    with pytest.raises(RunError):
        run(spark, told, on_batch=die)
    add(pipeline.parent, 1)
    read: list[int] = []
    events = FilesInput.events

    def counted(self: Any, batch: Any, of: Any, **options: Any) -> Any:
        read.append(1)
        return events(self, batch, of, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FilesInput, "events", counted)
        report = run(spark, told)
    assert [batch.finished_before for batch in report.batches] == [1, 0]
    assert len(read) == 1
    check(spark, told.folder, ALL[:2])
    *_, unread = status(open_lake(spark, told.folder, told.table_format))
    assert (unread.table, unread.quarantined) == (NO_TABLE, 2)


def test_a_number_that_was_another_batch_is_an_older_copy_of_the_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    def log() -> OffsetLog:
        return OffsetLog(spark, str(tmp_path), "kept")

    first, other = BatchOffsets(files=("a", "b")), BatchOffsets(files=("c",))
    log().check("q", 0, first, "cp")  # the first run of all
    running = log()
    running.record_batch("q", 0, first)
    running.check("q", 1, other, "cp")
    again = log()
    again.check("q", 0, BatchOffsets(files=("b", "a")), "cp")
    with pytest.raises(ConfigError, match="an older copy, or lost files"):
        again.check("q", 0, other, "cp")
    again.check("q", 1, other, "cp")
    for number in range(1, 101):
        running.record_batch("q", number, BatchOffsets(files=(str(number),)))
        running.record_finished("q", number)
    kept = sorted(each.name for each in tmp_path.glob("**/q/[!.]*"))
    assert kept == ["000000000100.finished", "000000000100.json", "upto-000000000099.json"]
    later = log()
    later.check("q", 100, BatchOffsets(files=("100",)), "cp")  # it comes again after a crash
    with pytest.raises(ConfigError, match="--recover-checkpoint"):
        later.check("q", 5, BatchOffsets(files=("5",)), "cp")
    (began,) = later.read()
    assert (began.batch, began.newest.files, len(began.files)) == (100, ("100",), 101)
    spans = (
        BatchOffsets(span=OffsetRange({"t": {0: 5}}, {"t": {0: 2}})),
        BatchOffsets(span=OffsetRange({"t": {0: 6}}, {"t": {0: 2}})),
    )
    log().record_batch("k", 0, spans[0])
    log().check("k", 0, spans[0], "cp")
    with pytest.raises(ConfigError):
        log().check("k", 0, spans[1], "cp")


def dying_at_the_end(method: Any) -> Any:
    """Return a method that dies at table `two` of the third batch."""

    def table(self: Any, batch: Any, one: Any, **more: Any) -> Any:
        if '"one"' not in one.table_batch.table_id and batch.marker.batch == 2:
            raise DiedError
        return method(self, batch, one, **more)

    return table


def maintained(spark: SparkSession, lake: str, pipeline: Path, report: RunReport) -> None:
    assert any(one.is_compacted for one in report.maintained)
    assert any(one.is_expired for one in report.maintained)
    done = CliRunner().invoke(main, ["maintain", str(pipeline), "--output", "json"])
    assert done.exit_code == 0, done.output
    seen = {one["table"] for one in json.loads(done.stdout)}
    kept = {f"tables/shop.{name}" for name in ("log", "one", "two")}
    assert seen == {*kept, tombstones.NAME, quarantine.NAME}
    check(spark, lake, ALL)
    tables = open_lake(spark, lake, Path(lake).name)
    for name in seen:
        assert tables.files(name, 1 << 20).total <= 1
    if Path(lake).name == "iceberg":  # of Delta's history only the files go
        snapshots = spark.table(f"{tables.sql('tables/shop.one')}.snapshots")
        assert snapshots.count() == 1
    *taken, unread = status(tables)
    assert (unread.table, unread.quarantined) == (NO_TABLE, len(ALL))
    for one in taken:
        assert one.batch is not None
        assert one.maintained_ms is not None


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_an_event_is_known_when_the_commits_that_told_of_it_are_forgotten(
    spark: SparkSession, lake: str
) -> None:
    both = [change("c", at, id=at, a="a", b="b") for at in (10, 100)]
    lake_tables.apply(spark, lake, both[:1], batch=0, modes=MODES)
    place: Any = open_lake(spark, lake, "iceberg")
    (name,) = place.tables()
    place.expire(name, 0)  # keeps what the newest commit told, which is old after the next one
    lake_tables.apply(spark, lake, both[1:], batch=1, modes=MODES)
    # what others do to tables that changelane does not maintain
    place._call("rewrite_data_files", name, "options => map('rewrite-all', 'true')")
    older = "TIMESTAMP '2099-01-01 00:00:00'"
    place._call("expire_snapshots", name, f"older_than => {older}, retain_last => 1")
    assert list(place.marked_commits(name)) == []
    for number, event in enumerate([*both[1:], *both]):
        lake_tables.apply(spark, lake, [event], query="two", batch=number, modes=MODES)
    assert [row[1] for row in logged(spark, lake)] == [10, 100]

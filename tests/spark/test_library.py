"""``decode`` and ``apply_changes`` as somebody calls them who has a DataFrame."""

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import lake_tables
import pytest
from pyspark.sql import DataFrame, SparkSession

import changelane.spark
from changelane.errors import ConfigError, UnknownNameError
from changelane.event import DataChange, Key, Op, Truncate
from changelane.position import PostgresPosition, SequencePosition
from changelane.schema import Column, TableId, TableSchema
from changelane.spark import apply_changes, decode
from changelane.spark.apply.planning import BatchPlanner, PlannedBatch
from changelane.spark.evolution.evolution import MappedBatch
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.iceberg import Iceberg
from changelane.spark.runtime.session import REQUIRED_SETTINGS, check
from changelane.types import Integer, String

TABLE: Final = TableId("shop", None, "orders")
SCHEMA: Final = TableSchema((Column("id", Integer()), Column("state", String())))


def change(op: str, at: int, id: int, state: str, table: TableId = TABLE, **more: Any) -> Any:
    image = {"id": id, "state": state}
    before, after = (image, None) if op == "d" else (None, image)
    more = {"key": Key(("id",)), "position": SequencePosition(at), **more}
    return DataChange(Op(op), table, before=before, after=after, schema=SCHEMA, **more)


def rows(spark: SparkSession, lake: str, table: TableId = TABLE) -> list[tuple[Any, ...]]:
    found = lake_tables.table_of(spark, lake, table)
    return sorted(tuple(row) for row in found.select("id", "state").collect())


def test_text_messages_are_decoded_and_applied(spark: SparkSession, lake: str) -> None:
    lines = [
        lake_tables.CODEC.encode(change("c", at, at, "new")).messages[0].value.decode()
        for at in (1, 2)
    ]
    messages = spark.createDataFrame([(one, "ignored") for one in lines], "value string, x string")
    events = decode(messages, format="native-json")
    assert [row["kind"] for row in events.collect()].count("data") == 2
    report = apply_changes(events, lake, table_format=Path(lake).name)
    assert report.events == 2
    assert [table.table for table in report.tables] == ["shop.orders"]
    assert rows(spark, lake) == [(1, "new"), (2, "new")]


def test_other_tables_go_on_where_one_cannot(spark: SparkSession, lake: str) -> None:
    """Nothing of a refused event may be remembered, or it would take later rows away."""
    other = TableId("shop", None, "other")
    lake_tables.apply(spark, lake, [change("c", 1, 1, "new"), change("c", 1, 1, "x", other)])
    foreign = PostgresPosition(1)
    refused = [
        change("d", 9, 1, "new", position=foreign),
        Truncate(TABLE, position=foreign),
        change("c", 9, 2, "y", other),
    ]
    report = lake_tables.apply(spark, lake, refused, batch=1)
    assert report.quarantined == {"unordered": 2}
    lake_tables.apply(spark, lake, [change("u", 2, 1, "paid")], batch=2)
    assert rows(spark, lake) == [(1, "paid")]
    assert rows(spark, lake, other) == [(1, "x"), (2, "y")]


def test_a_stream_applies_its_batches(spark: SparkSession, lake: str, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    done = []

    def apply(batch: DataFrame, number: int) -> None:
        events = decode(batch, "native-json", keys={"keyed": ("id",)})
        done.append(
            apply_changes(
                events,
                lake,
                table_format=Path(lake).name,
                name="orders",
                query="one",
                batch=number,
            )
        )

    def run() -> None:
        stream = spark.readStream.text(str(folder)).writeStream.foreachBatch(apply)
        checkpoint = str(tmp_path / "checkpoint")
        started = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        started.awaitTermination()

    keyed = TableId("shop", None, "keyed")
    for at, state in ((1, "new"), (2, "paid")):
        told = [change("u", at, 1, state, keyed, key=None)]
        lines = [lake_tables.CODEC.encode(event).messages[0].value for event in told]
        (folder / f"{at}.txt").write_bytes(b"\n".join(lines))
        run()
    assert [report.batch for report in done] == [0, 1]
    assert rows(spark, lake, keyed) == [(1, "paid")]


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_a_batch_has_the_rows_that_its_table_had_at_first(
    spark: SparkSession, lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process adds rows to the table meanwhile; a persisted frame would have them, too."""
    columns = "id INT, state STRING, seq BIGINT, gone BOOLEAN"
    source = open_lake(spark, str(tmp_path / "source" / "iceberg"), "iceberg")
    assert isinstance(source, Iceberg)
    source.create("tables/raw", dict(pair.split() for pair in columns.split(", ")), {})
    for added in ([(1, "a", 1, False), (2, "b", 2, False)], [(2, "b", 3, True)]):
        source.append(spark, "tables/raw", spark.createDataFrame(added, columns))

    def show(snapshot: int) -> None:
        """Commit without Spark, as another process does."""
        source._table("tables/raw").manageSnapshots().setCurrentSnapshot(snapshot).commit()

    newest = source._table("tables/raw").currentSnapshot()
    show(newest.parentId())
    plan = BatchPlanner.plan

    def planned(self: BatchPlanner, batch: MappedBatch) -> PlannedBatch:
        show(newest.snapshotId())
        return plan(self, batch)

    def land(events: DataFrame, batch: int) -> list[tuple[Any, ...]]:
        apply_changes(
            events,
            lake,
            target=TABLE,
            keys=["id"],
            sequence_by="seq",
            apply_as_deletes="gone",
            column_list=["id", "state"],
            table_format="iceberg",
            query="q",
            batch=batch,
        )
        return rows(spark, lake)

    with monkeypatch.context() as patch:
        patch.setattr(BatchPlanner, "plan", planned)
        assert land(source.read("tables/raw"), 0) == [(1, "a"), (2, "b")]
    assert land(source.read("tables/raw"), 1) == [(1, "a")]
    # an older change comes again: the delete is remembered
    assert land(spark.createDataFrame([(2, "b", 2, False)], columns), 2) == [(1, "a")]


def test_tables_without_a_key_are_set_aside_appended_to_or_keyed_by_their_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = [change("c", at, 1, "same", key=None) for at in (1, 2)]
    late = [
        change("c", 3, 2, "x", key=None),
        Truncate(TABLE, position=SequencePosition(4)),
        change("c", 5, 3, "y", key=None),
    ]
    aside, appended, keyed = (
        str(tmp_path / name / "delta") for name in ("aside", "appended", "keyed")
    )
    assert lake_tables.apply(spark, aside, events).quarantined == {"no_key": 2}
    for number, batch in enumerate((events, late)):
        lake_tables.apply(spark, appended, batch, batch=number, tables_without_key="append")
        if number == 0:
            assert rows(spark, appended) == [(1, "same"), (1, "same")]
    # the truncate took what came before it, in its own batch too
    assert rows(spark, appended) == [(3, "y")]
    told = decode(lake_tables.messages(spark, events), "native-json", tables_without_key="row")
    apply_changes(told, keyed)
    assert rows(spark, keyed) == [(1, "same")]


def test_a_wrong_name_fails_at_once_and_names_the_nearest(spark: SparkSession) -> None:
    messages = spark.createDataFrame([("",)], "value string")
    with pytest.raises(UnknownNameError, match="did you mean 'debezium-json'"):
        decode(messages, "debezium-jsn")
    with pytest.raises(UnknownNameError):
        decode(messages, "debezium-json", options={"nothing": 1})


def test_a_missing_value_column_is_named(spark: SparkSession) -> None:
    messages = spark.createDataFrame([("", 1)], "payload string, offset long")
    with pytest.raises(
        ConfigError, match="need a column 'value'; the columns are: payload, offset"
    ):
        decode(messages, "native-json")


@pytest.mark.parametrize("library", ["pandas", "pyspark"])
def test_a_library_that_is_missing_is_named_with_the_extra(library: str) -> None:
    # in a process of its own: modules that are imported twice are two to everything that follows
    code = f"""
import sys
sys.modules[{library!r}] = None
import changelane.spark
from changelane.errors import MissingExtraError
for name in ("decode", "apply_changes", "session"):
    try:
        getattr(changelane.spark, name)()
    except MissingExtraError as error:
        print(error)
"""
    run = [sys.executable, "-c", code]
    told = subprocess.run(run, check=True, capture_output=True, text=True).stdout.splitlines()
    assert len(told) == 3
    assert all(library in line and "changelane[spark]" in line for line in told)


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError):
        _ = changelane.spark.nothing


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.sql.session.timeZone", "Europe/Berlin"),
        ("spark.sql.caseSensitive", "true"),
        ("spark.sql.ansi.enabled", "false"),
        ("spark.sql.variable.substitute", "true"),
        ("spark.sql.parser.escapedStringLiterals", "true"),
        ("spark.sql.timestampType", "TIMESTAMP_NTZ"),
    ],
)
def test_a_session_with_another_setting_is_refused(
    spark: SparkSession, key: str, value: str
) -> None:
    other = spark.newSession()
    for required, setting in REQUIRED_SETTINGS.items():
        other.conf.set(required, setting)
    check(other)
    other.conf.set(key, value)
    with pytest.raises(ConfigError, match=f"{key} is {value!r} and must be"):
        check(other)

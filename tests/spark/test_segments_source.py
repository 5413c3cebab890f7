# SPDX-License-Identifier: Apache-2.0
"""The segments source: what the tables have of a capture log that grows, ends, and is damaged."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lake_tables
import msgspec
import pytest
from click.testing import CliRunner
from kafka_topics import Topics
from pyspark.sql import SparkSession

from changelane.capture.manifest import CapturedRecord
from changelane.capture.segment_store import CaptureLog, SegmentWriter
from changelane.capture.storage import LocalFolder
from changelane.cli import main
from changelane.errors import ConfigError
from changelane.pipeline.config import Pipeline, parse
from changelane.pipeline.replayed import replayed
from changelane.pipeline.segments_source import SegmentsSource
from changelane.schema import TableId
from changelane.spark.check.pipeline import check
from changelane.spark.lake import lake as open_lake
from changelane.spark.run.query import RunError
from changelane.spark.run.tables import RunReport, run
from changelane.spark.sinks.delivery import run_to_topics
from changelane.spark.sinks.report import DeliveriesReport
from changelane.spark.sources import segments
from changelane.spark.sources.checkpoint import Checkpoint
from changelane.spark.sources.segments import SegmentsInput


class Capture:
    """A capture log that a test extends, with the pipeline that reads it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log"
        self.lake = folder / "iceberg"
        self.log = CaptureLog(LocalFolder(self.path))
        self.writer = self.new_writer(folder)
        self.count = 0

    def new_writer(self, folder: Path) -> SegmentWriter:
        return SegmentWriter(LocalFolder(self.path), folder / "spool", segment_bytes=2000)

    def publish(self, count: int) -> None:
        """Publish inserts of rows without a key, whose repetition would be seen."""
        for _ in range(count):
            self.writer.append(CapturedRecord("shop.events", None, self.value(self.count)))
            self.count += 1
        self.writer.publish({"lsn": self.count})

    @staticmethod
    def value(number: int) -> str:
        return json.dumps(
            {
                "op": "c",
                "table": {"name": "events"},
                "after": {"id": number},
                "schema": [{"name": "id", "type": "int64"}],
            }
        )

    def pipeline(self, **source: Any) -> Pipeline:
        return parse(
            {
                "name": "shop",
                "source": {
                    "type": "segments",
                    "path": str(self.path),
                    "format": "native-json",
                    **source,
                },
                "sink": {"type": "iceberg", "path": str(self.lake)},
                "options": {"tables_without_key": "append"},
            }
        )

    def run(self, spark: SparkSession, *, recover: bool = False, **source: Any) -> RunReport:
        return run(spark, self.pipeline(**source), is_checkpoint_recovery=recover)

    def ids(self, spark: SparkSession) -> list[int]:
        frame = lake_tables.table_of(spark, str(self.lake), TableId(name="events"))
        return sorted(row["id"] for row in frame.select("id").collect())


@pytest.fixture
def capture(tmp_path: Path) -> Iterator[Capture]:
    made = Capture(tmp_path)
    yield made
    made.writer.close()


def test_every_record_is_applied_once_by_runs_that_fail_in_between(
    spark: SparkSession, capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture.publish(30)
    report = capture.run(spark)
    assert [(batch.messages, batch.events) for batch in report.batches] == [(30, 30)]
    assert capture.ids(spark) == [*range(30)]
    assert capture.run(spark).batches == []
    assert capture.log.consumed() == {"shop~p1": 1}

    capture.publish(5)
    with monkeypatch.context() as patch:

        def fail(*_: object, **__: object) -> None:
            raise RuntimeError("killed after the commit")

        patch.setattr(SegmentsInput, "complete_batch", fail)
        with pytest.raises(RunError):
            capture.run(spark)
        patch.undo()
        capture.publish(7)  # the repeated batch must not contain them
        patch.setattr(SegmentsInput, "events", fail)
        with pytest.raises(RunError):
            capture.run(spark)
    capture.publish(2)
    again = replayed(capture.pipeline(), f"{capture.lake}-again")
    assert run(spark, again).batches[-1].lag == {"segments": {0: 0}}
    assert capture.log.consumed() == {"shop~p1": 2}, "the log keeps what the pipeline lacks"
    report = capture.run(spark)
    assert capture.ids(spark) == [*range(44)]
    assert capture.log.consumed() == {"shop~p1": 4}
    assert report.batches[-1].lag == {"segments": {0: 0}}


def test_a_batch_is_limited_and_begins_again_inside_a_manifest(
    spark: SparkSession, capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture.publish(60)  # several segments of one manifest
    assert len(capture.log.manifest(1).segments) >= 4
    size = capture.log.manifest(1).segments[0].size_bytes
    applied: list[int] = []
    complete = SegmentsInput.complete_batch

    def complete_once(source: SegmentsInput, batch: segments.Batch) -> None:
        complete(source, batch)
        applied.append(batch.offsets.end)
        if len(applied) == 1:
            raise RuntimeError("killed between two batches")

    monkeypatch.setattr(SegmentsInput, "complete_batch", complete_once)
    with pytest.raises(RunError):
        capture.run(spark, max_bytes_per_batch=size)
    assert capture.log.consumed() == {"shop~p1": 0}, "the manifest is not applied completely"
    capture.run(spark, max_bytes_per_batch=2 * size + 50)
    assert capture.ids(spark) == [*range(60)]
    assert len(applied) >= 3
    assert capture.log.consumed() == {"shop~p1": 1}


def row_event(op: str, key: int, value: int, *, lsn: int) -> CapturedRecord:
    """Return a row of a table with a key, at a position."""
    columns = [{"name": "id", "type": "int64", "key": True}, {"name": "v", "type": "int64"}]
    event = {
        "op": op,
        "table": {"name": "orders"},
        "key": ["id"],
        "after": {"id": key, "v": value},
        "position": {"domain": "postgresql", "lsn": lsn, "last_commit_lsn": lsn},
        "source": {"product": "postgresql"} | ({"snapshot": "true"} if op == "r" else {}),
        "schema": columns,
    }
    return CapturedRecord("shop.orders", None, json.dumps(event))


def test_a_new_snapshot_is_newer_than_all_before_and_the_beginning_of_new_tables(
    spark: SparkSession, capture: Capture, tmp_path: Path
) -> None:
    def publish(*records: CapturedRecord) -> None:
        for record in records:
            capture.writer.append(record)
        capture.writer.publish({"lsn": 1})

    def rows(lake: Path) -> list[tuple[int, int]]:
        frame = lake_tables.table_of(spark, str(lake), TableId(name="orders"))
        return sorted((row["id"], row["v"]) for row in frame.select("id", "v").collect())

    publish(row_event("r", 1, 10, lsn=100), row_event("c", 2, 20, lsn=200))
    capture.run(spark)
    # row 2 changes and row 3 disappears while the slot is lost; the positions of the server fall
    publish(row_event("c", 3, 30, lsn=300))
    capture.writer.begin_history()
    publish(row_event("r", 1, 11, lsn=50), row_event("r", 2, 21, lsn=50))
    publish(row_event("c", 1, 12, lsn=60))
    capture.run(spark)
    assert rows(capture.lake) == [(1, 12), (2, 21), (3, 30)]

    def pipeline(name: str) -> Pipeline:
        source = {"type": "segments", "path": str(capture.path), "format": "native-json"}
        sink = {"type": "iceberg", "path": str(tmp_path / name / "iceberg")}
        return parse({"name": name, "source": source, "sink": sink})

    # manifests without records expire, too, although the pipeline reads on from its last record
    capture.writer.publish({"lsn": 2})
    capture.run(spark)
    newest = capture.log.newest()
    assert newest is not None
    assert capture.log.consumed() == {"shop~p1": newest.sequence}
    run(spark, pipeline("second"))
    assert rows(tmp_path / "second" / "iceberg") == [(1, 12), (2, 21)]
    for _ in range(2):
        capture.writer.publish({"lsn": 3})
        capture.run(spark)
    assert capture.log.delete_expired(retention_s=-1) == 6, "the second pipeline is not so far"
    run(spark, pipeline("second"))
    assert capture.log.delete_expired(retention_s=-1) == 1
    publish(row_event("c", 5, 50, lsn=70))
    capture.run(spark)
    run(spark, pipeline("second"))
    assert rows(capture.lake) == [(1, 12), (2, 21), (3, 30), (5, 50)]
    assert rows(tmp_path / "second" / "iceberg") == [(1, 12), (2, 21), (5, 50)]

    with pytest.raises(RunError, match="new tables lack rows: run `changelane capture"):
        run(spark, pipeline("third"))


def test_a_lost_checkpoint_is_rebuilt_from_the_tables(
    spark: SparkSession, capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture.publish(10)
    capture.run(spark)
    capture.publish(10)
    with monkeypatch.context() as patch:

        def fail(*_: object) -> None:
            raise RuntimeError("killed after the commit")

        patch.setattr("changelane.spark.state.offset_log.OffsetLog.record_finished", fail)
        with pytest.raises(RunError):
            capture.run(spark)
    capture.publish(10)
    checkpoint = Path(capture.pipeline().checkpoint)
    checkpoint.rename(checkpoint.with_name("gone"))
    with pytest.raises(ConfigError, match="--recover-checkpoint"):
        capture.run(spark)
    capture.run(spark, recover=True)
    assert capture.ids(spark) == [*range(30)]


def test_what_is_damaged_or_gone_stops_the_run_with_a_sentence(
    spark: SparkSession, capture: Capture, tmp_path: Path
) -> None:
    missing = parse(
        {
            "name": "none",
            "source": {"type": "segments", "path": str(tmp_path / "none")},
            "sink": {"type": "iceberg", "path": str(tmp_path / "other")},
        }
    )
    with pytest.raises(ConfigError, match="there is no capture log in"):
        run(spark, missing)
    capture.publish(10)
    capture.run(spark)
    capture.publish(10)
    segment = capture.log.manifest(2).segments[-1]
    file = capture.path / "segments" / segment.name
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(RunError, match=r"segments/.* is damaged: restore it"):
        capture.run(spark)
    file.write_bytes(content)
    capture.run(spark)
    assert capture.ids(spark) == [*range(20)]

    capture.publish(10)
    capture.publish(10)
    kept = {
        path: path.read_bytes()
        for path in (capture.path / "manifests").iterdir()
        if not path.name.endswith("4.json")
    }
    for path in kept:
        path.unlink()
    with pytest.raises(ConfigError, match="its retention deleted records"):
        capture.run(spark)
    (capture.path / "manifests" / f"{4:020}.json").rename(tmp_path / "fourth")
    first = capture.path / "manifests" / f"{1:020}.json"
    first.write_bytes(kept[first])
    with pytest.raises(ConfigError, match="the log is an older copy of itself, or lost files"):
        capture.run(spark)
    (capture.path / "log.json").write_text('{"id":"another"}')
    with pytest.raises(ConfigError, match="was created again after this pipeline read it"):
        capture.run(spark)
    assert capture.ids(spark) == [*range(20)]


def test_a_lost_manifest_stops_the_run_instead_of_hiding_the_later_ones(
    spark: SparkSession, capture: Capture, tmp_path: Path
) -> None:
    def read(one: SegmentsInput) -> list[int]:
        counts = []
        for batch in one.new_batches():
            one.start_batch(batch)
            counts.append(batch.offsets.end - batch.offsets.start)
            one.complete_batch(batch)
        return counts

    source = capture.pipeline().source
    assert isinstance(source, SegmentsSource)
    checkpoint = Checkpoint(spark, str(tmp_path / "checkpoint"))
    for _ in range(2):
        capture.publish(2)
    one = SegmentsInput(spark, source, checkpoint, consumer="one")
    assert one.pending_batch() is None
    assert read(one) == [4]
    for _ in range(2):
        capture.publish(2)
    manifests = [capture.path / "manifests" / f"{number:020}.json" for number in range(1, 5)]
    third = manifests[2].read_bytes()
    manifests[2].unlink()
    again = SegmentsInput(spark, source, checkpoint, consumer="one")
    for look in (lambda: again.check([]), again.pending_batch):
        with pytest.raises(ConfigError, match="lost manifest 3, and this pipeline would never"):
            look()

    # the retention overtakes a run that does not keep the segments
    manifests[2].write_bytes(third)
    unkept = msgspec.structs.replace(source, keeps_segments=False)
    one = SegmentsInput(spark, unkept, checkpoint, consumer="two")
    assert one.pending_batch() is None
    assert read(one) == [4]
    assert read(one) == []
    capture.publish(0)
    capture.publish(2)
    for path in capture.path.joinpath("manifests").iterdir():
        if path.name < f"{6:020}":
            path.unlink()
    assert read(one) == []  # what was deleted had no records
    assert read(one) == [2]
    for _ in range(2):
        capture.publish(2)
    for path in capture.path.joinpath("manifests").iterdir():
        if path.name < f"{8:020}":
            path.unlink()
    with pytest.raises(ConfigError, match="its retention deleted records in between"):
        read(one)


def test_check_reads_a_sample_and_writes_nothing(spark: SparkSession, capture: Capture) -> None:
    def findings() -> list[tuple[str, str]]:
        return [(found.state, found.text) for found in check(spark, capture.pipeline())]

    assert any("has no records yet" in text for _, text in findings())
    capture.publish(3)
    texts = [text for _, text in findings()]
    assert any("has 3 records; the newest manifest is" in text for text in texts)
    assert any("events" in text for text in texts), "the dry run knows the table"
    assert capture.log.consumed() == {}
    assert not capture.lake.exists()
    (segment,) = (capture.path / "segments").iterdir()
    segment.write_bytes(b"damaged")
    assert any("is damaged: restore it" in text for _, text in findings())


def test_a_record_that_cannot_be_read_is_quarantined(spark: SparkSession, capture: Capture) -> None:
    capture.publish(2)
    capture.writer.append(CapturedRecord("shop.events", None, '{"op":"x"}'))
    capture.writer.publish({})
    report = capture.run(spark)
    assert sum(report.quarantined.values()) == 1
    assert capture.ids(spark) == [0, 1]


@pytest.mark.parametrize("is_captured_first", [True, False])
def test_changes_of_a_topic_and_of_a_capture_log_never_mix_in_one_table(
    spark: SparkSession, capture: Capture, tmp_path: Path, is_captured_first: bool
) -> None:
    """Their positions look alike, and the first rows of the second one would be too old."""

    def value(name: str, last_commit_lsn: int | None) -> str:
        position = {"domain": "postgresql", "lsn": 64, "last_commit_lsn": last_commit_lsn}
        table = {"schema": "public", "name": "orders"}
        content = {"op": "u", "table": table, "key": ["id"], "after": {"id": 1, "v": name}}
        return json.dumps(content | {"position": position})

    topic = tmp_path / "topic"
    topic.mkdir()
    (topic / "orders.jsonl").write_text(value("topic", 32) + "\n")
    capture.writer.append(CapturedRecord("shop.orders", None, value("log", None)))
    capture.writer.publish({"lsn": 64})
    pipeline = capture.pipeline()
    files = {"type": "files", "path": str(topic), "format": "native-json"}
    sink = {"type": "iceberg", "path": str(capture.lake)}
    of_files = parse({"name": "topic", "source": files, "sink": sink})
    pipelines = [pipeline, of_files] if is_captured_first else [of_files, pipeline]
    assert not run(spark, pipelines[0]).quarantined
    assert run(spark, pipelines[1]).quarantined == {"unordered": 1}
    (row,) = lake_tables.table_of(
        spark, str(capture.lake), TableId(None, "public", "orders")
    ).collect()
    assert row["v"] == ("log" if is_captured_first else "topic")
    quarantine = lake_tables.table_of(spark, str(capture.lake), "_changelane/quarantine")
    (reason,) = quarantine.select("reason").collect()
    assert "PostgreSQL's LSNs in a capture log" in reason[0]
    assert reason[0].endswith("which does not compare: load the events into a new folder")


def test_status_shows_the_capture_log_beside_the_tables(
    spark: SparkSession, capture: Capture, tmp_path: Path
) -> None:
    capture.publish(30)
    capture.run(spark)
    capture.publish(5)
    file = tmp_path / "shop.yaml"
    content = {
        "name": "shop",
        "source": {"type": "segments", "path": str(capture.path), "format": "native-json"},
        "sink": {"type": "iceberg", "path": str(capture.lake)},
        "options": {"tables_without_key": "append"},
    }
    file.write_text(json.dumps(content))
    result = CliRunner().invoke(main, ["status", str(file), "--output", "json"])
    assert result.exit_code == 0, result.output
    status = json.loads(result.stdout)
    assert [table["rows"] for table in status["tables"]] == [30]
    figures = status["capture"]
    assert figures["manifest"] == 2
    assert figures["record_count"] == 35
    assert figures["applied_manifest"] == 1
    assert figures["pending_record_count"] == 5
    assert figures["server"] is None

    content["source"] = {
        "type": "postgres",
        "host": "127.0.0.1",
        "port": 1,
        "database": "shop",
        "user": "me",
        "tables": ["public.*"],
        "segments": str(capture.path),
    }
    file.write_text(json.dumps(content))
    result = CliRunner().invoke(main, ["status", str(file)], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert "5 of them not in the tables" in lines[-2]
    assert lines[-1].startswith("PostgreSQL database shop at 127.0.0.1:1: ")


def test_records_are_sent_to_kafka_in_the_order_of_the_log(
    spark: SparkSession, capture: Capture, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = Topics(broker)
    names = {"shop.events": topics.create(topics.name("events"), 2)}
    names["shop.others"] = topics.create(topics.name("others"), 2)
    count = 0

    def publish(values: list[str | None]) -> None:
        nonlocal count
        for value in values:
            topic = list(names.values())[count % 2]
            record = CapturedRecord(topic, None, value or capture.value(count))
            capture.writer.append(record)
            count += 1
        capture.writer.publish({"lsn": count})

    def send() -> DeliveriesReport:
        sink = {"type": "kafka", "bootstrap_servers": broker, "topic": "{topic}"}
        sink |= {"format": "native-json", "event_id": True, "checkpoint": str(capture.lake)}
        source = {"type": "segments", "path": str(capture.path), "format": "native-json"}
        return run_to_topics(spark, parse({"name": "send", "source": source, "sink": sink}))

    publish([None] * 60)  # several segments of one manifest
    assert len(capture.log.manifest(1).segments) >= 4
    assert send().total == 60
    publish(["{broken", *[None] * 5])
    with monkeypatch.context() as patch:
        patch.setattr(SegmentsInput, "complete_batch", lambda *_: 1 / 0)
        with pytest.raises(RunError):
            send()
    report = send()  # the batch under way is sent again
    assert (report.total, report.quarantined) == (6, {"malformed_json": 1})
    assert send().batches == []
    for parity, name in enumerate(names.values()):
        found = topics.read(name)
        sent = [*range(parity, 60, 2), *[n for n in range(61, 66) if n % 2 == parity] * 2]
        assert [json.loads(one.value or b"")["after"]["id"] for one in found] == sent
        ids = [dict(one.headers)["changelane-event-id"] for one in found]
        assert ids == [f"{name}-0-{number}-0-0".encode() for number in sent]
        assert {one.partition for one in found} == {0}
    rows = open_lake(spark, str(capture.lake), "delta").read("_changelane/quarantine").collect()
    assert [(row["topic"], row["partition"], row["offset"]) for row in rows] == [
        (names["shop.events"], 0, 60)
    ]
    assert capture.log.consumed() == {"send~p1": 2}

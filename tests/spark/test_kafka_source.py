"""Topics of a real broker into tables: exactly once, whatever becomes of topic and checkpoint."""

import json
import random
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import lake_tables
import pytest
import random_kills
from click.testing import CliRunner
from kafka_topics import Topics, spread
from pyspark.sql import SparkSession
from spark_settings import lakes
from test_crash import insert
from test_keeping import ALL, LOG, ONE, TWO, dying_at_the_end

from changelane import Message
from changelane.cli import main
from changelane.errors import ConfigError
from changelane.event import ChangeEvent, DataChange, Key, Op
from changelane.pipeline.config import Pipeline, load, parse
from changelane.pipeline.kafka_offsets import OffsetRange, Offsets
from changelane.pipeline.kafka_source import KafkaSource
from changelane.pipeline.preflight import check_topics
from changelane.schema import Column, TableId, TableSchema
from changelane.spark.apply.table_writer import TableWriter
from changelane.spark.lake import lake as open_lake
from changelane.spark.run.query import RunError
from changelane.spark.run.tables import run
from changelane.spark.sinks.delivery import run_to_topics
from changelane.spark.sources.checkpoint import Checkpoint
from changelane.spark.sources.kafka import KafkaInput
from changelane.spark.state.offset_log import BatchOffsets, OffsetLog
from changelane.types import Integer

PARTITIONS: Final = 2
KILLS: Final = 2


@pytest.fixture
def topics(broker: str) -> Topics:
    return Topics(broker)


def values(events: Iterable[ChangeEvent]) -> list[bytes]:
    return [m.value for event in events for m in lake_tables.CODEC.encode(event).messages]


def written(topics: Topics, lake: str, topic: str, **options: Any) -> Path:
    """Write a pipeline of one topic into tables, some of which have no key."""
    file = Path(lake).with_name("pipeline.yaml")
    source = {
        "type": "kafka",
        "bootstrap_servers": topics.servers,
        "format": "native-json",
        "topics": topic,
    }
    told = {
        "name": "shop",
        "source": source | options,
        "sink": {"type": Path(lake).name, "path": lake},
        "options": {"tables_without_key": "append", "maintenance": "off"},
    }
    file.write_text(json.dumps(told))
    return file


def check(spark: SparkSession, lake: str, batches: Sequence[Sequence[ChangeEvent]]) -> None:
    tables = lake_tables.oracle(batches)
    for table in (ONE, TWO):
        assert lake_tables.read(spark, lake, table, ("id",)) == lake_tables.remembered(
            tables, table
        )
    assert lake_tables.table_of(spark, lake, LOG).count() == len(tables.rows(LOG))


def offsets_of(spark: SparkSession, lake: str, told: Pipeline) -> Any:
    found = open_lake(spark, lake, Path(lake).name).last_commit("tables/shop.log")
    assert found is not None
    assert found.details["source"] == ",".join(told.source.names)
    return found.details["offsets"]


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_a_pattern_matches_whole_names_of_topics(
    spark: SparkSession, topics: Topics, lake: str
) -> None:
    prefix = topics.name("shop")
    taken = [topics.create(f"{prefix}.{name}") for name in ("orders", "log")]
    topics.create(f"e{prefix}.orders")
    topics.create(f"{prefix}.orders.history")
    event = values([insert(ONE, 1, 1)])[0]
    for name in (*taken, f"e{prefix}.orders", f"{prefix}.orders.history"):
        topics.send(name, [Message(event)])
    file = written(topics, lake, "", topic_pattern=f"{prefix}[.]orders|{prefix}[.]log")
    told = json.loads(file.read_text())
    del told["source"]["topics"]
    (batch,) = run(spark, parse(told)).batches
    assert batch.messages == len(taken)


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_topics_land_once_and_a_lost_checkpoint_is_resumed_from_their_offsets(
    spark: SparkSession, topics: Topics, lake: str
) -> None:
    topic = topics.create(topics.name("shop"), PARTITIONS)
    told = load(written(topics, lake, topic))
    topics.send(topic, [*spread(values(ALL[0]), PARTITIONS), Message(b"{broken"), Message(None)])
    report = run(spark, told)
    assert report.quarantined == {"malformed_json": 1}
    assert report.batches[-1].lag == {topic: dict.fromkeys(range(PARTITIONS), 0)}
    assert report.batches[-1].messages == len(topics.read(topic))
    assert run(spark, told).batches == []
    check(spark, lake, ALL[:1])
    whole = topics.read(topic)
    ends = {str(n): sum(one.partition == n for one in whole) for n in range(PARTITIONS)}
    assert offsets_of(spark, lake, told) == {topic: ends}

    # a batch that dies after some of its tables, and then the checkpoint is lost
    topics.send(topic, spread(values(ALL[1]), PARTITIONS))
    run(spark, told)
    topics.send(topic, spread(values(ALL[2]), PARTITIONS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableWriter, "write", dying_at_the_end(TableWriter.write))
        with pytest.raises(RunError):
            run(spark, told)
    shutil.rmtree(told.checkpoint)
    topics.send(topic, spread(values(ALL[3]), PARTITIONS))
    with pytest.raises(ConfigError, match="--recover-checkpoint"):
        run(spark, told)
    report = run(spark, told, is_checkpoint_recovery=True)
    assert [batch.events for batch in report.batches] == [len(ALL[2]), len(ALL[3])]
    assert report.batches[0].skipped == 1
    check(spark, lake, ALL[:4])

    # and lost once more: nothing comes twice, nothing is left out
    shutil.rmtree(told.checkpoint)
    topics.send(topic, spread(values(ALL[4]), PARTITIONS))
    report = run(spark, told, is_checkpoint_recovery=True)
    assert [batch.events for batch in report.batches if batch.events] == [len(ALL[4])]
    assert len(report.batches) == 1, "the newest batch of the lost checkpoint is known as finished"
    check(spark, lake, ALL)


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_messages_of_a_transaction_that_was_aborted_never_land(
    spark: SparkSession, topics: Topics, lake: str
) -> None:
    topic = topics.create(topics.name("aborted"), PARTITIONS)
    told = load(written(topics, lake, topic))
    parts = [spread(values(batch), PARTITIONS) for batch in ALL[:3]]
    topics.send_in_transactions(topic, zip(parts, (True, False, True), strict=True))
    report = run(spark, told)
    assert not report.quarantined
    # what tells of the transactions itself has offsets, too, and none of them is left
    assert report.batches[-1].lag == {topic: dict.fromkeys(range(PARTITIONS), 0)}
    check(spark, lake, [ALL[0], ALL[2]])
    assert run(spark, told).batches == []


TWICE: Final = TableSchema((Column("id", Integer()), Column("v", Integer())))


def unplaced(op: str, table: str, id: int, v: int) -> ChangeEvent:
    image = {"id": id, "v": v}
    before, after = (image, None) if op == "d" else (None, image)
    told = TableId("shop", None, table)
    return DataChange(Op(op), told, Key(("id",)), before=before, after=after, schema=TWICE)


@pytest.mark.skipif(
    "delta" not in lake_tables.LAKES, reason="what topics cannot take lies in Delta"
)
@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_what_was_delivered_twice_is_applied_once_by_its_ids(
    spark: SparkSession, topics: Topics, lake: str, tmp_path: Path
) -> None:
    given, sent = topics.create(topics.name("given")), topics.create(topics.name("sent"))
    changes = [("c", 1, 1), ("u", 1, 2), ("c", 2, 1), ("d", 2, 1), ("c", 3, 1)]
    names = ("rows", "versions", "log")
    told = [unplaced(op, name, row, v) for op, row, v in changes for name in names]
    topics.send(given, [Message(value) for value in values(told)])
    kafka = {"type": "kafka", "bootstrap_servers": topics.servers, "format": "native-json"}
    state = tmp_path / "state"
    sink = {**kafka, "topic": sent, "event_id": True, "checkpoint": str(state)}
    pipeline = {"name": "sent", "source": {**kafka, "topics": given}, "sink": sink}
    for _ in range(2):
        run_to_topics(spark, parse(pipeline))
        shutil.rmtree(state)
    assert len(topics.read(sent)) == 2 * len(told)

    file = written(topics, lake, sent, order_by_event_id=True, max_offsets_per_trigger=20)
    kept = json.loads(file.read_text())
    modes = {"versions": {"mode": "history"}, "log": {"mode": "append"}}
    kept["options"]["tables"] = modes
    report = run(spark, parse(kept))
    assert not report.quarantined
    assert len(report.batches) == 2

    def found(name: str, *columns: str) -> list[tuple[Any, ...]]:
        table = lake_tables.table_of(spark, lake, TableId("shop", None, name))
        return sorted(tuple(row) for row in table.select("id", "v", *columns).collect())

    assert found("rows") == [(1, 2), (3, 1)]
    assert found("versions", "_is_current") == [
        (1, 1, False),
        (1, 2, True),
        (2, 1, False),
        (3, 1, True),
    ]
    assert found("log", "_changelane_op") == [
        (1, 1, "c"),
        (1, 2, "u"),
        (2, 1, "c"),
        (2, 1, "d"),
        (3, 1, "c"),
    ]


@pytest.mark.long
@pytest.mark.parametrize("lake", lakes("delta"), indirect=True)
def test_messages_that_are_gone_before_they_were_read_stop_the_run_and_skip_lost_goes_on(
    spark: SparkSession, topics: Topics, lake: str
) -> None:
    assert spark.sparkContext.appName
    topic = topics.create(topics.name("cut"), PARTITIONS)
    file = written(topics, lake, topic, max_offsets_per_trigger=1000)
    told = load(file)
    topics.send(topic, spread(values(ALL[0]), PARTITIONS))
    run(spark, told)
    read = {n: len(values(ALL[0])[n::PARTITIONS]) for n in range(PARTITIONS)}
    topics.send(topic, [Message(value) for value in values(ALL[1])])
    topics.delete_before(topic, {0: read[0] + 1})
    done = CliRunner().invoke(main, ["run", str(file)])
    assert done.exit_code == 2
    assert f"1 offsets of {topic}-0 that were not read yet are gone" in done.stderr
    assert "--allow-data-loss" in done.stderr
    check(spark, lake, ALL[:1])

    # the way out that it names
    shutil.move(told.checkpoint, f"{told.checkpoint}.away")
    with pytest.raises(ConfigError, match="--allow-data-loss"):
        run(spark, told, is_checkpoint_recovery=True)
    done = CliRunner().invoke(
        main, ["run", str(file), "--recover-checkpoint", "--allow-data-loss", "--output", "json"]
    )
    assert done.exit_code == 0, done.output
    check(spark, lake, [ALL[0], ALL[1][1:]])

    # created again with more messages than were read: the connector would begin in the middle
    topics.delete(topic)
    topics.create(topic, PARTITIONS)
    anew = [*ALL[2], *(insert(ONE, 100 + n, 50 + n) for n in range(30))]
    topics.send(topic, [Message(value) for value in values(anew)])
    with pytest.raises(ConfigError, match=f"topic {topic} was deleted and created again"):
        run(spark, told)
    shutil.move(told.checkpoint, f"{told.checkpoint}.again")
    report = run(spark, told, is_checkpoint_recovery=True, is_data_loss_allowed=True)
    assert sum(batch.events for batch in report.batches) == len(anew)
    check(spark, lake, [ALL[0], ALL[1][1:], anew])


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_where_a_topic_begins_and_which_topics_there_are(
    spark: SparkSession, topics: Topics, lake: str
) -> None:
    topic = topics.create(topics.name("begin"), PARTITIONS)
    one, two, *_ = values(ALL[0])
    topics.send(topic, [Message(one), Message(two), Message(two, partition=1)])
    wrong = load(written(topics, lake, "nowhere"))
    with pytest.raises(ConfigError, match="there is no topic nowhere"):
        run(spark, wrong)
    wrong = load(written(topics, lake, topic, starting_offsets={topic: {7: 1}}))
    with pytest.raises(ConfigError, match=f"names {topic}-7, which does not exist"):
        run(spark, wrong)
    told = load(written(topics, lake, topic, starting_offsets={topic: {0: 1}}))
    assert sum(batch.events for batch in run(spark, told).batches) == 2


def kafka_input(
    spark: SparkSession,
    servers: str,
    folder: Path,
    offsets: dict[str, dict[str, int]] | None,
    **options: Any,
) -> KafkaInput:
    """Return topics as an input, with a checkpoint of one batch; without offsets of none."""
    files = {"metadata": json.dumps({"id": "query"})}
    if offsets is not None:
        files |= {"offsets/0": f"v1\n{{}}\n{json.dumps(offsets)}", "commits/0": "v1\n{}"}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    source = KafkaSource(bootstrap_servers=servers, format="native-json", **options)
    return KafkaInput(spark, source, Checkpoint(spark, str(folder)), "hint", offset_epoch=0)


def test_other_topics_than_those_of_the_checkpoint_stop_the_run_before_spark_records_a_batch(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    first, second = (topics.create(topics.name("changed")) for _ in range(2))
    offsets = {first: {"0": 0}, second: {"0": 0}}
    kafka_input(spark, topics.servers, tmp_path / "a", offsets, topics=[first, second]).check([])
    for options in ({"topics": first}, {"topic_pattern": first}):
        fewer = kafka_input(spark, topics.servers, tmp_path / "a", offsets, **options)
        with pytest.raises(ConfigError, match=f"does not include topics .*: {second}: hint"):
            fewer.check([])
    more = kafka_input(
        spark, topics.servers, tmp_path / "b", {first: {"0": 0}}, topics=[first, second]
    )
    more.check([])
    topics.send(second, [Message(b"1"), Message(b"2")])
    topics.delete_before(second, {0: 1})
    with pytest.raises(ConfigError, match=f"no offset of {second}-0, which begins with offset 1"):
        more.check([])


def test_a_recovery_that_ended_before_its_first_batch_continues_at_the_same_offsets(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(topics.name("resumed"))
    topics.send(topic, [Message(b"1"), Message(b"2"), Message(b"3")])
    log = OffsetLog(spark, str(tmp_path / "lake"), "shop")
    log.replace(BatchOffsets(span=OffsetRange({topic: {0: 2}}, {topic: {0: 2}}, {topic: "id"})))
    one = kafka_input(
        spark, topics.servers, tmp_path / "c", None, topics=topic, starting_offsets="latest"
    )
    with pytest.raises(ConfigError, match=f"topic {topic} was deleted and created again"):
        one.check(log.read())
    log.replace(BatchOffsets(span=OffsetRange({topic: {0: 2}})))
    one.check(log.read())
    assert one._starts == {topic: {0: 2}}


def test_a_topic_that_is_selected_again_continues_after_what_was_read(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    first, second = (topics.create(topics.name("again")) for _ in range(2))
    for topic in (first, second):
        topics.send(topic, [Message(b"1"), Message(b"2"), Message(b"3")])
    log = OffsetLog(spark, str(tmp_path / "lake"), "shop")
    read = {first: {0: 1}, second: {0: 2}}
    log.replace(BatchOffsets(span=OffsetRange(read, read)))

    def resumed(name: str, **options: Any) -> Offsets | str | None:
        one = kafka_input(spark, topics.servers, tmp_path / name, None, **options)
        offsets = one.resume(log.read(), lambda *_: None, allow_data_loss=False)
        assert offsets is not None
        log.replace(offsets)
        return one._starts

    assert resumed("a", topics=first) == {first: {0: 1}}
    # the checkpoint goes on, and the retention deletes what it has read
    log.record_batch("query", 0, BatchOffsets(span=OffsetRange({first: {0: 3}}, {first: {0: 1}})))
    log.record_finished("query", 0)
    topics.delete_before(first, {0: 2})
    for options in ({"topics": [first, second]}, {"topic_pattern": f"{first}|{second}"}):
        offsets = {first: {"0": 3}}
        again = kafka_input(spark, topics.servers, tmp_path / "a", offsets, **options)
        with pytest.raises(ConfigError, match=f"{second} again, which an earlier checkpoint read"):
            again.check(log.read())
    assert resumed("b", topics=[first, second]) == {first: {0: 3}, second: {0: 2}}


def test_offsets_that_begin_again_need_a_higher_epoch(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(topics.name("again"))
    one = kafka_input(spark, topics.servers, tmp_path / "c", None, topics=topic)
    entries = []
    for epoch in (0, 1):
        log = OffsetLog(spark, str(tmp_path / "lake"), "shop", epoch=epoch)
        log.replace(BatchOffsets(span=OffsetRange({topic: {0: 2}}, ids={topic: "before"})))
        entries.append(log.read())
        with pytest.raises(ConfigError, match=f"set options.epoch to {epoch + 1}"):
            one.check_restart(entries[-1])
    raised = KafkaInput(spark, one._source, one._checkpoint, "hint", offset_epoch=1)
    raised.check_restart(entries[0])
    positions = KafkaInput(spark, one._source, one._checkpoint, "hint")
    positions.check_restart(entries[1])
    applied: list[Any] = []
    with pytest.raises(ConfigError, match=r"set options\.epoch to 1"):
        one.resume(entries[0], lambda *batch: applied.append(batch), allow_data_loss=True)
    resumed = raised.resume(entries[0], lambda *batch: applied.append(batch), allow_data_loss=True)
    assert (resumed, applied) == (BatchOffsets(span=OffsetRange({}, {}, {})), [])


@pytest.mark.long
def test_a_run_from_a_topic_that_is_killed_again_and_again_ends_like_the_oracle(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    # few tables: whatever the source, `test_killed_run` has more of them
    stream = random_kills.write_topic(
        tmp_path, chance.choice(lake_tables.LAKES), random_kills.FEW, topics
    )
    ended = [random_kills.killed_run(stream, chance, longest_s=5) for _ in range(KILLS)]
    assert not all(ended), f"no run was killed in its middle, seed {seed}"
    random_kills.finish(stream)
    assert random_kills.differences(spark, stream) == [], f"seed {seed}"


@pytest.mark.long
@pytest.mark.parametrize("lake", lakes("delta"), indirect=True)
def test_a_topic_that_was_compacted_between_two_runs_gives_the_same_rows(
    spark: SparkSession, topics: Topics, lake: str
) -> None:
    compacts = {
        "cleanup_policy": "compact",
        "segment_ms": "100",
        "min_cleanable_dirty_ratio": "0.01",
        "max_compaction_lag_ms": "100",
    }
    topic = topics.create(topics.name("compacted"), **compacts)
    told = load(written(topics, lake, topic))
    batches = [[insert(ONE, n, n % 3)] for n in range(1, 40)]

    def send(part: Sequence[Sequence[ChangeEvent]]) -> None:
        for batch in part:
            for event in batch:
                (value,) = values([event])
                topics.send(topic, [Message(value, repr(event.after["id"]).encode())])

    send(batches[:20])
    run(spark, told)
    send(batches[20:39])
    until = time.monotonic() + 120
    while len(topics.read(topic)) > 10:
        assert time.monotonic() < until, "the broker does not compact"
        time.sleep(0.5)
        # the segment that is written to is never compacted
        topics.send(topic, [Message(b"{broken", b"filler")])
    report = run(spark, told)
    assert report.batches
    tables = lake_tables.oracle(batches)
    assert lake_tables.read(spark, lake, ONE, ("id",)) == lake_tables.remembered(tables, ONE)


def test_a_topic_that_is_not_there_is_named_before_spark_starts(topics: Topics) -> None:
    there, missing = topics.create(topics.name("orders")), topics.name("missing")
    check_topics(topics.servers, [there])
    with pytest.raises(ConfigError, match=f"there is no topic {missing} at"):
        check_topics(topics.servers, [there, missing])

# SPDX-License-Identifier: Apache-2.0
"""``changelane run`` into topics: messages are converted by one ``mapInArrow`` and sent in order.

One task reads one partition of the source, from its first offset of the batch to its last, and
sends what becomes of it in that order: nothing between the two sorts or shuffles. What cannot be
converted is only counted on the way; when there is any, the batch is read a second time for it
alone, so that a stream without failures pays nothing.

It is at least once: Spark's writer has no transactions. A batch that died is sent again from its
beginning, with the same event ids.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from changelane.codec import get_codec
from changelane.conversion.partition import (
    Address,
    Coming,
    Counts,
    Delivery,
    Refused,
    counts,
    encoder,
)
from changelane.errors import ConfigError
from changelane.formats.contract.losses import LossWarnings, loss_of
from changelane.message import Message
from changelane.pipeline.config import Pipeline
from changelane.pipeline.datahub_sink import DataHubSink
from changelane.pipeline.formats import written_by
from changelane.pipeline.kafka import KafkaSink, KafkaSource, client_options
from changelane.spark.lake import lake_of
from changelane.spark.lake.interface import Marker
from changelane.spark.rows import schema
from changelane.spark.run.interrupts import Interrupts
from changelane.spark.run.query import Applying, RunError, check_budget, ending, writer
from changelane.spark.run.trigger import drive
from changelane.spark.sinks.blocked_keys import Incoming, Read
from changelane.spark.sinks.datahub import DataHubSender
from changelane.spark.sinks.partition_counts import TopicCounts
from changelane.spark.sinks.report import (
    DeliveriesReport,
    DeliveryReport,
    Sender,
    Tallies,
    Tally,
    check_stopped,
    refused_rows,
    reported,
    stopped_in,
    tally_of,
)
from changelane.spark.sources.checkpoint import Checkpoint
from changelane.spark.sources.kafka import KafkaInput, way_out
from changelane.spark.sources.kafka_admin import topics
from changelane.spark.state.offset_log import BatchLog
from changelane.spark.state.quarantine import Quarantine
from changelane.transforms.chain import Chain
from changelane.transforms.mask import masks_of
from changelane.transforms.transform import Step

_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
_SENT: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(_HEADER)),
    ]
)
_SENT_DDL: Final = (
    "topic STRING, partition INT, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
_PARTED: Final = {"shareplex-json"}
"""Formats that tell halves of updates beside those that say so of what they write."""
_MOST_ROWS: Final = 10_000


def delivery_of(
    source: KafkaSource,
    sink: KafkaSink,
    partitions: Mapping[str, int],
    steps: Sequence[Step],
    counted: Counts,
) -> Delivery:
    """Return what converts the messages of one partition after the other.

    Args:
        source: What is read.
        sink: Where messages go.
        partitions: How many partitions its topics have.
        steps: The transforms.
        counted: Counted into.

    Raises:
        ConfigError: A name or an option is wrong.
    """
    address = Address(
        sink.topic,
        by_source=sink.partition == "source",
        is_same_broker=source.servers == sink.servers,
    )
    profile, target = written_by(sink)
    return Delivery(
        get_codec(source.format, **source.format_options),
        encoder(target, sink.on_loss, address, partitions.get, profile),
        chain=Chain(steps),
        event_id=sink.event_id,
        holds=sink.hold_keys,
        counts=counted,
    )


class _Job(NamedTuple):
    """What a worker needs: it makes the codecs itself."""

    source: KafkaSource
    sink: KafkaSink
    partitions: Mapping[str, int]
    steps: tuple[Step, ...] = ()
    stops: bool = False

    def delivery(self, counted: Counts) -> Delivery:
        return delivery_of(self.source, self.sink, self.partitions, self.steps, counted)


def deliver(
    spark: SparkSession,
    pipeline: Pipeline,
    *,
    progress: Callable[[DeliveryReport], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
    on_step: Callable[[str], None] = lambda _: None,
) -> DeliveriesReport:
    """Run a pipeline into topics until what is there is sent, or for ever.

    It may be stopped or killed at any moment and run again: no message is lost, and those of the
    batch that was under way may come twice.

    Args:
        spark: The session.
        pipeline: A pipeline from topics to topics, of Kafka or of DataHub.
        progress: Told of each batch.
        say: Told what people should know at the start.
        on_step: Called with the step of the batch under way that begins.

    Raises:
        ConfigError: A name is wrong, or messages of the source are gone.
        RunError: The stream failed.
        BudgetError: More was set aside than the options allow.
    """
    source, sink = pipeline.source, pipeline.sink
    if not isinstance(source, KafkaSource) or not isinstance(sink, KafkaSink | DataHubSink):
        raise ConfigError("only topics are delivered into topics")
    if isinstance(sink, KafkaSink):
        check_topics(spark, source, sink, say)
    else:
        _check_order(spark, source, sink, say)
    checkpoint = Checkpoint(spark, pipeline.checkpoint)
    read = KafkaInput(spark, source, checkpoint, way_out(pipeline))
    read.verify()
    sender = sender_of(spark, pipeline, source, say)
    incoming = Incoming(lake_of(spark, pipeline), pipeline.name, holds=sink.hold_keys)
    report = DeliveriesReport(pipeline.name)
    warnings = LossWarnings(sink.on_loss, sink.format)
    log = BatchLog(spark, pipeline.folder, pipeline.name)
    if checkpoint.is_known:
        read.check(log.read())
    elif log.read():
        say(f"the checkpoint {checkpoint.path} is gone: messages are sent again")
        log.clear()

    def apply(batch: DataFrame, number: int) -> None:
        check_budget(pipeline.options, report)
        began = time.monotonic()
        on_step("sending")
        held = read.held(number)
        log.begin(checkpoint.query(), number, held)
        marker = Marker(pipeline.name, checkpoint.query(), number)
        with incoming.of(batch, marker) as (told, read_them):
            done = sender.send(told, read_them, marker)
        incoming.set_aside(sum(done.quarantined.values()))
        done.lag = read.lag(held)
        done.seconds = time.monotonic() - began
        report.add(done)
        for note in warnings.of(map(loss_of, done.losses)):
            say(note)
        progress(done)

    interrupts = Interrupts(say)
    applying = Applying(apply, interrupts)
    stream = writer(read.stream(), pipeline, applying)
    with ending(report, applying, pipeline), interrupts:
        drive(stream, None, lambda: 0, lambda: None, interrupts.check)
    return report


def sender_of(
    spark: SparkSession,
    pipeline: Pipeline,
    source: KafkaSource,
    say: Callable[[str], None] = lambda _: None,
) -> Sender:
    """Return what sends the messages of a source to the sink of a pipeline.

    Raises:
        ConfigError: The sink is no topic, or it is not there.
        DeliveryError: DataHub does not answer, or refuses.
    """
    sink = pipeline.sink
    if isinstance(sink, DataHubSink):
        return DataHubSender(spark, pipeline, source, sink)
    if isinstance(sink, KafkaSink):
        return _KafkaSender(spark, pipeline, source, sink, say)
    raise ConfigError("only topics are delivered into topics")


def _check_order(
    spark: SparkSession,
    source: KafkaSource,
    sink: KafkaSink | DataHubSink,
    say: Callable[[str], None],
) -> None:
    """Refuse what would break the order of messages, and say what a batch's end can cut."""
    reads = get_codec(source.format, **source.format_options)
    if str(spark.conf.get("spark.speculation", "false")).lower() == "true":
        msg = "spark.speculation sends messages twice at the same time, out of order: turn it off"
        raise ConfigError(msg)
    if sink.hold_keys and (reads.carries.pair or source.format in _PARTED):
        msg = (
            f"{source.format} tells an update in two messages: one that waits for its half would "
            "be overtaken by others of its key, so that hold_keys cannot keep their order"
        )
        raise ConfigError(msg)
    if reads.carries.pair:
        say(
            f"{source.format} tells an update in two messages: where a batch ends between them "
            "both are set aside as `orphan_half`; larger batches make that rarer"
        )


def check_topics(
    spark: SparkSession, source: KafkaSource, sink: KafkaSink, say: Callable[[str], None]
) -> None:
    """Refuse what would break the order of messages, and say what a batch's end can cut.

    Raises:
        ConfigError: A setting, a topic or the profile is wrong, or the broker does not answer.
    """
    _check_order(spark, source, sink, say)
    written_by(sink)
    with topics(spark, sink.servers, client_options(sink.spark)) as broker:
        if sink.is_one_topic and not broker.facts([sink.topic]):
            msg = f"there is no topic {sink.topic} at {sink.servers}: create it first"
            raise ConfigError(msg)
        if source.pattern is not None and source.servers == sink.servers:
            taken = set(broker.matching(source.pattern))
            if sink.topic in taken:
                msg = "source.pattern matches sink.topic: each message would come again"
                raise ConfigError(msg)


class _KafkaSender:
    """Sends batches by Spark's own writer."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        source: KafkaSource,
        sink: KafkaSink,
        say: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._say = say
        self._counts = TopicCounts(spark, pipeline.folder, pipeline.name)
        self._source = source
        self._sink = sink
        self._steps = pipeline.pure_steps
        self._stops = pipeline.options.on_error == "stop"
        tables = lake_of(spark, pipeline)
        self._quarantine = Quarantine(spark, tables, masks=masks_of(self._steps))
        self._counted = spark.sparkContext.accumulator(Tally(), Tallies())

    def send(
        self, told: DataFrame, read: Read, marker: Marker, *, goes_on: bool = False
    ) -> DeliveryReport:
        """Send one batch; see :class:`~changelane.spark.sinks.report.Sender`.

        Raises:
            RunError: The source changed while it was read.
            BudgetError: Something cannot be sent, and this one stops at that.
        """
        stops = self._stops and not goes_on
        partitions = self._partitions()
        for warning in self._counts.changed(partitions):
            self._say(warning)
        job = _Job(self._source, self._sink, partitions, self._steps, stops)
        before = self._counted.value.copy()
        sent = told.mapInArrow(partial(_send, job, read, self._counted), _SENT_DDL)
        (
            sent.write.format("kafka")
            .option("kafka.bootstrap.servers", self._sink.servers)
            .option("includeHeaders", "true")
            .options(**self._sink.spark)
            .save()
        )
        counted = self._counted.value - before
        self._counts.written((words[0] for kind, *words in counted if kind == "topic"), partitions)
        report = reported(marker.batch, counted)
        if stops:
            check_stopped(report, counted)
        if failed := sum(report.quarantined.values()):
            refused = told.mapInArrow(partial(_refuse, job, read), schema.DDL).persist()
            try:
                found = refused.count()
                if found != failed:
                    msg = f"{failed} messages cannot be sent, and only {found} are still there"
                    raise RunError(msg)
                self._quarantine.add(refused, (), marker)
            finally:
                refused.unpersist()
        return report

    def _partitions(self) -> dict[str, int]:
        """Return how many partitions the topics have that messages may go to."""
        with topics(self._spark, self._sink.servers, client_options(self._sink.spark)) as broker:
            is_one = self._sink.is_one_topic and not self._steps  # a route may tell others
            names = [self._sink.topic] if is_one else broker.names()
            facts = broker.facts(names)
        return {name: len(topic.partitions) for name, topic in facts.items()}


# -- on the workers


def _convert(job: _Job, counted: Counts, coming: Iterable[Coming]) -> Iterator[Message | Refused]:
    place: tuple[str | None, int | None] | None = None
    delivery = job.delivery(counted)
    for message, only, waits in coming:
        if place != (message.topic, message.partition):
            yield from delivery.flush()
            place = message.topic, message.partition
        yield from delivery.push(message, only=only, waits=waits)
    yield from delivery.flush()


def _send(
    job: _Job, read: Read, counter: Any, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Return what is to be sent, and count everything."""
    counted = counts()
    gathered: list[Message] = []
    taken: Counter[str | None] = Counter()
    size = 0
    stopped: Refused | None = None
    for one in _convert(job, counted, read(batches)):
        if isinstance(one, Refused):
            if job.stops:
                stopped = one
                break
            continue
        gathered.append(one)
        taken[one.topic] += 1
        size += len(one.value or b"") + len(one.key or b"")
        if size >= schema.MAX_BATCH_BYTES or len(gathered) >= _MOST_ROWS:
            yield _sent(gathered)
            gathered, size = [], 0
    if gathered:
        yield _sent(gathered)
    total = tally_of(counted)
    total.update({("topic", topic): count for topic, count in taken.items() if topic is not None})
    if stopped is not None:
        total.update(stopped_in(stopped))
        for _ in batches:
            pass  # nothing behind it is sent; Spark writes all of its rows to us
    counter.add(total)


def _sent(messages: list[Message]) -> pa.RecordBatch:
    headers = [
        [{"key": name, "value": value} for name, value in one.headers] if one.headers else None
        for one in messages
    ]
    columns = (
        [one.topic for one in messages],
        [one.partition for one in messages],
        [one.key for one in messages],
        [one.value for one in messages],
        headers,
    )
    arrays = [pa.array(c, field.type) for c, field in zip(columns, _SENT, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SENT)


def _refuse(job: _Job, read: Read, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return what cannot be sent, as event rows."""
    yield from refused_rows(_convert(job, counts(), read(batches)))

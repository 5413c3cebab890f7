# SPDX-License-Identifier: Apache-2.0
"""The Kafka sink: one ``mapInArrow`` converts, Spark's writer sends.

One task reads one partition of the source, from its first offset of the batch to its last, and
sends the results in that order: no step in between sorts or shuffles. The first pass only counts
the rejected messages. If there are any, a second pass over the batch collects them, so that a
stream without failures has no extra cost.

Delivery is at least once: Spark's writer has no transactions. A failed batch is sent again from
its beginning, with the same event ids.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from changelane.codec import get_codec
from changelane.conversion.destinations import Address, EventEncoder
from changelane.conversion.partition import (
    Counts,
    Delivery,
    IncomingMessage,
    RejectedMessage,
    empty_counts,
)
from changelane.errors import ConfigError
from changelane.message import Message
from changelane.pipeline.config import Pipeline
from changelane.pipeline.kafka_sink import KafkaSink, sink_codec
from changelane.pipeline.kafka_source import KafkaSource, client_options
from changelane.pipeline.topic_sink import OrderedSource
from changelane.spark.lake import lake_of
from changelane.spark.lake.interface import Marker
from changelane.spark.rows import schema
from changelane.spark.run.query import (
    RunError,
)
from changelane.spark.runtime.computed import computed_once
from changelane.spark.sinks.blocked_keys import MessageReader
from changelane.spark.sinks.interface import Sender
from changelane.spark.sinks.partition_counts import TopicCounts
from changelane.spark.sinks.report import (
    DeliveryReport,
    TaskCounts,
    TaskCountsParam,
    check_stop,
    rejected_rows,
    report_of,
    stop_count_of,
    task_counts_of,
)
from changelane.spark.sources.kafka_admin import topic_admin
from changelane.spark.state.quarantine import Quarantine
from changelane.transforms.chain import Chain
from changelane.transforms.mask import masks_of
from changelane.transforms.transform import Transform

_HEADER_TYPE: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
_MESSAGE_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(_HEADER_TYPE)),
    ]
)
_MESSAGE_DDL: Final = (
    "topic STRING, partition INT, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
_MAX_ROWS: Final = 10_000
_LARGE_REQUESTS: Final = {"kafka.batch.size": str(64 << 10)}
"""The messages of a partition that one request contains, bytes; Kafka's default is 16 kB."""
_BUFFER: Final = "kafka.buffer.memory"


def delivery_of(
    source: OrderedSource,
    sink: KafkaSink,
    partitions: Mapping[str, int],
    transforms: Sequence[Transform],
    counts: Counts,
    *,
    is_dry_run: bool = False,
) -> Delivery:
    """Return the converter of the messages of one partition after the other.

    Args:
        source: The source.
        sink: The sink.
        partitions: The number of partitions of each of its topics.
        transforms: The transforms.
        counts: The counters that the converter updates.
        is_dry_run: Whether nothing is registered in a schema registry.

    Raises:
        ConfigError: A name or an option is wrong.
    """
    address = Address(
        sink.topic,
        by_source=sink.partition == "source",
        is_same_broker=source.brokers == sink.bootstrap_servers,
    )
    profile, target = sink_codec(sink)
    return Delivery(
        get_codec(source.format, **source.format_options),
        EventEncoder(target, sink.on_loss, address, partitions.get, profile, is_dry_run=is_dry_run),
        chain=Chain(transforms),
        event_id=sink.event_id,
        blocks_keys=sink.block_keys_on_error,
        counts=counts,
    )


class _Job(NamedTuple):
    """The parameters of a worker, which creates the codecs itself."""

    source: OrderedSource
    sink: KafkaSink
    partitions: Mapping[str, int]
    transforms: tuple[Transform, ...] = ()
    stops: bool = False

    def delivery(self, counts: Counts) -> Delivery:
        return delivery_of(self.source, self.sink, self.partitions, self.transforms, counts)


def check(
    spark: SparkSession,
    pipeline: Pipeline,
    source: OrderedSource,
    notify: Callable[[str], None],
) -> None:
    """Check the topics of a pipeline's sink.

    Raises:
        ConfigError: A topic or the profile is wrong, or the broker does not answer.
    """
    del notify
    check_topics(spark, source, _sink_of(pipeline))


def open_sender(
    spark: SparkSession,
    pipeline: Pipeline,
    source: OrderedSource,
    notify: Callable[[str], None],
) -> Sender:
    """Return the sender of a pipeline's sink."""
    return _KafkaSender(spark, pipeline, source, _sink_of(pipeline), notify)


def _sink_of(pipeline: Pipeline) -> KafkaSink:
    return cast("KafkaSink", pipeline.sink)  # the options that name this module


def check_topics(spark: SparkSession, source: OrderedSource, sink: KafkaSink) -> None:
    """Check the topics of a sink.

    Raises:
        ConfigError: A topic or the profile is wrong, or the broker does not answer.
    """
    sink_codec(sink)
    with topic_admin(spark, sink.bootstrap_servers, client_options(sink.spark_options)) as broker:
        if sink.is_one_topic and not broker.describe([sink.topic]):
            msg = f"there is no topic {sink.topic} at {sink.bootstrap_servers}: create it first"
            raise ConfigError(msg)
        pattern = source.topic_pattern if isinstance(source, KafkaSource) else None
        if pattern is not None and source.brokers == sink.bootstrap_servers:
            topics = set(broker.matching_names(pattern))
            if sink.topic in topics:
                msg = "source.topic_pattern matches sink.topic: each message would be read again"
                raise ConfigError(msg)


class _KafkaSender:
    """Sends batches with Spark's own writer."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        source: OrderedSource,
        sink: KafkaSink,
        notify: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._notify = notify
        self._topic_counts = TopicCounts(spark, pipeline.folder, pipeline.name)
        self._source = source
        self._sink = sink
        self._transforms = pipeline.pure_steps
        self._stops = pipeline.options.on_error == "stop"
        has_own_buffer = any(name.lower() == _BUFFER for name in sink.spark_options)
        defaults = {} if has_own_buffer else _LARGE_REQUESTS  # a request must fit into it
        self._producer_options = {**defaults, **sink.spark_options}
        lake = lake_of(spark, pipeline)
        self._quarantine = Quarantine(spark, lake, masks=masks_of(self._transforms))
        self._quarantine.create_if_in_use()
        self._task_counts = spark.sparkContext.accumulator(TaskCounts(), TaskCountsParam())

    def send(
        self, rows: DataFrame, read: MessageReader, marker: Marker, *, is_lenient: bool = False
    ) -> DeliveryReport:
        """Send one batch; see :class:`~changelane.spark.sinks.interface.Sender`.

        Raises:
            RunError: The source changed between the two passes.
            BudgetError: A message is rejected, and the options set ``on_error: stop``.
        """
        stops = self._stops and not is_lenient
        partitions = self._partitions()
        for warning in self._topic_counts.record_changes(partitions):
            self._notify(warning)
        job = _Job(self._source, self._sink, partitions, self._transforms, stops)
        counts_before = self._task_counts.value.copy()
        messages = rows.mapInArrow(partial(_send, job, read, self._task_counts), _MESSAGE_DDL)
        (
            messages.write.format("kafka")
            .option("kafka.bootstrap.servers", self._sink.bootstrap_servers)
            .option("includeHeaders", "true")
            .options(**self._producer_options)
            .save()
        )
        counts = self._task_counts.value - counts_before
        self._topic_counts.record_written(
            (labels[0] for kind, *labels in counts if kind == "topic"), partitions
        )
        report = report_of(marker.batch, counts)
        if stops:
            check_stop(report, counts)
        if failed := sum(report.quarantined.values()):
            second_pass = rows.mapInArrow(partial(_reject, job, read), schema.DDL)
            with computed_once(second_pass) as rejected:
                rejected_count = rejected.count()
                if rejected_count != failed:
                    msg = (
                        f"{failed} messages cannot be sent, and the source has only "
                        f"{rejected_count} of them in the second pass"
                    )
                    raise RunError(msg)
                self._quarantine.record(rejected, (), marker)
        return report

    def _partitions(self) -> dict[str, int]:
        """Return the partition counts of the topics that may receive messages."""
        with topic_admin(
            self._spark, self._sink.bootstrap_servers, client_options(self._sink.spark_options)
        ) as broker:
            is_one_topic = (
                self._sink.is_one_topic and not self._transforms
            )  # a route may write to other topics
            names = [self._sink.topic] if is_one_topic else broker.names()
            topics = broker.describe(names)
        return {name: len(topic.partitions) for name, topic in topics.items()}


# -- on the workers


def _convert(
    job: _Job, counts: Counts, messages: Iterable[IncomingMessage]
) -> Iterator[Message | RejectedMessage]:
    return chain.from_iterable(job.delivery(counts).convert(messages))


def _send(
    job: _Job, read: MessageReader, counter: Any, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Return the messages to send as rows, and count everything."""
    counts = empty_counts()
    messages: list[Message] = []
    message_counts: Counter[str | None] = Counter()
    size = 0

    def message_batch() -> pa.RecordBatch:
        message_counts.update(message.topic for message in messages)
        return _message_batch(messages)

    first_rejection: RejectedMessage | None = None
    for result in _convert(job, counts, read(batches)):
        if isinstance(result, RejectedMessage):
            if job.stops:
                first_rejection = result
                break
            continue
        messages.append(result)
        size += len(result.value or b"") + len(result.key or b"")
        if size >= schema.MAX_BATCH_BYTES or len(messages) >= _MAX_ROWS:
            yield message_batch()
            messages, size = [], 0
    if messages:
        yield message_batch()
    task_counts = task_counts_of(counts)
    task_counts.update(
        {("topic", topic): count for topic, count in message_counts.items() if topic is not None}
    )
    if first_rejection is not None:
        task_counts.update(stop_count_of(first_rejection))
        for _ in batches:
            pass  # no later message is sent, but Spark must be able to write all of its rows
    counter.add(task_counts)


def _message_batch(messages: list[Message]) -> pa.RecordBatch:
    headers = [
        [{"key": name, "value": value} for name, value in message.headers]
        if message.headers
        else None
        for message in messages
    ]
    columns = (
        [message.topic for message in messages],
        [message.partition for message in messages],
        [message.key for message in messages],
        [message.value for message in messages],
        headers,
    )
    arrays = [
        pa.array(column, field.type) for column, field in zip(columns, _MESSAGE_SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_MESSAGE_SCHEMA)


def _reject(
    job: _Job, read: MessageReader, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Return the rejected messages as event rows."""
    yield from rejected_rows(_convert(job, empty_counts(), read(batches)))

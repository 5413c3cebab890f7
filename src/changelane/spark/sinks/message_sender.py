# SPDX-License-Identifier: Apache-2.0
"""A sender for sinks that take one message after the other, such as a web service.

Each task converts the messages of its partitions, in their order, and gives them to a writer of its
own. A failed task writes its messages again: at least once.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from changelane.codec import get_codec
from changelane.conversion.destinations import Address, EventEncoder
from changelane.conversion.partition import Delivery, Outcomes, RejectedMessage, empty_counts
from changelane.message import Message
from changelane.pipeline.config import Pipeline
from changelane.pipeline.interface import TopicSink
from changelane.pipeline.topic_sink import OrderedSource
from changelane.spark.lake import lake_of
from changelane.spark.lake.interface import Marker
from changelane.spark.rows import schema
from changelane.spark.runtime.computed import computed_once
from changelane.spark.sinks.blocked_keys import MessageReader
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
from changelane.spark.state.quarantine import Quarantine
from changelane.transforms.chain import Chain
from changelane.transforms.mask import masks_of
from changelane.transforms.transform import Transform


class MessageWriter(Protocol):
    """Writes the messages of one task."""

    def write(self, message: Message) -> None:
        """Write a message, or keep it until :meth:`flush`; any error fails the task."""
        ...

    def flush(self) -> None:
        """Return when the destination has all messages."""
        ...


OpenWriter = Callable[[], MessageWriter]
"""Returns the writer of a task; Spark pickles it."""


class _Job(NamedTuple):
    """The parameters of a task."""

    source: OrderedSource
    sink: TopicSink
    topic: str
    open_writer: OpenWriter
    transforms: tuple[Transform, ...]
    stops: bool


class MessageSender:
    """Sends batches message by message; see :class:`~changelane.spark.sinks.interface.Sender`.

    Args:
        spark: The session.
        pipeline: The pipeline.
        source: The topics that it reads.
        sink: The options of its sink.
        topic: The topic of a message, such as ``{database}.{table}``.
        open_writer: Returns the writer of a task.
    """

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        source: OrderedSource,
        sink: TopicSink,
        *,
        topic: str,
        open_writer: OpenWriter,
    ) -> None:
        transforms, stops = tuple(pipeline.pure_steps), pipeline.options.on_error == "stop"
        self._job = _Job(source, sink, topic, open_writer, transforms, stops)
        self._quarantine = Quarantine(spark, lake_of(spark, pipeline), masks=masks_of(transforms))
        self._quarantine.create_if_in_use()
        self._task_counts = spark.sparkContext.accumulator(TaskCounts(), TaskCountsParam())

    def send(
        self, rows: DataFrame, read: MessageReader, marker: Marker, *, is_lenient: bool = False
    ) -> DeliveryReport:
        """Send one batch."""
        job = self._job._replace(stops=self._job.stops and not is_lenient)
        counts_before = self._task_counts.value.copy()
        sent_rows = rows.mapInArrow(
            partial(_write_messages, job, read, self._task_counts), schema.DDL
        )
        # once, because a second evaluation would send a second time
        with computed_once(sent_rows) as rejected:
            rejected.count()
            task_counts = self._task_counts.value - counts_before
            report = report_of(marker.batch, task_counts)
            if job.stops:
                check_stop(report, task_counts)
            if report.quarantined:
                self._quarantine.record(rejected, (), marker)
        return report


# -- on the workers


def _write_messages(
    job: _Job, read: MessageReader, counter: Any, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write messages, return the rejected ones as rows, and count everything."""
    source, sink = job.source, job.sink
    counts = empty_counts()
    delivery = Delivery(
        get_codec(source.format, **source.format_options),
        EventEncoder(
            get_codec(sink.format, **sink.format_options),
            sink.on_loss,
            Address(job.topic, by_source=True),
            lambda _: 1,
        ),
        chain=Chain(job.transforms),
        blocks_keys=sink.blocks_keys,
        counts=counts,
    )
    writer = job.open_writer()
    first_rejection: RejectedMessage | None = None

    def rejections() -> Iterator[RejectedMessage]:
        for outcomes in delivery.convert(read(batches)):
            yield from written(outcomes)

    def written(results: Outcomes) -> Iterator[RejectedMessage]:
        for result in results:
            if isinstance(result, RejectedMessage):
                yield result
            else:
                writer.write(result)

    if job.stops:
        first_rejection = next(rejections(), None)
        for _ in batches:
            pass  # no later message is sent, but Spark must be able to read all of its rows
    else:
        yield from rejected_rows(rejections())
    writer.flush()
    task_counts = task_counts_of(counts)
    if first_rejection is not None:
        task_counts.update(stop_count_of(first_rejection))
    counter.add(task_counts)

# SPDX-License-Identifier: Apache-2.0
"""The DataHub sink: each task converts the messages of its partitions and writes them itself.

One ``mapInArrow`` runs :class:`~changelane.datahub.sender.Sending` per task and returns only the
rejected messages. The messages of a key stay in their order: they are in one partition of the
source, and one task reads that partition from its first message to its last. A retried task sends
its messages again: delivery is at least once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from changelane.conversion.partition import RejectedMessage, empty_counts
from changelane.datahub.records import create_topic, two_tables
from changelane.datahub.sdk import Sdk, patience
from changelane.datahub.sender import Sending
from changelane.datahub.service import Topic
from changelane.errors import ConfigError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.datahub_sink import DataHubSink
from changelane.pipeline.topic_sink import OrderedSource
from changelane.spark.lake import lake_of
from changelane.spark.lake.interface import Marker
from changelane.spark.rows import schema
from changelane.spark.runtime.computed import computed_once
from changelane.spark.sinks.blocked_keys import MessageReader
from changelane.spark.sinks.interface import Sender
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

_START_TIMEOUT_S: Final = 30.0
"""The maximum wait for an unavailable service at the start; later waits may be longer."""


class _Job(NamedTuple):
    """The parameters of a worker, which creates the client itself."""

    source: OrderedSource
    sink: DataHubSink
    transforms: tuple[Transform, ...]
    owners: Mapping[str, str] = {}
    stops: bool = False


def check(
    spark: SparkSession, pipeline: Pipeline, source: OrderedSource, notify: Callable[[str], None]
) -> None:
    """Nothing to check: :func:`open_sender` checks the topic."""
    del spark, pipeline, source, notify


def open_sender(
    spark: SparkSession, pipeline: Pipeline, source: OrderedSource, notify: Callable[[str], None]
) -> Sender:
    """Return the sender of a pipeline's sink.

    Raises:
        ConfigError: The topic does not exist, or is of the other kind.
        DeliveryError: The service does not answer, or rejects the request.
        MissingExtraError: The vendor's client is not installed.
    """
    del notify
    sink = cast("DataHubSink", pipeline.sink)  # the options that name this module
    return DataHubSender(spark, pipeline, source, sink)


class DataHubSender:
    """Sends batches to DataHub.

    Raises:
        ConfigError: The topic does not exist, or is of the other kind.
        DeliveryError: The service does not answer, or rejects the request.
        MissingExtraError: The vendor's client is not installed.
    """

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, source: OrderedSource, sink: DataHubSink
    ) -> None:
        _check_topic(sink)
        transforms, stops = tuple(pipeline.pure_steps), pipeline.options.on_error == "stop"
        self._job = _Job(source, sink, transforms, stops=stops)
        self._quarantine = Quarantine(spark, lake_of(spark, pipeline), masks=masks_of(transforms))
        self._quarantine.create_if_in_use()
        self._task_counts = spark.sparkContext.accumulator(TaskCounts(), TaskCountsParam())

    def send(
        self, rows: DataFrame, read: MessageReader, marker: Marker, *, is_lenient: bool = False
    ) -> DeliveryReport:
        """Send one batch; see :class:`~changelane.spark.sinks.interface.Sender`."""
        job = self._job._replace(stops=self._job.stops and not is_lenient)
        counts_before = self._task_counts.value.copy()
        sent_rows = rows.mapInArrow(
            partial(_write_messages, job, read, self._task_counts), schema.DDL
        )
        # once, because a second evaluation would send a second time
        with computed_once(sent_rows) as rejected:
            rejected.count()
            task_counts = self._task_counts.value - counts_before
            self._record_owners(tuple(labels) for kind, *labels in task_counts if kind == "owner")
            report = report_of(marker.batch, task_counts)
            if job.stops:
                check_stop(report, task_counts)
            if report.quarantined:
                self._quarantine.record(rejected, (), marker)
        return report

    def _record_owners(self, owner_rows: Iterable[tuple[str, ...]]) -> None:
        """Record the table of each topic; parallel tasks do not share their records.

        Raises:
            ConfigError: Two tables are written into one topic.
        """
        owners: dict[str, str] = dict(self._job.owners)
        for topic, table in sorted(owner_rows):
            owner = owners.setdefault(topic, table)
            if owner != table:
                raise ConfigError(two_tables(topic, {owner, table}))
        self._job = self._job._replace(owners=owners)


def _check_topic(sink: DataHubSink) -> None:
    service = Sdk(sink)
    if not sink.is_one_topic:
        return
    retries = patience(min(_START_TIMEOUT_S, sink.retry_seconds))
    topic = retries.call(f"topic {sink.topic}", lambda: service.topic(sink.topic))
    if topic is None and sink.create is None:
        msg = f"project {sink.project} has no topic {sink.topic}: create it, or set sink.create"
        raise ConfigError(msg)
    if topic is None and sink.create is not None and sink.kind == "BLOB":
        create_topic(service, retries, sink.topic, Topic("BLOB"), sink.create)
    if topic is not None and topic.kind != sink.kind:
        msg = f"topic {sink.topic} is a {topic.kind} topic, and {sink.format} needs {sink.kind}"
        raise ConfigError(msg)


# -- on the workers


def _write_messages(
    job: _Job, read: MessageReader, counter: Any, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write messages, return the rejected ones as rows, and count everything."""
    delivery_counts = empty_counts()
    sender = Sending(
        job.source,
        job.sink,
        Sdk(job.sink),
        patience(job.sink.retry_seconds),
        chain=Chain(job.transforms),
        counts=delivery_counts,
        owners=job.owners,
    )
    rejected: Iterator[RejectedMessage] = sender.send(read(batches))
    first_rejection = next(rejected, None) if job.stops else None
    if first_rejection is None:
        yield from rejected_rows(rejected)
    else:
        for _ in batches:
            pass  # no later message is sent, but Spark must be able to write all of its rows
    task_counts = task_counts_of(delivery_counts)
    if first_rejection is not None:
        task_counts.update(stop_count_of(first_rejection))
    task_counts.update({("owner", topic, table): 1 for topic, table in sender.owners.items()})
    counter.add(task_counts)

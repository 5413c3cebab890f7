# SPDX-License-Identifier: Apache-2.0
"""Batches into DataHub: each task converts the messages of its partitions and writes them itself.

One ``mapInArrow`` runs :class:`~changelane.datahub.sender.Sending` per task and returns only what
is set aside. The order of a key is kept because its messages lie in one partition of the source,
which one task reads from its first message to its last. A task that is tried again sends what it
sent before once more: at least once.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from changelane.conversion.partition import Refused, counts
from changelane.datahub.records import create_topic, two_tables
from changelane.datahub.sdk import Sdk, patience
from changelane.datahub.sender import Sending
from changelane.datahub.service import Topic
from changelane.errors import ConfigError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.datahub_sink import DataHubSink
from changelane.pipeline.kafka import KafkaSource
from changelane.spark.lake import lake_of
from changelane.spark.lake.interface import Marker
from changelane.spark.rows import schema
from changelane.spark.sinks.blocked_keys import Read
from changelane.spark.sinks.report import (
    DeliveryReport,
    Tallies,
    Tally,
    check_stopped,
    refused_rows,
    reported,
    stopped_in,
    tally_of,
)
from changelane.spark.state.quarantine import Quarantine
from changelane.transforms.chain import Chain
from changelane.transforms.mask import masks_of
from changelane.transforms.transform import Step

_START_S: Final = 30.0
"""A service that is not there at the start is not waited for as long as later."""


class _Job(NamedTuple):
    """What a worker needs: it makes the client itself."""

    source: KafkaSource
    sink: DataHubSink
    steps: tuple[Step, ...]
    owners: Mapping[str, str] = {}
    stops: bool = False


class DataHubSender:
    """Sends batches to DataHub.

    Raises:
        ConfigError: The topic is not there, or is of the other kind.
        DeliveryError: The service does not answer, or refuses.
        MissingExtraError: The vendor's client is not installed.
    """

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, source: KafkaSource, sink: DataHubSink
    ) -> None:
        _check_topic(sink)
        steps, stops = tuple(pipeline.pure_steps), pipeline.options.on_error == "stop"
        self._job = _Job(source, sink, steps, stops=stops)
        self._quarantine = Quarantine(spark, lake_of(spark, pipeline), masks=masks_of(steps))
        self._counted = spark.sparkContext.accumulator(Tally(), Tallies())

    def send(
        self, told: DataFrame, read: Read, marker: Marker, *, goes_on: bool = False
    ) -> DeliveryReport:
        """Send one batch; see :class:`~changelane.spark.sinks.report.Sender`."""
        job = self._job._replace(stops=self._job.stops and not goes_on)
        before = self._counted.value.copy()
        # kept, because reading it a second time would send a second time
        refused = told.mapInArrow(partial(_write, job, read, self._counted), schema.DDL).persist()
        try:
            refused.count()
            counted = self._counted.value - before
            self._learn(tuple(words) for kind, *words in counted if kind == "owner")
            report = reported(marker.batch, counted)
            if job.stops:
                check_stopped(report, counted)
            if report.quarantined:
                self._quarantine.add(refused, (), marker)
        finally:
            refused.unpersist()
        return report

    def _learn(self, told: Iterable[tuple[str, ...]]) -> None:
        """Remember which tables the topics take; tasks that run together do not know all of it.

        Raises:
            ConfigError: Two tables go into one topic.
        """
        owners: dict[str, str] = dict(self._job.owners)
        for topic, table in sorted(told):
            known = owners.setdefault(topic, table)
            if known != table:
                raise ConfigError(two_tables(topic, {known, table}))
        self._job = self._job._replace(owners=owners)


def _check_topic(sink: DataHubSink) -> None:
    service = Sdk(sink)
    if not sink.is_one_topic:
        return
    waits = patience(min(_START_S, sink.retry_seconds))
    topic = waits.call(f"topic {sink.topic}", lambda: service.topic(sink.topic))
    if topic is None and sink.create is None:
        msg = f"project {sink.project} has no topic {sink.topic}: create it, or give sink.create"
        raise ConfigError(msg)
    if topic is None and sink.create is not None and sink.kind == "BLOB":
        create_topic(service, waits, sink.topic, Topic("BLOB"), sink.create)
    if topic is not None and topic.kind != sink.kind:
        msg = f"topic {sink.topic} is a {topic.kind} topic, and {sink.format} needs {sink.kind}"
        raise ConfigError(msg)


# -- on the workers


def _write(
    job: _Job, read: Read, counter: Any, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write messages, return what is set aside, and count everything."""
    counted = counts()
    sending = Sending(
        job.source,
        job.sink,
        Sdk(job.sink),
        patience(job.sink.retry_seconds),
        chain=Chain(job.steps),
        counts=counted,
        owners=job.owners,
    )
    refused: Iterator[Refused] = sending.send(read(batches))
    stopped = next(refused, None) if job.stops else None
    if stopped is None:
        yield from refused_rows(refused)
    else:
        for _ in batches:
            pass  # nothing behind it is sent; Spark writes all of its rows to us
    tally = tally_of(counted)
    if stopped is not None:
        tally.update(stopped_in(stopped))
    tally.update({("owner", topic, table): 1 for topic, table in sending.owners.items()})
    counter.add(tally)

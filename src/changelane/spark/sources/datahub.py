# SPDX-License-Identifier: Apache-2.0
"""The ``datahub`` source: a topic of DataHub as a stream, through Spark 4's Python data sources.

The driver reads the end offsets of the shards, tasks read the records between two offsets, and
Spark's checkpoint stores the offsets. The task that reads a shard first reads the shards that were
split or merged into it. Each task creates its own client: Spark shows options, so neither the keys
nor a connection are in an option.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from changelane.conversion.partition import DeliveryError
from changelane.datahub import reader
from changelane.datahub.reader import Offsets, Stretch, chains, messages, stretches
from changelane.datahub.sdk import Sdk, patience
from changelane.datahub.service import ServiceError
from changelane.errors import ConfigError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.datahub_source import DataHubSource
from changelane.pipeline.kafka_offsets import Lag, OffsetRange
from changelane.spark.rows.decode import MESSAGE_DDL, decode, message_batches
from changelane.spark.sources.checkpoint import Checkpoint
from changelane.spark.sources.decode_options import decode_options_of
from changelane.spark.state.offset_log import ApplyBatch, BatchOffsets, OffsetLogEntry

NAME: Final = "changelane_datahub"
_START_S: Final = 30.0
_DATA_LOSS_HINT: Final = (
    "find the cause; to continue without them, move the checkpoint {checkpoint} away and run "
    "again, which reads the records that the topic still has; tables with keys stay correct"
)


def open_input(
    spark: SparkSession, pipeline: Pipeline, checkpoint: Checkpoint, notify: Callable[[str], None]
) -> "DataHubInput":
    """Return the input of a pipeline."""
    del notify
    source = cast("DataHubSource", pipeline.source)  # the options that name this module
    return DataHubInput(spark, source, checkpoint)


class DataHubInput:
    """A topic as the input of a pipeline.

    Args:
        spark: The session.
        source: The topic.
        checkpoint: Spark's checkpoint.

    Raises:
        MissingExtraError: The vendor's client is not installed.
    """

    def __init__(self, spark: SparkSession, source: DataHubSource, checkpoint: Checkpoint) -> None:
        self._spark = spark
        self._source = source
        self._checkpoint = checkpoint
        self._service = Sdk(source)
        self._patience = patience(min(_START_S, source.retry_seconds))

    def verify(self) -> None:
        """Check that the topic exists, before anything is written.

        Raises:
            ConfigError: The topic does not exist, or is of the other kind.
            DeliveryError: The service does not answer, or denies access.
        """
        self._topic_schema()

    def stream(self) -> DataFrame:
        """Return the records as a stream of messages.

        Raises:
            ConfigError: The topic does not exist, or is of the other kind.
            DeliveryError: The service does not answer, or denies access.
        """
        self._topic_schema()
        source, topic = self._source, self._source.topic

        def starts() -> Offsets:
            return reader.starts(self._service, topic, source.starting_offsets)

        if self._checkpoint.is_created:
            last_offsets = self._checkpoint.position()
        else:
            last_offsets = self._checkpoint.record_starts(self._call_service("its shards", starts))
        # else a run that completes a killed run ends there, and leaves later records unread
        self._spark.conf.set("spark.sql.streaming.triggerAvailableNowWrapper.enabled", "true")
        attributes = {
            "source": source,
            "first_offsets": self._checkpoint.offsets(-1),
            "last_offsets": last_offsets,
        }
        self._spark.dataSource.register(type("Topic", (_Topic,), attributes))
        stream: DataFrame = self._spark.readStream.format(NAME).load()
        return stream

    def events(self, batch: DataFrame, pipeline: Pipeline, *, is_small: bool) -> DataFrame:
        """Return the event rows of messages."""
        schema = self._topic_schema()
        topic_options = {} if schema is None else {"topic_schema": schema}
        return decode(
            batch.coalesce(1) if is_small else batch,
            self._source.format,
            options=topic_options | self._source.format_options,
            **decode_options_of(pipeline),
        )

    def without_applied(self, batch: DataFrame, query: str) -> DataFrame:
        """Return a batch unchanged: it begins at the offsets where the last one ended."""
        del query
        return batch

    def offsets_of(self, number: int, batch: Any = None) -> BatchOffsets:
        """Return the offset range of a batch."""
        del batch
        ends, starts = self._checkpoint.offsets(number), self._checkpoint.offsets(number - 1)
        topic = self._source.topic
        return BatchOffsets(
            span=OffsetRange({topic: ends.get(topic, {})}, {topic: starts.get(topic, {})})
        )

    def commit_details(self, batch_offsets: BatchOffsets) -> dict[str, object]:
        """Return the source and its offsets for the metadata of a batch's commits."""
        ends = {} if batch_offsets.span is None else batch_offsets.span.ends
        return {"source": self._source.label, "offsets": ends}

    def message_count(self, batch_offsets: BatchOffsets) -> int | None:
        """Return the number of records of a batch, by their numbers."""
        return None if batch_offsets.span is None else batch_offsets.span.count

    def lag(self, batch_offsets: BatchOffsets) -> Lag | None:
        """Return the number of records in each shard after a batch."""
        if batch_offsets.span is None:
            return None
        topic, span = self._source.topic, batch_offsets.span
        last_offsets = self._checkpoint.position()
        latest_offsets = self._call_service(
            "its shards", lambda: reader.ends(self._service, topic, last_offsets)
        )
        read_offsets = span.ends.get(topic, {})
        return {
            topic: {
                shard: max(0, end - read_offsets.get(shard, 0))
                for shard, end in latest_offsets[topic].items()
            }
        }

    def check(self, entries: list[OffsetLogEntry]) -> None:
        """Check that the topic still has the records after the checkpoint.

        Raises:
            ConfigError: Records after its offsets are gone.
        """
        del entries
        topic, position = self._source.topic, self._checkpoint.position()
        self._topic_schema()
        try:
            self._call_service("its shards", lambda: reader.check(self._service, topic, position))
        except reader.LostError as error:
            hint = _DATA_LOSS_HINT.format(checkpoint=self._checkpoint.path)
            raise ConfigError(f"{error}: {hint}") from None

    def resume(
        self, entries: list[OffsetLogEntry], apply_batch: ApplyBatch, *, allow_data_loss: bool
    ) -> BatchOffsets | None:
        """Reject a recovery from the tables, which the source does not support.

        Raises:
            ConfigError: Always.
        """
        del entries, apply_batch, allow_data_loss
        msg = (
            "a datahub source does not support --recover-checkpoint: run without it, which starts "
            "at source.starting_offsets; tables with keys stay correct"
        )
        raise ConfigError(msg)

    def _call_service(self, subject: str, call: Any) -> Any:
        return self._patience.call(f"topic {self._source.topic}: {subject}", call)

    def _topic_schema(self) -> str | None:
        """Return the schema of the topic; ``None`` for a BLOB topic.

        Raises:
            ConfigError: The topic does not exist, or is of the other kind.
        """
        source = self._source
        topic = self._call_service("its schema", lambda: self._service.topic(source.topic))
        if topic is None:
            raise ConfigError(f"project {source.project} has no topic {source.topic}")
        if topic.kind != source.kind:
            msg = (
                f"topic {source.topic} is a {topic.kind} topic, and source.format {source.format} "
                f"needs {source.kind}: set source.format: datahub-{topic.kind.lower()}"
            )
            raise ConfigError(msg)
        schema: str | None = topic.schema
        return schema


class _Topic(DataSource):
    """The data source that Spark creates; a subclass sets the topic."""

    source: DataHubSource
    first_offsets: Offsets
    last_offsets: Offsets

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return MESSAGE_DDL

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        del schema
        return _Reader(self.source, self.first_offsets, self.last_offsets)


class _Chain(InputPartition):
    """Stretches that one task reads, one after another."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        super().__init__(stretches)
        self.stretches = tuple(stretches)


class _Reader(DataSourceStreamReader):
    """Plans batches on the driver, and reads their parts in tasks."""

    def __init__(
        self, source: DataHubSource, first_offsets: Offsets, last_offsets: Offsets
    ) -> None:
        self._source = source
        self._first_offsets = first_offsets
        self._last_offsets = last_offsets
        self._service: Sdk | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_service": None}

    @property
    def _client(self) -> Sdk:
        if self._service is None:
            self._service = Sdk(self._source)
        return self._service

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return dict(self._first_offsets)

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        topic, service = self._source.topic, self._client
        retry = patience(self._source.retry_seconds)
        offsets = retry.call(
            f"topic {topic}", lambda: reader.ends(service, topic, self._last_offsets)
        )
        self._last_offsets = offsets
        return dict(offsets)

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[InputPartition]:
        topic, service = self._source.topic, self._client
        shard_stretches = stretches(topic, _with_int_shards(start), _with_int_shards(end))
        retry = patience(self._source.retry_seconds)
        shards = retry.call(f"topic {topic}", lambda: service.shards(topic))
        return [_Chain(chain) for chain in chains(shard_stretches, shards)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Chain)  # noqa: S101 - from `partitions`
        source, service = self._source, Sdk(self._source)
        retry = patience(source.retry_seconds)
        try:
            remote_topic = retry.call(f"topic {source.topic}", lambda: service.topic(source.topic))
        except ServiceError as error:
            raise DeliveryError(str(error)) from None
        if remote_topic is None:
            raise DeliveryError(f"topic {source.topic} does not exist any more")
        for stretch in partition.stretches:
            yield from message_batches(
                messages(service, retry, source.topic, stretch, remote_topic.schema)
            )

    def commit(self, end: Mapping[str, Any]) -> None:
        """Do nothing: the checkpoint stores the offsets."""

    def stop(self) -> None:
        """Do nothing."""


def _with_int_shards(offsets: Mapping[str, Mapping[Any, int]]) -> Offsets:
    """Return offsets with shards as numbers, which are text in JSON."""
    return {
        topic: {int(shard): end for shard, end in shard_offsets.items()}
        for topic, shard_offsets in offsets.items()
    }

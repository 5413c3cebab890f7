# SPDX-License-Identifier: Apache-2.0
"""A topic of DataHub as a stream, by Spark's interface for data sources in Python (Spark 4).

The driver asks where the shards end, tasks read what lies between two offsets, and Spark's
checkpoint holds these. Shards that were split or merged are read by the task that reads what came
of them, before it. The client is made where it is used: neither the keys nor a connection are in
an option that Spark would show.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from changelane.conversion.partition import DeliveryError
from changelane.datahub import reader
from changelane.datahub.reader import Offsets, Stretch, chains, messages, stretches
from changelane.datahub.sdk import Sdk, patience
from changelane.datahub.service import ServiceError
from changelane.errors import ConfigError
from changelane.message import Message
from changelane.pipeline.config import Pipeline
from changelane.pipeline.datahub_source import DataHubSource
from changelane.pipeline.kafka import Lag, Span
from changelane.spark.rows.decode import MESSAGE, decode
from changelane.spark.sources.checkpoint import Checkpoint
from changelane.spark.sources.decode_options import reading_of
from changelane.spark.state.offset_log import Began, Held, Land

NAME: Final = "changelane_datahub"
_SCHEMA: Final = ", ".join(f"`{name}` {kind}" for name, kind in MESSAGE.items())
_ARROW: Final = pa.schema(
    [
        ("value", pa.binary()),
        ("key", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
_BATCH_BYTES: Final = 8 * 1024 * 1024
_START_S: Final = 30.0
_WAY_OUT: Final = (
    "to go on without them, once it is clear why: move the checkpoint {checkpoint} away and run "
    "again, which takes what the topic still has; rows that tables with keys hold stay right"
)


class DataHubInput:
    """A topic as what a pipeline reads.

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
        """Look whether the topic is there, before anything is written.

        Raises:
            ConfigError: The topic is not there, or is of the other kind.
            DeliveryError: The service does not answer, or refuses.
        """
        self._schema()

    def stream(self) -> DataFrame:
        """Return the records as a stream of messages.

        Raises:
            ConfigError: The topic is not there, or is of the other kind.
            DeliveryError: The service does not answer, or refuses.
        """
        self._schema()
        source, topic = self._source, self._source.topic

        def starts() -> Offsets:
            return reader.starts(self._service, topic, source.starting)

        if self._checkpoint.is_known:
            known = self._checkpoint.position()
        else:
            known = self._checkpoint.begin(self._asked("its shards", starts))
        # else a run that ends a killed one ends there, too, and leaves what came since
        self._spark.conf.set("spark.sql.streaming.triggerAvailableNowWrapper.enabled", "true")
        told = {"source": source, "begins": self._checkpoint.offsets(-1), "known": known}
        self._spark.dataSource.register(type("Told", (_Topic,), told))
        found: DataFrame = self._spark.readStream.format(NAME).load()
        return found

    def events(self, batch: DataFrame, pipeline: Pipeline) -> DataFrame:
        """Return the event rows of messages."""
        schema = self._schema()
        told = {} if schema is None else {"topic_schema": schema}
        return decode(
            batch,
            self._source.format,
            options=told | self._source.format_options,
            **reading_of(pipeline),
        )

    def fresh(self, batch: DataFrame, query: str) -> DataFrame:
        """Return a batch: offsets begin where they ended, so that nothing of it was applied."""
        del query
        return batch

    def held(self, number: int, batch: Any = None) -> Held:
        """Return which part of the topic a batch takes."""
        del batch
        ends, starts = self._checkpoint.offsets(number), self._checkpoint.offsets(number - 1)
        topic = self._source.topic
        return Held(span=Span({topic: ends.get(topic, {})}, {topic: starts.get(topic, {})}))

    def details(self, held: Held) -> dict[str, object]:
        """Return what the commits of a batch say of its source."""
        ends = {} if held.span is None else held.span.ends
        return {"source": self._source.told, "offsets": ends}

    def taken(self, held: Held) -> int | None:
        """Return how many records a batch takes, by their numbers."""
        return None if held.span is None else held.span.count

    def lag(self, held: Held) -> Lag | None:
        """Return how many records each shard holds after a batch."""
        if held.span is None:
            return None
        topic, span = self._source.topic, held.span
        known = self._checkpoint.position()
        now = self._asked("its shards", lambda: reader.ends(self._service, topic, known))
        read = span.ends.get(topic, {})
        return {topic: {n: max(0, end - read.get(n, 0)) for n, end in now[topic].items()}}

    def check(self, began: list[Began]) -> None:
        """Refuse to go on from a checkpoint whose records are lost.

        Raises:
            ConfigError: Records behind its offsets are gone.
        """
        del began
        topic, position = self._source.topic, self._checkpoint.position()
        self._schema()
        try:
            self._asked("its shards", lambda: reader.check(self._service, topic, position))
        except reader.LostError as error:
            way_out = _WAY_OUT.format(checkpoint=self._checkpoint.path)
            raise ConfigError(f"{error}: {way_out}") from None

    def resume(self, began: list[Began], land: Land, *, skip_lost: bool) -> Held | None:
        """Refuse to go on from what the tables hold.

        Raises:
            ConfigError: Always.
        """
        del began, land, skip_lost
        msg = (
            "--resume-from-tables is not there for a datahub source: run without it, which begins "
            "as source.starting says; rows that tables with keys hold stay right"
        )
        raise ConfigError(msg)

    def _asked(self, what: str, ask: Any) -> Any:
        return self._patience.call(f"topic {self._source.topic}: {what}", ask)

    def _schema(self) -> str | None:
        """Return the schema of the topic; none of a BLOB topic.

        Raises:
            ConfigError: The topic is not there, or is of the other kind.
        """
        source = self._source
        topic = self._asked("what it is", lambda: self._service.topic(source.topic))
        if topic is None:
            raise ConfigError(f"project {source.project} has no topic {source.topic}")
        if topic.kind != source.kind:
            msg = f"topic {source.topic} is a {topic.kind} topic, and source.format {source.format}"
            raise ConfigError(msg)
        schema: str | None = topic.schema
        return schema


class _Topic(DataSource):
    """What Spark makes of a registered source; a subclass says which topic it is."""

    source: DataHubSource
    begins: Offsets
    known: Offsets

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return _SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        del schema
        return _Reader(self.source, self.begins, self.known)


class _Chain(InputPartition):
    """Stretches that one task reads, one after the other."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        super().__init__(stretches)
        self.stretches = tuple(stretches)


class _Reader(DataSourceStreamReader):
    """Plans batches on the driver, and reads their parts in tasks."""

    def __init__(self, source: DataHubSource, begins: Offsets, known: Offsets) -> None:
        self._source = source
        self._begins = begins
        self._known = known
        self._service: Sdk | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_service": None}

    @property
    def _asks(self) -> Sdk:
        if self._service is None:
            self._service = Sdk(self._source)
        return self._service

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return dict(self._begins)

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        topic, service = self._source.topic, self._asks
        wait = patience(self._source.retry_seconds)
        told = wait.call(f"topic {topic}", lambda: reader.ends(service, topic, self._known))
        self._known = told
        return dict(told)

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[InputPartition]:
        topic, service = self._source.topic, self._asks
        found = stretches(topic, _numbered(start), _numbered(end))
        wait = patience(self._source.retry_seconds)
        shards = wait.call(f"topic {topic}", lambda: service.shards(topic))
        return [_Chain(one) for one in chains(found, shards)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Chain)  # noqa: S101 - Spark hands on what `partitions` made
        source, service = self._source, Sdk(self._source)
        wait = patience(source.retry_seconds)
        try:
            told = wait.call(f"topic {source.topic}", lambda: service.topic(source.topic))
        except ServiceError as error:
            raise DeliveryError(str(error)) from None
        if told is None:
            raise DeliveryError(f"topic {source.topic} is gone")
        for stretch in partition.stretches:
            yield from _batches(messages(service, wait, source.topic, stretch, told.schema))

    def commit(self, end: Mapping[str, Any]) -> None:
        """Do nothing: the checkpoint knows."""

    def stop(self) -> None:
        """Do nothing."""


def _numbered(offsets: Mapping[str, Mapping[Any, int]]) -> Offsets:
    """Return offsets with shards as numbers, as JSON cannot tell them."""
    return {topic: {int(n): end for n, end in told.items()} for topic, told in offsets.items()}


def _batches(found: Iterator[Message]) -> Iterator[pa.RecordBatch]:
    rows: list[Message] = []
    size = 0
    for one in found:
        rows.append(one)
        size += len(one.value or b"")
        if size >= _BATCH_BYTES or len(rows) >= reader.MOST_RECORDS:
            yield _batch(rows)
            rows, size = [], 0
    if rows:
        yield _batch(rows)


def _batch(rows: Sequence[Message]) -> pa.RecordBatch:
    columns: list[list[Any]] = [
        [one.value for one in rows],
        [one.key for one in rows],
        [[{"key": key, "value": value} for key, value in one.headers] for one in rows],
        [one.topic for one in rows],
        [one.partition for one in rows],
        [one.offset for one in rows],
    ]
    arrays = [pa.array(one, type=kind) for one, kind in zip(columns, _ARROW.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)

# SPDX-License-Identifier: Apache-2.0
"""The ``kafka`` source: topics as a stream, and the position of a pipeline in them.

Spark's connector reads the messages, and its checkpoint stores the offsets. The offset log also
stores the identity of each topic. A topic that was deleted and created again may have the same
offsets as before, and the connector would continue in the middle of it.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import msgspec
from pyspark.sql import DataFrame, SparkSession

from changelane.errors import ConfigError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.database_source import DatabaseSource
from changelane.pipeline.kafka_offsets import (
    Lag,
    OffsetRange,
    Offsets,
    merged_offsets,
    partitions,
)
from changelane.pipeline.kafka_source import KafkaSource, client_options
from changelane.spark.rows.decode import decode
from changelane.spark.sources.checkpoint import Checkpoint
from changelane.spark.sources.decode_options import decode_options_of
from changelane.spark.sources.kafka_admin import Topic, TopicAdmin, anchored_pattern, topic_admin
from changelane.spark.sources.unread_ranges import starts_of, unread_ranges
from changelane.spark.state.offset_log import ApplyBatch, BatchOffsets, OffsetLogEntry

READ_COMMITTED: Final = {"kafka.isolation.level": "read_committed"}
"""Messages of aborted transactions are never read."""
_MOST_POLLED: Final = 4_000  # messages of a partition
_MOST_KEPT: Final = 32_000  # messages of the last polls of all partitions
_USUALLY_POLLED: Final = 500  # Kafka's default
_EARLIEST: Final = -2
_MAX_SHOWN: Final = 5

_TABLES_HINT: Final = (
    "find the cause; to continue without them, move the checkpoint {checkpoint} away and run with "
    "--recover-checkpoint --allow-data-loss, which reads the messages that the source still has"
)
_TOPICS_HINT: Final = (
    "find the cause; to continue without them, move the checkpoint {checkpoint} away and set "
    "source.starting_offsets; the last offsets that were sent are in {checkpoint}/offsets"
)


READ_BEFORE: Final = (
    "the source selects {topics} again, which an earlier checkpoint read: move the checkpoint "
    "{path} away and run with --recover-checkpoint, which continues after the messages that it read"
)


def data_loss_hint(pipeline: Pipeline) -> str:
    """Return the advice of an error about lost messages."""
    text = _TOPICS_HINT if pipeline.sink.is_topics else _TABLES_HINT
    return text.format(checkpoint=pipeline.checkpoint)


def open_input(
    spark: SparkSession, pipeline: Pipeline, checkpoint: Checkpoint, notify: Callable[[str], None]
) -> "KafkaInput":
    """Return the input of a pipeline."""
    del notify
    # the options that name this module
    source = cast("KafkaSource | DatabaseSource", pipeline.source).topic_source
    is_ordered_by_offsets = not (pipeline.positions or source.uses_event_ids)
    return KafkaInput(
        spark,
        source,
        checkpoint,
        data_loss_hint(pipeline),
        offset_epoch=pipeline.options.epoch if is_ordered_by_offsets else None,
    )


def poll_options(partition_count: int) -> dict[str, str]:
    """Return the options of polls that are larger than Kafka's if there are few partitions.

    Spark's reader seeks after each poll to learn the partition's first and last offset, so that the
    consumer drops what it has fetched ahead and asks the broker twice more. Spark keeps the
    messages of the last poll of each partition for some minutes. They may be compressed in what is
    fetched, so that only their number limits the memory.
    """
    count = min(_MOST_POLLED, _MOST_KEPT // max(1, partition_count))
    if count <= _USUALLY_POLLED:
        return {}
    return {
        "kafka.max.poll.records": str(count),
        "kafka.max.partition.fetch.bytes": str(2 << 20),
    }


class KafkaInput:
    """Topics as the input of a pipeline.

    Args:
        spark: The session.
        source: The topics.
        checkpoint: Spark's checkpoint.
        data_loss_hint: The advice of an error about lost messages.
        offset_epoch: The option ``epoch`` if offsets order the events; ``None`` = positions do.
    """

    def __init__(
        self,
        spark: SparkSession,
        source: KafkaSource,
        checkpoint: Checkpoint,
        data_loss_hint: str,
        *,
        offset_epoch: int | None = None,
    ) -> None:
        self._spark = spark
        self._source = source
        self._checkpoint = checkpoint
        self._data_loss_hint = data_loss_hint
        self._offset_epoch = offset_epoch
        self._options = {**READ_COMMITTED, **source.spark_options}
        self._starts: Offsets | None = None
        self._ids: dict[str, str] = {}

    # -- messages

    def verify(self) -> None:
        """Check that the topics exist, before anything is written.

        Raises:
            ConfigError: A topic does not exist, or the broker does not answer.
        """
        with self._admin() as broker:
            self._described_topics(broker)

    def stream(self) -> DataFrame:
        """Return the messages as a stream.

        Raises:
            ConfigError: A topic does not exist, or the broker does not answer.
        """
        with self._admin() as broker:
            topics = self._described_topics(broker)
        source = self._source
        configured_starts = source.starts if self._starts is None else self._starts
        if isinstance(configured_starts, str):
            starts = configured_starts
        else:
            check_starts(configured_starts, topics)
            starts = _offsets_json(
                {
                    name: {
                        partition: configured_starts.get(name, {}).get(partition, _EARLIEST)
                        for partition in topic.partitions
                    }
                    for name, topic in topics.items()
                }
            )
        count = sum(len(topic.partitions) for topic in topics.values())
        reader = self._reader(self._spark.readStream, count).option("startingOffsets", starts)
        if source.topic_pattern is None:
            reader = reader.option("subscribe", ",".join(source.names))
        else:
            reader = reader.option("subscribePattern", anchored_pattern(source.topic_pattern))
        if source.max_offsets_per_trigger is not None:
            reader = reader.option("maxOffsetsPerTrigger", source.max_offsets_per_trigger)
        stream: DataFrame = reader.load()
        return stream

    def _reader(self, reader: Any, partition_count: int) -> Any:
        return (
            reader.format("kafka")
            .option("kafka.bootstrap.servers", self._source.bootstrap_servers)
            .option("includeHeaders", "true")
            .option("failOnDataLoss", "true")
            .options(**{**poll_options(partition_count), **self._options})
        )

    def _read(self, offset_range: OffsetRange) -> DataFrame:
        """Return the messages of an offset range in the past."""
        parts = [
            (topic, number, offset_range.starts.get(topic, {}).get(number, 0), end)
            for topic, number, end in partitions(offset_range.ends)
        ]
        parts = [part for part in parts if part[2] < part[3]]
        assigned: dict[str, list[int]] = {}
        starts: Offsets = {}
        ends: Offsets = {}
        for topic, number, start, end in parts:
            assigned.setdefault(topic, []).append(number)
            starts.setdefault(topic, {})[number] = start
            ends.setdefault(topic, {})[number] = end
        messages: DataFrame = (
            self._reader(self._spark.read, len(parts))
            .option("assign", msgspec.json.encode(assigned).decode())
            .option("startingOffsets", _offsets_json(starts))
            .option("endingOffsets", _offsets_json(ends))
            .load()
        )
        return messages

    def events(self, batch: DataFrame, pipeline: Pipeline, *, is_small: bool) -> DataFrame:
        """Return the event rows of messages."""
        return decode(
            batch.coalesce(1) if is_small else batch,
            self._source.format,
            options=self._source.format_options,
            **decode_options_of(pipeline),
        )

    def messages(self, batch: DataFrame) -> DataFrame:
        """Return a batch unchanged: a task reads a partition in its order."""
        return batch

    def without_applied(self, batch: DataFrame, query: str) -> DataFrame:
        """Return a batch unchanged: it begins at the offsets where the last one ended."""
        del query
        return batch

    # -- offsets

    def offsets_of(self, number: int, batch: Any = None) -> BatchOffsets:
        """Return the offset range of a batch.

        Raises:
            ConfigError: A topic was deleted and created again meanwhile.
        """
        del batch
        ends, starts = self._checkpoint.offsets(number), self._checkpoint.offsets(number - 1)
        with self._admin() as broker:
            topics = broker.describe(ends)
        self._check_identities(topics)
        self._ids.update({name: topic.id for name, topic in topics.items()})
        return BatchOffsets(span=OffsetRange(ends, starts, dict(self._ids)))

    def commit_details(self, batch_offsets: BatchOffsets) -> dict[str, object]:
        """Return the source and its offsets for the metadata of a batch's commits."""
        ends = {} if batch_offsets.span is None else batch_offsets.span.ends
        return {"source": self._source.label, "offsets": ends}

    def message_count(self, batch_offsets: BatchOffsets) -> int | None:
        """Return the number of messages of a batch, by their offsets."""
        return None if batch_offsets.span is None else batch_offsets.span.count

    def lag(self, batch_offsets: BatchOffsets) -> Lag | None:
        """Return the number of messages in each partition after a batch."""
        if batch_offsets.span is None:
            return None
        with self._admin() as broker:
            latest = broker.latest(broker.describe(batch_offsets.span.ends))
        ends = batch_offsets.span.ends
        return {
            topic: {
                partition: max(0, newest - ends.get(topic, {}).get(partition, 0))
                for partition, newest in newest_offsets.items()
            }
            for topic, newest_offsets in latest.items()
        }

    def check(self, entries: list[OffsetLogEntry]) -> None:
        """Check that the topics still have the messages after the checkpoint.

        Args:
            entries: The entries of the offset log.

        Raises:
            ConfigError: Messages after its offsets are gone, or a topic was created again.
        """
        position = self._checkpoint.position()
        query = self._checkpoint.query()
        spans = {entry.query == query: entry.newest.span for entry in entries}
        resumed = OffsetRange({}) if (span := spans.get(False)) is None else span
        selected_ends = self._selected(resumed.ends)
        if not position and resumed.ends:
            # a run recovered a lost checkpoint, and ended before the first batch of this one
            position = self._starts = selected_ends
            spans[True] = resumed
        if names := sorted(selected_ends.keys() - position.keys()):
            raise ConfigError(READ_BEFORE.format(topics=_joined(names), path=self._checkpoint.path))
        span = spans.get(True)
        offset_range = OffsetRange(position, {}, {} if span is None else span.ids)
        self._ids.update(offset_range.ids)
        if names := sorted(position.keys() - self._selected(position).keys()):
            option = "topics" if self._source.topic_pattern is None else "topic_pattern"
            msg = f"source.{option} does not include topics of the checkpoint: {_joined(names)}"
            raise ConfigError(f"{msg}: {self._data_loss_hint}")
        if losses := self._losses(offset_range) or self._losses_of_new_partitions(position):
            raise ConfigError(f"{_joined(losses)}: {self._data_loss_hint}")

    def resume(
        self, entries: list[OffsetLogEntry], apply_batch: ApplyBatch, *, allow_data_loss: bool
    ) -> BatchOffsets | None:
        """Complete the batches of lost checkpoints, and start after them.

        Args:
            entries: The entries of the offset log.
            apply_batch: Applies messages under a query and a batch number.
            allow_data_loss: Whether to continue with the remaining messages where messages are
                gone.

        Returns:
            The end offsets of the topics, which replace *entries* in the log; also of topics that
            the source does not select any more, because it may select them again.

        Raises:
            ConfigError: Messages are gone.
        """
        ranges, unselected_range = unread_ranges(entries, self._selected)
        if not ranges:
            return None
        if losses := [
            loss for _, offset_range in ranges for loss in self._losses(starts_of(offset_range))
        ]:
            if not allow_data_loss:
                msg = f"{_joined(losses)}: add --allow-data-loss to continue without these messages"
                raise ConfigError(msg)
            self.check_restart(entries)
            ranges = [
                (entry, self._available_range(offset_range)) for entry, offset_range in ranges
            ]
        for entry, offset_range in ranges:
            if any(
                offset_range.starts.get(name, {}).get(partition, 0) < end
                for name, partition, end in partitions(offset_range.ends)
            ):
                apply_batch(
                    self._read(offset_range),
                    entry.query,
                    entry.batch,
                    BatchOffsets(span=offset_range),
                )
        ends = merged_offsets(offset_range.ends for _, offset_range in ranges)
        self._starts = ends
        with self._admin() as broker:
            self._ids = {name: topic.id for name, topic in broker.describe(ends).items()}
        all_ends = {**ends, **unselected_range.ends}
        ids = {**self._ids, **unselected_range.ids}
        return BatchOffsets(span=OffsetRange(all_ends, all_ends, ids))

    def check_restart(self, entries: list[OffsetLogEntry]) -> None:
        """Check that events of partitions that begin again are newer than the rows of the tables.

        Args:
            entries: The entries of the offset log.

        Raises:
            ConfigError: Offsets order the events, and the epoch did not rise.
        """
        for entry, offset_range in unread_ranges(entries, self._selected).selected:
            if self._offset_epoch is None or self._offset_epoch > entry.newest.epoch:
                continue
            available_ends = self._available_range(offset_range).ends
            restarted_topics = {
                topic
                for topic, number, _ in partitions(offset_range.ends)
                if number not in available_ends.get(topic, {})
            }
            if restarted_topics:
                msg = (
                    f"offsets order the events of {_joined(sorted(restarted_topics))}, and begin "
                    "again: tables would ignore events with lower offsets as old; set "
                    f"options.epoch to {entry.newest.epoch + 1}"
                )
                raise ConfigError(msg)

    # -- topics at the broker

    def _admin(self) -> Any:
        return topic_admin(
            self._spark, self._source.bootstrap_servers, client_options(self._source.spark_options)
        )

    def _described_topics(self, broker: TopicAdmin) -> dict[str, Topic]:
        if self._source.topic_pattern is not None:
            return broker.describe(broker.matching_names(self._source.topic_pattern))
        topics = broker.describe(self._source.names)
        if missing := [name for name in self._source.names if name not in topics]:
            msg = f"there is no topic {', '.join(missing)} at {self._source.bootstrap_servers}"
            raise ConfigError(msg)
        return topics

    def _check_identities(self, topics: Mapping[str, Topic]) -> None:
        recreated_topics = [
            name for name, topic in topics.items() if _is_recreated(topic, self._ids.get(name))
        ]
        if recreated_topics:
            losses = [
                f"topic {name} was deleted and created again" for name in sorted(recreated_topics)
            ]
            raise ConfigError(f"{_joined(losses)}: {self._data_loss_hint}")

    def _selected(self, offsets: Offsets) -> Offsets:
        """Return offsets of the topics that the options select, or that do not exist."""
        if self._source.topic_pattern is None or not offsets:
            return {topic: offsets[topic] for topic in offsets if topic in self._source.names}
        with self._admin() as broker:
            existing_names = set(broker.names())
            matching_names = set(broker.matching_names(self._source.topic_pattern))
        unmatched_names = existing_names - matching_names
        return {topic: offsets[topic] for topic in offsets if topic not in unmatched_names}

    def _losses(self, offset_range: OffsetRange) -> list[str]:
        """Return texts about messages from given offsets on that the broker lost."""
        with self._admin() as broker:
            topics = broker.describe(offset_range.ends)
            earliest = broker.earliest(topics)
            latest = broker.latest(topics)
        losses: list[str] = []
        for topic, offsets in sorted(offset_range.ends.items()):
            if topic not in topics:
                losses.append(f"topic {topic} is gone")
                continue
            if _is_recreated(topics[topic], offset_range.ids.get(topic)):
                losses.append(f"topic {topic} was deleted and created again")
                continue
            for number, offset in sorted(offsets.items()):
                first = earliest[topic].get(number)
                if first is None:
                    losses.append(f"partition {number} of topic {topic} is gone")
                elif offset < first:
                    losses.append(
                        f"{first - offset} offsets of {topic}-{number} that were not read yet are "
                        f"gone from the broker ({offset} to {first - 1})"
                    )
                elif offset > latest[topic][number]:
                    losses.append(
                        f"{topic}-{number} ends at {latest[topic][number]}, before the offset "
                        f"{offset} of the checkpoint: it was created again or cut"
                    )
        return losses

    def _losses_of_new_partitions(self, position: Offsets) -> list[str]:
        """Return texts about partitions without an offset whose first messages the broker lost.

        Spark requires that a new partition begins with offset 0.
        """
        if not position:
            return []
        with self._admin() as broker:
            earliest = broker.earliest(self._described_topics(broker))
        return [
            f"the checkpoint has no offset of {topic}-{number}, which begins with offset {first}"
            for topic, number, first in partitions(earliest)
            if first > 0 and number not in position.get(topic, {})
        ]

    def _available_range(self, offset_range: OffsetRange) -> OffsetRange:
        """Return an offset range without the offsets that the broker has lost."""
        with self._admin() as broker:
            topics = broker.describe(offset_range.ends)
            earliest = broker.earliest(topics)
            latest = broker.latest(topics)
        starts: Offsets = {}
        ends: Offsets = {}
        for topic, number, end in partitions(offset_range.ends):
            first = earliest.get(topic, {}).get(number)
            is_other = topic in topics and _is_recreated(topics[topic], offset_range.ids.get(topic))
            if first is None or is_other or end > latest[topic][number]:
                continue
            start = offset_range.starts.get(topic, {}).get(number, 0)
            ends.setdefault(topic, {})[number] = max(end, first)
            starts.setdefault(topic, {})[number] = max(start, first)
        return OffsetRange(ends, starts, offset_range.ids)


def check_starts(starts: Offsets, topics: Mapping[str, Topic]) -> None:
    """Reject start offsets of a partition that does not exist.

    Raises:
        ConfigError: There is such a partition.
    """
    for topic, number, _ in partitions(starts):
        if topic not in topics or number not in topics[topic].partitions:
            msg = f"source.starting_offsets names {topic}-{number}, which does not exist"
            raise ConfigError(msg)


def _is_recreated(topic: Topic, identity: str | None) -> bool:
    return bool(topic.id and identity) and topic.id != identity


def _offsets_json(offsets: Offsets) -> str:
    return msgspec.json.encode(offsets).decode()


def _joined(texts: list[str]) -> str:
    suffix = f"; and {len(texts) - _MAX_SHOWN} more" if len(texts) > _MAX_SHOWN else ""
    return "; ".join(texts[:_MAX_SHOWN]) + suffix


_DATA_LOSS: Final = re.compile(r"KAFKA_DATA_LOSS|data may have been lost|OffsetOutOfRange")


def is_data_loss(error: Exception) -> bool:
    """Return whether the connector stopped because messages are gone."""
    return _DATA_LOSS.search(str(error)) is not None

# SPDX-License-Identifier: Apache-2.0
"""The ``kafka`` source: topics as a stream, and where in them a pipeline is.

Spark's connector reads; its checkpoint holds the offsets. Beside them lies a log (``resume``) with
the identity of each topic, because a topic that was deleted and created again has offsets that look
like the old ones, and the connector would go on in the middle of it.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession

from changelane.errors import ConfigError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.datahub_sink import DataHubSink
from changelane.pipeline.kafka import (
    KafkaSink,
    KafkaSource,
    Lag,
    Offsets,
    Span,
    client_options,
    partitions,
)
from changelane.spark.rows.decode import decode
from changelane.spark.sources.checkpoint import Checkpoint
from changelane.spark.sources.decode_options import reading_of
from changelane.spark.sources.kafka_admin import Topic, Topics, anchored, topics
from changelane.spark.state.offset_log import Began, Held, Land

COMMITTED: Final = {"kafka.isolation.level": "read_committed"}
"""What an aborted transaction wrote never happened."""
_EARLIEST: Final = -2
_SHOWN: Final = 5

_TO_TABLES: Final = (
    "to go on without them, once it is clear why: move the checkpoint {checkpoint} away and run "
    "with --resume-from-tables --skip-lost, which goes on with what the source still has"
)
_TO_TOPICS: Final = (
    "to go on without them, once it is clear why: move the checkpoint {checkpoint} away and give "
    "source.starting_offsets; the last offsets that were sent are in {checkpoint}/offsets"
)


def way_out(pipeline: Pipeline) -> str:
    """Return what an error about lost messages tells to do."""
    text = _TO_TOPICS if isinstance(pipeline.sink, KafkaSink | DataHubSink) else _TO_TABLES
    return text.format(checkpoint=pipeline.checkpoint)


class KafkaInput:
    """Topics as what a pipeline reads.

    Args:
        spark: The session.
        source: The topics.
        checkpoint: Spark's checkpoint.
        way_out: What an error about lost messages tells to do.
    """

    def __init__(
        self,
        spark: SparkSession,
        source: KafkaSource,
        checkpoint: Checkpoint,
        way_out: str,
    ) -> None:
        self._spark = spark
        self._source = source
        self._checkpoint = checkpoint
        self._way_out = way_out
        self._options = {**COMMITTED, **source.spark}
        self._starts: Offsets | None = None
        self._ids: dict[str, str] = {}

    # -- what is read

    def verify(self) -> None:
        """Look whether the topics are there, before anything is written.

        Raises:
            ConfigError: A topic is not there, or the broker does not answer.
        """
        with self._ask() as broker:
            self._facts(broker)

    def stream(self) -> DataFrame:
        """Return the messages as a stream.

        Raises:
            ConfigError: A topic is not there, or the broker does not answer.
        """
        with self._ask() as broker:
            facts = self._facts(broker)
        source = self._source
        told = source.starts if self._starts is None else self._starts
        if isinstance(told, str):
            starts = told
        else:
            check_starts(told, facts)
            starts = _json(
                {
                    name: {n: told.get(name, {}).get(n, _EARLIEST) for n in topic.partitions}
                    for name, topic in facts.items()
                }
            )
        reader = self._reader(self._spark.readStream).option("startingOffsets", starts)
        if source.pattern is None:
            reader = reader.option("subscribe", ",".join(source.names))
        else:
            reader = reader.option("subscribePattern", anchored(source.pattern))
        if source.max_offsets_per_trigger is not None:
            reader = reader.option("maxOffsetsPerTrigger", source.max_offsets_per_trigger)
        found: DataFrame = reader.load()
        return found

    def _reader(self, reader: Any) -> Any:
        return (
            reader.format("kafka")
            .option("kafka.bootstrap.servers", self._source.servers)
            .option("includeHeaders", "true")
            .option("failOnDataLoss", "true")
            .options(**self._options)
        )

    def _read(self, span: Span) -> DataFrame:
        """Return the messages of a part of the topics that is in the past."""
        parts = [
            (topic, number, span.starts.get(topic, {}).get(number, 0), end)
            for topic, number, end in partitions(span.ends)
        ]
        parts = [part for part in parts if part[2] < part[3]]
        assigned: dict[str, list[int]] = {}
        starts: Offsets = {}
        ends: Offsets = {}
        for topic, number, start, end in parts:
            assigned.setdefault(topic, []).append(number)
            starts.setdefault(topic, {})[number] = start
            ends.setdefault(topic, {})[number] = end
        found: DataFrame = (
            self._reader(self._spark.read)
            .option("assign", msgspec.json.encode(assigned).decode())
            .option("startingOffsets", _json(starts))
            .option("endingOffsets", _json(ends))
            .load()
        )
        return found

    def events(self, batch: DataFrame, pipeline: Pipeline) -> DataFrame:
        """Return the event rows of messages."""
        return decode(
            batch,
            self._source.format,
            options=self._source.format_options,
            **reading_of(pipeline),
        )

    def fresh(self, batch: DataFrame, query: str) -> DataFrame:
        """Return a batch: offsets begin where they ended, so that nothing of it was applied."""
        del query
        return batch

    # -- where it is

    def held(self, number: int, batch: Any = None) -> Held:
        """Return which part of the topics a batch takes.

        Raises:
            ConfigError: A topic was deleted and created again meanwhile.
        """
        del batch
        ends, starts = self._checkpoint.offsets(number), self._checkpoint.offsets(number - 1)
        with self._ask() as broker:
            facts = broker.facts(ends)
        self._same(facts)
        self._ids.update({name: topic.id for name, topic in facts.items()})
        return Held(span=Span(ends, starts, dict(self._ids)))

    def details(self, held: Held) -> dict[str, object]:
        """Return what the commits of a batch say of its source."""
        ends = {} if held.span is None else held.span.ends
        return {"source": self._source.told, "offsets": ends}

    def taken(self, held: Held) -> int | None:
        """Return how many messages a batch takes, by their offsets."""
        return None if held.span is None else held.span.count

    def lag(self, held: Held) -> Lag | None:
        """Return how many messages each partition holds after a batch."""
        if held.span is None:
            return None
        with self._ask() as broker:
            latest = broker.latest(broker.facts(held.span.ends))
        ends = held.span.ends
        return {
            topic: {n: max(0, newest - ends.get(topic, {}).get(n, 0)) for n, newest in told.items()}
            for topic, told in latest.items()
        }

    def check(self, began: list[Began]) -> None:
        """Refuse to go on from a checkpoint whose messages are lost.

        Args:
            began: What the log holds of each checkpoint.

        Raises:
            ConfigError: Messages behind its offsets are gone, or a topic is another one now.
        """
        position = self._checkpoint.position()
        query = self._checkpoint.query()
        mine = next((one.newest for one in began if one.query == query), Held())
        span = Span(position, {}, {} if mine.span is None else mine.span.ids)
        self._ids.update(span.ids)
        if others := sorted(self._unmatched().intersection(position)):
            msg = f"the checkpoint has topics that source.pattern does not match: {_all(others)}"
            raise ConfigError(f"{msg}: {self._way_out}")
        if lost := self._lost(span):
            raise ConfigError(f"{_all(lost)}: {self._way_out}")

    def resume(self, began: list[Began], land: Land, *, skip_lost: bool) -> Held | None:
        """Bring the batches of lost checkpoints to their end, and begin behind them.

        Args:
            began: What the log holds of each checkpoint.
            land: Applies messages under a query and a batch.
            skip_lost: Whether to go on with what the source still has where messages are gone.

        Returns:
            Where the topics stand then, to be noted in the place of *began*.

        Raises:
            ConfigError: Messages are gone.
        """
        spans = [(one, self._wanted(one)) for one in began]
        told = [(one, span) for one, span in spans if span is not None]
        if not told:
            return None
        if lost := [words for _, span in told for words in self._lost(_from_start(span))]:
            if not skip_lost:
                msg = f"{_all(lost)}: run with --skip-lost, too, to go on with what is there"
                raise ConfigError(msg)
            told = [(one, self._left(span)) for one, span in told]
        ends: Offsets = {}
        for one, span in told:
            if any(span.starts.get(t, {}).get(n, 0) < end for t, n, end in partitions(span.ends)):
                land(self._read(span), one.query, one.batch, Held(span=span))
            for topic, number, end in partitions(span.ends):
                mine = ends.setdefault(topic, {})
                mine[number] = max(mine.get(number, 0), end)
        self._starts = ends
        with self._ask() as broker:
            self._ids = {name: topic.id for name, topic in broker.facts(ends).items()}
        return Held(span=Span(ends, ends, self._ids))

    # -- what the broker says

    def _ask(self) -> Any:
        return topics(self._spark, self._source.servers, client_options(self._source.spark))

    def _facts(self, broker: Topics) -> dict[str, Topic]:
        if self._source.pattern is not None:
            return broker.facts(broker.matching(self._source.pattern))
        facts = broker.facts(self._source.names)
        if missing := [name for name in self._source.names if name not in facts]:
            msg = f"there is no topic {', '.join(missing)} at {self._source.servers}"
            raise ConfigError(msg)
        return facts

    def _same(self, facts: Mapping[str, Topic]) -> None:
        anew = [name for name, topic in facts.items() if _is_other(topic, self._ids.get(name))]
        if anew:
            told = [f"topic {name} was deleted and created again" for name in sorted(anew)]
            raise ConfigError(f"{_all(told)}: {self._way_out}")

    def _unmatched(self) -> set[str]:
        """Return the topics that are there and that the pattern does not match."""
        if self._source.pattern is None:
            return set()
        with self._ask() as broker:
            return set(broker.names()) - set(broker.matching(self._source.pattern))

    def _wanted(self, began: Began) -> Span | None:
        """Return what is left to read of a batch, of topics that the pattern still matches.

        Of a batch that came to its end nothing is left.
        """
        span = began.newest.span
        if span is None:
            return None
        if began.is_finished:
            span = Span(span.ends, span.ends, span.ids)
        others = self._unmatched()
        starts, ends = (
            {topic: parts for topic, parts in offsets.items() if topic not in others}
            for offsets in (span.starts, span.ends)
        )
        return Span(ends, starts, span.ids)

    def _lost(self, span: Span) -> list[str]:
        """Return in words what the broker does not have any more from some offsets on."""
        with self._ask() as broker:
            facts = broker.facts(span.ends)
            earliest = broker.earliest(facts)
            latest = broker.latest(facts)
        found: list[str] = []
        for topic, offsets in sorted(span.ends.items()):
            if topic not in facts:
                found.append(f"topic {topic} is gone")
                continue
            if _is_other(facts[topic], span.ids.get(topic)):
                found.append(f"topic {topic} was deleted and created again")
                continue
            for number, offset in sorted(offsets.items()):
                first = earliest[topic].get(number)
                if first is None:
                    found.append(f"partition {number} of topic {topic} is gone")
                elif offset < first:
                    found.append(
                        f"{first - offset} offsets of {topic}-{number} that were not read yet are "
                        f"gone from the broker ({offset} to {first - 1})"
                    )
                elif offset > latest[topic][number]:
                    found.append(
                        f"{topic}-{number} ends at {latest[topic][number]}, before the offset "
                        f"{offset} that was read up to: it was created again or cut"
                    )
        return found

    def _left(self, span: Span) -> Span:
        """Return what the broker still has of a part of the topics, and of what comes behind."""
        with self._ask() as broker:
            facts = broker.facts(span.ends)
            earliest = broker.earliest(facts)
            latest = broker.latest(facts)
        starts: Offsets = {}
        ends: Offsets = {}
        for topic, number, end in partitions(span.ends):
            first = earliest.get(topic, {}).get(number)
            is_other = topic in facts and _is_other(facts[topic], span.ids.get(topic))
            if first is None or is_other or end > latest[topic][number]:
                continue
            start = span.starts.get(topic, {}).get(number, 0)
            ends.setdefault(topic, {})[number] = max(end, first)
            starts.setdefault(topic, {})[number] = max(start, first)
        return Span(ends, starts, span.ids)


def check_starts(told: Offsets, facts: Mapping[str, Topic]) -> None:
    """Refuse offsets to start from in a partition that is not there.

    Raises:
        ConfigError: There is one.
    """
    for topic, number, _ in partitions(told):
        if topic not in facts or number not in facts[topic].partitions:
            msg = f"source.starting_offsets names {topic}-{number}, which is not there"
            raise ConfigError(msg)


def _from_start(span: Span) -> Span:
    """Return a part of topics with its beginnings in the place of its ends."""
    starts = {
        topic: {n: span.starts.get(topic, {}).get(n, 0) for n in offsets}
        for topic, offsets in span.ends.items()
    }
    return Span(starts, starts, span.ids)


def _is_other(topic: Topic, identity: str | None) -> bool:
    return bool(topic.id and identity) and topic.id != identity


def _json(offsets: Offsets) -> str:
    return msgspec.json.encode(offsets).decode()


def _all(words: list[str]) -> str:
    more = f"; and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return "; ".join(words[:_SHOWN]) + more


_DATA_LOSS: Final = re.compile(r"KAFKA_DATA_LOSS|data may have been lost|OffsetOutOfRange")


def is_data_loss(error: Exception) -> bool:
    """Say whether the connector stopped because messages are gone."""
    return _DATA_LOSS.search(str(error)) is not None

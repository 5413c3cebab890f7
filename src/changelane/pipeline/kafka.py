# SPDX-License-Identifier: Apache-2.0
"""The ``kafka`` source and sink: topics as the source and the sink of a pipeline, in its YAML.

::

    source:
      type: kafka
      bootstrap_servers: broker-1:9092,broker-2:9092
      topics: [shop.orders, shop.customers]
      format: debezium-json
      spark_options:
        kafka.security.protocol: SASL_SSL
        kafka.sasl.jaas.config: ${JAAS}
    sink:
      type: kafka
      bootstrap_servers: broker-1:9092
      topic: canal.{database}.{table}
      format: canal-json
      checkpoint: state/
"""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from changelane.errors import ConfigError
from changelane.formats.contract.losses import DEFAULT, LossPolicy

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")

_SOURCE_OPTIONS: Final = {
    "kafka.bootstrap.servers": "give source.bootstrap_servers",
    "subscribe": "give source.topics",
    "subscribepattern": "give source.topic_pattern",
    "assign": "give source.topics",
    "startingoffsets": "give source.starting_offsets",
    "startingtimestamp": "give source.starting_offsets",
    "startingoffsetsbytimestamp": "give source.starting_offsets",
    "maxoffsetspertrigger": "give source.max_offsets_per_trigger",
    "failondataloss": "messages that are lost must never go unnoticed",
    "includeheaders": "headers are always read",
}


def is_topic(name: str) -> bool:
    """Return whether a text can be the name of a topic (Kafka's ``Topic.validate``).

    >>> is_topic("shop.orders"), is_topic("../x"), is_topic("..")
    (True, False, False)
    """
    return _TOPIC.fullmatch(name) is not None and name not in {".", ".."}


class KafkaSource(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="kafka",
    tag_field="type",
    forbid_unknown_fields=True,
):
    """Topics of a Kafka broker.

    Only messages of committed transactions are read, unless *spark* sets
    ``kafka.isolation.level``.

    Attributes:
        bootstrap_servers: Addresses of brokers, ``host:port``, with commas between them.
        topics: Topics by name.
        topic_pattern: Topics by a regular expression of Java instead; new matching topics are
            included.
        format: The messages' format, such as ``debezium-json``.
        format_options: The format's options.
        starting_offsets: The start of a new checkpoint: ``earliest``, ``latest``, or the offset of
            each partition by topic; other partitions begin with their earliest offset.
        max_offsets_per_trigger: The maximum number of messages of a batch.
        order_by_event_id: Whether events without positions are ordered by the header
            ``changelane-event-id`` instead of their own offsets. A sink's ``event_id`` writes this
            header, which identifies the original event: an event that was sent twice counts once.
        spark_options: Further options of Spark's Kafka source and, with ``kafka.`` before them, of
            Kafka's consumer, by their own names: security belongs here. They are passed on
            unchanged.
    """

    bootstrap_servers: str
    format: str
    topics: list[str] | str | None = None
    topic_pattern: str | None = None
    format_options: dict[str, Any] = {}
    starting_offsets: Literal["earliest", "latest"] | dict[str, dict[int | str, int]] = "earliest"
    max_offsets_per_trigger: Annotated[int, msgspec.Meta(ge=1)] | None = None
    order_by_event_id: bool = False
    spark_options: dict[str, str] = {}

    def __post_init__(self) -> None:
        """Refuse a source without topics, and options that changelane sets itself."""
        if (self.topics is None) == (self.topic_pattern is None):
            raise ValueError("a kafka source needs topics or topic_pattern, one of the two")
        if self.topics is not None and not self.names:
            raise ValueError("topics names none")
        if invalid_names := [name for name in self.names if not is_topic(name)]:
            raise ValueError(f"{len(invalid_names)} of the topics can be no topic's name")
        if isinstance(self.starts, dict) and any(
            number < 0 or offset < 0 for _, number, offset in partitions(self.starts)
        ):
            raise ValueError("starting_offsets holds a partition or an offset below 0")
        check_options(self.spark_options, _SOURCE_OPTIONS)

    @property
    def starts(self) -> "str | Offsets":
        """``starting_offsets`` with partitions as numbers, which are text in JSON."""
        starts = self.starting_offsets
        if isinstance(starts, str):
            return starts
        return {
            topic: {int(partition): offset for partition, offset in partition_starts.items()}
            for topic, partition_starts in starts.items()
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.label!r})"  # options may contain secrets

    @property
    def names(self) -> tuple[str, ...]:
        """The topics by name; none with a pattern."""
        return (self.topics,) if isinstance(self.topics, str) else tuple(self.topics or ())

    @property
    def label(self) -> str:
        """The topics for people."""
        return (
            ",".join(self.names) if self.topic_pattern is None else f"pattern {self.topic_pattern}"
        )


def check_options(options: Mapping[str, str], own_options: Mapping[str, str]) -> None:
    """Refuse options that changelane sets itself.

    Raises:
        ValueError: An option is changelane's; the message names it and the alternative.
    """
    for name in options:
        if (instead := own_options.get(name.lower())) is not None:
            raise ValueError(f"spark_options.{name.lower()} is not yours to set: {instead}")


def client_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of Kafka's own clients, without the ``kafka.`` of Spark's names."""
    return {
        name[len("kafka.") :]: value
        for name, value in options.items()
        if name.lower().startswith("kafka.")
    }


_SINK_OPTIONS: Final = {
    "kafka.bootstrap.servers": "give sink.bootstrap_servers",
    "topic": "give sink.topic",
    "includeheaders": "headers are always written",
    "kafka.transactional.id": "Spark's writer has no transactions: use event_id",
}
PLACEHOLDERS: Final = ("topic", "database", "schema", "table")
"""The placeholders in a sink's topic."""
PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")


class KafkaSink(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="kafka",
    tag_field="type",
    forbid_unknown_fields=True,
):
    """Topics of a Kafka broker, which get each message at least once.

    Attributes:
        bootstrap_servers: Addresses of brokers, ``host:port``, with commas between them.
        topic: The topic, which must exist. ``{topic}`` (that of the source), ``{database}``,
            ``{schema}`` and ``{table}`` in it make several. With a profile, leave it out.
        profile: The producer whose topics, keys, headers and partitions the messages get
            (``changelane profiles`` lists them).
        profile_options: The profile's options.
        format: The messages' format, such as ``canal-json``.
        format_options: The format's options.
        on_loss: What happens to an event that the format cannot carry in full: ``raise``
            quarantines it, ``warn`` and ``ignore`` only count the loss; or which losses pass, by
            name or kind. By default losses of metadata pass, and losses of data quarantine the
            event.
        event_id: Whether each message gets the header ``changelane-event-id``, which is the same
            when
            the message is sent again: ``topic-partition-offset`` of the source's message, and the
                numbers of event and message in it.
        partition: By the message's ``key`` (Kafka's own rule; a message without a key goes as with
            ``source``), or by the number of the ``source`` partition, which keeps the order of each
            source partition.
        block_keys_on_error: While a message is quarantined, later messages with its key in its
            partition are quarantined too, as ``held``. A replay sends them after it, in their
            order. Messages without a key count as one key.
        checkpoint: The folder of the pipeline's progress and quarantine. Required.
        spark_options: Further options of Spark's Kafka sink and, with ``kafka.`` before them, of
            Kafka's producer, by their own names: security belongs here. They are passed on
            unchanged.
    """

    bootstrap_servers: str
    format: str
    topic: str = ""
    format_options: dict[str, Any] = {}
    profile: str | None = None
    profile_options: dict[str, Any] = {}
    on_loss: Literal["raise", "warn", "ignore"] | LossPolicy = DEFAULT
    event_id: bool = False
    partition: Literal["key", "source"] = "key"
    block_keys_on_error: bool = False
    checkpoint: str = ""
    spark_options: dict[str, str] = {}

    def __post_init__(self) -> None:
        """Refuse options that would lose messages or their order."""
        if not self.checkpoint:
            raise ValueError(
                "a kafka sink needs checkpoint: a folder where the pipeline keeps which offsets "
                "it has sent, and what it set aside; without it each run would send everything "
                "again"
            )
        if self.profile is not None:
            if self.topic or self.partition != "key":
                raise ValueError("a profile tells topic and partition itself: leave them out")
        elif self.profile_options:
            raise ValueError("profile_options need a profile")
        elif not self.topic:
            raise ValueError("a kafka sink needs a topic, or a profile that tells it")
        for name in PLACEHOLDER.findall(self.topic):
            if name not in PLACEHOLDERS:
                placeholders = ", ".join(f"{{{placeholder}}}" for placeholder in PLACEHOLDERS)
                raise ValueError(f"topic has an unknown placeholder; there are {placeholders}")
        if self.topic and not is_topic(PLACEHOLDER.sub("x", self.topic)):
            raise ValueError("topic can be no topic's name")
        check_options(self.spark_options, _SINK_OPTIONS)
        options = {
            name.lower(): value.strip().lower() for name, value in self.spark_options.items()
        }
        if options.get("kafka.acks", "all") not in {"all", "-1"}:
            raise ValueError(
                "spark_options.kafka.acks must be `all`, or a broker that dies takes messages"
            )
        is_idempotent = options.get("kafka.enable.idempotence", "true") == "true"
        in_flight = options.get("kafka.max.in.flight.requests.per.connection")
        if not is_idempotent and in_flight != "1":
            raise ValueError(
                "without spark_options.kafka.enable.idempotence a message that is sent again may "
                "overtake others: leave it on, or set kafka.max.in.flight.requests.per.connection "
                "to 1"
            )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.topic or self.profile!r})"  # options may contain secrets
        )

    @property
    def is_one_topic(self) -> bool:
        """Whether all messages go into one topic."""
        return bool(self.topic) and PLACEHOLDER.search(self.topic) is None


TOPIC_SINK_OPTIONS: Final = frozenset(
    {
        "checkpoint",
        "trigger",
        "interval",
        "on_error",
        "max_errors",
        "metrics_port",
        "metrics_host",
        "spark_options",
    }
)
"""The options of a pipeline that apply to a sink of topics."""
_SPLITTING: Final = {"minpartitions", "maxrecordsperpartition"}


def check_kafka_sink(source: object, sink: KafkaSink, options: Iterable[str]) -> None:
    """Refuse a pipeline that cannot write to Kafka topics, or not in order.

    Args:
        source: The source of the pipeline.
        sink: The topics.
        options: The names of the options in the file.

    Raises:
        ConfigError: The pipeline cannot; the message names the reason.
    """
    source = check_topic_sink(source, "kafka", options, advice="; files: convert them")
    is_same = source.bootstrap_servers == sink.bootstrap_servers and sink.topic
    if is_same and (sink.topic == "{topic}" or sink.topic in source.names):
        raise ConfigError("sink.topic is one of the source's: each message would come again")


def check_topic_sink(
    source: object, sink: str, options: Iterable[str], *, advice: str = ""
) -> KafkaSource:
    """Refuse a pipeline that cannot write to topics of any kind, or not in order.

    Args:
        source: The source of the pipeline.
        sink: The type of its sink.
        options: The names of the options in the file.
        advice: The advice for another source, for the message.

    Returns:
        The source.

    Raises:
        ConfigError: The pipeline cannot; the message names the reason.
    """
    if not isinstance(source, KafkaSource):
        raise ConfigError(f"a {sink} sink takes the messages of a kafka source{advice}")
    for name in options:
        if name not in TOPIC_SINK_OPTIONS:
            raise ConfigError(f"options.{name} is about tables, and the sink is {sink}")
    for name in source.spark_options:
        if name.lower() in _SPLITTING:
            msg = f"source.spark_options.{name} splits a partition, so that its order is lost"
            raise ConfigError(msg)
    return source


def check_hold_keys(on_error: str, masks: str) -> None:
    """Refuse options that exclude ``block_keys_on_error``.

    Args:
        on_error: The option of this name.
        masks: The masks of the transforms, as ``masks_of`` names them.

    Raises:
        ConfigError: Nothing is quarantined, or quarantined messages could not be replayed.
    """
    if on_error == "stop":
        raise ConfigError("`on_error: stop` quarantines nothing: remove sink.block_keys_on_error")
    if masks:
        msg = "sink.block_keys_on_error needs replays, and masked events cannot be replayed"
        raise ConfigError(msg)


Offsets = dict[str, dict[int, int]]
"""Offset by partition by topic."""

Lag = dict[str, dict[int, int]]
"""The number of unread messages, by partition by topic."""


class OffsetRange(msgspec.Struct, frozen=True):
    """The offsets of a batch.

    Attributes:
        ends: The offset after the last message of each partition.
        starts: The offset of the first message; a missing partition is new and begins with 0.
        ids: The identity of each topic; a topic that is deleted and created again gets another.
    """

    ends: Offsets
    starts: Offsets = {}
    ids: dict[str, str] = {}

    @property
    def count(self) -> int:
        """The number of its offsets, with those that compaction or a transaction left empty."""
        return sum(
            max(0, end - self.starts.get(topic, {}).get(number, 0))
            for topic, number, end in partitions(self.ends)
        )


def partitions(offsets: Offsets) -> Iterable[tuple[str, int, int]]:
    """Yield topic, partition and offset."""
    for topic, partition_offsets in offsets.items():
        for partition, offset in partition_offsets.items():
            yield topic, partition, offset


def total_lag(lag: Lag | None) -> int | None:
    """Return the total number of unread messages; ``None`` = unknown."""
    return None if lag is None else sum(count for _, _, count in partitions(lag))

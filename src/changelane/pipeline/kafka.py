# SPDX-License-Identifier: Apache-2.0
"""Topics as the source and the sink of a pipeline: what its YAML says of them.

::

    source:
      type: kafka
      servers: broker-1:9092,broker-2:9092
      topics: [shop.orders, shop.customers]
      format: debezium-json
      spark:
        kafka.security.protocol: SASL_SSL
        kafka.sasl.jaas.config: ${JAAS}
    sink:
      type: kafka
      servers: broker-1:9092
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

_OWN: Final = {
    "kafka.bootstrap.servers": "give source.servers",
    "subscribe": "give source.topics",
    "subscribepattern": "give source.pattern",
    "assign": "give source.topics",
    "startingoffsets": "give source.starting_offsets",
    "startingtimestamp": "give source.starting_offsets",
    "startingoffsetsbytimestamp": "give source.starting_offsets",
    "maxoffsetspertrigger": "give source.max_offsets_per_trigger",
    "failondataloss": "messages that are lost must never go unnoticed",
    "includeheaders": "headers are always read",
}


def is_topic(name: str) -> bool:
    """Say whether a text can be the name of a topic (Kafka's ``Topic.validate``).

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

    Only messages of committed transactions are read, unless ``kafka.isolation.level`` in *spark*
    says otherwise.

    Attributes:
        servers: Addresses of brokers, ``host:port``, with commas between them.
        topics: Topics by name.
        pattern: Topics by a regular expression (Java's) instead; new ones are taken as they come.
        format: The messages' format, such as ``debezium-json``.
        format_options: The format's options.
        starting_offsets: Where a new checkpoint begins: ``earliest``, ``latest``, or the offset of
            each partition by topic; a partition that is not named begins with its earliest.
        max_offsets_per_trigger: How many messages one batch takes at most.
        order_by_event_id: Events without positions are ordered by the header
            ``changelane-event-id``, by which changelane tells what a message was made of (a sink's
            ``event_id``), and not by their own offsets: one that was sent twice is one.
        spark: Further options of Spark's Kafka source and, with ``kafka.`` before them, of Kafka's
            consumer, by their own names: security belongs here. They are passed on untouched.
    """

    servers: str
    format: str
    topics: list[str] | str | None = None
    pattern: str | None = None
    format_options: dict[str, Any] = {}
    starting_offsets: Literal["earliest", "latest"] | dict[str, dict[int | str, int]] = "earliest"
    max_offsets_per_trigger: Annotated[int, msgspec.Meta(ge=1)] | None = None
    order_by_event_id: bool = False
    spark: dict[str, str] = {}

    def __post_init__(self) -> None:
        """Refuse what names no topics, or an option twice."""
        if (self.topics is None) == (self.pattern is None):
            raise ValueError("a kafka source needs topics or a pattern, one of the two")
        if self.topics is not None and not self.names:
            raise ValueError("topics names none")
        if wrong := [name for name in self.names if not is_topic(name)]:
            raise ValueError(f"{len(wrong)} of the topics can be no topic's name")
        if isinstance(self.starts, dict) and any(
            number < 0 or offset < 0 for _, number, offset in partitions(self.starts)
        ):
            raise ValueError("starting_offsets holds a partition or an offset below 0")
        check_options(self.spark, _OWN)

    @property
    def starts(self) -> "str | Offsets":
        """``starting_offsets`` with partitions as numbers, as JSON cannot tell them."""
        told = self.starting_offsets
        if isinstance(told, str):
            return told
        return {topic: {int(n): offset for n, offset in one.items()} for topic, one in told.items()}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.told!r})"  # options may hold secrets

    @property
    def names(self) -> tuple[str, ...]:
        """The topics by name; none with a pattern."""
        return (self.topics,) if isinstance(self.topics, str) else tuple(self.topics or ())

    @property
    def told(self) -> str:
        """The topics for people."""
        return ",".join(self.names) if self.pattern is None else f"pattern {self.pattern}"


def check_options(options: Mapping[str, str], own: Mapping[str, str]) -> None:
    """Refuse options that changelane sets itself.

    Raises:
        ValueError: It names the option and what to do instead.
    """
    for name in options:
        if (instead := own.get(name.lower())) is not None:
            raise ValueError(f"spark.{name.lower()} is not yours to set: {instead}")


def client_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of Kafka's own clients, which have ``kafka.`` before them in Spark's."""
    return {
        name[len("kafka.") :]: value
        for name, value in options.items()
        if name.lower().startswith("kafka.")
    }


_OWN_OF_SINK: Final = {
    "kafka.bootstrap.servers": "give sink.servers",
    "topic": "give sink.topic",
    "includeheaders": "headers are always written",
    "kafka.transactional.id": "Spark's writer has no transactions: use event_id",
}
PLACEHOLDERS: Final = ("topic", "database", "schema", "table")
"""What can stand in braces in a sink's topic."""
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
        servers: Addresses of brokers, ``host:port``, with commas between them.
        topic: The topic, which must be there. ``{topic}`` (that of the source), ``{database}``,
            ``{schema}`` and ``{table}`` in it make several. A profile tells it itself.
        profile: The producer whose topics, keys, headers and partitions the messages get
            (``changelane profiles`` lists them).
        profile_options: The profile's options.
        format: The messages' format, such as ``canal-json``.
        format_options: The format's options.
        on_loss: What the format cannot carry sets the event aside (``raise``), or is only counted
            (``warn``, ``ignore``); or which losses pass, by name or kind. By default those of
            metadata do, and those of data set the event aside.
        event_id: Each message gets the header ``changelane-event-id``, which is the same when it
            is sent again: ``topic-partition-offset`` of the message that it came from, and the
            numbers of event and message in it.
        partition: By the message's ``key`` (Kafka's own rule; a message without one goes as its
            ``source``), or all by the number of the ``source`` partition, so that the order of
            each is kept as a whole.
        hold_keys: Once a message is set aside, later ones of its key, in its partition, are, too,
            as ``held``, until it is replayed: then they follow it in their order. Messages without
            a key are of one key.
        checkpoint: The folder where the pipeline keeps how far it came, and what it set aside.
            Required.
        spark: Further options of Spark's Kafka sink and, with ``kafka.`` before them, of Kafka's
            producer, by their own names: security belongs here. They are passed on untouched.
    """

    servers: str
    format: str
    topic: str = ""
    format_options: dict[str, Any] = {}
    profile: str | None = None
    profile_options: dict[str, Any] = {}
    on_loss: Literal["raise", "warn", "ignore"] | LossPolicy = DEFAULT
    event_id: bool = False
    partition: Literal["key", "source"] = "key"
    hold_keys: bool = False
    checkpoint: str = ""
    spark: dict[str, str] = {}

    def __post_init__(self) -> None:
        """Refuse what would lose messages or their order."""
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
                known = ", ".join(f"{{{one}}}" for one in PLACEHOLDERS)
                raise ValueError(f"topic has an unknown placeholder; there are {known}")
        if self.topic and not is_topic(PLACEHOLDER.sub("x", self.topic)):
            raise ValueError("topic can be no topic's name")
        check_options(self.spark, _OWN_OF_SINK)
        options = {name.lower(): value.strip().lower() for name, value in self.spark.items()}
        if options.get("kafka.acks", "all") not in {"all", "-1"}:
            raise ValueError("spark.kafka.acks must be `all`, or a broker that dies takes messages")
        is_idempotent = options.get("kafka.enable.idempotence", "true") == "true"
        in_flight = options.get("kafka.max.in.flight.requests.per.connection")
        if not is_idempotent and in_flight != "1":
            raise ValueError(
                "without spark.kafka.enable.idempotence a message that is sent again may overtake "
                "others: leave it on, or set kafka.max.in.flight.requests.per.connection to 1"
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.topic or self.profile!r})"  # options may hold secrets

    @property
    def is_one_topic(self) -> bool:
        """Whether all messages go into one topic."""
        return bool(self.topic) and PLACEHOLDER.search(self.topic) is None


OF_TOPICS: Final = frozenset(
    {
        "checkpoint",
        "trigger",
        "interval",
        "on_error",
        "max_quarantined",
        "metrics_port",
        "metrics_host",
        "spark",
    }
)
"""The options of a pipeline that mean something to a sink of topics."""
_SPLITTING: Final = {"minpartitions", "maxrecordsperpartition"}


def check_delivery(source: object, sink: KafkaSink, options: Iterable[str]) -> None:
    """Refuse a pipeline that cannot go into topics, or not in its order.

    Args:
        source: What it reads.
        sink: The topics.
        options: The names of the options that are given.

    Raises:
        ConfigError: It says why.
    """
    source = check_to_topics(source, "kafka", options, advice="; files: convert them")
    is_same = source.servers == sink.servers and sink.topic
    if is_same and (sink.topic == "{topic}" or sink.topic in source.names):
        raise ConfigError("sink.topic is one of the source's: each message would come again")


def check_to_topics(
    source: object, sink: str, options: Iterable[str], *, advice: str = ""
) -> KafkaSource:
    """Refuse a pipeline that cannot go into topics of any kind, or not in its order.

    Args:
        source: What it reads.
        sink: The type of its sink.
        options: The names of the options that are given.
        advice: What else can be done with another source.

    Returns:
        The source.

    Raises:
        ConfigError: It says why.
    """
    if not isinstance(source, KafkaSource):
        raise ConfigError(f"a {sink} sink takes the messages of a kafka source{advice}")
    for name in options:
        if name not in OF_TOPICS:
            raise ConfigError(f"options.{name} is about tables, and the sink is {sink}")
    for name in source.spark:
        if name.lower() in _SPLITTING:
            msg = f"source.spark.{name} reads a partition in several parts, out of their order"
            raise ConfigError(msg)
    return source


def check_holding(on_error: str, masks: str) -> None:
    """Refuse what ``hold_keys`` cannot go with.

    Args:
        on_error: As the option says.
        masks: What the transforms hide, as ``masks_of`` names it.

    Raises:
        ConfigError: What is set aside could not be replayed, or nothing is.
    """
    if on_error == "stop":
        raise ConfigError("`on_error: stop` sets nothing aside: leave sink.hold_keys out")
    if masks:
        msg = "with a mask what is set aside cannot be replayed, and sink.hold_keys waits for that"
        raise ConfigError(msg)


Offsets = dict[str, dict[int, int]]
"""Offset by partition by topic."""

Lag = dict[str, dict[int, int]]
"""How many messages were not read yet, by partition by topic."""


class Span(msgspec.Struct, frozen=True):
    """The part of topics that a batch takes.

    Attributes:
        ends: The offset behind the last message of each partition.
        starts: The offset of the first; a partition that is missing here came new, and begins
            with 0.
        ids: The identity of each topic: one that is deleted and created again has another.
    """

    ends: Offsets
    starts: Offsets = {}
    ids: dict[str, str] = {}

    @property
    def count(self) -> int:
        """How many offsets it takes; those that compaction or a transaction left empty count."""
        return sum(
            max(0, end - self.starts.get(topic, {}).get(number, 0))
            for topic, number, end in partitions(self.ends)
        )


def partitions(offsets: Offsets) -> Iterable[tuple[str, int, int]]:
    """Yield topic, partition and offset."""
    for topic, told in offsets.items():
        for partition, offset in told.items():
            yield topic, partition, offset


def behind(lag: Lag | None) -> int | None:
    """Return how many messages were not read yet in all; ``None`` = nobody counted them."""
    return None if lag is None else sum(count for _, _, count in partitions(lag))

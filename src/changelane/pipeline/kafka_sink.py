# SPDX-License-Identifier: Apache-2.0
"""The ``kafka`` sink: topics as the sink of a pipeline, in its YAML.

::

    sink:
      type: kafka
      bootstrap_servers: broker-1:9092
      topic: canal.{database}.{table}
      format: canal-json
      checkpoint: state/
"""

from typing import Any, Final, Literal

import msgspec

from changelane import profiles
from changelane.codec import Codec, get_codec
from changelane.errors import ConfigError
from changelane.pipeline.interface import STATE_FORMAT, Source
from changelane.pipeline.kafka_source import KafkaSource, check_options, is_topic
from changelane.pipeline.options import Options
from changelane.pipeline.topic_sink import (
    PLACEHOLDER,
    PLACEHOLDERS,
    TopicSinkOptions,
    ordered_source_of,
)
from changelane.profiles.profile import Profile

_SINK_OPTIONS: Final = {
    "kafka.bootstrap.servers": "use sink.bootstrap_servers",
    "topic": "use sink.topic",
    "includeheaders": "headers are always written",
    "kafka.transactional.id": "Spark's writer has no transactions: use event_id",
}


class KafkaSink(
    TopicSinkOptions,
    frozen=True,
    kw_only=True,
    tag="kafka",
    tag_field="type",
    forbid_unknown_fields=True,
):
    """Topics of a Kafka broker, with at-least-once delivery.

    Attributes:
        bootstrap_servers: Addresses of brokers, ``host:port``, separated by commas.
        topic: The topic, which must exist. It may contain ``{topic}`` (the source's topic),
            ``{database}``, ``{schema}`` and ``{table}``. Not allowed with a profile.
        profile: The producer that determines the topics, keys, headers and partitions of the
            messages (``changelane profiles`` lists all).
        profile_options: The options of the profile.
        format: The format of the messages, such as ``canal-json``.
        format_options: The options of the format.
        on_loss: The policy for losses: ``raise`` quarantines the event, ``warn`` and ``ignore``
            only count the loss; or the accepted losses, by name or kind. By default losses of
            metadata are accepted, and losses of data quarantine the event.
        event_id: Whether each message gets the header ``changelane-event-id``, which is equal for
            all deliveries of the message: ``topic-partition-offset`` of the source's message, and
            the numbers of event and message in it.
        partition: ``key``: Kafka's rule for the message's key, and ``source`` for messages without
            a key; ``source``: the number of the source partition, so that the order of each source
            partition is kept.
        block_keys_on_error: While a message is quarantined, later messages with its key in its
            partition are quarantined too, as ``held``. A replay sends them after it, in their
            order. Messages without a key count as one key.
        checkpoint: The folder of the pipeline's progress and quarantine. Required.
        spark_options: Further options of Spark's Kafka sink and, with the prefix ``kafka.``, of
            Kafka's producer, such as those for security. They are passed on unchanged.
    """

    bootstrap_servers: str
    topic: str = ""
    profile: str | None = None
    profile_options: dict[str, Any] = msgspec.field(default_factory=dict)
    event_id: bool = False
    partition: Literal["key", "source"] = "key"
    spark_options: dict[str, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reject options that would lose messages or their order."""
        super().__post_init__()
        if self.profile is not None:
            if self.topic or self.partition != "key":
                raise ValueError("the profile determines topic and partition: remove them")
        elif self.profile_options:
            raise ValueError("profile_options need a profile")
        elif not self.topic:
            raise ValueError("a kafka sink needs a topic or a profile")
        for name in PLACEHOLDER.findall(self.topic):
            if name not in PLACEHOLDERS:
                placeholders = ", ".join(f"{{{placeholder}}}" for placeholder in PLACEHOLDERS)
                raise ValueError(f"topic has an unknown placeholder; there are {placeholders}")
        if self.topic and not is_topic(PLACEHOLDER.sub("x", self.topic)):
            raise ValueError("topic is not a valid topic name")
        check_options(self.spark_options, _SINK_OPTIONS)
        options = {
            name.lower(): value.strip().lower() for name, value in self.spark_options.items()
        }
        if options.get("kafka.acks", "all") not in {"all", "-1"}:
            raise ValueError(
                "spark_options.kafka.acks must be `all`: otherwise a failed broker loses messages"
            )
        is_idempotent = options.get("kafka.enable.idempotence", "true") == "true"
        in_flight = options.get("kafka.max.in.flight.requests.per.connection")
        if not is_idempotent and in_flight != "1":
            raise ValueError(
                "without spark_options.kafka.enable.idempotence, a retried message may overtake "
                "others: leave it on, or set kafka.max.in.flight.requests.per.connection to 1"
            )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.topic or self.profile!r})"  # options may contain secrets
        )

    @property
    def engine(self) -> str:
        """The module that writes the sink on Spark."""
        return "changelane.spark.sinks.kafka"

    @property
    def jars(self) -> tuple[str, ...]:
        """The jars that Spark needs."""
        return (STATE_FORMAT, "kafka")

    @property
    def label(self) -> str:
        """The messages and topics for people."""
        topics = f"topic {self.topic}" if self.profile is None else f"topics of {self.profile}"
        return f"{self.format} in {topics}"

    @property
    def brokers(self) -> str:
        """The addresses of brokers, of which one must answer."""
        return self.bootstrap_servers

    @property
    def names_option(self) -> str:
        """The name of the option that :meth:`check_names` checks."""
        return "sink.format" if self.profile is None else "sink.profile"

    def check(self, source: Source, options: Options) -> None:
        """Check that messages can be sent in their order, to other topics than they come from.

        Raises:
            ConfigError: They cannot; the message names the reason.
        """
        topics = ordered_source_of(source, options, "kafka", advice="; files: convert them")
        if not isinstance(topics, KafkaSource) or topics.brokers != self.bootstrap_servers:
            return
        if self.topic and self.topic in {"{topic}", *topics.names}:
            raise ConfigError("sink.topic is one of the source's: each message would come again")

    def check_names(self) -> None:
        """Check the names of the format and the profile, and their options.

        Raises:
            ConfigError: A name or an option is wrong.
            MissingExtraError: The library of a format is not installed.
        """
        sink_codec(self)

    @property
    def is_one_topic(self) -> bool:
        """Whether all messages go into one topic."""
        return bool(self.topic) and PLACEHOLDER.search(self.topic) is None


def sink_codec(sink: KafkaSink) -> tuple[Profile | None, Codec]:
    """Return the profile of a sink, if it has one, and the codec of its messages.

    Raises:
        ConfigError: A name or an option is wrong.
    """
    if sink.profile is None:
        return None, get_codec(sink.format, **sink.format_options)
    profile = profiles.load(sink.profile, sink.profile_options)
    return profile, profile.codec(sink.format, sink.format_options)

# SPDX-License-Identifier: Apache-2.0
"""The ``kafka`` source: topics as the source of a pipeline, in its YAML.

::

    source:
      type: kafka
      bootstrap_servers: broker-1:9092,broker-2:9092
      topics: [shop.orders, shop.customers]
      format: debezium-json
      spark_options:
        kafka.security.protocol: SASL_SSL
        kafka.sasl.jaas.config: ${JAAS}
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

import msgspec

from changelane.pipeline.kafka_offsets import Offsets, partitions
from changelane.pipeline.source_options import SourceOptions

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")

_SOURCE_OPTIONS: Final = {
    "kafka.bootstrap.servers": "use source.bootstrap_servers",
    "subscribe": "use source.topics",
    "subscribepattern": "use source.topic_pattern",
    "assign": "use source.topics",
    "startingoffsets": "use source.starting_offsets",
    "startingtimestamp": "use source.starting_offsets",
    "startingoffsetsbytimestamp": "use source.starting_offsets",
    "maxoffsetspertrigger": "use source.max_offsets_per_trigger",
    "failondataloss": "lost messages must fail the run",
    "includeheaders": "headers are always read",
}


def is_topic(name: str) -> bool:
    """Whether a text is a valid topic name (Kafka's ``Topic.validate``).

    >>> is_topic("shop.orders"), is_topic("../x"), is_topic("..")
    (True, False, False)
    """
    return _TOPIC.fullmatch(name) is not None and name not in {".", ".."}


class KafkaSource(
    SourceOptions, frozen=True, kw_only=True, tag="kafka", forbid_unknown_fields=True
):
    """Topics of a Kafka broker.

    Only messages of committed transactions are read, unless ``spark_options`` sets
    ``kafka.isolation.level``.

    Attributes:
        bootstrap_servers: Addresses of brokers, ``host:port``, separated by commas.
        topics: The names of the topics.
        topic_pattern: A Java regular expression for topics, instead of names; new matching topics
            are included.
        format: The format of the messages, such as ``debezium-json``.
        format_options: The options of the format.
        starting_offsets: The start of a new checkpoint: ``earliest``, ``latest``, or offsets by
            topic and partition; other partitions begin with their earliest offset.
        max_offsets_per_trigger: The maximum number of messages of a batch.
        order_by_event_id: Whether events without positions are ordered by the header
            ``changelane-event-id`` instead of their offsets. A sink's ``event_id`` writes this
            header. It identifies the original event, so an event that was sent twice counts once.
        spark_options: Further options of Spark's Kafka source and, with the prefix ``kafka.``, of
            Kafka's consumer, such as those for security. They are passed on unchanged.
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
        """Reject a source without topics, and options that changelane sets itself."""
        if (self.topics is None) == (self.topic_pattern is None):
            raise ValueError("a kafka source needs either topics or topic_pattern")
        if self.topics is not None and not self.names:
            raise ValueError("topics is empty")
        if invalid_names := [name for name in self.names if not is_topic(name)]:
            raise ValueError(f"{len(invalid_names)} of the topics are not valid topic names")
        if isinstance(self.starts, dict) and any(
            number < 0 or offset < 0 for _, number, offset in partitions(self.starts)
        ):
            raise ValueError("starting_offsets has a partition or an offset below 0")
        check_options(self.spark_options, _SOURCE_OPTIONS)

    @property
    def starts(self) -> "str | Offsets":
        """``starting_offsets`` with partitions as numbers."""
        starts = self.starting_offsets
        if isinstance(starts, str):
            return starts
        try:
            return {
                topic: {int(partition): offset for partition, offset in partition_starts.items()}
                for topic, partition_starts in starts.items()
            }
        except ValueError:
            raise ValueError("a partition in starting_offsets is not a number") from None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.label!r})"  # options may contain secrets

    @property
    def topic_source(self) -> Self:
        """The topics as a source: this one."""
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the topics; empty with a pattern."""
        return (self.topics,) if isinstance(self.topics, str) else tuple(self.topics or ())

    @property
    def start_text(self) -> str:
        """The start of a new checkpoint as text."""
        start_offsets = self.starting_offsets
        origin = start_offsets if isinstance(start_offsets, str) else "source.starting_offsets"
        return f", and begin at {origin}"

    @property
    def begins_at_latest(self) -> bool:
        """Whether a new checkpoint begins after the latest message."""
        return self.starting_offsets == "latest"

    @property
    def engine(self) -> str:
        """The module that reads the source on Spark."""
        return "changelane.spark.sources.kafka"

    @property
    def jars(self) -> tuple[str, ...]:
        """The jars that Spark needs."""
        return ("kafka",)

    @property
    def brokers(self) -> str:
        """The addresses of brokers, one of which must answer."""
        return self.bootstrap_servers

    @property
    def required_topics(self) -> tuple[str, ...]:
        """The topics that must exist; empty if the consumer has options, such as for security."""
        return () if client_options(self.spark_options) else self.names

    @property
    def uses_event_ids(self) -> bool:
        """Whether events without positions are ordered by event ids."""
        return self.order_by_event_id

    @property
    def label(self) -> str:
        """The topics as text."""
        return (
            ",".join(self.names) if self.topic_pattern is None else f"pattern {self.topic_pattern}"
        )


def check_options(options: Mapping[str, str], own_options: Mapping[str, str]) -> None:
    """Reject options that changelane sets itself.

    Raises:
        ValueError: changelane sets the option; the error names the alternative.
    """
    for name in options:
        if (instead := own_options.get(name.lower())) is not None:
            raise ValueError(f"spark_options.{name.lower()} cannot be set: {instead}")


def client_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of Kafka's clients, without Spark's prefix ``kafka.``."""
    return {
        name[len("kafka.") :]: value
        for name, value in options.items()
        if name.lower().startswith("kafka.")
    }

# SPDX-License-Identifier: Apache-2.0
"""Topics, offsets and permissions at a Kafka broker, read with the connector's client."""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from changelane.errors import ConfigError, UnreachableError
from changelane.pipeline.kafka_offsets import Offsets
from changelane.spark.runtime.session import check_class

_TIMEOUT_MS: Final = 30_000
_ACCESS_ERROR: Final = re.compile(r"Authorization|Authentication|UnsupportedSasl|SslHandshake")
_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""Kafka's zero UUID: an old broker has no identities of topics."""


class Topic(NamedTuple):
    """A topic.

    Attributes:
        id: Its identity; empty if the broker has none.
        partitions: Its partitions.
    """

    id: str
    partitions: tuple[int, ...]


class TopicAdmin:
    """The topics of one broker; see :func:`topic_admin`."""

    def __init__(self, jvm: Any, admin: Any) -> None:
        self._jvm = jvm
        self._admin = admin

    def names(self) -> list[str]:
        """Return the names of all topics except Kafka's internal ones."""
        return sorted(str(name) for name in self._admin.listTopics().names().get())

    def matching_names(self, pattern: str) -> list[str]:
        """Return the topics whose whole names a regular expression of Java matches.

        Raises:
            ConfigError: The pattern is no regular expression.
        """
        try:
            compiled_pattern = self._jvm.java.util.regex.Pattern.compile(anchored_pattern(pattern))
        except Py4JJavaError:
            msg = (
                "source.topic_pattern is no regular expression of Java, or its end is open (a "
                "comment of (?x), \\Q without \\E)"
            )
            raise ConfigError(msg) from None
        return [name for name in self.names() if compiled_pattern.matcher(name).matches()]

    def describe(self, names: Iterable[str]) -> dict[str, Topic]:
        """Return identity and partitions of topics, without topics that do not exist."""
        java_names = self._jvm.java.util.ArrayList()
        for name in names:
            java_names.add(name)
        topics: dict[str, Topic] = {}
        for name, future in dict(self._admin.describeTopics(java_names).topicNameValues()).items():
            try:
                description = future.get()
            except Py4JJavaError as error:
                if "UnknownTopicOrPartition" in str(error.java_exception):
                    continue
                raise
            identity = str(description.topicId().toString())
            numbers = sorted(int(partition.partition()) for partition in description.partitions())
            topics[str(name)] = Topic("" if identity == _NO_ID else identity, tuple(numbers))
        return topics

    def allowed_operations(self, names: Iterable[str]) -> dict[str, frozenset[str]]:
        """Return our permitted operations on topics, such as ``READ``, if the broker names them."""
        java_names = self._jvm.java.util.ArrayList()
        for name in names:
            java_names.add(name)
        describe_options = self._jvm.org.apache.kafka.clients.admin.DescribeTopicsOptions()
        description = self._admin.describeTopics(
            java_names, describe_options.includeAuthorizedOperations(True)
        )
        operations_by_topic: dict[str, frozenset[str]] = {}
        for name, future in dict(description.topicNameValues()).items():
            if operations := future.get().authorizedOperations():
                operations_by_topic[str(name)] = frozenset(
                    str(operation.toString()) for operation in operations
                )
        return operations_by_topic

    def earliest(self, topics: Mapping[str, Topic]) -> Offsets:
        """Return the first available offset of each partition."""
        return self._offsets(topics, self._spec.earliest())

    def latest(self, topics: Mapping[str, Topic]) -> Offsets:
        """Return the offset after the newest message of each partition."""
        return self._offsets(topics, self._spec.latest())

    @property
    def _spec(self) -> Any:
        return self._jvm.org.apache.kafka.clients.admin.OffsetSpec

    def _offsets(self, topics: Mapping[str, Topic], spec: Any) -> Offsets:
        offset_specs = self._jvm.java.util.HashMap()
        for name, topic in topics.items():
            for number in topic.partitions:
                offset_specs.put(
                    self._jvm.org.apache.kafka.common.TopicPartition(name, number), spec
                )
        offsets: Offsets = {name: {} for name in topics}
        for topic_partition, offset_info in dict(
            self._admin.listOffsets(offset_specs).all().get()
        ).items():
            offsets[str(topic_partition.topic())][int(topic_partition.partition())] = int(
                offset_info.offset()
            )
        return offsets


def anchored_pattern(pattern: str) -> str:
    """Return the regular expression that matches the same whole names, and no part of a name.

    Spark takes a topic if the pattern matches any part of its name.
    """
    return rf"\A(?:{pattern})\z"


@contextlib.contextmanager
def topic_admin(
    spark: SparkSession, servers: str, options: Mapping[str, str], *, timeout_ms: int = _TIMEOUT_MS
) -> Iterator[TopicAdmin]:
    """Connect to a broker.

    Args:
        spark: The session.
        servers: Addresses of brokers.
        options: More options for Kafka's client, by its own names: security.
        timeout_ms: The timeout of an answer, milliseconds, unless *options* set one.

    Raises:
        UnreachableError: The broker does not answer.
        ConfigError: The broker denies access, or an option is wrong; options are never quoted.
    """
    check_class(spark, "org.apache.kafka.clients.admin.AdminClient", "kafka")
    jvm: Any = spark._jvm
    properties = jvm.java.util.Properties()
    timeout = str(timeout_ms)
    client_properties = {
        "request.timeout.ms": timeout,
        "default.api.timeout.ms": timeout,
        **options,
    }
    for name, value in {**client_properties, "bootstrap.servers": servers}.items():
        properties.setProperty(name, value)
    try:
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
    except Py4JJavaError as error:
        if "No resolvable bootstrap" in str(error):
            raise UnreachableError(f"the broker's address {servers} is unknown") from None
        # the cause names the option; its message may quote the value
        msg = f"the client of the broker at {servers} does not start ({exception_names(error)})"
        raise ConfigError(msg) from None
    try:
        yield TopicAdmin(jvm, admin)
    except Py4JJavaError as error:
        causes = exception_names(error)
        if _ACCESS_ERROR.search(causes):
            raise ConfigError(f"the broker at {servers} denies access ({causes})") from None
        raise UnreachableError(f"the broker at {servers} does not answer ({causes})") from None
    finally:
        admin.close(jvm.java.time.Duration.ofSeconds(1))


def exception_names(error: Py4JJavaError) -> str:
    """Return the class names of an exception and of its causes, without their messages."""
    kinds: list[str] = []
    cause = error.java_exception
    while cause is not None and len(kinds) < 5:
        kinds.append(str(cause.getClass().getSimpleName()))
        cause = cause.getCause()
    return ", ".join(dict.fromkeys(kinds))

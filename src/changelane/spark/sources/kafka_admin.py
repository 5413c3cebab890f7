# SPDX-License-Identifier: Apache-2.0
"""What a Kafka broker says of topics, asked by the driver through the connector's own client."""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from changelane.errors import ConfigError, UnreachableError
from changelane.pipeline.kafka import Offsets
from changelane.spark.runtime.session import check_class

_TIMEOUT_MS: Final = 30_000
_REFUSED: Final = re.compile(r"Authorization|Authentication|UnsupportedSasl|SslHandshake")
_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""Kafka's zero UUID: the broker is too old to tell topics apart."""


class Topic(NamedTuple):
    """A topic.

    Attributes:
        id: Its identity, empty when the broker knows none.
        partitions: Its partitions.
    """

    id: str
    partitions: tuple[int, ...]


class Topics:
    """Answers of one broker; see :func:`topics`."""

    def __init__(self, jvm: Any, admin: Any) -> None:
        self._jvm = jvm
        self._admin = admin

    def names(self) -> list[str]:
        """Return the names of all topics but Kafka's own."""
        return sorted(str(name) for name in self._admin.listTopics().names().get())

    def matching(self, pattern: str) -> list[str]:
        """Return the topics whose whole names a regular expression of Java matches.

        Raises:
            ConfigError: It is none.
        """
        try:
            wanted = self._jvm.java.util.regex.Pattern.compile(anchored(pattern))
        except Py4JJavaError:
            msg = (
                "source.pattern is no regular expression of Java, or does not end where it should "
                "(a comment of (?x), \\Q without \\E)"
            )
            raise ConfigError(msg) from None
        return [name for name in self.names() if wanted.matcher(name).matches()]

    def facts(self, names: Iterable[str]) -> dict[str, Topic]:
        """Return what is known of topics; those that are not there are left out."""
        wanted = self._jvm.java.util.ArrayList()
        for name in names:
            wanted.add(name)
        found: dict[str, Topic] = {}
        for name, future in dict(self._admin.describeTopics(wanted).topicNameValues()).items():
            try:
                told = future.get()
            except Py4JJavaError as error:
                if "UnknownTopicOrPartition" in str(error.java_exception):
                    continue
                raise
            identity = str(told.topicId().toString())
            numbers = sorted(int(one.partition()) for one in told.partitions())
            found[str(name)] = Topic("" if identity == _NO_ID else identity, tuple(numbers))
        return found

    def allowed(self, names: Iterable[str]) -> dict[str, frozenset[str]]:
        """Return what we may do with topics, such as ``READ``; not those that tell nothing."""
        wanted = self._jvm.java.util.ArrayList()
        for name in names:
            wanted.add(name)
        asked = self._jvm.org.apache.kafka.clients.admin.DescribeTopicsOptions()
        told = self._admin.describeTopics(wanted, asked.includeAuthorizedOperations(True))
        found: dict[str, frozenset[str]] = {}
        for name, future in dict(told.topicNameValues()).items():
            if operations := future.get().authorizedOperations():
                found[str(name)] = frozenset(str(one.toString()) for one in operations)
        return found

    def earliest(self, facts: Mapping[str, Topic]) -> Offsets:
        """Return the offset from which on the broker still has each partition."""
        return self._offsets(facts, self._spec.earliest())

    def latest(self, facts: Mapping[str, Topic]) -> Offsets:
        """Return the offset behind the newest message of each partition."""
        return self._offsets(facts, self._spec.latest())

    @property
    def _spec(self) -> Any:
        return self._jvm.org.apache.kafka.clients.admin.OffsetSpec

    def _offsets(self, facts: Mapping[str, Topic], spec: Any) -> Offsets:
        wanted = self._jvm.java.util.HashMap()
        for name, topic in facts.items():
            for number in topic.partitions:
                wanted.put(self._jvm.org.apache.kafka.common.TopicPartition(name, number), spec)
        offsets: Offsets = {name: {} for name in facts}
        for place, told in dict(self._admin.listOffsets(wanted).all().get()).items():
            offsets[str(place.topic())][int(place.partition())] = int(told.offset())
        return offsets


def anchored(pattern: str) -> str:
    """Return the regular expression that matches the same whole names, and no part of a name.

    Spark takes a topic in whose name a pattern matches anywhere.
    """
    return rf"\A(?:{pattern})\z"


@contextlib.contextmanager
def topics(
    spark: SparkSession, servers: str, options: Mapping[str, str], *, timeout_ms: int = _TIMEOUT_MS
) -> Iterator[Topics]:
    """Ask the broker.

    Args:
        spark: The session.
        servers: Addresses of brokers.
        options: More for Kafka's client, by its own names: security.
        timeout_ms: For how long an answer is waited for, unless *options* say.

    Raises:
        UnreachableError: It does not answer.
        ConfigError: It refuses, or an option is wrong; options are never quoted.
    """
    check_class(spark, "org.apache.kafka.clients.admin.AdminClient", "kafka")
    jvm: Any = spark._jvm
    properties = jvm.java.util.Properties()
    waits = str(timeout_ms)
    told = {"request.timeout.ms": waits, "default.api.timeout.ms": waits, **options}
    for name, value in {**told, "bootstrap.servers": servers}.items():
        properties.setProperty(name, value)
    try:
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
    except Py4JJavaError as error:
        if "No resolvable bootstrap" in str(error):
            raise UnreachableError(f"nobody knows the broker's address {servers}") from None
        # the cause names the option; its message may quote the value
        msg = f"no client of the broker at {servers} can be made ({kinds(error)})"
        raise ConfigError(msg) from None
    try:
        yield Topics(jvm, admin)
    except Py4JJavaError as error:
        why = kinds(error)
        if _REFUSED.search(why):
            raise ConfigError(f"the broker at {servers} refuses us ({why})") from None
        raise UnreachableError(f"the broker at {servers} does not answer ({why})") from None
    finally:
        admin.close(jvm.java.time.Duration.ofSeconds(1))


def kinds(error: Py4JJavaError) -> str:
    """Return the names of an exception and of its causes, without their words."""
    kinds: list[str] = []
    cause = error.java_exception
    while cause is not None and len(kinds) < 5:
        kinds.append(str(cause.getClass().getSimpleName()))
        cause = cause.getCause()
    return ", ".join(dict.fromkeys(kinds))

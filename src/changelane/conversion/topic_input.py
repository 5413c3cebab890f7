# SPDX-License-Identifier: Apache-2.0
"""A topic as an input of commands: ``kafka://host:9092/topic?max=100``.

The topic is read once, up to the end offsets at the start, one partition after the other, with
keys, headers and times, as in a file of records. No offset is committed, and no topic is created.
The URL contains no credentials. Security is configured by options of Kafka's client, with the names
of a pipeline's file (``kafka.security.protocol``).
"""

import difflib
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import parse_qsl

import msgspec

from changelane.conversion.message_files import Content, Line, LineFormat
from changelane.errors import ConfigError, MissingExtraError, UnknownNameError, UnreachableError
from changelane.message import Message
from changelane.pipeline.kafka_source import is_topic
from changelane.pipeline.yaml import hide_variables

if TYPE_CHECKING:
    from confluent_kafka import Message as KafkaMessage

SCHEME: Final = "kafka://"
_FORM: Final = "kafka://host:9092/topic?max=100&from=earliest"
_PORT: Final = 9092
_ANSWER_S: Final = 4.0
"""Timeout for the first answer, in seconds."""
_SILENCE_S: Final = 30.0
"""Timeout for the next messages after the first answer, in seconds."""
_MAX_POLLED: Final = 500

_SECURITY: Final = (
    "set options of Kafka's client with --kafka-option, secrets from the environment: "
    "--kafka-option kafka.security.protocol=SASL_SSL --kafka-option kafka.sasl.mechanism=PLAIN "
    "--kafka-option kafka.sasl.username=NAME --kafka-option 'kafka.sasl.password=${PASSWORD}'"
)
_RESERVED_OPTIONS: Final = {
    "bootstrap.servers": "the URL contains it",
    "enable.auto.commit": "nothing is committed",
    "enable.auto.offset.store": "nothing is committed",
    "auto.offset.reset": "the URL contains it: from=earliest or from=latest",
    "enable.partition.eof": "changelane sets it",
    "allow.auto.create.topics": "no topic is created",
}
_JAAS: Final = re.compile(
    r'\s*[\w.]*\.(?:Plain|Scram)LoginModule\s+required\s+((?:\w+\s*=\s*"[^"]*"\s*)+);?\s*'
)
_PAIR: Final = re.compile(r'(\w+)\s*=\s*"([^"]*)"')


class TopicAddress(msgspec.Struct, frozen=True):
    """The parts of a topic's URL.

    Attributes:
        bootstrap_servers: Addresses of brokers, separated by commas.
        topic: The topic.
        max_messages: The maximum number of messages to read; ``None`` if the URL has no ``max``.
        is_latest: Whether to read the last messages, not the first.
        partition: The partition to read; ``None`` = all partitions.
    """

    servers: str
    topic: str
    max_messages: int | None = None
    is_latest: bool = False
    partition: int | None = None


def is_topic_url(path: str) -> bool:
    """Whether an input is a topic, not a file."""
    return path.lower().startswith(SCHEME)


def address_of(url: str) -> TopicAddress:
    """Parse the URL of a topic.

    Raises:
        ConfigError: The URL has no topic, contains credentials, or a parameter is invalid. The
            error does not quote values that may be secret.
        UnknownNameError: A parameter is unknown; the error suggests the nearest one.
    """
    address, _, query = url[len(SCHEME) :].partition("?")
    servers, _, topic = address.partition("/")
    if "@" in address:
        raise ConfigError(f"the URL of a topic must not contain a user or password: {_SECURITY}")
    hosts = [host if re.search(r":\d+$", host) else f"{host}:{_PORT}" for host in _hosts(servers)]
    if not hosts or not is_topic(topic):
        raise ConfigError(f"the URL of a topic has the form {_FORM}")
    parameters: dict[str, str] = {}
    names = {"max", "from", "partition"}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if "." in name:
            raise ConfigError(f"{name} is not allowed in the URL of a topic: {_SECURITY}")
        if name not in names:
            raise UnknownNameError("parameter of a topic's URL", name, names)
        if name in parameters:
            raise ConfigError(f"the URL of the topic has {name} twice")
        parameters[name] = value
    start = parameters.get("from", "earliest")
    if start not in {"earliest", "latest"}:
        raise ConfigError("from in the URL of a topic must be earliest or latest")
    return TopicAddress(
        ",".join(hosts),
        topic,
        _number(parameters, "max", 1),
        start == "latest",
        _number(parameters, "partition", 0),
    )


def _hosts(servers: str) -> list[str]:
    return [host for host in servers.split(",") if host]


def _number(parameters: Mapping[str, str], name: str, least: int) -> int | None:
    text = parameters.get(name)
    if text is None:
        return None
    if re.fullmatch(r"[0-9]{1,12}", text) is None or int(text) < least:
        raise ConfigError(f"{name} in the URL of a topic must be a whole number, at least {least}")
    return int(text)


def client_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Translate client options of a pipeline's file into options of librdkafka.

    The prefix ``kafka.`` is optional. JAAS texts and PEM stores of the Java client become options
    of librdkafka.

    Raises:
        ConfigError: An option is reserved, or librdkafka has no equivalent.
    """
    client_options = {name.removeprefix("kafka."): value for name, value in options.items()}
    if reserved := next((name for name in client_options if name in _RESERVED_OPTIONS), None):
        raise ConfigError(f"--kafka-option {reserved} cannot be set: {_RESERVED_OPTIONS[reserved]}")
    if (jaas := client_options.pop("sasl.jaas.config", None)) is not None:
        match = _JAAS.fullmatch(jaas)
        pairs = {} if match is None else dict(_PAIR.findall(match.group(1)))
        if not {"username", "password"} <= pairs.keys():
            raise ConfigError(
                "--kafka-option sasl.jaas.config has no username and password for PLAIN or SCRAM: "
                "set sasl.username and sasl.password, or librdkafka's options for the mechanism"
            )
        client_options |= {"sasl.username": pairs["username"], "sasl.password": pairs["password"]}
    kind = client_options.pop("ssl.truststore.type", "")
    client_options.pop("ssl.truststore.password", None)
    if (store := client_options.pop("ssl.truststore.location", None)) is not None:
        if kind.upper() != "PEM" and not store.lower().endswith((".pem", ".crt")):
            raise ConfigError(
                "--kafka-option ssl.truststore.location must be a PEM file (or set "
                "ssl.ca.location): librdkafka does not read Java key stores"
            )
        client_options["ssl.ca.location"] = store
    return client_options


class MessageBlock(msgspec.Struct, frozen=True):
    """Consecutive messages of a topic.

    Attributes:
        number: The number of the first message, from 1.
        messages: The messages.
    """

    form: ClassVar[LineFormat] = LineFormat.RECORD
    number: int
    messages: list[Message]

    def contents(self) -> Iterator[Content]:
        """Yield the messages."""
        for number, message in enumerate(self.messages, self.number):
            yield number, b"", message


class TopicInput:
    """An opened topic.

    Attributes:
        form: The line format of the messages: records.
        size: The number of messages to read.
        total: The number of offsets, including those of compacted messages.
    """

    form: Final = LineFormat.RECORD

    def __init__(self, client: "_Client", shares: "list[_Share]", total: int) -> None:
        self._client = client
        self._shares = shares
        self._count = 0
        self.size: int | None = sum(share.max_messages for share in shares)
        self.total = total

    def position(self) -> int:
        """Return the number of messages read."""
        return self._count

    def is_ready(self) -> bool:
        """Whether a read returns at once: the messages of a topic are read up to an end."""
        return True

    def __iter__(self) -> Iterator[Line]:
        """Yield the messages, numbered from 1.

        Raises:
            UnreachableError: The broker rejects the request, or stops to answer.
        """
        for block in self.blocks():
            for content in block.contents():
                yield Line(*content)

    def blocks(self) -> "Iterator[MessageBlock]":
        """Yield the messages in blocks, each from one poll of the broker.

        Raises:
            UnreachableError: The broker rejects the request, or stops to answer.
        """
        for share in self._shares:
            for messages in self._of(share):
                block = MessageBlock(self._count + 1, messages)
                self._count += len(messages)
                yield block

    def _of(self, share: "_Share") -> "Iterator[list[Message]]":
        from confluent_kafka import KafkaError, TopicPartition

        consumer, address = self._client.consumer, self._client.address
        consumer.assign([TopicPartition(address.topic, share.number, share.start)])
        remaining, answered_at = share.max_messages, time.monotonic()
        while remaining:
            polled: list[Message] = []
            is_end, error = False, None
            for message in consumer.consume(min(remaining, _MAX_POLLED), 0.5):
                answered_at = time.monotonic()
                error = message.error()
                is_end = error is not None and error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001
                if error is None:
                    # a message after the end is newer than the start of the read
                    is_end = (message.offset() or 0) >= share.end
                if is_end or error is not None:
                    break
                polled.append(_message(message))
            if polled:
                remaining -= len(polled)
                yield polled
            if is_end:
                return
            if error is not None:
                raise self._client.unreachable(error.str())
            if time.monotonic() - answered_at > _SILENCE_S:
                raise self._client.unreachable(f"no answer for {_SILENCE_S:.0f} s")


class _Share(msgspec.Struct, frozen=True):
    """The part of a partition to read.

    Attributes:
        number: The partition.
        first: Its first offset.
        start: The first offset to read.
        end: The offset after its last message.
        max_messages: The maximum number of messages to read.
    """

    number: int
    first: int
    start: int
    end: int
    max_messages: int


def shares_of(
    offsets: Mapping[int, tuple[int, int]], limit: int | None, *, is_latest: bool = False
) -> list[_Share]:
    """Return the range to read of each partition, with equal numbers of messages if possible.

    Args:
        offsets: Partition -> its first offset, and the offset after its last message.
        limit: The total number of messages to read; ``None`` = all.
        is_latest: Read the last messages of each partition, not the first.
    """
    available = {number: end - first for number, (first, end) in offsets.items() if first < end}
    remaining = sum(available.values()) if limit is None else limit
    shares: dict[int, int] = {}
    for rank, number in enumerate(
        sorted(available, key=lambda number: (available[number], number))
    ):
        shares[number] = min(available[number], -(-remaining // (len(available) - rank)))
        remaining -= shares[number]
    return [
        _Share(number, first, end - share if is_latest else first, end, share)
        for number, (first, end) in sorted(offsets.items())
        if (share := shares.get(number, 0))
    ]


@contextmanager
def open_topic(
    url: str,
    options: Mapping[str, str],
    environment: Mapping[str, str],
    *,
    limit: int | None = None,
) -> Iterator[TopicInput]:
    """Open a topic to read.

    Args:
        url: The URL of the topic.
        options: Options of Kafka's client, with variables ``${NAME}``.
        environment: The values of the variables.
        limit: The default of ``max`` in the URL; ``None`` = all messages.

    Raises:
        ConfigError: The URL or an option is invalid, or the topic or partition does not exist.
        UnreachableError: No broker answers, or a broker rejects the request.
        MissingExtraError: confluent-kafka is not installed.
    """
    address = address_of(url)
    raw = dict(options)
    with hide_variables(raw, environment) as client_options:
        client = _Client(address, client_settings(client_options))
    try:
        offsets = client.offsets()
        message_limit = limit if address.max_messages is None else address.max_messages
        shares = shares_of(offsets, message_limit, is_latest=address.is_latest)
        yield TopicInput(client, shares, sum(end - first for first, end in offsets.values()))
    finally:
        client.consumer.close()


class _Client:
    """A consumer without a group.

    Attributes:
        address: The topic.
        consumer: The consumer.
    """

    def __init__(self, address: TopicAddress, settings: Mapping[str, str]) -> None:
        """Create the consumer, without a connection to the broker.

        Raises:
            ConfigError: An option is invalid.
            MissingExtraError: confluent-kafka is not installed.
        """
        try:
            from confluent_kafka import Consumer, KafkaException
        except ImportError:
            raise MissingExtraError("confluent-kafka", "kafka") from None
        self.address = address
        self._settings = settings
        self._errors: list[str] = []
        fixed_settings = {
            "bootstrap.servers": address.servers,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
            "log_level": 0,
            "error_cb": lambda error: self._errors.append(error.str()),
        }
        try:
            # the client requires the name of a group; it never joins the group or commits
            self.consumer = Consumer({"group.id": "changelane", **settings, **fixed_settings})
        except KafkaException as error:
            raise ConfigError(f"--kafka-option: {self._shown(error.args[0].str())}") from None

    def offsets(self) -> dict[int, tuple[int, int]]:
        """Return the first offset of each partition, and the offset after its last message.

        Raises:
            UnknownNameError: The topic or partition does not exist.
            UnreachableError: No broker answers, or a broker rejects the request.
        """
        from confluent_kafka import KafkaException, TopicPartition

        address = self.address
        try:
            # request all topics: some brokers create a topic that is requested by its name
            topics = self.consumer.list_topics(timeout=_ANSWER_S).topics
            if address.topic not in topics:
                names = [name for name in topics if not name.startswith("__")]
                is_far = not difflib.get_close_matches(address.topic, names, n=1, cutoff=0.5)
                hint = f"none of its {len(names)} topics has a similar name" if is_far else ""
                raise UnknownNameError(f"topic at {address.servers}", address.topic, names, hint)
            topic = topics[address.topic]
            if topic.error is not None:
                raise self.unreachable(topic.error.str())
            numbers = sorted(topic.partitions)
            if address.partition is not None:
                if address.partition not in numbers:
                    msg = f"topic {address.topic} has the partitions 0 to {len(numbers) - 1}"
                    raise ConfigError(msg)
                numbers = [address.partition]
            return {
                number: self.consumer.get_watermark_offsets(
                    TopicPartition(address.topic, number), timeout=_SILENCE_S
                )
                for number in numbers
            }
        except KafkaException as error:
            self.consumer.poll(0)  # calls the error callback for the errors so far
            raise self.unreachable(
                self._errors[-1] if self._errors else error.args[0].str()
            ) from None

    def unreachable(self, why: str) -> UnreachableError:
        """Return the error of a broker that does not answer or rejects the request."""
        return UnreachableError(
            f"the broker at {self.address.servers} does not answer ({self._shown(why)}); if it "
            "requires TLS or a login, set --kafka-option kafka.security.protocol=... "
            "(docs/kafka.md)"
        )

    def _shown(self, text: str) -> str:
        """Return a text of the client with hidden values of options, which may be secret."""
        for name, value in self._settings.items():
            if value and re.search("password|secret|key|token|credential", name):
                text = text.replace(value, f"({name})")
        return text


def _message(kafka_message: "KafkaMessage") -> Message:
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

    kind, timestamp_ms = kafka_message.timestamp()
    headers: Any = kafka_message.headers() or ()
    return Message(
        _bytes(kafka_message.value()),
        _bytes(kafka_message.key()),
        tuple((name, _bytes(value)) for name, value in headers),
        kafka_message.topic(),
        kafka_message.partition(),
        kafka_message.offset(),
        None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
    )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value

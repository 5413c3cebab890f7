# SPDX-License-Identifier: Apache-2.0
"""Messages of a topic as an input of commands: ``kafka://host:9092/topic?max=100``.

It is read once, up to what was there at the start: partition after partition, each in its order,
with keys, headers and times, as a file of records has them. Nothing is committed, and no topic is
created. The URL holds no credentials; security is told by options of Kafka's client under the names
that a pipeline's file has them (``kafka.security.protocol``).
"""

import difflib
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import msgspec

from changelane.conversion.message_files import Line, LineForm
from changelane.errors import ConfigError, MissingExtraError, UnknownNameError, UnreachableError
from changelane.message import Message
from changelane.pipeline.kafka import is_topic
from changelane.pipeline.yaml import hiding

if TYPE_CHECKING:
    from confluent_kafka import Message as KafkaMessage

SCHEME: Final = "kafka://"
_FORM: Final = "kafka://host:9092/topic?max=100&from=earliest"
_PORT: Final = 9092
_ANSWER_S: Final = 4.0
"""How long a first answer is waited for."""
_SILENCE_S: Final = 30.0
"""How long the next messages are waited for, once the broker answered."""
_MOST_AT_ONCE: Final = 500

_SECURITY: Final = (
    "give options of Kafka's client by --kafka-option, secrets from the environment: "
    "--kafka-option kafka.security.protocol=SASL_SSL --kafka-option kafka.sasl.mechanism=PLAIN "
    "--kafka-option kafka.sasl.username=NAME --kafka-option 'kafka.sasl.password=${PASSWORD}'"
)
_OWN: Final = {
    "bootstrap.servers": "the URL tells it",
    "enable.auto.commit": "nothing is committed",
    "enable.auto.offset.store": "nothing is committed",
    "auto.offset.reset": "the URL tells it: from=earliest or from=latest",
    "enable.partition.eof": "changelane sets it",
    "allow.auto.create.topics": "no topic is created",
}
_JAAS: Final = re.compile(
    r'\s*[\w.]*\.(?:Plain|Scram)LoginModule\s+required\s+((?:\w+\s*=\s*"[^"]*"\s*)+);?\s*'
)
_PAIR: Final = re.compile(r'(\w+)\s*=\s*"([^"]*)"')


class TopicAddress(msgspec.Struct, frozen=True):
    """What a URL of a topic tells.

    Attributes:
        servers: Addresses of brokers, with commas between them.
        topic: The topic.
        most: How many messages are read at most; ``None`` = the URL does not say.
        is_latest: Whether they are the last ones, and not the first.
        partition: The one partition that is read; ``None`` = all of them.
    """

    servers: str
    topic: str
    most: int | None = None
    is_latest: bool = False
    partition: int | None = None


def is_topic_url(path: str) -> bool:
    """Say whether an input is a topic, and no file."""
    return path.lower().startswith(SCHEME)


def address_of(url: str) -> TopicAddress:
    """Read the URL of a topic.

    Raises:
        ConfigError: It names no topic, holds credentials, or a parameter is wrong; values that may
            be secret are not quoted.
        UnknownNameError: A parameter is unknown; the nearest one is named.
    """
    place, _, query = url[len(SCHEME) :].partition("?")
    servers, _, topic = place.partition("/")
    if "@" in place:
        raise ConfigError(f"the URL of a topic holds no user and no password: {_SECURITY}")
    hosts = [host if re.search(r":\d+$", host) else f"{host}:{_PORT}" for host in _listed(servers)]
    if not hosts or not is_topic(topic):
        raise ConfigError(f"a topic is told as {_FORM}")
    told: dict[str, str] = {}
    known = {"max", "from", "partition"}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if "." in name:
            raise ConfigError(f"{name} does not stand in the URL of a topic: {_SECURITY}")
        if name not in known:
            raise UnknownNameError("parameter of a topic's URL", name, known)
        if name in told:
            raise ConfigError(f"the URL of the topic has {name} twice")
        told[name] = value
    start = told.get("from", "earliest")
    if start not in {"earliest", "latest"}:
        raise ConfigError("the URL of a topic says from=earliest or from=latest")
    return TopicAddress(
        ",".join(hosts),
        topic,
        _number(told, "max", 1),
        start == "latest",
        _number(told, "partition", 0),
    )


def _listed(servers: str) -> list[str]:
    return [host for host in servers.split(",") if host]


def _number(told: Mapping[str, str], name: str, least: int) -> int | None:
    text = told.get(name)
    if text is None:
        return None
    if re.fullmatch(r"[0-9]{1,12}", text) is None or int(text) < least:
        raise ConfigError(f"{name} in the URL of a topic is a whole number, at least {least}")
    return int(text)


def client_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Return options of a pipeline's Kafka clients in the words of librdkafka.

    The names are those of a pipeline's file (``kafka.`` before them may be left out); what Java's
    client is told by a JAAS text, and by stores in PEM, librdkafka has options of its own for.

    Raises:
        ConfigError: An option is not the user's to set, or librdkafka has none that does the same.
    """
    told = {name.removeprefix("kafka."): value for name, value in options.items()}
    if wrong := next((name for name in told if name in _OWN), None):
        raise ConfigError(f"--kafka-option {wrong} is not yours to set: {_OWN[wrong]}")
    if (jaas := told.pop("sasl.jaas.config", None)) is not None:
        found = _JAAS.fullmatch(jaas)
        pairs = {} if found is None else dict(_PAIR.findall(found.group(1)))
        if not {"username", "password"} <= pairs.keys():
            raise ConfigError(
                "--kafka-option sasl.jaas.config holds no user and password of PLAIN or SCRAM: "
                "give sasl.username and sasl.password, or what librdkafka needs for the mechanism"
            )
        told |= {"sasl.username": pairs["username"], "sasl.password": pairs["password"]}
    kind = told.pop("ssl.truststore.type", "")
    told.pop("ssl.truststore.password", None)
    if (store := told.pop("ssl.truststore.location", None)) is not None:
        if kind.upper() != "PEM" and not store.lower().endswith((".pem", ".crt")):
            raise ConfigError(
                "--kafka-option ssl.truststore.location must be a PEM file here (give it as "
                "ssl.ca.location): librdkafka reads no Java key stores"
            )
        told["ssl.ca.location"] = store
    return told


class TopicInput:
    """An opened topic.

    Attributes:
        form: What its messages are: records.
        size: How many messages are to be read.
        total: How many there are, by their offsets: those that compaction removed count, too.
    """

    form: Final = LineForm.RECORDS

    def __init__(self, client: "_Client", shares: "list[_Share]", total: int) -> None:
        self._client = client
        self._shares = shares
        self._count = 0
        self.size = sum(share.most for share in shares)
        self.total = total

    def position(self) -> int:
        """Return how many messages were read."""
        return self._count

    def __iter__(self) -> Iterator[Line]:
        """Yield the messages; the numbers of the lines count them.

        Raises:
            UnreachableError: The broker refuses, or does not answer any more.
        """
        for share in self._shares:
            for one in self._of(share):
                self._count += 1
                yield Line(self._count, b"", _message(one))

    def _of(self, share: "_Share") -> "Iterator[KafkaMessage]":
        from confluent_kafka import KafkaError, TopicPartition

        consumer, address = self._client.consumer, self._client.address
        consumer.assign([TopicPartition(address.topic, share.number, share.start)])
        left, heard = share.most, time.monotonic()
        while left:
            for one in consumer.consume(min(left, _MOST_AT_ONCE), 0.5):
                heard = time.monotonic()
                error = one.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                    return
                if error is not None:
                    raise self._client.refused(error.str())
                if (one.offset() or 0) >= share.end:
                    return  # it came after the start
                left -= 1
                yield one
            if time.monotonic() - heard > _SILENCE_S:
                raise self._client.refused(f"silent for {_SILENCE_S:.0f} s")


class _Share(msgspec.Struct, frozen=True):
    """What is read of a partition.

    Attributes:
        number: The partition.
        first: Its first offset.
        start: Where to begin.
        end: The offset behind its last message.
        most: How many messages to read at most.
    """

    number: int
    first: int
    start: int
    end: int
    most: int


def shares_of(
    offsets: Mapping[int, tuple[int, int]], most: int | None, *, is_latest: bool = False
) -> list[_Share]:
    """Return what is read of each partition: as much of each, where it has as much.

    Args:
        offsets: The first offset of each partition, and that behind its last message.
        most: How many messages are read in all; ``None`` = all.
        is_latest: The last ones of each partition, and not the first.
    """
    held = {number: end - first for number, (first, end) in offsets.items() if first < end}
    left = sum(held.values()) if most is None else most
    shares: dict[int, int] = {}
    for rank, number in enumerate(sorted(held, key=lambda number: (held[number], number))):
        shares[number] = min(held[number], -(-left // (len(held) - rank)))
        left -= shares[number]
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
    most: int | None = None,
) -> Iterator[TopicInput]:
    """Open a topic to read.

    Args:
        url: Its address.
        options: Options of Kafka's client; ``${NAME}`` in them is a variable.
        environment: The variables.
        most: How many messages are read where the URL does not say; ``None`` = all.

    Raises:
        ConfigError: The URL or an option is wrong, or there is no such topic or partition.
        UnreachableError: No broker answers, or it refuses.
        MissingExtraError: confluent-kafka is not installed.
    """
    address = address_of(url)
    raw = dict(options)
    with hiding(raw, environment) as told:
        client = _Client(address, client_settings(told))
    try:
        offsets = client.offsets()
        wanted = most if address.most is None else address.most
        shares = shares_of(offsets, wanted, is_latest=address.is_latest)
        yield TopicInput(client, shares, sum(end - first for first, end in offsets.values()))
    finally:
        client.consumer.close()


class _Client:
    """A consumer without a group of a topic's broker.

    Attributes:
        address: The topic.
        consumer: The consumer.
    """

    def __init__(self, address: TopicAddress, settings: Mapping[str, str]) -> None:
        """Make the consumer; it does not ask the broker yet.

        Raises:
            ConfigError: An option is wrong.
            MissingExtraError: confluent-kafka is not installed.
        """
        try:
            from confluent_kafka import Consumer, KafkaException
        except ImportError:
            raise MissingExtraError("confluent-kafka", "kafka") from None
        self.address = address
        self._settings = settings
        self._errors: list[str] = []
        own = {
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
            # the client wants a name of a group; nothing joins it, and nothing is committed
            self.consumer = Consumer({"group.id": "changelane", **settings, **own})
        except KafkaException as error:
            raise ConfigError(f"--kafka-option: {self._shown(error.args[0].str())}") from None

    def offsets(self) -> dict[int, tuple[int, int]]:
        """Return the first offset of each partition, and that behind its last message.

        Raises:
            ConfigError: There is no such topic or partition.
            UnreachableError: No broker answers, or it refuses.
        """
        from confluent_kafka import KafkaException, TopicPartition

        address = self.address
        try:
            # all of them: asked for one, some brokers create it
            topics = self.consumer.list_topics(timeout=_ANSWER_S).topics
            if address.topic not in topics:
                names = [name for name in topics if not name.startswith("__")]
                is_far = not difflib.get_close_matches(address.topic, names, n=1, cutoff=0.5)
                hint = f"topics there: {len(names)}, none with a like name" if is_far else ""
                raise UnknownNameError(f"topic at {address.servers}", address.topic, names, hint)
            found = topics[address.topic]
            if found.error is not None:
                raise self.refused(found.error.str())
            numbers = sorted(found.partitions)
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
            self.consumer.poll(0)  # tells of what it met on its way
            raise self.refused(self._errors[-1] if self._errors else error.args[0].str()) from None

    def refused(self, why: str) -> UnreachableError:
        """Return the error of a broker that does not answer, or refuses."""
        return UnreachableError(
            f"the broker at {self.address.servers} does not answer ({self._shown(why)}); where it "
            "asks for TLS or a login, give --kafka-option kafka.security.protocol=... "
            "(docs/kafka.md)"
        )

    def _shown(self, text: str) -> str:
        """Return what the client says without the values of options, which may be secret."""
        for name, value in self._settings.items():
            if value and re.search("password|secret|key|token|credential", name):
                text = text.replace(value, f"({name})")
        return text


def _message(one: "KafkaMessage") -> Message:
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

    kind, timestamp_ms = one.timestamp()
    headers: Any = one.headers() or ()
    return Message(
        _bytes(one.value()),
        _bytes(one.key()),
        tuple((name, _bytes(value)) for name, value in headers),
        one.topic(),
        one.partition(),
        one.offset(),
        None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
    )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value

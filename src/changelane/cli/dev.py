# SPDX-License-Identifier: Apache-2.0
"""``changelane dev``: local services for experiments."""

import contextlib
import signal
import sys
from types import ModuleType
from typing import Any, Final

import click

from changelane.conversion.message_files import Lines, open_input
from changelane.errors import ConfigError, MissingExtraError, UnreachableError
from changelane.message import Message

_WAIT_S: Final = 60
"""The timeout for a broker that is just starting, in seconds."""


@click.group()
def dev() -> None:
    """Start a local broker for experiments, create topics in it, and send messages to them.

    Never use it for data that must be kept.
    """


@dev.command()
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="The port to listen at; default: a free port.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="The number of partitions of automatically created topics.",
)
def broker(port: int | None, partitions: int) -> None:
    """Start a Kafka broker in one process, and print its address; Ctrl-C stops it.

    The broker is for experiments: one node without security, reachable only from this machine. Its
    topics are deleted when it stops. The first start downloads its jars (40 MB).
    """
    try:
        from changelane.spark.runtime.dev_broker import broker as started
    except ImportError as error:
        raise MissingExtraError(error.name or "pyspark", "spark") from None

    def end(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    with contextlib.suppress(ValueError):  # only the main thread may
        signal.signal(signal.SIGTERM, end)
    with (
        contextlib.suppress(KeyboardInterrupt),
        started(port=port, partitions=partitions) as broker,
    ):
        click.echo(broker.servers)
        click.echo("changelane: a broker for experiments; Ctrl-C stops it", err=True)
        code = broker.wait()
        raise click.ClickException(f"the broker exited unexpectedly (exit code {code})")


_servers = click.option(
    "--bootstrap-servers",
    "servers",
    metavar="HOST:PORT",
    default="localhost:9092",
    show_default=True,
    help="The address of a broker.",
)


@dev.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@_servers
@click.option(
    "--partitions",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="The number of partitions of each topic.",
)
def topic(names: tuple[str, ...], servers: str, partitions: int) -> None:
    """Create topics; existing topics stay unchanged."""
    kafka = _client("confluent_kafka.admin")
    admin = kafka.AdminClient(_settings(servers))
    existing_topics = _topics(admin, servers)
    new_topics = [kafka.NewTopic(name, partitions) for name in names if name not in existing_topics]
    futures = admin.create_topics(new_topics, operation_timeout=_WAIT_S) if new_topics else {}
    for name in names:
        if (answer := futures.get(name)) is None:
            click.echo(f"{name} exists")
            continue
        if (error := answer.exception(_WAIT_S)) is not None:
            raise ConfigError(f"topic {name} cannot be created: {_reason(error)}")
        click.echo(f"{name} created")


@dev.command()
@click.argument("file", metavar="FILE")
@click.option("--topic", "name", metavar="NAME", help="The topic for messages without a topic.")
@_servers
def send(file: str, name: str | None, servers: str) -> None:
    """Send the messages of FILE to their topics, in their order.

    A line of FILE is a record with topic, key, value and headers, or the value of a message (see
    convert); - is the standard input. Missing topics are created automatically if the broker does
    that.
    """
    producer = _client("confluent_kafka").Producer(
        _settings(servers) | {"enable.idempotence": True, "partitioner": "murmur2_random"}
    )
    _topics(producer, servers)
    failed: list[str] = []
    counts: dict[str, int] = {}
    with open_input(file) as source:
        for line in Lines(source.stream):
            if not isinstance(line.content, Message):
                raise ConfigError(f"line {line.number} of {file}: {line.content.reason}")
            message = line.content
            if (to := message.topic or name) is None:
                raise ConfigError(f"line {line.number} of {file} has no topic: set --topic")
            counts[to] = counts.get(to, 0) + 1
            _produce(producer, to, message, failed)
    producer.flush(_WAIT_S)
    for to, count in counts.items():
        click.echo(f"{to}: {count} messages sent")
    if failed or len(producer):
        reason = failed[0] if failed else f"the broker at {servers} does not answer"
        raise UnreachableError(f"{len(failed) + len(producer)} messages were not sent: {reason}")


def _produce(producer: Any, to: str, message: Message, failed: list[str]) -> None:
    """Pass a message to the producer, which adds the errors of its delivery to *failed*."""

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failed.append(str(error.str()))

    while True:
        try:
            producer.produce(
                to,
                message.value,
                message.key,
                headers=list(message.headers),
                on_delivery=delivered,
            )
        except BufferError:
            producer.poll(1)
        else:
            producer.poll(0)
            return


def _client(module: str) -> ModuleType:
    """Return a module of Kafka's client for Python."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(error.name or "confluent_kafka", "kafka") from None


def _settings(servers: str) -> dict[str, Any]:
    # the client logs each attempt to connect
    return {"bootstrap.servers": servers, "log_level": 0}


def _topics(client: Any, servers: str) -> set[str]:
    """Return the topics of a broker, as soon as it answers."""
    try:
        return set(client.list_topics(timeout=_WAIT_S).topics)
    except _client("confluent_kafka").KafkaException as error:
        raise UnreachableError(f"{servers} does not answer: {_reason(error)}") from None


def _reason(error: BaseException) -> str:
    """Return the text of an error of Kafka's client."""
    reason = error.args[0] if error.args else error
    return str(reason.str()) if hasattr(reason, "str") else str(reason)

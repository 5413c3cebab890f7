# SPDX-License-Identifier: Apache-2.0
"""``changelane dev``: services on this machine, to try things out with."""

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
"""How long a broker that starts at the same moment is waited for."""


@click.group()
def dev() -> None:
    """Start services on this machine to try things out with; never for data that anybody needs.

    A broker, topics in it, and messages in these.
    """


@dev.command()
@click.option(
    "--port", type=click.IntRange(1, 65535), metavar="N", help="Where it listens; a free port."
)
@click.option(
    "--partitions",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="How many partitions a topic has that comes by itself.",
)
def broker(port: int | None, partitions: int) -> None:
    """Start a Kafka broker of one process, and print its address; Ctrl-C stops it.

    It is for trying things out: one node without any security, which only this machine reaches,
    and all its topics are gone when it stops. The first start fetches its jars (40 MB).
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
        click.echo("changelane: a broker to try things out with; Ctrl-C stops it", err=True)
        code = broker.wait()
        raise click.ClickException(f"the broker ended by itself (exit code {code})")


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
    help="How many partitions each topic has.",
)
def topic(names: tuple[str, ...], servers: str, partitions: int) -> None:
    """Make topics; those that are there stay as they are."""
    kafka = _client("confluent_kafka.admin")
    admin = kafka.AdminClient(_settings(servers))
    existing_topics = _topics(admin, servers)
    new_topics = [kafka.NewTopic(name, partitions) for name in names if name not in existing_topics]
    futures = admin.create_topics(new_topics, operation_timeout=_WAIT_S) if new_topics else {}
    for name in names:
        if (answer := futures.get(name)) is None:
            click.echo(f"{name} is there")
            continue
        if (error := answer.exception(_WAIT_S)) is not None:
            raise ConfigError(f"topic {name} cannot be made: {_words(error)}")
        click.echo(f"{name} is made")


@dev.command()
@click.argument("file", metavar="FILE")
@click.option("--topic", "name", metavar="NAME", help="The topic of messages that name none.")
@_servers
def send(file: str, name: str | None, servers: str) -> None:
    """Send the messages of FILE to their topics, in their order.

    A line of FILE is a record with topic, key, value and headers, or the value of a message (see
    convert); - is the standard input. Topics that are not there come by themselves, where the
    broker makes them.
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
                raise ConfigError(f"line {line.number} of {file} names no topic: give --topic")
            counts[to] = counts.get(to, 0) + 1
            _produce(producer, to, message, failed)
    producer.flush(_WAIT_S)
    for to, count in counts.items():
        click.echo(f"{to}: {count} messages sent")
    if failed or len(producer):
        words = failed[0] if failed else f"the broker at {servers} does not answer"
        raise UnreachableError(f"{len(failed) + len(producer)} messages were not sent: {words}")


def _produce(producer: Any, to: str, message: Message, failed: list[str]) -> None:
    """Hand a message to the producer; what becomes of it is known at the end."""

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
    # its log repeats each attempt to connect
    return {"bootstrap.servers": servers, "log_level": 0}


def _topics(client: Any, servers: str) -> set[str]:
    """Return the topics of a broker, once it answers."""
    try:
        return set(client.list_topics(timeout=_WAIT_S).topics)
    except _client("confluent_kafka").KafkaException as error:
        raise UnreachableError(f"{servers} does not answer: {_words(error)}") from None


def _words(error: BaseException) -> str:
    """Return what Kafka's client says of an error."""
    reason = error.args[0] if error.args else error
    return str(reason.str()) if hasattr(reason, "str") else str(reason)

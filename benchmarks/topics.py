# SPDX-License-Identifier: Apache-2.0
"""Topics of a local broker: create, fill and read them."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import orders
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

_TIMEOUT_S: Final = 30.0


def create(servers: str, topic: str, partitions: int) -> None:
    """Create a topic."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 3})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(_TIMEOUT_S)


def producer(servers: str, linger_ms: int = 50) -> Producer:
    """Return a producer for many messages."""
    return Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": linger_ms,
            # else a request that is sent again changes the order of messages
            "enable.idempotence": True,
            "log_level": 3,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 262_144,
        }
    )


def send(sender: Producer, topic: str, value: bytes, key: bytes, partition: int) -> None:
    """Send a message, as soon as the queue of the producer has room for it."""
    while True:
        try:
            sender.produce(topic, value, key, partition)
        except BufferError:
            sender.poll(0.1)
        else:
            return


class Stream:
    """A topic that gets changes of orders, in which each key has its partition.

    Args:
        servers: The broker.
        topic: The topic, which is created.
        partitions: Its number of partitions.
    """

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        self.servers = servers
        self.topic = topic
        self._partitions = partitions
        self._producer = producer(servers, linger_ms=5)
        self._count = 0
        create(servers, topic, partitions)

    def send(self, changes: Iterable[orders.Change]) -> None:
        """Send changes; the broker has all of them at the end."""
        for op, before, after in changes:
            self._count += 1
            row = after or before or {}
            key = row[orders.KEY]
            value = orders.message(op, before, after, self._count, "orders")
            text = msgspec.json.encode({orders.KEY: key})
            send(self._producer, self.topic, value, text, key % self._partitions)
        self._producer.flush()


def values(servers: str, topic: str) -> Iterator[bytes]:
    """Yield the values of all messages of a topic, each partition in its order."""
    consumer: Any = Consumer({"bootstrap.servers": servers, "group.id": "benchmark"})
    numbers = consumer.list_topics(topic, _TIMEOUT_S).topics[topic].partitions
    for number in numbers:
        partition = TopicPartition(topic, number, 0)
        _, end = consumer.get_watermark_offsets(partition, _TIMEOUT_S)
        consumer.assign([partition])
        while end and consumer.position([partition])[0].offset < end:
            for message in consumer.consume(10_000, 1.0):
                if message.error():
                    raise SystemExit(f"{topic}: {message.error()}")
                if message.value() is not None:
                    yield message.value()
    consumer.close()

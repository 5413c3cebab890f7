"""Topics of the tests' broker: create, fill, read, truncate and recreate them."""

import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from changelane import Message


class Topics:
    """A client of the broker at *servers*; :meth:`name` gives each test its own topics."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self._settings = {"bootstrap.servers": servers, "log_level": 0}
        self._admin = AdminClient(self._settings)

    def name(self, word: str) -> str:
        return f"{word}.{uuid.uuid4().hex[:8]}"

    def create(self, name: str, partitions: int = 1, **config: str) -> str:
        """Create a topic; return its name."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(name, partitions, 1, config=settings)
        until = time.monotonic() + 60
        while True:
            try:
                self._admin.create_topics([new])[name].result(30)
            except Exception:
                # the deletion of a topic of this name may not be complete
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)
            else:
                return name

    def grow(self, name: str, partitions: int) -> None:
        """Give a topic more partitions."""
        self._admin.create_partitions([NewPartitions(name, partitions)])[name].result(30)

    def names(self) -> set[str]:
        """Return the names of all topics except the internal ones."""
        topics = self._admin.list_topics(timeout=30).topics
        return {name for name in topics if not name.startswith("__")}

    def delete(self, name: str) -> None:
        self._admin.delete_topics([name])[name].result(30)

    def send(self, name: str, messages: Iterable[Message]) -> None:
        """Produce messages into their partitions (0 if they have none), in order."""
        failed: list[Any] = []
        producer = Producer({**self._settings, "linger.ms": 5, "enable.idempotence": True})
        for one in messages:
            producer.produce(
                name,
                one.value,
                one.key,
                one.partition or 0,
                headers=list(one.headers),
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
            producer.poll(0)
        assert producer.flush(60) == 0
        assert not failed, failed[0]

    def send_in_transactions(
        self, name: str, transactions: Iterable[tuple[Iterable[Message], bool]]
    ) -> None:
        """Produce messages in transactions; the flag is whether to commit or abort."""
        producer = Producer({**self._settings, "transactional.id": uuid.uuid4().hex})
        producer.init_transactions(60)
        for messages, is_committed in transactions:
            producer.begin_transaction()
            for one in messages:
                producer.produce(name, one.value, one.key, one.partition or 0)
            assert producer.flush(60) == 0
            (producer.commit_transaction if is_committed else producer.abort_transaction)(60)

    def delete_before(self, name: str, before: dict[int, int]) -> None:
        """Delete the messages before an offset of each partition, as retention does."""
        targets = [TopicPartition(name, number, offset) for number, offset in before.items()]
        for future in self._admin.delete_records(targets).values():
            future.result(30)

    def read(self, name: str) -> list[Message]:
        """Return the messages of a topic, by partition and offset."""
        consumer = Consumer(
            {**self._settings, "group.id": uuid.uuid4().hex, "fetch.wait.max.ms": 20}
        )
        messages: list[Message] = []
        try:
            partitions = consumer.list_topics(name, timeout=30).topics[name].partitions
            left: dict[int, int] = {}
            for number in partitions:
                low, high = consumer.get_watermark_offsets(TopicPartition(name, number), 30)
                if low < high:
                    left[number] = high
            consumer.assign([TopicPartition(name, number, 0) for number in left])
            until = time.monotonic() + 120
            while left and time.monotonic() < until:
                for one in consumer.consume(5000, 0.2):
                    assert one.error() is None, one.error()
                    headers = tuple((key, value) for key, value in one.headers() or ())
                    messages.append(
                        Message(
                            one.value(), one.key(), headers, name, one.partition(), one.offset()
                        )
                    )
                for position in consumer.position([TopicPartition(name, n) for n in left]):
                    if position.offset >= left[position.partition]:
                        del left[position.partition]
            assert not left, left
        finally:
            consumer.close()
        return sorted(messages, key=lambda one: (one.partition, one.offset))


def spread(values: Sequence[bytes], partitions: int) -> list[Message]:
    """Return a message for each value, with the partitions in turn."""
    return [Message(value, partition=number % partitions) for number, value in enumerate(values)]

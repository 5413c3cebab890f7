# SPDX-License-Identifier: Apache-2.0
"""The first messages of a source, read by the driver for a look: few, and for a short time.

Nothing is committed anywhere: the consumer has no group, and asks for no topic that is not there.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from changelane.conversion.message_files import LineForm, read_record, recognise
from changelane.errors import ConfigError, DecodeError
from changelane.message import Message
from changelane.pipeline.files_source import FilesSource
from changelane.pipeline.kafka import KafkaSource, Offsets, client_options, partitions
from changelane.spark.sources.file_listing import Listing, list_folder, root_of
from changelane.spark.sources.file_reader import Piece
from changelane.spark.sources.file_tasks import first_of
from changelane.spark.sources.kafka import COMMITTED
from changelane.spark.sources.kafka_admin import kinds

MOST: Final = 100
"""How many messages of a topic, or lines of a file, are read."""
MOST_FILES: Final = 5
_POLL_MS: Final = 500
_BYTES: Final = "org.apache.kafka.common.serialization.ByteArrayDeserializer"

First = dict[str, list[Message | DecodeError]]
"""The first messages by topic or file, or why there is none where one was expected."""


def of_topics(
    spark: SparkSession, source: KafkaSource, starts: Offsets, ends: Offsets, limit_s: float
) -> First:
    """Return messages of topics, those of each partition in their order.

    Args:
        spark: The session.
        source: How the topics are read.
        starts: Where to begin in each partition.
        ends: Where to end.
        limit_s: After how many seconds no more are waited for.

    Raises:
        ConfigError: The broker refuses, or an option is wrong; options are never quoted.
    """
    found: First = {topic: [] for topic in starts}
    shares = {topic: max(1, MOST // max(1, len(told))) for topic, told in starts.items()}
    left = {
        (topic, number): (start, ends[topic][number])
        for topic, number, start in partitions(starts)
        if start < ends[topic][number]
    }
    if not left:
        return found
    jvm: Any = spark._jvm
    consumer = None
    try:
        consumer = _consumer(jvm, source)
        places = {place: jvm.org.apache.kafka.common.TopicPartition(*place) for place in left}
        consumer.assign(_list(jvm, places.values()))
        for place, (start, _) in left.items():
            consumer.seek(places[place], start)
        counts = dict.fromkeys(left, 0)
        until = time.monotonic() + limit_s
        while left and time.monotonic() < until:
            for record in consumer.poll(jvm.java.time.Duration.ofMillis(_POLL_MS)).iterator():
                place = str(record.topic()), int(record.partition())
                if place in left and counts[place] < shares[place[0]]:
                    found[place[0]].append(_message(record))
                    counts[place] += 1
            done = [
                place
                for place, (_, end) in left.items()
                if counts[place] >= shares[place[0]] or int(consumer.position(places[place])) >= end
            ]
            consumer.pause(_list(jvm, [places[place] for place in done]))
            for place in done:
                del left[place]
    except Py4JJavaError as error:
        raise ConfigError(f"messages cannot be read ({kinds(error)})") from None
    finally:
        if consumer is not None:
            consumer.close(jvm.java.time.Duration.ofSeconds(1))
    return {topic: sorted(told, key=_place) for topic, told in found.items()}


def _consumer(jvm: Any, source: KafkaSource) -> Any:
    told = {**client_options(COMMITTED), **client_options(source.spark)}
    told |= {
        "bootstrap.servers": source.servers,
        "key.deserializer": _BYTES,
        "value.deserializer": _BYTES,
        "enable.auto.commit": "false",
        "allow.auto.create.topics": "false",
        "auto.offset.reset": "none",
        "max.poll.records": str(MOST),
    }
    told.pop("group.id", None)
    properties = jvm.java.util.Properties()
    for name, value in told.items():
        properties.setProperty(name, value)
    return jvm.org.apache.kafka.clients.consumer.KafkaConsumer(properties)


def _list(jvm: Any, values: Any) -> Any:
    found = jvm.java.util.ArrayList()
    for one in values:
        found.add(one)
    return found


def _message(record: Any) -> Message:
    def told(raw: Any) -> bytes | None:
        return None if raw is None else bytes(raw)

    headers = tuple((str(one.key()), told(one.value())) for one in record.headers().toArray())
    return Message(
        told(record.value()),
        told(record.key()),
        headers,
        str(record.topic()),
        int(record.partition()),
        int(record.offset()),
    )


def _place(one: Message | DecodeError) -> tuple[int, int]:
    if isinstance(one, DecodeError):
        return 0, 0
    return one.partition or 0, one.offset or 0


def of_files(spark: SparkSession, source: FilesSource) -> tuple[Listing, First]:
    """Return which files there are, and the first lines of some of them.

    Raises:
        ConfigError: There is no such folder.
    """
    root = root_of(spark, source)
    told = list_folder(spark, source, root)
    found: First = {}
    for file in sorted(told.files)[:MOST_FILES]:
        piece = Piece(file.path, root.topic(file.path), file.size)
        try:
            held = _messages(first_of(spark, source, piece, MOST), source)
        except DecodeError as error:
            held = [error]
        except OSError as error:
            raise ConfigError(f"cannot read {file.path}: {error.strerror}") from None
        found[file.path.rpartition("/")[2]] = held
    return told, found


def _messages(told: list[bytes], source: FilesSource) -> list[Message | DecodeError]:
    """Return the messages of lines, as the source makes them (``files``)."""
    form = None if source.contents == "auto" else LineForm(source.contents)
    found: list[Message | DecodeError] = []
    for number, line in enumerate(told):
        if not line or line.isspace():
            continue
        form = form or recognise(line)
        message = Message(line)
        if form is LineForm.RECORDS:
            try:
                message = read_record(line)
            except DecodeError as error:
                found.append(error)
                continue
        place: Mapping[str, Any] = {"topic": "lines", "partition": 0}
        if message.offset is None:
            place = {**place, "offset": number}
        found.append(msgspec.structs.replace(message, **place))
    return found

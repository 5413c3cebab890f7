# SPDX-License-Identifier: Apache-2.0
"""A sample of a source: its first messages, read by the driver within a short time.

Nothing is committed: the consumer has no group, and creates no topic.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from changelane.conversion.message_files import LineFormat, line_format_of, read_record
from changelane.data_files.row_file import kind_of
from changelane.errors import ConfigError, DecodeError
from changelane.message import Message
from changelane.pipeline.files_source import FilesSource
from changelane.pipeline.kafka_offsets import Offsets, partitions
from changelane.pipeline.kafka_source import KafkaSource, client_options
from changelane.spark.sources.file_listing import Listing, list_folder, root_of
from changelane.spark.sources.file_reader import Piece
from changelane.spark.sources.file_tasks import read_first_lines
from changelane.spark.sources.kafka import READ_COMMITTED
from changelane.spark.sources.kafka_admin import exception_names

MAX_MESSAGES: Final = 100
"""The maximum number of messages of a topic, or lines of a file, that are read."""
MAX_FILES: Final = 5
_POLL_MS: Final = 500
_BYTES: Final = "org.apache.kafka.common.serialization.ByteArrayDeserializer"

Samples = dict[str, list[Message | DecodeError]]
"""The first messages by topic or file, or the error in place of a message."""


def sample_topics(
    spark: SparkSession, source: KafkaSource, starts: Offsets, ends: Offsets, limit_s: float
) -> Samples:
    """Return messages of topics; messages of a partition are in order.

    Args:
        spark: The session.
        source: The options of the source.
        starts: The start offset of each partition.
        ends: The end offset of each partition.
        limit_s: The time limit for messages, seconds.

    Raises:
        ConfigError: The broker denies access, or an option is wrong; options are never quoted.
    """
    samples: Samples = {topic: [] for topic in starts}
    shares = {
        topic: max(1, MAX_MESSAGES // max(1, len(partition_starts)))
        for topic, partition_starts in starts.items()
    }
    open_ranges = {
        (topic, number): (start, ends[topic][number])
        for topic, number, start in partitions(starts)
        if start < ends[topic][number]
    }
    if not open_ranges:
        return samples
    jvm: Any = spark._jvm
    consumer = None
    try:
        consumer = _consumer(jvm, source)
        topic_partitions = {
            coordinates: jvm.org.apache.kafka.common.TopicPartition(*coordinates)
            for coordinates in open_ranges
        }
        consumer.assign(_java_list(jvm, topic_partitions.values()))
        for coordinates, (start, _) in open_ranges.items():
            consumer.seek(topic_partitions[coordinates], start)
        counts = dict.fromkeys(open_ranges, 0)
        deadline_s = time.monotonic() + limit_s
        while open_ranges and time.monotonic() < deadline_s:
            for record in consumer.poll(jvm.java.time.Duration.ofMillis(_POLL_MS)).iterator():
                coordinates = str(record.topic()), int(record.partition())
                if coordinates in open_ranges and counts[coordinates] < shares[coordinates[0]]:
                    samples[coordinates[0]].append(_message(record))
                    counts[coordinates] += 1
            finished = [
                coordinates
                for coordinates, (_, end) in open_ranges.items()
                if counts[coordinates] >= shares[coordinates[0]]
                or int(consumer.position(topic_partitions[coordinates])) >= end
            ]
            consumer.pause(
                _java_list(jvm, [topic_partitions[coordinates] for coordinates in finished])
            )
            for coordinates in finished:
                del open_ranges[coordinates]
    except Py4JJavaError as error:
        raise ConfigError(f"messages cannot be read ({exception_names(error)})") from None
    finally:
        if consumer is not None:
            consumer.close(jvm.java.time.Duration.ofSeconds(1))
    return {topic: sorted(messages, key=_coordinates) for topic, messages in samples.items()}


def _consumer(jvm: Any, source: KafkaSource) -> Any:
    consumer_options = {**client_options(READ_COMMITTED), **client_options(source.spark_options)}
    consumer_options |= {
        "bootstrap.servers": source.bootstrap_servers,
        "key.deserializer": _BYTES,
        "value.deserializer": _BYTES,
        "enable.auto.commit": "false",
        "allow.auto.create.topics": "false",
        "auto.offset.reset": "none",
        "max.poll.records": str(MAX_MESSAGES),
    }
    consumer_options.pop("group.id", None)
    properties = jvm.java.util.Properties()
    for name, value in consumer_options.items():
        properties.setProperty(name, value)
    return jvm.org.apache.kafka.clients.consumer.KafkaConsumer(properties)


def _java_list(jvm: Any, values: Any) -> Any:
    java_list = jvm.java.util.ArrayList()
    for element in values:
        java_list.add(element)
    return java_list


def _message(record: Any) -> Message:
    def bytes_or_none(raw: Any) -> bytes | None:
        return None if raw is None else bytes(raw)

    headers = tuple(
        (str(header.key()), bytes_or_none(header.value())) for header in record.headers().toArray()
    )
    return Message(
        bytes_or_none(record.value()),
        bytes_or_none(record.key()),
        headers,
        str(record.topic()),
        int(record.partition()),
        int(record.offset()),
    )


def _coordinates(message: Message | DecodeError) -> tuple[int, int]:
    if isinstance(message, DecodeError):
        return 0, 0
    return message.partition or 0, message.offset or 0


def sample_files(spark: SparkSession, source: FilesSource) -> tuple[Listing, Samples]:
    """Return the files of the folder, and the first lines of some of them.

    Raises:
        ConfigError: The folder does not exist.
    """
    root = root_of(spark, source)
    listing = list_folder(spark, source, root)
    samples: Samples = {}
    for file in sorted(listing.files)[:MAX_FILES]:
        piece = Piece(file.path, root.topic(file.path), file.size)
        try:
            lines = read_first_lines(spark, source, piece, MAX_MESSAGES)
            form = None if source.line_format == "auto" else LineFormat(source.line_format)
            if kind_of(file.path):
                form = LineFormat.RECORD
            file_sample = _messages(lines, form)
        except DecodeError as error:
            file_sample = [error]
        except OSError as error:
            raise ConfigError(f"cannot read {file.path}: {error.strerror}") from None
        samples[file.path.rpartition("/")[2]] = file_sample
    return listing, samples


def _messages(lines: list[bytes], form: LineFormat | None) -> list[Message | DecodeError]:
    """Return the messages of lines, as the ``files`` source reads them."""
    messages: list[Message | DecodeError] = []
    for number, line in enumerate(lines):
        if not line or line.isspace():
            continue
        form = form or line_format_of(line)
        message = Message(line)
        if form is LineFormat.RECORD:
            try:
                message = read_record(line)
            except DecodeError as error:
                messages.append(error)
                continue
        coordinates: Mapping[str, Any] = {"topic": "lines", "partition": 0}
        if message.offset is None:
            coordinates = {**coordinates, "offset": number}
        messages.append(msgspec.structs.replace(message, **coordinates))
    return messages

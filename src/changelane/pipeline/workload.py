# SPDX-License-Identifier: Apache-2.0
"""The amount of data of a run, estimated before Spark starts.

The JVM takes the options of its compiler at its start: a run with little data spends a third of its
processor time with compiling code that then runs for a moment. An estimate decides about time
only, so that anything unknown counts as much data.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from changelane.pipeline.config import Pipeline
from changelane.pipeline.preflight import local_path

MAX_MESSAGES: Final = 400_000
"""Up to so many messages for tables, compiling without optimization takes less processor time."""
MAX_SENT_MESSAGES: Final = 1_000_000
"""The same for messages that are sent to topics: most of the work is Python's."""
MAX_BYTES: Final = 100 << 20
"""The same for the size of input files, and of the tables: their keys are read."""
_MAX_FILES: Final = 5_000
_COMPRESSED: Final = (".gz", ".zst", ".bz2", ".parquet", ".avro")
_COMPRESSION: Final = 8
_BROKER_S: Final = 2.0


def is_small(pipeline: Pipeline, master: str | None = None) -> bool:
    """Return whether a run certainly reads little, and then ends.

    Args:
        pipeline: The pipeline.
        master: Spark's master, if the user sets it.
    """
    source = pipeline.source
    if pipeline.options.trigger != "available_now" or not (master or "local").startswith("local"):
        return False
    if source.type_name in {"files", "segments"}:
        is_input_small = _is_small_folders(source.folders, newer_than=_last_commit(pipeline))
    elif source.required_topics:
        limit = MAX_SENT_MESSAGES if pipeline.sink.is_topics else MAX_MESSAGES
        is_input_small = _has_few_messages(source.brokers, source.required_topics, limit)
    else:
        is_input_small = False  # the amount is known only to the database or the service
    return is_input_small and (
        pipeline.sink.is_topics or _is_small_folders((pipeline.folder,), newer_than=0.0)
    )


def _last_commit(pipeline: Pipeline) -> float:
    """Return the time of the last change of the checkpoint, seconds since 1970; 0 if unknown."""
    path = local_path(pipeline.checkpoint)
    if path is None:
        return 0.0
    try:
        return max((entry.stat().st_mtime for entry in path.iterdir()), default=0.0)
    except OSError:
        return 0.0


def _is_small_folders(folders: tuple[str, ...], *, newer_than: float) -> bool:
    """Return whether the files of local folders that changed since a time are small together."""
    total = 0
    for folder in folders:
        path = local_path(folder)
        if path is None:
            return False
        for count, file in enumerate(_files(path)):
            try:
                status = file.stat()
            except OSError:
                continue
            if status.st_mtime >= newer_than:
                is_compressed = file.name.endswith(_COMPRESSED)
                total += status.st_size * (_COMPRESSION if is_compressed else 1)
            if total > MAX_BYTES or count > _MAX_FILES:
                return False
    return True


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    for folder, _, names in os.walk(path):
        for name in names:
            yield Path(folder, name)


def _has_few_messages(brokers: str, topics: tuple[str, ...], limit: int) -> bool:
    """Return whether topics store few messages, also those that were read already."""
    try:
        from confluent_kafka import Consumer, KafkaException, TopicPartition
    except ImportError:
        return False
    settings = {"bootstrap.servers": brokers, "group.id": "changelane", "log_level": 0}
    consumer = Consumer(settings | {"enable.auto.commit": False})
    total = 0
    try:
        for topic in topics:
            partitions = consumer.list_topics(topic, timeout=_BROKER_S).topics[topic].partitions
            if not partitions:
                return False  # no such topic, or no permission
            for partition in partitions:
                place = TopicPartition(topic, partition)
                low, high = consumer.get_watermark_offsets(place, timeout=_BROKER_S)
                total += high - low
                if total > limit:
                    return False
    except KafkaException:
        return False
    finally:
        consumer.close()
    return True

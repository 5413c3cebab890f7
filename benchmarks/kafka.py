# SPDX-License-Identifier: Apache-2.0
"""From topic to topic in another format, against Spark's own copy of the same topic.

Usage: kafka.py [--messages N] [--target FORMAT] [--flat]

Three jobs over the same messages of a topic with 4 partitions on ``local[2]``, each a stream with
``available_now``: reading only; Spark's identity, which sends key and value as they are; and
changelane. ``--flat`` runs changelane a second time over ten times fewer messages, for its memory.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import messages
import topics
from measuring import largest_kb, local_spark, processor_seconds

from changelane.pipeline.config import parse
from changelane.spark.runtime.dev_broker import broker
from changelane.spark.sinks.delivery import run_to_topics

PARTITIONS: Final = 4
PER_TRIGGER: Final = 250_000


class Duration(NamedTuple):
    """Wall time and processor time of a job, seconds."""

    wall: float
    processor: float


def fill(servers: str, topic: str, count: int) -> int:
    """Send messages to a new topic; return the mean size of a value, bytes."""
    topics.create(servers, topic, PARTITIONS)
    producer = topics.producer(servers)
    size = 0
    pairs = messages.messages(messages.ORDERS, "orders", count, keys=300_000, with_schema=False)
    for number, (key, value) in enumerate(pairs):
        size += len(value)
        topics.send(producer, topic, value, key, number % PARTITIONS)
    producer.flush()
    return size // count


def measured(run: Callable[[], object]) -> Duration:
    """Run a job; return how long it took."""
    wall, processor = time.monotonic(), processor_seconds()
    run()
    return Duration(time.monotonic() - wall, processor_seconds() - processor)


def stream(spark: Any, servers: str, topic: str) -> Any:
    """Return the stream of a topic, as changelane reads it."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", PER_TRIGGER)
        .load()
    )


def copy(spark: Any, servers: str, topic: str, target: str | None, folder: Path) -> None:
    """Read a topic; send its messages as they are to a new topic, if one is named."""
    records = stream(spark, servers, topic).select("key", "value")
    if target is None:
        writer = records.writeStream.format("noop")
    else:
        topics.create(servers, target, PARTITIONS)
        writer = records.writeStream.format("kafka").option("kafka.bootstrap.servers", servers)
        writer = writer.option("topic", target)
    writer = writer.option("checkpointLocation", str(folder / f"checkpoint-{target}"))
    writer.trigger(availableNow=True).start().awaitTermination()


def convert(spark: Any, servers: str, topic: str, format: str, folder: Path) -> None:
    """Send a topic to a new one in another format."""
    topics.create(servers, f"{topic}-converted", PARTITIONS)
    configuration = {
        "name": f"bench-{topic}",
        "source": {
            "type": "kafka",
            "bootstrap_servers": servers,
            "topics": topic,
            "format": "debezium-json",
            "max_offsets_per_trigger": PER_TRIGGER,
        },
        "sink": {
            "type": "kafka",
            "bootstrap_servers": servers,
            "topic": f"{topic}-converted",
            "format": format,
            "on_loss": "ignore",
            "checkpoint": str(folder / f"state-{topic}"),
        },
    }
    report = run_to_topics(spark, parse(configuration))
    assert not report.quarantined, report.quarantined  # noqa: S101 - else the figure is wrong


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--target", default="canal-json")
    parser.add_argument("--flat", action="store_true")
    arguments = parser.parse_args()
    with broker() as kafka, tempfile.TemporaryDirectory() as name:
        servers, folder = kafka.servers, Path(name)
        spark = local_spark("delta", "kafka")
        fill(servers, "warm", 20_000)
        copy(spark, servers, "warm", "warm-copy", folder)
        convert(spark, servers, "warm", arguments.target, folder)
        size = fill(servers, "full", arguments.messages)
        print(f"{arguments.messages:,} messages of {size} B, {PARTITIONS} partitions, local[2]")
        read = measured(lambda: copy(spark, servers, "full", None, folder))
        identity = measured(lambda: copy(spark, servers, "full", "full-copy", folder))
        if arguments.flat:
            fill(servers, "few", arguments.messages // 10)
            convert(spark, servers, "few", arguments.target, folder)
            few_kb = largest_kb()
        ours = measured(lambda: convert(spark, servers, "full", arguments.target, folder))
        for name_of_job, took in (
            ("reading only", read),
            ("Spark's identity", identity),
            (f"to {arguments.target}", ours),
        ):
            rate = arguments.messages / took.wall / 1000
            per_processor = arguments.messages / took.processor / 1000
            print(
                f"{name_of_job:<20} {took.wall:7.1f} s {rate:7.1f} k/s   "
                f"{took.processor:7.1f} s of processor time, {per_processor:7.1f} k/s"
            )
        print(
            f"ratio to identity: {identity.wall / ours.wall:.2f} in time, "
            f"{identity.processor / ours.processor:.2f} in processor time"
        )
        if arguments.flat:
            print(f"largest Python worker: {few_kb:,} kB, then {largest_kb():,} kB")
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())

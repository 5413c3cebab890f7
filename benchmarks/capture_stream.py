# SPDX-License-Identifier: Apache-2.0
"""Measures streaming updates: into a capture log, and by Kafka Connect into a topic.

A PostgreSQL has a table of orders. The capture runs and is warm when transactions of 1,000 updates
begin; the time ends when all of them are in manifests, or in the topic. Processor time is that of
the capture's processes, or of the worker and the broker; the database is not included.
"""

import argparse
import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from capture_snapshot import changelane, count_records, fill_postgres, open_server, write_pipeline
from process_tree import command_of, descendants, running_processes

_TRANSACTION: Final = 1000
_WARM: Final = 30_000
_LIMIT_S: Final = 900.0
_POLL_S: Final = 0.05
"""The pause between two counts: an error of the measured time, and load beside it, seconds."""


class Rate(NamedTuple):
    """The figures of a stream.

    Attributes:
        seconds: The time from the first update to the last one in the log or topic.
        processor: Processor time of the processes that captured them, seconds.
        peak_mb: The largest resident memory of the engine, or of the worker, megabytes.
    """

    seconds: float
    processor: float
    peak_mb: int


def update(server: Any, rows: int, count: int) -> None:
    """Update rows of the table, in transactions of 1,000 rows.

    Args:
        server: The PostgreSQL.
        rows: The number of rows of the table.
        count: The number of updates.
    """
    with server.connect("shop") as connection:
        for start in range(0, count, _TRANSACTION):
            first = start % rows + 1
            connection.execute(
                "UPDATE orders SET quantity = quantity + 1 WHERE id BETWEEN %s AND %s",
                [first, first + _TRANSACTION - 1],
            )


def _stream(
    update_rows: Callable[[int], None],
    read_count: Callable[[], int],
    read_processor: Callable[[], float],
    count: int,
) -> tuple[float, float]:
    """Return the time and the processor time of updates after some others."""
    _await(lambda: update_rows(_WARM), read_count, read_count() + _WARM)
    before, processor, start = read_count(), read_processor(), time.monotonic()
    _await(lambda: update_rows(count), read_count, before + count)
    return time.monotonic() - start, read_processor() - processor


def _await(run: Callable[[], None], read_count: Callable[[], int], count: int) -> None:
    run()
    deadline_s = time.monotonic() + _LIMIT_S
    while read_count() < count:
        if time.monotonic() > deadline_s:
            raise SystemExit(f"{read_count():,} of {count:,} changes after {_LIMIT_S:.0f} s")
        time.sleep(_POLL_S)


def embedded(server: Any, rows: int, count: int, folder: Path) -> Rate:
    """Capture updates into a capture log."""
    file = write_pipeline(
        server,
        "postgres",
        folder,
        snapshot="none",
        slot="changelane_embedded",
        publish_interval="500ms",
    )
    job = changelane(server, folder, "capture", str(file))
    try:
        _await(
            lambda: None,
            lambda: '"state":"running"' in job.log.read_text("utf-8"),
            count=1,
        )
        seconds, processor = _stream(
            lambda updates: update(server, rows, updates),
            lambda: count_records(folder),
            lambda: job.processor_seconds,
            count,
        )
        job.check()
    finally:
        usage = job.stop()
    _drop_slot(server, "changelane_embedded")
    return Rate(seconds, processor, usage.peak_mb["engine"])


def by_connect(server: Any, rows: int, count: int, folder: Path) -> Rate:
    """Capture updates by Kafka Connect into a topic."""
    from confluent_kafka import Consumer, TopicPartition
    from connect_worker import ConnectWorker

    from changelane.spark.runtime.dev_broker import broker

    with broker() as kafka, ConnectWorker(kafka.servers, "postgres", folder, heap="512m") as worker:
        worker.add_secrets({"shop-postgres.database.password": server.password})
        file = write_pipeline(
            server,
            "postgres",
            folder,
            snapshot="none",
            slot="changelane_connect",
            connect_url=worker.url,
            bootstrap_servers=kafka.servers,
            connect_secrets_file=str(worker.secrets_file),
        )
        changelane(server, folder, "capture", str(file)).wait()
        pids = _kafka_processes()
        consumer = Consumer({"bootstrap.servers": kafka.servers, "group.id": "benchmark"})

        def read_count() -> int:
            partition = TopicPartition("shop.public.orders", 0)
            with contextlib.suppress(Exception):  # the first update creates the topic
                return int(consumer.get_watermark_offsets(partition, 5.0)[1])
            return 0

        def read_processor() -> float:
            processes = running_processes()
            return sum(processes[pid].processor for pid in pids)

        seconds, processor = _stream(
            lambda updates: update(server, rows, updates), read_count, read_processor, count
        )
        consumer.close()
        peak_mb = _peak_mb(worker.pid)
    _drop_slot(server, "changelane_connect")
    return Rate(seconds, processor, peak_mb)


def _kafka_processes() -> list[int]:
    """Return the broker and the worker among the children of this process."""
    names = (b"kafka.Kafka", b"ConnectDistributed")
    return [
        pid
        for pid in descendants(os.getpid(), running_processes())
        if any(name in command_of(pid) for name in names)
    ]


def _peak_mb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) >> 10


def _drop_slot(server: Any, name: str) -> None:
    """Drop a slot as soon as nobody reads it."""
    deadline_s = time.monotonic() + 60
    with server.connect("shop") as connection:
        while connection.execute(
            "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND active", [name]
        ).fetchone():
            if time.monotonic() > deadline_s:
                raise SystemExit(f"the slot {name} is still in use")
            time.sleep(0.2)
        connection.execute("SELECT pg_drop_replication_slot(%s)", [name])


@contextlib.contextmanager
def _shop(rows: int) -> Iterator[tuple[Any, Path]]:
    """Start a server with a table of some rows, and create a folder."""
    with open_server("postgres") as server, tempfile.TemporaryDirectory() as name:
        fill_postgres(server, rows)
        yield server, Path(name)


def _print(name: str, count: int, rate: Rate) -> None:
    print(
        f"{name}: {count:,} updates in {rate.seconds:.1f} s, {count / rate.seconds:,.0f} a second, "
        f"{rate.processor:.1f} s of processors, {rate.peak_mb:,} MB"
    )


def main(arguments_of_command: Sequence[str]) -> None:
    """Measure both, one after the other."""
    parser = argparse.ArgumentParser("stream", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="rows of the table")
    parser.add_argument("--updates", type=int, default=200_000)
    arguments = parser.parse_args(arguments_of_command)
    captures = {"embedded": embedded, "Kafka Connect": by_connect}
    with _shop(arguments.rows) as (server, folder):
        for name, capture in captures.items():
            (folder / name).mkdir()
            rate = capture(server, arguments.rows, arguments.updates, folder / name)
            _print(name, arguments.updates, rate)


def measure_memory(arguments_of_command: Sequence[str]) -> None:
    """Measure the memory of the engine with some updates, and with ten times as many."""
    parser = argparse.ArgumentParser("memory", description=measure_memory.__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help="rows of the table")
    parser.add_argument("--updates", type=int, default=100_000)
    arguments = parser.parse_args(arguments_of_command)
    with _shop(arguments.rows) as (server, folder):
        for count in (arguments.updates, 10 * arguments.updates):
            (folder / str(count)).mkdir()
            rate = embedded(server, arguments.rows, count, folder / str(count))
            _print("embedded", count, rate)

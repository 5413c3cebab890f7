# SPDX-License-Identifier: Apache-2.0
"""The same topic into tables, by Flink and by changelane, from a program's start to its end."""

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import flink
import orders
import pipelines
import readers
import topics
from process_tree import Job, Usage

PARTITIONS: Final = 4
CHECKPOINT_S: Final = 10.0


class Source(NamedTuple):
    """The topic that a peer reads.

    Attributes:
        servers: The broker.
        topic: The topic.
        interval_s: The interval of commits of an endless run, seconds; ``None`` = the run ends with
            the last message of its start.
    """

    servers: str
    topic: str
    interval_s: float | None = None


class Peer(NamedTuple):
    """A program that applies a topic to a table.

    Attributes:
        kind: The format of the table.
        command: Returns the command, from the source and a folder for the tables and other files.
        table: The folder of the table in that folder.
        needs_flink: Whether it is a job of Flink.
        reads_latest: Whether a row is visible by ``latest_tables`` once the change log has it.
    """

    kind: str
    command: Callable[[Source, Path], list[str]]
    table: str
    needs_flink: bool
    reads_latest: bool = False


def changelane(kind: str, options: Mapping[str, Any] | None = None) -> Peer:
    """Return a pipeline of changelane as a peer."""

    def command(source: Source, folder: Path) -> list[str]:
        more = dict(options or {})
        if source.interval_s is not None:
            interval = f"{round(source.interval_s * 1000)}ms"
            more |= {"trigger": "continuous", "interval": interval}
        reader = pipelines.source_topic(source.servers, source.topic)
        configuration = pipelines.lake(reader, kind, folder / "lake", more)
        return pipelines.run(configuration, folder / "run.yaml")

    return Peer(kind, command, f"lake/tables/{orders.TABLE}", needs_flink=False)


def spark_job(kind: str) -> Peer:
    """Return a job of Spark alone (``spark_load.py``) as a peer; it has no endless run."""

    def command(source: Source, folder: Path) -> list[str]:
        script = Path(__file__).with_name("spark_load.py")
        arguments = (kind, source.servers, source.topic, PARTITIONS, folder)
        return [sys.executable, str(script), *map(str, arguments)]

    return Peer(kind, command, f"lake/tables/{orders.TABLE}", needs_flink=False)


def flink_job(kind: str) -> Peer:
    """Return a job of Flink as a peer."""

    def command(source: Source, folder: Path) -> list[str]:
        reader = flink.source_topic(
            source.servers, source.topic, is_bounded=source.interval_s is None
        )
        statements = flink.load(reader, kind, folder / "lake")
        settings = flink.settings(checkpoint_s=source.interval_s or CHECKPOINT_S)
        return flink.Script(settings, statements).command(folder / "job.json")

    database = "shop.db/orders" if kind == "paimon" else "shop/orders"
    return Peer(kind, command, f"lake/{database}", needs_flink=True)


PEERS: Final = {
    "Flink to Paimon": flink_job("paimon"),
    "Flink to Iceberg": flink_job("iceberg"),
    "changelane to Iceberg": changelane("iceberg"),
    "changelane to Delta": changelane("delta"),
}
SPARK_PEERS: Final = {
    "Spark by hand, Iceberg": spark_job("iceberg"),
    "Spark by hand, Delta": spark_job("delta"),
}
"""The peers of runs that end, beside those of :data:`PEERS`."""
LATEST: Final = {
    f"newest rows of {kind}": changelane(
        kind.lower(), {"merge": "deferred", "merge_seconds": 20}
    )._replace(reads_latest=True)
    for kind in ("Iceberg", "Delta")
}
"""The peers of the race ``latency`` whose events are read before their merge."""


def load(
    count: int, folder: Path, servers: str, topic: str, *, with_flink: bool
) -> Iterator[tuple[str, Usage]]:
    """Apply a topic of changes to a new table; yield each peer with its figures."""
    shop = orders.Shop()
    topics.Stream(servers, topic, PARTITIONS).send(shop.changes(count))
    expected = readers.store(shop.rows(), folder / f"{topic}, expected")
    for name, peer in (PEERS | SPARK_PEERS).items():
        if peer.needs_flink and not with_flink:
            continue
        own = folder / f"{topic}, {name}"
        own.mkdir()
        usage = Job(peer.command(Source(servers, topic), own), own / "log").wait()
        check(name, peer, own, expected)
        yield name, usage


def check(name: str, peer: Peer, folder: Path, expected: Path) -> None:
    """Compare the table of a peer with the rows that result from the changes.

    Args:
        name: The name of the peer.
        peer: The peer.
        folder: The folder of its tables.
        expected: The folder of the rows.

    Raises:
        SystemExit: The tables differ.
    """
    connection = readers.connect()
    kind, table = peer.kind, folder / peer.table
    if kind == "paimon":  # DuckDB cannot read it: Flink writes its rows to files
        kind, table = "json", folder / "rows"
        statements = flink.export(peer.kind, folder / "lake", table)
        script = flink.Script(flink.settings(is_batch=True), statements)
        Job(script.command(folder / "export.json"), folder / "export.log").wait()
    rows = readers.table(kind, table)
    readers.check_equal(connection, name, rows, readers.table("parquet", expected))

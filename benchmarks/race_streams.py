# SPDX-License-Identifier: Apache-2.0
"""Endless runs: the processor time of small batches, and the latency of single messages.

Both figures are of a run that is warm, without its start.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import orders
import readers
import topics
from process_tree import Job
from race_tables import LATEST, PEERS, Source, check

SMALL_BATCH: Final = 1000
_POLL_S: Final = 0.5
_LIMIT_S: Final = 1800.0
_WARM_S: Final = 30.0
_READER: Final = Path(__file__).with_name("latest_reader.py")


class Commit(NamedTuple):
    """A commit of a table.

    Attributes:
        at: The time at which it became visible, seconds since 1970.
        rows: The number of rows that the table has with it, if it only gets inserts.
    """

    at: float
    rows: int


class Small(NamedTuple):
    """The figures of small batches.

    Attributes:
        processor: Processor time of a batch, seconds; the idle time between batches is included.
        load: Processor time until the table had its first rows, seconds.
    """

    processor: float
    load: float


class Latency(NamedTuple):
    """The figures of a steady stream.

    Attributes:
        median: Seconds from the send of a message until a commit contains it.
        high: The same, of the slowest hundredth.
        processor: Processor time of a second of the stream, seconds.
        commits: The number of commits.
        read_median: The same as the median, until a reader of the newest rows has counted the
            message: it reads again and again, one read after the other; ``None`` = nothing reads.
        reads: The number of these reads.
    """

    median: float
    high: float
    processor: float
    commits: int
    read_median: float | None = None
    reads: int = 0


def commits(kind: str, folder: Path) -> list[Commit]:
    """Return the commits of a table that only gets inserts, in their order."""
    return sorted(_COMMITS[kind](folder)) if folder.exists() else []


def _delta(folder: Path) -> Iterator[Commit]:
    rows: dict[str, int] = {}
    for path in sorted((folder / "_delta_log").glob("*.json")):
        for line in path.read_text("utf-8").splitlines():
            action = json.loads(line)
            if removed := action.get("remove"):
                rows.pop(removed["path"], None)
            if added := action.get("add"):
                rows[added["path"]] = json.loads(added["stats"])["numRecords"]
        yield Commit(path.stat().st_mtime, sum(rows.values()))


def _iceberg(folder: Path) -> Iterator[Commit]:
    for at, summary in _summaries(folder):
        yield Commit(at, int(summary["total-records"]))


def _summaries(folder: Path) -> Iterator[tuple[float, dict[str, str]]]:
    """Yield the time and the current snapshot's summary of each version of an Iceberg table."""
    for path in (folder / "metadata").glob("v*.metadata.json"):
        metadata = json.loads(path.read_text("utf-8"))
        current = metadata.get("current-snapshot-id")
        for snapshot in metadata.get("snapshots", ()):
            if snapshot["snapshot-id"] == current:
                yield path.stat().st_mtime, snapshot["summary"]


def _paimon(folder: Path) -> Iterator[Commit]:
    rows = 0
    paths = (folder / "snapshot").glob("snapshot-*")
    for path in sorted(paths, key=lambda path: int(path.name.rpartition("-")[2])):
        snapshot = json.loads(path.read_text("utf-8"))
        if snapshot["commitKind"] == "APPEND":
            rows += snapshot["deltaRecordCount"]
            yield Commit(path.stat().st_mtime, rows)


def _logged(kind: str, lake: Path) -> list[Commit]:
    """Return the commits of the change log, by their offsets in a topic of one partition."""
    return sorted(
        Commit(at, end)
        for at, details in _LOG_DETAILS[kind](lake / "_changelane" / "log")
        for ends in json.loads(details).get("offsets", {}).values()
        for end in ends.values()
    )


def _delta_details(folder: Path) -> Iterator[tuple[float, str]]:
    for path in (folder / "_delta_log").glob("*.json"):
        for line in path.read_text("utf-8").splitlines():
            commit = json.loads(line).get("commitInfo", {})
            yield path.stat().st_mtime, commit.get("userMetadata", "{}")


def _iceberg_details(folder: Path) -> Iterator[tuple[float, str]]:
    for at, summary in _summaries(folder):
        yield at, summary.get("changelane.details", "{}")


_LOG_DETAILS: Final[dict[str, Callable[[Path], Iterator[tuple[float, str]]]]] = {
    "delta": _delta_details,
    "iceberg": _iceberg_details,
}
_COMMITS: Final[dict[str, Callable[[Path], Iterator[Commit]]]] = {
    "delta": _delta,
    "iceberg": _iceberg,
    "paimon": _paimon,
}


def small_batches(
    name: str, folder: Path, servers: str, *, rows: int, rounds: int, period_s: float
) -> Small:
    """Load a table, then send 1,000 changes every *period_s* seconds; return the figures.

    Args:
        name: The peer.
        folder: A folder for its files, which is created.
        servers: The broker.
        rows: The number of rows of the table.
        rounds: How many small batches are measured, after three others.
        period_s: The interval between two batches, and the interval of the peer's commits.
    """
    peer, shop = PEERS[name], orders.Shop()
    folder.mkdir()
    stream = topics.Stream(servers, f"small-{name.replace(' ', '-')}", partitions=2)
    stream.send(shop.inserts(rows))
    job = Job(peer.command(Source(servers, stream.topic, period_s), folder), folder / "log")
    try:
        wait_for_rows(peer.kind, folder / peer.table, rows, job)
        load = job.processor_seconds
        for _ in range(3):
            _send(stream, shop.updates(SMALL_BATCH), period_s)
        before = job.processor_seconds
        for _ in range(rounds):
            _send(stream, shop.updates(SMALL_BATCH), period_s)
        time.sleep(period_s)  # the last batch was sent at the end of the period
        processor = job.processor_seconds - before
        time.sleep(3 * period_s)  # so that nothing is pending at the end
        job.check()
    finally:
        job.stop()
    expected = readers.store(shop.rows(), folder / "expected")
    check(name, peer, folder, expected)
    return Small(processor / rounds, load)


def _send(stream: topics.Stream, changes: Iterator[orders.Change], period_s: float) -> None:
    started = time.monotonic()
    stream.send(changes)
    time.sleep(max(0.0, started + period_s - time.monotonic()))


def latency(
    name: str, folder: Path, servers: str, *, rate: int, seconds: int, interval_s: float
) -> Latency:
    """Send inserts at a steady rate; return the figures of the second half.

    Args:
        name: The peer.
        folder: A folder for its files, which is created.
        servers: The broker.
        rate: Messages a second.
        seconds: The length of the stream.
        interval_s: The interval of the peer's commits.
    """
    peer, shop = (PEERS | LATEST)[name], orders.Shop()
    folder.mkdir()
    stream = topics.Stream(servers, f"latency-{name.replace(' ', '-')}", partitions=1)
    stream.send(shop.inserts(rate))
    job = Job(peer.command(Source(servers, stream.topic, interval_s), folder), folder / "log")
    jobs, counted = [job], folder / "counted"
    sent_at: list[float] = []
    try:
        wait_for_rows(peer.kind, folder / peer.table, rate, job)
        if peer.reads_latest:
            reader = [sys.executable, str(_READER), str(folder / "run.yaml"), orders.TABLE]
            jobs.append(Job([*reader, peer.kind], counted))
            time.sleep(_WARM_S)
        started, pieces = time.time(), 50
        middle = 0.0
        for piece in range(seconds * pieces):
            time.sleep(max(0.0, started + piece / pieces - time.time()))
            if piece == seconds * pieces // 2:
                middle = sum(running.processor_seconds for running in jobs)
            stream.send(shop.inserts(rate // pieces))
            sent_at.append(time.time())
        used = sum(running.processor_seconds for running in jobs) - middle
        total = rate + len(sent_at) * (rate // pieces)
        wait_for_rows(peer.kind, folder / peer.table, total, job)
        for running in jobs:
            running.check()
    finally:
        for running in jobs:
            running.stop()
    check(name, peer, folder, readers.store(shop.rows(), folder / "expected"))
    measured = range(len(sent_at) // 2, len(sent_at))

    def delays_by(visible: list[Commit]) -> list[float]:
        return [
            _visible_at(visible, rate + (piece + 1) * (rate // pieces)) - sent_at[piece]
            for piece in measured
        ]

    def count_of(visible: list[Commit]) -> int:
        return sum(sent_at[measured[0]] <= commit.at <= sent_at[-1] for commit in visible)

    table = commits(peer.kind, folder / peer.table)
    if peer.reads_latest:
        table = _logged(peer.kind, folder / "lake")
    delays = delays_by(table)
    high = statistics.quantiles(delays, n=100)[-1]
    result = Latency(statistics.median(delays), high, used / (seconds / 2), count_of(table))
    if not peer.reads_latest:
        return result
    reads = _counts(counted)
    read_median = statistics.median(delays_by(reads))
    return result._replace(read_median=read_median, reads=count_of(reads))


def _counts(file: Path) -> list[Commit]:
    """Return the counts of a reader."""
    lines = file.read_text("utf-8").splitlines()
    return [Commit(*json.loads(line)) for line in lines if line.startswith("[")]


def _visible_at(table: list[Commit], rows: int) -> float:
    return next(commit.at for commit in table if commit.rows >= rows)


def wait_for_rows(kind: str, table: Path, rows: int, job: Job, limit_s: float = _LIMIT_S) -> None:
    """Wait until a table that only gets inserts has some rows.

    Raises:
        SystemExit: The job ended, or the table has fewer rows after *limit_s*.
    """
    deadline = time.monotonic() + limit_s
    while max((commit.rows for commit in commits(kind, table)), default=0) < rows:
        job.check()
        if time.monotonic() > deadline:
            raise SystemExit(f"the table has less than {rows:,} rows after {limit_s:,.0f} s")
        time.sleep(_POLL_S)

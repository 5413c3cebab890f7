# SPDX-License-Identifier: Apache-2.0
"""Measures the time from a commit in PostgreSQL to the commit of a Delta table that has its rows.

An endless ``changelane run`` captures a table of orders, while transactions of inserts and updates
come at a steady rate. The figures are those of the inserts of the second half.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from capture_snapshot import changelane, fill_postgres, open_server, write_pipeline
from race_streams import commits, wait_for_rows

_FIRST_ROWS: Final = 10_000
_TRANSACTIONS: Final = 25
"""Transactions of a second."""
_LIMIT_S: Final = 300.0


def _change(connection: Any, first: int, count: int) -> float:
    """Insert and update rows in one transaction; return the time of its commit."""
    with connection.transaction():
        connection.execute(
            "INSERT INTO orders SELECT %s + n, 1, 'new', 'a note', 1, 1, 1, '2024-02-29', now(), 1 "
            "FROM generate_series(0, %s) n",
            [first, count - 1],
        )
        connection.execute(
            "UPDATE orders SET quantity = quantity + 1 WHERE id BETWEEN %s AND %s",
            [first % _FIRST_ROWS + 1, first % _FIRST_ROWS + count],
        )
    return time.time()


def delays(server: Any, table: Path, job: Any, *, rate: int, seconds: int) -> list[float]:
    """Return the delays of the inserts of the second half, seconds."""
    count = rate // _TRANSACTIONS // 2
    committed_at: dict[int, float] = {}
    rows = _FIRST_ROWS
    with server.connect("shop") as connection:
        start_s = time.time()
        for number in range(seconds * _TRANSACTIONS):
            # a steady rate, whatever the transactions take
            time.sleep(max(0.0, start_s + number / _TRANSACTIONS - time.time()))
            at = _change(connection, rows + 1, count)
            rows += count
            committed_at[rows] = at
    wait_for_rows("delta", table, rows, job, _LIMIT_S)
    table_commits = commits("delta", table)
    return [
        next(commit.at for commit in table_commits if commit.rows >= inserted) - at
        for inserted, at in committed_at.items()
        if at >= start_s + seconds / 2
    ]


def main(arguments_of_command: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser("latency", description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=500, help="changes of a second")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--interval", default="2 seconds", help="options.interval")
    parser.add_argument("--publish-interval", default="200ms", help="source.publish_interval")
    arguments = parser.parse_args(arguments_of_command)
    with open_server("postgres") as server, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill_postgres(server, _FIRST_ROWS)
        file = write_pipeline(
            server,
            "postgres",
            folder,
            publish_interval=arguments.publish_interval,
            options={"trigger": "continuous", "interval": arguments.interval},
        )
        job = changelane(server, folder, "run", str(file))
        table = folder / "lake" / "tables" / "shop.public.orders"
        try:
            wait_for_rows("delta", table, _FIRST_ROWS, job, _LIMIT_S)
            before = job.processor_seconds
            values = delays(server, table, job, rate=arguments.rate, seconds=arguments.seconds)
            processor = job.processor_seconds - before
        finally:
            usage = job.stop()
        hundredths = statistics.quantiles(values, n=100)
        print(
            f"{arguments.rate} changes a second, interval {arguments.interval}, "
            f"publish_interval {arguments.publish_interval}: "
            f"p50 {hundredths[49]:.2f} s, p95 {hundredths[94]:.2f} s; "
            f"{processor:.1f} s of processors for {arguments.seconds} s, {usage.peak_mb}"
        )

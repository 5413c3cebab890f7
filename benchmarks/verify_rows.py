# SPDX-License-Identifier: Apache-2.0
"""Measures `changelane verify` on a table whose rows are equal on both sides.

Usage: verify_rows.py [--product mariadb] [--rows 1000000] [--rate 500]

A real server is started, as in the tests, with the table of orders of ``capture_snapshot.py``. A
run captures it and stays active, while rows change at a steady rate; the table is compared once.
Any difference is an error. So is a row that is not proven, if no rows change.
"""

import argparse
import contextlib
import json
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

from capture_snapshot import changelane, fill_mariadb, fill_postgres, open_server, write_pipeline
from process_tree import Job

_LOAD_TIMEOUT_S: Final = 1800
_TRANSACTIONS: Final = 10
"""Transactions of a second."""
_LARGEST_UNPROVEN_SHARE: Final = 0.01


def wait_for_batch(run: Job) -> None:
    """Wait until the run has applied a batch: the first load is one."""
    deadline = time.monotonic() + _LOAD_TIMEOUT_S
    while time.monotonic() < deadline:
        run.check()
        if '"batch"' in run.log.read_text(errors="replace"):
            return
        time.sleep(1)
    raise SystemExit("the tables do not have the rows in time")


def update_statement(server: Any, product: str) -> Callable[[int, int], None]:
    """Return the function that updates rows from a first key on, in one transaction."""
    if product == "mariadb":
        text = "UPDATE shop.orders SET quantity = quantity + 1 WHERE id BETWEEN {} AND {}"
        return lambda first, last: server.run(text.format(first, last))
    connection = server.connect("shop")
    text = "UPDATE orders SET quantity = quantity + 1 WHERE id BETWEEN %s AND %s"
    return lambda first, last: connection.execute(text, [first, last])


class Workload:
    """Updates rows at a steady rate, from one end of the table to the other, until it is ended."""

    def __init__(self, server: Any, product: str, rows: int, rate: int) -> None:
        self.updated = 0
        self._update = update_statement(server, product)
        self._rows = rows
        self._count = max(1, rate // _TRANSACTIONS)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        start_s, number = time.monotonic(), 0
        while not self._is_over.wait(max(0.0, start_s + number / _TRANSACTIONS - time.monotonic())):
            # every 97th piece of the table, so that the updates reach all chunks
            first = number * 97 * self._count % self._rows + 1
            self._update(first, first + self._count - 1)
            self.updated += self._count
            number += 1


def main() -> None:
    """Load, compare, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--product", choices=("mariadb", "postgres"), default="mariadb")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=0, help="rows that change in a second")
    arguments = parser.parse_args()
    product, rows, rate = arguments.product, arguments.rows, arguments.rate
    with open_server(product) as server, tempfile.TemporaryDirectory() as name:
        (fill_mariadb if product == "mariadb" else fill_postgres)(server, rows)
        folder = Path(name)
        file = write_pipeline(
            server,
            product,
            folder,
            snapshot="spark",
            publish_interval="1 second",
            # an idle server sends no position before the next heartbeat
            heartbeat_interval="2 seconds",
            options={"trigger": "continuous", "interval": "2 seconds"},
        )
        run = changelane(server, folder, "run", str(file))
        updated = 0
        try:
            wait_for_batch(run)
            with contextlib.ExitStack() as stack:
                workload = Workload(server, product, rows, rate) if rate else None
                if workload is not None:
                    stack.enter_context(workload)
                report_file = folder / "report.json"
                verify = ["verify", str(file), "--json", str(report_file)]
                usage = changelane(server, folder, *verify, log="verify.txt").wait()
                run.check()
            updated = workload.updated if workload else 0
        finally:
            run.stop()
        (table,) = json.loads(report_file.read_bytes())["tables"]
    unproven = table["unproven_share"]
    if table["differences"] or table["row_count"] != rows:
        raise SystemExit(f"{table['outcome']}: {len(table['differences'])} differences")
    if unproven > (_LARGEST_UNPROVEN_SHARE if rate else 0):
        raise SystemExit(f"{unproven:.2%} of the rows are not proven")
    print(
        f"{product}: {rows:,} rows, {updated:,} updates meanwhile, 0 differences, {unproven:.3%} "
        f"not proven, {table['duration_s']:.1f} s for the table, {usage.wall:.1f} s and "
        f"{usage.processor:.1f} s of processors in all"
    )


if __name__ == "__main__":
    main()

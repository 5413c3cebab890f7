# SPDX-License-Identifier: Apache-2.0
"""The first load of a table: inserts from files, by ``changelane run`` and by ``apply_changes``.

Usage: load.py FOLDER LAKE FORMAT   (the program of ``apply_changes`` itself)

Each way has processes and a table of its own, and the settings that a user gets without choosing
any: ``session()`` and ``run`` derive the heap from the memory of the machine.
"""

import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import orders
import pipelines
import readers
from process_tree import Job, Usage

ROWS_PER_FILE: Final = 500_000


def write_messages(folder: Path, rows: int) -> int:
    """Write files of debezium-json with one insert per key; return their size, bytes."""
    choice = random.Random(7)  # noqa: S311 - the same rows each time
    row = orders.Orders().row
    size = 0
    for first in range(0, rows, ROWS_PER_FILE):
        path = folder / f"orders-{first // ROWS_PER_FILE:04}.jsonl"
        with path.open("wb") as file:
            for key in range(first, min(first + ROWS_PER_FILE, rows)):
                after = row(key, choice.getrandbits(64))
                file.write(orders.message("c", None, after, key + 1, "orders") + b"\n")
        size += path.stat().st_size
    return size


def apply_files(folder: str, lake: str, kind: str) -> None:
    """Load the files with ``apply_changes``, in the default session."""
    from changelane.spark import apply_changes, decode, session

    spark = session("first load", lakes=[kind])
    spark.sparkContext.setLogLevel("OFF")
    messages = spark.read.text(folder).selectExpr("CAST(value AS BINARY) AS value")
    keys = {name: tuple(columns) for name, columns in pipelines.KEYS.items()}
    events = decode(
        messages, "debezium-json", options=pipelines.FORMAT_OPTIONS, keys=keys, images=False
    )
    report = apply_changes(events, lake, table_format=kind)
    if report.quarantined or report.failed:
        raise SystemExit(f"some changes were not applied: {report}")
    spark.stop()


def measure(rows: int, kinds: Sequence[str]) -> None:
    """Load the rows in each way into each table format; print the figures and check the tables."""
    connection = readers.connect()
    source = Path(tempfile.mkdtemp())
    try:
        size = write_messages(source, rows)
        expected = readers.totals(connection, readers.json_lines(source / "*.jsonl"))
        if expected[0] != rows:
            raise SystemExit(f"the files have {expected[0]} rows and not {rows}")
        print(f"\nload: {rows:,} inserts, {size >> 20:,} MB in {source}", flush=True)
        for way in ("run", "apply_changes"):
            for kind in kinds:
                folder = Path(tempfile.mkdtemp())
                lake = folder / "lake"
                usage = Job(_command(way, source, lake, kind, folder), folder / "log").wait()
                found = readers.totals(
                    connection, readers.table(kind, lake / "tables" / orders.TABLE)
                )
                if found != expected:
                    raise SystemExit(f"{kind}, {way}: {found} in the table, and not {expected}")
                show(f"{kind}: {way}", rows, usage)
                shutil.rmtree(folder)
    finally:
        shutil.rmtree(source, ignore_errors=True)


def _command(way: str, source: Path, lake: Path, kind: str, folder: Path) -> list[str]:
    if way == "apply_changes":
        return [sys.executable, __file__, str(source), str(lake), kind]
    configuration = pipelines.lake(pipelines.source_files(source), kind, lake)
    return pipelines.run(configuration, folder / "load.yaml")


def show(what: str, rows: int, usage: Usage) -> None:
    """Print the figures of a load."""
    memory = ", ".join(f"{name} {size:,} MB" for name, size in usage.peak_mb.items())
    print(
        f"{what:<24} {usage.wall:7.1f} s {rows / usage.wall:>9,.0f} rows/s "
        f"{usage.processor:7.1f} s of processors; peak memory: {memory}",
        flush=True,
    )


if __name__ == "__main__":
    apply_files(*sys.argv[1:])

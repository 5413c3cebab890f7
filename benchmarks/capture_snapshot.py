# SPDX-License-Identifier: Apache-2.0
"""Measures the first load of a database by readers (``snapshot: spark``) and by Debezium's engine.

A real server is started, as in the tests, with a table of orders (10 columns, about 120 bytes a
row). Each load is a program of its own, ``changelane capture --until-now`` into an empty capture
log; its start is included. Both must have all rows.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from process_tree import Job, Usage

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

_COLUMNS: Final = (
    "id bigint PRIMARY KEY, customer int NOT NULL, state varchar(12), note varchar(80), "
    "price decimal(12,2), weight double precision, tax real, placed date, {at}, quantity int"
)
_VALUES: Final = (
    "{n}, {n} % 5000, 'shipped', {note}, {n} * 0.25, {n} / 7e0, {n} / 3e0, '2024-02-29', "
    "'2024-02-29 12:34:56.123456', {n} % 9"
)


def fill_mariadb(server: Any, rows: int) -> None:
    """Create the table in the database ``shop`` of a MariaDB."""
    values = _VALUES.format(n="seq", note="concat('order number ', seq, repeat('.', 20))")
    server.run(
        "CREATE DATABASE shop",
        "USE shop",
        f"CREATE TABLE shop.orders ({_COLUMNS.format(at='at datetime(6)')})",
        f"INSERT INTO shop.orders SELECT {values} FROM seq_1_to_{rows}",  # noqa: S608 - no input of a user
    )


def fill_postgres(server: Any, rows: int) -> None:
    """Create the table in the database ``shop`` of a PostgreSQL."""
    values = _VALUES.format(n="n", note="'order number ' || n || repeat('.', 20)")
    with server.connect() as connection:
        connection.execute("CREATE DATABASE shop")
    with server.connect("shop") as connection:
        connection.execute(f"CREATE TABLE orders ({_COLUMNS.format(at='at timestamp')})")
        connection.execute(
            "INSERT INTO orders SELECT v.id, customer, state, note, price, weight, tax, "  # noqa: S608 - the same
            "placed::date, at::timestamp, quantity "
            f"FROM (SELECT {values} FROM generate_series(1, {rows}) n) AS v "
            "(id, customer, state, note, price, weight, tax, placed, at, quantity)"
        )
        connection.execute("CREATE PUBLICATION changelane_shop FOR ALL TABLES")
        connection.execute("ANALYZE orders")


def write_pipeline(server: Any, product: str, folder: Path, **parts: Any) -> Path:
    """Write a pipeline that captures the database ``shop`` into Delta tables; return its file.

    Args:
        server: The server.
        product: The type of the source.
        folder: The folder of the pipeline.
        parts: More options of the source, and ``options`` of the pipeline.
    """
    options = parts.pop("options", {})
    source = {
        "type": product,
        "host": server.host,
        "port": server.port,
        "database": "shop",
        "user": server.user,
        "password": "${BENCHMARK_PASSWORD}",
        "tables": ["public.*" if product == "postgres" else "shop.*"],
        **parts,
    }
    if "connect_url" not in source:
        source["segments"] = str(folder / "log")
    if product == "postgres":
        source["publication"] = "changelane_shop"
    sink = {"type": "delta", "path": str(folder / "lake")}
    file = folder / "shop.yaml"
    pipeline = {"name": "shop", "source": source, "sink": sink, "options": options}
    file.write_text(json.dumps(pipeline))
    return file


def changelane(server: Any, folder: Path, *arguments: str, log: str = "log.txt") -> Job:
    """Start a command with the password of a server, whose output goes to a file of the folder."""
    environment = {"BENCHMARK_PASSWORD": server.password, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "changelane", *arguments]
    return Job(command, folder / log, {**os.environ, **environment})


def measure(server: Any, product: str, snapshot: str, readers: int, folder: Path) -> Usage:
    """Take one first load; return its figures."""
    slot = {"slot": f"changelane_{snapshot}"} if product == "postgres" else {}
    file = write_pipeline(
        server, product, folder, snapshot=snapshot, snapshot_readers=readers, **slot
    )
    return changelane(server, folder, "capture", str(file), "--until-now").wait()


def count_records(folder: Path) -> int:
    """Return the number of records in the segments of a capture log."""
    manifests = (folder / "log" / "manifests").glob("*.json")
    return sum(
        segment["record_count"]
        for manifest in manifests
        for segment in json.loads(manifest.read_bytes())["segments"]
    )


def open_server(product: str) -> Any:
    """Return a server of the tests, to be started by a ``with`` statement."""
    if product == "mariadb":
        from mariadb_server import MariadbServer

        return MariadbServer()
    from postgres_server import PostgresServer

    return PostgresServer()


def main(arguments_of_command: Sequence[str]) -> None:
    """Measure both, one after the other."""
    parser = argparse.ArgumentParser("snapshot", description=__doc__.splitlines()[0])
    parser.add_argument("--product", choices=("mariadb", "postgres"), default="mariadb")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--readers", type=int, default=2)
    arguments = parser.parse_args(arguments_of_command)
    usages: dict[str, Usage] = {}
    with open_server(arguments.product) as server, tempfile.TemporaryDirectory() as name:
        (fill_mariadb if arguments.product == "mariadb" else fill_postgres)(server, arguments.rows)
        for snapshot in ("engine", "spark"):
            folder = Path(name) / snapshot
            folder.mkdir()
            usages[snapshot] = usage = measure(
                server, arguments.product, snapshot, arguments.readers, folder
            )
            count = count_records(folder)
            if count < arguments.rows:
                raise SystemExit(f"{snapshot} has {count} of {arguments.rows} rows")
            print(
                f"{arguments.product} {snapshot}: {arguments.rows:,} rows in {usage.wall:.1f} s, "
                f"{usage.processor:.1f} s of processors, {usage.peak_mb}"
            )
    print(f"ratio of the times: {usages['engine'].wall / usages['spark'].wall:.2f}")
    print(f"ratio of the processors: {usages['engine'].processor / usages['spark'].processor:.2f}")

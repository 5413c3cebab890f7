# SPDX-License-Identifier: Apache-2.0
"""Capture a PostgreSQL that is in use, and compare its tables with those of the lake.

`make demo-live` runs this. It starts a server of its own, with the tables of `shop-schema.sql`, and
needs an installed PostgreSQL. In the middle, the capture process is killed.
"""

import contextlib
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psycopg
from pyspark.sql import SparkSession
from rich.markup import escape
from rich.table import Table
from run import HERE, console, shown_rows

from changelane.cli.capture import started_capture
from changelane.pipeline.config import Pipeline, parse
from changelane.spark import session
from changelane.spark.run.tables import run
from changelane.spark.runtime.jvm import create_log

sys.path.append(str(HERE.parent / "tests" / "support"))

from postgres_server import NotInstalledError, PostgresServer

FOLDER: Final = HERE.parent / ".demo-live"
SECONDS_OF_SALES: Final = 30
KEYS: Final = {"customers": ["id"], "products": ["sku"], "orders": ["id"]}
ORDERS: Final = """
CREATE TABLE orders (
  id bigint PRIMARY KEY, customer integer NOT NULL, sku text NOT NULL, amount integer NOT NULL,
  total numeric(12,2) NOT NULL, paid boolean NOT NULL DEFAULT false,
  ordered_at timestamptz NOT NULL DEFAULT now());
"""
SALES: Final = {
    "an order": """
        INSERT INTO orders (id, customer, sku, amount, total)
        SELECT {number}, c.id, p.sku, {amount}, {amount} * coalesce(p.price, 1)
        FROM customers c, products p ORDER BY md5(c.id || p.sku || {number}) LIMIT 1;
        UPDATE products SET stock = stock - {amount}
        WHERE sku = (SELECT sku FROM orders WHERE id = {number})""",
    "a payment": """
        UPDATE customers SET balance = balance - o.total
        FROM (SELECT customer, total FROM orders WHERE NOT paid ORDER BY id LIMIT 1) o
        WHERE customers.id = o.customer AND o.total < 1000;
        UPDATE orders SET paid = true WHERE id = (SELECT min(id) FROM orders WHERE NOT paid)""",
    "a cancelled order": "DELETE FROM orders WHERE id = (SELECT max(id) FROM orders)",
    "a new customer": """
        INSERT INTO customers VALUES ({number}, 'Customer {number}', NULL, 0, false, now())""",
    "a new number of a product": """
        UPDATE products SET sku = 'TEA-' || {number}
        WHERE sku = (SELECT min(sku) FROM products WHERE sku LIKE 'TEA-%')""",
    "new prices": "UPDATE products SET price = round(price * 1.01, 2)",
}
HOW_OFTEN: Final = (12, 8, 2, 2, 1, 1)


def main() -> int:
    """Run the demo; return the exit code."""
    try:
        server = PostgresServer()
    except NotInstalledError as error:
        print(f"demo-live starts a PostgreSQL of its own: {error}", file=sys.stderr)
        return 2
    shutil.rmtree(FOLDER, ignore_errors=True)
    console.rule("[bold]changelane: a PostgreSQL in use and its tables in a lake, without Kafka")
    console.print("starting PostgreSQL and Spark ...")
    with server:
        with server.connect() as connection:
            connection.execute((HERE / "shop-schema.sql").read_text(encoding="utf-8"))
            connection.execute(ORDERS)
        spark = session("changelane demo", master="local[2]", log=create_log())
        spark.sparkContext.setLogLevel("OFF")
        apply_while_the_shop_sells(spark, server, pipeline_of(server))
        different = [table for table in KEYS if is_different(spark, server, table)]
        spark.stop()
    print(f"demo: {', '.join(different)} differ from the database" if different else "demo: ok")
    return 1 if different else 0


def pipeline_of(server: PostgresServer) -> Pipeline:
    """Return the pipeline; docs/capture.md has it as a file."""
    source = {
        "type": "postgres",
        "host": server.host,
        "port": server.port,
        "database": server.database,
        "user": server.user,
        "password": server.password,
        "tables": ["public.*"],
        "segments": str(FOLDER / "capture"),
        "publish_interval": "1 second",
    }
    sink = {"type": "delta", "path": str(FOLDER / "lake")}
    return parse({"name": "shop", "source": source, "sink": sink})


def apply_while_the_shop_sells(
    spark: SparkSession, server: PostgresServer, pipeline: Pipeline
) -> None:
    """Capture and apply until the shop is closed and all of its changes are applied."""
    started = time.monotonic()
    sold: Counter[str] = Counter()
    with started_capture(pipeline, lambda _: None, is_until_now=True) as capture:
        capture.wait_until_now()
        apply_captured(spark, pipeline, "all rows so far")
        with selling(server, sold) as sales:
            is_killed = False
            while sales.is_alive():
                since = time.monotonic()
                apply_captured(spark, pipeline, "the shop sells")
                if not is_killed and time.monotonic() - started > SECONDS_OF_SALES / 2:
                    is_killed = kill_capture()
                # a run every two seconds, as with `interval: 2 seconds`
                time.sleep(max(0.0, 2.0 - (time.monotonic() - since)))
        capture.wait_until_now()
        apply_captured(spark, pipeline, "the shop is closed")
    sums = ", ".join(f"{count} x {name}" for name, count in sold.most_common())
    console.print(f"committed in the meantime: {sums}")


def apply_captured(spark: SparkSession, pipeline: Pipeline, when: str) -> None:
    """Apply what is captured, and say how long it took."""
    since = time.monotonic()
    report = run(spark, pipeline)
    if report.events:
        took_s = time.monotonic() - since
        console.print(f"[green]applied[/] {report.events:>5} changes in {took_s:4.1f} s ({when})")
    for table, reason in report.paused.items():
        console.print(f"[red]paused[/] {table}: {escape(reason)}")


@contextlib.contextmanager
def selling(server: PostgresServer, sold: "Counter[str]") -> Iterator[threading.Thread]:
    """Sell for some seconds, in a thread."""
    thread = threading.Thread(target=sell, args=(server, sold), daemon=True)
    thread.start()
    yield thread
    thread.join()


def sell(server: PostgresServer, sold: "Counter[str]") -> None:
    """Commit a random sale again and again; count them in *sold*."""
    choose = random.Random(7)  # noqa: S311 - the same shop each time
    deadline = time.monotonic() + SECONDS_OF_SALES
    with server.connect(autocommit=False) as connection:
        number = 1000
        while time.monotonic() < deadline:
            number += 1
            (sale,) = choose.choices(list(SALES), HOW_OFTEN)
            connection.execute(SALES[sale].format(number=number, amount=choose.randrange(1, 5)))
            connection.commit()
            sold[sale] += 1
            time.sleep(0.02)  # some 50 sales a second


def kill_capture() -> bool:
    """``kill -9`` the capture process, which changelane starts again; return whether it ran."""
    for task in Path("/proc/self/task").iterdir():
        for pid in (task / "children").read_text().split():
            if b"changelane.capture" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(int(pid), signal.SIGKILL)
                console.print(f"[yellow]kill -9[/] {pid}, the capture process")
                return True
    return False


def is_different(spark: SparkSession, server: PostgresServer, table: str) -> bool:
    """Compare a table of the lake with that of the database, and show the first rows."""
    frame = spark.read.format("delta").load(f"{FOLDER}/lake/tables/postgres.public.{table}")
    rows = shown_rows(frame, KEYS[table])
    is_equal = sorted(map(str, rows)) == sorted(map(str, database_rows(server, table)))
    verdict = "[green]equal to the database" if is_equal else "[red]different from the database"
    shown = Table(title=f"\n{table}: {len(rows)} rows, {verdict}", title_justify="left")
    for column in rows[0]:
        shown.add_column(escape(column), max_width=24, no_wrap=True)
    for row in rows[:3]:
        shown.add_row(*("[dim]NULL" if v is None else escape(v) for v in row.values()))
    console.print(shown)
    return not is_equal


def database_rows(server: PostgresServer, table: str) -> list[dict[str, Any]]:
    """Return the rows of a table of the database, with values as text."""
    instant = """to_char({} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
    with server.connect() as connection:
        columns = connection.execute(
            "SELECT column_name, data_type FROM information_schema.columns "
            "WHERE table_schema = 'public' AND table_name = %s ORDER BY ordinal_position",
            [table],
        ).fetchall()
        texts = [
            psycopg.sql.SQL(instant if kind.startswith("timestamp") else "{}::text").format(
                psycopg.sql.Identifier(name)
            )
            for name, kind in columns
        ]
        query = psycopg.sql.SQL("SELECT {} FROM {}").format(
            psycopg.sql.SQL(", ").join(texts), psycopg.sql.Identifier(table)
        )
        names = [name for name, _ in columns]
        rows = connection.execute(query).fetchall()
    return [dict(zip(names, row, strict=True)) for row in rows]


if __name__ == "__main__":
    sys.exit(main())

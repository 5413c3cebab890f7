# SPDX-License-Identifier: Apache-2.0
"""Run `changelane run` over a PostgreSQL that is in use, and compare the tables of both.

`make demo-live` runs this. It starts a server of its own, with the tables of `shop-schema.sql`, and
needs an installed PostgreSQL. In the middle, the capture process is killed.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import duckdb
import psycopg
from duckdb_extensions import import_extension
from pyspark.sql import SparkSession
from rich.markup import escape
from rich.table import Table
from run import HERE, console, shown_rows

from changelane.spark import session
from changelane.spark.runtime.jvm import create_log

sys.path.append(str(HERE.parent / "tests" / "support"))

from child_processes import descendants
from postgres_server import NotInstalledError, PostgresServer

FOLDER: Final = HERE.parent / ".demo-live"
PIPELINE: Final = """\
name: live
source:
  type: postgres
  host: {host}
  port: {port}
  database: {database}
  user: {user}
  password: ${{PGPASSWORD}}
  tables: [public.*]
  segments: capture/
  publish_interval: 1 second
sink: {{type: delta, path: lake/}}
options: {{trigger: continuous, interval: 2 seconds}}
"""
SECONDS_OF_SALES: Final = 30
ORDER: Final = "INSERT INTO orders SELECT {}, min(id), min(sku), 1, 1 FROM customers, products"
FIRST_ORDER: Final = 1
LAST_ORDER: Final = 1_000_000
LIMIT_S: Final = 300.0
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
    FOLDER.mkdir()
    console.rule("[bold]changelane: a PostgreSQL in use and its tables in a lake, without Kafka")
    with server:
        with server.connect() as connection:
            connection.execute((HERE / "shop-schema.sql").read_text(encoding="utf-8"))
            connection.execute(ORDERS)
            connection.execute(ORDER.format(FIRST_ORDER))
        login = {name: getattr(server, name) for name in ("host", "port", "database", "user")}
        text = PIPELINE.format(**login)
        (FOLDER / "live.yaml").write_text(text, "utf-8")
        console.print(escape(text), "[bold]changelane run live.yaml")
        if not is_applied_while_the_shop_sells(server):
            return 1
        spark = session("changelane demo", master="local[2]", log=create_log())
        spark.sparkContext.setLogLevel("OFF")
        different = [table for table in KEYS if is_different(spark, server, table)]
        spark.stop()
    print(f"demo: {', '.join(different)} differ from the database" if different else "demo: ok")
    return 1 if different else 0


def is_applied_while_the_shop_sells(server: PostgresServer) -> bool:
    """Run the pipeline until the lake has the last order; return whether it came so far."""
    sold: Counter[str] = Counter()
    with pipeline_of(server) as process:
        if not wait_for_order(process, FIRST_ORDER):
            return False
        with selling(server, sold) as sales:
            sales.join(SECONDS_OF_SALES / 2)
            kill_capture(process)
        with server.connect() as connection:
            connection.execute(ORDER.format(LAST_ORDER))
        is_applied = wait_for_order(process, LAST_ORDER)
    sums = ", ".join(f"{count} x {name}" for name, count in sold.most_common())
    console.print(f"committed in the meantime: {sums}")
    return is_applied


@contextlib.contextmanager
def pipeline_of(server: PostgresServer) -> Iterator[subprocess.Popen[bytes]]:
    """Run the pipeline in a process, and stop it at the end as Ctrl+C does."""
    process = subprocess.Popen(
        [sys.executable, "-m", "changelane", "run", "live.yaml", "--master", "local[2]"],
        cwd=FOLDER,
        env=os.environ | {"PGPASSWORD": server.password},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    output = threading.Thread(target=show_batches, args=(process,), daemon=True)
    output.start()
    try:
        yield process
        process.send_signal(signal.SIGINT)
        process.wait(LIMIT_S)
    finally:
        process.kill()
        output.join()


def show_batches(process: subprocess.Popen[bytes]) -> None:
    """Print the batches of a run, which writes a line of JSON for each, and its notes."""
    for line in process.stderr or ():
        try:
            batch = json.loads(line)
        except ValueError:
            console.print(f"[yellow]{escape(line.decode(errors='replace').rstrip())}")
            continue
        if count := batch.get("events"):
            console.print(f"[green]applied[/] {count:>5} changes in {batch['seconds']:4.1f} s")


def wait_for_order(process: subprocess.Popen[bytes], number: int) -> bool:
    """Wait until the lake has an order; return whether it has.

    DuckDB reads the tables, so that nothing of changelane takes part.
    """
    import_extension("delta")
    connection = duckdb.connect()
    connection.load_extension("delta")
    orders = FOLDER / path_of("orders")
    deadline = time.monotonic() + LIMIT_S
    while process.poll() is None and time.monotonic() < deadline:
        if (orders / "_delta_log" / f"{0:020}.json").exists():
            query = "SELECT count(*) FROM delta_scan(?) WHERE id = ?"
            if connection.execute(query, [str(orders), number]).fetchone() != (0,):
                return True
        time.sleep(0.5)
    return False


def path_of(table: str) -> str:
    """Return the folder of a table of the lake."""
    return f"lake/tables/postgres.public.{table}"


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


def kill_capture(process: subprocess.Popen[bytes]) -> None:
    """``kill -9`` the capture process of a run, which starts it again."""
    for pid in descendants(process.pid):
        with contextlib.suppress(OSError):
            if b"changelane.capture" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
                console.print(f"[yellow]kill -9[/] {pid}, the capture process")
                return


def is_different(spark: SparkSession, server: PostgresServer, table: str) -> bool:
    """Compare a table of the lake with that of the database, and show the first rows."""
    frame = spark.read.format("delta").load(f"{FOLDER}/{path_of(table)}")
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

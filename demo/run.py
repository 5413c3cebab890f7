# SPDX-License-Identifier: Apache-2.0
"""Land a small shop's changes in Delta tables, show them, and check them against the databases.

Two databases, two formats, one lake: `shop.yaml` and `sales.yaml` are all the configuration there
is. `make demo` runs this; ORIGIN.md describes the data.
"""

import csv
import io
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from changelane import DataChange, DecodeError, HalfUpdate, Message, get_codec
from changelane.cli.status import show as show_status
from changelane.cli.trace import show as show_key
from changelane.conversion.message_files import Lines, open_input
from changelane.pipeline.config import load
from changelane.spark import session
from changelane.spark.lake import lake as open_lake
from changelane.spark.maintenance.status import status
from changelane.spark.maintenance.trace import trace
from changelane.spark.run.tables import quarantine_rows, run
from changelane.spark.runtime.jvm import create_log

HERE = Path(__file__).resolve().parent
LAKE = HERE.parent / ".demo"
TABLES = {
    "customers": ("shop.public.customers", ["id"]),
    "products": ("shop.public.products", ["sku"]),
    "orders": ("sales.orders", ["id"]),
    "order_items": ("sales.order_items", ["order_id", "line_no"]),
}
WIDTH = 28
BROKEN_ON_PURPOSE = {"shop": 1}
"""How many messages of each pipeline were broken by hand, so that the quarantine has a row."""

console = Console(highlight=False, width=max(100, min(140, shutil.get_terminal_size().columns)))


def main() -> int:
    """Run the demo; return the exit code."""
    shutil.rmtree(LAKE, ignore_errors=True)
    os.environ["DEMO_LAKE"] = str(LAKE)
    console.rule("[bold]changelane: two databases, two formats, one lake")
    started = time.monotonic()
    console.print("starting Spark ...")
    spark = session("changelane demo", master="local[2]", log=create_log())
    spark.sparkContext.setLogLevel("OFF")
    wrong_rows = unexpected_quarantined = 0
    for name, source in (("shop", "PostgreSQL, Debezium JSON"), ("sales", "MySQL, Canal JSON")):
        report = run(spark, load(HERE / f"{name}.yaml"))
        quarantined_count = sum(report.quarantined.values())
        unexpected_quarantined += abs(quarantined_count - BROKEN_ON_PURPOSE.get(name, 0))
        console.print(
            f"[green]applied[/] {report.events:>3} changes of [bold]{name}[/] ({source})"
            f"[yellow]{quarantine_note(name, quarantined_count)}[/]"
        )
    for name, (folder, keys) in TABLES.items():
        table = spark.read.format("delta").load(f"{LAKE}/tables/{folder}")
        rows = shown_rows(table, keys)
        show(name, table, rows)
        wrong_rows += check(name, table, rows)
    history("shop.customers 2: the late event loses", "customers", {"id": 2})
    history("shop.products TEA-01 -> TEA-001: the key changes", "products", {"sku": "TEA-001"})
    show_quarantine(spark)
    lake = open_lake(spark, str(LAKE))
    console.print("[bold]changelane trace demo/shop.yaml --table products --key sku=TEA-001")
    show_key(trace(lake, "products", {"sku": "TEA-001"}), console)
    console.print("\n[bold]changelane status demo/shop.yaml")
    show_status(status(lake), console)
    console.print(f"\ntables in {LAKE.name}/tables, {time.monotonic() - started:.0f} s in all")
    console.print("run it again, or kill it in the middle: the tables end the same\n")
    spark.stop()
    if unexpected_quarantined:
        print(f"demo: {unexpected_quarantined} messages too many or too few are in the quarantine")
    elif wrong_rows:
        print(f"demo: {wrong_rows} rows differ from the databases")
    else:
        print("demo: ok")
    return 1 if wrong_rows or unexpected_quarantined else 0


def quarantine_note(name: str, count: int) -> str:
    """Return the end of a pipeline's line: how many of its messages are quarantined.

    Args:
        name: The pipeline.
        count: The number of its messages in the quarantine.
    """
    if not count:
        return ""
    messages = f"{count} message{'s' if count > 1 else ''}"
    broken = BROKEN_ON_PURPOSE.get(name, 0)
    if count == broken:
        return f", {messages} quarantined (broken on purpose)"
    return f", {messages} quarantined, but {broken} broken on purpose"


def shown_rows(table: DataFrame, keys: list[str]) -> list[dict[str, str | None]]:
    """Return a table's rows as text, ordered by key, without the state columns."""
    columns = []
    for field in table.schema.fields:
        if field.name.startswith("_changelane_"):
            continue
        value = F.col(field.name)
        kind = field.dataType.simpleString()
        if kind == "timestamp":
            value = F.date_format(value, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")
        elif kind == "timestamp_ntz":
            value = F.date_format(value, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS")
        columns.append(value.cast("string").alias(field.name))
    ordered = table.orderBy(*keys).select(*columns)
    return [row.asDict() for row in ordered.collect()]


def show(name: str, table: DataFrame, rows: list[dict[str, str | None]]) -> None:
    """Print a table."""
    shown = Table(title=f"\n{name}", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    kinds = {field.name: field.dataType.simpleString() for field in table.schema.fields}
    for column in rows[0]:
        right = kinds[column].startswith(("decimal", "int", "bigint", "smallint"))
        shown.add_column(
            f"{escape(column)}\n[dim]{kinds[column]}", justify="right" if right else "left"
        )
    for row in rows:
        shown.add_row(*(cell(value) for value in row.values()))
    console.print(shown)


def cell(value: str | None) -> str:
    """Return a value as the terminal shows it."""
    if value is None:
        return "[dim]NULL"
    return escape(value if len(value) <= WIDTH else f"{value[: WIDTH - 3]}...")


def expected(name: str) -> list[dict[str, str | None]]:
    """Return a table's rows as its database exported them; an unquoted empty field is NULL."""
    null = "\0"
    text = (HERE / "expected" / f"{name}.csv").read_text(encoding="utf-8")
    marked = []
    for line in text.splitlines():
        quoted, last = False, ","
        for character in f"{line},":
            if character == "," and not quoted and last == ",":
                marked.append(null)
            if character == '"':
                quoted = not quoted
            marked.append(character)
            last = character
        marked[-1] = "\n"
    rows = csv.DictReader(io.StringIO("".join(marked)))
    return [{key: None if value == null else value for key, value in row.items()} for row in rows]


def check(name: str, table: DataFrame, rows: list[dict[str, str | None]]) -> int:
    """Compare a table with the rows of its database; return how many differ."""
    wanted = expected(name)
    wrong = abs(len(wanted) - len(rows))
    for want, row in zip(wanted, rows, strict=False):
        differing = [column for column in want if want[column] != row.get(column)]
        if differing or want.keys() != row.keys():
            wrong += 1
            console.print(f"  [red]differs[/]: {next(iter(want.values()))}: {', '.join(differing)}")
    incomplete = table.where(F.col("_changelane_columns").isNotNull()).count()
    verdict = "[green]equal to the database[/]" if not wrong else f"[red]{wrong} rows differ[/]"
    some = f"{incomplete} row{'s' if incomplete > 1 else ''}"
    note = f"; {some} with columns of different ages (unchanged TOAST)" if incomplete else ""
    console.print(f"  {len(rows)} rows, {verdict}{note}")
    return wrong


def history(title: str, table: str, key: dict[str, Any]) -> None:
    """Print the changes of one row, in the order of the database's log."""
    changes: list[tuple[bytes, int, str, list[str]]] = []
    codec = get_codec("debezium-json")
    with open_input(str(HERE / "input" / "shop-postgres.debezium.jsonl")) as stream:
        for line in Lines(stream.stream):
            if not isinstance(line.content, Message):
                continue
            try:
                events = codec.decode(line.content)
            except DecodeError:
                continue
            for event in events:
                change = event.change if isinstance(event, HalfUpdate) else event
                other = event.other_key if isinstance(event, HalfUpdate) else None
                if not isinstance(change, DataChange) or change.table.name != table:
                    continue
                image = change.after or change.before or {}
                named = {name: image.get(name) for name in key}
                if key not in (named, other):
                    continue
                order = change.position.key() if change.position else b""
                shown = [
                    f"{name}={short(value)}"
                    for name, value in image.items()
                    if change.after is not None or name in key
                ]
                what = {"r": "snapshot", "c": "insert", "u": "update", "d": "delete"}[change.op]
                if isinstance(event, HalfUpdate):
                    what = "leaves" if change.after is None else "arrives"
                changes.append((order, line.number, what, shown))
    shown_table = Table(
        title=f"\n{title}", title_justify="left", title_style="bold", box=box.SIMPLE
    )
    for column in ("line", "what", "columns"):
        shown_table.add_column(column)
    before: list[str] = []
    for order, number, what, columns in sorted(changes, key=lambda one: one[0]):
        late = any(other > order and line < number for other, line, *_ in changes)
        # only the columns that differ from the change before
        text = ", ".join(column for column in columns if column not in before) or "nothing new"
        shown_table.add_row(
            str(number), what + (" [yellow](late)[/]" if late else ""), escape(text)
        )
        before = columns
    console.print(shown_table)


def short(value: Any) -> str:
    """Return a value as one short text."""
    text = "NULL" if value is None else str(value)
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."


def show_quarantine(spark: SparkSession) -> None:
    """Print the quarantine."""
    rows = quarantine_rows(spark, load(HERE / "shop.yaml")).collect()
    title = "\nquarantine: the message broken on purpose (line 28 of its input)"
    shown = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE)
    for column in ("code", "reason", "where", "raw message"):
        shown.add_column(column)
    for row in rows:
        where = f"{row['topic']} {row['partition']}@{row['offset']}"
        shown.add_row(row["code"], row["reason"], where, f"{len(row['raw_value'])} bytes, kept")
    console.print(shown)


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""``changelane status``: what a pipeline's tables hold, and how far they are."""

import time
from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from changelane.cli.lakes import open_pipeline
from changelane.cli.terminal import printable

if TYPE_CHECKING:
    from changelane.spark.upkeep.status import TableStatus


@click.command()
@click.argument("file", metavar="PIPELINE.yaml", type=click.Path(dir_okay=False))
@click.option("--master", metavar="URL", help="Where Spark runs; local[*] when nothing says else.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text")
def status(file: str, *, master: str | None, output: str) -> None:
    """Show each table of a pipeline: rows, position, lag, and what is remembered or set aside.

    It reads the tables only; the pipeline may be running.
    """
    lake = open_pipeline(file, master)
    from changelane.spark.upkeep.status import status as read

    found = read(lake)
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(found)))
        return
    if not found:
        click.echo("no tables yet: `changelane run` makes them")
        return
    show(found, Console())


def show(found: "list[TableStatus]", console: Console) -> None:
    """Print the state of tables."""
    table = Table(box=None, pad_edge=False)
    is_maintained = any(one.maintained_ms is not None for one in found)
    is_purged = any(one.purged for one in found)
    more = [("maintained", "right")] * is_maintained + [("purged up to", "left")] * is_purged
    for name, justify in (
        ("table", "left"),
        ("rows", "right"),
        ("incomplete", "right"),
        ("remembered", "right"),
        ("set aside", "right"),
        ("waiting", "right"),
        ("behind", "right"),
        ("position", "left"),
        *more,
    ):
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    now_ms = time.time() * 1000

    def ago(time_ms: int | None) -> str:
        return "" if time_ms is None else _span((now_ms - time_ms) / 1000)

    for one in found:
        table.add_row(
            escape(printable(one.table)),
            f"{one.rows:,}",
            f"{one.incomplete:,}",
            f"{one.remembered:,}",
            f"{one.quarantined:,}",
            f"{one.waiting:,}",
            ago(one.source_time_ms),
            escape(one.position),
            *([ago(one.maintained_ms)] if is_maintained else []),
            *([escape(one.purged)] if is_purged else []),
        )
    console.print(table)
    for one in found:
        if one.parked is not None:
            console.print(escape(f"{printable(one.table)} is parked: {printable(one.parked)}"))
        for word, text in (("halted", one.halted), ("note", one.note)):
            if text:
                told = f"{escape(printable(one.table))}: {word}: {escape(printable(text))}"
                console.print(told, soft_wrap=True)


def _span(seconds: float) -> str:
    """Return a span of time in its greatest unit.

    >>> _span(5), _span(7200), _span(400_000)
    ('5 s', '2 h', '4 d')
    """
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size or (unit == "d" and seconds >= size):
            return f"{seconds // size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"

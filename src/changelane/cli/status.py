# SPDX-License-Identifier: Apache-2.0
"""``changelane status``: what a pipeline's tables hold, and how far they are."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from changelane.cli.pipeline_tables import open_pipeline
from changelane.conversion.terminal_text import printable

if TYPE_CHECKING:
    from changelane.spark.maintenance.status import TableStatus


@click.command()
@click.argument("file", metavar="PIPELINE.yaml", type=click.Path(dir_okay=False))
@click.option("--master", metavar="URL", help="Where Spark runs; local[*] when nothing says else.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text")
def status(file: str, *, master: str | None, output: str) -> None:
    """Show each table of a pipeline: rows, position, lag, and what is remembered or set aside.

    \b
    applied     changes of rows that its commits took
    late        of them, those behind newer ones of batches before
    ties        keys and positions told twice, with different rows
    repeats     events that came again, in a table that only adds rows, and added none
    possible duplicates  of such tables: events that added a row, and equal others
                but for their message
    incomplete  rows with a column whose value is not known
    remembered  keys whose row is gone
    set aside   events in the quarantine
    waiting     events in the change log
    behind      how old its newest change is
    commit      how long ago its newest commit was made

    Of the counts, those that are nothing for every table are left out. It reads the tables
    only; the pipeline may be running.
    """  # noqa: D301 - click takes the character, not its name
    pipeline, lake = open_pipeline(file, master)
    from changelane.spark.maintenance.status import status as read

    found = read(lake, pipeline.name)
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(found)))
        return
    if not found:
        click.echo("no tables yet: `changelane run` makes them")
        return
    show(found, Console())


def show(found: "list[TableStatus]", console: Console) -> None:
    """Print the state of tables."""
    now_ms = time.time() * 1000

    def ago(time_ms: int | None) -> str:
        return "" if time_ms is None else _span((now_ms - time_ms) / 1000)

    shown: list[tuple[str, bool, Callable[[TableStatus], str]]] = [
        ("table", True, lambda one: printable(one.table)),
        ("rows", True, lambda one: f"{one.rows:,}"),
        ("applied", True, lambda one: f"{one.applied:,}"),
        # what nothing is told of takes no room
        ("late", False, lambda one: f"{one.late:,}" if one.late else ""),
        ("ties", False, lambda one: f"{one.ties:,}" if one.ties else ""),
        ("repeats", False, lambda one: f"{one.repeats:,}" if one.repeats else ""),
        (
            "possible duplicates",
            False,
            lambda one: f"{one.possible_duplicates:,}" if one.possible_duplicates else "",
        ),
        ("incomplete", False, lambda one: f"{one.incomplete:,}" if one.incomplete else ""),
        ("remembered", False, lambda one: f"{one.remembered:,}" if one.remembered else ""),
        ("set aside", False, lambda one: f"{one.quarantined:,}" if one.quarantined else ""),
        ("waiting", False, lambda one: f"{one.waiting:,}" if one.waiting else ""),
        ("behind", True, lambda one: ago(one.source_time_ms)),
        ("commit", True, lambda one: ago(one.committed_ms)),
        ("position", True, lambda one: one.position),
        ("maintained", False, lambda one: ago(one.maintained_ms)),
        ("purged up to", False, lambda one: one.purged),
    ]
    table = Table(box=None, pad_edge=False)
    rows = {name: [tell(one) for one in found] for name, _, tell in shown}
    kept = [name for name, always, _ in shown if always or any(rows[name])]
    for name in kept:
        is_text = name in {"table", "position", "purged up to"}
        table.add_column(
            name,
            justify="left" if is_text else "right",
            overflow="fold",
            no_wrap=not is_text,
        )
    for cells in zip(*(rows[name] for name in kept), strict=True):
        table.add_row(*map(escape, cells))
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

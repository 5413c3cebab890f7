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

    statuses = read(lake, pipeline.name)
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(statuses)))
        return
    if not statuses:
        click.echo("no tables yet: `changelane run` makes them")
        return
    show(statuses, Console())


def show(statuses: "list[TableStatus]", console: Console) -> None:
    """Print the state of tables."""
    now_ms = time.time() * 1000

    def ago(time_ms: int | None) -> str:
        return "" if time_ms is None else _span((now_ms - time_ms) / 1000)

    shown: list[tuple[str, bool, Callable[[TableStatus], str]]] = [
        ("table", True, lambda status: printable(status.table)),
        ("rows", True, lambda status: f"{status.rows:,}"),
        ("applied", True, lambda status: f"{status.applied:,}"),
        # what nothing is told of takes no room
        ("late", False, lambda status: f"{status.late:,}" if status.late else ""),
        ("ties", False, lambda status: f"{status.ties:,}" if status.ties else ""),
        ("repeats", False, lambda status: f"{status.repeats:,}" if status.repeats else ""),
        (
            "possible duplicates",
            False,
            lambda status: f"{status.possible_duplicates:,}" if status.possible_duplicates else "",
        ),
        ("incomplete", False, lambda status: f"{status.incomplete:,}" if status.incomplete else ""),
        ("remembered", False, lambda status: f"{status.remembered:,}" if status.remembered else ""),
        (
            "set aside",
            False,
            lambda status: f"{status.quarantined:,}" if status.quarantined else "",
        ),
        ("waiting", False, lambda status: f"{status.waiting:,}" if status.waiting else ""),
        ("behind", True, lambda status: ago(status.source_time_ms)),
        ("commit", True, lambda status: ago(status.committed_ms)),
        ("position", True, lambda status: status.position),
        ("maintained", False, lambda status: ago(status.maintained_ms)),
        ("purged up to", False, lambda status: status.purged),
    ]
    table = Table(box=None, pad_edge=False)
    rows = {name: [tell(status) for status in statuses] for name, _, tell in shown}
    column_names = [name for name, always, _ in shown if always or any(rows[name])]
    for name in column_names:
        is_text = name in {"table", "position", "purged up to"}
        table.add_column(
            name,
            justify="left" if is_text else "right",
            overflow="fold",
            no_wrap=not is_text,
        )
    for cells in zip(*(rows[name] for name in column_names), strict=True):
        table.add_row(*map(escape, cells))
    console.print(table)
    for status in statuses:
        if status.parked is not None:
            parked = f"{printable(status.table)} is parked: {printable(status.parked)}"
            console.print(escape(parked))
        for word, text in (("halted", status.halted), ("note", status.note)):
            if text:
                line = f"{escape(printable(status.table))}: {word}: {escape(printable(text))}"
                console.print(line, soft_wrap=True)


def _span(seconds: float) -> str:
    """Return a span of time in its greatest unit.

    >>> _span(5), _span(7200), _span(400_000)
    ('5 s', '2 h', '4 d')
    """
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size or (unit == "d" and seconds >= size):
            return f"{seconds // size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"

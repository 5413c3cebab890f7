# SPDX-License-Identifier: Apache-2.0
"""``changelane status``: the state of each table of a pipeline."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console

from changelane.capture.capture_figures import figure_lines
from changelane.capture.connector_figures import (
    ConnectorFigures,
    connector_lines,
    read_connector_figures,
)
from changelane.cli.capture_metrics import figures_reader
from changelane.cli.pipeline_tables import open_pipeline
from changelane.cli.terminal import Column, output_console, print_table
from changelane.conversion.terminal_text import printable
from changelane.pipeline.database_source import DatabaseSource
from changelane.pipeline.experimental_source import PAGE
from changelane.pipeline.interface import Source

if TYPE_CHECKING:
    from changelane.spark.maintenance.status import TableStatus


@click.command()
@click.argument("file", metavar="PIPELINE.yaml", type=click.Path(dir_okay=False))
@click.option("--master", metavar="URL", help="Spark master URL; default: local[*].")
@click.option("--output", type=click.Choice(["text", "json"]), default="text")
def status(file: str, *, master: str | None, output: str) -> None:
    """Show the state of each table of a pipeline: rows, position, lag, pending events.

    \b
    applied       row changes in the table's commits
    out of order  of these, changes older than one already applied in an earlier batch
    conflicts     two different full rows for one key at one position
    repeats       repeated events of a table that only adds rows; they added none
    possible duplicates  added rows that equal another one except for their message
    incomplete    rows with a column of unknown value
    tombstones    deleted keys, stored for late events
    quarantined   events in the quarantine
    pending       events in the change log, not merged yet
    lag           age of the newest applied change, by its time at the source
    commit        age of the newest commit

    A count that is 0 for every table is not shown. The command only reads; the pipeline may be
    running. If the source is a database or its capture log, lines about the capture follow; a
    server that does not answer is one of these lines. If Kafka Connect captures the database, the
    lines are about the connector and its tasks. With --output json the output then is an object
    with "tables" and "capture" or "connector", else it is the list of the tables.
    """  # noqa: D301 - click takes the character, not its name
    pipeline, lake = open_pipeline(file, master)
    from changelane.spark.maintenance.status import status as read

    statuses = read(lake, pipeline.name)
    read_capture = figures_reader(pipeline)
    capture = None if read_capture is None else read_capture()
    connector = _connector_figures(pipeline.source)
    if output == "json":
        parts = {"tables": statuses, "capture": capture, "connector": connector}
        content = {name: part for name, part in parts.items() if part is not None}
        # a list if there is no capture, as before captures existed
        is_list = content.keys() == {"tables"}
        click.echo(msgspec.json.format(msgspec.json.encode(statuses if is_list else content)))
        return
    if statuses:
        show(statuses, output_console())
    else:
        click.echo("no tables yet: `changelane run` creates them")
    if capture is not None:
        label = pipeline.source.label
        for line in figure_lines(capture, label=label, now_ms=time.time() * 1000):
            click.echo(printable(line))
        if isinstance(pipeline.source, DatabaseSource) and pipeline.source.is_experimental:
            click.echo(printable(f"{label}: not asked for the lag of its log ({PAGE})"))
    if connector is not None:
        for line in connector_lines(connector, label=pipeline.source.label):
            click.echo(printable(line))


def _connector_figures(source: Source) -> ConnectorFigures | None:
    """Return the state of a source's connector in Kafka Connect; ``None`` = it has none."""
    if not isinstance(source, DatabaseSource) or source.connect_url is None:
        return None
    from changelane.capture.products import captured_server_of

    return read_connector_figures(source, captured_server_of(source))


def show(statuses: "list[TableStatus]", console: Console) -> None:
    """Print the state of tables."""
    now_ms = time.time() * 1000

    def ago(time_ms: int | None) -> str:
        return "" if time_ms is None else _span((now_ms - time_ms) / 1000)

    def counted(count: int) -> str:
        return f"{count:,}" if count else ""

    shown: list[tuple[str, bool, Callable[[TableStatus], str]]] = [
        ("table", True, lambda status: printable(status.table)),
        ("rows", True, lambda status: f"{status.rows:,}"),
        ("applied", True, lambda status: f"{status.applied:,}"),
        # columns without counts are omitted
        ("out of order", False, lambda status: counted(status.out_of_order)),
        ("conflicts", False, lambda status: counted(status.conflicts)),
        ("repeats", False, lambda status: counted(status.repeats)),
        ("possible duplicates", False, lambda status: counted(status.possible_duplicates)),
        ("incomplete", False, lambda status: counted(status.incomplete)),
        ("tombstones", False, lambda status: counted(status.tombstones)),
        ("quarantined", False, lambda status: counted(status.quarantined)),
        ("pending", False, lambda status: counted(status.pending)),
        ("lag", True, lambda status: ago(status.source_time_ms)),
        ("commit", True, lambda status: ago(status.committed_ms)),
        ("position", True, lambda status: status.position),
        ("maintained", False, lambda status: ago(status.maintained_ms)),
        ("purged up to", False, lambda status: status.purged),
    ]
    rows = {name: [cell(status) for status in statuses] for name, _, cell in shown}
    column_names = [name for name, always, _ in shown if always or any(rows[name])]
    columns = [
        Column(name, is_text=name in {"table", "position", "purged up to"}) for name in column_names
    ]
    cells = (rows[name] for name in column_names)
    print_table(columns, list(zip(*cells, strict=True)), console)
    for status in statuses:
        if status.paused is not None:
            paused = f"{printable(status.table)} is paused: {printable(status.paused)}"
            console.print(paused)
        for word, text in (("halted", status.halted), ("note", status.note)):
            if text:
                line = f"{printable(status.table)}: {word}: {printable(text)}"
                console.print(line)


def _span(seconds: float) -> str:
    """Return a time span in its largest unit.

    >>> _span(5), _span(7200), _span(400_000)
    ('5 s', '2 h', '4 d')
    """
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size or (unit == "d" and seconds >= size):
            return f"{seconds // size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"

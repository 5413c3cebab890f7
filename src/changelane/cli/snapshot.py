# SPDX-License-Identifier: Apache-2.0
"""``changelane snapshot``: how far the first load by ``snapshot: spark`` is."""

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from changelane.capture.snapshot.figures import SnapshotFigures, read_snapshot_figures
from changelane.capture.storage import folder_of
from changelane.conversion.terminal_text import printable
from changelane.errors import ConfigError
from changelane.pipeline.config import load
from changelane.pipeline.database_source import DatabaseSource


@click.group()
def snapshot() -> None:
    """Show how far the first load of a database is."""


@snapshot.command()
@click.argument("file", metavar="PIPELINE.yaml", type=click.Path(dir_okay=False))
@click.option("--output", type=click.Choice(["text", "json"]), default="text")
def status(file: str, *, output: str) -> None:
    """Show the chunks and rows of each table in the snapshot that runs, or was interrupted.

    It reads the capture log only, so it may run on another machine than the capture. A snapshot
    that is complete is a part of the capture log, and has no chunks any more; `snapshot: engine`
    has none. With --output json the output is null if there is no snapshot.
    """
    pipeline = load(file)
    if not isinstance(pipeline.source, DatabaseSource):
        kind = pipeline.source.type_name
        raise ConfigError(f"the source of the pipeline is {kind}, which is not a database")
    figures = read_snapshot_figures(folder_of(pipeline.source.segments))
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(figures)))
    elif figures is None:
        click.echo("no snapshot by readers runs, and none was interrupted")
    else:
        _show(figures, Console())


def _show(figures: SnapshotFigures, console: Console) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("table", overflow="fold")
    for name in ("chunks", "complete", "rows"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in figures.tables:
        counts = (row.chunk_count, row.complete_count, row.row_count)
        table.add_row(escape(printable(row.table)), *(f"{count:,}" for count in counts))
    console.print(table)
    console.print(figures.line)

# SPDX-License-Identifier: Apache-2.0
"""``changelane trace``: the row, versions and events of one key."""

from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from rich.console import Console

from changelane.cli.pipeline_tables import open_pipeline
from changelane.cli.terminal import Column, output_console, print_table
from changelane.conversion.terminal_text import printable, shortened_text
from changelane.errors import DecodeError
from changelane.formats.contract import json

if TYPE_CHECKING:
    from changelane.spark.maintenance.trace import KeyHistory

_LONGEST: Final = 60


@click.command()
@click.argument("file", metavar="PIPELINE.yaml", type=click.Path(dir_okay=False))
@click.option("--table", required=True, help="Name of the table at the source, or its last part.")
@click.option(
    "--key",
    "pairs",
    required=True,
    multiple=True,
    metavar="COLUMN=VALUE",
    help="The key; once for each of its columns. A value is JSON or text.",
)
@click.option("--master", metavar="URL", help="Spark master URL; default: local[*].")
@click.option("--output", type=click.Choice(["text", "json"]), default="text")
def trace(
    file: str, *, table: str, pairs: tuple[str, ...], master: str | None, output: str
) -> None:
    """Show the row of a key with the position of each column, and the stored events of the key.

    These are the events of the row and its versions, the newest delete, key changes, the table's
    truncate, and the events of the key in the change log and the quarantine. Each is shown with its
    position, its effect, and the commit of the table that contains it.
    """
    key = dict(map(_pair, pairs))
    if len(key) < len(pairs):
        raise click.BadParameter("use each column once", param_hint="--key")
    pipeline, lake = open_pipeline(file, master)
    from changelane.spark.maintenance.trace import trace as read

    history = read(lake, table, key, pipeline.name)
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(history)))
        return
    show(history, output_console())


def _pair(text: str) -> tuple[str, Any]:
    """Return the column and the value of a pair.

    >>> _pair("id=7"), _pair("sku=TEA-01"), _pair('sku="7"')
    (('id', 7), ('sku', 'TEA-01'), ('sku', '7'))
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter("write COLUMN=VALUE", param_hint="--key")
    try:
        return name, json.loads(value.encode(), object)
    except (DecodeError, UnicodeError):
        return name, value


def show(history: "KeyHistory", console: Console) -> None:
    """Print the row and events of a key."""
    title = f"{printable(history.table)} {printable(history.key)}"
    console.print(title, style="bold")
    if history.columns:
        rows = []
        for column in history.columns:
            value = "NULL" if column.value is None else shortened_text(column.value, _LONGEST)
            rows.append(
                (
                    printable(column.column),
                    value if column.known else "unknown",
                    printable(column.reason or column.position),
                )
            )
        print_table([Column("column"), Column("value"), Column("from")], rows, console)
        if history.is_gone:
            console.print("the row is deleted; these are its last known values")
    elif history.mode != "append":
        console.print("the row does not exist")
    if not history.events:
        console.print("no events of the key are stored")
        return
    events = [
        (printable(event.position), printable(event.effect), printable(" or ".join(event.commits)))
        for event in history.events
    ]
    print_table([Column("position"), Column("effect"), Column("commit")], events, console)

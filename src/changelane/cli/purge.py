# SPDX-License-Identifier: Apache-2.0
"""``changelane purge``: delete tombstones that are older than the retention."""

import datetime as dt
from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console

from changelane.cli.pipeline_tables import open_applier
from changelane.cli.terminal import Column, output_console, print_table
from changelane.conversion.terminal_text import printable
from changelane.errors import ConfigError

if TYPE_CHECKING:
    from changelane.spark.maintenance.purge import PurgeReport


@click.command()
@click.argument("file", metavar="PIPELINE.yaml", type=click.Path(dir_okay=False))
@click.option(
    "--before",
    metavar="TIME",
    help="Delete tombstones with an older time at the source, such as 2026-01-31 or "
    "2026-01-31T12:00:00Z (UTC by default). Without it, options.tombstone_retention applies.",
)
@click.option("--dry-run", is_flag=True, help="Only show how many tombstones would be deleted.")
@click.option("--master", metavar="URL", help="Spark master URL; default: local[*].")
@click.option("--output", type=click.Choice(["text", "json"]), default="text")
def purge(file: str, *, before: str | None, dry_run: bool, master: str | None, output: str) -> None:
    """Delete old tombstones: the records of deleted keys.

    Afterwards, an event that is older than the deleted tombstones is quarantined as `too_late` if
    its row is not in the table. So choose a time before all events that may still arrive: from a
    lagging partition, a running snapshot, or a replay from older offsets. A running pipeline stops;
    start it again afterwards. For regular purges, set options.tombstone_retention.
    """
    before_us = None if before is None else _micros(before)
    pipeline, applier = open_applier(file, master)
    after_s = pipeline.options.tombstone_retention_s
    if before_us is None and after_s is None:
        raise ConfigError("purge needs --before TIME or options.tombstone_retention")
    if not dry_run:
        applier.acquire_fencing_token(pipeline.name)
    scheduler = applier.maintenance_scheduler(None, pipeline=pipeline.name)
    purged_tables = scheduler.purge_tombstones(
        before_us=before_us,
        after_us=None if after_s is None else after_s * 1_000_000,
        dry_run=dry_run,
    )
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(purged_tables)))
        return
    if not purged_tables:
        click.echo("there are no tombstones")
        return
    show(purged_tables, output_console(), dry_run=dry_run)


def _micros(text: str) -> int:
    """Return a time in microseconds since 1970-01-01 UTC.

    >>> _micros("1970-01-02"), _micros("1970-01-01T01:00:01+01:00")
    (86400000000, 1000000)
    """
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError("--before must be a time such as 2026-01-31T12:00:00Z") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=dt.UTC)
    return (time - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def show(purged_tables: "list[PurgeReport]", console: Console, *, dry_run: bool) -> None:
    """Print the deleted tombstones of each table."""
    columns = (
        Column("table"),
        Column("tombstones", is_text=False),
        Column("to delete" if dry_run else "deleted", is_text=False),
        Column("up to"),
    )
    rows = [
        (
            printable(purged.table),
            f"{purged.tombstones:,}",
            f"{purged.deleted:,}",
            purged.position or purged.note,
        )
        for purged in purged_tables
    ]
    print_table(columns, rows, console)

# SPDX-License-Identifier: Apache-2.0
"""``changelane maintain``: compact tables and expire their old snapshots now."""

from typing import TYPE_CHECKING

import click
import msgspec

from changelane.cli.pipeline_tables import open_applier
from changelane.conversion.terminal_text import printable

if TYPE_CHECKING:
    from changelane.spark.maintenance.compaction import MaintenanceReport


@click.command()
@click.argument("file", metavar="PIPELINE.yaml", type=click.Path(dir_okay=False))
@click.option("--master", metavar="URL", help="Spark master URL; default: local[*].")
@click.option("--output", type=click.Choice(["text", "json"]), default="text")
def maintain(file: str, *, master: str | None, output: str) -> None:
    """Rewrite small files of all tables of a pipeline as larger ones, and expire old snapshots.

    Large tables with small batches become merge-on-read, and others copy-on-write.

    A run does so between its batches, unless options.maintenance is `off`. This command does it
    immediately. A running pipeline stops, so that no other process writes; start it again
    afterwards.
    """
    pipeline, applier = open_applier(file, master)
    applier.acquire_fencing_token(pipeline.name)
    scheduler = applier.maintenance_scheduler(
        pipeline.options.maintenance_limits, pipeline=pipeline.name
    )
    reports = scheduler.maintain_all()
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(reports)))
        return
    for report in reports:
        click.echo(describe(report))


def describe(report: "MaintenanceReport") -> str:
    """Return the maintenance of a table, as one line."""
    phrases = []
    if report.is_compacted:
        deleted = f" and {report.deleted_rows:,} deleted rows" if report.deleted_rows else ""
        phrases.append(
            f"{report.files} files, {report.small} of them small{deleted}, were compacted"
        )
    if report.merge_mode is not None:
        phrases.append(f"further batches are stored as {report.merge_mode}")
    if report.is_expired:
        phrases.append("old snapshots expired")
    return f"{printable(report.table)}: {'; '.join(phrases) or 'nothing to do'}"

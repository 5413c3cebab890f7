# SPDX-License-Identifier: Apache-2.0
"""``changelane run``: apply a pipeline's changes to its tables."""

import logging
import sys
from typing import TYPE_CHECKING

import click
import msgspec

from changelane.cli.maintain import told
from changelane.cli.terminal import printable
from changelane.config import load
from changelane.errors import MissingExtraError

if TYPE_CHECKING:
    from changelane.spark.pipeline import RunReport
    from changelane.spark.survey import BatchReport


@click.command()
@click.argument("file", metavar="PIPELINE.yaml", type=click.Path(dir_okay=False))
@click.option("--check", is_flag=True, help="Only check the configuration.")
@click.option("--master", metavar="URL", help="Where Spark runs; local[*] when nothing says else.")
@click.option(
    "--resume-from-tables",
    is_flag=True,
    help="When the checkpoint is lost, go on from what the tables hold.",
)
@click.option("--output", type=click.Choice(["text", "json"]), default="text")
def run(
    file: str, *, check: bool, master: str | None, resume_from_tables: bool, output: str
) -> None:
    """Apply the changes that a pipeline's source holds to its tables, exactly once.

    It may be stopped or killed at any moment and run again: the tables end the same. What cannot
    be read or applied is set aside in the quarantine, with its reason, and the run goes on.

    Exit codes: 0 done, and what was set aside stayed within options.max_quarantined (any number
    when that is not given); 1 beyond it, a table is parked, or failed; 2 wrong use or
    configuration.
    """
    pipeline = load(file)
    if check:
        click.echo(f"{file}: pipeline {printable(pipeline.name)} is well configured")
        return
    try:
        from changelane.spark import pipeline as spark_pipeline
        from changelane.spark.environment import session
    except ImportError as error:
        raise MissingExtraError(error.name or "pyspark", "spark") from None
    if (note := spark_pipeline.order_note(pipeline)) is not None:
        _say(note)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    spark = session(
        f"changelane {pipeline.name}",
        master=master,
        settings=pipeline.options.spark,
        lakes=(pipeline.table_format,),
    )
    spark.sparkContext.setLogLevel("ERROR")
    report = spark_pipeline.run(
        spark, pipeline, progress=_progress, say=_say, resume=resume_from_tables
    )
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(report)))
    else:
        _summary(report, pipeline.sink.path)
    allowed = pipeline.options.max_quarantined
    total = sum(report.quarantined.values())
    if allowed is not None and total > allowed:
        click.echo(f"changelane: {total} set aside, more than the {allowed} allowed", err=True)
        sys.exit(1)
    for name, reason in sorted(report.parked.items()):
        click.echo(f"changelane: {printable(name)} is parked: {printable(reason)}", err=True)
    if report.parked:
        click.echo(f"changelane: mend them, then: changelane resume {file}", err=True)
        sys.exit(1)


def _say(note: str) -> None:
    click.echo(f"changelane: {note}", err=True)


def _progress(batch: "BatchReport") -> None:
    aside = sum(batch.quarantined.values())
    note = f", {aside} set aside" if aside else ""
    done, logged = len(batch.tables), batch.logged
    tables = f"{done} tables" if not logged else f"{logged} tables in the log, {done} merged"
    click.echo(f"batch {batch.batch}: {batch.events} events, {tables}{note}", err=True)


def _summary(report: "RunReport", path: str) -> None:
    if not report.batches:
        click.echo("nothing new to apply")
        return
    counts: dict[str, int] = {}
    notes: dict[str, str] = {}
    for batch in report.batches:
        for table in batch.tables:
            counts[table.table] = counts.get(table.table, 0) + table.events
            if table.note:
                notes[table.table] = table.note
    for name in sorted(counts):
        note = f"  ({printable(notes[name])})" if name in notes else ""
        click.echo(f"{printable(name):<40} {counts[name]:>10,} events{note}")
    for one in report.maintained:
        if one.is_compacted:
            click.echo(told(one))
    if other := sum(batch.other for batch in report.batches):
        click.echo(f"{'other events, which tell of no row':<40} {other:>10,}")
    if statements := sum(batch.statements for batch in report.batches):
        click.echo(f"{'statements about tables':<40} {statements:>10,}")
    if shadows := sum(batch.shadows for batch in report.batches):
        note = "  (options.shadow_tables says so)"
        click.echo(f"{'skipped: of shadow tables':<40} {shadows:>10,}{note}")
    for code, count in sorted(report.quarantined.items()):
        click.echo(f"{'set aside: ' + code:<40} {count:>10,}")
    click.echo(f"tables under {path}/tables; quarantine in {path}/_changelane/quarantine")

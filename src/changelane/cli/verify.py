# SPDX-License-Identifier: Apache-2.0
"""``changelane verify``: the tables of a captured database against those of the lake."""

import sys
from pathlib import Path

import click
import msgspec

from changelane.cli.pipeline_tables import open_session
from changelane.conversion.terminal_text import printable


@click.command()
@click.argument("file", metavar="PIPELINE.yaml", type=click.Path(dir_okay=False))
@click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="TABLE",
    help="Only this table, by its name at the source or its last part; repeatable.",
)
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True),
    help="Write the report as JSON, with all differences.",
)
@click.option(
    "--html",
    "html_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True),
    help="Write the report as a page of HTML, with a picture of the differences.",
)
@click.option(
    "--chunk-rows",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    help="The number of rows that are compared by one pair of sums.",
)
@click.option(
    "--readings",
    type=click.IntRange(min=2),
    default=5,
    show_default=True,
    help="The number of readings after which a row that keeps changing is not proven.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="The time to wait until the tables have the changes up to a snapshot.",
)
@click.option(
    "--repair",
    is_flag=True,
    help="Write the rows that differ from the source into the tables, through the capture log.",
)
@click.option("--master", metavar="URL", help="Spark master URL; default: local[*].")
def verify(
    file: str,
    *,
    tables: tuple[str, ...],
    json_file: str | None,
    html_file: str | None,
    chunk_rows: int,
    readings: int,
    timeout: float,
    repair: bool,
    master: str | None,
) -> None:
    """Compare the tables of a captured database with those of the lake.

    Both may change meanwhile: the command waits until `changelane run` has applied the changes up
    to its snapshot, so a run must be active. It writes messages into the log of a PostgreSQL
    database, and nothing else. The report names rows by their keys and columns by their names, and
    has no other values.

    With --repair, the rows that differ are read again and become events of the capture log, at the
    position of their snapshot: newer changes stay. The rows are compared once more.

    Exit codes: 0 no difference, or all repaired; 1 differences, or the tables did not reach the
    snapshot; 2 wrong use or configuration. Rows and columns that cannot be proven are reported and
    are no difference.
    """
    pipeline, spark = open_session(file, master)
    from changelane.spark.verify.html_page import html_page
    from changelane.spark.verify.report import report_lines
    from changelane.spark.verify.table_verification import VerifyOptions
    from changelane.spark.verify.verify import verify as verify_tables

    report = verify_tables(
        pipeline,
        tables,
        spark=spark,
        options=VerifyOptions(
            chunk_rows=chunk_rows, max_readings=readings, timeout_s=timeout, repairs=repair
        ),
        notify=lambda text: click.echo(f"changelane: {printable(text)}", err=True),
    )
    for line in report_lines(report):
        click.echo(printable(line))
    if json_file is not None:
        Path(json_file).write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    if html_file is not None:
        Path(html_file).write_text(html_page(report), encoding="utf-8")
    sys.exit(1 if report.has_differences else 0)

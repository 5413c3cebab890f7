# SPDX-License-Identifier: Apache-2.0
"""``changelane verify``: the tables of a captured database against those of the lake."""

import contextlib
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from changelane.cli.prometheus import Server
from changelane.cli.session import session_of
from changelane.cli.verify_metrics import VerifyMetrics
from changelane.conversion.terminal_text import printable
from changelane.pipeline.config import load, with_tables
from changelane.pipeline.replayed import replayed

if TYPE_CHECKING:
    from changelane.spark.verify.continuous import ContinuousVerification

_METRICS_HOST: Final = "127.0.0.1"


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
@click.option(
    "--against",
    metavar="OTHER.yaml",
    type=click.Path(dir_okay=False),
    help="Compare the tables of the pipeline with those of this one, and no database.",
)
@click.option(
    "--replay",
    metavar="FOLDER",
    type=click.Path(file_okay=False),
    help="Read the messages of the source again into tables in this folder, and compare these.",
)
@click.option(
    "--continuous",
    is_flag=True,
    help="Compare one chunk after the other, without an end; stdout has a line of JSON for each.",
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="The time between two chunks of --continuous.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Serve the figures of --continuous for Prometheus at 127.0.0.1.",
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
    against: str | None,
    replay: str | None,
    continuous: bool,
    interval: float,
    metrics_port: int | None,
    master: str | None,
) -> None:
    """Compare the tables of a captured database with those of the lake.

    Both may change meanwhile: the command waits until `changelane run` has applied the changes up
    to its snapshot, so a run must be active. It writes messages into the log of a PostgreSQL
    database, and nothing else. The report names rows by their keys and columns by their names, and
    has no other values.

    With --repair, the rows that differ are read again and become events of the capture log, at the
    position of their snapshot: newer changes stay. The rows are compared once more.

    With --against, the tables of two pipelines are compared with each other, such as those of two
    table formats, or those of a topic and of a database. Neither needs to run.

    With --replay, the messages of a topic (or of files, or of a capture log) are applied again, to
    tables of their own, and the tables of the pipeline are compared with these. The folder may be
    kept: the next replay continues there. Messages that are gone from the topic are `extra`.

    With --continuous, one chunk is compared in each interval until the command is stopped, and
    stdout has its result, the share of the table that is proven, and the time of the oldest proof.

    Exit codes: 0 no difference, or all repaired; 1 differences, or the tables did not reach the
    snapshot; 2 wrong use or configuration. Rows and columns that cannot be proven are reported and
    are no difference.
    """
    pipeline = with_tables(load(file))
    other = None if against is None else with_tables(load(against))
    if replay is not None:
        if other is not None:
            raise click.UsageError("use one of --against and --replay")
        # a row that the pipeline's table lacks is `missing`, as with a database
        pipeline, other = replayed(pipeline, str(Path(replay).absolute())), pipeline
    if other is not None and repair:
        option = "--against" if replay is None else "--replay"
        raise click.UsageError(f"--repair needs a database: leave out {option}")
    if continuous and (other is not None or json_file or html_file):
        raise click.UsageError("--continuous writes to stdout: leave out the other outputs")
    for report_file in filter(None, (json_file, html_file)):
        if not Path(report_file).absolute().parent.is_dir():
            raise click.UsageError(f"the folder of {report_file} does not exist: create it")
    if metrics_port is not None and not continuous:
        raise click.UsageError("--metrics-port needs --continuous")
    spark = session_of(pipeline, master, others=() if other is None else (other,))
    from changelane.spark.verify.html_page import html_page
    from changelane.spark.verify.lake_comparison import compare_lakes
    from changelane.spark.verify.report import report_lines
    from changelane.spark.verify.table_verification import VerifyOptions
    from changelane.spark.verify.verify import verify as verify_tables

    options = VerifyOptions(
        chunk_rows=chunk_rows, max_readings=readings, timeout_s=timeout, repairs=repair
    )

    def notify(text: str) -> None:
        click.echo(f"changelane: {printable(text)}", err=True)

    if continuous:
        from changelane.spark.verify.continuous import ContinuousVerification

        verification = ContinuousVerification(
            pipeline, tables, spark=spark, options=options, notify=notify
        )
        verify_until_stopped(verification, interval_s=interval, metrics_port=metrics_port)
        return
    if other is None:
        report = verify_tables(pipeline, tables, spark=spark, options=options, notify=notify)
    else:
        if replay is not None:
            from changelane.spark.run.tables import run

            applied = run(spark, pipeline)
            notify(f"replayed {applied.total:,} events into {replay}")
        report = compare_lakes(pipeline, other, tables, spark=spark, options=options, notify=notify)
    for line in report_lines(report):
        click.echo(printable(line))
    if json_file is not None:
        Path(json_file).write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    if html_file is not None:
        Path(html_file).write_text(html_page(report), encoding="utf-8")
    sys.exit(1 if report.has_differences else 0)


def verify_until_stopped(
    verification: "ContinuousVerification", *, interval_s: float, metrics_port: int | None
) -> None:
    """Compare chunks until SIGINT or SIGTERM, and write each result as a line of JSON."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with contextlib.ExitStack() as stack:
        if metrics_port is not None:
            metrics = VerifyMetrics(verification.progress)
            server = Server([metrics], _METRICS_HOST, metrics_port)
            stack.callback(server.close)
        for step in verification.steps():
            if step is not None:
                click.echo(msgspec.json.encode(step))
            if stop.wait(interval_s):
                return

# SPDX-License-Identifier: Apache-2.0
"""``changelane run``: apply a pipeline's changes to its tables."""

import contextlib
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click
import msgspec

from changelane.cli.capture import connect_capture_of, started_capture
from changelane.cli.capture_metrics import figures_reader
from changelane.cli.maintain import describe as maintained
from changelane.cli.run_display import RunDisplay
from changelane.cli.session import session_of
from changelane.conversion.terminal_text import printable
from changelane.errors import MissingExtraError
from changelane.formats.contract.losses import loss_class, loss_of
from changelane.pipeline.config import Pipeline, load
from changelane.pipeline.config_checks import order_note, repeat_note
from changelane.pipeline.database_source import DatabaseSource
from changelane.pipeline.error_budget import over_budget_text
from changelane.pipeline.preflight import check_before_spark
from changelane.pipeline.workload import is_small

if TYPE_CHECKING:
    from changelane.spark.run.tables import RunReport
    from changelane.spark.sinks.report import DeliveriesReport


@click.command()
@click.argument("file", metavar="PIPELINE.yaml", type=click.Path(dir_okay=False))
@click.option("--master", metavar="URL", help="Spark master URL; default: local[*].")
@click.option(
    "--recover-checkpoint",
    is_flag=True,
    help="If the checkpoint is lost, continue from the offsets in the tables.",
)
@click.option(
    "--allow-data-loss",
    is_flag=True,
    help="With --recover-checkpoint: continue even if the source has deleted messages that were "
    "not read yet.",
)
@click.option(
    "--metrics-port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    help="Serve metrics for Prometheus at this port (options.metrics_port).",
)
@click.option("--output", type=click.Choice(["text", "json"]), default="text")
def run(
    file: str,
    *,
    master: str | None,
    recover_checkpoint: bool,
    allow_data_loss: bool,
    metrics_port: int | None,
    output: str,
) -> None:
    """Apply the changes of a pipeline's source to its tables, exactly once.

    The run may be stopped or killed at any moment and started again; the tables are the same at the
    end. Messages and events that cannot be decoded or applied are quarantined with their reason,
    and the run continues.

    On a terminal the run shows a progress line; otherwise it writes one line of JSON per batch to
    stderr. stdout contains only the summary at the end.

    A pipeline into Kafka or DataHub, from Kafka or a captured database, sends each message at least
    once, in the order of its partition or of the database's log.

    Exit codes: 0 success, with at most options.max_errors quarantined events (default: any number);
    1 more quarantined events, a stop by options.on_error, a paused table, a broker that does not
    answer, or another failure; 2 wrong use or configuration; 130 interrupted.
    """
    pipeline = load(file)
    if allow_data_loss and not recover_checkpoint:
        raise click.UsageError("--allow-data-loss needs --recover-checkpoint")
    is_to_topics = pipeline.sink.is_topics
    if recover_checkpoint and is_to_topics:
        kind = pipeline.sink.type_name
        raise click.UsageError(f"--recover-checkpoint needs tables, and the sink is {kind}")
    report: RunReport | DeliveriesReport
    read_capture = figures_reader(pipeline)
    with RunDisplay(
        pipeline.name, pipeline.options, metrics_port, read_capture=read_capture
    ) as display:
        if is_to_topics:
            report = _run_to_topics(pipeline, master, display)
        else:
            resume = recover_checkpoint
            report = _run_to_tables(
                pipeline, master, display, resume=resume, allow_data_loss=allow_data_loss
            )
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(report)))
    else:
        _print_report(report, pipeline.folder)
    if report.is_interrupted and pipeline.options.trigger == "available_now":
        click.echo("changelane: interrupted; the next run continues from here", err=True)
        sys.exit(128 + signal.SIGINT)
    budget = pipeline.options.budget
    if message := over_budget_text(budget, report.quarantined, report.total, is_ended=True):
        click.echo(f"changelane: {message}: changelane quarantine list {file}", err=True)
        sys.exit(1)
    paused: dict[str, str] = getattr(report, "paused", {})
    for name, reason in sorted(paused.items()):
        click.echo(f"changelane: {printable(name)} is paused: {printable(reason)}", err=True)
    if paused:
        click.echo(f"changelane: correct the cause, then: changelane unpause {file}", err=True)
        sys.exit(1)


def _session(pipeline: Pipeline, master: str | None, display: RunDisplay) -> Any:
    check_before_spark(pipeline, master)
    spark = session_of(
        pipeline, master, is_short=is_small(pipeline, master), show_note=display.show_note
    )
    from changelane.spark.runtime.executors import unshared_paths

    if own := unshared_paths(
        spark, [*pipeline.source.folders, pipeline.folder, pipeline.checkpoint]
    ):
        display.show_note(
            f"every machine of the cluster must have access to the same {', '.join(own)}"
        )
    return spark


def _run_to_tables(
    pipeline: Pipeline,
    master: str | None,
    display: RunDisplay,
    *,
    resume: bool,
    allow_data_loss: bool,
) -> "RunReport":
    try:
        from changelane.spark.run import tables as spark_pipeline
        from changelane.spark.run.query import full_disk_errors
    except ImportError as error:
        raise MissingExtraError(error.name or "pyspark", "spark") from None
    for note in filter(None, (order_note(pipeline), repeat_note(pipeline))):
        display.show_note(note)
    with _capture(pipeline, master, display) as check_source, full_disk_errors(pipeline):
        spark = _session(pipeline, master, display)
        display.start()
        return spark_pipeline.run(
            spark,
            pipeline,
            on_batch=display.show_batch,
            notify=display.show_note,
            on_step=display.on_step,
            is_checkpoint_recovery=resume,
            is_data_loss_allowed=allow_data_loss,
            check_source=check_source,
        )


@contextlib.contextmanager
def _capture(
    pipeline: Pipeline, master: str | None, display: RunDisplay
) -> Iterator[Callable[[], None]]:
    """Capture the database of a pipeline: up to now, or beside a continuous run.

    Yields:
        The check of a capture that runs beside the run; it does nothing otherwise.
    """
    if not isinstance(pipeline.source, DatabaseSource):
        yield lambda: None
        return
    is_until_now = pipeline.options.trigger == "available_now"
    if pipeline.source.connect_url is not None:
        connect_capture = connect_capture_of(pipeline.source, display.show_note)
        connect_capture.start()
        if is_until_now:
            connect_capture.wait_until_now()
        yield connect_capture.check
        return
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(
            started_capture(pipeline, display.show_note, is_until_now=is_until_now, master=master)
        )
        if not is_until_now:
            yield running.check
            return
        running.wait_until_now()
        stack.close()  # one of the two JVMs at a time
        yield lambda: None


def _run_to_topics(
    pipeline: Pipeline, master: str | None, display: RunDisplay
) -> "DeliveriesReport":
    try:
        from changelane.spark.run.query import full_disk_errors
        from changelane.spark.sinks.delivery import run_to_topics
    except ImportError as error:
        raise MissingExtraError(error.name or "pyspark", "spark") from None
    with _capture(pipeline, master, display) as check_source, full_disk_errors(pipeline):
        spark = _session(pipeline, master, display)
        display.start()
        return run_to_topics(
            spark,
            pipeline,
            on_batch=display.show_batch,
            notify=display.show_note,
            on_step=display.on_step,
            check_source=check_source,
        )


def _print_report(report: "RunReport | DeliveriesReport", path: str) -> None:
    from changelane.spark.run.tables import RunReport

    if isinstance(report, RunReport):
        _print_summary(report, path)
    else:
        _print_deliveries(report, path)


def _print_nothing_new(source: str, report: "RunReport | DeliveriesReport") -> None:
    if not report.is_interrupted:  # an interrupted run may not have looked
        click.echo(f"nothing new to {source}")


def _print_deliveries(report: "DeliveriesReport", path: str) -> None:
    if not report.batches:
        _print_nothing_new("send", report)
        return
    losses: Counter[str] = Counter()
    for batch in report.batches:
        losses.update(batch.losses)
    for name in ("messages", "events", "written"):
        words = {"messages": "messages read", "events": "events", "written": "messages sent"}[name]
        click.echo(f"{words:<40} {sum(getattr(batch, name) for batch in report.batches):>10,}")
    classes = {loss: loss_class(loss_of(loss)[0]) for loss in losses}
    for loss in sorted(losses, key=lambda loss: (classes[loss], loss)):
        label = f"lost, {classes[loss]}: {printable(loss)}"
        click.echo(f"{label:<40} {losses[loss]:>10,}")
    for code, count in sorted(report.quarantined.items()):
        click.echo(f"{'quarantined: ' + code:<40} {count:>10,}")
    if report.quarantined:
        click.echo(f"quarantine in {path}/_changelane/quarantine")


def _print_tables(report: "RunReport") -> None:
    """Print the counts, notes and warnings of each table."""
    tables = [table for batch in report.batches for table in batch.tables]
    counts: Counter[str] = Counter()
    notes: dict[str, str] = {}
    sums: dict[str, Counter[str]] = {
        "events that an earlier run applied": Counter(),
        "repeated events, which added no row": Counter(),
        "possible duplicates": Counter(),
    }
    for table in tables:
        name = table.table
        counts[name] += table.events
        if table.note and (table.events or not table.applied_before):
            notes[name] = table.note
        parts = (table.applied_before, table.repeats, table.possible_duplicates)
        for total, count in zip(sums.values(), parts, strict=True):
            total[name] += count
    for name in sorted(counts):
        note = f"  ({printable(notes[name])})" if name in notes else ""
        click.echo(f"{printable(name):<40} {counts[name]:>10,} events{note}")
        for words, total in sums.items():
            if total[name]:
                click.echo(f"{'  ' + words:<40} {total[name]:>10,}")
    if finished := sum(batch.finished_before for batch in report.batches):
        click.echo(f"{'batches that an earlier run applied':<40} {finished:>10,}")
    for table in tables:
        if table.warning:
            click.echo(f"warning: {printable(table.table)}: {printable(table.warning)}")


def _print_summary(report: "RunReport", path: str) -> None:
    if report.changed:
        note = "  (their new content is not read)"
        click.echo(
            f"{'files that changed after they were read':<40} {len(report.changed):>10,}{note}"
        )
    if not report.batches:
        _print_nothing_new("apply", report)
        return
    _print_tables(report)
    for maintenance_report in report.maintained:
        if maintenance_report.is_compacted or maintenance_report.merge_mode:
            click.echo(maintained(maintenance_report))
    if other_events := sum(batch.other for batch in report.batches):
        click.echo(f"{'events without a row':<40} {other_events:>10,}")
    if statements := sum(batch.statements for batch in report.batches):
        click.echo(f"{'DDL statements':<40} {statements:>10,}")
    if shadows := sum(batch.shadows for batch in report.batches):
        note = "  (options.shadow_tables: skip)"
        click.echo(f"{'skipped events of shadow tables':<40} {shadows:>10,}{note}")
    for code, count in sorted(report.quarantined.items()):
        click.echo(f"{'quarantined: ' + code:<40} {count:>10,}")
    click.echo(f"tables under {path}/tables; quarantine in {path}/_changelane/quarantine")

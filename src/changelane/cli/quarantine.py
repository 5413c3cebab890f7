# SPDX-License-Identifier: Apache-2.0
"""``changelane quarantine``: list, show and replay quarantined messages and events."""

import itertools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console

from changelane.cli import options
from changelane.cli.session import session_of
from changelane.cli.terminal import Column, output_console, print_table
from changelane.conversion.message_files import open_input
from changelane.conversion.terminal_text import printable
from changelane.pipeline.config import load
from changelane.transforms.mask import masks_of

if TYPE_CHECKING:
    from changelane.spark.maintenance.quarantine_view import ReasonCount
    from changelane.spark.state.replays import ReplayReport

SHOWN = 20
"""The default number of entries that `show` prints as text."""


@click.group()
def quarantine() -> None:
    """List, show and replay quarantined messages and events.

    Entries are never deleted from the quarantine: replayed entries are marked.
    """


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--output", type=click.Choice(["text", "json"]), default="text"),
        click.option("--master", metavar="URL", help="Spark master URL; default: local[*]."),
        click.argument("file", metavar="PIPELINE.yaml", type=click.Path(dir_okay=False)),
    ):
        command = option(command)
    return command


def _selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for name, destination, text in (
        ("--entry", "entries", "Only this entry, by its id; repeatable."),
        ("--table", "tables", "Only entries of this table, by its name at the source; repeatable."),
        ("--code", "codes", "Only entries with this reason code; repeatable."),
    ):
        option = click.option(name, destination, multiple=True, metavar=name[2:].upper(), help=text)
        command = option(command)
    return command


@quarantine.command("list")
@_options
def list_(file: str, *, master: str | None, output: str) -> None:
    """Count pending and replayed entries by reason code and table."""
    pipeline = load(file)
    spark = session_of(pipeline, master, is_short=True)
    from changelane.spark.lake import lake_of
    from changelane.spark.maintenance.quarantine_view import count_by_reason

    reason_counts = count_by_reason(
        lake_of(spark, pipeline), pipeline.name, masks_of(pipeline.pure_steps)
    )
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(reason_counts)))
        return
    if not reason_counts:
        click.echo("the quarantine is empty")
        return
    show_counts(reason_counts, output_console())


def show_counts(reason_counts: "list[ReasonCount]", console: Console) -> None:
    """Print the counts of entries."""
    is_withheld = any(reason_count.withheld for reason_count in reason_counts)
    withheld = ["not replayable"] if is_withheld else []
    columns = [
        Column(name, is_text=name in {"reason", "table", "example"})
        for name in ("reason", "table", "pending", *withheld, "replayed", "example")
    ]
    rows = [
        (
            printable(reason_count.code),
            printable(reason_count.table),
            f"{reason_count.pending:,}",
            *([f"{reason_count.withheld:,}"] if is_withheld else []),
            f"{reason_count.replayed:,}",
            printable(reason_count.reason),
        )
        for reason_count in reason_counts
    ]
    print_table(columns, rows, console)
    if is_withheld:
        click.echo(
            "not replayable: only hashes are stored; read the messages again from the source"
        )


@quarantine.command()
@_options
@_selection_options
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Maximum number of entries; default: {SHOWN}, and all with --output json.",
)
def show(
    file: str,
    *,
    codes: tuple[str, ...],
    tables: tuple[str, ...],
    entries: tuple[str, ...],
    limit: int | None,
    master: str | None,
    output: str,
) -> None:
    """Show pending entries with the values of their messages.

    --output json writes one line per entry: the record of a message, as in `convert
    --output-line-format record`, with the id of its entry, or an event that a table rejected.
    Correct key, value or headers of records in that file, and pass it to `replay --repaired`.
    """
    pipeline = load(file)
    spark = session_of(pipeline, master)
    from changelane.spark.lake import lake_of
    from changelane.spark.maintenance.quarantine_view import EntryFilter, entry_records

    masks, choice = masks_of(pipeline.pure_steps), EntryFilter(codes, tables, entries)
    shown_entries = entry_records(lake_of(spark, pipeline), pipeline.name, choice, masks)
    if output == "json":
        for entry in itertools.islice(shown_entries, limit):
            click.echo(msgspec.json.encode(entry))
        return
    count = 0
    for entry in itertools.islice(shown_entries, limit or SHOWN):
        _print(entry)
        count += 1
    if not count:
        click.echo("no entry is pending")
    elif limit is None and count == SHOWN:
        click.echo(f"the first {SHOWN}: --limit shows more")


def _print(entry: dict[str, Any]) -> None:
    where = msgspec.json.encode([entry[name] for name in ("topic", "partition", "offset")]).decode()
    table = f" {entry['table']}" if entry["table"] else ""
    click.echo(
        printable(f"{entry['entry']}  {entry['code']}{table}  {where}, batch {entry['batch']}")
    )
    path = "" if entry["path"] in {None, "$"} else f" at {entry['path']}"
    click.echo(printable(f"  {entry['reason']}{path}"))
    if not entry["replayable"]:
        click.echo("  not replayable: read it again from its source")
    parts = ("key", "key_base64", "value", "value_base64", "headers", "event", "file", "withheld")
    for name in parts:
        if entry.get(name):
            text = (
                entry[name]
                if isinstance(entry[name], str)
                else msgspec.json.encode(entry[name]).decode()
            )
            click.echo(printable(f"  {name}: {text}"))


@quarantine.command()
@_options
@_selection_options
@click.option("--format", "format_", metavar="FORMAT", help="Decode the messages with this format.")
@options("format", "format of --format", fills_secrets=False)
@click.option(
    "--repaired",
    metavar="FILE",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="Replay the corrected entries of this file, from `show --output json`.",
)
@click.option("--discard", is_flag=True, help="Discard the selected entries permanently.")
@click.option(
    "--abandon",
    is_flag=True,
    help="Only end the replays that were killed or failed; their entries are pending again.",
)
def replay(
    file: str,
    *,
    codes: tuple[str, ...],
    tables: tuple[str, ...],
    entries: tuple[str, ...],
    format_: str | None,
    format_options: dict[str, str],
    repaired: str | None,
    discard: bool,
    abandon: bool,
    master: str | None,
    output: str,
) -> None:
    """Process pending entries again, once, with the present file of the pipeline.

    Entries keep their original order, so newer rows stay unchanged. An entry that fails again is
    quarantined as a new entry. The next replay completes a killed one. If that fails each time,
    end it with --abandon: what it has written stays. A running pipeline stops with a message; start
    it again afterwards.

    Exit codes: 0 all entries were applied, 1 entries were quarantined again or failed, 2 wrong use.
    """
    pipeline = load(file)
    if discard and (repaired is not None or format_ or not (codes or tables or entries)):
        raise click.UsageError("--discard needs --entry, --table or --code, and no other option")
    if repaired is not None and (codes or tables or entries):
        raise click.UsageError(
            "--repaired replays all entries of its file: select them in the file"
        )
    if abandon and (repaired is not None or format_ or discard or codes or tables or entries):
        raise click.UsageError("--abandon ends all unfinished replays: omit the other options")
    repaired_messages = None
    if repaired is not None:
        from changelane.spark.replay.repaired import read_repaired

        with open_input(repaired) as input_file:
            repaired_messages = read_repaired(input_file.stream)
    spark = session_of(pipeline, master)
    from changelane.spark.maintenance.quarantine_view import EntryFilter
    from changelane.spark.replay import replay as replays
    from changelane.spark.state.replays import Settings

    if abandon:
        reports = replays.abandon(spark, pipeline)
    else:
        reports = replays.replay(
            spark,
            pipeline,
            EntryFilter(codes, tables, entries),
            Settings(format_, dict(format_options), discard),
            repaired_messages,
        )
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(reports)))
    else:
        none = "no replay is unfinished" if abandon else "no pending entry can be replayed"
        _summary(reports, none)
    if any(report.quarantined or report.waiting_quarantined or report.paused for report in reports):
        sys.exit(1)


def _summary(reports: "list[ReplayReport]", none: str) -> None:
    if not reports:
        click.echo(none)
    for report in reports:
        if report.is_abandoned:
            entries = f"{report.entries} entries are pending again"
            click.echo(f"replay {report.number} abandoned: {entries}")
            continue
        word = "completed" if report.is_resumed else "done"
        if report.is_discarded:
            click.echo(f"replay {report.number} {word}: {report.entries} entries discarded")
            continue
        sent = f", {report.written} messages sent" if report.written else ""
        click.echo(
            f"replay {report.number} {word}: {report.entries} entries, {report.events} events{sent}"
        )
        for name, count in sorted(report.tables.items()):
            click.echo(f"{printable(name):<40} {count:>10,} events")
        for code, count in sorted(report.quarantined.items()):
            click.echo(f"{'quarantined again: ' + printable(code):<40} {count:>10,}")
        for code, count in sorted(report.waiting_quarantined.items()):
            click.echo(f"{'quarantined of waiting events: ' + printable(code):<40} {count:>10,}")
        for name, reason in sorted(report.paused.items()):
            click.echo(f"changelane: {printable(name)} is paused: {printable(reason)}", err=True)
